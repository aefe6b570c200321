//! The datafiles of one file, compared with what its handle says.

use super::ground::Ground;
use super::hold::Subject;
use crate::error::{Error, Result};
use crate::extent::{datafile_bytes, file_bytes};
use crate::handle::Handle;
use crate::placement::Datafiles;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use std::collections::BTreeSet;
use stripewise_layout::{Layout, ServerId};

/// Something wrong with the datafiles of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The datafile of that index is gone.
    Missing(u16),
    /// The datafile of that index is no regular file.
    Type(u16),
    /// The datafile of that index belongs to another user.
    Owner(u16, u32),
    /// The datafile of that index has another group or mode than the file.
    Rights(u16, u32, u32),
}

/// What the servers have of a file.
pub(super) struct Look {
    pub(super) faults: Vec<Fault>,
    /// Servers of the file that are not there.
    pub(super) away: BTreeSet<ServerId>,
    /// The least size of the file, by its datafiles.
    pub(super) least_bytes: u64,
}

/// Looks at the datafiles that `handle` lists. One `fstatat` each, and one system call for the inode where others than its
/// owner may have rights.
pub(super) fn look(
    ground: &Ground,
    handle: &Handle,
    layout: &Layout,
    datafiles: &Datafiles,
    subject: &Subject,
) -> Result<Look> {
    let rights = if handle.present.is_empty() { None } else { Some(subject.rights()) };
    let mut look = Look { faults: Vec::new(), away: BTreeSet::new(), least_bytes: 0 };
    for (index, datafile) in datafiles.table.iter().enumerate() {
        if !handle.present.contains(index) {
            continue;
        }
        let index = index as u16;
        let Some(directory) = ground.directory(datafile.server) else {
            look.away.insert(datafile.server);
            continue;
        };
        let path = datafile.path(handle.logical);
        match rustix::fs::statat(directory, path.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    look.faults.push(Fault::Type(index));
                    continue;
                }
                if stat.st_uid != subject.stat.st_uid {
                    look.faults.push(Fault::Owner(index, stat.st_uid));
                } else if rights.is_some_and(|rights| !rights.are_those_of(&stat)) {
                    look.faults.push(Fault::Rights(index, stat.st_gid, stat.st_mode & 0o7777));
                }
                let reaches = file_bytes(layout, datafiles, index, stat.st_size as u64);
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

/// Bytes of the file that stand in datafile `index` if the file is `size_bytes` long.
pub(super) fn bytes_in(layout: &Layout, datafiles: &Datafiles, index: u16, size_bytes: u64) -> u64 {
    datafile_bytes(layout, datafiles, index, size_bytes)
}
