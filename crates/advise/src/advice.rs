//! [`advise`]: from a log and the servers to advice.
//!
//! All files are planned together, since they share the servers. What was planned is then held against what there is,
//! by the simulator and kind by kind: a kind of file keeps its layout where the interval of its gain does not support
//! another one, and the rest is simulated again.

use crate::bottleneck::{Bottleneck, bottleneck};
use crate::cluster_file::ClusterFile;
use crate::findings::{self, Around, Finding};
use crate::gather::{Gathered, count_unaligned};
use crate::interval::{Cause, Gain, causes, counters_only};
use crate::kinds::{Kind, kinds};
use crate::present::{Targets, found};
use crate::rehearsal::{Rehearsal, Run, gains, mean, thinned};
use crate::slow::{Slow, slow};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use stripewise_import::About;
use stripewise_layout::{FileLayout, Layout, LayoutFile, MAX_STRIPES, Pattern};
use stripewise_model::{Cluster, Request};
use stripewise_planner::planners::PLANNERS;
use stripewise_planner::{FileTrace, Job, PlanError, PlanOptions, PlannedBy, Survey, SurveyedFile, auto, plan_by};
use stripewise_simulate::SimulateError;
use stripewise_trace::Trace;

/// A change is advised where at least this is gained.
const LEAST_GAIN: f64 = 1.03;

/// More requests than these are surveyed, and planned by their counts.
const HELD: u64 = 20_000;

/// Files up to which all planners are asked; more are planned by kind.
const FEW_FILES: usize = 64;

/// Files that are planned; where there are more, each kind is stood for by some of its files, in proportion.
const PLANNED: usize = 256;

/// Requests of the sample that bottlenecks are worked out from.
const LOADED: usize = 20_000;

/// How often kinds may be taken out of the plan.
const ROUNDS: usize = 4;

/// Where a file's present layout is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The log tells what Lustre had.
    Log,
    /// The pool itself.
    Pool,
    /// Nothing: the cluster's default.
    Default,
}

impl Source {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Pool => "pool",
            Self::Default => "default",
        }
    }
}

/// The layout that a path (below the root) has; `None` where only the cluster's default is known.
pub type PresentLayout<'a> = dyn Fn(&Path) -> Option<Layout> + 'a;

/// What to advise on.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// The servers; `None`: those that the log's Lustre layouts show.
    pub cluster: Option<&'a ClusterFile>,
    /// Profile of servers that were found from the log.
    pub preset: &'a str,
    /// Only files below it; `None`: all.
    pub root: Option<&'a Path>,
    /// Name of the planner; `None`: all of them for few files, `regions` for many.
    pub planner: Option<&'a str>,
    /// The layouts that files have, where somebody knows.
    pub present: Option<&'a PresentLayout<'a>>,
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// Nobody says what servers there are.
    #[error(
        "the log tells no Lustre layouts, so the servers are not known: name them with --cluster, a cluster file or a \
         pool file (docs/advise.md has one to copy)"
    )]
    NoServers,
    /// An unknown preset.
    #[error("--preset: {0}")]
    Preset(String),
    /// No file was read or written.
    #[error("the log has no read or write of a file below {}; name the directory with --root", root.display())]
    NothingMoved {
        /// Where was looked.
        root: PathBuf,
    },
    /// An unknown planner.
    #[error("{0}")]
    Planner(String),
    /// What was asked for cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It cannot be simulated.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}

/// Where files of a kind are, or should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The layout of the first of them.
    pub layout: Layout,
    /// The others are on other servers, striped alike.
    pub spread: bool,
    /// Simulated bytes per second while any of their requests is in flight.
    pub bytes_per_s: f64,
    /// What they wait for.
    pub bottleneck: Bottleneck,
}

