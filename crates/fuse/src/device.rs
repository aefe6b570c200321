//! Messages by reads and writes of `/dev/fuse`: a system call for a request, another for its reply.

use std::io::{self, IoSlice};
use std::sync::Arc;

use rustix::io::Errno;

use crate::connection::FuseDevice;
use crate::init::MAX_WRITE_BYTES;
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
}

impl DeviceTransport {
    /// Reads from `device`.
    pub fn new(device: Arc<FuseDevice>) -> DeviceTransport {
        DeviceTransport { device, buffer: vec![0; BUFFER_BYTES] }
    }
}

impl Transport for DeviceTransport {
    fn next(&mut self, serve: &mut dyn FnMut(&[u8], &dyn ReplySink)) -> io::Result<bool> {
        loop {
            match rustix::io::read(&*self.device, &mut self.buffer[..]) {
                Ok(bytes) => {
                    serve(&self.buffer[..bytes], &DeviceSink { device: &self.device });
                    return Ok(true);
                }
                // The program has given its request up before it was read; a signal; another thread was faster.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Replies by `writev`, which the kernel takes whole or not at all.
struct DeviceSink<'a> {
    device: &'a Arc<FuseDevice>,
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

    fn device(&self) -> &Arc<FuseDevice> {
        self.device
    }
}
