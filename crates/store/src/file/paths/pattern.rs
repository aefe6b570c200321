//! Recognises by the requests of one open file, or of all opens of a file, what is read next.

/// What comes next, as far as it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadPattern {
    /// Nothing can be told.
    Unknown,
    /// What is behind the last request.
    Sequential,
    /// As many bytes as the last time, at this distance from where the last request began; forwards or backwards.
    Strided(i64),
}

/// The last requests.
#[derive(Debug, Default)]
pub(crate) struct ReadHistory {
    /// Offset and length of the last one.
    last: Option<(u64, u64)>,
    /// How many in a row began where the one before ended.
    in_sequence: u32,
    /// Distance of the last two beginnings.
    distance: i64,
    /// How many in a row had that distance, and the same length.
    at_distance: u32,
}

/// Equal distances in a row from which on requests are strided: two random distances are seldom equal.
const STRIDED_AFTER: u32 = 2;

impl ReadHistory {
    /// A request of `len` bytes comes; what comes behind it. O(1).
    pub(crate) fn note(&mut self, offset: u64, len: u64) -> ReadPattern {
        let before = self.last.replace((offset, len));
        let Some((last_offset, last_len)) = before else { return ReadPattern::Unknown };
        let distance = (offset as i64).wrapping_sub(last_offset as i64);
        let is_same = distance == self.distance && len == last_len && distance != 0;
        self.at_distance = if is_same { self.at_distance.saturating_add(1) } else { 0 };
        self.distance = distance;
        let follows = offset == last_offset.wrapping_add(last_len);
        self.in_sequence = if follows { self.in_sequence.saturating_add(1) } else { 0 };
        if self.in_sequence > 0 {
            ReadPattern::Sequential
        } else if self.at_distance + 1 >= STRIDED_AFTER && distance != 0 && is_same {
            ReadPattern::Strided(distance)
        } else {
            ReadPattern::Unknown
        }
    }

    /// The file ended before the last request did: what follows is another reading of it.
    pub(crate) fn has_ended(&mut self) {
        *self = Self::default();
    }
}

/// Pieces of one length that several readers ask for, each for some of them: all together nearly one behind the other.
#[derive(Debug)]
pub(crate) struct ReadFront {
    len: u64,
    /// Byte behind the last piece.
    end: u64,
    /// The last pieces before `end`, a bit each, the lowest one for the last: set where it was asked for.
    asked: u128,
    /// Requests since `end` was `from`, and those of them for a piece that was asked for before.
    requests: u32,
    again: u32,
    from: u64,
    /// The last requests have moved `end` by about as many pieces.
    goes_on: bool,
}

/// A piece, by how many pieces its beginning is from the end of the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrontPlace {
    Before(u64),
    Behind(u64),
}

/// Of that many last pieces half must have been asked for, and as many requests must move the end by half as many pieces to twice
/// as many, no more than a quarter of them for a piece that was asked for before: readers at random leave most pieces out, or come
/// back to the same ones.
const FRONT: u32 = 16;

impl ReadFront {
    /// Pieces before the last one that it knows of.
    pub(crate) const PIECES: u64 = 128;
    /// Pieces by which a reader may be ahead of all others: those wait for other things meanwhile.
    pub(crate) const MOST_AHEAD: u64 = 48;
    /// Pieces that the first window reaches over, twice.
    pub(crate) const FIRST: u64 = 16;

    /// Of one request, which does not reach behind the greatest offset.
    pub(crate) fn of(offset: u64, len: u64) -> Self {
        Self { len, end: offset + len, asked: 1, requests: 1, again: 0, from: offset, goes_on: false }
    }

    /// Whether a request is for one of the pieces, wherever that is. O(1).
    pub(crate) fn is_piece(&self, offset: u64, len: u64) -> bool {
        len == self.len && offset.abs_diff(self.end).is_multiple_of(len)
    }

    /// Where a request is, if it is for one of the pieces, near to the last ones. O(1).
    pub(crate) fn place(&self, offset: u64, len: u64) -> Option<FrontPlace> {
        if !self.is_piece(offset, len) {
            return None;
        }
        let pieces = offset.abs_diff(self.end) / len;
        if offset < self.end {
            (pieces <= Self::PIECES).then_some(FrontPlace::Before(pieces))
        } else {
            (pieces < Self::MOST_AHEAD).then_some(FrontPlace::Behind(pieces))
        }
    }

    /// Whether a request is for one of the pieces, near to the last ones; it is noted then. O(1).
    pub(crate) fn note(&mut self, offset: u64, len: u64) -> bool {
        match self.place(offset, len) {
            Some(FrontPlace::Before(pieces)) => {
                let piece = 1 << (pieces - 1);
                self.again += u32::from(self.asked & piece != 0);
                self.asked |= piece;
            }
            Some(FrontPlace::Behind(pieces)) => {
                self.asked = self.asked << (pieces + 1) | 1;
                self.end = offset + len;
            }
            None => return false,
        }
        self.requests += 1;
        if self.requests == FRONT {
            let moved = (self.end - self.from) / len;
            let is_new = self.again <= FRONT / 4;
            self.goes_on = is_new && (u64::from(FRONT / 2)..=u64::from(2 * FRONT)).contains(&moved);
            (self.requests, self.again, self.from) = (0, 0, self.end);
        }
        true
    }

