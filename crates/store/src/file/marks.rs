//! Marks of what was written while a file is moved beside its writers: one byte of the lock file for each block of the file.
//!
//! A writer marks a block after it has written there, and before it looks whether the places have changed. The mover takes the marks
//! away before it copies the blocks. So what was written is either copied, or marked, or written again to the new places.

use crate::file::lockfile::{LockFile, Purpose};
use crate::os::error::{Error, Result};
use crate::os::sys::retry;
use rustix::fs::Mode;
use rustix::io::Errno;

/// Bytes of the file for each mark, and the least that a move copies again for a write beside it.
pub(crate) const BLOCK: u64 = 64 << 10;
/// Bytes of marks that are read: those of 4 TiB.
const MOST: u64 = 64 << 20;
/// Marks that are written or read at a time.
const CHUNK: usize = 16 << 10;
/// The bit of the lock file's mode that says that a move has to end. It takes no block of a full ext4 or XFS, and outlives who has set it.
const HAS_TO_END: Mode = Mode::SVTX;

impl LockFile {
    /// Marks the blocks of `[offset, offset + len)`. One system call up to a GiB. Where no mark can be set (a full disk, an offset behind
    /// those of which marks are read), the move is told that it has to end, until this process is no writer any more.
    ///
    /// # Errors
    /// It cannot be told either.
    pub(crate) fn mark(&self, offset: u64, len: u64) -> Result<()> {
        let Some(file) = self.content() else { return Ok(()) };
        if len == 0 {
            return Ok(());
        }
        let (mut from, to) = (offset / BLOCK, offset.saturating_add(len - 1) / BLOCK + 1);
        if to > MOST {
            // The marks would not be read.
            return self.end_move();
        }
        while from < to {
            let count = (to - from).min(CHUNK as u64) as usize;
            match retry(|| rustix::io::pwrite(file, &[1; CHUNK][..count], from)) {
                Ok(done) if done > 0 => from += done as u64,
                _ => return self.end_move(),
            }
        }
        Ok(())
    }

    /// Has a move beside writers end without a switch, also where this process is no writer any more by then; and others not begin as
    /// long as it is one.
    ///
    /// # Errors
    /// The move cannot be told, or the lock cannot be had.
    pub(crate) fn end_move(&self) -> Result<()> {
        // First what needs no disk: where the mode cannot be set this process still keeps the move from switching.
        self.lock(Purpose::Unmarked, false)?;
        self.set_has_to_end(true)
    }

    fn set_has_to_end(&self, has_to_end: bool) -> Result<()> {
        let Some(file) = self.content() else { return Ok(()) };
        let set = || {
            let before = Mode::from_raw_mode(rustix::fs::fstat(file)?.st_mode & 0o7777);
            let after = if has_to_end { before | HAS_TO_END } else { before - HAS_TO_END };
            if after == before { Ok(()) } else { rustix::fs::fchmod(file, after) }
        };
        retry(set).map_err(Error::io("set the mode of", "a lock file"))
    }

    /// Forgets all marks. For the mover, before writers learn of it.
    pub(crate) fn forget_marks(&self) -> Result<()> {
        let Some(file) = self.content() else { return Ok(()) };
        self.set_has_to_end(false)?;
        retry(|| rustix::fs::ftruncate(file, 0)).map_err(Error::io("clear", "a lock file"))
    }

