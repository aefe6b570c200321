//! Where a file has data and where holes: what its datafiles say (SEEK_DATA, SEEK_HOLE), put together by the layout.
//!
//! A hole is reported only where the datafile has one at a moment within the call. So a byte whose write has returned,
//! through any mount or process, is never in a hole. Where a datafile cannot be asked (its server is missing), its bytes count as data: a read of them fails with the reason.
//!
//! Holes are reported by blocks of the file: a block is one if all of its bytes are. Programs expect that data
//! begins and ends with a block, or with the file (qemu-img stops where it does not), and stripes may have any width.

use crate::file::inode::Inode;
use crate::file::lengths::Lengths;
use crate::file::moving::bytes_of;
use crate::file::placed_file::PlacedFile;
use crate::format::placement::Datafiles;
use crate::os::error::Result;
use crate::os::sync::guard;
use rustix::fd::BorrowedFd;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use smallvec::{SmallVec, smallvec};

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Data,
    Hole,
}

/// No position of a datafile.
const NOWHERE: u64 = u64::MAX;
/// In which holes are told.
const BLOCK_BYTES: u64 = 4096;
/// A hole that is smaller is copied with what is around it.
const NEAR_BYTES: u64 = 256 << 10;
/// The same of a large file: one that is smaller than that part of all bytes that are copied.
const NEAR_PART: u64 = 1 << 13;
/// How many holes that are no whole block, as narrow stripes make them, a search passes before it takes the rest for
/// data.
const MOST_PARTIAL_HOLES: u32 = 1 << 14;

impl Inode {
    /// First offset at or after `offset` in a block of 4 KiB that holds data (SEEK_DATA); ENXIO when there is none.
    ///
    /// Cost: for each region from `offset` to the answer an arithmetic step per stripe; an `lseek` per datafile that
    /// has bytes there, and another one for each time that such an answer has been passed. Each `lseek` costs its file
    /// system the extents that it skips.
    ///
    /// # Errors
    /// ENXIO; the size is not known, as a server is missing.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek(offset, Wanted::Data)?.ok_or_else(|| self.failed("find data behind an offset in")(Errno::NXIO))
    }

    /// First offset at or after `offset` in a block of 4 KiB that is all hole, at the latest the size (SEEK_HOLE);
    /// ENXIO beyond the end. Cost: as of [`Inode::seek_data`], for each hole that is no whole block; behind thousands
    /// of them in one search all counts as data.
    ///
    /// # Errors
    /// ENXIO; the size is not known, as a server is missing.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.seek(offset, Wanted::Hole)?.ok_or_else(|| self.failed("seek beyond the end of")(Errno::NXIO))
    }

    fn seek(&self, offset: u64, wanted: Wanted) -> Result<Option<u64>> {
        self.put_gathered()?;
        loop {
            let file = self.file()?;
            if let Some(inode) = file.whole_inode() {
                let _alone = guard(&self.appending);
                let to = if wanted == Wanted::Data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) };
                match rustix::fs::seek(inode, to) {
                    _ if file.is_stale() || self.changed_elsewhere(&file)? => continue,
                    Err(Errno::NXIO) => return Ok(None),
                    found => return found.map(Some).map_err(self.failed("seek in")),
                }
            }
            // Before the datafiles are asked: what is written behind this end meanwhile need not be found.
            let size_bytes = self.certain_size_bytes()?;
            if offset >= size_bytes {
                return Ok(None);
            }
            let lengths = self.recorded_lengths()?;
            let found = {
                // The datafiles' descriptors have one offset each, which an append of this process may be using.
                let _alone = guard(&self.appending);
                match wanted {
                    Wanted::Data => file.data_block(offset, size_bytes, lengths.as_ref()),
                    Wanted::Hole => file.hole_block(offset, size_bytes, lengths.as_ref()),
                }
            };
            // What was found while the placement changed may be true of places that are no longer the file's.
            if !file.is_stale() && !self.changed_elsewhere(&file)? {
                return Ok(if wanted == Wanted::Hole { Some(found.unwrap_or(size_bytes)) } else { found });
            }
        }
    }
}

impl PlacedFile {
    /// First offset in `[from, to)` in a block with data, where the file ends at `to`.
    fn data_block(&self, from: u64, to: u64, lengths: Option<&Lengths>) -> Option<u64> {
        let data = self.first(block_of(from), to, Wanted::Data, lengths)?;
        Some(block_of(data).max(from))
    }

    /// First offset in `[from, to)` in a block without data, where the file ends at `to`.
    fn hole_block(&self, from: u64, to: u64, lengths: Option<&Lengths>) -> Option<u64> {
        let mut block = block_of(from);
        for _ in 0..MOST_PARTIAL_HOLES {
            // There is data before it, in its own block if it does not begin one.
            block = self.first(block, to, Wanted::Hole, lengths)?.next_multiple_of(BLOCK_BYTES);
            if block >= to {
                return None;
            }
            let end = (block + BLOCK_BYTES).min(to);
            if self.first(block, end, Wanted::Data, lengths).is_none() {
                return Some(block.max(from));
            }
            block = end;
            if block == to {
                return None;
            }
        }
        None
    }

