//! Traces with known signatures, and texts that are none.

use stripewise_signature::{Access, Signature};

fn text(trace: impl IntoIterator<Item = Access>) -> String {
    let trace: Vec<Access> = trace.into_iter().collect();
    let signature = Signature::of(trace.iter().copied());
    assert!(signature.expand().eq(trace.iter().copied()), "{signature}");
    signature.to_string()
}

#[test]
fn the_kinds_of_spatial_patterns() {
    assert_eq!(text([]), "");
    assert_eq!(text([Access::read(7, 0)]), "{RESIDUAL,(R7+0)}");
    assert_eq!(text((0..4).map(|i| Access::read(i * 65_536, 65_536))), "{READ,0,1,([{65536},{65536},{4}]),1}");
    assert_eq!(text((0..9).map(|i| Access::write(5 + i * 100, 10))), "{WRITE,5,1,([{100},{10},{9}]),1}");
    assert_eq!(text((0..9).map(|i| Access::read(900 - i * 100, 10))), "{READ,900,1,([{-100},{10},{9}]),1}");
    let plane = (0..300).map(|i| Access::read(i % 10 * 8 + i / 10 % 5 * 1000 + i / 50 * 100_000, 8));
    assert_eq!(text(plane), "{READ,0,3,([{100000},{},{6}],[{1000},{},{5}],[{8},{8},{10}]),1}");
    assert_eq!(
        text((0..40).map(|i| Access::read(i % 20 * 8, 8)).chain((0..20).map(|i| Access::read(i * 8, 8)))),
        "{READ,0,2,([{0},{},{3}],[{8},{8},{20}]),1}"
    );
}

#[test]
fn cycles_of_deltas_sizes_and_operations() {
    let pairs = (0..20).map(|i| Access::read(i / 2 * 1000 + i % 2 * 8, 8));
    assert_eq!(text(pairs), "{READ,0,1,([{8,992},{8},{20}]),1}");
    let sizes = (0..20).map(|i| Access::write(i * 100, 10 + i % 2));
    assert_eq!(text(sizes), "{WRITE,0,1,([{100},{10,11},{20}]),1}");
    let copy = (0..20).map(|i| if i % 2 == 0 { Access::read(i * 50, 9) } else { Access::write(i * 50 - 50, 9) });
    assert_eq!(text(copy), "{RW,0,1,([{0,100},{9},{20}]),1}");
    let update = (0..30).map(|i| if i % 3 == 2 { Access::write(i, 9) } else { Access::read(i, 9) });
    assert_eq!(text(update), "{READ+READ+WRITE,0,1,([{1},{9},{30}]),1}");
}

#[test]
fn sequences_of_loops_repeat() {
    let checkpoint = |turn: u64| {
        let base = turn << 30;
        let data = (0..100).map(move |i| Access::write(base + 4096 + i * 65_536, 65_536));
        std::iter::once(Access::write(base, 512)).chain(data)
    };
    assert_eq!(
        text((0..50).flat_map(checkpoint)),
        "{REPEAT,1073741824,50,({RESIDUAL,(W0+512)};{WRITE,4096,1,([{65536},{65536},{100}]),1})}"
    );
}

#[test]
fn a_pass_over_the_same_place_is_one_more_turn() {
    for turns in 2..6 {
        let trace = (0..turns * 100).map(|i| Access::read(7 + i % 100 * 10, 3));
        assert_eq!(text(trace), format!("{{READ,7,2,([{{0}},{{}},{{{turns}}}],[{{10}},{{3}},{{100}}]),1}}"));
    }
}

#[test]
fn a_stray_is_kept_apart() {
    let trace = (0..200).map(|i| if i == 120 { Access::write(3, 1) } else { Access::read(i * 10, 10) });
    let signature = Signature::of(trace.clone());
    assert_eq!(text(trace), "{READ,0,1,([{10},{10},{120}]),1};{RESIDUAL,(W3+1)};{READ,1210,1,([{10},{10},{79}]),1}");
    assert_eq!(signature.beginning(2).to_string(), "{READ,0,1,([{10},{10},{120}]),1};{RESIDUAL,(W3+1)}");
}

#[test]
fn the_largest_offsets_do_not_overflow() {
    let last = i64::MAX as u64;
    let trace: Vec<Access> = (0..64).map(|i| Access::read(if i % 2 == 0 { 0 } else { last }, last)).collect();
    assert_eq!(text(trace), format!("{{READ,0,1,([{{{last},-{last}}},{{{last}}},{{64}}]),1}}"));
    let trace: Vec<Access> = (0..64u64).map(|i| Access::read(i.wrapping_mul(u64::MAX / 3), u64::MAX)).collect();
    text(trace);
}

#[test]
fn repetitions_continue_at_the_final_position() {
    let signature: Signature = "{READ,100,2,([{1000},{},{2}],[{10},{5},{2}]),2}".parse().expect("the grammar");
    let offsets: Vec<u64> = signature.expand().map(|access| access.offset).collect();
    assert_eq!(offsets, [100, 110, 1100, 1110, 2100, 2110, 3100, 3110]);
    assert_eq!(signature.accesses(), 8);
}

#[test]
fn counts_beyond_any_memory_are_only_numbers() {
    let max = u64::MAX;
    let text = format!("{{READ,0,2,([{{1}},{{}},{{{max}}}],[{{1}},{{1}},{{{max}}}]),{max}}}");
    let signature: Signature = text.parse().expect("the grammar");
    assert_eq!(signature.accesses(), u64::MAX);
    assert_eq!(signature.expand().take(3).map(|access| access.offset).collect::<Vec<_>>(), [0, 1, 2]);
    let nothing = format!("{{REPEAT,1,{max},({{READ,0,1,([{{1}},{{1}},{{0}}]),{max}}})}}");
    assert_eq!(nothing.parse::<Signature>().expect("the grammar").expand().count(), 0);
}

#[test]
fn errors_name_the_place_and_what_stands_there() {
    let error = |text: &str| text.parse::<Signature>().expect_err(text).to_string();
    let cases = [
        ("{READ,-1,1,([{1},{1},{1}]),1}", "byte 6 of the signature: expected an offset from 0 to 2^64 - 1, found '-1'"),
        ("{SEEK,0", "byte 1 of the signature: expected READ, WRITE, RW, REPEAT or RESIDUAL, found 'SEEK'"),
        ("{READ,0,65,(", "byte 8 of the signature: expected a number of levels from 1 to 64, found '65'"),
        ("{READ,0,1,([{1},{},{1}]),1}", "byte 17 of the signature: expected a size from 0 to 2^64 - 1, found '}'"),
        (
            "{READ,0,2,([{1},{5},{1}],[{1},{1},{1}]),1}",
            "byte 17 of the signature: expected '}': only the innermost level has sizes, found '5'",
        ),
        ("{READ,0,1,([{1},{1},{1}]),1};", "byte 29 of the signature: expected '{', found the end"),
        ("{READ,0,1,([{1},{1},{1}]),1}x", "byte 28 of the signature: expected ';' or the end, found 'x'"),
        ("{RESIDUAL,(Q1+1)}", "byte 11 of the signature: expected an access such as R4096+512 or W0+65536, found 'Q1'"),
        (
            "{READ,99999999999999999999,",
            "byte 6 of the signature: expected an offset from 0 to 2^64 - 1, found '99999999999999999999'",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(error(text), message);
    }
    let deep = format!("{}{{RESIDUAL,(R0+1)}}", "{REPEAT,0,1,(".repeat(65));
    assert!(error(&deep).contains("at most 64 repeats inside each other"));
}
