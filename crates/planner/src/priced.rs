//! [`Priced`]: layouts that have one width for all servers of a tier, with their price.

use crate::capacity::Limits;
use crate::demand::Demand;
use crate::pricing::{Load, Pricer};
use crate::refine::Rank;
use crate::search::Rows;
use stripewise_layout::Layout;
use stripewise_model::TierWidths;

/// Layouts with their price.
#[derive(Debug, Clone)]
pub(crate) struct Priced {
    pub rows: Rows,
    pub layouts: Vec<Layout>,
    pub load: Load,
    pub rank: Rank,
}

impl Priced {
    /// Regions of all files.
    pub(crate) fn regions(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }

    /// Prices rows as the layouts that they are, equal neighbours as one: nothing moves by that.
    pub(crate) fn new(mut rows: Rows, demand: &Demand, pricer: &Pricer, limits: &Limits) -> Self {
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
