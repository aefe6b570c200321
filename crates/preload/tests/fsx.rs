//! fsx under the library: every kind of request on a file that lies over all servers, checked against what was written.

mod common;

use std::path::Path;

use common::TestPool;

#[test]
fn fsx_finds_what_it_wrote() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (fsx, config) = (root.join("target/suites/bin/fsx"), root.join("crates/mount/tests/suites/fsx.toml"));
    assert!(fsx.exists(), "this test needs {}: run `make suites`, which gets it", fsx.display());
    let factor: usize = std::env::var("STRIPEWISE_SUITES_FACTOR").map_or(1, |factor| factor.parse().unwrap());
    let pool = TestPool::new();
    for seed in 1..=factor {
        let (fsx, config) = (fsx.display(), config.display());
        pool.sh(&format!("{fsx} -q -f {config} -S {seed} -N 400 -P $OUT fsx{seed}"));
    }
}
