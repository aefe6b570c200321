//! `whole-files`: which file on which server, for programs with a file per process.
//!
//! The load of a file on a server is what its requests keep that server busy for: a startup each and their bytes, by the
//! server's own profile. Files are dealt so that the busiest server has the least to do ([`assign`]), within the space
//! limits. A file with more load than a server's fair share would be what all processes wait for: with such files on all
//! servers, and with the fastest tiers alone, the files are dealt anew, and the price decides.

pub mod assignment;

use self::assignment::{FileCosts, ServerState, assign};
use crate::error::PlanError;
use crate::job::Job;
use crate::planners::planner::Planner;
use stripewise_layout::{Layout, ServerId};

/// Whole files on servers, by load.
pub struct WholeFiles;

/// Files up to which all ways to deal them are priced.
const FEW: usize = 5000;

/// Shares of a server's mean load from which on a file is on all servers.
const SHARES: [f64; 3] = [f64::INFINITY, 1.0, 0.25];

impl Planner for WholeFiles {
    fn name(&self) -> &'static str {
        "whole-files"
    }

    fn source(&self) -> &'static str {
        "Stripewise (docs/planners.md): longest processing time first, local search, branch and bound"
    }

    fn summary(&self) -> &'static str {
        "each file on one server, all servers equally busy; files that are too much for one stay on all"
    }

    /// O(ways x (files log files + [`Job::price`])), at most 3 ways a tier, 3 with more than 5000 files.
    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        let loads = Loads::new(job);
        let tiers = loads.fastest_tiers_first();
        let fewest = if job.files.len() <= FEW { 1 } else { tiers.len() };
        let mut best: Option<((u64, f64), Vec<Layout>)> = None;
        for used in (fewest..=tiers.len()).rev() {
            let mut striped_before = None;
            for share in SHARES {
                let striped = loads.above(share, &tiers[..used]);
                // More of them than before, or it is the same way.
                let count = striped.iter().filter(|&&striped| striped).count();
                if striped_before.replace(count) == Some(count) {
                    continue;
                }
                let Some(layouts) = loads.deal(&striped, &tiers[..used]) else { continue };
                let price = job.price(&layouts)?;
                let rank = (price.excess_bytes, price.predicted_s);
                if best.as_ref().is_none_or(|(found, _)| rank.0 < found.0 || (rank.0 == found.0 && rank.1 < found.1)) {
                    best = Some((rank, layouts));
                }
            }
        }
        // No way has room for all: the frame says what the default lacks.
        Ok(best.map_or_else(|| job.default_layouts(), |best| best.1))
    }
}

/// What every file asks of a server of every tier.
struct Loads<'a> {
    job: &'a Job<'a>,
    /// Tier and name of every slot.
    slots: Vec<(usize, ServerId)>,
    /// Nanoseconds, at `file x tiers + tier`.
    ns: Vec<u64>,
}

impl<'a> Loads<'a> {
    /// O(entries x tiers).
    fn new(job: &'a Job<'a>) -> Self {
        let tiers = job.cluster.tiers.iter().enumerate();
        let slots = tiers.flat_map(|(tier, of)| of.servers.iter().map(move |&server| (tier, server))).collect();
        let pricer = job.pricer();
        let mut ns = Vec::with_capacity(job.files.len() * job.cluster.tiers.len());
        for file in &job.demand.files {
            for tier in 0..job.cluster.tiers.len() {
                let (device_s, network_s) = file.entries.iter().fold((0.0, 0.0), |sum, e| {
                    let busy = pricer.model.busy(tier, e.op, e.size);
                    (sum.0 + e.count * busy.device_s, sum.1 + e.count * busy.network_s)
                });
                // A device and its link work side by side. The cast saturates.
                ns.push((device_s.max(network_s) * 1e9) as u64);
            }
        }
        Self { job, slots, ns }
    }

    fn tiers(&self) -> usize {
        self.job.cluster.tiers.len()
    }

    /// Tiers that have servers, by what one of their servers would need for all files.
    fn fastest_tiers_first(&self) -> Vec<usize> {
        let total =
            |tier: usize| self.ns.iter().skip(tier).step_by(self.tiers()).map(|&ns| u128::from(ns)).sum::<u128>();
        let mut tiers: Vec<usize> =
            (0..self.tiers()).filter(|&tier| !self.job.cluster.tiers[tier].servers.is_empty()).collect();
        tiers.sort_by_key(|&tier| (total(tier), tier));
        tiers
    }

    /// Files whose load, where it is least, is above `share` of a server's mean load.
    fn above(&self, share: f64, tiers: &[usize]) -> Vec<bool> {
        let least = self.ns.chunks(self.tiers()).map(|ns| tiers.iter().map(|&tier| ns[tier]).min().unwrap_or(0));
        let least: Vec<u64> = least.collect();
        let servers = self.slots.iter().filter(|slot| tiers.contains(&slot.0)).count();
        let mean = least.iter().map(|&ns| ns as f64).sum::<f64>() / servers as f64;
        least.into_iter().map(|ns| ns as f64 > share * mean).collect()
    }

