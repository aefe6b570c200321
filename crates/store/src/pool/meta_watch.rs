//! The load of the metadata tier, as a process that has a pool open counts and asks it.
//!
//! The page is mapped with the first request on names or on bytes of an inode: what only passes by the metadata tier, as the preload
//! does, never has it.

use crate::backend::emulate::now_ns;
use crate::os::room::{Room, until_filled};
use crate::pool::meta_load::{MetaLoad, MetaPrices, MetaTierNow};
use crate::pool::names_first::NamesFirst;
use crate::pool::pool_file::Pool;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use stripewise_model::Op;

/// Heads stop to grow when this part of the reserve is left above it, for what is on its way or comes before the next look.
const RESERVE_IN_KEPT: u64 = 8;

/// What this process knows of the load.
#[derive(Debug)]
pub(crate) struct MetaWatch {
    namespace: PathBuf,
    shared: bool,
    width_bytes: u64,
    prices: MetaPrices,
    load: OnceLock<Option<MetaLoad>>,
    /// Where the tier's speed is known.
    names_first: Option<NamesFirst>,
    /// Bytes by which heads can grow, as this process has found them last; without end until then.
    spare_bytes: AtomicU64,
    /// When a write to an inode looks at them again, by [`now_ns`]: before they can be taken.
    next_look_ns: AtomicU64,
}

impl MetaWatch {
    /// Of a pool, which several users use directly if it is `shared`. Opens nothing yet.
    pub(crate) fn new(pool: &Pool, shared: bool) -> Self {
        let (namespace, width_bytes) = (pool.namespace.clone(), pool.default_width_bytes);
        let prices = MetaPrices::of(pool);
        let names_first = prices.name_s().map(|name_s| NamesFirst::new(name_s, pool.meta.at_once));
        let (spare_bytes, next_look_ns) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Self { namespace, shared, width_bytes, prices, load: OnceLock::new(), names_first, spare_bytes, next_look_ns }
    }

    pub(crate) fn load(&self) -> Option<&MetaLoad> {
        if let Some(load) = self.load.get() {
            return load.as_ref();
        }
        // Not under the lock of the cell, as it makes system calls: of two threads that map the page here one map is dropped.
        let opened = MetaLoad::open(&self.namespace, self.shared);
        self.load.get_or_init(|| opened).as_ref()
    }

    /// Counts a request on bytes of the inode of a file, by its handle, that begins now; when that was, for [`MetaWatch::end`]. It waits
    /// while the tier has enough to do with names.
    pub(crate) fn begin(&self, handle: u64) -> Option<u64> {
        self.load()?.begin(handle);
        let began_ns = now_ns();
        if let Some(names_first) = &self.names_first {
            names_first.begin_bytes(began_ns);
        }
        Some(began_ns)
    }

    /// Counts an operation on names that begins now; when that was, for [`MetaWatch::end_name`].
    pub(crate) fn begin_name(&self, of: u64) -> Option<u64> {
        self.load()?.begin(of);
        let began_ns = now_ns();
        if let Some(names_first) = &self.names_first {
            names_first.begin_name(began_ns);
        }
        Some(began_ns)
    }

    /// Counts that a request on bytes was served, with the bytes of it. The tier is asked for its `room` if a period is over with it: once
    /// a second at most, in all processes together; and after a write before what it had to spare can be taken: every millisecond at most.
    pub(crate) fn end(&self, handle: u64, op: Op, bytes: u64, began_ns: u64, room: impl Fn() -> Option<Room>) {
        self.end_bytes();
        let ended_ns = now_ns();
        if op == Op::Write {
            self.look_at_spare(ended_ns, &room);
        }
        let Some(load) = self.load() else { return };
        if load.end(handle, op, bytes, (began_ns, ended_ns)) {
            self.look(room);
        }
    }

    /// Whether the tier had only its reserve left, or an eighth of it more, when this process looked at it last. One load.
    #[inline]
    pub(crate) fn had_only_reserve(&self) -> bool {
        self.spare_bytes.load(Ordering::Relaxed) == 0
    }

