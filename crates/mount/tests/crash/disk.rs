//! A model of disks that lose power: what is certainly on them, what may be, and states they can be found in.
//!
//! Modelled as the least that POSIX and common file systems promise. A file's bytes that were not synced may be there or
//! not, each 512 of them for themselves, also when the new size is. Changes of one inode (size, attributes, owner, mode)
//! reach the disk in their order, but nothing orders those of two inodes, nor names. A change of names is whole (a rename
//! leaves one of the two), and two changes of one name keep their order. `fsync` of a file makes its bytes and its inode
//! durable, not its name; that does an `fsync` of the directory.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::XattrFlags;
use stripewise_store::handle::{ATTRIBUTE, Handle};

use crate::effect::{Change, Effect, Id, Kind, Objects};

/// The least that a device writes in one.
const SECTOR: u64 = 512;

/// What an inode holds.
#[derive(Clone, Debug)]
struct Content {
    bytes: Vec<u8>,
    attributes: BTreeMap<OsString, Vec<u8>>,
    owner: (u32, u32),
    mode: u32,
}

#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    durable: Content,
    pending: Vec<Change>,
}

type Names = Vec<(Id, OsString, Option<Id>)>;

/// The disks below a base directory.
#[derive(Clone, Debug)]
pub struct Disk {
    nodes: BTreeMap<Id, Node>,
    names: BTreeMap<(Id, OsString), Id>,
    pending_names: Vec<Names>,
    root: Id,
}

/// What of all that is pending is found on the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing of it.
    All,
    /// All of it.
    None,
    /// All but what this inode (or this directory) has pending.
    Only(Id),
    /// Only what this inode (or this directory) has pending.
    AllBut(Id),
    /// By chance, with this seed.
    Random(u64),
}

/// Numbers that follow from a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % sides
    }
}

impl Content {
    fn put(&mut self, offset: u64, data: &[u8]) {
        let (from, to) = (offset as usize, offset as usize + data.len());
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(data);
    }

    /// A change of the inode itself.
    fn change(&mut self, change: &Change) {
        match change {
            Change::Write(offset, data) => {
                let end = *offset as usize + data.len();
                if self.bytes.len() < end {
                    self.bytes.resize(end, 0);
                }
            }
            Change::Size(size) => self.bytes.resize(*size as usize, 0),
            Change::Extend(size) if self.bytes.len() < *size as usize => self.bytes.resize(*size as usize, 0),
            Change::Extend(_) | Change::Other => {}
            Change::Punch(from, len) => {
                let end = self.bytes.len();
                self.bytes[(*from as usize).min(end)..((from + len) as usize).min(end)].fill(0);
            }
            Change::Attribute(name, Some(value)) => {
                self.attributes.insert(name.clone(), value.clone());
            }
            Change::Attribute(name, None) => {
                self.attributes.remove(name);
            }
            Change::Owner(uid, gid) => {
                self.owner = (uid.unwrap_or(self.owner.0), gid.unwrap_or(self.owner.1));
            }
            Change::Mode(mode) => self.mode = mode & 0o7777,
        }
    }

    /// Changes in order: the inode's own up to `inode_changes`, and of the bytes those sectors for which `keep` says so.
    fn apply(&mut self, changes: &[Change], inode_changes: usize, keep: &mut dyn FnMut() -> bool) {
        let mut lost_space = false;
        for (index, change) in changes.iter().enumerate() {
            if index < inode_changes {
                self.change(change);
            } else {
                lost_space |= matches!(change, Change::Size(_) | Change::Punch(..));
            }
            // Bytes cannot be on the disk in space that was given back, and taken again, only in memory.
            if let Change::Write(offset, data) = change
                && !lost_space
            {
                let end = offset + data.len() as u64;
                let mut at = *offset;
                while at < end {
                    let next = ((at / SECTOR + 1) * SECTOR).min(end);
                    let inside = next.min(self.bytes.len() as u64);
                    if keep() && at < inside {
                        self.put(at, &data[(at - offset) as usize..(inside - offset) as usize]);
                    }
                    at = next;
                }
            }
        }
    }
}

