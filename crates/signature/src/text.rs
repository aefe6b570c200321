//! The text form of a signature: writing and reading it.

use crate::access::{AccessOp, difference};
use crate::shape::{Level, MAX_LEVELS, Nest, Repeat, Shape, Symbol, SymbolKind};
use crate::signature::{Item, Signature};
use std::fmt;

/// Repeats inside repeats. A text that asks for more is refused.
const MAX_REPEATS: usize = 64;

/// Why a text is no signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} of the signature: expected {expected}, found {found}")]
pub struct SignatureError {
    /// Bytes before the place.
    pub at: usize,
    /// What would have been right there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_items(self, self.items(), f)
    }
}

/// The text of the first parts of a signature.
#[derive(Debug, Clone, Copy)]
pub struct Beginning<'a> {
    signature: &'a Signature,
    parts: usize,
}

impl Signature {
    /// To be displayed: the first `parts` parts, which are a signature themselves. O(parts).
    pub fn beginning(&self, parts: usize) -> Beginning<'_> {
        Beginning { signature: self, parts }
    }
}

impl fmt::Display for Beginning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_items(self.signature, self.signature.items().take(self.parts), f)
    }
}

fn write_items<'a>(
    signature: &Signature,
    items: impl Iterator<Item = Item<'a>>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let mut first = true;
    let mut in_residual = false;
    for item in items {
        if let Item::Single(access) = item {
            f.write_str(match (in_residual, first) {
                (true, _) => ",",
                (false, true) => "{RESIDUAL,(",
                (false, false) => ";{RESIDUAL,(",
            })?;
            let letter = if access.op == AccessOp::Read { 'R' } else { 'W' };
            write!(f, "{letter}{}+{}", access.offset, access.size_bytes)?;
            (in_residual, first) = (true, false);
            continue;
        }
        if in_residual {
            f.write_str(")}")?;
        }
        if !first {
            f.write_str(";")?;
        }
        (in_residual, first) = (false, false);
        match item {
            Item::Nest { init, nest } => write_nest(init, nest, f)?,
            Item::Repeat { init, repeat } => {
                write!(f, "{{REPEAT,{},{},(", repeat.delta, repeat.count)?;
                let body: Vec<Item<'_>> = signature.body(init, repeat).collect();
                write_items(signature, body.into_iter(), f)?;
                f.write_str(")}")?;
            }
            Item::Single(_) => {}
        }
    }
    if in_residual { f.write_str(")}") } else { Ok(()) }
}

fn write_nest(init: u64, nest: &Nest, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("{")?;
    if nest.ops == [AccessOp::Read, AccessOp::Write] {
        f.write_str("RW")?;
    } else {
        write_list(&nest.ops.iter().map(|op| op.name()).collect::<Vec<_>>(), "+", f)?;
    }
    write!(f, ",{init},{},(", nest.levels.len())?;
    for (index, level) in nest.levels.iter().enumerate() {
        f.write_str(if index == 0 { "[{" } else { ",[{" })?;
        write_list(&level.deltas, ",", f)?;
        f.write_str("},{")?;
        write_list(&level.sizes, ",", f)?;
        write!(f, "}},{{{}}}]", level.count)?;
    }
    write!(f, "),{}}}", nest.reps)
}

fn write_list<T: fmt::Display>(list: &[T], between: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    list.iter().enumerate().try_for_each(|(index, element)| {
        if index > 0 {
            f.write_str(between)?;
        }
        write!(f, "{element}")
    })
}

impl std::str::FromStr for Signature {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Self, SignatureError> {
        let mut reader = Reader { text, at: 0, signature: Signature::default() };
        if !reader.at_end() {
            for (symbol, position) in reader.items(0)? {
                let accesses = reader.signature.shapes.accesses(symbol);
                reader.signature.accesses = reader.signature.accesses.saturating_add(accesses);
                reader.signature.tokens.push(symbol, position);
            }
            if !reader.at_end() {
                return Err(reader.error("';' or the end"));
            }
        }
        Ok(reader.signature)
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    signature: Signature,
}

impl Reader<'_> {
    fn rest(&mut self) -> &str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn at_end(&mut self) -> bool {
        self.rest().is_empty()
    }

    fn error(&mut self, expected: impl Into<String>) -> SignatureError {
        let word: String = self.rest().chars().take(24).collect();
        let cut = word.char_indices().skip(1).find(|(_, c)| !c.is_alphanumeric()).map_or(word.len(), |(at, _)| at);
        let found = if word.is_empty() { "the end".to_owned() } else { format!("'{}'", &word[..cut]) };
        SignatureError { at: self.at, expected: expected.into(), found }
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn want(&mut self, token: &str) -> Result<(), SignatureError> {
        if self.eat(token) { Ok(()) } else { Err(self.error(format!("'{token}'"))) }
    }

    /// A number that fits `T`, described by `what`.
    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, SignatureError> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        match rest[..sign + digits].parse() {
            Ok(number) if digits > 0 => {
                self.at += sign + digits;
                Ok(number)
            }
            _ if digits > 0 => {
                let found = format!("'{}'", &rest[..sign + digits]);
                Err(SignatureError { at: self.at, expected: what.to_owned(), found })
            }
            _ => Err(self.error(what)),
        }
    }

