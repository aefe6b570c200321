//! What a system call does to the disks.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use crate::trace::{OTHER, descriptor};

/// An inode below the base directory.
pub type Id = usize;

/// Kinds of inodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Symlink(PathBuf),
}

/// A change of one inode.
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes at an offset; they may extend the file.
    Write(u64, Vec<u8>),
    /// The size as such.
    Size(u64),
    /// A file at least that long.
    Extend(u64),
    /// A hole from an offset, of a length.
    Punch(u64, u64),
    Attribute(OsString, Option<Vec<u8>>),
    Owner(Option<u32>, Option<u32>),
    Mode(u32),
    /// Times and the like, which are not modelled.
    Other,
}

/// One effect.
#[derive(Clone, Debug)]
pub enum Effect {
    Made {
        id: Id,
        kind: Kind,
        mode: u32,
        owner: (u32, u32),
    },
    Changed(Id, Change),
    /// Names of directories lead elsewhere from now on, all at once.
    Names(Vec<(Id, OsString, Option<Id>)>),
    Synced {
        id: Id,
        data_only: bool,
    },
    /// Of everything.
    SyncedAll,
}

enum Action {
    Open { path: PathBuf, existed: bool, flags: u64 },
    Make { path: PathBuf, kind: Kind },
    Change { id: Id, change: Change },
    Write { id: Id, offset: u64, data: Vec<u8> },
    Link { id: Id, to: PathBuf },
    Unlink { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, exchange: bool },
    Sync { id: Id, data_only: bool },
    SyncAll,
}

/// The system calls that [`Objects::enter`] has an arm for, beside openat, which is one where it makes or empties a file.
pub const CALLS: &[i64] = &[
    libc::SYS_mkdirat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsetxattr,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fremovexattr,
    libc::SYS_removexattr,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_utimensat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_syncfs,
    libc::SYS_sync,
    libc::SYS_io_uring_enter,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
];

/// A call that is under way.
pub struct Call {
    name: &'static str,
    what: String,
    action: Action,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name, self.what)
    }
}

/// Bytes of a stopped process.
pub fn memory(tid: i32, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len };
    // SAFETY: `local` describes `bytes`; the kernel checks the other process's addresses.
    let got = unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
    bytes.truncate(got.max(0) as usize);
    bytes
}

/// A string of a stopped process.
fn text(tid: i32, address: u64) -> PathBuf {
    let mut out = Vec::new();
    loop {
        // Not across a page: the next one may not exist.
        let at = address + out.len() as u64;
        let chunk = memory(tid, at, (4096 - at % 4096) as usize);
        match chunk.iter().position(|&byte| byte == 0) {
            Some(end) => {
                out.extend(&chunk[..end]);
                return PathBuf::from(OsString::from_vec(out));
            }
            None if chunk.is_empty() => return PathBuf::from(OsString::from_vec(out)),
            None => out.extend(chunk),
        }
    }
}

/// The buffers of a vectored call, joined.
fn gather(tid: i32, address: u64, count: u64) -> Vec<u8> {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let vector = memory(tid, address, count as usize * 16);
    vector.chunks_exact(16).flat_map(|row| memory(tid, word(&row[..8]), word(&row[8..]) as usize)).collect()
}

/// The inodes that calls have met, and those there were.
pub struct Objects {
    base: PathBuf,
    /// Must not be touched: their server may be stopped.
    mounts: [PathBuf; 2],
    /// That of the base directory, and that of the namespace where it is another.
    devices: [u64; 2],
    known: HashMap<(u64, u64), Id>,
    /// Keep numbers from being used again.
    held: Vec<OwnedFd>,
}

impl Objects {
    pub fn new(base: &Path) -> Objects {
        let base = base.canonicalize().expect("the base directory exists");
        let device = fs::metadata(&base).expect("the base directory exists").dev();
        let of_names = fs::metadata(base.join("ns")).map_or(device, |meta| meta.dev());
        let mounts = ["mnt", OTHER].map(|name| base.join(name));
        Objects { base, mounts, devices: [device, of_names], known: HashMap::new(), held: Vec::new() }
    }

    /// The inode at `path` (links followed), if it is below the base directory, on its file system or that of the namespace.
    pub fn id(&mut self, path: &Path) -> Option<Id> {
        self.id_by(path, OFlags::PATH)
    }

    /// The same for a name that may be a symbolic link.
    pub fn id_of_name(&mut self, path: &Path) -> Option<Id> {
        self.id_by(path, OFlags::PATH | OFlags::NOFOLLOW)
    }

