//! A program of a node, as the orchestrator says it to people on all nodes.

use serde::{Deserialize, Serialize};
use stripewise_schedule::{Conductor, ProgramKey, ProgramTraits, mean_reuse};

use crate::plan_page::text_of;

/// What is said of a program. Its figures by server are left out, but for the mean of its gaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeProgram {
    key: u64,
    /// Its name.
    pub name: String,
    /// Whether it has requests now.
    pub(crate) is_busy: bool,
    /// Mean gap between its requests over the servers, in bytes.
    pub(crate) gap_bytes: Option<f64>,
    /// Mean time between its requests over the servers, in nanoseconds.
    pub(crate) reuse_ns: Option<f64>,
    processes: u32,
    files: u32,
    requests: u64,
    bytes: u64,
    held: u64,
    waited_ns: u64,
    in_turn: u64,
    unanswered: u64,
    overdue: u64,
    period_ns: Option<f64>,
}

/// Mean gap between the requests of a program over the servers, in bytes.
pub(crate) fn mean_gap(of: &ProgramTraits) -> Option<f64> {
    let gaps: f64 = of.uses.iter().map(|by| f64::from(by.gap_bytes)).sum();
    (!of.uses.is_empty()).then(|| gaps / of.uses.len() as f64)
}

impl NodeProgram {
    /// Of a program, as of `now_ns`.
    pub fn of(traits: &ProgramTraits, now_ns: u64) -> Self {
        let ProgramTraits { processes, files, requests, bytes, held, waited_ns, in_turn, unanswered, overdue, .. } =
            *traits;
        Self {
            key: traits.key.0,
            name: traits.name.clone(),
            is_busy: Conductor::is_busy(traits, now_ns),
            gap_bytes: mean_gap(traits),
            reuse_ns: mean_reuse(&traits.uses),
            processes,
            files,
            requests,
            bytes,
            held,
            waited_ns,
            in_turn,
            unanswered,
            overdue,
            period_ns: traits.period_ns,
        }
    }

    /// Which it is.
    pub(crate) fn key(&self) -> ProgramKey {
        ProgramKey(self.key)
    }

    /// The same as pages have it.
    pub(crate) fn traits(&self) -> ProgramTraits {
        let Self { processes, files, requests, bytes, held, waited_ns, in_turn, unanswered, overdue, .. } = *self;
        let (key, period_ns) = (self.key(), self.period_ns);
        ProgramTraits {
            uid: (self.key >> 32) as u32,
            processes,
            files,
            requests,
            bytes,
            held,
            waited_ns,
            in_turn,
            unanswered,
            overdue,
            period_ns,
            ..ProgramTraits::named(key, &text_of(self.name.as_bytes()))
        }
    }
}
