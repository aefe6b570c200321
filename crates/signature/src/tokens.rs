//! The top of a signature, packed: some 3 to 8 bytes per access that no loop explains, some 6 per loop.
//!
//! Traces without any pattern are kept whole, so their size is the memory that a signature needs.

use crate::shape::{Symbol, SymbolKind};

/// Bytes after which a new chunk begins: growing never copies more than this.
const CHUNK_BYTES: usize = 1 << 20;
/// A byte of flags and two numbers of at most 10 bytes.
const MAX_TOKEN_BYTES: usize = 21;

const SHAPE: u8 = 1;
const WRITE: u8 = 2;
/// It starts where the access before it ended.
const CONTIGUOUS: u8 = 4;
const SAME_VALUE: u8 = 8;

/// What the next token is told relative to.
#[derive(Debug, Clone, Copy, Default)]
struct Context {
    position: u64,
    end: u64,
    leaf_value: u64,
    shape_value: u64,
}

impl Context {
    fn step(&mut self, symbol: Symbol, position: u64) {
        self.position = position;
        if symbol.kind == SymbolKind::Shape {
            self.end = position;
            self.shape_value = symbol.value;
        } else {
            self.end = position.wrapping_add(symbol.value);
            self.leaf_value = symbol.value;
        }
    }

    fn value(&self, shape: bool) -> u64 {
        if shape { self.shape_value } else { self.leaf_value }
    }
}

/// (symbol, position) in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens {
    chunks: Vec<Vec<u8>>,
    context: Context,
    count: u64,
}

impl Tokens {
    /// Amortised O(1).
    pub fn push(&mut self, symbol: Symbol, position: u64) {
        if self.chunks.last().is_none_or(|chunk| chunk.len() + MAX_TOKEN_BYTES > CHUNK_BYTES) {
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK_BYTES };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let chunk = self.chunks.last_mut().expect("a chunk was added above");
        let mut flags = match symbol.kind {
            SymbolKind::Shape => SHAPE,
            SymbolKind::Write => WRITE,
            SymbolKind::Read => 0,
        };
        let same_value = symbol.value == self.context.value(symbol.kind == SymbolKind::Shape);
        let contiguous = position == self.context.end;
        flags |= if same_value { SAME_VALUE } else { 0 } | if contiguous { CONTIGUOUS } else { 0 };
        chunk.push(flags);
        if !same_value {
            put(chunk, symbol.value);
        }
        if !contiguous {
            let delta = position.wrapping_sub(self.context.position) as i64;
            put(chunk, ((delta << 1) ^ (delta >> 63)) as u64);
        }
        self.context.step(symbol, position);
        self.count += 1;
    }

    /// Tokens held.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }

    pub fn iter(&self) -> TokenIter<'_> {
        TokenIter { chunks: self.chunks.iter(), rest: &[], context: Context::default() }
    }
}

/// See [`Tokens::iter`].
#[derive(Clone)]
pub(crate) struct TokenIter<'a> {
    chunks: std::slice::Iter<'a, Vec<u8>>,
    rest: &'a [u8],
    context: Context,
}

impl Iterator for TokenIter<'_> {
    type Item = (Symbol, u64);

    fn next(&mut self) -> Option<(Symbol, u64)> {
        while self.rest.is_empty() {
            self.rest = self.chunks.next()?;
        }
        let flags = self.rest[0];
        self.rest = &self.rest[1..];
        let kind = match flags & (SHAPE | WRITE) {
            0 => SymbolKind::Read,
            WRITE => SymbolKind::Write,
            _ => SymbolKind::Shape,
        };
        let value =
            if flags & SAME_VALUE != 0 { self.context.value(kind == SymbolKind::Shape) } else { take(&mut self.rest) };
        let position = if flags & CONTIGUOUS != 0 {
            self.context.end
        } else {
            let coded = take(&mut self.rest);
            self.context.position.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg())
        };
        let symbol = Symbol { kind, value };
        self.context.step(symbol, position);
        Some((symbol, position))
    }
}

/// LEB128.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(rest: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let byte = rest[0];
        *rest = &rest[1..];
        number |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return number;
        }
        shift += 7;
    }
}
