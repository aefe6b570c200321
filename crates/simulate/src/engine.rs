//! The quick way: FIFO servers know the end of a sub-request as it arrives, so a request is two events at most. At one time
//! writes come from links first, then processes go on in an order that the time makes ([`Ties`]).

use crate::agenda::{Agenda, EventKind};
use crate::draw::{Draws, Ties};
use crate::error::SimulateError;
use crate::outcome::{Latency, ServerUse, SimulationOutcome};
use crate::places::Places;
use crate::workload::{ClosedLoop, SimulatedAccess, SimulatedStep};
use std::collections::VecDeque;
use stripewise_layout::{Layout, MAX_OFFSET};
use stripewise_model::{Cluster, Op, OpProfile, Profile, RunEnds, head_position};

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

/// What one operation costs at a server, the network in it or not.
#[derive(Clone, Copy)]
struct Cost {
    of: OpProfile,
    s_per_byte: f64,
}

/// A device with its links: what is free when, and what it did. FIFO needs no queue: a sub-request that arrives
/// starts when the device is next free, and arrivals are handled in order of time.
struct Server {
    read: Cost,
    write: Cost,
    draws: Draws,
    free_s: f64,
    /// Of one that serves several side by side: until when each place but that of `free_s`, the first to be free, is taken.
    others_free_s: Vec<f64>,
    /// Of a server with a head.
    ends: Option<Box<RunEnds>>,
    used: ServerUse,
    link_s_per_byte: f64,
    link_in_free_s: f64,
    link_out_free_s: f64,
    /// What comes through the link, in order.
    on_link: VecDeque<Sub>,
}

/// A sub-request at its server.
#[derive(Clone, Copy)]
struct Sub {
    process: u32,
    position: u64,
    bytes: u64,
}

impl Server {
    fn new(profile: &Profile, at_once: u32, draws: Draws, network: Network) -> Self {
        let in_beta = if network == Network::InBeta { profile.network_s_per_byte } else { 0.0 };
        let cost = |op: Op| {
            let of = *profile.of(op);
            Cost { of, s_per_byte: of.transfer_s_per_byte + in_beta }
        };
        Self {
            read: cost(Op::Read),
            write: cost(Op::Write),
            draws,
            free_s: 0.0,
            others_free_s: vec![0.0; at_once as usize - 1],
            ends: profile.has_head().then(Box::default),
            used: ServerUse::default(),
            link_s_per_byte: profile.network_s_per_byte,
            link_in_free_s: 0.0,
            link_out_free_s: 0.0,
            on_link: VecDeque::new(),
        }
    }

    /// Serves a sub-request that arrives at `now` and gives the time at which the device is done. O(places side by side).
    #[inline]
    fn serve(&mut self, now: f64, op: Op, sub: Sub) -> f64 {
        let cost = if op == Op::Write { &self.write } else { &self.read };
        let start = now.max(self.free_s);
        let mut startup_s = self.draws.uniform(cost.of.startup_min_s, cost.of.startup_max_s);
        let mut adjacent = false;
        if let Some(ends) = &mut self.ends {
            // Times are not negative, so their bits order as they do.
            let (mark, begun) = (start.to_bits(), now.to_bits());
            adjacent = ends.take(sub.position, sub.bytes, mark, begun, cost.of.ahead_bytes()).1;
            startup_s = if adjacent { cost.of.adjacent_startup_s(startup_s) } else { startup_s };
        }
        let service = startup_s + sub.bytes as f64 * cost.s_per_byte;
        let ends_s = start + service;
        self.free_s = ends_s;
        if let Some(first) = self.others_free_s.iter_mut().min_by(|a, b| a.total_cmp(b))
            && *first < ends_s
        {
            std::mem::swap(first, &mut self.free_s);
        }
        let taken = if op == Op::Write { &mut self.used.writes } else { &mut self.used.reads };
        taken.add(adjacent);
        // A trace may claim more bytes than there are.
        self.used.bytes = self.used.bytes.saturating_add(sub.bytes);
        self.used.busy_s += service;
        self.used.waiting_s += start - now;
        ends_s
    }

