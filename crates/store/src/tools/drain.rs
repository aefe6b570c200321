//! Drains a server: every file leaves it, while programs use the pool.
//!
//! ```text
//! check     all files that can move fit on the servers that remain; nothing is changed before
//! mark      the pool file says `draining`: new files leave the server out, within a second in mounts that are there
//! rules     rules that name the server get layouts without it
//! pass      each file that names it is moved; again until a pass finds none
//! ```
//! Each file is moved as by `apply`, a large one in steps: killed at any time it is whole, in its old layout, that of a step, or the new
//! one. The mark stays, so that the same command goes on with it. A file that cannot move stays and is listed; it keeps no other file from moving.

use crate::backend::{Server, ServerState, Setting};
use crate::file::inode::Inode;
use crate::file::room_ahead::RoomAhead;
use crate::file::steps::Then;
use crate::format::marker::{check_marker, marker_server};
use crate::os::error::{Error, Result};
use crate::os::room::Room;
use crate::pool::pool_file::Pool;
use crate::pool::store::Store;
use crate::tools::adding::{NewServers, is_one_directory};
use crate::tools::in_steps::{Unreadable, is_unreadable, move_in_steps, steps};
use crate::tools::leaving::{held, names, stretches_on, targets};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_layout::{Layout, ServerId};

/// How long a mount may go on making files by the pool file as it was: it looks again each second.
const KNOWN_TO_ALL: Duration = Duration::from_millis(1250);
/// What is to be done with a server that is to be removed.
const DRAIN_FIRST: &str =
    "run `stripewise pool drain` first, or with `--lost` give up what it has if its disk has died";
/// Servers that an error names.
const NAMED: usize = 4;
/// Passes in which nothing moved, as files had other names by then, before what is left is listed.
const MOST_RESTLESS: u32 = 25;
/// Between two tries to move files that were open for writing.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Where to, and how patiently.
#[derive(Debug, Clone, Default)]
pub struct DrainOptions {
    /// The tier that takes the bytes; the server's own if left out.
    pub to: Option<String>,
    /// Go on until no file is open for writing any more.
    pub wait: bool,
    /// Only check whether it can be done.
    pub dry_run: bool,
}

/// Told how a drain goes on, in the thread that called it.
pub trait DrainWatch {
    /// `done` of `total` bytes are copied or read back; the file at `path` is next or at it. When it is stopped, the file stays
    /// as it was, and those before it have moved.
    fn progress(&mut self, path: &str, done_bytes: u64, total_bytes: u64) -> Then;
}

/// A file that stays on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StayingFile {
    /// Its path relative to the tree.
    pub path: String,
    /// Why.
    pub why: String,
    /// It is open for writing: it can be moved when that has ended.
    pub is_busy: bool,
    /// Its bytes that stand on the server, as `(from, to)`; of very many the first.
    pub stretches: Vec<(u64, u64)>,
    /// How many stretches there are behind these.
    pub left_out: u64,
    /// How many bytes all stretches have.
    pub bytes: u64,
}

impl StayingFile {
    /// One that `error` keeps; nothing is known of its bytes.
    pub(crate) fn of(path: String, error: &Error) -> Self {
        let is_busy = matches!(error.cause(), Error::Busy { .. });
        Self { path, why: error.to_string(), is_busy, stretches: Vec::new(), left_out: 0, bytes: 0 }
    }
}

/// What a drain did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drained {
    /// Files that were moved, or would be.
    pub moved_files: u64,
    /// Bytes of them that were copied, or would be.
    pub copied_bytes: u64,
    /// Rules for new files that got another layout.
    pub rules: usize,
    /// Files that stay.
    pub staying: Vec<StayingFile>,
    /// Of files that were named, those that had nothing to move: they are gone, others, or were changed since that was decided.
    pub passed_over: Vec<String>,
    /// It was stopped.
    pub stopped: bool,
}

impl Drained {
    /// Whether no file is left on the server.
    pub fn is_done(&self) -> bool {
        self.staying.is_empty() && !self.stopped
    }
}

