//! Repetitions of a run with other draws, and what they say together.

use crate::error::SimulateError;
use crate::program::StepProgram;
use crate::report::SimulationReport;
use crate::run::run;
use crate::system::System;
use rayon::prelude::*;
use stripewise_layout::Layout;
use stripewise_model::Cluster;

/// A mean with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half the width of the interval by Student's t: the true mean is within it of [`Estimate::mean`] in 95 of 100
    /// cases, when single values are about normal. `None` with one value, which says nothing of its spread.
    pub half_width: Option<f64>,
    /// Number of values.
    pub values: usize,
}

impl Estimate {
    /// Of values that were drawn independently. O(n).
    pub fn of(values: &[f64]) -> Self {
        let n = values.len();
        let mean = if n == 0 { 0.0 } else { values.iter().sum::<f64>() / n as f64 };
        let half_width = (n > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
            student_t_975(n - 1) * (squares / (n - 1) as f64 / n as f64).sqrt()
        });
        Self { mean, half_width, values: n }
    }
}

/// The 97.5 % quantile of Student's t with 1 to 30 degrees of freedom.
const STUDENT_T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Beyond the table by the first terms of Cornish and Fisher's expansion about the normal quantile: off by less than
/// 0.0002 there.
fn student_t_975(freedom: usize) -> f64 {
    if let Some(&t) = STUDENT_T_975.get(freedom - 1) {
        return t;
    }
    let (z, v) = (1.959_964_f64, freedom as f64);
    let (z3, z5) = (z.powi(3), z.powi(5));
    z + (z3 + z) / (4.0 * v) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * v * v)
}

/// Result of [`repeat`].
#[derive(Debug, Clone, PartialEq)]
pub struct Repeated {
    /// The run of the first seed, with all that it has.
    pub first: SimulationReport,
    /// Bytes per second of each run, in order of seed.
    pub throughputs: Vec<f64>,
    /// Of [`Repeated::throughputs`].
    pub throughput: Estimate,
    /// Seconds until the last process ended.
    pub makespan_s: Estimate,
    /// Mean latency in seconds.
    pub latency_mean_s: Estimate,
    /// Median latency in seconds.
    pub latency_p50_s: Estimate,
    /// 95th percentile in seconds.
    pub latency_p95_s: Estimate,
    /// 99th percentile in seconds.
    pub latency_p99_s: Estimate,
    /// Longest latency of each run, in seconds.
    pub latency_max_s: Estimate,
    /// Seconds that each server's device was busy, by server.
    pub busy_s: Vec<Estimate>,
    /// Seconds of it that were startups.
    pub startup_s: Vec<Estimate>,
    /// Seconds that sub-requests waited for each device, added up.
    pub waiting_s: Vec<Estimate>,
}

/// [`run`](run()) with the seeds `seed`, `seed + 1`, ... `seed + runs - 1` (at least one), on all threads of rayon's
/// pool. The result does not depend on how many there are.
///
/// # Errors
/// As [`run`](run()); of several runs that fail, the first one's.
pub fn repeat<P: StepProgram>(
    cluster: &Cluster,
    layouts: &[Layout],
    program: &P,
    system: &System,
    seed: u64,
    runs: usize,
) -> Result<Repeated, SimulateError> {
    let untimed = System { bins: 0, ..system.clone() };
    let reports: Vec<Result<SimulationReport, SimulateError>> = (0..runs.max(1) as u64)
        .into_par_iter()
        .map(|number| {
            let system = if number == 0 { system } else { &untimed };
            run(cluster, layouts, program, system, seed.wrapping_add(number))
        })
        .collect();
    let mut reports = reports.into_iter().collect::<Result<Vec<SimulationReport>, SimulateError>>()?;
    let each = |value: &dyn Fn(&SimulationReport) -> f64| reports.iter().map(value).collect::<Vec<f64>>();
    let of = |value: &dyn Fn(&SimulationReport) -> f64| Estimate::of(&each(value));
    let throughputs = each(&|report| report.outcome.throughput());
    let servers = reports[0].outcome.servers.len();
    let (throughput, makespan_s) = (Estimate::of(&throughputs), of(&|report| report.outcome.makespan_s));
    let (latency_mean_s, latency_p50_s) =
        (of(&|report| report.outcome.latency.mean_s), of(&|report| report.outcome.latency.p50_s));
    let (latency_p95_s, latency_p99_s) =
        (of(&|report| report.outcome.latency.p95_s), of(&|report| report.outcome.latency.p99_s));
    let latency_max_s = of(&|report| report.outcome.latency.max_s);
    let of_servers = |value: &dyn Fn(&SimulationReport, usize) -> f64| {
        (0..servers).map(|server| of(&|report| value(report, server))).collect::<Vec<Estimate>>()
    };
    let busy_s = of_servers(&|report, server| report.outcome.servers[server].busy_s);
    let startup_s = of_servers(&|report, server| report.queues[server].startup_s);
    let waiting_s = of_servers(&|report, server| report.outcome.servers[server].waiting_s);
    Ok(Repeated {
        throughputs,
        throughput,
        makespan_s,
        latency_mean_s,
        latency_p50_s,
        latency_p95_s,
        latency_p99_s,
        latency_max_s,
        busy_s,
        startup_s,
        waiting_s,
        first: reports.swap_remove(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_students() {
        let estimate = Estimate::of(&[9.0, 10.0, 11.0]);
        // s = 1, 1/sqrt(3) = 0.57735, t(2) = 4.303.
        assert!((estimate.mean - 10.0).abs() < 1e-12);
        assert!((estimate.half_width.unwrap() - 2.4843).abs() < 1e-3);
        assert_eq!(Estimate::of(&[4.0]), Estimate { mean: 4.0, half_width: None, values: 1 });
        assert_eq!(Estimate::of(&[]).mean, 0.0);
    }

    #[test]
    fn the_quantile_goes_on_beyond_its_table() {
        // Published values.
        for (freedom, t) in [(40, 2.0211), (60, 2.0003), (120, 1.9799), (1_000_000, 1.96)] {
            assert!((student_t_975(freedom) - t).abs() < 2e-4, "{freedom}");
        }
        assert!(student_t_975(30) > student_t_975(31) && student_t_975(31) > student_t_975(32));
    }
}
