//! [`Packed`]: the steps of a long trace in little memory.

use crate::program::{StepProgram, join, reach};
use crate::time::{ns, seconds};
use crate::workload::{ClosedLoop, MetadataOp, SimulatedAccess, SimulatedStep};
use stripewise_model::Op;

/// Steps as bytes, each told by its difference from the one before: 1 byte for the next request of a sequential
/// process, about 5 for a random one (a [`SimulatedStep`] has 40). Think times are kept to the nanosecond, as a run takes them.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    bytes: Vec<u8>,
    /// Where the steps of each process begin, and the end.
    starts: Vec<usize>,
    members: Vec<Vec<u32>>,
    extents: Vec<u64>,
    steps: usize,
}

/// Where a process of [`Packed`] is.
#[derive(Debug, Clone)]
pub struct Reading {
    at: usize,
    end: usize,
    file: u32,
    size: u64,
    /// First byte behind the last request.
    next: u64,
}

/// Kinds of step, in the lowest two bits of a step's first byte.
const ACCESS: u8 = 0;
const BARRIER: u8 = 1;
const COLLECTIVE: u8 = 2;
const METADATA: u8 = 3;

/// Of an access: what differs from the one before follows, in this order.
const WRITE: u8 = 1 << 2;
const OTHER_FILE: u8 = 1 << 3;
const OTHER_SIZE: u8 = 1 << 4;
const JUMPS: u8 = 1 << 5;
const THINKS: u8 = 1 << 6;

impl Packed {
    /// No process yet.
    pub fn new() -> Self {
        Self { bytes: Vec::new(), starts: vec![0], members: Vec::new(), extents: Vec::new(), steps: 0 }
    }

    /// All of `workload`. O(steps).
    pub fn of(workload: &ClosedLoop) -> Self {
        let mut packed = Self::new();
        for steps in &workload.processes {
            packed.push(steps.iter().copied());
        }
        packed
    }

    /// Adds a process with these steps. O(steps).
    pub fn push(&mut self, steps: impl IntoIterator<Item = SimulatedStep>) {
        let process = self.processes() as u32;
        let mut last = Reading { at: 0, end: 0, file: 0, size: 0, next: 0 };
        for step in steps {
            self.steps += 1;
            match step {
                SimulatedStep::Access(access) => self.access(&access, &mut last),
                SimulatedStep::Barrier => self.bytes.push(BARRIER),
                SimulatedStep::Collective { communicator, exchange_s } => {
                    join(&mut self.members, communicator, process);
                    self.bytes.push(COLLECTIVE);
                    self.number(u64::from(communicator));
                    self.bytes.extend(exchange_s.to_bits().to_le_bytes());
                }
                SimulatedStep::Metadata(op) => self.bytes.push(METADATA | (op as u8) << 2),
            }
        }
        self.starts.push(self.bytes.len());
    }

    fn access(&mut self, access: &SimulatedAccess, last: &mut Reading) {
        let think_ns = ns(access.think_s);
        let wrong = !(access.think_s >= 0.0 && access.think_s.is_finite());
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let jump = access.offset.wrapping_sub(last.next) as i64;
        self.bytes.push(
            ACCESS
                | flag(access.op == Op::Write, WRITE)
                | flag(access.file != last.file, OTHER_FILE)
                | flag(access.size != last.size, OTHER_SIZE)
                | flag(jump != 0, JUMPS)
                | flag(think_ns > 0 || wrong, THINKS),
        );
        if access.file != last.file {
            self.number(u64::from(access.file));
        }
        if access.size != last.size {
            self.number(access.size);
        }
        if jump != 0 {
            self.number((jump as u64) << 1 ^ (jump >> 63) as u64);
        }
        if wrong {
            // Said of the step when a run comes to it.
            self.number(u64::MAX);
        } else if think_ns > 0 {
            self.number(think_ns);
        }
        (last.file, last.size) = (access.file, access.size);
        last.next = access.offset.wrapping_add(access.size);
        let files = access.file as usize + 1;
        // A file number that is out of all reason is found by the run, not by running out of memory here.
        if files <= 1 << 24 {
            if self.extents.len() < files {
                self.extents.resize(files, 0);
            }
            reach(&mut self.extents, access.file, access.offset.saturating_add(access.size));
        }
    }

    /// Seven bits a byte, least first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    #[inline]
    fn read(&self, at: &mut usize) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.bytes[*at];
            *at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Bytes that the steps take.
    pub fn packed_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl Default for Packed {
    fn default() -> Self {
        Self::new()
    }
}

impl StepProgram for Packed {
    type Cursor = Reading;

    fn processes(&self) -> usize {
        self.starts.len() - 1
    }

