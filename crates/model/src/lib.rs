//! What a request costs under a layout.
//!
//! [`Round`] counts the bytes of a request per server in O(1) per tier; [`CostModel`] turns the counts into seconds,
//! as HARL does ([`CostModel::paper_cost_s`]) and exactly ([`CostModel::latency_s`]); [`BusyTimes`] adds requests up to the
//! throughput objective.

mod anticipation;
mod cost;
mod count;
mod expected_max;
mod native;
pub mod presets;
mod profile;
mod queue;
mod run_ends;
mod seek_curve;
mod seek_map;
mod theta;
mod water_fill;
mod widths;

pub use anticipation::{NewProcesses, ProcessHistory, RecentMean};
pub use cost::{Busy, CostModel, UnknownServer, expected_startup_s};
pub use count::{ClassShare, EqualGroups, EqualServers, Round, ShareBounds};
pub use expected_max::{Branch, Branches, expected_max_s};
pub use native::{Hashed, Native, NativeError, Rounds, theta_of_native_s};
pub use profile::{Cluster, Head, NameCosts, Op, OpProfile, Profile, Request, Tier};
pub use queue::Queue;
pub use run_ends::{GATHERED, HeadRun, RunEnds, head_position};
pub use seek_curve::{SeekCurve, SeekShape};
pub use seek_map::SeekMap;
pub use theta::BusyTimes;
pub use water_fill::{WaterLevel, water_fill};
pub use widths::{MAX_TIERS, TierWidths};
