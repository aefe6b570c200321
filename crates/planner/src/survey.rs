//! [`Survey`]: requests that are too many to be held, read as a stream three times, in bounded memory.
//!
//! The first pass finds extents and times and keeps an even sample of the requests; from it come the phases, and it
//! stands for all where requests are replayed. The second counts requests and bytes exactly: by file, chunk, phase,
//! operation and power of two of the size (a *stratum*), and processes in flight at random times. The third draws
//! requests from every stratum, among the smaller and the larger ones apart, and weighs them so that the counts and
//! the bytes of every stratum are exactly those of the trace. So heat and sizes are as they are; only where in a round
//! a request of a stratum begins, and its size within the power of two, are those of a sample.

use crate::demand::{Demand, Entry, PhaseDemand, Sample, time};
use crate::error::PlanError;
use crate::phases::{self, Moment};
use crate::plan::{FileTrace, PlanOptions};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use stripewise_layout::MAX_OFFSET;
use stripewise_model::{Op, Request};

/// Requests that can be read again and again.
pub trait RequestSource {
    /// Calls `visit` with the index of the file and the request, for every request, in the same order each time.
    fn visit(&self, visit: &mut dyn FnMut(usize, &Request));
}

/// A file of a [`RequestSource`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyedFile {
    /// Its name, for messages and results.
    pub name: String,
    /// As in [`FileTrace::size_bytes`].
    pub size_bytes: Option<u64>,
}

/// Most requests that are kept for phases and replays.
const KEPT: usize = 100_000;

/// Times in each phase at which processes in flight are counted.
const TIMES: u64 = 512;

/// Strata of one chunk that the budget of entries is reckoned with.
const STRATA: usize = 10;

/// What a plan needs to know of requests that are too many to be held.
#[derive(Debug, Clone)]
pub struct Survey {
    files: Vec<SurveyedFile>,
    extents: Vec<u64>,
    /// An even sample of the requests of each file, in the source's order.
    kept: Vec<Vec<Request>>,
    entries: Vec<Vec<Entry>>,
    phases: Vec<PhaseDemand>,
    cuts_s: Vec<f64>,
    requests: u64,
}

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

/// Keys are numbers that differ in many bits: one multiplication spreads them.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
}

type Spreading = BuildHasherDefault<Spread>;

/// SplitMix64's output function.
#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number that looks drawn anew for each `number`.
#[inline]
fn drawn(number: u64) -> u64 {
    mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x632b_e59b_d9b4_e019))
}

/// What the first pass finds.
struct First {
    requests: u64,
    of_file: Vec<u64>,
    /// Last byte of any request, and of any write, by file.
    ends: Vec<(u64, u64)>,
    from_s: f64,
    to_s: f64,
    /// `(draw, file, request)`, in order.
    kept: Vec<(u64, u32, Request)>,
}

impl Survey {
    /// Surveys the requests of `source`, whose files are `files`. Three passes of about 0.1 us a request; memory is
    /// bounded by the options and the number of files, not by the number of requests.
    ///
    /// # Errors
    /// [`PlanError::BeyondEnd`].
    ///
    /// # Panics
    /// When the source names a file that is not in `files`.
    pub fn new(files: Vec<SurveyedFile>, source: &dyn RequestSource, options: &PlanOptions) -> Result<Self, PlanError> {
        let first = first_pass(&files, source)?;
        let moment = |(_, file, r): &(u64, u32, Request)| Moment {
            start_s: time(r.start_s),
            place: (*file, r.offset),
            op: r.op,
        };
        let moments: Vec<Moment> = first.kept.iter().map(moment).collect();
        let found = phases::find(&moments, options.max_phases.max(1));
        let chunks = Chunks::new(&first, options);
        let (strata, phases) = second_pass(&first, source, &found, &chunks, options);
        let entries = third_pass(files.len(), source, &found, &chunks, &strata, options.max_entries.max(1));
        let extents = files.iter().zip(&first.ends);
        let extents = extents.map(|(file, &(any, written))| file.size_bytes.map_or(any, |size| size.max(written)));
        let extents = extents.collect();
        let mut kept = vec![Vec::new(); files.len()];
        for (_, file, request) in &first.kept {
            kept[*file as usize].push(*request);
        }
        Ok(Self { files, extents, kept, entries, phases, cuts_s: found.cuts_s, requests: first.requests })
    }

