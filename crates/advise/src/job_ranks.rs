//! [`JobRanks`]: ranks and nodes of a job, and how many of them MPI-IO lets write a file collectively.

use crate::stripes::romio_writers;
use crate::usage::Use;
use std::collections::HashSet;
use stripewise_import::About;
use stripewise_trace::Trace;

/// Who may write, of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobRanks {
    /// Ranks, or processes.
    pub processes: usize,
    /// Nodes, where the log knows that of every rank.
    pub nodes: Option<usize>,
}

impl JobRanks {
    /// Of a log. O(processes).
    pub(crate) fn of(trace: &Trace, about: &About, seen: usize) -> Self {
        let processes = about.processes.map_or(seen, |count| usize::try_from(count).unwrap_or(usize::MAX));
        let known = trace.processes().iter().filter(|process| !process.host.is_empty());
        let ranks: HashSet<u32> = known.clone().map(|process| process.rank).collect();
        let hosts: HashSet<&str> = known.map(|process| process.host.as_str()).collect();
        Self { processes, nodes: Some(hosts.len()).filter(|_| processes > 0 && ranks.len() >= processes) }
    }

    /// How many ranks MPI-IO lets write a file of `stripes` collectively at most, however many it gets: one a node, unless a
    /// hint says otherwise (`cb_config_list` is `*:1`) or the log shows more (Cray's library has no such bound); and where
    /// fewer write than the stripes let, the log's own number. O(stripes).
    pub(crate) fn allowed(&self, used: &Use, stripes: usize) -> usize {
        self.allowed_of(used.movers.1, used, stripes)
    }

    /// The same of those that read it; `None` where the log has more of them than the stripes let: then the library does not
    /// go by the stripes when it reads (ROMIO before MPICH 4.2 takes one a node). O(stripes).
    pub(crate) fn allowed_readers(&self, used: &Use, stripes: usize) -> Option<usize> {
        let allowed = self.allowed_of(used.movers.0, used, stripes);
        (used.movers.0 <= romio_writers(stripes, allowed)).then_some(allowed)
    }

    fn allowed_of(&self, movers: usize, used: &Use, stripes: usize) -> usize {
        let movers = movers.max(1);
        let ranks = self.processes.max(used.sharers).max(1);
        let by_nodes = self.nodes.unwrap_or(ranks).clamp(1, ranks);
        let cap = if movers > by_nodes { ranks } else { by_nodes };
        if movers < romio_writers(stripes, cap) { movers } else { cap }
    }
}
