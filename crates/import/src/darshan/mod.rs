//! Darshan's logs, formats 3.00 to 3.41: requests of its extended tracing (DXT), counters, layouts of Lustre.
//!
//! After darshan-log-format.h and darshan-*-logutils.c. Regions are unpacked as streams: memory is that of the names.

mod daos;
mod header;
mod libraries;
mod module;
pub(crate) mod names;
mod region;

use crate::Importer;
use crate::counters::{FileCounters, LustreComponent, LustreLayout};
use crate::error::ImportError;
use crate::job_header::JobHeader;
use crate::lacks::Lacks;
use crate::log::Log;
use crate::mount_point::MountPoint;
use crate::out::Out;
use crate::reconstruct::{LOG_ROWS, rows_of};
use crate::sink::{Sink, Summary};
use header::{Extent, LogHeader, byte_order};
use libraries::LibraryShape;
use module::Module;
use names::CounterNames;
use region::{Filled, LogRegion};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use stripewise_trace::{Api, Operation, Record, flags};

/// Reads what Darshan writes.
pub struct Darshan;

/// Longest path that is believed; Darshan's own limit is 4 KiB.
const MAX_NAME_BYTES: usize = 16 * 1024;
/// Most bytes of names that are kept.
const MAX_NAMES_BYTES: usize = 256 << 20;
/// Most components of one file, and stripes, that are believed; Lustre's own limits are far lower.
const MAX_COMPONENTS: u64 = 4096;
const MAX_STRIPES: u64 = 1 << 20;
/// Most names of nodes that are kept.
const MAX_HOSTS: usize = 1 << 17;

/// Ranks whose nodes are kept.
const MAX_HOST_RANKS: usize = 1 << 20;
/// Segments that are unpacked at once.
const CHUNK: usize = 2048;

impl Importer for Darshan {
    fn name(&self) -> &'static str {
        "Darshan"
    }

    fn recognises(&self, start: &[u8]) -> bool {
        start.first().is_some_and(u8::is_ascii_digit) && byte_order(start).is_some()
    }

    /// O(unpacked length).
    fn import(&self, log: &Log, sink: &mut dyn Sink) -> Result<Summary, ImportError> {
        let header = LogHeader::read(log, self.name())?;
        let mut reading = Reading {
            log,
            header: &header,
            out: Out::new(log, sink, self.name()),
            names: HashMap::new(),
            hosts: HashSet::new(),
            files: HashMap::new(),
            traced: HashSet::new(),
            read: 0,
            implausible: 0,
            rows_left: LOG_ROWS,
            stated: 0,
            made: 0,
            contradictory: 0,
        };
        if header.needed_bytes > log.length() {
            reading.out.summary.lacks |= Lacks::CUT | Lacks::DAMAGED;
            let (found, needed) = (log.length(), header.needed_bytes);
            reading.out.summary.note(format!("the file has {found} of {needed} bytes{REST}"));
        }
        let program = reading.job()?;
        reading.read_names();
        // Both are unpacked at the same time.
        let requests = [Module::DxtPosix, Module::DxtMpiIo].map(|module| (module, reading.requests(module)));
        for (module, region) in requests {
            if let Some((region, version)) = region? {
                reading.segments(module, region, version, program)?;
            }
        }
        for module in [Module::Posix, Module::MpiIo, Module::Stdio] {
            reading.counters(module)?;
        }
        for module in [Module::Hdf5File, Module::Hdf5Dataset, Module::PnetCdfFile, Module::PnetCdfVariable] {
            reading.library(module)?;
        }
        reading.daos()?;
        reading.layouts()?;
        reading.finish(self.name())
    }
}

/// What to do about a log that was cut.
const REST: &str = "; copy it again to have the rest";

