//! The parser: unpacks the optimisations of a handle to the settings that the paths of its requests go by.
//!
//! A handle has a mask and a word of 59 bits for each optimisation ([`crate::format::handle::Optimisations`]). A setting that this
//! release does not understand is none: the file is served as without it.

use crate::format::handle::Optimisations;
use std::time::Duration;
use stripewise_optimisation::{
    CACHED, CLASS, DIRECT, OptimisationSetting, OptimisationType, READAHEAD, SMALL, WRITEBEHIND,
};

/// How much is fetched ahead of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadAheadHint {
    /// Bytes of one fetch.
    pub(crate) window_bytes: u64,
    /// Fetches ahead of the one that is being read.
    pub(crate) depth: u32,
}

/// How much is gathered of what a program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteBehindHint {
    /// Bytes of one write to the servers.
    pub(crate) size_bytes: u64,
    /// How long a byte is kept back at most.
    pub(crate) delay: Duration,
}

/// Which files a kernel keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedHint {
    /// Bytes of the largest.
    pub(crate) most_bytes: u64,
}

/// What a handle asks for, as far as this release understands it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AskedPaths {
    /// Most bytes that were to be in the inode.
    pub(crate) small_bytes: Option<u64>,
    /// How its readers are served ahead.
    pub(crate) read_ahead: Option<ReadAheadHint>,
    /// How much of what its writers write is gathered.
    pub(crate) write_behind: Option<WriteBehindHint>,
    /// Whether kernels keep its pages.
    pub(crate) cached: Option<CachedHint>,
    /// How far behind its requests are served; 0: with all others.
    pub(crate) rank: u8,
    /// From how many bytes on its requests leave nothing in the page caches of the servers.
    pub(crate) direct_least_bytes: Option<u64>,
}

impl AskedPaths {
    /// Unpacks what a handle, or the hints of a directory, have. Six searches of a list of 32 entries at most.
    pub(crate) fn parse(optimisations: &Optimisations) -> Self {
        let setting = |of| setting(optimisations, of);
        Self {
            small_bytes: setting(&SMALL).map(|small| small.value(0)),
            read_ahead: setting(&READAHEAD)
                .map(|given| ReadAheadHint { window_bytes: given.value(0), depth: given.value(1) as u32 }),
            write_behind: setting(&WRITEBEHIND).map(|given| WriteBehindHint {
                size_bytes: given.value(0),
                delay: Duration::from_millis(given.value(1)),
            }),
            cached: setting(&CACHED).map(|given| CachedHint { most_bytes: given.value(0) }),
            rank: setting(&CLASS).map_or(0, |given| given.value(0) as u8),
            direct_least_bytes: setting(&DIRECT).map(|given| given.value(0)),
        }
    }
}

/// The setting of the optimisation `of` among `optimisations`, if there is one and this release understands it.
pub(crate) fn setting(optimisations: &Optimisations, of: &OptimisationType) -> Option<OptimisationSetting> {
    OptimisationSetting::unpack(of.index, optimisations.parameters(of.index)?).ok()
}

/// How many bytes `small` asks for among `optimisations`.
pub(crate) fn small_bytes(optimisations: &Optimisations) -> Option<u64> {
    setting(optimisations, &SMALL).map(|small| small.value(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_optimisation::TABLE;

    fn packed(settings: &[&str]) -> Optimisations {
        let mut optimisations = Optimisations::default();
        for text in settings {
            let (index, parameters) = OptimisationSetting::parse(text).unwrap().pack();
            optimisations.enable(index, parameters).unwrap();
        }
        optimisations
    }

    #[test]
    fn a_handle_is_unpacked_to_what_was_packed() {
        let every = ["small=8K", "readahead=1M:3", "writebehind=2M:20ms", "cached=3G", "class=5", "direct=2M"];
        let asked = AskedPaths::parse(&packed(&every));
        let expected = AskedPaths {
            small_bytes: Some(8 << 10),
            read_ahead: Some(ReadAheadHint { window_bytes: 1 << 20, depth: 3 }),
            write_behind: Some(WriteBehindHint { size_bytes: 2 << 20, delay: Duration::from_millis(20) }),
            cached: Some(CachedHint { most_bytes: 3 << 30 }),
            rank: 5,
            direct_least_bytes: Some(2 << 20),
        };
        assert_eq!(asked, expected);
        assert_eq!(AskedPaths::parse(&Optimisations::default()), AskedPaths::default());
        assert_eq!(small_bytes(&packed(&every)), Some(8 << 10));
    }

    /// Which of its parts a handle asks for.
    fn parts(asked: AskedPaths) -> [bool; 6] {
        let AskedPaths { small_bytes, read_ahead, write_behind, cached, rank, direct_least_bytes } = asked;
        [
            small_bytes.is_some(),
            read_ahead.is_some(),
            write_behind.is_some(),
            cached.is_some(),
            rank > 0,
            direct_least_bytes.is_some(),
        ]
    }

    #[test]
    fn each_optimisation_of_the_table_is_one_part_and_no_other_is_any() {
        let asked = |index, parameters| {
            let mut optimisations = Optimisations::default();
            optimisations.enable(index, parameters).unwrap();
            parts(AskedPaths::parse(&optimisations))
        };
        let mut times = [0; 6];
        for of in TABLE {
            let (index, parameters) = OptimisationSetting::parse(of.name).unwrap().pack();
            let found = asked(index, parameters);
            assert_eq!(found.iter().filter(|part| **part).count(), 1, "{}", of.name);
            times.iter_mut().zip(found).for_each(|(times, is_found)| *times += usize::from(is_found));
        }
        assert_eq!(times, [1; 6], "each part is of one optimisation");
        for index in (0..32).filter(|index| OptimisationType::of_index(*index).is_none()) {
            assert_eq!(asked(index, 1), [false; 6], "{index}");
        }
    }

    #[test]
    fn what_is_not_understood_is_none() {
        let mut later = packed(&["class=2"]);
        later.enable(READAHEAD.index, (1 << 59) - 1).unwrap();
        later.enable(15, 7).unwrap();
        assert_eq!(AskedPaths::parse(&later), AskedPaths { rank: 2, ..AskedPaths::default() });
    }
}
