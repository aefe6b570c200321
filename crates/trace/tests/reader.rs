//! Reading: what was recorded comes back, and nothing damaged is taken for a trace or brings the reader down.

use proptest::prelude::*;
use std::path::Path;
use stripewise_trace::{
    AccessTotals, Api, Operation, PROCESS_FILE_SUFFIX, ProcessInfo, Record, Recorder, Trace, TraceError, WrappedCall,
    flags, merge, summarise,
};

fn record_run(dir: &Path) {
    for rank in [1, 0] {
        let info = ProcessInfo { program: b"solver", rank, command: b"solver\0input" };
        let recorder = Recorder::create(dir, &info).expect("a recorder");
        let shared = recorder.file_id(b"/data/shared");
        let own = recorder.file_id(format!("/data/rank.{rank}").as_bytes());
        let mut at = 1_000 * u64::from(rank);
        let mut put = |file, api, op, offset, size, flags| {
            recorder.record(&WrappedCall { file, api, op, offset, size, start_ns: at, end_ns: at + 500, flags });
            at += 1_000;
        };
        put(shared, Api::Posix, Operation::Open, 0, 0, 0);
        put(shared, Api::MpiIo, Operation::Write, u64::from(rank) * 8192, 8192, flags::COLLECTIVE);
        for index in 0..2 {
            put(shared, Api::Posix, Operation::Write, u64::from(rank) * 8192 + index * 4096, 4096, 0);
        }
        put(shared, Api::Posix, Operation::Read, 0, 100, flags::FAILED);
        put(own, Api::Stdio, Operation::Read, 10, 30, 0);
    }
}

fn merged() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    record_run(dir.path());
    let out = dir.path().join("run.trace");
    merge(dir.path(), &out).expect("a merged trace");
    (dir, out)
}

#[test]
fn merging_sorts_and_keeps_everything() {
    let (dir, out) = merged();
    let trace = Trace::open(&out).expect("a trace");
    let direct = Trace::open(dir.path()).expect("the directory");
    assert_eq!(trace.records(), direct.records());
    assert_eq!(trace.files(), direct.files());
    assert_eq!(trace.processes(), direct.processes());
    assert_eq!(trace.start_unix_ns(), direct.start_unix_ns());
    let paths: Vec<&str> = trace.files().iter().map(|file| file.path.to_str().expect("text")).collect();
    assert_eq!(paths, ["/data/rank.0", "/data/rank.1", "/data/shared"]);
    assert_eq!(trace.programs().len(), 1);
    assert_eq!(trace.programs()[0].name, "solver");
    assert_eq!(trace.records().len(), 12);
    assert!(trace.records().is_sorted_by_key(|r: &Record| (r.file, r.offset, r.start_ns)));
    assert_eq!(trace.records().iter().map(|record| record.start_ns).min(), Some(0));
    assert!(trace.start_unix_ns() > 0);
    assert!(trace.of_file(3).is_empty());
    for file in 0..4 {
        let held: Vec<&Record> = trace.requests(file).collect();
        assert_eq!(trace.stream(file).collect::<Vec<_>>(), held);
        assert_eq!(direct.stream(file).collect::<Vec<_>>(), held);
    }
    // Nothing but the trace is left behind.
    let left = std::fs::read_dir(dir.path()).expect("a listing").filter(|entry| {
        let name = entry.as_ref().expect("an entry").file_name().into_string().expect("text");
        !name.ends_with(PROCESS_FILE_SUFFIX)
    });
    assert_eq!(left.count(), 1);
}

#[test]
fn a_few_requests_stand_for_all_and_the_most_moved_file_for_the_others() {
    let (_dir, out) = merged();
    let trace = Trace::open(&out).expect("a trace");
    let offsets = |most| trace.sample(2, most).iter().map(|record| record.offset).collect::<Vec<_>>();
    assert_eq!(offsets(100), [0, 4096, 8192, 12_288]);
    assert_eq!((offsets(2), offsets(1), offsets(0)), (vec![0, 12_288], vec![0], vec![]));
    // Four requests of 500 ns, two of them at the same time.
    assert_eq!((trace.in_flight(&[2]), trace.in_flight(&[])), (4.0 / 3.0, 1.0));
    let totals = AccessTotals::of(&trace, |_| Ok::<_, ()>(())).expect("totals");
    assert_eq!((totals.files.len(), totals.most_moved(8), totals.most_moved(0)), (3, vec![2], vec![]));
}

