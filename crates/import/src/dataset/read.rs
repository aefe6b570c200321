//! [`read`]: a data set as a trace. Every table is checked against `trace.json` and its schema, every field of it
//! against the rest: nothing in a data set is trusted.

use super::manifest::{Manifest, VERSION, Versioned};
use super::{
    COUNTERS, COUNTERS_SCHEMA, FILES, FILES_SCHEMA, LUSTRE, LUSTRE_SCHEMA, MANIFEST, PROCESSES, PROCESSES_SCHEMA,
    PROGRAMS, PROGRAMS_SCHEMA, partition,
};
use crate::counters::{FileCounters, LustreComponent, LustreLayout};
use crate::darshan::names::known;
use crate::error::ImportError;
use crate::imported::{Imported, Progress};
use crate::schema;
use crate::scratch::ScratchTrace;
use crate::table::{Column, TableFile, Take, Written};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use stripewise_trace::{Api, Operation, Process, Program, Record, Tables};

/// Longest `trace.json` that is read: some million files.
const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// Whether the directory is a data set.
pub(crate) fn is_dataset(dir: &Path) -> bool {
    dir.join(MANIFEST).is_file()
}

/// Reads a data set into a temporary trace. O(n) for n rows, which are sorted.
///
/// # Errors
/// [`ImportError::Table`] with the file and what is wrong in it.
pub(crate) fn read(dir: &Path, progress: &mut Progress<'_>) -> Result<Imported, ImportError> {
    read_wanted(DataSet { dir, manifest: manifest(&dir.join(MANIFEST))? }, |_| true, progress)
}

/// As [`read`], with the requests, counters and layouts of these files only: the tables of other files' requests are
/// not opened. O(n) for n rows of these files, and the tables beside those of requests.
///
/// # Errors
/// As of [`read`], for what is opened.
pub(crate) fn read_files(dir: &Path, files: &[u32], progress: &mut Progress<'_>) -> Result<Imported, ImportError> {
    let files: HashSet<u32> = files.iter().copied().collect();
    let mut manifest = manifest(&dir.join(MANIFEST))?;
    manifest.requests.retain(|table| files.contains(&table.file));
    read_wanted(DataSet { dir, manifest }, |file| files.contains(&file), progress)
}

/// As [`read`], without requests: no table of those is opened. O(n) for the tables beside them.
///
/// # Errors
/// As of [`read`], for what is opened.
pub(crate) fn read_index(dir: &Path, progress: &mut Progress<'_>) -> Result<Imported, ImportError> {
    let mut manifest = manifest(&dir.join(MANIFEST))?;
    manifest.requests.clear();
    read_wanted(DataSet { dir, manifest }, |_| true, progress)
}

fn read_wanted(
    data: DataSet<'_>,
    is_wanted: impl Fn(u32) -> bool,
    progress: &mut Progress<'_>,
) -> Result<Imported, ImportError> {
    let dir = data.dir;
    let mut about = data.manifest.about().map_err(|why| damaged(&dir.join(MANIFEST), why))?;
    let tables = data.tables()?;
    about.counters = data.counters(tables.files.len())?;
    about.counters.retain(|counters| is_wanted(counters.file));
    about.lustre_layouts = data.lustre(tables.files.len())?;
    about.lustre_layouts.retain(|layout| is_wanted(layout.file));
    let mut scratch = ScratchTrace::new(dir)?;
    let total: u64 = data.manifest.requests.iter().fold(0, |sum, table| sum.saturating_add(table.bytes));
    let mut done = 0u64;
    for requests in &data.manifest.requests {
        if progress(done, total) == ControlFlow::Break(()) {
            return Err(ImportError::Stopped { path: dir.to_owned() });
        }
        let expected = Written { rows: requests.rows, bytes: requests.bytes, crc32c: requests.crc32c };
        data.requests(requests.file, expected, &tables, &mut scratch)?;
        done += requests.bytes;
    }
    let trace = scratch.into_trace(tables, about.start_unix_ns, None)?;
    Ok(Imported { trace, about })
}

fn damaged(path: &Path, why: impl Into<String>) -> ImportError {
    ImportError::Table { path: path.to_owned(), why: why.into() }
}

fn manifest(path: &Path) -> Result<Manifest, ImportError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| ImportError::io("open", path, error))?;
    file.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes).map_err(|error| ImportError::io("read", path, error))?;
    let versioned: Versioned = serde_json::from_slice(&bytes).map_err(|error| damaged(path, error.to_string()))?;
    if versioned.version != VERSION {
        return Err(ImportError::Version {
            path: path.to_owned(),
            format: "data set",
            found: versioned.version.to_string(),
            known: "1",
        });
    }
    serde_json::from_slice(&bytes).map_err(|error| damaged(path, error.to_string()))
}

struct DataSet<'a> {
    dir: &'a Path,
    manifest: Manifest,
}

/// What a table's file lacks, or why what receives its rows failed.
enum Stop {
    Damaged(String),
    Scratch(io::Error),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Stop::Damaged(why)
    }
}