    /// Requests surveyed, those of 0 bytes left out.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The files with an even sample of their requests: what a planner can replay or search.
    pub fn traces(&self) -> Vec<FileTrace<'_>> {
        let files = self.files.iter().zip(&self.kept);
        files
            .map(|(file, kept)| FileTrace { name: file.name.clone(), requests: kept, size_bytes: file.size_bytes })
            .collect()
    }

    /// The demand that was surveyed.
    pub(crate) fn demand(&self, options: &PlanOptions) -> Demand {
        let kept = self.entries.iter().map(Vec::len).sum();
        let sample = Some(Sample { kept, of: usize::try_from(self.requests).unwrap_or(usize::MAX) });
        let (entries, extents) = (self.entries.clone(), self.extents.clone());
        Demand::assemble(extents, entries, self.phases.clone(), self.cuts_s.clone(), sample, options)
    }
}

fn first_pass(files: &[SurveyedFile], source: &dyn RequestSource) -> Result<First, PlanError> {
    let mut first = First {
        requests: 0,
        of_file: vec![0; files.len()],
        ends: vec![(0, 0); files.len()],
        from_s: f64::INFINITY,
        to_s: f64::NEG_INFINITY,
        kept: Vec::new(),
    };
    let mut beyond = None;
    // Requests are kept whose draw is at most this: every request has the same chance.
    let mut most = u64::MAX;
    source.visit(&mut |file, r| {
        let end = r.offset.checked_add(r.size).filter(|&end| end <= MAX_OFFSET + 1);
        let Some(end) = end else {
            beyond.get_or_insert((file, *r));
            return;
        };
        if r.size == 0 {
            return;
        }
        let number = first.requests;
        first.requests += 1;
        first.of_file[file] += 1;
        let (any, written) = &mut first.ends[file];
        *any = end.max(*any);
        if r.op == Op::Write {
            *written = end.max(*written);
        }
        first.from_s = first.from_s.min(time(r.start_s));
        first.to_s = first.to_s.max(time(r.end_s)).max(time(r.start_s));
        let draw = drawn(number);
        if draw <= most {
            first.kept.push((draw, file as u32, *r));
            if first.kept.len() > 2 * KEPT {
                most /= 2;
                first.kept.retain(|kept| kept.0 <= most);
            }
        }
    });
    match beyond {
        Some((file, r)) => Err(PlanError::BeyondEnd { file: files[file].name.clone(), offset: r.offset, size: r.size }),
        None => Ok(first),
    }
}

/// Chunks of all files: each file's granule and the number of its first chunk.
struct Chunks(Vec<(u32, u64)>);

impl Chunks {
    fn new(first: &First, options: &PlanOptions) -> Self {
        let most = options.max_chunks.min(options.max_entries / STRATA).max(1) as u64;
        let mut next = 0;
        let files = first.of_file.iter().zip(&first.ends).map(|(&requests, &(end, _))| {
            let budget =
                (most as u128 * u128::from(requests)).div_ceil(u128::from(first.requests.max(1))).max(1) as u64;
            let granule = end.div_ceil(budget).max(64 << 10).next_power_of_two();
            let number = next;
            next += end / granule + 1;
            (granule.trailing_zeros(), number)
        });
        Self(files.collect())
    }

