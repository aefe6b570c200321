//! From a log to the files that advice is given on: what each was asked for, and how it was used.

use crate::counted;
use crate::job_ranks::JobRanks;
use crate::look::{Looked, ThreadKey};
use crate::requests::{Below, below_root, common_directory_of, is_no_file};
use crate::usage::Use;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use stripewise_import::{About, FileCounters, Lacks};
use stripewise_layout::Layout;
use stripewise_model::{Op, Request};
use stripewise_trace::{Process, Trace};

/// A file to give advice on.
#[derive(Debug, Clone)]
pub(crate) struct AdvisedFile {
    /// Its number in the trace.
    pub id: u32,
    /// Path below the root; as text where it is none.
    pub path: String,
    /// A layout file can name it.
    pub named: bool,
    /// How it was used.
    pub used: Use,
    /// Only counters are known of it: its requests are made up.
    pub counted: bool,
}

/// Files of a directory that the metadata server could hold.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SmallFiles {
    /// How many.
    pub files: usize,
    /// How often they were opened.
    pub opens: u64,
    /// Of those that were made and that advice is not given on, of whatever size: the first byte after the longest.
    pub made_end: Option<u64>,
}

impl SmallFiles {
    /// Of files that advice is given on.
    fn of(files: &[AdvisedFile]) -> BTreeMap<String, Self> {
        let mut directories = BTreeMap::new();
        for file in files {
            let directory = file.path.rsplit_once('/').map_or("", |(directory, _)| directory);
            Self::add(&mut directories, directory, &file.used, false);
        }
        directories
    }

    /// Adds one that advice is not given on, where it is below the root.
    fn add_left_out(directories: &mut BTreeMap<String, Self>, path: Option<PathBuf>, used: &Use) {
        let directory = path.as_deref().and_then(Path::parent);
        if let Some(directory) = directory {
            Self::add(directories, &directory.to_string_lossy(), used, true);
        }
    }

    fn add(directories: &mut BTreeMap<String, Self>, directory: &str, used: &Use, left_out: bool) {
        let bytes = used.both().bytes;
        let is_small = bytes > 0 && used.end <= SMALL_FILE_BYTES;
        let is_made = left_out && used.writes.bytes > used.reads.bytes;
        if !is_small && !is_made {
            return;
        }
        let of = directories.entry(directory.to_owned()).or_default();
        if is_small {
            of.files += 1;
            of.opens += used.opens;
        }
        if is_made {
            of.made_end = of.made_end.max(Some(used.end));
        }
    }
}

/// Bytes of a file that Lustre's metadata servers hold by default (`lod.*.dom_stripesize`).
const SMALL_FILE_BYTES: u64 = 1 << 20;

/// The files of a log, in order of path.
pub(crate) struct Gathered {
    pub root: PathBuf,
    pub files: Vec<AdvisedFile>,
    /// Requests of these files.
    pub requests: u64,
    /// All that read or wrote, in order.
    pub threads: Vec<ThreadKey>,
    /// Use of all files (below the root that was given), those that move next to nothing included.
    pub all: Use,
    /// Use of all files of the log, however little they move.
    pub whole: Use,
    /// Seconds that the slowest process reads and writes.
    pub slowest_s: f64,
    /// Small files by directory below the root.
    pub small: BTreeMap<String, SmallFiles>,
    /// Ranks and nodes of the job.
    pub job_ranks: JobRanks,
    /// Files of the log that advice is not given on, since they move next to nothing.
    pub left_out: usize,
}

