//! Profiles of servers, tiers, and the requests that they are priced by.

use serde::{Deserialize, Serialize};
use stripewise_layout::{META_NAME, ServerId};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Op {
    /// Bytes from the servers to the program.
    Read,
    /// Bytes from the program to the servers.
    Write,
}

/// Cost of one kind of operation on a server (HARL Table I): startup uniform in `[min, max]`, then a time per byte. A server
/// with a head has another startup for a sub-request that is adjacent to one before it ([`RunEnds`](crate::RunEnds)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpProfile {
    /// Least startup time in seconds.
    pub startup_min_s: f64,
    /// Greatest startup time in seconds.
    pub startup_max_s: f64,
    /// Transfer time in seconds per byte (beta).
    pub transfer_s_per_byte: f64,
    /// `None` for a server without a head, where each sub-request has a startup of its own.
    pub head: Option<Head>,
}

/// What sub-requests cost for which the head of a server does not move ([`RunEnds`](crate::RunEnds)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Head {
    /// Their startup time in seconds.
    pub sequential_startup_s: f64,
    /// Bytes that one move of the head serves of a stream, whatever comes between: what is read ahead, or gathered before it
    /// is written. 0 where others between two requests of a stream move the head each time.
    pub ahead_bytes: u64,
}

/// Cost of a server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// Reads.
    pub read: OpProfile,
    /// Writes.
    pub write: OpProfile,
    /// Network time in seconds per byte on the server's own link (`t` of HARL); 0 on one machine.
    pub network_s_per_byte: f64,
}

impl Profile {
    /// The part of the profile that prices `op`.
    pub fn of(&self, op: Op) -> &OpProfile {
        match op {
            Op::Read => &self.read,
            Op::Write => &self.write,
        }
    }

    /// Whether reads or writes that are adjacent cost less of a startup.
    pub fn has_head(&self) -> bool {
        self.read.head.is_some() || self.write.head.is_some()
    }
}

impl OpProfile {
    /// Whether its times are finite, not negative, and the least startup the least.
    pub fn is_valid(&self) -> bool {
        let times = [self.startup_min_s, self.startup_max_s, self.transfer_s_per_byte];
        let sequential_s = self.head.map_or(0.0, |head| head.sequential_startup_s);
        times.iter().chain([&sequential_s]).all(|time| time.is_finite() && *time >= 0.0)
            && self.startup_min_s <= self.startup_max_s
    }

    /// Startup in seconds of a sub-request for which the head does not move; `drawn_s` without a head. O(1).
    #[inline]
    pub fn adjacent_startup_s(&self, drawn_s: f64) -> f64 {
        self.head.map_or(drawn_s, |head| head.sequential_startup_s)
    }

    /// Bytes that one move of the head serves of a stream; 0 without a head. O(1).
    #[inline]
    pub fn ahead_bytes(&self) -> u64 {
        self.head.map_or(0, |head| head.ahead_bytes)
    }

    /// The profile of sub-requests of which the share `adjacent` (0 to 1) moves no head. Its mean startup is exact; the
    /// interval is the mean of both intervals.
    pub fn with_adjacent(&self, adjacent: f64) -> Self {
        let Some(head) = self.head else { return *self };
        let mixed = |startup_s: f64| startup_s + adjacent * (head.sequential_startup_s - startup_s);
        Self { startup_min_s: mixed(self.startup_min_s), startup_max_s: mixed(self.startup_max_s), ..*self }
    }
}

/// What operations on names cost on the metadata tier: each a time drawn uniformly between its least and its greatest, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NameCosts {
    /// Least and greatest time of one that looks: a lookup, `stat`, an open, a list.
    pub look_s: [f64; 2],
    /// Of one that changes something: a file is made, removed or renamed, gets other attributes.
    pub change_s: [f64; 2],
}

impl NameCosts {
    /// They cost nothing.
    pub const FREE: Self = Self { look_s: [0.0; 2], change_s: [0.0; 2] };

    /// Those of a server where they cost what a request without a byte does.
    pub fn of_profile(profile: &Profile) -> Self {
        let startup_s = |op: &OpProfile| [op.startup_min_s, op.startup_max_s];
        Self { look_s: startup_s(&profile.read), change_s: startup_s(&profile.write) }
    }

    /// Whether its times are finite, not negative, and the least the least.
    pub fn is_valid(&self) -> bool {
        let is_range = |[least, most]: [f64; 2]| least >= 0.0 && least <= most && most.is_finite();
        is_range(self.look_s) && is_range(self.change_s)
    }

    /// Seconds that this number of them takes one after the other, in the mean. O(1).
    pub fn busy_s(&self, looks: u64, changes: u64) -> f64 {
        let mean_s = |[least, most]: [f64; 2]| (least + most) / 2.0;
        looks as f64 * mean_s(self.look_s) + changes as f64 * mean_s(self.change_s)
    }
}

/// Servers of one profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Tier {
    /// Name in the pool file.
    pub name: String,
    /// Its servers in round order.
    pub servers: Vec<ServerId>,
    /// What each of them costs.
    pub profile: Profile,
    /// Bytes that each of them may hold; `None` is no limit.
    pub capacity_bytes: Option<u64>,
    /// Whether the sub-requests of one request on them are carried out one after the other, where each is answered when the
    /// device has served it and not before. Else they are in flight together.
    pub in_turn: bool,
    /// Requests that each of them serves side by side, first come, first served. At least 1.
    pub at_once: u32,
}

impl Tier {
    /// The metadata tier, of which planned files may have `capacity_bytes`.
    pub fn meta(profile: Profile, capacity_bytes: u64) -> Self {
        let (name, servers) = (META_NAME.to_owned(), vec![ServerId::META]);
        Self { name, servers, profile, capacity_bytes: Some(capacity_bytes), in_turn: false, at_once: 1 }
    }
}

/// All servers of a pool as the model sees them. Tiers are in the order of the pool file.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// The tiers.
    pub tiers: Vec<Tier>,
    /// The metadata tier, [`ServerId::META`]: one server, alone in its regions. `None`: nothing is known of what it costs.
    pub meta: Option<Tier>,
}

impl Cluster {
    /// The tiers, the metadata tier last.
    pub fn all_tiers(&self) -> impl Iterator<Item = &Tier> {
        self.tiers.iter().chain(&self.meta)
    }

    /// Tiers `(name, servers, profile)` without space limits; their servers are numbered in order, as in a pool file. `None`
    /// when they are more than the 65,535 that a layout can name.
    pub fn numbered(tiers: impl IntoIterator<Item = (String, u16, Profile)>) -> Option<Self> {
        let mut next = 0_u16;
        let tiers = tiers.into_iter().map(|(name, servers, profile)| {
            let first = next;
            next = next.checked_add(servers)?;
            let servers = (first..next).map(ServerId).collect();
            Some(Tier { name, servers, profile, capacity_bytes: None, in_turn: false, at_once: 1 })
        });
        Some(Self { tiers: tiers.collect::<Option<_>>()?, meta: None })
    }

    /// Whether any server has a head.
    pub fn has_heads(&self) -> bool {
        self.all_tiers().any(|tier| tier.profile.has_head())
    }
}

/// One request of a trace: the half-open interval `[offset, offset + size)` of one file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes; 0 costs nothing and touches no server.
    pub size: u64,
    /// Read or write.
    pub op: Op,
    /// Process that issued it (rank over all programs of the trace).
    pub process: u32,
    /// Begin in seconds from the start of the trace.
    pub start_s: f64,
    /// End in seconds.
    pub end_s: f64,
}
