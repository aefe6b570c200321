//! What counters tell of a file: all of its use where the log has no requests of it (Darshan without DXT; the importer
//! makes them up), and opens, stats and the kinds of MPI-IO's calls where rows lack them.

use crate::asked::{Asked, AskedCalls};
use crate::usage::{RankUse, RequestCounts, Use};
use std::collections::{HashMap, HashSet};
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
        Api::Hdf5 | Api::PnetCdf => "",
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

/// What the storage saw: POSIX, or stdio where nothing else was counted. MPI-IO's bytes are moved by POSIX below it,
/// unless that is hardly any: then by a driver that Darshan does not see, and MPI-IO's own calls are all that is known.
/// Each of `ranks` may have asked for the same bytes, which storage moves once.
fn storage<'r, 'a>(
    records: &'r [&'a FileCounters],
    ranks: u64,
) -> impl Iterator<Item = &'a FileCounters> + use<'r, 'a> {
    let posix = records.iter().any(|of| of.api == Api::Posix);
    let wanted = if bytes_of(records, Api::Posix) < bytes_of(records, Api::MpiIo) / ranks.max(1) / 2 {
        Api::MpiIo
    } else if posix {
        Api::Posix
    } else {
        Api::Stdio
    };
    records.iter().copied().filter(move |of| of.api == wanted)
}

fn bytes_of(records: &[&FileCounters], api: Api) -> u64 {
    let of_api = records.iter().filter(|of| of.api == api);
    of_api
        .flat_map(|of| DIRECTIONS.iter().map(move |direction| integer(of, direction.bytes)))
        .fold(0, u64::saturating_add)
}

/// Ranks that may have used a file: those with records of it, all where one is of all.
fn ranks_of(records: &[&FileCounters], processes: u64) -> u64 {
    let named: HashSet<u32> = records.iter().filter_map(|of| of.rank).collect();
    if records.iter().any(|of| of.rank.is_none()) { processes.max(1) } else { named.len() as u64 }
}

/// Reads or writes of MPI-IO, by how they were asked for.
fn asked(of: &FileCounters, direction: &Direction) -> AskedCalls {
    let kind = |kind: &str| integer(of, &format!("{kind}_{}", direction.counts));
    AskedCalls {
        // A split call has a begin and an end, and all ranks make it.
        collective: kind("COLL").saturating_add(kind("SPLIT")),
        independent: kind("INDEP").saturating_add(kind("NB")),
        nonblocking: kind("NB").saturating_add(kind("SPLIT")),
        bytes: integer(of, direction.bytes),
    }
}

/// How many of `processes` ranks moved the bytes of a record of all ranks, by the variance of their bytes: where m of P
/// moved as much and the others nothing it is mean² (P/m − 1).
fn movers(of: &FileCounters, processes: u64) -> usize {
    let bytes = DIRECTIONS.iter().map(|direction| integer(of, direction.bytes) as f64).sum::<f64>();
    let mean = bytes / processes.max(1) as f64;
    let spread = if mean > 0.0 { float(of, "F_VARIANCE_RANK_BYTES") / (mean * mean) } else { 0.0 };
    (processes as f64 / (1.0 + spread)).round().max(1.0) as usize
}

/// Whether they are all that is known of what was read or written.
pub(crate) fn alone(records: &[&FileCounters], processes: u64) -> bool {
    let mut of_storage = storage(records, ranks_of(records, processes)).peekable();
    let bytes = of_storage.peek().map_or(0, |of| bytes_of(records, of.api));
    bytes > 0 && of_storage.all(|of| !of.has_rows)
}

