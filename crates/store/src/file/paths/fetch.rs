//! Stretches of a file that are read before a program asks for them.

use crate::os::budget::BudgetShare;
use crate::os::sync::{Condvar, Mutex, guard};
use crate::pool::epoch::CountedChanges;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

/// Fetches that have all bytes of a request.
pub(crate) type Covering = SmallVec<[Arc<Fetch>; 2]>;

/// What was fetched for one stream of requests.
#[derive(Debug, Default)]
pub(crate) struct FetchesAhead {
    /// In order of their offsets if the stream is sequential.
    pub(crate) list: VecDeque<Arc<Fetch>>,
    /// How much was fetched last, in bytes: it doubles up to the window.
    pub(crate) step_bytes: u64,
}

impl FetchesAhead {
    /// Lets go of all of them.
    pub(crate) fn let_go(&mut self) {
        self.list.clear();
        self.step_bytes = 0;
    }

    /// Lets go of all of them where one may be of other bytes than the file has now.
    pub(crate) fn let_go_of_older(&mut self, has_same_bytes: impl Fn(CountedChanges) -> bool) {
        if !self.list.iter().all(|fetch| has_same_bytes(fetch.counted)) {
            self.let_go();
        }
    }

    /// The fetches of `[offset, end)`; `None` where a byte has none.
    pub(crate) fn covering(&self, offset: u64, end: u64) -> Option<Covering> {
        covering(self.list.iter(), offset, end)
    }
}

/// Of `fetches` those of `[offset, end)`; `None` where a byte has none. O(fetches).
pub(crate) fn covering<'a>(
    fetches: impl Iterator<Item = &'a Arc<Fetch>> + Clone,
    offset: u64,
    end: u64,
) -> Option<Covering> {
    let (mut found, mut at) = (Covering::new(), offset);
    while at < end {
        let next = fetches.clone().find(|fetch| (fetch.offset..fetch.end()).contains(&at))?;
        at = next.end();
        found.push(next.clone());
    }
    Some(found)
}

/// One stretch, of which a thread makes a copy in memory.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// First byte in the file.
    pub(crate) offset: u64,
    len: usize,
    /// What was counted of the file at a moment before it was read at which the file had no writer.
    pub(crate) counted: CountedChanges,
    state: Mutex<FetchState>,
    changed: Condvar,
    _room: BudgetShare,
}

#[derive(Debug)]
enum FetchState {
    /// No thread has begun.
    Waiting,
    /// One is at it.
    Running,
    /// The bytes of the file from the first on; fewer than wanted where it ends.
    Here(Vec<u8>),
    /// They could not be read.
    Failed,
}

impl Fetch {
    /// Of `len` bytes, for which there is `room`.
    pub(crate) fn new(offset: u64, len: usize, counted: CountedChanges, room: BudgetShare) -> Self {
        Self { offset, len, counted, state: Mutex::new(FetchState::Waiting), changed: Condvar::new(), _room: room }
    }

    /// The byte behind it.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Bytes that were asked for.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it has come to the end of the file, or to an error.
    pub(crate) fn is_short(&self) -> bool {
        match &*guard(&self.state) {
            FetchState::Here(bytes) => bytes.len() < self.len,
            FetchState::Failed => true,
            FetchState::Waiting | FetchState::Running => false,
        }
    }

    /// Whether it has, or may get, all bytes before `end`.
    pub(crate) fn may_have(&self, end: u64) -> bool {
        match &*guard(&self.state) {
            FetchState::Here(bytes) => end <= self.offset + bytes.len() as u64,
            FetchState::Failed => false,
            FetchState::Waiting | FetchState::Running => end <= self.end(),
        }
    }

    /// Has `read` fill a buffer, if no thread has begun yet; it gives how many bytes it has read.
    pub(crate) fn run(&self, read: impl FnOnce(&mut [u8]) -> Option<usize>) {
        /// Whatever happens, those that wait go on.
        struct Unfinished<'a>(&'a Fetch, FetchState);
        impl Drop for Unfinished<'_> {
            fn drop(&mut self) {
                *guard(&self.0.state) = std::mem::replace(&mut self.1, FetchState::Failed);
                self.0.changed.notify_all();
            }
        }
        {
            let mut state = guard(&self.state);
            if !matches!(*state, FetchState::Waiting) {
                return;
            }
            *state = FetchState::Running;
        }
        let mut unfinished = Unfinished(self, FetchState::Failed);
        let mut bytes = vec![0; self.len];
        if let Some(count) = read(&mut bytes) {
            bytes.truncate(count);
            unfinished.1 = FetchState::Here(bytes);
        }
    }

    /// Waits until it is here, and copies its bytes that stand in the file at `range` to `into`; `false` where it does not
    /// have them all. The lock is held while they are copied.
    pub(crate) fn copy(&self, range: Range<u64>, into: &mut Scatter<'_, '_>) -> bool {
        let mut state = guard(&self.state);
        while matches!(*state, FetchState::Running) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let FetchState::Here(bytes) = &*state else { return false };
        let (from, to) = ((range.start - self.offset) as usize, (range.end - self.offset) as usize);
        bytes.get(from..to).is_some_and(|bytes| {
            into.put(bytes);
            true
        })
    }
}

/// Buffers that are filled one after the other.
pub(crate) struct Scatter<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    index: usize,
    filled: usize,
}

impl<'a, 'b> Scatter<'a, 'b> {
    pub(crate) fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { bufs, index: 0, filled: 0 }
    }

    /// Copies all of `bytes`, for which there must be room.
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = &mut self.bufs[self.index][self.filled..];
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.filled += count;
            if self.filled == self.bufs[self.index].len() {
                (self.index, self.filled) = (self.index + 1, 0);
            }
        }
    }
}
