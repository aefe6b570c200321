//! Whatever the trace: it comes back exactly; whatever the loops that made it: they are found again.

use proptest::prelude::*;
use stripewise_signature::{Access, AccessOp, Signature};

fn round_trip(trace: &[Access]) -> Signature {
    let signature = Signature::of(trace.iter().copied());
    assert_eq!(signature.accesses(), trace.len() as u64);
    assert!(signature.expand().eq(trace.iter().copied()), "{signature}");
    let text = signature.to_string();
    let read: Signature = text.parse().unwrap_or_else(|error| panic!("{error} in {text}"));
    assert_eq!(read, signature, "{text}");
    assert_eq!(read.to_string(), text);
    assert_eq!(read.accesses(), signature.accesses());
    signature
}

fn op() -> impl Strategy<Value = AccessOp> {
    prop_oneof![Just(AccessOp::Read), Just(AccessOp::Write)]
}

/// Small numbers (so that things repeat), usual ones and the largest.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..4,
        4 => (0u64..64).prop_map(|n| n * 4096),
        1 => any::<u64>(),
        1 => Just(u64::MAX),
        1 => Just(i64::MAX as u64),
        1 => Just(1 << 63)
    ]
}

fn access() -> impl Strategy<Value = Access> {
    (op(), number(), number()).prop_map(|(op, offset, size_bytes)| Access { op, offset, size_bytes })
}

fn list<T: std::fmt::Debug>(element: impl Strategy<Value = T>, most: usize) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(element, 1..=most)
}

/// Text of a random nest of loops, and how many numbers it has.
fn nest() -> impl Strategy<Value = String> {
    let delta = prop_oneof![3 => (-64i64..64).prop_map(|n| n * 4096), 1 => any::<i64>()];
    let outer = prop::collection::vec((list(delta.clone(), 3), 1u64..7), 0..4);
    (list(op(), 3), number(), outer, list(delta, 4), list(number(), 3), 1u64..40, 1u64..3).prop_map(
        |(ops, init, outer, deltas, sizes, count, reps)| {
            let join = |list: Vec<String>, between: &str| list.join(between);
            let numbers = |list: &[i64]| join(list.iter().map(i64::to_string).collect(), ",");
            let mut levels: Vec<String> =
                outer.iter().map(|(deltas, count)| format!("[{{{}}},{{}},{{{count}}}]", numbers(deltas))).collect();
            let sizes = join(sizes.iter().map(u64::to_string).collect(), ",");
            levels.push(format!("[{{{}}},{{{sizes}}},{{{count}}}]", numbers(&deltas)));
            let ops = join(ops.iter().map(|op| op.name().to_owned()).collect(), "+");
            format!("{{{ops},{init},{},({}),{reps}}}", levels.len(), join(levels, ","))
        },
    )
}

