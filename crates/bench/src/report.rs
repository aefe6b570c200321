//! Results: what was measured, as a table for people and as JSON.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::{Map, Value};
use stripewise_layout::units::format_bytes;

use crate::options::{BenchApi, RegionSpec};
use crate::process::GroupTimes;
use crate::run::BenchRun;
use crate::workload::PhaseKind;

/// What the processes of a run measured.
pub trait Figures {
    /// Bytes that were checked by all processes.
    fn verified_bytes(&self) -> u64;

    /// The time of one request in nanoseconds.
    fn time_ns(&self, phase: PhaseKind, rank: u32, request: usize) -> u64;

    /// The span of a process in a group.
    fn span(&self, phase: PhaseKind, rank: u32, group: usize) -> GroupTimes;
}

/// A run.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    workload: &'static str,
    file: String,
    /// Of all instances.
    processes: u32,
    instances: u32,
    /// What the workload was asked for.
    #[serde(flatten)]
    settings: Map<String, Value>,
    api: BenchApi,
    collective: bool,
    barrier: bool,
    think_s: f64,
    direct: bool,
    fsync: bool,
    spin_barrier: bool,
    seed: u64,
    /// Name and version of the MPI library.
    #[serde(skip_serializing_if = "Option::is_none")]
    mpi_library: Option<String>,
    /// Writes, then reads, as far as they were asked for.
    phases: Vec<PhaseReport>,
    /// Bytes found to be what was written there; absent when nothing was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified_bytes: Option<u64>,
    #[serde(skip)]
    heading: String,
}

/// A phase.
#[derive(Debug, Serialize)]
struct PhaseReport {
    op: &'static str,
    #[serde(flatten)]
    total: Measured,
    /// Parts of the file that have requests of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    regions: Vec<RegionReport>,
    /// Requests by their size, in a workload without regions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sizes: Vec<SizeReport>,
    /// Each instance, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    instances: Vec<Measured>,
}

/// Requests of a size in a phase.
#[derive(Debug, Serialize)]
struct SizeReport {
    /// Bytes; absent where processes differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_size: Option<u64>,
    #[serde(flatten)]
    measured: Measured,
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

impl BenchReport {
    /// Reads the measurements of a run that has ended.
    pub fn new(run: &BenchRun<'_>, figures: &dyn Figures, mpi_library: Option<String>) -> Self {
        let common = run.common;
        let asked = [(PhaseKind::Write, common.writes()), (PhaseKind::Read, common.reads())];
        Self {
            workload: run.workload.name(),
            file: common.file.display().to_string(),
            processes: run.processes(),
            instances: common.instances,
            settings: run.workload.settings(),
            api: run.api,
            collective: run.collective,
            barrier: common.barrier,
            think_s: common.think,
            direct: common.direct,
            fsync: common.fsync,
            spin_barrier: common.spin_barrier,
            seed: common.seed,
            mpi_library,
            phases: asked
                .into_iter()
                .filter(|(_, asked)| *asked)
                .map(|(phase, _)| PhaseReport::new(phase, run, figures))
                .collect(),
            verified_bytes: common.verify.map(|_| figures.verified_bytes()),
            heading: heading(run),
        }
    }
}

/// What was run, in a line.
fn heading(run: &BenchRun<'_>) -> String {
    let count = |count: u32, one: &str, several: &str| format!("{count} {}", if count == 1 { one } else { several });
    let processes = count(run.workload.processes(), "process", "processes");
    let mut words = vec![match run.common.instances {
        1 => processes,
        instances => format!("{instances} instances of {processes}"),
    }];
    words.push(run.workload.describe());
    if run.api == BenchApi::MpiIo {
        words.push(if run.collective { "collective MPI-IO".into() } else { "MPI-IO".into() });
    }
    if run.common.barrier {
        words.push("barriers".into());
    }
    let name = match run.workload.name() {
        "ior" => String::new(),
        name => format!("{name}: "),
    };
    format!("{name}{}, seed {}: {}", words.join(", "), run.common.seed, run.common.file.display())
}

/// Requests that are reported together, while they are collected.
#[derive(Debug, Clone, Default)]
struct Collected {
    times_ns: Vec<u64>,
    bytes: u64,
    /// Of each process that had any.
    spans: Vec<GroupTimes>,
}

impl Collected {
    fn measured(self) -> Measured {
        let first_ns = self.spans.iter().map(|span| span.first_ns).min().unwrap_or(0);
        let last_ns = self.spans.iter().map(|span| span.last_ns).max().unwrap_or(0);
        Measured::new(self.times_ns, self.bytes, first_ns, last_ns)
    }
}

impl PhaseReport {
    /// Cost: linear in the requests, and sorts their times.
    fn new(phase: PhaseKind, run: &BenchRun<'_>, figures: &dyn Figures) -> Self {
        let groups = run.workload.groups();
        let several = run.common.instances > 1;
        let mut total = Collected::default();
        let mut of_group = vec![Collected::default(); groups.len()];
        let mut of_instance = vec![Collected::default(); if several { run.common.instances as usize } else { 0 }];
        for rank in 0..run.processes() {
            let (instance, local_rank) = run.place_of(rank);
            let mut own = of_instance.get_mut(instance as usize);
            let requests = run.workload.requests(phase, local_rank, run.owner(phase, local_rank));
            for (i, request) in requests.iter().enumerate() {
                let time_ns = figures.time_ns(phase, rank, i);
                let group = &mut of_group[request.group as usize];
                for collected in [Some(&mut total), Some(group), own.as_deref_mut()].into_iter().flatten() {
                    collected.times_ns.push(time_ns);
                    collected.bytes += request.bytes;
                }
            }
            for (group, collected) in of_group.iter_mut().enumerate() {
                let span = figures.span(phase, rank, group);
                for collected in [Some(&mut total), Some(collected), own.as_deref_mut()].into_iter().flatten() {
                    collected.spans.push(span);
                }
            }
        }
        let (mut regions, mut sizes) = (Vec::new(), Vec::new());
        for (group, collected) in groups.iter().zip(of_group) {
            let measured = collected.measured();
            match group.region {
                Some(RegionSpec { offset, length, request_size, heat }) => {
                    regions.push(RegionReport { offset, length, request_size, heat, measured });
                }
                None => sizes.push(SizeReport { request_size: group.request_size, measured }),
            }
        }
        Self {
            op: if phase == PhaseKind::Write { "write" } else { "read" },
            total: total.measured(),
            regions,
            sizes,
            instances: of_instance.into_iter().map(Collected::measured).collect(),
        }
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

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.heading)?;
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
            for size in &phase.sizes {
                let request = size.request_size.map_or("mixed".into(), format_bytes);
                rows.push(row(phase.op, String::new(), request, &size.measured));
            }
            for (number, instance) in phase.instances.iter().enumerate() {
                rows.push(row(phase.op, format!("instance {number}"), String::new(), instance));
            }
            if phase.regions.len() + phase.sizes.len() > 1 {
                rows.push(row(phase.op, "all".into(), "mixed".into(), &phase.total));
            }
        }
        // No column for regions where there are none.
        let kept: Vec<usize> =
            (0..HEADINGS.len()).filter(|&column| rows[1..].iter().any(|row| !row[column].is_empty())).collect();
        let mut widths = [0; HEADINGS.len()];
        for row in &rows {
            widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
        }
        for row in &rows {
            let mut line = String::new();
            for &i in &kept {
                let (cell, width) = (&row[i], widths[i]);
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
