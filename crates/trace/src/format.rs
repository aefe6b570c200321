//! The two files of a trace: one per process while recording, one merged. All numbers little-endian.
//!
//! Process file: [`ProcessHeader`] (one page), then slots of 56 bytes. A slot is a [`Record`], a part of a file's name
//! ([`NAME_PART`]), or, where the process was killed between taking the slot and filling it, a hole (operation 0).
//! The operation byte of a slot is written last.
//!
//! Merged file: [`MergedHeader`] (one page), the records in order of [`Record`]'s file, offset and start, then the
//! tables of files, programs and processes (see [`crate::merge`]). Each section has a CRC-32C.

use crate::record::Record;
use std::sync::atomic::AtomicU64;

/// First bytes of both files.
pub const MAGIC: [u8; 8] = *b"STRPWISE";
/// Version of the format that this crate writes.
pub const VERSION: u32 = 1;
/// Ending of the files that processes write.
pub const PROCESS_FILE_SUFFIX: &str = ".process";
/// [`ProcessHeader::kind`].
pub(crate) const KIND_PROCESS: u32 = 1;
/// [`MergedHeader::kind`].
pub(crate) const KIND_MERGED: u32 = 2;
/// Bytes before the first slot or record, in both files.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Bytes of a slot.
pub(crate) const RECORD_BYTES: usize = size_of::<Record>();

/// Operation number of a slot that holds 32 bytes of a file's name, in the place of the record's first four fields:
/// `file` is the name's id, `program` its whole length, `flags` the number of the part.
pub(crate) const NAME_PART: u8 = 255;
/// Bytes of a name in one slot.
pub(crate) const NAME_PART_BYTES: usize = 32;
/// Longest name kept; a longer one is cut.
pub(crate) const NAME_MAX_BYTES: usize = 4096;

/// Room for the program's name and the host's.
pub(crate) const SHORT_TEXT_BYTES: usize = 128;
/// Room for the command line.
pub(crate) const COMMAND_BYTES: usize = 3584;

/// First page of a process file.
#[repr(C)]
pub(crate) struct ProcessHeader {
    pub magic: [u8; 8],
    pub kind: u32,
    pub version: u32,
    pub record_bytes: u32,
    pub rank: u32,
    pub pid: u32,
    pub parent_pid: u32,
    /// When recording began, `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` at that time.
    pub wall_offset_ns: i64,
    pub program_len: u32,
    pub host_len: u32,
    pub command_len: u32,
    /// CRC-32C of the page up to `program`, without this field and the counters, and of the texts.
    pub crc: u32,
    /// The next slot to be taken; may exceed `capacity_slots` when the file could not grow.
    pub next_slot: AtomicU64,
    /// Slots that the file has room for.
    pub capacity_slots: AtomicU64,
    /// Records that found no room.
    pub dropped: AtomicU64,
    /// Files whose name found no room in the table: their records have file 0.
    pub names_dropped: AtomicU64,
    pub program: [u8; SHORT_TEXT_BYTES],
    pub host: [u8; SHORT_TEXT_BYTES],
    pub command: [u8; COMMAND_BYTES],
}

const _: () = assert!(size_of::<ProcessHeader>() <= HEADER_BYTES);

/// Offset of the counters, which change while recording.
pub(crate) const COUNTERS_AT: usize = std::mem::offset_of!(ProcessHeader, next_slot);
const CRC_AT: usize = std::mem::offset_of!(ProcessHeader, crc);
const TEXTS_AT: usize = std::mem::offset_of!(ProcessHeader, program);

/// Check sum of the part of a process header that never changes. `page` has at least [`HEADER_BYTES`].
pub(crate) fn process_header_crc(page: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page[..CRC_AT]), &page[TEXTS_AT..HEADER_BYTES])
}

/// First page of a merged file, as it is on disk: magic, then these in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MergedHeader {
    pub records: u64,
    pub tables_bytes: u64,
    /// `CLOCK_REALTIME` of the first record.
    pub start_unix_ns: u64,
    pub records_crc: u32,
    pub tables_crc: u32,
}

/// Bytes of a merged header that the last 4 bytes check.
const MERGED_CHECKED_BYTES: usize = 8 + 4 * 3 + 4 + 8 * 3 + 4 * 2;

impl MergedHeader {
    pub(crate) fn to_page(self) -> [u8; HEADER_BYTES] {
        let mut page = [0; HEADER_BYTES];
        let mut fields = Vec::with_capacity(MERGED_CHECKED_BYTES);
        fields.extend_from_slice(&MAGIC);
        for word in [KIND_MERGED, VERSION, RECORD_BYTES as u32, 0] {
            fields.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.records, self.tables_bytes, self.start_unix_ns] {
            fields.extend_from_slice(&word.to_le_bytes());
        }
        for word in [self.records_crc, self.tables_crc] {
            fields.extend_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c::crc32c(&fields);
        fields.extend_from_slice(&crc.to_le_bytes());
        page[..fields.len()].copy_from_slice(&fields);
        page
    }

    /// Reads a page whose magic, kind and version were checked; `None` when the check sum is wrong.
    pub(crate) fn from_page(page: &[u8]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
        if crc32c::crc32c(&page[..MERGED_CHECKED_BYTES]) != word(MERGED_CHECKED_BYTES) {
            return None;
        }
        Some(Self {
            records: long(24),
            tables_bytes: long(32),
            start_unix_ns: long(40),
            records_crc: word(48),
            tables_crc: word(52),
        })
    }
}

/// Magic, kind and version of a file's first 16 bytes.
pub(crate) fn kind_and_version(bytes: &[u8]) -> Option<(u32, u32)> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let kind = rest.get(..4)?.try_into().ok().map(u32::from_le_bytes)?;
    let version = rest.get(4..8)?.try_into().ok().map(u32::from_le_bytes)?;
    Some((kind, version))
}
