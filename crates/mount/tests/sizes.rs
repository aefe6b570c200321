//! Large numbers of everything, small enough for each run; `python -m benches sizes` has them in full.

mod common;

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{BIN, Mounted, TestPool, eventually, succeeded};
use stripewise_layout::{Layout, Pattern, ServerId, Stripe};
use stripewise_store::{Pool, Store};

/// A mount whose server may have few open files; gone with the value.
struct Limited {
    server: Child,
    mount: Mounted,
}

impl Limited {
    const DESCRIPTORS: u64 = 1024;

    fn new(pool: &TestPool) -> Limited {
        Limited::to(pool, Some(Self::DESCRIPTORS))
    }

    /// With that many open files at most, or with as many as the machine gives.
    fn to(pool: &TestPool, descriptors: Option<u64>) -> Limited {
        let mut command = Command::new(BIN);
        command.arg("--foreground").arg(pool.file()).arg(pool.mnt()).stdin(Stdio::null());
        // SAFETY: only system calls between fork and exec, on values that live on the stack.
        unsafe {
            command.pre_exec(move || {
                let Some(descriptors) = descriptors else { return Ok(()) };
                // Root would raise the limit again; others have nothing to give up.
                libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0);
                let limit = libc::rlimit { rlim_cur: descriptors, rlim_max: descriptors };
                if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let server = command.spawn().unwrap();
        let limited = Limited { server, mount: Mounted { dir: pool.mnt() } };
        let below = fs::metadata(pool.file()).unwrap().dev();
        eventually("the mount", || fs::metadata(pool.mnt()).is_ok_and(|found| found.dev() != below));
        limited
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.server.id())).unwrap().count()
    }
}

impl Limited {
    /// The most memory that the server had at a time.
    fn peak_memory_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

/// Linux, `include/uapi/linux/capability.h`.
const CAP_SYS_RESOURCE: libc::c_ulong = 24;

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = Command::new(BIN).args(["--lazy", "--unmount"]).arg(&self.mount.dir).output();
        // It ends with its mount; a test that failed half-way must not wait for it.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Whether the kernel can be asked to drop inodes (Linux 6.18).
fn kernel_prunes() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    version >= (6, 18)
}

#[test]
fn a_tree_of_more_files_than_descriptors_can_be_walked() {
    if !kernel_prunes() {
        eprintln!("skipped: before Linux 6.18 every inode that the kernel knows needs a descriptor");
        return;
    }
    let pool = TestPool::new();
    let limited = Limited::new(&pool);
    for dir in 0..4 {
        let dir = pool.mnt().join(format!("d{dir}"));
        fs::create_dir(&dir).unwrap();
        for number in 0..700 {
            fs::write(dir.join(format!("f{number}")), format!("{number}")).unwrap();
        }
    }
    for _ in 0..2 {
        let output = Command::new("du").args(["--inodes", "-s"]).arg(pool.mnt()).output().unwrap();
        let text = succeeded("du", &output);
        assert_eq!(text.split_whitespace().next(), Some("2805"));
    }
    assert_eq!(fs::read_to_string(pool.mnt().join("d0/f699")).unwrap(), "699");
    eventually("three quarters of the descriptors at most, and those for its own work", || {
        limited.descriptors() <= 860
    });
}

/// What is in use stays: open files, the directory a program is in.
#[test]
fn what_is_in_use_outlives_a_walk_with_few_descriptors() {
    if !kernel_prunes() {
        eprintln!("skipped: before Linux 6.18 every inode that the kernel knows needs a descriptor");
        return;
    }
    let pool = TestPool::new();
    let _limited = Limited::new(&pool);
    let script = "mkdir -p in/here many; echo kept > in/here/open; exec 3< in/here/open; rm in/here/open; cd in/here
        for i in $(seq 1500); do echo > ../../many/$i; done; for i in 1 2; do ls -l ../../many > /dev/null; done
        test \"$(pwd -P)\" = \"$M/in/here\"; cat <&3; echo x > new; cat new";
    let output = Command::new("sh")
        .args(["-euc", &format!("cd \"$M\"\n{script}")])
        .env("M", fs::canonicalize(pool.mnt()).unwrap())
        .output()
        .unwrap();
    assert_eq!(succeeded(script, &output), "kept\nx\n");
}

fn names(number: usize) -> Vec<String> {
    (0..number).map(|server| format!("s{server}")).collect()
}

