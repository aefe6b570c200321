//! Signatures in plain words: one line per file.

use crate::access::Op;
use crate::factors::{Factors, Operations, Spatial};
use crate::shape::{Level, Nest};
use crate::signature::{Item, Signature};
use crate::stream::StreamSignature;
use stripewise_layout::units::format_bytes;

/// Parts of a signature up to which each is told.
const TOLD_PARTS: u64 = 3;

/// What the ranks of a program do with one file, in one line: ranks that do the same are told together. `ranks` are
/// (rank, its signature) in order of rank. O(parts of the signatures that are told).
///
/// "16 ranks, each reads 64 KiB at stride 1 MiB, 128 times, twice over; rank r starts at r x 64 KiB"
pub fn file_in_words(ranks: &[(u32, &StreamSignature)]) -> String {
    // Ranks with the same single loop, in order of their first.
    let mut alike: Vec<(&Nest, Vec<(u32, u64)>)> = Vec::new();
    let mut others: Vec<(u32, &StreamSignature)> = Vec::new();
    for &(rank, stream) in ranks.iter().filter(|rank| rank.1.factors.accesses() > 0) {
        let mut items = stream.signature.items();
        match (items.next(), items.next()) {
            (Some(Item::Nest { init, nest }), None) => match alike.iter().position(|group| group.0 == nest) {
                Some(group) => alike[group].1.push((rank, init)),
                None if alike.len() < TOLD_PARTS as usize => alike.push((nest, vec![(rank, init)])),
                None => others.push((rank, stream)),
            },
            _ => others.push((rank, stream)),
        }
    }
    let mut sentences: Vec<String> = Vec::new();
    for (nest, group) in &alike {
        sentences.push(match group[..] {
            [(rank, init)] => format!("rank {rank} {}", nest_in_words(Some(init), nest)),
            _ => format!("{} ranks, each {}{}", group.len(), nest_in_words(None, nest), starts(group)),
        });
    }
    match others[..] {
        [] if sentences.is_empty() => return "not accessed".to_owned(),
        [] => {}
        [(rank, stream)] => sentences.push(format!("rank {rank} {}", stream_in_words(stream))),
        _ => {
            let mut factors = Factors::default();
            others.iter().for_each(|(_, stream)| factors.merge(&stream.factors));
            let more = if alike.is_empty() { "" } else { "other " };
            sentences.push(format!("{} {more}ranks together {}", others.len(), factors_in_words(&factors)));
        }
    }
    sentences.join("; ")
}

/// Where each rank starts, when that is a simple rule.
fn starts(group: &[(u32, u64)]) -> String {
    let (rank, init) = group[0];
    if group.iter().all(|&(_, other)| other == init) {
        return format!("; all start at {}", format_bytes(init));
    }
    let apart = u64::from(group[1].0.wrapping_sub(rank)).max(1);
    let step = group[1].1.wrapping_sub(init) / apart;
    let first = init.checked_sub(step.wrapping_mul(u64::from(rank)));
    let rule = |&(rank, init): &(u32, u64)| {
        first.is_some_and(|first| first.checked_add(step.saturating_mul(rank.into())) == Some(init))
    };
    match first {
        Some(0) if group.iter().all(rule) => format!("; rank r starts at r x {}", format_bytes(step)),
        Some(first) if group.iter().all(rule) => {
            format!("; rank r starts at {} + r x {}", format_bytes(first), format_bytes(step))
        }
        _ => {
            let low = group.iter().map(|start| start.1).min().unwrap_or(0);
            let high = group.iter().map(|start| start.1).max().unwrap_or(0);
            format!("; they start between {} and {}", format_bytes(low), format_bytes(high))
        }
    }
}

/// What one rank does with one file: "reads 64 KiB at stride 1 MiB, 128 times, from 0".
pub fn stream_in_words(stream: &StreamSignature) -> String {
    let signature = &stream.signature;
    if signature.len() > TOLD_PARTS || signature.is_empty() {
        return factors_in_words(&stream.factors);
    }
    signature.items().map(|item| item_in_words(signature, item)).collect::<Vec<_>>().join(", then ")
}

