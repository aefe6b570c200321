//! The device of a server: its queue, its head, what it did.

use crate::draw::Draws;
use crate::slab::{Line, Slab, Sub};
use crate::system::{Queue, SeekCurve, Startup};
use crate::time::{after, ns};
use stripewise_model::{Op, Profile};

/// What one operation costs, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Cost {
    startup_min_s: f64,
    startup_max_s: f64,
    s_per_byte: f64,
}

/// Waiting sub-requests.
#[derive(Debug)]
enum Pending {
    Line(Line),
    Sweeps(Sweeps),
}

/// Two heaps: the present sweep and the next one. An entry is position, order of arrival and slot, in one number, so a
/// short queue is a few numbers side by side and a long one costs its logarithm.
#[derive(Debug, Default)]
struct Sweeps {
    present: Heap,
    next: Heap,
    arrivals: u64,
    /// Where the sub-request that was started last begins.
    last_start: Option<u64>,
}

/// Bits of an entry for the slot; the arrivals have the other bits of its lower half, and wrap after 2^36 of a server.
const SLOT_BITS: u32 = 28;

/// Most slots that an entry can name.
pub(crate) const MOST_SLOTS: usize = (1 << SLOT_BITS) - 1;

impl Sweeps {
    #[inline]
    fn push(&mut self, position: u64, slot: u32) {
        self.arrivals += 1;
        let order = (self.arrivals << SLOT_BITS) | u64::from(slot);
        let entry = u128::from(position) << 64 | u128::from(order);
        if self.last_start.is_none_or(|last| position > last) {
            self.present.push(entry);
        } else {
            self.next.push(entry);
        }
    }

    /// The next one's position. Looking does not begin a sweep: what comes meanwhile may still join it.
    #[inline]
    fn peek(&self) -> Option<u64> {
        let entry = self.present.0.first().or_else(|| self.next.0.first())?;
        Some((entry >> 64) as u64)
    }

    #[inline]
    fn pop(&mut self) -> Option<u32> {
        if self.present.0.is_empty() {
            std::mem::swap(&mut self.present, &mut self.next);
        }
        let entry = *self.present.0.first()?;
        self.present.pop();
        self.last_start = Some((entry >> 64) as u64);
        Some(entry as u32 & MOST_SLOTS as u32)
    }
}

/// A binary heap, least first.
#[derive(Debug, Default)]
struct Heap(Vec<u128>);

impl Heap {
    #[inline]
    fn push(&mut self, entry: u128) {
        let mut at = self.0.len();
        self.0.push(entry);
        let heap = self.0.as_mut_slice();
        while at > 0 {
            let parent = (at - 1) / 2;
            if heap[parent] <= entry {
                break;
            }
            heap[at] = heap[parent];
            at = parent;
        }
        heap[at] = entry;
    }

    #[inline]
    fn pop(&mut self) {
        let Some(entry) = self.0.pop() else { return };
        let heap = self.0.as_mut_slice();
        if heap.is_empty() {
            return;
        }
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= heap.len() {
                break;
            }
            if child + 1 < heap.len() && heap[child + 1] < heap[child] {
                child += 1;
            }
            if entry <= heap[child] {
                break;
            }
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = entry;
    }
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
pub(crate) struct Device {
    pending: Pending,
    state: State,
    queue: Queue,
    startup: Startup,
    read: Cost,
    write: Cost,
    draws: Draws,
    /// Where the last sub-request ended on disk.
    head: u64,
    pub used: Used,
}

/// What a device did, in whole numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    pub requests: u64,
    pub bytes: u64,
    pub busy_ns: u64,
    pub waiting_ns: u64,
    pub startup_ns: u64,
    /// Sub-requests here now, the one being served among them, and most at any time.
    pub present: u32,
    pub most_present: u32,
}

impl Device {
    pub(crate) fn new(device: crate::system::Device, profile: &Profile, in_beta: bool, draws: Draws) -> Self {
        let cost = |op: Op| {
            let costs = profile.of(op);
            let network = if in_beta { profile.network_s_per_byte } else { 0.0 };
            Cost {
                startup_min_s: costs.startup_min_s,
                startup_max_s: costs.startup_max_s,
                s_per_byte: costs.transfer_s_per_byte + network,
            }
        };
        let pending = match device.queue {
            Queue::Fifo => Pending::Line(Line::EMPTY),
            Queue::Elevator | Queue::Anticipatory { .. } => Pending::Sweeps(Sweeps::default()),
        };
        Self {
            pending,
            state: State::Free,
            queue: device.queue,
            startup: device.startup,
            read: cost(Op::Read),
            write: cost(Op::Write),
            draws,
            head: 0,
            used: Used::default(),
        }
    }

