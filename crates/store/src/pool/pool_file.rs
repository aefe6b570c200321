//! The pool file: servers in tiers, the namespace, the mount point, profiles.

use crate::backend::emulate::{
    ANTICIPATION, DISK_BYTES, DiskConfig, EmulateConfig, FILE_DISTANCE_BYTES, MOST_AT_ONCE, PRESETS, preset,
};
use crate::backend::server::{Server, ServerState};
use crate::backend::{DEFAULT_KIND, META_KIND, REMOVED_KIND};
use crate::os::error::{Error, Result};
use crate::pool::heat_table::HeatConfig;
use rustix::fs::Mode;
use serde::Deserialize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use stripewise_layout::units::{format_bandwidth, format_bytes, format_seconds};
use stripewise_layout::units::{parse_bandwidth, parse_bytes, parse_seconds};
use stripewise_layout::{Layout, META_NAME, ServerId, ServerNames};
use stripewise_model::{Head, NameCosts, OpProfile, Profile, Queue, SeekMap};
use toml::Spanned;

/// Default stripe width of a pool that names none.
pub const DEFAULT_WIDTH_BYTES: u64 = 64 << 10;
/// How full the tier on which new files land may be where the pool file does not say.
const LAND_MARK: f64 = 0.8;
/// Most servers of a pool.
pub const MAX_SERVERS: usize = 4096;
/// Paths and seeks of as many servers, and more.
const MAX_FILE_BYTES: usize = 4 << 20;

/// Where a tier's profile comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileSource {
    /// Written in the pool file, by `stripewise pool calibrate` or by hand.
    PoolFile,
    /// The numbers of the emulation itself.
    Emulation,
    /// Those of a common device, as nothing was measured.
    Preset,
}

/// The device that the namespace is taken for until it is measured.
pub const META_PRESET: &str = "ssd-sata";

/// The metadata tier: the server that is the namespace itself.
#[derive(Debug, Clone, PartialEq)]
pub struct MetaTier {
    /// The server: the namespace, in no tier of the pool file.
    pub server: Server,
    /// What a request costs on it, and the source of that.
    pub profile: (Profile, ProfileSource),
    /// Requests that it serves side by side: as measured, or as emulated; 1 where neither is known.
    pub at_once: u32,
    /// What operations on names cost on it: as measured, or as emulated; `None` where neither is known.
    pub names: Option<NameCosts>,
}

/// Servers of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolTier {
    /// Name.
    pub name: String,
    /// What its servers are made of.
    pub kind: &'static str,
    /// All its servers in order, those that leave or have left too: the place in it is part of a server's name.
    pub servers: Vec<ServerId>,
    /// Bytes that each of them may hold, if limited.
    pub capacity_bytes: Option<u64>,
    /// The device that its servers stand for, if they are emulated.
    pub emulate: Option<EmulateConfig>,
    /// What a request costs on it, and the source of that. `None`: not calibrated yet.
    pub profile: Option<(Profile, ProfileSource)>,
}

/// The tier on which new files that no rule names are made whole, before they move to the place of the default layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Landing {
    /// Index of the tier.
    pub tier: usize,
    /// How full it may be, as a part of its servers' room, before files move in any case.
    pub mark: f64,
}

/// A pool: what its TOML file says, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// The pool file.
    pub file: PathBuf,
    /// Name.
    pub name: String,
    /// Where programs see the files.
    pub mount: PathBuf,
    /// Directory of names, handles and small files.
    pub namespace: PathBuf,
    /// Stripe width of the default layout in bytes.
    pub default_width_bytes: u64,
    /// Where new files are made first, if not in their place at once.
    pub landing: Option<Landing>,
    /// The tiers in order.
    pub tiers: Vec<PoolTier>,
    /// All servers, by [`ServerId`].
    pub servers: Vec<Server>,
    /// The metadata tier.
    pub meta: MetaTier,
    /// How heat is kept, if it is.
    pub heat: Option<HeatConfig>,
}

/// What `pool init` writes.
#[derive(Debug, Clone, Default)]
pub struct PoolSpec {
    /// Name of the pool.
    pub name: String,
    /// Mount point.
    pub mount: PathBuf,
    /// Namespace directory.
    pub namespace: PathBuf,
    /// Width of the default layout in bytes; `None` for [`DEFAULT_WIDTH_BYTES`].
    pub default_width_bytes: Option<u64>,
    /// Tiers in order.
    pub tiers: Vec<TierSpec>,
}