struct Reading<'a> {
    log: &'a Log,
    header: &'a LogHeader,
    out: Out<'a>,
    /// Paths by Darshan's identifier.
    names: HashMap<u64, Box<[u8]>>,
    /// Nodes that requests came from.
    hosts: HashSet<Box<[u8]>>,
    /// Our numbers by Darshan's identifier.
    files: HashMap<u64, u32>,
    /// Files and interfaces with rows.
    traced: HashSet<(u64, Api)>,
    /// Records of any kind that were read.
    read: u64,
    /// Segments with numbers that cannot be.
    implausible: u64,
    /// Rows that may still be made from counters.
    rows_left: u64,
    /// Requests that counters without rows state, and how many rows were made of them.
    stated: u64,
    made: u64,
    /// Records of counters that contradict themselves.
    contradictory: u64,
}

impl<'a> Reading<'a> {
    fn region(&self, extent: Extent) -> LogRegion {
        LogRegion::new(self.log, self.header, extent)
    }

    /// A part of the log that could not be read is left out, and said.
    fn damaged(&mut self, part: &str, why: &str) {
        self.out.summary.lacks |= Lacks::DAMAGED;
        self.out.summary.note(format!("{part} is damaged, what follows in it is left out: {why}"));
    }

    /// What the job's record says; the number of the program.
    fn job(&mut self) -> Result<u32, ImportError> {
        let mut region = self.region(self.header.job);
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        let outcome = loop {
            match region.some(&mut chunk) {
                // The record is 4 KiB at most.
                Ok(count) if count > 0 && bytes.len() < 8192 => bytes.extend_from_slice(&chunk[..count]),
                Ok(_) => break Ok(()),
                Err(why) => break Err(why),
            }
        };
        // Nanoseconds came with 3.41.
        let words = if self.header.minor >= 41 { 7 } else { 5 };
        let metadata = words * 8;
        let whole = bytes.len() > metadata + 1024;
        if let Err(why) = &outcome {
            self.damaged("the job's record", why);
        } else if !whole {
            self.damaged("the job's record", "it is too short");
        }
        if !whole {
            return self.out.program(b"unknown");
        }
        let word = |index: usize| region.word(&bytes, index) as i64;
        let time = |s: i64, ns: i64| {
            let (s, ns) = (u64::try_from(s).ok()?, u64::try_from(ns).ok()?);
            s.checked_mul(1_000_000_000)?.checked_add(ns)
        };
        let (start, end, processes) = if words == 7 {
            (time(word(1), word(2)), time(word(3), word(4)), word(5))
        } else {
            (time(word(1), 0), time(word(2), 0), word(3))
        };
        let summary = &mut self.out.summary;
        summary.start_unix_ns = start;
        summary.run_ns = start.zip(end).and_then(|(start, end)| end.checked_sub(start));
        summary.processes = u64::try_from(processes).ok().filter(|count| *count > 0);
        let command = &bytes[metadata + 1024..];
        let end = command.iter().position(|byte| matches!(byte, b'\n' | 0)).unwrap_or(command.len());
        summary.mounts = MountPoint::of_lines(command.get(end + 1..).unwrap_or_default());
        let command = &command[..end];
        let id = word(words - 1).to_string();
        summary.job = JobHeader {
            command: Some(String::from_utf8_lossy(command).trim().to_owned()).filter(|text| !text.is_empty()),
            user: user_of(self.log.path(), &id).or_else(|| Some(format!("uid {}", word(0)))),
            id: Some(id),
            nodes: None,
        };
        let first = command.split(|byte| *byte == b' ').next().unwrap_or_default();
        let name = first.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.out.program(if name.is_empty() { b"unknown" } else { name })
    }

    fn read_names(&mut self) {
        if let Err(why) = self.try_names() {
            self.damaged("the table of names", &why);
        }
    }

    fn try_names(&mut self) -> Result<(), String> {
        if self.header.names.length == 0 {
            return Ok(());
        }
        let mut region = self.region(self.header.names);
        let mut pending: Vec<u8> = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        let mut kept = 0;
        loop {
            let count = region.some(&mut chunk)?;
            if count == 0 {
                return if pending.is_empty() { Ok(()) } else { Err("it ends within a name".to_owned()) };
            }
            pending.extend_from_slice(&chunk[..count]);
            let mut at = 0;
            while let Some((length, path)) = self.name_at(&region, &pending[at..])? {
                kept += path.len();
                let id = region.word(&pending[at..], 0);
                if kept > MAX_NAMES_BYTES {
                    return Err("it is larger than 256 MiB".to_owned());
                }
                self.names.entry(id).or_insert_with(|| path.into());
                at += length;
            }
            pending.drain(..at);
        }
    }

