//! What the rows of counters must keep, for counters of real requests and for impossible ones.

use super::*;
use crate::stated::CLASSES;
use proptest::prelude::*;
use stripewise_trace::Api;

/// Counts requests as Darshan does, for one rank or reduced over several.
fn counted(requests: &[(u32, Operation, u64, u64)], shared: bool) -> FileCounters {
    let names: Vec<(&'static str, i64)> = EMPTY.iter().map(|name| (*name, 0)).collect();
    let mut counters = FileCounters {
        file: 3,
        api: Api::Posix,
        rank: (!shared).then_some(7),
        integers: names,
        floats: vec![
            ("POSIX_F_READ_START_TIMESTAMP", 1.0),
            ("POSIX_F_READ_END_TIMESTAMP", 2.0),
            ("POSIX_F_READ_TIME", 0.5),
            ("POSIX_F_WRITE_START_TIMESTAMP", 3.0),
            ("POSIX_F_WRITE_END_TIMESTAMP", 7.0),
            ("POSIX_F_WRITE_TIME", 2.0),
            ("POSIX_F_VARIANCE_RANK_BYTES", 0.0),
        ],
        has_rows: false,
    };
    let mut add = |name: &str, value: i64| {
        let slot = counters.integers.iter_mut().find(|(n, _)| *n == name).expect("a known counter");
        slot.1 += value;
    };
    let mut common: std::collections::BTreeMap<u64, u64> = Default::default();
    let mut last: std::collections::HashMap<(u32, u8), u64> = Default::default();
    let mut far = [0u64; 2];
    for &(rank, op, offset, size) in requests {
        let read = op == Operation::Read;
        add(if read { "POSIX_READS" } else { "POSIX_WRITES" }, 1);
        add(if read { "POSIX_BYTES_READ" } else { "POSIX_BYTES_WRITTEN" }, size as i64);
        let verb = if read { "READ" } else { "WRITE" };
        let class = CLASSES[[100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30]
            .iter()
            .position(|end| size <= *end)
            .unwrap_or(9)];
        add(&format!("POSIX_SIZE_{verb}_{class}"), 1);
        *common.entry(size).or_default() += 1;
        let end = last.entry((rank, op as u8)).or_insert(0);
        if *end > 0 && offset >= *end {
            add(&format!("POSIX_SEQ_{verb}S"), 1);
        }
        if *end > 0 && offset == *end {
            add(&format!("POSIX_CONSEC_{verb}S"), 1);
        }
        *end = offset + size;
        if size > 0 {
            far[usize::from(!read)] = far[usize::from(!read)].max(offset + size - 1);
        }
    }
    add("POSIX_MAX_BYTE_READ", far[0] as i64);
    add("POSIX_MAX_BYTE_WRITTEN", far[1] as i64);
    let mut common: Vec<(u64, u64)> = common.into_iter().map(|(size, count)| (count, size)).collect();
    common.sort_by(|a, b| b.cmp(a));
    for (index, (count, size)) in common.into_iter().take(4).enumerate() {
        add(&format!("POSIX_ACCESS{}_ACCESS", index + 1), size as i64);
        add(&format!("POSIX_ACCESS{}_COUNT", index + 1), count as i64);
    }
    counters
}

#[rustfmt::skip]
const EMPTY: &[&str] = &[
    "POSIX_READS", "POSIX_WRITES", "POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN", "POSIX_MAX_BYTE_READ",
    "POSIX_MAX_BYTE_WRITTEN", "POSIX_CONSEC_READS", "POSIX_CONSEC_WRITES", "POSIX_SEQ_READS", "POSIX_SEQ_WRITES",
    "POSIX_FILE_NOT_ALIGNED", "POSIX_FILE_ALIGNMENT", "POSIX_SIZE_READ_0_100",
    "POSIX_SIZE_READ_100_1K", "POSIX_SIZE_READ_1K_10K", "POSIX_SIZE_READ_10K_100K", "POSIX_SIZE_READ_100K_1M",
    "POSIX_SIZE_READ_1M_4M", "POSIX_SIZE_READ_4M_10M", "POSIX_SIZE_READ_10M_100M", "POSIX_SIZE_READ_100M_1G",
    "POSIX_SIZE_READ_1G_PLUS", "POSIX_SIZE_WRITE_0_100", "POSIX_SIZE_WRITE_100_1K", "POSIX_SIZE_WRITE_1K_10K",
    "POSIX_SIZE_WRITE_10K_100K", "POSIX_SIZE_WRITE_100K_1M", "POSIX_SIZE_WRITE_1M_4M", "POSIX_SIZE_WRITE_4M_10M",
    "POSIX_SIZE_WRITE_10M_100M", "POSIX_SIZE_WRITE_100M_1G", "POSIX_SIZE_WRITE_1G_PLUS", "POSIX_STRIDE1_STRIDE",
    "POSIX_STRIDE1_COUNT", "POSIX_ACCESS1_ACCESS",
    "POSIX_ACCESS2_ACCESS", "POSIX_ACCESS3_ACCESS", "POSIX_ACCESS4_ACCESS", "POSIX_ACCESS1_COUNT",
    "POSIX_ACCESS2_COUNT", "POSIX_ACCESS3_COUNT", "POSIX_ACCESS4_COUNT", "POSIX_SLOWEST_RANK",
    "POSIX_SLOWEST_RANK_BYTES", "POSIX_FASTEST_RANK", "POSIX_FASTEST_RANK_BYTES",
];

fn classes(rows: impl Iterator<Item = u64>) -> [u64; 10] {
    let ends = [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30];
    let mut counts = [0; 10];
    rows.for_each(|size| counts[ends.iter().position(|end| size <= *end).unwrap_or(9)] += 1);
    counts
}

/// Everything of one direction that the rows must have as the counters have it.
fn check(counters: &FileCounters, made: &Reconstructed, processes: u64) {
    for (verb, kinds, done, op, begin, end) in [
        ("READ", "READS", "READ", Operation::Read, 1_000_000_000, 2_000_000_000),
        ("WRITE", "WRITES", "WRITTEN", Operation::Write, 3_000_000_000u64, 7_000_000_000u64),
    ] {
        let value = |name: String| counters.integer(&name).expect("counted") as u64;
        let rows: Vec<&Record> = made.rows.iter().filter(|row| row.op == op as u8).collect();
        assert_eq!(rows.len() as u64, value(format!("POSIX_{kinds}")));
        assert_eq!(rows.iter().map(|row| row.size).sum::<u64>(), value(format!("POSIX_BYTES_{done}")));
        let far = rows.iter().filter(|row| row.size > 0).map(|row| row.end() - 1).max().unwrap_or(0);
        assert_eq!(far, value(format!("POSIX_MAX_BYTE_{done}")), "{rows:?}");
        let found = classes(rows.iter().map(|row| row.size));
        let stated = CLASSES.map(|class| value(format!("POSIX_SIZE_{verb}_{class}")));
        assert_eq!(found, stated);
        for row in &rows {
            assert!(begin <= row.start_ns && row.start_ns <= row.end_ns && row.end_ns <= end, "{row:?}");
            assert!(u64::from(row.rank) < processes.max(8) && row.file == 3, "{row:?}");
        }
    }
    // Commonest sizes, of both directions together.
    for n in 1..=4 {
        let [size, count] =
            ["ACCESS", "COUNT"].map(|end| counters.integer(&format!("POSIX_ACCESS{n}_{end}")).expect("counted"));
        let found = made.rows.iter().filter(|row| row.size == size as u64).count() as i64;
        assert!(found >= count, "{found} requests of {size} bytes, stated are {count}");
    }
}

fn requests() -> impl Strategy<Value = Vec<(u32, Operation, u64, u64)>> {
    let size = prop_oneof![Just(4096u64), Just(1 << 20), Just(47_008), 0..200u64, 1u64..20_000_000];
    let op = prop_oneof![Just(Operation::Read), Just(Operation::Write)];
    let at = prop_oneof![0u64..1 << 30, Just(u64::MAX)];
    prop::collection::vec((0u32..8, op, at, size), 1..200).prop_map(|mut all| {
        // The largest number stands for "where the one before of this rank ended".
        let mut ends = std::collections::HashMap::new();
        for (rank, op, offset, size) in &mut all {
            let end = ends.entry((*rank, *op as u8)).or_insert(0);
            *offset = if *offset == u64::MAX { *end } else { *offset };
            *end = *offset + *size;
        }
        all
    })
}

proptest! {
    #[test]
    fn rows_have_the_counts_bytes_and_extents_of_the_counters(all in requests(), shared: bool) {
        let one_rank: Vec<_> = all.iter().map(|&(_, op, offset, size)| (7, op, offset, size)).collect();
        let counters = counted(if shared { &all } else { &one_rank }, shared);
        let made = rows_of(&counters, Some(8), RECORD_ROWS);
        // Sizes of both directions are counted together: the share of each may be impossible to tell.
        if !made.contradictory {
            check(&counters, &made, 8);
        }
        prop_assert_eq!(made.rows.len(), all.len());
        prop_assert_eq!(made.requests, all.len() as u64);
        let moved: u64 = made.rows.iter().map(|row| row.size).sum();
        prop_assert_eq!(moved, all.iter().map(|(_, _, _, size)| size).sum::<u64>());
        if !shared {
            prop_assert!(made.rows.iter().all(|row| row.rank == 7));
        }
    }

    #[test]
    fn one_direction_is_never_contradictory(mut all in requests(), shared: bool) {
        all.iter_mut().for_each(|(_, op, _, _)| *op = Operation::Write);
        let mut end = 0;
        all.iter_mut().for_each(|(_, _, offset, size)| {
            *offset = if *offset % 3 == 0 { end } else { *offset };
            end = *offset + *size;
        });
        let counters = counted(&all, shared);
        let made = rows_of(&counters, Some(8), RECORD_ROWS);
        prop_assert!(!made.contradictory);
        check(&counters, &made, 8);
    }

    #[test]
    fn counters_that_nobody_can_have_made_cost_little(
        values in prop::collection::vec(prop_oneof![any::<i64>(), 0i64..100, Just(i64::MAX), Just(1i64 << 60)], 64),
        floats in prop::collection::vec(any::<f64>(), 17),
        api in 0usize..3,
        rank in prop::option::of(any::<u32>()),
        processes in prop::option::of(any::<u64>()),
        limit in 0u64..3000,
    ) {
        let api = Api::ALL[api];
        let prefix = ["POSIX", "STDIO", "MPIIO"][api as usize - 1];
        let leaked = |name: &str| -> &'static str { Box::leak(name.replace("POSIX", prefix).into_boxed_str()) };
        let names = EMPTY.iter().copied().chain(["POSIX_INDEP_READS", "POSIX_COLL_WRITES", "POSIX_NB_READS"]);
        let integers = names.map(leaked).zip(values).collect();
        let kinds = ["START_TIMESTAMP", "END_TIMESTAMP", "TIME"];
        let float_names = ["READ", "WRITE"].iter().flat_map(|verb| kinds.map(|k| format!("POSIX_F_{verb}_{k}")));
        let float_names = float_names.chain(["POSIX_F_VARIANCE_RANK_BYTES".to_owned()]);
        let floats = float_names.map(|name| leaked(&name)).zip(floats).collect();
        let counters = FileCounters { file: 1, api, rank, integers, floats, has_rows: false };
        let made = rows_of(&counters, processes, limit);
        prop_assert!(made.rows.len() as u64 <= limit.min(made.requests));
        prop_assert!(made.rows.iter().all(|row| row.start_ns <= row.end_ns && row.is_data() == (row.size > 0)));
    }
}

#[test]
fn a_quintillion_requests_are_sampled_over_the_whole_file() {
    let mut counters = counted(&[(0, Operation::Write, 0, 4096)], true);
    let mut set = |name: &str, value: i64| {
        counters.integers.iter_mut().find(|(n, _)| *n == name).expect("known").1 = value;
    };
    let many = 1i64 << 50;
    set("POSIX_WRITES", many);
    set("POSIX_SIZE_WRITE_1K_10K", many);
    set("POSIX_ACCESS1_COUNT", many);
    set("POSIX_BYTES_WRITTEN", many << 12);
    set("POSIX_MAX_BYTE_WRITTEN", (many << 12) - 1);
    let made = rows_of(&counters, Some(64), 1000);
    assert!(!made.contradictory && made.requests == 1 << 50 && made.rows.len() == 1000);
    assert!(made.rows.iter().all(|row| row.size == 4096));
    assert_eq!(made.rows.iter().map(|row| row.end()).max(), Some(1 << 62));
    assert_eq!(made.rows.iter().map(|row| row.offset).min(), Some(0));
    let ranks: std::collections::BTreeSet<u32> = made.rows.iter().map(|row| row.rank).collect();
    assert_eq!(ranks.len(), 64);
}

#[test]
fn aggregators_are_counted_from_the_variance() {
    // 4 of 16 ranks write 16 requests of 1 MiB each, one after the other in their own quarter.
    let requests: Vec<_> = (0..64u64).map(|i| ((i / 16 * 4) as u32, Operation::Write, i << 20, 1u64 << 20)).collect();
    let mut counters = counted(&requests, true);
    let mean = 4.0 * f64::from(1 << 20);
    let variance = mean * mean * (16.0 / 4.0 - 1.0);
    counters.floats.iter_mut().find(|(name, _)| name.ends_with("RANK_BYTES")).expect("there").1 = variance;
    let made = rows_of(&counters, Some(16), RECORD_ROWS);
    let mut rows = made.rows.clone();
    rows.sort_by_key(|row| row.offset);
    let found: Vec<_> = rows.iter().map(|row| (row.rank, Operation::Write, row.offset, row.size)).collect();
    assert_eq!(found, requests);
    // The slowest rank takes the place of its neighbour.
    for (name, value) in [("POSIX_SLOWEST_RANK", 9), ("POSIX_SLOWEST_RANK_BYTES", 1 << 24)] {
        counters.integers.iter_mut().find(|(n, _)| *n == name).expect("there").1 = value;
    }
    let made = rows_of(&counters, Some(16), RECORD_ROWS);
    let ranks: std::collections::BTreeSet<u32> = made.rows.iter().map(|row| row.rank).collect();
    assert_eq!(ranks.into_iter().collect::<Vec<_>>(), [0, 4, 9, 12]);
}

#[test]
fn a_strided_file_goes_round_the_ranks_and_a_random_one_is_not_in_order() {
    let strided: Vec<_> = (0..40u64).map(|i| ((i % 4) as u32, Operation::Read, i * 100, 100)).collect();
    let made = rows_of(&counted(&strided, true), Some(4), RECORD_ROWS);
    let mut rows = made.rows.clone();
    rows.sort_by_key(|row| row.offset);
    assert_eq!(rows.iter().map(|row| (row.rank, Operation::Read, row.offset, row.size)).collect::<Vec<_>>(), strided);
    let random: Vec<_> = (0..100u64).map(|i| (7, Operation::Read, i * 37 % 100 * 1000, 1000)).collect();
    let made = rows_of(&counted(&random, false), Some(1), RECORD_ROWS);
    let forward = made.rows.windows(2).filter(|pair| pair[1].offset > pair[0].offset).count();
    assert!((20..80).contains(&forward), "{forward} of 99 go forward");
    let mut offsets: Vec<u64> = made.rows.iter().map(|row| row.offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, (0..100).map(|i| i * 1000).collect::<Vec<_>>());
}
