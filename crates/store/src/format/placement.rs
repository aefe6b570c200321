//! A placement: all that is needed to find a file's bytes, as the mount hands it to the preload.

use crate::format::generations::GenerationMap;
use crate::format::handle::{MAX_DATAFILES, Present, Reader, entry, put_entry};
use crate::format::identity::Identity;
use crate::os::error::HandleError;
use std::fmt::Write as _;
use std::sync::Arc;
use stripewise_layout::{Layout, MAX_OFFSET, ServerId};

const MAGIC: [u8; 4] = *b"SWPL";
const FORMAT: u8 = 3;
const BYPASS: u8 = 1;

/// One datafile of a file: the bytes of one generation on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datafile {
    /// The server.
    pub server: ServerId,
    /// The generation.
    pub generation: u32,
}

/// A datafile as its server knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DatafileKey {
    /// Logical handle of the file.
    pub handle: u64,
    /// The generation.
    pub generation: u32,
}

impl Datafile {
    /// What its server knows it by, in the file of that handle.
    pub fn key(&self, handle: u64) -> DatafileKey {
        DatafileKey { handle, generation: self.generation }
    }

    /// [`DatafileKey::path`] in the file of that handle.
    pub fn path(&self, handle: u64) -> DatafilePath {
        self.key(handle).path()
    }
}

impl DatafileKey {
    /// Its name, as people are told it, and path below the directory of a server that is one: low byte of the handle, then
    /// handle and generation, all in hexadecimal digits.
    pub fn path(self) -> DatafilePath {
        let Self { handle, generation } = self;
        let mut path = DatafilePath { bytes: [0; 29], len: 0 };
        // The text has 2 + 1 + 16 + 1 + 8 = 28 bytes, so writing it cannot fail.
        let _ = write!(path, "{:02x}/{handle:016x}.{generation:08x}", handle & 0xff);
        path
    }
}

/// Path of a datafile, kept without allocation and with the zero that the kernel wants at its end.
#[derive(Debug, Clone, Copy)]
pub struct DatafilePath {
    bytes: [u8; 29],
    len: usize,
}

impl DatafilePath {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    /// The path as the kernel takes it.
    pub fn as_c_str(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    /// The directory part, two hexadecimal digits.
    pub fn directory(&self) -> &str {
        &self.as_str()[..2]
    }
}

impl std::fmt::Write for DatafilePath {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let to = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(std::fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Where the bytes of one file are, and what is known of its datafiles, at one moment (`epoch`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Uuid of the pool whose servers have the bytes.
    pub pool: Arc<str>,
    /// Logical handle.
    pub handle: u64,
    /// Version of the handle.
    pub version: u32,
    /// The file's epoch counter as it was *before* the handle was read: a placement is current as long as the counter
    /// still has this value.
    pub epoch: u32,
    /// User that owns the file, and so every datafile of it.
    pub owner: u32,
    /// The file's inode: what its datafiles are bound to in a shared pool.
    pub identity: Identity,
    /// Whether reads and writes may go past the mount.
    pub bypass: bool,
    /// Which generation holds which bytes; every region lies in one.
    pub generations: GenerationMap,
    /// Which datafiles exist.
    pub present: Present,
    /// The layout that the handle names; where its regions are on the servers, [`Placement::datafiles`] knows.
    pub layout: Arc<Layout>,
}

/// Table of the datafiles that a layout and a generation map give: each (server, generation) once, in order of first
/// appearance over regions and rounds; [`ServerId::META`] is not among them. Indexes of [`Present`] refer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datafiles {
    /// The datafiles in order.
    pub table: Vec<Datafile>,
    /// The layout as the file has it: cut where a generation begins within a region, with the places of each part. Regions and
    /// slots of these tables are those of it.
    pub placed: Layout,
    /// Index into `table` of each slot of each region, regions one after the other; [`Datafiles::INODE`] for the
    /// metadata tier.
    pub(crate) of_slot: Vec<u16>,
    /// Where each region begins in `of_slot`.
    pub(crate) region_start: Vec<u32>,
}

impl Datafiles {
    /// Stands for the inode itself.
    pub const INODE: u16 = u16::MAX;

