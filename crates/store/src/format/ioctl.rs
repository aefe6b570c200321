//! The mount's ioctls, by which the preload and `umount` learn what they need: numbers and payloads, one definition for
//! both sides.
//!
//! They are restricted ioctls of FUSE: the kernel copies a fixed structure in and out, its size (at most 16383 bytes)
//! encoded in the command. All integers are in the machine's order; both sides run on one machine.

use crate::format::surplus::{DatafileWrite, Surplus};
use stripewise_layout::MAX_OFFSET;

/// Bytes of a placement that one [`PLACEMENT`] call returns.
pub const PAGE_BYTES: usize = 8000;

/// Most datafiles that one [`ENSURE_DATAFILES`] call names.
pub const MAX_ENSURE: usize = 64;

const fn command(direction: u32, number: u32, size: usize) -> u32 {
    // _IOC of asm-generic/ioctl.h; 'W' is the type.
    direction << 30 | (size as u32) << 16 | (b'W' as u32) << 8 | number
}
const WRITE: u32 = 1;
const READ: u32 = 2;

/// One page of the file's [`crate::format::placement::Placement`] in its binary form.
///
/// Ask for `offset_bytes` 0 first, then on until `total_bytes` have come. A `stamp` that differs from the first page's
/// means that the placement changed meanwhile: begin again at 0. ENOTTY: not a placed file.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlacementPage {
    /// In: first byte wanted.
    pub offset_bytes: u32,
    /// Out: length of the whole binary form in bytes.
    pub total_bytes: u32,
    /// Out: bytes of `bytes` that are filled.
    pub filled_bytes: u32,
    /// Out: checksum (crc32c) of the whole binary form.
    pub stamp: u32,
    /// Out: the bytes.
    pub bytes: [u8; PAGE_BYTES],
}

/// Creates datafiles and sets their present bits (argument of [`ENSURE_DATAFILES`]).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EnsureDatafiles {
    /// Version of the handle that the indexes are of; nothing is done when the file has another one by now.
    pub version: u32,
    /// How many of `indexes` are meant.
    pub count: u32,
    /// Indexes in the placement's table of datafiles.
    pub indexes: [u16; MAX_ENSURE],
}

/// Most parts that one [`CUT_BACK`] call names; what a write over more servers has left is not cut off.
pub const MAX_PARTS: usize = 128;

/// Cuts off what a write past the mount that failed half-way has left (argument of [`CUT_BACK`]): a [`Surplus`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CutBack {
    version: u32,
    count: u32,
    kept_to: u64,
    /// Of each part its index, `before_bytes`, `from` and `to`.
    parts: [[u64; 4]; MAX_PARTS],
}

/// Reads a page of the placement.
pub const PLACEMENT: u32 = command(READ | WRITE, 1, size_of::<PlacementPage>());
/// Creates datafiles before their first write.
pub const ENSURE_DATAFILES: u32 = command(WRITE, 2, size_of::<EnsureDatafiles>());
/// Size of the file now, in bytes, as a `u64`.
pub const SIZE: u32 = command(READ, 3, size_of::<u64>());
/// This process maps the file: no bypass of this file until its last close. No argument.
pub const MAPPED: u32 = command(0, 4, 0);
/// Cuts off what a write past the mount has left behind the bytes that count.
pub const CUT_BACK: u32 = command(WRITE, 5, size_of::<CutBack>());
/// Bytes that this process has written past the mount may be lost: all that have the file open are told by `fsync`. No
/// argument.
pub const LOST: u32 = command(0, 6, 0);
/// The process that serves the mount, as a [`ServingProcess`]. Of directories, by any program that has one open.
pub const SERVING_PROCESS: u32 = command(READ, 7, size_of::<ServingProcess>());

/// The process that serves a mount.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServingProcess {
    /// Inode number of the pid namespace in which `pid` counts; 0 if that is not known.
    pub pid_namespace: u64,
    /// Its number.
    pub pid: u64,
}

impl ServingProcess {
    /// This process.
    pub fn this() -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs().into();
        Self { pid_namespace: Self::own_pid_namespace(), pid }
    }

    /// Inode number of this process's pid namespace; 0 if that is not known.
    pub fn own_pid_namespace() -> u64 {
        rustix::fs::stat("/proc/self/ns/pid").map_or(0, |stat| stat.st_ino)
    }

    /// The bytes of the payload.
    pub fn as_bytes(&self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        bytes[..8].copy_from_slice(&self.pid_namespace.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.pid.to_ne_bytes());
        bytes
    }
}

impl PlacementPage {
    /// A request for the page at `offset_bytes`.
    pub fn request(offset_bytes: u32) -> Self {
        Self { offset_bytes, total_bytes: 0, filled_bytes: 0, stamp: 0, bytes: [0; PAGE_BYTES] }
    }

    /// The page at `offset_bytes` of the binary form `whole`.
    pub fn reply(whole: &[u8], offset_bytes: u32) -> Self {
        let mut page = Self::request(offset_bytes);
        let rest = whole.get(offset_bytes as usize..).unwrap_or_default();
        let filled = rest.len().min(PAGE_BYTES);
        page.bytes[..filled].copy_from_slice(&rest[..filled]);
        page.filled_bytes = filled as u32;
        page.total_bytes = whole.len() as u32;
        page.stamp = crc32c::crc32c(whole);
        page
    }

