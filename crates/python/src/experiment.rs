//! Workloads and devices that are described instead of recorded: simulating, pricing and planning them without a pool.
//! The papers' experiments (`stripewise reproduce`) and the accuracy table are made of these.

use crate::convert::to_python;
use crate::error::raise;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use serde_json::json;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{
    BusyTimes, Cluster, Hashed, Native, Op, OpProfile, Profile, Request, Rounds, theta_of_native_s,
};
use stripewise_planner::harl::HarlOptions;
use stripewise_planner::{PlanOptions, chen, equal_depth_widths, harl_layouts, layouts_by};
use stripewise_simulate::{Described, Network, SimulatedAccess, SimulatedStep, SimulationOptions};

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
type RegionRows = Vec<(u64, Vec<(u16, u64)>)>;

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

fn cluster_of(tiers: Vec<Devices>) -> PyResult<Cluster> {
    let tiers = tiers.into_iter().map(|tier| {
        let operation = |(startup_min_s, startup_max_s, transfer_s_per_byte): Operation| {
            let operation = OpProfile { startup_min_s, startup_max_s, transfer_s_per_byte, head: None };
            let network_s_per_byte = tier.network_s_per_byte;
            if operation.is_valid() && network_s_per_byte.is_finite() && network_s_per_byte >= 0.0 {
                return Ok(operation);
            }
            let name = &tier.name;
            let numbers = [startup_min_s, startup_max_s, transfer_s_per_byte, network_s_per_byte];
            Err(raise(format!("tier {name}: {numbers:?} are no times of a device")))
        };
        let (read, write) = (operation(tier.read)?, operation(tier.write)?);
        Ok((tier.name, tier.servers, Profile { read, write, network_s_per_byte: tier.network_s_per_byte }))
    });
    let tiers: Vec<_> = tiers.collect::<PyResult<_>>()?;
    Cluster::numbered(tiers).ok_or_else(|| raise("more than 65535 servers"))
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
    /// O(steps).
    fn read(&self) -> PyResult<Described> {
        let rows = self.process.len()?;
        let others = [self.file.len()?, self.offset.len()?, self.size.len()?, self.kind.len()?, self.think_s.len()?];
        if others.iter().any(|&len| len != rows) {
            return Err(raise(format!("columns of {rows} and {others:?} rows; all must have as many")));
        }
        let (process, file) = (self.process.as_array(), self.file.as_array());
        let (offset, size, kind) = (self.offset.as_array(), self.size.as_array(), self.kind.as_array());
        let think_s = self.think_s.as_array();
        let step = |row: usize| {
            let step = op_of(kind[row])?.map_or(SimulatedStep::Barrier, |op| {
                let (file, offset, size, think_s) = (file[row], offset[row], size[row], think_s[row]);
                SimulatedStep::Access(SimulatedAccess { file, offset, size, op, think_s })
            });
            Ok((process[row], step))
        };
        Ok(Described { steps: (0..rows).map(step).collect::<PyResult<_>>()? })
    }

    fn requests(&self) -> PyResult<Vec<Vec<Request>>> {
        self.read()?.requests().map_err(raise)
    }
}

/// The requests of each file beside what says where it is.
fn paired<'a, T>(
    requests: &'a [Vec<Request>],
    placed: &'a [T],
) -> PyResult<impl Iterator<Item = (&'a [Request], &'a T)>> {
    if requests.len() > placed.len() {
        return Err(raise(format!("{} files, but only {} layouts were given", requests.len(), placed.len())));
    }
    Ok(requests.iter().map(Vec::as_slice).zip(placed))
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
    let (cluster, layouts, described) = (cluster_of(cluster)?, layouts_of(layouts)?, steps.read()?);
    let options = SimulationOptions { seed, network: network_of(network)? };
    let outcome = py.detach(|| described.simulate(&cluster, &layouts, &options, stroke_bytes)).map_err(raise)?;
    let latency = outcome.latency;
    let document = json!({
        "makespan_s": outcome.makespan_s,
        "read_bytes": outcome.read_bytes,
        "written_bytes": outcome.written_bytes,
        "bytes_per_s": outcome.throughput(),
        "latency_s": { "mean": latency.mean_s, "p50": latency.p50_s, "p99": latency.p99_s, "max": latency.max_s },
        "barriers_s": outcome.barriers_s,
        "servers": outcome.servers.iter().map(|server| json!({
            "requests": server.requests(),
            "bytes": server.bytes,
            "busy_s": server.busy_s,
            "waiting_s": server.waiting_s,
            "link_busy_s": server.link_in_busy_s + server.link_out_busy_s,
        })).collect::<Vec<_>>(),
    });
    to_python(py, &document)
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
    let loads = BusyTimes::of_files(paired(&requests, &layouts)?, &cluster).map_err(raise)?;
    let document = json!({
        "theta_s": loads.theta_s(processes),
        "latency_s": loads.latency_mean_s(),
        "bottleneck_s": loads.bottleneck_s(),
    });
    to_python(py, &document)
}

/// Where a native layout puts the bytes of a file.
#[derive(FromPyObject)]
pub(crate) enum NativePlacement {
    /// As a layout, but a server may stand in a round several times.
    Rounds(RegionRows),
    /// Objects of equal size, filled in stripes over `count` of them at a time.
    Hashed(Objects),
}

/// Objects whose servers are chosen by a hash.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Objects {
    unit_bytes: u64,
    count: u64,
    object_bytes: u64,
    servers: Vec<u16>,
}

fn native_of(placed: NativePlacement) -> PyResult<Native> {
    let native = match placed {
        NativePlacement::Rounds(regions) => Rounds::new(regions).map(Native::Rounds),
        NativePlacement::Hashed(Objects { unit_bytes, count, object_bytes, servers }) => {
            Hashed::new(unit_bytes, count, object_bytes, servers).map(Native::Hashed)
        }
    };
    native.map_err(raise)
}

/// Mean seconds a request of described requests with `processes` in flight, each file placed natively. Equals the
/// `theta_s` of `price_generated` where no server stands twice in a round.
#[pyfunction]
pub(crate) fn price_native(
    cluster: Vec<Devices>,
    files: Vec<NativePlacement>,
    steps: StepColumns<'_>,
    processes: f64,
) -> PyResult<f64> {
    let (cluster, requests) = (cluster_of(cluster)?, steps.requests()?);
    let natives: Vec<Native> = files.into_iter().map(native_of).collect::<PyResult<_>>()?;
    theta_of_native_s(paired(&requests, &natives)?, &cluster, processes).map_err(raise)
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
    let options = PlanOptions { default_width_bytes, network: network_of(network)?, ..PlanOptions::default() };
    let layouts = py.detach(|| layouts_by(planner, &requests, &cluster, &options)).map_err(raise)?;
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
    let layouts = py.detach(|| harl_layouts(&requests, &cluster, &options)).map_err(raise)?;
    to_python(py, &json!(layouts.iter().map(regions_of).collect::<Vec<_>>()))
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
    equal_depth_widths(requests.iter().flatten(), &cluster, round_bytes, block_bytes).map_err(raise)
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
    let costs = chen::costs(&chen::ChenPattern { processes, servers, startup_s, part_s });
    let none = || raise(format!("{processes} processes on {servers} servers: at least one of each"));
    let chen::ChenCosts { one_dh_s, one_dv_s, two_d_s, best } = costs.ok_or_else(none)?;
    Ok((one_dh_s, one_dv_s, two_d_s, best))
}
