//! Which requests each process makes. Everything derives from the options and the seed, so that any process, and a later
//! run, knows what another one wrote where.

use crate::error::BenchError;
use crate::options::{Options, Pattern, RegionOrder, RegionSpec};
use crate::random::Random;

/// What a phase does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Timed writes.
    Write,
    /// Timed reads.
    Read,
}

/// One request of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Index of its region.
    pub region: u32,
    /// Which of the owner's blocks of the region it is.
    pub block: u32,
    /// How often this run has written the block after the request (writes), or at the end of all writes (reads).
    pub generation: u32,
}

/// A region, as each process sees it.
#[derive(Debug, Clone, Copy)]
pub struct RegionPlan {
    /// What was asked for.
    pub spec: RegionSpec,
    /// Blocks of the request size that each process owns.
    pub blocks: u32,
    /// Requests of each process per phase.
    pub requests: u64,
}

/// The requests of all processes.
#[derive(Debug)]
pub struct Workload {
    /// The regions in order of offset.
    pub regions: Vec<RegionPlan>,
    /// Processes.
    pub processes: u32,
    /// Files: one, or one per process.
    pub files: u32,
    pattern: Pattern,
    order: RegionOrder,
    seed: u64,
    read_shift: u32,
}

impl Workload {
    /// Works out what the options ask for.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for regions that do not fit, or more requests than a run can keep the times of.
    pub fn new(options: &Options) -> Result<Self, BenchError> {
        let owners = if options.file_per_process { 1 } else { u64::from(options.processes) };
        let mut regions = Vec::new();
        for spec in options.regions()? {
            let blocks = u32::try_from(spec.length / spec.request_size / owners)
                .map_err(|_| BenchError::Usage("more than 2^32 blocks per process: raise the request size".into()))?;
            let requests = (f64::from(blocks) * spec.heat).round().max(1.0) as u64;
            regions.push(RegionPlan { spec, blocks, requests });
        }
        let per_process: u64 = regions.iter().map(|region| region.requests).sum();
        let bytes: u64 = regions.iter().map(|region| region.requests * region.spec.request_size).sum();
        let share = match (options.count, options.bytes) {
            (Some(count), _) => count as f64 / per_process as f64,
            (_, Some(limit)) => limit as f64 / (bytes as f64 * f64::from(options.processes)),
            _ => 1.0,
        };
        if share < 1.0 {
            for region in &mut regions {
                region.requests = ((region.requests as f64 * share).round() as u64).max(1);
            }
        }
        let workload = Self {
            regions,
            processes: options.processes,
            files: if options.file_per_process { options.processes } else { 1 },
            pattern: options.pattern,
            order: options.region_order,
            seed: options.seed,
            read_shift: options.read_shift % options.processes,
        };
        let total = workload.requests_per_process().saturating_mul(u64::from(options.processes));
        if total > 1 << 28 {
            return Err(BenchError::Usage(format!(
                "{total} requests per phase are more than a run keeps the times of (268435456): limit them by --count"
            )));
        }
        Ok(workload)
    }

    /// Requests of each process per phase.
    pub fn requests_per_process(&self) -> u64 {
        self.regions.iter().map(|region| region.requests).sum()
    }

    /// The file that holds the data of `owner`.
    pub fn file_of(&self, owner: u32) -> u32 {
        if self.files > 1 { owner } else { 0 }
    }

    /// The end of the last region.
    pub fn end(&self) -> u64 {
        self.regions.last().map_or(0, |region| region.spec.offset + region.spec.length)
    }

    fn request(&self, owner: u32, region: usize, block: u32, generation: u32) -> Request {
        let plan = &self.regions[region];
        let (owner, owners) = if self.files > 1 { (0, 1) } else { (u64::from(owner), u64::from(self.processes)) };
        let index = match self.pattern {
            Pattern::Strided => u64::from(block) * owners + owner,
            Pattern::Sequential | Pattern::Random => owner * u64::from(plan.blocks) + u64::from(block),
        };
        Request {
            offset: plan.spec.offset + index * plan.spec.request_size,
            bytes: plan.spec.request_size,
            region: region as u32,
            block,
            generation,
        }
    }

