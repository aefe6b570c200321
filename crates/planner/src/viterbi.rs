//! Optimal segmentation: one candidate per chunk, a price for every change (`beyond.md` 2).

/// The path of least cost through `chunks` chunks: `cost(chunk, row)` fills `row[l]` with the cost of the chunk under
/// candidate `l` of `candidates`; every change of candidate from a chunk to the next costs `change`. Ties stay with
/// the candidate before, then with the lower number. Empty without chunks or candidates.
///
/// Exact in O(chunks x candidates) time and one bit for each of them.
pub(crate) fn cheapest_path(
    chunks: usize,
    candidates: usize,
    change: f64,
    mut cost: impl FnMut(usize, &mut [f64]),
) -> Vec<usize> {
    if chunks == 0 || candidates == 0 {
        return Vec::new();
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
    for chunk in (0..chunks).rev() {
        path[chunk] = at;
        if changed[chunk * words + at / 64] >> (at % 64) & 1 == 1 {
            at = origin[chunk];
        }
    }
    path
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
            let path = cheapest_path(costs.len(), costs[0].len(), change, |c, row| row.copy_from_slice(&costs[c]));
            prop_assert_eq!(price(&path, &costs, change), exhaustive(&costs, change));
        }
    }

    #[test]
    fn more_candidates_than_one_word_holds() {
        // Chunk c wants candidate 10 c, and changes are cheap.
        let path = cheapest_path(20, 200, 0.5, |c, row| {
            row.iter_mut().enumerate().for_each(|(l, cost)| *cost = if l == 10 * c { 0.0 } else { 1.0 });
        });
        assert_eq!(path, (0..20).map(|c| 10 * c).collect::<Vec<_>>());
        assert!(cheapest_path(0, 3, 1.0, |_, _| ()).is_empty());
    }
}
