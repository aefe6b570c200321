//! The room of servers while files are moved one after the other: each is copied before its old bytes go.

use crate::backend::Server;
use crate::file::inode::Store;
use crate::os::error::{Error, Result};
use crate::os::room::Room;
use std::collections::{BTreeMap, HashMap};
use stripewise_layout::ServerId;

/// What a move would change of the space that servers have left, as `(server, bytes)`; a server can stand twice.
#[derive(Debug, Default)]
pub(crate) struct ChangeOfSpace {
    /// Written before anything goes. Of a file with holes in proportion to what it takes now.
    pub(crate) copied: Vec<(ServerId, u64)>,
    /// Given back afterwards.
    pub(crate) freed: Vec<(ServerId, u64)>,
    /// Bytes of the file that are copied, without its large holes.
    pub(crate) moved_bytes: u64,
    /// Why the move cannot come to its end: a datafile is not there, or its server is not.
    pub(crate) unreadable: Option<Error>,
}

impl ChangeOfSpace {
    /// The same of a move in that many steps as large as each other, each of which gives back before the next one writes.
    pub(crate) fn in_steps(self, steps: u64) -> Self {
        if steps < 2 {
            return self;
        }
        let mut of_server: BTreeMap<ServerId, (u64, u64)> = BTreeMap::new();
        self.copied.iter().for_each(|&(id, bytes)| of_server.entry(id).or_default().0 += bytes);
        self.freed.iter().for_each(|&(id, bytes)| of_server.entry(id).or_default().1 += bytes);
        let most = |(copied, freed): (u64, u64)| {
            // Behind the first step and behind the last copy.
            copied.div_ceil(steps).max(copied.saturating_sub(freed - freed / steps))
        };
        let copied = of_server.iter().map(|(&id, &both)| (id, most(both))).collect();
        let freed = of_server.iter().map(|(&id, &both)| (id, (most(both) + both.1).saturating_sub(both.0))).collect();
        Self { copied, freed, ..self }
    }
}

/// What is left of the servers' room by the moves so far.
pub(crate) struct RoomAhead<'a> {
    store: &'a Store,
    /// By device: what it had when it was asked, once, because others write there, too; and what is left of that.
    free: HashMap<u64, (u64, u64)>,
    /// What servers with a limit may still take.
    limits: HashMap<ServerId, u64>,
    /// Of servers that are not made yet.
    coming: HashMap<ServerId, Room>,
}

impl<'a> RoomAhead<'a> {
    /// Before the first move; a server of `limits` takes no more bytes than these.
    pub(crate) fn new(store: &'a Store, limits: HashMap<ServerId, u64>) -> Self {
        Self { store, free: HashMap::new(), limits, coming: HashMap::new() }
    }

    /// With a server that is not made yet, whose file system has that room.
    pub(crate) fn with_coming(mut self, id: ServerId, room: Room) -> Self {
        self.coming.insert(id, room);
        self
    }

    fn room(&self, id: ServerId) -> Result<Room> {
        self.coming.get(&id).map_or_else(|| self.store.room(id), |room| Ok(*room))
    }

    /// What a server can take now; `None` if it is not there or read-only.
    pub(crate) fn free_bytes(&self, id: ServerId) -> Option<u64> {
        let room = self.room(id).ok().filter(|room| !room.is_read_only)?;
        let free_bytes = self.free.get(&room.device).map_or(room.available_bytes, |(_, left)| *left);
        let limit_bytes = self.limits.get(&id).copied().unwrap_or(u64::MAX);
        Some(free_bytes.min(limit_bytes))
    }

