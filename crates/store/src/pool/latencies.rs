//! How long servers took for requests: a histogram of each server, for reads and for writes, in a file that all mounts of the pool
//! on this machine map.
//!
//! Each has 26 counters: bucket `k` counts what took at most `2^(10 + k)` nanoseconds and more than the bucket before it says,
//! the last one all that took longer than 17 seconds. The sum of the times stands behind them. The metadata tier has the first place of
//! the file, server `n` that of `n + 1`. Another arrangement would have another name.

use crate::os::error::{Error, Result};
use crate::os::shared_pages::{SharedPage, allocate};
use crate::os::sys::{open_or_make, retry};
use crate::pool::namespace::is_shared;
use crate::pool::pool_file::Pool;
use crate::pool::shared::is_root;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stripewise_control::{Action, Door, FileId, Observer, Request, Served};
use stripewise_layout::ServerId;

/// Name of the file in the namespace.
const LATENCY_FILE: &str = "latencies.1";
/// Buckets of a histogram, that without a bound among them.
const BUCKETS: usize = 26;
/// The first bucket ends at 2 to this many nanoseconds: 1.024 us.
const FIRST_BITS: u32 = 10;
/// Words of a histogram; the last one is the sum.
const WORDS: usize = 32;
const SUM: usize = WORDS - 1;
const SERVER_BYTES: u64 = (2 * WORDS * 8) as u64;
/// Servers that there can be, and the metadata tier.
const SERVERS: usize = 1 << 16;

type Words = [AtomicU64; WORDS];
type Latencies = [[Words; 2]; SERVERS];

/// How many requests took how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// The server.
    pub server: ServerId,
    /// Its writes, else its reads.
    pub is_write: bool,
    /// Requests in each bucket: those of the first took at most 1,024 ns, those of each other one at most twice as long as in the one
    /// before; those of the last one longer than 2^34 ns.
    pub counts: [u64; BUCKETS],
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
}

/// Bounds of all buckets but the last, in seconds.
pub fn latency_bounds_s() -> impl Iterator<Item = f64> {
    (0..BUCKETS as u32 - 1).map(|bucket| (1_u64 << (FIRST_BITS + bucket)) as f64 * 1e-9)
}

fn bucket(took_ns: u64) -> usize {
    let bits = u64::BITS - took_ns.saturating_sub(1).leading_zeros();
    (bits.saturating_sub(FIRST_BITS) as usize).min(BUCKETS - 1)
}

fn place(server: ServerId) -> usize {
    usize::from(server.0.wrapping_add(1))
}

/// Servers of the pool, and the metadata tier, which has the greatest id.
fn servers(pool: &Pool) -> impl Iterator<Item = ServerId> + '_ {
    let of_tiers = pool.tiers.iter().flat_map(|tier| tier.servers.iter().copied());
    of_tiers.chain([ServerId::META])
}

struct LatencyObserver {
    latencies: SharedPage<Latencies>,
    /// Those that have a place in the file. One that comes to the pool later is counted by the next mount.
    places: usize,
}

impl Observer for LatencyObserver {
    /// Two additions, without a lock or an order, to words that the threads of one server share; `benches/heat.rs` prints what
    /// that takes. The door reads the clock twice.
    fn served(&self, _: FileId, request: &Request, served: &Served<'_>) {
        let is_write = match request.action {
            Action::Read => false,
            Action::Write | Action::Append => true,
            Action::Truncate | Action::Allocate | Action::Sync => return,
        };
        let place = place(served.part.server);
        if place < self.places {
            let words = &self.latencies[place][usize::from(is_write)];
            words[bucket(served.took_ns)].fetch_add(1, Ordering::Relaxed);
            words[SUM].fetch_add(served.took_ns, Ordering::Relaxed);
        }
    }
}

fn file(pool: &Pool) -> PathBuf {
    pool.namespace.join(LATENCY_FILE)
}

/// `door` with the observer that counts how long servers take. Of a shared pool only root's mount counts.
///
/// # Errors
/// The file of latencies cannot be made or mapped.
pub fn with_latencies(door: Door, pool: &Pool) -> Result<Door> {
    if !is_root() && is_shared(pool)? {
        return Ok(door);
    }
    let path = file(pool);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = open_or_make(&path, flags, Mode::from_raw_mode(0o600)).map_err(Error::io("open", &path))?;
    let places = servers(pool).map(place).max().map_or(0, |last| last + 1);
    allocate(opened.as_fd(), places as u64 * SERVER_BYTES).map_err(Error::io("allocate", &path))?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let latencies = SharedPage::map(opened.as_fd(), 0, access).map_err(Error::io("map", &path))?;
    Ok(door.with_observer(Arc::new(LatencyObserver { latencies, places })))
}

