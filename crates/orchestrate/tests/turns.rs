//! Gate, observer and orchestrator together, on a pool without a mount.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stripewise_control::{Action, Door, FileId, Request, Sender, Served, Way};
use stripewise_layout::{ServerId, SubRequest};
use stripewise_orchestrate::{
    Asker, Identified, NodePages, OrchestrationStatus, Orchestrator, OrchestratorOptions, ProgramRules, ProgramStatus,
    PublishedPlan, Turns, is_orchestrated, make_plan_page, orchestration_status, this_node,
};
use stripewise_schedule::{BURST_GAP_NS, ProgramKey, SlicePlan, TurnSlice};
use stripewise_store::Pool;
use stripewise_store::pool::{PoolSpec, TierSpec};

const PATIENCE: Duration = Duration::from_secs(120);

struct TestPool {
    _dir: tempfile::TempDir,
    pool: Pool,
}

fn test_pool() -> TestPool {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let tier = TierSpec { name: "hdd".into(), servers: vec![disk], ..TierSpec::default() };
    let (mount, namespace) = (dir.path().join("mount"), dir.path().join("namespace"));
    let spec = PoolSpec { name: "turns".into(), mount, namespace, tiers: vec![tier], ..PoolSpec::default() };
    let pool = Pool::init(&dir.path().join("pool.toml"), &spec).unwrap();
    TestPool { _dir: dir, pool }
}

fn options(policy: &str, window_ms: u64) -> OrchestratorOptions {
    let (policy, window) = (policy.to_owned(), Duration::from_millis(window_ms));
    OrchestratorOptions { policy, window, rules: ProgramRules::default() }
}

fn door(pool: &Pool, name: &str) -> Door {
    let program = Identified::named(rustix::process::geteuid().as_raw(), name.as_bytes());
    Turns::open(pool, || Asker::Own(program), |_| {}).expect("a page of turns").install(Door::default())
}

/// One request through a door, served at once.
fn request(door: &Door, file: u64, offset: u64) {
    request_of_rank(door, file, offset, 0);
}

fn request_of_rank(door: &Door, file: u64, offset: u64, rank: u8) {
    let sender = Sender::this_process(Way::Library);
    let request = Request { sender, action: Action::Read, offset, len: 4096, rank };
    door.enter(FileId(file), &request);
    let part =
        SubRequest { region: 0, slot: 0, server: ServerId(0), datafile_offset: offset, len: 4096, from: 0, to: 4096 };
    door.served(FileId(file), &request, Served::of(&part, 4096), (0, || 0));
}

/// Sends requests of the programs `names` until `is_over`.
fn programs<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    pool: &Pool,
    names: &[&str],
    is_over: &'scope AtomicBool,
) {
    for (number, name) in names.iter().enumerate() {
        let door = door(pool, name);
        scope.spawn(move || {
            let mut offset = 0;
            while !is_over.load(Ordering::Relaxed) {
                request(&door, number as u64 + 1, offset);
                offset += 4096;
                std::thread::sleep(Duration::from_micros(200));
            }
        });
    }
}

/// Ends the programs of a test, also when that fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Works until `done` holds of the status, which it gives: at the next look a program may have had no processor.
fn work_until(
    orchestrator: &mut Orchestrator,
    pool: &Pool,
    done: impl Fn(&OrchestrationStatus) -> bool,
) -> OrchestrationStatus {
    let begin = Instant::now();
    loop {
        orchestrator.work(Duration::from_millis(20));
        let status = orchestration_status(pool).unwrap();
        if done(&status) {
            return status;
        }
        assert!(begin.elapsed() < PATIENCE, "{status:#?}");
    }
}

#[test]
fn a_program_tells_when_its_last_burst_began() {
    let pool = test_pool();
    let _orchestrator = Orchestrator::start(&pool.pool, &options("none", 20)).unwrap();
    let door = door(&pool.pool, "one");
    let traits = || orchestration_status(&pool.pool).unwrap().programs[0].traits.clone();
    request(&door, 1, 0);
    let first = traits();
    assert!(first.burst_ns > 0 && first.burst_ns == first.first_ns, "{first:?}");
    std::thread::sleep(Duration::from_nanos(2 * BURST_GAP_NS));
    request(&door, 1, 4096);
    let later = traits();
    assert!((first.burst_ns + 2 * BURST_GAP_NS..=later.last_ns).contains(&later.burst_ns), "{later:?}");
}