/// How a file was used, by its counters. O(counters).
pub(crate) fn used(records: &[&FileCounters], processes: u64) -> Use {
    let mut used = Use::default();
    for of in storage(records, ranks_of(records, processes)) {
        let mut rank = RankUse::default();
        for direction in &DIRECTIONS {
            let is_mpi_io = of.api == Api::MpiIo;
            let bytes = integer(of, direction.bytes);
            let count = match bytes {
                // Of a file that is empty yet, as data sieving reads it.
                0 => 0,
                _ if is_mpi_io => asked(of, direction).calls(),
                _ => integer(of, direction.counts),
            };
            let class = if is_mpi_io { format!("{}AGG_", direction.sizes) } else { direction.sizes.to_owned() };
            let sizes = |ends: &[&str]| {
                ends.iter().map(|end| integer(of, &format!("{class}{end}"))).fold(0, u64::saturating_add)
            };
            // Calls that move nothing are in the class of the smallest, too.
            let small = sizes(&["0_100", "100_1K", "1K_10K", "10K_100K"]).min(count);
            let tiny = sizes(&["0_100", "100_1K"]).min(count);
            let sequential = integer(of, direction.sequential).min(count);
            let consecutive = integer(of, direction.consecutive).min(sequential);
            let known = of.api == Api::Posix;
            let requests = if direction.op == Op::Read { &mut used.reads } else { &mut used.writes };
            *requests = RequestCounts {
                count: requests.count.saturating_add(count),
                bytes: requests.bytes.saturating_add(bytes),
                tiny: requests.tiny.saturating_add(tiny),
                small: requests.small.saturating_add(small),
                placed: requests.placed.saturating_add(if known { count } else { 0 }),
                consecutive: requests.consecutive.saturating_add(if known { consecutive } else { 0 }),
                backward: requests.backward.saturating_add(if known { count - sequential } else { 0 }),
                skipping: requests.skipping.saturating_add(if known { sequential - consecutive } else { 0 }),
                unaligned: 0,
                busy_s: requests.busy_s + float(of, direction.busy),
            };
            let busy_s = float(of, direction.busy);
            used.busy_s += busy_s;
            rank.bytes = rank.bytes.saturating_add(bytes);
            if direction.op == Op::Write {
                rank.written_bytes = bytes;
            }
            rank.busy_s += busy_s;
            if count > 0 {
                // MPI-IO's records have no furthest byte: what was moved is an upper bound of the file's size.
                let end = if is_mpi_io { bytes } else { integer(of, direction.end).saturating_add(1) };
                used.end = used.end.max(end);
                used.spans(float(of, direction.from), float(of, direction.to).max(float(of, direction.from)));
            }
            used.slowest_s = used.slowest_s.max(float(of, &direction.busy.replace("F_", "F_MAX_")));
        }
        match of.rank {
            Some(number) => _ = used.ranks.insert(number, rank),
            None => {
                used.slowest_rank_s += slowest_rank_s(of, rank.busy_s);
                let movers = movers(of, processes);
                let moved = |direction: &Direction| if integer(of, direction.bytes) > 0 { movers } else { 0 };
                used.movers = (moved(&DIRECTIONS[0]), moved(&DIRECTIONS[1]));
            }
        }
    }
    used.sharers = used.ranks.len();
    if used.movers == (0, 0) {
        used.find_movers(&HashMap::new());
    }
    used
}

/// Seconds that the slowest of all ranks read and wrote: its time has that of opens and the like in it, which is taken
/// to be of the same share as that of all ranks, `busy_s` being what all read and wrote.
fn slowest_rank_s(of: &FileCounters, busy_s: f64) -> f64 {
    let all_s = busy_s + float(of, "F_META_TIME");
    if all_s > 0.0 { (float(of, "F_SLOWEST_RANK_TIME") * busy_s / all_s).min(busy_s) } else { 0.0 }
}

/// Adds what only counters know: what was asked of MPI-IO and the libraries above it, calls that moved nothing, and with
/// `metadata` opens, stats and their times.
pub(crate) fn complete(used: &mut Use, records: &[&FileCounters], metadata: bool, processes: u64) {
    if records.iter().any(|of| of.api == Api::MpiIo) {
        // Rows of such logs do not tell collective calls apart.
        used.asked = Asked::default();
    }
    if records.iter().any(|of| of.api == Api::Stdio) {
        used.stdio_bytes = 0;
    }
    for of in records {
        match of.api {
            Api::MpiIo => {
                let [reads, writes] = DIRECTIONS.each_ref().map(|direction| asked(of, direction));
                used.asked.add(&Asked { reads, writes, ..Asked::default() });
            }
            Api::Posix if !of.has_rows => {
                let (empty, single) = of_no_and_one_byte(of);
                used.empty_and_single.0 = used.empty_and_single.0.saturating_add(empty);
                used.empty_and_single.1 = used.empty_and_single.1.saturating_add(single);
            }
            Api::Hdf5 | Api::PnetCdf => used.asked.add(&of_library(of)),
            Api::Posix | Api::Stdio => {}
        }
        if of.api == Api::Stdio {
            let bytes = DIRECTIONS.iter().map(|direction| integer(of, direction.bytes)).fold(0, u64::saturating_add);
            used.stdio_bytes = used.stdio_bytes.saturating_add(bytes);
        }
        if metadata && matches!(of.api, Api::Posix | Api::Stdio) {
            used.opens = used.opens.saturating_add(integer(of, "OPENS"));
            used.stats = used.stats.saturating_add(integer(of, "STATS"));
            used.meta_s += float(of, "F_META_TIME");
        }
    }
    for of in records.iter().filter(|of| of.api == Api::Posix) {
        used.off_alignment.0 = used.off_alignment.0.saturating_add(integer(of, "FILE_NOT_ALIGNED"));
        used.off_alignment.1 = used.off_alignment.1.max(integer(of, "FILE_ALIGNMENT"));
        used.slowest_ranks((float(of, "F_FASTEST_RANK_TIME"), float(of, "F_SLOWEST_RANK_TIME")));
    }
    // A record of all ranks is of a file that all of them opened.
    if records.iter().any(|of| of.rank.is_none() && of.api == Api::Posix) {
        used.sharers = used.sharers.max(usize::try_from(processes).unwrap_or(usize::MAX));
    }
}

