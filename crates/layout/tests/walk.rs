//! Where bytes are, against a walk that visits the bytes one by one.

use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use stripewise_layout::{Layout, LayoutError, Location, MAX_OFFSET, ServerId, Stripe, SubRequest};

/// `(offset, round)` per region.
type Rows = Vec<(u64, Vec<(u16, u64)>)>;

fn layout(rows: &Rows, scale: u64) -> Layout {
    let region = |(offset, round): &(u64, Vec<(u16, u64)>)| {
        let stripe = |&(server, width)| Stripe { server: ServerId(server), width_bytes: width * scale };
        (offset * scale, round.iter().map(stripe).collect())
    };
    Layout::new(rows.iter().map(region)).expect("a valid layout")
}

/// The location of every byte in `[0, end)`: rounds are dealt byte by byte, datafile offsets by counting.
fn walk(rows: &Rows, end: u64) -> Vec<Location> {
    let mut places = Vec::new();
    for (region, (offset, round)) in rows.iter().enumerate() {
        let until = rows.get(region + 1).map_or(end, |next| next.0).min(end);
        let mut on_server: HashMap<u16, u64> = HashMap::new();
        // The phase counts from the start of the file.
        let dealt: Vec<usize> =
            round.iter().enumerate().flat_map(|(slot, &(_, width))| vec![slot; width as usize]).collect();
        for x in *offset..until.max(*offset) {
            let slot = dealt[(x % dealt.len() as u64) as usize];
            let server = round[slot].0;
            let count = on_server.entry(server).or_default();
            places.push(Location { region, slot, server: ServerId(server), datafile_offset: offset + *count });
            *count += 1;
        }
    }
    places
}

prop_compose! {
    /// One to four regions; rounds of one to six servers in any order, any of the pool's nine servers left out.
    fn rows()(lengths in prop::collection::vec(1_u64..40, 0..4),
              rounds in prop::collection::vec((prop::sample::subsequence((0_u16..9).collect::<Vec<_>>(), 1..7).prop_shuffle(), prop::collection::vec(1_u64..8, 7)), 4))
              -> Rows {
        let mut offset = 0;
        let mut offsets = vec![0];
        for length in lengths {
            offset += length;
            offsets.push(offset);
        }
        offsets.into_iter().zip(rounds)
            .map(|(offset, (servers, widths))| (offset, servers.into_iter().zip(widths).collect()))
            .collect()
    }
}

proptest! {
    /// Behind the head each byte is on the server and in the slot where it was; before it, in the inode at its own offset.
    #[test]
    fn a_head_in_the_inode_moves_no_other_byte(rows in rows(), head in 1_u64..150, x in 0_u64..300) {
        let before = layout(&rows, 1);
        let after = before.with_head_in_inode(head).expect("a valid layout");
        prop_assert_eq!(after.head_in_inode_bytes(), head);
        let at = after.locate(x);
        if x < head {
            prop_assert_eq!((at.server, at.datafile_offset), (ServerId::META, x));
        } else {
            let was = before.locate(x);
            prop_assert_eq!((at.server, at.slot), (was.server, was.slot));
        }
        prop_assert_eq!(after.with_head_in_inode(head).expect("a valid layout"), after);
    }
}

#[test]
fn a_file_that_is_all_in_the_inode_has_its_head_there_already() {
    let all = Layout::in_inode();
    assert_eq!((all.with_head_in_inode(4096), all.head_in_inode_bytes()), (Ok(all.clone()), MAX_OFFSET + 1));
    assert_eq!(layout(&vec![(0, vec![(1, 4)])], 1).head_in_inode_bytes(), 0);
    assert!(layout(&vec![(0, vec![(1, 4)])], 1).with_head_in_inode(0).is_err());
    assert!(layout(&vec![(0, vec![(1, 4)])], 1).with_head_in_inode(u64::MAX).is_err());
}

