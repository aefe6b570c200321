//! How messages travel between the kernel and a thread.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::connection::FuseDevice;

/// By which one thread gets requests.
pub trait Transport: Send {
    /// Waits for a message and gives it to `serve`, with where its reply goes. False when the connection has ended.
    ///
    /// # Errors
    /// Those of the system calls that leave no connection; what is passing is tried again.
    fn next(&mut self, serve: &mut dyn FnMut(&[u8], &dyn ReplySink)) -> io::Result<bool>;

    /// Whether any of the threads that wait may get the next message.
    fn threads_wait_together(&self) -> bool;
}

/// Where the reply to a request goes. It may travel only when what serves the request has returned.
pub trait ReplySink {
    /// Sends a reply: its header, and `parts` one after the other, without a copy where the transport needs none.
    ///
    /// # Errors
    /// Those of the kernel: `ENOENT` for a request that it has given up.
    fn send(&self, header: &[u8; 16], parts: &[&[u8]]) -> Result<(), Errno>;

    /// Sends a reply of the bytes that `fill` puts into the room that it gets, for `most` of them; it says how many. False: it has
    /// none, and nothing is sent.
    ///
    /// # Errors
    /// As [`ReplySink::send`]; `EINVAL`: there is no room for `most` bytes.
    fn fill(&self, unique: u64, most: usize, fill: &mut dyn FnMut(&mut [u8]) -> Option<usize>) -> Result<bool, Errno>;

    /// The connection.
    fn device(&self) -> &Arc<FuseDevice>;
}