    /// Whether the last requests were in an order.
    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// The last piece, offset and length, where what is behind it will be read, too, as far as that can be told. Where one reader is far
    /// ahead, most of all pieces that are known were asked for.
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        let last = self.asked & ((1 << FRONT) - 1);
        let is_dense = last.count_ones() >= FRONT / 2 || u64::from(self.asked.count_ones()) >= Self::PIECES / 2;
        (self.goes_on && is_dense).then_some((self.end - self.len, self.len))
    }
}

#[cfg(test)]
mod tests {
    use super::ReadPattern::{Sequential, Strided, Unknown};
    use super::*;

    fn patterns(requests: &[(u64, u64)]) -> Vec<ReadPattern> {
        let mut history = ReadHistory::default();
        requests.iter().map(|&(offset, len)| history.note(offset, len)).collect()
    }

    #[test]
    fn one_behind_the_other_is_sequential_whatever_their_lengths() {
        assert_eq!(patterns(&[(0, 10), (10, 5), (15, 10)]), [Unknown, Sequential, Sequential]);
        assert_eq!(patterns(&[(0, 10), (10, 5), (15, 10), (90, 10), (100, 1)])[3..], [Unknown, Sequential]);
    }

    #[test]
    fn equal_distances_are_strided_forwards_and_backwards() {
        let forwards = patterns(&[(0, 10), (100, 10), (200, 10), (300, 10)]);
        assert_eq!(forwards, [Unknown, Unknown, Strided(100), Strided(100)]);
        assert_eq!(patterns(&[(90, 10), (80, 10), (70, 10)])[2], Strided(-10));
        assert_eq!(patterns(&[(0, 10), (100, 10), (200, 9)])[2], Unknown, "another length");
        assert_eq!(patterns(&[(0, 10), (100, 10), (201, 10)])[2], Unknown, "another distance");
    }

    #[test]
    fn the_same_again_and_what_jumps_is_unknown() {
        assert_eq!(patterns(&[(50, 10), (50, 10), (50, 10), (50, 10)])[3], Unknown);
        assert_eq!(patterns(&[(u64::MAX, 10), (3, 10), (1 << 63, 10), (7, 10)])[3], Unknown);
        let mut history = ReadHistory::default();
        history.note(0, 10);
        history.has_ended();
        assert_eq!(history.note(10, 10), Unknown, "the file was read to its end before");
    }

    #[test]
    fn pieces_that_several_ask_for_nearly_in_order_are_a_front() {
        let mut front = ReadFront::of(0, 10);
        for piece in [2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13] {
            assert!(front.note(piece * 10, 10));
            assert_eq!(front.last(), None, "fifteen requests are too few");
        }
        assert!(front.note(150, 10));
        assert_eq!(front.last(), Some((150, 10)));
        assert!(front.note(50, 10), "one that was asked for already is one of them");
        assert_eq!(front.last(), Some((150, 10)));
        for (offset, len) in [(155, 10), (160, 11), (160 + 480, 10), (10_000, 10)] {
            assert!(!front.note(offset, len), "{len} bytes at {offset} are none of them");
        }
        assert!(front.note(310, 10), "one reader is ahead of the others");
        assert_eq!(front.last(), None, "what lies between was not asked for");
        let mut front = ReadFront::of(0, 10);
        assert!((1..200).all(|piece| front.note(piece * 10, 10)));
        assert!(front.note(2470, 10), "one is far ahead, and all before was asked for");
        assert_eq!(front.last(), Some((2470, 10)));
        assert!(front.note(2940, 10));
        assert_eq!(front.last(), None, "most of what is known was not");
    }

    #[test]
    fn what_is_asked_for_again_backwards_or_in_part_is_no_front() {
        let mut front = ReadFront::of(0, 10);
        assert!((1..200).all(|piece| front.note(piece * 10, 10)));
        assert!(front.note(2000 - 1280, 10) && !front.note(2000 - 1290, 10), "128 pieces are known");
        assert!((0..32).all(|piece| front.note(1900 + piece % 8 * 10, 10)));
        assert_eq!(front.last(), None, "it does not go on");
        let mut front = ReadFront::of(0, 10);
        assert!((0..199).all(|number| front.note((number / 2 + 1) * 10, 10) && front.last().is_none()), "twice each");
        let mut front = ReadFront::of(0, 10);
        assert!((1..200).all(|piece| front.note(piece * 30, 10) && front.last().is_none()));
        let mut front = ReadFront::of(5000, 10);
        assert!((1..64).all(|piece| front.note(5000 - piece * 10, 10) && front.last().is_none()));
    }
}
