//! The datafiles of one file, compared with what its handle says.

use super::ground::Ground;
use super::hold::Subject;
use crate::backend::{Backend, DatafileAccess};
use crate::format::extent::file_bytes;
use crate::format::handle::Handle;
use crate::format::identity::{Identity, Said};
use crate::format::placement::{DatafileKey, Datafiles};
use crate::os::error::{Error, Result};
use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::BTreeSet;
use stripewise_layout::ServerId;

/// Something wrong with the datafiles of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The datafile of that index is gone.
    Missing(u16),
    /// The datafile of that index is no regular file.
    Type(u16),
    /// The datafile of that index belongs to another user.
    Owner(u16, u32),
    /// The datafile of that index is not bound to the file's inode.
    Unbound(u16),
    /// Index of the datafile, the bytes it has, and the bytes it was recorded with.
    Short(u16, u64, u64),
    /// The datafile of that index has another group or mode than the file.
    Rights(u16, u32, u32),
}

/// What the servers have of a file.
pub(super) struct DatafileSurvey {
    pub(super) faults: Vec<Fault>,
    /// Servers of the file that are not there.
    pub(super) away: BTreeSet<ServerId>,
    /// Whether there are datafiles that are the file's.
    pub(super) has_own: bool,
    /// The least size of the file, by its datafiles.
    pub(super) least_bytes: u64,
    /// What the datafiles take of their disks, in bytes.
    pub(super) allocated_bytes: u64,
}

/// Looks at the datafiles that `handle` lists. One `fstatat` each, one system call for what is recorded of them, and
/// one for the inode where others than its owner may have rights.
pub(super) fn look(
    ground: &Ground,
    handle: &Handle,
    datafiles: &Datafiles,
    subject: &Subject,
) -> Result<DatafileSurvey> {
    let rights = if handle.present.is_empty() { None } else { Some(subject.rights()) };
    let identity = if handle.present.is_empty() { None } else { subject.identity(ground)? };
    let mut look = DatafileSurvey {
        faults: Vec::new(),
        away: BTreeSet::new(),
        has_own: false,
        least_bytes: 0,
        allocated_bytes: 0,
    };
    let lengths = if handle.present.is_empty() { None } else { subject.lengths(handle.logical)? };
    for (index, datafile) in datafiles.table.iter().enumerate() {
        if !handle.present.contains(index) {
            continue;
        }
        let index = index as u16;
        let Some(backend) = ground.server(datafile.server) else {
            look.away.insert(datafile.server);
            continue;
        };
        let key = datafile.key(handle.logical);
        match backend.stat(key) {
            Ok(stat) => {
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    look.faults.push(Fault::Type(index));
                    continue;
                }
                if stat.st_uid != subject.stat.st_uid {
                    look.faults.push(Fault::Owner(index, stat.st_uid));
                } else if let Some(identity) = identity
                    && said(backend, key, identity)? != Said::Same
                {
                    // Whatever else it is, it is not this file's to tell.
                    look.faults.push(Fault::Unbound(index));
                    continue;
                } else if rights.is_some_and(|rights| !rights.are_those_of(&stat)) {
                    look.faults.push(Fault::Rights(index, stat.st_gid, stat.st_mode & 0o7777));
                }
                look.has_own |= stat.st_uid == subject.stat.st_uid;
                let recorded_bytes = lengths.as_ref().map_or(0, |lengths| lengths.of(*datafile));
                if recorded_bytes > stat.st_size as u64 {
                    look.faults.push(Fault::Short(index, stat.st_size as u64, recorded_bytes));
                }
                look.allocated_bytes += 512 * stat.st_blocks as u64;
                let reaches = file_bytes(datafiles, index, stat.st_size as u64);
                look.least_bytes = look.least_bytes.max(reaches);
            }
            Err(Errno::NOENT | Errno::NOTDIR) => look.faults.push(Fault::Missing(index)),
            Err(errno) => {
                let server = ground.server_name(datafile.server);
                return Err(Error::Server { action: "look at a datafile", server, errno });
            }
        }
    }
    Ok(look)
}

/// Opens a datafile to ask about it.
pub(super) fn open(backend: &dyn Backend, key: DatafileKey) -> Result<OwnedFd> {
    backend.open(key, DatafileAccess::Read).map_err(Error::io("open the datafile", key.path().as_str()))
}

/// Whose a datafile says that it is.
pub(super) fn said(backend: &dyn Backend, key: DatafileKey, identity: Identity) -> Result<Said> {
    identity.asked_of(open(backend, key)?).map_err(Error::io("read the binding of", key.path().as_str()))
}
