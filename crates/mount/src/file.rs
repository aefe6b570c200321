//! Open files: what they share, reads and writes.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use stripewise_control::{Sender, Way};
use stripewise_fuse::open_flags;
use stripewise_store::{Inode, KernelPages, OpenInode, OpenTerms, Requests};

use crate::core::Core;
use crate::node::{Backing, KnownFile, LostName, Node, SharedFile};
use crate::shares::{InodeHold, UserShare};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, thread};
use crate::{Failure, lock};

/// Most bytes one `copy_file_range` moves before it answers.
const COPY_BYTES: u64 = 8 << 20;
/// Bytes in one of its steps.
const COPY_STEP_BYTES: usize = 1 << 20;
/// How often a file that the kernel could serve is asked for before it is served the longer way: a move takes longer
/// than all of them, anything else less than one pause.
const REGISTER_TRIES: usize = 8;
const REGISTER_PAUSE: Duration = Duration::from_micros(250);

/// Flag of the kernel's own open of a program that it runs (`FMODE_EXEC`).
const RUNS: OFlags = OFlags::from_bits_retain(0x20);

/// One open of a regular file: what the kernel's file handle stands for.
#[derive(Debug)]
pub struct OpenFile {
    /// The inode.
    pub node: Arc<Node>,
    /// What it shares with other opens.
    pub shared: Arc<SharedFile>,
    /// The file. Registered as a writer from the open on, but of a file that this open has made from the first change on: many
    /// files are only made, and what has no bytes has none to lose. Of a file that is no more than its head in the inode, from the
    /// first change behind that on.
    open: OpenInode,
    /// The kernel alone may have what was written: no way in may go past it.
    pub kept_by_kernel: bool,
    /// The kernel runs it as a program.
    runs: bool,
    /// Its program knows where the bytes are.
    is_past_the_mount: AtomicBool,
    /// What it counts for its user.
    pub held: OnceLock<InodeHold>,
}

