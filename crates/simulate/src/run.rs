//! The event loop of the whole simulator.

use crate::agenda::{Agenda, EventKind};
use crate::communicator::{Communicators, Goes};
use crate::device::{Begin, DeviceModel, ServerDevice};
use crate::draw::{Draws, Ties};
use crate::error::SimulateError;
use crate::histogram::TimeHistogram;
use crate::link::{Link, Sending};
use crate::metadata::MetadataServer;
use crate::outcome::{ServerUse, SimulationOutcome};
use crate::places::Places;
use crate::program::{StepProgram, check_step};
use crate::program_turns::ProgramTurns;
use crate::report::{NodeUse, QueueUse, SimulationReport};
use crate::slab::{Slab, Sub};
use crate::sweeps::MOST_SLOTS;
use crate::system::{Forwarding, ServerLink, System};
use crate::time::{after, ns, seconds};
use crate::timeline::TimelineRecorder;
use crate::turn_keeper::{Passing, Released, TurnKeeper};
use crate::workload::{MetadataOp, SimulatedAccess, SimulatedStep};
use std::collections::VecDeque;
use stripewise_layout::Layout;
use stripewise_model::{Cluster, NameCosts, Op, OpProfile, Profile};

/// Runs `program` under `layouts[i]` for file `i`, on `cluster` with `system` around it.
///
/// The same arguments give the same report, on every machine. Startups are drawn as [`simulate`](crate::simulate())
/// does it: the n-th sub-request that a server serves has the n-th draw, under every layout.
///
/// # Errors
/// A layout names a server that no tier has, `system` has a number that is none, or a process comes to a step that
/// cannot be done ([`SimulateError`]).
///
/// # Cost
/// O(log (servers + nodes + processes)) a sub-request and link, O(log queue) for elevators, O(1) for FIFO; no
/// allocation a request once queues have their size (and requests have at most 16 sub-requests). Memory: 100 bytes and
/// a cursor a process, 300 bytes a server, 40 bytes a sub-request that waits (16 more in an elevator), 24 bytes a
/// server and bin.
pub fn run<P: StepProgram>(
    cluster: &Cluster,
    layouts: &[Layout],
    program: &P,
    system: &System,
    seed: u64,
) -> Result<SimulationReport, SimulateError> {
    run_observed(cluster, layouts, program, system, seed, |_, _, _, _| ())
}

/// [`run`](run()) that tells `observe` of every request of more than 0 bytes as it ends: its process, the request, and
/// when it was issued and ended, in seconds.
///
/// # Errors
/// As [`run`](run()).
pub fn run_observed<P: StepProgram>(
    cluster: &Cluster,
    layouts: &[Layout],
    program: &P,
    system: &System,
    seed: u64,
    observe: impl FnMut(u32, &SimulatedAccess, f64, f64),
) -> Result<SimulationReport, SimulateError> {
    let mut run = Run::new(cluster, layouts, program, system, seed, observe)?;
    run.expect_turns();
    run.play()?;
    Ok(run.report())
}

/// The number of the event that wakes what decides about turns: no process has it.
const TURNS: u32 = u32::MAX;

struct Server {
    device: ServerDevice,
    /// Index of its device's model.
    model: u32,
    /// What was read leaves through it.
    link_out: Link,
    /// What is written comes through it.
    link_in: Link,
}

/// The links of the machine that processes run on.
struct Node {
    link_out: Link,
    link_in: Link,
}

/// What a process waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing, or an answer.
    Going,
    /// The end of its think time.
    Thinking,
    /// The turn of its program.
    Held,
    /// Its request, which is under way to the servers.
    Sending,
    /// The last answer, which is under way to it.
    Returning,
    /// The answer of a server before it asks the next.
    Turning,
    Ended,
}

struct Process<C> {
    cursor: C,
    access: SimulatedAccess,
    issued_ns: u64,
    /// The end of the last of its request's sub-requests, of those whose end is known.
    ends_ns: u64,
    /// Sub-requests of its request that are under way.
    outstanding: u32,
    phase: Phase,
}

