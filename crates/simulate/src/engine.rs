//! The quick way: FIFO servers know the end of a sub-request as it arrives, so a request is two events at most.

use crate::draw::Draws;
use crate::error::SimulateError;
use crate::outcome::{Latency, ServerUse, SimulationOutcome};
use crate::places::Places;
use crate::workload::{ClosedLoop, SimulatedAccess, SimulatedStep};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use stripewise_layout::{Layout, MAX_OFFSET};
use stripewise_model::{Cluster, Op, Profile, RunEnds, head_position};

/// Where the network time of a profile is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// Added to beta: the device is held while its bytes travel (as the emulated servers do).
    #[default]
    InBeta,
    /// On a full-duplex FIFO link per server: after the device for reads, before it for writes.
    Link,
}

/// How to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SimulationOptions {
    /// Of the startup times.
    pub seed: u64,
    /// Where the network time is spent.
    pub network: Network,
}

/// A device with its links: what is free when, and what it did. FIFO needs no queue: a sub-request that arrives
/// starts when the device is next free, and arrivals are handled in order of time.
struct Server {
    profile: Profile,
    draws: Draws,
    ends: RunEnds,
    free_s: f64,
    link_in_free_s: f64,
    link_out_free_s: f64,
    used: ServerUse,
}

impl Server {
    /// Serves `bytes` at `position` that arrive at `now` and gives the time at which the device is done. O(1).
    #[inline]
    fn serve(&mut self, now: f64, op: Op, position: u64, bytes: u64, network: Network) -> f64 {
        let costs = self.profile.of(op);
        let mut per_byte = costs.transfer_s_per_byte;
        if network == Network::InBeta {
            per_byte += self.profile.network_s_per_byte;
        }
        let start = now.max(self.free_s);
        let drawn_s = self.draws.uniform(costs.startup_min_s, costs.startup_max_s);
        // Times are not negative, so their bits order as they do.
        let (mark, begun, ahead) = (start.to_bits(), now.to_bits(), costs.ahead_bytes());
        let adjacent = self.profile.has_head() && self.ends.take(position, bytes, mark, begun, ahead).1;
        let startup_s = if adjacent { costs.adjacent_startup_s(drawn_s) } else { drawn_s };
        let service = startup_s + bytes as f64 * per_byte;
        self.free_s = start + service;
        let taken = if op == Op::Write { &mut self.used.writes } else { &mut self.used.reads };
        taken.add(adjacent);
        // A trace may claim more bytes than there are.
        self.used.bytes = self.used.bytes.saturating_add(bytes);
        self.used.busy_s += service;
        self.used.waiting_s += start - now;
        self.free_s
    }

    /// Sends `bytes` that a read left ready at `now`. O(1).
    fn link_out(&mut self, now: f64, bytes: u64) -> f64 {
        let busy = bytes as f64 * self.profile.network_s_per_byte;
        self.link_out_free_s = now.max(self.link_out_free_s) + busy;
        self.used.link_out_busy_s += busy;
        self.link_out_free_s
    }

    /// Takes in `bytes` of a write sent at `now`. O(1).
    fn link_in(&mut self, now: f64, bytes: u64) -> f64 {
        let busy = bytes as f64 * self.profile.network_s_per_byte;
        self.link_in_free_s = now.max(self.link_in_free_s) + busy;
        self.used.link_in_busy_s += busy;
        self.link_in_free_s
    }
}

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A process takes its next step.
    Step { process: u32 },
    /// A process issues its current request, after its think time.
    Issue { process: u32 },
    /// The bytes of a write have passed the link of a server.
    Arrival { process: u32, server: u16, position: u64, bytes: u64 },
    /// A process asks the next server of those that its request asks in turn.
    Turn { process: u32 },
}

/// A process between events.
struct Process<'a> {
    steps: std::slice::Iter<'a, SimulatedStep>,
    current: Option<SimulatedAccess>,
    issued_s: f64,
    ends_s: f64,
    arrivals_left: u32,
    /// Of its request, what servers are still to be asked in turn, the last first: place, position and bytes.
    turns: Vec<(usize, u64, u64)>,
}

impl<'a> Process<'a> {
    fn new(steps: &'a [SimulatedStep]) -> Self {
        Self { steps: steps.iter(), current: None, issued_s: 0.0, ends_s: 0.0, arrivals_left: 0, turns: Vec::new() }
    }

    /// A part of the current request ends at `end_s`. When the request ends, if that was its last part.
    fn arrived(&mut self, end_s: f64) -> Option<f64> {
        self.ends_s = self.ends_s.max(end_s);
        self.arrivals_left -= 1;
        (self.arrivals_left == 0).then_some(self.ends_s)
    }
}

/// Times are finite and not negative, so their bits order as they do; the count makes ties first come, first served.
struct Agenda {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
}