#[test]
fn a_sparse_file_of_a_terabyte_on_64_servers() {
    let names = names(64);
    let pool = TestPool::with("64KiB", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let mounted = Mounted::new(&pool, "mnt", "nopassthrough");
    let path = mounted.path("sparse");
    const TERABYTE: u64 = 1 << 40;
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(b"end", TERABYTE - 3).unwrap();
    let everywhere: Vec<u8> = (0..64 * (64 << 10)).map(|at: u32| (at >> 16) as u8).collect();
    file.write_all_at(&everywhere, TERABYTE / 2).unwrap();
    assert_eq!(file.metadata().unwrap().len(), TERABYTE);
    let mut found = vec![1; everywhere.len()];
    file.read_exact_at(&mut found, TERABYTE / 2).unwrap();
    assert!(found == everywhere);
    file.read_exact_at(&mut found, TERABYTE / 4).unwrap();
    assert!(found.iter().all(|byte| *byte == 0));
    file.set_len(TERABYTE / 2 + 1).unwrap();
    drop(file);
    assert_eq!(fs::metadata(&path).unwrap().len(), TERABYTE / 2 + 1);
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_with_a_thousand_regions() {
    let pool = TestPool::new();
    let store = Store::open(Pool::load(&pool.file()).unwrap()).unwrap();
    const REGION_BYTES: u64 = 10_000;
    let regions = (0..1000_u64).map(|number| {
        let stripe = |server: u64, width_bytes| Stripe { server: ServerId((server % 3) as u16), width_bytes };
        (number * REGION_BYTES, vec![stripe(number, 1000 + number), stripe(number + 1, 333)])
    });
    store.set_rule(&Pattern::new("many").unwrap(), &Layout::new(regions).unwrap()).unwrap();
    let mounted = Mounted::new(&pool, "mnt", "");
    let path = mounted.path("many");
    let content: Vec<u8> = (0..1001 * REGION_BYTES).map(|at| (at * 31 / 7) as u8).collect();
    fs::write(&path, &content).unwrap();
    assert!(fs::read(&path).unwrap() == content);
    assert_eq!(fs::metadata(&path).unwrap().len(), content.len() as u64);
    File::options().write(true).open(&path).unwrap().set_len(12_345).unwrap();
    assert!(fs::read(&path).unwrap() == content[..12_345]);
}

#[test]
fn a_large_directory_lists_every_name_once() {
    const FILES: usize = 5000;
    let pool = TestPool::new();
    let mounted = Mounted::new(&pool, "mnt", "");
    let dir = mounted.path("large");
    fs::create_dir(&dir).unwrap();
    for number in 0..FILES {
        File::create(dir.join(format!("a name of some length {number}"))).unwrap();
    }
    let list = |dir: &Path| {
        let names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        (names.len(), names.into_iter().collect::<HashSet<_>>().len())
    };
    assert_eq!(list(&dir), (FILES, FILES));
    fs::remove_dir_all(&dir).unwrap();
    assert!(!dir.exists());
}

/// `python -m benches small-programs` does the same with 100,000 files, and `sizes` with as many names in each of ten directories.
#[test]
fn a_tree_of_many_small_files_is_made_listed_read_and_removed_with_bounded_memory() {
    const MOST_BYTES: u64 = 256 << 20;
    let count = if std::env::var_os("STRIPEWISE_LONG_TESTS").is_some() { 30_000 } else { 10_000 };
    let pool = TestPool::new();
    pool.hint("small=4K");
    let mounted = Limited::to(&pool, None);
    let (tree, large) = (pool.mnt().join("tree"), pool.mnt().join("tree/large"));
    fs::create_dir_all(&large).unwrap();
    let before = mounted.peak_memory_bytes();
    let name = |number: usize| format!("a name of some length {number}");
    let content = |number: usize| format!("{number} ").repeat(10);
    for number in 0..count {
        fs::write(large.join(name(number)), content(number)).unwrap();
    }
    for _ in 0..2 {
        let found: HashSet<_> = fs::read_dir(&large).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(fs::read_dir(&large).unwrap().count(), count, "each once");
        assert!((0..count).all(|number| found.contains(std::ffi::OsStr::new(&name(number)))));
    }
    // `tar` reads all of them.
    for number in (0..count).step_by(10) {
        assert_eq!(fs::read_to_string(large.join(name(number))).unwrap(), content(number));
    }
    let packed = Command::new("tar").arg("-cf").arg(pool.path("out/tree.tar")).arg("-C").arg(&tree).arg(".").output();
    succeeded("tar", &packed.unwrap());
    let listed = Command::new("tar").arg("-tf").arg(pool.path("out/tree.tar")).output().unwrap();
    assert_eq!(succeeded("tar", &listed).lines().filter(|line| line.contains("length")).count(), count);
    fs::remove_dir_all(&tree).unwrap();
    let peak = mounted.peak_memory_bytes();
    eprintln!("{count} files: {peak} bytes at most, {before} before");
    assert!(peak <= MOST_BYTES, "{peak}");
}
