//! Reading a cluster file: every key of its text is checked, and named where it is wrong.

use crate::cluster_file::{ClusterFile, ClusterTier, DefaultLayout, FileSystem, MAX_SERVERS};
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt::Display;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use stripewise_layout::units::{parse_bandwidth, parse_bytes, parse_seconds};
use stripewise_model::presets::{self, DEVICES};
use stripewise_model::{Head, MAX_TIERS, OpProfile, Profile};
use toml::Spanned;

/// Most bytes of a cluster file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Widths of the default layout, in bytes.
const WIDTHS: std::ops::RangeInclusive<u64> = 1..=1 << 40;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCluster {
    name: Spanned<String>,
    file_system: Option<Spanned<String>>,
    default: Option<Spanned<RawDefault>>,
    #[serde(default)]
    tier: Vec<Spanned<RawTier>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDefault {
    tier: Option<Spanned<String>>,
    count: Option<Spanned<i64>>,
    width: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTier {
    name: Spanned<String>,
    servers: Spanned<i64>,
    preset: Option<Spanned<String>>,
    read: Option<Spanned<RawOp>>,
    write: Option<Spanned<RawOp>>,
    network: Option<Spanned<String>>,
    capacity: Option<Spanned<String>>,
    pool: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOp {
    startup: Spanned<(String, String)>,
    sequential_startup: Option<Spanned<String>>,
    ahead: Option<Spanned<String>>,
    bandwidth: Spanned<String>,
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
}

/// What is wrong, and where in the text.
type Wrong = (std::ops::Range<usize>, String);

/// Reads the text of a key.
fn read<T, E: Display>(key: &str, text: &Spanned<String>, parse: impl Fn(&str) -> Result<T, E>) -> Result<T, Wrong> {
    parse(text.get_ref()).map_err(|error| (text.span(), format!("{key}: {error}")))
}

/// Reads a number of servers.
fn count(key: &str, number: &Spanned<i64>, most: u16) -> Result<u16, Wrong> {
    let found = *number.get_ref();
    u16::try_from(found)
        .ok()
        .filter(|&found| (1..=most).contains(&found))
        .ok_or_else(|| (number.span(), format!("{key} = {found}: write a number of servers from 1 to {most}")))
}

/// Whether `name` can be a tier's or a cluster's name: it stands in `tier.index` and in ranges.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn name(key: &str, text: &Spanned<String>) -> Result<String, Wrong> {
    let name = text.get_ref();
    if is_name(name) && name != stripewise_layout::META_NAME {
        return Ok(name.clone());
    }
    Err((text.span(), format!("{key} = \"{name}\": use 1 to 64 letters, digits, - and _ (and not meta)")))
}

impl RawOp {
    fn profile(key: &str, raw: &Spanned<Self>) -> Result<OpProfile, Wrong> {
        let RawOp { startup, sequential_startup, ahead, bandwidth } = raw.get_ref();
        let (least, greatest) = startup.get_ref();
        let seconds =
            |text: &str| parse_seconds(text).map_err(|error| (startup.span(), format!("{key}.startup: {error}")));
        let (startup_min_s, startup_max_s) = (seconds(least)?, seconds(greatest)?);
        if startup_min_s > startup_max_s {
            let message = format!("{key}.startup = [\"{least}\", \"{greatest}\"]: write [least, greatest]");
            return Err((startup.span(), message));
        }
        let bytes_per_s = read(&format!("{key}.bandwidth"), bandwidth, parse_bandwidth)?;
        let head = match (sequential_startup, ahead) {
            (None, None) => None,
            (None, Some(ahead)) => {
                let message = format!("{key}.ahead = \"{}\": give {key}.sequential_startup, too", ahead.get_ref());
                return Err((ahead.span(), message));
            }
            (Some(startup), ahead) => {
                let ahead = ahead.as_ref();
                let ahead_bytes = ahead.map(|text| read(&format!("{key}.ahead"), text, parse_bytes)).transpose()?;
                let sequential_startup_s = read(&format!("{key}.sequential_startup"), startup, parse_seconds)?;
                Some(Head { sequential_startup_s, ahead_bytes: ahead_bytes.unwrap_or(0) })
            }
        };
        Ok(OpProfile { startup_min_s, startup_max_s, transfer_s_per_byte: 1.0 / bytes_per_s, head })
    }
}

impl RawTier {
    fn check(&self) -> Result<ClusterTier, Wrong> {
        let name = name("tier.name", &self.name)?;
        let (profile, preset) = self.profile(&name)?;
        let network = self.network.as_ref().map(|text| read("tier.network", text, parse_bandwidth)).transpose()?;
        let network_s_per_byte = network.map_or(0.0, |bytes_per_s| 1.0 / bytes_per_s);
        let capacity = self.capacity.as_ref().map(|text| read("tier.capacity", text, parse_bytes)).transpose()?;
        if let (Some(0), Some(text)) = (capacity, &self.capacity) {
            return Err((text.span(), format!("tier.capacity = \"{}\": give room, or leave it out", text.get_ref())));
        }
        let pool = self.pool.as_ref().map(|text| {
            let pool = text.get_ref();
            let is_pool = !pool.is_empty() && pool.len() <= 64 && pool.chars().all(|c| c.is_ascii_graphic());
            let message = || format!("tier.pool = \"{pool}\": write the native pool's name, without blanks");
            is_pool.then(|| pool.clone()).ok_or_else(|| (text.span(), message()))
        });
        Ok(ClusterTier {
            name,
            servers: count("tier.servers", &self.servers, MAX_SERVERS)?,
            profile: Profile { network_s_per_byte, ..profile },
            preset,
            capacity_bytes: capacity,
            pool: pool.transpose()?,
        })
    }

    fn profile(&self, name: &str) -> Result<(Profile, Option<String>), Wrong> {
        match (&self.preset, &self.read, &self.write) {
            (Some(preset), None, None) => {
                let known = || DEVICES.map(|(known, _)| known).join(", ");
                let text = preset.get_ref();
                let profile = presets::device(text)
                    .ok_or_else(|| (preset.span(), format!("tier.preset = \"{text}\": there is {}", known())))?;
                Ok((profile, Some(text.clone())))
            }
            (None, Some(read), Some(write)) => {
                let (read, write) = (RawOp::profile("tier.read", read)?, RawOp::profile("tier.write", write)?);
                Ok((Profile { read, write, network_s_per_byte: 0.0 }, None))
            }
            (Some(preset), _, _) => {
                let message = format!("tier \"{name}\" has a preset and a profile of its own: remove one of them");
                Err((preset.span(), message))
            }
            _ => {
                let message = format!(
                    "tier \"{name}\" has no profile: write preset = \"{}\", or both [tier.read] and [tier.write] with \
                     startup = [\"4ms\", \"12ms\"] and bandwidth = \"80MB/s\"",
                    DEVICES[0].0
                );
                Err((self.name.span(), message))
            }
        }
    }
}

impl RawCluster {
    fn check(&self) -> Result<ClusterFile, Wrong> {
        let file_system = self.file_system.as_ref().map(|text| {
            let of_name = |system: &FileSystem| system.name() == text.get_ref();
            let known = || FileSystem::ALL.map(FileSystem::name).join(", ");
            let unknown = || (text.span(), format!("file_system = \"{}\": there is {}", text.get_ref(), known()));
            FileSystem::ALL.into_iter().find(of_name).ok_or_else(unknown)
        });
        let file_system = file_system.transpose()?;
        let mut tiers: Vec<ClusterTier> = Vec::new();
        let (mut names, mut servers) = (HashSet::new(), 0_u32);
        for raw in &self.tier {
            let tier = raw.get_ref().check()?;
            servers += u32::from(tier.servers);
            if servers > u32::from(MAX_SERVERS) {
                let message =
                    format!("tier.servers: {servers} servers in all, at most {MAX_SERVERS} can be planned for");
                return Err((raw.get_ref().servers.span(), message));
            }
            if !names.insert(tier.name.clone()) {
                let message = format!("tier \"{}\" stands twice: join its servers into one [[tier]]", tier.name);
                return Err((raw.get_ref().name.span(), message));
            }
            tiers.push(tier);
        }
        if tiers.is_empty() {
            return Err((self.name.span(), "there is no server: add a [[tier]] with name, servers and preset".into()));
        }
        if tiers.len() > MAX_TIERS {
            let message = format!("{} tiers, at most {MAX_TIERS} can be planned for: join some", tiers.len());
            return Err((self.tier[MAX_TIERS].span(), message));
        }
        let name = name("name", &self.name)?;
        let default = self.default(file_system, &tiers)?;
        Ok(ClusterFile { name, file_system, default, tiers, meta: None })
    }

    fn default(&self, file_system: Option<FileSystem>, tiers: &[ClusterTier]) -> Result<DefaultLayout, Wrong> {
        let raw = self.default.as_ref().map(Spanned::get_ref);
        let tier = raw.and_then(|raw| raw.tier.as_ref()).map(|text| {
            let known = || tiers.iter().map(|tier| tier.name.as_str()).collect::<Vec<_>>().join(", ");
            let unknown = || (text.span(), format!("default.tier = \"{}\": there is {}", text.get_ref(), known()));
            tiers.iter().position(|tier| tier.name == *text.get_ref()).ok_or_else(unknown)
        });
        let tier = tier.transpose()?;
        // MAX_SERVERS bounds the sum.
        let servers = tier.map_or_else(|| tiers.iter().map(|tier| tier.servers).sum(), |tier| tiers[tier].servers);
        let (of_system, width) = file_system.map_or((None, 1 << 20), FileSystem::default);
        let count = match raw.and_then(|raw| raw.count.as_ref()) {
            Some(number) => count("default.count", number, servers)?,
            None => of_system.unwrap_or(servers).min(servers),
        };
        let width_bytes = match raw.and_then(|raw| raw.width.as_ref()) {
            Some(text) => {
                let width = read("default.width", text, parse_bytes)?;
                let wrong = || (text.span(), format!("default.width = \"{}\": write 1 byte to 1TiB", text.get_ref()));
                WIDTHS.contains(&width).then_some(width).ok_or_else(wrong)?
            }
            None => width,
        };
        Ok(DefaultLayout { tier, count, width_bytes })
    }
}

/// Reads a cluster file.
fn checked(text: &str) -> Result<ClusterFile, Wrong> {
    let raw: RawCluster = toml::from_str(text).map_err(|error| {
        let hint = if error.message().contains("unknown field") { ": correct the key or remove it" } else { "" };
        (error.span().unwrap_or(0..0), format!("{}{hint}", error.message()))
    })?;
    raw.check()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ServerId;

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
