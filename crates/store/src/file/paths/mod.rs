//! The paths that requests of an open file can take to its bytes, each a file, one over the other.

pub(crate) mod cached;
pub(crate) mod class;
pub(crate) mod decide;
pub(crate) mod dense;
pub(crate) mod direct;
pub(crate) mod fetch;
pub(crate) mod gathered;
pub(crate) mod inline;
pub(crate) mod open_terms;
pub(crate) mod path;
pub(crate) mod pattern;
pub(crate) mod place;
pub(crate) mod placed;
pub(crate) mod readahead;
pub(crate) mod record;
pub(crate) mod striped;
pub(crate) mod together;
pub(crate) mod windows;
pub(crate) mod writebehind;