#[test]
fn two_programs_are_served_in_turn_and_go_on_when_the_orchestrator_dies() {
    let pool = test_pool();
    assert!(Turns::open(&pool.pool, || unreachable!("there is no page"), |_| {}).is_none());
    assert!(!is_orchestrated(&pool.pool));
    let mut orchestrator = Orchestrator::start(&pool.pool, &options("even", 20)).unwrap();
    assert!(is_orchestrated(&pool.pool));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        programs(scope, &pool.pool, &["one", "two"], &is_over);
        // One that has no processor for some windows has no slice of the next.
        let both_held = |status: &OrchestrationStatus| {
            let is_held = |one: &ProgramStatus| one.traits.held > 20 && one.traits.in_turn > 20 && one.slice_ns > 0;
            status.programs.len() == 2 && status.programs.iter().all(is_held)
        };
        let status = work_until(&mut orchestrator, &pool.pool, both_held);
        assert_eq!(status.process, Some(std::process::id()));
        assert_eq!(status.policy.as_deref(), Some("even"));
        for one in &status.programs {
            assert_eq!(one.slice_ns, 10_000_000, "{one:?}");
            assert_eq!(one.traits.files, 1);
            assert_eq!(one.gap_bytes, Some(0.0), "each reads its own file in order");
        }
        assert_eq!(status.programs.iter().map(|one| one.traits.processes).sum::<u32>(), 1, "both are of this process");
        // It dies in the middle of a window: nothing is published any more, nor taken back.
        std::mem::forget(orchestrator);
        let begin = Instant::now();
        let unanswered = || {
            orchestration_status(&pool.pool).unwrap().programs.iter().map(|one| one.traits.unanswered).min().unwrap()
        };
        while unanswered() < 50 {
            assert!(begin.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        let status = orchestration_status(&pool.pool).unwrap();
        assert_eq!((status.process, status.served), (None, None));
    });
}

