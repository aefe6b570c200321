//! Removes the datafiles of files that have lost their last name, once the removal of the name is on the disk.
//!
//! A power cut may bring back a name whose removal had not reached the disk, and its bytes must then still exist. This
//! matters most for a rename over a name, which promises a program one content or the other. So a separate thread first
//! syncs the directories, once for all names removed meanwhile, and no program waits for a disk.
//!
//! A removal that waits is in the store's journal of removals before the program goes on. If this mount is killed, the
//! next one finishes it. If a server refuses it, this mount tries again in growing intervals. So it does where the file was being moved, or
//! changed by its name through another mount: these end, and leave what there is to the mount that has taken the name away. A program that
//! has the file open there for longer removes it with its last close.

use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use stripewise_store::{Collected, Inode, Journal, Slot, Store, run_anywhere};

use crate::node::{Node, ProcName};
use crate::sync::{Condvar, Mutex, thread};
use crate::{lock, log};

/// Most files that wait at once: each holds a descriptor. The removal of one more waits for the disk.
const MOST_WAITING: usize = 1024;
/// How often is looked for journals of mounts that were killed.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// When a removal that was refused is tried again: after the first pause, then twice as long each time in vain, up to
/// the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How often a file is tried again that has a writer elsewhere, in 3 s: a change by its name has ended by then.
const TRIES_OF_WRITTEN: u32 = 5;
/// And one that is moved, in six minutes: in a shared pool a user may hold a mover's locks for ever.
const MOST_TRIES: u32 = 40;

/// A file without a name that is not open here; or `None`: one that has lost a name and has others, in directories that
/// may be synced without this one. When it loses the last of them, all must be certain to be gone.
#[derive(Debug)]
struct Removal {
    inode: Option<Arc<Inode>>,
    /// Where the journal says so; `None`: it has no room.
    noted: Option<Slot>,
    /// The directory that had its name. `None`: another took the name away, or this mount just now and has not come to
    /// say so; then the file itself is synced, and journals take the name with it.
    directory: Option<Arc<Node>>,
}

/// A file whose removal has met a mover or a writer.
#[derive(Debug)]
struct Met {
    inode: Arc<Inode>,
    noted: Option<Slot>,
    /// When it is tried again, and how long after that the next time.
    at: Instant,
    pause: Duration,
    /// How often it was tried.
    tries: u32,
    /// How often it had a writer then, and no mover.
    written: u32,
}

/// What a try to remove a file's datafiles came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// None is left, or none is to go.
    Gone,
    /// A mover has the file, or a writer elsewhere.
    Met,
    /// The journal has it, if there is one.
    Left,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Removal>,
    /// The thread is at work.
    busy: bool,
    /// How often it has come to an end of what it had taken.
    rounds: u64,
    /// Whether there is a thread; unknown before the first removal.
    thread: Option<bool>,
}

impl Queue {
    fn under_way(&mut self) -> bool {
        self.busy || !self.waiting.is_empty()
    }
}

/// Files whose datafiles are to be removed.
#[derive(Debug, Default)]
pub struct Removals {
    queue: Mutex<Queue>,
    changed: Condvar,
    met: Mutex<Vec<Met>>,
    /// Set once, when the mount begins.
    journal: OnceLock<Journal>,
}

/// When the thread starts work on its own.
#[derive(Debug)]
struct Schedule {
    look_at: Instant,
    retry_at: Instant,
    pause: Duration,
}

impl Schedule {
    fn begin(now: Instant) -> Schedule {
        Schedule { look_at: now, retry_at: now, pause: FIRST_PAUSE }
    }

    /// How long there is nothing to do.
    fn rest(&self, has_left: bool, now: Instant) -> Duration {
        let next = if has_left { self.look_at.min(self.retry_at) } else { self.look_at };
        next.saturating_duration_since(now)
    }

    fn retry_soon(&mut self, now: Instant) {
        self.pause = FIRST_PAUSE;
        self.retry_at = now + self.pause;
    }

    fn retry_later(&mut self, now: Instant) {
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        self.retry_at = now + self.pause;
    }
}

impl Removals {
    /// Keeps this journal, and takes over those of mounts that were killed: now, and every so often.
    pub fn begin(self: &Arc<Self>, store: &Arc<Store>, journal: Journal) {
        if self.journal.set(journal).is_ok() {
            let mut queue = lock(&self.queue);
            queue.thread.get_or_insert_with(|| self.start(store));
        }
    }

    /// Notes that `inode`, whose attributes are `stat`, has lost its last name while it is open here; see
    /// [`Journal::note`].
    pub fn note(&self, inode: &Inode, stat: &Stat) -> Option<Slot> {
        self.journal.get()?.note(inode, stat, true)
    }

