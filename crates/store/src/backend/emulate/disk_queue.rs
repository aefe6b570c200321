//! The queue of an emulated disk: which sub-request its head serves next, and when.
//!
//! No process has the part of the disk. A process that waits for its service carries the schedule on up to the present
//! ([`DiskQueue::settle`]): each decision is made as of the time at which the disk would have made it, from what had arrived by
//! then, so it does not matter which process makes it, or how much later. The rules are those of the simulator
//! (`stripewise_model::Queue`).

use std::sync::atomic::Ordering::Relaxed;

use rustix::thread::futex;
use rustix::time::Timespec;
use stripewise_model::{Op, Profile, Queue, SeekCurve};

use super::disk::DiskConfig;
use super::disk_page::{Arm, ArmState, DiskPage, DiskSub, DiskTicket, SLOTS};
use super::draws::{mix, unit};
use super::sleep::now_ns;
use crate::os::shared_pages::SharedPage;

/// A process looks at the page at least this often while it waits: 20 ms.
const LOOK_AGAIN_NS: u64 = 20_000_000;
/// Steps that one look carries the schedule on: each is a service or a wait, and each sub-request that waits has at most two.
const MOST_STEPS: usize = 4 * SLOTS;

/// One operation on the disk in dilated nanoseconds.
#[derive(Debug, Clone, Copy)]
struct DiskCost {
    curve: SeekCurve,
    transfer_s_per_byte: f64,
}

/// A sub-request as it comes.
#[derive(Debug, Clone, Copy)]
pub struct DiskRequest {
    /// Read or write.
    pub op: Op,
    /// Which datafile ([`datafile_key`]).
    pub datafile: u64,
    /// First byte in it.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// The process or thread that asks.
    pub process: u32,
}

/// What the schedule says of a sub-request.
pub(super) enum Look {
    /// Its service.
    Decided { start_ns: u64, deadline_ns: u64 },
    /// It waits: the next decision is then, unless something comes before; `seen` is the count of decisions so far.
    Later { seen: u32, next_ns: u64 },
}

/// What tells a datafile from all others of a server: its file, by handle, and the region of its layout. Not 0.
pub fn datafile_key(handle: u64, region: usize) -> u64 {
    (handle ^ ((region as u64) << 48)).max(1)
}

/// The queue, open in this process.
pub(super) struct DiskQueue {
    page: SharedPage<DiskPage>,
    config: DiskConfig,
    read: DiskCost,
    write: DiskCost,
    dilation: f64,
    stream: u64,
    most_ns: u64,
}

impl DiskQueue {
    /// The queue of a disk with that profile. `most_ns`: no service is longer, and no time further ahead.
    pub(super) fn new(
        page: SharedPage<DiskPage>,
        config: DiskConfig,
        profile: &Profile,
        (dilation, stream, most_ns): (f64, u64, u64),
    ) -> Self {
        let cost = |op: Op| {
            let of = profile.of(op);
            let transfer_s_per_byte = of.transfer_s_per_byte + profile.network_s_per_byte;
            DiskCost { curve: config.curve(of), transfer_s_per_byte }
        };
        Self { page, config, read: cost(Op::Read), write: cost(Op::Write), dilation, stream, most_ns }
    }

    /// Dilated nanoseconds.
    fn ns(&self, seconds: f64) -> u64 {
        ((seconds * self.dilation * 1e9) as u64).min(self.most_ns)
    }

    fn wait_ns(&self) -> Option<(u64, u64)> {
        match self.config.queue {
            Queue::Anticipatory { wait_s, near_bytes } => Some((self.ns(wait_s), near_bytes)),
            Queue::Fifo | Queue::Elevator => None,
        }
    }

    /// A sub-request comes. It waits in the queue, or, where that is full, has its service at once: then the ticket is `None`
    /// and the times are its service's. O([`SLOTS`]), no allocation; up to three system calls where other processes wait.
    pub(super) fn enter(&self, asked: &DiskRequest, arrival_ns: u64) -> (Option<DiskTicket>, u64, u64) {
        let lease = self.page.lease();
        let mut arm = self.page.arm(arrival_ns, self.most_ns);
        let mut is_changed = self.advance(&mut arm, arrival_ns);
        let position = disk_position(&self.config, asked.datafile, asked.offset, |key| self.page.place_or_new(key));
        let sub = DiskSub {
            position,
            bytes: asked.bytes,
            process: asked.process.max(1),
            is_write: asked.op == Op::Write,
            // What was decided stays decided.
            arrival_ns: arrival_ns.max(arm.decided_ns),
            number: 0,
            is_of_odd_sweep: arm.is_odd_sweep != (position <= arm.last_start),
        };
        let ticket = self.page.push(&sub, arrival_ns);
        let mut service = (0, 0);
        if ticket.is_some() {
            if let Some((wait_ns, _)) = self.wait_ns() {
                let mut history = self.page.history(sub.process);
                history.arrives(sub.arrival_ns, wait_ns, (sub.position, sub.bytes), &mut arm.new);
                self.page.remember(sub.process, &history);
            }
            is_changed |= self.ends_wait(&mut arm, &sub) | self.advance(&mut arm, arrival_ns);
        } else {
            service = (arrival_ns, arrival_ns.saturating_add(self.service_ns(&arm, &sub)));
        }
        self.page.keep(&arm);
        self.publish(is_changed);
        drop(lease);
        (ticket, service.0, service.1)
    }

