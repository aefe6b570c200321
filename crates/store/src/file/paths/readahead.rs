//! `readahead`: what a program reads next is fetched from the servers before it asks.
//!
//! What is fetched is a copy, and no request must see an old one. So a stretch is fetched only while no process is registered
//! as a writer of the file, which a move of a file without writers is not, and it counts only as long as the counter of changes of the
//! file's bytes has the value that it had before that was found out: a writer of a file with this optimisation counts it up once it is
//! registered, before it changes a byte, and so do changes of size, but not moves. The head that an inode keeps has writers that
//! register elsewhere: it is never fetched. The end of the file is never told from a copy either.
//!
//! What an open does not read one piece after the other, all opens of the file in this process may: each of the programs of a job
//! some pieces, in about the order of the file. For these it is fetched once ([`crate::file::paths::together`]). Where they read small
//! pieces in no order, but many of them near to each other, blocks are fetched for all ([`crate::file::paths::dense`]).
//!
//! Only opens for reading have this path. Not in a pool of several users, whose counters do not tell of all writers.

use crate::file::inode::Inode;
use crate::file::paths::dense::{Dense, MOST_BLOCK_BYTES};
use crate::file::paths::fetch::{Covering, Fetch, FetchesAhead, Scatter, covering};
use crate::file::paths::open_terms::{KernelPages, OpenTerms};
use crate::file::paths::path::IoPath;
use crate::file::paths::pattern::{ReadFront, ReadHistory, ReadPattern};
use crate::file::paths::record::{NotTaken, PathKind, PathState};
use crate::file::paths::together::StreamTogether;
use crate::file::paths::windows::WindowBounds;
use crate::file::placed_file::PlacedFile;
use crate::file::requests::Requests;
use crate::format::parser::ReadAheadHint;
use crate::os::error::Result;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::{Mutex, guard};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use stripewise_control::{Action, Sender};
use stripewise_layout::MAX_OFFSET;

/// Most bytes that a process keeps of what it has fetched, for all its open files.
const MOST_BYTES: u64 = 1 << 30;
/// Requests for which nothing is fetched after a file was found to have a writer, or there was no room or thread.
const PAUSE: u32 = 32;
/// Windows behind those ahead that are kept for readers which have drifted apart.
const WINDOWS_KEPT: u64 = 4;
/// Bytes that are kept for them at least where they are read in order.
const DRIFT_BYTES: u64 = 64 << 20;
/// Most stretches of a strided reader that are fetched at once.
const MOST_STRIDES: u64 = 16;
/// Unknown requests in a row after which what was fetched is let go of.
const MOST_MISSES: u32 = 4;

/// The path of one open file, over another.
#[derive(Debug)]
pub(crate) struct ReadAhead<B> {
    below: B,
    inode: Arc<Inode>,
    hint: ReadAheadHint,
    /// The process that has opened the file. In a child that it forks, locks may be held by threads that are not there.
    process: u32,
    /// Whether it is recorded that a request of it was served from what was fetched.
    has_served: AtomicBool,
    stream: Mutex<ReadStream>,
}

/// What is known of the requests, and what was fetched.
#[derive(Debug, Default)]
struct ReadStream {
    history: ReadHistory,
    /// The last one that was known.
    pattern: Option<ReadPattern>,
    fetches: FetchesAhead,
    misses: u32,
    pause: u32,
}

