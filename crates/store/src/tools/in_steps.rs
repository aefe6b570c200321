//! A move of a file in steps: a large file that is stopped in the middle, or killed, keeps the steps before.

use crate::file::inode::Inode;
use crate::file::marks::within;
use crate::file::steps::Then;
use crate::os::error::{Error, HandleError, Result};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use stripewise_layout::{Layout, LayoutError, MAX_OFFSET, Region, Stripe};

/// Bytes of a file that one step copies at least, but for the last.
const STEP_BYTES: u64 = 256 << 20;
/// Steps of one file: each may leave one of the cuts that its handle holds.
const MOST_STEPS: u64 = 16;
/// Datafiles that steps leave of one file at most: of more not all lengths are recorded, by which those that were cut short are told.
const MOST_DATAFILES: u64 = 64;
/// Datafiles of a file whose lengths are recorded in any case.
const MOST_RECORDED: u64 = 72;
/// Steps begin and end at multiples of that.
const ALIGNED_BYTES: u64 = 1 << 20;

/// `before`, with the rounds of `after` in the stretches. O((regions + stretches) x stretches).
pub(crate) fn with_stretches(before: &Layout, after: &Layout, stretches: &[(u64, u64)]) -> Result<Layout, LayoutError> {
    let regions = before.regions().iter().chain(after.regions()).map(Region::offset);
    let ends = stretches.iter().flat_map(|&(from, to)| [from, to]).filter(|&at| at <= MAX_OFFSET);
    let cuts: BTreeSet<u64> = regions.chain(ends).collect();
    let mut rounds: Vec<(u64, Vec<Stripe>)> = Vec::with_capacity(cuts.len());
    for at in cuts {
        let of = if stretches.iter().any(|&(from, to)| (from..to).contains(&at)) { after } else { before };
        let round = of.regions()[of.region_at(at)].stripes();
        if rounds.last().is_none_or(|(_, last)| last != round) {
            rounds.push((at, round.to_vec()));
        }
    }
    Layout::new(rounds)
}

/// Datafiles that a step makes at most: one on each server.
fn most_made(layout: &Layout) -> u64 {
    layout.servers().len() as u64
}

/// What of a file of `size_bytes` changes its place. O(regions of both).
fn changed(before: &Layout, after: &Layout, size_bytes: u64) -> Vec<(u64, u64)> {
    let cuts: BTreeSet<u64> = before.regions().iter().chain(after.regions()).map(Region::offset).collect();
    let cuts: Vec<u64> = cuts.into_iter().filter(|at| *at < size_bytes).chain([size_bytes]).collect();
    let region = |layout: &Layout, at| layout.regions()[layout.region_at(at)].clone();
    let moves = |at| !region(before, at).has_round_of(&region(after, at));
    cuts.windows(2).map(|pair| (pair[0], pair[1])).filter(|&(from, _)| moves(from)).collect()
}

/// Where the steps of a move end, but for the last one. O(regions of both).
fn ends(before: &Layout, after: &Layout, size_bytes: u64) -> Vec<u64> {
    let changed = changed(before, after, size_bytes);
    let in_all: u64 = changed.iter().map(|(from, to)| to - from).sum();
    let most_steps = (MOST_DATAFILES / most_made(after)).clamp(1, MOST_STEPS);
    let step_bytes = in_all.div_ceil(most_steps).max(STEP_BYTES);
    let (mut found, mut left) = (Vec::new(), step_bytes);
    for (from, to) in changed {
        let mut at = from;
        while to - at >= left {
            at = (at + left).next_multiple_of(ALIGNED_BYTES).min(to);
            left = step_bytes;
            if at < size_bytes {
                found.push(at);
            }
        }
        left = left.saturating_sub(to - at).max(ALIGNED_BYTES);
    }
    found
}

/// In how many steps [`move_in_steps`] moves a file. O(regions of both).
pub(crate) fn steps(before: &Layout, after: &Layout, size_bytes: u64) -> u64 {
    ends(before, after, size_bytes).len() as u64 + 1
}

