//! Ways in, alone and two at once, on small files while their threshold falls and rises: files that are open go to the servers and
//! come back between two operations, and new ones get what the threshold allows.

mod common;

use common::conforms;
use stripewise_conformance::world::AccessWay::{Longer, Mount, Preload, Python, Store};

/// Cases of each.
const CASES: u32 = 30;

#[test]
fn mount() {
    conforms("threshold-mount", &[Mount(0)], CASES);
}

#[test]
fn preload() {
    conforms("threshold-preload", &[Preload(0)], CASES);
}

#[test]
fn python() {
    conforms("threshold-python", &[Python], CASES);
}

#[test]
fn mount_and_store() {
    conforms("threshold-mount-store", &[Longer(0), Store], CASES);
}

#[test]
fn preload_and_python() {
    conforms("threshold-preload-python", &[Preload(0), Python], CASES);
}

#[test]
fn two_mounts() {
    conforms("threshold-mounts", &[Mount(0), Mount(1)], CASES);
}
