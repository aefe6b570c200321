//! What a native layout costs: as layouts are priced, but a round may name a server several times (an object each, as in
//! Lustre's overstriping), or a hash may choose the servers (CephFS).

use crate::cost::{Busy, CostModel};
use crate::expected_max::{Branch, expected_max_s};
use crate::profile::{Cluster, Op, Request};
use std::collections::HashMap;
use stripewise_layout::{Layout, LayoutError, ServerId, Stripe};

/// Stripe units of one request that are placed one by one; of more the bytes are even over all servers.
const MOST_UNITS: u64 = 4096;

/// Why a native layout cannot be priced.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NativeError {
    /// Rounds that make no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// More objects than can be told apart.
    #[error("more than 65534 objects in the rounds of a layout cannot be priced")]
    Objects,
    /// Objects that hold nothing.
    #[error("objects of {object_bytes} bytes, {count} a stripe of {unit_bytes}: no layout")]
    NoLayout {
        /// Bytes of an object.
        object_bytes: u64,
        /// Objects that are filled at a time.
        count: u64,
        /// Bytes of a stripe unit.
        unit_bytes: u64,
    },
    /// A server that the cluster does not have.
    #[error("server {0} has no profile")]
    Server(u16),
}

/// Where a native layout puts the bytes of a file. Servers are counted over the tiers of the cluster in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Native {
    /// As a layout, but a server may stand in a round several times.
    Rounds(Rounds),
    /// Objects whose servers are chosen by a hash.
    Hashed(Hashed),
}

/// A layout in which each further standing of a server in a round is a server of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Rounds {
    layout: Layout,
    /// The real servers, by the ids of the layout.
    servers: HashMap<ServerId, u16>,
}

/// Objects of equal size, filled in stripes over several of them at a time, on servers that a hash chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    unit_bytes: u64,
    count: u64,
    object_bytes: u64,
    servers: Vec<u16>,
}

/// A round: servers with widths in bytes.
type Round = Vec<(u16, u64)>;

impl Rounds {
    /// Rounds by the offsets of their regions.
    ///
    /// # Errors
    /// [`NativeError::Layout`] and [`NativeError::Objects`].
    pub fn new(regions: impl IntoIterator<Item = (u64, Round)>) -> Result<Self, NativeError> {
        let mut servers: HashMap<ServerId, u16> = HashMap::new();
        let mut ids: HashMap<(u16, usize), ServerId> = HashMap::new();
        let mut rounds = Vec::new();
        for (offset, round) in regions {
            let mut standings: HashMap<u16, usize> = HashMap::new();
            let mut stripes = Vec::with_capacity(round.len());
            for (server, width_bytes) in round {
                let nth = standings.entry(server).or_insert(0);
                let next = ids.len() as u16;
                let id = *ids.entry((server, *nth)).or_insert(ServerId(next));
                *nth += 1;
                servers.insert(id, server);
                stripes.push(Stripe { server: id, width_bytes });
            }
            if ids.len() >= usize::from(u16::MAX) {
                return Err(NativeError::Objects);
            }
            rounds.push((offset, stripes));
        }
        Ok(Self { layout: Layout::new(rounds)?, servers })
    }

    /// Real server and bytes of each object that the request touches. O(sub-requests).
    fn parts(&self, request: &Request, parts: &mut Vec<(u16, u64)>) {
        let split = self.layout.split(request.offset, request.size);
        parts.extend(split.iter().map(|sub| (self.servers[&sub.server], sub.len)));
    }
}

impl Hashed {
    /// Objects of `object_bytes`, `count` of them filled at a time in units of `unit_bytes`.
    ///
    /// # Errors
    /// [`NativeError::NoLayout`].
    pub fn new(unit_bytes: u64, count: u64, object_bytes: u64, servers: Vec<u16>) -> Result<Self, NativeError> {
        if unit_bytes == 0 || count == 0 || servers.is_empty() || object_bytes < unit_bytes {
            return Err(NativeError::NoLayout { object_bytes, count, unit_bytes });
        }
        Ok(Self { unit_bytes, count, object_bytes, servers })
    }

