//! Where a server's datafiles lie on its disk.

use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags};
use stripewise_store::emulate::{DiskAddresses, DiskConfig};
use stripewise_store::pool::Server;

/// The addresses of one server's datafiles, as far as they are known: those of an emulated disk.
pub(crate) struct ServerPlaces {
    /// Of an emulated disk: its directory, and what it is.
    disk: Option<(PathBuf, DiskConfig)>,
    /// Opened with the first request that the server has served. `None`: the disk has no page.
    addresses: OnceLock<Option<DiskAddresses>>,
}

impl ServerPlaces {
    pub(crate) fn of(server: &Server) -> Self {
        let disk = server.emulate.and_then(|config| Some((server.root.clone(), config.disk?)));
        Self { disk, addresses: OnceLock::new() }
    }

    /// Where a byte of a datafile is; `None` where that is not known. Some loads; a few system calls the first time.
    pub(crate) fn find(&self, datafile: u64, offset: u64) -> Option<u64> {
        let (directory, config) = self.disk.as_ref()?;
        let open = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            DiskAddresses::open(rustix::fs::openat(CWD, directory, flags, Mode::empty()).ok()?, config)
        };
        self.addresses.get_or_init(open).as_ref()?.of(datafile, offset)
    }
}
