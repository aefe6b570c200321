//! Journals of processes that have ended without being done: their records are taken over.

use super::Journal;
use super::pages::{HEADER_BYTES, MAX_BYTES, PageHeader, judge, records};
use super::record::{RemovalState, StoredRecord};
use crate::os::byte_lock::lock_byte;
use crate::os::error::{Error, Result};
use crate::os::sync::guard;
use crate::os::sys::retry;
use crate::pool::namespace::REMOVALS;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::path::PathBuf;

/// Entries of the directory that are looked at in one go: any user of a shared pool can make as many as the disk takes.
const MAX_ENTRIES: usize = 1 << 16;

/// Why a file is no journal to be read; `None`: it may be one.
fn strange(stat: &Stat) -> Option<&'static str> {
    match () {
        () if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => Some("it is not a regular file"),
        () if stat.st_nlink > 1 => Some("it has a second name"),
        () if stat.st_mode & 0o022 != 0 => Some("others may write it"),
        () if stat.st_size as u64 > MAX_BYTES => Some("it is too long"),
        () => None,
    }
}

impl Journal {
    /// Looks for journals of this user's whose processes have ended, and takes their records over. What there is to say
    /// to a person comes back, each thing once. A system call for each journal; more for those that are taken over.
    pub fn look(&self) -> Vec<String> {
        let mut messages = Vec::new();
        if let Err(error) = self.look_into(&mut messages) {
            messages.push(format!("looking for removals that were interrupted: {error}"));
        }
        let mut told = guard(&self.told);
        messages.retain(|message| told.insert(message.clone()));
        messages
    }

    fn path(&self, name: &CStr) -> PathBuf {
        self.store.pool().namespace.join(REMOVALS).join(&*name.to_string_lossy())
    }

    fn look_into(&self, messages: &mut Vec<String>) -> Result<()> {
        let failed = || Error::io("read", self.store.pool().namespace.join(REMOVALS));
        let user = rustix::process::geteuid().as_raw();
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.directory).map_err(failed())?.take(MAX_ENTRIES) {
            let name = entry.map_err(failed())?.file_name().to_owned();
            if !matches!(name.to_bytes(), b"." | b"..") && name.to_bytes() != guard(&self.pages).name().as_bytes() {
                names.push(name);
            }
        }
        for name in names {
            let stat = match rustix::fs::statat(&self.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                // Another user's counts for that user alone.
                Ok(stat) if stat.st_uid == user => stat,
                _ => continue,
            };
            let path = self.path(&name);
            let mut skip = |why| {
                messages
                    .push(format!("{} is no journal of removals: {why}. Look at it, and remove it", path.display()));
            };
            if let Some(why) = strange(&stat) {
                skip(why);
                continue;
            }
            match self.take_over(&name, user) {
                Ok(Taken::Nothing) => {}
                Ok(Taken::Strange(why)) => skip(why),
                Ok(Taken::Lost(0)) => {}
                Ok(Taken::Lost(count)) => messages.push(format!(
                    "{count} removals that were interrupted cannot be finished by themselves (a power cut, or damage): run \
                     `stripewise fsck --remove-orphans` when the pool is not mounted"
                )),
                Err(error) => messages.push(format!("{}: {error}", path.display())),
            }
        }
        Ok(())
    }

    fn take_over(&self, name: &CStr, user: u32) -> Result<Taken> {
        let failed = |action| Error::io(action, self.path(name));
        // NONBLOCK: what stands there may have become a FIFO.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match retry(|| rustix::fs::openat(&self.directory, name, flags, Mode::empty())) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Taken::Nothing),
            Err(errno) => return Err(failed("open")(errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(failed("read"))?;
        if stat.st_uid != user {
            return Ok(Taken::Nothing);
        }
        if let Some(why) = strange(&stat) {
            return Ok(Taken::Strange(why));
        }
        match lock_byte(file.as_fd(), 0, libc::F_WRLCK, false) {
            Ok(()) => {}
            // Its process lives.
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(Taken::Nothing),
            Err(errno) => return Err(failed("lock")(errno)),
        }
        let there = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
        if there.map(|there| (there.st_dev, there.st_ino)) != Ok((stat.st_dev, stat.st_ino)) {
            return Ok(Taken::Nothing);
        }
        let remove = || match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("remove")(errno)),
        };
        let mut bytes = vec![0; HEADER_BYTES];
        let length = read_at(&file, &mut bytes, 0).map_err(failed("read"))?;
        let same_boot = match judge(&bytes[..length], self.origin(), stat.st_ino) {
            PageHeader::Strange(why) => return Ok(Taken::Strange(why)),
            PageHeader::Unfinished | PageHeader::Foreign => return remove().map(|()| Taken::Nothing),
            PageHeader::Own { same_boot } => same_boot,
        };
        let (mut taken, mut lost) = (Vec::new(), 0);
        let mut at = HEADER_BYTES as u64;
        // A multiple of a record's length, as the header is.
        bytes.resize(1 << 16, 0);
        loop {
            let length = read_at(&file, &mut bytes, at).map_err(failed("read"))?;
            for found in records(&bytes[..length]) {
                match found {
                    StoredRecord::Nothing => {}
                    StoredRecord::Record(state, gone) if same_boot || state != RemovalState::Seen => {
                        let Some(slot) = guard(&self.pages).put(state, &gone) else {
                            // There is no room: it stays for later.
                            let mut pages = guard(&self.pages);
                            taken.into_iter().for_each(|slot| pages.clear(slot));
                            return Ok(Taken::Nothing);
                        };
                        taken.push(slot);
                    }
                    StoredRecord::Damage | StoredRecord::Record(..) => lost += 1,
                }
            }
            at += length as u64;
            if length < bytes.len() || at >= MAX_BYTES {
                break;
            }
        }
        if !taken.is_empty() {
            // They are in two journals for a moment; a power cut must not find them in none.
            let own = guard(&self.pages).file();
            retry(|| rustix::fs::fdatasync(&own)).map_err(failed("sync"))?;
            guard(&self.left).extend(taken);
        }
        remove().map(|()| Taken::Lost(lost))
    }
}

/// What was found under a name.
enum Taken {
    Nothing,
    Strange(&'static str),
    /// All of a dead process's records but this many.
    Lost(usize),
}

/// Fills `bytes` from `offset` on, up to the end of the file; how many.
fn read_at(file: &OwnedFd, bytes: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match retry(|| rustix::io::pread(file, &mut bytes[done..], offset + done as u64))? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}
