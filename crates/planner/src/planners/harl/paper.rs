//! HARL (He et al.) as the paper has it: regions by change of request size (Algorithm 1), a pair of widths for each
//! (Algorithm 2), equal neighbours merged. Corrections and ambiguities are those of math A.6 and A.7.
//!
//! Two things differ from the print on purpose: bytes per server are counted exactly (Figure 5 of the paper is wrong
//! in several rows, math A.4), and the phase of a byte is its absolute offset modulo the round, as everywhere in
//! Stripewise; the paper's phase is the case where a region starts at a multiple of its round.

use crate::planners::harl::stripe_search::{Sampling, SearchOptions, StripeChoice, search};
use stripewise_layout::{Layout, LayoutError};
use stripewise_model::{Cluster, Request, TierWidths};

/// Settings of HARL. The default is the paper's, with the adaptive threshold on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HarlOptions {
    /// Relative change of the coefficient of variation that starts a new region (1.0 = 100 %).
    pub threshold: f64,
    /// Least coefficient of variation that a change is measured against: without it one odd request among equal ones
    /// would start a region, since any change from 0 is infinite.
    pub epsilon: f64,
    /// Doubles the threshold until there is at most one region for this many bytes of the file; `None` leaves it alone.
    pub chunk_bytes: Option<u64>,
    /// Doubles the threshold until there are at most this many regions.
    pub max_regions: usize,
    /// Algorithm 1 as printed: the request that reveals the change stays in the old region.
    pub literal: bool,
    /// Algorithm 2. `extra` is off by default: the paper tries only `s > h`. A region whose exact search would take
    /// long is searched on samples, see [`StripeChoice::error_bound`].
    pub search: SearchOptions,
    /// Width in bytes of the layout for a file without requests.
    pub default_width_bytes: u64,
}

impl Default for HarlOptions {
    fn default() -> Self {
        let sampling = Sampling { verify_evaluations: 20_000_000, ..Sampling::default() };
        Self {
            threshold: 1.0,
            epsilon: 0.05,
            chunk_bytes: Some(64 << 20),
            max_regions: usize::MAX,
            literal: false,
            search: SearchOptions { extra: false, sampling: Some(sampling), ..SearchOptions::default() },
            default_width_bytes: 64 << 10,
        }
    }
}

/// A region as Algorithm 1 cuts it.
#[derive(Debug, Clone, PartialEq)]
pub struct Division {
    /// First byte; 0 for the first region, else the offset of its first request.
    pub offset: u64,
    /// Mean size of its requests in bytes.
    pub mean_request_bytes: f64,
    /// Its requests, as a range of the sorted requests.
    pub requests: std::ops::Range<usize>,
}

/// A region with the widths of Algorithm 2, before merging.
#[derive(Debug, Clone, PartialEq)]
pub struct HarlRegion {
    /// Where it is and what its requests are like.
    pub division: Division,
    /// Its widths, their cost, and what finding them took.
    pub found: StripeChoice,
}

/// HARL's plan for one file.
#[derive(Debug, Clone, PartialEq)]
pub struct HarlPlan {
    /// The regions of Algorithm 1.
    pub regions: Vec<HarlRegion>,
    /// The RST: `(offset, widths)`, neighbours with equal widths merged.
    pub rows: Vec<(u64, TierWidths)>,
    /// The threshold that was used in the end.
    pub threshold: f64,
}

impl HarlPlan {
    /// Cost of all requests in HARL's own model, in seconds: the sum over the regions.
    pub fn cost_s(&self) -> f64 {
        self.regions.iter().map(|region| region.found.cost_s).sum()
    }

    /// The plan as a layout on `cluster`.
    ///
    /// # Errors
    /// Those of [`Layout::new`]; none for the cluster that was planned for, if it has servers.
    pub fn layout(&self, cluster: &Cluster) -> Result<Layout, LayoutError> {
        TierWidths::layout(&self.rows, cluster)
    }
}

/// Mean and population variance, one value after the other (Welford): exactly 0 for equal values.
#[derive(Default)]
struct Running {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Running {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (value - self.mean);
    }

    /// Standard deviation over mean.
    fn variation(&self) -> f64 {
        if self.mean > 0.0 { (self.squares / self.count).max(0.0).sqrt() / self.mean } else { 0.0 }
    }
}

