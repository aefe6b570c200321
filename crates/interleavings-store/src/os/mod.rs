//! As `os` of the store, with what shuttle decides about in place of locks, atomics and byte locks.

pub(crate) mod byte_lock;
#[path = "../../../store/src/os/error.rs"]
pub mod error;
#[path = "../../../store/src/os/room.rs"]
pub(crate) mod room;
#[path = "../../../store/src/os/shared_pages.rs"]
pub(crate) mod shared_pages;
#[path = "../../../store/src/os/sys.rs"]
pub(crate) mod sys;

pub(crate) mod sync {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, atomic};
    use std::sync::PoisonError;

    /// As the store's own.
    pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In memory that processes share, where shuttle's cannot lie.
    pub(crate) mod mapped {
        use crate::system_calls::switch;
        use std::sync::atomic::Ordering;

        #[derive(Debug)]
        #[repr(transparent)]
        pub(crate) struct AtomicU32(std::sync::atomic::AtomicU32);

        impl AtomicU32 {
            pub(crate) fn load(&self, order: Ordering) -> u32 {
                switch();
                self.0.load(order)
            }

            pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
                switch();
                self.0.fetch_add(value, order)
            }
        }
    }
}
