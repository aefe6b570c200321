//! Nodes: each has pages of its own, since times and shared memory are one machine's.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stripewise_store::{Error, Pool, Result};

use crate::node_program::NodeProgram;
use crate::plan_page::PublishedPlan;
use crate::snapshot::{NodeSnapshot, ServerDone};

/// Directory of the nodes' directories, in the namespace; each is named by its node.
pub const NODES_DIRECTORY: &str = "nodes";
/// Bytes of a node's name.
pub const NODE_NAME_BYTES: usize = 64;

/// A node that takes part, as the orchestrator knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Where its agent speaks from; empty: the orchestrator is there itself.
    pub address: String,
    /// Whether its agent is there.
    pub is_joined: bool,
    /// Its clock (`CLOCK_MONOTONIC`) less the orchestrator's, in nanoseconds; `None`: not measured yet.
    pub clock_offset_ns: Option<i64>,
    /// How far that may be wrong.
    pub clock_error_ns: u64,
    /// How long ago it was heard of, in nanoseconds.
    pub heard_ns: u64,
    /// Whether its gates keep to slices; `None`: it is not known.
    pub is_in_turns: Option<bool>,
    /// Its programs.
    pub programs: Vec<NodeProgram>,
    /// What its programs have done on each server.
    pub served: Vec<ServerDone>,
}

/// The nodes whose agents have joined an orchestrator.
pub trait OtherNodes: Send {
    /// Adds what they say to what this node's pages say, with times of this node's clock.
    fn add_to(&mut self, snapshot: &mut NodeSnapshot, now_ns: u64);
    /// Sends a plan; its times are of this node's clock.
    fn send(&mut self, plan: &PublishedPlan);
    /// Those that are there, and those that were.
    fn statuses(&self, now_ns: u64) -> Vec<NodeStatus>;
    /// How long a plan is on its way, in nanoseconds.
    fn lead_ns(&self) -> u64;
}

/// This machine's name: the host's, as far as it is a node's name.
pub fn this_node() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().chars().take(NODE_NAME_BYTES).collect()
}

/// Refuses what is no name of a node: letters, digits, `.`, `-` and `_`, at most 64, and no `.` first.
///
/// # Errors
/// The name is none.
pub fn check_node_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || name.len() > NODE_NAME_BYTES || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(Error::Invalid(format!(
            "'{}' is no name of a node: take up to {NODE_NAME_BYTES} letters, digits, '.', '-' and '_' (it is the host's name)",
            name.escape_debug()
        )));
    }
    Ok(())
}

/// The directory of the pages of `node`; `None` where that is no name.
pub(crate) fn pages_of(pool: &Pool, node: &str) -> Option<PathBuf> {
    check_node_name(node).ok().map(|()| pool.namespace.join(NODES_DIRECTORY).join(node))
}
