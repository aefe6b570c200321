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

use crate::cluster_text::{Wrong, checked};
use serde::Deserialize;
use std::fmt::{self, Display};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use stripewise_layout::{Layout, ServerId, ServerNames};
use stripewise_model::{Cluster, Profile, Tier};

/// Most bytes of a cluster file.
const MAX_FILE_BYTES: u64 = 1 << 20;

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

    /// Servers and width in bytes of a file's stripes where nobody set them; no number is all servers. From the systems'
    /// own defaults: Lustre one OST of 1 MiB, BeeGFS 4 targets of 512 KiB, CephFS objects of 4 MiB anywhere, OrangeFS
    /// 64 KiB on all servers.
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
}

/// What is wrong with a cluster file, and where.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It is no cluster file.
    #[error("{}:{line}: {message}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Line in it, from 1.
        line: usize,
        /// The key, its value, and what to write.
        message: String,
    },
}

impl ClusterFile {
    /// Reads and checks the cluster file at `path`.
    ///
    /// # Errors
    /// [`ClusterError`] with the line, the key, its value and the remedy.
    pub fn load(path: &Path) -> Result<Self, ClusterError> {
        let io = |source| ClusterError::Io { path: path.to_owned(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(io)?;
        file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(io)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            let message = "longer than 1 MiB: is it a cluster file?".to_owned();
            return Err(ClusterError::Wrong { path: path.to_owned(), line: 1, message });
        }
        Self::parse(&text, path)
    }

    /// Checks the text of a cluster file; `path` is for messages.
    ///
    /// # Errors
    /// [`ClusterError::Wrong`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ClusterError> {
        let fail = |(span, message): Wrong| {
            let line = text.as_bytes().iter().take(span.start).filter(|&&byte| byte == b'\n').count() + 1;
            ClusterError::Wrong { path: path.to_owned(), line, message }
        };
        checked(text).map_err(fail)
    }

