//! What matters beside layouts, often more: each finding with its figures, how grave it is, and how to mend it.

use crate::bottleneck::{about, count};
use crate::slow::Slow;
use crate::usage::{Use, share};

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Low,
    /// Costs time.
    Medium,
    /// Most of the time is lost to it, or most of the bytes are in it.
    High,
}

impl Severity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Something that costs time and is no matter of layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Its name, for programs.
    pub kind: &'static str,
    /// How grave it is.
    pub severity: Severity,
    /// What was found, with its figures.
    pub words: String,
    /// The figures.
    pub numbers: Vec<(&'static str, f64)>,
    /// What to do about it: calls, hints, settings.
    pub mend: Vec<String>,
}

/// What findings on files rest on.
pub(crate) struct Around {
    /// Processes of the job.
    pub processes: usize,
    /// Share of all bytes that these files move.
    pub weight: f64,
    /// Width in bytes of the stripes of their present layout.
    pub width_bytes: u64,
}

/// Fewest requests that a habit is told from.
const REQUESTS: u64 = 32;

/// Requests that take so many times the median are stragglers.
const STRAGGLER: f64 = 16.0;

/// On files of one kind, the gravest first.
pub(crate) fn of_files(used: &Use, around: &Around) -> Vec<Finding> {
    let found = [
        collective_off(used),
        tiny(used),
        random_reads(used),
        unaligned(used, around),
        one_rank(used, around.processes),
        imbalance(used),
        stragglers(used),
    ];
    let mut found: Vec<Finding> = found.into_iter().flatten().collect();
    if around.weight < 0.01 {
        // What moves next to nothing cannot cost much.
        found.iter_mut().for_each(|finding| finding.severity = Severity::Low);
    }
    sorted(found)
}

/// On the whole of a run, what only it shows.
pub(crate) fn of_run(used: &Use, processes: usize, slow: Option<&Slow>) -> Vec<Finding> {
    sorted([metadata(used), one_rank(used, processes), slow.map(slow_server)].into_iter().flatten().collect())
}

fn sorted(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.kind));
    found
}

fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

/// Many ranks have small pieces of one file, each by its own request.
fn collective_off(used: &Use) -> Option<Finding> {
    let (verb, of) =
        if used.writes.small >= used.reads.small { ("write", &used.writes) } else { ("read", &used.reads) };
    let (small, jumping) = (share(of.small, of.count), of.jumping());
    if used.sharers < 2 || of.count < REQUESTS || small < 0.5 || jumping < 0.3 || used.collective > used.independent {
        return None;
    }
    let through = if used.independent > 0 { "independent MPI-IO" } else { "POSIX calls" };
    let mend = if used.independent > 0 {
        vec![
            format!("call MPI_File_{verb}_at_all in place of MPI_File_{verb}_at, so that the library joins the pieces"),
            format!("hints to MPI_File_open: romio_cb_{verb}=enable, cb_nodes=<servers of the file>"),
            "HDF5: H5Pset_dxpl_mpio(dxpl, H5FD_MPIO_COLLECTIVE), for its metadata H5Pset_all_coll_metadata_ops(fapl, 1); \
             netCDF: nc_var_par_access(…, NC_COLLECTIVE)"
                .into(),
        ]
    } else {
        vec![
            format!(
                "{verb} through MPI-IO with a view of the file and MPI_File_{verb}_all: the library joins the pieces"
            ),
            "or gather the pieces on one process a node, and let those move large blocks".into(),
        ]
    };
    Some(Finding {
        kind: "collective-off",
        severity: Severity::High,
        words: format!(
            "{} {verb} {} pieces by {through}, {} of them below 256KiB ({} on average), {} not next to the one before",
            count(used.sharers, "rank", "s"),
            of.count,
            percent(small),
            about(of.mean_bytes()),
            percent(jumping),
        ),
        numbers: vec![
            ("ranks", used.sharers as f64),
            ("requests", of.count as f64),
            ("mean_bytes", of.mean_bytes()),
            ("small_share", small),
            ("jumping_share", jumping),
        ],
        mend,
    })
}

