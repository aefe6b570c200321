//! Gate and observer of one way in.

use std::ffi::CString;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use stripewise_control::{Action, Door, FileId, Gate, Observer, Request, Served};
use stripewise_schedule::{HELD_LOOK_NS, ProgramKey, paced};
use stripewise_store::emulate::{datafile_key, now_ns, sleep_until};
use stripewise_store::shared_pages::allocate;
use stripewise_store::{Error, Pool, Result, SharedPage, is_shared, open_own};

use crate::identity::Identified;
use crate::nodes::{pages_of, this_node};
use crate::plan_page::{Admittance, PLAN_PAGE_BYTES, PlanPage, TURNS_FILE};
use crate::use_page::{MOST_PROGRAMS, ON_DISK, PROGRAMS_DIRECTORY, ProgramCell, ServedPart, UsePage};

/// How long the program of a thread that asks through the mount is remembered: 1 s.
const REMEMBERED_NS: u64 = 1_000_000_000;
/// Threads that are remembered.
const THREADS: usize = 1024;

/// How often is looked whether what servers have of other programs is done: each half of a millisecond.
const DRAIN_LOOK_NS: u64 = 500_000;

/// A file of a rank waits until programs have paused on those of lower ranks for this part of a window.
const PAUSE_PART: u64 = 4;

/// Whose requests pass.
#[derive(Clone, Copy)]
pub enum Asker {
    /// Those of one program: this process is a part of it.
    Own(Identified),
    /// Those of the threads that ask through the mount.
    Threads,
}

/// Gate and observer of a pool in this process.
pub struct Turns {
    plan: SharedPage<PlanPage>,
    /// Set when an orchestrator is there and the first request passes.
    uses: AtomicPtr<SharedPage<UsePage>>,
    is_unusable: AtomicBool,
    /// The file of `uses`.
    path: CString,
    asker: Asker,
    /// The place of the program of [`Asker::Own`].
    place: AtomicU64,
    /// By a thread's number: number and place, and when that was found.
    threads: Vec<[AtomicU64; 2]>,
    /// Told once of an orchestrator that does not answer.
    tell: fn(&str),
    was_told: AtomicBool,
    /// When the slice began in which nothing is left of those before.
    drained_ns: AtomicU64,
}

/// A request's program: the place of its figures, and the key that the plan knows it by.
#[derive(Clone, Copy)]
struct Known<'a> {
    uses: &'a UsePage,
    place: usize,
}

impl Turns {
    /// The gate of `pool`, if the pool has a page of turns: one that was never orchestrated has none. Several system calls, one
    /// where there is no page. `asker` is called where there is one; `tell` gets the one line that says that an orchestrator
    /// does not answer.
    pub fn open(pool: &Pool, asker: impl FnOnce() -> Asker, tell: fn(&str)) -> Option<Arc<Self>> {
        Self::of_node(pool, &this_node(), asker, tell)
    }

    /// The same for programs of `node`, which is this machine: where an agent has made pages for it, by these.
    pub fn of_node(pool: &Pool, node: &str, asker: impl FnOnce() -> Asker, tell: fn(&str)) -> Option<Arc<Self>> {
        let (directory, plan) = find_plan_page(pool, node)?;
        let asker = asker();
        let uid = rustix::process::geteuid().as_raw().to_string();
        let path = directory.join(PROGRAMS_DIRECTORY).join(uid);
        let count = if matches!(asker, Asker::Threads) { THREADS } else { 0 };
        Some(Arc::new(Self {
            plan,
            uses: AtomicPtr::new(ptr::null_mut()),
            is_unusable: AtomicBool::new(false),
            path: CString::new(path.as_os_str().as_bytes()).ok()?,
            asker,
            place: AtomicU64::new(u64::MAX),
            threads: (0..count).map(|_| [AtomicU64::new(u64::MAX), AtomicU64::new(0)]).collect(),
            tell,
            was_told: AtomicBool::new(false),
            drained_ns: AtomicU64::new(0),
        }))
    }

    /// `door` with this gate and this observer.
    pub fn install(self: Arc<Self>, door: Door) -> Door {
        door.with_gate(self.clone()).with_observer(self)
    }

    /// The page of this user's programs; it is opened when it is first needed.
    fn uses(&self) -> Option<&UsePage> {
        // SAFETY: set once from a leaked box, freed when `self` is dropped.
        if let Some(page) = unsafe { self.uses.load(Ordering::Acquire).as_ref() } {
            return Some(page);
        }
        if self.is_unusable.load(Ordering::Relaxed) {
            return None;
        }
        self.open_uses()
    }