    /// Sends `bytes` that a read left ready at `now`. O(1).
    fn link_out(&mut self, now: f64, bytes: u64) -> f64 {
        let busy = bytes as f64 * self.link_s_per_byte;
        self.link_out_free_s = now.max(self.link_out_free_s) + busy;
        self.used.link_out_busy_s += busy;
        self.link_out_free_s
    }

    /// Takes in a write sent at `now`. O(1).
    fn link_in(&mut self, now: f64, sub: Sub) -> f64 {
        let busy = sub.bytes as f64 * self.link_s_per_byte;
        self.link_in_free_s = now.max(self.link_in_free_s) + busy;
        self.used.link_in_busy_s += busy;
        self.on_link.push_back(sub);
        self.link_in_free_s
    }
}

/// What a process does when it is woken.
#[derive(Clone, Copy)]
enum Then {
    /// Takes its next step.
    Step,
    /// Issues its current request, after its think time.
    Issue,
    /// Asks the next server of those that its request asks in turn.
    Turn,
}

/// A process between events.
struct Process<'a> {
    steps: std::slice::Iter<'a, SimulatedStep>,
    current: Option<SimulatedAccess>,
    then: Then,
    arrivals_left: u32,
    issued_s: f64,
    ends_s: f64,
    /// Of its request, what servers are still to be asked in turn, the last first, with their places.
    turns: Vec<(usize, Sub)>,
}

impl<'a> Process<'a> {
    fn new(steps: &'a [SimulatedStep]) -> Self {
        let (steps, turns) = (steps.iter(), Vec::new());
        Self { steps, current: None, then: Then::Step, arrivals_left: 0, issued_s: 0.0, ends_s: 0.0, turns }
    }

    /// A part of the current request ends at `end_s`. When the request ends, if that was its last part.
    fn arrived(&mut self, end_s: f64) -> Option<f64> {
        self.ends_s = self.ends_s.max(end_s);
        self.arrivals_left -= 1;
        (self.arrivals_left == 0).then_some(self.ends_s)
    }
}

/// Everything that requests meet.
struct Run<'a> {
    layouts: &'a [Layout],
    places: Places,
    network: Network,
    /// Whether any server has a head, so that positions matter.
    has_heads: bool,
    servers: Vec<Option<Server>>,
    agenda: Agenda,
    processes: Vec<Process<'a>>,
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
    let mut run = Run::new(cluster, layouts, workload, options)?;
    let mut live = run.processes.len();
    (0..live as u32).for_each(|process| run.wake(0.0, process, Then::Step));
    let mut at_barrier: Vec<u32> = Vec::new();
    let mut latencies = Vec::with_capacity(workload.requests());
    let (mut makespan_s, mut read_bytes, mut written_bytes) = (0.0_f64, 0, 0);
    let mut barriers_s = Vec::new();
    while let Some((bits, kind, number)) = run.agenda.next() {
        let now = f64::from_bits(bits);
        if kind == EventKind::ServerIn {
            run.arrive(now, number as usize);
            continue;
        }
        let (process, state) = (number, &mut run.processes[number as usize]);
        match state.then {
            Then::Step => {
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
                            run.wake(now + access.think_s, process, Then::Issue);
                        } else {
                            run.issue(now, process);
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
                    at_barrier.drain(..).for_each(|process| run.wake(now, process, Then::Step));
                }
            }
            Then::Issue => run.issue(now, process),
            Then::Turn => run.ask_next(now, process),
        }
    }
    Ok(SimulationOutcome {
        makespan_s,
        read_bytes,
        written_bytes,
        servers: run.servers.into_iter().map(|server| server.map_or_else(ServerUse::default, |s| s.used)).collect(),
        has_meta: run.places.meta.is_some(),
        latency: Latency::of(&mut latencies),
        barriers_s,
    })
}

