//! What the processes share: a barrier and their measurements.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

use crate::error::BenchError;

/// Where all processes wait for each other.
#[repr(C)]
struct Barrier {
    arrived: AtomicU32,
    /// Number of the present round; the word that waiters sleep on.
    round: AtomicU32,
    failed: AtomicBool,
}

/// Times of one process in one region of one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// Begin of the first request (`CLOCK_MONOTONIC`, nanoseconds).
    pub first_ns: u64,
    /// End of the last one.
    pub last_ns: u64,
}

/// Memory shared by all processes of a run, mapped before they are made.
pub struct Shared {
    barrier: &'static Barrier,
    /// Spans, then request times.
    words: &'static [AtomicU64],
    verified_bytes: &'static AtomicU64,
    processes: u32,
    regions: usize,
    requests: usize,
    spin: bool,
}

/// Another process failed.
#[derive(Debug)]
pub struct Aborted;

/// Timed phases: write and read.
const PHASES: usize = 2;

fn map<T>(count: usize) -> io::Result<*const T> {
    let bytes = count.max(1) * size_of::<T>();
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address.cast_const().cast()) }
}

impl Shared {
    /// Maps the memory for a run. It stays until the process ends.
    ///
    /// # Errors
    /// [`BenchError::System`] when there is not enough memory.
    pub fn new(processes: u32, regions: usize, requests: u64, spin: bool) -> Result<Self, BenchError> {
        let error = |source| BenchError::System { action: "map shared memory for the times of all requests", source };
        let requests = requests as usize;
        let words = (processes as usize) * PHASES * (regions * 2 + requests);
        let (barrier, counters, slots) =
            (map::<Barrier>(1).map_err(error)?, map::<AtomicU64>(1).map_err(error)?, map(words).map_err(error)?);
        // SAFETY: each mapping is zeroed, long enough, page-aligned and never unmapped; zero is a valid atomic.
        let (barrier, verified_bytes, words) =
            unsafe { (&*barrier, &*counters, std::slice::from_raw_parts(slots, words)) };
        Ok(Self { barrier, words, verified_bytes, processes, regions, requests, spin })
    }

    /// Waits until all processes have come here. Sleeps, or spins when the run asks for it.
    ///
    /// # Errors
    /// [`Aborted`] when a process failed and will not come.
    pub fn wait(&self) -> Result<(), Aborted> {
        let barrier = self.barrier;
        let round = barrier.round.load(Ordering::Acquire);
        if barrier.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.processes {
            barrier.arrived.store(0, Ordering::Relaxed);
            self.next_round();
        } else {
            while barrier.round.load(Ordering::Acquire) == round && !self.has_failed() {
                if self.spin {
                    std::hint::spin_loop();
                } else {
                    // A wake-up without cause, or a round that is over already, ends it: the loop looks again.
                    let _ = futex::wait(&barrier.round, futex::Flags::empty(), round, None);
                }
            }
        }
        if self.has_failed() { Err(Aborted) } else { Ok(()) }
    }

    fn next_round(&self) {
        self.barrier.round.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(&self.barrier.round, futex::Flags::empty(), u32::MAX >> 1);
    }

    /// Lets nobody wait for this process.
    pub fn fail(&self) {
        self.barrier.failed.store(true, Ordering::Release);
        self.next_round();
    }

    /// Whether a process failed.
    pub fn has_failed(&self) -> bool {
        self.barrier.failed.load(Ordering::Acquire)
    }

    /// Counts bytes that were checked.
    pub fn add_verified(&self, bytes: u64) {
        self.verified_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were checked by all processes.
    pub fn verified_bytes(&self) -> u64 {
        self.verified_bytes.load(Ordering::Relaxed)
    }

    fn base(&self, phase: usize, rank: u32) -> usize {
        (phase * self.processes as usize + rank as usize) * (self.regions * 2 + self.requests)
    }

    /// Keeps the time of one request.
    pub fn set_time(&self, phase: usize, rank: u32, request: usize, ns: u64) {
        self.words[self.base(phase, rank) + self.regions * 2 + request].store(ns, Ordering::Relaxed);
    }

    /// The time of one request.
    pub fn time(&self, phase: usize, rank: u32, request: usize) -> u64 {
        self.words[self.base(phase, rank) + self.regions * 2 + request].load(Ordering::Relaxed)
    }

    /// Keeps the span of a process in a region.
    pub fn set_span(&self, phase: usize, rank: u32, region: usize, span: Span) {
        let at = self.base(phase, rank) + region * 2;
        self.words[at].store(span.first_ns, Ordering::Relaxed);
        self.words[at + 1].store(span.last_ns, Ordering::Relaxed);
    }

    /// The span of a process in a region.
    pub fn span(&self, phase: usize, rank: u32, region: usize) -> Span {
        let at = self.base(phase, rank) + region * 2;
        Span { first_ns: self.words[at].load(Ordering::Relaxed), last_ns: self.words[at + 1].load(Ordering::Relaxed) }
    }
}
