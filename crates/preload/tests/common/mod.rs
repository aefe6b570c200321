//! A pool in a temporary directory, and programs on it in a private mount, with the preload library or without.

#![allow(dead_code, reason = "each test binary uses its part")]

pub mod worker;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use stripewise_layout::{Layout, Pattern, ServerId, Stripe};
use stripewise_store::{Pool, Store};

/// Directory of the binaries built beside this test.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    test.ancestors().nth(2).expect("target/<profile>/deps").to_owned()
}

/// Has cargo bring up to date what it does not build for a test.
fn build(what: &[&str]) {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet"]).args(what);
    if target().ends_with("release") {
        build.arg("--release");
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
    assert!(status.success(), "{what:?} does not build");
}

/// The library and the mount, brought up to date once.
fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        build(&["-p", "stripewise-preload", "-p", "stripewise-mount"]);
        (target().join("libstripewise_preload.so"), target().join("stripewise-mount"))
    })
}

/// The library that is the example `name` of this package.
pub fn example(name: &str) -> PathBuf {
    build(&["-p", "stripewise-preload", "--example", name]);
    target().join(format!("examples/lib{name}.so"))
}

pub fn library() -> &'static Path {
    &built().0
}

pub fn mount_program() -> &'static Path {
    &built().1
}

pub struct TestPool {
    dir: tempfile::TempDir,
    /// Whether its programs run as [`NOBODY`].
    unprivileged: bool,
}

/// The user that programs run as which refuse to run as root.
const NOBODY: u32 = 65534;

impl TestPool {
    /// Three servers, stripes of 4 KiB, so that small files already lie on all of them.
    pub fn new() -> Self {
        Self::of("width = \"4KiB\"", &[("ssd", &["s0", "s1", "s2"])])
    }

    /// Five servers in two tiers. The end of a file's name decides where its bytes go: in regions of odd widths, first
    /// in the inode itself, whole on one server, or striped; so that the files of one program lie in all ways.
    pub fn of_many_layouts() -> Self {
        let pool = Self::of("width = \"7001B\"", &[("hdd", &["s0", "s1", "s2"]), ("ssd", &["s3", "s4"])]);
        let loaded = Pool::load(&pool.path("pool.toml")).expect("a pool");
        let store = Store::open(loaded).expect("a store");
        let regions = layout(&[
            (0, &[(0, 5000), (3, 1777), (1, 12_345)]),
            (30_001, &[(4, 65_536), (2, 4099)]),
            (1_000_003, &[(1, 100_000), (0, 300_001), (2, 8192)]),
        ]);
        let inode_first = layout(&[(0, &[(ServerId::META.0, 1 << 20)]), (16_384, &[(2, 4096), (3, 8192)])]);
        let whole = layout(&[(0, &[(4, 1 << 20)])]);
        for (ends, layout) in [("0abpw", &regions), ("1cdqx", &inode_first), ("2efry", &whole)] {
            for end in ends.chars() {
                let pattern = Pattern::new(&format!("**/*{end}")).expect("a pattern");
                store.set_rule(&pattern, layout).expect("a rule");
            }
        }
        pool
    }

    /// Of the servers of these tiers, with this line in `[default]`.
    fn of(default: &str, tiers: &[(&str, &[&str])]) -> Self {
        // Not a skip: where FUSE is missing nothing below has been shown to work.
        assert!(
            Path::new("/dev/fuse").exists(),
            "/dev/fuse does not exist: these tests mount real file systems (modprobe fuse, or --device /dev/fuse)"
        );
        let pool = Self { dir: tempfile::tempdir().expect("a directory"), unprivileged: false };
        let servers = tiers.iter().flat_map(|(_, servers)| *servers);
        for name in ["mnt", "ns", "out"].iter().chain(servers) {
            std::fs::create_dir(pool.path(name)).expect("a directory");
        }
        let mut text = format!("name = \"test\"\nmount = \"mnt\"\nnamespace = \"ns\"\n[default]\n{default}\n");
        for (name, servers) in tiers {
            text += &format!("[[tier]]\nname = \"{name}\"\nservers = {servers:?}\n");
        }
        std::fs::write(pool.path("pool.toml"), text).expect("a pool file");
        Pool::load(&pool.path("pool.toml")).expect("a pool").prepare().expect("its directories");
        pool
    }

