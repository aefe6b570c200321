//! The queue of an emulated server: order, draws, sharing, and pages that cannot be trusted.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use stripewise_layout::ServerId;
use stripewise_model::head_position;
use stripewise_store::emulate::{
    Device, EmulateConfig, EmulateError, MAX_BACKLOG_NS, NOWHERE, Op, PRESETS, QUEUE_FILE, now_ns, preset, sleep_until,
};

fn open(directory: &Path, config: &EmulateConfig) -> Result<Device, EmulateError> {
    Device::open(File::open(directory).unwrap(), ServerId(0), config)
}

fn hdd() -> EmulateConfig {
    preset("hdd-7200").unwrap()
}

/// Startup 4 to 12 ms and 512 KiB at 80 MB/s.
const HDD_512K_NS: std::ops::RangeInclusive<u64> = 10_553_599..=18_553_601;

#[test]
fn presets_are_valid_and_named() {
    for (name, _) in PRESETS {
        let config = preset(name).unwrap();
        config.validate().unwrap();
        assert_eq!(config.effective_profile(), config.profile, "{name} is in real time");
    }
    assert_eq!(preset("hdd"), None);
}

#[test]
fn sub_requests_are_served_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(directory.path(), &hdd()).unwrap();
    let arrival_ns = now_ns();
    let mut free_ns = arrival_ns;
    for i in 0..100 {
        let op = if i % 2 == 0 { Op::Read } else { Op::Write };
        let ticket = device.reserve_at(op, NOWHERE, 512 << 10, arrival_ns + i);
        assert_eq!(ticket.start_ns, free_ns.max(arrival_ns + i));
        assert!(HDD_512K_NS.contains(&(ticket.deadline_ns - ticket.start_ns)), "{ticket:?}");
        free_ns = ticket.deadline_ns;
    }
    // A device that was idle starts at once.
    let late = device.reserve_at(Op::Read, NOWHERE, 1, free_ns + 1000);
    assert_eq!(late.start_ns, free_ns + 1000);
}

#[test]
fn several_are_served_side_by_side_by_all_processes_together() {
    let directory = tempfile::tempdir().unwrap();
    let config = EmulateConfig { at_once: 3, ..preset("ssd-sata").unwrap() };
    let devices = [0; 2].map(|_| open(directory.path(), &config).unwrap());
    let arrival_ns = now_ns();
    let mut places = [arrival_ns; 3];
    for number in 0..60 {
        let ticket = devices[number % 2].reserve_at(Op::Read, NOWHERE, 4096, arrival_ns);
        places.sort_unstable();
        assert_eq!(ticket.start_ns, places[0], "request {number} begins where it is free first");
        places[0] = ticket.deadline_ns;
    }
    // One that serves one at a time takes the first place alone: what the others have left is no matter of it.
    let one = open(directory.path(), &preset("ssd-sata").unwrap()).unwrap();
    assert!(places.contains(&one.reserve_at(Op::Read, NOWHERE, 0, arrival_ns).start_ns));
    let refused = |config: EmulateConfig| open(directory.path(), &config).unwrap_err().to_string();
    assert!(refused(EmulateConfig { at_once: 0, ..config }).contains("at_once is 0; it must be a number of requests"));
    assert!(refused(EmulateConfig { at_once: 65, ..config }).contains("at_once is 65"));
    let headed = EmulateConfig { at_once: 2, ..preset("hdd-7200-head").unwrap() };
    assert!(refused(headed).contains("1 for a server with a sequential_startup"));
}

#[test]
fn draws_are_uniform_seeded_and_differ_between_servers() {
    let draws = |server: u16, seed: u64| {
        let directory = tempfile::tempdir().unwrap();
        let config = EmulateConfig { seed, ..hdd() };
        let device = Device::open(File::open(directory.path()).unwrap(), ServerId(server), &config).unwrap();
        (0..4000_u64)
            .map(|i| device.reserve_at(Op::Read, NOWHERE, 0, i << 32))
            .map(|t| t.deadline_ns - t.start_ns)
            .collect()
    };
    let first: Vec<u64> = draws(0, 1);
    assert_eq!(first, draws(0, 1));
    assert_ne!(first, draws(1, 1));
    assert_ne!(first, draws(0, 2));
    // Each tenth of 4 to 12 ms has about a tenth of the draws: six standard deviations are 114.
    let mut tenths = [0_i32; 10];
    first.iter().for_each(|ns| tenths[((ns - 4_000_000) / 800_000) as usize] += 1);
    assert!(tenths.iter().all(|n| (n - 400).abs() < 114), "{tenths:?}");
}

