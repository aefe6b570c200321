//! [`Fit`]: what servers cost, as the log's own requests show it.
//!
//! 1. Of each tier and operation, startup and time per byte come from least squares of relative errors, both not negative,
//!    over the part of a request that its slowest server has. Where requests are all of one size, the two keep the
//!    proportion that they have in the profile to start from.
//! 2. That takes waiting for other requests for the server's own work. So the requests are simulated under the present
//!    layouts, with the program's own time between them, and both are scaled until the simulated time of all requests is
//!    the measured one.
//! 3. Servers of a tier of which requests take far longer or less than of the others (a disk that rebuilds, a full one) are
//!    fitted apart.
//! 4. Where a tier's reads or writes became faster or slower for good in the course of the run (caches that are full, other
//!    jobs), each stretch is fitted apart, of a twentieth of the time from the first request to the last at least.
//! 5. How far such a fit carries is tried on the log: fitted to every other part of the files, it predicts the rest.

use crate::drift::{Drift, Took, drifts};
use crate::phased::{MOST_PHASES, PhasedCluster};
use crate::served::{Served, critical};
use crate::served_run::{MOST_REQUESTS, ServedRun};
use std::collections::BTreeMap;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Head, Op, OpProfile, Profile, Request, Tier};
use stripewise_simulate::{ClosedLoop, SimulateError, SimulatedAccess, SimulationOptions, simulate_observed};

/// Most requests that a half is fitted to.
const HALF_REQUESTS: usize = 3_000;

/// Most rounds of scaling.
const ROUNDS: usize = 12;

/// Scaling ends where times agree so well.
const NEAR: f64 = 0.01;

/// Bounds of what a server is believed to be, in seconds and in seconds per byte: a memory's, and a tape's.
const STARTUP_S: (f64, f64) = (1e-6, 100.0);
const TRANSFER_S_PER_BYTE: (f64, f64) = (1e-11, 1e-3);

/// Parts that a file is divided into; every other one is kept back.
const PARTS: u64 = 64;

/// Servers of a tier are as slow as each other while their times differ by less than half of this factor's logarithm.
const APART: f64 = 2.0;

/// A stretch is this share of the time from the first request to the last at least: less is a burst.
const LEAST_STRETCH: f64 = 0.05;

/// Fewer requests of a half, or of a server, say nothing.
const LEAST_REQUESTS: usize = 16;

/// Half width of the logarithm of a prediction that a single part's scatter does not explain, from trials on logs
/// (`python -m benches logs`).
const SYSTEMATIC: f64 = 0.20;

/// Two of a normal distribution's standard deviations hold 95 of 100 cases.
const DEVIATIONS: f64 = 2.0;

/// Tier and operation.
type Kind = (usize, Op);

/// Tier, operation and server.
type TargetKind = (usize, Op, ServerId);

/// A prediction of requests that the fit has not seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldOut {
    /// Predicted time of the requests over the measured one.
    pub ratio: f64,
    /// The interval that should hold 1 in 95 of 100 logs, from the requests that were fitted alone.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Fitted profiles.
#[derive(Debug, Clone)]
pub(crate) struct Fit {
    /// The servers, with fitted profiles where the log shows them at work: those of most servers of their tier, over the
    /// whole run.
    pub cluster: Cluster,
    /// The same; servers that are unlike the others of their tier are in tiers of their own, behind those of `cluster`, and
    /// stretches of the run in which some were of another speed have profiles of their own.
    pub targets: PhasedCluster,
    /// What was fitted.
    pub fitted: Vec<FittedKind>,
    /// What a fit to one half predicts of the other; `None` where there are too few requests.
    pub held_out: Option<HeldOut>,
}

/// Reads or writes of a tier, in a stretch of the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FittedKind {
    /// Its number in a stretch of [`Fit::targets`].
    pub tier: usize,
    /// Reads or writes.
    pub op: Op,
    /// The first stretch that has this profile.
    pub phase: usize,
}

