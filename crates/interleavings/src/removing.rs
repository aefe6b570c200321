//! The mount's queue of files that have lost their last name.

use crate::pools::{TestPool, fill, has_datafiles, layout, make};
use rustix::fs::AtFlags;
use shuttle::thread;
use std::sync::Arc;
use stripewise_mount::parts::Removals;
use stripewise_store::Store;

const THREADS: usize = 3;
const EACH: usize = 2;

/// Threads remove files and wait until nothing is left; by then at least their own are collected.
///
/// # Panics
/// That is not so.
pub fn files_are_collected_before_the_end(pool: &TestPool) {
    let store = Store::open(pool.pool()).expect("a store");
    let removals = Arc::<Removals>::default();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let own: Vec<_> = (0..EACH)
                .map(|number| {
                    let name = format!("{thread}.{number}");
                    let (fd, inode) = make(&store, &name, &layout(0, 2));
                    fill(&inode, &[1; 40]);
                    rustix::fs::unlinkat(store.tree(), &name, AtFlags::empty()).expect("the name");
                    (rustix::fs::fstat(fd).expect("attributes"), inode)
                })
                .collect();
            let (removals, store) = (removals.clone(), store.clone());
            thread::spawn(move || {
                for (stat, inode) in &own {
                    assert!(has_datafiles(&store, inode), "a file has no datafiles before it is removed");
                    removals.add(&store, inode.clone(), stat, None);
                }
                removals.finish(&store);
                assert!(own.iter().all(|(_, inode)| !has_datafiles(&store, inode)), "a file is left at the end");
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread");
    }
    pool.assert_empty();
}