/// Algorithm 1 with one threshold: cuts `sorted` (ascending by offset, then size) where the coefficient of variation
/// of the sizes in the region changes by at least `threshold` of what it was. Requests of equal offset are never
/// separated. O(requests).
fn divide_once(sorted: &[Request], threshold: f64, epsilon: f64, literal: bool) -> Vec<Division> {
    let mut divisions: Vec<Division> = Vec::new();
    let mut first = 0;
    let mut running = Running::default();
    let mut before = 0.0;
    let mut close = |first: usize, end: usize, mean_request_bytes: f64| {
        let offset = if divisions.is_empty() { 0 } else { sorted[first].offset };
        divisions.push(Division { offset, mean_request_bytes, requests: first..end });
    };
    // Printed form: the change was seen, the region ends after the request that showed it.
    let mut ending = false;
    for (i, request) in sorted.iter().enumerate() {
        let can_start = i > first && request.offset > sorted[i - 1].offset;
        if ending && can_start {
            close(first, i, running.mean);
            (first, running, ending) = (i, Running::default(), false);
        }
        let mean_before = running.mean;
        running.add(request.size as f64);
        let variation = running.variation();
        if i - first >= 2 && !ending {
            let change = (variation - before).abs();
            if change > 0.0 && change >= threshold * before.max(epsilon) {
                if literal {
                    ending = true;
                } else if can_start {
                    close(first, i, mean_before);
                    first = i;
                    running = Running::default();
                    running.add(request.size as f64);
                }
            }
        }
        before = running.variation();
    }
    if first < sorted.len() {
        close(first, sorted.len(), running.mean);
    }
    divisions
}

/// Algorithm 1: the regions of a file and the threshold that gave them. `sorted` ascends by offset, then by size, and
/// has no request of size 0. The threshold doubles until the regions are few enough for [`HarlOptions::chunk_bytes`]
/// and [`HarlOptions::max_regions`]; an `epsilon` of 0 can keep it from ever being enough, then the last division
/// counts. O(requests) a threshold.
pub fn divide(sorted: &[Request], options: &HarlOptions) -> (Vec<Division>, f64) {
    let extent = sorted.iter().map(|request| request.offset + request.size).max().unwrap_or(0);
    let by_size = options.chunk_bytes.map_or(usize::MAX, |chunk| extent.div_ceil(chunk.max(1)).max(1) as usize);
    let limit = by_size.min(options.max_regions.max(1));
    let mut threshold = options.threshold;
    let mut divisions = divide_once(sorted, threshold, options.epsilon, options.literal);
    // A variation is at most sqrt(requests), so 64 doublings are beyond any epsilon that matters.
    for _ in 0..64 {
        if divisions.len() <= limit {
            break;
        }
        threshold *= 2.0;
        divisions = divide_once(sorted, threshold, options.epsilon, options.literal);
    }
    (divisions, threshold)
}

/// Plans one file with HARL. A request counts for the region in which it begins. More than two tiers are seen as a
/// slow and a fast class ([`crate::planners::harl::stripe_search::TwoClasses`]); with one tier the best width of all
/// its servers is searched. Without any request the plan is the default layout.
pub fn plan(requests: &[Request], cluster: &Cluster, options: &HarlOptions) -> HarlPlan {
    let mut sorted: Vec<Request> = requests.iter().filter(|request| request.size > 0).copied().collect();
    sorted.sort_by_key(|request| (request.offset, request.size));
    let (divisions, threshold) = divide(&sorted, options);
    let regions: Vec<HarlRegion> = divisions
        .into_iter()
        .map(|division| {
            let found = search(&sorted[division.requests.clone()], cluster, &options.search);
            HarlRegion { division, found }
        })
        .collect();
    let mut rows: Vec<(u64, TierWidths)> =
        regions.iter().map(|region| (region.division.offset, region.found.widths)).collect();
    if rows.is_empty() {
        rows.push((0, TierWidths::uniform(cluster, options.default_width_bytes)));
    }
    rows.dedup_by_key(|&mut (_, widths)| widths);
    HarlPlan { regions, rows, threshold }
}
