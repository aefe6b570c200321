//! What the library records, against what the programs are known to have done and what strace counts.

mod common;

use common::{TestPool, compile, library, python};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use stripewise_trace::{Api, Operation, Record, Trace, flags};

struct Run {
    dir: tempfile::TempDir,
}

impl Run {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("trace")).expect("a directory");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, command: &[&str]) -> Command {
        let mut program = Command::new(command[0]);
        program.args(&command[1..]).current_dir(self.dir.path());
        program.env("LD_PRELOAD", library()).env("STRIPEWISE_TRACE", self.path("trace"));
        program
    }

    fn record(&self, command: &[&str]) -> Trace {
        let output = self.command(command).stdin(Stdio::null()).output().expect("a program");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Trace::open(&self.path("trace")).expect("a trace")
    }
}

/// The records of `op` on the file of that name, in order of time.
fn of<'a>(trace: &'a Trace, name: &str, op: Operation) -> Vec<&'a Record> {
    let file = trace.files().iter().find(|file| file.path.file_name() == Some(name.as_ref()));
    let file = file.unwrap_or_else(|| panic!("{name} is not among {:?}", trace.files()));
    let mut records: Vec<_> = trace.of_file(file.id).iter().filter(|record| record.op == op as u8).collect();
    records.sort_by_key(|record| record.start_ns);
    records
}

fn places(records: &[&Record]) -> Vec<(u64, u64)> {
    records.iter().map(|record| (record.offset, record.size)).collect()
}

