//! Findings on single requests: how small they are, and where they begin.

use super::finding::{Finding, FindingContext, Hints, REQUESTS, Severity, percent};
use crate::bottleneck::about;
use crate::usage::{RequestCounts, Use, share};

/// Fewer bytes moved again cost next to nothing.
const AGAIN_BYTES: u64 = 16 << 20;

pub(super) fn tiny(used: &Use) -> Option<Finding> {
    let both = used.both();
    let tiny = share(both.tiny, both.count);
    if both.tiny < REQUESTS || tiny < 0.1 {
        return None;
    }
    let severity = match (tiny, both.tiny) {
        (share, 10_000..) if share >= 0.5 => Severity::High,
        (share, _) if share >= 0.5 => Severity::Medium,
        (_, 10_000..) => Severity::Medium,
        _ => Severity::Low,
    };
    Some(Finding {
        kind: "tiny-requests",
        severity,
        words: format!("{} of {} requests are below 4KiB{}", percent(tiny), both.count, of_one_byte(used)),
        numbers: vec![("tiny", both.tiny as f64), ("requests", both.count as f64), ("share", tiny)],
        mend: vec![
            "collect records in memory and move 1MiB or more at a time; stdio: setvbuf(stream, NULL, _IOFBF, 1 << 20)"
                .into(),
            "Python: open(…, buffering=1 << 20); HDF5: larger chunks and H5Pset_cache, or H5Pset_sieve_buf_size".into(),
        ],
        hints: Hints::default(),
    })
}

/// How many requests are of one byte, where that is worth a word.
fn of_one_byte(used: &Use) -> String {
    let single = used.empty_and_single.1;
    if single >= REQUESTS && share(single, used.both().count) >= 0.1 {
        format!(", {single} of one byte")
    } else {
        String::new()
    }
}

/// Requests that are far smaller than what a file system moves at once.
pub(super) fn small(used: &Use) -> Option<Finding> {
    let both = used.both();
    let small = share(both.small, both.count);
    // Tiny ones have a finding of their own.
    if both.small < 1000 || small < 0.5 || tiny(used).is_some() {
        return None;
    }
    let jumping = both.jumping();
    Some(Finding {
        kind: "small-requests",
        severity: if jumping >= 0.3 { Severity::Medium } else { Severity::Low },
        words: format!(
            "{} of {} requests are below 256KiB ({} on average), {} not next to the one before",
            percent(small),
            both.count,
            about(both.mean_bytes()),
            percent(jumping)
        ),
        numbers: vec![
            ("small", both.small as f64),
            ("requests", both.count as f64),
            ("share", small),
            ("jumping_share", jumping),
        ],
        mend: vec!["move 1MiB or more at a time; what is read or written in order a client gathers by itself".into()],
        hints: Hints::default(),
    })
}

/// Reads or writes that go to and fro.
pub(super) fn random(used: &Use) -> Option<Finding> {
    let jumps = |of: &RequestCounts| share(of.backward, of.placed);
    let is_random = |of: &RequestCounts| {
        of.placed >= REQUESTS && of.mean_bytes() < 262_144.0 && jumps(of) >= 0.2 && of.jumping() >= 0.5
    };
    let ways = [("random-reads", "reads", &used.reads), ("random-writes", "writes", &used.writes)];
    let (kind, verb, of) = ways.into_iter().filter(|(.., of)| is_random(of)).max_by_key(|(.., of)| of.count)?;
    let order = if kind == "random-reads" {
        "sort what is read by its offset, or read whole blocks once and keep them"
    } else {
        "sort what is written by its offset, or collect blocks in memory and write them whole"
    };
    Some(Finding {
        kind,
        severity: if of.count >= 1000 { Severity::Medium } else { Severity::Low },
        words: format!(
            "{} {verb} of {} on average, {} of them jump ({} backward): disks seek for each",
            of.count,
            about(of.mean_bytes()),
            percent(of.jumping()),
            percent(jumps(of)),
        ),
        numbers: vec![
            ("requests", of.count as f64),
            ("mean_bytes", of.mean_bytes()),
            ("jumping_share", of.jumping()),
            ("backward_share", jumps(of)),
        ],
        mend: vec![
            order.into(),
            "put the file on a tier without seeks; posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) stops useless read-ahead"
                .into(),
        ],
        hints: Hints::default(),
    })
}

/// More is read, or written, than the file holds.
pub(super) fn again(used: &Use) -> Option<Finding> {
    let ways = [("read-again", "read", used.reads.bytes), ("written-again", "written", used.writes.bytes)];
    let (kind, verb, bytes) = ways.into_iter().max_by_key(|way| way.2)?;
    let (end, times) = (used.end, share(bytes, used.end));
    // Of many files alike the end is that of the longest.
    if used.files != 1 || bytes < AGAIN_BYTES || times < 2.0 {
        return None;
    }
    let mend = if kind == "read-again" {
        "read it once and send it on (MPI_Bcast), or once a node into memory or a local disk"
    } else {
        "write each byte once: what is changed again and again stays in memory until it is whole"
    };
    Some(Finding {
        kind,
        severity: if times >= 8.0 { Severity::Medium } else { Severity::Low },
        words: format!(
            "{} are {verb} of a file of {}: {times:.1} times all of it",
            about(bytes as f64),
            about(end as f64)
        ),
        numbers: vec![("bytes", bytes as f64), ("file_bytes", end as f64), ("times", times)],
        mend: vec![mend.into()],
        hints: Hints::default(),
    })
}

/// Requests begin within a block of the file system, as far as that was counted.
pub(super) fn off_alignment(used: &Use, around: &FindingContext) -> Option<Finding> {
    let (count, block) = used.off_alignment;
    let requests = used.both().count;
    let part = share(count, requests.max(count));
    if count < 1000 || part < 0.1 || block < 2 || unaligned(used, around).is_some() {
        return None;
    }
    Some(Finding {
        kind: "off-alignment",
        severity: Severity::Low,
        words: format!("{} of {requests} requests begin within a block of {}", percent(part), about(block as f64)),
        numbers: vec![("unaligned", count as f64), ("requests", requests as f64), ("block_bytes", block as f64)],
        mend: vec![format!("let blocks begin at multiples of {0}; HDF5: H5Pset_alignment(fapl, {0}, {0})", block)],
        hints: Hints::default(),
    })
}

pub(super) fn unaligned(used: &Use, around: &FindingContext) -> Option<Finding> {
    let both = used.both();
    let mut hints = Hints::default();
    if used.asked.writes.calls() > 0 {
        hints.add("striping_unit", &around.width_bytes.to_string());
    }
    let unaligned = share(both.unaligned, both.count);
    if both.unaligned < REQUESTS || unaligned < 0.3 {
        return None;
    }
    let width = about(around.width_bytes as f64);
    Some(Finding {
        kind: "unaligned",
        severity: if unaligned >= 0.7 { Severity::Medium } else { Severity::Low },
        words: format!(
            "{} of {} requests begin within a stripe of {width} and touch one server more",
            percent(unaligned),
            both.count
        ),
        numbers: vec![
            ("unaligned", both.unaligned as f64),
            ("requests", both.count as f64),
            ("share", unaligned),
            ("width_bytes", around.width_bytes as f64),
        ],
        mend: hints.with(vec![format!(
            "let blocks begin at multiples of {width}; HDF5: H5Pset_alignment(fapl, 1048576, {})",
            around.width_bytes
        )]),
        hints,
    })
}
