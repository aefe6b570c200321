//! A tree that one user of a pool has made to hinder others: so deep that no path leads to its end, with links, mounts
//! and special files in it. The check and the way out go through all of it, with few descriptors and little memory.

mod common;

use common::{TestPool, in_own_mounts, pattern, write};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, XattrFlags};
use rustix::process::{Resource, Rlimit};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use stripewise_store::Store;
use stripewise_store::export_tree::{self, export};
use stripewise_store::fsck::{self, CheckFinding, DamageKind, FindingOutcome, check};
use stripewise_store::handle::{ATTRIBUTE, Optimisations};

const LEVELS: usize = 4000;
/// Of this many levels, the file of one has datafiles.
const PLACED_EVERY: usize = 50;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open(directory: impl AsFd, name: impl AsRef<Path>) -> OwnedFd {
    rustix::fs::openat(directory, name.as_ref(), DIRECTORY, Mode::empty()).unwrap()
}

fn make(directory: impl AsFd, name: &str) -> OwnedFd {
    rustix::fs::mkdirat(&directory, name, Mode::RWXU).unwrap();
    open(directory, name)
}

fn make_file(directory: impl AsFd, name: &str, bytes: &[u8]) -> OwnedFd {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::write(&fd, bytes).unwrap();
    fd
}

fn tree(pool: &TestPool) -> PathBuf {
    pool.pool.namespace.join("tree")
}

fn bytes_of(level: usize) -> Vec<u8> {
    if level.is_multiple_of(PLACED_EVERY) { pattern(9_000, level as u64) } else { format!("level {level}").into() }
}

/// What a level of the tree is called: a hundred bytes, so that all of them are some hundreds of KiB.
fn name_of(level: usize) -> String {
    format!("{level:0100}")
}

/// Makes [`LEVELS`] levels, each with a file and a directory beside the next one that has a file as well.
fn make_deep(store: &Arc<Store>, tree: &Path) {
    let mut at = open(CWD, tree);
    for level in 0..LEVELS {
        make_file(make(&at, "beside"), "plain", &bytes_of(1));
        if level.is_multiple_of(PLACED_EVERY) {
            let fd = make_file(&at, "file", b"");
            drop(store.create(fd.as_fd(), &Optimisations::default(), || Ok(name_of(level).into())).unwrap());
            write(&store.inode(fd.as_fd()).unwrap().unwrap(), &bytes_of(level), 0);
        } else {
            make_file(&at, "file", &bytes_of(level));
        }
        at = make(&at, &name_of(level));
    }
}

/// A pool that is removed by a program for which nothing is too deep.
struct Deep(TestPool, PathBuf);

impl Drop for Deep {
    fn drop(&mut self) {
        std::process::Command::new("rm").arg("-rf").args([tree(&self.0), self.1.clone()]).status().unwrap();
    }
}

/// Most memory that this process has had, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn fsck(pool: &TestPool) -> (fsck::CheckReport, Vec<CheckFinding>) {
    let told = Mutex::new(Vec::new());
    let report = check(&pool.pool, &fsck::CheckOptions::default(), &told).unwrap();
    (report, told.into_inner().unwrap())
}

fn export_to(pool: &TestPool, to: &Path, verify_only: bool) -> (export_tree::ExportReport, Vec<(PathBuf, String)>) {
    let failures = Mutex::new(Vec::new());
    let options = export_tree::ExportOptions { verify_only, ..Default::default() };
    let report = export(&pool.pool, to, &options, &failures).unwrap();
    (report, failures.into_inner().unwrap())
}

#[test]
fn a_tree_of_four_thousand_levels_is_checked_and_exported() {
    // The limit of open files is that of a process, and the other tests have need of some, too.
    if in_own_mounts("a_tree_of_four_thousand_levels_is_checked_and_exported") {
        return;
    }
    let pool = TestPool::new(2);
    let to = pool.directory.path().join("out");
    let deep = Deep(pool, to.clone());
    let pool = &deep.0;
    make_deep(&pool.open(), &tree(pool));
    // What is needed beyond it would grow with the depth.
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: Some(256) }).unwrap();
    let before_bytes = peak_bytes();

    let (report, told) = fsck(pool);
    assert_eq!(told, []);
    let files = (2 * LEVELS) as u64;
    assert_eq!((report.files, report.placed_files), (files, (LEVELS / PLACED_EVERY) as u64));

    let (report, failures) = export_to(pool, &to, false);
    assert_eq!(failures, []);
    assert_eq!((report.files, report.directories), (files, files));
    let (mut from, mut at) = (open(CWD, tree(pool)), open(CWD, &to));
    for level in 0..LEVELS {
        let read = |name| {
            let fd = rustix::fs::openat(&at, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
            let mut bytes = vec![0; 10_000];
            let len = rustix::io::read(&fd, &mut bytes).unwrap();
            bytes.truncate(len);
            bytes
        };
        assert!(read("file") == bytes_of(level) && read("beside/plain") == bytes_of(1), "level {level}");
        let times = |directory: &OwnedFd| {
            let stat = rustix::fs::fstat(directory).unwrap();
            (stat.st_mode, stat.st_mtime, stat.st_mtime_nsec)
        };
        assert_eq!(times(&at), times(&from), "level {level}");
        (from, at) = (open(&from, name_of(level)), open(&at, name_of(level)));
    }
    let (report, failures) = export_to(pool, &to, true);
    assert_eq!((report.files, failures), (files, vec![]));
    let found = pool.open().find(&|path| path.ends_with("file")).unwrap();
    assert_eq!(found.len(), LEVELS / PLACED_EVERY);
    assert!(found.iter().all(|(path, inode)| path.as_os_str().len() < 4096 && inode.size_bytes().unwrap() == 9_000));
    let grown_bytes = peak_bytes() - before_bytes;
    assert!(grown_bytes < 300 << 20, "{} MiB more", grown_bytes >> 20);

    // Something at the end of it is told by a path that a person can read.
    let mut at = open(CWD, tree(pool));
    for level in 0..LEVELS {
        at = open(&at, name_of(level));
    }
    let file = make_file(&at, "damaged", b"");
    rustix::fs::fsetxattr(&file, ATTRIBUTE, b"no handle", XattrFlags::empty()).unwrap();
    let (_, told) = fsck(pool);
    let [CheckFinding { kind: DamageKind::DamagedHandle, path: Some(path), .. }] = &told[..] else {
        panic!("{told:?}")
    };
    let path = path.to_str().unwrap();
    assert!(path.starts_with(&format!("{}/{}/", name_of(0), name_of(1))), "{path}");
    assert!(path.ends_with(&format!("/{}/damaged", name_of(LEVELS - 1))), "{path}");
    assert!(path.contains("directories)...") && path.len() < 4096, "{path}");
}

