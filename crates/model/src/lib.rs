//! What a request costs under a layout.

mod profile;

pub use profile::{Cluster, Op, OpProfile, Profile, Request, Tier};
