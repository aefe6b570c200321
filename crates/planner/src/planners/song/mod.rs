//! `equal-depth-paper` and `equal-depth`: Song et al., a width for every server so that all are equally busy.
//!
//! The paper's rule works on a round as long as the default's, with one mean profile for all servers and a startup
//! shared by the blocks of a request. Ours deals blocks to servers exactly, each with its own profile and a startup for
//! every request that touches it, in rounds of several lengths, of which the one with the best price is taken.

pub mod costs;
pub(crate) mod partition;

use self::costs::{BlockCosts, Blocks, ServerLoads, quantile_widths};
use self::partition::least_maximum;
use crate::error::PlanError;
use crate::job::Job;
use crate::job::demand::FileDemand;
use crate::objective::pricing::Pricer;
use crate::planners::planner::Planner;
use rayon::prelude::*;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{OpProfile, Profile};

/// Bytes of a block where the default width is a multiple: "4 KB block size is an ideal choice".
const BLOCK_BYTES: u64 = 4096;

/// Most blocks of a round in the paper's rule.
const MOST_BLOCKS: u64 = 1 << 16;

/// Up to this many files, each has widths of its own; of more, those that are alike share them.
const MOST_FILES: usize = 1024;

/// The paper's own rule.
pub struct EqualDepthPaper;

impl Planner for EqualDepthPaper {
    fn name(&self) -> &'static str {
        "equal-depth-paper"
    }

    fn source(&self) -> &'static str {
        "Song et al., Eq. 1 and 2, equal-depth histogram"
    }

    fn summary(&self) -> &'static str {
        "a width for every server from quantiles of the cost by position in the default's round"
    }

    /// O(entries x min(blocks touched, N)) with at most 65,536 blocks.
    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        let (blocks, servers) = (paper_blocks(job), servers(job));
        Ok(each_or_alike(job, |file| {
            let widths = quantile_widths(&paper_costs_s(job, file, blocks), servers.len());
            layout(&servers, &widths, blocks.bytes)
        }))
    }

    /// Cost of the busiest server in the paper's measure, over all files; for layouts with other rounds, which the
    /// paper cannot price, that of [`Job::price`].
    fn own_price(&self, job: &Job, layouts: &[Layout]) -> Result<f64, PlanError> {
        let blocks = paper_blocks(job);
        let round_bytes = blocks.count as u64 * blocks.bytes;
        if layouts.iter().any(|l| l.regions().len() != 1 || l.regions()[0].round_bytes() != round_bytes) {
            return job.price(layouts).map(|price| price.predicted_s);
        }
        let mut loads_s = vec![0.0; job.pricer().lanes().servers()];
        for (number, (file, layout)) in job.demand.files.iter().zip(layouts).enumerate() {
            let costs = paper_costs_s(job, file, blocks);
            let region = &layout.regions()[0];
            for (index, stripe) in region.stripes().iter().enumerate() {
                let from = region.start_of(index);
                loads_s[job.slot(number, stripe.server)?] +=
                    between_s(&costs, blocks.bytes, from, from + stripe.width_bytes);
            }
        }
        Ok(loads_s.into_iter().fold(0.0, f64::max))
    }
}

/// What `plan` makes of every file by itself, or where files are many of those that are alike together.
fn each_or_alike(job: &Job, plan: impl Fn(&FileDemand) -> Layout + Send + Sync) -> Vec<Layout> {
    if job.files.len() <= MOST_FILES {
        return job.demand.files.par_iter().map(plan).collect();
    }
    job.spread(&job.unit_demand().files.par_iter().map(plan).collect::<Vec<Layout>>())
}

/// All servers, tiers in order.
fn servers(job: &Job) -> Vec<ServerId> {
    job.cluster.tiers.iter().flat_map(|tier| tier.servers.iter().copied()).collect()
}

/// The default's round in whole blocks (Eq. 2: `N b = n s`): 4 KiB where that divides the default width, else the
/// largest divisor below; larger when there would be too many.
fn paper_blocks(job: &Job) -> Blocks {
    let (width, servers) = (job.options.default_width_bytes, servers(job).len() as u64);
    let most = width.div_ceil(BLOCK_BYTES).min(MOST_BLOCKS.div_ceil(servers)).max(1);
    let each = (1..=most).rev().find(|&each| width.is_multiple_of(each)).unwrap_or(1);
    Blocks { count: (each * servers) as usize, bytes: width / each }
}

