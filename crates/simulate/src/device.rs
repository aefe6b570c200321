//! The device of a server: its queue, its head, what it did.

use crate::anticipation::Learned;
use crate::draw::Draws;
use crate::outcome::TakenSubs;
use crate::side_by_side::SideBySide;
use crate::slab::{Line, Slab, Sub};
use crate::sweeps::Sweeps;
use crate::system::Startup;
use crate::time::{after, ns};
use stripewise_model::{Head, NameCosts, Op, Profile, Queue, RunEnds, SeekCurve};

/// What one operation costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    startup_min_s: f64,
    startup_max_s: f64,
    head: Option<Head>,
    s_per_byte: f64,
}

/// What devices of one tier have in common: kept once, so that what each has of its own is a few cache lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceModel {
    queue: Queue,
    startup: Startup,
    read: Cost,
    write: Cost,
    /// Whether adjacent sub-requests have a startup of their own.
    has_head: bool,
}

impl DeviceModel {
    pub(crate) fn new(device: crate::system::TierDevice, profile: &Profile, in_beta: bool) -> Self {
        let cost = |op: Op| {
            let costs = profile.of(op);
            let network = if in_beta { profile.network_s_per_byte } else { 0.0 };
            Cost {
                startup_min_s: costs.startup_min_s,
                startup_max_s: costs.startup_max_s,
                head: costs.head,
                s_per_byte: costs.transfer_s_per_byte + network,
            }
        };
        let has_head = profile.has_head() && device.startup == Startup::Drawn;
        Self { queue: device.queue, startup: device.startup, read: cost(Op::Read), write: cost(Op::Write), has_head }
    }

    /// Bytes that one move of the head serves of a stream.
    #[inline]
    fn ahead_bytes(&self, write: bool) -> u64 {
        let cost = if write { &self.write } else { &self.read };
        cost.head.map_or(0, |head| head.ahead_bytes)
    }

    /// Nanoseconds that an anticipatory queue waits at most, and how far away is close, in bytes.
    #[inline]
    fn patience(&self) -> Option<(u64, u64)> {
        match self.queue {
            Queue::Anticipatory { wait_s, near_bytes } => Some((ns(wait_s), near_bytes)),
            Queue::Fifo | Queue::Elevator => None,
        }
    }
}

/// Waiting sub-requests.
#[derive(Debug)]
enum Pending {
    Line(Line),
    Sweeps(Sweeps),
}

/// What the device does.
#[derive(Debug, Clone, Copy)]
enum State {
    Free,
    Serving {
        sub: Sub,
        since_ns: u64,
    },
    /// Holding back for the next request of a process.
    Waiting {
        process: u32,
        until_ns: u64,
    },
}

/// What the device begins to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    Nothing,
    /// To serve a sub-request, until then.
    Service(u64),
    /// To wait, until then at most.
    Wait(u64),
}

/// A server's device.
#[derive(Debug)]
pub(crate) struct ServerDevice {
    state: State,
    /// Where the last sub-request ended on disk.
    head: u64,
    draws: Draws,
    /// Of devices with a head whose startups are drawn.
    moves: Option<Box<HeadMoves>>,
    pub used: Used,
    pending: Pending,
    /// Of anticipatory queues: what they know of processes.
    learned: Option<Box<Learned>>,
    /// Of a server that serves several side by side: it has no queue but these.
    side_by_side: Option<Box<SideBySide>>,
}

/// For which sub-requests a head moves.
#[derive(Debug, Default)]
struct HeadMoves {
    ends: RunEnds,
    /// Sub-requests that have come.
    arrivals: u64,
    /// Reads and writes for which it did not.
    adjacent_reads: u64,
    adjacent_writes: u64,
}

/// What a device did, in whole numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    reads: u64,
    writes: u64,
    pub bytes: u64,
    pub busy_ns: u64,
    pub waiting_ns: u64,
    pub startup_ns: u64,
    /// Sub-requests here now, the one being served among them, and most at any time.
    pub present: u32,
    pub most_present: u32,
}

impl Used {
    /// Services begun.
    fn begun(&self) -> u64 {
        self.reads + self.writes
    }
}

impl ServerDevice {
    pub(crate) fn new(model: &DeviceModel, draws: Draws) -> Self {
        let pending = match model.queue {
            Queue::Fifo => Pending::Line(Line::EMPTY),
            Queue::Elevator | Queue::Anticipatory { .. } => Pending::Sweeps(Sweeps::default()),
        };
        let learned = model.patience().map(|_| Box::default());
        let moves = model.has_head.then(Box::default);
        let (state, used) = (State::Free, Used::default());
        Self { pending, state, learned, draws, moves, head: 0, used, side_by_side: None }
    }

