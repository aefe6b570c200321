//! The room of all servers together: whether moves fit.

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::room::Room;
use crate::store::Store;
use rustix::fd::AsFd as _;
use std::collections::HashMap;
use stripewise_layout::{Layout, ServerId};

impl Store {
    /// The room of a server; an error when it is not there.
    pub fn room(&self, id: ServerId) -> Result<Room> {
        let root = self.plane().server(id)?;
        Room::of(self.plane().current_directory(root)?).map_err(root.error("ask for the free space"))
    }

    /// Checks, before anything is moved, that these files fit where their new layouts put them, one after the other: each
    /// is copied before its old bytes go.
    ///
    /// # Errors
    /// [`Error::NoRoom`] with the first file that does not fit; a server of a new layout is missing or read-only.
    pub fn check_moves<'a>(&self, moves: impl IntoIterator<Item = (&'a str, &'a Inode, &'a Layout)>) -> Result<()> {
        let mut free: HashMap<u64, u64> = HashMap::new();
        for (file, inode, layout) in moves {
            let change = inode.change_of_space(layout)?;
            let mut needed: HashMap<u64, u64> = HashMap::new();
            for &(id, bytes) in change.copied.iter().filter(|(_, bytes)| *bytes > 0) {
                let room = self.room_of_any(id)?;
                if room.is_read_only {
                    return Err(self.plane().server(id)?.error("move a file there")(rustix::io::Errno::ROFS));
                }
                let sum = needed.entry(room.device).or_default();
                *sum = sum.saturating_add(bytes);
                let free_bytes = *free.entry(room.device).or_insert(room.available_bytes);
                if *sum > free_bytes {
                    let server = self.pool().server_name(id);
                    return Err(Error::NoRoom { file: file.to_owned(), server, needed_bytes: *sum, free_bytes });
                }
            }
            for (device, bytes) in needed {
                free.entry(device).and_modify(|free| *free -= bytes);
            }
            for (id, bytes) in change.freed {
                // What goes from a server that is away, or that nothing is moved to, makes no room that is needed.
                if let Ok(room) = self.room_of_any(id) {
                    let free = free.entry(room.device).or_insert(room.available_bytes);
                    *free = free.saturating_add(bytes);
                }
            }
        }
        Ok(())
    }

    /// The room of a server, or of the namespace, whose inodes are the metadata tier.
    fn room_of_any(&self, id: ServerId) -> Result<Room> {
        if id != ServerId::META {
            return self.room(id);
        }
        Room::of(self.tree().as_fd()).map_err(Error::io("ask for the free space of", &self.pool().namespace))
    }
}