#[test]
fn a_file_of_a_higher_rank_waits_while_others_are_used_and_is_served_at_once_when_they_are_not() {
    let pool = test_pool();
    // Turns of programs have no part in it.
    let mut orchestrator = Orchestrator::start(&pool.pool, &options("none", 200)).unwrap();
    let (is_over, is_idle) = (AtomicBool::new(false), AtomicBool::new(false));
    let served_when_idle = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let _ends = (Ends(&is_over), Ends(&is_idle));
        let (first, second) = (door(&pool.pool, "busy"), door(&pool.pool, "behind"));
        let (is_over, is_idle, served_when_idle) = (&is_over, &is_idle, &served_when_idle);
        let others = scope.spawn(move || {
            while !is_idle.load(Ordering::Relaxed) {
                request(&first, 1, 0);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                request_of_rank(&second, 2, 0, 1);
                served_when_idle.fetch_add(usize::from(is_idle.load(Ordering::Relaxed)), Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let program = |name: &str| {
            let status = orchestration_status(&pool.pool).unwrap();
            status.programs.into_iter().find(|one| one.traits.name == name).map(|one| one.traits)
        };
        // Each of its requests waits for two windows, and passes then.
        work_until(&mut orchestrator, &pool.pool, |_| program("behind").is_some_and(|one| one.overdue >= 3));
        let (first, behind) = (program("busy").unwrap(), program("behind").unwrap());
        assert_eq!((first.held, first.overdue), (0, 0));
        assert!(behind.held >= 3, "{behind:?}");
        // The other program ends: one request more may wait for the pause, and those after it for nothing.
        is_idle.store(true, Ordering::Relaxed);
        others.join().unwrap();
        let before = program("behind").unwrap();
        work_until(&mut orchestrator, &pool.pool, |_| served_when_idle.load(Ordering::Relaxed) > 50);
        let after = program("behind").unwrap();
        assert!(after.held <= before.held + 2, "{before:?} {after:?}");
    });
}

#[test]
fn an_end_opens_the_gates_and_a_second_orchestrator_is_refused() {
    let pool = test_pool();
    let first = Orchestrator::start(&pool.pool, &options("even", 500)).unwrap();
    let refused = Orchestrator::start(&pool.pool, &options("even", 500)).err().unwrap().to_string();
    assert!(refused.contains("orchestrated already") && refused.contains(&std::process::id().to_string()), "{refused}");
    assert!(is_orchestrated(&pool.pool));
    drop(first);
    assert!(!is_orchestrated(&pool.pool));
    drop(Orchestrator::start(&pool.pool, &options("none", 500)).unwrap());
}

#[test]
fn what_is_no_policy_no_window_and_no_rule_is_named() {
    let pool = test_pool();
    let refused = |options: &OrchestratorOptions| Orchestrator::start(&pool.pool, options).err().unwrap().to_string();
    assert!(refused(&options("fair", 500)).contains("'fair'"));
    assert!(refused(&options("even", 0)).contains("0 ms"));
    assert!(refused(&options("even", 10_001)).contains("10001 ms"));
    let weights = [("a".to_owned(), f64::NAN)].into();
    assert!(
        refused(&OrchestratorOptions { rules: ProgramRules { weights, limits: [].into() }, ..options("even", 500) })
            .contains("'a'")
    );
    let limits = [("b".to_owned(), 0)].into();
    assert!(
        refused(&OrchestratorOptions { rules: ProgramRules { limits, weights: [].into() }, ..options("even", 500) })
            .contains("'b'")
    );
    assert!(!pool.pool.namespace.join("turns").exists(), "nothing is made for what is refused");
}

#[test]
fn a_limit_holds_a_program_to_its_rate() {
    let pool = test_pool();
    // One request of 4 KiB in 4 ms.
    let limits = [("slow".to_owned(), 1_024_000)].into();
    let rules = ProgramRules { limits, weights: [].into() };
    let mut orchestrator =
        Orchestrator::start(&pool.pool, &OrchestratorOptions { rules, ..options("none", 500) }).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        programs(scope, &pool.pool, &["slow", "free"], &is_over);
        let mut held_more = |held: u64| {
            let status = work_until(&mut orchestrator, &pool.pool, |status| {
                let slow = status.programs.iter().find(|one| one.traits.name == "slow");
                slow.is_some_and(|one| one.limit == 1_024_000 && one.traits.held > held)
            });
            let find = |name: &str| status.programs.iter().find(|one| one.traits.name == name).map(|one| &one.traits);
            assert!(find("free").is_none_or(|free| free.held == 0), "{status:?}");
            find("slow").unwrap().clone()
        };
        let begin = Instant::now();
        let before = held_more(0);
        let after = held_more(before.held + 50);
        // However long a thread stood still: no more pass than the limit lets, beside those under way at each end, and those for which
        // the orchestrator was away for some windows.
        let most = begin.elapsed().as_nanos() as u64 / 4_000_000 + 3 + after.unanswered - before.unanswered;
        assert!(after.requests - before.requests <= most, "{} of {most}: {after:?}", after.requests - before.requests);
    });
}

