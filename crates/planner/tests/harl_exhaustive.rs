//! HARL's planners from end to end against the exhaustive search of every region of Algorithm 1.

#[path = "common/random.rs"]
mod random;

use random::Random;
use stripewise_layout::Layout;
use stripewise_model::{Cluster, Op, Request, TierWidths, presets};
use stripewise_planner::harl::{self, HarlOptions};
use stripewise_planner::planners::by_name;
use stripewise_planner::stripe_search::{SearchOptions, exhaustive};
use stripewise_planner::{FileTrace, Job, PlanOptions};

fn cluster(random: &mut Random) -> Cluster {
    let (hdds, ssds) = (1 + random.below(6) as u16, 1 + random.below(4) as u16);
    match random.below(4) {
        0 => presets::set_b(hdds, ssds),
        1 => presets::set_p(hdds, ssds, true),
        2 => presets::set_p(hdds, ssds, false),
        _ => presets::set_ab(hdds, ssds),
    }
}

/// Up to three parts of the file, each with requests of a size of its own, far enough apart for as many regions.
fn requests(random: &mut Random) -> Vec<Request> {
    let mut all = Vec::new();
    for part in 0..1 + random.below(3) {
        let size = 4096 * (1 + random.below(24));
        let varied = random.below(2) == 0;
        for _ in 0..3 + random.below(12) {
            let size = if varied { size + random.below(4096) } else { size };
            let offset = (part << 27) + random.below(512) * 4096 + if varied { random.below(4096) } else { 0 };
            let op = if random.below(2) == 0 { Op::Read } else { Op::Write };
            all.push(Request { offset, size, op, process: 0, start_s: 0.0, end_s: 0.0 });
        }
    }
    all
}

/// Algorithm 1, then every pair of the grid on every request of each region.
fn expected(requests: &[Request], cluster: &Cluster, extra: bool, max_regions: usize) -> Layout {
    let mut sorted = requests.to_vec();
    sorted.sort_by_key(|request| (request.offset, request.size));
    let (divisions, _) = harl::divide(&sorted, &HarlOptions { max_regions, ..HarlOptions::default() });
    assert!(divisions.len() <= max_regions);
    let options = SearchOptions { extra, ..SearchOptions::default() };
    let rows = divisions
        .iter()
        .map(|division| (division.offset, exhaustive(&sorted[division.requests.clone()], cluster, &options).widths));
    let mut rows: Vec<(u64, TierWidths)> = rows.collect();
    rows.dedup_by_key(|row| row.1);
    TierWidths::layout(&rows, cluster).unwrap()
}

#[test]
fn both_planners_find_the_exhaustive_optimum_of_every_region() {
    let mut random = Random(0x4A21);
    let mut several = 0;
    for instance in 0..200 {
        let (cluster, requests) = (cluster(&mut random), requests(&mut random));
        let max_regions = if random.below(4) == 0 { 1 } else { 128 };
        let options = PlanOptions { max_regions, ..PlanOptions::default() };
        let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: None }];
        let job = Job::new(&files, &cluster, &options).unwrap();
        for (name, extra) in [("harl-paper", false), ("harl", true)] {
            let planned = by_name(name).unwrap().plan(&job).unwrap();
            assert_eq!(planned, [expected(&requests, &cluster, extra, max_regions)], "{name}, instance {instance}");
            several += usize::from(planned[0].regions().len() > 1);
        }
    }
    assert!(several > 20, "{several} plans of several regions");
}
