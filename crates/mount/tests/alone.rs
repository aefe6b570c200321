//! What the mount knows without asking again: what a directory gives to new files, and which files have no datafile. Other
//! processes change both, and the very next call has to go by it.

mod common;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use common::{Mounted, TestPool, eventually};
use rustix::fs::{Mode, OFlags, XattrFlags};
use stripewise_layout::{Layout, Pattern, ServerId};
use stripewise_optimisation::SMALL;
use stripewise_store::handle::Optimisations;
use stripewise_store::{Files, Pool, Store};

fn hint(store: &Store, bytes: u64) {
    let mut optimisations = Optimisations::default();
    optimisations.enable(SMALL.index, bytes).unwrap();
    store.change_hints(Path::new("."), |hints| hints.set(None, optimisations)).unwrap();
}

fn layout_of(store: &Arc<Store>, name: &str) -> Arc<Layout> {
    store.lookup(Path::new(name)).unwrap().expect("a placed file").layout().unwrap()
}

/// The mount asks a directory once a second at most, unless it is told of a change.
#[test]
fn hints_and_rules_of_another_process_count_for_the_next_file() {
    let pool = TestPool::new();
    let mount = Mounted::new(&pool, "mnt", "rw");
    let store = Store::open(Pool::load(&pool.file()).unwrap()).unwrap();
    let rule = Pattern::new("ruled*").unwrap();
    for round in 0..40_u64 {
        let bytes = 4096 * (1 + round % 3);
        hint(&store, bytes);
        fs::write(mount.path(&format!("f{round}")), b"x").unwrap();
        assert_eq!(layout_of(&store, &format!("f{round}")).head_in_inode_bytes(), bytes, "round {round}");
        let alone = Layout::striped([ServerId((round % 3) as u16)], 8192).unwrap();
        store.set_rule(&rule, &alone).unwrap();
        fs::write(mount.path(&format!("ruled{round}")), b"x").unwrap();
        assert_eq!(*layout_of(&store, &format!("ruled{round}")), alone, "round {round}");
        store.remove_rule(&rule).unwrap();
        fs::write(mount.path(&format!("ruled{round}b")), b"x").unwrap();
        assert_eq!(layout_of(&store, &format!("ruled{round}b")).head_in_inode_bytes(), bytes, "round {round}");
    }
    store.remove_hints(Path::new(".")).unwrap();
    fs::write(mount.path("after"), b"x").unwrap();
    assert_eq!(layout_of(&store, "after").head_in_inode_bytes(), 0);
}

/// A default list: all for the owner, `group` for the group, nothing for others.
fn default_list(group: u16) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, allowed) in [(1_u16, 7_u16), (4, group), (0x20, 0)] {
        list.extend(tag.to_le_bytes());
        list.extend(allowed.to_le_bytes());
        list.extend(u32::MAX.to_le_bytes());
    }
    list
}

#[test]
fn a_default_list_set_through_either_mount_counts_for_the_next_file() {
    let pool = TestPool::new();
    let mounts = [Mounted::new(&pool, "mnt", "rw"), Mounted::new(&pool, "other", "rw")];
    let name = "system.posix_acl_default";
    for mount in &mounts {
        let mode = |file: &str| {
            File::options().write(true).create_new(true).open(mount.path(file)).unwrap();
            fs::metadata(mount.path(file)).unwrap().permissions().mode() & 0o7777
        };
        let plain = mode("plain");
        assert_eq!(plain & 0o007, 0o004, "the umask of these tests lets others read");
        for (round, by) in [0, 1, 0].into_iter().enumerate() {
            let group = [4, 6, 0][round];
            rustix::fs::setxattr(&mounts[by].dir, name, &default_list(group), XattrFlags::empty()).unwrap();
            assert_eq!(mode(&format!("listed{round}")), 0o600 | u32::from(group) << 3, "round {round}");
            rustix::fs::removexattr(&mounts[by].dir, name).unwrap();
            assert_eq!(mode(&format!("plain{round}")), plain, "round {round}");
        }
        fs::read_dir(&mount.dir).unwrap().for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
    }
}