struct Run<'a, P: StepProgram, O> {
    program: &'a P,
    layouts: &'a [Layout],
    observe: O,
    agenda: Agenda,
    ties: Ties,
    now_ns: u64,
    slab: Slab,
    models: Vec<DeviceModel>,
    servers: Vec<Server>,
    places: Places,
    nodes: Vec<Node>,
    processes_per_node: u32,
    has_server_links: bool,
    has_links: bool,
    pipelined: bool,
    latency_ns: u64,
    metadata: Option<MetadataServer>,
    /// Operations on names go to the metadata tier.
    has_names_on_meta: bool,
    /// Where each file's datafiles begin on disk.
    file_starts: Vec<u64>,
    processes: Vec<Process<P::Cursor>>,
    /// By process, sub-requests of its request that are still to set out, each when the one before is done; the last first.
    /// Empty where no server is asked so.
    turns: Vec<Vec<Sub>>,
    /// Processes that take their next step now.
    ready: VecDeque<u32>,
    communicators: Communicators,
    communicator_count: usize,
    timeline: Option<TimelineRecorder>,
    keeper: Option<Box<TurnKeeper>>,
    /// Processes whose turn has come; empty between events.
    released: Vec<Released>,
    reads: TimeHistogram,
    writes: TimeHistogram,
    outcome: SimulationOutcome,
    makespan_ns: u64,
    requests: u64,
    sub_requests: u64,
    /// Sub-requests whose end is not known yet.
    under_way: usize,
    events: u64,
    live: usize,
}

impl<'a, P: StepProgram, O: FnMut(u32, &SimulatedAccess, f64, f64)> Run<'a, P, O> {
    fn new(
        cluster: &Cluster,
        layouts: &'a [Layout],
        program: &'a P,
        system: &System,
        seed: u64,
        observe: O,
    ) -> Result<Self, SimulateError> {
        system.check()?;
        let mut places = Places::new(cluster, layouts)?;
        let has_names_on_meta = system.names_on_meta.is_some() && places.add_meta(cluster);
        let (models, servers) = servers_of(cluster, &places, system, seed);
        let count = program.processes();
        let most = u32::MAX as usize - 1;
        if count > most {
            return Err(SimulateError::TooMany { what: "processes", count, most });
        }
        let keeper =
            system.turns.as_ref().map(|turns| keeper_of(turns, count, cluster, &places, system)).transpose()?;
        let nodes = nodes_of(system, count);
        let members = program.communicators();
        let nothing = SimulatedAccess { file: 0, offset: 0, size: 0, op: Op::Read, think_s: 0.0 };
        let processes = (0..count as u32).map(|process| Process {
            cursor: program.start(process, seed),
            access: nothing,
            issued_ns: 0,
            ends_ns: 0,
            outstanding: 0,
            phase: Phase::Going,
        });
        let ties = Ties::new(seed);
        let file_starts = starts_of(cluster, layouts, program, system);
        let turns = if places.has_turns() { vec![Vec::new(); count] } else { Vec::new() };
        Ok(Self {
            program,
            layouts,
            observe,
            agenda: Agenda::new(ties),
            ties,
            now_ns: 0,
            slab: Slab::new(),
            nodes,
            processes_per_node: system.links.client.map_or(1, |client| client.processes_per_node),
            has_server_links: system.links.server != ServerLink::InBeta,
            has_links: system.links.server != ServerLink::InBeta || system.links.client.is_some(),
            pipelined: system.links.forwarding == Forwarding::Pipelined
                && system.links.server != ServerLink::InBeta
                && system.links.client.is_some(),
            latency_ns: ns(system.links.latency_s),
            metadata: system.metadata.map(|metadata| MetadataServer::new(metadata, seed)),
            has_names_on_meta,
            file_starts,
            processes: processes.collect(),
            turns,
            ready: ties.order(0, 0..count as u32).into(),
            communicators: Communicators::new(count, &members),
            communicator_count: members.len(),
            timeline: (system.bins > 0).then(|| TimelineRecorder::new(system.bins, servers.len())),
            keeper,
            released: Vec::new(),
            models,
            servers,
            places,
            reads: TimeHistogram::default(),
            writes: TimeHistogram::default(),
            outcome: SimulationOutcome::default(),
            makespan_ns: 0,
            requests: 0,
            sub_requests: 0,
            under_way: 0,
            events: 0,
            live: count,
        })
    }

