//! Startup times by counter: the n-th draw of a server depends on nothing but the seed, the server and n.

/// SplitMix64's output function: a bijection of 64 bits without visible structure.
#[inline]
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The draws of one server.
#[derive(Debug, Clone)]
pub(crate) struct Draws {
    state: u64,
}

impl Draws {
    /// The stream of server `server` under `seed`.
    pub(crate) fn new(seed: u64, server: usize) -> Self {
        // Hashed twice so that neighbouring seeds and servers share no part of their sequences.
        Self { state: mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(server as u64)) }
    }

    /// The next draw, uniform in `[min, max]`. O(1).
    #[inline]
    pub(crate) fn uniform(&mut self, min: f64, max: f64) -> f64 {
        min + self.unit() * (max - min)
    }

    /// The next draw, uniform in `[0, 1)`. O(1).
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// The next draw of whole numbers below `n`, `n` at least 1; off even by at most `n` in 2^64. O(1).
    #[inline]
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    #[inline]
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_fill_the_interval_evenly() {
        let mut draws = Draws::new(7, 3);
        let n = 100_000;
        let mut bins = [0_u32; 10];
        let mut sum = 0.0;
        for _ in 0..n {
            let x = draws.uniform(4.0, 12.0);
            assert!((4.0..12.0).contains(&x));
            bins[((x - 4.0) / 0.8) as usize] += 1;
            sum += x;
        }
        assert!((sum / f64::from(n) - 8.0).abs() < 0.05);
        assert!(bins.iter().all(|&count| (9_500..10_500).contains(&count)), "{bins:?}");
    }

    #[test]
    fn servers_and_seeds_have_streams_of_their_own() {
        let first = |seed, server| Draws::new(seed, server).uniform(0.0, 1.0);
        assert_eq!(first(1, 0), first(1, 0));
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
    }
}
