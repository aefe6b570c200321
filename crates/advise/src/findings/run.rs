//! Findings on the run as a whole: uneven ranks, stragglers, metadata, servers.

use super::finding::{Finding, Hints, REQUESTS, Severity, percent};
use crate::bottleneck::about;
use crate::slow::Slow;
use crate::usage::{Use, share};
use std::collections::HashMap;

/// Less through stdio costs next to nothing.
const STDIO_BYTES: u64 = 16 << 20;

/// What one rank moves of less is no matter for a headline.
const LEAST_BYTES: u64 = 16 << 20;

/// Requests that take this many times the median are stragglers.
const STRAGGLER: f64 = 16.0;

/// Less time in all of them is not worth a look.
const STRAGGLER_S: f64 = 0.1;

/// Bytes that each rank moved for itself. What is asked for collectively is moved by aggregators for all: that they move
/// more than others is what they are for.
fn own_bytes(used: &Use) -> HashMap<u32, u64> {
    let (reads, writes) = used.is_collective();
    let own = used.ranks.iter().map(|(&rank, of)| {
        let read = if reads { 0 } else { of.bytes.saturating_sub(of.written_bytes) };
        (rank, read + if writes { 0 } else { of.written_bytes })
    });
    own.collect()
}

pub(super) fn one_rank(used: &Use, processes: usize) -> Option<Finding> {
    let own = own_bytes(used);
    let all: u64 = own.values().copied().fold(0, u64::saturating_add);
    let (&rank, &most) = own.iter().max_by_key(|(rank, bytes)| (**bytes, std::cmp::Reverse(**rank)))?;
    let part = share(most, all);
    // What records of all ranks together have is no rank's.
    let most_is_told = share(all, used.both().bytes) >= 0.5;
    if processes < 4 || part < 0.9 || !most_is_told {
        return None;
    }
    Some(Finding {
        kind: "one-rank",
        severity: match processes {
            // The others hardly wait for it.
            _ if all < LEAST_BYTES => Severity::Low,
            16.. => Severity::High,
            _ => Severity::Medium,
        },
        words: format!("rank {rank} moves {} of the bytes, the other {} wait", percent(part), processes - 1),
        numbers: vec![("rank", f64::from(rank)), ("share", part), ("processes", processes as f64)],
        mend: vec![
            "let every rank (or one a node) move its own part: MPI_File_write_at_all, or parallel HDF5 or netCDF"
                .into(),
            "one process has one request in flight: no layout helps it to more than one server's speed for a small one"
                .into(),
        ],
        hints: Hints::default(),
    })
}

pub(super) fn imbalance(used: &Use) -> Option<Finding> {
    let mut bytes: Vec<u64> = own_bytes(used).into_values().collect();
    if bytes.len() < 4 {
        return few_ranks(used);
    }
    bytes.sort_unstable();
    let mean = bytes.iter().map(|&bytes| bytes as f64).sum::<f64>() / bytes.len() as f64;
    let most = *bytes.last()? as f64;
    let over = if mean > 0.0 { most / mean } else { 1.0 };
    // One that does all has a finding of its own.
    if over < 2.0 || most > 0.9 * mean * bytes.len() as f64 {
        return None;
    }
    Some(Finding {
        kind: "rank-imbalance",
        severity: if over >= 4.0 { Severity::Medium } else { Severity::Low },
        words: format!("the busiest of {} ranks moves {over:.1} times the mean ({})", bytes.len(), about(most)),
        numbers: vec![("ranks", bytes.len() as f64), ("over_mean", over), ("most_bytes", most)],
        mend: vec!["divide the data evenly, or let more ranks write: all wait for the last one".into()],
        hints: Hints::default(),
    })
}

/// Few of the ranks that share a file move its bytes, as far as records of all ranks together tell.
fn few_ranks(used: &Use) -> Option<Finding> {
    let movers = used.movers.0.max(used.movers.1);
    if used.sharers < 4 || movers == 0 || 2 * movers > used.sharers || used.is_collective() != (false, false) {
        return None;
    }
    Some(Finding {
        kind: "rank-imbalance",
        severity: if 8 * movers <= used.sharers { Severity::Medium } else { Severity::Low },
        words: format!("some {movers} of the {} ranks that share a file move its bytes", used.sharers),
        numbers: vec![("ranks", used.sharers as f64), ("movers", movers as f64)],
        mend: vec!["divide the data evenly, or let more ranks write: all wait for the last one".into()],
        hints: Hints::default(),
    })
}

/// A rank is this much longer at one file than another one, in seconds, before that is worth a word.
const RANK_TIME_S: f64 = 0.5;

/// One rank is at a file for much longer than another.
pub(super) fn rank_time(used: &Use) -> Option<Finding> {
    let (fastest_s, slowest_s) = used.rank_times_s;
    if slowest_s - fastest_s < RANK_TIME_S || slowest_s < 2.0 * fastest_s {
        return None;
    }
    Some(Finding {
        kind: "rank-time",
        severity: if slowest_s >= 10.0 { Severity::Medium } else { Severity::Low },
        words: format!(
            "a rank spends {slowest_s:.1} s on a file that another spends {fastest_s:.1} s on: the others wait"
        ),
        numbers: vec![("fastest_s", fastest_s), ("slowest_s", slowest_s)],
        mend: vec!["divide the work evenly; look at which servers and nodes the slow rank uses".into()],
        hints: Hints::default(),
    })
}