    /// Builds the table. O(regions x stripes x datafiles); done once per opened file. Fails when the generations do not fit the
    /// layout, the places of two regions are not in order in a datafile, so that they might overlap, or there are too many
    /// datafiles.
    pub fn new(layout: &Layout, generations: &GenerationMap) -> Result<Self, HandleError> {
        let misfit = |_| HandleError::Damaged("its generations do not fit its layout");
        let placed = generations.placed(layout).map_err(misfit)?;
        let mut table: Vec<Datafile> = Vec::new();
        // Of each datafile: where the places of the regions that it has so far end.
        let mut ends: Vec<u64> = Vec::new();
        let mut of_slot = Vec::new();
        let mut region_start = Vec::with_capacity(placed.regions().len());
        // Generations repeat in runs, so looking from the end finds a datafile after at most one round of servers.
        for (number, region) in placed.regions().iter().enumerate() {
            region_start.push(of_slot.len() as u32);
            let generation = generations.at(region.offset());
            let end = placed.region_end(number).min(MAX_OFFSET);
            for (slot, stripe) in region.stripes().iter().enumerate() {
                if stripe.server == ServerId::META {
                    of_slot.push(Self::INODE);
                    continue;
                }
                let datafile = Datafile { server: stripe.server, generation };
                let index = table.iter().rposition(|other| *other == datafile).unwrap_or_else(|| {
                    table.push(datafile);
                    ends.push(0);
                    table.len() - 1
                });
                if index >= MAX_DATAFILES {
                    return Err(HandleError::TooLarge("more than 8192 datafiles"));
                }
                let place = (region.datafile_offset(slot, region.offset()), region.datafile_offset(slot, end));
                if place.0 < place.1 {
                    if place.0 < ends[index] {
                        return Err(HandleError::Damaged("the places of two regions overlap in a datafile"));
                    }
                    ends[index] = place.1;
                }
                of_slot.push(index as u16);
            }
        }
        Ok(Self { table, placed, of_slot, region_start })
    }

    /// The index in `table` that serves slot `slot` of region `region`; [`Datafiles::INODE`] for the inode. O(1).
    #[inline]
    pub fn index(&self, region: usize, slot: usize) -> u16 {
        self.of_slot[self.region_start[region] as usize + slot]
    }
}

impl Placement {
    /// The file's datafiles.
    pub fn datafiles(&self) -> Result<Datafiles, HandleError> {
        Datafiles::new(&self.layout, &self.generations)
    }

    /// The binary form for the mount's ioctl.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend(MAGIC);
        out.push(FORMAT);
        out.push(if self.bypass { BYPASS } else { 0 });
        out.extend((self.pool.len() as u16).to_be_bytes());
        out.extend(self.pool.as_bytes());
        out.extend(self.handle.to_be_bytes());
        out.extend(self.version.to_be_bytes());
        out.extend(self.epoch.to_be_bytes());
        out.extend(self.owner.to_be_bytes());
        out.extend(self.identity.inode.to_be_bytes());
        out.extend(self.identity.generation.to_be_bytes());
        out.extend((self.generations.entries().len() as u16).to_be_bytes());
        self.generations.entries().iter().for_each(|entry| put_entry(&mut out, entry));
        out.extend((self.present.as_bytes().len() as u16).to_be_bytes());
        out.extend(self.present.as_bytes());
        out.extend(self.layout.to_bytes());
        out
    }