    /// Takes the marks away; the parts of the file that they stand for, as `(from, to)`, in ascending order. `None`: there is more than can
    /// be told, or the move has to end. O(blocks of the file).
    pub(crate) fn take_marks(&self) -> Result<Option<Vec<(u64, u64)>>> {
        let Some(file) = self.content() else { return Ok(None) };
        let failed = |errno: Errno| Error::io("read the marks of", "a lock file")(errno);
        let stat = rustix::fs::fstat(file).map_err(failed)?;
        if stat.st_size as u64 > MOST || Mode::from_raw_mode(stat.st_mode).contains(HAS_TO_END) {
            return Ok(None);
        }
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut marks = [0; CHUNK];
        let mut at = 0;
        loop {
            let count = retry(|| rustix::io::pread(file, &mut marks[..], at)).map_err(failed)?;
            if count == 0 {
                return Ok(Some(parts));
            }
            let mut index = 0;
            while index < count {
                let run = marks[index..count].iter().take_while(|&&mark| mark != 0).count();
                if run == 0 {
                    index += 1;
                    continue;
                }
                let from = at + index as u64;
                // Before the copy: a mark that comes from now on is seen by the next look.
                let mut cleared = 0;
                while cleared < run {
                    let zeros = [0; CHUNK];
                    let left = &zeros[cleared..run];
                    cleared += retry(|| rustix::io::pwrite(file, left, from + cleared as u64)).map_err(failed)?;
                }
                match parts.last_mut() {
                    Some(last) if last.1 == from * BLOCK => last.1 += run as u64 * BLOCK,
                    _ => parts.push((from * BLOCK, (from + run as u64) * BLOCK)),
                }
                index += run;
            }
            at += count as u64;
        }
    }
}

/// What is in both of two lists of parts in ascending order, none of which overlap; each in one part of `limits`.
pub(crate) fn within(parts: &[(u64, u64)], limits: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut both = Vec::new();
    let mut first = 0;
    for &(from, to) in limits {
        while first < parts.len() && parts[first].1 <= from {
            first += 1;
        }
        let here = parts[first..].iter().take_while(|part| part.0 < to);
        both.extend(here.map(|part| (part.0.max(from), part.1.min(to))));
    }
    both
}

/// Both lists of parts as one, in ascending order.
pub(crate) fn joined(mut parts: Vec<(u64, u64)>, more: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    parts.extend(more);
    parts.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::with_capacity(parts.len());
    for part in parts {
        match all.last_mut() {
            Some(last) if part.0 <= last.1 => last.1 = last.1.max(part.1),
            _ => all.push(part),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_both() {
        assert_eq!(within(&[(0, 10), (20, 30)], &[(5, 25), (25, 26), (40, 50)]), [(5, 10), (20, 25), (25, 26)]);
        assert_eq!(within(&[], &[(0, 5)]), []);
        assert_eq!(within(&[(0, 100)], &[(10, 20), (30, 40)]), [(10, 20), (30, 40)]);
    }

    #[test]
    fn marks_are_taken_once_and_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let locks = std::fs::File::open(directory.path()).unwrap();
        let (lock, _) = LockFile::open_any(std::os::fd::AsFd::as_fd(&locks), 7).unwrap();
        lock.mark(0, 0).unwrap();
        assert_eq!(lock.take_marks().unwrap(), Some(vec![]));
        lock.mark(BLOCK - 1, 2).unwrap();
        lock.mark(5 * BLOCK, BLOCK).unwrap();
        assert_eq!(lock.take_marks().unwrap(), Some(vec![(0, 2 * BLOCK), (5 * BLOCK, 6 * BLOCK)]));
        assert_eq!(lock.take_marks().unwrap(), Some(vec![]));
        let far = (CHUNK as u64 - 1) * BLOCK;
        lock.mark(far, 3 * BLOCK).unwrap();
        assert_eq!(lock.take_marks().unwrap(), Some(vec![(far, far + 3 * BLOCK)]), "over two chunks");
        lock.mark(MOST * BLOCK, 1).unwrap();
        assert_eq!(lock.take_marks().unwrap(), None, "more than is read");
        lock.forget_marks().unwrap();
        lock.mark(BLOCK, u64::MAX - BLOCK).unwrap();
        assert_eq!(lock.take_marks().unwrap(), None, "as a program may punch");
        let bytes: u64 =
            std::fs::read_dir(directory.path()).unwrap().map(|of| of.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(bytes, 0, "and the disk is not filled with marks");
        lock.forget_marks().unwrap();
        assert_eq!(lock.take_marks().unwrap(), Some(vec![]));
        let (gone, _) = LockFile::open_any(std::os::fd::AsFd::as_fd(&locks), 7).unwrap();
        gone.end_move().unwrap();
        drop(gone);
        assert_eq!(lock.take_marks().unwrap(), None, "it has to end, also when its writer is gone");
        lock.forget_marks().unwrap();
        assert_eq!(lock.take_marks().unwrap(), Some(vec![]));
    }
}
