//! Crashes: the real mount, killed before each of its system calls in turn, and at random; and power cuts, in which
//! what was not synced is dropped and reordered.
//!
//! `make test` tries a part of the programs by chance and of the power cuts, `make test-all` more of them.
//!
//! The long run: `STRIPEWISE_CRASH_RUNS=5000 cargo test --release -p stripewise-mount --test crash -- --nocapture`.
//! A failure prints the script, the fault point and the state of the disks. What `random-17` did is done again by
//! `STRIPEWISE_CRASH_SEED=17`; so it is with `small-17`.

mod check;
mod disk;
mod effect;
mod menders;
mod run;
mod script;
mod scripts;
mod trace;

use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use menders::{checks_cut_off, checks_killed_at_points, inits_killed_at_points};
use run::{Bench, Cut, Tried, Way, kill_at_points, kill_at_random, power_cuts};

/// The other side of every run: performs a script in a process of its own.
#[test]
fn performs_a_script_for_another_test() {
    let path = |variable: &str| PathBuf::from(std::env::var_os(variable).expect("set together with the script"));
    if let Some(agent) = std::env::var_os(menders::AGENT) {
        menders::perform(&agent.to_string_lossy(), &path(menders::BASE));
        std::process::exit(0);
    }
    let Some(name) = std::env::var_os(run::SCRIPT) else { return };
    let other = std::env::var_os(run::OTHER_MOUNT).map(PathBuf::from);
    let script = run::script(&name.to_string_lossy());
    script::perform(&script, &path(run::POOL), &path(run::MOUNT), other.as_deref());
    // Without the test runner's own way out, whose system calls are not part of the test.
    std::process::exit(0);
}

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |value| value.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// `make test` tries this part of what `make test-all` and continuous integration try.
const QUICK_PART: u64 = 4;

/// How often a test repeats what `make test-all` repeats `usual` times.
fn runs(usual: u64) -> u64 {
    let is_thorough = std::env::var_os("STRIPEWISE_LONG_TESTS").is_some();
    number("STRIPEWISE_CRASH_RUNS", if is_thorough { usual } else { usual.div_ceil(QUICK_PART) })
}

/// Programs by chance of a kind, `random` or `small`, each with its seed.
fn by_chance(kind: &str, count: u64) -> impl Iterator<Item = script::Script> {
    let first = number("STRIPEWISE_CRASH_SEED", 1);
    (first..first + count).map(move |seed| run::script(&format!("{kind}-{seed}")))
}

/// The distance between two fault points that are tried: all of them are several minutes of work for a small machine.
fn stride(usual: usize) -> usize {
    if std::env::var_os("STRIPEWISE_CRASH_RUNS").is_some() { 1 } else { usual }
}

/// Tries each of the scripts, as many side by side as there are processors: a run waits for processes that begin and end. What was found
/// wrong.
fn side_by_side(scripts: &[script::Script], try_one: impl Fn(&script::Script) -> Vec<String> + Sync) -> Vec<String> {
    let left = Mutex::new(scripts.iter());
    let next = || left.lock().expect("no thread panics with it").next();
    let all_its = || std::iter::from_fn(next).flat_map(&try_one).collect::<Vec<_>>();
    thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(all_its)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[test]
fn killed_before_every_system_call_of_every_operation() {
    let problems = side_by_side(&scripts::all(), |script| kill_at_points(script, Way::Mount, stride(4)));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_program_that_is_killed_while_it_writes_past_the_mount() {
    let problems = kill_at_points(&scripts::past_the_mount(), Way::Preload, stride(4));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn one_of_two_mounts_is_killed() {
    let problems = kill_at_points(&scripts::through_two_mounts(), Way::TwoMounts, stride(7));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn killed_at_random_in_programs_by_chance() {
    let mut tried = Tried::default();
    let problems: Vec<_> =
        by_chance("random", runs(8)).flat_map(|script| kill_at_random(&script, 6, &mut tried)).collect();
    tried.must_mean_something("programs by chance", &problems);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn after_a_power_cut_what_was_synced_is_there() {
    let cut_and_check = |script: &script::Script| {
        let mut cut = Cut::default();
        let problems = power_cuts(script, runs(30), &mut cut);
        cut.must_mean_something(&script.name, &problems);
        problems
    };
    let problems: Vec<_> = scripts::all().iter().flat_map(cut_and_check).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn after_a_power_cut_in_programs_by_chance_too() {
    let mut cut = Cut::default();
    let scripts = by_chance("random", runs(30).div_ceil(10));
    let problems: Vec<_> = scripts.flat_map(|script| power_cuts(&script, 80, &mut cut)).collect();
    cut.must_mean_something("programs by chance", &problems);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn killed_at_random_while_the_threshold_of_small_files_moves() {
    let mut tried = Tried::default();
    let scripts = by_chance("small", runs(8));
    let problems: Vec<_> = scripts.flat_map(|script| kill_at_random(&script, 6, &mut tried)).collect();
    tried.must_mean_something("small files by chance", &problems);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn after_a_power_cut_while_the_threshold_of_small_files_moves() {
    let mut cut = Cut::default();
    let scripts = by_chance("small", runs(30).div_ceil(10));
    let problems: Vec<_> = scripts.flat_map(|script| power_cuts(&script, 80, &mut cut)).collect();
    cut.must_mean_something("small files by chance", &problems);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_check_that_is_killed_is_finished_by_the_next() {
    let problems = checks_killed_at_points(stride(3));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_check_that_a_power_cut_ends_is_finished_by_the_next() {
    let problems = checks_cut_off(runs(30) as usize);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_pool_whose_making_was_killed_is_made_by_the_next_try() {
    let problems = [inits_killed_at_points(false, stride(4)), inits_killed_at_points(true, stride(331))].concat();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_recorder_sees_what_the_disks_have() {
    for script in scripts::all() {
        Bench::of(&script).records_rightly(&script);
    }
}