    /// Where a byte of a datafile is; `None` before its first request.
    pub(super) fn address(&self, datafile: u64, offset: u64) -> Option<u64> {
        let number = self.page.place(datafile)?;
        Some(disk_position(&self.config, datafile, offset, |_| Some(number)))
    }

    /// Waits until the disk has decided when a sub-request is served: begin and end. Sleeps between decisions; at most until
    /// `give_up_ns`, and then the service is over.
    pub(super) fn settle(&self, ticket: &DiskTicket, give_up_ns: u64) -> (u64, u64) {
        loop {
            let now_ns = now_ns();
            match self.look(ticket, now_ns) {
                Look::Decided { start_ns, deadline_ns } => return (start_ns, deadline_ns),
                Look::Later { .. } if now_ns >= give_up_ns => {
                    self.page.give_up(ticket);
                    return (now_ns, now_ns);
                }
                Look::Later { seen, next_ns } => self.sleep(seen, next_ns.saturating_sub(now_ns)),
            }
        }
    }

    /// Carries the schedule on up to `now_ns`, and looks what it says of a sub-request. O([`SLOTS`]) a decision.
    pub(super) fn look(&self, ticket: &DiskTicket, now_ns: u64) -> Look {
        let lease = self.page.lease();
        let mut arm = self.page.arm(now_ns, self.most_ns);
        let is_changed = self.advance(&mut arm, now_ns);
        self.page.keep(&arm);
        let service = self.page.take(ticket, now_ns);
        self.publish(is_changed);
        let seen = self.page.decisions.load(Relaxed);
        drop(lease);
        let bound = |time_ns: u64| time_ns.min(now_ns.saturating_add(self.most_ns));
        match (service, arm.state) {
            (Some((start_ns, deadline_ns)), _) => {
                Look::Decided { start_ns: bound(start_ns), deadline_ns: bound(deadline_ns) }
            }
            (None, ArmState::Idle) => Look::Later { seen, next_ns: now_ns.saturating_add(LOOK_AGAIN_NS) },
            (None, ArmState::Serving { until_ns, .. } | ArmState::Waiting { until_ns, .. }) => {
                Look::Later { seen, next_ns: until_ns }
            }
        }
    }

    /// Sleeps for that time, or until the schedule has changed since `seen`.
    fn sleep(&self, seen: u32, time_ns: u64) {
        let time_ns = time_ns.clamp(1, LOOK_AGAIN_NS);
        let timeout = Timespec { tv_sec: 0, tv_nsec: time_ns as i64 };
        self.page.sleepers.fetch_add(1, Relaxed);
        let _ = futex::wait(&self.page.decisions, futex::Flags::empty(), seen, Some(&timeout));
        self.page.sleepers.fetch_sub(1, Relaxed);
    }

    /// Wakes processes that wait, if the schedule has changed.
    fn publish(&self, is_changed: bool) {
        if is_changed {
            self.page.decisions.fetch_add(1, Relaxed);
            if self.page.sleepers.load(Relaxed) != 0 {
                let _ = futex::wake(&self.page.decisions, futex::Flags::empty(), i32::MAX as u32);
            }
        }
    }

    /// Carries the schedule on up to `now_ns`; whether it has changed.
    fn advance(&self, arm: &mut Arm, now_ns: u64) -> bool {
        let steps = (0..MOST_STEPS).take_while(|_| self.step(arm, now_ns)).count();
        steps > 0
    }

