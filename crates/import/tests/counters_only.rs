//! Logs without single requests: what is made of their counters.

mod common;

use common::{collected, wheel_logs};
use std::collections::{BTreeMap, BTreeSet};
use stripewise_import::{Lacks, ost_rates};
use stripewise_trace::Operation;

#[test]
fn a_file_a_process_has_the_requests_that_were_made() {
    for (name, files, requests, size) in
        [("sample-badost.darshan", 2048, 64, 4 << 20), ("sample-goodost.darshan", 48, 128, 8 << 20)]
    {
        let (all, summary) = collected(&wheel_logs()[name]).unwrap();
        assert!(summary.lacks.contains(Lacks::COUNTERS_ONLY | Lacks::PIDS) && summary.notes.is_empty(), "{summary:?}");
        let whole = Some(requests * size);
        let large = all.counters.iter().filter(|counters| counters.integer("POSIX_BYTES_WRITTEN") == whole);
        let large: Vec<_> = large.collect();
        assert_eq!(large.len(), files, "{name}");
        let mut ranks = BTreeSet::new();
        let mut by_file: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        all.rows.iter().for_each(|row| by_file.entry(row.file).or_default().push(row));
        for counters in large {
            let writes: Vec<_> =
                by_file[&counters.file].iter().filter(|row| row.op == Operation::Write as u8).collect();
            let places: Vec<_> = writes.iter().map(|row| (row.offset, row.size)).collect();
            assert_eq!(
                places,
                (0..requests as u64).map(|index| (index * size as u64, size as u64)).collect::<Vec<_>>()
            );
            let seconds = |name: &str| (counters.float(name).unwrap() * 1e9).round() as u64;
            assert_eq!(writes[0].start_ns, seconds("POSIX_F_WRITE_START_TIMESTAMP"));
            assert_eq!(writes[writes.len() - 1].end_ns, seconds("POSIX_F_WRITE_END_TIMESTAMP"));
            assert!(writes.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns));
            ranks.insert(writes[0].rank);
        }
        assert_eq!(ranks.len(), files, "{name}: a rank a file");
    }
}

#[test]
fn every_log_of_the_wheel_keeps_what_its_counters_state() {
    for (name, path) in wheel_logs() {
        let (all, summary) = collected(&path).unwrap();
        assert!(!summary.notes.iter().any(|note| note.contains("contradict")), "{name}: {:?}", summary.notes);
        // Requests, bytes and end by file, interface, rank and operation.
        let mut moved: BTreeMap<_, (u64, u64, u64)> = BTreeMap::new();
        let of_all: BTreeSet<(u32, u8)> = all
            .counters
            .iter()
            .filter(|counters| counters.rank.is_none())
            .map(|counters| (counters.file, counters.api as u8))
            .collect();
        for row in &all.rows {
            let rank = (!of_all.contains(&(row.file, row.api))).then_some(row.rank);
            let (count, bytes, end) = moved.entry((row.file, row.api, rank, row.op)).or_default();
            *count += 1;
            *bytes += row.size;
            *end = (*end).max(if row.size > 0 { row.end() } else { 0 });
        }
        for counters in all.counters.iter().filter(|counters| !counters.has_rows) {
            let prefix = ["POSIX", "STDIO", "MPIIO"][counters.api as usize - 1];
            for (op, kinds, done) in [(Operation::Read, "READS", "READ"), (Operation::Write, "WRITES", "WRITTEN")] {
                let value = |name: String| counters.integer(&format!("{prefix}_{name}"));
                let kinds_of_mpi = ["INDEP", "COLL", "SPLIT", "NB"];
                let stated = value(kinds.to_owned()).unwrap_or_else(|| {
                    kinds_of_mpi.iter().map(|kind| value(format!("{kind}_{kinds}")).expect("counted")).sum()
                });
                let key = (counters.file, counters.api as u8, counters.rank, op as u8);
                let (count, bytes, end) = moved.get(&key).copied().unwrap_or_default();
                if stated > 1 << 20 {
                    assert!(count == 1 << 20 && summary.notes[0].contains("an even sample of"), "{summary:?}");
                    continue;
                }
                assert_eq!(count as i64, stated, "{name}: {prefix}_{kinds}");
                assert_eq!(bytes as i64, value(format!("BYTES_{done}")).expect("counted"), "{name}: {prefix} {done}");
                if let Some(last) = value(format!("MAX_BYTE_{done}")).filter(|_| bytes > 0) {
                    assert_eq!(end as i64, last + 1, "{name}: {prefix}_MAX_BYTE_{done}");
                }
            }
        }
    }
}

#[test]
fn the_slow_target_of_one_run_is_named_and_none_of_a_healthy_one() {
    let rates = |name: &str| {
        let (all, _) = collected(&wheel_logs()[name]).unwrap();
        ost_rates(&all.counters, &all.layouts)
    };
    let bad = rates("sample-badost.darshan");
    assert_eq!(bad.slow().iter().map(|ost| ost.ost).collect::<Vec<_>>(), [14]);
    assert_eq!((bad.osts.len(), bad.osts.iter().map(|ost| ost.bytes).sum::<u64>()), (24, 2048 * (256 << 20)));
    let slow = bad.slow()[0];
    assert!(slow.alone == 85 && slow.bytes_per_s * 40.0 < bad.median_bytes_per_s, "{slow:?}");
    let good = rates("sample-goodost.darshan");
    assert!(good.osts.len() == 24 && good.slow().is_empty(), "{good:?}");
}