    /// What these servers can take together of what leaves another one. Those on one file system share its room; on that of the other one
    /// each file gives back what the next one needs, so that their limits alone count.
    pub(crate) fn free_together(&self, servers: &[ServerId], leaving: ServerId) -> u64 {
        let own = self.room(leaving).map(|room| room.device).ok();
        let mut devices: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for &id in servers {
            let Some(room) = self.room(id).ok().filter(|room| !room.is_read_only) else { continue };
            let limit_bytes = self.limits.get(&id).copied().unwrap_or(u64::MAX);
            let free_bytes = if Some(room.device) == own { u64::MAX } else { room.available_bytes };
            let of_device = devices.entry(room.device).or_insert((free_bytes, 0));
            of_device.1 = of_device.1.saturating_add(limit_bytes);
        }
        devices.values().fold(0, |sum, &(free, limit)| sum.saturating_add(free.min(limit)))
    }

    /// The move of `file` comes next.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if it does not fit; a server of the new layout is missing or read-only, and then the move does not count.
    pub(crate) fn add(&mut self, file: &str, change: &ChangeOfSpace) -> Result<()> {
        let mut written = Vec::new();
        for &(id, bytes) in change.copied.iter().filter(|(_, bytes)| *bytes > 0) {
            let room = self.room(id)?;
            if room.is_read_only {
                return Err(self.store.plane().server(id)?.error("move a file there")(rustix::io::Errno::ROFS));
            }
            written.push((id, bytes, room));
        }
        let mut needed: HashMap<u64, u64> = HashMap::new();
        for (id, bytes, room) in written {
            let sum = needed.entry(room.device).or_default();
            *sum = sum.saturating_add(bytes);
            let (_, free_bytes) = *self.free.entry(room.device).or_insert((room.available_bytes, room.available_bytes));
            self.check(file, id, *sum, free_bytes)?;
            if let Some(&limit_bytes) = self.limits.get(&id) {
                self.check(file, id, bytes, limit_bytes)?;
                self.limits.insert(id, limit_bytes - bytes);
            }
        }
        for (device, bytes) in needed {
            self.free.entry(device).and_modify(|(_, free)| *free -= bytes);
        }
        for &(id, bytes) in &change.freed {
            self.limits.entry(id).and_modify(|limit| *limit = limit.saturating_add(bytes));
            // What goes from a server that is away, or that nothing is moved to, makes no room that is needed.
            if let Ok(room) = self.room(id) {
                let (_, free) = self.free.entry(room.device).or_insert((room.available_bytes, room.available_bytes));
                *free = free.saturating_add(bytes);
            }
        }
        Ok(())
    }

    fn check(&self, file: &str, id: ServerId, needed_bytes: u64, free_bytes: u64) -> Result<()> {
        if needed_bytes <= free_bytes {
            return Ok(());
        }
        let server = self.store.pool().server_name(id);
        Err(Error::NoRoom { file: file.to_owned(), server, needed_bytes, free_bytes })
    }

    /// Each server that is there, with the bytes that it had before the moves, and has after them.
    pub(crate) fn rooms(&self) -> Vec<(ServerId, u64, u64)> {
        let of_server = |server: &Server| {
            let room = self.store.room(server.id).ok()?;
            let (before, after) =
                self.free.get(&room.device).copied().unwrap_or((room.available_bytes, room.available_bytes));
            Some((server.id, before, after))
        };
        self.store.pool().servers.iter().filter_map(of_server).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_need_less_at_once_and_come_to_the_same() {
        let [keeps, leaves, takes] = [0, 1, 2].map(ServerId);
        let change = || ChangeOfSpace {
            copied: vec![(keeps, 600), (takes, 500), (takes, 500)],
            freed: vec![(keeps, 600), (leaves, 1000)],
            moved_bytes: 1600,
            unreadable: None,
        };
        let stepped = change().in_steps(4);
        assert_eq!(stepped.copied, [(keeps, 150), (leaves, 0), (takes, 1000)]);
        assert_eq!(stepped.freed, [(keeps, 150), (leaves, 1000), (takes, 0)]);
        assert_eq!((change().in_steps(1).copied, change().in_steps(1).freed), (change().copied, change().freed));
    }
}
