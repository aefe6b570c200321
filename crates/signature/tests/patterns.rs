//! The five factors, phases and words of traces that are known.

use stripewise_signature::{Access, Stream, StreamSignature, Who, file_in_words, stream_in_words};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// One access a millisecond, each taking half of it.
fn even(trace: impl IntoIterator<Item = Access>) -> StreamSignature {
    let mut stream = Stream::new();
    for (index, access) in (0u64..).zip(trace) {
        stream.push(access, Some((index * 1_000_000, index * 1_000_000 + 500_000)));
    }
    stream.finish()
}

/// Numbers without a pattern, below 2^40 (SplitMix64).
fn scattered(index: u64) -> u64 {
    let mut z = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) >> 24
}

fn pattern(trace: impl IntoIterator<Item = Access>) -> String {
    even(trace).pattern().map(|pattern| pattern.to_string()).unwrap_or_default()
}

#[test]
fn every_spatial_class() {
    let cases = [
        (
            pattern((0..50).map(|i| Access::read(i * 4096, 4096))),
            "{READ, <contiguous,1>, <single>, <fixed small>, <fixed> }",
        ),
        (
            pattern((0..50).map(|i| Access::read(i * MIB, 64 * KIB))),
            "{READ, <fixed-strided,1>, <single>, <fixed medium>, <fixed> }",
        ),
        (
            pattern((0..50).map(|i| Access::write((50 - i) * MIB, MIB))),
            "{WRITE, <negative-strided,1>, <single>, <fixed large>, <fixed> }",
        ),
        (
            pattern((0..500).map(|i| Access::read(i / 10 * MIB + i % 10 * 8192, 4096))),
            "{READ, <2d-strided,2>, <single>, <fixed small>, <fixed> }",
        ),
        (
            pattern((0..500).map(|i| Access::read(i / 50 * 64 * MIB + i / 5 % 10 * MIB + i % 5 * 8192, 4096))),
            "{READ, <kd-strided,3>, <single>, <fixed small>, <fixed> }",
        ),
        (
            pattern((0..500).map(|i| Access::read(scattered(i), 4096))),
            "{READ, <random-strided,1>, <single>, <fixed small>, <fixed> }",
        ),
        (
            pattern((0..500).map(|i| Access::read(if i < 250 { i * 4096 } else { i * MIB }, 4096))),
            "{READ, <combination,1>, <single>, <fixed small>, <fixed> }",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
    assert_eq!(pattern([]), "");
}

#[test]
fn repetition_sizes_and_operations() {
    let twice = (0..200).map(|i| Access::read(i % 100 * MIB, 4096));
    assert_eq!(pattern(twice), "{READ, <fixed-strided,1>, <repeating>, <fixed small>, <fixed> }");
    // An appender of records that are all of other sizes.
    let mut end = 0;
    let append = (0..300).map(|i| {
        let size = 1 + scattered(i) % 2000;
        end += size;
        Access::write(end - size, size)
    });
    assert_eq!(pattern(append), "{WRITE, <contiguous,1>, <single>, <variable small>, <fixed> }");
    let both = (0..100).map(|i| if i < 50 { Access::write(i * MIB, MIB) } else { Access::read((i - 50) * MIB, MIB) });
    assert_eq!(pattern(both), "{RW, <contiguous,1>, <single>, <fixed large>, <fixed> }");
    // The last piece of a file is smaller: its size is still fixed.
    let last = (0..150).map(|i| Access::read(i * MIB, if i == 149 { 5 } else { MIB }));
    assert_eq!(pattern(last), "{READ, <contiguous,1>, <single>, <fixed large>, <fixed> }");
}

#[test]
fn the_border_of_the_classes_of_size() {
    let of = |size: u64| pattern((0..9).map(|i| Access::read(i * size, size)));
    for (size, class) in [(65_535, "small"), (65_536, "medium"), (1_048_575, "medium"), (1_048_576, "large")] {
        assert!(of(size).contains(&format!("<fixed {class}>")), "{size}: {}", of(size));
    }
}

#[test]
fn intervals_and_their_absence() {
    let with = |span: fn(u64) -> Option<(u64, u64)>| {
        let mut stream = Stream::new();
        (0..100).for_each(|i| stream.push(Access::read(i * 8, 8), span(i)));
        let stream = stream.finish();
        (stream.pattern().map(|pattern| pattern.temporal.name()), stream.phases.len())
    };
    assert_eq!(with(|i| Some((i * 1000 + i % 2 * 50, i * 1000 + 100))), (Some("fixed"), 1));
    assert_eq!(with(|i| Some((i * i * 1000, i * i * 1000 + 10))), (Some("random"), 1));
    assert_eq!(with(|_| None), (Some("unknown"), 0));
}

#[test]
fn phases_are_parted_by_long_pauses() {
    let mut stream = Stream::new();
    for i in 0..1000u64 {
        let start = i / 100 * 60 * SECOND_NS + i % 100 * 1_000_000;
        let access = if i / 100 == 3 { Access::read(i * MIB, MIB) } else { Access::write(i * MIB, MIB) };
        stream.push(access, Some((start, start + 900_000)));
    }
    let phases = stream.finish().phases;
    assert_eq!(phases.len(), 10);
    for (index, phase) in (0u64..).zip(&phases) {
        assert_eq!(phase.start_ns, index * 60 * SECOND_NS);
        assert_eq!(phase.end_ns, index * 60 * SECOND_NS + 99 * 1_000_000 + 900_000);
        assert_eq!(phase.accesses, 100);
        let (read, written) = if index == 3 { (100 * MIB, 0) } else { (0, 100 * MIB) };
        assert_eq!((phase.bytes_read, phase.bytes_written), (read, written));
    }
}

#[test]
fn phases_beyond_the_most_are_the_longest_pauses() {
    let mut stream = Stream::new();
    let mut now = 0;
    for i in 0..8000u64 {
        // 100 pauses, the later the longer.
        now += if i > 0 && i % 80 == 0 { SECOND_NS + i * 1_000_000 } else { 1000 };
        stream.push(Access::read(i, 1), Some((now, now)));
    }
    let phases = stream.finish().phases;
    assert_eq!(phases.len(), stripewise_signature::MAX_PHASES);
    assert_eq!(phases.iter().map(|phase| phase.accesses).sum::<u64>(), 8000);
    assert_eq!(phases[0].accesses, 80 * 37);
    assert!(phases[1..].iter().all(|phase| phase.accesses == 80));
}

#[test]
fn ranks_that_do_the_same_are_told_together() {
    let rank = |rank: u64| even((0..256).map(move |i| Access::read(rank * 64 * KIB + i % 128 * MIB, 64 * KIB)));
    let streams: Vec<StreamSignature> = (0..16).map(rank).collect();
    let ranks: Vec<(u32, &StreamSignature)> = (0..).zip(&streams).collect();
    assert_eq!(
        file_in_words(&ranks, Who::Ranks),
        "16 ranks, each reads 64 KiB at stride 1 MiB, 128 times, twice over; rank r starts at r x 64 KiB"
    );
    assert_eq!(
        file_in_words(&ranks[3..4], Who::Ranks),
        "rank 3 reads 64 KiB at stride 1 MiB, 128 times, from 192 KiB, twice over"
    );
    let header = even([Access::write(0, 512)]);
    let mut with_header = vec![(99, &header)];
    with_header.extend(&ranks[..2]);
    assert_eq!(
        file_in_words(&with_header, Who::Ranks),
        "rank 99 writes 512 B at 0 B; 2 ranks, each reads 64 KiB at stride 1 MiB, 128 times, twice over; rank r starts \
         at r x 64 KiB"
    );
    assert_eq!(file_in_words(&[], Who::Ranks), "not accessed");
}

#[test]
fn ranks_with_several_loops_each() {
    let rank = |rank: u64| {
        let base = MIB + rank * 100 * MIB;
        even((0..100).map(move |i| {
            let at = base + i % 50 * MIB;
            if i < 50 { Access::write(at, MIB) } else { Access::read(at + 8, 8) }
        }))
    };
    let streams: Vec<StreamSignature> = (0..4).map(rank).collect();
    let ranks: Vec<(u32, &StreamSignature)> = (0..).zip(&streams).collect();
    assert_eq!(
        file_in_words(&ranks, Who::Ranks),
        "4 ranks, each writes 50 MiB in 50 pieces of 1 MiB, then reads 8 B at stride 1 MiB, 50 times, from its start + \
         8 B; rank r starts at 1 MiB + r x 100 MiB"
    );
    assert_eq!(
        file_in_words(&[ranks[0], (1, &streams[0])], Who::Ranks).rsplit("; ").next(),
        Some("all start at 1 MiB")
    );
}

#[test]
fn traces_without_a_loop_are_told_by_their_factors() {
    let random =
        |seed: u64| even((0..1200).map(move |i| Access::read(scattered(i * 7 + seed) % (10 * MIB), 512 + i % 3 * 512)));
    let (a, b) = (random(1), random(2));
    assert_eq!(
        stream_in_words(&a),
        "reads 512 B to 1.50 KiB, 1,200 times, at places without a pattern, between 10.2 KiB and 9.99 MiB"
    );
    let both = file_in_words(&[(0, &a), (1, &b)], Who::Ranks);
    assert!(
        both.starts_with("2 ranks together read 512 B to 1.50 KiB, 2,400 times, at places without a pattern"),
        "{both}"
    );
}

#[test]
fn repeats_nests_and_odd_sizes_in_words() {
    let checkpoint = |turn: u64| {
        std::iter::once(Access::write(turn << 30, 512))
            .chain((0..100).map(move |i| Access::write((turn << 30) + 4096 + i * 65_544, 65_544)))
    };
    assert_eq!(
        stream_in_words(&even((0..50).flat_map(checkpoint))),
        "(writes 512 B at 0 B, then writes 6,554,400 B in 100 pieces of 65,544 B, from 4 KiB) 50 times over, each time 1 GiB on"
    );
    let rows = even((0..400).map(|i| Access::read(i / 20 * 1000 + i % 20 * 8, 8)));
    assert_eq!(stream_in_words(&rows), "reads 160 B in 20 pieces of 8 B, from 0 B, that 20 times at stride 1,000 B");
    let copy = even((0..20).map(|i| if i % 2 == 0 { Access::read(i * 50, 9) } else { Access::write(i * 50 - 50, 9) }));
    assert_eq!(stream_in_words(&copy), "reads and writes 9 B at stride 0 B, 100 B in turn, 20 times, from 0 B");
    let poll = even((0..20).map(|_| Access::read(24, 8)));
    assert_eq!(stream_in_words(&poll), "reads 8 B at 24 B, 20 times");
}

#[test]
fn nearly_regular_traces_are_told_by_their_loop() {
    let trace = |i: u64| if i % 100 == 99 { Access::read(scattered(i), 8) } else { Access::read(MIB + i * 4096, 512) };
    assert_eq!(
        stream_in_words(&even((0..1000).map(trace))),
        "reads 512 B at stride 4 KiB, 990 times, from 1 MiB, in 10 stretches, and 10 other accesses"
    );
}