    fn play(&mut self) -> Result<(), SimulateError> {
        self.go()?;
        while let Some((time_ns, kind, number)) = self.agenda.next() {
            self.now_ns = time_ns;
            self.events += 1;
            let index = number as usize;
            // What has ended is passed on, everything that follows from it at this moment happens, and only then does
            // the resource take its next: a process that goes on at once is in the queue that an elevator looks at.
            match kind {
                EventKind::Device => self.device_done(index)?,
                EventKind::Place => self.place_done(number)?,
                EventKind::ServerOut => {
                    if !self.pipelined {
                        let sub = self.servers[index].link_out.done();
                        self.enter_client_in(sub);
                    }
                    let next = self.servers[index].link_out.go_on(time_ns, &mut self.slab);
                    self.sends(kind, index, next);
                }
                EventKind::ClientOut => {
                    let sub = self.nodes[index].link_out.done();
                    if !self.pipelined {
                        if self.has_server_links { self.enter_server_in(sub) } else { self.enter_device(sub) }
                    }
                    let next = self.nodes[index].link_out.go_on(time_ns, &mut self.slab);
                    self.sends(kind, index, next);
                }
                EventKind::ServerIn => {
                    let sub = self.servers[index].link_in.done();
                    self.enter_device(sub);
                    let next = self.servers[index].link_in.go_on(time_ns, &mut self.slab);
                    self.sends(kind, index, next);
                }
                EventKind::Metadata => {
                    let metadata = self.metadata.as_mut().expect("an event of the metadata server");
                    self.ready.push_back(metadata.done(index));
                    self.go()?;
                    let next = self.metadata.as_mut().and_then(|metadata| metadata.go_on(time_ns, index));
                    if let Some(ends_ns) = next {
                        self.agenda.at(ends_ns, EventKind::Metadata, number);
                    }
                }
                EventKind::Release => {
                    self.release(number);
                    self.go()?;
                }
                EventKind::Wake if number == TURNS => self.take_turns(),
                EventKind::Wake => {
                    match self.processes[index].phase {
                        Phase::Thinking => self.issue(number)?,
                        Phase::Held => self.try_again(number)?,
                        Phase::Sending => self.dispatch(number)?,
                        Phase::Returning => self.complete(number),
                        Phase::Turning => self.take_turn(number),
                        Phase::Going | Phase::Ended => unreachable!("a process is woken only while it waits"),
                    }
                    self.go()?;
                }
                EventKind::Patience => {
                    let server = &mut self.servers[index];
                    let model = &self.models[server.model as usize];
                    let begin = server.device.out_of_patience(time_ns, model, &mut self.slab);
                    self.begins(index, begin);
                }
            }
        }
        if self.live == 0 {
            return Ok(());
        }
        let (process, number) = self.communicators.waiting().expect("a process that has not ended waits");
        let at = if number == 0 { "at a barrier".into() } else { format!("in communicator {}", number - 1) };
        Err(SimulateError::Deadlock { process: process as usize, at })
    }

    /// Lets processes take steps until all of them wait.
    #[inline]
    fn go(&mut self) -> Result<(), SimulateError> {
        while let Some(process) = self.ready.pop_front() {
            self.step(process)?;
        }
        Ok(())
    }

