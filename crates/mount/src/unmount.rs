//! Unmounting: a living mount, whose process is waited for, or a dead one.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::error::MountError;
use crate::log;
use crate::mounts::{HeldDirectory, MountEntry, table};
use crate::server::{ServerLookup, who_serves};

/// How long the process of a mount may take to identify itself.
const ANSWER: Duration = Duration::from_secs(60);

/// Unmounts the pool mounted on `dir`, and waits up to `patience` for the end of the process that serves it: then all is
/// on the servers. `lazy` detaches it though programs use it, and waits for nothing. A mount whose process has died is
/// detached in any case.
///
/// # Errors
/// Nothing of ours is mounted there, programs use it, or the process has not ended in time.
pub fn unmount(dir: &Path, lazy: bool, patience: Duration) -> Result<(), MountError> {
    let nothing = || MountError::NotMounted { dir: dir.to_owned() };
    let place = HeldDirectory::open(dir).map_err(|_| nothing())?;
    let entry = place.mount().map_err(MountError::system("reading the mount table"))?;
    let entry = entry.filter(MountEntry::is_ours).ok_or_else(nothing)?;
    let failed = |source| MountError::Unmount { dir: entry.mount_point.clone(), source };
    if lazy {
        drop(place);
        return take_away(&entry.mount_point, UnmountFlags::DETACH).map_err(failed);
    }
    let dir = entry.mount_point.clone();
    let waited_s = patience.as_secs();
    let slow = || log::error(&format!("waiting for an answer of the process that serves {}", dir.display()));
    match who_serves(&place, &entry, ANSWER, slow)? {
        None => Err(MountError::Silent { dir, waited_s: ANSWER.as_secs() }),
        Some(ServerLookup::Dead) => {
            detach_dead(place).map_err(failed)?;
            log::error(&format!("detached {}: its process had died before", dir.display()));
            Ok(())
        }
        Some(ServerLookup::Unknown(reason)) => {
            drop(place);
            take_away(&dir, UnmountFlags::empty()).map_err(failed)?;
            log::error(&format!("unmounted {}, and cannot tell when its process ends: {reason}", dir.display()));
            Ok(())
        }
        Some(ServerLookup::Process(process)) => {
            drop(place);
            take_away(&dir, UnmountFlags::empty()).map_err(failed)?;
            let mounts = table().map_err(MountError::system("reading the mount table"))?;
            if let Some(other) = mounts.iter().find(|other| other.device == entry.device) {
                log::error(&format!("unmounted {}; it goes on at {}", dir.display(), other.mount_point.display()));
                return Ok(());
            }
            let slow = || {
                log::error(&format!(
                    "{} is unmounted; waiting for process {} to put what is left on the servers (Ctrl-C ends the waiting alone)",
                    dir.display(),
                    process.pid
                ));
            };
            match process.wait(patience, slow).map_err(MountError::system("waiting for the mount's process"))? {
                true => Ok(()),
                false => Err(MountError::StillServed { dir, pid: process.pid, waited_s }),
            }
        }
    }
}

/// umount(2), or fusermount3 where only that may.
fn take_away(dir: &Path, flags: UnmountFlags) -> io::Result<()> {
    match rustix::mount::unmount(dir, flags) {
        Err(Errno::PERM) => unmount_by_helper(dir, flags.contains(UnmountFlags::DETACH)),
        done => Ok(done?),
    }
}

fn unmount_by_helper(dir: &Path, lazy: bool) -> io::Result<()> {
    let mut helper = Command::new("fusermount3");
    helper.arg("-u").args(lazy.then_some("-z")).arg("--").arg(dir);
    let output = helper.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Takes a dead mount out of the tree of names, though programs still have files of it open or work in it.
///
/// # Errors
/// Those of umount(2) and of fusermount3.
pub fn detach_dead(place: HeldDirectory) -> io::Result<()> {
    // Root names the very mount that was found dead: another may have been made at its path meanwhile.
    match rustix::mount::unmount(place.held_path(), UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        // Another has detached it meanwhile.
        Err(Errno::INVAL) if place.mount()?.is_none() => Ok(()),
        // The helper takes a path. Two mounts of a pool that one user makes at the same time on the same directory may
        // meet here; the worst is that the first of them is detached in favour of the second.
        Err(Errno::PERM) if place.is_dead() => {
            let dir = place.path.clone();
            drop(place);
            unmount_by_helper(&dir, true)
        }
        Err(errno) => Err(errno.into()),
    }
}
