//! What the kernel asks: the bytes of a message as a [`Call`].
//!
//! A message is a header and the fields of its kind. No length in it is believed: what does not fit into the bytes that there
//! are is [`Malformed`]. Nothing is copied; names and data stay where they were received.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::replies::Time;

/// Bytes of the header (`fuse_in_header`).
const HEADER_BYTES: usize = 40;
/// Bytes of one entry of a batch of forgets.
const FORGET_BYTES: usize = 16;

/// Kinds of messages (`enum fuse_opcode`).
mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Which fields of a change of attributes count (`FATTR_*`).
mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const HANDLE: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// Of a write (`FUSE_WRITE_*`).
pub mod write_flags {
    /// The kernel writes pages that it kept.
    pub const CACHE: u32 = 1 << 0;
    /// Set-user-id bits are to go.
    pub const KILL_SUIDGID: u32 = 1 << 2;
}

/// `FUSE_READ_LOCKOWNER`: the lock owner of a read counts.
const READ_LOCKOWNER: u32 = 1 << 1;
/// `FUSE_FSYNC_FDATASYNC`.
const FSYNC_DATA_ONLY: u32 = 1;
/// `FUSE_IOCTL_UNRESTRICTED`: of the file systems of character devices.
const IOCTL_UNRESTRICTED: u32 = 1 << 1;
/// `FUSE_IOCTL_DIR`: on a directory.
const IOCTL_DIR: u32 = 1 << 4;

/// A message that does not hold what its kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Who asks, and about which inode (`fuse_in_header`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    opcode: u32,
    /// The number by which the kernel knows the request.
    pub unique: u64,
    /// The inode; 1 is the root.
    pub ino: u64,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Thread; 0 if it is in another process namespace.
    pub pid: u32,
}

/// A change of attributes; `None` leaves a thing as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrChange {
    /// Type and permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// Time of last access.
    pub atime: Option<SetTime>,
    /// Time of last change of content.
    pub mtime: Option<SetTime>,
    /// The open file by which it is changed.
    pub handle: Option<u64>,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// That of the change.
    Now,
    /// This one.
    At(Time),
}

/// A copy from one open file to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// From this file.
    pub handle: u64,
    /// From this byte on.
    pub offset: u64,
    /// To that file.
    pub to_handle: u64,
    /// To that byte.
    pub to_offset: u64,
    /// At most this many bytes.
    pub length: u64,
    /// The reply has 64 bits for the number of bytes, else 32.
    pub counts_in_64_bits: bool,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the system calls that the kernel passes on")]
pub enum Call<'a> {
    Lookup {
        name: &'a OsStr,
    },
    Forget {
        lookups: u64,
    },
    ForgetMany(&'a [[u8; FORGET_BYTES]]),
    GetAttr,
    SetAttr(AttrChange),
    Statx,
    ReadLink,
    SymLink {
        name: &'a OsStr,
        target: &'a OsStr,
    },
    MkNod {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    MkDir {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a OsStr,
    },
    RmDir {
        name: &'a OsStr,
    },
    Rename {
        name: &'a OsStr,
        to_parent: u64,
        to_name: &'a OsStr,
        flags: u32,
    },
    Link {
        ino: u64,
        name: &'a OsStr,
    },
    Open {
        flags: i32,
    },
    Create {
        name: &'a OsStr,
        flags: i32,
        mode: u32,
        umask: u32,
    },
    /// A file without a name (`O_TMPFILE`) in the directory.
    TmpFile {
        flags: i32,
        mode: u32,
        umask: u32,
    },
    /// `by_syscall`: a program asks by a system call, not the kernel for its pages.
    Read {
        handle: u64,
        offset: u64,
        size: u32,
        by_syscall: bool,
    },
    Write {
        handle: u64,
        offset: u64,
        write_flags: u32,
        flags: i32,
        data: &'a [u8],
    },
    Flush {
        handle: u64,
    },
    Release {
        handle: u64,
    },
    FSync {
        handle: u64,
        data_only: bool,
    },
    OpenDir,
    ReadDir {
        handle: u64,
        offset: u64,
        size: u32,
    },
    ReadDirPlus {
        handle: u64,
        offset: u64,
        size: u32,
    },
    ReleaseDir {
        handle: u64,
    },
    FSyncDir {
        handle: u64,
        data_only: bool,
    },
    StatFs,
    SetXattr {
        name: &'a OsStr,
        value: &'a [u8],
        flags: i32,
    },
    GetXattr {
        name: &'a OsStr,
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a OsStr,
    },
    Ioctl {
        handle: u64,
        on_directory: bool,
        command: u32,
        data: &'a [u8],
    },
    FAllocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: i32,
    },
    LSeek {
        handle: u64,
        offset: i64,
        whence: i32,
    },
    CopyFileRange(CopyRange),
    /// The first message: version, and what the kernel can do.
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u64,
    },
    /// The last.
    Destroy,
    /// Of another kind: nothing is known of it.
    Other {
        opcode: u32,
    },
}

