//! Every file of the tree: its handle, its layout, its datafiles and its size.

use super::context::{CheckStep, Context, TELL_EVERY};
use super::datafiles::{DatafileSurvey, Fault, look};
use super::finding::{CheckFinding, DamageKind};
use super::ground::Ground;
use super::hold::{Hold, InodeHandle, Subject, hold};
use super::known::{Gathering, KnownFiles};
use super::layouts::Lost;
use super::lost_found;
use super::misplaced::Misplaced;
use crate::backend::Backend;
use crate::file::lockfile::LockFile;
use crate::format::extent::bytes_in;
use crate::format::handle::Handle;
use crate::format::identity::Said;
use crate::format::placement::{DatafileKey, Datafiles};
use crate::os::error::{Error, Result};
use crate::os::sync::Mutex;
use crate::tools::directories::why;
use crate::tools::leaving::stretches_on;
use crate::tools::stretches::Stretches;
use crate::tools::walk::{WalkedFile, walk};
use rustix::fd::AsFd;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use stripewise_layout::ServerId;

/// State of the first walk.
struct Files<'a> {
    context: &'a Context<'a>,
    gathering: Gathering,
    lost: Lost,
    misplaced: Misplaced,
    /// Inodes with several names that have been seen.
    seen: Mutex<HashSet<u64>>,
}

/// Checks every file of the tree, and returns what their datafiles are called.
pub(super) fn check_all(context: &Context<'_>) -> Result<KnownFiles> {
    let (gathering, lost, misplaced) = (Gathering::default(), Lost::default(), Misplaced::default());
    let files = Files { context, gathering, lost, misplaced, seen: Mutex::default() };
    walk(&context.ground.tree, context.threads(), &|entry| files.visit(entry).map(|()| true), &|path, errno| {
        unreadable(context, path, &why(errno))
    })?;
    super::layouts::check_rest(context, &files.lost)?;
    context.progress(CheckStep::Files, context.files.load(Ordering::Relaxed), None)?;
    Ok(files.gathering.finish())
}

/// Checks a file whose handle has been corrected, which was counted before.
pub(super) fn check_corrected(context: &Context<'_>, subject: Subject) -> Result<()> {
    context.placed_files.fetch_sub(1, Ordering::Relaxed);
    let (gathering, lost, misplaced) = (Gathering::default(), Lost::default(), Misplaced::default());
    Files { context, gathering, lost, misplaced, seen: Mutex::default() }.check(subject)
}

fn unreadable(context: &Context<'_>, path: &Path, reason: &str) {
    let action = "repair its file system, or run as a user who may read it";
    context
        .unreadable(CheckFinding::new(DamageKind::Unreadable, format!("it cannot be read: {reason}"), action).of(path));
}

