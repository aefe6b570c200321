//! A move under way: copies what changes its place, reads it back, and makes the copy the file.

use crate::file::inode::{Inode, sync_names};
use crate::file::lockfile::{LockFile, Purpose};
use crate::file::marks::{BLOCK, joined, within};
use crate::file::move_plan::MovePlan;
use crate::file::placed_file::PlacedFile;
use crate::file::placements::{self, Placements};
use crate::file::rights::{create_datafile, remove_datafile};
use crate::file::steps::Steps;
use crate::file::writers::COUNTED_BYTES;
use crate::format::handle::{Handle, Optimisations};
use crate::format::parser;
use crate::format::placement::{Datafile, Placement};
use crate::format::surplus::Surplus;
use crate::os::error::{Error, Result};
use crate::os::sys::{retry, times_of};
use rustix::fs::{Advice, Timestamps};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use stripewise_control::{Sender, Way};
use stripewise_layout::{Layout, MAX_OFFSET, ServerId};
use stripewise_optimisation::{OptimisationSetting, SMALL};

/// What a move did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that were copied to other places; what was written meanwhile was copied again.
    pub copied_bytes: u64,
    /// Bytes of the file that stayed where they were.
    pub kept_bytes: u64,
    /// blake3 of the bytes that were copied, in order of offset; the copy read back gave the same. Of a file that had writers, of
    /// those that were copied last.
    pub checksum: [u8; 32],
}

impl Moved {
    /// Of a file of `size_bytes` that is where it is to be.
    pub(crate) fn nothing(size_bytes: u64) -> Self {
        Self { copied_bytes: 0, kept_bytes: size_bytes, checksum: *blake3::hash(&[]).as_bytes() }
    }
}

impl Inode {
    /// The times of a file without a writer.
    fn times(&self) -> Result<Timestamps> {
        self.stat().map(|stat| times_of(&stat))
    }

    /// The one step that makes the new layout the file's. On failure the old handle stands, unless it is an [`Error::Unsure`]; before that,
    /// `sync_old` has what it names durable: a writer that has synced meanwhile has synced what the new one names.
    fn switch(&self, handle: &Handle, sync_old: impl FnOnce() -> Result<()>) -> Result<()> {
        let before = self.read_handle()?;
        self.sync_inode()?;
        let switched = self.write_moved_handle(handle).and_then(|()| self.sync_inode());
        switched.map_err(|error| {
            // Until the disk says which of the two it has, both are whole only as long as neither generation is removed.
            let is_set = self.read_handle().map_or(true, |now| now != before);
            let old = if is_set { sync_old() } else { Ok(()) };
            match old.and_then(|()| self.write_handle(&before)).and_then(|()| self.sync_inode()) {
                Ok(()) => error,
                Err(_) => Error::Unsure { source: Box::new(error) },
            }
        })
    }
}

/// A move under way, by the holder of the file's structural lock, or beside writers. Each [`Move::step`] copies a part of one region or
/// reads it back; [`Move::finish`], or [`Move::switch`], makes the copy the file. Dropped before that, it leaves the file as it was.
pub(crate) struct Move<'a> {
    inode: &'a Inode,
    handle: Handle,
    plan: MovePlan,
    times: Timestamps,
    size_bytes: u64,
    old: Arc<PlacedFile>,
    copy: PlacedFile,
    created: RefCell<Vec<Datafile>>,
    /// The structural lock of a file without writers; `None`: the file has writers.
    alone: Option<&'a LockFile>,
    /// Whether the threshold of small files has asked for it ([`Move::by_threshold`]).
    by_threshold: bool,
    /// What is copied and read back in this pass: `plan.copy` in the first.
    pass: Vec<(u64, u64)>,
    /// What of `pass` is next, and how many bytes of it are done.
    next: (usize, u64),
    /// Bytes copied and read back, and what they come to at the end of the pass.
    done_bytes: u64,
    total_bytes: u64,
    /// Bytes copied since the last sync.
    unsynced_bytes: u64,
    reads_back: bool,
    /// Whether what is read back comes from the disks, as far as the kernel drops its copies.
    asks_disks: bool,
    original: blake3::Hasher,
    copied: blake3::Hasher,
    buffer: Vec<u8>,
    has_switched: bool,
    /// Whether the disk may say that the copy is the file, or that it is not.
    is_unsure: bool,
    /// Whether the copy has holes, where the file may have had none.
    leaves_out: Cell<bool>,
}

