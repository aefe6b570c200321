//! FUSE requests: each goes to one operation, and no panic gets out of it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use stripewise_control::Sender;
use stripewise_fuse::{
    AttrChange, Call, CopyRange, DirectoryEntries, EntryReply, FileAttr, FuseServer, OpenReply, Reply, RequestHeader,
    StatxReply, init, open_flags, write_flags,
};

use crate::attr::{Change, birth};
use crate::caller::Caller;
use crate::core::Core;
use crate::dir::OpenDir;
use crate::file::{NOTHING_KEPT_BACK, OpenFile};
use crate::names::{Made, Maker};
use crate::node::{Backing, Node};
use crate::sync::atomic::Ordering;
use crate::{Failure, control, log};

impl Core {
    fn errno(&self, node: Option<&Node>, what: &str, failure: Failure) -> Errno {
        match &failure {
            Failure::Errno(errno) => *errno,
            Failure::Store(error) => {
                match node {
                    Some(node) => self.report(node, what, &failure),
                    None if error.errno() == Errno::IO => log::error(&format!("{what}: {error}")),
                    None => {}
                }
                error.errno()
            }
        }
    }
}

/// A panic must not end the mount: the request is answered with EIO (its reply is dropped) and we go on.
fn guarded(what: &str, operation: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(operation)).is_err() {
        log::error(&format!("{what} failed by a defect of this program (see the message above); it goes on"));
    }
}

/// The handle of an open file or directory for the kernel: the reference itself.
fn into_handle<T>(open: Arc<T>) -> u64 {
    Arc::into_raw(open) as u64
}

/// # Safety
/// `handle` comes from [`into_handle`] of the same type, and has not been released.
unsafe fn borrow_handle<'a, T>(handle: u64) -> &'a T {
    // SAFETY: by the caller's promise it is a live reference.
    unsafe { &*(handle as *const T) }
}

/// # Safety
/// As [`borrow_handle`]; the handle is not used afterwards.
unsafe fn take_handle<T>(handle: u64) -> Arc<T> {
    // SAFETY: by the caller's promise this is the reference that `into_handle` gave away.
    unsafe { Arc::from_raw(handle as *const T) }
}

fn file<'a>(handle: u64) -> &'a OpenFile {
    // SAFETY: the kernel gives handles of regular files back as `open` and `create` made them, and never after their
    // release, which it sends when nothing uses them any more. The reference does not outlive the request.
    unsafe { borrow_handle(handle) }
}

fn directory<'a>(handle: u64) -> &'a OpenDir {
    // SAFETY: as in `file`, for the handles that `opendir` made.
    unsafe { borrow_handle(handle) }
}

/// The file system as the kernel asks it.
#[derive(Debug)]
pub struct PoolFs {
    core: Arc<Core>,
}

impl PoolFs {
    /// Serves `core`.
    pub fn new(core: Arc<Core>) -> PoolFs {
        PoolFs { core }
    }

    fn node(&self, ino: u64) -> Result<Arc<Node>, Errno> {
        self.core.table.get(ino)
    }

    fn reply_entry(
        &self,
        made: Result<(Arc<Node>, crate::attr::NodeAttributes), Failure>,
        user: u32,
        (parent, name): (u64, &OsStr),
        what: &str,
        reply: Reply<'_>,
    ) {
        match made {
            Ok((node, found)) => {
                self.core.count_node(&node, user);
                let name_holds = self.core.name_holds(parent, name);
                node.told(found.ttl);
                reply.entry(&EntryReply { attr: found.attr, name_holds, attr_holds: found.ttl });
            }
            Err(failure) => reply.error(self.core.errno(None, what, failure)),
        }
    }
}

