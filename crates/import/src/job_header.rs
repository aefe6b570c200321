//! [`JobHeader`]: what a log says of the job that it is of.

use serde::{Deserialize, Serialize};

/// The job of a log, as far as the log tells of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobHeader {
    /// Command line of its program, or the program's name.
    pub command: Option<String>,
    /// Name of its user, or `uid` and the number.
    pub user: Option<String>,
    /// What the scheduler calls it.
    pub id: Option<String>,
    /// Nodes that it ran on.
    pub nodes: Option<u64>,
}
