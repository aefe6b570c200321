//! [`Recorder`]: the file that one process appends its records to.
//!
//! It runs inside programs that were not made for it, in any thread and in signal handlers, so it takes no lock,
//! allocates nothing after its start, and makes no call by a name that the preload library wraps (only raw system
//! calls). The file is mapped once, far beyond its end, and grows under the mapping; its descriptor is not kept, for
//! the program may close any descriptor and get its number again.

use crate::format::{
    COMMAND_BYTES, HEADER_BYTES, KIND_PROCESS, MAGIC, NAME_MAX_BYTES, NAME_PART, NAME_PART_BYTES, PROCESS_FILE_SUFFIX,
    ProcessHeader, RECORD_BYTES, SHORT_TEXT_BYTES, VERSION, process_header_crc,
};
use crate::record::{Record, WrappedCall};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::cell::Cell;
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Address space for one process's file: 300 million records. Only what is used exists on disk and in memory.
const RESERVE_BYTES: usize = 16 << 30;
/// Under a limit on address space (`ulimit -v`), less: 19 million records.
const RESERVE_LIMITED_BYTES: usize = 1 << 30;
/// First size of a process's file, and least step of its growth.
const FIRST_STEP_BYTES: u64 = 64 << 10;
/// Greatest step of its growth.
const LAST_STEP_BYTES: u64 = 64 << 20;
/// Entries of the table of names: one per file that a process can tell apart.
const NAME_SLOTS: usize = 1 << 20;
/// How far a name is looked for from its place in the table.
const NAME_PROBES: usize = 128;
/// Longest path of a trace file, for the buffer that a growth builds it in.
const PATH_BYTES: usize = 4096;

/// Nanoseconds of `CLOCK_MONOTONIC`; about 25 ns (no system call).
#[inline]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// What a recorder says of its process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessInfo<'a> {
    /// Name of the program (the job): all its processes have the same.
    pub program: &'a [u8],
    /// Rank of the process in it.
    pub rank: u32,
    /// Command line, arguments separated by NUL bytes as in `/proc/self/cmdline`.
    pub command: &'a [u8],
}

