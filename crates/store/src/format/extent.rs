//! How long datafiles are for a file of a given size, and how long the file is for given datafiles.

use crate::format::placement::Datafiles;
use stripewise_layout::{Layout, MAX_OFFSET};

/// The slot of region `region` that datafile `index` serves.
fn slot_of(layout: &Layout, datafiles: &Datafiles, region: usize, index: u16) -> Option<usize> {
    (0..layout.regions()[region].stripes().len()).find(|&slot| datafiles.index(region, slot) == index)
}

/// End in datafile `index` of the bytes below `size_bytes` of region `region`, if it has any there.
fn end_in(layout: &Layout, datafiles: &Datafiles, region: usize, index: u16, size_bytes: u64) -> Option<u64> {
    let row = &layout.regions()[region];
    let slot = slot_of(layout, datafiles, region, index)?;
    let upto = size_bytes.min(layout.region_end(region)).min(MAX_OFFSET);
    if upto <= row.offset() {
        return None;
    }
    let end = row.datafile_offset(slot, upto);
    (end > row.offset()).then_some(end)
}

/// Bytes that datafile `index` has at most in a file of `size_bytes`. O(regions x stripes).
pub(crate) fn datafile_bytes(layout: &Layout, datafiles: &Datafiles, index: u16, size_bytes: u64) -> u64 {
    let regions = (0..layout.regions().len()).rev();
    regions.filter_map(|region| end_in(layout, datafiles, region, index, size_bytes)).next().unwrap_or(0)
}

/// Least size of the file in which datafile `index` is `datafile_bytes` long. What stands where the layout puts no byte
/// does not count. O(regions x stripes).
pub(crate) fn file_bytes(layout: &Layout, datafiles: &Datafiles, index: u16, datafile_bytes: u64) -> u64 {
    if datafile_bytes == 0 {
        return 0;
    }
    let last = layout.region_at((datafile_bytes - 1).min(MAX_OFFSET));
    for region in (0..=last).rev() {
        let row = &layout.regions()[region];
        let Some(end) = end_in(layout, datafiles, region, index, MAX_OFFSET) else { continue };
        let Some(slot) = slot_of(layout, datafiles, region, index) else { continue };
        let position = (datafile_bytes - 1).min(end - 1);
        if let Some(offset) = row.file_offset(slot, position) {
            return offset + 1;
        }
    }
    0
}

/// The stretches of datafile `index` in which the layout puts no byte, between the regions that it serves and before
/// the last of them: `(from, to)`.
pub(crate) fn gaps<'a>(
    layout: &'a Layout,
    datafiles: &'a Datafiles,
    index: u16,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    let mut before = 0;
    let regions = (0..layout.regions().len()).filter_map(move |region| {
        let end = end_in(layout, datafiles, region, index, MAX_OFFSET)?;
        let from = std::mem::replace(&mut before, end);
        Some((from, layout.regions()[region].offset()))
    });
    regions.filter(|(from, to)| from < to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::generations::GenerationMap;
    use proptest::prelude::*;
    use stripewise_layout::{ServerId, Stripe};

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
                generations.push((offset, generation));
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
                prop_assert_eq!(datafile_bytes(&layout, &datafiles, index as u16, size), length);
                back = back.max(file_bytes(&layout, &datafiles, index as u16, length));
            }
            prop_assert_eq!(back, size);
        }
    }
}
