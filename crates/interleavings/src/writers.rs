//! The store's writers: they register, write, set the size and leave, in one process and in several.

use crate::pools::{NAME, TestFile, TestPool, WIDTH, layout, small, write};
use rustix::fs::{FallocateFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use stripewise_store::surplus::{DatafileWrite, Surplus};
use stripewise_store::{Files, Inode, OpenInode};
use stripewise_switching::switching;

const THREADS: usize = 3;
const PROCESSES: usize = 2;
const RECORD: usize = 24;
/// Bytes of a file that is there before the threads: one stripe more than they write.
const FIRST_BYTES: usize = (THREADS + 1) * WIDTH as usize;

/// Runs `work` in threads, each with its number and with the file as one of the processes has it.
fn together(file: &TestFile<'_>, work: impl Fn(usize, &Arc<Inode>) + Send + Sync + 'static) {
    let work = Arc::new(work);
    switching(|| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (work, inode) = (work.clone(), file.inodes[number % file.inodes.len()].clone());
                thread::spawn(move || work(number, &inode))
            })
            .collect();
        for thread in threads {
            thread.join().expect("a thread");
        }
    });
}

/// Each thread registers twice, writes bytes of its own, and leaves. What was written is counted at once, and the last
/// one stores the size and removes the lock file.
///
/// # Panics
/// That is not so, or bytes are lost.
pub fn writers_come_and_go(pool: &TestPool) {
    let file = TestFile::make(pool, &layout(0, 2), thread_rng().gen_range(1..=PROCESSES));
    let written = AtomicUsize::new(0);
    together(&file, move |number, inode| {
        for round in 0..2 {
            let at = (round * THREADS + number) * RECORD;
            let look = || {
                let known = written.load(Ordering::SeqCst);
                assert!(
                    inode.size_bytes().expect("a size") as usize >= known,
                    "the size does not count what is written"
                );
            };
            look();
            if thread_rng().gen_bool(0.3) {
                inode.has_writers().expect("an answer");
            }
            inode.register_writer().expect("a writer");
            write(inode, &[number as u8 + 1; RECORD], at as u64);
            written.fetch_max(at + RECORD, Ordering::SeqCst);
            if thread_rng().gen_bool(0.3) {
                inode.sync(false).expect("synced");
            }
            look();
            inode.release_writer().expect("released");
            look();
        }
    });
    let expected: Vec<u8> = (0..2 * THREADS * RECORD).map(|at| (at / RECORD % THREADS) as u8 + 1).collect();
    assert_eq!(file.end(), expected);
}

/// Each thread appends two records, under one registration or two. All are in the file, whole, one after the other;
/// also where the kernel finds the end (a file in one datafile).
///
/// # Panics
/// That is not so.
pub fn appends_follow_one_another(pool: &TestPool) {
    let servers = thread_rng().gen_range(1..=2);
    let file = TestFile::make(pool, &layout(0, servers), thread_rng().gen_range(1..=PROCESSES));
    together(&file, |number, inode| {
        for round in 0..2 {
            inode.register_writer().expect("a writer");
            let (at, count) = inode.append(&[(2 * number + round) as u8; RECORD]).expect("appended");
            assert_eq!((at as usize % RECORD, count), (0, RECORD), "a record is not whole");
            inode.release_writer().expect("released");
        }
    });
    let bytes = file.end();
    assert_eq!(bytes.len(), 2 * THREADS * RECORD, "the size is not that of all records");
    let mut found: Vec<_> = bytes.chunks(RECORD).map(|record| record[0]).collect();
    assert!(bytes.chunks(RECORD).all(|record| record.iter().all(|byte| *byte == record[0])), "records are mixed");
    found.sort_unstable();
    assert!(found.iter().copied().eq(0..2 * THREADS as u8), "records are lost: {found:?}");
}

/// What one thread does to the file.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// Fills this stripe, which one server has.
    Write(u64),
    Truncate(u64),
    /// `fallocate` from the beginning to here.
    Allocate(u64),
    Sync,
    /// Looks whether the file has a writer.
    Look,
}

impl Change {
    fn draw() -> Self {
        let mut random = thread_rng();
        let size = |random: &mut shuttle::rand::rngs::ThreadRng| [0, 5, WIDTH, 40, 70][random.gen_range(0..5)];
        match random.gen_range(0..8) {
            0..=2 => Self::Write(random.gen_range(0..4)),
            3..=4 => Self::Truncate(size(&mut random)),
            5 => Self::Allocate(size(&mut random).max(1)),
            6 => Self::Sync,
            _ => Self::Look,
        }
    }

