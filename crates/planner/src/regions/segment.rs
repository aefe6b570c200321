//! [`segment`]: the best regions of one file by latency alone (`beyond.md` 2), as the figures of segmentation have it.
//! The planner `regions` does more: the busiest server, phases, space.

use crate::error::PlanError;
use crate::job::demand::{Demand, FileDemand};
use crate::job::input::{FileTrace, PlanOptions, as_priced, check};
use crate::regions::candidates::candidates;
use crate::regions::viterbi::path_within;
use rayon::prelude::*;
use stripewise_model::{Cluster, CostModel, Round, TierWidths};

/// First byte and widths of each region of a file, such that the latencies of its requests, each on an idle system, and
/// `region_s` seconds for every region add up to the least; of at most [`PlanOptions::max_regions`] regions, on the
/// lower convex hull of latency by regions. O(entries x candidates + chunks x candidates).
///
/// # Errors
/// [`PlanError`] for a cluster, options or requests that nothing can be planned for.
pub fn segment(
    file: &FileTrace,
    cluster: &Cluster,
    options: &PlanOptions,
    region_s: f64,
) -> Result<Vec<(u64, TierWidths)>, PlanError> {
    check(cluster, options)?;
    let options = PlanOptions { processes: Some(1.0), max_phases: 1, ..*options };
    let demand = Demand::new(std::slice::from_ref(file), &options)?;
    let priced_as = as_priced(cluster, options.network);
    let default = TierWidths::uniform(cluster, options.default_width_bytes);
    let list = candidates(&demand.files[0], cluster, &[default]);
    let costs = latencies_s(&demand.files[0], &list, &priced_as);
    let most_changes = options.max_regions.max(1) - 1;
    let path = path_within(costs.len(), list.len(), region_s, most_changes, |chunk, row| {
        row.copy_from_slice(&costs[chunk]);
    });
    let mut rows: Vec<(u64, TierWidths)> = Vec::new();
    for (chunk, &candidate) in path.iter().enumerate() {
        let widths = list[candidate];
        if rows.last().is_none_or(|row| row.1 != widths) {
            rows.push((demand.files[0].edges[chunk], widths));
        }
    }
    Ok(rows)
}

/// Sum of the latencies in seconds of what falls on each chunk, under every candidate. O(parts x candidates), on all
/// cores.
fn latencies_s(file: &FileDemand, candidates: &[TierWidths], cluster: &Cluster) -> Vec<Vec<f64>> {
    let model = CostModel::new(cluster);
    let rounds: Vec<Round> = candidates.iter().map(|widths| Round::new(widths, cluster)).collect();
    let of_chunk = |chunk: usize| {
        let parts = file.parts(chunk..chunk + 1);
        let requests: Vec<_> = parts.iter().map(|part| (&file.entries[part.entry as usize], part.weight)).collect();
        let sum_s = |round| {
            requests.iter().map(|(e, weight)| weight * model.latency_s(round, e.op, e.offset, e.size)).sum::<f64>()
        };
        rounds.iter().map(sum_s).collect()
    };
    (0..file.chunks()).into_par_iter().map(of_chunk).collect()
}
