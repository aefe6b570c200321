//! Servers come and go while files are there: adding, draining, removing.

mod common;

use common::life::{On, bytes_of, findings, mend, now, servers_of};
use common::{TestPool, content, create, in_own_mounts, layout, mount_tmpfs, pattern, write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_layout::{Layout, Pattern, ServerId};
use stripewise_store::adding::{add_server, add_servers};
use stripewise_store::drain::{DrainOptions, DrainWatch, Drained, drain, remove, replace, take_back};
use stripewise_store::fsck::{CheckFinding, CheckOptions, CheckWatch, check};
use stripewise_store::pool::{PoolSpec, ServerState, TierSpec};
use stripewise_store::rebalance::{Filling, rebalance};
use stripewise_store::{Error, Pool, Store, Then};

fn drained(pool: &TestPool, name: &str) -> Drained {
    drain(&pool.pool.file, name, &DrainOptions::default(), &mut On).unwrap()
}

fn refused<T: std::fmt::Debug>(done: Result<T, Error>) -> String {
    done.unwrap_err().to_string()
}

/// Datafiles that stand on a server, by the names of its directories.
fn datafiles(root: &Path) -> usize {
    let shelves = std::fs::read_dir(root).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    shelves.map(|shelf| std::fs::read_dir(shelf.path()).unwrap().count()).sum()
}

/// The command was killed in its last step, which clears the directory.
#[test]
fn what_a_removal_has_left_of_its_server_goes_when_it_is_run_again() {
    let pool = TestPool::new(3);
    let marker = pool.root(1).join(".stripewise");
    let (text, again) =
        (std::fs::read_to_string(&marker).unwrap(), || remove(&pool.pool.file, "disk.1", false, &mut On));
    again().unwrap();
    assert!(!marker.exists());
    assert_eq!(again().unwrap(), Drained::default(), "it was done");
    std::fs::create_dir_all(pool.root(1)).unwrap();
    std::fs::write(&marker, &text).unwrap();
    assert_eq!(again().unwrap(), Drained::default());
    assert!(!marker.exists());
    // By its mark it is another server's by now.
    std::fs::create_dir_all(pool.root(1)).unwrap();
    std::fs::write(&marker, text.replace("disk.1 #1", "disk.3 #3")).unwrap();
    again().unwrap();
    assert!(marker.exists());
    // It has bytes that came with a disk from before.
    std::fs::write(&marker, &text).unwrap();
    std::fs::create_dir_all(pool.root(1).join("00")).unwrap();
    std::fs::write(pool.root(1).join("00").join("0000000000000100.00000001"), "bytes").unwrap();
    let why = refused(again());
    assert!(why.contains("datafiles that no file of the tree names") && marker.exists(), "{why}");
}

#[test]
fn a_drained_server_is_empty_and_can_be_removed() {
    let pool = TestPool::new(4);
    let store = pool.open();
    let shapes: [(&str, Layout); 4] = [
        ("all", Layout::striped((0..4).map(ServerId), 4096).unwrap()),
        ("alone", layout(&[(0, &[(1, 700)])])),
        ("two", layout(&[(0, &[(1, 4096), (2, 100)])])),
        ("regions", layout(&[(0, &[(0, 64)]), (8192, &[(1, 512), (3, 512)]), (16384, &[(2, 4096)])])),
    ];
    for (name, shape) in &shapes {
        store.set_rule(&Pattern::new(name).unwrap(), shape).unwrap();
        let (_fd, inode) = create(&store, name);
        write(&inode, &pattern(50_000, 3), 0);
    }
    create(&store, "empty");
    // A second name of a file is the same file.
    let tree = pool.pool.namespace.join("tree");
    std::fs::hard_link(tree.join("two"), tree.join("other name")).unwrap();
    let why = refused(remove(&pool.pool.file, "disk.1", false, &mut On));
    assert!(
        why.contains("6 files have their place there, such as all (") && why.contains("KiB on its disk): "),
        "{why}"
    );

    let options = DrainOptions { dry_run: true, ..DrainOptions::default() };
    let planned = drain(&pool.pool.file, "disk.1", &options, &mut On).unwrap();
    assert_eq!((planned.moved_files, planned.rules), (5, 4));
    assert_eq!(Pool::load(&pool.pool.file).unwrap().servers[1].state, ServerState::Used);
    let done = drained(&pool, "disk.1");
    assert!(done.is_done(), "{done:?}");
    assert_eq!((done.moved_files, done.copied_bytes, done.rules), (5, planned.copied_bytes, 4));

    let after = now(&pool);
    assert_eq!(servers_of(&after, "all"), [0, 2, 3], "all others were there: they keep their widths");
    assert_eq!(servers_of(&after, "alone").len(), 1);
    assert!(!servers_of(&after, "two").contains(&1));
    for (name, _) in &shapes {
        assert!(bytes_of(&after, name) == pattern(50_000, 3), "{name}");
        assert!(!after.layout_for(Path::new(name)).unwrap().servers().contains(&ServerId(1)), "{name}");
    }
    assert_eq!(datafiles(pool.root(1)), 0);
    assert_eq!(after.default_layout().servers().len(), 3);
    assert_eq!(findings(&pool), []);

    assert_eq!(remove(&pool.pool.file, "disk.1", false, &mut On).unwrap(), Drained::default());
    assert!(!pool.root(1).exists());
    assert_eq!(findings(&pool), []);
    let last = now(&pool);
    assert_eq!(servers_of(&last, "regions"), servers_of(&after, "regions"), "the others keep their ids");
    assert!(bytes_of(&last, "all") == pattern(50_000, 3));
    assert_eq!(remove(&pool.pool.file, "disk.1", false, &mut On).unwrap(), Drained::default(), "it is done");
    // A tier takes servers when its first one, or each that it had, has gone.
    assert!(drained(&pool, "disk.0").is_done());
    remove(&pool.pool.file, "disk.0", false, &mut On).unwrap();
    let root = pool.directory.path().join("new");
    let (name, done) = replace(&pool.pool.file, "disk.2", &root, false, &mut On).unwrap();
    assert!(name == "disk.4" && done.is_done());
    assert!(datafiles(&root) > 0 && datafiles(pool.root(2)) == 0);
    assert!(last.set_rule(&Pattern::new("x").unwrap(), &shapes[1].1).unwrap_err().to_string().contains("was removed"));
}

#[test]
fn a_store_that_was_open_puts_new_files_elsewhere_and_finds_added_servers() {
    let pool = TestPool::new(3);
    let before = pool.open();
    let (_fd, inode) = create(&before, "old");
    write(&inode, &pattern(30_000, 1), 0);
    let root = pool.directory.path().join("new");
    assert_eq!(add_server(&pool.pool.file, "disk", &root).unwrap(), "disk.3");
    let link = pool.directory.path().join("link");
    std::os::unix::fs::symlink(&root, &link).unwrap();
    for path in [&root, &link] {
        assert_eq!(add_server(&pool.pool.file, "disk", path).unwrap(), "disk.3", "again it is the same");
    }
    assert!(drained(&pool, "disk.0").is_done());
    before.due_look().expect("it is time for a look").take();
    let (_fd, made) = create(&before, "young");
    write(&made, &pattern(60_000, 2), 0);
    assert_eq!(servers_of(&before, "young"), [1, 2, 3], "what was open has seen both");
    assert!(datafiles(&root) > 0);
    // The open file has its new place.
    assert!(content(&inode) == pattern(30_000, 1));
    assert!(!servers_of(&before, "old").contains(&0));
    write(&inode, &pattern(5000, 9), 20_000);
    let after = now(&pool);
    assert!(bytes_of(&after, "young") == pattern(60_000, 2));
    assert!(bytes_of(&after, "old")[20_000..25_000] == pattern(5000, 9));
    assert_eq!(findings(&pool), []);
}

#[test]
fn an_added_server_shifts_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path();
    let tier = |name: &str, count: usize| TierSpec {
        name: name.into(),
        servers: (0..count).map(|index| base.join(format!("{name}{index}"))).collect(),
        ..TierSpec::default()
    };
    let spec = PoolSpec {
        name: "test".into(),
        mount: base.join("mount"),
        namespace: base.join("names"),
        default_width_bytes: Some(4096),
        tiers: vec![tier("hdd", 2), tier("ssd", 1)],
    };
    let file = base.join("pool.toml");
    Pool::init(&file, &spec).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("# kept\n{text}")).unwrap();
    assert_eq!(add_server(&file, "hdd", &base.join("hdd2")).unwrap(), "hdd.2");
    let pool = Pool::load(&file).unwrap();
    let names: Vec<_> = pool.servers.iter().map(|server| &*server.name).collect();
    assert_eq!(names, ["hdd.0", "hdd.1", "ssd.0", "hdd.2"]);
    assert!(!pool.is_plain() && std::fs::read_to_string(&file).unwrap().starts_with("# kept\n"));
    assert_eq!(pool.default_layout().servers().len(), 4);
    // The last server of its tier goes only where it is told to.
    let options = |to: Option<&str>| DrainOptions { to: to.map(str::to_owned), ..DrainOptions::default() };
    let error = refused(drain(&file, "ssd.0", &options(None), &mut On));
    assert!(error.contains("tier ssd has no other server in use") && error.contains(" on its disk)"), "{error}");
    assert!(refused(drain(&file, "ssd.0", &options(Some("tape")), &mut On)).contains("name one of hdd, ssd"));
    assert!(refused(drain(&file, "meta", &options(None), &mut On)).contains("none of the pool's servers"));
    assert!(drain(&file, "ssd.0", &options(Some("hdd")), &mut On).unwrap().is_done());
    assert_eq!(Pool::load(&file).unwrap().servers[2].state, ServerState::Draining);
}

