//! What sees the requests that servers have served.

use crate::request::{FileId, Request};
use std::fmt;
use stripewise_layout::SubRequest;

/// A sub-request that a server has served.
#[derive(Clone, Copy)]
pub struct Served<'a> {
    /// Which part of the request.
    pub part: &'a SubRequest,
    /// How many bytes of it.
    pub done_bytes: u64,
    /// In how many nanoseconds. The parts of one request that went out together share the time; 0 where no observer
    /// [`Observer::wants_times`].
    pub took_ns: u64,
    /// Asks where on the server's disk its first byte is.
    pub address: &'a dyn Fn() -> Option<u64>,
}

impl<'a> Served<'a> {
    /// `done_bytes` of `part`, at no known address.
    pub fn of(part: &'a SubRequest, done_bytes: u64) -> Self {
        Self { part, done_bytes, took_ns: 0, address: &|| None }
    }

    /// Where on the server's disk its first byte is, in bytes; `None` where that is not known. Some loads; one system call where
    /// a datafile goes on elsewhere on the disk.
    pub fn disk_address(&self) -> Option<u64> {
        (self.address)()
    }
}

impl fmt::Debug for Served<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, done_bytes, took_ns, .. } = self;
        write!(f, "Served {{ part: {part:?}, done_bytes: {done_bytes}, took_ns: {took_ns} }}")
    }
}

/// Sees each sub-request.
pub trait Observer: Send + Sync {
    /// A server has served a part of `request`. Called by the thread that carries the request out; must not wait.
    fn served(&self, file: FileId, request: &Request, served: &Served<'_>);

    /// A program has set the size of a file. Called as [`Observer::served`] is.
    fn cut(&self, _file: FileId, _size_bytes: u64) {}

    /// Whether requests that go past the mount meet the same observer in the preload, as
    /// [`Gate::is_in_the_preload_too`](crate::Gate::is_in_the_preload_too).
    fn is_in_the_preload_too(&self) -> bool {
        false
    }

    /// Whether it looks at times: then the clock is read twice a request. Asked once.
    fn wants_times(&self) -> bool {
        true
    }
}
