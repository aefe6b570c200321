//! Reading and writing one placed file, straight on its datafiles.

use crate::backend::emulate::{DiskRequest, Op, QueueTicket, datafile_key, now_ns, sleep_until};
use crate::backend::plane::{DataPlane, OpenServer};
use crate::file::engine::{self, Buffer, Buffers, Direction, Task, Tasks};
use crate::file::open_memory::Share;
use crate::file::paths::class::Class;
use crate::file::paths::direct::Direct;
use crate::file::paths::inline::Inline;
use crate::file::paths::place::PlacePath;
use crate::file::paths::striped::Striped;
use crate::format::handle::Optimisations;
use crate::format::parser::{AskedPaths, CachedHint, ReadAheadHint, WriteBehindHint};
use crate::format::placement::{Datafiles, Placement};
use crate::format::surplus::{DatafileWrite, Parts, Surplus};
use crate::os::error::{Error, Result};
use crate::os::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::fence;
use stripewise_control::{Door, FileId, Request, Served};
use stripewise_layout::{MAX_OFFSET, Region, ServerId, SubRequest, SubRequests};

/// What a read or a write came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferOutcome {
    /// That many bytes were read or written; fewer than asked for at the end of the file, or as POSIX allows.
    Done(usize),
    /// The file's placement changed: fetch it again, [`PlacedFile::refresh`] or replace the `PlacedFile`, and retry.
    Stale,
    /// A write needs datafiles that do not exist yet (indexes in the placement's table): have them made
    /// (`Inode::ensure_datafiles`, or the mount's ioctl), then go on as for `Stale`.
    Absent(SmallVec<[u16; 16]>),
    /// Of a write: that many bytes, at least one, were written; servers may have taken some of what lies behind the first one
    /// that was not. `Inode::cut_back`, or the mount's ioctl, cuts that off where it made the file longer.
    Partly(usize, Box<Surplus>),
}

/// Called for a datafile, by its index in the table, and a position in it that it does not reach though the file goes on: an
/// error where what is missing is no hole, as bytes were lost; [`Error::Elsewhere`] where that is not known.
pub type Hole<'a> = dyn FnMut(u16, u64) -> Result<()> + 'a;

/// Whether a file is being moved beside its writers ([`crate::file::beside`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MoveBeside {
    /// It is not.
    No,
    /// Its writers mark what they write.
    Copies,
    /// Its writers wait.
    Switches,
}

/// Places that were filled with zeros: datafile, position in it, offset in the file.
type Zeroed = SmallVec<[(u16, u64, u64); 4]>;

/// What a request leaves behind besides its bytes.
struct Notes<'a> {
    /// Who asked for what.
    request: &'a Request,
    /// Of a write: what it did in each datafile.
    parts: Parts,
    /// Of a read's second look: what was filled with zeros.
    zeroed: Zeroed,
}

impl<'a> Notes<'a> {
    fn of(request: &'a Request) -> Self {
        Self { request, parts: Parts::default(), zeroed: Zeroed::default() }
    }
}

/// One placed file, as far as its bytes go. Shared by all threads; it survives `fork`.
#[derive(Debug)]
pub struct PlacedFile {
    /// Where its bytes are: in the inode, and below that on the servers.
    places: Inline<Striped>,
    placement: Placement,
    /// Value of the file's epoch counter that `placement` and `places` are of.
    epoch: AtomicU32,
    /// Checksum of the handle that `placement` and `places` are of, if that is known.
    handle_sum: AtomicU32,
    /// A [`MoveBeside`], as it was when the counter had the value `epoch`.
    moves: AtomicU8,
    /// What the file counts for in a store of files of several users.
    share: Option<Share>,
    /// What its handle asks for.
    asked: AskedPaths,
    direct: Direct,
    class: Class,
    unknown_promise: Option<u32>,
}

impl PlacedFile {
    /// Prepares to serve `placement`. `inode` is the namespace inode for regions of the metadata tier; the preload has
    /// none and gets [`Error::Elsewhere`] for requests that touch them. Opens nothing yet. Fails when the layout names a
    /// server that the pool does not have.
    pub fn new(plane: Arc<DataPlane>, placement: Placement, inode: Option<Arc<OwnedFd>>) -> Result<Self> {
        let places = Inline::over(Striped::of(plane, &placement)?, inode);
        let epoch = AtomicU32::new(placement.epoch);
        Ok(Self {
            places,
            placement,
            epoch,
            handle_sum: AtomicU32::new(0),
            moves: AtomicU8::new(MoveBeside::No as u8),
            share: None,
            asked: AskedPaths::default(),
            direct: Direct::NEVER,
            class: Class::NONE,
            unknown_promise: None,
        })
    }

    /// The placement as it was when this was built ([`PlacedFile::refresh`] does not change it).
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Takes over a newer placement of the same handle and version (datafiles that came to exist), keeping what is
    /// open. `false` when the version or the right to bypass differs: build a new `PlacedFile` then.
    pub fn refresh(&self, newer: &Placement) -> bool {
        self.refresh_beside(newer, self.move_beside())
    }