fn reply_empty(result: Result<(), Errno>, reply: Reply<'_>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn reply_xattr(value: Result<Vec<u8>, Errno>, size: u32, reply: Reply<'_>) {
    match value {
        Ok(value) if size == 0 => reply.xattr_size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::RANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}

/// Whether the answer to `call` can say for how long a name holds, or the call moves a name.
fn may_name(call: &Call<'_>) -> bool {
    matches!(
        call,
        Call::Lookup { .. }
            | Call::MkNod { .. }
            | Call::MkDir { .. }
            | Call::SymLink { .. }
            | Call::Link { .. }
            | Call::Rename { .. }
            | Call::Create { .. }
            | Call::TmpFile { .. }
            | Call::ReadDirPlus { .. }
    )
}

impl FuseServer for PoolFs {
    fn serve(&self, request: &RequestHeader, call: Call<'_>, reply: Reply<'_>) {
        let ino = request.ino;
        // It waits before it does anything, so that nothing is held meanwhile.
        let _served =
            match self.core.charged.of(&call, ino).map(|op| self.core.store.plane().serve_names(op, ino)).transpose() {
                Ok(served) => served,
                Err(error) => {
                    log::error(&error.to_string());
                    return reply.error(error.errno());
                }
            };
        let _answer = may_name(&call).then(|| self.core.believed.answer());
        self.foresee(&call);
        match call {
            Call::Lookup { name } => self.lookup(request, name, reply),
            Call::GetAttr => self.getattr(ino, reply),
            Call::Statx => self.statx(ino, reply),
            Call::SetAttr(change) => self.setattr(request, &change, reply),
            Call::ReadLink => self.readlink(ino, reply),
            Call::SymLink { name, target } => self.symlink(request, name, target, reply),
            Call::MkNod { name, mode, umask, rdev } => {
                self.mknod(request, name, Maker { mode, umask, caller: Caller::of(request) }, rdev, reply);
            }
            Call::MkDir { name, mode, umask } => {
                self.mkdir(request, name, Maker { mode, umask, caller: Caller::of(request) }, reply);
            }
            Call::Unlink { name } => self.unlink(request, name, reply),
            Call::RmDir { name } => self.rmdir(request, name, reply),
            Call::Rename { name, to_parent, to_name, flags } => {
                self.rename(request, name, (to_parent, to_name), flags, reply);
            }
            Call::Link { ino, name } => self.link(request, ino, name, reply),
            Call::Open { flags } => self.open(request, flags, reply),
            Call::Create { name, flags, mode, umask } => {
                self.create(request, name, Maker { mode, umask, caller: Caller::of(request) }, flags, reply);
            }
            Call::TmpFile { flags, mode, umask } => {
                self.create_unnamed(request, Maker { mode, umask, caller: Caller::of(request) }, flags, reply);
            }
            Call::Read { handle, offset, size, by_syscall } => {
                self.read(request, handle, (offset, size), by_syscall, reply);
            }
            Call::Write { handle, offset, write_flags, flags, data } => {
                self.write(request, handle, (offset, data), (write_flags, flags), reply);
            }
            Call::Flush { handle } => self.flush(handle, reply),
            Call::Release { handle } => self.release(handle, reply),
            Call::FSync { handle, data_only } => self.fsync(request, handle, data_only, reply),
            Call::OpenDir => self.opendir(request, reply),
            Call::ReadDir { handle, offset, size } => self.readdir(handle, offset, size, reply),
            Call::ReadDirPlus { handle, offset, size } => self.readdirplus(request.pid, handle, (offset, size), reply),
            Call::ReleaseDir { handle } => self.releasedir(handle, reply),
            Call::FSyncDir { handle, data_only } => self.fsyncdir(handle, data_only, reply),
            Call::StatFs => self.statfs(reply),
            Call::SetXattr { name, value, flags } => self.setxattr(request, name, value, flags, reply),
            Call::GetXattr { name, size } => self.getxattr(request, name, size, reply),
            Call::ListXattr { size } => self.listxattr(request, size, reply),
            Call::RemoveXattr { name } => self.removexattr(request, name, reply),
            Call::Ioctl { handle, on_directory, command, data } => {
                self.ioctl(handle, on_directory, command, data, reply);
            }
            Call::FAllocate { handle, offset, length, mode } => {
                self.fallocate(request, handle, (offset, length), mode, reply);
            }
            Call::LSeek { handle, offset, whence } => self.lseek(handle, offset, whence, reply),
            Call::CopyFileRange(copy) => self.copy_file_range(request, &copy, reply),
            // The session keeps these to itself.
            Call::Forget { .. } | Call::ForgetMany(_) | Call::Init { .. } | Call::Destroy => reply.none(),
            Call::Other { .. } => reply.error(Errno::NOSYS),
        }
    }

    fn takes(&self) {
        self.core.workers.take(|| self.core.linger.has_come());
    }

    fn rests(&self, asker: u32, began: Instant) {
        let service = began.elapsed();
        let threads = self.core.crowd.served(asker, began);
        self.core.workers.rest(service, threads);
        // Many bytes are better moved by the processor that has them in its cache: that on which the program ran.
        if !self.core.crowd.moves_many(began) {
            self.core.linger.linger(began, service);
        }
    }

    fn forget(&self, ino: u64, lookups: u64) {
        guarded("forget", || self.core.table.forget(ino, lookups));
    }
}

impl PoolFs {
    /// Tells those who choose the threads what `call` will take.
    fn foresee(&self, call: &Call<'_>) {
        match call {
            Call::Read { size, .. } => self.core.crowd.moves(*size as usize),
            Call::Write { data, .. } => self.core.crowd.moves(data.len()),
            Call::FSync { .. } | Call::FSyncDir { .. } => self.core.workers.will_wait(),
            _ => {}
        }
    }

    /// Asks of the kernel what this file system does better with.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the mount is to leave to the kernel what programs write, and the kernel cannot.
    pub fn negotiate(&self, kernel: &mut init::Negotiation) -> std::io::Result<()> {
        // What a kernel does not have it works without: slower, or without shared maps of files.
        for wanted in [
            init::DIRECT_IO_ALLOW_MMAP,
            init::ATOMIC_O_TRUNC,
            init::ASYNC_DIO,
            init::PARALLEL_DIROPS,
            init::DO_READDIRPLUS,
            init::READDIRPLUS_AUTO,
            init::AUTO_INVAL_DATA,
            // Otherwise each write asks for an attribute first.
            init::HANDLE_KILLPRIV_V2,
            init::CACHE_SYMLINKS,
        ] {
            let _ = kernel.ask(wanted);
        }
        if self.core.writeback && !kernel.ask(init::WRITEBACK_CACHE) {
            return Err(std::io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        // With access control lists the umask counts only where the directory has no default list, which we look for.
        let has_acl = self.core.namespace_has_acl() && kernel.ask(init::POSIX_ACL | init::DONT_MASK);
        self.core.has_acl.store(has_acl, Ordering::Relaxed);
        if self.core.wants_passthrough {
            self.core.passthrough.store(kernel.ask(init::PASSTHROUGH), Ordering::Relaxed);
        }
        self.core.expires_names.store(kernel.ask(init::HAS_EXPIRE_ONLY), Ordering::Relaxed);
        kernel.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, request: &RequestHeader, name: &OsStr, reply: Reply<'_>) {
        let user = request.uid;
        guarded("lookup", || match self.core.admit(user).and_then(|()| self.core.lookup(request.ino, name)) {
            Err(Errno::NOENT) => {
                // Inode 0 is none: the kernel may remember that.
                let attr = FileAttr::default();
                let name_holds = self.core.absence_holds(request.ino, name);
                reply.entry(&EntryReply { attr, name_holds, attr_holds: Duration::ZERO });
            }
            found => {
                if matches!(&found, Ok((node, _)) if !node.kind.is_dir()) {
                    self.core.lookers.looks(request.pid, request.ino);
                }
                self.reply_entry(found.map_err(Failure::Errno), user, (request.ino, name), "lookup", reply);
            }
        });
    }

    fn getattr(&self, ino: u64, reply: Reply<'_>) {
        guarded("getattr", || {
            let found = self.core.table.get(ino).and_then(|node| Ok((self.core.attributes(&node, None)?, node)));
            match found {
                Ok((found, node)) => {
                    node.told(found.ttl);
                    reply.attr(&found.attr, found.ttl);
                }
                Err(errno) => reply.error(errno),
            }
        });
    }

    /// With the time of birth, which programs ask for by `statx`.
    fn statx(&self, ino: u64, reply: Reply<'_>) {
        guarded("statx", || {
            let found = self.core.table.get(ino).and_then(|node| {
                let (stat, made) = node.stat_with_birth()?;
                let found = self.core.attributes(&node, Some(stat))?;
                node.told(found.ttl);
                Ok(StatxReply { attr: found.attr, attr_holds: found.ttl, btime: made.map(birth) })
            });
            match found {
                Ok(found) => reply.statx(&found),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn setattr(&self, request: &RequestHeader, change: &AttrChange, reply: Reply<'_>) {
        guarded("setattr", || {
            let node = match self.node(request.ino) {
                Ok(node) => node,
                Err(errno) => return reply.error(errno),
            };
            let &AttrChange { mode, uid, gid, size_bytes, atime, mtime, handle } = change;
            let (caller, by_handle) = (Caller::of(request), handle.is_some());
            let change = Change { mode, uid, gid, size_bytes, by_handle, atime, mtime, caller };
            node.untold();
            let changed = self.core.change(&node, &change);
            match changed.and_then(|()| Ok(self.core.attributes(&node, None)?)) {
                Ok(found) => reply.attr(&found.attr, found.ttl),
                Err(failure) => reply.error(self.core.errno(Some(&node), "changing attributes", failure)),
            }
        });
    }

    fn readlink(&self, ino: u64, reply: Reply<'_>) {
        guarded("readlink", || match self.core.read_link(ino) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        });
    }

    fn mknod(&self, request: &RequestHeader, name: &OsStr, maker: Maker, rdev: u32, reply: Reply<'_>) {
        guarded("mknod", || {
            let made = self.core.admit(request.uid).map_err(Failure::Errno);
            let made = made.and_then(|()| self.core.make_node(request.ino, name, maker, rdev));
            self.reply_entry(made, request.uid, (request.ino, name), "creating a file", reply);
        });
    }

    fn mkdir(&self, request: &RequestHeader, name: &OsStr, maker: Maker, reply: Reply<'_>) {
        guarded("mkdir", || {
            let made = self.core.admit(request.uid);
            let made = made.and_then(|()| self.core.make_directory(request.ino, name, maker));
            self.reply_entry(made.map_err(Failure::Errno), request.uid, (request.ino, name), "mkdir", reply);
        });
    }

    fn symlink(&self, request: &RequestHeader, name: &OsStr, target: &OsStr, reply: Reply<'_>) {
        guarded("symlink", || {
            let maker = Maker { mode: 0, umask: 0, caller: Caller::of(request) };
            let make = |dir: &_, _| rustix::fs::symlinkat(target, dir, name);
            let made = self.core.admit(request.uid);
            let made = made.and_then(|()| self.core.make_other(request.ino, name, maker, make));
            self.reply_entry(made.map_err(Failure::Errno), request.uid, (request.ino, name), "symlink", reply);
        });
    }

    fn unlink(&self, request: &RequestHeader, name: &OsStr, reply: Reply<'_>) {
        guarded("unlink", || reply_empty(self.core.unlink(Caller::of(request), request.ino, name), reply));
    }

    fn rmdir(&self, request: &RequestHeader, name: &OsStr, reply: Reply<'_>) {
        guarded("rmdir", || reply_empty(self.core.rmdir(Caller::of(request), request.ino, name), reply));
    }

    fn rename(&self, request: &RequestHeader, name: &OsStr, to: (u64, &OsStr), flags: u32, reply: Reply<'_>) {
        guarded("rename", || {
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags);
            reply_empty(self.core.rename(Caller::of(request), (request.ino, name), to, flags), reply);
        });
    }

    fn link(&self, request: &RequestHeader, ino: u64, name: &OsStr, reply: Reply<'_>) {
        guarded("link", || {
            self.reply_entry(
                self.core.link(Caller::of(request), ino, request.ino, name).map_err(Failure::Errno),
                request.uid,
                (request.ino, name),
                "link",
                reply,
            )
        });
    }

    fn open(&self, request: &RequestHeader, flags: i32, reply: Reply<'_>) {
        guarded("open", || {
            let node = match self.node(request.ino) {
                Ok(node) => node,
                Err(errno) => return reply.error(errno),
            };
            if let Err(errno) = self.core.check_open(Caller::of(request), &node, flags) {
                return reply.error(errno);
            }
            node.untold();
            let own = match self.core.admit_open(request.uid, self.core.most_descriptors()) {
                Ok(own) => own,
                Err(errno) => return reply.error(errno),
            };
            let (sender, backing) =
                (Caller::of(request).sender(), |fd: &OwnedFd| reply.open_backing(fd.as_fd()).map(Backing::Kernel));
            match self.core.open(sender, node.clone(), flags, None, backing) {
                Ok(open) => {
                    self.core.count_open(&open, own);
                    if flags & libc::O_TRUNC != 0 && request.uid != 0 {
                        // The file is open and truncated by now; a bit that stays set is worth no failure.
                        let _ = self.core.drop_set_id(&node, Caller::of(request));
                    }
                    reply.opened(&self.open_reply(open));
                }
                Err(failure) => reply.error(self.core.errno(Some(&node), "opening", failure)),
            }
        });
    }

    fn create(&self, request: &RequestHeader, name: &OsStr, maker: Maker, flags: i32, reply: Reply<'_>) {
        guarded("create", || {
            let own = self
                .core
                .admit(request.uid)
                .and_then(|()| self.core.admit_open(request.uid, self.core.most_descriptors()));
            let own = match own {
                Ok(own) => own,
                Err(errno) => return reply.error(errno),
            };
            let backing = |fd: &OwnedFd| reply.open_backing(fd.as_fd()).map(Backing::Kernel);
            match self.create_and_open(request.ino, name, maker, flags, backing) {
                Ok((open, found)) => {
                    self.core.count_node(&open.node, request.uid);
                    self.core.count_open(&open, own);
                    let name_holds = self.core.name_holds(request.ino, name);
                    let entry = EntryReply { attr: found.attr, name_holds, attr_holds: found.ttl };
                    reply.created(&entry, &self.open_reply(open));
                }
                Err(failure) => reply.error(self.core.errno(None, "creating a file", failure)),
            }
        });
    }

    /// `O_TMPFILE`: a file that has no name, and gets one only by `linkat`.
    fn create_unnamed(&self, request: &RequestHeader, maker: Maker, flags: i32, reply: Reply<'_>) {
        guarded("tmpfile", || {
            let core = &self.core;
            let own =
                match core.admit(request.uid).and_then(|()| core.admit_open(request.uid, self.core.most_descriptors()))
                {
                    Ok(own) => own,
                    Err(errno) => return reply.error(errno),
                };
            let backing = |fd: &OwnedFd| reply.open_backing(fd.as_fd()).map(Backing::Kernel);
            let opened = core.table.get(request.ino).map_err(Failure::from).and_then(|dir| {
                let made = core.with_room(|| core.make_unnamed(&dir, maker))?;
                self.open_made(&made, maker, flags, backing)
            });
            match opened {
                Ok((open, found)) => {
                    core.count_node(&open.node, request.uid);
                    core.count_open(&open, own);
                    let entry = EntryReply { attr: found.attr, name_holds: Duration::ZERO, attr_holds: found.ttl };
                    reply.created(&entry, &self.open_reply(open));
                }
                Err(failure) => reply.error(core.errno(None, "creating a file without a name", failure)),
            }
        });
    }

    fn read(
        &self,
        request: &RequestHeader,
        handle: u64,
        (offset, size): (u64, u32),
        by_syscall: bool,
        reply: Reply<'_>,
    ) {
        guarded("read", || {
            let file = file(handle);
            // The kernel names the program's lock owner when a system call reads past its pages, and only then.
            let sender = Caller::of(request).sender();
            let read = reply.filled(size as usize, |room| file.read(sender, room, offset, by_syscall));
            if let Err((failure, reply)) = read {
                reply.error(self.core.errno(Some(&file.node), "reading", failure));
            }
        });
    }

    fn write(
        &self,
        request: &RequestHeader,
        handle: u64,
        (offset, data): (u64, &[u8]),
        (write_flags, flags): (u32, i32),
        reply: Reply<'_>,
    ) {
        guarded("write", || {
            let file = file(handle);
            let from_pages = write_flags & write_flags::CACHE != 0;
            if from_pages {
                file.shared.set_mapped();
            }
            // The kernel's idea of the end may be old; but with writeback_cache only the kernel knows it.
            let mut kept = OFlags::from_bits_retain(flags as u32);
            if self.core.writeback {
                kept.remove(OFlags::APPEND);
            }
            let allowed = self.core.drop_capabilities(&file.node, &file.shared).map_err(Failure::Errno);
            // Before the bytes change, as in the kernel: no program of another's has them and its owner's rights.
            let allowed = allowed.and_then(|()| match write_flags & write_flags::KILL_SUIDGID != 0 {
                true => Ok(self.core.drop_set_id(&file.node, Caller::of(request))?),
                false => Ok(()),
            });
            // O_SYNC of the open file, or of this write alone (RWF_SYNC); it has the bit of O_DSYNC, too.
            let (durable, data_only) = (flags & libc::O_DSYNC != 0, flags & libc::O_SYNC != libc::O_SYNC);
            let written = allowed
                .and_then(|()| match from_pages {
                    true => self.core.with_room(|| file.write_pages(data, offset)).map(|()| data.len()),
                    false => self.write_what_fits(file, Caller::of(request).sender(), data, offset, kept),
                })
                .and_then(|count| if durable { file.make_durable(data_only).map(|()| count) } else { Ok(count) });
            match written {
                Ok(count) => reply.written(count as u32),
                Err(failure) => reply.error(self.core.errno(Some(&file.node), "writing", failure)),
            }
        });
    }

    /// A program closes a descriptor. The kernel writes its pages back before that by itself, and asks only where something may be
    /// kept back here, but for kernels that do not know `FOPEN_NOFLUSH`.
    fn flush(&self, handle: u64, reply: Reply<'_>) {
        guarded("flush", || {
            let file = file(handle);
            let flushed = if file.writes_behind() { file.flush() } else { Ok(()) };
            match flushed {
                Ok(()) => reply.ok(),
                Err(failure) => reply.error(self.core.errno(Some(&file.node), "closing", failure)),
            }
        });
    }

    fn release(&self, handle: u64, reply: Reply<'_>) {
        guarded("release", || {
            // SAFETY: the last request for a handle that `open` or `create` made.
            let file: Arc<OpenFile> = unsafe { take_handle(handle) };
            self.core.close(&file);
            reply.ok();
        });
    }

    fn fsync(&self, request: &RequestHeader, handle: u64, data_only: bool, reply: Reply<'_>) {
        guarded("fsync", || {
            let file = file(handle);
            match file.sync(Caller::of(request).sender(), data_only) {
                Ok(()) => reply.ok(),
                Err(failure) => reply.error(self.core.errno(Some(&file.node), "syncing", failure)),
            }
        });
    }

    fn opendir(&self, request: &RequestHeader, reply: Reply<'_>) {
        guarded("opendir", || match OpenDir::open(&self.core, request.uid, request.ino) {
            Ok(open) => reply.opened(&OpenReply { handle: into_handle(open), flags: 0, backing: 0 }),
            Err(errno) => reply.error(errno),
        });
    }

    fn readdir(&self, handle: u64, offset: u64, size: u32, reply: Reply<'_>) {
        guarded("readdir", || {
            let mut entries = DirectoryEntries::new(size);
            match directory(handle).read(&self.core, offset, &mut entries) {
                Ok(()) => reply.entries(&entries),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn readdirplus(&self, program: u32, handle: u64, (offset, size): (u64, u32), reply: Reply<'_>) {
        guarded("readdirplus", || {
            let mut entries = DirectoryEntries::new(size);
            match directory(handle).read_plus(&self.core, program, offset, &mut entries) {
                Ok(()) => reply.entries(&entries),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn releasedir(&self, handle: u64, reply: Reply<'_>) {
        guarded("releasedir", || {
            // SAFETY: the last request for a handle that `opendir` made.
            drop(unsafe { take_handle::<OpenDir>(handle) });
            reply.ok();
        });
    }

    fn fsyncdir(&self, handle: u64, data_only: bool, reply: Reply<'_>) {
        guarded("fsyncdir", || reply_empty(directory(handle).sync(data_only), reply));
    }

    fn statfs(&self, reply: Reply<'_>) {
        guarded("statfs", || match self.core.space() {
            Ok(space) => reply.space(&space),
            Err(errno) => reply.error(errno),
        });
    }

    fn setxattr(&self, request: &RequestHeader, name: &OsStr, value: &[u8], flags: i32, reply: Reply<'_>) {
        guarded("setxattr", || {
            let node = self.core.table.get(request.ino);
            let set = node.and_then(|node| self.core.set_xattr(&node, name, value, flags, Caller::of(request)));
            reply_empty(set, reply);
        });
    }

    fn getxattr(&self, request: &RequestHeader, name: &OsStr, size: u32, reply: Reply<'_>) {
        guarded("getxattr", || {
            let caller = Caller::of(request);
            let value = self.core.table.get(request.ino).and_then(|node| self.core.get_xattr(&node, name, caller));
            reply_xattr(value, size, reply);
        });
    }

    fn listxattr(&self, request: &RequestHeader, size: u32, reply: Reply<'_>) {
        guarded("listxattr", || {
            let caller = Caller::of(request);
            let names = self.core.table.get(request.ino).and_then(|node| self.core.list_xattr(&node, caller));
            reply_xattr(names, size, reply);
        });
    }

    fn removexattr(&self, request: &RequestHeader, name: &OsStr, reply: Reply<'_>) {
        guarded("removexattr", || {
            let caller = Caller::of(request);
            let removed = self.core.table.get(request.ino).and_then(|node| self.core.remove_xattr(&node, name, caller));
            reply_empty(removed, reply);
        });
    }

    fn ioctl(&self, handle: u64, on_directory: bool, command: u32, payload: &[u8], reply: Reply<'_>) {
        guarded("ioctl", || {
            if on_directory {
                return match control::answer_of_directory(command) {
                    Ok(answer) => reply.ioctl(&answer),
                    Err(errno) => reply.error(errno),
                };
            }
            let file = file(handle);
            match control::answer(&self.core, file, command, payload) {
                Ok(answer) => reply.ioctl(&answer),
                Err(failure) => reply.error(self.core.errno(Some(&file.node), "ioctl", failure)),
            }
        });
    }

    fn fallocate(
        &self,
        request: &RequestHeader,
        handle: u64,
        (offset, length): (u64, u64),
        mode: i32,
        reply: Reply<'_>,
    ) {
        guarded("fallocate", || {
            let file = file(handle);
            let caller = Caller::of(request);
            let allowed = self.core.drop_before_change(file, caller);
            let allocate = || file.allocate(caller.sender(), mode, offset, length);
            let allocated = allowed.and_then(|()| self.core.with_room(allocate));
            match allocated.and_then(|()| file.settle_whole()) {
                Ok(()) => reply.ok(),
                Err(failure) => reply.error(self.core.errno(Some(&file.node), "allocating", failure)),
            }
        });
    }

    fn lseek(&self, handle: u64, offset: i64, whence: i32, reply: Reply<'_>) {
        guarded("lseek", || {
            if self.core.writeback {
                // What the kernel keeps is not in the datafiles: to it all is data up to the end that it knows.
                return reply.error(Errno::NOSYS);
            }
            let file = file(handle);
            match file.seek(offset, whence) {
                Ok(found) => reply.number(found.cast_unsigned()),
                Err(failure) => reply.error(self.core.errno(Some(&file.node), "seeking", failure)),
            }
        });
    }

    fn copy_file_range(&self, request: &RequestHeader, copy: &CopyRange, reply: Reply<'_>) {
        guarded("copy_file_range", || {
            let (from, to, sender) = (file(copy.handle), file(copy.to_handle), Caller::of(request).sender());
            let allowed = self.core.drop_before_change(to, Caller::of(request));
            let copied = allowed.and_then(|()| from.copy_to(sender, copy.offset, to, copy.to_offset, copy.length));
            if self.core.neighbours.believes() {
                // The kernel does not take a copy for a read of the one file, and may have its time of access from before this open.
                self.core.forget_attributes(&from.node);
            }
            match copied {
                Ok(count) if copy.counts_in_64_bits => reply.number(count),
                // A copy ends after a few MiB, so that it fits.
                Ok(count) => reply.written(count as u32),
                Err(failure) => reply.error(self.core.errno(Some(&to.node), "copying", failure)),
            }
        });
    }
}

impl PoolFs {
    /// What the kernel is told of an open file, which it has from now on.
    fn open_reply(&self, open: Arc<OpenFile>) -> OpenReply {
        let (flags, backing) = match &open.shared.backing {
            Some(Backing::Kernel(id)) => (open_flags::PASSTHROUGH | NOTHING_KEPT_BACK, id.number()),
            _ => (self.core.open_flags(&open), 0),
        };
        OpenReply { handle: into_handle(open), flags, backing }
    }

    /// Writes; where a disk is full, again with the room of files that were removed, as [`Core::with_room`].
    fn write_what_fits(
        &self,
        file: &OpenFile,
        sender: Sender,
        data: &[u8],
        offset: u64,
        flags: OFlags,
    ) -> Result<usize, Failure> {
        let written = self.core.with_room(|| file.write(sender, data, offset, flags))?;
        // What an append has left over would not be one piece with it.
        if written < data.len() && !flags.contains(OFlags::APPEND) && self.core.removals.make_room() {
            let rest = file.write(sender, &data[written..], offset + written as u64, flags);
            return Ok(written + rest.unwrap_or(0));
        }
        Ok(written)
    }

    /// Opens a file that has just been made, which the kernel has no reference to if that fails.
    fn open_made(
        &self,
        made: &Made,
        maker: Maker,
        flags: i32,
        open_backing: impl FnOnce(&OwnedFd) -> Option<Backing>,
    ) -> Result<(Arc<OpenFile>, crate::attr::NodeAttributes), Failure> {
        let (core, sender) = (&self.core, maker.caller.sender());
        let opened = core.open(sender, made.node.clone(), flags, Some(made.placed.clone()), open_backing);
        let open = opened.inspect_err(|_| core.table.forget(made.node.ino, 1))?;
        Ok((open, core.attributes_of_made(made)))
    }

    /// Creates a file and opens it; or opens it, when another has made it meanwhile and that is all right.
    fn create_and_open(
        &self,
        parent: u64,
        name: &OsStr,
        maker: Maker,
        flags: i32,
        open_backing: impl FnOnce(&OwnedFd) -> Option<Backing>,
    ) -> Result<(Arc<OpenFile>, crate::attr::NodeAttributes), Failure> {
        let core = &self.core;
        let dir = core.table.get(parent)?;
        match core.with_room(|| core.make_file(&dir, name, maker)) {
            Ok(made) => self.open_made(&made, maker, flags, open_backing),
            Err(Failure::Errno(Errno::EXIST)) if flags & libc::O_EXCL == 0 => {
                let node = core.table.lookup(&dir, name)?.0;
                // Another's, which the kernel has not looked at.
                let allowed = core.check_open(maker.caller, &node, flags).map_err(Failure::from);
                let opened =
                    allowed.and_then(|()| core.open(maker.caller.sender(), node.clone(), flags, None, open_backing));
                let opened = opened.and_then(|open| match core.attributes(&node, None) {
                    Ok(found) => Ok((open, found)),
                    Err(errno) => {
                        core.close(&open);
                        Err(errno.into())
                    }
                });
                opened.inspect_err(|_| core.table.forget(node.ino, 1))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_stays_inside_its_request() {
        let mut after = false;
        guarded("a test", || panic!("on purpose"));
        guarded("a test", || after = true);
        assert!(after);
    }
}
