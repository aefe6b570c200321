//! Windows of a file of which several readers need some pieces each: which are kept, and when the next one is fetched.
//!
//! Readers drift apart. The first one to come near the end of the windows has the next one fetched, those behind it find what was
//! fetched for all. A window is kept until its pieces were asked for, and for a while after the last of them: then it leaves. Where
//! there is no room for the next one, it is not fetched, so that the first reader waits for the servers as if there were no
//! windows, and the others catch up.

use std::collections::VecDeque;
use std::ops::Range;

/// Requests of a stream after which a window is idle that none of them was for.
const IDLE: u64 = 16;
/// As many after which it is given up, though not all of it was asked for: its reader has gone, or does not want the rest.
const GIVEN_UP: u64 = 128;

/// One of them.
#[derive(Debug)]
struct KeptWindow<T> {
    range: Range<u64>,
    /// A piece that is asked for twice counts twice.
    asked_bytes: u64,
    /// The request that was for it last, by number.
    used: u64,
    what: T,
}

impl<T> KeptWindow<T> {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Windows one behind the other without a gap, each with what it holds.
#[derive(Debug)]
pub(crate) struct KeptWindows<T> {
    list: VecDeque<KeptWindow<T>>,
    requests: u64,
    /// Of the last one; 0: there has been none.
    step_bytes: u64,
    /// Where the next one begins.
    next: u64,
    /// Since there were none: bytes of all windows, and what was asked for of them.
    fetched_bytes: u64,
    asked_bytes: u64,
}

/// How much may be fetched and kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowBounds {
    /// Of a window, at most.
    pub(crate) window_bytes: u64,
    /// Windows ahead of the first reader.
    pub(crate) depth: u64,
    /// Windows behind them that are kept for the others.
    pub(crate) kept: u64,
}

impl WindowBounds {
    /// Of all windows of a stream that has come to windows of `step_bytes`.
    fn most_bytes(&self, step_bytes: u64) -> u64 {
        step_bytes.saturating_mul(self.depth + self.kept)
    }
}

impl<T> Default for KeptWindows<T> {
    fn default() -> Self {
        Self { list: VecDeque::new(), requests: 0, step_bytes: 0, next: 0, fetched_bytes: 0, asked_bytes: 0 }
    }
}

impl<T> KeptWindows<T> {
    /// Whether there are some, or there were and they are fetched again.
    pub(crate) fn has_begun(&self) -> bool {
        self.step_bytes > 0
    }

    /// What the windows hold, in order.
    pub(crate) fn held(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.list.iter().map(|window| &window.what)
    }

    /// Lets go of all of them.
    pub(crate) fn let_go(&mut self) {
        self.list.clear();
        (self.step_bytes, self.fetched_bytes, self.asked_bytes) = (0, 0, 0);
    }

    /// Lets go of what they hold, which is fetched again from the first one on.
    pub(crate) fn fetch_again(&mut self) {
        self.next = self.list.front().map_or(self.next, |first| first.range.start);
        self.list.clear();
        (self.fetched_bytes, self.asked_bytes) = (0, 0);
    }

    /// Whether a request is for what the windows hold, or for what is so near behind it that the next ones will hold it.
    pub(crate) fn reach(&self, offset: u64) -> bool {
        let (Some(first), Some(last)) = (self.list.front(), self.list.back()) else { return false };
        (first.range.start..last.range.end.saturating_add(self.step_bytes)).contains(&offset)
    }

    /// Notes a request of the stream. O(windows).
    pub(crate) fn note(&mut self, request: Range<u64>) {
        self.requests += 1;
        for window in &mut self.list {
            let (begin, end) = (window.range.start.max(request.start), window.range.end.min(request.end));
            if begin < end {
                window.asked_bytes += end - begin;
                self.asked_bytes += end - begin;
                window.used = self.requests;
            }
        }
    }

