//! The lowest [`IoPath`] of each open: it hands requests to the file, which splits them by its layout for the places
//! ([`crate::file::paths::inline`] over [`crate::file::paths::striped`]).

use crate::file::paths::path::IoPath;
use crate::file::requests::Requests;
use crate::os::error::Result;
use std::io::{IoSlice, IoSliceMut};

/// Straight to the places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacedPath;

impl IoPath for PlacedPath {
    #[inline]
    fn read(&self, requests: Requests<'_>, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        requests.read_vectored_at(bufs, offset)
    }

    #[inline]
    fn write(&self, requests: Requests<'_>, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        requests.write_vectored_at(bufs, offset)
    }
}
