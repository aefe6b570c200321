//! Whose turn it is.

use crate::slice_plan::{MAX_SLICES, MAX_WINDOW_NS, MIN_WINDOW_NS, OTHERS, ProgramKey, TurnSlice};

/// A held request looks at the plan at least this often: 5 ms.
pub const HELD_LOOK_NS: u64 = 5_000_000;

/// When a program is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Now,
    /// In this many nanoseconds, at most one window.
    In(u64),
}

/// When `program` is served, `since_ns` after the beginning of the first window of `slices`, which repeats each `window_ns`.
/// A program that has no slice is one of [`OTHERS`]; where these have none either, it is served at once: a plan that was made
/// before a program came must not hold it. Slices that are no plan (a window out of bounds, ends out of order, too many) hold
/// none. O(slices), no allocation.
pub fn turn_of(
    slices: impl ExactSizeIterator<Item = TurnSlice> + Clone,
    window_ns: u64,
    since_ns: u64,
    program: ProgramKey,
) -> Turn {
    if !(MIN_WINDOW_NS..=MAX_WINDOW_NS).contains(&window_ns) || slices.len() > MAX_SLICES {
        return Turn::Now;
    }
    let has_own = slices.clone().any(|slice| slice.program == program);
    let object = if has_own { program } else { OTHERS };
    let at_ns = since_ns % window_ns;
    let mut begin_ns = 0;
    let mut next_ns = None;
    for slice in slices {
        if slice.end_ns < begin_ns || slice.end_ns > window_ns {
            return Turn::Now;
        }
        if slice.program == object && slice.end_ns > begin_ns {
            if (begin_ns..slice.end_ns).contains(&at_ns) {
                return Turn::Now;
            }
            let wait_ns = if begin_ns > at_ns { begin_ns - at_ns } else { window_ns - at_ns + begin_ns };
            next_ns = Some(next_ns.map_or(wait_ns, |before: u64| before.min(wait_ns)));
        }
        begin_ns = slice.end_ns;
    }
    next_ns.map_or(Turn::Now, Turn::In)
}
