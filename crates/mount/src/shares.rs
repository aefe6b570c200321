//! What each user may hold of the mount's descriptors: as many as are free for the others.
//!
//! A user alone has at most half of what there is; of two users who take what they can, each has a third, and a third is
//! free for the next. Root and the user whose mount it is may take what is left. Closing gives back what was
//! counted.

use rustix::io::Errno;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::lock;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Users who are counted apart. Of more, some are counted together.
const USERS: usize = 1024;

/// What users hold of one kind of thing, of which there is a limited number.
#[derive(Debug)]
pub struct Shares {
    most: usize,
    /// The user whose mount it is.
    owner: u32,
    held: AtomicUsize,
    /// What users other than root and the owner hold of that.
    held_by_others: AtomicUsize,
    users: Vec<User>,
}

#[derive(Debug, Default)]
struct User {
    /// The number and one; 0 of a place that is free.
    name: AtomicU64,
    held: AtomicUsize,
}

/// What a user holds, until it is dropped.
#[derive(Debug)]
pub struct UserShare {
    shares: Arc<Shares>,
    user: u32,
    index: usize,
    units: usize,
}

impl Shares {
    /// Shares of `most` things in a mount of user `owner`.
    pub fn new(most: usize, owner: u32) -> Arc<Shares> {
        let users = (0..USERS).map(|_| User::default()).collect();
        Arc::new(Shares { most, owner, held: AtomicUsize::new(0), held_by_others: AtomicUsize::new(0), users })
    }

    /// Counts `units` more for `user`. A few atomic operations.
    ///
    /// # Errors
    /// `ENFILE`: the user would hold more than are free.
    pub fn take(self: &Arc<Shares>, user: u32, units: usize) -> Result<UserShare, Errno> {
        let share = self.charge(user, units);
        if self.is_fair(user) { Ok(share) } else { Err(Errno::NFILE) }
    }

    /// As [`Shares::take`] of what the user has already, whether that is fair or not.
    pub fn charge(self: &Arc<Shares>, user: u32, units: usize) -> UserShare {
        let index = self.index(user);
        self.users[index].held.fetch_add(units, Ordering::AcqRel);
        self.held.fetch_add(units, Ordering::AcqRel);
        if !self.is_owners(user) {
            self.held_by_others.fetch_add(units, Ordering::AcqRel);
        }
        UserShare { shares: self.clone(), user, index, units }
    }

    /// What all users hold. One atomic load.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// Whether users other than root and the owner hold any. One atomic load.
    pub fn is_held_by_others(&self) -> bool {
        self.held_by_others.load(Ordering::Acquire) > 0
    }

    fn is_owners(&self, user: u32) -> bool {
        user == 0 || user == self.owner
    }

    /// Whether `user` holds no more than are free.
    pub fn is_fair(&self, user: u32) -> bool {
        let free = self.most.saturating_sub(self.held());
        self.is_owners(user) || self.users[self.index(user)].held.load(Ordering::Acquire) <= free
    }

    /// Where a user is counted. A place is never given to another.
    fn index(&self, user: u32) -> usize {
        let (name, first) = (u64::from(user) + 1, user as usize % USERS);
        for step in 0..USERS {
            let index = (first + step) % USERS;
            match self.users[index].name.compare_exchange(0, name, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return index,
                Err(other) if other == name => return index,
                Err(_) => {}
            }
        }
        first
    }
}

impl UserShare {
    /// Whose it is.
    pub fn user(&self) -> u32 {
        self.user
    }
}

impl Drop for UserShare {
    fn drop(&mut self) {
        self.shares.users[self.index].held.fetch_sub(self.units, Ordering::AcqRel);
        self.shares.held.fetch_sub(self.units, Ordering::AcqRel);
        if !self.shares.is_owners(self.user) {
            self.shares.held_by_others.fetch_sub(self.units, Ordering::AcqRel);
        }
    }
}

/// A user with an inode open. What its opens share is counted once for each user, as any of them may be the last.
#[derive(Debug, Default)]
pub struct Holders(Mutex<HashMap<u32, (usize, UserShare)>>);

/// One open of an inode.
#[derive(Debug)]
pub struct InodeHold {
    holders: Arc<Holders>,
    own: UserShare,
}

impl InodeHold {
    /// Notes an open by the user of `own`, its own part; `shared` counts what all opens share, and is asked if this is
    /// the user's first.
    pub fn new(holders: &Arc<Holders>, own: UserShare, shared: impl FnOnce() -> UserShare) -> InodeHold {
        lock(&holders.0).entry(own.user()).or_insert_with(|| (0, shared())).0 += 1;
        InodeHold { holders: holders.clone(), own }
    }
}

impl Drop for InodeHold {
    fn drop(&mut self) {
        if let Entry::Occupied(mut held) = lock(&self.holders.0).entry(self.own.user()) {
            held.get_mut().0 -= 1;
            if held.get().0 == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 7;

    fn take_all(shares: &Arc<Shares>, user: u32) -> Vec<UserShare> {
        std::iter::from_fn(|| shares.take(user, 1).ok()).collect()
    }

    #[test]
    fn a_user_may_hold_as_many_as_are_free() {
        let shares = Shares::new(120, OWNER);
        let first = take_all(&shares, 1000);
        assert_eq!(first.len(), 60);
        let second = take_all(&shares, 1001);
        assert_eq!(second.len(), 30);
        drop(first);
        assert_eq!(take_all(&shares, 1001).len() + second.len(), 60);
    }

    #[test]
    fn root_and_the_owner_take_what_is_left() {
        let shares = Shares::new(10, OWNER);
        let _all = take_all(&shares, 1000);
        for user in [0, OWNER] {
            assert!((0..20).map(|_| shares.take(user, 1)).collect::<Vec<_>>().iter().all(Result::is_ok));
        }
    }

    #[test]
    fn what_opens_share_counts_once_for_each_user() {
        let shares = Shares::new(1000, OWNER);
        let holders = Arc::new(Holders::default());
        let open = |user| InodeHold::new(&holders, shares.take(user, 1).unwrap(), || shares.charge(user, 10));
        let held = || shares.held.load(Ordering::Relaxed);
        let (a, b, other) = (open(1000), open(1000), open(1001));
        assert_eq!(held(), 2 + 10 + 1 + 10);
        drop(a);
        assert_eq!(held(), 1 + 10 + 1 + 10);
        drop(b);
        assert_eq!(held(), 1 + 10);
        drop(other);
        assert_eq!(held(), 0);
    }

    #[test]
    fn users_are_counted_apart_where_their_numbers_meet() {
        let shares = Shares::new(90, OWNER);
        let _first = take_all(&shares, 1000);
        assert_eq!(take_all(&shares, 1000 + USERS as u32).len(), 22);
        let more: Vec<_> = (0..2 * USERS as u32).map(|user| shares.charge(10_000 + user, 0)).collect();
        assert_eq!(more.len(), 2 * USERS);
    }
}