    /// The same, for that many requests side by side, operations on `names` among them.
    pub(crate) fn serving(self, at_once: u32, names: NameCosts) -> Self {
        Self { side_by_side: Some(Box::new(SideBySide::new(at_once, names))), ..self }
    }

    /// Whether requests are served side by side: by [`ServerDevice::beside`] alone.
    #[inline]
    pub(crate) fn is_side_by_side(&self) -> bool {
        self.side_by_side.is_some()
    }

    /// A request comes to places side by side, an operation on names if it has no byte: begin and end of its service, which are known
    /// then. O(places).
    pub(crate) fn beside(&mut self, now_ns: u64, model: &DeviceModel, sub: &Sub) -> (u64, u64) {
        let cost = if sub.write { &model.write } else { &model.read };
        let names = self.side_by_side.as_ref().filter(|_| sub.bytes == 0).map(|places| places.names);
        let startup_s = match names {
            Some(NameCosts { look_s, change_s }) => {
                let [least_s, most_s] = if sub.write { change_s } else { look_s };
                self.draws.uniform(least_s, most_s)
            }
            None => self.startup_s(model, cost, sub),
        };
        let takes_ns = ns(startup_s + sub.bytes as f64 * cost.s_per_byte);
        let places = self.side_by_side.as_mut().expect("a server with places side by side");
        let (begins_ns, ends_ns) = places.take(now_ns, takes_ns);
        self.used.present += 1;
        self.used.most_present = self.used.most_present.max(self.used.present);
        self.used.busy_ns = after(self.used.busy_ns, takes_ns);
        self.count(sub, begins_ns - now_ns, startup_s);
        (begins_ns, ends_ns)
    }

    /// What came to places side by side has been served.
    pub(crate) fn left(&mut self) {
        self.used.present -= 1;
    }

    /// Notes what a service takes that begins `waited_ns` after its request came.
    #[inline]
    fn count(&mut self, sub: &Sub, waited_ns: u64, startup_s: f64) {
        *(if sub.write { &mut self.used.writes } else { &mut self.used.reads }) += 1;
        self.used.bytes = self.used.bytes.saturating_add(sub.bytes);
        self.used.waiting_ns = after(self.used.waiting_ns, waited_ns);
        self.used.startup_ns = after(self.used.startup_ns, ns(startup_s));
    }

    /// Reads and writes whose service has begun.
    pub(crate) fn taken(&self) -> (TakenSubs, TakenSubs) {
        let (reads, writes) = self.moves.as_ref().map_or((0, 0), |moves| (moves.adjacent_reads, moves.adjacent_writes));
        let taken = |requests, adjacent| TakenSubs { requests, adjacent };
        (taken(self.used.reads, reads), taken(self.used.writes, writes))
    }

    /// A sub-request comes. O(1) for FIFO, O(log queue) else.
    #[inline]
    pub(crate) fn arrive(&mut self, now_ns: u64, model: &DeviceModel, slab: &mut Slab, mut sub: Sub) -> Begin {
        self.used.present += 1;
        self.used.most_present = self.used.most_present.max(self.used.present);
        sub.stamp_ns = now_ns;
        if let (Some(moves), Pending::Line(_)) = (&mut self.moves, &self.pending) {
            // Served in order of arrival: those with a number above the services begun still wait.
            moves.arrivals += 1;
            let (number, begun, ahead) = (moves.arrivals, self.used.begun(), model.ahead_bytes(sub.write));
            sub.adjacent = moves.ends.take(sub.position, sub.bytes, number, begun, ahead).1;
        }
        if let (Some(learned), Some((wait_ns, _))) = (&mut self.learned, model.patience()) {
            learned.arrives(now_ns, wait_ns, &sub);
        }
        if let State::Free = self.state {
            // Nothing is queued: what comes is served, and never sees the queue.
            if let Pending::Sweeps(sweeps) = &mut self.pending {
                sweeps.starts(sub.position);
            }
            return self.serve(now_ns, model, sub);
        }
        match &mut self.pending {
            Pending::Line(line) => {
                let slot = slab.add(sub);
                line.push(slab, slot);
            }
            Pending::Sweeps(sweeps) => sweeps.push(slab, sub),
        }
        match self.state {
            State::Waiting { process, .. }
                if sub.process == process || self.is_worth_it(model, process, sub.position) =>
            {
                self.next(now_ns, model, slab)
            }
            _ => Begin::Nothing,
        }
    }