impl Files<'_> {
    fn visit(&self, entry: &WalkedFile<'_>) -> Result<()> {
        let context = self.context;
        let count = context.files.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(TELL_EVERY) {
            context.progress(CheckStep::Files, count, None)?;
        }
        let subject = match entry.open() {
            Ok(fd) => Subject::new(fd, entry.path())?,
            // Removed since its name was read.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => {
                unreadable(context, &entry.path(), &why(errno));
                return Ok(());
            }
        };
        if subject.stat.st_nlink > 1 && !crate::os::sync::guard(&self.seen).insert(subject.stat.st_ino) {
            return Ok(());
        }
        let path = subject.path.clone();
        if let Err(error) = self.check(subject) {
            unreadable(context, &path, &error.to_string());
        }
        Ok(())
    }

    fn check(&self, mut subject: Subject) -> Result<()> {
        let (context, inode) = (self.context, subject.stat.st_ino);
        let handle = match subject.handle()? {
            InodeHandle::Plain => {
                context.allocated_bytes.fetch_add(512 * subject.stat.st_blocks as u64, Ordering::Relaxed);
                return Ok(());
            }
            InodeHandle::Handle(handle) => handle,
            // The second walk looks at it, when all other handles are known.
            InodeHandle::Damaged(..) => {
                context.placed_files.fetch_add(1, Ordering::Relaxed);
                self.gathering.note_damaged();
                return Ok(());
            }
        };
        context.placed_files.fetch_add(1, Ordering::Relaxed);
        let Some(datafiles) = self.shape(&subject, &handle)? else {
            self.gathering.add_unknown(handle.logical, inode, handle.real == inode);
            return Ok(());
        };
        self.gathering.add(&handle, &datafiles, inode);
        if handle.real != inode {
            return Ok(());
        }
        let stale = LockFile::exists(context.ground.locks.as_fd(), handle.logical)?;
        let found = look(&context.ground, &handle, &datafiles, &subject)?;
        let allocated_bytes = found.allocated_bytes + 512 * subject.stat.st_blocks as u64;
        context.allocated_bytes.fetch_add(allocated_bytes, Ordering::Relaxed);
        if found.faults.iter().any(|fault| matches!(fault, Fault::Unbound(_))) {
            // Whose they are is known when all handles are: the second walk looks at it.
            self.gathering.note_unbound();
            return Ok(());
        }
        if !stale && in_order(&found, &handle, subject.stat.st_size as u64) {
            return Ok(());
        }
        if let Some(index) = handle.optimisations.unknown_promise() {
            let what = format!("it is not in order, and has optimisation {index} of a later release");
            let action = "check with the release that gave it that";
            context.left(CheckFinding::new(DamageKind::LaterHandle, what, action).of(&subject.path));
            return Ok(());
        }
        if found.faults.is_empty() && handle.truncating_to.is_none() && !found.away.is_empty() {
            // What can be said is said: its end is not known without that server.
            self.tell_away(&subject, &handle, &datafiles, &found.away);
            return Ok(());
        }
        // Once more, without a writer.
        let Some(hold) = hold(context, handle.logical)? else {
            context.files_in_use.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        subject.renew()?;
        let settled = match subject.handle()? {
            InodeHandle::Handle(now) if now.logical == handle.logical && subject.stat.st_nlink > 0 => {
                self.judge(&mut subject, now, &hold)
            }
            _ => Ok(true),
        };
        let released = hold.release(context, matches!(settled, Ok(true)));
        settled.and(released)
    }

    /// The datafiles of a file; `None`, and it is told, when they cannot be known.
    fn shape(&self, subject: &Subject, handle: &Handle) -> Result<Option<Datafiles>> {
        let context = self.context;
        let Some(layout) = self.lost.get(context, &handle.layout) else {
            let what = format!("its layout {} is lost", crate::pool::layouts::hex(&handle.layout));
            let finding =
                CheckFinding::new(DamageKind::MissingLayout, what, "once the layout is there again, so is the file");
            context.left(finding.of(&subject.path));
            return Ok(None);
        };
        match Datafiles::new(&layout, &handle.generations) {
            Ok(datafiles) => Ok(Some(datafiles)),
            Err(error) => {
                let action = "restore it from a backup; its datafiles are left as they are";
                context.left(CheckFinding::new(DamageKind::DamagedHandle, error.to_string(), action).of(&subject.path));
                Ok(None)
            }
        }
    }

    /// Tells and mends all that is wrong with a file, under its lock. Whether its size is settled now.
    fn judge(&self, subject: &mut Subject, mut handle: Handle, hold: &Hold<'_>) -> Result<bool> {
        let context = self.context;
        let Some(datafiles) = self.shape(subject, &handle)? else { return Ok(false) };
        let found = look(&context.ground, &handle, &datafiles, subject)?;
        if found.faults.iter().any(|fault| matches!(fault, Fault::Unbound(_))) {
            return Ok(false);
        }
        let mut whole = true;
        for fault in &found.faults {
            whole &= self.mend_datafile(subject, &mut handle, &datafiles, fault);
        }
        if !found.away.is_empty() {
            self.tell_away(subject, &handle, &datafiles, &found.away);
            return Ok(false);
        }
        if !whole {
            return Ok(false);
        }
        let size_bytes = subject.stat.st_size as u64;
        let finding = if let Some(to) = handle.truncating_to {
            let what = format!("a change of size to {to} bytes, or a move, stopped half-way");
            CheckFinding::new(DamageKind::HalfChange, what, "finished it")
        } else if found.least_bytes > size_bytes {
            let what = format!("its inode says {size_bytes} bytes, its datafiles reach to {}", found.least_bytes);
            CheckFinding::new(DamageKind::Size, what, "took the size from the datafiles")
        } else if hold.was_stale {
            let what = "its writer ended without a word";
            CheckFinding::new(DamageKind::StaleLock, what, "size and time settled, lock file removed")
                .object(format!("locks/{:016x}", handle.logical))
        } else {
            return Ok(true);
        };
        Ok(context.mend(finding.of(&subject.path), || subject.inode(context, &handle)?.recover_under_lock()))
    }

    /// Tells of each server that is not there which bytes of the file it has, by the layout.
    fn tell_away(&self, subject: &Subject, handle: &Handle, datafiles: &Datafiles, away: &BTreeSet<ServerId>) {
        let size_bytes = subject.stat.st_size as u64;
        for server in away {
            let name = self.context.ground.server_name(*server);
            let lost = stretches_on(datafiles, &handle.present, *server, size_bytes);
            let has = if lost.bytes > 0 { lost.words() } else { "no byte".to_owned() };
            let what = format!("it needs {name}, which is not there and has {has} of the file, but for holes");
            let action = "bring the server back; the rest of the file is readable";
            let finding = CheckFinding::new(DamageKind::MissingServer, what, action);
            self.context.left(finding.on(&name).of(&subject.path).without(&lost));
        }
    }

    /// Tells one fault of a datafile and mends it if it can be. Whether it is in order now.
    #[expect(clippy::too_many_lines, reason = "a table: an arm for each fault, with what it reports and what mends it")]
    fn mend_datafile(&self, subject: &Subject, handle: &mut Handle, datafiles: &Datafiles, fault: &Fault) -> bool {
        let context = self.context;
        let index = match fault {
            Fault::Missing(index)
            | Fault::Type(index)
            | Fault::Unbound(index)
            | Fault::Owner(index, _)
            | Fault::Short(index, ..)
            | Fault::Rights(index, ..) => *index,
        };
        let datafile = datafiles.table[usize::from(index)];
        let name = context.ground.server_name(datafile.server);
        let path = datafile.path(handle.logical);
        let told = |kind, what: String, action: &str| {
            CheckFinding::new(kind, what, action).of(&subject.path).on(&name).object(path.as_str())
        };
        let Some(backend) = context.ground.server(datafile.server) else { return false };
        let key = datafile.key(handle.logical);
        match *fault {
            Fault::Missing(_) => {
                let size_bytes = (subject.stat.st_size as u64).max(handle.truncating_to.unwrap_or(0));
                let lost_bytes = bytes_in(datafiles, index, size_bytes);
                if lost_found::has(backend, key) {
                    let finding =
                        told(DamageKind::MissingDatafile, "a datafile is gone".into(), "taken back from lost+found");
                    return context.mend(finding, || lost_found::take_back(backend, key));
                }
                if lost_bytes > 0
                    && let Some(from) = self.misplaced.find(context, handle.logical, datafile)
                {
                    let what = format!("it stands in the wrong directory, as {from}");
                    let finding = told(DamageKind::MisplacedDatafile, what, "put into its place");
                    let put = || {
                        backend.upkeep().put_right(key, &from).map_err(Error::io("put into its place", from.clone()))
                    };
                    return context.mend(finding, put);
                }
                let forget = |handle: &mut Handle| {
                    // First: one that is made anew has nothing of what was recorded.
                    subject.lower_length(handle.logical, datafile, 0)?;
                    handle.present.remove(usize::from(index));
                    subject.set_handle(context, handle)
                };
                if lost_bytes == 0 {
                    let what = "a datafile is gone that was made after the file was last synced".to_owned();
                    let finding = told(DamageKind::MissingDatafile, what, "forgot it: the file has no byte there");
                    return context.mend(finding, || forget(handle));
                }
                let lost = Stretches::of(datafiles, index, (0, u64::MAX), size_bytes);
                let what = format!("a datafile is gone: {} of the file are lost, but for holes", lost.words());
                let finding = |action| told(DamageKind::MissingDatafile, what, action).without(&lost);
                if context.options.forget_missing {
                    let action = "forgot it: its bytes read as zeros from now on";
                    return context.mend(finding(action), || forget(handle));
                }
                context.left(finding("restore it from a backup, or give its bytes up with --forget-missing"));
                false
            }
            Fault::Short(_, found_bytes, recorded_bytes) => {
                let size_bytes = (subject.stat.st_size as u64).max(handle.truncating_to.unwrap_or(0));
                let place = (found_bytes, recorded_bytes);
                let lost = Stretches::of(datafiles, index, place, size_bytes);
                let lower = || subject.lower_length(handle.logical, datafile, found_bytes);
                let ends = format!("it ends at byte {found_bytes}, {recorded_bytes} had been recorded");
                if lost.bytes == 0 {
                    let finding = told(DamageKind::ShortDatafile, ends, "recorded that: the file has no byte there");
                    return context.mend(finding, lower);
                }
                let what = format!("{ends}: {} of the file are lost", lost.words());
                let finding = |action| told(DamageKind::ShortDatafile, what, action).without(&lost);
                if context.options.forget_missing {
                    return context.mend(finding("gave them up: they read as zeros from now on"), lower);
                }
                context.left(finding("restore these bytes from a backup, or give them up with --forget-missing"));
                false
            }
            Fault::Type(_) => {
                let what = "something that is no regular file has the name of a datafile".to_owned();
                context.left(told(DamageKind::DatafileType, what, "look at it, move it away, and check again"));
                false
            }
            // Told by the second walk.
            Fault::Unbound(_) => false,
            Fault::Owner(_, found) => {
                let what = format!("it belongs to user {found}, the file to user {}", subject.stat.st_uid);
                if !backend.upkeep().is_guarded(key) && !subject.was_given_by(handle.logical, found) {
                    let action = "others can write its directory, so it may have been exchanged: look at it, chown it";
                    context.left(told(DamageKind::DatafileOwner, what, action));
                    return false;
                }
                let finding = told(DamageKind::DatafileOwner, what, "gave it to the file's owner and group");
                context.mend(finding, || give(subject, &context.ground, backend, key, found))
            }
            Fault::Rights(_, gid, mode) => {
                let rights = subject.rights();
                let what = format!(
                    "it is group {gid}'s with mode {mode:o}, by its file it is group {}'s with mode {:o}",
                    rights.gid, rights.mode
                );
                let finding = told(DamageKind::DatafileRights, what, "gave it the file's group and mode");
                context.mend(finding, || give(subject, &context.ground, backend, key, rights.uid))
            }
        }
    }
}

/// Gives a datafile of the file, which is still `owner`'s and has no other name, the owner, group and mode that it is
/// to have.
fn give(subject: &Subject, ground: &Ground, backend: &dyn Backend, key: DatafileKey, owner: u32) -> Result<()> {
    let error = |errno| Error::io("change owner or mode of the datafile", key.path().as_str())(errno);
    let fd = super::datafiles::open(backend, key)?;
    if let Some(identity) = subject.identity(ground)?
        && identity.asked_of(&fd).map_err(error)? != Said::Same
    {
        return Err(error(Errno::EXIST));
    }
    let stat = rustix::fs::fstat(&fd).map_err(error)?;
    if stat.st_uid != owner || stat.st_nlink != 1 || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(error(Errno::EXIST));
    }
    subject.rights().give(fd.as_fd()).map_err(error)
}

/// Whether nothing has to be mended.
fn in_order(found: &DatafileSurvey, handle: &Handle, size_bytes: u64) -> bool {
    found.faults.is_empty()
        && found.away.is_empty()
        && handle.truncating_to.is_none()
        && found.least_bytes <= size_bytes
}
