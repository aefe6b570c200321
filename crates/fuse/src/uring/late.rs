//! What came while a queue had some of its entries.
//!
//! Requests come as soon as each queue has one entry. One that finds all entries of its queue busy waits, and the kernel (Linux
//! 6.18) gives it to the next entry that replies, but not to one that is registered meanwhile: it would wait until a reply,
//! and for ever where each of those before waits for what it holds. No order of registration avoids that for the queue which
//! comes last. So that queue gets requests whose replies have the kernel look: as many as it has entries, since more than
//! that have to wait in any case.

use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::uring::entry::UringTransport;

/// How many entries the kernel has been asked to take.
#[derive(Debug, Default)]
pub struct Registrations {
    number: Mutex<usize>,
    changed: Condvar,
}

impl Registrations {
    /// One more has been: the kernel has it, or has refused it.
    pub fn add(&self) {
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until `number` have been.
    pub fn wait_for(&self, number: usize) {
        let found = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(found, |found| *found < number).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Moves the entries of one queue, on whose processor this process may run, to the end; the number of the others.
pub fn put_one_queue_last(entries: &mut [UringTransport]) -> usize {
    let Some(mut last) = entries.last().map(UringTransport::queue) else { return 0 };
    if let Ok(allowed) = sched_getaffinity(None) {
        let may_run = |queue: &u16| usize::from(*queue) < CpuSet::MAX_CPU && allowed.is_set(usize::from(*queue));
        last = entries.iter().rev().map(UringTransport::queue).find(may_run).unwrap_or(last);
    }
    entries.sort_by_key(|entry| entry.queue() == last);
    entries.iter().filter(|entry| entry.queue() != last).count()
}

/// Asks the mount on `mount_point` for its space `times` times, from the processor `queue`, for nothing but the replies. The
/// calling thread has no descriptors of this process from then on, and is for nothing else.
pub fn ask(mount_point: &Path, queue: u16, times: usize) {
    // A thread that waits for the connection while it holds the connection would keep a process that is killed from ending.
    // SAFETY: only the calling thread loses descriptors, copies of its own, and uses none of them.
    let let_go = unsafe { libc::unshare(libc::CLONE_FILES) == 0 && libc::close_range(0, libc::c_uint::MAX, 0) == 0 };
    let mut only = CpuSet::new();
    if usize::from(queue) < CpuSet::MAX_CPU {
        only.set(usize::from(queue));
    }
    if let_go && sched_setaffinity(None, &only).is_ok() {
        for _ in 0..times {
            // Whatever the answer is.
            let _ = rustix::fs::statfs(mount_point);
        }
    }
}
