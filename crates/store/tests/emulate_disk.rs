//! Emulated disks: where the head is, what the queue decides, and the simulator's disk beside it. The clock is the tests' own.

use std::fs::File;
use std::path::Path;

use proptest::prelude::*;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Cluster, Head, OpProfile, Profile, Queue, Tier};
use stripewise_simulate::{ClosedLoop, SimulatedAccess, SimulatedStep, Startup, System, TierDevice, run_observed};
use stripewise_store::emulate::{
    Device, DiskConfig, DiskRequest, EmulateConfig, MAX_BACKLOG_NS, Op, QUEUE_FILE, QueueTicket,
};

const KIB: u64 = 1024;
const SIZE: u64 = 1 << 30;
const DISTANCE: u64 = 1 << 28;
const QUEUES: [Queue; 3] = [Queue::Fifo, Queue::Elevator, Queue::Anticipatory { wait_s: 6.7e-3, near_bytes: 64 * KIB }];
/// The wait of the last of them.
const WAIT_NS: u64 = 6_700_000;

/// Startups of 1 to 9 ms without a turn, 0.1 ms where the last request ended, 100 MB/s.
fn config(queue: Queue) -> EmulateConfig {
    let head = Some(Head { sequential_startup_s: 1e-4, ahead_bytes: 0 });
    let op = OpProfile { startup_min_s: 1e-3, startup_max_s: 9e-3, transfer_s_per_byte: 1e-8, head };
    // Writes take longer, so that a read in their place is seen.
    let write = OpProfile { startup_min_s: 2e-3, transfer_s_per_byte: 2e-8, ..op };
    let profile = Profile { read: op, write, network_s_per_byte: 0.0 };
    let disk = DiskConfig { queue, size_bytes: SIZE, file_distance_bytes: DISTANCE, rotation_s: Some(0.0) };
    EmulateConfig { profile, dilation: 1.0, seed: 1, disk: Some(disk), at_once: 1 }
}

fn open(directory: &Path, config: &EmulateConfig) -> Device {
    Device::open(File::open(directory).unwrap(), ServerId(0), config).unwrap()
}

fn read(datafile: u64, offset: u64, process: u32) -> DiskRequest {
    DiskRequest { op: Op::Read, datafile, offset, bytes: 10_000, process }
}

/// The service of a request that comes alone: startup in nanoseconds.
fn alone(device: &Device, asked: &DiskRequest, now_ns: &mut u64) -> u64 {
    let mut ticket = device.enter(asked, *now_ns);
    assert_eq!(device.look(&mut ticket, *now_ns), None, "an idle disk serves at once");
    assert_eq!(ticket.start_ns, *now_ns);
    *now_ns = ticket.deadline_ns;
    ticket.deadline_ns - ticket.start_ns - 100_000
}

#[test]
fn a_seek_takes_longer_over_more_of_the_disk_and_files_lie_at_a_distance() {
    let directory = tempfile::tempdir().unwrap();
    let (device, other) = (open(directory.path(), &config(Queue::Fifo)), open(directory.path(), &config(Queue::Fifo)));
    let mut now_ns = 1_000_000_000;
    // The first one's beginning is the disk's, where the head is.
    assert_eq!(alone(&device, &read(7, 0, 1), &mut now_ns), 100_000);
    // Another process goes on where this one ended.
    assert_eq!(alone(&other, &read(7, 10_000, 2), &mut now_ns), 100_000);
    // The second file begins a quarter of the disk behind the first: 1 + 8 sqrt(1/4) ms, less what was read.
    let quarter = alone(&device, &read(9, 0, 1), &mut now_ns);
    assert!((4_998_000..5_000_000).contains(&quarter), "{quarter}");
    let near = alone(&device, &read(9, 20_000, 1), &mut now_ns);
    let far = alone(&device, &read(7, 0, 1), &mut now_ns);
    assert!((1_000_000..1_030_000).contains(&near) && far > quarter, "{near} {far}");
    assert_eq!([7, 9, 8].map(|datafile| other.address(datafile, 5)), [Some(5), Some(DISTANCE + 5), None]);
    let longer = EmulateConfig { dilation: 2.0, ..config(Queue::Fifo) };
    let twice = alone(&open(directory.path(), &longer), &read(9, 0, 1), &mut now_ns);
    // Seek and transfer are longer, and `alone` takes off the transfer of one.
    assert!((twice - 100_000).abs_diff(2 * quarter) < 10_000, "{twice} {quarter}");
}

