//! Any log as a trace: the rows of the log, sorted; files in order of path; processes from the rows.

mod common;

use common::{collected, wheel_logs};
use std::ops::ControlFlow;
use std::path::Path;
use stripewise_import::{Excerpt, FileCounters, ImportError, Imported, Lacks, format_of, open, summarise_counted};
use stripewise_trace::{Api, Operation, ProcessInfo, Record, Recorder, WrappedCall, merge, summarise_together};

fn opened(path: &Path) -> Result<Imported, ImportError> {
    open(path, &mut |_, _| ControlFlow::Continue(()))
}

const LOG: &str = "fio version 3 iolog\n31 /b add\n32 /a add\n163 /a read 4096 4096\n170 /b write 8192 512\n\
                   175 /b write 0 512\n180 /b write 18446744073709551615 512\n";

#[test]
fn rows_are_sorted_by_file_offset_and_start_and_what_cannot_be_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    std::fs::write(&path, LOG).unwrap();
    let Imported { trace, about } = opened(&path).unwrap();
    let paths: Vec<&Path> = trace.files().iter().map(|file| file.path.as_path()).collect();
    assert_eq!(paths, [Path::new("/a"), Path::new("/b")]);
    let rows: Vec<_> = trace.records().iter().map(|row| (row.file, row.offset, row.start_ns)).collect();
    assert_eq!(rows, [(0, 4096, 163_000), (1, 0, 175_000), (1, 8192, 170_000)]);
    assert_eq!(about.format, "fio");
    assert!(about.lacks.contains(Lacks::DAMAGED | Lacks::RANKS | Lacks::DURATIONS));
    assert_eq!(about.notes, ["1 rows have impossible offsets or times and are left out"]);
    let process = &trace.processes()[0];
    assert_eq!((trace.processes().len(), process.records, process.start_ns), (1, 3, 163_000));
    assert_eq!(trace.programs()[0].name, "fio");
}

#[test]
fn darshan_has_the_same_rows_counters_and_layouts_as_the_importer_hands_over() {
    for path in wheel_logs().into_values() {
        let (all, summary) = collected(&path).unwrap();
        let Imported { trace, about } = opened(&path).unwrap();
        let name = |file: u32| trace.files()[file as usize].path.as_os_str().as_encoded_bytes();
        let key = |path: &[u8], row: &Record| (path.to_vec(), row.offset, row.start_ns, row.end_ns, row.rank, row.size);
        let mut expected: Vec<_> = all.rows.iter().map(|row| key(&all.files[row.file as usize], row)).collect();
        let mut found: Vec<_> = trace.records().iter().map(|row| key(name(row.file), row)).collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        assert!(trace.files().is_sorted_by_key(|file| &file.path));
        let counted: Vec<_> = about.counters.iter().map(|counters| (name(counters.file), &counters.integers)).collect();
        let told = all.counters.iter().map(|counters| (&all.files[counters.file as usize][..], &counters.integers));
        assert_eq!(counted, told.collect::<Vec<_>>());
        assert_eq!(about.lustre_layouts.len(), all.layouts.len());
        for layout in &all.layouts {
            let ours = about.lustre_layouts.iter().find(|own| name(own.file) == all.files[layout.file as usize]);
            assert_eq!(ours.unwrap().components, layout.components);
        }
        assert_eq!((about.processes, about.lacks), (summary.processes, summary.lacks));
        let ranks: std::collections::HashSet<_> = all.rows.iter().map(|row| row.rank).collect();
        assert_eq!(trace.processes().len(), ranks.len());
        let records: u64 = trace.processes().iter().map(|process| process.records).sum();
        assert_eq!(records, all.rows.len() as u64);
    }
}

#[test]
fn our_own_traces_are_opened_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    {
        let info = ProcessInfo { program: b"p", rank: 3, command: b"p\0q" };
        let recorder = Recorder::create(dir.path(), &info).unwrap();
        let file = recorder.file_id(b"/f");
        let (op, api) = (Operation::Write, stripewise_trace::Api::Posix);
        recorder.record(&WrappedCall { file, api, op, offset: 5, size: 7, start_ns: 10, end_ns: 20, flags: 0 });
    }
    let merged = dir.path().join("run.trace");
    merge(dir.path(), &merged).unwrap();
    for path in [dir.path(), &merged] {
        let Imported { trace, about } = opened(path).unwrap();
        assert_eq!((about.format.as_str(), about.lacks.is_empty()), ("Stripewise", true));
        assert_eq!((trace.records().len(), trace.processes()[0].rank), (1, 3));
        assert_eq!(trace.processes()[0].command, "p q");
    }
}

