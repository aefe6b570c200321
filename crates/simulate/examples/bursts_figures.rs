//! Prints what policies of turns make of programs that compute between bursts of requests: throughput and the worst slowdown,
//! means over seeds.
//!
//! `cargo run --release -p stripewise-simulate --example bursts_figures [-- --quick]`

use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Op, OpProfile, Profile, Tier};
use stripewise_simulate::{
    Joined, JoinedPart, Packed, ProgramRules, ProgramTurns, Queue, SeekCurve, SeekShape, SimulatedAccess,
    SimulatedStep, Startup, System, TierDevice, run_observed,
};

const REQUEST: u64 = 64 << 10;
const DISKS: u16 = 6;
/// All times of the disks, as in the measured programs.
const DILATION: f64 = 2.0;
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
        sequential_s: DILATION * 1e-4,
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

/// When each of the programs `which` ended, and MiB per second.
fn went(programs: &[Packed], which: &[u32], policy: &str, seed: u64) -> (Vec<f64>, f64) {
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
    (ends_s, report.outcome.throughput() / f64::from(1 << 20))
}

fn main() {
    let seeds = if std::env::args().any(|argument| argument == "--quick") { 2 } else { 12 };
    for (name, load) in LOADS {
        let programs: Vec<Packed> = load.iter().map(program).collect();
        let all: Vec<u32> = (0..programs.len() as u32).collect();
        let alone_s: Vec<f64> = all.iter().map(|&number| went(&programs, &[number], "none", 1).0[0]).collect();
        for policy in ["none", "even", "reuse-distance", "set-10", "opportunity"] {
            let (mut rate, mut worst) = (0.0, 0.0);
            for seed in 1..=seeds {
                let (ends_s, mib_per_s) = went(&programs, &all, policy, seed);
                rate += mib_per_s / seeds as f64;
                worst += ends_s.iter().zip(&alone_s).map(|(end, own)| end / own).fold(0.0, f64::max) / seeds as f64;
            }
            println!("{name}, {policy}: {rate:.2} MiB/s, worst slowdown {worst:.3}");
        }
    }
}
