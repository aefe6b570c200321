//! The generation map: which generation of the datafiles holds the bytes from an offset on.
//!
//! A move writes the regions that change into datafiles of a new generation; a region that stays as it is keeps its
//! generation and its bytes are not touched.

use smallvec::SmallVec;

/// Most entries of a map: keeps the handle below its 4096 bytes. A move that would need more writes all regions.
pub const MAX_GENERATIONS: usize = 128;

/// `(file offset, generation)` in ascending order of offset, the first at 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationMap {
    entries: SmallVec<[(u64, u32); 4]>,
}

impl GenerationMap {
    /// One generation for the whole file.
    pub fn whole(generation: u32) -> Self {
        Self { entries: SmallVec::from_slice(&[(0, generation)]) }
    }

    /// Builds a map; equal neighbours are merged. `None` when there is no entry, the first is not at 0, offsets do
    /// not ascend, or more than [`MAX_GENERATIONS`] remain.
    pub fn new(entries: impl IntoIterator<Item = (u64, u32)>) -> Option<Self> {
        let mut out: SmallVec<[(u64, u32); 4]> = SmallVec::new();
        let mut before = None;
        for (offset, generation) in entries {
            if before.is_some_and(|before| offset <= before) || (before.is_none() && offset != 0) {
                return None;
            }
            before = Some(offset);
            if out.last().is_none_or(|last| last.1 != generation) {
                out.push((offset, generation));
            }
        }
        (1..=MAX_GENERATIONS).contains(&out.len()).then_some(Self { entries: out })
    }

    /// The entries.
    pub fn entries(&self) -> &[(u64, u32)] {
        &self.entries
    }

    /// The generation that holds file offset `x`. O(log entries).
    pub fn at(&self, x: u64) -> u32 {
        self.entries[self.entries.partition_point(|&(offset, _)| offset <= x) - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_and_merges() {
        let map = GenerationMap::new([(0, 1), (10, 1), (20, 3), (30, 1)]).unwrap();
        assert_eq!(map.entries(), [(0, 1), (20, 3), (30, 1)]);
        assert_eq!([0, 19, 20, 29, 30, u64::MAX].map(|x| map.at(x)), [1, 1, 3, 3, 1, 1]);
    }

    #[test]
    fn refuses_disorder() {
        assert!(GenerationMap::new([]).is_none());
        assert!(GenerationMap::new([(1, 0)]).is_none());
        assert!(GenerationMap::new([(0, 0), (5, 1), (5, 2)]).is_none());
        assert!(GenerationMap::new((0..200).map(|i| (i, i as u32))).is_none());
    }
}