/// Mean of all servers, network included as the frame prices it: the paper has one kind of server.
fn mean_profile(job: &Job) -> Profile {
    let servers = servers(job).len() as f64;
    let mean = |figure: &dyn Fn(&Profile) -> f64| {
        let tiers = job.cluster.tiers.iter();
        tiers.map(|tier| tier.servers.len() as f64 / servers * figure(&tier.profile)).sum::<f64>()
    };
    let op = |of: fn(&Profile) -> &OpProfile| OpProfile {
        startup_min_s: mean(&|profile| of(profile).startup_min_s),
        startup_max_s: mean(&|profile| of(profile).startup_max_s),
        transfer_s_per_byte: mean(&|profile| of(profile).transfer_s_per_byte),
        head: None,
    };
    Profile {
        read: op(|profile| &profile.read),
        write: op(|profile| &profile.write),
        network_s_per_byte: mean(&|profile| profile.network_s_per_byte),
    }
}

fn paper_costs_s(job: &Job, file: &FileDemand, blocks: Blocks) -> Vec<f64> {
    let mut costs = BlockCosts::new(blocks);
    file.entries.iter().for_each(|e| costs.add(e.op, e.offset, e.size, e.count));
    costs.costs_s(&mean_profile(job))
}

/// Cost of bytes `from..to` of the round, a block's cost spread evenly over it.
fn between_s(costs_s: &[f64], block_bytes: u64, from: u64, to: u64) -> f64 {
    let blocks = (from / block_bytes) as usize..to.div_ceil(block_bytes) as usize;
    blocks
        .map(|block| {
            let start = block as u64 * block_bytes;
            let inside = to.min(start + block_bytes) - from.max(start);
            costs_s[block] * inside as f64 / block_bytes as f64
        })
        .sum()
}

/// One region with `blocks` blocks on each server; servers without any are left out.
fn layout(servers: &[ServerId], blocks: &[usize], block_bytes: u64) -> Layout {
    let stripes = servers.iter().zip(blocks).filter(|&(_, &blocks)| blocks > 0);
    let stripes = stripes.map(|(&server, &blocks)| Stripe { server, width_bytes: blocks as u64 * block_bytes });
    Layout::new([(0, stripes.collect())]).expect("a round of at least one block, far below 2^63 bytes")
}

/// Exact, with servers as they are.
pub struct EqualDepth;

/// Rounds tried: the default's times these.
const ROUNDS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// No round is longer, so that no sum of widths comes near 2^63.
const LONGEST_ROUND: u64 = 1 << 60;

/// Blocks of a round, unless there are more servers.
const BLOCKS: usize = 512;

/// Rounds that the file has at least, so that what was seen of its heat says something of what comes.
const LEAST_ROUNDS: u64 = 16;

impl Planner for EqualDepth {
    fn name(&self) -> &'static str {
        "equal-depth"
    }

    fn source(&self) -> &'static str {
        "Song et al., corrected: exact least maximum, a startup for every server touched (docs/planners.md)"
    }

    fn summary(&self) -> &'static str {
        "a width for every server, with which the busiest server has the least to do"
    }

    /// O(files x rounds x (entries x (blocks touched + sub-requests) + 64 x servers x log blocks)), 8 rounds a file; of
    /// more than 1024 files for each kind of them.
    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        let pricer = job.pricer();
        let servers = servers(job);
        let default = job.default_layout();
        Ok(each_or_alike(job, |file| {
            if file.entries.is_empty() {
                return default.clone();
            }
            let tried = ROUNDS.iter().filter_map(|&times| deal(job, &pricer, &servers, file, times));
            let price = |layout: &Layout| {
                let load = pricer.layout_load(&file.entries, layout);
                pricer.time_s(&load.expect("the layout is of the cluster"))
            };
            let mut best = (price(&default), default.clone());
            for layout in tried {
                let time_s = price(&layout);
                // The shortest round of equals.
                if time_s < best.0 {
                    best = (time_s, layout);
                }
            }
            best.1
        }))
    }
}