    fn items(&mut self, depth: usize) -> Result<Vec<(Symbol, u64)>, SignatureError> {
        let mut items = Vec::new();
        loop {
            self.item(depth, &mut items)?;
            if !self.eat(";") {
                return Ok(items);
            }
        }
    }

    fn item(&mut self, depth: usize, items: &mut Vec<(Symbol, u64)>) -> Result<(), SignatureError> {
        self.want("{")?;
        if self.eat("RESIDUAL") {
            self.want(",")?;
            self.want("(")?;
            loop {
                items.push(self.access()?);
                if !self.eat(",") {
                    break;
                }
            }
            self.want(")")?;
        } else if self.eat("REPEAT") {
            if depth == MAX_REPEATS {
                return Err(self.error(format!("at most {MAX_REPEATS} repeats inside each other")));
            }
            self.want(",")?;
            let delta = self.number(DELTA)?;
            self.want(",")?;
            let count = self.number(COUNT)?;
            self.want(",")?;
            self.want("(")?;
            let parts = self.items(depth + 1)?;
            self.want(")")?;
            let start = parts[0].1;
            let body = parts.into_iter().map(|(symbol, position)| (difference(start, position), symbol)).collect();
            items.push((self.signature.shapes.intern(Shape::Repeat(Repeat { delta, count, body })), start));
        } else {
            items.push(self.nest()?);
        }
        self.want("}")
    }

    fn access(&mut self) -> Result<(Symbol, u64), SignatureError> {
        let kind = if self.eat("R") {
            SymbolKind::Read
        } else if self.eat("W") {
            SymbolKind::Write
        } else {
            return Err(self.error("an access such as R4096+512 or W0+65536"));
        };
        let offset = self.number(OFFSET)?;
        self.want("+")?;
        Ok((Symbol { kind, value: self.number(SIZE)? }, offset))
    }

    fn op(&mut self) -> Result<AccessOp, SignatureError> {
        match (self.eat("READ"), self.eat("WRITE")) {
            (true, _) => Ok(AccessOp::Read),
            (_, true) => Ok(AccessOp::Write),
            _ => Err(self.error("READ, WRITE, RW, REPEAT or RESIDUAL")),
        }
    }

    fn nest(&mut self) -> Result<(Symbol, u64), SignatureError> {
        let mut ops = vec![];
        if self.eat("RW") {
            ops.extend([AccessOp::Read, AccessOp::Write]);
        } else {
            ops.push(self.op()?);
            while self.eat("+") {
                ops.push(self.op()?);
            }
        }
        self.want(",")?;
        let init = self.number(OFFSET)?;
        self.want(",")?;
        let dimension = self.number::<usize>("the number of levels")?;
        if dimension == 0 || dimension > MAX_LEVELS {
            self.at -= dimension.to_string().len();
            return Err(self.error(format!("a number of levels from 1 to {MAX_LEVELS}")));
        }
        self.want(",")?;
        self.want("(")?;
        let mut levels = Vec::with_capacity(dimension);
        for index in 0..dimension {
            if index > 0 {
                self.want(",")?;
            }
            levels.push(self.level(index + 1 == dimension)?);
        }
        self.want(")")?;
        self.want(",")?;
        let reps = self.number("a number of repetitions from 0 to 2^64 - 1")?;
        Ok((self.signature.shapes.intern(Shape::Nest(Nest { ops, levels, reps })), init))
    }

    fn level(&mut self, innermost: bool) -> Result<Level, SignatureError> {
        self.want("[")?;
        self.want("{")?;
        let mut deltas = vec![self.number(DELTA)?];
        while self.eat(",") {
            deltas.push(self.number(DELTA)?);
        }
        self.want("}")?;
        self.want(",")?;
        self.want("{")?;
        let mut sizes = Vec::new();
        if innermost {
            sizes.push(self.number(SIZE)?);
            while self.eat(",") {
                sizes.push(self.number(SIZE)?);
            }
        } else if !self.rest().starts_with('}') {
            return Err(self.error("'}': only the innermost level has sizes"));
        }
        self.want("}")?;
        self.want(",")?;
        self.want("{")?;
        let count = self.number(COUNT)?;
        self.want("}")?;
        self.want("]")?;
        Ok(Level { deltas, sizes, count })
    }
}

const OFFSET: &str = "an offset from 0 to 2^64 - 1";
const DELTA: &str = "a delta from -2^63 to 2^63 - 1";
const SIZE: &str = "a size from 0 to 2^64 - 1";
const COUNT: &str = "a count from 0 to 2^64 - 1";
