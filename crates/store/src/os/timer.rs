//! A thread that does work at given times.

use crate::os::first_process::FirstProcess;
use crate::os::sync::{Condvar, Mutex, guard, thread};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

type Work = Box<dyn FnOnce() + Send>;

/// The thread. It begins with the first work, and ends with the timer; what is not due then is not done.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    shared: Arc<Shared>,
    /// The process whose thread it is.
    process: FirstProcess,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By the time, and by the order in which it came.
    due: BTreeMap<(Instant, u64), Work>,
    came: u64,
    is_running: bool,
    has_ended: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Timer {
    /// Has the thread do `work` at `when`. It must be short and not panic. `false`: there is no thread, and can be none. One
    /// short lock.
    pub(crate) fn try_at(&self, when: Instant, work: impl FnOnce() + Send + 'static) -> bool {
        if !self.process.is_this() {
            return false;
        }
        let mut state = guard(&self.shared.state);
        if !state.is_running {
            let shared = self.shared.clone();
            let begun = thread::Builder::new().name("stripewise-timer".into()).spawn(move || serve(&shared));
            state.is_running = begun.is_ok();
        }
        if !state.is_running {
            return false;
        }
        state.came += 1;
        let key = (when, state.came);
        state.due.insert(key, Box::new(work));
        drop(state);
        self.shared.changed.notify_one();
        true
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.process.was_this() {
            guard(&self.shared.state).has_ended = true;
            self.shared.changed.notify_all();
        }
    }
}

/// What the thread does.
fn serve(shared: &Shared) {
    crate::os::threads::run_anywhere();
    let mut state = guard(&shared.state);
    while !state.has_ended {
        let now = Instant::now();
        match state.due.first_key_value().map(|((when, _), _)| *when) {
            Some(when) if when <= now => {
                let Some((_, work)) = state.due.pop_first() else { continue };
                drop(state);
                work();
                state = guard(&shared.state);
            }
            Some(when) => {
                let waited = shared.changed.wait_timeout(state, when - now);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            None => state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn work_is_done_in_the_order_of_its_times_and_not_before_them() {
        let (timer, (done, finished)) = (Timer::default(), channel());
        let now = Instant::now();
        for number in [3_u32, 1, 2] {
            let done = done.clone();
            let work = move || done.send((number, Instant::now())).unwrap();
            assert!(timer.try_at(now + Duration::from_millis(20) * number, work));
        }
        for number in 1..=3 {
            let (found, at) = finished.recv().unwrap();
            assert!(found == number && at >= now + Duration::from_millis(20) * number);
        }
    }

    #[test]
    fn the_thread_ends_with_its_timer_and_with_it_what_is_not_due() {
        let timer = Timer::default();
        let kept = Arc::new(());
        let held = kept.clone();
        assert!(timer.try_at(Instant::now() + Duration::from_secs(3600), move || drop(held)));
        let shared = Arc::downgrade(&timer.shared);
        drop(timer);
        while shared.strong_count() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    #[test]
    fn a_process_that_did_not_begin_it_has_none() {
        let timer = Timer::default();
        timer.process.give_to(std::process::id() + 1);
        assert!(!timer.try_at(Instant::now(), || ()));
    }
}
