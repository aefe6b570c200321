//! Loops of requests of several sizes: Song's (many small requests, then a large one) and Los Alamos' App 1.

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value, json};
use stripewise_layout::units::{format_bytes, parse_bytes};

use super::sizes::file_bytes;
use crate::error::BenchError;
use crate::options::{BenchApi, COMMON_HEADING, Common, LARGEST_REQUEST};
use crate::workload::{BenchRequest, Coverage, Group, PhaseKind, Workload};

/// Options of `song`.
#[derive(Debug, Args)]
pub struct SongOptions {
    /// Requests of a loop
    #[arg(long = "loop", default_value = "192x1KiB,64KiB", value_name = "[COUNTx]SIZE,...", value_parser = steps)]
    pub steps: LoopSteps,

    /// Loops of each process
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub loops: u64,

    /// Where the processes' loops are in the file
    #[arg(long, value_enum, default_value_t = Placing::Segmented)]
    pub placing: Placing,

    /// Process i begins i/p of a loop further on, and does what it left out at its end: else all processes ask for the
    /// same part of a round at the same time
    #[arg(long)]
    pub stagger: bool,

    #[command(flatten, next_help_heading = COMMON_HEADING)]
    pub common: Common,
}

/// Options of `lanl-app1`.
#[derive(Debug, Args)]
pub struct LanlOptions {
    /// Requests of a loop
    #[arg(long = "loop", default_value = "16,131056,128KiB", value_name = "[COUNTx]SIZE,...", value_parser = steps)]
    pub steps: LoopSteps,

    /// Loops of each process
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub loops: u64,

    /// Where the processes' loops are in the file
    #[arg(long, value_enum, default_value_t = Placing::Strided)]
    pub placing: Placing,

    /// Process i begins i/p of a loop further on, and does what it left out at its end: else all processes ask for the
    /// same part of a round at the same time
    #[arg(long)]
    pub stagger: bool,

    #[command(flatten, next_help_heading = COMMON_HEADING)]
    pub common: Common,
}

/// Where the loops of all processes are in the one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placing {
    /// Each process has its own part
    Segmented,
    /// Loop k of process i is loop k*p + i of the file
    Strided,
}

/// The requests of a loop: how many of which size.
#[derive(Debug, Clone)]
pub struct LoopSteps(Vec<(u64, u64)>);

fn steps(text: &str) -> Result<LoopSteps, String> {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    for step in text.split(',') {
        let (count, size) = step.split_once('x').unwrap_or(("1", step));
        let count: u32 = count.parse().map_err(|_| format!("'{count}' is no number of requests"))?;
        let size = parse_bytes(size).map_err(|error| error.to_string())?;
        if count == 0 || !(1..=LARGEST_REQUEST).contains(&size) {
            return Err(format!("'{step}': at least one request of 1 byte to 1GiB"));
        }
        match steps.last_mut() {
            Some((before, last)) if *last == size => *before += u64::from(count),
            _ => steps.push((u64::from(count), size)),
        }
    }
    Ok(LoopSteps(steps))
}

/// The workload.
#[derive(Debug)]
pub struct Loop {
    name: &'static str,
    processes: u32,
    steps: Vec<(u64, u64)>,
    loops: u64,
    placing: Placing,
    stagger: bool,
}

impl Loop {
    /// Song's loop.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for a file that would be too long.
    pub fn song(options: &SongOptions) -> Result<Self, BenchError> {
        let processes = options.common.processes.unwrap_or(16);
        Self::new("song", processes, &options.steps, options.loops, options.placing, options.stagger)
    }

    /// App 1 of the Los Alamos National Laboratory.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for a file that would be too long.
    pub fn lanl(options: &LanlOptions) -> Result<Self, BenchError> {
        let processes = options.common.processes.unwrap_or(64);
        Self::new("lanl-app1", processes, &options.steps, options.loops, options.placing, options.stagger)
    }

    fn new(
        name: &'static str,
        processes: u32,
        steps: &LoopSteps,
        loops: u64,
        placing: Placing,
        stagger: bool,
    ) -> Result<Self, BenchError> {
        let mut bytes = 0_u64;
        for (count, size) in &steps.0 {
            bytes = bytes.saturating_add(file_bytes(&[*count, *size])?);
        }
        file_bytes(&[bytes, loops, u64::from(processes)])?;
        Ok(Self { name, processes, steps: steps.0.clone(), loops, placing, stagger })
    }

    fn loop_bytes(&self) -> u64 {
        self.steps.iter().map(|(count, size)| count * size).sum()
    }

    /// The sizes that occur, as groups of the report, in the order in which they do first.
    fn sizes(&self) -> Vec<u64> {
        let mut sizes = Vec::new();
        for (_, size) in &self.steps {
            if !sizes.contains(size) {
                sizes.push(*size);
            }
        }
        sizes
    }
}

