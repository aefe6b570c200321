//! What a recorded run would do on the servers of a pool or of a cluster file: planned, predicted, simulated, advised on.
//!
//! Here planners, simulator and advice, which know nothing of files on disk, meet the store, which knows nothing of them.

mod advised;
mod error;
mod fronts;
mod hinted;
mod loads;
mod lockstep;
mod planning;
mod prediction;
mod replay;
mod room;
mod servers;
mod simulation;
mod system_options;
mod target;
mod together;
mod words;

pub use advised::{AdviceRequest, Advised, advise};
pub use error::WhatifError;
pub use hinted::HintProposal;
pub use loads::{ServerLoads, ServerTraffic, SimulatedLoads};
pub use planning::{PlanRequest, Planned, Planning};
pub use prediction::{Bandwidths, BeforeAfter, Prediction, predict};
pub use servers::Servers;
pub use simulation::{Simulation, simulate, simulate_on_cluster};
pub use system_options::SystemOptions;
pub use target::Target;
pub use together::{
    ConcurrentPrograms, NamedTrace, PolicyOutcome, ProgramAlone, ProgramPair, TogetherRequest, together,
};
