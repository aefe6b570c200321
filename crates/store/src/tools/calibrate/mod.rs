//! Measures what servers cost: startup time and bandwidth, for reads and for writes.
//!
//! Each server gets a scratch file without a name and random requests of several sizes on it, one at a time, by direct I/O
//! (on an emulated server: through its queue, as the store does). Then some requests follow each other in the file: where
//! they start sooner, the server has a head, and the profile a sequential startup; two streams in turn show what it reads
//! ahead. Where there is a head, pairs of reads at growing distances show what a seek takes. The metadata
//! tier gets many requests at a time, where it has no head: how many does it serve side by side? And names come and go on it. All servers are measured at once,
//! each in its own thread. The times are those that programs see: of an emulated server the dilated ones.

mod beside;
mod error;
mod fit;
mod names;
mod scratch;
mod seeks;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use stripewise_layout::{META_NAME, ServerId};
use stripewise_model::{Head, NameCosts, Op, OpProfile, Profile, SeekMap};

use crate::backend::Server;
use crate::backend::emulate::now_ns;
use crate::pool::pool_file::Pool;
pub use error::CalibrateError;
use fit::{InOrder, head};
pub use fit::{OpFit, Sample, fit};
pub use scratch::IoPath;
use scratch::{AlignedBuffer, BLOCK_BYTES, ScratchFile};

/// Sizes of the timed requests in bytes.
pub const SIZES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Requests of each size and operation that a fit needs.
const MIN_ROUNDS: usize = 5;

/// A server to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The server.
    pub server: Server,
    /// Name of its tier.
    pub tier: String,
}

/// All servers of a pool, and its namespace as the server of the tier `meta`, to measure.
pub fn targets(pool: &Pool) -> Vec<Target> {
    let target = |server: &Server| Target { server: server.clone(), tier: pool.tiers[server.tier].name.clone() };
    let meta = Target { server: pool.meta.server.clone(), tier: META_NAME.to_owned() };
    pool.there().map(target).chain([meta]).collect()
}

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CalibrateOptions {
    /// Time for the requests in seconds, reads and writes together; filling the scratch file is not in it.
    pub budget_s: f64,
    /// Size of the scratch file of a real server in bytes: the distance over which a disk seeks.
    pub scratch_bytes: u64,
    /// Most requests of one operation on one server.
    pub max_requests: usize,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        Self { budget_s: 16.0, scratch_bytes: 256 << 20, max_requests: 6000 }
    }
}

/// Scratch file of an emulated server: its device does not seek, and its bytes stay in the page cache.
const EMULATED_SCRATCH_BYTES: u64 = 16 << 20;

/// What one server costs.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerCalibration {
    /// The server.
    pub target: Target,
    /// Reads.
    pub read: OpFit,
    /// Writes.
    pub write: OpFit,
    /// Startups of reads by the gap before them; `None` where nothing seeks.
    pub seeks: Option<SeekMap>,
    /// Requests that it serves side by side, of the metadata tier; 1 of any other server, and of one with a head.
    pub at_once: u32,
    /// What operations on names cost, on the metadata tier.
    pub names: Option<NameCosts>,
    /// How it was measured.
    pub path: IoPath,
}

impl ServerCalibration {
    /// The fits as a profile. The network's share, if any, is in the transfer times.
    pub fn profile(&self) -> Profile {
        Profile { read: self.read.profile, write: self.write.profile, network_s_per_byte: 0.0 }
    }
}

/// What the servers of one tier cost.
#[derive(Debug, Clone, PartialEq)]
pub struct TierCalibration {
    /// Name of the tier.
    pub tier: String,
    /// Medians over its servers: the tier's profile.
    pub profile: Profile,
    /// Requests that each of its servers serves side by side.
    pub at_once: u32,
    /// What operations on names cost, on the metadata tier.
    pub names: Option<NameCosts>,
    /// Largest residual of a fit of reads on its servers.
    pub read_residual: f64,
    /// Largest residual of a fit of writes on its servers.
    pub write_residual: f64,
    /// Requests measured.
    pub requests: usize,
    /// What a person should know before believing the figures.
    pub warnings: Vec<String>,
}

