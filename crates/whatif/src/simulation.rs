//! Simulating a trace under the layouts that its files have and under those of a layout file.

use crate::error::WhatifError;
use crate::replay;
use crate::servers::Servers;
use crate::system_options::SystemOptions;
use crate::target::{Target, cuts_s, nothing_below};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use stripewise_advise::{FileRequests, below, common_directory};
use stripewise_layout::{Layout, LayoutFile};
use stripewise_simulate::{Did, Estimate, Packed, Repeated, Replayed, StepProgram, System, repeat};
use stripewise_store::Store;
use stripewise_trace::Trace;

/// What was simulated, and what came of it.
#[derive(Debug)]
pub struct Simulation {
    /// The servers.
    pub target: Target,
    /// Paths of the files.
    pub files: Vec<String>,
    /// Processes, each with one request in flight.
    pub processes: usize,
    /// Nodes that they are on.
    pub nodes: usize,
    /// From the begin of the first to the end of the last thing that is replayed, in the trace.
    pub traced_s: f64,
    /// Phases of the program.
    pub phases: usize,
    /// Collective calls.
    pub collectives: usize,
    /// Under the present layouts.
    pub present: Repeated,
    /// Under those of the layout file, if there is one.
    pub layout: Option<Repeated>,
    /// Throughput of the latter by that of the former. Both are drawn with the same seeds, so they are compared pair by pair.
    pub ratio: Option<Estimate>,
}

/// Simulates the requests of `trace` below `root` on the pool of the pool file, under the present layouts, and under those of
/// the layout file `layout` if there is one.
///
/// # Errors
/// The pool, layout file, trace or what stands around does not allow it.
pub fn simulate(
    trace: &Trace,
    pool_file: &Path,
    root: &Path,
    layout: Option<&Path>,
    around: &SystemOptions,
) -> Result<Simulation, WhatifError> {
    let store = Store::of_file(pool_file)?;
    let target = Target::of_pool(store.pool(), &HashMap::new())?;
    let present = |_, file: &FileRequests| Ok(Layout::clone(&*store.present_layout(Path::new(&file.path))?));
    simulation(trace, target, root, layout, around, &present)
}

/// As [`simulate`], on the servers of a cluster file, whose default layout all files have; below the directory of all files
/// without a `root`.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_on_cluster(
    trace: &Trace,
    cluster: &Path,
    root: Option<&Path>,
    layout: Option<&Path>,
    around: &SystemOptions,
) -> Result<Simulation, WhatifError> {
    let cluster = Servers::load(cluster)?.cluster;
    let root = root.map_or_else(|| common_directory(trace), Path::to_owned);
    let present = |index, _: &FileRequests| Ok(cluster.default_layout(index));
    simulation(trace, Target::of_cluster(&cluster), &root, layout, around, &present)
}

/// The layout that a file has now: by its number and itself.
type Present<'a> = dyn Fn(usize, &FileRequests) -> Result<Layout, WhatifError> + 'a;

fn simulation(
    trace: &Trace,
    target: Target,
    root: &Path,
    layout: Option<&Path>,
    around: &SystemOptions,
    present: &Present,
) -> Result<Simulation, WhatifError> {
    let read = |path| target.layouts(path).map(|written| (path, written));
    let written = layout.map(read).transpose()?;
    let files = below(trace, root);
    if files.is_empty() {
        return Err(nothing_below(root));
    }
    let present = files.iter().enumerate().map(|(index, file)| present(index, file));
    let present = present.collect::<Result<Vec<Layout>, WhatifError>>()?;
    let other = written.map(|(path, written)| other(path, &written, &files, &present)).transpose()?;
    let threads = replay::threads(trace, &files, around.metadata.is_some() || target.name_costs.is_some());
    let threads: Vec<Vec<Did>> = threads.into_iter().map(|thread| thread.1).collect();
    let processes = threads.len();
    let span_ns = |of: fn(&Did) -> u64| threads.iter().flatten().map(of);
    let (first_ns, last_ns) = (span_ns(|did| did.start_ns).min(), span_ns(|did| did.end_ns).max());
    let traced_s = last_ns.unwrap_or(0).saturating_sub(first_ns.unwrap_or(0)) as f64 * 1e-9;
    let cuts_s = cuts_s(&files, &target.cluster, target.default_width_bytes)?;
    let Replayed { program, calls, barriers, .. } =
        stripewise_simulate::replay(threads, &replay::nanoseconds(&cuts_s), around.think);
    let hosts = trace.processes().iter().map(|process| process.host.as_str()).filter(|host| !host.is_empty());
    let hosts: HashSet<&str> = hosts.collect();
    let per_node = around.processes_per_node.unwrap_or_else(|| processes.div_ceil(hosts.len().max(1)) as u32);
    let runs = Runs { system: around.system(&target, per_node, files.len())?, target: &target, program, around };
    let present = runs.under(&present)?;
    let layout = other.map(|layouts| runs.under(&layouts)).transpose()?;
    let ratio = layout.as_ref().map(|layout| {
        let pairs = layout.throughputs.iter().zip(&present.throughputs).filter(|pair| *pair.1 > 0.0);
        Estimate::of(&pairs.map(|(new, old)| new / old).collect::<Vec<_>>())
    });
    Ok(Simulation {
        files: files.into_iter().map(|file| file.path).collect(),
        processes: runs.program.processes(),
        nodes: processes.div_ceil(per_node.max(1) as usize),
        traced_s,
        phases: barriers + 1,
        collectives: calls,
        present,
        layout,
        ratio,
        target,
    })
}

/// The layouts of the layout file `path`; a file that it does not name keeps its own.
fn other(
    path: &Path,
    written: &LayoutFile,
    files: &[FileRequests],
    present: &[Layout],
) -> Result<Vec<Layout>, WhatifError> {
    let entry = |file: &FileRequests| {
        let entry = written.files.iter().find(|entry| entry.path.matches(file.path.as_bytes()));
        entry.map(|entry| &entry.layout)
    };
    if files.iter().all(|file| entry(file).is_none()) {
        return Err(WhatifError::Asked(format!("{} names no file that the trace reads or writes", path.display())));
    }
    Ok(files.iter().zip(present).map(|(file, present)| entry(file).unwrap_or(present).clone()).collect())
}

/// What is run again and again.
struct Runs<'a> {
    target: &'a Target,
    program: Packed,
    system: System,
    around: &'a SystemOptions,
}

impl Runs<'_> {
    fn under(&self, layouts: &[Layout]) -> Result<Repeated, WhatifError> {
        let SystemOptions { seed, repeat: runs, .. } = *self.around;
        Ok(repeat(&self.target.holding, layouts, &self.program, &self.system, seed, runs)?)
    }
}
