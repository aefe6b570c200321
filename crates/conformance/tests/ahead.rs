//! Ways in, two at once, on files that are read ahead: what was fetched before a write is not read after it.

mod common;

use common::conforms;
use stripewise_conformance::world::AccessWay::{Longer, Mount, Preload, Python, Store};

/// Cases of each.
const CASES: u32 = 20;

#[test]
fn mount_and_store() {
    conforms("ahead-mount-store", &[Longer(0), Store], CASES);
}

#[test]
fn mount_and_preload() {
    conforms("ahead-mount-preload", &[Mount(0), Preload(0)], CASES);
}

#[test]
fn store_and_python() {
    conforms("ahead-store-python", &[Store, Python], CASES);
}

#[test]
fn two_mounts() {
    conforms("ahead-mounts", &[Mount(0), Mount(1)], CASES);
}