impl RequestHeader {
    /// The header of `message`, and what follows.
    ///
    /// # Errors
    /// There are fewer bytes than a header has, or the message has another length than the header says.
    pub fn parse(message: &[u8]) -> Result<(RequestHeader, &[u8]), Malformed> {
        let mut fields = Fields(message);
        let length = fields.u32()?;
        let header = RequestHeader {
            opcode: fields.u32()?,
            unique: fields.u64()?,
            ino: fields.u64()?,
            uid: fields.u32()?,
            gid: fields.u32()?,
            pid: fields.u32()?,
        };
        // Extensions (groups, security contexts) come with flags of the first message that are not asked for.
        fields.skip(4)?;
        if length as usize != message.len() || message.len() < HEADER_BYTES {
            return Err(Malformed);
        }
        Ok((header, fields.0))
    }

    /// Whether the kernel asks this in the name of no user: it writes back, reads ahead, and lets go.
    pub fn is_of_the_kernel(&self) -> bool {
        use opcode::{BATCH_FORGET, DESTROY, FORGET, FSYNC, FSYNCDIR, INIT, READ, READDIR, READDIRPLUS, RELEASE};
        use opcode::{RELEASEDIR, WRITE};
        matches!(
            self.opcode,
            INIT | DESTROY
                | READ
                | READDIR
                | READDIRPLUS
                | FORGET
                | BATCH_FORGET
                | WRITE
                | FSYNC
                | FSYNCDIR
                | RELEASE
                | RELEASEDIR
        )
    }
}

impl<'a> Call<'a> {
    /// What the message with this header and `body` asks. No allocation.
    ///
    /// # Errors
    /// The body does not hold what its kind has.
    pub fn parse(header: &RequestHeader, body: &'a [u8]) -> Result<Call<'a>, Malformed> {
        let mut fields = Fields(body);
        let call = match header.opcode {
            opcode::FORGET => Call::Forget { lookups: fields.u64()? },
            opcode::BATCH_FORGET => fields.forgets()?,
            opcode::GETATTR => Call::GetAttr,
            opcode::SETATTR => fields.attr_change()?,
            opcode::STATX => Call::Statx,
            opcode::STATFS => Call::StatFs,
            opcode::INIT => fields.init()?,
            opcode::DESTROY => Call::Destroy,
            opcode::IOCTL => fields.ioctl()?,
            opcode::OPENDIR => Call::OpenDir,
            opcode::READDIR | opcode::READDIRPLUS => fields.listing(header.opcode)?,
            opcode::RELEASEDIR => Call::ReleaseDir { handle: fields.u64()? },
            opcode::FSYNCDIR => {
                let (handle, data_only) = fields.sync()?;
                Call::FSyncDir { handle, data_only }
            }
            opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
                fields.xattr(header.opcode)?
            }
            _ => match fields.on_name(header.opcode)? {
                Some(call) => call,
                None => fields.on_file(header.opcode)?.unwrap_or(Call::Other { opcode: header.opcode }),
            },
        };
        Ok(call)
    }

    /// The inodes and how many references of each the kernel gives back, of a batch of forgets.
    pub fn forgets(batch: &[[u8; FORGET_BYTES]]) -> impl Iterator<Item = (u64, u64)> {
        batch.iter().filter_map(|one| {
            let mut fields = Fields(one);
            Some((fields.u64().ok()?, fields.u64().ok()?))
        })
    }
}