    /// Whether it has no more than that now, as of the last millisecond.
    pub(crate) fn has_only_reserve(&self, room: impl Fn() -> Option<Room>) -> bool {
        self.look_at_spare(now_ns(), &room);
        self.had_only_reserve()
    }

    /// Bytes by which heads can grow where the tier has that room.
    pub(crate) fn room_for_heads(&self, room: &Room) -> u64 {
        let kept_bytes = room.reserve_bytes(self.width_bytes) / RESERVE_IN_KEPT;
        room.spare_bytes(self.width_bytes).saturating_sub(kept_bytes)
    }

    /// Takes over what the tier has, if it says so.
    pub(crate) fn know_room(&self, room: Option<Room>) {
        let spare_bytes = room.map_or(u64::MAX, |room| self.room_for_heads(&room));
        self.spare_bytes.store(spare_bytes, Ordering::Relaxed);
        let good_for_ns = until_filled(spare_bytes.max(1)).as_nanos() as u64;
        self.next_look_ns.store(now_ns().saturating_add(good_for_ns), Ordering::Relaxed);
    }

    /// [`MetaWatch::know_room`] in one of the threads that find it due. One load where it is not.
    fn look_at_spare(&self, now_ns: u64, room: &impl Fn() -> Option<Room>) {
        let next_ns = self.next_look_ns.load(Ordering::Relaxed);
        let is_ours = now_ns >= next_ns
            && self.next_look_ns.compare_exchange(next_ns, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_ours {
            self.know_room(room());
        }
    }

    /// As [`MetaWatch::end`], of an operation on names.
    pub(crate) fn end_name(&self, of: u64, op: Op, began_ns: u64, room: impl FnOnce() -> Option<Room>) {
        if let Some(names_first) = &self.names_first {
            names_first.end_name();
        }
        let Some(load) = self.load() else { return };
        if load.end_name(of, op, (began_ns, now_ns())) {
            self.look(room);
        }
    }

    /// Counts that a request on bytes was none, as the file has no byte there.
    pub(crate) fn withdraw(&self, handle: u64) {
        self.end_bytes();
        if let Some(load) = self.load() {
            load.withdraw(handle);
        }
    }

    fn end_bytes(&self) {
        if let Some(names_first) = &self.names_first {
            names_first.end_bytes();
        }
    }

    /// Ends the period if it is over, by the `room` that the tier has; whatever its processes did meanwhile.
    pub(crate) fn look(&self, room: impl FnOnce() -> Option<Room>) {
        let Some(load) = self.load() else { return };
        let now_ns = now_ns();
        if !load.is_over(now_ns) {
            return;
        }
        // A tier that does not say has no room.
        let (usable_bytes, spare_bytes) =
            room().map_or((1, 0), |room| (room.usable_bytes(), room.spare_bytes(self.width_bytes)));
        let time_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        load.end_period(&MetaTierNow { now_ns, time_s, usable_bytes, spare_bytes }, &self.prices);
    }

    /// [`MetaWatch::look`], where none was taken of late, as the tier has served nothing.
    pub(crate) fn look_if_idle(&self, room: impl FnOnce() -> Option<Room>) {
        if self.load().is_some_and(|load| !load.is_fresh(now_ns())) {
            self.look(room);
        }
    }

    /// What small files may have in the inode of the bytes that their directory allows: `most_bytes`, or the threshold's share of
    /// them, in steps of `least_bytes` and no fewer.
    pub(crate) fn threshold(&self, most_bytes: u64, least_bytes: u64) -> u64 {
        self.head_of_new(most_bytes, least_bytes).max(least_bytes).min(most_bytes)
    }

    /// What new small files get of them: 0 where the share is less than `least_bytes`, as a head of so little costs the tier a request
    /// more and saves the servers next to none.
    pub(crate) fn head_of_new(&self, most_bytes: u64, least_bytes: u64) -> u64 {
        let share = self.load().map_or(1.0, |load| load.share(now_ns()));
        let bytes = (most_bytes as f64 * share) as u64;
        bytes - bytes % least_bytes
    }
}
