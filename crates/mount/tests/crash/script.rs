//! What a program does to a pool, operation by operation, and what may be found of it after a crash.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use stripewise_layout::{Layout, Pattern, ServerId, Stripe};
use stripewise_optimisation::OptimisationSetting;
use stripewise_store::drain::DrainWatch;
use stripewise_store::handle::Optimisations;
use stripewise_store::hints::DirectoryHints;
use stripewise_store::relief::{Leaving, relieve};
use stripewise_store::small_files::{MovedBefore, NewHead, move_small_files};
use stripewise_store::{Error, Pool, Store, Then};

use crate::trace::MARKS;

/// One operation. Paths are relative to the mount; open files have numbers.
#[derive(Clone, Debug)]
pub enum Op {
    Open {
        slot: usize,
        path: &'static str,
        how: How,
    },
    Write {
        slot: usize,
        offset: u64,
        len: usize,
    },
    Append {
        slot: usize,
        len: usize,
    },
    Truncate {
        slot: usize,
        size: u64,
    },
    Punch {
        slot: usize,
        offset: u64,
        len: u64,
    },
    Allocate {
        slot: usize,
        offset: u64,
        len: u64,
    },
    Sync {
        slot: usize,
    },
    DataSync {
        slot: usize,
    },
    Close {
        slot: usize,
    },
    /// Until the mount has noticed all closes.
    Settle,
    Rename {
        from: &'static str,
        to: &'static str,
    },
    Link {
        from: &'static str,
        to: &'static str,
    },
    Unlink {
        path: &'static str,
    },
    MakeDirectory {
        path: &'static str,
    },
    SyncDirectory {
        path: &'static str,
    },
    Chown {
        path: &'static str,
        uid: u32,
    },
    Move {
        path: &'static str,
        layout: usize,
    },
    /// A file leaves the tier on which it has landed for its place, up to that byte.
    ToItsPlace {
        path: &'static str,
        until: u64,
    },
    Rule {
        pattern: &'static str,
        layout: usize,
    },
    /// What all new files get.
    Hint {
        setting: &'static str,
    },
    /// Small files move by the threshold, which is that share of what is hinted.
    Threshold {
        share: f64,
        /// How many move, and no fewer; `None` where chance has it.
        moves: Option<usize>,
    },
    /// The metadata tier has no more room than this.
    FillTier {
        left_bytes: u64,
    },
    /// Fails where the first bytes of the file are still on the metadata tier.
    OffTier {
        path: &'static str,
    },
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Create,
    Existing,
    Truncating,
    Appending,
    /// New, every write synced.
    CreateSynchronous,
}

/// Operations, the first `setup` of which nothing interrupts.
#[derive(Clone, Debug)]
pub struct Script {
    pub name: String,
    pub setup: usize,
    pub ops: Vec<Op>,
}

impl Script {
    /// Whether it needs a metadata tier of its own.
    pub fn fills_tier(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::FillTier { .. }))
    }

    /// Whether new files land on a tier first.
    pub fn lands(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::ToItsPlace { .. }))
    }

    /// Whether the mount keeps back what was written.
    fn keeps_back(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Hint { setting } if setting.starts_with("writebehind")))
    }
}

/// The tier on which new files land, in pools where they do.
pub const LANDING_TIER: &str = "fast";

/// Layouts that files get in the course of a script, for pools of three servers.
pub fn layout(index: usize) -> Layout {
    type Round = &'static [(u16, u64)];
    let rows: [&[(u64, Round)]; 5] = [
        &[(0, &[(0, 4096), (1, 8192), (2, 1000)])],
        &[(0, &[(0, 4096), (1, 8192), (2, 1000)]), (20_000, &[(2, 1000), (1, 3000)])],
        &[(0, &[(1, 50_000)])],
        &[(0, &[(u16::MAX, 4096)]), (12_288, &[(2, 1000), (0, 3000)])],
        &[(0, &[(0, 4096), (1, 8192), (2, 1000)]), (5_000, &[(1, 700)]), (30_000, &[(0, 4096), (1, 8192), (2, 1000)])],
    ];
    Layout::new(rows[index % rows.len()].iter().map(|(offset, round)| {
        let stripe = |&(server, width_bytes): &(u16, u64)| Stripe { server: ServerId(server), width_bytes };
        (*offset, round.iter().map(stripe).collect())
    }))
    .expect("the layouts of the test are right")
}