pub(super) fn stragglers(used: &Use) -> Option<Finding> {
    let (slow, slow_s) = used.slower_than(STRAGGLER);
    let part = if used.busy_s > 0.0 { (slow_s / used.busy_s).min(1.0) } else { 0.0 };
    let both = used.both();
    if both.count < REQUESTS || slow == 0 || slow_s < STRAGGLER_S || part < 0.2 || share(slow, both.count) > 0.1 {
        return None;
    }
    Some(Finding {
        kind: "stragglers",
        severity: if part >= 0.5 { Severity::Medium } else { Severity::Low },
        words: format!(
            "{slow} of {} requests took over 16 times the median ({:.3} ms), {} of all time; the longest {:.3} s",
            both.count,
            1e3 * used.median_s(),
            percent(part),
            used.slowest_s,
        ),
        numbers: vec![
            ("requests", both.count as f64),
            ("stragglers", slow as f64),
            ("time_share", part),
            ("median_s", used.median_s()),
            ("slowest_s", used.slowest_s),
        ],
        mend: vec!["look at what else used the servers then: other jobs, a rebuilding disk, a full server, locks on shared stripes".into()],
        hints: Hints::default(),
    })
}

pub(super) fn metadata(used: &Use, processes: usize) -> Option<Finding> {
    let calls = used.opens.saturating_add(used.stats);
    let requests = used.both().count;
    // Of one rank: half a second on each of 1,024 ranks is half a second, and all wait for the slowest.
    let of_each_s = used.meta_s / processes.max(1) as f64;
    let waits_s = ((used.meta_s + used.busy_s) / processes.max(1) as f64).max(used.rank_times_s.1);
    let part = if waits_s > 0.0 { of_each_s / waits_s } else { 0.0 };
    if calls < 100 || (part < 0.2 && calls < requests.saturating_mul(2)) {
        return None;
    }
    let rate = if used.elapsed_s() > 0.0 { calls as f64 / used.elapsed_s() } else { 0.0 };
    Some(Finding {
        kind: "metadata-storm",
        severity: if part >= 0.5 {
            Severity::High
        } else if part >= 0.2 {
            Severity::Medium
        } else {
            Severity::Low
        },
        words: format!("{} opens and {} stats beside {requests} reads and writes take {} of the I/O time", used.opens, used.stats, percent(part)),
        numbers: vec![
            ("opens", used.opens as f64),
            ("stats", used.stats as f64),
            ("requests", requests as f64),
            ("time_share", part),
            ("calls_per_s", rate),
        ],
        mend: vec![
            "open files once and keep them open; open on one rank and send what was learnt to the others".into(),
            "join many small files into one container (HDF5, tar, a data base); stripe small files over one server alone".into(),
        ],
        hints: Hints::default(),
    })
}

/// Where opens and stats took longer than the run lasted, how much of the I/O they are is not known.
pub(crate) fn doubt_times(found: &mut [Finding]) {
    for finding in found.iter_mut().filter(|finding| finding.kind == "metadata-storm") {
        finding.severity = Severity::Low;
        finding.numbers.retain(|(name, _)| *name != "time_share");
        let number = |wanted| finding.numbers.iter().find(|(name, _)| *name == wanted).map_or(0.0, |(_, value)| *value);
        let (opens, stats, requests) = (number("opens"), number("stats"), number("requests"));
        finding.words =
            format!("{opens} opens and {stats} stats beside {requests} reads and writes, by times longer than the run");
    }
}

/// Much goes through stdio's small buffer.
pub(super) fn stdio(used: &Use, processes: usize) -> Option<Finding> {
    let all = used.both().bytes.max(used.stdio_bytes);
    let part = share(used.stdio_bytes, all);
    if used.stdio_bytes < STDIO_BYTES || part < 0.1 {
        return None;
    }
    Some(Finding {
        kind: "stdio",
        severity: if processes >= 4 && part >= 0.5 { Severity::Medium } else { Severity::Low },
        words: format!(
            "{} of the bytes ({}) go through stdio, which moves them a buffer of 4KiB at a time",
            percent(part),
            about(used.stdio_bytes as f64)
        ),
        numbers: vec![("stdio_bytes", used.stdio_bytes as f64), ("share", part)],
        mend: vec!["setvbuf(stream, NULL, _IOFBF, 1 << 20); or write, or MPI-IO where many ranks share a file".into()],
        hints: Hints::default(),
    })
}

pub(super) fn slow_server(slow: &Slow) -> Finding {
    let first = &slow.servers[0];
    Finding {
        kind: "slow-server",
        severity: Severity::High,
        words: slow.words(),
        numbers: vec![
            ("server", first.server as f64),
            ("bytes_per_s", first.bytes_per_s),
            ("median_bytes_per_s", slow.median_bytes_per_s),
            ("slow", slow.servers.len() as f64),
        ],
        mend: vec![
            format!("tell the administrators: {} may be rebuilding, full or failing", first.name),
            "until then make files without it: Lustre: lfs setstripe -o <the others>, or a pool without it".into(),
        ],
        hints: Hints::default(),
    }
}
