//! Discrete-event simulation of requests on servers.
//!
//! A [`Workload`] is a list of closed-loop processes; [`simulate`] runs it under one [`Layout`] per file on a
//! [`Cluster`] and reports the makespan, what every server did, and how long requests took. Servers are FIFO; a
//! sub-request takes its startup, drawn uniformly from the profile, plus its bytes times beta (HARL Table I). The
//! sub-requests of a request are in flight together; the request ends with the last of them.
//!
//! Everything is deterministic by seed. The n-th startup of a server is the same draw under every layout, so two
//! layouts compared with one seed differ by the layout and not by luck.
//!
//! [`Layout`]: stripewise_layout::Layout
//! [`Cluster`]: stripewise_model::Cluster

mod draw;
mod engine;
mod outcome;
mod workload;

pub use engine::{Network, Options, SimulateError, simulate, simulate_observed};
pub use outcome::{Latency, Outcome, ServerUse};
pub use workload::{Access, Step, Workload};
