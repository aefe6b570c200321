//! [`Generated`]: programs that are a rule and not a list.

use crate::draw::Draws;
use crate::program::{StepProgram, reach};
use crate::workload::{MetadataOp, SimulatedAccess, SimulatedStep};
use stripewise_model::Op;

/// Equal processes that go through the parts of a file, one after the other. Nothing is held but the rule: a process is
/// 40 bytes, whatever it does.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// How many processes; at most 2^32 - 2.
    pub processes: u32,
    /// The parts that each process goes through, in this order.
    pub parts: Vec<FilePart>,
    /// In which order a process visits a part.
    pub order: SlotOrder,
    /// One file for all, or one each.
    pub files: FileChoice,
    /// Share of requests that are reads: 1.0 is reads only, 0.0 writes only.
    pub read_share: f64,
    /// Seconds between the end of a request and the next.
    pub think_s: f64,
    /// What the processes do together.
    pub together: Together,
    /// Whether each process opens (or, when it writes only, makes) its file first.
    pub opens: bool,
}

/// A part of a file, and how it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePart {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of a request; at least 1.
    pub request_bytes: u64,
    /// Requests that each process makes in it.
    pub requests: u64,
}

/// In which order a process visits its slots of a part: the whole requests that fit in it, aligned to their size from
/// the part's first byte. At the end of its slots it begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlotOrder {
    /// Its own share of the part, from front to back (IOR's segments): `1 / processes` of the slots each.
    #[default]
    Sequential,
    /// Slot `k processes + i` is the `k`-th of process `i` (IOR's strided mode, mpi-io-test).
    Strided,
    /// Random slots of its own share, as HARL's IOR.
    RandomInShare,
    /// Random slots of the whole part.
    Random,
}

/// Which file a process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileChoice {
    /// File 0, together with all others.
    #[default]
    Shared,
    /// File `i` of process `i`; no part is shared, so every order has the whole part.
    PerProcess,
}

/// What keeps the processes together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Together {
    /// Nothing.
    #[default]
    Free,
    /// A barrier of all processes after this many requests of each; at least 1.
    BarrierEvery(u64),
    /// Every request is a collective call of this many consecutive ranks: they meet, exchange, and each goes on with
    /// its own request.
    Collective {
        /// Ranks of a communicator; at least 1. The last one has what is left.
        ranks: u32,
        /// Seconds of the exchange.
        exchange_s: f64,
    },
}

/// Where a process of [`Generated`] is.
#[derive(Debug, Clone)]
pub struct GeneratorCursor {
    process: u32,
    part: u32,
    /// Requests of the part that were made.
    made: u64,
    /// Requests made in all.
    total: u64,
    /// Whether the meeting before the next request is over.
    met: bool,
    opened: bool,
    draws: Draws,
}

impl StepProgram for Generated {
    type Cursor = GeneratorCursor;

    fn processes(&self) -> usize {
        self.processes as usize
    }

    fn start(&self, process: u32, seed: u64) -> GeneratorCursor {
        // The servers' draws have the seed itself.
        let draws = Draws::new(seed ^ 0x5851_f42d_4c95_7f2d, process as usize);
        GeneratorCursor { process, part: 0, made: 0, total: 0, met: false, opened: !self.opens, draws }
    }

    #[inline]
    fn next(&self, at: &mut GeneratorCursor) -> Option<SimulatedStep> {
        if !at.opened {
            at.opened = true;
            let op = if self.read_share <= 0.0 { MetadataOp::Create } else { MetadataOp::Open };
            return Some(SimulatedStep::Metadata(op));
        }
        let part = loop {
            let part = self.parts.get(at.part as usize)?;
            if at.made < part.requests && self.slots(part) > 0 {
                break part;
            }
            (at.part, at.made) = (at.part + 1, 0);
        };
        if !at.met {
            at.met = true;
            match self.together {
                Together::BarrierEvery(every) if at.total > 0 && at.total.is_multiple_of(every.max(1)) => {
                    return Some(SimulatedStep::Barrier);
                }
                Together::Collective { ranks, exchange_s } => {
                    return Some(SimulatedStep::Collective { communicator: at.process / ranks.max(1), exchange_s });
                }
                Together::Free | Together::BarrierEvery(_) => {}
            }
        }
        let slot = self.slot(part, at);
        let op = if self.read_share >= 1.0 {
            Op::Read
        } else if self.read_share <= 0.0 {
            Op::Write
        } else if at.draws.unit() < self.read_share {
            Op::Read
        } else {
            Op::Write
        };
        at.made += 1;
        at.total += 1;
        at.met = false;
        let file = if self.files == FileChoice::Shared { 0 } else { at.process };
        let offset = part.offset.saturating_add(slot.saturating_mul(part.request_bytes));
        Some(SimulatedStep::Access(SimulatedAccess {
            file,
            offset,
            size: part.request_bytes,
            op,
            think_s: self.think_s,
        }))
    }