    /// One decision, if its time has come.
    fn step(&self, arm: &mut Arm, now_ns: u64) -> bool {
        match arm.state {
            ArmState::Idle => {
                let first_ns = self.page.waiting().map(|(_, sub)| sub.arrival_ns).min();
                first_ns.is_some_and(|at_ns| at_ns <= now_ns && self.begin(arm, at_ns))
            }
            ArmState::Serving { process, until_ns } if until_ns <= now_ns => {
                self.ends(arm, process, until_ns);
                true
            }
            ArmState::Serving { .. } => false,
            ArmState::Waiting { until_ns, .. } if until_ns <= now_ns => {
                self.begin(arm, until_ns);
                true
            }
            ArmState::Waiting { .. } => false,
        }
    }

    /// Ends the wait of the arm if `sub`, which has just come, is of the process that it waits for, or worth more; whether it
    /// has. Each sub-request is judged once, by what is known when it comes: the first values of other processes may change
    /// what is expected of this one later.
    fn ends_wait(&self, arm: &mut Arm, sub: &DiskSub) -> bool {
        let ArmState::Waiting { process, .. } = arm.state else { return false };
        (sub.process == process || self.is_worth_it(arm, process, sub.position)) && self.begin(arm, sub.arrival_ns)
    }

    /// A service ends at `at_ns`: the arm waits for the next sub-request of its process, or takes the next of all.
    fn ends(&self, arm: &mut Arm, process: u32, at_ns: u64) {
        if let Some((wait_ns, _)) = self.wait_ns() {
            let mut history = self.page.history(process);
            history.ends(at_ns);
            self.page.remember(process, &history);
            let next = self.best(arm, at_ns);
            if wait_ns > 0
                && history.returns(wait_ns, &arm.new)
                && next.is_none_or(|(_, sub)| !self.is_worth_it(arm, process, sub.position))
            {
                arm.decided_ns = at_ns;
                arm.state = ArmState::Waiting { process, until_ns: at_ns.saturating_add(wait_ns) };
                return;
            }
        }
        self.begin(arm, at_ns);
    }

    /// Whether a sub-request at `position` is better than waiting for `process` (as in the simulator).
    fn is_worth_it(&self, arm: &Arm, process: u32, position: u64) -> bool {
        let distance = position.abs_diff(arm.head);
        let near = self.wait_ns().is_some_and(|(_, near_bytes)| distance <= near_bytes);
        near || (distance as f64) < self.page.history(process).expected_seek(&arm.new)
    }

    /// What is next of all that had come by `at_ns`: the first, or the next one of the sweep.
    fn best(&self, arm: &Arm, at_ns: u64) -> Option<(usize, DiskSub)> {
        let here = self.page.waiting().filter(|(_, sub)| sub.arrival_ns <= at_ns);
        match self.config.queue {
            Queue::Fifo => here.min_by_key(|(_, sub)| (sub.arrival_ns, sub.number)),
            Queue::Elevator | Queue::Anticipatory { .. } => {
                here.min_by_key(|(_, sub)| (sub.is_of_odd_sweep != arm.is_odd_sweep, sub.position, sub.number))
            }
        }
    }

    /// Serves what is next at `at_ns`; whether there was anything.
    fn begin(&self, arm: &mut Arm, at_ns: u64) -> bool {
        arm.decided_ns = at_ns;
        let Some((slot, sub)) = self.best(arm, at_ns) else {
            arm.state = ArmState::Idle;
            return false;
        };
        let until_ns = at_ns.saturating_add(self.service_ns(arm, &sub));
        self.page.decide(slot, at_ns, until_ns);
        arm.head = sub.position.saturating_add(sub.bytes);
        (arm.last_start, arm.is_odd_sweep) = (sub.position, sub.is_of_odd_sweep);
        arm.state = ArmState::Serving { process: sub.process, until_ns };
        true
    }

    fn service_ns(&self, arm: &Arm, sub: &DiskSub) -> u64 {
        let cost = if sub.is_write { &self.write } else { &self.read };
        let distance = sub.position.abs_diff(arm.head);
        let turn = unit(self.stream, self.page.draw());
        let turn_s = if distance == 0 { 0.0 } else { turn * cost.curve.rotation_s };
        self.ns(cost.curve.seek_s(distance) + turn_s + sub.bytes as f64 * cost.transfer_s_per_byte)
    }
}

/// Where a byte of a datafile is on a disk, whose datafiles have the numbers of `place`; one without a number is anywhere.
pub(super) fn disk_position(
    config: &DiskConfig,
    datafile: u64,
    offset: u64,
    place: impl FnOnce(u64) -> Option<u64>,
) -> u64 {
    let begin = match place(datafile) {
        Some(number) => number.wrapping_mul(config.file_distance_bytes),
        None => mix(datafile),
    };
    begin.wrapping_add(offset) % config.size_bytes.max(1)
}
