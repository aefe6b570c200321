//! The handle: what the namespace inode says about where the file's bytes are.
//!
//! It is the extended file handle of Wei et al. (math E.1: logical and real handle, version, optimisation types with a
//! word each) wrapped with what the store needs: the layout by hash, the generation map, the datafiles that exist, a
//! truncation under way, and a checksum. It lives in the attribute [`ATTRIBUTE`] of the inode, big-endian. A user can
//! write that attribute, so decoding trusts nothing.

use crate::format::generations::{GenerationEntry, GenerationMap, MAX_GENERATIONS};
use crate::os::error::{Error, HandleError, Result};
use crate::os::sys::{getxattr_at, proc_path};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_layout::{Layout, MAX_OFFSET};
use stripewise_optimisation::OptimisationType;

/// Name of the extended attribute.
pub const ATTRIBUTE: &str = "user.stripewise";

/// The attribute that says of an inode whose it was before its owner was changed, and by which handle. Only root sets
/// such attributes, so that a check may believe it: a crash between the change of the inode and that of its datafiles
/// is finished by it, where otherwise a user might claim another's datafiles by a forged handle.
pub const FORMER_OWNER: &str = "trusted.stripewise";

/// Greatest length of an encoded handle in bytes.
pub const MAX_BYTES: usize = 4096;

/// Most datafiles of one file (servers x generations).
pub const MAX_DATAFILES: usize = 8192;

const MAGIC: [u8; 4] = *b"SWEH";
const FORMAT: u8 = 1;
const TRUNCATING: u8 = 1;
const SPARSE: u8 = 2;
/// Of a handle whose layout and optimisations are those that its file was made with.
const FIRST_VERSION: u32 = 1;
/// From this index on an optimisation promises something of the file's bytes, which a write by a release that does not know it could
/// break. Those before it say only how requests are served.
const FIRST_PROMISE: u32 = 16;
/// Greatest parameters of an optimisation type: 59 bits (math E.1).
const MAX_PARAMETERS: u64 = (1 << 59) - 1;

/// The optimisation types of a handle (math E.1): a mask, and a word of 59 bits for each enabled type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Optimisations {
    /// `(type, parameters)` in ascending order of type.
    enabled: Vec<(u32, u64)>,
}

impl Optimisations {
    /// The enabled types with their parameters, ascending.
    pub fn enabled(&self) -> &[(u32, u64)] {
        &self.enabled
    }

    /// Enables type `index`, or gives it other parameters. Fails without a change when out of bounds.
    pub fn enable(&mut self, index: u32, parameters: u64) -> Result<(), HandleError> {
        if index >= 32 || parameters > MAX_PARAMETERS {
            return Err(HandleError::Optimisation { index, parameters });
        }
        match self.enabled.binary_search_by_key(&index, |entry| entry.0) {
            Ok(at) => self.enabled[at].1 = parameters,
            Err(at) => self.enabled.insert(at, (index, parameters)),
        }
        Ok(())
    }

    /// Disables type `index`; whether it was enabled.
    pub fn disable(&mut self, index: u32) -> bool {
        let found = self.enabled.binary_search_by_key(&index, |entry| entry.0);
        found.map(|at| self.enabled.remove(at)).is_ok()
    }

    /// Parameters of type `index`, if it is enabled.
    pub fn parameters(&self, index: u32) -> Option<u64> {
        let at = self.enabled.binary_search_by_key(&index, |entry| entry.0).ok()?;
        Some(self.enabled[at].1)
    }

    /// The first enabled type that this release does not know and that promises something of the bytes. O(enabled types).
    pub(crate) fn unknown_promise(&self) -> Option<u32> {
        let is_unknown = |&index: &u32| index >= FIRST_PROMISE && OptimisationType::of_index(index).is_none();
        self.enabled.iter().map(|entry| entry.0).find(is_unknown)
    }

    /// Enables all of `others`, also over what is enabled.
    pub(crate) fn override_by(&mut self, others: &Self) {
        for &(index, parameters) in &others.enabled {
            // It is in bounds there, so it is here.
            let _ = self.enable(index, parameters);
        }
    }

    fn mask(&self) -> u32 {
        self.enabled.iter().fold(0, |mask, (index, _)| mask | 1 << index)
    }

    /// Appends mask and words, big-endian.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.mask().to_be_bytes());
        for &(index, parameters) in &self.enabled {
            out.extend((u64::from(index) << 59 | parameters).to_be_bytes());
        }
    }

    /// Takes what [`Optimisations::encode`] wrote; any other bytes are refused.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, HandleError> {
        let mask = reader.u32()?;
        let mut optimisations = Self::default();
        for index in (0..32).filter(|index| mask & 1 << index != 0) {
            let word = reader.u64()?;
            if word >> 59 != u64::from(index) {
                return Err(HandleError::Damaged("optimisation types do not match their mask"));
            }
            optimisations.enabled.push((index, word & MAX_PARAMETERS));
        }
        Ok(optimisations)
    }
}

