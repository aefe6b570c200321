//! What the kernel is told: the bytes of each kind of reply.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// How the kernel is to treat an open file (`FOPEN_*`).
pub mod open_flags {
    /// No page is kept but for maps.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Pages stay from one open to the next.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// A close asks for nothing (`FLUSH`).
    pub const NOFLUSH: u32 = 1 << 5;
    /// Direct writes of several threads side by side.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// The kernel reads and writes by the backing file of the reply.
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// Bytes of attributes (`fuse_attr`).
const ATTR_BYTES: usize = 88;
/// Bytes of attributes and how long they hold (`fuse_attr_out`).
pub const ATTR_REPLY_BYTES: usize = 16 + ATTR_BYTES;
/// Bytes of a name looked up (`fuse_entry_out`).
pub const ENTRY_BYTES: usize = 40 + ATTR_BYTES;
/// Bytes of an open file (`fuse_open_out`).
pub const OPEN_BYTES: usize = 16;
/// Bytes of the space there is (`fuse_statfs_out`).
pub const SPACE_BYTES: usize = 80;
/// Bytes of attributes with the time of birth (`fuse_statx_out`).
pub const STATX_BYTES: usize = 288;
/// Bytes of an entry of a listing, before its name (`fuse_dirent`).
const DIRENT_BYTES: usize = 24;

/// Times are those of `stat`: seconds since 1970, and nanoseconds that count forward from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds since 1970; before it less than 0.
    pub seconds: i64,
    /// Nanoseconds after that second, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttr {
    /// Number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Size on disks in units of 512 bytes.
    pub blocks: u64,
    /// Time of last access.
    pub atime: Time,
    /// Time of last change of content.
    pub mtime: Time,
    /// Time of last change of the inode.
    pub ctime: Time,
    /// Type and permission bits.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device that a special file stands for.
    pub rdev: u32,
    /// Bytes of a good request.
    pub blksize: u32,
}

/// A name looked up.
#[derive(Clone, Copy, Debug)]
pub struct EntryReply {
    /// The inode; number 0: there is none.
    pub attr: FileAttr,
    /// How long the name holds.
    pub name_holds: Duration,
    /// How long the attributes do.
    pub attr_holds: Duration,
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub struct OpenReply {
    /// What the kernel is to call it.
    pub handle: u64,
    /// [`open_flags`].
    pub flags: u32,
    /// The backing file, with [`open_flags::PASSTHROUGH`]; else 0.
    pub backing: i32,
}

/// Attributes with the time of birth.
#[derive(Clone, Copy, Debug)]
pub struct StatxReply {
    /// All other attributes.
    pub attr: FileAttr,
    /// How long they hold.
    pub attr_holds: Duration,
    /// When the inode was made, if its file system says so.
    pub btime: Option<Time>,
}

/// Bytes of one reply, filled from the first to the last.
pub struct Out<const BYTES: usize> {
    bytes: [u8; BYTES],
    filled: usize,
}

impl<const BYTES: usize> Out<BYTES> {
    /// Nothing yet.
    pub fn new() -> Self {
        Out { bytes: [0; BYTES], filled: 0 }
    }

    /// Adds bytes.
    ///
    /// # Panics
    /// There is no room: the reply has another shape than its size says.
    pub fn add(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
        self
    }

    /// Adds a number.
    pub fn u16(&mut self, number: u16) -> &mut Self {
        self.add(&number.to_ne_bytes())
    }

    /// Adds a number.
    pub fn u32(&mut self, number: u32) -> &mut Self {
        self.add(&number.to_ne_bytes())
    }

    /// Adds a number.
    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.add(&number.to_ne_bytes())
    }

    /// Leaves `count` bytes zero.
    pub fn zeros(&mut self, count: usize) -> &mut Self {
        self.filled += count;
        self
    }

    /// The bytes.
    ///
    /// # Panics
    /// Some are missing.
    pub fn done(&self) -> [u8; BYTES] {
        assert_eq!(self.filled, BYTES, "a reply has all of its fields");
        self.bytes
    }

