//! What can go wrong in the store, with the errno that a program sees.

use crate::os::room::Room;
use rustix::io::Errno;
use std::path::PathBuf;

/// Result of the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the store. The text names the thing, the value and the remedy; [`Error::errno`] is what a program sees.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on a path failed.
    #[error("cannot {action} {}: {errno}{}", path.display(), remedy_at(*errno))]
    Io {
        /// What was tried ("open", "write").
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// An operation on a path is refused before a system call is made.
    #[error("cannot {action} {}: {reason}", path.display())]
    Refused {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        reason: &'static str,
        /// What the program gets.
        errno: Errno,
    },
    /// Reading or writing a server failed.
    #[error("cannot {action} on server {server}: {errno}{}", remedy(*errno))]
    Server {
        /// What was tried.
        action: &'static str,
        /// Name of the server, as in `hdd.0`.
        server: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A server is full.
    #[error("cannot {action} on server {server} ({}): {}{}{}", root.display(), Errno::NOSPC, left(*room), remedy(Errno::NOSPC))]
    Full {
        /// What was tried.
        action: &'static str,
        /// Name of the server, as in `hdd.0`.
        server: String,
        /// Its directory.
        root: PathBuf,
        /// What it has, if it says.
        room: Option<Room>,
    },
    /// A file does not fit where a new layout puts it; nothing was begun.
    #[error(
        "{file} does not fit: its new layout needs {} on server {server}, which will have {} free when it is its turn; free space \
         there, or add a server. A plan that is made now leaves out what is full. Nothing was moved",
        about(*needed_bytes), about(*free_bytes)
    )]
    NoRoom {
        /// The file.
        file: String,
        /// Name of the server.
        server: String,
        /// Bytes that have to be written to its disk before old ones go.
        needed_bytes: u64,
        /// Bytes that it will have free when it is this file's turn.
        free_bytes: u64,
    },
    /// What a server has does not fit on those that are to take it; nothing was begun.
    #[error(
        "{file} does not fit: what leaves {server} needs {} on {targets}, where {} are free, {} too little; free space there, or add a \
         server. Nothing was moved",
        about(*needed_bytes), about(*free_bytes), about(needed_bytes.saturating_sub(*free_bytes))
    )]
    NoRoomForAll {
        /// The first file for which nothing is left.
        file: String,
        /// Name of the server that they leave.
        server: String,
        /// Bytes that all files which can move have there.
        needed_bytes: u64,
        /// Names of those that are to take them.
        targets: String,
        /// Bytes that these have free together.
        free_bytes: u64,
    },
    /// The pool file is wrong.
    #[error("{}:{line}: {message}", path.display())]
    Pool {
        /// The pool file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what to write instead.
        message: String,
    },
    /// A server's directory is not there, or is not this server's.
    #[error("server {server} is not available: {reason} ({}); mount or restore its directory", root.display())]
    MissingServer {
        /// Name of the server.
        server: String,
        /// Its directory.
        root: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// A datafile that the handle lists is gone.
    #[error("datafile {datafile} of server {server} is missing: bytes of this file are lost until it is restored")]
    MissingDatafile {
        /// Name of the server.
        server: String,
        /// Path below the server's directory.
        datafile: String,
    },
    /// A datafile ends before the length that its last writer had recorded.
    #[error(
        "datafile {datafile} of server {server} ends at byte {found_bytes}, {recorded_bytes} had been recorded: bytes of \
         this file are lost; `stripewise fsck` says which, restore them from a backup"
    )]
    ShortDatafile {
        /// Name of the server.
        server: String,
        /// Path below the server's directory.
        datafile: String,
        /// Its length in bytes.
        found_bytes: u64,
        /// Its least length in bytes, by the record.
        recorded_bytes: u64,
    },
    /// A datafile and its file have different owners.
    #[error(
        "datafile {datafile} of server {server} belongs to user {found}, the file to user {expected}; run \
         `stripewise fsck`"
    )]
    ForeignDatafile {
        /// Name of the server.
        server: String,
        /// Path below the server's directory.
        datafile: String,
        /// Owner of the datafile.
        found: u32,
        /// Owner of the file.
        expected: u32,
    },
    /// A datafile of a shared pool is bound to another inode than the file's.
    #[error(
        "datafile {datafile} of server {server} is not bound to the file that names it (inode {inode} of the pool's tree), \
         so it is not used; have root run `stripewise fsck`"
    )]
    UnboundDatafile {
        /// Name of the server.
        server: String,
        /// Path below the server's directory.
        datafile: String,
        /// Number of the file's inode.
        inode: u64,
    },
    /// Something that is no datafile stands where one should be.
    #[error(
        "{datafile} of server {server} {what}, so it is no datafile of this file and is not used; its owner or root can \
         remove it"
    )]
    NotADatafile {
        /// Name of the server.
        server: String,
        /// Path below the server's directory.
        datafile: String,
        /// What it is.
        what: &'static str,
    },
    /// A foreign file stands where a file's lock file should be.
    #[error(
        "the lock file {lock} in the pool's namespace is not usable: it belongs to user {found} and the file to user {owner}, \
         or it is no plain file; its owner or root can remove it"
    )]
    ForeignLock {
        /// Name of the lock file.
        lock: String,
        /// Whose it is.
        found: u32,
        /// Owner of the file.
        owner: u32,
    },
    /// A lock file of a shared pool is bound to another inode than the file's.
    #[error(
        "the lock file {lock} in the pool's namespace is not bound to the file that names it (inode {inode} of the pool's \
         tree), so it is not used; have root run `stripewise fsck`"
    )]
    UnboundLock {
        /// Name of the lock file.
        lock: String,
        /// Number of the file's inode.
        inode: u64,
    },
    /// Another process has held a file's lock for longer than the limit of a wait.
    #[error("another process holds the lock {lock} of a file of user {owner}; wait for it, or end it, and try again")]
    HeldLock {
        /// Name of the lock file.
        lock: String,
        /// Owner of the file.
        owner: u32,
    },
    /// The handle cannot be used.
    #[error("{0}; run `stripewise fsck`")]
    Handle(#[from] HandleError),
    /// The handle of a file cannot be used.
    #[error("{}: {reason}; run `stripewise fsck`", path.display())]
    HandleOf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: HandleError,
    },
    /// An optimisation of a later release promises something of the file's bytes.
    #[error(
        "{}: it has optimisation {index} of a later release of Stripewise, which a change by this one could break: it can be read here; \
         change it with the release that gave it that",
        path.display()
    )]
    LaterOptimisation {
        /// The file.
        path: PathBuf,
        /// Index of the optimisation.
        index: u32,
    },
    /// The hints of a directory cannot be used, or not be what was asked for.
    #[error("hints of {}: {reason}", path.display())]
    Hints {
        /// The directory.
        path: PathBuf,
        /// What is wrong with them.
        reason: HintsError,
    },
    /// The layout that a handle or a rule names cannot be used.
    #[error("layout {hash}: {reason}")]
    Layout {
        /// Hash in hexadecimal digits.
        hash: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file is open for writing, or its layout is just being changed, so that it cannot change now.
    #[error(
        "{file} is open for writing by a program that keeps it where it is, or another process is changing its layout: wait for that \
         program and try again"
    )]
    Busy {
        /// The file.
        file: String,
    },
    /// Another process of this user changes layouts of the pool.
    #[error(
        "another command that moves files is under way in pool '{pool}': {}, for {for_s} s now. Wait until it has ended, or end it, which \
         leaves every file whole, in its old layout, that of a step, or its new one; then try again. Nothing was changed by this one",
        process.map_or("process unknown".to_owned(), |process| format!("process {process}"))
    )]
    Applying {
        /// Name of the pool.
        pool: String,
        /// The process, if the kernel tells.
        process: Option<u32>,
        /// Seconds since it began.
        for_s: u64,
    },
    /// The file is a plain one, without a handle.
    #[error("{file} is not a placed file: it has no handle")]
    NotPlaced {
        /// The file.
        file: String,
    },
    /// A copy read back differently than it was written.
    #[error(
        "{file}: the copy in the new layout differs from the original (blake3 {copied} instead of {original}); the \
         old layout stays. Check the disks of the new layout's servers"
    )]
    Checksum {
        /// The file.
        file: String,
        /// Hash of the original.
        original: String,
        /// Hash of the copy.
        copied: String,
    },
    /// An exported copy read back differently than it was written.
    #[error("the copy differs from the original (blake3 {copied} instead of {original}); check the disk that it is on")]
    Copy {
        /// Hash of the original.
        original: String,
        /// Hash of the copy.
        copied: String,
    },
    /// A move stopped; the file is as before.
    #[error("cannot move {file} to its new layout: {source}; what has not moved keeps its place")]
    Move {
        /// The file.
        file: String,
        /// Why.
        source: Box<Error>,
    },
    /// What a move reads of the file in its old places cannot be read.
    #[error("{source}")]
    Original {
        /// Why.
        source: Box<Error>,
    },
    /// The disk has not taken what programs have written to the file.
    #[error(
        "the disk of server {server} has not taken all that was written to this file: bytes of it may be lost. A program that writes it is \
         told by its next sync; else compare the file with another copy of it. Check that disk, and whether it is full"
    )]
    NotWrittenBack {
        /// Name of the server.
        server: String,
    },
    /// A file without a name does not move.
    #[error("{file} has no name any more: it was removed or replaced meanwhile")]
    Nameless {
        /// The name that it had.
        file: String,
    },
    /// A move was decided, and the disk has not said so.
    #[error(
        "{source}; it is not known which of the file's two places the disk of the namespace has kept, so both copies stay: check that \
         disk, and run `stripewise fsck`"
    )]
    Unsure {
        /// Why.
        source: Box<Error>,
    },
    /// The optimisations of a file could not be changed; they are as before.
    #[error("cannot change the optimisations of {file}: {source}; it keeps those that it has")]
    Optimisations {
        /// The file.
        file: String,
        /// Why.
        source: Box<Error>,
    },
    /// The layouts of one user's open files take too much memory of this process.
    #[error(
        "the files of user {owner} that are open have layouts that take {} of memory, which is the limit for one user: close \
         some of them, or give them layouts of fewer regions",
        about(*limit_bytes)
    )]
    LayoutMemory {
        /// Owner of the files.
        owner: u32,
        /// What they may take.
        limit_bytes: u64,
    },
    /// This way in cannot serve the request, and has to leave it to the mount.
    #[error("the bytes of this file are the mount's to serve: use the file below the pool's mount point")]
    Elsewhere,
    /// A value that is out of its bounds.
    #[error("{0}")]
    Invalid(String),
}

