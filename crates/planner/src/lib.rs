//! From requests to a layout.
//!
//! A [`Job`] is what is to be planned; [`planners`] are the ways to plan it, one file each behind one trait.
//! [`plan`](plan()) is Stripewise's own: any number of tiers, files and phases, within space limits. [`harl`] is the
//! paper's, with its [`stripe_search`].

pub mod aligned_widths;
mod alike;
pub mod assignment;
pub mod auto;
mod candidates;
mod capacity;
pub mod chen;
mod chosen;
mod closed_loop;
mod concurrency;
mod demand;
mod describe;
mod duals;
mod error;
mod exhaustive;
pub mod harl;
mod harl_limits;
mod holdout;
mod hottest;
mod job;
mod lanes;
mod outcome;
pub mod partition;
mod phases;
mod plan;
pub mod planners;
mod price_table;
mod priced;
mod pricing;
mod refine;
mod rehearse;
mod reshape;
mod room;
mod search;
mod segment;
pub mod song;
pub mod stripe_search;
mod survey;
mod vector_search;
mod viterbi;
pub mod why;

pub use chosen::{PlannedBy, plan_as_is, plan_by};
pub use error::PlanError;
pub use harl_limits::plan_harl;
pub use job::{Job, Price};
pub use outcome::{FilePlan, PhasePlan, Plan, Rates, RegionPlan, Rehearsal, Sampled, TierUse, Times};
pub use plan::{FileTrace, PlanOptions, plan, plan_surveyed, predict};
pub use room::within_room;
pub use segment::segment;
pub use survey::{Counted, Overview, RequestSource, Strata, Survey, SurveyedFile};

#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod random;
#[cfg(test)]
#[path = "../tests/common/table_ii.rs"]
mod table_ii;
