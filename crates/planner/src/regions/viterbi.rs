//! Optimal segmentation: one candidate per chunk, a price for every change (`beyond.md` 2).

/// The cheapest path with a limit on its changes: the price of a change is raised until `most_changes` are enough. Of
/// all paths on the lower convex hull of cost by changes it is the one with most changes, and the price `change` counts
/// where it already makes few enough. Each step finds a corner of the hull or the answer.
/// O(chunks x candidates) a step, few steps.
pub(crate) fn path_within(
    chunks: usize,
    candidates: usize,
    change: f64,
    most_changes: usize,
    mut cost: impl FnMut(usize, &mut [f64]),
) -> Vec<usize> {
    let mut solve = |price: f64| {
        let (path, total) = cheapest_path(chunks, candidates, price, &mut cost);
        let changes = path.windows(2).filter(|pair| pair[0] != pair[1]).count();
        // Without what its changes cost; with an infinite price there are none.
        let own = if changes == 0 { total } else { total - price * changes as f64 };
        (path, own, changes)
    };
    let mut many = solve(change);
    if many.2 <= most_changes {
        return many.0;
    }
    let mut few = solve(f64::INFINITY);
    // Every step takes a corner strictly between the two; a bound all the same, since costs are rounded.
    for _ in 0..64 {
        let price = (few.1 - many.1) / (many.2 - few.2) as f64;
        if !(price.is_finite() && price > change) {
            break;
        }
        let next = solve(price);
        let on_line = few.1 + price * few.2 as f64;
        if next.1 + price * next.2 as f64 >= on_line - 1e-12 * on_line.abs() || next.2 >= many.2 || next.2 <= few.2 {
            break;
        }
        if next.2 > most_changes { many = next } else { few = next }
    }
    few.0
}

/// The path of least cost through `chunks` chunks: `cost(chunk, row)` fills `row[l]` with the cost of the chunk under
/// candidate `l` of `candidates`; every change of candidate from a chunk to the next costs `change`. Ties stay with
/// the candidate before, then with the lower number. Gives the cost, too. Empty without chunks or candidates.
///
/// Exact in O(chunks x candidates) time and one bit for each of them.
pub(crate) fn cheapest_path(
    chunks: usize,
    candidates: usize,
    change: f64,
    mut cost: impl FnMut(usize, &mut [f64]),
) -> (Vec<usize>, f64) {
    if chunks == 0 || candidates == 0 {
        return (Vec::new(), 0.0);
    }
    let mut total = vec![0.0; candidates];
    let mut row = vec![0.0; candidates];
    // changed[c]: bit l set when the best path to (c, l) comes from the best candidate of chunk c - 1, `origin[c]`.
    let words = candidates.div_ceil(64);
    let mut changed = vec![0_u64; chunks * words];
    let mut origin = vec![0; chunks];
    cost(0, &mut total);
    for chunk in 1..chunks {
        let least = least(&total);
        origin[chunk] = least;
        let from_least = total[least] + change;
        cost(chunk, &mut row);
        let bits = &mut changed[chunk * words..][..words];
        for (l, (total, &cost)) in total.iter_mut().zip(&row).enumerate() {
            if from_least < *total {
                bits[l / 64] |= 1 << (l % 64);
                *total = from_least + cost;
            } else {
                *total += cost;
            }
        }
    }
    let mut path = vec![0; chunks];
    let mut at = least(&total);
    let of_path = total[at];
    for chunk in (0..chunks).rev() {
        path[chunk] = at;
        if changed[chunk * words + at / 64] >> (at % 64) & 1 == 1 {
            at = origin[chunk];
        }
    }
    (path, of_path)
}

