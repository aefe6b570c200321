//! Layout files: the region stripe tables (RST) of files as text that people read and edit.
//!
//! ```toml
//! version = 1
//! pool = "scratch"
//!
//! [[file]]
//! path = "data/shared.dat"
//!
//! [[file.region]]
//! offset = "0"
//! round = ["hdd.0-5:64KiB", "ssd.0-1:192KiB"]
//! ```

use crate::binary::MAX_STRIPES;
use crate::layout::{Layout, LayoutError, MAX_OFFSET, ServerId, Stripe};
use crate::names::{META_NAME, ServerNames, decimal};
use crate::pattern::{Pattern, PatternError};
use crate::units::{UnitError, format_bytes, parse_bytes};
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt::Write;
use toml::Spanned;

/// The form of layout files that this program reads and writes.
pub const LAYOUT_FILE_VERSION: i64 = 1;

/// What `plan` writes and `apply` reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutFile {
    /// Name of the pool whose servers it names.
    pub pool: String,
    /// The files, in order.
    pub files: Vec<FileLayout>,
}

/// The layout of one file, or of all files of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLayout {
    /// Which file or files.
    pub path: Pattern,
    /// Where their bytes are.
    pub layout: Layout,
    /// A remark for people, such as the predicted gain.
    pub note: Option<String>,
    /// A remark for each region; empty when there is none at all.
    pub region_notes: Vec<Option<String>>,
}

/// What is wrong with a layout file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct RstError {
    /// Line in the file, from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: RstProblem,
}

