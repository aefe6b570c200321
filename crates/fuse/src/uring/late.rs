//! What comes while a queue has some of its entries.
//!
//! Requests come as soon as each queue has one entry. One that finds all entries of its queue busy waits, and the kernel (Linux
//! 6.18) gives it to the next entry that replies, but not to one that is registered meanwhile: it would wait until a reply,
//! and for ever where each of those before waits for what it holds. So all queues but the last get all their entries before
//! that one has any, and no thread of the last serves before it has all: from its first reply on, whatever has waited is found.
//!
//! What is left are the requests that the last queue gets before it has all its entries, if each of them waits for one that came
//! within the same moment and is in the queue. A further request on that processor gets an entry that is free, is answered, and
//! has the kernel give that entry what waits. When there have been as many as there can be free entries, none is free while
//! something waits, and from then on the kernel keeps it so. So the mount makes them itself ([`ask`]), where it has to: nothing
//! waits as long as the entry that was registered first is free. Its thread looks when all are registered.
//!
//! That look does not find a program that the kernel has stopped since it chose the entry, and before it calls the entry's
//! thread: a few instructions. To ask later, where such a request comes after all, would let unmounts find the mount busy at times.
//!
//! A process of its own asks, with its own memory and without descriptors: a thread that waits for the connection while it
//! holds the connection, or the memory of the rings, keeps a process that is killed from ending. The kernel has no request that
//! nothing waits for: `FUSE_NOTIFY_RETRIEVE` makes one, but only of a regular file that the kernel knows (of the root it
//! is `EINVAL`, Linux 6.18.44).

use std::ffi::CStr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::uring::entry::UringTransport;

/// How many entries the kernel has been asked to take, in the order that [`put_one_queue_last`] makes.
#[derive(Debug)]
pub struct Registrations {
    /// Entries of all queues but the last, and of all.
    before: usize,
    all: usize,
    /// The last queue.
    last: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Entries that the kernel has been asked to take.
    registered: usize,
    /// Of the last queue, the one that is registered first: whether it had got a request when all had been.
    first_is_taken: Option<bool>,
}

