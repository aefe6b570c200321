//! Which spatial class a signature is of.

use crate::factors::{Spatial, majority};
use crate::shape::{Level, Nest};
use crate::signature::{Item, Signature};

/// Accesses by class, with the largest dimension of each; and accesses of patterns that are run more than once.
pub(crate) struct Classes {
    pub spatial: [(u64, u32); 7],
    pub repeating: u64,
}

impl Classes {
    fn add(&mut self, spatial: Spatial, dimension: u32, accesses: u64) {
        let (count, largest) = &mut self.spatial[spatial as usize];
        *count = count.saturating_add(accesses);
        *largest = (*largest).max(dimension);
    }

    /// Of these parts of a signature. O(parts).
    pub fn of<'a>(signature: &'a Signature, items: impl Iterator<Item = Item<'a>>) -> Self {
        let mut classes = Self { spatial: [(0, 0); 7], repeating: 0 };
        for item in items {
            let accesses = signature.accesses_of(item);
            match item {
                Item::Single(_) => classes.add(Spatial::RandomStrided, 1, 1),
                Item::Nest { nest, .. } => {
                    let (spatial, dimension, repeating) = of_nest(nest);
                    classes.add(spatial, dimension, accesses);
                    classes.repeating += if repeating { accesses } else { 0 };
                }
                Item::Repeat { init, repeat } => {
                    let body: Vec<Item<'_>> = signature.body(init, repeat).collect();
                    let (spatial, dimension) = majority(&Classes::of(signature, body.into_iter()).spatial);
                    // What comes back with every turn is a pattern, though each turn has it only once.
                    let spatial = if spatial == Spatial::RandomStrided { Spatial::Combination } else { spatial };
                    classes.add(spatial, dimension, accesses);
                    classes.repeating += if repeat.count > 1 { accesses } else { 0 };
                }
            }
        }
        classes
    }
}

/// Class, dimension, and whether it is run more than once.
fn of_nest(nest: &Nest) -> (Spatial, u32, bool) {
    let again = |level: &&Level| level.count > 1 && level.deltas.iter().all(|&delta| delta == 0);
    let repeating = nest.reps > 1 || nest.levels.iter().any(|level| again(&level));
    let levels: Vec<&Level> = nest.levels.iter().filter(|level| level.count > 1 && !again(level)).collect();
    let Some(inner) = nest.levels.last() else { return (Spatial::Contiguous, 1, repeating) };
    let (spatial, dimension) = match levels[..] {
        // One place.
        [] => (if inner.count > 1 { Spatial::FixedStrided } else { Spatial::Contiguous }, 1),
        [only] if std::ptr::eq(only, inner) => of_cycle(inner),
        [only] => (
            if only.deltas.iter().all(|&delta| delta < 0) { Spatial::NegativeStrided } else { Spatial::FixedStrided },
            1,
        ),
        [_, _] => (Spatial::TwoDStrided, 2),
        _ => (Spatial::KdStrided, levels.len() as u32),
    };
    (spatial, dimension, repeating)
}

fn of_cycle(level: &Level) -> (Spatial, u32) {
    let steps = (level.deltas.len() * level.sizes.len()) as u64;
    let mut pairs = (0..steps.min(level.count))
        .map(|step| (level.deltas[step as usize % level.deltas.len()], level.sizes[step as usize % level.sizes.len()]));
    if pairs.all(|(delta, size)| delta as u64 == size && delta > 0) {
        return (Spatial::Contiguous, 1);
    }
    match level.deltas[..] {
        [delta] if delta < 0 => (Spatial::NegativeStrided, 1),
        [_] => (Spatial::FixedStrided, 1),
        // A row, then on to the next.
        [first, ref between @ .., _] if between.iter().all(|&delta| delta == first) => (Spatial::TwoDStrided, 2),
        _ => (Spatial::KdStrided, 2),
    }
}
