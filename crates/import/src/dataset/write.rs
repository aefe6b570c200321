//! [`write_dataset`]: a trace to a directory of tables, whole or not at all.

use super::manifest::{Manifest, ManifestRequests};
use super::{
    COUNTERS, COUNTERS_SCHEMA, FILES, FILES_SCHEMA, LUSTRE, LUSTRE_SCHEMA, MANIFEST, PROCESSES, PROCESSES_SCHEMA,
    PROGRAMS, PROGRAMS_SCHEMA, REQUESTS, partition,
};
use crate::about::About;
use crate::error::ImportError;
use crate::imported::Progress;
use crate::schema::{self, GROUP_ROWS, RowWriter};
use crate::table::{Cells, TableWriter, Written, sync_all};
use parquet::data_type::ByteArray;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use stripewise_trace::{Trace, output_place};

/// Counters of one row group of their table.
const COUNTERS_AT_ONCE: usize = 1024;

/// Writes the trace and what is known of it as a data set at `path`, which appears complete or not at all: it is
/// written beside, made durable and renamed. `progress` is told how many of how many rows are written. O(rows), in
/// memory for one row group.
///
/// # Errors
/// [`ImportError::Exists`]; [`ImportError::Write`] with the system's reason, after which nothing is left;
/// [`ImportError::Stopped`].
pub fn write_dataset(
    trace: &Trace,
    about: &About,
    path: &Path,
    progress: &mut Progress<'_>,
) -> Result<(), ImportError> {
    if path.symlink_metadata().is_ok() {
        return Err(ImportError::Exists { path: path.to_owned() });
    }
    remove_left(path);
    let unfinished = beside(path);
    let write = |source| ImportError::Write { path: path.to_owned(), source };
    let written = std::fs::create_dir(&unfinished).map_err(write).and_then(|()| {
        let _held = held(&unfinished);
        let mut writing = Writing { dir: &unfinished, tables: BTreeMap::new(), requests: Vec::new() };
        let done = writing
            .all(trace, about, progress)
            .and_then(|all| if all { std::fs::rename(&unfinished, path).map(|()| all) } else { Ok(all) });
        if done.map_err(write)? { Ok(()) } else { Err(ImportError::Stopped { path: path.to_owned() }) }
    });
    if written.is_err() {
        let _ = std::fs::remove_dir_all(&unfinished);
    }
    written
}

/// Writes all rows of a trace as one table in the file `path`, which appears complete or not at all; one that exists is
/// replaced. O(rows), in memory for one row group.
///
/// # Errors
/// [`ImportError::Write`] with the system's reason.
pub fn write_parquet(trace: &Trace, path: &Path) -> Result<(), ImportError> {
    remove_left(path);
    let place = output_place(path).map_err(|source| ImportError::Write { path: path.to_owned(), source })?;
    let path = place.as_path();
    let unfinished = beside(path);
    let written = TableWriter::create(&unfinished, schema::REQUESTS).and_then(|mut table| {
        let _held = held(&unfinished);
        let mut rows = RowWriter::new(trace);
        for group in trace.windows(GROUP_ROWS) {
            rows.rows(&mut table, group)?;
        }
        table.finish()?;
        sync_all(std::slice::from_ref(&unfinished))?;
        std::fs::rename(&unfinished, path)
    });
    written.map_err(|source| {
        let _ = std::fs::remove_file(&unfinished);
        ImportError::Write { path: path.to_owned(), source }
    })
}

/// A name of our own beside `path`.
fn beside(path: &Path) -> PathBuf {
    path.with_file_name(format!("{}{}.new", start_of_names(path), std::process::id()))
}

fn start_of_names(path: &Path) -> String {
    format!(".{}.", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Marks a data set as being written, until it is dropped: others then do not take it for the remains of a killed
/// process. `None` where the file system has no locks: then no process takes any remains away.
fn held(unfinished: &Path) -> Option<File> {
    let file = File::open(unfinished).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Removes what killed processes began to write for `path`, as far as that can be told and done.
fn remove_left(path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let start = start_of_names(path);
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(&start)?.strip_suffix(".new"));
        let Ok(kind) = entry.file_type() else { continue };
        let ours = number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
        // Of other kinds we write none, and opening them can wait.
        if !ours || !(kind.is_dir() || kind.is_file()) {
            continue;
        }
        let left = entry.path();
        if held(&left).is_some() {
            let _ = if kind.is_dir() { std::fs::remove_dir_all(&left) } else { std::fs::remove_file(&left) };
        }
    }
}

struct Writing<'a> {
    dir: &'a Path,
    tables: BTreeMap<String, Written>,
    requests: Vec<ManifestRequests>,
}