#[test]
fn a_page_of_garbage_holds_no_request() {
    let pool = test_pool();
    drop(make_plan_page(&pool.pool).unwrap());
    let path = pool.pool.namespace.join("turns");
    let bytes: Vec<u8> = (0..8192_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let tell = |words: &str| {
        assert!(words.contains("does not answer (its page is of another version, or none)"), "{words}");
        TOLD.fetch_add(1, Ordering::Relaxed);
    };
    let program = Identified::named(rustix::process::geteuid().as_raw(), b"one");
    let turns = Turns::open(&pool.pool, || Asker::Own(program), tell).unwrap();
    let door = turns.install(Door::default());
    // In place: a file that is replaced is another one.
    std::os::unix::fs::FileExt::write_all_at(&std::fs::File::options().write(true).open(&path).unwrap(), &bytes, 0)
        .unwrap();
    for number in 0..1000 {
        request(&door, 1, number * 4096);
    }
    let status = orchestration_status(&pool.pool).unwrap();
    assert_eq!(status.programs[0].traits.unanswered, 1000);
    assert_eq!((status.programs[0].traits.held, TOLD.load(Ordering::Relaxed)), (0, 1), "said once");
}

#[test]
fn garbage_of_programs_is_bounded() {
    let pool = test_pool();
    let mut orchestrator = Orchestrator::start(&pool.pool, &options("reuse-distance", 20)).unwrap();
    let one = door(&pool.pool, "one");
    request(&one, 1, 0);
    let uid = rustix::process::geteuid().as_raw();
    let path = pool.pool.namespace.join("programs").join(uid.to_string());
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let bytes: Vec<u8> = (8..length as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 8).unwrap();
    for _ in 0..10 {
        orchestrator.work(Duration::from_millis(20));
        orchestration_status(&pool.pool).unwrap();
    }
    // A user can shorten its page: the orchestrator does not map it.
    file.set_len(100).unwrap();
    for _ in 0..5 {
        orchestrator.work(Duration::from_millis(20));
    }
    assert!(orchestration_status(&pool.pool).unwrap().programs.is_empty());
    std::mem::forget(one);
}

#[test]
fn a_user_speaks_of_its_own_programs_alone() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can make another user's file");
        return;
    }
    let pool = test_pool();
    let orchestrator = Orchestrator::start(&pool.pool, &options("even", 500)).unwrap();
    let own = door(&pool.pool, "one");
    request(&own, 1, 0);
    let programs = pool.pool.namespace.join("programs");
    // Another user copies root's page: the programs in it are none of that user's.
    std::fs::copy(programs.join("0"), programs.join("1234")).unwrap();
    // A third has not even made the page that bears its number.
    std::fs::copy(programs.join("0"), programs.join("1235")).unwrap();
    std::os::unix::fs::chown(programs.join("1234"), Some(1234), Some(1234)).unwrap();
    let seen = || {
        let status = orchestration_status(&pool.pool).unwrap();
        status.programs.iter().map(|one| (one.traits.uid, one.traits.requests)).collect::<Vec<_>>()
    };
    assert_eq!(seen(), [(0, 1)]);
    // What the user says of its own program is taken.
    let file = std::fs::File::options().read(true).write(true).open(programs.join("1234")).unwrap();
    let mut page = vec![0; file.metadata().unwrap().len() as usize];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut page, 0).unwrap();
    let root = Identified::named(0, b"one").key.0.to_ne_bytes();
    let at = page.windows(8).position(|bytes| bytes == root).unwrap();
    let theirs = Identified::named(1234, b"one").key.0.to_ne_bytes();
    std::os::unix::fs::FileExt::write_all_at(&file, &theirs, at as u64).unwrap();
    let mut both = seen();
    both.sort_unstable();
    assert_eq!(both, [(0, 1), (1234, 1)]);
    drop(orchestrator);
}

#[test]
fn a_program_is_at_work_as_long_as_servers_have_a_request_of_it() {
    let pool = test_pool();
    let mut pages = NodePages::open(&pool.pool, &this_node()).unwrap();
    let one = door(&pool.pool, "one");
    let key = Identified::named(rustix::process::geteuid().as_raw(), b"one").key;
    let (begin_ns, window_ns) = (stripewise_store::emulate::now_ns(), 10_000_000_000);
    let plan = SlicePlan { slices: vec![TurnSlice { program: key, end_ns: window_ns }] };
    assert!(pages.put("even", PublishedPlan { plan, begin_ns, window_ns, listed: Vec::new() }));
    let sender = Sender::this_process(Way::Library);
    let asked = Request { sender, action: Action::Read, offset: 0, len: 4096, rank: 0 };
    one.enter(FileId(1), &asked);
    let last_ns = || orchestration_status(&pool.pool).unwrap().programs[0].traits.last_ns;
    let begin = Instant::now();
    let mut is_at_work = false;
    // What takes longer than a second, on a machine that stands still, is one of a process that was killed.
    while !is_at_work {
        assert!(begin.elapsed() < PATIENCE);
        let _flight = one.send(&asked);
        is_at_work = last_ns() < last_ns();
    }
    assert_eq!(last_ns(), last_ns());
}

