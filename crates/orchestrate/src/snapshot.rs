//! What the pages of all users' programs say now. They are read, not mapped: a user could shorten its page, and kill a process
//! that maps it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use stripewise_schedule::{FULL_STROKE_BYTES, ProgramKey, ProgramTraits, ServerUseBy, UserTraffic};

use crate::identity::Identified;
use crate::plan_page::text_of;
use crate::use_page::{
    FlightCell, MOST_FLIGHTS, MOST_PROGRAMS, PROGRAMS_DIRECTORY, ProgramCell, USES_MAGIC, UseCell, UsePage,
};

/// Users whose pages are read.
const MOST_USERS: usize = 256;
/// Names that are looked at for users' pages: any user of a shared pool can make names there.
const MOST_NAMES: usize = 1 << 16;
/// How often is looked for new users: once a second.
const USERS_AGAIN_NS: u64 = 1_000_000_000;
/// A process counts as one of its program's for this time after a request: 10 s.
const PROCESS_NS: u64 = 10_000_000_000;
/// Users whose programs are glanced at between two looks.
const GLANCE_USERS: usize = 16;
const UNREADABLE: &str = "cannot be read";
/// A request that servers have had for longer is one of a process that was killed: 1 s.
const FLIGHT_NS: u64 = 1_000_000_000;
/// No reuse distance and no period is longer than a day.
const MOST_NS: f64 = 86_400e9;

