//! [`plan`]: layouts for all files together.

use crate::cluster_file::ClusterFile;
use crate::error::AdviseError;
use crate::fit::{Fit, Timings};
use crate::gaps::Gaps;
use crate::gather::Gathered;
use crate::kinds::FileKind;
use crate::options::AdviceOptions;
use crate::passes::Passes;
use crate::served::Served;
use crate::served_run::{SEEDS, thinned};
use crate::surveying::{HELD, Requested, requested};
use stripewise_layout::Layout;
use stripewise_model::{Op, Request};
use stripewise_planner::{FileTrace, Job, PlanError, PlanOptions, PlannedBy, auto, plan_by};

/// Files up to which all planners are asked; more are planned by kind.
const FEW_FILES: usize = 64;

/// Files that are planned; where there are more, each kind is stood for by some of its files, in proportion.
const PLANNED: usize = 256;

/// What was planned, and from what.
pub(crate) struct Planned {
    /// Name of the planner.
    pub planner: &'static str,
    /// Bound of the error of pricing a sample.
    pub sampled: Option<f64>,
    /// Of every file.
    pub layouts: Vec<Layout>,
    /// A sample of the requests of every file.
    pub sample: Vec<Vec<Request>>,
    /// The same, by who answered them.
    pub served: Served,
    /// What servers cost.
    pub fit: Fit,
    /// Where the run's phases end, in seconds.
    pub cuts_s: Vec<f64>,
    /// Requests in flight.
    pub processes: f64,
    /// The program's own time.
    pub gaps: Gaps,
}

/// What is known of the present.
pub(crate) struct Present<'a> {
    /// Layout of every file.
    pub layouts: &'a [Layout],
    /// What is to be held against it; `None` is what planners make.
    pub given: Option<Vec<Layout>>,
    /// The servers are known.
    pub is_known: bool,
    /// The log times requests.
    pub is_timed: bool,
}

/// Plans all files together. More requests than a few are surveyed; of more files than a few each kind is stood for by
/// some. Profiles are fitted first. Where the servers are not known, or layouts are given, nothing is planned.
pub(crate) fn plan(
    gathered: &Gathered,
    present: &Present,
    passes: &dyn Passes,
    kinds: &[FileKind],
    servers: &ClusterFile,
    options: &AdviceOptions,
) -> Result<Planned, AdviseError> {
    let planner = options.planner.unwrap_or(if gathered.files.len() <= FEW_FILES { auto::AUTO } else { "regions" });
    let plan_options = PlanOptions {
        default_width_bytes: servers.default.width_bytes,
        max_entries: 6000,
        max_chunks: 512,
        simulations: 120,
        ..PlanOptions::default()
    };
    // Times of requests that were made from counters are none of single requests.
    let timed = gathered.files.iter().map(|file| present.is_timed && !file.counted).collect();
    let (requested, gaps) = requested(gathered, timed, passes, &plan_options)?;
    let few = gathered.files.len() <= PLANNED;
    let with = |job: &Job, sample: &[Vec<Request>], fitted: Fitted| -> Result<Planned, PlanError> {
        let run = Run { sample: sample.to_vec(), cuts_s: job.cuts_s().to_vec(), processes: job.processes(), gaps };
        if let Some(given) = &present.given {
            return Ok(planned("none", None, given.clone(), run, fitted));
        }
        if !present.is_known {
            return Ok(planned("none", None, present.layouts.to_vec(), run, fitted));
        }
        if few {
            let PlannedBy { planner, plan, .. } = plan_by(planner, job)?;
            let layouts = plan.files.iter().map(|file| file.layout.clone()).collect();
            return Ok(planned(planner, plan.sampled.map(|of| of.error_bound), layouts, run, fitted));
        }
        let standing = stand_ins(kinds);
        let chosen: Vec<usize> = standing.iter().flatten().copied().collect();
        let bytes = |file: usize| gathered.files[file].used.end as f64;
        let part = chosen.iter().map(|&file| bytes(file)).sum::<f64>()
            / (0..gathered.files.len()).map(bytes).sum::<f64>().max(1.0);
        let mut cluster = fitted.fit.cluster.clone();
        for capacity_bytes in cluster.tiers.iter_mut().filter_map(|tier| tier.capacity_bytes.as_mut()) {
            *capacity_bytes = (*capacity_bytes as f64 * part) as u64;
        }
        let requests: Vec<Vec<Request>> = chosen.iter().map(|&file| sample[file].clone()).collect();
        let requests = thinned(&requests, HELD as usize);
        let named = chosen.iter().map(|&file| (gathered.files[file].path.clone(), Some(gathered.files[file].used.end)));
        let traces: Vec<FileTrace> = named.zip(requests.iter().map(Vec::as_slice)).map(trace_of).collect();
        let plan_options = PlanOptions { processes: Some(run.processes.max(1.0)), ..plan_options };
        let PlannedBy { planner, plan, .. } = plan_by(planner, &Job::new(&traces, &cluster, &plan_options)?)?;
        let mut layouts = vec![None; gathered.files.len()];
        let mut next = 0;
        for (kind, standing) in kinds.iter().zip(&standing) {
            for (place, &file) in kind.files.iter().enumerate() {
                layouts[file] = Some(plan.files[next + place % standing.len()].layout.clone());
            }
            next += standing.len();
        }
        let layouts = layouts.into_iter().map(|layout| layout.expect("every file is of a kind")).collect();
        Ok(planned(planner, plan.sampled.map(|of| of.error_bound), layouts, run, fitted))
    };
    let cluster = servers.cluster();
    match requested {
        Requested::Surveyed(survey) => {
            let traces = survey.traces();
            let sample: Vec<Vec<Request>> = traces.iter().map(|of| of.requests.to_vec()).collect();
            let cuts_s = Job::surveyed(&survey, &traces, &cluster, &plan_options)?.cuts_s().to_vec();
            let fitted = fitted(gathered, present, servers, &sample, &cuts_s, gaps)?;
            let cluster = fitted.fit.cluster.clone();
            Ok(with(&Job::surveyed(&survey, &traces, &cluster, &plan_options)?, &sample, fitted)?)
        }
        Requested::Held(sample) => {
            let named = gathered.files.iter().map(|file| (file.path.clone(), Some(file.used.end)));
            let traces: Vec<FileTrace> = named.zip(sample.iter().map(Vec::as_slice)).map(trace_of).collect();
            let cuts_s = Job::new(&traces, &cluster, &plan_options)?.cuts_s().to_vec();
            let fitted = fitted(gathered, present, servers, &sample, &cuts_s, gaps)?;
            let cluster = fitted.fit.cluster.clone();
            Ok(with(&Job::new(&traces, &cluster, &plan_options)?, &sample, fitted)?)
        }
    }
}

