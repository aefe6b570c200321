//! dftracer: a real log against strace's of the same program, forms of every version by hand, folders, gzip, damage.

mod common;

use common::{collected, damage, of_bytes};
use flate2::{Compression, write::GzEncoder};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use stripewise_import::{IMPORTERS, Importer, Lacks, MemorySink};
use stripewise_trace::{Operation, Record, flags};

fn dftracer() -> &'static dyn Importer {
    *IMPORTERS.iter().find(|importer| importer.name() == "dftracer").expect("listed")
}

/// (path, operation, offset, size, flags) of the rows.
fn shape(all: &MemorySink) -> Vec<(&str, Operation, u64, u64, u16)> {
    let name = |row: &Record| std::str::from_utf8(&all.files[row.file as usize]).expect("text");
    all.rows.iter().map(|row| (name(row), row.operation().expect("known"), row.offset, row.size, row.flags)).collect()
}

fn data(all: &MemorySink) -> Vec<(&str, Operation, u64, u64)> {
    let moves = |op: Operation| matches!(op, Operation::Read | Operation::Write);
    shape(all).into_iter().filter(|row| moves(row.1)).map(|(file, op, at, size, _)| (file, op, at, size)).collect()
}

/// A line of 2.x.
fn call(pid: u32, name: &str, category: &str, ts: u64, args: &str) -> String {
    format!(
        "{{\"id\":1,\"name\":\"{name}\",\"cat\":\"{category}\",\"type\":3,\"pid\":{pid},\"tid\":{pid},\"ts\":{ts},\"dur\":5,\"ph\":1,\
         \"args\":{{\"hhash\":\"1f\",{args}}}}}\n"
    )
}

fn posix(name: &str, ts: u64, args: &str) -> String {
    call(7, name, "POSIX", ts, args)
}

fn named(hash: &str, name: &str) -> String {
    format!(
        "{{\"name\":\"FH\",\"cat\":\"dftracer\",\"type\":1,\"pid\":7,\"tid\":7,\"ph\":4,\
         \"args\":{{\"hhash\":\"1f\",\"name\":\"{name}\",\"value\":\"{hash}\"}}}}\n"
    )
}

const A: &str = "\"fhash\":\"a1\"";

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(text).unwrap();
    packed.finish().unwrap()
}

#[test]
fn a_real_log_has_the_requests_that_strace_saw() {
    let path = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let (ours, summary) = collected(&path("dftracer-python.pfw")).unwrap();
    let (theirs, _) = collected(&path("dftracer-python.strace")).unwrap();
    assert_eq!(data(&ours), data(&theirs));
    assert_eq!(data(&ours).len(), 68);
    assert_eq!(summary.lacks, Lacks::RANKS | Lacks::OFFSETS_RECORDED | Lacks::FINE_TIMES);
    assert!(summary.notes.is_empty() && summary.start_unix_ns.unwrap() / 1_000_000_000 == 1_795_320_685);
    assert_eq!(ours.programs, [&b"unknown"[..], b"python3.11"]);
    for op in [Operation::Open, Operation::Close, Operation::Seek, Operation::Sync] {
        let count = |all: &MemorySink| all.rows.iter().filter(|row| row.op == op as u8).count();
        assert_eq!(count(&ours), count(&theirs), "{op:?}");
    }
    assert!(damage(dftracer(), &std::fs::read(path("dftracer-python.pfw")).unwrap(), 50, 200) > 200);
}