#[test]
fn the_summary_counts_each_byte_once() {
    let (_dir, out) = merged();
    let trace = Trace::open(&out).expect("a trace");
    let shared = summarise(&trace, 2, 2);
    assert_eq!((shared.writes.requests, shared.writes.bytes), (4, 16384));
    assert_eq!(shared.writes.common_sizes, [(4096, 4)]);
    assert_eq!(shared.reads.requests, 0, "the only read failed");
    assert_eq!(shared.ranks, [0, 1]);
    assert_eq!(shared.extent_bytes, 16384);
    assert_eq!(
        shared.heat.iter().map(|heat| (heat.offset, heat.write_bytes)).collect::<Vec<_>>(),
        [(0, 8192), (8192, 8192)]
    );
    // Rank 0's writes run at 2000..2500 and 3000..3500 ns, rank 1's a microsecond later.
    assert_eq!(shared.writes.max_concurrency, 2);
    assert!((shared.writes.busy_s - 1.5e-6).abs() < 1e-12);
    assert!((shared.writes.mean_concurrency - 2.0 / 1.5).abs() < 1e-9);
    assert!((shared.writes.rate_bytes_per_s - 16384.0 / 1.5e-6).abs() < 1.0);
    assert_eq!(summarise(&trace, 0, 2).reads.bytes, 30);
    assert_eq!(summarise(&trace, 99, 2).records, 0);
}

#[test]
fn errors_name_the_file_and_the_remedy() {
    let (dir, out) = merged();
    let whole = std::fs::read(&out).expect("its bytes");
    let damaged = dir.path().join("damaged");
    let error_of = |bytes: &[u8]| {
        std::fs::write(&damaged, bytes).expect("a file");
        let error = Trace::open(&damaged).expect_err("damage is seen");
        assert!(error.to_string().contains("damaged"), "{error}");
        error
    };
    assert!(matches!(error_of(&[]), TraceError::NotATrace { .. }));
    assert!(matches!(error_of(b"offset,size\n"), TraceError::NotATrace { .. }));
    assert!(matches!(error_of(&whole[..whole.len() - 1]), TraceError::Truncated { .. }));
    assert!(matches!(error_of(&whole[..100]), TraceError::Truncated { .. }));
    let mut newer = whole.clone();
    newer[12] = 9;
    assert!(error_of(&newer).to_string().contains("update Stripewise"));
    let mut flipped = whole.clone();
    flipped[4096 + 60] ^= 1;
    assert!(error_of(&flipped).to_string().contains("byte 4096"));
    assert!(error_of(&flipped).to_string().contains("record again"));

    let empty = tempfile::tempdir().expect("a directory");
    assert!(matches!(Trace::open(empty.path()), Err(TraceError::Empty(_))));
    assert!(matches!(merge(empty.path(), &empty.path().join("out")), Err(TraceError::Empty(_))));
    assert!(matches!(Trace::open(&empty.path().join("none")), Err(TraceError::Io { .. })));
}

