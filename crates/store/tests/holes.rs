//! Holes of striped files: told where the datafiles have them, never where a byte was written, and by how much space
//! the file is said to take.

mod common;

use common::{TestPool, create, layout, pattern};
use proptest::prelude::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stripewise_layout::{Layout, Pattern, ServerId, Stripe};
use stripewise_store::placement::Datafiles;
use stripewise_store::{Inode, Store};

/// Where files of the property end, at most.
const MOST_BYTES: u64 = 300_000;

#[derive(Debug, Clone)]
enum Change {
    Write { at: u64, len: u64 },
    Punch { at: u64, len: u64 },
    Reserve { at: u64, len: u64 },
    Truncate { to: u64 },
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let range = || (0..MOST_BYTES, prop_oneof![1_u64..20, 4000_u64..70_000]);
    let change = prop_oneof![
        4 => range().prop_map(|(at, len)| Change::Write { at, len }),
        2 => range().prop_map(|(at, len)| Change::Punch { at, len }),
        1 => range().prop_map(|(at, len)| Change::Reserve { at, len }),
        1 => (0..MOST_BYTES).prop_map(|to| Change::Truncate { to }),
    ];
    proptest::collection::vec(change, 1..8)
}

fn layouts() -> impl Strategy<Value = Layout> {
    let width = prop_oneof![1_u64..30, Just(4096), Just(16384), 4000_u64..40_000];
    let striped = proptest::collection::btree_map(0_u16..3, width, 1..4);
    let round = prop_oneof![
        4 => striped,
        1 => Just([(ServerId::META.0, 4096)].into()),
    ];
    proptest::collection::vec((1_u64..90_000, round), 1..4).prop_map(|regions| {
        let mut offset = 0;
        let rows = regions.into_iter().map(|(len, round)| {
            let row = (
                offset,
                round.into_iter().map(|(server, width_bytes)| Stripe { server: ServerId(server), width_bytes }),
            );
            offset += len;
            (row.0, row.1.collect())
        });
        Layout::new(rows.collect::<Vec<_>>()).unwrap()
    })
}

fn apply(inode: &Inode, change: &Change) {
    inode.register_writer().unwrap();
    match *change {
        Change::Write { at, len } => common::write_all(inode, &pattern(len as usize, at), at),
        Change::Punch { at, len } => {
            inode.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len).unwrap();
        }
        Change::Reserve { at, len } => inode.allocate(FallocateFlags::empty(), at, len).unwrap(),
        Change::Truncate { to } => inode.truncate(to).unwrap(),
    }
    inode.release_writer().unwrap();
}

/// For each byte of the file whether it is data to the file system that has it: asked there, byte for byte.
fn data_by_bytes(pool: &TestPool, inode: &Inode, own: &OwnedFd, size: u64) -> Vec<bool> {
    let placement = inode.placement().unwrap();
    let datafiles = placement.datafiles().unwrap();
    let mut maps = Vec::new();
    for (index, datafile) in datafiles.table.iter().enumerate() {
        let path = pool.root(datafile.server.index()).join(datafile.path(inode.handle()).as_str());
        let file = placement.present.contains(index).then(|| std::fs::File::open(path).unwrap());
        maps.push(file.map_or(Vec::new(), |file| data_of(file.as_fd())));
    }
    let of_inode = data_of(own.as_fd());
    let is_data = |x: u64| {
        let at = placement.layout.locate(x);
        let index = datafiles.index(at.region, at.slot);
        let map = if index == Datafiles::INODE { &of_inode } else { &maps[usize::from(index)] };
        map.iter().any(|(from, to)| (*from..*to).contains(&at.datafile_offset))
    };
    (0..size).map(is_data).collect()
}

/// Ranges of data of a datafile.
fn data_of(file: rustix::fd::BorrowedFd<'_>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(from) = rustix::fs::seek(file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(file, SeekFrom::Hole(from)).unwrap();
        found.push((from, at));
    }
    found
}

