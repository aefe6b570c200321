//! An emulated server: another backend keeps its bytes, and each request is charged the time of the device that it
//! stands for.

use super::emulate::{Device, EmulateConfig};
use super::server::{Backend, DatafileAccess, Server, ServerLimits, Upkeep, missing};
use crate::format::placement::DatafileKey;
use crate::os::error::Result;
use crate::os::room::Room;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Stat};
use rustix::io::Result as Io;
use std::path::PathBuf;
use std::sync::OnceLock;

#[derive(Debug)]
struct Emulated {
    /// What keeps the bytes.
    under: Box<dyn Backend>,
    config: EmulateConfig,
    device: OnceLock<Device>,
}

/// The server whose bytes `under` keeps, at the speed of the device that `config` describes.
pub(super) fn new(under: Box<dyn Backend>, config: EmulateConfig) -> Box<dyn Backend> {
    Box::new(Emulated { under, config, device: OnceLock::new() })
}

impl Backend for Emulated {
    /// Its waiting comes after the real reads, and the kernel would not wait at all.
    fn limits(&self) -> ServerLimits {
        ServerLimits { waits: false, is_plain: false, is_charged: true, ..self.under.limits() }
    }

    fn connect(&self) -> Result<()> {
        self.under.connect()?;
        if self.device.get().is_none() {
            let absent = |reason: String| missing(self.server(), reason);
            let directory = self.under.own_directory().map_err(|errno| absent(errno.to_string()))?;
            let device = Device::open(directory, self.server().id, &self.config);
            // Another thread's is equal.
            let _ = self.device.set(device.map_err(|error| absent(error.to_string()))?);
        }
        Ok(())
    }

    fn device(&self) -> Option<&Device> {
        self.device.get()
    }

    fn server(&self) -> &Server {
        self.under.server()
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

    fn make(&self, key: DatafileKey) -> Io<OwnedFd> {
        self.under.make(key)
    }

    fn open(&self, key: DatafileKey, access: DatafileAccess) -> Io<OwnedFd> {
        self.under.open(key, access)
    }

    fn stat(&self, key: DatafileKey) -> Io<Stat> {
        self.under.stat(key)
    }

    fn unlink(&self, key: DatafileKey, what: FileType) -> Io<()> {
        self.under.unlink(key, what)
    }

    fn sync_names(&self, key: DatafileKey) -> Io<()> {
        self.under.sync_names(key)
    }

    fn generations(&self, handle: u64) -> Io<Option<Vec<u32>>> {
        self.under.generations(handle)
    }

    fn place(&self, key: DatafileKey) -> PathBuf {
        self.under.place(key)
    }

    fn room(&self) -> Io<Room> {
        self.under.room()
    }

    fn own_directory(&self) -> Io<BorrowedFd<'_>> {
        self.under.own_directory()
    }

    /// A device's queue is charged for what goes the store's way, through the page cache.
    fn scratch(&self, _direct: bool) -> Io<OwnedFd> {
        self.under.scratch(false)
    }

    fn upkeep(&self) -> &dyn Upkeep {
        self.under.upkeep()
    }
}
