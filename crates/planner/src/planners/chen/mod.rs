//! `1-dh`, `1-dv`, `2-d` and `groups`: Chen et al., for programs whose processes each have their own part of the data.
//!
//! A process's part is what no other process touches: whole files (a file per process) or runs of a shared file. `g`
//! groups of servers serve the processes in order of their parts, neighbours together; a region for every run of parts
//! of one group. What several processes touch is on all servers. A file whose parts are interleaved so finely that it
//! would have more regions than allowed (strided access), or more than its share of the memory for all, is on all
//! servers as a whole: for it every scheme is 1-DH.
//!
//! `groups` tries the servers of each tier alone, too: those of another then have none of the data.
//!
//! The paper's servers are equal. Here servers are dealt to groups in turn, tier by tier, so that every group has its
//! share of every tier (as far as there are enough), and servers left over make the first groups larger. All widths are
//! the default's.

pub mod costs;

use self::costs::{ChenPattern, Rest};
use crate::error::PlanError;
use crate::job::Job;
use crate::job::input::FileTrace;
use crate::planners::planner::Planner;
use std::collections::HashMap;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::Op;

/// All data on all servers.
pub struct OneDh;

impl Planner for OneDh {
    fn name(&self) -> &'static str {
        "1-dh"
    }

    fn source(&self) -> &'static str {
        "Chen et al., 1-D horizontal striping"
    }

    fn summary(&self) -> &'static str {
        "all data on all servers"
    }

    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        Ok(job.default_layouts())
    }
}

/// Each process's part on one server.
pub struct OneDv;

impl Planner for OneDv {
    fn name(&self) -> &'static str {
        "1-dv"
    }

    fn source(&self) -> &'static str {
        "Chen et al., 1-D vertical striping"
    }

    fn summary(&self) -> &'static str {
        "each process's part of the data on one server; files whose parts interleave stay on all"
    }

    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        Ok(Parts::new(job).layouts(job, servers(job).len()))
    }

    fn own_price(&self, job: &Job, layouts: &[Layout]) -> Result<f64, PlanError> {
        Ok(paper_price_s(job, layouts, |of| of.servers))
    }
}

/// Each process's part on a group of its own.
pub struct TwoD;

impl Planner for TwoD {
    fn name(&self) -> &'static str {
        "2-d"
    }

    fn source(&self) -> &'static str {
        "Chen et al., 2-D striping"
    }

    fn summary(&self) -> &'static str {
        "each process's part of the data on a group of servers of its own; files whose parts interleave stay on all"
    }

    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        let parts = Parts::new(job);
        let groups = parts.processes().min(servers(job).len());
        Ok(parts.layouts(job, groups))
    }

    fn own_price(&self, job: &Job, layouts: &[Layout]) -> Result<f64, PlanError> {
        Ok(paper_price_s(job, layouts, costs::two_d_groups))
    }
}

/// The best number of groups, by the price of the layouts that it gives.
pub struct Groups;

/// Every number of groups is tried with up to this many servers; beyond, those that are worthwhile by the paper's costs
/// and powers of two.
const ALL_TRIED: usize = 32;

/// Most numbers of groups that are tried.
const MOST_TRIED: usize = 48;

/// Prices of a request that they may cost together: some seconds.
const MOST_PRICES: usize = 4_000_000;