/// Works until something is remarked with all of `words`.
fn work_until_remarked(orchestrator: &mut Orchestrator, words: &[&str]) {
    let begin = Instant::now();
    let mut remarks = Vec::new();
    while !remarks.iter().any(|remark: &String| words.iter().all(|word| remark.contains(word))) {
        orchestrator.work(Duration::from_millis(20));
        remarks.extend(orchestrator.take_remarks());
        assert!(begin.elapsed() < PATIENCE, "{words:?} in {remarks:?}");
    }
}

#[test]
fn what_another_process_writes_into_the_page_of_turns_is_told_and_written_over() {
    let pool = test_pool();
    let mut orchestrator = Orchestrator::start(&pool.pool, &options("even", 20)).unwrap();
    let path = pool.pool.namespace.join("turns");
    let page = std::fs::File::options().read(true).write(true).open(path).unwrap();
    // Words of the page: what it is, the length of a window, how many slices there are, and the first one.
    let (magic, window, slices, slice) = (64, 88, 160, 168);
    let write = |at: u64, word: u64| std::os::unix::fs::FileExt::write_all_at(&page, &word.to_ne_bytes(), at).unwrap();
    let intact = |orchestrator: &mut Orchestrator| {
        work_until(orchestrator, &pool.pool, |status| status.process.is_some() && status.window_ns == 20_000_000);
        // Two plans in a row are told of once.
        orchestrator.work(Duration::from_millis(50));
        orchestrator.work(Duration::from_millis(50));
    };
    intact(&mut orchestrator);
    write(window, 0);
    work_until_remarked(&mut orchestrator, &["written into the page of turns", "a window of 0 ms"]);
    intact(&mut orchestrator);
    write(magic, 7);
    work_until_remarked(&mut orchestrator, &["written into the page of turns", "another version"]);
    intact(&mut orchestrator);
    write(slice, 5 << 32 | 0xfeed);
    write(slices, 1);
    work_until_remarked(&mut orchestrator, &["a slice for the unknown program 0000feed of user 5"]);
    intact(&mut orchestrator);
    assert_eq!(orchestrator.take_remarks(), Vec::<String>::new());
}

#[test]
fn a_page_of_programs_that_is_none_is_told_once() {
    let pool = test_pool();
    let mut orchestrator = Orchestrator::start(&pool.pool, &options("even", 20)).unwrap();
    request(&door(&pool.pool, "one"), 1, 0);
    let uid = rustix::process::geteuid().as_raw();
    let path = pool.pool.namespace.join("programs").join(uid.to_string());
    let page = std::fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&page, &[0xff; 8], 0).unwrap();
    let user = format!("user {uid}");
    work_until_remarked(&mut orchestrator, &[&user, "another version"]);
    page.set_len(100).unwrap();
    work_until_remarked(&mut orchestrator, &[&user, "too short"]);
    for _ in 0..80 {
        orchestrator.work(Duration::from_millis(20));
        assert_eq!(orchestrator.take_remarks(), Vec::<String>::new());
    }
    if rustix::process::geteuid().is_root() {
        std::fs::write(pool.pool.namespace.join("programs").join("1234"), b"").unwrap();
        std::fs::remove_file(&path).unwrap();
        work_until_remarked(&mut orchestrator, &["user 1234", "belongs to another user"]);
    }
}

