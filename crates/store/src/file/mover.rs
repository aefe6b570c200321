//! The mover: gives an existing file another layout, crash-safe.
//!
//! The order of the steps is what makes it crash-safe: datafiles of a new generation written and synced, their names synced, the copy read back and
//! compared, the layout kept; then one switch of the handle (version + 1, synced), which also says that the rest must
//! be cleared away (`truncating_to`); and only then the old generation goes. A crash before the switch leaves the old
//! file and some datafiles that no handle names; after it, the new file and some leftovers. The next
//! process that opens the file for writing or moves it clears both.

use crate::backend::plane::OpenServer;
use crate::file::inode::{Inode, Store, sync_names};
use crate::file::move_plan::MovePlan;
use crate::file::placed_file::PlacedFile;
use crate::file::placements::{self, Placements};
use crate::file::rights::{create_datafile, remove_datafile};
use crate::file::room_ahead::{ChangeOfSpace, RoomAhead};
use crate::file::steps::{REST, Steps, Then};
use crate::file::writers::StructuralLock;
use crate::format::extent::bytes_in;
use crate::format::handle::Handle;
use crate::format::hints;
use crate::format::placement::{Datafile, Datafiles, Placement};
use crate::format::surplus::Surplus;
use crate::os::error::{Error, Result};
use crate::os::sync::guard;
use crate::os::sys::retry;
use crate::pool::space::Forecast;
use rustix::fs::{Timespec, Timestamps};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Instant;
use stripewise_control::{Sender, Way};
use stripewise_layout::{Layout, ServerId};
use stripewise_optimisation::SMALL;

/// What a move did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Bytes of the file that were copied to other places.
    pub copied_bytes: u64,
    /// Bytes of the file that stayed where they were.
    pub kept_bytes: u64,
    /// blake3 of the bytes that were copied, in order of offset; the copy read back gave the same.
    pub checksum: [u8; 32],
}

impl Inode {
    /// Moves the file to `layout`. `name` stands in errors. `progress(done_bytes, total_bytes)` is called after each
    /// chunk, of copying and then of reading back; `false` from it stops the move, leaving the file as it was.
    ///
    /// Fails with [`Error::Busy`] while a writer is registered anywhere. On any failure the file keeps its old layout
    /// and nothing of the new one is left.
    pub fn move_to(
        self: &Arc<Self>,
        layout: &Layout,
        name: &str,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Moved> {
        self.move_watched(layout, name, false, &mut |done, total| progress(done, total).into())
    }

    /// [`Inode::move_to`] that can rest. A move that `gives_way` ends with [`Error::Busy`] when a writer comes and more than one
    /// step is left: the writer waits for one step, or for the switch, and until what was copied is removed.
    pub fn move_watched(
        self: &Arc<Self>,
        layout: &Layout,
        name: &str,
        gives_way: bool,
        progress: &mut dyn FnMut(u64, u64) -> Then,
    ) -> Result<Moved> {
        if !self.has_handle() {
            return Err(Error::NotPlaced { file: name.to_owned() });
        }
        let failed = |source: Error| Error::Move { file: name.to_owned(), source: Box::new(source) };
        self.store.check_layout(layout).map_err(failed)?;
        let hash = self.store.layouts.put(layout).map_err(failed)?;
        let layout = self.store.layouts.get(&hash).map_err(failed)?;
        let writers = guard(&self.writers);
        let busy = || Error::Busy { file: name.to_owned() };
        let StructuralLock { lock, settled, _heads } =
            self.structural_lock(&writers).map_err(failed)?.ok_or_else(busy)?;
        // Bytes behind what is taken for the end would stay behind.
        settled.map_err(failed)?;
        let mut go_on = |moving: &Move<'_>, bytes| -> Result<()> {
            loop {
                let left_bytes = moving.total_bytes() - moving.done_bytes;
                let rests = match progress(moving.done_bytes, moving.total_bytes()) {
                    Then::Stop => return Err(Error::Invalid("it was stopped".into())),
                    // A copy that is done is made the file first.
                    then => then == Then::Rest && left_bytes > 0,
                };
                if gives_way && (left_bytes > bytes || rests) && lock.is_awaited()? {
                    return Err(busy());
                }
                if !rests {
                    return Ok(());
                }
                std::thread::sleep(REST);
            }
        };
        let moved = self.move_locked(hash, layout, name, gives_way, &mut go_on);
        // If the name stays, the next writer finds no holder and puts the file in order.
        let removed = lock.remove(self.store.locks());
        moved.and_then(|moved| removed.map(|()| moved)).map_err(failed)
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
        let density = (allocated_bytes as f64 / size_bytes as f64).min(1.0);
        let mut copied = Vec::new();
        for &(from, to) in &plan.copy {
            let region = &layout.regions()[layout.region_at(from)];
            copied.extend(region.stripes().iter().enumerate().map(|(slot, stripe)| {
                let bytes = region.bytes_before(slot, to) - region.bytes_before(slot, from);
                (stripe.server, (bytes as f64 * density).ceil() as u64)
            }));
        }
        let moved_bytes = plan.copy.iter().map(|(from, to)| to - from).sum();
        Ok(ChangeOfSpace { copied, freed, moved_bytes })
    }

