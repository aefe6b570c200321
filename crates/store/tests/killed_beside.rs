//! A process that changes a file is killed before or after any of its system calls, while others write the file or wait to.

mod common;

use common::life::{bytes_of, findings};
use common::{TestPool, content, create, layout, pattern, write, write_all};
use rustix::fs::{Mode, OFlags};
use std::io::IoSlice;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::Layout;
use stripewise_store::{Files, Inode, Store};

const TEST: &str = "what_others_write_stays_wherever_a_change_is_killed";
const CHANGE: &str = "STRIPEWISE_TEST_CHANGE";
/// Bytes of the file; the head of one that has its first bytes in its inode is longer than the shorter one.
const LENGTHS: [usize; 2] = [100_000, 20_000];
const HEAD: u64 = 60_000;
/// What each of the others writes.
const WRITTEN: usize = 30_000;
/// Points of each change that are tried, but in a long run, which tries each third.
const POINTS: usize = 25;
/// Beginnings of system calls and ends by turns.
const LONG_EVERY: usize = 3;
/// Ways that are tried at once: each waits for processes most of the time.
const PARTS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Move,
    MoveToInode,
    Truncation,
    /// While another moves the file.
    Write,
}

const CHANGES: [Change; 4] = [Change::Move, Change::MoveToInode, Change::Truncation, Change::Write];

/// The layout with stripes of `width_bytes`, behind a head in the inode or without it.
fn striped(has_head: bool, width_bytes: u64) -> Layout {
    let rest = [(0, width_bytes), (1, 4096)];
    if has_head { layout(&[(0, &[(u16::MAX, 4096)]), (HEAD, &rest)]) } else { layout(&[(0, &rest)]) }
}

/// What is killed, and what of.
#[derive(Debug, Clone, Copy)]
struct Way {
    change: Change,
    has_head: bool,
    length: usize,
    /// One of the others writes before.
    is_beside: bool,
}

impl Way {
    /// All that can be: a move to the inode, or from it, finds no writer.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for change in CHANGES {
            for length in LENGTHS {
                for (has_head, is_beside) in [(false, false), (false, true), (true, false), (true, true)] {
                    let to_head = change == Change::MoveToInode;
                    let is_of_inode = to_head || (change == Change::Move && has_head);
                    if (to_head && has_head) || (is_of_inode && is_beside) {
                        continue;
                    }
                    all.push(Self { change, has_head, length, is_beside });
                }
            }
        }
        all
    }

    /// The layout that it moves to.
    fn layout(self) -> Layout {
        striped(self.change == Change::MoveToInode, 8192)
    }

    /// Where the truncation cuts, and what is killed writes.
    fn cut_at(self) -> usize {
        self.length / 2
    }

    /// Where the others write: the first over the end, the second behind it.
    fn first_at(self) -> usize {
        self.length - 5_000
    }

    fn second_at(self) -> usize {
        self.first_at() + WRITTEN
    }

    /// What is killed writes so much.
    fn killed_bytes(self) -> usize {
        self.first_at() - self.cut_at()
    }
}