    /// Reads what [`Placement::to_bytes`] wrote; anything else is refused.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HandleError> {
        use HandleError::Damaged;
        let mut reader = Reader(bytes);
        if reader.take::<4>()? != MAGIC {
            return Err(Damaged("not a placement"));
        }
        let [format, flags] = reader.take()?;
        if format != FORMAT {
            return Err(HandleError::Format(format));
        }
        if flags & !BYPASS != 0 {
            return Err(Damaged("unknown flags"));
        }
        let pool_len = usize::from(reader.u16()?);
        let pool = std::str::from_utf8(reader.slice(pool_len)?).map_err(|_| Damaged("the pool's uuid is not text"))?;
        let (handle, version, epoch, owner) = (reader.u64()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let identity = Identity { inode: reader.u64()?, generation: reader.u32()? };
        let count = reader.u16()?;
        let entries: Vec<_> = (0..count).map(|_| entry(&mut reader)).collect::<Result<_, HandleError>>()?;
        let generations = GenerationMap::new(entries).ok_or(Damaged("generation map out of order"))?;
        let present_len = usize::from(reader.u16()?);
        let present = Present::from_bytes(reader.slice(present_len)?);
        let layout = Layout::from_bytes(reader.0).map_err(|_| Damaged("layout"))?;
        let placement = Self {
            pool: pool.into(),
            handle,
            version,
            epoch,
            owner,
            identity,
            bypass: flags & BYPASS != 0,
            generations,
            present,
            layout: Arc::new(layout),
        };
        placement.datafiles()?;
        Ok(placement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::generations::GenerationEntry;
    use proptest::prelude::*;
    use stripewise_layout::Stripe;

    fn sample() -> Placement {
        let stripe = |server, width_bytes| Stripe { server: ServerId(server), width_bytes };
        let rounds = [
            (0, vec![stripe(0, 4096), stripe(1, 65536)]),
            (100_000, vec![stripe(u16::MAX, 4096)]),
            (200_000, vec![stripe(1, 5), stripe(0, 7)]),
        ];
        let mut present = Present::default();
        present.insert(2);
        Placement {
            pool: "0123456789abcdef0123456789abcdef".into(),
            handle: 0xfeed_0000_0000_00ab,
            version: 4,
            epoch: 77,
            owner: 1000,
            identity: Identity { inode: 1 << 40, generation: 9 },
            bypass: true,
            generations: GenerationMap::new(
                [(0, 2, None), (50_000, 3, Some(50_000)), (70_000, 2, Some(0)), (200_000, 4, None)]
                    .map(|(offset, generation, origin)| GenerationEntry { offset, generation, origin }),
            )
            .unwrap(),
            present,
            layout: Arc::new(Layout::new(rounds).unwrap()),
        }
    }

    #[test]
    fn datafiles_stand_once_in_order() {
        let placement = sample();
        let datafiles = placement.datafiles().unwrap();
        let names: Vec<_> = datafiles.table.iter().map(|d| d.path(placement.handle).as_str().to_owned()).collect();
        assert_eq!(names[0], "ab/feed0000000000ab.00000002");
        assert_eq!(names[2], "ab/feed0000000000ab.00000003");
        assert_eq!(names[4], "ab/feed0000000000ab.00000004");
        assert_eq!(datafiles.table.len(), 6);
        // The first region is cut in three, of which the last is where it was.
        assert_eq!((datafiles.index(2, 0), datafiles.index(2, 1)), (0, 1));
        assert_eq!(datafiles.index(3, 0), Datafiles::INODE);
        assert_eq!((datafiles.index(4, 0), datafiles.index(4, 1)), (4, 5));
    }

    #[test]
    fn reads_what_it_wrote() {
        let placement = sample();
        assert_eq!(Placement::from_bytes(&placement.to_bytes()), Ok(placement));
    }

    proptest! {
        #[test]
        fn damage_never_panics(changes in proptest::collection::vec((0_usize..200, any::<u8>()), 1..5), keep in 0_usize..200) {
            let mut bytes = sample().to_bytes();
            for (at, value) in changes {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            bytes.truncate(keep.max(4));
            if let Ok(placement) = Placement::from_bytes(&bytes) {
                prop_assert!(placement.datafiles().is_ok());
            }
        }
    }
}
