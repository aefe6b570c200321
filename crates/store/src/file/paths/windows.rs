//! Windows of a file of which several readers need some pieces each: which are kept, and when the next one is fetched.
//!
//! Readers drift apart. The first one to come near the end of the windows has the next one fetched, those behind it find what was
//! fetched for all. A window is kept until its pieces were asked for, and for a while after the last of them: then it leaves. Where
//! there is no room for the next one, it is not fetched, so that the first reader waits for the servers as if there were no
//! windows, and the others catch up. The pieces that readers take so by themselves are kept in mind: of the window that is then fetched
//! for the others they are asked for already, and one of which little is left is not fetched. Else each of these windows would wait in
//! vain for readers that have passed it, and leave the next ones no room.
//!
//! What windows hold can become old. They stay then, with what is known of their readers, and each is fetched again when a reader comes
//! to it that has not passed it.

use std::collections::VecDeque;
use std::ops::Range;

/// Requests of a stream after which a window is idle that none of them was for.
const IDLE: u64 = 16;
/// As many after which it is given up where there is no room for the next one: its reader has gone, or does not want the rest. One that
/// waits for something else meanwhile is not to lose it: what it then reads by itself takes it longer than the others need for theirs,
/// so that it never comes up with them again.
const GIVEN_UP: u64 = 1024;
/// As many for one of which as much was asked for as of the last one that was given up.
const NEARLY_ASKED: u64 = 512;
/// The part of a window, its last, that is not waited for then, and for which it is not fetched, or not again.
const LAST: u64 = 8;
/// Pieces behind the windows that are kept in mind: after as many requests those for which there is no room are given up.
const MOST_BEYOND: u64 = GIVEN_UP;

/// One of them.
#[derive(Debug)]
struct KeptWindow<T> {
    range: Range<u64>,
    /// A bit for each piece: whether it was asked for.
    asked: Vec<u64>,
    asked_bytes: u64,
    /// The request that was for it last, by number.
    used: u64,
    /// `None`: what it held is old.
    what: Option<T>,
}

impl<T> KeptWindow<T> {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn left_bytes(&self) -> u64 {
        self.len() - self.asked_bytes
    }

    /// Whether it is worth a fetch: what readers have not asked for yet costs more where each asks for it by itself.
    fn is_awaited(&self) -> bool {
        self.left_bytes() > self.len() / LAST
    }

    /// Notes a piece; how many bytes of it are here, and were not asked for before. `None`: it is none of this window.
    fn note(&mut self, piece: &Range<u64>) -> Option<u64> {
        let (begin, end) = (self.range.start.max(piece.start), self.range.end.min(piece.end));
        if begin >= end {
            return None;
        }
        // Pieces are as long as each other, and one behind the other. The first and the last may be here in part.
        let number = (piece.end - self.range.start - 1) / (piece.end - piece.start);
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if self.asked.len() <= word {
            self.asked.resize(word + 1, 0);
        }
        let is_new = self.asked[word] & bit == 0;
        self.asked[word] |= bit;
        let new_bytes = if is_new { (end - begin).min(self.left_bytes()) } else { 0 };
        self.asked_bytes += new_bytes;
        Some(new_bytes)
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
    /// Whether there was no room for it.
    is_full: bool,
    /// Pieces that were asked for since then where no window is yet, and the end of the last one.
    beyond: Vec<Range<u64>>,
    beyond_end: u64,
    /// Since there were none: bytes of all windows that were not asked for before they were fetched, and what was asked for of them.
    fetched_bytes: u64,
    asked_bytes: u64,
    /// Of the last one that was given up, or of which all was asked for: how much of it was not, and its length.
    left_of_last: (u64, u64),
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
    /// Bytes behind them that are kept for the others, if that is more, while half of all that was fetched has been asked for: readers
    /// at random do not get that much.
    pub(crate) drift_bytes: u64,
}

impl WindowBounds {
    /// Of all windows of a stream that has come to windows of `step_bytes`, and whose windows are used or not.
    fn most_bytes(&self, step_bytes: u64, are_used: bool) -> u64 {
        let kept_bytes = step_bytes.saturating_mul(self.kept);
        let kept_bytes = if are_used { kept_bytes.max(self.drift_bytes) } else { kept_bytes };
        step_bytes.saturating_mul(self.depth).saturating_add(kept_bytes)
    }
}

impl<T> Default for KeptWindows<T> {
    fn default() -> Self {
        Self {
            list: VecDeque::new(),
            requests: 0,
            step_bytes: 0,
            next: 0,
            is_full: false,
            beyond: Vec::new(),
            beyond_end: 0,
            fetched_bytes: 0,
            asked_bytes: 0,
            left_of_last: (0, 1),
        }
    }
}

impl<T> KeptWindows<T> {
    /// Whether there are some.
    pub(crate) fn has_begun(&self) -> bool {
        self.step_bytes > 0
    }