/// Root adds a disk to the pool of a user, who goes on writing. What has something in it is not given away.
#[test]
fn a_server_that_root_adds_to_the_pool_of_a_user_is_the_user_s() {
    use std::os::unix::fs::{MetadataExt, chown};
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give directories away");
        return;
    }
    const USER: u32 = 65_534;
    let pool = TestPool::new(1);
    let path = |name: &str| pool.directory.path().join(name);
    chown(&pool.pool.namespace, Some(USER), Some(USER)).unwrap();
    std::fs::create_dir(path("kept")).unwrap();
    std::fs::write(path("kept/lost"), b"of root").unwrap();
    std::fs::create_dir(path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(path("elsewhere"), path("link")).unwrap();
    for name in ["new", "kept", "link"] {
        add_server(&pool.pool.file, "disk", &path(name)).unwrap();
    }
    let owner = |name: &str| std::fs::metadata(path(name)).unwrap().uid();
    let marker = std::fs::read_dir(path("new")).unwrap().next().unwrap().unwrap();
    assert_eq!((owner("new"), marker.metadata().unwrap().uid()), (USER, USER));
    assert_eq!((owner("kept"), owner("kept/lost"), owner("elsewhere")), (0, 0, 0));
}

#[test]
fn a_directory_that_cannot_be_a_server_is_refused_and_left_alone() {
    let (pool, other) = (TestPool::new(2), TestPool::new(1));
    let (_fd, inode) = create(&other.open(), "file");
    write(&inode, &pattern(9000, 1), 0);
    let text = std::fs::read_to_string(&pool.pool.file).unwrap();
    let refuse = |root: PathBuf, what: &str| {
        let error = add_server(&pool.pool.file, "disk", &root).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert_eq!(std::fs::read_to_string(&pool.pool.file).unwrap(), text);
    };
    refuse(other.root(0).to_owned(), "belongs to another pool, 'test'");
    refuse(other.root(0).join("below"), "lies inside disk.0 #0");
    refuse(pool.root(0).join("below"), "lies inside disk.0");
    refuse(pool.pool.namespace.join("below"), "lies inside the namespace");
    refuse(pool.pool.mount.join("below"), "lies inside the mount");
    refuse(pool.directory.path().to_owned(), "or around it");
    assert!(add_server(&pool.pool.file, "tape", &pool.directory.path().join("x")).is_err());
    assert!(!pool.root(0).join("below").exists() && !pool.directory.path().join("x").exists());
    // A directory with datafiles of a server that was removed.
    let kept = pool.directory.path().join("kept/aa");
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::write(kept.join("00000000000000aa.00000001"), "bytes").unwrap();
    refuse(pool.directory.path().join("kept"), "has datafiles");
}

#[test]
fn too_little_room_is_told_with_the_figure_before_anything_moves() {
    let pool = TestPool::new(2);
    let store = pool.open();
    store.set_rule(&Pattern::new("f*").unwrap(), &layout(&[(0, &[(0, 4096)])])).unwrap();
    for name in ["f1", "f2"] {
        let (_fd, inode) = create(&store, name);
        write(&inode, &pattern(100_000, 1), 0);
    }
    let text = std::fs::read_to_string(&pool.pool.file).unwrap();
    std::fs::write(&pool.pool.file, format!("{text}capacity = \"150KB\"\n")).unwrap();
    let before = std::fs::read_to_string(&pool.pool.file).unwrap();
    let error = refused(drain(&pool.pool.file, "disk.0", &DrainOptions::default(), &mut On));
    assert!(
        error.contains("f2 does not fit: what leaves disk.0 needs") && error.contains("on disk.1, where"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&pool.pool.file).unwrap(), before);
    assert_eq!(servers_of(&now(&pool), "f1"), [0]);
}

#[test]
fn a_replacement_that_is_too_small_is_told_with_the_figure_and_not_added() {
    let pool = TestPool::new(2);
    let store = pool.open();
    for name in ["f1", "f2"] {
        put(&store, name, &layout(&[(0, &[(0, 4096)])]), &pattern(100_000, 1));
    }
    let text = std::fs::read_to_string(&pool.pool.file).unwrap();
    let limited = |capacity: &str| format!("{text}capacity = \"{capacity}\"\n");
    std::fs::write(&pool.pool.file, limited("150KB")).unwrap();
    let root = pool.directory.path().join("new");
    let replaced = || replace(&pool.pool.file, "disk.0", &root, false, &mut On);
    let error = replaced().unwrap_err().to_string();
    assert!(
        error.contains("f2 does not fit: what leaves disk.0 needs") && error.contains("on disk.2, where"),
        "{error}"
    );
    assert!(!root.exists());
    assert_eq!(std::fs::read_to_string(&pool.pool.file).unwrap(), limited("150KB"));
    std::fs::write(&pool.pool.file, limited("1MB")).unwrap();
    let (name, done) = replaced().unwrap();
    assert_eq!((&*name, done.moved_files, done.is_done()), ("disk.2", 2, true));
}

