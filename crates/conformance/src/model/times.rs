//! What is known of a file's times.

/// Times are of the kernel's clock of ticks: up to so much behind the one that the harness reads.
const TICK_NS: i64 = 50_000_000;

/// When an operation ran, by the clock, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct ClockInterval {
    /// Before it.
    pub from_ns: i64,
    /// After it.
    pub to_ns: i64,
}

/// What is known of the times of one file.
#[derive(Debug, Default)]
pub(super) struct FileTimes {
    /// Ranges of which the time of change lies in one; none: nothing is known.
    change: Vec<(i64, i64)>,
    /// Set, and not read since.
    access_ns: Option<i64>,
    /// The latest change of status that was seen.
    status_ns: i64,
    /// A mapping wrote to it: the kernel puts its pages back, and the time forward, when it likes.
    mapped: bool,
}

impl FileTimes {
    /// The content has changed.
    pub(super) fn changed(&mut self, window: ClockInterval) {
        self.change = vec![(window.from_ns - TICK_NS, window.to_ns)];
    }

    /// The content may have changed: file systems differ.
    pub(super) fn may_have_changed(&mut self, window: ClockInterval) {
        if !self.change.is_empty() {
            self.change.push((window.from_ns - TICK_NS, window.to_ns));
        }
    }

    /// A mapping wrote to it.
    pub(super) fn mapped(&mut self) {
        self.mapped = true;
    }

    /// It was read.
    pub(super) fn accessed(&mut self) {
        self.access_ns = None;
    }

    /// A program set its times.
    pub(super) fn set(&mut self, access_ns: Option<i64>, change_ns: Option<i64>) {
        self.access_ns = access_ns.or(self.access_ns);
        if let Some(ns) = change_ns {
            self.change = vec![(ns, ns)];
        }
    }

    /// The time of access to expect where `got` came.
    pub(super) fn seen_access(&mut self, got: i64) -> i64 {
        self.access_ns.unwrap_or(got)
    }

    /// The time of change to expect where `got` came.
    pub(super) fn seen_change(&mut self, got: i64) -> i64 {
        let right =
            self.mapped || self.change.is_empty() || self.change.iter().any(|&(from, to)| from <= got && got <= to);
        if right {
            self.change = vec![(got, got)];
            return got;
        }
        self.change.last().map_or(got, |range| range.0)
    }

    /// The time of status to expect where `got` came: it never goes back.
    pub(super) fn seen_status(&mut self, got: i64) -> i64 {
        self.status_ns = self.status_ns.max(got);
        self.status_ns
    }
}
