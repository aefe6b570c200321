//! Several inodes with one handle: copies that were made behind the mount's back (`cp -a` in the namespace).

use super::bindings::{self, Twin};
use super::context::Context;
use super::finding::{CheckFinding, DamageKind};
use super::hold::{hold, shown};
use crate::backend::DatafileAccess;
use crate::file::rights::create_datafile;
use crate::format::handle::Handle;
use crate::format::identity::Identity;
use crate::format::placement::Datafiles;
use crate::os::error::Result;
use crate::os::sys::retry;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

/// Gives the copies of a file handles and datafiles of their own, if the original has not changed since they were made.
/// Returns the new handles.
pub(super) fn resolve(context: &Context<'_>, mut twins: Vec<Twin>) -> Result<Vec<(Handle, Datafiles)>> {
    twins.sort_by(|a, b| a.subject.path.cmp(&b.subject.path));
    if context.ground.shared {
        return bindings::tell_twins(context, &twins).map(|()| Vec::new());
    }
    let position = twins.iter().position(|twin| twin.handle.real == twin.subject.stat.st_ino);
    let Some(original) = position.map(|at| twins.remove(at)) else {
        let names: Vec<_> = twins.iter().map(|twin| shown(&twin.subject.path)).collect();
        for twin in &twins {
            let what = format!("the same handle, of an inode that is not here: {}", names.join(", "));
            let action = "remove all but one of them, and take that over with --rebind";
            context.left(CheckFinding::new(DamageKind::DuplicateHandle, what, action).of(&twin.subject.path));
        }
        return Ok(Vec::new());
    };
    let mut made = Vec::new();
    for copy in &twins {
        let what = format!("its handle is that of {}", shown(&original.subject.path));
        let finding = CheckFinding::new(DamageKind::DuplicateHandle, what, "").of(&copy.subject.path);
        let (a, b) = (&original.subject.stat, &copy.subject.stat);
        let same = (a.st_size, a.st_mtime, a.st_mtime_nsec) == (b.st_size, b.st_mtime, b.st_mtime_nsec)
            && original.handle.layout == copy.handle.layout
            && original.handle.generations == copy.handle.generations;
        if !same {
            let action = "the original has changed since it was copied, so its bytes are not known: remove it, or copy \
                          the original anew, through the mount";
            context.left(CheckFinding { action: action.into(), ..finding });
            continue;
        }
        let Some(hold) = hold(context, original.handle.logical)? else {
            let action = "the original is being written: check again when that has ended";
            context.left(CheckFinding { action: action.into(), ..finding });
            continue;
        };
        let finding =
            CheckFinding { action: "given bytes of its own: the original's, unchanged since".into(), ..finding };
        let mut new = None;
        context.mend(finding, || copy_bytes(context, &original, copy).map(|both| new = Some(both)));
        made.extend(new);
        let stale = hold.was_stale;
        hold.release(context, !stale)?;
    }
    Ok(made)
}

/// Makes `copy` a file of its own. The handle comes last: until then it is as it was.
fn copy_bytes(context: &Context<'_>, original: &Twin, copy: &Twin) -> Result<(Handle, Datafiles)> {
    let store = context.store()?;
    let layout = context.ground.known_layouts.get(&original.handle.layout)?;
    let datafiles = Datafiles::new(&layout, &original.handle.generations)?;
    let new =
        Handle { logical: Handle::new(1, [0; 32]).logical, real: copy.subject.stat.st_ino, ..original.handle.clone() };
    let owner = copy.subject.stat.st_uid;
    let rights = copy.subject.rights();
    for (index, datafile) in datafiles.table.iter().enumerate() {
        if !new.present.contains(index) {
            continue;
        }
        let server = store.plane().server(datafile.server)?;
        let error = server.error("copy a datafile");
        let from =
            server.backend()?.open(datafile.key(original.handle.logical), DatafileAccess::Read).map_err(error)?;
        // A copied handle is no way to another user's bytes.
        let path = datafile.path(original.handle.logical);
        server.check_datafile(path.as_str(), &rustix::fs::fstat(&from).map_err(error)?, owner)?;
        let to =
            create_datafile(store.plane(), new.logical, Identity::without_generation(new.real), *datafile, rights)?;
        copy_sparse(&from, &to).map_err(error)?;
        rustix::fs::fsync(&to).map_err(error)?;
        crate::file::inode::sync_names(&store, new.logical, *datafile)?;
    }
    copy.subject.set_handle(context, &new)?;
    Ok((new, datafiles))
}

/// Copies a datafile; what is a hole stays one.
fn copy_sparse(from: &OwnedFd, to: &OwnedFd) -> rustix::io::Result<()> {
    use rustix::fs::SeekFrom;
    let size = rustix::fs::fstat(from)?.st_size as u64;
    rustix::fs::ftruncate(to, size)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < size {
        at = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(at))?;
        while at < end {
            let wanted = buffer.len().min((end - at) as usize);
            let count = retry(|| rustix::io::pread(from, &mut buffer[..wanted], at))?;
            if count == 0 {
                return Ok(());
            }
            let mut done = 0;
            while done < count {
                done += retry(|| rustix::io::pwrite(to, &buffer[done..count], at + done as u64))?;
            }
            at += count as u64;
        }
    }
    Ok(())
}
