//! What a plan says of itself: layouts, and predictions beside those of the default and of HARL.

use stripewise_layout::Layout;
use stripewise_model::TierWidths;

/// Predicted times in seconds of the same requests under three layouts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LayoutTimes {
    /// Under the default layout.
    pub default_s: f64,
    /// Under HARL's plan, brought within the space limits; `None` when it cannot be.
    pub harl_s: Option<f64>,
    /// Under this plan.
    pub planned_s: f64,
}

impl LayoutTimes {
    /// How many times faster than the default; 1 when nothing takes time.
    pub fn gain(&self) -> f64 {
        if self.planned_s > 0.0 { self.default_s / self.planned_s } else { 1.0 }
    }
}

/// Predicted throughput of reads or of writes. In a phase with both, each has the share of the time that it causes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Bytes read or written.
    pub bytes: u64,
    /// Bytes per second under the default layout.
    pub default_bytes_per_s: f64,
    /// Bytes per second under this plan.
    pub planned_bytes_per_s: f64,
}

/// One region of a planned file.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionPlan {
    /// First byte.
    pub offset: u64,
    /// First byte after it; 2^63 for the last region.
    pub end: u64,
    /// Width on every tier; `None` when servers of a tier differ, or on the metadata tier.
    pub widths: Option<TierWidths>,
    /// Requests that fall on it; one across a border counts in parts.
    pub requests: f64,
    /// Bytes that they read.
    pub read_bytes: f64,
    /// Bytes that they write.
    pub written_bytes: f64,
    /// Its share in the predicted time of the whole run. The shares of all regions add up to [`Plan::total`].
    pub times: LayoutTimes,
    /// Bytes of the file that it puts on each tier, and on the metadata tier where the cluster has one.
    pub tier_bytes: Vec<u64>,
}

/// One file.
#[derive(Debug, Clone, PartialEq)]
pub struct FilePlan {
    /// Its name, as it was given.
    pub name: String,
    /// Where its bytes shall be.
    pub layout: Layout,
    /// Bytes that it has, as far as the plan knows.
    pub extent_bytes: u64,
    /// Its regions.
    pub regions: Vec<RegionPlan>,
}

/// One phase of the program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhasePlan {
    /// Processes with a request in flight.
    pub processes: f64,
    /// Requests of more than 0 bytes.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Its predicted time.
    pub times: LayoutTimes,
}

/// What a plan puts on a tier; sums of bytes end at `u64::MAX`.
#[derive(Debug, Clone, PartialEq)]
pub struct TierUse {
    /// Name of the tier.
    pub name: String,
    /// Number of servers.
    pub servers: usize,
    /// Bytes under the default layout.
    pub default_bytes: u64,
    /// Bytes under this plan.
    pub planned_bytes: u64,
    /// Bytes that the tier may hold, all servers together.
    pub limit_bytes: Option<u64>,
}

/// A sample was priced in place of all requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    /// Distinct requests priced.
    pub kept: usize,
    /// Distinct requests in the trace.
    pub of: usize,
    /// 95 % bound of the relative error of the mean latency, from the sample's own spread: the larger of those under the
    /// default and under the plan.
    pub error_bound: f64,
}

/// Simulated times of the replayed requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rehearsal {
    /// Requests replayed.
    pub requests: usize,
    /// Simulations run.
    pub simulations: usize,
    /// Makespan in seconds under the default layout.
    pub default_s: f64,
    /// Makespan in seconds under this plan.
    pub planned_s: f64,
}

/// What a plan for the files of a job says; made by [`plan_by`](crate::plan_by).
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// In the order in which the files were given.
    pub files: Vec<FilePlan>,
    /// In order of first appearance in time.
    pub phases: Vec<PhasePlan>,
    /// When one phase gives way to another, in seconds on the clock of the requests, ascending.
    pub cuts_s: Vec<f64>,
    /// Predicted time of the whole run.
    pub total: LayoutTimes,
    /// Reads, if any.
    pub reads: Option<Rates>,
    /// Writes, if any.
    pub writes: Option<Rates>,
    /// Space by tier, by the metadata tier where files have anything on it.
    pub tiers: Vec<TierUse>,
    /// Whether the figures are those of a sample.
    pub sampled: Option<Sampled>,
    /// The simulated comparison, if simulations were allowed.
    pub rehearsal: Option<Rehearsal>,
}
