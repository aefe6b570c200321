//! Between what pages say and what messages say. Each figure of another node is bounded here.

use stripewise_orchestrate::{
    ListedProgram, NodeSnapshot, PROGRAM_NAME_BYTES, ProgramTraits, PublishedPlan, ServerDone,
};
use stripewise_schedule::{
    FULL_STROKE_BYTES, MAX_SLICES, MAX_WINDOW_NS, MIN_WINDOW_NS, OTHERS, ProgramKey, ServerUseBy, SlicePlan, Standing,
    TurnSlice, UserTraffic,
};

use crate::error::{AgentError, Result};
use crate::wire::{Report, WireListed, WirePlan, WireProgram, WireServed, WireSlice, WireTraffic, WireUse};

/// Programs of a report: those that were heard of last.
const MOST_PROGRAMS: usize = 256;
/// Servers that a report has figures of, as pages have.
const MOST_SERVERS: usize = 128;
/// Users of a server in a report: those with most requests.
const MOST_USERS: usize = 64;
/// Programs of a plan with a weight, a limit or a standing, as pages have.
const MOST_LISTED: usize = 64;
/// No time between requests is longer than a day.
const MOST_NS: f64 = 86_400e9;
/// A name of 32 bytes, of which none is UTF-8.
const MOST_NAME_BYTES: usize = 3 * PROGRAM_NAME_BYTES;

const STANDINGS: [Standing; 4] = [Standing::Shared, Standing::Probe, Standing::Dedicated, Standing::Cooldown];

/// What a node's pages say, as of `now_ns` of its clock.
pub fn report_of(snapshot: &NodeSnapshot, now_ns: u64) -> Report {
    let mut latest: Vec<&ProgramTraits> = snapshot.programs.iter().collect();
    latest.sort_by_key(|one| std::cmp::Reverse(one.last_ns));
    let programs = latest.into_iter().take(MOST_PROGRAMS).map(|one| program_of(one, now_ns)).collect();
    let traffic = snapshot.traffic.iter().take(MOST_SERVERS).enumerate().flat_map(|(server, users)| {
        let mut most: Vec<&UserTraffic> = users.iter().collect();
        most.sort_by(|one, other| other.requests.total_cmp(&one.requests));
        let wire =
            |of: &UserTraffic| WireTraffic { server: server as u32, requests: of.requests, gap_bytes: of.gap_bytes };
        most.into_iter().take(MOST_USERS).map(wire).collect::<Vec<_>>()
    });
    let (traffic, unplaced) = (traffic.collect(), snapshot.unplaced);
    let done = snapshot.served.iter().enumerate().filter(|(_, done)| done.requests > 0).take(MOST_SERVERS);
    let wire = |(server, done): (usize, &ServerDone)| WireServed {
        server: server as u32,
        requests: done.requests,
        bytes: done.bytes,
    };
    Report { sent_ns: now_ns, programs, traffic, unplaced, served: done.map(wire).collect(), ..Report::default() }
}

fn program_of(one: &ProgramTraits, now_ns: u64) -> WireProgram {
    let wire = |by: &ServerUseBy| WireUse { server: by.server, gap_bytes: by.gap_bytes, reuse_ns: by.reuse_ns };
    WireProgram {
        key: one.key.0,
        name: one.name.clone(),
        processes: one.processes,
        files: one.files,
        first_age_ns: now_ns.saturating_sub(one.first_ns),
        last_age_ns: now_ns.saturating_sub(one.last_ns),
        requests: one.requests,
        bytes: one.bytes,
        held: one.held,
        waited_ns: one.waited_ns,
        in_turn: one.in_turn,
        unanswered: one.unanswered,
        overdue: one.overdue,
        period_ns: one.period_ns,
        burst_age_ns: now_ns.saturating_sub(one.burst_ns),
        uses: one.uses.iter().take(MOST_SERVERS).map(wire).collect(),
    }
}

/// What a report of a node says of a pool of `servers` servers, as of `now_ns` of this node's clock.
///
/// # Errors
/// It has more than a report may have, or a figure that is none.
pub fn snapshot_of(report: &Report, servers: usize, now_ns: u64) -> Result<NodeSnapshot> {
    let refused = |what: &str| Err(AgentError::NoMessage(format!("a report with {what}")));
    if report.programs.len() > MOST_PROGRAMS {
        return refused(&format!("{} programs; {MOST_PROGRAMS} is the most", report.programs.len()));
    }
    if report.traffic.len() > MOST_SERVERS * MOST_USERS {
        return refused(&format!("{} figures of traffic", report.traffic.len()));
    }
    if report.served.len() > MOST_SERVERS {
        return refused(&format!("figures of {} servers; {MOST_SERVERS} is the most", report.served.len()));
    }
    let (traffic, served) = (vec![Vec::new(); servers], vec![ServerDone::default(); servers]);
    let mut snapshot = NodeSnapshot { programs: Vec::new(), traffic, served, unplaced: report.unplaced };
    for one in &report.served {
        match snapshot.served.get_mut(one.server as usize) {
            Some(done) => *done = ServerDone { requests: one.requests, bytes: one.bytes },
            None => return refused(&format!("server {} of {servers}", one.server)),
        }
    }
    for one in &report.traffic {
        let (Some(requests), Some(gap_bytes)) = (figure(one.requests, 1e18), figure(one.gap_bytes, FULL_STROKE_BYTES))
        else {
            return refused("traffic that is no number");
        };
        match snapshot.traffic.get_mut(one.server as usize) {
            Some(users) => users.push(UserTraffic { requests, gap_bytes }),
            None => return refused(&format!("server {} of {servers}", one.server)),
        }
    }
    for one in &report.programs {
        if one.key == 0 || one.name.len() > MOST_NAME_BYTES || one.uses.len() > MOST_SERVERS {
            return refused("a program that is none");
        }
        snapshot.programs.push(traits_of(one, servers, now_ns)?);
    }
    Ok(snapshot)
}

