//! The engine: carries out the sub-requests of one request.
//!
//! It makes plain system calls one after the other, and for reads first tells the kernel of all of them
//! (`POSIX_FADV_WILLNEED`), which starts all devices at once. That was chosen by measurement (`cargo bench -p
//! stripewise-store --bench engine`; eight sub-requests of 64 KiB on two busy cores, Linux 6.18, mean of 60 to 300
//! requests in microseconds):
//!
//! | | serial | serial after advice | io_uring, a ring per thread | waiting threads |
//! |---|---|---|---|---|
//! | reads, tmpfs | 149 | 149 | 773 | 548 |
//! | writes, tmpfs | 167 | 167 | 1221 | 691 |
//! | reads, ext4, cached | 93 | 120 | 122 | 1189 |
//! | reads, ext4, not cached | 4797 | 1135 | 1567 | 1584 |
//! | writes, ext4 | 121 | 144 | 1355 | 511 |
//!
//! Advice gets the devices' parallelism where there is any to get, needs no ring or thread that `fork` and `close`
//! loops of a program could break, and costs little where everything is cached. Servers in memory, emulated ones and those
//! whose file system bypasses the page cache get none.

use crate::os::direct;
use rustix::fd::BorrowedFd;
use rustix::fs::Advice;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;

/// Most buffers that the kernel takes in one call.
const MAX_BUFFERS: usize = 1024;

/// Most bytes that the kernel moves in one call.
pub(crate) const MAX_CALL_BYTES: u64 = 0x7fff_f000;

/// One buffer of a request, as the kernel takes it.
pub(crate) type Buffer = libc::iovec;

/// The buffers of a request's sub-requests, one after the other.
pub(crate) type Buffers = SmallVec<[Buffer; 64]>;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// One sub-request on its way.
#[derive(Debug, Default)]
pub(crate) struct Task {
    /// Descriptor of the datafile; -1 when it does not exist: nothing is done then.
    pub(crate) fd: i32,
    /// First byte in the datafile.
    pub(crate) offset: u64,
    /// Bytes wanted.
    pub(crate) len: u64,
    /// Bytes done.
    pub(crate) done: u64,
    /// First of its buffers that is not full yet.
    pub(crate) first: usize,
    /// End of its buffers.
    pub(crate) end: usize,
    /// Whether reading may wait for a device that the kernel can be told of before.
    pub(crate) takes_advice: bool,
    /// Whether it leaves nothing in the page cache.
    pub(crate) passes_cache: bool,
    /// Whether a read of fewer bytes than wanted has come to the end of the file, so that no second one has to find it.
    pub(crate) ends_short: bool,
    /// Why it stopped, if it failed.
    pub(crate) error: Option<Errno>,
}

pub(crate) type Tasks = SmallVec<[Task; 16]>;