fn item() -> impl Strategy<Value = String> {
    let residual = list(access(), 3).prop_map(|accesses| {
        let accesses = accesses.iter().map(|a| {
            let letter = if a.op == AccessOp::Read { 'R' } else { 'W' };
            format!("{letter}{}+{}", a.offset, a.size_bytes)
        });
        format!("{{RESIDUAL,({})}}", accesses.collect::<Vec<_>>().join(","))
    });
    let leaf = prop_oneof![4 => nest(), 1 => residual];
    leaf.prop_recursive(2, 8, 3, |inner| {
        (any::<i32>(), 1u64..5, list(inner, 3))
            .prop_map(|(delta, count, body)| format!("{{REPEAT,{delta},{count},({})}}", body.join(";")))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_trace_comes_back(trace in prop::collection::vec(access(), 0..600)) {
        round_trip(&trace);
    }

    /// Few different steps, so that loops begin and break everywhere.
    #[test]
    fn almost_periodic_traces_come_back(
        steps in prop::collection::vec((0usize..3, 1usize..70), 1..40),
        cycle in prop::collection::vec((op(), 0u64..3, -2i64..3), 3..9),
    ) {
        let mut position = 1u64 << 40;
        let mut trace = Vec::new();
        for (from, count) in steps {
            for index in 0..count {
                let (op, size_bytes, delta) = cycle[(from + index) % cycle.len()];
                trace.push(Access { op, offset: position, size_bytes });
                position = position.wrapping_add_signed(delta);
            }
        }
        round_trip(&trace);
    }

    #[test]
    fn any_signature_is_compressed_again(items in list(item(), 4)) {
        let text = items.join(";");
        let made: Signature = text.parse().expect("the generator writes the grammar");
        let reread: Signature = made.to_string().parse().expect("its own text");
        prop_assert_eq!(&reread, &made);
        let trace: Vec<Access> = made.expand().take(20_000).collect();
        round_trip(&trace);
    }

    /// Loops of at least four turns, each level clear of the one inside: the signature found is about as short as
    /// the one that made the trace.
    #[test]
    fn nested_loops_are_found(
        op in op(),
        init in 0u64..1 << 40,
        counts in list(4u64..12, 4),
        sizes in list(1u64..65_536, 3),
        backwards in any::<bool>(),
    ) {
        // A cycle of sizes needs whole turns for the nest to be found as it was made.
        let turns = sizes.len() as u64;
        let (inner, outer) = counts.split_last().expect("one level at least");
        let mut levels = Vec::new();
        let mut stride = 1i64 << 20;
        levels.push(format!(
            "[{{{}}},{{{}}},{{{}}}]",
            if backwards { -stride } else { stride },
            sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
            inner * turns
        ));
        for count in outer.iter().rev() {
            stride *= 64;
            levels.insert(0, format!("[{{{stride}}},{{}},{{{count}}}]"));
        }
        let text = format!("{{{},{init},{},({}),1}}", op.name(), levels.len(), levels.join(","));
        let made: Signature = text.parse().expect("the generator writes the grammar");
        let trace: Vec<Access> = made.expand().collect();
        let found = round_trip(&trace);
        prop_assert!(found.numbers() <= made.numbers() + 4, "{} became {}", text, found);
    }

    /// Loops of two or three turns too: what is found is longer by a factor at most, not by the length of the trace.
    #[test]
    fn short_loops_are_found(op in op(), counts in list(2u64..9, 5), size in 1u64..65_536) {
        let strides = (0..counts.len()).map(|index| 1u64 << (58 - 6 * index));
        let levels: Vec<String> = counts
            .iter()
            .zip(strides)
            .enumerate()
            .map(|(index, (count, stride))| {
                let size = if index + 1 == counts.len() { size.to_string() } else { String::new() };
                format!("[{{{stride}}},{{{size}}},{{{count}}}]")
            })
            .collect();
        let text = format!("{{{},0,{},({}),1}}", op.name(), levels.len(), levels.join(","));
        let made: Signature = text.parse().expect("the generator writes the grammar");
        let trace: Vec<Access> = made.expand().collect();
        let found = round_trip(&trace);
        prop_assert!(found.numbers() <= 4 * made.numbers(), "{} became {}", text, found);
    }

    /// Strays cost what they are, not the pattern around them.
    #[test]
    fn near_regular_traces_stay_short(strays in prop::collection::btree_set(0usize..4000, 0..12), at in any::<u64>()) {
        let mut trace: Vec<Access> = (0..4000).map(|i| Access::read(i << 20, 65_536)).collect();
        for &stray in &strays {
            trace[stray] = Access::write(at, 7);
        }
        let found = round_trip(&trace);
        prop_assert!(found.numbers() <= 6 + 20 * strays.len() as u64, "{}", found);
    }

    /// Never a panic; what is taken is taken to mean what it prints.
    #[test]
    fn damaged_texts_are_refused_or_mean_something(text in nest(), at in any::<prop::sample::Index>(), byte in 32u8..127) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let text = String::from_utf8(bytes).expect("ASCII");
        match text.parse::<Signature>() {
            Ok(signature) => {
                let again: Signature = signature.to_string().parse().expect("its own text");
                prop_assert_eq!(again, signature);
            }
            Err(error) => prop_assert!(error.at <= text.len()),
        }
    }
}
