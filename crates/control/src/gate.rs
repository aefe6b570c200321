//! Where requests wait.

use crate::request::{FileId, Request};
use std::num::NonZeroU32;

/// Lets requests pass, at once or later.
pub trait Gate: Send + Sync {
    /// Returns when `request` may go to the servers. Called by the thread that carries the request out, once a request, with
    /// no lock held. A gate bounds its waits itself.
    fn enter(&self, file: FileId, request: &Request);

    /// A request that has passed, or a part of one, goes to the servers now: a number for [`Gate::ended`], where the gate has to
    /// know when they have answered. Called by the thread that carries it out; must not wait.
    fn sent(&self, _request: &Request) -> Option<NonZeroU32> {
        None
    }

    /// Servers have answered what [`Gate::sent`] gave this number to.
    fn ended(&self, _number: NonZeroU32) {}

    /// Whether requests that go past the mount meet the same gate in the preload. The mount lets programs past it then. Asked
    /// for each placement.
    fn is_in_the_preload_too(&self) -> bool {
        false
    }
}
