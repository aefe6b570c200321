//! The command line, declared once, and what it asks for.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde::Serialize;
use stripewise_layout::units::{format_bytes, parse_bytes};

use crate::error::BenchError;

const EXAMPLES: &str = "\
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
    stripewise-bench /disk/test --file-per-process --file-size 256MiB --pattern sequential --direct";

/// IOR-like workload: real processes that write and read a file in requests of a fixed size, at sequential, strided or
/// random offsets, and measure it by the wall clock.
///
/// Each process owns its own 1/p of the file (of each region) and issues its requests one at a time. Without --read or
/// --write both are done, first all writes, then all reads.
#[derive(Debug, Parser)]
#[command(name = "stripewise-bench", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Options {
    /// The shared file; with --file-per-process the start of the names (FILE.0, FILE.1, ...)
    pub file: PathBuf,

    /// Number of processes
    #[arg(short, long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub processes: u32,

    /// Bytes per request
    #[arg(short, long, default_value = "512KiB", value_name = "SIZE", value_parser = bytes)]
    pub request_size: u64,

    /// Bytes of the file, or of each file with --file-per-process [default: 1GiB, or the end of the last region]
    #[arg(short = 's', long, value_name = "SIZE", value_parser = bytes)]
    pub file_size: Option<u64>,

    /// Only read; the file must have been written by a run with the same options
    #[arg(long, conflicts_with = "write")]
    pub read: bool,

    /// Only write
    #[arg(long)]
    pub write: bool,

    /// Order of a process's requests
    #[arg(long, value_enum, default_value_t = Pattern::Random)]
    pub pattern: Pattern,

    /// A part of the file with its own request size and heat (bytes requested over its length; 1 is once over); may be
    /// given several times, instead of --request-size
    #[arg(long = "region", value_name = "OFFSET:LENGTH:REQUEST_SIZE:HEAT", value_parser = region)]
    pub regions: Vec<RegionSpec>,

    /// With several regions: finish one before the next, or mix their requests
    #[arg(long, value_enum, default_value_t = RegionOrder::InTurn)]
    pub region_order: RegionOrder,

    /// All processes use one file (the default)
    #[arg(long, conflicts_with = "file_per_process")]
    pub shared: bool,

    /// Each process has a file of its own
    #[arg(long)]
    pub file_per_process: bool,

    /// Limit of requests per process and phase; regions keep their shares
    #[arg(long, value_name = "N", conflicts_with = "bytes", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Limit of bytes per phase over all processes; regions keep their shares
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub bytes: Option<u64>,

    /// Reads take what the process this many ranks further on wrote, so not what this one may have cached
    #[arg(long, default_value_t = 0, value_name = "RANKS")]
    pub read_shift: u32,

    /// Check every byte against what was written there last: in a phase of its own after the timed ones (half of each
    /// process's data by itself, half by the next rank), or inline as the timed reads arrive
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "after", value_name = "WHEN")]
    pub verify: Option<Verify>,

    /// System calls to use: with the offset in the call, or lseek first
    #[arg(long, value_enum, default_value_t = Api::Pread)]
    pub api: Api,

    /// Open with O_DIRECT: past the page cache (sizes and offsets must be multiples of the device's block)
    #[arg(long)]
    pub direct: bool,

    /// Each process ends its writes with fsync, inside the measured time
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
}

/// Order of a process's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One after the other in the process's own part
    Sequential,
    /// Process i takes request k*p + i
    Strided,
    /// Random order in the process's own part, aligned to the request size
    Random,
}

/// How requests of several regions follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionOrder {
    /// Region after region
    InTurn,
    /// All regions at once
    Mixed,
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

/// System calls to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// pread and pwrite
    Pread,
    /// lseek, then read or write
    Read,
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

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

fn region(text: &str) -> Result<RegionSpec, String> {
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

impl Options {
    /// The regions that are worked on: those given, in order of offset, or one over the whole file.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for regions that overlap, end after the file, or are too small for a request per process.
    pub fn regions(&self) -> Result<Vec<RegionSpec>, BenchError> {
        let usage = |message: String| Err(BenchError::Usage(message));
        let mut regions = self.regions.clone();
        if regions.is_empty() {
            let length = self.file_size.unwrap_or(1 << 30);
            regions.push(RegionSpec { offset: 0, length, request_size: self.request_size, heat: 1.0 });
        }
        regions.sort_by_key(|region| region.offset);
        let mut end = 0;
        for region in &regions {
            let (offset, length, request) = (region.offset, region.length, region.request_size);
            let named = format!("region at {} of {}", format_bytes(offset), format_bytes(length));
            if offset < end {
                return usage(format!("{named}: overlaps the one before it"));
            }
            end = match offset.checked_add(length) {
                Some(end) if end <= i64::MAX as u64 => end,
                _ => return usage(format!("{named}: ends above 2^63-1")),
            };
            if request == 0 || request > 1 << 30 {
                return usage(format!("{named}: a request is {}; it must be 1 byte to 1 GiB", format_bytes(request)));
            }
            let owners = if self.file_per_process { 1 } else { u64::from(self.processes) };
            if length / request < owners {
                return usage(format!(
                    "{named}: too small for a request of {} from each of {} processes; make it at least {}",
                    format_bytes(request),
                    self.processes,
                    format_bytes(request.saturating_mul(owners))
                ));
            }
            if self.direct && (!request.is_multiple_of(512) || !offset.is_multiple_of(512)) {
                return usage(format!("{named}: with --direct, offset and request size must be multiples of 512"));
            }
        }
        match self.file_size {
            Some(size) if size < end => usage(format!(
                "the last region ends at {}, after the file's {}; raise --file-size",
                format_bytes(end),
                format_bytes(size)
            )),
            _ => Ok(regions),
        }
    }

    /// Whether writes are measured.
    pub fn writes(&self) -> bool {
        !self.read
    }

    /// Whether reads are measured.
    pub fn reads(&self) -> bool {
        !self.write
    }

    /// The file of process `rank`.
    pub fn path_of(&self, rank: u32) -> PathBuf {
        if self.file_per_process {
            let mut name = self.file.clone().into_os_string();
            name.push(format!(".{rank}"));
            name.into()
        } else {
            self.file.clone()
        }
    }
}