    /// The stratum of a request.
    #[inline]
    fn key(&self, file: usize, r: &Request, phase: u16) -> Key {
        let (shift, number) = self.0[file];
        let chunk = number + (r.offset >> shift);
        // Phases are at most 2^16, powers of two 64, operations 2.
        chunk << 23 | u64::from(phase) << 7 | u64::from(r.size.ilog2()) << 1 | u64::from(r.op == Op::Write)
    }
}

/// The phase of a time.
#[inline]
fn phase_at(found: &phases::Phases, start_s: f64) -> u16 {
    if found.cuts_s.is_empty() { 0 } else { found.segments[found.cuts_s.partition_point(|&cut| cut <= start_s)] }
}

/// Processes seen in flight at the times that are looked at.
struct InFlight {
    /// Ascending, with the phase of each.
    times: Vec<(f64, u16)>,
    seen: HashSet<(u32, u32), Spreading>,
    processes: Vec<HashSet<u32, Spreading>>,
}

impl InFlight {
    fn new(first: &First, found: &phases::Phases) -> Self {
        let mut times = Vec::new();
        if first.to_s > first.from_s {
            let mut borders = vec![first.from_s];
            borders.extend(found.cuts_s.iter().copied().filter(|&cut| cut > first.from_s && cut < first.to_s));
            borders.push(first.to_s);
            for pair in borders.windows(2) {
                let phase = phase_at(found, pair[0]);
                // One at a random place in each of equal parts: no loop of the program falls in step with them.
                let at = |i: u64| (i as f64 + drawn(i ^ pair[0].to_bits()) as f64 / u64::MAX as f64) / TIMES as f64;
                times.extend((0..TIMES).map(|i| (pair[0] + (pair[1] - pair[0]) * at(i), phase)));
            }
        }
        Self { times, seen: HashSet::default(), processes: vec![HashSet::default(); found.count] }
    }

    #[inline]
    fn add(&mut self, r: &Request, phase: u16) {
        self.processes[usize::from(phase)].insert(r.process);
        let first = self.times.partition_point(|of| of.0 < time(r.start_s));
        let end_s = time(r.end_s);
        let during = self.times[first..].iter().take_while(|of| of.0 < end_s).count();
        for at in first..first + during {
            self.seen.insert((at as u32, r.process));
        }
    }

    /// Mean number of processes in flight in each phase, over the times at which any was; all processes, where no
    /// request lasts.
    fn means(&self) -> Vec<f64> {
        let mut pairs = vec![0.0; self.processes.len()];
        let mut times = vec![HashSet::<u32, Spreading>::default(); self.processes.len()];
        for &(at, _) in &self.seen {
            let phase = usize::from(self.times[at as usize].1);
            pairs[phase] += 1.0;
            times[phase].insert(at);
        }
        let mean = |phase: usize| {
            let all = self.processes[phase].len().max(1) as f64;
            if times[phase].is_empty() { all } else { (pairs[phase] / times[phase].len() as f64).clamp(1.0, all) }
        };
        (0..self.processes.len()).map(mean).collect()
    }
}

fn second_pass(
    first: &First,
    source: &dyn RequestSource,
    found: &phases::Phases,
    chunks: &Chunks,
    options: &PlanOptions,
) -> (HashMap<Key, Count, Spreading>, Vec<PhaseDemand>) {
    let mut strata: HashMap<Key, Count, Spreading> = HashMap::default();
    let mut phases = vec![PhaseDemand::default(); found.count];
    let mut in_flight = InFlight::new(first, found);
    source.visit(&mut |file, r| {
        if r.size == 0 {
            return;
        }
        let phase = phase_at(found, time(r.start_s));
        let count = strata.entry(chunks.key(file, r, phase)).or_default();
        count.requests += 1;
        count.bytes = count.bytes.saturating_add(r.size);
        let of = &mut phases[usize::from(phase)];
        of.requests += 1;
        match r.op {
            Op::Read => of.read_bytes = of.read_bytes.saturating_add(r.size),
            Op::Write => of.written_bytes = of.written_bytes.saturating_add(r.size),
        }
        if options.processes.is_none() {
            in_flight.add(r, phase);
        }
    });
    for (of, processes) in phases.iter_mut().zip(in_flight.means()) {
        of.processes = options.processes.unwrap_or(processes).max(1.0);
    }
    (strata, phases)
}

