//! What files wait for under their layouts: which servers, and why those.

use crate::slow::Slow;
use std::collections::HashSet;
use stripewise_layout::Layout;
use stripewise_layout::units::format_bytes;
use stripewise_model::{Cluster, CostModel, Profile, Request};

/// A server that is busy for this many times the mean of its tier is what others wait for.
const IMBALANCE: f64 = 1.5;

/// Startups are the bottleneck from this share of the busiest server's time on.
const STARTUPS: f64 = 0.6;

/// What files wait for.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// `slow-server`, `one-server`, `imbalance`, `slow-tier`, `startups`, `latency`, `bandwidth`, `memory` or `nothing`.
    pub kind: &'static str,
    /// In words.
    pub words: String,
    /// The busiest servers, at most 8, by index.
    pub servers: Vec<usize>,
    /// Share of the busiest server's time that is startups.
    pub startup_share: f64,
    /// Busy time of the busiest server over the mean of all servers of its tier.
    pub imbalance: f64,
    /// Servers that serve any request.
    pub used: usize,
}

/// Busy seconds of each server, startups apart.
struct Loads {
    busy_s: Vec<f64>,
    startup_s: Vec<f64>,
    latency_s: f64,
    pieces: u64,
    requests: u64,
    bytes: u64,
}

impl Loads {
    /// O(requests x sub-requests^2).
    fn of<'r>(cluster: &Cluster, files: impl Iterator<Item = (&'r Layout, &'r [Request])>) -> Self {
        let model = CostModel::new(cluster);
        let servers = model.servers();
        let profiles: Vec<&Profile> =
            cluster.all_tiers().flat_map(|tier| vec![&tier.profile; tier.servers.len()]).collect();
        let mut loads = Self {
            busy_s: vec![0.0; servers],
            startup_s: vec![0.0; servers],
            latency_s: 0.0,
            pieces: 0,
            requests: 0,
            bytes: 0,
        };
        for (layout, requests) in files {
            for r in requests {
                let Loads { busy_s, startup_s, pieces, .. } = &mut loads;
                let latency = model.layout_latency_s(layout, r.op, r.offset, r.size, |slot, busy| {
                    let profile = profiles[slot].of(r.op);
                    busy_s[slot] += busy.device_s + busy.network_s;
                    startup_s[slot] += 0.5 * (profile.startup_min_s + profile.startup_max_s);
                    *pieces += 1;
                });
                loads.latency_s += latency.unwrap_or(0.0);
                loads.requests += 1;
                loads.bytes = loads.bytes.saturating_add(r.size);
            }
        }
        loads
    }
}

/// What the requests of some files wait for; `label` names servers. O(requests x sub-requests^2).
pub(crate) fn bottleneck<'r>(
    cluster: &Cluster,
    label: &dyn Fn(usize) -> String,
    files: impl Iterator<Item = (&'r Layout, &'r [Request])> + Clone,
    slow: Option<&Slow>,
) -> Bottleneck {
    let loads = Loads::of(cluster, files.clone());
    let processes: HashSet<u32> = files.flat_map(|(_, requests)| requests.iter().map(|r| r.process)).collect();
    let busiest =
        (0..loads.busy_s.len()).fold(0, |most, at| if loads.busy_s[at] > loads.busy_s[most] { at } else { most });
    let most_s = loads.busy_s[busiest];
    let used = loads.busy_s.iter().filter(|busy_s| **busy_s > 0.0).count();
    let mut tiers = Vec::new();
    let mut first = 0;
    for tier in cluster.all_tiers() {
        tiers.push((tier, first..first + tier.servers.len()));
        first += tier.servers.len();
    }
    let (tier, own) = tiers.iter().find(|(_, servers)| servers.contains(&busiest)).expect("a server is of a tier");
    let mean_s = loads.busy_s[own.clone()].iter().sum::<f64>() / own.len() as f64;
    let imbalance = if mean_s > 0.0 { most_s / mean_s } else { 1.0 };
    let startup_share = if most_s > 0.0 { loads.startup_s[busiest] / most_s } else { 0.0 };
    let mut servers: Vec<usize> =
        (0..loads.busy_s.len()).filter(|&at| loads.busy_s[at] > 0.9 * most_s && most_s > 0.0).collect();
    servers.truncate(8);
    // A tier whose servers begin sooner has none of the requests. No file has to be on the metadata tier.
    let idle = tiers.iter().take(cluster.tiers.len()).find(|(other, servers)| {
        let startup =
            |tier: &stripewise_model::Tier| tier.profile.read.startup_max_s + tier.profile.write.startup_max_s;
        let none = loads.busy_s[servers.clone()].iter().all(|busy_s| *busy_s == 0.0);
        !servers.is_empty() && none && startup(other) < startup(tier)
    });
    let (pieces, requests) = (loads.pieces.max(1) as f64, loads.requests.max(1) as f64);
    let (piece, request) = (loads.bytes as f64 / pieces, loads.bytes as f64 / requests);
    let share = |part: f64| format!("{:.0} %", 100.0 * part);
    let all = loads.busy_s.len();
    let slow =
        slow.filter(|slow| slow.servers.iter().any(|server| loads.busy_s.get(server.server).is_some_and(|s| *s > 0.0)));
    let (kind, words) = if loads.requests == 0 || most_s <= 0.0 {
        ("nothing", "no request takes any time".to_owned())
    } else if let Some(slow) = slow {
        ("slow-server", slow.words())
    } else if used == 1 && all > 1 {
        ("one-server", format!("all requests go to {}, one of {all} servers", label(busiest)))
    } else if imbalance > IMBALANCE {
        let words = format!("{} works {imbalance:.1} times as long as the average server of its kind", label(busiest));
        ("imbalance", words)
    } else if let Some((idle, _)) = idle {
        ("slow-tier", format!("the servers of {} do the work, the faster ones of {} idle", tier.name, idle.name))
    } else if startup_share > STARTUPS {
        let pieces = if pieces > 1.2 * requests {
            format!("a request of {} is cut into pieces of {}", about(request), about(piece))
        } else {
            format!("requests are of {} on average", about(request))
        };
        (
            "startups",
            format!(
                "{} spends {} of its time on beginning requests (seeks, round trips), not on moving bytes: {pieces}",
                label(busiest),
                share(startup_share)
            ),
        )
    } else if loads.latency_s / processes.len().max(1) as f64 > 1.5 * most_s {
        let words = format!(
            "too few requests at a time ({}) to keep the servers busy",
            count(processes.len(), "process", "es")
        );
        ("latency", words)
    } else {
        (
            "bandwidth",
            format!("{} moves bytes for {} of its time, at its full speed", label(busiest), share(1.0 - startup_share)),
        )
    };
    Bottleneck { kind, words, servers, startup_share, imbalance, used }
}

