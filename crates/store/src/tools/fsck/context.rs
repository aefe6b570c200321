//! What all steps of a check share: the ground, the options, and the listener.

use super::finding::{CheckFinding, CheckReport, DamageKind, FindingOutcome, Outcomes};
use super::ground::Ground;
use super::holding::Holding;
use super::options::CheckOptions;
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::pool::namespace::is_shared;
use crate::pool::neighbours::Quiet;
use crate::pool::pool_file::Pool;
use crate::pool::store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Files between two tellings of progress.
pub(super) const TELL_EVERY: u64 = 1024;

/// What a check is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckStep {
    /// Looking at the files of the tree.
    Files,
    /// Looking again at those with unusable handles or leftovers.
    Again,
    /// Looking at the datafiles.
    Datafiles,
    /// Reading all bytes; `done` and `of` are bytes.
    Reading,
}

/// Listens to what a check finds. Called from several threads.
pub trait CheckWatch: Sync {
    /// Something was found, and this came of it.
    fn found(&self, finding: &CheckFinding);
    /// The number of files or datafiles that this step has looked at; `of` is how many there are, where that is known.
    /// `false` stops the check.
    fn progress(&self, step: CheckStep, done: u64, of: Option<u64>) -> bool {
        let _ = (step, done, of);
        true
    }
}

/// Findings in memory, for those who expect few.
impl CheckWatch for Mutex<Vec<CheckFinding>> {
    fn found(&self, finding: &CheckFinding) {
        guard(self).push(finding.clone());
    }
}

/// A check under way.
pub(super) struct Context<'a> {
    pub(super) ground: Ground,
    pub(super) options: &'a CheckOptions,
    watch: &'a dyn CheckWatch,
    /// Whether anything had the pool mounted when the check began, and how to find out whether it has now.
    pub(super) quiet: Quiet,
    pub(super) holding: Holding,
    store: Mutex<Option<Arc<Store>>>,
    kinds: Mutex<BTreeMap<DamageKind, Outcomes>>,
    pub(super) files: AtomicU64,
    pub(super) placed_files: AtomicU64,
    pub(super) files_in_use: AtomicU64,
    pub(super) datafiles: AtomicU64,
    /// What all files take of the disks.
    pub(super) allocated_bytes: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    stopped: AtomicBool,
    /// A file may have a handle that we do not know, so that orphans cannot be told from its datafiles.
    unknown_handles: AtomicBool,
}

impl<'a> Context<'a> {
    /// The inner error is the report of a dry run that cannot go on, because a directory would have to be made first.
    pub(super) fn open(
        pool: &Pool,
        options: &'a CheckOptions,
        watch: &'a dyn CheckWatch,
    ) -> Result<Result<Self, CheckReport>> {
        let mut findings = Vec::new();
        let Some(ground) = Ground::open(pool, options, &mut findings)? else {
            let mut kinds: BTreeMap<DamageKind, Outcomes> = BTreeMap::new();
            for finding in findings {
                kinds.entry(finding.kind).or_default().add(finding.outcome);
                watch.found(&finding);
            }
            return Ok(Err(CheckReport { kinds: kinds.into_iter().collect(), ..CheckReport::default() }));
        };
        let quiet = Quiet::look(&pool.namespace, !options.dry_run, is_shared(pool).unwrap_or(false))?;
        let context = Self {
            ground,
            options,
            watch,
            quiet,
            holding: Holding::default(),
            store: Mutex::default(),
            kinds: Mutex::default(),
            files: AtomicU64::new(0),
            placed_files: AtomicU64::new(0),
            files_in_use: AtomicU64::new(0),
            datafiles: AtomicU64::new(0),
            allocated_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            unknown_handles: AtomicBool::new(false),
        };
        findings.into_iter().for_each(|finding| context.tell(finding));
        Ok(Ok(context))
    }

    /// How many threads to use.
    pub(super) fn threads(&self) -> usize {
        match self.options.threads {
            0 => std::thread::available_parallelism().map_or(2, |count| count.get() * 2).min(64),
            count => count,
        }
    }

    /// The store, opened when something is mended.
    pub(super) fn store(&self) -> Result<Arc<Store>> {
        let mut store = guard(&self.store);
        if let Some(store) = &*store {
            return Ok(store.clone());
        }
        let opened = Store::open(self.ground.pool.clone())?;
        *store = Some(opened.clone());
        Ok(opened)
    }

    /// Tells `finding` as it is.
    pub(super) fn tell(&self, finding: CheckFinding) {
        guard(&self.kinds).entry(finding.kind).or_default().add(finding.outcome);
        self.watch.found(&finding);
    }

    /// Reports that `finding` is left; its action is up to the user.
    pub(super) fn left(&self, finding: CheckFinding) {
        self.tell(CheckFinding { outcome: FindingOutcome::Left, ..finding });
    }

    /// Tells something that is not wrong.
    pub(super) fn note(&self, finding: CheckFinding) {
        self.tell(CheckFinding { outcome: FindingOutcome::Note, ..finding });
    }

    /// Tells that something could not be read: nothing is known of it.
    pub(super) fn unreadable(&self, finding: CheckFinding) {
        self.unknown_handles.store(true, Ordering::Relaxed);
        self.left(finding);
    }

    /// Mends what `finding` says by `work`, unless this is a dry run; `finding.action` is what was or would be done.
    /// Whether it is in order now.
    pub(super) fn mend(&self, finding: CheckFinding, work: impl FnOnce() -> Result<()>) -> bool {
        if self.options.dry_run {
            self.tell(CheckFinding { outcome: FindingOutcome::WouldMend, ..finding });
            return false;
        }
        match work() {
            Ok(()) => {
                self.tell(CheckFinding { outcome: FindingOutcome::Mended, ..finding });
                true
            }
            Err(error) => {
                let action = format!("not mended ({}): {error}", finding.action);
                self.left(CheckFinding { action, ..finding });
                false
            }
        }
    }

    /// Notes that some file's handle is not known.
    pub(super) fn note_unknown_handle(&self) {
        self.unknown_handles.store(true, Ordering::Relaxed);
    }

    /// Whether every file's handle is known.
    pub(super) fn knows_all_handles(&self) -> bool {
        !self.unknown_handles.load(Ordering::Relaxed)
    }

    /// Tells progress; an error when the watcher wants no more.
    pub(super) fn progress(&self, step: CheckStep, done: u64, of: Option<u64>) -> Result<()> {
        if !self.watch.progress(step, done, of) {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.go_on()
    }

    /// An error when the watcher wants no more.
    pub(super) fn go_on(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::Invalid("the check was stopped; what it mended is mended".into()));
        }
        Ok(())
    }

    /// Makes what was mended durable, and sums up.
    pub(super) fn end(self) -> Result<CheckReport> {
        if !self.options.dry_run {
            self.ground.sync()?;
        }
        let kinds = std::mem::take(&mut *guard(&self.kinds));
        Ok(CheckReport {
            files: self.files.into_inner(),
            placed_files: self.placed_files.into_inner(),
            files_in_use: self.files_in_use.into_inner(),
            datafiles: self.datafiles.into_inner(),
            read_bytes: self.read_bytes.into_inner(),
            kinds: kinds.into_iter().collect(),
        })
    }
}
