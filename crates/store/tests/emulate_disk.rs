//! Emulated disks: where the head is, what the queue decides, and the simulator's disk beside it. The clock is the tests' own.

use std::fs::File;
use std::path::Path;

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

/// Startups of 1 to 9 ms without a turn, 0.1 ms where the last request ended, 100 MB/s.
fn config(queue: Queue) -> EmulateConfig {
    let head = Some(Head { sequential_startup_s: 1e-4, ahead_bytes: 0 });
    let op = OpProfile { startup_min_s: 1e-3, startup_max_s: 9e-3, transfer_s_per_byte: 1e-8, head };
    let profile = Profile { read: op, write: op, network_s_per_byte: 0.0 };
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

/// A process's requests: think time in nanoseconds, and offset in its file.
type Steps = Vec<(u64, u64)>;

/// Processes on a file each that go on from where they ended, or jump, after different times.
fn programs() -> Vec<Steps> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    (0..6_u64)
        .map(|process| {
            let mut at = 0;
            let step = |_| {
                at = if draw(4) < 3 { at + 10_000 } else { draw(DISTANCE / 2) };
                let most_ns = if process < 4 { 500_000 } else { 20_000_000 };
                (1 + draw(most_ns), at)
            };
            // The simulator knows when a process has ended, a disk does not: each ends when all others are away.
            (0..40).map(step).chain([((process + 1) * 100_000_000_000, 0)]).collect()
        })
        .collect()
}

/// When each process ends on the emulated disk, in nanoseconds from the beginning.
fn emulated(queue: Queue, programs: &[Steps]) -> Vec<u64> {
    const BEGIN_NS: u64 = 1_000_000_000;
    let directory = tempfile::tempdir().unwrap();
    let device = open(directory.path(), &config(queue));
    // Files get their places in order: a request of no bytes each, long before, of a process that comes but once.
    for (process, _) in programs.iter().enumerate() {
        let asked = DiskRequest { bytes: 0, ..read(process as u64 + 1, 0, 90 + process as u32) };
        let mut now_ns = 1_000 + process as u64 * 100_000_000;
        alone_of_none(&device, &asked, &mut now_ns);
    }
    // Back to the beginning of the disk, where the simulator's head is.
    alone_of_none(&device, &DiskRequest { bytes: 0, ..read(1, 0, 99) }, &mut (BEGIN_NS - 200_000_000));
    enum At {
        Thinking(u64),
        Asking(QueueTicket),
        Served(u64),
    }
    let mut states: Vec<(usize, At)> = programs.iter().map(|steps| (0, At::Thinking(BEGIN_NS + steps[0].0))).collect();
    let mut now_ns = BEGIN_NS;
    loop {
        let mut next_ns = u64::MAX;
        for (process, (step, at)) in states.iter_mut().enumerate() {
            if let At::Served(until_ns) = *at
                && until_ns <= now_ns
            {
                *step += 1;
                if let Some((think_ns, _)) = programs[process].get(*step) {
                    *at = At::Thinking(until_ns + think_ns);
                }
            }
            if let At::Thinking(until_ns) = *at
                && until_ns <= now_ns
            {
                let asked = read(process as u64 + 1, programs[process][*step].1, process as u32 + 1);
                *at = At::Asking(device.enter(&asked, until_ns));
            }
        }
        for (process, (step, at)) in states.iter_mut().enumerate() {
            if let At::Asking(ticket) = at {
                match device.look(ticket, now_ns) {
                    Some(later_ns) => next_ns = next_ns.min(later_ns),
                    None => *at = At::Served(ticket.deadline_ns),
                }
            }
            match *at {
                At::Thinking(until_ns) => next_ns = next_ns.min(until_ns),
                At::Served(until_ns) if *step < programs[process].len() => next_ns = next_ns.min(until_ns),
                _ => {}
            }
        }
        if next_ns == u64::MAX {
            break;
        }
        // A decision may have been made for another one: then it is looked at again at the same time.
        now_ns = next_ns.max(now_ns);
    }
    let ends = states.iter().map(|(_, at)| if let At::Served(until_ns) = at { until_ns - BEGIN_NS } else { 0 });
    ends.collect()
}

fn alone_of_none(device: &Device, asked: &DiskRequest, now_ns: &mut u64) {
    let mut ticket = device.enter(asked, *now_ns);
    assert_eq!(device.look(&mut ticket, *now_ns), None);
    *now_ns = ticket.deadline_ns;
}

/// The same on the simulator's disk.
fn simulated(queue: Queue, programs: &[Steps]) -> Vec<u64> {
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
        file_starts: Some((0..programs.len() as u64).map(|file| file * DISTANCE % SIZE).collect()),
        ..System::default()
    };
    let layout = Layout::new([(0, vec![Stripe { server: ServerId(0), width_bytes: 1 << 40 }])]).unwrap();
    let step = |file: usize, (think_ns, offset): (u64, u64)| {
        let (file, think_s) = (file as u32, think_ns as f64 * 1e-9);
        SimulatedStep::Access(SimulatedAccess { file, offset, size: 10_000, op: Op::Read, think_s })
    };
    let processes = programs.iter().enumerate();
    let processes = processes.map(|(file, steps)| steps.iter().map(|&of| step(file, of)).collect()).collect();
    let mut ends = vec![0; programs.len()];
    let note = |process: u32, _: &SimulatedAccess, _: f64, ended_s: f64| {
        ends[process as usize] = (ended_s * 1e9).round() as u64;
    };
    let layouts = vec![layout; programs.len()];
    let cluster = Cluster { tiers: vec![tier], meta: None };
    run_observed(&cluster, &layouts, &ClosedLoop { processes }, &system, 1, note).unwrap();
    ends
}

#[test]
fn the_simulators_disk_is_the_same_one() {
    // Four files that do not go round the disk.
    let programs: Vec<Steps> = programs().into_iter().skip(1).take(4).collect();
    for queue in QUEUES {
        let (emulated, simulated) = (emulated(queue, &programs), simulated(queue, &programs));
        // 160 services, each rounded to a nanosecond.
        let is_same =
            emulated.iter().zip(&simulated).all(|(emulated, simulated)| emulated.abs_diff(*simulated) < 1_000);
        assert!(is_same, "{queue:?}: {emulated:?} {simulated:?}");
    }
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
