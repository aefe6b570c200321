//! Parts of the preload at which threads meet: what it knows of the program's descriptors ([`DescriptorTable`]), the files that
//! they share ([`Slots`]), and its own memory ([`Memory`]). A program that is linked with them keeps libc's functions, so that tests
//! can use them.
//!
//! No lock and no allocation on the way of a request: signal handlers come this way too.

mod memory;
mod slots;
mod sync;
mod table;

pub use memory::Memory;
pub use slots::{FileKey, Joined, Pin, PinnedVersion, Slots};
pub use table::{CountedFiles, DescriptorState, DescriptorTable, EntryTicket};
