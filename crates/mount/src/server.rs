//! The process that serves a mount: whether it lives, its number, and its end.
//!
//! An ioctl on the root of the mount asks a living process ([`SERVING_PROCESS`]). The answer cannot be stale: a descriptor
//! (pidfd) holds the process of the number in the answer, and a second ioctl asks again. While the process still answers,
//! the number is its own.
//!
//! Without `allow_other` the kernel keeps all users but the mount's own out, root as well. So root asks as that user, in a
//! thread: to the kernel each thread has rights of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use stripewise_store::ioctl::{SERVING_PROCESS, ServingProcess};

use crate::error::MountError;
use crate::mounts::{HeldDirectory, MountEntry};

/// A wait that lasts longer is told of.
const LONG: Duration = Duration::from_secs(2);

/// What is known of the process behind a mount.
#[derive(Debug)]
pub enum ServerLookup {
    /// It has died.
    Dead,
    /// It lives.
    Process(ServerProcess),
    /// It may live; why nothing more is known.
    Unknown(String),
}

/// A process that serves a mount.
#[derive(Debug)]
pub struct ServerProcess {
    /// Its number.
    pub pid: u64,
    fd: OwnedFd,
}

impl ServerProcess {
    /// Waits for its end; false when it lives after `patience`. `slow` is called once, after a while.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn wait(&self, patience: Duration, slow: impl FnOnce()) -> io::Result<bool> {
        let begin = Instant::now();
        if self.has_ended(LONG.min(patience))? {
            return Ok(true);
        }
        slow();
        self.has_ended(patience.saturating_sub(begin.elapsed()))
    }

    fn has_ended(&self, patience: Duration) -> io::Result<bool> {
        let begin = Instant::now();
        loop {
            let rest = Timespec::try_from(patience.saturating_sub(begin.elapsed())).ok();
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], rest.as_ref()) {
                Err(Errno::INTR) => {}
                ready => return Ok(ready? > 0),
            }
        }
    }
}

/// Which process serves the mount `entry`, whose root is `place`; `None` when it has not answered in `patience`. `slow` is
/// called once, after a while.
///
/// # Errors
/// A thread cannot be made.
pub fn who_serves(
    place: &HeldDirectory,
    entry: &MountEntry,
    patience: Duration,
    slow: impl FnOnce(),
) -> Result<Option<ServerLookup>, MountError> {
    let (tell, told) = sync_channel(1);
    // A thread of its own holds it: the one that waits must be able to give up.
    let place = place.try_clone().map_err(MountError::system("holding the mount"))?;
    let owner = entry.owner;
    let ask = move || {
        let answer = ask(&place, owner);
        drop(place);
        // The other side may have given up.
        let _ = tell.send(answer);
    };
    std::thread::Builder::new().spawn(ask).map_err(MountError::system("starting a thread"))?;
    let answer = match told.recv_timeout(LONG.min(patience)) {
        Err(RecvTimeoutError::Timeout) => {
            slow();
            told.recv_timeout(patience.saturating_sub(LONG)).ok()
        }
        answer => answer.ok(),
    };
    Ok(answer)
}

fn ask(place: &HeldDirectory, owner: Option<(u32, u32)>) -> ServerLookup {
    let unknown = |what: &str, errno: Errno| ServerLookup::Unknown(format!("{what}: {}", io::Error::from(errno)));
    if let Some((uid, gid)) = owner.filter(|(uid, _)| *uid != 0 && rustix::process::geteuid().is_root())
        && let Err(errno) = become_user(Uid::from_raw(uid), Gid::from_raw(gid))
    {
        return unknown("asking as its user", errno);
    }
    if place.is_dead() {
        return ServerLookup::Dead;
    }
    let first = match serving_process(&place.held_path()) {
        Err(Errno::NOTCONN | Errno::CONNABORTED) if place.is_dead() => return ServerLookup::Dead,
        Err(errno) => return unknown("it does not say which that is", errno),
        Ok(first) => first,
    };
    if first.pid_namespace != ServingProcess::own_pid_namespace() {
        return ServerLookup::Unknown("it runs in another pid namespace".into());
    }
    let Some(pid) = i32::try_from(first.pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
        return unknown("it does not say which that is", Errno::INVAL);
    };
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(_) if place.is_dead() => return ServerLookup::Dead,
        Err(errno) => return unknown("holding it", errno),
    };
    match serving_process(&place.held_path()) {
        Ok(second) if second == first => ServerLookup::Process(ServerProcess { pid: first.pid, fd }),
        _ if place.is_dead() => ServerLookup::Dead,
        _ => ServerLookup::Unknown("it says this and that of itself".into()),
    }
}

/// Gives this thread the rights of a user. Other threads keep theirs.
fn become_user(uid: Uid, gid: Gid) -> rustix::io::Result<()> {
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

/// What the process behind the directory `root` says of itself.
fn serving_process(root: &Path) -> rustix::io::Result<ServingProcess> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let root = rustix::fs::open(root, flags, Mode::empty())?;
    // SAFETY: the command says that the kernel fills as many bytes as the structure has, for which every bit pattern is a
    // value.
    unsafe { ioctl(&root, Getter::<{ SERVING_PROCESS as Opcode }, ServingProcess>::new()) }
}