    fn step(&mut self, process: u32) -> Result<(), SimulateError> {
        let state = &mut self.processes[process as usize];
        let Some(step) = self.program.next(&mut state.cursor) else {
            self.end(process);
            return Ok(());
        };
        check_step(process as usize, &step, self.layouts.len(), self.communicator_count)?;
        match step {
            SimulatedStep::Access(access) => {
                state.access = access;
                let think_ns = ns(access.think_s);
                if think_ns == 0 {
                    return self.issue(process);
                }
                state.phase = Phase::Thinking;
                self.agenda.at(after(self.now_ns, think_ns), EventKind::Wake, process);
            }
            SimulatedStep::Barrier => self.meet(0, process, 0.0),
            SimulatedStep::Collective { communicator, exchange_s } => self.meet(communicator + 1, process, exchange_s),
            SimulatedStep::Metadata(op) => match &mut self.metadata {
                Some(metadata) => {
                    if let Some((thread, ends_ns)) = metadata.arrive(self.now_ns, process, op) {
                        self.agenda.at(ends_ns, EventKind::Metadata, thread);
                    }
                }
                None if self.has_names_on_meta => self.ask_name(process, op),
                None => self.ready.push_back(process),
            },
        }
        Ok(())
    }

    fn meet(&mut self, number: u32, process: u32, exchange_s: f64) {
        let goes = self.communicators.arrive(number, process, exchange_s);
        self.goes(number, goes);
    }

    fn goes(&mut self, number: u32, goes: Goes) {
        match goes {
            Goes::NotYet => {}
            Goes::Now => self.release(number),
            Goes::After(exchange_ns) => {
                self.agenda.at(after(self.now_ns, exchange_ns), EventKind::Release, number);
            }
        }
    }

    fn release(&mut self, number: u32) {
        if number == 0 {
            self.outcome.barriers_s.push(seconds(self.now_ns));
        }
        let released = self.communicators.release(number);
        self.ready.extend(self.ties.order(self.now_ns, released));
    }

    fn end(&mut self, process: u32) {
        self.processes[process as usize].phase = Phase::Ended;
        self.live -= 1;
        self.makespan_ns = self.now_ns;
        let mut going = Vec::new();
        self.communicators.end(process, |number, goes| going.push((number, goes)));
        for (number, goes) in going {
            self.goes(number, goes);
        }
    }

    /// A process issues its request.
    fn issue(&mut self, process: u32) -> Result<(), SimulateError> {
        let state = &mut self.processes[process as usize];
        state.issued_ns = self.now_ns;
        if let Some(keeper) = &mut self.keeper
            && state.access.size > 0
        {
            let passing = keeper.enter(process, state.access.size, self.now_ns);
            return self.passes(process, passing);
        }
        self.set_out(process)
    }

    /// A process that was held looks at the plan again.
    fn try_again(&mut self, process: u32) -> Result<(), SimulateError> {
        let since_ns = self.processes[process as usize].issued_ns;
        let keeper = self.keeper.as_mut().expect("held by it");
        let passing = keeper.passes(process, since_ns, self.now_ns);
        self.passes(process, passing)
    }

    fn passes(&mut self, process: u32, passing: Passing) -> Result<(), SimulateError> {
        if passing == Passing::Now {
            return self.set_out(process);
        }
        self.processes[process as usize].phase = Phase::Held;
        if let Passing::HeldUntil(due_ns) = passing {
            self.agenda.at(due_ns, EventKind::Wake, TURNS);
        }
        Ok(())
    }

    /// What decides about turns looks at its first time.
    fn expect_turns(&mut self) {
        if let Some(keeper) = &self.keeper {
            self.agenda.at(keeper.due_ns(), EventKind::Wake, TURNS);
        }
    }

    /// Something is due about turns. An event that another one has come before says nothing.
    fn take_turns(&mut self) {
        let Some(keeper) = &mut self.keeper else { return };
        if keeper.due_ns() != self.now_ns {
            return;
        }
        keeper.wake(self.now_ns, &mut self.released);
        for (process, time_ns) in self.released.drain(..) {
            self.agenda.at(time_ns, EventKind::Wake, process);
        }
        // Without anything else to come a program waits for one that does not.
        if self.live > 0 && (keeper.holds() || !self.agenda.is_empty()) {
            self.agenda.at(keeper.due_ns(), EventKind::Wake, TURNS);
        }
    }

