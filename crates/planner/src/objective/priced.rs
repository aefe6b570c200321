//! [`Priced`]: layouts that have one width for all servers of a tier, with their price; and [`RegionPlans`], several of them.

use crate::job::demand::Demand;
use crate::objective::capacity::Limits;
use crate::objective::pricing::{Pricer, ServerLoad};
use std::cmp::Ordering;
use stripewise_layout::Layout;
use stripewise_model::TierWidths;

/// Regions of every file: first byte and widths.
pub(crate) type FileRegions = Vec<Vec<(u64, TierWidths)>>;

/// What is compared: bytes beyond limits first, then seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rank {
    pub excess_bytes: u64,
    /// Time of the run and the price of the regions.
    pub time_s: f64,
    /// The price of the regions alone.
    pub regions_s: f64,
}

impl Rank {
    /// Better first.
    pub(crate) fn order(&self, other: &Rank) -> Ordering {
        self.excess_bytes.cmp(&other.excess_bytes).then(self.time_s.total_cmp(&other.time_s))
    }

    /// Whether this is better by more than rounding.
    pub(crate) fn beats(&self, other: &Rank) -> bool {
        match self.excess_bytes.cmp(&other.excess_bytes) {
            Ordering::Less => true,
            Ordering::Equal => self.time_s < other.time_s * (1.0 - 1e-9),
            Ordering::Greater => false,
        }
    }
}

/// Layouts with their price.
#[derive(Debug, Clone)]
pub(crate) struct Priced {
    pub rows: FileRegions,
    pub layouts: Vec<Layout>,
    pub load: ServerLoad,
    pub rank: Rank,
}

impl Priced {
    /// Regions of all files.
    pub(crate) fn regions(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }

    /// Prices rows as the layouts that they are, equal neighbours as one: nothing moves by that.
    pub(crate) fn new(mut rows: FileRegions, demand: &Demand, pricer: &Pricer, limits: &Limits) -> Self {
        rows.iter_mut().for_each(|rows| rows.dedup_by(|next, kept| next.1 == kept.1));
        let layouts: Vec<Layout> = rows
            .iter()
            .map(|rows| TierWidths::layout(rows, pricer.cluster).expect("rows are ascending rounds of the cluster"))
            .collect();
        let mut load = pricer.no_load();
        let mut bytes = vec![0_u64; pricer.lanes().servers()];
        for ((file, layout), rows) in demand.files.iter().zip(&layouts).zip(&rows) {
            let added = pricer.add_layout_load(&mut load, &file.entries, layout);
            added.expect("the layout is of the pricer's cluster");
            for (index, &(offset, widths)) in rows.iter().enumerate() {
                let end = rows.get(index + 1).map_or(u64::MAX, |next| next.0);
                let region = pricer.file_server_bytes(file, &widths, offset, end);
                bytes.iter_mut().zip(region).for_each(|(sum, b)| *sum = sum.saturating_add(b));
            }
        }
        let rank = Rank { excess_bytes: limits.excess(&bytes), time_s: pricer.time_s(&load), regions_s: 0.0 };
        Self { rows, layouts, load, rank }
    }
}

/// What a search for regions found.
pub(crate) struct RegionPlans {
    /// Plans that keep the limits, cheapest first by time and price of regions; the default's and HARL's among them.
    pub plans: Vec<Priced>,
    pub by_default: Priced,
    /// Seconds that a region must save.
    pub region_s: f64,
}

impl RegionPlans {
    /// The layouts of the cheapest plan, one for each unit.
    pub(crate) fn cheapest(&self) -> &[Layout] {
        &self.plans[0].layouts
    }
}
