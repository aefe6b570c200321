//! strace: hand-written logs whose meaning is known, a real run, damaged copies.

mod common;

use common::{Checked, damage, of_bytes};
use proptest::prelude::*;
use std::process::Command;
use stripewise_import::{IMPORTERS, Importer, Lacks, Log};
use stripewise_trace::{Operation, Record, flags};

fn strace() -> &'static dyn Importer {
    *IMPORTERS.iter().find(|importer| importer.name() == "strace").expect("listed")
}

/// (path, op, offset, size, flags) of the rows that move bytes.
fn data(log: &str) -> Vec<(String, Operation, u64, u64, u16)> {
    let (all, _) = of_bytes(log.as_bytes()).expect("a log");
    let moved =
        |row: &&Record| matches!(row.operation(), Some(Operation::Read | Operation::Write | Operation::KernelCopy));
    let name = |row: &Record| String::from_utf8(all.files[row.file as usize].clone()).expect("text");
    all.rows
        .iter()
        .filter(moved)
        .map(|row| (name(row), row.operation().expect("known"), row.offset, row.size, row.flags))
        .collect()
}

fn read(path: &str, offset: u64, size: u64, bits: u16) -> (String, Operation, u64, u64, u16) {
    (path.to_owned(), Operation::Read, offset, size, bits)
}

fn write(path: &str, offset: u64, size: u64, bits: u16) -> (String, Operation, u64, u64, u16) {
    (path.to_owned(), Operation::Write, offset, size, bits)
}

#[test]
fn cursors_move_and_are_shared_by_dup_and_fork() {
    let log = r#"1 1795289310.0 execve("/bin/a", ["a"], 0x1 /* 3 vars */) = 0
1 1795289310.1 openat(AT_FDCWD, "/f", O_RDWR|O_CREAT|O_TRUNC, 0666) = 3
1 1795289310.2 write(3, ""..., 100) = 100
1 1795289310.3 dup(3) = 5
1 1795289310.4 write(5, ""..., 10) = 10
1 1795289310.5 fork() = 2
2 1795289310.6 write(3, ""..., 1) = 1
1 1795289310.7 write(5, ""..., 2) = 2
1 1795289310.8 lseek(3, -50, SEEK_END) = 63
2 1795289310.9 read(5, ""..., 20) = 20
2 1795289311.0 pread64(5, ""..., 7, 4) = 7
1 1795289311.1 read(3, ""..., 200) = 30
1 1795289311.2 read(3, ""..., 200) = 0
1 1795289311.3 readv(3, [{iov_base=""..., iov_len=9}], 1) = -1 EIO (Input/output error)
1 1795289311.4 close(3) = 0
1 1795289311.5 write(5, ""..., 3) = 3
2 1795289311.6 close_range(3, 4294967295, 0) = 0
2 1795289311.7 openat(AT_FDCWD, "/g", O_RDONLY) = 3
2 1795289311.8 read(3, ""..., 4) = 4
1 1795289311.9 exit_group(0) = ?
1 1795289312.0 +++ exited with 0 +++
"#;
    let expected = [
        write("/f", 0, 100, 0),
        write("/f", 100, 10, 0),
        write("/f", 110, 1, 0),
        write("/f", 111, 2, 0),
        read("/f", 63, 20, 0),
        read("/f", 4, 7, 0),
        read("/f", 83, 30, flags::SHORT),
        read("/f", 113, 0, flags::SHORT),
        read("/f", 113, 0, flags::FAILED),
        write("/f", 113, 3, 0),
        read("/g", 0, 4, 0),
    ];
    assert_eq!(data(log), expected);
    let (all, summary) = of_bytes(log.as_bytes()).unwrap();
    assert_eq!(summary.lacks, Lacks::RANKS | Lacks::DURATIONS | Lacks::OFFSETS_RECORDED, "{:?}", summary.notes);
    assert!(all.programs.contains(&b"a".to_vec()));
    let last = all.rows.last().unwrap();
    assert_eq!((last.pid, last.tid, last.start_ns), (2, 2, 1_800_000_000));
}

