//! The mount's table of inodes, under lookups and forgets at once.

use crate::lock;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use stripewise_mount::parts::{InodeRoom, Node, ROOT_INO, Table};

const NAMES: [&str; 2] = ["a", "b"];
const THREADS: usize = 3;

/// Puts the files that the scenario looks for into a directory.
///
/// # Panics
/// They cannot be made.
pub fn prepare(directory: &Path) {
    for name in NAMES {
        File::create(directory.join(name)).expect("a file");
    }
}

/// Each thread looks names up and gives its references back. As long as it has one, the number leads to the node that
/// it was told of, which all references share; when all are given back, nothing is left.
///
/// # Panics
/// That is not so.
pub fn lookups_and_forgets(directory: &Path) {
    let tree = File::open(directory).expect("the directory");
    let table = Arc::new(Table::new(tree.as_fd(), InodeRoom::new(8)).expect("a table"));
    let held: Arc<Mutex<Vec<Arc<Node>>>> = Arc::default();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (table, held) = (table.clone(), held.clone());
            thread::spawn(move || looks_up_and_forgets(&table, &held))
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread");
    }
    assert!(table.all().is_empty(), "inodes are kept that the kernel has forgotten");
    assert_eq!(table.room.known(), 0, "the number of inodes is wrong");
}

fn looks_up_and_forgets(table: &Table, held: &Mutex<Vec<Arc<Node>>>) {
    let root = table.get(ROOT_INO).expect("the root");
    for _ in 0..2 {
        let name = OsStr::new(NAMES[thread_rng().gen_range(0..NAMES.len())]);
        let times = thread_rng().gen_range(1..3);
        let (node, _) = table.lookup(&root, name).expect("a file");
        for _ in 1..times {
            let (again, _) = table.lookup(&root, name).expect("a file");
            assert!(Arc::ptr_eq(&node, &again), "an inode that is known has two nodes");
        }
        lock(held).push(node.clone());
        if thread_rng().gen_bool(0.3) {
            assert!(table.oldest(1000).len() <= NAMES.len());
        }
        let found = table.get(node.ino).expect("a number that the kernel knows leads to its node");
        assert!(Arc::ptr_eq(&found, &node), "a number leads to another node than its holder was told of");
        for other in lock(held).iter().filter(|other| other.ino == node.ino) {
            assert!(Arc::ptr_eq(other, &node), "two holders of a number have different nodes");
        }
        let mut holders = lock(held);
        let own = holders.iter().position(|other| Arc::ptr_eq(other, &node)).expect("our own");
        holders.swap_remove(own);
        drop(holders);
        table.forget(node.ino, times);
    }
}
