//! Regions by search: where to cut files, and a width for every tier in each region.

pub(crate) mod candidates;
mod duals;
mod exhaustive;
mod holdout;
mod hottest;
pub(crate) mod meta_tier;
mod price_table;
mod refine;
pub(crate) mod rehearse;
mod reshape;
pub(crate) mod search;
pub(crate) mod segment;
mod viterbi;
