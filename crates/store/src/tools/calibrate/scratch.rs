//! The scratch file that requests are timed on.

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::Advice;
use rustix::io::Errno;
use stripewise_model::Op;

use super::error::CalibrateError;
use crate::backend::emulate::{Device, DiskRequest, now_ns};
use crate::backend::{Backend, Server, Setting};
use crate::os::error::Error;

/// Alignment of offsets, sizes and memory: what direct I/O needs on any device of today.
pub const BLOCK_BYTES: usize = 4096;

/// How requests reached the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoPath {
    /// By direct I/O.
    Direct,
    /// Through the queue of an emulated device.
    Emulated,
    /// Through the page cache, because the file system refuses direct I/O: writes synced one by one, pages dropped before
    /// reads. On a file system in memory this measures memory.
    Cached,
}

/// Memory aligned to [`BLOCK_BYTES`].
pub struct AlignedBuffer {
    blocks: Vec<[u8; BLOCK_BYTES]>,
    skip: usize,
}

impl AlignedBuffer {
    /// At least `length` bytes that do not compress.
    pub fn new(length: usize) -> Self {
        let mut blocks = vec![[0; BLOCK_BYTES]; length.div_ceil(BLOCK_BYTES) + 1];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for word in blocks.as_flattened_mut().chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_ne_bytes());
        }
        let skip = blocks.as_ptr().cast::<u8>().align_offset(BLOCK_BYTES);
        Self { blocks, skip }
    }

    /// Its first `length` bytes.
    pub fn bytes(&mut self, length: usize) -> &mut [u8] {
        &mut self.blocks.as_flattened_mut()[self.skip..self.skip + length]
    }
}

/// A file without a name on the server, filled with data. It is gone with this process, however that ends.
pub struct ScratchFile {
    file: OwnedFd,
    backend: Box<dyn Backend>,
    path: IoPath,
    bytes: u64,
    reach_bytes: u64,
}

impl ScratchFile {
    /// Makes the file on `server` and fills it with `bytes`.
    pub fn new(server: &Server, bytes: u64, buffer: &mut AlignedBuffer) -> Result<Self, CalibrateError> {
        let io = |action| {
            let (server, root) = (server.name.clone(), server.root.clone());
            move |errno| CalibrateError::Io { server, action, root, errno }
        };
        // Whatever its marker says: a person names the directories to measure.
        let backend = crate::backend::of(server, &Setting::default());
        backend.connect().map_err(|error| match error {
            Error::MissingServer { server, root, reason } => CalibrateError::Missing { server, root, reason },
            other => io("open")(other.errno()),
        })?;
        let (file, path) = if backend.device().is_some() {
            (backend.scratch(false).map_err(io("make a scratch file in"))?, IoPath::Emulated)
        } else {
            open_direct(&*backend, buffer).map_err(io("make a scratch file in"))?
        };
        // An emulated disk has no bytes: its head goes anywhere.
        let reach_bytes = match path {
            IoPath::Direct => bytes,
            IoPath::Emulated => server.emulate.and_then(|config| config.disk).map_or(0, |disk| disk.size_bytes),
            IoPath::Cached => 0,
        };
        let scratch = Self { file, backend, path, bytes, reach_bytes };
        let mut offset = 0;
        while offset < bytes {
            let chunk = (bytes - offset).min(1 << 20) as usize;
            scratch.transfer(Op::Write, offset, buffer.bytes(chunk)).map_err(io("fill a scratch file in"))?;
            offset += chunk as u64;
        }
        if scratch.backend.device().is_none() {
            rustix::fs::fsync(&scratch.file).map_err(io("sync a scratch file in"))?;
        }
        Ok(scratch)
    }

    /// How its requests reach the device.
    pub fn path(&self) -> IoPath {
        self.path
    }

    /// How far apart two requests can be; 0 where nothing seeks, or memory would be measured.
    pub fn reach_bytes(&self) -> u64 {
        self.reach_bytes
    }

    /// The emulated device that serves it; `None` where it is real.
    pub fn device(&self) -> Option<&Device> {
        self.backend.device()
    }

    /// The server's own directory.
    pub fn directory(&self) -> rustix::io::Result<BorrowedFd<'_>> {
        self.backend.own_directory()
    }

    /// Makes one request, through the queue of the emulated device if it has one; how long it took in seconds.
    pub fn request(&self, op: Op, offset: u64, buffer: &mut [u8]) -> rustix::io::Result<f64> {
        if self.path == IoPath::Cached && op == Op::Read {
            // Pages that are still to be written stay; the result says that the cache may have served.
            let length = std::num::NonZeroU64::new(buffer.len() as u64);
            let _ = rustix::fs::fadvise(&self.file, offset, length, Advice::DontNeed);
        }
        let start_ns = now_ns();
        match self.backend.device() {
            Some(device) => {
                let bytes = buffer.len() as u64;
                let asked = DiskRequest { op, datafile: 1, offset, bytes, process: std::process::id() };
                let ticket = device.enter(&asked, start_ns);
                self.transfer(op, offset, buffer)?;
                device.finish(ticket);
            }
            None => {
                self.transfer(op, offset, buffer)?;
                if self.path == IoPath::Cached && op == Op::Write {
                    rustix::fs::fdatasync(&self.file)?;
                }
            }
        }
        Ok((now_ns() - start_ns) as f64 * 1e-9)
    }

    /// The real bytes of one request; those beyond the file's are other ones of it.
    fn transfer(&self, op: Op, offset: u64, buffer: &mut [u8]) -> rustix::io::Result<()> {
        let mut done = 0;
        let last = self.bytes - buffer.len() as u64;
        let offset = if offset <= last { offset } else { offset % (last + 1) };
        while done < buffer.len() {
            let at = offset + done as u64;
            let result = match op {
                Op::Read => rustix::io::pread(&self.file, &mut buffer[done..], at),
                Op::Write => rustix::io::pwrite(&self.file, &buffer[done..], at),
            };
            match result {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// A file for direct I/O; through the page cache where the server refuses, at `open` or at the first write.
fn open_direct(backend: &dyn Backend, buffer: &mut AlignedBuffer) -> rustix::io::Result<(OwnedFd, IoPath)> {
    let direct = backend.scratch(true).and_then(|file| {
        rustix::io::pwrite(&file, buffer.bytes(BLOCK_BYTES), 0)?;
        Ok(file)
    });
    match direct {
        Ok(file) => Ok((file, IoPath::Direct)),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok((backend.scratch(false)?, IoPath::Cached)),
        Err(errno) => Err(errno),
    }
}
