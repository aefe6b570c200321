//! Who may write one file of another user's gets nothing else of hers: a handle that he writes into it opens, changes and
//! removes none of her other datafiles, through root's mount, through tools without one, and by root's check.

mod common;

use common::{Mounted, TestPool, need, succeeded};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_store::fsck::{self, Finding, Kind, Outcome};
use stripewise_store::generations::GenerationMap;
use stripewise_store::handle::{ATTRIBUTE, Handle};
use stripewise_store::{Inode, Pool, Store, export_tree};

const ALICE: u32 = 62101;
const BOB: u32 = 62102;

/// Alice's `p`, which is hers alone, and her `log`, which all may write.
struct Shared {
    pool: TestPool,
    _mount: Mounted,
    victim: Handle,
    /// Owner, group, mode and size of each datafile of `p`.
    before: Vec<(PathBuf, u32, u32, u32, u64)>,
}

impl Shared {
    fn new() -> Shared {
        need("python3");
        let pool = TestPool::shared();
        let mount = Mounted::new(&pool, "mnt", "allow_other");
        let mut shared = Shared { pool, _mount: mount, victim: Handle::new(0, [0; 32]), before: Vec::new() };
        shared.ok(
            ALICE,
            "fd = os.open(M + '/p', os.O_CREAT | os.O_RDWR, 0o644); os.write(fd, b'alice' * 8000); os.close(fd)",
        );
        // Bob has seen the handle while he could read the file.
        shared.victim = shared.handle("p");
        shared.ok(ALICE, "os.chmod(M + '/p', 0o600)");
        shared.before = shared.datafiles();
        assert_eq!(shared.before.len(), 3);
        shared.new_log();
        shared
    }

    fn new_log(&self) {
        let script = "fd = os.open(M + '/log', os.O_CREAT | os.O_RDWR, 0o666); os.fchmod(fd, 0o666); os.write(fd, b'log!' * 8000)";
        self.ok(ALICE, script);
    }

    /// A Python script as a user; whether it was refused is for its caller to see.
    fn run(&self, user: u32, script: &str) -> std::process::Output {
        let path = |name: &str| self.pool.path(name).to_string_lossy().into_owned();
        let script = format!(
            "import os\nos.setgroups([]); os.setresgid({user}, {user}, {user}); os.setresuid({user}, {user}, {user})\n\
             os.umask(0)\nM, TREE = {:?}, {:?}\n{script}",
            path("mnt"),
            path("ns/tree"),
        );
        Command::new("timeout").args(["30", "python3", "-c", &script]).stdin(Stdio::null()).output().unwrap()
    }

    fn ok(&self, user: u32, script: &str) -> String {
        succeeded(script, &self.run(user, script))
    }

    fn tree(&self, name: &str) -> PathBuf {
        self.pool.path("ns/tree").join(name)
    }

    fn handle(&self, name: &str) -> Handle {
        let mut bytes = [0; 4096];
        let length = rustix::fs::getxattr(self.tree(name), ATTRIBUTE, &mut bytes[..]).unwrap();
        Handle::decode(&bytes[..length]).unwrap()
    }

    /// Bob writes a handle into Alice's `log`, as he may.
    fn plant(&self, handle: &Handle) {
        let real = fs::metadata(self.tree("log")).unwrap().ino();
        let bytes = Handle { real, ..handle.clone() }.encode().unwrap();
        self.ok(BOB, &format!("os.setxattr(TREE + '/log', '{ATTRIBUTE}', bytes({bytes:?}))"));
    }

    /// The victim's handle as it is, as if it had no datafiles yet, in the middle of a change, and as a later one.
    fn forgeries(&self) -> [Handle; 4] {
        let same = self.victim.clone();
        let none = Handle { present: Default::default(), ..same.clone() };
        let cut = Handle { truncating_to: Some(0), ..same.clone() };
        let later = Handle { version: 7, generations: GenerationMap::whole(7), ..none.clone() };
        [same, none, cut, later]
    }

    fn datafiles(&self) -> Vec<(PathBuf, u32, u32, u32, u64)> {
        let prefix = format!("{:016x}.{:08x}", self.victim.logical, 1);
        let mut all = self.pool.datafiles();
        all.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix));
        let found = all.into_iter().map(|path| {
            let stat = fs::symlink_metadata(&path).unwrap();
            (path, stat.uid(), stat.gid(), stat.permissions().mode() & 0o7777, stat.len())
        });
        let mut found: Vec<_> = found.collect();
        found.sort();
        found
    }

    fn victim_is_whole(&self, after: &str) {
        assert_eq!(self.datafiles(), self.before, "after {after}");
        let script = format!(
            "found = open(M + '/p', 'rb').read()\nassert found == b'alice' * 8000, ({after:?}, len(found), found[:20])"
        );
        self.ok(ALICE, &script);
    }

    fn check(&self) -> Vec<Finding> {
        let told: Mutex<Vec<Finding>> = Mutex::default();
        let pool = Pool::load(&self.pool.file()).unwrap();
        fsck::check(&pool, &fsck::Options::default(), &told).unwrap();
        told.into_inner().unwrap()
    }
}