/// The byte of the file at `place` of a server's datafile, by the regions that have one there.
fn file_offset(layout: &Layout, server: ServerId, place: u64) -> Option<u64> {
    let found: Vec<u64> = layout
        .regions()
        .iter()
        .enumerate()
        .filter_map(|(number, region)| {
            let slot = region.stripes().iter().position(|stripe| stripe.server == server)?;
            region.file_offset(slot, place).filter(|&x| x < layout.region_end(number))
        })
        .collect();
    assert!(found.len() <= 1, "{place} of {server} is the place of {found:?}");
    found.first().copied()
}

prop_compose! {
    /// A layout, and where it is cut; a part has an origin at which a region or a part begins, or none.
    fn cut_rows()(rows in rows(), cuts in prop::collection::btree_set(1_u64..200, 0..5), origins in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 12))
                 -> (Rows, Vec<(u64, Option<u64>)>) {
        let begins: std::collections::BTreeSet<u64> = rows.iter().map(|row| row.0).chain(cuts).collect();
        let starts: Vec<u64> = begins.into_iter().collect();
        let parts = starts.iter().zip(&origins).enumerate().map(|(index, (&offset, (is_own, which)))| {
            let is_region = rows.iter().any(|row| row.0 == offset);
            (offset, (!(*is_own && is_region)).then(|| starts[which.index(index + 1)]))
        });
        let parts = parts.collect();
        (rows, parts)
    }
}

proptest! {
    /// A part counts its places as one region from its origin on would, with the round that the layout has there.
    #[test]
    fn a_placed_layout_counts_from_its_origins((rows, parts) in cut_rows(), from in 0_u64..200, len in 0_u64..100) {
        let whole = layout(&rows, 1);
        let placed = whole.placed(&parts).unwrap();
        let mut regions = placed.regions().iter();
        for (x, was) in walk(&rows, 300).into_iter().enumerate() {
            let x = x as u64;
            let part = parts[parts.partition_point(|part| part.0 <= x) - 1];
            let origin = part.1.unwrap_or(rows[was.region].0.max(part.0));
            // The bytes before it that its round would have put on its server, dealt one by one from the origin on.
            let round = &rows[was.region].1;
            let dealt: Vec<usize> = round.iter().enumerate().flat_map(|(slot, &(_, width))| vec![slot; width as usize]).collect();
            let before = (origin..x).filter(|byte| dealt[(byte % dealt.len() as u64) as usize] == was.slot).count() as u64;
            let at = placed.locate(x);
            prop_assert_eq!((at.server, at.slot, at.datafile_offset), (was.server, was.slot, origin + before));
            prop_assert_eq!(placed.regions()[at.region].file_offset(at.slot, at.datafile_offset), Some(x));
        }
        prop_assert!(regions.all(|region| whole.regions()[whole.region_at(region.offset())].has_round_of(region)));
        let subs = placed.split(from, len);
        prop_assert_eq!(placed.only_sub(from, len), (subs.len() == 1).then(|| subs[0]));
        for sub in subs {
            let mut place = sub.datafile_offset;
            for (at, bytes) in placed.pieces(&sub) {
                for x in at..at + bytes {
                    let found = placed.locate(x);
                    prop_assert_eq!((found.region, found.slot, found.datafile_offset), (sub.region, sub.slot, place));
                    place += 1;
                }
            }
            prop_assert_eq!(place - sub.datafile_offset, sub.len);
        }
    }
}

#[test]
fn parts_that_do_not_fit_a_layout_are_refused() {
    let layout = layout(&vec![(0, vec![(0, 4), (1, 4)]), (100, vec![(1, 4)])], 1);
    assert_eq!(layout.placed(&[(0, None), (100, None)]), Ok(layout.clone()));
    assert_eq!(layout.placed(&[]), Err(LayoutError::Empty));
    assert_eq!(layout.placed(&[(1, Some(0))]), Err(LayoutError::FirstNotZero(1)));
    assert_eq!(layout.placed(&[(0, None), (50, None)]), Err(LayoutError::NoOrigin(50)));
    assert_eq!(layout.placed(&[(0, None), (50, Some(51))]), Err(LayoutError::OriginBehind { offset: 50, origin: 51 }));
    let twice = layout.placed(&[(0, None), (50, Some(0)), (50, Some(0))]);
    assert_eq!(twice, Err(LayoutError::NotAscending { region: 2, offset: 50, before: 50 }));
    let beyond = layout.placed(&[(0, None), (MAX_OFFSET + 1, Some(0))]);
    assert_eq!(beyond, Err(LayoutError::OffsetTooLarge { region: 1, offset: MAX_OFFSET + 1 }));
    let last = layout.placed(&[(0, None), (MAX_OFFSET, Some(MAX_OFFSET))]).unwrap();
    assert_eq!(last.locate(MAX_OFFSET).datafile_offset, MAX_OFFSET);
}

