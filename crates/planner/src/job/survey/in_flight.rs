//! Phases of a survey, and the processes in flight in each.

use super::draw::{Spreading, drawn};
use crate::job::demand::time;
use crate::job::phases::Phases;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use stripewise_model::Request;

/// Times in each phase at which processes in flight are counted.
const TIMES: u64 = 512;

/// Where phases end, and the times at which processes in flight are counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FlightTimes {
    /// Ascending, with the phase of each.
    at: Vec<(f64, u16)>,
    pub(super) cuts_s: Vec<f64>,
    /// The phase before the first cut, and those from each cut on.
    segments: Vec<u16>,
    phases: usize,
}

impl FlightTimes {
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
    /// By process and by 64 times each, a bit for each time: thousands of processes may be seen at thousands of times.
    seen: HashMap<(u32, u32), u64, Spreading>,
    /// By phase, whether seen or not.
    processes: Vec<HashSet<u32, Spreading>>,
}

impl InFlight {
    pub(super) fn new(phases: usize) -> Self {
        Self { seen: HashMap::default(), processes: vec![HashSet::default(); phases] }
    }

    #[inline]
    pub(super) fn add(&mut self, times: &FlightTimes, r: &Request, phase: u16) {
        self.processes[usize::from(phase)].insert(r.process);
        let first = times.at.partition_point(|of| of.0 < time(r.start_s));
        let end_s = time(r.end_s);
        let during = times.at[first..].iter().take_while(|of| of.0 < end_s).count();
        let mut at = first;
        while at < first + during {
            let (block, bit) = (at / 64, at % 64);
            let bits = (64 - bit).min(first + during - at);
            *self.seen.entry((r.process, block as u32)).or_default() |= (u64::MAX >> (64 - bits)) << bit;
            at += bits;
        }
    }

    pub(super) fn join(&mut self, other: Self) {
        other.seen.into_iter().for_each(|(place, times)| *self.seen.entry(place).or_default() |= times);
        self.processes.iter_mut().zip(other.processes).for_each(|(own, of)| own.extend(of));
    }

    /// Mean number of processes in flight in each phase, over the times at which any was; all processes, where no
    /// request lasts.
    pub(super) fn means(&self, times: &FlightTimes) -> Vec<f64> {
        let mut pairs = vec![0.0; self.processes.len()];
        let mut seen = vec![0_u64; self.processes.len()];
        let mut by_block = vec![0_u64; times.at.len().div_ceil(64)];
        let phase_of = |block: usize, bit: u32| usize::from(times.at[block * 64 + bit as usize].1);
        for (&(_, block), &at) in &self.seen {
            by_block[block as usize] |= at;
            bits(at).for_each(|bit| pairs[phase_of(block as usize, bit)] += 1.0);
        }
        for (block, &at) in by_block.iter().enumerate() {
            bits(at).for_each(|bit| seen[phase_of(block, bit)] += 1);
        }
        let mean = |phase: usize| {
            let all = self.processes[phase].len().max(1) as f64;
            if seen[phase] == 0 { all } else { (pairs[phase] / seen[phase] as f64).clamp(1.0, all) }
        };
        (0..self.processes.len()).map(mean).collect()
    }
}

/// The bits that are set.
fn bits(word: u64) -> impl Iterator<Item = u32> {
    let some = |word: u64| (word != 0).then_some(word);
    std::iter::successors(some(word), move |&word| some(word & (word - 1))).map(u64::trailing_zeros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use stripewise_model::Op;

    /// As [`InFlight::means`], by looking at every request at every time.
    fn by_definition(times: &FlightTimes, requests: &[Request]) -> Vec<f64> {
        let mut mean = Vec::new();
        for phase in 0..times.phases() as u16 {
            let of_phase = times.at.iter().filter(|at| at.1 == phase);
            let counts = of_phase.map(|at| {
                let during = requests.iter().filter(|r| r.start_s <= at.0 && at.0 < r.end_s);
                during.map(|r| r.process).collect::<BTreeSet<_>>().len() as f64
            });
            let counts: Vec<f64> = counts.filter(|&count| count > 0.0).collect();
            mean.push(counts.iter().sum::<f64>() / counts.len() as f64);
        }
        mean
    }

    #[test]
    fn processes_are_counted_at_each_time_also_in_parts() {
        let cuts = Phases { count: 2, of: Vec::new(), cuts_s: vec![4.0], segments: vec![0, 1] };
        let times = FlightTimes::new(0.0, 10.0, cuts);
        let request = |i: u64| {
            let start_s = drawn(i) as f64 / u64::MAX as f64 * 9.0;
            let end_s = start_s + drawn(i ^ 77) as f64 / u64::MAX as f64;
            Request { offset: 0, size: 1, op: Op::Read, process: (i % 37) as u32, start_s, end_s }
        };
        let requests: Vec<Request> = (0..400).map(request).collect();
        let mut parts = [InFlight::new(2), InFlight::new(2)];
        for (number, r) in requests.iter().enumerate() {
            // The last ten are in both.
            for (_, part) in parts.iter_mut().enumerate().filter(|(part, _)| number >= 390 || number % 2 == *part) {
                part.add(&times, r, times.phase_at(r.start_s));
            }
        }
        let [mut whole, other] = parts;
        whole.join(other);
        for (found, expected) in whole.means(&times).into_iter().zip(by_definition(&times, &requests)) {
            assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
        }
    }
}
