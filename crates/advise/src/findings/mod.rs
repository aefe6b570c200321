//! What matters beside layouts, often more: each finding with its figures, how grave it is, and how to mend it.

mod finding;
mod requests;
mod run;

pub(crate) use finding::FindingContext;
pub use finding::{Finding, Severity};

use crate::slow::Slow;
use crate::usage::Use;
use requests::{collective_off, random_reads, tiny, unaligned};
use run::{imbalance, metadata, one_rank, slow_server, stragglers};

/// On files of one kind, the gravest first.
pub(crate) fn of_files(used: &Use, around: &FindingContext) -> Vec<Finding> {
    let found = [
        collective_off(used),
        tiny(used),
        random_reads(used),
        unaligned(used, around),
        one_rank(used, around.processes),
        imbalance(used),
        stragglers(used),
    ];
    let mut found: Vec<Finding> = found.into_iter().flatten().collect();
    if around.weight < 0.01 {
        // What moves next to nothing cannot cost much.
        found.iter_mut().for_each(|finding| finding.severity = Severity::Low);
    }
    sorted(found)
}

/// On the whole of a run, what only it shows.
pub(crate) fn of_run(used: &Use, processes: usize, slow: Option<&Slow>) -> Vec<Finding> {
    sorted([metadata(used), one_rank(used, processes), slow.map(slow_server)].into_iter().flatten().collect())
}

fn sorted(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.kind));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slow::SlowServer;
    use crate::usage::{RankUse, RequestCounts};

    fn around() -> FindingContext {
        FindingContext { processes: 8, weight: 1.0, width_bytes: 1 << 20 }
    }

    fn names(found: &[Finding]) -> Vec<&'static str> {
        found.iter().map(|finding| finding.kind).collect()
    }

    /// 8 ranks that write 1000 requests of `size` bytes each.
    fn shared(size: u64) -> Use {
        let mut used = Use::default();
        used.sharers = 8;
        used.writes = RequestCounts {
            count: 8000,
            bytes: 8000 * size,
            placed: 8000,
            consecutive: 8000,
            ..RequestCounts::default()
        };
        used.ranks = (0..8).map(|rank| (rank, RankUse { bytes: 1000 * size, busy_s: 1.0 })).collect();
        (0..8000).for_each(|n| used.took(f64::from(n), f64::from(n) + 1e-3));
        used
    }

    #[test]
    fn large_and_even_requests_have_no_finding() {
        assert_eq!(of_files(&shared(4 << 20), &around()), []);
        assert_eq!(of_files(&Use::default(), &around()), []);
        assert_eq!(of_run(&shared(4 << 20), 8, None), []);
        assert_eq!(of_run(&Use::default(), 0, None), []);
    }

    #[test]
    fn each_habit_is_found_with_its_figures_and_its_remedy() {
        let change = |edit: &dyn Fn(&mut Use)| {
            let mut used = shared(1 << 20);
            edit(&mut used);
            of_files(&used, &around())
        };
        let strided = change(&|used| {
            used.writes = RequestCounts {
                count: 8000,
                bytes: 8000 << 14,
                small: 8000,
                placed: 8000,
                skipping: 8000,
                ..RequestCounts::default()
            };
            used.independent = 8000;
        });
        assert_eq!(names(&strided), ["collective-off"]);
        assert_eq!(strided[0].severity, Severity::High);
        assert!(
            strided[0]
                .words
                .starts_with("8 ranks write 8000 pieces by independent MPI-IO, 100 % of them below 256KiB (16KiB"),
            "{}",
            strided[0].words
        );
        assert!(strided[0].mend[0].contains("MPI_File_write_at_all"));
        assert_eq!(names(&change(&|used| used.writes.tiny = 6000)), ["tiny-requests"]);
        assert_eq!(names(&change(&|used| used.writes.unaligned = 7000)), ["unaligned"]);
        assert_eq!(names(&change(&|used| used.ranks.get_mut(&3).unwrap().bytes = 8000 << 20)), ["rank-imbalance"]);
        assert_eq!(names(&change(&|used| used.ranks.get_mut(&3).unwrap().bytes = 800_000 << 20)), ["one-rank"]);
        assert_eq!(names(&change(&|used| (0..9).for_each(|_| used.took(0.0, 5.0)))), ["stragglers"]);
        let random = change(&|used| {
            used.reads = RequestCounts {
                count: 5000,
                bytes: 5000 << 10,
                placed: 5000,
                backward: 2500,
                skipping: 2500,
                ..RequestCounts::default()
            };
        });
        assert_eq!(names(&random), ["random-reads"]);
        let light = FindingContext { weight: 0.001, ..around() };
        let mut used = shared(1 << 20);
        used.writes.tiny = 8000;
        assert_eq!(of_files(&used, &light)[0].severity, Severity::Low);
    }

    #[test]
    fn collective_calls_are_not_asked_for_twice() {
        let mut used = shared(1 << 14);
        used.writes.small = 8000;
        (used.writes.consecutive, used.writes.skipping) = (0, 8000);
        assert_eq!(names(&of_files(&used, &around())), ["collective-off"]);
        used.collective = 100;
        assert_eq!(names(&of_files(&used, &around())), Vec::<&str>::new());
    }

    #[test]
    fn storms_and_slow_servers_are_of_the_run() {
        let mut used = shared(1 << 20);
        (used.opens, used.meta_s) = (20_000, 12.0);
        let slow = Slow {
            servers: vec![SlowServer { server: 2, name: "ost.2".into(), bytes_per_s: 1e6 }],
            median_bytes_per_s: 1e8,
            compared: 9,
        };
        let found = of_run(&used, 8, Some(&slow));
        assert_eq!(names(&found), ["metadata-storm", "slow-server"]);
        assert!(found[1].mend[0].contains("ost.2"));
    }
}
