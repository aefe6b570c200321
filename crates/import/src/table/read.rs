//! [`TableFile`]: Parquet from an untrusted source, read batch by batch.

use super::pages::{Checked, PageFile};
use super::words;
use super::write::schema_of;
use parquet::basic::{LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::serialized_reader::SerializedPageReader;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Rows that are read at once.
const BATCH_ROWS: usize = 8192;
/// Longest end of a file (schema, places of the columns) that is believed.
const MAX_METADATA_BYTES: usize = 64 << 20;
/// Most values of lists in one batch.
const MAX_LIST_VALUES: usize = 1 << 20;

/// The values of one column in one batch.
pub(crate) enum Values {
    /// Whole numbers; `true`: the bits are those of unsigned ones.
    Int(Vec<i64>, bool),
    Float(Vec<f64>),
    Text(Vec<ByteArray>),
    /// For each row, how many of the numbers are its.
    Lists(Vec<i64>, Vec<usize>),
}

/// One column of one batch: a value for each row, 0 or empty where there is none.
pub(crate) struct Column {
    pub values: Values,
    /// Which rows have a value; `None`: all.
    pub there: Option<Vec<bool>>,
}

impl Column {
    /// Whether the row has a value.
    pub fn has(&self, row: usize) -> bool {
        self.there.as_ref().is_none_or(|there| there[row])
    }

    /// The number of the row, where it has one and that is not negative.
    pub fn unsigned(&self, row: usize) -> Option<u64> {
        match &self.values {
            Values::Int(values, true) if self.has(row) => Some(values[row] as u64),
            Values::Int(values, false) if self.has(row) => u64::try_from(values[row]).ok(),
            _ => None,
        }
    }

    /// The number of the row, where it has one and that is not above the largest.
    pub fn signed(&self, row: usize) -> Option<i64> {
        match &self.values {
            Values::Int(values, unsigned) if self.has(row) => Some(values[row]).filter(|v| !*unsigned || *v >= 0),
            _ => None,
        }
    }

    /// The number of the row, where it has one.
    pub fn float(&self, row: usize) -> Option<f64> {
        match &self.values {
            Values::Float(values) if self.has(row) => Some(values[row]),
            _ => None,
        }
    }

    /// The text of the row, where it has one.
    pub fn text(&self, row: usize) -> Option<&[u8]> {
        match &self.values {
            Values::Text(values) if self.has(row) => Some(values[row].data()),
            _ => None,
        }
    }

    /// The lists of numbers, one a row; an empty one where there is none.
    pub fn lists(&self) -> impl Iterator<Item = &[i64]> {
        let (values, lengths): (&[i64], &[usize]) = match &self.values {
            Values::Lists(values, lengths) => (values, lengths),
            _ => (&[], &[]),
        };
        lengths.iter().scan(0, |at, &length| {
            *at += length;
            values.get(*at - length..*at)
        })
    }
}

/// Takes some rows: the number of the first, how many they are, and their columns.
pub(crate) type Take<'a, E> = dyn FnMut(u64, usize, &[Column]) -> Result<(), E> + 'a;

/// An opened table. Errors are clauses that follow the file's name and "is damaged" or the like.
pub(crate) struct TableFile {
    file: Arc<File>,
    length: u64,
    metadata: ParquetMetaData,
}

impl TableFile {
    /// Reads the end of the file.
    pub fn open(file: File) -> Result<Self, String> {
        guarded(|| {
            let length = file.metadata().map_err(|error| error.to_string())?.len();
            let mut reader = ParquetMetaDataReader::new();
            // The length of the metadata stands before the last four bytes.
            let mut tail = [0; 8];
            let at = length.checked_sub(8).ok_or("it is too short")?;
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut tail, at).map_err(|error| error.to_string())?;
            let promised = u32::from_le_bytes(tail[..4].try_into().expect("four bytes")) as usize;
            if promised > MAX_METADATA_BYTES {
                return Err(format!("its metadata has {promised} bytes, at most 64 MiB are read"));
            }
            reader.try_parse(&file).map_err(|error| words(&error))?;
            let metadata = reader.finish().map_err(|error| words(&error))?;
            Ok(Self { file: Arc::new(file), length, metadata })
        })
    }

    /// Rows that it promises.
    pub fn rows(&self) -> u64 {
        u64::try_from(self.metadata.file_metadata().num_rows()).unwrap_or(0)
    }

    /// Whether its columns are those of the schema of this text, in order.
    pub fn is_of(&self, schema: &str) -> bool {
        self.metadata.file_metadata().schema_descr().root_schema() == schema_of(schema).as_ref()
    }

    /// Names of the columns in order; one within another has both names with a dot.
    pub fn names(&self) -> Vec<String> {
        let columns = self.metadata.file_metadata().schema_descr().columns();
        columns.iter().map(|column| column.path().string()).collect()
    }

    /// Number of columns.
    pub fn column_count(&self) -> usize {
        self.metadata.file_metadata().schema_descr().num_columns()
    }

    /// Hands over the columns of these numbers, some thousand rows at once: the number of the first row, how many they
    /// are, and the columns in the order asked for. O(values).
    ///
    /// # Errors
    /// How the file is damaged; or what `take` says.
    pub fn read<E: From<String>>(&self, columns: &[usize], take: &mut Take<'_, E>) -> Result<(), E> {
        let descriptor = self.metadata.file_metadata().schema_descr();
        let mut first = 0;
        for (number, group) in self.metadata.row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).map_err(|_| format!("row group {number} has no rows"))?;
            let mut readers = guarded(|| {
                let mut readers = Vec::with_capacity(columns.len());
                for &column in columns {
                    let chunk = group.columns().get(column).ok_or("a row group lacks a column")?;
                    let pages = Arc::new(PageFile { file: Arc::clone(&self.file), length: self.length });
                    let inner = SerializedPageReader::new(pages, chunk, rows as usize, None);
                    let kind = descriptor.column(column);
                    let rows = if kind.max_rep_level() > 0 { MAX_LIST_VALUES as u64 } else { rows };
                    let checked = Checked { inner: inner.map_err(|error| words(&error))?, rows };
                    readers.push(get_column_reader(kind, Box::new(checked)));
                }
                Ok(readers)
            })?;
            let mut left = rows;
            while left > 0 {
                let wanted = left.min(BATCH_ROWS as u64) as usize;
                let batch = guarded(|| {
                    let read = readers.iter_mut().zip(columns).map(|(reader, &column)| {
                        let name = descriptor.column(column);
                        read_column(reader, wanted, unsigned(name.logical_type_ref()))
                            .map_err(|why| format!("column `{}`: {why}", name.name()))
                    });
                    read.collect::<Result<Vec<_>, _>>()
                })?;
                take(first, wanted, &batch)?;
                first += wanted as u64;
                left -= wanted as u64;
            }
        }
        Ok(())
    }
}

