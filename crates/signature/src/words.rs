//! Signatures in plain words: one line per file.

use crate::access::AccessOp;
use crate::factors::{Factors, Operations, Spatial};
use crate::shape::{Level, Nest};
use crate::signature::{Item, Signature};
use crate::stream::StreamSignature;
use std::collections::HashMap;

/// Parts of a signature, and kinds of ranks, up to which each is told.
const TOLD: usize = 3;

/// Where a sentence says the place of its loops, and of whom it speaks.
#[derive(Clone, Copy)]
struct Voice {
    /// Offset that places are told from; `None`: those of the file.
    origin: Option<u64>,
    /// One does it, not several together.
    singular: bool,
}

/// What those are called that a line speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Ranks of a program.
    Ranks,
    /// Processes of a program without ranks, counted from 0. One alone goes without saying.
    Processes,
}

impl Who {
    /// One, several, and the letter that stands for their number.
    fn nouns(self) -> (&'static str, &'static str, char) {
        match self {
            Who::Ranks => ("rank", "ranks", 'r'),
            Who::Processes => ("process", "processes", 'p'),
        }
    }
}

/// What the ranks of a program do with one file, in one line: ranks that do the same, each from its own place, are told
/// together. `ranks` are (rank, its signature) in order of rank. O(ranks x 3 + parts of the signatures that are told).
///
/// "16 ranks, each reads 64 KiB at stride 1 MiB, 128 times, twice over; rank r starts at r x 64 KiB"
pub fn file_in_words(ranks: &[(u32, &StreamSignature)], who: Who) -> String {
    let (one, several, _) = who.nouns();
    if let ([(_, stream)], Who::Processes) = (ranks, who) {
        return stream_in_words(stream);
    }
    let mut alike: Vec<Vec<(u32, &StreamSignature)>> = Vec::new();
    let mut others: Vec<(u32, &StreamSignature)> = Vec::new();
    for &(rank, stream) in ranks.iter().filter(|rank| rank.1.factors.accesses() > 0) {
        let short = stream.signature.len() <= TOLD as u64;
        match alike.iter().position(|group| short && group[0].1.signature.same_elsewhere(&stream.signature)) {
            Some(group) => alike[group].push((rank, stream)),
            None if short && alike.len() < TOLD => alike.push(vec![(rank, stream)]),
            None => others.push((rank, stream)),
        }
    }
    let mut sentences: Vec<String> = Vec::new();
    for group in &alike {
        sentences.push(match group[..] {
            [(rank, stream)] => format!("{one} {rank} {}", stream_in_words(stream)),
            _ => {
                let places: Vec<(u32, u64)> = group.iter().filter_map(|&(rank, s)| Some((rank, first(s)?))).collect();
                let voice = Voice { origin: places.first().map(|place| place.1), singular: true };
                let signature = &group[0].1.signature;
                let parts = parts_in_words(signature, voice);
                format!("{} {several}, each {parts}; {}", group.len(), starts(&places, who))
            }
        });
    }
    match others[..] {
        [] if sentences.is_empty() => return "not accessed".to_owned(),
        [] => {}
        [(rank, stream)] => sentences.push(format!("{one} {rank} {}", stream_in_words(stream))),
        _ => {
            let mut factors = Factors::default();
            others.iter().for_each(|(_, stream)| factors.merge(&stream.factors));
            let more = if alike.is_empty() { "" } else { "other " };
            sentences.push(format!("{} {more}{several} together {}", others.len(), factors_in_words(&factors, false)));
        }
    }
    sentences.join("; ")
}

/// What one rank does with one file: "reads 64 KiB at stride 1 MiB, 128 times, from 0 B".
pub fn stream_in_words(stream: &StreamSignature) -> String {
    if stream.signature.len() > TOLD as u64 || stream.signature.is_empty() {
        return broken_in_words(&stream.signature).unwrap_or_else(|| factors_in_words(&stream.factors, true));
    }
    parts_in_words(&stream.signature, Voice { origin: None, singular: true })
}

fn first(stream: &StreamSignature) -> Option<u64> {
    stream.signature.items().next().map(|item| match item {
        Item::Nest { init, .. } | Item::Repeat { init, .. } => init,
        Item::Single(access) => access.offset,
    })
}

