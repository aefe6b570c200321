//! [`About`]: what is known of a log beside its rows.

use crate::counters::{FileCounters, LustreLayout};
use crate::job_header::JobHeader;
use crate::lacks::Lacks;
use crate::mount_point::MountPoint;
use crate::sink::Summary;

/// Where a trace comes from, what it lacks, and what its log knows beside single requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct About {
    /// Name of the format ([`crate::Importer::name`]; our own recorder's is `Stripewise`).
    pub format: String,
    /// What the log does not say.
    pub lacks: Lacks,
    /// What happened that a user should know, in whole sentences without full stop.
    pub notes: Vec<String>,
    /// Counters, by the trace's numbers of files.
    pub counters: Vec<FileCounters>,
    /// Layouts that files had on Lustre, by the trace's numbers of files.
    pub lustre_layouts: Vec<LustreLayout>,
    /// Start of the log in nanoseconds since 1970, where it knows.
    pub start_unix_ns: Option<u64>,
    /// Processes of the job, where the log knows.
    pub processes: Option<u64>,
    /// How long the program ran in nanoseconds, where the log knows.
    pub run_ns: Option<u64>,
    /// Object storage targets of the Lustre that files are on, where the log knows.
    pub targets: Option<u64>,
    /// File systems of the machine, where the log names them.
    pub mounts: Vec<MountPoint>,
    /// The job, as far as the log tells of it.
    pub job: JobHeader,
}

impl About {
    pub(crate) fn of(summary: Summary) -> Self {
        About {
            format: summary.format.to_owned(),
            lacks: summary.lacks,
            notes: summary.notes,
            start_unix_ns: summary.start_unix_ns,
            processes: summary.processes,
            run_ns: summary.run_ns,
            targets: summary.targets,
            mounts: summary.mounts,
            job: summary.job,
            ..About::default()
        }
    }
}
