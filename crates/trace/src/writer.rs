//! [`TraceWriter`]: records in any order into a mapped file, sorted.

use crate::error::TraceError;
use crate::format::{HEADER_BYTES, MergedHeader, RECORD_BYTES};
use crate::reader::Trace;
use crate::record::Record;
use crate::tables::Tables;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Writes records in any order and sorts them in the mapped file: memory is the page cache's, however many they are.
///
/// The file is a merged trace's, [`TraceWriter::into_file`] completes it; or it is unlinked, and
/// [`TraceWriter::into_trace`] reads it where it is.
#[derive(Debug)]
pub struct TraceWriter {
    file: File,
    path: PathBuf,
    records: u64,
}

impl TraceWriter {
    /// Writes into `file`, which is empty, open for reading and writing, and not shared. `path` is for messages.
    pub fn new(file: File, path: &Path) -> Self {
        Self { file, path: path.to_owned(), records: 0 }
    }

    /// Adds records in any order. One system call: hand over some thousand at once.
    ///
    /// # Errors
    /// The system's reason, of which a full disk is one.
    pub fn push(&mut self, records: &[Record]) -> io::Result<()> {
        // SAFETY: records are plain bytes without padding (their size is that of their fields).
        let bytes = unsafe { std::slice::from_raw_parts(records.as_ptr().cast::<u8>(), size_of_val(records)) };
        self.file.write_all_at(bytes, HEADER_BYTES as u64 + self.records * RECORD_BYTES as u64)?;
        self.records += records.len() as u64;
        Ok(())
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Sorts, and reads the records where they are; the file need not have a name. `new_ids` are the files' numbers in
    /// `tables` by those in the records, where these are others. O(n log n).
    ///
    /// # Errors
    /// A record that cannot be or names what the tables do not have; the system's reason.
    pub fn into_trace(self, tables: Tables, start_unix_ns: u64, new_ids: Option<&[u32]>) -> Result<Trace, TraceError> {
        let mut map = self.map(0)?;
        let records = self.records_of(&mut map);
        if let Some(new_ids) = new_ids {
            for record in records.iter_mut() {
                // A number beyond the table stays, and is refused below.
                record.file = new_ids.get(record.file as usize).copied().unwrap_or(u32::MAX);
            }
        }
        records.sort_unstable_by(Record::order);
        let map = map.make_read_only().map_err(|error| TraceError::io("map", &self.path, error))?;
        Trace::of_mapping(&self.path, map, self.records as usize, tables, start_unix_ns)
    }

    /// Sorts, adds tables and header, and makes the file durable: a whole merged trace. O(n log n).
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn into_file(self, tables: &Tables, start_unix_ns: u64) -> Result<(), TraceError> {
        let path = &self.path;
        let io = |action| move |error| TraceError::io(action, path, error);
        let tables = tables.to_bytes();
        let mut map = self.map(tables.len())?;
        self.records_of(&mut map).sort_unstable_by(Record::order);
        let tables_at = self.tables_at();
        let records_crc = crc32c::crc32c(&map[HEADER_BYTES..tables_at]);
        map[tables_at..].copy_from_slice(&tables);
        map.flush().map_err(io("write"))?;
        let header = MergedHeader {
            records: self.records,
            tables_bytes: tables.len() as u64,
            start_unix_ns,
            records_crc,
            tables_crc: crc32c::crc32c(&tables),
        };
        self.file.write_all_at(&header.to_page(), 0).map_err(io("write"))?;
        self.file.sync_all().map_err(io("sync"))
    }

    fn tables_at(&self) -> usize {
        HEADER_BYTES + self.records as usize * RECORD_BYTES
    }

    /// The header's page, the records and `more_bytes`, with their space reserved: a full disk is an error here, not a
    /// SIGBUS when the mapping is written.
    fn map(&self, more_bytes: usize) -> Result<memmap2::MmapMut, TraceError> {
        let path = &self.path;
        let io = |action| move |error| TraceError::io(action, path, error);
        let total = self.tables_at() + more_bytes;
        match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, total as u64) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                self.file.set_len(total as u64).map_err(io("extend"))?;
            }
            Err(error) => return Err(TraceError::io("reserve space for", &self.path, error)),
            Ok(()) => {}
        }
        // SAFETY: the file is this writer's alone: it was given empty, and nothing else writes it.
        unsafe { memmap2::MmapOptions::new().len(total).map_mut(&self.file) }.map_err(io("map"))
    }

    fn records_of<'a>(&self, map: &'a mut memmap2::MmapMut) -> &'a mut [Record] {
        let bytes = &mut map[HEADER_BYTES..HEADER_BYTES + self.records as usize * RECORD_BYTES];
        // SAFETY: the mapping is page-aligned, so 8-aligned after one page; any bytes are a valid `Record`.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), self.records as usize) }
    }
}
