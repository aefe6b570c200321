//! [`Strata`] and [`Counted`]: the second and third pass of a survey.

use super::draw::{Spreading, drawn};
use super::in_flight::{FlightTimes, InFlight};
use super::overview::Overview;
use super::source::RequestSource;
use crate::job::demand::{PhaseDemand, RequestGroup, time};
use crate::job::input::PlanOptions;
use crate::job::phases;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use stripewise_model::{Op, Request};

/// Strata of one chunk that the budget of entries is reckoned with.
const STRATA: usize = 10;

/// A stratum's requests and bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    requests: u64,
    bytes: u64,
}

impl Count {
    fn mean(&self) -> f64 {
        self.bytes as f64 / self.requests as f64
    }
}

/// Which stratum: chunk of which file (numbered over all files), and the rest packed.
type Key = u64;

/// What requests are told apart by in the second and third pass, from the [`Overview`] of all of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Strata {
    /// Each file's granule as a power of two, and the number of its first chunk.
    chunks: Vec<(u32, u64)>,
    times: FlightTimes,
    /// Whether processes in flight are to be counted.
    in_flight: bool,
    /// Requests and bytes of all files.
    total: (f64, f64),
    max_entries: usize,
}

/// What the second and third pass find, in some of the files or in all: the parts of a source, in any order, add up
/// to the whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counted {
    /// By file.
    pub(super) entries: Vec<(u32, Vec<RequestGroup>)>,
    /// Requests and bytes by phase.
    pub(super) phases: Vec<PhaseDemand>,
    pub(super) in_flight: InFlight,
}

impl Strata {
    /// The strata of a survey. O(kept requests).
    pub fn new(overview: &Overview, options: &PlanOptions) -> Self {
        let found = phases::find(&overview.moments(), options.max_phases.max(1));
        let most = options.max_chunks.min(options.max_entries / STRATA).max(1) as u64;
        let mut next = 0;
        let chunks = overview.of_file.iter().zip(&overview.ends).map(|(&requests, &(end, _))| {
            let budget =
                (most as u128 * u128::from(requests)).div_ceil(u128::from(overview.requests.max(1))).max(1) as u64;
            let granule = end.div_ceil(budget).max(64 << 10).next_power_of_two();
            let number = next;
            next += end / granule + 1;
            (granule.trailing_zeros(), number)
        });
        Self {
            chunks: chunks.collect(),
            times: FlightTimes::new(overview.from_s, overview.to_s, found),
            in_flight: options.processes.is_none(),
            total: (overview.requests as f64, overview.bytes as f64),
            max_entries: options.max_entries.max(1),
        }
    }

    pub(super) fn times(&self) -> &FlightTimes {
        &self.times
    }

    /// The stratum of a request.
    #[inline]
    fn key(&self, file: usize, r: &Request, phase: u16) -> Key {
        let (shift, number) = self.chunks[file];
        let chunk = number + (r.offset >> shift);
        // Phases are at most 2^16, powers of two 64, operations 2.
        chunk << 23 | u64::from(phase) << 7 | u64::from(r.size.ilog2()) << 1 | u64::from(r.op == Op::Write)
    }

    /// Counts the requests of `source` and draws from them: two passes of about 0.1 us a request; in memory for the
    /// strata and for what is drawn.
    pub fn counted(&self, source: &dyn RequestSource) -> Counted {
        let mut strata: HashMap<Key, Count, Spreading> = HashMap::default();
        let mut phases = vec![PhaseDemand::default(); self.times.phases()];
        let mut in_flight = InFlight::new(self.times.phases());
        source.visit(&mut |file, r| {
            if r.size == 0 {
                return;
            }
            let phase = self.times.phase_at(time(r.start_s));
            let count = strata.entry(self.key(file, r, phase)).or_default();
            count.requests += 1;
            count.bytes = count.bytes.saturating_add(r.size);
            let of = &mut phases[usize::from(phase)];
            of.requests += 1;
            match r.op {
                Op::Read => of.read_bytes = of.read_bytes.saturating_add(r.size),
                Op::Write => of.written_bytes = of.written_bytes.saturating_add(r.size),
            }
            if self.in_flight {
                in_flight.add(&self.times, r, phase);
            }
        });
        Counted { entries: self.drawn(source, &strata), phases, in_flight }
    }