    /// [`PlacedFile::refresh`] with whether the file is being moved beside its writers. Of another version nothing is taken over: a write
    /// to the places known here is still marked.
    pub(crate) fn refresh_beside(&self, newer: &Placement, moves: MoveBeside) -> bool {
        let key = |of: &Placement| (of.handle, of.version, of.owner, of.identity, of.bypass);
        let old = &self.placement;
        if key(old) != key(newer) {
            return false;
        }
        self.striped().know(&newer.present);
        self.set_move_beside(moves);
        self.epoch.store(newer.epoch, Ordering::Release);
        true
    }

    /// Whether all bytes are in one datafile, and nothing in the inode: those before an offset in the file are those before it in the
    /// datafile. O(regions).
    pub(crate) fn is_one_datafile(&self) -> bool {
        let is_meta = |region: &Region| region.stripes()[0].server == ServerId::META;
        self.datafiles().table.len() == 1 && !self.placement.layout.regions().iter().any(is_meta)
    }

    /// Whether it is being moved beside its writers, as far as this process knows. One load.
    #[inline]
    pub(crate) fn move_beside(&self) -> MoveBeside {
        match self.moves.load(Ordering::Acquire) {
            0 => MoveBeside::No,
            1 => MoveBeside::Copies,
            _ => MoveBeside::Switches,
        }
    }

    /// For who reads the placement again: before the epoch that it is of is set.
    pub(crate) fn set_move_beside(&self, moves: MoveBeside) {
        self.moves.store(moves as u8, Ordering::Release);
    }

    /// Checksum of the handle behind the placement.
    pub(crate) fn handle_sum(&self) -> Option<u32> {
        Some(self.handle_sum.load(Ordering::Acquire))
    }

    /// Keeps the file's share of its owner's memory as long as the file.
    pub(crate) fn keep_share(&mut self, share: Share) {
        self.share = Some(share);
    }

    /// The paths that its handle asks for.
    pub(crate) fn set_paths(&mut self, hinted: &Optimisations) {
        self.asked = AskedPaths::parse(hinted);
        self.direct = Direct::of(self.asked.direct_least_bytes);
        self.class = Class::of(self.asked.rank);
        self.unknown_promise = hinted.unknown_promise();
    }

    /// An optimisation of its handle which promises something of its bytes, and which this release does not know.
    pub(crate) fn unknown_promise(&self) -> Option<u32> {
        self.unknown_promise
    }

    /// What its handle asks for.
    pub(crate) fn asked(&self) -> &AskedPaths {
        &self.asked
    }

    /// How its readers are to be served ahead, where its handle says so.
    pub(crate) fn read_ahead(&self) -> Option<ReadAheadHint> {
        self.asked.read_ahead
    }

    /// How much of what its writers write is to be gathered, where its handle says so.
    pub(crate) fn write_behind(&self) -> Option<WriteBehindHint> {
        self.asked.write_behind
    }

    /// Whether kernels are to keep its pages, where its handle says so.
    pub(crate) fn cached(&self) -> Option<CachedHint> {
        self.asked.cached
    }

    /// Which of its requests leave nothing in the page caches of its servers.
    pub(crate) fn direct(&self) -> Direct {
        self.direct
    }

