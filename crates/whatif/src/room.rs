//! What the servers of a pool have room for, as planning counts it.

use crate::error::WhatifError;
use crate::words::milliseconds;
use std::collections::HashMap;
use std::sync::Arc;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::Cluster;
use stripewise_planner::{PlanError, PlannedBy, within_room};
use stripewise_store::{Error as StoreError, Inode, Room, Store};

/// By so much longer a plan has to be for want of room that it is worth saying.
const WORTH_SAYING: f64 = 1.005;

/// The rooms of a pool's servers, and the files that are planned.
pub(crate) struct Rooms {
    store: Arc<Store>,
    /// Those that exist, in the order of the files.
    inodes: Vec<Option<Arc<Inode>>>,
    /// Bytes that each real server can take beside its reserve. An emulated one stands for a device that is not there:
    /// the tier's capacity counts.
    spare: HashMap<ServerId, u64>,
    /// Bytes that the planned files have on it.
    own: HashMap<ServerId, u64>,
    /// Bytes of the files, in their order, that are holes: they need no room.
    holes: Vec<u64>,
    /// Bytes that a tier's capacity leaves on it beside other files.
    capacity: HashMap<ServerId, u64>,
}

impl Rooms {
    /// Measures them; a server that is not there, or is read-only, has no room. `others` are the bytes of other files.
    pub(crate) fn measure(
        store: Arc<Store>,
        inodes: Vec<Option<Arc<Inode>>>,
        others: &HashMap<ServerId, u64>,
    ) -> Result<Self, StoreError> {
        let pool = store.pool();
        let real = || pool.servers.iter().filter(|server| server.emulate.is_none());
        let rooms: HashMap<ServerId, Option<Room>> =
            real().map(|server| (server.id, store.room(server.id).ok())).collect();
        let sharing = |room: &Room| rooms.values().flatten().filter(|other| other.device == room.device).count() as u64;
        let spare = |room: &Room| room.spare_bytes(pool.default_width_bytes) / sharing(room).max(1);
        let spare = rooms.iter().map(|(&id, room)| (id, room.as_ref().map_or(0, spare))).collect();
        let capacity = pool.servers.iter().filter_map(|server| {
            let limit = server.capacity_bytes?;
            Some((server.id, limit.saturating_sub(others.get(&server.id).copied().unwrap_or(0))))
        });
        let capacity = capacity.collect();
        let mut own: HashMap<ServerId, u64> = HashMap::new();
        let mut holes = Vec::new();
        for inode in &inodes {
            let Some(inode) = inode else {
                holes.push(0);
                continue;
            };
            let allocated = inode.allocated()?;
            let held_bytes = allocated.iter().map(|(_, bytes)| bytes).sum::<u64>();
            let held_bytes = held_bytes.saturating_add(inode.layout()?.head_in_inode_bytes());
            holes.push(inode.attributes()?.size_bytes.saturating_sub(held_bytes));
            for (id, bytes) in allocated {
                *own.entry(id).or_default() += bytes;
            }
        }
        Ok(Self { store, inodes, spare, own, holes, capacity })
    }

    /// What a file of that index needs room for, of which a plan counts `extent_bytes`.
    pub(crate) fn needed(&self, file: usize, extent_bytes: u64) -> u64 {
        extent_bytes.saturating_sub(self.holes[file])
    }

    /// What server `id` may hold of the planned files, by what `of(spare, own)` makes of its spare bytes and their own.
    fn room(&self, id: ServerId, of: fn(u64, u64) -> u64) -> u64 {
        let own = self.own.get(&id).copied().unwrap_or(0);
        let room = self.spare.get(&id).map_or(u64::MAX, |&spare| of(spare, own));
        room.min(self.capacity.get(&id).copied().unwrap_or(u64::MAX))
    }

    /// Plans files of `needed` bytes within the rooms: `free` plans on `cluster` itself, `on` on another, and `kept` prices
    /// the present layouts. With the plan comes what room costs it, if it costs anything.
    pub(crate) fn plan(
        &self,
        cluster: &Cluster,
        needed: u64,
        free: impl Fn() -> Result<PlannedBy, PlanError>,
        on: impl Fn(&Cluster) -> Result<PlannedBy, PlanError>,
        kept: impl Fn() -> Result<PlannedBy, PlanError>,
    ) -> Result<(PlannedBy, Option<String>), WhatifError> {
        let limited = |of| within_room(cluster, |id| self.room(id, of), needed);
        // What the files have now is given back in the end.
        let mut within = limited(u64::saturating_add);
        let mut planned = match &within {
            None => free()?,
            Some(within) => self.on(within, &on)?,
        };
        // Old bytes go when all of a file has been copied: what fits in the end may not fit on the way. Then the files get
        // no more than they have or is spare, and then no more than is spare.
        let mut fits = self.check(&planned);
        for of in [u64::max as fn(u64, u64) -> u64, |spare, _| spare] {
            let Err(error @ StoreError::NoRoom { .. }) = &fits else { break };
            let no_room = || WhatifError::Asked(error.to_string());
            within = limited(of);
            let Some(within) = &within else { return Err(no_room()) };
            planned = self.on(within, &on).map_err(|_| no_room())?;
            fits = self.check(&planned);
            if self.inodes.iter().all(Option::is_some)
                && let Ok(kept) = kept()
                && (fits.is_err() || kept.plan.total.planned_s <= planned.plan.total.planned_s)
            {
                (planned, fits) = (kept, Ok(()));
            }
        }
        if let Err(error @ StoreError::NoRoom { .. }) = fits {
            return Err(error.into());
        }
        // Without room as a limit there is nothing to say, nor where no plan is found without it either.
        let Some((within, free)) = within.zip(free().ok()) else { return Ok((planned, None)) };
        let (limited_s, free_s) = (planned.plan.total.planned_s, free.plan.total.planned_s);
        let said = (limited_s > free_s * WORTH_SAYING).then(|| {
            format!(
                "space limits the gain: {}; with room for all, {} would be predicted in place of {}",
                self.tight(&within),
                milliseconds(free_s),
                milliseconds(limited_s)
            )
        });
        Ok((planned, said))
    }

    fn on(
        &self,
        within: &Cluster,
        on: &impl Fn(&Cluster) -> Result<PlannedBy, PlanError>,
    ) -> Result<PlannedBy, WhatifError> {
        let no_room = |error| WhatifError::Asked(format!("{error}; {}: free space there", self.tight(within)));
        let mut planned = on(within).map_err(no_room)?;
        planned.plan.in_pool_order();
        Ok(planned)
    }

    /// Whether the files can be moved to their planned layouts one after the other.
    fn check(&self, planned: &PlannedBy) -> Result<(), StoreError> {
        let files = planned.plan.files.iter().zip(&self.inodes);
        let moves = files.filter_map(|(file, inode)| Some((file.name.as_str(), &**inode.as_ref()?, &file.layout)));
        self.store.check_moves(moves.collect::<Vec<(&str, &Inode, &Layout)>>()).map(drop)
    }

    /// The tiers, or parts of them, that are limited, and by what.
    fn tight(&self, within: &Cluster) -> String {
        let tight = within.tiers.iter().filter_map(|tier| {
            let mib = tier.capacity_bytes? as f64 / f64::from(1 << 20);
            let each = if tier.servers.len() > 1 { " each" } else { "" };
            Some(format!("{} has room for {mib:.0} MiB{each}", tier.name))
        });
        tight.collect::<Vec<_>>().join(", ")
    }
}
