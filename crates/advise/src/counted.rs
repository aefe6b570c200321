//! What counters tell of a file: all of its use where the log has no requests of it (Darshan without DXT; the importer
//! makes them up), and opens, stats and the kinds of MPI-IO's calls where rows lack them.

use crate::usage::{RankUse, RequestCounts, Use};
use stripewise_import::FileCounters;
use stripewise_model::Op;
use stripewise_trace::Api;

/// The counters of one direction by the end of their names.
struct Direction {
    op: Op,
    /// `READS`
    counts: &'static str,
    /// `BYTES_READ`
    bytes: &'static str,
    /// `MAX_BYTE_READ`
    end: &'static str,
    /// `SIZE_READ_`
    sizes: &'static str,
    /// `CONSEC_READS`
    consecutive: &'static str,
    /// `SEQ_READS`
    sequential: &'static str,
    /// `F_READ_TIME`
    busy: &'static str,
    /// `F_READ_START_TIMESTAMP`
    from: &'static str,
    /// `F_READ_END_TIMESTAMP`
    to: &'static str,
}

const DIRECTIONS: [Direction; 2] = [
    Direction {
        op: Op::Read,
        counts: "READS",
        bytes: "BYTES_READ",
        end: "MAX_BYTE_READ",
        sizes: "SIZE_READ_",
        consecutive: "CONSEC_READS",
        sequential: "SEQ_READS",
        busy: "F_READ_TIME",
        from: "F_READ_START_TIMESTAMP",
        to: "F_READ_END_TIMESTAMP",
    },
    Direction {
        op: Op::Write,
        counts: "WRITES",
        bytes: "BYTES_WRITTEN",
        end: "MAX_BYTE_WRITTEN",
        sizes: "SIZE_WRITE_",
        consecutive: "CONSEC_WRITES",
        sequential: "SEQ_WRITES",
        busy: "F_WRITE_TIME",
        from: "F_WRITE_START_TIMESTAMP",
        to: "F_WRITE_END_TIMESTAMP",
    },
];

fn prefix(api: Api) -> &'static str {
    match api {
        Api::Posix => "POSIX_",
        Api::Stdio => "STDIO_",
        Api::MpiIo => "MPIIO_",
    }
}

/// A counter of a record; 0 for one that is absent or not set (-1).
fn integer(of: &FileCounters, name: &str) -> u64 {
    let own = prefix(of.api);
    let found = of.integers.iter().find(|(known, _)| known.strip_prefix(own) == Some(name));
    found.map_or(0, |(_, value)| u64::try_from(*value).unwrap_or(0))
}

/// The same for times: finite and not negative.
fn float(of: &FileCounters, name: &str) -> f64 {
    let own = prefix(of.api);
    let found = of.floats.iter().find(|(known, _)| known.strip_prefix(own) == Some(name));
    found.map_or(0.0, |(_, value)| if value.is_finite() { value.max(0.0) } else { 0.0 })
}

/// What the storage saw: POSIX, or stdio where nothing else was counted. MPI-IO's bytes are moved by POSIX below it.
fn storage<'r, 'a>(records: &'r [&'a FileCounters]) -> impl Iterator<Item = &'a FileCounters> + use<'r, 'a> {
    let posix = records.iter().any(|of| of.api == Api::Posix);
    let wanted = if posix { Api::Posix } else { Api::Stdio };
    records.iter().copied().filter(move |of| of.api == wanted)
}

fn bytes(records: &[&FileCounters]) -> u64 {
    storage(records)
        .flat_map(|of| DIRECTIONS.iter().map(move |direction| integer(of, direction.bytes)))
        .fold(0, u64::saturating_add)
}

/// Whether they are all that is known of what was read or written.
pub(crate) fn alone(records: &[&FileCounters]) -> bool {
    bytes(records) > 0 && storage(records).all(|of| !of.has_rows)
}