/// What can be wrong with a layout file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RstProblem {
    /// Not TOML, or not the keys of a layout file.
    #[error("{0}")]
    Toml(String),
    /// Another form.
    #[error("version {0} is not known; this program reads version {LAYOUT_FILE_VERSION}")]
    Version(i64),
    /// A path that no file has.
    #[error(transparent)]
    Path(#[from] PatternError),
    /// A path that stands twice.
    #[error("'{path}' stands here and in line {first_line}: give each file one layout")]
    RepeatedPath {
        /// The path.
        path: String,
        /// Where it stands first.
        first_line: usize,
    },
    /// A file without a region.
    #[error("'{0}' has no region: add a [[file.region]] with offset = \"0\" and a round")]
    NoRegion(String),
    /// A number of bytes that cannot be read.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A value that is neither text nor a number of bytes.
    #[error("the offset is to be a number of bytes such as \"8MiB\"")]
    Offset,
    /// Not `server:width`.
    #[error("'{0}' is not a server with a width, such as \"hdd.0:64KiB\", \"hdd.0-5:64KiB\" or \"meta:64KiB\"")]
    Entry(String),
    /// A region behind the first, in one line, without its offset.
    #[error("'{0}' does not say where the region begins: write it as in \"64KiB@hdd.0-5:64KiB\"")]
    NoOffset(String),
    /// A tier that the pool does not have.
    #[error("'{entry}': there is no tier '{tier}'; the pool has {known}")]
    UnknownTier {
        /// The entry of the round.
        entry: String,
        /// The unknown tier.
        tier: String,
        /// The tiers that there are.
        known: String,
    },
    /// A server that the tier does not have.
    #[error("'{entry}': there is no server {tier}.{place}; the tier has {servers} servers, from 0 on")]
    UnknownServer {
        /// The entry of the round.
        entry: String,
        /// The tier.
        tier: String,
        /// Place of the unknown server.
        place: u16,
        /// Servers that the tier has.
        servers: u16,
    },
    /// A width of 0.
    #[error("'{0}': the width is 0; leave the server out instead")]
    ZeroWidth(String),
    /// A server twice in one round.
    #[error("'{entry}': server {server} stands twice in the round")]
    Repeated {
        /// The entry of the round.
        entry: String,
        /// The repeated server.
        server: String,
    },
    /// A round without servers.
    #[error("the round is empty: name at least one server with a width")]
    EmptyRound,
    /// More than can be handled.
    #[error("the file has more than {MAX_STRIPES} stripes in all: use fewer regions")]
    TooLarge,
    /// Offsets or lengths that do not make a layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    version: Spanned<i64>,
    pool: String,
    #[serde(default)]
    file: Vec<RawLayout>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLayout {
    path: Spanned<String>,
    note: Option<String>,
    #[serde(default)]
    region: Vec<RawRegion>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRegion {
    offset: Spanned<toml::Value>,
    round: Spanned<Vec<Spanned<String>>>,
    note: Option<String>,
}

/// Turns places in the text into lines.
struct Text<'a>(&'a str);

impl Text<'_> {
    fn line(&self, at: usize) -> usize {
        self.0.as_bytes()[..at.min(self.0.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    fn error<T>(&self, place: &Spanned<T>, problem: impl Into<RstProblem>) -> RstError {
        RstError { line: self.line(place.span().start), problem: problem.into() }
    }

    /// Reads the TOML and checks its version.
    fn read(&self) -> Result<RawFile, RstError> {
        // A later form may have other keys: its version counts first.
        if let Ok(table) = self.0.parse::<toml::Table>()
            && let Some(version) = table.get("version").and_then(toml::Value::as_integer)
            && version != LAYOUT_FILE_VERSION
        {
            let line = self.0.lines().position(|line| line.trim_start().starts_with("version")).unwrap_or(0) + 1;
            return Err(RstError { line, problem: RstProblem::Version(version) });
        }
        let raw: RawFile = toml::from_str(self.0).map_err(|error| RstError {
            line: error.span().map_or(1, |span| self.line(span.start)),
            problem: RstProblem::Toml(error.message().trim().replace('\n', "; ")),
        })?;
        if *raw.version.get_ref() != LAYOUT_FILE_VERSION {
            return Err(self.error(&raw.version, RstProblem::Version(*raw.version.get_ref())));
        }
        Ok(raw)
    }
}

/// An entry of a round: `tier.first-last:width` or `meta:width`.
struct Entry<'a> {
    /// `None` is the metadata tier.
    servers: Option<(&'a str, u16, u16)>,
    width: &'a str,
}

impl<'a> Entry<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (servers, width) = text.rsplit_once(':')?;
        let servers = servers.trim();
        if servers == META_NAME {
            return Some(Self { servers: None, width });
        }
        let (tier, places) = servers.rsplit_once('.')?;
        let (first, last) = places.split_once('-').unwrap_or((places, places));
        let (first, last) = (decimal(first)?, decimal(last)?);
        (!tier.is_empty() && first <= last).then_some(Self { servers: Some((tier, first, last)), width })
    }
}

impl LayoutFile {
    /// Reads a layout file for the servers of a pool.
    ///
    /// # Errors
    /// The first mistake, with its line: see [`RstProblem`].
    pub fn parse(text: &str, names: &ServerNames) -> Result<Self, RstError> {
        Reader { text: Text(text), names, stripes: 0 }.file(Text(text).read()?)
    }

    /// Reads a layout file without a pool: the servers are those that it names, tiers in order of first appearance.
    ///
    /// # Errors
    /// As [`LayoutFile::parse`].
    pub fn parse_as_named(text: &str) -> Result<(Self, ServerNames), RstError> {
        let raw = Text(text).read()?;
        let mut tiers: Vec<(String, u16)> = Vec::new();
        let mut known: HashMap<&str, usize> = HashMap::new();
        let rounds = raw.file.iter().flat_map(|file| &file.region).map(|region| region.round.get_ref());
        for entry in rounds.flatten() {
            let Some(Entry { servers: Some((tier, _, last)), .. }) = Entry::parse(entry.get_ref()) else { continue };
            let index = *known.entry(tier).or_insert_with(|| {
                tiers.push((tier.to_owned(), 0));
                tiers.len() - 1
            });
            let servers: u32 = tiers.iter().map(|&(_, servers)| u32::from(servers)).sum();
            let needed = u32::from(last) + 1;
            if servers - u32::from(tiers[index].1) + needed > u32::from(ServerId::META.0) {
                return Err(Text(text).error(entry, RstProblem::TooLarge));
            }
            tiers[index].1 = tiers[index].1.max(needed as u16);
        }
        // They were counted above.
        let names = ServerNames::new(tiers).unwrap_or_default();
        Ok((Reader { text: Text(text), names: &names, stripes: 0 }.file(raw)?, names))
    }

    /// The layout file as text; [`LayoutFile::parse`] with the same `names` reads the same back. Consecutive servers of
    /// one tier and width are one entry of the round.
    pub fn to_toml(&self, names: &ServerNames) -> String {
        let mut out = format!("version = {LAYOUT_FILE_VERSION}\npool = {}\n", quoted(&self.pool));
        for file in &self.files {
            write!(out, "\n[[file]]\npath = {}\n", quoted(file.path.as_str())).expect("writing to a string");
            if let Some(note) = &file.note {
                writeln!(out, "note = {}", quoted(note)).expect("writing to a string");
            }
            for (index, region) in file.layout.regions().iter().enumerate() {
                let round: Vec<String> =
                    round_entries(region.stripes(), names).iter().map(|entry| quoted(entry)).collect();
                let offset = if region.offset() == 0 { "0".to_owned() } else { format_bytes(region.offset()) };
                write!(out, "\n[[file.region]]\noffset = \"{offset}\"\nround = [{}]\n", round.join(", "))
                    .expect("writing to a string");
                if let Some(Some(note)) = file.region_notes.get(index) {
                    writeln!(out, "note = {}", quoted(note)).expect("writing to a string");
                }
            }
        }
        out
    }
}

/// A round as people write it: `["hdd.0-5:64KiB", "ssd.0:192KiB"]`.
pub fn round_entries(round: &[Stripe], names: &ServerNames) -> Vec<String> {
    let mut entries = Vec::new();
    let mut at = 0;
    while at < round.len() {
        let Stripe { server, width_bytes } = round[at];
        let place = names.place(server);
        let mut end = at + 1;
        if let Some((tier, first)) = place {
            while round.get(end).is_some_and(|next| {
                next.width_bytes == width_bytes
                    && names.place(next.server) == Some((tier, first.wrapping_add((end - at) as u16)))
            }) {
                end += 1;
            }
        }
        let width = format_bytes(width_bytes);
        entries.push(match place {
            Some((tier, first)) if end - at > 1 => {
                format!("{tier}.{first}-{}:{width}", usize::from(first) + end - at - 1)
            }
            _ => format!("{}:{width}", names.name(server)),
        });
        at = end;
    }
    entries
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            control if control.is_control() => {
                write!(out, "\\u{:04X}", u32::from(control)).expect("writing to a string");
            }
            character => out.push(character),
        }
    }
    out.push('"');
    out
}

