//! Bounds how many inodes the kernel knows, and so the descriptors that we keep for them.
//!
//! The kernel keeps an unused inode until its memory gets short, and each costs the mount a descriptor. A program that
//! walks a tree of a million files would take a million of them. So when the kernel knows more than
//! [`InodeRoom::aim`], the mount asks it to drop the oldest unused ones (`FUSE_NOTIFY_PRUNE`, Linux 6.18). The kernel then
//! gives its references back, and looks a dropped inode up again when a program uses it.
//!
//! While root and the mount's owner alone use it, inodes also get the descriptors that are set aside for opens and not in use. With the
//! limit of 20,000 of many containers a program walks 15,000 files, and not 10,000, before the kernel has to look up names again that it knew.
//! Another user could pin what is lent, and opens would wait for it in vain.
//!
//! Older kernels cannot be asked: there the limit of open files, which the mount raises as far as it may, has to suffice
//! for all the inodes that the kernel's memory holds.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::lock;
use crate::shares::Shares;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, thread};

/// With more the gain is small: after [`stripewise_store::neighbours::LONG`] the kernel looks a name up again in any case.
const AIM: usize = 1 << 17;
/// How long a lookup waits for room, and in what steps.
const STEP: Duration = Duration::from_millis(1);
const STEPS: usize = 1000;
/// Most threads that wait for a user who has more than is fair, or for an open: the others serve.
const MOST_WAITING: usize = 2;