/// A directory that is a server already is the new one of a replacement that was begun, or none.
#[test]
fn a_server_is_replaced_by_no_server_that_was_not_added_for_that() {
    let pool = TestPool::new(3);
    let store = pool.open();
    put(&store, "both", &layout(&[(0, &[(0, 4096), (1, 4096)])]), &pattern(100_000, 1));
    put(&store, "one", &layout(&[(0, &[(0, 4096)])]), &pattern(100_000, 2));
    put(&store, "other", &layout(&[(0, &[(0, 4096), (1, 4096), (2, 4096)])]), &pattern(100_000, 3));
    let before = std::fs::read_to_string(&pool.pool.file).unwrap();
    let file = &pool.pool.file;
    let error = |name: &str, server: usize| {
        let text = std::fs::read_to_string(file).unwrap();
        let error = replace(file, name, pool.root(server), false, &mut On).unwrap_err().to_string();
        assert_eq!(std::fs::read_to_string(file).unwrap(), text, "{error}");
        error
    };
    assert!(error("disk.0", 0).contains("is the directory of disk.0 itself"));
    assert!(error("disk.0", 1).contains("is disk.1 of the pool already: name a directory on a new disk"));
    assert_eq!(std::fs::read_to_string(file).unwrap(), before);
    // Also while it is drained.
    let stopped = DrainOptions::default();
    assert!(drain(file, "disk.0", &stopped, &mut StopsAt(1)).unwrap().stopped);
    assert!(error("disk.0", 1).contains("is disk.1 of the pool already: name a directory on a new disk"));
    assert!(error("disk.0", 0).contains("is the directory of disk.0 itself"));
    let known = add_server(file, "disk", pool.root(0)).unwrap_err().to_string();
    assert!(known.contains("of disk.0, which is drained: `stripewise pool drain --cancel`"), "{known}");
    // One that was begun and stopped goes on, also where the drain of a third server has put bytes of the same file on the new one.
    let root = pool.directory.path().join("new");
    let (name, done) = replace(file, "disk.0", &root, false, &mut StopsAt(1)).unwrap();
    assert!(name == "disk.3" && done.stopped);
    assert!(drain(file, "disk.2", &DrainOptions::default(), &mut On).unwrap().is_done());
    take_back(file, "disk.2").unwrap();
    assert_eq!(servers_of(&now(&pool), "other"), [0, 1, 3]);
    assert!(error("disk.0", 2).contains("is disk.2 of the pool already"));
    let (name, done) = replace(file, "disk.0", &root, false, &mut On).unwrap();
    assert!(name == "disk.3" && done.is_done());
    let after = now(&pool);
    assert_eq!((servers_of(&after, "both"), servers_of(&after, "one")), (vec![1, 3], vec![3]));
    for (name, seed) in [("both", 1), ("one", 2), ("other", 3)] {
        assert!(!servers_of(&after, name).contains(&0) && bytes_of(&after, name) == pattern(100_000, seed), "{name}");
    }
    remove(file, "disk.0", false, &mut On).unwrap();
    assert_eq!(findings(&pool), []);
}

/// Stops once the file `large` has that many regions.
struct StopsAtRegions<'a>(&'a TestPool, usize);

impl DrainWatch for StopsAtRegions<'_> {
    fn progress(&mut self, _: &str, done_bytes: u64, total_bytes: u64) -> Then {
        assert!(done_bytes <= total_bytes, "{done_bytes} of {total_bytes}");
        let inode = now(self.0).lookup(Path::new("large")).unwrap().unwrap();
        if inode.layout().unwrap().regions().len() == self.1 { Then::Stop } else { Then::On }
    }
}

/// A drain and a replacement of a server with a large file are stopped in the second step: what the first has moved is not moved again.
#[test]
fn a_large_file_leaves_a_server_step_by_step() {
    const STEP: u64 = 256 << 20;
    let size_bytes = 3 * STEP + 12_345;
    // Nothing but their blocks is copied: the rest of the file is a hole.
    let marks = [0, STEP / 2, STEP - 10, STEP, 2 * STEP + 1000, 3 * STEP - 10, size_bytes - 10];
    const FIRST: u64 = 3 * 4096;
    const REST: u64 = 3 * 4096 + 12_345 % 4096;
    let made = || {
        let pool = TestPool::new(3);
        let store = pool.open();
        store.set_rule(&Pattern::new("*").unwrap(), &layout(&[(0, &[(0, 65_536)])])).unwrap();
        let (_fd, inode) = create(&store, "large");
        for (mark, seed) in marks.into_iter().zip(0..) {
            write(&inode, &pattern(10, seed), mark);
        }
        pool
    };
    let check = |pool: &TestPool, servers: Vec<Vec<u16>>| {
        let store = now(pool);
        let inode = store.lookup(Path::new("large")).unwrap().unwrap();
        let layout = inode.layout().unwrap();
        let of = |region: &stripewise_layout::Region| region.stripes().iter().map(|stripe| stripe.server.0).collect();
        assert_eq!(layout.regions().iter().map(of).collect::<Vec<Vec<u16>>>(), servers);
        assert_eq!(inode.attributes().unwrap().size_bytes, size_bytes);
        for (mark, seed) in marks.into_iter().zip(0..) {
            let mut found = [1; 10];
            assert_eq!(inode.read_at(&mut found, mark).unwrap(), 10);
            assert_eq!(found[..], pattern(10, seed), "at {mark}");
        }
        assert_eq!(findings(pool), []);
    };
    let pool = made();
    let done = drain(&pool.pool.file, "disk.0", &DrainOptions::default(), &mut StopsAtRegions(&pool, 2)).unwrap();
    assert_eq!((done.stopped, done.moved_files, done.copied_bytes), (true, 0, FIRST));
    let taker = servers_of(&now(&pool), "large").into_iter().find(|server| *server != 0).unwrap();
    check(&pool, vec![vec![taker], vec![0]]);
    let done = drained(&pool, "disk.0");
    assert_eq!((done.moved_files, done.copied_bytes), (1, REST));
    assert!(!servers_of(&now(&pool), "large").contains(&0));

    let pool = made();
    let (file, root) = (&pool.pool.file, pool.directory.path().join("new"));
    let (name, done) = replace(file, "disk.0", &root, false, &mut StopsAtRegions(&pool, 2)).unwrap();
    assert_eq!((&*name, done.stopped, done.copied_bytes), ("disk.3", true, FIRST));
    check(&pool, vec![vec![3], vec![0]]);
    let (name, done) = replace(file, "disk.0", &root, false, &mut On).unwrap();
    assert_eq!((&*name, done.moved_files, done.copied_bytes), ("disk.3", 1, REST));
    check(&pool, vec![vec![3]]);
    remove(file, "disk.0", false, &mut On).unwrap();
    assert_eq!(findings(&pool), []);
}

/// A replacement that is stopped where all of a file's first round has moved, and another one has not, goes on.
#[test]
fn a_large_file_of_several_rounds_goes_on_to_the_replacement() {
    const STEP: u64 = 256 << 20;
    let pool = TestPool::new(2);
    let store = pool.open();
    store.set_rule(&Pattern::new("*").unwrap(), &layout(&[(0, &[(0, 65_536)]), (STEP, &[(0, 131_072)])])).unwrap();
    let (_fd, inode) = create(&store, "large");
    write(&inode, &pattern(10, 1), 3 * STEP);
    let (file, root) = (&pool.pool.file, pool.directory.path().join("new"));
    let (name, done) = replace(file, "disk.0", &root, false, &mut StopsAtRegions(&pool, 3)).unwrap();
    assert!(name == "disk.2" && done.stopped);
    assert_eq!(servers_of(&now(&pool), "large"), [0, 2]);
    let (name, done) = replace(file, "disk.0", &root, false, &mut On).unwrap();
    assert!(name == "disk.2" && done.is_done());
    assert_eq!(servers_of(&now(&pool), "large"), [2]);
    assert_eq!(findings(&pool), []);
}

/// Stops at the call with that number.
struct StopsAt(usize);

impl DrainWatch for StopsAt {
    fn progress(&mut self, _: &str, _: u64, _: u64) -> Then {
        self.0 -= 1;
        if self.0 == 0 { Then::Stop } else { Then::On }
    }
}

