//! Workloads and devices that are described instead of recorded: simulating, pricing and planning them without a pool.
//! The papers' experiments (`stripewise reproduce`) and the accuracy table are made of these.

use crate::convert::to_python;
use crate::error::raise;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use serde_json::json;
use std::collections::HashSet;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{BusyTimes, Cluster, CostModel, Op, OpProfile, Profile, Request, Tier};
use stripewise_planner::auto::{AUTO, auto};
use stripewise_planner::harl::{self, HarlOptions};
use stripewise_planner::song::{BlockCosts, Blocks, quantile_widths};
use stripewise_planner::{FileTrace, Job, PlanOptions, chen, planners};
use stripewise_simulate::{
    ClosedLoop, Links, Network, Queue, ServerLink, SimulatedAccess, SimulatedStep, SimulationOptions, Startup, System,
    TierDevice, run, simulate,
};

/// What one operation costs on a device: startup from .. to in seconds, seconds per byte.
type Operation = (f64, f64, f64);

/// Servers of one profile.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Devices {
    name: String,
    servers: u16,
    read: Operation,
    write: Operation,
    network_s_per_byte: f64,
}

/// A layout as `[(offset, [(server, width_bytes)])]`.
pub(crate) type RegionRows = Vec<(u64, Vec<(u16, u64)>)>;

/// The steps of all processes, one column a field; the steps of a process follow each other in its order.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct StepColumns<'py> {
    process: PyReadonlyArray1<'py, u32>,
    file: PyReadonlyArray1<'py, u32>,
    offset: PyReadonlyArray1<'py, u64>,
    size: PyReadonlyArray1<'py, u64>,
    /// As in [`READ`], [`WRITE`] and [`BARRIER`].
    kind: PyReadonlyArray1<'py, u8>,
    think_s: PyReadonlyArray1<'py, f64>,
}

const READ: u8 = 0;
const WRITE: u8 = 1;
const BARRIER: u8 = 2;

pub(crate) fn cluster_of(tiers: Vec<Devices>) -> PyResult<Cluster> {
    let mut next = 0_u16;
    let tiers = tiers.into_iter().map(|tier| {
        let first = next;
        next = next.checked_add(tier.servers).ok_or_else(|| raise("more than 65535 servers"))?;
        let operation = |(startup_min_s, startup_max_s, transfer_s_per_byte): Operation| -> PyResult<OpProfile> {
            let numbers = [startup_min_s, startup_max_s, transfer_s_per_byte, tier.network_s_per_byte];
            if numbers.iter().any(|number| !number.is_finite() || *number < 0.0) || startup_min_s > startup_max_s {
                return Err(raise(format!("tier {}: {numbers:?} are no times of a device", tier.name)));
            }
            Ok(OpProfile { startup_min_s, startup_max_s, transfer_s_per_byte })
        };
        let (read, write) = (operation(tier.read)?, operation(tier.write)?);
        Ok(Tier {
            servers: (first..next).map(ServerId).collect(),
            profile: Profile { read, write, network_s_per_byte: tier.network_s_per_byte },
            name: tier.name,
            capacity_bytes: None,
        })
    });
    Ok(Cluster { tiers: tiers.collect::<PyResult<_>>()? })
}

fn layouts_of(layouts: Vec<RegionRows>) -> PyResult<Vec<Layout>> {
    let stripe = |(server, width_bytes)| Stripe { server: ServerId(server), width_bytes };
    let region = |(offset, round): (u64, Vec<(u16, u64)>)| (offset, round.into_iter().map(stripe).collect());
    layouts.into_iter().map(|layout| Layout::new(layout.into_iter().map(region)).map_err(raise)).collect()
}

fn regions_of(layout: &Layout) -> serde_json::Value {
    let regions = layout.regions().iter().map(|region| {
        let stripes = region.stripes().iter().map(|stripe| json!([stripe.server.0, stripe.width_bytes]));
        json!([region.offset(), stripes.collect::<Vec<_>>()])
    });
    json!(regions.collect::<Vec<_>>())
}