/// What was counted since the file was made, by server; none of servers that have served nothing. O(servers).
///
/// # Errors
/// The file of latencies is there and cannot be read.
pub fn latencies(pool: &Pool) -> Result<Vec<LatencyHistogram>> {
    let path = file(pool);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = match retry(|| rustix::fs::open(&path, flags, Mode::empty())) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        opened => opened.map_err(Error::io("open", &path))?,
    };
    let mut found = Vec::new();
    for server in servers(pool) {
        let mut bytes = [0; SERVER_BYTES as usize];
        let from = place(server) as u64 * SERVER_BYTES;
        let read = retry(|| rustix::io::pread(&opened, &mut bytes, from)).map_err(Error::io("read", &path))?;
        // A file that ends here knows nothing of the server.
        if read < bytes.len() {
            continue;
        }
        for (half, is_write) in bytes.chunks_exact(WORDS * 8).zip([false, true]) {
            let word = |at: usize| u64::from_ne_bytes(half[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
            let counts = std::array::from_fn(word);
            if counts != [0; BUCKETS] {
                found.push(LatencyHistogram { server, is_write, counts, sum_ns: word(SUM) });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::pool_file::{PoolSpec, TierSpec};
    use stripewise_control::{Sender, Way};
    use stripewise_layout::SubRequest;

    #[test]
    fn a_bucket_has_what_took_as_long_as_its_bound_or_less() {
        let bounds: Vec<_> = latency_bounds_s().collect();
        assert_eq!((bounds.len(), bounds[0], bounds[24]), (BUCKETS - 1, 1.024e-6, (1_u64 << 34) as f64 * 1e-9));
        for (number, bound_s) in bounds.iter().enumerate() {
            let bound_ns = (bound_s * 1e9).round() as u64;
            assert_eq!([bucket(bound_ns), bucket(bound_ns + 1)], [number, number + 1]);
        }
        assert_eq!([0, 1, 1023, u64::MAX].map(bucket), [0, 0, 0, BUCKETS - 1]);
    }

    #[test]
    fn reads_and_writes_of_each_server_are_counted_apart_and_by_all_that_map_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        let servers = vec![base.join("s"), base.join("t")];
        let tier = TierSpec { name: "mem".into(), servers, ..TierSpec::default() };
        let (mount, namespace) = (base.join("mount"), base.join("names"));
        let spec = PoolSpec { name: "p".into(), mount, namespace, default_width_bytes: None, tiers: vec![tier] };
        let pool = Pool::init(&base.join("pool.toml"), &spec).unwrap();
        assert_eq!(latencies(&pool).unwrap(), []);
        let doors = [0; 2].map(|_| with_latencies(Door::default(), &pool).unwrap());
        let sender = Sender::this_process(Way::Library);
        let serve = |door: &Door, server, action, took_ns| {
            let request = Request { sender, action, offset: 0, len: 4096, rank: 0 };
            let part = SubRequest { region: 0, slot: 0, server, datafile_offset: 0, len: 4096, from: 0, to: 4096 };
            door.served(FileId(1), &request, Served::of(&part, 4096), (0, || took_ns));
        };
        for (number, door) in doors.iter().enumerate() {
            serve(door, ServerId(0), Action::Read, 1000);
            serve(door, ServerId::META, Action::Append, 2000 + number as u64);
            serve(door, ServerId(0), Action::Sync, 1000);
            // A server that this pool has not.
            serve(door, ServerId(9), Action::Read, 1000);
        }
        let counts = |bucket: usize| std::array::from_fn(|at| if at == bucket { 2 } else { 0 });
        let of =
            |server, is_write, bucket, sum_ns| LatencyHistogram { server, is_write, counts: counts(bucket), sum_ns };
        assert_eq!(latencies(&pool).unwrap(), [of(ServerId(0), false, 0, 2000), of(ServerId::META, true, 1, 4001)]);
    }
}
