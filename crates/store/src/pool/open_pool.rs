//! An open pool as its files need it: servers, layouts, and which layout a new file gets.

use crate::backend::ServerState;
use crate::backend::meta::TREE;
use crate::backend::plane::{DataPlane, PlaneOptions};
use crate::file::open_memory::OpenMemory;
use crate::format::placement::{Datafiles, Placement};
use crate::os::budget::Budget;
use crate::os::error::{Error, Result};
use crate::os::sys::open_directory;
use crate::os::threads::Threads;
use crate::os::timer::Timer;
use crate::pool::heads::HeadLocks;
use crate::pool::heat::Cost;
use crate::pool::layouts::Layouts;
use crate::pool::namespace::LOCKS;
use crate::pool::pool_file::{Pool, PoolTier};
use crate::pool::rules::{RULES_COUNTER, Rule, Rules};
use crate::pool::spill::Spill;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_layout::{Layout, Pattern, ServerId};

/// An open pool.
#[derive(Debug)]
pub struct OpenPool {
    pool: Pool,
    default_layout: Arc<Layout>,
    made_layout: Arc<Layout>,
    in_inode: Arc<Layout>,
    plane: Arc<DataPlane>,
    tree: OwnedFd,
    locks: OwnedFd,
    pub(crate) layouts: Layouts,
    pub(crate) open_memory: Arc<OpenMemory>,
    pub(crate) heads: HeadLocks,
    pub(crate) rules: Rules,
    pub(crate) spill: Spill,
    /// What reads ahead of programs.
    pub(crate) threads: Threads,
    /// Bytes that are kept of what was read ahead.
    pub(crate) fetched: Arc<Budget>,
    /// What puts on the servers what has been gathered for long enough.
    pub(crate) timer: Timer,
    /// Bytes that may be gathered of what programs write.
    pub(crate) gathered: Arc<Budget>,
}

impl OpenPool {
    /// Opens its namespace, servers and epoch page. A missing server is no error here.
    pub(crate) fn open(pool: Pool, options: PlaneOptions) -> Result<Arc<Self>> {
        let plane = DataPlane::open(&pool, options)?;
        let directory = |name| {
            let path = pool.namespace.join(name);
            open_directory(&path).map_err(Error::io("open", path))
        };
        let (tree, locks) = (directory(TREE)?, directory(LOCKS)?);
        let layouts = Layouts::open(&pool, plane.is_shared())?;
        let rules = Rules::open(&pool.namespace)?;
        let heads = HeadLocks::open(&pool.namespace, plane.is_shared())?;
        let default_layout = Arc::new(pool.default_layout());
        let made_layout = pool.landing_layout().map_or_else(|| default_layout.clone(), Arc::new);
        Ok(Arc::new(Self {
            pool,
            default_layout,
            made_layout,
            in_inode: Arc::new(Layout::in_inode()),
            plane,
            tree,
            locks,
            layouts,
            open_memory: Arc::default(),
            heads,
            rules,
            spill: Spill::default(),
            threads: Threads::default(),
            fetched: Arc::default(),
            timer: Timer::default(),
            gathered: Arc::default(),
        }))
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The layout of files that no rule names.
    pub fn default_layout(&self) -> &Arc<Layout> {
        &self.default_layout
    }

    /// The layout that new files get which no rule names, as the pool file was when the pool was opened: that of the tier on
    /// which they land, else the default.
    pub(crate) fn made_layout(&self) -> &Arc<Layout> {
        &self.made_layout
    }

    /// The layout `[meta]` of files without a handle.
    pub(crate) fn in_inode(&self) -> &Arc<Layout> {
        &self.in_inode
    }

    /// How long servers work for a read of `[offset, offset + len)` by their profiles, all together, in microseconds; `None` where one
    /// has no profile. O(parts).
    pub(crate) fn read_us(&self, layout: &Layout, offset: u64, len: u64) -> Option<f32> {
        let mut found_us = Some(0.0);
        layout.for_each_sub(offset, len, |sub| {
            let tier = self.pool.server(sub.server).and_then(|server| self.pool.tiers.get(server.tier));
            let cost = tier.and_then(|tier| tier.profile.as_ref()).map(|(profile, _)| Cost::of(profile, &profile.read));
            found_us = found_us.zip(cost).map(|(found_us, cost)| found_us + cost.us(sub.len));
        });
        found_us
    }

    /// The data plane.
    pub fn plane(&self) -> &Arc<DataPlane> {
        &self.plane
    }

    /// Descriptor (O_PATH|O_DIRECTORY) of the directory that holds the names (`<namespace>/tree`).
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    pub(crate) fn locks(&self) -> BorrowedFd<'_> {
        self.locks.as_fd()
    }

