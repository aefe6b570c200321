//! `auto`: every planner of the list, priced by one model; the best few simulated; and why the winner won.
//!
//! All simulations replay the same requests with the same startup times, and not those that planners choose by
//! themselves, so a planner that simulates has no luck of its own to bring. Nothing here depends on the order in which
//! threads end, and equal figures are told apart by the list, so the winner is the same on every machine.

use crate::error::PlanError;
use crate::job::demand::FileDemand;
use crate::job::{Job, Price};
use crate::plan::outcome::Rehearsal;
use crate::planners::PLANNERS;
use crate::planners::planner::{Planner, checked};
use crate::regions::rehearse::{self, Stage};
use crate::why::{Why, why};
use rayon::prelude::*;
use stripewise_layout::{Layout, Region, ServerId};

/// Name under which the command line knows it.
pub const AUTO: &str = "auto";

/// Where it comes from, for the list of planners.
pub const SOURCE: &str = "Stripewise (docs/planners.md)";

/// What it does, for the list of planners.
pub const SUMMARY: &str = "prices what all of them plan, simulates the best few, takes the best and says why";

/// Layouts that are simulated, the default's apart.
const FINALISTS: usize = 5;

/// Draws of startup times that each is simulated with.
pub(crate) const DRAWS: u64 = 4;

/// First of these draws, far from those that planners use.
const FIRST_DRAW: u64 = 1 << 32;

/// Predicted times that differ by less are equal: they may be off by rounding, and differently on other machines.
const SAME_PRICE: f64 = 1e-9;

/// Simulated times that differ by less are equal: then the order of the list decides.
const SAME_TIME: f64 = 1e-3;

/// What one planner has to offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// One layout per file.
    pub layouts: Vec<Layout>,
    /// Their price.
    pub price: Price,
    /// Simulated makespan in seconds, mean over the draws; `None` when it was not among those simulated.
    pub simulated_s: Option<f64>,
}

impl Offer {
    /// Regions of all files.
    pub fn regions(&self) -> usize {
        self.layouts.iter().map(|layout| layout.regions().len()).sum()
    }
}

/// A planner and what it has to offer, or why nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Contender {
    /// Name of the planner.
    pub planner: &'static str,
    /// Its layouts as it made them, also when they are worse than the default's or do not fit.
    pub offer: Result<Offer, PlanError>,
}

/// The comparison of all planners.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// In the order of [`PLANNERS`].
    pub contenders: Vec<Contender>,
    /// Index of the one that was taken.
    pub winner: usize,
    /// What was simulated to decide; `None` when the model alone did.
    pub rehearsal: Option<Rehearsal>,
    /// What the winner relieves, beside the default and beside the next best that is slower and fits.
    pub why: Vec<Why>,
}

impl Comparison {
    /// The layouts that were taken.
    pub fn chosen(&self) -> &Offer {
        self.contenders[self.winner].offer.as_ref().expect("only an offer can win")
    }

    /// By how much the time of an offer is above the winner's (0.25: a quarter longer): predicted, and simulated where
    /// both were.
    pub fn loss(&self, offer: &Offer) -> (f64, Option<f64>) {
        let by = |time_s: f64, least_s: f64| if least_s > 0.0 { time_s / least_s - 1.0 } else { 0.0 };
        let best = self.chosen();
        let simulated = offer.simulated_s.zip(best.simulated_s).map(|(time_s, least_s)| by(time_s, least_s));
        (by(offer.price.predicted_s, best.price.predicted_s), simulated)
    }
}

/// Runs every planner on `job` and takes the best. Never predicted, nor where simulations are allowed simulated, to be
/// slower than the default where that one keeps the limits itself. As long as all planners take, and up to
/// 24 simulations of at most 40,000 requests.
///
/// # Errors
/// [`PlanError::NoFit`] when no planner's layouts keep the space limits.
pub fn auto(job: &Job) -> Result<Comparison, PlanError> {
    let contenders = PLANNERS.iter().map(|&planner| Contender { planner: planner.name(), offer: offer(planner, job) });
    let mut contenders: Vec<Contender> = contenders.collect();
    let finalists = finalists(&contenders, job)?;
    let mut winner = finalists[0];
    let mut rehearsal = None;
    if job.options.simulations > 0 && job.demand.files.iter().any(|file| !file.entries.is_empty()) {
        // The default is simulated for comparison even where it cannot be taken.
        let mut simulated = finalists.clone();
        simulated.extend((contenders[0].offer.is_ok() && !finalists.contains(&0)).then_some(0));
        let stage = Stage::new(job.files, &job.demand, &job.priced_as, job.options, 0.0);
        let layouts: Vec<Vec<Layout>> =
            simulated.iter().map(|&index| offered(&contenders, index).layouts.clone()).collect();
        let times: Vec<f64> = layouts.par_iter().map(|layouts| simulated_s(&stage, layouts)).collect();
        // Planners that chose the same layouts have the same time.
        for offer in contenders.iter_mut().filter_map(|contender| contender.offer.as_mut().ok()) {
            offer.simulated_s = layouts.iter().position(|layouts| *layouts == offer.layouts).map(|at| times[at]);
        }
        winner = fastest(&finalists, &contenders, job);
        let time_s = |index: usize| contenders[index].offer.as_ref().ok().and_then(|offer| offer.simulated_s);
        rehearsal = time_s(0).zip(time_s(winner)).map(|(default_s, planned_s)| Rehearsal {
            requests: stage.requests(),
            simulations: simulated.len() * DRAWS as usize,
            default_s,
            planned_s,
        });
    }
    let mut comparison = Comparison { contenders, winner, rehearsal, why: Vec::new() };
    comparison.why = reasons(&comparison, job);
    Ok(comparison)
}

