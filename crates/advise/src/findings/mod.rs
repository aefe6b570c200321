//! What matters beside layouts, often more: each finding with its figures, how grave it is, and how to mend it.

mod collective;
mod finding;
mod requests;
mod run;
mod small_files;

pub(crate) use finding::FindingContext;
pub use finding::{Finding, Hints, Severity};
pub(crate) use run::doubt_times;
pub(crate) use small_files::small_files;

use crate::slow::Slow;
use crate::usage::Use;
use collective::{
    amplification, blocking, collective_off, empty, few_writers, hdf5_metadata, layers, read_modify_write,
};
use requests::{again, off_alignment, random, small, tiny, unaligned};
use run::{imbalance, metadata, one_rank, rank_time, slow_server, stdio, stragglers};

/// Findings that have in them that requests are small.
const BETTER_THAN_SMALL: [&str; 4] = ["collective-off", "hdf5-metadata", "random-reads", "random-writes"];

/// On files of one kind, the gravest first.
pub(crate) fn of_files(used: &Use, around: &FindingContext) -> Vec<Finding> {
    let found = [
        collective_off(used, around),
        few_writers(used, around),
        hdf5_metadata(used, around),
        read_modify_write(used),
        amplification(used),
        tiny(used),
        small(used),
        empty(used),
        random(used),
        again(used),
        unaligned(used, around),
        off_alignment(used, around),
        one_rank(used, around.processes),
        imbalance(used),
        stragglers(used),
        rank_time(used),
        layers(used),
        blocking(used),
    ];
    let mut found: Vec<Finding> = found.into_iter().flatten().collect();
    // What says why requests are small, or how they lie, says it better.
    if found.iter().any(|finding| BETTER_THAN_SMALL.contains(&finding.kind)) {
        found.retain(|finding| finding.kind != "small-requests");
    }
    // Nor are the same reads told again as tiny ones, and as ones that jump.
    if found.iter().any(|finding| finding.kind == "hdf5-metadata") {
        let mostly_reads = used.reads.tiny * 10 >= 9 * used.both().tiny;
        found.retain(|finding| finding.kind != "random-reads" && (finding.kind != "tiny-requests" || !mostly_reads));
    }
    if around.weight < 0.01 {
        // What moves next to nothing cannot cost much.
        found.iter_mut().for_each(|finding| finding.severity = Severity::Low);
    }
    sorted(found)
}

/// On the whole of a run, what only it shows.
pub(crate) fn of_run(used: &Use, processes: usize, slow: Option<&Slow>) -> Vec<Finding> {
    sorted(
        [metadata(used, processes), one_rank(used, processes), stdio(used, processes), slow.map(slow_server)]
            .into_iter()
            .flatten()
            .collect(),
    )
}