    #[cold]
    fn open_uses(&self) -> Option<&UsePage> {
        let path = Path::new(std::ffi::OsStr::from_bytes(self.path.as_bytes()));
        let Ok(page) = open_use_page(path) else {
            self.is_unusable.store(true, Ordering::Relaxed);
            return None;
        };
        let made = Box::into_raw(Box::new(page));
        if self.uses.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Another thread has opened it.
            // SAFETY: from `Box::into_raw` just now, and no other thread saw it.
            drop(unsafe { Box::from_raw(made) });
        }
        // SAFETY: as in `uses`.
        unsafe { self.uses.load(Ordering::Acquire).as_ref() }.map(|page| &**page)
    }

    /// The program of a request, as the page of programs knows it. `None`: the kernel, upkeep, or there is no place for it.
    fn known(&self, request: &Request, now_ns: u64) -> Option<Known<'_>> {
        let uses = self.uses()?;
        let place = match (self.asker, request.sender.asking_thread()) {
            (Asker::Own(program), _) => {
                let hint = self.place.load(Ordering::Relaxed) as usize;
                let place = uses.place(&program, hint, now_ns)?;
                if place != hint {
                    self.place.store(place as u64, Ordering::Relaxed);
                }
                place
            }
            (Asker::Threads, None | Some(0)) => return None,
            (Asker::Threads, Some(thread)) => self.place_of_thread(uses, thread, now_ns)?,
        };
        Some(Known { uses, place })
    }

    /// The place of the program of a thread; a look into `/proc` once a second.
    fn place_of_thread(&self, uses: &UsePage, thread: u32, now_ns: u64) -> Option<usize> {
        let [word, found_ns] = &self.threads[thread as usize % THREADS];
        let known = word.load(Ordering::Relaxed);
        let age_ns = now_ns.saturating_sub(found_ns.load(Ordering::Relaxed));
        let place = (known >> 32) as usize;
        if known as u32 == thread && place < MOST_PROGRAMS && age_ns < REMEMBERED_NS {
            return Some(place);
        }
        let program = Identified::other_process(thread, user_of(thread)?);
        let place = uses.place(&program, usize::MAX, now_ns)?;
        found_ns.store(now_ns, Ordering::Relaxed);
        word.store(u64::from(thread) | ((place as u64) << 32), Ordering::Relaxed);
        Some(place)
    }

    /// Waits for the turn of a request's program, and for requests on files of lower ranks: at most two windows in all.
    #[cold]
    fn wait(&self, file: FileId, request: &Request) {
        let arrival_ns = now_ns();
        let Some(known) = self.known(request, arrival_ns) else { return };
        let Known { uses, place } = known;
        let cell = &uses.programs[place];
        let key = ProgramKey(cell.key.load(Ordering::Relaxed));
        uses.note_request(place, file.0, arrival_ns);
        uses.note_process(request.sender.asking_thread().unwrap_or_else(std::process::id), place, arrival_ns);
        uses.note_rank(request.rank, arrival_ns);
        cell.requests.fetch_add(1, Ordering::Relaxed);
        let deadline_ns = arrival_ns.saturating_add(2 * self.plan.window_ns());
        let mut now_ns = self.pace(cell, key, request.len, arrival_ns, deadline_ns);
        let passed = loop {
            let wait_ns = match self.plan.admittance(key, now_ns) {
                Admittance::Wait(wait_ns) => wait_ns.clamp(1, HELD_LOOK_NS),
                Admittance::Turn if !self.is_drained(uses, now_ns) => DRAIN_LOOK_NS,
                Admittance::Unanswered => break Admittance::Unanswered,
                done => match uses.until_pause_ns(request.rank, self.plan.window_ns() / PAUSE_PART, now_ns) {
                    0 => break done,
                    wait_ns => wait_ns.min(HELD_LOOK_NS),
                },
            };
            if now_ns >= deadline_ns {
                break Admittance::Wait(wait_ns);
            }
            now_ns = sleep_until(now_ns.saturating_add(wait_ns).min(deadline_ns));
            cell.last_ns.store(now_ns, Ordering::Relaxed);
            uses.note_rank(request.rank, now_ns);
        };
        if now_ns > arrival_ns {
            cell.held.fetch_add(1, Ordering::Relaxed);
            cell.waited_ns.fetch_add(now_ns - arrival_ns, Ordering::Relaxed);
            cell.resumed_ns.store(now_ns, Ordering::Relaxed);
        }
        match passed {
            Admittance::Open => {}
            Admittance::Turn => drop(cell.in_turn.fetch_add(1, Ordering::Relaxed)),
            Admittance::Wait(_) => drop(cell.overdue.fetch_add(1, Ordering::Relaxed)),
            Admittance::Unanswered => {
                cell.unanswered.fetch_add(1, Ordering::Relaxed);
                self.tell_unanswered(now_ns);
            }
        }
    }

    /// Whether servers have nothing any more of programs whose turn it is not, as far as this user's page knows; what takes two
    /// windows is not waited for. One load, once that is so in a slice.
    fn is_drained(&self, uses: &UsePage, now_ns: u64) -> bool {
        let begun_ns = self.plan.slice_begun_ns(now_ns);
        if self.drained_ns.load(Ordering::Relaxed) == begun_ns {
            return true;
        }
        let is_former = |program| matches!(self.plan.admittance(program, now_ns), Admittance::Wait(_));
        let is_drained = !uses.has_flight(is_former, 2 * self.plan.window_ns(), now_ns);
        if is_drained {
            self.drained_ns.store(begun_ns, Ordering::Relaxed);
        }
        is_drained
    }

    /// Waits until a program's limit lets `bytes` more pass; the time then. Each request waits for what those before it have
    /// used, within the same bound as for a turn.
    fn pace(&self, cell: &ProgramCell, key: ProgramKey, bytes: u64, arrival_ns: u64, deadline_ns: u64) -> u64 {
        let limit = self.plan.limit(key);
        if limit == 0 || !self.plan.answers(arrival_ns) {
            return arrival_ns;
        }
        let mut paced_ns = cell.paced_ns.load(Ordering::Relaxed);
        loop {
            let (begin_ns, next_ns) = paced(paced_ns, bytes, limit, arrival_ns, deadline_ns);
            match cell.paced_ns.compare_exchange_weak(paced_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed) {
                Err(now) => paced_ns = now,
                Ok(_) if begin_ns > arrival_ns => return sleep_until(begin_ns),
                Ok(_) => return arrival_ns,
            }
        }
    }

    fn tell_unanswered(&self, now_ns: u64) {
        if !self.was_told.swap(true, Ordering::Relaxed) {
            (self.tell)(&format!(
                "the orchestrator of this pool does not answer ({}): requests go on without turns (start `stripewise \
                 orchestrate` again)",
                self.plan.fault(now_ns)
            ));
        }
    }
}