    /// A sub-request comes. O(1) for FIFO, O(log queue) else.
    #[inline]
    pub(crate) fn arrive(&mut self, now_ns: u64, slab: &mut Slab, mut sub: Sub) -> Begin {
        self.used.present += 1;
        self.used.most_present = self.used.most_present.max(self.used.present);
        sub.stamp_ns = now_ns;
        if let State::Free = self.state {
            // Nothing is queued: what comes is served, and never sees the slab.
            if let Pending::Sweeps(sweeps) = &mut self.pending {
                sweeps.last_start = Some(sub.position);
            }
            return self.serve(now_ns, sub);
        }
        let slot = slab.add(sub);
        match &mut self.pending {
            Pending::Line(line) => line.push(slab, slot),
            Pending::Sweeps(sweeps) => sweeps.push(sub.position, slot),
        }
        match self.state {
            State::Waiting { process, .. } if sub.process == process || self.is_near(sub.position) => {
                self.next(now_ns, slab)
            }
            _ => Begin::Nothing,
        }
    }

    /// The sub-request that is served at the time of a device event. The device stays taken until
    /// [`Device::go_on`]. O(1).
    #[inline]
    pub(crate) fn done(&mut self, now_ns: u64) -> (Sub, u64) {
        let State::Serving { sub, since_ns } = self.state else { unreachable!("a device event without a service") };
        self.used.present -= 1;
        self.used.busy_ns = after(self.used.busy_ns, now_ns - since_ns);
        (sub, since_ns)
    }

    /// Chooses what is next, after `served` has had its last sub-request served here (`None` when that process has
    /// ended). O(1) for FIFO, O(log queue) else.
    #[inline]
    pub(crate) fn go_on(&mut self, now_ns: u64, slab: &mut Slab, served: Option<u32>) -> Begin {
        if let (Queue::Anticipatory { wait_s, .. }, Some(process), Pending::Sweeps(sweeps)) =
            (self.queue, served, &self.pending)
        {
            let next = sweeps.peek();
            let until_ns = after(now_ns, ns(wait_s));
            if until_ns > now_ns && next.is_none_or(|position| !self.is_near(position)) {
                self.state = State::Waiting { process, until_ns };
                return Begin::Wait(until_ns);
            }
        }
        self.next(now_ns, slab)
    }

    /// The wait that was to end now is over, unless it has ended already.
    #[inline]
    pub(crate) fn out_of_patience(&mut self, now_ns: u64, slab: &mut Slab) -> Begin {
        match self.state {
            State::Waiting { until_ns, .. } if until_ns == now_ns => self.next(now_ns, slab),
            _ => Begin::Nothing,
        }
    }

    /// Whether a sub-request at `position` is close to the head.
    #[inline]
    fn is_near(&self, position: u64) -> bool {
        match self.queue {
            Queue::Anticipatory { near_bytes, .. } => position.abs_diff(self.head) <= near_bytes,
            _ => false,
        }
    }

    #[inline]
    fn next(&mut self, now_ns: u64, slab: &mut Slab) -> Begin {
        let slot = match &mut self.pending {
            Pending::Line(line) => line.pop(slab),
            Pending::Sweeps(sweeps) => sweeps.pop(),
        };
        match slot {
            Some(slot) => self.serve(now_ns, slab.remove(slot)),
            None => {
                self.state = State::Free;
                Begin::Nothing
            }
        }
    }

    #[inline]
    fn serve(&mut self, now_ns: u64, sub: Sub) -> Begin {
        let cost = if sub.write { self.write } else { self.read };
        let startup_s = self.startup_s(&cost, &sub);
        let takes_ns = ns(startup_s + sub.bytes as f64 * cost.s_per_byte);
        let ends_ns = after(now_ns, takes_ns);
        self.head = sub.position.saturating_add(sub.bytes);
        self.state = State::Serving { sub, since_ns: now_ns };
        self.used.requests += 1;
        self.used.bytes = self.used.bytes.saturating_add(sub.bytes);
        self.used.waiting_ns = after(self.used.waiting_ns, now_ns - sub.stamp_ns);
        self.used.startup_ns = after(self.used.startup_ns, ns(startup_s));
        Begin::Service(ends_ns)
    }

    /// The n-th service of a server draws the n-th number, whatever it costs.
    #[inline]
    fn startup_s(&mut self, cost: &Cost, sub: &Sub) -> f64 {
        match &self.startup {
            Startup::Drawn => self.draws.uniform(cost.startup_min_s, cost.startup_max_s),
            Startup::Seek { read, write } => {
                let curve: &SeekCurve = if sub.write { write } else { read };
                let distance = sub.position.abs_diff(self.head);
                let turn_s = self.draws.uniform(0.0, curve.rotation_s);
                curve.seek_s(distance) + if distance == 0 { 0.0 } else { turn_s }
            }
        }
    }
}
