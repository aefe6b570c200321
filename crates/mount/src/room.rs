//! Bounds how many inodes the kernel knows, and so the descriptors that we keep for them.
//!
//! The kernel keeps an unused inode until its memory gets short, and each costs the mount a descriptor. A program that
//! walks a tree of a million files would take a million of them. So when the kernel knows more than
//! [`InodeRoom::aim`], the mount asks it to drop the oldest unused ones (`FUSE_NOTIFY_PRUNE`, Linux 6.18). The kernel then
//! gives its references back, and looks a dropped inode up again when a program uses it.
//!
//! Older kernels cannot be asked: there the limit of open files, which the mount raises as far as it may, has to suffice
//! for all the inodes that the kernel's memory holds.

use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::time::Duration;

use rustix::io::Errno;

use crate::lock;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, thread};

/// With more the gain is small: after [`stripewise_store::neighbours::LONG`] the kernel looks a name up again in any case.
const AIM: usize = 1 << 17;
/// How long a lookup waits for room, and in what steps.
const STEP: Duration = Duration::from_millis(1);
const STEPS: usize = 1000;
/// Most threads that wait for a user who has more than is fair: the others serve.
const MOST_WAITING: usize = 2;

/// How many inodes the kernel knows and may know.
#[derive(Debug)]
pub struct InodeRoom {
    known: AtomicUsize,
    /// How many open files the process may have.
    descriptors: usize,
    /// With more than these the kernel is asked to drop some.
    aim: usize,
    /// With more than these a lookup waits.
    most: usize,
    /// The kernel can be asked.
    pub prunes: AtomicBool,
    asked: Mutex<Asked>,
    wanted: Condvar,
    /// Threads that wait for room for a user who has more than is fair.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Asked {
    wanted: bool,
    ended: bool,
}

impl InodeRoom {
    /// Room for a process that may have `descriptors` open files: half of them for inodes, up to three quarters for a
    /// moment.
    pub fn new(descriptors: u64) -> InodeRoom {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        InodeRoom {
            known: AtomicUsize::new(0),
            descriptors,
            aim: (descriptors / 2).min(AIM),
            most: (descriptors / 4 * 3).min(AIM * 3 / 2),
            prunes: AtomicBool::new(false),
            asked: Mutex::default(),
            wanted: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// How many descriptors are left for what is open: a sixteenth of all is for the mount's own work.
    pub fn for_opens(&self) -> usize {
        self.descriptors - self.aim - self.descriptors / 16
    }

    /// How many descriptors the transports of requests may take: half of those for the mount's own work.
    pub fn for_transports(&self) -> usize {
        self.descriptors / 32
    }

    /// How many inodes the kernel may know.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Lets a user look up another inode. A user who holds more than is `fair` waits until the kernel has dropped what is
    /// in no use. One atomic load as long as there is room. A kernel that cannot be asked to drop any lets all of them
    /// in.
    ///
    /// # Errors
    /// `ENFILE`: what the user knows is in use.
    pub fn admit(&self, fair: impl Fn() -> bool) -> Result<(), Errno> {
        let is_full = || self.known() > self.aim && self.prunes.load(Ordering::Relaxed);
        if !is_full() || fair() {
            return Ok(());
        }
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut steps = 0..if waiting < MOST_WAITING { STEPS } else { 0 };
        let admitted = loop {
            if !is_full() || fair() {
                break Ok(());
            }
            if steps.next().is_none() {
                break Err(Errno::NFILE);
            }
            lock(&self.asked).wanted = true;
            self.wanted.notify_one();
            thread::sleep(STEP);
        };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        admitted
    }

    /// One inode more. One atomic operation as long as there is room.
    pub fn add(&self) {
        let known = self.known.fetch_add(1, Ordering::Relaxed) + 1;
        // Not at each: a lock taken for every lookup would be one too many.
        if known > self.aim && (known - self.aim) % (self.aim / 16 + 1) == 1 {
            lock(&self.asked).wanted = true;
            self.wanted.notify_one();
        }
    }

    /// One inode less.
    pub fn remove(&self) {
        self.known.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many inodes the kernel knows. One atomic load.
    pub fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    /// How many to drop of every thousand.
    pub fn excess_per_mille(&self) -> usize {
        let known = self.known();
        if known <= self.aim { 0 } else { ((known - self.aim / 8 * 7) * 1000).div_ceil(known) }
    }

    /// Opens a descriptor for an inode, when there is room for it. One atomic load as long as there is.
    ///
    /// # Errors
    /// Those of `open`; `EMFILE` only if there was no room for a second.
    pub fn open(&self, open: impl Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
        let mut steps = 0..STEPS;
        while self.known() > self.most && self.prunes.load(Ordering::Relaxed) {
            if steps.next().is_none() {
                break;
            }
            thread::sleep(STEP);
        }
        loop {
            match open() {
                Err(Errno::MFILE | Errno::NFILE) if self.prunes.load(Ordering::Relaxed) && steps.next().is_some() => {
                    lock(&self.asked).wanted = true;
                    self.wanted.notify_one();
                    thread::sleep(STEP);
                }
                done => return done,
            }
        }
    }

    /// Whether the mount has ended.
    pub fn has_ended(&self) -> bool {
        lock(&self.asked).ended
    }

    /// The mount has ended.
    pub fn end(&self) {
        lock(&self.asked).ended = true;
        self.wanted.notify_one();
    }

    /// Waits until there is something to drop; `false` at the end.
    pub fn wait(&self) -> bool {
        let mut asked = lock(&self.asked);
        while !asked.wanted && !asked.ended {
            asked = self.wanted.wait(asked).unwrap_or_else(PoisonError::into_inner);
        }
        asked.wanted = false;
        !asked.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_descriptors_are_for_inodes_but_no_more_than_help() {
        let room = InodeRoom::new(1024);
        assert_eq!((room.aim, room.most, room.for_opens()), (512, 768, 448));
        assert_eq!(InodeRoom::new(u64::MAX).aim, AIM);
    }

    #[test]
    fn what_is_above_the_aim_and_an_eighth_more_is_dropped() {
        let room = InodeRoom::new(32);
        for _ in 0..16 {
            room.add();
        }
        assert_eq!(room.excess_per_mille(), 0);
        room.add();
        assert!(lock(&room.asked).wanted);
        assert_eq!(room.excess_per_mille(), 177);
    }

    #[test]
    fn who_has_too_much_in_use_is_not_let_in_and_others_are() {
        let room = InodeRoom::new(32);
        for _ in 0..17 {
            room.add();
        }
        assert_eq!(room.admit(|| false), Ok(()), "a kernel that cannot be asked");
        room.prunes.store(true, Ordering::Relaxed);
        assert_eq!(room.admit(|| true), Ok(()));
        assert_eq!(room.admit(|| false), Err(Errno::NFILE));
        assert!(lock(&room.asked).wanted);
        room.remove();
        assert_eq!(room.admit(|| false), Ok(()));
    }

    #[test]
    fn without_a_kernel_that_can_be_asked_nothing_waits() {
        let room = InodeRoom::new(0);
        room.add();
        assert_eq!(room.open(|| Err(Errno::MFILE)).unwrap_err(), Errno::MFILE);
    }
}
