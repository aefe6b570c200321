//! Prints how fast the simulator is on one core, and how much memory the largest case takes.
//!
//! `cargo run --release -p stripewise-simulate --example simulator_figures`

use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, presets};
use stripewise_simulate::{
    ClientLink, ClosedLoop, FileChoice, FilePart, Forwarding, Generated, Links, Packed, Queue, ServerLink,
    SimulatedStep, SimulationOptions, SimulationReport, SlotOrder, Startup, StepProgram, System, TierDevice, Together,
    run, simulate,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// How often each case is timed; the median is printed.
const TIMES: usize = 5;

fn program(processes: u32, requests: u64, request_bytes: u64, read_share: f64) -> Generated {
    let bytes = u64::from(processes) * 64 * MIB;
    Generated {
        processes,
        parts: vec![FilePart { offset: 0, bytes, request_bytes, requests }],
        order: SlotOrder::RandomInShare,
        files: FileChoice::Shared,
        read_share,
        think_s: 0.0,
        together: Together::Free,
        opens: false,
    }
}

/// Elevators, seeks by distance on the disks, a link for every server and every node of 8 processes.
fn whole(cluster: &Cluster, disk_bytes: u64) -> System {
    let hdd = cluster.tiers[0].profile;
    let seeks = Startup::seek_within(&hdd.read, &hdd.write, disk_bytes);
    let elevator = |startup| TierDevice { queue: Queue::Elevator, startup };
    System {
        devices: vec![elevator(seeks), elevator(Startup::Drawn)],
        links: Links {
            server: ServerLink::OfProfile,
            client: Some(ClientLink { s_per_byte: hdd.network_s_per_byte, processes_per_node: 8 }),
            latency_s: 0.0,
            forwarding: Forwarding::StoreAndForward,
        },
        ..System::default()
    }
}

struct Case<'a> {
    name: &'a str,
    cluster: &'a Cluster,
    program: Generated,
    system: System,
}

impl Case<'_> {
    fn layout(&self) -> Layout {
        let servers = self.cluster.tiers.iter().map(|tier| tier.servers.len() as u16).sum();
        Layout::striped((0..servers).map(ServerId), 64 * KIB).expect("a layout over all servers")
    }

    fn measure(&self, times: usize) {
        // For profiling: one case alone.
        if std::env::args().nth(1).is_some_and(|only| !only.starts_with('-') && !self.name.contains(&only)) {
            return;
        }
        let layouts = [self.layout()];
        let mut seconds = Vec::new();
        let mut last: Option<SimulationReport> = None;
        for _ in 0..times {
            let began_s = processor_s();
            let report = run(self.cluster, &layouts, &self.program, &self.system, 1).expect("a case that runs");
            seconds.push(processor_s() - began_s);
            last = Some(report);
        }
        let report = last.expect("measured at least once");
        print_rate(self.name, report.sub_requests, &mut seconds);
        println!(
            "    {} events, {} waiting at most, simulated {:.1} s at {:.0} MiB/s",
            report.events,
            report.most_waiting,
            report.outcome.makespan_s,
            report.outcome.throughput() / MIB as f64,
        );
    }
}

fn print_rate(name: &str, sub_requests: u64, seconds: &mut [f64]) {
    seconds.sort_by(f64::total_cmp);
    let rate = |seconds: f64| sub_requests as f64 / seconds / 1e6;
    println!(
        "  {name}: {:.2} ({:.2}..{:.2}) million sub-requests/s of {sub_requests}",
        rate(seconds[seconds.len() / 2]),
        rate(seconds[seconds.len() - 1]),
        rate(seconds[0]),
    );
}

/// The quick path, with the same requests.
fn measure_quick(cluster: &Cluster, program: &Generated) {
    let steps = |process| {
        let mut at = program.start(process, 1);
        std::iter::from_fn(move || program.next(&mut at)).collect::<Vec<SimulatedStep>>()
    };
    let workload = ClosedLoop { processes: (0..program.processes).map(steps).collect() };
    let layout = Layout::striped((0..8).map(ServerId), 64 * KIB).expect("a layout");
    let mut seconds = Vec::new();
    let mut served = 0;
    for _ in 0..TIMES {
        let began_s = processor_s();
        let outcome = simulate(cluster, std::slice::from_ref(&layout), &workload, &SimulationOptions::default());
        seconds.push(processor_s() - began_s);
        served = outcome.expect("a case that runs").servers.iter().map(|server| server.requests()).sum();
    }
    print_rate("quick path (FIFO, no links)", served, &mut seconds);
    let packed = Packed::of(&workload);
    println!(
        "  packed steps: {:.1} bytes each, {} as they are",
        packed.packed_bytes() as f64 / packed.steps() as f64,
        size_of::<SimulatedStep>()
    );
}

/// Processor time of this thread in seconds: what else runs on the machine does not count.
fn processor_s() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns: Option<f64> = statistics.split_whitespace().next().and_then(|first| first.parse().ok());
    ns.expect("the kernel counts processor time") * 1e-9
}

/// Peak resident memory so far, in MB.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or(f64::NAN, |kib: f64| kib * 1024.0 / 1e6)
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (times, share) = if quick { (1, 10) } else { (TIMES, 1) };
    println!("one core; set P with its network; 64 KiB stripes");
    let small = presets::set_p(6, 2, true);
    let medium = presets::set_p(192, 64, true);
    let elevators = whole(&small, 64 << 30);
    let case = |name, cluster, program, system| Case { name, cluster, program, system }.measure(times);
    let reads = |processes| program(processes, 8_000_000 / 8 / u64::from(processes) / share, 512 * KIB, 1.0);
    let mixed = |processes| Generated { read_share: 0.5, ..reads(processes) };
    case("8 servers, 64 processes, elevators and links, reads", &small, reads(64), elevators.clone());
    case("8 servers, 64 processes, elevators and links, half writes", &small, mixed(64), elevators.clone());
    let timed = System { bins: 100, ..elevators.clone() };
    case("8 servers, 64 processes, the same with a time line", &small, mixed(64), timed);
    let links = Links { forwarding: Forwarding::Pipelined, ..elevators.links };
    let pipelined = System { links, ..elevators.clone() };
    case("8 servers, 64 processes, pipelined links, half writes", &small, mixed(64), pipelined);
    let deep = whole(&small, 1 << 42);
    case("8 servers, 4096 processes, elevators and links, half writes", &small, mixed(4096), deep);
    let many = whole(&medium, 64 << 30);
    case("256 servers, 4096 processes, elevators and links, half writes", &medium, mixed(4096), many);
    case("8 servers, 64 processes, FIFO, no links, half writes", &small, mixed(64), System::default());
    measure_quick(&small, &mixed(64));
    let before_mb = peak_mb();
    let largest = presets::set_p(7500, 2500, true);
    let system = whole(&largest, 1 << 42);
    let all = program(100_000, (10 / share).max(2), MIB, 0.5);
    Case { name: "10000 servers, 100000 processes, elevators and links", cluster: &largest, program: all, system }
        .measure(1);
    println!("peak resident memory: {:.0} MB, of which {before_mb:.0} MB before the last case", peak_mb());
}
