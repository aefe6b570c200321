//! Names of Darshan's counters in the order of the log, and which of them older versions of the records lack.

use super::libraries;
use super::module::{KeptCounters, Module};
use stripewise_trace::Api;

/// What a record of counters holds after its identifier and rank.
pub(super) struct CounterNames {
    pub api: Api,
    pub integers: Vec<&'static str>,
    pub floats: Vec<&'static str>,
    /// Numbers that version 1 of POSIX has in front of the integer of this index, and how many: counts of stdio.
    pub skipped: Option<(usize, usize)>,
}

impl CounterNames {
    /// The shape of a module's records; `None` for a version that is not known. After darshan-*-logutils.c.
    pub fn of(module: Module, version: u32) -> Option<Self> {
        let (api, integers, floats, newest) = match module {
            Module::Posix => (Api::Posix, POSIX, POSIX_F, 4),
            Module::MpiIo => (Api::MpiIo, MPIIO, MPIIO_F, 3),
            Module::Stdio => (Api::Stdio, STDIO, STDIO_F, 2),
            _ => return None,
        };
        if version == 0 || version > newest {
            return None;
        }
        let lacks = |name: &str| match module {
            Module::Posix => {
                version < 4 && POSIX_SINCE_4.contains(&name)
                    || version < 3 && CLOSES_SINCE_3.iter().any(|end| name.ends_with(end))
            }
            Module::MpiIo => version < 3 && CLOSES_SINCE_3.iter().any(|end| name.ends_with(end)),
            _ => version < 2 && name == "STDIO_FDOPENS",
        };
        let kept = |names: &[&'static str]| names.iter().copied().filter(|name| !lacks(name)).collect();
        let skipped = (module == Module::Posix && version == 1).then_some((6, 4));
        Some(CounterNames { api, integers: kept(integers), floats: kept(floats), skipped })
    }

    /// The counters of a record, whose word of an index `word` gives.
    pub fn kept(&self, word: impl Fn(usize) -> u64) -> KeptCounters {
        let (skip_at, count) = self.skipped.unwrap_or((self.integers.len(), 0));
        let place = |index: usize| 2 + index + if index >= skip_at { count } else { 0 };
        let integers = self.integers.iter().enumerate().map(|(index, &name)| (name, word(place(index)) as i64));
        let first = 2 + self.integers.len() + count;
        let floats = self.floats.iter().enumerate();
        let floats = floats.map(|(index, &name)| (name, f64::from_bits(word(first + index))));
        (integers.collect(), floats.collect())
    }

    /// Length of a record in bytes.
    pub fn record_bytes(&self) -> usize {
        8 * (2 + self.integers.len() + self.floats.len() + self.skipped.map_or(0, |(_, count)| count))
    }
}

/// The counter of this name, of any module and version.
pub(crate) fn known(name: &[u8]) -> Option<&'static str> {
    let all = [POSIX, POSIX_F, MPIIO, MPIIO_F, STDIO, STDIO_F];
    let found = all.into_iter().flatten().copied().find(|known| known.as_bytes() == name);
    found.or_else(|| libraries::known(name))
}

