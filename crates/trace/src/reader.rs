//! [`Trace`]: a recorded run, from a merged file or from the directory of its processes' files.

use crate::error::TraceError;
use crate::format::{HEADER_BYTES, KIND_MERGED, KIND_PROCESS, MergedHeader, RECORD_BYTES, VERSION, kind_and_version};
use crate::inputs::Inputs;
use crate::record::{Api, Record};
use crate::tables::{Process, Program, Tables};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A file of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFile {
    /// Its index, as in [`Record::file`].
    pub id: u32,
    /// Its absolute path (or what the program passed, where that could not be made absolute).
    pub path: PathBuf,
    /// Its records in [`Trace::records`].
    pub records: Range<usize>,
}

/// A trace, checked: every record's numbers are known, every index is within its table, the order holds.
#[derive(Debug)]
pub struct Trace {
    records: Records,
    files: Vec<TraceFile>,
    programs: Vec<Program>,
    processes: Vec<Process>,
    start_unix_ns: u64,
    /// By id of the file: the interface whose requests its storage did not see, or that are told again by another one.
    passed_over: Vec<Option<Api>>,
}

/// What the requests of one file moved, by interface.
#[derive(Default)]
struct Levels {
    posix: bool,
    posix_bytes: u64,
    mpi_io_bytes: u64,
    mpi_io_ranks: HashSet<u32>,
}

impl Levels {
    fn add(&mut self, record: &Record) {
        if !record.is_data() {
            return;
        }
        match record.api() {
            Some(Api::Posix) => {
                self.posix = true;
                self.posix_bytes = self.posix_bytes.saturating_add(record.size);
            }
            Some(Api::MpiIo) => {
                self.mpi_io_bytes = self.mpi_io_bytes.saturating_add(record.size);
                self.mpi_io_ranks.insert(record.rank);
            }
            _ => {}
        }
    }

    /// POSIX's requests are those of the MPI library below, unless they are hardly any: where all ranks ask for the same
    /// bytes, storage moves what one of them asks for. Less than half of that was moved in another way, which the log
    /// does not show.
    fn passed_over(&self) -> Option<Api> {
        let of_a_rank = self.mpi_io_bytes / self.mpi_io_ranks.len().max(1) as u64;
        match (self.posix, self.mpi_io_ranks.is_empty()) {
            (true, false) if self.posix_bytes < of_a_rank / 2 => Some(Api::Posix),
            (true, false) => Some(Api::MpiIo),
            _ => None,
        }
    }
}

#[derive(Debug)]
enum Records {
    Mapped(memmap2::Mmap, usize),
    Owned(Vec<Record>),
}

/// Records after whose reading their pages are given back, so that a mapped trace larger than memory is read in little.
const WINDOW: usize = 1 << 18;

/// A multiple of the page size of any machine.
const LARGEST_PAGE: usize = 64 << 10;

impl Records {
    /// Gives back the pages of a run of records; they are read again from the file when they are used again. The pages
    /// at its ends may hold others' records, and stay.
    fn release(&self, run: Range<usize>) {
        let Records::Mapped(map, _) = self else { return };
        let from = (HEADER_BYTES + run.start * RECORD_BYTES).next_multiple_of(LARGEST_PAGE);
        let to = (HEADER_BYTES + run.end * RECORD_BYTES) / LARGEST_PAGE * LARGEST_PAGE;
        if from < to {
            // SAFETY: the mapping is shared and read-only: pages that are dropped come back with the file's bytes.
            // Advice that is not taken costs memory and nothing else.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, to - from) };
        }
    }

    /// CRC-32C of a mapped file's records, read window by window.
    fn crc(&self) -> u32 {
        let mut crc = 0;
        for (window, records) in self.as_slice().chunks(WINDOW).enumerate() {
            // SAFETY: records are plain bytes without padding (their size is that of their fields).
            let bytes = unsafe { std::slice::from_raw_parts(records.as_ptr().cast::<u8>(), size_of_val(records)) };
            crc = crc32c::crc32c_append(crc, bytes);
            self.release(window * WINDOW..window * WINDOW + records.len());
        }
        crc
    }

    fn as_slice(&self) -> &[Record] {
        match self {
            Records::Owned(records) => records,
            Records::Mapped(map, count) => {
                let bytes = &map[HEADER_BYTES..HEADER_BYTES + count * RECORD_BYTES];
                // SAFETY: a page into a page-aligned mapping, so 8-aligned; the slice checked the length; any bytes
                // are a valid `Record`.
                unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), *count) }
            }
        }
    }
}

