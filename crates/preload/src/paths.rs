//! Paths: what they are below, and which file a descriptor stands for.

use crate::fd::borrow;
use rustix::fd::IntoRawFd;
use rustix::fs::{CWD, Mode, OFlags};
use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

/// Longest path that is handled.
pub(crate) const MAX_BYTES: usize = 4096;

/// Whether `path` is `directory` or below it.
#[inline]
pub(crate) fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || directory.ends_with(b"/"))
}

/// The bytes of a path that the program passed; `None` for a null pointer.
#[inline]
pub(crate) fn bytes<'a>(path: *const c_char) -> Option<&'a [u8]> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the functions that take a path require a string that ends with a zero; the caller passes it on to one.
    Some(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// Fills `room` with the start of a file; how much there was. Nothing of one that cannot be read.
pub(crate) fn read_start(path: &CStr, room: &mut [u8]) -> usize {
    let Ok(file) = rustix::fs::open(path, OFlags::CLOEXEC, Mode::empty()) else { return 0 };
    // An owned descriptor would be closed through our own `close`.
    let own = IntoRawFd::into_raw_fd(file);
    let mut filled = 0;
    while let Ok(count @ 1..) = rustix::io::read(borrow(own), &mut room[filled..]) {
        filled += count;
    }
    // SAFETY: opened above, not used any more.
    unsafe { rustix::io::close(own) };
    filled
}

/// Writes `/proc/self/fd/<fd>` with a zero at its end.
fn link_of(fd: c_int, buffer: &mut [u8; 32]) -> Option<&CStr> {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    let mut digits = [0_u8; 10];
    let mut at = digits.len();
    let mut rest = u32::try_from(fd).ok()?;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits = &digits[at..];
    buffer[..PREFIX.len()].copy_from_slice(PREFIX);
    buffer[PREFIX.len()..PREFIX.len() + digits.len()].copy_from_slice(digits);
    CStr::from_bytes_until_nul(buffer).ok()
}

/// The path that the kernel knows for `fd`; only absolute ones (not those of pipes and sockets).
pub(crate) fn of_descriptor(fd: c_int, buffer: &mut [u8; MAX_BYTES]) -> Option<&[u8]> {
    let mut name = [0; 32];
    let link = link_of(fd, &mut name)?;
    // SAFETY: bytes that are written are initialised, and only those are looked at.
    let room = unsafe { &mut *std::ptr::from_mut(buffer).cast::<[MaybeUninit<u8>; MAX_BYTES]>() };
    let (path, _) = rustix::fs::readlinkat_raw(CWD, link, &mut room[..]).ok()?;
    let path = &*path;
    path.starts_with(b"/").then(|| without_mark(fd, path))
}

/// `path` without the mark that the kernel puts behind a name it no longer keeps, if the name still leads to the file of
/// `fd`: a network or FUSE file system may drop a name and look it up again while the file is open.
fn without_mark(fd: c_int, path: &[u8]) -> &[u8] {
    let Some(name) = path.strip_suffix(b" (deleted)") else { return path };
    let same = || {
        let there = rustix::fs::stat(name).ok()?;
        let here = rustix::fs::fstat(borrow(fd)).ok()?;
        Some((there.st_dev, there.st_ino) == (here.st_dev, here.st_ino))
    };
    if same() == Some(true) { name } else { path }
}

/// `path`, relative to the directory `dirfd`, made absolute; without looking at links.
pub(crate) fn absolute<'a>(dirfd: c_int, path: &'a [u8], buffer: &'a mut [u8; MAX_BYTES]) -> Option<&'a [u8]> {
    if path.starts_with(b"/") {
        return Some(path);
    }
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let mut directory = [0; MAX_BYTES];
    let directory = if dirfd == libc::AT_FDCWD {
        // SAFETY: as in `of_descriptor`.
        let room = unsafe { &mut *std::ptr::from_mut(&mut directory).cast::<[MaybeUninit<u8>; MAX_BYTES]>() };
        &*rustix::fs::readlinkat_raw(CWD, c"/proc/self/cwd", &mut room[..]).ok()?.0
    } else {
        of_descriptor(dirfd, &mut directory)?
    };
    let len = directory.len() + 1 + path.len();
    let place = buffer.get_mut(..len)?;
    place[..directory.len()].copy_from_slice(directory);
    place[directory.len()] = b'/';
    place[directory.len() + 1..].copy_from_slice(path);
    Some(place)
}
