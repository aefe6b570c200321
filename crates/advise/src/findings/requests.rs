//! Findings on single requests: how small they are, and where they begin.

use super::finding::{Finding, FindingContext, REQUESTS, Severity, percent};
use crate::bottleneck::{about, count};
use crate::usage::{Use, share};

/// Many ranks have small pieces of one file, each by its own request.
pub(super) fn collective_off(used: &Use) -> Option<Finding> {
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
        words: format!("{} of {} requests are below 4KiB", percent(tiny), both.count),
        numbers: vec![("tiny", both.tiny as f64), ("requests", both.count as f64), ("share", tiny)],
        mend: vec![
            "collect records in memory and move 1MiB or more at a time; stdio: setvbuf(stream, NULL, _IOFBF, 1 << 20)"
                .into(),
            "Python: open(…, buffering=1 << 20); HDF5: larger chunks and H5Pset_cache, or H5Pset_sieve_buf_size".into(),
        ],
    })
}

pub(super) fn random_reads(used: &Use) -> Option<Finding> {
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

pub(super) fn unaligned(used: &Use, around: &FindingContext) -> Option<Finding> {
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
