//! Consecutive blocks dealt to servers in a fixed order so that the fullest server has the least load: exactly
//! (math C.3, method 4).

/// Pairs of break points that the choice among equal optima may look at.
const MOST_PAIRS: usize = 1 << 22;

/// Divides blocks `0..blocks` into one run for each of `servers` servers, in order, so that the greatest load is the
/// least possible. `load(server, from, to)` is the load in seconds of a server that holds blocks `from..to`: finite, 0
/// for no blocks, and no less with more blocks. Servers need not be equal, and a load need not be a sum over blocks.
///
/// Gives the end of each run. Of equal optima the one with the least sum of squares, then with more blocks on earlier
/// servers; where these would be too many to look at, break points midway between their least and greatest places.
/// Without any load: equal runs, the longer ones first.
///
/// The greatest load is found by bisection over the doubles themselves with greedy filling (at most 64 steps), so it is
/// exact, not within a tolerance. O(64 x servers x log blocks) loads, and up to 2^22 for the choice among equals.
///
/// # Panics
/// Without servers.
pub fn least_maximum(servers: usize, blocks: usize, load: impl Fn(usize, usize, usize) -> f64) -> Vec<usize> {
    assert!(servers > 0, "blocks need a server");
    if (0..servers).all(|server| load(server, 0, blocks) == 0.0) {
        return (1..=servers).map(|server| equal_end(server, servers, blocks)).collect();
    }
    let most = least_bound(servers, blocks, &load);
    let latest = fill(servers, blocks, &load, most).expect("the least bound can be kept");
    let earliest = fill_backwards(servers, blocks, &load, most);
    let windows = || earliest.iter().zip(&latest).map(|(first, last)| last - first + 1);
    let pairs = windows().zip(windows().skip(1)).fold(0_usize, |sum, (a, b)| sum.saturating_add(a.saturating_mul(b)));
    if pairs > MOST_PAIRS {
        return midway(&earliest, &latest, &load, most);
    }
    most_even(&earliest, &latest, &load, most)
}

/// End of run `server` (from 1) of equal runs.
fn equal_end(server: usize, servers: usize, blocks: usize) -> usize {
    let (each, more) = (blocks / servers, blocks % servers);
    server * each + server.min(more)
}

/// Greatest end of a run from `from` that keeps the bound.
fn reach(server: usize, from: usize, blocks: usize, load: &impl Fn(usize, usize, usize) -> f64, most: f64) -> usize {
    let (mut fits, mut beyond) = (from, blocks + 1);
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        if load(server, from, middle) <= most { fits = middle } else { beyond = middle }
    }
    fits
}

/// Ends with every server as full as the bound lets it be; `None` when blocks are left over. Greedy is right: a server
/// that stops earlier leaves more to the others.
fn fill(servers: usize, blocks: usize, load: &impl Fn(usize, usize, usize) -> f64, most: f64) -> Option<Vec<usize>> {
    let mut from = 0;
    let ends: Vec<usize> = (0..servers)
        .map(|server| {
            from = reach(server, from, blocks, load, most);
            from
        })
        .collect();
    (from == blocks).then_some(ends)
}

/// Least ends: the last servers as full as the bound lets them be.
fn fill_backwards(servers: usize, blocks: usize, load: &impl Fn(usize, usize, usize) -> f64, most: f64) -> Vec<usize> {
    let mut ends = vec![blocks; servers];
    for server in (1..servers).rev() {
        let to = ends[server];
        let (mut beyond, mut fits) = (0, to);
        // Least start that keeps the bound; the start 0 itself is tried last.
        while beyond < fits {
            let middle = beyond + (fits - beyond) / 2;
            if load(server, middle, to) <= most { fits = middle } else { beyond = middle + 1 }
        }
        ends[server - 1] = fits;
    }
    ends
}

/// The least bound that can be kept: exact, by bisection over the bit patterns of doubles.
fn least_bound(servers: usize, blocks: usize, load: &impl Fn(usize, usize, usize) -> f64) -> f64 {
    let greatest = |ends: &[usize]| {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let loads = ends.iter().zip(starts).enumerate().map(|(server, (&to, from))| load(server, from, to));
        loads.fold(0.0_f64, f64::max)
    };
    if fill(servers, blocks, load, 0.0).is_some() {
        return 0.0;
    }
    let (mut too_low, mut kept) = (0.0_f64.to_bits(), load(0, 0, blocks).to_bits());
    while kept - too_low > 1 {
        let middle = too_low + (kept - too_low) / 2;
        match fill(servers, blocks, load, f64::from_bits(middle)) {
            // The load that was reached may be well below the bound.
            Some(ends) => kept = middle.min(greatest(&ends).to_bits()),
            None => too_low = middle,
        }
    }
    f64::from_bits(kept)
}