    fn start(&self, process: u32, _: u64) -> Reading {
        let process = process as usize;
        Reading { at: self.starts[process], end: self.starts[process + 1], file: 0, size: 0, next: 0 }
    }

    #[inline]
    fn next(&self, cursor: &mut Reading) -> Option<SimulatedStep> {
        if cursor.at == cursor.end {
            return None;
        }
        let first = self.bytes[cursor.at];
        let mut at = cursor.at + 1;
        let step = match first & 3 {
            ACCESS => {
                if first & OTHER_FILE != 0 {
                    cursor.file = self.read(&mut at) as u32;
                }
                if first & OTHER_SIZE != 0 {
                    cursor.size = self.read(&mut at);
                }
                if first & JUMPS != 0 {
                    let jump = self.read(&mut at);
                    cursor.next = cursor.next.wrapping_add((jump >> 1) ^ (jump & 1).wrapping_neg());
                }
                let think_s = match first & THINKS {
                    0 => 0.0,
                    _ => match self.read(&mut at) {
                        u64::MAX => f64::NAN,
                        think_ns => seconds(think_ns),
                    },
                };
                let op = if first & WRITE == 0 { Op::Read } else { Op::Write };
                let access = SimulatedAccess { file: cursor.file, offset: cursor.next, size: cursor.size, op, think_s };
                cursor.next = cursor.next.wrapping_add(cursor.size);
                SimulatedStep::Access(access)
            }
            COLLECTIVE => {
                let communicator = self.read(&mut at) as u32;
                let bits = self.bytes[at..at + 8].try_into().expect("eight bytes");
                at += 8;
                SimulatedStep::Collective { communicator, exchange_s: f64::from_bits(u64::from_le_bytes(bits)) }
            }
            METADATA => SimulatedStep::Metadata(match first >> 2 {
                0 => MetadataOp::Open,
                1 => MetadataOp::Create,
                2 => MetadataOp::Stat,
                _ => MetadataOp::Change,
            }),
            _ => SimulatedStep::Barrier,
        };
        cursor.at = at;
        Some(step)
    }

    fn communicators(&self) -> Vec<Vec<u32>> {
        self.members.clone()
    }

    fn extents(&self, files: usize) -> Vec<u64> {
        let mut extents = self.extents.clone();
        extents.resize(files, 0);
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step() -> impl Strategy<Value = SimulatedStep> {
        let offset = prop_oneof![0..1000_u64, any::<u64>()];
        let size = prop_oneof![Just(64_u64), 0..300_u64, any::<u64>()];
        let access = (0..3_u32, offset, size, any::<bool>(), prop_oneof![Just(0), 0..1_000_000_000_u64]);
        let access = access.prop_map(|(file, offset, size, write, think_ns)| {
            let op = if write { Op::Write } else { Op::Read };
            SimulatedStep::Access(SimulatedAccess { file, offset, size, op, think_s: think_ns as f64 * 1e-9 })
        });
        prop_oneof![
            8 => access,
            1 => Just(SimulatedStep::Barrier),
            1 => (0..4_u32, 0.0..1.0).prop_map(|(communicator, exchange_s)| SimulatedStep::Collective { communicator, exchange_s }),
            1 => prop_oneof![
                    Just(MetadataOp::Open),
                    Just(MetadataOp::Create),
                    Just(MetadataOp::Stat),
                    Just(MetadataOp::Change)
                ]
                .prop_map(SimulatedStep::Metadata),
        ]
    }

    proptest! {
        #[test]
        fn gives_back_what_was_put_in(processes in prop::collection::vec(prop::collection::vec(step(), 0..20), 0..5)) {
            let workload = ClosedLoop { processes };
            let packed = Packed::of(&workload);
            prop_assert_eq!(packed.processes(), workload.processes.len());
            prop_assert_eq!(packed.communicators(), workload.communicators());
            prop_assert_eq!(packed.extents(3), workload.extents(3));
            for (process, steps) in workload.processes.iter().enumerate() {
                let mut cursor = packed.start(process as u32, 0);
                for step in steps {
                    prop_assert_eq!(packed.next(&mut cursor), Some(*step));
                }
                prop_assert_eq!(packed.next(&mut cursor), None);
                prop_assert_eq!(packed.next(&mut cursor), None);
            }
        }
    }

    #[test]
    fn a_sequential_request_is_a_byte() {
        let access = |n: u64| {
            SimulatedStep::Access(SimulatedAccess { file: 0, offset: n * 4096, size: 4096, op: Op::Read, think_s: 0.0 })
        };
        let mut packed = Packed::new();
        packed.push((0..1000).map(access));
        assert_eq!((packed.steps(), packed.packed_bytes()), (1000, 1002));
    }
}