    fn communicators(&self) -> Vec<Vec<u32>> {
        let Together::Collective { ranks, .. } = self.together else { return Vec::new() };
        let ranks = ranks.max(1);
        (0..self.processes.div_ceil(ranks))
            .map(|first| {
                let first = first * ranks;
                (first..self.processes.min(first.saturating_add(ranks))).collect()
            })
            .collect()
    }

    fn extents(&self, files: usize) -> Vec<u64> {
        let end = self.parts.iter().map(|part| part.offset.saturating_add(part.bytes)).max().unwrap_or(0);
        let mut extents = vec![0; files];
        let used = if self.files == FileChoice::Shared { 1 } else { self.processes };
        (0..used).for_each(|file| reach(&mut extents, file, end));
        extents
    }
}

impl Generated {
    /// Slots of a part.
    #[inline]
    fn slots(&self, part: &FilePart) -> u64 {
        part.bytes.checked_div(part.request_bytes).unwrap_or(0)
    }

    #[inline]
    fn slot(&self, part: &FilePart, at: &mut GeneratorCursor) -> u64 {
        let slots = self.slots(part);
        let (processes, process) = match self.files {
            FileChoice::Shared => (u64::from(self.processes), u64::from(at.process)),
            FileChoice::PerProcess => (1, 0),
        };
        // With fewer slots than processes some share one.
        let first = (u128::from(process) * u128::from(slots) / u128::from(processes)) as u64;
        let own = ((u128::from(process + 1) * u128::from(slots) / u128::from(processes)) as u64 - first).max(1);
        match self.order {
            SlotOrder::Sequential => first + at.made % own,
            SlotOrder::Strided => {
                let slot = u128::from(at.made) * u128::from(processes) + u128::from(process);
                (slot % u128::from(slots)) as u64
            }
            SlotOrder::RandomInShare => first + at.draws.below(own),
            SlotOrder::Random => at.draws.below(slots),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(order: SlotOrder) -> Generated {
        Generated {
            processes: 2,
            parts: vec![
                FilePart { offset: 0, bytes: 400, request_bytes: 100, requests: 3 },
                FilePart { offset: 400, bytes: 50, request_bytes: 10, requests: 1 },
            ],
            order,
            files: FileChoice::Shared,
            read_share: 1.0,
            think_s: 0.0,
            together: Together::Free,
            opens: false,
        }
    }

    fn offsets(program: &Generated, process: u32) -> Vec<u64> {
        let mut at = program.start(process, 1);
        let steps = std::iter::from_fn(|| program.next(&mut at));
        let offset = |step| if let SimulatedStep::Access(access) = step { Some(access.offset) } else { None };
        steps.filter_map(offset).collect()
    }

    #[test]
    fn orders_are_what_they_are_called() {
        assert_eq!(offsets(&program(SlotOrder::Sequential), 0), [0, 100, 0, 400]);
        assert_eq!(offsets(&program(SlotOrder::Sequential), 1), [200, 300, 200, 420]);
        assert_eq!(offsets(&program(SlotOrder::Strided), 0), [0, 200, 0, 400]);
        assert_eq!(offsets(&program(SlotOrder::Strided), 1), [100, 300, 100, 410]);
        let mut many = program(SlotOrder::RandomInShare);
        many.parts[0].requests = 1000;
        let random = offsets(&many, 1);
        assert!(random[..1000].iter().all(|offset| [200, 300].contains(offset)));
        assert!((400..600).contains(&random[..1000].iter().filter(|&&offset| offset == 200).count()));
        many.order = SlotOrder::Random;
        assert!(offsets(&many, 1).iter().any(|&offset| offset < 200));
        many.files = FileChoice::PerProcess;
        many.order = SlotOrder::Sequential;
        assert_eq!(offsets(&many, 1)[..5], [0, 100, 200, 300, 0]);
    }

    #[test]
    fn meetings_are_between_requests() {
        let kinds = |program: &Generated, process| -> String {
            let mut at = program.start(process, 1);
            let kind = |step| match step {
                SimulatedStep::Access(_) => 'a',
                SimulatedStep::Barrier => 'b',
                SimulatedStep::Collective { .. } => 'c',
                SimulatedStep::Metadata(_) => 'm',
            };
            std::iter::from_fn(|| program.next(&mut at)).map(kind).collect()
        };
        let mut with = program(SlotOrder::Sequential);
        with.together = Together::BarrierEvery(2);
        with.opens = true;
        assert_eq!(kinds(&with, 0), "maabaa");
        with.together = Together::Collective { ranks: 1, exchange_s: 0.0 };
        assert_eq!(kinds(&with, 0), "mcacacaca");
        assert_eq!(with.communicators(), [[0], [1]]);
    }

    #[test]
    fn parts_without_room_or_requests_are_passed_over() {
        let mut odd = program(SlotOrder::Random);
        odd.parts[0].request_bytes = 0;
        assert_eq!(offsets(&odd, 0).len(), 1);
        odd.parts[0] = FilePart { offset: 0, bytes: 99, request_bytes: 100, requests: 7 };
        assert_eq!(offsets(&odd, 0).len(), 1);
        odd.parts.clear();
        assert_eq!(offsets(&odd, 0).len(), 0);
    }
}
