//! mpi-io-test (PVFS2's test, IOrchestrator): all processes go through one file together, a segment each in turn.

use clap::Args;
use serde_json::{Map, Value, json};
use stripewise_layout::units::format_bytes;

use super::sizes::requests_in;
use crate::error::BenchError;
use crate::options::{COMMON_HEADING, Common, bytes, request_bytes};
use crate::workload::{BenchRequest, Coverage, Group, PhaseKind, Workload};

/// Options of `mpi-io-test`.
#[derive(Debug, Args)]
pub struct MpiIoTestOptions {
    /// Bytes of a segment
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = request_bytes)]
    pub segment: u64,

    /// Bytes of the file; IOrchestrator's have 10GiB
    #[arg(short = 's', long, default_value = "1GiB", value_name = "SIZE", value_parser = bytes)]
    pub file_size: u64,

    #[command(flatten, next_help_heading = COMMON_HEADING)]
    pub common: Common,
}

/// The workload.
#[derive(Debug)]
pub struct MpiIoTest {
    processes: u32,
    segment: u64,
    rounds: u64,
}

impl MpiIoTest {
    /// Works out what the options ask for.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for a file without a segment for each process.
    pub fn new(options: &MpiIoTestOptions) -> Result<Self, BenchError> {
        let processes = options.common.processes.unwrap_or(5);
        let rounds = requests_in(options.file_size, options.segment, processes)?;
        Ok(Self { processes, segment: options.segment, rounds })
    }
}

impl Workload for MpiIoTest {
    fn name(&self) -> &'static str {
        "mpi-io-test"
    }

    fn describe(&self) -> String {
        format!("segments of {} in turn", format_bytes(self.segment))
    }

    fn settings(&self) -> Map<String, Value> {
        Map::from_iter([("segment".into(), json!(self.segment))])
    }

    fn processes(&self) -> u32 {
        self.processes
    }

    fn requests_per_process(&self) -> u64 {
        self.rounds
    }

    fn groups(&self) -> Vec<Group> {
        vec![Group { region: None, request_size: Some(self.segment) }]
    }

    fn requests(&self, _phase: PhaseKind, _rank: u32, owner: u32) -> Vec<BenchRequest> {
        let (owner, processes) = (u64::from(owner), u64::from(self.processes));
        (0..self.rounds)
            .map(|round| {
                let offset = (round * processes + owner) * self.segment;
                BenchRequest { offset, bytes: self.segment, group: 0, generation: 1 }
            })
            .collect()
    }

    fn coverage(&self) -> Coverage {
        Coverage::whole(self.rounds * u64::from(self.processes) * self.segment)
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::PhaseKind;
    use crate::workload::tests::{assert_covered, touched};
    use crate::workloads::tests::workload;

    #[test]
    fn process_i_takes_segment_5k_plus_i() {
        let w = workload("mpi-io-test f -s 10MiB");
        assert_eq!(w.processes(), 5);
        assert_eq!(w.requests_per_process(), 32);
        let third: Vec<u64> = w.requests(PhaseKind::Write, 3, 3).iter().map(|request| request.offset).collect();
        assert_eq!(third[..3], [3 << 16, 8 << 16, 13 << 16]);
        assert_covered(&*w);
        assert!(!touched(&*w, PhaseKind::Write).1, "each byte once");
    }
}
