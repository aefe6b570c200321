//! One thread of a check at a time on each file.

use crate::os::sync::{Condvar, Mutex, guard};
use std::collections::BTreeSet;
use std::sync::PoisonError;

/// The files that threads of this check hold, by handle. A file with several names is found by several threads: the
/// lock file that one of them has just made is not a dead writer's.
#[derive(Default)]
pub(super) struct Holding {
    held: Mutex<BTreeSet<u64>>,
    changed: Condvar,
}

/// That no other thread of this check holds the file.
pub(super) struct Alone<'a>(&'a Holding, u64);

impl Holding {
    /// Waits until no other thread of this check holds the file.
    pub(super) fn alone(&self, logical: u64) -> Alone<'_> {
        let others = self.changed.wait_while(guard(&self.held), |held| held.contains(&logical));
        others.unwrap_or_else(PoisonError::into_inner).insert(logical);
        Alone(self, logical)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        guard(&self.0.held).remove(&self.1);
        self.0.changed.notify_all();
    }
}