impl<'a> Move<'a> {
    /// Of a file of `size_bytes` without a writer, by the holder of its structural `lock`.
    pub(crate) fn alone(
        inode: &'a Inode,
        lock: &'a LockFile,
        handle: Handle,
        layout: Arc<Layout>,
        size_bytes: u64,
    ) -> Result<Self> {
        let old = inode.file()?;
        let mut moving = Self::start(inode, handle, layout, size_bytes, old, Some(lock))?;
        // What is a hole, and has no writer, is one in the copy, too. But a move that was killed may have left bytes in the inode.
        if moving.old.whole_inode().is_none() {
            let is_in_inode = |at| has_bytes_in_inode(&moving.copy, at, 1);
            let lengths = inode.recorded_lengths()?;
            moving.pass = moving.old.without_holes(&moving.pass, is_in_inode, lengths.as_ref());
            let left_bytes = bytes_of(&moving.pass) * 2;
            moving.leaves_out.set(left_bytes < moving.total_bytes);
            moving.total_bytes = left_bytes;
        }
        Ok(moving)
    }

    /// Of a file with writers, of which this process is one; by a holder of its place. Nothing of the old or the new layout may be in the
    /// inode.
    pub(crate) fn beside(inode: &'a Inode, handle: Handle, layout: Arc<Layout>) -> Result<Self> {
        let old = own_file(inode)?;
        let mut moving = Self::start(inode, handle, layout, inode.put_size_bytes()?, old, None)?;
        // The writers know of the move: what they write from now on is marked, also where a hole is seen here. By the last bytes the copy
        // shows how long the file is.
        let end = within(&[(moving.size_bytes.saturating_sub(BLOCK), moving.size_bytes)], &moving.pass);
        let lengths = inode.recorded_lengths()?;
        moving.pass = joined(moving.old.without_holes(&moving.pass, |_| false, lengths.as_ref()), end);
        moving.pass = within(&moving.pass, &moving.plan.copy);
        let left_bytes = bytes_of(&moving.pass) * 2;
        moving.leaves_out.set(left_bytes < moving.total_bytes);
        moving.total_bytes = left_bytes;
        Ok(moving)
    }

    fn start(
        inode: &'a Inode,
        handle: Handle,
        layout: Arc<Layout>,
        size_bytes: u64,
        old: Arc<PlacedFile>,
        alone: Option<&'a LockFile>,
    ) -> Result<Self> {
        let before = old.current_placement();
        // Before what an earlier move has left there is emptied: it may be all that is left of these bytes.
        if let Some(gone) = inode.first_gone(&old.datafiles().table, &before.present, Error::is_missing)? {
            return Err(gone);
        }
        inode.remove_strangers(&handle, false)?;
        let times = inode.times()?;
        let version = handle.version.wrapping_add(1);
        let plan = MovePlan::new(&before, &layout, version, size_bytes)?;
        let generations = plan.generations.clone();
        let mut placement = Placement { version, generations, layout, present: Default::default(), ..before };
        let datafiles = placement.datafiles()?;
        add_those_that_stay(&mut placement, &datafiles.table, &old);
        let own = inode.descriptor().try_clone_to_owned().map_err(|_| inode.failed("duplicate")(Errno::MFILE))?;
        let copy = PlacedFile::new(inode.store.plane().clone(), placement, Some(Arc::new(own)))?;
        Ok(Self {
            inode,
            handle,
            times,
            size_bytes,
            old,
            copy,
            created: RefCell::default(),
            alone,
            by_threshold: false,
            total_bytes: bytes_of(&plan.copy) * 2,
            pass: plan.copy.clone(),
            next: (0, 0),
            done_bytes: 0,
            unsynced_bytes: 0,
            reads_back: false,
            asks_disks: true,
            original: blake3::Hasher::new(),
            copied: blake3::Hasher::new(),
            buffer: Vec::new(),
            has_switched: false,
            is_unsure: false,
            leaves_out: Cell::new(false),
            plan,
        })
    }

    /// Notes that the threshold of small files has asked for it, which may send the file the other way later.
    pub(crate) fn by_threshold(&mut self) {
        self.by_threshold = true;
    }

    /// How many servers, at least, share each of its steps.
    pub(crate) fn servers(&self) -> usize {
        let stripes = |layout: &Layout, at| layout.regions()[layout.region_at(at)].stripes().len();
        let of = |&(from, _): &(u64, u64)| {
            stripes(&self.old.datafiles().placed, from).min(stripes(&self.copy.datafiles().placed, from))
        };
        self.plan.copy.iter().map(of).min().unwrap_or(1)
    }

