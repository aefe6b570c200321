//! hpio (Northwestern University; IOrchestrator): regions with spaces between them, in the file, in memory, in both or in
//! neither. In a file with spaces the processes' regions follow each other in turn; without, each process has its own part.

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value, json};
use stripewise_layout::units::format_bytes;

use super::sizes::{file_bytes, in_a_row};
use crate::error::BenchError;
use crate::options::{COMMON_HEADING, Common, LARGEST_REQUEST, bytes, request_bytes};
use crate::view::{Type, View};
use crate::workload::{BenchRequest, Coverage, Group, PhaseKind, Spaced, Workload};

/// Options of `hpio`.
#[derive(Debug, Args)]
pub struct HpioOptions {
    /// Regions of each process
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub region_count: u64,

    /// Bytes between two regions
    #[arg(long, default_value = "10", value_name = "SIZE", value_parser = bytes)]
    pub region_spacing: u64,

    /// Bytes of a region
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = request_bytes)]
    pub region_size: u64,

    /// Regions of one request; the region count takes all of them at once
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub regions_per_request: u64,

    /// Whether there are spaces between the regions in the file
    #[arg(long, value_enum, default_value_t = Spacing::Noncontiguous)]
    pub file_regions: Spacing,

    /// Whether there are spaces between the regions in memory
    #[arg(long, value_enum, default_value_t = Spacing::Noncontiguous)]
    pub memory_regions: Spacing,

    #[command(flatten, next_help_heading = COMMON_HEADING)]
    pub common: Common,
}

/// Whether regions touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spacing {
    /// No spaces
    Contiguous,
    /// Spaces between them
    Noncontiguous,
}

/// The workload.
#[derive(Debug)]
pub struct Hpio {
    processes: u32,
    count: u64,
    spacing: u64,
    size: u64,
    regions_at_once: u64,
    file: Spacing,
    memory: Spacing,
}

impl Hpio {
    /// Works out what the options ask for.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for requests or a file that are too large, and for regions that fill no whole requests.
    pub fn new(options: &HpioOptions) -> Result<Self, BenchError> {
        let processes = options.common.processes.unwrap_or(5);
        let (count, size) = (options.region_count, options.region_size);
        let regions_at_once = options.regions_per_request.min(count);
        if !count.is_multiple_of(regions_at_once) {
            return Err(BenchError::Usage(format!(
                "--region-count {count} is not a multiple of --regions-per-request {regions_at_once}"
            )));
        }
        let space = options.region_spacing;
        if regions_at_once.saturating_mul(size.saturating_add(space)) > LARGEST_REQUEST {
            return Err(BenchError::Usage("a request would be more than 1GiB: lower --regions-per-request".into()));
        }
        file_bytes(&[size + space, count, u64::from(processes)])?;
        let (file, memory) = (options.file_regions, options.memory_regions);
        Ok(Self { processes, count, spacing: space, size, regions_at_once, file, memory })
    }

    fn requests_each(&self) -> u64 {
        self.count / self.regions_at_once
    }
}

impl Workload for Hpio {
    fn name(&self) -> &'static str {
        "hpio"
    }

    fn describe(&self) -> String {
        let spaced = |spacing| if spacing == Spacing::Contiguous { "" } else { "non-" };
        format!(
            "{} regions of {} each, {}contiguous in the file, {}contiguous in memory",
            self.count,
            format_bytes(self.size),
            spaced(self.file),
            spaced(self.memory)
        )
    }

    fn settings(&self) -> Map<String, Value> {
        Map::from_iter([
            ("region_count".into(), json!(self.count)),
            ("region_spacing".into(), json!(self.spacing)),
            ("region_size".into(), json!(self.size)),
            ("regions_per_request".into(), json!(self.regions_at_once)),
            ("file_regions".into(), json!(self.file)),
            ("memory_regions".into(), json!(self.memory)),
        ])
    }

    fn processes(&self) -> u32 {
        self.processes
    }

    fn requests_per_process(&self) -> u64 {
        self.requests_each()
    }

    fn groups(&self) -> Vec<Group> {
        vec![Group { region: None, request_size: Some(self.regions_at_once * self.size) }]
    }

    fn requests(&self, _phase: PhaseKind, _rank: u32, _owner: u32) -> Vec<BenchRequest> {
        in_a_row(0, self.regions_at_once * self.size, self.requests_each())
    }

    fn coverage(&self) -> Coverage {
        let regions = self.count * u64::from(self.processes);
        match self.file {
            Spacing::Contiguous => Coverage::whole(regions * self.size),
            Spacing::Noncontiguous => {
                let period = self.size + self.spacing;
                Coverage { run: self.size, period, end: regions * period - self.spacing }
            }
        }
    }

    fn view(&self, owner: u32) -> View {
        let owner = u64::from(owner);
        match self.file {
            Spacing::Contiguous => View::new(owner * self.count * self.size, Type::Bytes),
            Spacing::Noncontiguous => {
                let period = self.size + self.spacing;
                let stride = period * u64::from(self.processes);
                View::new(owner * period, Type::Vector { count: self.regions_at_once, block: self.size, stride })
            }
        }
    }

    fn memory(&self) -> Option<Spaced> {
        let gaps = self.memory == Spacing::Noncontiguous && self.spacing > 0;
        gaps.then_some(Spaced { run: self.size, gap: self.spacing })
    }
}

#[cfg(test)]
mod tests {
    use crate::view::Piece;
    use crate::workload::PhaseKind;
    use crate::workload::tests::{assert_covered, touched};
    use crate::workloads::tests::{refusal, workload};

    #[test]
    fn all_four_kinds_cover_their_regions() {
        for file in ["contiguous", "noncontiguous"] {
            for memory in ["contiguous", "noncontiguous"] {
                let w = workload(&format!(
                    "hpio f -p 3 --region-count 24 --region-size 1000 --regions-per-request 8 --file-regions {file} \
                     --memory-regions {memory}"
                ));
                assert_covered(&*w);
                let (union, twice) = touched(&*w, PhaseKind::Write);
                assert!(!twice);
                assert_eq!(union.len(), if file == "contiguous" { 1 } else { 72 });
                assert_eq!(w.memory().is_some(), memory == "noncontiguous");
            }
        }
    }

    #[test]
    fn regions_of_the_processes_take_turns() {
        let w = workload("hpio f -p 3 --region-count 4 --region-size 100 --regions-per-request 2");
        let mut pieces = Vec::new();
        let request = w.requests(PhaseKind::Write, 1, 1)[1];
        w.view(1).pieces(request.offset, request.bytes, &mut pieces);
        assert_eq!(pieces, [7, 10].map(|region| Piece { offset: region * 110, bytes: 100 }));
    }

    #[test]
    fn without_spacing_nothing_is_between() {
        let w = workload("hpio f -p 2 --region-count 4 --region-size 100 --region-spacing 0 --regions-per-request 4");
        assert_covered(&*w);
        assert_eq!(touched(&*w, PhaseKind::Read).0, [(0, 800)]);
        let message = refusal("hpio f --region-count 10 --regions-per-request 4").unwrap_err().to_string();
        assert!(message.contains("not a multiple"), "{message}");
    }
}