/// Why a handle could not be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// The attribute is not a handle, or a damaged one.
    #[error("damaged handle: {0}")]
    Damaged(&'static str),
    /// A format that a later release wrote.
    #[error("handle of format {0}, this release reads format 1: use the release that wrote it")]
    Format(u8),
    /// The handle was copied from another inode.
    #[error("handle {logical:016x} belongs to inode {real}, not to {found} (a copied or restored pool)")]
    OtherInode {
        /// Logical handle.
        logical: u64,
        /// Inode that the handle names.
        real: u64,
        /// Inode that carries it.
        found: u64,
    },
    /// More datafiles than a file may have, or a handle of more than 4096 bytes.
    #[error("the layout needs too large a handle ({0}): use fewer servers or regions")]
    TooLarge(&'static str),
    /// An optimisation type out of bounds: type 0 to 31, parameters below 2^59.
    #[error("optimisation type {index} with parameters {parameters} is out of bounds (0 to 31, below 2^59)")]
    Optimisation {
        /// Type.
        index: u32,
        /// Parameters.
        parameters: u64,
    },
}

/// Why hints could not be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HintsError {
    /// The attribute holds no hints, or damaged ones.
    #[error("damaged: {0}; remove them by `stripewise hint DIR --remove --all` and set them again")]
    Damaged(&'static str),
    /// A format that a later release wrote.
    #[error("they have format {0}, this release reads format 1: use the release that wrote them")]
    Format(u8),
    /// More than a directory may have.
    #[error("{0}: remove some of them")]
    TooMany(&'static str),
}

impl From<HandleError> for HintsError {
    /// Of a part that has the form of a part of a handle.
    fn from(error: HandleError) -> Self {
        match error {
            HandleError::Damaged(what) => Self::Damaged(what),
            _ => Self::Damaged("optimisations out of bounds"),
        }
    }
}

/// How much a full server has: a file that is larger than that was not taken.
fn left(room: Option<Room>) -> String {
    match room {
        Some(room) if room.has_no_inode => ", it can hold no more files".to_owned(),
        Some(room) => format!(", {} of {} free", about(room.available_bytes), about(room.total_bytes)),
        None => String::new(),
    }
}

/// A number of bytes for people.
pub(crate) fn about(bytes: u64) -> String {
    let unit = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)].into_iter().find(|(_, unit)| bytes >= *unit);
    unit.map_or_else(|| format!("{bytes} bytes"), |(name, unit)| format!("{:.1} {name}", bytes as f64 / unit as f64))
}

