//! Hints: what a directory says of the files that are made in it.
//!
//! They are the directory's handle (Wei et al.), in an attribute of its own: a version, and for all names or for those of a
//! pattern the optimisations that a new file gets. Who may write the directory can write the attribute: the kernel lets no other.
//! So decoding trusts nothing, and whatever it says changes no byte of a file that exists.

use crate::format::handle::{Optimisations, Reader};
use crate::os::error::HintsError;
use stripewise_layout::Pattern;

/// Name of the extended attribute.
pub const ATTRIBUTE: &str = "user.stripewise.hints";

/// Greatest length of encoded hints in bytes: the attributes of an inode share 4 KiB on some file systems.
pub const MAX_BYTES: usize = 1024;

/// Most hints of a directory.
pub const MAX_HINTS: usize = 16;

const MAGIC: [u8; 4] = *b"SWDH";
const FORMAT: u8 = 1;

/// The optimisations for the names that a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Of a name in the directory; `None` for all names.
    pub pattern: Option<Pattern>,
    /// What such a file gets.
    pub optimisations: Optimisations,
}

/// All hints of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryHints {
    /// Incremented by each change, modulo 2^32.
    pub version: u32,
    /// The one for all names first, then the oldest pattern first.
    hints: Vec<Hint>,
}

impl DirectoryHints {
    /// The hints: the one for all names first, then the oldest pattern first.
    pub fn hints(&self) -> &[Hint] {
        &self.hints
    }

    /// What a file `name` gets: by the hint for all names, then by each pattern that matches, the latest last. O(hints x name).
    pub fn of_name(&self, name: &[u8]) -> Optimisations {
        let mut found = Optimisations::default();
        let matches = |hint: &&Hint| hint.pattern.as_ref().is_none_or(|pattern| pattern.matches(name));
        self.hints.iter().filter(matches).for_each(|hint| found.override_by(&hint.optimisations));
        found
    }

    /// Sets what the names of `pattern` (all names: `None`) get, which is the latest pattern now. What else was said of exactly
    /// that pattern stays. Fails without a change.
    ///
    /// # Errors
    /// There are [`MAX_HINTS`] already, or they take more than [`MAX_BYTES`].
    pub fn set(&mut self, pattern: Option<Pattern>, optimisations: Optimisations) -> Result<(), HintsError> {
        let mut changed = self.clone();
        let said = changed.hints.iter().position(|hint| hint.pattern == pattern);
        let mut all = said.map(|at| changed.hints.remove(at).optimisations).unwrap_or_default();
        all.override_by(&optimisations);
        let at = if pattern.is_none() { 0 } else { changed.hints.len() };
        changed.hints.insert(at, Hint { pattern, optimisations: all });
        changed.version = changed.version.wrapping_add(1);
        changed.encode()?;
        *self = changed;
        Ok(())
    }

    /// Removes of the hint of exactly this pattern the optimisations of these indices, or all of it (`None`); whether all of them
    /// were there. Else nothing is changed.
    pub fn remove(&mut self, pattern: Option<&Pattern>, indices: Option<&[u32]>) -> bool {
        let Some(at) = self.hints.iter().position(|hint| hint.pattern.as_ref() == pattern) else { return false };
        let mut left = indices.map_or_else(Optimisations::default, |_| self.hints[at].optimisations.clone());
        if !indices.unwrap_or_default().iter().all(|index| left.disable(*index)) {
            return false;
        }
        if left.enabled().is_empty() {
            self.hints.remove(at);
        } else {
            self.hints[at].optimisations = left;
        }
        self.version = self.version.wrapping_add(1);
        true
    }

    /// No hints, as the change after those that `bytes` stand for, which may be damaged: their version counts on where it can be read.
    pub(crate) fn none_after(bytes: &[u8]) -> Self {
        let mut reader = Reader(bytes);
        let is_begun = reader.take::<5>().is_ok_and(|begin| begin[..4] == MAGIC);
        let version = reader.u32().ok().filter(|_| is_begun).unwrap_or(0);
        Self { version: version.wrapping_add(1), hints: Vec::new() }
    }

