//! The queue of one emulated server: a page in its directory that all processes map.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use stripewise_layout::ServerId;
use stripewise_model::{GATHERED, HeadRun, Op, OpProfile, RunEnds, head_position};

use super::disk_page::{DiskPage, DiskTicket};
use super::disk_queue::{DiskQueue, DiskRequest, Look};
use super::draws::{mix, unit};
use super::sleep::{now_ns, sleep_until};
use super::stats::{AtomicHistogram, AtomicOpStatistics, OpStatistics, ServerStatistics};
use super::{EmulateConfig, EmulateError, MOST_AT_ONCE};
use crate::os::shared_pages::{Atomics, SharedPage, allocate};

/// Name of the queue's file in the server's directory.
pub const QUEUE_FILE: &str = "queue";

/// No queue is longer than an hour: a page that says so is garbage (or from another boot) and is taken as empty.
pub const MAX_BACKLOG_NS: u64 = 3_600_000_000_000;

/// "SWQUEUE" and the version of the page.
const MAGIC: u64 = u64::from_be_bytes(*b"SWQUEUE\x02");

/// Length of the file.
const FILE_BYTES: usize = 8192;

/// Where the page of a disk begins in the file.
pub(super) const DISK_PAGE_AT: u64 = FILE_BYTES as u64;

/// How long an opener waits for another that is setting up the page. It dies with its holder, so the bound matters only
/// where a process holds the lock on purpose.
const SETUP_PATIENCE_NS: u64 = 200_000_000;

/// The shared page. Every field stands alone: no reader relies on two of them agreeing.
#[repr(C, align(64))]
struct Page {
    magic: AtomicU64,
    boot_id: [AtomicU64; 2],
    head: Head,
    read: AtomicOpStatistics,
    write: AtomicOpStatistics,
    error_ppm: AtomicHistogram,
    overshoot_ns: AtomicHistogram,
    drawn_sum_ns: AtomicU64,
    overshoot_sum_ns: AtomicU64,
    /// Of a server that serves several requests side by side: when the last service of each further place ends. Zeros in a
    /// page that was made before there were any: free.
    places_free_ns: [AtomicU64; MOST_AT_ONCE as usize - 1],
}

/// What every reservation touches, on a cache line of its own.
#[repr(C, align(64))]
struct Head {
    /// `CLOCK_MONOTONIC` at which the last reserved service ends.
    next_free_ns: AtomicU64,
    /// Startup times drawn so far, by all processes.
    draws: AtomicU64,
    /// Where the device's head will be: runs begun so far, and the last of them.
    runs_begun: AtomicU64,
    runs: [SharedRun; GATHERED],
}

/// A [`HeadRun`] of the page.
#[repr(C)]
struct SharedRun {
    begin: AtomicU64,
    end: AtomicU64,
    mark: AtomicU64,
    served: AtomicU64,
}

/// A sub-request of no datafile that the caller knows: it is adjacent to none.
pub const NOWHERE: u64 = 0;

const _: () = assert!(size_of::<Page>() <= FILE_BYTES);

// SAFETY: all of its fields are atomics.
unsafe impl Atomics for Page {}

/// A sub-request's place in the queue of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueTicket {
    /// When it was reserved (`CLOCK_MONOTONIC`, nanoseconds).
    pub arrival_ns: u64,
    /// When its service begins: at once, or when the device is free.
    pub start_ns: u64,
    /// When its service ends: it must not be reported done before.
    pub deadline_ns: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Read or write.
    pub op: Op,
    /// Its place in the queue of a disk. Until [`Device::settle`] has returned, begin and end of its service are not known.
    pub disk: Option<DiskTicket>,
}

/// Startup and transfer of one kind of operation in dilated nanoseconds.
#[derive(Debug, Clone, Copy)]
struct ServiceTime {
    startup_min_ns: f64,
    startup_span_ns: f64,
    sequential_ns: Option<f64>,
    ahead_bytes: u64,
    transfer_ns_per_byte: f64,
}

