//! What threads of the program meet at: the standard library's. `crates/interleavings` builds [`crate::slots`] and
//! [`crate::table`] with others in its place, whose order it chooses.

pub(crate) use std::sync::atomic;
