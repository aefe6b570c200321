//! Requests that go past the mount pass the door that is installed in the preload.

mod common;

use common::{TestPool, example, python, succeeded};
use std::time::{Duration, Instant};

/// Requests that the preload serves, and others, which are the mount's.
const SCRIPT: &str = "
import os
os.chdir(os.environ['M'])
f = os.open('f', os.O_RDWR | os.O_CREAT)
assert os.pwrite(f, bytes(range(250)) * 40, 0) == 10000
os.fsync(f)
assert os.pread(f, 5000, 100) == (bytes(range(250)) * 40)[100:5100]
os.ftruncate(f, 5000)
assert os.read(f, 10000) == (bytes(range(250)) * 40)[:5000]
print(os.getpid())
";

#[test]
fn requests_past_the_mount_pass_the_gate_and_are_observed() {
    let pool = TestPool::new();
    let seen = pool.path("out/seen");
    let preload = format!("LD_PRELOAD={}", example("watched").display());
    let mut program = pool.command(false, &["env", &preload, python(), "-c", SCRIPT]);
    let begin = Instant::now();
    let process = succeeded(SCRIPT, &program.env("STRIPEWISE_TEST_WATCHED", &seen).output().unwrap());
    let process = process.trim();
    let mut requests = Vec::new();
    for line in std::fs::read_to_string(&seen).unwrap().lines() {
        match line.strip_prefix("server ") {
            // The parts of a request are served in any order.
            Some(part) => requests.last_mut().map(|(_, parts): &mut (_, Vec<_>)| parts.push(part.to_owned())).unwrap(),
            None => requests.push((line.to_owned(), Vec::new())),
        }
    }
    requests.iter_mut().for_each(|(_, parts)| parts.sort());
    let expected: [(&str, &[&str]); 3] = [
        ("Write 0 10000", &["0 Write 4096", "1 Write 4096", "2 Write 1808"]),
        ("Read 100 5000", &["0 Read 3996", "1 Read 1004"]),
        ("Read 0 10000", &["0 Read 4096", "1 Read 904"]),
    ];
    let expected = expected.map(|(request, parts)| {
        (format!("Preload {process} {request}"), parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>())
    });
    assert_eq!(requests, expected);
    assert!(begin.elapsed() >= 3 * Duration::from_millis(10));
}
