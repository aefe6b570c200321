//! What an emulated server stands for.

use stripewise_model::{Head, OpProfile, Profile};

use super::EmulateError;
use super::disk::DiskConfig;

/// The device that an emulated server stands for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmulateConfig {
    /// Startup and transfer times of reads and writes; the network's time per byte is added to both.
    pub profile: Profile,
    /// All times are multiplied by it: 1.0 is real time, 0.1 ten times faster.
    pub dilation: f64,
    /// Seed of the startup times that are drawn.
    pub seed: u64,
    /// A disk whose startups depend on where its head is; `None`: they are drawn.
    pub disk: Option<DiskConfig>,
    /// Requests that it serves side by side, first come, first served; up to [`MOST_AT_ONCE`].
    pub at_once: u32,
}

/// Most requests that an emulated server can serve side by side.
pub const MOST_AT_ONCE: u32 = 64;

pub use stripewise_model::presets::DEVICES as PRESETS;

/// The preset `name` of the model, in real time with seed 1; `None` when there is none of that name ([`PRESETS`] lists
/// them).
pub fn preset(name: &str) -> Option<EmulateConfig> {
    let config = |profile| EmulateConfig { profile, dilation: 1.0, seed: 1, disk: None, at_once: 1 };
    stripewise_model::presets::device(name).map(config)
}

impl EmulateConfig {
    /// The profile as a program sees it: times dilated. A planner may use it where nothing was calibrated.
    pub fn effective_profile(&self) -> Profile {
        let scale = |o: &OpProfile| OpProfile {
            startup_min_s: o.startup_min_s * self.dilation,
            startup_max_s: o.startup_max_s * self.dilation,
            transfer_s_per_byte: o.transfer_s_per_byte * self.dilation,
            head: o.head.map(|head| Head { sequential_startup_s: head.sequential_startup_s * self.dilation, ..head }),
        };
        Profile {
            read: scale(&self.profile.read),
            write: scale(&self.profile.write),
            network_s_per_byte: self.profile.network_s_per_byte * self.dilation,
        }
    }

    /// The disk as a program sees it, if it is one: times dilated.
    pub fn effective_disk(&self) -> Option<DiskConfig> {
        self.disk.map(|disk| disk.dilated(self.dilation))
    }

    /// Checks that every number is one that a device can have.
    ///
    /// # Errors
    /// [`EmulateError::Config`] names the first that is not.
    pub fn validate(&self) -> Result<(), EmulateError> {
        let check = |name, value: f64, good: bool, expected| {
            if good { Ok(()) } else { Err(EmulateError::Config { name, value, expected }) }
        };
        // A day is far above any device; the bound keeps all later arithmetic in range.
        let time = |name, value: f64| check(name, value, (0.0..=86_400.0).contains(&value), "0 to one day, in seconds");
        for (name, op) in [("read", &self.profile.read), ("write", &self.profile.write)] {
            let (min, max, transfer, sequential) = match name {
                "read" => (
                    "least startup of reads",
                    "greatest startup of reads",
                    "transfer time per byte of reads",
                    "sequential startup of reads",
                ),
                _ => (
                    "least startup of writes",
                    "greatest startup of writes",
                    "transfer time per byte of writes",
                    "sequential startup of writes",
                ),
            };
            time(min, op.startup_min_s)?;
            time(max, op.startup_max_s)?;
            check(max, op.startup_max_s, op.startup_max_s >= op.startup_min_s, "at least the least startup")?;
            time(transfer, op.transfer_s_per_byte)?;
            time(sequential, op.adjacent_startup_s(0.0))?;
        }
        time("network time per byte", self.profile.network_s_per_byte)?;
        if let Some(disk) = &self.disk {
            disk.validate([&self.profile.read, &self.profile.write])?;
        }
        let at_once = f64::from(self.at_once);
        check("at_once", at_once, (1..=MOST_AT_ONCE).contains(&self.at_once), "a number of requests from 1 to 64")?;
        check("at_once", at_once, self.at_once == 1 || self.disk.is_none(), "1 for a disk, which has one head")?;
        check(
            "at_once",
            at_once,
            self.at_once == 1 || !self.profile.has_head(),
            "1 for a server with a sequential_startup",
        )?;
        let dilation = self.dilation;
        check("dilation", dilation, (1e-6..=1e6).contains(&dilation), "a factor between 0.000001 and 1000000")
    }
}