    /// Whose requests come before its own.
    #[inline]
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Of each server that it has datafiles on whether requests can leave nothing in its page cache, where some of its requests
    /// are to. Each is connected, once in a process.
    pub(crate) fn servers_that_pass_caches(&self) -> impl Iterator<Item = bool> + '_ {
        let asked = self.datafiles().table.iter().filter(|_| self.direct != Direct::NEVER);
        asked.map(|datafile| {
            let server = self.plane().server(datafile.server);
            server.is_ok_and(|server| server.backend().is_ok() && server.passes_cache())
        })
    }

    pub(crate) fn set_handle_sum(&self, sum: Option<u32>) {
        self.handle_sum.store(sum.unwrap_or(0), Ordering::Release);
    }

    /// Whether the placement changed since it was fetched. One atomic load; `read_at` and `write_at` check it
    /// themselves.
    #[inline]
    pub fn is_stale(&self) -> bool {
        !self.is_of(self.epoch())
    }

    /// Whether the file's epoch counter still has the value `epoch`.
    #[inline]
    pub(crate) fn is_of(&self, epoch: u32) -> bool {
        self.plane().epoch(self.placement.handle) == epoch
    }

    /// Value of the file's epoch counter that the places known here are of.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The door that requests on it go through.
    #[inline]
    pub(crate) fn door(&self) -> &Door {
        self.plane().door()
    }

    /// The file, as the door tells of it.
    pub(crate) fn id(&self) -> FileId {
        FileId(self.placement.handle)
    }

    /// Reads into `bufs` from file offset `offset`, as a part of `request`, which has passed the door. Holes read as zeros; `size` is called only when some server had
    /// fewer bytes than wanted, and says how large the file is, so that the end is told from a hole; `hole` is then called
    /// for each datafile that ends before bytes of the file, and says whether it may. Bytes of `bufs` behind the count that
    /// is returned may hold anything.
    ///
    /// Cost besides the reads themselves: two atomic loads, and per sub-request one of O(log regions + log stripes)
    /// divisions; no lock, no allocation up to 16 sub-requests in 64 pieces.
    pub fn read_at(
        &self,
        request: &Request,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
        size: &mut dyn FnMut() -> Result<u64>,
        hole: &mut Hole<'_>,
    ) -> Result<TransferOutcome> {
        let wanted = total(bufs.iter().map(|buf| buf.len()));
        if offset > MAX_OFFSET {
            return Err(Error::Invalid(format!("offset {offset} is beyond 2^63-1")));
        }
        let len = (wanted as u64).min(MAX_OFFSET - offset);
        // SAFETY: the standard library guarantees that IoSliceMut is an iovec.
        let bufs = unsafe { std::slice::from_raw_parts(bufs.as_ptr().cast::<Buffer>(), bufs.len()) };
        if len == 0 {
            return Ok(TransferOutcome::Done(0));
        }
        if self.is_stale() {
            return Ok(TransferOutcome::Stale);
        }
        let mut notes = Notes::of(request);
        let asked = Transfer { direction: Direction::Read, bufs, offset, len, pass: Pass::First };
        let only = self.datafiles().placed.only_sub(offset, len);
        let result = match self.transfer_first(asked, only.as_ref(), &mut notes) {
            Ok(got) if got == len || self.whole_inode().is_some() => Ok(TransferOutcome::Done(got as usize)),
            Ok(got) => self.read_short(asked, got, notes, (size, hole)),
            Err(Error::Elsewhere) => return Err(Error::Elsewhere),
            // A server that is missing has nothing behind the end.
            Err(error) => match size() {
                Ok(size) if size <= offset => Ok(TransferOutcome::Done(0)),
                Err(Error::Elsewhere) => return Err(Error::Elsewhere),
                _ => Err(error),
            },
        };
        // What was read while the placement changed may come from places that are no longer the file's.
        if self.is_stale() { Ok(TransferOutcome::Stale) } else { result }
    }

    /// What a read comes to that has found `got` bytes, fewer than it asked for: the end of the file, or a hole.
    fn read_short(
        &self,
        asked: Transfer<'_>,
        got: u64,
        mut notes: Notes<'_>,
        (size, hole): (&mut dyn FnMut() -> Result<u64>, &mut Hole<'_>),
    ) -> Result<TransferOutcome> {
        let Transfer { offset, len, .. } = asked;
        let size = match size() {
            Ok(size) => size,
            // What follows is unknown (a server is missing); what was found is the file's.
            Err(_) if got > 0 => return Ok(TransferOutcome::Done(got as usize)),
            Err(error) => return Err(error),
        };
        let within = size.saturating_sub(offset).min(len);
        if got >= within {
            return Ok(TransferOutcome::Done(within as usize));
        }
        // A hole, or bytes that were written after we looked for them and before we knew the size: what is missing at
        // a second look is a hole.
        let count = self.transfer(Transfer { len: within, pass: Pass::ZeroHoles, ..asked }, &mut notes)?;
        let mut upto = offset + count;
        let mut lost = None;
        for (index, position, at) in notes.zeroed {
            match hole(index, position) {
                Ok(()) => {}
                Err(Error::Elsewhere) => return Err(Error::Elsewhere),
                Err(error) if at < upto || lost.is_none() => {
                    upto = upto.min(at);
                    lost = Some(error);
                }
                Err(_) => {}
            }
        }
        match lost {
            // What comes before is good.
            Some(error) if upto == offset => Err(error),
            _ => Ok(TransferOutcome::Done((upto - offset) as usize)),
        }
    }

    /// Writes `bufs` at file offset `offset`, as a part of `request`, which has passed the door. All of it, unless an error comes after the first bytes (then what was
    /// written contiguously from `offset` is returned, if it is not 0). Offsets beyond 2^63-1 give EFBIG.
    ///
    /// Cost: as for [`PlacedFile::read_at`], and a system call for each server that gets several stripes of a request to
    /// several servers, for the length of its datafile.
    pub fn write_at(&self, request: &Request, bufs: &[IoSlice<'_>], offset: u64) -> Result<TransferOutcome> {
        self.write_as_of(request, self.epoch(), bufs, offset)
    }

    /// [`PlacedFile::write_at`], for a caller that has read the file's counter as `epoch` and has made sure since then that no other is
    /// cutting the file back ([`crate::file::cut_back`]).
    pub(crate) fn write_as_of(
        &self,
        request: &Request,
        epoch: u32,
        bufs: &[IoSlice<'_>],
        offset: u64,
    ) -> Result<TransferOutcome> {
        let len = total(bufs.iter().map(|buf| buf.len())) as u64;
        if len == 0 {
            return Ok(TransferOutcome::Done(0));
        }
        if offset > MAX_OFFSET || len > MAX_OFFSET - offset {
            return Err(Error::Io {
                action: "write beyond offset 2^63-1 of",
                path: "a file".into(),
                errno: Errno::FBIG,
            });
        }
        let has_changed = || !self.is_of(epoch);
        if has_changed() || self.epoch() != epoch {
            return Ok(TransferOutcome::Stale);
        }
        let only = self.datafiles().placed.only_sub(offset, len);
        if !only.as_ref().is_some_and(|part| self.places.exists(self.index_of(part))) {
            let absent = self.absent(offset, len);
            if !absent.is_empty() {
                return Ok(TransferOutcome::Absent(absent));
            }
        }
        // SAFETY: the standard library guarantees that IoSlice is an iovec.
        let bufs = unsafe { std::slice::from_raw_parts(bufs.as_ptr().cast::<Buffer>(), bufs.len()) };
        let mut notes = Notes::of(request);
        let asked = Transfer { direction: Direction::Write, bufs, offset, len, pass: Pass::First };
        let written = self.transfer_first(asked, only.as_ref(), &mut notes);
        if let Ok(count) = written {
            // Again: a sync that began meanwhile has taken the mark away, and need not have synced these bytes.
            match &only {
                Some(part) => self.places.mark_written(self.index_of(part)),
                None => self.for_each_datafile(offset, len, |index| self.places.mark_written(index)),
            }
            // A cut that changes the counter from now on sees what was written here.
            fence(Ordering::SeqCst);
            if 0 < count && count < len && !notes.parts.is_empty() {
                let surplus = Surplus { version: self.placement.version, kept_to: offset + count, parts: notes.parts };
                return Ok(TransferOutcome::Partly(count as usize, Box::new(surplus)));
            }
        }
        match written {
            // A placement from before a writer was registered may be old, a cut may have taken along what was written, and a move
            // beside writers may have copied what was there before.
            _ if has_changed() => Ok(TransferOutcome::Stale),
            written => written.map(|count| TransferOutcome::Done(count as usize)),
        }
    }
}

/// How [`PlacedFile::transfer`] treats emulated servers and missing bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Charge the service; stop at what is missing.
    First,
    /// A second look at what the first charged: no charge, and what is missing is zeros.
    ZeroHoles,
}

/// What [`PlacedFile::transfer`] is to do.
#[derive(Clone, Copy)]
struct Transfer<'a> {
    direction: Direction,
    bufs: &'a [Buffer],
    offset: u64,
    /// At least 1.
    len: u64,
    pass: Pass,
}

