//! A pool: its file, its namespace, its layouts and rules, its space, its other users.

pub(crate) mod applying;
pub mod epoch;
pub(crate) mod heads;
pub(crate) mod heat;
pub(crate) mod heat_table;
mod heat_units;
pub(crate) mod latencies;
pub(crate) mod layouts;
pub(crate) mod meta_load;
pub(crate) mod meta_watch;
pub(crate) mod names_first;
pub(crate) mod namespace;
pub mod neighbours;
pub mod open_pool;
pub(crate) mod pool_file;
pub(crate) mod recent;
pub(crate) mod removals;
pub mod rules;
pub(crate) mod shared;
pub(crate) mod space;
pub(crate) mod spill;
pub mod store;

pub use crate::backend::server::{Server, ServerState};
pub use heat::with_heat;
pub use heat_table::HeatConfig;
pub use latencies::{LatencyHistogram, latencies, latency_bounds_s, with_latencies};
pub use meta_load::{MetaPeriod, meta_periods};
pub use pool_file::{Landing, META_PRESET, Pool, PoolSpec, ProfileSource, TierSpec};
pub use recent::{RecentRequest, recent_requests};
pub use stripewise_model::SeekMap;
