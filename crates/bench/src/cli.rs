//! The command line, declared once: the workloads by name.

use clap::{CommandFactory, Parser, Subcommand};

use crate::error::BenchError;
use crate::options::Common;
use crate::workload::Workload;
use crate::workloads::btio::{Btio, BtioOptions};
use crate::workloads::hpio::{Hpio, HpioOptions};
use crate::workloads::ior::{Ior, IorOptions};
use crate::workloads::loops::{LanlOptions, Loop, SongOptions};
use crate::workloads::mpi_io_test::{MpiIoTest, MpiIoTestOptions};
use crate::workloads::mpi_tile_io::{MpiTileIo, MpiTileIoOptions};
use crate::workloads::noncontig::{Noncontig, NoncontigOptions};

const EXAMPLES: &str = "\
Without the name of a workload it is ior. `stripewise-bench WORKLOAD --help` says what a workload takes.
Those through MPI-IO are started by the first `mpiexec` of PATH, in the MPI library beside it; under an
mpiexec of your own they run as its ranks.

Examples:
  The paper's run (HARL, Section IV): 16 processes, each at random offsets in its own sixteenth of one file
    stripewise-bench /data/scratch/ior.dat --processes 16 --request-size 512KiB --file-size 16GiB

  Reads alone of what an earlier run wrote, each byte checked as it arrives
    stripewise-bench /data/scratch/ior.dat --file-size 16GiB --write --verify
    stripewise-bench /data/scratch/ior.dat --file-size 16GiB --read --verify inline

  Four regions with a request size each; the last is used ten times as much as the first
    stripewise-bench shared.dat --region 0:256MiB:64KiB:0.2 --region 256MiB:256MiB:128KiB:0.5 \\
        --region 512MiB:512MiB:1MiB:1 --region 1GiB:64MiB:512KiB:2

  A file per process, in order, past the page cache
    stripewise-bench /disk/test --file-per-process --file-size 256MiB --pattern sequential --direct

  BTIO on 16 MPI processes, 8 steps instead of 40, every byte checked
    stripewise-bench btio /data/scratch/bt.out --processes 16 --steps 8 --verify

  Two instances of mpi-io-test at once, each with a file of its own, a barrier after each call
    stripewise-bench mpi-io-test /data/scratch/segments --instances 2 --barrier";

/// I/O workloads of the literature: real processes that write and read files in a fixed pattern, check the bytes, and
/// measure it by the wall clock.
///
/// Without --read or --write both are done, first all writes, then all reads.
#[derive(Debug, Parser)]
#[command(name = "stripewise-bench", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_value_name = "WORKLOAD", subcommand_help_heading = "Workloads")]
#[command(override_usage = "stripewise-bench [WORKLOAD] FILE [OPTIONS]", disable_help_subcommand = true)]
pub struct Cli {
    /// What to run.
    #[command(subcommand)]
    pub workload: Named,
}

/// A workload with its options.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // One of these exists in a process.
pub enum Named {
    /// Requests of a fixed size at sequential, strided or random offsets (the default; HARL, Chen et al.)
    ///
    /// Each process owns its own 1/p of the file (of each region) and issues its requests one at a time. 16 processes
    /// by plain calls, unless you say otherwise.
    Ior(IorOptions),
    /// The I/O of NAS BT: a solution written in steps by all ranks, each its cells of the grid (HARL)
    ///
    /// The grid is cut into cells along each axis, as many as the square root of the processes; each process has one
    /// in each layer, on a diagonal. The number of processes must be a square: 4 by collective calls through MPI-IO,
    /// unless you say otherwise.
    Btio(BtioOptions),
    /// Tiles of a two-dimensional array, one each, overlapping (Song et al., IOrchestrator)
    ///
    /// 4 processes through MPI-IO, unless you say otherwise.
    MpiTileIo(MpiTileIoOptions),
    /// Segments in turn: process i takes segment k*p + i (IOrchestrator)
    ///
    /// 5 processes through MPI-IO, unless you say otherwise.
    MpiIoTest(MpiIoTestOptions),
    /// Columns of a two-dimensional array, one each (IOrchestrator)
    ///
    /// A request is some rows of the own column, one call on a strided view of the file. 5 processes through MPI-IO,
    /// unless you say otherwise.
    Noncontig(NoncontigOptions),
    /// Regions with spaces between, in the file, in memory, in both or neither (IOrchestrator)
    ///
    /// In a file with spaces the processes' regions follow each other in turn; without, each process has its own part.
    /// What is in the spaces of the file is the MPI library's affair. 5 processes through MPI-IO, unless you say
    /// otherwise.
    Hpio(HpioOptions),
    /// Loop of many small requests and a large one (Song et al.)
    ///
    /// 16 processes by plain calls, each in its own part of the file, unless you say otherwise.
    Song(SongOptions),
    /// Loop of 16 bytes, 128 KiB less 16, and 128 KiB (Los Alamos; Song et al.)
    ///
    /// 64 processes by plain calls, their loops one after the other in the file, unless you say otherwise.
    #[command(name = "lanl-app1")]
    LanlApp1(LanlOptions),
}

impl Named {
    /// Options that all workloads have.
    pub fn common(&self) -> &Common {
        match self {
            Self::Ior(options) => &options.common,
            Self::Btio(options) => &options.common,
            Self::MpiTileIo(options) => &options.common,
            Self::MpiIoTest(options) => &options.common,
            Self::Noncontig(options) => &options.common,
            Self::Hpio(options) => &options.common,
            Self::Song(options) => &options.common,
            Self::LanlApp1(options) => &options.common,
        }
    }

    /// Works out what is asked for.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for options that do not fit each other.
    pub fn workload(&self) -> Result<Box<dyn Workload>, BenchError> {
        let workload: Box<dyn Workload> = match self {
            Self::Ior(options) => Box::new(Ior::new(options)?),
            Self::Btio(options) => Box::new(Btio::new(options)?),
            Self::MpiTileIo(options) => Box::new(MpiTileIo::new(options)?),
            Self::MpiIoTest(options) => Box::new(MpiIoTest::new(options)?),
            Self::Noncontig(options) => Box::new(Noncontig::new(options)?),
            Self::Hpio(options) => Box::new(Hpio::new(options)?),
            Self::Song(options) => Box::new(Loop::song(options)?),
            Self::LanlApp1(options) => Box::new(Loop::lanl(options)?),
        };
        Ok(workload)
    }
}

impl Cli {
    /// Reads a command line; ends the process for `--help` and for what cannot be read.
    pub fn read(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Self {
        let mut arguments: Vec<_> = arguments.into_iter().collect();
        let named = arguments.get(1).and_then(|first| first.to_str()).is_some_and(|first| {
            Self::command().find_subcommand(first).is_some() || ["--help", "-h", "--version", "-V"].contains(&first)
        });
        // Before there were others, ior was all there was, and had no name.
        if !named && arguments.len() > 1 {
            arguments.insert(1, "ior".into());
        }
        Self::parse_from(arguments)
    }
}
