//! A bound of what a process takes of something.

use crate::os::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// What is taken so far.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    taken: AtomicU64,
}

/// A part of it, until this is dropped.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    of: Arc<Budget>,
    amount: u64,
}

impl Budget {
    /// Takes `amount`, if no more than `most` is taken then.
    pub(crate) fn take(self: &Arc<Self>, amount: u64, most: u64) -> Option<BudgetShare> {
        let share = BudgetShare { of: self.clone(), amount };
        let before = self.taken.fetch_add(amount, Ordering::AcqRel);
        // Dropped where it is too much, which gives it back.
        (before.saturating_add(amount) <= most).then_some(share)
    }
}

impl Budget {
    /// Whether `amount` could be taken now. One load.
    pub(crate) fn has(&self, amount: u64, most: u64) -> bool {
        self.taken.load(Ordering::Relaxed).saturating_add(amount) <= most
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.amount, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_and_what_is_given_back_is_there() {
        let budget = Arc::new(Budget::default());
        let first = budget.take(60, 100).unwrap();
        assert!(budget.take(41, 100).is_none());
        assert!(budget.has(40, 100) && !budget.has(41, 100));
        let second = budget.take(40, 100).unwrap();
        assert!(budget.take(1, 100).is_none());
        drop(first);
        assert!(budget.take(60, 100).is_some());
        drop(second);
        assert_eq!(budget.taken.load(Ordering::Acquire), 0);
    }
}
