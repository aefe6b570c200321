//! Shapes: what a pattern does, without where it starts. Equal shapes are held once.

use crate::access::{Access, AccessOp};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// Most levels of one nest. A text that asks for more is refused.
pub(crate) const MAX_LEVELS: usize = 64;

/// One level of a nest: `count` steps, after step k the position moves by `deltas[k mod a]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Level {
    /// Bytes that the position moves after each step, taken in turn.
    pub deltas: Vec<i64>,
    /// Bytes of each access, taken in turn, of the innermost level; empty on the outer ones.
    pub sizes: Vec<u64>,
    /// Steps.
    pub count: u64,
}

/// Nested loops without their start: the trace signature of Chen et al. (slide "I/O Signature Notation").
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nest {
    /// Operations of the accesses of the innermost level, taken in turn.
    pub ops: Vec<AccessOp>,
    /// Outermost first; at least one.
    pub levels: Vec<Level>,
    /// How often the whole is run, each time from where the last ended.
    pub reps: u64,
}

impl Nest {
    /// Accesses of the whole. Saturates at `u64::MAX`.
    pub fn accesses(&self) -> u64 {
        self.levels.iter().fold(self.reps, |product, level| product.saturating_mul(level.count))
    }

    /// Bytes from the start of one repetition to the start of the next, modulo 2^64. O(length of the delta list).
    pub fn movement(&self) -> i64 {
        self.levels.first().map_or(0, |level| cycle_sum(&level.deltas, level.count))
    }
}

/// Sum of the first `count` numbers of an endless cycle, modulo 2^64.
pub(crate) fn cycle_sum(cycle: &[i64], count: u64) -> i64 {
    let length = cycle.len() as u64;
    if length == 0 {
        return 0;
    }
    let whole = cycle.iter().fold(0i64, |sum, &delta| sum.wrapping_add(delta));
    let part = cycle[..(count % length) as usize].iter().fold(0i64, |sum, &delta| sum.wrapping_add(delta));
    whole.wrapping_mul((count / length) as i64).wrapping_add(part)
}

/// A sequence of shapes run `count` times, each time `delta` further on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Repeat {
    /// Bytes from one run to the next.
    pub delta: i64,
    /// Runs.
    pub count: u64,
    /// Parts with their distance from the start; the first is at 0.
    pub(crate) body: Vec<(i64, Symbol)>,
}

/// A loop of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    Nest(Nest),
    Repeat(Repeat),
}

impl Shape {
    /// Memory that it takes, about: itself, its place in the table, and its lists. O(levels).
    pub fn bytes(&self) -> u64 {
        let lists = match self {
            Shape::Nest(nest) => {
                let level = |level: &Level| 128 + 8 * (level.deltas.len() + level.sizes.len());
                nest.ops.len() + nest.levels.iter().map(level).sum::<usize>()
            }
            Shape::Repeat(repeat) => size_of::<(i64, Symbol)>() * repeat.body.len(),
        };
        (144 + lists) as u64
    }
}

/// One step of a sequence: an access of some size, or a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Symbol {
    pub kind: SymbolKind,
    /// The size of an access, the number of a shape.
    pub value: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum SymbolKind {
    Read,
    Write,
    Shape,
}

impl Symbol {
    pub fn leaf(op: AccessOp, size_bytes: u64) -> Self {
        let kind = match op {
            AccessOp::Read => SymbolKind::Read,
            AccessOp::Write => SymbolKind::Write,
        };
        Self { kind, value: size_bytes }
    }

    pub fn shape(id: u32) -> Self {
        Self { kind: SymbolKind::Shape, value: u64::from(id) }
    }

    /// The access at `offset`, unless this is a shape.
    pub fn access(self, offset: u64) -> Option<Access> {
        let op = match self.kind {
            SymbolKind::Read => AccessOp::Read,
            SymbolKind::Write => AccessOp::Write,
            SymbolKind::Shape => return None,
        };
        Some(Access { op, offset, size_bytes: self.value })
    }
}

/// Bytes of shapes that are held whatever they are worth: a million simple loops.
const CROWD_BYTES: u64 = 300_000_000;
/// Bytes of a shape per access that are worth it even then: as much as an access of its own takes.
const WORTH_BYTES: u64 = 4;

/// Every shape of a signature, each once.
#[derive(Debug, Clone)]
pub(crate) struct Shapes {
    /// Bytes of shapes up to which every loop is held; beyond, loops that are short and new stay single accesses, so
    /// that millions of loops that all differ do not take more memory than the trace.
    pub crowd_bytes: u64,
    bytes: u64,
    /// Each with its number of accesses.
    list: Vec<(Shape, u64)>,
    /// Hash and number of each: a table that grows need not look at the shapes again.
    numbers: HashTable<(u64, u32)>,
    hasher: DefaultHashBuilder,
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            crowd_bytes: CROWD_BYTES,
            bytes: 0,
            list: Vec::new(),
            numbers: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl Shapes {
    pub fn get(&self, id: u64) -> &Shape {
        &self.list[id as usize].0
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The symbol of this shape. Amortised O(size of the shape).
    pub fn intern(&mut self, shape: Shape) -> Symbol {
        let accesses = self.accesses_of(&shape);
        let hash = self.hasher.hash_one(&shape);
        self.find(hash, &shape).unwrap_or_else(|| self.add(hash, shape, accesses))
    }

    /// As [`Self::intern`], unless the shape is not worth its memory.
    pub fn intern_if_worth(&mut self, shape: Shape) -> Option<Symbol> {
        let hash = self.hasher.hash_one(&shape);
        if let Some(symbol) = self.find(hash, &shape) {
            return Some(symbol);
        }
        let accesses = self.accesses_of(&shape);
        let worth = self.bytes < self.crowd_bytes || shape.bytes() <= accesses.saturating_mul(WORTH_BYTES);
        worth.then(|| self.add(hash, shape, accesses))
    }

    fn find(&self, hash: u64, shape: &Shape) -> Option<Symbol> {
        let equal = |&(other, id): &(u64, u32)| other == hash && self.list[id as usize].0 == *shape;
        self.numbers.find(hash, equal).map(|&(_, id)| Symbol::shape(id))
    }

    fn add(&mut self, hash: u64, shape: Shape, accesses: u64) -> Symbol {
        let id = u32::try_from(self.list.len()).expect("2^32 shapes do not fit in memory");
        self.bytes += shape.bytes();
        self.list.push((shape, accesses));
        self.numbers.insert_unique(hash, (hash, id), |entry| entry.0);
        Symbol::shape(id)
    }

    fn accesses_of(&self, shape: &Shape) -> u64 {
        match shape {
            Shape::Nest(nest) => nest.accesses(),
            Shape::Repeat(repeat) => repeat
                .body
                .iter()
                .fold(0u64, |sum, &(_, part)| sum.saturating_add(self.accesses(part)))
                .saturating_mul(repeat.count),
        }
    }

    /// Accesses that a symbol stands for. Saturates at `u64::MAX`. O(1).
    pub fn accesses(&self, symbol: Symbol) -> u64 {
        match symbol.kind {
            SymbolKind::Read | SymbolKind::Write => 1,
            SymbolKind::Shape => self.list[symbol.value as usize].1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_cycles_wrap_round() {
        assert_eq!(cycle_sum(&[1, 10, 100], 7), 223);
        assert_eq!(cycle_sum(&[i64::MAX], 2), -2);
    }
}
