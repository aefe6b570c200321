//! The reference: what a file system that is right answers, in memory.
//!
//! Where several answers are right (how much of a copy is done at once, which zeros are holes), the model looks at the
//! answer that came, and goes on from it if it is one of them.

mod content;
mod files;
mod names;
mod times;

use crate::operation::{Answer, CaseOperation, Stat};
use content::Content;
use std::collections::{BTreeMap, HashMap};
pub use times::ClockInterval;
use times::FileTimes;

/// Which agent, and which of its slots.
type Slot = (usize, u8);
/// A call's result, with its errno.
type Result<T> = std::result::Result<T, i32>;

#[derive(Debug)]
enum Kind {
    File(Content),
    Directory(BTreeMap<String, usize>),
    Symlink(String),
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    mode: u32,
    links: u64,
    times: FileTimes,
    /// The number that the file system gave it.
    inode: Option<u64>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

/// An open file description.
#[derive(Debug)]
struct Description {
    node: usize,
    offset: i64,
    flags: i32,
}

impl Description {
    fn reads(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    fn writes(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }
}

/// A directory and the processes that use it.
#[derive(Debug)]
pub struct ReferenceModel {
    /// The first is the directory itself.
    nodes: Vec<Node>,
    descriptions: Vec<Description>,
    slots: HashMap<Slot, usize>,
    /// The mapped node and how many of its bytes.
    maps: HashMap<Slot, (usize, usize)>,
}

impl Default for ReferenceModel {
    fn default() -> Self {
        let root = Node::new(Kind::Directory(BTreeMap::new()), 0o755);
        Self { nodes: vec![root], descriptions: Vec::new(), slots: HashMap::new(), maps: HashMap::new() }
    }
}

impl Node {
    fn new(kind: Kind, mode: u32) -> Self {
        Self { kind, mode, links: 1, times: FileTimes::default(), inode: None, xattrs: BTreeMap::new() }
    }

    fn content(&self) -> Option<&Content> {
        if let Kind::File(content) = &self.kind { Some(content) } else { None }
    }
}

impl ReferenceModel {
    /// Whether the operation may be tried: it harms no agent, and its outcome is defined.
    pub fn allows(&self, who: usize, operation: &CaseOperation) -> bool {
        match operation {
            // Behind the end of a file a mapping is a SIGBUS.
            CaseOperation::MapRead { slot, at, len } | CaseOperation::MapWrite { slot, at, len, .. } => {
                let Some((node, mapped)) = self.maps.get(&(who, *slot)) else { return false };
                let size = self.nodes[*node].content().map_or(0, Content::size_bytes);
                at + len <= *mapped && (at + len) as u64 <= size
            }
            // A descriptor of a directory is another matter.
            CaseOperation::Open { path, flags, .. } => {
                let excl = libc::O_CREAT | libc::O_EXCL;
                match self.resolve(path, flags & excl != excl) {
                    Ok(found) => {
                        let directory =
                            found.node.is_some_and(|node| matches!(self.nodes[node].kind, Kind::Directory(_)));
                        !directory || flags & (libc::O_CREAT | libc::O_TRUNC) != 0 || flags & libc::O_ACCMODE != 0
                    }
                    Err(_) => true,
                }
            }
            // It copies and compares every byte, holes too.
            CaseOperation::Move { path, .. } => {
                self.file_at(path).is_some_and(|content| content.size_bytes() < 64 << 20)
            }
            _ => true,
        }
    }

    /// What the operation answers, if `got` was not right; `got` if it was. Goes on from there.
    pub fn step(
        &mut self,
        who: usize,
        operation: &CaseOperation,
        data: &[u8],
        got: &Answer,
        window: ClockInterval,
    ) -> Answer {
        let done = match operation {
            CaseOperation::Fstat { .. } | CaseOperation::Stat { .. } => self.attributes(who, operation, got),
            CaseOperation::Move { .. } => Ok(got.clone()),
            _ => self
                .on_file(who, operation, data, got, window)
                .unwrap_or_else(|| self.on_names(operation, data, window)),
        };
        done.unwrap_or_else(Answer::Failed)
    }

    /// Compares attributes field by field, and remembers those that the file system is free to choose.
    fn attributes(&mut self, who: usize, operation: &CaseOperation, got: &Answer) -> Result<Answer> {
        let index = match operation {
            CaseOperation::Fstat { slot } => self.description(who, *slot)?.node,
            CaseOperation::Stat { path, follow } => self.resolve(path, *follow)?.node.ok_or(libc::ENOENT)?,
            _ => unreachable!("an operation that asks for attributes"),
        };
        let node = &mut self.nodes[index];
        let none =
            Stat { kind: '?', mode: 0, links: 0, size_bytes: 0, inode: 0, atime_ns: 0, mtime_ns: 0, ctime_ns: 0 };
        let got = if let Answer::Stat(got) = got { *got } else { none };
        let (kind, size_bytes) = match &node.kind {
            Kind::File(content) => ('f', content.size_bytes()),
            Kind::Directory(_) => ('d', 0),
            Kind::Symlink(target) => ('l', target.len() as u64),
        };
        let regular = kind == 'f';
        Ok(Answer::Stat(Stat {
            kind,
            mode: if kind == 'l' { got.mode } else { node.mode },
            links: if kind == 'd' { 0 } else { node.links },
            size_bytes,
            inode: *node.inode.get_or_insert(got.inode),
            atime_ns: if regular { node.times.seen_access(got.atime_ns) } else { got.atime_ns },
            mtime_ns: if regular { node.times.seen_change(got.mtime_ns) } else { got.mtime_ns },
            ctime_ns: if regular { node.times.seen_status(got.ctime_ns) } else { got.ctime_ns },
        }))
    }

    fn description(&self, who: usize, slot: u8) -> Result<&Description> {
        self.slots.get(&(who, slot)).map(|&index| &self.descriptions[index]).ok_or(libc::EBADF)
    }

    /// The file that a path leads to.
    pub fn file_at(&self, path: &str) -> Option<&Content> {
        self.resolve(path, true).ok().and_then(|found| found.node).and_then(|node| self.nodes[node].content())
    }

    /// Slots that hold a descriptor: agent and slot.
    pub fn open_slots(&self) -> Vec<(usize, u8)> {
        let mut slots: Vec<_> = self.slots.keys().copied().collect();
        slots.sort_unstable();
        slots
    }

    /// What to read of the file in a slot to compare all of it, if it is open for reading.
    pub fn stretches_of_slot(&self, (who, slot): (usize, u8)) -> Vec<(u64, usize)> {
        let open = self.description(who, slot).ok().filter(|description| description.reads());
        open.and_then(|open| self.nodes[open.node].content()).map(Content::stretches).unwrap_or_default()
    }

    /// What to read of the file at a path.
    pub fn stretches_at(&self, path: &str) -> Vec<(u64, usize)> {
        self.file_at(path).map(Content::stretches).unwrap_or_default()
    }

    /// Every name below the directory, those in a directory before itself; whether it is a directory.
    pub fn all_names(&self) -> Vec<(String, bool)> {
        let mut names = Vec::new();
        self.names_below(0, "", &mut names);
        names
    }

    fn names_below(&self, node: usize, path: &str, names: &mut Vec<(String, bool)>) {
        if let Kind::Directory(entries) = &self.nodes[node].kind {
            for (name, &child) in entries {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                self.names_below(child, &path, names);
                names.push((path, matches!(self.nodes[child].kind, Kind::Directory(_))));
            }
        }
    }
}

pub use content::Content as FileContent;
