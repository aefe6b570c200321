//! What the modules under test refer to, as far as the scenarios need it.

use crate::sync::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::sync::PoisonError;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub mod log {
    pub fn error(text: &str) {
        panic!("{text}");
    }
}

/// Of the mount: what all opens of an inode share.
pub mod file {
    #[derive(Debug)]
    pub struct Shared;
}

/// Of the mount: what its threads share.
pub mod fs {
    use crate::inode::Table;

    pub struct Core {
        pub table: Table,
    }
}

/// Of the preload: the files behind the entries of its table.
pub mod placed {
    use crate::descriptors::FILES;

    pub fn acquire(slot: u16) -> bool {
        FILES.with(|files| files.acquire(slot))
    }

    pub fn release(slot: u16) {
        FILES.with(|files| files.release(slot));
    }
}

/// Of the preload.
pub mod runtime {
    use crate::descriptors::GIVEN_UP;
    use std::sync::atomic::Ordering::Relaxed;

    /// A descriptor came whose number had an entry.
    pub fn give_up_bypass() {
        GIVEN_UP.store(true, Relaxed);
    }
}

/// Of the store: a file without a name.
#[derive(Debug)]
pub struct Inode {
    pub number: usize,
}

impl Inode {
    pub fn sync_inode(&self) -> Result<(), Errno> {
        shuttle::thread::yield_now();
        Ok(())
    }
}

/// Of the store: notes what is collected.
#[derive(Debug, Default)]
pub struct Store {
    pub collected: Mutex<Vec<usize>>,
}

impl Store {
    pub fn collect(&self, inode: &Inode) -> Result<bool, Errno> {
        shuttle::thread::yield_now();
        lock(&self.collected).push(inode.number);
        Ok(true)
    }
}
