//! From any log to advice.
//!
//! A [`ClusterFile`] says what servers there are; [`Below`] hands the requests of a trace's files to planner and
//! simulator.

mod cluster_file;
mod requests;

pub use cluster_file::{ClusterError, ClusterFile, ClusterTier, DefaultLayout, FileSystem};
pub use requests::{Below, FileRequests, below, common_directory};
