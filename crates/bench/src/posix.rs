//! Files by the C library's `open`, `pread`, `pwrite` and their like: a request that is several pieces of the file, or of
//! memory, is a call for each.

use std::ffi::{CString, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::options::BenchApi;
use crate::process::{BenchFile, FileRequest};
use crate::workload::PhaseKind;

/// An open file.
pub struct PosixFile {
    descriptor: c_int,
    path: PathBuf,
    rank: u32,
    api: BenchApi,
}

impl PosixFile {
    /// Opens `path` for `phase`; a file that is written is made if need be.
    ///
    /// # Errors
    /// What `open` said.
    pub fn open(path: &Path, phase: PhaseKind, rank: u32, api: BenchApi, direct: bool) -> Result<Self, BenchError> {
        let access = match phase {
            PhaseKind::Write => libc::O_WRONLY | libc::O_CREAT,
            PhaseKind::Read => libc::O_RDONLY,
        };
        let direct = if direct { libc::O_DIRECT } else { 0 };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| BenchError::Usage(format!("{path:?} has a NUL byte; no file can have that name")))?;
        // SAFETY: `name` ends with a NUL byte and lives through the call.
        let descriptor = unsafe { libc::open(name.as_ptr(), access | direct | libc::O_CLOEXEC, 0o644) };
        let file = Self { descriptor, path: path.to_owned(), rank, api };
        if descriptor < 0 { Err(file.error("open", 0, 0)) } else { Ok(file) }
    }

    /// The present errno as an error of this file.
    fn error(&self, call: &'static str, offset: u64, bytes: u64) -> BenchError {
        let source = io::Error::last_os_error();
        BenchError::Io { rank: self.rank, call, path: self.path.clone(), offset, bytes, source }
    }

    fn seek(&self, offset: u64) -> Result<(), BenchError> {
        // SAFETY: `lseek` touches no memory.
        let at = unsafe { libc::lseek(self.descriptor, offset as i64, libc::SEEK_SET) };
        if at == offset as i64 { Ok(()) } else { Err(self.error("lseek", offset, 0)) }
    }

    fn read_at(&self, mut buffer: &mut [u8], mut offset: u64) -> Result<(), BenchError> {
        if self.api == BenchApi::Read {
            self.seek(offset)?;
        }
        while !buffer.is_empty() {
            let (to, length) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: `to` is valid for writes of `length` bytes.
            let (call, got) = unsafe {
                match self.api {
                    BenchApi::Read => ("read", libc::read(self.descriptor, to, length)),
                    _ => ("pread", libc::pread(self.descriptor, to, length, offset as i64)),
                }
            };
            match got {
                0 => return Err(BenchError::Short { rank: self.rank, path: self.path.clone(), offset }),
                1.. => {
                    buffer = &mut buffer[got as usize..];
                    offset += got as u64;
                }
                _ => self.unless_interrupted(call, offset, length)?,
            }
        }
        Ok(())
    }

    fn write_at(&self, mut buffer: &[u8], mut offset: u64) -> Result<(), BenchError> {
        if self.api == BenchApi::Read {
            self.seek(offset)?;
        }
        while !buffer.is_empty() {
            let (from, length) = (buffer.as_ptr().cast(), buffer.len());
            // SAFETY: `from` is valid for reads of `length` bytes.
            let (call, put) = unsafe {
                match self.api {
                    BenchApi::Read => ("write", libc::write(self.descriptor, from, length)),
                    _ => ("pwrite", libc::pwrite(self.descriptor, from, length, offset as i64)),
                }
            };
            match put {
                0.. => {
                    buffer = &buffer[put as usize..];
                    offset += put as u64;
                }
                _ => self.unless_interrupted(call, offset, length)?,
            }
        }
        Ok(())
    }

    fn unless_interrupted(&self, call: &'static str, offset: u64, length: usize) -> Result<(), BenchError> {
        let error = self.error(call, offset, length as u64);
        match &error {
            BenchError::Io { source, .. } if source.kind() == io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        }
    }
}

impl BenchFile for PosixFile {
    fn write(&mut self, access: &FileRequest<'_>, buffer: &[u8]) -> Result<(), BenchError> {
        access.segments.iter().try_for_each(|part| self.write_at(&buffer[part.at..part.at + part.bytes], part.offset))
    }

    fn read(&mut self, access: &FileRequest<'_>, buffer: &mut [u8]) -> Result<(), BenchError> {
        access
            .segments
            .iter()
            .try_for_each(|part| self.read_at(&mut buffer[part.at..part.at + part.bytes], part.offset))
    }

    fn sync(&mut self) -> Result<(), BenchError> {
        // SAFETY: `fsync` touches no memory.
        if unsafe { libc::fsync(self.descriptor) } == 0 { Ok(()) } else { Err(self.error("fsync", 0, 0)) }
    }

    /// Drop could not say what `close` has to.
    fn close(mut self: Box<Self>) -> Result<(), BenchError> {
        let descriptor = std::mem::replace(&mut self.descriptor, -1);
        // SAFETY: the descriptor is this file's own and not used again.
        if unsafe { libc::close(descriptor) } == 0 { Ok(()) } else { Err(self.error("close", 0, 0)) }
    }
}

impl Drop for PosixFile {
    fn drop(&mut self) {
        if self.descriptor >= 0 {
            // SAFETY: the descriptor is this file's own and not used again.
            unsafe { libc::close(self.descriptor) };
        }
    }
}