impl Planner for Groups {
    fn name(&self) -> &'static str {
        "groups"
    }

    fn source(&self) -> &'static str {
        "Chen et al., any number of groups between 1-DH and 1-DV (docs/planners.md)"
    }

    fn summary(&self) -> &'static str {
        "servers, or those of one tier, in the number of groups that serves the processes' parts fastest"
    }

    /// O(tiers x numbers of groups x [`Job::price`]).
    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        let parts = Parts::new(job);
        let mut best: Option<((u64, f64), Vec<Layout>)> = None;
        let entries: usize = job.demand.files.iter().map(|file| file.entries.len()).sum();
        let most = (MOST_PRICES / entries.max(1)).min(MOST_TRIED);
        let all = servers(job);
        let numbers = numbers_of_groups(parts.processes(), all.len(), most);
        // A tier alone where that is not the whole pool, nor more than may be priced.
        let mut tried: Vec<(&[ServerId], usize)> = numbers.iter().map(|&groups| (&all[..], groups)).collect();
        for tier in job.cluster.tiers.iter().filter(|tier| (1..all.len()).contains(&tier.servers.len())) {
            let numbers = numbers_of_groups(parts.processes(), tier.servers.len(), most);
            if tried.len() + numbers.len() <= most {
                tried.extend(numbers.into_iter().map(|groups| (&tier.servers[..], groups)));
            }
        }
        for (servers, groups) in tried {
            let layouts = parts.layouts_on(job, servers, groups);
            if best.as_ref().is_some_and(|found| found.1 == layouts) {
                continue;
            }
            let price = job.price(&layouts)?;
            let rank = (price.excess_bytes, price.predicted_s);
            // Fewer groups first: more must be better.
            let better = |found: &(u64, f64)| rank.0 < found.0 || (rank.0 == found.0 && rank.1 < found.1);
            if best.as_ref().is_none_or(|found| better(&found.0)) {
                best = Some((rank, layouts));
            }
        }
        Ok(best.expect("one group is always tried").1)
    }
}

/// Ascending, each once, 1 among them; where servers are many powers of two and as many others as make `most` with
/// them.
fn numbers_of_groups(processes: usize, servers: usize, most: usize) -> Vec<usize> {
    if servers <= ALL_TRIED {
        return (1..=servers).collect();
    }
    let powers = (0..usize::BITS - servers.leading_zeros()).map(|power| 1 << power);
    let mut numbers: Vec<usize> = powers.chain([servers, processes.clamp(1, servers)]).collect();
    let left = most.saturating_sub(numbers.len());
    let worthwhile = costs::worthwhile_groups(processes as u64, servers as u64).map(|groups| groups as usize);
    numbers.extend(worthwhile.take(left));
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Stripes of all files together, [`REGION`] more for each region: some hundred megabytes of layouts.
const MOST_STRIPES: usize = 2_500_000;

/// Stripes that a region takes the room of, beside its own.
const REGION: usize = 4;

/// All servers, tiers in order.
fn servers(job: &Job) -> Vec<ServerId> {
    job.cluster.tiers.iter().flat_map(|tier| tier.servers.iter().copied()).collect()
}

/// The paper's cost of one access of all processes: of its scheme, or of 1-DH for the default layouts. Mean startup and
/// time per byte over all servers, mean request.
fn paper_price_s(job: &Job, layouts: &[Layout], groups: impl Fn(&ChenPattern) -> u64) -> f64 {
    let parts = Parts::new(job);
    let (mut requests, mut bytes, mut reads) = (0.0, 0.0, 0.0);
    for request in job.files.iter().flat_map(|file| file.requests).filter(|request| request.size > 0) {
        requests += 1.0;
        bytes += request.size as f64;
        reads += f64::from(u8::from(request.op == Op::Read));
    }
    if requests == 0.0 {
        return 0.0;
    }
    let (mut startup_s, mut s_per_byte, mut count) = (0.0, 0.0, 0.0);
    for tier in &job.cluster.tiers {
        let servers = tier.servers.len() as f64;
        count += servers;
        for (op, share) in [(Op::Read, reads / requests), (Op::Write, 1.0 - reads / requests)] {
            let of = tier.profile.of(op);
            startup_s += servers * share * 0.5 * (of.startup_min_s + of.startup_max_s);
            s_per_byte += servers * share * (of.transfer_s_per_byte + tier.profile.network_s_per_byte);
        }
    }
    let pattern = ChenPattern {
        processes: parts.processes() as u64,
        servers: count as u64,
        startup_s: startup_s / count,
        part_s: bytes / requests * s_per_byte / count,
    };
    let groups = if layouts == job.default_layouts() { 1 } else { groups(&pattern) };
    costs::groups_s(&pattern, groups, Rest::Floor)
}

/// The processes that touch a run of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// One process alone: its number in order of parts.
    One(usize),
    /// Several.
    Several,
}

