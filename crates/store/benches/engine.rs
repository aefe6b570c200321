//! What the data plane costs a request, and which engine to use.
//!
//! `cargo bench -p stripewise-store --bench engine [-- DIRECTORY-ON-A-DISK]` prints both; the directory (default: the
//! system's temporary directory) is where the engines are compared with cold caches.

use io_uring::{IoUring, opcode, types};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use stripewise_control::{Action, Request, Way};
use stripewise_store::handle::Optimisations;
use stripewise_store::pool::{PoolSpec, TierSpec};
use stripewise_store::{PlacedFile, Pool, Store, TransferOutcome};

const FILE_BYTES: u64 = 64 << 20;

/// Nanoseconds of one call of each: the least of many short runs that take turns, so that other load hits both.
fn compare(calls: usize, mut one: impl FnMut(u64), mut other: impl FnMut(u64)) -> (f64, f64) {
    let mut best = (f64::MAX, f64::MAX);
    let mut position = 0_u64;
    for _ in 0..200 {
        for (time, run) in [(&mut best.0, &mut one as &mut dyn FnMut(u64)), (&mut best.1, &mut other)] {
            let start = Instant::now();
            for _ in 0..calls {
                position = position.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                run(position >> 20);
            }
            *time = time.min(start.elapsed().as_nanos() as f64 / calls as f64);
        }
    }
    best
}

fn open(path: &Path) -> OwnedFd {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).expect("a file in the directory")
}

fn fill(fd: &OwnedFd, bytes: u64) {
    let chunk = vec![7; 1 << 20];
    for at in (0..bytes).step_by(chunk.len()) {
        rustix::io::pwrite(fd, &chunk, at).expect("space for the test file");
    }
}

/// One server on tmpfs against the plain file beside it.
fn request_cost() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let base = directory.path();
    let tier = TierSpec { name: "mem".into(), servers: vec![base.join("s")], ..TierSpec::default() };
    let spec = PoolSpec {
        name: "bench".into(),
        mount: base.join("mount"),
        namespace: base.join("names"),
        default_width_bytes: None,
        tiers: vec![tier],
    };
    let store = Store::open(Pool::init(&base.join("pool.toml"), &spec).expect("a pool")).expect("its store");
    let flags = OFlags::RDWR | OFlags::CREATE;
    let fd = rustix::fs::openat(store.tree(), "f", flags, Mode::from_raw_mode(0o600)).expect("a file");
    drop(store.create(fd.as_fd(), &Optimisations::default(), || Ok("f".into())).expect("its handle"));
    let inode = store.inode(fd.as_fd()).expect("the inode").expect("a placed one");
    inode.register_writer().expect("registration");
    let chunk = vec![7; 1 << 20];
    for at in (0..FILE_BYTES).step_by(chunk.len()) {
        inode.write_at(&chunk, at).expect("a write");
    }
    let file = PlacedFile::new(store.plane().clone(), inode.placement().expect("a placement"), None).expect("a file");
    // The same bytes by plain calls, into the same buffer, so that only the way differs.
    let placement = inode.placement().expect("a placement");
    let datafile = placement.datafiles().expect("its datafiles").table[0].path(placement.handle);
    let plain = open(&base.join("s").join(datafile.as_str()));
    let sender = stripewise_control::Sender::this_process(Way::Library);
    let request = |action| Request { sender, action, offset: 0, len: 0, rank: 0 };
    for (bytes, calls) in [(4096, 2000), (512 << 10, 20)] {
        let places = FILE_BYTES / bytes as u64;
        let buf = RefCell::new(vec![1; bytes]);
        let read = compare(
            calls,
            |at| {
                assert_eq!(rustix::io::pread(&plain, &mut buf.borrow_mut()[..], at % places * bytes as u64), Ok(bytes))
            },
            |at| {
                let mut buf = buf.borrow_mut();
                let place = at % places * bytes as u64;
                let mut hole = |_, _| Ok(());
                let done = file.read_at(
                    &request(Action::Read),
                    &mut [IoSliceMut::new(&mut buf)],
                    place,
                    &mut || Ok(0),
                    &mut hole,
                );
                assert_eq!(done.expect("a read"), TransferOutcome::Done(bytes));
            },
        );
        let write = compare(
            calls,
            |at| assert_eq!(rustix::io::pwrite(&plain, &buf.borrow(), at % places * bytes as u64), Ok(bytes)),
            |at| {
                let done =
                    file.write_at(&request(Action::Write), &[IoSlice::new(&buf.borrow())], at % places * bytes as u64);
                assert_eq!(done.expect("a write"), TransferOutcome::Done(bytes));
            },
        );
        for (name, (plain_ns, placed_ns)) in [("read", read), ("write", write)] {
            println!(
                "{name} of {bytes} bytes, one server on tmpfs: plain {plain_ns:.0} ns, placed {placed_ns:.0} ns, {:.3} x",
                plain_ns / placed_ns
            );
        }
    }
    inode.release_writer().expect("release");
}

const SUBS: usize = 8;

