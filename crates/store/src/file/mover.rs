//! The mover: gives an existing file another layout, crash-safe.
//!
//! The order of the steps is what makes it crash-safe: datafiles of a new generation written and synced, their names synced, the copy read back (from
//! the disks, as far as the kernel drops what it has kept of it) and compared, the layout kept; then one switch of the handle (version + 1, synced), which also says that the rest must
//! be cleared away (`truncating_to`); and only then the old generation goes. A crash before the switch leaves the old
//! file and some datafiles that no handle names; after it, the new file and some leftovers. The next
//! process that opens the file for writing or moves it clears both.

use crate::backend::plane::OpenServer;
use crate::file::beside::GoOn;
use crate::file::inode::{Inode, Store};
use crate::file::lockfile::{LockFile, Purpose};
use crate::file::move_plan::MovePlan;
use crate::file::moving::{Move, Moved};
use crate::file::room_ahead::{ChangeOfSpace, RoomAhead};
use crate::file::steps::{REST, Steps, Then};
use crate::file::writers::StructuralLock;
use crate::format::extent::bytes_in;
use crate::format::handle::{Optimisations, Present};
use crate::format::placement::{Datafile, Datafiles, Placement};
use crate::os::error::{Error, Result};
use crate::os::sync::guard;
use crate::pool::space::Forecast;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;
use stripewise_layout::{Layout, ServerId};
use stripewise_optimisation::{CACHED, SMALL};

/// For what a file moves.
#[derive(Debug, Clone, Copy)]
struct Why {
    /// Whether it ends for a writer that comes.
    gives_way: bool,
    /// Whether the threshold of small files asks for it.
    by_threshold: bool,
}

impl Inode {
    /// Moves the file to `layout`. `name` stands in errors. `progress(done_bytes, total_bytes)` is called after each
    /// chunk, of copying and then of reading back; `false` from it stops the move, leaving the file as it was.
    ///
    /// A file that has writers is moved beside them ([`crate::file::beside`]).
    ///
    /// # Errors
    /// [`Error::Busy`] while a writer keeps the file in its place; [`Error::Nameless`] where it has lost its last name before it came to
    /// its new places. On any failure the file keeps its old layout and nothing of the new one is left.
    pub fn move_to(
        self: &Arc<Self>,
        layout: &Layout,
        name: &str,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Moved> {
        self.move_watched(layout, name, false, &mut |done, total| progress(done, total).into())
    }

    /// [`Inode::move_to`] that can rest. A move of a file without writers that `gives_way` ends with [`Error::Busy`] when a writer comes
    /// and more than one step is left: the writer waits for one step, or for the switch, and until what was copied is removed.
    ///
    /// # Errors
    /// As [`Inode::move_to`].
    pub fn move_watched(
        self: &Arc<Self>,
        layout: &Layout,
        name: &str,
        gives_way: bool,
        progress: &mut dyn FnMut(u64, u64) -> Then,
    ) -> Result<Moved> {
        self.move_for(layout, name, Why { gives_way, by_threshold: false }, progress)
    }

    /// [`Inode::move_watched`] that gives way, of a small file by the threshold: afterwards its handle says how it goes the other way.
    pub(crate) fn move_by_threshold(
        self: &Arc<Self>,
        layout: &Layout,
        name: &str,
        progress: &mut dyn FnMut(u64, u64) -> Then,
    ) -> Result<Moved> {
        self.move_for(layout, name, Why { gives_way: true, by_threshold: true }, progress)
    }

    fn move_for(
        self: &Arc<Self>,
        layout: &Layout,
        name: &str,
        why: Why,
        progress: &mut dyn FnMut(u64, u64) -> Then,
    ) -> Result<Moved> {
        if !self.has_handle() {
            return Err(Error::NotPlaced { file: name.to_owned() });
        }
        let failed = |source: Error| match self.is_nameless() {
            // Who removed the name removes the datafiles, too.
            true => Error::Nameless { file: name.to_owned() },
            false => Error::Move { file: name.to_owned(), source: Box::new(source) },
        };
        self.check_changeable().map_err(failed)?;
        self.store.check_layout(layout).map_err(failed)?;
        let hash = self.store.layouts.put(layout).map_err(failed)?;
        let layout = self.store.layouts.get(&hash).map_err(failed)?;
        let busy = || Error::Busy { file: name.to_owned() };
        let mut go_on = |moving: &Move<'_>, bytes, awaited: Option<&LockFile>| -> Result<()> {
            loop {
                // Also in a rest, which `--rate` makes long.
                self.check_named()?;
                let left_bytes = moving.total_bytes() - moving.done_bytes();
                let rests = match progress(moving.done_bytes(), moving.total_bytes()) {
                    Then::Stop => return Err(Error::Invalid("it was stopped".into())),
                    // A copy that is done is made the file first.
                    then => then == Then::Rest && left_bytes > 0,
                };
                if let Some(lock) = awaited
                    && (left_bytes > bytes || rests)
                    && lock.is_awaited()?
                {
                    return Err(busy());
                }
                if !rests {
                    return Ok(());
                }
                std::thread::sleep(REST);
            }
        };
        let writers = guard(&self.writers);
        let Some(StructuralLock { lock, settled, _heads }) = self.structural_lock(&writers).map_err(failed)? else {
            drop(writers);
            let moved = self.move_beside_writers(hash, &layout, name, &mut go_on).map_err(failed)?;
            return moved.ok_or_else(busy);
        };
        // Bytes behind what is taken for the end would stay behind.
        self.in_order(&lock, settled).map_err(failed)?;
        lock.try_exclusive(Purpose::Still).map_err(failed)?;
        let moved = self.move_locked(hash, layout, name, (&lock, why), &mut go_on);
        // If the name stays, the next writer finds no holder and puts the file in order.
        let removed = lock.remove(self.store.locks());
        moved.and_then(|moved| removed.map(|()| moved)).map_err(failed)
    }

