//! The layouts of a pool, each kept once under its hash.
//!
//! In a shared pool ([`crate::pool::shared`]) a user who puts a layout can also remove it. So a user
//! who needs one that neither that user nor root has put keeps an own copy, `HASH.UID`. A reader takes any copy: the
//! hash identifies the content.

use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, MutexGuard};
use crate::os::sys;
use crate::pool::pool_file::Pool;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};
use stripewise_layout::{Layout, Stripe};

/// Directory of the layouts, in the namespace.
pub(crate) const LAYOUTS: &str = "layouts";
/// Greatest length of a layout's binary form in bytes.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// The directory of layouts, with those that this process used.
#[derive(Debug)]
pub(crate) struct Layouts {
    directory: OwnedFd,
    shared: bool,
    /// Servers of the pool: no layout has others.
    servers: AtomicUsize,
    /// Which says whether there are more by now.
    pool_file: PathBuf,
    known: Mutex<Cache>,
}

/// The layouts that this process used.
#[derive(Debug, Default)]
struct Cache {
    layouts: HashMap<[u8; 32], Known>,
    /// Memory that they take.
    bytes: usize,
}

#[derive(Debug)]
struct Known {
    layout: Arc<Layout>,
    /// Whether it is certain to stay: root or this user has put it.
    kept: bool,
    /// Memory that it takes.
    bytes: usize,
}

/// Memory of the layouts that are remembered; beyond it, those that no open file uses are dropped. A user can make any
/// number of them, and large ones.
const MAX_KNOWN_BYTES: usize = 16 << 20;

/// Memory that a layout takes, about.
pub(crate) fn memory_bytes(layout: &Layout) -> usize {
    let stripes: usize = layout.regions().iter().map(|region| region.stripes().len()).sum();
    size_of_val(layout.regions()) + stripes * (size_of::<Stripe>() + size_of::<u64>())
}

impl Cache {
    fn insert(&mut self, hash: [u8; 32], layout: Arc<Layout>, kept: bool) {
        let bytes = memory_bytes(&layout);
        if self.bytes + bytes > MAX_KNOWN_BYTES {
            self.layouts.retain(|_, other| Arc::strong_count(&other.layout) > 1);
            self.bytes = self.layouts.values().map(|other| other.bytes).sum();
        }
        self.bytes += bytes;
        if let Some(before) = self.layouts.insert(hash, Known { layout, kept, bytes }) {
            self.bytes -= before.bytes;
        }
    }
}

/// A hash as hexadecimal digits.
pub(crate) fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of 64 hexadecimal digits.
pub(crate) fn from_hex(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(hash)
}

impl Layouts {
    /// Opens the directory of the pool's layouts.
    pub(crate) fn open(pool: &Pool, shared: bool) -> Result<Self> {
        let path = pool.namespace.join(LAYOUTS);
        let (servers, pool_file) = (AtomicUsize::new(pool.servers.len()), pool.file.clone());
        let directory = sys::open_directory(&path).map_err(Error::io("open", path))?;
        Ok(Self { directory, shared, servers, pool_file, known: Mutex::default() })
    }

    /// Keeps `layout`, durably, and returns its hash.
    pub(crate) fn put(&self, layout: &Layout) -> Result<[u8; 32]> {
        let hash = layout.hash();
        if self.known().layouts.get(&hash).is_some_and(|known| known.kept) {
            return Ok(hash);
        }
        let layout = self.keep(layout)?;
        self.known().insert(hash, layout, true);
        Ok(hash)
    }

    /// Keeps the layouts that the pool file gives new files: so that in a shared pool no user puts them first, and takes them away
    /// from the others.
    pub(crate) fn keep_of(&self, pool: &Pool) -> Result<()> {
        pool.landing_layout().map_or(Ok(()), |landing| self.keep(&landing).map(drop))?;
        self.keep(&pool.default_layout()).map(drop)
    }

