//! [`Stated`]: what the counters of a record say of its requests.

use crate::counters::FileCounters;
use stripewise_trace::{Api, Operation};

/// What the counters say of one direction.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Stated {
    pub op: Option<Operation>,
    pub requests: u64,
    pub bytes: u64,
    /// Requests of each class of size, where the module counts them.
    pub histogram: Option<[u64; 10]>,
    /// The commonest sizes of both directions together, and how often.
    pub common: Vec<(u64, u64)>,
    /// How far it reached: last byte + 1.
    pub extent: Option<u64>,
    /// Requests that began where the one before ended; `None` where that is not counted.
    pub consecutive: Option<u64>,
    /// Requests that began after the one before, those included.
    pub sequential: Option<u64>,
    /// Requests that were collective.
    pub collective: u64,
    /// The alignment that most requests have, or 1.
    pub alignment: u64,
    /// The commonest distance from the end of a request to the next one.
    pub stride: Option<u64>,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Time in all requests together.
    pub busy_ns: u64,
}

impl Stated {
    pub fn of(counters: &FileCounters, op: Operation) -> Self {
        let prefix = prefix_of(counters.api);
        let (verb, done, kinds) = match op {
            Operation::Read => ("READ", "READ", "READS"),
            _ => ("WRITE", "WRITTEN", "WRITES"),
        };
        let count = |parts: [&str; 3]| counters.integer_of(prefix, parts).and_then(|value| u64::try_from(value).ok());
        let plain = |name: &str| count([name, "", ""]);
        let or_zero = |parts: [&str; 3]| count(parts).unwrap_or(0);
        let collective = or_zero(["COLL_", kinds, ""]).saturating_add(or_zero(["SPLIT_", kinds, ""]));
        let requests = if counters.api == Api::MpiIo {
            or_zero(["INDEP_", kinds, ""]).saturating_add(or_zero(["NB_", kinds, ""])).saturating_add(collective)
        } else {
            or_zero([kinds, "", ""])
        };
        if requests == 0 {
            return Stated::default();
        }
        let aggregate = if counters.api == Api::MpiIo { "_AGG_" } else { "_" };
        let size_of = if verb == "READ" { "SIZE_READ" } else { "SIZE_WRITE" };
        let classes = CLASSES.map(|class| count([size_of, aggregate, class]));
        let histogram = classes.iter().all(Option::is_some).then(|| classes.map(Option::unwrap_or_default));
        let numbers = ["1_", "2_", "3_", "4_"];
        let common = numbers
            .iter()
            .filter_map(|n| Some((count(["ACCESS", n, "ACCESS"])?, count(["ACCESS", n, "COUNT"])?)))
            .filter(|(_, times)| *times > 0)
            .collect();
        let bytes = or_zero(["BYTES_", done, ""]);
        // The counter is the last byte, and 0 where nothing was touched.
        let extent = count(["MAX_BYTE_", done, ""]).filter(|_| bytes > 0).map(|last| last.saturating_add(1));
        let unaligned = plain("FILE_NOT_ALIGNED").unwrap_or(u64::MAX);
        let moved = or_zero(["READS", "", ""]).saturating_add(or_zero(["WRITES", "", ""]));
        let alignment = plain("FILE_ALIGNMENT").filter(|bytes| *bytes > 1 && unaligned <= moved / 2).unwrap_or(1);
        let strides = numbers.iter().filter_map(|n| {
            Some((count(["STRIDE", n, "COUNT"])?, count(["STRIDE", n, "STRIDE"]).filter(|stride| *stride > 0)?))
        });
        let time = |name: &str| counters.float(&format!("{prefix}F_{verb}_{name}")).and_then(nanoseconds).unwrap_or(0);
        let start_ns = time("START_TIMESTAMP");
        Stated {
            op: Some(op),
            requests,
            bytes,
            histogram,
            common,
            extent,
            consecutive: count(["CONSEC_", kinds, ""]),
            sequential: count(["SEQ_", kinds, ""]),
            collective,
            alignment,
            stride: strides.filter(|(times, _)| *times > 0).max().map(|(_, stride)| stride),
            start_ns,
            end_ns: time("END_TIMESTAMP").max(start_ns),
            busy_ns: time("TIME"),
        }
    }
}

/// What the names of an interface's counters begin with.
pub(crate) fn prefix_of(api: Api) -> &'static str {
    match api {
        Api::Posix => "POSIX_",
        Api::MpiIo => "MPIIO_",
        Api::Stdio => "STDIO_",
        // Both names of a library are of its parts: files, and datasets or variables. Rows are made of neither.
        Api::Hdf5 => "H5",
        Api::PnetCdf => "PNETCDF_",
    }
}

/// Ends of the names of the ten classes of size.
pub(crate) const CLASSES: [&str; 10] =
    ["0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS"];

fn nanoseconds(seconds: f64) -> Option<u64> {
    (seconds.is_finite() && (0.0..1e9).contains(&seconds)).then(|| (seconds * 1e9).round() as u64)
}