/// The parts of all processes.
struct Parts {
    /// First byte and owner of the runs of each file, ascending; none without requests.
    files: Vec<Vec<(u64, Owner)>>,
    /// Processes that own anything, at any place.
    owners: usize,
}

impl Parts {
    /// O(requests log requests).
    fn new(job: &Job) -> Self {
        let mut numbers: HashMap<u32, usize> = HashMap::new();
        let mut files = Vec::with_capacity(job.files.len());
        for file in job.files {
            let runs = runs(file).into_iter().map(|(offset, process)| {
                let owner = process.map_or(Owner::Several, |process| {
                    let next = numbers.len();
                    Owner::One(*numbers.entry(process).or_insert(next))
                });
                (offset, owner)
            });
            files.push(runs.collect::<Vec<_>>());
        }
        Self { files, owners: numbers.len() }
    }

    /// Processes with a part (`p`); at least 1.
    fn processes(&self) -> usize {
        self.owners.max(1)
    }

    /// The layouts of `groups` groups of all servers.
    fn layouts(&self, job: &Job, groups: usize) -> Vec<Layout> {
        self.layouts_on(job, &servers(job), groups)
    }

    /// The layouts of `groups` groups of `servers`, which are none twice. O(runs + files x servers / groups).
    fn layouts_on(&self, job: &Job, servers: &[ServerId], groups: usize) -> Vec<Layout> {
        let width_bytes = job.options.default_width_bytes;
        let on_all = Layout::striped(servers.iter().copied(), width_bytes).expect("servers, and a checked width");
        let mut layouts = vec![on_all; job.files.len()];
        if groups < 2 {
            return layouts;
        }
        let round = |of: &mut dyn Iterator<Item = ServerId>| -> Vec<Stripe> {
            of.map(|server| Stripe { server, width_bytes }).collect()
        };
        let most = job.options.max_regions.max(1);
        let most_stripes = MOST_STRIPES / job.files.len().max(1);
        // A file of one process alone has one region; all of one group share it.
        let mut alone: HashMap<usize, Layout> = HashMap::new();
        for (layout, runs) in layouts.iter_mut().zip(&self.files) {
            let mut regions: Vec<(u64, Option<usize>)> = runs
                .iter()
                .map(|&(offset, owner)| match owner {
                    // Neighbours together, and no group with more processes than another by more than one.
                    Owner::One(process) => (offset, Some(process * groups / self.owners.max(groups))),
                    Owner::Several => (offset, None),
                })
                .collect();
            regions.dedup_by_key(|region| region.1);
            let stripes = |group: Option<usize>| match group {
                Some(group) => round(&mut servers.iter().copied().skip(group).step_by(groups)),
                None => round(&mut servers.iter().copied()),
            };
            if let [(_, group)] = regions[..] {
                if let Some(group) = group {
                    let new =
                        || Layout::new([(0, stripes(Some(group)))]).expect("no round is longer than the default's");
                    *layout = alone.entry(group).or_insert_with(new).clone();
                }
                continue;
            }
            let of_region = |region: &(u64, Option<usize>)| {
                REGION + if region.1.is_some() { servers.len().div_ceil(groups) } else { servers.len() }
            };
            let room = regions.iter().map(of_region).sum::<usize>();
            if regions.is_empty() || regions.len() > most || room > most_stripes {
                continue;
            }
            regions[0].0 = 0;
            let regions = regions.into_iter().map(|(offset, group)| (offset, stripes(group)));
            *layout = Layout::new(regions).expect("runs ascend, and no round is longer than the default's");
        }
        layouts
    }
}

