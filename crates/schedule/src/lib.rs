//! When which program is served: IOrchestrator (Zhang, Davis, Jiang: *IOrchestrator: Improving the Performance of Multi-node
//! I/O Systems via Inter-Server Coordination*) and policies beside it. Pure logic: no I/O, no clock, no threads.
//!
//! ```text
//! locality     what is known of a program on each server: gap between requests (SL), time between them (RD)
//! eligibility  whether dedicated service pays for a program: the paper's three conditions
//! payoff       whether turns move more than shared windows did
//! standing     the same over time: shared, probe, dedicated, cooldown
//! slices       the parts of a window, inversely proportional to reuse distance
//! policy       what a policy is
//! program_rules weights and limits that were ordered for programs
//! policies     who gets which part: one file each
//! turn         whether a program is served now, or when
//! traits       what is known of a program
//! window_means the figures of a window
//! conductor    from figures to the plan of the next window: programs, standings, policy
//! turn_clock   windows and slices on their owner's clock: the orchestrator's, or the simulator's
//! ```

mod candidate;
mod conductor;
mod eligibility;
mod ewma;
mod locality;
mod mixing;
mod payoff;
pub mod policies;
mod policy;
mod program_rules;
mod seek_time;
mod slice_plan;
mod slices;
mod standing;
mod traits;
mod turn;
mod turn_clock;
mod window_means;

pub use candidate::Candidate;
pub use conductor::{Conductor, Decision, NextWindow};
pub use eligibility::Eligibility;
pub use ewma::weighed;
pub use locality::{BURST_GAP_NS, ServerUseBy, SharedServer, mean_reuse};
pub use mixing::{UserTraffic, mixed_gap};
pub use payoff::Payoff;
pub use policies::POLICY_NAMES;
pub use policy::SchedulePolicy;
pub use program_rules::{ProgramRules, paced};
pub use seek_time::{FULL_STROKE_BYTES, SeekTime};
pub use slice_plan::{MAX_SLICES, MAX_WINDOW_NS, MIN_WINDOW_NS, OTHERS, ProgramKey, SlicePlan, TurnSlice};
pub use slices::{harmonic_shares, into_slices};
pub use standing::{Standing, StandingTracker, WindowReport};
pub use traits::{PROGRAM_NAME_BYTES, ProgramTraits};
pub use turn::{HELD_LOOK_NS, Turn, turn_of};
pub use turn_clock::{Looked, TurnClock};