/// Runs a step of the library, which may panic on what it does not expect in a file.
fn guarded<T>(step: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| Err("its pages contradict each other".to_owned()))
}

fn unsigned(kind: Option<&LogicalType>) -> bool {
    matches!(kind, Some(LogicalType::Integer(integer)) if !integer.is_signed)
}

fn read_column(reader: &mut ColumnReader, rows: usize, unsigned: bool) -> Result<Column, String> {
    match reader {
        ColumnReader::Int32ColumnReader(reader) => {
            let (values, there, _) = values_of(reader, rows)?;
            let wide = |value: i32| if unsigned { i64::from(value as u32) } else { i64::from(value) };
            Ok(Column { values: Values::Int(values.into_iter().map(wide).collect(), unsigned), there })
        }
        ColumnReader::Int64ColumnReader(reader) => {
            let (values, there, lengths) = values_of(reader, rows)?;
            let values = match lengths {
                Some(lengths) => Values::Lists(values, lengths),
                None => Values::Int(values, unsigned),
            };
            Ok(Column { values, there })
        }
        ColumnReader::DoubleColumnReader(reader) => {
            let (values, there, _) = values_of(reader, rows)?;
            Ok(Column { values: Values::Float(values), there })
        }
        ColumnReader::ByteArrayColumnReader(reader) => {
            let (values, there, _) = values_of(reader, rows)?;
            // One that a damaged dictionary left unset panics here, where that is caught.
            let set = |row: usize| there.as_ref().is_none_or(|there| there[row]);
            values.iter().enumerate().filter(|(row, _)| set(*row)).for_each(|(_, value)| {
                std::hint::black_box(value.data());
            });
            Ok(Column { values: Values::Text(values), there })
        }
        other => Err(format!("values of type {} are not known here", name_of(other))),
    }
}

fn name_of(reader: &ColumnReader) -> Type {
    match reader {
        ColumnReader::BoolColumnReader(_) => Type::BOOLEAN,
        ColumnReader::Int96ColumnReader(_) => Type::INT96,
        ColumnReader::FloatColumnReader(_) => Type::FLOAT,
        ColumnReader::FixedLenByteArrayColumnReader(_) => Type::FIXED_LEN_BYTE_ARRAY,
        ColumnReader::Int32ColumnReader(_) => Type::INT32,
        ColumnReader::Int64ColumnReader(_) => Type::INT64,
        ColumnReader::DoubleColumnReader(_) => Type::DOUBLE,
        ColumnReader::ByteArrayColumnReader(_) => Type::BYTE_ARRAY,
    }
}

/// A value for each row, which rows have one, and the lengths of lists.
type Read<T> = (Vec<T>, Option<Vec<bool>>, Option<Vec<usize>>);

/// The next rows of a column: values for each row, or lists.
fn values_of<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<Read<T::T>, String> {
    let (mut values, mut defined, mut repeated) = (Vec::with_capacity(rows), Vec::new(), Vec::new());
    let mut read = 0;
    while read < rows {
        let step = reader.read_records(rows - read, Some(&mut defined), Some(&mut repeated), &mut values);
        match step.map_err(|error: ParquetError| words(&error))? {
            (0, ..) => return Err(format!("it ends {} rows early", rows - read)),
            (records, ..) => read += records,
        }
        if values.len() > MAX_LIST_VALUES {
            return Err("its lists are too long".to_owned());
        }
    }
    if !repeated.is_empty() {
        // A level of 0 begins a list; one that is not defined is empty.
        let mut lengths: Vec<usize> = Vec::with_capacity(rows);
        for (&repeated, &defined) in repeated.iter().zip(&defined) {
            if repeated == 0 {
                lengths.push(0);
            }
            *lengths.last_mut().ok_or("a list does not begin")? += usize::from(defined > 0);
        }
        return Ok((values, None, Some(lengths)));
    }
    if defined.is_empty() {
        return if values.len() == rows { Ok((values, None, None)) } else { Err("values are missing".to_owned()) };
    }
    let there: Vec<bool> = defined.iter().map(|&level| level > 0).collect();
    if there.len() != rows || there.iter().filter(|&&there| there).count() != values.len() {
        return Err("values are missing".to_owned());
    }
    let mut given = values.into_iter();
    let full = there.iter().map(|&there| if there { given.next().unwrap_or_default() } else { T::T::default() });
    let full = full.collect();
    Ok((full, Some(there), None))
}
