//! The mount's queue of files that have lost their last name.

use crate::removals::Removals;
use crate::{Inode, Store, lock};
use shuttle::thread;
use std::sync::Arc;

const THREADS: usize = 3;
const EACH: usize = 2;

/// Threads remove files and wait until nothing is left; by then at least their own are collected, and none twice.
///
/// # Panics
/// That is not so.
pub fn files_are_collected_once_and_before_the_end() {
    let (removals, store) = (Arc::<Removals>::default(), Arc::<Store>::default());
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (removals, store) = (removals.clone(), store.clone());
            thread::spawn(move || {
                let own = thread * EACH..(thread + 1) * EACH;
                for number in own.clone() {
                    let stat = rustix::fs::stat("/").expect("attributes of anything");
                    removals.add(&store, Arc::new(Inode { number, ..Inode::default() }), &stat, None);
                }
                removals.finish();
                let collected = lock(&store.collected).clone();
                for number in own {
                    let times = collected.iter().filter(|collected| **collected == number).count();
                    assert_eq!(times, 1, "file {number} was collected {times} times before the end");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread");
    }
}
