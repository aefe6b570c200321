//! Files of counters that processes share by mapping them: each byte has its place on the disk before it is mapped.
//!
//! A page of a mapped file that has no block yet gets it when it is first written, and where the disk is full the
//! kernel kills the writer (SIGBUS). So a page is allocated first, and a full disk is ENOSPC when the pool is opened.

use crate::os::sys::retry;
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSlice;

/// Gives the first `bytes` of `file`, which is open for writing, their place on the disk; they are zeros where nothing
/// was. Grows the file only: one that is shortened under a mapping would kill its users, too. One system call where a
/// process has done it before.
pub(crate) fn allocate(file: BorrowedFd<'_>, bytes: u64) -> rustix::io::Result<()> {
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
