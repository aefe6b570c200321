//! Planning the files of a trace, on a pool or on a cluster.

use crate::error::WhatifError;
use crate::hinted::{HintProposal, propose};
use crate::replay;
use crate::room::Rooms;
use crate::target::{Target, nothing_below};
use crate::words::{about, milliseconds};
use std::path::Path;
use std::sync::Arc;
use stripewise_advise::{Below, ClusterFile, FileRequests};
use stripewise_layout::{FileLayout, Layout, LayoutFile, Pattern, Region};
use stripewise_model::Cluster;
use stripewise_planner::{
    FilePlan, FileTrace, Job, PlanError, PlanOptions, PlannedBy, RegionPlan, Survey, SurveyedFile, plan_as_is, plan_by,
};
use stripewise_store::{Error as StoreError, Store};
use stripewise_trace::Trace;

/// What is planned, and on what.
pub struct Planning<'a> {
    trace: &'a Trace,
    root: &'a Path,
    pub(crate) target: Target,
    /// The files, in order of path.
    pub(crate) files: Vec<FileRequests>,
    /// There are too many requests to be held: they are read from the trace as a stream.
    is_large: bool,
    /// The layout that each file has now, or would get.
    pub(crate) present: Vec<Arc<Layout>>,
    sizes: Vec<Option<u64>>,
    /// What the servers of a pool have room for.
    rooms: Option<Rooms>,
}

/// A plan beside what there is.
#[derive(Debug)]
pub struct Planned {
    /// The servers.
    pub target: Target,
    /// The plan, and how it was chosen.
    pub by: PlannedBy,
    /// The layout that each file of the plan has now, or would get.
    pub present: Vec<Arc<Layout>>,
    /// Which servers are short of room, and what that costs the plan; `None` where it costs nothing.
    pub limited_by_space: Option<String>,
    /// Hints of directories of a pool that gain for files like those of the run; none where requests are too many to be held.
    pub hints: Vec<HintProposal>,
}

/// With which means is planned.
#[derive(Debug, Clone, Copy)]
pub struct PlanRequest<'a> {
    /// A name of the planners', or `auto`.
    pub planner: &'a str,
    /// Processes with a request in flight; `None`: as the trace shows.
    pub processes: Option<f64>,
    /// Most regions of a file; `None`: the planners' own limit.
    pub max_regions: Option<usize>,
}

impl<'a> Planning<'a> {
    /// The files of `trace` below `root`, on the pool of the pool file. With `held` all requests are held in memory, however
    /// many they are.
    ///
    /// # Errors
    /// The pool, a handle or the trace does not allow it.
    pub fn on_pool(trace: &'a Trace, pool_file: &Path, root: &'a Path, held: bool) -> Result<Self, WhatifError> {
        let store = Store::of_file(pool_file)?;
        let (files, is_large) = requested(trace, root, held)?;
        let (mut present, mut sizes, mut inodes) = (Vec::new(), Vec::new(), Vec::new());
        for file in &files {
            let read = || {
                let path = Path::new(&file.path);
                let (layout, inode) = (store.present_layout(path)?, store.existing(path)?);
                let attributes = inode.as_ref().map(|inode| inode.attributes()).transpose()?;
                Ok((layout, inode, attributes.map(|attributes| attributes.size_bytes)))
            };
            let unreadable = |error: StoreError| {
                WhatifError::Asked(format!("{} cannot be planned: {error}; leave it out or restore it", file.path))
            };
            let (layout, inode, size_bytes) = read().map_err(unreadable)?;
            present.push(layout);
            sizes.push(size_bytes);
            inodes.push(inode);
        }
        let handles: Vec<u64> = inodes.iter().flatten().map(|inode| inode.handle()).collect();
        let others = store.pool().allocated_by_others(&handles);
        let target = Target::of_pool(store.pool(), &others)?;
        let rooms = Some(Rooms::measure(store, inodes, &others)?);
        Ok(Self { trace, root, target, files, is_large, present, sizes, rooms })
    }

    /// Without a store: all files have the cluster's default layout, and no size but what the trace shows.
    ///
    /// # Errors
    /// No file of the trace is below `root`.
    pub fn on_cluster(trace: &'a Trace, cluster: &ClusterFile, root: &'a Path) -> Result<Self, WhatifError> {
        let (files, is_large) = requested(trace, root, false)?;
        let present = (0..files.len()).map(|file| Arc::new(cluster.default_layout(file))).collect();
        let (target, sizes) = (Target::of_cluster(cluster), vec![None; files.len()]);
        Ok(Self { trace, root, target, files, is_large, present, sizes, rooms: None })
    }

    /// The hints that gain for files like these, laid out as they are.
    ///
    /// # Errors
    /// A file has bytes on a server without a profile.
    pub fn hints(&self) -> Result<Vec<HintProposal>, WhatifError> {
        let present = || self.present.iter().map(|layout| &**layout);
        let found = propose(&self.files, present(), present(), self.target.hinted());
        found.map_err(|unknown| WhatifError::Asked(unknown.to_string()))
    }