/// One call for the buffers `[first, end)`.
///
/// # Safety
/// `fd` is an open descriptor, and the buffers are valid for the direction.
#[inline(always)]
unsafe fn call(
    (direction, passes_cache): (Direction, bool),
    fd: i32,
    offset: u64,
    buffers: &mut [Buffer],
) -> rustix::io::Result<usize> {
    // SAFETY: `fd` is open as the caller says.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let count = buffers.len().min(MAX_BUFFERS);
    match direction {
        Direction::Read => {
            // SAFETY: the standard library guarantees that IoSliceMut is an iovec; the caller, that the buffers are
            // valid.
            let slices =
                unsafe { std::slice::from_raw_parts_mut(buffers.as_mut_ptr().cast::<IoSliceMut<'_>>(), count) };
            match slices {
                many if passes_cache => direct::read(fd, many, offset),
                [one] => rustix::io::pread(fd, &mut one[..], offset),
                many => rustix::io::preadv(fd, many, offset),
            }
        }
        Direction::Write => {
            // SAFETY: as above, for IoSlice.
            let slices = unsafe { std::slice::from_raw_parts(buffers.as_ptr().cast::<IoSlice<'_>>(), count) };
            match slices {
                many if passes_cache => direct::write(fd, many, offset),
                [one] => rustix::io::pwrite(fd, one, offset),
                many => rustix::io::pwritev(fd, many, offset),
            }
        }
    }
}

impl Task {
    /// Notes that `count` more bytes are done.
    #[inline(always)]
    fn advance(&mut self, buffers: &mut [Buffer], mut count: usize) {
        self.done += count as u64;
        while count > 0 && self.first < self.end {
            let buffer = &mut buffers[self.first];
            if count < buffer.iov_len {
                buffer.iov_base = buffer.iov_base.wrapping_byte_add(count);
                buffer.iov_len -= count;
                return;
            }
            count -= buffer.iov_len;
            buffer.iov_base = buffer.iov_base.wrapping_byte_add(buffer.iov_len);
            buffer.iov_len = 0;
            self.first += 1;
        }
    }

    /// Tells the kernel what is to come of its bytes. Only advice: where it cannot be given, the read itself says what is wrong.
    ///
    /// # Safety
    /// `fd` is an open descriptor.
    unsafe fn advise(&self, advice: Advice) {
        // SAFETY: open, as the caller says.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let _ = rustix::fs::fadvise(fd, self.offset, NonZeroU64::new(self.len), advice);
    }

    /// Leaves all but the first `len` bytes out. Before any is done.
    pub(crate) fn shorten(&mut self, len: u64, buffers: &mut [Buffer]) {
        self.len = len;
        let mut rest = len as usize;
        for buffer in &mut buffers[self.first..self.end] {
            buffer.iov_len = buffer.iov_len.min(rest);
            rest -= buffer.iov_len;
        }
    }

    /// Goes on until all is done, the datafile ends, or an error comes.
    ///
    /// # Safety
    /// As for [`call`].
    #[inline(always)]
    pub(crate) unsafe fn run(&mut self, direction: Direction, buffers: &mut [Buffer]) {
        while self.done < self.len {
            // SAFETY: passed on.
            let result = unsafe {
                let how = (direction, self.passes_cache);
                call(how, self.fd, self.offset + self.done, &mut buffers[self.first..self.end])
            };
            match result {
                Ok(0) if direction == Direction::Write => self.error = Some(Errno::NOSPC),
                Ok(0) => return,
                Ok(count) => {
                    self.advance(buffers, count);
                    if self.ends_short && direction == Direction::Read {
                        return;
                    }
                    continue;
                }
                Err(Errno::INTR) => continue,
                // Another file system is mounted there now.
                Err(Errno::OPNOTSUPP) if self.passes_cache => {
                    self.passes_cache = false;
                    continue;
                }
                Err(errno) => self.error = Some(errno),
            }
            return;
        }
    }
}

/// Carries out reads, so that the devices work at the same time: the kernel is told of all before the first is waited
/// for. (Writes go to the page cache one after the other; from there the kernel writes to all devices at once.)
///
/// # Safety
/// The tasks' descriptors are open, and their buffers can be written to.
#[inline]
pub(crate) unsafe fn read(tasks: &mut [Task], buffers: &mut [Buffer]) {
    let takes_advice = |task: &&Task| task.fd >= 0 && task.takes_advice;
    let are_advised = tasks.iter().filter(takes_advice).nth(1).is_some();
    if are_advised {
        for task in tasks.iter().filter(takes_advice) {
            // SAFETY: open, as the caller says.
            unsafe { task.advise(Advice::WillNeed) };
        }
    }
    for task in tasks.iter_mut().filter(|task| task.fd >= 0) {
        // SAFETY: passed on.
        unsafe { task.run(Direction::Read, buffers) };
    }
    if are_advised {
        // The kernel keeps what it was told to read before the request came.
        for task in tasks.iter().filter(takes_advice).filter(|task| task.passes_cache) {
            // SAFETY: open, as the caller says.
            unsafe { task.advise(Advice::DontNeed) };
        }
    }
}
