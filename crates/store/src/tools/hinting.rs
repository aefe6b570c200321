//! Hints of directories: reading them when a file is made, changing them, and handing them down.

use crate::file::inode::Inode;
use crate::format::handle::Optimisations;
use crate::format::hints::{ATTRIBUTE, DirectoryHints, MAX_BYTES};
use crate::format::parser::AskedPaths;
use crate::os::error::{Error, HintsError, Result};
use crate::os::sys::{proc_path, retry};
use crate::pool::rules::Rule;
use crate::pool::store::Store;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_layout::{Layout, Pattern};
use stripewise_optimisation::{OptimisationSetting, SMALL};

/// How long a change waits for another one in a pool of several users.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// The bytes of the attribute; `None` where there is none. One system call.
fn read(directory: BorrowedFd<'_>, buffer: &mut [u8; MAX_BYTES]) -> rustix::io::Result<Option<usize>> {
    match rustix::fs::getxattr(proc_path(directory), ATTRIBUTE, &mut buffer[..]) {
        Ok(length) => Ok(Some(length)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Why the requests on a file go where they go.
#[derive(Debug)]
pub struct PathTaken {
    /// Size in bytes.
    pub size_bytes: u64,
    /// How many of its first bytes are in its inode; more than any offset where all are.
    pub head_bytes: u64,
    /// Whether it has a handle.
    pub has_handle: bool,
    /// What it was given when it was made, or later by itself; of `small` only what moves have left.
    pub made_with: Optimisations,
    /// Version of its handle: 1 until a change of its layout or its optimisations.
    pub version: u32,
    /// Whether what is open for reading alone is read ahead, as long as the file has no writer: not in a pool of several users.
    pub reads_ahead: bool,
    /// Whether small writes one behind the other are gathered.
    pub writes_behind: bool,
    /// Whether kernels keep what is read of it, as long as the file has no writer: not in a pool of several users.
    pub is_cached: bool,
    /// Whether some process has it open for writing, or moves it, at this moment.
    pub has_writer: bool,
    /// Whether a kernel keeps what was read of it for an open of this moment.
    pub is_kept: bool,
    /// How far behind its requests are served while an orchestrator is at work; 0: with all others.
    pub rank: u8,
    /// From how many bytes on a request leaves nothing in the page caches of the servers; `None`: never.
    pub direct_least_bytes: Option<u64>,
    /// The pattern of the rule that names the layout of a new file of its path, if one does: hints change no place then.
    pub rule: Option<Pattern>,
    /// Whether the layout of that rule is the one that the file has.
    pub has_layout_of_rule: bool,
    /// The tier on which it has landed, until it moves to its place.
    pub landed_on: Option<String>,
    /// What the hints of its directory say of its name now.
    pub hinted_now: Optimisations,
    /// Version of these hints.
    pub hints_version: u32,
    /// Why these hints cannot be read or understood, so that they say nothing.
    pub hints_fault: Option<String>,
}

/// What a directory is to say no more of some names.
#[derive(Debug, Clone, Copy)]
pub enum Unsaid<'a> {
    /// Anything.
    All,
    /// The optimisations of these indices, and the layout if that is asked for.
    Some {
        /// Of optimisations.
        indices: &'a [u32],
        /// Whether the layout goes, too.
        layout: bool,
    },
}

impl Store {
    /// Why the requests on the regular file at `path` (relative to the tree) go where they go: those of the next open, by handle, hints
    /// and locks of this moment. What opens that are there have taken is known to their processes alone.
    ///
    /// # Errors
    /// It is no regular file, or its handle or the rules cannot be read.
    pub fn path_taken(self: &Arc<Self>, path: &Path) -> Result<PathTaken> {
        let status = self.status(path)?;
        let placed = status.placed.ok_or_else(|| Error::NotPlaced { file: path.display().to_string() })?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // What is said of new files is no part of what this one has.
        let (hints, hints_fault) = match self.hints(directory) {
            Ok(hints) => (hints, None),
            Err(error) => (DirectoryHints::default(), Some(error.to_string())),
        };
        let name = path.file_name().unwrap_or_default();
        let rule = self.rule_for(path)?;
        let is_layout_of = |rule: &Rule| self.rule_layout(rule).is_ok_and(|layout| *layout == *placed.placement.layout);
        let inode = self.existing(path)?;
        let asked = AskedPaths::parse(&placed.made_with);
        Ok(PathTaken {
            size_bytes: status.size_bytes,
            head_bytes: placed.placement.layout.head_in_inode_bytes(),
            has_handle: placed.has_handle,
            version: placed.placement.version,
            reads_ahead: !self.plane().is_shared() && asked.read_ahead.is_some(),
            writes_behind: asked.write_behind.is_some(),
            is_cached: !self.plane().is_shared() && asked.cached.is_some(),
            has_writer: inode.as_ref().map_or(Ok(false), |inode| inode.is_held())?,
            is_kept: inode.as_ref().map_or(Ok(false), |inode| self.heads.is_kept(inode.handle()))?,
            rank: asked.rank,
            direct_least_bytes: asked.direct_least_bytes,
            has_layout_of_rule: placed.has_handle && rule.as_ref().is_some_and(is_layout_of),
            made_with: placed.made_with,
            rule: rule.map(|rule| rule.pattern),
            landed_on: placed.landed_on,
            hinted_now: hints.of_name(name.as_bytes()),
            hints_version: hints.version,
            hints_fault,
        })
    }

    /// Gives the file at `path` an optimisation ([`Inode::change_optimisations`]), unless it has one of that kind; whether it did.
    /// One that has landed, and is yet to come to its place, gets none: it would seem to be there.
    ///
    /// # Errors
    /// As [`Inode::change_optimisations`]; it is no file with a handle.
    pub fn optimise(self: &Arc<Self>, path: &Path, setting: &OptimisationSetting) -> Result<bool> {
        let (index, parameters) = setting.pack();
        let add = |optimisations: &mut Optimisations| {
            let is_new = optimisations.parameters(index).is_none();
            if is_new {
                optimisations.enable(index, parameters)?;
            }
            Ok(is_new)
        };
        let (inode, name, landed_on) = self.file_to_hint(path)?;
        if landed_on.is_some() { Ok(false) } else { inode.change_optimisations(&name, add) }
    }

    /// Gives the file at `path` these optimisations from its next open on, also over those that it has; all of them or none. Where it
    /// has them already, nothing is changed.
    ///
    /// # Errors
    /// As [`Inode::change_optimisations`]; it is no file with a handle, or it has landed and is yet to come to its place.
    pub fn hint_file(self: &Arc<Self>, path: &Path, given: &Optimisations) -> Result<()> {
        let add = |optimisations: &mut Optimisations| {
            let before = optimisations.clone();
            optimisations.override_by(given);
            Ok(*optimisations != before)
        };
        self.placed_file_to_hint(path)?.change_optimisations(&path.display().to_string(), add).map(drop)
    }

    /// Takes from the file at `path` the optimisations of these indices, or all but `small` (`None`); whether it had all of them, or
    /// any. Else, and where it fails, nothing is changed.
    ///
    /// # Errors
    /// As [`Store::hint_file`].
    pub fn unhint_file(self: &Arc<Self>, path: &Path, indices: Option<&[u32]>) -> Result<bool> {
        let remove = |optimisations: &mut Optimisations| {
            let all = || optimisations.enabled().iter().map(|entry| entry.0).filter(|index| *index != SMALL.index);
            let indices = indices.map_or_else(|| all().collect(), <[u32]>::to_vec);
            Ok(!indices.is_empty() && indices.iter().all(|index| optimisations.disable(*index)))
        };
        self.placed_file_to_hint(path)?.change_optimisations(&path.display().to_string(), remove)
    }

    fn placed_file_to_hint(self: &Arc<Self>, path: &Path) -> Result<Arc<Inode>> {
        match self.file_to_hint(path)? {
            (inode, _, None) => Ok(inode),
            (_, name, Some(tier)) => {
                Err(Error::Invalid(format!("{name} has landed on {tier}, and moves to its place later: hint it then")))
            }
        }
    }

    /// The file at `path`, what errors call it, and the tier on which it has landed.
    fn file_to_hint(self: &Arc<Self>, path: &Path) -> Result<(Arc<Inode>, String, Option<String>)> {
        let name = path.display().to_string();
        let inode = self.existing(path)?.ok_or_else(|| Error::NotPlaced { file: name.clone() })?;
        let landed_on = self.landed_on(&inode.placement()?, path)?.map(|tier| tier.name.clone());
        Ok((inode, name, landed_on))
    }

    /// The hints of `directory` (any descriptor of it, O_PATH too), for files that are made there. Hints that cannot be read or
    /// understood say nothing: a file is made all the same, and [`Store::hints`] says what is wrong. One system call.
    ///
    /// Who keeps them asks again when the epoch counter of the directory's inode number has changed.
    pub fn hints_in(directory: BorrowedFd<'_>) -> DirectoryHints {
        let mut buffer = [0; MAX_BYTES];
        let length = read(directory, &mut buffer).ok().flatten();
        length.and_then(|length| DirectoryHints::decode(&buffer[..length]).ok()).unwrap_or_default()
    }

    /// Gives the new directory `made` the hints of the directory `parent` that it was made in, with the rights of the calling
    /// thread. One system call where there are none, else two.
    ///
    /// # Errors
    /// Those of the calls. A hint is no reason not to make a directory, which has none then.
    pub fn hand_down(parent: BorrowedFd<'_>, made: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let mut buffer = [0; MAX_BYTES];
        match read(parent, &mut buffer)? {
            Some(length) => rustix::fs::setxattr(proc_path(made), ATTRIBUTE, &buffer[..length], XattrFlags::CREATE),
            None => Ok(()),
        }
    }

    /// [`Store::hand_down`] to a directory of the calling thread's user, also where its mode lets its owner not write it: it gets that
    /// right for as long as this takes, as an attribute needs it. Four system calls more then.
    ///
    /// # Errors
    /// As [`Store::hand_down`].
    pub fn hand_down_as_owner(parent: BorrowedFd<'_>, made: BorrowedFd<'_>) -> rustix::io::Result<()> {
        match Self::hand_down(parent, made) {
            Err(Errno::ACCESS) => {}
            done => return done,
        }
        let mode = Mode::from_raw_mode(rustix::fs::fstat(made)?.st_mode);
        // The kernel takes the set-group-id bit silently from an owner who is not in the group.
        if mode.intersects(Mode::WUSR | Mode::SGID) {
            return Err(Errno::ACCESS);
        }
        rustix::fs::chmod(proc_path(made), mode | Mode::WUSR)?;
        let done = Self::hand_down(parent, made);
        rustix::fs::chmod(proc_path(made), mode)?;
        done
    }

    /// The hints of the directory at `path` (relative to the tree).
    ///
    /// # Errors
    /// It is no directory, or its hints are damaged or of a later release.
    pub fn hints(&self, path: &Path) -> Result<DirectoryHints> {
        let place = self.open_place(path)?;
        self.hints_of(place.as_fd(), path)
    }

    fn hints_of(&self, directory: BorrowedFd<'_>, path: &Path) -> Result<DirectoryHints> {
        let mut buffer = [0; MAX_BYTES];
        let unusable = |reason| Error::Hints { path: path.to_owned(), reason };
        match read(directory, &mut buffer) {
            Ok(None) => Ok(DirectoryHints::default()),
            Ok(Some(length)) => DirectoryHints::decode(&buffer[..length]).map_err(unusable),
            Err(Errno::RANGE) => Err(unusable(HintsError::Damaged("longer than 1024 bytes"))),
            Err(errno) => Err(Error::io("read the hints of", path)(errno)),
        }
    }

    /// Changes the hints of the directory at `path` (relative to the tree), for files that are made from then on; the hints
    /// afterwards. Where `change` fails, or the attribute cannot be written, the old ones stand. Changes at once count one
    /// after the other.
    ///
    /// # Errors
    /// It is no directory, the caller may not write it, its hints cannot be read, or those of `change`.
    pub fn change_hints(
        &self,
        path: &Path,
        change: impl FnOnce(&mut DirectoryHints) -> Result<(), HintsError>,
    ) -> Result<DirectoryHints> {
        let directory = self.lock_hints(path)?;
        let mut hints = self.hints_of(directory.as_fd(), path)?;
        change(&mut hints).map_err(|reason| Error::Hints { path: path.to_owned(), reason })?;
        self.write_hints(directory.as_fd(), path, &hints)?;
        Ok(hints)
    }

    /// Says what files get that are made in the directory at `path` from now on, with a name that matches `names`: these
    /// optimisations and, here and below, that layout. All of it or nothing.
    ///
    /// # Errors
    /// As [`Store::change_hints`]; the pool cannot have the layout, or the caller may not write the rules.
    pub fn say_hints(
        &self,
        path: &Path,
        names: Option<Pattern>,
        optimisations: Optimisations,
        layout: Option<&Layout>,
    ) -> Result<()> {
        let directory = self.lock_hints(path)?;
        let says_more = !optimisations.enabled().is_empty();
        let mut hints = DirectoryHints::default();
        if says_more {
            let unusable = |reason| Error::Hints { path: path.to_owned(), reason };
            hints = self.hints_of(directory.as_fd(), path)?;
            hints.set(names.clone(), optimisations).map_err(unusable)?;
        }
        let write = || if says_more { self.write_hints(directory.as_fd(), path, &hints) } else { Ok(()) };
        match layout {
            Some(layout) => self.hint_layout(path, names.as_ref(), layout, write),
            None => write(),
        }
    }

    /// Removes some of what was said of exactly these `names`, or all of it; whether that was said. Else, and where it fails,
    /// nothing is changed.
    ///
    /// # Errors
    /// As [`Store::say_hints`].
    pub fn unsay_hints(&self, path: &Path, names: Option<&Pattern>, what: Unsaid<'_>) -> Result<bool> {
        let directory = self.lock_hints(path)?;
        let (of_hints, of_rules, only) = match what {
            Unsaid::All => (true, true, None),
            Unsaid::Some { indices, layout } => (!indices.is_empty(), layout, Some(indices)),
        };
        let mut hints = DirectoryHints::default();
        if of_hints {
            hints = self.hints_of(directory.as_fd(), path)?;
        }
        let has_hints = hints.remove(names, only);
        // Who may not write the rules may ask for what is not there.
        let has_rule = of_rules && self.has_hinted_layout(path, names)?;
        let is_there = match what {
            Unsaid::All => has_hints || has_rule,
            Unsaid::Some { .. } => (has_hints, has_rule) == (of_hints, of_rules),
        };
        if !is_there {
            return Ok(false);
        }
        let write = || if has_hints { self.write_hints(directory.as_fd(), path, &hints) } else { Ok(()) };
        if has_rule { self.remove_hinted_layout(path, names, write) } else { write() }?;
        Ok(true)
    }

    /// Removes all hints of the directory at `path`, damaged ones too, and the layouts that it gives; or nothing. Their version counts
    /// on.
    ///
    /// # Errors
    /// It is no directory, or the caller may not write it or the rules.
    pub fn remove_hints(&self, path: &Path) -> Result<()> {
        let directory = self.lock_hints(path)?;
        let mut buffer = [0; MAX_BYTES];
        let found = match read(directory.as_fd(), &mut buffer) {
            Ok(length) => length,
            // Longer than hints are: what it begins with says no more than that.
            Err(Errno::RANGE) => Some(0),
            Err(errno) => return Err(Error::io("remove the hints of", path)(errno)),
        };
        let after = found.map(|length| DirectoryHints::none_after(&buffer[..length]));
        self.remove_hinted_layouts(path, || match &after {
            Some(none) => self.write_hints(directory.as_fd(), path, none),
            None => Ok(()),
        })
    }

    /// The directory at `path`, whose hints no other changes until it is closed.
    fn lock_hints(&self, path: &Path) -> Result<OwnedFd> {
        let failed = |errno| Error::io("change the hints of", path)(errno);
        let place = self.open_place(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = retry(|| rustix::fs::open(proc_path(place.as_fd()), flags, Mode::empty())).map_err(failed)?;
        if !self.plane().is_shared() {
            retry(|| rustix::fs::flock(&directory, FlockOperation::LockExclusive)).map_err(failed)?;
            return Ok(directory);
        }
        // Who may read the directory may hold its lock on purpose.
        let began = Instant::now();
        loop {
            match retry(|| rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)) {
                Err(Errno::WOULDBLOCK) if began.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let owner = rustix::fs::fstat(&directory).map_err(failed)?.st_uid;
                    return Err(Error::HeldLock { lock: format!("of the directory {}", path.display()), owner });
                }
                done => return done.map(|()| directory).map_err(failed),
            }
        }
    }

    /// Writes the hints of `directory`, which is locked; those who know them ask again.
    fn write_hints(&self, directory: BorrowedFd<'_>, path: &Path, hints: &DirectoryHints) -> Result<()> {
        let bytes = hints.encode().map_err(|reason| Error::Hints { path: path.to_owned(), reason })?;
        retry(|| rustix::fs::fsetxattr(directory, ATTRIBUTE, &bytes, XattrFlags::empty()))
            .map_err(Error::io("change the hints of", path))?;
        // What cannot be looked at now is asked for again within a second.
        if let Ok(stat) = rustix::fs::fstat(directory) {
            self.plane().bump_epoch(stat.st_ino);
        }
        Ok(())
    }
}
