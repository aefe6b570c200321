//! What a workload is: which requests each process makes. Everything derives from the options and the seed, so that any
//! process, and a later run, knows what another one wrote where.

use serde_json::{Map, Value};

use crate::options::{BenchApi, RegionSpec};
use crate::view::{Piece, View};

/// What a phase does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseKind {
    /// Timed writes.
    Write,
    /// Timed reads.
    Read,
}

/// One request of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchRequest {
    /// First byte in the view of the owner of the data; without a view, in the file.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Index of its group.
    pub group: u32,
    /// How often this run has written the bytes after the request (writes), or at the end of all writes (reads).
    pub generation: u32,
}

/// Requests that are reported together.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// The part of the file that they are in, where it is theirs alone.
    pub region: Option<RegionSpec>,
    /// Bytes of each, where they are equal.
    pub request_size: Option<u64>,
}

/// Bytes of a file that one process checks after the timed phases: those of a range that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Which of the instance's files.
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// How often they were written.
    pub generation: u32,
}

/// The bytes that all processes together write in a file: runs at a distance of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coverage {
    /// Bytes of a run.
    pub run: u64,
    /// Bytes from the begin of a run to the begin of the next.
    pub period: u64,
    /// The end of the last run.
    pub end: u64,
}

impl Coverage {
    /// Everything below `end`.
    pub fn whole(end: u64) -> Self {
        Self { run: 1, period: 1, end }
    }

    /// The bytes of `[offset, offset + bytes)` that are covered.
    pub fn runs(self, offset: u64, bytes: u64) -> impl Iterator<Item = Piece> {
        let end = (offset + bytes).min(self.end);
        let (run, period) = if self.run == self.period { (end, end.max(1)) } else { (self.run, self.period) };
        let mut at = offset;
        std::iter::from_fn(move || {
            if at % period >= run {
                at = at.next_multiple_of(period);
            }
            let piece = Piece { offset: at, bytes: (at / period * period + run).min(end).checked_sub(at)? };
            at += piece.bytes;
            (piece.bytes > 0).then_some(piece)
        })
    }
}

/// Gaps in the memory that a request is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spaced {
    /// Bytes of the data between two gaps. Every request is a multiple of it.
    pub run: u64,
    /// Bytes of a gap.
    pub gap: u64,
}

/// Bytes that a check reads at once.
const CHECKED_AT_ONCE: u64 = 1 << 20;

/// A workload, as one instance of it sees it: some files and processes. Every process makes the same number of requests
/// in a phase, and reads are of the same bytes as writes.
pub trait Workload: std::fmt::Debug {
    /// Its name.
    fn name(&self) -> &'static str;

    /// What it does, for the first line of the report.
    fn describe(&self) -> String;

    /// What was asked for, for the report.
    fn settings(&self) -> Map<String, Value>;

    /// The calls that it is known by: which, and whether they are collective.
    fn usual_calls(&self) -> (BenchApi, bool) {
        (BenchApi::MpiIo, false)
    }

    /// Processes.
    fn processes(&self) -> u32;

    /// Requests of each process per phase.
    fn requests_per_process(&self) -> u64;

    /// What the report tells apart.
    fn groups(&self) -> Vec<Group>;

    /// The requests of process `rank` in a phase, in order, on the data of process `owner` (its own, if it writes).
    fn requests(&self, phase: PhaseKind, rank: u32, owner: u32) -> Vec<BenchRequest>;

    /// What is written of each file.
    fn coverage(&self) -> Coverage;

    /// Files: one, or one per process.
    fn files(&self) -> u32 {
        1
    }

    /// The file that holds the data of `owner`.
    fn file_of(&self, owner: u32) -> u32 {
        if self.files() > 1 { owner } else { 0 }
    }

    /// Which bytes of its file are the data of `owner`.
    fn view(&self, _owner: u32) -> View {
        View::bytes()
    }

    /// How requests lie in memory, if not in one piece.
    fn memory(&self) -> Option<Spaced> {
        None
    }

    /// How often bytes are written at most.
    fn generations(&self) -> u32 {
        1
    }

    /// What process `rank` checks after the timed phases; all processes together check every byte that was written once.
    fn checks(&self, rank: u32) -> Vec<Check> {
        let end = self.coverage().end;
        let (chunks, processes) = (end.div_ceil(CHECKED_AT_ONCE), u64::from(self.processes()));
        // The share of the next rank: where each process writes its own part of the file, another one checks it.
        let share = (u64::from(rank) + 1) % processes;
        (chunks * share / processes..chunks * (share + 1) / processes)
            .map(|chunk| {
                let offset = chunk * CHECKED_AT_ONCE;
                Check { file: 0, offset, bytes: CHECKED_AT_ONCE.min(end - offset), generation: 1 }
            })
            .collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Every byte that the requests of all processes touch in a file, as runs in order, and whether any is touched twice.
    pub fn touched(workload: &dyn Workload, phase: PhaseKind) -> (Vec<(u64, u64)>, bool) {
        let mut all = Vec::new();
        let mut pieces = Vec::new();
        for rank in 0..workload.processes() {
            let view = workload.view(rank);
            let requests = workload.requests(phase, rank, rank);
            assert_eq!(requests.len() as u64, workload.requests_per_process());
            for request in requests {
                view.pieces(request.offset, request.bytes, &mut pieces);
                assert_eq!(pieces.iter().map(|piece| piece.bytes).sum::<u64>(), request.bytes);
                all.extend(pieces.iter().map(|piece| (piece.offset, piece.offset + piece.bytes)));
            }
        }
        all.sort_unstable();
        let mut union: Vec<(u64, u64)> = Vec::new();
        let mut twice = false;
        for (from, to) in all {
            match union.last_mut() {
                Some(last) if from <= last.1 => {
                    twice |= from < last.1;
                    last.1 = last.1.max(to);
                }
                _ => union.push((from, to)),
            }
        }
        (union, twice)
    }

    /// Asserts that all processes together touch what the coverage says, and check it once.
    pub fn assert_covered(workload: &dyn Workload) {
        let coverage = workload.coverage();
        let expected: Vec<_> =
            coverage.runs(0, coverage.end).map(|piece| (piece.offset, piece.offset + piece.bytes)).collect();
        for phase in [PhaseKind::Write, PhaseKind::Read] {
            assert_eq!(touched(workload, phase).0, expected, "{workload:?}");
        }
        let mut checked: Vec<_> = (0..workload.processes()).flat_map(|rank| workload.checks(rank)).collect();
        checked.sort_by_key(|check| check.offset);
        let mut end = 0;
        for check in checked {
            assert_eq!(check.offset, end);
            end += check.bytes;
        }
        assert_eq!(end, coverage.end);
    }

    #[test]
    fn runs_of_a_range_are_those_of_its_bytes() {
        for (run, period, end) in [(3, 7, 31), (1, 1, 31), (7, 7, 28), (64, 74, 64)] {
            let coverage = Coverage { run, period, end };
            for offset in 0..40 {
                for bytes in 0..40 {
                    let found: Vec<u64> = coverage
                        .runs(offset, bytes)
                        .flat_map(|piece| piece.offset..piece.offset + piece.bytes)
                        .collect();
                    let expected: Vec<u64> =
                        (offset..offset + bytes).filter(|byte| *byte < end && byte % period < run).collect();
                    assert_eq!(found, expected, "{coverage:?} {offset} {bytes}");
                }
            }
        }
    }
}
