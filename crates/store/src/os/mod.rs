//! System calls, errors, locks and shared pages: knows nothing above it.

pub(crate) mod boot;
pub(crate) mod budget;
pub(crate) mod byte_lock;
pub(crate) mod descriptors;
pub(crate) mod direct;
pub mod error;
pub(crate) mod first_process;
pub(crate) mod lost_pages;
pub(crate) mod room;
pub mod shared_pages;
pub(crate) mod sync;
pub(crate) mod sys;
pub(crate) mod threads;
pub(crate) mod timer;
pub(crate) mod writeback;