#[test]
fn a_program_with_another_clock_takes_no_part() {
    let pool = test_pool();
    let _orchestrator = Orchestrator::start(&pool.pool, &options("even", 500)).unwrap();
    request(&door(&pool.pool, "one"), 1, 0);
    let uid = rustix::process::geteuid().as_raw();
    let path = pool.pool.namespace.join("programs").join(uid.to_string());
    let page = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut bytes = vec![0; page.metadata().unwrap().len() as usize];
    std::os::unix::fs::FileExt::read_exact_at(&page, &mut bytes, 0).unwrap();
    let key = Identified::named(uid, b"one").key.0.to_ne_bytes();
    let at = bytes.windows(8).position(|word| word == key).unwrap() as u64;
    let last = |status: &stripewise_orchestrate::OrchestrationStatus| {
        (status.programs[0].is_busy, status.programs[0].traits.last_ns)
    };
    assert!(last(&orchestration_status(&pool.pool).unwrap()).1 > 0);
    // When it was heard of last stands behind its key, user, name and begin. An hour ahead it would be busy for an hour.
    let ahead_ns = stripewise_store::emulate::now_ns() + 3_600_000_000_000;
    std::os::unix::fs::FileExt::write_all_at(&page, &ahead_ns.to_ne_bytes(), at + 56).unwrap();
    assert_eq!(last(&orchestration_status(&pool.pool).unwrap()), (false, 0));
}

#[test]
fn the_page_that_all_users_read_has_no_figures_of_programs() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root makes a pool of several users");
        return;
    }
    for is_shared in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let tier = TierSpec { name: "hdd".into(), servers: vec![disk], ..TierSpec::default() };
        let (mount, namespace) = (dir.path().join("mount"), dir.path().join("namespace"));
        let spec = PoolSpec { name: "all".into(), mount, namespace, tiers: vec![tier], ..PoolSpec::default() };
        let make = if is_shared { Pool::init_shared } else { Pool::init };
        let pool = make(&dir.path().join("pool.toml"), &spec).unwrap();
        let mut orchestrator = Orchestrator::start(&pool, &options("even", 20)).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = Ends(&is_over);
            programs(scope, &pool, &["one", "two"], &is_over);
            // Root has its own programs' figures from its own page.
            work_until(&mut orchestrator, &pool, |status| {
                status.slices.len() == 2 && status.programs.iter().all(|one| one.reuse_ns.is_some())
            });
        });
        let own = std::fs::metadata(pool.namespace.join("programs").join("0")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&own) & 0o077, 0, "no other user reads a user's own page");
        let page = std::fs::read(pool.namespace.join("turns")).unwrap();
        let words = page.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()));
        let words: Vec<u64> = words.collect();
        let keys = [b"one", b"two"].map(|name| Identified::named(0, name).key.0);
        // A row of a program: key, standing, weight, limit, reuse distance.
        let rows: Vec<&[u64]> =
            words.windows(5).filter(|row| keys.contains(&row[0]) && f64::from_bits(row[2]) == 1.0).collect();
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(rows.iter().all(|row| f64::from_bits(row[4]).is_nan() == is_shared), "{rows:?}");
    }
}

#[test]
fn a_plan_for_a_program_that_is_not_there_holds_no_other() {
    let pool = test_pool();
    let mut pages = NodePages::open(&pool.pool, &this_node()).unwrap();
    let slice = |program, end_ns| TurnSlice { program: ProgramKey(program), end_ns };
    let now_ns = stripewise_store::emulate::now_ns();
    let window_ns = 10_000_000_000;
    let plan = SlicePlan { slices: vec![slice(0xfeed, window_ns)] };
    assert!(pages.put("even", PublishedPlan { plan, begin_ns: now_ns, window_ns, listed: Vec::new() }));
    let one = door(&pool.pool, "one");
    (0..100).for_each(|number| request(&one, 1, number * 4096));
    let status = orchestration_status(&pool.pool).unwrap();
    let traits = &status.programs[0].traits;
    assert_eq!((traits.requests, traits.held, traits.overdue), (100, 0, 0));
    assert_eq!(status.served.as_deref(), Some("000000000000feed"), "it is named by its key");
}

