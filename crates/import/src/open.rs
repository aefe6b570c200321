//! [`open`]: any log as a trace.

use crate::about::About;
use crate::dataset;
use crate::error::ImportError;
use crate::formats::{importer_of, is_log_folder, open_log};
use crate::imported::{Imported, Progress};
use crate::importer::Importer;
use crate::log::Log;
use crate::scratch::ScratchTrace;
use crate::sink::{Sink, Summary};
use crate::{FileCounters, Lacks, LustreLayout};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use stripewise_trace::{Process, Program, Record, Tables, Trace};

/// Name of the format of our own recorder.
const OWN: &str = "Stripewise";

/// Opens a trace of our own (a file, or the directory of its processes), a data set that [`crate::write_dataset`] wrote,
/// or a log of any known format. The last two are converted to a temporary trace, which has no name and is gone when it
/// is dropped: memory is the page cache's, room is needed for 56 bytes a row in `TMPDIR` (else `/var/tmp`). O(n log n)
/// for n rows.
///
/// # Errors
/// [`ImportError`] with the file, the place in it and the remedy.
pub fn open(path: &Path, progress: &mut Progress<'_>) -> Result<Imported, ImportError> {
    if dataset::is_dataset(path) {
        return dataset::read(path, progress);
    }
    if path.is_dir() && !is_log_folder(path) {
        return Trace::open(path).map(recorded).map_err(|error| match logs_in(path) {
            0 => error.into(),
            logs => ImportError::Logs { path: path.to_owned(), logs },
        });
    }
    let log = open_log(path)?;
    if log.start()?.starts_with(&stripewise_trace::MAGIC) {
        return Ok(recorded(Trace::open(path)?));
    }
    convert(&log, progress)
}

/// The format of a log, by its name and first bytes; `None` for what is no log, and for what cannot be read.
pub fn format_of(path: &Path) -> Option<&'static str> {
    if dataset::is_dataset(path) {
        return Some("data set");
    }
    if path.is_dir() && !is_log_folder(path) {
        let own = std::fs::read_dir(path).ok()?.flatten().any(|entry| {
            entry.file_name().as_encoded_bytes().ends_with(stripewise_trace::PROCESS_FILE_SUFFIX.as_bytes())
        });
        return own.then_some(OWN);
    }
    let log = open_log(path).ok()?;
    if log.start().ok()?.starts_with(&stripewise_trace::MAGIC) {
        return Some(OWN);
    }
    importer_of(&log).ok().map(Importer::name)
}

/// Logs that a directory has, as far as their first bytes tell.
fn logs_in(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries.flatten().filter(|entry| format_of(&entry.path()).is_some()).count()
}

/// Opens some files of a data set that [`crate::write_dataset`] wrote: as [`open`], but requests, counters and layouts
/// are those of `files`, and the other files' requests are not read. Numbers of files are those of the whole.
///
/// # Errors
/// [`ImportError::NotDataset`] where it is none; [`ImportError::Table`] with what is damaged.
pub fn open_files(path: &Path, files: &[u32], progress: &mut Progress<'_>) -> Result<Imported, ImportError> {
    check_dataset(path)?;
    dataset::read_files(path, files, progress)
}

/// Opens the index of a data set: as [`open`], but no requests are read.
///
/// # Errors
/// As of [`open_files`].
pub fn open_index(path: &Path, progress: &mut Progress<'_>) -> Result<Imported, ImportError> {
    check_dataset(path)?;
    dataset::read_index(path, progress)
}

fn check_dataset(path: &Path) -> Result<(), ImportError> {
    let metadata = std::fs::metadata(path).map_err(|error| ImportError::io("open", path, error))?;
    if !metadata.is_dir() || !dataset::is_dataset(path) {
        return Err(ImportError::NotDataset { path: path.to_owned() });
    }
    Ok(())
}

/// What our own recorder knows of a run is in the trace itself.
fn recorded(trace: Trace) -> Imported {
    let about = About {
        format: OWN.to_owned(),
        start_unix_ns: Some(trace.start_unix_ns()),
        processes: Some(trace.processes().len() as u64),
        ..About::default()
    };
    Imported { trace, about }
}

