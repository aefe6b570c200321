//! Handles that cannot be used as they are: damaged ones, and those of other inodes.

use super::bindings::{self, Twin};
use super::context::{CheckStep, Context, TELL_EVERY};
use super::correct::corrections;
use super::datafiles::look;
use super::duplicates;
use super::finding::{CheckFinding, DamageKind};
use super::hold::{InodeHandle, Subject, hold};
use super::known::KnownFiles;
use crate::format::handle::Handle;
use crate::format::placement::Datafiles;
use crate::os::error::{HandleError, Result};
use crate::os::sync::{Mutex, guard};
use crate::tools::walk::{WalkedFile, walk};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest damaged handle of which every byte is tried.
const MAX_CORRECTED_BYTES: usize = 1024;

struct Again<'a> {
    context: &'a Context<'a>,
    known: &'a KnownFiles,
    seen: Mutex<HashSet<u64>>,
    /// Files that share a handle.
    twins: Mutex<BTreeMap<u64, Vec<Twin>>>,
    /// Handles that got their inode, or were corrected.
    settled: Mutex<Vec<(Handle, Datafiles)>>,
    done: AtomicU64,
}

/// Looks again at the files whose handles cannot be used, now that all others are known.
pub(super) fn resolve(context: &Context<'_>, known: &mut KnownFiles) -> Result<()> {
    // In a shared pool, any user who may write a file can have given it any handle.
    let planted = context.ground.shared && known.has_twins();
    if !known.has_doubtful() && !planted {
        return Ok(());
    }
    let again = Again {
        context,
        known,
        seen: Mutex::default(),
        twins: Mutex::default(),
        settled: Mutex::default(),
        done: AtomicU64::new(0),
    };
    walk(&context.ground.tree, context.threads(), &|entry| again.visit(entry).map(|()| true), &|_, _| ())?;
    let twins = again.twins.into_inner().unwrap_or_default();
    let settled = again.settled.into_inner().unwrap_or_default();
    settled.iter().for_each(|(handle, datafiles)| known.add(handle, datafiles));
    for (_, twins) in twins {
        for (handle, datafiles) in duplicates::resolve(context, twins)? {
            known.add(&handle, &datafiles);
        }
    }
    Ok(())
}

