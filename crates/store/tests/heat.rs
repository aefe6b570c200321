//! The heat of files, beside files that any user of a pool may have made.

mod common;

use common::{TestPool, pattern};
use rustix::fs::{Mode, OFlags, XattrFlags};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_store::handle::{ATTRIBUTE, Handle};
use stripewise_store::{Files, Pool, Store};

/// A pool that keeps heat, with files of these names of which each has some.
fn hot(names: &[&str]) -> (TestPool, Arc<Store>) {
    let mut pool = TestPool::new(2);
    let text = std::fs::read_to_string(&pool.pool.file).unwrap();
    std::fs::write(&pool.pool.file, text + "\n[heat]\nperiod = \"31000000s\"\n").unwrap();
    pool.pool = Pool::load(&pool.pool.file).unwrap();
    let files = Files::open(pool.pool.clone()).unwrap();
    for name in names {
        let file = files.open_file(Path::new(name), OFlags::RDWR | OFlags::CREATE, Mode::RUSR | Mode::WUSR).unwrap();
        file.write_at(&[IoSlice::new(&pattern(200_000, 1))], 0).unwrap();
        file.close().unwrap();
    }
    drop(files);
    let store = pool.open();
    (pool, store)
}

fn read_handle(path: &Path) -> Handle {
    let mut bytes = [0; 4096];
    let len = rustix::fs::getxattr(path, ATTRIBUTE, &mut bytes[..]).unwrap();
    Handle::decode(&bytes[..len]).unwrap()
}

fn write_handle(path: &Path, handle: &Handle) {
    rustix::fs::setxattr(path, ATTRIBUTE, &handle.encode().unwrap(), XattrFlags::empty()).unwrap();
}

fn paths(store: &Arc<Store>) -> Vec<PathBuf> {
    store.heat(&|_| true).unwrap().files.into_iter().map(|file| file.path).collect()
}

#[test]
fn a_file_that_cannot_be_read_keeps_no_other_from_being_known() {
    let (pool, store) = hot(&["good", "lost", "cut"]);
    assert_eq!(paths(&store).len(), 3);
    for (name, is_cut) in [("lost", false), ("cut", true)] {
        let path = pool.pool.namespace.join("tree").join(name);
        let mut handle = read_handle(&path);
        handle.layout = [7; 32];
        handle.truncating_to = is_cut.then_some(10);
        write_handle(&path, &handle);
    }
    let store = pool.open();
    assert_eq!(paths(&store), [Path::new("good")]);
    let unreadable = store.heat(&|_| true).unwrap().unreadable;
    let names: Vec<_> = unreadable.iter().map(|(path, _)| path.as_path()).collect();
    assert_eq!(names, [Path::new("cut"), Path::new("lost")]);
    for (_, why) in unreadable {
        assert_eq!(why.matches(&"07".repeat(32)).count(), 1, "its hash once: {why}");
    }
}

#[test]
fn a_copy_of_a_handle_takes_no_file_out() {
    let (pool, store) = hot(&["victim"]);
    let tree = pool.pool.namespace.join("tree");
    let mut handle = read_handle(&tree.join("victim"));
    // Of whatever order the directory has, some come first.
    let copies: Vec<String> = (0..8).map(|number| format!("copy{number}")).collect();
    for name in &copies {
        std::fs::write(tree.join(name), "").unwrap();
        handle.real = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(tree.join(name)).unwrap());
        write_handle(&tree.join(name), &handle);
    }
    assert!(paths(&store).iter().any(|path| path == Path::new("victim")));
    let parts = store.parts_on("disk", &std::collections::HashMap::new()).unwrap().parts;
    assert!(parts.iter().any(|part| part.path == "victim"), "{parts:?}");
}
