//! [`StepProgram`]: what processes do, step by step, without holding the steps.

use crate::engine::check_access;
use crate::error::SimulateError;
use crate::workload::{ClosedLoop, SimulatedStep};

/// Processes whose steps are asked for one at a time, as a run gets to them.
///
/// A program does not change while it runs: what a process has done is in its cursor, so one program can be in several
/// runs at once.
pub trait StepProgram: Sync {
    /// Where a process is in its steps.
    type Cursor;

    /// Number of processes.
    fn processes(&self) -> usize;

    /// The beginning of `process`; programs that draw anything draw it by `seed`.
    fn start(&self, process: u32, seed: u64) -> Self::Cursor;

    /// The next step; `None` at the end, and for good. Called once a step: its cost is part of a run's inner loop.
    fn next(&self, cursor: &mut Self::Cursor) -> Option<SimulatedStep>;

    /// The members of each communicator that [`Step::Collective`] names, ascending, each once.
    fn communicators(&self) -> Vec<Vec<u32>> {
        Vec::new()
    }

    /// First byte beyond all requests of each of `files` files: the room that they need on disk.
    fn extents(&self, files: usize) -> Vec<u64>;
}

/// Steps that are held as they are. [`Packed`](crate::Packed) holds them in a tenth of the memory.
impl StepProgram for ClosedLoop {
    /// Process, and the number of steps that it has taken.
    type Cursor = (u32, usize);

    fn processes(&self) -> usize {
        self.processes.len()
    }

    fn start(&self, process: u32, _: u64) -> Self::Cursor {
        (process, 0)
    }

    #[inline]
    fn next(&self, cursor: &mut Self::Cursor) -> Option<SimulatedStep> {
        let step = *self.processes[cursor.0 as usize].get(cursor.1)?;
        cursor.1 += 1;
        Some(step)
    }

    /// The processes that name each. O(steps).
    fn communicators(&self) -> Vec<Vec<u32>> {
        let mut members: Vec<Vec<u32>> = Vec::new();
        for (process, steps) in self.processes.iter().enumerate() {
            for step in steps {
                if let SimulatedStep::Collective { communicator, .. } = step {
                    join(&mut members, *communicator, process as u32);
                }
            }
        }
        members
    }

    /// O(steps).
    fn extents(&self, files: usize) -> Vec<u64> {
        let mut extents = vec![0; files];
        for step in self.processes.iter().flatten() {
            if let SimulatedStep::Access(access) = step {
                reach(&mut extents, access.file, access.offset.saturating_add(access.size));
            }
        }
        extents
    }
}

/// Makes `process` a member of `communicator`; processes come in ascending order.
pub(crate) fn join(members: &mut Vec<Vec<u32>>, communicator: u32, process: u32) {
    let index = communicator as usize;
    if members.len() <= index {
        members.resize(index + 1, Vec::new());
    }
    if members[index].last() != Some(&process) {
        members[index].push(process);
    }
}

/// Notes that file `file` is used up to `end`. A file that does not exist is found when the step is taken.
#[inline]
pub(crate) fn reach(extents: &mut [u64], file: u32, end: u64) {
    if let Some(extent) = extents.get_mut(file as usize) {
        *extent = (*extent).max(end);
    }
}

/// # Errors
/// What is wrong with `step` of process `process`, where there are `layouts` files and `communicators` communicators.
#[inline]
pub(crate) fn check_step(
    process: usize,
    step: &SimulatedStep,
    layouts: usize,
    communicators: usize,
) -> Result<(), SimulateError> {
    match *step {
        SimulatedStep::Access(access) => check_access(process, &access, layouts),
        SimulatedStep::Barrier | SimulatedStep::Metadata(_) => Ok(()),
        SimulatedStep::Collective { communicator, .. } if communicator as usize >= communicators => {
            Err(SimulateError::NotMember { process, communicator })
        }
        SimulatedStep::Collective { exchange_s, .. } if !(exchange_s >= 0.0 && exchange_s.is_finite()) => {
            Err(SimulateError::Think { process, think_s: exchange_s })
        }
        SimulatedStep::Collective { .. } => Ok(()),
    }
}
