//! Carries out operations by the functions of libc, which a preloaded library may have taken over.

use crate::operation::{Answer, CaseOperation, Stat};
use std::collections::HashMap;
use std::ffi::{CString, c_void};

/// The slots of one process.
#[derive(Debug, Default)]
pub struct ProcessSlots {
    descriptors: HashMap<u8, i32>,
    maps: HashMap<u8, (*mut c_void, usize)>,
}

fn errno() -> Answer {
    Answer::Failed(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn done(value: impl Into<i64>) -> Answer {
    match value.into() {
        -1 => errno(),
        value => Answer::Done(value),
    }
}

fn bytes(count: isize, mut data: Vec<u8>) -> Answer {
    if count < 0 {
        return errno();
    }
    data.truncate(count as usize);
    Answer::Bytes { data }
}

fn c(text: &str) -> CString {
    CString::new(text).expect("a name without zeros")
}

fn stat_answer(result: i32, stat: &libc::stat) -> Answer {
    if result < 0 {
        return errno();
    }
    let kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => 'f',
        libc::S_IFDIR => 'd',
        libc::S_IFLNK => 'l',
        _ => '?',
    };
    let of_directory = |value: u64| if kind == 'd' { 0 } else { value };
    Answer::Stat(Stat {
        kind,
        mode: stat.st_mode & 0o7777,
        links: of_directory(stat.st_nlink),
        size_bytes: of_directory(stat.st_size as u64),
        inode: stat.st_ino,
        atime_ns: stat.st_atime * 1_000_000_000 + stat.st_atime_nsec,
        mtime_ns: stat.st_mtime * 1_000_000_000 + stat.st_mtime_nsec,
        ctime_ns: stat.st_ctime * 1_000_000_000 + stat.st_ctime_nsec,
    })
}

/// Buffers of `lens` bytes over `data`.
fn vectors(data: &mut [u8], lens: &[usize]) -> Vec<libc::iovec> {
    let mut rest = data;
    let cut = |&len: &usize| {
        let (here, after) = std::mem::take(&mut rest).split_at_mut(len);
        rest = after;
        libc::iovec { iov_base: here.as_mut_ptr().cast(), iov_len: len }
    };
    lens.iter().map(cut).collect()
}

fn list(path: &str) -> Answer {
    match std::fs::read_dir(path) {
        Err(error) => Answer::Failed(error.raw_os_error().unwrap_or(0)),
        Ok(entries) => {
            let name = |entry: std::io::Result<std::fs::DirEntry>| entry.map(|entry| entry.file_name());
            match entries.map(name).collect::<Result<Vec<_>, _>>() {
                Err(error) => Answer::Failed(error.raw_os_error().unwrap_or(0)),
                Ok(names) => sorted(names.iter().map(|name| name.to_string_lossy().into_owned()).collect()),
            }
        }
    }
}

fn sorted(mut names: Vec<String>) -> Answer {
    names.sort_unstable();
    Answer::Names(names)
}

impl ProcessSlots {
    /// Closes everything and goes to a directory.
    pub fn enter(&mut self, directory: &str) -> Answer {
        for slot in self.maps.keys().copied().collect::<Vec<_>>() {
            self.unmap(slot);
        }
        for (_, fd) in self.descriptors.drain() {
            // SAFETY: the descriptor is ours and no longer in use.
            unsafe { libc::close(fd) };
        }
        // SAFETY: the mask of this process, which has one thread.
        unsafe { libc::umask(0) };
        // SAFETY: a string that ends in 0.
        done(unsafe { libc::chdir(c(directory).as_ptr()) })
    }

    fn fd(&self, slot: u8) -> i32 {
        self.descriptors.get(&slot).copied().unwrap_or(-1)
    }

    fn close(&mut self, slot: u8) -> Answer {
        // SAFETY: the descriptor is ours, and the slot forgets it; -1 gives EBADF.
        done(unsafe { libc::close(self.descriptors.remove(&slot).unwrap_or(-1)) })
    }

    fn unmap(&mut self, slot: u8) -> Answer {
        match self.maps.remove(&slot) {
            // SAFETY: our own mapping; no reference to it is left.
            Some((base, len)) => done(unsafe { libc::munmap(base, len) }),
            None => Answer::Failed(libc::EINVAL),
        }
    }

    /// Carries out one operation; `data` is what it writes.
    pub fn run(&mut self, operation: &CaseOperation, data: &[u8]) -> Answer {
        match operation {
            CaseOperation::Open { .. } | CaseOperation::Close { .. } | CaseOperation::Dup { .. } => {
                self.descriptor(operation)
            }
            CaseOperation::Map { .. }
            | CaseOperation::MapRead { .. }
            | CaseOperation::MapWrite { .. }
            | CaseOperation::Msync { .. }
            | CaseOperation::Unmap { .. } => self.mapping(operation, data),
            CaseOperation::Read { .. }
            | CaseOperation::Write { .. }
            | CaseOperation::Pread { .. }
            | CaseOperation::Pwrite { .. }
            | CaseOperation::Readv { .. }
            | CaseOperation::Writev { .. }
            | CaseOperation::CopyRange { .. } => self.transfer(operation, data),
            CaseOperation::Seek { .. }
            | CaseOperation::Ftruncate { .. }
            | CaseOperation::Fallocate { .. }
            | CaseOperation::Fsync { .. }
            | CaseOperation::Fstat { .. } => self.change(operation),
            _ => names(operation, data),
        }
    }

    fn descriptor(&mut self, operation: &CaseOperation) -> Answer {
        let (slot, fd) = match *operation {
            CaseOperation::Open { slot, ref path, flags, mode } => {
                self.close(slot);
                // SAFETY: a string that ends in 0.
                (slot, unsafe { libc::open(c(path).as_ptr(), flags | libc::O_CLOEXEC, mode) })
            }
            CaseOperation::Close { slot } => return self.close(slot),
            CaseOperation::Dup { from, to } => {
                let fd = self.fd(from);
                match self.descriptors.get(&to) {
                    // SAFETY: both descriptors are ours; `to` is closed by it if it was another.
                    Some(&old) if fd >= 0 => (to, unsafe { libc::dup2(fd, old) }),
                    // SAFETY: as above; -1 gives EBADF.
                    _ => (to, unsafe { libc::dup(fd) }),
                }
            }
            _ => unreachable!("an operation on descriptors"),
        };
        if fd < 0 {
            return errno();
        }
        self.descriptors.insert(slot, fd);
        Answer::Done(0)
    }

    fn mapping(&mut self, operation: &CaseOperation, data: &[u8]) -> Answer {
        match *operation {
            CaseOperation::Map { slot, len } => {
                self.unmap(slot);
                let access = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: a new mapping at an address of the kernel's choice.
                let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, self.fd(slot), 0) };
                if base == libc::MAP_FAILED {
                    return errno();
                }
                self.maps.insert(slot, (base, len));
                Answer::Done(0)
            }
            CaseOperation::MapRead { slot, at, len } => match self.maps.get(&slot) {
                Some(&(base, size)) if at + len <= size => {
                    let mut data = vec![0; len];
                    // SAFETY: within the mapping, of which no reference exists; the harness asks for no byte behind the
                    // end of the file, which would be a SIGBUS.
                    unsafe { base.cast::<u8>().add(at).copy_to(data.as_mut_ptr(), len) };
                    Answer::Bytes { data }
                }
                _ => Answer::Failed(libc::EINVAL),
            },
            CaseOperation::MapWrite { slot, at, len, .. } => match self.maps.get(&slot) {
                Some(&(base, size)) if at + len <= size && len == data.len() => {
                    // SAFETY: as above.
                    unsafe { base.cast::<u8>().add(at).copy_from(data.as_ptr(), len) };
                    Answer::Done(len as i64)
                }
                _ => Answer::Failed(libc::EINVAL),
            },
            CaseOperation::Msync { slot } => match self.maps.get(&slot) {
                // SAFETY: our own mapping.
                Some(&(base, len)) => done(unsafe { libc::msync(base, len, libc::MS_SYNC) }),
                None => Answer::Failed(libc::EINVAL),
            },
            CaseOperation::Unmap { slot } => self.unmap(slot),
            _ => unreachable!("an operation on mappings"),
        }
    }

    fn transfer(&mut self, operation: &CaseOperation, data: &[u8]) -> Answer {
        match operation {
            CaseOperation::Read { slot, len } => {
                let mut data = vec![0xee; *len];
                // SAFETY: the buffer has that many bytes, here and below.
                bytes(unsafe { libc::read(self.fd(*slot), data.as_mut_ptr().cast(), *len) }, data)
            }
            CaseOperation::Pread { slot, at, len } => {
                let mut data = vec![0xee; *len];
                // SAFETY: as above.
                bytes(unsafe { libc::pread(self.fd(*slot), data.as_mut_ptr().cast(), *len, *at) }, data)
            }
            CaseOperation::Readv { slot, at, lens } => {
                let mut data = vec![0xee; lens.iter().sum()];
                let (fd, bufs) = (self.fd(*slot), vectors(&mut data, lens));
                let (base, count) = (bufs.as_ptr(), bufs.len() as i32);
                // SAFETY: the buffers are parts of `data`.
                let got = unsafe {
                    match *at {
                        Some(at) => libc::preadv(fd, base, count, at),
                        None => libc::readv(fd, base, count),
                    }
                };
                bytes(got, data)
            }
            CaseOperation::Write { slot, .. } => {
                // SAFETY: as above.
                done(unsafe { libc::write(self.fd(*slot), data.as_ptr().cast(), data.len()) } as i64)
            }
            CaseOperation::Pwrite { slot, at, .. } => {
                // SAFETY: as above.
                done(unsafe { libc::pwrite(self.fd(*slot), data.as_ptr().cast(), data.len(), *at) } as i64)
            }
            CaseOperation::Writev { slot, at, lens, .. } => {
                let mut data = data.to_vec();
                let (fd, bufs) = (self.fd(*slot), vectors(&mut data, lens));
                let (base, count) = (bufs.as_ptr(), bufs.len() as i32);
                // SAFETY: as above.
                let put = unsafe {
                    match *at {
                        Some(at) => libc::pwritev(fd, base, count, at),
                        None => libc::writev(fd, base, count),
                    }
                };
                done(put as i64)
            }
            CaseOperation::CopyRange { from, from_at, to, to_at, len } => {
                let (mut from_at, mut to_at) = (*from_at, *to_at);
                let pointer = |at: &mut Option<i64>| at.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
                let (source, target) = (pointer(&mut from_at), pointer(&mut to_at));
                // SAFETY: the offsets outlive the call.
                done(unsafe { libc::copy_file_range(self.fd(*from), source, self.fd(*to), target, *len, 0) } as i64)
            }
            _ => unreachable!("an operation that moves bytes"),
        }
    }

    fn change(&mut self, operation: &CaseOperation) -> Answer {
        // SAFETY: descriptors and numbers only, and a place for the attributes.
        unsafe {
            match *operation {
                CaseOperation::Seek { slot, at, whence } => done(libc::lseek(self.fd(slot), at, whence)),
                CaseOperation::Ftruncate { slot, size } => done(libc::ftruncate(self.fd(slot), size)),
                CaseOperation::Fallocate { slot, mode, at, len } => done(libc::fallocate(self.fd(slot), mode, at, len)),
                CaseOperation::Fsync { slot, data_only: true } => done(libc::fdatasync(self.fd(slot))),
                CaseOperation::Fsync { slot, data_only: false } => done(libc::fsync(self.fd(slot))),
                CaseOperation::Fstat { slot } => {
                    let mut stat = std::mem::zeroed();
                    stat_answer(libc::fstat(self.fd(slot), &mut stat), &stat)
                }
                _ => unreachable!("an operation on an open file"),
            }
        }
    }
}