impl Transfer<'_> {
    fn op(&self) -> Op {
        if self.direction == Direction::Read { Op::Read } else { Op::Write }
    }
}

/// Greatest sum that one call can transfer.
fn total(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.fold(0, usize::saturating_add)
}

/// Walks the program's buffers to cut out the parts that a sub-request fills.
struct Cursor<'a> {
    bufs: &'a [Buffer],
    index: usize,
    /// Position in the request of the first byte of `bufs[index]`.
    start: u64,
}

impl Cursor<'_> {
    /// Adds the bytes `[at, at + len)` of the request to `out`; `at` must not be below an earlier call's. `first` is
    /// where the sub-request's buffers begin: neighbours in memory are joined from there on.
    fn cut(&mut self, mut at: u64, mut len: u64, out: &mut Buffers, first: usize) {
        while len > 0 {
            let buf = &self.bufs[self.index];
            let skip = at - self.start;
            let here = (buf.iov_len as u64).saturating_sub(skip).min(len);
            if here > 0 {
                let base = buf.iov_base.wrapping_byte_add(skip as usize);
                match out[first..].last_mut() {
                    Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == base => {
                        last.iov_len += here as usize
                    }
                    _ => out.push(Buffer { iov_base: base, iov_len: here as usize }),
                }
                at += here;
                len -= here;
            }
            if len > 0 {
                self.start += buf.iov_len as u64;
                self.index += 1;
            }
        }
    }
}

impl PlacedFile {
    /// Calls `f` with the index of each datafile that `[offset, offset + len)` touches, perhaps more than once.
    fn for_each_datafile(&self, offset: u64, len: u64, mut f: impl FnMut(u16)) {
        let layout = &self.datafiles().placed;
        let end = offset + len;
        let mut region = layout.region_at(offset);
        while region < layout.regions().len() && layout.regions()[region].offset() < end {
            let row = &layout.regions()[region];
            let (from, to) = (offset.max(row.offset()), end.min(layout.region_end(region)));
            let first = row.slot_at(from);
            let mut position = from - from % row.round_bytes() + row.start_of(first);
            for step in 0..row.stripes().len() {
                let slot = (first + step) % row.stripes().len();
                f(self.datafiles().index(region, slot));
                position = position.saturating_add(row.stripes()[slot].width_bytes);
                if position >= to {
                    break;
                }
            }
            region += 1;
        }
    }

    /// The datafiles that `[offset, offset + len)` needs and that do not exist.
    pub(crate) fn absent(&self, offset: u64, len: u64) -> SmallVec<[u16; 16]> {
        let mut absent = SmallVec::new();
        self.for_each_datafile(offset, len, |index| {
            if !self.places.exists(index) && !absent.contains(&index) {
                absent.push(index);
            }
        });
        absent
    }

