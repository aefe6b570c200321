//! Names go first at the metadata tier: a request on bytes of inodes waits while the tier is busy with operations on names.
//!
//! A program waits for its operations on names one after the other, and each of them would stand behind the bytes of all small files that
//! came before. So bytes go to the tier only where it has room beside names, and leave half of its places free for those that come next. A
//! request is held for no longer than a few dozen names take, so that bytes are never starved; and where no name came of late nothing is held.
//!
//! Each process orders its own requests: the mount has those of all its programs. A tier whose speed is not known orders nothing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Operations on names for whose time a request is held at most; names of before that count no more.
const HELD_FOR_NAMES: f64 = 64.0;
/// Places of the tier that an operation on names takes: its own, and that of the next one, which its program asks for at once.
const PLACES: u64 = 2;
/// Where the count of names begins in the word of both counts.
const NAME: u64 = 1 << 32;

/// What a process has the metadata tier serve now.
#[derive(Debug)]
pub(crate) struct NamesFirst {
    at_once: u64,
    /// Requests on bytes that are served at once while names come.
    most_bytes: u64,
    longest: Duration,
    /// Operations on names, and below them requests on bytes.
    served: AtomicU64,
    /// When an operation on names began last, by the clock of the requests.
    last_name_ns: AtomicU64,
    /// Requests on bytes that are held.
    held: AtomicU32,
    /// Held while a request finds out that it has to wait, so that it misses no end.
    order: Mutex<()>,
    ended: Condvar,
}

impl NamesFirst {
    /// Of a tier that takes `name_s` for an operation on names, in the mean, and serves `at_once`.
    pub(crate) fn new(name_s: f64, at_once: u32) -> Self {
        let longest_s = HELD_FOR_NAMES * name_s / f64::from(at_once);
        let longest = Duration::try_from_secs_f64(longest_s).unwrap_or(Duration::ZERO);
        Self {
            at_once: u64::from(at_once),
            most_bytes: (u64::from(at_once) / 2).max(1),
            longest,
            served: AtomicU64::new(0),
            last_name_ns: AtomicU64::new(0),
            held: AtomicU32::new(0),
            order: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// An operation on names begins at `now_ns`. Two atomic operations.
    pub(crate) fn begin_name(&self, now_ns: u64) {
        self.served.fetch_add(NAME, Ordering::SeqCst);
        self.last_name_ns.store(now_ns, Ordering::Relaxed);
    }

    /// It has been served. Two atomic operations where nothing is held.
    pub(crate) fn end_name(&self) {
        self.served.fetch_sub(NAME, Ordering::SeqCst);
        self.go_on();
    }

    /// A request on bytes of an inode begins at `now_ns`: returns when the tier has room for it beside names, or it was held long
    /// enough. Three atomic operations where it has.
    pub(crate) fn begin_bytes(&self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.last_name_ns.load(Ordering::Relaxed));
        if since_ns > self.longest.as_nanos() as u64 {
            self.served.fetch_add(1, Ordering::SeqCst);
        } else if !self.is_let_in() {
            self.wait();
        }
    }

    /// It has been served. Two atomic operations where nothing is held.
    pub(crate) fn end_bytes(&self) {
        self.served.fetch_sub(1, Ordering::SeqCst);
        self.go_on();
    }

    fn is_let_in(&self) -> bool {
        let has_room = |names: u64, bytes: u64| names * PLACES + bytes < self.at_once && bytes < self.most_bytes;
        let beside = |served: u64| has_room(served / NAME, served % NAME).then_some(served + 1);
        self.served.fetch_update(Ordering::SeqCst, Ordering::SeqCst, beside).is_ok()
    }

    #[inline(never)]
    fn wait(&self) {
        let until = Instant::now() + self.longest;
        self.held.fetch_add(1, Ordering::SeqCst);
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_let_in() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.served.fetch_add(1, Ordering::SeqCst);
                break;
            }
            order = self.ended.wait_timeout(order, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(order);
        // There may be room for one more.
        if self.held.fetch_sub(1, Ordering::SeqCst) > 1 {
            self.ended.notify_one();
        }
    }

    /// Has one that is held look again, if there is one.
    fn go_on(&self) {
        if self.held.load(Ordering::SeqCst) > 0 {
            drop(self.order.lock().unwrap_or_else(PoisonError::into_inner));
            self.ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    /// A thread that begins a request on bytes at `now_ns`, and tells when it may.
    fn bytes_begin(names_first: &Arc<NamesFirst>, now_ns: u64) -> Receiver<()> {
        let (say, said) = channel();
        let names_first = names_first.clone();
        thread::spawn(move || {
            names_first.begin_bytes(now_ns);
            say.send(())
        });
        said
    }

    fn is_held(names_first: &NamesFirst) {
        while names_first.held.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
    }

    fn counts(names_first: &NamesFirst) -> (u64, u64) {
        let served = names_first.served.load(Ordering::SeqCst);
        (served / NAME, served % NAME)
    }

    #[test]
    fn bytes_wait_for_names_and_leave_places_for_the_next() {
        let names_first = Arc::new(NamesFirst::new(1e3, 4));
        names_first.begin_name(5);
        names_first.begin_bytes(6);
        assert_eq!(counts(&names_first), (1, 1), "two places for the name, one for the bytes");
        names_first.begin_name(7);
        let said = bytes_begin(&names_first, 8);
        is_held(&names_first);
        names_first.end_bytes();
        assert!(said.try_recv().is_err(), "the two names have all places");
        names_first.end_name();
        said.recv().unwrap();
        assert_eq!((counts(&names_first), names_first.held.load(Ordering::SeqCst)), ((1, 1), 0));
        names_first.end_name();
        names_first.begin_bytes(9);
        let said = bytes_begin(&names_first, 10);
        is_held(&names_first);
        names_first.end_bytes();
        said.recv().unwrap();
        assert_eq!(counts(&names_first), (0, 2), "half of the places");
    }

    #[test]
    fn bytes_are_held_for_a_while_only() {
        let names_first = NamesFirst::new(1e-4, 2);
        names_first.begin_name(5);
        names_first.begin_bytes(6);
        assert_eq!(counts(&names_first), (1, 1), "the name has not ended");
    }

    #[test]
    fn where_no_name_came_of_late_nothing_is_held() {
        let names_first = NamesFirst::new(1e3, 2);
        names_first.begin_name(5);
        let later_ns = 5 + names_first.longest.as_nanos() as u64 + 1;
        (0..10).for_each(|_| names_first.begin_bytes(later_ns));
        assert_eq!(counts(&names_first), (1, 10));
    }

    #[test]
    fn no_end_is_missed() {
        // Who misses one waits for an hour.
        let names_first = NamesFirst::new(1e2, 2);
        thread::scope(|scope| {
            for number in 0..8 {
                let names_first = &names_first;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        if number % 2 == 0 {
                            names_first.begin_name(1);
                            names_first.end_name();
                        } else {
                            names_first.begin_bytes(1);
                            names_first.end_bytes();
                        }
                    }
                });
            }
        });
        assert_eq!((counts(&names_first), names_first.held.load(Ordering::SeqCst)), ((0, 0), 0));
    }
}