#[test]
fn a_head_moves_only_where_a_sub_request_does_not_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(directory.path(), &preset("hdd-7200-head").unwrap()).unwrap();
    let again = open(directory.path(), &preset("hdd-7200-head").unwrap()).unwrap();
    let mut now_ns = now_ns();
    let mut startup_ns = |of: &Device, datafile: u64, offset: u64| {
        let position = head_position(datafile, offset);
        let ticket = of.reserve_at(Op::Read, position, 4096, now_ns);
        now_ns = ticket.deadline_ns;
        ticket.deadline_ns - ticket.start_ns - 51_200
    };
    let sequential = 100_000;
    assert!(startup_ns(&device, 7, 0) >= 4_000_000);
    assert_eq!(startup_ns(&device, 7, 4096), sequential);
    // Another process goes on where this one ended; another datafile is elsewhere.
    assert_eq!(startup_ns(&again, 7, 8192), sequential);
    assert!(startup_ns(&device, 8, 12288) >= 4_000_000);
    assert!(startup_ns(&device, 7, 12288) >= 4_000_000);
    assert!(startup_ns(&device, 7, 0) >= 4_000_000);
    // What waits is gathered, whatever comes between, in any order; the first is served, so the others wait.
    device.reserve_at(Op::Read, head_position(8, 0), 4096, now_ns);
    let waiting = |block: u64| device.reserve_at(Op::Write, head_position(9, block << 12), 4096, now_ns);
    let blocks = [0, 5, 1, 6, 4, 2];
    let startups = blocks.map(waiting).map(|ticket| ticket.deadline_ns - ticket.start_ns - 51_200);
    assert_eq!(startups.map(|ns| ns > sequential), [true, true, false, false, false, false], "{startups:?}");
}

#[test]
fn network_and_dilation_scale_the_service() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = hdd();
    config.profile.write.startup_max_s = config.profile.write.startup_min_s;
    config.profile.network_s_per_byte = 1e-8;
    config.dilation = 0.5;
    let device = open(directory.path(), &config).unwrap();
    let ticket = device.reserve(Op::Write, 1_000_000);
    // (4 ms + 12.5 ms + 10 ms) / 2
    assert_eq!(ticket.deadline_ns - ticket.start_ns, 13_250_000);
}

#[test]
fn processes_share_one_queue() {
    let directory = tempfile::tempdir().unwrap();
    let parent = open(directory.path(), &hdd()).unwrap();
    let before = parent.statistics();
    let arrival_ns = now_ns();
    let children: Vec<i32> = (0..4)
        .map(|_| {
            // SAFETY: the child allocates nothing and leaves by `_exit`.
            match unsafe { libc::fork() } {
                0 => {
                    for _ in 0..1000 {
                        let ticket = parent.reserve_at(Op::Write, NOWHERE, 512 << 10, arrival_ns);
                        parent.complete(&ticket, ticket.deadline_ns, ticket.deadline_ns + 1000);
                    }
                    // SAFETY: ends the child only.
                    unsafe { libc::_exit(0) }
                }
                child => child,
            }
        })
        .collect();
    for child in children {
        let mut status = 0;
        // SAFETY: waits for a child of this test.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    // Opened anew, as another program would: the page is the same.
    let other = open(directory.path(), &hdd()).unwrap();
    let done = other.statistics().since(&before);
    assert_eq!(done.write.requests, 4000);
    assert_eq!(done.write.bytes, 4000 * (512 << 10));
    assert_eq!(done.read.requests, 0);
    assert_eq!(done.error_ppm.total(), 4000);
    let tail = other.reserve_at(Op::Write, NOWHERE, 0, arrival_ns);
    assert_eq!(tail.start_ns, arrival_ns + done.write.busy_ns, "no service overlaps another and none is lost");
    assert_eq!(Device::observe(File::open(directory.path()).unwrap()).unwrap(), Some(other.statistics()));
}

#[test]
fn only_the_server_that_decided_a_request_is_charged_the_error() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (a, b) = (open(a.path(), &hdd()).unwrap(), open(b.path(), &preset("ssd-sata").unwrap()).unwrap());
    let arrival_ns = now_ns();
    let (on_a, on_b) =
        (a.reserve_at(Op::Read, NOWHERE, 65536, arrival_ns), b.reserve_at(Op::Read, NOWHERE, 65536, arrival_ns));
    let deadline_ns = on_a.deadline_ns.max(on_b.deadline_ns);
    let drawn_ns = deadline_ns - arrival_ns;
    for (device, ticket) in [(&a, &on_a), (&b, &on_b)] {
        device.complete(ticket, deadline_ns, deadline_ns + drawn_ns / 4);
    }
    assert_eq!(b.statistics().error_ppm.total(), 0);
    let error = a.statistics().median_error().unwrap();
    assert!((0.22..0.28).contains(&error), "{error}");
}

