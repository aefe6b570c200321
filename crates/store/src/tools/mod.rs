//! Tools for a whole pool: setting layouts, a look at a file, check, export, calibration.

pub mod adding;
pub mod apply;
pub mod calibrate;
pub(crate) mod directories;
pub mod drain;
pub(crate) mod emulation;
pub mod export_tree;
pub mod fsck;
pub(crate) mod hinting;
pub mod hottest;
pub(crate) mod in_steps;
pub mod layout_hints;
pub(crate) mod leaving;
pub(crate) mod named;
pub mod rebalance;
pub mod relief;
pub(crate) mod rules_kept;
pub mod small_files;
pub mod status;
pub(crate) mod stretches;
pub(crate) mod survey;
pub(crate) mod walk;