/// The requests of files under layouts, as the log timed them.
#[derive(Clone, Copy)]
pub(crate) struct Timings<'a> {
    pub layouts: &'a [Layout],
    pub served: &'a Served,
    /// Files whose times are of the log.
    pub timed: &'a [bool],
    /// Where all processes meet.
    pub cuts_s: &'a [f64],
    /// The program's own time between requests, in seconds.
    pub gap_s: f64,
}

impl Fit {
    /// Fits the profiles of `cluster`. O(rounds x requests).
    pub(crate) fn of(cluster: &Cluster, timings: &Timings) -> Result<Self, SimulateError> {
        let Fitted { whole, targets, kinds } = Fitting::new(timings, MOST_REQUESTS).fit(cluster, None)?;
        let held_out = Fitting::new(timings, HALF_REQUESTS).held_out(cluster)?;
        let mut by_tier = cluster.clone();
        by_tier.tiers.iter_mut().zip(&whole.tiers).for_each(|(tier, fitted)| tier.profile = fitted.profile);
        Ok(Self { cluster: by_tier, targets, fitted: kinds, held_out })
    }
}

/// What a fit gives.
struct Fitted {
    /// Over the whole run.
    whole: Cluster,
    /// As [`Fit::targets`].
    targets: PhasedCluster,
    /// As [`Fit::fitted`].
    kinds: Vec<FittedKind>,
}

/// Stretches of the run in which reads or writes of a tier have one profile: their ends, but for the last.
#[derive(Debug, Clone, Default)]
struct Stretches(BTreeMap<Kind, Vec<f64>>);

impl Stretches {
    /// Which one of its kind's stretch `phase` of all is in.
    fn of(&self, kind: Kind, phase: usize, targets: &PhasedCluster) -> usize {
        let ends_s = self.0.get(&kind).map_or(&[][..], Vec::as_slice);
        targets.begin_s(phase).map_or(0, |begin_s| ends_s.partition_point(|end_s| *end_s <= begin_s))
    }
}

struct Fitting<'a> {
    timings: &'a Timings<'a>,
    run: ServedRun,
    workload: ClosedLoop,
    /// When the requests of each process of the workload began, in their order.
    begins_s: Vec<Vec<f64>>,
    /// Bytes of a part of each file.
    part_bytes: Vec<u64>,
}

/// How long a request took.
enum Seconds {
    /// In the log.
    Measured(f64),
    /// By the simulator.
    Simulated(f64),
}

/// What requests of a tier and operation, or of a server, took.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    count: usize,
    measured_s: f64,
    simulated_s: f64,
}

impl Times {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.measured_s += other.measured_s;
        self.simulated_s += other.simulated_s;
    }

    fn factor(&self) -> f64 {
        self.measured_s / self.simulated_s
    }
}

impl<'a> Fitting<'a> {
    fn new(timings: &'a Timings<'a>, most: usize) -> Self {
        let run = ServedRun::of(timings.served, most, timings.cuts_s);
        let end = |requests: &Vec<Request>| requests.iter().map(|r| r.offset.saturating_add(r.size)).max().unwrap_or(0);
        let mut begins_s = vec![Vec::new(); run.processes.len()];
        for r in run.requests.iter().flatten().filter(|r| r.size > 0) {
            begins_s[run.processes.partition_point(|process| *process < r.process)].push(r.start_s);
        }
        begins_s.iter_mut().for_each(|begins_s| begins_s.sort_by(f64::total_cmp));
        Self {
            timings,
            workload: run.with_gap(timings.gap_s),
            begins_s,
            part_bytes: run.requests.iter().map(|requests| (end(requests) / PARTS).max(1)).collect(),
            run,
        }
    }

    /// The requests of files whose times are of the log.
    fn timed(&self) -> impl Iterator<Item = (usize, &Vec<Request>)> {
        self.run.requests.iter().enumerate().filter(|(file, _)| self.timings.timed[*file])
    }

    /// The part of a file that begins there; parts of all files are numbered on.
    fn part(&self, file: usize, offset: u64) -> u64 {
        file as u64 + offset / self.part_bytes[file]
    }

