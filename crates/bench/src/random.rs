//! Seeded numbers.

/// splitmix64's finaliser, a permutation of all 64-bit numbers.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(MULTIPLIERS[0]);
    x = (x ^ (x >> 27)).wrapping_mul(MULTIPLIERS[1]);
    x ^ (x >> 31)
}

/// The number that [`mix`] makes `x` from.
pub fn unmix(mut x: u64) -> u64 {
    const INVERSES: [u64; 2] = [inverse(MULTIPLIERS[0]), inverse(MULTIPLIERS[1])];
    x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(INVERSES[1]);
    x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(INVERSES[0]);
    x ^ (x >> 30) ^ (x >> 60)
}

const MULTIPLIERS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// The inverse of an odd number modulo 2^64, by Newton's iteration (each step doubles the correct bits).
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut step = 0;
    while step < 6 {
        x = x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// A stream of numbers for one purpose: equal keys give equal streams.
pub struct Random(u64);

impl Random {
    /// The stream of `key`.
    pub fn new(key: &[u64]) -> Self {
        Self(key.iter().fold(0, |state, part| mix(state ^ mix(part.wrapping_add(0x9e37_79b9_7f4a_7c15)))))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmix_undoes_mix() {
        for x in (0..64).map(|bit| 1_u64 << bit).chain([0, 1, u64::MAX, 0x0123_4567_89ab_cdef]) {
            assert_eq!(unmix(mix(x)), x);
        }
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..1000).collect();
        Random::new(&[1, 2]).shuffle(&mut items);
        assert_ne!(items, (0..1000).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }
}
