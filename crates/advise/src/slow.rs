//! Servers that are slower than others of their kind, by how long the log's own files or requests took on them. Which
//! are slow is [`target_rates`]' to say; here it gets its samples.

use crate::gather::AdvisedFile;
use crate::present::Targets;
use crate::usage::SMALL_BYTES;
use std::collections::{HashMap, HashSet};
use stripewise_import::{About, LustreLayout, OstRate, OstRates, ost_rates, target_rates};
use stripewise_layout::{Layout, ServerId, ServerNames};
use stripewise_model::{Cluster, Op, Request};

/// A file that moves less says nothing of the server that it is on.
const BYTES: u64 = 1 << 20;

/// One slow server.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowServer {
    /// Its index in the cluster.
    pub server: usize,
    /// What its file system calls it.
    pub name: String,
    /// Bytes for each second that a request was on it.
    pub bytes_per_s: f64,
}

/// Slow servers, the slowest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Slow {
    /// At least one.
    pub servers: Vec<SlowServer>,
    /// Of all servers with figures.
    pub median_bytes_per_s: f64,
    /// How many have figures.
    pub compared: usize,
}

impl Slow {
    fn of(rates: &OstRates, name: impl Fn(u64) -> (usize, String)) -> Option<Self> {
        let one = |rate: &OstRate| {
            let (server, name) = name(rate.ost);
            SlowServer { server, name, bytes_per_s: rate.bytes_per_s }
        };
        let servers: Vec<SlowServer> = rates.slow().into_iter().map(one).collect();
        let (median_bytes_per_s, compared) = (rates.median_bytes_per_s, rates.osts.len());
        (!servers.is_empty()).then_some(Self { servers, median_bytes_per_s, compared })
    }

    /// In words, without what to do about it.
    pub(crate) fn words(&self) -> String {
        let first = &self.servers[0];
        let others = self.servers.len() - 1;
        let also = if others > 0 { format!(" (and {others} more)") } else { String::new() };
        format!(
            "{}{also} gives a process {:.1} MiB/s, the median of {} servers is {:.1} MiB/s",
            first.name,
            first.bytes_per_s / 1048576.0,
            self.compared,
            self.median_bytes_per_s / 1048576.0,
        )
    }
}

/// Slow object storage targets, by the counters of files whose requests are large: small ones say more of themselves
/// than of the target. O(counters + stripes).
pub(crate) fn slow_of_log(about: &About, files: &[AdvisedFile], targets: &Targets) -> Option<Slow> {
    let large: HashSet<u32> = files
        .iter()
        .filter(|file| file.used.both().bytes >= BYTES && file.used.both().mean_bytes() >= SMALL_BYTES as f64)
        .map(|file| file.id)
        .collect();
    let layouts: Vec<LustreLayout> =
        about.lustre_layouts.iter().filter(|layout| large.contains(&layout.file)).cloned().collect();
    let components = layouts.iter().flat_map(|layout| &layout.components);
    let server: HashMap<u64, usize> = components
        .flat_map(|component| component.osts.iter().map(|&ost| (ost, targets.server(&component.pool, ost).index())))
        .collect();
    let rates = ost_rates(&about.counters, &layouts);
    Slow::of(&rates, |ost| (server.get(&ost).copied().unwrap_or_default(), format!("OST {ost}")))
}

/// Slow servers of a pool, among those of their tier, by large requests on one server: the log does not say
/// which of several servers a request waited for. Files without requests of their own have none here. O(requests x
/// sub-requests).
pub(crate) fn slow_of_pool(
    layouts: &[Layout],
    requests: &[Vec<Request>],
    cluster: &Cluster,
    names: &ServerNames,
) -> Option<Slow> {
    let bytes = |op: Op| requests.iter().flatten().filter(|r| r.op == op).map(|r| r.size as f64).sum::<f64>();
    // Reads and writes are not of one speed: those that move more.
    let op = if bytes(Op::Write) > bytes(Op::Read) { Op::Write } else { Op::Read };
    let mut samples: Vec<Vec<(Vec<u64>, f64, f64)>> = vec![Vec::new(); cluster.tiers.len()];
    let tiers: Vec<usize> =
        cluster.tiers.iter().enumerate().flat_map(|(at, tier)| vec![at; tier.servers.len()]).collect();
    for (layout, requests) in layouts.iter().zip(requests) {
        for request in requests.iter().filter(|request| request.size >= SMALL_BYTES && request.op == op) {
            if let [piece] = layout.split(request.offset, request.size)[..]
                && let Some(&tier) = tiers.get(piece.server.index())
            {
                let took_s = request.end_s - request.start_s;
                samples[tier].push((vec![u64::from(piece.server.0)], request.size as f64, took_s));
            }
        }
    }
    let of_tier = |samples: Vec<_>| {
        let name = |server: u64| (server as usize, names.name(ServerId(server as u16)));
        Slow::of(&target_rates(samples.into_iter()), name)
    };
    let slow = samples.into_iter().filter_map(of_tier);
    slow.min_by(|a, b| a.servers[0].bytes_per_s.total_cmp(&b.servers[0].bytes_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::presets;

    #[test]
    fn the_slow_one_of_many_is_found_among_its_kind() {
        let cluster = presets::set_p(6, 2, false);
        let names = ServerNames::new([("hdd".to_owned(), 6), ("ssd".to_owned(), 2)]).unwrap();
        let find = |slow: u64| {
            let request = |n: u64| {
                let took_s = if n % 8 == slow {
                    0.5
                } else if n % 8 < 6 {
                    0.1
                } else {
                    0.001
                };
                Request { offset: n << 20, size: 1 << 20, op: Op::Read, process: 0, start_s: 0.0, end_s: took_s }
            };
            let layouts = [Layout::striped((0..8).map(ServerId), 1 << 20).unwrap()];
            slow_of_pool(&layouts, &[(0..32).map(request).collect()], &cluster, &names)
        };
        let found = find(4).unwrap();
        assert_eq!((found.servers.len(), found.servers[0].server, found.compared), (1, 4, 6));
        assert_eq!(found.words(), "hdd.4 gives a process 2.0 MiB/s, the median of 6 servers is 10.0 MiB/s");
        assert_eq!(find(9), None, "disks are slower than the rest, and no slow disks");
    }
}
