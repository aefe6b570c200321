//! Borders in the local search: regions are split, joined, and their borders moved, when the whole gains by it.
//!
//! A split lets a part of a region have the fast servers when not all of it may; moving the border then fills them to
//! the byte. Joining undoes what segmentation made of chance differences in heat.

use crate::regions::refine::{PlacedRegion, PlanState, RegionService, Search, best};
use rayon::prelude::*;

/// Regions that are looked at for a split, dearest first.
const SPLIT: usize = 12;

/// With more regions than this their borders stay: each is so small that moving its border gains little.
const SHIFTED: usize = 32;

impl Search<'_> {
    /// Joins, splits and shifts. The result is never worse than `state`.
    pub(crate) fn reshape(&self, state: PlanState) -> PlanState {
        let state = self.join_neighbours(state);
        let state = self.split(state);
        self.shift(state)
    }

    /// The state with the places from `at` on replaced.
    fn with(&self, state: &PlanState, at: usize, removed: usize, places: Vec<PlacedRegion>) -> PlanState {
        let mut all = state.places.clone();
        all.splice(at..at + removed, places);
        self.summed(all)
    }

    /// Takes the best of `tried` if it beats `state`.
    fn take(&self, state: &mut PlanState, tried: Vec<PlanState>) -> bool {
        let ranked = tried.into_par_iter().map(|tried| (self.rank(&tried), tried)).collect::<Vec<_>>();
        match best(ranked) {
            Some((rank, better)) if rank.beats(&self.rank(state)) => {
                *state = better;
                true
            }
            _ => false,
        }
    }

    fn place(&self, file: usize, chunks: std::ops::Range<usize>, widths: stripewise_model::TierWidths) -> PlacedRegion {
        PlacedRegion { file, way: self.way(file, chunks.clone(), widths), chunks }
    }

    /// Neighbours that do as well with one way as with two become one region.
    pub(crate) fn join_neighbours(&self, state: PlanState) -> PlanState {
        let mut state = self.join(state);
        let mut at = 0;
        while at + 1 < state.places.len() {
            let (a, b) = (&state.places[at], &state.places[at + 1]);
            if a.file != b.file {
                at += 1;
                continue;
            }
            let (file, chunks) = (a.file, a.chunks.start..b.chunks.end);
            let ways = [a.way.widths, b.way.widths];
            let tried: Vec<PlanState> = ways
                .into_par_iter()
                .map(|widths| self.with(&state, at, 2, vec![self.place(file, chunks.clone(), widths)]))
                .collect();
            // The joined region may do with its next neighbour, too: stay.
            if !self.take(&mut state, tried) {
                at += 1;
            }
        }
        state
    }

    /// Splits regions where two ways do better than one by more than a region costs.
    fn split(&self, mut state: PlanState) -> PlanState {
        let mut order: Vec<usize> = (0..state.places.len()).collect();
        let costs: Vec<f64> =
            state.places.iter().map(|place| self.pricer.share_s(&place.way.load, &state.load)).collect();
        order.sort_by(|&a, &b| costs[b].total_cmp(&costs[a]));
        order.truncate(SPLIT);
        // From the back: earlier indices stay as they are.
        order.sort_unstable_by(|a, b| b.cmp(a));
        for at in order {
            let place = state.places[at].clone();
            let regions = state.places.iter().filter(|other| other.file == place.file).count();
            if place.chunks.len() < 2 || regions >= self.max_regions {
                continue;
            }
            let ways = self.ways(&place);
            let mut cuts: Vec<usize> = (1..4).map(|quarter| place.chunks.len() * quarter / 4).collect();
            cuts.retain(|&cut| cut > 0 && cut < place.chunks.len());
            cuts.dedup();
            let halves = |cut: usize, way: &RegionService| {
                let (left, right) =
                    (place.chunks.start..place.chunks.start + cut, place.chunks.start + cut..place.chunks.end);
                let own = |chunks| self.place(place.file, chunks, place.way.widths);
                let other = |chunks| self.place(place.file, chunks, way.widths);
                [vec![other(left.clone()), own(right.clone())], vec![own(left), other(right)]]
            };
            let tried: Vec<PlanState> = ways
                .par_iter()
                .filter(|way| way.widths != place.way.widths)
                .flat_map_iter(|way| cuts.iter().flat_map(|&cut| halves(cut, way)).collect::<Vec<_>>())
                .map(|places| self.with(&state, at, 1, places))
                .collect();
            self.take(&mut state, tried);
        }
        state
    }

    /// Moves borders by ever fewer chunks.
    fn shift(&self, mut state: PlanState) -> PlanState {
        if state.places.len() > SHIFTED {
            return state;
        }
        for at in 0..state.places.len().saturating_sub(1) {
            let mut step = state.places[at].chunks.len().max(state.places[at + 1].chunks.len()).next_power_of_two() / 2;
            while step > 0 && state.places[at].file == state.places[at + 1].file {
                let (a, b) = (&state.places[at], &state.places[at + 1]);
                let border = a.chunks.end;
                let borders = [border.wrapping_sub(step), border + step];
                let inside = |&moved: &usize| moved > a.chunks.start && moved < b.chunks.end;
                let tried: Vec<PlanState> = borders
                    .into_iter()
                    .filter(inside)
                    .map(|moved| {
                        let left = self.place(a.file, a.chunks.start..moved, a.way.widths);
                        let right = self.place(b.file, moved..b.chunks.end, b.way.widths);
                        self.with(&state, at, 2, vec![left, right])
                    })
                    .collect();
                if !self.take(&mut state, tried) {
                    step /= 2;
                }
            }
        }
        state
    }
}
