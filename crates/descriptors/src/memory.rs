//! The memory of the preload, so that nothing in it calls the program's allocator.
//!
//! A signal handler may open or close a placed file while the thread that it interrupted is inside `malloc`, and an
//! allocator may open files itself while it starts: both would wait for a lock that they hold. So there is no lock
//! here: free blocks of each size are a list that a compare-and-exchange changes, and new ones are cut from chunks that
//! only grow. A `fork` at any instruction leaves the child lists that are whole (a block may be lost).
//!
//! Sizes are powers of two from 16 bytes to 64 KiB; larger ones are mapped. What is freed goes to the list of its size
//! and never back to the system: the library holds the state of open files, which is small and comes again.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Smallest block; places of blocks are counted in these.
const UNIT_BYTES: usize = 16;
/// Largest block of a list.
const MAX_BYTES: usize = 64 << 10;
/// Sizes from [`UNIT_BYTES`] to [`MAX_BYTES`].
const SIZES: usize = (MAX_BYTES / UNIT_BYTES).trailing_zeros() as usize + 1;
/// Blocks come from chunks of this size, at multiples of it.
const CHUNK_BYTES: usize = 1 << 20;
const CHUNK_UNITS: u64 = (CHUNK_BYTES / UNIT_BYTES) as u64;
/// A chunk begins with the links of its units, a number each; so the first units are no blocks. The first link is the
/// chunk's own number.
const FIRST_UNIT: u64 = CHUNK_UNITS * size_of::<AtomicU32>() as u64 / UNIT_BYTES as u64;
/// Chunks at most.
const CHUNKS: usize = 4096;

/// The allocator.
#[derive(Debug)]
pub struct Memory {
    chunks: [AtomicPtr<AtomicU32>; CHUNKS],
    /// First unit, over all chunks, that was never part of a block.
    next_unit: AtomicU64,
    /// For each size the unit of the first free block, 0 for none, in the low half; a count of changes in the high
    /// half, by which a list that changed and changed back is told apart.
    free: [AtomicU64; SIZES],
}