/// Drains the server `name` of the pool in `file`.
///
/// # Errors
/// It cannot be done, and nothing was changed: the server is the last of its tier, too little room for the files that can move,
/// another process changes layouts of the pool.
pub fn drain(file: &Path, name: &str, options: &DrainOptions, watch: &mut dyn DrainWatch) -> Result<Drained> {
    let store = Store::of_file(file)?;
    let _alone = store.begin_apply()?;
    let leaving = store.pool().named(name)?.clone();
    let targets = targets(&store, leaving.id, options.to.as_deref())?;
    let mut drain = Drain::new(store.clone(), leaving.id, targets, options.wait);
    let planned = drain.check()?;
    if options.dry_run {
        return Ok(planned);
    }
    if leaving.state == ServerState::Used {
        let (tier, place) = entry_of(store.pool(), &leaving);
        Pool::write_state(file, tier, place, ServerState::Draining)?;
    }
    // As the pool is from now on.
    drain.store = Store::of_file(file)?;
    drain.total_bytes = planned.copied_bytes * 2;
    drain.run(watch)
}

/// Takes a drain back: the server gets new files again, and what has moved stays where it is.
///
/// # Errors
/// The server is not drained; another process changes layouts of the pool.
pub fn take_back(file: &Path, name: &str) -> Result<()> {
    let store = Store::of_file(file)?;
    let _alone = store.begin_apply()?;
    let server = store.pool().named(name)?;
    if server.state != ServerState::Draining {
        return Err(Error::Invalid(format!("{name} is not drained: it takes files as before")));
    }
    let (tier, place) = entry_of(store.pool(), server);
    Pool::write_state(file, tier, place, ServerState::Used)
}

/// Puts a new server in the directory `root` in the place of the server `name`: the pool gets it as new files begin to leave out the
/// old one, and then all files move there; the new server's name. With the same directory it goes on with what was stopped or killed.
///
/// # Errors
/// It cannot be done, and nothing was changed: too little room, `root` cannot be a server of the pool, or is one that was not added for
/// this; another process changes layouts of the pool.
pub fn replace(
    file: &Path,
    name: &str,
    root: &Path,
    waits: bool,
    watch: &mut dyn DrainWatch,
) -> Result<(String, Drained)> {
    let store = Store::of_file(file)?;
    let _alone = store.begin_apply()?;
    let leaving = store.pool().named(name)?.clone();
    if let Some(known) = store.pool().there().find(|server| is_one_directory(&server.root, root)) {
        check_begun(&store, &leaving, known.id, root)?;
    }
    let tier = store.pool().tiers[leaving.tier].name.clone();
    let planned = NewServers::of(&store, &[(tier, root.to_owned())])?;
    let new_name = planned.names.concat();
    let (new, copied_bytes) = match planned.new.first().map(|server| server.id) {
        Some(new) => {
            let above = root.ancestors().find(|above| above.is_dir()).unwrap_or(root);
            let room = Room::at(above).map_err(|error| {
                let errno = error.raw_os_error().map_or(rustix::io::Errno::IO, rustix::io::Errno::from_raw_os_error);
                Error::io("ask for the free space of", above)(errno)
            })?;
            let mut drain = Drain::to_new(Store::open(planned.pool.clone())?, leaving.id, new, waits);
            drain.coming = Some((new, room));
            let copied_bytes = drain.check()?.copied_bytes;
            planned.make(file, &store, Some(entry_of(store.pool(), &leaving)))?;
            (new, copied_bytes)
        }
        None => {
            let new = store.pool().named(&new_name)?.id;
            (new, Drain::to_new(store.clone(), leaving.id, new, waits).check()?.copied_bytes)
        }
    };
    let mut drain = Drain::to_new(Store::of_file(file)?, leaving.id, new, waits);
    drain.total_bytes = copied_bytes * 2;
    Ok((new_name, drain.run(watch)?))
}