    /// How many bytes of `[offset, offset + len)` lie before the first whose datafile does not exist.
    pub(crate) fn bytes_before_absent(&self, offset: u64, len: u64) -> u64 {
        let subs = self.datafiles().placed.split(offset, len);
        let missing = subs
            .iter()
            .filter(|sub| !self.places.exists(self.index_of(sub)))
            .map(|sub| self.first_byte(sub, 0) - offset);
        missing.min().unwrap_or(len)
    }

    /// The datafile of a sub-request.
    #[inline]
    fn index_of(&self, sub: &SubRequest) -> u16 {
        self.datafiles().index(sub.region, sub.slot)
    }

    /// The file's datafiles.
    #[inline]
    pub(crate) fn datafiles(&self) -> &Datafiles {
        &self.places.below.datafiles
    }

    /// What is on the servers.
    #[inline]
    pub(crate) fn striped(&self) -> &Striped {
        &self.places.below
    }

    /// What is in the inode, and on the servers.
    pub(crate) fn places(&self) -> &Inline<Striped> {
        &self.places
    }

    #[inline]
    fn plane(&self) -> &Arc<DataPlane> {
        self.places.below.plane()
    }

    /// [`Striped::take_over_syncs`].
    pub(crate) fn take_over_syncs(&self, older: &Self) {
        self.striped().take_over_syncs(older.striped());
    }

    /// [`Striped::let_go_of_dead`].
    pub(crate) fn let_go_of_dead(&self) {
        self.striped().let_go_of_dead();
    }

    /// For a caller that has others sync the file: whether bytes written here may be lost, though a sync succeeds now, because their
    /// server died and came back, or the kernel could not write them back. Told once, as the kernel tells of that. Call it before the sync.
    pub fn take_lost(&self) -> bool {
        self.striped().take_lost()
    }

    /// After such a sync: whether the kernel could not write back bytes that were written here. Told once.
    pub fn take_not_written_back(&self) -> bool {
        self.striped().take_not_written_back()
    }