impl DataSet<'_> {
    /// Opens a table, checks that it is the one that was written, and hands over all its columns.
    fn read(
        &self,
        name: &str,
        schema: &str,
        expected: Written,
        take: &mut Take<'_, Stop>,
    ) -> Result<(), (PathBuf, Stop)> {
        let path = self.dir.join(name);
        let read = || -> Result<TableFile, String> {
            let metadata = std::fs::metadata(&path).map_err(|error| error.to_string())?;
            if !metadata.is_file() {
                return Err("it is no regular file".to_owned());
            }
            let file = File::open(&path).map_err(|error| error.to_string())?;
            let (bytes, crc32c) = sums(&file).map_err(|error| error.to_string())?;
            if bytes != expected.bytes {
                return Err(format!("it has {bytes} bytes, {} were written", expected.bytes));
            }
            if crc32c != expected.crc32c {
                return Err("it does not match its check sum".to_owned());
            }
            let table = TableFile::open(file)?;
            if !table.is_of(schema) {
                return Err("its columns are not those of such a table".to_owned());
            }
            if table.rows() != expected.rows {
                return Err(format!("it has {} rows, {} were written", table.rows(), expected.rows));
            }
            Ok(table)
        };
        let table = read().map_err(|why| (path.clone(), Stop::Damaged(why)))?;
        let columns: Vec<usize> = (0..table.column_count()).collect();
        let mut rows = 0;
        let read = table.read(&columns, &mut |first, count, columns| {
            rows += count as u64;
            if rows > expected.rows {
                Err(Stop::from("it has more rows than it promises".to_owned()))
            } else {
                take(first, count, columns)
            }
        });
        read.and_then(|()| {
            if rows == expected.rows {
                Ok(())
            } else {
                Err(Stop::from(format!("{} rows are missing", expected.rows - rows)))
            }
        })
        .map_err(|stop| (path, stop))
    }

    /// One of the tables beside those of requests, row by row.
    fn table(
        &self,
        name: &str,
        schema: &str,
        mut row: impl FnMut(usize, &[Column]) -> Option<()>,
    ) -> Result<(), ImportError> {
        let expected = self.manifest.tables.get(name);
        let expected = expected.ok_or_else(|| damaged(&self.dir.join(MANIFEST), format!("it does not name {name}")))?;
        let read = self.read(name, schema, *expected, &mut |first, count, columns| {
            (0..count).try_for_each(|index| {
                row(index, columns).ok_or_else(|| Stop::from(format!("row {} cannot be", first + index as u64)))
            })
        });
        read.map_err(|(path, stop)| match stop {
            Stop::Damaged(why) => damaged(&path, why),
            Stop::Scratch(error) => ImportError::io("read", &path, error),
        })
    }

    fn tables(&self) -> Result<Tables, ImportError> {
        let mut tables = Tables::default();
        self.table(FILES, FILES_SCHEMA, |row, columns| {
            let number = columns[0].unsigned(row)?;
            let path = columns[2].text(row).or(columns[1].text(row))?;
            tables.files.push(path.to_vec());
            (number + 1 == tables.files.len() as u64).then_some(())
        })?;
        self.table(PROGRAMS, PROGRAMS_SCHEMA, |row, columns| {
            let number = columns[0].unsigned(row)?;
            tables.programs.push(Program { name: text(&columns[1], row)? });
            (number + 1 == tables.programs.len() as u64).then_some(())
        })?;
        let programs = tables.programs.len();
        self.table(PROCESSES, PROCESSES_SCHEMA, |row, columns| {
            let word = |column: usize| u32::try_from(columns[column].unsigned(row)?).ok();
            let long = |column: usize| columns[column].unsigned(row);
            let process = Process {
                program: word(0)?,
                rank: word(1)?,
                pid: word(2)?,
                parent_pid: word(3)?,
                host: text(&columns[4], row)?,
                command: text(&columns[5], row)?,
                start_ns: long(6)?,
                records: long(7)?,
                holes: long(8)?,
                dropped: long(9)?,
                names_dropped: long(10)?,
            };
            let known = (process.program as usize) < programs;
            tables.processes.push(process);
            known.then_some(())
        })?;
        Ok(tables)
    }

    fn counters(&self, files: usize) -> Result<Vec<FileCounters>, ImportError> {
        let mut all: Vec<FileCounters> = Vec::new();
        self.table(COUNTERS, COUNTERS_SCHEMA, |row, columns| {
            let record = columns[0].unsigned(row)? as usize;
            let file = u32::try_from(columns[1].unsigned(row)?).ok().filter(|&file| (file as usize) < files)?;
            let api = api(columns[2].text(row)?)?;
            let rank = match columns[3].has(row) {
                true => Some(u32::try_from(columns[3].unsigned(row)?).ok()?),
                false => None,
            };
            let has_rows = columns[4].unsigned(row).filter(|&flag| flag < 2)? == 1;
            let name = known(columns[5].text(row)?)?;
            if record == all.len() {
                all.push(FileCounters { file, api, rank, integers: Vec::new(), floats: Vec::new(), has_rows });
            }
            let last = all.last_mut()?;
            if (last.file, last.api, last.rank, last.has_rows) != (file, api, rank, has_rows) {
                return None;
            }
            match (columns[6].signed(row), columns[7].float(row)) {
                (Some(value), None) => last.integers.push((name, value)),
                (None, Some(value)) => last.floats.push((name, value)),
                _ => return None,
            }
            (record + 1 == all.len()).then_some(())
        })?;
        Ok(all)
    }

    fn lustre(&self, files: usize) -> Result<Vec<LustreLayout>, ImportError> {
        let mut all: Vec<LustreLayout> = Vec::new();
        let mut lists: Vec<Vec<u64>> = Vec::new();
        self.table(LUSTRE, LUSTRE_SCHEMA, |row, columns| {
            if row == 0 {
                lists = columns[8].lists().map(|list| list.iter().map(|&ost| ost as u64).collect()).collect();
            }
            let file = u32::try_from(columns[0].unsigned(row)?).ok().filter(|&file| (file as usize) < files)?;
            let component = LustreComponent {
                start: columns[1].unsigned(row)?,
                end: columns[2].unsigned(row),
                stripe_bytes: columns[3].unsigned(row)?,
                stripe_count: columns[4].unsigned(row)?,
                pattern: columns[5].unsigned(row),
                mirror: columns[6].unsigned(row),
                pool: text(&columns[7], row)?,
                osts: std::mem::take(lists.get_mut(row)?),
            };
            match all.last_mut() {
                Some(layout) if layout.file == file => layout.components.push(component),
                _ => all.push(LustreLayout { file, components: vec![component] }),
            }
            Some(())
        })?;
        Ok(all)
    }

    fn requests(
        &self,
        file: u32,
        expected: Written,
        tables: &Tables,
        scratch: &mut ScratchTrace,
    ) -> Result<(), ImportError> {
        let name = partition(file);
        let Some(path) = tables.files.get(file as usize) else {
            return Err(damaged(&self.dir.join(MANIFEST), format!("file {file} is not one of {}", tables.files.len())));
        };
        let path = String::from_utf8_lossy(path);
        let mut last_program = 0;
        let mut batch = Vec::new();
        let read = self.read(&name, schema::REQUESTS, expected, &mut |first, count, columns| {
            batch.clear();
            for index in 0..count {
                let row = request(columns, index, file, path.as_bytes(), tables, &mut last_program);
                let row = row.ok_or_else(|| format!("row {} cannot be", first + index as u64))?;
                row.check().map_err(|why| format!("row {} cannot be: {why}", first + index as u64))?;
                batch.push(row);
            }
            scratch.push(&batch).map_err(Stop::Scratch)
        });
        read.map_err(|(path, stop)| match stop {
            Stop::Damaged(why) => damaged(&path, why),
            Stop::Scratch(error) => scratch.no_room(error),
        })
    }
}

