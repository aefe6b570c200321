//! Finding loops in a stream of symbols, each at a position, in one pass and bounded memory.
//!
//! A step of the stream is its symbol and the distance from the step before it. A loop with a turn of p steps is a
//! stretch in which every step equals the one p before it. For each p up to [`WINDOW`] the detector counts how many
//! steps in a row have done so; the shortest p that has gone once more round (one turn, then the same again) wins, and
//! from then on the stretch grows for as long as the steps come as foretold. Loops of loops are found by a second
//! detector that reads what the first one writes, and so on.

use crate::access::difference;
use crate::shape::{Shapes, Symbol, SymbolKind};

/// Longest turn of a loop, in steps.
pub(crate) const WINDOW: usize = 64;
/// A loop that is found starts at most two turns and one step back.
const KEPT: usize = 2 * WINDOW + 2;

/// One step of the stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamStep {
    pub symbol: Symbol,
    pub position: u64,
    /// Made by the detector just before this one, not merely passed on.
    pub fresh: bool,
}

/// A loop that grows.
#[derive(Debug)]
struct Run {
    symbols: Vec<Symbol>,
    deltas: Vec<i64>,
    start: u64,
    /// Steps so far.
    count: u64,
    /// The step expected next, in the turn.
    next: usize,
    expected: u64,
    last: u64,
}

/// See the module's text.
pub(crate) struct Detector {
    /// The first one of a chain sees accesses only, and asks for more evidence.
    first: bool,
    run: Option<Run>,
    pending: Vec<StreamStep>,
    /// `WINDOW` zeros, then one hash (never 0) per pending step.
    hashes: Vec<u32>,
    /// Steps in a row that equalled the one `WINDOW - index` before them.
    matches: [i32; WINDOW],
    /// Position of the last step before the pending ones.
    before: u64,
    /// Steps since the last fresh one.
    stale: usize,
}

impl Detector {
    pub fn new(first: bool) -> Self {
        let hashes = vec![0; WINDOW];
        Self { first, run: None, pending: Vec::new(), hashes, matches: [0; WINDOW], before: 0, stale: 0 }
    }

    /// Takes a step; what is finished goes to `out` in order. O(1) inside a loop, O(`WINDOW`) outside, amortised.
    pub fn push(&mut self, step: StreamStep, shapes: &mut Shapes, out: &mut Vec<StreamStep>) {
        if self.continues(step) {
            return;
        }
        self.close(shapes, out);
        self.stale = if step.fresh || self.first { 0 } else { self.stale + 1 };
        if self.stale > KEPT {
            // See `passes`.
            self.pass(self.pending.len(), out);
            self.before = step.position;
            out.push(StreamStep { fresh: false, ..step });
            return;
        }
        if !self.wait(step, out) {
            self.close(shapes, out);
            self.wait(step, out);
        }
    }

    /// Whether this step is only to be passed on: the detector before this one has seen it and all that might be here
    /// with it, and found nothing. O(1).
    #[inline]
    pub fn passes(&mut self, step: StreamStep) -> bool {
        let idle = !self.first && !step.fresh && self.stale > KEPT && self.pending.is_empty() && self.run.is_none();
        if idle {
            self.before = step.position;
        }
        idle
    }

    /// The end of the stream.
    pub fn finish(&mut self, shapes: &mut Shapes, out: &mut Vec<StreamStep>) {
        if let Some((period, matched)) = self.pair(&self.matches, |_| true) {
            self.start(period, matched, out);
        }
        self.close(shapes, out);
        self.pass(self.pending.len(), out);
    }

    /// Whether a loop grows and this is its next step, which is then counted.
    #[inline]
    fn continues(&mut self, step: StreamStep) -> bool {
        let Some(run) = &mut self.run else { return false };
        if step.position != run.expected || step.symbol != run.symbols[run.next] {
            return false;
        }
        run.count += 1;
        run.last = step.position;
        run.expected = step.position.wrapping_add_signed(run.deltas[run.next]);
        run.next = if run.next + 1 == run.symbols.len() { 0 } else { run.next + 1 };
        true
    }

    /// Adds a step to those that wait; may start a loop. False: the step ended a loop of two turns, which has been
    /// started without it, and is to be added once that loop is closed.
    fn wait(&mut self, step: StreamStep, out: &mut Vec<StreamStep>) -> bool {
        let previous = self.pending.last().map_or(self.before, |last| last.position);
        let hash = hash(step.symbol, difference(previous, step.position));
        let tail: &[u32; WINDOW] = self.hashes.last_chunk().expect("WINDOW zeros stand at the front");
        let old = self.matches;
        let one = if self.first { 2 } else { 1 };
        let (mut found, mut paired) = (0, 0);
        // Without branches, so that it runs four or eight periods at a time.
        for index in 0..WINDOW {
            let period = (WINDOW - index) as i32;
            let equal = i32::from(tail[index] == hash);
            let new = (old[index] + 1) * equal;
            self.matches[index] = new;
            found |= i32::from(new >= period) & i32::from(new >= one);
            paired |= (1 - equal) & i32::from(old[index] == period - 1) & i32::from(old[index] > 0);
        }
        if paired != 0
            && let Some((period, matched)) = self.pair(&old, |index| self.matches[index] == 0)
        {
            self.start(period, matched, out);
            return false;
        }
        self.hashes.push(hash);
        self.pending.push(step);
        if found != 0 {
            let single = if self.first || step.symbol.kind != SymbolKind::Shape { 2 } else { 1 };
            for period in 1..=WINDOW {
                let matched = self.matches[WINDOW - period];
                if matched >= single.max(period as i32) && self.verified(period, matched as usize) {
                    self.start(period, matched as usize, out);
                    return true;
                }
            }
        }
        if self.pending.len() > 2 * KEPT {
            self.pass(self.pending.len() - KEPT, out);
        }
        true
    }