    /// Checks that a layout can be given to files of this pool: as [`OpenPool::check_layout`], and none of its servers is to go.
    ///
    /// # Errors
    /// Those of [`OpenPool::check_layout`]; a server is being drained or was removed.
    pub fn check_new_layout(&self, layout: &Layout) -> Result<()> {
        self.check_layout(layout)?;
        let latest = self.spill.latest();
        let pool = latest.as_ref().map_or(&self.pool, |latest| &*latest.pool);
        for id in layout.servers().into_iter().filter(|id| *id != ServerId::META) {
            let why = match pool.server(id).map(|server| server.state) {
                Some(ServerState::Used) | None => continue,
                Some(ServerState::Draining) => "is being drained",
                Some(ServerState::Removed) => "was removed",
            };
            let name = pool.server_name(id);
            return Err(Error::Invalid(format!("the layout names server {name}, which {why}: plan again, without it")));
        }
        Ok(())
    }

    /// Checks that a layout can be served by this pool: its servers exist, and it keeps to their limits.
    pub fn check_layout(&self, layout: &Layout) -> Result<()> {
        for (index, region) in layout.regions().iter().enumerate() {
            for stripe in region.stripes() {
                self.plane.server(stripe.server)?.limits().check(region, stripe).map_err(|what| {
                    let (name, offset) = (self.pool.server_name(stripe.server), region.offset());
                    Error::Invalid(format!("region {index} (offset {offset}): {name} {what}"))
                })?;
            }
        }
        // The table of a single generation is the smallest that the file will ever have.
        Datafiles::new(layout, &crate::format::generations::GenerationMap::whole(1))?;
        Ok(())
    }
}

/// Which layout a new file gets by its path.
impl OpenPool {
    /// Files to come whose path (relative to the tree) matches `pattern` get `layout`. Replaces the rule of the same
    /// pattern. An exact path wins over a pattern, a later pattern over an earlier one.
    pub fn set_rule(&self, pattern: &Pattern, layout: &Layout) -> Result<()> {
        self.set_rule_before(pattern, layout, None, || Ok(()))
    }

    /// As [`OpenPool::set_rule`]: it is the latest one, or comes before the first that has a pattern which begins with `others`. Where
    /// what is to be done `then` fails, the rules are as they were.
    pub(crate) fn set_rule_before(
        &self,
        pattern: &Pattern,
        layout: &Layout,
        others: Option<&str>,
        then: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.check_new_layout(layout)?;
        let layout = self.layouts.put(layout)?;
        let set = |rules: &mut Vec<Rule>| {
            rules.retain(|rule| rule.pattern != *pattern);
            let is_other = |rule: &Rule| others.is_some_and(|others| rule.pattern.as_str().starts_with(others));
            let at = rules.iter().position(is_other).unwrap_or(rules.len());
            rules.insert(at, Rule { pattern: pattern.clone(), layout });
        };
        self.change_rules_then(set, then)
    }

    /// Changes the rules, and tells those who know them to look again.
    pub(crate) fn change_rules(&self, change: impl FnOnce(&mut Vec<Rule>)) -> Result<()> {
        self.change_rules_then(change, || Ok(()))
    }