/// The requests of a run, and when they were made.
struct Run {
    sample: Vec<Vec<Request>>,
    cuts_s: Vec<f64>,
    processes: f64,
    gaps: Gaps,
}

/// Profiles, and the requests that they were fitted to.
struct Fitted {
    fit: Fit,
    served: Served,
}

fn planned(
    planner: &'static str,
    sampled: Option<f64>,
    layouts: Vec<Layout>,
    Run { sample, cuts_s, processes, gaps }: Run,
    Fitted { fit, served }: Fitted,
) -> Planned {
    Planned { planner, sampled, layouts, sample, served, fit, cuts_s, processes, gaps }
}

/// Fits profiles to what the requests of the `sample` took.
fn fitted(
    gathered: &Gathered,
    present: &Present,
    servers: &ClusterFile,
    sample: &[Vec<Request>],
    cuts_s: &[f64],
    gaps: Gaps,
) -> Result<Fitted, AdviseError> {
    let cluster = servers.cluster();
    let timed = vec![present.is_timed; sample.len()];
    let with_times = counted_times(gathered, sample);
    let measured = servers.tiers.iter().all(|tier| tier.preset.is_none());
    let served = Served::of(&with_times, &timed, present.layouts, &cluster, measured);
    let timings = Timings {
        layouts: present.layouts,
        served: &served,
        timed: &timed,
        cuts_s,
        gap_s: gaps.of_run(SEEDS / 2, SEEDS),
    };
    let fit = Fit::of(&cluster, &timings)?;
    Ok(Fitted { fit, served })
}

/// The sample, whose made-up requests take as long as counters say: where time was too short for them they were made
/// shorter.
fn counted_times(gathered: &Gathered, sample: &[Vec<Request>]) -> Vec<Vec<Request>> {
    let mut timed = sample.to_vec();
    for (file, requests) in gathered.files.iter().zip(&mut timed).filter(|(file, _)| file.counted) {
        for (op, of) in [(Op::Read, &file.used.reads), (Op::Write, &file.used.writes)] {
            let own = || requests.iter().filter(|r| r.op == op);
            let (count, took_s) = own().fold((0, 0.0), |sum, r| (sum.0 + 1, sum.1 + r.end_s - r.start_s));
            let mean_s = if of.count == 0 { 0.0 } else { of.busy_s / of.count as f64 };
            let factor = mean_s * f64::from(count) / took_s;
            for r in requests.iter_mut().filter(|r| r.op == op) {
                let own_s = if factor.is_finite() { factor * (r.end_s - r.start_s) } else { mean_s };
                r.end_s = r.start_s + own_s;
            }
        }
    }
    timed
}

fn trace_of(((name, size_bytes), requests): ((String, Option<u64>), &[Request])) -> FileTrace<'_> {
    FileTrace { name, requests, size_bytes }
}

/// Of each kind the files that stand for it: about [`PLANNED`] of all, at least one of each, evenly.
fn stand_ins(kinds: &[FileKind]) -> Vec<Vec<usize>> {
    let files: usize = kinds.iter().map(|kind| kind.files.len()).sum();
    let every = files.div_ceil(PLANNED).max(1);
    kinds.iter().map(|kind| kind.files.iter().copied().step_by(every).collect()).collect()
}
