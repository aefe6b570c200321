//! [`FileCounters`] and [`LustreLayout`]: what a log knows of a file beside single requests.

use stripewise_trace::Api;

/// Counters that Darshan kept for one file, of one rank or of all.
#[derive(Debug, Clone, PartialEq)]
pub struct FileCounters {
    /// The file.
    pub file: u32,
    /// The interface whose calls were counted.
    pub api: Api,
    /// The rank; `None`: reduced over all ranks.
    pub rank: Option<u32>,
    /// Name (`POSIX_READS`, `MPIIO_COLL_WRITES`, …) and value; counters that the log's version did not have are
    /// absent.
    pub integers: Vec<(&'static str, i64)>,
    /// Name (`POSIX_F_READ_TIME`, …) and value, in seconds but for the variances.
    pub floats: Vec<(&'static str, f64)>,
    /// Whether the log has rows of this file and interface; where it has none, rows were made from the counters.
    pub has_rows: bool,
}

impl FileCounters {
    /// The counter of this name. O(counters).
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.integers.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// The counter whose name is put together so; nothing is allocated. O(counters).
    pub(crate) fn integer_of(&self, prefix: &str, parts: [&str; 3]) -> Option<i64> {
        let named = |name: &str| {
            let rest = parts.iter().try_fold(name.strip_prefix(prefix)?, |rest, part| rest.strip_prefix(part))?;
            rest.is_empty().then_some(())
        };
        self.integers.iter().find(|(name, _)| named(name).is_some()).map(|(_, value)| *value)
    }

    /// Whether rows were made up from these counters, and count: MPI-IO's do where nothing below is known.
    pub fn is_made_up(&self) -> bool {
        let moved = |prefix| ["READS", "WRITES"].iter().any(|kind| self.integer_of(prefix, ["_", kind, ""]) > Some(0));
        !self.has_rows
            && match self.api {
                Api::Posix => moved("POSIX"),
                Api::Stdio => moved("STDIO"),
                Api::MpiIo | Api::Hdf5 | Api::PnetCdf => false,
            }
    }

    /// The counter of this name. O(counters).
    pub fn float(&self, name: &str) -> Option<f64> {
        self.floats.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }
}

/// The layout that Lustre gave a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LustreLayout {
    /// The file.
    pub file: u32,
    /// Its components in order of the log; one for files without progressive layout.
    pub components: Vec<LustreComponent>,
}

/// One component of a progressive file layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LustreComponent {
    /// First byte that it holds.
    pub start: u64,
    /// Byte after the last one; `None`: end of file.
    pub end: Option<u64>,
    /// Stripe size in bytes.
    pub stripe_bytes: u64,
    /// Number of stripes; 0 where the component is not instantiated.
    pub stripe_count: u64,
    /// Pattern as Lustre numbers it (0: raid0, 2: mdt, 4: overstriped, 8: foreign); `None` in logs before 3.4.
    pub pattern: Option<u64>,
    /// Mirror; `None` in logs before 3.4.
    pub mirror: Option<u64>,
    /// Pool, or empty.
    pub pool: String,
    /// Object storage targets in order of stripes; empty where the component is not instantiated.
    pub osts: Vec<u64>,
}