fn item_in_words(signature: &Signature, item: Item<'_>) -> String {
    match item {
        Item::Single(access) => {
            let verb = verb(&[access.op]);
            format!("{verb} {} at {}", format_bytes(access.size_bytes), format_bytes(access.offset))
        }
        Item::Nest { init, nest } => nest_in_words(Some(init), nest),
        Item::Repeat { init, repeat } => {
            let parts: Vec<String> =
                signature.body(init, repeat).take(3).map(|part| item_in_words(signature, part)).collect();
            let more = signature.body(init, repeat).count() - parts.len();
            let more = if more > 0 { format!(", then {more} more") } else { String::new() };
            let place =
                if repeat.delta == 0 { String::new() } else { format!(", each time {} on", signed(repeat.delta)) };
            format!("({}{more}) {}{place}", parts.join(", then "), over(repeat.count))
        }
    }
}

fn verb(ops: &[Op]) -> &'static str {
    match (ops.contains(&Op::Read), ops.contains(&Op::Write)) {
        (true, true) => "reads and writes",
        (_, true) => "writes",
        _ => "reads",
    }
}

fn signed(delta: i64) -> String {
    format!("{}{}", if delta < 0 { "-" } else { "" }, format_bytes(delta.unsigned_abs()))
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

fn over(count: u64) -> String {
    if count == 1 { times(count) } else { format!("{} over", times(count)) }
}

fn list(numbers: impl ExactSizeIterator<Item = String>, what: &str) -> String {
    let length = numbers.len();
    let told: Vec<String> = numbers.take(4).collect();
    match length {
        1 => told.into_iter().collect(),
        2..=4 => format!("{} in turn", told.join(", ")),
        _ => format!("{}, ... ({length} {what} in turn)", told.join(", ")),
    }
}

fn nest_in_words(init: Option<u64>, nest: &Nest) -> String {
    let Some((inner, outer)) = nest.levels.split_last() else { return "nothing".to_owned() };
    let verb = verb(&nest.ops);
    let sizes = list(inner.sizes.iter().map(|&size| format_bytes(size)), "sizes");
    let mut words = match (&inner.deltas[..], &inner.sizes[..]) {
        ([delta], [size]) if *delta > 0 && *delta as u64 == *size => {
            format!("{verb} {} in pieces of {sizes}", format_bytes(size.saturating_mul(inner.count)))
        }
        ([0], _) => format!("{verb} {sizes} at one place, {}", times(inner.count)),
        _ => {
            let strides = list(inner.deltas.iter().map(|&delta| signed(delta)), "strides");
            format!("{verb} {sizes} at stride {strides}, {}", times(inner.count))
        }
    };
    if let Some(init) = init {
        words += &format!(", from {}", format_bytes(init));
    }
    for level in outer.iter().rev().filter(|level| level.count != 1) {
        words += &outer_in_words(level);
    }
    match nest.reps {
        1 => words,
        reps => format!("{words}, all of it {}, on from where it ended", over(reps)),
    }
}

fn outer_in_words(level: &Level) -> String {
    if level.deltas.iter().all(|&delta| delta == 0) {
        return format!(", {} over", times(level.count));
    }
    let strides = list(level.deltas.iter().map(|&delta| signed(delta)), "strides");
    format!(", that {} at stride {strides}", times(level.count))
}

/// What no single loop tells.
fn factors_in_words(factors: &Factors) -> String {
    let Some(pattern) = factors.pattern() else { return "does nothing".to_owned() };
    let verb = match pattern.operations {
        Operations::Read => "reads",
        Operations::Write => "writes",
        Operations::ReadWrite => "reads and writes",
    };
    let (smallest, largest) = factors.size_range.unwrap_or((0, 0));
    let sizes = if smallest == largest {
        format_bytes(smallest)
    } else if pattern.fixed_size {
        let commonest = factors.sizes.iter().max_by_key(|size| size.1).map_or(smallest, |size| *size.0);
        format!("mostly {}", format_bytes(commonest))
    } else {
        format!("{} to {}", format_bytes(smallest), format_bytes(largest))
    };
    let place = match pattern.spatial {
        Spatial::Contiguous => "one after the other",
        Spatial::FixedStrided => "at a fixed stride",
        Spatial::NegativeStrided => "backwards",
        Spatial::TwoDStrided => "in rows",
        Spatial::KdStrided => "in nested strides",
        Spatial::RandomStrided => "at places without a pattern",
        Spatial::Combination => "in several patterns",
    };
    let (low, high) = factors.extent.unwrap_or((0, 0));
    let (low, high) = (format_bytes(low), format_bytes(high));
    format!("{verb} {sizes}, {}, {place}, between {low} and {high}", times(factors.accesses()))
}
