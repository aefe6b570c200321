//! The shape of a loop, once its end was seen.

use crate::access::{AccessOp, difference};
use crate::expand::Expand;
use crate::shape::{Level, MAX_LEVELS, Nest, Repeat, Shape, Shapes, Symbol, SymbolKind};

/// Accesses in one turn of a loop up to which it is written as one cycle of deltas and sizes, not as a sequence of
/// loops: short enough to be read at a glance.
const FLAT_ACCESSES: u64 = 8;

impl Shapes {
    /// The shape of a loop over `symbols` (one turn, with the movement after each), `count` symbols long in all.
    /// Returns it with the number of symbols that it covers: a turn that was left half-way is not part of a loop of
    /// different shapes. `None`: not worth a shape. O(turn).
    pub fn close(&mut self, symbols: &[Symbol], deltas: &[i64], count: u64) -> Option<(Symbol, u64)> {
        let period = symbols.len() as u64;
        if symbols.iter().all(|symbol| symbol.kind != SymbolKind::Shape) {
            let ops: Vec<AccessOp> = symbols
                .iter()
                .map(|s| if s.kind == SymbolKind::Read { AccessOp::Read } else { AccessOp::Write })
                .collect();
            let sizes: Vec<u64> = symbols.iter().map(|s| s.value).collect();
            let level = Level { deltas: shortest_cycle(deltas), sizes: shortest_cycle(&sizes), count };
            let nest = Nest { ops: shortest_cycle(&ops), levels: vec![level], reps: 1 };
            return Some((self.intern_if_worth(Shape::Nest(nest))?, count));
        }
        if symbols.iter().all(|symbol| *symbol == symbols[0])
            && let Shape::Nest(inner) = self.get(symbols[0].value)
            && inner.reps == 1
            && inner.levels.len() < MAX_LEVELS
        {
            let mut nest = inner.clone();
            nest.levels.insert(0, Level { deltas: shortest_cycle(deltas), sizes: Vec::new(), count });
            return Some((self.intern_if_worth(Shape::Nest(nest))?, count));
        }
        let turns = count / period;
        let per_turn = symbols.iter().fold(0u64, |sum, &symbol| sum.saturating_add(self.accesses(symbol)));
        let body: Vec<(i64, Symbol)> = symbols
            .iter()
            .zip(deltas)
            .scan(0i64, |at, (&symbol, &delta)| {
                let here = *at;
                *at = at.wrapping_add(delta);
                Some((here, symbol))
            })
            .collect();
        let delta = deltas.iter().fold(0i64, |sum, &delta| sum.wrapping_add(delta));
        let shape = if per_turn <= FLAT_ACCESSES {
            Shape::Nest(self.flat(&body, delta, turns))
        } else {
            Shape::Repeat(Repeat { delta, count: turns, body })
        };
        Some((self.intern_if_worth(shape)?, turns * period))
    }

    /// One level whose cycles are the accesses of the body in turn. O(accesses of the body).
    fn flat(&self, body: &[(i64, Symbol)], delta: i64, turns: u64) -> Nest {
        let mut accesses = Vec::new();
        for &(at, symbol) in body {
            accesses.extend(Expand::of_symbol(self, symbol, at as u64));
        }
        let next = accesses.iter().skip(1).map(|access| access.offset).chain([delta as u64]);
        let deltas: Vec<i64> =
            accesses.iter().zip(next).map(|(access, next)| difference(access.offset, next)).collect();
        let sizes: Vec<u64> = accesses.iter().map(|access| access.size_bytes).collect();
        let ops: Vec<AccessOp> = accesses.iter().map(|access| access.op).collect();
        let level = Level {
            deltas: shortest_cycle(&deltas),
            sizes: shortest_cycle(&sizes),
            count: turns.saturating_mul(accesses.len() as u64),
        };
        Nest { ops: shortest_cycle(&ops), levels: vec![level], reps: 1 }
    }
}

/// The shortest list that, repeated a whole number of times, is `list`.
fn shortest_cycle<T: PartialEq + Copy>(list: &[T]) -> Vec<T> {
    let length = list.len();
    let shortest = (1..=length)
        .find(|&candidate| {
            length.is_multiple_of(candidate) && (candidate..length).all(|i| list[i] == list[i - candidate])
        })
        .unwrap_or(length);
    list[..shortest].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_as_short_as_they_can_be() {
        assert_eq!(shortest_cycle(&[1, 1, 1]), [1]);
        assert_eq!(shortest_cycle(&[1, 2, 1, 2]), [1, 2]);
        assert_eq!(shortest_cycle(&[1, 2, 1]), [1, 2, 1]);
    }
}