    /// The request of a process is on its way.
    fn set_out(&mut self, process: u32) -> Result<(), SimulateError> {
        let state = &mut self.processes[process as usize];
        if self.latency_ns == 0 || state.access.size == 0 {
            return self.dispatch(process);
        }
        state.phase = Phase::Sending;
        self.agenda.at(after(self.now_ns, self.latency_ns), EventKind::Wake, process);
        Ok(())
    }

    /// The sub-requests of a process's request set out.
    fn dispatch(&mut self, process: u32) -> Result<(), SimulateError> {
        let state = &mut self.processes[process as usize];
        let access = state.access;
        state.phase = Phase::Going;
        state.ends_ns = 0;
        let (layouts, write) = (self.layouts, access.op == Op::Write);
        let start = self.file_starts.get(access.file as usize).copied().unwrap_or(0);
        let mut count = 0;
        layouts[access.file as usize].for_each_sub(access.offset, access.size, |sub| {
            count += 1;
            let sub = Sub {
                position: start.saturating_add(sub.datafile_offset),
                bytes: sub.len,
                stamp_ns: 0,
                process,
                next: 0,
                server: self.places.index(sub.server) as u16,
                write,
                adjacent: false,
            };
            if self.places.is_in_turn(usize::from(sub.server)) {
                self.turns[process as usize].push(sub);
            } else {
                // None of them ends before all have set out.
                self.enter(sub);
            }
        });
        if count == 0 {
            self.ready.push_back(process);
            return Ok(());
        }
        self.processes[process as usize].outstanding = count;
        self.requests += 1;
        self.sub_requests += u64::from(count);
        self.under_way += count as usize;
        if self.under_way > MOST_SLOTS {
            let count = self.under_way;
            return Err(SimulateError::TooMany { what: "sub-requests under way", count, most: MOST_SLOTS });
        }
        if self.places.has_turns() {
            self.turns[process as usize].reverse();
            self.take_turn(process);
        }
        Ok(())
    }

    /// The next sub-request of those that are carried out one after the other sets out.
    #[inline]
    fn take_turn(&mut self, process: u32) {
        if let Some(sub) = self.turns[process as usize].pop() {
            self.processes[process as usize].phase = Phase::Going;
            self.enter(sub);
        }
    }

    /// To the first link or device on its way.
    #[inline]
    fn enter(&mut self, sub: Sub) {
        match (sub.write, self.nodes.is_empty(), self.has_server_links) {
            (false, ..) | (true, true, false) => self.enter_device(sub),
            (true, false, _) => self.enter_client_out(sub),
            (true, true, true) => self.enter_server_in(sub),
        }
    }

    #[inline]
    fn device_done(&mut self, index: usize) -> Result<(), SimulateError> {
        let now_ns = self.now_ns;
        let device = &mut self.servers[index].device;
        let present = device.used.present;
        let (sub, since_ns) = device.done(now_ns);
        self.serves(Sub { server: index as u16, ..sub }, since_ns, present)?;
        let served = (self.processes[sub.process as usize].phase != Phase::Ended).then_some(sub.process);
        let server = &mut self.servers[index];
        let model = &self.models[server.model as usize];
        let begin = server.device.go_on(now_ns, model, &mut self.slab, served);
        self.begins(index, begin);
        Ok(())
    }

    /// A server that serves several side by side is done with the sub-request of a slot. One without bytes is an operation on
    /// names.
    fn place_done(&mut self, slot: u32) -> Result<(), SimulateError> {
        let sub = self.slab.remove(slot);
        let device = &mut self.servers[usize::from(sub.server)].device;
        let present = device.used.present;
        device.left();
        if sub.bytes > 0 {
            return self.serves(sub, sub.stamp_ns, present);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.queue_changes(usize::from(sub.server), self.now_ns, present);
            timeline.served(usize::from(sub.server), sub.stamp_ns, self.now_ns, 0);
        }
        self.ready.push_back(sub.process);
        self.go()
    }

