//! Programs that take turns, on disks with a head.

use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Op, OpProfile, Profile, Queue, SeekCurve, SeekShape, Tier};
use stripewise_simulate::{
    ClosedLoop, Joined, JoinedPart, Packed, ProgramRules, ProgramTurns, SimulateError, SimulatedAccess, SimulatedStep,
    SimulationReport, Startup, StepProgram, System, TierDevice, run, run_observed,
};

const SERVERS: u16 = 2;
const REQUEST: u64 = 128 << 10;
const WINDOW_S: f64 = 0.2;
const FAR: u64 = 30_000_000_000;

fn cluster() -> Cluster {
    let op = OpProfile { startup_min_s: 1e-3, startup_max_s: 25e-3, transfer_s_per_byte: 1.0 / 80e6, head: None };
    let profile = Profile { read: op, write: op, network_s_per_byte: 0.0 };
    let servers = (0..SERVERS).map(ServerId).collect();
    let tier = Tier { name: "hdd".into(), servers, profile, capacity_bytes: None, in_turn: false, at_once: 1 };
    Cluster { tiers: vec![tier], meta: None }
}

/// Disks that come to a request at the next track in 1 ms and across all of it in 17 ms, in sweeps.
fn disks(turns: Option<ProgramTurns>) -> System {
    let curve = SeekCurve {
        sequential_s: 1e-4,
        settle_s: 1e-3,
        full_stroke_s: 17e-3,
        rotation_s: 8.3e-3,
        stroke_bytes: 500_000_000_000,
        shape: SeekShape::SquareRoot,
    };
    let device = TierDevice { queue: Queue::Elevator, startup: Startup::Seek { read: curve, write: curve } };
    System { devices: vec![device], file_starts: Some(vec![0, FAR]), turns, ..System::default() }
}

/// `processes` that read a file in order together, `requests` each, all one before any the next, with a pause before each of
/// `pause_s`.
fn in_order(processes: u64, requests: u64, pause_s: f64) -> Packed {
    let mut program = Packed::new();
    for process in 0..processes {
        program.push((0..requests).flat_map(|number| {
            let offset = (number * processes + process) * REQUEST;
            let access = SimulatedAccess { file: 0, offset, size: REQUEST, op: Op::Read, think_s: pause_s };
            [SimulatedStep::Access(access), SimulatedStep::Barrier]
        }));
    }
    program
}

fn layouts() -> Vec<Layout> {
    vec![Layout::striped((0..SERVERS).map(ServerId), 64 << 10).unwrap(); 2]
}

fn turns(policy: &str, joined: &Joined) -> Option<ProgramTurns> {
    Some(ProgramTurns {
        policy: policy.into(),
        window_s: WINDOW_S,
        program_of: joined.program_of(),
        names: vec!["one".into(), "two".into()],
        rules: ProgramRules::default(),
    })
}

fn two(programs: &[Packed; 2]) -> Joined<'_> {
    let part = |(steps, files)| JoinedPart { steps, files, begin_s: 0.0 };
    Joined::of([(&programs[0], &[0][..]), (&programs[1], &[1][..])].map(part).to_vec())
}

fn under(programs: &[Packed; 2], policy: &str) -> SimulationReport {
    let joined = two(programs);
    run(&cluster(), &layouts(), &joined, &disks(turns(policy, &joined)), 1).unwrap()
}

#[test]
fn the_policy_of_no_turns_changes_nothing() {
    let programs = [in_order(3, 60, 0.0), in_order(2, 60, 1e-3)];
    let plain = run(&cluster(), &layouts(), &two(&programs), &disks(None), 1).unwrap();
    let mut watched = under(&programs, "none");
    assert!(watched.turns.iter().all(|turns| turns.held == 0));
    (watched.turns, watched.events) = (plain.turns.clone(), plain.events);
    assert_eq!(watched, plain);
}

#[test]
fn programs_that_are_near_in_themselves_and_far_from_each_other_gain() {
    let programs = [in_order(1, 4000, 0.0), in_order(1, 4000, 0.0)];
    let plain = under(&programs, "none").outcome.throughput();
    let paced = under(&programs, "reuse-distance");
    assert!(paced.outcome.throughput() > 2.0 * plain, "{} {plain}", paced.outcome.throughput());
    assert!(paced.turns.iter().all(|turns| turns.held > 0 && turns.waited_s > 0.0));
    // Found by the same code with the same seed: the same to the nanosecond.
    assert_eq!(under(&programs, "reuse-distance"), paced);
}

