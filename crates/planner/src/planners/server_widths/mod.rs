//! `server-widths`: a width of its own for every server, in the regions of the `regions` planner.
//!
//! Starts from that planner's widths, from those that end an aligned request on all servers at once (`beyond.md` 3), and
//! from blocks dealt to servers by load; then steps of bytes move between servers and tiers while the price of the whole
//! plan falls (`beyond.md` 4: latency and the busiest server, phase by phase). In regions whose widths are few the
//! result is the best there is; else no single move of the tried sizes improves it, for the requests that were priced.

mod aligned_widths;
mod vector_search;

use self::aligned_widths::{WidthClass, aligned_widths};
use self::vector_search::{Instance, stripes};
use crate::error::PlanError;
use crate::job::Job;
use crate::job::demand::RequestGroup;
use crate::objective::pricing::{Pricer, ServerLoad, add};
use crate::planners::planner::Planner;
use crate::planners::regions::before_rehearsal;
use crate::planners::song::costs::{Blocks, ServerLoads};
use crate::planners::song::partition::least_maximum;
use crate::regions::candidates::{STEP, widest};
use std::ops::Range;
use stripewise_layout::{Layout, MAX_OFFSET, ServerId};
use stripewise_model::{Op, Profile, WaterLevel};

/// K profiles, a width for every server.
pub struct ServerWidths;

/// In larger pools neighbouring servers are priced as one, and a width for each would be one too many to try.
const MOST_SERVERS: usize = 64;

/// With more files the few regions that can be refined are next to nothing of the whole.
const MOST_FILES: usize = 1024;

/// Regions whose widths are searched, those with most of the predicted time.
const MOST_REGIONS: usize = 12;

/// Requests of a region that the search prices; more are thinned out evenly.
const MOST_ENTRIES: usize = 600;

/// Requests priced over all regions: some seconds' worth.
const LOOKS: usize = 2_000_000;

/// Blocks that a round is dealt in.
const BLOCKS: u64 = 512;

impl Planner for ServerWidths {
    fn name(&self) -> &'static str {
        "server-widths"
    }

    fn source(&self) -> &'static str {
        "He et al. (HARL) for any number of profiles, Song et al., water-filling (docs/planners.md)"
    }

    fn summary(&self) -> &'static str {
        "the regions of `regions` with a width for every server, refined byte step by byte step"
    }

    /// The search of `regions`, once for a job, and 2 million requests priced.
    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        let servers: Vec<ServerId> = job.cluster.tiers.iter().flat_map(|tier| tier.servers.iter().copied()).collect();
        let decline = |reason| Err(PlanError::NoLayout { planner: self.name(), reason });
        if servers.len() > MOST_SERVERS {
            let count = servers.len();
            return decline(format!(
                "a width for each server is searched for up to {MOST_SERVERS} servers, here are {count}"
            ));
        }
        if job.files.len() > MOST_FILES {
            let count = job.files.len();
            return decline(format!("regions are refined one by one, for up to {MOST_FILES} files, here are {count}"));
        }
        let start = job.spread(before_rehearsal(job)?.cheapest());
        let pricer = job.pricer();
        let mut plan = Refined::new(job, &pricer, servers, &start);
        let order = plan.dearest();
        let looks = LOOKS / order.len().max(1);
        order.into_iter().for_each(|place| plan.refine(place, looks));
        let refined = plan.layouts();
        // Requests across borders were priced as if each region went on: only now are all prices those of the layouts.
        let (before, after) = (job.price(&start)?, job.price(&refined)?);
        let better = after.excess_bytes < before.excess_bytes
            || (after.excess_bytes == before.excess_bytes && after.predicted_s < before.predicted_s);
        Ok(if better { refined } else { start })
    }
}

/// A region with a width for every slot.
struct Place {
    file: usize,
    range: Range<u64>,
    widths: Vec<u64>,
    entries: Vec<RequestGroup>,
    load: ServerLoad,
    bytes: Vec<u64>,
}