/// Refuses a server that the pool has already, where it is not the one that an earlier [`replace`] has added: that has its own part of the
/// files.
fn check_begun(store: &Store, leaving: &Server, new: ServerId, root: &Path) -> Result<()> {
    let (root, name) = (root.display(), &leaving.name);
    if new == leaving.id {
        return Err(Error::Invalid(format!("{root} is the directory of {name} itself: name one on the new disk")));
    }
    if leaving.replaced_by == Some(new) {
        return Ok(());
    }
    let known = store.pool().server_name(new);
    Err(Error::Invalid(format!(
        "{root} is {known} of the pool already: name a directory on a new disk, or have the other servers take what {name} has with \
         `stripewise pool drain`; nothing was changed"
    )))
}

/// Where a server stands in the pool file: its tier, and its number there.
fn entry_of<'a>(pool: &'a Pool, server: &Server) -> (&'a str, u16) {
    let tier = &pool.tiers[server.tier];
    let place = tier.servers.iter().position(|id| *id == server.id).unwrap_or(0);
    (&tier.name, place as u16)
}

/// A drain under way.
pub(crate) struct Drain {
    store: Arc<Store>,
    leaving: ServerId,
    targets: Vec<ServerId>,
    waits: bool,
    /// Whether a file may be left on the other servers of its round where no target has room for it; else that is an error.
    narrows: bool,
    /// Files that stay whatever comes, by their paths: no later pass reads them again.
    given_up: BTreeMap<PathBuf, GivenUp>,
    /// A target that is not made yet, and the room of its file system.
    coming: Option<(ServerId, Room)>,
    began: Instant,
    /// Copied and read back, of what is to be.
    done_bytes: u64,
    total_bytes: u64,
    drained: Drained,
}

/// Whether the disk has not said if a file has moved.
fn is_unsure(error: &Error) -> bool {
    matches!(error.cause(), Error::Unsure { .. })
}

/// Whether the kernel has told of bytes that a disk did not take, which it tells once: the next try would find nothing.
fn is_not_written_back(error: &Error) -> bool {
    matches!(error.cause(), Error::NotWrittenBack { .. })
}

/// A file that no later pass tries to move.
#[derive(Debug)]
struct GivenUp {
    /// That of [`Inode::key`].
    key: (u64, u64),
    /// The disk has not said whether it has moved.
    is_unsure: bool,
    file: StayingFile,
}

/// What became of one file.
enum Outcome {
    Moved,
    /// It does not name the server, or is gone.
    Nothing,
    Stays(StayingFile),
    Stopped,
}

impl Drain {
    pub(crate) fn new(store: Arc<Store>, leaving: ServerId, targets: Vec<ServerId>, waits: bool) -> Self {
        let (began, drained) = (Instant::now(), Drained::default());
        Self {
            store,
            leaving,
            targets,
            waits,
            narrows: true,
            given_up: BTreeMap::new(),
            coming: None,
            began,
            done_bytes: 0,
            total_bytes: 0,
            drained,
        }
    }

    /// The one of [`replace`]: all goes to one new server.
    fn to_new(store: Arc<Store>, leaving: ServerId, new: ServerId, waits: bool) -> Self {
        Self { narrows: false, ..Self::new(store, leaving, vec![new], waits) }
    }

    /// What servers with a limit may still take. Looks at all their datafiles.
    fn limits(&self) -> HashMap<ServerId, u64> {
        let pool = self.store.pool();
        let limited = |id: &&ServerId| pool.server(**id).is_some_and(|server| server.capacity_bytes.is_some());
        let limited: Vec<ServerId> = self.targets.iter().filter(limited).copied().collect();
        if limited.is_empty() {
            return HashMap::new();
        }
        let used = pool.allocated_by_others(&[]);
        let left = |id: ServerId| {
            let capacity_bytes = pool.server(id)?.capacity_bytes?;
            Some((id, capacity_bytes.saturating_sub(used.get(&id).copied().unwrap_or(0))))
        };
        limited.into_iter().filter_map(left).collect()
    }

