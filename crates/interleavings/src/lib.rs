//! Concurrent parts of the store, of the mount and of the preload library, with locks, atomics and threads of [`shuttle`], which
//! decides at each of them which thread goes on.
//!
//! They are the product's own modules, built with its feature `shuttle`. So this is a build of its own, and without the feature
//! there is nothing here. What is decided by the kernel, or by other processes, is not tried here but by the tests of whole
//! programs. Shuttle carries out every atomic operation as sequentially consistent: it finds wrong orders of steps, not
//! orderings that are too weak.

#![cfg(feature = "shuttle")]

pub mod ahead;
pub mod descriptors;
pub mod full_tier;
pub mod heads;
pub mod inodes;
pub mod opens;
pub mod placements;
pub mod pools;
pub mod removing;
pub mod serving;
pub mod writers;

use shuttle::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