fn file_with(store: &Arc<Store>, layout: &Layout) -> (OwnedFd, Arc<Inode>) {
    store.set_rule(&Pattern::new("**").unwrap(), layout).unwrap();
    create(store, "file")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn holes_are_the_blocks_without_data_in_a_datafile(layout in layouts(), changes in changes()) {
        let pool = TestPool::new(3);
        let store = pool.open();
        let (own, inode) = file_with(&store, &layout);
        changes.iter().for_each(|change| apply(&inode, change));
        let size = inode.size_bytes().unwrap();
        // First: reading makes data of space that was only reserved.
        let content = common::content(&inode);
        let data = data_by_bytes(&pool, &inode, &own, size);
        for (x, byte) in content.iter().enumerate() {
            prop_assert!(data[x] || *byte == 0, "the datafiles say that byte {x} is in a hole, and it is {byte}");
        }
        // By blocks of the file.
        let data: Vec<bool> = data.chunks(4096).flat_map(|block| vec![block.contains(&true); block.len()]).collect();
        // The next of each kind, from the end.
        let (mut next_data, mut next_hole) = (None, size);
        let mut next = vec![(None, size); size as usize];
        for x in (0..size).rev() {
            if data[x as usize] { next_data = Some(x) } else { next_hole = x }
            next[x as usize] = (next_data, next_hole);
        }
        let edges = (1..size).filter(|&x| data[x as usize] != data[x as usize - 1]);
        let edges: Vec<u64> = edges.flat_map(|x| [x - 1, x, x + 1]).take(3000).collect();
        for x in edges.into_iter().chain((0..size).step_by(7919)).chain([0, size.saturating_sub(1)]) {
            let Some((data, hole)) = next.get(x as usize) else { continue };
            let found = inode.seek_data(x).map_err(|error| error.errno());
            prop_assert_eq!(found, data.ok_or(Errno::NXIO), "data from {}", x);
            prop_assert_eq!(inode.seek_hole(x).unwrap(), *hole, "hole from {}", x);
        }
        for x in [size, size + 1, 1 << 62] {
            prop_assert_eq!(inode.seek_data(x).unwrap_err().errno(), Errno::NXIO);
            prop_assert_eq!(inode.seek_hole(x).unwrap_err().errno(), Errno::NXIO);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Holes and bytes come and go between moves, each of which may be stopped when it has copied something.
    #[test]
    fn moves_leave_every_byte(
        first in layouts(),
        then in proptest::collection::vec((changes(), layouts(), any::<bool>()), 1..5),
    ) {
        let pool = TestPool::new(3);
        let store = pool.open();
        let (_own, inode) = file_with(&store, &first);
        for (changes, layout, stops) in then {
            changes.iter().for_each(|change| apply(&inode, change));
            let before = common::content(&inode);
            let moved = inode.move_to(&layout, "file", &mut |done, _| done == 0 || !stops);
            prop_assert!(stops || moved.is_ok(), "{:?}", moved.err());
            prop_assert!(common::content(&inode) == before);
        }
    }
}

/// Holes that are large stay, those among thousands of small ones may be filled, and all bytes are there.
#[test]
fn a_file_with_large_and_small_holes_moves_with_its_bytes() {
    const LARGE: u64 = 40 << 20;
    let pool = TestPool::new(2);
    let store = pool.open();
    let (_own, inode) = file_with(&store, &layout(&[(0, &[(0, 65_536), (1, 12_288)])]));
    inode.register_writer().unwrap();
    inode.truncate(5 * LARGE + 77).unwrap();
    let small = (0..400_u64).map(|number| LARGE + number * 9000 + number % 7 * 40_000);
    let marks: Vec<u64> = small.chain([0, 3 * LARGE - 5, 4 * LARGE + 300_000, 5 * LARGE + 67]).collect();
    marks.iter().for_each(|&at| common::write_all(&inode, &pattern(10, at), at));
    inode.release_writer().unwrap();
    let before = common::content(&inode);
    inode
        .move_to(&layout(&[(0, &[(1, 20_480), (0, 4096)]), (LARGE + 12_345, &[(0, 65_536)])]), "file", &mut |_, _| true)
        .unwrap();
    assert!(common::content(&inode) == before);
    assert_eq!(inode.seek_data(1 << 20).unwrap(), LARGE / 4096 * 4096);
    let taken: u64 = inode.allocated().unwrap().iter().map(|(_, bytes)| bytes).sum();
    assert!(taken < LARGE / 4, "{taken} bytes");
}

/// A program that knows files by blocks (qemu-img asserts it) finds no end of data within one, but at the file's end.
#[test]
fn data_ends_with_a_block_or_with_the_file() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let (_own, inode) = create(&store, "file");
    inode.register_writer().unwrap();
    inode.truncate(30 * 4096).unwrap();
    // The last of the server's datafile, which ends there.
    common::write_all(&inode, b"data", 7 * 4096 + 100);
    common::write_all(&inode, b"data", 30 * 4096 - 128);
    for from in [7 * 4096, 7 * 4096 + 102, 7 * 4096 + 104, 8 * 4096 - 1] {
        assert_eq!(inode.seek_data(from).unwrap(), from);
        assert_eq!(inode.seek_hole(from).unwrap(), 8 * 4096);
    }
    assert_eq!(inode.seek_hole(8 * 4096 + 5).unwrap(), 8 * 4096 + 5);
    assert_eq!(inode.seek_data(8 * 4096 + 5).unwrap(), 29 * 4096);
    assert_eq!(inode.seek_hole(30 * 4096 - 128).unwrap(), 30 * 4096);
    common::write_all(&inode, b"data", 31 * 4096);
    assert_eq!(inode.seek_hole(31 * 4096).unwrap(), 31 * 4096 + 4);
    inode.release_writer().unwrap();
}

/// Stripes of any width: a block that two servers have together, of which one has a hole there, is data, and no answer
/// is within a block.
#[test]
fn holes_begin_and_end_with_blocks_whatever_the_widths() {
    for widths in [[4097, 4097, 4097], [12_345, 999, 8192], [1, 2, 3]] {
        let pool = TestPool::new(3);
        let store = pool.open();
        let stripes = [(0, widths[0]), (1, widths[1]), (2, widths[2])];
        let (_own, inode) = file_with(&store, &layout(&[(0, &stripes[..1]), (77_777, &stripes)]));
        inode.truncate(3_000_001).unwrap();
        for at in [50_000, 1_000_000, 1_000_000 + 3 * 4096, 2_345_678] {
            common::write(&inode, &pattern(20_000, at), at);
        }
        let (mut at, mut holes) = (0, 0);
        while let Ok(data) = inode.seek_data(at) {
            assert!(data.is_multiple_of(4096), "{widths:?}: data at {data}");
            at = inode.seek_hole(data).unwrap();
            assert!(at > data && (at.is_multiple_of(4096) || at == 3_000_001), "{widths:?}: a hole at {at}");
            holes += 1;
        }
        assert!(holes >= 3, "{widths:?}: {holes} holes");
    }
}

/// Every block is half a hole for a while: that is looked through for some way only, and what is behind is read.
#[test]
fn a_search_through_half_blocks_ends() {
    const HALVES: u64 = (1 << 15) + 100;
    let pool = TestPool::new(2);
    let store = pool.open();
    let (_own, inode) = file_with(&store, &layout(&[(0, &[(0, 2048), (1, 2048)])]));
    let size = HALVES * 4096 + (1 << 30);
    inode.truncate(size).unwrap();
    inode.register_writer().unwrap();
    let half = pattern(2048, 1);
    for number in 0..HALVES {
        common::write_all(&inode, &half, number * 4096);
    }
    inode.release_writer().unwrap();
    assert_eq!(inode.seek_hole(0).unwrap(), size);
    assert_eq!(inode.seek_hole((HALVES - 50) * 4096).unwrap(), HALVES * 4096);
    assert_eq!(inode.seek_data(HALVES * 4096).unwrap_err().errno(), Errno::NXIO);
}

/// Two stores are what two mounts are: what one has written when its call returns is no hole to the other, from its
/// first byte on, though datafiles come into being meanwhile.
#[test]
fn what_another_has_written_is_never_in_a_hole() {
    for round in 0..20 {
        let pool = TestPool::new(3);
        let store = pool.open();
        let (_own, inode) = file_with(&store, &layout(&[(0, &[(0, 4096), (1, 8192), (2, 4096)])]));
        let other = pool.open();
        let fd = rustix::fs::openat(other.tree(), "file", OFlags::RDONLY, Mode::empty()).unwrap();
        let seen = other.inode(fd.as_fd()).unwrap().unwrap();
        // Holes that grow, so that each write is the last data there is.
        let place = |number: u64| number * (number + round) * 8192 + 100;
        let written = AtomicU64::new(0);
        const WRITES: u64 = 150;
        inode.register_writer().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=WRITES {
                    common::write_all(&inode, b"data", place(number));
                    written.store(number, Ordering::Release);
                }
            });
            loop {
                let number = written.load(Ordering::Acquire);
                if number > 0 {
                    let at = place(number);
                    assert_eq!(seen.seek_data(at).unwrap(), at);
                    assert!(seen.seek_hole(at).unwrap() >= at + 4);
                    let before = place(number - 1) + 4;
                    assert!(seen.seek_data(before).unwrap() <= at, "write {number} was passed over");
                }
                if number == WRITES {
                    break;
                }
            }
        });
        inode.release_writer().unwrap();
    }
}

