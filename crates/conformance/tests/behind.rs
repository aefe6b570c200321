//! Ways in on files whose small writes are gathered. One process sees what it has gathered, by each of its ways; a second process
//! would see it only after a sync or a close, so that no two ways of two processes are tried at once.

mod common;

use common::conforms;
use stripewise_conformance::world::AccessWay::{Longer, Mount, Preload, Python, Store};

/// Cases of each: those of other files try what this hint does not change.
const CASES: u32 = 6;

#[test]
fn mount_twice() {
    conforms("behind-mount", &[Longer(0), Longer(0)], CASES);
}

#[test]
fn mount_and_preload() {
    conforms("behind-mount-preload", &[Mount(0), Preload(0)], CASES);
}

#[test]
fn store() {
    conforms("behind-store", &[Store], CASES);
}

#[test]
fn python() {
    conforms("behind-python", &[Python], CASES);
}
