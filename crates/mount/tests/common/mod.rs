//! A pool in a temporary directory, and programs run on it through a mount of their own.

#![allow(dead_code, reason = "each test binary uses its part")]

pub mod cluster;
pub mod faulty;
pub mod loop_disk;
pub mod slow_disk;
pub mod users;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use stripewise_optimisation::OptimisationSetting;
use stripewise_store::handle::Optimisations;
use stripewise_store::pool::{PoolSpec, TierSpec};
use stripewise_store::{Pool, Store};

/// The program under test.
pub const BIN: &str = env!("CARGO_BIN_EXE_stripewise-mount");

/// A pool of three plain directories, 4 KiB wide, so that small files already lie on all of them.
pub struct TestPool {
    dir: tempfile::TempDir,
}

impl TestPool {
    pub fn new() -> TestPool {
        TestPool::with_width("4KiB")
    }

    pub fn with_width(width: &str) -> TestPool {
        TestPool::with(width, &["s0", "s1", "s2"])
    }

    /// A pool of some of the servers s0, s1, s2.
    pub fn with(width: &str, servers: &[&str]) -> TestPool {
        // Not a skip: where FUSE is missing nothing below has been shown to work.
        assert!(
            Path::new("/dev/fuse").exists(),
            "/dev/fuse does not exist: these tests mount real file systems (modprobe fuse, or --device /dev/fuse)"
        );
        let dir = tempfile::tempdir().unwrap();
        for name in ["mnt", "ns", "s0", "s1", "s2", "out"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let text = format!(
            "name = \"scratch\"\nmount = \"mnt\"\nnamespace = \"ns\"\n[default]\nwidth = \"{width}\"\n[[tier]]\nname = \
             \"hdd\"\nservers = {servers:?}\n"
        );
        fs::write(dir.path().join("pool.toml"), text).unwrap();
        let pool = TestPool { dir };
        Pool::load(&pool.file()).unwrap().prepare().unwrap();
        pool
    }

    /// Gives files that are made from now on this optimisation.
    pub fn hint(&self, setting: &str) {
        let (index, parameters) = OptimisationSetting::parse(setting).unwrap().pack();
        let mut optimisations = Optimisations::default();
        optimisations.enable(index, parameters).unwrap();
        let store = Store::open(Pool::load(&self.file()).unwrap()).unwrap();
        store.change_hints(Path::new("."), |hints| hints.set(None, optimisations)).unwrap();
    }

    /// A pool of several users, which they can reach.
    pub fn shared() -> TestPool {
        TestPool::shared_in(tempfile::tempdir().unwrap())
    }

    /// The same in that directory.
    pub fn shared_in(dir: tempfile::TempDir) -> TestPool {
        assert!(rustix::process::geteuid().is_root(), "this test makes a pool of several users: run it as root");
        open_to_all(dir.path(), 0o755);
        fs::create_dir(dir.path().join("out")).unwrap();
        open_to_all(&dir.path().join("out"), 0o1777);
        let pool = TestPool { dir };
        let spec = PoolSpec {
            name: "scratch".into(),
            mount: pool.path("mnt"),
            namespace: pool.path("ns"),
            default_width_bytes: Some(4096),
            tiers: vec![TierSpec {
                name: "hdd".into(),
                servers: ["s0", "s1", "s2"].map(|name| pool.path(name)).to_vec(),
                ..TierSpec::default()
            }],
        };
        Pool::init_shared(&pool.file(), &spec).unwrap();
        open_to_all(&pool.file(), 0o644);
        pool
    }

    /// What `cp -a` makes of a shared pool that is not mounted.
    pub fn copy_of(original: &TestPool) -> TestPool {
        let dir = tempfile::tempdir().unwrap();
        open_to_all(dir.path(), 0o755);
        let pool = TestPool { dir };
        for name in ["ns", "s0", "s1", "s2", "out"] {
            let copied = Command::new("cp").arg("-a").arg(original.path(name)).arg(pool.path(name)).output().unwrap();
            succeeded("cp -a", &copied);
        }
        fs::create_dir(pool.mnt()).unwrap();
        let text = fs::read_to_string(original.file()).unwrap();
        let (from, to) = (original.path("").display().to_string(), pool.path("").display().to_string());
        fs::write(pool.file(), text.replace(&from, &to)).unwrap();
        open_to_all(&pool.file(), 0o644);
        pool
    }

    /// A path beside the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn mnt(&self) -> PathBuf {
        self.path("mnt")
    }

