//! The preload's table of descriptors and its open files, under threads that open, duplicate, read and close.

use crate::slots::{FileKey, Joined, Pin, Slots};
use crate::sync::Mutex;
use crate::table::{self, DescriptorState};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// So few that files that have nothing to do with each other follow one another in them.
const SLOTS: usize = 2;
const THREADS: usize = 3;
/// Files on the disk.
const CONTENTS: u64 = 3;
const DESCRIPTORS: c_int = 6;

/// Notes when it goes.
pub(crate) struct Open {
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

pub(crate) type Files = Slots<Open, SLOTS>;

/// Those of the execution that is under way. Executions follow one another on one thread of the system.
pub(crate) struct Current(std::sync::Mutex<Option<Arc<Files>>>);

pub(crate) static FILES: Current = Current(std::sync::Mutex::new(None));

impl Current {
    fn get(&self) -> Arc<Files> {
        self.0.lock().expect("no thread panics with it").clone().expect("an execution is under way")
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&Files) -> T) -> T {
        f(&self.get())
    }
}

/// The process was left to the mount.
pub(crate) static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// The kernel's side: which file a descriptor is.
struct Kernel {
    descriptors: Mutex<[Option<u64>; DESCRIPTORS as usize]>,
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
        descriptors[DESCRIPTORS as usize - 1] = Some(content);
        Some((DESCRIPTORS - 1, content))
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

/// What is set up for an execution of a scenario, and taken away after it.
struct Execution {
    kernel: Arc<Kernel>,
}

impl Execution {
    fn begin() -> Self {
        *FILES.0.lock().expect("no thread panics with it") = Some(Arc::new(Slots::new()));
        GIVEN_UP.store(false, Relaxed);
        for fd in 0..DESCRIPTORS {
            table::forget(fd);
        }
        let descriptors = Mutex::new([None; DESCRIPTORS as usize]);
        Self { kernel: Arc::new(Kernel { descriptors, gone: Arc::default() }) }
    }

    /// Closes what is open; everything that was open must be gone then, and every place free.
    fn end(self) {
        for fd in 0..DESCRIPTORS {
            close(&self.kernel, fd);
        }
        assert!(crate::lock(&self.kernel.gone).iter().all(|gone| *gone), "a file stays open without a descriptor");
        for content in 0..SLOTS as u64 {
            let version = self.kernel.version(content);
            assert!(FILES.get().enter(key(content), version).is_some(), "a slot was lost");
        }
        for slot in 0..SLOTS as u16 {
            FILES.get().release(slot);
        }
        *FILES.0.lock().expect("no thread panics with it") = None;
    }
}

fn key(content: u64) -> FileKey {
    FileKey { handle: content, owner: 0, inode: 0 }
}

/// What `open` of the preload does with a descriptor that has just come.
fn enter(kernel: &Kernel, fd: c_int) {
    let ticket = table::begin(fd);
    let slot = kernel.content(fd).and_then(|content| match FILES.get().join(key(content)) {
        Joined::Slot(index) => Some(index),
        Joined::Off => None,
        Joined::No => FILES.get().enter(key(content), kernel.version(content)),
    });
    table::finish(
        fd,
        ticket,
        slot.map_or(DescriptorState::NONE, |slot| DescriptorState::new(libc::O_RDWR, Some(slot), 0)),
    );
}

/// What `close` of the preload does.
fn close(kernel: &Kernel, fd: c_int) {
    table::forget(fd);
    kernel.close(fd);
}

/// What `read` of the preload does: the file that a request of `fd` is served from, past the mount.
fn served(kernel: &Kernel, fd: c_int) -> Option<u64> {
    let entry = table::get(fd);
    let files = FILES.get();
    let pin = files.pin(entry.slot()?)?;
    if table::get(fd) != entry {
        return None;
    }
    let file = pin.file().expect("a pinned slot has a file");
    let (content, version) = (file.content, file.version);
    assert_eq!(pin.key(), key(content), "a slot has another file's key");
    match thread_rng().gen_range(0..20) {
        0..6 => moved(kernel, &pin, content),
        // The mount says that it alone may serve the file now.
        6 => pin.turn_off(),
        _ => {}
    }
    thread::yield_now();
    assert!(!crate::lock(&kernel.gone)[version], "a file was freed under a request");
    Some(content)
}

/// The file was found to have another layout.
fn moved(kernel: &Kernel, pin: &Pin<'_, Open>, content: u64) {
    let known = pin.known();
    known.supersede(|| Some(kernel.version(content)));
    let file = known.file().expect("a file that is pinned has a version");
    assert!(!crate::lock(&kernel.gone)[file.version], "the version before was freed under a request");
}

/// Each thread opens, reads, duplicates and closes descriptors of its own, of files and numbers that all share; and
/// looks at the others' meanwhile, as programs with mistakes do.
///
/// # Panics
/// Bytes of another file are served, one is freed that is in use, or something is lost.
pub fn threads_with_descriptors_of_their_own() {
    let execution = Execution::begin();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let kernel = execution.kernel.clone();
            thread::spawn(move || opens_reads_and_closes(&kernel))
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread");
    }
    assert!(!GIVEN_UP.load(Relaxed), "a descriptor came whose number had an entry");
    for fd in 0..DESCRIPTORS {
        assert_eq!(table::get(fd), DescriptorState::NONE, "an entry outlived its descriptor");
    }
    execution.end();
}

