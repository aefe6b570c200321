//! Turns of programs on a pool: what they share, where they wait, and who decides.
//!
//! ```text
//! identity     which program a process is of: launcher's job, name given, cgroup, session
//! plan_page    <namespace>/turns: the plan, written by the orchestrator, read by gates
//! use_page     <namespace>/programs/UID: what a user's programs do, written by their gates, read by the orchestrator
//! turns        gate and observer of a way in
//! plan_writer  the one process that writes a page of turns
//! orchestrator the loop: reads figures, lets the schedule decide, publishes plans
//! nodes        what an orchestrator asks of other nodes; node_page: the pages of one of them
//! node_board   what the orchestrator says of all nodes, for `--status` and `top`
//! node_program a program of a node, as that says it
//! status       what is going on, for people
//! ```
//!
//! Nothing in a page is trusted: whatever it says, no request waits longer than two windows of at most ten seconds.

mod identity;
mod node_board;
mod node_page;
mod node_program;
mod nodes;
mod orchestrator;
mod plan_page;
mod plan_writer;
mod snapshot;
mod status;
mod turns;
mod use_page;

pub use identity::{Identified, JOB_VARIABLE, RUN_VARIABLE};
pub use node_page::NodePages;
pub use node_program::NodeProgram;
pub use nodes::{NODE_NAME_BYTES, NODES_DIRECTORY, NodeStatus, OtherNodes, check_node_name, this_node};
pub use orchestrator::{Orchestrator, OrchestratorOptions};
pub use plan_page::{ListedProgram, PublishedPlan, TURNS_FILE};
pub use snapshot::{NodeSnapshot, ServerDone};
pub use status::{OrchestrationStatus, ProgramStatus, WatchedNode, orchestration_status};
pub use stripewise_schedule::{Decision, PROGRAM_NAME_BYTES, ProgramRules, ProgramTraits};
pub use turns::{Asker, Turns, is_orchestrated, make_plan_page};
pub use use_page::PROGRAMS_DIRECTORY;
