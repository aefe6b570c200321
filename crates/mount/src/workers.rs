//! The threads that wait for requests.
//!
//! The kernel gives requests to waiting threads in turn. With dozens of them, each request of a single program would
//! find another thread, whose buffers have long left the processor's caches. So only one more
//! thread waits than there is work for; the others are parked until all are busy.

use std::cell::RefCell;
use std::sync::{Arc, PoisonError};

use crate::lock;
use crate::sync::{Condvar, Mutex, thread_local};

/// Threads that wait for requests; a further one that has nothing to do is parked.
const WAITING: usize = 2;

/// The threads of a mount that have served a request.
#[derive(Debug, Default)]
pub struct Workers {
    state: Mutex<State>,
    needed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    parked: usize,
    /// Parked threads that were called and have not come yet.
    called: usize,
    /// The mount has ended: no thread parks any more.
    ended: bool,
}

thread_local! {
    /// The workers that this thread is one of.
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// Lives as long as its thread. A thread ends when the mount does; then those that are parked have to end too.
struct Member(Arc<Workers>);

impl Drop for Member {
    fn drop(&mut self) {
        lock(&self.0.state).ended = true;
        self.0.needed.notify_all();
    }
}

impl Workers {
    /// This thread has taken a request. If no thread waits for the next one now, a parked thread is called. One short
    /// lock.
    pub fn take(self: &Arc<Workers>) {
        let joins = MEMBER.with(|member| {
            let mut member = member.borrow_mut();
            let joins = member.is_none();
            member.get_or_insert_with(|| Member(self.clone()));
            joins
        });
        let mut state = lock(&self.state);
        if !joins {
            state.waiting -= 1;
        }
        if state.waiting == 0 && state.parked > state.called {
            state.called += 1;
            drop(state);
            self.needed.notify_one();
        }
    }

    /// This thread is about to wait for the next request; it is parked first if enough others do. Only after
    /// [`Workers::take`]. One short lock.
    pub fn rest(&self) {
        let mut state = lock(&self.state);
        // Only threads that have served count as waiting: others would not tell the parked ones of the mount's end.
        if state.waiting >= WAITING && !state.ended {
            state.parked += 1;
            while state.called == 0 && !state.ended {
                state = self.needed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.parked -= 1;
            state.called = state.called.saturating_sub(1);
        }
        state.waiting += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A thread that takes a request for every `true` that it is sent, is done with it at `false`, and says so when it
    /// waits again.
    fn worker(workers: &Arc<Workers>) -> (Sender<bool>, Receiver<()>) {
        let (orders, received) = channel();
        let (say, said) = channel();
        let workers = workers.clone();
        std::thread::spawn(move || {
            for take in received {
                if take {
                    workers.take();
                } else {
                    workers.rest();
                }
                if say.send(()).is_err() {
                    return;
                }
            }
        });
        (orders, said)
    }

    fn order(worker: &(Sender<bool>, Receiver<()>), take: bool) {
        worker.0.send(take).unwrap();
    }

    fn eventually(workers: &Workers, what: &str, holds: impl Fn(&State) -> bool) {
        for _ in 0..10_000 {
            if holds(&lock(&workers.state)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("{what}: {:?}", lock(&workers.state));
    }

    #[test]
    fn who_is_not_needed_is_parked_and_called_when_all_are_busy() {
        let workers = Arc::new(Workers::default());
        let threads: Vec<_> = (0..4).map(|_| worker(&workers)).collect();
        for thread in &threads {
            order(thread, true);
            thread.1.recv().unwrap();
        }
        for thread in &threads {
            order(thread, false);
        }
        eventually(&workers, "two wait and two are parked", |state| (state.waiting, state.parked) == (2, 2));
        let waiting: Vec<_> = threads.iter().filter(|thread| thread.1.try_recv().is_ok()).collect();
        for thread in &waiting {
            order(thread, true);
        }
        eventually(&workers, "one is called", |state| (state.waiting, state.parked, state.called) == (1, 1, 0));
        for thread in &waiting {
            order(thread, false);
        }
        eventually(&workers, "one more is parked", |state| (state.waiting, state.parked) == (2, 2));
    }

    #[test]
    fn the_end_of_a_thread_lets_the_parked_ones_go() {
        let workers = Arc::new(Workers::default());
        let mut threads: Vec<_> = (0..5).map(|_| worker(&workers)).collect();
        for take in [true, false] {
            for thread in &threads {
                order(thread, take);
            }
        }
        eventually(&workers, "three are parked", |state| (state.waiting, state.parked) == (2, 3));
        let waiting = threads.iter().position(|thread| thread.1.try_iter().count() == 2).unwrap();
        drop(threads.remove(waiting));
        eventually(&workers, "no thread is parked", |state| state.parked == 0);
    }
}
