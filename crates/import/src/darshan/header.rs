//! The header of a log: which regions it has, where, in which byte order.

use super::module::Module;
use crate::error::ImportError;
use crate::log::Log;
use std::io::{self, Read};

/// `DARSHAN_MAGIC_NR` of darshan-log-format.h.
const MAGIC: u64 = 6_567_223;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Zlib,
    Bzip2,
    None,
}

/// Where a region is in the file, in stored bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    pub start: u64,
    pub length: u64,
}

#[derive(Debug)]
pub(super) struct LogHeader {
    pub minor: u32,
    pub big_endian: bool,
    pub compression: Compression,
    pub job: Extent,
    pub names: Extent,
    /// Length that the file must have for all its regions, in bytes.
    pub needed_bytes: u64,
    modules: [(Extent, u32, bool); Module::ALL.len()],
}

impl LogHeader {
    /// Where a module's region is (length 0: the log has none), the version of its records, and whether the recorder
    /// ran out of memory for it.
    pub fn module(&self, module: Module) -> (Extent, u32, bool) {
        self.modules[Module::ALL.iter().position(|other| *other == module).expect("ALL has every module")]
    }

    pub fn read(log: &Log, format: &'static str) -> Result<Self, ImportError> {
        let damaged = |offset, why: String| ImportError::damaged(log.path(), format, offset, why);
        if log.is_gzip() {
            let why = io::Error::other("it is packed as a whole; unpack it with `gunzip` first");
            return Err(ImportError::io("import", log.path(), why));
        }
        let mut bytes = Vec::new();
        log.part(0, 1328).read_to_end(&mut bytes).map_err(|error| ImportError::io("read", log.path(), error))?;
        let big_endian = byte_order(&bytes).ok_or_else(|| damaged(8, "the magic number is not there".to_owned()))?;
        let version = &bytes[..bytes[..8].iter().position(|byte| *byte == 0).unwrap_or(8)];
        let minor = match version {
            b"3.00" => 0,
            b"3.10" => 10,
            b"3.20" => 20,
            b"3.21" => 21,
            b"3.41" => 41,
            _ => {
                return Err(ImportError::Version {
                    path: log.path().to_owned(),
                    format,
                    found: String::from_utf8_lossy(version).into_owned(),
                    known: "3.00, 3.10, 3.20, 3.21 and 3.41",
                });
            }
        };
        // The header had 16 modules and 32 flags, since 3.41 it has 64 of each.
        let (count, names_at, length) = if minor >= 41 { (64, 32, 1328) } else { (16, 24, 360) };
        if bytes.len() < length {
            return Err(damaged(bytes.len() as u64, format!("it ends within its header of {length} bytes")));
        }
        let compression = match bytes[16] {
            0 => Compression::Zlib,
            1 => Compression::Bzip2,
            2 => Compression::None,
            other => return Err(damaged(16, format!("compression {other} is none of 0, 1 and 2"))),
        };
        let long = |at: usize| word(&bytes[at..], big_endian);
        let short = |at: usize| half_word(&bytes[at..], big_endian);
        let partial = if minor >= 41 { long(24) } else { u64::from(short(20)) };
        let extent = |at: usize| Extent { start: long(at), length: long(at + 8) };
        let names = extent(names_at);
        let modules = Module::ALL.map(|module| {
            let Some(number) = module.number(minor) else { return (Extent::default(), 0, false) };
            let extent = extent(names_at + 16 + 16 * number);
            (extent, short(names_at + 16 + 16 * count + 4 * number), partial >> number & 1 == 1)
        });
        // The job's region ends where the first other region begins.
        let every = (0..=count).map(|index| extent(names_at + 16 * index)).filter(|extent| extent.length > 0);
        let needed_bytes = every.clone().map(|extent| extent.start.saturating_add(extent.length)).max().unwrap_or(0);
        let start = length as u64;
        let next = every.filter(|extent| extent.start > start).map(|extent| extent.start).min();
        let job = Extent { start, length: next.unwrap_or(log.length()).min(log.length()).saturating_sub(start) };
        Ok(LogHeader { minor, big_endian, compression, job, names, needed_bytes, modules })
    }
}

/// Whether the bytes after the version are the magic number, and in big-endian order.
pub(super) fn byte_order(start: &[u8]) -> Option<bool> {
    let magic = start.get(8..16)?;
    let magic: [u8; 8] = magic.try_into().expect("8 bytes");
    if u64::from_le_bytes(magic) == MAGIC { Some(false) } else { (u64::from_be_bytes(magic) == MAGIC).then_some(true) }
}

/// The first 8 bytes as a number. Panics on less: callers have checked.
#[inline]
pub(super) fn word(bytes: &[u8], big_endian: bool) -> u64 {
    let bytes: [u8; 8] = bytes[..8].try_into().expect("8 bytes");
    if big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
}

fn half_word(bytes: &[u8], big_endian: bool) -> u32 {
    let bytes: [u8; 4] = bytes[..4].try_into().expect("4 bytes");
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}