    /// What the windows hold, in order.
    pub(crate) fn held(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.list.iter().filter_map(|window| window.what.as_ref())
    }

    /// What the last one holds.
    pub(crate) fn last(&self) -> Option<&T> {
        self.list.back()?.what.as_ref()
    }

    /// Lets go of all of them.
    pub(crate) fn let_go(&mut self) {
        self.list.clear();
        (self.step_bytes, self.fetched_bytes, self.asked_bytes) = (0, 0, 0);
        self.left_of_last = (0, 1);
        self.is_full = false;
        self.beyond.clear();
        self.beyond_end = 0;
    }

    /// Lets go of what they hold where that `is_old`. O(windows).
    pub(crate) fn let_go_of_old(&mut self, is_old: impl Fn(&T) -> bool) {
        for window in &mut self.list {
            window.what.take_if(|what| is_old(what));
        }
    }

    /// The next window that holds nothing any more and is to be fetched again for a reader at `offset`: the one that it is in, or one of
    /// `depth` behind that. O(windows).
    pub(crate) fn again(&self, offset: u64, depth: u64) -> Option<Range<u64>> {
        let here = self.list.iter().filter(|window| window.range.end > offset).take(1 + depth as usize);
        here.filter(|window| window.what.is_none() && window.is_awaited()).map(|window| window.range.clone()).next()
    }

    /// Puts into a window what was fetched again for it. O(windows).
    pub(crate) fn put_again(&mut self, range: &Range<u64>, what: T) {
        if let Some(window) = self.list.iter_mut().find(|window| window.range == *range) {
            window.what = Some(what);
        }
    }

    /// Whether a request is for what the windows hold, or for what is so near behind it, or behind what was asked for there, that the
    /// next ones will hold it.
    pub(crate) fn reach(&self, offset: u64) -> bool {
        let (Some(first), Some(last)) = (self.list.front(), self.list.back()) else { return false };
        let end = last.range.end.max(self.beyond_end);
        (first.range.start..end.saturating_add(self.step_bytes)).contains(&offset)
    }

