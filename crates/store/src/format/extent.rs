//! How long datafiles are for a file of a given size, and how long the file is for given datafiles.

use crate::format::placement::Datafiles;
use stripewise_layout::MAX_OFFSET;

/// The slot of region `region` that datafile `index` serves.
fn slot_of(datafiles: &Datafiles, region: usize, index: u16) -> Option<usize> {
    (0..datafiles.placed.regions()[region].stripes().len()).find(|&slot| datafiles.index(region, slot) == index)
}

/// Where datafile `index` has the bytes below `size_bytes` of region `region`, as `(from, to)`, if it has any. These places
/// ascend with the regions.
fn place_in(datafiles: &Datafiles, region: usize, index: u16, size_bytes: u64) -> Option<(u64, u64)> {
    let row = &datafiles.placed.regions()[region];
    let slot = slot_of(datafiles, region, index)?;
    let upto = size_bytes.min(datafiles.placed.region_end(region)).min(MAX_OFFSET);
    if upto <= row.offset() {
        return None;
    }
    let place = (row.datafile_offset(slot, row.offset()), row.datafile_offset(slot, upto));
    (place.0 < place.1).then_some(place)
}

/// Bytes that datafile `index` has at most in a file of `size_bytes`. O(regions x stripes).
pub(crate) fn datafile_bytes(datafiles: &Datafiles, index: u16, size_bytes: u64) -> u64 {
    let regions = (0..datafiles.placed.regions().len()).rev();
    regions.filter_map(|region| place_in(datafiles, region, index, size_bytes)).next().map_or(0, |place| place.1)
}

/// Bytes of a file of `size_bytes` that datafile `index` has. O(regions x stripes).
pub(crate) fn bytes_in(datafiles: &Datafiles, index: u16, size_bytes: u64) -> u64 {
    let regions = 0..datafiles.placed.regions().len();
    regions.filter_map(|region| place_in(datafiles, region, index, size_bytes)).map(|(from, to)| to - from).sum()
}

/// Least size of the file in which datafile `index` is `datafile_bytes` long. What stands where the layout puts no byte
/// does not count. O(regions x stripes).
pub(crate) fn file_bytes(datafiles: &Datafiles, index: u16, datafile_bytes: u64) -> u64 {
    if datafile_bytes == 0 {
        return 0;
    }
    for (region, row) in datafiles.placed.regions().iter().enumerate().rev() {
        // No place of a region is before its origin.
        if datafile_bytes <= row.origin() {
            continue;
        }
        let Some((from, to)) = place_in(datafiles, region, index, MAX_OFFSET) else { continue };
        let Some(slot) = slot_of(datafiles, region, index) else { continue };
        if datafile_bytes <= from {
            continue;
        }
        let position = (datafile_bytes - 1).min(to - 1);
        if let Some(offset) = row.file_offset(slot, position) {
            return offset + 1;
        }
    }
    0
}

/// The stretches of datafile `index` in which the layout puts no byte, between the regions that it serves and before
/// the last of them: `(from, to)`.
pub(crate) fn gaps(datafiles: &Datafiles, index: u16) -> impl Iterator<Item = (u64, u64)> + '_ {
    let mut before = 0;
    let regions = (0..datafiles.placed.regions().len()).filter_map(move |region| {
        let (from, to) = place_in(datafiles, region, index, MAX_OFFSET)?;
        Some((std::mem::replace(&mut before, to), from))
    });
    regions.filter(|(from, to)| from < to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::generations::{GenerationEntry, GenerationMap};
    use proptest::prelude::*;
    use stripewise_layout::{Layout, ServerId, Stripe};

    fn layouts() -> impl Strategy<Value = (Layout, Datafiles)> {
        let round = proptest::collection::btree_map(0_u16..4, 1_u64..9, 1..4);
        let regions = proptest::collection::vec((1_u64..40, round, 1_u32..3), 1..5);
        regions.prop_map(|regions| {
            let mut offset = 0;
            let mut rows = Vec::new();
            let mut generations = Vec::new();
            for (len, round, generation) in regions {
                let stripe = |(server, width_bytes)| Stripe { server: ServerId(server), width_bytes };
                rows.push((offset, round.into_iter().map(stripe).collect()));
                generations.push(GenerationEntry { offset, generation, origin: None });
                offset += len;
            }
            let layout = Layout::new(rows).unwrap();
            let datafiles = Datafiles::new(&layout, &GenerationMap::new(generations).unwrap()).unwrap();
            (layout, datafiles)
        })
    }

    proptest! {
        /// Against a walk over every byte of the file.
        #[test]
        fn both_ways_agree_with_a_walk((layout, datafiles) in layouts(), size in 0_u64..200) {
            let mut lengths = vec![0; datafiles.table.len()];
            for x in 0..size {
                let at = layout.locate(x);
                let length = &mut lengths[usize::from(datafiles.index(at.region, at.slot))];
                *length = at.datafile_offset + 1;
            }
            let mut back = 0;
            for (index, &length) in lengths.iter().enumerate() {
                prop_assert_eq!(datafile_bytes(&datafiles, index as u16, size), length);
                back = back.max(file_bytes(&datafiles, index as u16, length));
            }
            prop_assert_eq!(back, size);
        }
    }
}