/// Which datafiles of a file exist, by their index in the file's table of datafiles (see
/// [`crate::format::placement::Placement::datafiles`]). Bits beyond the stored bytes are clear.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Present {
    bits: Vec<u8>,
}

impl Present {
    /// Reads the stored bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut bits = bytes.to_vec();
        while bits.last() == Some(&0) {
            bits.pop();
        }
        Self { bits }
    }

    /// The bytes to store, without trailing zeros.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bits
    }

    /// Whether datafile `index` exists.
    pub fn contains(&self, index: usize) -> bool {
        self.bits.get(index / 8).is_some_and(|byte| byte & 1 << (index % 8) != 0)
    }

    /// Notes that datafile `index` exists.
    pub fn insert(&mut self, index: usize) {
        if self.bits.len() <= index / 8 {
            self.bits.resize(index / 8 + 1, 0);
        }
        self.bits[index / 8] |= 1 << (index % 8);
    }

    /// Notes that datafile `index` does not exist.
    pub fn remove(&mut self, index: usize) {
        if let Some(byte) = self.bits.get_mut(index / 8) {
            *byte &= !(1 << (index % 8));
        }
        while self.bits.last() == Some(&0) {
            self.bits.pop();
        }
    }

    /// Whether none exists.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }
}

/// The checksum at the end of an encoded handle.
pub(crate) fn checksum(bytes: &[u8]) -> Option<u32> {
    bytes.last_chunk().map(|sum| u32::from_be_bytes(*sum))
}

/// A decoded handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// Random, not zero, the same through the file's whole life; names its datafiles and its lock file.
    pub logical: u64,
    /// Number of the inode that carries the handle.
    pub real: u64,
    /// Incremented by every change of layout or optimisation, modulo 2^32.
    pub version: u32,
    /// Enabled optimisation types.
    pub optimisations: Optimisations,
    /// blake3 of the layout's binary form.
    pub layout: [u8; 32],
    /// Which generation holds which bytes.
    pub generations: GenerationMap,
    /// Which datafiles exist.
    pub present: Present,
    /// A truncation to this size in bytes has begun and must be finished before the file is used. [`MAX_OFFSET`]: nothing is to be cut
    /// off, but a move may have left something to clear away.
    pub truncating_to: Option<u64>,
    /// The last writer of a large file found that it has holes: only the servers know its space. A hint,
    /// which no byte depends on.
    pub sparse: bool,
}

impl Handle {
    /// A new handle of inode `real` with a random logical handle, no datafile yet.
    pub fn new(real: u64, layout: [u8; 32]) -> Self {
        let mut logical = 0;
        while logical == 0 {
            logical = u64::from_ne_bytes(crate::os::sys::random());
        }
        Self {
            logical,
            real,
            version: FIRST_VERSION,
            optimisations: Optimisations::default(),
            layout,
            generations: GenerationMap::whole(1),
            present: Present::default(),
            truncating_to: None,
            sparse: false,
        }
    }

    /// Where the file is being cut off, in bytes: by a truncation, or by a move of a file without writers.
    pub(crate) fn cut_at(&self) -> Option<u64> {
        self.truncating_to.filter(|&to| to < MAX_OFFSET)
    }

    /// Whether the file has had no datafile yet: never moved, and none made.
    pub(crate) fn is_as_made(&self) -> bool {
        self.version == FIRST_VERSION && self.present.is_empty() && self.truncating_to.is_none()
    }

    /// The attribute's bytes. Fails when they would exceed [`MAX_BYTES`].
    pub fn encode(&self) -> Result<Vec<u8>, HandleError> {
        let mut out = Vec::with_capacity(128);
        out.extend(MAGIC);
        out.push(FORMAT);
        let truncating = if self.truncating_to.is_some() { TRUNCATING } else { 0 };
        out.push(truncating | if self.sparse { SPARSE } else { 0 });
        out.extend(self.logical.to_be_bytes());
        out.extend(self.real.to_be_bytes());
        out.extend(self.version.to_be_bytes());
        self.optimisations.encode(&mut out);
        out.extend(self.layout);
        out.extend((self.generations.entries().len() as u16).to_be_bytes());
        self.generations.entries().iter().for_each(|entry| put_entry(&mut out, entry));
        let present = self.present.as_bytes();
        if present.len() > MAX_DATAFILES / 8 {
            return Err(HandleError::TooLarge("more than 8192 datafiles"));
        }
        out.extend((present.len() as u16).to_be_bytes());
        out.extend(present);
        if let Some(size) = self.truncating_to {
            out.extend(size.to_be_bytes());
        }
        out.extend(crc32c::crc32c(&out).to_be_bytes());
        if out.len() > MAX_BYTES {
            return Err(HandleError::TooLarge("more than 4096 bytes"));
        }
        Ok(out)
    }