impl Memory {
    /// No chunk yet.
    #[expect(clippy::new_without_default, reason = "it is made where constants are")]
    pub const fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            next_unit: AtomicU64::new(FIRST_UNIT),
            free: [const { AtomicU64::new(0) }; SIZES],
        }
    }

    /// The links of chunk `number`, which is mapped on first use. `None`: no memory.
    fn chunk(&self, number: usize) -> Option<&[AtomicU32]> {
        let place = self.chunks.get(number)?;
        let mut chunk = place.load(Ordering::Acquire);
        if chunk.is_null() {
            let made = map_chunk(number as u32)?;
            chunk = match place.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => made,
                Err(other) => {
                    // SAFETY: mapped just now with this length, and no other thread saw it.
                    let _ = unsafe { munmap(made.cast(), CHUNK_BYTES) };
                    other
                }
            };
        }
        // SAFETY: a chunk begins with a link for each unit, zeros at first, and is never unmapped once it is in its
        // place.
        Some(unsafe { std::slice::from_raw_parts(chunk, CHUNK_UNITS as usize) })
    }

    /// The link and the address of a unit.
    fn unit(&self, unit: u64) -> Option<(&AtomicU32, *mut u8)> {
        let links = self.chunk((unit / CHUNK_UNITS) as usize)?;
        let within = (unit % CHUNK_UNITS) as usize;
        let address = links.as_ptr().cast::<u8>().cast_mut().wrapping_add(within * UNIT_BYTES);
        Some((&links[within], address))
    }

    /// A block of `UNIT_BYTES << size` bytes; null when there is no memory.
    fn take(&self, size: usize) -> *mut u8 {
        let mut head = self.free[size].load(Ordering::Acquire);
        while head as u32 != 0 {
            let Some((link, address)) = self.unit(u64::from(head as u32)) else { break };
            // Of a block that another thread has taken meanwhile, this is an old link: then the count has changed.
            let next = (head >> 32).wrapping_add(1) << 32 | u64::from(link.load(Ordering::Relaxed));
            match self.free[size].compare_exchange_weak(head, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return address,
                Err(now) => head = now,
            }
        }
        self.cut(1 << size).and_then(|unit| self.unit(unit)).map_or(ptr::null_mut(), |(_, address)| address)
    }

    /// Units that were never used, at a multiple of their number.
    fn cut(&self, units: u64) -> Option<u64> {
        let mut next = self.next_unit.load(Ordering::Relaxed);
        loop {
            let mut first = next.next_multiple_of(units);
            if first % CHUNK_UNITS < FIRST_UNIT {
                // Behind the links, which end at a multiple of the largest block.
                first = first - first % CHUNK_UNITS + FIRST_UNIT;
            }
            // Links are 32 bits, and so are the chunks' numbers of units.
            if first / CHUNK_UNITS >= CHUNKS as u64 {
                return None;
            }
            match self.next_unit.compare_exchange_weak(next, first + units, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(first),
                Err(now) => next = now,
            }
        }
    }

    /// Gives a block back.
    fn give(&self, size: usize, address: *mut u8) {
        let within = address.addr() % CHUNK_BYTES;
        let links = address.wrapping_sub(within).cast::<AtomicU32>();
        // SAFETY: the block came from `take`, so it lies in a chunk, which begins with its links.
        let links = unsafe { std::slice::from_raw_parts(links, CHUNK_UNITS as usize) };
        let unit = links[0].load(Ordering::Relaxed) * CHUNK_UNITS as u32 + (within / UNIT_BYTES) as u32;
        let link = &links[within / UNIT_BYTES];
        let mut head = self.free[size].load(Ordering::Relaxed);
        loop {
            link.store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(unit);
            match self.free[size].compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

fn map(bytes: usize) -> Option<*mut u8> {
    // SAFETY: new memory where the kernel likes.
    let mapped =
        unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    mapped.ok().map(<*mut _>::cast)
}

/// A chunk at a multiple of its size, with its number in the first link.
fn map_chunk(number: u32) -> Option<*mut AtomicU32> {
    let wide = map(2 * CHUNK_BYTES)?;
    let before = wide.addr().next_multiple_of(CHUNK_BYTES) - wide.addr();
    let chunk = wide.wrapping_add(before);
    // SAFETY: both ends of what was mapped just now; the chunk lies between them.
    unsafe {
        if before > 0 {
            let _ = munmap(wide.cast(), before);
        }
        let _ = munmap(chunk.wrapping_add(CHUNK_BYTES).cast(), CHUNK_BYTES - before);
    }
    let links = chunk.cast::<AtomicU32>();
    // SAFETY: new memory of zeros, not shared yet.
    unsafe { &*links }.store(number, Ordering::Relaxed);
    Some(links)
}

/// The list for blocks of `layout`; `None`: mapped by itself.
fn size_of_block(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(UNIT_BYTES);
    // Blocks stand at multiples of their size, so that they have every alignment up to it.
    (bytes <= MAX_BYTES)
        .then(|| bytes.next_power_of_two().trailing_zeros() as usize)
        .map(|log| log - UNIT_BYTES.trailing_zeros() as usize)
}

// SAFETY: blocks are disjoint, as units are cut once and a list gives each of its blocks once; they stand at multiples
// of their size, and mapped ones at pages. Nothing here panics or calls the allocator.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match size_of_block(layout) {
            Some(size) => self.take(size),
            None if layout.align() > 4096 => ptr::null_mut(),
            None => map(layout.size()).unwrap_or(ptr::null_mut()),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match size_of_block(layout) {
            Some(size) => self.give(size, block),
            None => {
                // SAFETY: it was mapped with this size, and the caller does not use it any more.
                let _ = unsafe { munmap(block.cast(), layout.size()) };
            }
        }
    }
}
