//! From requests to a layout.
//!
//! [`plan`](plan()) is the planner: any number of tiers, files and phases, within space limits. [`harl`] is the paper's
//! own planner, for comparison, with its [`stripe_search`].

mod candidates;
mod capacity;
mod closed_loop;
mod concurrency;
mod demand;
mod duals;
pub mod harl;
mod harl_limits;
mod holdout;
mod hottest;
mod outcome;
mod phases;
mod plan;
mod price_table;
mod pricing;
mod refine;
mod rehearse;
mod reshape;
pub mod stripe_search;
mod viterbi;

pub use harl_limits::plan_harl;
pub use outcome::{FilePlan, PhasePlan, Plan, Rates, RegionPlan, Rehearsal, Sampled, TierUse, Times};
pub use plan::{FileTrace, PlanError, PlanOptions, plan, predict};
