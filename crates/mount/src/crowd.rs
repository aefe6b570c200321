//! Whether more programs ask than there are processors. Then the threads that serve go before programs.
//!
//! A program that gets its answer is woken, and where no processor is idle it takes that of the thread which would have given the next
//! answer. A thread that goes before programs gives all answers first, and one switch comes after several of them. Where there are
//! processors for all, it would only have the kernel wake programs up on others, which takes longer.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use stripewise_fuse::{go_before_programs, go_beside_programs};

/// Programs that are told apart, by their numbers.
const TOLD_APART: usize = 64;
/// Who asked no longer ago than this asks still.
const LATELY_MS: u32 = 10;
/// Requests of a thread from one look whether it is crowded to the next.
const LOOKS_EACH: u32 = 32;

/// Who asked when.
#[derive(Debug)]
pub struct Crowd {
    processors: usize,
    since: Instant,
    /// When the programs with that number, modulo [`TOLD_APART`], asked last: milliseconds after `since`, and 1.
    asked_ms: [AtomicU32; TOLD_APART],
}

/// What a thread does now.
#[derive(Clone, Copy, Default)]
struct Own {
    requests: u32,
    /// It goes before programs: its niceness of before.
    nice_before: Option<i32>,
    /// The system refused it.
    may_not: bool,
}

thread_local! {
    static OWN: Cell<Own> = const { Cell::new(Own { requests: 0, nice_before: None, may_not: false }) };
}

impl Crowd {
    /// Of programs on that many processors.
    pub fn new(processors: usize) -> Self {
        Self { processors, since: Instant::now(), asked_ms: [const { AtomicU32::new(0) }; TOLD_APART] }
    }

    /// This thread has served a request of `asker` that began at `began`. A store; each 32nd time 64 loads, and two system calls where the
    /// crowd has come or gone.
    pub fn served(&self, asker: u32, began: Instant) {
        let now_ms = self.ms(began);
        self.asked_ms[asker as usize % TOLD_APART].store(now_ms, Ordering::Relaxed);
        let mut own = OWN.get();
        own.requests = own.requests.wrapping_add(1);
        if own.requests.is_multiple_of(LOOKS_EACH) && !own.may_not {
            match (self.is_crowded(now_ms), own.nice_before) {
                (true, None) => {
                    own.nice_before = go_before_programs();
                    own.may_not = own.nice_before.is_none();
                }
                (false, Some(nice)) => {
                    go_beside_programs(nice);
                    own.nice_before = None;
                }
                _ => {}
            }
        }
        OWN.set(own);
    }

    fn ms(&self, at: Instant) -> u32 {
        1 + at.saturating_duration_since(self.since).as_millis() as u32
    }

    /// Whether more programs than processors asked of late.
    fn is_crowded(&self, now_ms: u32) -> bool {
        // Another thread's request may have begun later than this one.
        let asks = |at_ms: u32| at_ms > 0 && now_ms.abs_diff(at_ms) <= LATELY_MS;
        self.asked_ms.iter().filter(|at_ms| asks(at_ms.load(Ordering::Relaxed))).count() > self.processors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_is_crowded_while_more_programs_than_processors_ask() {
        let crowd = Crowd::new(2);
        let at = |ms| crowd.since + Duration::from_millis(ms);
        for (asker, ms) in [(7, 0), (8, 1), (7, 2), (7 + TOLD_APART as u32, 3)] {
            crowd.served(asker, at(ms));
        }
        assert!(!crowd.is_crowded(crowd.ms(at(3))), "two that are told apart");
        crowd.served(9, at(4));
        assert!(crowd.is_crowded(crowd.ms(at(4))));
        assert!(crowd.is_crowded(crowd.ms(at(11))));
        assert!(!crowd.is_crowded(crowd.ms(at(12))), "the second has not asked for 11 ms");
    }

    #[test]
    fn a_thread_goes_before_programs_and_back() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let (crowd, before) = (Crowd::new(2), nice());
        let serve = |ms: u64, askers: u32| {
            (0..LOOKS_EACH).for_each(|turn| crowd.served(turn % askers, crowd.since + Duration::from_millis(ms)));
        };
        serve(0, 2);
        assert_eq!(nice(), before);
        serve(1, 4);
        let may = rustix::process::geteuid().is_root();
        assert_eq!(nice(), if may { before - 10 } else { before });
        serve(1, 4);
        serve(100, 1);
        assert_eq!(nice(), before);
    }
}
