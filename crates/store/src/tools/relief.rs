//! What can leave a tier, and its leaving: new files that landed there go to their place, and regions of files to the other tiers.
//!
//! A file that has landed gets the layout that it would have got where files are made in their place at once, all of it or stretch by
//! stretch. A region of another file, or a part of one, gets the servers of the default layout that are not in the tier. Which of
//! them leave is the caller's choice.

use crate::backend::plane::OpenServer;
use crate::backend::{Server, ServerState};
use crate::file::inode::Inode;
use crate::file::steps::Then;
use crate::format::placement::{DatafileKey, Placement};
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::pool::pool_file::PoolTier;
use crate::pool::store::Store;
use crate::tools::drain::{DrainWatch, Drained, StayingFile};
use crate::tools::in_steps::with_stretches;
use crate::tools::named::NamedFiles;
use crate::tools::walk::{WalkedFile, walk};
use rustix::fd::AsFd as _;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::{Layout, LayoutError, Region, ServerId, Stripe};

/// A file that has landed on a tier, or a region of another file with stripes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierPart {
    /// The file, relative to the tree.
    pub path: String,
    /// Its handle, which tells it from all other files.
    pub handle: u64,
    /// The version of its handle: each change of its layout counts it up.
    pub version: u32,
    /// First and last byte of the file that it is, as `(from, to)`.
    pub stretch: (u64, u64),
    /// Bytes of it on the tier, by the layout.
    pub tier_bytes: u64,
    /// What of that takes room, by server, each once, in order: of a file with holes its share of what the server holds.
    pub by_server: Vec<(ServerId, u64)>,
    /// Whether it is a file that has landed, whole.
    pub has_landed: bool,
}

/// Of a file that leaves the tier on which it landed part by part: where the part begins that moved last, or moves now, and where it
/// ends.
pub type Begun = (u64, u64);

/// What can leave a tier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TierParts {
    /// In order of their paths, and of where they begin.
    pub parts: Vec<TierPart>,
    /// The handles of files that have begun to leave, and may still have the rest there: files of which it is there, if only without a
    /// byte, and files that could not be read. In order.
    pub begun: Vec<u64>,
    /// Files that could not be read, whatever they have on the tier. In order of their paths.
    pub unread: Vec<StayingFile>,
}

/// How full a server of a tier is, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierRoom {
    /// Its name.
    pub server: String,
    /// What the pool's datafiles take.
    pub used_bytes: u64,
    /// What can still be written.
    pub free_bytes: u64,
    /// The same, whatever the tier's capacity is.
    pub on_disk_bytes: u64,
    /// When no more than that is left, new files leave it out.
    pub reserve_bytes: u64,
}

/// What is to leave a tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Its file, relative to the tree.
    pub path: String,
    /// The file's handle: another one that has come to this path stays as it is.
    pub handle: u64,
    /// The version of its handle for which that was decided: a file that was changed since stays as it is.
    pub version: u32,
    /// First byte and the one behind the last, of each stretch that leaves. One that reaches the end of the file has what comes behind
    /// it, too.
    pub stretches: Vec<(u64, u64)>,
    /// Whether they go where files are made that do not land, which may be on the tier in part; else what they have on the tier goes
    /// to the other tiers.
    pub to_its_place: bool,
}

/// The generation of the datafiles with which a file is made.
const FIRST_GENERATION: u32 = 1;

/// What of a file takes room on servers.
type OnServers = ((u64, u64), BTreeMap<ServerId, u64>);

/// Has regions with holes take no more than their servers hold of the file: each of a server its share, by their bytes.
fn share_out(held: &[(ServerId, u64)], regions: &mut [OnServers]) {
    let sums = |of: &mut dyn Iterator<Item = (ServerId, u64)>| {
        let mut sums: HashMap<ServerId, u64> = HashMap::new();
        of.for_each(|(id, bytes)| *sums.entry(id).or_default() += bytes);
        sums
    };
    let held = sums(&mut held.iter().copied());
    let by_layout = sums(&mut regions.iter().flat_map(|(_, by_server)| by_server.iter().map(|(id, of)| (*id, *of))));
    for (id, bytes) in regions.iter_mut().flat_map(|(_, by_server)| by_server) {
        let (held, all) = (held.get(id).copied().unwrap_or(0), by_layout[id]);
        if held < all {
            *bytes = (u128::from(*bytes) * u128::from(held) / u128::from(all)) as u64;
        }
    }
}