    /// The first name and the length of its record; `None` where it is not whole yet.
    fn name_at<'b>(&self, region: &LogRegion, bytes: &'b [u8]) -> Result<Option<(usize, &'b [u8])>, String> {
        if self.header.minor == 0 {
            // 3.00: the length, in four bytes, before the path.
            if bytes.len() < 12 {
                return Ok(None);
            }
            let mut padded = [0; 8];
            let at = if self.header.big_endian { 4 } else { 0 };
            padded[at..at + 4].copy_from_slice(&bytes[8..12]);
            let length = usize::try_from(region.word(&padded, 0)).unwrap_or(usize::MAX);
            if length > MAX_NAME_BYTES {
                return Err(format!("a name has {length} bytes"));
            }
            return Ok(bytes.get(12..12 + length).map(|path| (12 + length, path)));
        }
        let Some(path) = bytes.get(8..) else { return Ok(None) };
        match memchr::memchr(0, &path[..path.len().min(MAX_NAME_BYTES)]) {
            Some(end) => Ok(Some((8 + end + 1, &path[..end]))),
            None if path.len() >= MAX_NAME_BYTES => Err(format!("a name has more than {MAX_NAME_BYTES} bytes")),
            None => Ok(None),
        }
    }

    fn file(&mut self, id: u64) -> Result<u32, ImportError> {
        if let Some(&file) = self.files.get(&id) {
            return Ok(file);
        }
        // DAOS's files may have an empty name.
        let file = match self.names.get(&id).filter(|path| !path.is_empty()) {
            Some(path) => self.out.file(path)?,
            None => {
                self.out.summary.lacks |= Lacks::NAMES;
                self.out.file(format!("darshan-record-{id}").as_bytes())?
            }
        };
        self.files.insert(id, file);
        Ok(file)
    }

    /// The region of a module and the version of its records; notes what its recorder says of it.
    fn module(&mut self, module: Module, newest: u32) -> Option<(LogRegion, u32)> {
        let (extent, version, partial) = self.header.module(module);
        if partial {
            self.out.summary.lacks |= Lacks::CUT;
            let text = "was cut by Darshan's limit on memory; set DARSHAN_MODMEM to record more";
            self.out.summary.note(format!("{} {text}", module.name()));
        }
        if extent.length == 0 {
            return None;
        }
        if version == 0 || version > newest {
            self.damaged(module.name(), &format!("its records have version {version}, known are 1 to {newest}"));
            return None;
        }
        self.out.progress(extent.start);
        Some((self.region(extent), version))
    }

    /// The region of a module of requests, which a thread begins to unpack.
    fn requests(&mut self, module: Module) -> Result<Option<(LogRegion, u32)>, ImportError> {
        let Some((region, version)) = self.module(module, newest_of(module)) else { return Ok(None) };
        let region = region.ahead(self.header.module(module).0);
        Ok(Some((region.map_err(|error| ImportError::io("unpack", self.log.path(), error))?, version)))
    }

    /// Keeps the node that a record of `rank` names, up to the first zero.
    fn note_host(&mut self, rank: u32, name: &[u8]) {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        if name.is_empty() {
            return;
        }
        if self.hosts.len() < MAX_HOSTS && !self.hosts.contains(name) {
            self.hosts.insert(name.into());
        }
        let of_ranks = &mut self.out.summary.hosts;
        if of_ranks.len() < MAX_HOST_RANKS {
            of_ranks.entry(rank).or_insert_with(|| String::from_utf8_lossy(name).into_owned());
        }
    }

    /// Requests of DXT.
    fn segments(
        &mut self,
        module: Module,
        mut region: LogRegion,
        version: u32,
        program: u32,
    ) -> Result<(), ImportError> {
        let api = if module == Module::DxtPosix { Api::Posix } else { Api::MpiIo };
        let newest = newest_of(module);
        self.out.summary.lacks |= Lacks::PIDS | Lacks::METADATA;
        // The newest versions have the thread behind each segment; version 1 of MPI-IO has no offsets.
        let words = if version == newest { 5 } else { 4 };
        let has_offsets = !(module == Module::DxtMpiIo && version == 1);
        let mut head = [0; 104];
        let mut chunk = vec![0; CHUNK * words * 8];
        loop {
            match region.fill(&mut head) {
                Ok(Filled::Whole) => {}
                Ok(Filled::End) => return Ok(()),
                Err(why) => {
                    self.damaged(module.name(), &why);
                    return Ok(());
                }
            }
            let (id, rank) = (region.word(&head, 0), region.word(&head, 1) as i64);
            let (writes, reads) = (region.word(&head, 11), region.word(&head, 12));
            let Some(mut left) = writes.checked_add(reads).filter(|count| *count < 1 << 48) else {
                self.damaged(module.name(), &format!("a record has {} segments", writes as i64));
                return Ok(());
            };
            let rank = match u32::try_from(rank) {
                Ok(rank) => rank,
                Err(_) => {
                    self.out.summary.lacks |= Lacks::RANKS;
                    0
                }
            };
            self.note_host(rank, &head[24..88]);
            let file = self.file(id)?;
            self.read += 1;
            if left > 0 {
                self.traced.insert((id, api));
            }
            let mut writes = writes;
            while left > 0 {
                let count = left.min(CHUNK as u64) as usize;
                let bytes = &mut chunk[..count * words * 8];
                match region.fill(bytes) {
                    Ok(Filled::Whole) => {}
                    Ok(Filled::End) => {
                        self.damaged(module.name(), "it ends within a record");
                        return Ok(());
                    }
                    Err(why) => {
                        self.damaged(module.name(), &why);
                        return Ok(());
                    }
                }
                for segment in bytes.chunks_exact(words * 8) {
                    let op = if writes > 0 { Operation::Write } else { Operation::Read };
                    writes = writes.saturating_sub(1);
                    let Some(row) = request_of(&region, segment, has_offsets) else {
                        self.implausible += 1;
                        continue;
                    };
                    if row.flags & flags::OFFSET_UNKNOWN != 0 {
                        self.out.summary.lacks |= Lacks::OFFSETS;
                    }
                    self.out.row(Record { file, program, rank, api: api as u8, op: op as u8, ..row })?;
                }
                left -= count as u64;
            }
        }
    }

    /// Counters of one module.
    fn counters(&mut self, module: Module) -> Result<(), ImportError> {
        let newest = match module {
            Module::Posix => 4,
            Module::MpiIo => 3,
            _ => 2,
        };
        let Some((region, version)) = self.module(module, newest) else { return Ok(()) };
        let Some(shape) = CounterNames::of(module, version) else { return Ok(()) };
        self.each_record(module, region, shape.record_bytes(), &mut |reading, word| {
            let (id, rank) = (word(0), u32::try_from(word(1) as i64).ok());
            let (integers, floats) = shape.kept(word);
            let has_rows = reading.traced.contains(&(id, shape.api));
            let file = reading.file(id)?;
            let counters = FileCounters { file, api: shape.api, rank, integers, floats, has_rows };
            reading.out.counters(&counters)?;
            if has_rows { Ok(()) } else { reading.reconstruct(&counters) }
        })
    }

    /// Counters of a library above MPI-IO, by the file that they are of.
    fn library(&mut self, module: Module) -> Result<(), ImportError> {
        let (extent, version, _) = self.header.module(module);
        let Some(shape) = LibraryShape::of(module, version).filter(|_| extent.length > 0) else { return Ok(()) };
        let Some((region, _)) = self.module(module, u32::MAX) else { return Ok(()) };
        self.each_record(module, region, shape.record_bytes(), &mut |reading, word| {
            let Some(file) = reading.file_of_part(word(0), (shape.head_words > 2).then(|| word(2)))? else {
                return Ok(());
            };
            let rank = u32::try_from(word(1) as i64).ok();
            let (integers, floats) = shape.kept(word);
            reading.out.counters(&FileCounters { file, api: shape.api, rank, integers, floats, has_rows: true })
        })
    }

    /// The file of a record of a file, of a dataset or of a variable, whose name is the file's with its own behind a
    /// colon; `None` where the log does not name it.
    fn file_of_part(&mut self, id: u64, whole: Option<u64>) -> Result<Option<u32>, ImportError> {
        if let Some(whole) = whole.filter(|whole| self.names.contains_key(whole)) {
            return self.file(whole).map(Some);
        }
        if self.files.contains_key(&id) {
            return self.file(id).map(Some);
        }
        let Some(name) = self.names.get(&id) else { return Ok(None) };
        let path = name.split(|byte| *byte == b':').next().filter(|path| !path.is_empty());
        path.map(|path| self.out.file(path)).transpose()
    }

    /// Records of DAOS's file system, and of the objects of files that it has none of, as those of POSIX.
    fn daos(&mut self) -> Result<(), ImportError> {
        let mut counted = HashSet::new();
        for module in [Module::Dfs, Module::Daos] {
            let (extent, version, _) = self.header.module(module);
            if extent.length == 0 {
                continue;
            }
            if version != 1 {
                self.damaged(module.name(), &format!("its records have version {version}, known is 1"));
                continue;
            }
            let mut of_module = HashSet::new();
            let Some((region, _)) = self.module(module, u32::MAX) else { continue };
            self.each_record(module, region, daos::record_bytes(module), &mut |reading, word| {
                let (integers, floats) = daos::as_posix(module, word);
                let moved =
                    integers.iter().any(|(name, count)| matches!(*name, "POSIX_READS" | "POSIX_WRITES") && *count > 0);
                if counted.contains(&word(0)) || !moved {
                    return Ok(());
                }
                of_module.insert(word(0));
                let (file, rank) = (reading.file(word(0))?, u32::try_from(word(1) as i64).ok());
                let counters = FileCounters { file, api: Api::Posix, rank, integers, floats, has_rows: false };
                reading.out.counters(&counters)?;
                reading.reconstruct(&counters)
            })?;
            counted.extend(of_module);
        }
        if !counted.is_empty() {
            self.out.summary.note("requests to DAOS are taken as those of POSIX");
        }
        Ok(())
    }

    /// Gives `take` a function from the index of a word to the word, for each record of `record_bytes` of a module.
    fn each_record(
        &mut self,
        module: Module,
        mut region: LogRegion,
        record_bytes: usize,
        take: &mut TakeRecord<'_, Self>,
    ) -> Result<(), ImportError> {
        let mut bytes = vec![0; record_bytes];
        loop {
            match region.fill(&mut bytes) {
                Ok(Filled::Whole) => {}
                Ok(Filled::End) => return Ok(()),
                Err(why) => {
                    self.damaged(module.name(), &why);
                    return Ok(());
                }
            }
            self.read += 1;
            take(self, &|index| region.word(&bytes, index))?;
        }
    }

    /// Rows that agree with counters, in the place of those that the log does not have.
    fn reconstruct(&mut self, counters: &FileCounters) -> Result<(), ImportError> {
        let made = rows_of(counters, self.out.summary.processes, self.rows_left);
        self.rows_left -= made.rows.len() as u64;
        self.stated = self.stated.saturating_add(made.requests);
        self.made += made.rows.len() as u64;
        if !made.rows.is_empty() {
            self.out.summary.lacks |= Lacks::PIDS | Lacks::METADATA | Lacks::COUNTERS_ONLY;
        }
        self.contradictory += u64::from(made.contradictory);
        made.rows.into_iter().try_for_each(|row| self.out.row(row))
    }

    /// Layouts of Lustre, one for each file though each rank has a record.
    fn layouts(&mut self) -> Result<(), ImportError> {
        let Some((mut region, version)) = self.module(Module::Lustre, 2) else { return Ok(()) };
        let mut told = HashSet::new();
        loop {
            match read_layout(&mut region, version) {
                Ok(Some(LayoutRecord { id, targets, components })) => {
                    self.read += 1;
                    self.out.summary.targets = self.out.summary.targets.max(targets);
                    if !components.is_empty() && told.insert(id) {
                        let file = self.file(id)?;
                        self.out.layout(&LustreLayout { file, components })?;
                    }
                }
                Ok(None) => return Ok(()),
                Err(why) => {
                    self.damaged("LUSTRE", &why);
                    return Ok(());
                }
            }
        }
    }

    fn finish(mut self, format: &'static str) -> Result<Summary, ImportError> {
        if self.read == 0 && self.out.summary.lacks.contains(Lacks::DAMAGED) {
            // The error has a remedy of its own.
            let why = self.out.summary.notes.first().cloned().unwrap_or_default();
            let why = why.strip_suffix(REST).unwrap_or(&why).to_owned();
            return Err(ImportError::damaged(self.log.path(), format, self.header.job.start, why));
        }
        self.out.summary.job.nodes = Some(self.hosts.len() as u64).filter(|count| *count > 0);
        if self.implausible > 0 {
            self.out.summary.lacks |= Lacks::DAMAGED;
            self.out
                .summary
                .note(format!("{} requests have impossible sizes or times and are left out", self.implausible));
        }
        if self.stated > self.made {
            let (made, stated) = (self.made, self.stated);
            self.out
                .summary
                .note(format!("of {stated} requests that are only counted, an even sample of {made} stands for all"));
        }
        if self.contradictory > 0 {
            let text = "records of counters contradict themselves: their requests have the right number and bytes only";
            self.out.summary.note(format!("{} {text}", self.contradictory));
        }
        if self.out.summary.lacks.contains(Lacks::OFFSETS) {
            self.out.summary.note("some MPI-IO requests have no offsets: their Darshan did not record them");
        }
        self.out.finish()
    }
}