/// The bytes that operation `index` writes: never zero, and different for every operation and place.
pub fn bytes(index: usize, offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64)
        .map(|at| {
            let mixed =
                (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (index as u64 + 1).wrapping_mul(0xff51_afd7_ed55_8ccd));
            (mixed >> 56) as u8 | 1
        })
        .collect()
}

/// Carries a script out on a mount, marking each operation; ends early, and well, when the mount is gone. With another
/// mount, files with odd numbers are opened there; what both served, the other must go on to serve when one is gone.
pub fn perform(script: &Script, pool_file: &Path, mount: &Path, other: Option<&Path>) {
    // SAFETY: the parent of this process has put a descriptor there for it.
    let mut marks = File::from(unsafe { OwnedFd::from_raw_fd(MARKS) });
    let outside = mount.parent().expect("a mount is below the base").metadata().expect("the base is there").dev();
    let mounts = [mount, other.unwrap_or(mount)];
    while mounts.iter().any(|mount| mount.metadata().is_ok_and(|meta| meta.dev() == outside)) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let pool = Pool::load(pool_file).expect("the pool file is right");
    let mut held = Held::default();
    for (index, op) in script.ops.iter().enumerate() {
        marks.write_all(format!("B{index}").as_bytes()).expect("a mark");
        if let Err(error) = step(index, op, &pool, mounts, &mut held) {
            let gone = [libc::ENOTCONN, libc::ECONNABORTED, libc::EIO, libc::ENODEV];
            assert!(
                error.raw_os_error().is_some_and(|errno| gone.contains(&errno)),
                "{}: {op:?} failed on a mount that is there: {error}",
                script.name
            );
            if other.is_some() {
                mounts.iter().for_each(|mount| read_all(mount));
            }
            std::process::exit(3);
        }
        marks.write_all(format!("E{index}").as_bytes()).expect("a mark");
    }
}

/// What a process that performs a script has between two operations.
#[derive(Default)]
struct Held {
    open: HashMap<usize, File>,
    /// What the threshold has moved, by the files' handles.
    moved: HashMap<u64, MovedBefore>,
}

/// Reads every file of a mount: all of them can be read to their end, whatever process is gone.
fn read_all(mount: &Path) {
    let Ok(entries) = std::fs::read_dir(mount) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let size = path.metadata().unwrap_or_else(|error| panic!("{}: {error}", path.display())).len();
        assert_eq!(bytes.len() as u64, size, "{}", path.display());
    }
}