    /// Reads what [`Handle::encode`] wrote; any other bytes are refused.
    pub fn decode(bytes: &[u8]) -> Result<Self, HandleError> {
        use HandleError::Damaged;
        if bytes.len() > MAX_BYTES {
            return Err(Damaged("longer than 4096 bytes"));
        }
        let mut reader = Reader(bytes);
        if reader.take::<4>()? != MAGIC {
            return Err(Damaged("it does not begin with SWEH"));
        }
        let [format] = reader.take()?;
        if format != FORMAT {
            return Err(HandleError::Format(format));
        }
        let body = bytes.split_last_chunk::<4>().ok_or(Damaged("too short"))?;
        if crc32c::crc32c(body.0) != u32::from_be_bytes(*body.1) {
            return Err(Damaged("wrong checksum"));
        }
        let [flags] = reader.take()?;
        if flags & !(TRUNCATING | SPARSE) != 0 {
            return Err(Damaged("unknown flags"));
        }
        let logical = reader.u64()?;
        if logical == 0 {
            return Err(Damaged("logical handle 0"));
        }
        let real = reader.u64()?;
        let version = reader.u32()?;
        let optimisations = Optimisations::decode(&mut reader)?;
        let layout = reader.take()?;
        let count = usize::from(reader.u16()?);
        if count > MAX_GENERATIONS {
            return Err(Damaged("too many generations"));
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(entry(&mut reader)?);
        }
        let generations = GenerationMap::new(entries).filter(|map| map.entries().len() == count);
        let generations = generations.ok_or(Damaged("generation map out of order"))?;
        let length = usize::from(reader.u16()?);
        if length > MAX_DATAFILES / 8 {
            return Err(Damaged("too many datafiles"));
        }
        let stored = reader.slice(length)?;
        let present = Present::from_bytes(stored);
        if present.as_bytes().len() != length {
            return Err(Damaged("bitmap of datafiles with trailing zeros"));
        }
        let truncating_to = if flags & TRUNCATING != 0 { Some(reader.u64()?) } else { None };
        if truncating_to.is_some_and(|size| size > MAX_OFFSET) {
            return Err(Damaged("size beyond 2^63-1"));
        }
        if reader.0.len() != 4 {
            return Err(Damaged("wrong length"));
        }
        let sparse = flags & SPARSE != 0;
        Ok(Self { logical, real, version, optimisations, layout, generations, present, truncating_to, sparse })
    }
}

/// What [`crate::Store::create`] has given a file.
#[derive(Debug)]
#[must_use = "the file is known by it without being read again"]
pub struct Created {
    pub(crate) handle: Handle,
    pub(crate) layout: Arc<Layout>,
    /// User whose file it is.
    pub(crate) owner: u32,
    /// Type and permission bits that it was made with.
    pub(crate) mode: u32,
}

impl Created {
    /// Number of the file's inode.
    pub fn real(&self) -> u64 {
        self.handle.real
    }

    /// The file's logical handle.
    pub fn logical(&self) -> u64 {
        self.handle.logical
    }

    /// Type and permission bits of the file when it got its handle.
    pub fn mode(&self) -> u32 {
        self.mode
    }
}

/// Reads and checks the handle of the inode `real` at `path`; `None` when it has none.
pub(crate) fn read_handle(path: &Path, real: u64) -> Result<Option<Handle>> {
    read_handle_by(|| path.to_owned(), real, |bytes| rustix::fs::getxattr(path, ATTRIBUTE, bytes))
}

/// [`read_handle`] of the open file `fd`, which is not O_PATH: without the way through /proc.
pub(crate) fn read_open_handle(fd: BorrowedFd<'_>, real: u64) -> Result<Option<Handle>> {
    read_handle_by(|| proc_path(fd), real, |bytes| rustix::fs::fgetxattr(fd, ATTRIBUTE, bytes))
}

/// [`read_handle`] of what `dir` has under `name`, a link itself: without the way through /proc (Linux 6.13).
pub(crate) fn read_handle_at(dir: BorrowedFd<'_>, name: &OsStr, real: u64) -> Result<Option<Handle>> {
    read_handle_by(|| proc_path(dir).join(name), real, |bytes| getxattr_at(dir, name, ATTRIBUTE, bytes))
}

