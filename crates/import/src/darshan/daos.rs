//! Records of DAOS, of its file system (DFS) and of its objects, as what POSIX would count of the same requests.
//!
//! After darshan-dfs-log-format.h and darshan-daos-log-format.h, version 1. Both count the same requests where a file of
//! DFS is one object, as MPI-IO's and POSIX's records do.

use super::module::{KeptCounters, Module};
use super::names::{DAOS_SAME_FLOATS, DAOS_SAME_INTEGERS};

/// Where a module's records have what is taken of them, by index among their integers.
struct Places {
    integers: usize,
    /// Bytes behind the numbers: identifiers of pool, container and object.
    identifiers_bytes: usize,
    /// Calls that open: their sum is POSIX's.
    opens: &'static [usize],
    stats: &'static [usize],
    /// First of: bytes read, bytes written, switches, two sizes, ten classes of reads, ten of writes, four commonest
    /// sizes, four counts.
    moved: usize,
    /// First of: fastest rank, its bytes, slowest rank, its bytes.
    ranks: usize,
}

const FLOATS: usize = 15;

fn places(module: Module) -> Places {
    if module == Module::Dfs {
        Places { integers: 52, identifiers_bytes: 32, opens: &[0, 1], stats: &[10, 13], moved: 14, ranks: 48 }
    } else {
        Places { integers: 64, identifiers_bytes: 48, opens: &[0, 9, 17], stats: &[12, 14], moved: 24, ranks: 60 }
    }
}

/// Length of a module's records in bytes.
pub(super) fn record_bytes(module: Module) -> usize {
    let places = places(module);
    8 * (2 + places.integers + FLOATS) + places.identifiers_bytes
}

/// POSIX's counters of a record, whose word of an index `word` gives.
pub(super) fn as_posix(module: Module, word: impl Fn(usize) -> u64) -> KeptCounters {
    let places = places(module);
    let integer = |index: usize| word(2 + index) as i64;
    let sum = |from: &mut dyn Iterator<Item = usize>| from.map(integer).fold(0_i64, i64::saturating_add);
    let sizes = places.moved + 5;
    // Of reads and writes the classes of size have all, those that did not block included.
    let mut integers = vec![
        ("POSIX_OPENS", sum(&mut places.opens.iter().copied())),
        ("POSIX_STATS", sum(&mut places.stats.iter().copied())),
        ("POSIX_READS", sum(&mut (sizes..sizes + 10))),
        ("POSIX_WRITES", sum(&mut (sizes + 10..sizes + 20))),
    ];
    let moved = places.moved..places.moved + 5 + 28;
    let ranks = places.ranks..places.ranks + 4;
    integers.extend(DAOS_SAME_INTEGERS.iter().copied().zip(moved.chain(ranks).map(integer)));
    let first = 2 + places.integers;
    let floats = DAOS_SAME_FLOATS.iter().enumerate().map(|(at, &name)| (name, f64::from_bits(word(first + at))));
    (integers, floats.collect())
}