    /// The attribute's bytes.
    ///
    /// # Errors
    /// They would exceed a bound.
    pub fn encode(&self) -> Result<Vec<u8>, HintsError> {
        if self.hints.len() > MAX_HINTS {
            return Err(HintsError::TooMany("more than 16 hints of one directory"));
        }
        let mut out = Vec::with_capacity(64);
        out.extend(MAGIC);
        out.push(FORMAT);
        out.extend(self.version.to_be_bytes());
        out.push(self.hints.len() as u8);
        for hint in &self.hints {
            let text = hint.pattern.as_ref().map_or("", Pattern::as_str);
            let length =
                u8::try_from(text.len()).map_err(|_| HintsError::TooMany("a pattern of more than 255 bytes"))?;
            out.push(length);
            out.extend(text.as_bytes());
            hint.optimisations.encode(&mut out);
        }
        out.extend(crc32c::crc32c(&out).to_be_bytes());
        if out.len() > MAX_BYTES { Err(HintsError::TooMany("hints of more than 1024 bytes")) } else { Ok(out) }
    }

    /// Reads what [`DirectoryHints::encode`] wrote; any other bytes are refused.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, HintsError> {
        use HintsError::Damaged;
        if bytes.len() > MAX_BYTES {
            return Err(Damaged("hints longer than 1024 bytes"));
        }
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or(Damaged("too short"))?;
        let mut reader = Reader(body);
        if reader.take::<4>()? != MAGIC {
            return Err(Damaged("hints that do not begin with SWDH"));
        }
        let [format] = reader.take()?;
        if format != FORMAT {
            return Err(HintsError::Format(format));
        }
        if crc32c::crc32c(body) != u32::from_be_bytes(*sum) {
            return Err(Damaged("wrong checksum"));
        }
        let version = reader.u32()?;
        let [count] = reader.take()?;
        let mut hints: Vec<Hint> = Vec::new();
        for number in 0..count {
            let [length] = reader.take()?;
            let text = std::str::from_utf8(reader.slice(usize::from(length))?)
                .map_err(|_| Damaged("a pattern in no UTF-8"))?;
            let pattern = match text {
                "" if number == 0 => None,
                text => Some(Pattern::new(text).map_err(|_| Damaged("a pattern that matches no name"))?),
            };
            if hints.iter().any(|other| other.pattern == pattern) {
                return Err(Damaged("two hints of one pattern"));
            }
            hints.push(Hint { pattern, optimisations: Optimisations::decode(&mut reader)? });
        }
        if !reader.0.is_empty() || hints.len() > MAX_HINTS {
            return Err(Damaged("wrong length"));
        }
        Ok(Self { version, hints })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::parser::{AskedPaths, small_bytes};
    use proptest::prelude::*;
    use stripewise_optimisation::{CACHED, OptimisationSetting, READAHEAD, SMALL};

    fn small_of(bytes: u64) -> Optimisations {
        let mut optimisations = Optimisations::default();
        optimisations.enable(SMALL.index, bytes).unwrap();
        optimisations
    }

    fn pattern(text: &str) -> Option<Pattern> {
        Some(Pattern::new(text).unwrap())
    }

    fn sample() -> DirectoryHints {
        let mut hints = DirectoryHints::default();
        hints.set(pattern("*.h5"), small_of(8192)).unwrap();
        hints.set(None, small_of(4096)).unwrap();
        hints.set(pattern("a*"), small_of(16384)).unwrap();
        hints
    }

    #[test]
    fn reads_what_it_wrote() {
        let hints = sample();
        assert_eq!(DirectoryHints::decode(&hints.encode().unwrap()), Ok(hints));
    }