    /// The blocks of a region in the order in which passes over it take them: a heat below 1 takes the first of them.
    fn blocks(&self, owner: u32, region: usize) -> Vec<u32> {
        let mut blocks: Vec<u32> = (0..self.regions[region].blocks).collect();
        if self.pattern == Pattern::Random {
            Random::new(&[self.seed, 1, u64::from(owner), region as u64]).shuffle(&mut blocks);
        }
        blocks
    }

    /// How often a run writes each of the owner's blocks of a region.
    fn generations(&self, owner: u32, region: usize) -> Vec<u32> {
        let plan = &self.regions[region];
        let passes = (plan.requests / u64::from(plan.blocks)) as u32;
        let partial = (plan.requests % u64::from(plan.blocks)) as usize;
        let mut generations = vec![passes; plan.blocks as usize];
        self.blocks(owner, region)[..partial].iter().for_each(|&block| generations[block as usize] += 1);
        generations
    }

    /// The process whose data `rank` uses in a phase: its own, or for reads that of another rank.
    pub fn owner(&self, phase: Phase, rank: u32) -> u32 {
        match phase {
            Phase::Write => rank,
            Phase::Read => (rank + self.read_shift) % self.processes,
        }
    }

    /// The requests that process `rank` makes in a phase, in order. Reads touch the blocks that writes touch, as often, in
    /// another random order.
    pub fn requests(&self, phase: Phase, rank: u32) -> Vec<Request> {
        let owner = self.owner(phase, rank);
        let salt = if phase == Phase::Write { 2 } else { 3 };
        let shuffle = |requests: &mut [(u32, u32)], region: u64| {
            if self.pattern == Pattern::Random {
                Random::new(&[self.seed, salt, u64::from(rank), region]).shuffle(requests);
            }
        };
        let mut order: Vec<(u32, u32)> = Vec::new();
        for (region, plan) in self.regions.iter().enumerate() {
            let blocks = self.blocks(owner, region);
            let mut of_region: Vec<(u32, u32)> =
                blocks.iter().cycle().take(plan.requests as usize).map(|&block| (region as u32, block)).collect();
            shuffle(&mut of_region, region as u64);
            order.extend(of_region);
        }
        if self.order == RegionOrder::Mixed && self.regions.len() > 1 {
            // Regions are mixed whatever the pattern; inside each of them its order is kept.
            let mut turns: Vec<u32> = order.iter().map(|(region, _)| *region).collect();
            Random::new(&[self.seed, salt, u64::from(rank), u64::MAX]).shuffle(&mut turns);
            let mut queues: Vec<_> = (0..self.regions.len() as u32)
                .map(|wanted| order.iter().filter(move |(region, _)| *region == wanted).copied())
                .collect();
            order = turns.iter().filter_map(|&region| queues[region as usize].next()).collect();
        }
        let mut written: Vec<Vec<u32>> = match phase {
            Phase::Write => self.regions.iter().map(|plan| vec![0; plan.blocks as usize]).collect(),
            Phase::Read => (0..self.regions.len()).map(|region| self.generations(owner, region)).collect(),
        };
        order
            .into_iter()
            .map(|(region, block)| {
                let generation = &mut written[region as usize][block as usize];
                if phase == Phase::Write {
                    *generation += 1;
                }
                self.request(owner, region as usize, block, *generation)
            })
            .collect()
    }