    /// The descriptor of a sub-request's datafile, if it exists.
    pub(crate) fn writable_descriptor(&self, sub: &SubRequest) -> Result<Option<BorrowedFd<'_>>> {
        self.striped().writable_datafile(self.index_of(sub))
    }

    /// The placement with the datafiles and the epoch that are known by now.
    pub fn current_placement(&self) -> Placement {
        let mut placement = self.placement.clone();
        // The epoch first: what comes to exist after that is seen as a change.
        placement.epoch = self.epoch.load(Ordering::Acquire);
        self.striped().tell(&mut placement.present);
        placement
    }

    /// Makes the bytes of all datafiles durable (`data_only`: as fdatasync). All devices write at once: each is told to
    /// begin before the first is waited for.
    pub(crate) fn sync(&self, data_only: bool) -> Result<()> {
        self.striped().sync_some(data_only, |_| true)
    }

    /// The namespace inode, if all bytes are its own: it ends where the file does.
    pub(crate) fn whole_inode(&self) -> Option<BorrowedFd<'_>> {
        self.inode().filter(|_| self.datafiles().table.is_empty())
    }

    /// The namespace inode, if there are regions of the metadata tier.
    #[inline]
    pub(crate) fn inode(&self) -> Option<BorrowedFd<'_>> {
        self.places.inode()
    }

    /// Moves the bytes of `[offset, offset + len)` between `bufs` and the datafiles, and says how many from `offset` on
    /// are done without a gap. To `notes` is added what may be written behind the first byte that is not.
    ///
    /// # Errors
    /// The first byte could not be moved; [`Error::Elsewhere`] when some are in the inode, which is not here.
    fn transfer(&self, asked: Transfer<'_>, notes: &mut Notes<'_>) -> Result<u64> {
        self.transfer_first(asked, self.datafiles().placed.only_sub(asked.offset, asked.len).as_ref(), notes)
    }

    /// [`PlacedFile::transfer`] of a request of which it is known whether it has one sub-request: `only`. It and what it calls
    /// are inline, so that reads and writes have each their own, without lists where there is one of each.
    #[inline(always)]
    fn transfer_first(&self, asked: Transfer<'_>, only: Option<&SubRequest>, notes: &mut Notes<'_>) -> Result<u64> {
        let Transfer { direction, bufs, len, .. } = asked;
        let (Some(part), [buf]) = (only, bufs) else { return self.transfer_several(asked, only, notes) };
        // Most requests: lists of one, which need no room for more.
        let mut buffers = [Buffer { iov_base: buf.iov_base, iov_len: len as usize }];
        let mut tasks = [self.task((direction, len), part, 0..1)?];
        let request = InFlight {
            subs: std::slice::from_ref(part),
            tasks: &mut tasks,
            buffers: &mut buffers,
            failure: None,
            upto: u64::MAX,
        };
        self.serve(asked, request, notes)
    }

    /// [`PlacedFile::transfer`] of several sub-requests, or from or into several buffers.
    #[inline(never)]
    fn transfer_several(&self, asked: Transfer<'_>, only: Option<&SubRequest>, notes: &mut Notes<'_>) -> Result<u64> {
        let Transfer { direction, bufs, offset, len, .. } = asked;
        let layout = &self.datafiles().placed;
        let subs = only.map_or_else(|| layout.split(offset, len), |part| SubRequests::from_iter([*part]));
        let (mut tasks, mut buffers, mut failure) = (Tasks::new(), Buffers::new(), None);
        for sub in &subs {
            let first = buffers.len();
            let mut cursor = Cursor { bufs, index: 0, start: 0 };
            if only.is_some() {
                cursor.cut(0, len, &mut buffers, first);
            } else {
                for (at, bytes) in layout.pieces(sub) {
                    cursor.cut(at - offset, bytes, &mut buffers, first);
                }
            }
            let own = first..buffers.len();
            tasks.push(match self.task((direction, len), sub, own.clone()) {
                Ok(task) => {
                    let takes_advice = self.plane().find(sub.server).is_some_and(OpenServer::takes_advice);
                    Task { takes_advice, ..task }
                }
                Err(Error::Elsewhere) => return Err(Error::Elsewhere),
                Err(error) => {
                    fail(&mut failure, self.first_byte(sub, 0), error);
                    Task { fd: -1, len: sub.len, first: own.start, end: own.end, ..Task::default() }
                }
            });
        }
        let request = InFlight { subs: &subs, tasks: &mut tasks, buffers: &mut buffers, failure, upto: u64::MAX };
        self.serve(asked, request, notes)
    }

    /// The work of a sub-request that has these buffers, of a request of `len` bytes, whatever its server takes advice.
    ///
    /// # Errors
    /// Its datafile or the metadata tier cannot be opened; [`Error::Elsewhere`]: its bytes are in the inode, which is not
    /// here.
    #[inline(always)]
    fn task(&self, (direction, len): (Direction, u64), sub: &SubRequest, buffers: Range<usize>) -> Result<Task> {
        let index = self.index_of(sub);
        let place = self.places.place(index, sub.server, direction, || self.direct.takes(len))?;
        Ok(Task {
            fd: place.fd,
            offset: sub.datafile_offset,
            len: sub.len,
            first: buffers.start,
            end: buffers.end,
            passes_cache: place.passes_cache,
            ends_short: self.whole_inode().is_some() && buffers.len() == 1 && sub.len <= engine::MAX_CALL_BYTES,
            ..Task::default()
        })
    }

    /// [`PlacedFile::transfer`], its sub-requests being known.
    #[inline(always)]
    fn serve(&self, asked: Transfer<'_>, mut request: InFlight<'_>, notes: &mut Notes<'_>) -> Result<u64> {
        if asked.pass == Pass::First
            && (self.door().is_observed() || request.subs.iter().any(|sub| self.places.counts(sub.server)))
        {
            return self.serve_counted(asked, request, notes);
        }
        self.move_bytes(asked.direction, &mut request, &mut notes.parts);
        if request.failure.is_none() && request.tasks.iter().all(|task| task.done == task.len) {
            return Ok(asked.len);
        }
        self.settle(asked, request, None, notes)
    }

    /// [`PlacedFile::serve`] where observers, the metadata tier or emulated servers count what is served.
    #[inline(never)]
    fn serve_counted(&self, asked: Transfer<'_>, mut request: InFlight<'_>, notes: &mut Notes<'_>) -> Result<u64> {
        let begin_ns = self.begin_observed();
        let is_on_meta = |sub: &SubRequest| sub.server == ServerId::META;
        let on_meta = request.subs.iter().any(is_on_meta).then(|| self.places.begin(self.placement.handle));
        self.carry_out(asked, &mut request, notes);
        if let Some(Some(begin_ns)) = on_meta {
            let done = request.subs.iter().zip(&*request.tasks).filter(|(sub, _)| is_on_meta(sub));
            let done_bytes = done.map(|(_, task)| task.done).sum();
            self.places.end(self.placement.handle, asked.op(), done_bytes, begin_ns);
        }
        self.settle(asked, request, begin_ns, notes)
    }

    /// How many bytes a request has moved without a gap that servers have served; observers are told of it where it began at
    /// `begin_ns`.
    #[inline(never)]
    fn settle(
        &self,
        asked: Transfer<'_>,
        request: InFlight<'_>,
        begin_ns: Option<u64>,
        notes: &mut Notes<'_>,
    ) -> Result<u64> {
        let Transfer { direction, offset, len, pass, .. } = asked;
        let InFlight { subs, tasks, buffers, mut failure, upto } = request;
        let has_come_back = |(sub, task): (&SubRequest, &Task)| {
            task.error.is_some_and(|errno| self.striped().comes_back(self.index_of(sub), errno))
        };
        if subs.iter().zip(&*tasks).any(has_come_back) {
            return self.transfer(asked, notes);
        }
        if let Some(begin_ns) = begin_ns {
            for (sub, task) in subs.iter().zip(&*tasks) {
                self.observed(notes.request, sub, task.done, begin_ns);
            }
        }
        let mut upto = upto.min(offset + len);
        for (sub, task) in subs.iter().zip(&*tasks) {
            if task.done == task.len {
                continue;
            }
            let missing = self.first_byte(sub, task.done);
            if let Some(errno) = task.error {
                let error = self
                    .plane()
                    .server(sub.server)
                    .map_or_else(|error| error, |server| failed(direction, server, errno));
                fail(&mut failure, missing, error);
            } else if pass == Pass::ZeroHoles {
                zero(&buffers[task.first..task.end]);
                let index = self.index_of(sub);
                if index != Datafiles::INODE && task.fd >= 0 {
                    notes.zeroed.push((index, sub.datafile_offset + task.done, missing));
                }
                continue;
            }
            upto = upto.min(missing);
        }
        match failure {
            // Everything before the failure is good.
            Some((at, error)) if at == offset => Err(error),
            // What was filled with zeros may lie behind it.
            Some((at, _)) if pass == Pass::ZeroHoles => self.transfer(Transfer { len: at - offset, ..asked }, notes),
            _ => Ok(upto - offset),
        }
    }

    /// The part of a request that lies in one stripe, or in a region of one.
    fn part(&self, region: usize, slot: usize, offset: u64, len: u64) -> SubRequest {
        let row = &self.datafiles().placed.regions()[region];
        SubRequest {
            region,
            slot,
            server: row.stripes()[slot].server,
            datafile_offset: row.datafile_offset(slot, offset),
            len,
            from: offset,
            to: offset + len,
        }
    }

    /// The time at which a server begins, where observers are told of it. One comparison without observers.
    #[inline]
    pub(crate) fn begin_observed(&self) -> Option<u64> {
        self.door().begin(now_ns)
    }

    /// Tells the observers of a sub-request of which a server has served `done_bytes`.
    fn observed(&self, request: &Request, part: &SubRequest, done_bytes: u64, begin_ns: u64) {
        if done_bytes > 0 {
            let address = || self.disk_address(part);
            let served = Served { address: &address, ..Served::of(part, done_bytes) };
            self.door().served(self.id(), request, served, (begin_ns, now_ns));
        }
    }

    /// Where on its server's disk the first byte of a sub-request is: as an emulated disk has it, or the file system says.
    fn disk_address(&self, part: &SubRequest) -> Option<u64> {
        if let Some(device) = self.plane().find(part.server).and_then(OpenServer::device) {
            return device.address(datafile_key(self.placement.handle, part.region), part.datafile_offset);
        }
        self.striped().disk_address(self.datafiles().index(part.region, part.slot), part.datafile_offset)
    }

    /// Tells the observers of an append of `done_bytes` at `offset` to the one datafile of the file.
    pub(crate) fn appended(&self, request: &Request, offset: u64, done_bytes: u64, begin_ns: Option<u64>) {
        if let Some(begin_ns) = begin_ns {
            let region = self.datafiles().placed.region_at(offset);
            self.observed(request, &self.part(region, 0, offset, request.len), done_bytes, begin_ns);
        }
    }

    /// The file offset of byte `done` of a sub-request.
    fn first_byte(&self, sub: &SubRequest, done: u64) -> u64 {
        let region = &self.datafiles().placed.regions()[sub.region];
        region.file_offset(sub.slot, sub.datafile_offset + done).unwrap_or(sub.from)
    }

    /// Does the I/O of all sub-requests and, where servers are emulated, sleeps once until the last is served.
    fn carry_out(&self, asked: Transfer<'_>, request: &mut InFlight<'_>, notes: &mut Notes<'_>) {
        let Transfer { direction, .. } = asked;
        let (op, subs) = (asked.op(), request.subs);
        let device = |sub: &SubRequest| self.plane().find(sub.server).and_then(OpenServer::device);
        let emulated = subs.iter().any(|sub| device(sub).is_some());
        let arrival_ns = if emulated { now_ns() } else { 0 };
        let process = if emulated { notes.request.sender.asking_thread().unwrap_or_else(std::process::id) } else { 0 };
        let reserve = |sub: &SubRequest, bytes| {
            let datafile = datafile_key(self.placement.handle, sub.region);
            let asked = DiskRequest { op, datafile, offset: sub.datafile_offset, bytes, process };
            device(sub).map(|device| device.enter(&asked, arrival_ns))
        };
        let mut tickets: SmallVec<[(usize, QueueTicket); 16]> = SmallVec::new();
        if emulated && direction == Direction::Write {
            let reserved = subs.iter().enumerate();
            tickets.extend(reserved.filter_map(|(index, sub)| Some((index, reserve(sub, sub.len)?))));
        }
        self.move_bytes(direction, request, &mut notes.parts);
        if !emulated {
            return;
        }
        if direction == Direction::Read {
            // Only what was really read is charged, as of its arrival: the end of a file costs nothing.
            let done = subs.iter().zip(&*request.tasks).enumerate().filter(|(_, (_, task))| task.done > 0);
            tickets.extend(done.filter_map(|(index, (sub, task))| Some((index, reserve(sub, task.done)?))));
        }
        for (index, ticket) in &mut tickets {
            if let Some(device) = device(&subs[*index]) {
                device.settle(ticket);
            }
        }
        let Some(deadline_ns) = tickets.iter().map(|(_, ticket)| ticket.deadline_ns).max() else {
            return;
        };
        let now_ns = sleep_until(deadline_ns);
        for (index, ticket) in &tickets {
            if let Some(device) = device(&subs[*index]) {
                device.complete(ticket, deadline_ns, now_ns);
            }
        }
    }
}