#[test]
fn a_cut_process_file_is_named_and_nothing_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    record_run(dir.path());
    let first = std::fs::read_dir(dir.path()).expect("a listing").next().expect("a file").expect("an entry").path();
    let bytes = std::fs::read(&first).expect("its bytes");
    std::fs::write(&first, &bytes[..5000]).expect("the cut");
    let out = dir.path().join("run.trace");
    let error = merge(dir.path(), &out).expect_err("the cut is seen");
    assert!(matches!(&error, TraceError::Truncated { path, found_bytes: 5000, .. } if *path == first), "{error}");
    assert!(!out.exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A merged file with any byte changed, or cut anywhere, is refused: each byte is under a check sum.
    #[test]
    fn no_damage_to_a_merged_file_goes_unseen(at in any::<prop::sample::Index>(), bit in 0..8_u32, cut in any::<bool>()) {
        let (dir, out) = merged();
        let mut bytes = std::fs::read(&out).expect("its bytes");
        // The rest of the header's page holds nothing.
        let checked: Vec<usize> = (0..60).chain(4096..bytes.len()).collect();
        let at = checked[at.index(checked.len())];
        if cut { bytes.truncate(at) } else { bytes[at] ^= 1_u8 << bit }
        let damaged = dir.path().join("damaged");
        std::fs::write(&damaged, bytes).expect("a file");
        prop_assert!(Trace::open(&damaged).is_err());
    }

    /// A process file has no check sum over its records: damage is refused or gives other numbers, never a panic.
    #[test]
    fn damage_to_a_process_file_never_panics(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        record_run(dir.path());
        let first = std::fs::read_dir(dir.path()).expect("a listing").next().expect("a file").expect("an entry").path();
        let mut bytes = std::fs::read(&first).expect("its bytes");
        for (at, value) in flips {
            // Most of the file is unused room: aim at what is used.
            let used: usize = if value % 2 == 0 { 4096 + 30 * 56 } else { 120 };
            bytes[at.index(used)] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        std::fs::write(&first, bytes).expect("the damage");
        if let Ok(trace) = Trace::open(dir.path()) {
            for file in trace.files() {
                let summary = summarise(&trace, file.id, 16);
                prop_assert!(summary.records as usize == trace.of_file(file.id).len());
            }
        }
    }
}

#[test]
fn a_mapped_trace_is_streamed_and_its_pages_come_back() {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let recorder = Recorder::create(dir.path(), &ProcessInfo { program: b"p", rank: 0, command: b"p" });
        let recorder = recorder.expect("a recorder");
        let file = recorder.file_id(b"/f");
        // More than one window of records.
        for i in 0..600_000_u64 {
            let api = if i % 3 == 0 { Api::MpiIo } else { Api::Posix };
            let (offset, start_ns) = (i * 64, 1_000 + i);
            let (op, end_ns) = (Operation::Write, start_ns + 1);
            recorder.record(&WrappedCall { file, api, op, offset, size: 64, start_ns, end_ns, flags: 0 });
        }
    }
    let out = dir.path().join("run.trace");
    merge(dir.path(), &out).expect("a merged trace");
    let trace = Trace::open(&out).expect("a trace");
    for _ in 0..2 {
        assert_eq!(trace.stream(0).count(), 400_000);
        assert!(trace.stream(0).eq(trace.requests(0)));
    }
    assert_eq!(trace.records().len(), 600_000);
}

#[test]
fn a_directory_of_other_logs_is_no_failed_preload() {
    let dir = tempfile::tempdir().expect("a directory");
    let said = || Trace::open(dir.path()).expect_err("no trace").to_string();
    assert!(said().contains("the preload library was not loaded"), "{}", said());
    std::fs::write(dir.path().join("b.darshan"), b"x").expect("a file");
    std::fs::write(dir.path().join("a.darshan"), b"x").expect("a file");
    assert!(said().contains("name one of them") && said().ends_with("a.darshan"), "{}", said());
}

#[test]
fn a_file_that_posix_hardly_saw_is_that_of_mpi_io() {
    let requests = |posix: u64, ranks: u32| {
        let dir = tempfile::tempdir().expect("a directory");
        for rank in 0..ranks {
            let recorder = Recorder::create(dir.path(), &ProcessInfo { program: b"p", rank, command: b"p" });
            let recorder = recorder.expect("a recorder");
            let file = recorder.file_id(b"/f");
            let put = |api, offset, size| {
                let (op, start_ns) = (Operation::Read, 1_000 + u64::from(rank));
                let end_ns = start_ns + 9;
                recorder.record(&WrappedCall { file, api, op, offset, size, start_ns, end_ns, flags: 0 });
            };
            put(Api::MpiIo, 0, 1 << 20);
            if rank == 0 {
                put(Api::Posix, 0, posix);
            }
        }
        let trace = Trace::open(dir.path()).expect("a trace");
        let found: Vec<(Option<Api>, u64)> = trace.requests(0).map(|record| (record.api(), record.size)).collect();
        found
    };
    // The header alone went through POSIX: the rest through a driver of its own.
    assert_eq!(requests(96, 2), [(Some(Api::MpiIo), 1 << 20); 2]);
    // One of four ranks reads for all.
    assert_eq!(requests(1 << 20, 4), [(Some(Api::Posix), 1 << 20)]);
}
