//! Small instances are searched to the end: every way to cut the files at the edges of their chunks, with every candidate
//! for every region, each priced as the layout that it is.
//!
//! The local search is nearly always as good, but it starts from prices that take requests across borders as if regions
//! went on, which matters most where there are few requests.

use crate::job::demand::{Demand, FileDemand};
use crate::objective::capacity::Limits;
use crate::objective::priced::Priced;
use crate::objective::pricing::Pricer;
use crate::regions::candidates::{candidates, fitted, widest};
use stripewise_model::{Cluster, TierWidths};

/// Most prices of a request: some tenths of a second.
const MOST_PRICES: usize = 200_000;

/// Regions of one file: first byte and widths.
type Rows = Vec<(u64, TierWidths)>;

/// What is searched.
pub(crate) struct SearchSpace<'a> {
    pub demand: &'a Demand,
    pub pricer: &'a Pricer<'a>,
    pub limits: &'a Limits,
    /// A candidate for every region, whatever its length.
    pub default: TierWidths,
    pub max_regions: usize,
    /// Price of a region in seconds.
    pub region_s: f64,
}

/// The layouts of least time and price of regions that keep the limits, the first of equals; `None` when the space is
/// too large or none keeps the limits. O(candidates^chunks x entries), at most [`MOST_PRICES`].
pub(crate) fn best(space: &SearchSpace) -> Option<Priced> {
    let entries: usize = space.demand.files.iter().map(|file| file.entries.len()).sum();
    let mut assignments = entries.max(1);
    let mut lists = Vec::with_capacity(space.demand.files.len());
    for file in &space.demand.files {
        // Many chunks need not be looked at further: there is more than one candidate in any file with requests.
        if file.chunks() > MOST_PRICES.ilog2() as usize {
            return None;
        }
        lists.push(candidates(file, space.pricer.cluster, &[space.default]));
        for _ in 0..file.chunks() {
            assignments = assignments.checked_mul(lists[lists.len() - 1].len()).filter(|&n| n <= MOST_PRICES)?;
        }
    }
    // The rows of each file on its own, then all combinations of them.
    let files = space.demand.files.iter().zip(&lists);
    let ways: Vec<Vec<Rows>> = files.map(|(file, list)| all_rows(file, list, space)).collect();
    let mut chosen = vec![0; ways.len()];
    let mut best: Option<(f64, Priced)> = None;
    loop {
        let rows = ways.iter().zip(&chosen).map(|(ways, &way)| ways[way].clone()).collect();
        let priced = Priced::new(rows, space.demand, space.pricer, space.limits);
        let cost_s = priced.rank.time_s + space.region_s * priced.regions() as f64;
        if priced.rank.excess_bytes == 0 && best.as_ref().is_none_or(|(least_s, _)| cost_s < *least_s) {
            best = Some((cost_s, priced));
        }
        // The next combination, as an odometer goes.
        let Some(file) = (0..ways.len()).find(|&file| chosen[file] + 1 < ways[file].len()) else { break };
        chosen[file] += 1;
        chosen[..file].fill(0);
    }
    best.map(|(_, priced)| priced)
}

/// Every way to lay out one file, the default first.
fn all_rows(file: &FileDemand, list: &[TierWidths], space: &SearchSpace) -> Vec<Rows> {
    let mut ways = vec![vec![(0, space.default)]];
    let mut chosen = vec![0; file.chunks()];
    loop {
        let mut rows: Rows = Vec::new();
        for (chunk, &candidate) in chosen.iter().enumerate() {
            if rows.last().is_none_or(|last| last.1 != list[candidate]) {
                rows.push((file.edges[chunk], list[candidate]));
            }
        }
        let end = *file.edges.last().expect("a file has edges");
        let ends = rows.iter().skip(1).map(|row| row.0).chain([end]);
        let mut sized = rows.iter().zip(ends).map(|(&(offset, widths), end)| (widths, end - offset));
        if rows.len() <= space.max_regions.max(1) && sized.all(|(widths, bytes)| allowed(&widths, bytes, space)) {
            ways.push(rows);
        }
        let Some(chunk) = (0..chosen.len()).find(|&chunk| chosen[chunk] + 1 < list.len()) else { break };
        chosen[chunk] += 1;
        chosen[..chunk].fill(0);
    }
    ways
}

/// Whether a region of `bytes` may have these widths: as in the local search, its round is no longer than the region.
fn allowed(widths: &TierWidths, bytes: u64, space: &SearchSpace) -> bool {
    let cluster: &Cluster = space.pricer.cluster;
    let narrow = widths.as_slice().iter().all(|&width| width <= widest(bytes));
    *widths == space.default || narrow && fitted(widths, bytes, cluster) == *widths
}