#[test]
fn a_sleep_is_never_early() {
    for ahead_ns in [0, 1, 1000, 300_000] {
        let deadline_ns = now_ns() + ahead_ns;
        assert!(sleep_until(deadline_ns) >= deadline_ns);
        assert!(now_ns() >= deadline_ns);
    }
}

#[test]
fn a_sleep_gives_the_timer_slack_back() {
    let slack = rustix::thread::current_timer_slack().unwrap();
    sleep_until(now_ns() + 100_000);
    assert_eq!(rustix::thread::current_timer_slack().unwrap(), slack);
}

#[test]
fn a_thread_that_slept_has_a_short_slice() {
    // `struct sched_attr`: the slice is the 64-bit word at byte 24.
    let slice_ns = || {
        let mut attr = [0_u64; 7];
        // SAFETY: the kernel writes at most 56 bytes to `attr`, which is as long.
        assert_eq!(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, 56, 0) }, 0);
        attr[3]
    };
    std::thread::spawn(move || {
        let before_ns = slice_ns();
        sleep_until(now_ns() + 1000);
        // Kernels before 6.12 have no slices of threads: they say 0 and keep to it.
        assert!(before_ns == 0 || slice_ns() == before_ns.min(500_000), "{before_ns} then {}", slice_ns());
    })
    .join()
    .unwrap();
}

#[test]
fn numbers_of_no_device_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for break_it in [
        |c: &mut EmulateConfig| c.dilation = 0.0,
        |c: &mut EmulateConfig| c.dilation = f64::NAN,
        |c: &mut EmulateConfig| c.profile.read.startup_min_s = -1.0,
        |c: &mut EmulateConfig| c.profile.write.startup_max_s = 0.001,
        |c: &mut EmulateConfig| c.profile.write.transfer_s_per_byte = f64::INFINITY,
        |c: &mut EmulateConfig| c.profile.network_s_per_byte = f64::NAN,
    ] {
        let mut config = hdd();
        break_it(&mut config);
        let error = open(directory.path(), &config).unwrap_err();
        assert!(matches!(error, EmulateError::Config { .. }), "{error}");
        assert!(!directory.path().join(QUEUE_FILE).exists());
    }
}

#[test]
fn a_queue_that_is_no_file_is_an_error() {
    let target = tempfile::tempdir().unwrap();
    let linked = tempfile::tempdir().unwrap();
    symlink(target.path().join("elsewhere"), linked.path().join(QUEUE_FILE)).unwrap();
    let named = tempfile::tempdir().unwrap();
    std::fs::create_dir(named.path().join(QUEUE_FILE)).unwrap();
    let piped = tempfile::tempdir().unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        piped.path().join(QUEUE_FILE),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    for directory in [&linked, &named, &piped] {
        let error = open(directory.path(), &hdd()).unwrap_err();
        assert!(matches!(error, EmulateError::Queue { .. }), "{error}");
    }
    assert!(!target.path().join("elsewhere").exists());
}

#[test]
fn an_observer_makes_no_queue() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Device::observe(File::open(directory.path()).unwrap()).unwrap(), None);
    std::fs::write(directory.path().join(QUEUE_FILE), b"short").unwrap();
    assert_eq!(Device::observe(File::open(directory.path()).unwrap()).unwrap(), None);
    std::fs::write(directory.path().join(QUEUE_FILE), vec![7; 8192]).unwrap();
    assert_eq!(Device::observe(File::open(directory.path()).unwrap()).unwrap(), None);
}

