//! What a program can do to files: one operation, its answer, and both as they go through a pipe.
//!
//! A message is a line of JSON and as many bytes behind it as the line says, so that an agent in any language needs no
//! more than a JSON reader.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Error, ErrorKind, Result, Write};

/// One operation. Paths are relative to the directory of the case; a slot holds a descriptor and a mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields are the parameters of the call that the variant is named after")]
pub enum CaseOperation {
    /// `open` into a slot; what was in it is closed first. `flags` are those of the system call.
    Open {
        slot: u8,
        path: String,
        flags: i32,
        mode: u32,
    },
    Close {
        slot: u8,
    },
    /// `dup2`: `to` gets the description of `from`.
    Dup {
        from: u8,
        to: u8,
    },
    Read {
        slot: u8,
        len: usize,
    },
    Write {
        slot: u8,
        len: usize,
        seed: u64,
    },
    Pread {
        slot: u8,
        at: i64,
        len: usize,
    },
    Pwrite {
        slot: u8,
        at: i64,
        len: usize,
        seed: u64,
    },
    /// `readv` into buffers of these lengths; `preadv` with `at`.
    Readv {
        slot: u8,
        at: Option<i64>,
        lens: Vec<usize>,
    },
    /// `writev` from buffers of these lengths; `pwritev` with `at`.
    Writev {
        slot: u8,
        at: Option<i64>,
        lens: Vec<usize>,
        seed: u64,
    },
    Seek {
        slot: u8,
        at: i64,
        whence: i32,
    },
    Ftruncate {
        slot: u8,
        size: i64,
    },
    Truncate {
        path: String,
        size: i64,
    },
    Fallocate {
        slot: u8,
        mode: i32,
        at: i64,
        len: i64,
    },
    Fsync {
        slot: u8,
        data_only: bool,
    },
    Fstat {
        slot: u8,
    },
    /// `stat`, or `lstat` if it does not follow.
    Stat {
        path: String,
        follow: bool,
    },
    /// `renameat2`.
    Rename {
        from: String,
        to: String,
        flags: u32,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    /// The names in a directory, in order of the alphabet.
    List {
        path: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Readlink {
        path: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    /// `utimensat`; `None` leaves a time as it is.
    SetTimes {
        path: String,
        atime_ns: Option<i64>,
        mtime_ns: Option<i64>,
    },
    SetXattr {
        path: String,
        name: String,
        len: usize,
        seed: u64,
        flags: i32,
    },
    GetXattr {
        path: String,
        name: String,
    },
    /// The user's attributes, in order of the alphabet.
    ListXattr {
        path: String,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    CopyRange {
        from: u8,
        from_at: Option<i64>,
        to: u8,
        to_at: Option<i64>,
        len: usize,
    },
    /// A shared mapping of the file's first bytes, for reading and writing.
    Map {
        slot: u8,
        len: usize,
    },
    MapRead {
        slot: u8,
        at: usize,
        len: usize,
    },
    MapWrite {
        slot: u8,
        at: usize,
        len: usize,
        seed: u64,
    },
    Msync {
        slot: u8,
    },
    Unmap {
        slot: u8,
    },
    /// Another layout for the file, of those that the pool's [`crate::world::World`] has. The
    /// harness moves the file, unless an agent writes it.
    Move {
        path: String,
        layout: usize,
    },
}

impl CaseOperation {
    /// The bytes that the operation writes.
    pub fn data(&self) -> Vec<u8> {
        match self {
            Self::Write { len, seed, .. }
            | Self::Pwrite { len, seed, .. }
            | Self::MapWrite { len, seed, .. }
            | Self::SetXattr { len, seed, .. } => pattern(*len, *seed),
            Self::Writev { lens, seed, .. } => pattern(lens.iter().sum(), *seed),
            _ => Vec::new(),
        }
    }
}

/// Bytes that differ everywhere and are never 0, so that a hole is none of them.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let step = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8 | 1
    };
    (0..len).map(step).collect()
}

/// Attributes as a program sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// `f`ile, `d`irectory, symbolic `l`ink, or `?`.
    pub kind: char,
    /// Permission bits.
    pub mode: u32,
    /// Names; 0 for a directory, where file systems differ.
    pub links: u64,
    /// Bytes; 0 for a directory, where file systems differ.
    pub size_bytes: u64,
    /// Number of the inode.
    pub inode: u64,
    /// Times in nanoseconds since 1970.
    pub atime_ns: i64,
    #[allow(missing_docs, reason = "as above")]
    pub mtime_ns: i64,
    #[allow(missing_docs, reason = "as above")]
    pub ctime_ns: i64,
}

/// What came of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It succeeded, with the number that the call returned.
    Done(i64),
    /// The bytes that it read.
    Bytes {
        /// They follow the line.
        #[serde(skip)]
        data: Vec<u8>,
    },
    /// Attributes.
    Stat(Stat),
    /// Names, in order.
    Names(Vec<String>),
    /// It failed with this errno.
    Failed(i32),
}

/// What an agent is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRequest {
    /// Forgets all slots and works in this directory from now on.
    Enter(String),
    /// Carries out an operation; what it writes follows.
    Do(CaseOperation),
}

#[derive(Serialize, Deserialize)]
struct Line<T> {
    message: T,
    bytes: usize,
}

/// Sends a message.
pub fn send<T: Serialize>(to: &mut impl Write, message: &T, data: &[u8]) -> Result<()> {
    let mut line = serde_json::to_vec(&Line { message, bytes: data.len() })?;
    line.push(b'\n');
    line.extend_from_slice(data);
    to.write_all(&line)?;
    to.flush()
}

/// Receives a message; `None` at the end of the pipe.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<(T, Vec<u8>)>> {
    let mut text = String::new();
    if from.read_line(&mut text)? == 0 {
        return Ok(None);
    }
    let line: Line<T> =
        serde_json::from_str(&text).map_err(|error| Error::new(ErrorKind::InvalidData, format!("{error}: {text}")))?;
    let mut data = vec![0; line.bytes];
    from.read_exact(&mut data)?;
    Ok(Some((line.message, data)))
}
