//! Tables on disk as Parquet: columns of whole numbers, floats and texts.

mod pages;
mod read;
mod write;

pub(crate) use read::{Column, TableFile, Take};
pub(crate) use write::{Cells, TableWriter, Written, sync_all};

use parquet::errors::ParquetError;
use std::io;

/// The system's reason where there is one, else the library's.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// What a library says, as a clause: without the name of its kind of error.
fn words(error: &ParquetError) -> String {
    match error {
        ParquetError::General(why) | ParquetError::NYI(why) | ParquetError::EOF(why) => why.clone(),
        other => other.to_string(),
    }
}
