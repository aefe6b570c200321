//! Messages by reads and writes of `/dev/fuse`: a system call for a request, another for its reply.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::Arc;

use rustix::io::Errno;

use crate::connection::FuseDevice;
use crate::init::MAX_WRITE_BYTES;
use crate::replies::header;
use crate::transport::{ReplySink, Transport};

/// Room for the largest message: a write, and what stands before its bytes. The kernel refuses to fill less.
const BUFFER_BYTES: usize = MAX_WRITE_BYTES as usize + 4096;
/// Parts of a reply at most, with its header.
const MOST_PARTS: usize = 3;

/// One thread's reads and writes.
#[derive(Debug)]
pub struct DeviceTransport {
    device: Arc<FuseDevice>,
    /// Memory only as far as messages have filled it.
    buffer: Vec<u8>,
    /// Where bytes are read that a reply has: as large as the largest so far.
    reply: RefCell<Vec<u8>>,
}

impl DeviceTransport {
    /// Reads from `device`.
    pub fn new(device: Arc<FuseDevice>) -> DeviceTransport {
        DeviceTransport { device, buffer: vec![0; BUFFER_BYTES], reply: RefCell::default() }
    }
}

impl Transport for DeviceTransport {
    fn next(&mut self, serve: &mut dyn FnMut(&[u8], &dyn ReplySink)) -> io::Result<bool> {
        loop {
            match rustix::io::read(&*self.device, &mut self.buffer[..]) {
                Ok(bytes) => {
                    serve(&self.buffer[..bytes], &DeviceSink { device: &self.device, room: &self.reply });
                    return Ok(true);
                }
                // The program has given its request up before it was read; a signal; another thread was faster.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn threads_wait_together(&self) -> bool {
        true
    }
}

/// Replies by `writev`, which the kernel takes whole or not at all.
struct DeviceSink<'a> {
    device: &'a Arc<FuseDevice>,
    room: &'a RefCell<Vec<u8>>,
}

impl ReplySink for DeviceSink<'_> {
    fn send(&self, header: &[u8; 16], parts: &[&[u8]]) -> Result<(), Errno> {
        let mut slices = [IoSlice::new(header), IoSlice::new(&[]), IoSlice::new(&[])];
        debug_assert!(parts.len() < MOST_PARTS);
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let count = 1 + parts.len();
        rustix::io::writev(&**self.device, &slices[..count]).map(drop)
    }

    fn fill(&self, unique: u64, most: usize, fill: &mut dyn FnMut(&mut [u8]) -> Option<usize>) -> Result<bool, Errno> {
        if most > BUFFER_BYTES {
            return Err(Errno::INVAL);
        }
        let mut room = self.room.borrow_mut();
        if room.len() < most {
            room.resize(most, 0);
        }
        let Some(bytes) = fill(&mut room[..most]) else { return Ok(false) };
        let bytes = bytes.min(most);
        self.send(&header(bytes, 0, unique), &[&room[..bytes]])?;
        Ok(true)
    }

    fn device(&self) -> &Arc<FuseDevice> {
        self.device
    }
}
