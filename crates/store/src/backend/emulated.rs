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

/// What the backend below does.
macro_rules! as_under {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $result {
            self.under.$name($($argument),*)
        })*
    };
}

impl Backend for Emulated {
    /// Its waiting comes after the real reads, and the kernel would not wait at all.
    fn limits(&self) -> ServerLimits {
        ServerLimits { takes_advice: false, in_turn: false, is_plain: false, is_charged: true, ..self.under.limits() }
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

    as_under! {
        server() -> &Server;
        look_again() -> Result<()>;
        has_died() -> bool;
        deaths() -> u32;
        is_marked() -> Io<()>;
        holds(datafile: BorrowedFd<'_>) -> bool;
        make(key: DatafileKey) -> Io<OwnedFd>;
        open(key: DatafileKey, access: DatafileAccess) -> Io<OwnedFd>;
        stat(key: DatafileKey) -> Io<Stat>;
        unlink(key: DatafileKey, what: FileType) -> Io<()>;
        sync_names(key: DatafileKey) -> Io<()>;
        generations(handle: u64) -> Io<Option<Vec<u32>>>;
        place(key: DatafileKey) -> PathBuf;
        room() -> Io<Room>;
        own_directory() -> Io<BorrowedFd<'_>>;
        upkeep() -> &dyn Upkeep;
    }

    /// A device's queue is charged for what goes the store's way, through the page cache.
    fn scratch(&self, _direct: bool) -> Io<OwnedFd> {
        self.under.scratch(false)
    }
}
