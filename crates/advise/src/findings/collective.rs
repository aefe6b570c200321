//! Findings on collective I/O: what was asked of MPI-IO beside what reached the file system, and who moved it.

use super::finding::{Finding, FindingContext, Hints, REQUESTS, Severity, percent};
use crate::asked::AskedCalls;
use crate::bottleneck::{about, count};
use crate::stripes::{romio_writers, stripe_bytes, stripe_count};
use crate::usage::{RequestCounts, Use, share};

/// Less is no reason to have more writers, nor for a headline.
const MANY_BYTES: u64 = 64 << 20;

/// Fewer small requests cost little.
const MANY_REQUESTS: u64 = 1000;

/// What data sieving reads of a buffer, or two-phase I/O of its part of a file, is this much at least (`ind_rd_buffer_size`
/// is 4 MiB, `ind_wr_buffer_size` 512 KiB).
const SIEVED_BYTES: u64 = 1 << 20;

/// ROMIO's default of `cb_buffer_size`.
const TWO_PHASE_BYTES: u64 = 16 << 20;

/// One direction: its verb, what was asked, what storage saw, who moved it.
struct Way<'u> {
    verb: &'static str,
    asked: &'u AskedCalls,
    moved: &'u RequestCounts,
    movers: usize,
    /// Nodes that those are on, where that is known.
    nodes: Option<usize>,
    is_collective: bool,
}

fn ways(used: &Use) -> [Way<'_>; 2] {
    let (reads, writes) = used.is_collective();
    let asked = &used.asked;
    let known = |nodes: usize| (nodes > 0).then_some(nodes);
    [
        Way {
            verb: "write",
            asked: &asked.writes,
            moved: &used.writes,
            movers: used.movers.1,
            nodes: known(used.mover_nodes.1),
            is_collective: writes,
        },
        Way {
            verb: "read",
            asked: &asked.reads,
            moved: &used.reads,
            movers: used.movers.0,
            nodes: known(used.mover_nodes.0),
            is_collective: reads,
        },
    ]
}

/// The nodes of the ranks that move bytes, in words.
fn on_nodes(way: &Way) -> String {
    way.nodes.map_or(String::new(), |nodes| format!(" on {}", count(nodes, "node", "s")))
}

/// Many ranks have small pieces of one file, each by its own request.
pub(super) fn collective_off(used: &Use, around: &FindingContext) -> Option<Finding> {
    let way = ways(used).into_iter().max_by_key(|way| (way.moved.small, way.verb == "write"))?;
    let (verb, of, independent) = (way.verb, way.moved, way.asked.independent > 0);
    let (small, jumping) = (share(of.small, of.count), of.jumping());
    let few = of.count < REQUESTS || small < 0.5 || jumping < 0.3;
    // Pieces of one rank are its own to gather.
    let alone = used.sharers < 2 || way.movers == 1;
    if alone || few || way.is_collective || is_hdf5_metadata(used, around) {
        return None;
    }
    let through = if independent { "independent MPI-IO" } else { "POSIX calls" };
    let mut hints = Hints::default();
    let mend = if independent {
        hints.add(&format!("romio_cb_{verb}"), "enable");
        vec![
            format!("call MPI_File_{verb}_at_all in place of MPI_File_{verb}_at, so that the library joins the pieces"),
            "HDF5: H5Pset_dxpl_mpio(dxpl, H5FD_MPIO_COLLECTIVE); netCDF: nc_var_par_access(…, NC_COLLECTIVE)".into(),
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
        // A few pieces of a few bytes are no matter for a headline.
        severity: if of.count >= MANY_REQUESTS || of.bytes >= MANY_BYTES { Severity::High } else { Severity::Medium },
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
        mend: hints.with(mend),
        hints,
    })
}

/// Whether the small reads of a file are those of HDF5's metadata: each rank finds its way in the file by itself.
fn is_hdf5_metadata(used: &Use, around: &FindingContext) -> bool {
    let reads = &used.reads;
    around.is_hdf5
        && used.sharers >= 4
        && reads.count >= 8 * used.sharers as u64
        && share(reads.tiny, reads.count) > 0.8
}

/// Every rank reads the metadata of an HDF5 file.
pub(super) fn hdf5_metadata(used: &Use, around: &FindingContext) -> Option<Finding> {
    if !is_hdf5_metadata(used, around) || used.asked.reads.independent == 0 {
        return None;
    }
    let reads = &used.reads;
    Some(Finding {
        kind: "hdf5-metadata",
        severity: if reads.count >= 10_000 { Severity::High } else { Severity::Medium },
        words: format!(
            "{} each find their way in the HDF5 file by themselves: {} of its {} reads are below 4KiB, {:.0} a rank",
            count(used.sharers, "rank", "s"),
            percent(share(reads.tiny, reads.count)),
            reads.count,
            reads.count as f64 / used.sharers as f64,
        ),
        numbers: vec![
            ("ranks", used.sharers as f64),
            ("requests", reads.count as f64),
            ("tiny_share", share(reads.tiny, reads.count)),
        ],
        mend: vec![
            "H5Pset_all_coll_metadata_ops(fapl, 1) and H5Pset_coll_metadata_write(fapl, 1): one rank reads for all"
                .into(),
            "H5Pset_libver_bounds(fapl, H5F_LIBVER_V110, H5F_LIBVER_LATEST), and fewer, larger datasets and attributes"
                .into(),
        ],
        hints: Hints::default(),
    })
}