/// What DAOS's records count as POSIX's do, in their order: from their bytes read on, then from their fastest rank on.
#[rustfmt::skip]
pub(super) const DAOS_SAME_INTEGERS: &[&str] = &[
    "POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN", "POSIX_RW_SWITCHES", "POSIX_MAX_READ_TIME_SIZE",
    "POSIX_MAX_WRITE_TIME_SIZE", "POSIX_SIZE_READ_0_100", "POSIX_SIZE_READ_100_1K", "POSIX_SIZE_READ_1K_10K",
    "POSIX_SIZE_READ_10K_100K", "POSIX_SIZE_READ_100K_1M", "POSIX_SIZE_READ_1M_4M", "POSIX_SIZE_READ_4M_10M",
    "POSIX_SIZE_READ_10M_100M", "POSIX_SIZE_READ_100M_1G", "POSIX_SIZE_READ_1G_PLUS", "POSIX_SIZE_WRITE_0_100",
    "POSIX_SIZE_WRITE_100_1K", "POSIX_SIZE_WRITE_1K_10K", "POSIX_SIZE_WRITE_10K_100K", "POSIX_SIZE_WRITE_100K_1M",
    "POSIX_SIZE_WRITE_1M_4M", "POSIX_SIZE_WRITE_4M_10M", "POSIX_SIZE_WRITE_10M_100M", "POSIX_SIZE_WRITE_100M_1G",
    "POSIX_SIZE_WRITE_1G_PLUS", "POSIX_ACCESS1_ACCESS", "POSIX_ACCESS2_ACCESS", "POSIX_ACCESS3_ACCESS",
    "POSIX_ACCESS4_ACCESS", "POSIX_ACCESS1_COUNT", "POSIX_ACCESS2_COUNT", "POSIX_ACCESS3_COUNT",
    "POSIX_ACCESS4_COUNT", "POSIX_FASTEST_RANK", "POSIX_FASTEST_RANK_BYTES", "POSIX_SLOWEST_RANK",
    "POSIX_SLOWEST_RANK_BYTES",
];

/// DAOS's times: the first of POSIX's.
pub(super) const DAOS_SAME_FLOATS: &[&str] = POSIX_F.split_at(15).0;

const POSIX_SINCE_4: [&str; 5] =
    ["POSIX_FILENOS", "POSIX_DUPS", "POSIX_RENAME_SOURCES", "POSIX_RENAME_TARGETS", "POSIX_RENAMED_FROM"];

const CLOSES_SINCE_3: [&str; 2] = ["_F_CLOSE_START_TIMESTAMP", "_F_OPEN_END_TIMESTAMP"];

#[rustfmt::skip]
const POSIX: &[&str] = &[
    "POSIX_OPENS", "POSIX_FILENOS", "POSIX_DUPS", "POSIX_READS", "POSIX_WRITES", "POSIX_SEEKS", "POSIX_STATS",
    "POSIX_MMAPS", "POSIX_FSYNCS", "POSIX_FDSYNCS", "POSIX_RENAME_SOURCES", "POSIX_RENAME_TARGETS",
    "POSIX_RENAMED_FROM", "POSIX_MODE", "POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN", "POSIX_MAX_BYTE_READ",
    "POSIX_MAX_BYTE_WRITTEN", "POSIX_CONSEC_READS", "POSIX_CONSEC_WRITES", "POSIX_SEQ_READS", "POSIX_SEQ_WRITES",
    "POSIX_RW_SWITCHES", "POSIX_MEM_NOT_ALIGNED", "POSIX_MEM_ALIGNMENT", "POSIX_FILE_NOT_ALIGNED",
    "POSIX_FILE_ALIGNMENT", "POSIX_MAX_READ_TIME_SIZE", "POSIX_MAX_WRITE_TIME_SIZE", "POSIX_SIZE_READ_0_100",
    "POSIX_SIZE_READ_100_1K", "POSIX_SIZE_READ_1K_10K", "POSIX_SIZE_READ_10K_100K", "POSIX_SIZE_READ_100K_1M",
    "POSIX_SIZE_READ_1M_4M", "POSIX_SIZE_READ_4M_10M", "POSIX_SIZE_READ_10M_100M", "POSIX_SIZE_READ_100M_1G",
    "POSIX_SIZE_READ_1G_PLUS", "POSIX_SIZE_WRITE_0_100", "POSIX_SIZE_WRITE_100_1K", "POSIX_SIZE_WRITE_1K_10K",
    "POSIX_SIZE_WRITE_10K_100K", "POSIX_SIZE_WRITE_100K_1M", "POSIX_SIZE_WRITE_1M_4M", "POSIX_SIZE_WRITE_4M_10M",
    "POSIX_SIZE_WRITE_10M_100M", "POSIX_SIZE_WRITE_100M_1G", "POSIX_SIZE_WRITE_1G_PLUS", "POSIX_STRIDE1_STRIDE",
    "POSIX_STRIDE2_STRIDE", "POSIX_STRIDE3_STRIDE", "POSIX_STRIDE4_STRIDE", "POSIX_STRIDE1_COUNT",
    "POSIX_STRIDE2_COUNT", "POSIX_STRIDE3_COUNT", "POSIX_STRIDE4_COUNT", "POSIX_ACCESS1_ACCESS",
    "POSIX_ACCESS2_ACCESS", "POSIX_ACCESS3_ACCESS", "POSIX_ACCESS4_ACCESS", "POSIX_ACCESS1_COUNT",
    "POSIX_ACCESS2_COUNT", "POSIX_ACCESS3_COUNT", "POSIX_ACCESS4_COUNT", "POSIX_FASTEST_RANK",
    "POSIX_FASTEST_RANK_BYTES", "POSIX_SLOWEST_RANK", "POSIX_SLOWEST_RANK_BYTES",
];

