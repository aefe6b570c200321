//! Simulations whose outcome can be worked out on paper, and a second implementation that keeps real queues.

use proptest::prelude::*;
use std::collections::VecDeque;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Cluster, Head, Op, OpProfile, Profile, Request, Tier};
use stripewise_simulate::{
    ClosedLoop, Network, SimulateError, SimulatedAccess, SimulatedStep, SimulationOptions, simulate,
};

/// Servers with fixed startup: (startup s, seconds per byte, network seconds per byte), one tier each.
fn cluster(servers: &[(f64, f64, f64)]) -> Cluster {
    let tiers = servers
        .iter()
        .enumerate()
        .map(|(index, &(startup, beta, network))| {
            let op =
                OpProfile { startup_min_s: startup, startup_max_s: startup, transfer_s_per_byte: beta, head: None };
            Tier {
                name: format!("t{index}"),
                servers: vec![ServerId(index as u16)],
                profile: Profile { read: op, write: op, network_s_per_byte: network },
                capacity_bytes: None,
                in_turn: false,
                at_once: 1,
            }
        })
        .collect();
    Cluster { tiers, meta: None }
}

fn layout(widths: &[u64]) -> Layout {
    let round = widths.iter().enumerate().filter(|(_, w)| **w > 0);
    Layout::new([(0, round.map(|(i, &width_bytes)| Stripe { server: ServerId(i as u16), width_bytes }).collect())])
        .unwrap()
}

fn access(op: Op, offset: u64, size: u64) -> SimulatedStep {
    SimulatedStep::Access(SimulatedAccess { file: 0, offset, size, op, think_s: 0.0 })
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a} is not {b}");
}

#[test]
fn one_request_takes_its_slowest_sub_request() {
    // Server 0: 1 + 4*0.5 = 3 s; server 1: 2 + 6*0.25 = 3.5 s.
    let cluster = cluster(&[(1.0, 0.5, 0.0), (2.0, 0.25, 0.0)]);
    let workload = ClosedLoop { processes: vec![vec![access(Op::Read, 0, 10)]] };
    let outcome = simulate(&cluster, &[layout(&[4, 6])], &workload, &SimulationOptions::default()).unwrap();
    close(outcome.makespan_s, 3.5);
    close(outcome.throughput(), 10.0 / 3.5);
    close(outcome.servers[0].busy_s, 3.0);
    close(outcome.servers[1].busy_s, 3.5);
    assert_eq!((outcome.servers[0].bytes, outcome.servers[1].bytes), (4, 6));
    close(outcome.latency.p99_s, 3.5);
}

#[test]
fn servers_that_are_asked_in_turn_serve_one_after_the_other_beside_those_asked_at_once() {
    // 3 s, 3.5 s and 4 s: the first two follow each other, and the third has ended by then.
    let mut cluster = cluster(&[(1.0, 0.5, 0.0), (2.0, 0.25, 0.0), (4.0, 0.0, 0.0)]);
    cluster.tiers[..2].iter_mut().for_each(|tier| tier.in_turn = true);
    for op in [Op::Read, Op::Write] {
        let workload = ClosedLoop { processes: vec![vec![access(op, 0, 11), access(op, 10, 1)]] };
        let outcome = simulate(&cluster, &[layout(&[4, 6, 1])], &workload, &SimulationOptions::default()).unwrap();
        close(outcome.makespan_s, 6.5 + 4.0);
        close(outcome.servers[1].busy_s, 3.5);
    }
    // Two processes: the second one's first part waits 3 s, and then has the servers as the first one leaves them.
    let processes = vec![vec![access(Op::Read, 0, 10)], vec![access(Op::Read, 0, 10)]];
    let both = simulate(&cluster, &[layout(&[4, 6, 1])], &ClosedLoop { processes }, &SimulationOptions::default());
    close(both.unwrap().makespan_s, 6.5 + 3.5);
}

