//! [`advise`]: from a log and the servers to advice.
//!
//! All files are planned together (`planning`), since they share the servers. What was planned is then held against what
//! there is (`case`).

use crate::advice::Advice;
use crate::case::ComparedCase;
use crate::cluster_file::ClusterFile;
use crate::error::AdviseError;
use crate::findings;
use crate::gather::Gathered;
use crate::interval::Gain;
use crate::job::JobFacts;
use crate::look::Looked;
use crate::options::{AdviceOptions, ServersFrom};
use crate::passes::{Pass, PassResult, Passes};
use crate::sides::servers;
use std::path::Path;
use stripewise_import::About;
use stripewise_layout::LayoutFile;
use stripewise_planner::auto;
use stripewise_planner::planners::PLANNERS;
use stripewise_trace::Trace;

/// Advises on the files of a log: some passes over its records, as long as [`stripewise_planner::plan_by`] takes for at
/// most 20,000 distinct requests, and some 28 simulations of 16,000.
///
/// # Errors
/// [`AdviseError`] with the remedy.
pub fn advise(trace: &Trace, about: &About, options: &AdviceOptions) -> Result<Advice, AdviseError> {
    advise_by(trace, about, options, trace)
}

/// [`advise`] where others have the requests: `trace` is asked for its files and processes alone, `about` has the
/// counters and layouts of all files, and the records are read by `passes`. The advice is the same.
///
/// # Errors
/// [`AdviseError`] with the remedy.
pub fn advise_by(
    trace: &Trace,
    about: &About,
    options: &AdviceOptions,
    passes: &dyn Passes,
) -> Result<Advice, AdviseError> {
    if let Some(name) = options.planner.filter(|name| *name != auto::AUTO)
        && PLANNERS.iter().all(|planner| planner.name() != name)
    {
        let known: Vec<&str> = PLANNERS.iter().map(|planner| planner.name()).collect();
        return Err(AdviseError::Planner(format!(
            "no planner '{name}'; there is {}, {}",
            auto::AUTO,
            known.join(", ")
        )));
    }
    let (servers, targets, from) = servers(about, options)?;
    let mut gathered = gather(trace, about, options.root, passes)?;
    let job = JobFacts::of(trace, about, &gathered);
    if gathered.files.is_empty() {
        return match options.root {
            Some(_) => Err(AdviseError::NothingMoved { root: gathered.root }),
            None => Ok(of_nothing_moved(servers, from, job, &gathered)),
        };
    }
    let case = ComparedCase::new(&servers, from, &targets, about, options, passes, &mut gathered)?;
    case.advice(&gathered, job, about, options)
}

/// What stands above every result on a log, as [`advise_by`] has it for all files. One pass over the records.
///
/// # Errors
/// [`AdviseError::Passes`].
pub fn job_facts(trace: &Trace, about: &About, passes: &dyn Passes) -> Result<JobFacts, AdviseError> {
    Ok(JobFacts::of(trace, about, &gather(trace, about, None, passes)?))
}

/// How the files below the root were used. One pass over the records.
fn gather(trace: &Trace, about: &About, root: Option<&Path>, passes: &dyn Passes) -> Result<Gathered, AdviseError> {
    let mut looked = Looked::default();
    passes.make(&Pass::Look(root.map(|root| root.as_os_str().to_owned())), &mut |found| {
        if let PassResult::Looked(part) = found {
            looked.join(part);
        }
    })?;
    Ok(Gathered::new(trace, about, root, looked.finished()))
}

/// Of a log without reads and writes: what else it shows.
fn of_nothing_moved(servers: ClusterFile, servers_from: ServersFrom, job: JobFacts, gathered: &Gathered) -> Advice {
    let processes = usize::try_from(job.processes).unwrap_or(usize::MAX);
    Advice {
        layout: LayoutFile { pool: servers.name.clone(), files: Vec::new() },
        cluster: servers,
        servers_from,
        lacking: Some("the log has no read or write of a file: there is nothing to lay out".to_owned()),
        job,
        reproduced: None,
        labels: Vec::new(),
        root: gathered.root.clone(),
        rows: Vec::new(),
        directories: Vec::new(),
        present_bytes_per_s: 0.0,
        recommended_bytes_per_s: 0.0,
        gain: Gain::NONE,
        run_gain: None,
        space: Vec::new(),
        causes: Vec::new(),
        planner: "none".to_owned(),
        findings: findings::of_run(&gathered.all, processes, None),
        processes: 0.0,
        bytes: 0,
        left_out: gathered.left_out,
        targets: None,
        rules: Vec::new(),
    }
}
