//! How a test tries ways in: the kept cases first, then cases drawn at random.

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stripewise_conformance::case::{Case, try_case};
use stripewise_conformance::generate::{Scope, cases};
use stripewise_conformance::world::{AccessWay, World};

/// Operations of a case, at most.
const STEPS: usize = 60;
/// Cases between two looks at the clock.
const BATCH: u32 = 20;

/// The kind of servers that the tests of this binary have.
const KIND: &str = match env!("CARGO_CRATE_NAME").as_bytes() {
    b"catalogue" => "catalogue",
    _ => "directory",
};

/// The hint of the directories that the tests of this binary work in.
const HINT: Option<&str> = match env!("CARGO_CRATE_NAME").as_bytes() {
    b"ahead" => Some("readahead=64K:2"),
    b"behind" => Some("writebehind=64K:60s"),
    b"direct" => Some("direct=4K"),
    b"threshold" => Some("small=64K"),
    _ => None,
};

/// Failures that were mended, as lists of operations.
fn kept() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut kept: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    kept.sort();
    kept
}

/// How long to try, if not the same cases each time.
fn duration() -> Option<Duration> {
    let text = std::env::var("STRIPEWISE_CONFORMANCE_SECONDS").ok()?;
    Some(Duration::from_secs(text.parse().expect("STRIPEWISE_CONFORMANCE_SECONDS is a number of seconds")))
}

/// A seed that no run before had.
fn chance() -> [u8; 32] {
    let mut seed = [0; 32];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    seed[..16].copy_from_slice(&now.to_le_bytes());
    seed[16..20].copy_from_slice(&std::process::id().to_le_bytes());
    seed
}

/// Tries `ways` at once, one agent each: the kept cases, then `count` drawn ones, the same each time. With
/// `STRIPEWISE_CONFORMANCE_SECONDS` other cases each time, for that many seconds. A case that fails is made as short as
/// it can be and written to a file.
pub fn conforms(name: &str, ways: &[AccessWay], count: u32) {
    let world = RefCell::new(World::new(ways, KIND, HINT));
    for path in kept() {
        let case = Case::load(&path).unwrap();
        try_case(&mut world.borrow_mut(), &case).unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
    }
    let end = duration().map(|duration| Instant::now() + duration);
    let config = Config {
        cases: if end.is_some() { BATCH } else { count },
        failure_persistence: None,
        max_shrink_iters: 5000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let rng = match end {
        Some(_) => TestRng::from_seed(RngAlgorithm::ChaCha, &chance()),
        None => TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let tried = Cell::new(0_u64);
    loop {
        let result = runner.run(&cases(Scope { agents: ways.len(), steps: STEPS }), |case| {
            tried.set(tried.get() + 1);
            try_case(&mut world.borrow_mut(), &case).map_err(TestCaseError::fail)
        });
        match result {
            Ok(()) => {}
            Err(TestError::Fail(wrong, case)) => {
                let text = case.to_text();
                let path = std::env::temp_dir().join(format!("stripewise-{name}-{}.json", std::process::id()));
                std::fs::write(&path, &text).unwrap();
                panic!("{wrong}\n{text}kept as {}: put it into crates/conformance/cases", path.display());
            }
            Err(TestError::Abort(why)) => panic!("{why}"),
        }
        if end.is_none_or(|end| Instant::now() > end) {
            eprintln!("{name}: {} cases", tried.get());
            if let Some((sent, returned)) = world.borrow().moved_by_threshold() {
                eprintln!("{name}: the threshold sent {sent} files to the servers and brought {returned} back");
                assert!(sent > 0 && returned > 0, "{name}: the threshold moved no file: nothing was tested");
            }
            return;
        }
    }
}