    /// Profiles from the requests of all parts, or of the even or odd ones alone.
    fn fit(&self, cluster: &Cluster, half: Option<u64>) -> Result<Fitted, SimulateError> {
        let mut fitted = cluster.clone();
        let wanted = |file: usize, offset: u64| half.is_none_or(|half| self.part(file, offset) % 2 == half);
        let mut points: BTreeMap<Kind, Vec<(f64, f64)>> = BTreeMap::new();
        for (file, requests) in self.timed() {
            for r in requests.iter().filter(|r| wanted(file, r.offset)) {
                if let Some(part) = critical(cluster, &self.timings.layouts[file], r.op, r.offset, r.size) {
                    points.entry((part.tier, r.op)).or_default().push((part.bytes as f64, r.end_s - r.start_s));
                }
            }
        }
        for (&(tier, op), points) in &points {
            let profile = &mut fitted.tiers[tier].profile;
            let network = profile.network_s_per_byte;
            let of = if op == Op::Read { &mut profile.read } else { &mut profile.write };
            *of = regressed(of, network, points);
        }
        let mut targets = PhasedCluster::always(fitted);
        let times = self.scale(&mut targets, &Stretches::default(), wanted)?;
        if set_apart(targets.phase_mut(0), &times) {
            self.scale(&mut targets, &Stretches::default(), wanted)?;
        }
        let whole = targets.phase(0).clone();
        let (stretches, ends_s) = self.stretches(&targets, wanted)?;
        if !ends_s.is_empty() {
            targets = PhasedCluster::parted(whole.clone(), ends_s);
            self.scale(&mut targets, &stretches, wanted)?;
        }
        let (tiers, mut first) = (whole.tiers.len(), BTreeMap::new());
        for &(joined, op, _) in self.times(&targets, wanted)?.keys() {
            let (tier, phase) = (joined % tiers, joined / tiers);
            let of = first.entry((tier, op, stretches.of((tier, op), phase, &targets))).or_insert(phase);
            *of = phase.min(*of);
        }
        let kinds = first.into_iter().map(|((tier, op, _), phase)| FittedKind { tier, op, phase });
        Ok(Fitted { whole, targets, kinds: kinds.collect() })
    }

    /// Where reads or writes of tiers became faster or slower for good, and the ends of the stretches of all together, which
    /// are the clearest ones.
    fn stretches(
        &self,
        targets: &PhasedCluster,
        wanted: impl Fn(usize, u64) -> bool,
    ) -> Result<(Stretches, Vec<f64>), SimulateError> {
        let mut took: BTreeMap<Kind, (Vec<Took>, Vec<Took>)> = BTreeMap::new();
        self.each(targets, wanted, |(tier, op, _), begin_s, seconds| {
            let of = took.entry((tier, op)).or_default();
            match seconds {
                Seconds::Measured(took_s) => of.0.push((begin_s, took_s)),
                Seconds::Simulated(took_s) => of.1.push((begin_s, took_s)),
            }
        })?;
        let spans_s = self.timed().flat_map(|(_, requests)| requests).map(|r| (r.start_s, r.end_s));
        let (from_s, to_s) = spans_s.fold((f64::INFINITY, 0.0_f64), |(a, b), (from, to)| (a.min(from), b.max(to)));
        let least_s = LEAST_STRETCH * (to_s - from_s).max(0.0);
        let of_kinds = took.iter().map(|(kind, (measured, simulated))| (*kind, drifts(measured, simulated, least_s)));
        let mut of_all: Vec<(Kind, Drift)> =
            of_kinds.flat_map(|(kind, of)| of.into_iter().map(move |drift| (kind, drift))).collect();
        of_all.sort_by(|a, b| b.1.strength.total_cmp(&a.1.strength));
        let (mut ends_s, mut stretches) = (Vec::new(), Stretches::default());
        for (kind, drift) in of_all {
            // What changed together did so at one time, that of the clearest change.
            let near = ends_s.iter().copied().find(|end_s: &f64| (end_s - drift.end_s).abs() < least_s);
            if near.is_none() && ends_s.len() == MOST_PHASES - 1 {
                continue;
            }
            ends_s.extend(near.is_none().then_some(drift.end_s));
            let of_kind = stretches.0.entry(kind).or_default();
            let end_s = near.unwrap_or(drift.end_s);
            of_kind.extend((!of_kind.contains(&end_s)).then_some(end_s));
        }
        stretches.0.values_mut().for_each(|ends_s| ends_s.sort_by(f64::total_cmp));
        ends_s.sort_by(f64::total_cmp);
        Ok((stretches, ends_s))
    }

