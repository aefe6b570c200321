//! Suites of others, run where `make suites` has put them: on the mount everything passes that passes on the file system
//! of the namespace.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{BIN, Mounted, TestPool, need, succeeded};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suites");
const EXCLUSIONS: &str = include_str!("suites/exclusions.txt");
/// Stressors of stress-ng that check what they read.
const STRESSORS: &str = "access chdir chmod chown copy-file dentry dir dirdeep dirmany fallocate fcntl fiemap filename \
                         flock fpunch getdent hdd iomix lease link locka lockf lockofd mknod mmap open readahead \
                         rename seek sendfile splice symlink sync-file tee touch utime xattr";

/// A program of a suite.
fn suite(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/suites/bin").join(name);
    assert!(path.exists(), "this test needs {name} in {}: run `make suites`, which gets it", path.display());
    path
}

/// How much longer than in continuous integration: `STRIPEWISE_SUITES_FACTOR=100`.
fn factor() -> usize {
    std::env::var("STRIPEWISE_SUITES_FACTOR").map_or(1, |factor| factor.parse().unwrap())
}

/// What pjdfstest says of each of its tests: `ok`, `skipped` or `FAILED`, and all it printed. With `read_only` only its
/// tests of a file system that is read-only.
fn pjdfstest(dir: &Path, out: &Path, read_only: bool) -> (BTreeMap<String, String>, String) {
    std::fs::create_dir(dir).unwrap();
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = std::fs::read_to_string(format!("{HERE}/pjdfstest.toml")).unwrap();
    std::fs::write(out.join("pjdfstest.toml"), config.replace("ALLOW_REMOUNT", &read_only.to_string())).unwrap();
    // It mounts the file system read-only and back, for which mount(8) wants its helper.
    let helper = "sbin=$(realpath /sbin); mkdir \"$OUT/own\" \"$OUT/sbin\"; mount --bind \"$sbin\" \"$OUT/own\"
        cp -as \"$OUT/own/.\" \"$OUT/sbin/\"; ln -sf \"$BIN\" \"$OUT/sbin/mount.fuse.stripewise\"
        mount --bind \"$OUT/sbin\" \"$sbin\"";
    let (helper, tests) = if read_only { (helper, "erofs") } else { ("", "") };
    let script = format!("{helper}\nexec \"$SUITE\" -c \"$OUT/pjdfstest.toml\" -p \"$DIR\" {tests}");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", &script]).stdin(Stdio::null());
    command.env("SUITE", suite("pjdfstest")).env("DIR", dir).env("OUT", out).env("BIN", BIN);
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let results = text.lines().filter_map(|line| {
        let (name, result) = line.rsplit_once(' ')?;
        let known = ["ok", "skipped", "FAILED"].contains(&result) && name.contains("::");
        known.then(|| (name.trim().to_owned(), result.to_owned()))
    });
    (results.collect(), text)
}

#[test]
fn pjdfstest_passes_what_the_namespaces_file_system_passes() {
    assert!(rustix::process::geteuid().is_root(), "pjdfstest acts as several users: run this test as root");
    let pool = TestPool::new();
    std::fs::set_permissions(pool.path("."), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mounted = Mounted::new(&pool, "mnt", "dev,suid");
    let (bare, _) = pjdfstest(&pool.path("bare"), &pool.path("out"), false);
    let (ours, said) = pjdfstest(&mounted.path("ours"), &pool.path("out"), false);
    let passed = |results: &BTreeMap<String, String>| results.values().filter(|result| *result == "ok").count();
    assert!(passed(&bare) > 350, "{bare:#?}");
    let excluded = |name: &str| EXCLUSIONS.lines().any(|line| line.starts_with(&format!("pjdfstest\t{name}\t")));
    let worse = bare.iter().filter(|(name, result)| *result == "ok" && ours.get(*name).is_none_or(|ours| ours != "ok"));
    let worse: Vec<_> = worse.filter(|(name, _)| !excluded(name)).collect();
    assert!(worse.is_empty(), "{worse:#?}\n{said}");
    // In a process of their own: some of the others leave files open for writing.
    let (read_only, said) = pjdfstest(&mounted.path("ro"), &pool.path("out"), true);
    assert!(passed(&read_only) > 10 && passed(&read_only) == read_only.len(), "{read_only:#?}\n{said}");
}

fn fsx(dir: &Path, out: &Path, seed: usize, operations: usize) -> Output {
    let mut command = Command::new(suite("fsx"));
    command.args(["-q", "-f", &format!("{HERE}/fsx.toml"), "-S", &seed.to_string(), "-N", &operations.to_string()]);
    command.arg("-P").arg(out).arg(dir.join(format!("fsx{seed}"))).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn fsx_on_striped_files_and_on_those_the_kernel_serves() {
    // Stripes of a page, so that each request has many; and one server, so that the kernel serves the file itself.
    let all = &["s0", "s1", "s2"][..];
    for (seed, width, servers, options) in [
        (1, "4KiB", all, "noatime"),
        (2, "16KiB", &["s0", "s1"], "noatime"),
        (3, "1MiB", &["s0"], "noatime"),
        (4, "4KiB", all, "writeback_cache"),
        (5, "1MiB", &["s0"], "writeback_cache"),
    ] {
        let pool = TestPool::with(width, servers);
        let mounted = Mounted::new(&pool, "mnt", options);
        for round in 0..factor() {
            let seed = seed + 10 * round;
            succeeded(&format!("fsx, seed {seed}, {width}"), &fsx(&mounted.dir, &pool.path("out"), seed, 400));
        }
    }
}

#[test]
fn stress_ng_verifies_what_it_reads() {
    need("stress-ng");
    let pool = TestPool::new();
    let mounted = Mounted::new(&pool, "mnt", "noatime");
    let mut command = Command::new("stress-ng");
    command.args(["--verify", "--quiet", "--timeout", &format!("{}s", 4 * factor()), "--temp-path"]);
    command.arg(&mounted.dir).stdin(Stdio::null());
    for stressor in STRESSORS.split_whitespace() {
        command.args([&format!("--{stressor}"), "1"]);
    }
    succeeded("stress-ng", &command.output().unwrap());
}

#[test]
fn every_exclusion_has_a_reason() {
    for line in EXCLUSIONS.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<_> = line.split('\t').collect();
        assert!(
            fields.len() == 3 && fields[2].len() > 20,
            "{line:?} should be a suite, a test and a reason, with tabs"
        );
    }
}
