//! The least lengths of a file's datafiles, recorded by the last writer that closes it. By them a datafile that was cut
//! short without the pool is told from one that ends where a hole begins.
//!
//! The record stands in an attribute of the namespace's inode, beside the handle, and not with the datafiles: it outlives
//! the exchange of a datafile, one system call keeps it however many datafiles there are, and a check reads it without
//! opening any of them. It is no part of the handle, which all opens of the file would have to read again.
//!
//! In an undamaged pool a datafile is never shorter than its record, also after a crash: it grows before its record does,
//! and the record is lowered before it is cut. The record is changed under the lock of the handle, or under
//! that of all writers. It may say less than there is. A user can write the attribute, so decoding trusts nothing; a record
//! that is not understood says nothing.

use crate::file::inode::Inode;
use crate::file::placed_file::PlacedFile;
use crate::format::extent::datafile_bytes;
use crate::format::handle::Reader;
use crate::format::placement::Datafile;
use crate::os::error::{Error, HandleError, Result};
use crate::os::sync::atomic::Ordering;
use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;
use smallvec::SmallVec;
use stripewise_layout::ServerId;

/// Name of the extended attribute.
pub(crate) const ATTRIBUTE: &str = "user.stripewise.lengths";

/// Greatest length of an encoded record in bytes: it shares what a file system has for the attributes of an inode (4 KiB on
/// ext4) with the handle. Of a file with more datafiles than it holds, some 90, only these are recorded: first of all those that are
/// shorter than was recorded, then those of which something was.
const MAX_BYTES: usize = 1024;
/// Bytes of a record around its entries.
const AROUND_BYTES: usize = 1 + 8 + 8 + 4;

const FORMAT: u8 = 1;

/// Lengths of datafiles in bytes; of each datafile at most one.
pub(crate) type Entries = SmallVec<[(Datafile, u64); 8]>;

/// A record of lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lengths {
    /// Logical handle of the file that it is of.
    logical: u64,
    /// When it was written, by the monotonic clock: two records that are equal are one.
    written_ns: u64,
    entries: Entries,
}

impl Lengths {
    fn new(logical: u64, entries: Entries) -> Self {
        Self { logical, written_ns: crate::backend::emulate::now_ns(), entries }
    }

    /// What is recorded of a datafile, in bytes; 0 where nothing is.
    pub(crate) fn of(&self, datafile: Datafile) -> u64 {
        self.entries.iter().find(|entry| entry.0 == datafile).map_or(0, |entry| entry.1)
    }

    /// The same with no more than `bytes` recorded of `datafile`.
    pub(crate) fn lowered(&self, datafile: Datafile, bytes: u64) -> Self {
        let lower = |entry: &(Datafile, u64)| (entry.0, if entry.0 == datafile { entry.1.min(bytes) } else { entry.1 });
        Self::new(self.logical, self.entries.iter().map(lower).filter(|entry| entry.1 > 0).collect())
    }

    /// The attribute's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend(self.logical.to_be_bytes());
        out.extend(self.written_ns.to_be_bytes());
        for (datafile, bytes) in &self.entries {
            out.extend(datafile.server.0.to_be_bytes());
            out.extend(datafile.generation.to_be_bytes());
            let digits = digits_of(*bytes);
            out.push(digits as u8);
            out.extend(&bytes.to_be_bytes()[8 - digits..]);
        }
        out.extend(crc32c::crc32c(&out).to_be_bytes());
        out
    }

    /// Reads what [`Lengths::encode`] wrote for file `logical`; `None` for any other bytes.
    pub(crate) fn decode(bytes: &[u8], logical: u64) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(body) != u32::from_be_bytes(*sum) {
            return None;
        }
        let read = || -> Result<Self, HandleError> {
            let mut reader = Reader(body);
            let unknown = HandleError::Damaged("a record of lengths that is not known");
            if reader.take::<1>()? != [FORMAT] || reader.u64()? != logical {
                return Err(unknown);
            }
            let written_ns = reader.u64()?;
            let mut entries = Entries::new();
            while !reader.0.is_empty() {
                let datafile = Datafile { server: ServerId(reader.u16()?), generation: reader.u32()? };
                let [count] = reader.take()?;
                let digits = reader.slice(usize::from(count))?;
                if digits.len() > 8 {
                    return Err(unknown);
                }
                entries.push((datafile, digits.iter().fold(0, |value, digit| value << 8 | u64::from(*digit))));
            }
            Ok(Self { logical, written_ns, entries })
        };
        read().ok()
    }
}

