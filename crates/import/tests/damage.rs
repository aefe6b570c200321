//! Real logs of every format, cut at up to 50 places and with each of up to 1,000 bytes flipped: imported or refused with words, in
//! bounded memory.
//!
//! Of large logs fewer copies are made, so that all take about the same time. The long run, a thousand of each:
//! `STRIPEWISE_DAMAGE_FLIPS=1000 cargo test -p stripewise-import --test damage`.

mod common;

use common::{damage, test_data, wheel_logs};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use stripewise_import::{Log, importer_of, open, write_csv};

/// Counts what is allocated.
struct Counting;

static NOW_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW_BYTES.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK_BYTES.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What an import may need: rows of a record of counters twice, or names; not what a log claims to hold.
const MOST_BYTES: usize = 256 << 20;

/// Bytes of copies with a flipped byte that are imported of one log.
const FLIPPED_BYTES: usize = 3 << 20;

/// How many bytes are flipped, one at a time, in a log of that length.
fn flips(bytes: usize) -> usize {
    match std::env::var("STRIPEWISE_DAMAGE_FLIPS") {
        Ok(count) => count.parse().expect("STRIPEWISE_DAMAGE_FLIPS is a number"),
        Err(_) => (FLIPPED_BYTES / bytes).clamp(25, 500),
    }
}

/// Damages a log and checks the memory of it, a worker a processor.
fn survives_all(path: &Path) {
    let log = Log::open(path).unwrap();
    let importer = importer_of(&log).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let before = NOW_BYTES.load(Ordering::Relaxed);
    PEAK_BYTES.store(before, Ordering::Relaxed);
    let cuts = (8 * FLIPPED_BYTES / bytes.len()).clamp(12, 50);
    damage(importer, &bytes, cuts, flips(bytes.len()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let peak = PEAK_BYTES.load(Ordering::Relaxed) - before;
    assert!(peak < MOST_BYTES * workers, "{}: {peak} bytes for {workers} at a time", path.display());
}

/// One test, for memory is counted for the whole process.
#[test]
fn real_logs_survive_flips_and_cuts_in_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut logs: Vec<PathBuf> = wheel_logs().into_values().collect();
    if let Some(data) = test_data() {
        logs.extend(std::fs::read_dir(data.join("darshan")).unwrap().map(|entry| entry.unwrap().path()));
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    logs.extend(["dftracer-python.pfw", "dftracer-python.strace"].map(|name| data.join(name)));
    let packed = dir.path().join("dftracer-python.pfw.gz");
    let run = Command::new("gzip").arg("-c").arg(data.join("dftracer-python.pfw")).output().expect("gzip is installed");
    std::fs::write(&packed, run.stdout).unwrap();
    let iolog = dir.path().join("iolog");
    let run = Command::new("fio")
        .current_dir(dir.path())
        .args(["--name=job", "--size=1m", "--rw=randrw", "--bs=8k", "--ioengine=psync", "--write_iolog=iolog"])
        .output()
        .expect("fio is installed");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let csv = dir.path().join("log.csv");
    let python = open(&data.join("dftracer-python.pfw"), &mut |_, _| ControlFlow::Continue(())).unwrap();
    write_csv(&python.trace, std::fs::File::create(&csv).unwrap()).unwrap();
    logs.extend([packed, iolog, csv]);
    // The same log under two names is one.
    let mut different = BTreeMap::new();
    for log in logs {
        different.entry(std::fs::read(&log).unwrap()).or_insert(log);
    }
    assert!(different.len() >= 14, "{different:?}");
    different.values().for_each(|log| survives_all(log));
}
