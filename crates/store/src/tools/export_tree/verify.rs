//! Compares an export with the pool; writes nothing.

use super::attributes::{times, xattrs};
use super::pair::Pair;
use super::run::{Export, count};
use super::source::{ExportedFile, is_of, read_full};
use crate::os::error::{Error, Result};
use crate::os::sys::proc_path;
use crate::tools::directories::open_inside;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags, Stat};
use std::ffi::{CString, OsStr};
use std::sync::atomic::Ordering;

/// Bytes that are compared at a time.
const CHUNK_BYTES: usize = 4 << 20;

fn differs(what: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("the copy differs: {what}"))
}

/// Compares mode, times, owner (as root: others could not keep it) and extended attributes.
pub(super) fn attributes(export: &Export<'_>, from: BorrowedFd<'_>, stat: &Stat, to: BorrowedFd<'_>) -> Result<()> {
    let (there, place) = (rustix::fs::fstat(to).map_err(Error::io("read", proc_path(to)))?, proc_path(to));
    if there.st_mode != stat.st_mode {
        return Err(differs(format!("mode {:o} instead of {:o}", there.st_mode & 0o7777, stat.st_mode & 0o7777)));
    }
    if rustix::process::geteuid().is_root() && (there.st_uid, there.st_gid) != (stat.st_uid, stat.st_gid) {
        let (found, wanted) = ((there.st_uid, there.st_gid), (stat.st_uid, stat.st_gid));
        return Err(differs(format!("owner {}:{} instead of {}:{}", found.0, found.1, wanted.0, wanted.1)));
    }
    let user = |list: Vec<(Vec<u8>, Vec<u8>)>| -> Vec<_> {
        list.into_iter().filter(|(name, _)| name.starts_with(b"user.")).collect()
    };
    let lists = xattrs(&proc_path(from)).and_then(|wanted| Ok((user(wanted), user(xattrs(&place)?))));
    let (wanted, found) = lists.map_err(Error::io("read the attributes of", place))?;
    export.go_on()?;
    if wanted == found { Ok(()) } else { Err(differs("extended attributes")) }
}

/// Compares a file, all of its bytes.
pub(super) fn file(export: &Export<'_>, pair: &Pair<'_>, name: &OsStr) -> Result<()> {
    let source = ExportedFile::open(pair, name)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let to = open_inside(&*pair.to()?, name, flags).map_err(pair.failed("find the copy of", name))?;
    let there = rustix::fs::fstat(&to).map_err(pair.failed("read", name))?;
    if !is_of(&there, &source) {
        return Err(differs(format!("size or time ({} bytes instead of {})", there.st_size, source.size_bytes)));
    }
    attributes(export, source.place(), &source.stat, to.as_fd())?;
    let mut buffers = [(); 2].map(|()| vec![0; CHUNK_BYTES.min(source.size_bytes as usize)]);
    let mut at = 0;
    while at < source.size_bytes {
        let [a, b] = &mut buffers;
        let (read, copied) = (source.read_at(a, at)?, read_full(&to, b, at).map_err(pair.failed("read", name))?);
        let [a, b] = [&a[..read], &b[..copied]].map(blake3::hash);
        if a != b || read == 0 {
            return Err(differs(format!("bytes from {at} on (blake3 {b} instead of {a})")));
        }
        at += read as u64;
        export.advance(read as u64 * 2)?;
    }
    count(&export.counts.files);
    export.counts.bytes.fetch_add(source.size_bytes, Ordering::Relaxed);
    Ok(())
}

/// The copy as a place only, and what it is.
fn by_name(pair: &Pair<'_>, name: &OsStr) -> Result<(OwnedFd, Stat)> {
    let place = open_inside(&*pair.to()?, name, OFlags::PATH).map_err(pair.failed("find the copy of", name))?;
    let stat = rustix::fs::fstat(&place).map_err(pair.failed("find the copy of", name))?;
    Ok((place, stat))
}

/// Compares a symbolic link.
pub(super) fn symlink(pair: &Pair<'_>, name: &OsStr, target: &CString, stat: &Stat) -> Result<()> {
    let (place, there) = by_name(pair, name)?;
    if FileType::from_raw_mode(there.st_mode) != FileType::Symlink {
        return Err(differs("it is no symbolic link"));
    }
    let found = rustix::fs::readlinkat(&place, "", Vec::new()).map_err(pair.failed("read", name))?;
    if found != *target {
        return Err(differs(format!("it leads to {}", found.to_string_lossy())));
    }
    same_time(&there, stat)
}

/// Compares a FIFO, socket or device.
pub(super) fn special(pair: &Pair<'_>, name: &OsStr, stat: &Stat) -> Result<()> {
    let (_, there) = by_name(pair, name)?;
    if (there.st_mode, there.st_rdev) != (stat.st_mode, stat.st_rdev) {
        return Err(differs(format!("type, mode or device ({:o} instead of {:o})", there.st_mode, stat.st_mode)));
    }
    same_time(&there, stat)
}

fn same_time(there: &Stat, stat: &Stat) -> Result<()> {
    if times(there).last_modification == times(stat).last_modification { Ok(()) } else { Err(differs("time")) }
}
