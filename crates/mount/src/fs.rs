//! FUSE requests: each goes to one operation, and no panic gets out of it.

use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;
use stripewise_control::Sender;

use crate::attr::{Change, LONG};
use crate::caller::Caller;
use crate::core::Core;
use crate::dir::OpenDir;
use crate::file::OpenFile;
use crate::names::Maker;
use crate::node::{Backing, Node};
use crate::sync::atomic::Ordering;
use crate::{Failure, control, log};

impl Core {
    fn errno(&self, node: Option<&Node>, what: &str, failure: Failure) -> fuser::Errno {
        match &failure {
            Failure::Errno(errno) => fuse_errno(*errno),
            Failure::Store(error) => {
                match node {
                    Some(node) => self.report(node, what, &failure),
                    None if error.errno() == Errno::IO => log::error(&format!("{what}: {error}")),
                    None => {}
                }
                fuse_errno(error.errno())
            }
        }
    }
}

fn fuse_errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

/// A panic must not end the mount: the request is answered with EIO (its reply is dropped) and we go on.
fn guarded(what: &str, operation: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(operation)).is_err() {
        log::error(&format!("{what} failed by a defect of this program (see the message above); it goes on"));
    }
}

/// The handle of an open file or directory for the kernel: the reference itself.
fn into_handle<T>(open: Arc<T>) -> FileHandle {
    FileHandle(Arc::into_raw(open) as u64)
}

/// # Safety
/// `handle` comes from [`into_handle`] of the same type, and has not been released.
unsafe fn borrow_handle<'a, T>(handle: FileHandle) -> &'a T {
    // SAFETY: by the caller's promise it is a live reference.
    unsafe { &*(handle.0 as *const T) }
}

/// # Safety
/// As [`borrow_handle`]; the handle is not used afterwards.
unsafe fn take_handle<T>(handle: FileHandle) -> Arc<T> {
    // SAFETY: by the caller's promise this is the reference that `into_handle` gave away.
    unsafe { Arc::from_raw(handle.0 as *const T) }
}

fn file<'a>(handle: FileHandle) -> &'a OpenFile {
    // SAFETY: the kernel gives handles of regular files back as `open` and `create` made them, and never after their
    // release, which it sends when nothing uses them any more. The reference does not outlive the request.
    unsafe { borrow_handle(handle) }
}

fn directory<'a>(handle: FileHandle) -> &'a OpenDir {
    // SAFETY: as in `file`, for the handles that `opendir` made.
    unsafe { borrow_handle(handle) }
}

/// The file system as fuser drives it.
#[derive(Debug)]
pub struct PoolFs {
    core: Arc<Core>,
}

impl PoolFs {
    /// Serves `core`.
    pub fn new(core: Arc<Core>) -> PoolFs {
        PoolFs { core }
    }

    /// Carries out one request that a program may be waiting for.
    fn serve(&self, what: &str, operation: impl FnOnce()) {
        self.core.workers.take();
        let began = Instant::now();
        guarded(what, operation);
        let service = began.elapsed();
        self.core.workers.rest();
        self.core.linger.linger(began, service);
    }

    fn node(&self, ino: INodeNo) -> Result<Arc<Node>, fuser::Errno> {
        self.core.table.get(ino.0).map_err(fuse_errno)
    }

    fn reply_entry(
        &self,
        made: Result<(Arc<Node>, crate::attr::NodeAttributes), Failure>,
        user: u32,
        what: &str,
        reply: ReplyEntry,
    ) {
        match made {
            Ok((node, found)) => {
                self.core.count_node(&node, user);
                reply.entry_with_ttls(&found.ttl, &LONG, &found.attr, Generation(0));
            }
            Err(failure) => reply.error(self.core.errno(None, what, failure)),
        }
    }
}

/// Attributes of a name that does not exist.
fn no_attributes() -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn reply_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

fn reply_xattr(value: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(fuse_errno(errno)),
    }
}