#[test]
fn cursors_follow_each_process_and_file() {
    let log = [
        named("a1", "/f"),
        named("b2", "data/g"),
        posix("open64", 10, &format!("\"flags\":578,\"mode\":420,{A}")),
        posix("write", 20, &format!("\"ret\":100,\"count\":100,{A}")),
        posix("lseek64", 30, &format!("\"ret\":40,\"whence\":1,\"offset\":-60,{A}")),
        posix("read", 40, &format!("\"ret\":20,\"count\":50,{A}")),
        posix("pwrite64", 50, &format!("\"ret\":8,\"offset\":1000,\"count\":8,{A}")),
        posix("read", 60, &format!("\"ret\":-1,\"count\":9,{A}")),
        posix("read", 70, &format!("\"ret\":0,\"count\":9,{A}")),
        call(8, "read", "POSIX", 75, &format!("\"ret\":5,\"count\":5,{A}")),
        posix("close", 80, &format!("\"ret\":0,{A}")),
        posix("read", 90, &format!("\"ret\":1,\"count\":1,{A}")),
        posix("open", 100, &format!("\"flags\":1025,{A}")),
        posix("write", 110, &format!("\"ret\":7,\"count\":7,{A}")),
        posix("dup2", 120, A),
        call(7, "fopen", "STDIO", 130, "\"mode\":\"w+\",\"fhash\":\"b2\""),
        call(7, "fwrite", "STDIO", 140, "\"ret\":3,\"count\":4,\"size\":10,\"fhash\":\"b2\""),
        call(7, "fseek", "STDIO", 150, "\"ret\":0,\"whence\":2,\"offset\":-5,\"fhash\":\"b2\""),
        call(7, "fgetc", "STDIO", 160, "\"ret\":97,\"fhash\":\"b2\""),
        call(7, "fgets", "STDIO", 170, "\"ret_len\":3,\"num\":5,\"fhash\":\"b2\""),
        call(7, "fgets", "STDIO", 180, "\"num\":5,\"fhash\":\"b2\""),
        call(7, "fgetc", "STDIO", 190, "\"ret\":97,\"fhash\":\"b2\""),
    ]
    .concat();
    let (all, summary) = of_bytes(log.as_bytes()).unwrap();
    use Operation::{Close, Open, Read, Seek, Write};
    let unknown = flags::OFFSET_UNKNOWN;
    let expected = [
        ("/f", Open, 0, 0, flags::CREATE),
        ("/f", Write, 0, 100, 0),
        ("/f", Seek, 40, 0, 0),
        ("/f", Read, 40, 20, flags::SHORT),
        ("/f", Write, 1000, 8, 0),
        ("/f", Read, 0, 9, flags::FAILED),
        ("/f", Read, 60, 0, flags::SHORT),
        ("/f", Read, 0, 5, unknown),
        ("/f", Close, 0, 0, 0),
        ("/f", Read, 0, 1, unknown),
        ("/f", Open, 0, 0, flags::APPEND),
        ("/f", Write, 1008, 7, flags::APPEND),
        ("data/g", Open, 0, 0, flags::CREATE),
        ("data/g", Write, 0, 30, flags::SHORT),
        ("data/g", Seek, 25, 0, 0),
        ("data/g", Read, 25, 1, 0),
        ("data/g", Read, 26, 3, 0),
        ("data/g", Read, 0, 1, unknown),
    ];
    assert_eq!(shape(&all), expected);
    assert_eq!((all.rows[1].start_ns, all.rows[1].end_ns), (10_000, 15_000));
    assert!(summary.lacks.contains(Lacks::OFFSETS | Lacks::OFFSETS_RECORDED | Lacks::RANKS | Lacks::FINE_TIMES));
    let notes = summary.notes.join("\n");
    for part in ["offsets of 3 requests", "1 times a descriptor was duplicated", "1 calls moved bytes"] {
        assert!(notes.contains(part), "{notes}");
    }
}