/// Measures all `targets` at once. `progress` is called on the caller's thread ten times a second with the share that is
/// done of each (0 to 1, in the order of `targets`); it may stop the whole.
///
/// # Errors
/// [`CalibrateError`] of the first server that could not be measured. Scratch files are gone in every case.
pub fn calibrate(
    targets: &[Target],
    options: &CalibrateOptions,
    mut progress: impl FnMut(&[f64]) -> ControlFlow<()>,
) -> Result<Vec<ServerCalibration>, CalibrateError> {
    let permille: Vec<AtomicU32> = targets.iter().map(|_| AtomicU32::new(0)).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = targets
            .iter()
            .zip(&permille)
            .map(|(target, permille)| {
                let stop = &stop;
                scope.spawn(move || measure(target, options, permille, stop))
            })
            .collect();
        let mut report = |stop: &AtomicBool| {
            let shares: Vec<f64> = permille.iter().map(|p| f64::from(p.load(Relaxed)) / 1000.0).collect();
            if progress(&shares).is_break() {
                stop.store(true, Relaxed);
            }
        };
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            report(&stop);
            thread::sleep(Duration::from_millis(100));
        }
        report(&stop);
        // One that fails has stopped the others: its own error is the one to tell.
        let mut results = Vec::new();
        let mut error = None;
        for worker in workers {
            match worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(result) => results.push(result),
                Err(CalibrateError::Stopped) => error = error.or(Some(CalibrateError::Stopped)),
                Err(other) => {
                    if !matches!(error, Some(ref earlier) if !matches!(earlier, CalibrateError::Stopped)) {
                        error = Some(other);
                    }
                }
            }
        }
        error.map_or(Ok(results), Err)
    })
}

/// Measures one server in the calling thread.
fn measure(
    target: &Target,
    options: &CalibrateOptions,
    permille: &AtomicU32,
    stop: &AtomicBool,
) -> Result<ServerCalibration, CalibrateError> {
    let result = measure_both(target, options, permille, stop);
    if result.is_err() {
        stop.store(true, Relaxed);
    }
    result
}