/// Begins of the services of requests that come one after the other while the first is served.
fn order(queue: Queue, requests: &[(u64, u32)]) -> Vec<usize> {
    let directory = tempfile::tempdir().unwrap();
    let device = open(directory.path(), &config(queue));
    let mut tickets: Vec<QueueTicket> = requests
        .iter()
        .zip(1_000_000..)
        .map(|(&(offset, process), now_ns)| device.enter(&read(7, offset, process), now_ns))
        .collect();
    for ticket in &mut tickets {
        let mut now_ns = 1_000_000;
        while let Some(next_ns) = device.look(ticket, now_ns) {
            now_ns = next_ns;
        }
    }
    let mut order: Vec<usize> = (0..tickets.len()).collect();
    order.sort_by_key(|&number| tickets[number].start_ns);
    order
}

#[test]
fn an_elevator_goes_up_and_begins_again_below() {
    let requests = [(50 << 20, 1), (10 << 20, 2), (90 << 20, 3), (20 << 20, 4), (60 << 20, 5)];
    assert_eq!(order(Queue::Fifo, &requests), [0, 1, 2, 3, 4]);
    assert_eq!(order(Queue::Elevator, &requests), [0, 4, 2, 1, 3]);
}

#[test]
fn an_anticipatory_queue_waits_for_the_next_request_of_the_process_that_it_served() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(directory.path(), &config(QUEUES[2]));
    let mut now_ns = 1_000_000;
    // The process is known to come back at once, each time where it ended.
    for number in 0..8 {
        alone(&device, &read(7, number * 10_000, 1), &mut now_ns);
        now_ns += 10_000;
    }
    let mut own = device.enter(&read(7, 80_000, 1), now_ns);
    let mut far = device.enter(&read(9, 0, 2), now_ns + 1);
    assert_eq!(device.look(&mut own, now_ns + 1), None);
    // Its service is over, and nothing came: the other one waits for the end of the patience.
    let ended_ns = own.deadline_ns;
    assert_eq!(device.look(&mut far, ended_ns + 1), Some(ended_ns + 6_700_000));
    let mut next = device.enter(&read(7, 90_000, 1), ended_ns + 50_000);
    assert_eq!(device.look(&mut next, ended_ns + 50_000), None);
    assert_eq!(next.start_ns, ended_ns + 50_000);
    assert_eq!(device.look(&mut far, next.deadline_ns + 6_700_000), None);
    assert_eq!(far.start_ns, next.deadline_ns + 6_700_000);
}

#[test]
fn what_others_do_later_does_not_end_a_wait_in_the_past() {
    const MB: u64 = 1_000_000;
    let directory = tempfile::tempdir().unwrap();
    let device = open(directory.path(), &config(QUEUES[2]));
    let mut now_ns = 1_000_000;
    // The process that comes back has been here once, and the wait for it is over when the next one comes.
    alone(&device, &read(7, 200 * MB, 3), &mut now_ns);
    now_ns += 2 * WAIT_NS;
    alone(&device, &read(7, 0, 1), &mut now_ns);
    // Nothing is known of the process that is waited for: this request is far away.
    let mut far = device.enter(&read(7, 100 * MB, 2), now_ns + MB);
    assert_eq!(device.look(&mut far, now_ns + MB), Some(now_ns + WAIT_NS));
    // It is near beside the first step that is known of any process, which is shorter than the way to its request.
    let mut farther = device.enter(&read(7, 600 * MB, 3), now_ns + 2 * MB);
    assert_eq!(device.look(&mut farther, now_ns + 2 * MB), Some(now_ns + WAIT_NS));
    assert_eq!(device.look(&mut far, now_ns + WAIT_NS), None);
    assert_eq!(far.start_ns, now_ns + WAIT_NS);
}

/// One request of a process: nanoseconds after the end of the one before, and what it asks for.
#[derive(Debug, Clone, Copy)]
struct Step {
    think_ns: u64,
    file: u64,
    offset: u64,
    bytes: u64,
    is_write: bool,
}

impl Step {
    fn op(self) -> Op {
        if self.is_write { Op::Write } else { Op::Read }
    }
}

/// Files on the disk, none of which reaches around its end.
const FILES: u64 = 4;
/// Processes that share it.
const PROCESSES: usize = 5;
/// Arrivals and decisions that are nearer than this may come in another order where each service is rounded to a nanosecond.
const ROUNDED_NS: u64 = 200;

