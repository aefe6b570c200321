//! The five factors of Chen et al. (slide "I/O Signature: Pattern Classification"): how the accesses lie in the file,
//! their size, when they come, whether the pattern repeats, and the operation. Class borders, which the source does
//! not give: small < 64 KiB <= medium < 1 MiB <= large; an interval is fixed when its coefficient of variation is
//! below 0.1.

use crate::access::{Access, AccessOp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How accesses lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spatial {
    /// Each begins where the one before ended.
    Contiguous,
    /// One distance between starts, forwards (or none: the same place again).
    FixedStrided,
    /// Rows: two nested distances.
    TwoDStrided,
    /// One distance between starts, backwards.
    NegativeStrided,
    /// No loop explains them.
    RandomStrided,
    /// Three or more nested distances, or a cycle of unlike ones.
    KdStrided,
    /// Several of these.
    Combination,
}

impl Spatial {
    /// Every class.
    pub const ALL: [Spatial; 7] = [
        Spatial::Contiguous,
        Spatial::FixedStrided,
        Spatial::TwoDStrided,
        Spatial::NegativeStrided,
        Spatial::RandomStrided,
        Spatial::KdStrided,
        Spatial::Combination,
    ];

    /// Name in the pattern signature.
    pub fn name(self) -> &'static str {
        match self {
            Spatial::Contiguous => "contiguous",
            Spatial::FixedStrided => "fixed-strided",
            Spatial::TwoDStrided => "2d-strided",
            Spatial::NegativeStrided => "negative-strided",
            Spatial::RandomStrided => "random-strided",
            Spatial::KdStrided => "kd-strided",
            Spatial::Combination => "combination",
        }
    }
}

/// How large accesses are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SizeClass {
    /// Below 64 KiB.
    Small,
    /// From 64 KiB, below 1 MiB.
    Medium,
    /// From 1 MiB.
    Large,
}

impl SizeClass {
    /// Of an access of this size.
    pub fn of(size_bytes: u64) -> Self {
        match size_bytes {
            0..0x1_0000 => SizeClass::Small,
            0x1_0000..0x10_0000 => SizeClass::Medium,
            _ => SizeClass::Large,
        }
    }

    /// Name in the pattern signature.
    pub fn name(self) -> &'static str {
        match self {
            SizeClass::Small => "small",
            SizeClass::Medium => "medium",
            SizeClass::Large => "large",
        }
    }
}

/// Whether accesses come at even intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Temporal {
    /// The intervals between starts vary by less than a tenth.
    Fixed,
    /// They vary more.
    Random,
    /// The trace has no times, or too few accesses to have two intervals.
    Unknown,
}

impl Temporal {
    /// Name in the pattern signature.
    pub fn name(self) -> &'static str {
        match self {
            Temporal::Fixed => "fixed",
            Temporal::Random => "random",
            Temporal::Unknown => "unknown",
        }
    }
}

/// Reads, writes or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operations {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Both.
    ReadWrite,
}

impl Operations {
    /// Name in the pattern signature.
    pub fn name(self) -> &'static str {
        match self {
            Operations::Read => "READ",
            Operations::Write => "WRITE",
            Operations::ReadWrite => "RW",
        }
    }
}

/// The pattern signature: a nature, not enough to rebuild a trace. Its text form is the source's:
/// `{READ, <fixed-strided,1>, <single>, <fixed small>, <random> }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PatternSignature {
    /// Reads, writes or both.
    pub operations: Operations,
    /// How accesses lie in the file.
    pub spatial: Spatial,
    /// Nested distances.
    pub dimension: u32,
    /// Whether a pattern is run more than once.
    pub repeating: bool,
    /// Whether all sizes but at most one in a hundred are the same.
    pub fixed_size: bool,
    /// Class of the median size.
    pub size: SizeClass,
    /// Whether accesses come at even intervals.
    pub temporal: Temporal,
}

impl fmt::Display for PatternSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{{{}, <{},{}>, <{}>, <{} {}>, <{}> }}",
            self.operations.name(),
            self.spatial.name(),
            self.dimension,
            if self.repeating { "repeating" } else { "single" },
            if self.fixed_size { "fixed" } else { "variable" },
            self.size.name(),
            self.temporal.name()
        )
    }
}

/// Sizes that are counted one by one; a trace with more is of variable size anyhow.
const COUNTED_SIZES: usize = 64;

/// What the five factors are decided from. Those of several ranks or files add up with [`Factors::merge`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factors {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Lowest offset and highest end.
    pub extent: Option<(u64, u64)>,
    /// Smallest and largest size.
    pub size_range: Option<(u64, u64)>,
    /// Accesses of each of the first sizes seen.
    pub(crate) sizes: BTreeMap<u64, u64>,
    by_class: [u64; 3],
    intervals: u64,
    #[serde(with = "bits")]
    interval_mean_ns: f64,
    #[serde(with = "bits")]
    interval_square_sum: f64,
    /// Accesses whose trace is of each class, and their largest dimension.
    pub(crate) spatial: [(u64, u32); 7],
    pub(crate) repeating: u64,
}