/// That a server has failed in the middle of a request.
fn failed(direction: Direction, server: &OpenServer, errno: Errno) -> Error {
    server.error(if direction == Direction::Read { "read" } else { "write" })(errno)
}

impl PlacedFile {
    /// Does the I/O of all sub-requests.
    #[inline(always)]
    fn move_bytes(&self, direction: Direction, request: &mut InFlight<'_>, parts: &mut Parts) {
        match direction {
            // SAFETY: descriptors are open as long as `self` lives; buffers are the caller's, to be written to.
            Direction::Read => unsafe { engine::read(request.tasks, request.buffers) },
            Direction::Write => match &mut *request.tasks {
                [only] if only.fd < 0 => {}
                // SAFETY: descriptors are open as long as `self` lives; buffers are the caller's, to be read.
                [only] => unsafe { only.run(Direction::Write, request.buffers) },
                _ => self.write_in_order(request, parts),
            },
        }
    }

    /// Writes the sub-requests in the order of their first bytes, of each all that lies before the first byte that is known
    /// not to be written: behind that byte nothing counts.
    fn write_in_order(&self, request: &mut InFlight<'_>, parts: &mut Parts) {
        let InFlight { subs, tasks, buffers, failure, upto } = request;
        let first_bytes = subs.iter().enumerate().map(|(number, sub)| (self.first_byte(sub, 0), number));
        let mut order: SmallVec<[(u64, usize); 16]> = first_bytes.collect();
        order.sort_unstable();
        if let Some((at, _)) = failure {
            *upto = *at;
        }
        for (place, &(first, number)) in order.iter().enumerate() {
            if first >= *upto {
                break;
            }
            let (sub, task) = (&subs[number], &mut tasks[number]);
            let last = self.first_byte(sub, sub.len - 1);
            if last >= *upto {
                let below = self
                    .datafiles()
                    .placed
                    .pieces(sub)
                    .map_while(|(at, bytes)| (at < *upto).then(|| bytes.min(*upto - at)));
                task.shorten(below.sum(), buffers);
            }
            let index = self.index_of(sub);
            // Where the next server fails, this one has bytes behind.
            let may_exceed = order.get(place + 1).is_some_and(|(next, _)| *next < last);
            if may_exceed && parts.iter().all(|part| part.index != index) {
                // SAFETY: a slot's descriptor stays open as long as `self` lives.
                let before = length_before(unsafe { BorrowedFd::borrow_raw(task.fd) });
                let from = sub.datafile_offset;
                parts.extend(before.map(|before_bytes| DatafileWrite { index, before_bytes, from, to: from }));
            }
            // SAFETY: descriptors are open as long as `self` lives; buffers are the caller's, to be read.
            unsafe { task.run(Direction::Write, buffers) };
            if let Some(part) = parts.iter_mut().find(|part| part.index == index) {
                part.to = part.to.max(sub.datafile_offset + task.done);
            }
            if task.done < task.len {
                *upto = (*upto).min(self.first_byte(sub, task.done));
            }
        }
    }
}