    /// Notes a request of the stream, which is for one piece. A piece that was asked for before counts for nothing: it may be of others
    /// that read at random where the windows are. O(windows).
    pub(crate) fn note(&mut self, piece: Range<u64>) {
        let (mut is_here, mut is_new) = (false, false);
        for window in &mut self.list {
            let Some(new_bytes) = window.note(&piece) else { continue };
            is_here = true;
            if new_bytes > 0 {
                is_new = true;
                self.asked_bytes += new_bytes;
                window.used = self.requests + 1;
            }
        }
        self.requests += u64::from(is_new || !is_here);
        let most_bytes = MOST_BEYOND * (piece.end - piece.start);
        let is_beyond = piece.end > self.next && piece.end - self.next <= most_bytes;
        if self.is_full && is_beyond && (self.beyond.len() as u64) < MOST_BEYOND {
            self.beyond_end = self.beyond_end.max(piece.end);
            self.beyond.push(piece);
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
        let are_used = 2 * self.asked_bytes >= self.fetched_bytes;
        let step_bytes = if are_used { self.step_bytes.saturating_mul(2) } else { self.step_bytes };
        let step_bytes = step_bytes.max(first_bytes.saturating_mul(2)).min(bounds.window_bytes);
        let most_bytes = bounds.most_bytes(step_bytes, are_used) - step_bytes;
        let had_begun = self.has_begun();
        self.make_room(most_bytes);
        if had_begun != self.has_begun() {
            return None;
        }
        self.is_full = self.kept_bytes() > most_bytes;
        if self.is_full {
            return None;
        }
        let from = if had_begun { self.next } else { from };
        Some(from..from.saturating_add(step_bytes))
    }

    /// Adds the next window behind the last one. It holds what `fetch` gives, which is asked only where readers are still to come for it;
    /// `None`: that gives nothing, and no window is added. O(pieces that were asked for behind the windows).
    pub(crate) fn push(&mut self, range: Range<u64>, fetch: impl FnOnce() -> Option<T>) -> Option<()> {
        let used = self.requests;
        let mut window = KeptWindow { range, asked: Vec::new(), asked_bytes: 0, used, what: None };
        for piece in &self.beyond {
            window.note(piece);
        }
        if window.is_awaited() {
            window.what = Some(fetch()?);
            self.fetched_bytes += window.left_bytes();
        }
        self.step_bytes = window.len();
        self.next = window.range.end;
        self.beyond.retain(|piece| piece.end > self.next);
        if self.beyond.is_empty() {
            self.beyond_end = 0;
        }
        self.list.push_back(window);
        Some(())
    }

    /// Bytes of all of them that hold something, or are to be fetched again. O(windows).
    fn kept_bytes(&self) -> u64 {
        let held = |window: &&KeptWindow<T>| window.what.is_some() || window.is_awaited();
        self.list.iter().filter(held).map(KeptWindow::len).sum()
    }

    /// Lets go of windows that all readers have passed, and where there are more than `most_bytes` of those that are given up, or of
    /// which as much was asked for as will be. Where less than half of one that is given up was asked for, the readers are in no order:
    /// all windows leave.
    fn make_room(&mut self, most_bytes: u64) {
        while self.list.len() > 1 {
            let (first, is_full) = (&self.list[0], self.kept_bytes() > most_bytes);
            let (idle, left_bytes) = (self.requests - first.used, first.left_bytes());
            let is_given_up = is_full && idle > GIVEN_UP;
            if is_given_up && left_bytes > first.len() / 2 {
                return self.let_go();
            }
            // Readers that have gone leave out as much of each.
            let (left_of_last, last_bytes) = self.left_of_last;
            let usual = (u128::from(left_of_last) * u128::from(first.len()) / u128::from(last_bytes)) as u64;
            let is_nearly_done = is_full && idle > NEARLY_ASKED && left_bytes <= usual + first.len() / LAST;
            let is_done = left_bytes == 0 && idle > IDLE;
            if !is_given_up && !is_nearly_done && !is_done {
                return;
            }
            if is_given_up || left_bytes == 0 {
                self.left_of_last = (left_bytes, first.len());
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
    const BOUNDS: WindowBounds = WindowBounds { window_bytes: WINDOW * LEN, depth: 2, kept: 4, drift_bytes: 0 };

    /// Windows, and what readers have cost the servers.
    struct Trial {
        bounds: WindowBounds,
        windows: KeptWindows<Range<u64>>,
        fetched_bytes: u64,
        /// Requests for which nothing was there.
        missed: u64,
        requests: u64,
    }

    impl Default for Trial {
        fn default() -> Self {
            Self { bounds: BOUNDS, windows: KeptWindows::default(), fetched_bytes: 0, missed: 0, requests: 0 }
        }
    }

    impl Trial {
        fn read(&mut self, piece: u64) {
            let (offset, end) = (piece * LEN, (piece + 1) * LEN);
            self.requests += 1;
            self.windows.note(offset..end);
            while let Some(range) = self.windows.again(offset, self.bounds.depth) {
                self.fetched_bytes += range.end - range.start;
                self.windows.put_again(&range, range.clone());
            }
            while let Some(range) = self.windows.next(offset, end, 16 * LEN, self.bounds) {
                let fetched_bytes = &mut self.fetched_bytes;
                let fetch = || {
                    *fetched_bytes += range.end - range.start;
                    Some(range.clone())
                };
                self.windows.push(range.clone(), fetch);
            }
            let held: Vec<_> = self.windows.held().cloned().collect();
            assert!(held.windows(2).all(|pair| pair[0].end == pair[1].start), "{held:?} has a gap");
            let kept_bytes: u64 = held.iter().map(|range| range.end - range.start).sum();
            assert!(kept_bytes <= self.bounds.most_bytes(WINDOW * LEN, true), "{kept_bytes} bytes are kept");
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
        assert!(first.contains(&((IN_ORDER + 1) * LEN)), "{first:?}: the other one has not come yet");
        assert!(trial.missed <= 1, "{} requests were not served", trial.missed);
        let fetched_bytes = trial.fetched_bytes;
        (0..2 * WINDOW).for_each(|number| trial.read(IN_ORDER + 2 * number + 1));
        assert!(trial.missed <= 1, "{} requests of the other one were not served", trial.missed);
        assert!(trial.fetched_bytes <= fetched_bytes + 2 * WINDOW * LEN, "they are fetched once");
    }

    #[test]
    fn readers_in_order_may_drift_farther_apart_than_the_windows_that_others_have() {
        let bounds = WindowBounds { drift_bytes: 10 * WINDOW * LEN, ..BOUNDS };
        let mut trial = Trial { bounds, ..Trial::default() };
        (0..IN_ORDER).for_each(|piece| trial.read(piece));
        let (ahead, end) = (8 * WINDOW, 20 * WINDOW);
        // Half of them are that far ahead of the others.
        (0..ahead / 2).for_each(|number| trial.read(IN_ORDER + 2 * number));
        for number in 0..end / 2 {
            trial.read(IN_ORDER + 2 * number + 1);
            trial.read(IN_ORDER + ahead + 2 * number);
        }
        assert!(trial.missed <= 1, "{} requests were not served", trial.missed);
        assert!(trial.fetched_bytes <= (IN_ORDER + ahead + end + 4 * WINDOW) * LEN, "{} bytes", trial.fetched_bytes);
    }

    #[test]
    fn readers_that_have_gone_are_waited_for_once() {
        let missed = |windows: u64| {
            let bounds = WindowBounds { drift_bytes: 16 * WINDOW * LEN, ..BOUNDS };
            let mut trial = Trial { bounds, ..Trial::default() };
            (0..IN_ORDER).for_each(|piece| trial.read(piece));
            // One of four has gone.
            let others = (IN_ORDER..IN_ORDER + windows * WINDOW).filter(|piece| piece % 4 > 0);
            others.for_each(|piece| trial.read(piece));
            trial.missed
        };
        let once = missed(40);
        assert!((1..GIVEN_UP).contains(&once), "{once} requests were not served");
        assert_eq!(missed(400), once, "they are not waited for again");
    }

    #[test]
    fn what_is_asked_for_again_makes_no_window_idle() {
        let mut trial = Trial::default();
        (0..IN_ORDER).for_each(|piece| trial.read(piece));
        // One reader of two goes on until there is no room.
        (0..3 * WINDOW).for_each(|number| trial.read(IN_ORDER + 2 * number));
        // Others read what is there at random.
        (0..8 * GIVEN_UP).for_each(|number| trial.read(IN_ORDER + 2 * (number % WINDOW)));
        let missed = trial.missed;
        (0..WINDOW / 2).for_each(|number| trial.read(IN_ORDER + 2 * number + 1));
        assert_eq!(trial.missed, missed, "the other one finds what was fetched for it");
    }

    #[test]
    fn what_is_let_go_of_is_fetched_again_for_all_readers() {
        let mut trial = Trial::default();
        (0..IN_ORDER).for_each(|piece| trial.read(piece));
        (0..WINDOW).for_each(|number| trial.read(IN_ORDER + 2 * number));
        let first = trial.windows.held().next().unwrap().clone();
        trial.windows.let_go_of_old(|_| true);
        assert!(trial.windows.has_begun() && trial.windows.held().next().is_none());
        trial.read(IN_ORDER + 1);
        assert_eq!(trial.windows.held().next().unwrap().start, first.start);
        let missed = trial.missed;
        (0..WINDOW).for_each(|number| trial.read(IN_ORDER + 2 * number + 1));
        assert_eq!(trial.missed, missed);
        trial.windows.let_go();
        assert!(!trial.windows.has_begun());
    }

    #[test]
    fn what_readers_took_while_there_was_no_room_is_not_waited_for() {
        let mut trial = Trial::default();
        (0..IN_ORDER).for_each(|piece| trial.read(piece));
        // Three readers of four go on where there is no room, one after the other, as each waits for the servers.
        let (ahead, end) = (6 * WINDOW, 40 * WINDOW);
        let others = |from: u64, to: u64| (IN_ORDER + from..IN_ORDER + to).filter(|piece| piece % 4 > 0);
        others(0, ahead + 3 * WINDOW).for_each(|piece| trial.read(piece));
        let (missed, fetched_bytes) = (trial.missed, trial.fetched_bytes);
        assert!(missed > WINDOW, "there is no room for {missed} pieces");
        // The fourth comes up with them, and all go on together.
        (IN_ORDER..IN_ORDER + ahead + 3 * WINDOW).filter(|piece| piece % 4 == 0).for_each(|piece| trial.read(piece));
        (IN_ORDER + ahead + 3 * WINDOW..end).for_each(|piece| trial.read(piece));
        assert!(trial.missed <= missed + WINDOW, "{} more were not served", trial.missed - missed);
        let most_bytes = fetched_bytes + (end - IN_ORDER - ahead + 3 * WINDOW) * LEN;
        assert!(trial.fetched_bytes <= most_bytes, "{} of {most_bytes} bytes", trial.fetched_bytes);
    }

    #[test]
    fn a_window_of_which_little_is_left_is_not_fetched() {
        let mut windows: KeptWindows<u64> = KeptWindows::default();
        let bounds = WindowBounds { kept: 1, depth: 1, ..BOUNDS };
        let mut fetched = Vec::new();
        let mut read = |windows: &mut KeptWindows<u64>, piece: u64| {
            windows.note(piece * LEN..(piece + 1) * LEN);
            while let Some(range) = windows.next(piece * LEN, (piece + 1) * LEN, 16 * LEN, bounds) {
                windows.push(range.clone(), || {
                    fetched.push(range.start / LEN);
                    Some(range.start)
                });
            }
        };
        (0..2 * WINDOW).for_each(|piece| read(&mut windows, piece));
        let next = windows.next;
        // All but one reader in sixteen go on without windows.
        let last = next / LEN + WINDOW + 1;
        (2 * WINDOW..last).filter(|piece| piece % 16 > 0).for_each(|piece| read(&mut windows, piece));
        assert!(windows.reach(last * LEN + WINDOW / 2 * LEN), "what comes behind the last piece is of the stream");
        (2 * WINDOW..last).filter(|piece| piece % 16 == 0).for_each(|piece| read(&mut windows, piece));
        (last..last + 4 * WINDOW).for_each(|piece| read(&mut windows, piece));
        assert!(!fetched.contains(&(next / LEN)), "{fetched:?}");
        assert!(fetched.contains(&(next / LEN + WINDOW)), "{fetched:?}: the next one is");
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
            let each_bytes = BOUNDS.most_bytes(WINDOW * LEN, true);
            let most_bytes = 2 * trial.requests * LEN + (trial.requests / GIVEN_UP + 1) * each_bytes;
            prop_assert!(trial.fetched_bytes <= most_bytes, "{} of {most_bytes} bytes", trial.fetched_bytes);
        }
    }
}
