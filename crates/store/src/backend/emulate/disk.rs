//! A disk: what an emulated server can have beside a profile.

use stripewise_model::{OpProfile, Queue, SeekCurve};

use super::EmulateError;

/// Size of a disk in bytes where none is given.
pub const DISK_BYTES: u64 = 1_000_000_000_000;
/// Bytes from the beginning of one datafile to that of the next where nothing is given: 1 GiB.
pub const FILE_DISTANCE_BYTES: u64 = 1 << 30;
/// Longest wait of an anticipatory queue in seconds, and what it calls close in bytes: Linux's, as in the simulator.
pub const ANTICIPATION: (f64, u64) = (6.7e-3, 1 << 20);

/// A disk with one head: startups depend on how far it moves ([`SeekCurve`]), and a queue decides what is served next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskConfig {
    /// Which sub-request is served next.
    pub queue: Queue,
    /// Bytes that a full stroke passes.
    pub size_bytes: u64,
    /// Bytes from the beginning of a datafile on the disk to that of the next one that is used for the first time.
    pub file_distance_bytes: u64,
    /// Seconds of a turn; `None`: half of the profile's startups, as [`SeekCurve::within`] has it.
    pub rotation_s: Option<f64>,
}

impl DiskConfig {
    /// The startups of an operation with this profile: from the least, for the next track, to the greatest, for a full stroke
    /// with a whole turn. O(1).
    pub fn curve(&self, op: &OpProfile) -> SeekCurve {
        let within = SeekCurve::within(op, self.size_bytes);
        let Some(rotation_s) = self.rotation_s else { return within };
        SeekCurve { rotation_s, full_stroke_s: (op.startup_max_s - rotation_s).max(op.startup_min_s), ..within }
    }

    /// The same disk with all times multiplied by `dilation`.
    pub fn dilated(&self, dilation: f64) -> Self {
        let queue = match self.queue {
            Queue::Anticipatory { wait_s, near_bytes } => Queue::Anticipatory { wait_s: wait_s * dilation, near_bytes },
            other => other,
        };
        Self { queue, rotation_s: self.rotation_s.map(|turn_s| turn_s * dilation), ..*self }
    }

    /// Checks that every number is one that a disk can have.
    ///
    /// # Errors
    /// [`EmulateError::Config`] names the first that is not.
    pub fn validate(&self, ops: [&OpProfile; 2]) -> Result<(), EmulateError> {
        let check = |name, value: f64, good: bool, expected| {
            if good { Ok(()) } else { Err(EmulateError::Config { name, value, expected }) }
        };
        let size = self.size_bytes as f64;
        check("size of the disk", size, (1 << 20..=1 << 60).contains(&self.size_bytes), "1 MiB to 1 EiB, in bytes")?;
        let distance = self.file_distance_bytes;
        check("distance between files", distance as f64, distance <= self.size_bytes, "at most the disk's size")?;
        if let Some(turn_s) = self.rotation_s {
            let most_s = ops.iter().map(|op| op.startup_max_s - op.startup_min_s).fold(f64::INFINITY, f64::min);
            let expected = "0 to the difference of least and greatest startup, in seconds";
            check("rotation", turn_s, (0.0..=most_s).contains(&turn_s), expected)?;
        }
        if let Queue::Anticipatory { wait_s, .. } = self.queue {
            check("wait of the queue", wait_s, (0.0..=60.0).contains(&wait_s), "0 to 60 seconds")?;
        }
        Ok(())
    }
}