#[test]
fn what_is_no_log_is_refused_and_watching_can_stop_an_import() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    for (bytes, why) in [(&b""[..], "it is empty"), (b"Dear all,\n", "it starts with"), (b"STRPWISE", "damaged")] {
        std::fs::write(&path, bytes).unwrap();
        let text = opened(&path).unwrap_err().to_string();
        let expected = if why == "damaged" {
            text.contains("is cut") || text.contains("not a Stripewise")
        } else {
            text.contains(why)
        };
        assert!(expected && text.contains("log"), "{text}");
    }
    let lines = (0..40_000).map(|line| format!("{line} /a read {} 4096\n", line * 4096)).collect::<String>();
    std::fs::write(&path, format!("fio version 3 iolog\n0 /a add\n{lines}")).unwrap();
    let stopped = open(&path, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(ImportError::Stopped { .. })), "{stopped:?}");
}

#[test]
fn an_excerpt_has_the_wanted_records_and_what_is_known_of_their_files() {
    for path in wheel_logs().into_values() {
        let Imported { trace, about } = opened(&path).unwrap();
        let everything = Excerpt::default().of(&trace, &about, &path).unwrap();
        assert_eq!((everything.trace.records(), &everything.about), (trace.records(), &about), "{}", path.display());
        assert_eq!(everything.trace.files(), trace.files());
        let Some(last) = trace.files().iter().rfind(|file| !file.records.is_empty()) else { continue };
        let rank = trace.of_file(last.id)[0].rank;
        let wanted = Excerpt { files: Some([last.id].into()), ranks: Some([rank].into()), programs: None };
        let part = wanted.of(&trace, &about, &path).unwrap();
        assert_eq!(part.trace.files().iter().map(|file| &file.path).collect::<Vec<_>>(), [&last.path]);
        let renumbered = |record: &Record| Record { file: 0, ..*record };
        let own: Vec<Record> = trace.of_file(last.id).iter().filter(|row| row.rank == rank).map(renumbered).collect();
        assert_eq!(part.trace.records(), own);
        assert_eq!(part.trace.processes().iter().map(|process| process.records).sum::<u64>(), own.len() as u64);
        assert_eq!(part.about.processes, Some(part.trace.processes().len() as u64));
        assert!(part.about.counters.iter().all(|counters| counters.file == 0 && counters.rank == Some(rank)));
        let layouts = about.lustre_layouts.iter().filter(|layout| layout.file == last.id);
        assert!(part.about.lustre_layouts.iter().map(|own| &own.components).eq(layouts.map(|own| &own.components)));
    }
}

#[test]
fn a_directory_of_logs_is_told_from_a_log() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.log"), LOG).unwrap();
    std::fs::write(dir.path().join("README"), "no log").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe"), 0o600.into()).unwrap();
    let said = opened(dir.path()).unwrap_err().to_string();
    assert!(said.contains("a directory of 1 log, and not one itself") && said.contains("stripewise survey"), "{said}");
    assert_eq!(format_of(&dir.path().join("a.log")), Some("fio"));
    assert_eq!(format_of(&dir.path().join("README")), None);
    assert_eq!(format_of(&dir.path().join("pipe")), None);
    assert_eq!(format_of(&dir.path().join("nothing")), None);
    assert_eq!(format_of(dir.path()), None);
    std::fs::remove_file(dir.path().join("a.log")).unwrap();
    let said = opened(dir.path()).unwrap_err().to_string();
    assert!(said.contains("holds no trace"), "{said}");
}

#[test]
fn a_sample_of_counted_requests_is_summed_up_as_what_was_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    std::fs::write(&path, LOG).unwrap();
    let Imported { trace, mut about } = opened(&path).unwrap();
    let ids: Vec<u32> = trace.files().iter().map(|file| file.id).collect();
    let rows = summarise_together(&trace, &ids, 8);
    assert_eq!(summarise_counted(&trace, &about.counted_files(), &ids, 8), rows, "a log without counters");
    let file = *ids.iter().find(|&&id| trace.requests(id).any(|record| record.op == Operation::Write as u8)).unwrap();
    let own = summarise_together(&trace, &[file], 8);
    let (requests, bytes) = (own.writes.requests, own.writes.bytes);
    let counters = |times: u64, has_rows| FileCounters {
        file,
        api: Api::Posix,
        rank: None,
        integers: vec![
            ("POSIX_READS", 0),
            ("POSIX_WRITES", (requests * times) as i64),
            ("POSIX_BYTES_READ", 0),
            ("POSIX_BYTES_WRITTEN", (bytes * times) as i64),
        ],
        floats: Vec::new(),
        has_rows,
    };
    for (times, has_rows, grown) in [(1000, false, 1000), (1, false, 1), (1000, true, 1)] {
        about.counters = vec![counters(times, has_rows)];
        let summary = summarise_counted(&trace, &about.counted_files(), &[file], 8);
        assert_eq!((summary.writes.requests, summary.writes.bytes), (requests * grown, bytes * grown));
        assert_eq!(summary.heat.iter().map(|place| place.write_bytes).sum::<u64>(), bytes * grown);
        assert_eq!(summary.writes.rate_bytes_per_s, own.writes.rate_bytes_per_s * grown as f64);
        assert_eq!(summary.reads, own.reads);
        let all = summarise_counted(&trace, &about.counted_files(), &ids, 8);
        assert_eq!(all.writes.bytes, rows.writes.bytes + bytes * (grown - 1));
    }
}
