//! The workloads, a file each.

pub mod btio;
pub mod hpio;
pub mod ior;
pub mod loops;
pub mod mpi_io_test;
pub mod mpi_tile_io;
pub mod noncontig;

use crate::error::BenchError;
use crate::options::Named;
use crate::workload::{BenchRequest, Workload};

/// Bytes of all files together that a run may address.
const LARGEST_FILE: u64 = i64::MAX as u64;

/// Works out what a command line asks for.
///
/// # Errors
/// [`BenchError::Usage`] for options that do not fit each other.
pub fn new(named: &Named) -> Result<Box<dyn Workload>, BenchError> {
    let workload: Box<dyn Workload> = match named {
        Named::Ior(options) => Box::new(ior::Ior::new(options)?),
        Named::Btio(options) => Box::new(btio::Btio::new(options)?),
        Named::MpiTileIo(options) => Box::new(mpi_tile_io::MpiTileIo::new(options)?),
        Named::MpiIoTest(options) => Box::new(mpi_io_test::MpiIoTest::new(options)?),
        Named::Noncontig(options) => Box::new(noncontig::Noncontig::new(options)?),
        Named::Hpio(options) => Box::new(hpio::Hpio::new(options)?),
        Named::Song(options) => Box::new(loops::Loop::song(options)?),
        Named::LanlApp1(options) => Box::new(loops::Loop::lanl(options)?),
    };
    Ok(workload)
}

/// `count` requests of `bytes` each, one after the other in a process's view, from `offset` on.
fn in_a_row(offset: u64, bytes: u64, count: u64) -> Vec<BenchRequest> {
    (0..count).map(|number| BenchRequest { offset: offset + number * bytes, bytes, group: 0, generation: 1 }).collect()
}

/// The product, or a complaint that a file cannot be that long.
fn file_bytes(factors: &[u64]) -> Result<u64, BenchError> {
    factors
        .iter()
        .try_fold(1_u64, |product, factor| product.checked_mul(*factor))
        .filter(|product| *product <= LARGEST_FILE)
        .ok_or_else(|| BenchError::Usage("the file would end above 2^63-1: ask for less".into()))
}

/// How many requests of `bytes` make up a file of `file_size` with `processes` processes of as many each.
fn requests_in(file_size: u64, bytes: u64, processes: u32) -> Result<u64, BenchError> {
    let round = file_bytes(&[bytes, u64::from(processes)])?;
    if file_size < round {
        return Err(BenchError::Usage(format!(
            "--file-size {file_size} is too small for one request of {bytes} bytes from each of {processes} processes; \
             make it at least {round}"
        )));
    }
    Ok(file_size / round)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::options::Cli;

    /// The workload of a command line.
    pub fn workload(arguments: &str) -> Box<dyn Workload> {
        refusal(arguments).unwrap()
    }

    /// The workload of a command line, or why there is none.
    pub fn refusal(arguments: &str) -> Result<Box<dyn Workload>, BenchError> {
        let words = ["stripewise-bench"].into_iter().chain(arguments.split_whitespace());
        new(&Cli::read(words.map(Into::into)).workload)
    }
}
