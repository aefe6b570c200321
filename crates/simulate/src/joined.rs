//! Several programs at once, each with its own barriers.

use crate::packed::{Packed, Reading};
use crate::program::StepProgram;
use crate::workload::{SimulatedAccess, SimulatedStep};
use stripewise_model::Op;

/// One of the programs.
#[derive(Debug, Clone, Copy)]
pub struct JoinedPart<'a> {
    /// What it does.
    pub steps: &'a Packed,
    /// By its own numbers of files: their numbers among the files of all programs.
    pub files: &'a [u32],
    /// Seconds after the beginning of the run at which it begins.
    pub begin_s: f64,
}

/// Programs that run together: their processes one after the other, a barrier of a program is one of its processes alone.
#[derive(Debug, Clone)]
pub struct Joined<'a> {
    parts: Vec<JoinedPart<'a>>,
    /// The first process and the first communicator of each part, and the ends.
    first: Vec<(u32, u32)>,
}

/// Where a process of [`Joined`] is.
#[derive(Debug, Clone)]
pub struct JoinedReading {
    part: usize,
    has_begun: bool,
    of: Reading,
}

impl<'a> Joined<'a> {
    /// O(programs).
    pub fn of(parts: Vec<JoinedPart<'a>>) -> Self {
        let mut first = vec![(0, 0)];
        for part in &parts {
            let (process, communicator) = first[first.len() - 1];
            // One more than its own: its barrier.
            let communicators = part.steps.communicators().len() as u32 + 1;
            first.push((process + part.steps.processes() as u32, communicator + communicators));
        }
        Self { parts, first }
    }

    /// By process: the number of its program. O(processes).
    pub fn program_of(&self) -> Vec<u32> {
        let of = |part: usize| std::iter::repeat_n(part as u32, self.parts[part].steps.processes());
        (0..self.parts.len()).flat_map(of).collect()
    }
}

impl StepProgram for Joined<'_> {
    type Cursor = JoinedReading;

    fn processes(&self) -> usize {
        self.first[self.parts.len()].0 as usize
    }

    fn start(&self, process: u32, seed: u64) -> JoinedReading {
        let part = self.first.partition_point(|first| first.0 <= process) - 1;
        let of = self.parts[part].steps.start(process - self.first[part].0, seed);
        JoinedReading { part, has_begun: false, of }
    }

    #[inline]
    fn next(&self, cursor: &mut JoinedReading) -> Option<SimulatedStep> {
        let part = &self.parts[cursor.part];
        if !std::mem::replace(&mut cursor.has_begun, true) && part.begin_s > 0.0 {
            // A request of no bytes takes no time of its own.
            let wait = SimulatedAccess { file: 0, offset: 0, size: 0, op: Op::Read, think_s: part.begin_s };
            return Some(SimulatedStep::Access(wait));
        }
        let first = self.first[cursor.part].1;
        Some(match part.steps.next(&mut cursor.of)? {
            SimulatedStep::Access(access) => {
                // A file of a number that is none is found when the step is taken.
                let file = part.files.get(access.file as usize).copied().unwrap_or(u32::MAX);
                SimulatedStep::Access(SimulatedAccess { file, ..access })
            }
            SimulatedStep::Barrier => {
                SimulatedStep::Collective { communicator: self.first[cursor.part + 1].1 - 1, exchange_s: 0.0 }
            }
            SimulatedStep::Collective { communicator, exchange_s } => {
                SimulatedStep::Collective { communicator: first + communicator, exchange_s }
            }
            SimulatedStep::Metadata(op) => SimulatedStep::Metadata(op),
        })
    }

    fn communicators(&self) -> Vec<Vec<u32>> {
        let mut all = Vec::new();
        for (part, first) in self.parts.iter().zip(&self.first) {
            let own = part.steps.communicators().into_iter();
            all.extend(own.map(|members| members.into_iter().map(|process| process + first.0).collect::<Vec<u32>>()));
            all.push((first.0..first.0 + part.steps.processes() as u32).collect());
        }
        all
    }

    fn extents(&self, files: usize) -> Vec<u64> {
        let mut extents = vec![0; files];
        for part in &self.parts {
            for (file, end) in part.files.iter().zip(part.steps.extents(part.files.len())) {
                if let Some(extent) = extents.get_mut(*file as usize) {
                    *extent = end.max(*extent);
                }
            }
        }
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(file: u32, offset: u64) -> SimulatedStep {
        SimulatedStep::Access(SimulatedAccess { file, offset, size: 10, op: Op::Write, think_s: 0.0 })
    }

    #[test]
    fn barriers_are_of_one_program_and_files_of_all() {
        let collective = SimulatedStep::Collective { communicator: 0, exchange_s: 1.0 };
        let mut one = Packed::new();
        one.push([access(0, 5), collective, SimulatedStep::Barrier]);
        one.push([collective, SimulatedStep::Barrier]);
        let mut two = Packed::new();
        two.push([SimulatedStep::Barrier, access(1, 90)]);
        let parts = [(&one, &[2][..], 0.0), (&two, &[2, 0][..], 1.5)];
        let joined = Joined::of(parts.map(|(steps, files, begin_s)| JoinedPart { steps, files, begin_s }).to_vec());
        assert_eq!(joined.program_of(), [0, 0, 1]);
        assert_eq!(joined.communicators(), [vec![0, 1], vec![0, 1], vec![2]]);
        assert_eq!(joined.extents(3), [100, 0, 15]);
        let steps = |process| {
            let mut cursor = joined.start(process, 0);
            std::iter::from_fn(|| joined.next(&mut cursor)).collect::<Vec<_>>()
        };
        let meets = |communicator, exchange_s| SimulatedStep::Collective { communicator, exchange_s };
        assert_eq!(steps(0), [access(2, 5), meets(0, 1.0), meets(1, 0.0)]);
        assert_eq!(steps(1), [meets(0, 1.0), meets(1, 0.0)]);
        let begins = SimulatedAccess { file: 0, offset: 0, size: 0, op: Op::Read, think_s: 1.5 };
        assert_eq!(steps(2), [SimulatedStep::Access(begins), meets(2, 0.0), access(0, 90)]);
    }
}
