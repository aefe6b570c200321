//! Places of a server that serves several requests side by side.

use stripewise_model::NameCosts;

/// Until when each place is taken. What comes takes the place that is free first, so requests begin in the order in which they
/// come, as on an emulated server.
#[derive(Debug)]
pub(crate) struct SideBySide {
    free_ns: Vec<u64>,
    /// What operations on names cost there.
    pub(crate) names: NameCosts,
}

impl SideBySide {
    /// That many places, all free.
    pub(crate) fn new(places: u32, names: NameCosts) -> Self {
        Self { free_ns: vec![0; places as usize], names }
    }

    /// Takes the place that is free first for `takes_ns`, for a request that comes at `now_ns`: begin and end. O(places).
    pub(crate) fn take(&mut self, now_ns: u64, takes_ns: u64) -> (u64, u64) {
        let first = self.free_ns.iter_mut().min().expect("a server has a place");
        let begins_ns = now_ns.max(*first);
        *first = begins_ns.saturating_add(takes_ns);
        (begins_ns, *first)
    }
}