impl<B: IoPath + Clone + 'static> ReadAhead<B> {
    /// The path over `below` of one open of `inode`.
    pub(crate) fn over(below: B, inode: Arc<Inode>, hint: ReadAheadHint) -> Self {
        let (process, has_served) = (std::process::id(), AtomicBool::new(false));
        Self { below, inode, hint, process, has_served, stream: Mutex::default() }
    }

    /// Its part of the decision for an open of a file that asks for it: whether it is on the way, and what is to be said of that. One
    /// load for each datafile until one is found. Where there is no memory now, or no byte on the servers, there may be later. Whether
    /// the file has a writer is found out by each fetch, so that the path is said to be taken from the first one on.
    pub(crate) fn decide(
        inode: &Inode,
        file: &PlacedFile,
        hint: ReadAheadHint,
        terms: &OpenTerms,
    ) -> (bool, PathState) {
        let not = PathState::Not;
        match terms.pages {
            _ if terms.writes => (false, not(NotTaken::ForWriting)),
            _ if inode.store.plane().is_shared() => (false, not(NotTaken::SharedPool)),
            KernelPages::ServesItself => (true, not(NotTaken::KernelServes)),
            _ if file.whole_inode().is_some() => (true, not(NotTaken::InInode)),
            _ if !file.striped().has_datafile() => (true, not(NotTaken::NoDatafile)),
            _ if !inode.store.fetched.has(hint.window_bytes, MOST_BYTES) => (true, not(NotTaken::Memory)),
            _ => (true, not(NotTaken::NotYet)),
        }
    }

    /// Notes a request, fetches what comes behind it, and gives the fetches that have all of its bytes.
    fn plan(&self, sender: Sender, offset: u64, len: u64) -> Option<Covering> {
        let mut stream = guard(&self.stream);
        let pattern = stream.history.note(offset, len);
        stream.fetches.let_go_of_older(|counted| self.inode.has_same_bytes(counted));
        if let Some(planned) = self.plan_together(sender, (offset, len), pattern == ReadPattern::Sequential) {
            stream.fetches.let_go();
            return planned;
        }
        if pattern != ReadPattern::Unknown {
            stream.misses = 0;
            if stream.pattern.replace(pattern) != Some(pattern) {
                stream.fetches.let_go();
            }
            if stream.pause > 0 {
                stream.pause -= 1;
            } else if self.fetch_next(&mut stream.fetches, pattern, sender, (offset, len)).is_none() {
                stream.pause = PAUSE;
            }
        }
        let mut covering = stream.fetches.covering(offset, offset + len);
        if covering.is_none() && pattern == ReadPattern::Unknown {
            covering = self.plan_dense(sender, (offset, len));
        }
        if covering.is_none() && pattern == ReadPattern::Unknown {
            stream.misses += 1;
            if stream.misses >= MOST_MISSES {
                stream.fetches.let_go();
            }
        }
        covering
    }

    /// As [`ReadAhead::plan`] for what all opens of the file read together. `None`: the request is no piece of such a stream. One that
    /// this open reads in sequence is a piece of a stream that is known already, of which it has two in a row by chance, or of none.
    fn plan_together(
        &self,
        sender: Sender,
        (offset, len): (u64, u64),
        is_in_sequence: bool,
    ) -> Option<Option<Covering>> {
        let mut streams = self.inode.together.lock()?;
        if is_in_sequence && !streams.goes_on_with(offset, len) {
            return None;
        }
        let pause = streams.pause;
        let stream = streams.note(offset, len);
        stream.windows.let_go_of_old(|fetch| !self.inode.has_same_bytes(fetch.counted));
        if !stream.windows.has_begun() {
            stream.front.last()?;
        }
        let next_pause = if pause > 0 {
            pause - 1
        } else if self.fetch_windows(stream, sender, (offset, len)).is_some() {
            0
        } else {
            if stream.windows.held().next().is_none() {
                stream.windows.let_go();
            }
            PAUSE
        };
        let covering = covering(stream.windows.held(), offset, offset + len);
        streams.pause = next_pause;
        Some(covering)
    }

    /// As [`ReadAhead::plan`] for a request that is in no order: the block that it is in, where that is kept for all opens of the file or is
    /// worth a fetch. O(blocks that are kept).
    fn plan_dense(&self, sender: Sender, (offset, len): (u64, u64)) -> Option<Covering> {
        let mut streams = self.inode.together.lock()?;
        let dense = &mut streams.dense;
        dense.let_go_of_old(|fetch| !self.inode.has_same_bytes(fetch.counted));
        let file = self.inode.known_file().ok()?;
        let layout = &file.placement().layout;
        let block_bytes = self.hint.window_bytes.min(MOST_BLOCK_BYTES);
        // No byte of the head is fetched.
        if !file.striped().has_datafile() || offset - offset % block_bytes < layout.head_in_inode_bytes() {
            return None;
        }
        let price_us = |offset, len| self.inode.store.read_us(layout, offset, len);
        let fetch = match dense.note((offset, len), block_bytes, price_us) {
            Dense::Here(fetch) => fetch,
            Dense::Fetch(begin, len) => {
                let fetch = self.fetch(sender, begin, len.min(MAX_OFFSET - begin))?;
                dense.put(fetch.clone());
                fetch
            }
            Dense::No => return None,
        };
        // The last block of a file ends where the file does.
        fetch.may_have(offset + len).then(|| Covering::from_iter([fetch]))
    }

    /// Of a stream that several opens read: fetches windows until there are `depth` ahead of the request, as far as the others leave room
    /// for them. `None`: it cannot now.
    fn fetch_windows(&self, stream: &mut StreamTogether, sender: Sender, (offset, len): (u64, u64)) -> Option<()> {
        let bounds = WindowBounds {
            window_bytes: self.hint.window_bytes,
            depth: u64::from(self.hint.depth),
            kept: WINDOWS_KEPT,
            drift_bytes: DRIFT_BYTES,
        };
        let head_bytes = self.head_bytes()?;
        let had_begun = stream.windows.has_begun();
        let from = stream.front.last().map_or(offset, |(last, _)| last) + len;
        while let Some(range) = stream.windows.again(offset, bounds.depth) {
            let fetch = self.fetch(sender, range.start, range.end - range.start)?;
            stream.windows.put_again(&range, fetch);
        }
        while !stream.windows.last().is_some_and(|last| last.is_short()) {
            let next = stream.windows.next(offset, from.max(head_bytes), ReadFront::FIRST * len, bounds);
            let Some(range) = next.map(|range| range.start..range.end.min(MAX_OFFSET)) else { break };
            if range.is_empty() {
                break;
            }
            stream.windows.push(range.clone(), || self.fetch(sender, range.start, range.end - range.start))?;
        }
        if had_begun && !stream.windows.has_begun() {
            stream.front = ReadFront::of(offset, len);
        }
        Some(())
    }

    /// Fetches what comes behind a request, as far as that can be told. `None`: it cannot now.
    fn fetch_next(
        &self,
        fetches: &mut FetchesAhead,
        pattern: ReadPattern,
        sender: Sender,
        request: (u64, u64),
    ) -> Option<()> {
        match pattern {
            ReadPattern::Unknown => Some(()),
            ReadPattern::Sequential => self.fetch_behind(fetches, sender, request),
            ReadPattern::Strided(distance) => self.fetch_strides(fetches, sender, request, distance),
        }
    }

    /// Of a sequential stream: fetches windows behind the request until there are `depth` ahead of it, and lets go of those before it.
    /// `None`: it cannot now.
    fn fetch_behind(&self, fetches: &mut FetchesAhead, sender: Sender, (offset, len): (u64, u64)) -> Option<()> {
        while fetches.list.front().is_some_and(|fetch| fetch.end() <= offset) {
            fetches.list.pop_front();
        }
        let next = (offset + len).max(self.head_bytes()?);
        if !fetches.list.iter().any(|fetch| fetch.offset <= next && next <= fetch.end()) {
            fetches.let_go();
        }
        let ahead = |fetches: &FetchesAhead| fetches.list.iter().filter(|fetch| fetch.offset > offset).count();
        while ahead(fetches) < self.hint.depth as usize && !fetches.list.back().is_some_and(|last| last.is_short()) {
            let from = fetches.list.back().map_or(next, |last| last.end());
            fetches.step_bytes = (2 * fetches.step_bytes.max(len)).min(self.hint.window_bytes);
            let step_bytes = fetches.step_bytes.min(MAX_OFFSET.saturating_sub(from));
            if step_bytes == 0 {
                break;
            }
            fetches.list.push_back(self.fetch(sender, from, step_bytes)?);
        }
        Some(())
    }

    /// Of a strided reader: fetches the next requests as it will make them. `None`: it cannot now.
    fn fetch_strides(
        &self,
        fetches: &mut FetchesAhead,
        sender: Sender,
        (offset, len): (u64, u64),
        distance: i64,
    ) -> Option<()> {
        let head_bytes = self.head_bytes()?;
        fetches.step_bytes = (2 * fetches.step_bytes.max(len)).min(self.hint.window_bytes);
        let count = (fetches.step_bytes / len).clamp(1, MOST_STRIDES);
        let place = |number: u64| offset.checked_add_signed(distance.checked_mul(number as i64)?);
        let places = || (0..=count).filter_map(place);
        fetches.list.retain(|fetch| places().any(|at| at == fetch.offset) && fetch.len() as u64 == len);
        for at in places().skip(1) {
            let is_known = fetches.list.iter().any(|fetch| fetch.offset == at);
            if at >= head_bytes && at <= MAX_OFFSET - len && !is_known {
                fetches.list.push_back(self.fetch(sender, at, len)?);
            }
        }
        Some(())
    }

    /// Bytes at the beginning that are not fetched; `None`: nothing is, as no server has bytes of the file. No system call
    /// where its places are known.
    fn head_bytes(&self) -> Option<u64> {
        let file = self.inode.known_file().ok()?;
        file.striped().has_datafile().then(|| file.placement().layout.head_in_inode_bytes())
    }

    /// Has a thread fetch `[offset, offset + len)`, and notes why it cannot where it cannot: `None`. One system call, or four while the
    /// file is moved.
    fn fetch(&self, sender: Sender, offset: u64, len: u64) -> Option<Arc<Fetch>> {
        let fetch = self.try_fetch(sender, offset, len);
        let state = fetch.as_ref().map_or_else(|reason| PathState::Not(*reason), |_| PathState::Taken);
        self.inode.note_path(false, PathKind::ReadAhead, state);
        fetch.ok()
    }

    /// As [`ReadAhead::fetch`].
    ///
    /// # Errors
    /// The file has a writer, or there is no room or thread for it.
    fn try_fetch(&self, sender: Sender, offset: u64, len: u64) -> Result<Arc<Fetch>, NotTaken> {
        let counted = self.inode.counted_with_still_bytes().ok().flatten().ok_or(NotTaken::Writer)?;
        // In this order: where the handle loses the hint later, the changes of its bytes are counted up once more, and where it had lost
        // it before, a writer may count none.
        let is_hinted = self.inode.known_file().is_ok_and(|file| file.read_ahead().is_some());
        let room =
            if is_hinted { self.inode.store.fetched.take(len, MOST_BYTES) } else { return Err(NotTaken::Unhinted) };
        let room = room.ok_or(NotTaken::Memory)?;
        let fetch = Arc::new(Fetch::new(offset, len as usize, counted, room));
        let (weak, below, inode) = (Arc::downgrade(&fetch), self.below.clone(), self.inode.clone());
        let work = move || {
            // The reader has gone on without it.
            let Some(fetch) = weak.upgrade() else { return };
            fetch.run(|bytes| read_ahead(&below, &inode, sender, bytes, fetch.offset));
        };
        if self.inode.store.threads.try_do(work) { Ok(fetch) } else { Err(NotTaken::Thread) }
    }

    /// Records that what was fetched has served this open, also where it was fetched for another one. One load but the first time.
    fn note_served(&self) {
        if !self.has_served.load(Ordering::Relaxed) {
            self.has_served.store(true, Ordering::Relaxed);
            self.inode.note_path(false, PathKind::ReadAhead, PathState::Taken);
        }
    }

    /// Lets go of what was fetched, for this open and for all.
    fn let_go(&self) {
        guard(&self.stream).fetches.let_go();
        if let Some(mut streams) = self.inode.together.lock() {
            streams.let_go();
        }
    }

    /// Copies the bytes of a request from what was fetched; `false`: they are not all there, or the file has changed.
    fn copy(&self, covering: &Covering, sender: Sender, bufs: &mut [IoSliceMut<'_>], offset: u64, end: u64) -> bool {
        let (mut into, mut at) = (Scatter::new(bufs), offset);
        for fetch in covering {
            // Where the threads are busy, the reader does it itself.
            fetch.run(|bytes| read_ahead(&self.below, &self.inode, sender, bytes, fetch.offset));
            let to = fetch.end().min(end);
            if !fetch.copy(at..to, &mut into) {
                return false;
            }
            at = to;
        }
        // A write that has returned before this request came is seen here, as its writer has counted up the epoch.
        self.is_of_now(covering)
    }

    /// Whether the file has been moved at most since before the fetches. One load each.
    fn is_of_now(&self, covering: &Covering) -> bool {
        covering.iter().all(|fetch| self.inode.has_same_bytes(fetch.counted))
    }
}

