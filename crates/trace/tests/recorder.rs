//! The recorder under threads, forks and kills.

use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use stripewise_trace::{Api, Operation, ProcessInfo, Recorder, Trace, WrappedCall, merge, now_ns};

const CHILD_DIR: &str = "STRIPEWISE_TEST_RECORD_INTO";

fn recorder(dir: &Path, rank: u32) -> Recorder {
    Recorder::create(dir, &ProcessInfo { program: b"test", rank, command: b"test\0--flag\0" }).expect("a recorder")
}

fn entry(file: u32, offset: u64, size: u64) -> WrappedCall {
    let now = now_ns();
    WrappedCall { file, api: Api::Posix, op: Operation::Write, offset, size, start_ns: now, end_ns: now, flags: 0 }
}

#[test]
fn threads_lose_nothing_and_growth_keeps_what_was_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = recorder(dir.path(), 3);
    const EACH: u64 = 20_000;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let recorder = &recorder;
            scope.spawn(move || {
                let shared = recorder.file_id(b"/data/shared");
                let own = recorder.file_id(format!("/data/own.{thread}").as_bytes());
                for index in 0..EACH {
                    recorder.record(&entry(shared, (thread * EACH + index) * 10, 10));
                    recorder.record(&entry(own, index * 7, 7));
                }
            });
        }
    });
    let trace = Trace::open(dir.path()).expect("a trace");
    assert_eq!(trace.files().len(), 5);
    let shared = trace.files().iter().find(|file| file.path == Path::new("/data/shared")).expect("the shared file");
    let offsets: Vec<u64> = trace.of_file(shared.id).iter().map(|record| record.offset / 10).collect();
    assert_eq!(offsets, (0..4 * EACH).collect::<Vec<_>>());
    for file in trace.files().iter().filter(|file| file.id != shared.id) {
        let records = trace.of_file(file.id);
        assert_eq!(records.len() as u64, EACH);
        assert!(
            records.iter().zip(0..).all(|(record, index)| record.offset == index * 7 && record.tid == records[0].tid)
        );
    }
    assert_eq!(trace.lost(), 0);
    assert_eq!(trace.processes()[0].command, "test --flag");
    assert!(trace.records().iter().all(|record| record.rank == 3 && record.pid == std::process::id()));
}

#[test]
fn a_name_keeps_its_id_and_any_length() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = recorder(dir.path(), 0);
    let names: Vec<Vec<u8>> =
        [0_usize, 1, 31, 32, 33, 64, 4095, 4096].iter().map(|&len| vec![b'a' + (len % 7) as u8; len]).collect();
    for name in &names {
        let id = recorder.file_id(name);
        assert_eq!(recorder.file_id(name), id);
        recorder.record(&entry(id, name.len() as u64, 1));
    }
    let trace = Trace::open(dir.path()).expect("a trace");
    assert_eq!(trace.files().len(), names.len());
    for file in trace.files() {
        let records = trace.of_file(file.id);
        assert_eq!(records.len(), 1);
        assert_eq!(file.path.as_os_str().as_bytes().len() as u64, records[0].offset);
        assert!(names.iter().any(|name| name == file.path.as_os_str().as_bytes()));
    }
}

/// Runs in a child process of the tests below: records until it is killed, and says how far it surely got.
#[test]
fn child_that_records_until_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let recorder = recorder(Path::new(&dir), 0);
    let file = recorder.file_id(b"/data/killed");
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let recorder = &recorder;
            scope.spawn(move || {
                for index in 0_u64.. {
                    recorder.record(&entry(file, index * 2 + thread, 1));
                    if thread == 0 && index % 10_000 == 9_999 {
                        println!("recorded {}", index + 1);
                    }
                }
            });
        }
    });
}

#[test]
fn a_killed_process_leaves_all_it_had_recorded() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().expect("a directory");
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child_that_records_until_killed", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let promised: usize = lines
            .by_ref()
            .filter_map(|line| line.ok()?.strip_prefix("recorded ")?.parse().ok())
            .nth(3)
            .expect("four reports");
        child.kill().expect("a kill");
        child.wait().expect("its end");
        let trace = Trace::open(dir.path()).expect("a trace");
        let even: Vec<u64> = trace.records().iter().map(|r| r.offset).filter(|offset| offset % 2 == 0).collect();
        assert!(even.len() >= promised, "{} of {promised} records", even.len());
        assert!(even[..promised].iter().zip(0..).all(|(&offset, index)| offset == index * 2));
        assert!(trace.lost() <= 2, "{} lost, with two threads", trace.lost());
        let merged = dir.path().join("merged.trace");
        merge(dir.path(), &merged).expect("a merged trace");
        assert_eq!(Trace::open(&merged).expect("it opens").records(), trace.records());
    }
}

#[test]
fn a_forked_child_sees_that_the_recorder_is_its_parents() {
    let dir = tempfile::tempdir().expect("a directory");
    let mine = recorder(dir.path(), 0);
    assert!(!mine.is_inherited());
    // SAFETY: the child only makes raw system calls and exits without running destructors.
    match unsafe { libc::fork() } {
        0 => {
            let inherited = mine.is_inherited();
            let child = Recorder::create(dir.path(), &ProcessInfo { program: b"test", rank: 1, command: b"" });
            let ok = inherited
                && child.is_ok_and(|child| {
                    child.record(&entry(child.file_id(b"/data/child"), 0, 5));
                    !child.is_inherited()
                });
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!ok)) };
        }
        pid => {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the result.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert_eq!(status, 0);
            mine.record(&entry(mine.file_id(b"/data/parent"), 0, 6));
            let trace = Trace::open(dir.path()).expect("a trace");
            assert_eq!(trace.processes().len(), 2);
            let pids: Vec<u32> = trace.records().iter().map(|record| record.pid).collect();
            assert_eq!(pids, [pid as u32, std::process::id()]);
            assert_eq!(trace.records().iter().map(|record| record.tid).collect::<Vec<_>>()[0], pid as u32);
        }
    }
}