impl Workload for Loop {
    fn name(&self) -> &'static str {
        self.name
    }

    fn describe(&self) -> String {
        let step = |(count, size): &(u64, u64)| match count {
            1 => format_bytes(*size),
            _ => format!("{count} x {}", format_bytes(*size)),
        };
        let steps: Vec<String> = self.steps.iter().map(step).collect();
        let placing = if self.placing == Placing::Segmented { "segmented" } else { "strided" };
        format!("{} loops of {}, {placing}", self.loops, steps.join(" + "))
    }

    fn settings(&self) -> Map<String, Value> {
        Map::from_iter([
            ("loop".into(), json!(self.steps)),
            ("loops".into(), json!(self.loops)),
            ("placing".into(), json!(self.placing)),
            ("stagger".into(), json!(self.stagger)),
        ])
    }

    fn usual_calls(&self) -> (BenchApi, bool) {
        (BenchApi::Pread, false)
    }

    fn processes(&self) -> u32 {
        self.processes
    }

    fn requests_per_process(&self) -> u64 {
        self.loops.saturating_mul(self.steps.iter().map(|(count, _)| count).sum())
    }

    fn groups(&self) -> Vec<Group> {
        self.sizes().into_iter().map(|size| Group { region: None, request_size: Some(size) }).collect()
    }

    fn requests(&self, _phase: PhaseKind, _rank: u32, owner: u32) -> Vec<BenchRequest> {
        let (owner, processes, sizes) = (u64::from(owner), u64::from(self.processes), self.sizes());
        let mut requests = Vec::with_capacity(self.requests_per_process() as usize);
        for number in 0..self.loops {
            let place = match self.placing {
                Placing::Segmented => owner * self.loops + number,
                Placing::Strided => number * processes + owner,
            };
            let mut offset = place * self.loop_bytes();
            for (count, size) in &self.steps {
                let group = sizes.iter().position(|known| known == size).unwrap_or(0) as u32;
                for _ in 0..*count {
                    requests.push(BenchRequest { offset, bytes: *size, group, generation: 1 });
                    offset += size;
                }
            }
        }
        if self.stagger {
            let of_a_loop: u64 = self.steps.iter().map(|(count, _)| count).sum();
            requests.rotate_left((owner * of_a_loop / processes) as usize);
        }
        requests
    }

    fn coverage(&self) -> Coverage {
        Coverage::whole(self.loops * u64::from(self.processes) * self.loop_bytes())
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::PhaseKind;
    use crate::workload::tests::{assert_covered, touched};
    use crate::workloads::tests::workload;

    #[test]
    fn song_s_loop_is_192_small_requests_and_a_large_one() {
        let w = workload("song f -p 4 --loops 3");
        let requests = w.requests(PhaseKind::Write, 1, 1);
        assert_eq!(requests.len(), 3 * 193);
        assert_eq!(requests[0].offset, 3 * (256 << 10), "its own part");
        assert!(requests[..192].iter().all(|request| request.bytes == 1024 && request.group == 0));
        assert_eq!((requests[192].bytes, requests[192].group), (65536, 1));
        assert_covered(&*w);
        assert!(!touched(&*w, PhaseKind::Write).1, "each byte once");
    }

    #[test]
    fn lanl_s_loops_are_strided() {
        let w = workload("lanl-app1 f -p 8 --loops 5");
        let requests = w.requests(PhaseKind::Write, 2, 2);
        assert_eq!(requests[..3].iter().map(|request| request.bytes).collect::<Vec<_>>(), [16, 131_056, 131_072]);
        let begin = 2 * 262_144;
        assert_eq!(
            requests[..4].iter().map(|request| request.offset).collect::<Vec<_>>(),
            [begin, begin + 16, begin + 131_072, begin + 8 * 262_144]
        );
        assert_covered(&*w);
        assert!(!touched(&*w, PhaseKind::Write).1, "each byte once");
        assert_eq!(workload("lanl-app1 f").processes(), 64);
    }

    #[test]
    fn staggered_processes_begin_at_places_of_their_own() {
        let (plain, staggered) = (workload("song f -p 4 --loops 3"), workload("song f -p 4 --loops 3 --stagger"));
        for rank in 0..4 {
            let mut expected = plain.requests(PhaseKind::Write, rank, rank);
            expected.rotate_left(rank as usize * 193 / 4);
            assert_eq!(staggered.requests(PhaseKind::Write, rank, rank), expected);
        }
        assert_covered(&*staggered);
    }

    #[test]
    fn other_loops_can_be_had() {
        let w = workload("song f -p 3 --loop 10,2x10,7,2x10 --loops 4 --placing strided");
        assert_eq!(w.describe(), "4 loops of 3 x 10B + 7B + 2 x 10B, strided");
        assert_eq!(w.groups().len(), 2, "equal sizes are one group");
        assert_eq!(w.requests_per_process(), 24);
        assert_covered(&*w);
        for wrong in ["0x1KiB", "x", "3x", "1KiB,,2KiB", "2GiB"] {
            assert!(super::steps(wrong).is_err(), "{wrong}");
        }
    }
}
