//! [`Manifest`]: `trace.json`, what a data set says of itself.

use crate::about::About;
use crate::job_header::JobHeader;
use crate::lacks::Lacks;
use crate::mount_point::MountPoint;
use crate::table::Written;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the data sets that are written here.
pub(super) const VERSION: u32 = 1;

/// `trace.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub version: u32,
    /// Format of the log.
    pub format: String,
    /// What the log lacks, by name.
    pub lacks: Vec<String>,
    pub notes: Vec<String>,
    pub start_unix_ns: Option<u64>,
    pub processes: Option<u64>,
    pub run_ns: Option<u64>,
    /// Older data sets have none of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountPoint>,
    /// Data sets of before it have none.
    #[serde(default)]
    pub job: JobHeader,
    /// Tables by the names of their files.
    pub tables: BTreeMap<String, Written>,
    /// Tables of requests, in order of file.
    pub requests: Vec<ManifestRequests>,
}

/// The requests of one file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ManifestRequests {
    pub file: u32,
    pub rows: u64,
    pub bytes: u64,
    pub crc32c: u32,
}

/// The part of a manifest of any version that is read first.
#[derive(Debug, Deserialize)]
pub(super) struct Versioned {
    pub version: u32,
}

impl Manifest {
    pub fn new(about: &About, tables: BTreeMap<String, Written>, requests: Vec<ManifestRequests>) -> Self {
        Manifest {
            version: VERSION,
            format: about.format.clone(),
            lacks: about.lacks.named().map(|(name, _)| name.to_owned()).collect(),
            notes: about.notes.clone(),
            start_unix_ns: about.start_unix_ns,
            processes: about.processes,
            run_ns: about.run_ns,
            targets: about.targets,
            mounts: about.mounts.clone(),
            job: about.job.clone(),
            tables,
            requests,
        }
    }

    /// What it says of the log, without counters and layouts.
    ///
    /// # Errors
    /// A lack that is not known here.
    pub fn about(&self) -> Result<About, String> {
        let mut lacks = Lacks::NOTHING;
        for name in &self.lacks {
            lacks |= Lacks::of_name(name).ok_or_else(|| format!("it lacks {name:?}, which is not known here"))?;
        }
        Ok(About {
            format: self.format.clone(),
            lacks,
            notes: self.notes.clone(),
            start_unix_ns: self.start_unix_ns,
            processes: self.processes,
            run_ns: self.run_ns,
            targets: self.targets,
            mounts: self.mounts.clone(),
            job: self.job.clone(),
            ..About::default()
        })
    }
}