/// Mean makespan in seconds over the draws that decide.
pub(crate) fn simulated_s(stage: &Stage, layouts: &[Layout]) -> f64 {
    stage.mean_makespan_s(layouts, FIRST_DRAW, DRAWS)
}

fn offered(contenders: &[Contender], index: usize) -> &Offer {
    contenders[index].offer.as_ref().expect("finalists have offers")
}

fn offer(planner: &dyn Planner, job: &Job) -> Result<Offer, PlanError> {
    checked(planner, job).map(|(layouts, price)| Offer { layouts, price, simulated_s: None })
}

/// Those that may win, cheapest first, of equal layouts and equal prices the first in the list.
fn finalists(contenders: &[Contender], job: &Job) -> Result<Vec<usize>, PlanError> {
    let offers = contenders.iter().enumerate().filter_map(|(i, c)| c.offer.as_ref().ok().map(|offer| (i, offer)));
    let mut fitting: Vec<(usize, &Offer)> = Vec::new();
    let mut least_excess = None;
    for (index, offer) in offers {
        if offer.price.excess_bytes > 0 {
            least_excess = Some(least_excess.unwrap_or(u64::MAX).min(offer.price.excess_bytes));
        } else if fitting.iter().all(|(_, other)| other.layouts != offer.layouts) {
            fitting.push((index, offer));
        }
    }
    let default = job.price(&job.default_layouts())?;
    let bound_s = if default.excess_bytes == 0 { default.predicted_s } else { f64::INFINITY };
    fitting.retain(|(_, offer)| offer.price.predicted_s <= bound_s);
    // The default has one region a file, and is among them where any file is even.
    fitting.retain(|(_, offer)| offer.layouts.iter().zip(&job.demand.files).all(is_as_even));
    let mut chosen = Vec::new();
    while !fitting.is_empty() && chosen.len() < FINALISTS {
        let least_s = fitting.iter().map(|(_, offer)| offer.price.predicted_s).fold(f64::INFINITY, f64::min);
        let first = fitting.iter().position(|(_, offer)| offer.price.predicted_s <= least_s * (1.0 + SAME_PRICE));
        chosen.push(fitting.remove(first.expect("the least is there")).0);
    }
    if chosen.is_empty() {
        return Err(PlanError::NoFit { excess_bytes: least_excess.unwrap_or(default.excess_bytes) });
    }
    Ok(chosen)
}

/// Whether a file in which nothing tells one part from another has one region, that of the metadata tier apart.
fn is_as_even((layout, file): (&Layout, &FileDemand)) -> bool {
    let on_meta = |region: &&Region| region.stripes().iter().all(|stripe| stripe.server == ServerId::META);
    !file.is_even || layout.regions().len() - layout.regions().iter().filter(on_meta).count() <= 1
}

/// The finalist of least simulated time, where each region beyond one a file must save what [`PlanOptions::region_share`]
/// says: plans are simulated with the requests that they were made from, and regions can follow chance in those. So of those
/// that are equal for the [rehearsal](rehearse::SAME_TIME) that of fewest regions is taken, of those the fastest, of equally fast
/// ones the first in the list.
///
/// [`PlanOptions::region_share`]: crate::PlanOptions::region_share
fn fastest(finalists: &[usize], contenders: &[Contender], job: &Job) -> usize {
    let of = |index: usize| offered(contenders, index);
    let further = |index: usize| of(index).regions().saturating_sub(job.files.len()) as f64 / job.files.len() as f64;
    let price = |index: usize| 1.0 + job.options.region_share.max(0.0) * further(index);
    let time_s = |index: usize| of(index).simulated_s.unwrap_or(f64::INFINITY) * price(index);
    let least_s = finalists.iter().map(|&index| time_s(index)).fold(f64::INFINITY, f64::min);
    let within = |most_s: f64| finalists.iter().copied().filter(move |&index| time_s(index) <= most_s);
    let fewest = within(least_s * (1.0 + rehearse::SAME_TIME)).map(|index| of(index).regions()).min();
    let few: Vec<usize> = finalists.iter().copied().filter(|&index| Some(of(index).regions()) == fewest).collect();
    let least_s = few.iter().map(|&index| time_s(index)).fold(f64::INFINITY, f64::min);
    few.into_iter().filter(|&index| time_s(index) <= least_s * (1.0 + SAME_TIME)).min().expect("the least is there")
}

/// The winner beside the default and beside the next best.
fn reasons(comparison: &Comparison, job: &Job) -> Vec<Why> {
    let best = comparison.chosen();
    let mut others: Vec<&Contender> = comparison.contenders.iter().take(1).collect();
    let rivals = comparison.contenders.iter().skip(1).filter(|contender| {
        contender.offer.as_ref().is_ok_and(|offer| {
            // There is no reason to give for one that is as fast.
            let (predicted, simulated) = comparison.loss(offer);
            offer.price.excess_bytes == 0 && simulated.unwrap_or(predicted) > SAME_TIME
        })
    });
    let order = |contender: &&Contender| {
        let offer = contender.offer.as_ref().expect("rivals have offers");
        (offer.simulated_s.unwrap_or(f64::INFINITY), offer.price.predicted_s)
    };
    others.extend(rivals.min_by(|a, b| {
        let (a, b) = (order(a), order(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    }));
    let reason = |contender: &&Contender| {
        let offer = contender.offer.as_ref().ok().filter(|offer| offer.layouts != best.layouts)?;
        why(job, contender.planner, (&offer.layouts, &offer.price), (&best.layouts, &best.price))
    };
    others.iter().filter_map(reason).collect()
}
