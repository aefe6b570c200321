//! Operations on open files.

use super::{ClockInterval, Content, Description, Kind, ReferenceModel, Result};
use crate::operation::{Answer, CaseOperation};

const MAX: i64 = i64::MAX;

/// Where a transfer takes place.
#[derive(Clone, Copy)]
enum Place {
    /// At the description's offset, which moves.
    Current,
    At(i64),
}

impl From<Option<i64>> for Place {
    fn from(at: Option<i64>) -> Self {
        at.map_or(Self::Current, Self::At)
    }
}

impl ReferenceModel {
    /// `None`: the operation is not one on an open file.
    pub(super) fn on_file(
        &mut self,
        who: usize,
        operation: &CaseOperation,
        data: &[u8],
        got: &Answer,
        window: ClockInterval,
    ) -> Option<Result<Answer>> {
        Some(match *operation {
            CaseOperation::Open { slot, ref path, flags, mode } => self.open((who, slot), path, flags, mode, window),
            CaseOperation::Close { slot } => {
                self.slots.remove(&(who, slot)).map(|_| Answer::Done(0)).ok_or(libc::EBADF)
            }
            CaseOperation::Dup { from, to } => match self.slots.get(&(who, from)).copied() {
                Some(description) => {
                    self.slots.insert((who, to), description);
                    Ok(Answer::Done(0))
                }
                None => Err(libc::EBADF),
            },
            CaseOperation::Read { slot, len } => self.read(who, slot, Place::Current, len),
            CaseOperation::Pread { slot, at, len } => self.read(who, slot, Place::At(at), len),
            CaseOperation::Readv { slot, at, ref lens } => self.read(who, slot, at.into(), lens.iter().sum()),
            CaseOperation::Write { slot, .. } => self.write(who, slot, Place::Current, data, window),
            CaseOperation::Pwrite { slot, at, .. } => self.write(who, slot, Place::At(at), data, window),
            CaseOperation::Writev { slot, at, .. } => self.write(who, slot, at.into(), data, window),
            CaseOperation::Seek { slot, at, whence } => self.seek(who, slot, at, whence, got),
            CaseOperation::Ftruncate { slot, size } => match self.description(who, slot) {
                Ok(open) if open.writes() => {
                    let node = open.node;
                    self.resize(node, size as u64, window);
                    Ok(Answer::Done(0))
                }
                Ok(_) => Err(libc::EINVAL),
                Err(errno) => Err(errno),
            },
            CaseOperation::Fallocate { slot, mode, at, len } => self.fallocate(who, slot, mode, (at, len), got, window),
            CaseOperation::Fsync { slot, .. } => self.description(who, slot).map(|_| Answer::Done(0)),
            CaseOperation::CopyRange { from, from_at, to, to_at, len } => {
                self.copy((who, from, from_at.into()), (who, to, to_at.into()), len, got, window)
            }
            CaseOperation::Map { slot, len } => self.map(who, slot, len),
            CaseOperation::MapRead { slot, at, len } => self.mapped(who, slot).map(|(_, content)| {
                let data = content.read(at as u64, len);
                Answer::Bytes { data }
            }),
            CaseOperation::MapWrite { slot, at, .. } => self.mapped(who, slot).map(|(node, _)| node).map(|node| {
                if let Kind::File(content) = &mut self.nodes[node].kind {
                    content.write(at as u64, data);
                    self.nodes[node].times.mapped();
                }
                Answer::Done(data.len() as i64)
            }),
            CaseOperation::Msync { slot } => self.mapped(who, slot).map(|_| Answer::Done(0)),
            CaseOperation::Unmap { slot } => {
                self.maps.remove(&(who, slot)).map(|_| Answer::Done(0)).ok_or(libc::EINVAL)
            }
            _ => return None,
        })
    }

