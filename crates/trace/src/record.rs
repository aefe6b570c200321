//! [`Record`]: one operation of one process, in 56 bytes. The one definition of what a trace holds.

/// The interface that the program called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Api {
    /// `read`, `pwrite`, … of libc.
    Posix = 1,
    /// `fread`, `fprintf`, …: the caller's sizes, before stdio's buffer.
    Stdio = 2,
    /// `MPI_File_*`: the caller's sizes, before collective buffering.
    MpiIo = 3,
    /// HDF5's files and datasets. Logs count its calls; no record is of it.
    Hdf5 = 4,
    /// PnetCDF's files and variables. Logs count its calls; no record is of it.
    PnetCdf = 5,
}

impl Api {
    /// Every interface in order of number.
    pub const ALL: [Api; 5] = [Api::Posix, Api::Stdio, Api::MpiIo, Api::Hdf5, Api::PnetCdf];

    /// The interface with this number in a record.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|api| *api as u8 == number)
    }

    /// Name in tables and reports.
    pub fn name(self) -> &'static str {
        match self {
            Api::Posix => "POSIX",
            Api::Stdio => "STDIO",
            Api::MpiIo => "MPI-IO",
            Api::Hdf5 => "HDF5",
            Api::PnetCdf => "PnetCDF",
        }
    }
}

/// What was done. The numbers are part of the format: they are never reused, new ones go at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Operation {
    /// A descriptor, stream or MPI file was opened; the size is 0.
    Open = 1,
    /// It was closed.
    Close = 2,
    /// Bytes came from the file.
    Read = 3,
    /// Bytes went to the file.
    Write = 4,
    /// The position moved to the record's offset.
    Seek = 5,
    /// The size became the record's size.
    Truncate = 6,
    /// Written bytes were asked to be made durable (`fsync`, `fdatasync`, `sync_file_range`, `fflush`).
    Sync = 7,
    /// Metadata was read.
    Stat = 8,
    /// The name was removed.
    Unlink = 9,
    /// The name (the record's file) was given to another or taken from it.
    Rename = 10,
    /// `size` bytes at `offset` were mapped; accesses through the mapping are not seen.
    Mmap = 11,
    /// Space was reserved or punched (`fallocate`).
    Allocate = 12,
    /// Bytes were moved inside the kernel to or from the file (`copy_file_range`, `sendfile`); flag
    /// [`flags::KERNEL_WRITE`] tells which.
    KernelCopy = 13,
    /// Mode, owner, times or attributes were changed.
    SetAttributes = 14,
    /// A hint (`posix_fadvise`, `readahead`).
    Advise = 15,
}

impl Operation {
    /// Every operation in order of number.
    pub const ALL: [Operation; 15] = [
        Operation::Open,
        Operation::Close,
        Operation::Read,
        Operation::Write,
        Operation::Seek,
        Operation::Truncate,
        Operation::Sync,
        Operation::Stat,
        Operation::Unlink,
        Operation::Rename,
        Operation::Mmap,
        Operation::Allocate,
        Operation::KernelCopy,
        Operation::SetAttributes,
        Operation::Advise,
    ];

    /// The operation with this number in a record. O(1).
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Name in tables and reports.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Open => "open",
            Operation::Close => "close",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Seek => "seek",
            Operation::Truncate => "truncate",
            Operation::Sync => "sync",
            Operation::Stat => "stat",
            Operation::Unlink => "unlink",
            Operation::Rename => "rename",
            Operation::Mmap => "mmap",
            Operation::Allocate => "allocate",
            Operation::KernelCopy => "kernel-copy",
            Operation::SetAttributes => "set-attributes",
            Operation::Advise => "advise",
        }
    }
}