/// Space is given to a file while another process writes behind it: what was written stays.
#[test]
fn allocating_cuts_nothing_off_that_another_writes_meanwhile() {
    let pool = TestPool::new(3);
    let (store, other) = (pool.open(), pool.open());
    for round in 0..100 {
        let (own, inode) = create(&store, &format!("file{round}"));
        let seen = other.inode(own.as_fd()).unwrap().unwrap();
        inode.register_writer().unwrap();
        seen.register_writer().unwrap();
        let together = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                (0..20).for_each(|number| common::write_all(&seen, b"data", 100_000 + number * 4096));
            });
            together.wait();
            (1..=20).for_each(|number| inode.allocate(FallocateFlags::empty(), 0, number * 10_000).unwrap());
        });
        inode.release_writer().unwrap();
        seen.release_writer().unwrap();
        let content = common::content(&inode);
        assert_eq!(content.len(), 200_000);
        for number in 0..20 {
            let at = 100_000 + number * 4096;
            assert_eq!(&content[at..at + 4], b"data", "round {round}, write {number}");
        }
    }
}

/// A file is made longer while another process writes and syncs it.
#[test]
fn a_sync_undoes_no_size_that_another_sets_meanwhile() {
    let pool = TestPool::new(3);
    let (store, other) = (pool.open(), pool.open());
    let (own, inode) = create(&store, "file");
    let seen = other.inode(own.as_fd()).unwrap().unwrap();
    inode.register_writer().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..1000 {
                common::write_all(&inode, b"data", number * 10_000);
                inode.sync(true).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let mut last = 0;
        while !done.load(Ordering::Acquire) {
            let now = seen.size_bytes().unwrap();
            assert!(now >= last, "{last} was set, and is {now}");
            last = now + 7;
            seen.truncate(last).unwrap();
        }
    });
    inode.release_writer().unwrap();
}

