//! The Linux Test Project, where `LTPROOT` names an installed one: on the mount every test passes that passes on the file
//! system of the namespace.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{BIN, Mounted, TestPool, need};

const LIST: &str = include_str!("suites/ltp.txt");
const EXCLUSIONS: &str = include_str!("suites/exclusions.txt");
/// Seconds that one test may take; nearly all take less than one.
const LIMIT_SECONDS: &str = "180";

/// Some tests make a file system on a device. They are told that it is of a type which the kernel does not know, so that
/// they call these: `making` empties the directory or pool that stands for the device, `mounting` brings it to `$1`, with
/// the option `$2`.
struct Device {
    making: String,
    mounting: String,
}

impl Device {
    const TYPE: &str = "ntfs";

    fn plain(dir: &Path) -> Device {
        let dir = dir.display();
        let mounting = format!(
            "mount --bind '{dir}' \"$1\"
            [ \"$2\" != ro ] || mount -o remount,bind,ro \"$1\""
        );
        Device { making: format!("find '{dir}' -mindepth 1 -delete; chmod 755 '{dir}'"), mounting }
    }

    fn pool(pool: &TestPool) -> Device {
        let (file, dir) = (pool.file(), pool.mnt());
        let (mount, dir) = (format!("'{BIN}' '{}'", file.display()), dir.display());
        Device {
            making: format!("{mount} '{dir}'; find '{dir}' -mindepth 1 -delete; chmod 755 '{dir}'; umount '{dir}'"),
            mounting: format!("{mount} \"$1\" -o dev,suid,$2"),
        }
    }

    /// Writes the programs into a directory.
    fn install(&self, dir: &Path) {
        fs::create_dir(dir).unwrap();
        let options = "option=rw; [ \"$1\" != -o ] || { option=$2; shift 2; }; set -- \"$2\" \"$option\"";
        for (program, script) in [("mkfs", self.making.clone()), ("mount", format!("{options}\n{}", self.mounting))] {
            let path = dir.join(format!("{program}.{}", Device::TYPE));
            fs::write(&path, format!("#!/bin/sh\nset -eu\n{script}\n")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

/// Where tests are run.
struct Place {
    root: PathBuf,
    /// What they make their files in.
    dir: PathBuf,
    /// Programs that come before the system's.
    programs: PathBuf,
}

/// What a test said.
struct Said {
    status: Option<i32>,
    passed: usize,
    text: String,
}

impl Place {
    fn run(&self, name: &str, command: &str) -> Said {
        let dir = self.dir.join(name);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        let mut path = OsString::from(&self.programs);
        for more in [self.root.join("testcases/bin").into(), std::env::var_os("PATH").unwrap()] {
            path.push(":");
            path.push(more);
        }
        // To a file: a process that is left behind must not keep us waiting.
        let log = self.programs.with_extension("log");
        let (out, err) = (fs::File::create(&log).unwrap(), fs::File::options().append(true).open(&log).unwrap());
        let mut program = Command::new("timeout");
        program.args(["--signal=INT", "--kill-after=10", LIMIT_SECONDS, "sh", "-c"]);
        // Some open as many files as they may, and the mount, which has two for each, may have no more than they.
        program
            .arg(format!("ulimit -n 1024; {command}"))
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err);
        program.env("LTPROOT", &self.root).env("TMPDIR", &dir).env("PATH", path);
        program.env("LTP_COLORIZE_OUTPUT", "0").env("LTP_FORCE_SINGLE_FS_TYPE", Device::TYPE);
        let status = program.status().unwrap().code();
        let text = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
        let passed = text.lines().filter(|line| line.contains("TPASS")).count();
        // A test that was stopped may have left a mount.
        let _ = fs::remove_dir_all(&dir);
        Said { status, passed, text }
    }
}

/// The commands of the tests in `LIST` (lines of a file of `runtest` and names in it), by their names.
fn commands(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in LIST.lines().filter(|line| !line.starts_with('#')) {
        let (file, names) = line.split_once(':').expect("a file and names");
        let text = fs::read_to_string(root.join("runtest").join(file)).expect("LTPROOT has lists of tests in runtest");
        let known: BTreeMap<_, _> = text.lines().filter_map(|line| line.split_once(char::is_whitespace)).collect();
        // One that another version does not have is none that fails here.
        let wanted =
            names.split_whitespace().filter_map(|name| Some((name.to_owned(), known.get(name)?.trim().to_owned())));
        found.extend(wanted);
    }
    found
}

fn excluded(name: &str) -> bool {
    EXCLUSIONS.lines().any(|line| line.starts_with(&format!("ltp\t{name}\t")))
}

#[test]
fn the_linux_test_project_passes_what_the_namespaces_file_system_passes() {
    let Some(root) = std::env::var_os("LTPROOT").map(PathBuf::from) else {
        // Past the test runner, which shows nothing of tests that pass.
        let _ = writeln!(std::io::stderr(), "skipped: LTPROOT names no Linux Test Project, see docs/suites.md");
        return;
    };
    assert!(
        rustix::process::geteuid().is_root(),
        "the Linux Test Project acts as several users: run this test as root"
    );
    need("timeout");
    let (pool, device) = (TestPool::new(), TestPool::new());
    for path in [pool.path("."), pool.path("out"), device.path(".")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mounted = Mounted::new(&pool, "mnt", "dev,suid");
    let places = [
        ("bare", pool.path("out/bare"), Device::plain(&device.path("out"))),
        ("ours", mounted.path("ours"), Device::pool(&device)),
    ];
    let [bare, ours] = places.map(|(name, dir, device)| {
        let programs = pool.path("out").join(format!("programs-{name}"));
        device.install(&programs);
        fs::create_dir(&dir).unwrap();
        Place { root: root.clone(), dir, programs }
    });
    let (mut passed, mut worse) = (0, Vec::new());
    for (name, command) in commands(&root) {
        if excluded(&name) {
            continue;
        }
        let wanted = bare.run(&name, &command);
        if wanted.status != Some(0) {
            continue;
        }
        let found = ours.run(&name, &command);
        if found.status == Some(0) && found.passed >= wanted.passed {
            passed += 1;
        } else {
            worse.push(format!("{name}: {} of {} passed\n{}", found.passed, wanted.passed, found.text));
        }
    }
    let _ =
        writeln!(std::io::stderr(), "{passed} tests of the Linux Test Project pass on both, {} do not", worse.len());
    assert!(worse.is_empty(), "{}", worse.join("\n"));
    assert!(passed > 300, "{passed} only");
}
