//! What sees the requests that servers have served.

use crate::request::{FileId, Request};
use stripewise_layout::SubRequest;

/// Sees each sub-request.
pub trait Observer: Send + Sync {
    /// A server has served `part` of `request`: `done_bytes` of its bytes, in `took_ns` nanoseconds. The parts of one
    /// request that went out together share the time, which is 0 where no observer [`Observer::wants_times`]. Called by the
    /// thread that carries the request out; must not wait.
    fn served(&self, file: FileId, part: &SubRequest, request: &Request, done_bytes: u64, took_ns: u64);

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
