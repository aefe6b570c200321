//! Every way in alone, against the model; and a plain directory, which tries the model.

mod common;

use common::conforms;
use stripewise_conformance::world::Way;

#[test]
fn a_plain_directory_agrees_with_the_model() {
    conforms("bare", &[Way::Bare], 400);
}

#[test]
fn the_mount() {
    conforms("mount", &[Way::Mount(0)], 150);
}

#[test]
fn the_mount_without_passthrough() {
    conforms("longer", &[Way::Longer(0)], 150);
}

#[test]
fn the_mount_with_writeback_cache() {
    conforms("kept", &[Way::Kept(0)], 100);
}

#[test]
fn the_preload() {
    conforms("preload", &[Way::Preload(0)], 150);
}

#[test]
fn the_store() {
    conforms("store", &[Way::Store], 300);
}

#[test]
fn python() {
    conforms("python", &[Way::Python], 100);
}