    /// Scales profiles until the simulated time of the wanted requests of each tier, operation and stretch is the measured
    /// one; the times before the last step.
    fn scale(
        &self,
        targets: &mut PhasedCluster,
        stretches: &Stretches,
        wanted: impl Fn(usize, u64) -> bool,
    ) -> Result<BTreeMap<TargetKind, Times>, SimulateError> {
        let tiers = targets.phase(0).tiers.len();
        let mut times = BTreeMap::new();
        for _ in 0..ROUNDS {
            times = self.times(targets, &wanted)?;
            let mut sums: BTreeMap<(Kind, usize), Times> = BTreeMap::new();
            for (&(joined, op, _), of) in &times {
                let kind = (joined % tiers, op);
                sums.entry((kind, stretches.of(kind, joined / tiers, targets))).or_default().add(of);
            }
            let mut worst = 0.0_f64;
            for ((kind, stretch), of) in sums.into_iter().filter(|(_, of)| of.measured_s > 0.0 && of.simulated_s > 0.0)
            {
                worst = worst.max(of.factor().ln().abs());
                let phases: Vec<usize> =
                    (0..targets.count()).filter(|phase| stretches.of(kind, *phase, targets) == stretch).collect();
                for phase in phases {
                    scale_op(&mut targets.phase_mut(phase).tiers[kind.0].profile, kind.1, of.factor());
                }
            }
            if worst < NEAR {
                break;
            }
        }
        Ok(times)
    }

    /// Measured and simulated seconds of the wanted requests by tier (of all stretches), operation and server, all being
    /// simulated.
    fn times(
        &self,
        targets: &PhasedCluster,
        wanted: impl Fn(usize, u64) -> bool,
    ) -> Result<BTreeMap<TargetKind, Times>, SimulateError> {
        let mut times: BTreeMap<TargetKind, Times> = BTreeMap::new();
        self.each(targets, wanted, |kind, _, seconds| {
            let of = times.entry(kind).or_default();
            match seconds {
                Seconds::Measured(took_s) => {
                    of.count += 1;
                    of.measured_s += took_s;
                }
                Seconds::Simulated(took_s) => of.simulated_s += took_s,
            }
        })?;
        Ok(times)
    }

    /// Gives `note` each wanted request as the log has it, and as the simulator has it among all: what it waited for, when
    /// it began in the log, and how long it took.
    fn each(
        &self,
        targets: &PhasedCluster,
        wanted: impl Fn(usize, u64) -> bool,
        mut note: impl FnMut(TargetKind, f64, Seconds),
    ) -> Result<(), SimulateError> {
        let joined = targets.joined();
        let (layouts, requests) = (targets.layouts(self.timings.layouts), targets.requests(&self.run.requests));
        let is_wanted = |number: usize, offset: u64| {
            let file = number / targets.count();
            self.timings.timed[file] && wanted(file, offset)
        };
        let kind = |file: usize, op: Op, offset: u64, size: u64| {
            let part = critical(&joined, &layouts[file], op, offset, size);
            part.map(|part| (part.tier, op, part.server))
        };
        for (file, requests) in requests.iter().enumerate() {
            for r in requests.iter().filter(|r| is_wanted(file, r.offset)) {
                if let Some(kind) = kind(file, r.op, r.offset, r.size) {
                    note(kind, r.start_s, Seconds::Measured(r.end_s - r.start_s));
                }
            }
        }
        let mut done = vec![0; self.begins_s.len()];
        let observed = |process: u32, access: &SimulatedAccess, issued_s: f64, ended_s: f64| {
            let place = &mut done[process as usize];
            // A process makes its requests in the order in which the log has them.
            let begin_s = self.begins_s[process as usize].get(*place).copied().unwrap_or(0.0);
            *place += 1;
            let file = access.file as usize;
            if is_wanted(file, access.offset)
                && let Some(kind) = kind(file, access.op, access.offset, access.size)
            {
                note(kind, begin_s, Seconds::Simulated(ended_s - issued_s));
            }
        };
        let parted;
        let workload = if targets.count() == 1 {
            &self.workload
        } else {
            parted = self.run.of_files(requests.to_vec()).with_gap(self.timings.gap_s);
            &parted
        };
        simulate_observed(&joined, &layouts, workload, &SimulationOptions::default(), observed)?;
        Ok(())
    }

