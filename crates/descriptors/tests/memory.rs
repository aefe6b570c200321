//! The preload's allocator as this program's own: threads that allocate, free each other's blocks and are interrupted
//! by handlers that allocate, too; children of `fork` go on with it.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use stripewise_descriptors::Memory;

static MEMORY: Memory = Memory::new();

/// A block filled with its own address, so that another that overlaps it shows.
struct Block {
    at: *mut u8,
    layout: Layout,
}

// SAFETY: a block is memory, which any thread may use.
unsafe impl Send for Block {}

fn layout(number: usize) -> Layout {
    let align = 1 << (number % 13);
    let size = match number % 7 {
        0 => number % 200_000,
        1 => 1 << (number % 18),
        2..5 => number % 300,
        _ => number % 5000,
    };
    Layout::from_size_align(size.max(1), align).expect("a layout")
}

impl Block {
    fn new(number: usize) -> Self {
        let layout = layout(number);
        // SAFETY: the size is not 0.
        let at = unsafe { MEMORY.alloc(layout) };
        assert!(!at.is_null() && at.addr().is_multiple_of(layout.align()), "{layout:?}");
        let block = Self { at, layout };
        // SAFETY: the block is this large and not shared.
        unsafe { block.at.write_bytes(block.mark(), layout.size()) };
        block
    }

    fn mark(&self) -> u8 {
        (self.at.addr() >> 4 ^ self.at.addr() >> 12) as u8
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was filled when it was made.
        let bytes = unsafe { std::slice::from_raw_parts(self.at, self.layout.size()) };
        assert!(bytes.iter().all(|&byte| byte == self.mark()), "a block of {:?} was written by another", self.layout);
        // SAFETY: allocated with this layout, not used any more.
        unsafe { MEMORY.dealloc(self.at, self.layout) };
    }
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(_: libc::c_int) {
    let number = HANDLED.fetch_add(1, Ordering::Relaxed);
    let blocks = [Block::new(number * 31 + 2), Block::new(number * 17 + 3), Block::new(number)];
    drop(blocks);
}

/// Sends this signal to the calling thread again and again, until the end of the process.
fn interrupt_often() {
    let action = libc::sigaction {
        sa_sigaction: handler as extern "C" fn(libc::c_int) as usize,
        sa_flags: libc::SA_RESTART,
        // SAFETY: zeros are an empty set and no restorer.
        ..unsafe { std::mem::zeroed() }
    };
    let often = libc::timeval { tv_sec: 0, tv_usec: 300 };
    let timer = libc::itimerval { it_interval: often, it_value: often };
    // SAFETY: the handler does only what signal handlers may: that is what is tested.
    unsafe {
        libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut());
        libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut());
    }
}

fn work(seed: usize, rounds: usize, to_others: &mpsc::Sender<Block>, from_others: &mpsc::Receiver<Block>) {
    let mut state = seed;
    let mut held: Vec<Block> = Vec::new();
    for _ in 0..rounds {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = state >> 33;
        match number % 4 {
            0 if !held.is_empty() => drop(held.swap_remove(number % held.len())),
            1 if !held.is_empty() => drop(to_others.send(held.swap_remove(number % held.len()))),
            2 => drop(from_others.try_recv()),
            _ if held.len() < 200 => held.push(Block::new(number)),
            _ => held.clear(),
        }
    }
}

#[test]
fn blocks_are_disjoint_among_threads_handlers_and_children() {
    interrupt_often();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut ends: Vec<_> = (0..4).map(|_| mpsc::channel::<Block>()).collect();
        let first = ends[0].0.clone();
        for number in 0..4 {
            let to = ends.get(number + 1).map_or(first.clone(), |(to, _)| to.clone());
            let (_, from) = std::mem::replace(&mut ends[number], mpsc::channel());
            scope.spawn(move || work(number + 1, 60_000, &to, &from));
        }
        // Children are made while the threads are anywhere in it.
        scope.spawn(|| {
            for _ in 0..20 {
                // SAFETY: the child uses this allocator only, and ends without returning.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    for number in 0..300 {
                        drop((Block::new(number * 7), Block::new(number * 131)));
                    }
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(0) };
                }
                let mut status = -1;
                // SAFETY: waits for the child made above.
                while unsafe { libc::waitpid(child, &mut status, 0) } == -1 {}
                assert_eq!(status, 0, "a child did not come through");
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    assert!(stop.load(Ordering::Relaxed));
    assert!(HANDLED.load(Ordering::Relaxed) > 10, "hardly interrupted");
}

#[test]
fn memory_is_used_again() {
    static OWN: Memory = Memory::new();
    let layout = Layout::from_size_align(3000, 8).expect("a layout");
    // SAFETY: each block is freed with its layout before the next is asked for.
    let addresses: Vec<_> = (0..1000)
        .map(|_| unsafe {
            let at = OWN.alloc(layout);
            OWN.dealloc(at, layout);
            at.addr()
        })
        .collect();
    assert!(addresses.iter().all(|&at| at == addresses[0]));
}
