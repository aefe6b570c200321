//! Shared pools: to which inode the datafiles of a handle are bound. The bytes are the file's whose inode they name, whatever
//! other handles say; and nothing of them is copied into a file that others may write.

use super::context::Context;
use super::datafiles::{Fault, look, open};
use super::finding::{CheckFinding, DamageKind};
use super::hold::{Subject, hold, shown};
use crate::format::handle::Handle;
use crate::format::placement::Datafiles;
use crate::os::error::{Error, Result};
use rustix::fs::FileType;

/// One of several files that have the same handle.
pub(super) struct Twin {
    pub(super) subject: Subject,
    pub(super) handle: Handle,
}

/// Tells which of several files with one handle has the bytes. The others are left to people: what their own handles were is
/// not known, so their datafiles stay where they are.
pub(super) fn tell_twins(context: &Context<'_>, twins: &[Twin]) -> Result<()> {
    let mut keepers = Vec::new();
    for (index, twin) in twins.iter().enumerate() {
        if let Ok(layout) = context.ground.known_layouts.get(&twin.handle.layout)
            && let Ok(datafiles) = Datafiles::new(&layout, &twin.handle.generations)
        {
            let found = look(&context.ground, &twin.handle, &datafiles, &twin.subject)?;
            if found.has_own && !found.faults.iter().any(|fault| matches!(fault, Fault::Unbound(_) | Fault::Owner(..)))
            {
                keepers.push(index);
            }
        }
    }
    context.note_unknown_handle();
    let names = |of: &[usize]| of.iter().map(|index| shown(&twins[*index].subject.path)).collect::<Vec<_>>().join(", ");
    let all: Vec<usize> = (0..twins.len()).collect();
    for (_, twin) in twins.iter().enumerate().filter(|(index, _)| !keepers.contains(index)) {
        let finding = if keepers.is_empty() {
            let what =
                format!("these files have one handle, and its datafiles are bound to none of them: {}", names(&all));
            let action = "find out whose the bytes are, remove the others, and check again";
            CheckFinding::new(DamageKind::DuplicateHandle, what, action)
        } else {
            let what = format!("its handle is that of {}, whose the datafiles are", names(&keepers));
            let action = "who may write it has exchanged its handle, or it is a copy: remove it, or restore it from a backup; \
                          datafiles that were its own are kept";
            CheckFinding::new(DamageKind::DuplicateHandle, what, action)
        };
        context.left(finding.of(&twin.subject.path));
    }
    Ok(())
}

/// Looks at the bindings of the only file that has this handle, and mends them where the datafiles are beyond doubt its own:
/// every handle of the pool can be read, and owner, group and mode are the file's. A pool that was copied or restored has other
/// inodes.
pub(super) fn check(context: &Context<'_>, subject: &Subject, handle: &Handle, all_readable: bool) -> Result<()> {
    let Ok(layout) = context.ground.known_layouts.get(&handle.layout) else { return Ok(()) };
    let Ok(datafiles) = Datafiles::new(&layout, &handle.generations) else { return Ok(()) };
    let found = look(&context.ground, handle, &datafiles, subject)?;
    if !found.faults.iter().any(|fault| matches!(fault, Fault::Unbound(_))) {
        return Ok(());
    }
    let what = "its datafiles are bound to another inode, or to none";
    let finding = CheckFinding::new(DamageKind::UnboundHandle, what, "").of(&subject.path);
    let left = |action: &str| context.left(CheckFinding { action: action.into(), ..finding.clone() });
    if !all_readable || !context.knows_all_handles() {
        left("left, for they may belong to a file that cannot be read: mend that first");
        return Ok(());
    }
    let Some(hold) = hold(context, handle.logical)? else {
        left("it is being written: check again when that has ended");
        return Ok(());
    };
    let stale = hold.was_stale;
    context.mend(CheckFinding { action: "bound to the only file that names them".into(), ..finding.clone() }, || {
        bind(context, subject, handle, &datafiles)
    });
    hold.release(context, !stale)
}

/// Binds the datafiles of a file of a shared pool to its inode, if all that are there have its owner, group and mode; none
/// otherwise.
pub(super) fn bind(context: &Context<'_>, subject: &Subject, handle: &Handle, datafiles: &Datafiles) -> Result<()> {
    let Some(identity) = subject.identity(&context.ground)? else { return Ok(()) };
    let rights = subject.rights();
    let mut opened = Vec::new();
    for (index, datafile) in datafiles.table.iter().enumerate().filter(|(index, _)| handle.present.contains(*index)) {
        let path = datafile.path(handle.logical);
        let Some(backend) = context.ground.server(datafile.server) else { continue };
        let fd = match open(backend, datafile.key(handle.logical)) {
            Err(error) if error.errno() == rustix::io::Errno::NOENT => continue,
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&fd).map_err(Error::io("look at the datafile", path.as_str()))?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1;
        if !regular || stat.st_uid != rights.uid || !rights.are_those_of(&stat) {
            return Err(Error::Invalid(format!(
                "datafile {} ({index}) has not the owner, group and mode of the file, or a second name: it may be of a file that \
                 was removed",
                path.as_str()
            )));
        }
        opened.push((fd, path));
    }
    opened.iter().try_for_each(|(fd, path)| {
        identity.bind(fd).map_err(Error::io("bind the datafile", path.as_str()))?;
        rustix::fs::fsync(fd).map_err(Error::io("sync the datafile", path.as_str()))
    })
}