/// Bytes that a number is recorded in: few need all eight.
fn digits_of(bytes: u64) -> usize {
    8 - bytes.leading_zeros() as usize / 8
}

/// What is to be recorded of a datafile, and how much it matters: less is more.
type Weighed = (Weight, (Datafile, u64));

/// Why a datafile is to be in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// It is shorter than was recorded: without that what it has lost reads as zeros.
    IsShort,
    WasRecorded,
    IsNew,
}

impl Weight {
    fn of(before_bytes: u64, now_bytes: u64) -> Self {
        match before_bytes {
            0 => Self::IsNew,
            before if now_bytes < before => Self::IsShort,
            _ => Self::WasRecorded,
        }
    }
}

/// As many as a record can hold, those that matter most. O(entries log entries).
fn fitting(mut weighed: Vec<Weighed>) -> Entries {
    weighed.sort_by_key(|(weight, _)| *weight);
    let mut left = MAX_BYTES - AROUND_BYTES;
    let entries = weighed.into_iter().map_while(|(_, entry)| {
        left = left.checked_sub(2 + 4 + 1 + digits_of(entry.1))?;
        Some(entry)
    });
    entries.collect()
}

/// Reads a record by `get`, which is `getxattr` of the file's inode.
pub(crate) fn read_record(
    logical: u64,
    get: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Option<Lengths>> {
    let mut bytes = [0; MAX_BYTES];
    match get(&mut bytes) {
        Ok(len) => Ok(Lengths::decode(&bytes[..len], logical)),
        // There is none, there can be none, or it is none of ours.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The stretches of the file that stand in `[from, to)` of datafile `index`, as `(from, to)`, below offset `size_bytes`, in
/// ascending order.
pub(crate) fn stretches(
    datafiles: &crate::format::placement::Datafiles,
    index: u16,
    (from, to): (u64, u64),
    size_bytes: u64,
    mut found: impl FnMut(u64, u64),
) {
    let layout = &datafiles.placed;
    for (region, row) in layout.regions().iter().enumerate() {
        let (begin, end) = (row.offset(), layout.region_end(region).min(size_bytes));
        for slot in (0..row.stripes().len()).filter(|&slot| datafiles.index(region, slot) == index) {
            if begin >= end {
                continue;
            }
            let first = from.max(row.datafile_offset(slot, begin));
            let last = to.min(row.datafile_offset(slot, end));
            if first >= last {
                continue;
            }
            let (Some(start), Some(stop)) = (row.file_offset(slot, first), row.file_offset(slot, last - 1)) else {
                continue;
            };
            let sub = stripewise_layout::SubRequest {
                region,
                slot,
                server: row.stripes()[slot].server,
                datafile_offset: first,
                len: last - first,
                from: start,
                to: stop + 1,
            };
            layout.pieces(&sub).for_each(|(at, len)| found(at, at + len));
        }
    }
}

impl Inode {
    /// What is recorded of the datafiles' lengths. One system call.
    pub(crate) fn recorded_lengths(&self) -> Result<Option<Lengths>> {
        read_record(self.handle(), |bytes| rustix::fs::fgetxattr(self.descriptor(), ATTRIBUTE, bytes))
            .map_err(self.failed("read the recorded lengths of"))
    }

    /// Writes a record of no more entries than it can hold.
    fn write_lengths(&self, entries: Entries) -> Result<()> {
        let bytes = Lengths::new(self.handle(), entries).encode();
        let set = || rustix::fs::fsetxattr(self.descriptor(), ATTRIBUTE, &bytes, XattrFlags::empty());
        self.as_writable(set).map_err(self.failed("record the lengths of the datafiles of"))
    }

    /// Sets an attribute of the inode by `set`, also where its owner has made it read-only, and may not set a user attribute
    /// then.
    pub(crate) fn as_writable(&self, set: impl Fn() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
        match set() {
            Err(Errno::ACCESS) => {
                let mode = Mode::from_raw_mode(rustix::fs::fstat(self.descriptor())?.st_mode & 0o7777);
                rustix::fs::fchmod(self.descriptor(), mode | Mode::WUSR)
                    .and_then(|()| set())
                    .and_then(|()| rustix::fs::fchmod(self.descriptor(), mode))
            }
            done => done,
        }
    }

    /// Records how long the datafiles were found, each with its length in bytes. What was recorded before of one that is
    /// shorter now, or that could not be asked, stays. Under the exclusive lock of the writers.
    ///
    /// One system call for a file that had no datafile before and is closed for the first time; of others one to read the record, and
    /// one if there is more to say.
    pub(crate) fn raise_lengths(&self, file: &PlacedFile, found: &[(u16, u64)]) -> Result<()> {
        let before = if self.unrecorded.load(Ordering::Acquire) { None } else { self.recorded_lengths()? };
        let table = &file.datafiles().table;
        let present = file.current_placement().present;
        let mut weighed = Vec::new();
        for (index, &datafile) in table.iter().enumerate().filter(|(index, _)| present.contains(*index)) {
            let now = found.iter().find(|each| usize::from(each.0) == index).map_or(0, |each| each.1);
            let recorded = before.as_ref().map_or(0, |before| before.of(datafile));
            if now.max(recorded) > 0 {
                weighed.push((Weight::of(recorded, now), (datafile, now.max(recorded))));
            }
        }
        let entries = fitting(weighed);
        if before.as_ref().map_or(entries.is_empty(), |before| before.entries == entries) {
            return Ok(());
        }
        self.write_lengths(entries)?;
        self.unrecorded.store(false, Ordering::Release);
        Ok(())
    }

    /// Lowers the record to what a file of `size_bytes` has, before its datafiles are cut so. One system call, and one more if
    /// there is something to lower.
    ///
    /// # Errors
    /// The record could not be lowered: nothing may be cut.
    pub(crate) fn lower_lengths(&self, file: &PlacedFile, size_bytes: u64) -> Result<()> {
        let datafiles = file.datafiles();
        if datafiles.table.is_empty() {
            return Ok(());
        }
        let Some(before) = self.recorded_lengths()? else { return Ok(()) };
        let mut entries = Entries::new();
        for (index, &datafile) in datafiles.table.iter().enumerate() {
            let most = datafile_bytes(datafiles, index as u16, size_bytes);
            let bytes = before.of(datafile).min(most);
            if bytes > 0 {
                entries.push((datafile, bytes));
            }
        }
        let lower = |entry: &(Datafile, u64)| before.of(entry.0) != entry.1;
        if entries.len() == before.entries.len() && !entries.iter().any(lower) {
            return Ok(());
        }
        self.write_lengths(entries)
    }

    /// Before a move switches to `new`, a complete copy: records what the datafiles of both have. Those that stay keep what
    /// was recorded of them, as far as the new layout has it there.
    pub(crate) fn record_move(&self, old: &PlacedFile, new: &PlacedFile, size_bytes: u64) -> Result<()> {
        let before = self.recorded_lengths()?;
        let recorded = |datafile| before.as_ref().map_or(0, |before| before.of(datafile));
        let was_present = old.current_placement().present;
        let stays = |datafile| {
            let index = old.datafiles().table.iter().position(|other| *other == datafile);
            index.is_some_and(|index| was_present.contains(index))
        };
        let mut weighed = Vec::new();
        new.striped().for_each_present(|index, fd| {
            let datafile = new.datafiles().table[usize::from(index)];
            let most = datafile_bytes(new.datafiles(), index, size_bytes);
            let kept = if stays(datafile) { recorded(datafile).min(most) } else { 0 };
            let found = (rustix::fs::fstat(fd)?.st_size as u64).min(most);
            if found.max(kept) > 0 {
                weighed.push((Weight::of(kept, found), (datafile, found.max(kept))));
            }
            Ok(())
        })?;
        // Should the old layout stay after all. What of it has moved was there to be read.
        for (index, &datafile) in old.datafiles().table.iter().enumerate() {
            let bytes = recorded(datafile);
            if bytes > 0 && was_present.contains(index) && !new.datafiles().table.contains(&datafile) {
                weighed.push((Weight::IsNew, (datafile, bytes)));
            }
        }
        let all = self.write_lengths(fitting(weighed.clone()));
        all.or_else(|error| {
            // Where the inode has no room for all of it, what was known before has to stay known.
            weighed.retain(|(weight, _)| *weight != Weight::IsNew);
            self.write_lengths(fitting(weighed)).map_err(|_| error)
        })
    }

    /// Makes sure that what a reader misses at `position` of datafile `index` is a hole: the datafile is as long as was
    /// recorded, or nothing was recorded of that place. One system call, of a place that the record says was written, three.
    ///
    /// # Errors
    /// The datafile is shorter than its record: those bytes are lost.
    pub(crate) fn check_hole(&self, file: &PlacedFile, index: u16, position: u64) -> Result<()> {
        let datafile = file.datafiles().table[usize::from(index)];
        let mut before = self.recorded_lengths()?;
        loop {
            let Some(recorded_bytes) = before.as_ref().map(|lengths| lengths.of(datafile)).filter(|&b| b > position)
            else {
                return Ok(());
            };
            let Some(fd) = file.striped().readable_datafile(index)? else { return Ok(()) };
            let server = file.striped().server_of(index)?;
            let stat = rustix::fs::fstat(fd).map_err(server.error("read the attributes of a datafile"))?;
            let found_bytes = stat.st_size as u64;
            if found_bytes >= recorded_bytes {
                return Ok(());
            }
            // A cut lowers the record first: a record that was the same before and after the look held meanwhile.
            let after = self.recorded_lengths()?;
            if after == before {
                return Err(Error::ShortDatafile {
                    server: server.name().to_owned(),
                    datafile: datafile.path(self.handle()).as_str().to_owned(),
                    found_bytes,
                    recorded_bytes,
                });
            }
            before = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries() -> impl Strategy<Value = Vec<(u16, u32, u64)>> {
        proptest::collection::vec((any::<u16>(), any::<u32>(), any::<u64>()), 0..20)
    }

    proptest! {
        #[test]
        fn reads_what_it_wrote(entries in entries(), logical in any::<u64>()) {
            let datafile = |(server, generation, bytes)| (Datafile { server: ServerId(server), generation }, bytes);
            let lengths = Lengths::new(logical, entries.into_iter().map(datafile).collect());
            let bytes = lengths.encode();
            prop_assert_eq!(Lengths::decode(&bytes, logical), Some(lengths));
            prop_assert_eq!(Lengths::decode(&bytes, logical ^ 1), None);
            prop_assert_eq!(Lengths::decode(&bytes[1..], logical), None);
        }

        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            Lengths::decode(&bytes, 0);
            // As an attacker writes it, who knows how a record begins and ends.
            bytes.splice(..0, [FORMAT, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
            Lengths::decode(&bytes, 0);
        }
    }

    #[test]
    fn a_record_has_what_matters_most() {
        let entry = |server| (Datafile { server: ServerId(server), generation: 1 }, u64::MAX);
        let weight = |server: u16| match server {
            150.. => Weight::IsShort,
            100.. => Weight::WasRecorded,
            _ => Weight::IsNew,
        };
        assert_eq!(fitting((0..60).map(|server| (weight(server), entry(server))).collect()).len(), 60);
        let kept = fitting((0..200).map(|server| (weight(server), entry(server))).collect());
        let expected: Vec<_> = (150..200).chain(100..150).map(entry).take(kept.len()).collect();
        assert_eq!(kept.to_vec(), expected);
        assert!(kept.len() > 60);
        let bytes = Lengths::new(1, kept.clone()).encode();
        assert!(bytes.len() <= MAX_BYTES && bytes.len() > MAX_BYTES - 15);
        assert_eq!(Lengths::decode(&bytes, 1).unwrap().entries, kept);
    }
}
