//! [`plan`]: layouts for all files together.

use crate::cluster_file::ClusterFile;
use crate::error::AdviseError;
use crate::gaps::Gaps;
use crate::gather::Gathered;
use crate::kinds::FileKind;
use crate::options::AdviceOptions;
use crate::passes::Passes;
use crate::rehearsal::thinned;
use crate::surveying::{HELD, Requested, requested};
use stripewise_layout::Layout;
use stripewise_model::{Cluster, Request};
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
    /// Where the run's phases end, in seconds.
    pub cuts_s: Vec<f64>,
    /// Requests in flight.
    pub processes: f64,
    /// The program's own time.
    pub gaps: Gaps,
}

/// Plans all files together. More requests than a few are surveyed; of more files than a few each kind is stood for by
/// some. By the times of the files that are `timed` the program's own time is found.
pub(crate) fn plan(
    gathered: &Gathered,
    timed: Vec<bool>,
    passes: &dyn Passes,
    kinds: &[FileKind],
    cluster: &Cluster,
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
    let (requested, gaps) = requested(gathered, timed, passes, &plan_options)?;
    let few = gathered.files.len() <= PLANNED;
    let with = |job: &Job, sample: &[Vec<Request>]| -> Result<Planned, PlanError> {
        let (cuts_s, processes) = (job.cuts_s().to_vec(), job.processes());
        if few {
            let by = plan_by(planner, job)?;
            let layouts = by.plan.files.iter().map(|file| file.layout.clone()).collect();
            return Ok(planned(by, layouts, sample.to_vec(), cuts_s, processes, gaps));
        }
        let standing = stand_ins(kinds);
        let chosen: Vec<usize> = standing.iter().flatten().copied().collect();
        let bytes = |file: usize| gathered.files[file].used.end as f64;
        let part = chosen.iter().map(|&file| bytes(file)).sum::<f64>()
            / (0..gathered.files.len()).map(bytes).sum::<f64>().max(1.0);
        let mut cluster = cluster.clone();
        for capacity_bytes in cluster.tiers.iter_mut().filter_map(|tier| tier.capacity_bytes.as_mut()) {
            *capacity_bytes = (*capacity_bytes as f64 * part) as u64;
        }
        let requests: Vec<Vec<Request>> = chosen.iter().map(|&file| sample[file].clone()).collect();
        let requests = thinned(&requests, HELD as usize);
        let named = chosen.iter().map(|&file| (gathered.files[file].path.clone(), Some(gathered.files[file].used.end)));
        let traces: Vec<FileTrace> = named.zip(requests.iter().map(Vec::as_slice)).map(trace_of).collect();
        let plan_options = PlanOptions { processes: Some(processes.max(1.0)), ..plan_options };
        let by = plan_by(planner, &Job::new(&traces, &cluster, &plan_options)?)?;
        let mut layouts = vec![None; gathered.files.len()];
        let mut next = 0;
        for (kind, standing) in kinds.iter().zip(&standing) {
            for (place, &file) in kind.files.iter().enumerate() {
                layouts[file] = Some(by.plan.files[next + place % standing.len()].layout.clone());
            }
            next += standing.len();
        }
        let layouts = layouts.into_iter().map(|layout| layout.expect("every file is of a kind")).collect();
        Ok(planned(by, layouts, sample.to_vec(), cuts_s, processes, gaps))
    };
    match requested {
        Requested::Surveyed(survey) => {
            let traces = survey.traces();
            let job = Job::surveyed(&survey, &traces, cluster, &plan_options)?;
            let sample: Vec<Vec<Request>> = traces.iter().map(|of| of.requests.to_vec()).collect();
            Ok(with(&job, &sample)?)
        }
        Requested::Held(sample) => {
            let named = gathered.files.iter().map(|file| (file.path.clone(), Some(file.used.end)));
            let traces: Vec<FileTrace> = named.zip(sample.iter().map(Vec::as_slice)).map(trace_of).collect();
            Ok(with(&Job::new(&traces, cluster, &plan_options)?, &sample)?)
        }
    }
}

fn planned(
    by: PlannedBy,
    layouts: Vec<Layout>,
    sample: Vec<Vec<Request>>,
    cuts_s: Vec<f64>,
    processes: f64,
    gaps: Gaps,
) -> Planned {
    let sampled = by.plan.sampled.as_ref().map(|sampled| sampled.error_bound);
    Planned { planner: by.planner, sampled, layouts, sample, cuts_s, processes, gaps }
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