#[test]
fn a_head_moves_only_where_a_request_does_not_go_on() {
    let mut cluster = cluster(&[(1.0, 0.5, 0.0)]);
    cluster.tiers[0].profile.read.head = Some(Head { sequential_startup_s: 0.25, ahead_bytes: 0 });
    let time_s = |processes: Vec<Vec<SimulatedStep>>| {
        let workload = ClosedLoop { processes };
        simulate(&cluster, &[layout(&[4])], &workload, &SimulationOptions::default()).unwrap().makespan_s
    };
    // A stream: one startup of 1 s, three of 0.25 s, 16 bytes.
    close(time_s(vec![(0..4).map(|i| access(Op::Read, 4 * i, 4)).collect()]), 1.0 + 3.0 * 0.25 + 8.0);
    // Backwards: the head moves each time.
    close(time_s(vec![(0..4).map(|i| access(Op::Read, 4 * (3 - i), 4)).collect()]), 4.0 + 8.0);
    // Two streams in turn, far apart: the head goes from one to the other.
    let stream = |from: u64| (0..4).map(|i| access(Op::Read, from + 4 * i, 4)).collect::<Vec<_>>();
    close(time_s(vec![stream(0), stream(1000)]), 8.0 + 16.0);
    // Three processes with every third block: what waits is gathered, and goes on where the last one ended.
    let every_third = |at: u64| {
        // One after the other, so that no two come at one time.
        let begin = |i: u64| if i == 0 { at as f64 * 0.01 } else { 0.0 };
        let (size, op) = (4, Op::Read);
        let block = |i: u64| SimulatedAccess { file: 0, offset: 4 * (3 * i + at), size, op, think_s: begin(i) };
        (0..4).map(|i| SimulatedStep::Access(block(i))).collect::<Vec<_>>()
    };
    close(time_s((0..3).map(every_third).collect()), 1.0 + 11.0 * 0.25 + 24.0);
}

#[test]
fn two_processes_queue_first_come_first_served() {
    // Both use server 0 alone: 1 + 4*0.5 = 3 s each, the second waits 3 s; then the first one goes again.
    let cluster = cluster(&[(1.0, 0.5, 0.0)]);
    let workload = ClosedLoop {
        processes: vec![vec![access(Op::Read, 0, 4), access(Op::Write, 4, 4)], vec![access(Op::Read, 8, 4)]],
    };
    let outcome = simulate(&cluster, &[layout(&[4])], &workload, &SimulationOptions::default()).unwrap();
    close(outcome.makespan_s, 9.0);
    close(outcome.servers[0].waiting_s, 3.0 + 3.0);
    close(outcome.latency.mean_s, (3.0 + 6.0 + 6.0) / 3.0);
    assert_eq!((outcome.read_bytes, outcome.written_bytes), (8, 4));
}

#[test]
fn think_time_and_barriers_hold_processes_back() {
    // Process 0: 2 s, barrier; process 1: thinks 4 s, 2 s, barrier at 6 s; then both want the server: 8 and 10 s.
    let cluster = cluster(&[(1.0, 0.25, 0.0)]);
    let late = SimulatedStep::Access(SimulatedAccess { file: 0, offset: 0, size: 4, op: Op::Read, think_s: 4.0 });
    let r = access(Op::Read, 0, 4);
    let workload = ClosedLoop {
        processes: vec![vec![r, SimulatedStep::Barrier, r], vec![late, SimulatedStep::Barrier, r], vec![r]],
    };
    let outcome = simulate(&cluster, &[layout(&[4])], &workload, &SimulationOptions::default()).unwrap();
    // Process 2 has ended at 4 s and holds no other.
    assert_eq!(outcome.barriers_s, vec![6.0]);
    close(outcome.makespan_s, 10.0);
}

#[test]
fn a_barrier_opens_when_the_last_other_process_ends() {
    let cluster = cluster(&[(1.0, 0.0, 0.0)]);
    let r = access(Op::Read, 0, 4);
    let workload = ClosedLoop { processes: vec![vec![SimulatedStep::Barrier, r], vec![r]] };
    let outcome = simulate(&cluster, &[layout(&[4])], &workload, &SimulationOptions::default()).unwrap();
    assert_eq!(outcome.barriers_s, vec![1.0]);
    close(outcome.makespan_s, 2.0);
}

#[test]
fn network_time_is_on_the_link_or_in_beta() {
    // Device 1 + 4*0.25 = 2 s, link 4*0.5 = 2 s. Two processes, reads: device 2, 4; link 4, 6.
    let cluster = cluster(&[(1.0, 0.25, 0.5)]);
    for op in [Op::Read, Op::Write] {
        let workload = ClosedLoop { processes: vec![vec![access(op, 0, 4)], vec![access(op, 0, 4)]] };
        let run =
            |network| simulate(&cluster, &[layout(&[4])], &workload, &SimulationOptions { seed: 0, network }).unwrap();
        close(run(Network::Link).makespan_s, 6.0);
        close(run(Network::InBeta).makespan_s, 8.0);
    }
}

