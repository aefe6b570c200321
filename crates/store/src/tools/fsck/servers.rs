//! Every datafile of every server: whose is it?

use super::context::{CheckStep, Context};
use super::finding::{CheckFinding, DamageKind, FindingOutcome};
use super::known::{KnownFiles, Naming};
use super::lost_found;
use crate::backend::{Backend, DatafileAccess, Found};
use crate::file::lockfile::LockFile;
use crate::format::placement::{Datafile, DatafileKey};
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::pool::neighbours::Silence;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, SeekFrom, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Datafiles of files that do not list them, by handle.
pub(super) type Leftovers = HashMap<u64, Vec<(Datafile, Naming)>>;

/// State of the look at all servers.
struct Scan<'a> {
    context: &'a Context<'a>,
    known: &'a KnownFiles,
    /// Nothing has the pool mounted, so that a file without a name is not in use.
    silence: Option<Silence<'a>>,
    leftovers: Mutex<Leftovers>,
}

/// Looks at every datafile; those that no file names go to `lost+found`. Returns those that files should not have.
pub(super) fn check_all(context: &Context<'_>, known: &KnownFiles) -> Result<Leftovers> {
    let silence = context.quiet.hold()?;
    let scan = Scan { context, known, silence, leftovers: Mutex::default() };
    for backend in context.ground.present() {
        scan.strangers(backend)?;
    }
    let parts = |backend: &dyn Backend| backend.upkeep().parts();
    let most = context.ground.present().map(parts).max().unwrap_or(0);
    // Servers take turns, so that all of them are busy.
    let of_part = |part| context.ground.present().filter(move |of| part < parts(*of)).map(move |of| (of, part));
    let all: Vec<_> = (0..most).flat_map(of_part).collect();
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((backend, part)) = all.get(index) else { return Ok(()) };
            scan.part(*backend, *part)?;
            context.progress(CheckStep::Datafiles, index as u64 + 1, Some(all.len() as u64))?;
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..context.threads()).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(scan.leftovers.into_inner().unwrap_or_default())
}

impl Scan<'_> {
    /// What stands beside the datafiles of a server.
    fn strangers(&self, backend: &dyn Backend) -> Result<()> {
        let server = &backend.server().name;
        for name in backend.upkeep().strangers().map_err(Error::io("read server", server))? {
            let name = name.map_err(Error::io("read server", server))?;
            if !super::rest::is_half_written(&name) {
                self.unknown(server, name);
            }
        }
        Ok(())
    }

    fn unknown(&self, server: &str, name: String) {
        let finding = CheckFinding::new(DamageKind::UnknownFile, "it is nothing of Stripewise's", "left alone");
        self.context.note(finding.on(server).object(name));
    }

    /// One part of a server's datafiles.
    fn part(&self, backend: &dyn Backend, part: u16) -> Result<()> {
        let server = backend.server();
        let listed = match backend.upkeep().list(part) {
            Ok(listed) => listed,
            Err(errno) => {
                let what = format!("it cannot be read: {errno}");
                let finding =
                    CheckFinding::new(DamageKind::Unreadable, what, "repair its file system, or run as its owner");
                self.context.left(finding.on(&server.name).object(backend.upkeep().part_name(part)));
                return Ok(());
            }
        };
        for found in listed {
            let error =
                |errno| Error::Server { action: "read a directory of datafiles", server: server.name.clone(), errno };
            match found.map_err(error)? {
                Found::Unknown(name) => self.unknown(&server.name, name),
                Found::Elsewhere(key, place) => {
                    self.context.datafiles.fetch_add(1, Ordering::Relaxed);
                    self.misplaced(backend, key, &place);
                }
                Found::Datafile(key) => {
                    self.context.datafiles.fetch_add(1, Ordering::Relaxed);
                    self.datafile(backend, key)?;
                }
            }
        }
        Ok(())
    }

    fn datafile(&self, backend: &dyn Backend, key: DatafileKey) -> Result<()> {
        let (handle, id) = (key.handle, backend.server().id);
        match self.known.naming(handle, id, key.generation) {
            Naming::Listed | Naming::Unknown => {}
            Naming::Orphan => self.orphan(backend, key)?,
            // Told with the files; whose it is only its binding says.
            _ if self.context.ground.shared && self.known.of(handle).len() > 1 => {}
            naming @ (Naming::Unlisted | Naming::Leftover) => {
                let datafile = Datafile { server: id, generation: key.generation };
                guard(&self.leftovers).entry(handle).or_default().push((datafile, naming));
            }
        }
        Ok(())
    }

    fn orphan(&self, backend: &dyn Backend, key: DatafileKey) -> Result<()> {
        let context = self.context;
        let path = key.path();
        let Ok(stat) = backend.stat(key) else { return Ok(()) };
        let finding =
            CheckFinding::new(DamageKind::OrphanDatafile, format!("no file has it ({} bytes)", stat.st_size), "")
                .on(&backend.server().name)
                .object(path.as_str());
        if !context.knows_all_handles() {
            let action = "left, for it may belong to a file that cannot be read: mend that first";
            context.left(CheckFinding { action: action.into(), ..finding });
            return Ok(());
        }
        if self.silence.is_none() && !context.options.dry_run || !context.quiet.was_quiet() {
            if LockFile::exists(context.ground.locks.as_fd(), key.handle)? {
                // It was made since we looked, or a process has a file open that no longer has a name.
                return Ok(());
            }
            let action = "left, for a file without a name may be open: unmount the pool and check again";
            context.tell(CheckFinding { action: action.into(), outcome: FindingOutcome::InUse, ..finding });
            return Ok(());
        }
        let empty = is_empty(backend, key, &stat);
        if empty || context.options.remove_orphans {
            let action = if empty { "removed: it holds no byte" } else { "removed" };
            context.mend(CheckFinding { action: action.into(), ..finding }, || remove(backend, key));
        } else {
            let action = lost_found::action("orphan", key);
            context.mend(CheckFinding { action, ..finding }, || lost_found::keep(backend, key, None, "orphan"));
        }
        Ok(())
    }

    /// A datafile that is not in its place: it goes where it belongs, or to `lost+found` if there is one already.
    fn misplaced(&self, backend: &dyn Backend, key: DatafileKey, from: &str) {
        let context = self.context;
        let server = backend.server();
        let vacant = backend.stat(key).is_err_and(|errno| errno == Errno::NOENT);
        if vacant && self.known.naming(key.handle, server.id, key.generation) == Naming::Listed {
            // Told with its file; or that has a writer.
            return;
        }
        let finding =
            CheckFinding::new(DamageKind::MisplacedDatafile, "it stands in the wrong directory", "kept in lost+found")
                .on(&server.name)
                .object(from);
        context.mend(finding, || lost_found::keep(backend, key, Some(from), "orphan"));
    }
}

/// Whether a datafile holds no byte but holes: it is of no use.
pub(super) fn is_empty(backend: &dyn Backend, key: DatafileKey, stat: &Stat) -> bool {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_blocks > 0 {
        return false;
    }
    // A file system may keep the bytes of a small file in its inode.
    let no_data = |fd: OwnedFd| rustix::fs::seek(&fd, SeekFrom::Data(0)) == Err(Errno::NXIO);
    stat.st_size == 0 || backend.open(key, DatafileAccess::Read).is_ok_and(no_data)
}

/// Removes a datafile.
pub(super) fn remove(backend: &dyn Backend, key: DatafileKey) -> Result<()> {
    match backend.unlink(key, FileType::RegularFile) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::io("remove", key.path().as_str().to_owned())(errno)),
    }
}