    /// An operation on names goes to the metadata tier.
    fn ask_name(&mut self, process: u32, op: MetadataOp) {
        let server = self.places.meta.expect("the metadata tier has a place where it has names") as u16;
        let write = matches!(op, MetadataOp::Create | MetadataOp::Change);
        let (position, bytes, stamp_ns, next) = (0, 0, 0, 0);
        self.enter_device(Sub { position, bytes, stamp_ns, process, next, server, write, adjacent: false });
    }

    /// What follows from a sub-request that a device has served since `since_ns`, with `present` there until now.
    #[inline(always)]
    fn serves(&mut self, sub: Sub, since_ns: u64, present: u32) -> Result<(), SimulateError> {
        let (now_ns, index) = (self.now_ns, usize::from(sub.server));
        if let Some(keeper) = &mut self.keeper {
            let file = self.processes[sub.process as usize].access.file;
            keeper.served(sub.process, index, (file, sub.position, sub.bytes), now_ns);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.queue_changes(index, now_ns, present);
            timeline.served(index, since_ns, now_ns, sub.bytes);
        }
        match (sub.write, self.has_server_links, self.nodes.is_empty()) {
            (false, true, false) => {
                let sending = self.servers[index].link_out.arrive(now_ns, &mut self.slab, sub);
                self.sends(EventKind::ServerOut, index, sending);
            }
            (false, true, true) => {
                let ends_ns = self.servers[index].link_out.reserve(now_ns, sub.bytes, 0);
                self.finish(&sub, ends_ns);
            }
            (false, false, false) => self.enter_client_in(sub),
            _ => self.finish(&sub, now_ns),
        }
        self.go()
    }

    #[inline]
    fn enter_device(&mut self, sub: Sub) {
        let index = usize::from(sub.server);
        let server = &mut self.servers[index];
        if let Some(timeline) = &mut self.timeline {
            timeline.queue_changes(index, self.now_ns, server.device.used.present);
        }
        let model = &self.models[server.model as usize];
        if server.device.is_side_by_side() {
            let (begins_ns, ends_ns) = server.device.beside(self.now_ns, model, &sub);
            let slot = self.slab.add(Sub { stamp_ns: begins_ns, ..sub });
            self.agenda.at(ends_ns, EventKind::Place, slot);
            return;
        }
        let begin = server.device.arrive(self.now_ns, model, &mut self.slab, sub);
        self.begins(index, begin);
    }

    /// To the link of its server, for writing.
    #[inline]
    fn enter_server_in(&mut self, sub: Sub) {
        let index = usize::from(sub.server);
        let sending = self.servers[index].link_in.arrive(self.now_ns, &mut self.slab, sub);
        self.sends(EventKind::ServerIn, index, sending);
    }

    /// To the link of its node, for reading.
    #[inline]
    fn enter_client_in(&mut self, sub: Sub) {
        let index = (sub.process / self.processes_per_node) as usize;
        let ends_ns = self.nodes[index].link_in.reserve(self.now_ns, sub.bytes, sub.stamp_ns);
        self.finish(&sub, ends_ns);
    }

    /// To the link of its node, for writing.
    #[inline]
    fn enter_client_out(&mut self, sub: Sub) {
        let index = (sub.process / self.processes_per_node) as usize;
        let sending = self.nodes[index].link_out.arrive(self.now_ns, &mut self.slab, sub);
        self.sends(EventKind::ClientOut, index, sending);
    }

    #[inline]
    fn begins(&mut self, index: usize, begin: Begin) {
        match begin {
            Begin::Nothing => {}
            Begin::Service(ends_ns) => self.agenda.at(ends_ns, EventKind::Device, index as u32),
            Begin::Wait(until_ns) => self.agenda.at(until_ns, EventKind::Patience, index as u32),
        }
    }

    /// A link has begun to send; with pipelining the second link is asked for at once. Inline: only pipelining needs to know
    /// what is sent.
    #[inline(always)]
    fn sends(&mut self, kind: EventKind, index: usize, sending: Option<Sending>) {
        let Some(Sending { sub, ends_ns }) = sending else { return };
        self.agenda.at(ends_ns, kind, index as u32);
        if self.pipelined {
            self.sends_on(kind, Sub { stamp_ns: ends_ns, ..sub });
        }
    }

