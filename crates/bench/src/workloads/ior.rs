//! The IOR-like workload of HARL: requests of a fixed size, for each region of the file another, in order, strided or at
//! random.

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value, json};
use stripewise_layout::units::format_bytes;

use crate::error::BenchError;
use crate::options::{BenchApi, COMMON_HEADING, Common, LARGEST_REQUEST, RegionSpec, bytes, region};
use crate::random::Random;
use crate::workload::{BenchRequest, Check, Coverage, Group, PhaseKind, Workload};

/// Processes, when the command line does not say.
const PROCESSES: u32 = 16;

/// Options of `ior`.
#[derive(Debug, Args)]
pub struct IorOptions {
    /// Bytes per request
    #[arg(short, long, default_value = "512KiB", value_name = "SIZE", value_parser = bytes)]
    pub request_size: u64,

    /// Bytes of the file, or of each file with --file-per-process [default: 1GiB, or the end of the last region]
    #[arg(short = 's', long, value_name = "SIZE", value_parser = bytes)]
    pub file_size: Option<u64>,

    /// Order of a process's requests
    #[arg(long, value_enum, default_value_t = IorPattern::Random)]
    pub pattern: IorPattern,

    /// A part of the file with its own request size and heat (bytes requested over its length; 1 is once over); may be
    /// given several times, instead of --request-size
    #[arg(long = "region", value_name = "OFFSET:LENGTH:REQUEST_SIZE:HEAT", value_parser = region)]
    pub regions: Vec<RegionSpec>,

    /// With several regions: finish one before the next, or mix their requests
    #[arg(long, value_enum, default_value_t = RegionOrder::InTurn)]
    pub region_order: RegionOrder,

    /// All processes use one file (the default)
    #[arg(long, conflicts_with = "file_per_process")]
    pub shared: bool,

    /// Each process has a file of its own
    #[arg(long)]
    pub file_per_process: bool,

    /// Limit of requests per process and phase; regions keep their shares
    #[arg(long, value_name = "N", conflicts_with = "bytes", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Limit of bytes per phase over all processes of an instance; regions keep their shares
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub bytes: Option<u64>,

    #[command(flatten, next_help_heading = COMMON_HEADING)]
    pub common: Common,
}

/// Order of a process's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IorPattern {
    /// One after the other in the process's own part
    Sequential,
    /// Process i takes request k*p + i
    Strided,
    /// Random order in the process's own part, aligned to the request size
    Random,
}

/// How requests of several regions follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionOrder {
    /// Region after region
    InTurn,
    /// All regions at once
    Mixed,
}

impl IorOptions {
    fn processes(&self) -> u32 {
        self.common.processes.unwrap_or(PROCESSES)
    }

    /// The regions that are worked on: those given, in order of offset, or one over the whole file.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for regions that overlap, end after the file, or are too small for a request per process.
    fn regions(&self) -> Result<Vec<RegionSpec>, BenchError> {
        let usage = |message: String| Err(BenchError::Usage(message));
        let mut regions = self.regions.clone();
        if regions.is_empty() {
            let length = self.file_size.unwrap_or(1 << 30);
            regions.push(RegionSpec { offset: 0, length, request_size: self.request_size, heat: 1.0 });
        }
        regions.sort_by_key(|region| region.offset);
        let mut end = 0;
        for region in &regions {
            let (offset, length, request) = (region.offset, region.length, region.request_size);
            let named = format!("region at {} of {}", format_bytes(offset), format_bytes(length));
            if offset < end {
                return usage(format!("{named}: overlaps the one before it"));
            }
            end = match offset.checked_add(length) {
                Some(end) if end <= i64::MAX as u64 => end,
                _ => return usage(format!("{named}: ends above 2^63-1")),
            };
            if request == 0 || request > LARGEST_REQUEST {
                return usage(format!("{named}: a request is {}; it must be 1 byte to 1 GiB", format_bytes(request)));
            }
            let owners = if self.file_per_process { 1 } else { u64::from(self.processes()) };
            if length / request < owners {
                return usage(format!(
                    "{named}: too small for a request of {} from each of {} processes; make it at least {}",
                    format_bytes(request),
                    self.processes(),
                    format_bytes(request.saturating_mul(owners))
                ));
            }
            if self.common.direct && (!request.is_multiple_of(512) || !offset.is_multiple_of(512)) {
                return usage(format!("{named}: with --direct, offset and request size must be multiples of 512"));
            }
        }
        match self.file_size {
            Some(size) if size < end => usage(format!(
                "the last region ends at {}, after the file's {}; raise --file-size",
                format_bytes(end),
                format_bytes(size)
            )),
            _ => Ok(regions),
        }
    }
}
/// A region, as each process sees it.
#[derive(Debug, Clone, Copy)]
pub struct IorRegion {
    /// What was asked for.
    pub spec: RegionSpec,
    /// Blocks of the request size that each process owns.
    pub blocks: u32,
    /// Requests of each process per phase.
    pub requests: u64,
}

