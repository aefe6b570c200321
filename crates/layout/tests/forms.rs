//! The text and the binary form of layouts: what is written is read back, what is wrong is said, nothing panics.

mod common;

use common::number;
use proptest::prelude::*;
use stripewise_layout::{
    DecodeError, FileLayout, Layout, LayoutFile, MAX_OFFSET, MAX_STRIPES, Pattern, ServerId, ServerNames, Stripe,
    round_entries,
};

fn names() -> ServerNames {
    ServerNames::new([("hdd".into(), 6), ("ssd.fast".into(), 2), ("nvme".into(), 300)]).unwrap()
}

prop_compose! {
    /// Any valid layout over the servers of [`names`] and the metadata tier, often with runs of equal widths.
    fn layouts()(gaps in prop::collection::vec(prop_oneof![1_u64..5, Just(1 << 20), Just(1 << 61)], 0..4),
                 rounds in prop::collection::vec((prop::sample::subsequence((0_u16..12).chain([306, 307, u16::MAX]).collect::<Vec<_>>(), 1..15), any::<bool>(),
                                                  prop::collection::vec(prop_oneof![Just(65536_u64), Just(1), 1_u64..1 << 57], 16)), 5))
                 -> Layout {
        let mut offset = 0;
        let offsets: Vec<u64> = std::iter::once(0).chain(gaps.into_iter().map(|gap| { offset += gap; offset })).collect();
        Layout::new(offsets.into_iter().zip(rounds).map(|(offset, (mut servers, backwards, widths))| {
            if backwards {
                servers.reverse();
            }
            let stripes = servers.into_iter().zip(widths).map(|(id, width_bytes)| Stripe { server: ServerId(id), width_bytes });
            (offset, stripes.collect())
        })).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn binary_round_trip(layout in layouts(), other in layouts()) {
        let bytes = layout.to_bytes();
        prop_assert_eq!(Layout::from_bytes(&bytes), Ok(layout.clone()));
        prop_assert_eq!(layout.hash() == other.hash(), layout == other);
        // Every prefix is an error, and so is anything after.
        for end in 0..bytes.len() {
            prop_assert!(Layout::from_bytes(&bytes[..end]).is_err());
        }
        let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        prop_assert_eq!(Layout::from_bytes(&longer), Err(DecodeError::NotCanonical));
    }

    #[test]
    fn text_round_trip(layouts in prop::collection::vec(layouts(), 0..4), paths in prop::collection::hash_set("[a-z*?\"\\\\\u{1}é ]{1,6}", 4), note in prop::option::of("\\PC{0,9}|[\u{0}-\u{20}\"\\\\]{0,9}")) {
        let names = names();
        let files = layouts.into_iter().zip(paths).map(|(layout, path)| FileLayout {
            path: Pattern::exact(&path).unwrap(),
            region_notes: if note.is_some() { vec![note.clone(); layout.regions().len()] } else { Vec::new() },
            layout,
            note: note.clone(),
        });
        let file = LayoutFile { pool: "sc\"ratch".into(), files: files.collect() };
        let text = file.to_toml(&names);
        prop_assert_eq!(&LayoutFile::parse(&text, &names).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?, &file);
        // Without the pool the servers have other numbers but the same names: the text is the same again.
        let (named, as_named) = LayoutFile::parse_as_named(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(named.to_toml(&as_named), text);
    }

    #[test]
    fn line_round_trip(layout in layouts()) {
        let line = layout.to_line(&names());
        prop_assert_eq!(Layout::parse_line(&line, &names()), Ok(layout), "{}", line);
    }

    #[test]
    fn any_line_is_a_layout_or_an_error(line in "\\PC{0,40}|[hdsmnevta0-9.,:/@KiB\"\\\\ -]{0,40}") {
        if let Ok(layout) = Layout::parse_line(&line, &names()) {
            prop_assert_eq!(Layout::parse_line(&layout.to_line(&names()), &names()), Ok(layout));
        }
    }

    #[test]
    fn any_bytes_are_a_layout_or_an_error(bytes in prop::collection::vec(prop_oneof![Just(1_u8), 0_u8..8, any::<u8>()], 0..60)) {
        check(&bytes);
        check(&[&[1], &bytes[..]].concat());
    }

    #[test]
    fn damaged_bytes_are_a_layout_or_an_error(layout in layouts(), place in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = layout.to_bytes();
        let place = place.index(bytes.len());
        bytes[place] = value;
        check(&bytes);
        bytes.remove(cut.index(bytes.len()));
        check(&bytes);
    }

    #[test]
    fn damaged_text_is_a_layout_or_an_error(layout in layouts(), place in any::<prop::sample::Index>(), junk in "[\\PC\n]{0,3}", cut in 0_usize..4) {
        let names = names();
        let file = FileLayout { path: Pattern::new("a/*").unwrap(), layout, note: None, region_notes: Vec::new() };
        let mut text = LayoutFile { pool: "p".into(), files: vec![file] }.to_toml(&names);
        let place = place.index(text.len());
        text.replace_range(place..(place + cut).min(text.len()), &junk);
        for result in [LayoutFile::parse(&text, &names), LayoutFile::parse_as_named(&text).map(|(file, _)| file)] {
            if let Err(error) = result {
                prop_assert!((1..=text.lines().count() + 1).contains(&error.line), "{error}");
            }
        }
    }
}

/// Decoding succeeds only for the one form of a valid layout.
fn check(bytes: &[u8]) {
    if let Ok(layout) = Layout::from_bytes(bytes) {
        assert_eq!(layout.to_bytes(), bytes);
    }
}

#[test]
fn the_binary_form_is_compact_and_fixed() {
    let round = |h: u64, s: u64| -> Vec<Stripe> {
        let widths = std::iter::repeat_n(h, 6).chain(std::iter::repeat_n(s, 2));
        (0..).zip(widths).map(|(id, width_bytes)| Stripe { server: ServerId(id), width_bytes }).collect()
    };
    let layout = Layout::new([(0, round(1, 2)), (300, round(3, 4)), (301, round(1, 2))]).unwrap();
    // Version; two rounds of two runs (first, servers, width); three regions (gap, round). A change of this form needs a new version.
    let want = [1, 2, 2, 0, 6, 1, 6, 2, 2, 2, 0, 6, 3, 6, 2, 4, 3, 0, 0, 0xAC, 2, 1, 1, 0];
    assert_eq!(layout.to_bytes(), want);
    assert_eq!(layout.hash(), *blake3::hash(&want).as_bytes());

    let regions = (0..10_000).map(|i| (i << 30, round(1 + (i & 1), 65536)));
    assert!(Layout::new(regions).unwrap().to_bytes().len() < 70_000);
}

#[test]
fn few_bytes_cannot_ask_for_much() {
    // One round of 65,536 servers, used by a thousand regions.
    let mut bytes = vec![1, 1, 1, 0];
    bytes.extend(number(65_536));
    bytes.push(1);
    bytes.extend(number(1000));
    bytes.extend([0, 0]);
    bytes.extend([1, 0].repeat(999));
    assert_eq!(Layout::from_bytes(&bytes), Err(DecodeError::TooLarge));
    // The same with as many distinct rounds.
    let mut bytes = vec![1, 100];
    for width in 1..=100 {
        bytes.extend([1, 0]);
        bytes.extend(number(65_536));
        bytes.push(width);
    }
    bytes.extend([1, 0, 0]);
    assert_eq!(Layout::from_bytes(&bytes), Err(DecodeError::TooLarge));
    // Counts beyond the bytes that are there.
    for count in [5, 1 << 20, u64::MAX] {
        let rounds = [vec![1], number(count)].concat();
        assert!(matches!(Layout::from_bytes(&rounds), Err(DecodeError::Number(1))), "{count}");
        let regions = [vec![1, 1, 1, 0, 1, 1], number(count), vec![0]].concat();
        assert!(Layout::from_bytes(&regions).is_err());
    }
    assert_eq!(Layout::from_bytes(&[]), Err(DecodeError::Truncated(0)));
    assert_eq!(Layout::from_bytes(&[2, 0]), Err(DecodeError::Version(2)));
    // Eleven bytes of one number; a server beyond 65,535; the same number written longer.
    assert_eq!(Layout::from_bytes(&[[1].as_slice(), &[0xFF; 11]].concat()), Err(DecodeError::Number(1)));
    assert_eq!(Layout::from_bytes(&[1, 1, 1, 0xFF, 0xFF, 3, 2, 1, 1, 0, 0]), Err(DecodeError::Number(3)));
    assert_eq!(Layout::from_bytes(&[1, 1, 1, 0, 1, 1, 1, 0, 0]).map(|layout| layout.regions().len()), Ok(1));
    assert_eq!(Layout::from_bytes(&[1, 1, 1, 0x80, 0, 1, 1, 1, 0, 0]), Err(DecodeError::NotCanonical));
    const { assert!(MAX_STRIPES < 2_000_000) };
}

const GOOD: &str = r#"version = 1
pool = "scratch"

[[file]]
path = "data/shared.dat"
note = "4.1 x"
[[file.region]]
offset = "0"
round = ["hdd.0-5:64KiB", "ssd.fast.0-1:192KiB"]
[[file.region]]
offset = 8388608
round = ["ssd.fast.1:1MiB", "meta:4KiB"]
note = "hot"

[[file]]
path = "**/*.h5"
[[file.region]]
offset = "0"
round = ["nvme.7:4096"]
"#;

#[test]
fn reads_a_layout_file() {
    let names = names();
    let file = LayoutFile::parse(GOOD, &names).unwrap();
    assert_eq!((file.pool.as_str(), file.files.len()), ("scratch", 2));
    let shared = &file.files[0];
    assert_eq!(shared.path.exact_path().as_deref(), Some("data/shared.dat"));
    assert_eq!(shared.note.as_deref(), Some("4.1 x"));
    assert_eq!(shared.region_notes, [None, Some("hot".to_owned())]);
    let regions = shared.layout.regions();
    assert_eq!((regions[0].stripes().len(), regions[0].round_bytes()), (8, (6 * 64 + 2 * 192) << 10));
    assert_eq!(regions[1].offset(), 8 << 20);
    assert_eq!(
        regions[1].stripes().iter().map(|stripe| stripe.server).collect::<Vec<_>>(),
        [ServerId(7), ServerId::META]
    );
    assert!(file.files[1].path.matches(b"a/b/c.h5"));
    assert_eq!(file.files[1].layout.regions()[0].stripes()[0].server, ServerId(15));
    assert_eq!(round_entries(regions[0].stripes(), &names), ["hdd.0-5:64KiB", "ssd.fast.0-1:192KiB"]);
}

#[test]
fn consecutive_equal_widths_are_one_entry() {
    let round = |stripes: &[(u16, u64)]| {
        let stripes: Vec<Stripe> =
            stripes.iter().map(|&(id, width_bytes)| Stripe { server: ServerId(id), width_bytes }).collect();
        round_entries(&stripes, &names())
    };
    assert_eq!(round(&[(4, 1), (5, 1), (6, 1), (7, 1)]), ["hdd.4-5:1B", "ssd.fast.0-1:1B"]);
    assert_eq!(round(&[(1, 1), (0, 1), (2, 1), (3, 2)]), ["hdd.1:1B", "hdd.0:1B", "hdd.2:1B", "hdd.3:2B"]);
    assert_eq!(round(&[(u16::MAX, 1024), (0, 1)]), ["meta:1KiB", "hdd.0:1B"]);
}

/// `GOOD` with one change, the line of the error and what it says.
fn refuses(from: &str, to: &str, line: usize, says: &str) {
    let text = GOOD.replacen(from, to, 1);
    assert_ne!(text, GOOD, "{from}");
    let error = LayoutFile::parse(&text, &names()).expect_err(to).to_string();
    assert!(error.starts_with(&format!("line {line}: ")) && error.contains(says), "{to}: {error}");
}

#[test]
fn errors_name_the_line_and_the_thing() {
    refuses("version = 1", "version = 2", 1, "version 2 is not known");
    refuses("version = 1\n", "", 1, "version");
    refuses("pool = \"scratch\"", "poool = \"scratch\"", 2, "poool");
    refuses("note = \"4.1 x\"", "heat = 1", 6, "heat");
    refuses("path = \"data/shared.dat\"", "path = \"/data\"", 5, "'/data' starts at the root");
    refuses("path = \"**/*.h5\"", "path = \"data/shared.dat\"", 16, "stands here and in line 5");
    refuses("[[file.region]]\noffset = \"0\"\nround = [\"nvme.7:4096\"]\n", "", 16, "'**/*.h5' has no region");
    refuses("offset = \"0\"", "offset = \"4KiB\"", 8, "the first region starts at 4096");
    refuses("offset = 8388608", "offset = 0", 11, "not after the region before it");
    refuses("offset = 8388608", "offset = -1", 11, "number of bytes");
    refuses("offset = 8388608", "offset = \"8 MiBs\"", 11, "'8 MiBs' is not a number of bytes");
    refuses("offset = 8388608", "offset = \"9223372036854775808\"", 11, "beyond the largest file offset");
    refuses("offset = 8388608", "offset = true", 11, "number of bytes");
    refuses("hdd.0-5:64KiB", "hdd.0-6:64KiB", 9, "there is no server hdd.6; the tier has 6 servers");
    refuses("hdd.0-5:64KiB", "disk.0:64KiB", 9, "there is no tier 'disk'; the pool has hdd, ssd.fast, nvme");
    refuses("hdd.0-5:64KiB", "hdd.0-5", 9, "'hdd.0-5' is not a server with a width");
    refuses("hdd.0-5:64KiB", "hdd.5-0:64KiB", 9, "is not a server with a width");
    refuses("hdd.0-5:64KiB", "hdd.0-5:0", 9, "'hdd.0-5:0': the width is 0; leave the server out");
    refuses("hdd.0-5:64KiB", "ssd.fast.1:64KiB", 9, "server ssd.fast.1 stands twice in the round");
    refuses("hdd.0-5:64KiB", "hdd.0:9223372036854775807", 9, "more than 2^63-1");
    refuses("hdd.0-5:64KiB", "hdd.0:64KiBs", 9, "'64KiBs' is not a number of bytes");
    refuses("[\"nvme.7:4096\"]", "[]", 19, "the round is empty");
    refuses("[\"nvme.7:4096\"]", "[4096]", 19, "expected a string");
    refuses("[\"nvme.7:4096\"]", "[\"nvme.7:4096\"", 19, "");
}

#[test]
fn a_small_text_cannot_ask_for_much() {
    let region = |i: u64| format!("[[file.region]]\noffset = \"{i}\"\nround = [\"t.0-65533:1\"]\n");
    let regions: String = (0..20).map(region).collect();
    let text = format!("version = 1\npool = \"p\"\n[[file]]\npath = \"a\"\n{regions}");
    let error = LayoutFile::parse_as_named(&text).unwrap_err();
    assert!(error.to_string().contains("stripes in all"), "{error}");
    let two = "version = 1\npool = \"p\"\n[[file]]\npath = \"a\"\n[[file.region]]\noffset = \"0\"\nround = [\"t.65533:1\", \"u.7:1\"]\n";
    assert!(LayoutFile::parse_as_named(two).is_err());
    assert_eq!(MAX_OFFSET, (1 << 63) - 1);
}

#[test]
fn a_wrong_line_says_what_is_wrong_with_it() {
    let wrong = [
        ("", "'' is not a server with a width, such as \"hdd.0:64KiB\", \"hdd.0-5:64KiB\" or \"meta:64KiB\""),
        ("hdd.0-6:64KiB", "'hdd.0-6:64KiB': there is no server hdd.6; the tier has 6 servers, from 0 on"),
        ("hdd.0:0", "'hdd.0:0': the width is 0; leave the server out instead"),
        (
            "meta:64KiB/hdd.0:64KiB",
            "'hdd.0:64KiB' does not say where the region begins: write it as in \"64KiB@hdd.0-5:64KiB\"",
        ),
        ("hdd.0:1KiB\"]\n[[file]]", "'hdd.0:1KiB\"]\n[[file]]' is not a server with a width, such as"),
        ("hdd.0:1KiB/@hdd.0:1KiB", ""),
    ];
    for (line, said) in wrong {
        let error = Layout::parse_line(line, &names()).unwrap_err().to_string();
        assert!(error.starts_with(said), "{line}: {error}");
    }
}
