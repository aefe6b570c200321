//! From requests to a layout.
//!
//! A [`Job`] is what is to be planned; [`planners`] are the ways to plan it, one file or directory each behind one trait;
//! [`plan_by`] plans by the name of one of them or by `auto`. Stripewise's own is `regions`: any number of tiers, files
//! and phases, within space limits. [`harl`], [`chen`] and [`song`] are what the papers compute.

pub mod auto;
mod described;
mod error;
mod job;
mod objective;
mod plan;
pub mod planners;
mod regions;
pub mod why;

pub use described::{EqualDepthError, equal_depth_widths, harl_layouts, layouts_by};
pub use error::PlanError;
pub use job::input::{FileTrace, PlanOptions};
pub use job::survey::{Counted, Overview, RequestSource, Strata, Survey, SurveyedFile};
pub use job::{Job, Price};
pub use plan::outcome::{FilePlan, LayoutTimes, PhasePlan, Plan, Rates, RegionPlan, Rehearsal, Sampled, TierUse};
pub use plan::room::within_room;
pub use plan::{PlannedBy, plan_as_is, plan_by};
pub use planners::chen::costs as chen;
pub use planners::harl::limits::harl_within_limits;
pub use planners::harl::{paper as harl, stripe_search};
pub use planners::song::costs as song;
pub use planners::whole_files::assignment;
pub use regions::segment::segment;

#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod random;
#[cfg(test)]
#[path = "../tests/common/table_ii.rs"]
mod table_ii;