    fn attr(&mut self, attr: &FileAttr) -> &mut Self {
        self.u64(attr.ino).u64(attr.size).u64(attr.blocks);
        for time in [attr.atime, attr.mtime, attr.ctime] {
            self.u64(time.seconds.cast_unsigned());
        }
        for time in [attr.atime, attr.mtime, attr.ctime] {
            self.u32(time.nanoseconds);
        }
        self.u32(attr.mode).u32(attr.nlink).u32(attr.uid).u32(attr.gid).u32(attr.rdev).u32(attr.blksize).u32(0)
    }

    fn statx_time(&mut self, time: Time) -> &mut Self {
        self.u64(time.seconds.cast_unsigned()).u32(time.nanoseconds).u32(0)
    }
}

/// The header of each reply (`fuse_out_header`): `bytes` is the length of what follows, `error` 0 or an errno below 0, or
/// with `unique` 0 the code of what the kernel is told unasked.
pub fn header(bytes: usize, error: i32, unique: u64) -> [u8; 16] {
    let mut out = Out::new();
    // The largest reply is one of 16 MiB.
    out.u32((16 + bytes) as u32).u32(error.cast_unsigned()).u64(unique);
    out.done()
}

/// Attributes, and how long they hold.
pub fn attr_reply(attr: &FileAttr, holds: Duration) -> [u8; ATTR_REPLY_BYTES] {
    let mut out = Out::new();
    out.u64(holds.as_secs()).u32(holds.subsec_nanos()).u32(0).attr(attr);
    out.done()
}

/// A name looked up. The number of an inode is used again only when the kernel has forgotten it, so its generation is 0.
pub fn entry_reply(entry: &EntryReply) -> [u8; ENTRY_BYTES] {
    let mut out = Out::new();
    out.u64(entry.attr.ino).u64(0).u64(entry.name_holds.as_secs()).u64(entry.attr_holds.as_secs());
    out.u32(entry.name_holds.subsec_nanos()).u32(entry.attr_holds.subsec_nanos()).attr(&entry.attr);
    out.done()
}

/// An open file.
pub fn open_reply(open: &OpenReply) -> [u8; OPEN_BYTES] {
    let mut out = Out::new();
    out.u64(open.handle).u32(open.flags).u32(open.backing.cast_unsigned());
    out.done()
}

/// Attributes with the time of birth.
pub fn statx_reply(found: &StatxReply) -> [u8; STATX_BYTES] {
    let attr = &found.attr;
    let mask = libc::STATX_BASIC_STATS | if found.btime.is_some() { libc::STATX_BTIME } else { 0 };
    let mut out = Out::new();
    out.u64(found.attr_holds.as_secs()).u32(found.attr_holds.subsec_nanos()).u32(0).zeros(16);
    out.u32(mask).u32(attr.blksize).u64(0).u32(attr.nlink).u32(attr.uid).u32(attr.gid);
    out.u16(attr.mode as u16).u16(0).u64(attr.ino).u64(attr.size).u64(attr.blocks).u64(0);
    out.statx_time(attr.atime).statx_time(found.btime.unwrap_or_default());
    out.statx_time(attr.ctime).statx_time(attr.mtime);
    // The kernel's encoding of a device in 32 bits: 12 of the major, 20 of the minor.
    let major = (attr.rdev >> 8) & 0xfff;
    let minor = (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xf_ff00);
    out.u32(major).u32(minor).zeros(8 + 112);
    out.done()
}

/// The space there is.
pub fn space_reply(space: &rustix::fs::StatVfs) -> [u8; SPACE_BYTES] {
    let mut out = Out::new();
    out.u64(space.f_blocks).u64(space.f_bfree).u64(space.f_bavail).u64(space.f_files).u64(space.f_ffree);
    out.u32(space.f_bsize as u32).u32(space.f_namemax as u32).u32(space.f_frsize as u32).zeros(28);
    out.done()
}

/// Bytes of entries for which there is room with the first one: what most programs ask for.
const MOST_AT_ONCE: usize = 32 << 10;

/// Entries of a directory, up to as many bytes as the kernel asked for.
#[derive(Debug)]
pub struct DirectoryEntries {
    bytes: Vec<u8>,
    most_bytes: usize,
}