/// Bytes on a tier.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    /// Name of the tier.
    pub tier: String,
    /// Bytes under the present layouts.
    pub present_bytes: u64,
    /// Bytes under the recommended ones.
    pub recommended_bytes: u64,
    /// Bytes that it may hold, all servers together.
    pub capacity_bytes: Option<u64>,
}

/// Advice on files of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Path below the root; a pattern where there are several.
    pub path: String,
    /// How many.
    pub files: usize,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads and writes.
    pub requests: u64,
    /// Ranks that share one of them, most of any.
    pub ranks: usize,
    /// Known from counters alone.
    pub counters_only: bool,
    /// Where they are.
    pub present: Placed,
    /// How that is known.
    pub source: Source,
    /// Where they should be; `None` is no change.
    pub recommended: Option<Placed>,
    /// What that gains; 1 without a change.
    pub gain: Gain,
    /// Room that it takes, by tier.
    pub space: Vec<Space>,
    /// What matters beside the layout.
    pub findings: Vec<Finding>,
}

/// Kinds of one directory together.
#[derive(Debug, Clone, PartialEq)]
pub struct Directory {
    /// Path below the root, numbers as `*`; empty is the root itself.
    pub path: String,
    /// Files in it.
    pub files: usize,
    /// Bytes that they move.
    pub bytes: u64,
    /// The row whose layout serves most of the bytes that should be laid out anew, by index in [`Advice::rows`].
    pub row: Option<usize>,
}

/// What a log and servers lead to.
#[derive(Debug, Clone)]
pub struct Advice {
    /// The servers.
    pub cluster: ClusterFile,
    /// They are what the log shows, and no cluster file's.
    pub is_found: bool,
    /// Names of servers: those of layouts, with the object storage target where the servers were found.
    pub labels: Vec<String>,
    /// The directory that paths are relative to.
    pub root: PathBuf,
    /// Kinds of files, those that move most first.
    pub rows: Vec<Row>,
    /// By directory, those that move most first.
    pub directories: Vec<Directory>,
    /// Bytes per second of all under the present layouts.
    pub present_bytes_per_s: f64,
    /// The same under the recommended ones.
    pub recommended_bytes_per_s: f64,
    /// Of all files together.
    pub gain: Gain,
    /// Room on tiers.
    pub space: Vec<Space>,
    /// What is wide about the intervals.
    pub causes: Vec<Cause>,
    /// Name of the planner.
    pub planner: String,
    /// On the run as a whole.
    pub findings: Vec<Finding>,
    /// Requests in flight, mean over the run.
    pub processes: f64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Files that move next to nothing, on which there is no advice.
    pub left_out: usize,
    /// The layouts of files that should change.
    pub layout: LayoutFile,
}

/// Advises on the files of a log: a pass over its records for counts, as long as [`plan_by`] takes for at most 20,000
/// distinct requests, and some 28 simulations of 16,000.
///
/// # Errors
/// [`AdviseError`] with the remedy.
pub fn advise(trace: &Trace, about: &About, options: &Options) -> Result<Advice, AdviseError> {
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
    let shown = found(&about.lustre_layouts, options.preset).map_err(AdviseError::Preset)?;
    let (servers, targets) = match options.cluster {
        Some(cluster) => (cluster.clone(), Targets::of(cluster)),
        None => shown.ok_or(AdviseError::NoServers)?,
    };
    let mut gathered = Gathered::new(trace, about, options.root);
    if gathered.files.is_empty() {
        return Err(AdviseError::NothingMoved { root: gathered.root });
    }
    let case = Case::new(&servers, &targets, about, options, &mut gathered)?;
    case.advice(&gathered, about, options)
}

/// What is compared.
struct Case<'a> {
    servers: &'a ClusterFile,
    cluster: Cluster,
    labels: Vec<String>,
    /// Present layout of every file, and how it is known.
    present: Vec<Layout>,
    sources: Vec<Source>,
    kinds: Vec<Kind>,
    /// A sample of the requests of every file.
    sample: Vec<Vec<Request>>,
    planned: Vec<Layout>,
    planner: &'static str,
    processes: f64,
    cuts_s: Vec<f64>,
    /// Bound of the error of pricing a sample.
    sampled: Option<f64>,
}

