//! CSV and Parquet of our own schema, and our own traces, through the importers.

mod common;

use common::{collected, damage, of_bytes, wheel_logs};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::path::Path;
use stripewise_import::{IMPORTERS, Imported, Importer, Lacks, import, open, write_csv, write_parquet};
use stripewise_trace::{Api, Operation, ProcessInfo, Record, Recorder, WrappedCall, merge};

fn importer(name: &str) -> &'static dyn Importer {
    *IMPORTERS.iter().find(|importer| importer.name() == name).expect("listed")
}

fn opened(path: &Path) -> Imported {
    open(path, &mut |_, _| ControlFlow::Continue(())).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn four_columns_are_enough() {
    let csv = "note,size,file,op,offset\n,4096,\"/a,b\",WRITE,0\nx,10,/c,read,4096\n\n,10,\"/a,b\",write,4096\n";
    let (all, summary) = of_bytes(csv.as_bytes()).unwrap();
    assert_eq!(all.files, [&b"/a,b"[..], b"/c"]);
    assert_eq!(all.programs, [b"log"]);
    let rows: Vec<_> =
        all.rows.iter().map(|r| (r.file, r.operation().unwrap(), r.offset, r.size, r.start_ns)).collect();
    let expected =
        [(0, Operation::Write, 0, 4096, 1), (1, Operation::Read, 4096, 10, 2), (0, Operation::Write, 4096, 10, 3)];
    assert_eq!(rows, expected);
    assert!(all.rows.iter().all(|row| row.api == Api::Posix as u8 && row.start_ns == row.end_ns));
    let lacks = Lacks::RANKS | Lacks::PIDS | Lacks::TIMES | Lacks::DURATIONS | Lacks::METADATA;
    assert_eq!((summary.lacks, summary.format), (lacks, "CSV"));
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let refused = |text: &str, why: &str| {
        let found = of_bytes(text.as_bytes()).unwrap_err().to_string();
        assert!(found.contains(why) && found.contains("CSV"), "{found}");
    };
    refused("file,op,offset\n/a,read,0\n", "it has no column `size`; file, op, offset, size are needed");
    refused("file,op,offset,size,op\n/a,read,0,1,read\n", "two columns `op`");
    refused(
        "file,op,offset,size\n/a,look,0,1\n",
        "none of its 1 rows can be used; line 2: `op` is \"look\", known are open",
    );
    for (row, why) in [
        ("/a,read,-1,1", "line 3: `offset` is \"-1\", not a number"),
        ("/a,read,1e3,1", "not a number"),
        ("/a,read,,1", "it has no offset"),
        ("/a,read,0", "line 3: it has 3 columns of 4"),
        (",read,0,1", "it has no file"),
        ("/a,read,9223372036854775807,9", "exceed 2^63"),
        ("/a,read,99999999999999999999,9", "not a number"),
        ("\"/a,read,0,1", "a quote is not closed"),
    ] {
        let long = if why.contains("quote") { "x".repeat(300_000) } else { String::new() };
        let (all, summary) = of_bytes(format!("file,op,offset,size\n/a,read,0,1\n{row}{long}\n").as_bytes()).unwrap();
        assert_eq!(all.rows.len(), 1);
        assert!(summary.lacks.contains(Lacks::DAMAGED));
        assert!(summary.notes[0].starts_with("1 rows were not understood, the first is line 3"), "{:?}", summary.notes);
        assert!(summary.notes[0].contains(why), "{:?}", summary.notes);
    }
    let timed = "file,op,offset,size,start_ns,end_ns,rank,pid,flags\n/a,read,0,1,10,5,0,0,0\n/a,read,0,1,10,,3,4,70000\n\
                 /a,read,0,1,10,,4294967296,4,0\n/a,read,0,1,10,,3,4,32\n";
    let (all, summary) = of_bytes(timed.as_bytes()).unwrap();
    assert_eq!((all.rows.len(), all.rows[0].rank, all.rows[0].pid, all.rows[0].end_ns), (1, 3, 4, 10));
    assert_eq!(summary.lacks, Lacks::DAMAGED | Lacks::DURATIONS | Lacks::OFFSETS | Lacks::METADATA);
}

/// The rows of a trace as texts, in its order.
fn texts(imported: &Imported) -> Vec<(String, String, Record)> {
    let trace = &imported.trace;
    let name = |row: &Record| trace.files()[row.file as usize].path.to_string_lossy().into_owned();
    let program = |row: &Record| trace.programs()[row.program as usize].name.clone();
    trace.records().iter().map(|row| (name(row), program(row), Record { file: 0, program: 0, ..*row })).collect()
}

#[test]
fn what_show_writes_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["sample-dxt-simple.darshan", "ior_hdf5_example.darshan"] {
        let original = opened(&wheel_logs()[name]);
        assert!(!original.trace.records().is_empty());
        let (csv, parquet) = (dir.path().join("t.csv"), dir.path().join("t.parquet"));
        write_csv(&original.trace, std::fs::File::create(&csv).unwrap()).unwrap();
        write_parquet(&original.trace, &parquet).unwrap();
        for path in [&csv, &parquet] {
            assert_eq!(texts(&opened(path)), texts(&original), "{}", path.display());
        }
    }
}

