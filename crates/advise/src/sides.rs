//! [`Sides`]: the layouts that the files of a trace have, beside those of a layout file.

use crate::cluster_file::{ClusterFile, MAX_SERVERS};
use crate::error::AdviseError;
use crate::options::{AdviceOptions, LayoutSource, ServersFrom};
use crate::present::{Targets, alike, found};
use crate::requests::{Below, common_directory, moved};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use stripewise_import::About;
use stripewise_layout::{Layout, LayoutFile, RstError};
use stripewise_trace::Trace;

/// The servers that files are on, as far as they are known.
pub(crate) fn servers(
    about: &About,
    options: &AdviceOptions,
) -> Result<(ClusterFile, Targets, ServersFrom), AdviseError> {
    if let Some(osts) = options.osts.filter(|osts| !(1..=MAX_SERVERS).contains(osts)) {
        return Err(AdviseError::Osts(osts));
    }
    let shown = found(&about.lustre_layouts, options.preset, options.osts).map_err(AdviseError::Preset)?;
    if let Some(cluster) = options.cluster {
        return Ok((cluster.clone(), Targets::of(cluster), ServersFrom::Named));
    }
    if let Some((cluster, targets)) = shown {
        return Ok((cluster, targets, ServersFrom::Log));
    }
    let (servers, from) = options.osts.map_or((1, ServersFrom::Unknown), |osts| (osts, ServersFrom::Number));
    let cluster = alike(servers, options.preset, from == ServersFrom::Number).map_err(AdviseError::Preset)?;
    let targets = Targets::of(&cluster);
    Ok((cluster, targets, from))
}

/// The layout that each file (its number in the trace, its path below the root) has, and how that is known.
pub(crate) fn present<'f>(
    servers: &ClusterFile,
    targets: &Targets,
    about: &About,
    options: &AdviceOptions,
    files: impl Iterator<Item = (u32, &'f str)>,
) -> Vec<(Layout, LayoutSource)> {
    let of_log: HashMap<u32, _> = about.lustre_layouts.iter().map(|layout| (layout.file, layout)).collect();
    let present = files.enumerate().map(|(number, (id, path))| {
        let of_pool = options.present.and_then(|present| present(Path::new(path)));
        let of_log = || of_log.get(&id).and_then(|record| targets.layout(record, number));
        match of_pool {
            Some(layout) => (layout, LayoutSource::Pool),
            None => match of_log() {
                Some(layout) => (layout, LayoutSource::Log),
                None => (servers.default_layout(number), LayoutSource::Default),
            },
        }
    });
    present.collect()
}

/// A file with its two layouts.
#[derive(Debug, Clone)]
pub struct Sided {
    /// Its number in the trace.
    pub id: u32,
    /// Path below the root.
    pub path: String,
    /// The layout that it has.
    pub present: Layout,
    /// How that is known.
    pub source: LayoutSource,
    /// The layout that the layout file gives it; the present one where that does not name it.
    pub layout: Layout,
}

/// The files of a trace that are worth planning, in order of path.
#[derive(Debug, Clone)]
pub struct Sides {
    /// The servers: those of the options, or those that the log shows.
    pub cluster: ClusterFile,
    /// What paths are relative to.
    pub root: PathBuf,
    /// The files.
    pub files: Vec<Sided>,
}

impl Sides {
    /// With the same servers, root and present layouts as [`advise`](crate::advise()) takes for the same `options`;
    /// `read` is given the servers and reads the layout file. O(records).
    ///
    /// # Errors
    /// [`AdviseError`] as for [`advise`](crate::advise()); the outer result is that of `read`.
    pub fn of(
        trace: &Trace,
        about: &About,
        options: &AdviceOptions,
        read: impl FnOnce(&ClusterFile) -> Result<LayoutFile, RstError>,
    ) -> Result<Result<Self, AdviseError>, RstError> {
        let (cluster, targets) = match servers(about, options) {
            Ok((_, _, ServersFrom::Unknown)) => return Ok(Err(AdviseError::NoServers)),
            Ok((cluster, targets, _)) => (cluster, targets),
            Err(error) => return Ok(Err(error)),
        };
        let written = read(&cluster)?;
        let root = options.root.map_or_else(|| common_directory(trace), Path::to_owned);
        let below = Below::all(trace, &root, |id| moved(trace, id));
        if below.files.is_empty() {
            return Ok(Err(AdviseError::NothingMoved { root }));
        }
        let mut names = below.files;
        names.sort_by(|a, b| a.1.cmp(&b.1));
        let present = present(&cluster, &targets, about, options, names.iter().map(|(id, path)| (*id, path.as_str())));
        let files = names.into_iter().zip(present).map(|((id, path), (present, source))| {
            let entry = written.files.iter().find(|entry| entry.path.matches(path.as_bytes()));
            let layout = entry.map_or_else(|| present.clone(), |entry| entry.layout.clone());
            Sided { id, path, present, source, layout }
        });
        Ok(Ok(Self { files: files.collect(), cluster, root }))
    }
}