    /// What a fit to the even parts predicts of the odd ones.
    fn held_out(&self, cluster: &Cluster) -> Result<Option<HeldOut>, SimulateError> {
        let mut counts = [0_usize; 2];
        for (file, requests) in self.timed() {
            requests.iter().for_each(|r| counts[(self.part(file, r.offset) % 2) as usize] += 1);
        }
        if counts.iter().any(|count| *count < LEAST_REQUESTS) {
            return Ok(None);
        }
        let fitted = self.fit(cluster, Some(0))?;
        let mut all = Times::default();
        self.times(&fitted.targets, |file, offset| self.part(file, offset) % 2 == 1)?
            .values()
            .for_each(|of| all.add(of));
        let ratio = 1.0 / all.factor();
        if !(ratio.is_finite() && ratio > 0.0) {
            return Ok(None);
        }
        let half = (SYSTEMATIC.powi(2) + (DEVIATIONS * self.scatter(0)).powi(2)).sqrt();
        Ok(Some(HeldOut { ratio, low: (-half).exp(), high: half.exp() }))
    }

    /// Relative standard error of the sum of the measured times of half of the parts, by the scatter from part to part
    /// of what a request takes; both halves have it.
    fn scatter(&self, half: u64) -> f64 {
        let mut parts: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for (file, requests) in self.timed() {
            for r in requests {
                let part = self.part(file, r.offset);
                if part % 2 == half {
                    let of = parts.entry(part).or_default();
                    *of = (of.0 + 1.0, of.1 + r.end_s - r.start_s);
                }
            }
        }
        let (count, sum_s) = parts.values().fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let (parts_count, mean_s) = (parts.len() as f64, sum_s / f64::max(count, 1.0));
        if parts_count < 2.0 || mean_s <= 0.0 {
            return 1.0;
        }
        // Of a ratio of sums (Cochran, Sampling Techniques, eq. 6.13): the residuals of parts around the common mean.
        let squares = parts.values().map(|(of, s)| (s - of * mean_s).powi(2)).sum::<f64>();
        let variance = squares * parts_count / (parts_count - 1.0);
        (2.0 * variance).sqrt() / sum_s
    }
}

/// Gives servers that are unlike the median one of their tier tiers of their own, those alike one: whether there are any.
/// O(servers).
fn set_apart(fitted: &mut Cluster, times: &BTreeMap<TargetKind, Times>) -> bool {
    let of_tiers = fitted.tiers.len();
    for tier in 0..of_tiers {
        let mut servers: BTreeMap<ServerId, Times> = BTreeMap::new();
        for ((_, _, server), of) in times.iter().filter(|((of, ..), _)| *of == tier) {
            servers.entry(*server).or_default().add(of);
        }
        servers.retain(|_, of| of.count >= LEAST_REQUESTS && of.measured_s > 0.0 && of.simulated_s > 0.0);
        let mut factors: Vec<f64> = servers.values().map(Times::factor).collect();
        factors.sort_by(f64::total_cmp);
        let Some(&median) = factors.get(factors.len().saturating_sub(1) / 2) else { continue };
        let mut apart: BTreeMap<i32, Vec<ServerId>> = BTreeMap::new();
        for (server, of) in servers {
            let steps = ((of.factor() / median).ln() / APART.ln()).round() as i32;
            if steps != 0 {
                apart.entry(steps).or_default().push(server);
            }
        }
        if apart.is_empty() {
            continue;
        }
        // What slow servers add to the time of all is not that of the others.
        for op in
            [Op::Read, Op::Write].into_iter().filter(|op| times.keys().any(|(of, own, _)| (*of, own) == (tier, op)))
        {
            scale_op(&mut fitted.tiers[tier].profile, op, median);
        }
        for (steps, servers) in apart {
            fitted.tiers[tier].servers.retain(|server| !servers.contains(server));
            let mut own = Tier { servers, ..fitted.tiers[tier].clone() };
            [Op::Read, Op::Write].into_iter().for_each(|op| scale_op(&mut own.profile, op, APART.powi(steps)));
            fitted.tiers.push(own);
        }
    }
    fitted.tiers.len() > of_tiers
}