#[test]
fn the_first_versions_name_files_and_descriptors() {
    let line = |name: &str, ts: u64, args: &str| {
        format!(
            "{{\"id\":\"0\",\"name\":\"{name}\",\"cat\":\"POSIX\",\"pid\":\"1\",\"tid\":\"2\",\"ts\":\"{ts}\",\"dur\":\"9\",\
             \"ph\":\"X\",\"args\":{{\"hostname\":\"c\",{args}}}}}\n"
        )
    };
    let log = [
        "[\n ".to_owned(),
        line("open", 5, "\"ret\":18,\"fname\":\"/p/f\",\"flags\":0"),
        line("open", 6, "\"ret\":19,\"fname\":\"/p/f\",\"flags\":0"),
        line("read", 7, "\"ret\":\"100\",\"count\":\"100\",\"fname\":\"/p/f\",\"fd\":18"),
        line("read", 8, "\"ret\":\"30\",\"count\":\"30\",\"fname\":\"/p/f\",\"fd\":19"),
        line("read", 9, "\"ret\":\"100\",\"count\":\"100\",\"fname\":\"/p/f\",\"fd\":18"),
        "]".to_owned(),
    ]
    .concat();
    let (all, summary) = of_bytes(log.as_bytes()).unwrap();
    use Operation::Read;
    assert_eq!(data(&all), [("/p/f", Read, 0, 100), ("/p/f", Read, 0, 30), ("/p/f", Read, 100, 100)]);
    assert!(summary.notes.is_empty() && !summary.lacks.contains(Lacks::CUT), "{summary:?}");
}

#[test]
fn a_folder_is_one_log_with_ranks_directories_and_names_that_come_late() {
    let dir = tempfile::tempdir().unwrap();
    let part = |rank: u32| {
        let told = format!(
            "{{\"id\":4,\"name\":\"PR\",\"cat\":\"dftracer\",\"pid\":7,\"tid\":7,\"ph\":\"M\",\"args\":{{\"name\":\"rank\",\"value\":\"{rank}\"}}}}\n"
        );
        let start = posix("x", 1, "").replace("\"x\",\"cat\":\"POSIX\"", "\"start\",\"cat\":\"dftracer\"");
        let start = start.replace("\"hhash\":\"1f\",", "\"hhash\":\"1f\",\"cwd\":\"d0\",\"cmd_hash\":\"c0\"");
        let late = posix("write", 100 - u64::from(rank), "\"ret\":10,\"count\":10,\"fhash\":\"e5\"");
        let program = named("c0", "./bin/app;-x").replace("FH", "SH");
        let open = posix("open", 50, "\"flags\":0,\"fhash\":\"a1\"");
        let read = posix("read", 60, "\"ret\":10,\"count\":10,\"fhash\":\"a1\"");
        [named("d0", "/home/u"), program, start, late, named("a1", "data/in"), open, read, told, named("e5", "/late")]
            .concat()
    };
    for (name, bytes) in [
        ("app-1-preload.pfw", part(3).into_bytes()),
        // Two members behind each other.
        ("app-2-preload.pfw.gz", [gzip(&part(4).as_bytes()[..700]), gzip(&part(4).as_bytes()[700..])].concat()),
        ("app-3-fork.pfw", Vec::new()),
        ("notes.txt", b"not a log".to_vec()),
    ] {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let (all, summary) = collected(dir.path()).unwrap();
    let ranked: Vec<_> = all.rows.iter().map(|row| (row.rank, row.start_ns)).collect();
    assert_eq!(ranked, [(3, 49_000), (3, 59_000), (4, 95_000), (4, 49_000), (4, 59_000), (3, 96_000)]);
    let files: Vec<_> = data(&all).into_iter().map(|row| row.0).collect();
    assert_eq!(files, ["/home/u/data/in", "/late", "/home/u/data/in", "/late"]);
    assert_eq!(all.programs, [&b"unknown"[..], b"app"]);
    assert!(!summary.lacks.contains(Lacks::RANKS) && !summary.lacks.contains(Lacks::NAMES), "{summary:?}");
    let imported = stripewise_import::open(dir.path(), &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!((imported.about.format.as_str(), imported.trace.files().len()), ("dftracer", 2));
    // A part that is cut says so, and the others are read.
    let path = dir.path().join("app-2-preload.pfw.gz");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 40]).unwrap();
    let (all, summary) = collected(dir.path()).unwrap();
    assert!(all.rows.len() >= 4 && summary.lacks.contains(Lacks::CUT | Lacks::DAMAGED), "{summary:?}");
    assert!(summary.notes.iter().any(|note| note.contains("app-2-preload.pfw.gz")), "{summary:?}");
    let empty = tempfile::tempdir().unwrap();
    assert!(collected(empty.path()).unwrap_err().to_string().contains("no parts of a log (*.pfw, *.pfw.gz)"));
}