/// Place, size, times and thread of one segment of DXT; `None` for what cannot be.
fn request_of(region: &LogRegion, segment: &[u8], has_offsets: bool) -> Option<Record> {
    let times = [2, 3].map(|index| f64::from_bits(region.word(segment, index)));
    let [Some(start_ns), Some(end_ns)] = times.map(nanoseconds) else { return None };
    let size = u64::try_from(region.word(segment, 1) as i64).ok()?;
    let offset = u64::try_from(region.word(segment, 0) as i64).ok().filter(|_| has_offsets);
    Some(Record {
        offset: offset.unwrap_or(0),
        size,
        start_ns,
        end_ns: end_ns.max(start_ns),
        // Threads are told apart by the low half of their `pthread_t`, which the newest versions have.
        tid: if segment.len() == 5 * 8 { region.word(segment, 4) as u32 } else { 0 },
        flags: if offset.is_none() { flags::OFFSET_UNKNOWN } else { 0 },
        ..Record::default()
    })
}

/// The newest version of a module of requests that is known.
fn newest_of(module: Module) -> u32 {
    if module == Module::DxtPosix { 2 } else { 3 }
}

/// Seconds since the start of the job as nanoseconds; `None` for what is no time.
fn nanoseconds(seconds: f64) -> Option<u64> {
    // Clocks of ranks differ a little: before the start is the start.
    (seconds.is_finite() && seconds > -3600.0 && seconds < 1e9).then(|| (seconds.max(0.0) * 1e9).round() as u64)
}