/// Operations on names.
fn names(operation: &CaseOperation, data: &[u8]) -> Answer {
    let at = libc::AT_FDCWD;
    // SAFETY: strings that end in 0, and buffers with their lengths.
    unsafe {
        match operation {
            CaseOperation::Truncate { path, size } => done(libc::truncate(c(path).as_ptr(), *size)),
            CaseOperation::Stat { path, follow } => {
                let (path, mut stat) = (c(path), std::mem::zeroed());
                let call = if *follow { libc::stat } else { libc::lstat };
                stat_answer(call(path.as_ptr(), &mut stat), &stat)
            }
            CaseOperation::Rename { from, to, flags } => {
                done(libc::renameat2(at, c(from).as_ptr(), at, c(to).as_ptr(), *flags))
            }
            CaseOperation::Link { from, to } => done(libc::link(c(from).as_ptr(), c(to).as_ptr())),
            CaseOperation::Unlink { path } => done(libc::unlink(c(path).as_ptr())),
            CaseOperation::Mkdir { path } => done(libc::mkdir(c(path).as_ptr(), 0o755)),
            CaseOperation::Rmdir { path } => done(libc::rmdir(c(path).as_ptr())),
            CaseOperation::List { path } => list(path),
            CaseOperation::Symlink { target, path } => done(libc::symlink(c(target).as_ptr(), c(path).as_ptr())),
            CaseOperation::Readlink { path } => {
                let mut data = vec![0; 4096];
                bytes(libc::readlink(c(path).as_ptr(), data.as_mut_ptr().cast(), data.len()), data)
            }
            CaseOperation::Chmod { path, mode } => done(libc::chmod(c(path).as_ptr(), *mode)),
            CaseOperation::SetTimes { path, atime_ns, mtime_ns } => {
                let time = |ns: &Option<i64>| match ns {
                    Some(ns) => {
                        libc::timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) }
                    }
                    None => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
                };
                done(libc::utimensat(at, c(path).as_ptr(), [time(atime_ns), time(mtime_ns)].as_ptr(), 0))
            }
            CaseOperation::SetXattr { path, name, flags, .. } => {
                done(libc::setxattr(c(path).as_ptr(), c(name).as_ptr(), data.as_ptr().cast(), data.len(), *flags))
            }
            CaseOperation::GetXattr { path, name } => {
                let mut data = vec![0; 4096];
                let got = libc::getxattr(c(path).as_ptr(), c(name).as_ptr(), data.as_mut_ptr().cast(), data.len());
                bytes(got, data)
            }
            CaseOperation::ListXattr { path } => {
                let mut data = vec![0_u8; 4096];
                let got = libc::listxattr(c(path).as_ptr(), data.as_mut_ptr().cast(), data.len());
                if got < 0 {
                    return errno();
                }
                let names = data[..got as usize].split(|&byte| byte == 0).map(|name| String::from_utf8_lossy(name));
                sorted(names.filter(|name| name.starts_with("user.")).map(|name| name.into_owned()).collect())
            }
            CaseOperation::RemoveXattr { path, name } => done(libc::removexattr(c(path).as_ptr(), c(name).as_ptr())),
            _ => unreachable!("an operation on names"),
        }
    }
}
