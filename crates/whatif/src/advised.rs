//! Advice on a log, on the servers of a cluster or pool file.

use crate::error::WhatifError;
use crate::hinted::{HintProposal, propose};
use crate::servers::Servers;
use crate::target::Target;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use stripewise_advise::{Advice, AdviceOptions, Below, ClusterFile, Passes, ReadLayouts, advise_by};
use stripewise_import::{About, Lacks};
use stripewise_layout::{Layout, LayoutFile};
use stripewise_store::Store;
use stripewise_trace::Trace;

/// What is asked of a log.
#[derive(Debug, Clone, Copy)]
pub struct AdviceRequest<'a> {
    /// Cluster or pool file; `None`: the servers that the log's Lustre layouts show.
    pub servers: Option<&'a Path>,
    /// Only files below it; `None`: those below a pool's mount, or all.
    pub root: Option<&'a Path>,
    /// Name of the planner; `None`: as [`AdviceOptions::planner`].
    pub planner: Option<&'a str>,
    /// Profile of servers that the log shows.
    pub preset: &'a str,
    /// Lustre's targets, where neither a cluster file nor the log tells all.
    pub osts: Option<u16>,
    /// Text of a layout file to hold against the present layouts, and what errors call it; `None`: planners make them.
    pub layout: Option<(&'a str, &'a str)>,
    /// As [`AdviceOptions::rules`].
    pub rules: bool,
    /// Hints for new files of a pool's directories are wanted, too.
    pub hints: bool,
}

/// [`Advice`], and whether it is for the files of a pool.
#[derive(Debug)]
pub struct Advised {
    /// The advice.
    pub advice: Advice,
    /// Its servers are a pool's.
    pub is_pool: bool,
    /// What the log lacks for it.
    pub lacks: Lacks,
    /// Hints of directories of a pool that gain for files like those of the log, where they are wanted; none where requests are
    /// too many to be held, are read elsewhere, or are known by counters alone, which tell no order.
    pub hints: Vec<HintProposal>,
}

impl AdviceRequest<'_> {
    /// Gives `then` the options, and the pool if it is for one: its files have the layouts that they have there, and paths are
    /// relative to its mount.
    pub(crate) fn with_options<T>(
        &self,
        then: impl FnOnce(&AdviceOptions, Option<&Arc<Store>>) -> Result<T, WhatifError>,
    ) -> Result<T, WhatifError> {
        let servers = self.servers.map(Servers::load).transpose()?;
        let cluster = servers.as_ref().map(|servers| &servers.cluster);
        let (text, origin) = self.layout.unwrap_or_default();
        let read = |cluster: &ClusterFile| {
            LayoutFile::parse(text, &cluster.names())
                .map_err(|error| format!("{origin}:{}: {}", error.line, error.problem))
        };
        let options = AdviceOptions {
            cluster,
            preset: self.preset,
            osts: self.osts,
            root: self.root,
            planner: self.planner,
            present: None,
            given: self.layout.map(|_| &read as &ReadLayouts),
            rules: self.rules,
        };
        let Some(file) = servers.as_ref().and_then(|servers| servers.pool_file.as_deref()) else {
            return then(&options, None);
        };
        let store = Store::of_file(file)?;
        let present = |path: &Path| store.present_layout(path).ok().map(|layout| Layout::clone(&layout));
        let root = options.root.or(Some(store.pool().mount.as_path()));
        then(&AdviceOptions { root, present: Some(&present), ..options }, Some(&store))
    }
}

/// Advises on the files of `trace` below the root, whose requests are where `passes` are made.
///
/// # Errors
/// As [`advise_by`]; a cluster or pool file that is wrong.
pub fn advise(
    trace: &Trace,
    about: &About,
    asked: &AdviceRequest,
    passes: &dyn Passes,
) -> Result<Advised, WhatifError> {
    asked.with_options(|options, store| {
        let has_newer = store.zip(options.root).is_some_and(|(store, root)| has_newer_layouts(trace, store, root));
        let lacks = if has_newer { about.lacks | Lacks::LAYOUTS } else { about.lacks };
        let advice = advise_by(trace, &About { lacks, ..about.clone() }, options, passes)?;
        let tells_order = asked.hints && !lacks.contains(Lacks::COUNTERS_ONLY);
        let hints = match store.filter(|_| tells_order) {
            Some(store) => hints(trace, store, &advice)?,
            None => Vec::new(),
        };
        Ok(Advised { advice, is_pool: store.is_some(), lacks, hints })
    })
}

/// The hints that gain for files like those of `trace`, under the layouts that `advice` gives them. O(records).
fn hints(trace: &Trace, store: &Arc<Store>, advice: &Advice) -> Result<Vec<HintProposal>, WhatifError> {
    let below = Below::new(trace, &advice.root);
    if below.is_large() {
        return Ok(Vec::new());
    }
    let files = below.files(true);
    let present = files.iter().map(|file| store.present_layout(Path::new(&file.path)));
    let present: Vec<Arc<Layout>> = present.collect::<Result<_, _>>()?;
    let planned = files.iter().zip(&present).map(|(file, present)| {
        let entry = advice.layout.files.iter().find(|entry| entry.path.matches(file.path.as_bytes()));
        entry.map_or(&**present, |entry| &entry.layout)
    });
    let target = Target::of_pool(store.pool(), &HashMap::new())?;
    let found = propose(&files, present.iter().map(|layout| &**layout), planned, target.hinted());
    // Of a file on a server without a profile nothing is known: then nothing is proposed.
    Ok(found.unwrap_or_default())
}

/// Whether the pool got the present layout of a file below `root` after the end of `trace`, so that the trace's times are not
/// those of this layout. O(records + files).
fn has_newer_layouts(trace: &Trace, store: &Arc<Store>, root: &Path) -> bool {
    let end = UNIX_EPOCH.checked_add(Duration::from_nanos(trace.start_unix_ns().saturating_add(trace.duration_ns())));
    let mut below = trace.files().iter().filter_map(|file| Path::new(&file.path).strip_prefix(root).ok());
    end.filter(|end| *end > UNIX_EPOCH)
        .is_some_and(|end| below.any(|path| store.layout_kept_at(path).is_some_and(|kept_at| kept_at > end)))
}
