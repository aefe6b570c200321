//! The one schema of rows: what `show --csv`, `show --parquet` and a data set write, and what is read back.

use crate::table::{Cells, TableWriter};
use parquet::data_type::ByteArray;
use std::io::{self, Write};
use stripewise_trace::{Api, Operation, Record, Trace};

/// As a table of Parquet. The columns of [`COLUMNS`].
pub(crate) const REQUESTS: &str = "message requests {
    required binary program (STRING);
    required int32 rank (INTEGER(32,false));
    required int32 pid (INTEGER(32,false));
    required int32 tid (INTEGER(32,false));
    required binary file (STRING);
    required binary api (STRING);
    required binary op (STRING);
    required int64 offset (INTEGER(64,false));
    required int64 size (INTEGER(64,false));
    required int64 start_ns (INTEGER(64,false));
    required int64 end_ns (INTEGER(64,false));
    required int32 flags (INTEGER(16,false));
}";

/// Names of the columns in order.
pub(crate) const COLUMNS: [&str; 12] =
    ["program", "rank", "pid", "tid", "file", "api", "op", "offset", "size", "start_ns", "end_ns", "flags"];

/// Rows that are written as one row group.
pub(crate) const GROUP_ROWS: usize = 1 << 17;

/// Writes rows of a trace as such a table. Holds the texts and the columns of one row group.
pub(crate) struct RowWriter {
    files: Vec<ByteArray>,
    programs: Vec<ByteArray>,
    apis: Vec<ByteArray>,
    ops: Vec<ByteArray>,
    texts: [Vec<ByteArray>; 4],
    words: [Vec<i32>; 4],
    longs: [Vec<i64>; 4],
}

impl RowWriter {
    pub fn new(trace: &Trace) -> Self {
        let text = |text: &str| ByteArray::from(text);
        // Numbers count from 1.
        let numbered = |names: Vec<&str>| std::iter::once("").chain(names).map(text).collect();
        RowWriter {
            files: trace.files().iter().map(|file| text(&file.path.to_string_lossy())).collect(),
            programs: trace.programs().iter().map(|program| text(&program.name)).collect(),
            apis: numbered(Api::ALL.iter().map(|api| api.name()).collect()),
            ops: numbered(Operation::ALL.iter().map(|op| op.name()).collect()),
            texts: Default::default(),
            words: Default::default(),
            longs: Default::default(),
        }
    }

    /// Writes rows, at most [`GROUP_ROWS`].
    pub fn rows(&mut self, table: &mut TableWriter, rows: &[Record]) -> io::Result<()> {
        fn filled<T>(column: &mut Vec<T>, values: impl Iterator<Item = T>) {
            column.clear();
            column.extend(values);
        }
        let [programs, files, apis, ops] = &mut self.texts;
        filled(programs, rows.iter().map(|row| self.programs[row.program as usize].clone()));
        filled(files, rows.iter().map(|row| self.files[row.file as usize].clone()));
        filled(apis, rows.iter().map(|row| self.apis[usize::from(row.api)].clone()));
        filled(ops, rows.iter().map(|row| self.ops[usize::from(row.op)].clone()));
        let [ranks, pids, tids, flags] = &mut self.words;
        filled(ranks, rows.iter().map(|row| row.rank as i32));
        filled(pids, rows.iter().map(|row| row.pid as i32));
        filled(tids, rows.iter().map(|row| row.tid as i32));
        filled(flags, rows.iter().map(|row| i32::from(row.flags)));
        let [offsets, sizes, starts, ends] = &mut self.longs;
        filled(offsets, rows.iter().map(|row| row.offset as i64));
        filled(sizes, rows.iter().map(|row| row.size as i64));
        filled(starts, rows.iter().map(|row| row.start_ns as i64));
        filled(ends, rows.iter().map(|row| row.end_ns as i64));
        table.rows(
            rows.len(),
            &[
                Cells::Text(programs),
                Cells::Int32(ranks),
                Cells::Int32(pids),
                Cells::Int32(tids),
                Cells::Text(files),
                Cells::Text(apis),
                Cells::Text(ops),
                Cells::Int64(offsets),
                Cells::Int64(sizes),
                Cells::Int64(starts),
                Cells::Int64(ends),
                Cells::Int32(flags),
            ],
        )
    }
}

/// Writes all rows of a trace as CSV, a line with the columns' names first. O(rows), in memory for one line.
///
/// # Errors
/// The system's reason.
pub fn write_csv(trace: &Trace, out: impl Write) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 18, out);
    let quoted = |text: &str| {
        if text.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.to_owned()
        }
    };
    let files: Vec<String> = trace.files().iter().map(|file| quoted(&file.path.to_string_lossy())).collect();
    let programs: Vec<String> = trace.programs().iter().map(|program| quoted(&program.name)).collect();
    writeln!(out, "{}", COLUMNS.join(","))?;
    for row in trace.windows(GROUP_ROWS).flatten() {
        let Record { offset, size, start_ns, end_ns, rank, pid, tid, flags, .. } = row;
        let (program, file) = (&programs[row.program as usize], &files[row.file as usize]);
        let api = row.api().map_or("", Api::name);
        let op = row.operation().map_or("", Operation::name);
        writeln!(out, "{program},{rank},{pid},{tid},{file},{api},{op},{offset},{size},{start_ns},{end_ns},{flags}")?;
    }
    out.flush()
}