/// How a file was used, by its counters. O(counters).
pub(crate) fn used(records: &[&FileCounters]) -> Use {
    let mut used = Use::default();
    for of in storage(records) {
        let mut rank = RankUse::default();
        for direction in &DIRECTIONS {
            let (count, bytes) = (integer(of, direction.counts), integer(of, direction.bytes));
            let sizes = |ends: &[&str]| ends.iter().map(|end| integer(of, &format!("{}{end}", direction.sizes))).sum();
            let below_10k: u64 = sizes(&["0_100", "100_1K", "1K_10K"]);
            let tiny: u64 = sizes(&["0_100", "100_1K"]);
            let sequential = integer(of, direction.sequential).min(count);
            let consecutive = integer(of, direction.consecutive).min(sequential);
            let known = of.api == Api::Posix;
            let requests = if direction.op == Op::Read { &mut used.reads } else { &mut used.writes };
            *requests = RequestCounts {
                count: requests.count.saturating_add(count),
                bytes: requests.bytes.saturating_add(bytes),
                tiny: requests.tiny.saturating_add(tiny),
                small: requests.small.saturating_add(below_10k + sizes(&["10K_100K"])),
                placed: requests.placed.saturating_add(if known { count } else { 0 }),
                consecutive: requests.consecutive.saturating_add(if known { consecutive } else { 0 }),
                backward: requests.backward.saturating_add(if known { count - sequential } else { 0 }),
                skipping: requests.skipping.saturating_add(if known { sequential - consecutive } else { 0 }),
                unaligned: 0,
            };
            let busy_s = float(of, direction.busy);
            used.busy_s += busy_s;
            rank.bytes = rank.bytes.saturating_add(bytes);
            rank.busy_s += busy_s;
            if count > 0 {
                used.end = used.end.max(integer(of, direction.end).saturating_add(1));
                used.spans(float(of, direction.from), float(of, direction.to).max(float(of, direction.from)));
            }
            used.slowest_s = used.slowest_s.max(float(of, &direction.busy.replace("F_", "F_MAX_")));
        }
        if let Some(number) = of.rank {
            used.ranks.insert(number, rank);
        }
    }
    used.sharers = used.ranks.len();
    used
}

/// Adds what only counters know: MPI-IO's kinds of calls, and with `metadata` opens, stats and their times.
pub(crate) fn complete(used: &mut Use, records: &[&FileCounters], metadata: bool) {
    if records.iter().any(|of| of.api == Api::MpiIo) {
        // Rows of such logs do not tell collective calls apart.
        (used.collective, used.independent) = (0, 0);
    }
    for of in records {
        match of.api {
            Api::MpiIo => {
                let sum = |names: &[&str]| names.iter().map(|name| integer(of, name)).fold(0, u64::saturating_add);
                used.collective = used.collective.saturating_add(sum(&["COLL_READS", "COLL_WRITES"]));
                let own = sum(&["INDEP_READS", "INDEP_WRITES", "NB_READS", "NB_WRITES"]);
                used.independent = used.independent.saturating_add(own);
            }
            Api::Posix | Api::Stdio if metadata => {
                used.opens = used.opens.saturating_add(integer(of, "OPENS"));
                used.stats = used.stats.saturating_add(integer(of, "STATS"));
                used.meta_s += float(of, "F_META_TIME");
            }
            _ => {}
        }
        // A record of all ranks names the fastest and the slowest.
        if of.rank.is_none() && of.api == Api::Posix && integer(of, "SLOWEST_RANK") != integer(of, "FASTEST_RANK") {
            used.sharers = used.sharers.max(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn posix(
        rank: Option<u32>,
        integers: &[(&'static str, i64)],
        floats: &[(&'static str, f64)],
    ) -> FileCounters {
        FileCounters {
            file: 0,
            api: Api::Posix,
            rank,
            integers: integers.to_vec(),
            floats: floats.to_vec(),
            has_rows: false,
        }
    }

    #[test]
    fn use_is_what_was_counted() {
        let integers = [
            ("POSIX_WRITES", 64),
            ("POSIX_BYTES_WRITTEN", 64 << 20),
            ("POSIX_MAX_BYTE_WRITTEN", (64 << 20) - 1),
            ("POSIX_SEQ_WRITES", 63),
            ("POSIX_CONSEC_WRITES", 63),
        ];
        let floats =
            [("POSIX_F_WRITE_START_TIMESTAMP", 1.0), ("POSIX_F_WRITE_END_TIMESTAMP", 5.0), ("POSIX_F_WRITE_TIME", 2.0)];
        let of = posix(None, &integers, &floats);
        let used = used(&[&of]);
        assert_eq!((used.writes.count, used.end, used.span_s), (64, 64 << 20, (1.0, 5.0)));
        assert_eq!((used.writes.placed, used.writes.consecutive, used.writes.backward), (64, 63, 1));
        assert_eq!(used.busy_s, 2.0);
    }

    proptest::proptest! {
        #[test]
        fn no_counters_are_a_panic(values in proptest::collection::vec(proptest::num::i64::ANY, 9),
            times in proptest::collection::vec(proptest::num::f64::ANY, 3)) {
            let names = ["POSIX_READS", "POSIX_BYTES_READ", "POSIX_MAX_BYTE_READ", "POSIX_SEQ_READS", "POSIX_CONSEC_READS",
                "POSIX_WRITES", "POSIX_BYTES_WRITTEN", "POSIX_SIZE_READ_0_100", "POSIX_SIZE_READ_10K_100K"];
            let integers: Vec<_> = names.into_iter().zip(values.iter().map(|v| v / 4)).collect();
            let floats: Vec<_> = ["POSIX_F_READ_START_TIMESTAMP", "POSIX_F_READ_END_TIMESTAMP", "POSIX_F_READ_TIME"].into_iter().zip(times).collect();
            let of = posix(None, &integers, &floats);
            used(&[&of]);
        }
    }
}