/// Collective writes (or reads) of many ranks go through few of them.
pub(super) fn few_writers(used: &Use, around: &FindingContext) -> Option<Finding> {
    let together = ways(used).into_iter().filter(|way| way.is_collective);
    let way = together.max_by_key(|way| (way.moved.bytes, way.verb == "write"))?;
    let (moved, movers) = (way.moved.bytes, way.movers);
    if moved < MANY_BYTES || movers == 0 {
        return None;
    }
    let wanted = stripe_count(used.end.max(moved), around.processes, around.targets);
    if 2 * movers > wanted {
        return None;
    }
    let limited = around.on_lustre && movers <= around.stripes;
    let unit = stripe_bytes(around.width_bytes);
    let mut hints = Hints::default();
    if around.on_lustre {
        hints.add("striping_factor", &wanted.to_string());
        hints.add("striping_unit", &unit.to_string());
    }
    hints.add("cb_nodes", &wanted.to_string());
    if let Some(nodes) = around.nodes.filter(|nodes| *nodes < wanted) {
        hints.add("cb_config_list", &format!("*:{}", wanted.div_ceil(nodes.max(1))));
    }
    hints.add("cb_buffer_size", &TWO_PHASE_BYTES.max(unit).to_string());
    let why = if limited {
        let stripes = count(around.stripes, "stripe", "s");
        format!(": the file has {stripes}, and MPI-IO takes one writer a stripe")
    } else {
        ": cb_nodes, or the nodes of the job, allow no more".into()
    };
    let mut mend = Vec::new();
    if around.on_lustre {
        mend.push(format!(
            "stripe the file over {wanted} targets before it is made: lfs setstripe -c {wanted} -S {}M <its directory>; \
             then {} ranks {}",
            unit >> 20,
            romio_writers(wanted, around.processes),
            way.verb
        ));
    }
    let of_each = if used.busy_s > 0.0 { used.both().bytes as f64 / used.busy_s } else { 0.0 };
    Some(Finding {
        kind: "few-writers",
        severity: if movers == 1 && moved >= 1 << 30 { Severity::High } else { Severity::Medium },
        words: format!(
            "{} {} {} collectively, and {} of them{} reach{} the file system{why}",
            count(around.processes, "rank", "s"),
            way.verb,
            about(moved as f64),
            movers,
            on_nodes(&way),
            if movers == 1 { "es" } else { "" },
        ),
        numbers: vec![
            ("ranks", around.processes as f64),
            ("movers", movers as f64),
            ("mover_nodes", way.nodes.unwrap_or(0) as f64),
            ("stripes", around.stripes as f64),
            ("wanted", wanted as f64),
            ("bytes_per_s_of_each", of_each),
        ],
        mend: hints.with(mend),
        hints,
    })
}

/// More was read than was asked for, by a program that writes: holes were filled with what was there.
pub(super) fn read_modify_write(used: &Use) -> Option<Finding> {
    let asked = &used.asked;
    let excess = used.reads.bytes.saturating_sub(asked.reads.bytes);
    let small_part = excess < SIEVED_BYTES || share(excess, asked.writes.bytes) < 0.05;
    if asked.writes.calls() == 0 || used.writes.bytes == 0 || small_part || asked.reads.bytes > asked.writes.bytes {
        return None;
    }
    let mut hints = Hints::default();
    hints.add("romio_ds_write", "disable");
    if !used.is_collective().1 {
        hints.add("romio_cb_write", "enable");
    }
    Some(Finding {
        kind: "read-modify-write",
        severity: if share(excess, asked.writes.bytes) >= 0.5 && excess >= MANY_BYTES {
            Severity::High
        } else {
            Severity::Medium
        },
        words: format!(
            "{} were read that nothing asked for, to write {}: MPI-IO reads what lies between the pieces and writes it back",
            about(excess as f64),
            about(asked.writes.bytes as f64),
        ),
        numbers: vec![("excess_bytes", excess as f64), ("asked_bytes", asked.writes.bytes as f64)],
        mend: hints.with(vec![
            "write without holes: all ranks' parts together in one collective call, or blocks padded to the stripe"
                .into(),
        ]),
        hints,
    })
}

