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
//! policies     who gets which part: one file each
//! turn         whether a program is served now, or when
//! ```

mod candidate;
mod eligibility;
mod ewma;
mod locality;
mod mixing;
mod payoff;
pub mod policies;
mod policy;
mod seek_time;
mod slice_plan;
mod slices;
mod standing;
mod turn;

pub use candidate::Candidate;
pub use eligibility::Eligibility;
pub use ewma::weighed;
pub use locality::{ServerUseBy, SharedServer};
pub use mixing::{UserTraffic, mixed_gap};
pub use payoff::Payoff;
pub use policies::POLICY_NAMES;
pub use policy::SchedulePolicy;
pub use seek_time::{FULL_STROKE_BYTES, SeekTime};
pub use slice_plan::{MAX_SLICES, MAX_WINDOW_NS, MIN_WINDOW_NS, OTHERS, ProgramKey, SlicePlan, TurnSlice};
pub use slices::{harmonic_shares, into_slices};
pub use standing::{Standing, StandingTracker, WindowReport};
pub use turn::{Turn, turn_of};
