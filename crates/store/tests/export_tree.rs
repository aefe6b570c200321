//! The way out: what `export_tree` makes is what the pool holds, whatever is in it and whatever interrupts it.

mod common;

use common::{TestPool, content, create, layout, pattern, write};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use stripewise_layout::Pattern;
use stripewise_store::export_tree::{ExportOptions, ExportReport, ExportWatch, export};

type Failures = Vec<(PathBuf, String)>;

fn run(pool: &TestPool, to: &Path, verify_only: bool) -> (ExportReport, Failures) {
    let failures = Mutex::new(Vec::new());
    let options = ExportOptions { verify_only, ..ExportOptions::default() };
    let report = export(&pool.pool, to, &options, &failures).unwrap();
    (report, failures.into_inner().unwrap())
}

fn tree(pool: &TestPool, name: &str) -> PathBuf {
    pool.pool.namespace.join("tree").join(name)
}

/// A pool with one of everything.
fn pool() -> (TestPool, BTreeMap<&'static str, Vec<u8>>) {
    let pool = TestPool::new(4);
    let store = pool.open();
    let rules = [
        ("striped/*", layout(&[(0, &[(0, 4096), (1, 65536), (2, 1000)])])),
        ("small/*", layout(&[(0, &[(u16::MAX, 4096)]), (16_384, &[(3, 1000), (0, 3000)])])),
    ];
    for (pattern, layout) in rules {
        store.set_rule(&Pattern::new(pattern).unwrap(), &layout).unwrap();
    }
    for name in ["striped", "small", "deep", "deep/er", "deep/er/still"] {
        std::fs::create_dir(tree(&pool, name)).unwrap();
    }
    let mut files = BTreeMap::new();
    for (name, len) in [
        ("a", 100_000),
        ("striped/b", 1_000_003),
        ("small/c", 40_000),
        ("small/d", 9),
        ("deep/er/still/e", 8192),
        ("f", 0),
    ] {
        let (_fd, inode) = create(&store, name);
        let bytes = pattern(len, len as u64);
        write(&inode, &bytes, 0);
        files.insert(name, bytes);
    }
    let (_fd, inode) = create(&store, "hole");
    write(&inode, b"end", 30_000_000);
    let (_fd, inode) = create(&store, "moved");
    write(&inode, &pattern(500_000, 9), 0);
    inode.move_to(&layout(&[(0, &[(1, 5000)]), (200_000, &[(2, 70), (3, 300)])]), "moved", &mut |_, _| true).unwrap();
    files.insert("moved", pattern(500_000, 9));
    std::fs::write(tree(&pool, "plain"), b"plain").unwrap();
    files.insert("plain", b"plain".to_vec());
    std::fs::hard_link(tree(&pool, "a"), tree(&pool, "deep/a2")).unwrap();
    std::os::unix::fs::symlink("../../nowhere", tree(&pool, "deep/link")).unwrap();
    rustix::fs::mknodat(CWD, tree(&pool, "fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    rustix::fs::setxattr(tree(&pool, "a"), "user.colour", b"blue", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(tree(&pool, "deep"), "user.of", b"a directory", XattrFlags::empty()).unwrap();
    std::fs::set_permissions(tree(&pool, "small/d"), std::fs::Permissions::from_mode(0o400)).unwrap();
    std::fs::set_permissions(tree(&pool, "deep/er"), std::fs::Permissions::from_mode(0o500)).unwrap();
    let time = |tv_nsec| Timespec { tv_sec: 1_000_000_007, tv_nsec };
    let times = Timestamps { last_access: time(1), last_modification: time(123_456_789) };
    for name in ["a", "plain", "deep/link", "fifo", "deep/er", "deep", "striped/b"] {
        rustix::fs::utimensat(CWD, tree(&pool, name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    (pool, files)
}

fn assert_same(pool: &TestPool, files: &BTreeMap<&'static str, Vec<u8>>, to: &Path) {
    for (name, bytes) in files {
        assert!(std::fs::read(to.join(name)).unwrap() == *bytes, "{name}");
    }
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(tree(pool, "").join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            let (a, b) = (entry.metadata().unwrap(), std::fs::symlink_metadata(to.join(&path)).unwrap());
            let of = |m: &std::fs::Metadata| (m.mode(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec());
            assert_eq!(of(&a), of(&b), "{}", path.display());
            if a.is_dir() {
                directories.push(path);
            } else {
                assert_eq!((a.len(), a.nlink()), (b.len(), b.nlink()), "{}", path.display());
            }
        }
    }
    assert!(!to.join(".stripewise-export").exists());
}

#[test]
fn everything_comes_out_as_it_is() {
    let (pool, files) = pool();
    let to = pool.directory.path().join("out");
    let (report, failures) = run(&pool, &to, false);
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!((report.files, report.hard_links, report.directories), (9, 1, 5));
    assert_eq!((report.symlinks, report.special_files, report.failed), (1, 1, 0));
    assert_same(&pool, &files, &to);
    let hole = std::fs::metadata(to.join("hole")).unwrap();
    assert_eq!(hole.len(), 30_000_003);
    assert!(hole.blocks() * 512 < 1 << 20, "a hole stays one");
    assert_eq!(std::fs::metadata(to.join("a")).unwrap().ino(), std::fs::metadata(to.join("deep/a2")).unwrap().ino());
    assert!(std::fs::symlink_metadata(to.join("fifo")).unwrap().file_type().is_fifo());
    let mut value = [0; 100];
    let len = rustix::fs::getxattr(to.join("deep"), "user.of", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"a directory");
    assert!(rustix::fs::getxattr(to.join("a"), "user.stripewise", &mut value[..]).is_err(), "ours stay behind");
    let (report, failures) = run(&pool, &to, true);
    assert!(report.failed == 0 && report.files == 10, "{report:?} {failures:?}");
}

#[test]
fn what_differs_is_told_by_name() {
    let (pool, _) = pool();
    let to = pool.directory.path().join("out");
    run(&pool, &to, false);
    let mtime = std::fs::metadata(to.join("striped/b")).unwrap().modified().unwrap();
    let mut bytes = std::fs::read(to.join("striped/b")).unwrap();
    bytes[777_777] ^= 1;
    std::fs::write(to.join("striped/b"), bytes).unwrap();
    std::fs::File::options().write(true).open(to.join("striped/b")).unwrap().set_modified(mtime).unwrap();
    std::fs::remove_file(to.join("plain")).unwrap();
    std::fs::remove_file(to.join("deep/link")).unwrap();
    std::os::unix::fs::symlink("elsewhere", to.join("deep/link")).unwrap();
    std::fs::set_permissions(to.join("f"), std::fs::Permissions::from_mode(0o777)).unwrap();
    rustix::fs::setxattr(to.join("small/c"), "user.x", b"1", XattrFlags::empty()).unwrap();
    let (report, failures) = run(&pool, &to, true);
    let mut names: Vec<_> = failures.iter().map(|(path, _)| path.to_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["deep/link", "f", "plain", "small/c", "striped/b"], "{failures:?}");
    assert_eq!(report.failed, 5);
}

/// Stops an export after some tellings of progress.
struct Stop {
    left: AtomicU64,
    failures: Mutex<Failures>,
}

impl ExportWatch for Stop {
    fn failed(&self, path: &Path, reason: &str) {
        self.failures.lock().unwrap().push((path.to_owned(), reason.to_owned()));
    }

    fn progress(&self, _: u64, _: u64) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[test]
fn a_stopped_export_goes_on_and_never_shows_half_a_file() {
    let (pool, files) = pool();
    let mut stopped = 0;
    for steps in (0..60).step_by(5) {
        let to = pool.directory.path().join(format!("out{steps}"));
        let watch = Stop { left: AtomicU64::new(steps), failures: Mutex::default() };
        let done = export(&pool.pool, &to, &ExportOptions::default(), &watch);
        assert!(watch.failures.lock().unwrap().is_empty(), "{:?}", watch.failures);
        if done.is_ok() {
            continue;
        }
        stopped += 1;
        for (name, bytes) in &files {
            if let Ok(found) = std::fs::read(to.join(name)) {
                assert!(found == *bytes, "{name} after {steps} steps");
            }
        }
        // Between two runs a file changes: what the first run had of it does not stay.
        let (report, failures) = run(&pool, &to, false);
        assert!(report.failed == 0, "{failures:?}");
        assert_same(&pool, &files, &to);
        std::fs::remove_dir_all(&to)
            .or_else(|_| {
                std::fs::set_permissions(to.join("deep/er"), std::fs::Permissions::from_mode(0o700)).unwrap();
                std::fs::remove_dir_all(&to)
            })
            .unwrap();
    }
    assert!(stopped > 3, "hardly any export was stopped: {stopped}");
}

#[test]
fn what_a_stopped_export_left_is_not_believed() {
    let (pool, files) = pool();
    let to = pool.directory.path().join("out");
    let watch = Stop { left: AtomicU64::new(12), failures: Mutex::default() };
    assert!(export(&pool.pool, &to, &ExportOptions::default(), &watch).is_err());
    let state = to.join(".stripewise-export");
    for name in ["striped/b", "hole", "moved"] {
        let inode = std::fs::metadata(tree(&pool, name)).unwrap().ino();
        std::fs::write(state.join(format!("part-{inode}")), pattern(900_000, 77)).unwrap();
    }
    run(&pool, &to, false);
    assert_same(&pool, &files, &to);
    let hole = std::fs::read(to.join("hole")).unwrap();
    assert!(hole[..30_000_000].iter().all(|byte| *byte == 0) && &hole[30_000_000..] == b"end");
}

#[test]
fn a_missing_server_fails_its_files_and_no_others() {
    let (pool, mut files) = pool();
    let away = pool.directory.path().join("away");
    std::fs::rename(pool.root(3), &away).unwrap();
    let to = pool.directory.path().join("out");
    let (report, failures) = run(&pool, &to, false);
    assert!(failures.iter().all(|(_, reason)| reason.contains("disk.3")), "{failures:?}");
    assert!(failures.iter().any(|(path, _)| path == Path::new("small/c")), "{failures:?}");
    assert!(report.failed > 0 && !to.join("small/c").exists());
    for name in ["striped/b", "plain", "small/d", "f"] {
        assert!(std::fs::read(to.join(name)).unwrap() == files[name], "{name}");
    }
    // It is back: the same command gets the rest.
    std::fs::rename(&away, pool.root(3)).unwrap();
    let (report, failures) = run(&pool, &to, false);
    assert!(report.failed == 0 && report.resumed_files > 0, "{failures:?}");
    assert_same(&pool, &std::mem::take(&mut files), &to);
}

#[test]
fn nothing_outside_is_written() {
    let (pool, _) = pool();
    let base = pool.directory.path();
    let (to, outside) = (base.join("out"), base.join("outside"));
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), b"precious").unwrap();
    // Another user puts links where an unfinished export will write.
    let watch = Stop { left: AtomicU64::new(0), failures: Mutex::default() };
    assert!(export(&pool.pool, &to, &ExportOptions::default(), &watch).is_err());
    for name in ["striped", "small", "deep"] {
        let _ = std::fs::remove_dir_all(to.join(name));
        std::os::unix::fs::symlink(&outside, to.join(name)).unwrap();
    }
    let _ = std::fs::remove_file(to.join("plain"));
    std::os::unix::fs::symlink(outside.join("precious"), to.join("plain")).unwrap();
    let inode = std::fs::metadata(tree(&pool, "moved")).unwrap().ino();
    let part = to.join(".stripewise-export").join(format!("part-{inode}"));
    let _ = std::fs::remove_file(&part);
    std::os::unix::fs::symlink(outside.join("precious"), part).unwrap();
    let (report, failures) = run(&pool, &to, false);
    assert_eq!(report.failed, 4, "{failures:?}");
    let names: Vec<_> = std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["precious"]);
    assert_eq!(std::fs::read(outside.join("precious")).unwrap(), b"precious");
    assert_eq!(std::fs::read(to.join("plain")).unwrap(), b"plain");
    assert!(std::fs::symlink_metadata(to.join("plain")).unwrap().is_file());
}

#[test]
fn directories_of_others_are_refused() {
    let (pool, _) = pool();
    let base = pool.directory.path();
    let failures = Mutex::new(Vec::new());
    let refused = |to: &Path, verify_only| {
        let options = ExportOptions { verify_only, ..ExportOptions::default() };
        export(&pool.pool, to, &options, &failures).unwrap_err().to_string()
    };
    let other = base.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("mine"), b"mine").unwrap();
    assert!(refused(&other, false).contains("not empty"));
    assert!(refused(&base.join("nothing"), true).contains("nothing"));
    assert!(refused(&pool.root(0).join("out"), false).contains("inside"));
    // An export of another pool under way.
    let second = self::pool().0;
    let to = base.join("out");
    let watch = Stop { left: AtomicU64::new(0), failures: Mutex::default() };
    assert!(export(&second.pool, &to, &ExportOptions::default(), &watch).is_err());
    assert!(refused(&to, false).contains("another pool"));
}

#[test]
fn a_file_that_is_being_written_is_told() {
    let (pool, _) = pool();
    let store = pool.open();
    let inode = store.lookup(Path::new("moved")).unwrap().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let to = pool.directory.path().join("out");
    let failures = std::thread::scope(|scope| {
        scope.spawn(|| {
            inode.register_writer().unwrap();
            let mut seed = 0;
            while !stop.load(Ordering::Relaxed) {
                seed += 1;
                inode.append(&pattern(100, seed)).unwrap();
            }
            inode.release_writer().unwrap();
        });
        let failures = run(&pool, &to, false).1;
        stop.store(true, Ordering::Relaxed);
        failures
    });
    // Of a busy file all or nothing comes out; afterwards it does.
    assert!(failures.iter().all(|(path, _)| path == Path::new("moved")), "{failures:?}");
    if !failures.is_empty() {
        assert!(!to.join("moved").exists());
        assert!(run(&pool, &to, false).1.is_empty());
        assert!(std::fs::read(to.join("moved")).unwrap() == content(&inode));
    }
}

/// A symbolic link and a FIFO can have several names, as a file can: they are one inode in the copy too, also after the
/// export was stopped and went on.
#[test]
fn names_of_one_symlink_or_fifo_stay_names_of_one() {
    let pool = TestPool::new(2);
    let (_fd, file) = create(&pool.open(), "file");
    write(&file, &pattern(100_000, 3), 0);
    std::fs::create_dir(tree(&pool, "below")).unwrap();
    std::os::unix::fs::symlink("nowhere", tree(&pool, "link")).unwrap();
    rustix::fs::mknodat(CWD, tree(&pool, "fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    std::os::unix::fs::symlink("nowhere", tree(&pool, "alone")).unwrap();
    for name in ["link", "fifo"] {
        for other in [format!("{name}2"), format!("below/{name}3")] {
            rustix::fs::linkat(CWD, tree(&pool, name), CWD, tree(&pool, &other), AtFlags::empty()).unwrap();
        }
    }
    let to = pool.directory.path().join("out");
    let inode = |name: &str| std::fs::symlink_metadata(to.join(name)).unwrap().ino();
    let check = || {
        assert_same(&pool, &BTreeMap::new(), &to);
        for name in ["link", "fifo"] {
            let others = [format!("{name}2"), format!("below/{name}3")].map(|other| inode(&other));
            assert_eq!(others, [inode(name); 2], "{name}");
        }
    };
    let (report, failures) = run(&pool, &to, false);
    assert!(failures.is_empty(), "{failures:?}");
    check();
    assert_eq!((report.symlinks, report.special_files, report.hard_links), (2, 1, 4));
    let (report, failures) = run(&pool, &to, true);
    assert!(report.failed == 0, "{failures:?}");
    // What a stopped export left under the names that are kept for links is made anew.
    std::fs::remove_dir_all(&to).unwrap();
    let watch = Stop { left: AtomicU64::new(0), failures: Mutex::default() };
    assert!(export(&pool.pool, &to, &ExportOptions::default(), &watch).is_err());
    let state = to.join(".stripewise-export");
    for name in ["link", "fifo"] {
        let kept = state.join(format!("link-{}", std::fs::symlink_metadata(tree(&pool, name)).unwrap().ino()));
        let _ = std::fs::remove_file(&kept);
        std::fs::write(kept, b"left").unwrap();
    }
    let (_, failures) = run(&pool, &to, false);
    assert!(failures.is_empty(), "{failures:?}");
    check();
}
