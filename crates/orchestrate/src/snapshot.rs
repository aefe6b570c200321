//! What the pages of all users' programs say now. They are read, not mapped: a user could shorten its page, and kill a process
//! that maps it.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use stripewise_schedule::{FULL_STROKE_BYTES, ProgramKey, ProgramTraits, ServerUseBy, UserTraffic};

use crate::identity::Identified;
use crate::plan_page::text_of;
use crate::use_page::{MOST_PROGRAMS, PROGRAMS_DIRECTORY, ProgramCell, USES_MAGIC, UseCell, UsePage};

/// Users whose pages are read.
const MOST_USERS: usize = 256;
/// Names that are looked at for users' pages: any user of a shared pool can make names there.
const MOST_NAMES: usize = 1 << 16;
/// How often is looked for new users: once a second.
const USERS_AGAIN_NS: u64 = 1_000_000_000;
/// A process counts as one of its program's for this time after a request: 10 s.
const PROCESS_NS: u64 = 10_000_000_000;
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

/// A figure of a page within its bounds; `None` for what is no number.
fn figure(of: &AtomicU64, most: f64) -> Option<f64> {
    Some(f64::from_bits(word(of))).filter(|value| value.is_finite() && *value >= 0.0).map(|value| value.min(most))
}

impl PageReader {
    /// Of the pages below `directory`, a node's, of a pool of `servers` servers.
    pub(crate) fn new(directory: &Path, servers: usize) -> Self {
        Self { directory: directory.join(PROGRAMS_DIRECTORY), servers, users: Vec::new(), users_ns: None }
    }

    /// Looks which users have a page of their own; what another user has put there is none.
    fn find_users(&mut self, now_ns: u64) {
        if self.users_ns.is_some_and(|then_ns| now_ns.saturating_sub(then_ns) < USERS_AGAIN_NS) {
            return;
        }
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        let users = entries.flatten().take(MOST_NAMES).filter_map(|entry| {
            let uid = entry.file_name().to_str()?.parse::<u32>().ok()?;
            (entry.metadata().ok()?.uid() == uid).then_some(uid)
        });
        self.users = users.take(MOST_USERS).collect();
        // Until there is one, each look is for the first.
        self.users_ns = (!self.users.is_empty()).then_some(now_ns);
    }

    /// Reads all pages: some hundred microseconds a user. What cannot be read, or is no page, is left out.
    pub(crate) fn read(&mut self, now_ns: u64) -> NodeSnapshot {
        let served = vec![ServerDone::default(); self.servers];
        let mut snapshot = NodeSnapshot { traffic: vec![Vec::new(); self.servers], served, ..NodeSnapshot::default() };
        self.find_users(now_ns);
        for &uid in &self.users {
            if let Some(page) = self.page(uid) {
                self.add(&mut snapshot, uid, &page, now_ns);
            }
        }
        snapshot.programs.sort_by_key(|program| (program.first_ns, program.key));
        snapshot
    }

    /// A copy of the page of user `uid`, if that is the user's.
    fn page(&self, uid: u32) -> Option<Box<UsePage>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let path = self.directory.join(uid.to_string());
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let stat = file.metadata().ok()?;
        if !stat.is_file() || stat.uid() != uid || stat.len() < size_of::<UsePage>() as u64 {
            return None;
        }
        // SAFETY: the layout has a size; zeros are a value of atomics; the memory is the global allocator's, as a box's is.
        let mut page: Box<UsePage> = unsafe {
            let memory = std::alloc::alloc_zeroed(std::alloc::Layout::new::<UsePage>());
            (!memory.is_null()).then(|| Box::from_raw(memory.cast::<UsePage>()))?
        };
        // SAFETY: the box is ours alone, and all bytes are a value of atomics.
        let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut *page).cast::<u8>(), size_of::<UsePage>()) };
        let mut filled = 0;
        while filled < bytes.len() {
            let at = filled as u64;
            match read_at(&file, &mut bytes[filled..], at) {
                Some(count) if count > 0 => filled += count,
                _ => return None,
            }
        }
        (word(&page.magic) == USES_MAGIC).then_some(page)
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
            let found = traits_of(key, cell, processes[place], uses.collect(), now_ns);
            match snapshot.programs.iter_mut().find(|program| program.key == key) {
                // Some of its requests go through the mount, some past it.
                Some(program) => program.join(&found),
                None => snapshot.programs.push(found),
            }
        }
    }
}

fn read_at(file: &File, bytes: &mut [u8], at: u64) -> Option<usize> {
    loop {
        match rustix::io::pread(file.as_fd(), &mut *bytes, at) {
            Err(rustix::io::Errno::INTR) => {}
            done => return done.ok(),
        }
    }
}

fn use_of(server: usize, cell: &UseCell) -> Option<ServerUseBy> {
    // A gap needs two requests.
    if word(&cell.requests) < 2 {
        return None;
    }
    let reuse_ns = (word(&cell.reuses) > 0).then(|| figure(&cell.reuse_ns, MOST_NS)).flatten();
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
        first_ns: word(&cell.first_ns).min(now_ns),
        last_ns: word(&cell.last_ns).min(now_ns),
        requests: word(&cell.requests),
        bytes: word(&cell.bytes),
        held: word(&cell.held),
        waited_ns: word(&cell.waited_ns),
        in_turn: word(&cell.in_turn),
        unanswered: word(&cell.unanswered),
        overdue: word(&cell.overdue),
        period_ns: (word(&cell.bursts) > 0).then(|| figure(&cell.period_ns, MOST_NS)).flatten(),
        uses,
    }
}
