//! Tools that go through a whole pool: check, export, calibration.

pub mod calibrate;
pub(crate) mod directories;
pub mod export_tree;
pub mod fsck;
mod survey;
pub(crate) mod walk;
