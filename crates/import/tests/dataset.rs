//! Data sets: what is written comes back, nothing half-written stays, nothing damaged is taken or brings the reader
//! down.

mod common;

use common::wheel_logs;
use proptest::prelude::*;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use stripewise_import::{
    About, FileCounters, ImportError, Imported, JobHeader, Lacks, LustreComponent, LustreLayout, MountPoint, open,
    open_files, write_dataset, write_parquet,
};
use stripewise_trace::{Api, Process, Program, Record, Tables, Trace, TraceWriter};

fn go(_done: u64, _total: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn opened(path: &Path) -> Result<Imported, ImportError> {
    open(path, &mut go)
}

/// A trace of these records and tables.
fn trace_of(records: &[Record], tables: Tables, start_unix_ns: u64) -> Trace {
    let mut writer = TraceWriter::new(tempfile::tempfile().unwrap(), Path::new("a test's trace"));
    writer.push(records).unwrap();
    writer.into_trace(tables, start_unix_ns, None).unwrap()
}

fn same(left: &Imported, right: &Imported) {
    assert_eq!(left.trace.records(), right.trace.records());
    assert_eq!(left.trace.files(), right.trace.files());
    assert_eq!(left.trace.programs(), right.trace.programs());
    assert_eq!(left.trace.processes(), right.trace.processes());
    assert_eq!(left.trace.start_unix_ns(), right.trace.start_unix_ns());
    assert_eq!(left.about, right.about);
}

fn logs() -> Vec<PathBuf> {
    wheel_logs().into_values().collect()
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn logs_come_back_with_counters_and_layouts() {
    let dir = tempfile::tempdir().unwrap();
    for (number, log) in logs().iter().enumerate() {
        let imported = opened(log).unwrap();
        let path = dir.path().join(number.to_string());
        let mut last = (0, 0);
        let mut watch = |done, total| {
            last = (done, total);
            ControlFlow::Continue(())
        };
        write_dataset(&imported.trace, &imported.about, &path, &mut watch).unwrap();
        let rows = imported.trace.records().len() as u64;
        assert_eq!(last, (rows, rows));
        same(&imported, &opened(&path).unwrap());
        // And from there once more.
        let again = opened(&path).unwrap();
        let second = dir.path().join(format!("{number}-again"));
        write_dataset(&again.trace, &again.about, &second, &mut go).unwrap();
        same(&imported, &opened(&second).unwrap());
    }
    assert_eq!(entries(dir.path()).len(), 2 * logs().len(), "nothing else stays");
}

/// Names that the tables may have: text, and paths that are no text.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof!["[a-z,\"/ é\n]{0,12}".prop_map(String::into_bytes), prop::collection::vec(1..=255_u8, 0..8)]
}

prop_compose! {
    fn record(files: u32, programs: u32)(
        offset in prop_oneof![0..10_000_u64, 0..=(1_u64 << 62)],
        size in prop_oneof![0..10_000_u64, 0..=(1_u64 << 62)],
        start_ns in prop_oneof![0..10_000_u64, any::<u64>()],
        took_ns in prop_oneof![0..10_000_u64, any::<u64>()],
        numbers in (0..files, 0..programs, 0..4_u32, any::<u32>(), any::<u32>()),
        kind in (1..=3_u8, 1..=15_u8, any::<u16>()),
    ) -> Record {
        let (file, program, rank, pid, tid) = numbers;
        let (api, op, flags) = kind;
        let end_ns = start_ns.saturating_add(took_ns);
        Record { offset, size, start_ns, end_ns, file, program, rank, pid, tid, api, op, flags }
    }
}

prop_compose! {
    fn traces()(
        files in prop::collection::btree_set(name(), 1..5),
        programs in prop::collection::btree_set("[a-zé ]{0,6}", 1..4),
        processes in prop::collection::vec((any::<[u32; 3]>(), any::<[u64; 5]>(), "\\PC{0,5}"), 0..5),
        start_unix_ns in any::<u64>(),
    )(
        records in prop::collection::vec(record(files.len() as u32, programs.len() as u32), 0..200),
        tables in Just(Tables {
            processes: processes.into_iter().map(|([rank, pid, parent_pid], longs, text)| {
                let [start_ns, records, holes, dropped, names_dropped] = longs;
                let (host, command) = (text.clone(), text);
                let program = rank % programs.len() as u32;
                Process { program, rank, pid, parent_pid, host, command, start_ns, records, holes, dropped, names_dropped }
            }).collect(),
            files: files.into_iter().collect(),
            programs: programs.into_iter().map(|name| Program { name }).collect(),
        }),
        start_unix_ns in Just(start_unix_ns),
    ) -> Imported {
        let trace = trace_of(&records, tables, start_unix_ns);
        let about = About { format: "test".into(), start_unix_ns: Some(start_unix_ns), ..About::default() };
        Imported { trace, about }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_trace_comes_back(imported in traces()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("T");
        write_dataset(&imported.trace, &imported.about, &path, &mut go).unwrap();
        same(&imported, &opened(&path).unwrap());
    }
}

/// Of some files: what the whole has of them, in their numbers, and none of the others' tables is touched.
#[test]
fn some_files_are_read_without_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let whole = opened(&path).unwrap();
    for files in [vec![], vec![0], vec![1], vec![1, 0, 1], vec![7]] {
        let some = open_files(&path, &files, &mut go).unwrap();
        let is_of = |file: u32| files.contains(&file);
        let records: Vec<Record> = whole.trace.records().iter().filter(|r| is_of(r.file)).copied().collect();
        assert_eq!(some.trace.records(), records);
        let paths = |trace: &Trace| trace.files().iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(&some.trace), paths(&whole.trace));
        assert_eq!(some.trace.processes(), whole.trace.processes());
        assert_eq!(some.about.lacks, whole.about.lacks);
        let counters = whole.about.counters.iter().filter(|counters| is_of(counters.file));
        assert!(some.about.counters.iter().eq(counters));
        let layouts = whole.about.lustre_layouts.iter().filter(|layout| is_of(layout.file));
        assert!(some.about.lustre_layouts.iter().eq(layouts));
    }
    std::fs::remove_file(path.join("requests/file-1.parquet")).unwrap();
    assert_eq!(open_files(&path, &[0], &mut go).unwrap().trace.records().len(), 150);
    assert!(open_files(&path, &[1], &mut go).unwrap_err().to_string().contains("file-1.parquet"));
    let error = open_files(&wheel_logs()["sample.darshan"], &[0], &mut go).unwrap_err();
    assert!(matches!(error, ImportError::NotDataset { .. }), "{error}");
    let error = open_files(&dir.path().join("none"), &[0], &mut go).unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
}

