//! Tools for a whole pool: setting layouts, a look at a file, check, export, calibration.

pub mod apply;
pub mod calibrate;
pub(crate) mod directories;
pub(crate) mod emulation;
pub mod export_tree;
pub mod fsck;
pub(crate) mod hinting;
pub(crate) mod rules_kept;
pub mod status;
mod survey;
pub(crate) mod walk;
