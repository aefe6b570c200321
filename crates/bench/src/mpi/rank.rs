//! A rank: what a process started by `mpiexec` has around it.

use std::cell::RefCell;
use std::ffi::CString;
use std::io::Write as _;
use std::time::Duration;

use super::file::MpiFile;
use super::launch;
use super::library::{Library, MpiHandle};
use crate::error::BenchError;
use crate::forked::remove_files;
use crate::process::{BenchFile, BenchProcess, Ended, GroupTimes, Measured, Opening, ProcessWorld};
use crate::random::mix;
use crate::report::{BenchReport, Figures};
use crate::run::BenchRun;
use crate::workload::PhaseKind;

/// The rank's surroundings.
struct Ranks<'a> {
    library: &'a Library,
    run: &'a BenchRun<'a>,
    rank: u32,
    /// The processes of the own instance.
    instance: MpiHandle,
    hints: Vec<(CString, CString)>,
    /// At rank 0: what each process measured in each phase.
    gathered: RefCell<[Vec<u64>; 2]>,
}

/// Time for `mpiexec` to pass on an error message.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Words of a process's figures before its spans: which machine it runs on, and when it was ready.
const HEAD: usize = 2;

impl Ranks<'_> {
    fn said<T>(&self, call: &'static str, outcome: Result<T, String>) -> Result<T, BenchError> {
        outcome.map_err(|message| BenchError::Mpi { rank: self.rank, call, place: String::new(), message })
    }

    fn wait(&self, comm: MpiHandle) -> Result<(), Ended> {
        let mut looks = 0;
        // There may be more processes than cores: those that wait leave the cores to those that work.
        let mut rest = || {
            looks += 1;
            match looks {
                ..20 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(if looks < 200 { 20 } else { 500 })),
            }
        };
        let waited = self.library.barrier(comm, (!self.run.common.spin_barrier).then_some(&mut rest));
        Ok(self.said("MPI_Barrier", waited)?)
    }
}

impl ProcessWorld for Ranks<'_> {
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn BenchFile + '_>, BenchError> {
        let comm = if opening.together { self.instance } else { self.library.alone() };
        let collective = self.run.collective && opening.together;
        Ok(Box::new(MpiFile::open(self.library, (comm, self.rank), opening, &self.hints, collective)?))
    }

    fn wait_for_all(&self) -> Result<(), Ended> {
        self.wait(self.library.world())
    }

    fn wait_for_instance(&self) -> Result<(), Ended> {
        self.wait(self.instance)
    }

    /// One that failed ends all others by itself.
    fn has_failed(&self) -> bool {
        false
    }

    fn keep(&self, phase: PhaseKind, measured: &Measured) -> Result<(), BenchError> {
        let mut words = vec![machine(), measured.start_ns];
        words.extend(measured.spans.iter().flat_map(|span| [span.first_ns, span.last_ns]));
        words.extend(&measured.times_ns);
        let all = self.library.gather(&words, self.rank, self.run.processes());
        self.gathered.borrow_mut()[phase as usize] = self.said("MPI_Gather", all)?;
        Ok(())
    }
}

/// A number that two processes have in common when their clocks are the same.
fn machine() -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.iter().fold(0, |state, byte| mix(state ^ u64::from(*byte)))
}

/// What all ranks measured, at rank 0.
struct Gathered {
    phases: [Vec<u64>; 2],
    groups: usize,
    processes: usize,
    verified_bytes: u64,
}

impl Gathered {
    fn of(&self, phase: PhaseKind, rank: u32) -> &[u64] {
        let words = &self.phases[phase as usize];
        let each = words.len() / self.processes;
        &words[rank as usize * each..(rank as usize + 1) * each]
    }
}

impl Figures for Gathered {
    fn verified_bytes(&self) -> u64 {
        self.verified_bytes
    }

    fn time_ns(&self, phase: PhaseKind, rank: u32, request: usize) -> u64 {
        self.of(phase, rank)[HEAD + 2 * self.groups + request]
    }

    fn span(&self, phase: PhaseKind, rank: u32, group: usize) -> GroupTimes {
        let words = self.of(phase, rank);
        // Clocks of different machines have nothing in common but the barrier that the phase began with.
        let one_clock = (0..self.processes).all(|other| self.of(phase, other as u32)[0] == words[0]);
        let origin = if one_clock { 0 } else { words[1] };
        let at = HEAD + 2 * group;
        GroupTimes { first_ns: words[at].saturating_sub(origin), last_ns: words[at + 1].saturating_sub(origin) }
    }
}

/// Runs this rank's part. The first rank has the report.
///
/// # Errors
/// [`BenchError`] when there is no MPI library, or the ranks are not those of the run. A rank that fails later says why
/// and ends all of them.
pub fn run(run: &BenchRun<'_>) -> Result<Option<BenchReport>, BenchError> {
    let library = launch::library(run)?;
    let no_mpi = |call: &str, message: String| BenchError::NoMpi(format!("{call} of {}: {message}", library.version));
    library.init().map_err(|message| no_mpi("MPI_Init", message))?;
    let (rank, size) = library.place(library.world()).map_err(|message| no_mpi("MPI_Comm_rank", message))?;
    if size != run.processes() {
        if !launch::is_first() {
            // The first says why: mpiexec kills it as soon as another one ends.
            std::thread::sleep(LAST_WORDS);
            std::process::exit(1);
        }
        return Err(BenchError::Usage(format!(
            "MPI has {size} ranks and the run {} processes (--instances times --processes): start as many; if you did, \
             mpiexec and the MPI library ({}) are not of the same installation, so name them by --mpiexec and --mpi-library",
            run.processes(),
            library.version
        )));
    }
    let outcome = part(run, &library, rank);
    let report = match outcome {
        Ok(report) => report,
        Err(Ended::Failed(error)) => {
            // In one piece, and with time for mpiexec to pass it on: it drops what comes after an abort.
            let _ = std::io::stderr().write_all(format!("stripewise-bench: {error}\n").as_bytes());
            std::thread::sleep(LAST_WORDS);
            library.abort();
            std::process::exit(1);
        }
        Err(Ended::Aborted) => std::process::exit(1),
    };
    library.finalize().map_err(|message| no_mpi("MPI_Finalize", message))?;
    Ok(report)
}

fn part(run: &BenchRun<'_>, library: &Library, rank: u32) -> Result<Option<BenchReport>, Ended> {
    let (instance, local_rank) = run.place_of(rank);
    let text = |text: &str| CString::new(text).map_err(|_| BenchError::Usage("a hint has a NUL byte".into()));
    let mut hints = Vec::new();
    for (key, value) in &run.common.hints {
        hints.push((text(key)?, text(value)?));
    }
    let mut ranks = Ranks { library, run, rank, instance: library.world(), hints, gathered: RefCell::default() };
    if run.common.instances > 1 {
        let split = library.split(library.world(), instance, local_rank);
        ranks.instance = ranks.said("MPI_Comm_split", split)?;
    }
    let verified_bytes = BenchProcess::new(rank, run, &ranks).run()?;
    let all = library.gather(&[verified_bytes], rank, run.processes());
    let all = ranks.said("MPI_Gather", all)?;
    if rank > 0 {
        return Ok(None);
    }
    // All ranks have closed their files: they were in the gathering.
    if run.common.remove {
        remove_files(run, false)?;
    }
    let figures = Gathered {
        phases: ranks.gathered.into_inner(),
        groups: run.workload.groups().len(),
        processes: run.processes() as usize,
        verified_bytes: all.iter().sum(),
    };
    Ok(Some(BenchReport::new(run, &figures, Some(library.version.clone()))))
}
