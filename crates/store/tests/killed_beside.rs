//! A process that changes a file is killed before or after any of its system calls, while others write the file or wait to.

mod common;

use common::life::{bytes_of, findings, mend};
use common::{TestPool, content, create, layout, pattern, write, write_all};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use stripewise_layout::Layout;
use stripewise_store::Store;

const TEST: &str = "what_others_write_stays_wherever_a_change_is_killed";
const CHANGE: &str = "STRIPEWISE_TEST_CHANGE";
const LENGTH: usize = 100_000;
/// Where the truncation cuts, and what is killed writes.
const CUT_AT: usize = 50_000;
/// Where the others write, each as much: the first over the end, the second behind it.
const FIRST_AT: usize = 90_000;
const SECOND_AT: usize = 120_000;
const WRITTEN: usize = 30_000;
/// Points of each change that are tried, but in a long run, which tries all.
const POINTS: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Move,
    MoveToInode,
    Truncation,
    /// While another moves the file.
    Write,
}

impl Change {
    fn of(name: &str) -> Self {
        let all = [Self::Move, Self::MoveToInode, Self::Truncation, Self::Write];
        all.into_iter().find(|change| format!("{change:?}") == name).unwrap()
    }

    fn layout(self) -> Layout {
        let rest = [(0, 8192), (1, 4096)];
        if self == Self::MoveToInode {
            layout(&[(0, &[(u16::MAX, 4096)]), (60_000, &rest)])
        } else {
            layout(&[(0, &rest)])
        }
    }
}

/// Opens the file, stops, and changes it: for a process of its own, which is traced.
fn change(file: &str, name: &str, change: Change) {
    let store = Store::of_file(Path::new(file)).unwrap();
    let inode = store.lookup(Path::new(name)).unwrap().unwrap();
    // SAFETY: asks to be traced by the parent and stops this thread; no memory is involved.
    unsafe {
        libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
        libc::raise(libc::SIGSTOP);
    }
    match change {
        Change::Truncation => inode.truncate(CUT_AT as u64).unwrap(),
        Change::Write => write(&inode, &pattern(WRITTEN, 3), CUT_AT as u64),
        Change::Move | Change::MoveToInode => drop(inode.move_to(&change.layout(), name, &mut |_, _| true).unwrap()),
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
    fn start(pool: &TestPool, name: &str, change: Change) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([TEST, "--exact", "--nocapture"]).stdout(Stdio::null());
        let what = format!("{} {name} {change:?}", pool.pool.file.display());
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

/// A file of its own, and what others write to it beside the change that is killed after `steps`.
fn killed_after(pool: &TestPool, change: Change, is_beside: bool, steps: usize) {
    let name = format!("{change:?}{is_beside}{steps}");
    let what = format!("{change:?}, beside a writer: {is_beside}, killed after {steps}");
    let stores = [pool.open(), pool.open(), pool.open()];
    let bytes = pattern(LENGTH, steps as u64);
    let (_fd, inode) = create(&stores[0], &name);
    inode.move_to(&layout(&[(0, &[(0, 4096), (1, 4096)])]), &name, &mut |_, _| true).unwrap();
    write(&inode, &bytes, 0);
    let reader = stores[1].lookup(Path::new(&name)).unwrap().unwrap();
    assert!(content(&reader) == bytes);
    let first = stores[2].lookup(Path::new(&name)).unwrap().unwrap();
    if is_beside {
        first.register_writer().unwrap();
    }
    let traced = Traced::start(pool, &name, change);
    // One that needs fewer system calls this time is killed when it has made its change.
    let _ = (0..steps).all(|_| traced.step());
    let (one, two, three) = (pattern(WRITTEN, 1), pattern(WRITTEN, 2), pattern(WRITTEN, 3));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if is_beside { write_all(&first, &one, FIRST_AT as u64) } else { write(&first, &one, FIRST_AT as u64) }
        });
        scope.spawn(|| write(&pool.open().lookup(Path::new(&name)).unwrap().unwrap(), &two, SECOND_AT as u64));
        if change == Change::Write {
            let moved = || {
                pool.open()
                    .lookup(Path::new(&name))
                    .unwrap()
                    .unwrap()
                    .move_to(&change.layout(), &name, &mut |_, _| true)
            };
            // It can have met the first writer in its way.
            scope.spawn(move || drop(moved()));
        }
        // So that they have come to where they wait, if they do.
        std::thread::sleep(Duration::from_millis(5));
        traced.kill();
    });
    let right = |found: &[u8]| {
        let is_of_change = |at: usize| match change {
            Change::Truncation => found[at] == 0,
            Change::Write => at < CUT_AT + WRITTEN && found[at] == three[at - CUT_AT],
            Change::Move | Change::MoveToInode => false,
        };
        found.len() == SECOND_AT + WRITTEN
            && found[..CUT_AT] == bytes[..CUT_AT]
            && (CUT_AT..FIRST_AT).all(|at| found[at] == bytes[at] || is_of_change(at))
            && found[FIRST_AT..] == [&one[..], &two[..]].concat()
    };
    let found = content(&reader);
    assert!(right(&found), "{what}: by a reader");
    if is_beside {
        first.release_writer().unwrap();
    }
    // The next one puts the file in order.
    write(&inode, &[], 0);
    assert!(content(&reader) == found && bytes_of(&pool.open(), &name) == found, "{what}: afterwards");
}

#[test]
fn what_others_write_stays_wherever_a_change_is_killed() {
    if let Ok(asked) = std::env::var(CHANGE) {
        let words: Vec<_> = asked.split(' ').collect();
        return change(words[0], words[1], Change::of(words[2]));
    }
    let is_long = std::env::var_os("STRIPEWISE_LONG_TESTS").is_some();
    let ways = [Change::Move, Change::MoveToInode, Change::Truncation, Change::Write]
        .map(|change| [(change, false), (change, true)]);
    std::thread::scope(|scope| {
        for (change, is_beside) in ways.into_iter().flatten().filter(|way| *way != (Change::MoveToInode, true)) {
            scope.spawn(move || {
                let pool = TestPool::new(2);
                // As many as one that comes to its end has.
                let (_fd, inode) = create(&pool.open(), "whole");
                inode.move_to(&layout(&[(0, &[(0, 4096), (1, 4096)])]), "whole", &mut |_, _| true).unwrap();
                write(&inode, &pattern(LENGTH, 1), 0);
                if is_beside {
                    inode.register_writer().unwrap();
                }
                let traced = Traced::start(&pool, "whole", change);
                let steps = (0..).take_while(|_| traced.step()).count();
                traced.kill();
                if is_beside {
                    inode.release_writer().unwrap();
                }
                assert!(steps > POINTS / 2, "{steps}");
                let every = if is_long { 1 } else { steps.div_ceil(POINTS) };
                for point in (0..=steps).step_by(every) {
                    killed_after(&pool, change, is_beside, point);
                }
                assert!(mend(&pool).iter().all(|finding| finding.lost.is_empty()));
                assert_eq!(findings(&pool), []);
            });
        }
    });
}