/// [`remedy`] for a path, which no layout leaves out.
fn remedy_at(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSPC => "; free space there",
        Errno::DQUOT => "; free space there, or have the quota raised",
        other => remedy(other),
    }
}

/// What the person can do about an errno, if the errno says.
fn remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSPC | Errno::DQUOT => "; free space there, or plan a layout that leaves it out",
        Errno::ROFS => "; remount it writable",
        errno if has_gone(errno) => "; what is mounted there has died: mount it again",
        Errno::ACCESS | Errno::PERM => "; check owner and mode",
        Errno::MFILE => "; raise the limit of open files (ulimit -n)",
        Errno::OPNOTSUPP => "; this file system lacks what is needed (user attributes, locks), choose another",
        _ => "",
    }
}

/// Whether an errno says that the file system below has gone (its file server died, its disk was pulled), so that a
/// descriptor of it will never work again. EBADF is that of a descriptor that was let go for it.
pub(crate) fn has_gone(errno: Errno) -> bool {
    let gone =
        [Errno::NOTCONN, Errno::CONNABORTED, Errno::STALE, Errno::SHUTDOWN, Errno::NODEV, Errno::NXIO, Errno::BADF];
    gone.contains(&errno)
}

impl Error {
    /// An [`Error::Io`], for `map_err`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Io { action, path: path.into(), errno }
    }

    /// Of the move of a file what that has failed with; any other error itself.
    pub fn cause(&self) -> &Self {
        match self {
            Self::Move { source, .. } => source.cause(),
            other => other,
        }
    }

    /// Whether a datafile is gone, and not only its server.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::MissingDatafile { .. })
    }

    /// Whether a sync has failed as bytes did not reach their disk, and not as they could not be found.
    pub(crate) fn tells_of_a_loss(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Server { errno: Errno::IO | Errno::DQUOT | Errno::ROFS, .. })
    }

    /// What a program that made a system call sees.
    pub fn errno(&self) -> Errno {
        match self {
            // Programs know what an I/O error is; ENOTCONN of a file they would not understand.
            Self::Server { errno, .. } if has_gone(*errno) => Errno::IO,
            Self::Io { errno, .. } | Self::Refused { errno, .. } | Self::Server { errno, .. } => *errno,
            Self::Full { .. } | Self::NoRoom { .. } | Self::NoRoomForAll { .. } => Errno::NOSPC,
            Self::Pool { .. } | Self::Invalid(_) | Self::NotPlaced { .. } | Self::Hints { .. } => Errno::INVAL,
            Self::LayoutMemory { .. } => Errno::NOMEM,
            Self::Nameless { .. } => Errno::NOENT,
            Self::Busy { .. } | Self::Applying { .. } | Self::HeldLock { .. } | Self::UnboundLock { .. } => Errno::BUSY,
            Self::ForeignLock { .. } => Errno::ACCESS,
            Self::LaterOptimisation { .. } => Errno::ROFS,
            Self::Move { source, .. }
            | Self::Optimisations { source, .. }
            | Self::Original { source }
            | Self::Unsure { source } => source.errno(),
            Self::MissingServer { .. }
            | Self::MissingDatafile { .. }
            | Self::NotWrittenBack { .. }
            | Self::ShortDatafile { .. }
            | Self::ForeignDatafile { .. }
            | Self::UnboundDatafile { .. }
            | Self::NotADatafile { .. }
            | Self::Handle(_)
            | Self::HandleOf { .. }
            | Self::Layout { .. }
            | Self::Checksum { .. }
            | Self::Copy { .. }
            | Self::Elsewhere => Errno::IO,
        }
    }
}
