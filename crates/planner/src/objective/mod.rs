//! What layouts cost in the one model that all planners are compared by, and the space that limits them.

pub(crate) mod capacity;
pub(crate) mod closed_loop;
pub(crate) mod lanes;
pub(crate) mod priced;
pub(crate) mod pricing;
pub(crate) mod seeks;
