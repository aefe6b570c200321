//! What the processes share: a barrier and their measurements.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

use crate::error::BenchError;
use crate::process::{GroupTimes, Measured};
use crate::report::Figures;
use crate::run::BenchRun;
use crate::workload::PhaseKind;

/// Where all processes wait for each other.
#[repr(C)]
struct Barrier {
    arrived: AtomicU32,
    /// Number of the present round; the word that waiters sleep on.
    round: AtomicU32,
}

impl Barrier {
    fn next_round(&self) {
        self.round.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(&self.round, futex::Flags::empty(), u32::MAX >> 1);
    }
}

/// Memory shared by all processes of a run, mapped before they are made.
pub struct SharedMemory {
    /// Of all processes, then of each instance.
    barriers: &'static [Barrier],
    failed: &'static AtomicBool,
    /// Spans, then request times.
    words: &'static [AtomicU64],
    verified_bytes: &'static AtomicU64,
    instances: u32,
    each: u32,
    groups: usize,
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

impl SharedMemory {
    /// Maps the memory for a run. It stays until the process ends.
    ///
    /// # Errors
    /// [`BenchError::System`] when there is not enough memory.
    pub fn new(run: &BenchRun<'_>) -> Result<Self, BenchError> {
        let error = |source| BenchError::System { action: "map shared memory for the times of all requests", source };
        let (instances, each) = (run.common.instances, run.workload.processes());
        let (groups, requests) = (run.workload.groups().len(), run.workload.requests_per_process() as usize);
        let words = run.processes() as usize * PHASES * (groups * 2 + requests);
        let count = instances as usize + 1;
        let barriers = map::<Barrier>(count).map_err(error)?;
        let (failed, verified) = (map::<AtomicBool>(1).map_err(error)?, map::<AtomicU64>(1).map_err(error)?);
        let slots = map::<AtomicU64>(words).map_err(error)?;
        // SAFETY: each mapping is zeroed, long enough, page-aligned and never unmapped; zero is a valid atomic.
        let (barriers, failed, verified_bytes, words) = unsafe {
            let barriers = std::slice::from_raw_parts(barriers, count);
            (barriers, &*failed, &*verified, std::slice::from_raw_parts(slots, words))
        };
        let spin = run.common.spin_barrier;
        Ok(Self { barriers, failed, words, verified_bytes, instances, each, groups, requests, spin })
    }

    /// Waits until all processes have come here.
    ///
    /// # Errors
    /// [`Aborted`] when a process failed and will not come.
    pub fn wait_for_all(&self) -> Result<(), Aborted> {
        self.wait(&self.barriers[0], self.instances * self.each)
    }

    /// Waits until all processes of an instance have come here.
    ///
    /// # Errors
    /// [`Aborted`] when a process failed and will not come.
    pub fn wait_for_instance(&self, instance: u32) -> Result<(), Aborted> {
        self.wait(&self.barriers[instance as usize + 1], self.each)
    }

    /// Sleeps, or spins when the run asks for it.
    fn wait(&self, barrier: &Barrier, processes: u32) -> Result<(), Aborted> {
        let round = barrier.round.load(Ordering::Acquire);
        if barrier.arrived.fetch_add(1, Ordering::AcqRel) + 1 == processes {
            barrier.arrived.store(0, Ordering::Relaxed);
            barrier.next_round();
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

    /// Releases all processes that wait for this one.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.barriers.iter().for_each(Barrier::next_round);
    }

    /// Whether a process failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Counts bytes that were checked.
    pub fn add_verified(&self, bytes: u64) {
        self.verified_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn base(&self, phase: PhaseKind, rank: u32) -> usize {
        let processes = (self.instances * self.each) as usize;
        (phase as usize * processes + rank as usize) * (self.groups * 2 + self.requests)
    }

    /// Keeps what a process measured in a phase.
    pub fn keep(&self, phase: PhaseKind, rank: u32, measured: &Measured) {
        let spans = measured.spans.iter().flat_map(|span| [span.first_ns, span.last_ns]);
        let values = spans.chain(measured.times_ns.iter().copied());
        for (word, value) in self.words[self.base(phase, rank)..].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Figures for SharedMemory {
    fn verified_bytes(&self) -> u64 {
        self.verified_bytes.load(Ordering::Relaxed)
    }

    fn time_ns(&self, phase: PhaseKind, rank: u32, request: usize) -> u64 {
        self.words[self.base(phase, rank) + self.groups * 2 + request].load(Ordering::Relaxed)
    }

    fn span(&self, phase: PhaseKind, rank: u32, group: usize) -> GroupTimes {
        let at = self.base(phase, rank) + group * 2;
        GroupTimes {
            first_ns: self.words[at].load(Ordering::Relaxed),
            last_ns: self.words[at + 1].load(Ordering::Relaxed),
        }
    }
}