impl Bottleneck {
    /// Of files whose bytes came from or went to the memory of the node for a `share` that leaves servers few of them;
    /// `time_share` is that of the time.
    pub(crate) fn of_memory(share: f64, time_share: f64) -> Self {
        let percent = |part: f64| format!("{:.0} %", 100.0 * part);
        let rest = if time_share < 0.995 {
            format!("; the rest took {} of the time", percent(1.0 - time_share))
        } else {
            String::new()
        };
        Self {
            kind: "memory",
            words: format!(
                "no server for {} of the bytes, which the node's memory (page cache) gave or took{rest}",
                percent(share)
            ),
            servers: Vec::new(),
            startup_share: 0.0,
            imbalance: 1.0,
            used: 0,
        }
    }
}

/// Bytes for people: two or three digits.
pub(crate) fn about(bytes: f64) -> String {
    let unit = if bytes >= 10.0 * 1048576.0 {
        1048576.0
    } else if bytes >= 10.0 * 1024.0 {
        1024.0
    } else {
        1.0
    };
    format_bytes(((bytes / unit).round() * unit) as u64)
}

/// `1 process`, `3 processes`.
pub(crate) fn count(number: usize, what: &str, plural: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { plural })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ServerId;
    use stripewise_model::{Op, presets};

    fn kind_of(servers: std::ops::Range<u16>, width: u64, size: u64, processes: u32) -> &'static str {
        let cluster = presets::set_p(6, 2, false);
        let layout = Layout::striped(servers.map(ServerId), width).unwrap();
        let request = |n: u64| Request {
            offset: n * size,
            size,
            op: Op::Read,
            process: n as u32 % processes,
            start_s: n as f64,
            end_s: n as f64,
        };
        let requests: Vec<Request> = (0..240).map(request).collect();
        bottleneck(&cluster, &|server| format!("#{server}"), [(&layout, requests.as_slice())].into_iter(), None).kind
    }

    #[test]
    fn each_bottleneck_has_its_name() {
        assert_eq!(kind_of(3..4, 1 << 20, 64 << 10, 16), "one-server");
        assert_eq!(kind_of(0..2, 1 << 20, 1 << 20, 16), "imbalance");
        assert_eq!(kind_of(0..6, 64 << 10, 64 << 10, 16), "slow-tier");
        assert_eq!(kind_of(0..8, 64 << 10, 512 << 10, 16), "startups");
        assert_eq!(kind_of(0..8, 8 << 20, 8 << 20, 64), "bandwidth");
        assert_eq!(kind_of(0..8, 8 << 20, 8 << 20, 1), "latency");
        assert_eq!(kind_of(0..8, 8 << 20, 0, 1), "nothing");
    }
}
