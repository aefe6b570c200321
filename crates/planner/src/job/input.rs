//! What a planner is given: files with their requests, and options, both checked against the cluster.

use crate::error::PlanError;
use crate::objective::lanes;
use stripewise_model::{Cluster, MAX_TIERS, Op, Request};
use stripewise_simulate::Network;

/// What one file was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct FileTrace<'a> {
    /// Its name, for messages and results.
    pub name: String,
    /// Its requests, in any order, on one clock with those of the other files.
    pub requests: &'a [Request],
    /// Its size in bytes, which counts against space limits; `None` when unknown: then the end of its last request.
    /// Writes beyond the size extend it.
    pub size_bytes: Option<u64>,
}

/// How to plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanOptions {
    /// Width in bytes of the default layout: one region over all servers. Also for files without requests.
    pub default_width_bytes: u64,
    /// Most regions of a file.
    pub max_regions: usize,
    /// A region must save this share of the time that is predicted with any number of regions; more, when plans made
    /// from half of the requests serve the other half better with fewer.
    pub region_share: f64,
    /// Processes with requests in flight; `None` estimates them from the trace, phase by phase.
    pub processes: Option<f64>,
    /// Most phases that are told apart.
    pub max_phases: usize,
    /// Most chunks that segmentation works on, over all files.
    pub max_chunks: usize,
    /// Most distinct requests that are priced; beyond it a sample is, and the plan says so with its error bound. In pools
    /// of more than 64 servers these, the chunks and the simulations are a quarter of what the options say.
    pub max_entries: usize,
    /// Where the network time of the profiles is spent.
    pub network: Network,
    /// Simulations that may be spent on choosing among the best plans; 0 trusts the model alone.
    pub simulations: usize,
    /// Seed of those simulations.
    pub seed: u64,
    /// Seconds that the run's operations on names take on the metadata tier, one after the other.
    pub names_s: f64,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            default_width_bytes: 64 << 10,
            max_regions: 128,
            region_share: 1e-3,
            processes: None,
            max_phases: 8,
            max_chunks: 1024,
            max_entries: 20_000,
            network: Network::InBeta,
            simulations: 400,
            seed: 1,
            names_s: 0.0,
        }
    }
}

/// The options as they are taken on this cluster: in a large pool everything costs more, since requests touch more
/// servers and loads have more figures, so there is less of it.
pub(crate) fn for_pool(cluster: &Cluster, options: &PlanOptions) -> PlanOptions {
    let servers: usize = cluster.tiers.iter().map(|tier| tier.servers.len()).sum();
    if servers <= lanes::FEW {
        return *options;
    }
    PlanOptions {
        max_entries: options.max_entries.div_ceil(4),
        max_chunks: options.max_chunks.div_ceil(4),
        simulations: options.simulations.div_ceil(4),
        ..*options
    }
}

/// The cluster as its requests are priced: with the network in beta, a byte costs its device both.
pub(crate) fn as_priced(cluster: &Cluster, network: Network) -> Cluster {
    let mut priced = cluster.clone();
    if network == Network::InBeta {
        for tier in priced.tiers.iter_mut().chain(&mut priced.meta) {
            let network = std::mem::take(&mut tier.profile.network_s_per_byte);
            tier.profile.read.transfer_s_per_byte += network;
            tier.profile.write.transfer_s_per_byte += network;
        }
    }
    priced
}

pub(crate) fn check(cluster: &Cluster, options: &PlanOptions) -> Result<(), PlanError> {
    if cluster.tiers.iter().all(|tier| tier.servers.is_empty()) {
        return Err(PlanError::NoServer);
    }
    if cluster.tiers.len() > MAX_TIERS {
        return Err(PlanError::TooManyTiers(cluster.tiers.len()));
    }
    for tier in cluster.all_tiers() {
        for (op, name) in [(Op::Read, "read"), (Op::Write, "write")] {
            let costs = tier.profile.of(op);
            let figures = [
                ("a least startup of", costs.startup_min_s),
                ("a greatest startup of", costs.startup_max_s),
                ("a transfer time per byte of", costs.transfer_s_per_byte),
                ("a network time per byte of", tier.profile.network_s_per_byte),
                ("a startup interval of", costs.startup_max_s - costs.startup_min_s),
                ("a sequential startup of", costs.adjacent_startup_s(0.0)),
            ];
            for (what, value) in figures {
                if !(value.is_finite() && value >= 0.0) {
                    return Err(PlanError::Profile { tier: tier.name.clone(), op: name, what, value });
                }
            }
        }
    }
    // A round of the default must be shorter than the largest file.
    if !(1..=1 << 40).contains(&options.default_width_bytes) {
        let value = options.default_width_bytes as f64;
        return Err(PlanError::Option { name: "the default width", value, remedy: "give 1 byte to 1 TiB" });
    }
    if let Some(value) = options.processes.filter(|p| !(p.is_finite() && *p >= 1.0)) {
        return Err(PlanError::Option { name: "the number of processes", value, remedy: "give 1 or more" });
    }
    Ok(())
}