impl Gathered {
    /// From what files and processes the `trace` has, and how files were used: of its records nothing is read. With a
    /// root `given` only files below it. O(files + counters).
    pub(crate) fn new(trace: &Trace, about: &About, given: Option<&Path>, looked: Looked) -> Self {
        let mut counters: HashMap<u32, Vec<&FileCounters>> = HashMap::new();
        for of_file in &about.counters {
            counters.entry(of_file.file).or_default().push(of_file);
        }
        let processes = about.processes.unwrap_or(trace.processes().len() as u64);
        let mut looked_at: HashMap<u32, Use> = looked.files.into_iter().collect();
        let moved = |id: u32| {
            let both = looked_at.get(&id).map(Use::both).unwrap_or_default();
            (both.count, both.bytes as f64)
        };
        let root = given.map_or_else(|| common_directory_of(trace, moved), Path::to_owned);
        let below = Below::all(trace, &root, moved);
        let requests = below.requests;
        let mut files: Vec<AdvisedFile> = Vec::new();
        for (id, path) in below.files {
            let of = counters.get(&id).map_or(&[][..], Vec::as_slice);
            let counted = about.lacks.contains(Lacks::COUNTERS_ONLY) && counted::alone(of, processes);
            let looked = looked_at.remove(&id).unwrap_or_default();
            let named = trace.files().get(id as usize).is_some_and(|file| file.path.to_str().is_some());
            let mut used = if counted { counted::used(of, processes) } else { looked };
            // What rows do not show, counters may: opens, and whether calls were collective.
            counted::complete(&mut used, of, counted || about.lacks.contains(Lacks::METADATA), processes);
            files.push(AdvisedFile { id, path, named, used, counted });
        }
        let (mut all, mut whole) = (Use::none(), Use::none());
        let known: HashSet<u32> = files.iter().map(|file| file.id).collect();
        for file in &files {
            all.add(&file.used);
            whole.add(&file.used);
        }
        let mut left_out = 0;
        let mut small = SmallFiles::of(&files);
        for file in trace.files() {
            if known.contains(&file.id)
                || is_no_file(&file.path)
                || given.is_some_and(|root| below_root(&file.path, root).is_none())
            {
                continue;
            }
            let looked = looked_at.remove(&file.id);
            let has_records = looked.is_some();
            let of = counters.get(&file.id).map_or(&[][..], Vec::as_slice);
            let counted = about.lacks.contains(Lacks::COUNTERS_ONLY) && counted::alone(of, processes);
            let mut used = if counted { counted::used(of, processes) } else { looked.unwrap_or_default() };
            counted::complete(&mut used, of, counted || about.lacks.contains(Lacks::METADATA), processes);
            left_out += usize::from(used.opens > 0 || has_records);
            SmallFiles::add_left_out(&mut small, below_root(&file.path, &root), &used);
            if below_root(&file.path, Path::new("/")).is_some() {
                whole.add(&used);
            }
            all.add(&used.metadata());
        }
        if about.lacks.contains(Lacks::RANKS) || !has_ranks(trace.processes()) {
            all.ranks.clear();
            files.iter_mut().for_each(|file| file.used.ranks.clear());
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let slowest_s = slowest_s(&whole, &looked.threads);
        let threads = looked.threads.into_iter().map(|(thread, _)| thread).collect();
        let job_ranks = JobRanks::of(trace, about, all.ranks.len());
        Self { root, files, requests, threads, all, whole, slowest_s, small, job_ranks, left_out }
    }
}

#[cfg(test)]
impl Gathered {
    /// Of a log without files.
    pub(crate) fn nothing(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            files: Vec::new(),
            requests: 0,
            threads: Vec::new(),
            all: Use::none(),
            whole: Use::none(),
            slowest_s: 0.0,
            small: BTreeMap::new(),
            job_ranks: JobRanks { processes: 0, nodes: None },
            left_out: 0,
        }
    }
}

/// Seconds that the slowest process reads and writes. Counters add up the threads of a rank, which are taken to be busy
/// at the same time; rows that were made from counters may be fewer than were counted.
fn slowest_s(whole: &Use, threads: &[(ThreadKey, u64)]) -> f64 {
    let mut of_rank: HashMap<u32, u32> = HashMap::new();
    threads.iter().for_each(|((rank, ..), _)| *of_rank.entry(*rank).or_default() += 1);
    let by_rank =
        whole.ranks.iter().map(|(rank, used)| used.busy_s / f64::from(of_rank.get(rank).copied().unwrap_or(1)));
    let by_thread = threads.iter().map(|(_, busy_ns)| *busy_ns as f64 * 1e-9);
    by_rank.chain(by_thread).fold(whole.slowest_rank_s, f64::max).min(whole.busy_s)
}

/// Whether ranks tell processes apart: several processes that all have rank 0 are of no parallel program.
fn has_ranks(processes: &[Process]) -> bool {
    processes.len() < 2 || processes.iter().any(|process| process.rank != 0)
}

/// Whether files of this name are HDF5's: netCDF-4's are.
pub(crate) fn names_hdf5(path: &str) -> bool {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    ["h5", "hdf5", "hdf", "nc4", "he5"].iter().any(|known| ending.eq_ignore_ascii_case(known))
}

/// Counts the requests of each file that touch more servers than their size needs under `layouts`.
pub(crate) fn count_unaligned(gathered: &mut Gathered, layouts: &[Layout], sample: &[Vec<Request>]) {
    for ((file, layout), requests) in gathered.files.iter_mut().zip(layouts).zip(sample) {
        let mut found = [(0_u64, 0_u64); 2];
        for request in requests {
            let region = &layout.regions()[layout.region_at(request.offset)];
            let width = region.stripes().iter().map(|stripe| stripe.width_bytes).max().unwrap_or(1);
            let of = &mut found[usize::from(request.op == Op::Write)];
            of.0 += 1;
            let needed = request.size.div_ceil(width).max(1);
            of.1 += u64::from(layout.split(request.offset, request.size).len() as u64 > needed);
        }
        // The sample stands for all.
        let of_all = |(seen, unaligned): (u64, u64), count: u64| {
            if seen == 0 { 0 } else { (unaligned as f64 / seen as f64 * count as f64).round() as u64 }
        };
        file.used.reads.unaligned = of_all(found[0], file.used.reads.count);
        file.used.writes.unaligned = of_all(found[1], file.used.writes.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, rank: u32) -> Process {
        Process {
            program: 0,
            rank,
            pid,
            parent_pid: 0,
            host: String::new(),
            command: String::new(),
            start_ns: 0,
            records: 1,
            holes: 0,
            dropped: 0,
            names_dropped: 0,
        }
    }

    #[test]
    fn processes_of_a_shell_script_have_no_ranks() {
        assert!(!has_ranks(&[process(7, 0), process(8, 0), process(9, 0)]));
        assert!(has_ranks(&[process(7, 0), process(8, 1)]));
        assert!(has_ranks(&[process(7, 0)]), "rank 0 of a job may do everything");
    }
}
