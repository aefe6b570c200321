//! Ways in, alone and two at once, over servers of another kind than directories: the store asks of a server what every
//! backend can give.
#![cfg(debug_assertions)]

mod common;

use common::conforms;
use stripewise_conformance::world::AccessWay::{Longer, Mount, Preload, Store};

/// Cases of each.
const CASES: u32 = 40;

#[test]
fn the_store() {
    conforms("catalogue-store", &[Store], CASES);
}

#[test]
fn mount_and_store() {
    conforms("catalogue-mount-store", &[Mount(0), Store], CASES);
}

#[test]
fn mount_and_preload() {
    conforms("catalogue-mount-preload", &[Mount(0), Preload(0)], CASES);
}

#[test]
fn two_mounts_one_without_passthrough() {
    conforms("catalogue-mounts", &[Mount(0), Longer(1)], CASES);
}