/// Opens the file, stops, and changes it: for a process of its own, which is traced.
fn change(file: &str, name: &str, way: Way) {
    let store = Store::of_file(Path::new(file)).unwrap();
    let inode = store.lookup(Path::new(name)).unwrap().unwrap();
    // SAFETY: asks to be traced by the parent and stops this thread; no memory is involved.
    unsafe {
        libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
        libc::raise(libc::SIGSTOP);
    }
    match way.change {
        Change::Truncation => inode.truncate(way.cut_at() as u64).unwrap(),
        Change::Write => write(&inode, &pattern(way.killed_bytes(), 3), way.cut_at() as u64),
        Change::Move | Change::MoveToInode => drop(inode.move_to(&way.layout(), name, &mut |_, _| true).unwrap()),
    }
    // SAFETY: as above.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// A process that is stopped before its change, and the thread that makes it.
struct Traced {
    process: Child,
    thread: libc::pid_t,
}

impl Traced {
    fn start(pool: &TestPool, name: &str, number: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([TEST, "--exact", "--nocapture"]).stdout(Stdio::null());
        let what = format!("{} {name} {number}", pool.pool.file.display());
        let process = command.env(CHANGE, what).spawn().unwrap();
        let (thread, signal) = stopped(-1);
        assert_eq!(signal, Some(libc::SIGSTOP), "the process may not be traced here");
        Self { process, thread }
    }

    /// Goes on to the beginning or the end of its next system call; `false`: the change is made.
    fn step(&self) -> bool {
        // SAFETY: the thread is stopped and traced by this one.
        let gone_on = unsafe { libc::ptrace(libc::PTRACE_SYSCALL, self.thread, 0, 0) };
        assert_eq!(gone_on, 0, "ptrace: {}", std::io::Error::last_os_error());
        match stopped(self.thread).1 {
            Some(libc::SIGTRAP) => true,
            Some(libc::SIGSTOP) => false,
            other => panic!("{other:?}"),
        }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        // The process ends when who traces a thread of it has heard of that one's end.
        while stopped(self.thread).1.is_some() {}
        self.process.wait().unwrap();
    }
}

/// Waits for a child of this thread; it, and the signal that it stopped by.
fn stopped(child: libc::pid_t) -> (libc::pid_t, Option<i32>) {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the status of a child.
    let waited = unsafe { libc::waitpid(child, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    assert!(waited > 0, "waitpid: {}", std::io::Error::last_os_error());
    (waited, libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status)))
}

/// A new file of that kind.
fn made(store: &Arc<Store>, name: &str, way: Way, bytes: &[u8]) -> Arc<Inode> {
    let (_fd, inode) = create(store, name);
    inode.move_to(&striped(way.has_head, 4096), name, &mut |_, _| true).unwrap();
    write(&inode, bytes, 0);
    inode
}

/// Whether `found` has what was written; of what was killed old bytes, or those that it leaves.
fn is_right(way: Way, bytes: &[u8], found: &[u8]) -> bool {
    let (cut_at, first_at) = (way.cut_at(), way.first_at());
    let killed = pattern(way.killed_bytes(), 3);
    let is_of_change = |at: usize| match way.change {
        Change::Truncation => found[at] == 0,
        Change::Write => killed[at - cut_at] == found[at],
        Change::Move | Change::MoveToInode => false,
    };
    found.len() == way.second_at() + WRITTEN
        && found[..cut_at] == bytes[..cut_at]
        && (cut_at..first_at).all(|at| found[at] == bytes[at] || is_of_change(at))
        && found[first_at..] == [pattern(WRITTEN, 1), pattern(WRITTEN, 2)].concat()
}

/// A file of its own, and what others write to it beside the change that is killed after `steps`.
fn killed_after(pool: &TestPool, number: usize, steps: usize) {
    let way = Way::all()[number];
    let (name, what) = (&format!("after{steps}"), format!("{way:?}, killed after {steps}"));
    let stores = [pool.open(), pool.open(), pool.open()];
    let bytes = pattern(way.length, steps as u64);
    let inode = made(&stores[0], name, way, &bytes);
    let reader = stores[1].lookup(Path::new(name)).unwrap().unwrap();
    assert!(content(&reader) == bytes);
    let first = stores[2].lookup(Path::new(name)).unwrap().unwrap();
    if way.is_beside {
        first.register_writer().unwrap();
    }
    let files = Files::open(pool.pool.clone()).unwrap();
    let traced = Traced::start(pool, name, number);
    // One that needs fewer system calls this time is killed when it has made its change.
    let _ = (0..steps).all(|_| traced.step());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let put = if way.is_beside { write_all } else { write };
            put(&first, &pattern(WRITTEN, 1), way.first_at() as u64);
        });
        scope.spawn(|| {
            let file = files.open_file(Path::new(name), OFlags::WRONLY, Mode::empty()).unwrap();
            let put = file.write_at(&[IoSlice::new(&pattern(WRITTEN, 2))], way.second_at() as u64);
            assert_eq!(put.unwrap(), WRITTEN);
        });
        if way.change == Change::Write {
            let moves = pool.open().lookup(Path::new(name)).unwrap().unwrap();
            // It can have met the first writer in its way.
            scope.spawn(move || drop(moves.move_to(&way.layout(), name, &mut |_, _| true)));
        }
        // So that they have come to where they wait, if they do.
        std::thread::sleep(Duration::from_millis(5));
        traced.kill();
    });
    let found = content(&reader);
    assert!(is_right(way, &bytes, &found), "{what}: by a reader");
    if way.is_beside {
        first.release_writer().unwrap();
    }
    drop(files);
    // The next one puts the file in order.
    write(&inode, &[], 0);
    assert!(content(&reader) == found && bytes_of(&pool.open(), name) == found, "{what}: afterwards");
}

