//! Every kind of fault on every server of a request: programs are told of it, and the bytes of the other servers stay right.
//!
//! The servers are file systems of this process, so that maps and what the kernel keeps are the business of a child: a
//! process must not wait, in its memory, for a file system that it serves itself.

mod common;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::cluster::{Cluster, SERVERS};
use fuser::Errno;
use stripewise_store::{Pool, Store};

const WIDTH: usize = 4096;
const KINDS: [Kind; 5] = [Kind::Full, Kind::OverQuota, Kind::Broken, Kind::ReadOnly, Kind::Gone];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Full,
    OverQuota,
    Broken,
    ReadOnly,
    Gone,
}

impl Kind {
    /// What the server's file system says.
    fn said(self) -> Errno {
        match self {
            Kind::Full => Errno::ENOSPC,
            Kind::OverQuota => Errno::EDQUOT,
            Kind::ReadOnly => Errno::EROFS,
            Kind::Broken | Kind::Gone => Errno::EIO,
        }
    }

    /// What programs are told.
    fn told(self) -> i32 {
        self.said().code()
    }

    /// What they are told by `close`: the kernel keeps no more of an error of its pages than that.
    fn told_by_close(self) -> i32 {
        if self == Kind::Full { libc::ENOSPC } else { libc::EIO }
    }
}

impl Cluster {
    fn strike(&mut self, server: usize, kind: Kind) {
        if kind == Kind::Gone {
            return self.take_away(server);
        }
        self.servers[server].as_ref().unwrap().set(|faults| {
            (faults.write, faults.create) = (Some(kind.said()), Some(kind.said()));
        });
    }

    /// As [`Cluster::strike`], for changes of sizes, modes and times and for opening for writing as well.
    fn strike_changes(&mut self, server: usize, kind: Kind) {
        self.strike(server, kind);
        if let Some(faulty) = &self.servers[server] {
            faulty.set(|faults| (faults.open, faults.change) = (Some(kind.said()), Some(kind.said())));
        }
    }

    /// What the servers have of a file.
    fn below(&self, name: &str) -> Vec<u8> {
        let store = Store::open(Pool::load(&self.pool.file()).unwrap()).unwrap();
        let inode = store.lookup(name.as_ref()).unwrap().unwrap();
        let mut bytes = vec![0; inode.size_bytes().unwrap() as usize];
        assert_eq!(inode.read_at(&mut bytes, 0).unwrap(), bytes.len());
        bytes
    }
}

/// Carries out lines of Python as they come, and answers each with its value or the number of its error.
const WORKER: &str = r#"
import mmap, os, signal, subprocess, sys
# Whatever hangs ends with the worker, and the test with it.
signal.alarm(120)
os.chdir(os.environ['M'])
def shared(fd, length):
    global pages
    pages = mmap.mmap(fd, length)
    sum(pages[::4096])
def fill(byte):
    pages[:] = bytes([byte]) * len(pages)
def write(fd, byte, length):
    done = 0
    while done < length: done += os.write(fd, bytes([byte]) * (length - done))
for line in sys.stdin:
    try:
        value = eval(line)
    except OSError as error:
        value = -error.errno
    print(value, flush=True)
"#;

struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(cluster: &Cluster) -> Worker {
        let mut command = Command::new("python3");
        command.args(["-c", WORKER]).env("M", &cluster.mounted.dir);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Worker { child, input, output }
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    /// The errno that this call fails with; 0 if it does not.
    fn errno(&mut self, line: &str) -> i32 {
        match self.ask(line).as_str() {
            "None" => 0,
            number => -number.parse::<i32>().unwrap(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each stripe is `new` throughout where its server is well, and `old` where it is not.
fn only_its_stripes_are_old(found: &[u8], (old, new): (u8, u8), server: usize, what: &str) {
    for (number, stripe) in found.chunks(WIDTH).enumerate() {
        let expected = if number % SERVERS == server { old } else { new };
        let wrong = stripe.iter().filter(|&&byte| byte != expected).count();
        assert_eq!(wrong, 0, "{what}: bytes of stripe {number} are not {expected}");
    }
}

/// The file ends in a part of a stripe, on the server that fails.
fn length(server: usize) -> usize {
    (9 + server) * WIDTH + 100
}

#[test]
fn pages_of_maps_that_cannot_be_written_are_told_by_msync() {
    maps("noatime");
}

#[test]
fn kept_pages_of_maps_that_cannot_be_written_are_told_by_msync() {
    maps("writeback_cache");
}

fn maps(options: &str) {
    let mut cluster = Cluster::new(options);
    let mut worker = Worker::start(&cluster);
    for (kind, server) in KINDS.iter().flat_map(|&kind| (0..SERVERS).map(move |server| (kind, server))) {
        // A file that is full, and one whose bytes have no datafile yet.
        for sparse in [false, true] {
            let what = format!("{options} {kind:?} {server} {sparse}");
            let (name, length, old) = (what.replace(' ', "-"), length(server), if sparse { 0 } else { b'o' });
            match sparse {
                true => File::create(cluster.mounted.path(&name)).unwrap().set_len(length as u64).unwrap(),
                false => fs::write(cluster.mounted.path(&name), vec![old; length]).unwrap(),
            }
            let fd = worker.ask(&format!("os.open('{name}', os.O_RDWR)"));
            assert_eq!(worker.errno(&format!("shared({fd}, {length})")), 0, "{what}");
            cluster.strike(server, kind);
            assert_eq!(worker.errno(&format!("fill({})", b'n')), 0, "{what}");
            assert_eq!(worker.errno("pages.flush()"), kind.told(), "{what}");
            // The server that has gone cannot sync what it has, either.
            let again = if kind == Kind::Gone && !sparse { libc::EIO } else { 0 };
            assert_eq!(worker.errno("pages.flush()"), again, "{what}: told once");
            cluster.heal(server);
            assert_eq!(worker.errno("pages.close()"), 0, "{what}");
            worker.ask(&format!("os.close({fd})"));
            let found = cluster.below(&name);
            assert_eq!(found.len(), length, "{what}");
            only_its_stripes_are_old(&found, (old, b'n'), server, &what);
        }
    }
}

#[test]
fn what_was_kept_and_cannot_be_written_is_told_by_fsync_or_close() {
    let mut cluster = Cluster::new("writeback_cache");
    let mut worker = Worker::start(&cluster);
    for (kind, server) in KINDS.iter().flat_map(|&kind| (0..SERVERS).map(move |server| (kind, server))) {
        for (is_new, syncs) in [(false, false), (false, true), (true, false), (true, true)] {
            let what = format!("{kind:?} {server} {is_new} {syncs}");
            let (name, length, old) = (what.replace(' ', "-"), length(server), if is_new { 0 } else { b'o' });
            if !is_new {
                fs::write(cluster.mounted.path(&name), vec![old; length]).unwrap();
            }
            let fd = worker.ask(&format!("os.open('{name}', os.O_RDWR | os.O_CREAT)"));
            cluster.strike(server, kind);
            assert_eq!(worker.errno(&format!("write({fd}, {}, {length})", b'n')), 0, "{what}");
            if syncs {
                assert_eq!(worker.errno(&format!("os.fsync({fd})")), kind.told(), "{what}");
                let again = if kind == Kind::Gone && !is_new { libc::EIO } else { 0 };
                assert_eq!(worker.errno(&format!("os.fsync({fd})")), again, "{what}: told once");
            }
            let told = if syncs { 0 } else { kind.told_by_close() };
            assert_eq!(worker.errno(&format!("os.close({fd})")), told, "{what}");
            cluster.heal(server);
            let found = cluster.below(&name);
            // Where its last bytes could not be kept, a new file ends before them.
            assert_eq!(found.len(), if is_new { length - 100 } else { length }, "{what}");
            only_its_stripes_are_old(&found, (old, b'n'), server, &what);
        }
    }
    cluster.strike(1, Kind::Full);
    let copy = "subprocess.run(['cp', '-f', 'Full-0-false-true', 'copy'], stderr=subprocess.DEVNULL).returncode";
    assert_eq!(worker.ask(copy), "1", "cp says that it failed");
}

/// What cuts a file off.
const CUTS: [fn(&Path) -> io::Result<()>; 2] = [
    |path| File::options().write(true).open(path)?.set_len((4 * WIDTH + 100) as u64),
    |path| File::options().write(true).truncate(true).open(path).map(drop),
];

#[test]
fn a_file_that_cannot_be_cut_on_one_server_stays_whole() {
    let mut cluster = Cluster::new("noatime");
    let kinds = [Kind::Broken, Kind::ReadOnly, Kind::Gone];
    for (kind, server) in kinds.iter().flat_map(|&kind| (0..SERVERS).map(move |server| (kind, server))) {
        // With its datafiles open for writing in the mount before the fault, and opened only after it.
        for (is_open, (number, cut)) in
            [false, true].into_iter().flat_map(|open| CUTS.iter().enumerate().map(move |cut| (open, cut)))
        {
            let name = format!("{kind:?}-{server}-{is_open}-{number}");
            let (path, content) = (cluster.mounted.path(&name), vec![b'o'; length(server)]);
            let mut file = Some(File::create(&path).unwrap());
            file.as_ref().unwrap().write_all_at(&content, 0).unwrap();
            if !is_open {
                file = None;
            }
            cluster.strike_changes(server, kind);
            let error = cut(&path).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(kind.told()), "{name}: {error}");
            cluster.heal(server);
            assert!(cluster.below(&name) == content, "{name}");
            cut(&path).unwrap();
            assert!(cluster.below(&name).len() < content.len(), "{name}");
            drop(file);
        }
    }
    // A full server can be cut.
    fs::write(cluster.mounted.path("full"), vec![b'o'; length(1)]).unwrap();
    cluster.strike(1, Kind::Full);
    CUTS[0](&cluster.mounted.path("full")).unwrap();
    assert!(cluster.below("full") == vec![b'o'; 4 * WIDTH + 100]);
}

/// A write to several servers, one of which fails: the call tells how many bytes were written without a gap, and the file ends
/// behind them, unless it was longer before.
#[test]
fn a_write_that_fails_half_way_leaves_no_longer_file() {
    let mut cluster = Cluster::new("noatime");
    for (kind, server) in KINDS.iter().flat_map(|&kind| (0..SERVERS).map(move |server| (kind, server))) {
        // A new file; one that has datafiles and no bytes; one that ends within the request, and one behind it.
        for before in [None, Some(0), Some(4 * WIDTH + 100), Some(20 * WIDTH)] {
            let name = format!("{kind:?}-{server}-{before:?}");
            let path = cluster.mounted.path(&name);
            let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            let mut old = Vec::new();
            if let Some(size) = before {
                file.write_all_at(&vec![b'o'; 20 * WIDTH], 0).unwrap();
                file.set_len(size as u64).unwrap();
                old = vec![b'o'; size];
            }
            cluster.strike(server, kind);
            let done = file.write_at(&vec![b'n'; length(server)], 0);
            let kept = *done.as_ref().unwrap_or(&0);
            match done {
                Ok(_) => assert_eq!(kept, server * WIDTH, "{name}"),
                Err(error) => assert_eq!((error.raw_os_error(), server), (Some(kind.told()), 0), "{name}: {error}"),
            }
            cluster.heal(server);
            let size = old.len().max(kept);
            assert_eq!(file.metadata().unwrap().len(), size as u64, "{name}");
            drop(file);
            let found = cluster.below(&name);
            assert_eq!(found.len(), size, "{name}");
            assert!(found[..kept].iter().all(|&byte| byte == b'n'), "{name}: what was written");
            let (middle, end) = found[kept..].split_at(length(server).min(size) - kept);
            assert!(middle.iter().all(|byte| b"on".contains(byte)), "{name}: old or new");
            assert!(end.iter().all(|&byte| byte == b'o'), "{name}: what lies behind");
        }
    }
}

/// The same where the kernel has the bytes carried from file to file.
#[test]
fn a_copy_that_fails_half_way_leaves_no_longer_file() {
    let mut cluster = Cluster::new("noatime");
    fs::write(cluster.mounted.path("from"), vec![b'n'; 9 * WIDTH]).unwrap();
    for kind in [Kind::Full, Kind::OverQuota, Kind::ReadOnly] {
        let from = File::open(cluster.mounted.path("from")).unwrap();
        let to = File::options().write(true).create_new(true).open(cluster.mounted.path(&format!("{kind:?}"))).unwrap();
        to.write_all_at(&[b'o'; 3 * WIDTH], 0).unwrap();
        to.set_len(0).unwrap();
        cluster.strike(1, kind);
        let copied = rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 9 * WIDTH).unwrap();
        assert_eq!(copied, WIDTH, "{kind:?}");
        let again = rustix::fs::copy_file_range(&from, Some(&mut 4096), &to, Some(&mut 4096), 8 * WIDTH).unwrap_err();
        assert_eq!(again.raw_os_error(), kind.told());
        cluster.heal(1);
        assert!(cluster.below(&format!("{kind:?}")) == [b'n'; WIDTH], "{kind:?}");
    }
}