#[test]
fn a_read_passes_a_write_that_is_still_on_the_link() {
    // The write reaches the device at 2 s; the read, issued at the same time, has it from 0 to 2 s.
    let cluster = cluster(&[(1.0, 0.25, 0.5)]);
    let workload = ClosedLoop { processes: vec![vec![access(Op::Write, 0, 4)], vec![access(Op::Read, 0, 4)]] };
    let outcome =
        simulate(&cluster, &[layout(&[4])], &workload, &SimulationOptions { seed: 0, network: Network::Link }).unwrap();
    close(outcome.makespan_s, 4.0);
    close(outcome.servers[0].waiting_s, 0.0);
}

#[test]
fn seeds_repeat_and_startups_stay_in_their_interval() {
    let op = OpProfile { startup_min_s: 0.004, startup_max_s: 0.012, transfer_s_per_byte: 0.0, head: None };
    let tier = Tier {
        name: "hdd".into(),
        servers: vec![ServerId(0)],
        profile: Profile { read: op, write: op, network_s_per_byte: 0.0 },
        capacity_bytes: None,
        in_turn: false,
        at_once: 1,
    };
    let cluster = Cluster { tiers: vec![tier], meta: None };
    let workload = ClosedLoop { processes: vec![vec![access(Op::Read, 0, 1); 10_000]] };
    let run = |seed| {
        simulate(&cluster, &[layout(&[1])], &workload, &SimulationOptions { seed, network: Network::InBeta }).unwrap()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).makespan_s, run(6).makespan_s);
    close(run(5).makespan_s, run(5).servers[0].busy_s);
    assert!((run(5).latency.mean_s - 0.008).abs() < 1e-4);
    assert!(run(5).latency.max_s < 0.012);
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let cluster = cluster(&[(1.0, 0.0, 0.0)]);
    let run = |layouts: &[Layout], step| {
        simulate(&cluster, layouts, &ClosedLoop { processes: vec![vec![step]] }, &SimulationOptions::default())
            .unwrap_err()
    };
    let read = access(Op::Read, 0, 1);
    assert_eq!(run(&[layout(&[1, 1])], read), SimulateError::UnknownServer { file: 0, server: ServerId(1) });
    let meta = Layout::striped([ServerId::META], 64).unwrap();
    assert_eq!(run(&[meta], read), SimulateError::UnknownServer { file: 0, server: ServerId::META });
    assert_eq!(run(&[], read), SimulateError::NoLayout { process: 0, file: 0, layouts: 0 });
    let far = access(Op::Read, 1 << 63, 1);
    assert_eq!(run(&[layout(&[1])], far), SimulateError::BeyondEnd { process: 0, offset: 1 << 63, size: 1 });
    let think = SimulatedStep::Access(SimulatedAccess { file: 0, offset: 0, size: 1, op: Op::Read, think_s: -1.0 });
    assert_eq!(run(&[layout(&[1])], think), SimulateError::Think { process: 0, think_s: -1.0 });
}

/// The same system the slow way: explicit queues, time advanced to the next completion or issue, whole seconds.
fn reference(cluster: &Cluster, layout: &Layout, lists: &[Vec<(u64, u64)>]) -> u64 {
    let n = cluster.tiers.len();
    let service = |server: usize, bytes: u64| {
        let op = &cluster.tiers[server].profile.read;
        op.startup_min_s as u64 + bytes * op.transfer_s_per_byte as u64
    };
    let mut queues: Vec<VecDeque<(usize, u64)>> = vec![VecDeque::new(); n];
    let mut outstanding = vec![0; lists.len()];
    let mut next = vec![0; lists.len()];
    // Processes in the order in which they became ready.
    let mut ready: VecDeque<usize> = (0..lists.len()).collect();
    let mut now = 0;
    loop {
        while let Some(process) = ready.pop_front() {
            if let Some(&(offset, size)) = lists[process].get(next[process]) {
                next[process] += 1;
                for sub in layout.split(offset, size) {
                    let server = sub.server.index();
                    queues[server].push_back((process, service(server, sub.len)));
                    outstanding[process] += 1;
                }
            }
        }
        let Some(step) = queues.iter().filter_map(|queue| queue.front().map(|job| job.1)).min() else { return now };
        now += step;
        for queue in &mut queues {
            if let Some(job) = queue.front_mut() {
                job.1 -= step;
                if job.1 == 0 {
                    let (process, _) = queue.pop_front().unwrap();
                    outstanding[process] -= 1;
                    if outstanding[process] == 0 {
                        ready.push_back(process);
                    }
                }
            }
        }
    }
}