#[test]
fn a_drain_is_taken_back_and_the_server_takes_files_again() {
    let pool = TestPool::new(3);
    let store = pool.open();
    put(&store, "f", &layout(&[(0, &[(0, 4096)])]), &pattern(100_000, 1));
    assert!(refused(take_back(&pool.pool.file, "disk.0")).contains("disk.0 is not drained"));
    assert!(drain(&pool.pool.file, "disk.0", &DrainOptions::default(), &mut StopsAt(1)).unwrap().stopped);
    assert_eq!(now(&pool).default_layout().servers().len(), 2);
    take_back(&pool.pool.file, "disk.0").unwrap();
    let after = now(&pool);
    assert_eq!((after.default_layout().servers().len(), servers_of(&after, "f")), (3, vec![0]));
    assert!(bytes_of(&after, "f") == pattern(100_000, 1));
    remove(&pool.pool.file, "disk.2", false, &mut On).unwrap();
    assert!(refused(take_back(&pool.pool.file, "disk.2")).contains("disk.2 was removed"));
}

/// What is not there is given up, and no directory that has something in it.
#[test]
fn a_server_whose_directory_lacks_only_its_marker_is_not_given_up() {
    let pool = TestPool::new(3);
    put(&pool.open(), "f", &layout(&[(0, &[(1, 4096)])]), &pattern(100_000, 1));
    let (file, marker) = (&pool.pool.file, pool.root(1).join(".stripewise"));
    let lost = || remove(file, "disk.1", true, &mut On);
    assert!(refused(lost()).contains("disk.1 is there"));
    let kept = std::fs::read(&marker).unwrap();
    for text in [None, Some("of nothing")] {
        text.map_or_else(|| std::fs::remove_file(&marker), |text| std::fs::write(&marker, text)).unwrap();
        let error = refused(lost());
        assert!(error.contains("the directory of disk.1 has something in it") && error.contains("fsck"), "{error}");
    }
    std::fs::write(&marker, kept).unwrap();
    assert!(bytes_of(&now(&pool), "f") == pattern(100_000, 1));
    // As the mount point of a disk that is away.
    let away = pool.root(1).with_extension("away");
    std::fs::rename(pool.root(1), &away).unwrap();
    std::fs::create_dir(pool.root(1)).unwrap();
    let done = lost().unwrap();
    assert_eq!((done.staying.len(), done.staying[0].bytes), (1, 100_000), "{done:?}");
}

#[test]
fn a_server_that_was_being_given_up_leaves_the_other_files_later() {
    let pool = TestPool::new(3);
    let store = pool.open();
    // They name the server, and have no byte there.
    for name in ["one", "two"] {
        put(&store, name, &layout(&[(0, &[(0, 4096)]), (8192, &[(1, 4096), (2, 4096)])]), &pattern(9000, 7));
    }
    std::fs::remove_dir_all(pool.root(2)).unwrap();
    let lost = |watch: &mut dyn DrainWatch| remove(&pool.pool.file, "disk.2", true, watch).unwrap();
    assert!(lost(&mut StopsAt(1)).stopped);
    assert!(servers_of(&now(&pool), "two").contains(&2));
    let why = refused(remove(&pool.pool.file, "disk.2", false, &mut On));
    assert!(why.contains("there, such as") && why.contains("`stripewise pool remove --lost` goes on"), "{why}");
    assert!(lost(&mut On).is_done());
    let after = now(&pool);
    for name in ["one", "two"] {
        assert!(!servers_of(&after, name).contains(&2) && bytes_of(&after, name) == pattern(9000, 7));
    }
    assert_eq!((lost(&mut On).moved_files, findings(&pool)), (0, vec![]));
}

#[test]
fn a_replacement_whose_disk_is_too_small_is_not_added() {
    if in_own_mounts("a_replacement_whose_disk_is_too_small_is_not_added") {
        return;
    }
    let pool = TestPool::new(2);
    let disk = pool.directory.path().join("small");
    std::fs::create_dir(&disk).unwrap();
    mount_tmpfs(&disk, "size=128k");
    put(&pool.open(), "f", &layout(&[(0, &[(0, 4096)]), (300_000, &[(1, 4096)])]), &pattern(300_000, 1));
    // Its holes are elsewhere.
    let inode = now(&pool).lookup(Path::new("f")).unwrap().unwrap();
    inode.register_writer().unwrap();
    inode.truncate(10_000_000).unwrap();
    inode.release_writer().unwrap();
    let before = std::fs::read_to_string(&pool.pool.file).unwrap();
    let error = replace(&pool.pool.file, "disk.0", &disk.join(".test"), false, &mut On).unwrap_err().to_string();
    assert!(error.contains("f does not fit") && error.contains("128.0 KiB"), "{error}");
    assert_eq!(std::fs::read_to_string(&pool.pool.file).unwrap(), before);
    assert!(std::fs::read_dir(&disk).unwrap().next().is_none());
}

#[test]
fn of_several_directories_all_are_added_or_none() {
    let pool = TestPool::new(2);
    let before = std::fs::read_to_string(&pool.pool.file).unwrap();
    let path = |name: &str| pool.directory.path().join(name);
    let add = |roots: &[PathBuf]| {
        let asked: Vec<_> = roots.iter().map(|root| ("disk".to_owned(), root.clone())).collect();
        add_servers(&pool.pool.file, &asked)
    };
    let refused = |roots: &[PathBuf], what: &str| {
        let error = add(roots).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert_eq!(std::fs::read_to_string(&pool.pool.file).unwrap(), before);
        assert!(!path("one").exists(), "{what}");
    };
    refused(&[path("one"), pool.root(0).join("below")], "lies inside disk.0");
    refused(&[path("one"), path("one/below")], "lies inside disk.2");
    // What cannot be made is found out when the first one has been.
    std::fs::write(path("file"), "").unwrap();
    refused(&[path("one"), path("file/below")], "make directory");
    assert_eq!(add(&[path("one"), path("two"), path("one")]).unwrap(), ["disk.2", "disk.3", "disk.2"]);
    assert_eq!(Pool::load(&pool.pool.file).unwrap().servers.len(), 4);
}

#[test]
fn a_file_that_a_program_appends_to_stays_and_is_named_until_that_has_gone() {
    let pool = TestPool::new(2);
    let store = pool.open();
    store.set_rule(&Pattern::new("*").unwrap(), &layout(&[(0, &[(0, 4096)])])).unwrap();
    for name in ["idle", "busy"] {
        let (_fd, inode) = create(&store, name);
        write(&inode, &pattern(20_000, 4), 0);
    }
    let busy = store.lookup(Path::new("busy")).unwrap().unwrap();
    busy.register_writer().unwrap();
    busy.append(&pattern(1000, 5)).unwrap();
    let done = drained(&pool, "disk.0");
    let [staying] = &done.staying[..] else { panic!("{done:?}") };
    assert!(staying.is_busy && staying.path == "busy" && staying.why.contains("open for writing"), "{staying:?}");
    assert_eq!((&*staying.stretches, staying.bytes), (&[(0, 21_000)][..], 21_000));
    assert_eq!(servers_of(&now(&pool), "idle"), [1]);
    assert!(refused(remove(&pool.pool.file, "disk.0", false, &mut On)).contains("1 file has its place there"));
    let file = pool.pool.file.clone();
    let waiting = std::thread::spawn(move || {
        let options = DrainOptions { wait: true, ..DrainOptions::default() };
        drain(&file, "disk.0", &options, &mut On).unwrap()
    });
    busy.release_writer().unwrap();
    assert!(waiting.join().unwrap().is_done());
    assert!(bytes_of(&now(&pool), "busy")[20_000..] == pattern(1000, 5));
    assert_eq!(datafiles(pool.root(0)), 0);
}

