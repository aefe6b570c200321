//! `writebehind`: small writes one behind the other are gathered, and go to the servers in whole stripes.
//!
//! What is gathered is kept with the inode, so that all opens of a file in this process see it: each request that is not one
//! more such write puts it on the servers before it is served, and so do questions for size, times and places. It is put there
//! when stripes are full, when the first of its bytes has waited for the delay, and before a sync or a close returns. Other
//! processes see it from then on.
//!
//! The file's times are those of the writes: the servers are told when the last one was, and who asks for size and times in this
//! process is told of what is gathered, too, and disturbs it not.
//!
//! Bytes that cannot be put there stay gathered, and the timer tries again. A request that would have to see them fails meanwhile.
//! They are given up by the next write, sync or end of an open, which fails; each open of the file in this process is told, by its
//! next sync, once, and by each close before that. Nothing of the file is kept back any more then: the next write fails by itself.
//!
//! A child that a process forks does not have what was gathered: the bytes are its parent's.

use crate::file::inode::Inode;
use crate::file::paths::gathered::{FirstWrite, GatheredPiece};
use crate::file::paths::open_terms::{KernelPages, OpenTerms};
use crate::file::paths::path::IoPath;
use crate::file::paths::record::{NotTaken, PathKind, PathState};
use crate::file::placed_file::PlacedFile;
use crate::file::requests::{Requests, stripe_end};
use crate::format::parser::WriteBehindHint;
use crate::format::placement::Datafiles;
use crate::os::error::Result;
use crate::os::sync::MutexGuard;
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};
use rustix::time::{ClockId, clock_gettime};
use smallvec::SmallVec;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use stripewise_control::{Action, Sender};
use stripewise_layout::{Layout, MAX_OFFSET};

/// Most bytes that a process keeps back, for all its open files.
const MOST_BYTES: u64 = 1 << 30;
/// When the timer looks again at a file that was being written.
const AGAIN: Duration = Duration::from_millis(50);

/// Datafiles, or the inode, with the times of their last change.
type TouchedTimes = SmallVec<[(u16, Timespec); 8]>;

/// The path of one open file, over another.
#[derive(Debug)]
pub(crate) struct WriteBehind<B> {
    below: B,
    inode: Arc<Inode>,
    hint: WriteBehindHint,
}

impl Inode {
    /// Puts on the servers what is gathered. One load where nothing is.
    ///
    /// # Errors
    /// Those of the servers; the bytes stay gathered then.
    pub fn put_gathered(&self) -> Result<()> {
        let Some(mut piece) = self.gathered_piece() else { return Ok(()) };
        let count = piece.bytes.len();
        self.put(&mut piece, count)
    }

    /// [`Inode::put_gathered`] for those who write, sync or end an open.
    ///
    /// # Errors
    /// Those of the servers; the bytes are lost then, and each open of the file is told of that by its next sync.
    pub(crate) fn put_gathered_or_give_up(&self) -> Result<()> {
        let Some(mut piece) = self.gathered_piece() else { return Ok(()) };
        let count = piece.bytes.len();
        self.put_or_give_up(&mut piece, count)
    }

    /// The file is to end at byte `size_bytes`: what is gathered behind that is not put on the servers any more. Whether there was
    /// any.
    pub(crate) fn cut_gathered(&self, size_bytes: u64) -> bool {
        let Some(mut piece) = self.gathered_piece() else { return false };
        let is_cut = piece.cut(size_bytes);
        self.gathered.note(&piece);
        is_cut
    }

    /// Gives the memory back that was gathered in. For the last writer, whose bytes are on the servers.
    pub(crate) fn rest_gathered(&self) {
        if self.gathered.was_own() {
            self.gathered.lock().rest();
        }
    }

    /// Where the file ends by what is gathered of it, in bytes, and when the last of that was written; `None`: nothing is.
    pub(crate) fn gathered_end(&self) -> Option<(u64, Timespec)> {
        let piece = self.gathered_piece()?;
        piece.changed.filter(|_| !piece.bytes.is_empty()).map(|changed| (piece.end(), changed))
    }

