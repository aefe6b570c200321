//! The planner that `docs/adding-a-planner.md` adds, with its tests: it stays outside the list.

use stripewise_layout::Layout;
use stripewise_model::{Op, Request, Tier, presets};
use stripewise_planner::planners::{Planner, propose};
use stripewise_planner::{FileTrace, Job, PlanError, PlanOptions};

/// Every file over the servers of the tier whose requests start first.
struct FirstTier;

impl Planner for FirstTier {
    fn name(&self) -> &'static str {
        "first-tier"
    }

    fn source(&self) -> &'static str {
        "docs/adding-a-planner.md"
    }

    fn summary(&self) -> &'static str {
        "every file over the tier with the shortest startup"
    }

    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        let startup_s = |tier: &Tier| tier.profile.read.startup_max_s + tier.profile.write.startup_max_s;
        let tiers = job.cluster.tiers.iter().filter(|tier| !tier.servers.is_empty());
        let Some(first) = tiers.min_by(|a, b| startup_s(a).total_cmp(&startup_s(b))) else {
            return Err(PlanError::NoServer);
        };
        let layout = Layout::striped(first.servers.iter().copied(), job.options.default_width_bytes)
            .expect("a job has checked its servers and its default width");
        Ok(vec![layout; job.files.len()])
    }
}

/// Small reads far apart, for which a startup costs more than the transfer.
fn small_reads() -> Vec<Request> {
    let read = |n: u64| Request { offset: n << 20, size: 4096, op: Op::Read, process: 0, start_s: 0.0, end_s: 0.0 };
    (0..64).map(read).collect()
}

#[test]
fn small_reads_are_faster_on_the_first_tier() {
    let cluster = presets::set_ab(6, 2); // six HDDs, then two SSDs
    let requests = small_reads();
    let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: None }];
    let options = PlanOptions::default();
    let job = Job::new(&files, &cluster, &options).unwrap();
    let proposal = propose(&FirstTier, &job).unwrap();
    assert_eq!(proposal.layouts[0].servers(), cluster.tiers[1].servers);
    let default = job.price(&job.default_layouts()).unwrap();
    assert!(proposal.price.predicted_s < default.predicted_s, "{} s", proposal.price.predicted_s);
}

#[test]
fn the_frame_takes_the_default_where_it_has_the_lower_price() {
    let mut cluster = presets::set_ab(6, 2);
    // The first tier transfers so slowly that a whole file on it takes longer than on all servers.
    cluster.tiers[1].profile.read.transfer_s_per_byte = 1e-3;
    let requests = small_reads();
    let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: None }];
    let options = PlanOptions::default();
    let job = Job::new(&files, &cluster, &options).unwrap();
    let proposal = propose(&FirstTier, &job).unwrap();
    assert!(proposal.kept_default);
    assert_eq!(proposal.layouts, job.default_layouts());
}