fn network_of(name: &str) -> PyResult<Network> {
    match name {
        "device" => Ok(Network::InBeta),
        "link" => Ok(Network::Link),
        _ => Err(raise(format!("network '{name}': there is device and link"))),
    }
}

/// The operation of a step; `None` for a barrier.
fn op_of(kind: u8) -> PyResult<Option<Op>> {
    match kind {
        READ => Ok(Some(Op::Read)),
        WRITE => Ok(Some(Op::Write)),
        BARRIER => Ok(None),
        _ => Err(raise(format!("step of kind {kind}: there is 0 (read), 1 (write) and 2 (barrier)"))),
    }
}

impl StepColumns<'_> {
    /// Number of steps, once all columns are known to have as many.
    fn rows(&self) -> PyResult<usize> {
        let rows = self.process.len()?;
        let others = [self.file.len()?, self.offset.len()?, self.size.len()?, self.kind.len()?, self.think_s.len()?];
        if others.iter().any(|&len| len != rows) {
            return Err(raise(format!("columns of {rows} and {others:?} rows; all must have as many")));
        }
        Ok(rows)
    }

    /// One list of steps a process. O(steps).
    fn workload(&self) -> PyResult<ClosedLoop> {
        let rows = self.rows()?;
        let (process, file) = (self.process.as_array(), self.file.as_array());
        let (offset, size, kind) = (self.offset.as_array(), self.size.as_array(), self.kind.as_array());
        let think_s = self.think_s.as_array();
        let processes = process.iter().max().map_or(0, |&last| last as usize + 1);
        // A process without steps costs nothing but its place, which a number made up at random must not fill memory
        // by.
        if processes > 1 << 24 {
            return Err(raise(format!("process {}: at most {} are simulated", processes - 1, 1 << 24)));
        }
        let mut steps: Vec<Vec<SimulatedStep>> = vec![Vec::new(); processes];
        for row in 0..rows {
            let step = op_of(kind[row])?.map_or(SimulatedStep::Barrier, |op| {
                let (file, offset, size, think_s) = (file[row], offset[row], size[row], think_s[row]);
                SimulatedStep::Access(SimulatedAccess { file, offset, size, op, think_s })
            });
            steps[process[row] as usize].push(step);
        }
        Ok(ClosedLoop { processes: steps })
    }

    /// The requests of each file, without times; phases that barriers part follow each other on the clock. O(steps).
    pub(crate) fn requests(&self) -> PyResult<Vec<Vec<Request>>> {
        let rows = self.rows()?;
        let (process, file) = (self.process.as_array(), self.file.as_array());
        let (offset, size, kind) = (self.offset.as_array(), self.size.as_array(), self.kind.as_array());
        let files = file.iter().max().map_or(0, |&last| last as usize + 1);
        if files > rows {
            return Err(raise(format!("file {}: there are only {rows} steps", files - 1)));
        }
        let mut requests = vec![Vec::new(); files];
        let mut turns: Vec<f64> = vec![0.0; process.iter().max().map_or(0, |&last| last as usize + 1)];
        for row in 0..rows {
            let Some(op) = op_of(kind[row])? else { continue };
            let turn = &mut turns[process[row] as usize];
            let request = Request {
                offset: offset[row],
                size: size[row],
                op,
                process: process[row],
                // As if every request took a second: the planners then know which processes run side by side.
                start_s: *turn,
                end_s: *turn + 1.0,
            };
            *turn += 1.0;
            requests[file[row] as usize].push(request);
        }
        Ok(requests)
    }
}

