//! The preload's table of descriptors and its open files, under threads that open, duplicate, read and close.

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use stripewise_descriptors::{CountedFiles, DescriptorState, DescriptorTable, FileKey, Joined, Pin, Slots};

/// So few that files that have nothing to do with each other follow one another in them.
const SLOTS: usize = 2;
const THREADS: usize = 3;
/// Files on the disk.
const CONTENTS: u64 = 3;
const DESCRIPTORS: usize = 6;

/// Notes when it goes.
struct Open {
    content: u64,
    version: usize,
    gone: Arc<Mutex<Vec<bool>>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut gone = crate::lock(&self.gone);
        assert!(!gone[self.version], "a version was freed twice");
        gone[self.version] = true;
    }
}

/// The files of the process, and what becomes of its bypass.
struct Files {
    slots: Slots<Open, SLOTS>,
    /// The process was left to the mount.
    given_up: AtomicBool,
}

impl CountedFiles for Files {
    fn acquire(&self, slot: u16) -> bool {
        self.slots.acquire(slot)
    }

    fn release(&self, slot: u16) {
        self.slots.release(slot);
    }

    fn give_up(&self) {
        self.given_up.store(true, Relaxed);
    }
}

/// The kernel's side: which file a descriptor is.
struct Kernel {
    descriptors: Mutex<[Option<u64>; DESCRIPTORS]>,
    gone: Arc<Mutex<Vec<bool>>>,
}

impl Kernel {
    /// The lowest number that is free becomes a descriptor of `content`.
    fn open(&self, content: u64) -> Option<c_int> {
        let mut descriptors = crate::lock(&self.descriptors);
        let free = descriptors.iter().position(Option::is_none)?;
        descriptors[free] = Some(content);
        Some(free as c_int)
    }

    /// The highest number becomes a descriptor of what `fd` is; with that.
    fn copy(&self, fd: c_int) -> Option<(c_int, u64)> {
        let mut descriptors = crate::lock(&self.descriptors);
        let content = descriptors[fd as usize]?;
        descriptors[DESCRIPTORS - 1] = Some(content);
        Some((DESCRIPTORS as c_int - 1, content))
    }

    fn content(&self, fd: c_int) -> Option<u64> {
        crate::lock(&self.descriptors)[fd as usize]
    }

    fn close(&self, fd: c_int) {
        crate::lock(&self.descriptors)[fd as usize] = None;
    }

    fn version(&self, content: u64) -> Open {
        let mut gone = crate::lock(&self.gone);
        gone.push(false);
        Open { content, version: gone.len() - 1, gone: self.gone.clone() }
    }
}

/// A process with the library, and its kernel.
struct Process {
    kernel: Kernel,
    table: DescriptorTable<Files, DESCRIPTORS>,
}

impl Process {
    fn begin() -> Arc<Self> {
        let kernel = Kernel { descriptors: Mutex::new([None; DESCRIPTORS]), gone: Arc::default() };
        let files = Files { slots: Slots::new(), given_up: AtomicBool::new(false) };
        Arc::new(Self { kernel, table: DescriptorTable::new(files) })
    }

    fn slots(&self) -> &Slots<Open, SLOTS> {
        &self.table.files().slots
    }

    fn has_given_up(&self) -> bool {
        self.table.files().given_up.load(Relaxed)
    }

    /// Closes what is open; everything that was open must be gone then, and every place free.
    fn end(&self) {
        for fd in 0..DESCRIPTORS as c_int {
            self.close(fd);
        }
        assert!(crate::lock(&self.kernel.gone).iter().all(|gone| *gone), "a file stays open without a descriptor");
        for content in 0..SLOTS as u64 {
            let version = self.kernel.version(content);
            assert!(self.slots().enter(key(content), version).is_some(), "a slot was lost");
        }
        for slot in 0..SLOTS as u16 {
            self.slots().release(slot);
        }
    }

    /// What `open` of the preload does with a descriptor that has just come.
    fn enter(&self, fd: c_int) {
        let ticket = self.table.begin(fd);
        let slot = self.kernel.content(fd).and_then(|content| match self.slots().join(key(content)) {
            Joined::Slot(index) => Some(index),
            Joined::Off => None,
            Joined::No => self.slots().enter(key(content), self.kernel.version(content)),
        });
        self.table.finish(
            fd,
            ticket,
            slot.map_or(DescriptorState::NONE, |slot| DescriptorState::new(libc::O_RDWR, Some(slot), 0)),
        );
    }

    /// What `close` of the preload does.
    fn close(&self, fd: c_int) {
        self.table.forget(fd);
        self.kernel.close(fd);
    }

