//! From a signature back to its accesses, one at a time.

use crate::access::{Access, AccessOp};
use crate::shape::{Level, Nest, Repeat, Shape, Shapes, Symbol};

/// The accesses of a shape in order. Memory: one cell per level of nesting, whatever the counts are.
pub(crate) struct Expand<'a> {
    shapes: &'a Shapes,
    frames: Vec<Frame<'a>>,
}

enum Frame<'a> {
    Access(Access),
    Nest(NestCursor<'a>),
    Repeat { repeat: &'a Repeat, start: u64, turn: u64, part: usize },
}

struct NestCursor<'a> {
    ops: &'a [AccessOp],
    inner: &'a Level,
    /// The innermost level's next step and position.
    step: u64,
    position: u64,
    /// (level, step that runs, position of that step), outermost first, without the innermost level.
    outer: Vec<(&'a Level, u64, u64)>,
    start: u64,
    movement: i64,
    /// Repetitions still to run after this one.
    reps_left: u64,
}

impl<'a> NestCursor<'a> {
    /// `None` when it has no accesses.
    fn new(nest: &'a Nest, start: u64) -> Option<Self> {
        if nest.accesses() == 0 {
            return None;
        }
        let (inner, outer) = nest.levels.split_last()?;
        let outer = outer.iter().map(|level| (level, 0, start)).collect();
        let movement = nest.movement();
        Some(Self { ops: &nest.ops, inner, step: 0, position: start, outer, start, movement, reps_left: nest.reps - 1 })
    }

    fn next(&mut self) -> Option<Access> {
        if self.step == self.inner.count && !self.advance() {
            return None;
        }
        let size_bytes = pick(&self.inner.sizes, self.step);
        let access = Access { op: pick(self.ops, self.step), offset: self.position, size_bytes };
        self.position = self.position.wrapping_add_signed(pick(&self.inner.deltas, self.step));
        self.step += 1;
        Some(access)
    }

    /// On to the next run of the innermost level; false when there is none.
    fn advance(&mut self) -> bool {
        self.step = 0;
        for index in (0..self.outer.len()).rev() {
            let (level, step, position) = &mut self.outer[index];
            *position = position.wrapping_add_signed(pick(&level.deltas, *step));
            *step += 1;
            if *step < level.count {
                let position = *position;
                for below in &mut self.outer[index + 1..] {
                    (below.1, below.2) = (0, position);
                }
                self.position = position;
                return true;
            }
        }
        if self.reps_left == 0 {
            return false;
        }
        self.reps_left -= 1;
        self.start = self.start.wrapping_add_signed(self.movement);
        for level in &mut self.outer {
            (level.1, level.2) = (0, self.start);
        }
        self.position = self.start;
        true
    }
}

/// Element `index` of an endless cycle; division only where the cycle needs it.
fn pick<T: Copy>(cycle: &[T], index: u64) -> T {
    if let [only] = cycle { *only } else { cycle[(index % cycle.len() as u64) as usize] }
}

impl<'a> Expand<'a> {
    pub fn empty(shapes: &'a Shapes) -> Self {
        Self { shapes, frames: Vec::new() }
    }

    pub fn of_symbol(shapes: &'a Shapes, symbol: Symbol, start: u64) -> Self {
        let mut expand = Self::empty(shapes);
        expand.push(symbol, start);
        expand
    }

    /// Adds a symbol to be expanded before what is left.
    pub fn push(&mut self, symbol: Symbol, start: u64) {
        let frame = match symbol.access(start) {
            Some(access) => Some(Frame::Access(access)),
            None => match self.shapes.get(symbol.value) {
                Shape::Nest(nest) => NestCursor::new(nest, start).map(Frame::Nest),
                Shape::Repeat(repeat) => {
                    (self.shapes.accesses(symbol) > 0).then_some(Frame::Repeat { repeat, start, turn: 0, part: 0 })
                }
            },
        };
        self.frames.extend(frame);
    }
}

impl Iterator for Expand<'_> {
    type Item = Access;

    /// Amortised O(1), when the loops have accesses.
    fn next(&mut self) -> Option<Access> {
        loop {
            match self.frames.last_mut()? {
                Frame::Access(access) => {
                    let access = *access;
                    self.frames.pop();
                    return Some(access);
                }
                Frame::Nest(cursor) => match cursor.next() {
                    Some(access) => return Some(access),
                    None => _ = self.frames.pop(),
                },
                Frame::Repeat { repeat, start, turn, part } => {
                    if *part == repeat.body.len() {
                        (*part, *turn) = (0, *turn + 1);
                        *start = start.wrapping_add_signed(repeat.delta);
                    }
                    if *turn == repeat.count {
                        self.frames.pop();
                        continue;
                    }
                    let (at, symbol) = repeat.body[*part];
                    let position = start.wrapping_add_signed(at);
                    *part += 1;
                    self.push(symbol, position);
                }
            }
        }
    }
}