    /// Striped files on all servers, the others dealt to servers of `tiers`; `None` when there is no room found.
    fn deal(&self, striped: &[bool], tiers: &[usize]) -> Option<Vec<Layout>> {
        let job = self.job;
        let mut layouts = job.default_layouts();
        let (busy_s, bytes) = self.of_striped(striped, &layouts);
        let used: Vec<usize> = (0..self.slots.len()).filter(|&slot| tiers.contains(&self.slots[slot].0)).collect();
        let server = |&slot: &usize| ServerState {
            class: self.slots[slot].0,
            busy_ns: (busy_s[slot] * 1e9) as u128,
            room_bytes: job.limits.of(slot).saturating_sub(bytes[slot]),
        };
        let servers: Vec<ServerState> = used.iter().map(server).collect();
        let whole: Vec<usize> = (0..striped.len()).filter(|&file| !striped[file]).collect();
        let loads = whole.iter().flat_map(|&file| &self.ns[file * self.tiers()..][..self.tiers()]);
        let bytes = whole.iter().map(|&file| job.extent_bytes(file));
        let files = FileCosts { loads_ns: loads.copied().collect(), bytes: bytes.collect() };
        let found = assign(&files, &servers, self.tiers())?;
        for (&file, &server) in whole.iter().zip(&found.server_of) {
            let on = self.slots[used[server]].1;
            layouts[file] =
                Layout::striped([on], job.options.default_width_bytes).expect("one server, a checked width");
        }
        Some(layouts)
    }

    /// Busy time in seconds and bytes of the striped files on every server.
    fn of_striped(&self, striped: &[bool], layouts: &[Layout]) -> (Vec<f64>, Vec<u64>) {
        let (mut busy_s, mut bytes) = (vec![0.0; self.slots.len()], vec![0_u64; self.slots.len()]);
        let pricer = self.job.pricer();
        for (index, file) in self.job.demand.files.iter().enumerate().filter(|&(index, _)| striped[index]) {
            for e in &file.entries {
                let visit = |slot: usize, busy: stripewise_model::Busy| {
                    busy_s[slot] += e.count * busy.device_s.max(busy.network_s);
                };
                let latency = pricer.model.layout_latency_s(&layouts[index], e.op, e.offset, e.size, visit);
                latency.expect("the default is of the cluster");
            }
            let region = &layouts[index].regions()[0];
            for (slot, bytes) in bytes.iter_mut().enumerate() {
                *bytes = bytes.saturating_add(region.bytes_before(slot, file.extent));
            }
        }
        (busy_s, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::input::{FileTrace, PlanOptions};
    use crate::planners::propose;
    use stripewise_model::{Cluster, Op, Request, presets};

    /// `requests` random requests of 256 KiB in the file of process `process`, with all processes at once.
    fn file(process: u32, requests: u64) -> Vec<Request> {
        let scattered = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 1024;
        let one = |i: u64| Request {
            offset: scattered(i) << 18,
            size: 1 << 18,
            op: Op::Read,
            process,
            start_s: i as f64,
            end_s: (i + 1) as f64,
        };
        (0..requests).map(one).collect()
    }

    fn traces(files: &[Vec<Request>]) -> Vec<FileTrace<'_>> {
        let trace = |(i, requests)| FileTrace { name: format!("f{i}"), requests, size_bytes: Some(1 << 28) };
        files.iter().map(Vec::as_slice).enumerate().map(trace).collect()
    }

    fn server_of(layout: &Layout) -> Option<u16> {
        let stripes = layout.regions()[0].stripes();
        (stripes.len() == 1).then(|| stripes[0].server.0)
    }

    fn planned(files: &[Vec<Request>], cluster: &Cluster) -> (Vec<Layout>, f64, f64) {
        let (traces, options) = (traces(files), PlanOptions::default());
        let job = Job::new(&traces, cluster, &options).unwrap();
        let found = propose(&WholeFiles, &job).unwrap();
        let default = job.price(&job.default_layouts()).unwrap();
        (found.layouts, found.price.predicted_s, default.predicted_s)
    }

    #[test]
    fn equal_files_are_dealt_evenly() {
        let files: Vec<Vec<Request>> = (0..8).map(|process| file(process, 40)).collect();
        let (layouts, planned_s, default_s) = planned(&files, &presets::set_p(4, 0, false));
        let mut count = [0; 4];
        layouts.iter().for_each(|layout| count[usize::from(server_of(layout).unwrap())] += 1);
        assert_eq!(count, [2; 4]);
        // One seek a request in place of four.
        assert!(planned_s < 0.5 * default_s, "{planned_s} {default_s}");
    }

    #[test]
    fn a_file_that_is_too_much_for_one_server_stays_on_all() {
        let mut files: Vec<Vec<Request>> = (0..12).map(|process| file(process, 20)).collect();
        // Sixteen processes on one file with twenty times the requests of the others together.
        files.push((0..16).flat_map(|p| file(100 + p, 300)).collect());
        let (layouts, planned_s, default_s) = planned(&files, &presets::set_b(4, 0));
        assert_eq!(server_of(&layouts[12]), None);
        assert!(layouts[..12].iter().all(|layout| server_of(layout).is_some()));
        assert!(planned_s < default_s);
    }

    #[test]
    fn fast_servers_have_more_files_within_their_limit() {
        let files: Vec<Vec<Request>> = (0..40).map(|process| file(process, 20)).collect();
        let mut cluster = presets::set_b(4, 2);
        let on_ssd =
            |layouts: &[Layout]| layouts.iter().filter(|l| server_of(l).is_some_and(|server| server >= 4)).count();
        let free = on_ssd(&planned(&files, &cluster).0);
        assert!(free > 20, "{free}");
        // Room for three files on each.
        cluster.tiers[1].capacity_bytes = Some(3 << 28);
        assert_eq!(on_ssd(&planned(&files, &cluster).0), 6);
    }

    #[test]
    fn without_room_the_default_is_what_is_given() {
        let files: Vec<Vec<Request>> = (0..3).map(|process| file(process, 5)).collect();
        let mut cluster = presets::set_b(4, 0);
        cluster.tiers[0].capacity_bytes = Some(255 << 20);
        let (layouts, planned_s, default_s) = planned(&files, &cluster);
        assert!(layouts.iter().all(|layout| server_of(layout).is_none()));
        assert_eq!(planned_s, default_s);
    }
}
