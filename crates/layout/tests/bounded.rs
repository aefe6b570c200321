//! What few hostile bytes can make a reader of layouts take of memory, counted where it is taken.

mod common;

use common::number;
use std::alloc::{GlobalAlloc, Layout as Shape, System};
use std::cell::Cell;
use stripewise_layout::{DecodeError, Layout, ServerId};

thread_local! {
    static TAKEN_BYTES: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator does the work; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, shape: Shape) -> *mut u8 {
        let _ = TAKEN_BYTES.try_with(|taken| taken.set(taken.get() + shape.size()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(shape) }
    }

    unsafe fn dealloc(&self, at: *mut u8, shape: Shape) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, shape) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` gives, and the bytes of memory that it took, freed ones too.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    TAKEN_BYTES.set(0);
    let done = work();
    (done, TAKEN_BYTES.get())
}

/// `regions` regions of one round of `servers` servers.
fn bomb(servers: u64, regions: u64) -> Vec<u8> {
    let gaps = [vec![0, 0], [1, 0].repeat(regions as usize - 1)].concat();
    [vec![1, 1, 1, 0], number(servers), vec![1], number(regions), gaps].concat()
}

/// One that is refused for its size is refused before memory is taken for its stripes.
#[test]
fn stripes_are_counted_before_memory_is_taken() {
    let mut rounds = vec![1, 15];
    for width in 1..=15 {
        rounds.extend([vec![1, 0], number(65_535), vec![width]].concat());
    }
    let regions: Vec<u8> = (0..17).flat_map(|index| [u8::from(index > 0), index % 15]).collect();
    rounds.extend([vec![17], regions].concat());
    for bytes in [rounds, bomb(65_535, 1000), bomb(60_000, 18)] {
        let (found, taken) = counted(|| Layout::from_bytes(&bytes));
        assert_eq!(found, Err(DecodeError::TooLarge));
        assert!(taken < 100_000, "{} bytes took {taken}", bytes.len());
    }
}

/// A hundred bytes stand for no more servers than the pool has, so that they stay small.
#[test]
fn a_layout_is_bounded_by_the_servers_that_there_are() {
    let bytes = bomb(65_535, 15);
    let (found, taken) = counted(|| Layout::from_bytes_within(&bytes, 8));
    assert_eq!(found, Err(DecodeError::Server { at: 3, servers: 8 }));
    assert!(taken < 10_000, "{} bytes took {taken}", bytes.len());
    for servers in [8_usize, 9, 300] {
        let bytes = bomb(servers as u64, 40);
        let (found, taken) = counted(|| Layout::from_bytes_within(&bytes, servers));
        assert_eq!(found.unwrap().regions().len(), 40);
        assert!(taken < bytes.len() * servers * 200, "{} bytes took {taken}", bytes.len());
        assert!(Layout::from_bytes_within(&bytes, servers - 1).is_err());
    }
    // Many runs that each are within bounds are not more than one.
    let twice = [vec![1, 1, 9], [0, 1, 1].repeat(9), vec![1, 0, 0]].concat();
    assert!(Layout::from_bytes_within(&twice, 8).is_err());
    let many = [vec![1, 1, 30], [0, 8, 1].repeat(30), vec![1, 0, 0]].concat();
    assert_eq!(Layout::from_bytes_within(&many, 8), Err(DecodeError::TooLarge));
    // The metadata tier is in every pool.
    let stripes = [(0, vec![(ServerId::META, 4096)]), (4096, vec![(ServerId(0), 7), (ServerId(7), 9)])];
    let layout = Layout::new(stripes.map(|(offset, round)| {
        let stripe = |(server, width_bytes)| stripewise_layout::Stripe { server, width_bytes };
        (offset, round.into_iter().map(stripe).collect())
    }));
    let layout = layout.unwrap();
    assert_eq!(Layout::from_bytes_within(&layout.to_bytes(), 8), Ok(layout));
}
