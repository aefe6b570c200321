//! What a disk lost: programs get an error through the mount and not zeros, with the server's name in the log, and a scrub
//! names the bytes that a disk cannot read.

mod common;

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use common::faulty::Faulty;
use common::{TestPool, succeeded};
use stripewise_store::Pool;
use stripewise_store::fsck::{CheckFinding, CheckOptions, CheckReport, DamageKind, FindingOutcome, check};

fn scrub(pool: &TestPool) -> (CheckReport, Vec<CheckFinding>) {
    let told = Mutex::new(Vec::new());
    let options = CheckOptions { scrub: true, ..CheckOptions::default() };
    let report = check(&Pool::load(&pool.file()).unwrap(), &options, &told).unwrap();
    (report, told.into_inner().unwrap())
}

fn cut_to_half(path: &Path) -> u64 {
    let half = fs::metadata(path).unwrap().len() / 2;
    OpenOptions::new().write(true).open(path).unwrap().set_len(half).unwrap();
    half
}

/// Reads block by block, and then all that `cp` and a map give.
const READ: &str = r#"
import mmap, os, subprocess
os.chdir(os.environ['M'])
fd = os.open('f', os.O_RDONLY)
size, good = os.fstat(fd).st_size, []
for block in range(0, size, 1024):
    try:
        data = os.pread(fd, 1024, block)
        assert data == b'a' * 1024, (block, data[:20])
        good.append(block)
    except OSError as error:
        assert error.errno == 5, error
print(len(good), size // 1024)
for command in (['cp', 'f', 'copy'], ['cp', '--sparse=always', 'f', 'copy'], ['cat', 'f']):
    done = subprocess.run(command, capture_output=True)
    assert done.returncode != 0 and b'Input/output error' in done.stderr, (command, done.stderr)
"#;

#[test]
fn lost_bytes_are_errors_and_the_log_names_the_server() {
    // Over three servers, and in one datafile, which the kernel may serve itself.
    for servers in [&["s0", "s1", "s2"][..], &["s0"][..]] {
        let pool = TestPool::with("4KiB", servers);
        pool.sh("head -c 98304 /dev/zero | tr '\\0' a > f");
        let path = pool.datafiles().into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
        let server = path.ancestors().nth(2).unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let lost = fs::metadata(&path).unwrap().len() - cut_to_half(&path);
        let output = pool.private(&["python3", "-c", READ]).output().unwrap();
        let said = succeeded("reading", &output);
        let of_server = format!("server hdd.{} ends at byte", servers.iter().position(|s| **s == server).unwrap());
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(log.contains(&of_server), "{log}");
        assert_eq!(said.trim(), format!("{} 96", 96 - lost / 1024));
    }
}

#[test]
fn a_scrub_names_what_a_disk_cannot_read() {
    let pool = TestPool::new();
    pool.sh("head -c 3000000 /dev/zero | tr '\\0' a > f; echo short > g");
    fs::rename(pool.path("s1"), pool.path("below")).unwrap();
    fs::create_dir(pool.path("s1")).unwrap();
    let server = Faulty::mount(&pool.path("below"), &pool.path("s1"));
    let (report, told) = scrub(&pool);
    assert!(report.is_clean(), "{told:?}");
    assert!(report.read_bytes >= 3_000_000);
    // Of the only datafile on that server that reaches so far. Reads fail by pages.
    server.set(|faults| faults.bad = Some(500_001..500_002));
    let (report, told) = scrub(&pool);
    assert_eq!(report.exit_code(), 4);
    let [finding] = &told[..] else { panic!("{told:?}") };
    assert_eq!((finding.kind, finding.outcome), (DamageKind::UnreadableBytes, FindingOutcome::Left));
    assert_eq!(finding.path, Some(PathBuf::from("f")));
    assert_eq!(finding.server.as_deref(), Some("hdd.1"));
    let page = 500_001 / 4096 * 4096;
    assert!(finding.what.starts_with(&format!("from byte {page} of it on, bytes ")), "{finding:?}");
    // The stripes of three servers take turns, each of a page.
    let lost = page * 3 + 4096;
    assert_eq!(finding.lost, [(lost, lost + 4096)]);
    assert!(finding.what.contains("(4096 in all)"), "{finding:?}");
    server.set(|faults| faults.bad = Some(400_000..u64::MAX));
    let (_, told) = scrub(&pool);
    let bad: Vec<_> = told.iter().filter(|finding| finding.kind == DamageKind::UnreadableBytes).collect();
    assert_eq!(bad.len(), 1, "{told:?}");
    assert!(bad[0].what.contains("up to"), "{told:?}");
    server.well();
    assert!(scrub(&pool).0.is_clean());
}
