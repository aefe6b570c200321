//! What a way in says of an open, by which the decision maker composes its path.

/// An open, as its way in knows it.
#[derive(Debug, Clone, Copy)]
pub struct OpenTerms {
    /// Whether it may write.
    pub writes: bool,
    /// Whether what it reads moves the file's time of access.
    pub notes_reads: bool,
    /// Its program wants what it writes to be on the servers at once (`O_SYNC`, `O_DSYNC`, `O_DIRECT`).
    pub at_once: bool,
    /// Each of its writes goes to the end of the file (`O_APPEND`).
    pub appends: bool,
    /// What a kernel may keep of the file.
    pub pages: KernelPages,
}

impl OpenTerms {
    /// An open by the library, or by an export: past all kernels.
    pub fn by_library(writes: bool, notes_reads: bool) -> Self {
        Self { writes, notes_reads, at_once: false, appends: false, pages: KernelPages::NoMount }
    }
}

/// What the kernel above a way in may do with the bytes of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelPages {
    /// There is none above it.
    NoMount,
    /// It may keep what it reads, where that is asked for.
    MayKeep,
    /// The program goes past its pages (`O_DIRECT`).
    PastThem,
    /// It keeps what programs write, of all files of the mount (`writeback_cache`).
    WritesBack,
    /// It reads and writes the file by itself, and asks for nothing.
    ServesItself,
}