/// Where each rank starts.
fn starts(places: &[(u32, u64)], who: Who) -> String {
    let (one, _, letter) = who.nouns();
    let (rank, init) = places[0];
    if places.iter().all(|place| place.1 == init) {
        return format!("all start at {}", bytes(init));
    }
    let step = places[1].1.wrapping_sub(init) / u64::from(places[1].0.wrapping_sub(rank)).max(1);
    let of = |rank: u32| u128::from(step) * u128::from(rank);
    let base = u128::from(init).checked_sub(of(rank));
    match base {
        Some(base) if places.iter().all(|&(rank, init)| base + of(rank) == u128::from(init)) => {
            let base = if base == 0 { String::new() } else { format!("{} + ", bytes(base as u64)) };
            format!("{one} {letter} starts at {base}{letter} x {}", bytes(step))
        }
        _ => {
            let low = places.iter().map(|place| place.1).min().unwrap_or(init);
            let high = places.iter().map(|place| place.1).max().unwrap_or(init);
            format!("they start between {} and {}", about(low), about(high))
        }
    }
}

fn parts_in_words(signature: &Signature, voice: Voice) -> String {
    signature.items().map(|item| item_in_words(signature, item, voice)).collect::<Vec<_>>().join(", then ")
}

/// " at 4 KiB", " 4 KiB further on" or nothing.
fn place(at: u64, preposition: &str, voice: Voice) -> String {
    match voice.origin {
        None => format!(" {preposition} {}", bytes(at)),
        Some(origin) if at == origin => String::new(),
        Some(origin) => format!(" {preposition} its start {}", {
            let apart = at.wrapping_sub(origin) as i64;
            format!("{} {}", if apart < 0 { "-" } else { "+" }, bytes(apart.unsigned_abs()))
        }),
    }
}

fn item_in_words(signature: &Signature, item: Item<'_>, voice: Voice) -> String {
    match item {
        Item::Single(access) => {
            let verb = verb(access.op == AccessOp::Read, access.op == AccessOp::Write, voice.singular);
            format!("{verb} {}{}", bytes(access.size_bytes), place(access.offset, "at", voice))
        }
        Item::Nest { init, nest } => nest_in_words(init, nest, voice),
        Item::Repeat { init, repeat } => {
            let told = signature.body(init, repeat).take(TOLD);
            let parts: Vec<String> = told.map(|part| item_in_words(signature, part, voice)).collect();
            let more = signature.body(init, repeat).count() - parts.len();
            let more = if more > 0 { format!(", then {more} more") } else { String::new() };
            let on = if repeat.delta == 0 { String::new() } else { format!(", each time {} on", signed(repeat.delta)) };
            format!("({}{more}) {} over{on}", parts.join(", then "), times(repeat.count))
        }
    }
}

fn nest_in_words(init: u64, nest: &Nest, voice: Voice) -> String {
    let Some((inner, outer)) = nest.levels.split_last() else { return "does nothing".to_owned() };
    let verb = verb(nest.ops.contains(&AccessOp::Read), nest.ops.contains(&AccessOp::Write), voice.singular);
    let sizes = list(inner.sizes.iter().map(|&size| bytes(size)), "sizes");
    let from = place(init, "from", voice);
    let from = if from.is_empty() { from } else { format!(",{from}") };
    let mut words = match (&inner.deltas[..], &inner.sizes[..]) {
        ([delta], [size]) if *delta > 0 && *delta as u64 == *size => {
            let all = size.saturating_mul(inner.count);
            format!("{verb} {} in {} pieces of {sizes}{from}", bytes(all), grouped(inner.count))
        }
        ([0], _) => {
            let at = place(init, "at", voice);
            format!("{verb} {sizes}{}, {}", if at.is_empty() { " at one place" } else { &at }, times(inner.count))
        }
        _ => {
            let strides = list(inner.deltas.iter().map(|&delta| signed(delta)), "strides");
            format!("{verb} {sizes} at stride {strides}, {}{from}", times(inner.count))
        }
    };
    for level in outer.iter().rev().filter(|level| level.count != 1) {
        words += &outer_in_words(level);
    }
    match nest.reps {
        1 => words,
        reps => format!("{words}, all of it {} over, on from where it ended", times(reps)),
    }
}

fn outer_in_words(level: &Level) -> String {
    if level.deltas.iter().all(|&delta| delta == 0) {
        return format!(", {} over", times(level.count));
    }
    let strides = list(level.deltas.iter().map(|&delta| signed(delta)), "strides");
    format!(", that {} at stride {strides}", times(level.count))
}

/// Operations, deltas and sizes of a single loop.
type LoopKey<'a> = (&'a [AccessOp], &'a [i64], &'a [u64]);

/// Loops that differ in their place and count only.
struct Stretches<'a> {
    accesses: u64,
    count: u64,
    /// Of the first.
    init: u64,
    nest: &'a Nest,
}

