//! The workloads, a file each.

pub mod btio;
pub mod hpio;
pub mod ior;
pub mod loops;
pub mod mpi_io_test;
pub mod mpi_tile_io;
pub mod noncontig;
mod sizes;

#[cfg(test)]
pub mod tests {
    use crate::cli::Cli;
    use crate::error::BenchError;
    use crate::workload::Workload;

    /// The workload of a command line.
    pub fn workload(arguments: &str) -> Box<dyn Workload> {
        refusal(arguments).unwrap()
    }

    /// The workload of a command line, or why there is none.
    pub fn refusal(arguments: &str) -> Result<Box<dyn Workload>, BenchError> {
        let words = ["stripewise-bench"].into_iter().chain(arguments.split_whitespace());
        Cli::read(words.map(Into::into)).workload.workload()
    }
}
