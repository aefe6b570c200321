//! A plan from a survey of very many requests is that of the requests: its printed bound holds where all of them can be
//! priced.

#[path = "common/planned.rs"]
mod planned;

use stripewise_model::{Op, Request, presets};
use stripewise_planner::{FileTrace, Job, PlanOptions, RequestSource, Survey, SurveyedFile, plan_by};

struct Held<'a>(&'a [Request]);

impl RequestSource for Held<'_> {
    fn visit(&self, visit: &mut dyn FnMut(usize, &Request)) {
        self.0.iter().for_each(|request| visit(0, request));
    }
}

fn scattered(i: u64) -> u64 {
    let z = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 31)
}

/// Mixed sizes at any offset, the second half of the file hotter, writes before reads.
fn mixed(count: u64) -> Vec<Request> {
    let request = |i: u64| {
        let random = scattered(i);
        let size = [8 << 10, 200 << 10, 3 << 20][(random % 3) as usize] / 2 + scattered(i + count) % 100_000;
        let offset = scattered(i + 2 * count) % (1 << 32) + if random.is_multiple_of(5) { 0 } else { 1 << 32 };
        let start_s = (i / 16) as f64 * 0.1;
        let op = if i < count / 2 { Op::Write } else { Op::Read };
        Request { offset, size, op, process: (i % 16) as u32, start_s, end_s: start_s + 0.1 }
    };
    (0..count).map(request).collect()
}

#[test]
fn the_printed_bound_holds_against_all_requests() {
    let requests = mixed(60_000);
    let mut cluster = presets::set_p(6, 2, false);
    cluster.tiers[1].capacity_bytes = Some(2 << 30);
    let size_bytes = Some(9 << 30);
    let options = PlanOptions { max_entries: 3000, max_chunks: 64, simulations: 0, ..PlanOptions::default() };
    let files = vec![SurveyedFile { name: "f".into(), size_bytes }];
    let survey = Survey::new(files, &Held(&requests), &options).unwrap();
    let traces = survey.traces();
    let plan = plan_by("regions", &Job::surveyed(&survey, &traces, &cluster, &options).unwrap()).unwrap().plan;
    let sampled = plan.sampled.unwrap();
    assert!(sampled.kept < 6000 && sampled.of == 60_000, "{sampled:?}");
    assert!(sampled.error_bound < 0.1, "{sampled:?}");
    // Every request priced, in the phases and with the processes that all of them have.
    let all = PlanOptions { max_entries: requests.len(), ..options };
    let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes }];
    let default = stripewise_layout::Layout::striped((0..8).map(stripewise_layout::ServerId), 64 << 10).unwrap();
    for (layout, time_s) in [(default, plan.total.default_s), (plan.files[0].layout.clone(), plan.total.planned_s)] {
        let exact_s = Job::new(&files, &cluster, &all).unwrap().price(&[layout]).unwrap().predicted_s;
        assert!((time_s / exact_s - 1.0).abs() <= sampled.error_bound, "{time_s} {exact_s} {sampled:?}");
    }
    assert_eq!(plan.phases.iter().map(|phase| phase.requests).sum::<u64>(), 60_000);
    let bytes: u64 = requests.iter().map(|r| r.size).sum();
    assert_eq!(plan.phases.iter().map(|phase| phase.read_bytes + phase.written_bytes).sum::<u64>(), bytes);
}

#[test]
fn many_files_of_few_kinds_are_planned_by_kind_within_the_limits() {
    let cluster = {
        let mut cluster = presets::set_p(6, 2, false);
        cluster.tiers[1].capacity_bytes = Some(40 << 20);
        cluster
    };
    // 200 small hot files, 100 large cold ones.
    let requests: Vec<Vec<Request>> = (0..300_u64)
        .map(|file| {
            let (size, count, bytes) = if file % 3 < 2 { (64 << 10, 40, 256 << 10) } else { (1 << 20, 4, 16 << 20) };
            let request = |i: u64| {
                let start_s = (scattered(file * 100 + i) % 1000) as f64;
                let offset = scattered(file * 64 + i) % (bytes / size) * size;
                Request { offset, size, op: Op::Read, process: file as u32, start_s, end_s: start_s + 1.0 }
            };
            (0..count).map(request).collect()
        })
        .collect();
    let files: Vec<FileTrace> = requests
        .iter()
        .enumerate()
        .map(|(index, requests)| FileTrace { name: format!("f{index}"), requests, size_bytes: None })
        .collect();
    let plan = planned::plan(&files, &cluster, &PlanOptions::default()).unwrap();
    assert_eq!(plan.files.len(), 300);
    assert!(plan.total.planned_s <= plan.total.default_s);
    assert!(plan.tiers[1].planned_bytes <= 80 << 20);
    let bytes: u64 = plan.files.iter().map(|file| file.extent_bytes).sum();
    assert_eq!(plan.tiers.iter().map(|tier| tier.planned_bytes).sum::<u64>(), bytes);
    let shares: f64 = plan.files.iter().flat_map(|file| &file.regions).map(|region| region.times.planned_s).sum();
    assert!((shares - plan.total.planned_s).abs() < 1e-6 * plan.total.planned_s);
    // Alike: the small hot ones have one layout.
    assert_eq!(plan.files[0].layout, plan.files[1].layout);
}
