//! Results: what was measured, as a table for people and as JSON.

use std::fmt::{self, Write as _};

use serde::Serialize;
use stripewise_layout::units::format_bytes;

use crate::options::{Api, Options, Pattern, RegionOrder};
use crate::shared::Shared;
use crate::workload::{Phase, Workload};

/// A run.
#[derive(Debug, Serialize)]
pub struct Report {
    file: String,
    processes: u32,
    file_per_process: bool,
    pattern: Pattern,
    region_order: RegionOrder,
    api: Api,
    direct: bool,
    fsync: bool,
    spin_barrier: bool,
    seed: u64,
    /// Writes, then reads, as far as they were asked for.
    phases: Vec<PhaseReport>,
    /// Bytes found to be what was written there; absent when nothing was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified_bytes: Option<u64>,
}

/// A phase.
#[derive(Debug, Serialize)]
struct PhaseReport {
    op: &'static str,
    #[serde(flatten)]
    total: Measured,
    regions: Vec<RegionReport>,
}

/// A region in a phase.
#[derive(Debug, Serialize)]
struct RegionReport {
    offset: u64,
    length: u64,
    request_size: u64,
    heat: f64,
    #[serde(flatten)]
    measured: Measured,
}

/// Requests and how long they took.
#[derive(Debug, Serialize)]
struct Measured {
    requests: u64,
    bytes: u64,
    /// From the begin of the first request of any process to the end of the last.
    seconds: f64,
    bytes_per_second: f64,
    latency_s: Latency,
}

/// Times of single requests in seconds.
#[derive(Debug, Serialize)]
struct Latency {
    mean: f64,
    min: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Measured {
    fn new(mut times_ns: Vec<u64>, bytes: u64, first_ns: u64, last_ns: u64) -> Self {
        times_ns.sort_unstable();
        let requests = times_ns.len();
        let seconds = last_ns.saturating_sub(first_ns) as f64 * 1e-9;
        // The least time that at least this share of the requests did not exceed.
        let quantile = |q: f64| {
            let rank = (q * requests as f64).ceil() as usize;
            times_ns.get(rank.clamp(1, requests.max(1)) - 1).map_or(0.0, |&ns| ns as f64 * 1e-9)
        };
        let mean = times_ns.iter().map(|&ns| ns as f64).sum::<f64>() * 1e-9 / requests.max(1) as f64;
        let latency_s = Latency {
            mean,
            min: quantile(0.0),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max: quantile(1.0),
        };
        let bytes_per_second = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
        Self { requests: requests as u64, bytes, seconds, bytes_per_second, latency_s }
    }
}

impl Report {
    /// Reads the measurements of a run that has ended.
    pub fn new(options: &Options, workload: &Workload, shared: &Shared) -> Self {
        let asked = [(Phase::Write, options.writes()), (Phase::Read, options.reads())];
        Self {
            file: options.file.display().to_string(),
            processes: options.processes,
            file_per_process: options.file_per_process,
            pattern: options.pattern,
            region_order: options.region_order,
            api: options.api,
            direct: options.direct,
            fsync: options.fsync,
            spin_barrier: options.spin_barrier,
            seed: options.seed,
            phases: asked
                .into_iter()
                .filter(|(_, asked)| *asked)
                .map(|(phase, _)| PhaseReport::new(phase, workload, shared))
                .collect(),
            verified_bytes: options.verify.map(|_| shared.verified_bytes()),
        }
    }
}

impl PhaseReport {
    fn new(phase: Phase, workload: &Workload, shared: &Shared) -> Self {
        let count = workload.regions.len();
        let mut times_ns = vec![Vec::new(); count];
        let mut spans = vec![(u64::MAX, 0); count];
        for rank in 0..workload.processes {
            for (i, request) in workload.requests(phase, rank).iter().enumerate() {
                times_ns[request.region as usize].push(shared.time(phase as usize, rank, i));
            }
            for (region, (first_ns, last_ns)) in spans.iter_mut().enumerate() {
                let span = shared.span(phase as usize, rank, region);
                *first_ns = span.first_ns.min(*first_ns);
                *last_ns = span.last_ns.max(*last_ns);
            }
        }
        let first_ns = spans.iter().map(|span| span.0).min().unwrap_or(0);
        let last_ns = spans.iter().map(|span| span.1).max().unwrap_or(0);
        let bytes = |region: usize| {
            let plan = &workload.regions[region];
            plan.requests * plan.spec.request_size * u64::from(workload.processes)
        };
        let total = Measured::new(times_ns.concat(), (0..count).map(bytes).sum(), first_ns, last_ns);
        let regions = times_ns
            .into_iter()
            .enumerate()
            .map(|(region, times_ns)| {
                let spec = workload.regions[region].spec;
                RegionReport {
                    offset: spec.offset,
                    length: spec.length,
                    request_size: spec.request_size,
                    heat: spec.heat,
                    measured: Measured::new(times_ns, bytes(region), spans[region].0, spans[region].1),
                }
            })
            .collect();
        Self { op: if phase == Phase::Write { "write" } else { "read" }, total, regions }
    }
}

/// Three significant digits.
fn digits(value: f64) -> String {
    let decimals = match value {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

fn duration(seconds: f64) -> String {
    match seconds {
        1.0.. => format!("{} s", digits(seconds)),
        1e-3.. => format!("{} ms", digits(seconds * 1e3)),
        _ => format!("{} us", digits(seconds * 1e6)),
    }
}

fn bytes(value: f64) -> String {
    match value {
        1_073_741_824.0.. => format!("{} GiB", digits(value / 1_073_741_824.0)),
        1_048_576.0.. => format!("{} MiB", digits(value / 1_048_576.0)),
        1024.0.. => format!("{} KiB", digits(value / 1024.0)),
        _ => format!("{value:.0} B"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = if self.file_per_process { "a file each" } else { "one file" };
        let processes = if self.processes == 1 { "1 process".into() } else { format!("{} processes", self.processes) };
        let pattern = format!("{:?}", self.pattern).to_lowercase();
        writeln!(f, "{processes}, {files}, {pattern}, seed {}: {}", self.seed, self.file)?;
        const HEADINGS: [&str; 10] =
            ["phase", "region", "request", "requests", "bytes", "time", "per second", "p50", "p99", "max"];
        let mut rows = vec![HEADINGS.map(str::to_owned)];
        let row = |op: &str, region: String, request: String, m: &Measured| {
            let latency = &m.latency_s;
            [
                op.to_owned(),
                region,
                request,
                m.requests.to_string(),
                bytes(m.bytes as f64),
                duration(m.seconds),
                bytes(m.bytes_per_second),
                duration(latency.p50),
                duration(latency.p99),
                duration(latency.max),
            ]
        };
        for phase in &self.phases {
            for region in &phase.regions {
                let from = format!("{} +{}", format_bytes(region.offset), format_bytes(region.length));
                rows.push(row(phase.op, from, format_bytes(region.request_size), &region.measured));
            }
            if phase.regions.len() > 1 {
                rows.push(row(phase.op, "all".into(), "mixed".into(), &phase.total));
            }
        }
        let mut widths = [0; HEADINGS.len()];
        for row in &rows {
            widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
        }
        for row in &rows {
            let mut line = String::new();
            for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
                // Names to the left, numbers to the right.
                if i < 2 {
                    write!(line, "{cell:<width$}  ")?;
                } else {
                    write!(line, "{cell:>width$}  ")?;
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        if let Some(verified) = self.verified_bytes {
            writeln!(f, "{} verified: every byte is what was written there last", bytes(verified as f64))?;
        }
        Ok(())
    }
}