    /// Removes the datafiles of `inode`, whose attributes are `stat`, as soon as it is certain that its name, which was
    /// in `directory`, does not come back. Waits only when very many wait already.
    pub fn add(self: &Arc<Self>, store: &Arc<Store>, inode: Arc<Inode>, stat: &Stat, directory: Option<Arc<Node>>) {
        let noted = self.journal.get().and_then(|journal| journal.note(&inode, stat, false));
        self.push(store, Removal { inode: Some(inode), noted, directory });
    }

    /// [`Removals::add`] of a file that has been noted.
    pub fn add_noted(self: &Arc<Self>, store: &Arc<Store>, inode: Arc<Inode>, noted: Slot, directory: Arc<Node>) {
        self.push(store, Removal { inode: Some(inode), noted: Some(noted), directory: Some(directory) });
    }

    /// Makes certain that a name which was in `directory` does not come back, before any datafiles go that are added
    /// later.
    pub fn forget_name(self: &Arc<Self>, store: &Arc<Store>, directory: Arc<Node>) {
        self.push(store, Removal { inode: None, noted: None, directory: Some(directory) });
    }

    fn push(self: &Arc<Self>, store: &Arc<Store>, removal: Removal) {
        let mut queue = lock(&self.queue);
        if !*queue.thread.get_or_insert_with(|| self.start(store)) {
            return;
        }
        let mut queue = self
            .changed
            .wait_while(queue, |queue| queue.waiting.len() >= MOST_WAITING)
            .unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push(removal);
        self.changed.notify_all();
    }

    /// Starts the thread; whether that worked.
    fn start(self: &Arc<Self>, store: &Arc<Store>) -> bool {
        let (removals, store) = (self.clone(), store.clone());
        let started = thread::Builder::new().name("remove".to_owned()).spawn(move || {
            run_anywhere();
            removals.run(&store);
        });
        let error = |error| log::error(&format!("no thread to remove datafiles ({error}): `stripewise fsck` will"));
        started.map_err(error).is_ok()
    }

    /// Waits until nothing waits for its removal. What servers refuse is tried once more, and is then the next mount's
    /// to remove.
    pub fn finish(&self, store: &Store) {
        drop(self.changed.wait_while(lock(&self.queue), Queue::under_way));
        self.try_met(store, |_| true);
        let left = std::mem::take(&mut *lock(&self.met));
        left.iter().for_each(|met| self.leave(&met.inode, met.noted));
        if let Some(journal) = self.journal.get() {
            if journal.has_left() {
                journal.round();
            }
            journal.end();
        }
    }

    /// Waits until all that waits now for its removal has been tried; whether anything did.
    pub fn make_room(&self) -> bool {
        let queue = lock(&self.queue);
        // What came after the thread began waits for its next round.
        let last = queue.rounds + 1 + u64::from(queue.busy);
        let mut waited = false;
        drop(self.changed.wait_while(queue, |queue| {
            let waits = queue.under_way() && queue.rounds < last;
            waited |= waits;
            waits
        }));
        waited
    }