impl<'a> Case<'a> {
    fn new(
        servers: &'a ClusterFile,
        targets: &Targets,
        about: &About,
        options: &Options,
        gathered: &mut Gathered,
    ) -> Result<Self, AdviseError> {
        let cluster = servers.cluster();
        let of_log: HashMap<u32, _> = about.lustre_layouts.iter().map(|layout| (layout.file, layout)).collect();
        let (mut present, mut sources) = (Vec::new(), Vec::new());
        for (number, file) in gathered.files.iter().enumerate() {
            let of_pool = options.present.and_then(|present| present(Path::new(&file.path)));
            let of_log = || of_log.get(&file.id).and_then(|record| targets.layout(record, number));
            let (layout, source) = match of_pool {
                Some(layout) => (layout, Source::Pool),
                None => match of_log() {
                    Some(layout) => (layout, Source::Log),
                    None => (servers.default_layout(number), Source::Default),
                },
            };
            present.push(layout);
            sources.push(source);
        }
        let alike = kinds(&gathered.files, &present);
        let Planned { planner, sampled, layouts, sample, cuts_s, processes } =
            plan(gathered, &alike, &cluster, servers, options)?;
        count_unaligned(gathered, &present, &sample);
        let names = servers.names();
        let count: usize = names.tiers().iter().map(|(_, servers)| usize::from(*servers)).sum();
        let labels = (0..count).map(|server| targets.label(&names, server)).collect();
        Ok(Self {
            servers,
            cluster,
            labels,
            kinds: kinds(&gathered.files, &present),
            present,
            sources,
            sample,
            planner,
            sampled,
            planned: layouts,
            processes,
            cuts_s,
        })
    }