    fn carry_out(self, inode: &Arc<Inode>, byte: u8) {
        match self {
            Self::Truncate(size) => inode.truncate(size).expect("a size"),
            Self::Look => drop(inode.has_writers().expect("an answer")),
            Self::Write(stripe) => {
                // As a program of a mount: of a small file, a writer of its head alone.
                let open = OpenInode::new(inode.clone(), true, false);
                open.register_up_to((stripe + 1) * WIDTH).expect("a writer");
                write(inode, &[byte; WIDTH as usize], stripe * WIDTH);
                open.release().expect("released");
            }
            Self::Allocate(to) => {
                Self::registered(inode, || inode.allocate(FallocateFlags::empty(), 0, to).expect("space"));
            }
            Self::Sync => inode.sync(true).expect("synced"),
        }
    }

    fn registered(inode: &Inode, work: impl FnOnce()) {
        inode.register_writer().expect("a writer");
        work();
        inode.release_writer().expect("released");
    }

    /// The same to bytes in memory.
    fn apply(self, bytes: &mut Vec<u8>, byte: u8) {
        match self {
            Self::Truncate(size) => bytes.resize(size as usize, 0),
            Self::Allocate(to) => bytes.resize(bytes.len().max(to as usize), 0),
            Self::Write(stripe) => {
                let (from, to) = ((stripe * WIDTH) as usize, ((stripe + 1) * WIDTH) as usize);
                bytes.resize(bytes.len().max(to), 0);
                bytes[from..to].fill(byte);
            }
            Self::Sync | Self::Look => {}
        }
    }
}

/// Three threads write, set the size, allocate, sync and look, one thing each, in a file over one or two servers, or in a small one.
/// What comes out is what they would have made one after the other, in some order.
///
/// # Panics
/// It is something else: a size was undone, bytes were lost or came back.
pub fn changes_of_size_and_writes(pool: &TestPool) {
    let servers = thread_rng().gen_range(0..=2);
    let places = if servers == 0 { small() } else { layout(0, servers) };
    let file = TestFile::make(pool, &places, thread_rng().gen_range(1..=PROCESSES));
    let before = vec![0xee; [0, 9, 25, 50][thread_rng().gen_range(0..4)]];
    file.fill(&before);
    let changes: [Change; THREADS] = std::array::from_fn(|_| Change::draw());
    together(&file, move |number, inode| changes[number].carry_out(inode, number as u8 + 1));
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let in_order = |order: [usize; THREADS]| {
        let mut bytes = before.clone();
        order.into_iter().for_each(|number| changes[number].apply(&mut bytes, number as u8 + 1));
        bytes
    };
    let found = file.end();
    assert!(
        orders.into_iter().any(|order| in_order(order) == found),
        "{changes:?} of {} bytes on {servers} servers made {found:?}",
        before.len()
    );
}

