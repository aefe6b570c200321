//! Which requests are operations on names: they are load of the metadata tier, and an emulated one is charged for them.
//!
//! The kernel asks for the attributes of a directory anew after each change in it. That question is none: a metadata server sends them with
//! its answer to the change (NFS: post-operation attributes), and a file system of the machine has them in memory.

use std::sync::atomic::{AtomicU64, Ordering};

use stripewise_fuse::Call;
use stripewise_store::emulate::Op;

/// Directories that are remembered as changed; of those that share a place the last.
const REMEMBERED: usize = 64;

/// Which requests the metadata tier serves.
#[derive(Debug)]
pub struct Charged {
    /// Directories that were changed here and not asked for since; 0 is none.
    changed: [AtomicU64; REMEMBERED],
}

impl Default for Charged {
    fn default() -> Self {
        Self { changed: [const { AtomicU64::new(0) }; REMEMBERED] }
    }
}

impl Charged {
    /// What `call` on `ino`, which is about to be served, is to the metadata tier, as [`on_names`] says. One or two atomic operations
    /// for a change in a directory and a question for attributes.
    pub fn of(&self, call: &Call<'_>, ino: u64) -> Option<Op> {
        match call {
            Call::Rename { to_parent, .. } => {
                [ino, *to_parent].into_iter().for_each(|directory| self.change(directory))
            }
            Call::Create { .. }
            | Call::MkNod { .. }
            | Call::MkDir { .. }
            | Call::SymLink { .. }
            | Call::Link { .. }
            | Call::Unlink { .. }
            | Call::RmDir { .. } => self.change(ino),
            Call::GetAttr if self.has_changed(ino) => return None,
            _ => {}
        }
        on_names(call)
    }

    fn change(&self, directory: u64) {
        self.changed[place(directory)].store(directory, Ordering::Relaxed);
    }

    /// Whether this is the first question since a change here.
    fn has_changed(&self, ino: u64) -> bool {
        let changed = &self.changed[place(ino)];
        changed.load(Ordering::Relaxed) == ino
            && changed.compare_exchange(ino, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

fn place(ino: u64) -> usize {
    (ino ^ (ino / REMEMBERED as u64)) as usize % REMEMBERED
}

/// What an operation on names is to the metadata tier: one that looks is a read, one that changes something a write. `None` for
/// requests on bytes, which are charged where the bytes are, and for those that end something.
fn on_names(call: &Call<'_>) -> Option<Op> {
    match call {
        Call::Lookup { .. }
        | Call::GetAttr
        | Call::Statx
        | Call::ReadLink
        | Call::Open { .. }
        | Call::OpenDir
        | Call::ReadDir { .. }
        | Call::ReadDirPlus { .. }
        | Call::GetXattr { .. }
        | Call::ListXattr { .. } => Some(Op::Read),
        Call::SetAttr(_)
        | Call::SymLink { .. }
        | Call::MkNod { .. }
        | Call::MkDir { .. }
        | Call::Unlink { .. }
        | Call::RmDir { .. }
        | Call::Rename { .. }
        | Call::Link { .. }
        | Call::Create { .. }
        | Call::TmpFile { .. }
        | Call::SetXattr { .. }
        | Call::RemoveXattr { .. } => Some(Op::Write),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn attributes_of_a_directory_come_with_the_answer_to_its_change() {
        let charged = Charged::default();
        let (name, other) = (OsStr::new("a"), 1 + REMEMBERED as u64 * REMEMBERED as u64);
        assert_eq!(charged.of(&Call::GetAttr, 7), Some(Op::Read));
        assert_eq!(charged.of(&Call::Unlink { name }, 7), Some(Op::Write));
        assert_eq!(charged.of(&Call::GetAttr, 8), Some(Op::Read), "of another");
        assert_eq!(charged.of(&Call::GetAttr, 7), None);
        assert_eq!(charged.of(&Call::GetAttr, 7), Some(Op::Read), "once");
        let renamed = Call::Rename { name, to_parent: 2, to_name: name, flags: 0 };
        assert_eq!(charged.of(&renamed, 1), Some(Op::Write));
        assert_eq!(charged.of(&Call::GetAttr, 2), None);
        assert_eq!(place(1), place(other));
        assert_eq!(charged.of(&Call::RmDir { name }, other), Some(Op::Write));
        assert_eq!(charged.of(&Call::GetAttr, 1), Some(Op::Read), "forgotten");
        assert_eq!(charged.of(&Call::Statx, other), Some(Op::Read), "a program's");
        assert_eq!(charged.of(&Call::GetAttr, other), None);
    }
}