#[test]
fn what_is_eligible_loses_less_than_two_windows_to_even_slices() {
    let programs = [in_order(1, 1000, 0.0), in_order(1, 1000, 0.0)];
    let [even_s, paced_s, plain_s] =
        ["even", "reuse-distance", "none"].map(|policy| under(&programs, policy).outcome.makespan_s);
    // Three quarters of a window are shared until turns are tried, and the last window may be one more.
    assert!(paced_s < even_s + 2.0 * WINDOW_S, "{paced_s} {even_s}, without turns {plain_s}");
    assert!(even_s + 5.0 * WINDOW_S < plain_s, "{even_s} {plain_s}");
}

#[test]
fn no_request_is_held_for_more_than_two_windows_under_any_policy() {
    let programs = [in_order(4, 150, 2e-3), in_order(3, 100, 150e-3)];
    for policy in ["none", "even", "reuse-distance", "set-10", "opportunity"] {
        let joined = two(&programs);
        let mut longest_s = 0.0_f64;
        let mut bytes = [0; 2];
        let observe = |process: u32, access: &SimulatedAccess, issued_s: f64, ended_s: f64| {
            longest_s = longest_s.max(ended_s - issued_s);
            bytes[usize::from(process >= 4)] += access.size;
        };
        let system = disks(turns(policy, &joined));
        run_observed(&cluster(), &layouts(), &joined, &system, 7, observe).unwrap();
        assert_eq!(bytes, [4 * 150 * REQUEST, 3 * 100 * REQUEST], "{policy}");
        // Two windows, one look more, and what waits in the queues of the disks.
        assert!(longest_s < 2.0 * WINDOW_S + 0.02 + 0.3, "{policy}: {longest_s}");
    }
}

#[test]
fn even_slices_are_held_to_whatever_that_costs() {
    let programs = [in_order(1, 2000, 0.0), in_order(1, 20, 0.2)];
    let alone = run(&cluster(), &layouts(), &two(&programs), &disks(None), 1).unwrap();
    let even = under(&programs, "even");
    let idle = under(&programs, "opportunity");
    assert!(even.turns[0].waited_s > 0.0);
    let first_s = |report: &SimulationReport| report.turns.first().map_or(0.0, |turns| turns.waited_s);
    // A program that is alone at work is not held by a policy that leaves no server idle, but for a window in which the
    // other has just been there.
    assert!(first_s(&idle) <= first_s(&even), "{} {}", first_s(&idle), first_s(&even));
    assert_eq!(even.outcome.read_bytes, alone.outcome.read_bytes);
}

/// Bytes of each program when the first of them ends, and when that is in seconds.
fn until_the_first_ends(programs: &[Packed; 2], policy: &str, rules: ProgramRules) -> ([u64; 2], f64) {
    let joined = two(programs);
    let turns = turns(policy, &joined).map(|turns| ProgramTurns { rules, ..turns });
    let (mut ends, mut last_s) = (Vec::new(), [0.0_f64; 2]);
    let observe = |process: u32, access: &SimulatedAccess, _: f64, ended_s: f64| {
        let program = usize::from(process as usize >= programs[0].processes());
        last_s[program] = last_s[program].max(ended_s);
        ends.push((ended_s, program, access.size));
    };
    run_observed(&cluster(), &layouts(), &joined, &disks(turns), 3, observe).unwrap();
    let first_s = last_s[0].min(last_s[1]);
    let moved = |program: usize| ends.iter().filter(|end| end.0 <= first_s && end.1 == program).map(|end| end.2).sum();
    ([moved(0), moved(1)], first_s)
}

#[test]
fn shares_follow_the_weights() {
    let programs = [in_order(1, 4000, 0.0), in_order(1, 4000, 0.0)];
    for policy in ["even", "opportunity", "reuse-distance"] {
        for (weight, least, most) in [(1.0, 0.8, 1.25), (3.0, 2.25, 4.0)] {
            let rules = ProgramRules { weights: [("one".to_owned(), weight)].into(), ..ProgramRules::default() };
            let ([one, two], _) = until_the_first_ends(&programs, policy, rules);
            let share = one as f64 / two as f64;
            assert!((least..most).contains(&share), "{policy} {weight}: {share}");
        }
    }
}

