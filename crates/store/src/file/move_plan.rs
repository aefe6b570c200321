//! What a move to another layout copies, and what stays where it is.

use crate::format::generations::{GenerationEntry, GenerationMap};
use crate::format::placement::{Datafiles, Placement};
use crate::os::error::HandleError;
use stripewise_layout::{Layout, MAX_OFFSET};

/// The new shape of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MovePlan {
    /// Generations under the new layout.
    pub(crate) generations: GenerationMap,
    /// Parts of the file that must be copied, as `(from, to)`, each in one region of the new layout.
    pub(crate) copy: Vec<(u64, u64)>,
}

/// A stretch of the file within one region of both layouts.
#[derive(Debug, Clone, Copy)]
struct Part {
    from: u64,
    to: u64,
    generation: u32,
    origin: u64,
    /// Of the new layout.
    region: usize,
    stays: bool,
}

impl MovePlan {
    /// The move of a file of `size_bytes` to `layout`, whose new datafiles get `generation`. A byte stays where it is, in its
    /// generation, if both layouts have it at one place of one round; the file is cut where such bytes begin and end. All
    /// others are copied: those of one region count their places from where the region begins, and so never share one.
    /// A file all of whose bytes come to its inode keeps no datafile.
    /// Where a handle cannot hold that many cuts, the shortest parts that would stay are copied as well, as many as it
    /// takes. O(regions of both x stripes), and O(log regions) times as long then.
    ///
    /// # Errors
    /// The file would have too many datafiles in any case.
    pub(crate) fn new(old: &Placement, layout: &Layout, generation: u32, size_bytes: u64) -> Result<Self, HandleError> {
        let before = old.datafiles()?.placed;
        let parts = parts(&before, |offset| old.generations.at(offset), layout, generation);
        let parts = without_empty_datafiles(parts, layout, generation, size_bytes);
        if let Ok(plan) = Self::of(&parts, layout, size_bytes) {
            return Ok(plan);
        }
        let held = |part: &Part| part.to.min(size_bytes).saturating_sub(part.from);
        let mut shortest_first: Vec<usize> = (0..parts.len()).filter(|&index| parts[index].stays).collect();
        shortest_first.sort_by_key(|&index| held(&parts[index]));
        let with_copies = |count: usize| {
            let mut parts = parts.clone();
            for &index in &shortest_first[..count] {
                let origin = layout.regions()[parts[index].region].offset();
                parts[index] = Part { generation, origin, stays: false, ..parts[index] };
            }
            Self::of(&joined(parts), layout, size_bytes)
        };
        // `few` are not enough; with `many` it fits, at the latest where nothing stays.
        let (mut few, mut many) = (0, shortest_first.len());
        let mut plan = with_copies(many)?;
        while few + 1 < many {
            let middle = usize::midpoint(few, many);
            match with_copies(middle) {
                Ok(smaller) => (many, plan) = (middle, smaller),
                Err(_) => few = middle,
            }
        }
        Ok(plan)
    }

    /// The move that copies what does not stay.
    fn of(parts: &[Part], layout: &Layout, size_bytes: u64) -> Result<Self, HandleError> {
        let entry = |part: &Part| {
            let region = &layout.regions()[part.region];
            let is_own = part.origin == part.from && region.offset() == part.from;
            // The region is all one part, or each of its parts says where it counts from.
            let origin = (!is_own || part.to < layout.region_end(part.region)).then_some(part.origin);
            GenerationEntry { offset: part.from, generation: part.generation, origin }
        };
        let generations =
            GenerationMap::new(parts.iter().map(entry)).ok_or(HandleError::TooLarge("more than 128 generations"))?;
        Datafiles::new(layout, &generations)?;
        let copy = parts.iter().filter(|part| !part.stays && part.from < size_bytes);
        Ok(Self { generations, copy: copy.map(|part| (part.from, part.to.min(size_bytes))).collect() })
    }
}