/// One job for a thread: descriptor, offset, address and length of the buffer, write or read.
type Job = (i32, u64, usize, usize, bool);

struct Threads {
    jobs: Vec<Sender<Job>>,
    done: Receiver<()>,
}

fn work((fd, offset, address, len, write): Job) {
    // SAFETY: descriptor and buffer stay valid until the job is reported done, and no other job has the buffer.
    let (fd, buf) =
        unsafe { (rustix::fd::BorrowedFd::borrow_raw(fd), std::slice::from_raw_parts_mut(address as *mut u8, len)) };
    let done = if write { rustix::io::pwrite(fd, buf, offset) } else { rustix::io::pread(fd, buf, offset) };
    assert_eq!(done, Ok(len));
}

impl Threads {
    fn new() -> Self {
        let (report, done) = channel();
        let jobs = (0..SUBS).map(|_| {
            let (jobs, next) = channel::<Job>();
            let report = report.clone();
            std::thread::spawn(move || {
                for job in next {
                    work(job);
                    if report.send(()).is_err() {
                        break;
                    }
                }
            });
            jobs
        });
        Self { jobs: jobs.collect(), done }
    }

    fn run(&self, jobs: &[Job]) {
        for (thread, job) in self.jobs.iter().zip(jobs) {
            thread.send(*job).expect("a thread that lives");
        }
        for _ in jobs {
            self.done.recv().expect("a thread that lives");
        }
    }
}

fn ring_run(ring: &mut IoUring, jobs: &[Job]) {
    for &(fd, offset, address, len, write) in jobs {
        let entry = if write {
            opcode::Write::new(types::Fd(fd), address as *const u8, len as u32).offset(offset).build()
        } else {
            opcode::Read::new(types::Fd(fd), address as *mut u8, len as u32).offset(offset).build()
        };
        // SAFETY: descriptor and buffer stay valid until the completion is seen below.
        unsafe { ring.submission().push(&entry).expect("a queue as long as the request") };
    }
    ring.submit_and_wait(jobs.len()).expect("submission");
    for entry in ring.completion() {
        assert_eq!(entry.result() as usize, jobs[0].3);
    }
}

fn ahead(jobs: &[Job]) {
    for &(fd, offset, _, len, write) in jobs {
        if !write {
            // SAFETY: the descriptor is open.
            let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
            fadvise(fd, offset, std::num::NonZeroU64::new(len as u64), Advice::WillNeed).expect("fadvise");
        }
    }
    jobs.iter().for_each(|job| work(*job));
}

/// Eight sub-requests of 64 KiB in eight files: one after the other, the same after advice to the kernel, through
/// io_uring, through waiting threads.
fn engines(directory: &Path, name: &str) {
    let scratch = tempfile::tempdir_in(directory).expect("a directory");
    let files: Vec<OwnedFd> = (0..SUBS).map(|i| open(&scratch.path().join(i.to_string()))).collect();
    for file in &files {
        fill(file, FILE_BYTES / SUBS as u64);
        rustix::fs::fsync(file).expect("fsync");
    }
    let mut ring = IoUring::builder().setup_coop_taskrun().setup_single_issuer().build(64).expect("io_uring");
    let threads = Threads::new();
    const BYTES: usize = 64 << 10;
    let mut buffers = vec![vec![1_u8; BYTES]; SUBS];
    for (what, write, cold) in [("reads", false, false), ("cold reads", false, true), ("writes", true, false)] {
        let mut best = [f64::MAX; 4];
        let mut total = [0.0; 4];
        let rounds = if cold { 60 } else { 300 };
        for round in 0..rounds {
            for engine in 0..4 {
                let offset = (round * 4 + engine) * 37 % (FILE_BYTES as usize / SUBS / BYTES) * BYTES;
                let jobs: Vec<Job> = files
                    .iter()
                    .zip(&mut buffers)
                    .map(|(file, buffer)| (file.as_raw_fd(), offset as u64, buffer.as_mut_ptr() as usize, BYTES, write))
                    .collect();
                if cold {
                    for file in &files {
                        fadvise(file, 0, None, Advice::DontNeed).expect("fadvise");
                    }
                }
                let start = Instant::now();
                match engine {
                    0 => jobs.iter().for_each(|job| work(*job)),
                    1 => ahead(&jobs),
                    2 => ring_run(&mut ring, &jobs),
                    _ => threads.run(&jobs),
                }
                let time = start.elapsed().as_secs_f64() * 1e6;
                best[engine] = best[engine].min(time);
                total[engine] += time / rounds as f64;
            }
        }
        println!(
            "{SUBS} {what} of {BYTES} bytes on {name}, best (mean): serial {:.0} ({:.0}) us, advice {:.0} ({:.0}) us, \
             io_uring {:.0} ({:.0}) us, threads {:.0} ({:.0}) us",
            best[0], total[0], best[1], total[1], best[2], total[2], best[3], total[3]
        );
    }
}

fn main() {
    let directory = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    request_cost();
    engines(Path::new("/dev/shm"), "tmpfs");
    engines(&directory.map_or_else(std::env::temp_dir, PathBuf::from), "disk");
}
