//! [`PhasedCluster`]: servers that are not as fast all the time.
//!
//! The simulator knows servers of one speed. So each server stands once for every stretch of the run, and each file, too:
//! a request goes to those of the stretch in which the log has it. Requests of two stretches do not wait for each other.

use std::borrow::Cow;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Cluster, Request, Tier};

/// Most stretches that are told apart.
pub(crate) const MOST_PHASES: usize = 4;

/// Most servers of all stretches together.
const MOST_SERVERS: usize = 16_000;

/// The servers in each stretch of the run.
#[derive(Debug, Clone)]
pub(crate) struct PhasedCluster {
    /// When all but the last end, in seconds of the log.
    ends_s: Vec<f64>,
    /// The same tiers of the same servers, with profiles of their own.
    phases: Vec<Cluster>,
}

impl PhasedCluster {
    /// As fast all the time.
    pub(crate) fn always(cluster: Cluster) -> Self {
        Self { ends_s: Vec::new(), phases: vec![cluster] }
    }

    /// `cluster` in stretches that end then, but for the last; as one where there would be too many servers.
    pub(crate) fn parted(cluster: Cluster, mut ends_s: Vec<f64>) -> Self {
        ends_s.truncate(MOST_PHASES - 1);
        if (ends_s.len() + 1) * stride(&cluster) > MOST_SERVERS {
            return Self::always(cluster);
        }
        Self { phases: vec![cluster; ends_s.len() + 1], ends_s }
    }

    /// How many stretches.
    pub(crate) fn count(&self) -> usize {
        self.phases.len()
    }

    /// When a stretch begins; `None` for the first.
    pub(crate) fn begin_s(&self, phase: usize) -> Option<f64> {
        phase.checked_sub(1).and_then(|before| self.ends_s.get(before).copied())
    }

    /// A stretch's servers.
    pub(crate) fn phase(&self, phase: usize) -> &Cluster {
        &self.phases[phase]
    }

    pub(crate) fn phase_mut(&mut self, phase: usize) -> &mut Cluster {
        &mut self.phases[phase]
    }

    /// The servers of all stretches: tier `t` of stretch `p` is number `p` times the tiers of one, plus `t`. O(servers).
    pub(crate) fn joined(&self) -> Cluster {
        let stride = stride(&self.phases[0]);
        let tiers = self.phases.iter().enumerate().flat_map(|(phase, cluster)| {
            cluster.tiers.iter().map(move |tier| Tier {
                servers: tier.servers.iter().map(|server| moved(*server, phase, stride)).collect(),
                ..tier.clone()
            })
        });
        Cluster { tiers: tiers.collect(), meta: self.phases[0].meta.clone() }
    }

    /// Requests by file and stretch: file `f` of stretch `p` is number `f` times the stretches plus `p`. O(requests).
    pub(crate) fn requests<'r>(&self, files: &'r [Vec<Request>]) -> Cow<'r, [Vec<Request>]> {
        if self.ends_s.is_empty() {
            return Cow::Borrowed(files);
        }
        let mut parted = vec![Vec::new(); files.len() * self.count()];
        for (file, requests) in files.iter().enumerate() {
            for r in requests {
                let phase = self.ends_s.partition_point(|end_s| *end_s <= r.start_s);
                parted[file * self.count() + phase].push(*r);
            }
        }
        Cow::Owned(parted)
    }

    /// Layouts of the same files. O(stripes).
    pub(crate) fn layouts<'l>(&self, layouts: &'l [Layout]) -> Cow<'l, [Layout]> {
        if self.ends_s.is_empty() {
            return Cow::Borrowed(layouts);
        }
        let stride = stride(&self.phases[0]);
        let of_phase = |layout: &Layout, phase: usize| {
            let stripes = |stripes: &[Stripe]| -> Vec<Stripe> {
                let moved = |of: &Stripe| Stripe { server: moved(of.server, phase, stride), ..*of };
                stripes.iter().map(moved).collect()
            };
            let regions = layout.regions().iter().map(|region| (region.offset(), stripes(region.stripes())));
            Layout::new(regions).unwrap_or_else(|_| layout.clone())
        };
        let parted = layouts.iter().flat_map(|layout| (0..self.count()).map(move |phase| of_phase(layout, phase)));
        Cow::Owned(parted.collect())
    }

    /// The same with `servers` of the first tier at least: those that there are none of yet are as fast as the others.
    pub(crate) fn with_servers(&self, servers: usize) -> Self {
        let mut more = self.clone();
        let first = stride(&self.phases[0]);
        let room = (MOST_SERVERS / self.count()).saturating_sub(first);
        for cluster in &mut more.phases {
            let Some(tier) = cluster.tiers.first_mut() else { continue };
            let missing = servers.saturating_sub(tier.servers.len()).min(room);
            tier.servers.extend((first..first + missing).map(|server| ServerId(server as u16)));
        }
        more
    }
}

/// The first number that no server has.
fn stride(cluster: &Cluster) -> usize {
    cluster.tiers.iter().flat_map(|tier| &tier.servers).map(|server| server.index() + 1).max().unwrap_or(0)
}

fn moved(server: ServerId, phase: usize, stride: usize) -> ServerId {
    if server == ServerId::META { server } else { ServerId((server.index() + phase * stride) as u16) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::{Op, presets};

    fn request(start_s: f64) -> Request {
        Request { offset: 0, size: 1, op: Op::Read, process: 0, start_s, end_s: start_s + 1.0 }
    }

    #[test]
    fn each_stretch_has_servers_and_files_of_its_own() {
        let cluster = presets::set_p(2, 1, false);
        let phased = PhasedCluster::parted(cluster.clone(), vec![10.0]);
        let joined = phased.joined();
        let servers = |cluster: &Cluster| cluster.tiers.iter().map(|tier| tier.servers.clone()).collect::<Vec<_>>();
        assert_eq!(servers(&joined)[..2], servers(&cluster)[..]);
        assert_eq!(servers(&joined)[2..], [vec![ServerId(3), ServerId(4)], vec![ServerId(5)]]);
        let files = [vec![request(9.0), request(10.0)], vec![request(30.0)]];
        let parted = phased.requests(&files);
        assert_eq!(parted.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 0, 1]);
        let meta = Stripe { server: ServerId::META, width_bytes: 4096 };
        let own = Stripe { server: ServerId(1), width_bytes: 4096 };
        let layouts = [Layout::new([(0, vec![meta]), (4096, vec![own])]).expect("a layout")];
        let found: Vec<Vec<ServerId>> = phased.layouts(&layouts).iter().map(Layout::servers).collect();
        assert_eq!(found, [[ServerId::META, ServerId(1)], [ServerId::META, ServerId(4)]]);
        assert_eq!((phased.begin_s(0), phased.begin_s(1)), (None, Some(10.0)));
    }

    #[test]
    fn one_stretch_changes_nothing_and_too_many_servers_are_as_fast_all_the_time() {
        let always = PhasedCluster::always(presets::set_p(2, 1, false));
        let files = [vec![request(1.0)]];
        assert!(matches!(always.requests(&files), Cow::Borrowed(_)));
        assert_eq!(always.joined(), presets::set_p(2, 1, false));
        let many = presets::set_p(9000, 0, false);
        assert_eq!(PhasedCluster::parted(many, vec![1.0]).count(), 1);
        let more = always.with_servers(4).joined();
        assert_eq!(more.tiers[0].servers, [0, 1, 3, 4].map(ServerId));
        assert_eq!(more.tiers[0].profile, always.joined().tiers[0].profile);
    }
}
