//! How many programs ask: as many threads serve, and no more than there are processors. While more ask than these, the threads that
//! serve go before programs.
//!
//! A program that gets its answer is woken, and where no processor is idle it takes that of the thread which would have given the next
//! answer. A thread that goes before programs gives all answers first, and one switch comes after several of them. Where there are
//! processors for all, it would only have the kernel wake programs up on others, which takes longer.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

use stripewise_fuse::{go_before_programs, go_beside_programs};

/// Programs that are told apart, by their numbers.
const TOLD_APART: usize = 64;
/// Who asked no longer ago than this asks still.
const LATELY_MS: u32 = 10;
/// Requests of a thread from one look at who asks to the next.
const LOOKS_EACH: u32 = 32;
/// Bytes whose way takes longer than to wake up a thread for the next ones.
const MANY_BYTES: usize = 128 << 10;

/// Who asked when.
#[derive(Debug)]
pub struct Crowd {
    processors: usize,
    since: Instant,
    /// When the programs with that number, modulo [`TOLD_APART`], asked last: milliseconds after `since`, and 1.
    asked_ms: [AtomicU32; TOLD_APART],
    /// When many bytes were moved last.
    moved_ms: AtomicU32,
    /// Threads that are to serve, as of the last look.
    threads: AtomicUsize,
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
        let asked_ms = [const { AtomicU32::new(0) }; TOLD_APART];
        let threads = AtomicUsize::new(processors);
        Self { processors, since: Instant::now(), asked_ms, moved_ms: AtomicU32::new(0), threads }
    }

    /// A request that begins now moves that many bytes. A comparison for few of them; for many a clock and a store.
    pub fn moves(&self, bytes: usize) {
        if bytes >= MANY_BYTES {
            self.moved_ms.store(self.ms(Instant::now()), Ordering::Relaxed);
        }
    }

    /// Whether many bytes were moved shortly before `now`. A load.
    pub fn moves_many(&self, now: Instant) -> bool {
        is_late(&self.moved_ms, self.ms(now))
    }

    /// This thread has served a request of `asker`, 0 for the kernel itself, that began at `began`. How many threads are to serve.
    /// A store; each 32nd time 64 loads, and two system calls where the crowd has come or gone.
    pub fn served(&self, asker: u32, began: Instant) -> usize {
        let now_ms = self.ms(began);
        if asker > 0 {
            self.asked_ms[asker as usize % TOLD_APART].store(now_ms, Ordering::Relaxed);
        }
        let mut own = OWN.get();
        own.requests = own.requests.wrapping_add(1);
        if own.requests.is_multiple_of(LOOKS_EACH) {
            let asking = self.asking(now_ms);
            self.threads.store(self.threads_for(asking, now_ms), Ordering::Relaxed);
            own.goes(asking > self.processors);
        }
        OWN.set(own);
        self.threads.load(Ordering::Relaxed)
    }

    fn ms(&self, at: Instant) -> u32 {
        1 + at.saturating_duration_since(self.since).as_millis() as u32
    }

    /// Programs that asked of late.
    fn asking(&self, now_ms: u32) -> usize {
        self.asked_ms.iter().filter(|at_ms| is_late(at_ms, now_ms)).count()
    }

    /// Threads that are to serve that many programs: where many bytes are moved, one program has several requests on their way.
    fn threads_for(&self, asking: usize, now_ms: u32) -> usize {
        if is_late(&self.moved_ms, now_ms) { self.processors } else { asking.clamp(1, self.processors) }
    }
}

/// Whether something was of late. Another thread's request may have begun later than this one.
fn is_late(at_ms: &AtomicU32, now_ms: u32) -> bool {
    let at_ms = at_ms.load(Ordering::Relaxed);
    at_ms > 0 && now_ms.abs_diff(at_ms) <= LATELY_MS
}

impl Own {
    /// Goes before programs while it is crowded, where it may. Two system calls where that changes.
    fn goes(&mut self, is_crowded: bool) {
        match (is_crowded, self.nice_before) {
            (true, None) if !self.may_not => {
                self.nice_before = go_before_programs();
                self.may_not = self.nice_before.is_none();
            }
            (false, Some(nice)) => {
                go_beside_programs(nice);
                self.nice_before = None;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn who_has_asked_of_late_asks() {
        let crowd = Crowd::new(2);
        let at = |ms| crowd.since + Duration::from_millis(ms);
        for (asker, ms) in [(7, 0), (8, 1), (7, 2), (7 + TOLD_APART as u32, 3), (0, 3)] {
            crowd.served(asker, at(ms));
        }
        assert_eq!(crowd.asking(crowd.ms(at(3))), 2, "two that are told apart, and the kernel");
        crowd.served(9, at(4));
        assert_eq!(crowd.asking(crowd.ms(at(4))), 3);
        assert_eq!(crowd.asking(crowd.ms(at(11))), 3);
        assert_eq!(crowd.asking(crowd.ms(at(12))), 2, "the second has not asked for 11 ms");
    }

    /// A thread's requests up to its next look, by programs in turn.
    fn serve(crowd: &Crowd, ms: u64, askers: u32) -> usize {
        let served = |turn| crowd.served(1 + turn % askers, crowd.since + Duration::from_millis(ms));
        (0..LOOKS_EACH).map(served).last().unwrap()
    }

    #[test]
    fn as_many_threads_serve_as_programs_ask() {
        let crowd = Crowd::new(2);
        assert_eq!(crowd.served(1, crowd.since), 2, "nothing is known yet");
        let threads = [(100, 1), (200, 2), (300, 5), (400, 1)].map(|(ms, askers)| serve(&crowd, ms, askers));
        assert_eq!(threads, [1, 2, 2, 1]);
    }

    #[test]
    fn all_threads_serve_where_many_bytes_are_moved() {
        let (crowd, late_ms) = (Crowd::new(2), u64::from(LATELY_MS));
        crowd.moves(MANY_BYTES - 1);
        assert_eq!(serve(&crowd, 500, 1), 1);
        crowd.moves(MANY_BYTES);
        // This thread may stand still here for longer than bytes count: requests begin by the time of these.
        let moved_ms = u64::from(crowd.moved_ms.load(Ordering::Relaxed)) - 1;
        let threads = [0, late_ms, late_ms + 1].map(|after_ms| serve(&crowd, moved_ms + after_ms, 1));
        assert_eq!(threads, [2, 2, 1]);
    }

    #[test]
    fn a_thread_goes_before_programs_and_back() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let (crowd, before) = (Crowd::new(2), nice());
        let serve = |ms: u64, askers: u32| {
            for turn in 0..LOOKS_EACH {
                crowd.served(1 + turn % askers, crowd.since + Duration::from_millis(ms));
            }
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