impl Gate for Turns {
    /// One load while no orchestrator is there.
    fn enter(&self, file: FileId, request: &Request) {
        if self.plan.is_active() && matches!(request.action, Action::Read | Action::Write | Action::Append) {
            self.wait(file, request);
        }
    }

    /// One load while no program has a slice.
    fn sent(&self, request: &Request) -> Option<NonZeroU32> {
        if !self.plan.is_in_turns() {
            return None;
        }
        let now_ns = now_ns();
        let Known { uses, place } = self.known(request, now_ns)?;
        uses.take_off(std::process::id(), place, now_ns)
    }

    fn ended(&self, number: NonZeroU32) {
        if let Some(uses) = self.uses() {
            uses.land(number);
        }
    }

    fn is_in_the_preload_too(&self) -> bool {
        true
    }
}

impl Observer for Turns {
    /// One load while no orchestrator is there.
    fn served(&self, file: FileId, request: &Request, served: &Served<'_>) {
        if !self.plan.is_active() {
            return;
        }
        let now_ns = now_ns();
        let Some(uses) = self.uses() else { return };
        uses.note_rank(request.rank, now_ns);
        let place = self.known(request, now_ns).map(|known| known.place);
        let part = served.part;
        let (datafile, offset) = match served.disk_address() {
            Some(address) => (ON_DISK, address),
            None => (datafile_key(file.0, part.region), part.datafile_offset),
        };
        let part = ServedPart { server: part.server.index(), datafile, offset, bytes: served.done_bytes };
        uses.note_served(place, &part, self.plan.is_mixed(), now_ns);
        if let Some(place) = place {
            uses.programs[place].last_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    fn is_in_the_preload_too(&self) -> bool {
        true
    }

    fn wants_times(&self) -> bool {
        false
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let page = *self.uses.get_mut();
        if !page.is_null() {
            // SAFETY: from `Box::into_raw`, and no reference outlives `self`.
            drop(unsafe { Box::from_raw(page) });
        }
    }
}

/// The user of a thread; `None` when it has ended.
fn user_of(thread: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/{thread}")).ok().map(|found| found.uid())
}

/// Whether an orchestrator is at work on `pool` now.
pub fn is_orchestrated(pool: &Pool) -> bool {
    find_plan_page(pool, &this_node()).is_some_and(|(_, page)| page.answers(now_ns()))
}

/// The page of turns of `node`, and the directory that it is in: the node's own, if an agent has made one, else the pool's.
pub(crate) fn find_plan_page(pool: &Pool, node: &str) -> Option<(PathBuf, SharedPage<PlanPage>)> {
    let is_shared = is_shared(pool).ok()?;
    let of_pool = open_plan_page(&pool.namespace, is_shared)?;
    let of_node = pages_of(pool, node).and_then(|directory| {
        let page = open_plan_page(&directory, is_shared)?;
        Some((directory, page))
    });
    Some(of_node.unwrap_or_else(|| (pool.namespace.clone(), of_pool)))
}

/// Takes away the page of an agent that has been at work on `node`, so that gates look at the pool's page there.
///
/// # Errors
/// The agent is at work now; the page cannot be removed.
pub(crate) fn remove_node_page(pool: &Pool, node: &str) -> Result<()> {
    let Some(directory) = pages_of(pool, node) else { return Ok(()) };
    let found = open_plan_page(&directory, is_shared(pool)?).and_then(|page| page.content(now_ns()));
    if let Some(content) = found {
        return Err(Error::Invalid(format!(
            "an agent (process {}) has the programs of this node take turns: end it first, or orchestrate elsewhere",
            content.process
        )));
    }
    let path = directory.join(TURNS_FILE);
    match rustix::fs::unlink(&path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::io("remove", &path)(errno)),
    }
}

/// The page of turns in `directory`, to be looked at; `None` where there is none that this user may believe.
fn open_plan_page(directory: &Path, is_shared: bool) -> Option<SharedPage<PlanPage>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(directory.join(TURNS_FILE), flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let own = rustix::process::geteuid().as_raw();
    // Its owner could shorten it, and kill processes that map it.
    let is_believed = stat.st_uid == 0 || (!is_shared && stat.st_uid == own);
    if !is_regular || !is_believed || stat.st_size < PLAN_PAGE_BYTES as i64 {
        return None;
    }
    SharedPage::map(file.as_fd(), 0, ProtFlags::READ).ok()
}

/// Makes the page of turns of `pool`, where there is none, and the directory of the programs' pages; the page's file, open for
/// writing. From then on programs and mounts that are started have a gate.
///
/// # Errors
/// The namespace cannot be written; in a shared pool, the caller is not root.
pub fn make_plan_page(pool: &Pool) -> Result<OwnedFd> {
    make_pages(pool, &pool.namespace)
}

/// The same in the directory of a node, which is made, too.
pub(crate) fn make_pages(pool: &Pool, pages: &Path) -> Result<OwnedFd> {
    let is_shared = is_shared(pool)?;
    if is_shared && !rustix::process::geteuid().is_root() {
        return Err(Error::Invalid(format!(
            "pool '{}' is one of several users: only root orchestrates their programs; run this as root",
            pool.name
        )));
    }
    if pages != pool.namespace {
        // Other users look at the page in it, and make no names there.
        let [nodes, node] = [pages.parent().unwrap_or(pages), pages];
        make_directory(nodes, is_shared, 0o755)?;
        make_directory(node, is_shared, 0o755)?;
    }
    make_directory(&pages.join(PROGRAMS_DIRECTORY), is_shared, 0o1777)?;
    let path = pages.join(TURNS_FILE);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mode = Mode::from_raw_mode(if is_shared { 0o644 } else { 0o600 });
    let file = rustix::fs::open(&path, flags, mode).map_err(Error::io("open", &path))?;
    if is_shared {
        rustix::fs::fchmod(&file, mode).map_err(Error::io("change the mode of", &path))?;
    }
    allocate(file.as_fd(), PLAN_PAGE_BYTES).map_err(Error::io("allocate", &path))?;
    Ok(file)
}

/// Makes a directory where there is none: for its owner, or with the mode `shared` for all users of a shared pool.
fn make_directory(path: &Path, is_shared: bool, shared: u32) -> Result<()> {
    let mode = Mode::from_raw_mode(if is_shared { shared } else { 0o700 });
    match rustix::fs::mkdir(path, mode) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(Error::io("create", path)(errno)),
    }
    if is_shared {
        rustix::fs::chmod(path, mode).map_err(Error::io("change the mode of", path))?;
    }
    Ok(())
}

/// The page of this user's programs; made when there is none.
fn open_use_page(path: &Path) -> Result<SharedPage<UsePage>> {
    // Other users learn nothing of what this one's programs do; root reads it all the same.
    let file = open_own(path, Mode::from_raw_mode(0o600))?;
    allocate(file.as_fd(), size_of::<UsePage>() as u64).map_err(Error::io("allocate", path))?;
    let page: SharedPage<UsePage> =
        SharedPage::map(file.as_fd(), 0, ProtFlags::READ | ProtFlags::WRITE).map_err(Error::io("map", path))?;
    page.set_up();
    Ok(page)
}