#[test]
fn a_program_waits_until_servers_are_done_with_the_one_before() {
    let pool = test_pool();
    let mut pages = NodePages::open(&pool.pool, &this_node()).unwrap();
    let key = |name: &str| Identified::named(rustix::process::geteuid().as_raw(), name.as_bytes()).key;
    let window_ns = 10_000_000_000;
    let put = |pages: &mut NodePages, programs: [&str; 2]| {
        let ends = [window_ns - 1, window_ns];
        let slices = programs.into_iter().zip(ends).map(|(name, end_ns)| TurnSlice { program: key(name), end_ns });
        let begin_ns = stripewise_store::emulate::now_ns();
        let plan = SlicePlan { slices: slices.collect() };
        assert!(pages.put("even", PublishedPlan { plan, begin_ns, window_ns, listed: Vec::new() }));
    };
    let read =
        Request { sender: Sender::this_process(Way::Library), action: Action::Read, offset: 0, len: 4096, rank: 0 };
    put(&mut pages, ["one", "two"]);
    let doors = ["one", "two"].map(|name| door(&pool.pool, name));
    doors[0].enter(FileId(1), &read);
    let of_one = doors[0].send(&read);
    // It is the other program's turn, and servers still have a request of the first.
    put(&mut pages, ["two", "one"]);
    let of_two = || {
        let status = orchestration_status(&pool.pool).unwrap();
        let found = status.programs.into_iter().find(|one| one.traits.name == "two");
        found.map_or((0, 0), |one| (one.traits.last_ns, one.traits.held))
    };
    let has_passed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            doors[1].enter(FileId(2), &read);
            has_passed.store(true, Ordering::SeqCst);
        });
        // One that waits says that it is there still.
        let begin = Instant::now();
        let mut looks = 0;
        let mut last_ns = 0;
        while looks < 5 {
            assert!(begin.elapsed() < PATIENCE && !has_passed.load(Ordering::SeqCst));
            let now_ns = of_two().0;
            looks += u32::from(now_ns != last_ns);
            last_ns = now_ns;
            std::thread::yield_now();
        }
        drop(of_one);
    });
    assert_eq!(of_two().1, 1, "it was held");
    // What comes in the same slice asks no more.
    let _of_one = doors[0].send(&read);
    doors[1].enter(FileId(2), &read);
    assert_eq!(of_two().1, 1);
}

#[test]
fn a_node_has_its_own_page_as_long_as_its_agent_is_there() {
    let pool = test_pool();
    let mut pages = NodePages::open(&pool.pool, &this_node()).unwrap();
    assert!(!is_orchestrated(&pool.pool), "no plan came yet");
    // The longest that there is: the plan holds on a machine that stands still for seconds.
    let window_ns = 10_000_000_000;
    let plan = |begin_ns| PublishedPlan { plan: SlicePlan::open(), begin_ns, window_ns, listed: Vec::new() };
    let now_ns = stripewise_store::emulate::now_ns;
    assert!(!pages.put("even", plan(now_ns() - 3 * window_ns)), "three windows old");
    // One that begins later is in force later.
    assert!(pages.put("even", plan(now_ns() + 3_600_000_000_000)));
    pages.tick();
    assert!(!is_orchestrated(&pool.pool) && pages.due_ns().is_some());
    assert!(pages.put("even", plan(now_ns())));
    assert!(is_orchestrated(&pool.pool) && pages.due_ns().is_none());
    assert_eq!(orchestration_status(&pool.pool).unwrap().policy.as_deref(), Some("even"));
    request(&door(&pool.pool, "one"), 1, 0);
    assert_eq!(pages.snapshot().programs[0].name, "one");
    let refused = Orchestrator::start(&pool.pool, &options("even", 500)).err().unwrap().to_string();
    assert!(refused.contains(&format!("an agent (process {})", std::process::id())), "{refused}");
    drop(pages);
    // The page of an agent that has ended, or was killed, is not in the way of an orchestrator.
    let _orchestrator = Orchestrator::start(&pool.pool, &options("none", 500)).unwrap();
    assert_eq!(orchestration_status(&pool.pool).unwrap().policy.as_deref(), Some("none"));
}