    fn run(&self, store: &Store) {
        let mut schedule = Schedule::begin(Instant::now());
        loop {
            let rest = schedule.rest(self.journal.get().is_some_and(Journal::has_left), Instant::now());
            let next = lock(&self.met).iter().map(|met| met.at).min();
            let rest = next.map_or(rest, |at| rest.min(at.saturating_duration_since(Instant::now())));
            let queue = lock(&self.queue);
            let waited = self.changed.wait_timeout_while(queue, rest, |queue| queue.waiting.is_empty());
            let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            let taken = std::mem::take(&mut queue.waiting);
            queue.busy = true;
            self.changed.notify_all();
            drop(queue);
            let all = self.remove(store, &taken);
            drop(taken);
            if !all {
                schedule.retry_soon(Instant::now());
            }
            self.try_met(store, |met| met.at <= Instant::now());
            self.tend(&mut schedule);
            let mut queue = lock(&self.queue);
            queue.busy = false;
            queue.rounds += 1;
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// Takes over journals of mounts that were killed, and tries again what was refused, each when its time has come.
    fn tend(&self, schedule: &mut Schedule) {
        let now = Instant::now();
        let Some(journal) = self.journal.get() else {
            schedule.look_at = now + LOOK_EVERY;
            return;
        };
        if schedule.look_at <= now {
            journal.look().iter().for_each(|message| log::error(message));
            schedule.look_at = Instant::now() + LOOK_EVERY;
        }
        if schedule.retry_at <= now && journal.has_left() {
            if journal.round() > 0 {
                schedule.retry_soon(Instant::now());
            } else {
                schedule.retry_later(Instant::now());
            }
        }
    }

    /// Tries those again that are `due`.
    fn try_met(&self, store: &Store, due: impl Fn(&Met) -> bool) {
        let taken: Vec<Met> = lock(&self.met).extract_if(.., |met| due(met)).collect();
        for mut met in taken {
            match remove_one(store, &met.inode, self.journal.get().zip(met.noted), true) {
                Tried::Gone | Tried::Left => continue,
                Tried::Met => {}
            }
            met.tries += 1;
            met.written += u32::from(!met.inode.is_moved().unwrap_or(false));
            if met.written < TRIES_OF_WRITTEN && met.tries < MOST_TRIES {
                met.at = Instant::now() + met.pause;
                met.pause = (2 * met.pause).min(LONGEST_PAUSE);
                lock(&self.met).push(met);
            } else {
                self.leave(&met.inode, met.noted);
            }
        }
    }

    /// Leaves a file to its writer's last close, and should the writer be killed to the journal.
    fn leave(&self, inode: &Inode, noted: Option<Slot>) {
        match self.journal.get().zip(noted) {
            Some((journal, slot)) => journal.leave(slot, inode, true),
            None => log::error(
                "a file without a name is moved or written by another process, and the journal has no room: what is left of it \
                 `stripewise fsck` removes",
            ),
        }
    }

    fn meet(&self, inode: &Arc<Inode>, noted: Option<Slot>) {
        let mut met = lock(&self.met);
        if met.len() < MOST_WAITING {
            let (at, pause) = (Instant::now() + FIRST_PAUSE, 2 * FIRST_PAUSE);
            met.push(Met { inode: inode.clone(), noted, at, pause, tries: 0, written: 0 });
        } else {
            drop(met);
            self.leave(inode, noted);
        }
    }

    /// Removes what can be removed; whether none was left to the journal.
    fn remove(&self, store: &Store, taken: &[Removal]) -> bool {
        let mut synced: Vec<(u64, bool)> = Vec::new();
        let mut all = true;
        for Removal { inode, noted, directory } in taken {
            let certain = match directory {
                None => inode.as_ref().is_none_or(|inode| inode.sync_inode().is_ok()),
                Some(directory) => match synced.iter().find(|(ino, _)| *ino == directory.ino) {
                    Some((_, certain)) => *certain,
                    None => {
                        let certain = sync(directory).is_ok();
                        synced.push((directory.ino, certain));
                        certain
                    }
                },
            };
            if !certain && let Some(journal) = self.journal.get() {
                journal.doubt();
            }
            let Some(inode) = inode else { continue };
            match remove_one(store, inode, self.journal.get().zip(*noted), certain) {
                Tried::Gone => {}
                Tried::Met => self.meet(inode, *noted),
                Tried::Left => all = false,
            }
        }
        all
    }
}

/// Removes the datafiles of one file, if its name is `certain` to be gone.
fn remove_one(store: &Store, inode: &Inode, noted: Option<(&Journal, Slot)>, certain: bool) -> Tried {
    if certain && let Some((journal, slot)) = noted {
        journal.certain(slot);
    }
    let why = match certain.then(|| store.collect(inode)) {
        Some(Ok(Collected::InUse)) if inode.is_nameless() => return Tried::Met,
        // In use: it never had a name, and has got one now.
        Some(Ok(Collected::Gone | Collected::InUse)) => {
            if let Some((journal, slot)) = noted {
                journal.clear(slot);
            }
            return Tried::Gone;
        }
        Some(Ok(Collected::Missing)) => "a server is missing".to_owned(),
        Some(Err(error)) => error.to_string(),
        None => "the directory that had their file cannot be synced".to_owned(),
    };
    let then = if noted.is_some() { "they are tried again" } else { "`stripewise fsck` removes them" };
    log::error(&format!("removing datafiles: {why}; {then}"));
    if let Some((journal, slot)) = noted {
        journal.leave(slot, inode, !certain);
    }
    Tried::Left
}

/// Makes the names in a directory durable. One that is gone itself has none.
fn sync(directory: &Node) -> Result<(), Errno> {
    use std::os::fd::AsFd;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(ProcName::new(directory.fd.as_fd()).path(), flags, Mode::empty())?;
    rustix::fs::fsync(&directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_tried_again_in_growing_intervals() {
        let now = Instant::now();
        let mut schedule = Schedule::begin(now);
        schedule.look_at = now + LOOK_EVERY;
        assert_eq!(schedule.rest(true, now), Duration::ZERO);
        assert_eq!(schedule.rest(false, now), LOOK_EVERY);
        schedule.retry_soon(now);
        let mut pauses = vec![schedule.rest(true, now)];
        for _ in 0..10 {
            schedule.retry_later(now);
            pauses.push(schedule.retry_at - now);
        }
        assert!(pauses.is_sorted());
        assert_eq!((pauses[0], pauses[1], pauses[10]), (FIRST_PAUSE, 2 * FIRST_PAUSE, LONGEST_PAUSE));
    }
}
