//! Parquet with the columns of our schema (`stripewise show --parquet`), or some of them: `file`, `op`, `offset` and
//! `size` are needed.

use crate::Importer;
use crate::error::ImportError;
use crate::log::Log;
use crate::out::Out;
use crate::rows::{RowBuilder, TableCell};
use crate::schema::COLUMNS;
use crate::sink::{Sink, Summary};
use crate::table::{Column, TableFile};
use std::fs::File;

/// Reads tables that other programs wrote.
pub struct Parquet;

/// Why reading ended: the table, or what receives the rows.
enum Stop {
    Damaged(String),
    Import(ImportError),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Stop::Damaged(why)
    }
}

impl From<ImportError> for Stop {
    fn from(error: ImportError) -> Self {
        Stop::Import(error)
    }
}

impl Importer for Parquet {
    fn name(&self) -> &'static str {
        "Parquet"
    }

    fn recognises(&self, start: &[u8]) -> bool {
        start.starts_with(b"PAR1")
    }

    /// O(values of the columns that are used); memory for some thousand rows and a page of each column.
    fn import(&self, log: &Log, sink: &mut dyn Sink) -> Result<Summary, ImportError> {
        let damaged = |why: String| ImportError::damaged(log.path(), self.name(), 0, why);
        let file = File::open(log.path()).map_err(|error| ImportError::io("open", log.path(), error))?;
        let table = TableFile::open(file).map_err(damaged)?;
        let mut out = Out::new(log, sink, self.name());
        let names = table.names();
        let mut rows = RowBuilder::new(&mut out, log, self.name(), names.iter().map(|name| name.as_bytes()))?;
        let places = *rows.places();
        let used: Vec<usize> = places.into_iter().flatten().collect();
        // Where each of our columns is among those that are read.
        let read_as: [Option<usize>; COLUMNS.len()] =
            places.map(|place| used.iter().position(|used| Some(*used) == place));
        let total = table.rows();
        let read = table.read(&used, &mut |first, count, columns| -> Result<(), Stop> {
            for index in 0..count {
                let cell =
                    |column: usize| read_as[column].map_or(TableCell::Nothing, |at| cell_of(&columns[at], index));
                rows.row(&mut out, &cell, &|| format!("row {}", first + index as u64 + 1))?;
            }
            let done = (first + count as u64) as f64 / total.max(1) as f64;
            out.progress((log.length() as f64 * done) as u64);
            Ok(())
        });
        match read {
            Ok(()) => {}
            Err(Stop::Damaged(why)) => return Err(damaged(why)),
            Err(Stop::Import(error)) => return Err(error),
        }
        rows.finish(&mut out, log, self.name())?;
        out.finish()
    }
}

fn cell_of(column: &Column, row: usize) -> TableCell<'_> {
    if !column.has(row) {
        return TableCell::Nothing;
    }
    // Libraries without integers that may be missing write floats in their place.
    let whole = |value: f64| (value.fract() == 0.0 && (0.0..9e15).contains(&value)).then_some(value as u64);
    let number = column.unsigned(row).or_else(|| column.float(row).and_then(whole));
    match (column.text(row), number) {
        (Some(text), _) => TableCell::Text(text),
        (None, Some(number)) => TableCell::Number(number),
        (None, None) if column.float(row).is_some_and(f64::is_nan) => TableCell::Nothing,
        (None, None) => TableCell::Other,
    }
}