/// Nearly regular: one loop that is broken off and taken up again, nine accesses in ten being its own. O(parts).
fn broken_in_words(signature: &Signature) -> Option<String> {
    let mut loops: HashMap<LoopKey<'_>, Stretches<'_>> = HashMap::new();
    for item in signature.items() {
        if let Item::Nest { init, nest } = item
            && let [level] = &nest.levels[..]
        {
            let key = (&nest.ops[..], &level.deltas[..], &level.sizes[..]);
            let found = loops.entry(key).or_insert(Stretches { accesses: 0, count: 0, init, nest });
            found.accesses = found.accesses.saturating_add(nest.accesses());
            found.count += 1;
        }
    }
    let Stretches { accesses, count, init, nest } =
        loops.into_values().max_by_key(|found| (found.accesses, found.init))?;
    let others = signature.accesses() - accesses;
    if others as f64 > 0.1 * signature.accesses() as f64 {
        return None;
    }
    let whole = Nest { levels: vec![Level { count: accesses, ..nest.levels[0].clone() }], ..nest.clone() };
    let words = nest_in_words(init, &whole, Voice { origin: None, singular: true });
    let others = match others {
        0 => String::new(),
        1 => ", and 1 other access".to_owned(),
        _ => format!(", and {} other accesses", grouped(others)),
    };
    Some(format!("{words}, in {} stretches{others}", grouped(count)))
}

/// What no few loops tell.
fn factors_in_words(factors: &Factors, singular: bool) -> String {
    let Some(pattern) = factors.pattern() else { return "does nothing".to_owned() };
    let operations = pattern.operations;
    let verb = verb(operations != Operations::Write, operations != Operations::Read, singular);
    let (smallest, largest) = factors.size_range.unwrap_or((0, 0));
    let sizes = if smallest == largest {
        bytes(smallest)
    } else if pattern.fixed_size {
        let commonest = factors.sizes.iter().max_by_key(|size| size.1).map_or(smallest, |size| *size.0);
        format!("mostly {}", bytes(commonest))
    } else {
        format!("{} to {}", about(smallest), about(largest))
    };
    let how = match pattern.spatial {
        Spatial::Contiguous => "one after the other",
        Spatial::FixedStrided => "at fixed strides",
        Spatial::NegativeStrided => "backwards",
        Spatial::TwoDStrided => "in rows",
        Spatial::KdStrided => "in nested strides",
        Spatial::RandomStrided => "at places without a pattern",
        Spatial::Combination => "in several patterns",
    };
    let (low, high) = factors.extent.unwrap_or((0, 0));
    format!("{verb} {sizes}, {}, {how}, between {} and {}", times(factors.accesses()), about(low), about(high))
}

fn verb(reads: bool, writes: bool, singular: bool) -> &'static str {
    match (reads, writes, singular) {
        (true, true, true) => "reads and writes",
        (true, true, false) => "read and write",
        (_, true, true) => "writes",
        (_, true, false) => "write",
        (_, _, true) => "reads",
        (_, _, false) => "read",
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{} times", grouped(count)),
    }
}

fn list(numbers: impl ExactSizeIterator<Item = String>, what: &str) -> String {
    let length = numbers.len();
    let told: Vec<String> = numbers.take(4).collect();
    match length {
        0 | 1 => told.into_iter().collect(),
        2..=4 => format!("{} in turn", told.join(", ")),
        _ => format!("{}, ... ({length} {what} in turn)", told.join(", ")),
    }
}

const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Exact, since a stride that is 8 bytes off a power of two is another stride: the largest unit that divides it.
fn bytes(number: u64) -> String {
    let divides = |&&(_, shift): &&(&str, u32)| number >= 1 << shift && number.trailing_zeros() >= shift;
    let (unit, shift) = UNITS.iter().find(divides).unwrap_or(&UNITS[4]);
    format!("{} {unit}", grouped(number >> shift))
}

fn signed(delta: i64) -> String {
    format!("{}{}", if delta < 0 { "-" } else { "" }, bytes(delta.unsigned_abs()))
}

/// To three digits, for the borders of a range.
fn about(number: u64) -> String {
    let (unit, shift) = UNITS.iter().find(|unit| number >> unit.1 > 0).unwrap_or(&UNITS[4]);
    let scaled = number as f64 / (1u64 << shift) as f64;
    let digits = if *shift == 0 || scaled >= 100.0 || scaled.fract() == 0.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$} {unit}")
}
