//! [`AdviseError`]: why there is no advice.

use std::path::PathBuf;
use stripewise_planner::PlanError;
use stripewise_simulate::SimulateError;

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// Neither the log nor the options name the servers.
    #[error(
        "the log tells no Lustre layouts, so the servers are not known: name them with --cluster, a cluster file or a \
         pool file (docs/advise.md has one to copy), or of Lustre with --osts N"
    )]
    NoServers,
    /// Impossible servers.
    #[error("--osts {0}: a file system has 1 to {max}", max = crate::cluster_file::MAX_SERVERS)]
    Osts(u16),
    /// A layout file that is wrong.
    #[error("{0}")]
    Given(String),
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
    /// A pass through the requests was not made; its maker reports why.
    #[error("the requests of the log were not read")]
    Passes,
    /// It cannot be simulated.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}