#[test]
fn what_cannot_be_known_is_said() {
    // A hash without a name; the same file opened twice; a hash with two names.
    let log = [
        posix("open", 1, "\"flags\":0,\"fhash\":\"77\""),
        posix("open", 2, "\"flags\":0,\"fhash\":\"77\""),
        posix("read", 3, "\"ret\":10,\"count\":10,\"fhash\":\"77\""),
        named("a1", "/x"),
        posix("open", 4, &format!("\"flags\":0,{A}")),
        named("a1", "/y"),
        posix("open", 5, &format!("\"flags\":0,{A}")),
        "{\"cat\":\"POSIX\",\"name\":\"read\",\n".to_owned(),
        "{\"id\":9,\"name\":\"rea".to_owned(),
    ]
    .concat();
    let (all, summary) = of_bytes(log.as_bytes()).unwrap();
    let mut files: Vec<_> = all.files.iter().map(|name| String::from_utf8_lossy(name)).collect();
    files.sort();
    assert_eq!(files, ["/x", "/y", "dftracer-file-0000000000000077"]);
    assert!(summary.lacks.contains(Lacks::NAMES | Lacks::DAMAGED | Lacks::CUT), "{summary:?}");
    let notes = summary.notes.join("\n");
    for part in ["1 requests were made while", "1 times a hash stood", "it ends within a line", "the first is line 8"] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    // Without metadata there is nothing but names of calls and times.
    let bare =
        "{\"id\":1,\"name\":\"read\",\"cat\":\"POSIX\",\"type\":3,\"pid\":7,\"tid\":7,\"ts\":1,\"dur\":2,\"ph\":1}\n";
    assert!(of_bytes(bare.as_bytes()).unwrap_err().to_string().contains("DFTRACER_INC_METADATA=1"));
    let sums = "{\"name\":\"read\",\"cat\":\"POSIX\",\"type\":3,\"ts\":1,\"ph\":2,\"pid\":1,\"tid\":1,\"args\":{\"hhash\":\"1f\",\"count\":3}}\n";
    assert!(of_bytes(sums.as_bytes()).unwrap_err().to_string().contains("only sums over intervals"));
    let own = "{\"id\":1,\"name\":\"f\",\"cat\":\"app\",\"pid\":7,\"tid\":7,\"ts\":1,\"dur\":2,\"ph\":1}\n";
    assert!(of_bytes(own.as_bytes()).unwrap_err().to_string().contains("no calls of POSIX or stdio"));
}

#[test]
fn gzip_is_the_same_and_survives_damage() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dftracer-python.pfw");
    let plain = std::fs::read(&path).unwrap();
    let (expected, _) = of_bytes(&plain).unwrap();
    // Long enough for a thread of its own.
    let mut long = Vec::new();
    (0..200).for_each(|_| long.extend_from_slice(&plain));
    for text in [&plain, &long] {
        let members: Vec<u8> = text.chunks(50_000).flat_map(gzip).collect();
        for packed in [gzip(text), members] {
            let (all, summary) = of_bytes(&packed).unwrap();
            assert_eq!(all.rows.len(), expected.rows.len() * text.len() / plain.len(), "{summary:?}");
            assert_eq!(all.rows[..expected.rows.len()], expected.rows[..]);
            let (all, summary) = of_bytes(&packed[..packed.len() - 9]).unwrap();
            assert!(!all.rows.is_empty() && summary.lacks.contains(Lacks::CUT | Lacks::DAMAGED), "{summary:?}");
        }
    }
}