    fn advice(&self, gathered: &Gathered, about: &About, options: &Options) -> Result<Advice, AdviseError> {
        let is_found = options.cluster.is_none();
        let preset = self.servers.tiers.iter().find_map(|tier| tier.preset.as_deref());
        let of_all = causes(about.lacks, preset, is_found, self.sampled);
        let with_counters = [of_all.clone(), vec![counters_only()]].concat();
        let is_counted = |kind: &Kind| kind.files.iter().any(|&file| gathered.files[file].counted);
        let of_kinds: Vec<&[Cause]> =
            self.kinds.iter().map(|kind| if is_counted(kind) { &*with_counters } else { &*of_all }).collect();
        let causes = if self.kinds.iter().any(is_counted) { &with_counters } else { &of_all };
        let mut kind_of = vec![0; gathered.files.len()];
        for (number, kind) in self.kinds.iter().enumerate() {
            kind.files.iter().for_each(|&file| kind_of[file] = number as u32);
        }
        let rehearsal = Rehearsal::new(&self.cluster, &self.sample, kind_of, &self.cuts_s);
        let before = rehearsal.runs(&self.present)?;
        let Chosen { changed, layouts, after } = self.choose(&rehearsal, &before, causes, &of_kinds)?;
        let known: Vec<bool> = self.sources.iter().map(|source| *source != Source::Default).collect();
        let slow = slow(&gathered.files, &self.present, &known, &self.sample, self.labels.len());
        let loaded = thinned(&self.sample, LOADED);
        let label = |server: usize| self.labels.get(server).cloned().unwrap_or_default();
        let ranks_seen = gathered.all.ranks.len();
        let processes = about.processes.map_or(ranks_seen, |count| usize::try_from(count).unwrap_or(usize::MAX));
        let all_bytes = gathered.all.both().bytes;
        let rows = self.kinds.iter().enumerate().map(|(number, kind)| {
            let place = |layouts: &[Layout], runs: &[Run], slow: Option<&Slow>| {
                let files = kind.files.iter().map(|&file| (&layouts[file], loaded[file].as_slice()));
                let first = &layouts[kind.files[0]];
                Placed {
                    layout: first.clone(),
                    spread: kind.files.iter().any(|&file| layouts[file] != *first),
                    bytes_per_s: mean(runs, Some(number)),
                    bottleneck: bottleneck(&self.cluster, &label, files, slow),
                }
            };
            let first = kind.files[0];
            let both = kind.used.both();
            let width = self.present[first].regions()[0].stripes()[0].width_bytes;
            let around = Around { processes, weight: crate::usage::share(both.bytes, all_bytes), width_bytes: width };
            let gain = if changed[number] {
                Gain::of(&gains(&before, &after, Some(number)), of_kinds[number])
            } else {
                Gain::NONE
            };
            Row {
                path: kind.path.clone(),
                files: kind.files.len(),
                read_bytes: kind.used.reads.bytes,
                written_bytes: kind.used.writes.bytes,
                requests: both.count,
                ranks: kind.used.sharers,
                counters_only: gathered.files[first].counted,
                present: place(&self.present, &before, slow.as_ref()),
                source: self.sources[first],
                recommended: changed[number].then(|| place(&layouts, &after, None)),
                gain,
                space: self.space(gathered, &kind.files, &layouts),
                findings: findings::of_files(&kind.used, &around),
            }
        });
        let rows: Vec<Row> = rows.collect();
        let gain = if changed.contains(&true) { Gain::of(&gains(&before, &after, None), causes) } else { Gain::NONE };
        let every: Vec<usize> = (0..gathered.files.len()).collect();
        Ok(Advice {
            cluster: self.servers.clone(),
            is_found,
            labels: self.labels.clone(),
            root: gathered.root.clone(),
            directories: directories(&rows),
            present_bytes_per_s: mean(&before, None),
            recommended_bytes_per_s: mean(&after, None),
            gain,
            space: self.space(gathered, &every, &layouts),
            causes: causes.clone(),
            planner: self.planner.to_owned(),
            findings: findings::of_run(&gathered.all, processes, slow.as_ref(), &label),
            processes: self.processes,
            bytes: all_bytes,
            left_out: gathered.left_out,
            layout: self.layout_file(gathered, &rows, &changed, &layouts),
            rows,
        })
    }

    /// Which kinds should change: those whose own gain, in the company of the others that change, is beyond doubt.
    fn choose(
        &self,
        rehearsal: &Rehearsal,
        before: &[Run],
        causes: &[Cause],
        of_kinds: &[&[Cause]],
    ) -> Result<Chosen, SimulateError> {
        let mut changed: Vec<bool> = self
            .kinds
            .iter()
            .map(|kind| kind.files.iter().any(|&file| self.planned[file] != self.present[file]))
            .collect();
        for _ in 0..ROUNDS {
            let mut layouts = self.present.clone();
            for (kind, _) in self.kinds.iter().zip(&changed).filter(|(_, changed)| **changed) {
                kind.files.iter().for_each(|&file| layouts[file] = self.planned[file].clone());
            }
            if !changed.contains(&true) {
                return Ok(Chosen { changed, layouts, after: before.to_vec() });
            }
            let after = rehearsal.runs(&layouts)?;
            let total = Gain::of(&gains(before, &after, None), causes);
            let mut doubted = false;
            for (number, changed) in changed.iter_mut().enumerate().filter(|(_, changed)| **changed) {
                let own = Gain::of(&gains(before, &after, Some(number)), of_kinds[number]);
                if own.low < LEAST_GAIN {
                    (*changed, doubted) = (false, true);
                }
            }
            if !doubted && total.ratio >= 1.0 {
                return Ok(Chosen { changed, layouts, after });
            }
            if !doubted {
                break;
            }
        }
        let changed = vec![false; self.kinds.len()];
        Ok(Chosen { changed, layouts: self.present.clone(), after: before.to_vec() })
    }

