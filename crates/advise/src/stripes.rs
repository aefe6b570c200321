//! How Lustre's administrators stripe a file: by its size, and by how many write it.

/// Stripes of a file that many ranks share, by its size in bytes: as NERSC's `stripe_small`, `stripe_medium` and
/// `stripe_large` have them. A smaller one has a stripe: each object costs a lock and a round trip when it is opened.
const BY_SIZE: [(u64, usize); 3] = [(100 << 30, 72), (10 << 30, 24), (1 << 30, 8)];

/// A stripe is at least this wide: the unit that clients lock and send in.
pub(crate) const LEAST_STRIPE_BYTES: u64 = 1 << 20;

/// Stripes for a file of `size_bytes` that `writers` move the bytes of: no more than those, and than there are `targets`
/// where that is known. At least 1.
pub(crate) fn stripe_count(size_bytes: u64, writers: usize, targets: Option<usize>) -> usize {
    let by_size = BY_SIZE.iter().find(|(from, _)| size_bytes >= *from).map_or(1, |(_, count)| *count);
    by_size.min(writers.max(1)).min(targets.unwrap_or(usize::MAX).max(1))
}

/// The stripe size to go with it: the present one where that is a power of two from 1 MiB up, else 1 MiB.
pub(crate) fn stripe_bytes(present_bytes: u64) -> u64 {
    if present_bytes >= LEAST_STRIPE_BYTES && present_bytes.is_power_of_two() {
        present_bytes
    } else {
        LEAST_STRIPE_BYTES
    }
}

/// How many ranks ROMIO lets write a file on Lustre collectively, of `allowed` that may (`cb_nodes`): as many as there
/// are stripes, or else the most that divide the number of stripes. Then each target has one writer, and no writer waits
/// for the locks of another one (`ADIOI_LUSTRE_Get_striping_info` in MPICH's `ad_lustre_aggregate.c`; `romio_lustre_co_ratio`
/// is 1 unless the program asks for more). O(stripes).
pub(crate) fn romio_writers(stripes: usize, allowed: usize) -> usize {
    let (stripes, allowed) = (stripes.max(1), allowed.max(1));
    (1..=stripes.min(allowed)).rev().find(|writers| stripes.is_multiple_of(*writers)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_have_one_stripe_and_none_has_more_than_its_writers() {
        assert_eq!(stripe_count(500 << 20, 1024, None), 1);
        assert_eq!([5_u64, 50, 500].map(|gib| stripe_count(gib << 30, 1024, None)), [8, 24, 72]);
        assert_eq!(stripe_count(50 << 30, 4, None), 4);
        assert_eq!(stripe_count(50 << 30, 1024, Some(12)), 12);
        assert_eq!(stripe_count(50 << 30, 0, Some(0)), 1);
    }

    #[test]
    fn a_stripe_is_a_power_of_two_from_one_mebibyte_up() {
        assert_eq!([64 << 10, 1 << 20, 3 << 20, 16 << 20].map(stripe_bytes), [1 << 20, 1 << 20, 1 << 20, 16 << 20]);
    }

    #[test]
    fn romio_has_one_writer_a_stripe_or_as_many_as_divide_them() {
        // The examples of the source: 60 stripes and 8 ranks give 6 writers.
        assert_eq!(
            [(20, 42), (60, 8), (1, 64), (7, 4), (24, 24), (0, 0)].map(|(s, a)| romio_writers(s, a)),
            [20, 6, 1, 1, 24, 1]
        );
    }
}