    /// What `read` of the preload does: the file that a request of `fd` is served from, past the mount.
    fn served(&self, fd: c_int) -> Option<u64> {
        let entry = self.table.get(fd);
        let pin = self.slots().pin(entry.slot()?)?;
        if self.table.get(fd) != entry {
            return None;
        }
        let file = pin.file().expect("a pinned slot has a file");
        let (content, version) = (file.content, file.version);
        assert_eq!(pin.key(), key(content), "a slot has another file's key");
        match thread_rng().gen_range(0..20) {
            0..6 => moved(&self.kernel, &pin, content),
            // The mount says that it alone may serve the file now.
            6 => pin.turn_off(),
            _ => {}
        }
        thread::yield_now();
        assert!(!crate::lock(&self.kernel.gone)[version], "a file was freed under a request");
        Some(content)
    }

    fn opens_reads_and_closes(&self) {
        let content = thread_rng().gen_range(0..CONTENTS);
        let Some(fd) = self.kernel.open(content) else { return };
        self.enter(fd);
        for _ in 0..2 {
            if let Some(found) = self.served(fd) {
                assert_eq!(found, content, "another file's bytes");
            }
            // Whatever is there; it must only not be freed meanwhile.
            self.served(thread_rng().gen_range(0..DESCRIPTORS as c_int));
        }
        let before = self.table.get(fd);
        let Some(copy) = self.kernel.open(content) else { return self.close(fd) };
        self.table.copy(fd, before, copy);
        self.close(fd);
        if let Some(found) = self.served(copy) {
            assert_eq!(found, content, "a copy has another file's bytes");
        }
        self.close(copy);
    }
}

fn key(content: u64) -> FileKey {
    FileKey { handle: content, owner: 0, inode: 0 }
}

/// The file was found to have another layout.
fn moved(kernel: &Kernel, pin: &Pin<'_, Open>, content: u64) {
    let known = pin.known();
    known.supersede(|| Some(kernel.version(content)));
    let file = known.file().expect("a file that is pinned has a version");
    assert!(!crate::lock(&kernel.gone)[file.version], "the version before was freed under a request");
}

/// Each thread opens, reads, duplicates and closes descriptors of its own, of files and numbers that all share; and looks
/// at the others' meanwhile, as programs with mistakes do.
///
/// # Panics
/// Bytes of another file are served, one is freed that is in use, or something is lost.
pub fn threads_with_descriptors_of_their_own() {
    let process = Process::begin();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let process = process.clone();
            thread::spawn(move || process.opens_reads_and_closes())
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread");
    }
    assert!(!process.has_given_up(), "a descriptor came whose number had an entry");
    for fd in 0..DESCRIPTORS as c_int {
        assert_eq!(process.table.get(fd), DescriptorState::NONE, "an entry outlived its descriptor");
    }
    process.end();
}

/// A descriptor is closed by another thread, which opens another file at its number, while it is being entered. If the
/// number has an entry then, which shows that a thread closed a descriptor of another, the mount serves the process
/// from then on.
///
/// # Panics
/// Bytes of another file are served, or a slot or a file is lost.
pub fn a_number_that_is_closed_while_it_is_entered() {
    let process = Process::begin();
    let fd = process.kernel.open(0).expect("a free number");
    let other = {
        let process = process.clone();
        thread::spawn(move || {
            process.close(fd);
            let fd = process.kernel.open(1).expect("a free number");
            process.enter(fd);
        })
    };
    process.enter(fd);
    other.join().expect("a thread");
    if let Some(found) = process.served(fd) {
        assert!(found == 1 || process.has_given_up(), "the file that had the number before");
    }
    process.end();
}

/// A descriptor is duplicated while another thread closes it and opens another file at its number: the copy has the file
/// that the kernel gave it, or no entry.
///
/// # Panics
/// It has another.
pub fn a_copy_of_a_number_that_changes() {
    let process = Process::begin();
    // The file stays open, so that an entry of it would be believed.
    let held = process.kernel.open(0).expect("a free number");
    let fd = process.kernel.open(0).expect("a free number");
    process.enter(held);
    process.enter(fd);
    let changing = {
        let process = process.clone();
        thread::spawn(move || {
            process.close(fd);
            let fd = process.kernel.open(1).expect("a free number");
            process.enter(fd);
        })
    };
    let before = process.table.get(fd);
    if let Some((copy, content)) = process.kernel.copy(fd) {
        process.table.copy(fd, before, copy);
        if let Some(found) = process.served(copy) {
            assert_eq!(found, content, "a copy has another file's bytes");
        }
    }
    changing.join().expect("a thread");
    process.end();
}
