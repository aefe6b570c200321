//! A user who may write one file of another user's gets nothing else of hers: a handle that is written into it opens, changes and
//! removes none of her other datafiles, through root's mount, through tools without one, and by root's check.

mod common;

use common::users::{ALICE, BOB, Users, cannot_be_had, private};
use common::{TestPool, succeeded};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_store::fsck::{self, CheckFinding, DamageKind, FindingOutcome};
use stripewise_store::generations::GenerationMap;
use stripewise_store::handle::Handle;
use stripewise_store::{Inode, Pool, Store, export_tree};

/// Alice's `p`, which is hers alone, and her `log`, which all may write.
struct Shared {
    users: Users,
    victim: Handle,
    /// Owner, group, mode and size of each datafile of `p`.
    before: Vec<(PathBuf, u32, u32, u32, u64)>,
}

impl Shared {
    fn new() -> Shared {
        Shared::of(TestPool::shared())
    }

    fn of(pool: TestPool) -> Shared {
        let mut shared = Shared { users: Users::of(pool), victim: Handle::new(0, [0; 32]), before: Vec::new() };
        shared.ok(
            ALICE,
            "fd = os.open(M + '/p', os.O_CREAT | os.O_RDWR, 0o644); os.write(fd, b'alice' * 8000); os.close(fd)",
        );
        // Bob has seen the handle while the file was readable.
        shared.victim = shared.users.handle("p");
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

    fn run(&self, user: u32, script: &str) -> std::process::Output {
        self.users.run(user, script)
    }

    fn ok(&self, user: u32, script: &str) -> String {
        self.users.ok(user, script)
    }

    fn tree(&self, name: &str) -> PathBuf {
        self.users.tree(name)
    }

    /// Bob writes a handle into Alice's `log`, as the mode allows.
    fn plant(&self, handle: &Handle) {
        self.users.forge(BOB, "log", handle);
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
        datafiles_of(&self.users.pool, &self.victim)
    }

    fn victim_is_whole(&self, after: &str) {
        assert_eq!(self.datafiles(), self.before, "after {after}");
        let script = format!(
            "found = open(M + '/p', 'rb').read()\nassert found == b'alice' * 8000, ({after:?}, len(found), found[:20])"
        );
        self.ok(ALICE, &script);
    }

    fn check(&self) -> Vec<CheckFinding> {
        check(&self.users.pool.file(), &fsck::CheckOptions::default())
    }
}

fn check(pool: &Path, options: &fsck::CheckOptions) -> Vec<CheckFinding> {
    let told: Mutex<Vec<CheckFinding>> = Mutex::default();
    fsck::check(&Pool::load(pool).unwrap(), options, &told).unwrap();
    told.into_inner().unwrap()
}

/// Owner, group, mode and size of each datafile of `handle`'s first generation.
fn datafiles_of(pool: &TestPool, handle: &Handle) -> Vec<(PathBuf, u32, u32, u32, u64)> {
    let prefix = format!("{:016x}.{:08x}", handle.logical, 1);
    let mut all = pool.datafiles();
    all.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix));
    let found = all.into_iter().map(|path| {
        let stat = fs::symlink_metadata(&path).unwrap();
        (path, stat.uid(), stat.gid(), stat.permissions().mode() & 0o7777, stat.len())
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
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
    let pool = Pool::load(&shared.users.pool.file()).unwrap();
    for (number, forged) in shared.forgeries().iter().enumerate() {
        shared.plant(forged);
        // As root, with all rights.
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
        let to = shared.users.pool.path(&format!("out/copy{number}"));
        let failures: Mutex<Vec<(PathBuf, String)>> = Mutex::default();
        export_tree::export(&pool, &to, &export_tree::ExportOptions { threads: 2, ..Default::default() }, &failures)
            .unwrap();
        assert_eq!(fs::read(to.join("p")).unwrap(), b"alice".repeat(8000));
        let copied = fs::read(to.join("log")).unwrap_or_default();
        assert!(!copied.starts_with(b"alice"), "copy {number}");
        shared.plant(forged);
        let told = shared.check();
        shared.victim_is_whole("a check");
        let found = |path: &str| {
            told.iter().any(|one| {
                one.kind == DamageKind::DuplicateHandle
                    && one.outcome == FindingOutcome::Left
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

/// Alice's own mount obeys the handle that Bob planted no more than root's.
#[test]
fn a_planted_handle_opens_nothing_through_a_mount_of_her_own() {
    let shared = Shared::new();
    let attacks = [
        "if cat log | grep -a -q alice; then exit 9; fi",
        "echo x >> log || true",
        "head -c 30000 /dev/zero > log || true",
        "truncate -s 10 log || true",
        "chmod 600 log || true; chmod 666 log || true",
        "cp p log || true",
        "rm -f log || true",
    ];
    for forged in shared.forgeries() {
        for attack in attacks {
            shared.plant(&forged);
            let done = private(&shared.users, ALICE, attack);
            if cannot_be_had(&String::from_utf8_lossy(&done.stderr)) {
                return;
            }
            succeeded(attack, &done);
            shared.victim_is_whole(attack);
            // Through root's mount, which takes what is left.
            shared.ok(ALICE, "try: os.unlink(M + '/log')\nexcept FileNotFoundError: pass");
            shared.victim_is_whole("its removal");
            shared.new_log();
        }
    }
}

/// Files of a copy have other inodes. Root's check binds datafiles anew, and gives nothing to a file whose handle Bob has
/// prepared before the copy was made.
#[test]
fn a_copied_pool_gives_a_prepared_file_nothing() {
    for prepared in [false, true] {
        let shared = Shared::new();
        if prepared {
            shared.plant(&shared.victim.clone());
            shared.ok(BOB, "open(M + '/bobs', 'wb').write(b'bobs' * 8000)");
            shared.users.forge(BOB, "bobs", &shared.victim);
        }
        let mounted = shared.users.mount.dir.clone();
        let unmounted = Command::new(common::BIN).arg("--unmount").arg(&mounted).status().unwrap();
        assert!(unmounted.success());
        let copy = TestPool::copy_of(&shared.users.pool);
        let rebind = fsck::CheckOptions { rebind: true, ..fsck::CheckOptions::default() };
        check(&copy.file(), &rebind);
        let told = check(&copy.file(), &fsck::CheckOptions::default());
        let copied = Shared { users: Users::of(copy), victim: shared.victim.clone(), before: Vec::new() };
        let datafiles = copied.datafiles();
        let rights = |all: &[(PathBuf, u32, u32, u32, u64)]| -> Vec<_> {
            all.iter().map(|(_, uid, gid, mode, length)| (*uid, *gid, *mode, *length)).collect()
        };
        assert_eq!(rights(&datafiles), rights(&shared.before));
        if prepared {
            assert!(told.iter().any(|one| one.path.as_deref() == Some(Path::new("log"))), "{told:?}");
            for (user, name) in [(ALICE, "log"), (BOB, "log"), (BOB, "bobs"), (0, "bobs"), (0, "log")] {
                let read = format!(
                    "try: found = open(M + '/{name}', 'rb').read()\nexcept OSError: found = b''\n\
                     assert b'alice' not in found, found[:20]"
                );
                copied.ok(user, &read);
            }
            for name in ["log", "bobs"] {
                fs::remove_file(copied.tree(name)).unwrap();
            }
            check(&copied.users.pool.file(), &rebind);
            assert_eq!(rights(&copied.datafiles()), rights(&shared.before));
        } else {
            assert!(told.is_empty(), "{told:?}");
            copied.ok(BOB, "assert open(M + '/log', 'rb').read() == b'log!' * 8000");
        }
        copied.ok(ALICE, "assert open(M + '/p', 'rb').read() == b'alice' * 8000");
        copied.ok(ALICE, "with open(M + '/p', 'ab') as file: file.write(b'more')");
        copied.ok(ALICE, "assert open(M + '/p', 'rb').read() == b'alice' * 8000 + b'more'");
    }
}

/// A writer of `p` has died: what tells the next one to look where the file ends stays, whatever Bob has the log's handle say.
#[test]
fn a_planted_handle_removes_no_lock_file_of_a_dead_writer() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let shared = Shared::new();
    let lock = shared.users.pool.path(&format!("ns/locks/{:016x}", shared.victim.logical));
    // As one that Alice's writer has made.
    let ready = shared.users.pool.path("out/ready");
    let hold = format!(
        "fd = os.open(M + '/p', os.O_RDWR); os.write(fd, b'a'); open({ready:?}, 'wb')\n\
         while os.path.exists({ready:?}): time.sleep(0.01)"
    );
    let mut bytes = [0; 16];
    let mut bound = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| shared.ok(ALICE, &hold));
        while !ready.exists() {
            assert!(!writer.is_finished() || ready.exists(), "it has written nothing");
            std::thread::yield_now();
        }
        bound = getxattr(&lock, "user.stripewise.inode", &mut bytes[..]).unwrap_or(0);
        fs::remove_file(&ready).unwrap();
        writer.join().unwrap();
    });
    common::eventually("its lock file goes with it", || !lock.exists());
    for forged in shared.forgeries() {
        fs::write(&lock, b"").unwrap();
        std::os::unix::fs::chown(&lock, Some(ALICE), Some(ALICE)).unwrap();
        fs::set_permissions(&lock, fs::Permissions::from_mode(0o600)).unwrap();
        setxattr(&lock, "user.stripewise.inode", &bytes[..bound], XattrFlags::empty()).unwrap();
        let made = fs::metadata(&lock).unwrap().ino();
        shared.plant(&forged);
        for attack in [
            "open(M + '/log', 'rb').read()",
            "fd = os.open(M + '/log', os.O_RDWR); os.write(fd, b'bob'); os.close(fd)",
            "os.truncate(M + '/log', 10)",
            "os.stat(M + '/log')",
        ] {
            shared.run(BOB, attack);
            assert_eq!(fs::metadata(&lock).map(|found| found.ino()).ok(), Some(made), "{attack}");
        }
        shared.ok(ALICE, "os.unlink(M + '/log')");
        assert_eq!(fs::metadata(&lock).map(|found| found.ino()).ok(), Some(made), "its removal");
        // The next writer of the file settles it.
        shared.ok(ALICE, "fd = os.open(M + '/p', os.O_RDWR); os.write(fd, b'a'); os.close(fd)");
        common::eventually("its lock file goes", || !lock.exists());
        shared.victim_is_whole("all");
        shared.new_log();
    }
}

/// A directory on which a file system without user attributes is mounted.
struct WithoutAttributes<'a>(&'a Path);

impl WithoutAttributes<'_> {
    fn mount(on: &Path) -> WithoutAttributes<'_> {
        fs::create_dir(on).unwrap();
        let mounted = Command::new("mount").args(["-t", "ramfs", "none"]).arg(on).status().unwrap();
        assert!(mounted.success(), "this test mounts a ramfs: run it as root");
        WithoutAttributes(on)
    }
}