    /// What a link has begun to send asks for the second link.
    #[inline(never)]
    fn sends_on(&mut self, kind: EventKind, sub: Sub) {
        match kind {
            EventKind::ServerOut => self.enter_client_in(sub),
            EventKind::ClientOut => self.enter_server_in(sub),
            _ => {}
        }
    }

    /// A sub-request will be done at `ends_ns`. The answer of the last one wakes the process; what a device ends now
    /// and no message brings is there at once.
    #[inline]
    fn finish(&mut self, sub: &Sub, ends_ns: u64) {
        let state = &mut self.processes[sub.process as usize];
        state.ends_ns = state.ends_ns.max(ends_ns);
        state.outstanding -= 1;
        self.under_way -= 1;
        if self.places.is_in_turn(usize::from(sub.server)) && !self.turns[sub.process as usize].is_empty() {
            state.phase = Phase::Turning;
            self.agenda.at(ends_ns, EventKind::Wake, sub.process);
        }
        if state.outstanding > 0 {
            return;
        }
        if self.latency_ns == 0 && (sub.write || !self.has_links) {
            return self.complete(sub.process);
        }
        state.phase = Phase::Returning;
        self.agenda.at(after(state.ends_ns, self.latency_ns), EventKind::Wake, sub.process);
    }

    /// A process has its answer.
    fn complete(&mut self, process: u32) {
        let state = &mut self.processes[process as usize];
        state.phase = Phase::Going;
        let access = state.access;
        let took_ns = self.now_ns - state.issued_ns;
        let write = access.op == Op::Write;
        let (histogram, bytes) = if write {
            (&mut self.writes, &mut self.outcome.written_bytes)
        } else {
            (&mut self.reads, &mut self.outcome.read_bytes)
        };
        histogram.add(took_ns);
        // A trace may claim more bytes than there are.
        *bytes = bytes.saturating_add(access.size);
        if let Some(timeline) = &mut self.timeline {
            timeline.ended(self.now_ns, write, access.size);
        }
        (self.observe)(process, &access, seconds(state.issued_ns), seconds(self.now_ns));
        self.ready.push_back(process);
    }

    fn report(self) -> SimulationReport {
        let use_of = |server: &Server| ServerUse {
            reads: server.device.taken().0,
            writes: server.device.taken().1,
            bytes: server.device.used.bytes,
            busy_s: seconds(server.device.used.busy_ns),
            waiting_s: seconds(server.device.used.waiting_ns),
            link_out_busy_s: seconds(server.link_out.busy_ns),
            link_in_busy_s: seconds(server.link_in.busy_ns),
        };
        let queue_of = |server: &Server| QueueUse {
            most: server.device.used.most_present,
            startup_s: seconds(server.device.used.startup_ns),
        };
        let node_of = |node: &Node| NodeUse {
            in_busy_s: seconds(node.link_in.busy_ns),
            out_busy_s: seconds(node.link_out.busy_ns),
        };
        SimulationReport {
            queues: self.servers.iter().map(queue_of).collect(),
            nodes: self.nodes.iter().map(node_of).collect(),
            reads: self.reads.latency(),
            writes: self.writes.latency(),
            requests: self.requests,
            sub_requests: self.sub_requests,
            events: self.events,
            most_waiting: self.slab.len(),
            metadata: self.metadata.map(|metadata| metadata.used()).unwrap_or_default(),
            turns: self.keeper.map_or_else(Vec::new, |keeper| keeper.used()),
            timeline: self.timeline.map(|timeline| timeline.finish(self.makespan_ns)),
            outcome: SimulationOutcome {
                makespan_s: seconds(self.makespan_ns),
                servers: self.servers.iter().map(use_of).collect(),
                has_meta: self.places.meta.is_some(),
                latency: self.reads.with(&self.writes).latency(),
                ..self.outcome
            },
        }
    }
}