impl Agenda {
    #[inline]
    fn at(&mut self, time_s: f64, event: Event) {
        self.count += 1;
        self.heap.push(Reverse((time_s.to_bits(), self.count, event)));
    }
}

/// Runs `workload` under `layouts[i]` for file `i`.
///
/// # Errors
/// A layout names a server that no tier has, or a step that cannot be done (see [`SimulateError`]); all are found
/// before anything runs.
///
/// # Cost
/// O(log processes + stripes of the regions touched) a request, no allocation for up to 16 sub-requests of a request;
/// 8 bytes of memory a request for the percentiles.
pub fn simulate(
    cluster: &Cluster,
    layouts: &[Layout],
    workload: &ClosedLoop,
    options: &SimulationOptions,
) -> Result<SimulationOutcome, SimulateError> {
    simulate_observed(cluster, layouts, workload, options, |_, _, _, _| ())
}

/// [`simulate`] that tells `observe` of every request of more than 0 bytes as it ends: the number of its process, the
/// request, and when it was issued and ended, in seconds.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_observed(
    cluster: &Cluster,
    layouts: &[Layout],
    workload: &ClosedLoop,
    options: &SimulationOptions,
    mut observe: impl FnMut(u32, &SimulatedAccess, f64, f64),
) -> Result<SimulationOutcome, SimulateError> {
    let places = Places::new(cluster, layouts)?;
    let mut servers = servers_of(&places, options.seed);
    check(layouts, workload)?;
    let mut agenda = Agenda { heap: BinaryHeap::with_capacity(2 * workload.processes.len()), count: 0 };
    let mut processes: Vec<Process> = workload.processes.iter().map(|steps| Process::new(steps)).collect();
    (0..processes.len() as u32).for_each(|process| agenda.at(0.0, Event::Step { process }));
    let mut live = processes.len();
    let mut at_barrier: Vec<u32> = Vec::new();
    let mut latencies = Vec::with_capacity(workload.requests());
    let (mut makespan_s, mut read_bytes, mut written_bytes) = (0.0_f64, 0, 0);
    let mut barriers_s = Vec::new();
    while let Some(Reverse((bits, _, event))) = agenda.heap.pop() {
        let now = f64::from_bits(bits);
        match event {
            Event::Step { process } => {
                let state = &mut processes[process as usize];
                if let Some(done) = state.current.take() {
                    if done.size > 0 {
                        latencies.push(now - state.issued_s);
                        observe(process, &done, state.issued_s, now);
                    }
                    match done.op {
                        Op::Read => read_bytes = u64::saturating_add(read_bytes, done.size),
                        Op::Write => written_bytes = u64::saturating_add(written_bytes, done.size),
                    }
                }
                match state.steps.next() {
                    Some(SimulatedStep::Access(access)) => {
                        state.current = Some(*access);
                        if access.think_s > 0.0 {
                            agenda.at(now + access.think_s, Event::Issue { process });
                        } else {
                            issue(now, process, state, (&mut servers, &places), layouts, &mut agenda, options.network);
                        }
                    }
                    Some(SimulatedStep::Barrier) => at_barrier.push(process),
                    Some(SimulatedStep::Collective { .. } | SimulatedStep::Metadata(_)) => unreachable!("checked"),
                    None => {
                        live -= 1;
                        makespan_s = now;
                    }
                }
                if live > 0 && at_barrier.len() == live {
                    barriers_s.push(now);
                    at_barrier.drain(..).for_each(|process| agenda.at(now, Event::Step { process }));
                }
            }
            Event::Issue { process } => {
                let state = &mut processes[process as usize];
                issue(now, process, state, (&mut servers, &places), layouts, &mut agenda, options.network);
            }
            Event::Arrival { process, server, position, bytes } => {
                let (state, asked) = (&mut processes[process as usize], (usize::from(server), position, bytes));
                arrive(now, process, asked, state, (&mut servers, &places), &mut agenda, options.network);
            }
            Event::Turn { process } => {
                let state = &mut processes[process as usize];
                ask_next(now, process, state, &mut servers, &mut agenda, options.network);
            }
        }
    }
    Ok(SimulationOutcome {
        makespan_s,
        read_bytes,
        written_bytes,
        servers: servers.into_iter().map(|server| server.map_or_else(ServerUse::default, |s| s.used)).collect(),
        has_meta: places.meta.is_some(),
        latency: Latency::of(&mut latencies),
        barriers_s,
    })
}

