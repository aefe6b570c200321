//! `direct`: large requests leave nothing in the page caches of the servers.
//!
//! It is the lowest path, below those that read ahead and gather: what they fetch and put is as large as a request of a program may
//! be. So each request decides by its own size, where its sub-requests are made, and costs one comparison where the file has no such
//! hint. Servers whose file system has no such requests serve it as ever.

use crate::format::handle::Optimisations;
use crate::format::hints;

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
    pub(crate) fn of(hinted: &Optimisations) -> Self {
        hints::direct_least_bytes(hinted).map_or(Self::NEVER, |least_bytes| Self { least_bytes })
    }

    /// Whether a request of `len` bytes is direct. One comparison.
    #[inline]
    pub(crate) fn takes(self, len: u64) -> bool {
        len >= self.least_bytes
    }
}
