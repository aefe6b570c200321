//! The table of descriptors: what this process knows of each, one atomic word.
//!
//! A descriptor without an entry is nothing to us. An entry that outlives its descriptor would send bytes to the wrong
//! file, so everything that closes or replaces a descriptor clears its entry first ([`DescriptorTable::forget`]), and everything that
//! returns one sets or clears its entry. What is learned of a descriptor counts only if no thread closed or replaced it
//! meanwhile ([`DescriptorTable::begin`], [`DescriptorTable::finish`]).
//!
//! A descriptor that comes while its number still has an entry was closed where this library did not see it: by a
//! system call instruction of the program's own, or by io_uring. Then other entries may be as wrong, and the mount
//! serves this process alone from then on.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::ffi::c_int;

/// The files that entries stand for, each in a slot that counts its descriptors.
pub trait CountedFiles {
    /// Counts one more descriptor for a slot that has one; `false` when it has none (any more).
    fn acquire(&self, slot: u16) -> bool;

    /// Counts one descriptor less.
    fn release(&self, slot: u16);

    /// Numbers no longer say which file is meant: the mount alone serves this process from now on.
    fn give_up(&self);
}

/// The entries of the descriptors below `N`. Those from there on are left to the mount and not recorded.
pub struct DescriptorTable<F, const N: usize> {
    words: [AtomicU64; N],
    /// Tickets that were given.
    tickets: AtomicU64,
    files: F,
}

/// What is known of a descriptor. Zero is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorState(u64);

impl DescriptorState {
    /// Nothing is known.
    pub const NONE: DescriptorState = DescriptorState(0);
    const KNOWN: u64 = 1;
    const READ: u64 = 1 << 1;
    const WRITE: u64 = 1 << 2;
    const APPEND: u64 = 1 << 3;
    const SLOT_SHIFT: u32 = 8;
    const SLOT_MASK: u64 = 0xffff;
    const FILE_SHIFT: u32 = 32;

    /// An entry from what `open` (or `F_GETFL`) says, the slot of its placed file and its file in the trace (0: not
    /// recorded).
    pub fn new(open_flags: c_int, slot: Option<u16>, file: u32) -> Self {
        let access = match open_flags & libc::O_ACCMODE {
            libc::O_RDONLY => Self::READ,
            libc::O_WRONLY => Self::WRITE,
            libc::O_RDWR => Self::READ | Self::WRITE,
            _ => 0,
        };
        // The mount makes each write of such a file durable.
        let access = if open_flags & libc::O_DSYNC != 0 { access & !Self::WRITE } else { access };
        let append = if open_flags & libc::O_APPEND != 0 { Self::APPEND } else { 0 };
        // A slot number is below 2^16 - 1, so adding one stays in its field.
        let slot = slot.map_or(0, |slot| u64::from(slot) + 1) << Self::SLOT_SHIFT;
        Self(Self::KNOWN | access | append | slot | u64::from(file) << Self::FILE_SHIFT)
    }

    /// Whether anything is known.
    #[inline]
    pub fn is_known(self) -> bool {
        self.0 != 0
    }

    /// What a word says: that of a descriptor which is being entered is nothing yet.
    #[inline]
    fn of(word: u64) -> Self {
        if word & Self::KNOWN == 0 { Self::NONE } else { Self(word) }
    }

    /// Whether it reads.
    #[inline]
    pub fn can_read(self) -> bool {
        self.0 & Self::READ != 0
    }

    /// Whether it writes past the mount.
    #[inline]
    pub fn can_write(self) -> bool {
        self.0 & Self::WRITE != 0
    }

    /// Whether it appends.
    #[inline]
    pub fn appends(self) -> bool {
        self.0 & Self::APPEND != 0
    }

    /// Slot of its placed file.
    #[inline]
    pub fn slot(self) -> Option<u16> {
        ((self.0 >> Self::SLOT_SHIFT & Self::SLOT_MASK) as u16).checked_sub(1)
    }

    /// Its file in the trace; 0 when it is not recorded.
    #[inline]
    pub fn file(self) -> u32 {
        (self.0 >> Self::FILE_SHIFT) as u32
    }

    /// The same with another file in the trace.
    pub fn with_file(self, file: u32) -> Self {
        Self(self.0 & 0xffff_ffff | u64::from(file) << Self::FILE_SHIFT)
    }

    fn without_slot(self) -> Self {
        Self(self.0 & !(Self::SLOT_MASK << Self::SLOT_SHIFT))
    }
}

/// A descriptor that is being entered: no other has this number.
#[derive(Debug, Clone, Copy)]
pub struct EntryTicket(u64);

