//! strace (`-f -ttt -T -y -s 0 -e trace=file,desc,process` is the best; any of them may be missing).

mod calls;
mod scan;
mod tables;

use crate::Importer;
use crate::error::ImportError;
use crate::lacks::Lacks;
use crate::lines::Lines;
use crate::log::Log;
use crate::out::Out;
use crate::sink::{Sink, Summary};

use calls::StraceState;
use scan::{Stamp, UNFINISHED, leader};

/// Reads what `strace` writes.
pub struct Strace;

const DAY_NS: u64 = 86_400_000_000_000;

impl Importer for Strace {
    fn name(&self) -> &'static str {
        "strace"
    }

    /// Most of the first lines are calls, signals or exits.
    fn recognises(&self, start: &[u8]) -> bool {
        let (mut understood, mut lines) = (0, 0);
        let whole = memchr::memrchr(b'\n', start).map_or(start, |end| &start[..end]);
        for line in whole.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).take(50) {
            lines += 1;
            let (_, body) = leader(line);
            let body = body.strip_suffix(b"\r").unwrap_or(body);
            let begins_call = || {
                let open = memchr::memchr(b'(', &body[..body.len().min(40)])?;
                let name = &body[..open];
                let named = !name.is_empty()
                    && name.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_');
                (named && (body.ends_with(UNFINISHED) || memchr::memmem::find(body, b") ").is_some())).then_some(())
            };
            let other = body.starts_with(b"+++ ") || body.starts_with(b"--- SIG") || body.starts_with(b"strace: ");
            let resumed = body.starts_with(b"<... ") && memchr::memmem::find(body, b" resumed>").is_some();
            if other || resumed || begins_call().is_some() {
                understood += 1;
            }
        }
        lines > 0 && understood * 4 >= lines * 3
    }

    /// O(length); memory for the processes, descriptors and names that the log has.
    fn import(&self, log: &Log, sink: &mut dyn Sink) -> Result<Summary, ImportError> {
        let mut lines = Lines::new(log)?;
        let mut state = StraceState::new(Out::new(log, sink, self.name()));
        let mut clock = Clock::default();
        let (mut not_understood, mut first_bad) = (0u64, 0u64);
        let mut next_progress = 0;
        while let Some(line) = lines.next()? {
            let (leader, body) = leader(line);
            let now_ns = clock.at(leader.stamp);
            if !state.line(leader, now_ns, body)? {
                not_understood += 1;
                first_bad = if not_understood == 1 { lines.number } else { first_bad };
            }
            if lines.done_bytes() >= next_progress {
                next_progress = lines.done_bytes() + (1 << 20);
                state.out.progress(lines.done_bytes());
            }
        }
        if state.understood == 0 {
            let why = format!("none of its {} lines is a system call", lines.number);
            return Err(ImportError::damaged(log.path(), self.name(), 0, why));
        }
        let summary = &mut state.out.summary;
        summary.lacks |= Lacks::RANKS;
        match clock.seen {
            None => summary.lacks |= Lacks::TIMES | Lacks::DURATIONS,
            Some(Stamp::Unix(first)) => summary.start_unix_ns = Some(first),
            Some(_) => {}
        }
        lines.note_end(summary);
        if not_understood > 0 {
            summary.lacks |= Lacks::DAMAGED;
            summary.note(format!("{not_understood} lines were not understood, the first is line {first_bad}"));
        }
        if lines.too_long > 0 {
            summary.lacks |= Lacks::DAMAGED;
            summary.note(format!("{} lines longer than 256 KiB were left out; use `strace -s 0`", lines.too_long));
        }
        state.finish()
    }
}

/// Turns every form of time into nanoseconds since the first line.
#[derive(Default)]
struct Clock {
    /// The first stamp.
    seen: Option<Stamp>,
    now_ns: u64,
    day_ns: u64,
    last_clock_ns: u64,
}

impl Clock {
    fn at(&mut self, stamp: Stamp) -> u64 {
        let begins = self.seen.is_none();
        let first = *self.seen.get_or_insert(stamp);
        match (stamp, first) {
            (Stamp::None, _) => {
                if first == Stamp::None {
                    self.seen = None;
                }
                // Lines are one nanosecond apart where nothing tells more.
                self.now_ns = self.now_ns.saturating_add(1);
            }
            (Stamp::Unix(ns), Stamp::Unix(first_ns)) => self.now_ns = ns.saturating_sub(first_ns),
            (Stamp::Clock(ns), Stamp::Clock(first_ns)) => {
                // Midnight; processes' lines may be a little out of order, which is not.
                if ns + DAY_NS / 2 < self.last_clock_ns {
                    self.day_ns = self.day_ns.saturating_add(DAY_NS);
                }
                self.last_clock_ns = ns;
                self.now_ns = (self.day_ns.saturating_add(ns)).saturating_sub(first_ns);
            }
            // The first line's interval is since an unknown moment.
            (Stamp::Relative(ns), Stamp::Relative(_)) if !begins => self.now_ns = self.now_ns.saturating_add(ns),
            // A stamp of another kind than the first is a damaged line: time stands still.
            _ => {}
        }
        self.now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks() {
        let mut clock = Clock::default();
        assert_eq!([Stamp::None, Stamp::None].map(|stamp| clock.at(stamp)), [1, 2]);
        assert!(clock.seen.is_none());
        let mut clock = Clock::default();
        let day = [DAY_NS - 5, DAY_NS - 2, DAY_NS - 3, 1].map(Stamp::Clock);
        assert_eq!(day.map(|stamp| clock.at(stamp)), [0, 3, 2, 6]);
        let mut clock = Clock::default();
        assert_eq!([7, 7, 5].map(|ns| clock.at(Stamp::Relative(ns))), [0, 7, 12]);
        let mut clock = Clock::default();
        assert_eq!([100, 90, 130].map(|ns| clock.at(Stamp::Unix(ns))), [0, 0, 30]);
    }
}
