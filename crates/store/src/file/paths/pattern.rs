//! Recognises by the requests of one open file what it reads next.

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
}