impl ServiceTime {
    fn new(op: &OpProfile, network_s_per_byte: f64, dilation: f64) -> Self {
        let scale = 1e9 * dilation;
        Self {
            startup_min_ns: op.startup_min_s * scale,
            startup_span_ns: (op.startup_max_s - op.startup_min_s) * scale,
            sequential_ns: op.head.map(|head| head.sequential_startup_s * scale),
            ahead_bytes: op.ahead_bytes(),
            transfer_ns_per_byte: (op.transfer_s_per_byte + network_s_per_byte) * scale,
        }
    }

    fn draw_ns(&self, unit: f64, bytes: u64, adjacent: bool) -> u64 {
        let drawn = self.startup_min_ns + unit * self.startup_span_ns;
        let startup = self.sequential_ns.filter(|_| adjacent).unwrap_or(drawn);
        ((startup + bytes as f64 * self.transfer_ns_per_byte) as u64).min(MAX_BACKLOG_NS)
    }
}

/// One emulated server, open in this process. It may be used by all threads and by children after `fork`.
pub struct Device {
    page: SharedPage<Page>,
    read: ServiceTime,
    write: ServiceTime,
    stream: u64,
    /// Of a disk: its queue.
    disk: Option<DiskQueue>,
    /// Places at which requests are served side by side, beside the first one.
    further_places: usize,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("read", &self.read).field("write", &self.write).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the queue in a server's directory and makes it when there is none. `server` keeps the draws of servers
    /// with one seed apart. Not for the path of a request: several system calls.
    ///
    /// # Errors
    /// [`EmulateError::Config`] for numbers that no device has; [`EmulateError::Queue`] when the file cannot be opened,
    /// made or mapped.
    pub fn open(directory: impl AsFd, server: ServerId, config: &EmulateConfig) -> Result<Self, EmulateError> {
        config.validate()?;
        let file = open_queue(directory.as_fd())?;
        let locked = lock_for_setup(file.as_fd());
        let page = extend_and_map(file.as_fd());
        let disk_page = config.disk.map(|_| extend_and_map_disk(file.as_fd()));
        if let Ok(page) = &page {
            let is_of_boot = set_up(page);
            if let Some(Ok(disk)) = &disk_page {
                disk.set_up(is_of_boot);
            }
        }
        if locked {
            let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
        }
        let network = config.profile.network_s_per_byte;
        let stream = mix(config.seed ^ mix(u64::from(server.0) + 1));
        let disk = match (config.disk, disk_page) {
            (Some(disk), Some(page)) => {
                Some(DiskQueue::new(page?, disk, &config.profile, (config.dilation, stream, MAX_BACKLOG_NS)))
            }
            _ => None,
        };
        Ok(Self {
            disk,
            further_places: config.at_once as usize - 1,
            page: page?,
            read: ServiceTime::new(&config.profile.read, network, config.dilation),
            write: ServiceTime::new(&config.profile.write, network, config.dilation),
            stream,
        })
    }

    /// A sub-request of no known place arrives now.
    pub fn reserve(&self, op: Op, bytes: u64) -> QueueTicket {
        match self.disk {
            // A place of their own that all of them have.
            Some(_) => self.enter(&DiskRequest { op, datafile: u64::MAX, offset: 0, bytes, process: 1 }, now_ns()),
            None => self.reserve_at(op, NOWHERE, bytes, now_ns()),
        }
    }

    /// A sub-request arrives at `arrival_ns`. On a disk it waits for a decision ([`Self::settle`]); any other device gives it
    /// the next service at once ([`Self::reserve_at`]).
    pub fn enter(&self, asked: &DiskRequest, arrival_ns: u64) -> QueueTicket {
        let DiskRequest { op, datafile, offset, bytes, .. } = *asked;
        let Some(disk) = &self.disk else {
            return self.reserve_at(op, head_position(datafile, offset), bytes, arrival_ns);
        };
        let (disk, start_ns, deadline_ns) = disk.enter(asked, arrival_ns);
        QueueTicket { arrival_ns, start_ns, deadline_ns, bytes, op, disk }
    }

