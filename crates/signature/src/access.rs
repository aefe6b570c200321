//! [`Access`]: one request of one process, without its time.

/// Whether bytes came from the file or went to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessOp {
    /// Bytes came from the file.
    Read,
    /// Bytes went to the file.
    Write,
}

impl AccessOp {
    /// Name in the notation of Chen et al.
    pub fn name(self) -> &'static str {
        match self {
            AccessOp::Read => "READ",
            AccessOp::Write => "WRITE",
        }
    }
}

/// One request. Offsets are any `u64`; differences of offsets are taken modulo 2^64, so none is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// Read or write.
    pub op: AccessOp,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes, may be 0.
    pub size_bytes: u64,
}

impl Access {
    /// A read of `size_bytes` at `offset`.
    pub fn read(offset: u64, size_bytes: u64) -> Self {
        Self { op: AccessOp::Read, offset, size_bytes }
    }

    /// A write of `size_bytes` at `offset`.
    pub fn write(offset: u64, size_bytes: u64) -> Self {
        Self { op: AccessOp::Write, offset, size_bytes }
    }
}

/// `to - from` modulo 2^64, as the signed number nearest to 0.
pub(crate) fn difference(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from) as i64
}
