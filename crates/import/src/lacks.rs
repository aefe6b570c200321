//! [`Lacks`]: what a log does not say, so that every result that rests on it can.

use std::ops::{BitOr, BitOrAssign};

/// A set of things that a log lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lacks(u32);

impl Lacks {
    /// Nothing is missing.
    pub const NOTHING: Lacks = Lacks(0);
    /// Ranks: every row has rank 0 (or the ranks of some rows were merged into one).
    pub const RANKS: Lacks = Lacks(1);
    /// Processes: every row has process 0.
    pub const PIDS: Lacks = Lacks(1 << 1);
    /// Offsets of some rows, which are marked [`stripewise_trace::flags::OFFSET_UNKNOWN`].
    pub const OFFSETS: Lacks = Lacks(1 << 2);
    /// Times: rows are in order of the log, one nanosecond apart.
    pub const TIMES: Lacks = Lacks(1 << 3);
    /// Durations: rows end when they start.
    pub const DURATIONS: Lacks = Lacks(1 << 4);
    /// The log stopped before the program did: a limit of its recorder, or a cut file.
    pub const CUT: Lacks = Lacks(1 << 5);
    /// Some files have counters and no rows.
    pub const COUNTERS_ONLY: Lacks = Lacks(1 << 6);
    /// Parts could not be read and were left out.
    pub const DAMAGED: Lacks = Lacks(1 << 7);
    /// Names of some files or programs.
    pub const NAMES: Lacks = Lacks(1 << 8);
    /// Opens, closes and other calls that move no bytes.
    pub const METADATA: Lacks = Lacks(1 << 9);
    /// Offsets of some rows follow from the calls before them, by the rules of the system, and were not recorded.
    pub const OFFSETS_RECORDED: Lacks = Lacks(1 << 10);

    const WORDS: [(Lacks, &'static str); 11] = [
        (Lacks::RANKS, "it names no ranks: all requests count as those of rank 0"),
        (Lacks::PIDS, "it names no processes"),
        (Lacks::OFFSETS, "offsets of some requests are not known"),
        (Lacks::TIMES, "it has no times: requests are taken in the order of the log"),
        (Lacks::DURATIONS, "it does not say how long requests took"),
        (Lacks::CUT, "it ends before the program did"),
        (Lacks::COUNTERS_ONLY, "some files have only counters, no single requests"),
        (Lacks::DAMAGED, "parts of it are damaged and left out"),
        (Lacks::NAMES, "names of some files are not known"),
        (Lacks::METADATA, "it has only reads and writes: no opens, closes or stats"),
        (Lacks::OFFSETS_RECORDED, "offsets of some requests were worked out from the calls before them"),
    ];

    /// Whether all of `other` is missing.
    pub fn contains(self, other: Lacks) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is missing.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set as bits, for storage. Never reused for other meanings.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The set of stored bits; `None` for a bit that this version does not know.
    pub fn from_bits(bits: u32) -> Option<Self> {
        (bits >> Self::WORDS.len() == 0).then_some(Lacks(bits))
    }

    /// What is missing in plain words, one clause each ("it names no ranks: …").
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Self::WORDS.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, words)| words)
    }
}

impl BitOr for Lacks {
    type Output = Lacks;

    fn bitor(self, other: Lacks) -> Lacks {
        Lacks(self.0 | other.0)
    }
}

impl BitOrAssign for Lacks {
    fn bitor_assign(&mut self, other: Lacks) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_words_and_survives_storage() {
        for (number, (flag, words)) in Lacks::WORDS.into_iter().enumerate() {
            assert_eq!(flag.bits(), 1 << number, "{words}");
            assert_eq!(flag.words().collect::<Vec<_>>(), [words]);
            assert_eq!(Lacks::from_bits(flag.bits()), Some(flag));
        }
        assert_eq!(Lacks::from_bits(1 << Lacks::WORDS.len()), None);
        let two = Lacks::RANKS | Lacks::CUT;
        assert!(two.contains(Lacks::CUT) && !two.contains(Lacks::CUT | Lacks::TIMES) && !two.is_empty());
        assert_eq!(two.words().count(), 2);
    }
}
