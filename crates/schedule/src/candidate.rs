//! A program as policies see it.

use crate::slice_plan::ProgramKey;
use crate::standing::Standing;

/// A program that has used the pool lately.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Which.
    pub program: ProgramKey,
    /// Where it stands.
    pub standing: Standing,
    /// Mean reuse distance over its servers in nanoseconds, if it was measured.
    pub reuse_ns: Option<f64>,
    /// Its weight; 1 where none is given.
    pub weight: f64,
    /// Characteristic time: mean time from the beginning of one burst of requests to that of the next, in nanoseconds; `None`
    /// where no second one has begun yet.
    pub period_ns: Option<f64>,
    /// How long its last burst of requests has lasted, if it is busy: since it began, in nanoseconds.
    pub burst_age_ns: u64,
    /// How long it has been there, in nanoseconds.
    pub age_ns: u64,
    /// The bytes that it moved in a second of its life, by what the programs that are at work moved in the mean; `None` where
    /// nothing was moved.
    pub load: Option<f64>,
    /// Whether it has requests now, or had one a moment ago.
    pub is_busy: bool,
}
