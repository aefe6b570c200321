//! Prints what policies of turns make of programs that compute between bursts of requests: throughput and the worst slowdown,
//! means over seeds; and what no schedule can be better than.
//!
//! `cargo run --release -p stripewise-simulate --example bursts_figures [-- --quick]`

use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Op, OpProfile, Profile, Tier};
use stripewise_simulate::{
    Joined, JoinedPart, Packed, ProgramRules, ProgramTurns, Queue, SeekCurve, SeekShape, ServerUse, SimulatedAccess,
    SimulatedStep, Startup, System, TierDevice, run_observed,
};

const REQUEST: u64 = 64 << 10;
const DISKS: u16 = 6;
/// All times of the disks, as in the measured programs.
const DILATION: f64 = 2.0;
/// A request behind the one before.
const SEQUENTIAL_S: f64 = DILATION * 1e-4;
const APART: u64 = 10_000_000_000;

/// Ranks, requests of each, requests of a burst (0: no pauses), and seconds of a pause.
type Bursts = (u64, u64, u64, f64);

const LOADS: [(&str, &[Bursts]); 5] = [
    ("long pauses", &[(5, 450, 8, 0.6), (5, 450, 32, 1.0), (5, 450, 75, 2.0)]),
    ("short pauses", &[(5, 1200, 8, 0.05), (5, 1200, 32, 0.2), (5, 1200, 100, 0.5)]),
    ("short bursts beside two without pauses", &[(5, 2400, 0, 0.0), (5, 2400, 0, 0.0), (2, 160, 4, 0.5)]),
    (
        "three of short bursts beside one without",
        &[(5, 4000, 0, 0.0), (2, 180, 4, 0.3), (2, 128, 4, 0.5), (2, 100, 4, 0.7)],
    ),
    (
        "six programs",
        &[
            (5, 600, 8, 0.1),
            (5, 600, 16, 0.2),
            (5, 600, 32, 0.4),
            (5, 600, 64, 0.8),
            (5, 600, 100, 1.6),
            (5, 600, 4, 0.05),
        ],
    ),
];

fn program(&(ranks, requests, burst, pause_s): &Bursts) -> Packed {
    let mut program = Packed::new();
    for rank in 0..ranks {
        program.push((0..requests).flat_map(|number| {
            let pauses = burst > 0 && number > 0 && number % burst == 0;
            let (offset, think_s) = ((number * ranks + rank) * REQUEST, if pauses { pause_s } else { 0.0 });
            let access = SimulatedAccess { file: 0, offset, size: REQUEST, op: Op::Read, think_s };
            [SimulatedStep::Access(access), SimulatedStep::Barrier]
        }));
    }
    program
}

/// The disks of `python -m benches iorch-bursts`.
fn disks() -> (Cluster, TierDevice) {
    let op = OpProfile {
        startup_min_s: DILATION * 1e-3,
        startup_max_s: DILATION * 25e-3,
        transfer_s_per_byte: DILATION / 80e6,
        head: None,
    };
    let profile = Profile { read: op, write: op, network_s_per_byte: 0.0 };
    let servers = (0..DISKS).map(ServerId).collect();
    let tier = Tier { name: "hdd".into(), servers, profile, capacity_bytes: None, in_turn: false, at_once: 1 };
    let curve = SeekCurve {
        sequential_s: SEQUENTIAL_S,
        settle_s: DILATION * 1e-3,
        full_stroke_s: DILATION * 16.7e-3,
        rotation_s: DILATION * 8.3e-3,
        stroke_bytes: 500_000_000_000,
        shape: SeekShape::SquareRoot,
    };
    let queue = Queue::Anticipatory { wait_s: DILATION * 6.7e-3, near_bytes: 1 << 20 };
    (
        Cluster { tiers: vec![tier], meta: None },
        TierDevice { queue, startup: Startup::Seek { read: curve, write: curve } },
    )
}

/// What a run has shown.
struct Run {
    /// When each program ended.
    ends_s: Vec<f64>,
    mib_per_s: f64,
    /// By disk, how long its requests take where its head never moves: no order of them takes less.
    least_s: Vec<f64>,
}

/// The least worst slowdown that any schedule can have: the programs that take at most `t` alone have all of their requests done by the
/// worst slowdown times `t`, and a disk has one at a time.
fn least_slowdown(alone: &[Run]) -> f64 {
    let bound = |last: &Run| {
        let among = |one: &&Run| one.ends_s[0] <= last.ends_s[0];
        let of_disk = |disk: usize| alone.iter().filter(among).map(|one| one.least_s[disk]).sum::<f64>();
        (0..last.least_s.len()).map(of_disk).fold(0.0, f64::max) / last.ends_s[0]
    };
    alone.iter().map(bound).fold(1.0, f64::max)
}

/// The programs `which` at once.
fn went(programs: &[Packed], which: &[u32], policy: &str, seed: u64) -> Run {
    let (cluster, device) = disks();
    let layouts = vec![Layout::striped((0..DISKS).map(ServerId), REQUEST).expect("a layout"); programs.len()];
    let part = |number: &u32| JoinedPart {
        steps: &programs[*number as usize],
        files: std::slice::from_ref(&which[which.iter().position(|of| of == number).expect("one of them")]),
        begin_s: 0.0,
    };
    let joined = Joined::of(which.iter().map(part).collect());
    let program_of = joined.program_of();
    let turns = ProgramTurns {
        policy: policy.into(),
        window_s: 0.5 * DILATION,
        program_of: program_of.clone(),
        names: which.iter().map(ToString::to_string).collect(),
        rules: ProgramRules::default(),
    };
    let file_starts = Some((0..programs.len() as u64).map(|file| file * APART).collect());
    let system = System { devices: vec![device], file_starts, turns: Some(turns), ..System::default() };
    let mut ends_s = vec![0.0; which.len()];
    let observe = |process: u32, _: &SimulatedAccess, _: f64, end_s: f64| {
        ends_s[program_of[process as usize] as usize] = end_s;
    };
    let report = run_observed(&cluster, &layouts, &joined, &system, seed, observe).expect("a run");
    let read = cluster.tiers[0].profile.read;
    let least = |of: &ServerUse| of.requests() as f64 * SEQUENTIAL_S + of.bytes as f64 * read.transfer_s_per_byte;
    let least_s = report.outcome.servers.iter().map(least).collect();
    Run { ends_s, mib_per_s: report.outcome.throughput() / f64::from(1 << 20), least_s }
}

fn main() {
    let seeds = if std::env::args().any(|argument| argument == "--quick") { 2 } else { 12 };
    for (name, load) in LOADS {
        let programs: Vec<Packed> = load.iter().map(program).collect();
        let all: Vec<u32> = (0..programs.len() as u32).collect();
        let alone: Vec<Run> = all.iter().map(|&number| went(&programs, &[number], "none", 1)).collect();
        println!("{name}, no schedule has a worst slowdown below {:.3}", least_slowdown(&alone));
        for policy in ["none", "even", "reuse-distance", "set-10", "opportunity"] {
            let (mut rate, mut worst) = (0.0, 0.0);
            for seed in 1..=seeds {
                let run = went(&programs, &all, policy, seed);
                rate += run.mib_per_s / seeds as f64;
                let slowdowns = run.ends_s.iter().zip(&alone).map(|(end, own)| end / own.ends_s[0]);
                worst += slowdowns.fold(0.0, f64::max) / seeds as f64;
            }
            println!("{name}, {policy}: {rate:.2} MiB/s, worst slowdown {worst:.3}");
        }
    }
}