    /// Keeps `layout`, durably, whatever is remembered; what stands there now.
    pub(crate) fn keep(&self, layout: &Layout) -> Result<Arc<Layout>> {
        let hash = layout.hash();
        let bytes = layout.to_bytes();
        let name = hex(&hash);
        let failed = |reason: String| Error::Layout { hash: name.clone(), reason };
        if bytes.len() > MAX_BYTES {
            return Err(failed(format!("{} bytes long, the limit is {MAX_BYTES}: use fewer regions", bytes.len())));
        }
        let user = rustix::process::geteuid().as_raw();
        let own = format!("{name}.{user}");
        let is_foreign = |stat: &rustix::fs::Stat| self.shared && stat.st_uid != user && stat.st_uid != 0;
        let names = if self.shared { &[name.as_str(), own.as_str()][..] } else { &[name.as_str()][..] };
        for (last, name) in names.iter().enumerate().map(|(index, name)| (index + 1 == names.len(), *name)) {
            match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                // Another user could remove it.
                Ok(stat) if is_foreign(&stat) && user != 0 => match last {
                    false => continue,
                    true => {
                        return Err(failed(format!(
                            "{name} in the namespace's layouts directory belongs to user {}, who could take it away: its \
                             owner or root has to remove it",
                            stat.st_uid
                        )));
                    }
                },
                // The one that put it there may have crashed before its name was durable.
                Ok(stat) if !is_foreign(&stat) => match sys::sync_directory(&self.directory, ".") {
                    // A shared pool's, which only root may list.
                    Err(Errno::ACCESS) if self.shared => {}
                    synced => synced.map_err(|errno| failed(errno.to_string()))?,
                },
                // Root puts its own over another user's.
                Ok(_) | Err(Errno::NOENT) => {
                    let mode = Mode::from_raw_mode(if self.shared { 0o644 } else { 0o600 });
                    match sys::replace_file(&self.directory, name, &bytes, mode) {
                        // Another user was faster.
                        Err(Errno::PERM | Errno::ACCESS | Errno::ISDIR) if !last => continue,
                        done => {
                            done.map_err(|errno| failed(format!("cannot be kept in the namespace: {errno}")))?;
                        }
                    }
                }
                Err(errno) => return Err(failed(errno.to_string())),
            }
            // Read it back: what stands there under this name may be damaged.
            match self.read(name, &hash) {
                Ok(layout) => return Ok(layout),
                Err(reason) if last => return Err(failed(reason)),
                Err(_) => {}
            }
        }
        Err(failed("cannot be kept in the namespace".into()))
    }

    /// When the pool got the layout of that hash; `None` where it has none, or several users have their own.
    pub(crate) fn kept_at(&self, hash: &[u8; 32]) -> Option<SystemTime> {
        let stat = rustix::fs::statat(&self.directory, hex(hash), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let since_1970 = Duration::new(u64::try_from(stat.st_mtime).ok()?, u32::try_from(stat.st_mtime_nsec).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since_1970)
    }

    /// The layout of that hash, of any user.
    pub(crate) fn get(&self, hash: &[u8; 32]) -> Result<Arc<Layout>> {
        let mut owners = vec![0];
        if self.shared && !self.known().layouts.contains_key(hash) {
            owners.extend(self.keepers(&hex(hash)));
        }
        let mut found = self.find(hash, 0);
        for owner in owners {
            found = found.or_else(|error| self.find(hash, owner).map_err(|_| error));
        }
        found
    }

    /// Users who keep a copy of their own of the layout `name`.
    fn keepers(&self, name: &str) -> Vec<u32> {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.directory) else { return Vec::new() };
        let suffix = |entry: rustix::fs::DirEntry| {
            entry.file_name().to_str().ok()?.strip_prefix(name)?.strip_prefix('.')?.parse().ok()
        };
        entries.flatten().filter_map(suffix).collect()
    }

    /// The layout of that hash, for a file of user `owner`. Root makes sure that it stays: another user, who has put
    /// it, could take it away from the file.
    pub(crate) fn get_for(&self, hash: &[u8; 32], owner: u32) -> Result<Arc<Layout>> {
        if let Some(known) = self.known().layouts.get(hash) {
            return Ok(known.layout.clone());
        }
        let layout = self.find(hash, owner)?;
        if self.is_foreign_to(owner, &hex(hash)) {
            // Best effort: the file can still be served, for example from a full disk.
            if let Ok(kept) = self.keep(&layout) {
                self.known().insert(*hash, kept.clone(), true);
                return Ok(kept);
            }
        }
        Ok(layout)
    }

    /// Whether the layout `name` is another user's than `owner`, and this process root, which can put its own over it.
    fn is_foreign_to(&self, owner: u32, name: &str) -> bool {
        self.shared
            && crate::pool::shared::is_root()
            && rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| stat.st_uid != 0 && stat.st_uid != owner)
    }

    /// The layout of that hash as root, or user `owner`, or the first user who kept it.
    fn find(&self, hash: &[u8; 32], owner: u32) -> Result<Arc<Layout>> {
        if let Some(known) = self.known().layouts.get(hash) {
            return Ok(known.layout.clone());
        }
        let name = hex(hash);
        let mut found = self.read(&name, hash);
        if self.shared {
            found = found
                .or_else(|reason| self.read(&format!("{name}.{owner}"), hash).map_err(|_| reason))
                .or_else(|reason| self.read(&format!("{name}.0"), hash).map_err(|_| reason));
        }
        let layout = found.map_err(|reason| Error::Layout { hash: name.clone(), reason })?;
        self.known().insert(*hash, layout.clone(), false);
        Ok(layout)
    }

    /// Reads and checks one file. Never waits for a FIFO, never follows a link.
    fn read(&self, name: &str, hash: &[u8; 32]) -> Result<Arc<Layout>, String> {
        let bytes = sys::read_file_at(&self.directory, name, MAX_BYTES)
            .map_err(|errno| format!("it cannot be read from the namespace's layouts directory: {errno}"))?;
        if blake3::hash(&bytes) != *hash {
            return Err("it is damaged in the namespace's layouts directory: restore it".to_owned());
        }
        let within = |servers| Layout::from_bytes_within(&bytes, servers).map(Arc::new);
        let servers = self.servers.load(Ordering::Relaxed);
        within(servers)
            .or_else(|error| self.grown(servers).map_or(Err(error), within))
            .map_err(|error| error.to_string())
    }

    /// How many servers the pool has now, if they are more than `known`.
    fn grown(&self, known: usize) -> Option<usize> {
        let servers = Pool::load(&self.pool_file).ok()?.servers.len();
        self.servers.fetch_max(servers, Ordering::Relaxed);
        (servers > known).then_some(servers)
    }

    fn known(&self) -> MutexGuard<'_, Cache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ServerId;

    #[test]
    fn what_is_remembered_is_bounded_in_bytes() {
        let mut cache = Cache::default();
        let large = |width: u64| {
            let stripe = |server| Stripe { server: ServerId(server), width_bytes: width };
            Arc::new(Layout::new((0..2000_u64).map(|i| (i << 30, (0..64).map(stripe).collect()))).unwrap())
        };
        let used = large(1);
        cache.insert(used.hash(), used.clone(), false);
        for width in 2..12 {
            let layout = large(width);
            cache.insert(layout.hash(), layout.clone(), true);
            assert!(cache.bytes <= MAX_KNOWN_BYTES, "{}", cache.bytes);
            assert_eq!(cache.bytes, cache.layouts.values().map(|other| other.bytes).sum::<usize>());
        }
        assert!(cache.layouts.len() < 11 && cache.layouts.contains_key(&used.hash()), "what is used stays");
        let before = cache.bytes;
        cache.insert(used.hash(), used.clone(), true);
        assert_eq!(cache.bytes, before, "once, however often");
    }
}