fn step(index: usize, op: &Op, pool: &Pool, mounts: [&Path; 2], held: &mut Held) -> std::io::Result<()> {
    let (mount, open) = (mounts[0], &mut held.open);
    let at = |path: &str| mount.join(path);
    match op {
        Op::Open { slot, path, how } => {
            let mut options = OpenOptions::new();
            match how {
                How::Create => options.read(true).write(true).create_new(true),
                How::CreateSynchronous => options.read(true).write(true).create_new(true).custom_flags(libc::O_SYNC),
                How::Existing => options.read(true).write(true),
                How::Truncating => options.read(true).write(true).truncate(true),
                How::Appending => options.read(true).append(true),
            };
            open.insert(*slot, options.open(mounts[slot % 2].join(path))?);
        }
        Op::Write { slot, offset, len } => open[slot].write_all_at(&bytes(index, *offset, *len), *offset)?,
        Op::Append { slot, len } => (&open[slot]).write_all(&bytes(index, 0, *len))?,
        Op::Truncate { slot, size } => open[slot].set_len(*size)?,
        Op::Punch { slot, offset, len } => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&open[slot], mode, *offset, *len)?;
        }
        Op::Allocate { slot, offset, len } => {
            rustix::fs::fallocate(&open[slot], FallocateFlags::empty(), *offset, *len)?;
        }
        Op::Sync { slot } => open[slot].sync_all()?,
        Op::DataSync { slot } => open[slot].sync_data()?,
        Op::Close { slot } => drop(open.remove(slot)),
        Op::Settle => settle(pool, mounts)?,
        Op::Rename { from, to } => std::fs::rename(at(from), at(to))?,
        Op::Link { from, to } => std::fs::hard_link(at(from), at(to))?,
        Op::Unlink { path } => std::fs::remove_file(at(path))?,
        Op::MakeDirectory { path } => std::fs::create_dir(at(path))?,
        Op::SyncDirectory { path } => File::open(at(path))?.sync_all()?,
        Op::Chown { path, uid } => std::os::unix::fs::chown(at(path), Some(*uid), Some(*uid))?,
        Op::Move { path, layout: index } => {
            let store = store(pool);
            let inode = store.lookup(Path::new(path)).expect("the file is there").expect("the file is placed");
            loop {
                match inode.move_to(&layout(*index), path, &mut |_, _| true) {
                    // The mount has not noticed the close yet.
                    Err(Error::Move { source, .. }) if matches!(*source, Error::Busy { .. }) => {}
                    Err(Error::Busy { .. }) => {}
                    moved => break moved.map(drop).expect("the file moves"),
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Op::ToItsPlace { path, until } => to_its_place(pool, path, *until),
        Op::Rule { pattern, layout: index } => {
            store(pool)
                .set_rule(&Pattern::new(pattern).expect("a pattern"), &layout(*index))
                .expect("the rule is kept");
        }
        Op::Hint { setting } => {
            let (index, parameters) = OptimisationSetting::parse(setting).expect("an optimisation").pack();
            let mut optimisations = Optimisations::default();
            optimisations.enable(index, parameters).expect("it is in its range");
            let hint = |hints: &mut DirectoryHints| hints.set(None, optimisations);
            store(pool).change_hints(Path::new("."), hint).expect("the hint is kept");
        }
        Op::FillTier { left_bytes } => fill_tier(pool, *left_bytes)?,
        Op::OffTier { path } => {
            let inode = store(pool).lookup(Path::new(path)).expect("the file is there").expect("the file is placed");
            let layout = inode.layout().expect("the layout can be read");
            assert_eq!(layout.head_in_inode_bytes(), 0, "{path} has left the metadata tier");
        }
        Op::Threshold { share, moves } => move_by_threshold(pool, *share, *moves, &mut held.moved),
    }
    Ok(())
}

/// Has a file leave the tier on which new files land, up to byte `until`.
fn to_its_place(pool: &Pool, path: &str, until: u64) {
    loop {
        let found = store(pool).parts_on(LANDING_TIER, &HashMap::new()).expect("the tree can be read").parts;
        let part = found.into_iter().find(|part| part.path == path).expect("the file is on the tier");
        let leaving = Leaving {
            path: part.path,
            handle: part.handle,
            version: part.version,
            stretches: vec![(0, until)],
            to_its_place: true,
        };
        let moved = relieve(&pool.file, LANDING_TIER, &[leaving], &mut On).expect("no other process moves files");
        match &moved.staying[..] {
            [] => return assert_eq!(moved.moved_files, 1, "{path} leaves the tier"),
            // The mount has not noticed the close yet.
            staying => assert!(staying.iter().all(|staying| staying.is_busy), "{path} stays: {staying:?}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the mounts have noticed all closes.
fn settle(pool: &Pool, mounts: [&Path; 2]) -> std::io::Result<()> {
    while std::fs::read_dir(pool.namespace.join("locks"))?.next().is_some() {
        // A mount that is gone leaves its lock files. Attributes the kernel would know for 10 s more; room it asks for each time.
        mounts.iter().try_for_each(|mount| rustix::fs::statfs(*mount).map(drop))?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Takes the room of the metadata tier, which is a file system of its own, but for `left_bytes`.
fn fill_tier(pool: &Pool, left_bytes: u64) -> std::io::Result<()> {
    let filler = File::create(pool.namespace.join("filler"))?;
    let free = rustix::fs::fstatvfs(&filler)?;
    let bytes = free.f_bavail * free.f_frsize - left_bytes;
    Ok(rustix::fs::fallocate(&filler, FallocateFlags::empty(), 0, bytes)?)
}

/// Moves the small files that are due at this share, as `stripewise adapt` does: until `moves` have, if that is said.
fn move_by_threshold(pool: &Pool, share: f64, moves: Option<usize>, before: &mut HashMap<u64, MovedBefore>) {
    let store = store(pool);
    let mut moved_files = 0;
    loop {
        // The first look ends the period, so that none ends between the share and what is due by it.
        store.due_small_files(before).expect("the tree can be read");
        let page = File::options().write(true).open(pool.namespace.join("meta-load.2")).expect("the page of the load");
        page.write_all_at(&share.to_bits().to_ne_bytes(), 16).expect("a share");
        let due = store.due_small_files(before).expect("the tree can be read");
        let heads: Vec<_> = due.iter().map(NewHead::from).collect();
        let moved = move_small_files(&pool.file, &heads, &mut On).expect("no other process moves files");
        for file in due.iter().filter(|file| moved.staying.iter().all(|staying| staying.path != file.path)) {
            let moves = before.get(&file.handle).map_or(0.0, |before| before.moves) + 1.0;
            let sent_bytes = (file.head_bytes == 0).then_some(file.size_bytes);
            before.insert(file.handle, MovedBefore { moves, sent_bytes });
        }
        // The mount may not have noticed a close yet.
        let unexpected = moved.staying.iter().find(|staying| !staying.is_busy);
        assert!(unexpected.is_none(), "a small file stays: {unexpected:?}");
        moved_files += moved.moved_files;
        match moves {
            Some(moves) if moved_files < moves as u64 => {
                assert!(!due.is_empty(), "{moved_files} of {moves} files move")
            }
            _ => return,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets files move without a rest.
struct On;

impl DrainWatch for On {
    fn progress(&mut self, _: &str, _: u64, _: u64) -> Then {
        Then::On
    }
}

fn store(pool: &Pool) -> Arc<Store> {
    Store::open(pool.clone()).expect("the pool opens")
}

/// What is lost in a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Processes; what they had written stays in memory.
    Kill,
    /// Memory.
    Power,
}

/// A file, under whatever name.
#[derive(Clone, Debug, Default)]
pub struct FileState {
    /// As it was when it was last synced.
    pub synced: Option<Vec<u8>>,
    /// As it was after each operation since.
    pub later: Vec<Vec<u8>>,
}

impl FileState {
    fn now(&self) -> Vec<u8> {
        self.later.last().or(self.synced.as_ref()).cloned().unwrap_or_default()
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut now = self.now();
        change(&mut now);
        self.later.push(now);
    }

    fn sync(&mut self) {
        self.synced = Some(self.now());
        self.later.clear();
    }
}

/// What may be found.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    pub files: Vec<FileState>,
    /// Where each name may lead: the oldest is what is certain to be on the disk, `None` is nowhere.
    pub names: BTreeMap<String, Vec<Option<usize>>>,
    directories: BTreeMap<String, bool>,
    /// Files that have lost a name by its removal, or to another file.
    taken: HashSet<usize>,
    slots: HashMap<usize, (usize, How)>,
}

impl Expected {
    /// After the first `ended` operations, and perhaps a part of the next.
    pub fn after(script: &Script, ended: usize, begun: usize, crash: Crash) -> Expected {
        let mut expected = Expected::default();
        for (index, op) in script.ops[..ended].iter().enumerate() {
            expected.apply(index, op, true);
            if crash == Crash::Kill {
                expected.settle(script.keeps_back());
            }
        }
        if begun > ended {
            expected.apply(ended, &script.ops[ended], false);
        }
        expected
    }

    /// Whether bytes have been synced.
    pub fn has_synced(&self) -> bool {
        self.files.iter().any(|file| file.synced.as_ref().is_some_and(|bytes| !bytes.is_empty()))
    }

    /// Whatever was done stays done, but for bytes that the mount itself `keeps_back`.
    fn settle(&mut self, keeps_back: bool) {
        if !keeps_back {
            self.files.iter_mut().for_each(FileState::sync);
        }
        self.names.values_mut().for_each(|to| drop(to.drain(..to.len() - 1)));
        self.directories.values_mut().for_each(|durable| *durable = true);
    }

    fn named(&self, path: &str) -> Option<usize> {
        self.names.get(path).and_then(|to| *to.last()?)
    }

    fn lead(&mut self, path: &str, to: Option<usize>) {
        self.names.entry(path.to_owned()).or_insert_with(|| vec![None]).push(to);
    }

    fn slot(&mut self, slot: usize) -> &mut FileState {
        let (file, _) = self.slots[&slot];
        &mut self.files[file]
    }

    /// `done`: the program was told so.
    fn apply(&mut self, index: usize, op: &Op, done: bool) {
        match op {
            Op::Open { slot, path, how } => {
                let file = match how {
                    How::Create | How::CreateSynchronous => {
                        self.files.push(FileState::default());
                        self.lead(path, Some(self.files.len() - 1));
                        self.files.len() - 1
                    }
                    _ => self.named(path).expect("scripts open what is there"),
                };
                if *how == How::Truncating {
                    self.files[file].change(Vec::clear);
                }
                self.slots.insert(*slot, (file, *how));
            }
            Op::Write { slot, offset, len } => {
                let (data, end) = (bytes(index, *offset, *len), *offset as usize + len);
                self.slot(*slot).change(|now| {
                    now.resize(now.len().max(end), 0);
                    now[*offset as usize..end].copy_from_slice(&data);
                });
                if done && self.slots[slot].1 == How::CreateSynchronous {
                    self.slot(*slot).sync();
                }
            }
            Op::Append { slot, len } => self.slot(*slot).change(|now| now.extend(bytes(index, 0, *len))),
            Op::Truncate { slot, size } => self.slot(*slot).change(|now| now.resize(*size as usize, 0)),
            Op::Punch { slot, offset, len } => self.slot(*slot).change(|now| {
                let end = now.len();
                now[(*offset as usize).min(end)..((offset + len) as usize).min(end)].fill(0);
            }),
            Op::Allocate { slot, offset, len } => {
                self.slot(*slot).change(|now| now.resize(now.len().max((offset + len) as usize), 0));
            }
            Op::Sync { slot } | Op::DataSync { slot } if done => self.slot(*slot).sync(),
            Op::Rename { from, to } => {
                let file = self.named(from);
                self.taken.extend(self.named(to));
                self.lead(from, None);
                self.lead(to, file);
            }
            Op::Link { from, to } => {
                let file = self.named(from);
                self.lead(to, file);
            }
            Op::Unlink { path } => {
                self.taken.extend(self.named(path));
                self.lead(path, None);
            }
            Op::MakeDirectory { path } => {
                self.directories.insert((*path).to_owned(), false);
            }
            Op::SyncDirectory { path } if done => {
                let inside = |name: &str| Path::new(name).parent() == Some(Path::new(path));
                self.names
                    .iter_mut()
                    .filter(|(name, _)| inside(name))
                    .for_each(|(_, to)| drop(to.drain(..to.len() - 1)));
                self.directories.iter_mut().filter(|(name, _)| inside(name)).for_each(|(_, durable)| *durable = true);
            }
            _ => {}
        }
    }

    /// Where a name may lead, given that the directory it is in may not be there.
    pub fn allowed(&self, path: &str) -> Vec<Option<usize>> {
        let mut to = self.names.get(path).cloned().unwrap_or_default();
        if !self.directory_is_certain(path) {
            to.push(None);
        }
        to
    }

    /// Files that must be reachable by some name: they have one on the disk for certain, and none was taken from them
    /// but by giving them another.
    pub fn reachable(&self) -> Vec<usize> {
        let certain = |file: usize| {
            self.names.keys().any(|path| {
                let to = self.allowed(path);
                to.first() == Some(&Some(file)) && self.directory_is_certain(path)
            })
        };
        (0..self.files.len()).filter(|&file| certain(file) && !self.taken.contains(&file)).collect()
    }

    fn directory_is_certain(&self, path: &str) -> bool {
        let parent = Path::new(path).parent().and_then(Path::to_str).unwrap_or("");
        self.directories.get(parent) != Some(&false)
    }
}