/// Borders of stripes and regions are where mistakes live: half of the requests begin or end at one.
fn borders(rows: &Rows, end: u64) -> Vec<u64> {
    let mut all: Vec<u64> = rows.iter().map(|row| row.0).collect();
    for (_, round) in rows {
        let length: u64 = round.iter().map(|&(_, width)| width).sum();
        let mut start = 0;
        for &(_, width) in round {
            all.extend((0..).map(|n| n * length + start).take_while(|&x| x <= end));
            start += width;
        }
    }
    all.retain(|&x| x <= end);
    all
}

const END: u64 = 250;

prop_compose! {
    fn request()(rows in rows(), a in 0..=END, b in 0..=END, at_a in any::<prop::sample::Index>(), at_b in any::<prop::sample::Index>(), snap in 0..4)
        -> (Rows, u64, u64) {
        let borders = borders(&rows, END);
        let a = if snap & 1 == 1 { borders[at_a.index(borders.len())] } else { a };
        let b = if snap & 2 == 2 { borders[at_b.index(borders.len())] } else { b };
        (rows, a.min(b), a.max(b))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_byte_is_where_the_walk_puts_it(rows in rows(), scale in prop_oneof![Just(1_u64), Just(4096), Just(1 << 40), Just((1 << 55) - 1)], inside in any::<u64>()) {
        let layout = layout(&rows, scale);
        let inside = inside % scale;
        let mut taken = HashMap::new();
        for (x, small) in walk(&rows, END).into_iter().enumerate() {
            // Bytes of a scaled layout: `inside` bytes into what was one byte.
            let x = x as u64 * scale + inside;
            let want = Location { datafile_offset: small.datafile_offset * scale + inside, ..small };
            prop_assert_eq!(layout.locate(x), want);
            prop_assert_eq!(file_offset(&layout, want.server, want.datafile_offset), Some(x));
            prop_assert_eq!(layout.region_at(x), want.region);
            prop_assert!(taken.insert((want.server, want.datafile_offset), x).is_none(), "two bytes in one place");
        }
        // Places of the datafiles that no byte has.
        if scale == 1 {
            for server in (0..9).map(ServerId) {
                for place in 0..END / 2 {
                    match file_offset(&layout, server, place) {
                        Some(x) if x < END => prop_assert_eq!(taken.get(&(server, place)), Some(&x)),
                        Some(x) => prop_assert_eq!(layout.locate(x).datafile_offset, place),
                        None => prop_assert!(!taken.contains_key(&(server, place))),
                    }
                }
            }
        }
    }

    #[test]
    fn a_request_is_split_as_the_walk_splits_it((rows, from, to) in request(), scale in prop_oneof![Just(1_u64), Just(1 << 40), Just((1 << 55) - 1)]) {
        let layout = layout(&rows, scale);
        // Bytes of the request by region and slot, in file order.
        let mut want: BTreeMap<(usize, usize), Vec<(u64, Location)>> = BTreeMap::new();
        for (x, place) in walk(&rows, END).into_iter().enumerate().take(to as usize).skip(from as usize) {
            want.entry((place.region, place.slot)).or_default().push((x as u64, place));
        }
        let got = layout.split(from * scale, (to - from) * scale);
        prop_assert_eq!(layout.only_sub(from * scale, (to - from) * scale), (got.len() == 1).then(|| got[0]));
        prop_assert_eq!(got.iter().map(|sub| (sub.region, sub.slot)).collect::<Vec<_>>(), want.keys().copied().collect::<Vec<_>>());
        prop_assert_eq!(got.spilled(), got.len() > 16);
        for (sub, bytes) in got.iter().zip(want.values()) {
            prop_assert_eq!(sub.len, bytes.len() as u64 * scale);
            prop_assert_eq!(sub.server, bytes[0].1.server);
            prop_assert_eq!(sub.datafile_offset, bytes[0].1.datafile_offset * scale);
            let mut pieces = layout.pieces(sub);
            let mut left: &[(u64, Location)] = bytes;
            let mut place = sub.datafile_offset;
            for (x, len) in pieces.by_ref() {
                let count = (len / scale) as usize;
                prop_assert_eq!(len % scale, 0);
                prop_assert!(count > 0 && count <= left.len());
                for (i, &(byte, location)) in left[..count].iter().enumerate() {
                    prop_assert_eq!(byte * scale, x + i as u64 * scale);
                    prop_assert_eq!(location.datafile_offset * scale, place + i as u64 * scale);
                }
                // A piece is as long as it can be.
                if let Some(&(next, _)) = left.get(count) {
                    prop_assert!(next * scale > x + len);
                }
                place += len;
                left = &left[count..];
            }
            prop_assert!(left.is_empty());
            prop_assert_eq!(pieces.next(), None);
        }
    }

    /// The last bytes that a file can have: a region that begins just below 2^63, walked to its end.
    #[test]
    fn up_to_the_largest_offset(rows in rows(), below in 1_u64..300, request in 0_u64..300, len in 0_u64..400) {
        let (_, round) = &rows[rows.len() - 1];
        let start = MAX_OFFSET + 1 - below;
        let stripes = |round: &Vec<(u16, u64)>| round.iter().map(|&(server, width_bytes)| Stripe { server: ServerId(server), width_bytes }).collect::<Vec<_>>();
        let layout = Layout::new([(0, stripes(&rows[0].1)), (start, stripes(round))]).unwrap();
        let length: u64 = round.iter().map(|&(_, width)| width).sum();
        let mut counts = vec![0; round.len()];
        let from = start + request.min(below - 1);
        let mut want = vec![0; round.len()];
        for x in start..=MAX_OFFSET {
            let mut phase = x % length;
            let slot = round.iter().position(|&(_, width)| if phase < width { true } else { phase -= width; false }).unwrap();
            let place = start + counts[slot];
            prop_assert_eq!(layout.locate(x), Location { region: 1, slot, server: ServerId(round[slot].0), datafile_offset: place });
            prop_assert_eq!(file_offset(&layout, ServerId(round[slot].0), place), Some(x));
            counts[slot] += 1;
            want[slot] += u64::from(x >= from && x - from < len);
        }
        // Beyond the end there is no byte.
        for (slot, &(server, _)) in round.iter().enumerate() {
            prop_assert_eq!(file_offset(&layout, ServerId(server), start + counts[slot]), None);
            prop_assert_eq!(file_offset(&layout, ServerId(server), u64::MAX), None);
        }
        let subs = layout.split(from, len);
        let mut got = vec![0; round.len()];
        for sub in &subs {
            got[sub.slot] += sub.len;
            prop_assert_eq!(layout.pieces(sub).map(|(_, len)| len).sum::<u64>(), sub.len);
        }
        prop_assert_eq!(got, want);
        let within = len.min(MAX_OFFSET + 1 - from);
        prop_assert_eq!(layout.only_sub(from, within), (subs.len() == 1).then(|| subs[0]));
        // A request may say more than a file can have.
        prop_assert_eq!(layout.split(from, u64::MAX), layout.split(from, MAX_OFFSET + 1 - from));
        prop_assert!(layout.split(MAX_OFFSET + 1, 1).is_empty() && layout.split(u64::MAX, u64::MAX).is_empty());
    }
}

#[test]
fn splitting_to_sixteen_servers_allocates_nothing() {
    let layout = Layout::striped((0..16).map(ServerId), 4096).unwrap();
    let subs = layout.split(1000, 10 << 20);
    assert_eq!((subs.len(), subs.spilled()), (16, false));
    assert_eq!(subs.iter().map(|sub| sub.len).sum::<u64>(), 10 << 20);
    // Two regions of eight.
    let half = |first: u16| {
        (first..first + 8).map(|id| Stripe { server: ServerId(id), width_bytes: 4096 }).collect::<Vec<_>>()
    };
    let layout = Layout::new([(0, half(0)), (1 << 20, half(4))]).unwrap();
    let subs = layout.split(0, 2 << 20);
    assert_eq!((subs.len(), subs.spilled()), (16, false));
    // Large rounds do not make small requests dear: only the servers that hold bytes are there.
    let wide = Layout::striped((0..1000).map(ServerId), 4096).unwrap();
    assert_eq!(wide.split(5 * 4096, 8192).iter().map(|sub| sub.server.0).collect::<Vec<_>>(), [5, 6]);
    assert!(!wide.split(999 * 4096, 8192).spilled());
}

#[test]
fn the_widest_round_there_is() {
    // Two stripes that fill all 2^63-1 bytes.
    let half = MAX_OFFSET / 2;
    let stripes = vec![
        Stripe { server: ServerId(0), width_bytes: half },
        Stripe { server: ServerId(1), width_bytes: MAX_OFFSET - half },
    ];
    let layout = Layout::new([(0, stripes.clone()), (MAX_OFFSET, stripes)]).unwrap();
    assert_eq!(layout.locate(half - 1).server, ServerId(0));
    assert_eq!(layout.locate(half).datafile_offset, 0);
    assert_eq!(layout.locate(MAX_OFFSET - 1).datafile_offset, MAX_OFFSET - half - 1);
    // The last byte of all begins the second round, and the second region.
    let last = layout.locate(MAX_OFFSET);
    assert_eq!((last.region, last.slot, last.datafile_offset), (1, 0, MAX_OFFSET));
    assert_eq!(file_offset(&layout, ServerId(0), MAX_OFFSET), Some(MAX_OFFSET));
    let subs = layout.split(0, MAX_OFFSET + 1);
    assert_eq!(subs.iter().map(|sub: &SubRequest| sub.len).collect::<Vec<_>>(), [half, MAX_OFFSET - half, 1]);
    assert_eq!(layout.pieces(&subs[1]).collect::<Vec<_>>(), [(half, MAX_OFFSET - half)]);
}

#[test]
fn layouts_that_are_none_are_refused() {
    let stripe = |server, width_bytes| Stripe { server: ServerId(server), width_bytes };
    let one = || vec![stripe(0, 1)];
    assert_eq!(Layout::new([]), Err(LayoutError::Empty));
    assert_eq!(Layout::new([(1, one())]), Err(LayoutError::FirstNotZero(1)));
    assert_eq!(
        Layout::new([(0, one()), (5, one()), (5, one())]),
        Err(LayoutError::NotAscending { region: 2, offset: 5, before: 5 })
    );
    assert_eq!(
        Layout::new([(0, one()), (MAX_OFFSET + 1, one())]),
        Err(LayoutError::OffsetTooLarge { region: 1, offset: MAX_OFFSET + 1 })
    );
    assert_eq!(Layout::new([(0, vec![])]), Err(LayoutError::NoStripe(0)));
    assert_eq!(Layout::new([(0, vec![stripe(3, 0)])]), Err(LayoutError::ZeroWidth { region: 0, server: ServerId(3) }));
    assert_eq!(
        Layout::new([(0, vec![stripe(3, 1), stripe(3, 2)])]),
        Err(LayoutError::Repeated { region: 0, server: ServerId(3) })
    );
    assert_eq!(Layout::new([(0, vec![stripe(0, MAX_OFFSET), stripe(1, 1)])]), Err(LayoutError::RoundTooLarge(0)));
    assert_eq!(Layout::new([(0, vec![stripe(0, u64::MAX), stripe(1, 2)])]), Err(LayoutError::RoundTooLarge(0)));
}