fn measure_both(
    target: &Target,
    options: &CalibrateOptions,
    permille: &AtomicU32,
    stop: &AtomicBool,
) -> Result<ServerCalibration, CalibrateError> {
    let largest = SIZES[SIZES.len() - 1];
    let server = &target.server;
    let wanted = if server.emulate.is_some() { EMULATED_SCRATCH_BYTES } else { options.scratch_bytes };
    let bytes = wanted.max(largest);
    let mut buffer = AlignedBuffer::new(largest as usize);
    let scratch = ScratchFile::new(server, bytes, &mut buffer)?;
    let budget_ns = (options.budget_s * 0.5e9) as u64;
    let (mut fits, mut seeks) = ([None; 2], None);
    for (half, op) in [Op::Write, Op::Read].into_iter().enumerate() {
        let failed = |errno| {
            let action = if op == Op::Read { "read a scratch file in" } else { "write a scratch file in" };
            CalibrateError::Io { server: server.name.clone(), action, root: server.root.clone(), errno }
        };
        let mut samples = SIZES.map(|bytes| Sample { bytes, times_s: Vec::new() });
        let mut random = now_ns() | 1;
        let start_ns = now_ns();
        let mut rounds = 0;
        loop {
            let spent_ns = now_ns() - start_ns;
            let share = (spent_ns as f64 / budget_ns as f64)
                .max((rounds * SIZES.len()) as f64 / options.max_requests as f64)
                .min(1.0);
            permille.store((500.0 * (half as f64 + share)) as u32, Relaxed);
            // A slow server may take four times its budget for the least that a fit needs.
            let enough = rounds >= MIN_ROUNDS || spent_ns > budget_ns.saturating_mul(4);
            if share >= 1.0 && enough {
                break;
            }
            for sample in &mut samples {
                if stop.load(Relaxed) {
                    return Err(CalibrateError::Stopped);
                }
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let places = (bytes - sample.bytes) / BLOCK_BYTES as u64 + 1;
                let offset = (random >> 16) % places * BLOCK_BYTES as u64;
                let buffer = buffer.bytes(sample.bytes as usize);
                sample.times_s.push(scratch.request(op, offset, buffer).map_err(failed)?);
            }
            rounds += 1;
        }
        let too_slow = || CalibrateError::TooSlow { server: server.name.clone(), rounds, budget_s: options.budget_s };
        if rounds < MIN_ROUNDS {
            return Err(too_slow());
        }
        let mut found = fit(&samples).ok_or_else(too_slow)?;
        let mut timed = |streams| in_order(&scratch, op, bytes, streams, budget_ns / 16, &mut buffer).map_err(failed);
        let in_order = InOrder { bytes: IN_ORDER_BYTES, alone_s: timed(1)?, in_turn_s: timed(2)? };
        found.profile.head = head(&in_order, &found.profile);
        if op == Op::Read && found.profile.head.is_some() {
            seeks = seeks::seeks(&scratch, &found.profile, budget_ns / 8, &mut buffer, stop).map_err(failed)?;
        }
        fits[half] = Some(found);
    }
    let [Some(write), Some(read)] = fits else { return Err(CalibrateError::Stopped) };
    let has_head = read.profile.head.is_some() || write.profile.head.is_some();
    let failed = |action| {
        move |errno| CalibrateError::Io { server: server.name.clone(), action, root: server.root.clone(), errno }
    };
    let at_once = if server.id == ServerId::META && !has_head {
        let found = beside::at_once(&scratch, bytes, &read.profile, budget_ns / 8, stop);
        found.map_err(failed("read a scratch file in"))?
    } else {
        1
    };
    let names = (server.id == ServerId::META).then(|| names::names(&scratch, budget_ns / 8, stop));
    let names = names.transpose().map_err(failed("make and remove names in"))?;
    permille.store(1000, Relaxed);
    Ok(ServerCalibration { target: target.clone(), read, write, seeks, at_once, names, path: scratch.path() })
}

/// Bytes of each request of the sequential pass.
const IN_ORDER_BYTES: u64 = 64 << 10;

/// Most requests of it.
const MOST_IN_ORDER: usize = 96;

/// Times in seconds of requests that follow each other in `streams` parts of the scratch file in turn: up to
/// [`MOST_IN_ORDER`], or `budget_ns`, but a few at least. The first one of each, for which a head comes from anywhere, is left
/// out.
fn in_order(
    scratch: &ScratchFile,
    op: Op,
    bytes: u64,
    streams: u64,
    budget_ns: u64,
    buffer: &mut AlignedBuffer,
) -> rustix::io::Result<Vec<f64>> {
    let blocks = bytes / IN_ORDER_BYTES;
    let begin_ns = now_ns();
    let mut times_s = Vec::with_capacity(MOST_IN_ORDER);
    for number in 0..blocks.min(MOST_IN_ORDER as u64) {
        if number > 4 * MIN_ROUNDS as u64 && now_ns() - begin_ns > budget_ns {
            break;
        }
        let block = number % streams * (blocks / streams) + number / streams;
        let buffer = buffer.bytes(IN_ORDER_BYTES as usize);
        times_s.push(scratch.request(op, block * IN_ORDER_BYTES, buffer)?);
    }
    Ok(times_s.split_off(streams as usize))
}

/// A server that is this far from its tier's median does not belong there.
const MAX_SPREAD: f64 = 0.25;

