//! Where servers stand in tables: by their numbers, the metadata tier behind them.

use crate::error::SimulateError;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Profile};

/// What each server of the tables costs.
pub(crate) struct Places {
    /// The tier of each, and its profile; `None` where the cluster has no server of that number. The metadata tier counts as
    /// the one behind the last tier.
    pub(crate) of: Vec<Option<(usize, Profile)>>,
    /// The place of the metadata tier, where a layout names it.
    pub(crate) meta: Option<usize>,
    /// Requests that the metadata tier serves side by side.
    pub(crate) at_once: u32,
    /// By place, whether the sub-requests of a request there are carried out one after the other; empty where none are.
    in_turn: Vec<bool>,
}

impl Places {
    /// The servers of `cluster`, with the metadata tier if one of `layouts` names it.
    ///
    /// # Errors
    /// A layout names a server that the cluster does not have.
    pub(crate) fn new(cluster: &Cluster, layouts: &[Layout]) -> Result<Self, SimulateError> {
        let numbered =
            || cluster.tiers.iter().enumerate().flat_map(|(tier, of)| of.servers.iter().map(move |s| (s, tier, of)));
        let mut of = vec![None; numbered().map(|(server, ..)| server.index() + 1).max().unwrap_or(0)];
        numbered().for_each(|(server, tier, row)| of[server.index()] = Some((tier, row.profile)));
        let at_once = cluster.meta.as_ref().map_or(1, |meta| meta.at_once.max(1));
        let mut places = Self { of, meta: None, at_once, in_turn: Vec::new() };
        for (file, layout) in layouts.iter().enumerate() {
            for server in layout.servers() {
                if server == ServerId::META && !places.add_meta(cluster) {
                    return Err(SimulateError::UnknownServer { file, server });
                }
                if !places.of.get(places.index(server)).is_some_and(Option::is_some) {
                    return Err(SimulateError::UnknownServer { file, server });
                }
            }
        }
        let tiers: Vec<bool> = cluster.all_tiers().map(|tier| tier.in_turn).collect();
        if tiers.contains(&true) {
            let is_in_turn = |place: &Option<(usize, Profile)>| place.is_some_and(|(tier, _)| tiers[tier]);
            places.in_turn = places.of.iter().map(is_in_turn).collect();
        }
        Ok(places)
    }

    /// Gives the metadata tier a place, if it has none; whether the cluster has one.
    pub(crate) fn add_meta(&mut self, cluster: &Cluster) -> bool {
        if let (Some(meta), None) = (&cluster.meta, self.meta) {
            self.meta = Some(self.of.len());
            self.of.push(Some((cluster.tiers.len(), meta.profile)));
        }
        self.meta.is_some()
    }

    /// Where a server stands that a layout names.
    #[inline]
    pub(crate) fn index(&self, server: ServerId) -> usize {
        match self.meta {
            Some(meta) if server == ServerId::META => meta,
            _ => server.index(),
        }
    }

    /// Whether a request asks the server that stands at `index` when it has the answer of those before.
    #[inline]
    pub(crate) fn is_in_turn(&self, index: usize) -> bool {
        self.in_turn.get(index).is_some_and(|&in_turn| in_turn)
    }

    /// Whether any server is asked so.
    #[inline]
    pub(crate) fn has_turns(&self) -> bool {
        !self.in_turn.is_empty()
    }
}