/// Whether a file cannot have such a layout as its handle would be too large.
fn is_too_large(error: &Error) -> bool {
    matches!(error.cause(), Error::Handle(HandleError::TooLarge(_)))
}

/// Whether a server could not read what it has of the file, or has only a part of it.
pub(crate) fn is_unreadable(error: &Error) -> bool {
    // What a disk with a bad place says, and a file system that knows it by its sums.
    const BAD: [Errno; 5] = [Errno::IO, Errno::NODATA, Errno::ILSEQ, Errno::UCLEAN, Errno::BADMSG];
    let Error::Original { source } = error.cause() else { return false };
    match &**source {
        Error::Io { errno, .. } | Error::Server { errno, .. } => BAD.contains(errno),
        Error::ShortDatafile { .. } => true,
        _ => false,
    }
}

/// How a file moves that has bytes which cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It stays in its place.
    KeepsAll,
    /// What can be read moves, but for some bytes around the others.
    KeepsItsPart,
}

/// Moves a file to `layout` from its beginning on, a large one in steps. `progress` is told bytes of all steps, copied and read back. The
/// bytes that were copied by whole steps come first; then the first error, after which more may have moved.
pub(crate) fn move_in_steps(
    inode: &Arc<Inode>,
    layout: &Layout,
    (name, unreadable): (&str, Unreadable),
    progress: &mut dyn FnMut(u64, u64) -> Then,
) -> (u64, Result<()>) {
    let found = inode.placement().and_then(|placement| {
        let size_bytes = inode.attributes()?.size_bytes;
        Ok((placement.layout.clone(), ends(&placement.layout, layout, size_bytes), size_bytes))
    });
    let (before, ends, size_bytes) = match found {
        Ok(found) => found,
        Err(error) => return (0, Err(error)),
    };
    let (mut copied_bytes, mut done_bytes) = (0, 0);
    let mut step = |to: &Layout| -> Result<()> {
        let mut here = 0;
        let mut progress = |done, total| {
            here = done;
            progress(done_bytes + done, done_bytes + total)
        };
        let moved = inode.move_watched(to, name, true, &mut progress)?;
        copied_bytes += moved.copied_bytes;
        done_bytes += here;
        Ok(())
    };
    let from = std::iter::once(0).chain(ends.iter().copied());
    let mut next: VecDeque<(u64, u64)> = from.zip(ends.iter().copied().chain([u64::MAX])).collect();
    let changed = changed(&before, layout, size_bytes);
    // As many as there are halves down to the smallest, and a few: of a server that reads nothing no half can be moved.
    let most_in_a_row = (size_bytes / ALIGNED_BYTES).max(1).ilog2() + 4;
    let (mut moved, mut failed, mut in_a_row) = (Vec::new(), None, 0);
    while let Some((from, to)) = next.pop_front() {
        let is_all = failed.is_none() && next.is_empty();
        if !is_all && !has_room_for_lengths(inode, layout) {
            let last = failed.map_or_else(|| step(layout), Err);
            return (copied_bytes, last);
        }
        moved.push((from, to));
        let between = if is_all { Ok(layout.clone()) } else { with_stretches(&before, layout, &moved) };
        match between.map_err(|error| Error::Invalid(error.to_string())).and_then(|between| step(&between)) {
            Ok(()) => in_a_row = 0,
            // All at once needs fewer cuts.
            Err(error) if is_too_large(&error) && failed.is_none() && !is_all => {
                let last = step(layout);
                return (copied_bytes, last);
            }
            Err(error)
                if unreadable == Unreadable::KeepsItsPart && is_unreadable(&error) && in_a_row < most_in_a_row =>
            {
                in_a_row += 1;
                moved.pop();
                failed = failed.or(Some(error));
                let parts = within(&[(from, to)], &changed);
                let (begin, end) = (parts.first().map_or(from, |of| of.0), parts.last().map_or(from, |of| of.1));
                let middle = (begin + (end - begin) / 2).next_multiple_of(ALIGNED_BYTES);
                if begin < middle && middle < end {
                    next.push_front((middle, to));
                    next.push_front((from, middle));
                }
            }
            Err(error @ Error::Nameless { .. }) => return (copied_bytes, Err(error)),
            Err(error) => return (copied_bytes, Err(failed.unwrap_or(error))),
        }
    }
    (copied_bytes, failed.map_or(Ok(()), Err))
}