    /// Plans them.
    ///
    /// # Errors
    /// As the planner; the files do not fit.
    pub fn plan(self, by: &PlanRequest) -> Result<Planned, WhatifError> {
        let defaults = PlanOptions::default();
        let options = PlanOptions {
            default_width_bytes: self.target.default_width_bytes,
            processes: by.processes,
            max_regions: by.max_regions.unwrap_or(defaults.max_regions),
            names_s: self.target.names_s(replay::names(self.trace, &self.files)),
            ..defaults
        };
        let named = self.files.iter().zip(&self.sizes).map(|(file, &size_bytes)| (file, file.path.clone(), size_bytes));
        let surveyed = self.is_large.then(|| {
            let files = named.clone().map(|(_, name, size_bytes)| SurveyedFile { name, size_bytes }).collect();
            Survey::new(files, &Below::new(self.trace, self.root), &options)
        });
        let surveyed = surveyed.transpose()?;
        // Of very many requests planners are given an even sample, and the exact counts of the survey.
        let traces: Vec<FileTrace> = match &surveyed {
            Some(survey) => survey.traces(),
            None => {
                named.map(|(file, name, size_bytes)| FileTrace { name, requests: &file.requests, size_bytes }).collect()
            }
        };
        let job = job(surveyed.as_ref(), &traces, &self.target.cluster, &options)?;
        let free = || plan_by(by.planner, &job);
        let (planned, limited_by_space) = match &self.rooms {
            None => (free()?, None),
            Some(rooms) => {
                let needed = (0..traces.len()).map(|file| rooms.needed(file, job.extent_bytes(file)));
                let needed = needed.fold(0, u64::saturating_add);
                let present: Vec<Layout> = self.present.iter().map(|layout| (**layout).clone()).collect();
                let on =
                    |cluster: &Cluster| plan_by(by.planner, &self::job(surveyed.as_ref(), &traces, cluster, &options)?);
                let as_is =
                    || plan_as_is(&self::job(surveyed.as_ref(), &traces, &self.target.holding, &options)?, &present);
                rooms.plan(&self.target.cluster, needed, free, on, as_is)?
            }
        };
        let layouts = || planned.plan.files.iter().map(|file| &file.layout);
        let present = || self.present.iter().map(|layout| &**layout);
        let hints = self.rooms.as_ref().map(|_| propose(&self.files, present(), layouts(), self.target.hinted()));
        // Of a file on a server without a profile nothing is known: then nothing is proposed.
        let hints = hints.and_then(Result::ok).unwrap_or_default();
        Ok(Planned { target: self.target, by: planned, present: self.present, limited_by_space, hints })
    }
}

impl Planned {
    /// The plan as a layout file.
    ///
    /// # Errors
    /// The path of a file that no layout file can name.
    pub fn layout_file(&self) -> Result<LayoutFile, WhatifError> {
        let file = |planned: &FilePlan| {
            Ok(FileLayout {
                path: Pattern::exact(&planned.name).map_err(|error| WhatifError::Asked(error.to_string()))?,
                layout: planned.layout.clone(),
                note: None,
                region_notes: planned.regions.iter().map(|region| Some(note(region))).collect(),
            })
        };
        let files = self.by.plan.files.iter().map(file).collect::<Result<_, WhatifError>>()?;
        Ok(LayoutFile { pool: self.target.name.clone(), files })
    }

    /// The regions that hold the byte at `offset` of the file with that index: now, and in the plan.
    pub fn regions_at(&self, file: usize, offset: u64) -> (&Region, &Region) {
        let (now, then) = (&self.present[file], &self.by.plan.files[file].layout);
        (&now.regions()[now.region_at(offset)], &then.regions()[then.region_at(offset)])
    }

    /// Whether any file gets another layout.
    pub fn changes(&self) -> bool {
        self.by.plan.files.iter().zip(&self.present).any(|(new, old)| new.layout != **old)
    }

    /// Bytes of all requests.
    pub fn bytes(&self) -> u64 {
        let bytes = self.by.plan.phases.iter().flat_map(|phase| [phase.read_bytes, phase.written_bytes]);
        bytes.fold(0, u64::saturating_add)
    }

    /// Mean processes in flight, weighted by requests.
    pub fn processes(&self) -> f64 {
        let phases = &self.by.plan.phases;
        let requests: u64 = phases.iter().map(|phase| phase.requests).sum();
        let busy: f64 = phases.iter().map(|phase| phase.processes * phase.requests as f64).sum();
        busy / requests.max(1) as f64
    }

    /// Which sample was priced, where not all requests were.
    pub fn sampled(&self) -> Option<String> {
        let sampled = self.by.plan.sampled.as_ref()?;
        Some(format!(
            "priced a sample of {} of {} distinct requests: mean latency within {:.1} % (95 %)",
            sampled.kept,
            sampled.of,
            sampled.error_bound * 100.0
        ))
    }
}

/// The files of `trace` below `root`; and whether there are too many requests to be held, unless they are to be `held`.
fn requested(trace: &Trace, root: &Path, held: bool) -> Result<(Vec<FileRequests>, bool), WhatifError> {
    let below = Below::new(trace, root);
    let is_large = !held && below.is_large();
    let files = below.files(!is_large);
    if files.is_empty() { Err(nothing_below(root)) } else { Ok((files, is_large)) }
}

/// What planners are given, on `cluster`.
fn job<'a>(
    surveyed: Option<&Survey>,
    traces: &'a [FileTrace<'a>],
    cluster: &'a Cluster,
    options: &'a PlanOptions,
) -> Result<Job<'a>, PlanError> {
    match surveyed {
        Some(survey) => Job::surveyed(survey, traces, cluster, options),
        None => Job::new(traces, cluster, options),
    }
}

/// What a layout file says of a planned region.
fn note(region: &RegionPlan) -> String {
    format!(
        "{:.0} requests, {} read, {} written; predicted {} instead of {}",
        region.requests,
        about(region.read_bytes),
        about(region.written_bytes),
        milliseconds(region.times.planned_s),
        milliseconds(region.times.default_s),
    )
}