    fn id_by(&mut self, path: &Path, flags: OFlags) -> Option<Id> {
        if self.is_served(path) {
            return None;
        }
        let fd = rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        if !self.devices.contains(&stat.st_dev) {
            return None;
        }
        let key = (stat.st_dev, stat.st_ino);
        if let Some(&id) = self.known.get(&key) {
            return Some(id);
        }
        let own = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd))).ok()?;
        if !own.starts_with(&self.base) {
            return None;
        }
        let id = self.held.len();
        self.held.push(fd);
        self.known.insert(key, id);
        Some(id)
    }

    /// Whether a path leads into the mount.
    fn is_served(&self, path: &Path) -> bool {
        let descriptor: PathBuf = path.components().take(5).collect();
        let is_descriptor =
            path.starts_with("/proc") && descriptor.components().nth(3).is_some_and(|part| part.as_os_str() == "fd");
        let from = if is_descriptor { fs::read_link(&descriptor).unwrap_or_default() } else { path.to_owned() };
        self.mounts.iter().any(|mount| from.starts_with(mount))
    }

    fn below(&self, path: &Path) -> bool {
        if self.is_served(path) {
            return false;
        }
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        parent.is_some_and(|parent| {
            parent.starts_with(&self.base) && fs::metadata(&parent).is_ok_and(|meta| self.devices.contains(&meta.dev()))
        })
    }

    /// A path as a process means it, for this one.
    fn resolve(tid: i32, directory: u64, path: PathBuf) -> PathBuf {
        if let Ok(rest) = path.strip_prefix("/proc/self") {
            return PathBuf::from(format!("/proc/{tid}")).join(rest);
        }
        if path.is_absolute() {
            return path;
        }
        let from = if directory as i32 == libc::AT_FDCWD {
            PathBuf::from(format!("/proc/{tid}/cwd"))
        } else {
            descriptor(tid, directory as i32)
        };
        if path.as_os_str().is_empty() { from } else { from.join(path) }
    }

    /// A thread is about to make a system call. `None`: one without an effect below the base directory.
    #[expect(clippy::too_many_lines, reason = "a table: an arm for each system call")]
    pub fn enter(&mut self, tid: i32, number: i64, args: [u64; 6]) -> Option<Call> {
        let at = |directory: u64, address: u64| Self::resolve(tid, directory, text(tid, address));
        let here = |address: u64| at(libc::AT_FDCWD as u64, address);
        let fd = |index: usize| descriptor(tid, args[index] as i32);
        match number {
            libc::SYS_openat => self.open(at(args[0], args[1]), args[2]),
            libc::SYS_mkdirat => self.make("mkdir", at(args[0], args[1]), Kind::Directory),
            libc::SYS_symlinkat => {
                let target = text(tid, args[0]);
                self.make("symlink", at(args[1], args[2]), Kind::Symlink(target))
            }
            libc::SYS_linkat => self.link(&at(args[0], args[1]), at(args[2], args[3])),
            libc::SYS_unlinkat => self.unlink(at(args[0], args[1])),
            libc::SYS_renameat => self.rename(at(args[0], args[1]), at(args[2], args[3]), 0),
            libc::SYS_renameat2 => self.rename(at(args[0], args[1]), at(args[2], args[3]), args[4]),
            libc::SYS_write => self.write("write", tid, args[0], None, |len| memory(tid, args[1], len(args[2]))),
            libc::SYS_pwrite64 => {
                self.write("pwrite", tid, args[0], Some(args[3]), |len| memory(tid, args[1], len(args[2])))
            }
            libc::SYS_writev => self.write("writev", tid, args[0], None, |_| gather(tid, args[1], args[2])),
            libc::SYS_pwritev => self.write("pwritev", tid, args[0], Some(args[3]), |_| gather(tid, args[1], args[2])),
            libc::SYS_pwritev2 => {
                let appends = args[5] & libc::RWF_APPEND as u64 != 0;
                let offset = if appends {
                    fs::metadata(fd(0)).ok().map(|meta| meta.len())
                } else {
                    Some(args[3]).filter(|&offset| offset != u64::MAX)
                };
                self.write("pwritev2", tid, args[0], offset, |_| gather(tid, args[1], args[2]))
            }
            libc::SYS_ftruncate => self.change("ftruncate", &fd(0), Change::Size(args[1])),
            libc::SYS_fallocate => {
                let (mode, offset, len) = (args[1] as i32, args[2], args[3]);
                let change = if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
                    Change::Punch(offset, len)
                } else if mode & libc::FALLOC_FL_KEEP_SIZE != 0 {
                    Change::Other
                } else {
                    Change::Extend(offset + len)
                };
                self.change("fallocate", &fd(0), change)
            }
            libc::SYS_fsetxattr | libc::SYS_setxattr | libc::SYS_lsetxattr => {
                let path = if number == libc::SYS_fsetxattr { fd(0) } else { here(args[0]) };
                let name = text(tid, args[1]).into_os_string();
                let value = memory(tid, args[2], args[3] as usize);
                self.change("setxattr", &path, Change::Attribute(name, Some(value)))
            }
            libc::SYS_fremovexattr => {
                self.change("removexattr", &fd(0), Change::Attribute(text(tid, args[1]).into(), None))
            }
            libc::SYS_removexattr => {
                self.change("removexattr", &here(args[0]), Change::Attribute(text(tid, args[1]).into(), None))
            }
            libc::SYS_fchown => self.change("fchown", &fd(0), owner(args[1], args[2])),
            libc::SYS_fchownat => self.change("fchownat", &at(args[0], args[1]), owner(args[2], args[3])),
            libc::SYS_fchmod => self.change("fchmod", &fd(0), Change::Mode(args[1] as u32)),
            libc::SYS_fchmodat | libc::SYS_fchmodat2 => {
                self.change("fchmodat", &at(args[0], args[1]), Change::Mode(args[2] as u32))
            }
            libc::SYS_utimensat => {
                let path = if args[1] == 0 { fd(0) } else { at(args[0], args[1]) };
                self.change("utimensat", &path, Change::Other)
            }
            libc::SYS_fsync => self.sync("fsync", &fd(0), false),
            libc::SYS_fdatasync => self.sync("fdatasync", &fd(0), true),
            libc::SYS_syncfs | libc::SYS_sync => {
                Some(Call { name: "syncfs", what: String::new(), action: Action::SyncAll })
            }
            libc::SYS_io_uring_enter => {
                panic!("io_uring is in use, whose writes this recorder does not see: extend it")
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => self.open(here(args[0]), args[1]),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mkdir => self.make("mkdir", here(args[0]), Kind::Directory),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink | libc::SYS_rmdir => self.unlink(here(args[0])),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => self.rename(here(args[0]), here(args[1]), 0),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => self.change("chmod", &here(args[0]), Change::Mode(args[1] as u32)),
            other => panic!("system call {other} stops, and nothing here says what it does"),
        }
    }

    fn call(&self, name: &'static str, path: &Path, action: Action) -> Option<Call> {
        let seen = fs::read_link(path).unwrap_or_else(|_| path.to_owned());
        let what = seen.strip_prefix(&self.base).unwrap_or(&seen).display().to_string();
        Some(Call { name, what, action })
    }

    fn open(&mut self, path: PathBuf, flags: u64) -> Option<Call> {
        const UNNAMED: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
        let flags_i32 = flags as i32;
        if flags_i32 & UNNAMED != 0 {
            self.id(&path)?;
            return self.call("open unnamed", &path, Action::Open { path: path.clone(), existed: false, flags });
        }
        if flags_i32 & (libc::O_CREAT | libc::O_TRUNC) == 0 || !self.below(&path) {
            return None;
        }
        let existed = path.symlink_metadata().is_ok();
        if existed && flags_i32 & libc::O_TRUNC == 0 {
            return None;
        }
        self.call("open", &path, Action::Open { path: path.clone(), existed, flags })
    }

    fn make(&mut self, name: &'static str, path: PathBuf, kind: Kind) -> Option<Call> {
        if !self.below(&path) || path.symlink_metadata().is_ok() {
            return None;
        }
        self.call(name, &path, Action::Make { path: path.clone(), kind })
    }

    fn link(&mut self, from: &Path, to: PathBuf) -> Option<Call> {
        let id = self.id(from)?;
        self.call("link", &to, Action::Link { id, to: to.clone() })
    }

    fn unlink(&mut self, path: PathBuf) -> Option<Call> {
        (self.below(&path) && path.symlink_metadata().is_ok()).then_some(())?;
        self.call("unlink", &path, Action::Unlink { path: path.clone() })
    }

    fn rename(&mut self, from: PathBuf, to: PathBuf, flags: u64) -> Option<Call> {
        (self.below(&from) && from.symlink_metadata().is_ok()).then_some(())?;
        let exchange = flags & u64::from(libc::RENAME_EXCHANGE) != 0;
        self.call("rename", &to, Action::Rename { from, to: to.clone(), exchange })
    }

    fn change(&mut self, name: &'static str, path: &Path, change: Change) -> Option<Call> {
        let id = self.id(path)?;
        self.call(name, path, Action::Change { id, change })
    }

    fn write(
        &mut self,
        name: &'static str,
        tid: i32,
        fd: u64,
        offset: Option<u64>,
        data: impl FnOnce(fn(u64) -> usize) -> Vec<u8>,
    ) -> Option<Call> {
        let path = descriptor(tid, fd as i32);
        let id = self.id(&path)?;
        let offset = match offset {
            Some(offset) => offset,
            None => {
                let info = fs::read_to_string(format!("/proc/{tid}/fdinfo/{}", fd as i32)).ok()?;
                let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
                let flags = field("flags:").and_then(|flags| i32::from_str_radix(flags, 8).ok())?;
                if flags & libc::O_APPEND != 0 {
                    fs::metadata(&path).ok()?.len()
                } else {
                    field("pos:")?.parse().ok()?
                }
            }
        };
        let data = data(|len| len as usize);
        self.call(name, &path, Action::Write { id, offset, data })
    }

    fn sync(&mut self, name: &'static str, path: &Path, data_only: bool) -> Option<Call> {
        let id = self.id(path)?;
        self.call(name, path, Action::Sync { id, data_only })
    }

    fn name(&mut self, path: &Path) -> Option<(Id, OsString)> {
        let parent = self.id(path.parent()?)?;
        Some((parent, path.file_name().unwrap_or(OsStr::from_bytes(b".")).to_owned()))
    }

    fn made(&mut self, path: &Path, kind: Kind) -> Option<(Id, Effect)> {
        let id = if matches!(kind, Kind::Symlink(_)) { self.id_of_name(path)? } else { self.id(path)? };
        let meta = path.symlink_metadata().ok()?;
        let meta = if matches!(kind, Kind::Symlink(_)) { meta } else { fs::metadata(path).ok()? };
        Some((id, Effect::Made { id, kind, mode: meta.mode() & 0o7777, owner: (meta.uid(), meta.gid()) }))
    }

    /// The call has been carried out with this result.
    pub fn leave(&mut self, tid: i32, call: Call, result: i64) -> Vec<Effect> {
        let effects = match call.action {
            Action::Open { path, existed, flags } => {
                let own = descriptor(tid, result as i32);
                if existed {
                    let truncates = flags as i32 & libc::O_TRUNC != 0;
                    self.id(&own).filter(|_| truncates).map(|id| vec![Effect::Changed(id, Change::Size(0))])
                } else {
                    let unnamed = flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
                    self.made(&own, Kind::File).and_then(|(id, made)| {
                        if unnamed {
                            return Some(vec![made]);
                        }
                        let (parent, name) = self.name(&path)?;
                        Some(vec![made, Effect::Names(vec![(parent, name, Some(id))])])
                    })
                }
            }
            Action::Make { path, kind } => self.made(&path, kind).and_then(|(id, made)| {
                let (parent, name) = self.name(&path)?;
                Some(vec![made, Effect::Names(vec![(parent, name, Some(id))])])
            }),
            Action::Change { id, change } => Some(vec![Effect::Changed(id, change)]),
            Action::Write { id, offset, mut data } => {
                data.truncate(result as usize);
                Some(vec![Effect::Changed(id, Change::Write(offset, data))])
            }
            Action::Link { id, to } => {
                self.name(&to).map(|(parent, name)| vec![Effect::Names(vec![(parent, name, Some(id))])])
            }
            Action::Unlink { path } => {
                self.name(&path).map(|(parent, name)| vec![Effect::Names(vec![(parent, name, None)])])
            }
            Action::Rename { from, to, exchange } => (|| {
                let moved = self.id_of_name(&to)?;
                let other = if exchange { self.id_of_name(&from) } else { None };
                let ((old, name), (new, to)) = (self.name(&from)?, self.name(&to)?);
                Some(vec![Effect::Names(vec![(old, name, other), (new, to, Some(moved))])])
            })(),
            Action::Sync { id, data_only } => Some(vec![Effect::Synced { id, data_only }]),
            Action::SyncAll => Some(vec![Effect::SyncedAll]),
        };
        effects.unwrap_or_else(|| panic!("an effect that was not understood: {} {}", call.name, call.what))
    }
}

fn owner(uid: u64, gid: u64) -> Change {
    let given = |id: u64| Some(id as u32).filter(|&id| id != u32::MAX);
    Change::Owner(given(uid), given(gid))
}
