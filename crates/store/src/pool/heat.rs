//! The observer that keeps heat: what each sub-request costs its server goes to the blocks of the file that it is for.

use crate::os::error::Result;
use crate::pool::heat_table::HeatTable;
use crate::pool::namespace::{is_shared, namespace_uuid};
use crate::pool::pool_file::{META_PRESET, Pool};
use crate::pool::shared::is_root;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use stripewise_control::{Action, Door, FileId, Observer, Request, Served, Way};
use stripewise_layout::ServerId;
use stripewise_model::{OpProfile, Profile};

/// Updates between two looks at the clock.
const LOOK_EVERY: u32 = 1024;

/// What a sub-request costs, in microseconds, and in those per byte.
#[derive(Debug, Clone, Copy)]
struct Cost {
    startup_us: f32,
    byte_us: f32,
}

/// Counts what requests cost by the servers' profiles.
struct HeatObserver {
    table: HeatTable,
    /// By server: of reads and of writes.
    costs: Vec<[Cost; 2]>,
    meta: [Cost; 2],
    updates: AtomicU32,
}

fn cost(profile: &Profile, op: &OpProfile) -> Cost {
    let startup_us = ((op.startup_min_s + op.startup_max_s) / 2.0 * 1e6) as f32;
    Cost { startup_us, byte_us: ((op.transfer_s_per_byte + profile.network_s_per_byte) * 1e6) as f32 }
}

fn costs(profile: &Profile) -> [Cost; 2] {
    [cost(profile, &profile.read), cost(profile, &profile.write)]
}

impl Observer for HeatObserver {
    /// 14 ns for a sub-request within one block, 25 ns where blocks of many files take turns (`benches/heat.rs`).
    fn served(&self, file: FileId, request: &Request, served: &Served<'_>) {
        let Served { part, done_bytes, .. } = *served;
        let is_write = match request.action {
            Action::Read => false,
            Action::Write | Action::Append => true,
            Action::Truncate | Action::Allocate | Action::Sync => return,
        };
        // What Stripewise itself moves is no reason to move it.
        if done_bytes == 0 || matches!(request.sender.way(), Way::Mover | Way::Exporter) {
            return;
        }
        let of = if part.server == ServerId::META { Some(&self.meta) } else { self.costs.get(part.server.index()) };
        let cost = of.unwrap_or(&self.meta)[usize::from(is_write)];
        let cost_us = (cost.startup_us + cost.byte_us * done_bytes as f32).max(1.0) as u32;
        self.table.add(file.0, (part.from, part.to), cost_us);
        if self.updates.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            self.table.halve_if_due();
        }
    }

    fn wants_times(&self) -> bool {
        false
    }
}

/// `door` with the observer that keeps heat, if the pool file asks for heat. Of a shared pool only root's mount keeps it.
///
/// # Errors
/// The file of heat cannot be made or mapped.
pub fn with_heat(door: Door, pool: &Pool) -> Result<Door> {
    let Some(config) = pool.heat.filter(|_| is_root() || !is_shared(pool).unwrap_or(false)) else { return Ok(door) };
    let table = HeatTable::open(&pool.namespace, &namespace_uuid(pool)?, config)?;
    let fallback = stripewise_model::presets::device(META_PRESET).expect("a device of the model");
    let of_tier =
        |tier: usize| pool.tiers.get(tier).and_then(|tier| tier.profile).map_or(fallback, |(profile, _)| profile);
    let observer = HeatObserver {
        table,
        costs: pool.servers.iter().map(|server| costs(&of_tier(server.tier))).collect(),
        meta: costs(&pool.meta.profile.0),
        updates: AtomicU32::new(0),
    };
    Ok(door.with_observer(Arc::new(observer)))
}