    fn move_locked(
        &self,
        hash: [u8; 32],
        layout: Arc<Layout>,
        name: &str,
        gives_way: bool,
        go_on: &mut dyn FnMut(&Move<'_>, u64) -> Result<()>,
    ) -> Result<Moved> {
        let handle = self.read_handle()?;
        let size_bytes = self.stat()?.st_size as u64;
        if handle.layout == hash {
            return Ok(Moved { copied_bytes: 0, kept_bytes: size_bytes, checksum: *blake3::hash(&[]).as_bytes() });
        }
        let mut moving = Move::start(self, handle, layout, size_bytes)?;
        let mut steps = Steps::new(gives_way, moving.servers());
        loop {
            let began = Instant::now();
            if !moving.step(&steps)? {
                break;
            }
            steps.took(began.elapsed());
            go_on(&moving, steps.bytes())?;
        }
        moving.finish(hash, name)
    }

    /// The times of a file without a writer.
    fn times(&self) -> Result<Timestamps> {
        let stat = self.stat()?;
        let time = |tv_sec, ns| Timespec { tv_sec, tv_nsec: ns };
        Ok(Timestamps {
            last_access: time(stat.st_atime, stat.st_atime_nsec as _),
            last_modification: time(stat.st_mtime, stat.st_mtime_nsec as _),
        })
    }

    /// The one step that makes the new layout the file's. On failure the old handle stands.
    fn switch(&self, handle: &Handle) -> Result<()> {
        let before = self.read_handle()?;
        let synced = |inode: &Self| retry(|| rustix::fs::fsync(inode.descriptor())).map_err(inode.failed("sync"));
        synced(self)?;
        self.write_handle(handle)?;
        synced(self).inspect_err(|_| {
            // It is unknown which of the two the disk has; both are whole as long as neither generation is removed.
            let _ = self.write_handle(&before);
        })
    }
}

/// A move under way, by the holder of the file's structural lock. Each [`Move::step`] copies a part of one region or
/// reads it back; [`Move::finish`] makes the copy the file. Dropped before that, it leaves the file as it was.
struct Move<'a> {
    inode: &'a Inode,
    handle: Handle,
    plan: MovePlan,
    times: Timestamps,
    size_bytes: u64,
    old: Arc<PlacedFile>,
    copy: PlacedFile,
    created: RefCell<Vec<Datafile>>,
    /// What of `plan.copy` is next, and how many bytes of it are done.
    next: (usize, u64),
    /// Bytes copied and read back.
    done_bytes: u64,
    /// Bytes copied since the last sync.
    unsynced_bytes: u64,
    reads_back: bool,
    original: blake3::Hasher,
    copied: blake3::Hasher,
    buffer: Vec<u8>,
    has_switched: bool,
}

impl<'a> Move<'a> {
    fn start(inode: &'a Inode, handle: Handle, layout: Arc<Layout>, size_bytes: u64) -> Result<Self> {
        inode.remove_strangers(&handle)?;
        let times = inode.times()?;
        let old = inode.file()?;
        let before = old.current_placement();
        let version = handle.version.wrapping_add(1);
        let plan = MovePlan::new(&before, &layout, version, size_bytes)?;
        let mut placement = Placement {
            version,
            generations: plan.generations.clone(),
            layout,
            present: Default::default(),
            ..before.clone()
        };
        // Datafiles of regions that stay exist already.
        for (index, datafile) in placement.datafiles()?.table.iter().enumerate() {
            let known = old.datafiles().table.iter().position(|other| other == datafile);
            if known.is_some_and(|known| before.present.contains(known)) {
                placement.present.insert(index);
            }
        }
        let own = inode.descriptor().try_clone_to_owned().map_err(|_| inode.failed("duplicate")(Errno::MFILE))?;
        let copy = PlacedFile::new(inode.store.plane().clone(), placement, Some(Arc::new(own)))?;
        Ok(Self {
            inode,
            handle,
            plan,
            times,
            size_bytes,
            old,
            copy,
            created: RefCell::default(),
            next: (0, 0),
            done_bytes: 0,
            unsynced_bytes: 0,
            reads_back: false,
            original: blake3::Hasher::new(),
            copied: blake3::Hasher::new(),
            buffer: Vec::new(),
            has_switched: false,
        })
    }

    /// Bytes of the file that are copied.
    fn copied_bytes(&self) -> u64 {
        self.plan.copy.iter().map(|(from, to)| to - from).sum()
    }

    /// How many servers, at least, share each of its steps.
    fn servers(&self) -> usize {
        let stripes = |layout: &Layout, at| layout.regions()[layout.region_at(at)].stripes().len();
        let of = |&(from, _): &(u64, u64)| {
            stripes(&self.old.datafiles().placed, from).min(stripes(&self.copy.datafiles().placed, from))
        };
        self.plan.copy.iter().map(of).min().unwrap_or(1)
    }

    /// What [`Move::step`] comes to at last: all is copied, and read back.
    fn total_bytes(&self) -> u64 {
        self.copied_bytes() * 2
    }