/// Whether the lengths of all of a file's datafiles are recorded when a step has made more of them. Else what one of them loses later would
/// read as a hole, and move as one.
fn has_room_for_lengths(inode: &Inode, layout: &Layout) -> bool {
    let datafiles = inode.placement().and_then(|placement| Ok(placement.datafiles()?.table.len() as u64));
    datafiles.is_ok_and(|datafiles| datafiles + most_made(layout) <= MOST_RECORDED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stripewise_layout::ServerId;

    const MIB: u64 = 1 << 20;

    fn layout(regions: &[(u64, u16)]) -> Layout {
        let stripe = |server| Stripe { server: ServerId(server), width_bytes: 65_536 };
        Layout::new(regions.iter().map(|&(at, server)| (at * MIB, vec![stripe(server)]))).unwrap()
    }

    #[test]
    fn a_step_copies_as_much_as_the_others_and_what_stays_counts_for_nothing() {
        let (one, other) = (layout(&[(0, 1)]), layout(&[(0, 2)]));
        assert_eq!(ends(&one, &other, 256 * MIB), []);
        assert_eq!(ends(&one, &other, 600 * MIB), [256 * MIB, 512 * MIB]);
        assert_eq!(ends(&one, &one, 600 * MIB), []);
        let terabyte = ends(&one, &other, MIB * MIB);
        assert_eq!((terabyte.len(), terabyte[0]), (15, MIB * MIB / 16));
        let wide = |first| Layout::striped((first..first + 9).map(ServerId), 65_536).unwrap();
        assert_eq!(ends(&wide(0), &wide(1), MIB * MIB).len() + 1, 64 / 9);
        let (before, after) = (layout(&[(0, 1), (10, 3), (10_000, 1)]), layout(&[(0, 2), (10, 3), (10_000, 2)]));
        assert_eq!(ends(&before, &after, 10_500 * MIB), [10_246 * MIB]);
        let before = layout(&[(0, 1), (256, 2), (1000, 1)]);
        assert_eq!(ends(&before, &other, 1400 * MIB), [256 * MIB, 1256 * MIB], "a region ends with a step");
    }

    proptest! {
        #[test]
        fn steps_end_inside_in_order_and_are_no_more_than_may_be(
            before in prop::collection::btree_map(0_u64..5000, 0_u16..3, 0..6),
            after in prop::collection::btree_map(0_u64..5000, 0_u16..3, 0..6),
            size_bytes in 0..6000 * MIB,
        ) {
            let of = |regions: std::collections::BTreeMap<u64, u16>| {
                let mut regions: Vec<(u64, u16)> = regions.into_iter().collect();
                regions.dedup_by_key(|(_, server)| *server);
                match regions.first_mut() {
                    Some(first) => first.0 = 0,
                    None => regions.push((0, 0)),
                }
                layout(&regions)
            };
            let (before, after) = (of(before), of(after));
            let ends = ends(&before, &after, size_bytes);
            prop_assert!(ends.len() as u64 <= MOST_STEPS + 1);
            prop_assert!(ends.iter().all(|end| *end > 0 && *end < size_bytes));
            prop_assert!(ends.windows(2).all(|pair| pair[0] < pair[1]));
            for end in ends {
                let between = with_stretches(&before, &after, &[(0, end)]).unwrap();
                for at in (0..size_bytes).step_by(37 * MIB as usize) {
                    let of = if at < end { &after } else { &before };
                    prop_assert_eq!(between.locate(at).server, of.locate(at).server);
                }
            }
        }
    }
}
