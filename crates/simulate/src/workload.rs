//! What the processes do.

use stripewise_model::{Op, Request};

/// One read or write of one file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedAccess {
    /// Index of the file: into the layouts given to [`simulate`](crate::simulate).
    pub file: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes; 0 takes no time.
    pub size: u64,
    /// Read or write.
    pub op: Op,
    /// Time in seconds that the process spends elsewhere before it issues the request.
    pub think_s: f64,
}

/// One step of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SimulatedStep {
    /// Issue a request and wait for it.
    Access(SimulatedAccess),
    /// Wait until every process that has not ended is at a barrier.
    Barrier,
    /// A collective call: wait until every member of the communicator that has not ended makes it, then for the
    /// exchange among them. Only [`run`](crate::run()) knows it.
    Collective {
        /// Which one: an index into [`StepProgram::communicators`](crate::StepProgram::communicators).
        communicator: u32,
        /// Seconds that the members exchange data once all are there. Members that name different times exchange for
        /// the longest.
        exchange_s: f64,
    },
    /// Ask the metadata server and wait for its answer. Only [`run`](crate::run()) knows it.
    Metadata(MetadataOp),
}

/// What a metadata server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetadataOp {
    /// To open a file that exists.
    Open,
    /// To make one.
    Create,
    /// For the attributes of one.
    Stat,
    /// To remove or rename one, or to give it other attributes. A metadata server takes as long as to make one.
    Change,
}

/// Closed-loop processes: each takes its steps one after the other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClosedLoop {
    /// The steps of each process.
    pub processes: Vec<Vec<SimulatedStep>>,
}

impl ClosedLoop {
    /// The requests of a trace, `files[i]` being those of file `i`, by process and in order of their start. All
    /// processes wait for each other at every time in `barriers_s` (ascending, seconds on the trace's clock). With
    /// `think` a process also spends the time that it spent between its requests in the trace, as far as the
    /// barriers do not explain it. O(n log n).
    pub fn replay(files: &[&[Request]], barriers_s: &[f64], think: bool) -> Self {
        let mut ids: Vec<u32> = files.iter().flat_map(|requests| requests.iter().map(|r| r.process)).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut by_process: Vec<Vec<(f64, f64, SimulatedAccess)>> = vec![Vec::new(); ids.len()];
        for (file, requests) in files.iter().enumerate() {
            for r in *requests {
                let access =
                    SimulatedAccess { file: file as u32, offset: r.offset, size: r.size, op: r.op, think_s: 0.0 };
                let process = ids.partition_point(|&id| id < r.process);
                by_process[process].push((r.start_s, r.end_s, access));
            }
        }
        let processes = by_process
            .into_iter()
            .map(|mut list| {
                // Stable: requests without times keep the order in which they were given.
                list.sort_by(|a, b| a.0.total_cmp(&b.0));
                let mut steps = Vec::with_capacity(list.len() + barriers_s.len());
                let mut passed = 0;
                let mut idle_since: Option<f64> = None;
                for (start, end, mut access) in list {
                    while passed < barriers_s.len() && barriers_s[passed] <= start {
                        steps.push(SimulatedStep::Barrier);
                        passed += 1;
                        idle_since = None;
                    }
                    if think && let Some(since) = idle_since {
                        access.think_s = (start - since).max(0.0);
                    }
                    idle_since = Some(idle_since.map_or(end, |since| since.max(end)));
                    steps.push(SimulatedStep::Access(access));
                }
                steps.extend(std::iter::repeat_n(SimulatedStep::Barrier, barriers_s.len() - passed));
                steps
            })
            .collect();
        Self { processes }
    }

    /// Number of requests.
    pub fn requests(&self) -> usize {
        self.processes.iter().flatten().filter(|step| matches!(step, SimulatedStep::Access(_))).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(process: u32, offset: u64, start_s: f64, end_s: f64) -> Request {
        Request { offset, size: 10, op: Op::Read, process, start_s, end_s }
    }

    #[test]
    fn replay_orders_by_start_and_keeps_think_times_and_barriers() {
        let a = [request(7, 2, 2.0, 3.0), request(7, 1, 0.0, 1.0), request(9, 5, 0.5, 6.0)];
        let b = [request(7, 3, 5.0, 7.0)];
        let workload = ClosedLoop::replay(&[&a, &b], &[4.0], true);
        let access = |file, offset, think_s| {
            SimulatedStep::Access(SimulatedAccess { file, offset, size: 10, op: Op::Read, think_s })
        };
        assert_eq!(
            workload.processes,
            vec![
                vec![access(0, 1, 0.0), access(0, 2, 1.0), SimulatedStep::Barrier, access(1, 3, 0.0)],
                vec![access(0, 5, 0.0), SimulatedStep::Barrier],
            ]
        );
        assert_eq!(workload.requests(), 4);
    }
}
