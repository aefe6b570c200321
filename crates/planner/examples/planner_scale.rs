//! Planning at scale: prints time and peak memory of one case. A process each, since peak memory is the process's:
//!
//! `cargo run --release -p stripewise-planner --example planner_scale -- requests|files|servers [NUMBER [PLANNER]]`

use std::process::ExitCode;
use std::time::Instant;
use stripewise_layout::ServerId;
use stripewise_model::{Cluster, Op, OpProfile, Profile, Request, Tier};
use stripewise_planner::{FileTrace, Job, PlanOptions, PlannedBy, RequestSource, Survey, SurveyedFile, plan_by};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const PROCESSES: u64 = 64;

/// SplitMix64's output function: request `i` is a function of `i` alone, so that none is stored.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `number` of `stream`.
fn draw(stream: u64, number: u64) -> u64 {
    mix(mix(stream.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn cluster(hdds: u16, ssds: u16, ssd_bytes: Option<u64>) -> Cluster {
    let op = |min_ms: f64, max_ms: f64, mb_s: f64| OpProfile {
        startup_min_s: min_ms * 1e-3,
        startup_max_s: max_ms * 1e-3,
        transfer_s_per_byte: 1e-6 / mb_s,
        head: None,
    };
    let tier = |name: &str, servers: std::ops::Range<u16>, op: OpProfile, capacity_bytes| Tier {
        name: name.into(),
        servers: servers.map(ServerId).collect(),
        profile: Profile { read: op, write: op, network_s_per_byte: 0.0 },
        capacity_bytes,
        in_turn: false,
        at_once: 1,
    };
    let hdd = tier("hdd", 0..hdds, op(4.0, 12.0, 80.0), None);
    Cluster { tiers: vec![hdd, tier("ssd", hdds..hdds + ssds, op(0.08, 0.12, 400.0), ssd_bytes)], meta: None }
}

/// Request `i` of `count` of a file of `bytes`: four regions of unlike size and heat, any offset, sizes of 4 KiB to 4
/// MiB that are no power of two; the first half of the run writes mostly, the second reads.
fn mixed(i: u64, count: u64, bytes: u64) -> Request {
    let random = draw(1, i);
    let (region, usual) = [(0, 64 * KIB), (1, MIB), (1, MIB), (2, 256 * KIB), (3, 16 * KIB)][(random % 5) as usize];
    let size = usual / 4 + draw(2, i) % (usual * 7 / 4);
    let quarter = bytes / 4;
    let offset = region * quarter + draw(3, i) % (quarter - 2 * MIB);
    let write = (random >> 32) % 10 < if i < count / 2 { 8 } else { 1 };
    // Closed loops: every process has a request in flight at all times.
    let start_s = (i / PROCESSES) as f64 * 0.01;
    let op = if write { Op::Write } else { Op::Read };
    Request { offset, size, op, process: (i % PROCESSES) as u32, start_s, end_s: start_s + 0.01 }
}

/// Most memory that the process ever had, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * KIB
}

fn report(what: &str, begin: Instant, planned: &PlannedBy) {
    let plan = &planned.plan;
    let regions: usize = plan.files.iter().map(|file| file.regions.len()).sum();
    println!("{what}");
    println!("  seconds {:.2}", begin.elapsed().as_secs_f64());
    println!("  peak MB {:.0}", peak_bytes() as f64 / 1e6);
    println!("  regions {regions}, phases {}, predicted gain {:.2}", plan.phases.len(), plan.total.gain());
    for contender in planned.comparison.iter().flat_map(|comparison| &comparison.contenders) {
        match &contender.offer {
            Ok(offer) => println!("  {}: {:.1} s", contender.planner, offer.price.predicted_s),
            Err(error) => println!("  {}: {error}", contender.planner),
        }
    }
    if planned.comparison.is_some() {
        println!("  taken: {}", planned.planner);
    }
    if let Some(sampled) = plan.sampled {
        println!("  sample {} of {}, error bound {:.3} %", sampled.kept, sampled.of, 100.0 * sampled.error_bound);
    }
}

/// Requests that are made when they are asked for: as a trace on disk is, they are never in memory together.
struct Made {
    count: u64,
    bytes: u64,
}

impl RequestSource for Made {
    fn visit(&self, visit: &mut dyn FnMut(usize, &Request)) {
        (0..self.count).for_each(|i| visit(0, &mixed(i, self.count, self.bytes)));
    }
}

/// One file with many requests, half of its bytes fit on the SSDs.
fn requests(number: u64, planner: &str) {
    let bytes = 1024 * GIB;
    let cluster = cluster(6, 2, Some(bytes / 4));
    let begin = Instant::now();
    let files = vec![SurveyedFile { name: "file".into(), size_bytes: Some(bytes) }];
    let options = PlanOptions::default();
    let survey = Survey::new(files, &Made { count: number, bytes }, &options).expect("requests below 2^63");
    println!("  surveyed after {:.2} s", begin.elapsed().as_secs_f64());
    let files = survey.traces();
    let job = Job::surveyed(&survey, &files, &cluster, &options).expect("a job");
    let planned = plan_by(planner, &job).expect("a plan");
    report(&format!("{planner}, {number} requests of 4 KiB to 2 MiB at any offset of one file"), begin, &planned);
}

/// Many files, 20 requests each on the mean: most small and read, some large and written, a few hot.
fn files(number: u64, planner: &str) {
    let mut requests: Vec<Vec<Request>> = Vec::with_capacity(number as usize);
    let mut total = 0;
    for file in 0..number {
        let (kind, random) = (draw(7, file) % 20, draw(8, file));
        let (size, bytes, count, op) = match kind {
            0 => (4 * MIB, 256 * MIB + random % (256 * MIB), 60, Op::Write),
            1 | 2 => (256 * KIB, 16 * MIB + random % (16 * MIB), 80, Op::Read),
            _ => (16 * KIB + random % (112 * KIB), MIB + random % MIB, 12, Op::Read),
        };
        let request = |i: u64| {
            let number = file * 100 + i;
            let start_s = (number % 1000) as f64 * 0.1;
            let offset = draw(9, number) % (bytes - size);
            Request { offset, size, op, process: (number % PROCESSES) as u32, start_s, end_s: start_s + 0.1 }
        };
        requests.push((0..count).map(request).collect());
        total += bytes;
    }
    let cluster = cluster(48, 16, Some(total / 5 / 16));
    let begin = Instant::now();
    let mut files = Vec::with_capacity(requests.len());
    for (file, requests) in requests.iter().enumerate() {
        files.push(FileTrace { name: format!("out/{file}"), requests, size_bytes: None });
    }
    let options = PlanOptions::default();
    let job = Job::new(&files, &cluster, &options).expect("a job");
    let planned = plan_by(planner, &job).expect("a plan");
    let count: usize = requests.iter().map(Vec::len).sum();
    report(&format!("{planner}, {number} files, {count} requests"), begin, &planned);
}

/// One file over many servers.
fn servers(number: u64, planner: &str) {
    let ssds = (number / 5) as u16;
    let count = 200_000;
    let bytes = 64 * 1024 * GIB;
    let requests: Vec<Request> = (0..count).map(|i| mixed(i, count, bytes)).collect();
    let cluster = cluster(number as u16 - ssds, ssds, Some(2 * bytes / 5 / u64::from(ssds)));
    let begin = Instant::now();
    let files = [FileTrace { name: "file".into(), requests: &requests, size_bytes: Some(bytes) }];
    let options = PlanOptions::default();
    let job = Job::new(&files, &cluster, &options).expect("a job");
    let planned = plan_by(planner, &job).expect("a plan");
    report(&format!("{planner}, one file over {number} servers, {count} requests"), begin, &planned);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |usual: u64| arguments.get(1).map_or(Ok(usual), |text| text.parse::<u64>());
    let planner = arguments.get(2).map_or("regions", String::as_str);
    let run = |usual: u64, case: fn(u64, &str)| match number(usual) {
        Ok(number) => {
            case(number, planner);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("the number: {error}");
            ExitCode::FAILURE
        }
    };
    match arguments.first().map(String::as_str) {
        Some("requests") => run(100_000_000, requests),
        Some("files") => run(100_000, files),
        Some("servers") => run(10_000, servers),
        _ => {
            eprintln!("give one of: requests, files, servers");
            ExitCode::FAILURE
        }
    }
}