/// A descriptor is closed by another thread, which opens another file at its number, while it is being entered. If the
/// number has an entry then, which shows a close of a descriptor that was not the closer's own, the mount serves the
/// process from then on.
///
/// # Panics
/// Bytes of another file are served, or a slot or a file is lost.
pub fn a_number_that_is_closed_while_it_is_entered() {
    let execution = Execution::begin();
    let kernel = &execution.kernel;
    let fd = kernel.open(0).expect("a free number");
    let other = {
        let kernel = kernel.clone();
        thread::spawn(move || {
            close(&kernel, fd);
            let fd = kernel.open(1).expect("a free number");
            enter(&kernel, fd);
        })
    };
    enter(kernel, fd);
    other.join().expect("a thread");
    if let Some(found) = served(kernel, fd) {
        assert!(found == 1 || GIVEN_UP.load(Relaxed), "the file that had the number before");
    }
    execution.end();
}

fn opens_reads_and_closes(kernel: &Kernel) {
    let content = thread_rng().gen_range(0..CONTENTS);
    let Some(fd) = kernel.open(content) else { return };
    enter(kernel, fd);
    for _ in 0..2 {
        if let Some(found) = served(kernel, fd) {
            assert_eq!(found, content, "another file's bytes");
        }
        // Whatever is there; it must only not be freed meanwhile.
        served(kernel, thread_rng().gen_range(0..DESCRIPTORS));
    }
    let before = table::get(fd);
    let Some(copy) = kernel.open(content) else { return close(kernel, fd) };
    table::copy(fd, before, copy);
    close(kernel, fd);
    if let Some(found) = served(kernel, copy) {
        assert_eq!(found, content, "a copy has another file's bytes");
    }
    close(kernel, copy);
}

/// A descriptor is duplicated while another thread closes it and opens another file at its number: the copy has the
/// file that the kernel gave it, or no entry.
///
/// # Panics
/// It has another.
pub fn a_copy_of_a_number_that_changes() {
    let execution = Execution::begin();
    let kernel = &execution.kernel;
    // The file stays open, so that an entry of it would be believed.
    let held = kernel.open(0).expect("a free number");
    let fd = kernel.open(0).expect("a free number");
    enter(kernel, held);
    enter(kernel, fd);
    let changing = {
        let kernel = kernel.clone();
        thread::spawn(move || {
            close(&kernel, fd);
            let fd = kernel.open(1).expect("a free number");
            enter(&kernel, fd);
        })
    };
    let before = table::get(fd);
    if let Some((copy, content)) = kernel.copy(fd) {
        table::copy(fd, before, copy);
        if let Some(found) = served(kernel, copy) {
            assert_eq!(found, content, "a copy has another file's bytes");
        }
    }
    changing.join().expect("a thread");
    execution.end();
}