/// The round `times` as long as the default's, dealt to the servers; `None` when it is too long for the file.
fn deal(job: &Job, pricer: &Pricer, servers: &[ServerId], file: &FileDemand, times: u64) -> Option<Layout> {
    let count = servers.len() as u64;
    let width_bytes = job.options.default_width_bytes.checked_mul(times)?;
    let round_bytes = width_bytes.checked_mul(count).filter(|&round| round <= LONGEST_ROUND)?;
    if times > 1 && round_bytes > file.extent / LEAST_ROUNDS {
        return None;
    }
    let most = (BLOCKS / servers.len()).max(2) as u64;
    let each = most.min(width_bytes / BLOCK_BYTES).max(1);
    let blocks = Blocks { count: (each * count) as usize, bytes: width_bytes / each };
    let loads = ServerLoads::new(blocks, file.entries.iter().map(|e| (e.op, e.offset, e.size, e.count)));
    let tiers = pricer.cluster.tiers.iter();
    let profiles: Vec<&Profile> =
        tiers.flat_map(|tier| std::iter::repeat_n(&tier.profile, tier.servers.len())).collect();
    let ends = least_maximum(servers.len(), blocks.count, |server, from, to| loads.load_s(profiles[server], from, to));
    let mut from = 0;
    let widths = ends.iter().map(|&end| end - std::mem::replace(&mut from, end));
    Some(layout(servers, &widths.collect::<Vec<_>>(), blocks.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::input::{FileTrace, PlanOptions};
    use crate::table_ii;
    use stripewise_model::{Cluster, Op, Request, presets};

    fn trace(requests: &[Request]) -> FileTrace<'_> {
        FileTrace { name: "f".into(), requests, size_bytes: None }
    }

    fn planned(planner: &dyn Planner, requests: &[Request], cluster: &Cluster) -> Layout {
        let (files, options) = ([trace(requests)], PlanOptions::default());
        let job = Job::new(&files, cluster, &options).unwrap();
        planner.plan(&job).unwrap().remove(0)
    }

    fn widths_kib(layout: &Layout) -> Vec<(u16, u64)> {
        assert_eq!(layout.regions().len(), 1);
        layout.regions()[0].stripes().iter().map(|stripe| (stripe.server.0, stripe.width_bytes >> 10)).collect()
    }

    /// The paper's loop, 64 times.
    fn song_loop() -> Vec<Request> {
        let request = |(offset, size)| Request { offset, size, op: Op::Read, process: 0, start_s: 0.0, end_s: 0.0 };
        table_ii::song_loop(64 << 18).into_iter().map(request).collect()
    }

    /// Four servers of alpha = 0.2 ms and 85 KB/ms (math F.1).
    fn song_servers() -> Cluster {
        let op = presets::op_profile(0.2, 0.2, 85.0);
        presets::cluster(&[("s", 4, Profile { read: op, write: op, network_s_per_byte: 0.0 })])
    }

    #[test]
    fn the_papers_layout_for_the_papers_loop() {
        let found = widths_kib(&planned(&EqualDepthPaper, &song_loop(), &song_servers()));
        assert_eq!(found, [(0, 48), (1, 48), (2, 48), (3, 112)]);
    }

    #[test]
    fn the_papers_price_prefers_its_layout_and_the_exact_rule_is_no_worse_in_the_model() {
        let (requests, cluster, options) = (song_loop(), song_servers(), PlanOptions::default());
        let files = [trace(&requests)];
        let job = Job::new(&files, &cluster, &options).unwrap();
        let (paper, exact) = (EqualDepthPaper.plan(&job).unwrap(), EqualDepth.plan(&job).unwrap());
        let own = |layouts: &[Layout]| EqualDepthPaper.own_price(&job, layouts).unwrap();
        // R = 4.5: the busiest has 64 requests of 1 KB with equal widths, 48 and the one of 64 KB with the paper's.
        let gain = own(&job.default_layouts()) / own(&paper) - 1.0;
        assert!((gain - (64.0 / 52.5 - 1.0)).abs() < 1e-9, "{gain}");
        let price = |layouts: &[Layout]| job.price(layouts).unwrap().predicted_s;
        assert!(price(&exact) <= price(&paper) && price(&exact) <= price(&job.default_layouts()));
    }

    #[test]
    fn slower_servers_have_less() {
        // Requests that cover many rounds: bytes follow speed, 1 to 3.
        let (slow, fast) = (presets::op_profile(0.0, 0.0, 20.0), presets::op_profile(0.0, 0.0, 60.0));
        let tier = |op| Profile { read: op, write: op, network_s_per_byte: 0.0 };
        let cluster = presets::cluster(&[("old", 2, tier(slow)), ("new", 2, tier(fast))]);
        let requests: Vec<Request> = (0..64)
            .map(|i| Request { offset: i << 24, size: 1 << 24, op: Op::Read, process: 0, start_s: 0.0, end_s: 0.0 })
            .collect();
        let found = widths_kib(&planned(&EqualDepth, &requests, &cluster));
        let of = |server: usize| found[server].1 as f64;
        assert!((of(2) / of(0) - 3.0).abs() < 0.1 && found[0].1 == found[1].1, "{found:?}");
    }

    #[test]
    fn widths_that_no_block_divides_and_rounds_that_are_long() {
        let requests = song_loop();
        let files = [trace(&requests)];
        for (default_width_bytes, cluster) in
            [(1, presets::set_b(1, 0)), (4099, presets::set_b(3, 2)), (1 << 40, presets::set_b(6, 2))]
        {
            let options = PlanOptions { default_width_bytes, ..PlanOptions::default() };
            let job = Job::new(&files, &cluster, &options).unwrap();
            let blocks = paper_blocks(&job);
            assert_eq!(blocks.count as u64 * blocks.bytes, default_width_bytes * servers(&job).len() as u64);
            for planner in [&EqualDepthPaper as &dyn Planner, &EqualDepth] {
                crate::planners::propose(planner, &job).unwrap();
            }
        }
    }
}