/// The workload.
#[derive(Debug)]
pub struct Ior {
    /// The regions in order of offset.
    pub regions: Vec<IorRegion>,
    /// Processes.
    pub processes: u32,
    /// Files: one, or one per process.
    pub files: u32,
    pattern: IorPattern,
    order: RegionOrder,
    seed: u64,
}

impl Ior {
    /// Works out what the options ask for.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for regions that do not fit.
    pub fn new(options: &IorOptions) -> Result<Self, BenchError> {
        let processes = options.processes();
        let owners = if options.file_per_process { 1 } else { u64::from(processes) };
        let mut regions = Vec::new();
        for spec in options.regions()? {
            let blocks = u32::try_from(spec.length / spec.request_size / owners)
                .map_err(|_| BenchError::Usage("more than 2^32 blocks per process: raise the request size".into()))?;
            let requests = (f64::from(blocks) * spec.heat).round().max(1.0) as u64;
            regions.push(IorRegion { spec, blocks, requests });
        }
        let per_process: u64 = regions.iter().map(|region| region.requests).sum();
        let bytes: u64 = regions.iter().map(|region| region.requests * region.spec.request_size).sum();
        let share = match (options.count, options.bytes) {
            (Some(count), _) => count as f64 / per_process as f64,
            (_, Some(limit)) => limit as f64 / (bytes as f64 * f64::from(processes)),
            _ => 1.0,
        };
        if share < 1.0 {
            for region in &mut regions {
                region.requests = ((region.requests as f64 * share).round() as u64).max(1);
            }
        }
        Ok(Self {
            regions,
            processes,
            files: if options.file_per_process { processes } else { 1 },
            pattern: options.pattern,
            order: options.region_order,
            seed: options.common.seed,
        })
    }

    /// The end of the last region.
    fn end(&self) -> u64 {
        self.regions.last().map_or(0, |region| region.spec.offset + region.spec.length)
    }

    fn request(&self, owner: u32, region: usize, block: u32, generation: u32) -> BenchRequest {
        let plan = &self.regions[region];
        let (owner, owners) = if self.files > 1 { (0, 1) } else { (u64::from(owner), u64::from(self.processes)) };
        let index = match self.pattern {
            IorPattern::Strided => u64::from(block) * owners + owner,
            IorPattern::Sequential | IorPattern::Random => owner * u64::from(plan.blocks) + u64::from(block),
        };
        BenchRequest {
            offset: plan.spec.offset + index * plan.spec.request_size,
            bytes: plan.spec.request_size,
            group: region as u32,
            generation,
        }
    }

    /// The blocks of a region in the order in which passes over it take them: a heat below 1 takes the first of them.
    fn blocks(&self, owner: u32, region: usize) -> Vec<u32> {
        let mut blocks: Vec<u32> = (0..self.regions[region].blocks).collect();
        if self.pattern == IorPattern::Random {
            Random::new(&[self.seed, 1, u64::from(owner), region as u64]).shuffle(&mut blocks);
        }
        blocks
    }

    /// How often a run writes each of the owner's blocks of a region.
    fn written(&self, owner: u32, region: usize) -> Vec<u32> {
        let plan = &self.regions[region];
        let passes = (plan.requests / u64::from(plan.blocks)) as u32;
        let partial = (plan.requests % u64::from(plan.blocks)) as usize;
        let mut generations = vec![passes; plan.blocks as usize];
        self.blocks(owner, region)[..partial].iter().for_each(|&block| generations[block as usize] += 1);
        generations
    }
}

