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

/// Bits of a turn.
pub(crate) const TURN_BITS: u32 = 28;

/// Who goes first of those that come at one time. Each time has an order of its own, by chance, so that no process and no
/// server is first of all ties; it depends on nothing but the seed, the time and their numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ties {
    key: u64,
}

impl Ties {
    /// The orders under `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        // No server has this stream, nor has the metadata server.
        Self { key: Draws::new(seed, usize::MAX - 1).state }
    }

    /// Where `number` stands among those that come at `time_ns`, in [`TURN_BITS`] bits. Two of them hardly ever stand at one place; then the lower
    /// number is first. O(1).
    #[inline]
    pub(crate) fn turn(&self, time_ns: u64, number: u32) -> u64 {
        let time = (time_ns ^ self.key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let both = time ^ u64::from(number).wrapping_mul(0xd1b5_4a32_d192_ed03);
        (both ^ (both >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (64 - TURN_BITS)
    }

    /// Puts processes that come at `time_ns` in order. O(n log n).
    pub(crate) fn order(&self, time_ns: u64, processes: impl Iterator<Item = u32>) -> Vec<u32> {
        let turns = processes.map(|process| self.turn(time_ns, process) << 32 | u64::from(process));
        let mut turns: Vec<u64> = turns.collect();
        turns.sort_unstable();
        turns.into_iter().map(|turn| turn as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_many_is_first_as_often_as_the_others_and_before_each_other_half_the_time() {
        // Times as runs have them: multiples of a service.
        for (count, step_ns) in [(3_u32, 1_u64), (8, 3_000_000), (13, 1 << 20)] {
            let ties = Ties::new(5);
            let rounds = 30_000_u32;
            let (mut first, mut before) =
                (vec![0_u32; count as usize], vec![vec![0_u32; count as usize]; count as usize]);
            for round in 0..rounds {
                let order = ties.order(u64::from(round) * step_ns, 0..count);
                first[order[0] as usize] += 1;
                for (at, &a) in order.iter().enumerate() {
                    order[at + 1..].iter().for_each(|&b| before[a as usize][b as usize] += 1);
                }
            }
            let fair = f64::from(rounds) / f64::from(count);
            assert!(first.iter().all(|&times| (f64::from(times) / fair - 1.0).abs() < 0.1), "{count}: {first:?}");
            for (a, row) in before.iter().enumerate() {
                let others = row.iter().enumerate().filter(|&(b, _)| b != a);
                let halves = others.map(|(_, &times)| f64::from(times) / f64::from(rounds));
                assert!(halves.into_iter().all(|half| (half - 0.5).abs() < 0.03), "{count}: {row:?}");
            }
        }
    }

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