/// Reads the pages of a pool's users.
#[derive(Debug)]
pub(crate) struct PageReader {
    directory: PathBuf,
    servers: usize,
    /// Those that have a page, as of `users_ns`.
    users: Vec<u32>,
    users_ns: Option<u64>,
    /// By user: what is wrong with the page, and since when.
    faults: BTreeMap<u32, (&'static str, u64)>,
    /// What was told of: each fault of a user's page once.
    told: BTreeSet<(u32, &'static str)>,
    remarks: Vec<String>,
}

/// What the programs that are known have done on a server. It grows less where one is forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerDone {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

impl ServerDone {
    fn add(&mut self, more: Self) {
        self.requests = self.requests.saturating_add(more.requests);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// What the pages of a node say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeSnapshot {
    /// Programs, the first seen first.
    pub programs: Vec<ProgramTraits>,
    /// By server: what each user's programs do there in windows of all.
    pub traffic: Vec<Vec<UserTraffic>>,
    /// By server.
    pub served: Vec<ServerDone>,
    /// Requests of programs that had no place.
    pub unplaced: u64,
}

impl NodeSnapshot {
    /// Adds what another node says, as of the same clock. Servers that this one does not have are left out.
    ///
    /// O(programs of both, multiplied, and servers).
    pub fn join(&mut self, other: &Self) {
        for found in &other.programs {
            match self.programs.iter_mut().find(|program| program.key == found.key) {
                Some(program) => program.join_node(found),
                None => self.programs.push(found.clone()),
            }
        }
        // Users of two nodes are two users: the order in which a server gets their requests is not known.
        self.traffic.iter_mut().zip(&other.traffic).for_each(|(own, more)| own.extend(more));
        self.served.iter_mut().zip(&other.served).for_each(|(own, more)| own.add(*more));
        self.unplaced = self.unplaced.saturating_add(other.unplaced);
        self.programs.sort_by_key(|program| (program.first_ns, program.key));
    }
}

fn word(of: &AtomicU64) -> u64 {
    of.load(Ordering::Relaxed)
}

/// A time of a page; 0 where it is of another boot, or of a process with another clock: ahead of `now_ns` by more than what passes
/// while a page is read.
fn time(of_ns: u64, now_ns: u64) -> u64 {
    if of_ns <= now_ns.saturating_add(USERS_AGAIN_NS) { of_ns.min(now_ns) } else { 0 }
}

/// By place, whether servers have a request of the program there; `flights` are the words and begins of requests.
fn in_flight_by(flights: impl Iterator<Item = (u64, u64)>, now_ns: u64) -> [bool; MOST_PROGRAMS] {
    let mut found = [false; MOST_PROGRAMS];
    for (word, since_ns) in flights {
        if let Some(has) = found.get_mut((word as u32 as usize).wrapping_sub(1)) {
            *has |= now_ns.saturating_sub(time(since_ns, now_ns)) <= FLIGHT_NS;
        }
    }
    found
}

/// A word of a part of a page.
fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// A figure of a page within its bounds; `None` for what is no number.
fn figure(of: &AtomicU64, most: f64) -> Option<f64> {
    Some(f64::from_bits(word(of))).filter(|value| value.is_finite() && *value >= 0.0).map(|value| value.min(most))
}

impl PageReader {
    /// Of the pages below `directory`, a node's, of a pool of `servers` servers.
    pub(crate) fn new(directory: &Path, servers: usize) -> Self {
        Self {
            directory: directory.join(PROGRAMS_DIRECTORY),
            servers,
            users: Vec::new(),
            users_ns: None,
            faults: BTreeMap::new(),
            told: BTreeSet::new(),
            remarks: Vec::new(),
        }
    }

    /// Looks which users have a page of their own; what another user has put there is none.
    fn find_users(&mut self, now_ns: u64) {
        if self.users_ns.is_some_and(|then_ns| now_ns.saturating_sub(then_ns) < USERS_AGAIN_NS) {
            return;
        }
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        let users = entries.flatten().take(MOST_NAMES).filter_map(|entry| {
            let uid = entry.file_name().to_str()?.parse::<u32>().ok()?;
            Some((uid, entry.metadata().ok()?.uid() == uid))
        });
        let (own, others): (Vec<_>, Vec<_>) = users.partition(|(_, is_own)| *is_own);
        for (uid, _) in others.into_iter().take(MOST_USERS) {
            self.tell(uid, "belongs to another user");
        }
        self.users = own.into_iter().map(|(uid, _)| uid).take(MOST_USERS).collect();
        let users = &self.users;
        self.faults.retain(|uid, _| users.contains(uid));
        // Until there is one, each look is for the first.
        self.users_ns = (!self.users.is_empty()).then_some(now_ns);
    }

    /// Reads all pages: some hundred microseconds a user. What cannot be read, or is no page, is left out.
    pub(crate) fn read(&mut self, now_ns: u64) -> NodeSnapshot {
        let served = vec![ServerDone::default(); self.servers];
        let mut snapshot = NodeSnapshot { traffic: vec![Vec::new(); self.servers], served, ..NodeSnapshot::default() };
        self.find_users(now_ns);
        for uid in self.users.clone() {
            match self.page(uid) {
                Ok(page) => {
                    self.faults.remove(&uid);
                    self.add(&mut snapshot, uid, &page, now_ns);
                }
                Err(fault) => self.note_fault(uid, fault, now_ns),
            }
        }
        snapshot.programs.sort_by_key(|program| (program.first_ns, program.key));
        snapshot
    }

    /// A page that is not what it is to be for a second is told of: a new one is made in steps.
    fn note_fault(&mut self, uid: u32, fault: &'static str, now_ns: u64) {
        let (known, since_ns) = *self.faults.entry(uid).or_insert((fault, now_ns));
        if known != fault {
            self.faults.insert(uid, (fault, now_ns));
        } else if now_ns.saturating_sub(since_ns) > USERS_AGAIN_NS {
            self.tell(uid, fault);
        }
    }

    fn tell(&mut self, uid: u32, fault: &'static str) {
        if self.told.len() < MOST_NAMES && self.told.insert((uid, fault)) {
            self.remarks.push(format!("the page of programs of user {uid} {fault}: what it says counts for nothing"));
        }
    }

    /// What is to be told of pages since this was asked last.
    pub(crate) fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    /// Notes in `snapshot`, which was read before, when its programs were last at work. Some microseconds a user, of the first
    /// [`GLANCE_USERS`]; those of others are known by looks alone.
    pub(crate) fn note_last(&self, snapshot: &mut NodeSnapshot, now_ns: u64) {
        const PROGRAM: usize = size_of::<ProgramCell>();
        const FLIGHT: usize = size_of::<FlightCell>();
        let mut programs = vec![0; PROGRAM * MOST_PROGRAMS];
        let mut flights = vec![0; FLIGHT * MOST_FLIGHTS];
        for &uid in self.users.iter().take(GLANCE_USERS) {
            let Ok(file) = self.open(uid) else { continue };
            let mut magic = [0; 8];
            let parts = [
                (&mut magic[..], offset_of!(UsePage, magic)),
                (&mut programs[..], offset_of!(UsePage, programs)),
                (&mut flights[..], offset_of!(UsePage, flights)),
            ];
            let is_read = parts.into_iter().all(|(bytes, at)| read_all_at(&file, bytes, at as u64));
            if !is_read || u64::from_ne_bytes(magic) != USES_MAGIC {
                continue;
            }
            let words = flights.chunks_exact(FLIGHT);
            let words = words.map(|cell| {
                [offset_of!(FlightCell, word), offset_of!(FlightCell, since_ns)].map(|at| word_at(cell, at))
            });
            let in_flight = in_flight_by(words.map(|[word, since_ns]| (word, since_ns)), now_ns);
            for (cell, is_in_flight) in programs.chunks_exact(PROGRAM).zip(in_flight) {
                let key = ProgramKey(word_at(cell, offset_of!(ProgramCell, key)));
                let of_user = uid == 0 || Identified::user_of(key) == uid;
                if let Some(found) = snapshot.programs.iter_mut().find(|program| of_user && program.key == key) {
                    let last_ns = time(word_at(cell, offset_of!(ProgramCell, last_ns)), now_ns);
                    found.last_ns = found.last_ns.max(if is_in_flight { now_ns } else { last_ns });
                }
            }
        }
    }

    /// The page of user `uid`, if that is the user's; else what is wrong with it.
    fn open(&self, uid: u32) -> Result<File, &'static str> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let path = self.directory.join(uid.to_string());
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|_| UNREADABLE)?);
        let stat = file.metadata().map_err(|_| UNREADABLE)?;
        if !stat.is_file() || stat.uid() != uid {
            return Err("is no file of that user");
        }
        if stat.len() < size_of::<UsePage>() as u64 {
            return Err("is too short for this version");
        }
        Ok(file)
    }