fn scale_op(profile: &mut Profile, op: Op, factor: f64) {
    let of = if op == Op::Read { &mut profile.read } else { &mut profile.write };
    *of = scaled(of, factor);
}

/// Startup and time per byte by least squares of relative errors over `(bytes, seconds)`.
fn regressed(start: &OpProfile, network_s_per_byte: f64, points: &[(f64, f64)]) -> OpProfile {
    // Times below the clock's resolution have no relative error.
    let weight = |took_s: f64| 1.0 / took_s.max(1e-6).powi(2);
    let mut sums = [0.0; 5];
    for &(bytes, took_s) in points {
        let w = weight(took_s);
        for (sum, term) in sums.iter_mut().zip([w, w * bytes, w * bytes * bytes, w * took_s, w * bytes * took_s]) {
            *sum += term;
        }
    }
    let [one, x, xx, y, xy] = sums;
    let determinant = one * xx - x * x;
    let mean_s = 0.5 * (start.startup_min_s + start.startup_max_s);
    let alike = determinant <= 1e-3 * one * xx;
    let (startup_s, slope) = if alike {
        // By how much longer than by the profile to start from.
        let expected: f64 = points.iter().map(|(bytes, _)| mean_s + bytes * start.transfer_s_per_byte).sum();
        let factor = points.iter().map(|(_, took_s)| took_s).sum::<f64>() / expected.max(f64::MIN_POSITIVE);
        (mean_s * factor, start.transfer_s_per_byte * factor)
    } else {
        match ((y * xx - x * xy) / determinant, (one * xy - x * y) / determinant) {
            (startup_s, _) if startup_s < 0.0 => (0.0, xy / xx),
            (_, slope) if slope < 0.0 => (y / one, 0.0),
            (startup_s, slope) => (startup_s, (slope - network_s_per_byte).max(0.0)),
        }
    };
    bounded(start, startup_s, slope)
}

fn scaled(of: &OpProfile, factor: f64) -> OpProfile {
    bounded(of, 0.5 * (of.startup_min_s + of.startup_max_s) * factor, of.transfer_s_per_byte * factor)
}

