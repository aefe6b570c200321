//! A server that was removed from its pool: nothing is on it, and nothing can be put there.
//!
//! Its place in the pool file stays, so that its id is never given again. A layout that still names it has lost the bytes that
//! were there: their datafiles are missing, as those of any server whose datafiles are gone.

use super::server::{Backend, DatafileAccess, Found, Kind, Listing, Server, ServerLimits, Setting, Site, Upkeep};
use crate::format::placement::DatafileKey;
use crate::os::error::Result;
use crate::os::room::Room;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Stat};
use rustix::io::{Errno, Result as Io};
use std::path::PathBuf;

/// The kind of each server that was removed, which no tier of a pool file can have.
pub(super) const KIND: Kind = Kind { name: "removed", open, site };

#[derive(Debug)]
struct Removed {
    server: Server,
}

fn open(server: &Server, _setting: &Setting) -> Box<dyn Backend> {
    Box::new(Removed { server: server.clone() })
}

fn site(server: &Server) -> Box<dyn Site> {
    Box::new(Removed { server: server.clone() })
}

/// Its place is no longer the pool's.
impl Site for Removed {
    fn make(&self, _for_several: bool) -> Result<()> {
        Ok(())
    }

    fn make_shared(&self) -> Result<()> {
        Ok(())
    }

    fn probe_binding(&self) -> Io<()> {
        Ok(())
    }

    fn marker(&self) -> Io<Vec<u8>> {
        Err(Errno::NOENT)
    }

    fn write_marker(&self, _text: &str) -> Io<()> {
        Ok(())
    }

    fn unmake(&self) -> Io<()> {
        Ok(())
    }
}

impl Backend for Removed {
    fn server(&self) -> &Server {
        &self.server
    }

    fn limits(&self) -> ServerLimits {
        ServerLimits::NONE
    }

    fn connect(&self) -> Result<()> {
        Ok(())
    }

    fn look_again(&self) -> Result<()> {
        Ok(())
    }

    fn has_died(&self) -> bool {
        false
    }

    fn deaths(&self) -> u32 {
        0
    }

    fn is_marked(&self) -> Io<()> {
        Ok(())
    }

    fn holds(&self, _datafile: BorrowedFd<'_>) -> bool {
        false
    }

    fn make(&self, _key: DatafileKey) -> Io<OwnedFd> {
        Err(Errno::NODEV)
    }

    fn open(&self, _key: DatafileKey, _access: DatafileAccess) -> Io<OwnedFd> {
        Err(Errno::NOENT)
    }

    fn stat(&self, _key: DatafileKey) -> Io<Stat> {
        Err(Errno::NOENT)
    }

    fn unlink(&self, _key: DatafileKey, _what: FileType) -> Io<()> {
        Err(Errno::NOENT)
    }

    fn sync_names(&self, _key: DatafileKey) -> Io<()> {
        Ok(())
    }

    fn generations(&self, _handle: u64) -> Io<Option<Vec<u32>>> {
        Ok(Some(Vec::new()))
    }

    fn place(&self, key: DatafileKey) -> PathBuf {
        self.server.root.join(key.path().as_str())
    }

    fn room(&self) -> Io<Room> {
        Err(Errno::NODEV)
    }

    fn own_directory(&self) -> Io<BorrowedFd<'_>> {
        Err(Errno::NODEV)
    }

    fn scratch(&self, _direct: bool) -> Io<OwnedFd> {
        Err(Errno::NODEV)
    }

    fn upkeep(&self) -> &dyn Upkeep {
        self
    }
}

impl Upkeep for Removed {
    fn parts(&self) -> u16 {
        0
    }

    fn part_name(&self, _part: u16) -> String {
        String::new()
    }

    fn list(&self, _part: u16) -> Listing<'_, Found> {
        Ok(Box::new(std::iter::empty()))
    }

    fn strangers(&self) -> Listing<'_, String> {
        Ok(Box::new(std::iter::empty()))
    }

    fn keep(&self, _key: DatafileKey, _from: Option<&str>, _kept: &str) -> Io<()> {
        Err(Errno::NOENT)
    }

    fn has_kept(&self, _kept: &str) -> bool {
        false
    }

    fn put_right(&self, _key: DatafileKey, _from: &str) -> Io<()> {
        Err(Errno::NOENT)
    }

    fn is_guarded(&self, _key: DatafileKey) -> bool {
        true
    }

    fn sync(&self) -> Io<()> {
        Ok(())
    }

    fn allocated_bytes(&self, _except: &[u64]) -> u64 {
        0
    }
}