    /// Bytes of `files` on each tier under the present layouts and under `layouts`. O(files x stripes).
    fn space(&self, gathered: &Gathered, files: &[usize], layouts: &[Layout]) -> Vec<Space> {
        let tier_of: Vec<usize> =
            self.cluster.tiers.iter().enumerate().flat_map(|(at, tier)| vec![at; tier.servers.len()]).collect();
        let held = |layouts: &[Layout]| {
            let mut tiers = vec![0_u64; self.cluster.tiers.len()];
            for &file in files {
                let (layout, end) = (&layouts[file], gathered.files[file].used.end);
                for (index, region) in layout.regions().iter().enumerate() {
                    let (from, to) = (region.offset().min(end), layout.region_end(index).min(end));
                    for (slot, stripe) in region.stripes().iter().enumerate() {
                        let bytes = region.bytes_before(slot, to) - region.bytes_before(slot, from);
                        if let Some(&tier) = tier_of.get(stripe.server.index()) {
                            tiers[tier] = tiers[tier].saturating_add(bytes);
                        }
                    }
                }
            }
            tiers
        };
        let (present, recommended) = (held(&self.present), held(layouts));
        let tiers = self.cluster.tiers.iter().zip(present.into_iter().zip(recommended));
        tiers
            .map(|(tier, (present_bytes, recommended_bytes))| Space {
                tier: tier.name.clone(),
                present_bytes,
                recommended_bytes,
                capacity_bytes: tier.capacity_bytes.map(|limit| limit.saturating_mul(tier.servers.len() as u64)),
            })
            .collect()
    }

    /// The layouts of the kinds that change: by their pattern where all have one layout and no other file fits the
    /// pattern, else file by file.
    fn layout_file(&self, gathered: &Gathered, rows: &[Row], changed: &[bool], layouts: &[Layout]) -> LayoutFile {
        let mut written = LayoutFile { pool: self.servers.name.clone(), files: Vec::new() };
        let mut stripes = 0;
        for ((kind, row), _) in self.kinds.iter().zip(rows).zip(changed).filter(|(_, changed)| **changed) {
            let Gain { ratio, low, high } = row.gain;
            let note = format!("predicted {ratio:.2} times as fast ({low:.2} to {high:.2})");
            let first = &layouts[kind.files[0]];
            let alike = kind.files.iter().all(|&file| layouts[file] == *first);
            let mut add = |path: Pattern, layout: &Layout| {
                stripes += layout.regions().iter().map(|region| region.stripes().len()).sum::<usize>();
                if stripes <= MAX_STRIPES {
                    let (layout, note) = (layout.clone(), Some(note.clone()));
                    written.files.push(FileLayout { path, layout, note, region_notes: Vec::new() });
                }
            };
            let pattern = Pattern::new(&kind.path).ok().filter(|pattern| {
                let fit = gathered.files.iter().filter(|file| pattern.matches(file.path.as_bytes())).count();
                alike && kind.files.len() > 1 && fit == kind.files.len()
            });
            if let Some(pattern) = pattern {
                add(pattern, first);
                continue;
            }
            for &file in &kind.files {
                if let Ok(path) = Pattern::exact(&gathered.files[file].path) {
                    add(path, &layouts[file]);
                }
            }
        }
        written
    }
}

/// What should change, with what it gives.
struct Chosen {
    changed: Vec<bool>,
    layouts: Vec<Layout>,
    after: Vec<Run>,
}

struct Planned {
    planner: &'static str,
    /// Bound of the error of pricing a sample.
    sampled: Option<f64>,
    /// Of every file.
    layouts: Vec<Layout>,
    /// A sample of the requests of every file.
    sample: Vec<Vec<Request>>,
    cuts_s: Vec<f64>,
    processes: f64,
}

