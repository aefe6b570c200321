//! Against what queueing theory knows exactly.

use proptest::prelude::*;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Op, OpProfile, Profile, Tier};
use stripewise_simulate::{ClosedLoop, Queue, SimulatedAccess, SimulatedStep, Startup, System, TierDevice, run};

/// SplitMix64: the loads are the same everywhere.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Servers without startup: a byte takes a microsecond, so the load's sizes are the service times.
fn servers(count: u16) -> Cluster {
    let op = OpProfile { startup_min_s: 0.0, startup_max_s: 0.0, transfer_s_per_byte: 1e-6, head: None };
    let profile = Profile { read: op, write: op, network_s_per_byte: 0.0 };
    let servers = (0..count).map(ServerId).collect();
    Cluster {
        tiers: vec![Tier { name: "t".into(), servers, profile, capacity_bytes: None, in_turn: false, at_once: 1 }],
        meta: None,
    }
}

/// File `i` is on server `i` alone.
fn one_each(count: u16) -> Vec<Layout> {
    (0..count).map(|server| Layout::striped([ServerId(server)], 1 << 40).unwrap()).collect()
}

fn visit(file: u32, service_s: f64, think_s: f64) -> SimulatedStep {
    SimulatedStep::Access(SimulatedAccess {
        file,
        offset: 0,
        size: (service_s * 1e6).round() as u64,
        op: Op::Read,
        think_s,
    })
}

#[test]
fn machine_repairman() {
    // Exponential think times of 30 ms, exponential services of 10 ms: X = (1 - P0) / S.
    let (think_s, service_s) = (0.030, 0.010);
    for (seed, n) in [(1, 1), (2, 3), (3, 5), (4, 10)] {
        let mut random = Random(seed);
        let each = 120_000 / n;
        let mut steps =
            || (0..each).map(|_| visit(0, random.exponential(service_s), random.exponential(think_s))).collect();
        let workload = ClosedLoop { processes: (0..n).map(|_| steps()).collect() };
        let report = run(&servers(1), &one_each(1), &workload, &System::default(), 1).unwrap();
        let found = report.requests as f64 / report.outcome.makespan_s;
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 0..n {
            term *= (n - k) as f64 * service_s / think_s;
            sum += term;
        }
        let exact = (1.0 - 1.0 / sum) / service_s;
        assert!((found / exact - 1.0).abs() < 0.015, "{n} processes: {found} a second instead of {exact}");
        // Little's law: those that do not think are at the server.
        let response_s = report.outcome.latency.mean_s;
        assert!((response_s - (n as f64 / exact - think_s)).abs() < 0.03 * response_s + 1e-4, "{n}: {response_s}");
    }
}

#[test]
fn two_stations_have_the_value_of_mean_value_analysis() {
    // Each of n processes is served 8 ms at one station, then 5 ms at the other (exponential), and so on.
    let demands = [0.008, 0.005];
    for n in [1_usize, 2, 6] {
        let mut random = Random(n as u64);
        let mut steps = || -> Vec<SimulatedStep> {
            (0..60_000 / n)
                .flat_map(|_| [0, 1])
                .map(|at| visit(at, random.exponential(demands[at as usize]), 0.0))
                .collect()
        };
        let workload = ClosedLoop { processes: (0..n).map(|_| steps()).collect() };
        let report = run(&servers(2), &one_each(2), &workload, &System::default(), 1).unwrap();
        let found = report.requests as f64 / 2.0 / report.outcome.makespan_s;
        let (mut queues, mut exact) = ([0.0, 0.0], 0.0);
        for population in 1..=n {
            let residence = [demands[0] * (1.0 + queues[0]), demands[1] * (1.0 + queues[1])];
            exact = population as f64 / (residence[0] + residence[1]);
            queues = [exact * residence[0], exact * residence[1]];
        }
        assert!((found / exact - 1.0).abs() < 0.015, "{n} processes: {found} a second instead of {exact}");
    }
}

#[test]
fn many_thinkers_and_a_fixed_service_are_nearly_m_d_1() {
    // 4000 processes that think 4000/0.7 services long on average make Poisson arrivals of load 0.7 or nearly so.
    let (n, service_s, load) = (4000, 0.001, 0.7);
    let think_s = n as f64 * service_s / load;
    let mut random = Random(7);
    let mut steps = || (0..60).map(|_| visit(0, service_s, random.exponential(think_s))).collect();
    let workload = ClosedLoop { processes: (0..n).map(|_| steps()).collect() };
    let report = run(&servers(1), &one_each(1), &workload, &System { bins: 256, ..System::default() }, 1).unwrap();
    // While all of them are at it: the load falls when the first have ended, so only the middle of the run counts.
    let bins = &report.timeline.unwrap().servers[0];
    let (mut queue, mut busy, mut count) = (0.0, 0.0, 0.0);
    for bin in &bins[bins.len() / 20..bins.len() / 3] {
        (queue, busy, count) = (queue + bin.queue, busy + bin.busy, count + 1.0);
    }
    let (queue, load) = (queue / count, busy / count);
    let exact = load + load * load / (2.0 * (1.0 - load));
    assert!((load - 0.7).abs() < 0.02, "{load}");
    assert!((queue / exact - 1.0).abs() < 0.05, "{queue} there on average instead of {exact}");
}

proptest! {
    /// Closed loops: X(n) <= min(n / (Z + D), 1 / D) in the long run, and never worse than one after the other. A
    /// single server never idles while a process waits, so its makespan is that of its work plus at most the thinking
    /// of one.
    #[test]
    fn asymptotic_bounds_hold_and_no_work_waits_for_an_idle_server(
        lists in prop::collection::vec(prop::collection::vec((1_u64..50, 0_u64..200), 1..30), 1..8),
        elevator in any::<bool>(),
    ) {
        let processes = lists.iter().enumerate().map(|(process, list)| {
            list.iter().enumerate().map(|(number, &(size, think_us))| SimulatedStep::Access(SimulatedAccess {
                file: 0,
                offset: (process as u64 * 7919 + number as u64 * 104_729) % 5000,
                size,
                op: Op::Read,
                think_s: think_us as f64 * 1e-6,
            })).collect()
        }).collect();
        let workload = ClosedLoop { processes };
        let queue = if elevator { Queue::Elevator } else { Queue::Fifo };
        let system = System { devices: vec![TierDevice { queue, startup: Startup::Drawn }], ..System::default() };
        let report = run(&servers(1), &one_each(1), &workload, &system, 1).unwrap();
        let makespan_us = report.outcome.makespan_s * 1e6;
        let services: u64 = lists.iter().flatten().map(|step| step.0).sum();
        let alone = lists.iter().map(|list| list.iter().map(|step| step.0 + step.1).sum::<u64>()).max().unwrap();
        let thinks = lists.iter().map(|list| list.iter().map(|step| step.1).sum::<u64>()).max().unwrap();
        prop_assert!(makespan_us >= services.max(alone) as f64 - 1e-3);
        prop_assert!(makespan_us <= (services + thinks) as f64 + 1e-3);
        prop_assert!((report.outcome.servers[0].busy_s * 1e6 - services as f64).abs() < 1e-3);
    }
}
