//! What a plan costs: 1,000 programs that all use 10,000 servers. The goal is under 50 ms.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use stripewise_schedule::{
    Candidate, Eligibility, POLICY_NAMES, ProgramKey, ServerUseBy, SharedServer, Standing, StandingTracker,
    WindowReport, policies,
};

const PROGRAMS: u64 = 1_000;
const SERVERS: u32 = 10_000;

fn plan(bench: &mut Criterion) {
    let servers: Vec<_> = (0..SERVERS).map(|_| SharedServer { gap_bytes: 1e9, seek_ns: 8e6 }).collect();
    let by = |server| ServerUseBy { server, gap_bytes: 4096.0, reuse_ns: 1e6 + server as f32 };
    let programs: Vec<(ProgramKey, Vec<ServerUseBy>)> =
        (1..=PROGRAMS).map(|number| (ProgramKey(number), (0..SERVERS).map(by).collect())).collect();
    let mut group = bench.benchmark_group("1,000 programs on 10,000 servers");
    group.sample_size(20);
    for name in POLICY_NAMES {
        let mut policy = policies::named(name).expect("a policy of the list");
        let mut trackers = vec![StandingTracker::default(); programs.len()];
        group.bench_function(name, |bench| {
            bench.iter(|| {
                let candidates: Vec<_> = programs
                    .iter()
                    .zip(&mut trackers)
                    .map(|((program, uses), tracker)| {
                        let figures = Eligibility::of(black_box(&servers), black_box(uses));
                        let report =
                            WindowReport { figures, was_shared: true, was_active: true, gain: None, quarters: 4 };
                        let standing: Standing = tracker.step(&report);
                        Candidate {
                            program: *program,
                            standing,
                            reuse_ns: figures.reuse_ns,
                            weight: 1.0,
                            period_ns: None,
                            burst_age_ns: 1,
                            age_ns: 1,
                            load: Some(1.0),
                            is_busy: true,
                        }
                    })
                    .collect();
                policy.plan(&candidates, 500_000_000)
            });
        });
    }
}

criterion_group!(benches, plan);
criterion_main!(benches);