    /// The piece, where there may be one.
    fn gathered_piece(&self) -> Option<MutexGuard<'_, GatheredPiece>> {
        (self.gathered.has_bytes() && self.gathered.is_own()).then(|| self.gathered.lock())
    }

    /// Puts the first `count` bytes of the piece on the servers.
    fn put(&self, piece: &mut GatheredPiece, count: usize) -> Result<()> {
        let Some(first) = piece.first.filter(|_| count > 0) else { return Ok(()) };
        let bytes = piece.offset..piece.offset + count as u64;
        let (version, before) = self.times_of(bytes);
        let put = || self.gathered_by(first.sender).write_all_at(&piece.bytes[..count], piece.offset);
        put().or_else(|error| if self.store.make_room(&error) { put() } else { Err(error) })?;
        let changed = piece.changed;
        // First: whatever becomes of the times, these bytes are on the servers, and must not be put there again.
        piece.let_go_of(count);
        self.gathered.note(piece);
        if let Some(changed) = changed {
            self.set_times_of(version, &before, changed);
        }
        Ok(())
    }

    /// [`Inode::put`]; what cannot be put is lost with all that is behind it, and told of.
    fn put_or_give_up(&self, piece: &mut GatheredPiece, count: usize) -> Result<()> {
        self.put(piece, count).inspect_err(|error| {
            piece.cut(0);
            piece.has_failed = true;
            self.gathered.note(piece);
            self.note_lost(error.errno());
        })
    }

    /// When the datafiles, or the inode, that hold `bytes` of the file were changed last; of one that is not there yet never. And
    /// of which version of the file that is. One system call for each.
    fn times_of(&self, bytes: Range<u64>) -> (u32, TouchedTimes) {
        let Ok(file) = self.known_file() else { return Default::default() };
        let index_of = |region, slot| file.datafiles().index(region, slot);
        let touched = datafiles_of(&file.datafiles().placed, bytes, index_of).into_iter().map(|index| {
            let stat = match index {
                Datafiles::INODE => rustix::fs::fstat(self.descriptor()).ok(),
                index => {
                    file.striped().readable_datafile(index).ok().flatten().and_then(|fd| rustix::fs::fstat(fd).ok())
                }
            };
            let time = |stat: rustix::fs::Stat| Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
            (index, stat.map_or(Timespec { tv_sec: i64::MIN, tv_nsec: 0 }, time))
        });
        (file.placement().version, touched.collect())
    }

    /// The servers have taken bytes just now that were written at `changed`: that is the time that they are to have, where it was
    /// not a later one `before`. Kernels may give a time that is ahead of the clock of ticks; one that is ahead of the clock was set
    /// by a program, which a write ends. Where the time cannot be set, as by a user who is not the owner, they keep theirs. Another
    /// process that writes to the same place at the same moment may find its time put back by as much.
    fn set_times_of(&self, version: u32, before: &[(u16, Timespec)], changed: Timespec) {
        let Ok(file) = self.known_file() else { return };
        // Of the places before a move, which has given the new ones the file's time.
        if file.placement().version != version {
            return;
        }
        let now = clock_gettime(ClockId::Realtime);
        for &(index, before) in before {
            let is_later = (changed.tv_sec, changed.tv_nsec) < (before.tv_sec, before.tv_nsec);
            let has_been = (before.tv_sec, before.tv_nsec) <= (now.tv_sec, now.tv_nsec);
            let time = if is_later && has_been { before } else { changed };
            let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let times = Timestamps { last_access: omit, last_modification: time };
            let _ = match index {
                Datafiles::INODE => rustix::fs::futimens(self.descriptor(), &times),
                index => match file.striped().readable_datafile(index) {
                    Ok(Some(fd)) => rustix::fs::futimens(fd, &times),
                    _ => Ok(()),
                },
            };
        }
    }

    /// The time has come: puts what has waited for `delay`, and has the timer look again where something waits still.
    fn put_what_is_due(self: &Arc<Self>, delay: Duration) {
        let Some(mut piece) = self.gathered.try_lock() else {
            // It refuses only in a process that has not begun it, which this is not.
            let _ = look_again(self, Instant::now() + AGAIN.min(delay), delay);
            return;
        };
        let Some(first) = piece.first else {
            piece.is_timed = false;
            return;
        };
        let due = first.at + delay;
        if due > Instant::now() {
            piece.is_timed = look_again(self, due, delay);
            return;
        }
        drop(piece);
        let inode = self.clone();
        if !self.store.threads.try_do(move || inode.put_in_time(delay)) {
            self.put_in_time(delay);
        }
    }

    /// Puts on the servers what is gathered; what they do not take waits for another `delay`.
    fn put_in_time(self: &Arc<Self>, delay: Duration) {
        let mut piece = self.gathered.lock();
        let count = piece.bytes.len();
        let done = self.put(&mut piece, count);
        let now = Instant::now();
        if let (Err(_), Some(first)) = (&done, &mut piece.first) {
            first.at = now;
        }
        piece.is_timed = done.is_err() && look_again(self, now + delay, delay);
    }
}