impl Writing<'_> {
    /// Writes everything; `false` where the progress callback asked to stop.
    fn all(&mut self, trace: &Trace, about: &About, progress: &mut Progress<'_>) -> io::Result<bool> {
        std::fs::create_dir(self.dir.join(REQUESTS))?;
        if !self.partitions(trace, progress)? {
            return Ok(false);
        }
        self.files(trace)?;
        self.programs(trace)?;
        self.processes(trace)?;
        self.counters(about)?;
        self.lustre(about)?;
        let manifest = Manifest::new(about, std::mem::take(&mut self.tables), std::mem::take(&mut self.requests));
        let mut file = File::create_new(self.dir.join(MANIFEST))?;
        let mut text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other)?;
        text.push(b'\n');
        file.write_all(&text)?;
        let tables = manifest.tables.keys().cloned().chain(manifest.requests.iter().map(|table| partition(table.file)));
        let written: Vec<PathBuf> = tables.chain([MANIFEST.to_owned()]).map(|name| self.dir.join(name)).collect();
        sync_all(&written)?;
        Ok(true)
    }

    fn partitions(&mut self, trace: &Trace, progress: &mut Progress<'_>) -> io::Result<bool> {
        let total = trace.records().len() as u64;
        let mut rows = RowWriter::new(trace);
        let mut done = 0;
        for file in trace.files().iter().filter(|file| !file.records.is_empty()) {
            let mut table = TableWriter::create(&self.dir.join(partition(file.id)), schema::REQUESTS)?;
            for group in trace.windows_of(file.id, GROUP_ROWS) {
                rows.rows(&mut table, group)?;
                done += group.len() as u64;
                if progress(done, total) == ControlFlow::Break(()) {
                    return Ok(false);
                }
            }
            let Written { rows, bytes, crc32c } = table.finish()?;
            self.requests.push(ManifestRequests { file: file.id, rows, bytes, crc32c });
        }
        Ok(true)
    }

    fn table(&mut self, name: &str, schema: &str, rows: usize, columns: &[Cells<'_>]) -> io::Result<()> {
        let mut table = TableWriter::create(&self.dir.join(name), schema)?;
        if rows > 0 {
            table.rows(rows, columns)?;
        }
        let written = table.finish()?;
        self.tables.insert(name.to_owned(), written);
        Ok(())
    }

    fn files(&mut self, trace: &Trace) -> io::Result<()> {
        let numbers: Vec<i32> = trace.files().iter().map(|file| file.id as i32).collect();
        let mut raw = (Vec::new(), Vec::new());
        let mut paths = Vec::new();
        for file in trace.files() {
            let bytes = file.path.as_os_str().as_encoded_bytes();
            let text = String::from_utf8_lossy(bytes);
            if text.as_bytes() != bytes {
                raw.0.push(ByteArray::from(bytes));
            }
            raw.1.push(i16::from(text.as_bytes() != bytes));
            paths.push(ByteArray::from(&*text));
        }
        let columns = [Cells::Int32(&numbers), Cells::Text(&paths), Cells::OptionalBytes(&raw.0, &raw.1)];
        self.table(FILES, FILES_SCHEMA, numbers.len(), &columns)
    }

    fn programs(&mut self, trace: &Trace) -> io::Result<()> {
        let numbers: Vec<i32> = (0..trace.programs().len() as i32).collect();
        let names: Vec<ByteArray> = trace.programs().iter().map(|program| program.name.as_str().into()).collect();
        self.table(PROGRAMS, PROGRAMS_SCHEMA, names.len(), &[Cells::Int32(&numbers), Cells::Text(&names)])
    }

    fn processes(&mut self, trace: &Trace) -> io::Result<()> {
        let all = trace.processes();
        macro_rules! column {
            ($name:ident, $type:ty) => {
                &all.iter().map(|process| process.$name as $type).collect::<Vec<$type>>()
            };
        }
        let hosts: Vec<ByteArray> = all.iter().map(|process| process.host.as_str().into()).collect();
        let commands: Vec<ByteArray> = all.iter().map(|process| process.command.as_str().into()).collect();
        let columns = [
            Cells::Int32(column!(program, i32)),
            Cells::Int32(column!(rank, i32)),
            Cells::Int32(column!(pid, i32)),
            Cells::Int32(column!(parent_pid, i32)),
            Cells::Text(&hosts),
            Cells::Text(&commands),
            Cells::Int64(column!(start_ns, i64)),
            Cells::Int64(column!(records, i64)),
            Cells::Int64(column!(holes, i64)),
            Cells::Int64(column!(dropped, i64)),
            Cells::Int64(column!(names_dropped, i64)),
        ];
        self.table(PROCESSES, PROCESSES_SCHEMA, all.len(), &columns)
    }

    /// A row for each counter of each record.
    fn counters(&mut self, about: &About) -> io::Result<()> {
        let mut table = TableWriter::create(&self.dir.join(COUNTERS), COUNTERS_SCHEMA)?;
        for (group, all) in about.counters.chunks(COUNTERS_AT_ONCE).enumerate() {
            let (mut records, mut files, mut apis, mut has_rows, mut names) =
                (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
            let (mut ranks, mut integers, mut floats) =
                ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
            for (number, counters) in all.iter().enumerate() {
                let integer = counters.integers.iter().map(|&(name, value)| (name, Some(value), None));
                let float = counters.floats.iter().map(|&(name, value)| (name, None, Some(value)));
                let api = ByteArray::from(counters.api.name());
                for (name, integer, float) in integer.chain(float) {
                    records.push((group * COUNTERS_AT_ONCE + number) as i32);
                    files.push(counters.file as i32);
                    apis.push(api.clone());
                    ranks.0.extend(counters.rank.map(|rank| rank as i32));
                    ranks.1.push(i16::from(counters.rank.is_some()));
                    has_rows.push(i32::from(counters.has_rows));
                    names.push(ByteArray::from(name));
                    integers.0.extend(integer);
                    integers.1.push(i16::from(integer.is_some()));
                    floats.0.extend(float);
                    floats.1.push(i16::from(float.is_some()));
                }
            }
            let columns = [
                Cells::Int32(&records),
                Cells::Int32(&files),
                Cells::Text(&apis),
                Cells::OptionalInt32(&ranks.0, &ranks.1),
                Cells::Int32(&has_rows),
                Cells::Text(&names),
                Cells::OptionalInt64(&integers.0, &integers.1),
                Cells::OptionalDouble(&floats.0, &floats.1),
            ];
            table.rows(records.len(), &columns)?;
        }
        let written = table.finish()?;
        self.tables.insert(COUNTERS.to_owned(), written);
        Ok(())
    }

    /// A row for each component of each file.
    fn lustre(&mut self, about: &About) -> io::Result<()> {
        let rows: Vec<_> = about
            .lustre_layouts
            .iter()
            .flat_map(|layout| layout.components.iter().map(|component| (layout.file, component)))
            .collect();
        let optional = |of: &dyn Fn(usize) -> Option<u64>| {
            let values: Vec<Option<u64>> = (0..rows.len()).map(of).collect();
            let there: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
            (values.into_iter().flatten().map(|value| value as i64).collect::<Vec<i64>>(), there)
        };
        let (ends, patterns, mirrors) = (
            optional(&|row| rows[row].1.end),
            optional(&|row| rows[row].1.pattern),
            optional(&|row| rows[row].1.mirror),
        );
        let long = |of: &dyn Fn(usize) -> u64| (0..rows.len()).map(|row| of(row) as i64).collect::<Vec<i64>>();
        let (mut osts, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        for (_, component) in &rows {
            osts.extend(component.osts.iter().map(|&ost| ost as i64));
            let listed = component.osts.len().max(1);
            defined.extend(std::iter::repeat_n(i16::from(!component.osts.is_empty()), listed));
            repeated.extend((0..listed).map(|index| i16::from(index > 0)));
        }
        let files: Vec<i32> = rows.iter().map(|row| row.0 as i32).collect();
        let pools: Vec<ByteArray> = rows.iter().map(|row| row.1.pool.as_str().into()).collect();
        let columns = [
            Cells::Int32(&files),
            Cells::Int64(&long(&|row| rows[row].1.start)),
            Cells::OptionalInt64(&ends.0, &ends.1),
            Cells::Int64(&long(&|row| rows[row].1.stripe_bytes)),
            Cells::Int64(&long(&|row| rows[row].1.stripe_count)),
            Cells::OptionalInt64(&patterns.0, &patterns.1),
            Cells::OptionalInt64(&mirrors.0, &mirrors.1),
            Cells::Text(&pools),
            Cells::Int64Lists(&osts, &defined, &repeated),
        ];
        self.table(LUSTRE, LUSTRE_SCHEMA, rows.len(), &columns)
    }
}
