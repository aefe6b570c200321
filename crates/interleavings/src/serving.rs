//! The mount's threads that wait for requests.

use crate::lock;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use stripewise_mount::parts::Workers;

const THREADS: usize = 4;

/// The kernel's side: requests that wait for a thread.
#[derive(Default)]
struct Kernel {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Made by programs, taken by threads, answered.
    made: usize,
    taken: usize,
    answered: usize,
    ended: bool,
}

impl Kernel {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    fn wait(&self, holds: impl Fn(&State) -> bool) {
        drop(self.changed.wait_while(lock(&self.state), |state| !holds(state)).unwrap_or_else(PoisonError::into_inner));
    }

    /// The number of the next request; `None` when the mount has ended.
    fn read(&self) -> Option<usize> {
        let state = self.changed.wait_while(lock(&self.state), |state| state.taken == state.made && !state.ended);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let number = state.taken;
        (number < state.made).then(|| state.taken += 1).map(|()| number)
    }
}

/// What a thread of the mount does; it is answered only when all of the round are with a thread.
fn serves(kernel: &Kernel, workers: &Arc<Workers>, round_ends: impl Fn(usize) -> usize) {
    while let Some(number) = kernel.read() {
        workers.take(|| thread_rng().gen_bool(0.5));
        if thread_rng().gen_bool(0.3) {
            workers.will_wait();
        }
        let all = round_ends(number);
        kernel.wait(|state| state.taken >= all);
        kernel.change(|state| state.answered += 1);
        workers.rest(Duration::ZERO, thread_rng().gen_range(1..=2));
    }
}

/// As many requests as there are threads, each of which waits for all others to be served; alone ones before and after.
/// When the mount ends, all threads do.
///
/// # Panics
/// A request waits for a thread that is parked, or a thread stays.
pub fn requests_that_wait_for_one_another() {
    /// Requests that are made at once.
    const ROUNDS: [usize; 5] = [1, THREADS, 1, THREADS, 2];
    let round_ends = |number: usize| {
        let mut end = 0;
        ROUNDS.into_iter().find_map(|round| {
            end += round;
            (number < end).then_some(end)
        })
    };
    let (kernel, workers) = (Arc::<Kernel>::default(), Arc::new(Workers::new(2)));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (kernel, workers) = (kernel.clone(), workers.clone());
            thread::spawn(move || serves(&kernel, &workers, |number| round_ends(number).expect("it was made")))
        })
        .collect();
    let mut made = 0;
    for round in ROUNDS {
        made += round;
        kernel.change(|state| state.made = made);
        kernel.wait(|state| state.answered == made);
    }
    kernel.change(|state| state.ended = true);
    threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
}
