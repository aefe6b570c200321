//! The handle buffer: the files whose handles this process has unpacked, one for all ways in, and what their last opens have taken.
//!
//! A handle is read and unpacked ([`crate::format::parser`]) by the first open of a file, and again when its epoch counter says
//! that it has changed. All opens of the file by mount, library and tools of the process share what was unpacked, until the last of them
//! has gone. Bounded: no more than [`LEAST`] files, or twice as many as were in use when it was swept last; what their layouts
//! take is bounded for each user ([`crate::file::open_memory`]), and the records of opens take a fixed table
//! ([`crate::file::paths::record`]), which still tells of files that are closed.

use crate::file::paths::record::{HandleKey, OpenRecords};
use crate::os::sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

/// Files up to which it is not swept.
const LEAST: usize = 64;

/// The files `T` of one process.
#[derive(Debug)]
pub(crate) struct HandleBuffer<T> {
    files: Mutex<BufferedFiles<T>>,
    /// What opens have taken.
    pub(crate) opens: OpenRecords,
}

impl<T> Default for HandleBuffer<T> {
    fn default() -> Self {
        let files = BufferedFiles { files: HashMap::new(), sweep_at: LEAST };
        Self { files: Mutex::new(files), opens: OpenRecords::default() }
    }
}

impl<T> HandleBuffer<T> {
    /// The files. An open holds this lock while it opens the file's inode.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BufferedFiles<T>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files, by logical handle and inode: the handle alone is what a user may have copied from another's file.
#[derive(Debug)]
pub(crate) struct BufferedFiles<T> {
    files: HashMap<HandleKey, Weak<T>>,
    /// When there are as many, those that are not in use go.
    sweep_at: usize,
}

impl<T> BufferedFiles<T> {
    /// The file, if it is in use.
    pub(crate) fn get(&self, key: HandleKey) -> Option<Arc<T>> {
        self.files.get(&key).and_then(Weak::upgrade)
    }

    /// All that are in use.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.files.values().filter_map(Weak::upgrade).collect()
    }

    /// Puts a file there, and sweeps out those that are not in use: each about once for every time it was put.
    pub(crate) fn put(&mut self, key: HandleKey, file: &Arc<T>) {
        if self.files.len() >= self.sweep_at {
            self.files.retain(|_, other| other.strong_count() > 0);
            self.sweep_at = LEAST.max(2 * self.files.len());
        }
        self.files.insert(key, Arc::downgrade(file));
    }

    /// Whether the file is in use. One look.
    pub(crate) fn has(&self, key: HandleKey) -> bool {
        self.files.get(&key).is_some_and(|file| file.strong_count() > 0)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_what_is_in_use_and_is_bounded_by_that() {
        let buffer = HandleBuffer::<u64>::default();
        let used: Vec<_> = (0..100).map(Arc::new).collect();
        for number in 0..100 {
            buffer.lock().put((number, number), &used[number as usize]);
        }
        for number in 100..5000 {
            buffer.lock().put((number, number), &Arc::new(number));
            assert!(buffer.lock().files.len() <= 2 * 100 + 1);
        }
        assert!((0..100).all(|number| buffer.lock().get((number, number)) == Some(Arc::new(number))));
        assert!(!buffer.lock().has((4999, 4999)) && buffer.lock().get((4999, 4999)).is_none());
        assert_eq!(buffer.lock().all().len(), 100);
        drop(used);
        buffer.lock().put((1, 2), &Arc::new(3));
        (0..200).for_each(|number| buffer.lock().put((number, 7), &Arc::new(number)));
        assert!(buffer.lock().files.len() <= LEAST);
    }
}
