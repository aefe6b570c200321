//! A backend for tests only: its datafiles have no names, and a catalogue says which of its numbered objects is which.
//!
//! ```text
//! ROOT/.stripewise    the marker
//!      catalogue      a line for each change: `datafile HANDLE GENERATION OBJECT`, `gone OBJECT`, `kept OBJECT NAME`
//!      objects/N      bytes
//! ```
//! It differs from a directory of datafiles in what others might take for granted: no name, place or order of an object
//! follows from handle and generation, and to keep or give back a datafile moves nothing. That the directory itself is
//! there, and is the right one, it leaves to the backend `directory`.

use super::directory;
use super::server::{Backend, DatafileAccess, Found, KEPT, Kind, Listing, Server, ServerLimits, Setting, Upkeep};
use crate::format::placement::DatafileKey;
use crate::os::error::Result;
use crate::os::room::Room;
use crate::os::sys::{random, read_all, retry, sync_directory, write_all};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::{Errno, Result as Io};
use std::collections::HashMap;
use std::path::PathBuf;

const CATALOGUE: &str = "catalogue";
const OBJECTS: &str = "objects";
const MOST_BYTES: usize = 1 << 30;

#[derive(Debug)]
struct Catalogue {
    under: Box<dyn Backend>,
}

pub(super) const KIND: Kind = Kind { name: "catalogue", open, site: directory::site };

fn open(server: &Server, setting: &Setting) -> Box<dyn Backend> {
    Box::new(Catalogue { under: directory::open(server, setting) })
}

/// What the catalogue says, locked as long as this lives.
#[derive(Default)]
struct Said {
    file: Option<OwnedFd>,
    datafiles: HashMap<DatafileKey, String>,
    kept: HashMap<String, String>,
}

impl Said {
    fn take(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |digits: &str| u64::from_str_radix(digits, 16).unwrap_or_default();
        if let [_, object] | [_, object, _] = words[..] {
            self.datafiles.retain(|_, other| other != object);
            self.kept.retain(|_, other| other != object);
        }
        match words[..] {
            ["datafile", handle, generation, object] => {
                self.kept.retain(|_, other| other != object);
                let key = DatafileKey { handle: number(handle), generation: number(generation) as u32 };
                self.datafiles.insert(key, object.to_owned());
            }
            ["kept", object, name] => drop(self.kept.insert(name.to_owned(), object.to_owned())),
            _ => {}
        }
    }

    fn note(&mut self, line: &str) -> Io<()> {
        let file = self.file.as_ref().ok_or(Errno::NOENT)?;
        let before_bytes = rustix::fs::fstat(file)?.st_size as u64;
        write_all(file, format!("{line}\n").as_bytes()).inspect_err(|_| {
            // Of a line on a full disk: the next one must not be joined to it.
            let _ = rustix::fs::ftruncate(file, before_bytes);
        })?;
        self.take(line);
        Ok(())
    }

    fn note_datafile(&mut self, key: DatafileKey, object: &str) -> Io<()> {
        self.note(&format!("datafile {:x} {:x} {object}", key.handle, key.generation))
    }

    fn object(&self, key: DatafileKey) -> Io<String> {
        self.datafiles.get(&key).map(|object| format!("{OBJECTS}/{object}")).ok_or(Errno::NOENT)
    }
}

impl Catalogue {
    /// The catalogue, to be read, or to be changed.
    fn said(&self, to_change: bool) -> Io<Said> {
        let directory = self.under.own_directory()?;
        let access = if to_change { OFlags::RDWR | OFlags::APPEND | OFlags::CREATE } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match retry(|| rustix::fs::openat(directory, CATALOGUE, flags, Mode::from_raw_mode(0o600))) {
            Err(Errno::NOENT) => return Ok(Said::default()),
            file => file?,
        };
        let lock = if to_change { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
        retry(|| rustix::fs::flock(&file, lock))?;
        let mut said = Said::default();
        let text = read_all(&file, MOST_BYTES)?;
        String::from_utf8_lossy(&text).lines().for_each(|line| said.take(line));
        said.file = Some(file);
        Ok(said)
    }

    fn stat_object(&self, path: &str) -> Io<Stat> {
        rustix::fs::statat(self.under.own_directory()?, path, AtFlags::SYMLINK_NOFOLLOW)
    }
}

impl Backend for Catalogue {
    fn make(&self, key: DatafileKey) -> Io<OwnedFd> {
        let mut said = self.said(true)?;
        if said.datafiles.contains_key(&key) {
            return Err(Errno::EXIST);
        }
        let directory = self.under.own_directory()?;
        match rustix::fs::mkdirat(directory, OBJECTS, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let object = format!("{:016x}", u64::from_ne_bytes(random()));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let path = format!("{OBJECTS}/{object}");
        let made = rustix::fs::openat(directory, path.as_str(), flags, Mode::from_raw_mode(0o600))?;
        said.note_datafile(key, &object).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(directory, path.as_str(), AtFlags::empty());
        })?;
        Ok(made)
    }