/// Bits of [`Record::flags`]. Part of the format: never reused.
pub mod flags {
    /// The call failed; `size` is what was asked for.
    pub const FAILED: u16 = 1;
    /// Served straight from the datafiles, past the mount.
    pub const BYPASSED: u16 = 2;
    /// An MPI collective call.
    pub const COLLECTIVE: u16 = 4;
    /// A non-blocking call: `end_ns` is its return, not its completion.
    pub const NONBLOCKING: u16 = 8;
    /// The descriptor appends.
    pub const APPEND: u16 = 16;
    /// The offset could not be learnt and is 0.
    pub const OFFSET_UNKNOWN: u16 = 32;
    /// Fewer bytes came back than were asked for (end of file, or a signal).
    pub const SHORT: u16 = 64;
    /// A writable mapping.
    pub const KERNEL_WRITE: u16 = 128;
    /// The open created or truncated the file, or asked to.
    pub const CREATE: u16 = 256;
    /// The size is that of the MPI request, whose completed count is not known on return.
    pub const SIZE_REQUESTED: u16 = 512;
}

/// One operation. 56 bytes, the same in memory and on disk (little-endian).
///
/// Times are nanoseconds: of `CLOCK_MONOTONIC` in a process's own file, since the start of the trace
/// ([`crate::Trace::start_unix_ns`]) once merged. `file` and `program` are indices, into the tables of the file that
/// the record stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Record {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes transferred; see [`Operation`] for what it is in operations that transfer none.
    pub size: u64,
    /// When the call began, in nanoseconds.
    pub start_ns: u64,
    /// When it returned, in nanoseconds.
    pub end_ns: u64,
    /// Which file.
    pub file: u32,
    /// Which program.
    pub program: u32,
    /// Rank of the process in its program.
    pub rank: u32,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// [`Api`] as its number.
    pub api: u8,
    /// [`Operation`] as its number; 0 is a slot that was never filled, [`crate::Operation::ALL`] has the rest.
    pub op: u8,
    /// Bits of [`flags`].
    pub flags: u16,
}

const _: () = assert!(size_of::<Record>() == 56 && align_of::<Record>() == 8);

impl Record {
    /// The interface; `None` for a number this version does not know.
    pub fn api(&self) -> Option<Api> {
        Api::from_number(self.api)
    }

    /// The operation; `None` for a number this version does not know.
    pub fn operation(&self) -> Option<Operation> {
        Operation::from_number(self.op)
    }

    /// Whether it moved bytes of the file: a read or write that succeeded with at least one byte.
    pub fn is_data(&self) -> bool {
        (self.op == Operation::Read as u8 || self.op == Operation::Write as u8)
            && self.size > 0
            && self.flags & flags::FAILED == 0
    }

    /// Offset after the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }

    /// Whether its fields can be; the reason when not. O(1), allocates only for a reason.
    ///
    /// # Errors
    /// What is wrong, as a clause.
    pub fn check(&self) -> Result<(), String> {
        if self.operation().is_none() {
            return Err(format!("operation number {}", self.op));
        }
        if self.api().is_none() {
            return Err(format!("interface number {}", self.api));
        }
        if self.end_ns < self.start_ns {
            return Err(format!("it ends at {} ns, before its start at {} ns", self.end_ns, self.start_ns));
        }
        if self.is_data() && self.offset.checked_add(self.size).is_none_or(|end| end > 1 << 63) {
            return Err(format!("offset {} and size {} exceed 2^63", self.offset, self.size));
        }
        Ok(())
    }

    /// Order of a merged trace: file, offset, start.
    pub(crate) fn place(&self) -> (u32, u64, u64) {
        (self.file, self.offset, self.start_ns)
    }

    /// [`Record::place`], then all the rest: the same records are in the same order however they came.
    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        let rest = |r: &Self| (r.end_ns, r.rank, r.pid, r.tid, r.api, r.op, r.size, r.flags, r.program);
        self.place().cmp(&other.place()).then_with(|| rest(self).cmp(&rest(other)))
    }
}

/// What a wrapper knows of an operation; the recorder adds process, rank and thread.
#[derive(Debug, Clone, Copy)]
pub struct WrappedCall {
    /// File, from [`crate::Recorder::file_id`].
    pub file: u32,
    /// Interface called.
    pub api: Api,
    /// Operation.
    pub op: Operation,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Begin, from [`crate::now_ns`].
    pub start_ns: u64,
    /// End, from [`crate::now_ns`].
    pub end_ns: u64,
    /// Bits of [`flags`].
    pub flags: u16,
}