#[test]
fn appends_go_to_the_end_where_the_size_is_known() {
    let log = r#"openat(AT_FDCWD, "/f", O_WRONLY|O_APPEND) = 3
write(3, ""..., 5) = 5
fstat(3, {st_mode=S_IFREG|0644, st_size=1005, ...}) = 0
write(3, ""..., 5) = 5
openat(AT_FDCWD, "/f", O_WRONLY) = 4
pwrite64(4, ""..., 10, 2000) = 10
write(3, ""..., 6) = 6
fcntl(4, F_SETFL, O_WRONLY|O_APPEND) = 0
ftruncate(4, 30) = 0
write(4, ""..., 7) = 7
write(4, ""..., 8) = 8
"#;
    let append = flags::APPEND;
    let expected = [
        write("/f", 0, 5, append | flags::OFFSET_UNKNOWN),
        write("/f", 1005, 5, append),
        write("/f", 2000, 10, 0),
        write("/f", 2010, 6, append),
        write("/f", 30, 7, append),
        write("/f", 37, 8, append),
    ];
    assert_eq!(data(log), expected);
    let (_, summary) = of_bytes(log.as_bytes()).unwrap();
    assert!(summary.lacks.contains(Lacks::OFFSETS | Lacks::PIDS | Lacks::TIMES | Lacks::DURATIONS));
}

#[test]
fn unfinished_calls_join_and_children_begin_before_their_fork_returns() {
    let log = r#"7 1795289336.000001 openat(AT_FDCWD</w>, "f", O_RDWR <unfinished ...>
8 1795289336.000002 close(9</x>) = 0 <0.000001>
7 1795289336.000003 <... openat resumed>) = 3</w/f> <0.000002>
7 1795289336.000004 write(3</w/f>, ""..., 4) = 4 <0.000001>
7 1795289336.000005 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FILES|CLONE_THREAD <unfinished ...>
9 1795289336.000006 write(3</w/f>, ""..., 4 <unfinished ...>
7 1795289336.000007 <... clone resumed>, parent_tid=[9]) = 9 <0.000002>
9 1795289336.000008 <... write resumed>) = 4 <0.000002>
9 1795289336.000009 openat(AT_FDCWD</w>, "g", O_RDONLY|O_CLOEXEC) = 4</w/g> <0.000001>
7 1795289336.000010 read(4</w/g>, ""..., 9) = 9 <0.000001>
9 1795289336.000011 vfork( <unfinished ...>
10 1795289336.000012 execve("/usr/bin/cat", ["cat"], 0x55 /* 1 var */) = 0 <0.000100>
10 1795289336.000200 read(4</w/h>, ""..., 9) = 9 <0.000001>
10 1795289336.000201 read(3</w/f>, ""..., 9) = 9 <0.000001>
9 1795289336.000202 <... vfork resumed>) = 10 <0.000190>
9 1795289336.000203 pread64(3</w/f>, ""..., 9, 0 <unfinished ...>
"#;
    let expected = [
        write("/w/f", 0, 4, 0),
        write("/w/f", 4, 4, 0),
        read("/w/g", 0, 9, 0),
        read("/w/h", 0, 9, flags::OFFSET_UNKNOWN),
        read("/w/f", 8, 9, 0),
    ];
    assert_eq!(data(log), expected);
    let (all, summary) = of_bytes(log.as_bytes()).unwrap();
    assert_eq!(summary.start_unix_ns, Some(1_795_289_336_000_001_000));
    let second = all.rows.iter().filter(|row| row.op == Operation::Write as u8).nth(1).unwrap();
    assert_eq!((second.pid, second.tid, second.start_ns, second.end_ns), (7, 9, 5_000, 7_000));
    assert!(summary.lacks.contains(Lacks::CUT), "{summary:?}");
    assert!(summary.notes.iter().any(|note| note.starts_with("1 reads and writes had not returned")), "{summary:?}");
}

