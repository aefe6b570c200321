//! Findings on the run as a whole: uneven ranks, stragglers, metadata, servers.

use super::finding::{Finding, REQUESTS, Severity, percent};
use crate::bottleneck::about;
use crate::slow::Slow;
use crate::usage::{Use, share};

/// Requests that take this many times the median are stragglers.
const STRAGGLER: f64 = 16.0;

pub(super) fn one_rank(used: &Use, processes: usize) -> Option<Finding> {
    let all: u64 = used.ranks.values().map(|rank| rank.bytes).fold(0, u64::saturating_add);
    let (&rank, most) = used.ranks.iter().max_by_key(|(rank, of)| (of.bytes, std::cmp::Reverse(**rank)))?;
    let part = share(most.bytes, all);
    if processes < 4 || part < 0.9 || all == 0 {
        return None;
    }
    Some(Finding {
        kind: "one-rank",
        severity: if processes >= 16 { Severity::High } else { Severity::Medium },
        words: format!("rank {rank} moves {} of the bytes, the other {} wait", percent(part), processes - 1),
        numbers: vec![("rank", f64::from(rank)), ("share", part), ("processes", processes as f64)],
        mend: vec![
            "let every rank (or one a node) move its own part: MPI_File_write_at_all, or parallel HDF5 or netCDF"
                .into(),
            "one process has one request in flight: no layout helps it to more than one server's speed for a small one"
                .into(),
        ],
    })
}

pub(super) fn imbalance(used: &Use) -> Option<Finding> {
    if used.ranks.len() < 4 {
        return None;
    }
    let mut bytes: Vec<u64> = used.ranks.values().map(|rank| rank.bytes).collect();
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
    })
}

pub(super) fn stragglers(used: &Use) -> Option<Finding> {
    let (slow, slow_s) = used.slower_than(STRAGGLER);
    let part = if used.busy_s > 0.0 { (slow_s / used.busy_s).min(1.0) } else { 0.0 };
    let both = used.both();
    if both.count < REQUESTS || slow == 0 || part < 0.2 || share(slow, both.count) > 0.1 {
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
    })
}

pub(super) fn metadata(used: &Use) -> Option<Finding> {
    let calls = used.opens.saturating_add(used.stats);
    let requests = used.both().count;
    let part = if used.meta_s + used.busy_s > 0.0 { used.meta_s / (used.meta_s + used.busy_s) } else { 0.0 };
    if calls < 100 || (part < 0.2 && calls < requests.saturating_mul(2)) {
        return None;
    }
    let rate = if used.elapsed_s() > 0.0 { calls as f64 / used.elapsed_s() } else { 0.0 };
    Some(Finding {
        kind: "metadata-storm",
        severity: if part >= 0.5 { Severity::High } else { Severity::Medium },
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
    }
}
