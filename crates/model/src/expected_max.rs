//! Mean of the maximum of independent uniform times, by quadrature of the product of their distributions.

use smallvec::SmallVec;

/// `servers` independent times, each uniform in `[lo_s, hi_s]` seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Branch {
    /// Least time in seconds.
    pub lo_s: f64,
    /// Greatest time in seconds; at least `lo_s`.
    pub hi_s: f64,
    /// How many such times; at least 1.
    pub servers: u64,
}

/// The branches of one request; no allocation for up to 16.
pub type Branches = SmallVec<[Branch; 16]>;

/// Positive nodes and weights of Gauss-Legendre quadrature on [-1, 1]; exact to degree `4 x length - 1`.
const NODES_4: [(f64, f64); 2] = [(0.8611363115940526, 0.34785484513745374), (0.3399810435848563, 0.6521451548625461)];
const NODES_8: [(f64, f64); 4] = [
    (0.9602898564975363, 0.10122853629037618),
    (0.7966664774136268, 0.22238103445337445),
    (0.525532409916329, 0.3137066458778874),
    (0.1834346424956498, 0.362683783378362),
];
const NODES_16: [(f64, f64); 8] = [
    (0.9894009349916499, 0.027152459411754058),
    (0.9445750230732326, 0.062253523938647776),
    (0.8656312023878318, 0.0951585116824929),
    (0.755404408355003, 0.12462897125553395),
    (0.6178762444026438, 0.14959598881657682),
    (0.45801677765722737, 0.16915651939500256),
    (0.2816035507792589, 0.1826034150449236),
    (0.09501250983763744, 0.18945061045506847),
];

/// Mean in seconds of the greatest of all times: `U - integral over [L, U] of prod F_i`, with `L` the greatest lower
/// and `U` the greatest upper end. Between two upper ends the integrand is a polynomial, whose degree is the number of
/// times that can still be greater; Gauss-Legendre takes it exactly up to 31 of them, and within 1e-9 of the interval
/// beyond. 0 without branches. O(branches^2 x nodes), nodes 4, 8 or 16 by degree; no allocation.
#[inline]
pub fn expected_max_s(branches: &[Branch]) -> f64 {
    let Some(first) = branches.first() else { return 0.0 };
    if branches.len() == 1 {
        let k = first.servers as f64;
        return first.lo_s + k / (k + 1.0) * (first.hi_s - first.lo_s);
    }
    let (lower, upper) =
        branches.iter().fold((0.0_f64, 0.0_f64), |(lo, hi), branch| (lo.max(branch.lo_s), hi.max(branch.hi_s)));
    let mut below = 0.0;
    let mut from = lower;
    while from < upper {
        let (mut to, mut degree) = (upper, 0_u64);
        for branch in branches.iter().filter(|branch| branch.hi_s > from) {
            to = to.min(branch.hi_s);
            degree += branch.servers;
        }
        below += match degree {
            0..=7 => integral(branches, from, to, &NODES_4),
            8..=15 => integral(branches, from, to, &NODES_8),
            16..=31 => integral(branches, from, to, &NODES_16),
            // Halves: high powers live near the upper end only.
            _ => high_degree(branches, from, to, degree),
        };
        from = to;
    }
    upper - below
}

/// Composite rule for more than 31 servers: intervals that shrink by half towards the upper end, until a power of
/// `degree` is as smooth on the last as one of 8 is on all.
fn high_degree(branches: &[Branch], from: f64, to: f64, degree: u64) -> f64 {
    let (mut sum, mut at, mut width) = (0.0, from, to - from);
    for _ in 0..(degree.ilog2() - 2).min(12) {
        width *= 0.5;
        sum += integral(branches, at, at + width, &NODES_16);
        at += width;
    }
    sum + integral(branches, at, to, &NODES_16)
}

#[inline]
fn integral(branches: &[Branch], from: f64, to: f64, nodes: &[(f64, f64)]) -> f64 {
    let (middle, half) = (0.5 * (from + to), 0.5 * (to - from));
    let sum: f64 = nodes
        .iter()
        .map(|&(x, weight)| weight * (product(branches, middle - half * x) + product(branches, middle + half * x)))
        .sum();
    sum * half
}

#[inline]
fn product(branches: &[Branch], x: f64) -> f64 {
    branches.iter().filter(|branch| branch.hi_s > x).fold(1.0, |product, branch| {
        product * ((x - branch.lo_s) / (branch.hi_s - branch.lo_s)).max(0.0).powi(branch.servers.min(1 << 20) as i32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(lo_s: f64, hi_s: f64, servers: u64) -> Branch {
        Branch { lo_s, hi_s, servers }
    }

    /// Midpoint rule over the whole range: slow and obvious.
    fn reference(branches: &[Branch]) -> f64 {
        let upper = branches.iter().map(|b| b.hi_s).fold(0.0, f64::max);
        let steps = 200_000;
        let width = upper / f64::from(steps);
        let cdf = |x: f64| -> f64 {
            branches
                .iter()
                .map(|b| {
                    let f = if x >= b.hi_s { 1.0 } else { ((x - b.lo_s) / (b.hi_s - b.lo_s)).max(0.0) };
                    f.powi(b.servers as i32)
                })
                .product()
        };
        upper - (0..steps).map(|i| cdf((f64::from(i) + 0.5) * width) * width).sum::<f64>()
    }

    #[test]
    fn known_values() {
        assert_eq!(expected_max_s(&[]), 0.0);
        assert!((expected_max_s(&[branch(0.0, 1.0, 3)]) - 0.75).abs() < 1e-15);
        // Two equal branches are one of twice the servers.
        assert!((expected_max_s(&[branch(1.0, 2.0, 1), branch(1.0, 2.0, 2)]) - 1.75).abs() < 1e-14);
        // One always later: only it counts.
        assert!((expected_max_s(&[branch(0.0, 1.0, 2), branch(1.0, 2.0, 1)]) - 1.5).abs() < 1e-14);
        // A constant among uniforms: E max(c, U) = c + (1 - c)^2 / 2.
        assert!((expected_max_s(&[branch(0.4, 0.4, 5), branch(0.0, 1.0, 1)]) - (0.4 + 0.18)).abs() < 1e-14);
        // Only constants.
        assert_eq!(expected_max_s(&[branch(0.4, 0.4, 5), branch(0.2, 0.2, 1)]), 0.4);
    }

    #[test]
    fn equals_a_fine_midpoint_rule() {
        let cases = [
            vec![branch(0.3, 1.4, 6), branch(0.05, 0.6, 2)],
            vec![branch(0.3, 1.4, 5), branch(0.31, 1.41, 1), branch(1.0, 1.05, 2)],
            vec![branch(0.1, 0.2, 1), branch(0.0, 0.9, 3), branch(0.15, 0.8, 9), branch(0.0, 0.4, 2)],
            vec![branch(0.0, 1.0, 20), branch(0.2, 0.9, 10)],
            vec![branch(0.0, 1.0, 300), branch(0.2, 1.1, 64)],
        ];
        for case in cases {
            let (got, want) = (expected_max_s(&case), reference(&case));
            assert!((got - want).abs() < 2e-6, "{case:?}: {got} {want}");
        }
    }
}
