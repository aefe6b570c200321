//! What a write that failed half-way may have left beyond the bytes that count; [`crate::Inode::cut_back`] cuts it off.

use smallvec::SmallVec;

/// What a write that failed half-way may have left behind the bytes that count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surplus {
    /// Version of the handle that the parts' indexes are of.
    pub version: u32,
    /// Offset in the file of the first byte that was not written; at least one byte before it was.
    pub kept_to: u64,
    /// The datafiles that may have bytes of the write behind that.
    pub parts: Parts,
}

/// The parts of a [`Surplus`]; no allocation up to 16.
pub type Parts = SmallVec<[DatafileWrite; 16]>;

/// What a write did in one datafile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatafileWrite {
    /// Index in the placement's table of datafiles.
    pub index: u16,
    /// Bytes that the datafile had before.
    pub before_bytes: u64,
    /// First byte in it that the write may have written.
    pub from: u64,
    /// End of what it has written there.
    pub to: u64,
}