    /// The targets that can take something, the one with the most room first; all of them where none can.
    fn by_room(&self, free_bytes: impl Fn(ServerId) -> Option<u64>) -> Vec<ServerId> {
        let with_room = |id: &ServerId| Some((free_bytes(*id)?, *id));
        let mut able: Vec<(u64, ServerId)> = self.targets.iter().filter_map(with_room).collect();
        if able.is_empty() {
            return self.targets.clone();
        }
        able.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        able.into_iter().map(|(_, id)| id).collect()
    }

    /// What would be moved and what would stay, without changing anything.
    ///
    /// # Errors
    /// What can be moved does not fit; a rule cannot be changed.
    fn check(&self) -> Result<Drained> {
        let (store, mut planned, mut ahead) = (&self.store, Drained::default(), self.room_ahead());
        let mut seen = HashSet::new();
        let found = store.files_naming(self.leaving)?;
        planned.staying = found.unreadable.into_iter().map(|(path, why)| self.unread(&path, why)).collect();
        for path in found.paths {
            let inode = match store.existing(&path) {
                Ok(Some(inode)) => inode,
                Ok(None) => continue,
                Err(error) => {
                    planned.staying.push(self.unread(&path, error.to_string()));
                    continue;
                }
            };
            // Its other names are found, too; a file of another user may have a copy of its handle.
            if !seen.insert(inode.key()) {
                continue;
            }
            let name = path.to_string_lossy().into_owned();
            match self.check_file(&inode, &path, &mut ahead) {
                Ok(moved_bytes) => {
                    planned.moved_files += 1;
                    planned.copied_bytes += moved_bytes;
                }
                Err(error @ Error::NoRoom { .. }) => return Err(self.no_room(error, name)?),
                // It was removed just now.
                Err(_) if inode.is_nameless() => {}
                Err(error) => planned.staying.push(self.stays(name, &inode, &error)),
            }
        }
        for rule in store.rules()?.iter() {
            let layout = store.rule_layout(rule)?;
            if names(&layout, self.leaving) {
                store.rule_without(rule, &layout, self.leaving, &self.targets)?;
                planned.rules += 1;
            }
        }
        Ok(planned)
    }

