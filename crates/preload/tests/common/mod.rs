//! A pool in a temporary directory, and programs on it in a private mount, with the preload library or without.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use stripewise_store::Pool;

/// Directory of the binaries built beside this test.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    test.ancestors().nth(2).expect("target/<profile>/deps").to_owned()
}

/// The library and the mount, brought up to date once: cargo does not build other packages' binaries for a test.
fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "stripewise-preload", "-p", "stripewise-mount"]);
        if target().ends_with("release") {
            build.arg("--release");
        }
        let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo");
        assert!(status.success(), "the mount and the library do not build");
        (target().join("libstripewise_preload.so"), target().join("stripewise-mount"))
    })
}

pub fn library() -> &'static Path {
    &built().0
}

pub fn mount_program() -> &'static Path {
    &built().1
}

pub struct TestPool {
    dir: tempfile::TempDir,
}

impl TestPool {
    /// Three servers, stripes of 4 KiB, so that small files already lie on all of them.
    pub fn new() -> Self {
        // Not a skip: where FUSE is missing nothing below has been shown to work.
        assert!(
            Path::new("/dev/fuse").exists(),
            "/dev/fuse does not exist: these tests mount real file systems (modprobe fuse, or --device /dev/fuse)"
        );
        let pool = Self { dir: tempfile::tempdir().expect("a directory") };
        for name in ["mnt", "ns", "s0", "s1", "s2", "out"] {
            std::fs::create_dir(pool.path(name)).expect("a directory");
        }
        let text = "name = \"test\"\nmount = \"mnt\"\nnamespace = \"ns\"\n[default]\nwidth = \"4KiB\"\n\
                    [[tier]]\nname = \"ssd\"\nservers = [\"s0\", \"s1\", \"s2\"]\n";
        std::fs::write(pool.path("pool.toml"), text).expect("a pool file");
        Pool::load(&pool.path("pool.toml")).expect("a pool").prepare().expect("its directories");
        pool
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program in a mount of its own. `$M` is the mount, `$OUT` a directory beside it, `$LIB` the library;
    /// `STRIPEWISE_POOL` and `STRIPEWISE_MOUNT` are set as by `stripewise run`, `LD_PRELOAD` only with `preload`.
    pub fn command(&self, preload: bool, command: &[&str]) -> Command {
        let mut program = Command::new(&built().1);
        program.arg("--private").arg(self.path("pool.toml")).arg("--").arg("env");
        if preload {
            program.arg(format!("LD_PRELOAD={}", library().display()));
        }
        program.args(command);
        program.env("M", self.path("mnt")).env("OUT", self.path("out")).env("LIB", library());
        program.env("STRIPEWISE_POOL", self.path("pool.toml")).env("STRIPEWISE_MOUNT", self.path("mnt"));
        program.env("HOME", self.path("out")).env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
        program
    }

    /// Runs a shell script in the mount, under the library.
    pub fn sh(&self, script: &str) -> String {
        let script = format!("cd \"$M\"\n{script}");
        succeeded(&script, &self.command(true, &["sh", "-euc", &script]).output().expect("sh"))
    }

    /// Runs a Python script with the mount as its directory.
    pub fn python(&self, preload: bool, script: &str) -> String {
        let script = format!("import os, sys\nos.chdir(os.environ['M'])\n{script}");
        succeeded(&script, &self.command(preload, &[python(), "-c", &script]).output().expect("python3"))
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
