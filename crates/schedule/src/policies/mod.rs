//! Policies: who gets which part of the next window. One file each.

mod even;
mod none;
mod opportunity;
mod reuse_distance;
mod set_10;

pub use even::Even;
pub use none::Unscheduled;
pub use opportunity::Opportunity;
pub use reuse_distance::ReuseDistance;
pub use set_10::Set10;

use crate::policy::SchedulePolicy;

/// The names of all policies; the first is the default of commands.
pub const POLICY_NAMES: [&str; 5] = ["reuse-distance", "opportunity", "even", "set-10", "none"];

/// The policy of that name.
pub fn named(name: &str) -> Option<Box<dyn SchedulePolicy>> {
    Some(match name {
        "none" => Box::new(Unscheduled),
        "even" => Box::new(Even),
        "reuse-distance" => Box::new(ReuseDistance),
        "set-10" => Box::new(Set10::default()),
        "opportunity" => Box::new(Opportunity::default()),
        _ => return None,
    })
}
