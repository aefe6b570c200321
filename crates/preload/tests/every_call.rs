//! Every call that takes a descriptor or a path gives the right bytes on a placed file, under the library and without it.

mod common;

use common::{TestPool, compile, not_tried, succeeded, symbols};
use std::collections::BTreeSet;

/// What the program `source` has tried with success.
fn tried(pool: &TestPool, source: &str, preload: bool) -> BTreeSet<String> {
    let program = pool.path(source.trim_end_matches(".c"));
    if !program.exists() {
        compile(source, &program);
    }
    let (mount, out) = (pool.path("mnt").canonicalize().expect("a path"), pool.path("out"));
    let arguments = [&program, &mount, &out].map(|path| path.to_str().expect("text"));
    let output = pool.command(preload, &arguments).output().expect("the program");
    let output = succeeded(source, &output);
    output.lines().filter_map(|line| line.strip_prefix("ok ")).map(str::to_owned).collect()
}

#[test]
fn every_call_gives_the_right_bytes() {
    let pool = TestPool::new();
    let mut done = BTreeSet::new();
    for preload in [false, true] {
        done = tried(&pool, "every_call.c", preload);
        done.append(&mut tried(&pool, "every_other.c", preload));
    }
    let classes = symbols();
    let lists = classes.iter().filter(|(class, _)| *class != "no-descriptor");
    let all: BTreeSet<String> = lists.flat_map(|(_, names)| names.iter().cloned()).collect();
    let excused: Vec<String> = not_tried().into_values().flatten().collect();
    let missing: Vec<_> = all.iter().filter(|name| !done.contains(*name) && !excused.contains(name)).collect();
    assert!(missing.is_empty(), "neither tried by a program nor in [not-tried] of symbols.toml: {missing:?}");
    let stale: Vec<_> = excused.iter().filter(|name| done.contains(*name) || !all.contains(*name)).collect();
    assert!(stale.is_empty(), "in [not-tried] of symbols.toml, but tried or in no list that takes a file: {stale:?}");
}
