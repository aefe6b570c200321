//! What a trace says of waiting, made meetings and barriers; what a run did comes out again.

use proptest::prelude::*;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Op, presets};
use stripewise_simulate::{
    ClosedLoop, Did, Replayed, SimulatedAccess, SimulatedStep, StepProgram, System, What, replay, run_observed,
};

fn read(offset: u64) -> What {
    What::Access(SimulatedAccess { file: 0, offset, size: 10, op: Op::Read, think_s: 0.0 })
}

fn did(start_ns: u64, end_ns: u64, what: What) -> Did {
    Did { start_ns, end_ns, what }
}

fn call(start_ns: u64, end_ns: u64) -> Did {
    did(start_ns, end_ns, What::Call { group: 0, kind: 4, data: true, access: None })
}

/// The steps of each thread in a letter each: r(ead), m(eet), b(arrier), and the think times.
fn steps(replayed: &Replayed) -> Vec<(String, Vec<u64>)> {
    let program = &replayed.program;
    let thread = |process| {
        let mut at = program.start(process, 0);
        let (mut text, mut thought) = (String::new(), Vec::new());
        while let Some(step) = program.next(&mut at) {
            match step {
                SimulatedStep::Access(access) => {
                    text.push(if access.size == 0 { 't' } else { 'r' });
                    thought.push((access.think_s * 1e9).round() as u64);
                }
                SimulatedStep::Barrier => text.push('b'),
                SimulatedStep::Collective { .. } => text.push('m'),
                SimulatedStep::Metadata(_) => text.push('o'),
            }
        }
        (text, thought)
    };
    (0..program.processes() as u32).map(thread).collect()
}

fn letters(threads: Vec<Vec<Did>>, cuts_ns: &[u64]) -> (Vec<String>, usize) {
    let replayed = replay(threads, cuts_ns, false);
    (steps(&replayed).into_iter().map(|thread| thread.0).collect(), replayed.calls)
}

#[test]
fn callers_meet_where_the_times_allow_it() {
    // An aggregator writes for both; the other one leaves after it.
    let two_phase = vec![vec![call(0, 30), did(12, 28, read(0))], vec![call(10, 29)]];
    assert_eq!(letters(two_phase, &[]), (vec!["mrm".into(), "mm".into()], 1));
    // Each reads its own; the second leaves before the first has read.
    let own = vec![vec![call(0, 30), did(12, 29, read(0))], vec![call(10, 20), did(13, 19, read(10))]];
    assert_eq!(letters(own, &[]), (vec!["mr".into(), "mr".into()], 1));
    // The first reads before the second has come: neither waited, then or later.
    let alone = vec![vec![call(0, 30), did(5, 29, read(0))], vec![call(10, 20), did(13, 19, read(10))]];
    assert_eq!(letters(alone, &[]), (vec!["r".into(), "r".into()], 1));
    // Calls of two pairs that were never in one call: two calls.
    let pairs = vec![vec![call(0, 9)], vec![call(1, 8)], vec![call(20, 29)], vec![call(21, 28)]];
    assert_eq!(letters(pairs, &[]).1, 2);
    // One was made more often than the other: a call without a partner waits for no other.
    let more = vec![vec![call(0, 9), call(10, 12), did(10, 11, read(0))], vec![call(1, 8)]];
    assert_eq!(letters(more, &[]), (vec!["mmr".into(), "mm".into()], 2));
}

#[test]
fn a_call_without_requests_below_brings_its_own() {
    let own = |offset| {
        let access = SimulatedAccess { file: 0, offset, size: 10, op: Op::Write, think_s: 0.0 };
        What::Call { group: 0, kind: 4, data: true, access: Some(access) }
    };
    let threads = vec![vec![did(0, 30, own(0))], vec![did(10, 29, own(10))]];
    assert_eq!(letters(threads, &[]), (vec!["mrm".into(), "mrm".into()], 1));
}

#[test]
fn barriers_are_where_nothing_is_under_way() {
    let quiet = vec![vec![did(0, 10, read(0)), did(20, 30, read(0))], vec![did(0, 18, read(0)), did(21, 30, read(0))]];
    assert_eq!(letters(quiet.clone(), &[20]).0, ["rbr", "rbr"]);
    // A cut that statistics put a request too late.
    assert_eq!(letters(quiet, &[21]).0, ["rbr", "rbr"]);
    let busy = vec![vec![did(0, 10, read(0)), did(20, 30, read(0))], vec![did(0, 22, read(0)), did(22, 30, read(0))]];
    assert_eq!(letters(busy, &[20]).0, ["rr", "rr"]);
    let single = vec![vec![did(0, 10, read(0)), did(20, 30, read(0))]];
    assert_eq!(letters(single, &[20]).0, ["rr"]);
}

