//! The generation map: which generation of the datafiles holds the bytes from an offset on, and from where their places count.
//!
//! A move writes the bytes that change their place into datafiles of a new generation; all others keep their generation and
//! their places, and are not touched. So what was one region may be cut: the part behind the cut stays where it is,
//! and its places still count from where the region began, its *origin*.

use smallvec::SmallVec;
use stripewise_layout::{Layout, LayoutError, Region};

/// Most entries of a map: keeps the handle below its 4096 bytes. A move that would need more writes the whole file.
pub const MAX_GENERATIONS: usize = 128;

/// What holds from an offset in the file on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationEntry {
    /// First byte in the file for which it holds.
    pub offset: u64,
    /// Generation of the datafiles that have the bytes.
    pub generation: u32,
    /// From where the places of the bytes count; `None`: of each region from its own offset.
    pub origin: Option<u64>,
}

/// Entries in ascending order of offset, the first at 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationMap {
    entries: SmallVec<[GenerationEntry; 2]>,
}

impl GenerationMap {
    /// One generation for the whole file.
    pub fn whole(generation: u32) -> Self {
        Self { entries: SmallVec::from_slice(&[GenerationEntry { offset: 0, generation, origin: None }]) }
    }

    /// Builds a map; neighbours that say the same are merged. `None` when there is no entry, the first is not at 0, offsets do
    /// not ascend, an origin lies behind its entry, or more than [`MAX_GENERATIONS`] remain.
    pub fn new(entries: impl IntoIterator<Item = GenerationEntry>) -> Option<Self> {
        let mut out: SmallVec<[GenerationEntry; 2]> = SmallVec::new();
        let mut before = None;
        for entry in entries {
            let ascends = before.map_or(entry.offset == 0, |before| entry.offset > before);
            if !ascends || entry.origin.is_some_and(|origin| origin > entry.offset) {
                return None;
            }
            before = Some(entry.offset);
            let says = |of: &GenerationEntry| (of.generation, of.origin);
            if out.last().is_none_or(|last| says(last) != says(&entry)) {
                out.push(entry);
            }
        }
        (1..=MAX_GENERATIONS).contains(&out.len()).then_some(Self { entries: out })
    }

    /// The entries.
    pub fn entries(&self) -> &[GenerationEntry] {
        &self.entries
    }

    /// The generation that holds file offset `x`. O(log entries).
    pub fn at(&self, x: u64) -> u32 {
        self.entries[self.entries.partition_point(|entry| entry.offset <= x) - 1].generation
    }

    /// Memory in bytes, at most, that [`GenerationMap::placed`] takes besides the `layout`, and that tables of its stripes take more.
    /// O(regions) where an entry has an origin, else O(entries).
    pub(crate) fn memory_bytes(&self, layout: &Layout) -> usize {
        if self.entries.iter().all(|entry| entry.origin.is_none()) {
            return 0;
        }
        let (regions, cuts) = (layout.regions(), self.entries.len());
        let most_stripes = regions.iter().map(|region| region.stripes().len()).max().unwrap_or(0);
        (regions.len() + cuts) * size_of::<Region>() + cuts * (size_of::<u32>() + most_stripes * size_of::<u16>())
    }

    /// The `layout` of a file with this map, cut where its generations begin, with the places of each part. It is `layout` itself
    /// where no part has an origin. O(regions + entries), and O(entries log regions) then.
    ///
    /// # Errors
    /// The map does not fit the layout.
    pub fn placed(&self, layout: &Layout) -> Result<Layout, LayoutError> {
        let parts: SmallVec<[_; 2]> = self.entries.iter().map(|entry| (entry.offset, entry.origin)).collect();
        layout.placed(&parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry((offset, generation, origin): (u64, u32, Option<u64>)) -> GenerationEntry {
        GenerationEntry { offset, generation, origin }
    }

    fn map(entries: &[(u64, u32, Option<u64>)]) -> Option<GenerationMap> {
        GenerationMap::new(entries.iter().copied().map(entry))
    }

    #[test]
    fn finds_and_merges() {
        let found = map(&[(0, 1, None), (10, 1, None), (20, 3, None), (30, 1, Some(0)), (40, 1, Some(0))]).unwrap();
        assert_eq!(found.entries(), [(0, 1, None), (20, 3, None), (30, 1, Some(0))].map(entry));
        assert_eq!([0, 19, 20, 29, 30, u64::MAX].map(|x| found.at(x)), [1, 1, 3, 3, 1, 1]);
        // The same generation, but its places count from elsewhere.
        assert_eq!(map(&[(0, 1, None), (10, 1, Some(0)), (20, 1, Some(10))]).unwrap().entries().len(), 3);
    }

    #[test]
    fn refuses_disorder() {
        assert!(map(&[]).is_none());
        assert!(map(&[(1, 0, None)]).is_none());
        assert!(map(&[(0, 0, None), (5, 1, None), (5, 2, None)]).is_none());
        assert!(map(&[(0, 0, None), (5, 1, Some(6))]).is_none());
        assert!(GenerationMap::new((0..200).map(|i| entry((i, i as u32, None)))).is_none());
    }
}