/// A plan whose widths are being refined.
struct Refined<'a> {
    job: &'a Job<'a>,
    pricer: &'a Pricer<'a>,
    servers: Vec<ServerId>,
    places: Vec<Place>,
    load: ServerLoad,
    bytes: Vec<u64>,
}

impl<'a> Refined<'a> {
    fn new(job: &'a Job<'a>, pricer: &'a Pricer<'a>, servers: Vec<ServerId>, start: &[Layout]) -> Self {
        let (load, bytes) = (pricer.no_load(), vec![0; servers.len()]);
        let mut plan = Self { job, pricer, servers, places: Vec::new(), load, bytes };
        for (file, layout) in start.iter().enumerate() {
            for (index, region) in layout.regions().iter().enumerate() {
                let mut widths = vec![0; plan.servers.len()];
                for stripe in region.stripes() {
                    let slot = plan.servers.iter().position(|&server| server == stripe.server);
                    widths[slot.expect("a server of the cluster")] = stripe.width_bytes;
                }
                let range = region.offset()..layout.region_end(index);
                let entries =
                    job.demand.files[file].entries.iter().filter_map(|e| e.clipped(range.start, range.end)).collect();
                let mut place = Place { file, range, widths, entries, load: Vec::new(), bytes: Vec::new() };
                (place.load, place.bytes) = plan.figures(&place, &place.widths);
                add(&mut plan.load, &place.load);
                plan.bytes.iter_mut().zip(&place.bytes).for_each(|(sum, b)| *sum = sum.saturating_add(*b));
                plan.places.push(place);
            }
        }
        plan
    }

    /// Load and bytes of a region under these widths. O(entries x sub-requests^2).
    fn figures(&self, place: &Place, widths: &[u64]) -> (ServerLoad, Vec<u64>) {
        let stripes = stripes(&self.servers, widths).expect("a round");
        let layout = Layout::new([(0, stripes)]).expect("widths are bounded");
        let load = self.pricer.layout_load(&place.entries, &layout).expect("the layout is of the cluster");
        let (region, present) = (&layout.regions()[0], self.present(place));
        let mut bytes = vec![0; widths.len()];
        for (index, slot) in (0..widths.len()).filter(|&slot| widths[slot] > 0).enumerate() {
            bytes[slot] = region.bytes_before(index, present.end) - region.bytes_before(index, present.start);
        }
        (load, bytes)
    }

    /// Bytes that the file has in the region.
    fn present(&self, place: &Place) -> Range<u64> {
        self.job.demand.files[place.file].present(place.range.start, place.range.end)
    }