#[test]
fn waiting_is_no_thinking() {
    // Thread 0 computes for 5 before the call, which the other comes to at 40; the exchange takes 3, and 1 after it.
    let threads = vec![
        vec![did(0, 10, read(0)), call(15, 61), did(43, 60, read(0)), did(70, 80, read(0))],
        vec![did(0, 10, read(0)), call(40, 61), did(61, 70, read(0))],
    ];
    let thought = |think| steps(&replay(threads.clone(), &[], think)).into_iter().collect::<Vec<_>>();
    assert_eq!(thought(true), [("rtmrmr".into(), vec![0, 5, 3, 10]), ("rtmmr".into(), vec![0, 30, 1])]);
    assert_eq!(thought(false), [("rmrmr".into(), vec![0, 0, 0]), ("rmmr".into(), vec![0, 0])]);
}

/// Requests before a call and below it of each process, and whether all leave it together.
type Round = (Vec<(u8, u8)>, bool);

proptest! {
    /// What a run did, taken down as a trace would be, is done again to the nanosecond.
    #[test]
    fn a_recorded_run_comes_out_again(
        rounds in prop::collection::vec((prop::collection::vec((1..3_u8, 0..3_u8), 4), any::<bool>()), 1..6),
        thinks in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let rounds: Vec<Round> = rounds;
        let meet = SimulatedStep::Collective { communicator: 0, exchange_s: 0.0 };
        let mut number = seed;
        let mut access = || {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let think_s = if thinks { ((number >> 40) % 5_000_000) as f64 * 1e-9 } else { 0.0 };
            SimulatedStep::Access(SimulatedAccess { file: 0, offset: (number >> 20) % (1 << 24), size: 1 + (number >> 33) % 200_000, op: Op::Read, think_s })
        };
        let mut processes = vec![Vec::new(); 4];
        for (of, together) in &rounds {
            for (steps, &(before, below)) in processes.iter_mut().zip(of) {
                steps.extend((0..before).map(|_| access()));
                steps.push(meet);
                steps.extend((0..below).map(|_| access()));
                steps.extend(together.then_some(meet));
            }
        }
        for steps in &mut processes {
            steps.push(access());
        }
        // A trace begins with its first request.
        if let Some(SimulatedStep::Access(first)) = processes[0].first_mut() {
            first.think_s = 0.0;
        }
        let (cluster, system) = (presets::set_p(3, 1, false), System::default());
        let layouts = [Layout::striped((0..4).map(ServerId), 64 << 10).unwrap()];
        let ns = |s: f64| (s * 1e9).round() as u64;
        let mut dids = vec![Vec::new(); 4];
        let take_down = |process: u32, access: &SimulatedAccess, issued_s: f64, ended_s: f64| {
            let what = What::Access(SimulatedAccess { think_s: 0.0, ..*access });
            dids[process as usize].push(did(ns(issued_s), ns(ended_s), what));
        };
        let workload = ClosedLoop { processes };
        let recorded = run_observed(&cluster, &layouts, &workload, &system, 1, take_down).unwrap();
        let requests = dids.clone();
        for (process, dids) in dids.iter_mut().enumerate() {
            // A call lasts from the end of the last request before it to the begin of the next one after it.
            let mut at = 0;
            for (of, _) in &rounds {
                let (before, below) = of[process];
                at += usize::from(before);
                let calls = call(dids[at - 1].end_ns, dids[at + usize::from(below)].start_ns);
                at += usize::from(below);
                dids.push(calls);
            }
        }
        let replayed = replay(dids, &[], thinks);
        prop_assert_eq!(replayed.calls, rounds.len());
        let mut again = vec![Vec::new(); 4];
        let take_down = |process: u32, access: &SimulatedAccess, issued_s: f64, ended_s: f64| {
            let what = What::Access(SimulatedAccess { think_s: 0.0, ..*access });
            again[process as usize].push(did(ns(issued_s), ns(ended_s), what));
        };
        let report = run_observed(&cluster, &layouts, &replayed.program, &system, 1, take_down).unwrap();
        prop_assert_eq!(again, requests);
        prop_assert_eq!(report.outcome.makespan_s, recorded.outcome.makespan_s);
    }
}
