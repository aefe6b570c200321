//! From a trace to what planner and simulator take: the requests of each file below a directory.
//! Paths in layouts are relative, so there always is such a directory.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use stripewise_model::{Op, Request};
use stripewise_planner::RequestSource;
use stripewise_trace::{Operation, Record, Trace};

/// Files that together have less than this share of all bytes moved are not planned: nothing could be gained on them.
const LEAST_SHARE: f64 = 1e-3;

/// Most requests that are held in memory at once (48 bytes each); more are read from the trace as they are needed.
const HELD: u64 = 4_000_000;

/// The requests of one file.
pub struct FileRequests {
    /// Id of the file in the trace.
    pub id: u32,
    /// Path relative to the directory.
    pub path: String,
    /// In order of offset and start; none where the trace is too large: see [`Below::is_large`].
    pub requests: Vec<Request>,
}

/// The files of a trace below a directory that are worth planning, in order of path.
pub struct Below<'a> {
    pub(crate) trace: &'a Trace,
    /// Id in the trace, path below the directory.
    pub(crate) files: Vec<(u32, String)>,
    pub(crate) requests: u64,
}

/// Threads as processes, numbered as they come: a thread is a process to planner and simulator, each has one request in
/// flight at a time.
#[derive(Default)]
struct Threads(HashMap<(u32, u32, u32), u32>);

impl Threads {
    fn request(&mut self, record: &Record) -> Request {
        let next = self.0.len() as u32;
        request_of(record, *self.0.entry((record.rank, record.pid, record.tid)).or_insert(next))
    }
}

/// A record as planner and simulator take it.
pub(crate) fn request_of(record: &Record, process: u32) -> Request {
    Request {
        offset: record.offset,
        size: record.size,
        op: if record.operation() == Some(Operation::Write) { Op::Write } else { Op::Read },
        process,
        start_s: record.start_ns as f64 * 1e-9,
        end_s: record.end_ns as f64 * 1e-9,
    }
}

/// Requests and bytes that a file moved.
pub(crate) type FileTraffic = (u64, f64);

/// O(records of the file).
pub(crate) fn moved(trace: &Trace, id: u32) -> FileTraffic {
    trace.stream(id).fold((0, 0.0), |sum, record| (sum.0 + 1, sum.1 + record.size as f64))
}

/// The deepest directory that holds every file of `trace` that is worth planning; the root where they share none.
/// O(records).
pub fn common_directory(trace: &Trace) -> PathBuf {
    common_directory_of(trace, |id| moved(trace, id))
}

/// [`common_directory`] where it is known what files `moved`. O(files).
pub(crate) fn common_directory_of(trace: &Trace, moved: impl Fn(u32) -> FileTraffic) -> PathBuf {
    let worth = Below::all(trace, Path::new("/"), moved);
    let worth: HashSet<u32> = worth.files.into_iter().map(|(id, _)| id).collect();
    let used = trace.files().iter().filter(|file| worth.contains(&file.id));
    let mut common: Option<PathBuf> = None;
    for file in used {
        let path = lexical(&file.path);
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        common = Some(match common {
            None => directory,
            // One of them is relative: to what, the log does not say.
            Some(common) if common.is_absolute() != directory.is_absolute() => PathBuf::from("/"),
            Some(common) => {
                let same = common.components().zip(directory.components()).take_while(|(a, b)| a == b);
                same.map(|(name, _)| name).collect()
            }
        });
    }
    // What is below a directory whose name is no text is named from the one above it.
    let named = |common: PathBuf| common.components().take_while(|name| name.as_os_str().to_str().is_some()).collect();
    common.map_or_else(|| PathBuf::from("/"), named)
}

/// `path` without `.`, `..` and doubled slashes, so that a layout file can name it.
fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// Directories in which nothing is a file that could be laid out: devices, and what the kernel makes up. Shared memory is of
/// files.
const NO_FILES: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Whether `path` is a device, or one of the kernel's own.
pub(crate) fn is_no_file(path: &Path) -> bool {
    NO_FILES.iter().any(|directory| path.starts_with(directory)) && !path.starts_with("/dev/shm")
}

