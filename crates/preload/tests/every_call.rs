//! Every call that can touch a file's bytes gives the right ones on a placed file, under the library and without it.

mod common;

use common::{TestPool, compile, succeeded, symbols};
use std::collections::BTreeSet;

/// Functions of the lists that `every_call.c` cannot use: they need no file, or cannot be told apart from another.
const NOT_TRIED: [&str; 4] = ["closedir", "_IO_file_close_it", "_IO_file_finish", "fcloseall"];

#[test]
fn every_call_gives_the_right_bytes() {
    let pool = TestPool::new();
    let program = pool.path("every_call");
    compile("every_call.c", &program);
    let program = program.to_str().expect("text");
    let (mount, out) = (pool.path("mnt"), pool.path("out"));
    let arguments = [program, mount.to_str().expect("text"), out.to_str().expect("text")];
    for preload in [false, true] {
        let output = pool.command(preload, &arguments).output().expect("the program");
        let tried = succeeded("every_call", &output);
        let tried: BTreeSet<&str> = tried.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
        for class in ["wrapped-bypass", "closes-descriptor"] {
            let names = &symbols()[class];
            let missing: Vec<&String> = names
                .iter()
                .filter(|name| !tried.contains(name.as_str()) && !NOT_TRIED.contains(&name.as_str()))
                .collect();
            assert!(missing.is_empty(), "{class} functions that every_call.c does not try: {missing:?}");
        }
    }
}
