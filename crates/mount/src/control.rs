//! The ioctls by which the preload learns where a file's bytes are, and `umount` which process serves ([`stripewise_store::ioctl`]).

use std::sync::atomic::Ordering;

use rustix::io::Errno;
use stripewise_store::ioctl::{
    CUT_BACK, CutBack, ENSURE_DATAFILES, EnsureDatafiles, LOST, MAPPED, PLACEMENT, PlacementPage, SERVING_PROCESS,
    SIZE, ServingProcess,
};

use crate::Failure;
use crate::core::Core;
use crate::file::OpenFile;

/// Answers one ioctl on an open file; the bytes that go back.
///
/// # Errors
/// `ENOTTY` for a file without a handle and for commands that are not ours, `EINVAL` for payloads that are too short, `EBADF` for
/// making datafiles or cutting through a descriptor that may not write, and the store's.
pub fn answer(core: &Core, file: &OpenFile, command: u32, payload: &[u8]) -> Result<Vec<u8>, Failure> {
    let inode = &file.shared.file;
    if !inode.has_handle() {
        return Err(Errno::NOTTY.into());
    }
    match command {
        PLACEMENT => {
            let offset = PlacementPage::wanted(payload).ok_or(Errno::INVAL)?;
            file.let_past_the_mount(core)?;
            let mut placement = inode.placement_for(file.writes())?;
            placement.bypass &= !file.shared.mapped.load(Ordering::Acquire);
            placement.bypass &= !file.kept_by_kernel;
            placement.bypass &= !file.has_to_pass_here();
            // What goes past the mount passes another door than the mount's.
            placement.bypass &= core.store.plane().door().lets_past();
            if placement.bypass && offset == 0 {
                inode.note_past_the_mount(file.writes());
            }
            Ok(PlacementPage::reply(&placement.to_bytes(), offset).as_bytes().to_vec())
        }
        ENSURE_DATAFILES => {
            let wanted = EnsureDatafiles::from_bytes(payload).ok_or(Errno::INVAL)?;
            if !file.writes() {
                return Err(Errno::BADF.into());
            }
            file.let_past_the_mount(core)?;
            inode.ensure_datafiles(wanted.version, wanted.wanted())?;
            Ok(Vec::new())
        }
        CUT_BACK => {
            let surplus = CutBack::surplus(payload).ok_or(Errno::INVAL)?;
            if !file.writes() {
                return Err(Errno::BADF.into());
            }
            file.let_past_the_mount(core)?;
            inode.cut_back(&surplus)?;
            Ok(Vec::new())
        }
        SIZE => Ok(inode.certain_size_bytes()?.to_ne_bytes().to_vec()),
        LOST => {
            if !file.writes() {
                return Err(Errno::BADF.into());
            }
            inode.note_lost(Errno::IO);
            Ok(Vec::new())
        }
        MAPPED => {
            file.shared.set_mapped();
            Ok(Vec::new())
        }
        _ => Err(Errno::NOTTY.into()),
    }
}

/// Answers one ioctl on an open directory; the bytes that go back.
///
/// # Errors
/// `ENOTTY` for commands that are not ours.
pub fn answer_of_directory(command: u32) -> Result<Vec<u8>, Errno> {
    match command {
        SERVING_PROCESS => Ok(ServingProcess::this().as_bytes().to_vec()),
        _ => Err(Errno::NOTTY),
    }
}