#[test]
fn nothing_that_is_planted_in_a_tree_leads_outside_or_ends_the_run() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root makes devices and mounts");
        return;
    }
    // Mounts of this thread, and of those that it starts.
    // SAFETY: no thread shares memory that depends on the mounts.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    let private = rustix::mount::MountPropagationFlags::REC | rustix::mount::MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).unwrap();

    let pool = TestPool::new(2);
    let (tree, outside) = (tree(&pool), pool.directory.path().join("outside"));
    make_file(make(CWD, outside.to_str().unwrap()), "secret", b"secret");
    let real = make(CWD, tree.join("real").to_str().unwrap());
    make_file(&real, "file", b"bytes");
    std::os::unix::fs::symlink(&outside, tree.join("link")).unwrap();
    std::os::unix::fs::symlink("..", tree.join("real/up")).unwrap();
    rustix::fs::mknodat(CWD, tree.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let tty = rustix::fs::makedev(5, 0);
    rustix::fs::mknodat(CWD, tree.join("device"), FileType::CharacterDevice, Mode::RUSR, tty).unwrap();
    make_file(&real, "a\nb\x1b[31m", b"named");
    // A mount of the tree in itself has no end; one on a file shows another file.
    make(CWD, tree.join("mounted").to_str().unwrap());
    rustix::mount::mount_bind(&tree, tree.join("mounted")).unwrap();
    make_file(CWD, tree.join("covered").to_str().unwrap(), b"covered");
    rustix::mount::mount_bind(outside.join("secret"), tree.join("covered")).unwrap();

    let (report, told) = fsck(&pool);
    assert_eq!(report.files, 3);
    let mut unreadable: Vec<_> = told.iter().map(|one| (one.kind, one.outcome, one.path.clone().unwrap())).collect();
    unreadable.sort_by(|a, b| a.2.cmp(&b.2));
    let mounted = |name: &str| (DamageKind::Unreadable, FindingOutcome::Left, PathBuf::from(name));
    assert_eq!(unreadable, [mounted("covered"), mounted("mounted")]);
    assert!(told.iter().all(|one| one.what.contains("mounted there")), "{told:?}");

    let to = pool.directory.path().join("out");
    let (report, failures) = export_to(&pool, &to, false);
    assert_eq!((report.files, report.symlinks, report.special_files, report.failed), (2, 2, 2, 2));
    assert!(
        failures.iter().all(
            |(path, why)| ["covered", "mounted"].map(Path::new).contains(&&**path) && why.contains("mounted there")
        )
    );
    assert_eq!(std::fs::read(to.join("real/file")).unwrap(), b"bytes");
    assert_eq!(std::fs::read_link(to.join("link")).unwrap(), outside);
    assert!(!to.join("covered").exists());
    for covered in ["mounted", "covered"] {
        rustix::mount::unmount(tree.join(covered), rustix::mount::UnmountFlags::empty()).unwrap();
    }
}

#[test]
fn a_directory_that_becomes_a_link_again_and_again_leads_nowhere() {
    let pool = TestPool::new(1);
    let (tree, outside) = (tree(&pool), pool.directory.path().join("outside"));
    let outside_fd = make(CWD, outside.to_str().unwrap());
    for inside in ["a", "b"] {
        make_file(make(&outside_fd, inside), "secret", b"secret");
    }
    let top = open(CWD, &tree);
    for name in 0..64 {
        let directory = make(&top, &format!("{name}"));
        make_file(make(&directory, "a"), "file", b"own");
        std::os::unix::fs::symlink(&outside, tree.join(format!("{name}.link"))).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for name in 0..64 {
                    let (a, b) = (format!("{name}"), format!("{name}.link"));
                    rustix::fs::renameat_with(&top, &a, &top, &b, rustix::fs::RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        // Also where a check below fails: else it would never be told.
        let _stop = AtItsEnd(|| stop.store(true, Ordering::Relaxed));
        for round in 0..20 {
            let (report, _) = fsck(&pool);
            assert!(report.files <= 128, "{report:?}");
            let to = pool.directory.path().join(format!("out{round}"));
            export_to(&pool, &to, false);
            for name in 0..64 {
                for name in [format!("{name}"), format!("{name}.link")] {
                    let copied = rustix::fs::statat(CWD, to.join(&name), AtFlags::SYMLINK_NOFOLLOW);
                    if copied.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
                        assert!(!to.join(name).join("a/secret").exists());
                    }
                }
            }
        }
    });
}

/// Does something when it goes.
struct AtItsEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtItsEnd<F> {
    fn drop(&mut self) {
        self.0();
    }
}
