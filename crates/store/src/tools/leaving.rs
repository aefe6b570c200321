//! Files whose layouts name a server that is to go, and the layouts that they get in place of these.

use crate::backend::{self, Server, ServerState, Setting};
use crate::file::lockfile::LockFile;
use crate::format::handle::{Present, read_handle};
use crate::format::placement::Datafiles;
use crate::os::error::{Error, Result, about};
use crate::os::sync::{Mutex, guard};
use crate::os::sys::proc_path;
use crate::pool::rules::Rule;
use crate::pool::store::Store;
use crate::tools::stretches::Stretches;
use crate::tools::walk::{WalkedFile, walk};
use rustix::fd::AsFd as _;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use stripewise_layout::{Layout, ServerId, Stripe};

/// The files of a tree that a look for a server has found.
#[derive(Debug, Default)]
pub(crate) struct NamingFiles {
    /// Paths relative to the tree of those whose layouts name the server.
    pub(crate) paths: Vec<PathBuf>,
    /// What could not be read, and why: it may name the server.
    pub(crate) unreadable: Vec<(PathBuf, String)>,
}

/// Whether a layout names a server.
pub(crate) fn names(layout: &Layout, server: ServerId) -> bool {
    layout.regions().iter().flat_map(|region| region.stripes()).any(|stripe| stripe.server == server)
}

impl Store {
    /// The files whose layouts name a server. Opens each file of the tree as a place and reads its handle; a change that was
    /// interrupted is finished.
    ///
    /// # Errors
    /// The tree cannot be opened.
    pub(crate) fn files_naming(self: &Arc<Self>, server: ServerId) -> Result<NamingFiles> {
        let tree = rustix::io::fcntl_dupfd_cloexec(self.tree(), 0).map_err(Error::io("open", "tree"))?;
        let (found, known) = (Mutex::new(NamingFiles::default()), Mutex::new(HashMap::new()));
        let look = |entry: &WalkedFile<'_>| -> Result<bool> {
            // One that has gone since its name was read is of no concern.
            let Ok(fd) = entry.open() else { return Ok(false) };
            let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::io("read", entry.path())(errno))?;
            let Some(handle) = read_handle(&proc_path(fd.as_fd()), stat.st_ino)? else { return Ok(false) };
            if handle.truncating_to.is_some() || LockFile::exists(self.locks(), handle.logical)? {
                // A move that was killed has left datafiles: who finds no writer clears them away. Where a server does not let it,
                // the file has its place all the same.
                if let Ok(Some(inode)) = self.inode(fd.as_fd()) {
                    let _ = inode.has_writers();
                }
            }
            if let Some(&known) = guard(&known).get(&handle.layout) {
                return Ok(known);
            }
            let does = names(&*self.layouts.get_for(&handle.layout, stat.st_uid)?, server);
            guard(&known).insert(handle.layout, does);
            Ok(does)
        };
        let visit = |entry: &WalkedFile<'_>| {
            match look(entry) {
                Ok(false) => {}
                Ok(true) => guard(&found).paths.push(entry.path()),
                Err(error) => guard(&found).unreadable.push((entry.path(), error.to_string())),
            }
            Ok(true)
        };
        let unreadable = |path: &std::path::Path, errno: rustix::io::Errno| {
            guard(&found).unreadable.push((path.to_owned(), errno.to_string()));
        };
        walk(&tree, 2, &visit, &unreadable)?;
        let mut found = found.into_inner().unwrap_or_default();
        found.paths.sort();
        Ok(found)
    }

    /// `layout` without `leaving`: in each region its stripe goes to the first of `targets` that has none there, or, where all
    /// have one, the others keep their widths. Servers that are being drained keep their stripes, which their own drains move.
    /// Servers that were removed leave a region that changes in any case: nothing can be written there.
    ///
    /// # Errors
    /// No server of a region is left, or none that takes its width.
    pub(crate) fn layout_without(&self, layout: &Layout, leaving: ServerId, targets: &[ServerId]) -> Result<Layout> {
        let mut regions: Vec<(u64, Vec<Stripe>)> = Vec::new();
        for (index, region) in layout.regions().iter().enumerate() {
            let mut round = region.stripes().to_vec();
            if round.iter().any(|stripe| stripe.server == leaving) {
                let found = self.round_without(&round, leaving, targets);
                round = found.ok_or_else(|| self.no_place(index, region.offset(), leaving))?;
                let removed =
                    |id: &ServerId| self.pool().server(*id).is_some_and(|of| of.state == ServerState::Removed);
                let gone: Vec<ServerId> = round.iter().map(|stripe| stripe.server).filter(removed).collect();
                for id in gone {
                    let found = self.round_without(&round, id, &self.writable_of_tier(id));
                    round = found.ok_or_else(|| self.no_place(index, region.offset(), id))?;
                }
            }
            // What has left it in steps before is one region with the rest.
            if regions.last().is_none_or(|(_, before)| *before != round) {
                regions.push((region.offset(), round));
            }
        }
        Layout::new(regions).map_err(|error| Error::Invalid(error.to_string()))
    }

    /// The servers of the tier of `id` that can take its place.
    fn writable_of_tier(&self, id: ServerId) -> Vec<ServerId> {
        let mut found = targets(self, id, None).unwrap_or_default();
        found.retain(|id| self.room(*id).is_ok_and(|room| !room.is_read_only));
        found
    }

    /// A round without `leaving`, which keeps a server in use; `None`: there is none.
    fn round_without(&self, round: &[Stripe], leaving: ServerId, targets: &[ServerId]) -> Option<Vec<Stripe>> {
        let has = |server: ServerId| round.iter().any(|stripe| stripe.server == server);
        let with = |target: ServerId| -> Vec<Stripe> {
            let to = |stripe: &Stripe| {
                if stripe.server == leaving { Stripe { server: target, ..*stripe } } else { *stripe }
            };
            round.iter().map(to).collect()
        };
        let without: Vec<Stripe> = round.iter().filter(|stripe| stripe.server != leaving).copied().collect();
        let replaced = targets.iter().filter(|target| !has(**target)).map(|target| with(*target));
        let is_used = |stripe: &Stripe| self.pool().server(stripe.server).is_some_and(Server::is_used);
        let fits = |round: &Vec<Stripe>| {
            round.iter().any(is_used)
                && Layout::new([(0, round.clone())]).is_ok_and(|alone| self.check_layout(&alone).is_ok())
        };
        replaced.chain((!without.is_empty()).then_some(without)).find(fits)
    }

    fn no_place(&self, region: usize, offset: u64, leaving: ServerId) -> Error {
        let server = self.pool().server_name(leaving);
        Error::Invalid(format!(
            "region {region} (offset {offset}) has its bytes on {server}, and no other server takes them in its place: name a \
             tier that does with --to, or give the file another layout with `stripewise apply`"
        ))
    }

    /// The layout of a rule without `leaving`.
    ///
    /// # Errors
    /// As [`Store::layout_without`], with the rule.
    pub(crate) fn rule_without(
        &self,
        rule: &Rule,
        layout: &Layout,
        leaving: ServerId,
        targets: &[ServerId],
    ) -> Result<Layout> {
        let named = |error| Error::Invalid(format!("the rule for {}: {error}", rule.pattern.as_str()));
        self.layout_without(layout, leaving, targets).map_err(named)
    }

    /// Gives the rules that name `leaving` layouts without it, in their places.
    ///
    /// # Errors
    /// As [`Store::layout_without`]; the rules cannot be read or written.
    pub(crate) fn rules_without(&self, leaving: ServerId, targets: &[ServerId]) -> Result<usize> {
        let mut changed = HashMap::new();
        for rule in self.rules()?.iter() {
            let layout = self.rule_layout(rule)?;
            if names(&layout, leaving) {
                let other = self.rule_without(rule, &layout, leaving, targets)?;
                changed.insert(rule.layout, self.layouts.put(&other)?);
            }
        }
        if !changed.is_empty() {
            self.change_rules(|rules| {
                for rule in rules {
                    rule.layout = changed.get(&rule.layout).copied().unwrap_or(rule.layout);
                }
            })?;
        }
        Ok(changed.len())
    }
}