/// More outliers than this are worth a word.
const MAX_OUTLIERS: f64 = 0.05;

/// A fit with a residual above this is worth a word.
const MAX_RESIDUAL: f64 = 0.2;

/// Joins the servers of each tier, tiers in the order of their first server.
pub fn tiers(servers: &[ServerCalibration]) -> Vec<TierCalibration> {
    let mut names: Vec<&str> = Vec::new();
    for server in servers {
        if !names.contains(&server.target.tier.as_str()) {
            names.push(&server.target.tier);
        }
    }
    names
        .into_iter()
        .map(|name| tier(name, &servers.iter().filter(|server| server.target.tier == name).collect::<Vec<_>>()))
        .collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The medians over the servers that have a head, if these are more than half.
fn head_of_most(servers: &[&ServerCalibration], of: fn(&ServerCalibration) -> &OpFit) -> Option<Head> {
    let found: Vec<Head> = servers.iter().filter_map(|server| of(server).profile.head).collect();
    (2 * found.len() > servers.len()).then(|| Head {
        sequential_startup_s: median(found.iter().map(|head| head.sequential_startup_s)),
        ahead_bytes: median(found.iter().map(|head| head.ahead_bytes as f64)) as u64,
    })
}

fn tier(name: &str, servers: &[&ServerCalibration]) -> TierCalibration {
    let middle = |of: fn(&ServerCalibration) -> &OpFit| OpProfile {
        startup_min_s: median(servers.iter().map(|server| of(server).profile.startup_min_s)),
        startup_max_s: median(servers.iter().map(|server| of(server).profile.startup_max_s)),
        transfer_s_per_byte: median(servers.iter().map(|server| of(server).profile.transfer_s_per_byte)),
        head: head_of_most(servers, of),
    };
    let profile = Profile { read: middle(|s| &s.read), write: middle(|s| &s.write), network_s_per_byte: 0.0 };
    let mut warnings = Vec::new();
    for server in servers {
        let who = &server.target.server.name;
        if server.path == IoPath::Cached {
            warnings.push(format!(
                "{who}: its file system refuses direct I/O, so the page cache may have served requests; correct the \
                 profile by hand if the device is slower"
            ));
        }
        for (op, fit, of_tier) in [("reads", &server.read, &profile.read), ("writes", &server.write, &profile.write)] {
            // A request of 512 KiB weighs startup and transfer about as programs do.
            let cost = |p: &OpProfile| (p.startup_min_s + p.startup_max_s) / 2.0 + 524_288.0 * p.transfer_s_per_byte;
            let ratio = cost(&fit.profile) / cost(of_tier);
            if !(1.0 - MAX_SPREAD..=1.0 + MAX_SPREAD).contains(&ratio) {
                warnings
                    .push(format!("{who}: {op} take {ratio:.2} times the tier's median; give it a tier of its own"));
            }
            if fit.outliers > MAX_OUTLIERS {
                let percent = fit.outliers * 100.0;
                warnings.push(format!(
                    "{who}: {percent:.0} % of small {op} took far longer than the others and are left out; was the machine \
                     busy?"
                ));
            }
            if fit.residual > MAX_RESIDUAL {
                let percent = fit.residual * 100.0;
                warnings.push(format!(
                    "{who}: {op} are up to {percent:.0} % off a startup and a time per byte; was the machine busy?"
                ));
            }
        }
    }
    let worst = |of: fn(&ServerCalibration) -> &OpFit| servers.iter().map(|s| of(s).residual).fold(0.0, f64::max);
    TierCalibration {
        tier: name.to_owned(),
        profile,
        at_once: servers.iter().map(|server| server.at_once).min().unwrap_or(1),
        names: servers.iter().find_map(|server| server.names),
        read_residual: worst(|s| &s.read),
        write_residual: worst(|s| &s.write),
        requests: servers.iter().map(|server| server.read.requests + server.write.requests).sum(),
        warnings,
    }
}
