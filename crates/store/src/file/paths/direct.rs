//! `direct`: large requests leave nothing in the page caches of the servers.
//!
//! It is the lowest path, below those that read ahead and gather: what they fetch and put is as large as a request of a program may
//! be. So each request decides by its own size, where its sub-requests are made, and costs one comparison where the file has no such
//! hint; it is no [`crate::file::paths::path::IoPath`], which would have to hand that on to each sub-request. Servers whose file system
//! has no such requests serve it as ever.

use crate::file::paths::record::{NotTaken, PathState};

/// Which requests on a file are direct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Direct {
    /// Bytes of the smallest one; more than any request has: none.
    least_bytes: u64,
}

impl Direct {
    /// None.
    pub(crate) const NEVER: Self = Self { least_bytes: u64::MAX };

    /// By what a handle asks for.
    pub(crate) fn of(least_bytes: Option<u64>) -> Self {
        least_bytes.map_or(Self::NEVER, |least_bytes| Self { least_bytes })
    }

    /// Whether a request of `len` bytes is direct. One comparison.
    #[inline]
    pub(crate) fn takes(self, len: u64) -> bool {
        len >= self.least_bytes
    }

    /// Its part of the decision for an open of a file over some servers, of each of which is given whether it can do so. The kernel
    /// serves no such file by itself.
    pub(crate) fn decide(self, mut servers: impl Iterator<Item = bool>) -> PathState {
        match servers.next() {
            _ if self == Self::NEVER => PathState::NotAsked,
            None => PathState::Not(NotTaken::InInode),
            Some(first) if first || servers.any(|can| can) => PathState::Taken,
            Some(_) => PathState::Not(NotTaken::Servers),
        }
    }
}