    /// Regions with the most of the predicted time, most first.
    fn dearest(&self) -> Vec<usize> {
        let share = |place: &Place| self.pricer.share_s(&place.load, &self.load);
        let shares: Vec<f64> = self.places.iter().map(share).collect();
        let mut order: Vec<usize> = (0..self.places.len()).filter(|&at| !self.places[at].entries.is_empty()).collect();
        order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]).then(a.cmp(&b)));
        order.truncate(MOST_REGIONS);
        order
    }

    /// Searches the widths of one region and takes what is better for all of its requests.
    fn refine(&mut self, at: usize, looks: usize) {
        let place = &self.places[at];
        let rest: ServerLoad = self.load.iter().zip(&place.load).map(|(sum, part)| (sum - part).max(0.0)).collect();
        let others: Vec<u64> =
            self.bytes.iter().zip(&place.bytes).map(|(sum, part)| sum.saturating_sub(*part)).collect();
        let room = others.iter().enumerate().map(|(slot, &held)| self.job.limits.of(slot).saturating_sub(held));
        let length = place.range.end.min(self.job.demand.files[place.file].edges.last().copied().unwrap_or(MAX_OFFSET));
        let widest = widest(length.saturating_sub(place.range.start)).max(*place.widths.iter().max().expect("servers"));
        let mut instance = Instance {
            pricer: self.pricer,
            entries: thinned(&place.entries),
            rest,
            room: room.collect(),
            present: self.present(place),
            step: STEP,
            widest: widest.next_multiple_of(STEP),
        };
        let mut starts = vec![place.widths.clone()];
        starts.extend(self.aligned(place, widest));
        starts.extend(self.dealt(place, &instance.entries));
        let Some(found) = instance.search(&starts, looks) else { return };
        // Thinned requests proposed, all of them decide.
        instance.entries.clone_from(&place.entries);
        let (before, after) = (instance.rank(&place.widths), instance.rank(&found.widths));
        let better = before.zip(after).is_some_and(|(before, after)| {
            (after.excess_bytes, after.time_s.total_cmp(&before.time_s).is_ge()) < (before.excess_bytes, true)
        });
        if better {
            let (load, bytes) = self.figures(place, &found.widths);
            self.load = instance.rest;
            add(&mut self.load, &load);
            self.bytes = others.iter().zip(&bytes).map(|(a, b)| a.saturating_add(*b)).collect();
            let place = &mut self.places[at];
            (place.widths, place.load, place.bytes) = (found.widths, load, bytes);
        }
    }

    fn profiles(&self) -> Vec<&Profile> {
        let tiers = self.pricer.cluster.tiers.iter();
        tiers.flat_map(|tier| std::iter::repeat_n(&tier.profile, tier.servers.len())).collect()
    }

    /// Widths with which a mean request, some of them, or a part of one ends on all its servers at once.
    fn aligned(&self, place: &Place, widest: u64) -> Vec<Vec<u64>> {
        let (count, bytes, reads) = place.entries.iter().fold((0.0, 0.0, 0.0), |sum, e| {
            let read = if e.op == Op::Read { e.count } else { 0.0 };
            (sum.0 + e.count, sum.1 + e.count * e.size as f64, sum.2 + read)
        });
        let op = if 2.0 * reads >= count { Op::Read } else { Op::Write };
        let class = |profile: &&Profile| {
            let of = profile.of(op);
            let s_per_byte = of.transfer_s_per_byte + profile.network_s_per_byte;
            WidthClass {
                servers: 1,
                level: WaterLevel { startup_s: 0.5 * (of.startup_min_s + of.startup_max_s), s_per_byte },
            }
        };
        let classes: Vec<WidthClass> = self.profiles().iter().map(class).collect();
        let steps = (bytes / count / STEP as f64).round().max(1.0);
        let most = (widest / STEP * classes.len() as u64) as f64;
        let rounds = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0].map(|factor| (steps * factor).round().max(1.0));
        let rounds = rounds.into_iter().filter(|&steps| steps <= most);
        let found = rounds.map(|steps| aligned_widths(&classes, steps as u64 * STEP, STEP).1);
        found.filter(|widths| widths.iter().all(|&width| width <= widest)).collect()
    }

    /// The present round, and twice and four times as long ones, dealt to servers by load.
    fn dealt(&self, place: &Place, entries: &[RequestGroup]) -> Vec<Vec<u64>> {
        let profiles = self.profiles();
        let round = place.widths.iter().sum::<u64>();
        let deal = |times: u64| {
            let bytes = (round.saturating_mul(times) / BLOCKS).next_multiple_of(STEP).max(STEP);
            let count = (round.saturating_mul(times) / bytes).max(1) as usize;
            let requests = entries.iter().map(|e| (e.op, e.offset, e.size, e.count));
            let loads = ServerLoads::new(Blocks { count, bytes }, requests);
            let ends = least_maximum(profiles.len(), count, |slot, from, to| loads.load_s(profiles[slot], from, to));
            let mut from = 0;
            let widths = ends.into_iter().map(|end| (end - std::mem::replace(&mut from, end)) as u64 * bytes);
            widths.collect::<Vec<u64>>()
        };
        [1, 2, 4].map(deal).into()
    }

    fn layouts(&self) -> Vec<Layout> {
        let mut regions: Vec<Vec<(u64, &[u64])>> = vec![Vec::new(); self.job.files.len()];
        self.places.iter().for_each(|place| regions[place.file].push((place.range.start, &place.widths)));
        let layouts = regions.into_iter().map(|mut rows| {
            // Equal neighbours are one region: nothing moves by that.
            rows.dedup_by(|next, kept| next.1 == kept.1);
            let rows = rows
                .into_iter()
                .map(|(offset, widths)| (offset, stripes(&self.servers, widths).expect("every region has a round")));
            Layout::new(rows).expect("regions ascend, and widths are bounded")
        });
        layouts.collect()
    }
}

