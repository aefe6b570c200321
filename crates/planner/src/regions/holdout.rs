//! The price of a region, by evidence.
//!
//! Random requests hit some places more often than others by chance. A plan with cheap regions follows that, looks
//! better on the requests that it was made from, and is worse and unreadable on the next run's. So the requests are
//! dealt to two halves ([`Demand::halves`](crate::job::demand::Demand::halves)); plans are made from each half at several
//! prices of a region and priced on the other half. Real heat is in both, chance is not: regions that do not serve the
//! other half better than fewer of them have followed chance.

use crate::regions::duals::{Iteration, Segmentation, segmentations};
use crate::regions::hottest::{hottest_chunks_first, hottest_first};
use crate::regions::price_table::PriceTable;
use crate::regions::refine::{PlanState, Search};

/// What a region may cost, as multiples of the least price.
pub(crate) const DEARER: [f64; 4] = [1.0, 4.0, 16.0, 64.0];

/// Times on the other half that differ by no more than this share are equal: then the dearest regions, and so the fewest.
const TIE: f64 = 5e-3;

/// The factor of [`DEARER`] to plan with: the greatest of those that are best on the other half. `search` is that of all
/// requests. About the time that the planner's first step takes, for each half.
pub(crate) fn dearer(search: &Search) -> f64 {
    let halves = search.demand.halves();
    let pricers = halves.each_ref().map(|half| search.pricer.on(half));
    let tables = [0, 1].map(|half| -> Vec<PriceTable> {
        let files = halves[half].files.iter().zip(search.tables);
        files.map(|(file, table)| PriceTable::new(file, table.candidates.clone(), &pricers[half])).collect()
    });
    let searches =
        [0, 1].map(|half| Search { demand: &halves[half], pricer: &pricers[half], tables: &tables[half], ..*search });
    // On the other half by price, both ways added up.
    let mut held_out_s = [0.0; DEARER.len()];
    for (mine, other) in [(&searches[0], &searches[1]), (&searches[1], &searches[0])] {
        let states: Vec<PlanState> =
            starts(mine, &DEARER, 16).iter().map(|start| mine.settle_in(mine.state(start))).collect();
        for (sum, factor) in held_out_s.iter_mut().zip(DEARER) {
            let priced = Search { region_s: mine.region_s * factor, ..*mine };
            let best = states.iter().min_by(|a, b| priced.rank(a).order(&priced.rank(b))).expect("there are starts");
            let best = priced.join_neighbours(best.clone());
            *sum += other.pricer.time_s(&other.state(&best.segmentation(halves[0].files.len())).load);
        }
    }
    let best = held_out_s.iter().fold(f64::INFINITY, |best, &time_s| best.min(time_s));
    let chosen = held_out_s.iter().rposition(|&time_s| time_s <= best * (1.0 + TIE));
    DEARER[chosen.unwrap_or(0)]
}

/// Segmentations to start from: one or two at each price of a region (ascending factors, the dearest comes first), then
/// the hottest bytes on the fastest tier where that is limited, coarse and fine.
pub(crate) fn starts(search: &Search, factors: &[f64], rounds: usize) -> Vec<Segmentation> {
    let (demand, pricer, limits) = (search.demand, search.pricer, search.limits);
    let mut starts = Vec::new();
    for factor in factors.iter().rev() {
        let region_s = search.region_s * factor;
        let settings = Iteration { region_s, max_regions: search.max_regions, rounds, keep: 2 };
        starts.extend(segmentations(search.tables, pricer, limits, &settings));
    }
    let divided = starts.first().cloned();
    for requests in [0.5, 2.0] {
        starts.extend(divided.as_ref().and_then(|of| hottest_first(of, requests, demand, pricer, limits)));
        for regions in [search.max_regions / 8, search.max_regions] {
            starts.extend(hottest_chunks_first(regions, requests, demand, pricer, limits));
        }
    }
    // The hottest bytes may begin and end within regions, which makes more of them.
    starts.retain(|start| start.iter().all(|spans| spans.len() <= search.max_regions.max(1)));
    starts
}