/// Which datafiles, by `index_of` a region and a slot of it, hold `bytes` of a file. O(stripes of one round of each region).
fn datafiles_of(layout: &Layout, bytes: Range<u64>, index_of: impl Fn(usize, usize) -> u16) -> SmallVec<[u16; 8]> {
    let mut found = SmallVec::new();
    let mut at = bytes.start;
    while at < bytes.end {
        let region = layout.region_at(at);
        let row = &layout.regions()[region];
        let round_end = at.saturating_add(row.round_bytes()).min(bytes.end).min(layout.region_end(region));
        while at < round_end {
            let index = index_of(region, row.slot_at(at));
            if !found.contains(&index) {
                found.push(index);
            }
            at = stripe_end(layout, at);
        }
        // Those of another round are the same.
        at = at.max(layout.region_end(region).min(bytes.end));
    }
    found
}

/// Has the timer look at `inode` at `when`, if it is open then.
fn look_again(inode: &Arc<Inode>, when: Instant, delay: Duration) -> bool {
    let weak: Weak<Inode> = Arc::downgrade(inode);
    inode.store.timer.try_at(when, move || {
        if let Some(inode) = weak.upgrade() {
            inode.put_what_is_due(delay);
        }
    })
}

/// Byte up to which is gathered what begins at `offset`: the end of a round of the layout, after no more than `size_bytes` where
/// one ends before; never beyond the region.
fn whole_stripes(layout: &Layout, offset: u64, size_bytes: u64) -> u64 {
    let region = layout.region_at(offset);
    let end = offset.saturating_add(size_bytes);
    let round = layout.regions()[region].round_bytes();
    let of_round = end - end % round;
    let until = if of_round > offset { of_round } else { end };
    until.min(layout.region_end(region)).min(MAX_OFFSET)
}

impl<B: IoPath> WriteBehind<B> {
    /// The path over `below` of one open of `inode`.
    pub(crate) fn over(below: B, inode: Arc<Inode>, hint: WriteBehindHint) -> Self {
        Self { below, inode, hint }
    }

    /// Its part of the decision for an open of a file that asks for it: whether it is on the way, and what is to be said of that. One
    /// load for each datafile until one is found.
    pub(crate) fn decide(
        inode: &Inode,
        file: &PlacedFile,
        hint: WriteBehindHint,
        terms: &OpenTerms,
    ) -> (bool, PathState) {
        let not = PathState::Not;
        let in_use = || !inode.store.gathered.has(2 * hint.size_bytes, MOST_BYTES);
        match terms.pages {
            _ if !terms.writes => (false, not(NotTaken::ForReading)),
            KernelPages::ServesItself => (true, not(NotTaken::KernelServes)),
            KernelPages::WritesBack => (true, not(NotTaken::WritesBack)),
            _ if terms.at_once => (true, not(NotTaken::AtOnce)),
            _ if terms.appends => (true, not(NotTaken::Appends)),
            _ if file.placement().layout.head_in_inode_bytes() > 0 && !file.striped().has_datafile() => {
                (true, not(NotTaken::InInode))
            }
            _ if in_use() => (true, not(NotTaken::Memory)),
            _ => (true, PathState::Taken),
        }
    }

    /// Where the piece that begins at `offset` ends.
    fn until(&self, offset: u64) -> Option<u64> {
        let file = self.inode.known_file().ok()?;
        let until = whole_stripes(&file.placement().layout, offset, self.hint.size_bytes);
        (until > offset).then_some(until)
    }

    /// Begins a new piece, and notes why none can be kept back where that is so: `None`.
    fn begin(&self, piece: &mut GatheredPiece, sender: Sender, offset: u64) -> Option<()> {
        let begun = self.try_begin(piece, sender, offset);
        self.note(begun.map_or_else(PathState::Not, |()| PathState::Taken));
        begun.ok()
    }

    /// What has become of this path.
    fn note(&self, state: PathState) {
        self.inode.note_path(true, PathKind::WriteBehind, state);
    }

    fn try_begin(&self, piece: &mut GatheredPiece, sender: Sender, offset: u64) -> Result<(), NotTaken> {
        if piece.has_failed {
            return Err(NotTaken::GivenUp);
        }
        // What is known of the file's places says why not.
        piece.until = self.until(offset).ok_or(NotTaken::Unhinted)?;
        piece.offset = offset;
        if piece.room.is_none() {
            // A write that reaches past the end of a piece is as long again at most.
            let room = self.inode.store.gathered.take(2 * self.hint.size_bytes, MOST_BYTES);
            piece.room = Some(room.ok_or(NotTaken::Memory)?);
        }
        self.note_first(piece, sender).ok_or(NotTaken::Thread)
    }