/// What another process, which has the file open for writing, or opens it, does beside a truncation that is killed, or after it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Next {
    Lengthens,
    Shortens,
    Appends,
    Reads,
    Moves,
}

const NEXT: [Next; 5] = [Next::Lengthens, Next::Shortens, Next::Appends, Next::Reads, Next::Moves];

impl Next {
    /// What the file has after it, if it had `bytes` before.
    fn after(self, mut bytes: Vec<u8>, length: usize) -> Vec<u8> {
        match self {
            Self::Lengthens => bytes.resize(length * 2, 0),
            Self::Shortens => bytes.resize(length / 4 * 3, 0),
            Self::Appends => bytes.extend(pattern(WRITTEN, 1)),
            Self::Reads | Self::Moves => {}
        }
        bytes
    }

    /// By `inode`, which is registered as a writer, or an open of its own.
    fn run(self, pool: &TestPool, inode: &Inode, name: &str, way: Way) {
        let opened = || pool.open().lookup(Path::new(name)).unwrap().unwrap();
        match self {
            Self::Lengthens => inode.truncate(way.length as u64 * 2).unwrap(),
            Self::Shortens => inode.truncate(way.length as u64 / 4 * 3).unwrap(),
            Self::Appends => assert_eq!(inode.append(&pattern(WRITTEN, 1)).unwrap().1, WRITTEN),
            Self::Reads => {
                let found = content(&opened());
                let bytes = pattern(way.length, 7);
                assert!(found == bytes || found == bytes[..way.cut_at()], "a part of it is cut off");
            }
            // It gives way where the file has to stay.
            Self::Moves => drop(opened().move_to(&way.layout(), name, &mut |_, _| true)),
        }
    }
}

/// A truncation is killed after `steps`, and another process goes on, `next`: the file is cut off, or it is not.
fn cut_and_then(pool: &TestPool, number: usize, next: Next, steps: usize) {
    let way = Way::all()[number];
    let (name, what) = (&format!("{next:?}{steps}"), format!("{next:?} after {steps}"));
    let bytes = pattern(way.length, 7);
    made(&pool.open(), name, way, &bytes);
    let inode = pool.open().lookup(Path::new(name)).unwrap().unwrap();
    inode.register_writer().unwrap();
    let traced = Traced::start(pool, name, number);
    let _ = (0..steps).all(|_| traced.step());
    std::thread::scope(|scope| {
        scope.spawn(|| next.run(pool, &inode, name, way));
        std::thread::sleep(Duration::from_millis(5));
        traced.kill();
    });
    let found = bytes_of(&pool.open(), name);
    let cut = bytes[..way.cut_at()].to_vec();
    assert!([bytes, cut].into_iter().any(|before| next.after(before, way.length) == found), "{what}");
    // Nothing of the cut is left to be finished.
    write(&inode, &found[..1], 0);
    inode.release_writer().unwrap();
    assert!(bytes_of(&pool.open(), name) == found, "{what}: afterwards");
}