impl Disk {
    /// What is below `base` now, all of it durable.
    pub fn at(base: &Path, objects: &mut Objects) -> Disk {
        let root = objects.id(base).expect("the base directory is there");
        let mut disk = Disk { nodes: BTreeMap::new(), names: BTreeMap::new(), pending_names: Vec::new(), root };
        disk.load(base, root, objects);
        disk
    }

    fn load(&mut self, path: &Path, id: Id, objects: &mut Objects) {
        let meta = path.symlink_metadata().expect("a file that was just listed");
        let owner = (meta.uid(), meta.gid());
        let mut content = Content { bytes: Vec::new(), attributes: BTreeMap::new(), owner, mode: meta.mode() & 0o7777 };
        let kind = if meta.is_dir() {
            Kind::Directory
        } else if meta.is_symlink() {
            Kind::Symlink(fs::read_link(path).expect("a link that was just listed"))
        } else {
            content.bytes = fs::read(path).expect("a file that was just listed");
            let mut value = vec![0; 4096];
            for name in [ATTRIBUTE, "user.stripewise.lengths"] {
                if let Ok(len) = rustix::fs::getxattr(path, name, &mut value[..]) {
                    content.attributes.insert(name.into(), value[..len].to_vec());
                }
            }
            Kind::File
        };
        let is_directory = kind == Kind::Directory;
        self.nodes.insert(id, Node { kind, durable: content, pending: Vec::new() });
        if is_directory {
            let mut entries: Vec<_> = fs::read_dir(path).expect("a directory that was just listed").flatten().collect();
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                // Another file system has its own disks.
                let Some(child) = objects.id_of_name(&entry.path()) else { continue };
                self.names.insert((id, entry.file_name()), child);
                if !self.nodes.contains_key(&child) {
                    self.load(&entry.path(), child, objects);
                }
            }
        }
    }

    /// Something has happened in memory.
    pub fn happen(&mut self, effect: &Effect) {
        match effect {
            Effect::Made { id, kind, mode, owner } => {
                let content = Content { bytes: Vec::new(), attributes: BTreeMap::new(), owner: *owner, mode: *mode };
                self.nodes.insert(*id, Node { kind: kind.clone(), durable: content, pending: Vec::new() });
            }
            Effect::Changed(id, change) => {
                self.nodes.get_mut(id).expect("an inode that is known").pending.push(change.clone());
            }
            Effect::Names(names) => self.pending_names.push(names.clone()),
            Effect::Synced { id, data_only } => self.sync(*id, *data_only),
            Effect::SyncedAll => {
                let all: Vec<Id> = self.nodes.keys().copied().collect();
                all.into_iter().for_each(|id| self.sync(id, false));
            }
        }
    }

    fn sync(&mut self, id: Id, data_only: bool) {
        let node = self.nodes.get_mut(&id).expect("an inode that is known");
        let (kept, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut node.pending).into_iter().partition(|change| {
            !data_only || matches!(change, Change::Write(..) | Change::Size(_) | Change::Extend(_) | Change::Punch(..))
        });
        node.durable.apply(&kept, kept.len(), &mut || true);
        node.pending = rest;
        if node.kind == Kind::Directory {
            // With a change of a name, the older ones of that name are settled; newer ones are not.
            let mut touched: BTreeSet<(Id, OsString)> = BTreeSet::new();
            let mut pending: Vec<(bool, Names)> = Vec::new();
            for names in std::mem::take(&mut self.pending_names).into_iter().rev() {
                let settled =
                    names.iter().any(|(parent, name, _)| *parent == id || touched.contains(&(*parent, name.clone())));
                if settled {
                    touched.extend(names.iter().map(|(parent, name, _)| (*parent, name.clone())));
                }
                pending.push((settled, names));
            }
            for (settled, names) in pending.into_iter().rev() {
                if settled {
                    rename(&mut self.names, &names);
                } else {
                    self.pending_names.push(names);
                }
            }
        }
    }

    /// Inodes and directories that have something pending.
    pub fn pending(&self) -> BTreeSet<Id> {
        let inodes = self.nodes.iter().filter(|(_, node)| !node.pending.is_empty()).map(|(id, _)| *id);
        inodes.chain(self.pending_names.iter().flatten().map(|(parent, ..)| *parent)).collect()
    }

    /// Writes one of the states in which the disks may be found after a power cut into the empty directory `to`.
    pub fn crash(&self, loss: Loss, to: &Path) {
        let mut dice = Dice(match loss {
            Loss::Random(seed) => seed,
            _ => 0,
        });
        let mut contents = BTreeMap::new();
        for (id, node) in &self.nodes {
            let mut content = node.durable.clone();
            let all = node.pending.len();
            match loss {
                Loss::All => {}
                Loss::None => content.apply(&node.pending, all, &mut || true),
                Loss::Only(lost) if lost == *id => {}
                Loss::Only(_) => content.apply(&node.pending, all, &mut || true),
                Loss::AllBut(kept) if kept == *id => content.apply(&node.pending, all, &mut || true),
                Loss::AllBut(_) => {}
                Loss::Random(_) => {
                    let upto = dice.roll(all as u64 + 1) as usize;
                    // All, none, or some.
                    let odds = dice.roll(3);
                    content.apply(&node.pending, upto, &mut || match odds {
                        0 => true,
                        1 => false,
                        _ => dice.roll(2) == 0,
                    });
                }
            }
            contents.insert(*id, content);
        }
        let mut names = self.names.clone();
        let mut lost: BTreeSet<(Id, OsString)> = BTreeSet::new();
        for change in &self.pending_names {
            let touches = |id: Id| change.iter().any(|(parent, ..)| *parent == id);
            let kept = match loss {
                Loss::All => false,
                Loss::None => true,
                Loss::Only(id) => !touches(id),
                Loss::AllBut(id) => touches(id),
                Loss::Random(_) => dice.roll(2) == 0,
            };
            let follows = change.iter().any(|(parent, name, _)| lost.contains(&(*parent, name.clone())));
            if kept && !follows {
                rename(&mut names, change);
            } else {
                lost.extend(change.iter().map(|(parent, name, _)| (*parent, name.clone())));
            }
        }
        let mut made = BTreeMap::new();
        self.write(self.root, to, &contents, &names, &mut made);
    }

    fn write(
        &self,
        directory: Id,
        to: &Path,
        contents: &BTreeMap<Id, Content>,
        names: &BTreeMap<(Id, OsString), Id>,
        made: &mut BTreeMap<Id, std::path::PathBuf>,
    ) {
        for ((_, name), id) in names.range((directory, OsString::new())..(directory + 1, OsString::new())) {
            let path = to.join(name);
            if let Some(other) = made.get(id) {
                if self.nodes[id].kind != Kind::Directory {
                    fs::hard_link(other, &path).expect("a link");
                }
                continue;
            }
            made.insert(*id, path.clone());
            let content = &contents[id];
            match &self.nodes[id].kind {
                Kind::Directory => {
                    fs::create_dir(&path).expect("a directory");
                    self.write(*id, &path, contents, names, made);
                }
                Kind::Symlink(target) => {
                    std::os::unix::fs::symlink(target, &path).expect("a symbolic link");
                    continue;
                }
                Kind::File => {
                    fs::write(&path, &content.bytes).expect("a file");
                    for (name, value) in &content.attributes {
                        set_attribute(&path, name, value);
                    }
                }
            }
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(&path, Some(content.owner.0), Some(content.owner.1)).expect("an owner");
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(content.mode)).expect("a mode");
        }
    }
}

/// A handle names its inode by number, and a copy's is another.
fn set_attribute(path: &Path, name: &OsString, value: &[u8]) {
    let mut value = value.to_vec();
    if name == ATTRIBUTE
        && let Ok(mut handle) = Handle::decode(&value)
    {
        handle.real = fs::metadata(path).expect("a file that was just made").ino();
        value = handle.encode().expect("a handle of the same length");
    }
    rustix::fs::setxattr(path, name, &value, XattrFlags::empty()).expect("an attribute");
}

fn rename(names: &mut BTreeMap<(Id, OsString), Id>, change: &Names) {
    for (parent, name, id) in change {
        match id {
            Some(id) => names.insert((*parent, name.clone()), *id),
            None => names.remove(&(*parent, name.clone())),
        };
    }
}