fn traits_of(one: &WireProgram, servers: usize, now_ns: u64) -> Result<ProgramTraits> {
    let mut uses = Vec::with_capacity(one.uses.len());
    for by in &one.uses {
        let gap_bytes = figure(by.gap_bytes.into(), FULL_STROKE_BYTES).filter(|_| (by.server as usize) < servers);
        let Some(gap_bytes) = gap_bytes else {
            return Err(AgentError::NoMessage(format!("a report with figures of server {} that are none", by.server)));
        };
        let reuse_ns = figure(by.reuse_ns.into(), MOST_NS).map_or(f32::NAN, |reuse| reuse as f32);
        uses.push(ServerUseBy { server: by.server, gap_bytes: gap_bytes as f32, reuse_ns });
    }
    Ok(ProgramTraits {
        key: ProgramKey(one.key),
        name: one.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        uid: (one.key >> 32) as u32,
        processes: one.processes,
        files: one.files.min(64),
        first_ns: now_ns.saturating_sub(one.first_age_ns),
        last_ns: now_ns.saturating_sub(one.last_age_ns),
        requests: one.requests,
        bytes: one.bytes,
        held: one.held,
        waited_ns: one.waited_ns,
        in_turn: one.in_turn,
        unanswered: one.unanswered,
        overdue: one.overdue,
        period_ns: one.period_ns.and_then(|period| figure(period, MOST_NS)),
        burst_ns: now_ns.saturating_sub(one.burst_age_ns),
        uses,
    })
}

fn figure(value: f64, most: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value.min(most))
}

/// A plan, with the times of this node's clock.
pub fn wire_plan(policy: &str, plan: &PublishedPlan) -> WirePlan {
    let slice = |one: &TurnSlice| WireSlice { program: one.program.0, end_ns: one.end_ns };
    let listed = |one: &ListedProgram| WireListed {
        program: one.program.0,
        standing: one.standing.name().to_owned(),
        weight: one.weight,
        limit: one.limit,
        reuse_ns: one.reuse_ns,
    };
    WirePlan {
        policy: policy.to_owned(),
        begin_ns: plan.begin_ns,
        window_ns: plan.window_ns,
        slices: plan.plan.slices.iter().map(slice).collect(),
        listed: plan.listed.iter().take(MOST_LISTED).map(listed).collect(),
    }
}

