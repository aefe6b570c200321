//! [`Served`]: which requests servers answered, and which the memory of the client's node.
//!
//! A read of what the node has in its page cache and a write that only reaches it are no servers' work: no layout makes
//! them faster. A log does not mark them, but a server cannot answer them as fast: its network alone takes longer.

use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Op, Request};

/// Within this time and that of a copy no request reaches a server and comes back: a system call takes some 1 to 10 us, a
/// round trip on the networks of clusters 20 us and more with the server's own work.
const CALL_S: f64 = 15e-6;

/// Bytes per second of a copy between a program and its page cache, in one thread; a client of a parallel file system moves
/// less in one request.
const COPY_BYTES_PER_S: f64 = 4e9;

/// A profile that was measured is believed: what takes less than this share of its own least time came from memory.
const OF_PROFILE: f64 = 0.5;

/// The requests of every file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Served {
    /// Those that servers answered.
    pub by_servers: Vec<Vec<Request>>,
    /// Those that the client's memory answered.
    pub by_memory: Vec<Vec<Request>>,
}

impl Served {
    /// Tells the requests of files apart by how long they took; where `timed` is not set for a file, its times are not the
    /// log's, and servers answered all. `measured` says that the profiles are not presets. O(requests x sub-requests).
    pub(crate) fn of(
        sample: &[Vec<Request>],
        timed: &[bool],
        layouts: &[Layout],
        cluster: &Cluster,
        measured: bool,
    ) -> Self {
        let mut parted = Self::default();
        for (file, requests) in sample.iter().enumerate() {
            let is_memory = |request: &&Request| {
                let took_s = request.end_s - request.start_s;
                let bound_s = CALL_S + request.size as f64 / COPY_BYTES_PER_S;
                let least_s = || least_s(cluster, &layouts[file], request);
                timed[file] && took_s < bound_s && !(measured && took_s >= OF_PROFILE * least_s())
            };
            let (memory, servers) = requests.iter().partition(is_memory);
            parted.by_memory.push(memory);
            parted.by_servers.push(servers);
        }
        parted
    }

    /// Share of the bytes that memory gave or took.
    pub(crate) fn memory_share(&self) -> f64 {
        self.memory_share_of(0..self.by_servers.len())
    }

    /// The same of some files, by index.
    pub(crate) fn memory_share_of(&self, files: impl Iterator<Item = usize> + Clone) -> f64 {
        self.memory_part(files, |request| request.size as f64)
    }

    /// Share of the time of these files' requests that memory gave or took.
    pub(crate) fn memory_time_of(&self, files: impl Iterator<Item = usize> + Clone) -> f64 {
        self.memory_part(files, |request| request.end_s - request.start_s)
    }

    fn memory_part(&self, files: impl Iterator<Item = usize> + Clone, of_one: impl Fn(&Request) -> f64) -> f64 {
        let sum = |of: &[Vec<Request>]| files.clone().flat_map(|file| &of[file]).fold(0.0, |sum, r| sum + of_one(r));
        let (memory, servers) = (sum(&self.by_memory), sum(&self.by_servers));
        if memory + servers > 0.0 { memory / (memory + servers) } else { 0.0 }
    }
}

/// Least time of the server that needs longest for its part of a request, in seconds.
fn least_s(cluster: &Cluster, layout: &Layout, request: &Request) -> f64 {
    critical(cluster, layout, request.op, request.offset, request.size).map_or(0.0, |part| {
        let profile = &cluster.tiers[part.tier].profile;
        let of = profile.of(request.op);
        of.startup_min_s + part.bytes as f64 * (of.transfer_s_per_byte + profile.network_s_per_byte)
    })
}

/// The part of a request that needs longest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Critical {
    /// Tier of its server.
    pub tier: usize,
    /// Its server.
    pub server: ServerId,
    /// Its bytes.
    pub bytes: u64,
}

/// The part of a request whose server needs longest for it. `None` for a request of 0 bytes. O(sub-requests).
pub(crate) fn critical(cluster: &Cluster, layout: &Layout, op: Op, offset: u64, size: u64) -> Option<Critical> {
    let tier_of = |server: ServerId| cluster.tiers.iter().position(|tier| tier.servers.binary_search(&server).is_ok());
    let parts = layout.split(offset, size);
    let timed = parts.iter().filter_map(|part| {
        let tier = tier_of(part.server)?;
        let profile = &cluster.tiers[tier].profile;
        let of = profile.of(op);
        let took_s = 0.5 * (of.startup_min_s + of.startup_max_s)
            + part.len as f64 * (of.transfer_s_per_byte + profile.network_s_per_byte);
        Some((took_s, Critical { tier, server: part.server, bytes: part.len }))
    });
    timed.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, part)| part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::presets;

    #[test]
    fn what_no_server_can_answer_so_fast_came_from_memory_unless_its_servers_were_measured() {
        let nvme = presets::device("nvme").unwrap();
        let cluster = presets::cluster(&[("nvme", 2, nvme)]);
        let layouts = [Layout::striped((0..2).map(ServerId), 1 << 20).unwrap()];
        let took =
            |end_s| vec![vec![Request { offset: 0, size: 4096, op: Op::Write, process: 0, start_s: 0.0, end_s }]];
        let memory = |end_s, timed, measured| {
            Served::of(&took(end_s), &[timed], &layouts, &cluster, measured).by_memory[0].len() == 1
        };
        assert!(memory(3e-6, true, false) && !memory(100e-6, true, false));
        assert!(!memory(3e-6, false, false), "made-up times tell nothing");
        assert!(!memory(12e-6, true, true), "as fast as these servers are");
        assert!(memory(3e-6, true, true));
    }
}
