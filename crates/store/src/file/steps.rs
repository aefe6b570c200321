//! How a move goes on beside programs: step by step, each short, with rests in between.

use std::time::Duration;

/// What a move is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Go on.
    On,
    /// Copy nothing for a moment, and ask again.
    Rest,
    /// End; the file stays as it was.
    Stop,
}

impl From<bool> for Then {
    /// Whether to go on.
    fn from(goes_on: bool) -> Self {
        if goes_on { Self::On } else { Self::Stop }
    }
}

/// Between two questions of a move that rests, and so how long a writer may wait for it then. Threads of a schedule share one
/// thread of the system, which must not sleep.
pub(crate) const REST: Duration = Duration::from_millis(if cfg!(feature = "shuttle") { 0 } else { 10 });
/// Bytes that are copied at a time where none is waited for: enough to keep every server of a wide round busy.
const MOST_BYTES: u64 = 16 << 20;
/// The least of a step for each server that has a part in it. On a disk that programs keep busy most of a step's time is the wait for
/// its turn, and seeks: less would not be done much sooner.
const LEAST_BYTES: u64 = 512 << 10;
/// A step of a move that gives way is halved when it takes longer than this, and doubled when it takes less than half of it.
const STEP: Duration = Duration::from_millis(24);

/// How many bytes a move copies at a time.
#[derive(Debug)]
pub(crate) struct Steps {
    gives_way: bool,
    least_bytes: u64,
    bytes: u64,
}

impl Steps {
    /// Of a move whose steps that many `servers` share.
    pub(crate) fn new(gives_way: bool, servers: usize) -> Self {
        let least_bytes = (LEAST_BYTES * servers as u64).min(MOST_BYTES / 4);
        Self { gives_way, least_bytes, bytes: if gives_way { least_bytes } else { MOST_BYTES } }
    }

    /// Of the next step.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes are copied, at most, before they are synced: of a move that gives way few, so that no step waits for long.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        if self.gives_way { MOST_BYTES } else { u64::MAX }
    }

    /// Fits the next step to the time that this one took.
    pub(crate) fn took(&mut self, time: Duration) {
        if self.gives_way && time > STEP {
            self.bytes = (self.bytes / 2).max(self.least_bytes);
        } else if self.gives_way && time < STEP / 2 {
            self.bytes = (self.bytes * 2).min(MOST_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_fit_the_servers_where_the_move_gives_way() {
        let mut steps = Steps::new(true, 1);
        assert_eq!(steps.bytes(), LEAST_BYTES);
        (0..20).for_each(|_| steps.took(STEP * 3));
        assert_eq!(steps.bytes(), LEAST_BYTES);
        (0..20).for_each(|_| steps.took(STEP / 3));
        assert_eq!(steps.bytes(), MOST_BYTES);
        steps.took(STEP * 2 / 3);
        assert_eq!(steps.bytes(), MOST_BYTES, "neither too long nor too short");
        let mut wide = Steps::new(true, 4);
        wide.took(STEP * 3);
        assert_eq!((wide.bytes(), Steps::new(true, 64).bytes()), (4 * LEAST_BYTES, MOST_BYTES / 4));
        let mut alone = Steps::new(false, 1);
        alone.took(STEP * 3);
        assert_eq!((alone.bytes(), alone.unsynced_bytes()), (MOST_BYTES, u64::MAX));
    }
}