    /// The window that is to be fetched now that a request at `offset` has come; `None`: none is. The first one begins at `from`, and has
    /// twice `first_bytes`; the others double while half of all that was fetched has been asked for. What has been kept for long
    /// enough leaves: all of it where the readers are in no order. O(windows).
    pub(crate) fn next(
        &mut self,
        offset: u64,
        from: u64,
        first_bytes: u64,
        bounds: WindowBounds,
    ) -> Option<Range<u64>> {
        let ahead = self.list.iter().filter(|window| window.range.start > offset).count() as u64;
        if ahead >= bounds.depth {
            return None;
        }
        let is_used = 2 * self.asked_bytes >= self.fetched_bytes;
        let step_bytes = if is_used { self.step_bytes.saturating_mul(2) } else { self.step_bytes };
        let step_bytes = step_bytes.max(first_bytes.saturating_mul(2)).min(bounds.window_bytes);
        let most_bytes = bounds.most_bytes(step_bytes) - step_bytes;
        let had_begun = self.has_begun();
        self.make_room(most_bytes);
        if had_begun != self.has_begun() || self.kept_bytes() > most_bytes {
            return None;
        }
        let from = if had_begun { self.next } else { from };
        Some(from..from.saturating_add(step_bytes))
    }

    /// Adds the window that is fetched, behind the last one.
    pub(crate) fn push(&mut self, range: Range<u64>, what: T) {
        self.step_bytes = range.end - range.start;
        self.fetched_bytes += self.step_bytes;
        self.next = range.end;
        self.list.push_back(KeptWindow { range, asked_bytes: 0, used: self.requests, what });
    }

    /// Bytes of all of them. O(windows).
    fn kept_bytes(&self) -> u64 {
        self.list.iter().map(KeptWindow::len).sum()
    }