fn convert(log: &Log, progress: &mut Progress<'_>) -> Result<Imported, ImportError> {
    let mut converting = Converting {
        scratch: ScratchTrace::new(log.path())?,
        tables: Tables::default(),
        processes: HashMap::new(),
        last_process: None,
        counters: Vec::new(),
        layouts: Vec::new(),
        impossible: 0,
        progress,
        stopped: false,
    };
    let summary = importer_of(log)?.import(log, &mut converting).map_err(|error| match error {
        ImportError::Sink { .. } if converting.stopped => ImportError::Stopped { path: log.path().to_owned() },
        ImportError::Sink { source, .. } => converting.scratch.no_room(source),
        other => other,
    })?;
    converting.finish(summary)
}

/// Rows to a temporary trace, the rest to memory.
struct Converting<'a> {
    scratch: ScratchTrace,
    tables: Tables,
    /// Place in the tables by program, rank and process id.
    processes: HashMap<(u32, u32, u32), usize>,
    /// The last row's: most rows are of the same process as the row before.
    last_process: Option<((u32, u32, u32), usize)>,
    counters: Vec<FileCounters>,
    layouts: Vec<LustreLayout>,
    /// Rows that cannot be.
    impossible: u64,
    progress: &'a mut Progress<'a>,
    stopped: bool,
}

impl Converting<'_> {
    fn count(&mut self, row: &Record) {
        let key = (row.program, row.rank, row.pid);
        let place = match self.last_process {
            Some((last, place)) if last == key => place,
            _ => *self.processes.entry(key).or_insert_with(|| {
                self.tables.processes.push(Process {
                    program: row.program,
                    rank: row.rank,
                    pid: row.pid,
                    parent_pid: 0,
                    host: String::new(),
                    command: String::new(),
                    start_ns: row.start_ns,
                    records: 0,
                    holes: 0,
                    dropped: 0,
                    names_dropped: 0,
                });
                self.tables.processes.len() - 1
            }),
        };
        self.last_process = Some((key, place));
        let process = &mut self.tables.processes[place];
        process.records += 1;
        process.start_ns = process.start_ns.min(row.start_ns);
    }

    fn finish(mut self, mut summary: Summary) -> Result<Imported, ImportError> {
        if self.impossible > 0 {
            summary.lacks |= Lacks::DAMAGED;
            summary.note(format!("{} rows have impossible offsets or times and are left out", self.impossible));
        }
        let new_ids = self.tables.order_files();
        let renumbered = |file: &mut u32| *file = new_ids[*file as usize];
        self.counters.iter_mut().for_each(|counters| renumbered(&mut counters.file));
        self.layouts.iter_mut().for_each(|layout| renumbered(&mut layout.file));
        self.layouts.sort_by_key(|layout| layout.file);
        self.tables.processes.sort_by_key(|process| (process.program, process.rank, process.pid));
        for process in &mut self.tables.processes {
            process.host = summary.hosts.remove(&process.rank).unwrap_or_default();
        }
        let trace = self.scratch.into_trace(self.tables, summary.start_unix_ns, Some(&new_ids))?;
        let about = About { counters: self.counters, lustre_layouts: self.layouts, ..About::of(summary) };
        Ok(Imported { trace, about })
    }
}

impl Sink for Converting<'_> {
    fn file(&mut self, _id: u32, path: &[u8]) -> io::Result<()> {
        self.tables.files.push(path.to_vec());
        Ok(())
    }

    fn program(&mut self, _id: u32, name: &[u8]) -> io::Result<()> {
        self.tables.programs.push(Program { name: String::from_utf8_lossy(name).into_owned() });
        Ok(())
    }

    fn rows(&mut self, rows: &[Record]) -> io::Result<()> {
        if self.stopped {
            return Err(io::ErrorKind::Interrupted.into());
        }
        for possible in rows.split(|row| row.check().is_err()) {
            possible.iter().for_each(|row| self.count(row));
            self.scratch.push(possible)?;
        }
        self.impossible += rows.iter().filter(|row| row.check().is_err()).count() as u64;
        Ok(())
    }

    fn counters(&mut self, counters: &FileCounters) -> io::Result<()> {
        self.counters.push(counters.clone());
        Ok(())
    }

    fn layout(&mut self, layout: &LustreLayout) -> io::Result<()> {
        self.layouts.push(layout.clone());
        Ok(())
    }

    fn progress(&mut self, done_bytes: u64, total_bytes: u64) {
        self.stopped |= (self.progress)(done_bytes, total_bytes).is_break();
    }
}