    /// Waits until it is decided when a sub-request is served; nothing on a device that is no disk. Then the ticket's times
    /// are those of the service.
    pub fn settle(&self, ticket: &mut QueueTicket) {
        if let (Some(disk), Some(place)) = (&self.disk, ticket.disk.take()) {
            let give_up_ns = ticket.arrival_ns.saturating_add(MAX_BACKLOG_NS);
            (ticket.start_ns, ticket.deadline_ns) = disk.settle(&place, give_up_ns);
        }
    }

    /// Where on a disk a byte of a datafile ([`datafile_key`](super::datafile_key)) is; `None` before its first request, and on a
    /// device that is no disk. Some loads.
    pub fn address(&self, datafile: u64, offset: u64) -> Option<u64> {
        self.disk.as_ref()?.address(datafile, offset)
    }

    /// Carries the schedule of a disk on up to `now_ns`: `None` once it is decided when a sub-request is served, and else the
    /// time of the next decision, unless something comes before. For those that have a clock of their own.
    pub fn look(&self, ticket: &mut QueueTicket, now_ns: u64) -> Option<u64> {
        let (disk, place) = (self.disk.as_ref()?, ticket.disk?);
        match disk.look(&place, now_ns) {
            Look::Decided { start_ns, deadline_ns } => {
                *ticket = QueueTicket { start_ns, deadline_ns, disk: None, ..*ticket };
                None
            }
            Look::Later { next_ns, .. } => Some(next_ns),
        }
    }

    /// Takes the next service of the device for a sub-request that arrived at `arrival_ns`; one reading of the clock
    /// does for all sub-requests of a request. First come, first served, whatever process they are from: not for disks, which
    /// have an order of their own ([`Self::enter`]). `position` is its
    /// place among all datafiles ([`head_position`](stripewise_model::head_position)), or [`NOWHERE`].
    ///
    /// Cost: two atomic operations (more only while others reserve at the same instant) and, on a device with a head, some
    /// thirty plain loads, on one that serves several at once a load each; no lock, no system call.
    pub fn reserve_at(&self, op: Op, position: u64, bytes: u64, arrival_ns: u64) -> QueueTicket {
        let head = &self.page.head;
        let draw = head.draws.fetch_add(1, Relaxed);
        let service = match op {
            Op::Read => &self.read,
            Op::Write => &self.write,
        };
        let has_head = self.read.sequential_ns.is_some() || self.write.sequential_ns.is_some();
        let place = self.first_free();
        let begins_ns = place.load(Relaxed).max(arrival_ns);
        let adjacent = has_head
            && position != NOWHERE
            && head.stays(position, bytes, (begins_ns, arrival_ns), service.ahead_bytes);
        let service_ns = service.draw_ns(unit(self.stream, draw), bytes, adjacent);
        let mut free_ns = place.load(Relaxed);
        loop {
            let garbage = free_ns > arrival_ns.saturating_add(MAX_BACKLOG_NS);
            let start_ns = if garbage { arrival_ns } else { arrival_ns.max(free_ns) };
            let deadline_ns = start_ns.saturating_add(service_ns);
            match place.compare_exchange_weak(free_ns, deadline_ns, Relaxed, Relaxed) {
                Ok(_) => return QueueTicket { arrival_ns, start_ns, deadline_ns, bytes, op, disk: None },
                Err(now_free_ns) => free_ns = now_free_ns,
            }
        }
    }

    /// The place that is free first. Two that ask at one instant may be given the same one while another is free: the second one
    /// waits for the first then, as behind a server that has just taken it.
    fn first_free(&self) -> &AtomicU64 {
        let further = &self.page.places_free_ns[..self.further_places];
        further.iter().fold(&self.page.head.next_free_ns, |first, place| {
            if place.load(Relaxed) < first.load(Relaxed) { place } else { first }
        })
    }

    /// An operation on names arrives, whose service is the startup of `op` alone: sleeps until that ends, and records it.
    pub fn serve_names(&self, op: Op) {
        self.finish(self.reserve(op, 0));
    }

