//! `stripewise-bench`: the IOR-like workload of HARL as real processes, with checked data.
//!
//! The processes call the C library's `open`, `pread`, `pwrite` and their like, as any program does: nothing here knows of
//! pools or layouts.

mod content;
mod error;
mod options;
mod process;
mod random;
mod report;
mod shared;
mod workload;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use crate::error::BenchError;
use crate::options::{Options, Verify};
use crate::process::{Ended, Process};
use crate::report::Report;
use crate::shared::Shared;
use crate::workload::Workload;

/// Exit status of a process that had no error of its own.
const ABORTED: i32 = 3;

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(report) => {
            if options.json {
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
            eprintln!("stripewise-bench: {error}");
            ExitCode::from(if matches!(error, BenchError::Usage(_)) { 2 } else { 1 })
        }
    }
}

fn run(options: &Options) -> Result<Report, BenchError> {
    if options.verify == Some(Verify::Inline) && !options.reads() {
        return Err(BenchError::Usage(
            "--verify inline checks timed reads, and --write makes none: leave out one of them".into(),
        ));
    }
    let workload = Workload::new(options)?;
    let shared =
        Shared::new(options.processes, workload.regions.len(), workload.requests_per_process(), options.spin_barrier)?;
    let parent = rustix::process::getpid();
    let mut children = Vec::new();
    let mut failed = 0;
    for rank in 0..options.processes {
        // SAFETY: this process has one thread, so the child may do whatever it may.
        match unsafe { libc::fork() } {
            -1 => {
                let source = io::Error::last_os_error();
                eprintln!("stripewise-bench: cannot start process {rank}: {source}");
                shared.fail();
                failed += 1;
                break;
            }
            0 => {
                let status = child(rank, parent, options, &workload, &shared);
                // SAFETY: ends the child without running the parent's exit handlers a second time.
                unsafe { libc::_exit(status) }
            }
            child => children.push(child),
        }
    }
    failed += wait_for(&children, &shared)?;
    if options.remove {
        for file in 0..workload.files {
            let path = options.path_of(file);
            match std::fs::remove_file(&path) {
                Ok(()) => {}
                Err(error) if failed > 0 && error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(BenchError::Io { rank: 0, call: "unlink", path, offset: 0, bytes: 0, source });
                }
            }
        }
    }
    if failed > 0 {
        return Err(BenchError::Processes { failed, processes: options.processes });
    }
    Ok(Report::new(options, &workload, &shared))
}

/// A process of the run, from fork to its exit status.
fn child(rank: u32, parent: rustix::process::Pid, options: &Options, workload: &Workload, shared: &Shared) -> i32 {
    // Without its parent a process would wait in a barrier for ever.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    if rustix::process::getppid() != Some(parent) {
        return ABORTED;
    }
    match Process::new(rank, options, workload, shared).run() {
        Ok(()) => 0,
        Err(Ended::Aborted) => ABORTED,
        Err(Ended::Failed(error)) => {
            eprintln!("stripewise-bench: {error}");
            shared.fail();
            1
        }
    }
}

/// Waits for all children; the number of those that failed. One that was killed keeps the others from no barrier.
fn wait_for(children: &[libc::pid_t], shared: &Shared) -> Result<u32, BenchError> {
    let mut failed = 0;
    for _ in children {
        let mut status = 0;
        let child = loop {
            // SAFETY: `status` is a valid place for a status; this process has no other children.
            let child = unsafe { libc::waitpid(-1, &raw mut status, 0) };
            if child >= 0 {
                break child;
            }
            let source = io::Error::last_os_error();
            if source.kind() != io::ErrorKind::Interrupted {
                return Err(BenchError::System { action: "wait for the processes", source });
            }
        };
        if libc::WIFSIGNALED(status) {
            eprintln!("stripewise-bench: process with id {child} was killed by signal {}", libc::WTERMSIG(status));
            shared.fail();
            failed += 1;
        } else if !matches!(libc::WEXITSTATUS(status), 0 | ABORTED) {
            shared.fail();
            failed += 1;
        }
    }
    Ok(failed)
}
