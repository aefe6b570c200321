//! Ways in on files whose requests leave nothing in page caches, beside ways that the kernel keeps pages for. Where the file system
//! of the servers has no such requests, they are served as without the hint.

mod common;

use common::conforms;
use stripewise_conformance::world::AccessWay::{Longer, Mount, Preload, Python, Store};

/// Cases of each: those of other files try what this hint does not change.
const CASES: u32 = 6;

#[test]
fn mount_twice() {
    conforms("direct-mount", &[Longer(0), Longer(0)], CASES);
}

#[test]
fn mount_and_preload() {
    conforms("direct-mount-preload", &[Mount(0), Preload(0)], CASES);
}

#[test]
fn two_mounts() {
    conforms("direct-two-mounts", &[Mount(0), Mount(1)], CASES);
}

#[test]
fn store_and_python() {
    conforms("direct-store-python", &[Store, Python], CASES);
}