    /// [`OpenPool::change_rules`] as one change with what is to be done `then`: where that fails, the rules are as they were.
    pub(crate) fn change_rules_then(
        &self,
        change: impl FnOnce(&mut Vec<Rule>),
        then: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let done = self.rules.change(change, then);
        // Also where they were put back: another may have looked meanwhile.
        self.plane.bump_epoch(RULES_COUNTER);
        done
    }

    /// Removes the rule of exactly this pattern; whether there was one.
    pub fn remove_rule(&self, pattern: &Pattern) -> Result<bool> {
        let mut found = false;
        self.change_rules(|rules| {
            let before = rules.len();
            rules.retain(|rule| rule.pattern != *pattern);
            found = rules.len() < before;
        })?;
        Ok(found)
    }

    /// All rules, the oldest first.
    pub fn rules(&self) -> Result<Arc<Vec<Rule>>> {
        let counter = (!self.plane.is_shared()).then(|| self.plane.epoch(RULES_COUNTER));
        self.rules.all(counter)
    }

    /// The layout that a rule gives.
    pub fn rule_layout(&self, rule: &Rule) -> Result<Arc<Layout>> {
        self.layouts.get(&rule.layout)
    }

    /// The layout that a new file at `path` (relative to the tree) gets. O(rules).
    pub fn layout_for(&self, path: &Path) -> Result<Arc<Layout>> {
        self.layout_by(&self.rules()?, path)
    }

    /// The tier on which a file at `path` has landed: it was made there, has never moved, and no rule names it. O(rules).
    ///
    /// # Errors
    /// The rules cannot be read.
    pub(crate) fn landed_on(&self, placement: &Placement, path: &Path) -> Result<Option<&PoolTier>> {
        let Some(tier) = self.pool.landing.and_then(|landing| self.pool.tiers.get(landing.tier)) else {
            return Ok(None);
        };
        let mut servers = placement.layout.servers();
        servers.retain(|id| *id != ServerId::META);
        let is_there = !servers.is_empty() && servers.iter().all(|id| tier.servers.contains(id));
        let has_another_place = self.default_layout.servers().iter().any(|id| !tier.servers.contains(id));
        // Each move counts the version up.
        let has_landed = placement.version == 1 && is_there && has_another_place && self.rule_for(path)?.is_none();
        Ok(has_landed.then_some(tier))
    }

    /// As [`OpenPool::layout_for`] of a path that is asked for only if there are rules.
    pub(crate) fn layout_for_new(&self, path: impl FnOnce() -> Result<PathBuf>) -> Result<Arc<Layout>> {
        let rules = self.rules()?;
        if rules.is_empty() { Ok(self.made_now()) } else { self.layout_by(&rules, &path()?) }
    }

    /// The rule by which a new file at `path` (relative to the tree) gets its layout, if one does. O(rules).
    ///
    /// # Errors
    /// The rules cannot be read.
    pub fn rule_for(&self, path: &Path) -> Result<Option<Rule>> {
        Ok(rule_by(&self.rules()?, path).cloned())
    }

    fn layout_by(&self, rules: &[Rule], path: &Path) -> Result<Arc<Layout>> {
        match rule_by(rules, path) {
            None => Ok(self.made_now()),
            Some(rule) => {
                let layout = self.rule_layout(rule)?;
                self.check_layout(&layout)?;
                Ok(layout)
            }
        }
    }
}

/// The rule of an exact path, else the latest one that matches.
fn rule_by<'a>(rules: &'a [Rule], path: &Path) -> Option<&'a Rule> {
    let path = path.as_os_str().as_bytes();
    let matching = || rules.iter().rev().filter(|rule| rule.pattern.matches(path));
    matching().find(|rule| rule.pattern.exact_path().is_some()).or_else(|| matching().next())
}
