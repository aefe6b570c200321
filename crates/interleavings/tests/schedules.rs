//! Runs each scenario under schedules drawn at random, and under such as find what needs a few unlikely switches (PCT).

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_interleavings::pools::TestPool;
use stripewise_interleavings::{
    ahead, descriptors, full_tier, heads, inodes, opens, placements, removing, serving, writers,
};

/// Switches that a PCT schedule makes against the priorities of the threads.
const SWITCHES: usize = 3;
/// The store has larger buffers on its stacks than shuttle gives them room for.
const STACK_BYTES: usize = 256 << 10;

fn run(scenario: impl Fn() + Send + Sync + 'static, scheduler: impl Scheduler + 'static) {
    let mut config = Config::new();
    config.silence_warnings = true;
    config.stack_size = STACK_BYTES;
    Runner::new(scheduler, config).run(scenario);
}

/// Runs this many schedules of each kind, or as many as fit into `STRIPEWISE_CONFORMANCE_SECONDS` where that is set.
fn explore(schedules: usize, scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let seconds = std::env::var("STRIPEWISE_CONFORMANCE_SECONDS").ok();
    let seconds = seconds.map(|seconds| seconds.parse().expect("STRIPEWISE_CONFORMANCE_SECONDS is a number"));
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    loop {
        run(scenario.clone(), RandomScheduler::new(schedules));
        run(scenario.clone(), PctScheduler::new(SWITCHES, schedules));
        if until.is_none_or(|until| Instant::now() > until) {
            return;
        }
    }
}

#[test]
fn threads_with_descriptors_of_their_own() {
    explore(1000, descriptors::threads_with_descriptors_of_their_own);
}

#[test]
fn a_copy_of_a_number_that_changes() {
    explore(1000, descriptors::a_copy_of_a_number_that_changes);
}

#[test]
fn a_number_that_is_closed_while_it_is_entered() {
    explore(1000, descriptors::a_number_that_is_closed_while_it_is_entered);
}

#[test]
fn lookups_and_forgets() {
    let directory = Arc::new(tempfile::tempdir().unwrap());
    inodes::prepare(directory.path());
    explore(500, move || inodes::lookups_and_forgets(directory.path()));
}

#[test]
fn files_are_collected_before_the_end() {
    explore_pool(300, removing::files_are_collected_before_the_end);
}

/// On a pool of its own.
fn explore_pool(schedules: usize, scenario: fn(&TestPool)) {
    explore_on(TestPool::new(), schedules, scenario);
}

fn explore_on(pool: TestPool, schedules: usize, scenario: fn(&TestPool)) {
    let pool = Arc::new(pool);
    explore(schedules, move || scenario(&pool));
}

#[test]
fn writers_come_and_go() {
    explore_pool(400, writers::writers_come_and_go);
}

#[test]
fn appends_follow_one_another() {
    explore_pool(500, writers::appends_follow_one_another);
}

#[test]
fn changes_of_size_and_writes() {
    explore_pool(750, writers::changes_of_size_and_writes);
}

#[test]
fn a_small_file_is_written_and_moved() {
    explore_pool(750, heads::a_small_file_is_written_and_moved);
}

#[test]
fn a_small_file_is_written_past_its_head_first() {
    explore_pool(750, heads::a_small_file_is_written_past_its_head_first);
}

#[test]
fn a_small_file_changes_its_size_while_it_is_written() {
    explore_pool(1000, heads::a_small_file_changes_its_size_while_it_is_written);
}

/// Runs test `name` of this binary again where it may mount file systems; `false` when this already is that place.
fn in_own_mounts(name: &str) -> bool {
    const INSIDE: &str = "STRIPEWISE_TEST_INSIDE";
    // Mounts of other tests, of which the name space would keep copies: their processes would not end before it does.
    const WITHOUT_OTHERS: &str = r#"umount -a -i -l -t fuse.stripewise; exec "$0" "$@""#;
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let output = Command::new("unshare")
        .args(if rustix::process::getuid().is_root() { "-m" } else { "-rm" }.split(' '))
        .args(["sh", "-c", WITHOUT_OTHERS])
        .arg(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("the command unshare of util-linux");
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "in a mount namespace of its own: {}", String::from_utf8_lossy(&text));
    true
}

#[test]
fn a_small_file_is_used_on_a_tier_that_fills() {
    if in_own_mounts("a_small_file_is_used_on_a_tier_that_fills") {
        return;
    }
    explore_on(TestPool::with_small_tier(3), 400, full_tier::a_small_file_is_used_on_a_tier_that_fills);
    let left = full_tier::schedules_that_left();
    println!("a file left the tier in {left} schedules");
    assert!(left > 0, "no file has left the tier: nothing was tested");
}

#[test]
fn a_small_file_is_appended_to_on_a_tier_that_fills() {
    if in_own_mounts("a_small_file_is_appended_to_on_a_tier_that_fills") {
        return;
    }
    for servers in [1, 3] {
        let scenario = full_tier::a_small_file_is_appended_to_on_a_tier_that_fills;
        explore_on(TestPool::with_small_tier(servers), 200, scenario);
    }
}

#[test]
fn a_file_is_read_ahead_while_it_is_written() {
    explore_pool(400, ahead::a_file_is_read_ahead_while_it_is_written);
}

#[test]
fn readers_jump_in_a_file_while_it_is_written() {
    explore_on(TestPool::of_disks(), 400, ahead::readers_jump_in_a_file_while_it_is_written);
}

#[test]
fn a_write_that_failed_half_way() {
    explore_pool(750, writers::a_write_that_failed_half_way);
}

#[test]
fn readers_of_a_file_that_changes() {
    explore_pool(400, placements::readers_of_a_file_that_changes);
}

#[test]
fn writers_past_the_mount() {
    explore_pool(400, placements::writers_past_the_mount);
}

#[test]
fn writers_beside_moves() {
    explore_pool(200, placements::writers_beside_moves);
}

#[test]
fn times_and_modes_beside_moves() {
    explore_pool(400, placements::times_and_modes_beside_moves);
}

#[test]
fn readers_of_a_hole_that_is_filled() {
    explore_pool(600, placements::readers_of_a_hole_that_is_filled);
}

#[test]
fn a_time_that_is_set_while_writers_leave() {
    explore_pool(500, writers::a_time_that_is_set_while_writers_leave);
}

#[test]
fn the_time_of_a_file_whose_last_writer_leaves() {
    explore_pool(300, writers::the_time_of_a_file_whose_last_writer_leaves);
}

#[test]
fn a_name_that_goes_while_the_file_is_open() {
    explore_pool(600, writers::a_name_that_goes_while_the_file_is_open);
}

#[test]
fn opens_and_closes() {
    explore_pool(750, opens::opens_and_closes);
}

#[test]
fn the_end_of_the_mount_and_late_closes() {
    explore_pool(750, opens::the_end_of_the_mount_and_late_closes);
}

#[test]
fn requests_that_wait_for_one_another() {
    explore(500, serving::requests_that_wait_for_one_another);
}