    /// Before the first move.
    fn room_ahead(&self) -> RoomAhead<'_> {
        let ahead = RoomAhead::new(&self.store, self.limits());
        match self.coming {
            Some((id, room)) => ahead.with_coming(id, room),
            None => ahead,
        }
    }

    /// Why not all files fit, of which `file` is the first, as `error` says: with what all need where all that is free is too little.
    /// O(files of the pool).
    fn no_room(&self, error: Error, file: String) -> Result<Error> {
        let (mut seen, mut needed_bytes) = (HashSet::new(), 0_u64);
        for path in self.store.files_naming(self.leaving)?.paths {
            let Ok(Some(inode)) = self.store.existing(&path) else { continue };
            let is_readable =
                || self.layout_after(&inode, &path, &self.targets).and_then(|to| inode.change_of_space(&to));
            if seen.insert(inode.key()) && is_readable().is_ok_and(|change| change.unreadable.is_none()) {
                let held =
                    inode.allocated().unwrap_or_default().into_iter().filter(|(server, _)| *server == self.leaving);
                needed_bytes = held.fold(needed_bytes, |sum, (_, bytes)| sum.saturating_add(bytes));
            }
        }
        let free_bytes = self.room_ahead().free_together(&self.targets, self.leaving);
        if needed_bytes <= free_bytes {
            return Ok(error);
        }
        let name = |id: &ServerId| self.store.pool().server_name(*id);
        let mut targets = self.targets.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
        if self.targets.len() > NAMED {
            targets += &format!(" and {} more", self.targets.len() - NAMED);
        }
        Ok(Error::NoRoomForAll { file, server: name(&self.leaving), needed_bytes, targets, free_bytes })
    }

    /// Bytes that a file's move would copy.
    fn check_file(&self, inode: &Inode, path: &Path, ahead: &mut RoomAhead<'_>) -> Result<u64> {
        let other = self.layout_with_room(inode, path, |id| ahead.free_bytes(id))?;
        let mut change = inode.change_of_space(&other)?;
        if let Some(error) = change.unreadable.take() {
            return Err(error);
        }
        let (placement, moved_bytes) = (inode.placement()?, change.moved_bytes);
        if self.store.landed_on(&placement, path)?.is_none() {
            change = change.in_steps(steps(&placement.layout, &other, inode.attributes()?.size_bytes));
        }
        ahead.add(&path.to_string_lossy(), &change)?;
        Ok(moved_bytes)
    }

    /// Moves all files until none names the server.
    pub(crate) fn run(mut self, watch: &mut dyn DrainWatch) -> Result<Drained> {
        self.drained.rules = self.store.rules_without(self.leaving, &self.targets)?;
        let mut restless = 0;
        loop {
            let since_begin = self.began.elapsed();
            let found = self.store.files_naming(self.leaving)?;
            let unread = found.unreadable.into_iter().map(|(path, why)| self.unread(&path, why));
            // Also one that seems to have left the server, and may not have, unless it is gone or another.
            let is_there = |path: &Path, key| {
                self.store.existing(path).map_or(true, |inode| inode.is_some_and(|of| of.key() == key))
            };
            let unsure = self.given_up.iter().filter(|(path, of)| of.is_unsure && !found.paths.contains(path));
            let unsure = unsure.filter(|(path, of)| is_there(path, of.key)).map(|(_, of)| of.file.clone());
            self.drained.staying = unread.chain(unsure).collect();
            let none_came = found.paths.is_empty() && since_begin >= KNOWN_TO_ALL;
            let (mut moved, mut gone) = (0, 0);
            for path in found.paths {
                match self.file(&path, watch)? {
                    Outcome::Moved => {
                        moved += 1;
                        self.drained.moved_files += 1;
                    }
                    Outcome::Nothing => gone += 1,
                    Outcome::Stays(file) => self.drained.staying.push(file),
                    Outcome::Stopped => self.drained.stopped = true,
                }
                if self.drained.stopped {
                    return Ok(self.drained);
                }
            }
            let has_busy = self.drained.staying.iter().any(|file| file.is_busy);
            // What stays for another reason than a writer stays in the next pass, too.
            let stuck = moved == 0 && since_begin >= KNOWN_TO_ALL && !(self.waits && has_busy);
            // A file that was not where it was found may have come to another path.
            restless = if gone == 0 || moved > 0 { 0 } else { restless + 1 };
            if none_came || stuck && (gone == 0 || restless > MOST_RESTLESS) {
                if gone > 0 {
                    self.list_renamed()?;
                }
                return Ok(self.drained);
            }
            if moved == 0 {
                if watch.progress("", self.done_bytes, self.total_bytes.max(self.done_bytes)) == Then::Stop {
                    self.drained.stopped = true;
                    return Ok(self.drained);
                }
                std::thread::sleep(TRY_AGAIN);
            }
        }
    }

    /// Lists the files that no pass has met where they were found.
    fn list_renamed(&mut self) -> Result<()> {
        let listed: HashSet<String> = self.drained.staying.iter().map(|file| file.path.clone()).collect();
        for path in self.store.files_naming(self.leaving)?.paths {
            if !listed.contains(&*path.to_string_lossy()) {
                let why =
                    "files with this name came and went while they were to be moved: run the same command again".into();
                self.drained.staying.push(self.unread(&path, why));
            }
        }
        Ok(())
    }

    fn unread(&self, path: &Path, why: String) -> StayingFile {
        let path = path.to_string_lossy().into_owned();
        StayingFile { path, why, is_busy: false, stretches: Vec::new(), left_out: 0, bytes: 0 }
    }

    fn file(&mut self, path: &Path, watch: &mut dyn DrainWatch) -> Result<Outcome> {
        let name = path.to_string_lossy().into_owned();
        let inode = match self.store.existing(path) {
            Ok(Some(inode)) => inode,
            Ok(None) => return Ok(Outcome::Nothing),
            Err(error) => return Ok(Outcome::Stays(self.unread(path, error.to_string()))),
        };
        if let Some(given_up) = self.given_up.get(path).filter(|of| of.key == inode.key()) {
            return Ok(Outcome::Stays(given_up.file.clone()));
        }
        match inode.layout() {
            Ok(layout) if names(&layout, self.leaving) => {}
            Ok(_) => return Ok(Outcome::Nothing),
            Err(error) => return Ok(Outcome::Stays(self.unread(path, error.to_string()))),
        }
        let (before, total) = (self.done_bytes, self.total_bytes);
        let (mut stopped, mut done_here) = (false, 0);
        let mut progress = |done, _total| {
            done_here = done;
            let then = watch.progress(&name, before + done, total.max(before + done));
            stopped = then == Then::Stop;
            then
        };
        let (copied_bytes, moved) = self.move_file(&inode, path, &mut progress);
        self.drained.copied_bytes += copied_bytes;
        match moved {
            Ok(()) => {
                self.done_bytes += done_here;
                Ok(Outcome::Moved)
            }
            Err(error) => {
                self.done_bytes += copied_bytes * 2;
                if stopped {
                    return Ok(Outcome::Stopped);
                }
                if matches!(error, Error::Nameless { .. }) {
                    return Ok(Outcome::Nothing);
                }
                let file = self.stays(name, &inode, &error);
                let is_unsure = is_unsure(&error);
                if is_unsure || is_unreadable(&error) || is_not_written_back(&error) {
                    let given_up = GivenUp { key: inode.key(), is_unsure, file: file.clone() };
                    self.given_up.insert(path.to_owned(), given_up);
                }
                Ok(Outcome::Stays(file))
            }
        }
    }

    /// The layout of a file when it has left the server. One that landed goes to its place at once: afterwards it would not be told from
    /// one that has it.
    fn layout_after(&self, inode: &Inode, path: &Path, targets: &[ServerId]) -> Result<Layout> {
        let (store, placement) = (&self.store, inode.placement()?);
        let own = match store.landed_on(&placement, path)? {
            Some(_) => &store.its_place(&placement.layout)?,
            None => &*placement.layout,
        };
        store.layout_without(own, self.leaving, targets)
    }

    /// [`Drain::layout_after`] with the targets that have room for what the file has on the server, the one with the most first. Where none
    /// has, the others of its round share that.
    fn layout_with_room(
        &self,
        inode: &Inode,
        path: &Path,
        free_bytes: impl Fn(ServerId) -> Option<u64>,
    ) -> Result<Layout> {
        let all = self.by_room(&free_bytes);
        if self.narrows {
            let held = inode.allocated()?.into_iter().filter(|(server, _)| *server == self.leaving);
            let held_bytes: u64 = held.map(|(_, bytes)| bytes).sum();
            let has_room = |id: &&ServerId| free_bytes(**id).is_some_and(|free| free >= held_bytes);
            let roomy: Vec<ServerId> = all.iter().filter(has_room).copied().collect();
            if roomy.len() < all.len()
                && let Ok(layout) = self.layout_after(inode, path, &roomy)
            {
                return Ok(layout);
            }
        }
        self.layout_after(inode, path, &all)
    }

    /// The bytes that were copied, and whether the file has left the server.
    fn move_file(
        &self,
        inode: &Arc<Inode>,
        path: &Path,
        progress: &mut dyn FnMut(u64, u64) -> Then,
    ) -> (u64, Result<()>) {
        let free_bytes =
            |id| self.store.room(id).ok().filter(|room| !room.is_read_only).map(|room| room.available_bytes);
        let found = self
            .layout_with_room(inode, path, free_bytes)
            .and_then(|other| Ok((other, self.store.landed_on(&inode.placement()?, path)?.is_some())));
        let name = path.to_string_lossy();
        match found {
            // What has moved in part would not be told from a file that has its place.
            Ok((other, true)) => match inode.move_watched(&other, &name, true, progress) {
                Ok(moved) => (moved.copied_bytes, Ok(())),
                Err(error) => (0, Err(error)),
            },
            Ok((other, false)) => move_in_steps(inode, &other, (&name, Unreadable::KeepsItsPart), progress),
            Err(error) => (0, Err(error)),
        }
    }

    fn stays(&self, path: String, inode: &Inode, error: &Error) -> StayingFile {
        let size_bytes = inode.attributes().map_or(0, |attributes| attributes.size_bytes);
        let found = inode.placement().and_then(|placement| {
            Ok(stretches_on(&placement.datafiles()?, &placement.present, self.leaving, size_bytes))
        });
        let found = found.unwrap_or_default();
        let (bytes, left_out, stretches) = (found.bytes, found.left_out(), found.listed);
        StayingFile { stretches, left_out, bytes, ..StayingFile::of(path, error) }
    }
}

