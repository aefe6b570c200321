//! Stretches of a file: which of its bytes stand in a datafile.

use crate::file::lengths::stretches;
use crate::format::placement::Datafiles;

/// Most stretches of a file that a finding lists.
const MOST_STRETCHES: usize = 4096;
/// Most of them that its words name.
const MOST_NAMED: usize = 4;

/// Stretches of a file that cannot be had, as `(from, to)` in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Stretches {
    /// The first of them.
    pub(crate) listed: Vec<(u64, u64)>,
    /// Bytes of all of them.
    pub(crate) bytes: u64,
    /// How many there are.
    count: u64,
    /// Where the last one ends.
    end: u64,
}

impl Stretches {
    /// Those that stand in `[from, to)` of datafile `index` of a file of `size_bytes`.
    pub(crate) fn of(datafiles: &Datafiles, index: u16, place: (u64, u64), size_bytes: u64) -> Self {
        let mut all = Self::default();
        stretches(datafiles, index, place, size_bytes, |from, to| all.add(from, to));
        all
    }

    /// Adds a stretch behind all others.
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        let goes_on = self.count > 0 && from == self.end;
        self.bytes += to - from;
        self.end = to;
        match self.listed.last_mut() {
            Some(last) if goes_on && last.1 == from => last.1 = to,
            _ if goes_on => {}
            _ => {
                self.count += 1;
                if self.listed.len() < MOST_STRETCHES {
                    self.listed.push((from, to));
                }
            }
        }
    }

    /// How many of them `listed` leaves out.
    pub(crate) fn left_out(&self) -> u64 {
        self.count - self.listed.len() as u64
    }

    /// Those of several datafiles of one file, in order. O(n log n) in what they list.
    pub(crate) fn joined(parts: Vec<Self>) -> Self {
        let mut all = Self::default();
        let left_out: u64 = parts.iter().map(Self::left_out).sum();
        let (bytes, end) = (parts.iter().map(|of| of.bytes).sum(), parts.iter().map(|of| of.end).max().unwrap_or(0));
        let mut listed: Vec<_> = parts.into_iter().flat_map(|of| of.listed).collect();
        listed.sort_unstable();
        listed.into_iter().for_each(|(from, to)| all.add(from, to));
        Self { bytes, end, count: all.count + left_out, ..all }
    }

    /// In words: bytes from the first to the last of each, both counted.
    pub(crate) fn words(&self) -> String {
        let named: Vec<_> = self.listed.iter().take(MOST_NAMED).map(|(a, b)| format!("{a}-{}", b - 1)).collect();
        let more = self.count - named.len() as u64;
        let rest = if more > 0 { format!(" and {more} more stretches up to {}", self.end - 1) } else { String::new() };
        format!("bytes {}{rest} ({} in all)", named.join(", "), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_several_datafiles_stand_in_order_and_none_is_uncounted() {
        let of = |stretches: &[(u64, u64)]| {
            let mut all = Stretches::default();
            stretches.iter().for_each(|(from, to)| all.add(*from, *to));
            all
        };
        let joined = Stretches::joined(vec![of(&[(10, 20), (40, 50)]), of(&[(0, 10), (30, 35)])]);
        assert_eq!((&*joined.listed, joined.bytes, joined.left_out()), (&[(0, 20), (30, 35), (40, 50)][..], 35, 0));
        let many = |first: u64| of(&(0..5000).map(|at| (first + 20 * at, first + 20 * at + 5)).collect::<Vec<_>>());
        let joined = Stretches::joined(vec![many(0), many(10)]);
        assert_eq!((joined.listed.len(), joined.left_out(), joined.bytes), (4096, 10_000 - 4096, 50_000));
        assert_eq!(joined.listed[1], (10, 15), "the first of all");
        let words = "bytes 0-4, 10-14, 20-24, 30-34 and 9996 more stretches up to 99994 (50000 in all)";
        assert_eq!(joined.words(), words);
    }
}
