//! The observer that keeps heat: what each sub-request would cost on the slowest tier goes to the blocks of the file that
//! it is for.
//!
//! The price is the same wherever the block is. Else what moves to a fast tier would seem to cool, and what is asked for
//! less, but from a slow one, would take its place.
//!
//! The same observer keeps the last requests ([`crate::pool::recent`]).

use crate::os::error::Result;
use crate::pool::heat_table::HeatTable;
use crate::pool::namespace::{is_shared, namespace_uuid};
use crate::pool::pool_file::{META_PRESET, Pool};
use crate::pool::recent::RecentTable;
use crate::pool::shared::is_root;
use std::path::PathBuf;
use std::sync::Arc;
use stripewise_control::{Action, Door, FileId, Observer, Request, Served, Way};
use stripewise_model::{OpProfile, Profile};

/// Requests between two looks at the clock, of all processes together.
const LOOK_EVERY: u64 = 1024;

/// What a sub-request costs, in microseconds, and in those per byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    startup_us: f32,
    byte_us: f32,
}

impl Cost {
    /// Of one operation of a profile, with the mean of its startups.
    pub(crate) fn of(profile: &Profile, op: &OpProfile) -> Self {
        let startup_us = ((op.startup_min_s + op.startup_max_s) / 2.0 * 1e6) as f32;
        Self { startup_us, byte_us: ((op.transfer_s_per_byte + profile.network_s_per_byte) * 1e6) as f32 }
    }

    /// Of that many bytes.
    #[inline]
    pub(crate) fn us(self, bytes: u64) -> f32 {
        self.startup_us + self.byte_us * bytes as f32
    }
}

/// Counts what requests cost by the profile of the slowest tier.
struct HeatObserver {
    table: HeatTable,
    recent: RecentTable,
    /// Of reads and of writes.
    costs: [Cost; 2],
}

/// Of the profile that a read of a block takes longest on.
fn costs(profiles: impl Iterator<Item = Profile>, block_bytes: u64) -> Option<[Cost; 2]> {
    let read_us = |profile: &Profile| Cost::of(profile, &profile.read).us(block_bytes);
    let slowest = profiles.max_by(|a, b| read_us(a).total_cmp(&read_us(b)))?;
    Some([Cost::of(&slowest, &slowest.read), Cost::of(&slowest, &slowest.write)])
}

impl Observer for HeatObserver {
    /// 22 ns for a sub-request within one block, 28 ns where blocks of many files take turns (`benches/heat.rs`).
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
        let cost = self.costs[usize::from(is_write)];
        let cost_us = cost.us(done_bytes).max(1.0) as u32;
        self.table.add(file.0, (part.from, part.to), cost_us);
        // A request that goes to several servers is noted with its first part.
        if part.from == request.offset {
            let thread = request.sender.asking_thread().unwrap_or(0);
            let before = self.recent.add(file.0, request.offset, request.len, is_write, thread);
            if before.is_multiple_of(LOOK_EVERY) {
                self.table.halve_if_due();
            }
        }
    }

    fn cut(&self, file: FileId, size_bytes: u64) {
        self.table.cut(file.0, size_bytes);
    }

    fn wants_times(&self) -> bool {
        false
    }
}

/// Directories on the disks of a pool.
pub(crate) fn disks(pool: &Pool) -> Vec<PathBuf> {
    pool.servers.iter().map(|server| &server.root).chain([&pool.namespace]).cloned().collect()
}

/// `door` with the observer that keeps heat, if the pool file asks for heat. Of a shared pool only root's mount keeps it.
///
/// # Errors
/// The file of heat cannot be made or mapped.
pub fn with_heat(door: Door, pool: &Pool) -> Result<Door> {
    let Some(config) = pool.heat.filter(|_| is_root() || !is_shared(pool).unwrap_or(false)) else { return Ok(door) };
    let uuid = namespace_uuid(pool)?;
    let table = HeatTable::open(&pool.namespace, &uuid, config, disks(pool))?;
    let fallback = stripewise_model::presets::device(META_PRESET).expect("a device of the model");
    let profiles = pool.tiers.iter().map(|tier| tier.profile.map_or(fallback, |(profile, _)| profile));
    let costs = costs(profiles, config.block_bytes).expect("a pool has a tier");
    let recent = RecentTable::open(&pool.namespace, &uuid)?;
    table.halve_if_due();
    let observer = HeatObserver { table, recent, costs };
    Ok(door.with_observer(Arc::new(observer)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::heat_table::HeatConfig;
    use stripewise_layout::{ServerId, SubRequest};

    fn part(server: u16) -> SubRequest {
        let server = ServerId(server);
        SubRequest { region: 0, slot: 0, server, datafile_offset: 0, len: 4096, from: 0, to: 4096 }
    }

    #[test]
    fn a_request_heats_its_block_alike_on_every_tier() {
        let directory = tempfile::tempdir().unwrap();
        let config = HeatConfig { block_bytes: 64 << 10, period_s: 1000 };
        let table = HeatTable::open(directory.path(), "000102030405060708090a0b0c0d0e0f", config, vec![]).unwrap();
        let tiers = ["ssd-sata", "hdd-7200"].map(|name| stripewise_model::presets::device(name).unwrap());
        let costs = costs(tiers.into_iter(), config.block_bytes).unwrap();
        let recent = RecentTable::open(directory.path(), "000102030405060708090a0b0c0d0e0f").unwrap();
        let door = Door::default().with_observer(Arc::new(HeatObserver { table, recent, costs }));
        let request = Request {
            sender: stripewise_control::Sender::this_process(Way::Library),
            action: Action::Read,
            offset: 0,
            len: 4096,
            rank: 0,
        };
        for (file, server) in [(1, ServerId(0)), (2, ServerId(1)), (3, ServerId::META)] {
            door.served(FileId(file), &request, Served::of(&part(server.0), 4096), (0, || 0));
        }
        let found =
            HeatTable::open(directory.path(), "000102030405060708090a0b0c0d0e0f", config, vec![]).unwrap().parts();
        let heat: Vec<_> = found.into_iter().map(|part| part.costs_us).collect();
        // 8 ms, and 4 KiB at 80 MB/s.
        assert_eq!(heat, vec![vec![8051]; 3]);
    }
}