impl Again<'_> {
    fn visit(&self, entry: &WalkedFile<'_>) -> Result<()> {
        let context = self.context;
        let count = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(TELL_EVERY) {
            context.progress(CheckStep::Again, count, Some(context.files.load(Ordering::Relaxed)))?;
        }
        // What cannot be opened was told by the first walk.
        let Ok(fd) = entry.open() else { return Ok(()) };
        let subject = Subject::new(fd, entry.path())?;
        if subject.stat.st_nlink > 1 && !guard(&self.seen).insert(subject.stat.st_ino) {
            return Ok(());
        }
        match subject.handle() {
            Ok(InodeHandle::Damaged(bytes, error)) => {
                if self.damaged(subject, &bytes, &error)
                    && let Ok(fd) = entry.open()
                {
                    super::file::check_corrected(context, Subject::new(fd, entry.path())?)?;
                }
                Ok(())
            }
            Ok(InodeHandle::Handle(handle)) => self.foreign(subject, handle),
            Ok(InodeHandle::Plain) | Err(_) => Ok(()),
        }
    }

    /// Whether the handle is right now.
    fn damaged(&self, subject: Subject, bytes: &[u8], error: &HandleError) -> bool {
        let context = self.context;
        let finding = CheckFinding::new(DamageKind::DamagedHandle, error.to_string(), "").of(&subject.path);
        let candidates = if bytes.len() <= MAX_CORRECTED_BYTES { corrections(bytes) } else { Vec::new() };
        let mut right = candidates.into_iter().filter_map(|handle| self.proven(&subject, handle));
        let Some((handle, datafiles)) = right.next() else {
            context.note_unknown_handle();
            context.left(match error {
                HandleError::Format(_) => {
                    let action = "check with the release that wrote it".to_owned();
                    CheckFinding { kind: DamageKind::LaterHandle, action, ..finding }
                }
                _ => {
                    CheckFinding { action: "restore the file from a backup; its datafiles are kept".into(), ..finding }
                }
            });
            return false;
        };
        let finding = CheckFinding { action: "corrected: check sum and datafiles agree".into(), ..finding };
        if !context.mend(finding, || subject.set_handle(context, &handle)) {
            context.note_unknown_handle();
        }
        guard(&self.settled).push((handle, datafiles));
        matches!(subject.handle(), Ok(InodeHandle::Handle(_)))
    }

    /// Whether a corrected handle is what the disks say it is: of this inode, used by no other, its layout there, and its
    /// datafiles exactly those that it lists.
    fn proven(&self, subject: &Subject, handle: Handle) -> Option<(Handle, Datafiles)> {
        let ground = &self.context.ground;
        if handle.real != subject.stat.st_ino || !self.known.of(handle.logical).is_empty() {
            return None;
        }
        let layout = ground.known_layouts.get(&handle.layout).ok()?;
        let datafiles = Datafiles::new(&layout, &handle.generations).ok()?;
        for (index, datafile) in datafiles.table.iter().enumerate() {
            let there = ground.server(datafile.server)?.stat(datafile.key(handle.logical));
            if there.is_ok() != handle.present.contains(index) {
                return None;
            }
        }
        Some((handle, datafiles))
    }

    /// A handle that is another inode's, or that another inode has a copy of.
    fn foreign(&self, subject: Subject, handle: Handle) -> Result<()> {
        let context = self.context;
        let same = self.known.of(handle.logical);
        let bound = handle.real == subject.stat.st_ino;
        if same.len() > 1 {
            guard(&self.twins).entry(handle.logical).or_default().push(Twin { subject, handle });
            return Ok(());
        }
        if bound {
            return if context.ground.shared {
                bindings::check(context, &subject, &handle, !self.known.damaged)
            } else {
                Ok(())
            };
        }
        let what = format!("its handle is that of inode {}, it is inode {}", handle.real, subject.stat.st_ino);
        let finding = CheckFinding::new(DamageKind::UnboundHandle, what, "").of(&subject.path);
        if !context.options.rebind {
            let action = "if the pool was copied or restored, take it over with --rebind";
            context.left(CheckFinding { action: action.into(), ..finding });
            return Ok(());
        }
        rebind(context, &subject, &handle, finding)
    }
}

/// Gives a handle the number of the inode that carries it, if its datafiles are there and the file owner's.
fn rebind(context: &Context<'_>, subject: &Subject, handle: &Handle, finding: CheckFinding) -> Result<()> {
    let refused = |reason: String| {
        let action = format!("not taken over: {reason}");
        context.left(CheckFinding { action, ..finding.clone() });
    };
    let Ok(layout) = context.ground.known_layouts.get(&handle.layout) else {
        refused("its layout is lost".into());
        return Ok(());
    };
    let Ok(datafiles) = Datafiles::new(&layout, &handle.generations) else {
        refused("it does not fit its layout".into());
        return Ok(());
    };
    let found = look(&context.ground, handle, &datafiles, subject)?;
    let owners = found.faults.iter().any(|fault| matches!(fault, super::datafiles::Fault::Owner(..)));
    if owners {
        refused("its datafiles are another user's".into());
        return Ok(());
    }
    let Some(hold) = hold(context, handle.logical)? else {
        refused("it is being written".into());
        return Ok(());
    };
    let bound = Handle { real: subject.stat.st_ino, ..handle.clone() };
    let finding = CheckFinding { action: "taken over".into(), ..finding };
    let taken = context.mend(finding, || {
        bindings::bind(context, subject, &bound, &datafiles)?;
        subject.set_handle(context, &bound)
    });
    // Whether it is in order otherwise is for the next look at it. A check that was killed here left its lock file.
    let whole = found.faults.is_empty() && found.away.is_empty();
    let settled = taken
        && hold.was_stale
        && whole
        && subject.inode(context, &bound).and_then(|inode| inode.recover_under_lock()).is_ok();
    hold.release(context, settled)
}
