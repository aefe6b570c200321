//! Blocks in which readers ask for many small pieces in no order: which are fetched as a whole, and kept.
//!
//! A piece costs a disk nearly as much as the block that it is in: the way there is what takes long. Which blocks readers come back to is
//! not known before. So a block is worth a fetch with the request by which the pieces of it have cost as much as it does as a whole:
//! whatever comes then, the servers work no longer than twice as long as if that had been known (the rent of skis).
//!
//! Readers that are spread wide come back to few blocks before others have taken their place. So blocks are noted at first as if
//! they were fetched, and none is until what they would have saved is as much as they would have cost.

use std::collections::VecDeque;

/// Of a block, at most.
pub(crate) const MOST_BLOCK_BYTES: u64 = 1 << 20;
/// Blocks of a file that are noted or kept, and others of which it is known what their pieces have cost.
const MOST_BLOCKS: usize = 64;

/// A block that is worth a fetch.
#[derive(Debug)]
struct DenseBlock<T> {
    begin: u64,
    /// `None`: it was not fetched.
    what: Option<T>,
}

/// What is to be done for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dense<T> {
    /// Its block is kept.
    Here(T),
    /// The block that begins here is to be fetched, of that many bytes.
    Fetch(u64, u64),
    /// It asks the servers for what it needs.
    No,
}

/// The blocks of one file.
#[derive(Debug)]
pub(crate) struct DenseBlocks<T> {
    /// Of a block. Blocks begin at multiples of it.
    block_bytes: u64,
    /// The one that was used last comes last.
    blocks: VecDeque<DenseBlock<T>>,
    /// Beginnings of others with what their pieces have cost, in microseconds. The one of the last request comes last.
    spent: VecDeque<(u64, f32)>,
    /// Blocks that were worth a fetch, what they cost, and what they save; of the earlier ones a half, a quarter and so on.
    judged: usize,
    cost_us: f32,
    saved_us: f32,
}

impl<T> Default for DenseBlocks<T> {
    fn default() -> Self {
        Self { block_bytes: 0, blocks: VecDeque::new(), spent: VecDeque::new(), judged: 0, cost_us: 0.0, saved_us: 0.0 }
    }
}

impl<T: Clone> DenseBlocks<T> {
    /// A request comes for what was not fetched otherwise. Blocks have `block_bytes`, which are not 0. `price_us` is how long servers work for
    /// a stretch, offset and length; `None` where that is not known. O(blocks), and two prices where the block is not kept.
    pub(crate) fn note(
        &mut self,
        (offset, len): (u64, u64),
        block_bytes: u64,
        price_us: impl Fn(u64, u64) -> Option<f32>,
    ) -> Dense<T> {
        if self.block_bytes != block_bytes {
            *self = Self { block_bytes, ..Self::default() };
        }
        let begin = offset - offset % block_bytes;
        // More than half a block is no small piece of it.
        if 2 * len > block_bytes || offset - begin + len > block_bytes {
            return Dense::No;
        }
        let Some(piece_us) = price_us(offset, len) else { return Dense::No };
        if let Some(at) = self.blocks.iter().position(|block| block.begin == begin) {
            self.saved_us += piece_us;
            if let Some(block) = self.blocks.remove(at) {
                self.blocks.push_back(block);
            }
        } else {
            let Some(block_us) = price_us(begin, block_bytes) else { return Dense::No };
            if !self.is_worth_it(begin, piece_us, block_us) {
                return Dense::No;
            }
            self.add(begin, piece_us, block_us);
        }
        match self.blocks.back().and_then(|block| block.what.clone()) {
            Some(what) => Dense::Here(what),
            None if self.saved_us >= self.cost_us => Dense::Fetch(begin, block_bytes),
            None => Dense::No,
        }
    }

    /// The last block that was to be fetched holds what was.
    pub(crate) fn put(&mut self, what: T) {
        if let Some(block) = self.blocks.back_mut() {
            block.what = Some(what);
        }
    }

    /// Lets go of blocks that are old. O(blocks).
    pub(crate) fn let_go_of_old(&mut self, is_old: impl Fn(&T) -> bool) {
        self.blocks.retain(|block| !block.what.as_ref().is_some_and(&is_old));
    }

    /// Whether the pieces of a block have cost as much as all of it, with one that costs `piece_us`.
    fn is_worth_it(&mut self, begin: u64, piece_us: f32, block_us: f32) -> bool {
        let before = self.spent.iter().position(|spent| spent.0 == begin).and_then(|at| self.spent.remove(at));
        let spent_us = before.map_or(0.0, |spent| spent.1) + piece_us;
        if spent_us >= block_us {
            return true;
        }
        if self.spent.len() == MOST_BLOCKS {
            self.spent.pop_front();
        }
        self.spent.push_back((begin, spent_us));
        false
    }