/// Much more was moved than was asked for.
pub(super) fn amplification(used: &Use) -> Option<Finding> {
    let times = |way: &Way| share(way.moved.bytes, way.asked.bytes);
    let ways = ways(used).into_iter();
    let way =
        ways.filter(|way| way.asked.bytes >= SIEVED_BYTES && times(way) >= 1.5).max_by_key(|way| way.moved.bytes)?;
    // What is read to write it back has a finding of its own.
    if way.verb == "read" && read_modify_write(used).is_some() {
        return None;
    }
    let mut hints = Hints::default();
    hints.add(&format!("romio_ds_{}", way.verb), "disable");
    if !way.is_collective {
        hints.add(&format!("romio_cb_{}", way.verb), "enable");
    }
    Some(Finding {
        kind: "amplification",
        severity: if times(&way) >= 4.0 && way.moved.bytes >= MANY_BYTES { Severity::High } else { Severity::Medium },
        words: format!(
            "MPI-IO was asked to {} {} and moved {}, {:.1} times as much: data sieving moves what lies between the pieces",
            way.verb,
            about(way.asked.bytes as f64),
            about(way.moved.bytes as f64),
            times(&way),
        ),
        numbers: vec![
            ("asked_bytes", way.asked.bytes as f64),
            ("moved_bytes", way.moved.bytes as f64),
            ("times", times(&way)),
        ],
        mend: hints.with(Vec::new()),
        hints,
    })
}

/// What was asked of MPI-IO, and what of it reached the file system.
pub(super) fn layers(used: &Use) -> Option<Finding> {
    let told: Vec<String> = ways(used)
        .iter()
        .filter(|way| way.asked.bytes > 0 && way.moved.count > 0)
        .map(|way| {
            let by = match way.movers {
                0 => String::new(),
                movers => format!(" by {}{}", count(movers, "rank", "s"), on_nodes(way)),
            };
            format!(
                "{} of {} in {} collective and {} independent calls became {} in {} requests of {}{by}",
                way.verb,
                about(way.asked.bytes as f64),
                way.asked.collective,
                way.asked.independent,
                about(way.moved.bytes as f64),
                way.moved.count,
                about(way.moved.mean_bytes()),
            )
        })
        .collect();
    if told.is_empty() {
        return None;
    }
    let numbers = |way: &Way| [way.asked.bytes as f64, way.moved.bytes as f64, way.movers as f64];
    let [writes, reads] = ways(used).map(|way| numbers(&way));
    Some(Finding {
        kind: "mpi-io",
        severity: Severity::Low,
        words: format!("through MPI-IO: {}", told.join("; ")),
        numbers: vec![
            ("asked_write_bytes", writes[0]),
            ("written_bytes", writes[1]),
            ("writers", writes[2]),
            ("writer_nodes", used.mover_nodes.1 as f64),
            ("asked_read_bytes", reads[0]),
            ("read_bytes", reads[1]),
            ("readers", reads[2]),
            ("reader_nodes", used.mover_nodes.0 as f64),
        ],
        mend: Vec::new(),
        hints: Hints::default(),
    })
}

/// No call of MPI-IO returns before its bytes are moved.
pub(super) fn blocking(used: &Use) -> Option<Finding> {
    let waits = |way: &Way| way.asked.bytes >= MANY_BYTES && way.asked.calls() > 0 && way.asked.nonblocking == 0;
    let way = ways(used).into_iter().filter(waits).max_by_key(|way| way.asked.bytes)?;
    let (verb, calls) = (way.verb, way.asked.calls());
    Some(Finding {
        kind: "blocking",
        severity: Severity::Low,
        words: format!(
            "{calls} calls {verb} {} through MPI-IO, and each waits for its bytes",
            about(way.asked.bytes as f64)
        ),
        numbers: vec![("calls", calls as f64), ("asked_bytes", way.asked.bytes as f64)],
        mend: vec![
            format!("compute while bytes move: MPI_File_i{verb}_at_all, and MPI_Wait before the buffer is used again"),
            "HDF5: H5Dwrite_async with the asynchronous connector (vol-async)".into(),
        ],
        hints: Hints::default(),
    })
}

/// Calls that move nothing.
pub(super) fn empty(used: &Use) -> Option<Finding> {
    let (empty, requests) = (used.empty_and_single.0, used.both().count);
    let part = share(empty, empty.max(requests));
    if empty < 1000 || part < 0.1 {
        return None;
    }
    // Before data sieving writes a block it reads it, and in a file that is made there is nothing yet.
    let asked = &used.asked;
    let is_sieving = asked.writes.calls() > 0 && asked.reads.calls() == 0 && used.writes.count > 0;
    let mut hints = Hints::default();
    let mend = if is_sieving {
        hints.add("romio_ds_write", "disable");
        "they read what data sieving is about to write, and is not there yet"
    } else {
        "leave out calls without data; in a collective HDF5 access a rank without data selects nothing: H5Sselect_none"
    };
    Some(Finding {
        kind: "empty-requests",
        severity: if part >= 0.5 { Severity::Medium } else { Severity::Low },
        words: format!("{empty} reads and writes move no byte, beside {requests} in all"),
        numbers: vec![("empty", empty as f64), ("requests", requests as f64), ("share", part)],
        mend: hints.with(vec![mend.into()]),
        hints,
    })
}
