//! The plan of a window: who is served until when.

use std::fmt;

/// Slices of a plan at most.
pub const MAX_SLICES: usize = 64;
/// Shortest window in nanoseconds: 1 ms.
pub const MIN_WINDOW_NS: u64 = 1_000_000;
/// Longest window in nanoseconds: 10 s. No request is held for more than two windows.
pub const MAX_WINDOW_NS: u64 = 10_000_000_000;

/// A program, by the hash of its user and its name; [`OTHERS`] is all that have no slice of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramKey(pub u64);

/// For people, where its name is not known.
impl fmt::Display for ProgramKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == OTHERS {
            return f.write_str("all others");
        }
        write!(f, "the unknown program {:08x} of user {}", self.0 as u32, self.0 >> 32)
    }
}

/// All programs without a slice of their own, together.
pub const OTHERS: ProgramKey = ProgramKey(0);

/// One slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnSlice {
    /// Who is served.
    pub program: ProgramKey,
    /// Its end, in nanoseconds from the beginning of the window. It begins where the one before it ends.
    pub end_ns: u64,
}

/// The slices of a window, repeated until the next plan. Without slices all are served at all times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlicePlan {
    /// In order of their ends; the last ends with the window.
    pub slices: Vec<TurnSlice>,
}

impl SlicePlan {
    /// All are served at all times.
    pub fn open() -> Self {
        Self::default()
    }

    /// Whether all are served at all times.
    pub fn is_open(&self) -> bool {
        self.slices.is_empty()
    }

    /// The length of the slices of `program` in nanoseconds.
    pub fn share_ns(&self, program: ProgramKey) -> u64 {
        let begins = std::iter::once(0).chain(self.slices.iter().map(|slice| slice.end_ns));
        let slices = begins.zip(&self.slices).filter(|(_, slice)| slice.program == program);
        slices.map(|(begin_ns, slice)| slice.end_ns - begin_ns).sum()
    }
}