#[test]
fn a_light_program_whose_burst_goes_on_has_turns() {
    // A burst, a pause, and then requests of few bytes each behind a seek, for as long as the other has any.
    let mut light = Packed::new();
    light.push((0..40_000).map(|number| {
        let (offset, think_s) = ((number * 617 % 1000) << 20, if number == 4 { 0.3 } else { 0.0 });
        SimulatedStep::Access(SimulatedAccess { file: 0, offset, size: 4096, op: Op::Read, think_s })
    }));
    let programs = [in_order(1, 4000, 0.0), light];
    let rate = |policy| {
        let ([one, two], took_s) = until_the_first_ends(&programs, policy, ProgramRules::default());
        (one + two) as f64 / took_s
    };
    let (turns, plain) = (rate("opportunity"), rate("none"));
    assert!(turns > 1.5 * plain, "{turns} {plain}");
}

#[test]
fn a_limit_holds_a_program_to_its_rate_and_no_request_beyond_two_windows() {
    let programs = [in_order(2, 200, 0.0), in_order(2, 4000, 0.0)];
    let limit = 8 << 20;
    let limits = |limit| ProgramRules { limits: [("one".to_owned(), limit)].into(), ..ProgramRules::default() };
    let rate = |rules| {
        let ([one, _], took_s) = until_the_first_ends(&programs, "none", rules);
        one as f64 / took_s
    };
    let (free, held) = (rate(ProgramRules::default()), rate(limits(limit)));
    // Its first window passes freely, as in a pool.
    assert!(free > 1.5 * limit as f64 && held < 1.1 * limit as f64, "{free} {held}");
    assert!(held > 0.7 * limit as f64, "{held}");
    // A byte a second is two windows for each request of both processes.
    let ([one, _], took_s) = until_the_first_ends(&[in_order(2, 20, 0.0), in_order(1, 4000, 0.0)], "none", limits(1));
    assert!(one == 2 * 20 * REQUEST && took_s < 22.0 * 2.0 * WINDOW_S, "{one} {took_s}");
}

#[test]
fn what_is_no_plan_is_refused_with_its_name() {
    let programs = [in_order(1, 1, 0.0), in_order(1, 1, 0.0)];
    let joined = two(&programs);
    let asked = turns("even", &joined).unwrap();
    let refused =
        |turns: ProgramTurns| run(&cluster(), &layouts(), &joined, &disks(Some(turns)), 1).unwrap_err().to_string();
    let error = refused(ProgramTurns { policy: "odd".into(), ..asked.clone() });
    assert!(error.contains("'odd'") && error.contains("reuse-distance"), "{error}");
    let error = refused(ProgramTurns { window_s: 0.0, ..asked.clone() });
    assert!(error.contains("window") && error.contains('0'), "{error}");
    let error = refused(ProgramTurns { window_s: f64::NAN, ..asked.clone() });
    assert!(error.contains("window"), "{error}");
    let error = refused(ProgramTurns { program_of: vec![0, 2], ..asked.clone() });
    assert!(error.contains("2 programs for each of 2 processes"), "{error}");
    let rules = ProgramRules { weights: [("one".to_owned(), 0.0)].into(), ..ProgramRules::default() };
    let error = refused(ProgramTurns { rules, ..asked.clone() });
    assert!(error.contains("weight 0 of 'one'") && error.contains("0.001"), "{error}");
    let error = refused(ProgramTurns { program_of: vec![0], ..asked });
    assert!(error.contains("2 processes"), "{error}");
}

#[test]
fn programs_that_wait_for_each_other_for_good_are_found_under_turns() {
    let meets = |communicator| SimulatedStep::Collective { communicator, exchange_s: 0.0 };
    let access =
        SimulatedStep::Access(SimulatedAccess { file: 0, offset: 0, size: REQUEST, op: Op::Read, think_s: 0.0 });
    let workload = ClosedLoop { processes: vec![vec![access, meets(0), meets(1)], vec![access, meets(1), meets(0)]] };
    let asked = ProgramTurns {
        policy: "even".into(),
        window_s: WINDOW_S,
        program_of: vec![0; workload.processes()],
        names: vec!["one".into()],
        rules: ProgramRules::default(),
    };
    let error = run(&cluster(), &layouts(), &workload, &disks(Some(asked)), 1).unwrap_err();
    assert!(matches!(error, SimulateError::Deadlock { .. }), "{error}");
}