    /// Changes those optimisations of the file that move none of its bytes, as `readahead`; whether `change` has changed some. They count
    /// from the next open on. `name` stands in errors. It is a move that copies nothing, so that all who use the file find out.
    ///
    /// # Errors
    /// [`Error::Busy`] while the file has a writer; `ETXTBSY` where `cached` is to change while a kernel keeps its pages; `change` has
    /// changed `small`, which says where bytes are; those of `change`. Nothing is changed then.
    pub fn change_optimisations(
        self: &Arc<Self>,
        name: &str,
        change: impl FnOnce(&mut Optimisations) -> Result<bool>,
    ) -> Result<bool> {
        if !self.has_handle() {
            return Err(Error::NotPlaced { file: name.to_owned() });
        }
        let failed = |source: Error| Error::Optimisations { file: name.to_owned(), source: Box::new(source) };
        self.check_changeable().map_err(failed)?;
        let writers = guard(&self.writers);
        let Some(StructuralLock { lock, settled, _heads }) = self.structural_lock(&writers).map_err(failed)? else {
            return Err(failed(Error::Busy { file: name.to_owned() }));
        };
        self.in_order(&lock, settled).map_err(failed)?;
        let done = lock.try_exclusive(Purpose::Still);
        let done = done.and_then(|_| self.change_optimisations_locked(name, change, (&lock, writers.kept > 0)));
        let removed = lock.remove(self.store.locks());
        done.and_then(|done| removed.map(|()| done)).map_err(failed)
    }

    /// Fails where the file has lost its last name: who removes its datafiles knows of one generation after the one that it has seen.
    pub(crate) fn check_named(&self) -> Result<()> {
        if self.is_nameless() { Err(self.failed("move")(Errno::NOENT)) } else { Ok(()) }
    }

    /// Whether a mover has the file, with or without writers. Three system calls.
    ///
    /// # Errors
    /// Those of the lock file.
    pub fn is_moved(&self) -> Result<bool> {
        let lock = LockFile::open_existing(self.store.locks(), self.handle())?;
        lock.map_or(Ok(false), |lock| Ok(lock.is_held(Purpose::Still)? || lock.is_exclusive(Purpose::Place)?))
    }

