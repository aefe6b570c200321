//! Queues, seeks, links, metadata and communicators, worked out on paper.

use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Cluster, NameCosts, Op, OpProfile, Profile, Tier, presets};
use stripewise_simulate::{
    ClientLink, ClosedLoop, FileChoice, FilePart, Forwarding, Generated, Links, Metadata, MetadataOp, Network, Packed,
    Queue, SeekCurve, SeekShape, ServerLink, Service, SimulateError, SimulatedAccess, SimulatedStep, SimulationOptions,
    SimulationOutcome, SlotOrder, Startup, StepProgram, System, TierDevice, Together, repeat, run, run_observed,
    simulate,
};

/// Servers of a tier each: startup in seconds, seconds per byte, network seconds per byte.
fn cluster(servers: &[(f64, f64, f64)]) -> Cluster {
    let tiers = servers.iter().enumerate().map(|(index, &(startup, transfer_s_per_byte, network_s_per_byte))| {
        let op = OpProfile { startup_min_s: startup, startup_max_s: startup, transfer_s_per_byte, head: None };
        let profile = Profile { read: op, write: op, network_s_per_byte };
        Tier {
            name: format!("t{index}"),
            servers: vec![ServerId(index as u16)],
            profile,
            capacity_bytes: None,
            in_turn: false,
            at_once: 1,
        }
    });
    Cluster { tiers: tiers.collect(), meta: None }
}

fn layout(widths: &[u64]) -> Layout {
    let round = widths.iter().enumerate().map(|(i, &width_bytes)| Stripe { server: ServerId(i as u16), width_bytes });
    Layout::new([(0, round.collect())]).unwrap()
}

fn access(op: Op, offset: u64, size: u64, think_s: f64) -> SimulatedStep {
    SimulatedStep::Access(SimulatedAccess { file: 0, offset, size, op, think_s })
}

fn read(offset: u64, size: u64) -> SimulatedStep {
    access(Op::Read, offset, size, 0.0)
}

/// [`read`] at `number` nanoseconds: a step that no other comes with.
fn read_at(number: u32, offset: u64) -> SimulatedStep {
    access(Op::Read, offset, 1, f64::from(number) * 1e-9)
}

/// When each request ended, as (process, offset, seconds), in order.
fn ends(
    cluster: &Cluster,
    layouts: &[Layout],
    processes: Vec<Vec<SimulatedStep>>,
    system: &System,
) -> (Vec<(u32, u64, f64)>, f64) {
    let mut ended = Vec::new();
    let workload = ClosedLoop { processes };
    let note = |process, access: &SimulatedAccess, _, ended_s| ended.push((process, access.offset, ended_s));
    let report = run_observed(cluster, layouts, &workload, system, 1, note).unwrap();
    (ended, report.outcome.makespan_s)
}

fn with_queue(queue: Queue) -> System {
    System { devices: vec![TierDevice { queue, startup: Startup::Drawn }], ..System::default() }
}

#[test]
fn fifo_serves_in_order_of_arrival() {
    let processes = vec![vec![read(0, 1), read(5, 1)], vec![read_at(1, 30)], vec![read_at(2, 10)]];
    let (ended, _) = ends(&cluster(&[(1.0, 0.0, 0.0)]), &[layout(&[64])], processes, &with_queue(Queue::Fifo));
    assert_eq!(ended, [(0, 0, 1.0), (1, 30, 2.0), (2, 10, 3.0), (0, 5, 4.0)]);
}

