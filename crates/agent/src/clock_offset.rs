//! How far another node's clock is from this one's, by the times of messages there and back (as NTP does it).

use std::collections::VecDeque;

/// Times that are looked at: those of the last second or two.
const SAMPLES: usize = 64;

/// One report and its answer.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// The other clock less this one.
    offset_ns: i128,
    round_trip_ns: u64,
}

impl Sample {
    /// The offset lies within half a round trip of this.
    fn agrees_with(&self, other: &Self) -> bool {
        let apart_ns = (self.offset_ns - other.offset_ns).unsigned_abs();
        apart_ns <= u128::from(self.round_trip_ns / 2 + other.round_trip_ns / 2 + 1)
    }
}

/// The offset of the other clock. The sample with the shortest way there and back is believed: it has waited least.
#[derive(Debug, Default)]
pub struct ClockOffset {
    samples: VecDeque<Sample>,
}

impl ClockOffset {
    /// Takes one: sent and received by this clock, come and answered by the other. Times that cannot be are left out. `true`:
    /// the clocks have moved against each other, as when one machine was suspended; what was known before is forgotten.
    pub fn note(&mut self, sent_ns: u64, came_ns: u64, answered_ns: u64, received_ns: u64) -> bool {
        let (Some(away_ns), Some(there_ns)) = (received_ns.checked_sub(sent_ns), answered_ns.checked_sub(came_ns))
        else {
            return false;
        };
        let Some(round_trip_ns) = away_ns.checked_sub(there_ns) else { return false };
        let there = i128::from(came_ns) - i128::from(sent_ns);
        let back = i128::from(answered_ns) - i128::from(received_ns);
        let sample = Sample { offset_ns: (there + back) / 2, round_trip_ns };
        let has_moved = self.best().is_some_and(|best| !best.agrees_with(&sample));
        if has_moved {
            self.samples.clear();
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        has_moved
    }

    fn best(&self) -> Option<&Sample> {
        self.samples.iter().min_by_key(|sample| sample.round_trip_ns)
    }

    /// The shortest round trip, in nanoseconds; twice the most by which the offset can be wrong.
    pub fn round_trip_ns(&self) -> Option<u64> {
        self.best().map(|best| best.round_trip_ns)
    }

    /// This clock less the other, in nanoseconds: wrong by at most half the shortest round trip.
    pub fn own_less_other_ns(&self) -> Option<i64> {
        i64::try_from(-self.best()?.offset_ns).ok()
    }

    /// A time of the other clock by this one.
    pub fn to_own(&self, other_ns: u64) -> Option<u64> {
        u64::try_from(i128::from(other_ns) - self.best()?.offset_ns).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_is_believed_and_a_jump_is_seen() {
        let mut clock = ClockOffset::default();
        assert_eq!(clock.to_own(5), None);
        // The other clock is 1,000,000 ahead. The way there takes 100, back 300.
        assert!(!clock.note(5_000, 1_005_100, 1_005_110, 5_410));
        assert_eq!((clock.to_own(1_005_100), clock.round_trip_ns()), (Some(5_200), Some(400)));
        assert_eq!(clock.own_less_other_ns(), Some(-999_900));
        // A better one.
        assert!(!clock.note(6_000, 1_006_010, 1_006_010, 6_020));
        assert_eq!((clock.to_own(1_006_010), clock.round_trip_ns()), (Some(6_010), Some(20)));
        // A slow one changes nothing, and times that go back are none.
        assert!(!clock.note(7_000, 1_017_000, 1_017_000, 17_100));
        assert!(!clock.note(7_000, 9, 8, 6_000));
        assert_eq!(clock.round_trip_ns(), Some(20));
        // This machine was suspended: its clock stood still.
        assert!(clock.note(8_000, 9_008_010, 9_008_010, 8_020));
        assert_eq!(clock.to_own(9_008_010), Some(8_010));
        assert_eq!(clock.to_own(0), None, "before this clock began");
    }
}