    /// Records a sub-request as done at `now_ns`. `request_deadline_ns` is the latest deadline of all sub-requests of
    /// its request: the emulation error, measured less drawn time, is charged to the server that decided it.
    ///
    /// Cost: four atomic additions, eight on the server that decided.
    pub fn complete(&self, ticket: &QueueTicket, request_deadline_ns: u64, now_ns: u64) {
        let page = &*self.page;
        let statistics = match ticket.op {
            Op::Read => &page.read,
            Op::Write => &page.write,
        };
        statistics.add(&OpStatistics {
            requests: 1,
            bytes: ticket.bytes,
            busy_ns: ticket.deadline_ns.saturating_sub(ticket.start_ns),
            waiting_ns: ticket.start_ns.saturating_sub(ticket.arrival_ns),
        });
        if ticket.deadline_ns >= request_deadline_ns {
            let overshoot_ns = now_ns.saturating_sub(ticket.deadline_ns);
            let drawn_ns = ticket.deadline_ns.saturating_sub(ticket.arrival_ns).max(1);
            page.overshoot_ns.add(overshoot_ns);
            page.overshoot_sum_ns.fetch_add(overshoot_ns, Relaxed);
            page.drawn_sum_ns.fetch_add(drawn_ns, Relaxed);
            page.error_ppm.add((overshoot_ns as f64 / drawn_ns as f64 * 1e6) as u64);
        }
    }

    /// A request that one server serves alone, after its real I/O: sleeps until the service ends and records it.
    pub fn finish(&self, mut ticket: QueueTicket) {
        self.settle(&mut ticket);
        let now_ns = sleep_until(ticket.deadline_ns);
        self.complete(&ticket, ticket.deadline_ns, now_ns);
    }

    /// What the server did since its queue was made, over all processes. Counters are read one by one while others
    /// may add to them.
    pub fn statistics(&self) -> ServerStatistics {
        self.page.statistics()
    }