    /// A copy of the page of user `uid`, if that is the user's; else what is wrong with it.
    fn page(&self, uid: u32) -> Result<Box<UsePage>, &'static str> {
        let file = self.open(uid)?;
        // SAFETY: the layout has a size; zeros are a value of atomics; the memory is the global allocator's, as a box's is.
        let mut page: Box<UsePage> = unsafe {
            let memory = std::alloc::alloc_zeroed(std::alloc::Layout::new::<UsePage>());
            (!memory.is_null()).then(|| Box::from_raw(memory.cast::<UsePage>())).ok_or(UNREADABLE)?
        };
        // SAFETY: the box is ours alone, and all bytes are a value of atomics.
        let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut *page).cast::<u8>(), size_of::<UsePage>()) };
        if !read_all_at(&file, bytes, 0) {
            return Err(UNREADABLE);
        }
        if word(&page.magic) == USES_MAGIC { Ok(page) } else { Err("is of another version, or no page") }
    }

    fn add(&self, snapshot: &mut NodeSnapshot, uid: u32, page: &UsePage, now_ns: u64) {
        snapshot.unplaced = snapshot.unplaced.saturating_add(word(&page.unplaced));
        for (server, cell) in page.servers.iter().enumerate().take(self.servers) {
            let requests = word(&cell.requests) as f64;
            if requests > 0.0
                && let Some(gap_bytes) = figure(&cell.gap_bytes, FULL_STROKE_BYTES)
            {
                snapshot.traffic[server].push(UserTraffic { requests, gap_bytes });
            }
        }
        let mut processes = [0_u32; MOST_PROGRAMS];
        for cell in &page.processes {
            let (of, last_ns) = (word(&cell.process), word(&cell.last_ns));
            if of != 0
                && now_ns.saturating_sub(last_ns) < PROCESS_NS
                && let Some(count) = processes.get_mut((of >> 32) as usize)
            {
                *count += 1;
            }
        }
        // A program whose request servers have is at work, however long they take for it.
        let flights = page.flights.iter().map(|cell| (word(&cell.word), word(&cell.since_ns)));
        let in_flight = in_flight_by(flights, now_ns);
        for (place, cell) in page.programs.iter().enumerate() {
            let key = ProgramKey(word(&cell.key));
            // Root's page has the programs of all that ask through root's mount; any other is one of its user alone.
            if key.0 == 0 || (uid != 0 && Identified::user_of(key) != uid) {
                continue;
            }
            let cells = || page.uses[place].iter().enumerate().take(self.servers);
            for (server, cell) in cells() {
                snapshot.served[server].add(ServerDone { requests: word(&cell.requests), bytes: word(&cell.bytes) });
            }
            let uses = cells().filter_map(|(server, cell)| use_of(server, cell));
            let mut found = traits_of(key, cell, processes[place], uses.collect(), now_ns);
            if in_flight[place] {
                found.last_ns = now_ns;
            }
            match snapshot.programs.iter_mut().find(|program| program.key == key) {
                // Some of its requests go through the mount, some past it.
                Some(program) => program.join(&found),
                None => snapshot.programs.push(found),
            }
        }
    }
}

