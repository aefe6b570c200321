//! Runs each scenario under schedules drawn at random, and under such as find what needs a few unlikely switches (PCT).

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use stripewise_interleavings::{descriptors, inodes, removing};

/// Switches that a PCT schedule makes against the priorities of the threads.
const SWITCHES: usize = 3;

fn run(scenario: impl Fn() + Send + Sync + 'static, scheduler: impl Scheduler + 'static) {
    let mut config = Config::new();
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(scenario);
}

/// So many schedules of each kind; as many as fit into `STRIPEWISE_CONFORMANCE_SECONDS` where that is set.
fn explore(schedules: usize, scenario: impl Fn() + Send + Sync + Copy + 'static) {
    let seconds = std::env::var("STRIPEWISE_CONFORMANCE_SECONDS").ok();
    let seconds = seconds.map(|seconds| seconds.parse().expect("STRIPEWISE_CONFORMANCE_SECONDS is a number"));
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    loop {
        run(scenario, RandomScheduler::new(schedules));
        run(scenario, PctScheduler::new(SWITCHES, schedules));
        if until.is_none_or(|until| Instant::now() > until) {
            return;
        }
    }
}

/// The table of descriptors is one for all.
fn explore_alone(schedules: usize, scenario: fn()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    explore(schedules, scenario);
}

#[test]
fn threads_with_descriptors_of_their_own() {
    explore_alone(1000, descriptors::threads_with_descriptors_of_their_own);
}

#[test]
fn a_copy_of_a_number_that_changes() {
    explore_alone(1000, descriptors::a_copy_of_a_number_that_changes);
}

#[test]
fn a_number_that_is_closed_while_it_is_entered() {
    explore_alone(1000, descriptors::a_number_that_is_closed_while_it_is_entered);
}

#[test]
fn lookups_and_forgets() {
    let directory = Box::leak(Box::new(tempfile::tempdir().unwrap()));
    inodes::prepare(directory.path());
    let path: &'static std::path::Path = directory.path();
    explore(500, move || inodes::lookups_and_forgets(path));
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn files_are_collected_once_and_before_the_end() {
    explore(1000, removing::files_are_collected_once_and_before_the_end);
}
