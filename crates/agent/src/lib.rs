//! Turns over several nodes: an agent on each, and one orchestrator that they join. gRPC is here and nowhere else.
//!
//! ```text
//! wire         the messages
//! seal         who may send them: keys of nodes, numbers of messages; node_keys: the file of keys
//! clock_offset how far the clocks of two nodes are apart
//! convert      between pages and messages; bounds all that comes from another node
//! hub          the orchestrator's side: what nodes say, the plan that they get; session: one agent; listener: gRPC
//! connections  how many strangers may be there; guest_stream: one connection, which can be closed for another
//! member       the agent's side
//! teller       the log
//! ```
//!
//! Nothing in a message is believed before its seal is right, and nothing in it is unbounded after.

mod clock_offset;
mod connections;
mod convert;
mod error;
mod guest_stream;
mod hub;
mod listener;
mod member;
mod node_keys;
pub mod seal;
mod session;
mod teller;
pub mod wire;

pub use error::{AgentError, Result};
pub use hub::{Hub, HubNodes};
pub use listener::AgentListener;
pub use member::{AgentOptions, NodeAgent};
pub use node_keys::{NodeKeys, new_key};
pub use teller::AgentLog;