impl<F: CountedFiles, const N: usize> DescriptorTable<F, N> {
    /// Nothing is known of any descriptor.
    pub const fn new(files: F) -> Self {
        Self { words: [const { AtomicU64::new(0) }; N], tickets: AtomicU64::new(0), files }
    }

    /// The files that entries stand for.
    pub fn files(&self) -> &F {
        &self.files
    }

    #[inline]
    fn word(&self, fd: c_int) -> Option<&AtomicU64> {
        self.words.get(fd as u32 as usize)
    }

    /// The entry of `fd`. One bound check and one load.
    #[inline]
    pub fn get(&self, fd: c_int) -> DescriptorState {
        self.word(fd).map_or(DescriptorState::NONE, |word| DescriptorState::of(word.load(Ordering::Acquire)))
    }

    /// Begins to enter `fd`, which has just come.
    pub fn begin(&self, fd: c_int) -> EntryTicket {
        // The lowest bit is that of a known entry.
        let ticket = (self.tickets.fetch_add(1, Ordering::Relaxed) + 1) << 1;
        if let Some(word) = self.word(fd) {
            self.came(DescriptorState::of(word.swap(ticket, Ordering::AcqRel)));
        }
        EntryTicket(ticket)
    }

    /// Sets the entry of `fd`, unless it was closed or replaced since its ticket. The entry's slot must have been acquired
    /// for it; it is released with the entry.
    pub fn finish(&self, fd: c_int, ticket: EntryTicket, entry: DescriptorState) {
        let set = |word: &AtomicU64| {
            word.compare_exchange(ticket.0, entry.0, Ordering::AcqRel, Ordering::Acquire).map_err(|_| ())
        };
        if self.word(fd).ok_or(()).and_then(set).is_err() {
            self.release(entry);
        }
    }

    /// Clears the entry of `fd`, which has just come and is nothing to us.
    #[inline]
    pub fn clear(&self, fd: c_int) {
        if let Some(word) = self.word(fd)
            && word.load(Ordering::Acquire) != 0
        {
            self.came(DescriptorState::of(word.swap(0, Ordering::AcqRel)));
        }
    }

    /// A number had this entry when a descriptor came with it.
    fn came(&self, entry: DescriptorState) {
        if entry.is_known() {
            self.release(entry);
            self.give_up();
        }
    }

    /// The mount serves everything from now on, in this process: parts of it have descriptor tables of their own, so a
    /// number no longer says which file is meant.
    pub fn give_up(&self) {
        self.files.give_up();
        self.forget_all();
    }

    /// Sets another file of the trace, unless the entry changed meanwhile.
    pub fn set_file(&self, fd: c_int, entry: DescriptorState, file: u32) {
        if let Some(word) = self.word(fd) {
            let _ = word.compare_exchange(entry.0, entry.with_file(file).0, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Clears the entry of `fd`, before the descriptor is closed or replaced. For one without an entry a load and a
    /// comparison.
    #[inline]
    pub fn forget(&self, fd: c_int) {
        if let Some(word) = self.word(fd)
            && word.load(Ordering::Acquire) != 0
        {
            self.release(DescriptorState::of(word.swap(0, Ordering::AcqRel)));
        }
    }

    /// Clears the entries of the descriptors from `first` to `last`.
    pub fn forget_range(&self, first: u32, last: u32) {
        let end = (last as usize).saturating_add(1).min(N);
        for fd in first as usize..end {
            self.forget(fd as c_int);
        }
    }

    /// Clears every entry: from now on all goes to the mount.
    pub fn forget_all(&self) {
        self.forget_range(0, u32::MAX);
    }

    /// `to` has just come as a copy of `from`, which had the entry `before` then: both are the same open file from now on.
    /// If `from` changed meanwhile, its file is not known, and `to` gets no entry.
    pub fn copy(&self, from: c_int, before: DescriptorState, to: c_int) {
        if !before.is_known() {
            return self.clear(to);
        }
        let ticket = self.begin(to);
        let entry = match before.slot() {
            Some(slot) if !self.files.acquire(slot) => before.without_slot(),
            _ => before,
        };
        match self.get(from) == before {
            true => self.finish(to, ticket, entry),
            false => {
                self.release(entry);
                self.finish(to, ticket, DescriptorState::NONE);
            }
        }
    }

    /// Descriptors that have an entry, with it.
    pub fn known(&self) -> impl Iterator<Item = (c_int, DescriptorState)> {
        (0..N as c_int).map(|fd| (fd, self.get(fd))).filter(|(_, entry)| entry.is_known())
    }

    fn release(&self, entry: DescriptorState) {
        if let Some(slot) = entry.slot() {
            self.files.release(slot);
        }
    }
}