impl Registrations {
    /// None of `all`, of which `before` are not of the `last` queue.
    pub fn new(before: usize, all: usize, last: u16) -> Registrations {
        Registrations { before, all, last, state: Mutex::default(), changed: Condvar::new() }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn wait_until(&self, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.wait_while(state, |state| !is_so(state)).unwrap_or_else(PoisonError::into_inner)
    }

    /// One more has been: the kernel has it, or has refused it.
    pub fn add(&self) {
        self.change(|state| state.registered += 1);
    }

    /// There will be no more; who waits goes on.
    pub fn give_up(&self) {
        self.change(|state| state.registered = self.all);
    }

    /// Whether the entry of this number, counted from 0, is of the last queue.
    pub fn is_of_the_last(&self, number: usize) -> bool {
        number >= self.before
    }

    /// Whether it is the one of the last queue that is registered first.
    pub fn is_the_first(&self, number: usize) -> bool {
        number == self.before
    }

    /// Waits until those have been that have to be before the entry of this number.
    pub fn wait_for_turn(&self, number: usize) {
        let least = if number > self.before { self.before + 1 } else { self.before };
        if self.is_of_the_last(number) {
            drop(self.wait_until(|state| state.registered >= least));
        }
    }

    /// Waits until all have been.
    pub fn wait_for_all(&self) {
        drop(self.wait_until(|state| state.registered >= self.all));
    }

    /// All have been, and the first of the last queue has got a request or not. One that the kernel has refused is taken.
    pub fn first_is_taken(&self, taken: bool) {
        self.change(|state| state.first_is_taken = Some(taken));
    }

    /// Has the mount on `mount_point` asked where a request may wait in the last queue; returns when that is over.
    pub fn ask_if_needed(&self, mount_point: &CStr) {
        let taken = self.wait_until(|state| state.first_is_taken.is_some()).first_is_taken;
        // The first one is not free.
        let free = self.all - self.before - 1;
        if taken == Some(true) && free > 0 {
            // Where it cannot be asked, the mount goes on without.
            let _ = ask(mount_point, self.last, free);
        }
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
    Registrations::new(before, entries.len(), last.unwrap_or_default())
}

/// Has a process of its own ask the mount on `mount_point` for its space, `times` times from `processor`, for nothing but the
/// replies; waits for its end, and gives its status, which is 0 if it has asked. `None`: there can be no process.
///
/// The process has a copy of this one's memory but for what `MADV_DONTFORK` keeps out, and none of its descriptors. It ends with
/// the connection at the latest, whose end is the answer to what it has asked for.
fn ask(mount_point: &CStr, processor: u16, times: usize) -> Option<i32> {
    let processor = usize::from(processor);
    if processor >= CpuSet::MAX_CPU {
        return None;
    }
    let mut only = CpuSet::new();
    only.set(processor);
    // What handles signals belongs to the program that this is a part of: the process has all blocked.
    // SAFETY: zeros are a set, `sigfillset` and `pthread_sigmask` fill theirs, and only this thread's mask is changed.
    let mask = unsafe {
        let (mut all, mut mask) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed::<libc::sigset_t>());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut mask);
        mask
    };
    // The process shares the table of descriptors until it has one of its own: a copy would hold what is closed here meanwhile.
    // Its end sends no signal, and only a wait with `__WALL` finds it: what waits for other children is not told of it.
    // SAFETY: as `fork`, without its handlers. The child goes on with a copy of this stack, and makes system calls alone, which
    // take no lock and allocate nothing.
    let child =
        unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_FILES as usize, 0_usize, 0_usize, 0_usize, 0_usize) };
    if child == 0 {
        ask_and_end(mount_point, &only, times);
    }
    // SAFETY: the mask is what it was before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    let child = libc::pid_t::try_from(child).ok().filter(|child| *child > 0)?;
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one number.
        let ended = unsafe { libc::waitpid(child, &mut status, libc::__WALL) };
        if ended == child {
            return Some(status);
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// The process of [`ask`]. It makes system calls alone.
fn ask_and_end(mount_point: &CStr, only: &CpuSet, times: usize) -> ! {
    let every = libc::c_uint::MAX as usize;
    // SAFETY: this process gets a table of its own, without any descriptor, and uses none.
    let has_none =
        unsafe { libc::syscall(libc::SYS_close_range, 0_usize, every, libc::CLOSE_RANGE_UNSHARE as usize) == 0 };
    let may = has_none && sched_setaffinity(None, only).is_ok();
    if may {
        for _ in 0..times {
            // Whatever the answer is.
            let _ = rustix::fs::statfs(mount_point);
        }
    }
    // SAFETY: it ends the process, and runs nothing else.
    unsafe { libc::_exit(i32::from(!may)) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// A processor that this thread may run on.
    fn processor() -> u16 {
        let allowed = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).find(|processor| allowed.is_set(*processor)).unwrap() as u16
    }

    #[test]
    fn a_process_asks_and_ends_and_this_one_keeps_what_it_has() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let allowed = sched_getaffinity(None).unwrap();
        // It is waited for: its status is there.
        assert_eq!(ask(c"/", processor(), 3), Some(0));
        assert_eq!(ask(c"/is/not/there", processor(), 3), Some(0));
        assert!(sched_getaffinity(None).unwrap() == allowed);
        writer.write_all(b"x").unwrap();
        reader.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn a_process_that_cannot_run_there_does_not_ask() {
        let none = (CpuSet::MAX_CPU - 1) as u16;
        assert!(!sched_getaffinity(None).unwrap().is_set(usize::from(none)), "a machine of {none} processors");
        assert_eq!(ask(c"/", none, 3), Some(1 << 8));
        assert_eq!(ask(c"/", u16::MAX, 3), None);
    }

    #[test]
    fn the_last_queues_first_entry_is_alone_until_the_kernel_has_it() {
        let registrations = Registrations::new(2, 5, 1);
        assert_eq!([1, 2, 3].map(|number| registrations.is_of_the_last(number)), [false, true, true]);
        assert_eq!([1, 2, 3].map(|number| registrations.is_the_first(number)), [false, true, false]);
        registrations.wait_for_turn(0);
        registrations.wait_for_turn(1);
        std::thread::scope(|scope| {
            scope.spawn(|| registrations.wait_for_turn(2));
            registrations.add();
            registrations.add();
        });
        std::thread::scope(|scope| {
            scope.spawn(|| registrations.wait_for_turn(3));
            registrations.add();
        });
        registrations.give_up();
        registrations.wait_for_all();
    }

    #[test]
    fn it_is_over_when_the_first_entry_is_known() {
        for taken in [false, true] {
            let registrations = Registrations::new(0, 2, processor());
            std::thread::scope(|scope| {
                let asks = scope.spawn(|| registrations.ask_if_needed(c"/"));
                assert!(!asks.is_finished());
                registrations.first_is_taken(taken);
            });
        }
    }
}
