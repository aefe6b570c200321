//! Runs whose processes are made here, by fork.

use std::io;

use crate::error::BenchError;
use crate::posix::PosixFile;
use crate::process::{BenchFile, BenchProcess, Ended, Measured, Opening, ProcessWorld};
use crate::run::BenchRun;
use crate::shared::{Aborted, SharedMemory};
use crate::workload::PhaseKind;

/// Exit status of a process that had no error of its own.
const ABORTED: i32 = 3;

impl From<Aborted> for Ended {
    fn from(_: Aborted) -> Self {
        Self::Aborted
    }
}

/// What a forked process has around it.
struct Fork<'a> {
    run: &'a BenchRun<'a>,
    shared: &'a SharedMemory,
    rank: u32,
}

impl ProcessWorld for Fork<'_> {
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn BenchFile + '_>, BenchError> {
        let direct = self.run.common.direct;
        Ok(Box::new(PosixFile::open(opening.path, opening.phase, self.rank, self.run.api, direct)?))
    }

    fn wait_for_all(&self) -> Result<(), Ended> {
        Ok(self.shared.wait_for_all()?)
    }

    fn wait_for_instance(&self) -> Result<(), Ended> {
        Ok(self.shared.wait_for_instance(self.run.place_of(self.rank).0)?)
    }

    fn has_failed(&self) -> bool {
        self.shared.has_failed()
    }

    fn keep(&self, phase: PhaseKind, measured: &Measured) -> Result<(), BenchError> {
        self.shared.keep(phase, self.rank, measured);
        Ok(())
    }
}

/// Makes the processes and waits for them. What they measured is in the memory returned.
///
/// # Errors
/// [`BenchError`] when a process failed, which each says itself, or could not be made.
pub fn run(run: &BenchRun<'_>) -> Result<SharedMemory, BenchError> {
    let shared = SharedMemory::new(run)?;
    let parent = rustix::process::getpid();
    let mut children = Vec::new();
    let mut failed = 0;
    for rank in 0..run.processes() {
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
                let status = child(rank, parent, run, &shared);
                // SAFETY: ends the child without running the parent's exit handlers a second time.
                unsafe { libc::_exit(status) }
            }
            child => children.push(child),
        }
    }
    failed += wait_for(&children, &shared)?;
    if run.common.remove {
        remove_files(run, failed > 0)?;
    }
    if failed > 0 {
        return Err(BenchError::Processes { failed, processes: run.processes() });
    }
    Ok(shared)
}

/// Removes the files of a run.
///
/// # Errors
/// [`BenchError::Io`] for one that cannot be removed; one that is not there is an error unless it `may_be_missing`.
pub fn remove_files(run: &BenchRun<'_>, may_be_missing: bool) -> Result<(), BenchError> {
    for file in 0..run.files() {
        let path = run.path(file);
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if may_be_missing && error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(BenchError::Io { rank: 0, call: "unlink", path, offset: 0, bytes: 0, source });
            }
        }
    }
    Ok(())
}

/// A process of the run, from fork to its exit status.
fn child(rank: u32, parent: rustix::process::Pid, run: &BenchRun<'_>, shared: &SharedMemory) -> i32 {
    // Without its parent a process would wait in a barrier for ever.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    if rustix::process::getppid() != Some(parent) {
        return ABORTED;
    }
    match BenchProcess::new(rank, run, &Fork { run, shared, rank }).run() {
        Ok(verified_bytes) => {
            shared.add_verified(verified_bytes);
            0
        }
        Err(Ended::Aborted) => ABORTED,
        Err(Ended::Failed(error)) => {
            eprintln!("stripewise-bench: {error}");
            shared.fail();
            1
        }
    }
}

/// Waits for all children; the number of those that failed. One that was killed keeps the others from no barrier.
fn wait_for(children: &[libc::pid_t], shared: &SharedMemory) -> Result<u32, BenchError> {
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
