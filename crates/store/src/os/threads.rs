//! A bounded set of threads, for work that can be left undone: what finds no thread is not done.

use crate::os::first_process::FirstProcess;
use crate::os::sync::{Condvar, Mutex, guard, thread};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};

/// Most threads of a set.
const MOST_THREADS: usize = 16;
/// Most pieces of work that wait for one.
const MOST_WAITING: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

/// The threads. They begin with the first work, and end with the set.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
    /// The process whose threads they are.
    process: FirstProcess,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    threads: usize,
    idle: usize,
    has_ended: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Threads {
    /// Has a thread do `work`, which must not panic; `false` where there is none for it, and none can be. One short lock.
    pub(crate) fn try_do(&self, work: impl FnOnce() + Send + 'static) -> bool {
        if !self.process.is_this() {
            return false;
        }
        let mut state = guard(&self.shared.state);
        if state.waiting.len() >= MOST_WAITING {
            return false;
        }
        if state.idle <= state.waiting.len() && state.threads < MOST_THREADS {
            let shared = self.shared.clone();
            let begun = thread::Builder::new().name("stripewise-io".into()).spawn(move || serve(&shared));
            state.threads += usize::from(begun.is_ok());
        }
        if state.threads == 0 {
            return false;
        }
        state.waiting.push_back(Box::new(work));
        drop(state);
        self.shared.came.notify_one();
        true
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if self.process.was_this() {
            guard(&self.shared.state).has_ended = true;
            self.shared.came.notify_all();
        }
    }
}

/// Lets this thread run on all processors that its process may run on, as the first thread of it does. A thread of a mount
/// that serves one processor's requests is tied to that, and a thread begins tied as the one is that makes it. Two system
/// calls.
pub fn run_anywhere() {
    if let Ok(all) = rustix::thread::sched_getaffinity(Some(rustix::process::getpid())) {
        // Elsewhere it is slower, and as right.
        let _ = rustix::thread::sched_setaffinity(None, &all);
    }
}

/// What a thread does: the work that waits, until the set has ended and none does.
fn serve(shared: &Shared) {
    run_anywhere();
    let mut state = guard(&shared.state);
    loop {
        if let Some(work) = state.waiting.pop_front() {
            drop(state);
            work();
            state = guard(&shared.state);
        } else if state.has_ended {
            return;
        } else {
            state.idle += 1;
            state = shared.came.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    #[test]
    fn work_is_not_tied_to_the_processor_of_the_thread_that_asks_first() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let all = sched_getaffinity(Some(rustix::process::getpid())).unwrap();
        let asked = std::thread::spawn(|| {
            let mut one = CpuSet::new();
            one.set(
                (0..CpuSet::MAX_CPU).find(|processor| sched_getaffinity(None).unwrap().is_set(*processor)).unwrap(),
            );
            sched_setaffinity(None, &one).unwrap();
            let (threads, (done, finished)) = (Threads::default(), channel());
            assert!(threads.try_do(move || done.send(sched_getaffinity(None).unwrap()).unwrap()));
            finished.recv().unwrap()
        });
        assert!(asked.join().unwrap() == all);
    }

    #[test]
    fn work_is_done_by_threads_of_which_there_are_no_more_than_the_bound() {
        let threads = Threads::default();
        // All but this thread's share can only go on together.
        let (together, (done, finished)) = (Arc::new(Barrier::new(MOST_THREADS + 1)), channel());
        let mut accepted = 0;
        while {
            let (together, done) = (together.clone(), done.clone());
            threads.try_do(move || {
                together.wait();
                done.send(()).unwrap();
            })
        } {
            accepted += 1;
            assert!(accepted <= MOST_THREADS + MOST_WAITING, "what waits is bounded");
        }
        assert!(accepted >= MOST_WAITING && guard(&threads.shared.state).threads == MOST_THREADS);
        // What was accepted is done, in groups of the threads.
        for _ in 0..accepted / MOST_THREADS {
            together.wait();
            (0..MOST_THREADS).for_each(|_| finished.recv().unwrap());
        }
    }

    #[test]
    fn threads_end_with_their_set() {
        let threads = Threads::default();
        let (done, finished) = channel();
        assert!(threads.try_do(move || done.send(()).unwrap()));
        finished.recv().unwrap();
        let shared = Arc::downgrade(&threads.shared);
        drop(threads);
        while shared.strong_count() > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_that_did_not_begin_them_has_none() {
        let threads = Threads::default();
        threads.process.give_to(std::process::id() + 1);
        assert!(!threads.try_do(|| ()));
    }
}