    /// Copies the bytes of one of the `steps` within a region, or reads as many back once all is copied and synced. `false`:
    /// nothing is left to do.
    fn step(&mut self, steps: &Steps) -> Result<bool> {
        let (number, done) = self.next;
        let Some(&(from, to)) = self.plan.copy.get(number) else {
            if self.reads_back {
                return Ok(false);
            }
            self.set_times()?;
            self.sync()?;
            (self.reads_back, self.next) = (true, (0, 0));
            return self.step(steps);
        };
        let at = from + done;
        let len = steps.bytes().min(to - at);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(buffer.len().max(len as usize), 0);
        let chunk = &mut buffer[..len as usize];
        if self.reads_back {
            self.read(&self.copy, chunk, at)?;
            self.copied.update(chunk);
        } else {
            self.read(&self.old, chunk, at)?;
            self.original.update(chunk);
            self.write(chunk, at)?;
            self.unsynced_bytes += len;
            if self.unsynced_bytes >= steps.unsynced_bytes() {
                self.copy.sync(true)?;
                self.unsynced_bytes = 0;
            }
        }
        self.buffer = buffer;
        self.next = if at + len == to { (number + 1, 0) } else { (number, done + len) };
        self.done_bytes += len;
        Ok(true)
    }

    /// Makes the copy the file, whose layout is kept as `hash` then. `name` stands in errors.
    fn finish(mut self, hash: [u8; 32], name: &str) -> Result<Moved> {
        let (original, copied) = (self.original.finalize(), self.copied.finalize());
        if original != copied {
            let (original, copied) = (original.to_hex().to_string(), copied.to_hex().to_string());
            return Err(Error::Checksum { file: name.to_owned(), original, copied });
        }
        let placement = self.copy.current_placement();
        let mut optimisations = self.handle.optimisations.clone();
        let head_bytes = placement.layout.head_in_inode_bytes();
        if hints::small(&optimisations).is_some_and(|small| small.value(0) != head_bytes) {
            // The new layout says where the first bytes are, and no longer the hint that the file was made with.
            optimisations.disable(SMALL.index);
        }
        let switched = Handle {
            version: placement.version,
            optimisations,
            layout: hash,
            generations: placement.generations,
            present: placement.present,
            truncating_to: Some(self.size_bytes),
            ..self.handle.clone()
        };
        self.inode.record_move(&self.old, &self.copy, self.size_bytes)?;
        self.inode.switch(&switched)?;
        self.has_switched = true;
        // The move is done. What cannot be cleared now (a server that is away) is left to the next writer; to free what
        // other regions had in the inode and in datafiles is no change of the file.
        let _ = self.inode.finish_change();
        self.inode.remove_those_behind(&self.old, &self.copy);
        let _ = self.set_times();
        let copied_bytes = self.copied_bytes();
        Ok(Moved { copied_bytes, kept_bytes: self.size_bytes - copied_bytes, checksum: *original.as_bytes() })
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
    /// anything from before.
    fn write(&self, chunk: &[u8], at: u64) -> Result<()> {
        const BLOCK: usize = 64 << 10;
        let layout = &self.copy.placement().layout;
        let in_inode = layout.regions()[layout.region_at(at)].stripes()[0].server == ServerId::META;
        let zeros = |block: &[u8]| !in_inode && block.iter().all(|&byte| byte == 0);
        let mut from = 0;
        while from < chunk.len() {
            let mut to = (from + BLOCK).min(chunk.len());
            if zeros(&chunk[from..to]) {
                from = to;
                continue;
            }
            while to < chunk.len() && !zeros(&chunk[to..(to + BLOCK).min(chunk.len())]) {
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

    /// Gives the copy the file's times: the last writer to close the file takes the latest of its datafiles'.
    fn set_times(&self) -> Result<()> {
        self.copy.for_each_present(|_, fd| rustix::fs::futimens(fd, &self.times))?;
        rustix::fs::futimens(self.inode.descriptor(), &self.times).map_err(self.inode.failed("set the times of"))
    }

    /// Makes the copy durable, names included.
    fn sync(&self) -> Result<()> {
        self.copy.sync(false)?;
        retry(|| rustix::fs::fsync(self.inode.descriptor())).map_err(self.inode.failed("sync"))?;
        self.created
            .borrow()
            .iter()
            .try_for_each(|datafile| sync_names(&self.inode.store, self.inode.handle(), *datafile))
    }
}

impl Drop for Move<'_> {
    /// Removes what a move that did not come to its end has made. What cannot be removed is left to the next move.
    fn drop(&mut self) {
        if self.has_switched {
            return;
        }
        let Ok(stat) = self.inode.stat() else { return };
        for datafile in self.created.borrow().iter() {
            let (store, identity) = (&self.inode.store, self.inode.identity());
            let _ = remove_datafile(store.plane(), self.inode.handle(), *datafile, stat.st_uid, identity);
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
            let change = inode.change_of_space(layout)?;
            moved_bytes.push(change.moved_bytes);
            ahead.add(file, &change)?;
        }
        Ok(Forecast { moved_bytes, rooms: ahead.rooms() })
    }
}