    /// The stretches of `parts` that are not all hole, for one who copies them, as writers wait. Small holes are taken for data, and of
    /// those parts for which it `keeps` the holes all. O(extents), with twice [`NEAR_PART`] looks for the next one at most.
    pub(crate) fn without_holes(
        &self,
        parts: &[(u64, u64)],
        keeps: impl Fn(u64) -> bool,
        lengths: Option<&Lengths>,
    ) -> Vec<(u64, u64)> {
        let near_bytes = NEAR_BYTES.max(bytes_of(parts) / NEAR_PART);
        let mut found: Vec<(u64, u64)> = Vec::new();
        for &(from, to) in parts {
            if keeps(from) {
                found.push((from, to));
                continue;
            }
            let (mut at, first) = (from, found.len());
            while at < to {
                let Some(data) = self.data_block(at, to, lengths) else { break };
                let hole_behind = |from| if from < to { self.hole_block(from, to, lengths) } else { None };
                at = match found[first..].last_mut() {
                    Some(last) if data - last.1 < near_bytes => {
                        // Where there are small holes there may be thousands more of them.
                        last.1 = hole_behind(data.saturating_add(near_bytes)).unwrap_or(to);
                        last.1
                    }
                    _ => {
                        let end = hole_behind(data).unwrap_or(to);
                        found.push((data, end));
                        end
                    }
                };
            }
        }
        found
    }

    /// First offset in `[from, to)` that is what is wanted.
    fn first(&self, from: u64, to: u64, wanted: Wanted, lengths: Option<&Lengths>) -> Option<u64> {
        let layout = &self.datafiles().placed;
        // Of each datafile, then of the inode: there is nothing wanted from the first of the two positions to the
        // second. Of none at first.
        let datafiles = self.datafiles().table.len();
        let mut known: SmallVec<[(u64, u64); 16]> = smallvec![(1, 0); datafiles + 1];
        let regions = layout.region_at(from)..layout.regions().len();
        for region in regions.take_while(|&region| layout.regions()[region].offset() < to) {
            let row = &layout.regions()[region];
            let (from, to) = (from.max(row.offset()), to.min(layout.region_end(region)));
            let mut first = None;
            for slot in 0..row.stripes().len() {
                let (begin, end) = (row.datafile_offset(slot, from), row.datafile_offset(slot, to));
                if begin == end {
                    continue;
                }
                let index = self.datafiles().index(region, slot);
                let (asked, at) = &mut known[usize::from(index).min(datafiles)];
                if begin < *asked || begin > *at {
                    let found = self.seek_in(index, begin, wanted);
                    (*asked, *at) = (begin, self.with_lost(index, begin, wanted, lengths, found));
                }
                if *at < end {
                    // Within the bytes that the region has there, so that it has an offset in the file.
                    first = [first, row.file_offset(slot, *at)].into_iter().flatten().min();
                }
            }
            if first.is_some() {
                return first;
            }
        }
        None
    }

    /// First position of a datafile (or the inode) at or after `from` that is what is wanted.
    fn seek_in(&self, index: u16, from: u64, wanted: Wanted) -> u64 {
        let (to, any_data, no_data) = match wanted {
            Wanted::Data => (SeekFrom::Data(from), from, NOWHERE),
            Wanted::Hole => (SeekFrom::Hole(from), NOWHERE, from),
        };
        let seek = |fd: BorrowedFd<'_>| match rustix::fs::seek(fd, to) {
            // Nothing behind `from`, be it that the datafile ends before.
            Err(Errno::NXIO) => Ok(no_data),
            found => found,
        };
        let found = match self.reading(index) {
            Ok(Some(fd)) => match seek(fd) {
                Err(errno) if self.striped().comes_back(index, errno) => seek(fd),
                found => found,
            },
            Ok(None) => Ok(no_data),
            Err(_) => Ok(any_data),
        };
        // A server that fails, or a file system that does not know.
        found.unwrap_or(any_data)
    }

    /// What [`PlacedFile::seek_in`] has `found` from position `from` on, with what is recorded of the datafile and not
    /// there any more taken for data: a copy of the file must get the error that a read gives.
    fn with_lost(&self, index: u16, from: u64, wanted: Wanted, lengths: Option<&Lengths>, found: u64) -> u64 {
        let datafile = self.datafiles().table.get(usize::from(index));
        let recorded_bytes = datafile.and_then(|datafile| Some(lengths?.of(*datafile))).unwrap_or(0);
        let looked_bytes = match wanted {
            Wanted::Data if found == NOWHERE => from,
            Wanted::Data => return found,
            Wanted::Hole => found,
        };
        if looked_bytes >= recorded_bytes {
            return found;
        }
        let stat = |fd| rustix::fs::fstat(fd).map(|stat| stat.st_size as u64);
        match self.reading(index).ok().flatten().map(stat) {
            Some(Ok(length_bytes)) if length_bytes < recorded_bytes => match wanted {
                Wanted::Data => from.max(length_bytes),
                Wanted::Hole if found >= length_bytes => recorded_bytes,
                Wanted::Hole => found,
            },
            _ => found,
        }
    }

    /// The descriptor of a datafile, or of the inode, for reading; `None` when it does not exist.
    fn reading(&self, index: u16) -> Result<Option<BorrowedFd<'_>>> {
        if index == Datafiles::INODE {
            return Ok(self.inode());
        }
        self.striped().readable_datafile(index)
    }
}

/// Where the block of an offset begins.
fn block_of(offset: u64) -> u64 {
    offset - offset % BLOCK_BYTES
}
