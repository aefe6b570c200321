//! What is known of a program.

use crate::locality::ServerUseBy;
use crate::slice_plan::ProgramKey;

/// Bytes of a program's name that are kept.
pub const PROGRAM_NAME_BYTES: usize = 32;

/// What is known of a program, from the pages.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramTraits {
    /// Key.
    pub key: ProgramKey,
    /// Name, or its beginning.
    pub name: String,
    /// User.
    pub uid: u32,
    /// Processes that have sent requests lately.
    pub processes: u32,
    /// Files that it has used, up to 64; two may count as one.
    pub files: u32,
    /// When it was first seen (`CLOCK_MONOTONIC`, nanoseconds).
    pub first_ns: u64,
    /// When it was last seen.
    pub last_ns: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes that servers have moved for it.
    pub bytes: u64,
    /// Requests that waited for a turn or for a limit.
    pub held: u64,
    /// How long these waited, in nanoseconds, all together.
    pub waited_ns: u64,
    /// Requests that passed in a turn of its own or of the others.
    pub in_turn: u64,
    /// Requests that passed while no orchestrator answered.
    pub unanswered: u64,
    /// Requests that passed after two windows, whatever the plan said.
    pub overdue: u64,
    /// Mean time from one burst of requests to the next, in nanoseconds.
    pub period_ns: Option<f64>,
    /// What it does on each server.
    pub uses: Vec<ServerUseBy>,
}

impl ProgramTraits {
    /// A program that has done nothing.
    pub fn named(key: ProgramKey, name: &str) -> Self {
        Self {
            key,
            name: name.to_owned(),
            uid: 0,
            processes: 1,
            files: 1,
            first_ns: 0,
            last_ns: 0,
            requests: 0,
            bytes: 0,
            held: 0,
            waited_ns: 0,
            in_turn: 0,
            unanswered: 0,
            overdue: 0,
            period_ns: None,
            uses: Vec::new(),
        }
    }

    /// Adds what another page says of the same program. Where both have figures of a server, those of the page stay that
    /// was heard of last.
    pub fn join(&mut self, other: &Self) {
        if other.last_ns > self.last_ns {
            (self.uses, self.period_ns) = (other.uses.clone(), other.period_ns);
        }
        self.processes = self.processes.saturating_add(other.processes);
        self.files = self.files.max(other.files);
        (self.first_ns, self.last_ns) = (self.first_ns.min(other.first_ns), self.last_ns.max(other.last_ns));
        let counters = [
            (&mut self.requests, other.requests),
            (&mut self.bytes, other.bytes),
            (&mut self.held, other.held),
            (&mut self.waited_ns, other.waited_ns),
            (&mut self.in_turn, other.in_turn),
            (&mut self.unanswered, other.unanswered),
            (&mut self.overdue, other.overdue),
        ];
        counters.into_iter().for_each(|(own, more)| *own = own.saturating_add(more));
    }
}