#[test]
fn what_a_dead_server_had_is_told_by_range_and_the_rest_goes_on() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let (_fd, inode) = create(&store, "striped");
    write(&inode, &pattern(20_000, 6), 0);
    let on_others = layout(&[(0, &[(0, 4096), (1, 4096)]), (8192, &[(2, 4096)])]);
    store.set_rule(&Pattern::new("head").unwrap(), &on_others).unwrap();
    let (_fd, head) = create(&store, "head");
    write(&head, &pattern(6000, 7), 0);
    assert!(refused(remove(&pool.pool.file, "disk.2", true, &mut On)).contains("disk.2 is there"));
    std::fs::rename(pool.root(2), pool.directory.path().join("broken")).unwrap();

    // Draining saves what has nothing there, and says what stays.
    let tried = drained(&pool, "disk.2");
    let [staying] = &tried.staying[..] else { panic!("{tried:?}") };
    assert_eq!((&*staying.path, &*staying.stretches), ("striped", &[(8192, 12_288)][..]));
    let done = remove(&pool.pool.file, "disk.2", true, &mut On).unwrap();
    let [staying] = &done.staying[..] else { panic!("{done:?}") };
    assert_eq!((&*staying.path, &*staying.stretches, staying.bytes), ("striped", &[(8192, 12_288)][..], 4096));
    let after = now(&pool);
    assert!(!servers_of(&after, "head").contains(&2));
    assert!(bytes_of(&after, "head") == pattern(6000, 7));
    let striped = after.lookup(Path::new("striped")).unwrap().unwrap();
    let mut part = [0; 4096];
    assert_eq!(striped.read_at(&mut part, 4096).unwrap(), 4096);
    assert!(part[..] == pattern(20_000, 6)[4096..8192]);
    let error = striped.read_at(&mut part, 8192).unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::IO, "{error}");
    assert!(error.to_string().contains("disk.2"), "{error}");
    let lost: Vec<_> = findings(&pool).into_iter().map(|finding| (finding.path, finding.lost)).collect();
    assert_eq!(lost, [(Some(PathBuf::from("striped")), vec![(8192, 12_288)])]);
    // A new file has its bytes on the others.
    let (_fd, young) = create(&after, "young");
    write(&young, &pattern(30_000, 8), 0);
    assert!(content(&young) == pattern(30_000, 8));
}

/// What a drain or a replacement can read of a file leaves the server, to a MiB, and the rest is named by its range. When it can be read,
/// the same command ends it.
#[test]
fn what_can_be_read_of_a_file_leaves_a_server_that_has_lost_some() {
    const MIB: u64 = 1 << 20;
    for (cut, replaces) in [(9 * MIB + 1000, false), (1000, true), (20 * MIB + 1000, true)] {
        let pool = TestPool::new(2);
        let (file, root) = (&pool.pool.file, pool.directory.path().join("new"));
        let bytes = pattern(30 << 20, 3);
        put(&pool.open(), "f", &layout(&[(0, &[(0, 65_536)])]), &bytes);
        // What is behind the bytes that get lost has a datafile of its own.
        for (server, width_bytes) in [(1, 65_536), (0, 131_072)].into_iter().filter(|_| replaces) {
            let shape = layout(&[(0, &[(0, 65_536)]), (cut + MIB, &[(server, width_bytes)])]);
            now(&pool).lookup(Path::new("f")).unwrap().unwrap().move_to(&shape, "f", &mut |_, _| true).unwrap();
        }
        let is_first = |held: &PathBuf| held.extension().is_some_and(|number| number == "00000001");
        let held = datafiles_of(pool.root(0)).into_iter().find(is_first).unwrap();
        let kept = std::fs::read(&held).unwrap();
        std::fs::OpenOptions::new().write(true).open(&held).unwrap().set_len(cut).unwrap();
        let go = || {
            if replaces { replace(file, "disk.0", &root, false, &mut On).unwrap().1 } else { drained(&pool, "disk.0") }
        };
        for _ in 0..2 {
            let done = go();
            let [staying] = &done.staying[..] else { panic!("{cut}: {done:?}") };
            let [(from, to)] = staying.stretches[..] else { panic!("{cut}: {staying:?}") };
            assert!(from <= cut && from + 2 * MIB > cut, "{cut}: {staying:?}");
            assert!(!replaces || to < cut + 3 * MIB, "{cut}: {staying:?}");
            let inode = now(&pool).lookup(Path::new("f")).unwrap().unwrap();
            let mut found = vec![0; bytes.len()];
            assert_eq!(inode.read_at(&mut found[..from as usize], 0).unwrap() as u64, from);
            assert!(found[..from as usize] == bytes[..from as usize]);
            let behind = &mut found[to as usize..];
            assert_eq!(inode.read_at(behind, to).unwrap(), bytes.len() - to as usize);
            assert!(found[to as usize..] == bytes[to as usize..]);
            assert_eq!(inode.read_at(&mut found[..10], cut).unwrap_err().errno(), rustix::io::Errno::IO);
        }
        std::fs::write(&held, &kept).unwrap();
        assert!(go().is_done(), "{cut}");
        assert!(bytes_of(&now(&pool), "f") == bytes && findings(&pool).is_empty());
    }
}

/// A file on many servers has more datafiles with each step than lengths are recorded of: what is lost is no hole for that.
#[test]
fn what_a_wide_file_has_lost_is_no_hole_when_it_leaves_a_server_in_steps() {
    let pool = TestPool::new(33);
    let (store, mib) = (pool.open(), 1 << 20);
    store.set_rule(&Pattern::new("*").unwrap(), &Layout::striped((0..32).map(ServerId), 65_536).unwrap()).unwrap();
    let (_fd, inode) = create(&store, "f");
    write(&inode, &pattern(4 << 20, 1), 0);
    write(&inode, &pattern(4 << 20, 2), 1000 * mib);
    let held = only_datafile(pool.root(0));
    std::fs::OpenOptions::new().write(true).open(&held).unwrap().set_len(20 << 20).unwrap();
    for _ in 0..2 {
        let done = drained(&pool, "disk.0");
        assert!(!done.is_done() && done.staying[0].why.contains("had been recorded"), "{done:?}");
        let inode = now(&pool).lookup(Path::new("f")).unwrap().unwrap();
        let mut found = vec![0; 65_536];
        assert_eq!(inode.read_at(&mut found, 1000 * mib).unwrap_err().errno(), rustix::io::Errno::IO);
        assert_eq!(inode.read_at(&mut found, 0).unwrap(), 65_536);
        assert!(found == pattern(4 << 20, 1)[..65_536]);
    }
    let lost: Vec<_> = findings(&pool).into_iter().map(|finding| (finding.path, finding.lost.is_empty())).collect();
    assert_eq!(lost, [(Some(PathBuf::from("f")), false)]);
}

