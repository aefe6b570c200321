//! What is left to look at: lock files of files that are gone, half-written files, the rules.

use super::context::Context;
use super::finding::{CheckFinding, DamageKind, FindingOutcome};
use super::known::KnownFiles;
use crate::file::lockfile::{LockFile, Purpose};
use crate::os::error::{Error, Result};
use crate::os::sys::retry;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// Checks it all.
pub(super) fn check(context: &Context<'_>, known: &KnownFiles) -> Result<()> {
    locks(context, known)?;
    half_written(context, None, context.ground.namespace.as_fd())?;
    half_written(context, None, context.ground.layouts.as_fd())?;
    for backend in context.ground.present() {
        let directory = backend.own_directory().map_err(Error::io("read", &backend.server().root))?;
        half_written(context, Some(&backend.server().name), directory)?;
    }
    if let Err(error) = crate::pool::rules::Rules::open(&context.ground.pool.namespace)?.check() {
        let finding = CheckFinding::new(DamageKind::DamagedRules, error.to_string(), "correct or remove the file");
        context.left(finding.object(crate::pool::rules::RULES_FILE));
    }
    Ok(())
}

/// Lock files whose file is gone. Those of files that are there were looked at with them.
fn locks(context: &Context<'_>, known: &KnownFiles) -> Result<()> {
    let locks = context.ground.locks.as_fd();
    let failed = || Error::io("read", context.ground.pool.namespace.join(crate::pool::namespace::LOCKS));
    for entry in crate::tools::walk::entries(locks, ".".as_ref()).map_err(failed())? {
        context.go_on()?;
        let entry = entry.map_err(failed())?;
        let name = entry.file_name().to_string_lossy();
        // An application of layouts that was killed leaves an empty file, which the next one takes.
        if name == "." || name == ".." || crate::pool::applying::is_lock(&name) {
            continue;
        }
        let object = format!("{}/{name}", crate::pool::namespace::LOCKS);
        let handle = u64::from_str_radix(&name, 16).ok().filter(|_| name.len() == 16);
        let Some(handle) = handle else {
            let finding = CheckFinding::new(DamageKind::UnknownFile, "it is nothing of Stripewise's", "left alone");
            context.note(finding.object(object));
            continue;
        };
        if !known.of(handle).is_empty() || !context.knows_all_handles() {
            continue;
        }
        // The lock file of a file that has no name is held as long as it has a writer.
        let Some(lock) = LockFile::open_existing(locks, handle)? else { continue };
        if !lock.try_exclusive(Purpose::Writers)? || !lock.is_current(locks) {
            continue;
        }
        let finding = CheckFinding::new(DamageKind::StaleLock, "its writer is gone, and so is its file", "removed");
        context.mend(finding.object(object), || lock.remove(locks));
    }
    Ok(())
}

/// Whether a name is one that [`crate::os::sys::replace_file`] gives to what it writes: `.NAME.` and 16 digits.
pub(super) fn is_half_written(name: &str) -> bool {
    let digits = |text: &str| text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    name.strip_prefix('.')
        .and_then(|rest| rest.rsplit_once('.'))
        .is_some_and(|(own, end)| !own.is_empty() && digits(end))
}

fn half_written(context: &Context<'_>, server: Option<&str>, directory: BorrowedFd<'_>) -> Result<()> {
    let failed = || Error::io("read", context.ground.pool.namespace.clone());
    for entry in crate::tools::walk::entries(directory, ".".as_ref()).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let name = entry.file_name().to_string_lossy();
        if !is_half_written(&name) {
            continue;
        }
        let mut finding = CheckFinding::new(DamageKind::HalfWritten, "its writer ended before it was done", "removed");
        finding.server = server.map(str::to_owned);
        let finding = finding.object(&*name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = retry(|| rustix::fs::openat(directory, entry.file_name(), flags, Mode::empty())) else {
            continue;
        };
        // The writer of such a file has it locked.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let action = "left alone: it is being written".to_owned();
            context.tell(CheckFinding { action, outcome: FindingOutcome::Note, ..finding });
            continue;
        }
        context.mend(finding, || match rustix::fs::unlinkat(directory, entry.file_name(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::io("remove", name.into_owned())(errno)),
        });
    }
    Ok(())
}