/// Bytes of a datafile that is about to be written; `None` if it cannot be asked. One system call, which asks for
/// nothing but the size: on network file systems other attributes would have to wait for what is not written back yet.
fn length_before(fd: BorrowedFd<'_>) -> Option<u64> {
    let found = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE).ok()?;
    Some(found.stx_size)
}

/// Fills buffers with zeros.
fn zero(buffers: &[Buffer]) {
    for buffer in buffers {
        // SAFETY: the buffers lie in the program's, which are writable, and no slice of them is in use.
        unsafe { std::ptr::write_bytes(buffer.iov_base.cast::<u8>(), 0, buffer.iov_len) };
    }
}

/// The sub-requests of one request on their way.
struct InFlight<'a> {
    subs: &'a [SubRequest],
    /// One for each of them.
    tasks: &'a mut [Task],
    buffers: &'a mut [Buffer],
    /// First byte that failed, and why.
    failure: Option<(u64, Error)>,
    /// Of a write: the first byte that is known not to be written.
    upto: u64,
}

/// Keeps the failure of the lowest byte.
fn fail(failure: &mut Option<(u64, Error)>, at: u64, error: Error) {
    if failure.as_ref().is_none_or(|(before, _)| at < *before) {
        *failure = Some((at, error));
    }
}