#[test]
fn each_call_of_a_script_is_there_with_its_place() {
    let run = Run::new();
    let trace = run.record(&[
        python(),
        // Without `site`: a virtual environment makes the interpreter look at directories of its own choosing.
        "-S",
        "-c",
        r#"
import os
fd = os.open('data', os.O_CREAT | os.O_RDWR)
os.write(fd, b'x' * 1000); os.write(fd, b'x' * 500)
os.pwrite(fd, b'y' * 300, 7000)
os.lseek(fd, 200, os.SEEK_SET)
os.read(fd, 100); os.readv(fd, [bytearray(10), bytearray(20)])
os.pread(fd, 1000, 7100)
copy = os.dup(fd); os.read(copy, 5)
os.fsync(fd); os.ftruncate(fd, 4000); os.fstat(fd)
if os.fork() == 0:
    os.read(fd, 7); os._exit(0)
os.wait()
try: os.pread(fd, 10, -1)
except OSError: pass
os.close(fd); os.close(copy)
log = os.open('log', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
os.write(log, b'1234'); os.pwrite(log, b'56', 0)
os.rename('log', 'old'); os.unlink('old')
"#,
    ]);
    assert_eq!(places(&of(&trace, "data", Operation::Write)), [(0, 1000), (1000, 500), (7000, 300)]);
    let reads = of(&trace, "data", Operation::Read);
    assert_eq!(places(&reads), [(200, 100), (300, 30), (7100, 200), (330, 5), (335, 7), (0, 10)]);
    assert_eq!(reads[2].flags, flags::SHORT);
    assert_eq!(reads[5].flags, flags::FAILED);
    assert_ne!(reads[4].pid, reads[3].pid, "the child's read");
    assert_eq!(places(&of(&trace, "data", Operation::Seek)), [(200, 0)]);
    assert_eq!(places(&of(&trace, "data", Operation::Truncate)), [(0, 4000)]);
    assert_eq!(of(&trace, "data", Operation::Open).len(), 1);
    assert_eq!(of(&trace, "data", Operation::Close).len(), 2);
    assert_eq!(of(&trace, "data", Operation::Sync).len(), 1);
    assert_eq!(of(&trace, "data", Operation::Stat).len(), 1);
    let appends = of(&trace, "log", Operation::Write);
    assert_eq!(places(&appends), [(0, 4), (4, 2)]);
    assert!(appends.iter().all(|record| record.flags & flags::APPEND != 0));
    assert_eq!(of(&trace, "log", Operation::Rename).len(), 1);
    assert_eq!(of(&trace, "old", Operation::Unlink).len(), 1);
    assert!(trace.records().iter().all(|record| record.end_ns >= record.start_ns));
    // The interpreter's own files are not the user's.
    let foreign = |path: &Path| !path.starts_with(run.dir.path());
    assert!(!trace.files().iter().any(|file| foreign(&file.path)), "{:?}", trace.files());
    assert_eq!(trace.processes().len(), 2);
}

#[test]
fn stdio_is_recorded_as_the_program_called_it() {
    let run = Run::new();
    std::fs::write(
        run.path("stdio.c"),
        r#"#include <errno.h>
           #include <fcntl.h>
           #include <stdio.h>
           #include <unistd.h>
           int main(void) {
               char buffer[100];
               if (open((char *)1, O_RDONLY) != -1 || errno != EFAULT) return 1;
               if (unlink((char *)1) != -1 || errno != EFAULT) return 2;
               if (unlink("nothing") != -1 || errno != ENOENT) return 3;
               FILE *f = fopen("text", "w+");
               fwrite("0123456789", 2, 5, f); fputs("abc\n", f); fflush(f);
               fseek(f, 4, SEEK_SET); fread(buffer, 1, 6, f); fgets(buffer, 100, f); fread(buffer, 1, 50, f);
               return fclose(f);
           }"#,
    )
    .expect("a source");
    let program = run.path("stdio");
    compile(run.path("stdio.c").to_str().expect("text"), &program);
    let trace = run.record(&[program.to_str().expect("text")]);
    assert_eq!(places(&of(&trace, "text", Operation::Write)), [(0, 10), (10, 4)]);
    assert_eq!(places(&of(&trace, "text", Operation::Read)), [(4, 6), (10, 4), (14, 0)]);
    for (op, count) in [(Operation::Open, 1), (Operation::Close, 1), (Operation::Seek, 1), (Operation::Sync, 1)] {
        assert_eq!(of(&trace, "text", op).len(), count, "{op:?}");
    }
    let text = trace.files().iter().find(|file| file.path == run.path("text")).expect("the file");
    assert!(trace.of_file(text.id).iter().all(|record| record.api == Api::Stdio as u8));
    assert_eq!(of(&trace, "nothing", Operation::Unlink)[0].flags, flags::FAILED);
}

#[test]
fn program_and_rank_come_from_the_environment() {
    let run = Run::new();
    let script = "open('out', 'w').write('x')";
    let mut command = run.command(&[python(), "-c", script]);
    let status = command.env("STRIPEWISE_PROGRAM", "solver").env("PMI_RANK", "7").env("SLURM_PROCID", "3").status();
    assert!(status.expect("python").success());
    let trace = Trace::open(&run.path("trace")).expect("a trace");
    assert_eq!(trace.programs()[0].name, "solver");
    assert!(trace.records().iter().all(|record| record.rank == 7));
    assert!(trace.processes()[0].command.ends_with(script), "{}", trace.processes()[0].command);
}

#[test]
fn a_killed_program_leaves_its_records() {
    let run = Run::new();
    let script = "import os, sys, signal\nfd = os.open('data', os.O_CREAT | os.O_RDWR)\n\
                  [os.pwrite(fd, b'x' * 10, i * 10) for i in range(5000)]\nos.kill(os.getpid(), signal.SIGKILL)";
    let status = run.command(&[python(), "-c", script]).status().expect("python");
    assert!(!status.success());
    let trace = Trace::open(&run.path("trace")).expect("a trace");
    let writes = of(&trace, "data", Operation::Write);
    assert_eq!(places(&writes), (0..5000).map(|i| (i * 10, 10)).collect::<Vec<_>>());
    assert_eq!(trace.lost(), 0);
}

/// Reads, their bytes, writes and their bytes of files below `dir`, as strace sees them.
fn strace(dir: &Path, command: &[&str]) -> (u64, u64, u64, u64) {
    let logs = tempfile::tempdir().expect("a directory");
    let status = Command::new("strace")
        // A log for each thread: in a common one, calls that overlap are torn apart.
        .args(["-ff", "-y", "-s", "0", "-o"])
        .arg(logs.path().join("log"))
        .args(["-e", "trace=read,write,pread64,pwrite64,readv,writev,preadv,pwritev,preadv2,pwritev2"])
        .args(command)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("this test needs strace");
    assert!(status.success(), "{command:?}");
    let (mut reads, mut read_bytes, mut writes, mut written_bytes) = (0, 0, 0, 0);
    let inside = format!("<{}/", dir.display());
    for log in std::fs::read_dir(logs.path()).expect("a listing").flatten() {
        let text = std::fs::read_to_string(log.path()).expect("its log");
        for line in text.lines().filter(|line| line.contains(&inside)) {
            let result = line.rsplit(" = ").next().and_then(|result| result.split(' ').next()?.parse::<i64>().ok());
            let result = result.unwrap_or_else(|| panic!("no result in {line}"));
            let call = line.split('(').next().unwrap_or_default();
            if call.contains("read") {
                reads += 1;
                read_bytes += result.max(0) as u64;
            } else {
                writes += 1;
                written_bytes += result.max(0) as u64;
            }
        }
    }
    (reads, read_bytes, writes, written_bytes)
}

#[test]
fn counts_agree_with_those_of_strace() {
    let script = "d = open('in', 'rb').read()\nf = open('py.out', 'wb', 0)\n[f.write(d[i:i + 777]) for i in range(0, len(d), 777)]";
    let programs: [&[&str]; 4] = [
        &["dd", "if=in", "of=dd.out", "bs=1000"],
        // copy_file_range moves the bytes inside the kernel where the file system can.
        &["cp", "--reflink=never", "--sparse=always", "in", "cp.out"],
        &[python(), "-c", script],
        &[
            "fio",
            "--name=j",
            "--filename=fio.out",
            "--size=1m",
            "--bs=8k",
            "--rw=randrw",
            "--ioengine=psync",
            "--randseed=1",
            "--fallocate=none",
        ],
    ];
    for program in programs {
        let run = Run::new();
        let dir = run.dir.path().canonicalize().expect("a path");
        std::fs::write(dir.join("in"), vec![b'x'; 100_000]).expect("a file");
        let expected = strace(&dir, program);
        assert!(expected.2 > 0, "{program:?} wrote nothing");
        for entry in std::fs::read_dir(&dir).expect("a listing").flatten() {
            if entry.file_name() != "in" && entry.file_name() != "trace" {
                std::fs::remove_file(entry.path()).expect("a fresh start");
            }
        }
        let trace = run.record(program);
        let count = |op: Operation| {
            let records = trace.records().iter().filter(|r| r.op == op as u8 && r.api == Api::Posix as u8);
            records.fold((0, 0), |(count, bytes), r| {
                (count + 1, bytes + if r.flags & flags::FAILED == 0 { r.size } else { 0 })
            })
        };
        let (reads, writes) = (count(Operation::Read), count(Operation::Write));
        assert_eq!((reads.0, reads.1, writes.0, writes.1), expected, "{program:?}: reads, bytes, writes, bytes");
    }
}

#[test]
fn mpi_io_is_recorded_with_absolute_places() {
    let run = Run::new();
    let (library, program) = (run.path("libmpi_test.so"), run.path("mpi"));
    compile("mpi.c", &program);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi.c");
    let mut build = Command::new("cc");
    build.args(["-w", "-shared", "-fPIC", "-DLIBRARY", "-o"]).arg(&library).arg(source);
    assert!(build.status().expect("a C compiler").success());
    let trace = run.record(&[program.to_str().expect("text"), library.to_str().expect("text")]);
    assert!(trace.files().iter().any(|file| file.path == Path::new("/data/shared")), "{:?}", trace.files());
    let writes = of(&trace, "shared", Operation::Write);
    assert_eq!(places(&writes), [(1040, 400), (1052, 4), (1080, 12_000_000_000), (0, 4)]);
    assert_eq!(writes[1].flags & flags::FAILED, flags::FAILED);
    assert_eq!(writes[3].flags & (flags::FAILED | flags::OFFSET_UNKNOWN), flags::FAILED | flags::OFFSET_UNKNOWN);
    let reads = of(&trace, "shared", Operation::Read);
    assert_eq!(places(&reads), [(1000, 28), (1028, 36)]);
    assert_eq!(reads[0].flags, flags::COLLECTIVE | flags::SIZE_REQUESTED);
    assert_eq!(reads[1].flags, flags::NONBLOCKING | flags::SIZE_REQUESTED);
    assert_eq!(of(&trace, "shared", Operation::Open).len(), 1);
    assert_eq!(of(&trace, "shared", Operation::Close).len(), 1);
    assert!(trace.records().iter().filter(|record| record.api == Api::MpiIo as u8).count() == 8);
}

#[test]
fn bypassed_requests_are_recorded_as_such() {
    bypassed(None);
}

/// Set by hand, without `stripewise run`, the pool file alone says where the mount is.
#[test]
fn the_mount_is_found_without_its_variable() {
    bypassed(Some(("STRIPEWISE_MOUNT", "")));
}

/// A placement from one pool's mount is not looked for on another pool's servers.
#[test]
fn nothing_is_bypassed_with_the_file_of_another_pool() {
    let (pool, other) = (TestPool::new(), TestPool::new());
    let script = "import os\nfd = os.open(os.environ['M'] + '/f', os.O_CREAT | os.O_RDWR)\n\
                  os.write(fd, b'x' * 9000)\nassert os.pread(fd, 20000, 100) == b'x' * 8900";
    let traced = pool.path("out").join("trace");
    std::fs::create_dir(&traced).expect("a directory");
    let mut command = pool.command(true, &[python(), "-c", script]);
    command.env("STRIPEWISE_POOL", other.path("pool.toml")).env("STRIPEWISE_TRACE", &traced);
    assert!(command.status().expect("python").success());
    let trace = Trace::open(&traced).expect("a trace");
    let (writes, reads) = (of(&trace, "f", Operation::Write), of(&trace, "f", Operation::Read));
    assert_eq!((places(&writes), writes[0].flags), (vec![(0, 9000)], 0));
    assert_eq!((places(&reads), reads[0].flags), (vec![(100, 8900)], flags::SHORT));
}

fn bypassed(variable: Option<(&str, &str)>) {
    let pool = TestPool::new();
    let traced = pool.path("out").join("trace");
    std::fs::create_dir(&traced).expect("a directory");
    let script = "import os\nos.chdir(os.environ['M'])\nfd = os.open('f', os.O_CREAT | os.O_RDWR)\n\
                  os.write(fd, b'x' * 9000)\nassert os.pread(fd, 20000, 100) == b'x' * 8900\nos.read(fd, 10)";
    let mut command = pool.command(true, &[python(), "-c", script]);
    let status = command.envs(variable).env("STRIPEWISE_TRACE", &traced).status().expect("python");
    assert!(status.success());
    let trace = Trace::open(&traced).expect("a trace");
    let data = of(&trace, "f", Operation::Write);
    assert_eq!((places(&data), data[0].flags), (vec![(0, 9000)], flags::BYPASSED));
    let reads = of(&trace, "f", Operation::Read);
    assert_eq!(places(&reads), [(100, 8900), (9000, 0)]);
    assert!(reads.iter().all(|record| record.flags == flags::BYPASSED | flags::SHORT));
    let path = pool.path("mnt").canonicalize().expect("a path").join("f");
    assert!(trace.files().iter().any(|file| file.path == path), "{:?}", trace.files());
}
