//! [`segment`]: the best regions of one file by latency alone (`beyond.md` 2), as the figures of segmentation have it.
//! [`plan`](crate::plan()) does more: the busiest server, phases, space.

use crate::candidates::candidates;
use crate::demand::Demand;
use crate::plan::{FileTrace, PlanError, PlanOptions, as_priced, check};
use crate::price_table::{PriceTable, Prices};
use crate::pricing::Pricer;
use crate::viterbi::path_within;
use stripewise_model::{Cluster, TierWidths};

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
    let pricer = Pricer::new(&priced_as, &demand);
    let default = TierWidths::uniform(cluster, options.default_width_bytes);
    let list = candidates(&demand.files[0], cluster, &[default]);
    let table = PriceTable::new(&demand.files[0], list, &pricer);
    let tiers = cluster.tiers.len();
    let prices = Prices {
        latency: vec![1.0],
        busy: vec![vec![0.0; tiers * pricer.resources_per_server()]],
        bytes: vec![0.0; tiers],
    };
    let most_changes = options.max_regions.max(1) - 1;
    let path = path_within(table.chunks(), table.candidates.len(), region_s, most_changes, |chunk, row| {
        table.costs(chunk, &prices, row);
    });
    let mut rows: Vec<(u64, TierWidths)> = Vec::new();
    for (chunk, &candidate) in path.iter().enumerate() {
        let widths = table.candidates[candidate];
        if rows.last().is_none_or(|row| row.1 != widths) {
            rows.push((demand.files[0].edges[chunk], widths));
        }
    }
    Ok(rows)
}