impl Drop for WithoutAttributes<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// What a file is bound by, its file system must have: said when the pool is made, and by which directory.
#[test]
fn a_file_system_without_attributes_is_refused_when_the_pool_is_made() {
    use stripewise_store::pool::{PoolSpec, TierSpec};
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let plain = path("plain");
    let _plain = WithoutAttributes::mount(&plain);
    let spec = |namespace: PathBuf, servers: Vec<PathBuf>| PoolSpec {
        name: "scratch".into(),
        mount: path("mnt"),
        namespace,
        default_width_bytes: Some(4096),
        tiers: vec![TierSpec { name: "hdd".into(), servers, ..TierSpec::default() }],
    };
    let refused = |spec: &PoolSpec, shared: bool| {
        let made = if shared { Pool::init_shared(&path("no.toml"), spec) } else { Pool::init(&path("no.toml"), spec) };
        assert!(!path("no.toml").exists());
        made.unwrap_err().to_string()
    };
    let spread = spec(path("ns"), vec![path("s0"), plain.join("s1"), path("s2")]);
    let said = refused(&spread, true);
    for part in ["hdd.1", &*plain.join("s1").to_string_lossy(), "user attributes", "without --shared"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!path("s0/.stripewise").exists(), "no server is taken");
    for shared in [true, false] {
        let said = refused(&spec(plain.join("ns"), vec![path("s0"), path("s2")]), shared);
        assert!(said.contains(&*plain.join("ns").to_string_lossy()) && said.contains("attributes"), "{said}");
    }
    // With other servers it is made after all; and one user's needs none on its servers.
    Pool::init_shared(&path("yes.toml"), &spec(path("ns"), vec![path("s0"), path("s2")])).unwrap();
    Pool::init(&path("one.toml"), &spec(path("one"), vec![path("s3"), plain.join("s4")])).unwrap();
}