/// Removes a server that no file names any more, from the pool file first and then its directory. With `lost` one that is not
/// there: its bytes are lost, files that have none there leave it, and the others are told. One that was given up so goes on where that was
/// stopped.
///
/// # Errors
/// The server still has bytes, or with `lost` is there; it is the last one. Nothing was changed.
pub fn remove(file: &Path, name: &str, lost: bool, watch: &mut dyn DrainWatch) -> Result<Drained> {
    let store = Store::of_file(file)?;
    let _alone = store.begin_apply()?;
    let pool = store.pool();
    let removed = pool.server_names().id(name).and_then(|id| pool.server(id));
    let removed = removed.filter(|server| server.state == ServerState::Removed);
    if let Some(server) = removed.filter(|_| !lost) {
        unmake_removed(&store, server)?;
        return Ok(Drained::default());
    }
    // One that was given up before may still be named by files: the command was stopped, or killed.
    let leaving = removed.filter(|_| lost).map_or_else(|| pool.named(name), Ok)?.clone();
    let (tier, place) = entry_of(pool, &leaving);
    let of_tier = pool.used(&pool.tiers[leaving.tier]);
    let others: Vec<ServerId> = of_tier.map(|server| server.id).filter(|id| *id != leaving.id).collect();
    let all =
        || pool.servers.iter().filter(|server| server.is_used() && server.id != leaving.id).map(|server| server.id);
    let targets = if others.is_empty() { all().collect() } else { others };
    if targets.is_empty() {
        return Err(Error::Invalid(format!("{name} is the last server in use: a pool needs one")));
    }
    if lost {
        if leaving.state != ServerState::Removed {
            check_lost(&store, &leaving)?;
            Pool::write_state(file, tier, place, ServerState::Removed)?;
        }
        return Drain::new(Store::of_file(file)?, leaving.id, targets, false).run(watch);
    }
    let check = || {
        check_unnamed(&store, &leaving, DRAIN_FIRST)
            .and_then(|()| check_empty(&leaving, "end the programs that have them open, or run `stripewise fsck`"))
    };
    check()?;
    if leaving.state == ServerState::Used {
        Pool::write_state(file, tier, place, ServerState::Draining)?;
    }
    // Also where a drain has said so before: it may have been killed before all mounts knew.
    let drained = Drain::new(Store::of_file(file)?, leaving.id, targets, false).run(watch)?;
    if !drained.is_done() {
        return Ok(drained);
    }
    check()?;
    Pool::write_state(file, tier, place, ServerState::Removed)?;
    crate::backend::site(&leaving).unmake().map_err(Error::io("remove", &leaving.root))?;
    Ok(Drained::default())
}