    /// The servers as planner and simulator see them, numbered in order of tiers.
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
            }
        });
        Cluster { tiers: tiers.collect() }
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

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"orion\"\nfile_system = \"lustre\"\n[default]\ntier = \"hdd\"\ncount = 2\nwidth = \"1MiB\"\n\
        [[tier]]\nname = \"ssd\"\nservers = 2\npreset = \"nvme\"\nnetwork = \"1GB/s\"\n[[tier]]\nname = \"hdd\"\nservers = 6\n\
        capacity = \"10TB\"\npool = \"hdd_pool\"\n[tier.read]\nstartup = [\"4ms\", \"12ms\"]\nbandwidth = \"80MB/s\"\n\
        [tier.write]\nstartup = [\"4ms\", \"12ms\"]\nbandwidth = \"80MB/s\"\n";

    fn parse(text: &str) -> Result<ClusterFile, String> {
        ClusterFile::parse(text, Path::new("c.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_read() {
        let file = parse(GOOD).unwrap();
        assert_eq!((file.name.as_str(), file.file_system), ("orion", Some(FileSystem::Lustre)));
        assert_eq!(file.default, DefaultLayout { tier: Some(1), count: 2, width_bytes: 1 << 20 });
        let cluster = file.cluster();
        assert_eq!(cluster.tiers[1].servers, (2..8).map(ServerId).collect::<Vec<_>>());
        assert_eq!(cluster.tiers[1].capacity_bytes, Some(10_000_000_000_000));
        assert_eq!(cluster.tiers[0].profile.network_s_per_byte, 1e-9);
        assert_eq!(file.tiers[1].pool.as_deref(), Some("hdd_pool"));
        assert_eq!((file.tiers[0].preset.as_deref(), file.tiers[1].preset.as_deref()), (Some("nvme"), None));
        assert_eq!(file.names().name(ServerId(2)), "hdd.0");
    }

    #[test]
    fn files_of_few_servers_are_spread() {
        let file = parse(GOOD).unwrap();
        let first = |number| file.default_layout(number).regions()[0].stripes()[0].server.0;
        assert_eq!((0..4).map(first).collect::<Vec<_>>(), [2, 4, 6, 2]);
        let all = parse("name = \"c\"\n[[tier]]\nname = \"a\"\nservers = 3\npreset = \"nvme\"\n").unwrap();
        assert_eq!(all.default, DefaultLayout { tier: None, count: 3, width_bytes: 1 << 20 });
        assert_eq!(all.default_layout(0), all.default_layout(2));
    }

    #[test]
    fn the_default_is_that_of_the_file_system() {
        for (system, count, width) in
            [("lustre", 1, 1 << 20), ("beegfs", 4, 512 << 10), ("cephfs", 5, 4 << 20), ("orangefs", 5, 64 << 10)]
        {
            let tier = "[[tier]]\nname = \"a\"\nservers = 5\npreset = \"nvme\"\n";
            let file = parse(&format!("name = \"c\"\nfile_system = \"{system}\"\n{tier}")).unwrap();
            assert_eq!((file.default.count, file.default.width_bytes), (count, width), "{system}");
        }
    }

    #[test]
    fn mistakes_name_line_key_value_and_remedy() {
        let changed = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            parse(&GOOD.replacen(from, to, 1)).unwrap_err()
        };
        for (from, to, wanted) in [
            ("\"orion\"", "\"o r\"", "c.toml:1: name = \"o r\": use 1 to 64"),
            ("\"lustre\"", "\"nfs\"", "c.toml:2: file_system = \"nfs\": there is lustre, beegfs"),
            ("tier = \"hdd\"", "tier = \"disk\"", "c.toml:4: default.tier = \"disk\": there is ssd, hdd"),
            ("count = 2", "count = 7", "c.toml:5: default.count = 7: write a number of servers from 1 to 6"),
            ("count = 2", "count = 0", "c.toml:5: default.count = 0"),
            ("\"1MiB\"", "\"2TiB\"", "c.toml:6: default.width = \"2TiB\": write 1 byte to 1TiB"),
            ("\"1MiB\"", "\"wide\"", "c.toml:6: default.width: "),
            ("servers = 2", "servers = -1", "c.toml:9: tier.servers = -1: write"),
            ("servers = 2", "servers = 4096", "c.toml:14: tier.servers: 4102 servers in all, at most 4096"),
            ("\"nvme\"", "\"floppy\"", "c.toml:10: tier.preset = \"floppy\": there is hdd-7200"),
            ("preset = \"nvme\"", "speed = 3", "c.toml:10: unknown field `speed`"),
            ("preset = \"nvme\"\n", "", "c.toml:8: tier \"ssd\" has no profile: write preset = \"hdd-7200\""),
            ("\"1GB/s\"", "\"1\"", "c.toml:11: tier.network: "),
            ("name = \"hdd\"", "name = \"ssd\"", "tier \"ssd\" stands twice"),
            ("name = \"hdd\"", "name = \"meta\"", "tier.name = \"meta\""),
            ("\"10TB\"", "\"0\"", "c.toml:15: tier.capacity = \"0\": give room"),
            ("\"hdd_pool\"", "\"hdd pool\"", "c.toml:16: tier.pool = \"hdd pool\""),
            ("[\"4ms\", \"12ms\"]", "[\"12ms\", \"4ms\"]", "c.toml:18: tier.read.startup = [\"12ms\", \"4ms\"]: write"),
            ("\"80MB/s\"", "\"fast\"", "c.toml:19: tier.read.bandwidth: "),
        ] {
            let error = changed(from, to);
            assert!(error.starts_with("c.toml:") && error.contains(wanted), "{error}\nis not {wanted}");
        }
        assert!(parse("name = \"c\"\n").unwrap_err().contains("add a [[tier]]"));
        let both = GOOD.replacen("servers = 6", "servers = 6\npreset = \"nvme\"", 1);
        assert!(parse(&both).unwrap_err().contains("remove one of them"));
        let many = |n: usize| (0..n).map(|i| format!("[[tier]]\nname = \"t{i}\"\nservers = 1\npreset = \"nvme\"\n"));
        let text = format!("name = \"c\"\n{}", many(9).collect::<String>());
        assert!(parse(&text).unwrap_err().contains("9 tiers, at most 8"));
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("none.toml");
        assert!(ClusterFile::load(&missing).unwrap_err().to_string().starts_with("cannot read "));
        let long = directory.path().join("long.toml");
        std::fs::write(&long, "#".repeat(2 << 20)).unwrap();
        assert!(ClusterFile::load(&long).unwrap_err().to_string().contains("longer than 1 MiB"));
        let bytes = directory.path().join("bytes.toml");
        std::fs::write(&bytes, [0xff, 0xfe]).unwrap();
        assert!(ClusterFile::load(&bytes).is_err());
        assert!(ClusterFile::load(directory.path()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_a_panic(text in proptest::string::string_regex("(name = \"a\"\n)?([a-z_\\[\\]= \"0-9.\\-\n]{0,80})").unwrap()) {
            let _ = parse(&text);
        }
    }
}
