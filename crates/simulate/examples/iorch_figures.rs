//! Prints what policies of turns make of IOrchestrator's programs (figures 2, 7 and 8) on the disks of `python -m benches iorch-fig8`:
//! the same programs, queues and windows without a machine's own times, so that a figure depends on no load.
//!
//! `cargo run --release -p stripewise-simulate --example iorch_figures [-- --quick]`

use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Op, OpProfile, Profile, Queue, SeekCurve, SeekShape, Tier};
use stripewise_simulate::{
    Joined, JoinedPart, Packed, ProgramRules, ProgramTurns, ServerUse, SimulatedAccess, SimulatedStep, Startup, System,
    TierDevice, run_observed,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GB: u64 = 1_000_000_000;
const STRIPE: u64 = 64 * KIB;
const DISKS: u16 = 6;
const RANKS: u64 = 5;
/// All times of the disks and the windows, as in the measured programs.
const DILATION: f64 = 2.0;
const SEQUENTIAL_S: f64 = DILATION * 1e-4;
const S_PER_BYTE: f64 = DILATION / 80e6;
/// What a rank does between two requests: a barrier of processes that sleep, drawn anew for each.
const THINK_S: (f64, f64) = (0.5e-3, 2.5e-3);
/// Programs whose shares count (figure 7) are looked at for that long.
const SHARES_S: f64 = 24.0;

/// What a program of `benches/mpi_programs.py` is.
#[derive(Clone, Copy)]
struct Mpi {
    kind: &'static str,
    bytes: u64,
}

impl Mpi {
    fn new(kind: &'static str, bytes: u64) -> Self {
        Self { kind, bytes }
    }

    /// Offset and size of request `number` of a rank.
    fn request(&self, rank: u64, number: u64) -> (u64, u64) {
        let (size, turn) = (self.size(), number * RANKS + rank);
        match self.kind {
            "ior-mpi-io" => (rank * (self.bytes / RANKS / size * size) + number * size, size),
            "hpio" => (turn * (size + 10), size),
            "mpi-tile-io" => (turn * (size - 64), size),
            _ => (turn * size, size),
        }
    }

    fn size(&self) -> u64 {
        match self.kind {
            "noncontig" => 16 * KIB,
            "mpi-tile-io" => 8 * KIB,
            _ => 64 * KIB,
        }
    }

    fn steps(&self, seed: u64) -> Packed {
        let mut packed = Packed::new();
        for rank in 0..RANKS {
            packed.push((0..self.bytes / self.size() / RANKS).flat_map(|number| {
                let (offset, size) = self.request(rank, number);
                let think_s = THINK_S.0 + (THINK_S.1 - THINK_S.0) * unit(seed, rank << 32 | number);
                let access = SimulatedAccess { file: 0, offset, size, op: Op::Read, think_s };
                [SimulatedStep::Access(access), SimulatedStep::Barrier]
            }));
        }
        packed
    }
}

/// A number of 0 to 1 for each place of a seed (splitmix64).
fn unit(seed: u64, place: u64) -> f64 {
    let mut z = (seed << 48 ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// The disks of `benches/iorch.py`, whose seeks and turns take `seek` times as long.
fn disks(seek: f64) -> (Cluster, TierDevice) {
    let op = OpProfile {
        startup_min_s: seek * DILATION * 1e-3,
        startup_max_s: seek * DILATION * 25e-3,
        transfer_s_per_byte: S_PER_BYTE,
        head: None,
    };
    let profile = Profile { read: op, write: op, network_s_per_byte: 0.0 };
    let servers = (0..DISKS).map(ServerId).collect();
    let tier = Tier { name: "hdd".into(), servers, profile, capacity_bytes: None, in_turn: false, at_once: 1 };
    let curve = SeekCurve {
        sequential_s: SEQUENTIAL_S,
        settle_s: seek * DILATION * 1e-3,
        full_stroke_s: seek * DILATION * 16.7e-3,
        rotation_s: seek * DILATION * 8.3e-3,
        stroke_bytes: 500 * GB,
        shape: SeekShape::SquareRoot,
    };
    let queue = Queue::Anticipatory { wait_s: DILATION * 6.7e-3, near_bytes: MIB };
    (
        Cluster { tiers: vec![tier], meta: None },
        TierDevice { queue, startup: Startup::Seek { read: curve, write: curve } },
    )
}

/// What a run has shown.
struct Ran {
    /// Bytes that each program has moved by the end, or by the time that was asked for.
    bytes: Vec<u64>,
    /// Until when.
    until_s: f64,
    /// The busiest disk's time for all of it if its head never moved.
    least_s: f64,
}

impl Ran {
    fn mib_per_s(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64 / MIB as f64 / self.until_s
    }
}

/// Programs at once, each on its own file, whose beginnings are `apart` bytes from each other; until all have ended, or `until_s`.
fn went(programs: &[Mpi], apart: u64, policy: &str, (seed, seek, until_s): (u64, f64, Option<f64>)) -> Ran {
    let (cluster, device) = disks(seek);
    let steps: Vec<Packed> = programs.iter().zip(1..).map(|(one, number)| one.steps(seed * 100 + number)).collect();
    let files: Vec<u32> = (0..programs.len() as u32).collect();
    let layouts = vec![Layout::striped((0..DISKS).map(ServerId), STRIPE).expect("a layout"); programs.len()];
    let part = |(steps, file)| JoinedPart { steps, files: std::slice::from_ref(file), begin_s: 0.0 };
    let joined = Joined::of(steps.iter().zip(&files).map(part).collect());
    let program_of = joined.program_of();
    let turns = ProgramTurns {
        policy: policy.into(),
        window_s: 0.5 * DILATION,
        program_of: program_of.clone(),
        names: programs.iter().zip(&files).map(|(one, file)| format!("{}-{file}", one.kind)).collect(),
        rules: ProgramRules::default(),
    };
    let file_starts = Some((0..programs.len() as u64).map(|file| file * apart).collect());
    let system = System { devices: vec![device], file_starts, turns: Some(turns), ..System::default() };
    let (mut bytes, mut last_s) = (vec![0; programs.len()], 0.0_f64);
    let observe = |process: u32, access: &SimulatedAccess, _: f64, end_s: f64| {
        let program = program_of[process as usize] as usize;
        if until_s.is_none_or(|until_s| end_s <= until_s) {
            bytes[program] += access.size;
        }
        last_s = last_s.max(end_s);
    };
    let report = run_observed(&cluster, &layouts, &joined, &system, seed, observe).expect("a run");
    let least = |of: &ServerUse| of.requests() as f64 * SEQUENTIAL_S + of.bytes as f64 * S_PER_BYTE;
    let least_s = report.outcome.servers.iter().map(least).fold(0.0, f64::max);
    Ran { bytes, until_s: until_s.unwrap_or(last_s), least_s }
}

const POLICIES: [&str; 5] = ["none", "even", "reuse-distance", "set-10", "opportunity"];

/// Mean of seeds.
fn mean(seeds: u64, of: impl Fn(u64) -> f64) -> f64 {
    (1..=seeds).map(of).sum::<f64>() / seeds as f64
}

/// Two programs that read files whose beginnings are 0 and 30 GB apart.
fn fig8(seeds: u64) {
    for mib in [256, 1024] {
        let jobs = [Mpi::new("mpi-io-test", mib * MIB); 2];
        let share = (mib * MIB + MIB) / u64::from(DISKS) / STRIPE * STRIPE + STRIPE;
        for policy in POLICIES {
            let [near, far] = [0, 30].map(|apart| {
                mean(seeds, |seed| went(&jobs, share + apart * GB, policy, (seed, 1.0, None)).mib_per_s())
            });
            println!("fig8, {mib} MiB, {policy}: {near:.2} MiB/s 0 GB apart, {far:.2} MiB/s 30 GB apart");
        }
    }
}

/// Two instances of each program; writes take as long as reads on these disks.
fn fig2(seeds: u64) {
    for (kind, mib) in [("mpi-io-test", 256), ("ior-mpi-io", 256), ("noncontig", 12), ("hpio", 256), ("mpi-tile-io", 6)]
    {
        let jobs = [Mpi::new(kind, mib * MIB); 2];
        let ran = |policy: &str, seed| went(&jobs, 10 * GB, policy, (seed, 1.0, None)).mib_per_s();
        let gains: Vec<f64> = (1..=seeds).map(|seed| ran("reuse-distance", seed) / ran("none", seed)).collect();
        let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
        let gain = gains.iter().sum::<f64>() / seeds as f64;
        println!("fig2, {kind}: gain {gain:.3}, least {least:.3}");
    }
}

/// Three programs: all of their bytes to the end of the last, and what they move while all three are at work.
fn fig7(seeds: u64, seek: f64) {
    let kinds = [("mpi-io-test", 256), ("noncontig", 12), ("hpio", 256)];
    let jobs = kinds.map(|(kind, mib)| Mpi::new(kind, mib * MIB));
    let endless = kinds.map(|(kind, _)| Mpi::new(kind, MIB << if kind == "noncontig" { 10 } else { 12 }));
    let alone: Vec<Ran> = jobs.iter().map(|one| went(&[*one], 0, "none", (1, seek, None))).collect();
    let moved = alone.iter().flat_map(|one| &one.bytes).sum::<u64>() as f64 / MIB as f64;
    let longest_s = alone.iter().map(|one| one.until_s).fold(0.0, f64::max);
    let least_s = alone.iter().map(|one| one.least_s).sum::<f64>().max(longest_s);
    println!(
        "fig7, seeks {seek} x, one program after the other: {:.2} MiB/s, no schedule above {:.2} MiB/s",
        moved / alone.iter().map(|one| one.until_s).sum::<f64>(),
        moved / least_s
    );
    for policy in POLICIES {
        let to_the_end = mean(seeds, |seed| went(&jobs, 10 * GB, policy, (seed, seek, None)).mib_per_s());
        let at_once = mean(seeds, |seed| went(&endless, 10 * GB, policy, (seed, seek, Some(SHARES_S))).mib_per_s());
        println!(
            "fig7, seeks {seek} x, {policy}: {to_the_end:.2} MiB/s to the end, {at_once:.2} MiB/s while all are there"
        );
    }
}

fn main() {
    let seeds = if std::env::args().any(|argument| argument == "--quick") { 2 } else { 6 };
    fig8(seeds);
    fig2(seeds);
    for seek in [0.5, 1.0, 2.0, 4.0] {
        fig7(seeds, seek);
    }
}
