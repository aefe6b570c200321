//! One process of a run: an ordinary program that calls the C library's `open`, `pread`, `pwrite` and their like.

use std::ffi::{CString, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::content::Content;
use crate::error::BenchError;
use crate::options::{Api, Options, Verify};
use crate::shared::{Aborted, Shared, Span};
use crate::workload::{Phase, Request, Workload};

/// Why a process ends early.
#[derive(Debug)]
pub enum Ended {
    /// By its own error.
    Failed(BenchError),
    /// By another one's.
    Aborted,
}

impl From<BenchError> for Ended {
    fn from(error: BenchError) -> Self {
        Self::Failed(error)
    }
}

impl From<Aborted> for Ended {
    fn from(_: Aborted) -> Self {
        Self::Aborted
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Memory for requests, aligned for direct I/O.
struct Buffer {
    pages: Vec<[u8; Buffer::ALIGNMENT]>,
    skip: usize,
    length: usize,
}

impl Buffer {
    const ALIGNMENT: usize = 4096;

    fn new(length: u64) -> Self {
        let length = length as usize;
        // One page more than needed, so that an aligned start can be chosen.
        let pages = vec![[0; Self::ALIGNMENT]; length.div_ceil(Self::ALIGNMENT) + 1];
        let skip = pages.as_ptr().cast::<u8>().align_offset(Self::ALIGNMENT);
        Self { pages, skip, length }
    }

    fn bytes(&mut self, length: u64) -> &mut [u8] {
        let length = (length as usize).min(self.length);
        &mut self.pages.as_flattened_mut()[self.skip..self.skip + length]
    }
}

/// An open file of the run.
struct OpenFile {
    descriptor: c_int,
    path: PathBuf,
    rank: u32,
    api: Api,
}

impl OpenFile {
    fn open(path: &Path, phase: Phase, rank: u32, options: &Options) -> Result<Self, BenchError> {
        let access = match phase {
            Phase::Write => libc::O_WRONLY | libc::O_CREAT,
            Phase::Read => libc::O_RDONLY,
        };
        let direct = if options.direct { libc::O_DIRECT } else { 0 };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| BenchError::Usage(format!("{path:?} has a NUL byte; no file can have that name")))?;
        // SAFETY: `name` ends with a NUL byte and lives through the call.
        let descriptor = unsafe { libc::open(name.as_ptr(), access | direct | libc::O_CLOEXEC, 0o644) };
        let file = Self { descriptor, path: path.to_owned(), rank, api: options.api };
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

    fn read(&self, mut buffer: &mut [u8], mut offset: u64) -> Result<(), BenchError> {
        if self.api == Api::Read {
            self.seek(offset)?;
        }
        while !buffer.is_empty() {
            let (to, length) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: `to` is valid for writes of `length` bytes.
            let (call, got) = unsafe {
                match self.api {
                    Api::Pread => ("pread", libc::pread(self.descriptor, to, length, offset as i64)),
                    Api::Read => ("read", libc::read(self.descriptor, to, length)),
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

    fn write(&self, mut buffer: &[u8], mut offset: u64) -> Result<(), BenchError> {
        if self.api == Api::Read {
            self.seek(offset)?;
        }
        while !buffer.is_empty() {
            let (from, length) = (buffer.as_ptr().cast(), buffer.len());
            // SAFETY: `from` is valid for reads of `length` bytes.
            let (call, put) = unsafe {
                match self.api {
                    Api::Pread => ("pwrite", libc::pwrite(self.descriptor, from, length, offset as i64)),
                    Api::Read => ("write", libc::write(self.descriptor, from, length)),
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

    fn sync(&self) -> Result<(), BenchError> {
        // SAFETY: `fsync` touches no memory.
        if unsafe { libc::fsync(self.descriptor) } == 0 { Ok(()) } else { Err(self.error("fsync", 0, 0)) }
    }

    /// Closes the file and sees what `close` has to say, which Drop could not.
    fn close(mut self) -> Result<(), BenchError> {
        let descriptor = std::mem::replace(&mut self.descriptor, -1);
        // SAFETY: the descriptor is this file's own and not used again.
        if unsafe { libc::close(descriptor) } == 0 { Ok(()) } else { Err(self.error("close", 0, 0)) }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.descriptor >= 0 {
            // SAFETY: the descriptor is this file's own and not used again.
            unsafe { libc::close(self.descriptor) };
        }
    }
}

/// A process and what it works with.
pub struct Process<'a> {
    rank: u32,
    options: &'a Options,
    workload: &'a Workload,
    shared: &'a Shared,
    content: Content,
    buffer: Buffer,
    /// What a check compares with.
    expected: Buffer,
}

impl<'a> Process<'a> {
    /// Process `rank` of a run.
    pub fn new(rank: u32, options: &'a Options, workload: &'a Workload, shared: &'a Shared) -> Self {
        let largest = workload.regions.iter().map(|region| region.spec.request_size).max().unwrap_or(0);
        let content = Content { seed: options.seed };
        let mut buffer = Buffer::new(largest);
        content.fill(buffer.bytes(largest), workload.file_of(rank), 0, 0);
        let expected = Buffer::new(if options.verify.is_some() { largest } else { 0 });
        Self { rank, options, workload, shared, content, buffer, expected }
    }

    /// All its phases.
    ///
    /// # Errors
    /// [`Ended`] when it or another process failed.
    pub fn run(&mut self) -> Result<(), Ended> {
        if self.options.writes() {
            self.timed(Phase::Write)?;
        }
        if self.options.reads() {
            self.timed(Phase::Read)?;
        }
        if self.options.verify == Some(Verify::After) {
            for (owner, requests) in self.workload.checks(self.rank) {
                let file = OpenFile::open(&self.options.path_of(owner), Phase::Read, self.rank, self.options)?;
                for request in requests {
                    file.read(self.buffer.bytes(request.bytes), request.offset)?;
                    self.check(&file, owner, &request)?;
                }
            }
        }
        Ok(())
    }

    /// A phase between two barriers. Opening and closing are outside the time, `fsync` is inside.
    fn timed(&mut self, phase: Phase) -> Result<(), Ended> {
        let owner = self.workload.owner(phase, self.rank);
        let requests = self.workload.requests(phase, self.rank);
        let file = OpenFile::open(&self.options.path_of(owner), phase, self.rank, self.options)?;
        let mut spans = vec![Span::default(); self.workload.regions.len()];
        let file_number = self.workload.file_of(owner);
        let checked_data = self.options.verify.is_some();
        self.shared.wait()?;
        for (i, request) in requests.iter().enumerate() {
            if self.shared.has_failed() {
                return Err(Ended::Aborted);
            }
            let buffer = self.buffer.bytes(request.bytes);
            if phase == Phase::Write && checked_data {
                self.content.fill(buffer, file_number, request.offset, request.generation);
            }
            let start_ns = now_ns();
            match phase {
                Phase::Write => file.write(buffer, request.offset)?,
                Phase::Read => file.read(buffer, request.offset)?,
            }
            let end_ns = now_ns();
            self.shared.set_time(phase as usize, self.rank, i, end_ns - start_ns);
            let span = &mut spans[request.region as usize];
            if span.last_ns == 0 {
                span.first_ns = start_ns;
            }
            span.last_ns = end_ns;
            if phase == Phase::Read && self.options.verify == Some(Verify::Inline) {
                self.check(&file, owner, request)?;
            }
        }
        if phase == Phase::Write && self.options.fsync {
            file.sync()?;
            // The whole phase waits for it; so does the region that was last.
            if let Some(last) = requests.last() {
                spans[last.region as usize].last_ns = now_ns();
            }
        }
        for (region, span) in spans.into_iter().enumerate() {
            self.shared.set_span(phase as usize, self.rank, region, span);
        }
        file.close()?;
        self.shared.wait()?;
        Ok(())
    }

    /// Checks the bytes of a request that was just read.
    fn check(&mut self, file: &OpenFile, owner: u32, request: &Request) -> Result<(), BenchError> {
        let found = self.buffer.bytes(request.bytes);
        let expected = self.expected.bytes(request.bytes);
        let number = self.workload.file_of(owner);
        let Some(difference) = self.content.check(found, expected, number, request.offset, request.generation) else {
            self.shared.add_verified(request.bytes);
            return Ok(());
        };
        let workload = self.workload;
        let generations = workload.regions.iter().map(|r| r.requests.div_ceil(u64::from(r.blocks))).max().unwrap_or(1);
        let generations = generations.min(1000) as u32;
        let origin =
            self.content.origin(found, difference.at, request.offset, workload.files, generations, workload.end());
        Err(BenchError::Mismatch {
            rank: self.rank,
            path: file.path.clone(),
            offset: request.offset + difference.at as u64,
            expected: difference.expected,
            found: difference.found,
            origin,
        })
    }
}
