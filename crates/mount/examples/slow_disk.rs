//! A disk of the benchmarks' own (`tests/common/slow_disk.rs`), as a FUSE file system over a directory.
//!
//! `cargo run --release -p stripewise-mount --example slow_disk -- disk|flash BELOW MOUNT`: mounts the directory BELOW on
//! MOUNT until its standard input ends.

#[path = "../tests/common/faulty.rs"]
#[expect(dead_code, reason = "nothing goes wrong here")]
mod faulty;
#[path = "../tests/common/slow_disk.rs"]
mod slow_disk;

use faulty::Faulty;
use slow_disk::{DEPTH, DISK, FLASH, SlowDisk};
use std::io::Read as _;
use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, below, mount] = &arguments[..] else { panic!("slow_disk disk|flash BELOW MOUNT") };
    let mechanics = match kind.as_str() {
        "disk" => DISK,
        "flash" => FLASH,
        other => panic!("{other}: disk or flash"),
    };
    let _mounted = Faulty::paced(Path::new(below), Path::new(mount), Box::new(SlowDisk::new(mechanics)), DEPTH);
    println!("mounted");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
