//! What the preload knows of the program's descriptors ([`DescriptorTable`]), and the files that they share ([`Slots`]).
//!
//! No lock and no allocation on the way of a request: signal handlers come this way too.

mod slots;
mod sync;
mod table;

pub use slots::{FileKey, Joined, Pin, PinnedVersion, Slots};
pub use table::{CountedFiles, DescriptorState, DescriptorTable, EntryTicket};