#[test]
fn a_server_that_is_missing_has_no_holes() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let (_own, inode) = create(&store, "file");
    common::write(&inode, b"end", 1 << 30);
    common::write(&inode, b"x", 4096);
    assert_eq!(inode.seek_data(8192).unwrap(), 1 << 30);
    drop((inode, store));
    std::fs::rename(pool.root(1), pool.directory.path().join("away")).unwrap();
    let store = pool.open();
    let fd = rustix::fs::openat(store.tree(), "file", OFlags::RDONLY, Mode::empty()).unwrap();
    let inode = store.inode(fd.as_fd()).unwrap().unwrap();
    // Stripes 1, 4, 7 ... are on it.
    assert_eq!(inode.seek_data(0).unwrap(), 4096);
    assert_eq!(inode.seek_data(8192).unwrap(), 4 * 4096);
    assert_eq!(inode.seek_hole(4096).unwrap(), 8192);
    assert_eq!(inode.read_at(&mut [0; 10], 4 * 4096).unwrap_err().errno(), Errno::IO);
}

#[test]
fn holes_go_over_many_regions() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let regions: Vec<(u64, &[(u16, u64)])> = (0..1000)
        .map(|region| (region * 10_000_000, if region % 2 == 0 { &[(0, 4096), (1, 4096)][..] } else { &[(2, 4096)] }))
        .collect();
    let (_own, inode) = file_with(&store, &layout(&regions));
    // What ext4 has room for.
    inode.truncate(1 << 43).unwrap();
    assert_eq!(inode.seek_data(0).unwrap_err().errno(), Errno::NXIO);
    assert_eq!(inode.seek_hole(0).unwrap(), 0);
    let at = 999 * 10_000_000 + 4096;
    common::write(&inode, b"x", at);
    // A block of the datafile lies in two blocks of the file.
    let (data, hole) = (inode.seek_data(0).unwrap(), inode.seek_hole(at).unwrap());
    assert!((at - 8190..=at).contains(&data) && data.is_multiple_of(4096), "{data}");
    assert!((at + 1..=at + 8191).contains(&hole) && hole.is_multiple_of(4096), "{hole}");
    assert_eq!(inode.seek_data(hole).unwrap_err().errno(), Errno::NXIO);
}

