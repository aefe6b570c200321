//! `stripewise-bench`: the I/O workloads of the literature as real processes, with checked data.
//!
//! The processes call the C library's `open`, `pread`, `pwrite` and their like, or MPI-IO, as any program does: nothing here
//! knows of pools or layouts.

mod cli;
mod content;
mod error;
mod forked;
mod mpi;
mod options;
mod posix;
mod process;
mod random;
mod report;
mod run;
mod shared;
mod view;
mod workload;
mod workloads;

use std::io::Write;
use std::process::ExitCode;

use crate::cli::Cli;
use crate::error::BenchError;
use crate::options::BenchApi;
use crate::report::BenchReport;
use crate::run::BenchRun;

fn main() -> ExitCode {
    let cli = Cli::read(std::env::args_os());
    match report(&cli) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(report)) => {
            if cli.workload.common().json {
                match serde_json::to_string_pretty(&report) {
                    Ok(json) => println!("{json}"),
                    Err(error) => {
                        eprintln!("stripewise-bench: {error}");
                        return ExitCode::FAILURE;
                    }
                }
            } else {
                print!("{report}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            // In one piece: mpiexec may end this process between two.
            let _ = std::io::stderr().write_all(format!("stripewise-bench: {error}\n").as_bytes());
            ExitCode::from(if matches!(error, BenchError::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// Does what the command line asks for. All but the first of MPI's processes have no report.
fn report(cli: &Cli) -> Result<Option<BenchReport>, BenchError> {
    let run = BenchRun::new(cli)?;
    if run.api != BenchApi::MpiIo {
        return Ok(Some(BenchReport::new(&run, &forked::run(&run)?, None)));
    }
    if mpi::launch::is_rank() { mpi::rank::run(&run) } else { Err(mpi::launch::start(&run)) }
}