    /// The files are a user's without privileges, and programs run as that user; the mount stays root's. Without root
    /// it is so already.
    pub fn unprivileged(mut self) -> Self {
        if rustix::process::geteuid().is_root() {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(self.dir.path(), open).expect("a mode");
            // Where this checkout lies need not be open to others.
            std::fs::copy(&built().0, self.path("out/lib.so")).expect("a copy");
            let owned = Command::new("chown").args(["-R", &format!("{NOBODY}:{NOBODY}")]).arg(self.dir.path()).status();
            assert!(owned.expect("chown").success());
            self.unprivileged = true;
        }
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program in a mount of its own. `$M` is the mount, `$OUT` a directory beside it, `$LIB` the library;
    /// `STRIPEWISE_POOL`, `STRIPEWISE_MOUNT` and `STRIPEWISE_FILTERS` are set as by `stripewise run`, `LD_PRELOAD` only
    /// with `preload`.
    pub fn command(&self, preload: bool, command: &[&str]) -> Command {
        let (library, mount) = built().clone();
        let library = if self.unprivileged { self.path("out/lib.so") } else { library };
        let mut program = Command::new(mount);
        program.arg("--private").arg(self.path("pool.toml")).arg("--");
        if self.unprivileged {
            program.args(["setpriv", &format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
        }
        // The environment of the tests may have a preload of its own, as stdbuf does.
        program.args(["env", "-u", "LD_PRELOAD"]);
        if preload {
            program.arg(format!("LD_PRELOAD={}", library.display()));
        }
        program.args(command);
        program.env("M", self.path("mnt")).env("OUT", self.path("out")).env("LIB", library);
        program.env("STRIPEWISE_POOL", self.path("pool.toml")).env("STRIPEWISE_MOUNT", self.path("mnt"));
        program.env("STRIPEWISE_FILTERS", filters());
        program.env("HOME", self.path("out")).env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
        program.current_dir(self.path("out"));
        program
    }

    /// Runs a shell script in the mount, under the library or without it.
    pub fn script(&self, preload: bool, script: &str) -> String {
        let script = format!("cd \"$M\"\n{script}");
        succeeded(&script, &self.command(preload, &["sh", "-euc", &script]).output().expect("sh"))
    }

    /// Runs a shell script in the mount, under the library.
    pub fn sh(&self, script: &str) -> String {
        self.script(true, script)
    }

    /// Runs a Python script with the mount as its directory.
    pub fn python(&self, preload: bool, script: &str) -> String {
        let script = format!("import os, sys\nos.chdir(os.environ['M'])\n{script}");
        succeeded(&script, &self.command(preload, &[python(), "-c", &script]).output().expect("python3"))
    }
}

/// How many seccomp filters this test runs under.
fn filters() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let count = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    count.expect("these tests need Linux 5.9 or newer").trim().to_owned()
}

/// A layout of regions: offset, then servers and widths in bytes.
fn layout(regions: &[(u64, &[(u16, u64)])]) -> Layout {
    let stripe = |&(server, width_bytes): &(u16, u64)| Stripe { server: ServerId(server), width_bytes };
    let regions = regions.iter().map(|(offset, round)| (*offset, round.iter().map(stripe).collect::<Vec<_>>()));
    Layout::new(regions).expect("a layout")
}

/// Whether the long variants are wanted.
pub fn long() -> bool {
    std::env::var_os("STRIPEWISE_TEST_LONG").is_some()
}

/// Makes two tests of each function: with `false` on the mount, with `true` under the library.
#[allow(unused_macros, reason = "each test binary uses its part")]
macro_rules! both_ways {
    ($($name:ident),* $(,)?) => {
        mod on_the_mount { $( #[test] fn $name() { super::$name(false) } )* }
        mod under_the_library { $( #[test] fn $name() { super::$name(true) } )* }
    };
}
#[allow(unused_imports, reason = "each test binary uses its part")]
pub(crate) use both_ways;

/// Whether the machine has a program; a test that needs one fails with its name.
pub fn need(program: &str) {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    assert!(found.is_ok_and(|status| status.success()), "this test needs `{program}`: install it");
}

/// Waits for what another process does in its own time.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(begin.elapsed() < std::time::Duration::from_secs(120), "{what} did not come about");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The interpreter itself: `python3` may be a script that starts others.
pub fn python() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        let found = found.expect("these tests need python3");
        String::from_utf8(found.stdout).expect("a path").trim().to_owned()
    })
}

impl Drop for TestPool {
    /// A test that failed half-way must not leave a mount behind.
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", "-q"]).arg(self.path("mnt")).stderr(Stdio::null()).status();
    }
}

pub fn succeeded(what: &str, output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n--- script\n{what}\n--- stdout\n{out}\n--- stderr\n{err}", output.status);
    out.into_owned()
}

/// Compiles the C program `source` of this directory to `out`.
pub fn compile(source: &str, out: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let status = Command::new("cc")
        .args(["-O1", "-w", "-D_GNU_SOURCE", "-pthread", "-o"])
        .arg(out)
        .arg(&source)
        .arg("-lutil")
        .arg("-lrt")
        .status();
    assert!(status.expect("these tests need a C compiler").success(), "{} does not compile", source.display());
}

type Lists = std::collections::BTreeMap<String, Vec<String>>;

/// The lists of `symbols.toml`, by class.
pub fn symbols() -> Lists {
    let mut classes = symbols_file();
    classes.remove("not-tried").expect("a table of functions that are not tried");
    classes.try_into().expect("lists of functions")
}

/// Functions that no program tries, by the reason.
pub fn not_tried() -> Lists {
    symbols_file().remove("not-tried").expect("a table").try_into().expect("lists of functions")
}

fn symbols_file() -> toml::Table {
    toml::from_str(include_str!("../../symbols.toml")).expect("symbols.toml")
}