/// Sends the sub-requests of the current request on their way, and the process to its next step if their ends are
/// known already.
fn issue(
    now: f64,
    process: u32,
    state: &mut Process,
    (servers, places): (&mut [Option<Server>], &Places),
    layouts: &[Layout],
    agenda: &mut Agenda,
    network: Network,
) {
    let access = state.current.expect("a process issues its current request");
    state.issued_s = now;
    state.ends_s = now;
    for sub in &layouts[access.file as usize].split(access.offset, access.size) {
        let index = places.index(sub.server);
        let asked = (index, head_position(u64::from(access.file), sub.datafile_offset), sub.len);
        if places.is_in_turn(index) {
            state.turns.push(asked);
        } else if let Some(end_s) = ask(now, process, asked, access.op, servers, agenda, network) {
            state.ends_s = state.ends_s.max(end_s);
        } else {
            state.arrivals_left += 1;
        }
    }
    if !state.turns.is_empty() {
        state.turns.reverse();
        state.arrivals_left += 1;
        ask_next(now, process, state, servers, agenda, network);
    } else if state.arrivals_left == 0 {
        agenda.at(state.ends_s, Event::Step { process });
    }
}

/// Asks the server at its place for bytes at a position. When it is done, unless the bytes have to arrive first.
fn ask(
    now: f64,
    process: u32,
    (index, position, bytes): (usize, u64, u64),
    op: Op,
    servers: &mut [Option<Server>],
    agenda: &mut Agenda,
    network: Network,
) -> Option<f64> {
    let server = servers[index].as_mut().expect("checked");
    match (network, op) {
        (Network::InBeta, op) => Some(server.serve(now, op, position, bytes, network)),
        (Network::Link, Op::Read) => {
            let ready = server.serve(now, Op::Read, position, bytes, network);
            Some(server.link_out(ready, bytes))
        }
        (Network::Link, Op::Write) => {
            let arrives = server.link_in(now, bytes);
            agenda.at(arrives, Event::Arrival { process, server: index as u16, position, bytes });
            None
        }
    }
}

/// The server at its place has the bytes that are to be written at a position.
fn arrive(
    now: f64,
    process: u32,
    (index, position, bytes): (usize, u64, u64),
    state: &mut Process,
    (servers, places): (&mut [Option<Server>], &Places),
    agenda: &mut Agenda,
    network: Network,
) {
    let end_s = servers[index].as_mut().expect("checked").serve(now, Op::Write, position, bytes, network);
    if places.is_in_turn(index) {
        agenda.at(end_s, Event::Turn { process });
    } else if let Some(ends_s) = state.arrived(end_s) {
        agenda.at(ends_s, Event::Step { process });
    }
}

/// Asks the next of the servers that are asked in turn, now that the one before is done; after the last one they all are.
fn ask_next(
    now: f64,
    process: u32,
    state: &mut Process,
    servers: &mut [Option<Server>],
    agenda: &mut Agenda,
    network: Network,
) {
    let op = state.current.expect("a process issues its current request").op;
    if let Some(next) = state.turns.pop() {
        if let Some(end_s) = ask(now, process, next, op, servers, agenda, network) {
            agenda.at(end_s, Event::Turn { process });
        }
    } else if let Some(ends_s) = state.arrived(now) {
        agenda.at(ends_s, Event::Step { process });
    }
}

/// The servers by place; `None` where the cluster has no server of that number.
fn servers_of(places: &Places, seed: u64) -> Vec<Option<Server>> {
    let server = |(index, of): (usize, &Option<(usize, Profile)>)| {
        of.map(|(_, profile)| Server {
            profile,
            draws: Draws::new(seed, index),
            ends: RunEnds::default(),
            free_s: 0.0,
            link_in_free_s: 0.0,
            link_out_free_s: 0.0,
            used: ServerUse::default(),
        })
    };
    places.of.iter().enumerate().map(server).collect()
}

fn check(layouts: &[Layout], workload: &ClosedLoop) -> Result<(), SimulateError> {
    for (process, steps) in workload.processes.iter().enumerate() {
        for step in steps {
            match step {
                SimulatedStep::Access(access) => check_access(process, access, layouts.len())?,
                SimulatedStep::Barrier => {}
                SimulatedStep::Collective { .. } => {
                    return Err(SimulateError::NeedsRun { process, step: "collective" });
                }
                SimulatedStep::Metadata(_) => return Err(SimulateError::NeedsRun { process, step: "metadata" }),
            }
        }
    }
    Ok(())
}

/// # Errors
/// The first thing that is wrong with a request of process `process`, where there are `layouts` files. O(1).
#[inline]
pub(crate) fn check_access(process: usize, access: &SimulatedAccess, layouts: usize) -> Result<(), SimulateError> {
    if access.file as usize >= layouts {
        return Err(SimulateError::NoLayout { process, file: access.file, layouts });
    }
    if access.offset.checked_add(access.size).is_none_or(|end| end > MAX_OFFSET + 1) {
        return Err(SimulateError::BeyondEnd { process, offset: access.offset, size: access.size });
    }
    if !(access.think_s >= 0.0 && access.think_s.is_finite()) {
        return Err(SimulateError::Think { process, think_s: access.think_s });
    }
    Ok(())
}
