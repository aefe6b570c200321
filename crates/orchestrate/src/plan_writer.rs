//! The one process that writes a page of turns.

use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use stripewise_store::emulate::now_ns;
use stripewise_store::{Error, Pool, Result, SharedPage, lock_byte};

use crate::plan_page::{PlanPage, PublishedPlan, TURNS_FILE};
use crate::turns::make_pages;

/// The byte of the page's file that its writer locks.
const LOCK_BYTE: i64 = 0;

/// A page of turns, locked; dropping this opens the gates.
pub(crate) struct PlanWriter {
    page: SharedPage<PlanPage>,
    /// Holds the lock.
    _file: OwnedFd,
    /// A plan whose time has not come.
    next: Option<PublishedPlan>,
    policy: String,
    /// The one that the page has.
    last: Option<PublishedPlan>,
    /// Whether the page was another one when it was written last.
    was_changed: bool,
    remarks: Vec<String>,
}

impl PlanWriter {
    /// Makes the page in `directory` where there is none, and locks it.
    ///
    /// # Errors
    /// Another process writes it; the directory cannot be written; in a shared pool, the caller is not root.
    pub(crate) fn open(pool: &Pool, directory: &Path) -> Result<Self> {
        let file = make_pages(pool, directory)?;
        let path = directory.join(TURNS_FILE);
        let page: SharedPage<PlanPage> =
            SharedPage::map(file.as_fd(), 0, ProtFlags::READ | ProtFlags::WRITE).map_err(Error::io("map", &path))?;
        match lock_byte(file.as_fd(), LOCK_BYTE, libc::F_WRLCK, false) {
            Ok(()) => Ok(Self {
                page,
                _file: file,
                next: None,
                policy: String::new(),
                last: None,
                was_changed: false,
                remarks: Vec::new(),
            }),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let process =
                    page.content(now_ns()).map_or_else(String::new, |found| format!(" (process {})", found.process));
                Err(Error::Invalid(format!(
                    "pool '{}' is orchestrated already{process}: end that orchestrator first",
                    pool.name
                )))
            }
            Err(errno) => Err(Error::io("lock", &path)(errno)),
        }
    }

    /// Begins the work of this process under a policy.
    pub(crate) fn begin(&mut self, policy: &str, now_ns: u64) {
        policy.clone_into(&mut self.policy);
        self.last = None;
        self.page.begin(policy, now_ns);
    }

    /// Puts `plan` in force when it begins: now, or when [`Self::tick`] is called at or after [`Self::due_ns`].
    pub(crate) fn publish(&mut self, plan: PublishedPlan, now_ns: u64) {
        if plan.begin_ns > now_ns {
            self.next = Some(plan);
        } else {
            self.next = None;
            self.put(plan, now_ns);
        }
    }

    /// Whether gates keep to slices now.
    pub(crate) fn is_in_turns(&self, now_ns: u64) -> bool {
        self.page.answers(now_ns) && self.page.is_in_turns()
    }

    /// When the next plan begins.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.next.as_ref().map(|plan| plan.begin_ns)
    }

    /// Puts the next plan in force if its time has come.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        if let Some(plan) = self.next.take_if(|plan| plan.begin_ns <= now_ns) {
            self.put(plan, now_ns);
        }
    }

    /// Writes the page, and remarks that it was no longer what it was to be.
    fn put(&mut self, plan: PublishedPlan, now_ns: u64) {
        let changed = self.last.as_ref().and_then(|last| self.page.changed_by_others(last));
        let was_changed = std::mem::replace(&mut self.was_changed, changed.is_some());
        if let Some(what) = changed {
            self.page.begin(&self.policy, now_ns);
            if !was_changed {
                let words = format!("another process has written into the page of turns ({what}): it is written anew");
                self.remarks.push(words);
            }
        }
        self.page.publish(&plan, now_ns);
        self.last = Some(plan);
    }

    /// What is to be told of the page since this was asked last.
    pub(crate) fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }
}

impl Drop for PlanWriter {
    fn drop(&mut self) {
        self.page.end();
    }
}
