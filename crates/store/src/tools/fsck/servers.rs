//! Every datafile of every server: whose is it?

use super::context::{CheckStep, Context};
use super::finding::{CheckFinding, DamageKind, FindingOutcome};
use super::known::{KnownFiles, Naming};
use super::lost_found;
use crate::file::lockfile::LockFile;
use crate::format::placement::Datafile;
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::pool::neighbours::Silence;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use stripewise_layout::ServerId;

/// Datafiles of files that do not list them, by handle.
pub(super) type Leftovers = HashMap<u64, Vec<(Datafile, Naming)>>;

/// Handle and generation of a datafile's name.
pub(super) fn parse(name: &str) -> Option<(u64, u32)> {
    let digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit));
    let (handle, generation) = name.split_once('.')?;
    if handle.len() != 16 || generation.len() != 8 || !digits(handle) || !digits(generation) {
        return None;
    }
    Some((u64::from_str_radix(handle, 16).ok()?, u32::from_str_radix(generation, 16).ok()?))
}

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
    for (server, directory) in context.ground.present() {
        scan.root(&server.name, directory)?;
    }
    let servers: Vec<_> = context.ground.present().map(|(server, directory)| (server.id, directory)).collect();
    let next = AtomicUsize::new(0);
    let of = servers.len() * 256;
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= of {
                return Ok(());
            }
            // Servers take turns, so that all of them are busy.
            let (id, directory) = servers[index % servers.len()];
            scan.inner(id, directory, (index / servers.len()) as u8)?;
            context.progress(CheckStep::Datafiles, index as u64 + 1, Some(of as u64))?;
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..context.threads()).map(|_| scope.spawn(work)).collect();
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(scan.leftovers.into_inner().unwrap_or_default())
}