/// The stretches of a file of `size_bytes` that stand on a server, as far as there is a datafile for them.
pub(crate) fn stretches_on(datafiles: &Datafiles, present: &Present, server: ServerId, size_bytes: u64) -> Stretches {
    let there = |index: &usize| present.contains(*index) && datafiles.table[*index].server == server;
    let of = |index| Stretches::of(datafiles, index as u16, (0, u64::MAX), size_bytes);
    Stretches::joined((0..datafiles.table.len()).filter(there).map(of).collect())
}

/// What the datafiles of a server take, in words behind others; empty of one that is not there. O(its datafiles).
pub(crate) fn held(server: &Server) -> String {
    let backend = backend::of(&Server { emulate: None, ..server.clone() }, &Setting::default());
    let bytes = backend.connect().ok().map(|()| backend.upkeep().allocated_bytes(&[]));
    bytes.map_or_else(String::new, |bytes| format!(" ({} on its disk)", about(bytes)))
}

/// The servers that can take what another one has: those of `tier` in use, or of its own tier.
///
/// # Errors
/// There is no other.
pub(crate) fn targets(store: &Store, leaving: ServerId, tier: Option<&str>) -> Result<Vec<ServerId>> {
    let pool = store.pool();
    let own = pool.server(leaving).and_then(|server| pool.tiers.get(server.tier));
    let asked = |name: &str| {
        let known: Vec<&str> = pool.tiers.iter().map(|tier| &*tier.name).collect();
        let found = pool.tiers.iter().find(|tier| tier.name == name);
        found.ok_or_else(|| Error::Invalid(format!("the pool has no tier '{name}'; name one of {}", known.join(", "))))
    };
    let tier = tier.map_or_else(|| own.ok_or_else(|| Error::Invalid("it is in no tier".into())), asked)?;
    let others: Vec<ServerId> = pool.used(tier).map(|server| server.id).filter(|id| *id != leaving).collect();
    if others.is_empty() {
        let held = pool.server(leaving).map_or_else(String::new, held);
        return Err(Error::Invalid(format!(
            "tier {} has no other server in use, so nothing there can take what {} has{held}: name another tier with --to, or add a \
             server with `stripewise pool add`",
            tier.name,
            pool.server_name(leaving)
        )));
    }
    Ok(others)
}