impl Workload for Ior {
    fn name(&self) -> &'static str {
        "ior"
    }

    fn describe(&self) -> String {
        let files = if self.files > 1 { "a file each" } else { "one file" };
        format!("{files}, {}", format!("{:?}", self.pattern).to_lowercase())
    }

    fn settings(&self) -> Map<String, Value> {
        Map::from_iter([
            ("file_per_process".into(), json!(self.files > 1)),
            ("pattern".into(), json!(self.pattern)),
            ("region_order".into(), json!(self.order)),
        ])
    }

    fn usual_calls(&self) -> (BenchApi, bool) {
        (BenchApi::Pread, false)
    }

    fn processes(&self) -> u32 {
        self.processes
    }

    fn requests_per_process(&self) -> u64 {
        self.regions.iter().fold(0, |sum, region| sum.saturating_add(region.requests))
    }

    fn groups(&self) -> Vec<Group> {
        let group = |plan: &IorRegion| Group { region: Some(plan.spec), request_size: Some(plan.spec.request_size) };
        self.regions.iter().map(group).collect()
    }

    /// Reads touch the blocks that writes touch, as often, in another random order.
    fn requests(&self, phase: PhaseKind, rank: u32, owner: u32) -> Vec<BenchRequest> {
        let salt = if phase == PhaseKind::Write { 2 } else { 3 };
        let shuffle = |requests: &mut [(u32, u32)], region: u64| {
            if self.pattern == IorPattern::Random {
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
            PhaseKind::Write => self.regions.iter().map(|plan| vec![0; plan.blocks as usize]).collect(),
            PhaseKind::Read => (0..self.regions.len()).map(|region| self.written(owner, region)).collect(),
        };
        order
            .into_iter()
            .map(|(region, block)| {
                let generation = &mut written[region as usize][block as usize];
                if phase == PhaseKind::Write {
                    *generation += 1;
                }
                self.request(owner, region as usize, block, *generation)
            })
            .collect()
    }

    fn coverage(&self) -> Coverage {
        Coverage::whole(self.end())
    }

    fn files(&self) -> u32 {
        self.files
    }

    fn generations(&self) -> u32 {
        let passes = self.regions.iter().map(|region| region.requests.div_ceil(u64::from(region.blocks))).max();
        passes.unwrap_or(1).min(u64::from(u32::MAX)) as u32
    }

    /// The even blocks that it wrote itself and the odd ones of the next rank.
    fn checks(&self, rank: u32) -> Vec<Check> {
        let mut checks = Vec::new();
        for (owner, parity) in [(rank, 0), ((rank + 1) % self.processes, 1)] {
            for region in 0..self.regions.len() {
                for (block, generation) in (0..).zip(self.written(owner, region)) {
                    if generation > 0 && block % 2 == parity {
                        let BenchRequest { offset, bytes, .. } = self.request(owner, region, block, generation);
                        checks.push(Check { file: self.file_of(owner), offset, bytes, generation });
                    }
                }
            }
        }
        checks
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::cli::{Cli, Named};

    fn workload(arguments: &str) -> Ior {
        let words = ["stripewise-bench", "f"].into_iter().chain(arguments.split_whitespace());
        let Named::Ior(options) = Cli::read(words.map(Into::into)).workload else { panic!("ior is the default") };
        Ior::new(&options).unwrap()
    }

    fn everyone(workload: &Ior, phase: PhaseKind) -> Vec<BenchRequest> {
        (0..workload.processes).flat_map(|rank| workload.requests(phase, rank, rank)).collect()
    }

    #[test]
    fn every_pattern_covers_the_file_once() {
        for pattern in ["sequential", "strided", "random"] {
            let w = workload(&format!("-p 5 -r 3 -s 3000 --pattern {pattern}"));
            for phase in [PhaseKind::Write, PhaseKind::Read] {
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
            assert!(w.requests(PhaseKind::Write, rank as u32, rank as u32).iter().all(|r| part.contains(&r.offset)));
        }
        let strided = workload("-p 4 -r 4KiB -s 1MiB --pattern strided").requests(PhaseKind::Write, 1, 1);
        assert_eq!(strided[..2].iter().map(|r| r.offset).collect::<Vec<_>>(), [4096, 5 * 4096]);
    }

    #[test]
    fn heat_counts_requests_and_generations() {
        let w = workload("-p 2 --region 0:64KiB:1KiB:2.5 --region 1MiB:64KiB:4KiB:0.25 --region-order mixed");
        let writes = everyone(&w, PhaseKind::Write);
        assert_eq!(writes.iter().filter(|r| r.group == 0).count(), 160);
        assert_eq!(writes.iter().filter(|r| r.group == 1).count(), 4);
        let mut last: HashMap<u64, u32> = HashMap::new();
        for write in &writes {
            let generation = last.entry(write.offset).or_default();
            assert_eq!(write.generation, *generation + 1);
            *generation = write.generation;
        }
        let reads = everyone(&w, PhaseKind::Read);
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
            let mut last = HashMap::new();
            for owner in 0..w.processes {
                w.requests(PhaseKind::Write, owner, owner).iter().for_each(|r| {
                    last.insert((w.file_of(owner), r.offset), r.generation);
                });
            }
            let checked: Vec<_> = (0..w.processes).flat_map(|rank| w.checks(rank)).collect();
            assert_eq!(checked.len(), last.len());
            assert!(checked.iter().all(|check| last[&(check.file, check.offset)] == check.generation));
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
