//! [`advise`]: from a log and the servers to advice.
//!
//! All files are planned together (`planning`), since they share the servers. What was planned is then held against what
//! there is (`case`).

use crate::bottleneck::Bottleneck;
use crate::case::ComparedCase;
use crate::cluster_file::ClusterFile;
use crate::findings::Finding;
use crate::gather::Gathered;
use crate::interval::{Cause, Gain};
use crate::look::Looked;
use crate::passes::{Pass, PassResult, Passes};
use crate::sides::servers;
use std::path::{Path, PathBuf};
use stripewise_import::About;
use stripewise_layout::{Layout, LayoutFile};
use stripewise_planner::planners::PLANNERS;
use stripewise_planner::{PlanError, auto};
use stripewise_simulate::SimulateError;
use stripewise_trace::Trace;

/// Where a file's present layout is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutSource {
    /// The log tells what Lustre had.
    Log,
    /// The pool itself.
    Pool,
    /// Nothing: the cluster's default.
    Default,
}

impl LayoutSource {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Pool => "pool",
            Self::Default => "default",
        }
    }
}

/// The layout that a path (below the root) has; `None` where only the cluster's default is known.
pub type PresentLayout<'a> = dyn Fn(&Path) -> Option<Layout> + 'a;

/// What to advise on.
#[derive(Clone, Copy)]
pub struct AdviceOptions<'a> {
    /// The servers; `None`: those that the log's Lustre layouts show.
    pub cluster: Option<&'a ClusterFile>,
    /// Profile of servers that were found from the log.
    pub preset: &'a str,
    /// Only files below it; `None`: all.
    pub root: Option<&'a Path>,
    /// Name of the planner; `None`: all of them for few files, `regions` for many.
    pub planner: Option<&'a str>,
    /// The layouts that files have, where somebody knows.
    pub present: Option<&'a PresentLayout<'a>>,
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// Nobody says what servers there are.
    #[error(
        "the log tells no Lustre layouts, so the servers are not known: name them with --cluster, a cluster file or a \
         pool file (docs/advise.md has one to copy)"
    )]
    NoServers,
    /// An unknown preset.
    #[error("--preset: {0}")]
    Preset(String),
    /// No file was read or written.
    #[error("the log has no read or write of a file below {}; name the directory with --root", root.display())]
    NothingMoved {
        /// Where was looked.
        root: PathBuf,
    },
    /// An unknown planner.
    #[error("{0}")]
    Planner(String),
    /// What was asked for cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A pass through the requests was not made: who was to make it knows why.
    #[error("the requests of the log were not read")]
    Passes,
    /// It cannot be simulated.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}

/// Where files of a kind are, or should be.
#[derive(Debug, Clone, PartialEq)]
pub struct KindPlacement {
    /// The layout of the first of them.
    pub layout: Layout,
    /// The others are on other servers, striped alike.
    pub spread: bool,
    /// Simulated bytes per second while any of their requests is in flight.
    pub bytes_per_s: f64,
    /// What they wait for.
    pub bottleneck: Bottleneck,
}

/// Bytes on a tier.
#[derive(Debug, Clone, PartialEq)]
pub struct TierSpace {
    /// Name of the tier.
    pub tier: String,
    /// Bytes under the present layouts.
    pub present_bytes: u64,
    /// Bytes under the recommended ones.
    pub recommended_bytes: u64,
    /// Bytes that it may hold, all servers together.
    pub capacity_bytes: Option<u64>,
}

/// Advice on files of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct AdviceRow {
    /// Path below the root; a pattern where there are several.
    pub path: String,
    /// How many.
    pub files: usize,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads and writes.
    pub requests: u64,
    /// Ranks that share one of them, most of any.
    pub ranks: usize,
    /// Known from counters alone.
    pub counters_only: bool,
    /// Where they are.
    pub present: KindPlacement,
    /// How that is known.
    pub source: LayoutSource,
    /// Where they should be; `None` is no change.
    pub recommended: Option<KindPlacement>,
    /// What that gains; 1 without a change.
    pub gain: Gain,
    /// Room that it takes, by tier.
    pub space: Vec<TierSpace>,
    /// What matters beside the layout.
    pub findings: Vec<Finding>,
}