/// A process opens the file for writing at a moment of a truncation that makes one system call more and is killed then. What it writes
/// afterwards stays.
fn opened_in_a_cut(pool: &TestPool, number: usize, steps: usize) {
    let way = Way::all()[number];
    let (name, what) = (&format!("opened{steps}"), format!("opened after {steps}"));
    made(&pool.open(), name, way, &pattern(way.length, 7));
    // Else the truncation has the file alone, and who opens it waits.
    let other = pool.open().lookup(Path::new(name)).unwrap().unwrap();
    other.register_writer().unwrap();
    let traced = Traced::start(pool, name, number);
    let _ = (0..steps).all(|_| traced.step());
    let inode = std::thread::scope(|scope| {
        let opens = scope.spawn(|| {
            let inode = pool.open().lookup(Path::new(name)).unwrap().unwrap();
            inode.register_writer().unwrap();
            inode
        });
        // It may wait for the truncation.
        std::thread::sleep(Duration::from_millis(5));
        let _ = traced.step();
        traced.kill();
        opens.join().unwrap()
    });
    write_all(&inode, &pattern(WRITTEN, 2), way.second_at() as u64);
    let found = bytes_of(&pool.open(), name);
    let is_there = |found: &[u8]| found.len() == way.second_at() + WRITTEN && found.ends_with(&pattern(WRITTEN, 2));
    assert!(is_there(&found), "{what}");
    for inode in [inode, other] {
        inode.release_writer().unwrap();
    }
    assert!(is_there(&bytes_of(&pool.open(), name)), "{what}: afterwards");
}

/// How many system calls, each counted at its beginning and its end, the whole change makes.
fn steps_of(pool: &TestPool, number: usize) -> usize {
    let way = Way::all()[number];
    let inode = made(&pool.open(), "whole", way, &pattern(way.length, 1));
    if way.is_beside {
        inode.register_writer().unwrap();
    }
    let traced = Traced::start(pool, "whole", number);
    let steps = (0..).take_while(|_| traced.step()).count();
    traced.kill();
    if way.is_beside {
        inode.release_writer().unwrap();
    }
    steps
}

#[test]
fn what_others_write_stays_wherever_a_change_is_killed() {
    if let Ok(asked) = std::env::var(CHANGE) {
        let words: Vec<_> = asked.split(' ').collect();
        return change(words[0], words[1], Way::all()[words[2].parse::<usize>().unwrap()]);
    }
    let is_long = std::env::var_os("STRIPEWISE_LONG_TESTS").is_some();
    std::thread::scope(|scope| {
        for part in 0..PARTS {
            scope.spawn(move || {
                for number in (part..Way::all().len()).step_by(PARTS) {
                    let pool = TestPool::new(2);
                    let steps = steps_of(&pool, number);
                    assert!(steps > 0);
                    let every = if is_long { LONG_EVERY } else { steps.div_ceil(POINTS) };
                    (0..=steps).step_by(every).for_each(|point| killed_after(&pool, number, point));
                    // Nothing of those that were killed is left.
                    assert_eq!(findings(&pool), [], "{:?}", Way::all()[number]);
                }
            });
        }
    });
}

#[test]
fn who_opens_a_file_that_is_cut_off_keeps_what_it_writes_when_the_cut_is_killed() {
    let is_it = |way: &Way| way.change == Change::Truncation && way.is_beside && !way.has_head;
    let number = Way::all().iter().position(is_it).unwrap();
    let pool = TestPool::new(2);
    let steps = steps_of(&pool, number);
    // At the beginning of each, which it makes then.
    (1..=steps).step_by(2).for_each(|point| opened_in_a_cut(&pool, number, point));
    assert_eq!(findings(&pool), []);
}

#[test]
fn a_truncation_that_is_killed_is_made_or_not_whatever_comes_next() {
    let is_long = std::env::var_os("STRIPEWISE_LONG_TESTS").is_some();
    let is_it = |way: &Way| way.change == Change::Truncation && way.is_beside && !way.has_head;
    let number = Way::all().iter().position(is_it).unwrap();
    std::thread::scope(|scope| {
        for next in NEXT {
            scope.spawn(move || {
                let pool = TestPool::new(2);
                let steps = steps_of(&pool, number);
                let every = if is_long { LONG_EVERY } else { steps.div_ceil(POINTS) };
                (0..=steps).step_by(every).for_each(|point| cut_and_then(&pool, number, next, point));
                assert_eq!(findings(&pool), [], "{next:?}");
            });
        }
    });
}
