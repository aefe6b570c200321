//! Emulated servers: real bytes in a real directory, charged the service time of the device that they stand for.
//!
//! Every emulated server has one queue, a page in the file `queue` of its directory that all processes map. A
//! sub-request *reserves* its service at the tail of the queue ([`Device::reserve`]), the caller does the real I/O,
//! sleeps until the latest deadline of the request's sub-requests ([`sleep_until`]), and *completes* each of them
//! ([`Device::complete`]), which keeps the statistics and the emulation error. A process that dies between the two has
//! used the device for the time that it reserved, as on a real device, and leaves nothing locked.
//!
//! A *disk* ([`DiskConfig`]) has a head that moves, and a queue that decides what it serves next: there a sub-request *enters*
//! ([`Device::enter`]), and its caller waits for the decision ([`Device::settle`]) before it sleeps.
//!
//! Nothing in the page is trusted: any content gives some schedule, never a panic and no wait above
//! [`MAX_BACKLOG_NS`].
//!
//! The code on the path of a request makes system calls directly, takes no lock (on a disk, a lease that
//! ends by itself) and allocates nothing, because it runs inside the preload library.

mod config;
mod disk;
mod disk_page;
mod disk_queue;
mod draws;
mod queue;
mod sleep;
mod stats;

pub use config::{EmulateConfig, MOST_AT_ONCE, PRESETS, preset};
pub use disk::{ANTICIPATION, DISK_BYTES, DiskConfig, FILE_DISTANCE_BYTES};
pub use disk_page::DiskTicket;
pub use disk_queue::{DiskRequest, datafile_key};
pub use queue::{Device, MAX_BACKLOG_NS, NOWHERE, QUEUE_FILE, QueueTicket};
pub use sleep::{now_ns, sleep_until};
pub use stats::{EmulationError, LogHistogram, MAX_MEDIAN_ERROR, OpStatistics, ServerStatistics, Verdict};
pub use stripewise_model::{Head, Op, OpProfile, Profile};

use rustix::io::Errno;

/// Why an emulated server cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EmulateError {
    /// A number that no device has.
    #[error("emulated server: {name} is {value}; it must be {expected}")]
    Config {
        /// Key of the configuration.
        name: &'static str,
        /// What it is.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// The queue page cannot be opened, made or mapped.
    #[error(
        "emulated server: cannot {action} the file '{QUEUE_FILE}' in the server's directory: {errno}; the directory must \
         be writable and have 48 KiB free"
    )]
    Queue {
        /// What failed.
        action: &'static str,
        /// With which error.
        errno: Errno,
    },
}

impl EmulateError {
    /// The errno that a program should see.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Config { .. } => Errno::INVAL,
            Self::Queue { errno, .. } => *errno,
        }
    }
}
