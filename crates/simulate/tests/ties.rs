//! Ties are fair: of processes that come at one time none is first more often than the others, and no server is asked first.

use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Cluster, Op, OpProfile, Profile, presets};
use stripewise_simulate::{
    ClosedLoop, Links, Network, ServerLink, SimulatedAccess, SimulatedStep, SimulationOptions, System, run_observed,
    simulate_observed,
};

const SIZE: u64 = 64 << 10;

/// Servers that all take the same time, whatever they are asked: each step of the processes ends in ties.
fn alike(servers: u16) -> Cluster {
    let op = OpProfile { startup_min_s: 1e-3, startup_max_s: 1e-3, transfer_s_per_byte: 1e-9, head: None };
    presets::cluster(&[("t", servers, Profile { read: op, write: op, network_s_per_byte: 1e-9 })])
}

fn access(block: u64, op: Op) -> SimulatedStep {
    SimulatedStep::Access(SimulatedAccess { file: 0, offset: block * SIZE, size: SIZE, op, think_s: 0.0 })
}

/// A way to simulate; what ended, as it ended: the process, the first byte, the second.
type Simulator = fn(&Cluster, &Layout, &ClosedLoop, u64) -> Vec<(u32, u64, f64)>;

fn quick(network: Network, of: (&Cluster, &Layout, &ClosedLoop), seed: u64) -> Vec<(u32, u64, f64)> {
    let mut ended = Vec::new();
    let note = |process: u32, access: &SimulatedAccess, _: f64, end_s: f64| ended.push((process, access.offset, end_s));
    let options = SimulationOptions { seed, network };
    simulate_observed(of.0, std::slice::from_ref(of.1), of.2, &options, note).unwrap();
    ended
}

fn whole(server: ServerLink, of: (&Cluster, &Layout, &ClosedLoop), seed: u64) -> Vec<(u32, u64, f64)> {
    let mut ended = Vec::new();
    let note = |process: u32, access: &SimulatedAccess, _: f64, end_s: f64| ended.push((process, access.offset, end_s));
    let system = System { links: Links { server, ..Links::default() }, ..System::default() };
    run_observed(of.0, std::slice::from_ref(of.1), of.2, &system, seed, note).unwrap();
    ended
}

const SIMULATORS: [(&str, Simulator); 4] = [
    ("quick", |a, b, c, seed| quick(Network::InBeta, (a, b, c), seed)),
    ("quick with links", |a, b, c, seed| quick(Network::Link, (a, b, c), seed)),
    ("whole", |a, b, c, seed| whole(ServerLink::InBeta, (a, b, c), seed)),
    ("whole with links", |a, b, c, seed| whole(ServerLink::OfProfile, (a, b, c), seed)),
];

/// How often each of `count` was counted is near the mean: within `share` of it.
fn fair(counts: &[u32], share: f64) -> bool {
    let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
    mean > 0.0 && counts.iter().all(|&count| (f64::from(count) / mean - 1.0).abs() < share)
}

#[test]
fn after_a_barrier_each_process_is_first_as_often_as_the_others() {
    let (processes, rounds) = (7_u64, 3000);
    let layout = Layout::striped([ServerId(0)], SIZE).unwrap();
    for op in [Op::Read, Op::Write] {
        let steps = |process: u64| (0..rounds).flat_map(move |_| [access(process, op), SimulatedStep::Barrier]);
        let workload = ClosedLoop { processes: (0..processes).map(|process| steps(process).collect()).collect() };
        for (name, simulate) in SIMULATORS {
            let ended = simulate(&alike(1), &layout, &workload, 3);
            let mut first = vec![0; processes as usize];
            let mut last = first.clone();
            for round in ended.chunks_exact(processes as usize) {
                first[round[0].0 as usize] += 1;
                last[round[processes as usize - 1].0 as usize] += 1;
            }
            assert!(fair(&first, 0.2) && fair(&last, 0.2), "{name}, {op:?}: first {first:?}, last {last:?}");
        }
    }
}

/// Servers of equal speed each serve a process, and all end together; the next requests meet on server 0.
#[test]
fn of_processes_that_two_servers_serve_neither_is_first() {
    let servers = 6;
    let round = (0..servers).map(|server| Stripe { server: ServerId(server), width_bytes: SIZE });
    let layout = Layout::new([(0, round.collect())]).unwrap();
    let rounds = 2000_u64;
    // In even steps each process is at its own server, in odd ones all are at server 0.
    let steps = |process: u64| {
        (0..rounds).flat_map(move |_| [access(process, Op::Read), access(0, Op::Read), SimulatedStep::Barrier])
    };
    let workload = ClosedLoop { processes: (0..u64::from(servers)).map(|process| steps(process).collect()).collect() };
    for (name, simulate) in [SIMULATORS[0], SIMULATORS[2]] {
        let ended = simulate(&alike(servers), &layout, &workload, 11);
        let mut first = vec![0; usize::from(servers)];
        for round in ended.chunks_exact(2 * usize::from(servers)) {
            first[round[usize::from(servers)].0 as usize] += 1;
        }
        assert!(fair(&first, 0.25), "{name}: {first:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_order_and_others_another() {
    let layout = Layout::striped((0..3).map(ServerId), SIZE).unwrap();
    let steps = |process: u64| (0..40).map(move |turn| access(5 * process + 3 * turn, Op::Write)).collect();
    let workload = ClosedLoop { processes: (0..8).map(steps).collect() };
    for (name, simulate) in SIMULATORS {
        let of = |seed| simulate(&alike(3), &layout, &workload, seed);
        assert_eq!(of(1), of(1), "{name}");
        let order = |seed| of(seed).into_iter().map(|ended| ended.0).collect::<Vec<_>>();
        assert_ne!(order(1), order(2), "{name}");
    }
}
