//! One suite that every way into a pool passes: operations drawn at random, carried out through the way in and by a
//! reference model in memory, answer by answer. docs/conformance.md says what is tried and how to try for hours.

pub mod case;
pub mod direct;
pub mod generate;
pub mod model;
pub mod operation;
pub mod system_calls;
pub mod threshold;
pub mod world;