/// The plan of a message, which begins at `begin_ns` of this node's clock.
///
/// # Errors
/// Its window is out of bounds, its slices are not in order, there are too many, or one is of a program of which it says nothing.
pub fn plan_of(wire: &WirePlan, begin_ns: u64) -> Result<PublishedPlan> {
    let refused = |what: String| Err(AgentError::NoMessage(format!("a plan with {what}")));
    if !(MIN_WINDOW_NS..=MAX_WINDOW_NS).contains(&wire.window_ns) {
        return refused(format!("a window of {} ns", wire.window_ns));
    }
    let ends: Vec<u64> = wire.slices.iter().map(|slice| slice.end_ns).collect();
    if ends.len() > MAX_SLICES || !ends.is_sorted() || ends.last().is_some_and(|end_ns| *end_ns > wire.window_ns) {
        return refused(format!("{} slices that are none of its window", ends.len()));
    }
    if wire.listed.len() > MOST_LISTED {
        return refused(format!("{} programs", wire.listed.len()));
    }
    // An orchestrator says something of each program that it gives a slice, if there is room.
    let is_listed =
        |slice: &&WireSlice| slice.program == OTHERS.0 || wire.listed.iter().any(|one| one.program == slice.program);
    if wire.listed.len() < MOST_LISTED
        && let Some(slice) = wire.slices.iter().find(|slice| !is_listed(slice))
    {
        return refused(format!("a slice for {}", ProgramKey(slice.program)));
    }
    let slices = wire.slices.iter().map(|one| TurnSlice { program: ProgramKey(one.program), end_ns: one.end_ns });
    let listed = wire.listed.iter().map(|one| ListedProgram {
        program: ProgramKey(one.program),
        standing: STANDINGS.into_iter().find(|standing| standing.name() == one.standing).unwrap_or(Standing::Shared),
        weight: figure(one.weight, 1000.0).unwrap_or(1.0),
        limit: one.limit,
        reuse_ns: one.reuse_ns.and_then(|reuse| figure(reuse, MOST_NS)),
    });
    let plan = SlicePlan { slices: slices.collect() };
    Ok(PublishedPlan { plan, begin_ns, window_ns: wire.window_ns, listed: listed.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits(key: u64) -> ProgramTraits {
        let uses = vec![ServerUseBy { server: 1, gap_bytes: 4096.0, reuse_ns: 5000.0 }];
        let named = ProgramTraits::named(ProgramKey(key), "sim");
        ProgramTraits { first_ns: 100, last_ns: 900, burst_ns: 500, requests: 3, uses, ..named }
    }

    #[test]
    fn a_report_comes_as_it_was_sent_by_the_other_clock() {
        let user = UserTraffic { requests: 3.0, gap_bytes: 10.0 };
        let traffic = vec![Vec::new(), vec![user]];
        let served = vec![ServerDone::default(), ServerDone { requests: 3, bytes: 4096 }];
        let sent = NodeSnapshot { programs: vec![traits(7 << 32 | 5)], traffic, served, unplaced: 2 };
        let report = report_of(&sent, 1000);
        let come = snapshot_of(&report, 2, 1_001_000).unwrap();
        let mut expected = sent.clone();
        (expected.programs[0].first_ns, expected.programs[0].last_ns) = (1_000_100, 1_000_900);
        (expected.programs[0].burst_ns, expected.programs[0].uid) = (1_000_500, 7);
        assert_eq!(come, expected);
        let refused = |report: &Report| snapshot_of(report, 2, 0).err().unwrap().to_string();
        let with = |change: fn(&mut Report)| {
            let mut changed = report.clone();
            change(&mut changed);
            refused(&changed)
        };
        assert!(snapshot_of(&report, 1, 0).unwrap_err().to_string().contains("server 1 of 1"));
        assert!(with(|of| of.served[0].server = 2).contains("server 2 of 2"));
        assert!(with(|of| of.served = vec![of.served[0].clone(); 129]).contains("129 servers"));
        assert!(with(|of| of.programs = vec![of.programs[0].clone(); 257]).contains("257 programs"));
        assert!(with(|of| of.programs[0].uses[0].server = 2).contains("server 2"));
        assert!(with(|of| of.programs[0].uses[0].gap_bytes = f32::NAN).contains("server 1"));
        assert!(with(|of| of.programs[0].name = "x".repeat(97)).contains("none"));
        assert!(with(|of| of.programs[0].key = 0).contains("none"));
        assert!(with(|of| of.traffic[0].requests = f64::INFINITY).contains("no number"));
    }

    #[test]
    fn what_is_most_fits_into_a_message() {
        let mut most = traits(u64::MAX);
        most.name = "\u{fffd}".repeat(PROGRAM_NAME_BYTES);
        most.uses = (0..200).map(|server| ServerUseBy { server, gap_bytes: 1.0, reuse_ns: 1.0 }).collect();
        let user = UserTraffic { requests: 1e9, gap_bytes: 1e9 };
        let traffic = vec![vec![user; 300]; 200];
        let served = vec![ServerDone { requests: u64::MAX, bytes: u64::MAX }; 200];
        let report = report_of(&NodeSnapshot { programs: vec![most; 300], traffic, served, unplaced: 0 }, u64::MAX);
        assert!(prost::Message::encoded_len(&report) < crate::wire::MESSAGE_BYTES - 1000);
        assert!(snapshot_of(&report, 200, 0).is_ok());
    }

    #[test]
    fn a_plan_that_is_none_is_refused() {
        let slice = |program, end_ns| TurnSlice { program: ProgramKey(program), end_ns };
        let plan = SlicePlan { slices: vec![slice(7, 1_000_000), slice(0, 2_000_000)] };
        let listed = ListedProgram {
            program: ProgramKey(7),
            standing: Standing::Dedicated,
            weight: 2.0,
            limit: 9,
            reuse_ns: Some(5.0),
        };
        let published = PublishedPlan { plan, begin_ns: 50, window_ns: 2_000_000, listed: vec![listed] };
        let wire = wire_plan("even", &published);
        assert_eq!(plan_of(&wire, 50).unwrap(), published);
        let refused = |change: fn(&mut WirePlan)| {
            let mut changed = wire.clone();
            change(&mut changed);
            assert!(plan_of(&changed, 50).is_err(), "{changed:?}");
        };
        refused(|of| of.window_ns = 0);
        refused(|of| of.listed.clear());
        refused(|of| of.window_ns = MAX_WINDOW_NS + 1);
        refused(|of| of.slices.swap(0, 1));
        refused(|of| of.slices[1].end_ns += 1);
        refused(|of| of.slices = vec![of.slices[0].clone(); MAX_SLICES + 1]);
        refused(|of| of.listed = vec![of.listed[0].clone(); MOST_LISTED + 1]);
    }
}