/// Both layouts laid over each other; parts that go on where the one before them ends are one.
fn parts(before: &Layout, generation_at: impl Fn(u64) -> u32, layout: &Layout, generation: u32) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let (mut old, mut region, mut from) = (0, 0, 0);
    while from <= MAX_OFFSET {
        let (was, is) = (&before.regions()[old], &layout.regions()[region]);
        let (old_end, new_end) = (before.region_end(old), layout.region_end(region));
        let to = old_end.min(new_end);
        let stays = was.has_round_of(is);
        let (generation, origin) =
            if stays { (generation_at(was.offset()), was.origin()) } else { (generation, is.offset()) };
        parts.push(Part { from, to, generation, origin, region, stays });
        (old, region) = (old + usize::from(to == old_end), region + usize::from(to == new_end));
        from = to;
    }
    joined(parts)
}

/// Of a file all of whose bytes come to its inode, what lies behind them has no byte: its datafiles would be new ones, which are
/// made when they are first written, so that those of before go.
fn without_empty_datafiles(mut parts: Vec<Part>, layout: &Layout, generation: u32, size_bytes: u64) -> Vec<Part> {
    let head_bytes = layout.head_in_inode_bytes();
    let comes = parts.iter().any(|part| !part.stays && part.from < size_bytes);
    if !comes || size_bytes > head_bytes {
        return parts;
    }
    for part in parts.iter_mut().filter(|part| part.from >= head_bytes) {
        *part = Part { generation, origin: layout.regions()[part.region].offset(), stays: false, ..*part };
    }
    joined(parts)
}