/// With this mean startup, spread around it as in `of`.
fn bounded(of: &OpProfile, startup_s: f64, transfer_s_per_byte: f64) -> OpProfile {
    let mean_s = 0.5 * (of.startup_min_s + of.startup_max_s);
    let spread = if mean_s > 0.0 { 1.0 - of.startup_min_s / mean_s } else { 0.0 };
    let startup_s = startup_s.clamp(STARTUP_S.0, STARTUP_S.1);
    OpProfile {
        startup_min_s: startup_s * (1.0 - spread),
        startup_max_s: startup_s * (1.0 + spread),
        transfer_s_per_byte: transfer_s_per_byte.clamp(TRANSFER_S_PER_BYTE.0, TRANSFER_S_PER_BYTE.1),
        head: of.head.map(|head| Head {
            sequential_startup_s: head.sequential_startup_s * startup_s / mean_s.max(f64::MIN_POSITIVE),
            ..head
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::presets;

    /// Requests of sizes in turn, timed by the simulator on servers of `truth`, with `gap_s` between two of a process.
    fn timed_on(truth: &Cluster, layouts: &[Layout], sizes: &[u64], processes: u32, gap_s: f64) -> Served {
        let mut offset = 0;
        let request = |n: u64| {
            let size = sizes[n as usize % sizes.len()];
            offset += size;
            Request {
                offset: offset - size,
                size,
                op: Op::Write,
                process: n as u32 % processes,
                start_s: n as f64,
                end_s: n as f64,
            }
        };
        let mut requests: Vec<Request> = (0..600).map(request).collect();
        let served = |requests| Served { by_servers: vec![requests], by_memory: vec![Vec::new()] };
        let workload = ServedRun::of(&served(requests.clone()), MOST_REQUESTS, &[]).with_gap(gap_s);
        let mut took: BTreeMap<u64, f64> = BTreeMap::new();
        let note = |_, access: &SimulatedAccess, issued_s: f64, ended_s: f64| {
            took.insert(access.offset, ended_s - issued_s);
        };
        simulate_observed(truth, layouts, &workload, &SimulationOptions { seed: 9, ..Default::default() }, note)
            .unwrap();
        requests.iter_mut().for_each(|r| r.end_s = r.start_s + took[&r.offset]);
        served(requests)
    }

    #[test]
    fn servers_that_are_no_presets_are_fitted_by_their_requests() {
        let cluster = |name| presets::cluster(&[("ost", 4, presets::device(name).unwrap())]);
        let layouts = [Layout::striped((0..4).map(ServerId), 1 << 20).unwrap()];
        for (sizes, processes) in [(&[64 << 10, 4 << 20][..], 8), (&[1 << 20], 1), (&[1 << 20], 16)] {
            let served = timed_on(&cluster("ssd-sata"), &layouts, sizes, processes, 0.0);
            let timings = Timings { layouts: &layouts, served: &served, timed: &[true], cuts_s: &[], gap_s: 0.0 };
            let fit = Fit::of(&cluster("hdd-7200"), &timings).unwrap();
            assert_eq!(fit.fitted, [FittedKind { tier: 0, op: Op::Write, phase: 0 }]);
            let mut times = Times::default();
            let found = Fitting::new(&timings, MOST_REQUESTS).times(&fit.targets, |_, _| true).unwrap();
            found.values().for_each(|of| times.add(of));
            let ratio = times.simulated_s / times.measured_s;
            assert!((0.95..1.05).contains(&ratio), "{sizes:?} by {processes}: {ratio}");
            let held_out = fit.held_out.unwrap();
            assert!(held_out.low < held_out.ratio && held_out.ratio < held_out.high, "{held_out:?}");
            assert_eq!(fit.cluster.tiers[0].profile.read, cluster("hdd-7200").tiers[0].profile.read, "none was seen");
        }
    }

    #[test]
    fn a_slow_server_of_a_tier_is_fitted_apart() {
        let even = presets::cluster(&[("ost", 6, presets::device("ssd-sata").unwrap())]);
        let mut truth = even.clone();
        truth.tiers[0].servers.retain(|server| *server != ServerId(4));
        let mut slow = Tier { servers: vec![ServerId(4)], ..truth.tiers[0].clone() };
        scale_op(&mut slow.profile, Op::Write, 20.0);
        truth.tiers.push(slow);
        let layouts = [Layout::striped((0..6).map(ServerId), 1 << 20).unwrap()];
        let served = timed_on(&truth, &layouts, &[1 << 20], 3, 0.0);
        let timings = Timings { layouts: &layouts, served: &served, timed: &[true], cuts_s: &[], gap_s: 0.0 };
        let fit = Fit::of(&even, &timings).unwrap();
        let targets = fit.targets.phase(0);
        assert_eq!(targets.tiers.iter().map(|tier| tier.servers.len()).collect::<Vec<_>>(), [5, 1]);
        assert_eq!(targets.tiers[1].servers, [ServerId(4)]);
        assert_eq!(fit.cluster.tiers[0].servers, even.tiers[0].servers, "planners see one tier");
        let took_s = |cluster: &Cluster, tier: usize| {
            let of = cluster.tiers[tier].profile.write;
            0.5 * (of.startup_min_s + of.startup_max_s) + of.transfer_s_per_byte * f64::from(1 << 20)
        };
        for tier in [0, 1] {
            let ratio = took_s(targets, tier) / took_s(&truth, tier);
            assert!((0.7..1.4).contains(&ratio), "tier {tier}: {ratio}");
        }
        assert_eq!(fit.cluster.tiers[0].profile, targets.tiers[0].profile);
    }

    #[test]
    fn servers_that_became_slower_for_good_are_fitted_by_stretch() {
        let cluster = |name| presets::cluster(&[("ost", 2, presets::device(name).unwrap())]);
        let layouts = [Layout::striped((0..2).map(ServerId), 1 << 20).unwrap()];
        let timings = |served| Timings { layouts: &layouts, served, timed: &[true], cuts_s: &[], gap_s: 0.0 };
        let served = timed_on(&cluster("ssd-sata"), &layouts, &[1 << 20], 1, 0.0);
        let even = Fit::of(&cluster("hdd-7200"), &timings(&served)).unwrap();
        assert_eq!((even.targets.count(), even.fitted.len()), (1, 1), "as fast all the time");
        let mut slower = served.clone();
        for r in slower.by_servers[0].iter_mut().filter(|r| r.start_s >= 350.0) {
            r.end_s = r.start_s + 5.0 * (r.end_s - r.start_s);
        }
        let fit = Fit::of(&cluster("hdd-7200"), &timings(&slower)).unwrap();
        assert_eq!(fit.targets.count(), 2);
        assert!((330.0..370.0).contains(&fit.targets.begin_s(1).unwrap()), "{:?}", fit.targets.begin_s(1));
        assert_eq!(fit.fitted.iter().map(|of| of.phase).collect::<Vec<_>>(), [0, 1]);
        let took_s = |cluster: &Cluster| {
            let of = cluster.tiers[0].profile.write;
            0.5 * (of.startup_min_s + of.startup_max_s) + of.transfer_s_per_byte * f64::from(1 << 20)
        };
        let (early, late) = (took_s(fit.targets.phase(0)), took_s(fit.targets.phase(1)));
        assert!((4.0..6.0).contains(&(late / early)), "{early} {late}");
        assert!(early < took_s(&fit.cluster) && took_s(&fit.cluster) < late, "planners see the whole run");
        let held_out = fit.held_out.unwrap();
        assert!((0.9..1.1).contains(&held_out.ratio), "{held_out:?}");
    }

    #[test]
    fn who_computes_between_requests_does_not_wait_for_others() {
        let cluster = |name| presets::cluster(&[("ost", 1, presets::device(name).unwrap())]);
        let (truth, layouts) = (cluster("ssd-sata"), [Layout::striped([ServerId(0)], 1 << 20).unwrap()]);
        let served = timed_on(&truth, &layouts, &[1 << 20], 8, 1.0);
        let timings = Timings { layouts: &layouts, served: &served, timed: &[true], cuts_s: &[], gap_s: 1.0 };
        let fit = Fit::of(&cluster("hdd-7200"), &timings).unwrap();
        let took_s = |cluster: &Cluster| {
            let of = cluster.tiers[0].profile.write;
            0.5 * (of.startup_min_s + of.startup_max_s) + of.transfer_s_per_byte * f64::from(1 << 20)
        };
        let ratio = took_s(&fit.cluster) / took_s(&truth);
        assert!((0.8..1.25).contains(&ratio), "{ratio}: servers are not as much faster as there are processes");
    }

    #[test]
    fn startup_and_bandwidth_are_told_apart_where_sizes_differ() {
        let start = presets::device("hdd-7200").unwrap().read;
        let points: Vec<(f64, f64)> = (1..50).map(|n| (n as f64 * 1e5, 2e-4 + n as f64 * 1e5 * 1e-9)).collect();
        let fitted = regressed(&start, 0.0, &points);
        let startup_s = 0.5 * (fitted.startup_min_s + fitted.startup_max_s);
        assert!((startup_s - 2e-4).abs() < 1e-6 && (fitted.transfer_s_per_byte - 1e-9).abs() < 1e-12, "{fitted:?}");
        // Alike: as the disk's, only faster.
        let fitted = regressed(&start, 0.0, &[(1e6, 0.00205); 20]);
        assert!((fitted.startup_min_s - start.startup_min_s / 10.0).abs() < 1e-6, "{fitted:?}");
    }

    proptest::proptest! {
        #[test]
        fn no_times_give_an_invalid_profile(points in proptest::collection::vec((0.0_f64..1e12, 0.0_f64..1e6), 1..40)) {
            let start = presets::device("nvme").unwrap().write;
            proptest::prop_assert!(regressed(&start, 1e-9, &points).is_valid());
        }
    }
}