#[test]
fn an_elevator_sweeps_upwards_and_lets_those_ahead_join() {
    // 0 is started at once. While it is served 30, 10 and 20 come; at its end 5, which is ahead, joins the sweep. What
    // begins at or behind the last start waits for the next sweep: 4, then the second read of 30.
    let processes = vec![
        vec![read(0, 1), read(5, 1), read(4, 1)],
        vec![read_at(1, 30), read(30, 1)],
        vec![read_at(2, 10)],
        vec![read_at(3, 20)],
    ];
    let (ended, _) = ends(&cluster(&[(1.0, 0.0, 0.0)]), &[layout(&[64])], processes, &with_queue(Queue::Elevator));
    let order: Vec<(u32, u64)> = ended.iter().map(|&(process, offset, _)| (process, offset)).collect();
    assert_eq!(order, [(0, 0), (0, 5), (2, 10), (3, 20), (1, 30), (0, 4), (1, 30)]);
    assert_eq!(ended.iter().map(|end| end.2).collect::<Vec<_>>(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
}

#[test]
fn equal_positions_are_served_in_order_of_arrival() {
    let processes = (0..5).map(|process| vec![read_at(process, if process == 0 { 0 } else { 7 })]).collect();
    let (ended, _) = ends(&cluster(&[(1.0, 0.0, 0.0)]), &[layout(&[64])], processes, &with_queue(Queue::Elevator));
    assert_eq!(ended.iter().map(|end| end.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

/// Process 0 reads 10 bytes three times, one after the other, thinking `think_s` between; process 1 reads far away.
fn two_streams(think_s: f64, queue: Queue) -> Vec<(u32, u64, f64)> {
    let near = vec![read(0, 10), access(Op::Read, 10, 10, think_s), access(Op::Read, 20, 10, think_s)];
    let far = vec![access(Op::Read, 1000, 10, 1e-9)];
    ends(&cluster(&[(1.0, 0.0, 0.0)]), &[layout(&[4096])], vec![near, far], &with_queue(queue)).0
}

#[test]
fn an_anticipatory_queue_waits_for_the_next_request_of_a_stream() {
    let wait = |wait_s| Queue::Anticipatory { wait_s, near_bytes: 5 };
    // The think time is within the wait: 1, 1.5+1, 3+1, and then, the stream having ended, at once the other.
    assert_eq!(two_streams(0.5, wait(0.5001)), [(0, 0, 1.0), (0, 10, 2.5), (0, 20, 4.0), (1, 1000, 5.0)]);
    // It is not: 1, wait until 1.2, the other until 2.2, then the wait for process 1 does not happen (it has ended).
    assert_eq!(two_streams(0.5, wait(0.2)), [(0, 0, 1.0), (1, 1000, 2.2), (0, 10, 3.2), (0, 20, 4.7)]);
    // An elevator does not wait at all.
    assert_eq!(two_streams(0.5, Queue::Elevator)[1], (1, 1000, 2.0));
    assert_eq!(two_streams(0.5, wait(0.0)), two_streams(0.5, Queue::Elevator));
}

#[test]
fn a_wait_ends_with_any_close_request() {
    // Process 1's request at 12 is within 5 bytes of the head at 10 and comes at 1.25; process 0 would come at 1.5.
    let processes = vec![
        vec![read(0, 10), access(Op::Read, 500, 10, 0.5)],
        vec![access(Op::Read, 12, 1, 1.25)],
        vec![access(Op::Read, 900, 1, 1.1)],
    ];
    let queue = Queue::Anticipatory { wait_s: 2.0, near_bytes: 5 };
    let (ended, _) = ends(&cluster(&[(1.0, 0.0, 0.0)]), &[layout(&[4096])], processes, &with_queue(queue));
    assert_eq!(ended, [(0, 0, 1.0), (1, 12, 2.25), (0, 500, 3.25), (2, 900, 4.25)]);
}

#[test]
fn seeks_grow_with_distance_and_sequential_ones_cost_nothing() {
    let curve = |shape| SeekCurve {
        sequential_s: 0.0,
        settle_s: 1.0,
        full_stroke_s: 5.0,
        stroke_bytes: 10_000,
        shape,
        rotation_s: 0.0,
    };
    let read_of = |offset| read(offset, 10);
    let run = |shape| {
        let (read, write) = (curve(shape), SeekCurve { settle_s: 2.0, ..curve(shape) });
        let device = TierDevice { queue: Queue::Fifo, startup: Startup::Seek { read, write } };
        let system = System { devices: vec![device], ..System::default() };
        // Sequential twice; then each is a quarter of the stroke away: 20 to 2520, 2530 to 30, 40 to 2540.
        let steps = vec![read_of(0), read_of(10), read_of(2520), read_of(30), access(Op::Write, 2540, 1, 0.0)];
        let (ended, _) = ends(&cluster(&[(9.0, 0.0, 0.0)]), &[layout(&[1 << 20])], vec![steps], &system);
        ended.iter().map(|end| end.2).collect::<Vec<_>>()
    };
    // Square root of a quarter: 1 + 4/2 = 3; the write 2 + 3/2. Linear: 1 + 4/4 = 2, the write 2 + 3/4.
    assert_eq!(run(SeekShape::SquareRoot), [0.0, 0.0, 3.0, 6.0, 9.5]);
    assert_eq!(run(SeekShape::Linear), [0.0, 0.0, 2.0, 4.0, 6.75]);
}

#[test]
fn the_turn_is_drawn_between_nothing_and_a_whole_one() {
    let op = OpProfile { startup_min_s: 0.004, startup_max_s: 0.012, transfer_s_per_byte: 0.0, head: None };
    let startup = Startup::seek_within(&op, &op, 1 << 30);
    let system = System { devices: vec![TierDevice { queue: Queue::Fifo, startup }], ..System::default() };
    // To and fro over the whole disk: 8 ms and half a turn of 4 ms on average.
    let steps: Vec<SimulatedStep> = (0..4000).map(|n| read(if n % 2 == 0 { (1 << 30) - 1 } else { 0 }, 1)).collect();
    let workload = ClosedLoop { processes: vec![steps] };
    let report = run(&cluster(&[(0.0, 0.0, 0.0)]), &[layout(&[1 << 40])], &workload, &system, 1).unwrap();
    assert!((report.outcome.latency.mean_s - 0.010).abs() < 1e-4, "{:?}", report.outcome.latency);
    assert!(report.outcome.latency.max_s < 0.012);
    assert!((report.queues[0].startup_s - report.outcome.servers[0].busy_s).abs() < 1e-6);
}

#[test]
fn files_are_assigned_one_after_the_other_or_where_they_are_said_to_be() {
    let curve = SeekCurve {
        sequential_s: 0.0,
        settle_s: 0.0,
        full_stroke_s: 1.0,
        stroke_bytes: 1000,
        shape: SeekShape::Linear,
        rotation_s: 0.0,
    };
    let device = TierDevice { queue: Queue::Fifo, startup: Startup::Seek { read: curve, write: curve } };
    let system = System { devices: vec![device, device], ..System::default() };
    let of =
        |file, offset, size| SimulatedStep::Access(SimulatedAccess { file, offset, size, op: Op::Read, think_s: 0.0 });
    // Each server has 60 bytes of file 0, so file 1 begins there: its first byte is 50 from the head at 10.
    let steps = vec![of(0, 0, 10), of(0, 110, 10), of(0, 0, 10), of(1, 0, 10)];
    let layouts = [layout(&[10, 10]), layout(&[10, 10])];
    let (ended, _) = ends(&cluster(&[(0.0, 0.0, 0.0), (0.0, 0.0, 0.0)]), &layouts, vec![steps.clone()], &system);
    // 0 (sequential), server 1 from 0 to 50: 0.05, server 0 from 10 back to 0: 0.01, from 10 to 60: 0.05.
    let expected = [0.0, 0.05, 0.06, 0.11];
    assert!(ended.iter().zip(expected).all(|(end, s)| (end.2 - s).abs() < 1e-9), "{ended:?}");
    let far = System { file_starts: Some(vec![0, 910]), ..system };
    let (ended, _) = ends(&cluster(&[(0.0, 0.0, 0.0), (0.0, 0.0, 0.0)]), &layouts, vec![steps], &far);
    assert!((ended[3].2 - 0.96).abs() < 1e-9, "{ended:?}");
}

fn linked(client: Option<(f64, u32)>, forwarding: Forwarding, latency_s: f64) -> System {
    let client = client.map(|(s_per_byte, processes_per_node)| ClientLink { s_per_byte, processes_per_node });
    System {
        links: Links { server: ServerLink::Rate { s_per_byte: 0.5 }, client, latency_s, forwarding },
        ..System::default()
    }
}

#[test]
fn two_servers_share_the_link_of_a_client() {
    // A request of 4 + 4 bytes: device 1 s, server link 2 s, client link 1 s each.
    let cluster = cluster(&[(1.0, 0.0, 0.0), (1.0, 0.0, 0.0)]);
    let run = |op, forwarding| {
        let steps = vec![vec![access(op, 0, 8, 0.0)]];
        ends(&cluster, &[layout(&[4, 4])], steps, &linked(Some((0.25, 1)), forwarding, 0.0)).1
    };
    // Reads, stored: 1, then both server links until 3, then the client link 4, 5.
    assert_eq!(run(Op::Read, Forwarding::StoreAndForward), 5.0);
    // Pipelined: both servers begin to send at 1; the client link is held by the first until 3, by the second till 4.
    assert_eq!(run(Op::Read, Forwarding::Pipelined), 4.0);
    // Writes, stored: client link 1, 2; server links 3, 4; devices 4, 5.
    assert_eq!(run(Op::Write, Forwarding::StoreAndForward), 5.0);
    // Pipelined: the second begins at 1; server links 0..2, 1..3; devices 3, 4.
    assert_eq!(run(Op::Write, Forwarding::Pipelined), 4.0);
}

#[test]
fn a_slow_client_link_holds_the_server_link_back_when_pipelined() {
    // Client link 8 s for 4 bytes: a pipelined server link is held until the client's is through, reads or writes.
    let cluster = cluster(&[(1.0, 0.0, 0.0)]);
    let run = |op| {
        ends(
            &cluster,
            &[layout(&[64])],
            vec![vec![access(op, 0, 4, 0.0)]],
            &linked(Some((2.0, 1)), Forwarding::Pipelined, 0.0),
        )
        .1
    };
    assert_eq!((run(Op::Read), run(Op::Write)), (9.0, 9.0));
}

#[test]
fn processes_of_a_node_share_its_link_and_directions_do_not() {
    let cluster = cluster(&[(0.0, 0.0, 0.0)]);
    let run = |per_node, other| {
        let steps = vec![vec![access(Op::Write, 0, 4, 0.0)], vec![access(other, 100, 4, 0.0)]];
        let system = System {
            links: Links {
                client: Some(ClientLink { s_per_byte: 1.0, processes_per_node: per_node }),
                ..Links::default()
            },
            ..System::default()
        };
        ends(&cluster, &[layout(&[4096])], steps, &system).1
    };
    assert_eq!(run(1, Op::Write), 4.0);
    assert_eq!(run(2, Op::Write), 8.0);
    assert_eq!(run(2, Op::Read), 4.0);
}

#[test]
fn a_request_pays_the_latency_twice() {
    let cluster = cluster(&[(1.0, 0.25, 0.0)]);
    for op in [Op::Read, Op::Write] {
        let system = linked(None, Forwarding::StoreAndForward, 0.125);
        let (ended, _) = ends(&cluster, &[layout(&[64])], vec![vec![access(op, 0, 4, 0.0); 2]], &system);
        // 0.125 + (1 + 1) + 2 + 0.125.
        assert_eq!(ended.iter().map(|end| end.2).collect::<Vec<_>>(), [4.25, 8.5]);
    }
}

#[test]
fn metadata_operations_queue_for_threads() {
    let service = |s| Service { min_s: s, max_s: s };
    let metadata = |threads| Metadata { threads, open: service(1.0), create: service(3.0), stat: service(0.5) };
    let ops = [MetadataOp::Create, MetadataOp::Open, MetadataOp::Stat, MetadataOp::Open].into_iter().zip(0_u32..);
    // Each comes a nanosecond after the one before.
    let ask =
        |(op, number)| vec![access(Op::Read, 0, 0, f64::from(number) * 1e-9), SimulatedStep::Metadata(op), read(0, 0)];
    let workload = ClosedLoop { processes: ops.map(ask).collect() };
    let run = |threads| {
        let system = System { metadata: Some(metadata(threads)), ..System::default() };
        run(&cluster(&[(1.0, 0.0, 0.0)]), &[layout(&[1])], &workload, &system, 1).unwrap()
    };
    let one = run(1);
    assert_eq!((one.outcome.makespan_s, one.metadata.requests, one.metadata.busy_s), (5.5, 4, 5.5));
    let close = |a: f64, b: f64| (a - b).abs() < 1e-7;
    assert!(close(one.metadata.waiting_s, 3.0 + 4.0 + 4.5));
    // Thread 0: create until 3; thread 1: 1, 1.5, 2.5.
    let two = run(2);
    assert!(two.outcome.makespan_s == 3.0 && close(two.metadata.waiting_s, 1.0 + 1.5));
}

#[test]
fn collective_calls_join_their_communicator_alone() {
    // Even processes are communicator 0, odd ones 1. Process 0 comes at 2 s, so 2 waits for it; the odd ones do not.
    let call = |communicator, exchange_s| SimulatedStep::Collective { communicator, exchange_s };
    let processes = vec![
        vec![access(Op::Read, 0, 1, 1.0), call(0, 0.25), read(0, 1)],
        vec![call(1, 0.0), read(0, 1)],
        vec![call(0, 0.5), read(0, 1)],
        vec![call(1, 0.0), read(0, 1)],
    ];
    let layouts = [layout(&[64])];
    let (ended, makespan_s) = ends(&cluster(&[(1.0, 0.0, 0.0)]), &layouts, processes, &System::default());
    // The server serves 1 and 3 until 2, then process 0 until 3; both even ones go on after the longer exchange.
    assert_eq!(ended.iter().map(|end| end.2).collect::<Vec<_>>(), [1.0, 2.0, 3.0, 4.5, 5.5]);
    let of = |ends: &[(u32, u64, f64)]| ends.iter().map(|end| end.0).collect::<std::collections::BTreeSet<_>>();
    assert_eq!([of(&ended[..2]), of(&ended[2..3]), of(&ended[3..])], [[1, 3].into(), [0].into(), [0, 2].into()]);
    assert_eq!(makespan_s, 5.5);
}

#[test]
fn a_member_that_has_ended_holds_nobody() {
    let call = SimulatedStep::Collective { communicator: 0, exchange_s: 0.0 };
    let processes = vec![vec![call, call, read(0, 1)], vec![call]];
    let (ended, _) = ends(&cluster(&[(1.0, 0.0, 0.0)]), &[layout(&[64])], processes, &System::default());
    assert_eq!(ended, [(0, 0, 1.0)]);
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let cluster = cluster(&[(1.0, 0.0, 0.0)]);
    let refused = |processes: Vec<Vec<SimulatedStep>>, system: &System| {
        run(&cluster, &[layout(&[64])], &ClosedLoop { processes }, system, 1).unwrap_err()
    };
    let call = |communicator, exchange_s| SimulatedStep::Collective { communicator, exchange_s };
    let crossed = vec![vec![call(0, 0.0), call(1, 0.0)], vec![call(1, 0.0), call(0, 0.0)]];
    let error = refused(crossed, &System::default());
    assert_eq!(error, SimulateError::Deadlock { process: 0, at: "in communicator 0".into() });
    let far = vec![vec![read(1 << 63, 1)]];
    assert_eq!(refused(far, &System::default()), SimulateError::BeyondEnd { process: 0, offset: 1 << 63, size: 1 });
    assert!(matches!(refused(vec![vec![call(0, f64::NAN)]], &System::default()), SimulateError::Think { .. }));
    let none = System {
        links: Links { client: Some(ClientLink { s_per_byte: 1.0, processes_per_node: 0 }), ..Links::default() },
        ..System::default()
    };
    let error = refused(Vec::new(), &none);
    assert_eq!(error, SimulateError::Value { what: "the number of processes on a node", value: 0.0 });
    let step = call(0, 0.0);
    let quick = simulate(&cluster, &[], &ClosedLoop { processes: vec![vec![step]] }, &SimulationOptions::default());
    assert_eq!(quick.unwrap_err(), SimulateError::NeedsRun { process: 0, step: "collective" });
}

#[test]
fn a_trace_that_claims_more_bytes_than_there_are_ends_all_the_same() {
    let processes = vec![vec![read(0, 1 << 63); 3], vec![access(Op::Write, 0, 1 << 63, 1e9); 3]];
    let system = System { bins: 4, ..linked(Some((1.0, 2)), Forwarding::Pipelined, 1.0) };
    let workload = ClosedLoop { processes };
    let report = run(&cluster(&[(1.0, 1.0, 0.0)]), &[layout(&[64])], &workload, &system, 1).unwrap();
    assert_eq!((report.requests, report.outcome.read_bytes), (6, u64::MAX));
}

#[test]
fn a_time_line_has_what_happened_when() {
    // The server is busy from 1 to 2 and from 4 to 6 with requests of 4 bytes; from 4 on two are there, then one.
    let processes =
        vec![vec![access(Op::Read, 0, 4, 1.0), access(Op::Write, 0, 4, 2.0)], vec![access(Op::Read, 8, 4, 4.0)]];
    let system = System { bins: 40, ..System::default() };
    let workload = ClosedLoop { processes };
    let report = run(&cluster(&[(1.0, 0.0, 0.0)]), &[layout(&[64])], &workload, &system, 1).unwrap();
    let timeline = report.timeline.unwrap();
    let bins = timeline.servers[0].len();
    assert!((40..=80).contains(&bins), "{bins}");
    let at = |s: f64| (s / timeline.bin_s) as usize;
    let bin = |s| timeline.servers[0][at(s)];
    assert_eq!((bin(0.5).busy, bin(1.5).busy, bin(3.0).busy, bin(5.0).busy), (0.0, 1.0, 0.0, 1.0));
    assert_eq!((bin(1.5).queue, bin(4.5).queue, bin(5.5).queue), (1.0, 2.0, 1.0));
    assert_eq!(
        (timeline.read_bytes[at(2.0)], timeline.written_bytes[at(5.0)] + timeline.written_bytes[at(6.0)]),
        (4, 4)
    );
    let moved: f64 = timeline.throughput(6.0).iter().sum::<f64>() * timeline.bin_s;
    // The last bin is shorter than the others.
    assert!((12.0..12.0 + 12.0).contains(&moved), "{moved}");
}

/// A generated load on set P, as all workloads use it.
fn load(processes: u32, requests: u64, order: SlotOrder, read_share: f64) -> Generated {
    Generated {
        processes,
        parts: vec![FilePart { offset: 0, bytes: 1 << 30, request_bytes: 256 << 10, requests }],
        order,
        files: FileChoice::Shared,
        read_share,
        think_s: 0.0,
        together: Together::Free,
        opens: false,
    }
}

fn everything() -> System {
    let cluster = presets::set_p(6, 2, true);
    let hdd = cluster.tiers[0].profile;
    let startup = Startup::seek_within(&hdd.read, &hdd.write, 1 << 28);
    System {
        devices: vec![TierDevice { queue: Queue::Elevator, startup }, TierDevice::default()],
        links: Links {
            server: ServerLink::OfProfile,
            client: Some(ClientLink { s_per_byte: 1e-9, processes_per_node: 4 }),
            latency_s: 1e-5,
            forwarding: Forwarding::StoreAndForward,
        },
        bins: 20,
        ..System::default()
    }
}

fn striped() -> Layout {
    Layout::striped((0..8).map(ServerId), 64 << 10).unwrap()
}

#[test]
fn a_plain_system_is_the_quick_path() {
    for seed in 0..12 {
        let program = load(1 + 5 * seed as u32, 40, SlotOrder::Random, if seed % 3 == 0 { 0.4 } else { 1.0 });
        let steps = |process| {
            let mut at = program.start(process, seed);
            std::iter::from_fn(|| program.next(&mut at)).collect()
        };
        let workload = ClosedLoop { processes: (0..program.processes).map(steps).collect() };
        let mut cluster = presets::set_p(6, 2, true);
        let networks = [(Network::InBeta, ServerLink::InBeta), (Network::Link, ServerLink::OfProfile)];
        for ((network, server), in_turn) in networks.into_iter().flat_map(|network| [(network, false), (network, true)])
        {
            // The flash is asked together.
            cluster.tiers[0].in_turn = in_turn;
            let quick = simulate(&cluster, &[striped()], &workload, &SimulationOptions { seed, network }).unwrap();
            let system = System { links: Links { server, ..Links::default() }, ..System::default() };
            let whole = run(&cluster, &[striped()], &workload, &system, seed).unwrap();
            let close = |a: f64, b: f64, within: f64| assert!((a - b).abs() <= within, "seed {seed}: {a} is not {b}");
            // A nanosecond a sub-request in the chain.
            close(quick.makespan_s, whole.outcome.makespan_s, 1e-5);
            close(quick.latency.mean_s, whole.outcome.latency.mean_s, 1e-6);
            close(quick.latency.p95_s, whole.outcome.latency.p95_s, 2e-3 * quick.latency.p95_s);
            for (quick, whole) in quick.servers.iter().zip(&whole.outcome.servers) {
                assert_eq!((quick.reads, quick.writes, quick.bytes), (whole.reads, whole.writes, whole.bytes));
                close(quick.busy_s, whole.busy_s, 1e-5);
                close(quick.waiting_s, whole.waiting_s, 1e-3);
                close(quick.link_in_busy_s + quick.link_out_busy_s, whole.link_in_busy_s + whole.link_out_busy_s, 1e-5);
            }
        }
    }
}

#[test]
fn a_list_of_steps_a_packed_one_and_the_rule_are_one_program() {
    let program =
        Generated { opens: true, together: Together::BarrierEvery(7), ..load(9, 30, SlotOrder::RandomInShare, 0.5) };
    let cluster = presets::set_p(6, 2, true);
    let steps = |process| {
        let mut at = program.start(process, 3);
        std::iter::from_fn(|| program.next(&mut at)).collect()
    };
    let workload = ClosedLoop { processes: (0..9).map(steps).collect() };
    let packed = Packed::of(&workload);
    let system = everything();
    let by_rule = run(&cluster, &[striped()], &program, &system, 3).unwrap();
    assert_eq!(by_rule, run(&cluster, &[striped()], &workload, &system, 3).unwrap());
    assert_eq!(by_rule, run(&cluster, &[striped()], &packed, &system, 3).unwrap());
    assert_eq!(by_rule.outcome.barriers_s.len(), 4);
}

#[test]
fn repetitions_do_not_depend_on_the_number_of_threads() {
    let program = load(12, 25, SlotOrder::Random, 0.5);
    let cluster = presets::set_p(6, 2, true);
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| repeat(&cluster, &[striped()], &program, &everything(), 5, 7).unwrap())
    };
    let one = with(1);
    assert_eq!(one, with(4));
    assert_eq!(one.first, run(&cluster, &[striped()], &program, &everything(), 5).unwrap());
    assert_eq!(one.throughputs.len(), 7);
    assert!(one.throughputs.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(one.throughput.half_width.unwrap() < 0.2 * one.throughput.mean);
    let (least, most) = one.throughputs.iter().fold((f64::MAX, 0.0_f64), |(a, b), &x| (a.min(x), b.max(x)));
    assert!((least..=most).contains(&one.throughput.mean));
}

#[test]
fn a_disk_with_an_elevator_seeks_less() {
    let cluster = presets::set_p(6, 2, true);
    let whole = everything();
    let fifo = System {
        devices: whole.devices.iter().map(|device| TierDevice { queue: Queue::Fifo, ..*device }).collect(),
        ..whole.clone()
    };
    let program = load(64, 20, SlotOrder::Random, 1.0);
    let startup_s = |system| run(&cluster, &[striped()], &program, system, 1).unwrap().queues[0].startup_s;
    assert!(startup_s(&whole) < 0.95 * startup_s(&fifo));
}

/// Seconds that four processes take, each of which reads its own far part of a disk in order, thinking between
/// requests.
fn streams(queue: Queue, think_s: f64) -> f64 {
    let curve = SeekCurve {
        sequential_s: 0.0,
        settle_s: 10e-3,
        full_stroke_s: 10e-3,
        stroke_bytes: 1 << 40,
        shape: SeekShape::Linear,
        rotation_s: 0.0,
    };
    let device = TierDevice { queue, startup: Startup::Seek { read: curve, write: curve } };
    let system = System { devices: vec![device], ..System::default() };
    let stream = |process: u64| (0..50).map(move |n| access(Op::Read, (process << 36) + n * 65536, 65536, think_s));
    let workload = ClosedLoop { processes: (0..4).map(|process| stream(process).collect()).collect() };
    let disk = cluster(&[(0.0, 1e-8, 0.0)]);
    run(&disk, &[layout(&[1 << 39])], &workload, &system, 1).unwrap().outcome.makespan_s
}

#[test]
fn an_anticipatory_queue_waits_for_who_comes_back_soon_and_learns_who_does_not() {
    let waiting = Queue::Anticipatory { wait_s: 2e-3, near_bytes: 1 << 20 };
    // Every request of an elevator seeks, for the others' are queued by the time that the next in order comes. Waiting
    // a millisecond for that saves the 10 of the seek: each stream is read to its end, and only the first of it seeks.
    let (elevator, anticipatory) = (streams(Queue::Elevator, 1e-3), streams(waiting, 1e-3));
    let service_s = 65536e-8;
    assert!((elevator - 200.0 * (10e-3 + service_s)).abs() < 0.05 * elevator, "{elevator}");
    assert!((anticipatory - 200.0 * (1e-3 + service_s)).abs() < 0.1, "{anticipatory}");
    // The queue waits once in vain for a process that thinks longer than the wait; then it knows.
    let (elevator, anticipatory) = (streams(Queue::Elevator, 20e-3), streams(waiting, 20e-3));
    assert!(anticipatory < elevator + 4.0 * 2e-3 + 1e-9, "{anticipatory} for {elevator}");
}

#[test]
fn intervals_cover_the_true_mean_as_often_as_they_say() {
    let (program, cluster) = (load(6, 30, SlotOrder::Random, 0.5), presets::set_p(6, 2, false));
    let system = System::default();
    // 300 experiments of five runs; what all runs together say stands for the truth.
    let repeated: Vec<_> =
        (0..300).map(|n| repeat(&cluster, &[striped()], &program, &system, 5 * n, 5).unwrap()).collect();
    let truth = repeated.iter().map(|one| one.throughput.mean).sum::<f64>() / repeated.len() as f64;
    let covers = |one: &&stripewise_simulate::Repeated| {
        (one.throughput.mean - truth).abs() <= one.throughput.half_width.unwrap()
    };
    let covered = repeated.iter().filter(covers).count();
    // 285 on average; four standard deviations are 15.
    assert!((270..=299).contains(&covered), "{covered} of 300");
}

#[test]
fn the_metadata_tier_is_a_server_like_the_others() {
    let servers = [(1.0, 0.5, 0.125), (2.0, 0.25, 0.0), (0.5, 0.0625, 0.25)];
    let (mut with_meta, of_three) = (cluster(&servers[..2]), cluster(&servers));
    let layout = |first: ServerId| {
        let stripe = |server, width_bytes| Stripe { server, width_bytes };
        Layout::new([(0, vec![stripe(first, 64)]), (64, vec![stripe(ServerId(0), 4), stripe(ServerId(1), 6)])]).unwrap()
    };
    let (on_meta, on_third) = (layout(ServerId::META), layout(ServerId(2)));
    let steps = |process: u64| {
        (0..8).map(move |n| access(if n % 2 == 0 { Op::Read } else { Op::Write }, 20 * n, 10 + process, 0.0))
    };
    let program = ClosedLoop { processes: (0..3).map(|process| steps(process).collect()).collect() };
    let unknown = SimulateError::UnknownServer { file: 0, server: ServerId::META };
    for network in [Network::InBeta, Network::Link] {
        let options = SimulationOptions { seed: 1, network };
        let quick =
            |cluster: &Cluster, layout: &Layout| simulate(cluster, std::slice::from_ref(layout), &program, &options);
        with_meta.meta = None;
        assert_eq!(quick(&with_meta, &on_meta).unwrap_err(), unknown);
        with_meta.meta = Some(Tier::meta(of_three.tiers[2].profile, 0));
        let found = quick(&with_meta, &on_meta).unwrap();
        assert_eq!([0, 1, 2].map(|index| found.server_at(index)), [ServerId(0), ServerId(1), ServerId::META]);
        assert_eq!(SimulationOutcome { has_meta: false, ..found }, quick(&of_three, &on_third).unwrap());
        // A layout that does not name it leaves it out.
        let without = Layout::striped([ServerId(0)], 8).unwrap();
        assert_eq!(quick(&with_meta, &without).unwrap().servers.len(), 2);
    }
    let whole = |cluster: &Cluster, layout| {
        run(cluster, &[layout], &program, &System::default(), 1).map(|report| report.outcome)
    };
    let found = whole(&with_meta, on_meta.clone()).unwrap();
    assert_eq!(SimulationOutcome { has_meta: false, ..found }, whole(&of_three, on_third).unwrap());
    with_meta.meta = None;
    assert_eq!(whole(&with_meta, on_meta).unwrap_err(), unknown);
}

/// Three processes whose requests are on the metadata tier alone, 2 s each.
#[test]
fn the_metadata_tier_serves_several_side_by_side_and_names_with_them() {
    let mut cluster = cluster(&[(1.0, 0.5, 0.0)]);
    let op = |startup_s| OpProfile {
        startup_min_s: startup_s,
        startup_max_s: startup_s,
        transfer_s_per_byte: 0.25,
        head: None,
    };
    let profile = Profile { read: op(1.0), write: op(3.0), network_s_per_byte: 0.0 };
    cluster.meta = Some(Tier { at_once: 2, ..Tier::meta(profile, 0) });
    let layouts = [Layout::striped([ServerId::META], 64).unwrap()];
    let steps = || vec![access(Op::Read, 0, 4, 0.0)];
    let program = ClosedLoop { processes: (0..3).map(|_| steps()).collect() };
    let quick = simulate(&cluster, &layouts, &program, &SimulationOptions::default()).unwrap();
    assert_eq!((quick.makespan_s, quick.servers[1].busy_s, quick.servers[1].waiting_s), (4.0, 6.0, 2.0));
    let whole = |names_on_meta, program: &ClosedLoop| {
        let system = System { names_on_meta, bins: 4, ..System::default() };
        run(&cluster, &layouts, program, &system, 1).unwrap()
    };
    let names = NameCosts { look_s: [0.5; 2], change_s: [3.0; 2] };
    for names_on_meta in [None, Some(names)] {
        // Percentiles are rounded there.
        let found = whole(names_on_meta, &program).outcome;
        assert_eq!(SimulationOutcome { latency: quick.latency, ..found }, quick);
    }
    // With a name that is made before, 3 s, of two processes; the third one's read is served after the first of them.
    let create = SimulatedStep::Metadata(MetadataOp::Create);
    let processes = vec![vec![create, steps()[0]], vec![create, steps()[0]], steps()];
    let program = ClosedLoop { processes };
    let timeless = whole(None, &program).outcome;
    assert_eq!(timeless.servers, quick.servers, "without it operations on names take no time");
    let named = whole(Some(names), &program);
    let of_meta = &named.outcome.servers[1];
    // 3 + 3 + 2 + 2 + 2 s on two places, without a gap.
    assert_eq!((of_meta.busy_s, of_meta.bytes, of_meta.writes.requests), (12.0, 12, 2));
    assert!((6.0..=8.0).contains(&named.outcome.makespan_s), "{named:?}");
    assert_eq!(named.requests, 3, "names are no requests on bytes");
    // A draw for each service, in the order in which they come: both ways agree on places, whatever is drawn.
    let mut drawn = cluster.clone();
    drawn.meta.as_mut().unwrap().profile.read.startup_max_s = 4.0;
    let many = ClosedLoop {
        processes: (0..5).map(|p| (0..9).map(|n| access(Op::Read, n, 1 + (n + p) % 7, 0.0)).collect()).collect(),
    };
    let quick = simulate(&drawn, &layouts, &many, &SimulationOptions { seed: 1, ..Default::default() }).unwrap();
    let found = run(&drawn, &layouts, &many, &System::default(), 1).unwrap().outcome;
    assert!((quick.makespan_s - found.makespan_s).abs() < 1e-6, "{} {}", quick.makespan_s, found.makespan_s);
}
