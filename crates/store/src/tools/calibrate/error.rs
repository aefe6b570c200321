//! Why a calibration came to nothing.

use rustix::io::Errno;
use std::path::PathBuf;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A system call on a server failed.
    #[error("server {server}: cannot {action} {}: {errno}", root.display())]
    Io {
        /// Name of the server.
        server: String,
        /// What was tried.
        action: &'static str,
        /// Its place.
        root: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The server is not there, or the queue of an emulated one cannot be used.
    #[error("server {server}: cannot open {}: {reason}", root.display())]
    Missing {
        /// Name of the server.
        server: String,
        /// Its place.
        root: PathBuf,
        /// Why.
        reason: String,
    },
    /// Too few requests in the time for a fit.
    #[error("server {server}: only {rounds} requests of each size in {budget_s} s; give it more time")]
    TooSlow {
        /// Name of the server.
        server: String,
        /// Requests of each size.
        rounds: usize,
        /// The time that there was.
        budget_s: f64,
    },
    /// The caller's `progress` asked to stop.
    #[error("calibration was stopped; no profile has changed")]
    Stopped,
}