/// What is left of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    fn i32(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_ne_bytes)
    }

    fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_ne_bytes)
    }

    /// An offset in a file, which the system calls have as a signed number.
    fn offset(&mut self) -> Result<u64, Malformed> {
        self.i64().and_then(|offset| u64::try_from(offset).map_err(|_| Malformed))
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Malformed> {
        self.0 = self.0.get(bytes..).ok_or(Malformed)?;
        Ok(())
    }

    /// Bytes up to the next zero, which is taken, too.
    fn text(&mut self) -> Result<&'a OsStr, Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(OsStr::from_bytes(text))
    }

    /// A name in a directory, which leads to no other place.
    fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        self.text().and_then(|name| match name.as_bytes() {
            [] => Err(Malformed),
            bytes if bytes.contains(&b'/') => Err(Malformed),
            _ => Ok(name),
        })
    }

    /// The rest, which has to be as long as was said.
    fn data(&mut self, bytes: u32) -> Result<&'a [u8], Malformed> {
        if self.0.len() != bytes as usize {
            return Err(Malformed);
        }
        Ok(std::mem::take(&mut self.0))
    }

    fn forgets(&mut self) -> Result<Call<'a>, Malformed> {
        let count = self.u32()? as usize;
        self.skip(4)?;
        let batch = self.0.as_chunks().0.get(..count).ok_or(Malformed)?;
        Ok(Call::ForgetMany(batch))
    }

    fn init(&mut self) -> Result<Call<'a>, Malformed> {
        let (major, minor, max_readahead, low) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let has_high = low & crate::init::INIT_EXT as u32 != 0;
        let high = if has_high { self.u32()? } else { 0 };
        Ok(Call::Init { major, minor, max_readahead, flags: u64::from(low) | (u64::from(high) << 32) })
    }

    /// A time as set: its seconds and, in another place, nanoseconds.
    fn attr_change(&mut self) -> Result<Call<'a>, Malformed> {
        let valid = self.u32()?;
        self.skip(4)?;
        let (handle, size_bytes) = (self.u64()?, self.u64()?);
        self.skip(8)?;
        let (atime_s, mtime_s) = (self.i64()?, self.i64()?);
        self.skip(8)?;
        let (atime_ns, mtime_ns) = (self.u32()?, self.u32()?);
        self.skip(4)?;
        let mode = self.u32()?;
        self.skip(4)?;
        let (uid, gid) = (self.u32()?, self.u32()?);
        let time = |set, now, seconds, nanoseconds| match valid {
            valid if valid & set == 0 => None,
            valid if valid & now != 0 => Some(SetTime::Now),
            _ => Some(SetTime::At(Time { seconds, nanoseconds })),
        };
        Ok(Call::SetAttr(AttrChange {
            mode: (valid & fattr::MODE != 0).then_some(mode),
            uid: (valid & fattr::UID != 0).then_some(uid),
            gid: (valid & fattr::GID != 0).then_some(gid),
            size_bytes: (valid & fattr::SIZE != 0).then_some(size_bytes),
            atime: time(fattr::ATIME, fattr::ATIME_NOW, atime_s, atime_ns),
            mtime: time(fattr::MTIME, fattr::MTIME_NOW, mtime_s, mtime_ns),
            handle: (valid & fattr::HANDLE != 0).then_some(handle),
        }))
    }

    fn ioctl(&mut self) -> Result<Call<'a>, Malformed> {
        let (handle, flags, command) = (self.u64()?, self.u32()?, self.u32()?);
        self.skip(8)?;
        let in_bytes = self.u32()?;
        self.skip(4)?;
        if flags & IOCTL_UNRESTRICTED != 0 {
            return Ok(Call::Other { opcode: opcode::IOCTL });
        }
        Ok(Call::Ioctl { handle, on_directory: flags & IOCTL_DIR != 0, command, data: self.data(in_bytes)? })
    }

    fn sync(&mut self) -> Result<(u64, bool), Malformed> {
        Ok((self.u64()?, self.u32()? & FSYNC_DATA_ONLY != 0))
    }

    fn listing(&mut self, opcode: u32) -> Result<Call<'a>, Malformed> {
        let (handle, offset, size) = (self.u64()?, self.u64()?, self.u32()?);
        Ok(match opcode {
            opcode::READDIRPLUS => Call::ReadDirPlus { handle, offset, size },
            _ => Call::ReadDir { handle, offset, size },
        })
    }

    fn xattr(&mut self, opcode: u32) -> Result<Call<'a>, Malformed> {
        if opcode == opcode::REMOVEXATTR {
            return Ok(Call::RemoveXattr { name: self.text()? });
        }
        let size = self.u32()?;
        match opcode {
            opcode::SETXATTR => {
                let (flags, name) = (self.i32()?, self.text()?);
                Ok(Call::SetXattr { name, value: self.data(size)?, flags })
            }
            opcode::GETXATTR => {
                self.skip(4)?;
                Ok(Call::GetXattr { name: self.text()?, size })
            }
            _ => Ok(Call::ListXattr { size }),
        }
    }

    /// Calls on names in the directory.
    fn on_name(&mut self, opcode: u32) -> Result<Option<Call<'a>>, Malformed> {
        Ok(Some(match opcode {
            opcode::LOOKUP => Call::Lookup { name: self.name()? },
            opcode::READLINK => Call::ReadLink,
            opcode::SYMLINK => Call::SymLink { name: self.name()?, target: self.text()? },
            opcode::MKNOD => {
                let (mode, rdev, umask) = (self.u32()?, self.u32()?, self.u32()?);
                self.skip(4)?;
                Call::MkNod { name: self.name()?, mode, umask, rdev }
            }
            opcode::MKDIR => {
                let (mode, umask) = (self.u32()?, self.u32()?);
                Call::MkDir { name: self.name()?, mode, umask }
            }
            opcode::UNLINK => Call::Unlink { name: self.name()? },
            opcode::RMDIR => Call::RmDir { name: self.name()? },
            opcode::RENAME => {
                let to_parent = self.u64()?;
                Call::Rename { name: self.name()?, to_parent, to_name: self.name()?, flags: 0 }
            }
            opcode::RENAME2 => {
                let (to_parent, flags) = (self.u64()?, self.u32()?);
                self.skip(4)?;
                Call::Rename { name: self.name()?, to_parent, to_name: self.name()?, flags }
            }
            opcode::LINK => Call::Link { ino: self.u64()?, name: self.name()? },
            opcode::CREATE | opcode::TMPFILE => {
                let (flags, mode, umask) = (self.i32()?, self.u32()?, self.u32()?);
                self.skip(4)?;
                match opcode {
                    opcode::CREATE => Call::Create { name: self.name()?, flags, mode, umask },
                    _ => Call::TmpFile { flags, mode, umask },
                }
            }
            _ => return Ok(None),
        }))
    }

    /// Calls on files.
    fn on_file(&mut self, opcode: u32) -> Result<Option<Call<'a>>, Malformed> {
        Ok(Some(match opcode {
            opcode::OPEN => Call::Open { flags: self.i32()? },
            opcode::READ => {
                let (handle, offset, size, flags) = (self.u64()?, self.offset()?, self.u32()?, self.u32()?);
                Call::Read { handle, offset, size, by_syscall: flags & READ_LOCKOWNER != 0 }
            }
            opcode::WRITE => {
                let (handle, offset, size, write_flags) = (self.u64()?, self.offset()?, self.u32()?, self.u32()?);
                self.skip(8)?;
                let flags = self.i32()?;
                self.skip(4)?;
                Call::Write { handle, offset, write_flags, flags, data: self.data(size)? }
            }
            opcode::FLUSH => Call::Flush { handle: self.u64()? },
            opcode::RELEASE => Call::Release { handle: self.u64()? },
            opcode::FSYNC => {
                let (handle, data_only) = self.sync()?;
                Call::FSync { handle, data_only }
            }
            opcode::FALLOCATE => {
                let (handle, offset, length) = (self.u64()?, self.offset()?, self.offset()?);
                Call::FAllocate { handle, offset, length, mode: self.i32()? }
            }
            opcode::LSEEK => Call::LSeek { handle: self.u64()?, offset: self.i64()?, whence: self.i32()? },
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
                let (handle, offset) = (self.u64()?, self.offset()?);
                self.skip(8)?;
                let (to_handle, to_offset, length) = (self.u64()?, self.offset()?, self.u64()?);
                let counts_in_64_bits = opcode == opcode::COPY_FILE_RANGE_64;
                Call::CopyFileRange(CopyRange { handle, offset, to_handle, to_offset, length, counts_in_64_bits })
            }
            _ => return Ok(None),
        }))
    }
}
