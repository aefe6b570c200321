//! Rules: the layouts of new files, by path or pattern.

use crate::os::error::{Error, Result};
use crate::os::sync::Mutex;
use crate::os::sys;
use crate::pool::layouts::{from_hex, hex};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use stripewise_layout::Pattern;

/// Name of the file of rules in the namespace.
pub const RULES_FILE: &str = "rules.toml";
const MAX_BYTES: usize = 64 << 20;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Paths relative to the pool's mount.
    pub pattern: Pattern,
    /// Hash of the layout.
    pub layout: [u8; 32],
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRules {
    #[serde(default)]
    rule: Vec<RawRule>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    pattern: String,
    /// In hexadecimal digits.
    layout: String,
}

impl RawRule {
    fn check(&self) -> Result<Rule> {
        let pattern = Pattern::new(&self.pattern).map_err(failed)?;
        let wrong = || failed(format!("layout '{}' of '{}' is not 64 hexadecimal digits", self.layout, self.pattern));
        Ok(Rule { pattern, layout: from_hex(&self.layout).ok_or_else(wrong)? })
    }
}

/// Tells versions of the file apart: inode, seconds and nanoseconds of its last change.
type Stamp = (u64, i64, u64);

/// Until what another machine changes is noticed.
const LATEST: Duration = Duration::from_secs(1);

/// The rules of a pool; read again when the file changed.
#[derive(Debug)]
pub(crate) struct Rules {
    namespace: OwnedFd,
    known: Mutex<KnownRules>,
}

#[derive(Debug, Default)]
struct KnownRules {
    stamp: Option<Stamp>,
    rules: Arc<Vec<Rule>>,
    /// Value of the pool's counter of rules before they were looked at, and when that was.
    looked: Option<(u32, Instant)>,
}

/// What stands for the rules among the counters of files: no handle and no inode has that number.
pub(crate) const RULES_COUNTER: u64 = 0;

fn failed(reason: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("{RULES_FILE} in the pool's namespace: {reason}; correct or remove the file"))
}

/// That the rules are as they were. Who may write the namespace may change them: in a pool of several users root.
fn unchanged(errno: Errno) -> Error {
    Error::io("change layouts of new files in the namespace's", RULES_FILE)(errno)
}

impl Rules {
    pub(crate) fn open(namespace: &Path) -> Result<Self> {
        let namespace = sys::open_directory(namespace).map_err(Error::io("open", namespace))?;
        Ok(Self { namespace, known: Mutex::default() })
    }

    /// All rules. `counter`: the pool's counter of rules now, if each that changes them on this machine counts it up. One system
    /// call; none where it is as it was less than a second ago.
    pub(crate) fn all(&self, counter: Option<u32>) -> Result<Arc<Vec<Rule>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(now), Some((before, at))) = (counter, known.looked)
            && now == before
            && at.elapsed() < LATEST
        {
            return Ok(known.rules.clone());
        }
        let stamp = match rustix::fs::statat(&self.namespace, RULES_FILE, AtFlags::empty()) {
            Ok(stat) => Some((stat.st_ino, stat.st_mtime, stat.st_mtime_nsec)),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        if known.stamp != stamp {
            let rules = if stamp.is_some() { self.read()? } else { Vec::new() };
            (known.stamp, known.rules) = (stamp, Arc::new(rules));
        }
        known.looked = counter.map(|counter| (counter, Instant::now()));
        Ok(known.rules.clone())
    }

    /// Whether the file can be read.
    pub(crate) fn check(&self) -> Result<()> {
        self.read().map(drop)
    }

    fn read(&self) -> Result<Vec<Rule>> {
        let bytes = match sys::read_file_at(&self.namespace, RULES_FILE, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(errno) => return Err(failed(errno)),
        };
        let text = std::str::from_utf8(&bytes).map_err(failed)?;
        toml::from_str::<RawRules>(text).map_err(failed)?.rule.iter().map(RawRule::check).collect()
    }

    /// Changes the file under a lock, so that two changes at once both count. Where what is to be done `then` fails, the rules are as
    /// they were.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<Rule>), then: impl FnOnce() -> Result<()>) -> Result<()> {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&self.namespace, ".", flags, Mode::empty()).map_err(unchanged)?;
        sys::retry(|| rustix::fs::flock(&lock, FlockOperation::LockExclusive)).map_err(unchanged)?;
        // Of a shared pool, all read them and root writes them.
        let mode = rustix::fs::fstat(&lock).map_err(unchanged)?.st_mode & 0o044 | 0o600;
        let before = self.read()?;
        let mut rules = before.clone();
        change(&mut rules);
        self.write(&rules, mode)?;
        then().map_err(|error| match self.write(&before, mode) {
            Ok(()) => error,
            Err(other) => Error::Invalid(format!("{error}; the rules stay changed: {other}")),
        })
    }

    fn write(&self, rules: &[Rule], mode: u32) -> Result<()> {
        let raw = |rule: &Rule| RawRule { pattern: rule.pattern.as_str().to_owned(), layout: hex(&rule.layout) };
        let text = toml::to_string(&RawRules { rule: rules.iter().map(raw).collect() }).map_err(failed)?;
        sys::replace_file(&self.namespace, RULES_FILE, text.as_bytes(), Mode::from_raw_mode(mode)).map_err(unchanged)
    }
}