/// What is done with a record: it is given a function from the index of a word to the word.
type TakeRecord<'t, R> = dyn FnMut(&mut R, &dyn Fn(usize) -> u64) -> Result<(), ImportError> + 't;

/// One record of LUSTRE.
struct LayoutRecord {
    /// The file's.
    id: u64,
    /// Object storage targets of its file system. Newer records do not say.
    targets: Option<u64>,
    components: Vec<LustreComponent>,
}

/// One record of LUSTRE; `None` at the end.
fn read_layout(region: &mut LogRegion, version: u32) -> Result<Option<LayoutRecord>, String> {
    let positive = |value: u64| u64::try_from(value as i64).ok();
    let whole =
        |filled: Filled| if filled == Filled::Whole { Ok(()) } else { Err("it ends within a record".to_owned()) };
    if version == 1 {
        let mut head = [0; 56];
        if region.fill(&mut head)? == Filled::End {
            return Ok(None);
        }
        let [id, targets, stripe_bytes, stripe_count] = [0, 2, 5, 6].map(|index| region.word(&head, index));
        let count = positive(stripe_count).filter(|count| *count <= MAX_STRIPES);
        let count = count.ok_or_else(|| format!("a file has {} stripes", stripe_count as i64))?;
        let osts = read_osts(region, count)?;
        let component = LustreComponent {
            start: 0,
            end: None,
            stripe_bytes: positive(stripe_bytes).unwrap_or(0),
            stripe_count: count,
            pattern: None,
            mirror: None,
            pool: String::new(),
            osts: osts.into_iter().filter_map(positive).collect(),
        };
        let targets = positive(targets).filter(|targets| *targets > 0);
        return Ok(Some(LayoutRecord { id, targets, components: vec![component] }));
    }
    let mut head = [0; 32];
    if region.fill(&mut head)? == Filled::End {
        return Ok(None);
    }
    let [id, component_count, stripe_total] = [0, 2, 3].map(|index| region.word(&head, index));
    if component_count > MAX_COMPONENTS || stripe_total > MAX_STRIPES {
        return Err(format!("a file has {} components and {} stripes", component_count as i64, stripe_total as i64));
    }
    // Without components there is nothing behind the head.
    if component_count == 0 {
        return Ok(Some(LayoutRecord { id, targets: None, components: Vec::new() }));
    }
    let mut components = Vec::new();
    let mut unused = false;
    for _ in 0..component_count {
        let mut bytes = [0; 72];
        whole(region.fill(&mut bytes)?)?;
        let value = |index: usize| region.word(&bytes, index);
        // Room that the recorder reserved and did not need is marked by a stripe size of -1.
        unused |= value(0) as i64 == -1;
        if unused {
            continue;
        }
        let pool = &bytes[56..72];
        let pool = &pool[..pool.iter().position(|byte| *byte == 0).unwrap_or(pool.len())];
        components.push(LustreComponent {
            start: value(4),
            end: positive(value(5)),
            stripe_bytes: positive(value(0)).unwrap_or(0),
            stripe_count: positive(value(1)).unwrap_or(0),
            pattern: positive(value(2)),
            mirror: positive(value(6)),
            pool: String::from_utf8_lossy(pool).into_owned(),
            osts: Vec::new(),
        });
    }
    let mut osts = read_osts(region, stripe_total)?.into_iter();
    for component in &mut components {
        // Stripes of components that no write has reached yet are numbered -1.
        let own = usize::try_from(component.stripe_count).unwrap_or(usize::MAX);
        component.osts = osts.by_ref().take(own).filter_map(positive).collect();
    }
    Ok(Some(LayoutRecord { id, targets: None, components }))
}

fn read_osts(region: &mut LogRegion, count: u64) -> Result<Vec<u64>, String> {
    let mut osts = Vec::new();
    let mut bytes = [0; 8];
    for _ in 0..count {
        if region.fill(&mut bytes)? == Filled::End {
            return Err("it ends within a record".to_owned());
        }
        osts.push(region.word(&bytes, 0));
    }
    Ok(osts)
}

/// The user that a log's name begins with, as Darshan names logs: `USER_PROGRAM_idJOB-…`. O(length of the name).
fn user_of(log: &Path, job: &str) -> Option<String> {
    let (user, rest) = log.file_name()?.to_str()?.split_once('_')?;
    let (_, after) = rest.split_once("_id")?;
    let own = after.strip_prefix(job)?;
    (!user.is_empty() && own.starts_with(['-', '_'])).then(|| user.to_owned())
}
