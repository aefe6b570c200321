//! What a native layout costs: as layouts are priced, but a round may name a server several times (an object each, as in
//! Lustre's overstriping), or a hash may choose the servers (CephFS).

use crate::convert::to_python;
use crate::error::raise;
use crate::experiment::{Devices, RegionRows, StepColumns, cluster_of};
use pyo3::prelude::*;
use serde_json::json;
use std::collections::HashMap;
use stripewise_layout::{Layout, Pattern, ServerId, Stripe};
use stripewise_model::{Branch, Busy, Cluster, CostModel, Op, Request, expected_max_s};

/// Stripe units of one request that are placed one by one; of more the bytes are even over all servers.
const MOST_UNITS: u64 = 4096;

/// Where a native layout puts the bytes of a file.
#[derive(FromPyObject)]
pub(crate) enum NativePlacement {
    /// As a layout, but a server may stand in a round several times.
    Rounds(RegionRows),
    /// Objects of equal size, filled in stripes over `count` of them at a time.
    Hashed(Hashed),
}

/// Objects whose servers are chosen by a hash.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Hashed {
    unit_bytes: u64,
    count: u64,
    object_bytes: u64,
    servers: Vec<u16>,
}

/// A layout in which each further standing of a server in a round is a server of its own.
struct Rounds {
    layout: Layout,
    /// The real servers, by the ids of the layout.
    servers: HashMap<ServerId, u16>,
}

impl Rounds {
    fn new(regions: RegionRows) -> PyResult<Self> {
        let mut servers: HashMap<ServerId, u16> = HashMap::new();
        let mut ids: HashMap<(u16, usize), ServerId> = HashMap::new();
        let mut rounds = Vec::with_capacity(regions.len());
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
                return Err(raise("more than 65534 objects in the rounds of a layout cannot be priced"));
            }
            rounds.push((offset, stripes));
        }
        Ok(Self { layout: Layout::new(rounds).map_err(raise)?, servers })
    }

    /// Real server and bytes of each object that the request touches. O(sub-requests).
    fn parts(&self, request: &Request, parts: &mut Vec<(u16, u64)>) {
        let split = self.layout.split(request.offset, request.size);
        parts.extend(split.iter().map(|sub| (self.servers[&sub.server], sub.len)));
    }
}

impl Hashed {
    fn check(&self) -> PyResult<()> {
        let Self { unit_bytes, count, object_bytes, servers } = self;
        if *unit_bytes == 0 || *count == 0 || servers.is_empty() || *object_bytes < *unit_bytes {
            return Err(raise(format!("objects of {object_bytes} bytes, {count} a stripe of {unit_bytes}: no layout")));
        }
        Ok(())
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
    fn add(&mut self, op: Op, parts: &[(u16, u64)]) -> PyResult<()> {
        let mut branches: Vec<(u16, Branch)> = Vec::new();
        for &(server, bytes) in parts {
            let at = usize::from(server);
            let tier = *self.tiers.get(at).ok_or_else(|| raise(format!("server {server} has no profile")))?;
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

    /// As `Loads::theta_s`.
    fn theta_s(&self, processes: f64) -> f64 {
        if self.requests == 0.0 {
            return 0.0;
        }
        let busiest = self.busy.iter().fold(0.0_f64, |most, busy| most.max(busy.device_s).max(busy.network_s));
        (self.latency_s + (processes - 1.0) * busiest) / self.requests / processes
    }
}

/// Mean seconds a request of described requests with `processes` in flight, each file placed natively. Equals the
/// `theta_s` of `price_generated` where no server stands twice in a round.
#[pyfunction]
pub(crate) fn price_native<'py>(
    py: Python<'py>,
    cluster: Vec<Devices>,
    files: Vec<NativePlacement>,
    steps: StepColumns<'py>,
    processes: f64,
) -> PyResult<Bound<'py, PyAny>> {
    let (cluster, requests) = (cluster_of(cluster)?, steps.requests()?);
    if requests.len() > files.len() {
        return Err(raise(format!("{} files, but only {} layouts were given", requests.len(), files.len())));
    }
    let mut sums = Sums::new(&cluster);
    let mut parts = Vec::new();
    for ((number, requests), placed) in requests.iter().enumerate().zip(files) {
        let rounds = match placed {
            NativePlacement::Rounds(regions) => Ok(Rounds::new(regions)?),
            NativePlacement::Hashed(hashed) => hashed.check().map(|()| Err(hashed))?,
        };
        for request in requests {
            parts.clear();
            match &rounds {
                Ok(rounds) => rounds.parts(request, &mut parts),
                Err(hashed) => hashed.parts(number as u64, request, &mut parts),
            }
            sums.add(request.op, &parts)?;
        }
    }
    to_python(py, &json!(sums.theta_s(processes)))
}

/// The path that a pattern of a layout file stands for: the one file that it matches and `false`, or the directory that
/// holds all that it matches (empty for the root) and `true`.
#[pyfunction]
pub(crate) fn pattern_place(pattern: &str) -> PyResult<(String, bool)> {
    let whole = Pattern::new(pattern).map_err(raise)?;
    if let Some(path) = whole.exact_path() {
        return Ok((path, false));
    }
    let above = pattern.match_indices('/').map(|(at, _)| &pattern[..at]);
    // A slash after a backslash is the character itself, but no name has one: such a prefix is no pattern.
    let exact = above.map_while(|above| Pattern::new(above).ok().and_then(|pattern| pattern.exact_path()));
    Ok((exact.last().unwrap_or_default(), true))
}

/// Whether a pattern of a layout file matches `path`.
#[pyfunction]
pub(crate) fn pattern_matches(pattern: &str, path: &str) -> PyResult<bool> {
    Ok(Pattern::new(pattern).map_err(raise)?.matches(path.as_bytes()))
}
