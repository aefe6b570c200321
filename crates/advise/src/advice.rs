//! [`Advice`]: where files of each kind are and should be, what that gains, and what matters beside it.

use crate::bottleneck::Bottleneck;
use crate::cluster_file::ClusterFile;
use crate::findings::Finding;
use crate::fit::HeldOut;
use crate::interval::{Cause, Gain};
use crate::job::JobFacts;
use crate::layout_rules::RuleGain;
use crate::options::{LayoutSource, ServersFrom};
use std::path::PathBuf;
use stripewise_layout::{Layout, LayoutFile};
use stripewise_model::Op;

/// Where files of a kind are, or should be.
#[derive(Debug, Clone, PartialEq)]
pub struct KindPlacement {
    /// The layout of the first of them.
    pub layout: Layout,
    /// The others are on other servers, striped alike.
    pub spread: bool,
    /// Predicted bytes per second while any of their requests is in flight, where all files together have the present
    /// rate of the advice.
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

/// What reads or writes of some servers cost, as the log shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct FittedProfile {
    /// The tier; the server, or how many, where they are fitted apart from the others of theirs.
    pub tier: String,
    /// From when on, in seconds of the log, where they were faster or slower before; `None` from its begin.
    pub from_s: Option<f64>,
    /// Reads or writes.
    pub op: Op,
    /// Mean startup in seconds.
    pub startup_s: f64,
    /// Bytes per second after that.
    pub bytes_per_s: f64,
}

/// What the model makes of the run as it was, beside the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduced {
    /// Time of the slowest process's reads and writes, predicted over measured.
    pub factor: f64,
    /// Why there are no gains: prediction and log differ by more than a factor of 2.
    pub refused: Option<String>,
    /// What a fit to one half of the requests predicts of the other.
    pub held_out: Option<HeldOut>,
    /// Share of the bytes that came from, or only reached, the memory of the client's nodes.
    pub memory_share: f64,
    /// Each profile that was fitted.
    pub profiles: Vec<FittedProfile>,
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
    /// A layout file and the commands of the file system can name these files, and are for them.
    pub is_named: bool,
    /// Time of their requests, predicted over measured; `None` where the log does not time them.
    pub factor: Option<f64>,
    /// Where they should be; `None` is no change.
    pub recommended: Option<KindPlacement>,
    /// Why the recommended layout is none that is set otherwise, in words.
    pub reason: Option<String>,
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
    /// How they are known.
    pub servers_from: ServersFrom,
    /// Object storage targets that the file system has, where the log knows: it shows some of them.
    pub targets: Option<u64>,
    /// What is missing for advice on layouts, and how to give it.
    pub lacking: Option<String>,
    /// The job.
    pub job: JobFacts,
    /// The present, predicted, beside the log; `None` where the log does not time requests.
    pub reproduced: Option<Reproduced>,
    /// Names of servers: those of layouts, with the object storage target where the servers were found.
    pub labels: Vec<String>,
    /// The directory that paths are relative to.
    pub root: PathBuf,
    /// Kinds of files, those that move most first.
    pub rows: Vec<AdviceRow>,
    /// By directory, those that move most first.
    pub directories: Vec<DirectoryAdvice>,
    /// Bytes per second of all under the present layouts, predicted: while the slowest process reads and writes.
    pub present_bytes_per_s: f64,
    /// The same under the recommended ones.
    pub recommended_bytes_per_s: f64,
    /// Of all files together.
    pub gain: Gain,
    /// Of the whole run at most, by the share of it that the slowest process reads and writes.
    pub run_gain: Option<Gain>,
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
    /// What each of [`RULES`](crate::RULES) would give, where that was asked for.
    pub rules: Vec<RuleGain>,
}