/// Clears the directory of a server that was removed, where a kill has left it marked as that server's.
///
/// # Errors
/// As [`check_unnamed`] and [`check_empty`]; the directory cannot be cleared.
fn unmake_removed(store: &Arc<Store>, server: &Server) -> Result<()> {
    let kind = store.pool().tiers[server.tier].kind;
    let left = Server { state: ServerState::Draining, kind, ..server.clone() };
    let site = crate::backend::site(&left);
    let wanted = marker_server(&left.name, left.id);
    let is_its = |text: &[u8]| check_marker(text, store.plane().pool_uuid(), &wanted).is_ok();
    let is_left = site.marker().is_ok_and(|text| is_its(&text));
    let remedy = if is_left {
        "its directory is there again: copy what you need out of it, restore the files that `stripewise fsck` lists, and remove it"
    } else {
        "`stripewise pool remove --lost` goes on where it was stopped, and lists what they have lost"
    };
    check_unnamed(store, &left, remedy)?;
    if !is_left {
        return Ok(());
    }
    check_empty(&left, "copy what you need out of its directory, and remove that")?;
    site.unmake().map_err(Error::io("remove", &left.root))
}

/// Refuses to give up a server whose directory is there with anything in it: also one that only lacks its marker has its datafiles still.
/// A directory that is gone, is empty as a mount point is without its disk, or cannot be read as of a broken disk, is lost.
fn check_lost(store: &Store, server: &Server) -> Result<()> {
    let (name, root) = (&server.name, server.root.display());
    let entry = match std::fs::read_dir(&server.root) {
        Ok(mut entries) => entries.next(),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let what = "it cannot be looked at whether it is there: run this as its owner, or as root";
            return Err(Error::Invalid(format!("{name} ({root}): permission denied, and {what}")));
        }
        Err(_) => None,
    };
    match (entry, store.room(server.id)) {
        (None | Some(Err(_)), _) => Ok(()),
        (Some(Ok(_)), Ok(_)) => Err(Error::Invalid(format!(
            "{name} is there ({root}): `stripewise pool drain` saves what can be read. If its disk is broken, unmount it, and try again"
        ))),
        (Some(Ok(_)), Err(error)) => Err(Error::Invalid(format!(
            "the directory of {name} has something in it ({root}), and only cannot be used: {error}. `stripewise fsck` mends its marker. \
             If its disk is broken, unmount it; if this is another directory, move it away; then try again"
        ))),
    }
}