/// Plans all files together. More requests than a few are surveyed; of more files than a few each kind is stood for by
/// some.
fn plan(
    gathered: &Gathered,
    kinds: &[Kind],
    cluster: &Cluster,
    servers: &ClusterFile,
    options: &Options,
) -> Result<Planned, AdviseError> {
    let planner = options.planner.unwrap_or(if gathered.files.len() <= FEW_FILES { auto::AUTO } else { "regions" });
    let plan_options = PlanOptions {
        default_width_bytes: servers.default.width_bytes,
        max_entries: 6000,
        max_chunks: 512,
        simulations: 120,
        ..PlanOptions::default()
    };
    let named = gathered.files.iter().map(|file| (file.path.clone(), Some(file.used.end)));
    let few = gathered.files.len() <= PLANNED;
    let with = |job: &Job, sample: &[Vec<Request>]| -> Result<Planned, PlanError> {
        let (cuts_s, processes) = (job.cuts_s().to_vec(), job.processes());
        if few {
            let by = plan_by(planner, job)?;
            let layouts = by.plan.files.iter().map(|file| file.layout.clone()).collect();
            return Ok(planned(by, layouts, sample.to_vec(), cuts_s, processes));
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
        Ok(planned(by, layouts, sample.to_vec(), cuts_s, processes))
    };
    if gathered.requests() > HELD {
        let files = named.map(|(name, size_bytes)| SurveyedFile { name, size_bytes }).collect();
        let survey = Survey::new(files, gathered, &plan_options)?;
        let traces = survey.traces();
        let job = Job::surveyed(&survey, &traces, cluster, &plan_options)?;
        let sample: Vec<Vec<Request>> = traces.iter().map(|of| of.requests.to_vec()).collect();
        return Ok(with(&job, &sample)?);
    }
    let sample = gathered.held();
    let traces: Vec<FileTrace> = named.zip(sample.iter().map(Vec::as_slice)).map(trace_of).collect();
    Ok(with(&Job::new(&traces, cluster, &plan_options)?, &sample)?)
}

fn planned(
    by: PlannedBy,
    layouts: Vec<Layout>,
    sample: Vec<Vec<Request>>,
    cuts_s: Vec<f64>,
    processes: f64,
) -> Planned {
    let sampled = by.plan.sampled.as_ref().map(|sampled| sampled.error_bound);
    Planned { planner: by.planner, sampled, layouts, sample, cuts_s, processes }
}

fn trace_of(((name, size_bytes), requests): ((String, Option<u64>), &[Request])) -> FileTrace<'_> {
    FileTrace { name, requests, size_bytes }
}

/// Of each kind the files that stand for it: about [`PLANNED`] of all, at least one of each, evenly.
fn stand_ins(kinds: &[Kind]) -> Vec<Vec<usize>> {
    let files: usize = kinds.iter().map(|kind| kind.files.len()).sum();
    let every = files.div_ceil(PLANNED).max(1);
    kinds.iter().map(|kind| kind.files.iter().copied().step_by(every).collect()).collect()
}

/// Rows by directory.
fn directories(rows: &[Row]) -> Vec<Directory> {
    let mut found: BTreeMap<&str, Directory> = BTreeMap::new();
    let bytes = |row: &Row| row.read_bytes.saturating_add(row.written_bytes);
    for (index, row) in rows.iter().enumerate() {
        let path = row.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let empty = || Directory { path: path.to_owned(), files: 0, bytes: 0, row: None };
        let directory = found.entry(path).or_insert_with(empty);
        directory.files += row.files;
        directory.bytes = directory.bytes.saturating_add(bytes(row));
        // Rows come in order of their bytes: the first that changes is the largest.
        if directory.row.is_none() && row.recommended.is_some() {
            directory.row = Some(index);
        }
    }
    let mut found: Vec<Directory> = found.into_values().collect();
    found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
    found
}