fn tiny(used: &Use) -> Option<Finding> {
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
        words: format!("{} of {} requests are below 4KiB", percent(tiny), both.count),
        numbers: vec![("tiny", both.tiny as f64), ("requests", both.count as f64), ("share", tiny)],
        mend: vec![
            "collect records in memory and move 1MiB or more at a time; stdio: setvbuf(stream, NULL, _IOFBF, 1 << 20)"
                .into(),
            "Python: open(…, buffering=1 << 20); HDF5: larger chunks and H5Pset_cache, or H5Pset_sieve_buf_size".into(),
        ],
    })
}

fn random_reads(used: &Use) -> Option<Finding> {
    let reads = &used.reads;
    let backward = share(reads.backward, reads.placed);
    if reads.placed < REQUESTS || reads.mean_bytes() >= 262_144.0 || backward < 0.2 || reads.jumping() < 0.5 {
        return None;
    }
    Some(Finding {
        kind: "random-reads",
        severity: if reads.count >= 1000 { Severity::Medium } else { Severity::Low },
        words: format!(
            "{} reads of {} on average, {} of them jump ({} backward): disks seek for each",
            reads.count,
            about(reads.mean_bytes()),
            percent(reads.jumping()),
            percent(backward),
        ),
        numbers: vec![
            ("requests", reads.count as f64),
            ("mean_bytes", reads.mean_bytes()),
            ("jumping_share", reads.jumping()),
            ("backward_share", backward),
        ],
        mend: vec![
            "sort what is read by its offset, or read whole blocks once and keep them".into(),
            "put the file on a tier without seeks; posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) stops useless read-ahead"
                .into(),
        ],
    })
}

fn unaligned(used: &Use, around: &Around) -> Option<Finding> {
    let both = used.both();
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
        mend: vec![
            format!(
                "let blocks begin at multiples of {width}; HDF5: H5Pset_alignment(fapl, 0, {})",
                around.width_bytes
            ),
            "MPI-IO: the hint striping_unit, and romio_cb_* so that aggregators own whole stripes".into(),
        ],
    })
}

fn one_rank(used: &Use, processes: usize) -> Option<Finding> {
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

fn imbalance(used: &Use) -> Option<Finding> {
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

fn stragglers(used: &Use) -> Option<Finding> {
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

fn metadata(used: &Use) -> Option<Finding> {
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

fn slow_server(slow: &Slow) -> Finding {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slow::SlowServer;
    use crate::usage::{RankUse, Requests};

    fn around() -> Around {
        Around { processes: 8, weight: 1.0, width_bytes: 1 << 20 }
    }

    fn names(found: &[Finding]) -> Vec<&'static str> {
        found.iter().map(|finding| finding.kind).collect()
    }

    /// 8 ranks that write 1000 requests of `size` bytes each.
    fn shared(size: u64) -> Use {
        let mut used = Use::default();
        used.sharers = 8;
        used.writes =
            Requests { count: 8000, bytes: 8000 * size, placed: 8000, consecutive: 8000, ..Requests::default() };
        used.ranks = (0..8).map(|rank| (rank, RankUse { bytes: 1000 * size, busy_s: 1.0 })).collect();
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
            used.writes = Requests {
                count: 8000,
                bytes: 8000 << 14,
                small: 8000,
                placed: 8000,
                skipping: 8000,
                ..Requests::default()
            };
            used.independent = 8000;
        });
        assert_eq!(names(&strided), ["collective-off"]);
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
            used.reads = Requests {
                count: 5000,
                bytes: 5000 << 10,
                placed: 5000,
                backward: 2500,
                skipping: 2500,
                ..Requests::default()
            };
        });
        assert_eq!(names(&random), ["random-reads"]);
        let light = Around { weight: 0.001, ..around() };
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
        used.collective = 100;
        assert_eq!(names(&of_files(&used, &around())), Vec::<&str>::new());
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
