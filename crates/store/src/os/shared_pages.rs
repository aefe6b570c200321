//! Memory that processes share by mapping a file: each byte has its place on the disk before it is mapped.
//!
//! A page of a mapped file that has no block yet gets it when it is first written, and where the disk is full the
//! kernel kills the writer (SIGBUS). So a page is allocated first, and a full disk is ENOSPC when the pool is opened. What
//! becomes of pages whose disk fails later is in [`crate::os::lost_pages`].

use crate::os::lost_pages::{Watched, let_go, watch};
use crate::os::sys::retry;
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io::IoSlice;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// What a file can hold that other processes map, too.
///
/// # Safety
/// It consists of atomics alone, so that all bytes are a value of it and others may change them at any time.
pub unsafe trait Atomics: Sync {}

// SAFETY: an atomic.
unsafe impl Atomics for crate::os::sync::mapped::AtomicU32 {}
// SAFETY: an atomic.
unsafe impl Atomics for AtomicU64 {}
// SAFETY: atomics one after the other.
unsafe impl<T: Atomics, const COUNT: usize> Atomics for [T; COUNT] {}

/// A `T` in a file, which all processes that map it share.
#[derive(Debug)]
pub struct SharedPage<T> {
    address: NonNull<T>,
    watched: &'static Watched,
}

// SAFETY: the mapping is shared memory of atomics, valid in every thread until it is dropped.
unsafe impl<T: Atomics> Send for SharedPage<T> {}
// SAFETY: as above.
unsafe impl<T: Atomics> Sync for SharedPage<T> {}

impl<T: Atomics> SharedPage<T> {
    /// Maps `file` from byte `offset` on, a multiple of the page size; to be written to only with `access` for it. What
    /// lies behind the file's end must not be used.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn map(file: BorrowedFd<'_>, offset: u64, access: ProtFlags) -> rustix::io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096) };
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), size_of::<T>(), access, MapFlags::SHARED, file, offset) };
        let address = NonNull::<T>::new(address?.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { address, watched: watch(address.addr().get(), size_of::<T>()) })
    }
}

impl<T> Deref for SharedPage<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the mapping begins at a page, is as long as a `T` and lives as long as `self`; `map` makes none but of
        // atomics, for which all bytes are a value and which other processes change as memory only.
        unsafe { self.address.as_ref() }
    }
}

impl<T> Drop for SharedPage<T> {
    fn drop(&mut self) {
        let_go(self.watched);
        // SAFETY: mapped by `map` with this length; no reference to it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), size_of::<T>()) };
    }
}

/// Gives the first `bytes` of `file`, which is open for writing, their place on the disk; they are zeros where nothing
/// was. Grows the file only: one that is shortened under a mapping would kill its users, too. One system call where a
/// process has done it before.
pub fn allocate(file: BorrowedFd<'_>, bytes: u64) -> rustix::io::Result<()> {
    match retry(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        // A file system may ask for the space anew before it sees that it is there.
        Err(Errno::NOSPC | Errno::DQUOT)
            if rustix::fs::seek(file, SeekFrom::Hole(0)).is_ok_and(|hole| hole >= bytes) =>
        {
            Ok(())
        }
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => append_zeros(file, bytes),
        done => done,
    }
}

/// For file systems that cannot allocate. Appending overwrites nothing, whatever other process extends and uses the
/// file meanwhile.
fn append_zeros(file: BorrowedFd<'_>, bytes: u64) -> rustix::io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    loop {
        let length = rustix::fs::fstat(file)?.st_size as u64;
        if length >= bytes {
            return Ok(());
        }
        let zeros = &ZEROS[..ZEROS.len().min((bytes - length) as usize)];
        // -1: at the descriptor's own offset, which an append does not look at.
        retry(|| rustix::io::pwritev2(file, &[IoSlice::new(zeros)], u64::MAX, ReadWriteFlags::APPEND))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn what_is_there_stays_and_what_is_missing_is_zeros() {
        let file = tempfile::tempfile().unwrap();
        for extend in [append_zeros as fn(BorrowedFd<'_>, u64) -> _, allocate] {
            file.write_all_at(&[7; 100], 0).unwrap();
            extend(file.as_fd(), 10_000).unwrap();
            extend(file.as_fd(), 5000).unwrap();
            let mut found = vec![1; 10_000];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found[..100].iter().all(|byte| *byte == 7) && found[100..].iter().all(|byte| *byte == 0));
            assert!(file.metadata().unwrap().len() >= 10_000);
            assert!(file.metadata().unwrap().blocks() * 512 >= 10_000);
            file.set_len(0).unwrap();
        }
    }
}