    fn open(&self, key: DatafileKey, access: DatafileAccess) -> Io<OwnedFd> {
        let mode = if access == DatafileAccess::Read { OFlags::RDONLY } else { OFlags::RDWR };
        let path = self.said(false)?.object(key)?;
        let flags = mode | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        retry(|| rustix::fs::openat(self.under.own_directory()?, path.as_str(), flags, Mode::empty()))
    }

    fn stat(&self, key: DatafileKey) -> Io<Stat> {
        self.stat_object(&self.said(false)?.object(key)?)
    }

    fn unlink(&self, key: DatafileKey, _what: FileType) -> Io<()> {
        let mut said = self.said(true)?;
        let path = said.object(key)?;
        said.note(&format!("gone {}", &path[OBJECTS.len() + 1..]))?;
        rustix::fs::unlinkat(self.under.own_directory()?, path.as_str(), AtFlags::empty())
    }

    fn sync_names(&self, _key: DatafileKey) -> Io<()> {
        if let Some(file) = self.said(false)?.file {
            retry(|| rustix::fs::fsync(&file))?;
        }
        sync_directory(self.under.own_directory()?, OBJECTS)
    }

    fn generations(&self, handle: u64) -> Io<Option<Vec<u32>>> {
        let said = self.said(false)?;
        Ok(Some(said.datafiles.keys().filter(|key| key.handle == handle).map(|key| key.generation).collect()))
    }

    fn place(&self, key: DatafileKey) -> PathBuf {
        self.server().root.join(self.said(false).and_then(|said| said.object(key)).unwrap_or_default())
    }

    fn upkeep(&self) -> &dyn Upkeep {
        self
    }

    fn server(&self) -> &Server {
        self.under.server()
    }

    fn limits(&self) -> ServerLimits {
        self.under.limits()
    }

    fn connect(&self) -> Result<()> {
        self.under.connect()
    }

    fn look_again(&self) -> Result<()> {
        self.under.look_again()
    }

    fn has_died(&self) -> bool {
        self.under.has_died()
    }

    fn deaths(&self) -> u32 {
        self.under.deaths()
    }

    fn is_marked(&self) -> Io<()> {
        self.under.is_marked()
    }

    fn holds(&self, datafile: BorrowedFd<'_>) -> bool {
        self.under.holds(datafile)
    }

    fn room(&self) -> Io<Room> {
        self.under.room()
    }

    fn own_directory(&self) -> Io<BorrowedFd<'_>> {
        self.under.own_directory()
    }

    fn scratch(&self, direct: bool) -> Io<OwnedFd> {
        self.under.scratch(direct)
    }
}

impl Upkeep for Catalogue {
    fn parts(&self) -> u16 {
        1
    }

    fn part_name(&self, _part: u16) -> String {
        CATALOGUE.into()
    }

    fn list(&self, _part: u16) -> Listing<'_, Found> {
        let keys: Vec<_> = self.said(false)?.datafiles.into_keys().collect();
        Ok(Box::new(keys.into_iter().map(|key| Ok(Found::Datafile(key)))))
    }

    fn strangers(&self) -> Listing<'_, String> {
        let is_own = |name: &str| name == CATALOGUE || name == OBJECTS;
        let names = self.under.upkeep().strangers()?;
        Ok(Box::new(names.filter(move |name| !name.as_ref().is_ok_and(|name| is_own(name)))))
    }

    fn keep(&self, key: DatafileKey, _from: Option<&str>, kept: &str) -> Io<()> {
        let mut said = self.said(true)?;
        if said.kept.contains_key(kept) {
            return Err(Errno::EXIST);
        }
        let path = said.object(key)?;
        said.note(&format!("kept {} {kept}", &path[OBJECTS.len() + 1..]))
    }

    fn has_kept(&self, kept: &str) -> bool {
        kept.starts_with(KEPT) && self.said(false).is_ok_and(|said| said.kept.contains_key(kept))
    }

    fn put_right(&self, key: DatafileKey, from: &str) -> Io<()> {
        let mut said = self.said(true)?;
        if said.datafiles.contains_key(&key) {
            return Err(Errno::EXIST);
        }
        let object = said.kept.get(from).cloned().ok_or(Errno::NOENT)?;
        said.note_datafile(key, &object)
    }

    fn is_guarded(&self, _key: DatafileKey) -> bool {
        true
    }

    fn sync(&self) -> Io<()> {
        self.under.upkeep().sync()
    }

    fn allocated_bytes(&self, except: &[u64]) -> u64 {
        let Ok(said) = self.said(false) else { return 0 };
        let others = said.datafiles.keys().filter(|key| !except.contains(&key.handle));
        let stats = others.filter_map(|key| self.stat_object(&said.object(*key).ok()?).ok());
        stats.map(|stat| 512 * stat.st_blocks as u64).sum()
    }
}
