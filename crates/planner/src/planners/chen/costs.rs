//! ChenCosts of Chen et al. for `p` processes that each access their own part of the data on `n` equal servers, in the
//! three layouts of the paper and in every number of groups between them (math B.3 and B.4).
//!
//! Servers are divided into `g` disjoint groups and processes into as many: `1-DH` is one group, `1-DV` a group for
//! every server, `2-D` a group for every process.

/// `p`, `n` and what a process's part costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChenPattern {
    /// Processes that access their parts at the same time (`p`); at least 1.
    pub processes: u64,
    /// Equal servers (`n`); at least 1.
    pub servers: u64,
    /// Startup in seconds (`alpha`).
    pub startup_s: f64,
    /// Time in seconds of one process's part on one server (`s beta`).
    pub part_s: f64,
}

/// How many servers a group has where the number of groups does not divide that of the servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rest {
    /// `floor(n / g)`: the groups are disjoint, and the process with the fewest servers is the last to end.
    #[default]
    Floor,
    /// `ceil(n / g)`, which the slides print: groups would overlap, and no process would wait.
    Ceil,
}

/// Cost in seconds with all data on all servers: `p (alpha + s/n beta)`. O(1).
pub fn one_dh_s(of: &ChenPattern) -> f64 {
    groups_s(of, 1, Rest::Floor)
}

/// Cost in seconds with each process's part on one server: `ceil(p/n) (alpha + s beta)`. O(1).
pub fn one_dv_s(of: &ChenPattern) -> f64 {
    groups_s(of, of.servers, Rest::Floor)
}

/// Cost in seconds with each process's part on a group of its own: `alpha + s/floor(n/p) beta`; 1-DV when there are
/// more processes than servers. O(1).
pub fn two_d_s(of: &ChenPattern, rest: Rest) -> f64 {
    groups_s(of, two_d_groups(of), rest)
}

/// Groups of the 2-D layout: one for each process, as far as there are servers.
pub fn two_d_groups(of: &ChenPattern) -> u64 {
    of.processes.min(of.servers)
}

/// Cost in seconds with `groups` groups (1 to `n`): `T_g = ceil(p/g) (alpha + s/floor(n/g) beta)` (math B.3). O(1).
pub fn groups_s(of: &ChenPattern, groups: u64, rest: Rest) -> f64 {
    let servers = match rest {
        Rest::Floor => of.servers / groups,
        Rest::Ceil => of.servers.div_ceil(groups),
    };
    of.processes.div_ceil(groups) as f64 * (of.startup_s + of.part_s / servers as f64)
}

/// The costs of all layouts in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChenCosts {
    /// All data on all servers.
    pub one_dh_s: f64,
    /// Each process's part on one server.
    pub one_dv_s: f64,
    /// Each process's part on a group of its own.
    pub two_d_s: f64,
    /// The number of groups that costs least, and what it costs.
    pub best: (u64, f64),
}

/// [`ChenCosts`] with disjoint groups; `None` without a process or without a server.
pub fn costs(of: &ChenPattern) -> Option<ChenCosts> {
    let rest = Rest::Floor;
    (of.processes > 0 && of.servers > 0).then(|| ChenCosts {
        one_dh_s: one_dh_s(of),
        one_dv_s: one_dv_s(of),
        two_d_s: two_d_s(of, rest),
        best: best_groups(of, rest),
    })
}

/// The numbers of groups that one of them is always best of: the fewest groups for each number of processes that share
/// one. More groups with as many processes each only have fewer servers. At most `2 sqrt(p)`, ascending.
pub fn worthwhile_groups(processes: u64, servers: u64) -> impl Iterator<Item = u64> {
    let next = move |&groups: &u64| {
        let shared = processes.div_ceil(groups);
        (shared > 1).then(|| processes.div_ceil(shared - 1))
    };
    std::iter::successors(Some(1), next).take_while(move |&groups| groups <= servers)
}

