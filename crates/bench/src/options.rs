//! What every workload takes on the command line, and how its options are read.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use stripewise_layout::units::{parse_bytes, parse_seconds};

/// Over the options that every workload takes, in its help.
pub const COMMON_HEADING: &str = "Options of every workload";

/// What every workload takes.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// The shared file; with several files the start of their names (FILE.0, FILE.1, ...)
    pub file: PathBuf,

    /// Number of processes of each instance [default: the workload's, above]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub processes: Option<u32>,

    /// Only read; the file must have been written by a run with the same options
    #[arg(long, conflicts_with = "write")]
    pub read: bool,

    /// Only write
    #[arg(long)]
    pub write: bool,

    /// Reads take what the process this many ranks further on wrote, so not what this one may have cached
    #[arg(long, default_value_t = 0, value_name = "RANKS")]
    pub read_shift: u32,

    /// Check every byte against what was written there last: in a phase of its own after the timed ones, mostly by
    /// another process than the one that wrote it, or inline as the timed reads arrive
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "after", value_name = "WHEN")]
    pub verify: Option<Verify>,

    /// Calls to use: system calls with the offset in the call, lseek first, or MPI-IO
    #[arg(long, value_enum)]
    pub api: Option<BenchApi>,

    /// Collective calls: all processes of an instance make each call together (MPI-IO)
    #[arg(long, conflicts_with = "independent")]
    pub collective: bool,

    /// Each process calls for itself (the default, but for btio)
    #[arg(long)]
    pub independent: bool,

    /// A hint for the MPI library, as in romio_cb_write=enable; may be given several times
    #[arg(long = "hint", value_name = "KEY=VALUE", value_parser = hint)]
    pub hints: Vec<(String, String)>,

    /// All processes of an instance wait for each other after each request
    #[arg(long)]
    pub barrier: bool,

    /// Time that a process computes, that is sleeps, after each request
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = seconds)]
    pub think: f64,

    /// Run this many instances at once, each with its own processes and its own FILE.0, FILE.1, ...
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub instances: u32,

    /// All instances use one file, each this far after the one before it
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub distance: Option<u64>,

    /// Open with O_DIRECT: past the page cache (sizes and offsets must be multiples of the device's block)
    #[arg(long)]
    pub direct: bool,

    /// Each process ends its writes with fsync (MPI_File_sync), inside the measured time
    #[arg(long)]
    pub fsync: bool,

    /// Processes spin in the barriers, as MPI ranks do, instead of sleeping
    #[arg(long)]
    pub spin_barrier: bool,

    /// Seed of offsets, order and data
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Remove the files at the end
    #[arg(long)]
    pub remove: bool,

    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,

    /// Program that starts MPI processes, instead of the first mpiexec of PATH
    #[arg(long, value_name = "PATH")]
    pub mpiexec: Option<PathBuf>,

    /// MPI library, instead of the one beside mpiexec
    #[arg(long, value_name = "PATH")]
    pub mpi_library: Option<PathBuf>,
}

impl Common {
    /// Whether writes are measured.
    pub fn writes(&self) -> bool {
        !self.read
    }

    /// Whether reads are measured.
    pub fn reads(&self) -> bool {
        !self.write
    }
}

/// When data is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// In a phase of its own
    After,
    /// As the timed reads arrive
    Inline,
}

/// Calls to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BenchApi {
    /// pread and pwrite
    Pread,
    /// lseek, then read or write
    Read,
    /// MPI_File_read_at and MPI_File_write_at; with --collective ..._at_all
    MpiIo,
}

/// A part of the file with its own request size and heat.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RegionSpec {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Bytes per request.
    pub request_size: u64,
    /// Bytes requested over `length`.
    pub heat: f64,
}

/// A number of bytes.
///
/// # Errors
/// What is wrong with it.
pub fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

/// A number of bytes that is not zero and at most a call's limit.
///
/// # Errors
/// What is wrong with it.
pub fn request_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        bytes @ 1..=LARGEST_REQUEST => Ok(bytes),
        _ => Err("it must be 1 byte to 1GiB".into()),
    }
}

/// Bytes that one request may have: MPI's counts end at 2^31 - 1.
pub const LARGEST_REQUEST: u64 = 1 << 30;

/// `WIDTHxHEIGHT`.
///
/// # Errors
/// What is wrong with it.
pub fn pair(text: &str) -> Result<[u64; 2], String> {
    let (x, y) = text.split_once('x').ok_or("it is WIDTHxHEIGHT, as in 128x64")?;
    let number = |text: &str| text.parse::<u32>().map(u64::from).map_err(|_| format!("'{text}' is not a number"));
    Ok([number(x)?, number(y)?])
}

/// `OFFSET:LENGTH:REQUEST_SIZE:HEAT`.
///
/// # Errors
/// What is wrong with it.
pub fn region(text: &str) -> Result<RegionSpec, String> {
    let fields: Vec<&str> = text.split(':').collect();
    let [offset, length, request_size, heat] = fields[..] else {
        return Err("a region is OFFSET:LENGTH:REQUEST_SIZE:HEAT, as in 256MiB:1GiB:64KiB:2".into());
    };
    let heat: f64 = heat.parse().map_err(|_| format!("heat '{heat}' is not a number"))?;
    if !(heat > 0.0 && heat <= 1e6) {
        return Err(format!("heat is {heat}; it must be above 0 and at most 1000000"));
    }
    Ok(RegionSpec { offset: bytes(offset)?, length: bytes(length)?, request_size: bytes(request_size)?, heat })
}

fn seconds(text: &str) -> Result<f64, String> {
    match parse_seconds(text) {
        Ok(value) if (0.0..=3600.0).contains(&value) => Ok(value),
        Ok(_) => Err("it must be 0 to 3600s".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn hint(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a hint is KEY=VALUE, as in romio_cb_write=enable")?;
    if key.is_empty() || text.contains('\0') {
        Err("a hint needs a name".into())
    } else {
        Ok((key.into(), value.into()))
    }
}