struct Reader<'a> {
    text: Text<'a>,
    names: &'a ServerNames,
    stripes: usize,
}

impl<'a> Reader<'a> {
    fn file(mut self, raw: RawFile) -> Result<LayoutFile, RstError> {
        let mut files = Vec::with_capacity(raw.file.len());
        let mut first_lines: HashMap<String, usize> = HashMap::new();
        for layout in raw.file {
            let line = self.text.line(layout.path.span().start);
            let path = layout.path.get_ref().clone();
            if let Some(first_line) = first_lines.insert(path.clone(), line) {
                return Err(RstError { line, problem: RstProblem::RepeatedPath { path, first_line } });
            }
            files.push(self.layout(layout)?);
        }
        Ok(LayoutFile { pool: raw.pool, files })
    }

    fn layout(&mut self, raw: RawLayout) -> Result<FileLayout, RstError> {
        let path = Pattern::new(raw.path.get_ref()).map_err(|error| self.text.error(&raw.path, error))?;
        if raw.region.is_empty() {
            return Err(self.text.error(&raw.path, RstProblem::NoRegion(raw.path.get_ref().clone())));
        }
        let mut regions: Vec<(u64, Vec<Stripe>)> = Vec::with_capacity(raw.region.len());
        let mut region_notes = Vec::new();
        for (region, row) in raw.region.into_iter().enumerate() {
            let offset = self.offset(&row.offset)?;
            let refused = match regions.last() {
                None if offset != 0 => Some(LayoutError::FirstNotZero(offset)),
                Some(&(before, _)) if offset <= before => Some(LayoutError::NotAscending { region, offset, before }),
                _ if offset > MAX_OFFSET => Some(LayoutError::OffsetTooLarge { region, offset }),
                _ => None,
            };
            if let Some(error) = refused {
                return Err(self.text.error(&row.offset, error));
            }
            let round = self.round(region, &row.round)?;
            regions.push((offset, round));
            region_notes.push(row.note);
        }
        if region_notes.iter().all(Option::is_none) {
            region_notes.clear();
        }
        let layout = Layout::new(regions).map_err(|error| self.text.error(&raw.path, error))?;
        Ok(FileLayout { path, layout, note: raw.note, region_notes })
    }