/// Whether all of `bytes` could be read from `at` on.
fn read_all_at(file: &File, bytes: &mut [u8], at: u64) -> bool {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::pread(file.as_fd(), &mut bytes[filled..], at + filled as u64) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(count) if count > 0 => filled += count,
            _ => return false,
        }
    }
    true
}

fn use_of(server: usize, cell: &UseCell) -> Option<ServerUseBy> {
    // A gap needs two requests.
    if word(&cell.requests) < 2 {
        return None;
    }
    let reuse_ns = (word(&cell.has_reuse) > 0).then(|| figure(&cell.reuse_ns, MOST_NS)).flatten();
    Some(ServerUseBy {
        server: server as u32,
        gap_bytes: figure(&cell.gap_bytes, FULL_STROKE_BYTES)? as f32,
        reuse_ns: reuse_ns.map_or(f32::NAN, |reuse| reuse as f32),
    })
}

fn traits_of(
    key: ProgramKey,
    cell: &ProgramCell,
    processes: u32,
    uses: Vec<ServerUseBy>,
    now_ns: u64,
) -> ProgramTraits {
    let name: Vec<u8> = cell.name.iter().flat_map(|eight| word(eight).to_le_bytes()).collect();
    ProgramTraits {
        key,
        name: text_of(&name),
        uid: Identified::user_of(key),
        processes,
        files: word(&cell.files).count_ones(),
        first_ns: time(word(&cell.first_ns), now_ns),
        last_ns: time(word(&cell.last_ns), now_ns),
        requests: word(&cell.requests),
        bytes: word(&cell.bytes),
        held: word(&cell.held),
        waited_ns: word(&cell.waited_ns),
        in_turn: word(&cell.in_turn),
        unanswered: word(&cell.unanswered),
        overdue: word(&cell.overdue),
        burst_ns: time(word(&cell.burst_ns), now_ns),
        period_ns: (word(&cell.bursts) > 0).then(|| figure(&cell.period_ns, MOST_NS)).flatten(),
        uses,
    }
}