/// A row of a table of requests; `None` where it names what the data set does not have. O(1) but for changes of program.
fn request(
    columns: &[Column],
    row: usize,
    file: u32,
    path: &[u8],
    tables: &Tables,
    last_program: &mut usize,
) -> Option<Record> {
    let word = |column: usize| u32::try_from(columns[column].unsigned(row)?).ok();
    let long = |column: usize| columns[column].unsigned(row);
    let program = columns[0].text(row)?;
    if tables.programs.get(*last_program)?.name.as_bytes() != program {
        *last_program = tables.programs.iter().position(|known| known.name.as_bytes() == program)?;
    }
    (columns[4].text(row)? == path).then_some(())?;
    Some(Record {
        program: *last_program as u32,
        rank: word(1)?,
        pid: word(2)?,
        tid: word(3)?,
        file,
        api: api(columns[5].text(row)?)? as u8,
        op: operation(columns[6].text(row)?)? as u8,
        offset: long(7)?,
        size: long(8)?,
        start_ns: long(9)?,
        end_ns: long(10)?,
        flags: u16::try_from(long(11)?).ok()?,
    })
}

fn api(name: &[u8]) -> Option<Api> {
    Api::ALL.into_iter().find(|api| api.name().as_bytes() == name)
}

fn operation(name: &[u8]) -> Option<Operation> {
    Operation::ALL.into_iter().find(|op| op.name().as_bytes() == name)
}

fn text(column: &Column, row: usize) -> Option<String> {
    String::from_utf8(column.text(row)?.to_vec()).ok()
}

/// Length and CRC-32C of a file.
fn sums(file: &File) -> io::Result<(u64, u32)> {
    let (mut bytes, mut crc) = (0, 0);
    let mut buffer = vec![0; 1 << 18];
    let mut file = file;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, crc)),
            count => {
                bytes += count as u64;
                crc = crc32c::crc32c_append(crc, &buffer[..count]);
            }
        }
    }
}