#[test]
fn the_space_of_a_large_file_is_what_its_servers_have_given() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let (own, inode) = create(&store, "file");
    let stat = || rustix::fs::fstat(&own).unwrap();
    let blocks = |store: &Arc<Store>| store.attributes(own.as_fd(), &stat(), None).unwrap().blocks;
    inode.register_writer().unwrap();
    common::write_all(&inode, &pattern(100_000, 1), 1 << 40);
    let open = inode.attributes().unwrap().blocks;
    assert!((100_000_u64.div_ceil(512)..2000).contains(&open), "{open} blocks");
    inode.release_writer().unwrap();
    assert_eq!(blocks(&store), open);
    drop(inode);
    assert_eq!(blocks(&pool.open()), open, "of a closed file");
    std::fs::rename(pool.root(1), pool.directory.path().join("away")).unwrap();
    assert_eq!(blocks(&pool.open()), ((1_u64 << 40) + 100_000).div_ceil(512), "what is missing is not nothing");
}

#[test]
fn a_large_file_says_by_its_handle_whether_it_has_holes() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let (own, inode) = create(&store, "file");
    let sparse = || {
        let mut bytes = [0; 4096];
        let length = rustix::fs::fgetxattr(&own, stripewise_store::handle::ATTRIBUTE, &mut bytes[..]).unwrap();
        stripewise_store::handle::Handle::decode(&bytes[..length]).unwrap().sparse
    };
    let with_writer = |change: &dyn Fn()| {
        inode.register_writer().unwrap();
        change();
        inode.release_writer().unwrap();
    };
    const LARGE: usize = stripewise_store::COUNTED_BYTES as usize;
    with_writer(&|| common::write_all(&inode, b"end", LARGE as u64));
    assert!(sparse());
    with_writer(&|| common::write_all(&inode, &pattern(LARGE, 1), 0));
    assert!(!sparse(), "all of it is written");
    assert_eq!(inode.attributes().unwrap().blocks, (LARGE as u64 + 3).div_ceil(512));
    inode.truncate(1 << 30).unwrap();
    assert!(sparse());
}

/// A move into the inode that was stopped has left bytes there, which are no byte of the file: a hole that comes meanwhile is one in the
/// inode, too, when the file moves there at last.
#[test]
fn a_hole_that_moves_to_the_inode_covers_what_a_stopped_move_left_there() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let (_own, inode) = file_with(&store, &layout(&[(0, &[(0, 4096), (1, 4096)])]));
    let mut bytes = pattern(100_000, 5);
    common::write(&inode, &bytes, 0);
    let with_head = layout(&[(0, &[(0, 4096), (1, 4096)])]).with_head_in_inode(65_536).unwrap();
    inode.move_to(&with_head, "file", &mut |done, _| done == 0).unwrap_err();
    apply(&inode, &Change::Punch { at: 0, len: 16_384 });
    bytes[..16_384].fill(0);
    assert!(common::content(&inode) == bytes);
    inode.move_to(&with_head, "file", &mut |_, _| true).unwrap();
    assert!(common::content(&inode) == bytes);
}

/// Space that was reserved is a hole when the file has moved, and its blocks are counted as of any file with holes.
#[test]
fn a_file_with_reserved_space_takes_what_it_holds_when_it_has_moved() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let (_own, inode) = file_with(&store, &layout(&[(0, &[(0, 65_536)])]));
    apply(&inode, &Change::Reserve { at: 0, len: 20 << 20 });
    assert!(inode.attributes().unwrap().blocks >= (20 << 20) / 512);
    inode.move_to(&layout(&[(0, &[(1, 65_536)])]), "file", &mut |_, _| true).unwrap();
    let taken: u64 = inode.allocated().unwrap().iter().map(|(_, bytes)| bytes).sum();
    let blocks = inode.attributes().unwrap().blocks;
    assert!(taken < 1 << 20 && blocks < 2048, "{taken} bytes taken, {blocks} blocks told");
}