/// Whether a file has a region on the tier behind the part that has left last, or in the place of that. O(regions).
fn has_rest(layout: &Layout, tier: &PoolTier, (begin, end): Begun) -> bool {
    let is_on = |region: &&Region| region.stripes().iter().any(|stripe| tier.servers.contains(&stripe.server));
    let begins = |region: &Region| region.offset() > 0 && [begin, end].contains(&region.offset());
    layout.regions().iter().filter(is_on).any(begins)
}

fn tier_of<'a>(store: &'a Store, name: &str) -> Result<&'a PoolTier> {
    let pool = store.pool();
    pool.tiers.iter().find(|tier| tier.name == name).ok_or_else(|| {
        let known: Vec<_> = pool.tiers.iter().map(|tier| &*tier.name).collect();
        Error::Invalid(format!("the pool has no tier '{name}'; name one of {}", known.join(", ")))
    })
}

impl Store {
    /// How full the servers of the tier `name` are that are in use and there. O(datafiles of the pool).
    ///
    /// # Errors
    /// There is no such tier.
    pub fn rooms_of(&self, name: &str) -> Result<Vec<TierRoom>> {
        let (tier, used) = (tier_of(self, name)?, self.pool().allocated_by_others(&[]));
        let room = |server: &Server| {
            let room = self.room(server.id).ok()?;
            let used_bytes = used.get(&server.id).copied().unwrap_or(0);
            let limit = server.capacity_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(used_bytes));
            let reserve_bytes = room.reserve_bytes(self.pool().default_width_bytes);
            let on_disk_bytes = room.available_bytes;
            let free_bytes = on_disk_bytes.min(limit);
            Some(TierRoom { server: server.name.clone(), used_bytes, free_bytes, on_disk_bytes, reserve_bytes })
        };
        Ok(self.pool().used(tier).filter_map(room).collect())
    }

    /// What can leave the tier `name`: each file once, whatever names it has; and which of the files that have `begun` to leave, by
    /// their handles, may not be forgotten. O(files of the tree).
    ///
    /// # Errors
    /// There is no such tier; the tree or the rules cannot be read.
    pub fn parts_on(self: &Arc<Self>, name: &str, begun: &HashMap<u64, Begun>) -> Result<TierParts> {
        let tier = tier_of(self, name)?;
        let tree = rustix::io::fcntl_dupfd_cloexec(self.tree(), 0).map_err(Error::io("open", "tree"))?;
        let (parts, seen) = (Mutex::new(Vec::new()), Mutex::new(HashSet::new()));
        let (gone, unread) = (Mutex::new(HashSet::new()), Mutex::new(Vec::new()));
        let look = |entry: &WalkedFile<'_>| -> Result<()> {
            let fd = match entry.open() {
                // It has gone, or something is mounted on it.
                Err(Errno::NOENT | Errno::XDEV) => return Ok(()),
                opened => opened.map_err(Error::io("open", "file"))?,
            };
            let Some(inode) = self.inode(fd.as_fd())? else { return Ok(()) };
            // Another file may have a copy of its handle.
            let key = inode.key();
            if !guard(&seen).insert(key) {
                return Ok(());
            }
            let found = self.parts_of(&inode, &entry.path(), tier)?;
            guard(&parts).extend(found);
            if let Some(begun) = begun.get(&inode.handle())
                && inode.placement().is_ok_and(|placement| !has_rest(&placement.layout, tier, *begun))
            {
                guard(&gone).insert(key);
            }
            Ok(())
        };
        let visit = |entry: &WalkedFile<'_>| {
            // What cannot be read cannot move, and keeps no other file.
            if let Err(error) = look(entry) {
                guard(&unread).push(StayingFile::of(entry.path().to_string_lossy().into_owned(), &error));
            }
            Ok(true)
        };
        walk(&tree, 2, &visit, &|_, _| ())?;
        let (mut parts, seen) = (parts.into_inner().unwrap_or_default(), seen.into_inner().unwrap_or_default());
        parts.sort_by(|a: &TierPart, b| (&a.path, a.stretch).cmp(&(&b.path, b.stretch)));
        let gone = gone.into_inner().unwrap_or_default();
        let has_gone: HashSet<u64> = gone.iter().map(|(handle, _)| *handle).collect();
        let left: HashSet<u64> = seen.difference(&gone).map(|(handle, _)| *handle).collect();
        let may_be_there =
            |handle: &u64| left.contains(handle) || (!has_gone.contains(handle) && self.may_have_landed(*handle, tier));
        let mut begun: Vec<u64> = begun.keys().copied().filter(may_be_there).collect();
        begun.sort_unstable();
        let mut unread = unread.into_inner().unwrap_or_default();
        unread.sort_by(|a: &StayingFile, b| a.path.cmp(&b.path));
        Ok(TierParts { parts, begun, unread })
    }

    /// Whether a file that no walk has found may have bytes where it landed: it may have been renamed meanwhile, or not have been
    /// readable. A system call for each server.
    fn may_have_landed(&self, handle: u64, tier: &PoolTier) -> bool {
        let key = DatafileKey { handle, generation: FIRST_GENERATION };
        let is_there = |server: &Server| {
            let backend = self.plane().server(server.id).and_then(OpenServer::current);
            // A server that is away does not tell.
            backend.map_or(true, |backend| !matches!(backend.stat(key), Err(Errno::NOENT)))
        };
        let servers = tier.servers.iter().filter_map(|&id| self.pool().server(id));
        servers.filter(|server| server.state != ServerState::Removed).any(is_there)
    }

    fn parts_of(self: &Arc<Self>, inode: &Arc<Inode>, path: &Path, tier: &PoolTier) -> Result<Vec<TierPart>> {
        let (placement, size_bytes) = (inode.placement()?, inode.attributes()?.size_bytes);
        let (layout, handle, version) = (&placement.layout, placement.handle, placement.version);
        let path_text = path.to_string_lossy().into_owned();
        let part = |stretch, tier_bytes, by_server: BTreeMap<ServerId, u64>, has_landed| {
            let path = path_text.clone();
            TierPart {
                path,
                handle,
                version,
                stretch,
                tier_bytes,
                by_server: by_server.into_iter().collect(),
                has_landed,
            }
        };
        let on_region = |index: usize| {
            let region = &layout.regions()[index];
            let (from, to) = (region.offset(), layout.region_end(index).min(size_bytes));
            let mut by_server: BTreeMap<ServerId, u64> = BTreeMap::new();
            for (slot, stripe) in region.stripes().iter().enumerate() {
                let bytes = region.bytes_before(slot, to.max(from)) - region.bytes_before(slot, from);
                if bytes > 0 && tier.servers.contains(&stripe.server) {
                    *by_server.entry(stripe.server).or_default() += bytes;
                }
            }
            ((from, to), by_server)
        };
        let mut regions: Vec<_> = (0..layout.regions().len()).map(on_region).collect();
        regions.retain(|(_, by_server)| !by_server.is_empty());
        let tier_bytes: Vec<u64> = regions.iter().map(|(_, by_server)| by_server.values().sum()).collect();
        let held = if regions.is_empty() { Vec::new() } else { inode.allocated()? };
        share_out(&held, &mut regions);
        if self.landed_on(&placement, path)?.is_some_and(|landed| landed.name == tier.name) {
            let mut of_server = BTreeMap::new();
            for (server, bytes) in regions.into_iter().flat_map(|(_, by_server)| by_server) {
                *of_server.entry(server).or_default() += bytes;
            }
            // One without a byte has nothing to move, and gets its place with the first look that finds some.
            let whole = part((0, size_bytes), tier_bytes.iter().sum(), of_server, true);
            return Ok(if whole.tier_bytes > 0 { vec![whole] } else { Vec::new() });
        }
        let of_region = |((stretch, by_server), tier_bytes)| part(stretch, tier_bytes, by_server, false);
        Ok(regions.into_iter().zip(tier_bytes).map(of_region).collect())
    }

    /// Where a file that landed has its place: where files are made that do not land. What is in its inode stays there.
    ///
    /// # Errors
    /// No layout has that number of bytes in the inode.
    pub(crate) fn its_place(&self, layout: &Layout) -> Result<Layout> {
        let default = self.with_room(self.default_now());
        match layout.head_in_inode_bytes() {
            0 => Ok(Layout::clone(&default)),
            bytes => default.with_head_in_inode(bytes).map_err(|error| Error::Invalid(error.to_string())),
        }
    }

    /// The layout of a file of `size_bytes` when `leaving` has left the tier; `None` where it is another file, or was changed since that
    /// was decided, or where nothing of it is there any more.
    ///
    /// # Errors
    /// No other server can take it.
    fn layout_after(
        &self,
        placement: &Placement,
        path: &Path,
        size_bytes: u64,
        tier: &PoolTier,
        leaving: &Leaving,
    ) -> Result<Option<Layout>> {
        let before = &placement.layout;
        if (placement.handle, placement.version) != (leaving.handle, leaving.version) {
            return Ok(None);
        }
        let invalid = |error: LayoutError| Error::Invalid(error.to_string());
        let others = if leaving.to_its_place {
            // The first move of a file that has landed is the only one of version 1.
            if self.rule_for(path)?.is_some() || (placement.version == 1 && self.landed_on(placement, path)?.is_none())
            {
                return Ok(None);
            }
            self.its_place(before)?
        } else {
            let default = self.with_room(self.default_now());
            let is_on = |stripe: &Stripe| tier.servers.contains(&stripe.server);
            let others: Vec<Stripe> =
                default.regions()[0].stripes().iter().filter(|stripe| !is_on(stripe)).copied().collect();
            if others.is_empty() {
                let what = "no server of another tier takes new files now: it has to be in the default layout and not to drain";
                return Err(Error::Invalid(what.into()));
            }
            let region = |region: &Region| {
                let leaves = region.stripes().iter().any(is_on);
                (region.offset(), if leaves { others.clone() } else { region.stripes().to_vec() })
            };
            Layout::new(before.regions().iter().map(region)).map_err(invalid)?
        };
        let until = |to: u64| if to >= size_bytes { u64::MAX } else { to };
        let stretches: Vec<_> = leaving.stretches.iter().map(|&(from, to)| (from, until(to))).collect();
        let after = with_stretches(before, &others, &stretches).map_err(invalid)?;
        if after == **before {
            return Ok(None);
        }
        self.check_new_layout(&after)?;
        Ok(Some(after))
    }
}