    /// The bytes of the structure.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: repr(C) of integers without padding: every byte is initialised.
        unsafe { std::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) }
    }

    /// The part that is filled; `None` when the length given is impossible.
    pub fn filled(&self) -> Option<&[u8]> {
        self.bytes.get(..self.filled_bytes as usize)
    }

    /// First byte wanted, from the bytes of a request; `None` when it is too short.
    pub fn wanted(request: &[u8]) -> Option<u32> {
        request.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }
}

impl EnsureDatafiles {
    /// Asks for `indexes` (at most [`MAX_ENSURE`]; the rest is left out).
    pub fn new(version: u32, indexes: &[u16]) -> Self {
        let count = indexes.len().min(MAX_ENSURE);
        let mut out = Self { version, count: count as u32, indexes: [0; MAX_ENSURE] };
        out.indexes[..count].copy_from_slice(&indexes[..count]);
        out
    }

    /// Reads the bytes of a request; `None` when they are too short or name too many.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; size_of::<Self>()] = bytes.get(..size_of::<Self>())?.try_into().ok()?;
        // SAFETY: any bytes are a valid value of this repr(C) structure of integers, and the length is right.
        let out: Self = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        (out.count as usize <= MAX_ENSURE).then_some(out)
    }

    /// The indexes meant.
    pub fn wanted(&self) -> &[u16] {
        &self.indexes[..(self.count as usize).min(MAX_ENSURE)]
    }
}

impl CutBack {
    /// Asks for `surplus` to be cut off; `None` when it has too many parts.
    pub fn new(surplus: &Surplus) -> Option<Self> {
        let mut parts = [[0; 4]; MAX_PARTS];
        if surplus.parts.len() > MAX_PARTS {
            return None;
        }
        for (place, part) in parts.iter_mut().zip(&surplus.parts) {
            *place = [part.index.into(), part.before_bytes, part.from, part.to];
        }
        Some(Self { version: surplus.version, count: surplus.parts.len() as u32, kept_to: surplus.kept_to, parts })
    }

    /// Reads the bytes of a request; `None` when they are too short, name too many parts or an impossible one.
    pub fn surplus(bytes: &[u8]) -> Option<Surplus> {
        let bytes: &[u8; size_of::<Self>()] = bytes.get(..size_of::<Self>())?.try_into().ok()?;
        // SAFETY: any bytes are a valid value of this repr(C) structure of integers, and the length is right.
        let this: Self = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        let part = |[index, before_bytes, from, to]: &[u64; 4]| {
            let largest = *before_bytes.max(from).max(to);
            (from <= to && largest <= MAX_OFFSET)
                .then(|| {
                    Some(DatafileWrite {
                        index: (*index).try_into().ok()?,
                        before_bytes: *before_bytes,
                        from: *from,
                        to: *to,
                    })
                })
                .flatten()
        };
        let parts = this.parts.get(..this.count as usize)?.iter().map(part).collect::<Option<_>>()?;
        (this.kept_to <= MAX_OFFSET).then_some(Surplus { version: this.version, kept_to: this.kept_to, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_fit_and_differ() {
        assert!(size_of::<PlacementPage>() <= 16383);
        assert!(size_of::<CutBack>() <= 16383);
        let all = [PLACEMENT, ENSURE_DATAFILES, SIZE, MAPPED, CUT_BACK, LOST];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
        // What the C macro _IOR('W', 3, unsigned long long) gives.
        assert_eq!(SIZE, 0x8008_5703);
    }

    #[test]
    fn pages_join_to_the_whole() {
        let whole: Vec<u8> = (0..20_000_u32).map(|i| i as u8).collect();
        let mut out: Vec<u8> = Vec::new();
        while out.len() < whole.len() {
            let page = PlacementPage::reply(&whole, out.len() as u32);
            assert_eq!(page.total_bytes as usize, whole.len());
            out.extend(page.filled().unwrap());
        }
        assert_eq!(out, whole);
        assert_eq!(PlacementPage::reply(&whole, 30_000).filled(), Some(&[][..]));
    }

    #[test]
    fn hostile_requests_are_refused() {
        let mut ensure = EnsureDatafiles::new(3, &[1, 2]);
        ensure.count = 65;
        // SAFETY: as in `PlacementPage::as_bytes`.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const ensure).cast::<u8>(), size_of_val(&ensure)) };
        assert!(EnsureDatafiles::from_bytes(bytes).is_none());
        assert!(EnsureDatafiles::from_bytes(&bytes[..100]).is_none());

        let part = DatafileWrite { index: 3, before_bytes: 7, from: 5, to: 9 };
        let surplus = Surplus { version: 2, kept_to: 11, parts: [part].into_iter().collect() };
        let whole = CutBack::new(&surplus).unwrap();
        let read = |cut: &CutBack| {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts((&raw const *cut).cast::<u8>(), size_of_val(cut)) };
            assert!(CutBack::surplus(&bytes[..bytes.len() - 1]).is_none());
            CutBack::surplus(bytes)
        };
        assert_eq!(read(&whole), Some(surplus));
        let hostile: [fn(&mut CutBack); 4] = [
            |cut| cut.count = MAX_PARTS as u32 + 1,
            |cut| cut.parts[0][0] = 1 << 16,
            |cut| cut.parts[0][2] = 10,
            |cut| cut.kept_to = u64::MAX,
        ];
        for change in hostile {
            let mut cut = whole;
            change(&mut cut);
            assert_eq!(read(&cut), None);
        }
    }
}