impl Scan<'_> {
    /// The names in a server's own directory.
    fn root(&self, server: &str, directory: BorrowedFd<'_>) -> Result<()> {
        for entry in crate::tools::walk::entries(directory, ".".as_ref()).map_err(Error::io("read server", server))? {
            let entry = entry.map_err(Error::io("read server", server))?;
            let name = entry.file_name().to_string_lossy();
            let inner = name.len() == 2 && u8::from_str_radix(&name, 16).is_ok();
            let own = [
                ".",
                "..",
                crate::pool::namespace::MARKER_FILE,
                crate::backend::emulate::QUEUE_FILE,
                lost_found::LOST_FOUND,
            ];
            if !inner && !own.contains(&&*name) && !super::rest::is_half_written(&name) {
                let finding = CheckFinding::new(DamageKind::UnknownFile, "it is nothing of Stripewise's", "left alone");
                self.context.note(finding.on(server).object(&*name));
            }
        }
        Ok(())
    }

    /// One directory of datafiles.
    fn inner(&self, id: ServerId, server: BorrowedFd<'_>, low: u8) -> Result<()> {
        let inner = format!("{low:02x}");
        let entries = match crate::tools::walk::entries(server, inner.as_ref()) {
            Ok(entries) => entries,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => {
                let what = format!("it cannot be read: {errno}");
                let finding =
                    CheckFinding::new(DamageKind::Unreadable, what, "repair its file system, or run as its owner");
                self.context.left(finding.on(&self.context.ground.server_name(id)).object(inner));
                return Ok(());
            }
        };
        for entry in entries {
            let server_error = |errno| {
                let server = self.context.ground.server_name(id);
                Error::Server { action: "read a directory of datafiles", server, errno }
            };
            let entry = entry.map_err(server_error)?;
            let name = entry.file_name().to_string_lossy();
            if name == "." || name == ".." {
                continue;
            }
            let Some((logical, generation)) = parse(&name) else {
                let finding = CheckFinding::new(DamageKind::UnknownFile, "it is nothing of Stripewise's", "left alone");
                let finding = finding.on(&self.context.ground.server_name(id)).object(format!("{inner}/{name}"));
                self.context.note(finding);
                continue;
            };
            self.context.datafiles.fetch_add(1, Ordering::Relaxed);
            if logical as u8 != low {
                self.misplaced(id, server, &inner, &name, logical, generation)?;
                continue;
            }
            match self.known.naming(logical, id, generation) {
                Naming::Listed | Naming::Unknown => {}
                Naming::Orphan => self.orphan(id, server, logical, generation)?,
                // Told with the files; whose it is only its binding says.
                _ if self.context.ground.shared && self.known.of(logical).len() > 1 => {}
                naming @ (Naming::Unlisted | Naming::Leftover) => {
                    let datafile = Datafile { server: id, generation };
                    guard(&self.leftovers).entry(logical).or_default().push((datafile, naming));
                }
            }
        }
        Ok(())
    }

    fn orphan(&self, id: ServerId, server: BorrowedFd<'_>, logical: u64, generation: u32) -> Result<()> {
        let context = self.context;
        let path = Datafile { server: id, generation }.path(logical);
        let Ok(stat) = rustix::fs::statat(server, path.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
        let finding =
            CheckFinding::new(DamageKind::OrphanDatafile, format!("no file has it ({} bytes)", stat.st_size), "")
                .on(&context.ground.server_name(id))
                .object(path.as_str());
        if !context.knows_all_handles() {
            let action = "left, for it may belong to a file that cannot be read: mend that first";
            context.left(CheckFinding { action: action.into(), ..finding });
            return Ok(());
        }
        if self.silence.is_none() && !context.options.dry_run || !context.quiet.was_quiet() {
            if LockFile::exists(context.ground.locks.as_fd(), logical)? {
                // It was made since we looked, or a process has a file open that no longer has a name.
                return Ok(());
            }
            let action = "left, for a file without a name may be open: unmount the pool and check again";
            context.tell(CheckFinding { action: action.into(), outcome: FindingOutcome::InUse, ..finding });
            return Ok(());
        }
        let empty = is_empty(server, path.as_c_str(), &stat);
        if empty || context.options.remove_orphans {
            let action = if empty { "removed: it holds no byte" } else { "removed" };
            context.mend(CheckFinding { action: action.into(), ..finding }, || remove(server, path.as_c_str()));
        } else {
            let action = format!("kept as {}/orphan-{}", lost_found::LOST_FOUND, &path.as_str()[3..]);
            context.mend(CheckFinding { action, ..finding }, || {
                lost_found::keep(server, path.as_c_str(), "orphan", logical, generation).map(drop)
            });
        }
        Ok(())
    }

    /// A datafile in the directory of another: it goes where it belongs, or to `lost+found` if there is one already.
    fn misplaced(
        &self,
        id: ServerId,
        server: BorrowedFd<'_>,
        inner: &str,
        name: &str,
        logical: u64,
        generation: u32,
    ) -> Result<()> {
        let context = self.context;
        let from = format!("{inner}/{name}");
        let to = Datafile { server: id, generation }.path(logical);
        let vacant = rustix::fs::statat(server, to.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
            .is_err_and(|errno| errno == Errno::NOENT);
        if vacant && self.known.naming(logical, id, generation) == Naming::Listed {
            // Told with its file; or that has a writer.
            return Ok(());
        }
        let finding =
            CheckFinding::new(DamageKind::MisplacedDatafile, "it stands in the wrong directory", "kept in lost+found")
                .on(&context.ground.server_name(id))
                .object(&*from);
        let from = std::ffi::CString::new(from).unwrap_or_default();
        context.mend(finding, || lost_found::keep(server, &from, "orphan", logical, generation).map(drop));
        Ok(())
    }
}

/// Whether the file at `path` holds no byte but holes: it is of no use.
pub(super) fn is_empty(server: BorrowedFd<'_>, path: &std::ffi::CStr, stat: &Stat) -> bool {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_blocks > 0 {
        return false;
    }
    // A file system may keep the bytes of a small file in its inode.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let no_data = |fd: OwnedFd| rustix::fs::seek(&fd, SeekFrom::Data(0)) == Err(Errno::NXIO);
    stat.st_size == 0 || rustix::fs::openat(server, path, flags, Mode::empty()).is_ok_and(no_data)
}

/// Removes a datafile.
pub(super) fn remove(server: BorrowedFd<'_>, path: &std::ffi::CStr) -> Result<()> {
    match rustix::fs::unlinkat(server, path, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::io("remove", path.to_string_lossy().into_owned())(errno)),
    }
}