proptest! {
    /// A single process cannot tie with itself, so the order of ties plays no part and both must agree exactly.
    #[test]
    fn agrees_with_explicit_queues_for_one_process(
        servers in prop::collection::vec((1_u64..9, 1_u64..5, 1_u64..20), 1..5),
        list in prop::collection::vec((0_u64..500, 1_u64..100), 1..40),
    ) {
        let cluster = cluster(&servers.iter().map(|s| (s.0 as f64, s.1 as f64, 0.0)).collect::<Vec<_>>());
        let layout = layout(&servers.iter().map(|s| s.2).collect::<Vec<_>>());
        let steps = list.iter().map(|&(offset, size)| access(Op::Read, offset, size)).collect();
        let outcome = simulate(&cluster, std::slice::from_ref(&layout), &ClosedLoop { processes: vec![steps] },
            &SimulationOptions::default()).unwrap();
        prop_assert_eq!(outcome.makespan_s as u64, reference(&cluster, &layout, &[list]));
    }

    /// One server, any number of processes: ties change which goes first, never the makespan.
    #[test]
    fn agrees_with_explicit_queues_on_one_server(
        startup in 1_u64..9, beta in 1_u64..5,
        lists in prop::collection::vec(prop::collection::vec((0_u64..500, 1_u64..100), 1..10), 1..6),
    ) {
        let cluster = cluster(&[(startup as f64, beta as f64, 0.0)]);
        let layout = layout(&[7]);
        let processes = lists
            .iter()
            .map(|list| list.iter().map(|&(offset, size)| access(Op::Read, offset, size)).collect())
            .collect();
        let outcome = simulate(&cluster, std::slice::from_ref(&layout), &ClosedLoop { processes },
            &SimulationOptions::default()).unwrap();
        prop_assert_eq!(outcome.makespan_s as u64, reference(&cluster, &layout, &lists));
    }

    /// Bounds that hold for every workload: no server is busy longer than the makespan, nothing is lost.
    #[test]
    fn no_server_is_busy_longer_than_the_run(
        servers in prop::collection::vec((1_u64..9, 1_u64..5, 1_u64..20), 1..5),
        lists in prop::collection::vec(prop::collection::vec((0_u64..500, 0_u64..100), 0..20), 1..6),
        link in any::<bool>(), writes in any::<bool>(),
    ) {
        let cluster = cluster(&servers.iter().map(|s| (s.0 as f64, s.1 as f64, 0.5)).collect::<Vec<_>>());
        let layout = layout(&servers.iter().map(|s| s.2).collect::<Vec<_>>());
        let op = if writes { Op::Write } else { Op::Read };
        let processes =
            lists.iter().map(|list| list.iter().map(|&(o, s)| access(op, o, s)).collect()).collect();
        let options = SimulationOptions { seed: 1, network: if link { Network::Link } else { Network::InBeta } };
        let outcome = simulate(&cluster, std::slice::from_ref(&layout), &ClosedLoop { processes }, &options).unwrap();
        let bytes: u64 = lists.iter().flatten().map(|r| r.1).sum();
        prop_assert_eq!(outcome.read_bytes + outcome.written_bytes, bytes);
        prop_assert_eq!(outcome.servers.iter().map(|s| s.bytes).sum::<u64>(), bytes);
        for server in &outcome.servers {
            prop_assert!(server.busy_s <= outcome.makespan_s + 1e-9);
            prop_assert!(server.link_in_busy_s + server.link_out_busy_s <= outcome.makespan_s + 1e-9);
        }
    }
}

#[test]
fn replays_a_trace_by_process() {
    let cluster = cluster(&[(1.0, 0.25, 0.0)]);
    let request =
        |process, start_s| Request { offset: 0, size: 4, op: Op::Read, process, start_s, end_s: start_s + 1.0 };
    let requests = [request(3, 0.0), request(3, 1.0), request(8, 0.5)];
    let workload = ClosedLoop::replay(&[&requests], &[], false);
    let outcome = simulate(&cluster, &[layout(&[4])], &workload, &SimulationOptions::default()).unwrap();
    close(outcome.makespan_s, 6.0);
    assert_eq!(outcome.servers[0].requests(), 3);
}
