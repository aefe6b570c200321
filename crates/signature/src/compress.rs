//! From accesses to a signature, in one pass.

use crate::access::Access;
use crate::detect::{Detector, StreamStep};
use crate::shape::{Shapes, Symbol};
use crate::signature::Signature;
use crate::tokens::Tokens;

/// Detectors in a row: how deep loops can nest beyond what one detector finds.
const DETECTORS: usize = 8;

/// Builds a [`Signature`] from accesses as they come.
///
/// Memory is that of the signature and some 100 KB: a few bytes per loop, and per access that no loop explains.
#[derive(Default)]
pub struct Compressor {
    /// Made as they are needed: most files are read by one loop.
    chain: Vec<Stage>,
    top: Top,
}

struct Stage {
    detector: Detector,
    out: Vec<StreamStep>,
}

#[derive(Default)]
struct Top {
    shapes: Shapes,
    tokens: Tokens,
    accesses: u64,
}

impl Compressor {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next access. Some nanoseconds inside a loop, O(longest cycle searched for) outside.
    #[inline]
    pub fn push(&mut self, access: Access) {
        self.top.accesses += 1;
        let symbol = Symbol::leaf(access.op, access.size_bytes);
        self.feed(0, StreamStep { symbol, position: access.offset, fresh: true });
    }

    /// Accesses taken so far.
    pub fn accesses(&self) -> u64 {
        self.top.accesses
    }

    fn feed(&mut self, mut index: usize, step: StreamStep) {
        while self.chain.get_mut(index).is_some_and(|stage| stage.detector.passes(step)) {
            index += 1;
        }
        if index == DETECTORS {
            self.top.tokens.push(step.symbol, step.position);
            return;
        }
        if index == self.chain.len() {
            self.chain.push(Stage { detector: Detector::new(index == 0), out: Vec::new() });
        }
        let stage = &mut self.chain[index];
        stage.detector.push(step, &mut self.top.shapes, &mut stage.out);
        if !stage.out.is_empty() {
            self.drain(index);
        }
    }

    /// Hands on what a detector has finished.
    fn drain(&mut self, index: usize) {
        let mut out = std::mem::take(&mut self.chain[index].out);
        for step in out.drain(..) {
            self.feed(index + 1, step);
        }
        self.chain[index].out = out;
    }

    /// The signature of all accesses taken.
    pub fn finish(mut self) -> Signature {
        let mut index = 0;
        while index < self.chain.len() {
            let stage = &mut self.chain[index];
            stage.detector.finish(&mut self.top.shapes, &mut stage.out);
            self.drain(index);
            index += 1;
        }
        Signature { shapes: self.top.shapes, tokens: self.top.tokens, accesses: self.top.accesses }
    }
}

impl Signature {
    /// The signature of these accesses. O(accesses).
    pub fn of(accesses: impl IntoIterator<Item = Access>) -> Self {
        let mut compressor = Compressor::new();
        compressor.extend(accesses);
        compressor.finish()
    }
}

impl Extend<Access> for Compressor {
    fn extend<I: IntoIterator<Item = Access>>(&mut self, accesses: I) {
        accesses.into_iter().for_each(|access| self.push(access));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::AccessOp;
    use crate::shape::{Level, Nest, Shape};

    /// Loops of 5 accesses that all differ, then one of 100: with room for 10 shapes, 10 of the short ones and the
    /// long one are loops, and the trace is whole all the same.
    #[test]
    fn short_loops_that_all_differ_do_not_fill_memory() {
        let short = (1..200u64).flat_map(|stride| (0..5).map(move |i| Access::read((stride << 32) + i * stride, 8)));
        let trace: Vec<Access> = short.chain((0..100).map(|i| Access::write(i * 9, 9))).collect();
        let mut compressor = Compressor::new();
        let level = Level { deltas: vec![1], sizes: vec![8], count: 5 };
        let simple = Shape::Nest(Nest { ops: vec![AccessOp::Read], levels: vec![level], reps: 1 });
        compressor.top.shapes.crowd_bytes = 10 * simple.bytes();
        compressor.extend(trace.iter().copied());
        let signature = compressor.finish();
        assert!(signature.expand().eq(trace));
        assert_eq!(signature.distinct_shapes(), 11);
    }
}
