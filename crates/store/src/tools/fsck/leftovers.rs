//! Datafiles that files should not have: what moves that stopped left behind, and what was made and never listed.

use super::context::{CheckStep, Context, TELL_EVERY};
use super::datafiles::{look, said};
use super::finding::{CheckFinding, DamageKind};
use super::hold::{InodeHandle, Subject, hold};
use super::known::Naming;
use super::lost_found;
use super::servers::{Leftovers, is_empty, remove};
use crate::format::handle::Handle;
use crate::format::identity::Said;
use crate::format::placement::{Datafile, Datafiles};
use crate::os::error::Result;
use crate::tools::walk::{WalkedFile, walk};
use std::sync::atomic::{AtomicU64, Ordering};

/// Clears away what is provably of no use; the rest goes to `lost+found`.
pub(super) fn mend(context: &Context<'_>, leftovers: Leftovers) -> Result<()> {
    if leftovers.is_empty() {
        return Ok(());
    }
    let done = AtomicU64::new(0);
    let visit = |entry: &WalkedFile<'_>| {
        let count = done.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(TELL_EVERY) {
            context.progress(CheckStep::Again, count, Some(context.files.load(Ordering::Relaxed)))?;
        }
        let Ok(fd) = entry.open() else { return Ok(true) };
        let subject = Subject::new(fd, entry.path())?;
        let Ok(InodeHandle::Handle(handle)) = subject.handle() else { return Ok(true) };
        if handle.real == subject.stat.st_ino
            && let Some(found) = leftovers.get(&handle.logical)
        {
            mend_file(context, &subject, &handle, found)?;
        }
        Ok(true)
    };
    walk(&context.ground.tree, context.threads(), &visit, &|_, _| ())
}

fn mend_file(context: &Context<'_>, subject: &Subject, before: &Handle, found: &[(Datafile, Naming)]) -> Result<()> {
    let Some(hold) = hold(context, before.logical)? else {
        // Its writer makes datafiles, or moves it.
        context.files_in_use.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    };
    if let Ok(InodeHandle::Handle(handle)) = subject.handle()
        && handle.logical == before.logical
        && let Ok(layout) = context.ground.known_layouts.get(&handle.layout)
        && let Ok(datafiles) = Datafiles::new(&layout, &handle.generations)
    {
        let whole = look(&context.ground, &handle, &datafiles, subject)?;
        let whole = whole.faults.is_empty() && whole.away.is_empty() && handle.truncating_to.is_none();
        for (datafile, _) in found {
            mend_one(context, subject, &handle, &datafiles, *datafile, whole, hold.was_stale);
        }
    }
    let stale = hold.was_stale;
    hold.release(context, !stale)
}

/// `whole`: all that the handle lists is there. `stale`: a writer or mover of the file is gone without a word.
fn mend_one(
    context: &Context<'_>,
    subject: &Subject,
    handle: &Handle,
    datafiles: &Datafiles,
    datafile: Datafile,
    whole: bool,
    stale: bool,
) {
    let index = datafiles.table.iter().position(|other| *other == datafile);
    if index.is_some_and(|index| handle.present.contains(index)) {
        return;
    }
    let Some(server) = context.ground.server(datafile.server) else { return };
    let key = datafile.key(handle.logical);
    let Ok(stat) = server.stat(key) else { return };
    let (kind, what, prefix) = match index {
        Some(_) => (DamageKind::UnlistedDatafile, "its file's handle does not list it", "unlisted"),
        None => (DamageKind::LeftoverDatafile, "its file has no datafile of this generation there", "leftover"),
    };
    let finding = CheckFinding::new(kind, format!("{what} ({} bytes)", stat.st_size), "")
        .of(&subject.path)
        .on(&context.ground.server_name(datafile.server))
        .object(key.path().as_str());
    // One that is not bound to this inode is never destroyed: a user who may write a file can name any.
    let own = match subject.identity(&context.ground) {
        Ok(None) => true,
        Ok(Some(identity)) => said(server, key, identity).is_ok_and(|said| said == Said::Same),
        Err(_) => false,
    };
    // Before a handle leaves a generation, its bytes were copied, synced and compared; and a generation to come is made
    // under a lock that ends with its maker.
    let earlier = own && index.is_none() && datafile.generation < handle.version && whole;
    let unfinished = own && index.is_none() && datafile.generation > handle.version && whole && stale;
    if is_empty(server, key, &stat) || earlier || unfinished {
        let action = if earlier {
            "removed: a finished move left it"
        } else if unfinished {
            "removed: a move that stopped left it"
        } else {
            "removed: it holds no byte"
        };
        context.mend(CheckFinding { action: action.into(), ..finding }, || remove(server, key));
    } else {
        let action = lost_found::action(prefix, key);
        context.mend(CheckFinding { action, ..finding }, || lost_found::keep(server, key, None, prefix));
    }
}
