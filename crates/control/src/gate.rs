//! Where requests wait.

use crate::request::{FileId, Request};

/// Lets requests pass, at once or later.
pub trait Gate: Send + Sync {
    /// Returns when `request` may go to the servers. Called by the thread that carries the request out, once a request, with
    /// no lock held. A gate bounds its waits itself.
    fn enter(&self, file: FileId, request: &Request);
}