    fn offset(&self, value: &Spanned<toml::Value>) -> Result<u64, RstError> {
        match value.get_ref() {
            toml::Value::String(text) => parse_bytes(text).map_err(|error| self.text.error(value, error)),
            toml::Value::Integer(number) => {
                u64::try_from(*number).map_err(|_| self.text.error(value, RstProblem::Offset))
            }
            _ => Err(self.text.error(value, RstProblem::Offset)),
        }
    }

    fn round(&mut self, region: usize, raw: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<Stripe>, RstError> {
        let mut round = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut round_bytes = 0_u64;
        for entry in raw.get_ref() {
            let refuse = |problem: RstProblem| self.text.error(entry, problem);
            for stripe in self.stripes(entry.get_ref()).map_err(refuse)? {
                self.stripes += 1;
                if self.stripes > MAX_STRIPES {
                    return Err(self.text.error(entry, RstProblem::TooLarge));
                }
                if !seen.insert(stripe.server) {
                    let server = self.names.name(stripe.server);
                    let entry_text = entry.get_ref().clone();
                    return Err(self.text.error(entry, RstProblem::Repeated { entry: entry_text, server }));
                }
                round_bytes = round_bytes.saturating_add(stripe.width_bytes);
                if round_bytes > MAX_OFFSET {
                    return Err(self.text.error(entry, LayoutError::RoundTooLarge(region)));
                }
                round.push(stripe);
            }
        }
        if round.is_empty() { Err(self.text.error(raw, RstProblem::EmptyRound)) } else { Ok(round) }
    }

    /// The stripes of one entry.
    fn stripes(&self, entry: &str) -> Result<impl Iterator<Item = Stripe> + use<'a>, RstProblem> {
        let parsed = Entry::parse(entry).ok_or_else(|| RstProblem::Entry(entry.to_owned()))?;
        let width_bytes = parse_bytes(parsed.width)?;
        if width_bytes == 0 {
            return Err(RstProblem::ZeroWidth(entry.to_owned()));
        }
        let Some((tier, first, last)) = parsed.servers else {
            return Ok(META.iter().map(stripe(width_bytes)));
        };
        let names = self.names;
        let Some(servers) = names.tier(tier) else {
            let known: Vec<&str> = names.tiers().iter().map(|(name, _)| name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(RstProblem::UnknownTier { entry: entry.to_owned(), tier: tier.to_owned(), known });
        };
        let Some(named) = servers.get(usize::from(first)..=usize::from(last)) else {
            let (entry, tier, servers) = (entry.to_owned(), tier.to_owned(), servers.len() as u16);
            return Err(RstProblem::UnknownServer { entry, tier, place: first.max(servers), servers });
        };
        Ok(named.iter().map(stripe(width_bytes)))
    }
}

/// The metadata tier's one server.
const META: &[ServerId] = &[ServerId::META];

fn stripe(width_bytes: u64) -> impl Fn(&ServerId) -> Stripe {
    move |&server| Stripe { server, width_bytes }
}