impl DirectoryEntries {
    /// Room for `most_bytes`.
    pub fn new(most_bytes: u32) -> DirectoryEntries {
        DirectoryEntries { bytes: Vec::new(), most_bytes: most_bytes as usize }
    }

    /// Adds an entry; `kind` is its type as in `st_mode`, `next` what the kernel is to ask with for those behind it. Whether
    /// there was no room.
    #[must_use]
    pub fn add(&mut self, ino: u64, next: u64, kind: u32, name: &OsStr) -> bool {
        self.add_with(&[], ino, next, kind, name)
    }

    /// The same with what a lookup of the name gives.
    #[must_use]
    pub fn add_plus(&mut self, entry: &EntryReply, next: u64, name: &OsStr) -> bool {
        self.add_with(&entry_reply(entry), entry.attr.ino, next, entry.attr.mode, name)
    }

    /// The same without that: the kernel goes by what it has, or looks the name up when a program wants it.
    #[must_use]
    pub fn add_bare(&mut self, ino: u64, next: u64, kind: u32, name: &OsStr) -> bool {
        self.add_with(&[0; ENTRY_BYTES], ino, next, kind, name)
    }

    fn add_with(&mut self, entry: &[u8], ino: u64, next: u64, kind: u32, name: &OsStr) -> bool {
        let bytes = (entry.len() + DIRENT_BYTES + name.len()).next_multiple_of(8);
        let end = self.bytes.len() + bytes;
        if end > self.most_bytes {
            return true;
        }
        if self.bytes.is_empty() {
            self.bytes.reserve(self.most_bytes.min(MOST_AT_ONCE));
        }
        let mut head = Out::<DIRENT_BYTES>::new();
        head.u64(ino).u64(next).u32(name.len() as u32).u32((kind & libc::S_IFMT) >> 12);
        self.bytes.extend_from_slice(entry);
        self.bytes.extend_from_slice(&head.done());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.resize(end, 0);
        false
    }

    /// The reply.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_reply_is_as_long_as_the_kernels() {
        let attr = FileAttr { ino: 7, mode: libc::S_IFREG | 0o644, rdev: 0x0012_3456, ..FileAttr::default() };
        let entry = EntryReply { attr, name_holds: Duration::from_millis(1500), attr_holds: Duration::ZERO };
        assert_eq!(&entry_reply(&entry)[16..24], &1_u64.to_ne_bytes());
        assert_eq!(&entry_reply(&entry)[32..36], &500_000_000_u32.to_ne_bytes());
        assert_eq!(attr_reply(&attr, Duration::ZERO).len(), 104);
        let statx = statx_reply(&StatxReply { attr, attr_holds: Duration::ZERO, btime: Some(Time::default()) });
        assert_eq!(&statx[32..36], &(libc::STATX_BASIC_STATS | libc::STATX_BTIME).to_ne_bytes());
        assert_eq!(&statx[64..72], &7_u64.to_ne_bytes(), "the inode stands behind mode and a spare");
        assert_eq!(&statx[160..168], &[0x34, 0x02, 0, 0, 0x56, 0x01, 0, 0], "device {:?}", &statx[160..168]);
    }

    #[test]
    fn a_listing_has_no_more_than_was_asked_for() {
        let mut list = DirectoryEntries::new(64);
        assert!(!list.add(1, 10, libc::S_IFDIR, OsStr::new("abc")));
        assert!(!list.add(2, 20, libc::S_IFREG, OsStr::new("abcdefgh")));
        assert!(list.add(3, 30, libc::S_IFREG, OsStr::new("")));
        assert_eq!(list.bytes().len(), 64);
        assert_eq!(&list.bytes()[20..24], &4_u32.to_ne_bytes());
        assert_eq!(&list.bytes()[24..32], b"abc\0\0\0\0\0");
        let mut bare = DirectoryEntries::new(ENTRY_BYTES as u32 + 32);
        assert!(!bare.add_bare(2, 20, libc::S_IFREG, OsStr::new("abc")));
        assert_eq!(bare.bytes()[..ENTRY_BYTES], [0; ENTRY_BYTES], "an entry of inode 0 is none");
        assert_eq!(&bare.bytes()[ENTRY_BYTES..ENTRY_BYTES + 8], &2_u64.to_ne_bytes());
    }
}