    /// As [`Rounds::parts`], for the file with that number. O(stripe units of the request), at most [`MOST_UNITS`].
    fn parts(&self, file: u64, request: &Request, parts: &mut Vec<(u16, u64)>) {
        if request.size == 0 {
            return;
        }
        let end = request.offset.saturating_add(request.size);
        let (first, last) = (request.offset / self.unit_bytes, (end - 1) / self.unit_bytes);
        if last - first >= MOST_UNITS {
            let each = request.size / self.servers.len() as u64;
            parts.extend(self.servers.iter().map(|&server| (server, each)));
            return;
        }
        let in_set = (self.object_bytes / self.unit_bytes).saturating_mul(self.count);
        let mut objects: HashMap<u64, usize> = HashMap::new();
        for unit in first..=last {
            let object = (unit / in_set).wrapping_mul(self.count).wrapping_add(unit % in_set % self.count);
            let from = request.offset.max(unit * self.unit_bytes);
            let to = end.min((unit + 1).saturating_mul(self.unit_bytes));
            let at = *objects.entry(object).or_insert_with(|| {
                let chosen = mix(file ^ mix(object)) % self.servers.len() as u64;
                parts.push((self.servers[chosen as usize], 0));
                parts.len() - 1
            });
            parts[at].1 += to - from;
        }
    }
}

/// SplitMix64's finisher (Steele et al. 2014): every bit of the input moves every bit of the result.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Busy times and latency, added up over requests.
struct Sums<'a> {
    cluster: &'a Cluster,
    model: CostModel,
    /// Tier by server.
    tiers: Vec<usize>,
    busy: Vec<Busy>,
    latency_s: f64,
    requests: f64,
}

impl<'a> Sums<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let tiers = cluster.tiers.iter().enumerate();
        let tiers: Vec<usize> = tiers.flat_map(|(at, tier)| tier.servers.iter().map(move |_| at)).collect();
        let busy = vec![Busy::default(); tiers.len()];
        Self { cluster, model: CostModel::new(cluster), tiers, busy, latency_s: 0.0, requests: 0.0 }
    }

    /// A server serves its parts one after the other: each further part adds its mean time. O(parts x servers touched).
    fn add(&mut self, op: Op, parts: &[(u16, u64)]) -> Result<(), NativeError> {
        let mut branches: Vec<(u16, Branch)> = Vec::new();
        for &(server, bytes) in parts {
            let at = usize::from(server);
            let tier = *self.tiers.get(at).ok_or(NativeError::Server(server))?;
            let busy = self.model.busy(tier, op, bytes);
            self.busy[at].device_s += busy.device_s;
            self.busy[at].network_s += busy.network_s;
            match branches.iter_mut().find(|(of, _)| *of == server) {
                Some((_, branch)) => {
                    branch.lo_s += busy.device_s + busy.network_s;
                    branch.hi_s += busy.device_s + busy.network_s;
                }
                None => {
                    let profile = &self.cluster.tiers[tier].profile;
                    let of = profile.of(op);
                    let moved_s = bytes as f64 * (of.transfer_s_per_byte + profile.network_s_per_byte);
                    let (lo_s, hi_s) = (of.startup_min_s + moved_s, of.startup_max_s + moved_s);
                    branches.push((server, Branch { lo_s, hi_s, servers: 1 }));
                }
            }
        }
        let mut branches: Vec<Branch> = branches.into_iter().map(|(_, branch)| branch).collect();
        branches.dedup_by(|next, kept| {
            let same = (next.lo_s, next.hi_s) == (kept.lo_s, kept.hi_s);
            kept.servers += if same { next.servers } else { 0 };
            same
        });
        self.latency_s += expected_max_s(&branches);
        self.requests += 1.0;
        Ok(())
    }

    /// As `BusyTimes::theta_s`.
    fn theta_s(&self, processes: f64) -> f64 {
        if self.requests == 0.0 {
            return 0.0;
        }
        let busiest = self.busy.iter().fold(0.0_f64, |most, busy| most.max(busy.device_s).max(busy.network_s));
        (self.latency_s + (processes - 1.0) * busiest) / self.requests / processes
    }
}