    /// The sub-request that is served at the time of a device event. The device stays taken until
    /// [`ServerDevice::go_on`]. O(1).
    #[inline]
    pub(crate) fn done(&mut self, now_ns: u64) -> (Sub, u64) {
        let State::Serving { sub, since_ns } = self.state else { unreachable!("a device event without a service") };
        self.used.present -= 1;
        self.used.busy_ns = after(self.used.busy_ns, now_ns - since_ns);
        if let Some(learned) = &mut self.learned {
            learned.ends(now_ns, sub.process);
        }
        (sub, since_ns)
    }

    /// Chooses what is next, after `served` has had its last sub-request served here (`None` when that process has
    /// ended). O(1) for FIFO, O(log queue) else.
    #[inline]
    pub(crate) fn go_on(&mut self, now_ns: u64, model: &DeviceModel, slab: &mut Slab, served: Option<u32>) -> Begin {
        if let (Some(learned), Some((wait_ns, _)), Some(process)) = (&self.learned, model.patience(), served)
            && learned.returns(process, wait_ns)
        {
            let next = match &self.pending {
                Pending::Sweeps(sweeps) => sweeps.peek(),
                Pending::Line(_) => None,
            };
            let until_ns = after(now_ns, wait_ns);
            if until_ns > now_ns && next.is_none_or(|position| !self.is_worth_it(model, process, position)) {
                self.state = State::Waiting { process, until_ns };
                return Begin::Wait(until_ns);
            }
        }
        self.next(now_ns, model, slab)
    }

    /// The wait that was to end now is over, unless it has ended already.
    #[inline]
    pub(crate) fn out_of_patience(&mut self, now_ns: u64, model: &DeviceModel, slab: &mut Slab) -> Begin {
        match self.state {
            State::Waiting { until_ns, .. } if until_ns == now_ns => self.next(now_ns, model, slab),
            _ => Begin::Nothing,
        }
    }

    /// Whether a sub-request at `position` is better than waiting for `process`: close to the head, or closer than that
    /// process's own next one is expected to be.
    #[inline]
    fn is_worth_it(&self, model: &DeviceModel, process: u32, position: u64) -> bool {
        let distance = position.abs_diff(self.head);
        match (model.patience(), &self.learned) {
            (Some((_, near_bytes)), Some(learned)) => {
                distance <= near_bytes || (distance as f64) < learned.expected_seek(process)
            }
            _ => false,
        }
    }

    #[inline]
    fn next(&mut self, now_ns: u64, model: &DeviceModel, slab: &mut Slab) -> Begin {
        let sub = match &mut self.pending {
            Pending::Line(line) => line.pop(slab).map(|slot| slab.remove(slot)),
            Pending::Sweeps(sweeps) => sweeps.pop(slab),
        };
        match sub {
            Some(sub) => self.serve(now_ns, model, sub),
            None => {
                self.state = State::Free;
                Begin::Nothing
            }
        }
    }

    #[inline]
    fn serve(&mut self, now_ns: u64, model: &DeviceModel, sub: Sub) -> Begin {
        let cost = if sub.write { &model.write } else { &model.read };
        let mut sub = sub;
        if let Some(moves) = &mut self.moves {
            if let Pending::Sweeps(_) = self.pending {
                // Sweeps put adjacent sub-requests one after the other by themselves.
                sub.adjacent = moves.ends.take(sub.position, sub.bytes, 0, 0, model.ahead_bytes(sub.write)).1;
            }
            let adjacent = if sub.write { &mut moves.adjacent_writes } else { &mut moves.adjacent_reads };
            *adjacent += u64::from(sub.adjacent);
        }
        let startup_s = self.startup_s(model, cost, &sub);
        let takes_ns = ns(startup_s + sub.bytes as f64 * cost.s_per_byte);
        let ends_ns = after(now_ns, takes_ns);
        self.head = sub.position.saturating_add(sub.bytes);
        self.state = State::Serving { sub, since_ns: now_ns };
        self.count(&sub, now_ns - sub.stamp_ns, startup_s);
        Begin::Service(ends_ns)
    }

    /// The n-th service of a server draws the n-th number, whatever it costs.
    #[inline]
    fn startup_s(&mut self, model: &DeviceModel, cost: &Cost, sub: &Sub) -> f64 {
        match &model.startup {
            Startup::Drawn => {
                let drawn_s = self.draws.uniform(cost.startup_min_s, cost.startup_max_s);
                cost.head.filter(|_| sub.adjacent).map_or(drawn_s, |head| head.sequential_startup_s)
            }
            Startup::Seek { read, write } => {
                let curve: &SeekCurve = if sub.write { write } else { read };
                let distance = sub.position.abs_diff(self.head);
                let turn_s = self.draws.uniform(0.0, curve.rotation_s);
                curve.seek_s(distance) + if distance == 0 { 0.0 } else { turn_s }
            }
        }
    }
}
