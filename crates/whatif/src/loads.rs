//! What each server and process has to do under the layouts that files have and under those of a layout file.

use crate::advised::AdviceRequest;
use crate::error::WhatifError;
use crate::replay::{self, ThreadId};
use crate::target::cuts_s;
use std::collections::{BTreeMap, HashMap};
use stripewise_advise::{Below, ClusterFile, Sided, Sides};
use stripewise_import::About;
use stripewise_layout::{Layout, LayoutFile, ServerId};
use stripewise_simulate::{Did, SimulatedAccess, System, run_observed};
use stripewise_trace::{ProcessId, Trace};

/// What servers and processes have to do: first under the present layouts, then under those of the layout file.
#[derive(Debug)]
pub struct ServerLoads {
    /// Servers, root, and the files with both layouts.
    pub sides: Sides,
    /// By server, the metadata tier last where the servers have one. Exact.
    pub moved: [Vec<ServerTraffic>; 2],
    /// Both simulated once; `None` where there are too many requests to be held.
    pub simulated: Option<SimulatedLoads>,
}

/// What a server reads and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerTraffic {
    /// Sub-requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Two runs of the trace's requests with the same startup times.
#[derive(Debug)]
pub struct SimulatedLoads {
    /// Seconds that the run took, and bytes per second.
    pub totals: [(f64, f64); 2],
    /// Busy seconds of each server, the metadata tier last where a layout names it.
    pub busy_s: [Vec<f64>; 2],
    /// Seconds that each process waited for its requests.
    pub processes_s: BTreeMap<ProcessId, [f64; 2]>,
}

/// The present layout of a file is its first side.
fn layout_of(file: &Sided, side: usize) -> &Layout {
    if side == 0 { &file.present } else { &file.layout }
}

impl ServerLoads {
    /// Of the files of `trace` below the root; servers, root and present layouts are those of [`advise`](crate::advise()).
    /// The other layouts are those of the text `layout` of a layout file, which errors call `origin`.
    ///
    /// # Errors
    /// A line of the layout file; as [`advise`](crate::advise()).
    pub fn of(
        trace: &Trace,
        about: &About,
        asked: &AdviceRequest,
        layout: &str,
        origin: &str,
    ) -> Result<Self, WhatifError> {
        asked.with_options(|options, _| {
            let read = |cluster: &ClusterFile| LayoutFile::parse(layout, &cluster.names());
            let sides = Sides::of(trace, about, options, read)
                .map_err(|error| WhatifError::Asked(format!("{origin}:{}: {}", error.line, error.problem)))??;
            let moved = [0, 1].map(|side| moved(trace, &sides, side));
            let simulated = SimulatedLoads::of(trace, &sides)?;
            Ok(Self { sides, moved, simulated })
        })
    }
}

/// What each server has to do under one of the layouts. O(requests x their sub-requests).
fn moved(trace: &Trace, sides: &Sides, side: usize) -> Vec<ServerTraffic> {
    let servers: usize = sides.cluster.tiers.iter().map(|tier| usize::from(tier.servers)).sum();
    let mut moved = vec![ServerTraffic::default(); servers + usize::from(sides.cluster.meta.is_some())];
    for file in &sides.files {
        let layout = layout_of(file, side);
        for record in trace.stream(file.id) {
            for part in layout.split(record.offset, record.size) {
                let at = if part.server == ServerId::META { servers } else { part.server.index() };
                if let Some(server) = moved.get_mut(at) {
                    server.requests += 1;
                    server.bytes = server.bytes.saturating_add(part.len);
                }
            }
        }
    }
    moved
}

impl SimulatedLoads {
    fn of(trace: &Trace, sides: &Sides) -> Result<Option<Self>, WhatifError> {
        let below = Below::new(trace, &sides.root);
        if below.is_large() {
            return Ok(None);
        }
        let cluster = sides.cluster.cluster();
        let requests = below.files(true);
        // Files whose names are no text have no layout that could be compared.
        if requests.is_empty() {
            return Ok(None);
        }
        let by_id: HashMap<u32, &Sided> = sides.files.iter().map(|file| (file.id, file)).collect();
        let cuts_s = cuts_s(&requests, &cluster, sides.cluster.default.width_bytes)?;
        let threads = replay::threads(trace, &requests, false);
        let (ids, did): (Vec<ThreadId>, Vec<Vec<Did>>) = threads.into_iter().unzip();
        let program = stripewise_simulate::replay(did, &replay::nanoseconds(&cuts_s), false).program;
        let mut made = Self { totals: [(0.0, 0.0); 2], busy_s: [Vec::new(), Vec::new()], processes_s: BTreeMap::new() };
        for side in 0..2 {
            let layouts = requests.iter().map(|file| by_id.get(&file.id).map(|file| layout_of(file, side).clone()));
            let layouts: Option<Vec<Layout>> = layouts.collect();
            let layouts = layouts.ok_or_else(|| WhatifError::Asked("a file of the trace has no layout".to_owned()))?;
            let processes_s = &mut made.processes_s;
            let observe = |process: u32, _: &SimulatedAccess, issued_s: f64, ended_s: f64| {
                if let Some(&(rank, pid, _, program)) = ids.get(process as usize) {
                    processes_s.entry((program, rank, pid)).or_default()[side] += ended_s - issued_s;
                }
            };
            let outcome = run_observed(&cluster, &layouts, &program, &System::default(), 1, observe)?.outcome;
            made.totals[side] = (outcome.makespan_s, outcome.throughput());
            made.busy_s[side] = outcome.servers.iter().map(|server| server.busy_s).collect();
        }
        Ok(Some(made))
    }
}