    /// Bytes copied and read back so far.
    pub(crate) fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// What [`Move::step`] comes to at the end of the pass: all is copied, and read back.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Has `parts` copied again by the next steps. While writers wait, they are read back from the kernel's copies.
    pub(crate) fn begin_pass(&mut self, parts: Vec<(u64, u64)>, writers_wait: bool) {
        self.asks_disks = !writers_wait;
        self.total_bytes += bytes_of(&parts) * 2;
        self.pass = parts;
        (self.reads_back, self.next) = (false, (0, 0));
        (self.original, self.copied) = (blake3::Hasher::new(), blake3::Hasher::new());
    }

    /// Beside writers: reads again how long the file is and which datafiles it has. What of `parts` is copied then; `None`: the file can
    /// not be moved so any more.
    pub(crate) fn renew(&mut self, parts: &[(u64, u64)]) -> Result<Option<Vec<(u64, u64)>>> {
        let handle = self.inode.read_handle()?;
        // A process that cut the file off has died over it.
        if handle.cut_at().is_some() {
            return Ok(None);
        }
        let which = |of: &Handle| (of.version, of.layout, of.generations.clone());
        let (attributes, all) = self.inode.open_attributes()?;
        all?;
        let (old, mut placement) = (own_file(self.inode)?, self.copy.current_placement());
        let plan =
            MovePlan::new(&old.current_placement(), &placement.layout, placement.version, attributes.size_bytes)?;
        if which(&handle) != which(&self.handle) || plan.generations != self.plan.generations {
            return Ok(None);
        }
        add_those_that_stay(&mut placement, &self.copy.datafiles().table, &old);
        self.copy.refresh(&placement);
        self.times = Timestamps { last_modification: attributes.mtime, ..self.inode.times()? };
        (self.handle, self.old, self.size_bytes, self.plan) = (handle, old, attributes.size_bytes, plan);
        Ok(Some(within(parts, &self.plan.copy)))
    }

    fn has_created(&self, datafile: &Datafile) -> bool {
        self.created.borrow().contains(datafile)
    }

    /// Copies the bytes of one of the `steps` within a region, or reads as many back once all is copied and synced. `false`:
    /// nothing is left to do.
    pub(crate) fn step(&mut self, steps: &Steps) -> Result<bool> {
        if self.alone.is_none() && self.pass.is_empty() {
            return Ok(false);
        }
        let (number, done) = self.next;
        let Some(&(from, to)) = self.pass.get(number) else {
            if self.reads_back {
                return Ok(false);
            }
            if self.alone.is_some() {
                self.times = self.inode.times()?;
                self.give_rights_and_times()?;
            }
            self.sync()?;
            if self.asks_disks {
                self.forget_pages()?;
            }
            (self.reads_back, self.next) = (true, (0, 0));
            return self.step(steps);
        };
        let at = from + done;
        let len = steps.bytes().min(to - at);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(buffer.len().max(len as usize), 0);
        let chunk = &mut buffer[..len as usize];
        if has_bytes_in_inode(&self.old, at, len) || has_bytes_in_inode(&self.copy, at, len) {
            self.keeping_times(|| self.transfer(chunk, at))?;
        } else {
            self.transfer(chunk, at)?;
        }
        if self.reads_back {
            self.copied.update(chunk);
        } else {
            self.original.update(chunk);
            self.unsynced_bytes += len;
            if self.unsynced_bytes >= steps.unsynced_bytes() {
                self.sync_copy(true)?;
                self.forget_pages()?;
                self.unsynced_bytes = 0;
            }
        }
        self.buffer = buffer;
        self.next = if at + len == to { (number + 1, 0) } else { (number, done + len) };
        self.done_bytes += len;
        Ok(true)
    }

    /// Copies the bytes at `at` by way of `chunk`, or reads them back.
    fn transfer(&self, chunk: &mut [u8], at: u64) -> Result<()> {
        if self.reads_back {
            return self.read(&self.copy, chunk, at);
        }
        self.read(&self.old, chunk, at).map_err(|source| Error::Original { source: Box::new(source) })?;
        self.write(chunk, at)
    }