/// Reads as much of `bytes` as there is; the gate has let the request pass that it is for.
fn read_ahead(below: &impl IoPath, inode: &Inode, sender: Sender, bytes: &mut [u8], offset: u64) -> Option<usize> {
    below.read(inode.admitted(sender), &mut [IoSliceMut::new(bytes)], offset).ok()
}

impl<B: IoPath + Clone + 'static> IoPath for ReadAhead<B> {
    /// Costs a lock and some comparisons where nothing can be told, and a copy where it was fetched.
    fn read(&self, requests: Requests<'_>, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let len = bufs.iter().fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        let is_fetched = len > 0 && len < self.hint.window_bytes && offset <= MAX_OFFSET - len;
        if !is_fetched || self.process != std::process::id() {
            return self.below.read(requests, bufs, offset);
        }
        let requests = requests.admit(Action::Read, offset, len);
        if let Some(covering) = self.plan(requests.sender(), offset, len) {
            if self.copy(&covering, requests.sender(), bufs, offset, offset + len) {
                self.note_served();
                return Ok(len as usize);
            }
            // What has become old is fetched again by the next request.
            if self.is_of_now(&covering) {
                self.let_go();
            }
        }
        let count = self.below.read(requests, bufs, offset)?;
        if (count as u64) < len {
            let mut stream = guard(&self.stream);
            stream.history.has_ended();
            stream.fetches.let_go();
        }
        Ok(count)
    }

    fn write(&self, requests: Requests<'_>, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        self.below.write(requests, bufs, offset)
    }
}