    fn open(&mut self, slot: (usize, u8), path: &str, flags: i32, mode: u32, window: ClockInterval) -> Result<Answer> {
        self.slots.remove(&slot);
        let (creates, exclusive) = (flags & libc::O_CREAT != 0, flags & libc::O_EXCL != 0);
        let found = self.resolve(path, !(creates && exclusive))?;
        let node = match found.node {
            Some(_) if creates && exclusive => return Err(libc::EEXIST),
            Some(node) => node,
            None if creates => self.make_file(found.parent, found.name, mode, window),
            None => return Err(libc::ENOENT),
        };
        match &self.nodes[node].kind {
            Kind::Directory(_) => return Err(libc::EISDIR),
            Kind::Symlink(_) => return Err(libc::ELOOP),
            Kind::File(_) if flags & libc::O_TRUNC != 0 && found.node.is_some() => self.resize(node, 0, window),
            Kind::File(_) => {}
        }
        self.descriptions.push(Description { node, offset: 0, flags });
        self.slots.insert(slot, self.descriptions.len() - 1);
        Ok(Answer::Done(0))
    }

    fn file(&mut self, node: usize) -> &mut Content {
        match &mut self.nodes[node].kind {
            Kind::File(content) => content,
            _ => unreachable!("only files are open"),
        }
    }

    fn description_mut(&mut self, who: usize, slot: u8) -> &mut Description {
        &mut self.descriptions[self.slots[&(who, slot)]]
    }

    fn read(&mut self, who: usize, slot: u8, place: Place, len: usize) -> Result<Answer> {
        let open = self.description(who, slot)?;
        if let Place::At(at) = place
            && at < 0
        {
            return Err(libc::EINVAL);
        }
        if !open.reads() {
            return Err(libc::EBADF);
        }
        let at = if let Place::At(at) = place { at } else { open.offset };
        if len as i64 > MAX - at {
            return Err(libc::EINVAL);
        }
        let node = open.node;
        let data = self.file(node).read(at as u64, len);
        self.nodes[node].times.accessed();
        if let Place::Current = place {
            self.description_mut(who, slot).offset += data.len() as i64;
        }
        Ok(Answer::Bytes { data })
    }

    fn write(&mut self, who: usize, slot: u8, place: Place, data: &[u8], window: ClockInterval) -> Result<Answer> {
        let open = self.description(who, slot)?;
        if let Place::At(at) = place
            && at < 0
        {
            return Err(libc::EINVAL);
        }
        if !open.writes() {
            return Err(libc::EBADF);
        }
        let (node, appends) = (open.node, open.flags & libc::O_APPEND != 0);
        let mut at = if let Place::At(at) = place { at } else { open.offset };
        if data.len() as i64 > MAX - at {
            return Err(libc::EINVAL);
        }
        if data.is_empty() {
            return Ok(Answer::Done(0));
        }
        let content = self.file(node);
        if appends {
            at = content.size_bytes() as i64;
        }
        if at == MAX {
            return Err(libc::EFBIG);
        }
        let data = &data[..data.len().min((MAX - at) as usize)];
        content.write(at as u64, data);
        self.nodes[node].times.changed(window);
        if let Place::Current = place {
            self.description_mut(who, slot).offset = at + data.len() as i64;
        }
        Ok(Answer::Done(data.len() as i64))
    }

    fn seek(&mut self, who: usize, slot: u8, at: i64, whence: i32, got: &Answer) -> Result<Answer> {
        let open = self.description(who, slot)?;
        let (node, offset) = (open.node, open.offset);
        let content = self.file(node);
        let size = content.size_bytes() as i64;
        let target = match whence {
            libc::SEEK_SET => at,
            libc::SEEK_CUR => offset.checked_add(at).ok_or(libc::EINVAL)?,
            libc::SEEK_END => size.checked_add(at).ok_or(libc::EINVAL)?,
            libc::SEEK_DATA | libc::SEEK_HOLE if at < 0 || at >= size => return Err(libc::ENXIO),
            libc::SEEK_DATA => {
                let data = content.next_data(at as u64);
                match *got {
                    // Zeros may count as data, and no data may be left out.
                    Answer::Done(found) if at <= found && found < size && content.is_zero(at as u64, found as u64) => {
                        found
                    }
                    Answer::Failed(libc::ENXIO) if data.is_none() => return Err(libc::ENXIO),
                    _ => data.map_or(size, |data| data as i64),
                }
            }
            libc::SEEK_HOLE => match *got {
                Answer::Done(found)
                    if at <= found && found <= size && content.is_zero(found as u64, found as u64 + 1) =>
                {
                    found
                }
                _ => size,
            },
            _ => return Err(libc::EINVAL),
        };
        if target < 0 {
            return Err(libc::EINVAL);
        }
        self.description_mut(who, slot).offset = target;
        Ok(Answer::Done(target))
    }