    /// Runs `work` while no program sets the file's times or rights: what it reads of them counts to its end. Where the file has writers
    /// the caller keeps programs from it.
    fn without_changes<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(lock) = self.alone else { return work() };
        lock.lock(Purpose::Handle, true)?;
        let done = work();
        lock.unlock(Purpose::Handle)?;
        done
    }

    /// Runs `work`, which reads or changes bytes of the inode, and gives it back its times.
    fn keeping_times<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.without_changes(|| {
            let times = self.inode.times()?;
            let done = work();
            rustix::fs::futimens(self.inode.descriptor(), &times).map_err(self.inode.failed("set the times of"))?;
            // A process that sets them, and has looked for a lock file before there was one, sets them again.
            self.inode.bump_epoch();
            done
        })
    }

    /// Makes sure that the copy reads as what was copied in this pass; the hash of that. `name` stands in errors.
    pub(crate) fn check(&self, name: &str) -> Result<[u8; 32]> {
        let (original, copied) = (self.original.finalize(), self.copied.finalize());
        if original != copied {
            let (original, copied) = (original.to_hex().to_string(), copied.to_hex().to_string());
            return Err(Error::Checksum { file: name.to_owned(), original, copied });
        }
        Ok(*original.as_bytes())
    }

    /// Makes the copy the file, whose layout is kept as `hash` then. `name` stands in errors.
    pub(crate) fn finish(mut self, hash: [u8; 32], name: &str) -> Result<Moved> {
        let checksum = self.check(name)?;
        let lock = self.alone;
        // No program sets times or rights meanwhile that the copy would not get.
        let locked = lock.map_or(Ok(()), |lock| lock.lock(Purpose::Handle, true));
        let done = locked.and_then(|()| self.finish_alone(hash));
        if let Some(lock) = lock {
            lock.unlock(Purpose::Handle)?;
        }
        done.map(|()| self.done(checksum))
    }

    fn finish_alone(&mut self, hash: [u8; 32]) -> Result<()> {
        let given = std::mem::replace(&mut self.times, self.inode.times()?);
        self.give_rights_and_times()?;
        let both = |of: &Timestamps| (of.last_access, of.last_modification);
        if both(&given) != both(&self.times) {
            self.sync_copy(false)?;
        }
        self.make_it_the_file(hash)?;
        // The move is done. What cannot be cleared now (a server that is away) is left to the next writer.
        self.clear();
        Ok(())
    }

    /// Beside writers, none of which writes now, and while no program sets times or rights: makes the copy the file.
    pub(crate) fn switch(&mut self, hash: [u8; 32]) -> Result<()> {
        self.give_rights_and_times()?;
        self.make_it_the_file(hash)
    }

    fn make_it_the_file(&mut self, hash: [u8; 32]) -> Result<()> {
        // What its disk did not take is no longer in memory, perhaps: the copy may have what was there before.
        self.old.striped().check_written_back()?;
        let placement = self.copy.current_placement();
        let switched = Handle {
            version: placement.version,
            optimisations: self.optimisations_of_copy(),
            layout: hash,
            generations: placement.generations,
            present: placement.present,
            // There is something to clear away, and nothing to cut off: writers may have made the file longer by then.
            truncating_to: Some(MAX_OFFSET),
            // What was reserved is a hole now.
            sparse: self.handle.sparse || self.leaves_out.get() && self.size_bytes >= COUNTED_BYTES,
            ..self.handle.clone()
        };
        self.inode.record_move(&self.old, &self.copy, self.size_bytes)?;
        let done = self.inode.switch(&switched, || {
            // Who has written there is told by the next sync, too.
            let synced = self.old.striped().sync_some(false, |_| true);
            synced.inspect_err(|error| self.inode.note_lost(error.errno()))
        });
        self.is_unsure = matches!(done, Err(Error::Unsure { .. }));
        self.has_switched = done.is_ok();
        done
    }

    /// A move that leaves the head as it is leaves the optimisations, too: also a file whose first bytes went to the servers stays one
    /// that may come back. One by the threshold keeps `small` with what decides the next: the head that the file has, or below how many
    /// bytes it comes back. Of any other the new layout says where the first bytes are, and no longer the hint.
    fn optimisations_of_copy(&self) -> Optimisations {
        let head_bytes = |file: &PlacedFile| file.placement().layout.head_in_inode_bytes();
        let (before, after) = (head_bytes(&self.old), head_bytes(&self.copy));
        let mut optimisations = self.handle.optimisations.clone();
        let small = parser::small_bytes(&optimisations);
        if before == after || (small == Some(after) && !self.by_threshold) {
            return optimisations;
        }
        let size = &SMALL.parameters[0];
        let kept_bytes = match after {
            // No more than it has now: a file that is as long as when it left was not cut.
            0 => small.unwrap_or(before).min(self.size_bytes / size.multiple * size.multiple).max(size.least),
            head_bytes => head_bytes,
        };
        let kept = OptimisationSetting::new(&SMALL, &[kept_bytes]).ok().filter(|_| self.by_threshold);
        match kept.map(|small| small.pack()) {
            // The table keeps its bounds.
            Some((index, parameters)) => drop(optimisations.enable(index, parameters)),
            None => drop(optimisations.disable(SMALL.index)),
        }
        optimisations
    }

    /// After the switch, by a holder of the right to change the handle: removes what was the file. What cannot be removed is left to the
    /// next writer.
    pub(crate) fn clear(&self) {
        let _ = self.inode.finish_move();
        self.inode.remove_those_behind(&self.old, &self.copy);
    }

    /// What was done.
    pub(crate) fn done(&self, checksum: [u8; 32]) -> Moved {
        Moved { copied_bytes: self.total_bytes / 2, kept_bytes: self.size_bytes - bytes_of(&self.plan.copy), checksum }
    }

    /// Gives the datafiles that were made for the copy the file's rights, and its times.
    fn give_rights_and_times(&self) -> Result<()> {
        let rights = self.inode.rights()?;
        self.copy.striped().for_each_present(|index, fd| {
            if !self.has_created(&self.copy.datafiles().table[usize::from(index)]) {
                return Ok(());
            }
            rights.give(fd)?;
            rustix::fs::futimens(fd, &self.times)
        })
    }

    /// Reads all of `chunk`; what the file does not have is zeros.
    fn read(&self, file: &PlacedFile, chunk: &mut [u8], at: u64) -> Result<()> {
        let places = ByPlan { moving: self, file, end: at + chunk.len() as u64 };
        let mut done = 0;
        while done < chunk.len() {
            match placements::read(&places, &mut [IoSliceMut::new(&mut chunk[done..])], at + done as u64)? {
                0 => return Err(Error::Invalid("the file ended early".into())),
                count => done += count,
            }
        }
        Ok(())
    }

    /// Writes `chunk`, leaving out blocks of zeros so that holes stay holes, except in the inode, whose bytes may hold
    /// anything from before, and where something was copied before. Beside writers the end of the copy is all that says how long the
    /// file is, so that the block there is no hole.
    fn write(&self, chunk: &[u8], at: u64) -> Result<()> {
        const BLOCK: usize = 64 << 10;
        let in_inode = has_bytes_in_inode(&self.copy, at, 1);
        let is_again = self.total_bytes > 2 * bytes_of(&self.pass);
        let is_end = |to: usize| self.alone.is_none() && at + to as u64 >= self.size_bytes;
        let zeros = |from: usize, to: usize| {
            !in_inode && !is_again && !is_end(to) && chunk[from..to].iter().all(|&byte| byte == 0)
        };
        let mut from = 0;
        while from < chunk.len() {
            let mut to = (from + BLOCK).min(chunk.len());
            if zeros(from, to) {
                self.leaves_out.set(true);
                from = to;
                continue;
            }
            while to < chunk.len() && !zeros(to, (to + BLOCK).min(chunk.len())) {
                to = (to + BLOCK).min(chunk.len());
            }
            self.write_all(&chunk[from..to], at + from as u64)?;
            from = to;
        }
        Ok(())
    }

    fn write_all(&self, bytes: &[u8], at: u64) -> Result<()> {
        let places = ByPlan { moving: self, file: &self.copy, end: at };
        let mut done = 0;
        while done < bytes.len() {
            // What cannot be written is found out by the next; then the whole copy goes.
            done += placements::write(&places, &[IoSlice::new(&bytes[done..])], at + done as u64)?;
        }
        Ok(())
    }

    /// Makes the bytes of the copy durable. Beside writers what stays has bytes of theirs, and is not waited for.
    fn sync_copy(&self, data_only: bool) -> Result<()> {
        self.copy.striped().sync_some(data_only, |datafile| self.alone.is_some() || self.has_created(datafile))
    }

    /// Has the kernel drop its copies of what was made and synced: what it kept of a write says nothing of the disk. It keeps what is
    /// in use otherwise, and all of a file system in memory. One system call a datafile, O(pages that are kept).
    fn forget_pages(&self) -> Result<()> {
        self.copy.striped().for_each_present(|index, fd| {
            if self.has_created(&self.copy.datafiles().table[usize::from(index)]) {
                // A file system without such copies may refuse it.
                let _ = rustix::fs::fadvise(fd, 0, None, Advice::DontNeed);
            }
            Ok(())
        })
    }

    /// Makes the copy durable, names included.
    fn sync(&self) -> Result<()> {
        self.sync_copy(false)?;
        if self.alone.is_some() {
            retry(|| rustix::fs::fsync(self.inode.descriptor())).map_err(self.inode.failed("sync"))?;
        }
        self.created
            .borrow()
            .iter()
            .try_for_each(|datafile| sync_names(&self.inode.store, self.inode.handle(), *datafile))
    }
}

