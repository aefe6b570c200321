//! [`Inputs`]: the files of a trace's processes as one stream of records.

use crate::error::TraceError;
use crate::format::PROCESS_FILE_SUFFIX;
use crate::process_file::ProcessFile;
use crate::record::Record;
use crate::tables::{Process, Program, Tables};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The process files of a directory, checked, with the tables that their records will refer to.
pub(crate) struct Inputs {
    files: Vec<Input>,
    pub tables: Tables,
    /// Records in all of them.
    pub records: u64,
    /// `CLOCK_REALTIME` of the earliest.
    pub start_unix_ns: u64,
}

struct Input {
    file: ProcessFile,
    program: u32,
    /// Id in the file → id in the trace.
    ids: HashMap<u32, u32>,
    /// Added to a time in the file to get the time since the trace's start.
    shift_ns: i64,
}

impl Inputs {
    pub(crate) fn open(dir: &Path) -> Result<Self, TraceError> {
        let mut paths = process_files(dir)?;
        paths.sort();
        let mut files = Vec::with_capacity(paths.len());
        for path in &paths {
            files.push(ProcessFile::open(path)?);
        }
        if files.iter().all(|file| file.record_count() == 0) {
            return Err(TraceError::Empty(dir.to_owned()));
        }
        // One clock offset per host, of its first process: within a host CLOCK_MONOTONIC is exact, the offset is not.
        let mut offsets: HashMap<Vec<u8>, i64> = HashMap::new();
        let mut started: Vec<i64> = Vec::with_capacity(files.len());
        for file in &files {
            let own = file.wall_offset_ns();
            let offset = *offsets.entry(file.host().to_vec()).or_insert(own);
            // More than a second apart: the host was restarted or its clock set in between.
            started.push(if offset.abs_diff(own) > 1_000_000_000 { own } else { offset });
        }
        let first = files
            .iter()
            .zip(&started)
            .filter_map(|(file, offset)| Some(i64::try_from(file.first_ns()?).ok()?.saturating_add(*offset)))
            .min()
            .unwrap_or(0);
        let mut tables = Tables::default();
        let mut programs: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut names: Vec<(Vec<u8>, usize, u32)> = Vec::new();
        let mut inputs = Vec::with_capacity(files.len());
        let mut records = 0;
        for (index, (file, offset)) in files.into_iter().zip(started).enumerate() {
            let next = programs.len() as u32;
            let program = *programs.entry(file.program().to_vec()).or_insert(next);
            if program == next {
                tables.programs.push(Program { name: String::from_utf8_lossy(file.program()).into_owned() });
            }
            let shift_ns = offset.saturating_sub(first);
            tables.processes.push(Process {
                program,
                rank: file.rank(),
                pid: file.pid(),
                parent_pid: file.parent_pid(),
                host: String::from_utf8_lossy(file.host()).into_owned(),
                command: command_line(file.command()),
                start_ns: shifted(file.start_ns(), shift_ns),
                records: file.record_count(),
                holes: file.holes(),
                dropped: file.dropped(),
                names_dropped: file.names_dropped(),
            });
            records += file.record_count();
            names.extend(file.names().into_iter().map(|(id, name)| (name, index, id)));
            inputs.push(Input { file, program, ids: HashMap::new(), shift_ns });
        }
        // Ids in order of name: a trace of the same program has the same ids whatever the order of its processes.
        names.sort();
        for (name, index, id) in names {
            if tables.files.last() != Some(&name) {
                tables.files.push(name);
            }
            let number = u32::try_from(tables.files.len() - 1)
                .map_err(|_| TraceError::TooMany { path: dir.to_owned(), what: "files" })?;
            inputs[index].ids.insert(id, number);
        }
        let mut inputs = Self { files: inputs, tables, records, start_unix_ns: u64::try_from(first).unwrap_or(0) };
        inputs.name_the_nameless();
        Ok(inputs)
    }

    /// Gives the records whose file's name was lost (the process was killed while writing it, or its table was full)
    /// a file of their own, per process, so that they are not mixed with others.
    fn name_the_nameless(&mut self) {
        for input in &mut self.files {
            let mut lost: Vec<u32> =
                input.file.records().map(|record| record.file).filter(|id| !input.ids.contains_key(id)).collect();
            lost.sort_unstable();
            lost.dedup();
            for id in lost {
                input.ids.insert(id, self.tables.files.len() as u32);
                self.tables.files.push(format!("<unknown file {id} of process {}>", input.file.pid()).into_bytes());
            }
        }
    }

    /// Hands over every record, unsorted, with the numbers and times of the whole trace.
    ///
    /// # Errors
    /// [`TraceError::Changing`] when a process recorded more in the meantime; whatever `take` says.
    pub(crate) fn each(&self, take: &mut dyn FnMut(Record) -> Result<(), TraceError>) -> Result<(), TraceError> {
        for input in &self.files {
            let changing = || TraceError::Changing(input.file.path().to_owned());
            let mut count = 0;
            for record in input.file.records() {
                take(Record {
                    file: *input.ids.get(&record.file).ok_or_else(changing)?,
                    program: input.program,
                    start_ns: shifted(record.start_ns, input.shift_ns),
                    end_ns: shifted(record.end_ns, input.shift_ns),
                    ..*record
                })?;
                count += 1;
            }
            if count != input.file.record_count() {
                return Err(changing());
            }
        }
        Ok(())
    }
}

/// Arguments separated by NUL bytes as one line.
fn command_line(command: &[u8]) -> String {
    let arguments = command.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    arguments.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

fn shifted(ns: u64, shift_ns: i64) -> u64 {
    ns.saturating_add_signed(shift_ns)
}

/// The process files in `dir`, in no order. Files still being started and others are passed over.
fn process_files(dir: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let entries = std::fs::read_dir(dir).map_err(|error| TraceError::io("read the directory", dir, error))?;
    let mut found = Vec::new();
    let mut others = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| TraceError::io("read the directory", dir, error))?.path();
        if path.as_os_str().as_encoded_bytes().ends_with(PROCESS_FILE_SUFFIX.as_bytes()) {
            found.push(path);
        } else if path.is_file() {
            others.push(path);
        }
    }
    if found.is_empty() {
        return Err(match others.into_iter().min() {
            Some(example) => TraceError::Others { dir: dir.to_owned(), example },
            None => TraceError::Empty(dir.to_owned()),
        });
    }
    Ok(found)
}
