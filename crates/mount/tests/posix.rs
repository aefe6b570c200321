//! The mount answers system calls as the file system under its namespace does: the same cases on both, compared.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Mounted, TestPool, need, succeeded};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/posix/cases.py");
const EXCLUSIONS: &str = include_str!("posix/exclusions.txt");

fn cases(dir: &Path, section: &str) -> Output {
    fs::create_dir(dir).unwrap();
    Command::new("python3").args(["-B", CASES, section]).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

/// Why a case may be answered otherwise; `None` if it may not.
fn excluded(case: &str) -> Option<&'static str> {
    let lines = EXCLUSIONS.lines().filter(|line| !line.starts_with('#'));
    let mut entries = lines.filter_map(|line| line.split_once('\t'));
    entries.find(|(beginning, _)| case.starts_with(beginning)).map(|(_, why)| why)
}

/// Runs one section of the cases on the local directory that the pool's names lie in, and on the pool.
fn section_is_answered_alike(section: &str, at_least: usize) {
    need("python3");
    assert!(rustix::process::geteuid().is_root(), "this test acts as several users: run it as root");
    let pool = TestPool::new();
    let mounted = Mounted::new(&pool, "mnt", "dev,suid");
    for path in [pool.path("."), pool.path("out")] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let bare = succeeded("the cases on the namespace's file system", &cases(&pool.path("out/cases"), section));
    let ours = succeeded("the cases on the mount", &cases(&mounted.path("cases"), section));
    assert!(bare.lines().count() >= at_least, "{} cases only", bare.lines().count());
    assert_eq!(bare.lines().count(), ours.lines().count());
    let different: Vec<_> = bare.lines().zip(ours.lines()).filter(|(bare, ours)| bare != ours).collect();
    let wrong: Vec<_> = different.iter().filter(|(bare, _)| excluded(bare).is_none()).collect();
    assert!(wrong.is_empty(), "{} cases differ; the namespace's file system, then the mount: {wrong:#?}", wrong.len());
}

#[test]
fn every_call_on_every_shape_of_path() {
    section_is_answered_alike("paths", 1800);
}

#[test]
fn every_call_on_every_kind_of_file() {
    section_is_answered_alike("kinds", 1000);
}

#[test]
fn rights_of_several_users() {
    section_is_answered_alike("rights", 700);
}

#[test]
fn times_that_calls_change() {
    section_is_answered_alike("times", 21);
}

#[test]
fn access_control_lists() {
    section_is_answered_alike("lists", 100);
}

#[test]
fn contents_up_to_the_largest_offset() {
    section_is_answered_alike("contents", 400);
}

#[test]
fn calls_that_no_other_section_has() {
    section_is_answered_alike("others", 190);
}

/// An exclusion that excludes nothing hides what comes later.
#[test]
fn every_exclusion_has_a_reason() {
    for line in EXCLUSIONS.lines().filter(|line| !line.starts_with('#')) {
        let (case, why) = line.split_once('\t').unwrap_or((line, ""));
        assert!(case.len() > 5 && why.len() > 20, "{line:?} should be the beginning of a case, a tab, a reason");
    }
}