    pub fn file(&self) -> PathBuf {
        self.path("pool.toml")
    }

    /// Datafiles on all servers.
    pub fn datafiles(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for server in ["s0", "s1", "s2"] {
            for dir in fs::read_dir(self.path(server)).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
                found.extend(fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.path()));
            }
        }
        found
    }

    /// `stripewise-mount --private POOL -- PROGRAM…`, not yet started; `$M` is the mount, `$OUT` a directory beside it.
    pub fn private(&self, command: &[&str]) -> Command {
        let mut program = Command::new(BIN);
        program.arg("--private").arg(self.file()).arg("--").args(command);
        program.env("M", self.mnt()).env("OUT", self.path("out"));
        // Git and others must not depend on the user of the tests.
        program.env("HOME", self.path("out")).env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
        program
    }

    /// Runs a shell script in the mount; fails the test with all it printed if any command fails.
    pub fn sh(&self, script: &str) -> String {
        succeeded(script, &self.private(&["sh", "-euc", &format!("cd \"$M\"\n{script}")]).output().unwrap())
    }

    /// The same for Python.
    pub fn python(&self, script: &str) -> String {
        let script = format!("import os, sys, errno\nos.chdir(os.environ['M'])\n{script}");
        succeeded(&script, &self.private(&["python3", "-c", &script]).output().unwrap())
    }
}

impl Drop for TestPool {
    /// A test that failed half-way must not leave a mount behind.
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", "-q"]).arg(self.mnt()).stderr(Stdio::null()).status();
    }
}

/// A daemon's mount; gone with the value.
pub struct Mounted {
    pub dir: PathBuf,
}

impl Mounted {
    pub fn new(pool: &TestPool, name: &str, options: &str) -> Mounted {
        let dir = pool.path(name);
        fs::create_dir_all(&dir).unwrap();
        let output = Command::new(BIN).arg(pool.file()).arg(&dir).args(["-o", options]).stdin(Stdio::null()).output();
        succeeded("mount", &output.unwrap());
        Mounted { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new(BIN).args(["--lazy", "--unmount"]).arg(&self.dir).output();
    }
}

/// The kernel's switch for FUSE by io_uring.
const RING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Runs `test` for each transport, with the value of `STRIPEWISE_FUSE_DEVICE` that has a mount use that one and no other.
pub fn by_both_transports(test: impl Fn(&str)) {
    test("1");
    match fs::read_to_string(RING) {
        Ok(text) if text.trim() == "Y" => test("0"),
        Ok(_) => eprintln!("NOT RUN over io_uring: `echo Y > {RING}` as root has the kernel offer it"),
        Err(_) => eprintln!("NOT RUN over io_uring: this kernel has no FUSE over io_uring; Linux 6.14 can have it"),
    }
}

fn open_to_all(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Waits for what another process does in its own time.
pub fn eventually(what: &str, done: impl FnMut() -> bool) {
    eventually_within(Duration::from_secs(60), what, done);
}

/// The same of what takes its time.
pub fn eventually_within(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < limit, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn succeeded(what: &str, output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n--- script\n{what}\n--- stdout\n{out}\n--- stderr\n{err}", output.status);
    out.into_owned()
}

/// Whether the machine has a program; a test that needs one fails with its name.
pub fn need(program: &str) {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    assert!(found.is_ok_and(|status| status.success()), "this test needs `{program}`: install it");
}