/// A process goes on where it ended, or jumps; it comes back soon, or after longer than an anticipatory queue waits.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (1_000..500_000_u64, 0..4_u64, 0..FILES, 0..DISTANCE / 2, 1..100_000_u64, any::<bool>(), any::<bool>());
    prop::collection::vec(step, 1..16).prop_map(|drawn| {
        let (mut at, mut of) = (0, 0);
        let one = |(near_ns, far, file, jump, bytes, goes_on, is_write): (u64, u64, u64, u64, u64, bool, bool)| {
            (of, at) = if goes_on { (of, at) } else { (file, jump) };
            let step =
                Step { think_ns: near_ns * if far == 0 { 40 } else { 1 }, file: of, offset: at, bytes, is_write };
            at += bytes;
            step
        };
        drawn.into_iter().map(one).collect()
    })
}

/// What each process does; the simulator knows when one has ended, a disk does not: each ends when all others are away.
fn processes() -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(steps(), PROCESSES).prop_map(|mut all| {
        for (steps, number) in all.iter_mut().zip(1..) {
            let think_ns = number * 100_000_000_000;
            steps.push(Step { think_ns, file: 0, offset: 0, bytes: 1, is_write: false });
        }
        all
    })
}

/// When each request of each process came and was served.
type Times = Vec<Vec<(u64, u64)>>;

/// The same requests on the emulated disk, which each process has opened on its own; nanoseconds from the beginning.
fn emulated(queue: Queue, programs: &[Vec<Step>]) -> Times {
    const BEGIN_NS: u64 = 1_000_000_000;
    let directory = tempfile::tempdir().unwrap();
    let devices: Vec<Device> = programs.iter().map(|_| open(directory.path(), &config(queue))).collect();
    // Files get their places in order: a request of no bytes each, long before, of a process that comes but once.
    for file in 0..FILES {
        let asked = DiskRequest { bytes: 0, ..read(file + 1, 0, 90 + file as u32) };
        alone_of_none(&devices[0], &asked, &mut (1_000 + file * 100_000_000));
    }
    // Back to the beginning of the disk, where the simulator's head is.
    alone_of_none(&devices[0], &DiskRequest { bytes: 0, ..read(1, 0, 99) }, &mut (BEGIN_NS - 200_000_000));
    enum At {
        Thinking(u64),
        Asking(u64, QueueTicket),
        Over,
    }
    let mut states: Vec<At> = programs.iter().map(|steps| At::Thinking(BEGIN_NS + steps[0].think_ns)).collect();
    let mut times: Times = vec![Vec::new(); programs.len()];
    let mut now_ns = BEGIN_NS;
    while !states.iter().all(|at| matches!(at, At::Over)) {
        let mut next_ns = u64::MAX;
        for (process, at) in states.iter_mut().enumerate() {
            if let At::Thinking(until_ns) = *at
                && until_ns <= now_ns
            {
                let step = programs[process][times[process].len()];
                let (datafile, process_id) = (step.file + 1, process as u32 + 1);
                let asked = DiskRequest {
                    op: step.op(),
                    datafile,
                    offset: step.offset,
                    bytes: step.bytes,
                    process: process_id,
                };
                *at = At::Asking(until_ns, devices[process].enter(&asked, until_ns));
            }
        }
        for (process, at) in states.iter_mut().enumerate() {
            if let At::Asking(came_ns, ticket) = at {
                match devices[process].look(ticket, now_ns) {
                    Some(later_ns) => next_ns = next_ns.min(later_ns),
                    None => {
                        times[process].push((*came_ns - BEGIN_NS, ticket.deadline_ns - BEGIN_NS));
                        let step = programs[process].get(times[process].len());
                        *at = step.map_or(At::Over, |step| At::Thinking(ticket.deadline_ns + step.think_ns));
                    }
                }
            }
            if let At::Thinking(until_ns) = *at {
                next_ns = next_ns.min(until_ns);
            }
        }
        // A decision may have been made for another one: then it is looked at again at the same time.
        now_ns = next_ns.max(now_ns);
    }
    times
}

fn alone_of_none(device: &Device, asked: &DiskRequest, now_ns: &mut u64) {
    let mut ticket = device.enter(asked, *now_ns);
    assert_eq!(device.look(&mut ticket, *now_ns), None);
    *now_ns = ticket.deadline_ns;
}

