//! What programs have written to a file, and what is not on its servers yet.

use crate::os::budget::BudgetShare;
use crate::os::first_process::FirstProcess;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sync::{Mutex, MutexGuard, guard};
use rustix::fs::Timespec;
use rustix::time::{ClockId, clock_gettime};
use std::io::IoSlice;
use std::sync::TryLockError;
use std::time::Instant;
use stripewise_control::Sender;

/// The bytes of one file that this process keeps back: one piece without a gap.
#[derive(Debug, Default)]
pub(crate) struct GatheredWrites {
    has_bytes: AtomicBool,
    /// The process whose bytes they are.
    process: FirstProcess,
    piece: Mutex<GatheredPiece>,
}

/// The piece. Who has it can change it.
#[derive(Debug, Default)]
pub(crate) struct GatheredPiece {
    /// Where the bytes go.
    pub(crate) offset: u64,
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// Byte of the file up to which it is gathered: there stripes end.
    pub(crate) until: u64,
    /// Who wrote the first of them, and when; `None` while there are none.
    pub(crate) first: Option<FirstWrite>,
    /// The timer has work for this file.
    pub(crate) is_timed: bool,
    /// When the last of them was written, by the clock that file systems take their times from.
    pub(crate) changed: Option<Timespec>,
    /// Bytes that were kept back were given up: nothing is kept back any more.
    pub(crate) has_failed: bool,
    /// Memory that it may take.
    pub(crate) room: Option<BudgetShare>,
}

/// The write that a piece began with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstWrite {
    pub(crate) sender: Sender,
    pub(crate) at: Instant,
}

impl GatheredWrites {
    /// Whether there are bytes. One load.
    #[inline]
    pub(crate) fn has_bytes(&self) -> bool {
        self.has_bytes.load(Ordering::Acquire)
    }

    /// Whether this process has gathered. One load.
    pub(crate) fn was_own(&self) -> bool {
        self.process.was_this()
    }

    /// Whether this process may have the piece; the first that asks may.
    pub(crate) fn is_own(&self) -> bool {
        self.process.is_this()
    }

    /// Waits for the piece. Only where it [is this process's own](GatheredWrites::is_own).
    pub(crate) fn lock(&self) -> MutexGuard<'_, GatheredPiece> {
        guard(&self.piece)
    }

    /// The piece, if no thread has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, GatheredPiece>> {
        match self.piece.try_lock() {
            Ok(piece) => Some(piece),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// After a change of the piece that `piece` is, before others get it.
    pub(crate) fn note(&self, piece: &GatheredPiece) {
        self.has_bytes.store(!piece.bytes.is_empty(), Ordering::Release);
    }
}

impl GatheredPiece {
    /// The byte of the file behind it.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Adds bytes that are written now at its end. Copies them.
    pub(crate) fn push(&mut self, bufs: &[IoSlice<'_>]) {
        bufs.iter().for_each(|buf| self.bytes.extend_from_slice(buf));
        self.changed = Some(clock_gettime(ClockId::RealtimeCoarse));
    }

    /// Lets go of the first `count` bytes.
    pub(crate) fn let_go_of(&mut self, count: usize) {
        self.bytes.drain(..count);
        self.offset += count as u64;
        if self.bytes.is_empty() {
            self.first = None;
        }
    }

    /// Lets go of the bytes from byte `size_bytes` of the file on; whether there were any.
    pub(crate) fn cut(&mut self, size_bytes: u64) -> bool {
        let left = size_bytes.saturating_sub(self.offset).min(self.bytes.len() as u64) as usize;
        let is_cut = left < self.bytes.len();
        self.bytes.truncate(left);
        self.let_go_of(0);
        is_cut
    }

    /// Gives the memory back, where nothing is kept back.
    pub(crate) fn rest(&mut self) {
        if self.bytes.is_empty() {
            (self.bytes, self.room) = (Vec::new(), None);
        }
    }
}