    #[test]
    fn the_latest_pattern_that_matches_wins() {
        let of = |hints: &DirectoryHints, name: &str| small_bytes(&hints.of_name(name.as_bytes()));
        let mut hints = sample();
        assert_eq!(["x", "x.h5", "a.h5"].map(|name| of(&hints, name)), [Some(4096), Some(8192), Some(16384)],);
        hints.set(pattern("*.h5"), small_of(12288)).unwrap();
        assert_eq!(of(&hints, "a.h5"), Some(12288));
        assert!(hints.remove(None, None) && !hints.remove(None, None));
        assert_eq!(of(&hints, "x"), None);
    }

    #[test]
    fn what_else_was_said_of_a_pattern_stays() {
        let mut hints = sample();
        let mut ahead = Optimisations::default();
        ahead.enable(READAHEAD.index, OptimisationSetting::parse("readahead=8M").unwrap().pack().1).unwrap();
        hints.set(None, ahead.clone()).unwrap();
        let both = |hints: &DirectoryHints| {
            let all = hints.of_name(b"x");
            (small_bytes(&all), AskedPaths::parse(&all).read_ahead.map(|ahead| ahead.window_bytes))
        };
        assert_eq!(both(&hints), (Some(4096), Some(8 << 20)));
        let before = hints.clone();
        assert!(!hints.remove(None, Some(&[SMALL.index, CACHED.index])), "one of them is not there");
        assert_eq!(hints, before);
        assert!(hints.remove(None, Some(&[SMALL.index])));
        assert_eq!((both(&hints), hints.version), ((None, Some(8 << 20)), before.version + 1));
        assert!(hints.remove(None, Some(&[READAHEAD.index])));
        assert!(hints.hints().iter().all(|hint| hint.pattern.is_some()), "nothing is left of it");
    }

    #[test]
    fn the_version_counts_changes_that_were_made() {
        let mut hints = sample();
        assert_eq!(hints.version, 3);
        for number in 3..MAX_HINTS {
            hints.set(pattern(&format!("f{number}")), small_of(4096)).unwrap();
        }
        let before = hints.clone();
        assert_eq!(before.version, MAX_HINTS as u32);
        assert!(hints.set(pattern("more"), small_of(4096)).is_err());
        assert!(hints.set(pattern(&"long".repeat(100)), small_of(4096)).is_err());
        assert!(!hints.remove(pattern("none").as_ref(), None));
        assert_eq!(hints, before);
        hints.version = u32::MAX;
        assert!(hints.remove(None, None));
        assert_eq!(hints.version, 0);
    }

    #[test]
    fn what_a_later_release_says_is_kept_and_has_no_effect() {
        let mut optimisations = small_of(4097);
        optimisations.enable(30, 7).unwrap();
        let mut hints = DirectoryHints::default();
        hints.set(None, optimisations.clone()).unwrap();
        let read = DirectoryHints::decode(&hints.encode().unwrap()).unwrap();
        assert_eq!(read.of_name(b"x"), optimisations);
        assert_eq!(small_bytes(&optimisations), None);
    }

    proptest! {
        /// Damage behind a right checksum reaches every later check.
        #[test]
        fn damage_is_refused_or_stays_in_bounds(at in 5_usize..100, value: u8, cut in 0_usize..40) {
            let mut bytes = sample().encode().unwrap();
            bytes.truncate(bytes.len() - 4);
            let at = at % bytes.len();
            bytes[at] = value;
            bytes.truncate(bytes.len() - if cut < 20 { 0 } else { cut - 19 });
            bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
            if let Ok(hints) = DirectoryHints::decode(&bytes) {
                prop_assert_eq!(hints.encode().unwrap(), bytes);
            }
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = DirectoryHints::decode(&bytes);
            bytes.splice(..0, *b"SWDH\x01");
            bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
            let _ = DirectoryHints::decode(&bytes);
        }
    }
}