/// Of all ends between `earliest` and `latest` that keep the bound, those of the least sum of squares.
fn most_even(
    earliest: &[usize],
    latest: &[usize],
    load: &impl Fn(usize, usize, usize) -> f64,
    most: f64,
) -> Vec<usize> {
    let servers = earliest.len();
    // best[server][from - first]: sum of squares of this server and those after it, and where it ends.
    let mut best: Vec<Vec<(f64, usize)>> = Vec::with_capacity(servers);
    for server in (0..servers).rev() {
        let (first, last) = if server == 0 { (0, 0) } else { (earliest[server - 1], latest[server - 1]) };
        let after = best.last();
        let row = (first..=last).map(|from| {
            let mut found = (f64::INFINITY, from);
            // Greatest end first: it wins ties.
            for to in (earliest[server].max(from)..=latest[server]).rev() {
                let own = load(server, from, to);
                if own > most {
                    continue;
                }
                let rest = after.map_or(0.0, |row| row[to - earliest[server]].0);
                if own * own + rest < found.0 {
                    found = (own * own + rest, to);
                }
            }
            found
        });
        let row = row.collect();
        best.push(row);
    }
    let mut from = 0;
    best.iter()
        .rev()
        .enumerate()
        .map(|(server, row)| {
            let first = if server == 0 { 0 } else { earliest[server - 1] };
            from = row[from - first].1;
            from
        })
        .collect()
}

/// Ends midway between their bounds, as far as the load allows.
fn midway(earliest: &[usize], latest: &[usize], load: &impl Fn(usize, usize, usize) -> f64, most: f64) -> Vec<usize> {
    let mut from = 0;
    let ends = earliest.iter().zip(latest).enumerate();
    ends.map(|(server, (&first, &last))| {
        let reach = reach(server, from, last, load, most);
        from = (first + (last - first) / 2).max(from).min(reach);
        from
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every way to end runs, as a list of ends.
    fn all_partitions(servers: usize, blocks: usize) -> Vec<Vec<usize>> {
        let mut lists = vec![vec![]];
        for server in 0..servers {
            let longer = lists.into_iter().flat_map(|list: Vec<usize>| {
                let from = list.last().copied().unwrap_or(0);
                let ends = if server + 1 == servers { blocks..=blocks } else { from..=blocks };
                ends.map(move |end| list.iter().copied().chain([end]).collect())
            });
            lists = longer.collect();
        }
        lists
    }

    fn loads(ends: &[usize], load: &impl Fn(usize, usize, usize) -> f64) -> Vec<f64> {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        ends.iter().zip(starts).enumerate().map(|(server, (&to, from))| load(server, from, to)).collect()
    }

    #[test]
    fn equal_blocks_are_dealt_evenly_and_the_longer_runs_come_first() {
        assert_eq!(least_maximum(4, 10, |_, from, to| (to - from) as f64), [3, 6, 8, 10]);
        assert_eq!(least_maximum(4, 10, |_, _, _| 0.0), [3, 6, 8, 10]);
        assert_eq!(least_maximum(3, 0, |_, from, to| (to - from) as f64), [0, 0, 0]);
        assert_eq!(least_maximum(3, 2, |_, from, to| (to - from) as f64), [1, 2, 2]);
    }

    #[test]
    fn a_server_that_is_too_slow_for_any_block_has_none() {
        let load = |server: usize, from: usize, to: usize| {
            if from == to { 0.0 } else { [10.0, 0.0][server] + (to - from) as f64 }
        };
        assert_eq!(least_maximum(2, 8, load), [0, 8]);
    }

    #[test]
    fn too_many_equal_optima_are_not_all_looked_at() {
        // One block has all the load: every other break point is as good.
        let load = |_: usize, from: usize, to: usize| if (from..to).contains(&5000) { 1.0 } else { 0.0 };
        let ends = least_maximum(4, 10_000, load);
        assert!(ends.is_sorted() && ends[3] == 10_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_greatest_load_is_the_least_of_all_partitions(
            costs in prop::collection::vec(0_u32..100, 0..11),
            servers in prop::collection::vec((0.0_f64..50.0, 0.1_f64..5.0), 1..5),
        ) {
            // A startup per server that holds anything, then its own speed.
            let before: Vec<u32> = costs.iter().scan(0, |sum, c| { *sum += c; Some(*sum) }).collect();
            let sum = |end: usize| if end == 0 { 0 } else { before[end - 1] };
            let load = |server: usize, from: usize, to: usize| {
                let (startup, speed) = servers[server];
                if sum(to) == sum(from) { 0.0 } else { startup + f64::from(sum(to) - sum(from)) * speed }
            };
            let ends = least_maximum(servers.len(), costs.len(), load);
            prop_assert!(ends.is_sorted());
            prop_assert_eq!(*ends.last().unwrap(), costs.len());
            let found = loads(&ends, &load);
            let greatest = |loads: &[f64]| loads.iter().fold(0.0_f64, |max, &l| max.max(l));
            let squares = |loads: &[f64]| loads.iter().map(|l| l * l).sum::<f64>();
            let all: Vec<Vec<f64>> = all_partitions(servers.len(), costs.len()).iter().map(|e| loads(e, &load)).collect();
            let least = all.iter().map(|l| greatest(l)).fold(f64::INFINITY, f64::min);
            prop_assert_eq!(greatest(&found), least);
            if least > 0.0 {
                let even = all.iter().filter(|l| greatest(l) == least).map(|l| squares(l)).fold(f64::INFINITY, f64::min);
                prop_assert!(squares(&found) <= even * (1.0 + 1e-12));
            }
        }
    }
}