#[rustfmt::skip]
const POSIX_F: &[&str] = &[
    "POSIX_F_OPEN_START_TIMESTAMP", "POSIX_F_READ_START_TIMESTAMP", "POSIX_F_WRITE_START_TIMESTAMP",
    "POSIX_F_CLOSE_START_TIMESTAMP", "POSIX_F_OPEN_END_TIMESTAMP", "POSIX_F_READ_END_TIMESTAMP",
    "POSIX_F_WRITE_END_TIMESTAMP", "POSIX_F_CLOSE_END_TIMESTAMP", "POSIX_F_READ_TIME", "POSIX_F_WRITE_TIME",
    "POSIX_F_META_TIME", "POSIX_F_MAX_READ_TIME", "POSIX_F_MAX_WRITE_TIME", "POSIX_F_FASTEST_RANK_TIME",
    "POSIX_F_SLOWEST_RANK_TIME", "POSIX_F_VARIANCE_RANK_TIME", "POSIX_F_VARIANCE_RANK_BYTES",
];

#[rustfmt::skip]
const MPIIO: &[&str] = &[
    "MPIIO_INDEP_OPENS", "MPIIO_COLL_OPENS", "MPIIO_INDEP_READS", "MPIIO_INDEP_WRITES", "MPIIO_COLL_READS",
    "MPIIO_COLL_WRITES", "MPIIO_SPLIT_READS", "MPIIO_SPLIT_WRITES", "MPIIO_NB_READS", "MPIIO_NB_WRITES",
    "MPIIO_SYNCS", "MPIIO_HINTS", "MPIIO_VIEWS", "MPIIO_MODE", "MPIIO_BYTES_READ", "MPIIO_BYTES_WRITTEN",
    "MPIIO_RW_SWITCHES", "MPIIO_MAX_READ_TIME_SIZE", "MPIIO_MAX_WRITE_TIME_SIZE", "MPIIO_SIZE_READ_AGG_0_100",
    "MPIIO_SIZE_READ_AGG_100_1K", "MPIIO_SIZE_READ_AGG_1K_10K", "MPIIO_SIZE_READ_AGG_10K_100K",
    "MPIIO_SIZE_READ_AGG_100K_1M", "MPIIO_SIZE_READ_AGG_1M_4M", "MPIIO_SIZE_READ_AGG_4M_10M",
    "MPIIO_SIZE_READ_AGG_10M_100M", "MPIIO_SIZE_READ_AGG_100M_1G", "MPIIO_SIZE_READ_AGG_1G_PLUS",
    "MPIIO_SIZE_WRITE_AGG_0_100", "MPIIO_SIZE_WRITE_AGG_100_1K", "MPIIO_SIZE_WRITE_AGG_1K_10K",
    "MPIIO_SIZE_WRITE_AGG_10K_100K", "MPIIO_SIZE_WRITE_AGG_100K_1M", "MPIIO_SIZE_WRITE_AGG_1M_4M",
    "MPIIO_SIZE_WRITE_AGG_4M_10M", "MPIIO_SIZE_WRITE_AGG_10M_100M", "MPIIO_SIZE_WRITE_AGG_100M_1G",
    "MPIIO_SIZE_WRITE_AGG_1G_PLUS", "MPIIO_ACCESS1_ACCESS", "MPIIO_ACCESS2_ACCESS", "MPIIO_ACCESS3_ACCESS",
    "MPIIO_ACCESS4_ACCESS", "MPIIO_ACCESS1_COUNT", "MPIIO_ACCESS2_COUNT", "MPIIO_ACCESS3_COUNT",
    "MPIIO_ACCESS4_COUNT", "MPIIO_FASTEST_RANK", "MPIIO_FASTEST_RANK_BYTES", "MPIIO_SLOWEST_RANK",
    "MPIIO_SLOWEST_RANK_BYTES",
];

