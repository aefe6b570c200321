//! What comes while a queue has some of its entries.
//!
//! Requests come as soon as each queue has one entry. One that finds all entries of its queue busy waits, and the kernel (Linux
//! 6.18) gives it to the next entry that replies, but not to one that is registered meanwhile: it would wait until a reply,
//! and for ever where each of those before waits for what it holds. So all queues but the last get all their entries before
//! that one has any, and no thread of the last serves before it has all: from its first reply on, whatever has waited is found.
//!
//! What is left are the requests that its entries get before it has all, if each of them waits for one that came within the same
//! moment and is in the queue, and if no further request comes to that processor. A request that no thread waits for would have
//! the kernel look, but there is none: `FUSE_NOTIFY_RETRIEVE` makes one, which does travel by `io_uring`, but only of a regular
//! file that the kernel knows (of the root it is `EINVAL`, Linux 6.18.44), and it knows none then. A thread of the mount that asks
//! the mount keeps the process from ending when it is killed meanwhile.

use std::sync::{Condvar, Mutex, PoisonError};

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::uring::entry::UringTransport;

/// How many entries the kernel has been asked to take, in the order that [`put_one_queue_last`] makes.
#[derive(Debug)]
pub struct Registrations {
    /// Entries of all queues but the last, and of all.
    before: usize,
    all: usize,
    number: Mutex<usize>,
    changed: Condvar,
}

impl Registrations {
    /// None of `all`, of which `before` are not of the last queue.
    pub fn new(before: usize, all: usize) -> Registrations {
        Registrations { before, all, number: Mutex::new(0), changed: Condvar::new() }
    }

    /// One more has been: the kernel has it, or has refused it.
    pub fn add(&self) {
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// There will be no more; who waits goes on.
    pub fn give_up(&self) {
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) = self.all;
        self.changed.notify_all();
    }

    /// Whether the entry of this number, counted from 0, is of the last queue.
    pub fn is_of_the_last(&self, number: usize) -> bool {
        number >= self.before
    }

    /// Waits until those before the last queue have been.
    pub fn wait_for_those_before(&self) {
        self.wait_for(self.before);
    }

    /// Waits until all have been.
    pub fn wait_for_all(&self) {
        self.wait_for(self.all);
    }

    fn wait_for(&self, least: usize) {
        let found = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(found, |found| *found < least).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Moves the entries of one queue to the end, whose processor this process may run on.
pub fn put_one_queue_last(entries: &mut [UringTransport]) -> Registrations {
    let mut last = entries.last().map(UringTransport::queue);
    if let Ok(allowed) = sched_getaffinity(None) {
        let may_run = |queue: &u16| usize::from(*queue) < CpuSet::MAX_CPU && allowed.is_set(usize::from(*queue));
        last = entries.iter().rev().map(UringTransport::queue).find(may_run).or(last);
    }
    entries.sort_by_key(|entry| Some(entry.queue()) == last);
    let before = entries.iter().filter(|entry| Some(entry.queue()) != last).count();
    Registrations::new(before, entries.len())
}