    /// Lets go of windows that all readers have passed, and of those that were given up where there are more than `most_bytes`. Where
    /// less than half of one of these was asked for, the readers are in no order: all windows leave.
    fn make_room(&mut self, most_bytes: u64) {
        while self.list.len() > 1 {
            let (first, is_full) = (&self.list[0], self.kept_bytes() > most_bytes);
            let (idle, is_asked) = (self.requests - first.used, first.asked_bytes >= first.len());
            let is_given_up = is_full && idle > GIVEN_UP;
            if is_given_up && first.asked_bytes < first.len() / 2 {
                return self.let_go();
            }
            let is_done = is_asked && idle > IDLE;
            if !is_given_up && !is_done {
                return;
            }
            self.list.pop_front();
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEN: u64 = 10;
    /// In pieces.
    const WINDOW: u64 = 64;
    const IN_ORDER: u64 = 4 * WINDOW;
    const BOUNDS: WindowBounds = WindowBounds { window_bytes: WINDOW * LEN, depth: 2, kept: 4 };

    /// Windows, and what readers have cost the servers.
    #[derive(Default)]
    struct Trial {
        windows: KeptWindows<Range<u64>>,
        fetched_bytes: u64,
        /// Requests for which nothing was there.
        missed: u64,
        requests: u64,
    }

    impl Trial {
        fn read(&mut self, piece: u64) {
            let (offset, end) = (piece * LEN, (piece + 1) * LEN);
            self.requests += 1;
            self.windows.note(offset..end);
            while let Some(range) = self.windows.next(offset, offset, 16 * LEN, BOUNDS) {
                self.fetched_bytes += range.end - range.start;
                self.windows.push(range.clone(), range);
            }
            let held: Vec<_> = self.windows.held().cloned().collect();
            assert!(held.windows(2).all(|pair| pair[0].end == pair[1].start), "{held:?} has a gap");
            let kept_bytes: u64 = held.iter().map(|range| range.end - range.start).sum();
            assert!(kept_bytes <= BOUNDS.most_bytes(WINDOW * LEN), "{kept_bytes} bytes are kept");
            self.missed += u64::from(!held.iter().any(|range| range.start <= offset && end <= range.end));
            assert!(held.is_empty() || self.missed > 0 || self.windows.reach(offset));
        }
    }

    /// The order in which `readers`, each of which takes every `readers`-th piece, read `pieces`, if the drawn one goes on as long as it
    /// is no more than `drift` pieces ahead of the last one. At first they are in order, until windows are as large as they get.
    fn drifting(readers: u64, pieces: u64, drift: u64, drawn: &[u64]) -> Vec<u64> {
        let mut next: Vec<u64> = (0..readers).collect();
        let mut order = Vec::new();
        for drawn in drawn.iter().cycle() {
            let slowest = next.iter().copied().min().unwrap_or(pieces);
            if slowest >= pieces {
                return order;
            }
            let drift = if slowest < IN_ORDER { 0 } else { drift };
            let reader = &mut next[(drawn % readers) as usize];
            // One that is as far ahead as it may be waits, and the last one goes on.
            let reader = if *reader < pieces.min(slowest + drift) {
                reader
            } else {
                next.iter_mut().find(|at| **at == slowest).unwrap()
            };
            order.push(*reader);
            *reader += readers;
        }
        order
    }

    #[test]
    fn a_window_stays_until_its_pieces_were_asked_for() {
        let mut trial = Trial::default();
        (0..IN_ORDER).for_each(|piece| trial.read(piece));
        // One reader of two goes on.
        (0..2 * WINDOW).for_each(|number| trial.read(IN_ORDER + 2 * number));
        let first = trial.windows.held().next().unwrap();
        assert!(first.contains(&(IN_ORDER * LEN)), "{first:?}: the other one has not come yet");
        assert!(trial.missed <= 1, "{} requests were not served", trial.missed);
        let fetched_bytes = trial.fetched_bytes;
        (0..2 * WINDOW).for_each(|number| trial.read(IN_ORDER + 2 * number + 1));
        assert!(trial.missed <= 1, "{} requests of the other one were not served", trial.missed);
        assert!(trial.fetched_bytes <= fetched_bytes + 2 * WINDOW * LEN, "they are fetched once");
    }

    #[test]
    fn what_is_let_go_of_is_fetched_again_for_all_readers() {
        let mut trial = Trial::default();
        (0..IN_ORDER).for_each(|piece| trial.read(piece));
        (0..WINDOW).for_each(|number| trial.read(IN_ORDER + 2 * number));
        let first = trial.windows.held().next().unwrap().clone();
        trial.windows.fetch_again();
        assert!(trial.windows.has_begun() && trial.windows.held().next().is_none());
        trial.read(IN_ORDER + 2 * WINDOW);
        assert_eq!(trial.windows.held().next().unwrap().start, first.start);
        let missed = trial.missed;
        (0..WINDOW).for_each(|number| trial.read(IN_ORDER + 2 * number + 1));
        assert_eq!(trial.missed, missed);
        trial.windows.let_go();
        assert!(!trial.windows.has_begun());
    }

    proptest! {
        /// As a cache of blocks that is never full: what readers want that are no farther apart than the windows which are kept is read
        /// once, by windows.
        #[test]
        fn readers_that_drift_read_each_byte_once(
            readers in 2_u64..20,
            drift in 1_u64..3 * WINDOW,
            drawn in prop::collection::vec(0_u64..1000, 1..400),
        ) {
            let pieces = 20 * WINDOW;
            let mut trial = Trial::default();
            let order = drifting(readers, pieces, drift, &drawn);
            prop_assert_eq!(order.len() as u64, pieces);
            order.into_iter().for_each(|piece| trial.read(piece));
            // Those before the first request, which began the windows.
            prop_assert!(trial.missed <= readers, "{} pieces were not there", trial.missed);
            prop_assert!(trial.fetched_bytes <= (pieces + 3 * WINDOW) * LEN, "{} bytes", trial.fetched_bytes);
        }

        /// Whatever is asked for, no more than twice of it is fetched, beside what is fetched before it shows that there is no order.
        #[test]
        fn readers_in_no_order_cost_no_more_than_that(asked in prop::collection::vec(0_u64..100 * WINDOW, 1..2000)) {
            let mut trial = Trial::default();
            for piece in asked {
                if trial.windows.has_begun() && !trial.windows.reach(piece * LEN) {
                    continue;
                }
                trial.read(piece);
            }
            let each_bytes = BOUNDS.most_bytes(WINDOW * LEN);
            let most_bytes = 2 * trial.requests * LEN + (trial.requests / GIVEN_UP + 1) * each_bytes;
            prop_assert!(trial.fetched_bytes <= most_bytes, "{} of {most_bytes} bytes", trial.fetched_bytes);
        }
    }
}
