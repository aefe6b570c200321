//! A second simulator, slow and plain: lists that are searched, no heaps, no slots. Both must agree to the nanosecond.

use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Cluster, Head, Op, OpProfile, Profile, Tier};
use stripewise_simulate::{
    ClientLink, ClosedLoop, Forwarding, Links, Metadata, MetadataOp, Queue, SeekCurve, SeekShape, ServerLink, Service,
    SimulatedAccess, SimulatedStep, Startup, System, TierDevice, run_observed,
};

/// One request that ended: process, offset, issued and ended in nanoseconds.
type Ended = (u32, u64, u64, u64);

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// Seed of all runs.
const SEED: u64 = 1;

/// SplitMix64's output function.
fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where a server, a node or a process stands among those that come at one time.
fn turn(time: u64, number: usize) -> u64 {
    let key = mix(mix(SEED.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(u64::MAX - 1));
    let time = (time ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let both = time ^ (number as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
    (both ^ (both >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 36
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Device(usize),
    ServerOut(usize),
    ServerIn(usize),
    ClientOut(usize),
    ClientIn(usize),
    Metadata,
    Release(usize),
    Wake(usize),
    Patience(usize),
}

impl What {
    /// The place of its kind in the list, and its number.
    fn place(self) -> (usize, usize) {
        match self {
            Self::Device(n) => (0, n),
            Self::ServerOut(n) => (1, n),
            Self::ServerIn(n) => (2, n),
            Self::ClientOut(n) => (3, n),
            Self::ClientIn(n) => (4, n),
            Self::Metadata => (5, 0),
            Self::Release(n) => (6, n),
            Self::Wake(n) => (7, n),
            Self::Patience(n) => (8, n),
        }
    }
}

/// Processes that come at one time, in order.
fn in_turn(time: u64, mut processes: Vec<usize>) -> Vec<usize> {
    processes.sort_by_key(|&process| (turn(time, process), process));
    processes
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Sub {
    id: usize,
    process: usize,
    server: usize,
    position: u64,
    bytes: u64,
    op: Op,
    sweep: u64,
    not_before: u64,
    adjacent: bool,
}

#[derive(Default)]
struct Line {
    queue: VecDeque<Sub>,
    current: Option<Sub>,
}

#[derive(Default)]
struct Disk {
    pending: Vec<Sub>,
    current: Option<Sub>,
    sweep: u64,
    last_start: Option<u64>,
    /// Runs of adjacent sub-requests: first byte, end, and the sub-request that came to it last.
    runs: Vec<(u64, u64, usize)>,
    head: u64,
    waits_for: Option<(usize, u64)>,
    served: u64,
    /// Of anticipatory queues.
    histories: BTreeMap<usize, History>,
    first_thinks: Vec<f64>,
    first_seeks: Vec<f64>,
}

/// Everything that a process did at a disk.
#[derive(Default)]
struct History {
    thinks: Vec<f64>,
    seeks: Vec<f64>,
    ended: u64,
    position: u64,
    here: usize,
}

/// Of all values, each an eighth of what is left by those after it.
fn mean(values: &[f64]) -> Option<f64> {
    let mut of = (0.0, 0.0);
    for value in values {
        of = ((7.0 * of.0 + value) / 8.0, (7.0 * of.1 + 1.0) / 8.0);
    }
    (!values.is_empty()).then_some(of.0 / of.1)
}

impl Disk {
    /// Whether `sub` is at the end of what came before it, or beside a sub-request that waits.
    fn is_adjacent(&mut self, sub: &Sub) -> bool {
        let (begin, end, last) = (sub.position, sub.position + sub.bytes, self.runs.len());
        for at in (last.saturating_sub(8)..last).rev() {
            let run = &mut self.runs[at];
            let waits = self.pending.iter().any(|other| other.id == run.2);
            if run.1 == begin && (waits || at + 1 == last) {
                run.1 = end;
                run.2 = if at + 1 == last { sub.id } else { run.2 };
                return true;
            }
            if run.0 == end && waits {
                run.0 = begin;
                return true;
            }
        }
        self.runs.push((begin, end, sub.id));
        false
    }

    fn learns_of(&mut self, now: u64, wait: u64, sub: &Sub) {
        let is_new = !self.histories.contains_key(&sub.process);
        let history = self.histories.entry(sub.process).or_default();
        if !is_new {
            let think = if history.here > 0 { 0 } else { now - history.ended };
            let (think, seek) = (think.min(3 * wait) as f64, sub.position.abs_diff(history.position) as f64);
            if history.thinks.is_empty() {
                self.first_thinks.push(think);
                self.first_seeks.push(seek);
            }
            history.thinks.push(think);
            history.seeks.push(seek);
        }
        history.here += 1;
        history.position = sub.position + sub.bytes;
    }

    /// Whether waiting for `process` can be worth it, and a sub-request so near that it is not.
    fn expects(&self, process: usize, wait: u64) -> (bool, f64) {
        let history = &self.histories[&process];
        let think = mean(&history.thinks).or(mean(&self.first_thinks)).unwrap_or(0.0);
        let seek = mean(&history.seeks).or(mean(&self.first_seeks)).unwrap_or(0.0);
        (history.here == 0 && think <= wait as f64, seek)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Then {
    Issue,
    Dispatch,
    Complete,
}

struct Reference<'a> {
    cluster: &'a Cluster,
    layouts: &'a [Layout],
    workload: &'a ClosedLoop,
    system: &'a System,
    now: u64,
    events: Vec<(u64, What)>,
    disks: Vec<Disk>,
    outs: Vec<Line>,
    ins: Vec<Line>,
    node_outs: Vec<Line>,
    node_ins: Vec<Line>,
    taken: Vec<usize>,
    ended: Vec<Option<u64>>,
    wakes: Vec<Then>,
    access: Vec<Option<SimulatedAccess>>,
    issued: Vec<u64>,
    left: Vec<usize>,
    ready: VecDeque<usize>,
    waiting: BTreeMap<usize, Vec<usize>>,
    exchange: BTreeMap<usize, u64>,
    metadata: VecDeque<(usize, MetadataOp)>,
    metadata_busy: Option<usize>,
    next_id: usize,
    done: Vec<Ended>,
}

impl<'a> Reference<'a> {
    fn new(cluster: &'a Cluster, layouts: &'a [Layout], workload: &'a ClosedLoop, system: &'a System) -> Self {
        let (p, n) = (workload.processes.len(), cluster.tiers.len());
        let lines = |count: usize| (0..count).map(|_| Line::default()).collect::<Vec<_>>();
        let nodes = system.links.client.map_or(0, |client| p.div_ceil(client.processes_per_node as usize));
        Self {
            cluster,
            layouts,
            workload,
            system,
            now: 0,
            events: Vec::new(),
            disks: (0..n).map(|_| Disk::default()).collect(),
            outs: lines(n),
            ins: lines(n),
            node_outs: lines(nodes),
            node_ins: lines(nodes),
            taken: vec![0; p],
            ended: vec![None; p],
            wakes: vec![Then::Issue; p],
            access: vec![None; p],
            issued: vec![0; p],
            left: vec![0; p],
            ready: in_turn(0, (0..p).collect()).into(),
            waiting: BTreeMap::new(),
            exchange: BTreeMap::new(),
            metadata: VecDeque::new(),
            metadata_busy: None,
            next_id: 0,
            done: Vec::new(),
        }
    }

    /// Everything that ended, the makespan, and how many sub-requests each server served.
    fn run(mut self) -> (Vec<Ended>, u64, Vec<u64>) {
        self.go();
        // By time, then by kind, those of a kind in turn.
        let order = |&(time, what): &(u64, What)| (time, what.place().0, turn(time, what.place().1), what);
        while let Some(first) = self.events.iter().enumerate().min_by_key(|(_, event)| order(event)).map(|(i, _)| i) {
            let (time, what) = self.events.swap_remove(first);
            self.now = time;
            self.happens(what);
        }
        // Patience may run out after the last process has ended.
        let makespan = self.ended.iter().map(|ended| ended.expect("every process ends")).max().unwrap();
        (self.done, makespan, self.disks.into_iter().map(|disk| disk.served).collect())
    }

    #[expect(clippy::too_many_lines, reason = "a table: an arm for each event")]
    fn happens(&mut self, what: What) {
        match what {
            What::Device(s) => {
                let sub = self.disks[s].current.unwrap();
                if let Some(history) = self.disks[s].histories.get_mut(&sub.process) {
                    (history.here, history.ended) = (history.here - 1, self.now);
                }
                match sub.op {
                    Op::Write => self.finish(sub),
                    Op::Read if self.has_server_links() => self.enter(What::ServerOut(s), sub),
                    Op::Read if self.system.links.client.is_some() => self.enter(self.client(sub.process, false), sub),
                    Op::Read => self.finish(sub),
                }
                self.go();
                self.disks[s].current = None;
                if let Queue::Anticipatory { wait_s, near_bytes } = self.system.devices[s].queue {
                    let head = self.disks[s].head;
                    let (returns, seek) = self.disks[s].expects(sub.process, ns(wait_s));
                    let next = self.best(s).map(|sub| sub.position.abs_diff(head));
                    let near = next.is_some_and(|distance| distance <= near_bytes || (distance as f64) < seek);
                    if returns && !near && self.ended[sub.process].is_none() && ns(wait_s) > 0 {
                        self.disks[s].waits_for = Some((sub.process, self.now + ns(wait_s)));
                        self.events.push((self.now + ns(wait_s), What::Patience(s)));
                        return;
                    }
                }
                self.serve_best(s);
            }
            What::Patience(s) => {
                if self.disks[s].waits_for.is_some_and(|(_, until)| until == self.now) {
                    self.disks[s].waits_for = None;
                    self.serve_best(s);
                }
            }
            What::ServerOut(_) | What::ServerIn(_) | What::ClientOut(_) | What::ClientIn(_) => {
                let sub = self.line(what).current.unwrap();
                let both = self.has_server_links() && self.system.links.client.is_some();
                let early = both && self.system.links.forwarding == Forwarding::Pipelined;
                match what {
                    What::ServerOut(_) if early => {}
                    What::ClientOut(_) if early => {}
                    What::ServerOut(_) if both => self.enter(self.client(sub.process, false), sub),
                    What::ClientOut(_) if both => self.enter(What::ServerIn(sub.server), sub),
                    What::ServerIn(_) | What::ClientOut(_) => self.enter(What::Device(sub.server), sub),
                    // The answer is a message of its own, though it takes no time.
                    _ => {
                        self.left[sub.process] -= 1;
                        if self.left[sub.process] == 0 {
                            self.wake(sub.process, ns(self.system.links.latency_s), Then::Complete);
                        }
                    }
                }
                self.go();
                self.line(what).current = None;
                if let Some(next) = self.line(what).queue.pop_front() {
                    self.send(what, next);
                }
            }
            What::Metadata => {
                self.ready.push_back(self.metadata_busy.unwrap());
                self.go();
                self.metadata_busy = None;
                if let Some((process, op)) = self.metadata.pop_front() {
                    self.answer(process, op);
                }
            }
            What::Release(c) => {
                self.release(c);
                self.go();
            }
            What::Wake(p) => {
                match self.wakes[p] {
                    Then::Issue => self.issue(p),
                    Then::Dispatch => self.dispatch(p),
                    Then::Complete => self.complete(p),
                }
                self.go();
            }
        }
    }

    fn has_server_links(&self) -> bool {
        self.system.links.server != ServerLink::InBeta
    }

    fn client(&self, process: usize, out: bool) -> What {
        let node = process / self.system.links.client.unwrap().processes_per_node as usize;
        if out { What::ClientOut(node) } else { What::ClientIn(node) }
    }

    fn line(&mut self, what: What) -> &mut Line {
        match what {
            What::ServerOut(s) => &mut self.outs[s],
            What::ServerIn(s) => &mut self.ins[s],
            What::ClientOut(n) => &mut self.node_outs[n],
            What::ClientIn(n) => &mut self.node_ins[n],
            _ => unreachable!(),
        }
    }

    fn enter(&mut self, what: What, sub: Sub) {
        if let What::Device(s) = what {
            return self.arrive(s, sub);
        }
        if self.line(what).current.is_some() {
            self.line(what).queue.push_back(sub);
        } else {
            self.send(what, sub);
        }
    }

    fn send(&mut self, what: What, sub: Sub) {
        let rate = match what {
            What::ClientIn(_) | What::ClientOut(_) => self.system.links.client.unwrap().s_per_byte,
            _ => match self.system.links.server {
                ServerLink::OfProfile => self.cluster.tiers[sub.server].profile.network_s_per_byte,
                ServerLink::Rate { s_per_byte } => s_per_byte,
                ServerLink::InBeta => unreachable!(),
            },
        };
        let ends = (self.now + (sub.bytes as f64 * (rate * 1e9)).round() as u64).max(sub.not_before);
        self.line(what).current = Some(sub);
        self.events.push((ends, what));
        let both = self.has_server_links() && self.system.links.client.is_some();
        if both && self.system.links.forwarding == Forwarding::Pipelined {
            let behind = Sub { not_before: ends, ..sub };
            match what {
                What::ServerOut(_) => self.enter(self.client(sub.process, false), behind),
                What::ClientOut(_) => self.enter(What::ServerIn(sub.server), behind),
                _ => {}
            }
        }
    }

    fn arrive(&mut self, s: usize, sub: Sub) {
        let disk = &mut self.disks[s];
        let joins = disk.last_start.is_none_or(|last| sub.position > last);
        let sub = Sub { sweep: if joins { disk.sweep } else { disk.sweep + 1 }, id: self.next_id, ..sub };
        self.next_id += 1;
        let sub = match self.system.devices[s].queue {
            Queue::Fifo => Sub { adjacent: disk.is_adjacent(&sub), ..sub },
            _ => sub,
        };
        if let Queue::Anticipatory { wait_s, .. } = self.system.devices[s].queue {
            disk.learns_of(self.now, ns(wait_s), &sub);
        }
        disk.pending.push(sub);
        if disk.current.is_some() {
            return;
        }
        if let Some((process, _)) = disk.waits_for {
            let Queue::Anticipatory { wait_s, near_bytes } = self.system.devices[s].queue else { unreachable!() };
            let (distance, seek) = (sub.position.abs_diff(disk.head), disk.expects(process, ns(wait_s)).1);
            if sub.process != process && distance > near_bytes && distance as f64 >= seek {
                return;
            }
            disk.waits_for = None;
        }
        self.serve_best(s);
    }

    fn best(&self, s: usize) -> Option<Sub> {
        let pending = self.disks[s].pending.iter();
        match self.system.devices[s].queue {
            Queue::Fifo => pending.min_by_key(|sub| sub.id).copied(),
            _ => pending.min_by_key(|sub| (sub.sweep, sub.position, sub.id)).copied(),
        }
    }

    fn serve_best(&mut self, s: usize) {
        let Some(sub) = self.best(s) else { return };
        let disk = &mut self.disks[s];
        disk.pending.retain(|other| other.id != sub.id);
        let costs = self.cluster.tiers[s].profile.of(sub.op);
        let adjacent = match self.system.devices[s].queue {
            Queue::Fifo => sub.adjacent,
            _ => disk.served > 0 && disk.head == sub.position,
        };
        let startup_s = match self.system.devices[s].startup {
            Startup::Drawn if adjacent => costs.adjacent_startup_s(costs.startup_min_s),
            Startup::Drawn => costs.startup_min_s,
            Startup::Seek { read, write } => {
                let curve = if sub.op == Op::Read { read } else { write };
                curve.seek_s(sub.position.abs_diff(disk.head))
            }
        };
        let network = if self.system.links.server == ServerLink::InBeta {
            self.cluster.tiers[s].profile.network_s_per_byte
        } else {
            0.0
        };
        let takes = ns(startup_s + sub.bytes as f64 * (costs.transfer_s_per_byte + network));
        disk.head = sub.position + sub.bytes;
        disk.last_start = Some(sub.position);
        disk.sweep = sub.sweep;
        disk.current = Some(sub);
        disk.served += 1;
        self.events.push((self.now + takes, What::Device(s)));
    }

    fn go(&mut self) {
        while let Some(p) = self.ready.pop_front() {
            let Some(step) = self.workload.processes[p].get(self.taken[p]) else {
                self.ended[p] = Some(self.now);
                let places: Vec<usize> = self.waiting.keys().copied().collect();
                places.into_iter().for_each(|c| self.check(c));
                continue;
            };
            self.taken[p] += 1;
            match *step {
                SimulatedStep::Access(access) => {
                    self.access[p] = Some(access);
                    if ns(access.think_s) > 0 {
                        self.wake(p, ns(access.think_s), Then::Issue);
                    } else {
                        self.issue(p);
                    }
                }
                SimulatedStep::Barrier => self.meet(0, p, 0.0),
                SimulatedStep::Collective { communicator, exchange_s } => {
                    self.meet(communicator as usize + 1, p, exchange_s)
                }
                SimulatedStep::Metadata(op) => match self.system.metadata {
                    None => self.ready.push_back(p),
                    Some(_) if self.metadata_busy.is_some() => self.metadata.push_back((p, op)),
                    Some(_) => self.answer(p, op),
                },
            }
        }
    }

    fn answer(&mut self, p: usize, op: MetadataOp) {
        let metadata = self.system.metadata.unwrap();
        let service = match op {
            MetadataOp::Open => metadata.open,
            MetadataOp::Create | MetadataOp::Change => metadata.create,
            MetadataOp::Stat => metadata.stat,
        };
        self.metadata_busy = Some(p);
        self.events.push((self.now + ns(service.min_s), What::Metadata));
    }

    fn wake(&mut self, p: usize, after: u64, then: Then) {
        self.wakes[p] = then;
        self.events.push((self.now + after, What::Wake(p)));
    }

    fn meet(&mut self, c: usize, p: usize, exchange_s: f64) {
        self.waiting.entry(c).or_default().push(p);
        let exchange = self.exchange.entry(c).or_default();
        *exchange = (*exchange).max(ns(exchange_s));
        self.check(c);
    }

    fn is_member(&self, c: usize, p: usize) -> bool {
        c == 0
            || self.workload.processes[p]
                .iter()
                .any(|step| matches!(step, SimulatedStep::Collective { communicator, .. } if *communicator as usize + 1 == c))
    }

    fn check(&mut self, c: usize) {
        let members = (0..self.ended.len()).filter(|&p| self.is_member(c, p) && self.ended[p].is_none()).count();
        let waiting = self.waiting.get(&c).map_or(0, Vec::len);
        if waiting == 0 || waiting < members || self.events.iter().any(|event| event.1 == What::Release(c)) {
            return;
        }
        match self.exchange[&c] {
            0 => self.release(c),
            exchange => self.events.push((self.now + exchange, What::Release(c))),
        }
    }

    fn release(&mut self, c: usize) {
        self.exchange.insert(c, 0);
        self.ready.extend(in_turn(self.now, self.waiting.remove(&c).unwrap()));
    }

    fn issue(&mut self, p: usize) {
        self.issued[p] = self.now;
        match ns(self.system.links.latency_s) {
            latency if latency > 0 && self.access[p].unwrap().size > 0 => self.wake(p, latency, Then::Dispatch),
            _ => self.dispatch(p),
        }
    }

    fn dispatch(&mut self, p: usize) {
        let access = self.access[p].unwrap();
        let subs = self.layouts[access.file as usize].split(access.offset, access.size);
        self.left[p] = subs.len();
        if subs.is_empty() {
            self.ready.push_back(p);
        }
        let start = self.system.file_starts.as_ref().unwrap()[access.file as usize];
        for sub in subs {
            let server = sub.server.index();
            let position = start + sub.datafile_offset;
            let sub = Sub {
                id: 0,
                process: p,
                server,
                position,
                bytes: sub.len,
                op: access.op,
                sweep: 0,
                not_before: 0,
                adjacent: false,
            };
            let first = match access.op {
                Op::Write if self.system.links.client.is_some() => self.client(p, true),
                Op::Write if self.has_server_links() => What::ServerIn(server),
                _ => What::Device(server),
            };
            self.enter(first, sub);
        }
    }

    fn finish(&mut self, sub: Sub) {
        let p = sub.process;
        self.left[p] -= 1;
        if self.left[p] == 0 {
            match ns(self.system.links.latency_s) {
                0 => self.complete(p),
                latency => self.wake(p, latency, Then::Complete),
            }
        }
    }

    fn complete(&mut self, p: usize) {
        self.done.push((p as u32, self.access[p].unwrap().offset, self.issued[p], self.now));
        self.ready.push_back(p);
    }
}

fn queue() -> impl Strategy<Value = Queue> {
    prop_oneof![
        Just(Queue::Fifo),
        Just(Queue::Elevator),
        (0_u64..30, 0_u64..200)
            .prop_map(|(wait, near_bytes)| Queue::Anticipatory { wait_s: wait as f64 * 1e-9, near_bytes }),
    ]
}

fn startup() -> impl Strategy<Value = Startup> {
    let curve =
        (0_u64..5, 1_u64..9, 1_u64..40, any::<bool>()).prop_map(|(sequential, settle, more, linear)| SeekCurve {
            sequential_s: sequential as f64 * 1e-9,
            settle_s: settle as f64 * 1e-9,
            full_stroke_s: (settle + more) as f64 * 1e-9,
            stroke_bytes: 500,
            shape: if linear { SeekShape::Linear } else { SeekShape::SquareRoot },
            rotation_s: 0.0,
        });
    prop_oneof![Just(Startup::Drawn), (curve.clone(), curve).prop_map(|(read, write)| Startup::Seek { read, write })]
}

#[derive(Debug, Clone)]
struct Case {
    cluster: Cluster,
    layouts: Vec<Layout>,
    workload: ClosedLoop,
    system: System,
}

/// Small whole nanoseconds everywhere, so that times tie often.
#[expect(clippy::too_many_lines, reason = "one strategy, from its parts to the whole")]
fn case() -> impl Strategy<Value = Case> {
    let cost = || (0_u64..9, 0_u64..3, prop::option::of(0_u64..4));
    let server = (cost(), cost(), 0_u64..3, queue(), startup());
    let access = (0_u32..2, 0_u64..400, 0_u64..60, any::<bool>(), prop_oneof![3 => Just(0_u64), 1 => 1_u64..50]);
    let step = prop_oneof![
        12 => access.prop_map(|(file, offset, size, write, think)| SimulatedStep::Access(SimulatedAccess {
            file, offset, size, op: if write { Op::Write } else { Op::Read }, think_s: think as f64 * 1e-9 })),
        1 => Just(SimulatedStep::Metadata(MetadataOp::Open)),
        1 => Just(SimulatedStep::Metadata(MetadataOp::Create)),
        1 => Just(SimulatedStep::Metadata(MetadataOp::Stat)),
        1 => Just(SimulatedStep::Metadata(MetadataOp::Change)),
    ];
    let processes = prop::collection::vec(prop::collection::vec(step, 0..12), 1..6);
    let links = (
        prop_oneof![
            Just(ServerLink::InBeta),
            Just(ServerLink::OfProfile),
            (0_u64..4).prop_map(|t| ServerLink::Rate { s_per_byte: t as f64 * 1e-9 })
        ],
        prop::option::of((0_u64..4, 1_u32..4)),
        0_u64..6,
        any::<bool>(),
    );
    // Places where all processes meet (0: a barrier, else a collective call with that exchange).
    let meetings = prop::collection::vec((0_usize..12, prop::option::of(0_u64..9)), 0..3);
    let widths = prop::collection::vec(1_u64..30, 2 * 4);
    (prop::collection::vec(server, 1..5), widths, processes, links, meetings, any::<bool>(), 0_u64..500).prop_map(
        |(servers, widths, mut processes, (link, client, latency, pipelined), meetings, metadata, second)| {
            let op = |(startup, beta, sequential): (u64, u64, Option<u64>)| OpProfile {
                startup_min_s: startup as f64 * 1e-9,
                startup_max_s: startup as f64 * 1e-9,
                transfer_s_per_byte: beta as f64 * 1e-9,
                head: sequential.map(|startup| Head { sequential_startup_s: startup as f64 * 1e-9, ahead_bytes: 0 }),
            };
            let tiers = servers.iter().enumerate().map(|(index, server)| Tier {
                name: format!("t{index}"),
                servers: vec![ServerId(index as u16)],
                profile: Profile {
                    read: op(server.0),
                    write: op(server.1),
                    network_s_per_byte: server.2 as f64 * 1e-9,
                },
                capacity_bytes: None,
                in_turn: false,
                at_once: 1,
            });
            let round = |from: usize| -> Vec<Stripe> {
                (0..servers.len())
                    .map(|s| Stripe { server: ServerId(s as u16), width_bytes: widths[from + s] })
                    .collect()
            };
            let half = round(4).split_off(servers.len() / 2);
            let layouts =
                vec![Layout::new([(0, round(0))]).unwrap(), Layout::new([(0, round(4)), (150, half)]).unwrap()];
            for (number, &(at, exchange)) in meetings.iter().enumerate() {
                // Every other communicator is of every other process.
                let few = exchange.is_some() && number % 2 == 1;
                for steps in processes.iter_mut().step_by(if few { 2 } else { 1 }) {
                    // In one order everywhere, so no two wait for each other; those with fewer steps are done.
                    let at = at.min(steps.len());
                    let meeting = match exchange {
                        None => SimulatedStep::Barrier,
                        Some(exchange) => SimulatedStep::Collective {
                            communicator: number as u32,
                            exchange_s: exchange as f64 * 1e-9,
                        },
                    };
                    let after = steps
                        .iter()
                        .rposition(|step| !matches!(step, SimulatedStep::Access(_) | SimulatedStep::Metadata(_)));
                    steps.insert(at.max(after.map_or(0, |after| after + 1)).min(steps.len()), meeting);
                }
            }
            let system = System {
                devices: servers.iter().map(|s| TierDevice { queue: s.3, startup: s.4 }).collect(),
                links: Links {
                    server: link,
                    client: client
                        .map(|(t, ranks)| ClientLink { s_per_byte: t as f64 * 1e-9, processes_per_node: ranks }),
                    latency_s: latency as f64 * 1e-9,
                    forwarding: if pipelined { Forwarding::Pipelined } else { Forwarding::StoreAndForward },
                },
                metadata: metadata.then_some(Metadata {
                    threads: 1,
                    open: Service { min_s: 3e-9, max_s: 3e-9 },
                    create: Service { min_s: 7e-9, max_s: 7e-9 },
                    stat: Service { min_s: 1e-9, max_s: 1e-9 },
                }),
                names_on_meta: None,
                file_starts: Some(vec![0, second]),
                turns: None,
                bins: 4,
            };
            Case {
                cluster: Cluster { tiers: tiers.collect(), meta: None },
                layouts,
                workload: ClosedLoop { processes },
                system,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_plain_simulator_to_the_nanosecond(case in case()) {
        let Case { cluster, layouts, workload, system } = &case;
        let mut done: Vec<Ended> = Vec::new();
        let note = |process: u32, access: &SimulatedAccess, issued_s: f64, ended_s: f64| {
            done.push((process, access.offset, ns(issued_s), ns(ended_s)));
        };
        let report = run_observed(cluster, layouts, workload, system, SEED, note).unwrap();
        let (expected, makespan, served) = Reference::new(cluster, layouts, workload, system).run();
        prop_assert_eq!(&done, &expected);
        prop_assert_eq!(ns(report.outcome.makespan_s), makespan);
        for (server, &count) in report.outcome.servers.iter().zip(&served) {
            prop_assert_eq!(server.requests(), count);
        }

        // What holds for every run.
        let accesses = || workload.processes.iter().flatten().filter_map(|step| {
            if let SimulatedStep::Access(access) = step { Some(access) } else { None }
        });
        let bytes: u64 = accesses().map(|access| access.size).sum();
        prop_assert_eq!(report.outcome.read_bytes + report.outcome.written_bytes, bytes);
        prop_assert_eq!(report.outcome.servers.iter().map(|server| server.bytes).sum::<u64>(), bytes);
        prop_assert_eq!(report.requests as usize, accesses().filter(|access| access.size > 0).count());
        let most = report.outcome.makespan_s + 1e-12;
        for (server, queue) in report.outcome.servers.iter().zip(&report.queues) {
            prop_assert!(server.busy_s <= most && server.link_in_busy_s <= most && server.link_out_busy_s <= most);
            prop_assert!(queue.startup_s <= server.busy_s + 1e-12);
        }
        for node in &report.nodes {
            prop_assert!(node.in_busy_s <= most && node.out_busy_s <= most);
        }
        // The time line says the same as the totals.
        let timeline = report.timeline.unwrap();
        prop_assert_eq!(timeline.read_bytes.iter().sum::<u64>(), report.outcome.read_bytes);
        prop_assert_eq!(timeline.written_bytes.iter().sum::<u64>(), report.outcome.written_bytes);
        for (bins, server) in timeline.servers.iter().zip(&report.outcome.servers) {
            prop_assert_eq!(bins.iter().map(|bin| bin.bytes).sum::<u64>(), server.bytes);
            let last = bins.len() - 1;
            let length = |bin: usize| if bin < last { timeline.bin_s } else { report.outcome.makespan_s - last as f64 * timeline.bin_s };
            let busy: f64 = bins.iter().enumerate().map(|(index, bin)| bin.busy * length(index).max(1e-9)).sum();
            prop_assert!((busy - server.busy_s).abs() < 1e-8 * bins.len() as f64);
        }
    }
}
