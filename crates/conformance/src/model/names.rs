//! Operations on names.

use super::{ClockInterval, Content, Kind, Node, ReferenceModel, Result};
use crate::operation::{Answer, CaseOperation};
use std::collections::BTreeMap;

/// More symbolic links than this on one way are a loop.
const MAX_LINKS: usize = 40;

/// Where a path leads.
pub(super) struct ResolvedPath {
    pub(super) parent: usize,
    pub(super) name: String,
    pub(super) node: Option<usize>,
}

impl ReferenceModel {
    fn entries(&self, directory: usize) -> Result<&BTreeMap<String, usize>> {
        if let Kind::Directory(entries) = &self.nodes[directory].kind { Ok(entries) } else { Err(libc::ENOTDIR) }
    }

    fn entries_mut(&mut self, directory: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[directory].kind {
            Kind::Directory(entries) => entries,
            _ => unreachable!("names are looked up in directories"),
        }
    }

    /// Follows `path`; a symbolic link at its end too if `follow`.
    pub(super) fn resolve(&self, path: &str, follow: bool) -> Result<ResolvedPath> {
        let split = |path: &str| path.split('/').rev().map(str::to_owned).collect::<Vec<_>>();
        let (mut rest, mut at, mut links) = (split(path), 0, 0);
        loop {
            let name = rest.pop().ok_or(libc::ENOENT)?;
            let found = self.entries(at)?.get(&name).copied();
            let last = rest.is_empty();
            match found {
                None if last => return Ok(ResolvedPath { parent: at, name, node: None }),
                None => return Err(libc::ENOENT),
                Some(node) => match &self.nodes[node].kind {
                    Kind::Symlink(target) if !last || follow => {
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(libc::ELOOP);
                        }
                        rest.extend(split(target));
                    }
                    _ if last => return Ok(ResolvedPath { parent: at, name, node: Some(node) }),
                    _ => at = node,
                },
            }
        }
    }

    fn existing(&self, path: &str, follow: bool) -> Result<usize> {
        self.resolve(path, follow)?.node.ok_or(libc::ENOENT)
    }

    fn is_directory(&self, node: usize) -> bool {
        matches!(self.nodes[node].kind, Kind::Directory(_))
    }

    /// Puts a new node under a name that is free.
    pub(super) fn make(&mut self, parent: usize, name: String, kind: Kind, mode: u32) -> usize {
        self.nodes.push(Node::new(kind, mode));
        let node = self.nodes.len() - 1;
        self.entries_mut(parent).insert(name, node);
        node
    }

    fn make_new(&mut self, path: &str, kind: Kind, mode: u32) -> Result<Answer> {
        let found = self.resolve(path, false)?;
        if found.node.is_some() {
            return Err(libc::EEXIST);
        }
        self.make(found.parent, found.name, kind, mode);
        Ok(Answer::Done(0))
    }

    #[expect(clippy::too_many_lines, reason = "a table: an arm for each operation")]
    pub(super) fn on_names(&mut self, operation: &CaseOperation, data: &[u8], window: ClockInterval) -> Result<Answer> {
        match operation {
            CaseOperation::Truncate { path, size } => {
                let node = self.existing(path, true)?;
                match &self.nodes[node].kind {
                    Kind::File(_) => self.resize(node, *size as u64, window),
                    _ => return Err(libc::EISDIR),
                }
                Ok(Answer::Done(0))
            }
            CaseOperation::Rename { from, to, flags } => self.rename(from, to, *flags),
            CaseOperation::Link { from, to } => {
                let node = self.existing(from, false)?;
                let to = self.resolve(to, false)?;
                if to.node.is_some() {
                    return Err(libc::EEXIST);
                }
                if self.is_directory(node) {
                    return Err(libc::EPERM);
                }
                self.entries_mut(to.parent).insert(to.name, node);
                self.nodes[node].links += 1;
                Ok(Answer::Done(0))
            }
            CaseOperation::Unlink { path } => {
                let found = self.resolve(path, false)?;
                let node = found.node.ok_or(libc::ENOENT)?;
                if self.is_directory(node) {
                    return Err(libc::EISDIR);
                }
                self.entries_mut(found.parent).remove(&found.name);
                self.nodes[node].links -= 1;
                Ok(Answer::Done(0))
            }
            CaseOperation::Mkdir { path } => self.make_new(path, Kind::Directory(BTreeMap::new()), 0o755),
            CaseOperation::Rmdir { path } => {
                let found = self.resolve(path, false)?;
                let node = found.node.ok_or(libc::ENOENT)?;
                if !self.entries(node)?.is_empty() {
                    return Err(libc::ENOTEMPTY);
                }
                self.entries_mut(found.parent).remove(&found.name);
                Ok(Answer::Done(0))
            }
            CaseOperation::List { path } => {
                let node = self.existing(path, true)?;
                Ok(Answer::Names(self.entries(node)?.keys().cloned().collect()))
            }
            CaseOperation::Symlink { target, path } => self.make_new(path, Kind::Symlink(target.clone()), 0o777),
            CaseOperation::Readlink { path } => match &self.nodes[self.existing(path, false)?].kind {
                Kind::Symlink(target) => Ok(Answer::Bytes { data: target.clone().into_bytes() }),
                _ => Err(libc::EINVAL),
            },
            CaseOperation::Chmod { path, mode } => {
                let node = self.existing(path, true)?;
                self.nodes[node].mode = *mode;
                Ok(Answer::Done(0))
            }
            CaseOperation::SetTimes { path, atime_ns, mtime_ns } => {
                let node = self.existing(path, true)?;
                self.nodes[node].times.set(*atime_ns, *mtime_ns);
                Ok(Answer::Done(0))
            }
            CaseOperation::SetXattr { path, name, flags, .. } => {
                let node = self.existing(path, true)?;
                let xattrs = &mut self.nodes[node].xattrs;
                match xattrs.contains_key(name) {
                    true if *flags == libc::XATTR_CREATE => return Err(libc::EEXIST),
                    false if *flags == libc::XATTR_REPLACE => return Err(libc::ENODATA),
                    _ => xattrs.insert(name.clone(), data.to_vec()),
                };
                Ok(Answer::Done(0))
            }
            CaseOperation::GetXattr { path, name } => {
                let data = self.nodes[self.existing(path, true)?].xattrs.get(name).ok_or(libc::ENODATA)?;
                Ok(Answer::Bytes { data: data.clone() })
            }
            CaseOperation::ListXattr { path } => {
                Ok(Answer::Names(self.nodes[self.existing(path, true)?].xattrs.keys().cloned().collect()))
            }
            CaseOperation::RemoveXattr { path, name } => {
                let node = self.existing(path, true)?;
                self.nodes[node].xattrs.remove(name).map(|_| Answer::Done(0)).ok_or(libc::ENODATA)
            }
            _ => unreachable!("an operation on names"),
        }
    }

    fn contains(&self, directory: usize, node: usize) -> bool {
        let below = |child: &usize| *child == node || self.contains(*child, node);
        self.entries(directory).is_ok_and(|entries| entries.values().any(below))
    }

    fn rename(&mut self, from: &str, to: &str, flags: u32) -> Result<Answer> {
        let exchange = flags == libc::RENAME_EXCHANGE;
        let (from, to) = (self.resolve(from, false)?, self.resolve(to, false)?);
        let source = from.node.ok_or(libc::ENOENT)?;
        if flags == libc::RENAME_NOREPLACE && to.node.is_some() {
            return Err(libc::EEXIST);
        }
        if exchange && to.node.is_none() {
            return Err(libc::ENOENT);
        }
        if source == to.parent || self.contains(source, to.parent) {
            return Err(libc::EINVAL);
        }
        if let Some(target) = to.node {
            if target == from.parent || self.contains(target, from.parent) {
                return Err(if exchange { libc::EINVAL } else { libc::ENOTEMPTY });
            }
            if source == target {
                return Ok(Answer::Done(0));
            }
            if exchange {
                self.entries_mut(from.parent).insert(from.name, target);
                self.entries_mut(to.parent).insert(to.name, source);
                return Ok(Answer::Done(0));
            }
            match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => return Err(libc::ENOTDIR),
                (false, true) => return Err(libc::EISDIR),
                (true, true) if !self.entries(target)?.is_empty() => return Err(libc::ENOTEMPTY),
                _ => self.nodes[target].links -= 1,
            }
        }
        self.entries_mut(from.parent).remove(&from.name);
        self.entries_mut(to.parent).insert(to.name, source);
        Ok(Answer::Done(0))
    }

    /// Sets a file's size.
    pub(super) fn resize(&mut self, node: usize, size_bytes: u64, window: ClockInterval) {
        let node = &mut self.nodes[node];
        if let Kind::File(content) = &mut node.kind {
            if content.size_bytes() == size_bytes {
                node.times.may_have_changed(window);
            } else {
                node.times.changed(window);
            }
            content.resize(size_bytes);
        }
    }

    /// An empty file under a free name.
    pub(super) fn make_file(&mut self, parent: usize, name: String, mode: u32, window: ClockInterval) -> usize {
        let node = self.make(parent, name, Kind::File(Content::default()), mode);
        self.nodes[node].times.changed(window);
        node
    }
}
