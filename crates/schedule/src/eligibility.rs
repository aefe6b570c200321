//! Whether dedicated service pays for a program: the three conditions of section III-C.

use crate::locality::{ServerUseBy, SharedServer};

/// Condition 1: the standard deviation over the servers is below this part of the mean.
const MOST_DEVIATION: f64 = 0.2;
/// A program's own gaps are alike where all are below this part of the mix's: none of them is a way to go.
const NEGLIGIBLE: f64 = 0.01;
/// Condition 2: gaps of the mix are at least as many times those of the program.
const LEAST_RATIO: f64 = 1.5;

/// The figures of one program, over the servers that it uses and that seek. The sums of condition 2 run over these servers
/// alone, as the means do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Eligibility {
    /// Servers that it uses and that seek.
    pub servers: usize,
    /// Sum of SL_i.
    pub mix_gap_bytes: f64,
    /// Sum of SL_ij.
    pub own_gap_bytes: f64,
    /// How far the servers are from their mean, as a part of it (standard deviation): gaps of the mix, and its own.
    pub deviations: [f64; 2],
    /// Whether both gaps are alike on all servers (condition 1); the program's own also where they are next to nothing.
    pub is_even: bool,
    /// Mean of RD_ij in nanoseconds; `None` where nothing was measured yet.
    pub reuse_ns: Option<f64>,
    /// Mean of the seek times in nanoseconds.
    pub seek_ns: f64,
}

/// Mean and population variance, as sums.
#[derive(Default)]
struct Spread {
    sum: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
    }

    /// The standard deviation of `count` values as a part of their mean; 0 where all are zeros.
    fn deviation(&self, count: f64) -> f64 {
        let mean = self.sum / count;
        let variance = (self.squares / count - mean * mean).max(0.0);
        // Rounding alone makes a variance of equal values that are not zero.
        if variance <= 1e-9 * mean * mean { 0.0 } else { variance.sqrt() / mean }
    }
}

impl Eligibility {
    /// Of a program that uses the servers of `uses`. O(servers of the program), no allocation. What names a server that
    /// `servers` does not have is left out.
    pub fn of(servers: &[SharedServer], uses: &[ServerUseBy]) -> Self {
        let (mut mix, mut own) = (Spread::default(), Spread::default());
        let (mut reuse_ns, mut measured, mut seek_ns, mut count) = (0.0, 0_usize, 0.0, 0_usize);
        for by in uses {
            let Some(server) = servers.get(by.server as usize) else { continue };
            if server.seek_ns <= 0.0 {
                continue;
            }
            count += 1;
            seek_ns += server.seek_ns;
            mix.add(server.gap_bytes);
            own.add(f64::from(by.gap_bytes));
            if by.reuse_ns >= 0.0 {
                reuse_ns += f64::from(by.reuse_ns);
                measured += 1;
            }
        }
        let number = count.max(1) as f64;
        let deviations = [&mix, &own].map(|spread| spread.deviation(number));
        let is_narrow = deviations.map(|deviation| deviation < MOST_DEVIATION);
        Self {
            servers: count,
            mix_gap_bytes: mix.sum,
            own_gap_bytes: own.sum,
            deviations,
            is_even: count > 0 && is_narrow[0] && (is_narrow[1] || own.sum <= NEGLIGIBLE * mix.sum),
            reuse_ns: (measured > 0).then(|| reuse_ns / measured as f64),
            seek_ns: seek_ns / number,
        }
    }

    /// Conditions 1 and 2: the program is near in itself and the mix is not. Multiplied out, so that a gap of 0 divides
    /// nothing; a mix without gaps has nothing to save.
    pub fn may_gain(&self) -> bool {
        self.is_even && self.exceeds(LEAST_RATIO)
    }

    /// Whether the mix's gaps are at least `ratio` times the program's own.
    pub(crate) fn exceeds(&self, ratio: f64) -> bool {
        self.servers > 0 && self.mix_gap_bytes > 0.0 && self.mix_gap_bytes >= ratio * self.own_gap_bytes
    }

    /// Condition 2 with less required, once the program is dedicated.
    pub(crate) fn still_gains(&self) -> bool {
        self.exceeds(LEAST_RATIO * 0.8)
    }

    /// Condition 3: waiting for the program's next request is at most `times` what a seek takes. `None` where nothing was
    /// measured yet.
    pub(crate) fn is_reused_within(&self, times: f64) -> Option<bool> {
        self.reuse_ns.map(|reuse_ns| reuse_ns <= times * self.seek_ns)
    }
}