/// Calls of no bytes and of one, as far as they are among the commonest sizes.
fn of_no_and_one_byte(of: &FileCounters) -> (u64, u64) {
    let common = (1..=4).map(|n| (integer(of, &format!("ACCESS{n}_ACCESS")), integer(of, &format!("ACCESS{n}_COUNT"))));
    let counted = |wanted: u64| {
        common.clone().filter(|(size, _)| *size == wanted).map(|(_, count)| count).fold(0, u64::saturating_add)
    };
    let of_nothing = DIRECTIONS.iter().filter(|direction| integer(of, direction.bytes) == 0);
    let empty = of_nothing.map(|direction| integer(of, direction.counts)).fold(0, u64::saturating_add);
    (counted(0).max(empty), counted(1))
}

fn of_library(of: &FileCounters) -> Asked {
    let sum = |names: &[&str]| names.iter().map(|name| integer(of, name)).fold(0, u64::saturating_add);
    let accesses = sum(&["H5D_READS", "H5D_WRITES"]);
    let collective = if integer(of, "H5D_USE_MPIIO_COLLECTIVE") > 0 { accesses } else { 0 };
    Asked {
        hdf5: of.api == Api::Hdf5,
        hdf5_accesses: (accesses, collective),
        pnetcdf: (
            sum(&["PNETCDF_VAR_INDEP_READS", "PNETCDF_VAR_INDEP_WRITES"]),
            sum(&[
                "PNETCDF_VAR_COLL_READS",
                "PNETCDF_VAR_COLL_WRITES",
                "PNETCDF_VAR_NB_READS",
                "PNETCDF_VAR_NB_WRITES",
            ]),
        ),
        ..Asked::default()
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
        let used = used(&[&of], 8);
        assert_eq!((used.writes.count, used.end, used.span_s), (64, 64 << 20, (1.0, 5.0)));
        assert_eq!((used.writes.placed, used.writes.consecutive, used.writes.backward), (64, 63, 1));
        assert_eq!(used.busy_s, 2.0);
    }

    #[test]
    fn a_file_that_posix_hardly_saw_is_that_of_mpi_io() {
        let of = |api, name, bytes| FileCounters { api, ..posix(None, &[(name, bytes)], &[]) };
        let calls = FileCounters {
            api: Api::MpiIo,
            ..posix(
                None,
                &[("MPIIO_COLL_WRITES", 8), ("MPIIO_BYTES_WRITTEN", 8 << 20), ("MPIIO_SIZE_WRITE_AGG_0_100", 2)],
                &[],
            )
        };
        let hardly = [&of(Api::Posix, "POSIX_BYTES_WRITTEN", 96), &calls];
        let found = used(&hardly, 8);
        assert_eq!((found.writes.count, found.writes.bytes, found.writes.tiny), (8, 8 << 20, 2));
        assert!(alone(&hardly, 8));
        // All eight ranks read the same: one MiB reaches the storage.
        let moved = [&of(Api::Posix, "POSIX_BYTES_READ", 1 << 20), &of(Api::MpiIo, "MPIIO_BYTES_READ", 8 << 20)];
        assert_eq!(used(&moved, 8).reads.bytes, 1 << 20);
    }

    #[test]
    fn a_file_without_a_furthest_byte_is_as_long_as_what_was_written() {
        let names = [("MPIIO_COLL_WRITES", 8), ("MPIIO_BYTES_WRITTEN", 8 << 20)];
        let of = FileCounters { api: Api::MpiIo, ..posix(None, &names, &[]) };
        assert_eq!(used(&[&of], 8).end, 8 << 20);
    }

    #[test]
    fn reads_of_an_empty_file_are_empty_requests() {
        let counts = [
            ("POSIX_READS", 3000),
            ("POSIX_SIZE_READ_0_100", 3000),
            ("POSIX_WRITES", 10),
            ("POSIX_BYTES_WRITTEN", 10 << 20),
        ];
        let of = posix(None, &counts, &[]);
        let mut found = used(&[&of], 8);
        complete(&mut found, &[&of], true, 8);
        assert_eq!((found.reads.count, found.writes.count, found.empty_and_single.0), (0, 10, 3000));
        assert_eq!((found.reads.tiny, found.reads.small), (0, 0), "what moves nothing is not small as well");
    }

    #[test]
    fn who_moves_the_bytes_of_all_ranks_is_told_by_their_variance() {
        // 2 of 8 ranks write 4 MiB each: the mean is 1 MiB, the variance 3 MiB².
        let bytes = f64::from(1_u32 << 20);
        let of =
            posix(None, &[("POSIX_BYTES_WRITTEN", 8 << 20)], &[("POSIX_F_VARIANCE_RANK_BYTES", 3.0 * bytes * bytes)]);
        assert_eq!(used(&[&of], 8).movers, (0, 2));
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
            used(&[&of], 8);
        }
    }
}