/// Runs described processes on described devices. `network` is where the network's time goes: `link` (a link of its
/// own a server) or `device` (in the device's queue, as emulated servers have it). With `stroke_bytes` the servers are
/// disks of that size: they serve in sweeps, and a startup depends on the distance from the request before it.
#[pyfunction]
#[pyo3(signature = (cluster, layouts, steps, *, seed = 1, network = "link", stroke_bytes = None))]
pub(crate) fn simulate_generated<'py>(
    py: Python<'py>,
    cluster: Vec<Devices>,
    layouts: Vec<RegionRows>,
    steps: StepColumns<'py>,
    seed: u64,
    network: &str,
    stroke_bytes: Option<u64>,
) -> PyResult<Bound<'py, PyAny>> {
    let (cluster, layouts, workload) = (cluster_of(cluster)?, layouts_of(layouts)?, steps.workload()?);
    let options = SimulationOptions { seed, network: network_of(network)? };
    let outcome = py.detach(|| match stroke_bytes {
        None => simulate(&cluster, &layouts, &workload, &options),
        Some(stroke_bytes) => {
            let system = disks(&cluster, stroke_bytes, options.network);
            run(&cluster, &layouts, &workload, &system, seed).map(|report| report.outcome)
        }
    });
    let outcome = outcome.map_err(raise)?;
    let latency = outcome.latency;
    let document = json!({
        "makespan_s": outcome.makespan_s,
        "read_bytes": outcome.read_bytes,
        "written_bytes": outcome.written_bytes,
        "bytes_per_s": outcome.throughput(),
        "latency_s": { "mean": latency.mean_s, "p50": latency.p50_s, "p99": latency.p99_s, "max": latency.max_s },
        "barriers_s": outcome.barriers_s,
        "servers": outcome.servers.iter().map(|server| json!({
            "requests": server.requests,
            "bytes": server.bytes,
            "busy_s": server.busy_s,
            "waiting_s": server.waiting_s,
            "link_busy_s": server.link_in_busy_s + server.link_out_busy_s,
        })).collect::<Vec<_>>(),
    });
    to_python(py, &document)
}

/// Servers with elevators whose startups depend on distance, within the range of their profiles.
fn disks(cluster: &Cluster, stroke_bytes: u64, network: Network) -> System {
    let devices = cluster.tiers.iter().map(|tier| TierDevice {
        queue: Queue::Elevator,
        startup: Startup::seek_within(&tier.profile.read, &tier.profile.write, stroke_bytes),
    });
    let server = match network {
        Network::InBeta => ServerLink::InBeta,
        Network::Link => ServerLink::OfProfile,
    };
    System { devices: devices.collect(), links: Links { server, ..Links::default() }, ..System::default() }
}

/// What the cost model says of described requests: mean seconds a request with `processes` in flight, the mean latency
/// of one alone, and the busiest server's seconds a request.
#[pyfunction]
pub(crate) fn price_generated<'py>(
    py: Python<'py>,
    cluster: Vec<Devices>,
    layouts: Vec<RegionRows>,
    steps: StepColumns<'py>,
    processes: f64,
) -> PyResult<Bound<'py, PyAny>> {
    let (cluster, layouts, requests) = (cluster_of(cluster)?, layouts_of(layouts)?, steps.requests()?);
    if requests.len() > layouts.len() {
        return Err(raise(format!("{} files, but only {} layouts were given", requests.len(), layouts.len())));
    }
    let model = CostModel::new(&cluster);
    let mut loads = BusyTimes::new(model.servers());
    let mut count = 0.0;
    for (requests, layout) in requests.iter().zip(&layouts) {
        for request in requests {
            loads.add_on_layout(&model, layout, request).map_err(raise)?;
            count += 1.0;
        }
    }
    let document = json!({
        "theta_s": loads.theta_s(processes),
        "latency_s": if count > 0.0 { loads.latency_sum_s() / count } else { 0.0 },
        "bottleneck_s": loads.bottleneck_s(),
    });
    to_python(py, &document)
}