/// Moves what is `leaving` from the tier `name` of the pool in `file`, one file after the other, each as `apply` moves it.
///
/// # Errors
/// Another process changes layouts of the pool; there is no such tier.
pub fn relieve(file: &Path, name: &str, leaving: &[Leaving], watch: &mut dyn DrainWatch) -> Result<Drained> {
    let store = Store::of_file(file)?;
    let _alone = store.begin_apply()?;
    let tier = tier_of(&store, name)?;
    // So that no file goes to a server that is nearly full.
    if let Some(look) = store.due_look() {
        look.take();
    }
    let (mut done, files) = (Drained::default(), NamedFiles::of(&store));
    for of in leaving {
        let found = files.find(&of.path, of.handle).and_then(|found| {
            let Some((path, inode)) = found else { return Ok(None) };
            let layout = store.layout_after(&inode.placement()?, &path, inode.attributes()?.size_bytes, tier, of)?;
            Ok(layout.map(|layout| (inode, layout)))
        });
        let (inode, layout) = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                done.passed_over.push(of.path.clone());
                continue;
            }
            Err(error) => {
                done.staying.push(StayingFile::of(of.path.clone(), &error));
                continue;
            }
        };
        let mut stopped = false;
        let mut progress = |done: u64, total: u64| {
            let then = watch.progress(&of.path, done, total);
            stopped = then == Then::Stop;
            then
        };
        match inode.move_watched(&layout, &of.path, true, &mut progress) {
            Ok(moved) => {
                done.moved_files += 1;
                done.copied_bytes += moved.copied_bytes;
            }
            Err(_) if stopped => {
                done.stopped = true;
                break;
            }
            Err(Error::Nameless { .. }) => done.passed_over.push(of.path.clone()),
            Err(error) => done.staying.push(StayingFile::of(of.path.clone(), &error)),
        }
    }
    Ok(done)
}