/// Bytes of parts of a file.
pub(crate) fn bytes_of(parts: &[(u64, u64)]) -> u64 {
    parts.iter().map(|(from, to)| to - from).sum()
}

/// Whether any of the `len` bytes at `at` is in the inode. O(regions they are in).
fn has_bytes_in_inode(file: &PlacedFile, at: u64, len: u64) -> bool {
    let layout = &file.placement().layout;
    let mut regions = layout.regions()[layout.region_at(at)..].iter().take_while(|region| region.offset() < at + len);
    regions.any(|region| region.stripes()[0].server == ServerId::META)
}

/// The file as it is now, apart from what others of this process know of it.
fn own_file(inode: &Inode) -> Result<Arc<PlacedFile>> {
    let placement = inode.file()?.current_placement();
    PlacedFile::new(inode.store.plane().clone(), placement, None).map(Arc::new)
}

/// Adds the datafiles of `table` that exist already, for regions that stay.
fn add_those_that_stay(placement: &mut Placement, table: &[Datafile], old: &PlacedFile) {
    let before = old.current_placement().present;
    for (index, datafile) in table.iter().enumerate() {
        let known = old.datafiles().table.iter().position(|other| other == datafile);
        if known.is_some_and(|known| before.contains(known)) {
            placement.present.insert(index);
        }
    }
}