fn least(values: &[f64]) -> usize {
    let mut best = 0;
    for (l, value) in values.iter().enumerate() {
        if *value < values[best] {
            best = l;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn price(path: &[usize], costs: &[Vec<f64>], change: f64) -> f64 {
        let changes = path.windows(2).filter(|w| w[0] != w[1]).count();
        path.iter().zip(costs).map(|(&l, row)| row[l]).sum::<f64>() + change * changes as f64
    }

    fn exhaustive(costs: &[Vec<f64>], change: f64) -> f64 {
        let (chunks, candidates) = (costs.len(), costs[0].len());
        let mut path = vec![0; chunks];
        let mut best = f64::INFINITY;
        loop {
            best = best.min(price(&path, costs, change));
            let Some(place) = path.iter().position(|&l| l + 1 < candidates) else { return best };
            path[place] += 1;
            path[..place].fill(0);
        }
    }

    /// Least cost, changes apart, of all paths with this many changes.
    fn least_by_changes(costs: &[Vec<f64>]) -> Vec<f64> {
        let (chunks, candidates) = (costs.len(), costs[0].len());
        let mut least = vec![f64::INFINITY; chunks];
        let mut path = vec![0; chunks];
        loop {
            let changes = path.windows(2).filter(|w| w[0] != w[1]).count();
            least[changes] = least[changes].min(price(&path, costs, 0.0));
            let Some(place) = path.iter().position(|&l| l + 1 < candidates) else { return least };
            path[place] += 1;
            path[..place].fill(0);
        }
    }

    proptest! {
        #[test]
        fn is_the_exhaustive_optimum(
            costs in (1_usize..6, 1_usize..5).prop_flat_map(|(chunks, candidates)| {
                prop::collection::vec(prop::collection::vec(0_u32..50, candidates), chunks)
            }),
            change in 0_u32..30,
        ) {
            let costs: Vec<Vec<f64>> = costs.iter().map(|row| row.iter().map(|&c| f64::from(c)).collect()).collect();
            let change = f64::from(change);
            let (path, total) =
                cheapest_path(costs.len(), costs[0].len(), change, |c, row| row.copy_from_slice(&costs[c]));
            prop_assert_eq!(price(&path, &costs, change), exhaustive(&costs, change));
            prop_assert_eq!(total, exhaustive(&costs, change));
        }

        #[test]
        fn with_a_limit_it_is_the_corner_of_the_hull(
            costs in (1_usize..7, 1_usize..5).prop_flat_map(|(chunks, candidates)| {
                prop::collection::vec(prop::collection::vec(0_u32..50, candidates), chunks)
            }),
            change in 0_u32..9,
            most in 0_usize..5,
        ) {
            let costs: Vec<Vec<f64>> = costs.iter().map(|row| row.iter().map(|&c| f64::from(c)).collect()).collect();
            let path = path_within(costs.len(), costs[0].len(), f64::from(change), most, |c, row| {
                row.copy_from_slice(&costs[c]);
            });
            let changes = path.windows(2).filter(|pair| pair[0] != pair[1]).count();
            prop_assert!(changes <= most);
            let own = price(&path, &costs, 0.0);
            let least = least_by_changes(&costs);
            prop_assert_eq!(own, least[changes]);
            // At these prices of a change nothing is cheaper.
            let (mut from, mut to) = (f64::from(change), f64::INFINITY);
            for (other, cost) in least.iter().enumerate() {
                let slope = (own - cost) / (other as f64 - changes as f64);
                if other > changes { from = from.max(slope) } else if other < changes { to = to.min(slope) }
            }
            prop_assert!(from <= to, "{from} {to}");
            // And just below them, what is cheaper has too many changes.
            if from > f64::from(change) {
                let at = from - 1e-3;
                let cheaper = (0..least.len()).min_by(|&a, &b| {
                    (least[a] + at * a as f64).total_cmp(&(least[b] + at * b as f64))
                });
                prop_assert!(cheaper.unwrap() > most);
            }
        }
    }

    #[test]
    fn more_candidates_than_one_word_holds() {
        // Chunk c wants candidate 10 c, and changes are cheap.
        let (path, _) = cheapest_path(20, 200, 0.5, |c, row| {
            row.iter_mut().enumerate().for_each(|(l, cost)| *cost = if l == 10 * c { 0.0 } else { 1.0 });
        });
        assert_eq!(path, (0..20).map(|c| 10 * c).collect::<Vec<_>>());
        assert!(cheapest_path(0, 3, 1.0, |_, _| ()).0.is_empty());
        assert!(path_within(0, 3, 1.0, 2, |_, _| ()).is_empty());
    }
}
