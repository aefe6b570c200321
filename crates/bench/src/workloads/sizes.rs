//! How many requests a file has, and where: what the workloads share.

use crate::error::BenchError;
use crate::workload::BenchRequest;

/// Bytes of all files together that a run may address.
const LARGEST_FILE: u64 = i64::MAX as u64;

/// `count` requests of `bytes` each, one after the other in a process's view, from `offset` on.
pub fn in_a_row(offset: u64, bytes: u64, count: u64) -> Vec<BenchRequest> {
    (0..count).map(|number| BenchRequest { offset: offset + number * bytes, bytes, group: 0, generation: 1 }).collect()
}

/// The product, or a complaint that a file cannot be that long.
pub fn file_bytes(factors: &[u64]) -> Result<u64, BenchError> {
    factors
        .iter()
        .try_fold(1_u64, |product, factor| product.checked_mul(*factor))
        .filter(|product| *product <= LARGEST_FILE)
        .ok_or_else(|| BenchError::Usage("the file would end above 2^63-1: ask for less".into()))
}

/// How many requests of `bytes` make up a file of `file_size` with `processes` processes of as many each.
pub fn requests_in(file_size: u64, bytes: u64, processes: u32) -> Result<u64, BenchError> {
    let round = file_bytes(&[bytes, u64::from(processes)])?;
    if file_size < round {
        return Err(BenchError::Usage(format!(
            "--file-size {file_size} is too small for one request of {bytes} bytes from each of {processes} processes; \
             make it at least {round}"
        )));
    }
    Ok(file_size / round)
}