    /// `is_kept`: a kernel keeps pages of it, which its mount in this process has given it.
    fn change_optimisations_locked(
        &self,
        name: &str,
        change: impl FnOnce(&mut Optimisations) -> Result<bool>,
        (lock, is_kept): (&LockFile, bool),
    ) -> Result<bool> {
        let mut handle = self.read_handle()?;
        let before = handle.optimisations.clone();
        if !change(&mut handle.optimisations)? {
            return Ok(false);
        }
        let changes = |index| before.parameters(index) != handle.optimisations.parameters(index);
        if changes(SMALL.index) {
            return Err(Error::Invalid("`small` says where its bytes are: move it by `apply`, or make it anew".into()));
        }
        // A writer would not wait for those pages any more. While this has the lock file, no kernel begins to keep some.
        if changes(CACHED.index) && (is_kept || self.store.heads.is_kept(self.handle())?) {
            let reason = "a program has it open on a mount whose kernel keeps what it has read (hint `cached`)";
            return Err(self.refused("change the optimisations of", reason, Errno::TXTBSY));
        }
        let (hash, layout) = (handle.layout, self.store.layouts.get(&handle.layout)?);
        let mut moving = Move::alone(self, lock, handle, layout, self.stat()?.st_size as u64)?;
        let steps = Steps::new(false, moving.servers());
        while moving.step(&steps)? {}
        moving.finish(hash, name)?;
        // A writer that comes later may not count up for what an open has fetched by the former handle: that goes now.
        self.bump_epoch();
        Ok(true)
    }

    /// Bytes that the file's datafiles take, as `(server, bytes)`; a server can stand twice.
    pub fn allocated(&self) -> Result<Vec<(ServerId, u64)>> {
        let of = self.allocated_by_datafile(&self.placement()?)?;
        Ok(of.into_iter().map(|(datafile, bytes)| (datafile.server, bytes)).collect())
    }

    /// One that is not there, or whose server is not, takes nothing that could be given back.
    fn allocated_by_datafile(&self, placement: &Placement) -> Result<Vec<(Datafile, u64)>> {
        let table = placement.datafiles()?.table.into_iter().enumerate();
        let present = table.filter(|(index, _)| placement.present.contains(*index)).map(|(_, datafile)| datafile);
        let allocated = present.filter_map(|datafile| {
            let backend = self.store.plane().server(datafile.server).and_then(OpenServer::current).ok()?;
            let stat = backend.stat(datafile.key(placement.handle)).ok()?;
            Some((datafile, 512 * stat.st_blocks as u64))
        });
        Ok(allocated.collect())
    }

    /// What moving the file to `layout` would change of the space that servers have left.
    pub(crate) fn change_of_space(&self, layout: &Layout) -> Result<ChangeOfSpace> {
        let (old, size_bytes) = (self.placement()?, self.size_bytes()?);
        if *old.layout == *layout || size_bytes == 0 {
            return Ok(ChangeOfSpace::default());
        }
        let plan = MovePlan::new(&old, layout, old.version.wrapping_add(1), size_bytes)?;
        let (before, after) = (old.datafiles()?, Datafiles::new(layout, &plan.generations)?);
        let bytes_of = |datafiles: &Datafiles, datafile: &Datafile| {
            let index = datafiles.table.iter().position(|other| other == datafile);
            index.map_or(0, |index| bytes_in(datafiles, index as u16, size_bytes))
        };
        let gone = self.first_gone(&before.table, &old.present, |_| true)?;
        let mut freed = Vec::new();
        let mut allocated_bytes = 512 * self.stat()?.st_blocks as u64;
        for (datafile, bytes) in self.allocated_by_datafile(&old)? {
            allocated_bytes += bytes;
            let (had, keeps) = (bytes_of(&before, &datafile), bytes_of(&after, &datafile));
            if keeps < had {
                freed.push((datafile.server, (bytes as f64 * (1.0 - keeps as f64 / had as f64)) as u64));
            } else if had == 0 && !after.table.contains(&datafile) {
                freed.push((datafile.server, bytes));
            }
        }
        // Of a file with holes what the move would copy: the stretches without large ones.
        let has_less = allocated_bytes < size_bytes;
        let copy = if has_less { self.without_holes(&plan.copy, layout)? } else { plan.copy };
        let moved_bytes: u64 = copy.iter().map(|(from, to)| to - from).sum();
        // One that takes less than all that is no hole is compressed, and so is its copy.
        let density = if has_less {
            let held: u64 =
                self.without_holes(&[(0, size_bytes)], &old.layout)?.iter().map(|(from, to)| to - from).sum();
            (allocated_bytes as f64 / held.max(1) as f64).min(1.0)
        } else {
            1.0
        };
        let mut copied: BTreeMap<ServerId, u64> = BTreeMap::new();
        for &(from, to) in &copy {
            let region = &layout.regions()[layout.region_at(from)];
            for (slot, stripe) in region.stripes().iter().enumerate() {
                let bytes = region.bytes_before(slot, to) - region.bytes_before(slot, from);
                *copied.entry(stripe.server).or_default() += bytes;
            }
        }
        let copied = copied.into_iter().filter(|(_, bytes)| *bytes > 0);
        let copied = copied.map(|(server, bytes)| (server, (bytes as f64 * density).ceil() as u64)).collect();
        Ok(ChangeOfSpace { copied, freed, moved_bytes, unreadable: gone })
    }