impl Filesystem for PoolFs {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // What a kernel does not have it works without: slower, or without shared maps of files.
        for wanted in [
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            // Otherwise each write asks for an attribute first.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        if self.core.writeback && config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).is_err() {
            return Err(std::io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        // With access control lists the umask counts only where the directory has no default list, which we look for.
        let lists = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        let has_acl = self.core.namespace_has_acl() && config.add_capabilities(lists).is_ok();
        self.core.has_acl.store(has_acl, Ordering::Relaxed);
        if self.core.wants_passthrough && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() {
            // One level: the namespace itself is no stacked file system.
            self.core.passthrough.store(config.set_max_stack_depth(1).is_ok(), Ordering::Relaxed);
        }
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let user = request.uid();
        self.serve("lookup", || match self.core.admit(user).and_then(|()| self.core.lookup(parent.0, name)) {
            Err(Errno::NOENT) => {
                // Inode 0 is none: the kernel may remember that.
                let (holds, nothing) = (self.core.short(), no_attributes());
                reply.entry_with_ttls(&Duration::ZERO, &holds, &nothing, Generation(0));
            }
            found => self.reply_entry(found.map_err(Failure::Errno), user, "lookup", reply),
        });
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        guarded("forget", || self.core.table.forget(ino.0, lookups));
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.serve("getattr", || match self.core.table.get(ino.0).and_then(|node| self.core.attributes(&node, None)) {
            Ok(found) => reply.attr(&found.ttl, &found.attr),
            Err(errno) => reply.error(fuse_errno(errno)),
        });
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.serve("setattr", || {
            let node = match self.node(ino) {
                Ok(node) => node,
                Err(errno) => return reply.error(errno),
            };
            let (caller, by_handle) = (Caller::of(request), handle.is_some());
            let change = Change { mode, uid, gid, size_bytes: size, by_handle, atime, mtime, caller };
            let changed = self.core.change(&node, &change);
            match changed.and_then(|()| Ok(self.core.attributes(&node, None)?)) {
                Ok(found) => reply.attr(&found.ttl, &found.attr),
                Err(failure) => reply.error(self.core.errno(Some(&node), "changing attributes", failure)),
            }
        });
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        self.serve("readlink", || match self.core.read_link(ino.0) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(fuse_errno(errno)),
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.serve("mknod", || {
            let maker = Maker { mode, umask, caller: Caller::of(request) };
            let made = self.core.admit(request.uid()).map_err(Failure::Errno);
            let made = made.and_then(|()| self.core.make_node(parent.0, name, maker, rdev));
            self.reply_entry(made, request.uid(), "creating a file", reply);
        });
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.serve("mkdir", || {
            let maker = Maker { mode, umask, caller: Caller::of(request) };
            let made = self.core.admit(request.uid());
            let made = made.and_then(|()| self.core.make_directory(parent.0, name, maker));
            self.reply_entry(made.map_err(Failure::Errno), request.uid(), "mkdir", reply);
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.serve("symlink", || {
            let maker = Maker { mode: 0, umask: 0, caller: Caller::of(request) };
            let make = |dir: &_, _| rustix::fs::symlinkat(target, dir, name);
            let made = self.core.admit(request.uid());
            let made = made.and_then(|()| self.core.make_other(parent.0, name, maker, make));
            self.reply_entry(made.map_err(Failure::Errno), request.uid(), "symlink", reply);
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.serve("unlink", || reply_empty(self.core.unlink(Caller::of(request), parent.0, name), reply));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.serve("rmdir", || reply_empty(self.core.rmdir(Caller::of(request), parent.0, name), reply));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.serve("rename", || {
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            reply_empty(self.core.rename(Caller::of(request), (parent.0, name), (to_parent.0, to_name), flags), reply);
        });
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.serve("link", || {
            self.reply_entry(
                self.core.link(Caller::of(request), ino.0, parent.0, name).map_err(Failure::Errno),
                request.uid(),
                "link",
                reply,
            )
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.serve("open", || {
            let node = match self.node(ino) {
                Ok(node) => node,
                Err(errno) => return reply.error(errno),
            };
            if let Err(errno) = self.core.check_open(Caller::of(request), &node, flags.0) {
                return reply.error(fuse_errno(errno));
            }
            let own = match self.core.opens.take(request.uid(), 1) {
                Ok(own) => own,
                Err(errno) => return reply.error(fuse_errno(errno)),
            };
            let (sender, backing) =
                (Caller::of(request).sender(), |fd: &_| reply.open_backing(fd).ok().map(Backing::Kernel));
            match self.core.open(sender, node.clone(), flags.0, None, backing) {
                Ok(open) => {
                    self.core.count_open(&open, own);
                    if flags.0 & libc::O_TRUNC != 0 && request.uid() != 0 {
                        // The file is open and truncated by now; a bit that stays set is worth no failure.
                        let _ = self.core.drop_set_id(&node, Caller::of(request));
                    }
                    let (shared, flags) = (open.shared.clone(), self.core.open_flags());
                    let handle = into_handle(open);
                    match &shared.backing {
                        Some(Backing::Kernel(id)) => reply.opened_passthrough(handle, FopenFlags::empty(), id),
                        _ => reply.opened(handle, flags),
                    }
                }
                Err(failure) => reply.error(self.core.errno(Some(&node), "opening", failure)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.serve("create", || {
            let maker = Maker { mode, umask, caller: Caller::of(request) };
            let own = self.core.admit(request.uid()).and_then(|()| self.core.opens.take(request.uid(), 1));
            let own = match own {
                Ok(own) => own,
                Err(errno) => return reply.error(fuse_errno(errno)),
            };
            match self
                .create_and_open(parent.0, name, maker, flags, |fd| reply.open_backing(fd).ok().map(Backing::Kernel))
            {
                Ok((open, found)) => {
                    self.core.count_node(&open.node, request.uid());
                    self.core.count_open(&open, own);
                    let (shared, flags) = (open.shared.clone(), self.core.open_flags());
                    let handle = into_handle(open);
                    // One time for name and attributes: that of the attributes, which are the shorter.
                    let none = FopenFlags::empty();
                    let (ttl, attr, generation) = (&found.ttl, &found.attr, Generation(0));
                    match &shared.backing {
                        Some(Backing::Kernel(id)) => reply.created_passthrough(ttl, attr, generation, handle, none, id),
                        _ => reply.created(ttl, attr, generation, handle, flags),
                    }
                }
                Err(failure) => reply.error(self.core.errno(None, "creating a file", failure)),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.serve("read", || {
            let file = file(handle);
            // The kernel names the program's lock owner when a system call reads past its pages, and only then.
            let mut reply = Some(reply);
            let read = file.read(Caller::of(request).sender(), offset, size as usize, owner.is_some(), |data| {
                if let Some(reply) = reply.take() {
                    reply.data(data);
                }
            });
            if let (Err(failure), Some(reply)) = (read, reply) {
                reply.error(self.core.errno(Some(&file.node), "reading", failure));
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.serve("write", || {
            let file = file(handle);
            let from_pages = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
            if from_pages {
                file.shared.set_mapped();
            }
            // The kernel's idea of the end may be old; but with writeback_cache only the kernel knows it.
            let append = flags.0 & libc::O_APPEND != 0 && !self.core.writeback;
            let allowed = self.core.drop_capabilities(&file.node, &file.shared).map_err(Failure::Errno);
            // Before the bytes change, as in the kernel: no program of another's has them and its owner's rights.
            let allowed = allowed.and_then(|()| match write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                true => Ok(self.core.drop_set_id(&file.node, Caller::of(request))?),
                false => Ok(()),
            });
            // O_SYNC of the open file, or of this write alone (RWF_SYNC); it has the bit of O_DSYNC, too.
            let (durable, data_only) = (flags.0 & libc::O_DSYNC != 0, flags.0 & libc::O_SYNC != libc::O_SYNC);
            let written = allowed
                .and_then(|()| match from_pages {
                    true => self.core.with_room(|| file.write_pages(data, offset)).map(|()| data.len()),
                    false => self.write_what_fits(file, Caller::of(request).sender(), data, offset, append),
                })
                .and_then(|count| if durable { file.make_durable(data_only).map(|()| count) } else { Ok(count) });
            match written {
                Ok(count) => reply.written(count as u32),
                Err(failure) => reply.error(self.core.errno(Some(&file.node), "writing", failure)),
            }
        });
    }

    /// The kernel writes its pages back before a close by itself; it does not ask again after this answer. (Some kernels
    /// would not write back either then, if they keep what programs write.)
    fn flush(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        if self.core.writeback { reply.ok() } else { reply.error(fuser::Errno::ENOSYS) }
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.serve("release", || {
            // SAFETY: the last request for a handle that `open` or `create` made.
            let file: Arc<OpenFile> = unsafe { take_handle(handle) };
            self.core.close(&file);
            reply.ok();
        });
    }

    fn fsync(&self, request: &Request, _ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.serve("fsync", || {
            let file = file(handle);
            match file.sync(Caller::of(request).sender(), data_only) {
                Ok(()) => reply.ok(),
                Err(failure) => reply.error(self.core.errno(Some(&file.node), "syncing", failure)),
            }
        });
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.serve("opendir", || match OpenDir::open(&self.core, request.uid(), ino.0) {
            Ok(open) => reply.opened(into_handle(open), FopenFlags::empty()),
            Err(errno) => reply.error(fuse_errno(errno)),
        });
    }

    fn readdir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.serve("readdir", || match directory(handle).read(&self.core, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(fuse_errno(errno)),
        });
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.serve("readdirplus", || match directory(handle).read_plus(&self.core, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(fuse_errno(errno)),
        });
    }

    fn releasedir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.serve("releasedir", || {
            // SAFETY: the last request for a handle that `opendir` made.
            drop(unsafe { take_handle::<OpenDir>(handle) });
            reply.ok();
        });
    }

    fn fsyncdir(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.serve("fsyncdir", || reply_empty(directory(handle).sync(data_only), reply));
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.serve("statfs", || match self.core.space() {
            Ok(space) => reply.statfs(
                space.f_blocks,
                space.f_bfree,
                space.f_bavail,
                space.f_files,
                space.f_ffree,
                space.f_bsize as u32,
                space.f_namemax as u32,
                space.f_frsize as u32,
            ),
            Err(errno) => reply.error(fuse_errno(errno)),
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.serve("setxattr", || {
            let node = self.core.table.get(ino.0);
            let set = node.and_then(|node| self.core.set_xattr(&node, name, value, flags, Caller::of(request)));
            reply_empty(set, reply);
        });
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.serve("getxattr", || {
            let caller = Caller::of(request);
            let value = self.core.table.get(ino.0).and_then(|node| self.core.get_xattr(&node, name, caller));
            reply_xattr(value, size, reply);
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.serve("listxattr", || {
            let caller = Caller::of(request);
            let names = self.core.table.get(ino.0).and_then(|node| self.core.list_xattr(&node, caller));
            reply_xattr(names, size, reply);
        });
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.serve("removexattr", || {
            let caller = Caller::of(request);
            let removed = self.core.table.get(ino.0).and_then(|node| self.core.remove_xattr(&node, name, caller));
            reply_empty(removed, reply);
        });
    }

    /// The kernel checks permissions itself (`default_permissions`).
    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        flags: IoctlFlags,
        command: u32,
        payload: &[u8],
        _out_bytes: u32,
        reply: ReplyIoctl,
    ) {
        self.serve("ioctl", || {
            if flags.contains(IoctlFlags::FUSE_IOCTL_DIR) {
                return match control::answer_of_directory(command) {
                    Ok(answer) => reply.ioctl(0, &answer),
                    Err(errno) => reply.error(fuse_errno(errno)),
                };
            }
            let file = file(handle);
            match control::answer(&self.core, file, command, payload) {
                Ok(answer) => reply.ioctl(0, &answer),
                Err(failure) => reply.error(self.core.errno(Some(&file.node), "ioctl", failure)),
            }
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.serve("fallocate", || {
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

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.serve("lseek", || {
            if self.core.writeback {
                // What the kernel keeps is not in the datafiles: to it all is data up to the end that it knows.
                return reply.error(fuser::Errno::ENOSYS);
            }
            let file = file(handle);
            match file.seek(offset, whence) {
                Ok(found) => reply.offset(found),
                Err(failure) => reply.error(self.core.errno(Some(&file.node), "seeking", failure)),
            }
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _from_ino: INodeNo,
        from_handle: FileHandle,
        from_offset: u64,
        _to_ino: INodeNo,
        to_handle: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.serve("copy_file_range", || {
            let (from, to) = (file(from_handle), file(to_handle));
            let allowed = self.core.drop_before_change(to, Caller::of(request));
            match allowed.and_then(|()| from.copy_to(Caller::of(request).sender(), from_offset, to, to_offset, length))
            {
                Ok(count) => reply.written(count as u32),
                Err(failure) => reply.error(self.core.errno(Some(&to.node), "copying", failure)),
            }
        });
    }
}

impl PoolFs {
    /// Writes; where a disk is full, again with the room of files that were removed, as [`Core::with_room`].
    fn write_what_fits(
        &self,
        file: &OpenFile,
        sender: Sender,
        data: &[u8],
        offset: u64,
        append: bool,
    ) -> Result<usize, Failure> {
        let written = self.core.with_room(|| file.write(sender, data, offset, append))?;
        // What an append has left over would not be one piece with it.
        if written < data.len() && !append && self.core.removals.make_room() {
            let rest = file.write(sender, &data[written..], offset + written as u64, false);
            return Ok(written + rest.unwrap_or(0));
        }
        Ok(written)
    }

    /// Creates a file and opens it; or opens it, when another has made it meanwhile and that is all right.
    fn create_and_open(
        &self,
        parent: u64,
        name: &OsStr,
        maker: Maker,
        flags: i32,
        open_backing: impl FnOnce(&std::os::fd::OwnedFd) -> Option<Backing>,
    ) -> Result<(Arc<OpenFile>, crate::attr::NodeAttributes), Failure> {
        let core = &self.core;
        let dir = core.table.get(parent)?;
        match core.with_room(|| core.make_file(&dir, name, maker)) {
            Ok(made) => {
                let opened =
                    core.open(maker.caller.sender(), made.node.clone(), flags, Some(made.placed.clone()), open_backing);
                let open = opened.inspect_err(|_| core.table.forget(made.node.ino, 1))?;
                Ok((open, core.attributes_of_made(&made)))
            }
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
