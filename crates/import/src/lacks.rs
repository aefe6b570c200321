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
    /// Some files have counters and no rows: theirs are made up to agree with the counters.
    pub const COUNTERS_ONLY: Lacks = Lacks(1 << 6);
    /// Parts could not be read and were left out.
    pub const DAMAGED: Lacks = Lacks(1 << 7);
    /// Names of some files or programs.
    pub const NAMES: Lacks = Lacks(1 << 8);
    /// Opens, closes and other calls that move no bytes.
    pub const METADATA: Lacks = Lacks(1 << 9);
    /// Offsets of some rows follow from the calls before them, by the rules of the system, and were not recorded.
    pub const OFFSETS_RECORDED: Lacks = Lacks(1 << 10);
    /// Times below a microsecond.
    pub const FINE_TIMES: Lacks = Lacks(1 << 11);
    /// The layouts that files have now: it is older than some of these.
    pub const LAYOUTS: Lacks = Lacks(1 << 12);

    const WORDS: [(Lacks, &'static str, &'static str); 13] = [
        (Lacks::RANKS, "ranks", "it names no ranks: all requests count as those of rank 0"),
        (Lacks::PIDS, "pids", "it names no processes"),
        (Lacks::OFFSETS, "offsets", "offsets of some requests are not known"),
        (Lacks::TIMES, "times", "it has no times: requests are taken in the order of the log"),
        (Lacks::DURATIONS, "durations", "it does not say how long requests took"),
        (Lacks::CUT, "end", "it ends before the program did"),
        (
            Lacks::COUNTERS_ONLY,
            "requests",
            "some files have only counters: their requests are made up to agree with those",
        ),
        (Lacks::DAMAGED, "damaged-parts", "parts of it are damaged and left out"),
        (Lacks::NAMES, "names", "names of some files are not known"),
        (Lacks::METADATA, "metadata", "it has only reads and writes: no opens, closes or stats"),
        (
            Lacks::OFFSETS_RECORDED,
            "offsets-recorded",
            "offsets of some requests were worked out from the calls before them",
        ),
        (Lacks::FINE_TIMES, "fine-times", "its times are in whole microseconds: the fastest requests take none"),
        (Lacks::LAYOUTS, "layouts", "some files have got their layouts after it, so its times are those of others"),
    ];

    /// Whether all of `other` is missing.
    pub fn contains(self, other: Lacks) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is missing.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// What is missing in plain words, one clause each ("it names no ranks: …").
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        self.named().map(|(_, words)| words)
    }

    /// What is missing: a name for programs ("ranks") and plain words for people.
    pub fn named(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        Self::WORDS.into_iter().filter(move |(flag, ..)| self.contains(*flag)).map(|(_, name, words)| (name, words))
    }

    /// The lack of this name; `None` for a name that this version does not know.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::WORDS.into_iter().find(|(_, known, _)| *known == name).map(|(flag, ..)| flag)
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
        for (number, (flag, name, words)) in Lacks::WORDS.into_iter().enumerate() {
            assert_eq!(flag, Lacks(1 << number), "{words}");
            assert_eq!(flag.named().collect::<Vec<_>>(), [(name, words)]);
            assert_eq!(Lacks::of_name(name), Some(flag));
        }
        assert_eq!(Lacks::of_name("colour"), None);
        let two = Lacks::RANKS | Lacks::CUT;
        assert!(two.contains(Lacks::CUT) && !two.contains(Lacks::CUT | Lacks::TIMES) && !two.is_empty());
        assert_eq!(two.words().count(), 2);
    }
}