/// Runs of bytes of a file by the processes that touch them: first byte, and the process when there is one alone.
/// Untouched bytes belong to the run before them. O(requests log requests).
fn runs(file: &FileTrace) -> Vec<(u64, Option<u32>)> {
    // Begin and end of each request; ends first, so that what only meets does not overlap.
    let mut edges: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * file.requests.len());
    for request in file.requests.iter().filter(|request| request.size > 0) {
        edges.push((request.offset, true, request.process));
        edges.push((request.offset + request.size, false, request.process));
    }
    edges.sort_unstable();
    let mut active: HashMap<u32, usize> = HashMap::new();
    // With one process active, the sum of the active ones is that process.
    let mut sum = 0_u64;
    let mut runs: Vec<(u64, Option<u32>)> = Vec::new();
    for (index, &(at, begins, process)) in edges.iter().enumerate() {
        let count = active.entry(process).or_insert(0);
        if begins {
            *count += 1;
            sum += if *count == 1 { u64::from(process) } else { 0 };
        } else {
            *count -= 1;
            if *count == 0 {
                active.remove(&process);
                sum -= u64::from(process);
            }
        }
        let more_here = edges.get(index + 1).is_some_and(|next| next.0 == at);
        if more_here || active.is_empty() {
            continue;
        }
        let owner = (active.len() == 1).then_some(sum as u32);
        if runs.last().is_none_or(|last| last.1 != owner) {
            runs.push((at, owner));
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::input::PlanOptions;
    use crate::planners::propose;
    use stripewise_model::{Cluster, Request, presets};

    fn request(offset: u64, size: u64, process: u32) -> Request {
        Request { offset, size, op: Op::Write, process, start_s: 0.0, end_s: 0.0 }
    }

    fn file(requests: &[Request]) -> FileTrace<'_> {
        FileTrace { name: "f".into(), requests, size_bytes: None }
    }

    /// Each process writes 64 requests of 256 KiB one after the other into its own part.
    fn parts(processes: u32) -> Vec<Request> {
        (0..processes).flat_map(|p| (0..64).map(move |i| request((u64::from(p) * 64 + i) << 18, 1 << 18, p))).collect()
    }

    fn planned(planner: &dyn Planner, files: &[FileTrace], cluster: &Cluster, options: &PlanOptions) -> Vec<Layout> {
        let job = Job::new(files, cluster, options).unwrap();
        let layouts = planner.plan(&job).unwrap();
        assert!(layouts.iter().all(|layout| layout.regions().len() <= options.max_regions.max(1)));
        layouts
    }

    fn names(layout: &Layout) -> Vec<(u64, Vec<u16>)> {
        let servers = |region: &stripewise_layout::Region| region.stripes().iter().map(|s| s.server.0).collect();
        layout.regions().iter().map(|region| (region.offset() >> 18, servers(region))).collect()
    }

    #[test]
    fn runs_are_what_one_process_touches_alone() {
        let requests = [
            request(10, 10, 1),
            request(20, 10, 1),
            request(40, 10, 2),
            // Two processes: shared.
            request(45, 10, 3),
            request(0, 0, 9),
            request((1 << 63) - 5, 5, 7),
        ];
        let found = runs(&file(&requests));
        assert_eq!(found, [(10, Some(1)), (40, Some(2)), (45, None), (50, Some(3)), ((1 << 63) - 5, Some(7))]);
        assert_eq!(runs(&file(&[])), []);
        // Several requests of one process at one place are still one process.
        assert_eq!(runs(&file(&[request(0, 8, 4), request(0, 8, 4), request(4, 8, 4)])), [(0, Some(4))]);
    }

    #[test]
    fn a_shared_file_has_a_region_for_each_group() {
        let (requests, options) = (parts(4), PlanOptions::default());
        let files = [file(&requests)];
        let cluster = presets::set_b(6, 2);
        let two_d = planned(&TwoD, &files, &cluster, &options);
        // Servers are dealt in turn: two to every group.
        let wanted = [(0, vec![0, 4]), (64, vec![1, 5]), (128, vec![2, 6]), (192, vec![3, 7])];
        assert_eq!(names(&two_d[0]), wanted);
        let one_dv = planned(&OneDv, &files, &cluster, &options);
        assert_eq!(names(&one_dv[0]), [(0, vec![0]), (64, vec![1]), (128, vec![2]), (192, vec![3])]);
        assert_eq!(names(&planned(&OneDh, &files, &cluster, &options)[0]), [(0, (0..8).collect())]);
    }

    #[test]
    fn more_processes_than_groups_are_neighbours_on_one() {
        let (requests, options) = (parts(16), PlanOptions::default());
        let layouts = planned(&OneDv, &[file(&requests)], &presets::set_b(2, 2), &options);
        let wanted = [(0, vec![0]), (256, vec![1]), (512, vec![2]), (768, vec![3])];
        assert_eq!(names(&layouts[0]), wanted);
    }

    #[test]
    fn a_file_for_each_process_is_on_its_group() {
        let all = parts(4);
        let files: Vec<FileTrace> = all.chunks(64).map(file).collect();
        let layouts = planned(&OneDv, &files, &presets::set_b(6, 2), &PlanOptions::default());
        let wanted = [0, 1, 2, 3].map(|server| vec![(0, vec![server])]);
        assert_eq!(layouts.iter().map(names).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn interleaved_parts_stay_on_all_servers() {
        let strided: Vec<Request> = (0..512).map(|i| request(i << 18, 1 << 18, (i % 4) as u32)).collect();
        let files = [file(&strided)];
        let (cluster, options) = (presets::set_b(6, 2), PlanOptions { max_regions: 64, ..PlanOptions::default() });
        for planner in [&OneDv as &dyn Planner, &TwoD] {
            assert_eq!(names(&planned(planner, &files, &cluster, &options)[0]), [(0, (0..8).collect())]);
        }
        // On all of them, or on all of the tier that serves them faster alone.
        assert_eq!(names(&planned(&Groups, &files, &cluster, &options)[0]), [(0, vec![6, 7])]);
        // With regions enough each request is a part.
        let free = PlanOptions { max_regions: 512, ..options };
        assert_eq!(planned(&OneDv, &files, &cluster, &free)[0].regions().len(), 512);
    }

    #[test]
    fn very_many_files_have_fewer_regions_each() {
        // A request for each of four processes.
        let requests: Vec<Request> = (0..4).map(|p| request(u64::from(p) << 18, 1 << 18, p)).collect();
        let (cluster, options) = (presets::set_b(6, 2), PlanOptions::default());
        let regions = |files: usize| {
            let files = vec![file(&requests); files];
            planned(&OneDv, &files, &cluster, &options).last().unwrap().regions().len()
        };
        // Each has room for 20 stripes, four regions of one stripe and four more; then for 19.
        assert_eq!((regions(1), regions(125_000), regions(125_001)), (4, 4, 1));
    }

    #[test]
    fn the_number_of_groups_is_the_best_of_all() {
        let requests = parts(9);
        let files = [file(&requests)];
        for cluster in [presets::set_b(8, 0), presets::set_p(6, 2, false), presets::set_p(5, 0, true)] {
            let options = PlanOptions::default();
            let job = Job::new(&files, &cluster, &options).unwrap();
            let best = propose(&Groups, &job).unwrap().price.predicted_s;
            let parts = Parts::new(&job);
            for groups in 1..=servers(&job).len() {
                assert!(best <= job.price(&parts.layouts(&job, groups)).unwrap().predicted_s);
            }
        }
        let many = numbers_of_groups(5000, 10_000, MOST_TRIED);
        assert!(many.len() <= MOST_TRIED && many[0] == 1 && many.is_sorted(), "{many:?}");
    }

    #[test]
    fn the_papers_price_is_the_papers() {
        // 4 processes and 8 servers: 2-D saves three of four startups.
        let requests = parts(4);
        let files = [file(&requests)];
        let (cluster, options) = (presets::set_b(8, 0), PlanOptions::default());
        let job = Job::new(&files, &cluster, &options).unwrap();
        let layouts = TwoD.plan(&job).unwrap();
        let price = |layouts: &[Layout]| TwoD.own_price(&job, layouts).unwrap();
        let gain = price(&job.default_layouts()) - price(&layouts);
        assert!((gain - 3.0 * 0.9e-3).abs() < 1e-12, "{gain}");
    }
}