    /// A loop of exactly two turns, among the rows of equal steps (by index as in `matches`) that have ended.
    /// Two turns may be any distance apart, so the evidence asked for is a turn of several steps.
    fn pair(&self, rows: &[i32; WINDOW], has_ended: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
        if self.twice() && has_ended(WINDOW - 1) {
            return Some((1, 0));
        }
        let shortest = if self.first { 4 } else { 2 };
        (shortest..=WINDOW).find_map(|period| {
            let matched = rows[WINDOW - period] as usize;
            let second = self.pending.len().checked_sub(period)?;
            let whole = has_ended(WINDOW - period)
                && matched + 1 == period
                && second >= period
                && self.verified(period, matched)
                && self.pending[second].symbol == self.pending[second - period].symbol;
            whole.then_some((period, matched))
        })
    }

    /// Whether the last two steps are one loop at one place: the same again, as in a file that is read twice.
    fn twice(&self) -> bool {
        match self.pending[..] {
            [.., first, second] => {
                !self.first
                    && second.symbol.kind == SymbolKind::Shape
                    && first.symbol == second.symbol
                    && first.position == second.position
            }
            _ => false,
        }
    }

    fn delta(&self, index: usize) -> i64 {
        difference(
            if index == 0 { self.before } else { self.pending[index - 1].position },
            self.pending[index].position,
        )
    }

    /// Whether the last `matched` steps truly equal those `period` before: hashes may lie.
    fn verified(&self, period: usize, matched: usize) -> bool {
        let length = self.pending.len();
        matched + period <= length
            && (length - matched..length).all(|index| {
                self.pending[index].symbol == self.pending[index - period].symbol
                    && self.delta(index) == self.delta(index - period)
            })
    }

    /// Makes the end of what waits a loop; what stands before it is passed on.
    fn start(&mut self, period: usize, matched: usize, out: &mut Vec<StreamStep>) {
        let length = self.pending.len();
        let mut start = length - matched - period;
        // The first step of a loop may come from anywhere.
        if start > 0 && self.pending[start - 1].symbol == self.pending[start - 1 + period].symbol {
            start -= 1;
        }
        let count = length - start;
        let symbols = self.pending[start..start + period].iter().map(|step| step.symbol).collect();
        let deltas: Vec<i64> = (start + 1..=start + period).map(|index| self.delta(index)).collect();
        let last = self.pending[length - 1].position;
        self.run = Some(Run {
            start: self.pending[start].position,
            count: count as u64,
            next: count % period,
            expected: last.wrapping_add_signed(deltas[(count - 1) % period]),
            last,
            symbols,
            deltas,
        });
        self.pass(start, out);
        self.clear();
    }

    fn clear(&mut self) {
        self.pending.clear();
        self.hashes.truncate(WINDOW);
        self.hashes.fill(0);
        self.matches = [0; WINDOW];
    }

    /// Writes the loop that grew, if any, and what it leaves over of a turn.
    fn close(&mut self, shapes: &mut Shapes, out: &mut Vec<StreamStep>) {
        let Some(run) = self.run.take() else { return };
        let closed = shapes.close(&run.symbols, &run.deltas, run.count);
        let (mut position, mut covered) = (run.start, 0);
        if let Some((symbol, count)) = closed {
            out.push(StreamStep { symbol, position, fresh: true });
            let turn = run.deltas.iter().fold(0i64, |sum, &delta| sum.wrapping_add(delta));
            let turns = count / run.symbols.len() as u64;
            position = position.wrapping_add_signed(turn.wrapping_mul(turns as i64));
            covered = count;
        }
        for index in 0..(run.count - covered) as usize {
            let index = index % run.symbols.len();
            out.push(StreamStep { symbol: run.symbols[index], position, fresh: closed.is_some() });
            position = position.wrapping_add_signed(run.deltas[index]);
        }
        self.before = run.last;
    }

    /// Passes the oldest `count` pending steps on.
    fn pass(&mut self, count: usize, out: &mut Vec<StreamStep>) {
        if count == 0 {
            return;
        }
        self.before = self.pending[count - 1].position;
        out.extend(self.pending.drain(..count).map(|step| StreamStep { fresh: false, ..step }));
        if self.pending.is_empty() {
            self.clear();
        } else {
            self.hashes.drain(WINDOW..WINDOW + count);
        }
    }
}

/// Never 0. Mixes as in splitmix64: neighbouring numbers must not collide.
fn hash(symbol: Symbol, delta: i64) -> u32 {
    let mixed = (symbol.value ^ (symbol.kind as u64) << 61).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32) ^ delta as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed >> 32) as u32) | 1
}