#[cfg(test)]
mod tests {
    use crate::job::Job;
    use crate::job::input::{FileTrace, PlanOptions};
    use crate::planners::{by_name, propose};
    use crate::random::Random;
    use crate::regions::candidates::{candidates, fitted, widest};
    use stripewise_model::{Cluster, Op, Request, TierWidths, presets};

    /// One tier and up to three chunks, or two tiers and one chunk; sometimes with limits.
    fn instance(random: &mut Random) -> (Cluster, Vec<Request>) {
        let two = random.below(3) == 0;
        let mut cluster = match (two, random.below(3)) {
            (true, 0) => presets::set_b(1 + random.below(4) as u16, 1 + random.below(3) as u16),
            (true, _) => presets::set_p(1 + random.below(4) as u16, 1 + random.below(3) as u16, false),
            (false, n) => {
                let profile = presets::set_ab(1, 1).tiers[n as usize % 2].profile;
                presets::cluster(&[("only", 1 + random.below(5) as u16, profile)])
            }
        };
        let size = 4096 << random.below(6);
        let chunks = if two { 1 } else { 1 + random.below(3) };
        let granule = size.max(64 << 10);
        let requests: Vec<Request> = (0..1 + random.below(5))
            .map(|i| {
                let place = random.below(chunks * granule - size + 1);
                let offset = if random.below(2) == 0 { place / size * size } else { place };
                let op = if random.below(2) == 0 { Op::Read } else { Op::Write };
                let start_s = i as f64 * 0.5;
                Request { offset, size, op, process: random.below(4) as u32, start_s, end_s: start_s + 1.0 }
            })
            .collect();
        if random.below(4) == 0 {
            let extent = requests.iter().map(|r| r.offset + r.size).max().unwrap_or(0);
            cluster.tiers[0].capacity_bytes = Some(extent);
        }
        (cluster, requests)
    }

    /// Least time over all segmentations and candidates, by recursion from the front: another order and another way to
    /// price than that of the search.
    fn least_s(
        job: &Job,
        list: &[TierWidths],
        rows: &mut Vec<(u64, TierWidths)>,
        chunk: usize,
        tried: &mut usize,
    ) -> f64 {
        let file = &job.demand.files[0];
        let mut least = f64::INFINITY;
        for &widths in list {
            // The region may end at any later edge.
            for next in chunk + 1..=file.chunks() {
                let bytes = file.edges[next] - file.edges[chunk];
                let narrow = widths.as_slice().iter().all(|&width| width <= widest(bytes));
                if widths != job.default_widths() && !(narrow && fitted(&widths, bytes, &job.priced_as) == widths) {
                    continue;
                }
                rows.push((file.edges[chunk], widths));
                if next == file.chunks() {
                    if rows.windows(2).all(|pair| pair[0].1 != pair[1].1) && rows.len() <= job.options.max_regions {
                        *tried += 1;
                        let price = job.price(&[TierWidths::layout(rows, job.cluster).unwrap()]).unwrap();
                        least = if price.excess_bytes == 0 { least.min(price.predicted_s) } else { least };
                    }
                } else {
                    least = least.min(least_s(job, list, rows, next, tried));
                }
                rows.pop();
            }
        }
        least
    }

    #[test]
    fn plans_of_small_instances_are_as_good_as_the_best_of_all() {
        let mut random = Random(0xB0B);
        let (mut tried, mut several) = (0, 0);
        for number in 0..200 {
            let (cluster, requests) = instance(&mut random);
            let max_regions = 1 + random.below(3) as usize;
            let options = PlanOptions { simulations: 0, region_share: 0.0, max_regions, ..PlanOptions::default() };
            let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: None }];
            let job = Job::new(&files, &cluster, &options).unwrap();
            let list = candidates(&job.demand.files[0], &job.priced_as, &[job.default_widths()]);
            let least = least_s(&job, &list, &mut Vec::new(), 0, &mut tried);
            let planned = propose(by_name("regions").unwrap(), &job).unwrap().price.predicted_s;
            several += usize::from(job.demand.files[0].chunks() > 1);
            assert!(planned <= least * (1.0 + 1e-9), "instance {number}: {planned} against {least}");
        }
        // The instances are worth their name.
        assert!(several > 40 && tried > 5000, "{several} of several chunks, {tried} layouts");
    }
}