fn read_handle_by(
    path: impl Fn() -> PathBuf,
    real: u64,
    get: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
) -> Result<Option<Handle>> {
    // The path is one of a descriptor, which says nothing to a person.
    let unusable = |reason| Error::HandleOf { path: std::fs::read_link(path()).unwrap_or_else(|_| path()), reason };
    let mut bytes = [0; MAX_BYTES];
    let len = match get(&mut bytes) {
        Ok(len) => len,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
        Err(Errno::RANGE) => return Err(unusable(HandleError::Damaged("longer than 4096 bytes"))),
        Err(errno) => return Err(Error::io("read the handle of", path())(errno)),
    };
    let handle = Handle::decode(&bytes[..len]).map_err(unusable)?;
    if handle.real != real {
        return Err(unusable(HandleError::OtherInode { logical: handle.logical, real: handle.real, found: real }));
    }
    Ok(Some(handle))
}

/// The highest bit of an entry's offset: an origin follows its generation. Offsets are below it.
const HAS_ORIGIN: u64 = 1 << 63;

/// Writes an entry of a generation map, as handles and placements have it.
pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &GenerationEntry) {
    out.extend((entry.offset | if entry.origin.is_some() { HAS_ORIGIN } else { 0 }).to_be_bytes());
    out.extend(entry.generation.to_be_bytes());
    out.extend(entry.origin.iter().flat_map(|origin| origin.to_be_bytes()));
}

/// Reads what [`put_entry`] wrote.
pub(crate) fn entry(reader: &mut Reader<'_>) -> Result<GenerationEntry, HandleError> {
    let (offset, generation) = (reader.u64()?, reader.u32()?);
    let origin = if offset & HAS_ORIGIN != 0 { Some(reader.u64()?) } else { None };
    Ok(GenerationEntry { offset: offset & !HAS_ORIGIN, generation, origin })
}

/// Takes fields off the front of a slice; shared with the other binary forms of this crate.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn slice(&mut self, len: usize) -> Result<&'a [u8], HandleError> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(HandleError::Damaged("too short"))?;
        self.0 = tail;
        Ok(head)
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], HandleError> {
        let (head, tail) = self.0.split_first_chunk().ok_or(HandleError::Damaged("too short"))?;
        self.0 = tail;
        Ok(*head)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, HandleError> {
        self.take().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, HandleError> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, HandleError> {
        self.take().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Handle {
        let mut handle = Handle::new(77, [9; 32]);
        handle.generations = GenerationMap::new([
            GenerationEntry { offset: 0, generation: 1, origin: None },
            GenerationEntry { offset: 4096, generation: 2, origin: None },
            GenerationEntry { offset: 8192, generation: 1, origin: Some(0) },
        ])
        .unwrap();
        handle.optimisations.enable(31, MAX_PARAMETERS).unwrap();
        handle.optimisations.enable(0, 5).unwrap();
        handle.present.insert(11);
        handle.truncating_to = Some(123);
        handle.sparse = true;
        handle
    }

    #[test]
    fn reads_what_it_wrote() {
        let handle = sample();
        let bytes = handle.encode().unwrap();
        assert_eq!(Handle::decode(&bytes), Ok(handle));
    }

    #[test]
    fn optimisations_stay_in_bounds() {
        let mut types = sample().optimisations;
        let before = types.clone();
        assert!(types.enable(32, 0).is_err());
        assert!(types.enable(1, MAX_PARAMETERS + 1).is_err());
        assert_eq!(types, before);
        assert_eq!(types.enabled(), [(0, 5), (31, MAX_PARAMETERS)]);
        assert!(types.disable(31) && !types.disable(31));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Handle::decode(&bytes).is_err());
        }

        /// Damage behind a right checksum reaches every later check.
        #[test]
        fn damage_is_refused_or_stays_in_bounds(at in 6_usize..100, value: u8, cut in 0_usize..100) {
            let mut bytes = sample().encode().unwrap();
            bytes.truncate(bytes.len() - 4);
            let at = at % bytes.len();
            bytes[at] = value;
            let keep = bytes.len() - cut % 3 * (cut % bytes.len()) / 3;
            bytes.truncate(keep);
            let crc = crc32c::crc32c(&bytes).to_be_bytes();
            bytes.extend(crc);
            if let Ok(handle) = Handle::decode(&bytes) {
                prop_assert_eq!(handle.encode().unwrap(), bytes);
            }
        }

        #[test]
        fn any_flipped_bit_is_seen(bit in 0_usize..800) {
            let mut bytes = sample().encode().unwrap();
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Handle::decode(&bytes).is_err());
        }
    }
}