    /// Entries from every stratum.
    fn drawn(
        &self,
        source: &dyn RequestSource,
        strata: &HashMap<Key, Count, Spreading>,
    ) -> Vec<(u32, Vec<RequestGroup>)> {
        // Many small requests and few large ones may both be what takes the time.
        let room = |of: &Count| {
            let share = 0.5 * (of.requests as f64 / self.total.0 + of.bytes as f64 / self.total.1);
            ((0.5 * self.max_entries as f64 * share) as usize).max(1)
        };
        let empty = |of: &Count| Drawn { mean: of.mean(), room: room(of), sides: [(0, Vec::new()), (0, Vec::new())] };
        let mut drawn_of: HashMap<Key, Drawn, Spreading> = strata.iter().map(|(&key, of)| (key, empty(of))).collect();
        // By file, so that a file's requests are drawn alike whatever files are looked at with it.
        let mut numbers = vec![0_u64; self.chunks.len()];
        source.visit(&mut |file, r| {
            if r.size == 0 {
                return;
            }
            let key = self.key(file, r, self.times.phase_at(time(r.start_s)));
            // A source that is not the same twice is not let in.
            let Some(stratum) = drawn_of.get_mut(&key) else { return };
            let (seen, kept) = &mut stratum.sides[usize::from(r.size as f64 > stratum.mean)];
            *seen += 1;
            numbers[file] += 1;
            // Each request of a side has the same chance to be among the kept (reservoir sampling).
            if kept.len() < stratum.room {
                kept.push((file as u32, *r));
            } else {
                let place = ((u128::from(drawn(numbers[file])) * u128::from(*seen)) >> 64) as usize;
                if let Some(kept) = kept.get_mut(place) {
                    *kept = (file as u32, *r);
                }
            }
        });
        let mut entries: HashMap<u32, Vec<RequestGroup>> = HashMap::new();
        for (key, stratum) in drawn_of {
            for (file, entry) in stratum.entries(key, strata[&key]) {
                entries.entry(file).or_default().push(entry);
            }
        }
        // Maps have no order.
        let mut entries: Vec<(u32, Vec<RequestGroup>)> = entries.into_iter().collect();
        entries.sort_unstable_by_key(|(file, _)| *file);
        entries.iter_mut().for_each(|(_, entries)| RequestGroup::unite(entries));
        entries
    }
}

impl Counted {
    /// Of nothing.
    pub fn empty(strata: &Strata) -> Self {
        let phases = strata.times.phases();
        Self { entries: Vec::new(), phases: vec![PhaseDemand::default(); phases], in_flight: InFlight::new(phases) }
    }

    /// Adds what was found in other files, by the same strata. O(what was found).
    ///
    /// # Panics
    /// When it is of other strata.
    pub fn join(&mut self, other: Self) {
        assert_eq!(self.phases.len(), other.phases.len(), "parts of one survey");
        self.entries.extend(other.entries);
        for (own, of) in self.phases.iter_mut().zip(other.phases) {
            own.requests += of.requests;
            own.read_bytes = own.read_bytes.saturating_add(of.read_bytes);
            own.written_bytes = own.written_bytes.saturating_add(of.written_bytes);
        }
        self.in_flight.join(other.in_flight);
    }
}

/// What is drawn of a stratum: of its requests up to the mean size, and of those above it.
struct Drawn {
    mean: f64,
    room: usize,
    sides: [(u64, Vec<(u32, Request)>); 2],
}

impl Drawn {
    /// What is drawn, with weights that give back the requests and the bytes of the stratum.
    fn entries(self, key: Key, of: Count) -> impl Iterator<Item = (u32, RequestGroup)> {
        let [(_, smaller), (_, larger)] = self.sides;
        let mean =
            |side: &[(u32, Request)]| side.iter().map(|kept| kept.1.size as f64).sum::<f64>() / side.len() as f64;
        // One weight below the mean and one above, so neither is negative.
        let requests = of.requests as f64;
        let above = if larger.is_empty() {
            0.0
        } else if smaller.is_empty() {
            requests
        } else {
            let (low, high) = (mean(&smaller), mean(&larger));
            ((of.bytes as f64 - requests * low) / (high - low)).clamp(0.0, requests)
        };
        let sides = [(smaller, requests - above), (larger, above)].into_iter();
        sides.flat_map(move |(side, weight)| {
            let count = weight / side.len() as f64;
            let entry = move |(file, r): (u32, Request)| {
                (file, RequestGroup { offset: r.offset, size: r.size, op: r.op, phase: (key >> 7) as u16, count })
            };
            side.into_iter().map(entry).filter(|(_, entry)| entry.count > 0.0)
        })
    }
}