impl<'a> Run<'a> {
    fn new(
        cluster: &Cluster,
        layouts: &'a [Layout],
        workload: &'a ClosedLoop,
        options: &SimulationOptions,
    ) -> Result<Self, SimulateError> {
        let places = Places::new(cluster, layouts)?;
        check(layouts, workload)?;
        let server = |(index, of): (usize, &Option<(usize, Profile)>)| {
            let at_once = if places.meta == Some(index) { places.at_once } else { 1 };
            of.map(|(_, profile)| Server::new(&profile, at_once, Draws::new(options.seed, index), options.network))
        };
        Ok(Self {
            layouts,
            network: options.network,
            has_heads: cluster.has_heads(),
            servers: places.of.iter().enumerate().map(server).collect(),
            places,
            agenda: Agenda::new(Ties::new(options.seed)),
            processes: workload.processes.iter().map(|steps| Process::new(steps)).collect(),
        })
    }

    /// `process` goes on at `time_s`. It waits for one thing at a time.
    #[inline]
    fn wake(&mut self, time_s: f64, process: u32, then: Then) {
        self.processes[process as usize].then = then;
        self.agenda.at_s(time_s, EventKind::Wake, process);
    }

    /// Sends the sub-requests of the current request of `process` on their way, and the process to its next step if their
    /// ends are known already.
    fn issue(&mut self, now: f64, process: u32) {
        let access = self.processes[process as usize].current.expect("a process issues its current request");
        let (layouts, mut ends_s, mut arrivals) = (self.layouts, now, 0);
        layouts[access.file as usize].for_each_sub(access.offset, access.size, |sub| {
            let index = self.places.index(sub.server);
            // Without heads no place on a disk is nearer than another.
            let position = if self.has_heads { head_position(u64::from(access.file), sub.datafile_offset) } else { 0 };
            let asked = Sub { process, position, bytes: sub.len };
            if self.places.is_in_turn(index) {
                self.processes[process as usize].turns.push((index, asked));
            } else if let Some(end_s) = self.ask(now, index, asked, access.op) {
                ends_s = ends_s.max(end_s);
            } else {
                arrivals += 1;
            }
        });
        let state = &mut self.processes[process as usize];
        (state.issued_s, state.ends_s, state.arrivals_left) = (now, ends_s, arrivals);
        if !state.turns.is_empty() {
            state.turns.reverse();
            state.arrivals_left += 1;
            self.ask_next(now, process);
        } else if arrivals == 0 {
            self.wake(ends_s, process, Then::Step);
        }
    }

    /// Asks the server at its place. When it is done, unless the bytes have to arrive first.
    #[inline]
    fn ask(&mut self, now: f64, index: usize, sub: Sub, op: Op) -> Option<f64> {
        let server = self.servers[index].as_mut().expect("checked");
        match (self.network, op) {
            (Network::InBeta, op) => Some(server.serve(now, op, sub)),
            (Network::Link, Op::Read) => {
                let ready = server.serve(now, Op::Read, sub);
                Some(server.link_out(ready, sub.bytes))
            }
            (Network::Link, Op::Write) => {
                let arrives = server.link_in(now, sub);
                self.agenda.at_s(arrives, EventKind::ServerIn, index as u32);
                None
            }
        }
    }

    /// The server at its place has the bytes of the first write on its link.
    fn arrive(&mut self, now: f64, index: usize) {
        let server = self.servers[index].as_mut().expect("checked");
        let sub = server.on_link.pop_front().expect("an event of a link that sends");
        let end_s = server.serve(now, Op::Write, sub);
        if self.places.is_in_turn(index) {
            self.wake(end_s, sub.process, Then::Turn);
        } else if let Some(ends_s) = self.processes[sub.process as usize].arrived(end_s) {
            self.wake(ends_s, sub.process, Then::Step);
        }
    }

    /// Asks the next of the servers that are asked in turn, now that the one before is done; after the last one they all
    /// are.
    fn ask_next(&mut self, now: f64, process: u32) {
        let state = &mut self.processes[process as usize];
        let op = state.current.expect("a process issues its current request").op;
        if let Some((index, sub)) = state.turns.pop() {
            if let Some(end_s) = self.ask(now, index, sub, op) {
                self.wake(end_s, process, Then::Turn);
            }
        } else if let Some(ends_s) = state.arrived(now) {
            self.wake(ends_s, process, Then::Step);
        }
    }
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
