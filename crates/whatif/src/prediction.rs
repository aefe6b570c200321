//! What layouts give, simulated with the requests of a trace: bytes per second while requests are in flight.

use crate::error::WhatifError;
use crate::planning::Planning;
use std::collections::HashMap;
use std::path::Path;
use stripewise_advise::FileRequests;
use stripewise_layout::Layout;
use stripewise_model::{Cluster, Op, Request};
use stripewise_simulate::{ClosedLoop, SimulatedAccess, SimulationOptions, simulate_observed};
use stripewise_trace::Trace;

/// Bytes per second of time in which any request of the kind was in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bandwidths {
    /// Of reads.
    pub read: f64,
    /// Of writes.
    pub write: f64,
    /// Of both.
    pub both: f64,
}

/// Under the present layouts and under those of the layout file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeforeAfter {
    /// Under the present layouts.
    pub before: Bandwidths,
    /// Under those of the layout file.
    pub after: Bandwidths,
}

/// What two lists of layouts give.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// In all.
    pub total: BeforeAfter,
    /// Each file's path, and each region of its new layout.
    pub files: Vec<(String, Vec<BeforeAfter>)>,
}

/// What the present layouts of the pool's files and those of the layout file `layout` give with the requests of `trace`
/// below `root`. A file that the layout file does not name keeps its layout. `cuts_s` are where the program's phases meet: no request of the next begins before those of the last have
/// ended.
///
/// # Errors
/// As [`Planning::on_pool`].
pub fn predict(
    trace: &Trace,
    pool_file: &Path,
    root: &Path,
    layout: &Path,
    cuts_s: &[f64],
) -> Result<Prediction, WhatifError> {
    let planning = Planning::on_pool(trace, pool_file, root, true)?;
    let written = planning.target.layouts(layout)?;
    let old: Vec<Layout> = planning.present.iter().map(|layout| (**layout).clone()).collect();
    let new = planning.files.iter().zip(&old).map(|(file, old)| {
        let entry = written.files.iter().find(|entry| entry.path.matches(file.path.as_bytes()));
        entry.map_or(old, |entry| &entry.layout).clone()
    });
    let new: Vec<Layout> = new.collect();
    Sides { cluster: &planning.target.holding, old: &old, new: &new }.of(&planning.files, cuts_s)
}

struct Sides<'a> {
    cluster: &'a Cluster,
    old: &'a [Layout],
    new: &'a [Layout],
}

/// Requests of one kind: their bytes, and the spans in which they were in flight.
#[derive(Default)]
struct InFlight {
    bytes: u64,
    spans: Vec<(f64, f64)>,
}

impl InFlight {
    /// Bytes per second of time in which any was in flight.
    fn rate(mut self) -> f64 {
        self.spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut busy_s, mut until) = (0.0, f64::NEG_INFINITY);
        for (start, end) in self.spans {
            busy_s += (end - until.max(start)).max(0.0);
            until = until.max(end);
        }
        if busy_s > 0.0 { self.bytes as f64 / busy_s } else { 0.0 }
    }
}

impl Sides<'_> {
    fn of(&self, files: &[FileRequests], cuts_s: &[f64]) -> Result<Prediction, WhatifError> {
        let slices: Vec<&[Request]> = files.iter().map(|file| file.requests.as_slice()).collect();
        let workload = ClosedLoop::replay(&slices, cuts_s, false);
        let (mut before, mut after) = (self.run(&workload, self.old)?, self.run(&workload, self.new)?);
        let mut at = |place| BeforeAfter { before: before.rates(place), after: after.rates(place) };
        let total = at(None);
        let files = files.iter().zip(0..).map(|(file, index)| {
            let regions = 0..self.new[index as usize].regions().len();
            (file.path.clone(), regions.map(|region| at(Some((index, region)))).collect())
        });
        Ok(Prediction { total, files: files.collect() })
    }

    /// Runs the workload under `layouts`; requests are sorted by the region of the *new* layout that they begin in, so
    /// that the two sides compare.
    fn run(&self, workload: &ClosedLoop, layouts: &[Layout]) -> Result<Observed, WhatifError> {
        let mut observed = Observed::default();
        let note = |_, access: &SimulatedAccess, issued_s: f64, ended_s: f64| {
            let region = self.new[access.file as usize].region_at(access.offset);
            for at in [None, Some((access.file, region))] {
                for op in [None, Some(access.op)] {
                    let kind = observed.0.entry((at, op)).or_default();
                    kind.bytes += access.size;
                    kind.spans.push((issued_s, ended_s));
                }
            }
        };
        let options = SimulationOptions { seed: 1, ..SimulationOptions::default() };
        simulate_observed(self.cluster, layouts, workload, &options, note)?;
        Ok(observed)
    }
}

/// File and region.
type Place = (u32, usize);

/// What was in flight, by place (or everywhere) and operation (or both).
#[derive(Default)]
struct Observed(HashMap<(Option<Place>, Option<Op>), InFlight>);

impl Observed {
    fn rates(&mut self, at: Option<Place>) -> Bandwidths {
        let mut rate = |op| self.0.remove(&(at, op)).map_or(0.0, InFlight::rate);
        Bandwidths { read: rate(Some(Op::Read)), write: rate(Some(Op::Write)), both: rate(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_nothing_is_in_flight_does_not_count() {
        let kind = |spans: &[(f64, f64)]| InFlight { bytes: 100, spans: spans.to_vec() };
        assert_eq!(kind(&[(4.0, 6.0), (0.0, 2.0), (1.0, 3.0)]).rate(), 20.0);
        assert_eq!(kind(&[(0.0, 10.0), (2.0, 3.0)]).rate(), 10.0);
        assert_eq!(kind(&[]).rate(), 0.0);
    }
}