thread_local! {
    /// Process and thread ids, asked for once per thread (and again in a forked child).
    static THREAD: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Appends the records of one process to its own file. Shared by all its threads. A forked child must not use its
/// parent's ([`Recorder::is_inherited`]) but make its own.
#[derive(Debug)]
pub struct Recorder {
    header: NonNull<ProcessHeader>,
    map_bytes: usize,
    max_slots: u64,
    /// One word that is 1 in the process that made the recorder and 0 in its forked children.
    own: NonNull<AtomicU32>,
    /// Hash of the name per file id less one; 0 is free.
    names: NonNull<AtomicU64>,
    pid: u32,
    rank: u32,
    identity: (u64, u64),
    path: [u8; PATH_BYTES],
    path_len: usize,
}

// SAFETY: all shared state behind the pointers is atomic, or slots that one thread owns by `fetch_add`.
unsafe impl Send for Recorder {}
// SAFETY: as above.
unsafe impl Sync for Recorder {}

impl Recorder {
    /// Starts a file `<host>.<pid>.<time>.process` in `dir`, which must exist.
    ///
    /// # Errors
    /// Whatever the system says on creating, growing or mapping the file.
    pub fn create(dir: &Path, info: &ProcessInfo<'_>) -> Result<Self, Errno> {
        let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
        let uname = rustix::system::uname();
        let host = uname.nodename().to_bytes();
        let start_ns = now_ns();

        let mut path = PathBuffer::new();
        path.push(dir.as_os_str().as_bytes())?;
        path.push(b"/")?;
        path.push(host)?;
        path.push(b".")?;
        path.push_number(u64::from(pid))?;
        path.push(b".")?;
        path.push_number(start_ns)?;
        path.push(PROCESS_FILE_SUFFIX.as_bytes())?;
        let mut unfinished = path;
        unfinished.push(b".new")?;

        let file = rustix::fs::openat(
            CWD,
            unfinished.bytes(),
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o644),
        )?;
        let made = Self::start(&file, path, pid, host, start_ns, info)
            .and_then(|recorder| rustix::fs::renameat(CWD, unfinished.bytes(), CWD, path.bytes()).map(|()| recorder));
        if made.is_err() {
            let _ = rustix::fs::unlinkat(CWD, unfinished.bytes(), AtFlags::empty());
        }
        made
    }

    fn start(
        file: &OwnedFd,
        path: PathBuffer,
        pid: u32,
        host: &[u8],
        start_ns: u64,
        info: &ProcessInfo<'_>,
    ) -> Result<Self, Errno> {
        grow_file(file, 0, FIRST_STEP_BYTES)?;
        let stat = rustix::fs::fstat(file)?;
        let limited = rustix::process::getrlimit(rustix::process::Resource::As).current.is_some();
        let mut map_bytes = if limited { RESERVE_LIMITED_BYTES } else { RESERVE_BYTES };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let map = loop {
            // SAFETY: a fresh mapping at an address that the kernel chooses.
            match unsafe { rustix::mm::mmap(ptr::null_mut(), map_bytes, protection, MapFlags::SHARED, file, 0) } {
                Ok(map) => break map,
                Err(_) if map_bytes as u64 > 4 * FIRST_STEP_BYTES => map_bytes /= 4,
                Err(error) => return Err(error),
            }
        };
        let header = NonNull::new(map.cast::<ProcessHeader>()).ok_or(Errno::NOMEM)?;
        // A core dump of the program should not hold its trace. Refusal changes nothing.
        // SAFETY: the range is the mapping just made.
        let _ = unsafe { rustix::mm::madvise(map, map_bytes, Advice::LinuxDontDump) };
        let (own, names) = match private_pages() {
            Ok(pages) => pages,
            Err(error) => {
                // SAFETY: nothing refers to the mapping yet.
                let _ = unsafe { rustix::mm::munmap(map, map_bytes) };
                return Err(error);
            }
        };
        let max_slots = ((map_bytes - HEADER_BYTES) / RECORD_BYTES) as u64;
        let real = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let wall_offset_ns =
            (real.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(real.tv_nsec)).wrapping_sub(now_ns() as i64);
        let parent_pid = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get() as u32);
        let mut first = ProcessHeader {
            magic: MAGIC,
            kind: KIND_PROCESS,
            version: VERSION,
            record_bytes: RECORD_BYTES as u32,
            rank: info.rank,
            pid,
            parent_pid,
            start_ns,
            wall_offset_ns,
            program_len: 0,
            host_len: 0,
            command_len: 0,
            crc: 0,
            next_slot: AtomicU64::new(0),
            capacity_slots: AtomicU64::new((FIRST_STEP_BYTES - HEADER_BYTES as u64) / RECORD_BYTES as u64),
            dropped: AtomicU64::new(0),
            names_dropped: AtomicU64::new(0),
            program: [0; SHORT_TEXT_BYTES],
            host: [0; SHORT_TEXT_BYTES],
            command: [0; COMMAND_BYTES],
        };
        first.program_len = put(&mut first.program, info.program);
        first.host_len = put(&mut first.host, host);
        first.command_len = put(&mut first.command, info.command);
        // SAFETY: the first page of the file exists and is mapped; no other thread knows of it yet. The check sum is
        // taken of the mapped page, whose bytes are all initialised (the file is zeros elsewhere).
        unsafe {
            header.as_ptr().write(first);
            let page = std::slice::from_raw_parts(map.cast::<u8>(), HEADER_BYTES);
            let crc = process_header_crc(page);
            (*header.as_ptr()).crc = crc;
        }
        Ok(Self {
            header,
            map_bytes,
            max_slots,
            own,
            names,
            pid,
            rank: info.rank,
            identity: (stat.st_dev, stat.st_ino),
            path: path.bytes,
            path_len: path.len,
        })
    }

    /// Whether this is a forked child's copy of its parent's recorder. One load.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        // SAFETY: the page lives as long as the recorder.
        unsafe { self.own.as_ref() }.load(Ordering::Relaxed) == 0
    }

    /// The file that records go to.
    pub fn path(&self) -> &[u8] {
        &self.path[..self.path_len]
    }

    /// The id of `path` in this recorder's file; the same for the same bytes. 0 when the table is full. Lock-free;
    /// a hash and, the first time, one slot for each 32 bytes of the name.
    pub fn file_id(&self, path: &[u8]) -> u32 {
        let path = &path[..path.len().min(NAME_MAX_BYTES)];
        let hash = hash(path);
        for probe in 0..NAME_PROBES {
            let at = (hash as usize).wrapping_add(probe) & (NAME_SLOTS - 1);
            // SAFETY: `at` is below NAME_SLOTS, the length of the table.
            let entry = unsafe { &*self.names.as_ptr().add(at) };
            let id = at as u32 + 1;
            match entry.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    self.write_name(id, path);
                    return id;
                }
                Err(found) if found == hash => return id,
                Err(_) => {}
            }
        }
        self.header().names_dropped.fetch_add(1, Ordering::Relaxed);
        0
    }

    /// Appends one record. Lock-free, no allocation, no system call except where the file grows; about 40 ns, and a
    /// page fault every 73 records. When the file cannot grow (disk full) the record is counted as dropped.
    #[inline]
    pub fn record(&self, entry: &WrappedCall) {
        let tid = self.thread();
        self.append(Record {
            offset: entry.offset,
            size: entry.size,
            start_ns: entry.start_ns,
            end_ns: entry.end_ns,
            file: entry.file,
            program: 0,
            rank: self.rank,
            pid: self.pid,
            tid,
            api: entry.api as u8,
            op: entry.op as u8,
            flags: entry.flags,
        });
    }

    fn header(&self) -> &ProcessHeader {
        // SAFETY: the first page stays mapped as long as the recorder lives; what changes in it is atomic.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    fn thread(&self) -> u32 {
        // `try_with` so that a destructor running after the thread's own data is gone still records.
        THREAD
            .try_with(|thread| {
                let (pid, tid) = thread.get();
                if pid == self.pid {
                    return tid;
                }
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                thread.set((self.pid, tid));
                tid
            })
            .unwrap_or(self.pid)
    }

    #[inline]
    fn append(&self, record: Record) {
        let header = self.header();
        let slot = header.next_slot.fetch_add(1, Ordering::Relaxed);
        if slot >= header.capacity_slots.load(Ordering::Acquire) && !self.grow(slot) {
            header.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let op = record.op;
        // SAFETY: the slot is below the capacity, so it is inside the mapping and inside the file; `fetch_add` gave
        // it to this call alone. The operation byte is stored after the rest, so a process killed in between leaves
        // an operation of 0.
        unsafe {
            let place = self.header.as_ptr().cast::<u8>().add(HEADER_BYTES + slot as usize * RECORD_BYTES);
            place.cast::<Record>().write(Record { op: 0, ..record });
            let op_at = place.add(std::mem::offset_of!(Record, op));
            AtomicU8::from_ptr(op_at).store(op, Ordering::Release);
        }
    }

    fn write_name(&self, id: u32, name: &[u8]) {
        // An empty name still needs its part, for the reader to know of it.
        let parts = name.len().div_ceil(NAME_PART_BYTES).max(1);
        for part in 0..parts {
            let bytes = &name[part * NAME_PART_BYTES..name.len().min((part + 1) * NAME_PART_BYTES)];
            let mut words = [[0_u8; 8]; 4];
            words.as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
            let [offset, size, start_ns, end_ns] = words.map(u64::from_le_bytes);
            self.append(Record {
                offset,
                size,
                start_ns,
                end_ns,
                file: id,
                program: name.len() as u32,
                op: NAME_PART,
                flags: part as u16,
                ..Record::default()
            });
        }
    }

    /// Makes room for `slot`. Any number of threads may do this at once: `fallocate` only ever extends.
    #[cold]
    fn grow(&self, slot: u64) -> bool {
        let header = self.header();
        if slot >= self.max_slots {
            return false;
        }
        let Ok(file) = rustix::fs::openat(CWD, self.path(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
            return false;
        };
        match rustix::fs::fstat(&file) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == self.identity => {}
            _ => return false,
        }
        loop {
            let capacity = header.capacity_slots.load(Ordering::Acquire);
            if slot < capacity {
                return true;
            }
            let bytes = HEADER_BYTES as u64 + capacity * RECORD_BYTES as u64;
            let step = (bytes / 2).clamp(FIRST_STEP_BYTES, LAST_STEP_BYTES);
            let grown = ((bytes + step - HEADER_BYTES as u64) / RECORD_BYTES as u64).min(self.max_slots);
            if grow_file(&file, bytes, HEADER_BYTES as u64 + grown * RECORD_BYTES as u64).is_err() {
                return false;
            }
            header.capacity_slots.fetch_max(grown, Ordering::AcqRel);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // SAFETY: all three mappings are this recorder's own and nothing refers to them any more.
        unsafe {
            let _ = rustix::mm::munmap(self.header.as_ptr().cast(), self.map_bytes);
            let _ = rustix::mm::munmap(self.own.as_ptr().cast(), OWN_BYTES);
            let _ = rustix::mm::munmap(self.names.as_ptr().cast(), NAME_SLOTS * 8);
        }
    }
}

const OWN_BYTES: usize = 4096;

/// The page that a fork wipes, and the table of names.
fn private_pages() -> Result<(NonNull<AtomicU32>, NonNull<AtomicU64>), Errno> {
    let map = |bytes: usize| {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses.
        unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }
    };
    let own: *mut c_void = map(OWN_BYTES)?;
    // SAFETY: the range is the mapping just made; wiping it in a child is what it is for.
    if let Err(error) = unsafe { rustix::mm::madvise(own, OWN_BYTES, Advice::LinuxWipeOnFork) } {
        // SAFETY: nothing refers to it yet.
        let _ = unsafe { rustix::mm::munmap(own, OWN_BYTES) };
        return Err(error);
    }
    let names = match map(NAME_SLOTS * 8) {
        Ok(names) => names,
        Err(error) => {
            // SAFETY: nothing refers to it yet.
            let _ = unsafe { rustix::mm::munmap(own, OWN_BYTES) };
            return Err(error);
        }
    };
    let own = NonNull::new(own.cast::<AtomicU32>()).ok_or(Errno::NOMEM)?;
    // SAFETY: just mapped, aligned to a page.
    unsafe { own.as_ref() }.store(1, Ordering::Relaxed);
    Ok((own, NonNull::new(names.cast::<AtomicU64>()).ok_or(Errno::NOMEM)?))
}