fn job() -> JobHeader {
    JobHeader { command: Some("./a.out -x".into()), user: Some("uid 7".into()), id: Some("42".into()), nodes: Some(2) }
}

/// A small data set with every table.
fn small(dir: &Path) -> PathBuf {
    let process = |rank| Process {
        program: 0,
        rank,
        pid: 100 + rank,
        parent_pid: 1,
        host: "node".into(),
        command: "p q".into(),
        start_ns: 5,
        records: 150,
        holes: 0,
        dropped: 0,
        names_dropped: 0,
    };
    let tables = Tables {
        files: vec![b"/a".to_vec(), b"/b\xff".to_vec()],
        programs: vec![Program { name: "p".into() }],
        processes: vec![process(0), process(1)],
    };
    let record = |index: u64| Record {
        offset: index * 10,
        size: 10,
        file: (index / 150) as u32,
        rank: (index % 2) as u32,
        api: 1,
        op: 3,
        ..Record::default()
    };
    let trace = trace_of(&(0..300).map(record).collect::<Vec<_>>(), tables, 0);
    let counters = |rank, value| FileCounters {
        file: 1,
        api: Api::Posix,
        rank,
        integers: vec![("POSIX_READS", value), ("POSIX_WRITES", -1)],
        floats: vec![("POSIX_F_READ_TIME", 0.5)],
        has_rows: true,
    };
    let component = |start: u64, osts: &[u64]| LustreComponent {
        start,
        end: (start == 0).then_some(1 << 20),
        stripe_bytes: 1 << 20,
        stripe_count: 2,
        pattern: None,
        mirror: Some(1),
        pool: "flash".into(),
        osts: osts.to_vec(),
    };
    let about = About {
        format: "Darshan".into(),
        lacks: Lacks::PIDS | Lacks::METADATA,
        notes: vec!["a note".into()],
        counters: vec![counters(Some(0), 7), counters(None, 8)],
        lustre_layouts: vec![LustreLayout {
            file: 0,
            components: vec![component(0, &[3, 1]), component(1 << 20, &[])],
        }],
        processes: Some(2),
        run_ns: Some(9),
        targets: Some(248),
        mounts: vec![MountPoint { path: "/scratch".into(), kind: "lustre".into() }],
        job: job(),
        start_unix_ns: None,
    };
    let path = dir.join("T");
    write_dataset(&trace, &about, &path, &mut go).unwrap();
    same(&Imported { trace, about }, &opened(&path).unwrap());
    path
}

fn tables_of(path: &Path) -> Vec<PathBuf> {
    let requests = path.join("requests");
    let all = std::fs::read_dir(path).unwrap().chain(std::fs::read_dir(requests).unwrap());
    let mut all: Vec<PathBuf> = all
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "parquet"))
        .collect();
    all.sort();
    assert!(all.len() >= 6, "{all:?}");
    all
}