    /// The statistics in a server's directory, for an observer that has no configuration; `None` when there is no
    /// queue.
    ///
    /// # Errors
    /// [`EmulateError::Queue`] when the file is there and cannot be opened or mapped.
    pub fn observe(directory: impl AsFd) -> Result<Option<ServerStatistics>, EmulateError> {
        let error = |action| move |errno| EmulateError::Queue { action, errno };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(directory, QUEUE_FILE, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(error("open")(errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(error("examine"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_size < FILE_BYTES as i64 {
            return Ok(None);
        }
        let page = map(file.as_fd())?;
        Ok((page.magic.load(Relaxed) == MAGIC).then(|| page.statistics()))
    }
}

impl Head {
    /// Whether a sub-request whose service begins at `times_ns.0`, and which arrived at `times_ns.1`, is adjacent to one
    /// before it ([`RunEnds::take`]). Others may reserve meanwhile: then one of both can take the head to be where the other
    /// one left it, as with two that arrive at one instant.
    fn stays(&self, position: u64, bytes: u64, times_ns: (u64, u64), ahead_bytes: u64) -> bool {
        let run = |of: &SharedRun| HeadRun {
            begin: of.begin.load(Relaxed),
            end: of.end.load(Relaxed),
            mark: of.mark.load(Relaxed),
            served: of.served.load(Relaxed),
        };
        let count = self.runs_begun.load(Relaxed);
        let mut ends = RunEnds { runs: std::array::from_fn(|slot| run(&self.runs[slot])), count };
        let (slot, adjacent) = ends.take(position, bytes, times_ns.0, times_ns.1, ahead_bytes);
        let (from, to) = (&ends.runs[slot], &self.runs[slot]);
        to.begin.store(from.begin, Relaxed);
        to.end.store(from.end, Relaxed);
        to.mark.store(from.mark, Relaxed);
        to.served.store(from.served, Relaxed);
        self.runs_begun.store(ends.count, Relaxed);
        adjacent
    }
}

impl Page {
    fn statistics(&self) -> ServerStatistics {
        ServerStatistics {
            read: self.read.load(),
            write: self.write.load(),
            error_ppm: self.error_ppm.load(),
            overshoot_ns: self.overshoot_ns.load(),
            drawn_sum_ns: self.drawn_sum_ns.load(Relaxed),
            overshoot_sum_ns: self.overshoot_sum_ns.load(Relaxed),
        }
    }
}

fn open_queue(directory: BorrowedFd<'_>) -> Result<OwnedFd, EmulateError> {
    // NONBLOCK: a FIFO of that name must not hang the program.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = crate::os::sys::open_or_make_at(directory, QUEUE_FILE, flags, Mode::from_raw_mode(0o666))
        .map_err(|errno| EmulateError::Queue { action: "open", errno })?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| EmulateError::Queue { action: "examine", errno })?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        Ok(file)
    } else {
        Err(EmulateError::Queue { action: "use", errno: Errno::INVAL })
    }
}

/// Keeps two processes from setting up the page at once. Gives up rather than hang: the worst is then that a
/// reservation made meanwhile is lost.
fn lock_for_setup(file: BorrowedFd<'_>) -> bool {
    let give_up_ns = now_ns() + SETUP_PATIENCE_NS;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return true,
            Err(Errno::WOULDBLOCK | Errno::INTR) if now_ns() < give_up_ns => {
                sleep_until(now_ns() + 200_000);
            }
            Err(_) => return false,
        }
    }
}

fn extend_and_map(file: BorrowedFd<'_>) -> Result<SharedPage<Page>, EmulateError> {
    allocate(file, FILE_BYTES as u64).map_err(|errno| EmulateError::Queue { action: "allocate", errno })?;
    map(file)
}

fn map(file: BorrowedFd<'_>) -> Result<SharedPage<Page>, EmulateError> {
    SharedPage::map(file, 0, ProtFlags::READ | ProtFlags::WRITE)
        .map_err(|errno| EmulateError::Queue { action: "map", errno })
}

/// The page of a disk stands behind the queue's own.
fn extend_and_map_disk(file: BorrowedFd<'_>) -> Result<SharedPage<DiskPage>, EmulateError> {
    allocate(file, (FILE_BYTES + size_of::<DiskPage>()) as u64)
        .map_err(|errno| EmulateError::Queue { action: "allocate", errno })?;
    SharedPage::map(file, DISK_PAGE_AT, ProtFlags::READ | ProtFlags::WRITE)
        .map_err(|errno| EmulateError::Queue { action: "map", errno })
}

/// Makes a new, foreign or stale page usable; leaves one of this boot alone. Whether it was of this boot.
fn set_up(page: &Page) -> bool {
    let boot_id = crate::os::boot::boot_id();
    let stamped = [page.boot_id[0].load(Relaxed), page.boot_id[1].load(Relaxed)];
    let is_of_boot = page.magic.load(Relaxed) == MAGIC && boot_id.is_none_or(|id| id == stamped);
    if page.magic.load(Relaxed) != MAGIC || !is_of_boot {
        page.places_free_ns.iter().for_each(|place| place.store(0, Relaxed));
    }
    if page.magic.load(Relaxed) != MAGIC {
        page.head.draws.store(0, Relaxed);
        page.head.next_free_ns.store(0, Relaxed);
        page.head.runs_begun.store(0, Relaxed);
        page.read.clear();
        page.write.clear();
        page.error_ppm.clear();
        page.overshoot_ns.clear();
        page.drawn_sum_ns.store(0, Relaxed);
        page.overshoot_sum_ns.store(0, Relaxed);
    } else if boot_id.is_some_and(|id| id != stamped) {
        // The clock began anew; what the server did remains.
        page.head.next_free_ns.store(0, Relaxed);
    }
    if let Some(id) = boot_id {
        page.boot_id[0].store(id[0], Relaxed);
        page.boot_id[1].store(id[1], Relaxed);
    }
    page.magic.store(MAGIC, Relaxed);
    is_of_boot
}