/// What is drawn of a stratum: of its requests up to the mean size, and of those above it.
struct Drawn {
    mean: f64,
    room: usize,
    sides: [(u64, Vec<(u32, Request)>); 2],
}

fn third_pass(
    files: usize,
    source: &dyn RequestSource,
    found: &phases::Phases,
    chunks: &Chunks,
    strata: &HashMap<Key, Count, Spreading>,
    most: usize,
) -> Vec<Vec<Entry>> {
    let total = strata.values().fold((0.0, 0.0), |sum, of| (sum.0 + of.requests as f64, sum.1 + of.bytes as f64));
    // Many small requests and few large ones may both be what takes the time.
    let room = |of: &Count| {
        let share = 0.5 * (of.requests as f64 / total.0 + of.bytes as f64 / total.1);
        ((0.5 * most as f64 * share) as usize).max(1)
    };
    let empty = |of: &Count| Drawn { mean: of.mean(), room: room(of), sides: [(0, Vec::new()), (0, Vec::new())] };
    let mut drawn_of: HashMap<Key, Drawn, Spreading> = strata.iter().map(|(&key, of)| (key, empty(of))).collect();
    let mut number = 0;
    source.visit(&mut |file, r| {
        if r.size == 0 {
            return;
        }
        let key = chunks.key(file, r, phase_at(found, time(r.start_s)));
        // A source that is not the same twice is not let in.
        let Some(stratum) = drawn_of.get_mut(&key) else { return };
        let (seen, kept) = &mut stratum.sides[usize::from(r.size as f64 > stratum.mean)];
        *seen += 1;
        number += 1;
        // Each request of a side has the same chance to be among the kept (reservoir sampling).
        if kept.len() < stratum.room {
            kept.push((file as u32, *r));
        } else {
            let place = ((u128::from(drawn(number)) * u128::from(*seen)) >> 64) as usize;
            if let Some(kept) = kept.get_mut(place) {
                *kept = (file as u32, *r);
            }
        }
    });
    let mut entries = vec![Vec::new(); files];
    for (key, stratum) in drawn_of {
        let of = strata[&key];
        let [(_, smaller), (_, larger)] = stratum.sides;
        let mean =
            |side: &[(u32, Request)]| side.iter().map(|kept| kept.1.size as f64).sum::<f64>() / side.len() as f64;
        // Weights that give back both requests and bytes: one below the mean, one above, so neither is negative.
        let requests = of.requests as f64;
        let above = if larger.is_empty() {
            0.0
        } else if smaller.is_empty() {
            requests
        } else {
            let (low, high) = (mean(&smaller), mean(&larger));
            ((of.bytes as f64 - requests * low) / (high - low)).clamp(0.0, requests)
        };
        for (side, weight) in [(smaller, requests - above), (larger, above)] {
            let count = weight / side.len() as f64;
            let entry = |(file, r): (u32, Request)| {
                let phase = (key >> 7) as u16;
                (file, Entry { offset: r.offset, size: r.size, op: r.op, phase, count })
            };
            for (file, entry) in side.into_iter().map(entry).filter(|(_, entry)| entry.count > 0.0) {
                entries[file as usize].push(entry);
            }
        }
    }
    for entries in &mut entries {
        // The map has no order.
        Entry::unite(entries);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Held(Vec<(usize, Request)>);

    impl RequestSource for Held {
        fn visit(&self, visit: &mut dyn FnMut(usize, &Request)) {
            self.0.iter().for_each(|(file, request)| visit(*file, request));
        }
    }

    fn files(count: usize) -> Vec<SurveyedFile> {
        (0..count).map(|i| SurveyedFile { name: format!("f{i}"), size_bytes: None }).collect()
    }

    /// Two files, reads after writes, 8 processes in closed loops, sizes of any kind.
    fn requests(count: u64) -> Vec<(usize, Request)> {
        let request = |i: u64| {
            let op = if i < count / 2 { Op::Write } else { Op::Read };
            let (start_s, size) = ((i / 8) as f64 * 0.5, 1000 + drawn(3 * i) % 300_000);
            let offset = drawn(3 * i + 1) % (1 << 30);
            let process = (i % 8) as u32;
            ((drawn(3 * i + 2) % 4 / 3) as usize, Request { offset, size, op, process, start_s, end_s: start_s + 0.5 })
        };
        (0..count).map(request).collect()
    }

    #[test]
    fn counts_and_bytes_are_exact_in_every_file_phase_and_power_of_two() {
        let all = requests(60_000);
        let options = PlanOptions { max_entries: 2000, max_chunks: 50, ..PlanOptions::default() };
        let survey = Survey::new(files(2), &Held(all.clone()), &options).unwrap();
        assert_eq!((survey.requests(), survey.phases.len()), (60_000, 2));
        let entries: usize = survey.entries.iter().map(Vec::len).sum();
        assert!(entries < 5000, "{entries}");
        type Of = HashMap<(usize, Op, u32), (f64, f64)>;
        let (mut want, mut got) = (Of::new(), Of::new());
        let add = |to: &mut Of, file, op, size: u64, count: f64| {
            let of = to.entry((file, op, size.ilog2())).or_default();
            *of = (of.0 + count, of.1 + count * size as f64);
        };
        all.iter().for_each(|(file, r)| add(&mut want, *file, r.op, r.size, 1.0));
        for (file, entries) in survey.entries.iter().enumerate() {
            entries.iter().for_each(|e| add(&mut got, file, e.op, e.size, e.count));
        }
        assert_eq!(want.len(), got.len());
        for (key, want) in want {
            let got = got[&key];
            assert!((got.0 - want.0).abs() < 1e-6 * want.0 && (got.1 - want.1).abs() < 1e-6 * want.1, "{key:?}");
        }
        for phase in &survey.phases {
            assert_eq!(phase.requests, 30_000);
            assert!((phase.processes - 8.0).abs() < 1e-9, "{}", phase.processes);
        }
        let kept: usize = survey.traces().iter().map(|trace| trace.requests.len()).sum();
        assert_eq!(kept, 60_000);
    }

    #[test]
    fn a_sample_of_many_is_even_and_small() {
        let all = requests(500_000);
        let survey = Survey::new(files(2), &Held(all), &PlanOptions::default()).unwrap();
        let kept: usize = survey.traces().iter().map(|trace| trace.requests.len()).sum();
        assert!((KEPT - KEPT / 10..=2 * KEPT).contains(&kept), "{kept}");
        let mean = survey.kept.iter().flatten().map(|r| r.size as f64).sum::<f64>() / kept as f64;
        assert!((mean / 151_000.0 - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn nothing_times_that_are_none_and_the_end_of_the_world() {
        let survey = Survey::new(files(1), &Held(Vec::new()), &PlanOptions::default()).unwrap();
        assert_eq!(survey.demand(&PlanOptions::default()).files[0].extent, 0);
        let odd = Request { offset: 7, size: 9, op: Op::Read, process: 3, start_s: f64::NAN, end_s: f64::INFINITY };
        let survey = Survey::new(files(1), &Held(vec![(0, odd)]), &PlanOptions::default()).unwrap();
        assert_eq!((survey.extents[0], survey.phases[0].processes), (16, 1.0));
        let beyond = Request { offset: u64::MAX, ..odd };
        let error = Survey::new(files(1), &Held(vec![(0, beyond)]), &PlanOptions::default()).unwrap_err();
        assert!(error.to_string().starts_with("f0: "), "{error}");
    }
}