/// The layouts that the planner named `planner` makes for described requests, one a file: the planner's own, also where
/// the default would be better. `auto` takes the best of all.
#[pyfunction]
#[pyo3(signature = (cluster, steps, planner, *, default_width_bytes = 65536, network = "link"))]
pub(crate) fn plan_generated<'py>(
    py: Python<'py>,
    cluster: Vec<Devices>,
    steps: StepColumns<'py>,
    planner: &str,
    default_width_bytes: u64,
    network: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let (cluster, requests) = (cluster_of(cluster)?, steps.requests()?);
    let network = network_of(network)?;
    let named = planners::by_name(planner);
    if named.is_none() && planner != AUTO {
        let names: Vec<&str> = planners::PLANNERS.iter().map(|planner| planner.name()).collect();
        return Err(raise(format!("no planner '{planner}'; there is {}, {AUTO}", names.join(", "))));
    }
    let layouts = py.detach(|| {
        let files: Vec<FileTrace> = requests
            .iter()
            .enumerate()
            .map(|(number, requests)| FileTrace { name: format!("file.{number}"), requests, size_bytes: None })
            .collect();
        let processes = requests.iter().flatten().map(|request| request.process).collect::<HashSet<_>>().len();
        let processes = Some(processes.max(1) as f64);
        let options = PlanOptions { default_width_bytes, processes, network, ..PlanOptions::default() };
        let job = Job::new(&files, &cluster, &options)?;
        match named {
            Some(planner) => planner.plan(&job),
            None => auto(&job).map(|comparison| comparison.chosen().layouts.clone()),
        }
    });
    let layouts = layouts.map_err(raise)?;
    to_python(py, &json!(layouts.iter().map(regions_of).collect::<Vec<_>>()))
}

/// HARL's layouts as in the paper, one a file, with `epsilon` as the least coefficient of variation that a change of it
/// is measured against: the paper does not say what a change from none is.
#[pyfunction]
pub(crate) fn plan_harl_generated<'py>(
    py: Python<'py>,
    cluster: Vec<Devices>,
    steps: StepColumns<'py>,
    epsilon: f64,
) -> PyResult<Bound<'py, PyAny>> {
    let (cluster, requests) = (cluster_of(cluster)?, steps.requests()?);
    let options = HarlOptions { epsilon, ..HarlOptions::default() };
    let layouts = py.detach(|| {
        let plans = requests.iter().map(|requests| harl::plan(requests, &cluster, &options).layout(&cluster));
        plans.collect::<Result<Vec<_>, _>>()
    });
    to_python(py, &json!(layouts.map_err(raise)?.iter().map(regions_of).collect::<Vec<_>>()))
}

/// Song's width in bytes for each of `servers` equal servers of a tier: the paper's rule on rounds of `round_bytes` and
/// blocks of `block_bytes`, with the device's costs alone. Requests of all files are taken together.
#[pyfunction]
pub(crate) fn equal_depth_generated(
    cluster: Vec<Devices>,
    steps: StepColumns<'_>,
    round_bytes: u64,
    block_bytes: u64,
) -> PyResult<Vec<u64>> {
    let (cluster, requests) = (cluster_of(cluster)?, steps.requests()?);
    let [tier] = &cluster.tiers[..] else {
        return Err(raise(format!("{} tiers: the rule is for servers that are all alike", cluster.tiers.len())));
    };
    if block_bytes == 0 || !round_bytes.is_multiple_of(block_bytes) || round_bytes / block_bytes > 1 << 20 {
        return Err(raise(format!("a round of {round_bytes} bytes is not made of blocks of {block_bytes}")));
    }
    let count = (round_bytes / block_bytes) as usize;
    let mut costs = BlockCosts::new(Blocks { count: count.max(1), bytes: block_bytes });
    requests.iter().flatten().for_each(|request| costs.add(request.op, request.offset, request.size, 1.0));
    let costs_s = costs.costs_s(&Profile { network_s_per_byte: 0.0, ..tier.profile });
    let widths = quantile_widths(&costs_s, tier.servers.len().max(1));
    Ok(widths.into_iter().map(|blocks| blocks as u64 * block_bytes).collect())
}

/// Chen's costs in seconds of `processes` that each access `part_s` seconds of data at once on equal servers: 1-DH,
/// 1-DV, 2-D, and the least of any number of groups with that number.
#[pyfunction]
pub(crate) fn chen_costs(
    processes: u64,
    servers: u64,
    startup_s: f64,
    part_s: f64,
) -> PyResult<(f64, f64, f64, (u64, f64))> {
    if processes == 0 || servers == 0 {
        return Err(raise(format!("{processes} processes on {servers} servers: at least one of each")));
    }
    let of = chen::ChenPattern { processes, servers, startup_s, part_s };
    let rest = chen::Rest::Floor;
    Ok((chen::one_dh_s(&of), chen::one_dv_s(&of), chen::two_d_s(&of, rest), chen::best_groups(&of, rest)))
}