fn sorted(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.kind));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::AskedCalls;
    use crate::slow::SlowServer;
    use crate::usage::{RankUse, RequestCounts};

    fn around() -> FindingContext {
        FindingContext {
            processes: 8,
            weight: 1.0,
            width_bytes: 1 << 20,
            stripes: 1,
            on_lustre: true,
            nodes: None,
            targets: None,
            is_hdf5: false,
        }
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
        used.ranks = (0..8)
            .map(|rank| (rank, RankUse { bytes: 1000 * size, written_bytes: 1000 * size, busy_s: 1.0 }))
            .collect();
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
            used.asked.writes = AskedCalls { independent: 8000, bytes: 8000 << 14, nonblocking: 1, collective: 0 };
        });
        assert_eq!(names(&strided), ["collective-off", "mpi-io"]);
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
        used.asked.writes = AskedCalls { collective: 100, bytes: 8000 << 14, nonblocking: 1, independent: 0 };
        let found = of_files(&used, &around());
        assert_eq!(
            names(&found),
            ["small-requests", "mpi-io"],
            "the pieces that reach the storage are small all the same"
        );
    }

    /// 64 ranks write 48 GiB collectively, of which `movers` move all.
    fn collective(movers: u32) -> Use {
        let mut used = Use::default();
        (used.sharers, used.end) = (64, 48 << 30);
        used.asked.writes = AskedCalls { collective: 6400, nonblocking: 6400, bytes: 48 << 30, independent: 0 };
        used.writes =
            RequestCounts { count: 3072, bytes: 48 << 30, placed: 3072, consecutive: 3072, ..RequestCounts::default() };
        let each = (48 << 30) / u64::from(movers);
        used.ranks = (0..64).map(|rank| (rank, if rank < movers { written(each) } else { written(0) })).collect();
        used.find_movers(&std::collections::HashMap::new());
        used
    }

    fn written(bytes: u64) -> RankUse {
        RankUse { bytes, written_bytes: bytes, busy_s: 1.0 }
    }

    #[test]
    fn aggregators_are_no_imbalance_and_one_stripe_is_why_there_is_one() {
        let on_one = FindingContext { processes: 64, ..around() };
        let found = of_files(&collective(1), &on_one);
        assert_eq!(names(&found), ["few-writers", "mpi-io"], "{found:?}");
        assert_eq!(found[0].severity, Severity::High);
        let words =
            "64 ranks write 49152MiB collectively, and 1 of them reaches the file system: the file has 1 stripe";
        assert!(found[0].words.replace("48GiB", "49152MiB").starts_with(words), "{}", found[0].words);
        let hints: Vec<(&str, &str)> = found[0].hints.0.iter().map(|(name, value)| (&**name, &**value)).collect();
        let wanted = [
            ("striping_factor", "24"),
            ("striping_unit", "1048576"),
            ("cb_nodes", "24"),
            ("cb_buffer_size", "16777216"),
        ];
        assert_eq!(hints, wanted);
        assert!(found[0].mend.iter().all(|mend| !mend.contains("_all")), "they are collective already");
        // As many stripes as there should be: the same use is well.
        let striped = FindingContext { stripes: 24, ..on_one };
        assert_eq!(names(&of_files(&collective(24), &striped)), ["mpi-io"]);
        // Elsewhere a file's servers do not limit the writers.
        let elsewhere = FindingContext { processes: 64, on_lustre: false, ..around() };
        let found = of_files(&collective(1), &elsewhere);
        assert_eq!(found[0].hints.0[0], ("cb_nodes".to_owned(), "24".to_owned()));
        assert!(!found[0].mend.iter().any(|mend| mend.contains("lfs")));
    }

    #[test]
    fn nodes_of_writers_are_told_and_fewer_of_them_than_stripes_need_a_hint() {
        let hosts: Vec<String> = (0..64).map(|rank| format!("nid{}", rank / 32)).collect();
        let named = hosts.iter().enumerate().map(|(rank, host)| (rank as u32, host.as_str())).collect();
        let mut used = collective(1);
        used.find_movers(&named);
        assert_eq!((used.movers, used.mover_nodes), ((0, 1), (0, 1)));
        let on_two = FindingContext { processes: 64, nodes: Some(2), ..around() };
        let found = of_files(&used, &on_two);
        assert!(found[0].words.contains("and 1 of them on 1 node reaches the file system"), "{}", found[0].words);
        assert!(found[0].hints.0.contains(&("cb_config_list".to_owned(), "*:12".to_owned())), "{:?}", found[0].hints);
        assert!(found[1].words.contains("by 1 rank on 1 node"), "{}", found[1].words);
        let found = of_files(&used, &FindingContext { nodes: Some(32), ..on_two });
        assert!(found[0].hints.0.iter().all(|(name, _)| name != "cb_config_list"), "one a node is enough");
        used.find_movers(&[(3, "nid0")].into());
        assert_eq!(used.mover_nodes, (0, 0), "of rank 0 nothing is known");
    }

    #[test]
    fn holes_are_read_to_be_written_back() {
        let mut used = collective(24);
        used.reads = RequestCounts { count: 3072, bytes: 40 << 30, ..RequestCounts::default() };
        let striped = FindingContext { processes: 64, stripes: 24, ..around() };
        let found = of_files(&used, &striped);
        assert_eq!(names(&found), ["read-modify-write", "mpi-io"]);
        assert!(found[0].mend[1].contains("romio_ds_write=disable"), "{:?}", found[0].mend);
        used.asked.reads = AskedCalls { independent: 100, nonblocking: 100, bytes: 40 << 30, collective: 0 };
        assert_eq!(names(&of_files(&used, &striped)), ["mpi-io"], "what was asked for is no hole");
        used.reads.bytes = 200 << 30;
        used.asked.writes = AskedCalls::default();
        let found = of_files(&used, &striped);
        assert!(
            names(&found).contains(&"amplification") && found.iter().any(|f| f.words.contains("5.0 times")),
            "{found:?}"
        );
    }

    #[test]
    fn what_moves_little_is_no_headline() {
        let mut used = collective(24);
        (used.asked.writes.bytes, used.writes.bytes, used.reads.bytes) = (13 << 20, 52 << 20, 38 << 20);
        let striped = FindingContext { processes: 64, stripes: 24, ..around() };
        let found = of_files(&used, &striped);
        assert!(names(&found).contains(&"read-modify-write") && names(&found).contains(&"amplification"), "{found:?}");
        assert!(found.iter().all(|finding| finding.severity < Severity::High), "{found:?}");
        let mut few = shared(1 << 14);
        few.writes = RequestCounts {
            count: 36,
            bytes: 36 << 14,
            small: 36,
            placed: 36,
            skipping: 36,
            ..RequestCounts::default()
        };
        let found = of_files(&few, &around());
        assert_eq!((names(&found), found[0].severity), (vec!["collective-off"], Severity::Medium));
    }

    #[test]
    fn metadata_of_hdf5_is_not_asked_to_be_read_collectively_by_hand() {
        let mut used = collective(24);
        used.asked.reads = AskedCalls { independent: 6400, bytes: 6400 << 9, ..AskedCalls::default() };
        used.reads = RequestCounts {
            count: 6400,
            bytes: 6400 << 9,
            tiny: 6400,
            small: 6400,
            placed: 6400,
            skipping: 6400,
            ..RequestCounts::default()
        };
        let hdf5 = FindingContext { processes: 64, stripes: 24, is_hdf5: true, ..around() };
        let found = of_files(&used, &hdf5);
        assert!(names(&found).contains(&"hdf5-metadata") && !names(&found).contains(&"collective-off"), "{found:?}");
        assert!(!names(&found).iter().any(|name| ["tiny-requests", "random-reads"].contains(name)), "{found:?}");
        let plain = FindingContext { is_hdf5: false, ..hdf5 };
        assert!(names(&of_files(&used, &plain)).contains(&"collective-off"));
    }

    #[test]
    fn calls_that_move_nothing_are_told() {
        let mut used = shared(1 << 20);
        used.empty_and_single.0 = 20_000;
        assert_eq!(names(&of_files(&used, &around())), ["empty-requests"]);
        // Those of data sieving are not the program's own.
        used.asked.writes = AskedCalls { collective: 100, bytes: 8000 << 20, nonblocking: 1, independent: 0 };
        let found = of_files(&used, &around());
        let empty = found.iter().find(|finding| finding.kind == "empty-requests").expect("as many");
        assert!(empty.mend[1].contains("romio_ds_write=disable"), "{empty:?}");
    }

    #[test]
    fn calls_that_wait_for_their_bytes_are_told() {
        let mut used = collective(24);
        used.asked.writes.nonblocking = 0;
        let found = of_files(&used, &FindingContext { processes: 64, stripes: 24, ..around() });
        assert_eq!(names(&found), ["blocking", "mpi-io"]);
        assert!(found[0].mend[0].contains("MPI_File_iwrite_at_all"));
    }

    #[test]
    fn a_librarys_own_small_calls_do_not_make_collective_ones_independent() {
        let mut used = collective(1);
        // Each rank writes some metadata by itself, more calls than there are collective ones.
        used.asked.writes.independent = 50_000;
        used.writes.tiny = 50_000;
        used.writes.count = 60_000;
        let found = of_files(&used, &FindingContext { processes: 64, ..around() });
        assert!(names(&found).contains(&"few-writers") && !names(&found).contains(&"one-rank"), "{found:?}");
    }

    #[test]
    fn what_one_rank_does_beside_records_of_all_is_not_everything() {
        let mut used = shared(1 << 20);
        used.ranks = [(0, written(500 << 20))].into();
        assert_eq!(names(&of_run(&used, 8, None)), Vec::<&str>::new());
        used.ranks = [(0, written(8000 << 20))].into();
        assert_eq!(names(&of_run(&used, 8, None)), ["one-rank"]);
        used.writes.bytes = 1 << 20;
        used.ranks = [(0, written(1 << 20))].into();
        assert_eq!(of_run(&used, 8, None)[0].severity, Severity::Low, "a mebibyte is no matter");
    }

    #[test]
    fn times_of_opens_that_are_longer_than_the_run_are_doubted() {
        let mut used = shared(1 << 20);
        (used.opens, used.meta_s) = (20_000, 12.0);
        let mut found = of_run(&used, 8, None);
        doubt_times(&mut found);
        assert_eq!((found[0].kind, found[0].severity), ("metadata-storm", Severity::Low));
        assert_eq!(
            found[0].words,
            "20000 opens and 0 stats beside 8000 reads and writes, by times longer than the run"
        );
    }

    #[test]
    fn half_a_second_of_opens_on_each_rank_is_half_a_second() {
        let mut used = shared(1 << 20);
        // One rank writes for four minutes, and the opens of 65,536 add up to ten hours.
        (used.opens, used.meta_s, used.busy_s, used.rank_times_s) = (65_537, 35_282.0, 265.0, (0.1, 264.0));
        assert_eq!(names(&of_run(&used, 65_536, None)), ["metadata-storm"]);
        assert!(of_run(&used, 65_536, None)[0].words.ends_with("take 0 % of the I/O time"));
        used.opens = 5000;
        assert_eq!(names(&of_run(&used, 65_536, None)), Vec::<&str>::new());
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
