//! Where requests wait.

use crate::request::{FileId, Request};

/// Lets requests pass, at once or later.
pub trait Gate: Send + Sync {
    /// Returns when `request` may go to the servers. Called by the thread that carries the request out, once a request, with
    /// no lock held. A gate bounds its waits itself.
    fn enter(&self, file: FileId, request: &Request);

    /// Whether requests that go past the mount meet the same gate in the preload. The mount lets programs past it then. Asked
    /// for each placement.
    fn is_in_the_preload_too(&self) -> bool {
        false
    }
}