#[test]
fn renames_keep_the_position_and_pipes_are_no_files() {
    let log = r#"openat(AT_FDCWD</w>, "a", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3</w/a>
write(3</w/a>, ""..., 4) = 4
rename("/w/a", "/w/b") = 0
write(3</w/b>, ""..., 4) = 4
pipe2([4, 5], 0) = 0
write(5<pipe:[77]>, ""..., 4) = 4
socket(AF_INET, SOCK_STREAM, 0) = 6<TCP:[9]>
write(6<TCP:[1.2.3.4:5->6.7.8.9:80]>, ""..., 4) = 4
write(1</dev/null<char 1:3>>, ""..., 4) = 4
write(2, ""..., 4) = 4
openat(AT_FDCWD</w>, "c", O_RDONLY) = 7</w/c>
copy_file_range(7</w/c>, NULL, 3</w/b>, NULL, 9223372035781033984, 0) = 12
copy_file_range(7</w/c>, [100] => [105], 3</w/b>, NULL, 5, 0) = 5
sendfile(6<TCP:[9]>, 7</w/c>, NULL, 50) = 50
"#;
    let copied = |path: &str, offset, size, bits| (path.to_owned(), Operation::KernelCopy, offset, size, bits);
    let into = flags::KERNEL_WRITE;
    let expected = [
        write("/w/a", 0, 4, 0),
        write("/w/b", 4, 4, 0),
        write("/dev/null", 0, 4, flags::OFFSET_UNKNOWN),
        copied("/w/c", 0, 12, 0),
        copied("/w/b", 8, 12, into),
        copied("/w/c", 100, 5, 0),
        copied("/w/b", 20, 5, into),
        copied("/w/c", 12, 50, 0),
    ];
    assert_eq!(data(log), expected);
    let (_, summary) = of_bytes(log.as_bytes()).unwrap();
    assert!(summary.lacks.contains(Lacks::NAMES));
    assert!(summary.notes.iter().any(|note| note.starts_with("1 reads and writes on descriptors")), "{summary:?}");
}

/// Every option that changes the form of a line gives the same requests, in a real run whose requests are known.
#[test]
fn real_runs_in_every_form() {
    let forms: [&[&str]; 6] = [
        &["-f", "-ttt", "-T", "-y", "-s0"],
        &["-f", "-tt", "-T", "-yy"],
        &["-f", "-r", "-y"],
        &["-f", "-t"],
        &["-f", "-ttt", "-y", "-Y", "-s", "4096", "-x"],
        &["-f"],
    ];
    for form in forms {
        let dir = tempfile::tempdir().unwrap();
        let dir_path = dir.path().canonicalize().unwrap();
        let (log, file) = (dir_path.join("log"), dir_path.join("a b\"\u{e4}<>\n"));
        let script = r#"dd if=/dev/zero of="$0" bs=1000 count=3; dd if="$0" of=/dev/null bs=700 skip=1; (echo 1234; echo 56) >> "$0""#;
        let run = Command::new("strace").args(form).arg("-o").arg(&log).args(["sh", "-c", script]).arg(&file).output();
        let run = run.expect("strace is installed");
        assert!(run.status.success(), "{form:?}: {}", String::from_utf8_lossy(&run.stderr));
        let (all, summary) = common::collected(&log).unwrap();
        let name = file.as_os_str().as_encoded_bytes();
        let id =
            all.files.iter().position(|path| path == name).unwrap_or_else(|| panic!("{form:?}: the file is not named"));
        let requests = |op: Operation| -> Vec<(u64, u64)> {
            let of = |row: &&Record| row.file as usize == id && row.op == op as u8 && row.size > 0;
            all.rows.iter().filter(of).map(|row| (row.offset, row.size)).collect()
        };
        let unknown =
            all.rows.iter().filter(|row| row.flags & (flags::OFFSET_UNKNOWN | flags::APPEND) == flags::APPEND);
        assert_eq!(requests(Operation::Read), [(700, 700), (1400, 700), (2100, 700), (2800, 200)], "{form:?}");
        let writes = requests(Operation::Write);
        assert_eq!(writes[..3], [(0, 1000), (1000, 1000), (2000, 1000)], "{form:?}");
        let appended: Vec<u64> = writes[3..].iter().map(|(_, size)| *size).collect();
        assert_eq!(appended, [5, 3], "{form:?}");
        assert!(unknown.count() >= 2 && writes[3..] == [(3000, 5), (3005, 3)], "{form:?}: {writes:?}");
        assert!(!summary.lacks.contains(Lacks::DAMAGED), "{form:?}: {:?}", summary.notes);
        assert_eq!(summary.lacks.contains(Lacks::TIMES), form == ["-f"], "{form:?}");
        let text = std::fs::read(&log).unwrap();
        assert!(damage(strace(), &text, 50, 60) > 90, "{form:?}: damaged text logs are imported");
    }
}

