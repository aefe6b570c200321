//! The calling program and its current permissions.
//!
//! The kernel checks permissions before a request reaches root's mount, by attributes that it was told up to a second
//! ago and under names that it looked up. Another mount, and in a shared pool any user, may have changed both since. So
//! the namespace's own file system is asked again, in the call itself: it is made with the user and the groups of the
//! program.

use std::os::fd::AsRawFd;

use rustix::fs::{Access, Stat};
use rustix::io::Errno;
use stripewise_control::{Sender, Way};
use stripewise_fuse::RequestHeader;
use stripewise_store::AsUser;

use crate::core::Core;
use crate::node::Node;

/// `__FMODE_EXEC`: the kernel opens a program to run it.
const OPENED_TO_RUN: i32 = 0x20;
/// Bit of that capability (linux/capability.h) in `CapEff`.
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// The program that makes a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process, by which its other groups are known; 0 if it is in another process namespace.
    pub pid: u32,
}

impl Caller {
    /// The caller that makes `request`.
    pub fn of(request: &RequestHeader) -> Caller {
        Caller { uid: request.uid, gid: request.gid, pid: request.pid }
    }

    /// The thread whose system call the kernel passes on.
    pub fn sender(self) -> Sender {
        Sender::thread(Way::Mount, self.pid)
    }

    /// Whether the caller may keep the set-group-id bit of a file of `group`; not if that is unknown.
    pub fn is_in(self, group: u32) -> bool {
        self.uid == 0 || self.gid == group || self.groups().contains(&group)
    }

    /// The supplementary groups, as far as they can be known: none when the process has ended.
    fn groups(self) -> Vec<u32> {
        let groups = self.status("Groups:").unwrap_or_default();
        groups.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect()
    }

    /// Whether the caller administers the machine (`CAP_SYS_ADMIN`); root, where that cannot be known.
    pub fn administers(self) -> bool {
        let capabilities = self.status("CapEff:").and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
        capabilities.map_or(self.uid == 0, |capabilities| capabilities & CAP_SYS_ADMIN != 0)
    }

    /// What the kernel says of the calling process under `key`; `None` when the process has ended.
    fn status(self, key: &str) -> Option<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = |key| status.lines().find_map(|line| line.strip_prefix(key));
        // A process that has taken the number since has another user.
        let same = line("Uid:")?.split_ascii_whitespace().any(|id| id.parse() == Ok(self.uid));
        line(key).filter(|_| same).map(str::to_owned)
    }
}

impl Core {
    /// Runs `call` as the caller. What fails for lack of a right is tried again with the caller's supplementary groups,
    /// which cost a look into `/proc`.
    ///
    /// # Errors
    /// Those of `call`, which must have changed nothing then.
    pub fn as_caller<T>(&self, caller: Caller, call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        if !self.acts_for(caller) {
            return call();
        }
        let first = {
            let _user = AsUser::become_if_root(caller.uid, caller.gid);
            call()
        };
        match first {
            Err(Errno::ACCESS | Errno::PERM) => self.with_all_groups(caller, call),
            done => done,
        }
    }

    /// [`Core::as_caller`] of a call that sets `mode`. The kernel takes the set-group-id bit silently from a caller
    /// who is not in the group, so with that bit the first try already has all groups.
    ///
    /// # Errors
    /// As [`Core::as_caller`].
    pub fn as_caller_setting<T>(
        &self,
        caller: Caller,
        mode: u32,
        call: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if mode & libc::S_ISGID == 0 { self.as_caller(caller, call) } else { self.with_all_groups(caller, call) }
    }

    /// [`Core::as_caller`] with all groups of the caller at once, for what the kernel does differently, but does not
    /// refuse, without them.
    ///
    /// # Errors
    /// Those of `call`.
    pub fn with_all_groups<T>(&self, caller: Caller, call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        if !self.acts_for(caller) {
            return call();
        }
        let _user = AsUser::with_groups(caller.uid, caller.gid, &caller.groups());
        call()
    }

    /// Runs `call` as the owner that `stat` names, in the file's group: it fails should the file be another's by now.
    ///
    /// # Errors
    /// Those of `call`.
    pub fn as_owner<T>(&self, stat: &Stat, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let _owner = AsUser::become_if_root(stat.st_uid, stat.st_gid);
        call()
    }

    /// Whether the caller's identity is another than ours, and ours to take.
    pub fn acts_for(&self, caller: Caller) -> bool {
        self.is_root && (caller.uid, caller.gid) != (0, 0)
    }

    /// Refuses to open `node` with these flags for a caller who could not open the inode directly, by mode or by access
    /// control list. As root for another user: seven system calls; none for root who reads.
    ///
    /// # Errors
    /// `EACCES`, or those of `faccessat`.
    pub fn check_open(&self, caller: Caller, node: &Node, flags: i32) -> Result<(), Errno> {
        let mut wanted = match flags & libc::O_ACCMODE {
            libc::O_RDONLY if flags & OPENED_TO_RUN != 0 => Access::EXEC_OK,
            libc::O_RDONLY => Access::READ_OK,
            libc::O_WRONLY => Access::WRITE_OK,
            _ => Access::READ_OK | Access::WRITE_OK,
        };
        if flags & libc::O_TRUNC != 0 {
            wanted |= Access::WRITE_OK;
        }
        if self.is_root && caller.uid == 0 && wanted == Access::READ_OK {
            return Ok(());
        }
        self.as_caller(caller, || {
            let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
            // The system call itself: libc's own function may answer in the kernel's place.
            // SAFETY: the descriptor is open, the path an empty string.
            let answer =
                unsafe { libc::syscall(libc::SYS_faccessat2, node.fd.as_raw_fd(), c"".as_ptr(), wanted.bits(), flags) };
            match answer {
                0 => Ok(()),
                _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::ACCESS)),
            }
        })
    }
}