/// The number of groups of least cost, the smallest of equals, with that cost in seconds. O(sqrt(p)).
pub fn best_groups(of: &ChenPattern, rest: Rest) -> (u64, f64) {
    let priced = worthwhile_groups(of.processes, of.servers).map(|groups| (groups, groups_s(of, groups, rest)));
    let better = |best: (u64, f64), next: (u64, f64)| if next.1 < best.1 { next } else { best };
    priced.reduce(better).expect("one group is always possible")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A cost as a fraction, in units of alpha: exact, for `s beta / alpha` a fraction too.
    #[derive(Clone, Copy)]
    struct Exact(i128, i128);

    impl Exact {
        fn minus(self, other: Exact) -> i128 {
            self.0 * other.1 - other.0 * self.1
        }
    }

    /// `rounds (1 + part / servers)` with `part` in sixteenths.
    fn exact(rounds: u64, part_16: i128, servers: u64) -> Exact {
        let servers = i128::from(servers);
        Exact(i128::from(rounds) * (16 * servers + part_16), 16 * servers)
    }

    const PARTS_16: [i128; 12] = [0, 1, 8, 16, 24, 48, 127, 128, 129, 160, 1600, 160_000];

    /// Every `(p, n)` with every part: alpha = 1.
    fn for_all(mut visit: impl FnMut(&ChenPattern, i128)) {
        for servers in 1..=32 {
            for processes in 1..=128 {
                for part_16 in PARTS_16 {
                    let part_s = part_16 as f64 / 16.0;
                    visit(&ChenPattern { processes, servers, startup_s: 1.0, part_s }, part_16);
                }
            }
        }
    }

    #[test]
    fn costs_are_the_papers_forms() {
        for_all(|of, part_16| {
            let (p, n) = (of.processes, of.servers);
            let is = |found: f64, rounds: u64, servers: u64| {
                let Exact(over, under) = exact(rounds, part_16, servers);
                let wanted = over as f64 / under as f64;
                assert!((found - wanted).abs() <= 1e-12 * wanted, "{of:?}: {found} {wanted}");
            };
            is(one_dh_s(of), p, n);
            is(one_dv_s(of), p.div_ceil(n), 1);
            if p <= n {
                is(two_d_s(of, Rest::Floor), 1, n / p);
                is(two_d_s(of, Rest::Ceil), 1, n.div_ceil(p));
                // Where p divides n the slide and the disjoint groups are one.
                assert_eq!(n % p == 0 || n / p == n.div_ceil(p), n % p == 0);
            } else {
                assert_eq!(two_d_s(of, Rest::Floor), one_dv_s(of));
            }
            assert!(two_d_s(of, Rest::Ceil) <= two_d_s(of, Rest::Floor));
        });
    }

    #[test]
    fn one_dv_beats_one_dh_when_processes_are_a_multiple_of_servers() {
        let mut violations = 0;
        for_all(|of, part_16| {
            let (p, n) = (of.processes, of.servers);
            if p < n {
                return;
            }
            let gain = exact(p, part_16, n).minus(exact(p.div_ceil(n), part_16, 1));
            let found = one_dh_s(of) - one_dv_s(of);
            if p % n == 0 {
                // Saves (p - p/n) alpha, whatever the size.
                assert!((found - (p - p / n) as f64).abs() <= 1e-9 * one_dh_s(of), "{of:?}: {found}");
                assert!(gain >= 0);
            }
            // (p - ceil(p/n)) alpha >= (ceil(p/n) - p/n) s beta, in sixteenths and times n.
            let (p, n, rounds) = (i128::from(p), i128::from(n), i128::from(p.div_ceil(n)));
            assert_eq!(gain >= 0, 16 * n * (p - rounds) >= (rounds * n - p) * part_16, "{of:?}");
            if gain < 0 {
                violations += 1;
                assert!(p % n != 0);
                assert!(found < 1e-9 * one_dh_s(of));
            }
        });
        assert!(violations > 0);
    }

    #[test]
    fn two_d_beats_one_dh_when_processes_divide_servers() {
        let mut violations = 0;
        for_all(|of, part_16| {
            let (p, n) = (of.processes, of.servers);
            if p >= n {
                return;
            }
            let gain = exact(p, part_16, n).minus(exact(1, part_16, n / p));
            let found = one_dh_s(of) - two_d_s(of, Rest::Floor);
            if n % p == 0 {
                // Saves (p - 1) alpha.
                assert!((found - (p - 1) as f64).abs() <= 1e-9 * one_dh_s(of), "{of:?}: {found}");
                assert!(gain >= 0);
            }
            // Violated iff (p - 1) alpha < s beta (1/floor(n/p) - p/n).
            let (p, n, group) = (i128::from(p), i128::from(n), i128::from(n / p));
            assert_eq!(gain < 0, 16 * (p - 1) * group * n < part_16 * (n - p * group), "{of:?}");
            if gain < 0 {
                violations += 1;
                assert!(n % p != 0);
                assert!(found < 1e-9 * one_dh_s(of));
            }
        });
        assert!(violations > 0);
    }

    #[test]
    fn the_stated_violations_and_optima_between() {
        let of = |processes, servers, part_s| ChenPattern { processes, servers, startup_s: 1.0, part_s };
        // p = 9, n = 8: 1-DV is better iff s beta <= 8 alpha.
        assert!(one_dv_s(&of(9, 8, 7.99)) < one_dh_s(&of(9, 8, 7.99)));
        assert_eq!(one_dv_s(&of(9, 8, 8.0)), one_dh_s(&of(9, 8, 8.0)));
        assert!(one_dv_s(&of(9, 8, 8.01)) > one_dh_s(&of(9, 8, 8.01)));
        let five = of(5, 8, 10.0);
        assert_eq!((one_dv_s(&five), two_d_s(&five, Rest::Floor)), (11.0, 11.0));
        assert_eq!(best_groups(&five, Rest::Floor), (2, 10.5));
        let nine = of(9, 8, 10.0);
        assert_eq!((one_dh_s(&nine), one_dv_s(&nine)), (20.25, 22.0));
        assert_eq!(best_groups(&nine, Rest::Floor), (2, 17.5));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_best_number_of_groups_is_the_exhaustive_one(
            processes in 1_u64..2000, servers in 1_u64..300, startup_s in 0.0_f64..1.0, part_s in 0.0_f64..20.0,
            ceil in any::<bool>(),
        ) {
            let of = ChenPattern { processes, servers, startup_s, part_s };
            let rest = if ceil { Rest::Ceil } else { Rest::Floor };
            let least = (1..=servers).map(|groups| groups_s(&of, groups, rest)).fold(f64::INFINITY, f64::min);
            let (groups, cost_s) = best_groups(&of, rest);
            prop_assert_eq!(cost_s, least);
            prop_assert_eq!(groups_s(&of, groups, rest), least);
            prop_assert!(worthwhile_groups(processes, servers).count() <= 2 * (processes as f64).sqrt() as usize + 1);
        }
    }
}
