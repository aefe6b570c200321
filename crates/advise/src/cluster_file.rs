//! The cluster file: servers in tiers with their profiles, and the layout that files have where nothing else is known.
//!
//! ```toml
//! name = "orion"
//! file_system = "lustre"
//! [default]
//! tier = "hdd"
//! count = 1
//! width = "1MiB"
//! [[tier]]
//! name = "hdd"
//! servers = 6
//! preset = "hdd-7200"
//! ```

use serde::Deserialize;
use std::fmt::{self, Display};
use stripewise_layout::{Layout, ServerId, ServerNames};
use stripewise_model::{Cluster, Profile, Tier};

/// Most servers of a cluster, as of a pool.
pub const MAX_SERVERS: u16 = 4096;

/// A file system that layouts can be set on by its own commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// Lustre.
    Lustre,
    /// BeeGFS.
    BeeGfs,
    /// CephFS.
    CephFs,
    /// OrangeFS.
    OrangeFs,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [FileSystem; 4] = [Self::Lustre, Self::BeeGfs, Self::CephFs, Self::OrangeFs];

    /// Its name in cluster files and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lustre => "lustre",
            Self::BeeGfs => "beegfs",
            Self::CephFs => "cephfs",
            Self::OrangeFs => "orangefs",
        }
    }

    /// Servers and width in bytes of a file's stripes that have no setting of their own; no number is all servers. From
    /// the systems' own defaults: Lustre one OST of 1 MiB, BeeGFS 4 targets of 512 KiB, CephFS objects of 4 MiB
    /// anywhere, OrangeFS 64 KiB on all servers.
    pub(crate) fn default(self) -> (Option<u16>, u64) {
        match self {
            Self::Lustre => (Some(1), 1 << 20),
            Self::BeeGfs => (Some(4), 512 << 10),
            Self::CephFs => (None, 4 << 20),
            Self::OrangeFs => (None, 64 << 10),
        }
    }
}

impl Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The layout of files of which nothing else is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultLayout {
    /// Index of the tier that they are on; `None` is all servers.
    pub tier: Option<usize>,
    /// Servers that a file is on; at least 1 and at most as many as there are.
    pub count: u16,
    /// Stripe width in bytes.
    pub width_bytes: u64,
}

/// Servers of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterTier {
    /// Name.
    pub name: String,
    /// How many.
    pub servers: u16,
    /// What a request costs on each.
    pub profile: Profile,
    /// Name of the preset that the profile is; `None` where it was given.
    pub preset: Option<String>,
    /// Bytes that each server may hold, if limited.
    pub capacity_bytes: Option<u64>,
    /// Name of the native pool, if they are one.
    pub pool: Option<String>,
}

/// What a cluster file says, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterFile {
    /// Name.
    pub name: String,
    /// Where layouts are set by native commands.
    pub file_system: Option<FileSystem>,
    /// The layout of files of which nothing else is known.
    pub default: DefaultLayout,
    /// The tiers in order; at least one, at most [`stripewise_model::MAX_TIERS`].
    pub tiers: Vec<ClusterTier>,
    /// What the metadata tier costs: the namespace of a pool. A cluster file names none.
    pub meta: Option<Profile>,
}

impl ClusterFile {
    /// The servers as planner and simulator see them, numbered in order of tiers. The metadata tier has no room for plans.
    pub fn cluster(&self) -> Cluster {
        let mut next = 0;
        let tiers = self.tiers.iter().map(|tier| {
            let first = next;
            next += tier.servers;
            Tier {
                name: tier.name.clone(),
                servers: (first..next).map(ServerId).collect(),
                profile: tier.profile,
                capacity_bytes: tier.capacity_bytes,
                in_turn: false,
                at_once: 1,
            }
        });
        Cluster { tiers: tiers.collect(), meta: self.meta.map(|profile| Tier::meta(profile, 0)) }
    }

    /// The servers by their names in layout files.
    pub fn names(&self) -> ServerNames {
        let tiers = self.tiers.iter().map(|tier| (tier.name.clone(), tier.servers));
        // At most MAX_SERVERS servers: there always are names.
        ServerNames::new(tiers).unwrap_or_default()
    }

    /// The default layout of the `file`-th file: where files are on fewer servers than there are, each begins on the
    /// server after the last one's, as allocators of file systems spread them. O(servers of a file).
    pub fn default_layout(&self, file: usize) -> Layout {
        let (first, servers) = match self.default.tier {
            Some(tier) => (self.tiers[..tier].iter().map(|tier| tier.servers).sum(), self.tiers[tier].servers),
            None => (0, self.tiers.iter().map(|tier| tier.servers).sum()),
        };
        let count = self.default.count.clamp(1, servers);
        let from = if count == servers { 0 } else { (file % usize::from(servers)) * usize::from(count) };
        let server = |place: u16| ServerId(first + ((from + usize::from(place)) % usize::from(servers)) as u16);
        Layout::striped((0..count).map(server), self.default.width_bytes)
            .expect("a checked default has servers, each once, and a width in bounds")
    }
}