/// Kinds of one directory together.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectoryAdvice {
    /// Path below the root, numbers as `*`; empty is the root itself.
    pub path: String,
    /// Files in it.
    pub files: usize,
    /// Bytes that they move.
    pub bytes: u64,
    /// The row whose layout serves most of the bytes that should be laid out anew, by index in [`Advice::rows`].
    pub row: Option<usize>,
}

/// What a log and servers lead to.
#[derive(Debug, Clone)]
pub struct Advice {
    /// The servers.
    pub cluster: ClusterFile,
    /// They are what the log shows, and no cluster file's.
    pub is_found: bool,
    /// Names of servers: those of layouts, with the object storage target where the servers were found.
    pub labels: Vec<String>,
    /// The directory that paths are relative to.
    pub root: PathBuf,
    /// Kinds of files, those that move most first.
    pub rows: Vec<AdviceRow>,
    /// By directory, those that move most first.
    pub directories: Vec<DirectoryAdvice>,
    /// Bytes per second of all under the present layouts.
    pub present_bytes_per_s: f64,
    /// The same under the recommended ones.
    pub recommended_bytes_per_s: f64,
    /// Of all files together.
    pub gain: Gain,
    /// Room on tiers.
    pub space: Vec<TierSpace>,
    /// What is wide about the intervals.
    pub causes: Vec<Cause>,
    /// Name of the planner.
    pub planner: String,
    /// On the run as a whole.
    pub findings: Vec<Finding>,
    /// Requests in flight, mean over the run.
    pub processes: f64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Files that move next to nothing, on which there is no advice.
    pub left_out: usize,
    /// The layouts of files that should change.
    pub layout: LayoutFile,
}

/// Advises on the files of a log: some passes over its records, as long as [`stripewise_planner::plan_by`] takes for at
/// most 20,000 distinct requests, and some 28 simulations of 16,000.
///
/// # Errors
/// [`AdviseError`] with the remedy.
pub fn advise(trace: &Trace, about: &About, options: &AdviceOptions) -> Result<Advice, AdviseError> {
    advise_by(trace, about, options, trace)
}

/// [`advise`] where others have the requests: `trace` is asked for its files and processes alone, `about` has the
/// counters and layouts of all files, and the records are read by `passes`. The advice is the same.
///
/// # Errors
/// [`AdviseError`] with the remedy.
pub fn advise_by(
    trace: &Trace,
    about: &About,
    options: &AdviceOptions,
    passes: &dyn Passes,
) -> Result<Advice, AdviseError> {
    if let Some(name) = options.planner.filter(|name| *name != auto::AUTO)
        && PLANNERS.iter().all(|planner| planner.name() != name)
    {
        let known: Vec<&str> = PLANNERS.iter().map(|planner| planner.name()).collect();
        return Err(AdviseError::Planner(format!(
            "no planner '{name}'; there is {}, {}",
            auto::AUTO,
            known.join(", ")
        )));
    }
    let (servers, targets) = servers(about, options)?;
    let mut looked = Looked::default();
    let root = options.root.map(|root| root.as_os_str().to_owned());
    passes.make(&Pass::Look(root), &mut |found| {
        if let PassResult::Looked(part) = found {
            looked.join(part);
        }
    })?;
    let mut gathered = Gathered::new(trace, about, options.root, looked.finished());
    if gathered.files.is_empty() {
        return Err(AdviseError::NothingMoved { root: gathered.root });
    }
    let case = ComparedCase::new(&servers, &targets, about, options, passes, &mut gathered)?;
    case.advice(&gathered, about, options)
}
