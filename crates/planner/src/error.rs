//! [`PlanError`]: what cannot be planned, with the thing, its value and the remedy.

use stripewise_layout::ServerId;
use stripewise_model::MAX_TIERS;

/// What cannot be planned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// No server at all.
    #[error("the pool has no server: add a tier with at least one")]
    NoServer,
    /// Too many tiers.
    #[error("the pool has {0} tiers, at most {MAX_TIERS} can be planned for: join tiers of one profile")]
    TooManyTiers(usize),
    /// A profile that is not one.
    #[error("tier {tier}: its {op} profile has {what} {value}: give times that are finite and not negative")]
    Profile {
        /// Name of the tier.
        tier: String,
        /// `read` or `write`.
        op: &'static str,
        /// Which figure.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// An option out of range.
    #[error("{name} is {value}: {remedy}")]
    Option {
        /// Which one.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        remedy: &'static str,
    },
    /// A request ends beyond the largest file offset.
    #[error("{file}: the request of {size} bytes at {offset} ends beyond 2^63 bytes")]
    BeyondEnd {
        /// The file.
        file: String,
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// A layout names a server that the pool does not have.
    #[error("{file}: its layout names server {server}, which the pool does not have")]
    UnknownServer {
        /// The file.
        file: String,
        /// The server.
        server: ServerId,
    },
    /// No planner has this name.
    #[error("no planner '{name}'; there is {known}")]
    UnknownPlanner {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The layouts of a planner that knows no limits are beyond them.
    #[error("{planner}: its layouts are {excess_bytes} bytes beyond the servers' limits; take `auto` or `regions`")]
    DoesNotFit {
        /// Name of the planner.
        planner: &'static str,
        /// Bytes beyond limits.
        excess_bytes: u64,
    },
    /// A planner has no layout for such files.
    #[error("{planner}: {reason}; take another planner, see `stripewise planners`")]
    NoLayout {
        /// Name of the planner.
        planner: &'static str,
        /// Why not.
        reason: String,
    },
    /// A planner made more regions than it may.
    #[error("{planner}: {file} has {regions} regions, at most {most} are allowed: allow more, or take another planner")]
    TooManyRegions {
        /// Name of the planner.
        planner: &'static str,
        /// The file.
        file: String,
        /// Regions that it made.
        regions: usize,
        /// Regions that it may make.
        most: usize,
    },
    /// The files do not fit.
    #[error("the files have {bytes} bytes, the servers may hold {room}: raise a tier's capacity or add servers")]
    TooLarge {
        /// Bytes of all files.
        bytes: u128,
        /// Sum of the limits of all servers in bytes.
        room: u128,
    },
    /// The files would fit, but no plan was found that keeps every limit.
    #[error("no layout keeps every server's limit: the best one found is {excess_bytes} bytes over")]
    NoFit {
        /// Bytes beyond limits.
        excess_bytes: u64,
    },
}
