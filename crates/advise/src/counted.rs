//! Files of which a log has counters and no requests (Darshan without DXT): the requests that the counters stand for.
//!
//! A counter record says how many bytes were moved by how many requests up to which offset, when, and how many of them
//! went forward. What is made from it has that many bytes by requests of the mean size; each process has its own part of
//! the file, from front to back, or in any order where the counters say that requests jumped.

use crate::requests::below_root;
use crate::usage::{RankUse, Requests, Use};
use std::collections::HashMap;
use std::path::Path;
use stripewise_import::FileCounters;
use stripewise_model::{Op, Request};
use stripewise_trace::{Api, Trace};

/// Requests that are made for all files together, at most (but one for each direction, record and process).
const MADE: usize = 20_000;

/// Processes that counters tell of are numbered from here on: those of rows are counted from 0.
const COUNTED: u32 = 1 << 31;

/// As of rows: files that together move less than this share of all bytes are left out.
const LEAST_SHARE: f64 = 1e-3;

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

/// Whether they say that anything was read or written.
pub(crate) fn moves_bytes(records: &[&FileCounters]) -> bool {
    bytes(records) > 0
}

/// Files with nothing but counters.
pub(crate) struct Counted {
    pub files: Vec<(u32, String)>,
}

/// Those below `root` that are worth advice beside files that move `others` bytes. O(files log files).
pub(crate) fn worth_advice(
    trace: &Trace,
    root: &Path,
    counted_only: &dyn Fn(u32) -> bool,
    counters: &HashMap<u32, Vec<&FileCounters>>,
    others: f64,
) -> Counted {
    let mut found: Vec<(u32, String, f64)> = Vec::new();
    for file in trace.files().iter().filter(|file| counted_only(file.id)) {
        let path = below_root(&file.path, root).and_then(|path| path.to_str().map(str::to_owned));
        if let Some(path) = path {
            found.push((file.id, path, bytes(&counters[&file.id]) as f64));
        }
    }
    let total = others + found.iter().map(|file| file.2).sum::<f64>();
    found.sort_by(|a, b| a.2.total_cmp(&b.2).then(a.0.cmp(&b.0)));
    let mut sum = 0.0;
    let left_out = found.iter().take_while(|file| {
        sum += file.2;
        sum < LEAST_SHARE * total
    });
    let left_out = left_out.count();
    Counted { files: found.into_iter().skip(left_out).map(|(id, path, _)| (id, path)).collect() }
}

/// Requests that one file may be stood for by.
pub(crate) fn budget(files: usize) -> usize {
    (MADE / files.max(1)).max(2)
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
            *requests = Requests {
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

/// Requests that stand for a file's: at most `budget`, but one for each direction and process. O(requests).
pub(crate) fn requests(records: &[&FileCounters], processes: u32, budget: usize) -> Vec<Request> {
    let mut made = Vec::new();
    let count_of = storage(records).count().max(1);
    for of in storage(records) {
        for direction in &DIRECTIONS {
            let (count, bytes) = (integer(of, direction.counts), integer(of, direction.bytes));
            if count == 0 || bytes == 0 {
                continue;
            }
            let size = (bytes / count).clamp(1, 1 << 40);
            let end = integer(of, direction.end).saturating_add(1).clamp(size, 1 << 60);
            let of_process = of.rank.map_or(0..processes, |rank| rank..rank.saturating_add(1));
            let processes = u64::from(of_process.end - of_process.start).clamp(1, count);
            let kept = (budget / (2 * count_of)).max(processes as usize) as u64;
            let each = (count / processes).clamp(1, (kept / processes).max(1));
            let part = (end / processes).max(1);
            // Thinned evenly: neighbours of the sample are as far apart as it is thin.
            let step = (part / each).max(1);
            let jumps = 2 * integer(of, direction.sequential) < count;
            let (from_s, to_s) = (float(of, direction.from), float(of, direction.to));
            let slot_s = (to_s - from_s).max(0.0) / each as f64;
            for (nth, process) in (0..processes).zip(of_process.map(|process| COUNTED | process)) {
                for turn in 0..each {
                    let place = if jumps { shuffled(turn, each) } else { turn };
                    let offset = (nth * part + place * step).min(end - size);
                    let start_s = from_s + turn as f64 * slot_s;
                    made.push(Request { offset, size, op: direction.op, process, start_s, end_s: start_s + slot_s });
                }
            }
        }
    }
    made
}

/// The `turn`-th of `0..n` in an order that jumps; each comes once.
fn shuffled(turn: u64, n: u64) -> u64 {
    // A stride near the golden section that shares no divisor with n visits all of them.
    let divides = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let stride = ((n as f64 * 0.618) as u64..=n).find(|&stride| stride > 0 && divides(stride, n) == 1).unwrap_or(1);
    turn * stride % n
}

/// Bytes for each second that requests on a file took.
pub(crate) fn rate(used: &Use) -> Option<f64> {
    let bytes = used.both().bytes;
    (used.busy_s > 0.0 && bytes >= 1 << 20).then(|| bytes as f64 / used.busy_s)
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
    fn requests_have_the_bytes_and_the_times_that_were_counted() {
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
        let made = requests(&[&of], 4, 1000);
        assert_eq!(made.len(), 64);
        assert!(
            made.iter().all(|r| r.size == 1 << 20 && r.op == Op::Write && r.start_s >= 1.0 && r.end_s <= 5.0 + 1e-9)
        );
        let mut offsets: Vec<u64> = made.iter().map(|r| r.offset).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, (0..64).map(|n| n << 20).collect::<Vec<_>>());
        let used = used(&[&of]);
        assert_eq!((used.writes.count, used.end, used.span_s), (64, 64 << 20, (1.0, 5.0)));
        assert_eq!((used.writes.placed, used.writes.consecutive, used.writes.backward), (64, 63, 1));
        assert_eq!(rate(&used), Some(32.0 * 1048576.0));
    }

    #[test]
    fn an_order_that_jumps_visits_all() {
        for n in 1..200 {
            let mut seen: Vec<u64> = (0..n).map(|turn| shuffled(turn, n)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }
    }

    proptest::proptest! {
        #[test]
        fn no_counters_are_a_panic(values in proptest::collection::vec(proptest::num::i64::ANY, 9),
            times in proptest::collection::vec(proptest::num::f64::ANY, 3), processes in 1_u32..1 << 20) {
            let names = ["POSIX_READS", "POSIX_BYTES_READ", "POSIX_MAX_BYTE_READ", "POSIX_SEQ_READS", "POSIX_CONSEC_READS",
                "POSIX_WRITES", "POSIX_BYTES_WRITTEN", "POSIX_SIZE_READ_0_100", "POSIX_SIZE_READ_10K_100K"];
            let integers: Vec<_> = names.into_iter().zip(values.iter().map(|v| v / 4)).collect();
            let floats: Vec<_> = ["POSIX_F_READ_START_TIMESTAMP", "POSIX_F_READ_END_TIMESTAMP", "POSIX_F_READ_TIME"].into_iter().zip(times).collect();
            let of = posix(None, &integers, &floats);
            for request in requests(&[&of], processes, 100) {
                proptest::prop_assert!(request.offset.checked_add(request.size).is_some_and(|end| end <= 1 << 62));
                proptest::prop_assert!(request.start_s.is_finite());
            }
            used(&[&of]);
        }
    }
}