/// The same on the simulator's disk.
fn simulated(queue: Queue, programs: &[Vec<Step>]) -> Times {
    let of = config(queue);
    let disk = of.disk.unwrap();
    let tier = Tier {
        name: "disk".into(),
        servers: vec![ServerId(0)],
        profile: of.profile,
        capacity_bytes: None,
        in_turn: false,
        at_once: 1,
    };
    let startup = Startup::Seek { read: disk.curve(&of.profile.read), write: disk.curve(&of.profile.write) };
    let system = System {
        devices: vec![TierDevice { queue, startup }],
        file_starts: Some((0..FILES).map(|file| file * DISTANCE).collect()),
        ..System::default()
    };
    let layout = Layout::new([(0, vec![Stripe { server: ServerId(0), width_bytes: 1 << 40 }])]).unwrap();
    let step = |of: &Step| {
        let (file, think_s) = (of.file as u32, of.think_ns as f64 * 1e-9);
        SimulatedStep::Access(SimulatedAccess { file, offset: of.offset, size: of.bytes, op: of.op(), think_s })
    };
    let processes = programs.iter().map(|steps| steps.iter().map(step).collect()).collect();
    let mut times: Times = vec![Vec::new(); programs.len()];
    let note = |process: u32, _: &SimulatedAccess, came_s: f64, ended_s: f64| {
        let [came_ns, ended_ns] = [came_s, ended_s].map(|seconds| (seconds * 1e9).round() as u64);
        times[process as usize].push((came_ns, ended_ns));
    };
    let layouts = vec![layout; FILES as usize];
    let cluster = Cluster { tiers: vec![tier], meta: None };
    run_observed(&cluster, &layouts, &ClosedLoop { processes }, &system, 1, note).unwrap();
    times
}

/// Whether what comes first is clear, whatever services are rounded to: an arrival beside another one, the end of a service, or
/// that of a wait.
fn is_clear(times: &Times) -> bool {
    let all = || times.iter().flatten();
    let mut events: Vec<(u64, bool)> = all().map(|(came_ns, _)| (*came_ns, true)).collect();
    events.extend(all().flat_map(|(_, ended_ns)| [(*ended_ns, false), (ended_ns + WAIT_NS, false)]));
    events.sort_unstable();
    let is_near = |pair: &[(u64, bool)]| (pair[0].1 || pair[1].1) && pair[1].0 - pair[0].0 < ROUNDED_NS;
    !events.windows(2).any(is_near)
}

/// The same programs on both.
fn compare(queue: Queue, programs: &[Vec<Step>]) -> Result<(), TestCaseError> {
    let emulated = emulated(queue, programs);
    prop_assume!(is_clear(&emulated));
    let simulated = simulated(queue, programs);
    for (process, (emulated, simulated)) in emulated.iter().zip(&simulated).enumerate() {
        prop_assert_eq!(emulated.len(), simulated.len());
        for (number, (one, other)) in emulated.iter().zip(simulated).enumerate() {
            // At most 80 services before it, each rounded to a nanosecond; seconds have 15 digits.
            let is_same = one.0.abs_diff(other.0) < ROUNDED_NS && one.1.abs_diff(other.1) < ROUNDED_NS;
            prop_assert!(is_same, "{queue:?}, process {process}, request {number}: {one:?} {other:?}");
        }
    }
    Ok(())
}

/// `PROPTEST_CASES` sets how many are drawn.
fn drawn() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = ProptestConfig::with_cases(asked.unwrap_or(48));
    ProptestConfig { max_global_rejects: 1 << 20, failure_persistence: None, ..cases }
}

proptest! {
    #![proptest_config(drawn())]
    #[test]
    fn the_simulators_disk_is_the_same_one(programs in processes(), queue in prop::sample::select(QUEUES.to_vec())) {
        compare(queue, &programs)?;
    }
}

#[test]
fn a_turn_of_the_disk_is_drawn_for_each_request_that_moves_the_head() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(Queue::Fifo);
    config.disk.as_mut().unwrap().rotation_s = Some(6e-3);
    let device = open(directory.path(), &config);
    let mut now_ns = 1_000_000_000;
    let turns: Vec<u64> =
        (1..2000_u64).map(|number| alone(&device, &read(7, number * 20_000, 1), &mut now_ns)).collect();
    // The shortest seek takes 1 ms, and this one is not much longer.
    assert!(turns.iter().all(|startup_ns| (1_000_000..=7_010_000).contains(startup_ns)));
    let mean = turns.iter().sum::<u64>() / turns.len() as u64;
    assert!(mean.abs_diff(4_000_000) < 200_000, "half a turn in the mean, as the simulator has it: {mean}");
}

