//! [`Signature`]: a trace as loops and what no loop explains.

use crate::access::Access;
use crate::expand::Expand;
use crate::shape::{Nest, Repeat, Shape, Shapes, Symbol};
use crate::tokens::{TokenIter, Tokens};

/// The trace signature of one process's accesses to one file: [`Signature::expand`] gives back exactly the accesses
/// that it was made from. Its text form ([`std::fmt::Display`], [`std::str::FromStr`]) is described at the top of
/// the crate.
#[derive(Debug, Clone, Default)]
pub struct Signature {
    pub(crate) shapes: Shapes,
    pub(crate) tokens: Tokens,
    pub(crate) accesses: u64,
}

/// A part of a signature, in order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// Nested loops from `init`.
    Nest {
        /// Offset of the first access.
        init: u64,
        /// The loops.
        nest: &'a Nest,
    },
    /// A sequence of parts, several times over.
    Repeat {
        /// Offset of the first part.
        init: u64,
        /// The loop; its parts are told by [`Signature::body`].
        repeat: &'a Repeat,
    },
    /// An access of the residual: no loop has it.
    Single(Access),
}

impl Signature {
    /// The accesses, in order. Amortised O(1) each; memory is that of the deepest nesting.
    pub fn expand(&self) -> impl Iterator<Item = Access> + '_ {
        let mut tokens = self.tokens.iter();
        let mut expand = Expand::empty(&self.shapes);
        std::iter::from_fn(move || {
            loop {
                if let Some(access) = expand.next() {
                    return Some(access);
                }
                let (symbol, position) = tokens.next()?;
                expand.push(symbol, position);
            }
        })
    }

    /// The parts, in order of time. O(1) each.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> + '_ {
        let tokens: TokenIter<'_> = self.tokens.iter();
        tokens.map(|(symbol, position)| self.item(symbol, position))
    }

    /// The parts of one turn of a repeat, as they are in the first turn.
    pub fn body<'a>(&'a self, init: u64, repeat: &'a Repeat) -> impl Iterator<Item = Item<'a>> + 'a {
        repeat.body.iter().map(move |&(at, symbol)| self.item(symbol, init.wrapping_add_signed(at)))
    }

    pub(crate) fn item(&self, symbol: Symbol, init: u64) -> Item<'_> {
        match symbol.access(init) {
            Some(access) => Item::Single(access),
            None => match self.shapes.get(symbol.value) {
                Shape::Nest(nest) => Item::Nest { init, nest },
                Shape::Repeat(repeat) => Item::Repeat { init, repeat },
            },
        }
    }

    /// Accesses that it expands to. Saturates at `u64::MAX`. O(1).
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Accesses of an item of this signature, turns and all. Saturates at `u64::MAX`. O(parts).
    pub fn accesses_of(&self, item: Item<'_>) -> u64 {
        match item {
            Item::Single(_) => 1,
            Item::Nest { nest, .. } => nest.accesses(),
            Item::Repeat { repeat, .. } => repeat
                .body
                .iter()
                .fold(0u64, |sum, &(_, part)| sum.saturating_add(self.shapes.accesses(part)))
                .saturating_mul(repeat.count),
        }
    }

    /// Parts at the top.
    pub fn len(&self) -> u64 {
        self.tokens.len()
    }

    /// Whether there is no access and no loop.
    pub fn is_empty(&self) -> bool {
        self.tokens.len() == 0
    }

    /// Bytes that the parts take in memory, without the shapes that they share.
    pub fn packed_bytes(&self) -> u64 {
        self.tokens.bytes()
    }

    /// Shapes that differ.
    pub fn distinct_shapes(&self) -> usize {
        self.shapes.len()
    }

    /// Numbers that the text form has. O(parts).
    pub fn numbers(&self) -> u64 {
        self.tokens.iter().map(|(symbol, _)| self.numbers_of(symbol)).sum()
    }

    fn numbers_of(&self, symbol: Symbol) -> u64 {
        if symbol.access(0).is_some() {
            return 2;
        }
        match self.shapes.get(symbol.value) {
            // Start, dimension and repetitions; an operation is counted where the text has more than one.
            Shape::Nest(nest) => {
                let levels = nest.levels.iter().map(|level| level.deltas.len() + level.sizes.len() + 1).sum::<usize>();
                (3 + levels + nest.ops.len() - 1) as u64
            }
            Shape::Repeat(repeat) => 2 + repeat.body.iter().map(|&(_, part)| self.numbers_of(part)).sum::<u64>(),
        }
    }

    /// Numbers of the trace (an offset and a size per access) per number of the signature; 1 when both are empty.
    pub fn compression_ratio(&self) -> f64 {
        let numbers = self.numbers();
        if numbers == 0 { 1.0 } else { 2.0 * self.accesses as f64 / numbers as f64 }
    }
}

impl Signature {
    /// Whether both do the same, each from its own first offset. O(parts of the shorter).
    pub fn same_elsewhere(&self, other: &Signature) -> bool {
        let (mut mine, mut theirs) = (self.tokens.iter().peekable(), other.tokens.iter().peekable());
        let origin = |token: Option<&(Symbol, u64)>| token.map_or(0, |token| token.1);
        let (my_origin, their_origin) = (origin(mine.peek()), origin(theirs.peek()));
        let same_part = |(x, y): ((Symbol, u64), (Symbol, u64))| {
            x.1.wrapping_sub(my_origin) == y.1.wrapping_sub(their_origin) && same(self, other, x.0, y.0)
        };
        self.tokens.len() == other.tokens.len() && mine.zip(theirs).all(same_part)
    }
}

/// Whether two symbols, each of its signature, are the same loops.
fn same(a: &Signature, b: &Signature, x: Symbol, y: Symbol) -> bool {
    if x.access(0).is_some() || y.access(0).is_some() {
        return x == y;
    }
    match (a.shapes.get(x.value), b.shapes.get(y.value)) {
        (Shape::Nest(x), Shape::Nest(y)) => x == y,
        (Shape::Repeat(x), Shape::Repeat(y)) => {
            x.delta == y.delta
                && x.count == y.count
                && x.body.len() == y.body.len()
                && x.body.iter().zip(&y.body).all(|(x, y)| x.0 == y.0 && same(a, b, x.1, y.1))
        }
        _ => false,
    }
}

/// Equal parts in equal order: stricter than equal expansions.
impl PartialEq for Signature {
    fn eq(&self, other: &Self) -> bool {
        let first = |signature: &Signature| signature.tokens.iter().next().map(|token| token.1);
        first(self) == first(other) && self.same_elsewhere(other)
    }
}

impl Eq for Signature {}