impl Drop for Move<'_> {
    /// Removes what a move that did not come to its end has made. What cannot be removed is left to the next move.
    fn drop(&mut self) {
        if self.has_switched || self.is_unsure {
            return;
        }
        let Ok(stat) = self.inode.stat() else { return };
        // They are the owner's of when they were made, or of when they were given the file's rights.
        let mut owners = vec![self.old.placement().owner, stat.st_uid];
        owners.dedup();
        for datafile in self.created.borrow().iter() {
            let (store, identity) = (&self.inode.store, self.inode.identity());
            for owner in &owners {
                let _ = remove_datafile(store.plane(), self.inode.handle(), *datafile, *owner, identity);
            }
        }
    }
}

/// How a move finds the bytes of the file, or of its copy. The placement cannot change under the structural lock; only
/// another file that shares the epoch counter can seem to change it.
struct ByPlan<'a> {
    moving: &'a Move<'a>,
    file: &'a PlacedFile,
    /// End of what is read.
    end: u64,
}

impl<'a> Placements for ByPlan<'a> {
    type Found = &'a PlacedFile;
    type Alone = ();

    fn current(&self) -> Result<&'a PlacedFile> {
        Ok(self.file)
    }

    fn renew(&self, file: &PlacedFile) -> Result<()> {
        let mut placement = file.current_placement();
        placement.epoch = self.moving.inode.store.plane().epoch(self.moving.inode.handle());
        file.refresh(&placement);
        Ok(())
    }

    fn make(&self, file: &PlacedFile, indexes: &[u16]) -> Result<()> {
        let inode = self.moving.inode;
        let rights = inode.rights()?;
        let mut placement = file.current_placement();
        for &index in indexes {
            let datafile = file.datafiles().table[usize::from(index)];
            self.moving.created.borrow_mut().push(datafile);
            create_datafile(inode.store.plane(), inode.handle(), inode.identity(), datafile, rights)?;
            placement.present.insert(usize::from(index));
        }
        file.refresh(&placement);
        Ok(())
    }

    fn size_bytes(&self) -> Result<u64> {
        Ok(self.end)
    }

    /// What the copy does not have are its holes; of the original it would be lost for good.
    fn check_hole(&self, file: &PlacedFile, index: u16, position: u64) -> Result<()> {
        if std::ptr::eq(file, &*self.moving.old) { self.moving.inode.check_hole(file, index, position) } else { Ok(()) }
    }

    /// All of a copy that cannot be finished goes.
    fn cut_back(&self, _surplus: &Surplus) -> Result<()> {
        Ok(())
    }

    fn alone(&self) -> Result<()> {
        Ok(())
    }

    fn sender(&self) -> Sender {
        Sender::this_process(Way::Mover)
    }
}
