//! [`TableWriter`]: columns to a Parquet file, summed as they are written.

use super::io_error;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{SchemaDescriptor, TypePtr};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The values of one column for some rows.
pub(crate) enum Cells<'a> {
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Text(&'a [ByteArray]),
    /// Values of the rows that have one, and for each row 1 where it has, else 0.
    OptionalInt32(&'a [i32], &'a [i16]),
    OptionalInt64(&'a [i64], &'a [i16]),
    OptionalDouble(&'a [f64], &'a [i16]),
    OptionalBytes(&'a [ByteArray], &'a [i16]),
    /// Values of all lists, and the definition and repetition levels of each (0, 0 is an empty list).
    Int64Lists(&'a [i64], &'a [i16], &'a [i16]),
}

/// A finished table: what a reader checks it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    pub rows: u64,
    pub bytes: u64,
    pub crc32c: u32,
}

pub(crate) struct TableWriter {
    writer: SerializedFileWriter<Summed>,
    rows: u64,
}

/// The schema of this text, which is one of ours.
pub(super) fn schema_of(text: &str) -> TypePtr {
    Arc::new(parse_message_type(text).expect("our own schemas are well-formed"))
}

impl TableWriter {
    /// Creates the file, which must not exist. Texts get dictionaries, numbers the differences of neighbours; packed
    /// with Snappy, which cannot blow up a small file to a large one.
    pub fn create(path: &Path, schema: &str) -> io::Result<Self> {
        let schema = schema_of(schema);
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("stripewise ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk);
        for column in SchemaDescriptor::new(Arc::clone(&schema)).columns() {
            if matches!(column.physical_type(), Type::INT32 | Type::INT64) {
                properties = properties
                    .set_column_dictionary_enabled(column.path().clone(), false)
                    .set_column_encoding(column.path().clone(), Encoding::DELTA_BINARY_PACKED);
            }
        }
        let file = File::options().write(true).create_new(true).open(path)?;
        let sums = Summed { file, bytes: 0, crc32c: 0 };
        let writer = SerializedFileWriter::new(sums, schema, Arc::new(properties.build())).map_err(io_error)?;
        Ok(Self { writer, rows: 0 })
    }

    /// Writes some rows, one [`Cells`] a column in order of the schema, as one row group.
    pub fn rows(&mut self, rows: usize, columns: &[Cells<'_>]) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(io_error)?;
        for cells in columns {
            let mut column = group.next_column().map_err(io_error)?.expect("no more columns than the schema has");
            match (column.untyped(), cells) {
                (ColumnWriter::Int32ColumnWriter(to), Cells::Int32(values)) => to.write_batch(values, None, None),
                (ColumnWriter::Int64ColumnWriter(to), Cells::Int64(values)) => to.write_batch(values, None, None),
                (ColumnWriter::ByteArrayColumnWriter(to), Cells::Text(values)) => to.write_batch(values, None, None),
                (ColumnWriter::Int32ColumnWriter(to), Cells::OptionalInt32(values, there)) => {
                    to.write_batch(values, Some(there), None)
                }
                (ColumnWriter::Int64ColumnWriter(to), Cells::OptionalInt64(values, there)) => {
                    to.write_batch(values, Some(there), None)
                }
                (ColumnWriter::DoubleColumnWriter(to), Cells::OptionalDouble(values, there)) => {
                    to.write_batch(values, Some(there), None)
                }
                (ColumnWriter::ByteArrayColumnWriter(to), Cells::OptionalBytes(values, there)) => {
                    to.write_batch(values, Some(there), None)
                }
                (ColumnWriter::Int64ColumnWriter(to), Cells::Int64Lists(values, defined, repeated)) => {
                    to.write_batch(values, Some(defined), Some(repeated))
                }
                _ => unreachable!("cells of the schema's type"),
            }
            .map_err(io_error)?;
            column.close().map_err(io_error)?;
        }
        group.close().map_err(io_error)?;
        self.rows += rows as u64;
        Ok(())
    }

    /// Writes the end of the file. It is to be made durable yet: see [`sync_all`].
    pub fn finish(self) -> io::Result<Written> {
        let rows = self.rows;
        let sums = self.writer.into_inner().map_err(io_error)?;
        Ok(Written { rows, bytes: sums.bytes, crc32c: sums.crc32c })
    }
}

/// A file, and the length and sum of what was written to it.
struct Summed {
    file: File,
    bytes: u64,
    crc32c: u32,
}

impl Write for Summed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.file.write(buffer)?;
        self.bytes += count as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &buffer[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Makes files durable, some at once, which a disk does in hardly more time than one: a full disk or quota that the
/// system tells late is told here.
pub(crate) fn sync_all(paths: &[PathBuf]) -> io::Result<()> {
    const AT_ONCE: usize = 8;
    let sync = |paths: &[PathBuf]| paths.iter().try_for_each(|path| File::open(path)?.sync_all());
    std::thread::scope(|scope| {
        let parts = paths.chunks(paths.len().div_ceil(AT_ONCE).max(1));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || sync(part))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("syncing does not panic"))
    })
}
