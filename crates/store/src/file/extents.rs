//! Where the bytes of a datafile are on its disk, as far as its file system says.
//!
//! An address counts from the start of the file system's device; on a file system that spreads over several devices (btrfs) it is one
//! in its own space. It is good for distances alone, and nothing is read or written by it.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// `FS_IOC_FIEMAP` of linux/fs.h.
const FIEMAP: Opcode = rustix::ioctl::opcode::read_write::<[u8; 32]>(b'f', 11);
/// Flags of an extent that has no address: `UNKNOWN`, `DELALLOC`, `ENCODED` and `DATA_INLINE` of linux/fiemap.h.
const NO_ADDRESS: u32 = 0x2 | 0x4 | 0x8 | 0x200;

/// `struct fiemap` of linux/fiemap.h with room for one extent.
#[repr(C)]
#[derive(Default)]
struct Asked {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extent: Extent,
}

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const _: () = assert!(size_of::<Asked>() == 88 && size_of::<Extent>() == 56);

impl Extent {
    /// Where a byte of the datafile is, if it is in the extent.
    fn address(&self, offset: u64) -> Option<u64> {
        let from = offset.checked_sub(self.logical)?;
        (from < self.length).then(|| self.physical.checked_add(from))?
    }
}

/// The extent of a datafile in which its last request was. Shared by all threads; it takes no lock and allocates nothing, since it runs
/// inside any program.
#[derive(Debug, Default)]
pub(crate) struct LastExtent {
    /// Odd while a thread changes the others; [`UNKNOWN`]: the file system does not tell.
    version: AtomicU32,
    logical: AtomicU64,
    physical: AtomicU64,
    length: AtomicU64,
}

/// A version that none comes to.
const UNKNOWN: u32 = u32::MAX;

impl LastExtent {
    /// Where byte `offset` of the open datafile is; `None`: the file system does not tell, or has not decided yet. Four loads, one
    /// system call besides where the byte is not in the last extent.
    pub(crate) fn address(&self, datafile: BorrowedFd<'_>, offset: u64) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        if version == UNKNOWN {
            return None;
        }
        if version.is_multiple_of(2) {
            let extent = self.load();
            fence(Ordering::Acquire);
            if let Some(address) = extent.address(offset)
                && self.version.load(Ordering::Relaxed) == version
            {
                return Some(address);
            }
        }
        match ask(datafile, offset) {
            Ok(extent) => {
                self.keep(version, &extent);
                extent.address(offset)
            }
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL) => {
                self.version.store(UNKNOWN, Ordering::Relaxed);
                None
            }
            Err(_) => None,
        }
    }

    fn load(&self) -> Extent {
        Extent {
            logical: self.logical.load(Ordering::Relaxed),
            physical: self.physical.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
            ..Extent::default()
        }
    }

    /// Remembers an extent unless another thread has done so since `version`.
    fn keep(&self, version: u32, extent: &Extent) {
        // Two below: neither the odd one nor the next even one may be `UNKNOWN`.
        let next = if version >= UNKNOWN - 3 { 0 } else { version + 2 };
        let is_free = version.is_multiple_of(2)
            && self.version.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if is_free {
            fence(Ordering::Release);
            self.logical.store(extent.logical, Ordering::Relaxed);
            self.physical.store(extent.physical, Ordering::Relaxed);
            self.length.store(extent.length, Ordering::Relaxed);
            self.version.store(next, Ordering::Release);
        }
    }
}

/// The extent of byte `offset`; one without a length where that byte has no address. One system call.
fn ask(datafile: BorrowedFd<'_>, offset: u64) -> rustix::io::Result<Extent> {
    let mut asked = Asked { start: offset, length: 1, extent_count: 1, ..Asked::default() };
    // SAFETY: the call reads the head of `asked`, and writes it and at most `extent_count` extents, for which there is room.
    unsafe { ioctl(datafile, Updater::<{ FIEMAP }, Asked>::new(&mut asked)) }?;
    let has_address = asked.mapped_extents > 0 && asked.extent.flags & NO_ADDRESS == 0;
    Ok(if has_address { asked.extent } else { Extent::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const BLOCK: u64 = 4096;

    #[test]
    fn an_extent_has_the_addresses_of_its_bytes_alone() {
        let extent = Extent { logical: 100, physical: 5000, length: 10, ..Extent::default() };
        let addresses = [99, 100, 109, 110].map(|offset| extent.address(offset));
        assert_eq!(addresses, [None, Some(5000), Some(5009), None]);
        let garbage = Extent { logical: 0, physical: u64::MAX, length: u64::MAX, ..Extent::default() };
        assert_eq!(garbage.address(1), None);
    }

    #[test]
    fn what_is_remembered_is_what_was_kept_last() {
        let last = LastExtent::default();
        let extent = |physical| Extent { logical: 0, physical, length: 10, ..Extent::default() };
        last.keep(0, &extent(70));
        last.keep(0, &extent(80));
        assert_eq!((last.load().physical, last.version.load(Ordering::Relaxed)), (70, 2), "of an old version");
        last.keep(2, &extent(90));
        assert_eq!((last.load().physical, last.version.load(Ordering::Relaxed)), (90, 4));
        last.version.store(UNKNOWN - 3, Ordering::Relaxed);
        last.keep(UNKNOWN - 3, &extent(95));
        assert_eq!((last.load().physical, last.version.load(Ordering::Relaxed)), (95, 0), "versions begin anew");
    }

    /// A file with a hole between two blocks that are on the disk.
    fn two_blocks() -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; BLOCK as usize], 0).unwrap();
        file.write_all_at(&[2; 2 * BLOCK as usize], 8 * BLOCK).unwrap();
        file.sync_all().unwrap();
        file
    }

    #[test]
    fn the_file_system_tells_where_bytes_are_and_where_there_are_none() {
        let (file, last) = (two_blocks(), LastExtent::default());
        let address = |offset| last.address(file.as_fd(), offset);
        let Some(first) = address(0) else {
            println!("SKIPPED: the file system of the directory for temporary files does not tell where files are");
            assert!(last.version.load(Ordering::Relaxed) == UNKNOWN || ask(file.as_fd(), 0).is_ok());
            return;
        };
        assert_eq!(address(100), Some(first + 100));
        let second = address(8 * BLOCK).unwrap();
        assert_eq!(address(10 * BLOCK - 1), Some(second + 2 * BLOCK - 1));
        assert!(second >= first + BLOCK || second + 2 * BLOCK <= first, "two bytes at one place: {first} {second}");
        assert_eq!((address(4 * BLOCK), address(20 * BLOCK)), (None, None), "a hole, and the end");
        assert_eq!(address(7), Some(first + 7), "after another one");
    }

    #[test]
    fn a_file_system_that_does_not_tell_is_asked_once() {
        let memory = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&memory, b"some bytes").unwrap();
        let last = LastExtent::default();
        assert_eq!(last.address(memory.as_fd(), 0), None);
        assert_eq!(last.version.load(Ordering::Relaxed), UNKNOWN);
        assert_eq!(last.address(memory.as_fd(), 0), None);
    }
}