/// A large file leaves a disk that has turned read-only, where nothing can be freed.
#[test]
fn a_large_file_leaves_a_read_only_server_step_by_step() {
    if !in_own_mounts("a_large_file_leaves_a_read_only_server_step_by_step") {
        return;
    }
    const STEP: u64 = 256 << 20;
    let pool = TestPool::with_roots(|base| {
        let roots = vec![base.join("leaves"), base.join("stays")];
        std::fs::create_dir(&roots[0]).unwrap();
        mount_tmpfs(&roots[0], "size=16m");
        roots
    });
    let store = pool.open();
    store.set_rule(&Pattern::new("*").unwrap(), &layout(&[(0, &[(0, 65_536)])])).unwrap();
    let (_fd, inode) = create(&store, "large");
    let marks = [0, STEP + 4096, 2 * STEP + 4096];
    marks.iter().for_each(|&at| write(&inode, &pattern(1000, at), at));
    drop((_fd, inode, store));
    rustix::mount::mount_remount(pool.root(0), rustix::mount::MountFlags::RDONLY, c"").unwrap();
    let done = drained(&pool, "disk.0");
    assert!(done.is_done(), "{done:?}");
    let inode = now(&pool).lookup(Path::new("large")).unwrap().unwrap();
    for at in marks {
        let mut found = vec![0; 1000];
        assert_eq!(inode.read_at(&mut found, at).unwrap(), 1000);
        assert!(found == pattern(1000, at), "{at}");
    }
    inode.register_writer().unwrap();
    inode.release_writer().unwrap();
}

fn datafiles_of(root: &Path) -> Vec<PathBuf> {
    let shelves = std::fs::read_dir(root).unwrap().flatten().filter(|entry| entry.path().is_dir());
    shelves.flat_map(|shelf| std::fs::read_dir(shelf.path()).unwrap().flatten()).map(|entry| entry.path()).collect()
}

/// Something happens to a server when the third file is being moved.
struct Failing<F> {
    seen: Vec<String>,
    fault: Option<F>,
}

impl<F: FnOnce()> DrainWatch for Failing<F> {
    fn progress(&mut self, path: &str, _: u64, _: u64) -> Then {
        if self.seen.last().is_none_or(|last| last != path) {
            self.seen.push(path.to_owned());
        }
        if self.seen.len() == 3
            && let Some(fault) = self.fault.take()
        {
            fault();
        }
        Then::On
    }
}

/// Six files on server 0 are drained onto server 1, a small file system, to which or to whose source something happens in the
/// middle. What moved has moved, the rest is named and whole, and when the fault is `mended`, the same command ends it.
fn fails_in_the_middle(fault: impl FnOnce(&TestPool), mended: impl FnOnce(&TestPool), lost: bool) {
    let pool = TestPool::with_roots(|base| {
        let roots = vec![base.join("leaves"), base.join("stays")];
        std::fs::create_dir(&roots[1]).unwrap();
        mount_tmpfs(&roots[1], "size=16m");
        roots
    });
    let store = pool.open();
    store.set_rule(&Pattern::new("*").unwrap(), &layout(&[(0, &[(0, 4096)])])).unwrap();
    let names: Vec<String> = (0..6).map(|number| format!("f{number}")).collect();
    for (name, seed) in names.iter().zip(0..) {
        write(&create(&store, name).1, &pattern(300_000, seed), 0);
    }
    let mut watch = Failing { seen: Vec::new(), fault: Some(|| fault(&pool)) };
    let done = drain(&pool.pool.file, "disk.0", &DrainOptions::default(), &mut watch).unwrap();
    assert!(watch.fault.is_none(), "the fault came");
    assert_eq!(done.moved_files + done.staying.len() as u64, 6, "{done:?}");
    assert!(done.moved_files >= 2 && !done.staying.is_empty() && !done.is_done(), "{done:?}");
    for staying in &done.staying {
        assert!(names.contains(&staying.path) && !staying.is_busy && !staying.why.is_empty(), "{staying:?}");
        assert_eq!((&*staying.stretches, staying.bytes), (&[(0, 300_000)][..], 300_000), "{staying:?}");
    }
    let whole = |store: &Arc<Store>, moved_alone: bool| {
        for (name, seed) in names.iter().zip(0..) {
            if !moved_alone || done.staying.iter().all(|file| file.path != *name) {
                assert!(bytes_of(store, name) == pattern(300_000, seed), "{name}");
            }
        }
    };
    // Of a server that has gone what it had cannot be read, and all others can.
    whole(&now(&pool), lost);
    mended(&pool);
    whole(&now(&pool), false);
    drop(store);
    assert!(drained(&pool, "disk.0").is_done());
    whole(&now(&pool), false);
    // A file that had just moved when its old server went could not be cleared away there.
    let leftovers = datafiles(pool.root(0));
    assert!(leftovers <= usize::from(lost), "{leftovers} datafiles are left");
    mend(&pool);
    assert_eq!(datafiles(pool.root(0)), 0);
    assert_eq!(findings(&pool), []);
    remove(&pool.pool.file, "disk.0", false, &mut On).unwrap();
}

#[test]
fn a_server_that_gets_full_in_the_middle_of_a_drain_keeps_what_it_got() {
    if in_own_mounts("a_server_that_gets_full_in_the_middle_of_a_drain_keeps_what_it_got") {
        return;
    }
    let filler = |pool: &TestPool| pool.root(1).join(".filler");
    let fill = |pool: &TestPool| {
        let file = std::fs::File::create(filler(pool)).unwrap();
        let free = rustix::fs::fstatvfs(&file).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, free.f_bavail * free.f_frsize).unwrap();
    };
    fails_in_the_middle(fill, |pool| std::fs::remove_file(filler(pool)).unwrap(), false);
}

#[test]
fn a_server_that_goes_in_the_middle_of_its_drain_costs_what_had_not_moved() {
    if in_own_mounts("a_server_that_goes_in_the_middle_of_its_drain_costs_what_had_not_moved") {
        return;
    }
    let away = |pool: &TestPool| pool.directory.path().join("away");
    fails_in_the_middle(
        |pool| std::fs::rename(pool.root(0), away(pool)).unwrap(),
        |pool| std::fs::rename(away(pool), pool.root(0)).unwrap(),
        true,
    );
}

/// Gives `name` that layout and bytes.
fn put(store: &Arc<Store>, name: &str, shape: &Layout, bytes: &[u8]) {
    store.set_rule(&Pattern::new(name).unwrap(), shape).unwrap();
    write(&create(store, name).1, bytes, 0);
}

#[test]
fn a_file_that_cannot_move_keeps_no_other_in_its_place() {
    let pool = TestPool::new(5);
    let store = pool.open();
    let bytes = pattern(20_000, 1);
    put(&store, "whole", &layout(&[(0, &[(0, 4096)])]), &bytes);
    put(&store, "lost", &layout(&[(0, &[(0, 4096), (1, 4096), (2, 4096)])]), &bytes);
    put(&store, "away", &layout(&[(0, &[(0, 4096), (3, 4096)])]), &bytes);
    let root = |server: usize| pool.root(server).to_owned();
    std::fs::rename(root(1), pool.directory.path().join("broken")).unwrap();
    assert_eq!(remove(&pool.pool.file, "disk.1", true, &mut On).unwrap().staying.len(), 1);
    std::fs::rename(root(3), pool.directory.path().join("away")).unwrap();

    let options = DrainOptions { dry_run: true, ..DrainOptions::default() };
    let planned = drain(&pool.pool.file, "disk.0", &options, &mut On).unwrap();
    let done = drained(&pool, "disk.0");
    for (what, all) in [("planned", &planned), ("done", &done)] {
        assert_eq!((all.moved_files, all.copied_bytes), (1, 20_000), "{what}: {all:?}");
        let staying = |name: &str| all.staying.iter().find(|file| file.path == name).unwrap().clone();
        let (lost, away) = (staying("lost"), staying("away"));
        assert_eq!((&*lost.stretches, lost.bytes), (&[(0, 4096), (12_288, 16_384)][..], 8192), "{what}");
        assert!(lost.why.contains("disk.1 is missing"), "{what}: {}", lost.why);
        assert_eq!(
            (&*away.stretches, away.bytes),
            (&[(0, 4096), (8192, 12_288), (16_384, 20_000)][..], 11_808),
            "{what}"
        );
        assert!(away.why.contains("disk.3 is not available"), "{what}: {}", away.why);
        assert_eq!(all.staying.len(), 2, "{what}");
    }
    assert!(bytes_of(&now(&pool), "whole") == bytes);

    // When the one is back, and the other's bytes are given up, they leave both servers.
    std::fs::rename(pool.directory.path().join("away"), root(3)).unwrap();
    let forget = CheckOptions { forget_missing: true, ..CheckOptions::default() };
    check(&Pool::load(&pool.pool.file).unwrap(), &forget, &Unheard).unwrap();
    assert!(drained(&pool, "disk.0").is_done());
    let after = now(&pool);
    assert!(servers_of(&after, "lost").iter().all(|id| ![0, 1].contains(id)));
    assert!(bytes_of(&after, "away") == bytes);
    let read = bytes_of(&after, "lost");
    for (at, part) in read.chunks(4096).enumerate() {
        let lost = at % 3 == 1;
        assert!(
            if lost { part.iter().all(|byte| *byte == 0) } else { part == bytes.chunks(4096).nth(at).unwrap() },
            "{at}"
        );
    }
    remove(&pool.pool.file, "disk.0", false, &mut On).unwrap();
}

