//! The paths that requests of an open file can take to its bytes, each a file, one over the other.

pub(crate) mod cached;
pub(crate) mod dense;
pub(crate) mod direct;
pub(crate) mod fetch;
pub(crate) mod gathered;
pub(crate) mod path;
pub(crate) mod pattern;
pub(crate) mod placed;
pub(crate) mod readahead;
pub(crate) mod together;
pub(crate) mod windows;
pub(crate) mod writebehind;