/// Parts in order, as few as possible.
fn joined(mut parts: Vec<Part>) -> Vec<Part> {
    let same = |of: &Part| (of.generation, of.origin, of.region, of.stays);
    parts.dedup_by(|next, kept| {
        let goes_on = same(next) == same(kept);
        if goes_on {
            kept.to = next.to;
        }
        goes_on
    });
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::extent::{bytes_in, datafile_bytes, file_bytes, gaps};
    use crate::format::handle::{Handle, Present};
    use crate::format::identity::Identity;
    use crate::format::placement::Datafile;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::Arc;
    use stripewise_layout::{ServerId, Stripe};

    const END: u64 = 160;

    fn placement(layout: Layout, generations: GenerationMap, version: u32) -> Placement {
        Placement {
            pool: "p".into(),
            handle: 1,
            version,
            epoch: 0,
            owner: 0,
            identity: Identity { inode: 1, generation: 0 },
            bypass: false,
            generations,
            present: Present::default(),
            layout: Arc::new(layout),
        }
    }

    /// Few rounds, so that layouts have some in common.
    fn layouts() -> impl Strategy<Value = Layout> {
        let regions = prop::collection::vec((1_u64..60, 0_usize..5), 1..6);
        regions.prop_map(|regions| {
            let rounds: [&[(u16, u64)]; 5] =
                [&[(0, 3), (1, 4)], &[(1, 4), (0, 3)], &[(2, 5)], &[(u16::MAX, 8)], &[(0, 1), (1, 1), (2, 2)]];
            let mut offset = 0;
            let rows = regions.into_iter().map(|(len, round)| {
                let stripe = |&(server, width_bytes): &(u16, u64)| Stripe { server: ServerId(server), width_bytes };
                let row = (offset, rounds[round].iter().map(stripe).collect::<Vec<_>>());
                offset += len;
                row
            });
            Layout::new(rows.collect::<Vec<_>>()).unwrap()
        })
    }

    /// Where byte `x` is: a datafile, or the inode, and the position there.
    fn place_of(datafiles: &Datafiles, x: u64) -> (Option<Datafile>, u64) {
        let at = datafiles.placed.locate(x);
        let index = datafiles.index(at.region, at.slot);
        (datafiles.table.get(usize::from(index)).copied(), at.datafile_offset)
    }

    /// What a byte's round is in a layout.
    fn round_of(layout: &Layout, x: u64) -> Vec<Stripe> {
        layout.regions()[layout.region_at(x)].stripes().to_vec()
    }

    /// No two bytes are in one place, and what is said of the datafiles is what a walk over the bytes finds.
    fn check_places(datafiles: &Datafiles, size: u64) {
        let mut taken = HashMap::new();
        let mut held: HashMap<(ServerId, u32), (u64, u64)> = HashMap::new();
        let key = |of: &Datafile| (of.server, of.generation);
        for x in 0..2 * END {
            let (datafile, at) = place_of(datafiles, x);
            assert!(taken.insert((datafile.map(|of| key(&of)), at), x).is_none(), "two bytes in one place");
            if let Some(datafile) = datafile.filter(|_| x < size) {
                let (end, count) = held.entry(key(&datafile)).or_default();
                (*end, *count) = (at + 1, *count + 1);
            }
        }
        let mut upto = 0;
        for (index, datafile) in datafiles.table.iter().enumerate() {
            let (end, count) = held.get(&key(datafile)).copied().unwrap_or_default();
            assert_eq!(
                (datafile_bytes(datafiles, index as u16, size), bytes_in(datafiles, index as u16, size)),
                (end, count)
            );
            upto = upto.max(file_bytes(datafiles, index as u16, end));
            for (from, to) in gaps(datafiles, index as u16) {
                for at in from..to.min(2 * END) {
                    assert!(!taken.contains_key(&(Some(key(datafile)), at)), "{at} is no gap");
                }
            }
        }
        let last = (0..size).rev().find(|&x| place_of(datafiles, x).0.is_some());
        assert_eq!(upto, last.map_or(0, |last| last + 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Moves one after the other, byte by byte: what has the same place in the same round stays, all else is copied to
        /// where nothing was, and what a handle and a placement keep of it is the same again.
        #[test]
        fn only_what_changes_its_place_is_copied(first in layouts(), then in prop::collection::vec((layouts(), 0..END), 1..6)) {
            let mut old = placement(first, GenerationMap::whole(1), 1);
            for (number, (layout, size)) in then.into_iter().enumerate() {
                let generation = number as u32 + 2;
                let plan = MovePlan::new(&old, &layout, generation, size).unwrap();
                let was = old.datafiles().unwrap();
                let is = Datafiles::new(&layout, &plan.generations).unwrap();
                let head_bytes = layout.head_in_inode_bytes();
                let mut copied = vec![false; END as usize];
                for &(from, to) in &plan.copy {
                    prop_assert!(from < to && to <= size && layout.region_at(from) == layout.region_at(to - 1));
                    copied[from as usize..to as usize].iter_mut().for_each(|byte| *byte = true);
                }
                for x in 0..2 * END {
                    let (before, after) = (round_of(&old.layout, x), round_of(&layout, x));
                    let is_forgotten = !plan.copy.is_empty() && size <= head_bytes && x >= head_bytes;
                    let stays = !is_forgotten && (before == after || before.len() == 1 && after.len() == 1 && before[0].server == after[0].server);
                    if stays {
                        prop_assert_eq!(place_of(&was, x), place_of(&is, x), "byte {} stays", x);
                    } else if let (Some(datafile), _) = place_of(&is, x) {
                        prop_assert_eq!(datafile.generation, generation);
                    }
                    if x < END {
                        prop_assert_eq!(copied[x as usize], !stays && x < size, "byte {}", x);
                    }
                }
                check_places(&is, size);
                old = placement(layout, plan.generations, generation);
                let again = MovePlan::new(&old, &old.layout, generation + 1, size).unwrap();
                prop_assert_eq!(again, MovePlan { generations: old.generations.clone(), copy: vec![] });
                prop_assert_eq!(Placement::from_bytes(&old.to_bytes()).unwrap(), old.clone());
                let handle = Handle { generations: old.generations.clone(), ..Handle::new(7, [1; 32]) };
                prop_assert_eq!(Handle::decode(&handle.encode().unwrap()).unwrap(), handle);
            }
        }
    }

    fn stripes(servers: &[u16]) -> Vec<Stripe> {
        servers.iter().map(|&server| Stripe { server: ServerId(server), width_bytes: 4096 }).collect()
    }

    #[test]
    fn a_part_that_leaves_and_comes_back_is_all_that_is_copied() {
        let whole = || Layout::new([(0, stripes(&[0, 1]))]).unwrap();
        let split =
            Layout::new([(0, stripes(&[0, 1])), (1 << 20, stripes(&[2])), (2 << 20, stripes(&[0, 1]))]).unwrap();
        let old = placement(whole(), GenerationMap::whole(1), 1);
        let there = MovePlan::new(&old, &split, 2, 8 << 20).unwrap();
        assert_eq!(there.copy, [(1 << 20, 2 << 20)]);
        let old = placement(split, there.generations, 2);
        let back = MovePlan::new(&old, &whole(), 3, 8 << 20).unwrap();
        assert_eq!(back.copy, [(1 << 20, 2 << 20)]);
        assert_eq!(back.generations.entries().len(), 3, "what has come back has datafiles of its own");
        let old = placement(whole(), back.generations, 3);
        assert!(MovePlan::new(&old, &whole(), 4, 8 << 20).unwrap().copy.is_empty());
    }

    /// Of a file whose places a handle could not say, the shortest parts that would stay are copied as well.
    #[test]
    fn with_too_many_cuts_the_shortest_parts_move_along() {
        let whole = Layout::new([(0, stripes(&[0, 1]))]).unwrap();
        let old = placement(whole, GenerationMap::whole(1), 1);
        let other = |index: u64| if index.is_multiple_of(2) { stripes(&[0, 1]) } else { stripes(&[2]) };
        let layout = |regions: u64| Layout::new((0..regions).map(|index| (index << 20, other(index)))).unwrap();
        let size_bytes = 200 << 20;
        let few = MovePlan::new(&old, &layout(100), 2, size_bytes).unwrap();
        assert_eq!(few.copy.len(), 50);
        let many = MovePlan::new(&old, &layout(200), 2, size_bytes).unwrap();
        assert!((1..=128).contains(&many.generations.entries().len()));
        // 200 parts; of the 100 that would stay, each of the first n is joined with two neighbours: 201 - 2n are left.
        assert_eq!(many.copy.len(), 100 + 37);
        // One region after another becomes a single one again.
        let cut = placement(layout(200), many.generations, 2);
        let undone = MovePlan::new(&cut, &old.layout, 3, size_bytes).unwrap();
        let copied: u64 = undone.copy.iter().map(|(from, to)| to - from).sum();
        assert!((100 << 20..200 << 20).contains(&copied), "{copied}");
        // With nothing but moves of all the file is as it was made.
        let all = MovePlan::new(&old, &Layout::new([(0, stripes(&[2, 0]))]).unwrap(), 2, size_bytes).unwrap();
        assert_eq!((all.generations, all.copy), (GenerationMap::whole(2), vec![(0, size_bytes)]));
    }

    /// What a user can write into a handle: places that overlap, or are out of order.
    #[test]
    fn generations_that_overlap_in_a_datafile_are_refused() {
        let layout =
            Layout::new([(0, stripes(&[0, 1])), (1 << 20, stripes(&[0])), (2 << 20, stripes(&[0, 1]))]).unwrap();
        let fits = |entries: &[(u64, u32, Option<u64>)]| {
            let entry = |&(offset, generation, origin)| GenerationEntry { offset, generation, origin };
            GenerationMap::new(entries.iter().map(entry)).map(|map| Datafiles::new(&layout, &map).is_ok())
        };
        assert_eq!(fits(&[(0, 1, None)]), Some(true));
        assert_eq!(fits(&[(0, 1, None), (1 << 20, 2, None), (2 << 20, 1, Some(0))]), Some(true));
        // In one generation the part behind would lie in the middle's place.
        assert_eq!(fits(&[(0, 1, None), (2 << 20, 1, Some(0))]), Some(false));
        assert_eq!(fits(&[(0, 1, None), (1 << 19, 1, Some(0))]), Some(false));
        assert_eq!(
            fits(&[(0, 1, None), (1 << 19, 2, None)]),
            Some(false),
            "in the middle of a region, without an origin"
        );
        assert_eq!(fits(&[(0, 1, None), (1 << 19, 1, Some(1 << 20))]), None);
        assert_eq!(fits(&[(0, 1, None), (1 << 62, 1, Some(u64::MAX >> 2))]), Some(true));
        assert_eq!(fits(&[(0, 1, None), (1 << 63, 2, Some(0))]), Some(false));
    }
}