    /// Notes that the first byte of the piece was written now. `None`: there is no timer.
    fn note_first(&self, piece: &mut GatheredPiece, sender: Sender) -> Option<()> {
        let at = Instant::now();
        if !piece.is_timed {
            piece.is_timed = look_again(&self.inode, at + self.hint.delay, self.hint.delay);
        }
        piece.first = piece.is_timed.then_some(FirstWrite { sender, at });
        piece.first.map(drop)
    }

    /// Takes the bytes, or says that they have to go to the servers now.
    ///
    /// # Errors
    /// What was gathered before, or these bytes, could not be put on the servers, and are given up.
    fn gather(&self, sender: Sender, bufs: &[IoSlice<'_>], offset: u64) -> Result<bool> {
        if !self.inode.gathered.is_own() {
            self.note(PathState::Not(NotTaken::Child));
            return Ok(false);
        }
        let mut piece = self.inode.gathered.lock();
        if piece.bytes.is_empty() || piece.end() != offset {
            let count = piece.bytes.len();
            self.inode.put_or_give_up(&mut piece, count)?;
            if self.begin(&mut piece, sender, offset).is_none() {
                return Ok(false);
            }
        }
        piece.push(bufs);
        while piece.end() >= piece.until {
            let count = (piece.until - piece.offset) as usize;
            self.inode.put_or_give_up(&mut piece, count)?;
            let goes_on = (!piece.bytes.is_empty()).then(|| self.until(piece.offset)).flatten();
            match goes_on {
                Some(until) if self.note_first(&mut piece, sender).is_some() => piece.until = until,
                _ => {
                    let rest = piece.bytes.len();
                    self.inode.put_or_give_up(&mut piece, rest)?;
                    break;
                }
            }
        }
        self.inode.gathered.note(&piece);
        Ok(true)
    }
}

impl<B: IoPath> IoPath for WriteBehind<B> {
    /// What is gathered is on the servers before: see [`Requests`].
    fn read(&self, requests: Requests<'_>, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.below.read(requests, bufs, offset)
    }

    /// Costs a lock and a copy where it is gathered.
    fn write(&self, requests: Requests<'_>, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        let len = bufs.iter().fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        if len == 0 || len >= self.hint.size_bytes || offset > MAX_OFFSET - len {
            return self.below.write(requests, bufs, offset);
        }
        let requests = requests.admit(Action::Write, offset, len);
        match self.gather(requests.sender(), bufs, offset)? {
            true => Ok(len as usize),
            false => self.below.write(requests, bufs, offset),
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use stripewise_layout::{ServerId, Stripe};

    /// The inode up to 64 KiB, two servers up to 1 MiB, one behind that.
    fn layout() -> Layout {
        let stripe = |server, kib: u64| Stripe { server, width_bytes: kib << 10 };
        let (first, second) = (ServerId(0), ServerId(1));
        let regions = [
            (0, vec![stripe(ServerId::META, 64)]),
            (64 << 10, vec![stripe(first, 48), stripe(second, 16)]),
            (1 << 20, vec![stripe(first, 1024)]),
        ];
        Layout::new(regions).unwrap()
    }

    #[test]
    fn the_datafiles_of_a_piece_are_those_that_hold_its_bytes() {
        let layout = layout();
        let of = |from: u64, to: u64| -> Vec<u16> {
            let found = datafiles_of(&layout, from << 10..to << 10, |region, slot| (10 * region + slot) as u16);
            found.to_vec()
        };
        assert_eq!((of(0, 64), of(60, 65), of(64, 112)), (vec![0], vec![0, 10], vec![10]));
        assert_eq!((of(112, 128), of(100, 900), of(120, 130)), (vec![11], vec![10, 11], vec![11, 10]));
        assert_eq!((of(1000, 1030), of(0, 5000), of(70, 70)), (vec![10, 11, 20], vec![0, 10, 11, 20], vec![]));
    }

    #[test]
    fn pieces_end_with_the_stripes() {
        let layout = layout();
        let kib = |offset: u64, size: u64| whole_stripes(&layout, offset << 10, size << 10) >> 10;
        assert_eq!(kib(0, 200), 64, "never beyond the region");
        assert_eq!(kib(64, 200), 256, "a round of 64 KiB, of the beginning of the file");
        assert_eq!(kib(70, 64), 128);
        assert_eq!(kib(64, 64), 128);
        assert_eq!(kib(1000, 200), 1024);
        assert_eq!(kib(1024, 64), 1088, "shorter than a round");
        assert_eq!(whole_stripes(&layout, MAX_OFFSET - 5, 1 << 20), MAX_OFFSET);
    }
}