    /// The stretches of `parts` that a move of a file without writers to `layout` copies.
    fn without_holes(&self, parts: &[(u64, u64)], layout: &Layout) -> Result<Vec<(u64, u64)>> {
        let file = self.file()?;
        let lengths = self.recorded_lengths()?;
        let is_in_inode = |at| layout.locate(at).server == ServerId::META;
        // The datafiles' descriptors have one offset each, which an append of this process may be using.
        let _alone = guard(&self.appending);
        Ok(file.without_holes(parts, is_in_inode, lengths.as_ref()))
    }

    /// Why the first of the `present` datafiles of a `table` that is not there cannot be had, of those errors that count; `None`: all are. A
    /// move syncs those that stay, too.
    pub(crate) fn first_gone(
        &self,
        table: &[Datafile],
        present: &Present,
        counts: impl Fn(&Error) -> bool,
    ) -> Result<Option<Error>> {
        let mut present = table.iter().enumerate().filter(|(index, _)| present.contains(*index));
        let look = |datafile: &Datafile| -> Result<()> {
            let (server, key) = (self.store.plane().server(datafile.server)?, datafile.key(self.handle()));
            match server.current()?.stat(key) {
                Ok(_) => Ok(()),
                Err(Errno::NOENT) => {
                    let (server, datafile) = (server.name().to_owned(), key.path().as_str().to_owned());
                    Err(Error::MissingDatafile { server, datafile })
                }
                Err(errno) => Err(server.error("look at a datafile")(errno)),
            }
        };
        Ok(present.find_map(|(_, datafile)| look(datafile).err().filter(|error| counts(error))))
    }

    fn move_locked(
        &self,
        hash: [u8; 32],
        layout: Arc<Layout>,
        name: &str,
        (lock, why): (&LockFile, Why),
        go_on: &mut GoOn<'_>,
    ) -> Result<Moved> {
        let handle = self.read_handle()?;
        let size_bytes = self.stat()?.st_size as u64;
        if handle.layout == hash {
            return Ok(Moved::nothing(size_bytes));
        }
        self.check_named()?;
        let mut moving = Move::alone(self, lock, handle, layout, size_bytes)?;
        if why.by_threshold {
            moving.by_threshold();
        }
        let mut steps = Steps::new(why.gives_way, moving.servers());
        loop {
            let began = Instant::now();
            if !moving.step(&steps)? {
                break;
            }
            steps.took(began.elapsed());
            go_on(&moving, steps.bytes(), why.gives_way.then_some(lock))?;
        }
        moving.finish(hash, name)
    }
}

impl Store {
    /// What moving these files would do, one after the other: each is copied before its old bytes go. Nothing is moved.
    ///
    /// # Errors
    /// [`Error::NoRoom`] with the first file that does not fit; a server of a new layout is missing or read-only.
    pub fn check_moves<'a>(
        &self,
        moves: impl IntoIterator<Item = (&'a str, &'a Inode, &'a Layout)>,
    ) -> Result<Forecast> {
        let mut moved_bytes = Vec::new();
        let mut ahead = RoomAhead::new(self, HashMap::new());
        for (file, inode, layout) in moves {
            let change = match inode.change_of_space(layout) {
                // It does not move any more.
                Err(_) if inode.is_nameless() => ChangeOfSpace::default(),
                change => change?,
            };
            moved_bytes.push(change.moved_bytes);
            ahead.add(file, &change)?;
        }
        Ok(Forecast { moved_bytes, rooms: ahead.rooms() })
    }
}
