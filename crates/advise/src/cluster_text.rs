//! [`checked`]: the text of a cluster file, every key of it checked and named where it is wrong.

use crate::cluster_file::{ClusterFile, ClusterTier, DefaultLayout, FileSystem, MAX_SERVERS};
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt::Display;
use stripewise_layout::units::{parse_bandwidth, parse_bytes, parse_seconds};
use stripewise_model::presets::{self, DEVICES};
use stripewise_model::{MAX_TIERS, OpProfile, Profile};
use toml::Spanned;

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
    bandwidth: Spanned<String>,
}

/// What is wrong, and where in the text.
pub(crate) type Wrong = (std::ops::Range<usize>, String);

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
        let RawOp { startup, bandwidth } = raw.get_ref();
        let (least, greatest) = startup.get_ref();
        let seconds =
            |text: &str| parse_seconds(text).map_err(|error| (startup.span(), format!("{key}.startup: {error}")));
        let (startup_min_s, startup_max_s) = (seconds(least)?, seconds(greatest)?);
        if startup_min_s > startup_max_s {
            let message = format!("{key}.startup = [\"{least}\", \"{greatest}\"]: write [least, greatest]");
            return Err((startup.span(), message));
        }
        let bytes_per_s = read(&format!("{key}.bandwidth"), bandwidth, parse_bandwidth)?;
        Ok(OpProfile { startup_min_s, startup_max_s, transfer_s_per_byte: 1.0 / bytes_per_s })
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
        Ok(ClusterFile { name, file_system, default, tiers })
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
pub(crate) fn checked(text: &str) -> Result<ClusterFile, Wrong> {
    let raw: RawCluster = toml::from_str(text).map_err(|error| {
        let hint = if error.message().contains("unknown field") { ": correct the key or remove it" } else { "" };
        (error.span().unwrap_or(0..0), format!("{}{hint}", error.message()))
    })?;
    raw.check()
}