impl Trace {
    /// Opens a merged file, mapped, or a directory of process files, merged in memory. Every byte is checked:
    /// about 0.1 s a gigabyte for a merged file, whose pages are
    /// given back as they are checked: it may be larger than memory.
    ///
    /// # Errors
    /// [`TraceError`] with the file, the place in it and the remedy.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let metadata = std::fs::metadata(path).map_err(|error| TraceError::io("open", path, error))?;
        if metadata.is_dir() { Self::open_directory(path) } else { Self::open_merged(path, metadata.len()) }
    }

    fn open_directory(dir: &Path) -> Result<Self, TraceError> {
        let inputs = Inputs::open(dir)?;
        let mut records = Vec::with_capacity(inputs.records as usize);
        inputs.each(&mut |record| {
            records.push(record);
            Ok(())
        })?;
        records.sort_unstable_by(Record::order);
        Self::build(dir, Records::Owned(records), inputs.tables, inputs.start_unix_ns)
    }

    fn open_merged(path: &Path, found_bytes: u64) -> Result<Self, TraceError> {
        let not_a_trace = |why: &str| TraceError::NotATrace { path: path.to_owned(), why: why.into() };
        let file = File::open(path).map_err(|error| TraceError::io("open", path, error))?;
        if found_bytes == 0 {
            return Err(not_a_trace("it is empty"));
        }
        // SAFETY: merged files are written under another name and renamed, never changed in place; a file that is
        // changed all the same gives wrong numbers, which every use checks against its bounds.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| TraceError::io("map", path, error))?;
        match kind_and_version(&map) {
            Some((KIND_MERGED, VERSION)) => {}
            Some((KIND_MERGED, found)) => {
                return Err(TraceError::Version { path: path.to_owned(), found, known: VERSION });
            }
            Some((KIND_PROCESS, _)) => {
                return Err(not_a_trace("it is the file of one process; open its directory instead"));
            }
            _ => return Err(not_a_trace("it does not begin as one does")),
        }
        let cut = |expected_bytes| TraceError::Truncated { path: path.to_owned(), found_bytes, expected_bytes };
        let page = map.get(..HEADER_BYTES).ok_or_else(|| cut(HEADER_BYTES as u64))?;
        let header = MergedHeader::from_page(page)
            .ok_or_else(|| TraceError::damaged(path, 0, "its header does not match its check sum"))?;
        let tables_at = header.records.saturating_mul(RECORD_BYTES as u64).saturating_add(HEADER_BYTES as u64);
        let expected_bytes = tables_at.saturating_add(header.tables_bytes);
        if found_bytes < expected_bytes {
            return Err(cut(expected_bytes));
        }
        if found_bytes > expected_bytes {
            let why = format!("{} bytes after its end", found_bytes - expected_bytes);
            return Err(TraceError::damaged(path, expected_bytes, why));
        }
        let tables = &map[tables_at as usize..];
        if crc32c::crc32c(tables) != header.tables_crc {
            return Err(TraceError::damaged(path, tables_at, "its tables do not match their check sum"));
        }
        let tables = Tables::from_bytes(tables)
            .map_err(|(at, why)| TraceError::damaged(path, tables_at.saturating_add(at as u64), why))?;
        let records = Records::Mapped(map, header.records as usize);
        if records.crc() != header.records_crc {
            return Err(TraceError::damaged(path, HEADER_BYTES as u64, "its records do not match their check sum"));
        }
        Self::build(path, records, tables, header.start_unix_ns)
    }

    /// A trace of `records` sorted records in a mapping that [`crate::TraceWriter`] made.
    pub(crate) fn of_mapping(
        path: &Path,
        map: memmap2::Mmap,
        records: usize,
        tables: Tables,
        start_unix_ns: u64,
    ) -> Result<Self, TraceError> {
        Self::build(path, Records::Mapped(map, records), tables, start_unix_ns)
    }

    fn build(path: &Path, records: Records, tables: Tables, start_unix_ns: u64) -> Result<Self, TraceError> {
        let slice = records.as_slice();
        let mut passed_over = vec![None; tables.files.len()];
        let mut levels = Levels::default();
        for (index, record) in slice.iter().enumerate() {
            let damaged = |why: String| TraceError::damaged(path, (HEADER_BYTES + index * RECORD_BYTES) as u64, why);
            record.check().map_err(damaged)?;
            if record.file as usize >= tables.files.len() {
                return Err(damaged(format!("file number {} of {}", record.file, tables.files.len())));
            }
            if record.program as usize >= tables.programs.len() {
                return Err(damaged(format!("program number {} of {}", record.program, tables.programs.len())));
            }
            if index > 0 && slice[index - 1].place() > record.place() {
                return Err(damaged("its records are not in order".into()));
            }
            levels.add(record);
            if slice.get(index + 1).is_none_or(|next| next.file != record.file) {
                passed_over[record.file as usize] = std::mem::take(&mut levels).passed_over();
            }
            if (index + 1).is_multiple_of(WINDOW) {
                records.release(index + 1 - WINDOW..index);
            }
        }
        let mut at = 0;
        let files = tables
            .files
            .iter()
            .enumerate()
            .map(|(id, name)| {
                let from = at;
                at += slice[at..].partition_point(|record| record.file as usize <= id);
                TraceFile { id: id as u32, path: PathBuf::from(OsStr::from_bytes(name)), records: from..at }
            })
            .collect();
        let Tables { programs, processes, .. } = tables;
        Ok(Self { records, files, programs, processes, start_unix_ns, passed_over })
    }

    /// All records in order of file, offset and start. O(1).
    pub fn records(&self) -> &[Record] {
        self.records.as_slice()
    }

    /// The files in order of id, which is the order of their paths.
    pub fn files(&self) -> &[TraceFile] {
        &self.files
    }

    /// The programs in order of id.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The processes, in order of host and process id.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The records of file `id`, in order of offset and start; none for an unknown id. O(1).
    pub fn of_file(&self, id: u32) -> &[Record] {
        self.files.get(id as usize).map_or(&[], |file| &self.records()[file.records.clone()])
    }

    /// Whether a record of this trace is a request that moved bytes and that its file's storage saw: a read or write of
    /// one interface level. MPI-IO's are left out where the same file also has POSIX requests, which are those of the MPI
    /// library below; POSIX's, where they are hardly any beside MPI-IO's. O(1).
    pub fn is_request(&self, record: &Record) -> bool {
        let passed_over = self.passed_over.get(record.file as usize).copied().flatten();
        record.is_data() && (passed_over.is_none() || passed_over != record.api())
    }

    /// The requests of file `id`: its records that [`Trace::is_request`] holds for.
    pub fn requests(&self, id: u32) -> impl Iterator<Item = &Record> {
        self.of_file(id).iter().filter(|record| self.is_request(record))
    }

    /// [`Trace::requests`] for traces larger than memory: pages are given back as they are passed. O(records) each
    /// time.
    pub fn stream(&self, id: u32) -> impl Iterator<Item = &Record> {
        let range = self.files.get(id as usize).map_or(0..0, |file| file.records.clone());
        let windows = range.clone().step_by(WINDOW).map(move |from| from..(from + WINDOW).min(range.end));
        windows.flat_map(move |window| {
            let records = self.records()[window.clone()].iter();
            // After the last of a window.
            let passed = std::iter::once_with(move || {
                self.records.release(window);
                None
            });
            records.map(Some).chain(passed).flatten().filter(|record| self.is_request(record))
        })
    }

    /// All records in runs of at most `length`; the pages of a run are given back when the next is taken. O(records).
    pub fn windows(&self, length: usize) -> impl Iterator<Item = &[Record]> {
        self.windows_in(0..self.records().len(), length)
    }

    /// The records of file `id` as [`Trace::windows`]; none for an unknown id.
    pub fn windows_of(&self, id: u32, length: usize) -> impl Iterator<Item = &[Record]> {
        let range = self.files.get(id as usize).map_or(0..0, |file| file.records.clone());
        self.windows_in(range, length)
    }

    fn windows_in(&self, range: Range<usize>, length: usize) -> impl Iterator<Item = &[Record]> {
        range.clone().step_by(length).map(move |from| {
            self.records.release(from.saturating_sub(length).max(range.start)..from);
            &self.records()[from..(from + length).min(range.end)]
        })
    }

    /// `CLOCK_REALTIME` of the first record in nanoseconds since 1970: add a record's times to it.
    pub fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns
    }

    /// End of the last operation in nanoseconds since the start of the trace. O(records).
    pub fn duration_ns(&self) -> u64 {
        self.records().iter().map(|record| record.end_ns).max().unwrap_or(0)
    }

    /// Records lost: to kills and to a full disk. Not zero means that figures from the trace are too low.
    pub fn lost(&self) -> u64 {
        self.processes.iter().map(|process| process.holes.saturating_add(process.dropped)).fold(0, u64::saturating_add)
    }
}