#[test]
fn a_planted_handle_opens_nothing_through_the_mount() {
    let shared = Shared::new();
    let attacks = [
        (BOB, "found = open(M + '/log', 'rb').read(); assert b'alice' not in found, found[:9]"),
        (BOB, "fd = os.open(M + '/log', os.O_RDWR); os.write(fd, b'bob' * 9000); os.fsync(fd)"),
        (BOB, "fd = os.open(M + '/log', os.O_RDWR | os.O_APPEND); os.write(fd, b'bob' * 9000)"),
        (BOB, "os.truncate(M + '/log', 10)"),
        (BOB, "os.truncate(M + '/log', 1 << 20)"),
        (BOB, "fd = os.open(M + '/log', os.O_RDWR | os.O_TRUNC); os.write(fd, b'bob' * 9000)"),
        (BOB, "fd = os.open(M + '/log', os.O_RDWR); os.posix_fallocate(fd, 0, 40000)"),
        (ALICE, "os.chmod(M + '/log', 0o666)"),
        (ALICE, "os.chmod(M + '/log', 0o600); os.chmod(M + '/log', 0o666)"),
        (ALICE, "os.utime(M + '/log', (1, 1))"),
        (ALICE, "os.unlink(M + '/log')"),
    ];
    for forged in shared.forgeries() {
        for (user, attack) in attacks {
            shared.plant(&forged);
            let done = shared.run(user, attack);
            let said = String::from_utf8_lossy(&done.stderr);
            // The system refuses it, or it is done to the log alone.
            assert!(done.status.success() || said.contains("OSError"), "{attack}: {said}");
            shared.victim_is_whole(attack);
            if !shared.tree("log").exists() {
                shared.new_log();
            }
            if shared.run(BOB, "assert os.stat(TREE + '/log').st_mode & 0o777 == 0o666").status.code() != Some(0) {
                shared.ok(ALICE, "os.chmod(TREE + '/log', 0o666)");
            }
        }
    }
    // The victim goes on with her file, and the log is another one once it has been removed.
    shared.ok(
        ALICE,
        "os.unlink(M + '/log'); fd = os.open(M + '/p', os.O_RDWR | os.O_APPEND); os.write(fd, b'more')\n\
         assert open(M + '/p', 'rb').read() == b'alice' * 8000 + b'more'",
    );
    shared.new_log();
    shared.ok(BOB, "assert open(M + '/log', 'rb').read() == b'log!' * 8000");
}

fn write(inode: &Inode) -> stripewise_store::Result<usize> {
    inode.register_writer()?;
    let put = inode.write_at(b"written", 0);
    inode.release_writer()?;
    put
}

#[test]
fn a_planted_handle_opens_nothing_without_a_mount_and_by_a_check() {
    let shared = Shared::new();
    let pool = Pool::load(&shared.pool.file()).unwrap();
    for (number, forged) in shared.forgeries().iter().enumerate() {
        shared.plant(forged);
        // As root, who could do anything.
        let store = Store::open(pool.clone()).unwrap();
        if let Ok(Some(inode)) = store.lookup(Path::new("log")) {
            let mut bytes = [0; 10];
            let read = inode.read_at(&mut bytes, 0);
            assert!(!bytes.starts_with(b"alice"), "{read:?}");
            shared.victim_is_whole("read");
            let _ = write(&inode);
            shared.victim_is_whole("write");
            let layout = Layout::new([(0, vec![Stripe { server: ServerId(1), width_bytes: 9000 }])]).unwrap();
            let _ = inode.move_to(&layout, "log", &mut |_, _| true);
            shared.victim_is_whole("move");
        }
        shared.plant(forged);
        let to = shared.pool.path(&format!("out/copy{number}"));
        let failures: Mutex<Vec<(PathBuf, String)>> = Mutex::default();
        export_tree::export(&pool, &to, &export_tree::Options { verify_only: false, threads: 2 }, &failures).unwrap();
        assert_eq!(fs::read(to.join("p")).unwrap(), b"alice".repeat(8000));
        let copied = fs::read(to.join("log")).unwrap_or_default();
        assert!(!copied.starts_with(b"alice"), "copy {number}");
        shared.plant(forged);
        let told = shared.check();
        shared.victim_is_whole("a check");
        let found = |path: &str| {
            told.iter().any(|one| {
                one.kind == Kind::DuplicateHandle
                    && one.outcome == Outcome::Left
                    && one.path.as_deref() == Some(Path::new(path))
            })
        };
        assert!(found("log") && !found("p"), "{told:?}");
        shared.ok(ALICE, "os.unlink(M + '/log')");
        shared.check();
        shared.victim_is_whole("a check without the log");
        shared.new_log();
    }
}
