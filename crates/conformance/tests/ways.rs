//! Every way in alone, against the model; and a plain directory, which tries the model.

mod common;

use common::conforms;
use stripewise_conformance::world::AccessWay;

#[test]
fn a_plain_directory_agrees_with_the_model() {
    conforms("bare", &[AccessWay::Bare], 400);
}

#[test]
fn the_mount() {
    conforms("mount", &[AccessWay::Mount(0)], 150);
}

#[test]
fn the_mount_without_passthrough() {
    conforms("longer", &[AccessWay::Longer(0)], 150);
}

#[test]
fn the_mount_with_writeback_cache() {
    conforms("kept", &[AccessWay::Kept(0)], 100);
}

#[test]
fn the_preload() {
    conforms("preload", &[AccessWay::Preload(0)], 150);
}

#[test]
fn the_store() {
    conforms("store", &[AccessWay::Store], 300);
}

#[test]
fn python() {
    conforms("python", &[AccessWay::Python], 100);
}
