//! [`file_hints`]: hints of MPI-IO for the files of a log, by what was found of their use. Servers need not be known.

use crate::findings::{FindingContext, Hints, of_files};
use crate::gather::{Gathered, names_hdf5};
use crate::job_ranks::JobRanks;
use crate::look::Looked;
use std::collections::HashMap;
use std::path::PathBuf;
use stripewise_import::{About, LustreLayout};
use stripewise_trace::Trace;

/// Hints for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHints {
    /// As the log names it.
    pub path: PathBuf,
    /// Each name once.
    pub hints: Hints,
}

/// Of every file for which there are any, those that move most first: as [`advise`](crate::advise()) finds them. O(records).
pub fn file_hints(trace: &Trace, about: &About) -> Vec<FileHints> {
    let gathered = Gathered::new(trace, about, None, Looked::of(trace, None).finished());
    let layouts: HashMap<u32, &LustreLayout> =
        about.lustre_layouts.iter().map(|layout| (layout.file, layout)).collect();
    let JobRanks { processes, nodes } = gathered.job_ranks;
    let mut found: Vec<(u64, FileHints)> = Vec::new();
    for file in &gathered.files {
        let components = layouts.get(&file.id).map(|layout| layout.components.as_slice());
        let widest = components.unwrap_or_default().iter().max_by_key(|component| component.stripe_count);
        let around = FindingContext {
            processes,
            weight: 1.0,
            width_bytes: widest.map_or(1 << 20, |component| component.stripe_bytes.max(1)),
            stripes: widest.map_or(1, |component| usize::try_from(component.stripe_count).unwrap_or(usize::MAX)),
            on_lustre: widest.is_some(),
            nodes,
            targets: about.targets.and_then(|targets| usize::try_from(targets).ok()),
            is_hdf5: file.used.asked.hdf5 || names_hdf5(&file.path),
        };
        let mut hints = Hints::default();
        for finding in of_files(&file.used, &around) {
            for (name, value) in finding.hints.0 {
                if hints.0.iter().all(|(known, _)| *known != name) {
                    hints.0.push((name, value));
                }
            }
        }
        if let Some(named) = trace.files().get(file.id as usize).filter(|_| !hints.0.is_empty()) {
            found.push((file.used.both().bytes, FileHints { path: named.path.clone(), hints }));
        }
    }
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.path.cmp(&b.1.path)));
    found.into_iter().map(|(_, hints)| hints).collect()
}
