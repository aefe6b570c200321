//! The epoch page: a counter per file (shared by hash) that every change of a placement increments.
//!
//! Whoever holds a placement compares one atomic load per request with the value that he read before he fetched it.

use crate::error::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Name of the page's file in the namespace.
pub const EPOCH_FILE: &str = "epoch";
/// Number of counters.
const COUNTERS: usize = 1 << 16;
const BYTES: usize = COUNTERS * size_of::<AtomicU32>();

/// The mapped page of a pool.
#[derive(Debug)]
pub struct EpochPage {
    counters: NonNull<AtomicU32>,
}

// SAFETY: the mapping is shared memory of atomics, valid in every thread until it is dropped.
unsafe impl Send for EpochPage {}
// SAFETY: as above.
unsafe impl Sync for EpochPage {}

impl EpochPage {
    /// Maps the page in `namespace`; makes it when there is none.
    pub fn open(namespace: &Path) -> Result<Self> {
        let path = namespace.join(EPOCH_FILE);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = crate::sys::retry(|| rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)))
            .map_err(Error::io("open", &path))?;
        // Growing only: a page shortened under a mapping would kill its users with SIGBUS.
        if rustix::fs::fstat(&file).map_err(Error::io("read", &path))?.st_size < BYTES as i64 {
            rustix::fs::ftruncate(&file, BYTES as u64).map_err(Error::io("extend", &path))?;
        }
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let address = address.map_err(Error::io("map", &path))?;
        let counters = NonNull::new(address.cast()).ok_or_else(|| Error::Invalid("a mapping at address 0".into()))?;
        Ok(Self { counters })
    }

    fn counter(&self, handle: u64) -> &AtomicU32 {
        // Fibonacci hashing: handles are random, but a user can choose them; any index is in bounds.
        let index = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
        // SAFETY: index < 2^16 = COUNTERS, and the mapping holds COUNTERS aligned counters as long as `self` lives;
        // other processes change them only as memory, which atomics allow.
        unsafe { self.counters.add(index).as_ref() }
    }

    /// The counter of a file now. One atomic load.
    #[inline]
    pub fn get(&self, handle: u64) -> u32 {
        self.counter(handle).load(Ordering::Acquire)
    }

    /// Tells all holders of a placement of this file to fetch it again.
    pub fn bump(&self, handle: u64) {
        self.counter(handle).fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for EpochPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length; no reference to it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.counters.as_ptr().cast(), BYTES) };
    }
}