#[test]
fn whatever_the_page_holds_a_request_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(QUEUE_FILE);
    let mut bytes = {
        open(directory.path(), &config(QUEUES[2]));
        std::fs::read(&path).unwrap()
    };
    let mut state = 1_u64;
    for round in 0..200_u64 {
        // Anything behind the magic of the disk's page.
        for byte in &mut bytes[8192 + 8..] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = if state >> 62 == 0 { (state >> 33) as u8 } else { 0 };
        }
        std::fs::write(&path, &bytes).unwrap();
        let device = open(directory.path(), &config(QUEUES[round as usize % 3]));
        let now_ns = stripewise_store::emulate::now_ns();
        let mut ticket = device.enter(&read(round, round * 4096, 5), now_ns);
        // Of what waits in the page each has a service of at most an hour before.
        let last_ns = now_ns + 200 * MAX_BACKLOG_NS;
        let mut at_ns = now_ns;
        while let Some(next_ns) = device.look(&mut ticket, at_ns) {
            at_ns = next_ns.max(at_ns + 1_000_000);
            assert!(at_ns < last_ns, "round {round}");
        }
        assert!(ticket.deadline_ns <= at_ns + MAX_BACKLOG_NS, "round {round}: {ticket:?}");
    }
}

#[test]
fn numbers_that_no_disk_has_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |change: fn(&mut DiskConfig)| {
        let mut config = config(Queue::Anticipatory { wait_s: 1.0, near_bytes: 0 });
        change(config.disk.as_mut().unwrap());
        Device::open(File::open(directory.path()).unwrap(), ServerId(0), &config).unwrap_err().to_string()
    };
    assert!(refused(|disk| disk.size_bytes = 0).contains("size of the disk is 0"));
    assert!(refused(|disk| disk.file_distance_bytes = 1 << 40).contains("at most the disk's size"));
    assert!(refused(|disk| disk.rotation_s = Some(0.1)).contains("rotation is 0.1"));
    assert!(refused(|disk| disk.queue = Queue::Anticipatory { wait_s: f64::NAN, near_bytes: 0 }).contains("wait of"));
}

#[test]
fn a_pool_file_says_what_disk_a_server_is() {
    let with = |disk: &str| {
        let text = format!(
            "name = \"p\"\nmount = \"/m\"\nnamespace = \"n\"\n[[tier]]\nname = \"hdd\"\nservers = [\"a\"]\n\
             emulate = {{ preset = \"hdd-7200-head\", dilation = 2.0, disk = {{ {disk} }} }}\n"
        );
        stripewise_store::Pool::parse(&text, Path::new("/base/pool.toml"))
    };
    let found = |disk: &str| with(disk).unwrap().servers[0].emulate.unwrap();
    let plain = found("").disk.unwrap();
    assert_eq!((plain.queue, plain.size_bytes, plain.file_distance_bytes), (Queue::Fifo, 1_000_000_000_000, 1 << 30));
    let all = "queue = \"anticipatory\", size = \"500GB\", file_distance = \"10GB\", rotation = \"4ms\", wait = \"1ms\", near = \"4KiB\"";
    let (disk, seen) = (found(all).disk.unwrap(), found(all).effective_disk().unwrap());
    assert_eq!((disk.size_bytes, disk.file_distance_bytes), (500_000_000_000, 10_000_000_000));
    assert_eq!(disk.queue, Queue::Anticipatory { wait_s: 1e-3, near_bytes: 4096 });
    assert_eq!(seen.queue, Queue::Anticipatory { wait_s: 2e-3, near_bytes: 4096 });
    assert_eq!((disk.rotation_s, seen.rotation_s), (Some(4e-3), Some(8e-3)));
    for (disk, words) in [
        ("queue = \"lifo\"", "write fifo, elevator or anticipatory"),
        ("queue = \"elevator\", wait = \"1ms\"", "of an anticipatory queue"),
        ("size = \"much\"", "emulate.disk.size"),
        ("rotation = \"3600s\"", "rotation is 3600"),
        ("file_distance = \"2TB\"", "at most the disk's size"),
        ("seek = \"1ms\"", "seek"),
    ] {
        let error = with(disk).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains(":7:"), "{error}");
    }
}
