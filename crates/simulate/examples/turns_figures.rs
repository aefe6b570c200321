//! Prints how long the simulator takes for a minute of 1,000 programs on 10,000 disks, by policy of turns.
//!
//! `cargo run --release -p stripewise-simulate --example turns_figures [-- --quick]`

use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Queue, presets};
use stripewise_simulate::{
    ProgramRules, ProgramTurns, SimulatedAccess, SimulatedStep, Startup, StepProgram, System, TierDevice, run,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Processes of a program.
const RANKS: u32 = 5;

/// One load of all programs.
struct Load {
    /// Seconds that a process computes before each request.
    think_s: f64,
    /// Servers of each program's file.
    width: u16,
    /// From one of these servers to the next.
    step: u16,
    /// Of each process.
    requests: u64,
}

const LOADS: [Load; 2] = [
    Load { think_s: 0.25, width: 100, step: 7, requests: 200 },
    Load { think_s: 0.1, width: 10_000, step: 1, requests: 200 },
];

/// Programs whose processes read a file of the program in order, every fifth MiB each.
struct Readers {
    programs: u32,
    requests: u64,
    think_s: f64,
}

impl StepProgram for Readers {
    /// Process and request.
    type Cursor = (u32, u64);

    fn processes(&self) -> usize {
        (self.programs * RANKS) as usize
    }

    fn start(&self, process: u32, _: u64) -> (u32, u64) {
        (process, 0)
    }

    fn next(&self, (process, request): &mut (u32, u64)) -> Option<SimulatedStep> {
        let (file, rank) = (*process / RANKS, u64::from(*process % RANKS));
        // Programs are not in step.
        let offset = (*request * u64::from(RANKS) + rank) * MIB;
        *request += 1;
        let think_s = self.think_s * (0.75 + 0.5 * f64::from(file % 97) / 97.0);
        let access = SimulatedAccess { file, offset, size: MIB, op: stripewise_model::Op::Read, think_s };
        (*request <= self.requests).then_some(SimulatedStep::Access(access))
    }

    fn extents(&self, files: usize) -> Vec<u64> {
        vec![0; files]
    }
}

fn disks(cluster: &Cluster, turns: ProgramTurns, files: u64) -> System {
    let hdd = cluster.tiers[0].profile;
    let startup = Startup::seek_within(&hdd.read, &hdd.write, 1 << 40);
    System {
        devices: vec![TierDevice { queue: Queue::Elevator, startup }],
        file_starts: Some((0..files).map(|file| file * ((1 << 40) / files)).collect()),
        turns: Some(turns),
        ..System::default()
    }
}

/// Processor time of this thread in seconds: what else runs on the machine does not count.
fn processor_s() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns: Option<f64> = statistics.split_whitespace().next().and_then(|first| first.parse().ok());
    ns.expect("the kernel counts processor time") * 1e-9
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (programs, servers, shorter) = if quick { (100, 1000, 5) } else { (1000, 10_000, 1) };
    LOADS.iter().for_each(|load| minutes(load, programs, servers, load.requests / shorter));
}

/// Prints a line for each policy.
fn minutes(load: &Load, programs: usize, servers: u16, requests: u64) {
    let cluster = presets::set_p(servers, 0, false);
    let width = load.width.min(servers);
    let striped = |program: usize| {
        let first = program as u16 * 61 % servers;
        let at = |number: u16| ServerId((first + number * load.step) % servers);
        Layout::striped((0..width).map(at), 64 * KIB).expect("a layout")
    };
    let layouts: Vec<Layout> = (0..programs).map(striped).collect();
    let names: Vec<String> = (0..programs).map(|number| format!("program-{number}")).collect();
    let program = Readers { programs: programs as u32, requests, think_s: load.think_s };
    for policy in ["none", "reuse-distance", "opportunity"] {
        let turns = ProgramTurns {
            policy: policy.into(),
            window_s: 0.5,
            program_of: (0..programs as u32 * RANKS).map(|process| process / RANKS).collect(),
            names: names.clone(),
            rules: ProgramRules::default(),
        };
        let began_s = processor_s();
        let report = run(&cluster, &layouts, &program, &disks(&cluster, turns, programs as u64), 1).expect("a run");
        let took_s = processor_s() - began_s;
        let simulated_s = report.outcome.makespan_s;
        println!(
            "{policy}: {:.1} s for a minute of {programs} programs, each on {width} of {servers} servers ({took_s:.1} s for \
             {simulated_s:.1} s, {} sub-requests, {} held requests, {:.0} MiB/s)",
            took_s * 60.0 / simulated_s,
            report.sub_requests,
            report.turns.iter().map(|turns| turns.held).sum::<u64>(),
            report.outcome.throughput() / MIB as f64,
        );
    }
}