/// Of a file without a datafile the mount believes the inode. The first datafile comes from another process; the mount's next answer
/// has its bytes, and its next `unlink` takes it along.
#[test]
fn the_first_datafile_of_another_process_is_seen_and_goes_with_its_file() {
    let pool = TestPool::new();
    let mount = Mounted::new(&pool, "mnt", "rw");
    let files = Files::open(Pool::load(&pool.file()).unwrap()).unwrap();
    hint(files.store(), 4096);
    for round in 0..60 {
        let name = format!("f{round}");
        let path = mount.path(&name);
        fs::write(&path, b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1);
        let other = files.open_file(Path::new(&name), OFlags::RDWR, Mode::empty()).unwrap();
        if round % 3 == 0 {
            assert_eq!(fs::metadata(&path).unwrap().len(), 1, "a writer that has written nothing");
        }
        other.write_at(&[std::io::IoSlice::new(b"behind")], 9000).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 9006, "as long as it is open");
        let read = fs::read(&path).unwrap();
        assert_eq!((read.len(), &read[9000..]), (9006, &b"behind"[..]));
        other.close().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 9006);
        // What the mount knows of a file that it has renamed, it has to read again.
        let path = if round % 5 < 2 {
            let renamed = mount.path("renamed");
            fs::rename(&path, &renamed).unwrap();
            renamed
        } else {
            path
        };
        if round % 2 == 0 {
            fs::remove_file(&path).unwrap();
        } else {
            fs::write(mount.path("next"), b"").unwrap();
            fs::rename(mount.path("next"), &path).unwrap();
        }
    }
    eventually("the end of all datafiles", || pool.datafiles().is_empty());
    eventually("the end of all lock files", || fs::read_dir(pool.path("ns/locks")).unwrap().next().is_none());
}

/// A file that has no datafile goes with its name, also where it is open; what is written behind its head then goes with its last
/// close.
#[test]
fn a_head_that_loses_its_name_while_it_is_open_leaves_nothing() {
    let pool = TestPool::new();
    let mount = Mounted::new(&pool, "mnt", "rw");
    let store = Store::open(Pool::load(&pool.file()).unwrap()).unwrap();
    hint(&store, 4096);
    for round in 0..30 {
        let path = mount.path("f");
        fs::write(&path, b"x").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        if round % 2 == 0 {
            file.write_all_at(b"behind", 20_000).unwrap();
            let mut read = [0; 6];
            file.read_exact_at(&mut read, 20_000).unwrap();
            assert_eq!(&read, b"behind");
        }
        assert_eq!(file.metadata().unwrap().nlink(), 0);
    }
    eventually("the end of all datafiles", || pool.datafiles().is_empty());
    eventually("the end of all lock files", || fs::read_dir(pool.path("ns/locks")).unwrap().next().is_none());
}

/// Files are made with their permissions where that is possible, else they get them before they get their name.
#[test]
fn permissions_are_those_of_other_file_systems() {
    let pool = TestPool::new();
    fs::set_permissions(pool.path("out"), Permissions::from_mode(0o777)).unwrap();
    pool.python(
        "def made(at, umask, mode):
    os.umask(umask)
    os.close(os.open(at, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    return os.stat(at).st_mode
for umask in (0, 0o022, 0o077, 0o777):
    for mode in (0, 0o200, 0o400, 0o444, 0o600, 0o644, 0o664, 0o666, 0o755, 0o777, 0o1644, 0o2755, 0o4755, 0o6777):
        name = f'{umask:o}-{mode:o}'
        ours, theirs = made(name, umask, mode), made(os.environ['OUT'] + '/' + name, umask, mode)
        assert ours == theirs, f'{name}: {ours:o}, not {theirs:o}'",
    );
}