/// The datafile that stands alone on a server.
fn only_datafile(root: &Path) -> PathBuf {
    let shelves = std::fs::read_dir(root).unwrap().map(|shelf| shelf.unwrap().path()).filter(|shelf| shelf.is_dir());
    let found: Vec<_> = shelves.flat_map(|shelf| std::fs::read_dir(shelf).unwrap()).collect();
    let [Ok(entry)] = &found[..] else { panic!("{found:?}") };
    entry.path()
}

#[test]
fn a_byte_that_changes_between_a_move_s_write_and_its_check_is_found() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let bytes = pattern(300_000, 1);
    put(&store, "f", &layout(&[(0, &[(0, 4096)])]), &bytes);
    let inode = store.lookup(Path::new("f")).unwrap().unwrap();
    let to = layout(&[(0, &[(1, 4096)])]);
    let mut spoiled = false;
    let mut spoil = |done: u64, total: u64| {
        if 2 * done == total && !spoiled {
            spoiled = true;
            let path = only_datafile(pool.root(1));
            let mut written = std::fs::read(&path).unwrap();
            written[123_456] ^= 1;
            std::fs::write(&path, written).unwrap();
        }
        true
    };
    let error = inode.move_to(&to, "f", &mut spoil).unwrap_err();
    let Error::Move { source, .. } = &error else { panic!("{error}") };
    let Error::Checksum { file, original, copied } = &**source else { panic!("{error}") };
    assert!(file == "f" && original != copied && original.len() == 64, "{error}");
    assert_eq!((servers_of(&now(&pool), "f"), datafiles(pool.root(1))), (vec![0], 0), "nothing of the copy is left");
    assert!(bytes_of(&now(&pool), "f") == bytes);
    inode.move_to(&to, "f", &mut |_, _| true).unwrap();
    assert!(servers_of(&now(&pool), "f") == [1] && bytes_of(&now(&pool), "f") == bytes);
    assert_eq!(findings(&pool), []);
}

struct Unheard;

impl CheckWatch for Unheard {
    fn found(&self, _: &CheckFinding) {}
}

/// Ends the drain when the second file is next.
#[derive(Default)]
struct StopAtSecond(Vec<String>);

impl DrainWatch for StopAtSecond {
    fn progress(&mut self, path: &str, _: u64, _: u64) -> Then {
        if self.0.last().is_none_or(|last| last != path) {
            self.0.push(path.to_owned());
        }
        if self.0.len() > 1 { Then::Stop } else { Then::On }
    }
}

#[test]
fn two_servers_are_drained_one_beside_the_other() {
    let pool = TestPool::new(4);
    let store = pool.open();
    for (name, seed) in ["f0", "f1", "f2"].into_iter().zip(0..) {
        put(&store, name, &Layout::striped((0..3).map(ServerId), 4096).unwrap(), &pattern(50_000, seed));
    }
    let stopped = drain(&pool.pool.file, "disk.0", &DrainOptions::default(), &mut StopAtSecond::default()).unwrap();
    assert!(stopped.stopped && stopped.moved_files == 1, "{stopped:?}");
    let second = drained(&pool, "disk.1");
    assert!(second.is_done() && second.moved_files == 3, "{second:?}");
    assert!(drained(&pool, "disk.0").is_done());
    let after = now(&pool);
    for (name, seed) in ["f0", "f1", "f2"].into_iter().zip(0..) {
        assert_eq!(servers_of(&after, name), [2, 3], "{name}");
        assert!(bytes_of(&after, name) == pattern(50_000, seed), "{name}");
        assert!(after.layout_for(Path::new(name)).unwrap().servers().iter().all(|id| id.0 > 1), "{name}");
    }
    for name in ["disk.0", "disk.1"] {
        remove(&pool.pool.file, name, false, &mut On).unwrap();
    }
    assert_eq!(findings(&pool), []);
}

#[test]
fn an_added_server_gets_its_share() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let (_fd, large) = create(&store, "large");
    write(&large, &pattern(3_000_000, 1), 0);
    store.set_rule(&Pattern::new("s*").unwrap(), &layout(&[(0, &[(0, 4096)])])).unwrap();
    for number in 0..12 {
        let (_fd, inode) = create(&store, &format!("s{number}"));
        write(&inode, &pattern(100_000, number), 0);
    }
    let held = |server: usize| {
        let bytes = Pool::load(&pool.pool.file).unwrap().allocated_by_others(&[]);
        bytes[&ServerId(server as u16)]
    };
    let root = pool.directory.path().join("new");
    add_server(&pool.pool.file, "disk", &root).unwrap();
    let planned =
        rebalance(&pool.pool.file, &Filling { dry_run: true, ..Filling::default() }, &mut On).unwrap().unwrap();
    assert_eq!(held(2), 0);
    let done = rebalance(&pool.pool.file, &Filling::default(), &mut On).unwrap().unwrap();
    assert_eq!((done.moved_files, done.copied_bytes), (planned.moved_files, planned.copied_bytes));
    let all: Vec<u64> = (0..3).map(held).collect();
    let mean = all.iter().sum::<u64>() / 3;
    assert!(all.iter().all(|bytes| bytes.abs_diff(mean) < mean / 7), "{all:?}");
    let after = now(&pool);
    assert_eq!(servers_of(&after, "large"), [0, 1, 2], "a striped file is served by one more");
    assert!(bytes_of(&after, "large") == pattern(3_000_000, 1));
    for number in 0..12 {
        assert!(bytes_of(&after, &format!("s{number}")) == pattern(100_000, number));
    }
    let again = rebalance(&pool.pool.file, &Filling::default(), &mut On).unwrap().unwrap();
    assert!(again.copied_bytes <= 100_000, "one small file at most, as rooms have changed: {again:?}");
    assert_eq!(findings(&pool), []);
}

