//! Processes, their descriptor tables and the open files behind them, as the kernel keeps them.

use std::collections::{BTreeMap, HashMap};

/// An open file: shared by copies of a descriptor, whether by `dup` or by `fork`.
pub(super) struct OpenDescription {
    /// Number of the file; `None` for what is no file (pipe, socket).
    pub file: Option<u32>,
    /// Its path with escapes, as `-y` last showed it.
    pub shown: Box<[u8]>,
    /// Where the next `read` or `write` is; `None` if not known.
    pub position: Option<u64>,
    /// `O_APPEND`.
    pub append: bool,
}

#[derive(Clone, Copy)]
pub(super) struct DescriptorSlot {
    pub open: usize,
    pub close_on_exec: bool,
}

type Table = BTreeMap<u32, DescriptorSlot>;

/// One thread of the log.
pub(super) struct TracedThread {
    /// Its process: itself, or the one that made it a thread.
    pub pid: u32,
    /// Which table of descriptors it uses, shared with those it was cloned with `CLONE_FILES`.
    pub table: usize,
    pub program: u32,
    /// The part of its call before `<unfinished ...>`, and when that was; empty when there is none.
    pub pending: Vec<u8>,
    pub pending_ns: u64,
}

/// Most descriptors in all tables together: what a log could make grow faster than itself, by forks.
const MAX_SLOTS: usize = 2_000_000;

#[derive(Default)]
pub(super) struct KernelTables {
    tables: Vec<(u32, Table)>,
    free_tables: Vec<usize>,
    open: Vec<(u32, OpenDescription)>,
    free_open: Vec<usize>,
    slots: usize,
    /// Whether a fork's table was too large to be copied.
    pub overflow: bool,
    /// Known sizes of files.
    pub sizes: HashMap<u32, u64>,
    /// What a file was renamed to.
    pub renamed: HashMap<u32, u32>,
}

impl KernelTables {
    pub fn new_table(&mut self) -> usize {
        self.insert_table(Table::new())
    }

    fn insert_table(&mut self, table: Table) -> usize {
        self.slots += table.len();
        if let Some(index) = self.free_tables.pop() {
            self.tables[index] = (1, table);
            return index;
        }
        self.tables.push((1, table));
        self.tables.len() - 1
    }

    /// One more thread uses the table.
    pub fn share_table(&mut self, index: usize) -> usize {
        self.tables[index].0 += 1;
        index
    }

    /// A copy for a child. O(descriptors).
    pub fn copy_table(&mut self, index: usize) -> usize {
        if self.slots + self.tables[index].1.len() > MAX_SLOTS {
            self.overflow = true;
            return self.new_table();
        }
        let copy = self.tables[index].1.clone();
        for slot in copy.values() {
            self.open[slot.open].0 += 1;
        }
        self.insert_table(copy)
    }

    /// One thread less uses it; the last one closes its descriptors.
    pub fn drop_table(&mut self, index: usize) {
        let users = &mut self.tables[index].0;
        *users = users.saturating_sub(1);
        if *users > 0 {
            return;
        }
        let table = std::mem::take(&mut self.tables[index].1);
        self.slots -= table.len();
        for slot in table.values() {
            self.release(slot.open);
        }
        self.free_tables.push(index);
    }

    /// What `execve` does: the table becomes this thread's own, and descriptors close that are to.
    pub fn exec(&mut self, index: usize) -> usize {
        let own = if self.tables[index].0 > 1 {
            let own = self.copy_table(index);
            self.drop_table(index);
            own
        } else {
            index
        };
        let closing: Vec<u32> =
            self.tables[own].1.iter().filter(|(_, slot)| slot.close_on_exec).map(|(&fd, _)| fd).collect();
        for fd in closing {
            self.close(own, fd);
        }
        own
    }

    pub fn get(&self, table: usize, fd: u32) -> Option<&OpenDescription> {
        self.tables[table].1.get(&fd).map(|slot| &self.open[slot.open].1)
    }

    pub fn get_mut(&mut self, table: usize, fd: u32) -> Option<&mut OpenDescription> {
        let slot = self.tables[table].1.get(&fd)?;
        Some(&mut self.open[slot.open].1)
    }

    pub fn open(&mut self, table: usize, fd: u32, file: OpenDescription, close_on_exec: bool) {
        self.close(table, fd);
        let open = if let Some(index) = self.free_open.pop() {
            self.open[index] = (1, file);
            index
        } else {
            self.open.push((1, file));
            self.open.len() - 1
        };
        self.slots += 1;
        self.tables[table].1.insert(fd, DescriptorSlot { open, close_on_exec });
    }

    /// What `dup` and its kin do. `false` where `from` is not known.
    pub fn duplicate(&mut self, table: usize, from: u32, to: u32, close_on_exec: bool) -> bool {
        let Some(&slot) = self.tables[table].1.get(&from) else { return false };
        if from == to {
            return true;
        }
        self.open[slot.open].0 += 1;
        self.close(table, to);
        self.slots += 1;
        self.tables[table].1.insert(to, DescriptorSlot { open: slot.open, close_on_exec });
        true
    }

    pub fn close(&mut self, table: usize, fd: u32) {
        if let Some(slot) = self.tables[table].1.remove(&fd) {
            self.slots -= 1;
            self.release(slot.open);
        }
    }

    /// `close_range`, or its flag to close at `execve` only.
    pub fn close_range(&mut self, table: usize, first: u32, last: u32, at_exec: bool) {
        if first > last {
            return;
        }
        let affected: Vec<u32> = self.tables[table].1.range(first..=last).map(|(&fd, _)| fd).collect();
        for fd in affected {
            if at_exec {
                self.set_close_on_exec(table, fd, true);
            } else {
                self.close(table, fd);
            }
        }
    }

    pub fn set_close_on_exec(&mut self, table: usize, fd: u32, value: bool) {
        if let Some(slot) = self.tables[table].1.get_mut(&fd) {
            slot.close_on_exec = value;
        }
    }

    fn release(&mut self, open: usize) {
        let (users, file) = &mut self.open[open];
        *users -= 1;
        if *users == 0 {
            file.shown = Box::default();
            self.free_open.push(open);
        }
    }
}
