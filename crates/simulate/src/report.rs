//! What a run found.

use crate::outcome::{Latency, SimulationOutcome};
use crate::timeline::Timeline;

/// Result of [`run`](crate::run()).
#[derive(Debug, Clone, PartialEq)]
pub struct SimulationReport {
    /// What [`simulate`](crate::simulate()) reports, too; its percentiles are known to 0.1 % of each.
    pub outcome: SimulationOutcome,
    /// Of reads alone.
    pub reads: Latency,
    /// Of writes alone.
    pub writes: Latency,
    /// Requests of more than 0 bytes.
    pub requests: u64,
    /// Sub-requests that they were split into.
    pub sub_requests: u64,
    /// Events that it took.
    pub events: u64,
    /// Sub-requests that waited in queues at any time, at most.
    pub most_waiting: usize,
    /// By [`ServerId::index`](stripewise_layout::ServerId::index).
    pub queues: Vec<QueueUse>,
    /// Links of the nodes; empty without [`ClientLink`](crate::ClientLink).
    pub nodes: Vec<NodeUse>,
    /// The metadata server.
    pub metadata: MetadataUse,
    /// By program, with [`System::turns`](crate::System::turns).
    pub turns: Vec<TurnUse>,
    /// With [`System::bins`](crate::System::bins).
    pub timeline: Option<Timeline>,
}

/// A server's queue.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueueUse {
    /// Sub-requests at the device at any time, served or waiting, at most.
    pub most: u32,
    /// Seconds of its busy time that were startups.
    pub startup_s: f64,
}

/// A node's link.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NodeUse {
    /// Seconds that it was taking in what was read.
    pub in_busy_s: f64,
    /// Seconds that it was sending what was written.
    pub out_busy_s: f64,
}

/// The metadata server.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MetadataUse {
    /// Operations.
    pub requests: u64,
    /// Seconds that its threads were serving, added up.
    pub busy_s: f64,
    /// Seconds that operations waited for a thread, added up.
    pub waiting_s: f64,
}

/// What turns were to a program.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TurnUse {
    /// Requests that waited for a turn.
    pub held: u64,
    /// Seconds that they waited, added up.
    pub waited_s: f64,
}