/// At most [`MOST_ENTRIES`] of the entries, evenly, with the requests of all.
fn thinned(entries: &[RequestGroup]) -> Vec<RequestGroup> {
    let every = entries.len().div_ceil(MOST_ENTRIES).max(1);
    let mut kept: Vec<RequestGroup> = entries.iter().step_by(every).copied().collect();
    let count = |entries: &[RequestGroup]| entries.iter().map(|e| e.count).sum::<f64>();
    let scale = count(entries) / count(&kept);
    kept.iter_mut().for_each(|e| e.count *= scale);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::input::{FileTrace, PlanOptions};
    use crate::planners::planner::propose;
    use crate::planners::regions::Regions;
    use crate::table_ii::song_loop;
    use stripewise_model::{Cluster, Request, presets};

    fn request(i: u64, offset: u64, size: u64) -> Request {
        let start_s = (i / 16) as f64;
        Request { offset, size, op: Op::Read, process: (i % 16) as u32, start_s, end_s: start_s + 1.0 }
    }

    /// Predicted times of `regions` without simulations and of `server-widths`, with the layout of the latter.
    fn compared(requests: &[Request], cluster: &Cluster) -> (f64, f64, Layout) {
        let files = [FileTrace { name: "f".into(), requests, size_bytes: None }];
        let options = PlanOptions { simulations: 0, ..PlanOptions::default() };
        let job = Job::new(&files, cluster, &options).unwrap();
        let found = propose(&ServerWidths, &job).unwrap();
        let regions = propose(&Regions, &job).unwrap();
        (regions.price.predicted_s, found.price.predicted_s, found.layouts[0].clone())
    }

    #[test]
    fn heat_at_one_place_of_the_round_is_shared_by_narrower_stripes() {
        // Song's loop: 192 requests of 1 KiB, then one of 64 KiB, on four equal servers. A width per tier cannot tell
        // servers apart; a width per server can.
        let requests = song_loop(32 << 18).into_iter().zip(0..).map(|((offset, size), i)| request(i, offset, size));
        let requests: Vec<Request> = requests.collect();
        let (regions_s, found_s, _) = compared(&requests, &presets::set_p(4, 0, false));
        assert!(found_s <= regions_s, "{found_s} {regions_s}");
    }

    #[test]
    fn never_above_the_widths_of_tiers() {
        for (cluster, size) in [(presets::set_b(3, 2), 512 << 10), (presets::set_p(2, 1, false), 192 << 10)] {
            let scattered = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 256;
            let requests: Vec<Request> = (0..300).map(|i| request(i, scattered(i) * size, size)).collect();
            let (regions_s, found_s, layout) = compared(&requests, &cluster);
            assert!(found_s <= regions_s * (1.0 + 1e-12), "{found_s} {regions_s} {layout:?}");
        }
    }

    #[test]
    fn three_profiles_end_together_for_one_process() {
        // beyond.md 3: requests that are whole rounds, one process at a time.
        let profile = |startup_ms, kb_per_ms| {
            let op = presets::op_profile(startup_ms, startup_ms, kb_per_ms);
            Profile { read: op, write: op, network_s_per_byte: presets::seconds_per_byte(117.0) }
        };
        let tiers =
            [("old", 3, profile(1.33, 20.0)), ("new", 3, profile(1.0, 60.0)), ("ssd", 2, profile(0.083, 102.0))];
        let cluster = presets::cluster(&tiers);
        let one = |i: u64| Request { process: 0, ..request(i, i << 19, 1 << 19) };
        let requests: Vec<Request> = (0..64).map(one).collect();
        let (regions_s, found_s, _) = compared(&requests, &cluster);
        // 2.579 ms with a width per profile; a width per server ends a step's share sooner, and never later.
        assert!(found_s <= 64.0 * 2.5795e-3 && found_s <= regions_s, "{found_s} {regions_s}");
    }
}
