//! Files that are alike get one layout: what a program with 100,000 files can be planned by.
//!
//! Files are alike when their requests are of like size, operation and phase, and when they are about equally large and
//! equally hot. A group of them is planned as one file whose requests are those of all, each at its own offset: every
//! file begins with the first server of the round, so loads and bytes of a group are the sums of its files', exactly.

use crate::job::demand::{Demand, DemandSample, FEW_FILES, FileDemand, RequestGroup, sample};
use crate::job::input::{FileTrace, PlanOptions};
use std::collections::HashMap;
use stripewise_model::{Op, Request};

/// Most groups; files of rarer kinds join the group that they are most like.
const GROUPS: usize = 48;

/// Requests of a group that are replayed and searched by HARL, at most.
const REQUESTS: usize = 4000;

/// Kinds of extents that a group tells apart: files in between count as the larger one.
const EXTENTS: usize = 64;

/// What a file's requests are like: whole numbers whose differences add up to a distance.
type Kind = [i32; 6];

/// The groups of many files.
pub(crate) struct Alike {
    /// Group of each file.
    pub of: Vec<usize>,
    /// The groups as files.
    pub demand: Demand,
    /// An even sample of the requests of each group's files.
    requests: Vec<Vec<Request>>,
}

impl Alike {
    /// Groups `files`, or `None` when they are few. O(entries log entries + files x groups).
    pub(crate) fn new(files: &[FileTrace], demand: &Demand, options: &PlanOptions) -> Option<Self> {
        if files.len() <= FEW_FILES {
            return None;
        }
        let kinds: Vec<Kind> = demand.files.iter().map(kind).collect();
        let mut weights: HashMap<Kind, f64> = HashMap::new();
        for (kind, file) in kinds.iter().zip(&demand.files) {
            let moved: f64 = file.entries.iter().map(|e| e.count * (e.size as f64 + 65536.0)).sum();
            *weights.entry(*kind).or_default() += moved;
        }
        let mut ranked: Vec<(Kind, f64)> = weights.into_iter().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.truncate(GROUPS);
        let nearest = |kind: &Kind| {
            let distance = |other: &Kind| kind.iter().zip(other).map(|(a, b)| (a - b).unsigned_abs()).sum::<u32>();
            (0..ranked.len()).min_by_key(|&group| distance(&ranked[group].0)).expect("there are files, so kinds")
        };
        let mut known: HashMap<Kind, usize> = HashMap::new();
        let of: Vec<usize> = kinds.iter().map(|kind| *known.entry(*kind).or_insert_with(|| nearest(kind))).collect();
        let groups = ranked.len();
        let mut entries: Vec<Vec<RequestGroup>> = vec![Vec::new(); groups];
        let mut extents: Vec<HashMap<u64, u64>> = vec![HashMap::new(); groups];
        let mut requests: Vec<Vec<Request>> = vec![Vec::new(); groups];
        let mut counts = vec![0_usize; groups];
        of.iter().zip(files).for_each(|(&group, file)| counts[group] += file.requests.len());
        let mut seen = vec![0_usize; groups];
        for (&group, (file, trace)) in of.iter().zip(demand.files.iter().zip(files)) {
            entries[group].extend_from_slice(&file.entries);
            *extents[group].entry(file.extent).or_default() += 1;
            let every = counts[group].div_ceil(REQUESTS).max(1);
            for request in trace.requests {
                if seen[group].is_multiple_of(every) {
                    requests[group].push(*request);
                }
                seen[group] += 1;
            }
        }
        for entries in &mut entries {
            RequestGroup::unite(entries);
        }
        let total: usize = entries.iter().map(Vec::len).sum();
        let united = (total > options.max_entries.max(1)).then(|| {
            let kept = sample(&mut entries, options.max_entries.max(1));
            DemandSample { kept, of: total }
        });
        let extents = extents.into_iter().map(few).collect::<Vec<Vec<(u64, u64)>>>();
        let largest = extents.iter().map(|of| of.last().map_or(0, |of| of.0)).collect();
        let (phases, cuts_s) = (demand.phases.clone(), demand.cuts_s.clone());
        let mut demand = Demand::assemble(largest, entries, phases, cuts_s, united.or(demand.sample), options);
        demand.files.iter_mut().zip(extents).for_each(|(file, extents)| file.extents = extents);
        Some(Self { of, demand, requests })
    }

    /// The groups as files to be replayed.
    pub(crate) fn traces(&self) -> Vec<FileTrace<'_>> {
        let trace = |requests| FileTrace { name: "files that are alike".into(), requests, size_bytes: None };
        self.requests.iter().map(|requests| trace(requests.as_slice())).collect()
    }
}

/// Extents with the number of files of each, ascending; larger ones in place of some when they are many.
fn few(extents: HashMap<u64, u64>) -> Vec<(u64, u64)> {
    let mut extents: Vec<(u64, u64)> = extents.into_iter().collect();
    extents.sort_unstable();
    let per_kind = extents.len().div_ceil(EXTENTS).max(1);
    let largest = |kind: &[(u64, u64)]| (kind.last().map_or(0, |of| of.0), kind.iter().map(|of| of.1).sum());
    extents.chunks(per_kind).map(largest).collect()
}

/// O(entries).
fn kind(file: &FileDemand) -> Kind {
    let log = |x: f64, per_octave: f64| if x > 0.0 { (x.log2() * per_octave).round() as i32 } else { -64 };
    let (mut count, mut reads, mut bytes) = (0.0, 0.0, 0.0);
    let mut phases: Vec<f64> = Vec::new();
    let mut classes = [0.0; 64];
    for e in &file.entries {
        let moved = e.count * e.size as f64;
        count += e.count;
        bytes += moved;
        reads += if e.op == Op::Read { moved } else { 0.0 };
        classes[e.size.ilog2() as usize] += moved;
        phases.resize(phases.len().max(usize::from(e.phase) + 1), 0.0);
        phases[usize::from(e.phase)] += moved;
    }
    let most = |of: &[f64]| (0..of.len()).max_by(|&a, &b| of[a].total_cmp(&of[b])).unwrap_or(0) as i32;
    if count == 0.0 {
        return [-1000; 6];
    }
    [
        // Other phases and operations make files less alike than twice the size does.
        4 * most(&phases),
        (4.0 * reads / bytes).round() as i32,
        log(bytes / count, 1.0),
        most(&classes),
        log(file.extent as f64, 1.0),
        log(bytes / file.extent.max(1) as f64, 2.0),
    ]
}
