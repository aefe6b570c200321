//! Regions by search: where to cut files, and a width for every tier in each region.

pub(crate) mod candidates;
mod duals;
mod exhaustive;
pub(crate) mod heads;
mod holdout;
mod hottest;
mod price_table;
mod refine;
pub(crate) mod rehearse;
mod reshape;
pub(crate) mod search;
pub(crate) mod segment;
mod viterbi;