/// One tier of a [`PoolSpec`].
#[derive(Debug, Clone, Default)]
pub struct TierSpec {
    /// Name of the tier.
    pub name: String,
    /// What its servers are made of; `None` for directories.
    pub kind: Option<String>,
    /// Places of its servers.
    pub servers: Vec<PathBuf>,
    /// Bytes per server, if limited.
    pub capacity_bytes: Option<u64>,
    /// Preset to emulate (`hdd-7200`), if any.
    pub emulate: Option<String>,
    /// Factor on all times of the emulated device; `None` for real time.
    pub dilation: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPool {
    name: Spanned<String>,
    mount: Spanned<String>,
    namespace: Spanned<String>,
    #[serde(default)]
    default: RawDefault,
    meta: Option<RawMeta>,
    heat: Option<RawHeat>,
    tier: Spanned<Vec<RawTier>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawDefault {
    width: Option<Spanned<String>>,
    land: Option<Spanned<String>>,
    land_mark: Option<Spanned<f64>>,
}

impl RawDefault {
    /// Files leave the tier at four fifths of its room where nothing else is said.
    fn landing(&self, tiers: &[PoolTier]) -> Result<Option<Landing>, Wrong> {
        let Some(land) = &self.land else {
            let alone =
                |mark: &Spanned<f64>| Err((mark.span(), "land_mark: name a tier with land, or remove it".into()));
            return self.land_mark.as_ref().map_or(Ok(None), alone);
        };
        let tier = tiers.iter().position(|tier| tier.name == *land.get_ref()).ok_or_else(|| {
            let known: Vec<_> = tiers.iter().map(|tier| &*tier.name).collect();
            (land.span(), format!("land: no tier '{}'; name one of {}", land.get_ref(), known.join(", ")))
        })?;
        let mark = self.land_mark.as_ref().map_or(LAND_MARK, |mark| *mark.get_ref());
        if !(0.01..=1.0).contains(&mark) {
            let span = self.land_mark.as_ref().map_or(0..0, Spanned::span);
            return Err((span, "land_mark must be between 0.01 and 1.0".into()));
        }
        Ok(Some(Landing { tier, mark }))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHeat {
    block: Option<Spanned<String>>,
    period: Option<Spanned<String>>,
}

impl RawHeat {
    /// Blocks of 64 KiB and periods of ten minutes where nothing else is said.
    fn check(&self) -> Result<HeatConfig, Wrong> {
        let block_bytes = self.block.as_ref().map_or(Ok(64 << 10), |text| spanned(text, parse_bytes))?;
        if !block_bytes.is_power_of_two() || !(4 << 10..=1 << 30).contains(&block_bytes) {
            let span = self.block.as_ref().map_or(0..0, Spanned::span);
            return Err((span, "heat: block must be a power of two from 4KiB to 1GiB".into()));
        }
        let period_s = self.period.as_ref().map_or(Ok(600.0), |text| spanned(text, parse_seconds))?;
        if !(1.0..=86_400.0 * 365.0).contains(&period_s) {
            let span = self.period.as_ref().map_or(0..0, Spanned::span);
            return Err((span, "heat: period must be between 1s and a year".into()));
        }
        Ok(HeatConfig { block_bytes, period_s: period_s as u64 })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMeta {
    emulate: Option<Spanned<toml::Value>>,
    network: Option<Spanned<String>>,
    at_once: Option<Spanned<u32>>,
    names: Option<Spanned<RawNames>>,
    read: Option<Spanned<RawOp>>,
    write: Option<Spanned<RawOp>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTier {
    name: Spanned<String>,
    kind: Option<Spanned<String>>,
    servers: Spanned<Vec<Spanned<toml::Value>>>,
    capacity: Option<Spanned<String>>,
    network: Option<Spanned<String>>,
    emulate: Option<Spanned<toml::Value>>,
    read: Option<Spanned<RawOp>>,
    write: Option<Spanned<RawOp>>,
}

/// A server that is more than a place: one that came later, or that leaves.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    path: String,
    id: Option<u16>,
    state: Option<String>,
    replaced_by: Option<u16>,
    seeks: Option<Vec<(String, String)>>,
}

impl RawServer {
    /// A server of the list of a tier: its place alone, or a table.
    fn of(raw: &Spanned<toml::Value>) -> Result<Self, Wrong> {
        if let Some(path) = raw.get_ref().as_str() {
            return Ok(Self { path: path.to_owned(), id: None, state: None, replaced_by: None, seeks: None });
        }
        raw.get_ref().clone().try_into().map_err(|error: toml::de::Error| {
            let remedy = "write its directory, or {path, id, state, replaced_by, seeks}";
            (raw.span(), format!("server: {}; {remedy}", error.message()))
        })
    }

    /// Gaps and times, as `pool calibrate` writes them.
    fn seeks(&self, span: Span) -> Result<Option<SeekMap>, Wrong> {
        let wrong = |message: String| (span.clone(), format!("seeks of server {}: {message}", self.path));
        let point = |(gap, time): &(String, String)| {
            let gap = parse_bytes(gap).map_err(|error| error.to_string());
            let time = parse_seconds(time).map_err(|error| error.to_string());
            gap.and_then(|gap| Ok((gap, time?))).map_err(wrong)
        };
        let Some(points) = &self.seeks else { return Ok(None) };
        let points = points.iter().map(point).collect::<Result<Vec<_>, _>>()?;
        let remedy = "or leave seeks out until `stripewise pool calibrate` has measured them";
        SeekMap::new(points).map(Some).map_err(|message| wrong(format!("{message}, {remedy}")))
    }

    fn replaced_by(&self, state: ServerState, span: Span) -> Result<Option<ServerId>, Wrong> {
        match self.replaced_by {
            Some(_) if state == ServerState::Used => {
                let remedy = "one that is used is not replaced; leave it out";
                Err((span, format!("replaced_by of server {}: {remedy}", self.path)))
            }
            by => Ok(by.map(ServerId)),
        }
    }

    fn state(&self, span: Span) -> Result<ServerState, Wrong> {
        match self.state.as_deref() {
            None => Ok(ServerState::Used),
            Some("draining") => Ok(ServerState::Draining),
            Some("removed") => Ok(ServerState::Removed),
            Some(other) => Err((span, format!("server state '{other}': write draining or removed, or leave it out"))),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOp {
    startup: Spanned<(String, String)>,
    sequential_startup: Option<String>,
    ahead: Option<String>,
    bandwidth: Spanned<String>,
}

/// What operations on names cost: least and greatest time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNames {
    look: (String, String),
    change: (String, String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEmulate {
    preset: Option<String>,
    read: Option<RawEmulateOp>,
    write: Option<RawEmulateOp>,
    network: Option<String>,
    dilation: Option<f64>,
    seed: Option<u64>,
    disk: Option<RawDisk>,
    at_once: Option<u32>,
}

/// A disk whose startups depend on where its head is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDisk {
    queue: Option<String>,
    size: Option<String>,
    file_distance: Option<String>,
    rotation: Option<String>,
    wait: Option<String>,
    near: Option<String>,
}

impl RawDisk {
    fn config(&self) -> Result<DiskConfig, String> {
        let said = |key: &'static str| move |error: String| format!("emulate.disk.{key}: {error}");
        let bytes = |key, text: &Option<String>, other: u64| {
            let parsed = text.as_deref().map(|text| parse_bytes(text).map_err(|error| said(key)(error.to_string())));
            parsed.unwrap_or(Ok(other))
        };
        let seconds = |key, text: &Option<String>| {
            let parsed = text.as_deref().map(|text| parse_seconds(text).map_err(|error| said(key)(error.to_string())));
            parsed.transpose()
        };
        let (wait_s, near_bytes) = (seconds("wait", &self.wait)?, bytes("near", &self.near, ANTICIPATION.1)?);
        let queue = match self.queue.as_deref() {
            None | Some("fifo") => Queue::Fifo,
            Some("elevator") => Queue::Elevator,
            Some("anticipatory") => Queue::Anticipatory { wait_s: wait_s.unwrap_or(ANTICIPATION.0), near_bytes },
            Some(other) => return Err(format!("emulate.disk.queue '{other}': write fifo, elevator or anticipatory")),
        };
        let waits = matches!(queue, Queue::Anticipatory { .. });
        if !waits && (self.wait.is_some() || self.near.is_some()) {
            return Err(
                "emulate.disk: wait and near are of an anticipatory queue; write queue = \"anticipatory\", or \
                        remove them"
                    .into(),
            );
        }
        Ok(DiskConfig {
            queue,
            size_bytes: bytes("size", &self.size, DISK_BYTES)?,
            file_distance_bytes: bytes("file_distance", &self.file_distance, FILE_DISTANCE_BYTES)?,
            rotation_s: seconds("rotation", &self.rotation)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEmulateOp {
    startup: (String, String),
    sequential_startup: Option<String>,
    ahead: Option<String>,
    bandwidth: String,
}

type Span = std::ops::Range<usize>;
/// What is wrong, and where in the text.
type Wrong = (Span, String);

fn spanned<T, E: std::fmt::Display>(text: &Spanned<String>, parse: impl Fn(&str) -> Result<T, E>) -> Result<T, Wrong> {
    parse(text.get_ref()).map_err(|error| (text.span(), error.to_string()))
}

/// The head of a server, from the keys `sequential_startup` and `ahead`.
fn head(sequential_startup: Option<&String>, ahead: Option<&String>) -> Result<Option<Head>, String> {
    let Some(startup) = sequential_startup else {
        let alone = "ahead: only a server with a sequential_startup has it; give both, or remove it";
        return if ahead.is_none() { Ok(None) } else { Err(alone.into()) };
    };
    let sequential_startup_s = parse_seconds(startup).map_err(|error| format!("sequential_startup: {error}"))?;
    let ahead_bytes = ahead.map(|text| parse_bytes(text)).transpose().map_err(|error| format!("ahead: {error}"))?;
    Ok(Some(Head { sequential_startup_s, ahead_bytes: ahead_bytes.unwrap_or(0) }))
}

fn op_profile(startup: (&str, &str), bandwidth: &str, head: Option<Head>) -> Result<OpProfile, String> {
    let seconds = |text: &str| parse_seconds(text).map_err(|error| format!("startup: {error}"));
    let (startup_min_s, startup_max_s) = (seconds(startup.0)?, seconds(startup.1)?);
    if startup_min_s > startup_max_s {
        return Err(format!("startup [\"{}\", \"{}\"] must be [least, greatest]", startup.0, startup.1));
    }
    let bytes_per_s = parse_bandwidth(bandwidth).map_err(|error| format!("bandwidth: {error}"))?;
    Ok(OpProfile { startup_min_s, startup_max_s, transfer_s_per_byte: 1.0 / bytes_per_s, head })
}

impl RawOp {
    fn profile(raw: &Spanned<Self>) -> Result<OpProfile, Wrong> {
        let op = raw.get_ref();
        let (min, max) = op.startup.get_ref();
        let head = head(op.sequential_startup.as_ref(), op.ahead.as_ref());
        head.and_then(|head| op_profile((min, max), op.bandwidth.get_ref(), head))
            .map_err(|message| (op.startup.span(), message))
    }
}

/// The profile that a table `key` of the pool file gives tier `name`, if it gives one.
fn written_profile(
    (name, key): (&str, &str),
    (read, write): (&Option<Spanned<RawOp>>, &Option<Spanned<RawOp>>),
    network: &Option<Spanned<String>>,
) -> Result<Option<Profile>, Wrong> {
    let network = network.as_ref().map(|text| spanned(text, parse_bandwidth)).transpose()?;
    let network_s_per_byte = network.map_or(0.0, |bytes_per_s| 1.0 / bytes_per_s);
    let (span, missing) = match (read, write) {
        (Some(read), Some(write)) => {
            return Ok(Some(Profile {
                read: RawOp::profile(read)?,
                write: RawOp::profile(write)?,
                network_s_per_byte,
            }));
        }
        (None, None) => return Ok(None),
        (Some(read), None) => (read.span(), "write"),
        (None, Some(write)) => (write.span(), "read"),
    };
    Err((span, format!("tier '{name}' has no [{key}.{missing}]; give both, or run calibrate")))
}

fn spanned_names(raw: &Spanned<RawNames>) -> Result<NameCosts, Wrong> {
    let range = |key: &str, (least, most): &(String, String)| {
        let seconds = |text: &String| parse_seconds(text).map_err(|error| format!("meta.names.{key}: {error}"));
        let range = [seconds(least)?, seconds(most)?];
        if range[0] > range[1] {
            return Err(format!("meta.names.{key} [\"{least}\", \"{most}\"] must be [least, greatest]"));
        }
        Ok(range)
    };
    let RawNames { look, change } = raw.get_ref();
    let costs = range("look", look).and_then(|look_s| Ok(NameCosts { look_s, change_s: range("change", change)? }));
    costs.map_err(|message| (raw.span(), message))
}

impl MetaTier {
    fn check(raw: Option<&RawMeta>, namespace: &Path) -> Result<Self, Wrong> {
        let written = |raw: &RawMeta| written_profile((META_NAME, META_NAME), (&raw.read, &raw.write), &raw.network);
        let written = raw.map(written).transpose()?.flatten();
        let emulate = raw.and_then(|raw| raw.emulate.as_ref()).map(emulate_config).transpose()?;
        let profile = match (written, emulate) {
            (Some(profile), _) => (profile, ProfileSource::PoolFile),
            (None, Some(config)) => (config.effective_profile(), ProfileSource::Emulation),
            (None, None) => {
                let device = stripewise_model::presets::device(META_PRESET).expect("a device of the model");
                (device, ProfileSource::Preset)
            }
        };
        let written = raw.and_then(|raw| raw.at_once.as_ref());
        let at_once = match written {
            Some(written) if !(1..=MOST_AT_ONCE).contains(written.get_ref()) => {
                let message = format!("meta.at_once is {}; write a number from 1 to {MOST_AT_ONCE}", written.get_ref());
                return Err((written.span(), message));
            }
            Some(written) => *written.get_ref(),
            None => emulate.map_or(1, |config| config.at_once),
        };
        let names = match raw.and_then(|raw| raw.names.as_ref()) {
            Some(written) => Some(spanned_names(written)?),
            None => emulate.map(|config| NameCosts::of_profile(&config.effective_profile())),
        };
        let server = Server {
            id: ServerId::META,
            name: META_NAME.to_owned(),
            tier: usize::MAX,
            kind: META_KIND,
            root: namespace.to_owned(),
            capacity_bytes: None,
            emulate,
            state: ServerState::Used,
            replaced_by: None,
            seeks: None,
        };
        Ok(Self { server, profile, at_once, names })
    }
}

fn emulate_config(raw: &Spanned<toml::Value>) -> Result<EmulateConfig, Wrong> {
    let wrong = |message: String| (raw.span(), message);
    let named = |name: &str| {
        preset(name).ok_or_else(|| {
            let known: Vec<_> = PRESETS.iter().map(|(known, _)| *known).collect();
            wrong(format!("emulate: no preset '{name}'; write one of {}, or a table", known.join(", ")))
        })
    };
    if let Some(name) = raw.get_ref().as_str() {
        return named(name);
    }
    let table: RawEmulate = raw
        .get_ref()
        .clone()
        .try_into()
        .map_err(|error: toml::de::Error| wrong(format!("emulate: {}", error.message())))?;
    let op = |op: &RawEmulateOp, name: &str| {
        head(op.sequential_startup.as_ref(), op.ahead.as_ref())
            .and_then(|head| op_profile((&op.startup.0, &op.startup.1), &op.bandwidth, head))
            .map_err(|message| wrong(format!("emulate.{name}: {message}")))
    };
    let base = table.preset.as_deref().map(named).transpose()?;
    let read = table.read.as_ref().map(|raw| op(raw, "read")).transpose()?;
    let write = table.write.as_ref().map(|raw| op(raw, "write")).transpose()?;
    let missing =
        |name: &str| wrong(format!("emulate: {name} is missing; give {name} = {{startup, bandwidth}} or a preset"));
    let network = table.network.as_deref().map(parse_bandwidth).transpose();
    let network = network.map_err(|error| wrong(format!("emulate.network: {error}")))?;
    let config = EmulateConfig {
        profile: Profile {
            read: read.or(base.map(|base| base.profile.read)).ok_or_else(|| missing("read"))?,
            write: write.or(base.map(|base| base.profile.write)).ok_or_else(|| missing("write"))?,
            network_s_per_byte: network.map_or(0.0, |bytes_per_s| 1.0 / bytes_per_s),
        },
        dilation: table.dilation.unwrap_or(1.0),
        seed: table.seed.unwrap_or(1),
        disk: table.disk.as_ref().map(RawDisk::config).transpose().map_err(wrong)?,
        at_once: table.at_once.unwrap_or(1),
    };
    config.validate().map_err(|error| wrong(error.to_string()))?;
    Ok(config)
}

/// Whether `name` can be a tier's or a pool's name: it stands in `tier.index`, in ranges and in file names.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// `path` below `base` without `.` and `..`, so that paths compare.
fn absolute(base: &Path, path: &str) -> PathBuf {
    let mut out = PathBuf::new();
    for component in base.join(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1
}

impl Pool {
    /// Reads and checks the pool file at `path`. Touches no server. Makes direct system calls only, so the preload can
    /// use it.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = crate::os::sys::read_file(path, MAX_FILE_BYTES)?;
        let text = String::from_utf8(bytes).map_err(|error| Error::Pool {
            path: path.to_owned(),
            line: line_of(&String::from_utf8_lossy(error.as_bytes()), error.utf8_error().valid_up_to()),
            message: "not UTF-8 text".into(),
        })?;
        let base = if path.is_absolute() {
            path.to_owned()
        } else {
            let here = rustix::process::getcwd(Vec::new()).map_err(Error::io("find the directory of", path))?;
            Path::new(std::ffi::OsStr::from_bytes(here.to_bytes())).join(path)
        };
        Self::parse(&text, &base)
    }

    /// Checks the text of a pool file; `file` is its absolute path, relative paths in it are relative to its
    /// directory.
    pub fn parse(text: &str, file: &Path) -> Result<Self> {
        let fail =
            |(span, message): Wrong| Error::Pool { path: file.to_owned(), line: line_of(text, span.start), message };
        let raw: RawPool = toml::from_str(text).map_err(|error| {
            let hint = if error.message().contains("unknown field") { "; correct the key or remove it" } else { "" };
            fail((error.span().unwrap_or(0..0), format!("{}{hint}", error.message())))
        })?;
        Self::check(raw, file).map_err(fail)
    }

    fn check(raw: RawPool, file: &Path) -> Result<Self, Wrong> {
        let base = file.parent().unwrap_or(Path::new("/"));
        if !is_name(raw.name.get_ref()) {
            return Err((raw.name.span(), format!("name '{}': use letters, digits, - and _", raw.name.get_ref())));
        }
        let mount = absolute(base, raw.mount.get_ref());
        let namespace = absolute(base, raw.namespace.get_ref());
        if namespace.starts_with(&mount) {
            return Err((raw.namespace.span(), format!("namespace must not be below the mount {}", mount.display())));
        }
        let default_width_bytes = match &raw.default.width {
            None => DEFAULT_WIDTH_BYTES,
            Some(width) => spanned(width, parse_bytes)?,
        };
        if !(1..=1 << 40).contains(&default_width_bytes) {
            let span = raw.default.width.map_or(0..0, |width| width.span());
            return Err((span, "default width must be between 1 byte and 1TiB".into()));
        }
        let meta = MetaTier::check(raw.meta.as_ref(), &namespace)?;
        let mut pool = Self {
            file: file.to_owned(),
            name: raw.name.into_inner(),
            mount,
            namespace,
            default_width_bytes,
            landing: None,
            tiers: Vec::new(),
            servers: Vec::new(),
            meta,
            heat: raw.heat.as_ref().map(RawHeat::check).transpose()?,
        };
        let tiers_span = raw.tier.span();
        for tier in raw.tier.into_inner() {
            pool.add_tier(tier, base)?;
        }
        if pool.servers.is_empty() {
            return Err((tiers_span, "a pool needs at least one [[tier]] with a server".into()));
        }
        if !pool.servers.iter().any(Server::is_used) {
            return Err((tiers_span, "no server is in use: all of them are being drained or removed".into()));
        }
        pool.number(tiers_span)?;
        pool.landing = raw.default.landing(&pool.tiers)?;
        Ok(pool)
    }

    /// Puts the servers in the order of their ids. Those whose entries give none have the first ids, in the order of the file;
    /// so one that comes later, into whichever tier, moves no other.
    fn number(&mut self, span: Span) -> Result<(), Wrong> {
        let unnamed = self.servers.iter().filter(|server| server.id == ServerId::META).count();
        let mut next = 0..unnamed as u16;
        for server in self.servers.iter_mut().filter(|server| server.id == ServerId::META) {
            server.id = ServerId(next.next().expect("as many as were counted"));
        }
        for server in &self.servers {
            self.tiers[server.tier].servers.push(server.id);
        }
        self.servers.sort_by_key(|server| server.id);
        let in_order = |(index, server): (usize, &Server)| server.id.index() == index;
        if !self.servers.iter().enumerate().all(in_order) {
            let message = format!(
                "ids of servers: the {unnamed} that name none have 0 to {}, the others need each number from {unnamed} to {} \
                 once; restore the entries that were removed",
                unnamed.saturating_sub(1),
                self.servers.len() - 1
            );
            return Err((span, message));
        }
        let unknown =
            |server: &&Server| server.replaced_by.is_some_and(|by| by == server.id || by.index() >= self.servers.len());
        if let Some(server) = self.servers.iter().find(unknown) {
            let message = format!("replaced_by of {}: name the id of another server, or leave it out", server.name);
            return Err((span, message));
        }
        Ok(())
    }

    fn add_tier(&mut self, raw: RawTier, base: &Path) -> Result<(), Wrong> {
        let name = raw.name.get_ref();
        if !is_name(name) || name == META_NAME {
            let message = format!("tier name '{name}': use letters, digits, - and _ (meta is the namespace itself)");
            return Err((raw.name.span(), message));
        }
        if self.tiers.iter().any(|tier| tier.name == *name) {
            return Err((raw.name.span(), format!("tier '{name}' stands twice; join its servers into one [[tier]]")));
        }
        let kind = match &raw.kind {
            None => DEFAULT_KIND,
            Some(kind) => {
                crate::backend::kind(kind.get_ref()).map_err(|why| (kind.span(), format!("tier '{name}': {why}")))?
            }
        };
        let capacity_bytes = raw.capacity.as_ref().map(|text| spanned(text, parse_bytes)).transpose()?;
        let emulate = raw.emulate.as_ref().map(emulate_config).transpose()?;
        if let (Some(config), Some(raw)) = (emulate, &raw.emulate)
            && config.at_once != 1
        {
            let remedy = "only [meta] can serve several requests at once; remove at_once, or write more servers";
            return Err((raw.span(), format!("tier '{name}': emulate.at_once: {remedy}")));
        }
        let written = written_profile((name, "tier"), (&raw.read, &raw.write), &raw.network)?;
        let emulated = || emulate.map(|config| (config.effective_profile(), ProfileSource::Emulation));
        let profile = written.map(|profile| (profile, ProfileSource::PoolFile)).or_else(emulated);
        let index = self.tiers.len();
        for (position, server) in raw.servers.get_ref().iter().enumerate() {
            let entry = RawServer::of(server)?;
            let (state, seeks) = (entry.state(server.span())?, entry.seeks(server.span())?);
            let replaced_by = entry.replaced_by(state, server.span())?;
            let root = absolute(base, &entry.path);
            let twice = self.servers.iter().find(|other| other.root == root && other.state != ServerState::Removed);
            if let Some(other) = twice.filter(|_| state != ServerState::Removed) {
                return Err((server.span(), format!("{} is already the directory of {}", root.display(), other.name)));
            }
            if root.starts_with(&self.mount) || root == self.namespace {
                let message = format!("server {} must not be the namespace or below the mount", root.display());
                return Err((server.span(), message));
            }
            if self.servers.len() == MAX_SERVERS {
                return Err((server.span(), format!("more than {MAX_SERVERS} servers")));
            }
            if entry.id.is_some_and(|id| usize::from(id) >= MAX_SERVERS) {
                return Err((server.span(), format!("id of server {}: 0 to {}", root.display(), MAX_SERVERS - 1)));
            }
            // Those without an id get theirs when all are known.
            let id = entry.id.map_or(ServerId::META, ServerId);
            let name = format!("{name}.{position}");
            let is_gone = state == ServerState::Removed;
            let (kind, emulate) = if is_gone { (REMOVED_KIND, None) } else { (kind, emulate) };
            let tier = index;
            self.servers.push(Server {
                id,
                name,
                tier,
                kind,
                root,
                capacity_bytes,
                emulate,
                state,
                replaced_by,
                seeks,
            });
        }
        if raw.servers.get_ref().is_empty() {
            return Err((raw.servers.span(), format!("tier '{name}' has no server; name at least one directory")));
        }
        let servers = Vec::new();
        self.tiers.push(PoolTier { name: raw.name.into_inner(), kind, servers, capacity_bytes, emulate, profile });
        Ok(())
    }

    /// Whether `path` is inside a directory of the pool's own: those of its servers, and the namespace.
    pub fn is_inside(&self, path: &Path) -> bool {
        self.own_directories().any(|own| path.starts_with(own))
    }

    /// The directories of the servers and of the namespace.
    pub(crate) fn own_directories(&self) -> impl Iterator<Item = &Path> {
        self.servers.iter().map(|server| &*server.root).chain([&*self.namespace])
    }

    /// The layout of files that no rule names: one region over all servers in use, all of the default width.
    pub fn default_layout(&self) -> Layout {
        let servers = self.servers.iter().filter(|server| server.is_used()).map(|server| server.id);
        match Layout::striped(servers, self.default_width_bytes) {
            Ok(layout) => layout,
            // A checked pool has servers, each once, and a width between 1 and 2^40.
            Err(error) => unreachable!("default layout of a checked pool: {error}"),
        }
    }

    /// The layout of new files that no rule names, where they land first: the servers in use of that tier, all of the default
    /// width. `None` where they are made in their place at once, or the tier has no server in use.
    pub fn landing_layout(&self) -> Option<Layout> {
        let tier = self.tiers.get(self.landing?.tier)?;
        Layout::striped(self.used(tier).map(|server| server.id), self.default_width_bytes).ok()
    }

    /// The server of that id, if the pool has it.
    pub fn server(&self, id: ServerId) -> Option<&Server> {
        self.servers.get(id.index())
    }

    /// Whether all servers are in use and have ids in the order of the pool file: then counts of servers by tier tell them.
    pub fn is_plain(&self) -> bool {
        let ids = self.tiers.iter().flat_map(|tier| &tier.servers);
        self.servers.iter().all(Server::is_used) && ids.enumerate().all(|(index, id)| id.index() == index)
    }

    /// The servers that have not been removed.
    pub fn there(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|server| server.state != ServerState::Removed)
    }

    /// The servers of a tier that new files may use, in order.
    pub fn used<'a>(&'a self, tier: &'a PoolTier) -> impl Iterator<Item = &'a Server> {
        tier.servers.iter().filter_map(|&id| self.server(id)).filter(|server| server.is_used())
    }

    /// The server of that name, as in `hdd.0`.
    ///
    /// # Errors
    /// The pool has none of that name, or it was removed.
    pub fn named(&self, name: &str) -> Result<&Server> {
        let found = self.server_names().id(name).and_then(|id| self.server(id));
        let there = found.filter(|server| server.state != ServerState::Removed);
        there.ok_or_else(|| {
            let names: Vec<_> = self.there().map(|server| &*server.name).collect();
            let what = if found.is_some() { "was removed" } else { "is none of the pool's servers" };
            Error::Invalid(format!("{name} {what}; name one of {}", names.join(", ")))
        })
    }

    /// Names of the servers, for reading and writing layouts as text. Those that were removed keep theirs.
    pub fn server_names(&self) -> ServerNames {
        ServerNames::of(self.tiers.iter().map(|tier| (tier.name.clone(), tier.servers.clone())).collect())
    }

    /// Name of a server as in `hdd.0`; `meta` for the metadata tier; `#7` when the pool has no such server.
    pub fn server_name(&self, id: ServerId) -> String {
        self.server(id).map_or_else(|| id.to_string(), |server| server.name.clone())
    }

    /// Writes a tier's profile, or that of `meta`, into the pool file `path`, keeping everything else, comments included.
    pub fn write_profile(path: &Path, tier: &str, profile: &Profile) -> Result<()> {
        edit(path, |document| {
            let table = if tier == META_NAME { meta_table(document) } else { tier_table(document, tier) };
            let table = table.ok_or_else(|| format!("no [[tier]] with name = \"{tier}\""))?;
            for (key, op) in [("read", &profile.read), ("write", &profile.write)] {
                write_op(table, key, op);
            }
            Ok(())
        })
    }

    /// Writes how many requests the metadata tier serves side by side into the pool file `path`; everything else stays.
    ///
    /// # Errors
    /// The file cannot be written, or `at_once` is none that it may have.
    pub fn write_at_once(path: &Path, at_once: u32) -> Result<()> {
        edit(path, |document| {
            meta_table(document).ok_or("meta is no table")?["at_once"] = toml_edit::value(i64::from(at_once));
            Ok(())
        })
    }

    /// Writes what operations on names cost on the metadata tier into the pool file `path`; everything else stays.
    ///
    /// # Errors
    /// The file cannot be written, or `names` cannot be a cost.
    pub fn write_names(path: &Path, names: &NameCosts) -> Result<()> {
        edit(path, |document| {
            if !names.is_valid() {
                return Err(format!("{names:?} cannot be what operations on names cost"));
            }
            let table = meta_table(document).ok_or("meta is no table")?;
            let entry = table.entry("names").or_insert_with(toml_edit::table);
            for (key, range) in [("look", names.look_s), ("change", names.change_s)] {
                entry[key] = toml_edit::value(toml_edit::Array::from_iter(range.map(format_seconds)));
            }
            Ok(())
        })
    }

    /// Writes what a seek takes on servers, by their names, into the pool file `path`, or takes out what was there; everything else
    /// stays.
    ///
    /// # Errors
    /// The pool has no such server; the file cannot be written.
    pub fn write_seeks(path: &Path, seeks: &[(String, Option<SeekMap>)]) -> Result<()> {
        let pool = Self::load(path)?;
        let mut changed = Vec::new();
        for (server, seeks) in seeks {
            if pool.named(server)?.seeks != *seeks {
                changed.push((server, seeks));
            }
        }
        edit(path, |document| {
            for (server, seeks) in changed {
                let place = server.rsplit_once('.').and_then(|(tier, place)| Some((tier, place.parse().ok()?)));
                let (tier, place) = place.ok_or_else(|| format!("{server} is not in the list of a tier"))?;
                let entry = server_entry(document, tier, place)?;
                let point = |(gap, startup_s): &(u64, f64)| {
                    let pair = [format_bytes(*gap), format_seconds(*startup_s)];
                    toml_edit::Value::Array(pair.into_iter().collect())
                };
                match seeks {
                    Some(seeks) => drop(entry.insert("seeks", seeks.points().iter().map(point).collect())),
                    None => drop(entry.remove("seeks")),
                }
            }
            Ok(())
        })
    }

    /// Adds servers, by the name of their tier, directory and id, to the pool file `path`, all at once; the server `in_place_of` which one
    /// comes, by its tier and number there, is drained from then on. Everything else stays.
    pub(crate) fn write_new_servers(
        path: &Path,
        new: &[(String, PathBuf, ServerId)],
        in_place_of: Option<(&str, u16)>,
    ) -> Result<()> {
        edit(path, |document| {
            for (tier, root, id) in new {
                let root = root.to_str().ok_or_else(|| format!("{} is not UTF-8 text", root.display()))?;
                let mut entry = toml_edit::InlineTable::new();
                entry.insert("path", root.into());
                entry.insert("id", i64::from(id.0).into());
                servers_of(document, tier)?.push(entry);
            }
            if let (Some((tier, place)), Some((_, _, id))) = (in_place_of, new.first()) {
                let entry = server_entry(document, tier, place)?;
                entry.insert("state", "draining".into());
                entry.insert("replaced_by", i64::from(id.0).into());
            }
            Ok(())
        })
    }

    /// Writes the state of server number `place` of a tier into the pool file `path`; everything else stays.
    pub(crate) fn write_state(path: &Path, tier: &str, place: u16, state: ServerState) -> Result<()> {
        edit(path, |document| {
            let entry = server_entry(document, tier, place)?;
            match state {
                ServerState::Used => drop((entry.remove("state"), entry.remove("replaced_by"))),
                ServerState::Draining => drop(entry.insert("state", "draining".into())),
                ServerState::Removed => drop(entry.insert("state", "removed".into())),
            }
            Ok(())
        })
    }
}

/// The table of server number `place` of a tier; made of its path where that is all there is.
fn server_entry<'a>(
    document: &'a mut toml_edit::DocumentMut,
    tier: &str,
    place: u16,
) -> Result<&'a mut toml_edit::InlineTable, String> {
    let server = servers_of(document, tier)?.get_mut(usize::from(place));
    let server = server.ok_or_else(|| format!("tier '{tier}' has no server number {place}"))?;
    if let Some(root) = server.as_str() {
        let mut entry = toml_edit::InlineTable::new();
        entry.insert("path", root.into());
        let before = std::mem::replace(server, entry.into());
        *server.decor_mut() = before.decor().clone();
    }
    server.as_inline_table_mut().ok_or_else(|| "a server is neither text nor a table".to_owned())
}

/// The table of a tier.
fn tier_table<'a>(document: &'a mut toml_edit::DocumentMut, tier: &str) -> Option<&'a mut toml_edit::Table> {
    let tiers = document.get_mut("tier").and_then(toml_edit::Item::as_array_of_tables_mut);
    let is_meant = |table: &&mut toml_edit::Table| table.get("name").and_then(|n| n.as_str()) == Some(tier);
    tiers.and_then(|tiers| tiers.iter_mut().find(is_meant))
}

/// The list of servers of a tier.
fn servers_of<'a>(document: &'a mut toml_edit::DocumentMut, tier: &str) -> Result<&'a mut toml_edit::Array, String> {
    let servers = tier_table(document, tier).and_then(|table| table.get_mut("servers")?.as_array_mut());
    servers.ok_or_else(|| format!("no [[tier]] with name = \"{tier}\""))
}

/// The table of the metadata tier, which is made if there is none; `None` where something else stands there.
fn meta_table(document: &mut toml_edit::DocumentMut) -> Option<&mut toml_edit::Table> {
    let mut empty = toml_edit::Table::new();
    empty.set_implicit(true);
    document.entry(META_NAME).or_insert(toml_edit::Item::Table(empty)).as_table_mut()
}

fn write_op(table: &mut toml_edit::Table, key: &str, op: &OpProfile) {
    let entry = table.entry(key).or_insert_with(toml_edit::table);
    let mut startup = toml_edit::Array::new();
    startup.push(format_seconds(op.startup_min_s));
    startup.push(format_seconds(op.startup_max_s));
    entry["startup"] = toml_edit::value(startup);
    if let Some(entry) = entry.as_table_like_mut() {
        // Those of an earlier calibration no longer hold.
        entry.remove("sequential_startup");
        entry.remove("ahead");
    }
    if let Some(head) = op.head {
        entry["sequential_startup"] = toml_edit::value(format_seconds(head.sequential_startup_s));
        if head.ahead_bytes > 0 {
            entry["ahead"] = toml_edit::value(format_bytes(head.ahead_bytes));
        }
    }
    // Where larger requests have taken no more time than small ones it is nothing, which no bandwidth says.
    entry["bandwidth"] =
        toml_edit::value(format_bandwidth(1.0 / op.transfer_s_per_byte.max(LEAST_TRANSFER_S_PER_BYTE)));
}

/// Of what the pool file says of a tier: a petabyte a second.
const LEAST_TRANSFER_S_PER_BYTE: f64 = 1e-15;

/// Changes the pool file `path` by `change`, which says what is wrong. It is replaced at once, if what comes out is a pool file.
fn edit(path: &Path, change: impl FnOnce(&mut toml_edit::DocumentMut) -> Result<(), String>) -> Result<()> {
    let bytes = crate::os::sys::read_file(path, MAX_FILE_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let wrong = |message: String| Error::Pool { path: path.to_owned(), line: 1, message };
    let mut document: toml_edit::DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| Error::Pool {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(&text, span.start)),
        message: error.message().to_owned(),
    })?;
    change(&mut document).map_err(wrong)?;
    let edited = document.to_string();
    let absolute = absolute(path.parent().unwrap_or(Path::new("/")), ".");
    if edited.len() > MAX_FILE_BYTES {
        return Err(wrong(format!(
            "the pool file would have {} bytes, and at most {MAX_FILE_BYTES} are read",
            edited.len()
        )));
    }
    Pool::parse(&edited, path)?;
    let directory = if absolute.as_os_str().is_empty() { PathBuf::from(".") } else { absolute };
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| wrong("not a file name".into()))?;
    let mode = rustix::fs::stat(path).map_err(Error::io("read", path))?.st_mode;
    let directory_fd = crate::os::sys::open_directory(&directory).map_err(Error::io("open", &directory))?;
    crate::os::sys::replace_file(directory_fd, name, edited.as_bytes(), Mode::from_raw_mode(mode & 0o777))
        .map_err(Error::io("write", path))
}

impl PoolSpec {
    pub(crate) fn to_toml(&self) -> String {
        use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};
        let path = |path: &Path| value(path.to_string_lossy().into_owned());
        let mut document = DocumentMut::new();
        document["name"] = value(&self.name);
        document["mount"] = path(&self.mount);
        document["namespace"] = path(&self.namespace);
        let mut default = Table::new();
        default["width"] = value(format_bytes(self.default_width_bytes.unwrap_or(DEFAULT_WIDTH_BYTES)));
        document["default"] = Item::Table(default);
        let mut tiers = ArrayOfTables::new();
        for tier in &self.tiers {
            let mut table = Table::new();
            table["name"] = value(&tier.name);
            if let Some(kind) = &tier.kind {
                table["kind"] = value(kind);
            }
            let servers: toml_edit::Array = tier.servers.iter().map(|p| p.to_string_lossy().into_owned()).collect();
            table["servers"] = value(servers);
            if let Some(capacity) = tier.capacity_bytes {
                table["capacity"] = value(format_bytes(capacity));
            }
            match (&tier.emulate, tier.dilation) {
                (Some(preset), None) => table["emulate"] = value(preset),
                (Some(preset), Some(dilation)) => {
                    let mut emulate = toml_edit::InlineTable::new();
                    emulate.insert("preset", preset.into());
                    emulate.insert("dilation", dilation.into());
                    table["emulate"] = value(emulate);
                }
                (None, _) => {}
            }
            tiers.push(table);
        }
        document["tier"] = Item::ArrayOfTables(tiers);
        document.to_string()
    }
}