#[test]
fn every_damage_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    for table in tables_of(&path) {
        let whole = std::fs::read(&table).unwrap();
        let refused = |why: &str| {
            let text = opened(&path).unwrap_err().to_string();
            assert!(text.contains(&table.display().to_string()) && text.contains(why), "{text}");
            assert!(text.contains("import the log again"), "{text}");
        };
        std::fs::write(&table, &whole[..whole.len() - 1]).unwrap();
        refused("were written");
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        std::fs::write(&table, &flipped).unwrap();
        refused("check sum");
        std::fs::remove_file(&table).unwrap();
        refused("No such file");
        std::fs::create_dir(&table).unwrap();
        refused("no regular file");
        std::fs::remove_dir(&table).unwrap();
        std::fs::write(&table, &whole).unwrap();
    }
    opened(&path).unwrap();
    let manifest = path.join("trace.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    for (from, to, why) in [
        ("\"version\": 1", "\"version\": 7", "version 7"),
        ("\"lacks\": [", "\"lacks\": [\"colour\", ", "colour"),
        ("files.parquet", "f.parquet", "does not name files.parquet"),
        ("\"file\": 0", "\"file\": 77", "file 77"),
        ("{\n", "{\"more\": 1,\n", "unknown field"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        std::fs::write(&manifest, &changed).unwrap();
        let found = opened(&path).unwrap_err().to_string();
        assert!(found.contains(why), "{found}");
    }
}

/// An attacker writes the right check sums: the reader then reads the pages and checks each field.
#[test]
fn no_hostile_table_brings_the_reader_down() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let manifest = path.join("trace.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let whole = opened(&path).unwrap();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let (mut taken, mut refused) = (0, 0);
    for table in tables_of(&path) {
        let original = std::fs::read(&table).unwrap();
        let sum = |bytes: &[u8]| crc32c::crc32c(bytes).to_string();
        for _ in 0..400 {
            let mut copy = original.clone();
            for _ in 0..=random() % 3 {
                let at = random() as usize % copy.len();
                copy[at] = random() as u8;
            }
            std::fs::write(&table, &copy).unwrap();
            std::fs::write(&manifest, text.replace(&sum(&original), &sum(&copy))).unwrap();
            match opened(&path) {
                Ok(read) => {
                    taken += 1;
                    assert_eq!(read.trace.records().len(), whole.trace.records().len());
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("parquet"), "{error}");
                }
            }
        }
        std::fs::write(&table, &original).unwrap();
    }
    assert!(refused > 1000 && taken > 0, "{refused} refused, {taken} taken");
}

#[test]
fn nothing_half_written_stays_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let imported = opened(&wheel_logs()["sample.darshan"]).unwrap();
    let path = dir.path().join("T");
    let write = |path: &Path, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>| {
        write_dataset(&imported.trace, &imported.about, path, progress)
    };
    std::fs::File::create_new(&path).unwrap().write_all(b"mine").unwrap();
    let error = write(&path, &mut go).unwrap_err();
    assert!(matches!(error, ImportError::Exists { .. }) && error.to_string().contains("exists already"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    std::fs::remove_file(&path).unwrap();
    let large = opened(&small(dir.path())).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    let stopped = write_dataset(&large.trace, &large.about, &path, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(ImportError::Stopped { .. })));
    let nowhere = dir.path().join("none").join("T");
    assert!(matches!(write(&nowhere, &mut go), Err(ImportError::Write { .. })));
    assert_eq!(entries(dir.path()), Vec::<String>::new());
    assert!(matches!(write_parquet(&imported.trace, &nowhere), Err(ImportError::Write { .. })));
    write_parquet(&imported.trace, &path).unwrap();
    assert_eq!(entries(dir.path()), ["T"]);
}

#[test]
fn what_killed_processes_left_is_removed_and_what_others_write_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace_of(&[], Tables::default(), 0);
    let path = dir.path().join("T");
    // As a process of this number left it, before its number was given again.
    let own = dir.path().join(format!(".T.{}.new", std::process::id()));
    std::fs::create_dir_all(own.join("requests")).unwrap();
    std::fs::write(own.join("trace.json"), b"half").unwrap();
    std::fs::write(dir.path().join(".T.1.new"), b"half a table").unwrap();
    let alive = dir.path().join(".T.2.new");
    std::fs::create_dir(&alive).unwrap();
    let lock = std::fs::File::open(&alive).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let others = [".T.new", ".T.x1.new", ".T..new", ".U.1.new", "T.1.new"];
    for other in others {
        std::fs::create_dir(dir.path().join(other)).unwrap();
    }
    write_dataset(&trace, &About::default(), &path, &mut go).unwrap();
    let mut expected = [&others[..], &[".T.2.new", "T"]].concat();
    expected.sort_unstable();
    assert_eq!(entries(dir.path()), expected);
    drop(lock);
    write_parquet(&trace, &dir.path().join("T")).unwrap_err();
    assert!(!alive.exists());
}

#[test]
fn a_fifo_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo.darshan");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for log in [&fifo, Path::new("/dev/tty"), Path::new("/dev/null"), dir.path()] {
        let message = opened(log).unwrap_err().to_string();
        assert!(message.contains(log.to_str().unwrap()), "{message}");
    }
}