    fn fallocate(
        &mut self,
        who: usize,
        slot: u8,
        mode: i32,
        (at, len): (i64, i64),
        got: &Answer,
        window: ClockInterval,
    ) -> Result<Answer> {
        let open = self.description(who, slot)?;
        let node = open.node;
        if at < 0 || len <= 0 {
            return Err(libc::EINVAL);
        }
        // Not every file system has every mode.
        if *got == Answer::Failed(libc::EOPNOTSUPP) && mode & libc::FALLOC_FL_ZERO_RANGE != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if !open.writes() {
            return Err(libc::EBADF);
        }
        let end = at.checked_add(len).ok_or(libc::EFBIG)? as u64;
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
            self.file(node).clear(at as u64, len as u64);
        }
        if mode & libc::FALLOC_FL_KEEP_SIZE == 0 && end > self.file(node).size_bytes() {
            self.file(node).resize(end);
        }
        self.nodes[node].times.may_have_changed(window);
        Ok(Answer::Done(0))
    }

    fn copy(
        &mut self,
        from: (usize, u8, Place),
        to: (usize, u8, Place),
        len: usize,
        got: &Answer,
        window: ClockInterval,
    ) -> Result<Answer> {
        let (source, target) = (self.description(from.0, from.1)?, self.description(to.0, to.1)?);
        if !source.reads() || !target.writes() || target.flags & libc::O_APPEND != 0 {
            return Err(libc::EBADF);
        }
        let place = |place, open: &Description| if let Place::At(at) = place { at } else { open.offset };
        let (from_at, to_at) = (place(from.2, source), place(to.2, target));
        let (source, target) = (source.node, target.node);
        let data = self.file(source).read(from_at as u64, len);
        let overlaps = from_at < to_at + data.len() as i64 && to_at < from_at + data.len() as i64;
        if source == target && overlaps && !data.is_empty() {
            return Err(libc::EINVAL);
        }
        // Fewer than asked for are right, none at all are not.
        let count = match *got {
            Answer::Done(count) if count > 0 && count as usize <= data.len() => count as usize,
            _ => data.len(),
        };
        self.nodes[source].times.accessed();
        if count > 0 {
            self.file(target).write(to_at as u64, &data[..count]);
            self.nodes[target].times.changed(window);
        }
        for (who, slot, place) in [from, to] {
            if let Place::Current = place {
                self.description_mut(who, slot).offset += count as i64;
            }
        }
        Ok(Answer::Done(count as i64))
    }

    fn map(&mut self, who: usize, slot: u8, len: usize) -> Result<Answer> {
        self.maps.remove(&(who, slot));
        let open = self.description(who, slot)?;
        if !open.reads() || !open.writes() {
            return Err(libc::EACCES);
        }
        let node = open.node;
        self.nodes[node].times.accessed();
        self.maps.insert((who, slot), (node, len));
        Ok(Answer::Done(0))
    }

    fn mapped(&mut self, who: usize, slot: u8) -> Result<(usize, &Content)> {
        let (node, _) = *self.maps.get(&(who, slot)).ok_or(libc::EINVAL)?;
        self.nodes[node].times.accessed();
        Ok((node, self.file(node)))
    }
}