impl OpenFile {
    /// Registers this open as a writer, if it is not yet. One load when it is.
    ///
    /// # Errors
    /// Those of [`Inode::register_writer`].
    fn register(&self) -> Result<(), Failure> {
        if self.open.register()? {
            self.shared.writers.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Opened for writing.
    pub fn writes(&self) -> bool {
        self.open.writes()
    }

    /// Whether requests of this open have to come to the mount, which reads ahead of them or gathers them.
    pub fn has_to_pass_here(&self) -> bool {
        self.open.has_to_pass_here()
    }

    /// Whether the mount keeps back what this open writes, so that its close has to wait for it.
    pub fn writes_behind(&self) -> bool {
        !self.kept_by_kernel && self.shared.backing.is_none() && self.open.writes_behind()
    }

    /// Puts on the servers what was kept back, for a program that closes the file.
    ///
    /// # Errors
    /// What could not be written, until a sync has told of it.
    pub fn flush(&self) -> Result<(), Failure> {
        Ok(self.open.flush()?)
    }

    /// As [`OpenFile::register`], for a change that ends at byte `end`.
    ///
    /// # Errors
    /// As [`OpenFile::register`].
    fn register_up_to(&self, end: u64) -> Result<(), Failure> {
        if self.open.register_up_to(end)? {
            self.shared.writers.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// The requests of `sender` that change the file.
    fn changes(&self, sender: Sender) -> Result<Requests<'_>, Failure> {
        if !self.writes() {
            return Err(Errno::BADF.into());
        }
        self.register()?;
        Ok(self.open.sent_by(sender))
    }

    /// The requests of `sender` that change no byte from `end` on.
    fn changes_up_to(&self, sender: Sender, end: u64) -> Result<Requests<'_>, Failure> {
        if !self.writes() {
            return Err(Errno::BADF.into());
        }
        self.register_up_to(end)?;
        Ok(self.open.sent_by(sender))
    }

    /// A program is to be told where the bytes of the file are. If it may write past the mount, it is a writer
    /// from now on, of whose writes the kernel does not know.
    ///
    /// # Errors
    /// Those of [`Inode::register_writer`].
    pub fn let_past_the_mount(&self, core: &Core) -> Result<(), Failure> {
        if !self.is_past_the_mount.swap(true, Ordering::AcqRel) && core.neighbours.believes() {
            // The kernel learns of no read past the mount, and may still believe what it was told before this open.
            core.forget_attributes(&self.node);
        }
        if self.writes() && !self.kept_by_kernel {
            self.register()?;
            if !self.shared.grows_past_the_mount.swap(true, Ordering::AcqRel) {
                core.forget_attributes(&self.node);
            }
        }
        Ok(())
    }

    /// After a change of size or space, as [`Inode::settle_whole`].
    ///
    /// # Errors
    /// The store's.
    pub fn settle_whole(&self) -> Result<(), Failure> {
        Ok(self.open.inode().settle_whole()?)
    }

    /// Reads at `offset`; short only at the end of the file.
    ///
    /// # Errors
    /// The store's.
    pub fn read_at(&self, sender: Sender, buf: &mut [u8], offset: u64) -> Result<usize, Failure> {
        if let Some(epoch) = self.open.kept_epoch() {
            self.node.has_pages_of(epoch);
        }
        Ok(self.open.read_at(sender, &mut [IoSliceMut::new(buf)], offset)?)
    }

    /// The same; `syscall`: a program asked for the bytes by a system call, not the kernel for its pages.
    ///
    /// # Errors
    /// As [`OpenFile::read_at`].
    pub fn read(&self, sender: Sender, buf: &mut [u8], offset: u64, syscall: bool) -> Result<usize, Failure> {
        if syscall {
            return self.read_at(sender, buf, offset);
        }
        // Of pages that the kernel keeps for reads no program writes the bytes past the mount meanwhile.
        if self.open.kept_epoch().is_none() {
            self.shared.set_mapped();
        }
        self.read_pages(sender, buf, offset)
    }

    /// Reads for pages of the kernel's: what it is given fewer it takes for the end of the file, and fills with zeros. So a server
    /// that fails behind the first bytes fails all of it.
    fn read_pages(&self, sender: Sender, buf: &mut [u8], offset: u64) -> Result<usize, Failure> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(sender, &mut buf[done..], offset + done as u64)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    /// Writes at `offset`, or at the end if `flags` of the open file say so. What they want at once is not gathered.
    ///
    /// # Errors
    /// The store's.
    pub fn write(&self, sender: Sender, data: &[u8], offset: u64, flags: OFlags) -> Result<usize, Failure> {
        if flags.contains(OFlags::APPEND) {
            return Ok(self.changes(sender)?.append_blindly(data)?);
        }
        let end = offset.saturating_add(data.len() as u64);
        let requests = self.changes_up_to(sender, end)?;
        match self.writes_behind() && !flags.intersects(OFlags::DIRECT | OFlags::DSYNC) {
            true => Ok(self.open.write_at(sender, &[IoSlice::new(data)], offset)?),
            // What the kernel keeps, or serves by the backing file, it does not ask for here.
            false => Ok(requests.write_at(data, offset)?),
        }
    }

    /// Writes pages of the kernel's, all of them: the kernel overlooks that fewer bytes were written than it gave, and
    /// takes what is left for written. Only an error has it tell the program, by `fsync`, `msync` or `close`.
    ///
    /// # Errors
    /// As [`OpenFile::write`], the first of them; what can be written is written all the same.
    pub fn write_pages(&self, data: &[u8], offset: u64) -> Result<(), Failure> {
        let end = offset.saturating_add(data.len() as u64);
        Ok(self.changes_up_to(Sender::thread(Way::Mount, 0), end)?.write_all_at(data, offset)?)
    }

    /// Makes what was written durable, at a program's request.
    ///
    /// # Errors
    /// The store's, also of a sync of another open of the file, once.
    pub fn sync(&self, sender: Sender, data_only: bool) -> Result<(), Failure> {
        Ok(self.open.sync(sender, data_only)?)
    }

    /// Makes what was just written durable, as a part of the same request.
    ///
    /// # Errors
    /// As [`OpenFile::sync`].
    pub fn make_durable(&self, data_only: bool) -> Result<(), Failure> {
        Ok(self.open.make_durable(data_only)?)
    }

    /// `fallocate`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for modes the store does not have; the store's.
    pub fn allocate(&self, sender: Sender, mode: i32, offset: u64, len: u64) -> Result<(), Failure> {
        let mode = FallocateFlags::from_bits(mode as u32).ok_or(Errno::OPNOTSUPP)?;
        Ok(self.changes(sender)?.allocate(mode, offset, len)?)
    }

    /// `lseek` to data or to a hole; the kernel does the other kinds itself.
    ///
    /// Pages that a program has changed through a map are written here only later, and the kernel does not wait for
    /// that when it asks: so a file that may have such pages is all data.
    ///
    /// # Errors
    /// `ENXIO` when there is none, `EINVAL` for another kind.
    pub fn seek(&self, offset: i64, whence: i32) -> Result<i64, Failure> {
        let from = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let changing = self.shared.mapped.load(Ordering::Acquire) && self.shared.writable.load(Ordering::Acquire) > 0;
        let found = match whence {
            libc::SEEK_DATA | libc::SEEK_HOLE if changing => {
                let size = self.open.inode().certain_size_bytes()?;
                let found = if whence == libc::SEEK_DATA { from } else { size };
                if from < size { found } else { return Err(Errno::NXIO.into()) }
            }
            libc::SEEK_DATA => self.open.inode().seek_data(from)?,
            libc::SEEK_HOLE => self.open.inode().seek_hole(from)?,
            _ => return Err(Errno::INVAL.into()),
        };
        Ok(i64::try_from(found).map_err(|_| Errno::OVERFLOW)?)
    }

    /// Copies up to `len` bytes to `to` without the kernel carrying them; how many, 0 at the end of this file.
    ///
    /// # Errors
    /// Those of reading, and of writing when nothing was copied yet.
    pub fn copy_to(
        &self,
        sender: Sender,
        from_offset: u64,
        to: &OpenFile,
        to_offset: u64,
        len: u64,
    ) -> Result<u64, Failure> {
        let len = len.min(COPY_BYTES);
        let mut buffer = vec![0; COPY_STEP_BYTES.min(len as usize)];
        let mut done = 0;
        while done < len {
            let step = buffer.len().min((len - done) as usize);
            let got = match self.read_at(sender, &mut buffer[..step], from_offset + done) {
                Ok(0) => break,
                Ok(got) => got,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            match to.write(sender, &buffer[..got], to_offset + done, OFlags::empty()) {
                Ok(put) => done += put as u64,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Flags a file is opened with in the kernel: no page is kept but for maps, and writes of several threads that stay within
/// the file run side by side.
///
/// Pages would be right as long as this mount is alone, but an open that began so keeps its pages when another mount comes.
/// Then the kernel asks for size and time before it reads from them, and overlooks the answer if a write of its own to the same
/// file ends meanwhile: it gives what it has, however old.
pub const DIRECT: u32 = open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
/// A close of it need not be waited for.
pub const NOTHING_KEPT_BACK: u32 = open_flags::NOFLUSH;

impl Core {
    /// How the kernel is to treat an open file that it does not serve itself.
    pub fn open_flags(&self, open: &OpenFile) -> u32 {
        match open.writes_behind() {
            // Only this mount changes what its pages hold.
            _ if self.writeback => open_flags::KEEP_CACHE,
            true => DIRECT,
            false => match open.open.kept_epoch() {
                // What was read before the last writer came does not count.
                Some(epoch) if !open.node.keeps_pages_of(epoch) => NOTHING_KEPT_BACK,
                Some(_) => open_flags::KEEP_CACHE | NOTHING_KEPT_BACK,
                None => DIRECT | NOTHING_KEPT_BACK,
            },
        }
    }

    /// Counts an open of a file, of which `own` is the open itself.
    pub fn count_open(&self, open: &OpenFile, own: UserShare) {
        let user = own.user();
        let units = || open.shared.file.most_descriptors();
        open.held.get_or_init(|| InodeHold::new(&open.shared.holders, own, || self.opens.charge(user, units())));
    }

    /// Opens `node` with the flags of the `open` of `sender`; `open_backing` asks the kernel to serve a file itself. `made` is
    /// the file if it has just been made.
    ///
    /// # Errors
    /// The store's when the file's handle is damaged, those of `open`; `ESTALE` when the last name has just gone, `ETXTBSY` when
    /// the file is to be cut and is being run, or to be written while a kernel keeps its pages.
    pub fn open(
        &self,
        sender: Sender,
        node: Arc<Node>,
        flags: i32,
        made: Option<Arc<Inode>>,
        open_backing: impl FnOnce(&OwnedFd) -> Option<Backing>,
    ) -> Result<Arc<OpenFile>, Failure> {
        let flags = OFlags::from_bits_retain(flags as u32);
        let access = flags & OFlags::ACCMODE;
        let writes = access == OFlags::WRONLY || access == OFlags::RDWR;
        let is_new = made.is_some();
        let changes = writes || flags.contains(OFlags::TRUNC);
        let shared = self.share(&node, (writes, changes), made, open_backing)?;
        // Of an open that is to cut the file and not to write it, the kernel asks whether it is being run when this has been
        // answered, which would be too late.
        let ready = match changes && !writes && shared.running.load(Ordering::Acquire) > 0 {
            true => Err(Errno::TXTBSY.into()),
            false if changes => shared.file.open_to_change(node.fd.as_fd()).map_err(Failure::from),
            false => Ok(()),
        };
        ready.inspect_err(|_| self.unshare(lock(&node.shared), &node, &shared))?;
        if writes {
            shared.writable.fetch_add(1, Ordering::AcqRel);
            if shared.backing.is_some() && self.neighbours.believes() {
                // What is put into a map of a file that the kernel serves itself moves the time of the datafile alone.
                self.forget_attributes(&node);
            }
        }
        let runs = flags.contains(RUNS);
        if runs {
            shared.running.fetch_add(1, Ordering::AcqRel);
        }
        let kept_by_kernel = self.writeback;
        // With writeback_cache the kernel reads to fill pages of which a program writes a part.
        let notes_reads = self.notes_access && !flags.contains(OFlags::NOATIME) && !(writes && kept_by_kernel);
        let terms = OpenTerms {
            writes,
            notes_reads,
            at_once: flags.intersects(OFlags::DIRECT | OFlags::DSYNC),
            appends: flags.contains(OFlags::APPEND),
            pages: match shared.backing {
                Some(_) => KernelPages::ServesItself,
                None if kept_by_kernel => KernelPages::WritesBack,
                None if flags.contains(OFlags::DIRECT) => KernelPages::PastThem,
                None => KernelPages::MayKeep,
            },
        };
        let open = OpenInode::opened(shared.file.clone(), &terms);
        let file = Arc::new(OpenFile {
            node,
            shared,
            open,
            kept_by_kernel,
            runs,
            is_past_the_mount: AtomicBool::new(false),
            held: OnceLock::new(),
        });
        // Where a kernel may keep what others read, a write is no time to be told of that.
        if !is_new || file.open.inode().is_cached() {
            let requests = file.open.sent_by(sender);
            let truncate = || if flags.contains(OFlags::TRUNC) && !is_new { Ok(requests.truncate(0)?) } else { Ok(()) };
            file.register_up_to(0).and_then(|()| truncate()).inspect_err(|_| self.close(&file))?;
            if flags.contains(OFlags::TRUNC) && !is_new {
                file.open.begin_anew();
            }
        }
        Ok(file)
    }

    /// Undoes [`Core::open`]. The last close of a file without a name removes its datafiles.
    pub fn close(&self, file: &OpenFile) {
        // All of it under one lock: at the end of the mount, no datafile must go whose writer is half released.
        let slot = lock(&file.node.shared);
        if slot.is_some() {
            self.settle_access(file);
        }
        let one_less = |writers: usize| writers.checked_sub(1);
        // At the end of the mount all writers are released at once, and a late close must not do it again.
        if !file.open.is_registered()
            || file.shared.writers.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok()
        {
            self.note(&file.node, "closing", file.open.release());
        }
        if file.writes() {
            file.shared.writable.fetch_sub(1, Ordering::AcqRel);
        }
        if file.runs {
            file.shared.running.fetch_sub(1, Ordering::AcqRel);
        }
        self.unshare(slot, &file.node, &file.shared);
    }

    /// Puts the time of access into the inode. Reads of the kernel or of the program itself are not
    /// reported: the time is that of the datafiles then, unless the same open may have written them.
    fn settle_access(&self, file: &OpenFile) {
        if !file.open.notes_reads() {
            return;
        }
        let inode = &file.shared.file;
        let is_past = file.shared.backing.is_some() || file.is_past_the_mount.load(Ordering::Acquire);
        if is_past && !file.writes() {
            inode.settle_access_past();
        } else {
            inode.settle_access();
        }
    }

    /// Closes for good what is still open when the mount has ended: the kernel does not tell any more.
    pub fn close_all(&self) {
        self.table.all().iter().for_each(|node| self.close_for_good(node));
    }

    /// Closes all opens of `node`. One that its program closes later is closed already.
    pub fn close_for_good(&self, node: &Node) {
        let mut slot = lock(&node.shared);
        let Some(shared) = slot.take() else { return };
        let inode = &shared.file;
        for _ in 0..shared.writers.swap(0, Ordering::AcqRel) {
            self.note(node, "closing", inode.release_writer());
        }
        self.note(node, "closing", inode.release_heads());
        self.unpin(node, &shared);
        self.collect_locked(node, inode, lock(&shared.lost_name).take());
    }

    fn share(
        &self,
        node: &Arc<Node>,
        (writes, changes): (bool, bool),
        made: Option<Arc<Inode>>,
        open_backing: impl FnOnce(&OwnedFd) -> Option<Backing>,
    ) -> Result<Arc<SharedFile>, Failure> {
        let mut slot = lock(&node.shared);
        if slot.is_none() {
            let is_new = made.is_some();
            let file = match made {
                Some(made) => made,
                None => self.file_to_open(node, changes)?,
            };
            let backing = match self.passthrough.load(Ordering::Relaxed) {
                false => None,
                true if !file.can_be_served_by_kernel().unwrap_or(false) => None,
                // What the kernel writes to a backing file takes nothing from the inode that programs know.
                true if node.stat()?.st_mode & 0o6000 != 0 => None,
                true => self.backing_of(node, &file, writes, open_backing),
            };
            *slot = Some(Arc::new(SharedFile {
                pinned: AtomicBool::new(backing.is_some()),
                file,
                backing,
                opens: AtomicUsize::new(0),
                writable: AtomicUsize::new(0),
                running: AtomicUsize::new(0),
                writers: AtomicUsize::new(0),
                grows_past_the_mount: AtomicBool::new(false),
                lost_name: Mutex::new(None),
                mapped: AtomicBool::new(false),
                // Only who is told of a file gives it some.
                may_have_capabilities: AtomicBool::new(!is_new),
                holders: Arc::default(),
            }));
        }
        let shared = slot.as_ref().ok_or(Errno::STALE)?.clone();
        shared.opens.fetch_add(1, Ordering::AcqRel);
        self.opened.fetch_add(1, Ordering::AcqRel);
        Ok(shared)
    }

    /// The file of `node`, which is not open here, for one that `changes` it or not.
    fn file_to_open(&self, node: &Node, changes: bool) -> Result<Arc<Inode>, Failure> {
        let known = node.handle().map(|logical| self.store.inode_known(node.fd.as_fd(), logical));
        let (file, links) = match known.transpose()?.flatten() {
            Some((file, stat)) => (Some(file), stat.st_nlink),
            None => (None, node.stat()?.st_nlink),
        };
        // It is not open, so its datafiles go or have gone; the kernel looks the name up again.
        match file {
            _ if links == 0 => Err(Errno::STALE.into()),
            None => Ok(self.store.file(node.fd.as_fd(), changes)?),
            Some(file) => Ok(file),
        }
    }

    /// A file that [`Inode::can_be_served_by_kernel`] is the kernel's to read and write. It opens the backing file again for each
    /// open, with that open's own flags; only its path counts. The layout must stay as long as it is open, so it counts as being
    /// written. Any failure only means the longer way, here and now: another mount may pass through at the same time, so that no
    /// way may rely on a lock the other does not take ([`Inode::append`]).
    fn backing_of(
        &self,
        node: &Node,
        inode: &Arc<Inode>,
        writes: bool,
        open_backing: impl FnOnce(&OwnedFd) -> Option<Backing>,
    ) -> Option<Backing> {
        // Without waiting for a move, as we hold the node's lock; but an open or a close
        // under another mount has the file alone for a moment too.
        let registered = (0..REGISTER_TRIES).any(|attempt| {
            if attempt > 0 {
                thread::sleep(REGISTER_PAUSE);
            }
            inode.try_register_writer().unwrap_or(false)
        });
        if !registered {
            return None;
        }
        let served_by = inode.served_by(writes).ok().flatten();
        let backing = served_by.and_then(|fd| self.asked_for_backing(open_backing(&fd)));
        if backing.is_none() {
            self.note(node, "closing", inode.release_writer());
        }
        backing
    }

    /// A refusal means no privilege, or a file system that cannot: the kernel is not asked again.
    fn asked_for_backing(&self, backing: Option<Backing>) -> Option<Backing> {
        if backing.is_none() {
            self.passthrough.store(false, Ordering::Relaxed);
        }
        backing
    }

    fn unshare(&self, mut slot: MutexGuard<'_, Option<Arc<SharedFile>>>, node: &Node, shared: &SharedFile) {
        // None: the mount has ended, and closed it for good.
        if shared.opens.fetch_sub(1, Ordering::AcqRel) == 1 && slot.take().is_some() {
            self.unpin(node, shared);
            self.collect_locked(node, &shared.file, lock(&shared.lost_name).take());
        }
        drop(slot);
        self.opened.fetch_sub(1, Ordering::AcqRel);
    }

    /// Ends the registration that came with a backing. Once.
    fn unpin(&self, node: &Node, shared: &SharedFile) {
        if shared.pinned.swap(false, Ordering::AcqRel) {
            self.note(node, "closing", shared.file.release_writer());
        }
    }

    /// Removes the datafiles of a file that has lost a name in `directory`, if it was the last and it is not open here. `alone`: what
    /// was known of it before, if that was its only name and it had none. One system call, if it has none still.
    pub fn collect(&self, node: &Node, directory: &Arc<Node>, alone: Option<KnownFile>) {
        if !node.is_file() {
            return;
        }
        let slot = lock(&node.shared);
        let is_still_alone = |file: &KnownFile| {
            // In this order: datafiles are made, and noted in the handle, under the lock file.
            file.logical.is_none_or(|logical| {
                self.store.has_lock_file(logical).is_ok_and(|has| !has) && self.epoch_of(logical) == file.epoch
            })
        };
        if slot.is_none() && alone.as_ref().is_some_and(is_still_alone) {
            return;
        }
        let Ok(stat) = node.stat() else { return };
        let is_last = stat.st_nlink == 0;
        let found = match &*slot {
            // Nothing of it is elsewhere.
            Some(shared) if !shared.file.has_handle() => Ok(None),
            Some(shared) => {
                if is_last {
                    let noted = self.removals.note(&shared.file, &stat);
                    *lock(&shared.lost_name) = Some(LostName { directory: directory.clone(), noted });
                    return;
                }
                Ok(Some(shared.file.clone()))
            }
            None if is_last => self.store.remains(node.fd.as_fd(), stat.st_ino, node.handle()),
            // It may still get a writer.
            None => self.store.inode(node.fd.as_fd()),
        };
        match found {
            Ok(Some(file)) if is_last => self.removals.add(&self.store, file, &stat, Some(directory.clone())),
            Ok(Some(_)) => self.removals.forget_name(&self.store, directory.clone()),
            Ok(None) => {}
            Err(error) => self.note::<()>(node, "removing", Err(error)),
        }
    }

    /// For a change of a file by its name: whether that has gone, and no program has the file open here. One system call.
    pub fn is_nameless(&self, node: &Node) -> bool {
        node.is_file() && lock(&node.shared).is_none() && node.stat().is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// The caller holds the node's lock, so no thread opens the file meanwhile; none can afterwards.
    fn collect_locked(&self, node: &Node, inode: &Arc<Inode>, lost: Option<LostName>) {
        // What has no datafile leaves none, however it has lost its name.
        if lost.is_none() && inode.is_alone() {
            return;
        }
        let Ok(stat) = node.stat() else { return };
        match lost {
            _ if stat.st_nlink > 0 => {}
            Some(LostName { directory, noted: Some(slot) }) => {
                self.removals.add_noted(&self.store, inode.clone(), slot, directory);
            }
            lost => self.removals.add(&self.store, inode.clone(), &stat, lost.map(|lost| lost.directory)),
        }
    }
}
