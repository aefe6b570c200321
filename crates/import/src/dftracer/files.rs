//! What the processes of a log have open, and where in it they are: dftracer says which file a call was on, by a hash
//! of its name, and early 1.x also by which descriptor.

use super::event::Hash;
use std::collections::HashMap;

/// Number of a file here, before its name is known for certain.
pub(super) type FileNumber = u32;

/// Where a hash means the same file: a process, while it stays in one directory.
pub(super) type HashScope = u64;

/// A file that some call named.
pub(super) struct NamedFile {
    /// Its path, once that is known.
    pub path: Option<Box<[u8]>>,
    /// The hash that it was named by, and the part of the log.
    pub hash: (usize, Hash),
    /// Its number at the sink, once it was told.
    pub told: Option<u32>,
    /// Its size, where calls tell it.
    size: Option<u64>,
    /// The process that appends to it; `Some(None)`: several processes, in an unknown order.
    appender: Option<Option<u32>>,
}

/// Where reads and writes of an open file go next.
#[derive(Clone, Copy)]
struct Cursor {
    slot: FileNumber,
    position: Option<u64>,
    append: bool,
    /// How often the file was opened and not closed, as far as the log says.
    open: u32,
}

/// Which cursor a call uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CursorKey {
    /// Early 1.x: process and descriptor.
    Descriptor(u32, u32),
    /// Process and file: system calls.
    File(u32, FileNumber),
    /// Process and file: stdio.
    Stream(u32, FileNumber),
}

/// Where a call without an offset stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CursorPosition {
    /// `None`: it cannot be told.
    pub offset: Option<u64>,
    /// The descriptor appends.
    pub append: bool,
    /// The process had the file open more than once: the newest was taken.
    pub newest: bool,
}

/// Every name, file and cursor of a log.
#[derive(Default)]
pub(super) struct FileTable {
    pub files: Vec<NamedFile>,
    by_path: HashMap<Box<[u8]>, FileNumber>,
    /// Names of hashes, by the part of the log that tells them; and which part told a hash first.
    names: HashMap<(usize, Hash), Box<[u8]>>,
    told_in: HashMap<Hash, usize>,
    /// Files by namespace, hash and the version of its name.
    by_hash: HashMap<(HashScope, Hash, u32), FileNumber>,
    last: Option<((HashScope, Hash), FileNumber)>,
    /// How often a hash got another name, for the few that did.
    versions: HashMap<Hash, u32>,
    cursors: HashMap<CursorKey, Cursor>,
    /// Hashes that stand for more than one name.
    pub shared_hashes: u64,
}

impl FileTable {
    /// The log tells the name of a hash.
    pub fn name(&mut self, part: usize, hash: Hash, name: &[u8]) {
        self.told_in.entry(hash).or_insert(part);
        let before = self.names.insert((part, hash), name.into());
        if before.is_some_and(|before| *before != *name) {
            // 1.x has 16 bits for them: from here on the hash stands for the new name.
            self.shared_hashes += 1;
            *self.versions.entry(hash).or_insert(0) += 1;
            self.last = None;
        }
    }

    /// The name of a hash, as this part of the log tells it, else as any does.
    pub fn name_of(&self, part: usize, hash: Hash) -> Option<&[u8]> {
        let own = self.names.get(&(part, hash));
        own.or_else(|| self.names.get(&(*self.told_in.get(&hash)?, hash))).map(|name| &**name)
    }

    /// The file of a hash. O(1) after the first time.
    #[inline]
    pub fn of_hash(&mut self, space: HashScope, part: usize, hash: Hash, directory: Option<&[u8]>) -> FileNumber {
        match self.last {
            Some((key, slot)) if key == (space, hash) => slot,
            _ => {
                let version = if self.versions.is_empty() { 0 } else { self.versions.get(&hash).copied().unwrap_or(0) };
                let key = (space, hash, version);
                let slot = match self.by_hash.get(&key) {
                    Some(&slot) => slot,
                    None => {
                        let path = self.name_of(part, hash).map(|name| absolute(name, directory));
                        let slot = match path {
                            Some(path) => self.of_path(path),
                            None => self.add(None, (part, hash)),
                        };
                        self.by_hash.insert(key, slot);
                        slot
                    }
                };
                self.last = Some(((space, hash), slot));
                slot
            }
        }
    }