/// `path` relative to `root`; relative paths count as below `/`. `None` where it is not below.
pub(crate) fn below_root(path: &Path, root: &Path) -> Option<PathBuf> {
    let path = lexical(path);
    // Darshan's names for the standard streams: no files that could be laid out.
    if path.to_str().is_some_and(|name| matches!(name, "<STDIN>" | "<STDOUT>" | "<STDERR>")) {
        return None;
    }
    if is_no_file(&path) {
        return None;
    }
    let relative = match path.strip_prefix(root) {
        Ok(relative) => relative.to_owned(),
        Err(_) if root == Path::new("/") && path.is_relative() => path,
        Err(_) => return None,
    };
    (!relative.as_os_str().is_empty()).then_some(relative)
}

/// The files of `trace` below `root` that are worth planning, with all their requests in memory. O(records).
pub fn below(trace: &Trace, root: &Path) -> Vec<FileRequests> {
    Below::new(trace, root).files(true)
}

impl<'a> Below<'a> {
    /// O(records), in memory for the list of files alone.
    pub fn new(trace: &'a Trace, root: &Path) -> Self {
        Self::of(trace, root, |id| moved(trace, id), |path| path.to_str().map(str::to_owned))
    }

    /// [`Below::new`] where it is known what files `moved`, with those whose names are no text (UTF-8), which a layout file
    /// cannot name. O(files).
    pub(crate) fn all(trace: &'a Trace, root: &Path, moved: impl Fn(u32) -> FileTraffic) -> Self {
        Self::of(trace, root, moved, |path| Some(path.to_string_lossy().into_owned()))
    }

    /// Those that `named` gives a name. O(files).
    fn of(
        trace: &'a Trace,
        root: &Path,
        moved: impl Fn(u32) -> FileTraffic,
        named: impl Fn(&Path) -> Option<String>,
    ) -> Self {
        let mut found: Vec<(u32, String, u64, f64)> = Vec::new();
        for file in trace.files() {
            let Some(path) = below_root(&file.path, root).and_then(|relative| named(&relative)) else { continue };
            let (requests, bytes) = moved(file.id);
            if requests > 0 {
                found.push((file.id, path, requests, bytes));
            }
        }
        let total: f64 = found.iter().map(|file| file.3).sum();
        // The least first, as long as all of them together are next to nothing.
        let mut ranked: Vec<(f64, u32)> = found.iter().map(|file| (file.3, file.0)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut sum = 0.0;
        let left_out = ranked.iter().take_while(|file| {
            sum += file.0;
            sum < LEAST_SHARE * total
        });
        let left_out: HashSet<u32> = left_out.map(|file| file.1).collect();
        found.retain(|file| !left_out.contains(&file.0));
        let requests = found.iter().map(|file| file.2).sum();
        Self { trace, files: found.into_iter().map(|(id, path, ..)| (id, path)).collect(), requests }
    }

    /// Whether there are too many requests to be held: then they are to be surveyed.
    pub fn is_large(&self) -> bool {
        self.requests > HELD
    }

    /// The files with their requests, or without where `held` is not set. O(records).
    pub fn files(&self, held: bool) -> Vec<FileRequests> {
        let mut threads = Threads::default();
        let file = |(id, path): &(u32, String)| {
            let records = self.trace.stream(*id).filter(|_| held);
            FileRequests {
                id: *id,
                path: path.clone(),
                requests: records.map(|record| threads.request(record)).collect(),
            }
        };
        self.files.iter().map(file).collect()
    }
}

impl RequestSource for Below<'_> {
    fn visit(&self, visit: &mut dyn FnMut(usize, &Request)) {
        let mut threads = Threads::default();
        for (index, (id, _)) in self.files.iter().enumerate() {
            self.trace.stream(*id).for_each(|record| visit(index, &threads.request(record)));
        }
    }
}