/// The time of a file is set after the last write, while its writers leave; another comes and goes without a change, or
/// syncs.
///
/// # Panics
/// The file has another time in the end.
pub fn a_time_that_is_set_while_writers_leave(pool: &TestPool) {
    let file = TestFile::make(pool, &layout(0, 2), 1);
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let inode = &file.inodes[0];
    inode.register_writer().expect("a writer");
    write(inode, &[1; RECORD], 0);
    switching(|| {
        let threads = [0, 1].map(|number| {
            let inode = inode.clone();
            thread::spawn(move || match number {
                0 => inode.set_times(&Timestamps { last_access: time, last_modification: time }).expect("the time"),
                _ if thread_rng().gen_bool(0.5) => inode.sync(true).expect("synced"),
                _ => Change::registered(&inode, || ()),
            })
        });
        inode.release_writer().expect("released");
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
    assert_eq!(inode.attributes().expect("attributes").mtime, time);
    assert_eq!(file.end(), [1; RECORD]);
}

/// The last writer leaves while other processes look at the file.
///
/// # Panics
/// One of them sees another time of change than the last write has made.
pub fn the_time_of_a_file_whose_last_writer_leaves(pool: &TestPool) {
    let file = TestFile::make(pool, &layout(0, 2), PROCESSES);
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
    let inode = &file.inodes[0];
    inode.register_writer().expect("a writer");
    write(inode, &[1; RECORD], 0);
    // The size is not in the inode yet: what puts it there changes the inode now, and the time is long ago.
    inode.set_times(&Timestamps { last_access: time, last_modification: time }).expect("the time");
    switching(|| {
        let threads = file.inodes[1..].iter().map(|inode| {
            let inode = inode.clone();
            thread::spawn(move || (0..3).map(|_| inode.attributes().expect("attributes").mtime).collect::<Vec<_>>())
        });
        let threads: Vec<_> = threads.collect();
        inode.release_writer().expect("released");
        for thread in threads {
            assert_eq!(thread.join().expect("a thread"), [time; 3]);
        }
    });
    assert_eq!(file.end(), [1; RECORD]);
}

/// One thread has written six stripes, of which only the first counts, and cuts off what is behind. The others write
/// behind that, or make the file longer by setting its size, meanwhile.
///
/// # Panics
/// Bytes of the others are lost, or the file is longer than it has to be.
pub fn a_write_that_failed_half_way(pool: &TestPool) {
    let file = TestFile::make(pool, &layout(0, 2), thread_rng().gen_range(1..=PROCESSES));
    file.fill(&[0xee; WIDTH as usize]);
    let others: [bool; THREADS] = std::array::from_fn(|number| number > 0 && thread_rng().gen_bool(0.7));
    together(&file, move |number, inode| {
        let own = [number as u8 + 1; 6 * WIDTH as usize];
        if number > 0 && !others[number] {
            return;
        }
        inode.register_writer().expect("a writer");
        if number == 0 {
            let version = inode.placement().expect("a placement").version;
            write(inode, &own, 0);
            let part = |index, before_bytes| DatafileWrite { index, before_bytes, from: 0, to: 3 * WIDTH };
            let parts = [part(0, WIDTH), part(1, 0)].into_iter().collect();
            inode.cut_back(&Surplus { version, kept_to: WIDTH, parts }).expect("cut back");
        } else {
            // What another has written begins behind the surplus, on each server.
            write(inode, &own[..2 * WIDTH as usize], (6 + 2 * number as u64) * WIDTH);
        }
        inode.release_writer().expect("released");
    });
    let processes = file.inodes.len();
    let found = file.end();
    let stripes = |from: usize, count: usize| &found[from * WIDTH as usize..(from + count) * WIDTH as usize];
    assert!(stripes(0, 1).iter().all(|byte| *byte == 1), "what was written: {found:?}");
    for number in (1..THREADS).filter(|number| others[*number]) {
        let own = stripes(6 + 2 * number, 2);
        assert!(own.iter().all(|byte| *byte == number as u8 + 1), "another's bytes: {found:?}");
    }
    if !others.contains(&true) && processes == 1 {
        assert_eq!(found.len(), WIDTH as usize, "what did not count is left");
    }
}

/// Threads of one process open a file, make it if there is none, write, read and close it, and take its name away.
///
/// # Panics
/// A thread loses bytes of a file that it has open, or gets no file where one is to be made; or something is left in
/// the end.
pub fn a_name_that_goes_while_the_file_is_open(pool: &TestPool) {
    let files = Files::open(pool.pool()).expect("the pool");
    let unlink = |files: &Files| match files.unlink(Path::new(NAME)) {
        Err(error) if error.errno() != Errno::NOENT => panic!("unlink: {error}"),
        _ => {}
    };
    if thread_rng().gen_bool(0.5) {
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let first = files.open_file(Path::new(NAME), flags, Mode::from_raw_mode(0o600)).expect("a file");
        assert_eq!(first.write_at(&[IoSlice::new(&[7; FIRST_BYTES])], 0).expect("written"), FIRST_BYTES);
    }
    switching(|| {
        let threads = [0, 1, 2].map(|number| {
            let files = files.clone();
            thread::spawn(move || match thread_rng().gen_range(0..4) {
                0 => unlink(&files),
                1 => reads_what_it_finds(&files),
                _ => (0..2).for_each(|_| opens_writes_and_reads(&files, number)),
            })
        });
        unlink(&files);
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
    unlink(&files);
    pool.assert_empty();
}

fn reads_what_it_finds(files: &Arc<Files>) {
    let Ok(file) = files.open_file(Path::new(NAME), OFlags::RDONLY, Mode::empty()) else { return };
    if file.stat().expect("attributes").st_size < FIRST_BYTES as i64 {
        return;
    }
    // The first file, whose last stripe has no writer.
    let mut found = [0; WIDTH as usize];
    file.read_at(&mut [IoSliceMut::new(&mut found)], FIRST_BYTES as u64 - WIDTH).expect("read");
    assert_eq!(found, [7; WIDTH as usize], "bytes of an open file without a writer");
}

fn opens_writes_and_reads(files: &Arc<Files>, number: u8) {
    let flags = OFlags::RDWR | if thread_rng().gen_bool(0.5) { OFlags::CREATE } else { OFlags::empty() };
    let file = match files.open_file(Path::new(NAME), flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => file,
        Err(error) if error.errno() == Errno::NOENT && !flags.contains(OFlags::CREATE) => return,
        Err(error) => panic!("open: {error}"),
    };
    let (offset, mine) = (u64::from(number) * WIDTH, [number + 1; WIDTH as usize]);
    assert_eq!(file.write_at(&[IoSlice::new(&mine)], offset).expect("written"), mine.len());
    let mut found = [0; WIDTH as usize];
    assert_eq!(file.read_at(&mut [IoSliceMut::new(&mut found)], offset).expect("read"), found.len());
    assert_eq!(found, mine, "bytes of an open file");
    file.close().expect("closed");
}