    /// What process `rank` checks in the verification phase, by owner: the even blocks that it wrote itself and the odd
    /// ones of the next rank, so that all processes together check every block once.
    pub fn checks(&self, rank: u32) -> [(u32, Vec<Request>); 2] {
        let next = (rank + 1) % self.processes;
        [(rank, 0), (next, 1)].map(|(owner, parity)| {
            let mut requests = Vec::new();
            for region in 0..self.regions.len() {
                for (block, generation) in (0..).zip(self.generations(owner, region)) {
                    if generation > 0 && block % 2 == parity {
                        requests.push(self.request(owner, region, block, generation));
                    }
                }
            }
            (owner, requests)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use clap::Parser;

    use super::*;

    fn workload(arguments: &str) -> Workload {
        let options = Options::parse_from(["stripewise-bench", "f"].into_iter().chain(arguments.split_whitespace()));
        Workload::new(&options).unwrap()
    }

    fn everyone(workload: &Workload, phase: Phase) -> Vec<Request> {
        (0..workload.processes).flat_map(|rank| workload.requests(phase, rank)).collect()
    }

    #[test]
    fn every_pattern_covers_the_file_once() {
        for pattern in ["sequential", "strided", "random"] {
            let w = workload(&format!("-p 5 -r 3 -s 3000 --pattern {pattern}"));
            for phase in [Phase::Write, Phase::Read] {
                let offsets: HashSet<u64> = everyone(&w, phase).iter().map(|request| request.offset).collect();
                assert_eq!(offsets, (0..1000).map(|i| i * 3).collect(), "{pattern}");
            }
        }
    }

    #[test]
    fn owners_keep_to_their_parts() {
        let w = workload("-p 4 -r 4KiB -s 1MiB");
        for rank in 0..4_u64 {
            let part = rank * (256 << 10)..(rank + 1) * (256 << 10);
            assert!(w.requests(Phase::Write, rank as u32).iter().all(|r| part.contains(&r.offset)));
        }
        let strided = workload("-p 4 -r 4KiB -s 1MiB --pattern strided").requests(Phase::Write, 1);
        assert_eq!(strided[..2].iter().map(|r| r.offset).collect::<Vec<_>>(), [4096, 5 * 4096]);
    }

    #[test]
    fn heat_counts_requests_and_generations() {
        let w = workload("-p 2 --region 0:64KiB:1KiB:2.5 --region 1MiB:64KiB:4KiB:0.25 --region-order mixed");
        let writes = everyone(&w, Phase::Write);
        assert_eq!(writes.iter().filter(|r| r.region == 0).count(), 160);
        assert_eq!(writes.iter().filter(|r| r.region == 1).count(), 4);
        let mut last: HashMap<u64, u32> = HashMap::new();
        for write in &writes {
            let generation = last.entry(write.offset).or_default();
            assert_eq!(write.generation, *generation + 1);
            *generation = write.generation;
        }
        let reads = everyone(&w, Phase::Read);
        assert_eq!(reads.len(), writes.len());
        assert!(reads.iter().all(|read| last[&read.offset] == read.generation));
        assert_ne!(reads, writes);
    }

    #[test]
    fn checks_cover_what_was_written_once() {
        for arguments in
            ["-p 3 -r 1KiB -s 100KiB", "-p 3 -r 1KiB -s 100KiB --file-per-process --count 20", "-p 1 -s 4MiB"]
        {
            let w = workload(arguments);
            let key = |owner, request: &Request| (w.file_of(owner), request.offset, request.generation);
            let mut last = HashMap::new();
            for owner in 0..w.processes {
                w.requests(Phase::Write, owner).iter().for_each(|r| {
                    last.insert((w.file_of(owner), r.offset), r.generation);
                });
            }
            let checked: Vec<_> = (0..w.processes)
                .flat_map(|rank| w.checks(rank))
                .flat_map(|(owner, requests)| requests.iter().map(|r| key(owner, r)).collect::<Vec<_>>())
                .collect();
            assert_eq!(checked.len(), last.len());
            assert!(checked.iter().all(|(file, offset, generation)| last[&(*file, *offset)] == *generation));
        }
    }

    #[test]
    fn limits_keep_the_shares() {
        let all = "-p 2 --region 0:1MiB:1KiB:1 --region 1MiB:1MiB:1KiB:3";
        let by_count = workload(&format!("{all} --count 200"));
        assert_eq!(by_count.regions.iter().map(|r| r.requests).collect::<Vec<_>>(), [50, 150]);
        let by_bytes = workload(&format!("{all} --bytes 400KiB"));
        assert_eq!(by_bytes.regions.iter().map(|r| r.requests).collect::<Vec<_>>(), [50, 150]);
    }
}
