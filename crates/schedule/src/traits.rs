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
    /// When its last burst of requests began; that goes on until the program pauses for [`BURST_GAP_NS`](crate::BURST_GAP_NS).
    pub burst_ns: u64,
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
            burst_ns: 0,
            uses: Vec::new(),
        }
    }

    /// Adds what another page says of the same program. Where both have figures of a server, those of the page stay that
    /// was heard of last.
    pub fn join(&mut self, other: &Self) {
        if other.last_ns > self.last_ns {
            (self.uses, self.period_ns, self.burst_ns) = (other.uses.clone(), other.period_ns, other.burst_ns);
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

    /// Adds what another node says of the same program. A server gets the requests of both: the times between them are those
    /// of both rates together, and a gap is the mean of the gaps, weighted by the rates. The way from the requests of one node
    /// to those of the other is not seen. O(servers of both, multiplied).
    pub fn join_node(&mut self, other: &Self) {
        let mut uses = std::mem::take(&mut self.uses);
        for more in &other.uses {
            match uses.iter_mut().find(|by| by.server == more.server) {
                Some(by) => *by = both(by, more),
                None => uses.push(*more),
            }
        }
        uses.sort_by_key(|by| by.server);
        self.join(other);
        self.uses = uses;
    }
}

/// One program's requests from two nodes to one server.
fn both(one: &ServerUseBy, other: &ServerUseBy) -> ServerUseBy {
    let rate = |by: &ServerUseBy| if by.reuse_ns.is_finite() { 1.0 / by.reuse_ns.max(1.0) } else { 0.0 };
    let (rate_of_one, rate_of_other) = (rate(one), rate(other));
    let all = rate_of_one + rate_of_other;
    if all <= 0.0 {
        return ServerUseBy { gap_bytes: 0.5 * (one.gap_bytes + other.gap_bytes), ..*one };
    }
    let gap_bytes = (one.gap_bytes * rate_of_one + other.gap_bytes * rate_of_other) / all;
    ServerUseBy { server: one.server, gap_bytes, reuse_ns: 1.0 / all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_send_twice_as_often() {
        let by = |server, gap_bytes, reuse_ns| ServerUseBy { server, gap_bytes, reuse_ns };
        let of = |requests, uses| ProgramTraits { requests, uses, ..ProgramTraits::named(ProgramKey(1), "a") };
        let mut one = of(3, vec![by(0, 0.0, 2000.0), by(1, 10.0, f32::NAN)]);
        one.join_node(&of(4, vec![by(0, 800.0, 2000.0), by(1, 30.0, f32::NAN), by(2, 5.0, 7.0)]));
        assert_eq!(one.requests, 7);
        assert!((one.uses[0].gap_bytes - 400.0).abs() < 0.1 && (one.uses[0].reuse_ns - 1000.0).abs() < 0.1);
        assert_eq!(one.uses[2], by(2, 5.0, 7.0));
        assert!(one.uses[1].gap_bytes == 20.0 && one.uses[1].reuse_ns.is_nan());
    }
}