/// Offsets of fields in the page (docs of `queue.rs`).
const BOOT_ID_AT: u64 = 8;
const NEXT_FREE_AT: u64 = 64;

fn patch(directory: &Path, at: u64, bytes: &[u8]) {
    let mut file = File::options().write(true).open(directory.join(QUEUE_FILE)).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn a_backlog_beyond_an_hour_is_taken_as_none() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(directory.path(), &hdd()).unwrap();
    let arrival_ns = now_ns();
    patch(directory.path(), NEXT_FREE_AT, &(arrival_ns + MAX_BACKLOG_NS + 1).to_ne_bytes());
    assert_eq!(device.reserve_at(Op::Read, NOWHERE, 0, arrival_ns).start_ns, arrival_ns);
    patch(directory.path(), NEXT_FREE_AT, &(arrival_ns + MAX_BACKLOG_NS).to_ne_bytes());
    assert_eq!(device.reserve_at(Op::Read, NOWHERE, 0, arrival_ns).start_ns, arrival_ns + MAX_BACKLOG_NS);
}

#[test]
fn a_queue_of_another_boot_is_empty_and_keeps_its_counts() {
    let directory = tempfile::tempdir().unwrap();
    let device = open(directory.path(), &hdd()).unwrap();
    let ticket = device.reserve(Op::Read, 512 << 10);
    device.complete(&ticket, ticket.deadline_ns, ticket.deadline_ns);
    let arrival_ns = now_ns();
    patch(directory.path(), NEXT_FREE_AT, &(arrival_ns + MAX_BACKLOG_NS / 2).to_ne_bytes());
    // Of this boot: believed.
    let again = open(directory.path(), &hdd()).unwrap();
    assert_eq!(again.reserve_at(Op::Read, NOWHERE, 0, arrival_ns).start_ns, arrival_ns + MAX_BACKLOG_NS / 2);
    patch(directory.path(), BOOT_ID_AT, &[1; 16]);
    let again = open(directory.path(), &hdd()).unwrap();
    assert_eq!(again.reserve_at(Op::Read, NOWHERE, 0, arrival_ns).start_ns, arrival_ns);
    assert_eq!(again.statistics().read.requests, 1);
    let mut stamp = [0; 24];
    File::open(directory.path().join(QUEUE_FILE)).unwrap().read_exact(&mut stamp).unwrap();
    assert_ne!(stamp[8..], [1; 16]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the page holds, before it is opened or while it is in use: a bounded schedule and no panic.
    #[test]
    fn any_page_gives_a_schedule(
        page in prop::collection::vec(any::<u8>(), 0..9000),
        sane_header in any::<bool>(),
        while_open in any::<bool>(),
        bytes in any::<u64>(),
        op in prop_oneof![Just(Op::Read), Just(Op::Write)],
    ) {
        let directory = tempfile::tempdir().unwrap();
        let queue = directory.path().join(QUEUE_FILE);
        let mut device = None;
        if while_open || sane_header {
            device = Some(open(directory.path(), &hdd()).unwrap());
        }
        let from = if sane_header { 24.min(page.len()) } else { 0 };
        if device.is_some() {
            // In place: a shorter file would be another matter (SIGBUS, as for any mapping).
            patch(directory.path(), from as u64, &page[from..page.len().min(8192)]);
        } else {
            std::fs::write(&queue, &page).unwrap();
        }
        if !while_open {
            device = Some(open(directory.path(), &hdd()).unwrap());
        }
        let device = device.unwrap();
        let arrival_ns = now_ns();
        let ticket = device.reserve_at(op, NOWHERE, bytes, arrival_ns);
        prop_assert!(ticket.start_ns >= arrival_ns && ticket.start_ns <= arrival_ns + MAX_BACKLOG_NS);
        prop_assert!(ticket.deadline_ns >= ticket.start_ns && ticket.deadline_ns <= ticket.start_ns + MAX_BACKLOG_NS);
        device.complete(&ticket, ticket.deadline_ns, ticket.deadline_ns);
        let statistics = device.statistics();
        prop_assert!(statistics.since(&statistics).read.requests == 0);
        statistics.error_ppm.quantile(0.5);
        let _ = Device::observe(File::open(directory.path()).unwrap()).unwrap();
    }
}