    /// The block that was not used for longest leaves for another, which saves the piece that it is fetched for.
    fn add(&mut self, begin: u64, piece_us: f32, block_us: f32) {
        if self.blocks.len() == MOST_BLOCKS {
            self.blocks.pop_front();
        }
        self.blocks.push_back(DenseBlock { begin, what: None });
        if self.judged >= MOST_BLOCKS {
            (self.judged, self.cost_us, self.saved_us) = (self.judged / 2, self.cost_us / 2.0, self.saved_us / 2.0);
        }
        self.judged += 1;
        self.cost_us += block_us;
        self.saved_us += piece_us;
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A disk: 8.5 ms, and 150 MB/s.
    fn disk(_: u64, len: u64) -> Option<f32> {
        Some(8500.0 + len as f32 / 150.0)
    }

    /// 0.1 ms, and 500 MB/s.
    fn ssd(_: u64, len: u64) -> Option<f32> {
        Some(100.0 + len as f32 / 500.0)
    }

    /// What the servers do for requests, with and without blocks, in microseconds, and the bytes that are kept at most.
    fn served(requests: &[(u64, u64)], price_us: fn(u64, u64) -> Option<f32>) -> (f64, f64, u64) {
        let (mut blocks, mut with_us, mut without_us, mut kept_bytes) = (DenseBlocks::default(), 0.0, 0.0, 0);
        for &(offset, len) in requests {
            let piece_us = f64::from(price_us(offset, len).unwrap_or_default());
            without_us += piece_us;
            match blocks.note((offset, len), MOST_BLOCK_BYTES, price_us) {
                Dense::Here((begin, held)) => assert!(begin <= offset && offset + len <= begin + held),
                Dense::Fetch(begin, held) => {
                    assert!(begin <= offset && offset + len <= begin + held);
                    with_us += f64::from(price_us(begin, held).unwrap_or_default());
                    blocks.put((begin, held));
                }
                Dense::No => with_us += piece_us,
            }
            let held = blocks.blocks.iter().filter_map(|block| block.what).map(|(_, held)| held);
            kept_bytes = kept_bytes.max(held.sum());
        }
        (with_us, without_us, kept_bytes)
    }

    /// Numbers below `most` in no order.
    fn random(count: u64, most: u64) -> impl Iterator<Item = u64> {
        (1..=count).map(move |number| {
            let mixed = (number ^ number << 21).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) % most
        })
    }

    fn pieces(count: u64, len: u64, of_bytes: u64) -> Vec<(u64, u64)> {
        random(count, of_bytes / len).map(|piece| (piece * len, len)).collect()
    }

    #[test]
    fn what_readers_come_back_to_is_fetched_once() {
        let (with_us, without_us, kept_bytes) = served(&pieces(4000, 16 << 10, 24 << 20), disk);
        assert!(with_us < 0.06 * without_us, "{with_us} of {without_us}");
        assert_eq!(kept_bytes, 24 << 20);
    }

    #[test]
    fn readers_that_are_spread_wide_lose_next_to_nothing() {
        for (of_bytes, price_us) in
            [(512 << 20, disk as fn(u64, u64) -> Option<f32>), (8 << 30, disk), (512 << 20, ssd)]
        {
            for len in [4 << 10, 64 << 10, 256 << 10] {
                let (with_us, without_us, _) = served(&pieces(20_000, len, of_bytes), price_us);
                assert!(with_us < 1.01 * without_us, "{len} of {of_bytes}: {with_us} of {without_us}");
            }
        }
    }

    #[test]
    fn nothing_is_fetched_without_prices_or_for_large_pieces_or_across_blocks() {
        let mut blocks = DenseBlocks::<()>::default();
        for _ in 0..1000 {
            assert_eq!(blocks.note((0, 4096), MOST_BLOCK_BYTES, |_, _| None), Dense::No);
            assert_eq!(blocks.note((0, MOST_BLOCK_BYTES / 2 + 1), MOST_BLOCK_BYTES, disk), Dense::No);
            assert_eq!(blocks.note((MOST_BLOCK_BYTES - 1, 2), MOST_BLOCK_BYTES, disk), Dense::No);
        }
        assert!(blocks.blocks.is_empty() && blocks.spent.is_empty());
    }

    #[test]
    fn what_is_old_has_to_be_worth_another_fetch() {
        let mut blocks = DenseBlocks::default();
        let mut fetched = 0;
        for (offset, len) in pieces(400, 16 << 10, 8 << 20) {
            if let Dense::Fetch(begin, _) = blocks.note((offset, len), MOST_BLOCK_BYTES, disk) {
                blocks.put(begin);
                fetched += 1;
            }
        }
        assert_eq!(fetched, 8);
        blocks.let_go_of_old(|begin| *begin == 0);
        assert_eq!(blocks.note((0, 4096), MOST_BLOCK_BYTES, disk), Dense::No, "one piece does not cost as much");
        assert_eq!(blocks.note((4096, 4096), MOST_BLOCK_BYTES, disk), Dense::Fetch(0, MOST_BLOCK_BYTES));
        assert_eq!(blocks.note((MOST_BLOCK_BYTES, 4096), MOST_BLOCK_BYTES, disk), Dense::Here(MOST_BLOCK_BYTES));
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_costs_no_more_than_twice_as_much(
            places in prop::collection::vec((0..200_u64, 0..64_u64, 1..40_u64), 1..600),
        ) {
            let requests: Vec<_> = places.iter().map(|&(block, at, len)| (block * MOST_BLOCK_BYTES + at * 16384, len * 4096)).collect();
            for price_us in [disk as fn(u64, u64) -> Option<f32>, ssd] {
                let (with_us, without_us, kept_bytes) = served(&requests, price_us);
                prop_assert!(with_us <= 2.0 * without_us + 1.0, "{} of {}", with_us, without_us);
                prop_assert!(kept_bytes <= MOST_BLOCKS as u64 * MOST_BLOCK_BYTES);
            }
        }
    }
}
