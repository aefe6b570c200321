//! Programs that are described instead of recorded: steps of processes on files.

use crate::engine::{Network, SimulationOptions, simulate};
use crate::error::SimulateError;
use crate::outcome::SimulationOutcome;
use crate::run::run;
use crate::system::{Links, ServerLink, Startup, System, TierDevice};
use crate::workload::{ClosedLoop, SimulatedStep};
use stripewise_layout::Layout;
use stripewise_model::{Cluster, Queue, Request};

/// A process without steps costs nothing but its place, which a number made up at random must not fill memory by.
const MOST_PROCESSES: usize = 1 << 24;

/// Steps with the numbers of their processes; the steps of a process follow each other in its order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Described {
    /// Process and step.
    pub steps: Vec<(u32, SimulatedStep)>,
}

impl Described {
    fn processes(&self) -> Result<usize, SimulateError> {
        let processes = self.steps.iter().map(|step| step.0 as usize + 1).max().unwrap_or(0);
        if processes > MOST_PROCESSES {
            return Err(SimulateError::ManyProcesses { process: processes - 1, most: MOST_PROCESSES });
        }
        Ok(processes)
    }

    /// The steps by process. O(steps).
    ///
    /// # Errors
    /// [`SimulateError::ManyProcesses`].
    pub fn workload(&self) -> Result<ClosedLoop, SimulateError> {
        let mut processes: Vec<Vec<SimulatedStep>> = vec![Vec::new(); self.processes()?];
        self.steps.iter().for_each(|&(process, step)| processes[process as usize].push(step));
        Ok(ClosedLoop { processes })
    }

    /// The requests of each file, on a clock on which every request takes a second: planners then know which processes run
    /// side by side. O(steps).
    ///
    /// # Errors
    /// [`SimulateError::ManyProcesses`]; [`SimulateError::ManyFiles`] when there are more files than steps.
    pub fn requests(&self) -> Result<Vec<Vec<Request>>, SimulateError> {
        let accesses = || {
            self.steps.iter().filter_map(|&(process, step)| match step {
                SimulatedStep::Access(access) => Some((process, access)),
                _ => None,
            })
        };
        let files = accesses().map(|(_, access)| access.file as usize + 1).max().unwrap_or(0);
        if files > self.steps.len() {
            return Err(SimulateError::ManyFiles { file: files - 1, steps: self.steps.len() });
        }
        let mut requests = vec![Vec::new(); files];
        let mut turns_s = vec![0.0; self.processes()?];
        for (process, access) in accesses() {
            let start_s: f64 = turns_s[process as usize];
            let end_s = start_s + 1.0;
            turns_s[process as usize] = end_s;
            let (offset, size, op) = (access.offset, access.size, access.op);
            requests[access.file as usize].push(Request { offset, size, op, process, start_s, end_s });
        }
        Ok(requests)
    }

    /// Runs them. With `stroke_bytes` the servers are disks of that size: [`System::of_disks`].
    ///
    /// # Errors
    /// As [`Described::workload`], [`simulate`](crate::simulate()) and [`run`](crate::run()).
    pub fn simulate(
        &self,
        cluster: &Cluster,
        layouts: &[Layout],
        options: &SimulationOptions,
        stroke_bytes: Option<u64>,
    ) -> Result<SimulationOutcome, SimulateError> {
        let workload = self.workload()?;
        let Some(stroke_bytes) = stroke_bytes else { return simulate(cluster, layouts, &workload, options) };
        let system = System::of_disks(cluster, stroke_bytes, options.network);
        Ok(run(cluster, layouts, &workload, &system, options.seed)?.outcome)
    }
}

impl System {
    /// Servers that are disks of `stroke_bytes`: they serve in sweeps, and a startup depends on the distance from the request
    /// before it, within the range of the profile.
    pub fn of_disks(cluster: &Cluster, stroke_bytes: u64, network: Network) -> Self {
        let devices = cluster.tiers.iter().map(|tier| TierDevice {
            queue: Queue::Elevator,
            startup: Startup::seek_within(&tier.profile.read, &tier.profile.write, stroke_bytes),
        });
        let server = match network {
            Network::InBeta => ServerLink::InBeta,
            Network::Link => ServerLink::OfProfile,
        };
        Self { devices: devices.collect(), links: Links { server, ..Links::default() }, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::SimulatedAccess;
    use stripewise_layout::{ServerId, Stripe};
    use stripewise_model::{Op, presets};

    fn described() -> Described {
        let access = |process, file, offset| {
            (process, SimulatedStep::Access(SimulatedAccess { file, offset, size: 4096, op: Op::Read, think_s: 0.0 }))
        };
        let barriers = (0..2).map(|process| (process, SimulatedStep::Barrier));
        let mut steps = vec![access(1, 0, 0), access(0, 1, 0), access(1, 0, 4096)];
        steps.extend(barriers);
        steps.push(access(0, 0, 8192));
        Described { steps }
    }

    #[test]
    fn steps_are_told_apart_by_process_and_requests_by_file() {
        let workload = described().workload().unwrap();
        assert_eq!(workload.processes.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(workload.processes[1][2], SimulatedStep::Barrier);
        let requests = described().requests().unwrap();
        let told = |file: usize| requests[file].iter().map(|r| (r.process, r.offset, r.start_s)).collect::<Vec<_>>();
        assert_eq!(told(0), [(1, 0, 0.0), (1, 4096, 1.0), (0, 8192, 1.0)]);
        assert_eq!(told(1), [(0, 0, 0.0)]);
    }

    #[test]
    fn numbers_without_end_do_not_fill_memory() {
        let with = |process, file| {
            let mut of = described();
            let access = SimulatedAccess { file, offset: 0, size: 1, op: Op::Write, think_s: 0.0 };
            of.steps.push((process, SimulatedStep::Access(access)));
            of
        };
        assert!(matches!(with(u32::MAX, 0).workload(), Err(SimulateError::ManyProcesses { .. })));
        assert!(matches!(with(u32::MAX, 0).requests(), Err(SimulateError::ManyProcesses { .. })));
        assert!(matches!(with(0, u32::MAX).requests(), Err(SimulateError::ManyFiles { .. })));
    }

    #[test]
    fn disks_of_a_stroke_are_not_those_of_drawn_startups() {
        let cluster = presets::set_ab(1, 0);
        let layout = Layout::new([(0, vec![Stripe { server: ServerId(0), width_bytes: 4096 }])]).unwrap();
        let run = |stroke_bytes| {
            let layouts = [layout.clone(), layout.clone()];
            described().simulate(&cluster, &layouts, &SimulationOptions::default(), stroke_bytes).unwrap()
        };
        let (drawn, swept) = (run(None), run(Some(1 << 40)));
        assert_eq!((drawn.read_bytes, swept.read_bytes), (16_384, 16_384));
        assert!(swept.makespan_s > 0.0 && swept.makespan_s != drawn.makespan_s);
    }
}