#[rustfmt::skip]
const MPIIO_F: &[&str] = &[
    "MPIIO_F_OPEN_START_TIMESTAMP", "MPIIO_F_READ_START_TIMESTAMP", "MPIIO_F_WRITE_START_TIMESTAMP",
    "MPIIO_F_CLOSE_START_TIMESTAMP", "MPIIO_F_OPEN_END_TIMESTAMP", "MPIIO_F_READ_END_TIMESTAMP",
    "MPIIO_F_WRITE_END_TIMESTAMP", "MPIIO_F_CLOSE_END_TIMESTAMP", "MPIIO_F_READ_TIME", "MPIIO_F_WRITE_TIME",
    "MPIIO_F_META_TIME", "MPIIO_F_MAX_READ_TIME", "MPIIO_F_MAX_WRITE_TIME", "MPIIO_F_FASTEST_RANK_TIME",
    "MPIIO_F_SLOWEST_RANK_TIME", "MPIIO_F_VARIANCE_RANK_TIME", "MPIIO_F_VARIANCE_RANK_BYTES",
];

#[rustfmt::skip]
const STDIO: &[&str] = &[
    "STDIO_OPENS", "STDIO_FDOPENS", "STDIO_READS", "STDIO_WRITES", "STDIO_SEEKS", "STDIO_FLUSHES",
    "STDIO_BYTES_WRITTEN", "STDIO_BYTES_READ", "STDIO_MAX_BYTE_READ", "STDIO_MAX_BYTE_WRITTEN", "STDIO_FASTEST_RANK",
    "STDIO_FASTEST_RANK_BYTES", "STDIO_SLOWEST_RANK", "STDIO_SLOWEST_RANK_BYTES",
];

#[rustfmt::skip]
const STDIO_F: &[&str] = &[
    "STDIO_F_META_TIME", "STDIO_F_WRITE_TIME", "STDIO_F_READ_TIME", "STDIO_F_OPEN_START_TIMESTAMP",
    "STDIO_F_CLOSE_START_TIMESTAMP", "STDIO_F_WRITE_START_TIMESTAMP", "STDIO_F_READ_START_TIMESTAMP",
    "STDIO_F_OPEN_END_TIMESTAMP", "STDIO_F_CLOSE_END_TIMESTAMP", "STDIO_F_WRITE_END_TIMESTAMP",
    "STDIO_F_READ_END_TIMESTAMP", "STDIO_F_FASTEST_RANK_TIME", "STDIO_F_SLOWEST_RANK_TIME",
    "STDIO_F_VARIANCE_RANK_TIME", "STDIO_F_VARIANCE_RANK_BYTES",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_lengths_of_the_c_structures() {
        let lengths = |module, versions: u32| -> Vec<usize> {
            (1..=versions).map(|version| CounterNames::of(module, version).expect("known").record_bytes()).collect()
        };
        assert_eq!(lengths(Module::Posix, 4), [680, 648, 664, 704]);
        assert_eq!(lengths(Module::MpiIo, 3), [544, 544, 560]);
        assert_eq!(lengths(Module::Stdio, 2), [240, 248]);
        assert!(CounterNames::of(Module::Posix, 5).is_none() && CounterNames::of(Module::Stdio, 0).is_none());
        assert!(CounterNames::of(Module::Lustre, 1).is_none());
    }
}
