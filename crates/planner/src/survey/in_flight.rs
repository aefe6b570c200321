//! Phases of a survey, and the processes in flight in each.

use super::TIMES;
use super::draw::{Spreading, drawn};
use crate::demand::time;
use crate::phases::Phases;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use stripewise_model::Request;

/// Where phases end, and the times at which processes in flight are counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Times {
    /// Ascending, with the phase of each.
    at: Vec<(f64, u16)>,
    pub(super) cuts_s: Vec<f64>,
    /// The phase before the first cut, and those from each cut on.
    segments: Vec<u16>,
    phases: usize,
}

impl Times {
    pub(super) fn new(from_s: f64, to_s: f64, found: Phases) -> Self {
        let Phases { count, cuts_s, segments, .. } = found;
        let mut times = Self { at: Vec::new(), cuts_s, segments, phases: count };
        if to_s > from_s {
            let mut borders = vec![from_s];
            borders.extend(times.cuts_s.iter().copied().filter(|&cut| cut > from_s && cut < to_s));
            borders.push(to_s);
            for pair in borders.windows(2) {
                let phase = times.phase_at(pair[0]);
                // One at a random place in each of equal parts: no loop of the program falls in step with them.
                let at = |i: u64| (i as f64 + drawn(i ^ pair[0].to_bits()) as f64 / u64::MAX as f64) / TIMES as f64;
                times.at.extend((0..TIMES).map(|i| (pair[0] + (pair[1] - pair[0]) * at(i), phase)));
            }
        }
        times
    }

    pub(super) fn phases(&self) -> usize {
        self.phases
    }

    /// The phase of a time.
    #[inline]
    pub(super) fn phase_at(&self, start_s: f64) -> u16 {
        if self.cuts_s.is_empty() { 0 } else { self.segments[self.cuts_s.partition_point(|&cut| cut <= start_s)] }
    }
}

/// Processes seen in flight at the times that are looked at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InFlight {
    seen: HashSet<(u32, u32), Spreading>,
    /// By phase, whether seen or not.
    processes: Vec<HashSet<u32, Spreading>>,
}

impl InFlight {
    pub(super) fn new(phases: usize) -> Self {
        Self { seen: HashSet::default(), processes: vec![HashSet::default(); phases] }
    }

    #[inline]
    pub(super) fn add(&mut self, times: &Times, r: &Request, phase: u16) {
        self.processes[usize::from(phase)].insert(r.process);
        let first = times.at.partition_point(|of| of.0 < time(r.start_s));
        let end_s = time(r.end_s);
        let during = times.at[first..].iter().take_while(|of| of.0 < end_s).count();
        for at in first..first + during {
            self.seen.insert((at as u32, r.process));
        }
    }

    pub(super) fn join(&mut self, other: Self) {
        self.seen.extend(other.seen);
        self.processes.iter_mut().zip(other.processes).for_each(|(own, of)| own.extend(of));
    }

    /// Mean number of processes in flight in each phase, over the times at which any was; all processes, where no
    /// request lasts.
    pub(super) fn means(&self, times: &Times) -> Vec<f64> {
        let mut pairs = vec![0.0; self.processes.len()];
        let mut seen = vec![HashSet::<u32, Spreading>::default(); self.processes.len()];
        for &(at, _) in &self.seen {
            let phase = usize::from(times.at[at as usize].1);
            pairs[phase] += 1.0;
            seen[phase].insert(at);
        }
        let mean = |phase: usize| {
            let all = self.processes[phase].len().max(1) as f64;
            if seen[phase].is_empty() { all } else { (pairs[phase] / seen[phase].len() as f64).clamp(1.0, all) }
        };
        (0..self.processes.len()).map(mean).collect()
    }
}