#[test]
fn damaged_copies_survive() {
    let mut log = String::new();
    for index in 0..60 {
        let at = index * 10;
        log +=
            &format!("7 1795289336.{at:06} openat(AT_FDCWD</w>, \"f{index}\", O_RDWR) = 3</w/f{index}> <0.000002>\n");
        log += &format!("7 1795289336.{at:06} write(3</w/f{index}>, \"\\0\\\"\"..., 4 <unfinished ...>\n");
        log += &format!("8 1795289336.{at:06} vfork( <unfinished ...>\n");
        log += &format!("7 1795289336.{at:06} <... write resumed>) = 4 <0.000002>\n");
    }
    assert!(damage(strace(), log.as_bytes(), 50, 1000) > 1000);
}

#[test]
fn hostile_logs_cost_no_more_than_their_length() {
    // Many descriptors, then many forks that each change their copy.
    let mut log = String::new();
    for fd in 3..30_000 {
        log += &format!("1 open(\"/f{fd}\", O_RDONLY) = {fd}\n");
    }
    for child in 2..2_000 {
        log += &format!("1 fork() = {child}\n{child} close(3) = 0\n");
    }
    let (_, summary) = of_bytes(log.as_bytes()).unwrap();
    assert!(summary.notes.iter().any(|note| note.contains("millions of descriptors")), "{summary:?}");

    // A line without end.
    let mut long = b"1 close(3) = 0\n1 write(3, \"".to_vec();
    long.resize(3 << 20, b'a');
    long.extend_from_slice(b"\", 5) = 5\n1 close(4) = 0\n");
    let (_, summary) = of_bytes(&long).unwrap();
    assert!(summary.lacks.contains(Lacks::DAMAGED) && summary.notes[0].contains("longer than"), "{summary:?}");
}

#[test]
fn gzip_is_unpacked_and_others_are_refused() {
    use std::io::Write;
    let log = "1 10.0 open(\"/f\", O_RDONLY) = 3\n1 10.1 read(3, \"\", 5) = 5\n".repeat(2000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(log.as_bytes()).unwrap();
    let packed = gzip.finish().unwrap();
    let (all, summary) = of_bytes(&packed).unwrap();
    assert_eq!((all.rows.len(), summary.format), (4000, "strace"));
    damage(strace(), &packed, 50, 200);
    for text in ["", "hello\n", "offset,size\n1,2\n", "\0\0\0\0", "int main(void) { return 0; }\n"] {
        let error = of_bytes(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("no log that Stripewise knows (") && error.contains("strace"), "{error}");
    }
    assert!(Log::open(std::path::Path::new("/dev/null")).unwrap_err().to_string().contains("not a regular file"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Lines put together from pieces of calls at random: nothing panics, every row holds.
    #[test]
    fn pieces_at_random(pieces in prop::collection::vec(0usize..28, 1..200)) {
        const PIECES: [&str; 28] = [
            "1 ", "2 ", "[pid 3] ", "1795289336.5 ", "00:00:01 ", "\n", "\n", "\n", "read(3", "write(3</a>", "openat(AT_FDCWD</w>, \"x\"",
            ", O_APPEND|O_CREAT", ", 18446744073709551615", ", 5", ") = 5", ") = 3</a>", ") = -1 E", " <0.000001>", " <unfinished ...>",
            "<... read resumed>", "dup2(3, 4", "fork(", "clone(CLONE_FILES", "+++ exited with 0 +++", "lseek(3, 0, SEEK_END", "execve(\"/a\"",
            "copy_file_range(3, NULL, 4, NULL, 5", "close(3",
        ];
        let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, &text).unwrap();
        let _ = strace().import(&Log::open(&path).unwrap(), &mut Checked::default());
        common::survives(strace(), &path);
    }
}

#[test]
fn a_call_that_never_returns_says_nothing_of_durations() {
    let log = "7 1600000000.000000 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3 <0.000010>\n\
               7 1600000000.000100 read(3, \"\"..., 4096) = 4096 <0.000020>\n\
               7 1600000000.000200 exit_group(0)     = ?\n7 1600000000.000300 +++ exited with 0 +++\n";
    let (all, summary) = of_bytes(log.as_bytes()).unwrap();
    assert_eq!(all.rows.len(), 2);
    assert!(!summary.lacks.contains(Lacks::DURATIONS), "{:?}", summary.lacks.words().collect::<Vec<_>>());
}