/// How many inodes the kernel knows and may know.
#[derive(Debug)]
pub struct InodeRoom {
    known: AtomicUsize,
    /// How many open files the process may have.
    descriptors: usize,
    /// What users hold of opens and of inodes, where inodes get what opens leave.
    lent_by: Option<(Arc<Shares>, Arc<Shares>)>,
    /// The kernel can be asked.
    pub prunes: AtomicBool,
    asked: Mutex<Asked>,
    wanted: Condvar,
    /// Threads that wait for room: for a user who has more than is fair, or for an open.
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
    pub fn new(descriptors: usize) -> InodeRoom {
        InodeRoom {
            known: AtomicUsize::new(0),
            descriptors,
            lent_by: None,
            prunes: AtomicBool::new(false),
            asked: Mutex::default(),
            wanted: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Room for inodes beside `opens`, which leave what they do not hold to them: three quarters of the descriptors but those of opens,
    /// and half of them in any case. As [`InodeRoom::new`] while another user than root and the owner has any of these, or of `nodes`.
    pub fn beside(descriptors: usize, opens: Arc<Shares>, nodes: Arc<Shares>) -> InodeRoom {
        InodeRoom { lent_by: Some((opens, nodes)), ..InodeRoom::new(descriptors) }
    }

    /// How many of `descriptors` are for what is open: a sixteenth of all is for the mount's own work.
    pub fn for_opens(descriptors: usize) -> usize {
        descriptors - (descriptors / 2).min(AIM) - descriptors / 16
    }

    /// How many descriptors the transports of requests may take: half of those for the mount's own work.
    pub fn for_transports(&self) -> usize {
        self.descriptors / 32
    }

    /// With more the kernel is asked to drop some. At most three atomic loads.
    fn aim(&self) -> usize {
        self.beside_opens(self.descriptors / 2, self.descriptors / 4 * 3).min(AIM)
    }

    /// How many inodes the kernel may know: with more a lookup waits. At most three atomic loads.
    pub fn most(&self) -> usize {
        self.beside_opens(self.descriptors / 4 * 3, self.descriptors / 8 * 7).min(AIM * 3 / 2)
    }

    /// `least`, or what opens leave of `all` if that is more.
    fn beside_opens(&self, least: usize, all: usize) -> usize {
        match &self.lent_by {
            Some((opens, nodes)) if !opens.is_held_by_others() && !nodes.is_held_by_others() => {
                all.saturating_sub(opens.held()).max(least)
            }
            _ => least,
        }
    }

    /// To be called before something is opened that takes `units` descriptors at most: takes back what was lent to inodes. It waits until
    /// they and a sixteenth of all are free, for at most the time that a lookup waits for room. A few atomic loads as long as there is room.
    pub fn take_back(&self, units: usize) {
        let Some((opens, _)) = self.lent_by.as_ref().filter(|_| self.prunes.load(Ordering::Relaxed)) else { return };
        let is_full = || self.known() + opens.held() + units > self.descriptors / 16 * 15;
        if self.known() <= self.aim() {
            return;
        }
        self.want();
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut steps = 0..if waiting < MOST_WAITING { STEPS } else { 0 };
        while is_full() && self.known() > self.aim() && steps.next().is_some() {
            thread::sleep(STEP);
            self.want();
        }
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Has the kernel asked to drop some.
    fn want(&self) {
        lock(&self.asked).wanted = true;
        self.wanted.notify_one();
    }

    /// Lets a user look up another inode. A user who holds more than is `fair` waits until the kernel has dropped what is
    /// in no use. One atomic load as long as there is room. A kernel that cannot be asked to drop any lets all of them
    /// in.
    ///
    /// # Errors
    /// `ENFILE`: what the user knows is in use.
    pub fn admit(&self, fair: impl Fn() -> bool) -> Result<(), Errno> {
        let is_full = || self.known() > self.aim() && self.prunes.load(Ordering::Relaxed);
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
            self.want();
            thread::sleep(STEP);
        };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        admitted
    }

    /// One inode more. One atomic operation as long as there is room.
    pub fn add(&self) {
        let known = self.known.fetch_add(1, Ordering::Relaxed) + 1;
        let aim = self.aim();
        // Not at each: a lock taken for every lookup would be one too many.
        if known > aim && (known - aim) % (aim / 16 + 1) == 1 {
            self.want();
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
        let (known, aim) = (self.known(), self.aim());
        if known <= aim { 0 } else { ((known - aim / 8 * 7) * 1000).div_ceil(known) }
    }

    /// Opens a descriptor for an inode, when there is room for it. One atomic load as long as there is.
    ///
    /// # Errors
    /// Those of `open`; `EMFILE` only if there was no room for a second.
    pub fn open(&self, open: impl Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
        let mut steps = 0..STEPS;
        while self.known() > self.most() && self.prunes.load(Ordering::Relaxed) {
            if steps.next().is_none() {
                break;
            }
            thread::sleep(STEP);
        }
        loop {
            match open() {
                Err(Errno::MFILE | Errno::NFILE) if self.prunes.load(Ordering::Relaxed) && steps.next().is_some() => {
                    self.want();
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
        assert_eq!((room.aim(), room.most(), InodeRoom::for_opens(1024)), (512, 768, 448));
        assert_eq!(InodeRoom::new(usize::MAX).aim(), AIM);
    }

    #[test]
    fn inodes_get_what_opens_leave_and_give_it_back() {
        let (opens, nodes) = (Shares::new(InodeRoom::for_opens(1024), 0), Shares::new(768, 0));
        let room = InodeRoom::beside(1024, opens.clone(), nodes.clone());
        assert_eq!((room.aim(), room.most()), (768, 896));
        for shares in [&opens, &nodes] {
            let _other = shares.charge(1000, 1);
            assert_eq!((room.aim(), room.most()), (512, 768), "another user's would not be given back");
        }
        let (few, many) = (opens.charge(0, 100), opens.charge(0, 300));
        assert_eq!((room.aim(), room.most()), (512, 768), "no less than where nothing is lent");
        drop(many);
        assert_eq!((room.aim(), room.most()), (668, 796));
        room.known.store(760, Ordering::Relaxed);
        room.take_back(1);
        assert!(!lock(&room.asked).wanted, "the kernel cannot be asked");
        room.prunes.store(true, Ordering::Relaxed);
        room.take_back(1);
        assert!(lock(&room.asked).wanted, "there is room yet, and it gets less");
        assert!(room.excess_per_mille() > 0);
        drop(few);
        assert_eq!(room.excess_per_mille(), 0);
    }

    #[test]
    fn an_open_waits_for_what_is_taken_back() {
        let opens = Shares::new(InodeRoom::for_opens(1024), 0);
        let room = Arc::new(InodeRoom::beside(1024, opens.clone(), Shares::new(768, 0)));
        room.prunes.store(true, Ordering::Relaxed);
        room.known.store(860, Ordering::Relaxed);
        let _held = opens.charge(0, 90);
        room.take_back(10);
        assert!(room.wait() && room.known() == 860, "these are free, and soon more are");
        let kernel = thread::spawn({
            let room = room.clone();
            move || {
                assert!(room.wait());
                room.known.store(700, Ordering::Relaxed);
            }
        });
        room.take_back(11);
        assert_eq!(room.known(), 700);
        kernel.join().unwrap();
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
