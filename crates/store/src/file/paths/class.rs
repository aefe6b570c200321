//! `class`: while an orchestrator is at work, requests on the file wait for those on files of a lower rank.
//!
//! It is no [`crate::file::paths::path::IoPath`]: it changes nothing of a request but the rank by which it stands at the gate, which is
//! one byte that the file has at hand. A path around the request would ask the same once more.

use crate::file::paths::open_terms::{KernelPages, OpenTerms};
use crate::file::paths::record::{NotTaken, PathState};

/// How far behind requests on a file are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class {
    rank: u8,
}

impl Class {
    /// With all others.
    pub(crate) const NONE: Self = Self { rank: 0 };

    /// Behind all of a lower rank.
    pub(crate) fn of(rank: u8) -> Self {
        Self { rank }
    }

    /// By what requests stand at the gate; 0: with all others.
    #[inline]
    pub(crate) fn rank(self) -> u8 {
        self.rank
    }

    /// Its part of the decision for an open, in a process whose door has a gate or none.
    pub(crate) fn decide(self, terms: &OpenTerms, has_gate: bool) -> PathState {
        match terms.pages {
            _ if self == Self::NONE => PathState::NotAsked,
            KernelPages::ServesItself => PathState::Not(NotTaken::KernelServes),
            _ if !has_gate => PathState::Not(NotTaken::Gate),
            _ => PathState::Taken,
        }
    }
}
