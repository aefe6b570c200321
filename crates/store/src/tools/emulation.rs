//! The counters of a pool's emulated servers at one moment.

use crate::backend::emulate::{ServerStatistics, Verdict};
use crate::os::error::Result;
use crate::pool::pool_file::Pool;

/// The counters of a pool's emulated servers at one moment.
#[derive(Debug, Clone)]
pub struct EmulationSnapshot {
    /// Each server's name and what it did since its queue was made.
    pub servers: Vec<(String, ServerStatistics)>,
}

impl EmulationSnapshot {
    /// The counters now; zeros for a server that served nothing yet, or that is missing: an operation that needs it gets the
    /// error that names it.
    ///
    /// # Errors
    /// As [`Pool::emulation_statistics`].
    pub fn of(pool: &Pool) -> Result<Self> {
        Ok(Self { servers: pool.emulation_statistics()? })
    }

    /// What each server did since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let since = |(name, now): &(String, ServerStatistics)| {
            let before = earlier.servers.iter().find(|(other, _)| other == name);
            (name.clone(), before.map_or_else(|| now.clone(), |(_, before)| now.since(before)))
        };
        Self { servers: self.servers.iter().map(since).collect() }
    }

    /// Whether the servers kept their times.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.servers.iter().map(|(_, statistics)| statistics))
    }
}