    /// The file of a name.
    pub fn of_name(&mut self, name: &[u8], directory: Option<&[u8]>) -> FileNumber {
        match self.by_path.get(name) {
            Some(&slot) if name.starts_with(b"/") => slot,
            _ => self.of_path(absolute(name, directory)),
        }
    }

    fn of_path(&mut self, path: Box<[u8]>) -> FileNumber {
        if let Some(&slot) = self.by_path.get(&path) {
            return slot;
        }
        let slot = self.add(Some(path.clone()), (0, 0));
        self.by_path.insert(path, slot);
        slot
    }

    fn add(&mut self, path: Option<Box<[u8]>>, hash: (usize, Hash)) -> FileNumber {
        self.files.push(NamedFile { path, hash, told: None, size: None, appender: None });
        (self.files.len() - 1) as FileNumber
    }

    /// The file was opened.
    pub fn open(&mut self, handle: CursorKey, slot: FileNumber, append: bool, truncate: bool) {
        if truncate {
            self.files[slot as usize].size = Some(0);
        }
        let open = match handle {
            CursorKey::Descriptor(..) => 0,
            _ => self.cursors.get(&handle).map_or(0, |cursor| cursor.open),
        };
        let cursor = Cursor { slot, position: Some(0), append, open: open.saturating_add(1) };
        self.cursors.insert(handle, cursor);
    }

    /// It was closed; which one is not known where several are open.
    pub fn close(&mut self, handle: CursorKey) {
        if let Some(cursor) = self.cursors.get_mut(&handle) {
            cursor.open = cursor.open.saturating_sub(1);
            cursor.position = None;
            if cursor.open == 0 {
                self.cursors.remove(&handle);
            }
        }
    }

    fn cursor(&mut self, handle: CursorKey, slot: FileNumber) -> &mut Cursor {
        let fresh = Cursor { slot, position: None, append: false, open: 0 };
        let cursor = self.cursors.entry(handle).or_insert(fresh);
        if cursor.slot != slot {
            // A descriptor whose close and open were not seen.
            *cursor = fresh;
        }
        cursor
    }

    /// Takes `bytes` at the cursor, which moves.
    #[inline]
    pub fn advance(
        &mut self,
        process: u32,
        handle: CursorKey,
        slot: FileNumber,
        bytes: u64,
        writes: bool,
    ) -> CursorPosition {
        let cursor = *self.cursor(handle, slot);
        let append = cursor.append && writes;
        let file = &mut self.files[slot as usize];
        let offset = if append {
            if file.appender.is_none_or(|one| one == Some(process)) {
                file.appender = Some(Some(process));
                file.size
            } else {
                file.appender = Some(None);
                None
            }
        } else {
            cursor.position
        };
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        if writes {
            self.wrote_to(slot, end);
        }
        self.cursor(handle, slot).position = end;
        CursorPosition { offset, append, newest: cursor.open > 1 }
    }

    /// Bytes up to `end` were written.
    pub fn wrote_to(&mut self, slot: FileNumber, end: Option<u64>) {
        let file = &mut self.files[slot as usize];
        file.size = match (file.size, end) {
            (Some(size), Some(end)) => Some(size.max(end)),
            _ => None,
        };
    }

    pub fn set_size(&mut self, slot: FileNumber, size: Option<u64>) {
        self.files[slot as usize].size = size;
    }

    pub fn size(&self, slot: FileNumber) -> Option<u64> {
        self.files[slot as usize].size
    }

    /// The cursor stands at `position` from now on.
    pub fn place(&mut self, handle: CursorKey, slot: FileNumber, position: Option<u64>) {
        self.cursor(handle, slot).position = position;
    }

    pub fn position(&mut self, handle: CursorKey, slot: FileNumber) -> Option<u64> {
        self.cursor(handle, slot).position
    }
}

/// A name as it is found from a directory.
fn absolute(name: &[u8], directory: Option<&[u8]>) -> Box<[u8]> {
    match directory {
        Some(directory) if !name.starts_with(b"/") && !name.is_empty() => {
            let name = name.strip_prefix(b"./").unwrap_or(name);
            [directory.strip_suffix(b"/").unwrap_or(directory), name].join(&b'/').into()
        }
        _ => name.into(),
    }
}