fn not_removed(server: &Server, what: &str) -> Error {
    Error::Invalid(format!("{} cannot be removed: {what}; nothing was changed", server.name))
}

/// Refuses a server that a layout names, with the `remedy` for that.
fn check_unnamed(store: &Arc<Store>, server: &Server, remedy: &str) -> Result<()> {
    let refused = |what: String| Err(not_removed(server, &what));
    let found = store.files_naming(server.id)?;
    if let Some(first) = found.paths.first() {
        let (count, first) = (found.paths.len(), first.display());
        let have = if count == 1 { "file has its place" } else { "files have their place" };
        return refused(format!("{count} {have} there, such as {first}{}: {remedy}", held(server)));
    }
    if let Some((path, why)) = found.unreadable.first() {
        return refused(format!("{} cannot be read and may be there: {why}", path.display()));
    }
    for rule in store.rules()?.iter() {
        if names(&*store.rule_layout(rule)?, server.id) {
            return refused(format!("the rule for {} names it: {remedy}", rule.pattern.as_str()));
        }
    }
    Ok(())
}

/// Refuses a server that has datafiles, whether a file has them or not, with the `remedy`.
fn check_empty(server: &Server, remedy: &str) -> Result<()> {
    let backend = crate::backend::of(&Server { emulate: None, ..server.clone() }, &Setting::default());
    if backend.connect().is_err() {
        return Ok(());
    }
    let upkeep = backend.upkeep();
    let listed = |part| upkeep.list(part).map_err(Error::io("read server", &server.root));
    let mut datafiles = 0;
    for part in 0..upkeep.parts() {
        let is_datafile = |found: &rustix::io::Result<_>| !matches!(found, Ok(crate::backend::Found::Unknown(_)));
        datafiles += listed(part)?.filter(is_datafile).count();
    }
    if datafiles > 0 {
        let what = format!(
            "it has {datafiles} datafiles that no file of the tree names, of files that are open without a name or of crashes: {remedy}"
        );
        return Err(not_removed(server, &what));
    }
    Ok(())
}