#[test]
fn regions_move_one_by_one_to_an_added_server() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let bytes = pattern(1_500_000, 1);
    let shape = layout(&[
        (0, &[(0, 4096), (1, 4096)]),
        (600_000, &[(2, 65_536)]),
        (1_000_000, &[(0, 8192)]),
        (1_200_000, &[(1, 512)]),
    ]);
    put(&store, "regions", &shape, &bytes);
    // A file that lost bytes is none of those that move.
    put(&store, "lost", &layout(&[(0, &[(2, 4096)]), (200_000, &[(1, 4096)])]), &pattern(400_000, 2));
    std::fs::rename(pool.root(2), pool.directory.path().join("broken")).unwrap();
    remove(&pool.pool.file, "disk.2", true, &mut On).unwrap();
    put(&now(&pool), "small", &layout(&[(0, &[(0, 4096)])]), &pattern(200_000, 3));
    let root = pool.directory.path().join("new");
    add_server(&pool.pool.file, "disk", &root).unwrap();
    let whole = |name: &str, from: usize, bytes: &[u8]| {
        let inode = now(&pool).lookup(Path::new(name)).unwrap().unwrap();
        let mut read = vec![0; 200_000];
        let got = inode.read_at(&mut read, from as u64).unwrap();
        assert!(got > 0 && read[..got] == bytes[from..from + got], "{name} from {from}");
    };
    let only = Filling { takers: vec!["disk.3".into()], except: [PathBuf::from("small")].into(), ..Filling::default() };
    let done = rebalance(&pool.pool.file, &only, &mut On).unwrap().unwrap();
    assert_eq!((done.moved_files, &done.staying[..]), (0, &[][..]), "what cannot be read is not planned: {done:?}");
    // The region that it lost is given up; the others of it can move then, too.
    let forget = CheckOptions { forget_missing: true, ..CheckOptions::default() };
    check(&Pool::load(&pool.pool.file).unwrap(), &forget, &Unheard).unwrap();
    let done = rebalance(&pool.pool.file, &only, &mut On).unwrap().unwrap();
    assert!(done.moved_files >= 1 && done.staying.is_empty(), "{done:?}");
    let inode = now(&pool).lookup(Path::new("regions")).unwrap().unwrap();
    let after = inode.layout().unwrap();
    assert!(after.regions().len() > 1 && after.servers().contains(&ServerId(3)), "{after:?}");
    assert_eq!(servers_of(&now(&pool), "small"), [0], "it is left out");
    let held = Pool::load(&pool.pool.file).unwrap().allocated_by_others(&[]);
    let (new, mean) = (held[&ServerId(3)], held.values().sum::<u64>() / 3);
    assert!(new > mean / 2 && new < mean + mean / 10, "{held:?}");
    whole("regions", 0, &bytes);
    whole("regions", 1_000_000, &bytes);
    whole("regions", 1_300_000, &bytes);
    whole("lost", 200_000, &pattern(400_000, 2));
}

#[test]
fn a_full_server_of_the_tier_keeps_no_file_on_one_that_is_drained() {
    if in_own_mounts("a_full_server_of_the_tier_keeps_no_file_on_one_that_is_drained") {
        return;
    }
    let pool = TestPool::with_roots(|base| {
        let small = base.join("small");
        std::fs::create_dir(&small).unwrap();
        mount_tmpfs(&small, "size=256k");
        vec![base.join("s0"), base.join("s1"), small.join("s2")]
    });
    let bytes = pattern(1_000_000, 1);
    put(&pool.open(), "f", &layout(&[(0, &[(0, 4096), (1, 4096)])]), &bytes);
    let options = DrainOptions { dry_run: true, ..DrainOptions::default() };
    assert_eq!(drain(&pool.pool.file, "disk.1", &options, &mut On).unwrap().moved_files, 1);
    assert!(drained(&pool, "disk.1").is_done());
    assert_eq!(servers_of(&now(&pool), "f"), [0]);
    assert!(bytes_of(&now(&pool), "f") == bytes);
    // A smaller file goes to the small server.
    put(&pool.open(), "g", &layout(&[(0, &[(0, 4096)])]), &bytes[..50_000]);
    remove(&pool.pool.file, "disk.1", false, &mut On).unwrap();
    let error = refused(drain(&pool.pool.file, "disk.0", &DrainOptions::default(), &mut On));
    assert!(
        error.contains("f does not fit: what leaves disk.0 needs") && error.contains("on disk.2, where"),
        "{error}"
    );
}

/// While another file is waited for, what cannot be read is not read again and again.
#[test]
fn a_drain_that_waits_reads_what_it_cannot_read_once() {
    let pool = TestPool::new(3);
    let store = pool.open();
    put(&store, "short", &layout(&[(0, &[(0, 4096)])]), &pattern(100_000, 1));
    put(&store, "open", &layout(&[(0, &[(0, 4096)])]), &pattern(100_000, 2));
    let shelves = std::fs::read_dir(pool.root(0)).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let files = shelves.flat_map(|shelf| std::fs::read_dir(shelf.path()).unwrap().flatten());
    let handle = format!("{:016x}", store.lookup(Path::new("short")).unwrap().unwrap().handle());
    let short = files.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(&handle)).unwrap();
    std::fs::File::options().write(true).open(short).unwrap().set_len(50_000).unwrap();
    let open = now(&pool).lookup(Path::new("open")).unwrap().unwrap();
    open.register_writer().unwrap();
    open.append(b"x").unwrap();
    #[derive(Default)]
    struct Counts {
        at_short: Vec<usize>,
        waits: usize,
    }
    impl DrainWatch for Counts {
        fn progress(&mut self, path: &str, _: u64, _: u64) -> Then {
            match path {
                "short" => *self.at_short.last_mut().unwrap() += 1,
                "" => {
                    self.at_short.push(0);
                    self.waits += 1;
                }
                _ => {}
            }
            if self.waits == 4 { Then::Stop } else { Then::On }
        }
    }
    let mut watch = Counts { at_short: vec![0], waits: 0 };
    let options = DrainOptions { wait: true, ..DrainOptions::default() };
    let done = drain(&pool.pool.file, "disk.0", &options, &mut watch).unwrap();
    assert!(done.stopped && done.staying.iter().any(|file| file.path == "short"), "{done:?}");
    assert_eq!(watch.at_short[1..], [0; 4], "{:?}", watch.at_short);
    open.release_writer().unwrap();
}

/// A program writes a file anew each time that it is to move, and gives the new one its name: the drain does not end while one may have
/// come to where it has looked, and lists what it never meets.
#[test]
fn a_file_that_is_another_each_time_that_it_is_its_turn_moves_or_is_listed() {
    struct Renames<'a>(&'a TestPool, usize);
    impl DrainWatch for Renames<'_> {
        fn progress(&mut self, path: &str, _: u64, _: u64) -> Then {
            if path == "f" && self.1 > 0 {
                self.1 -= 1;
                let new = self.0.pool.namespace.join(self.1.to_string());
                std::fs::rename(new, self.0.pool.namespace.join("tree/f")).unwrap();
            }
            Then::On
        }
    }
    // Of the passes the ninth begins when all mounts know that the server is drained: one in which nothing moves may be the last.
    for times in [9, 50] {
        let pool = TestPool::new(2);
        put(&pool.open(), "f", &layout(&[(0, &[(0, 4096)])]), &pattern(100_000, 1));
        // Where the drain does not look before they are renamed.
        for number in 0..times {
            put(&pool.open(), "new", &layout(&[(0, &[(0, 4096)])]), &pattern(100_000, 2));
            let names = &pool.pool.namespace;
            std::fs::rename(names.join("tree/new"), names.join(number.to_string())).unwrap();
        }
        let done = drain(&pool.pool.file, "disk.0", &DrainOptions::default(), &mut Renames(&pool, times)).unwrap();
        let is_there = servers_of(&now(&pool), "f") == [0];
        let listed: Vec<_> = done.staying.iter().map(|file| &*file.path).collect();
        assert_eq!(
            (done.is_done(), is_there, listed),
            if times == 9 { (true, false, vec![]) } else { (false, true, vec!["f"]) }
        );
        assert!(bytes_of(&now(&pool), "f") == pattern(100_000, 2));
    }
}