/// `theta` in seconds per request of files that are placed natively, each with its requests, for `processes` closed-loop
/// processes. That of [`BusyTimes`](crate::BusyTimes) where no server stands twice in a round.
///
/// # Errors
/// [`NativeError::Server`].
pub fn theta_of_native_s<'a>(
    files: impl IntoIterator<Item = (&'a [Request], &'a Native)>,
    cluster: &Cluster,
    processes: f64,
) -> Result<f64, NativeError> {
    let mut sums = Sums::new(cluster);
    let mut parts = Vec::new();
    for (number, (requests, native)) in (0..).zip(files) {
        for request in requests {
            parts.clear();
            match native {
                Native::Rounds(rounds) => rounds.parts(request, &mut parts),
                Native::Hashed(hashed) => hashed.parts(number, request, &mut parts),
            }
            sums.add(request.op, &parts)?;
        }
    }
    Ok(sums.theta_s(processes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;
    use crate::theta::BusyTimes;

    fn requests() -> Vec<Request> {
        let request = |at: u64| Request {
            offset: at * 70_000,
            size: 1 << (10 + at % 8),
            op: if at.is_multiple_of(3) { Op::Write } else { Op::Read },
            process: 0,
            start_s: 0.0,
            end_s: 0.0,
        };
        (0..40).map(request).collect()
    }

    #[test]
    fn rounds_without_repetition_cost_what_their_layout_costs() {
        let (cluster, requests) = (presets::set_ab(3, 2), requests());
        let round: Round = vec![(0, 65_536), (1, 65_536), (3, 131_072), (4, 4096)];
        let stripes = round.iter().map(|&(server, width_bytes)| Stripe { server: ServerId(server), width_bytes });
        let layout = Layout::new([(0, stripes.collect())]).unwrap();
        let loads = BusyTimes::of_files([(&requests[..], &layout)], &cluster).unwrap();
        let native = Native::Rounds(Rounds::new([(0, round)]).unwrap());
        for processes in [1.0, 8.0] {
            let native_s = theta_of_native_s([(&requests[..], &native)], &cluster, processes).unwrap();
            let layout_s = loads.theta_s(processes);
            assert!((native_s - layout_s).abs() <= 1e-12 * layout_s, "{native_s} {layout_s}");
        }
    }

    #[test]
    fn a_server_that_stands_twice_serves_one_object_after_the_other() {
        let (cluster, requests) = (presets::set_ab(2, 0), requests());
        let price_s = |round: Round| {
            let native = Native::Rounds(Rounds::new([(0, round)]).unwrap());
            theta_of_native_s([(&requests[..], &native)], &cluster, 1.0).unwrap()
        };
        assert!(price_s(vec![(0, 4096), (0, 4096)]) > price_s(vec![(0, 4096), (1, 4096)]));
    }

    #[test]
    fn objects_of_a_request_hold_its_bytes() {
        let hashed = Hashed::new(65_536, 3, 1 << 20, (0..7).collect()).unwrap();
        for request in requests() {
            let mut parts = Vec::new();
            hashed.parts(5, &request, &mut parts);
            assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), request.size);
        }
    }

    #[test]
    fn what_is_no_native_layout_is_refused() {
        assert!(matches!(Hashed::new(0, 1, 1, vec![0]), Err(NativeError::NoLayout { .. })));
        assert!(matches!(Rounds::new([(0, Vec::new())]), Err(NativeError::Layout(_))));
        let native = Native::Rounds(Rounds::new([(0, vec![(9, 4096)])]).unwrap());
        let priced = theta_of_native_s([(&requests()[..], &native)], &presets::set_ab(1, 1), 1.0);
        assert_eq!(priced, Err(NativeError::Server(9)));
    }
}