/// Extends `file` from `from` to `to` bytes, with its blocks, so that a full disk is an error here and not a SIGBUS in
/// the program. Never shortens it.
fn grow_file(file: &OwnedFd, from: u64, to: u64) -> Result<(), Errno> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), from, to - from) {
            Err(Errno::INTR) => {}
            // A file system without it: at the start the file is made as long as it can ever get, sparse.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                return if from == 0 { rustix::fs::ftruncate(file, RESERVE_BYTES as u64) } else { Ok(()) };
            }
            done => return done,
        }
    }
}

/// Copies as much of `text` as fits and returns its length.
fn put(place: &mut [u8], text: &[u8]) -> u32 {
    let len = text.len().min(place.len());
    place[..len].copy_from_slice(&text[..len]);
    len as u32
}

/// 64-bit hash of a path, never 0; 8 bytes a step. A collision gives two files one id: below 10^-7 for a million.
fn hash(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let mut state = SEED ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(word), 0xd6e8_feb8_6659_fd93) ^ state.rotate_left(23);
    }
    mix(state, SEED).max(1)
}

/// A path under construction, without allocation.
#[derive(Clone, Copy)]
struct PathBuffer {
    bytes: [u8; PATH_BYTES],
    len: usize,
}

impl PathBuffer {
    fn new() -> Self {
        Self { bytes: [0; PATH_BYTES], len: 0 }
    }

    fn push(&mut self, text: &[u8]) -> Result<(), Errno> {
        let place = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(Errno::NAMETOOLONG)?;
        place.copy_from_slice(text);
        self.len += text.len();
        Ok(())
    }

    fn push_number(&mut self, number: u64) -> Result<(), Errno> {
        let mut digits = [0_u8; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return self.push(&digits[at..]);
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