#[test]
fn damaged_tables_survive() {
    let dir = tempfile::tempdir().unwrap();
    let original = opened(&wheel_logs()["sample-dxt-simple.darshan"]);
    let (csv, parquet) = (dir.path().join("t.csv"), dir.path().join("t.parquet"));
    write_csv(&original.trace, std::fs::File::create(&csv).unwrap()).unwrap();
    write_parquet(&original.trace, &parquet).unwrap();
    assert!(damage(importer("CSV"), &std::fs::read(&csv).unwrap(), 30, 300) > 200);
    damage(importer("Parquet"), &std::fs::read(&parquet).unwrap(), 30, 1000);
    let whole = std::fs::read(&parquet).unwrap();
    std::fs::write(&parquet, &whole[..whole.len() - 20]).unwrap();
    let error = collected(&parquet).unwrap_err().to_string();
    assert!(error.contains("is a damaged Parquet log"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any text after a good header: rows or notes, never a panic, and what is counted is what came.
    #[test]
    fn any_text_is_survived(rest in "[a-z0-9/,\"\n\r]{0,200}") {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.csv");
        std::fs::write(&path, format!("file,op,offset,size\n/a,read,1,2\n{rest}")).unwrap();
        prop_assert!(common::survives(importer("CSV"), &path).is_some_and(|summary| summary.rows > 0));
    }
}

#[test]
fn our_own_traces_have_an_importer_too() {
    let dir = tempfile::tempdir().unwrap();
    {
        let info = ProcessInfo { program: b"p", rank: 1, command: b"p" };
        let recorder = Recorder::create(dir.path(), &info).unwrap();
        let file = recorder.file_id(b"/f");
        let (op, api) = (Operation::Write, Api::Posix);
        for offset in 0..5000 {
            let (start_ns, end_ns) = (offset + 1, offset + 2);
            recorder.record(&WrappedCall { file, api, op, offset, size: 7, start_ns, end_ns, flags: 0 });
        }
    }
    let merged = dir.path().join("run.trace");
    merge(dir.path(), &merged).unwrap();
    let mut checked = common::Checked::default();
    let summary = import(&merged, &mut checked).unwrap();
    assert_eq!((summary.format, summary.rows, summary.lacks), ("Stripewise", 5000, Lacks::NOTHING));
    assert_eq!((checked.rows, checked.bytes, checked.files, checked.programs), (5000, 35_000, 1, 1));
    damage(importer("Stripewise"), &std::fs::read(&merged).unwrap(), 20, 50);
}
