//! A run: a workload, how often at once, and by which calls.

use std::path::PathBuf;

use crate::cli::{Cli, Named};
use crate::error::BenchError;
use crate::options::{BenchApi, Common, Verify};
use crate::workload::{PhaseKind, Workload};

/// Requests of all processes in a phase whose times can be kept.
const MOST_REQUESTS: u64 = 1 << 28;

/// What a command line asks for.
#[derive(Debug)]
pub struct BenchRun<'a> {
    /// Options that all workloads have.
    pub common: &'a Common,
    /// What one instance does.
    pub workload: Box<dyn Workload>,
    /// Calls to use.
    pub api: BenchApi,
    /// Whether processes make them together.
    pub collective: bool,
}

impl<'a> BenchRun<'a> {
    /// Works out what the command line asks for.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for options that do not fit each other.
    pub fn new(cli: &'a Cli) -> Result<Self, BenchError> {
        let usage = |message: String| Err(BenchError::Usage(message));
        let common = cli.workload.common();
        if common.verify == Some(Verify::Inline) && !common.reads() {
            return usage("--verify inline checks timed reads, and --write makes none: leave out one of them".into());
        }
        let workload = cli.workload.workload()?;
        let (usual_api, usually_collective) = workload.usual_calls();
        let api = common.api.unwrap_or(usual_api);
        let mpi = api == BenchApi::MpiIo;
        if common.collective && !mpi {
            return usage("--collective needs --api mpi-io".into());
        }
        if !common.hints.is_empty() && !mpi {
            return usage("--hint needs --api mpi-io".into());
        }
        if common.direct && mpi {
            return usage("--direct is for --api pread and read; MPI libraries have hints of their own for it".into());
        }
        let collective = mpi && (common.collective || usually_collective && !common.independent);
        if collective && workload.files() > 1 {
            return usage("--collective needs a shared file: leave out --file-per-process".into());
        }
        let total = u64::from(common.instances) * u64::from(workload.processes());
        if total > 1 << 16 {
            return usage(format!("{total} processes are more than 65536: lower --processes or --instances"));
        }
        let requests = workload.requests_per_process().saturating_mul(total);
        if requests > MOST_REQUESTS {
            return usage(format!(
                "{requests} requests per phase are more than a run keeps the times of ({MOST_REQUESTS}): ask for less{}",
                if matches!(cli.workload, Named::Ior(_)) { ", as with --count" } else { "" }
            ));
        }
        let end = workload.coverage().end;
        if let Some(distance) = common.distance {
            if distance < end {
                return usage(format!(
                    "--distance {distance} is less than an instance's {end} bytes: they would overlap"
                ));
            }
            let last = distance.checked_mul(u64::from(common.instances) - 1).and_then(|begin| begin.checked_add(end));
            if last.is_none_or(|last| last > i64::MAX as u64) {
                return usage(format!("--distance {distance}: the last instance would end above 2^63-1"));
            }
        }
        Ok(Self { common, workload, api, collective })
    }

    /// Processes of all instances.
    pub fn processes(&self) -> u32 {
        self.common.instances * self.workload.processes()
    }

    /// The instance of a process, and its rank in it.
    pub fn place_of(&self, rank: u32) -> (u32, u32) {
        (rank / self.workload.processes(), rank % self.workload.processes())
    }

    /// The process of the same instance whose data a process uses in a phase: its own, or for reads that of another rank.
    pub fn owner(&self, phase: PhaseKind, local_rank: u32) -> u32 {
        match phase {
            PhaseKind::Write => local_rank,
            PhaseKind::Read => (u64::from(local_rank) + u64::from(self.common.read_shift))
                .rem_euclid(u64::from(self.workload.processes())) as u32,
        }
    }

    /// Where the data of an instance begins in its files.
    pub fn base(&self, instance: u32) -> u64 {
        self.common.distance.unwrap_or(0) * u64::from(instance)
    }

    /// The number of a file of an instance among all files of the run: which data it holds.
    pub fn file_number(&self, instance: u32, file: u32) -> u32 {
        if self.common.distance.is_some() { file } else { instance * self.workload.files() + file }
    }

    /// Files of the run.
    pub fn files(&self) -> u32 {
        let sets = if self.common.distance.is_some() { 1 } else { self.common.instances };
        sets * self.workload.files()
    }

    /// The path of a file by its number: FILE, or FILE.0, FILE.1, ... (instance, process, or both) where there are several.
    pub fn path(&self, number: u32) -> PathBuf {
        let mut name = self.common.file.clone().into_os_string();
        let each = self.workload.files();
        if self.files() > each {
            name.push(format!(".{}", number / each));
        }
        if each > 1 {
            name.push(format!(".{}", number % each));
        }
        name.into()
    }

    /// The end of the last instance's data in the longest file.
    pub fn end(&self) -> u64 {
        self.base(self.common.instances - 1) + self.workload.coverage().end
    }
}