/// The models of the tiers, of the metadata tier and of servers that are in none, and the servers by place.
fn servers_of(cluster: &Cluster, places: &Places, system: &System, seed: u64) -> (Vec<DeviceModel>, Vec<Server>) {
    let free = OpProfile { startup_min_s: 0.0, startup_max_s: 0.0, transfer_s_per_byte: 0.0, head: None };
    let unused = Profile { read: free, write: free, network_s_per_byte: 0.0 };
    let in_beta = system.links.server == ServerLink::InBeta;
    let meta = cluster.meta.as_ref().map_or(unused, |meta| meta.profile);
    let tiers = cluster.tiers.iter().map(|tier| tier.profile).chain([meta]).enumerate();
    let mut models: Vec<DeviceModel> =
        tiers.map(|(tier, profile)| DeviceModel::new(system.device(tier), &profile, in_beta)).collect();
    models.push(DeviceModel::new(crate::system::TierDevice::default(), &unused, in_beta));
    let servers = places.of.iter().enumerate().map(|(index, of)| {
        let (model, profile) = of.unwrap_or((cluster.tiers.len() + 1, unused));
        let link = Link::new(match system.links.server {
            ServerLink::InBeta => 0.0,
            ServerLink::OfProfile => profile.network_s_per_byte,
            ServerLink::Rate { s_per_byte } => s_per_byte,
        });
        let device = ServerDevice::new(&models[model], Draws::new(seed, index));
        // Operations on names have no place in the queue of a disk: with them one request at a time is a place, too.
        let has_places = places.meta == Some(index) && (places.at_once > 1 || system.names_on_meta.is_some());
        Server {
            device: if has_places {
                device.serving(places.at_once, system.names_on_meta.unwrap_or(NameCosts::FREE))
            } else {
                device
            },
            model: model as u32,
            link_out: link,
            link_in: link,
        }
    });
    let servers = servers.collect();
    (models, servers)
}

/// The links of the nodes that `count` processes run on; none without links.
fn nodes_of(system: &System, count: usize) -> Vec<Node> {
    system.links.client.map_or_else(Vec::new, |client| {
        let link = Link::new(client.s_per_byte);
        let nodes = count.div_ceil(client.processes_per_node as usize);
        (0..nodes).map(|_| Node { link_out: link, link_in: link }).collect()
    })
}

/// What decides about the turns of `count` processes.
fn keeper_of(
    turns: &ProgramTurns,
    count: usize,
    cluster: &Cluster,
    places: &Places,
    system: &System,
) -> Result<Box<TurnKeeper>, SimulateError> {
    turns.check(count)?;
    Ok(Box::new(TurnKeeper::new(turns, cluster, places, system)))
}

/// Where each file's datafiles begin on disk; empty where no server asks.
fn starts_of<P: StepProgram>(cluster: &Cluster, layouts: &[Layout], program: &P, system: &System) -> Vec<u64> {
    match &system.file_starts {
        Some(starts) => starts.clone(),
        None if (system.has_positions() || cluster.has_heads()) && layouts.len() > 1 => {
            // A head moves from file to file, as that of an emulated device does.
            one_after_the_other(layouts, &program.extents(layouts.len()), u64::from(cluster.has_heads()))
        }
        None => Vec::new(),
    }
}

/// Where files begin on disk when each has the room of its fullest server and `gap` bytes, in order. O(files x regions x
/// stripes).
fn one_after_the_other(layouts: &[Layout], extents: &[u64], gap: u64) -> Vec<u64> {
    let mut next = 0_u64;
    let starts = layouts.iter().zip(extents).map(|(layout, &extent)| {
        let ends = layout.regions().iter().enumerate().take_while(|(_, region)| region.offset() < extent);
        let ends = ends.flat_map(|(index, region)| {
            let end = extent.min(layout.region_end(index));
            (0..region.stripes().len()).map(move |slot| region.datafile_offset(slot, end))
        });
        let room = ends.max().unwrap_or(0);
        let start = next;
        next = next.saturating_add(room).saturating_add(gap);
        start
    });
    starts.collect()
}
