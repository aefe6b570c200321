//! fio: a real run, both versions by hand, damaged copies.

mod common;

use common::{collected, damage, of_bytes};
use std::process::Command;
use stripewise_import::{IMPORTERS, Importer, Lacks};
use stripewise_trace::{Operation, Record};

fn fio() -> &'static dyn Importer {
    *IMPORTERS.iter().find(|importer| importer.name() == "fio").expect("listed")
}

fn shape(rows: &[Record]) -> Vec<(u32, Operation, u64, u64, u64)> {
    rows.iter().map(|row| (row.file, row.operation().unwrap(), row.offset, row.size, row.start_ns)).collect()
}

#[test]
fn version_3_has_times() {
    let log = "fio version 3 iolog\n31 /a add\n32 /b add\n156 /a open\n163 /a read 0 4096\n170 /b write 8192 512\n\
               180 /b datasync 0 0\n190 /a trim 4096 4096\n200 /a close\n";
    let (all, summary) = of_bytes(log.as_bytes()).unwrap();
    assert_eq!(all.files, [b"/a", b"/b"]);
    let expected = [
        (0, Operation::Open, 0, 0, 156_000),
        (0, Operation::Read, 0, 4096, 163_000),
        (1, Operation::Write, 8192, 512, 170_000),
        (1, Operation::Sync, 0, 0, 180_000),
        (0, Operation::Allocate, 4096, 4096, 190_000),
        (0, Operation::Close, 0, 0, 200_000),
    ];
    assert_eq!(shape(&all.rows), expected);
    assert_eq!((summary.lacks, summary.rows), (Lacks::RANKS | Lacks::PIDS | Lacks::DURATIONS, 6));
}

#[test]
fn version_2_has_an_order_and_waits() {
    let log =
        "fio version 2 iolog\n/a add\n/a open\n/a read 0 10\n/a wait 5 0\n/a write 10 10\n/a jump 3 4\n/a read x 4\n";
    let (all, summary) = of_bytes(log.as_bytes()).unwrap();
    let expected = [(0, Operation::Open, 0, 0, 1), (0, Operation::Read, 0, 10, 2), (0, Operation::Write, 10, 10, 5003)];
    assert_eq!(shape(&all.rows), expected);
    assert!(summary.lacks.contains(Lacks::TIMES | Lacks::DAMAGED) && !summary.lacks.contains(Lacks::CUT));
    assert_eq!(summary.notes, ["2 lines were not understood, the first is line 7"]);
}

#[test]
fn a_real_run_and_its_damaged_copies() {
    let dir = tempfile::tempdir().unwrap();
    let (log, file) = (dir.path().join("log"), dir.path().join("data"));
    let file_option = format!("--filename={}", file.display());
    let log_option = format!("--write_iolog={}", log.display());
    let options = ["--name=job", "--size=1m", "--rw=write", "--bs=8k", "--ioengine=psync", &file_option, &log_option];
    let run = Command::new("fio").current_dir(dir.path()).args(options).output().expect("fio is installed");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let (all, summary) = collected(&log).unwrap();
    assert_eq!(all.files, [file.as_os_str().as_encoded_bytes()]);
    let written: Vec<_> = all.rows.iter().filter(|row| row.is_data()).map(|row| (row.offset, row.size)).collect();
    assert_eq!(written, (0..128).map(|index| (index * 8192, 8192)).collect::<Vec<_>>());
    assert!(summary.notes.is_empty(), "{summary:?}");
    assert!(damage(fio(), &std::fs::read(&log).unwrap(), 50, 1000) > 900);
    for (text, expected) in
        [("fio version 1 iolog\n", "version 1, known"), ("fio version \n", "known here are 2 and 3")]
    {
        assert!(of_bytes(text.as_bytes()).unwrap_err().to_string().contains(expected));
    }
}
