//! Which servers new files leave out and which they get, and when to look again.

use crate::pool::pool_file::Pool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stripewise_layout::{Layout, ServerId};

/// How many new heads fit into what the metadata tier has to spare, at least.
const HEADS_IN_SPARE: u64 = 8;

/// Tells versions of the pool file apart: inode, seconds and nanoseconds of its last change.
type Stamp = (u64, i64, u64);

/// The pool file as it was last read, with its default layout, and the one that new files without a rule get.
#[derive(Debug, Clone)]
pub(crate) struct LatestPool {
    stamp: Stamp,
    pub(crate) pool: Arc<Pool>,
    pub(crate) default_layout: Arc<Layout>,
    pub(crate) made_layout: Arc<Layout>,
}

/// Which servers new files leave out, as far as it is known.
#[derive(Debug)]
pub(crate) struct Spill {
    began: Instant,
    /// When servers are asked next, in nanoseconds since `began`; without end while they are asked.
    next_ns: AtomicU64,
    left_out: Mutex<Arc<[ServerId]>>,
    /// Bytes that the metadata tier can take above its reserve.
    meta_spare_bytes: AtomicU64,
    /// `None` until it has changed since the pool was opened.
    latest: Mutex<Option<LatestPool>>,
}

impl Default for Spill {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            next_ns: AtomicU64::new(0),
            left_out: Mutex::new(Arc::new([])),
            meta_spare_bytes: AtomicU64::new(u64::MAX),
            latest: Mutex::default(),
        }
    }
}

impl Spill {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether it is time to ask; to one thread until [`Spill::done`].
    pub(crate) fn is_due(&self) -> bool {
        let next = self.next_ns.load(Ordering::Relaxed);
        self.now_ns() >= next
            && self.next_ns.compare_exchange(next, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn done(&self, good_for: Duration) {
        self.next_ns.store(self.now_ns().saturating_add(good_for.as_nanos() as u64), Ordering::Relaxed);
    }

    /// The pool file as it was last read, if it has changed since the pool was opened.
    pub(crate) fn latest(&self) -> Option<LatestPool> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the pool file again if it has changed. One that cannot be read, as it is being edited, is taken for unchanged.
    pub(crate) fn look_at_file(&self, opened: &Pool) {
        let Ok(stat) = rustix::fs::stat(&opened.file) else { return };
        let stamp = (stat.st_ino, stat.st_mtime, stat.st_mtime_nsec);
        if self.latest().is_some_and(|latest| latest.stamp == stamp) {
            return;
        }
        let Ok(pool) = Pool::load(&opened.file) else { return };
        let default_layout = Arc::new(pool.default_layout());
        let made_layout = pool.landing_layout().map_or_else(|| default_layout.clone(), Arc::new);
        let latest = LatestPool { stamp, pool: Arc::new(pool), default_layout, made_layout };
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(latest);
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Arc<[ServerId]>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes of a new file its inode may have at most: a part of what the metadata tier can take, as the files that are made
    /// before the next look all grow at once. 0 where only its reserve is left. One load.
    pub(crate) fn most_head_bytes(&self) -> u64 {
        self.meta_spare_bytes.load(Ordering::Relaxed) / HEADS_IN_SPARE
    }

    pub(crate) fn know_meta(&self, spare_bytes: u64) {
        self.meta_spare_bytes.store(spare_bytes, Ordering::Relaxed);
    }
}
