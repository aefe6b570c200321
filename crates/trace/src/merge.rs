//! [`merge`]: the files of a trace's processes into one, sorted by file, offset and start.
//!
//! The tables after the records are, in order: files (name), programs (name), processes (program, rank, pid, parent,
//! start, records, holes, dropped, names dropped, host, command). A count stands before each table, a 32-bit length
//! before each text.

use crate::error::TraceError;
use crate::inputs::Inputs;
use crate::output::output_place;
use crate::record::Record;
use crate::writer::TraceWriter;
use std::fs::File;
use std::path::Path;

/// Records that are written at once.
const BATCH: usize = 4096;

/// Joins the process files in `dir` into the file `out`, which appears complete or not at all (it is written under
/// another name, made durable and renamed). Memory is the page cache's, see [`TraceWriter`]; O(n log n).
///
/// # Errors
/// A damaged or cut process file (named, with the offset), no process file at all, or the system's reason.
pub fn merge(dir: &Path, out: &Path) -> Result<(), TraceError> {
    let inputs = Inputs::open(dir)?;
    let out = &output_place(out).map_err(|error| TraceError::io("write", out, error))?;
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = out.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let unfinished = parent.join(format!(".{name}.{}.new", std::process::id()));
    let written = write_merged(&inputs, &unfinished).and_then(|()| {
        std::fs::rename(&unfinished, out).map_err(|error| TraceError::io("rename to", out, error))?;
        let made = File::open(parent).and_then(|parent| parent.sync_all());
        made.map_err(|error| TraceError::io("sync", parent, error))
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

fn write_merged(inputs: &Inputs, path: &Path) -> Result<(), TraceError> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let mut writer = TraceWriter::new(file.map_err(|error| TraceError::io("create", path, error))?, path);
    let mut batch = Vec::with_capacity(BATCH);
    let mut push = |batch: &mut Vec<Record>| writer.push(batch).map_err(|error| TraceError::io("write", path, error));
    inputs.each(&mut |record| {
        batch.push(record);
        if batch.len() == BATCH {
            push(&mut batch)?;
            batch.clear();
        }
        Ok(())
    })?;
    push(&mut batch)?;
    writer.into_file(&inputs.tables, inputs.start_unix_ns)
}