/// Floats as their bits: in decimals the last one could change on the way between machines.
mod bits {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(value.to_bits())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}

impl Factors {
    /// Counts an access. O(log 64).
    pub(crate) fn count(&mut self, access: Access) {
        let bytes = match access.op {
            AccessOp::Read => {
                self.reads += 1;
                &mut self.bytes_read
            }
            AccessOp::Write => {
                self.writes += 1;
                &mut self.bytes_written
            }
        };
        *bytes = bytes.saturating_add(access.size_bytes);
        widen(&mut self.extent, access.offset, access.offset.saturating_add(access.size_bytes));
        widen(&mut self.size_range, access.size_bytes, access.size_bytes);
        self.count_size(access.size_bytes, 1);
        self.by_class[SizeClass::of(access.size_bytes) as usize] += 1;
    }

    fn count_size(&mut self, size_bytes: u64, count: u64) {
        if let Some(counted) = self.sizes.get_mut(&size_bytes) {
            *counted += count;
        } else if self.sizes.len() < COUNTED_SIZES {
            self.sizes.insert(size_bytes, count);
        }
    }

    /// Counts an interval between two starts (Welford's update).
    pub(crate) fn interval(&mut self, interval_ns: f64) {
        self.intervals += 1;
        let from_mean = interval_ns - self.interval_mean_ns;
        self.interval_mean_ns += from_mean / self.intervals as f64;
        self.interval_square_sum += from_mean * (interval_ns - self.interval_mean_ns);
    }

    /// Accesses counted.
    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }

    /// Adds those of another trace, such as another rank's.
    pub fn merge(&mut self, other: &Factors) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
        if let Some((low, high)) = other.extent {
            widen(&mut self.extent, low, high);
        }
        if let Some((low, high)) = other.size_range {
            widen(&mut self.size_range, low, high);
        }
        other.sizes.iter().for_each(|(&size, &count)| self.count_size(size, count));
        for (mine, theirs) in self.by_class.iter_mut().zip(other.by_class) {
            *mine += theirs;
        }
        if other.intervals > 0 {
            let (mine, theirs) = (self.intervals as f64, other.intervals as f64);
            let apart = other.interval_mean_ns - self.interval_mean_ns;
            self.interval_square_sum += other.interval_square_sum + apart * apart * mine * theirs / (mine + theirs);
            self.interval_mean_ns += apart * theirs / (mine + theirs);
            self.intervals += other.intervals;
        }
        for (mine, theirs) in self.spatial.iter_mut().zip(other.spatial) {
            *mine = (mine.0 + theirs.0, mine.1.max(theirs.1));
        }
        self.repeating += other.repeating;
    }

    /// The pattern signature; `None` without accesses.
    pub fn pattern(&self) -> Option<PatternSignature> {
        let accesses = self.accesses();
        let operations = match (self.reads, self.writes) {
            (0, 0) => return None,
            (_, 0) => Operations::Read,
            (0, _) => Operations::Write,
            _ => Operations::ReadWrite,
        };
        let (spatial, dimension) = majority(&self.spatial);
        let commonest = self.sizes.values().max().copied().unwrap_or(0);
        let size = if self.by_class[0] * 2 > accesses {
            SizeClass::Small
        } else if (self.by_class[0] + self.by_class[1]) * 2 > accesses {
            SizeClass::Medium
        } else {
            SizeClass::Large
        };
        let deviation = (self.interval_square_sum / self.intervals.max(1) as f64).sqrt();
        let temporal = match self.intervals {
            0 | 1 => Temporal::Unknown,
            _ if deviation < 0.1 * self.interval_mean_ns => Temporal::Fixed,
            _ => Temporal::Random,
        };
        let repeating = self.repeating * 2 > accesses;
        let fixed_size = accesses - commonest <= accesses / 100;
        Some(PatternSignature { operations, spatial, dimension, repeating, fixed_size, size, temporal })
    }
}

fn widen(range: &mut Option<(u64, u64)>, low: u64, high: u64) {
    *range = Some(range.map_or((low, high), |(a, b)| (a.min(low), b.max(high))));
}

/// The class of nine accesses in ten, random where half of them are, a combination otherwise; with its dimension.
pub(crate) fn majority(weights: &[(u64, u32); 7]) -> (Spatial, u32) {
    let total = weights.iter().map(|weight| weight.0).sum::<u64>();
    let of = |spatial: Spatial| weights[spatial as usize];
    if let Some(&most) = Spatial::ALL.iter().find(|&&spatial| of(spatial).0 as f64 >= 0.9 * total as f64) {
        return (most, of(most).1.max(1));
    }
    if of(Spatial::RandomStrided).0 as f64 >= 0.5 * total as f64 {
        return (Spatial::RandomStrided, 1);
    }
    (Spatial::Combination, weights.iter().map(|weight| weight.1).max().unwrap_or(1).max(1))
}
