//! The threads that wait for requests.
//!
//! The kernel gives requests to waiting threads in turn. With dozens of them, each request of a single program would
//! find another thread, whose buffers have long left the processor's caches. So only one more
//! thread waits than there is work for; the others are parked until all are busy.
//!
//! Where requests never wait for a disk, a thread that is woken for each request only takes the processor from one that would have
//! read the next request without a wait. So no more threads serve then than programs ask, and no more than there are processors, and
//! requests gather meanwhile. A single program has one thread, which answers on the processor that both have. A program may have
//! several requests on their way: while the next request is mostly there when a thread takes one, one more serves. Whether
//! requests wait, and are there already, is measured with each 17th.
//!
//! A request may also wait for another one that no thread has read yet. While requests gather a parked thread watches: it looks each
//! millisecond whether the threads that serve are stuck, and serves then itself.

use std::cell::RefCell;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::lock;
use crate::sync::{Condvar, Mutex, MutexGuard, thread_local, wait_for, waits};

/// Threads that wait for requests where these wait for disks; a further one that has nothing to do is parked.
const WAITING: usize = 2;
/// From one look of the thread that watches to the next.
const LOOK: Duration = Duration::from_millis(1);
/// Looks, one after the other, at which a thread is at the same request when it is stuck.
const STUCK_LOOKS: u64 = 2;
/// Looks after which a thread watches no more, if a thread waited at each and always since.
const CALM_LOOKS: u32 = 50;
/// Requests of a thread from one that is sampled to the next, which takes some system calls. A program does the same with each of its files: a
/// power of two would sample the same request of each.
const SAMPLED: u32 = 17;
/// Requests gather while those that are sampled wait less than this in the mean: a fast SSD takes four times as long.
const GATHER_BELOW_NS: f64 = 20e3;
/// A sampled request counts as no more, so that a few hundred requests later the disks can be forgotten.
const MOST_WAIT_NS: f64 = 1e6;
/// Weight of a sampled request in the means.
const WEIGHT: f64 = 1.0 / 16.0;
/// One thread more serves where the next request was there for this share of the sampled ones when they were taken, and one less below the
/// other. A program that has its answer may have asked again a few microseconds later: afterwards is too late to look.
const MOSTLY: f64 = 0.8;
const SELDOM: f64 = 0.5;

/// The threads of a mount that have served a request.
#[derive(Debug)]
pub struct Workers {
    state: Mutex<State>,
    /// A parked thread is called or has to watch, or the mount has ended.
    needed: Condvar,
    processors: usize,
}

#[derive(Debug, Default)]
struct State {
    /// How many threads serve and wait while requests gather.
    few: usize,
    /// Of these, as many more than at least.
    more: usize,
    /// For what share of requests the next one was there when they were taken.
    queued: f64,
    waiting: usize,
    parked: usize,
    /// Parked threads that were called and have not come yet.
    called: usize,
    /// What each thread does, by its number.
    threads: Vec<Does>,
    serving: usize,
    /// Threads that serve for longer than a look takes, or wait.
    stuck: usize,
    looks: u64,
    /// No thread waited at some moment since the last look.
    is_starved: bool,
    /// A parked thread watches.
    is_watched: bool,
    /// How long a request waited, in the mean.
    waits_ns: f64,
    /// The mount has ended: no thread parks any more.
    ended: bool,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// It waits, or is parked.
    Rests,
    /// It serves a request since that look.
    Serves(u64),
    /// It serves one for longer than a look takes, or that will wait.
    IsStuck,
}

thread_local! {
    /// The workers that this thread is one of.
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// Lives as long as its thread. A thread ends when the mount does; then those that are parked have to end too.
struct Member {
    workers: Arc<Workers>,
    /// Of the thread, from 0.
    number: usize,
    requests: u32,
    /// How often the thread had waited when it took this request, and whether the next one was there, if that is sampled.
    taken: Option<(i64, bool)>,
}

impl Drop for Member {
    fn drop(&mut self) {
        lock(&self.workers.state).ended = true;
        self.workers.needed.notify_all();
    }
}

impl Member {
    /// Of the thread that has just come.
    fn joins(workers: &Arc<Workers>) -> Self {
        let mut state = lock(&workers.state);
        state.threads.push(Does::Rests);
        let number = state.threads.len() - 1;
        Self { workers: workers.clone(), number, requests: 0, taken: None }
    }

    /// Begins a request; `has_come` says whether the next one is there. Each 17th time two system calls.
    fn begin(&mut self, has_come: impl FnOnce() -> bool) {
        self.taken = self.requests.is_multiple_of(SAMPLED).then(|| (waits(), has_come()));
        self.requests = self.requests.wrapping_add(1);
    }

    /// How long a request that took `service` has waited, and whether the next one was there when it was taken, if that was sampled: each 17th
    /// time a system call.
    fn end(&mut self, service: Duration) -> Option<(f64, bool)> {
        let (before, has_come) = self.taken.take()?;
        let waited_ns = if waits() == before { 0.0 } else { (service.as_nanos() as f64).min(MOST_WAIT_NS) };
        Some((waited_ns, has_come))
    }
}

impl State {
    /// Threads that serve, and soon do not any more.
    fn moving(&self) -> usize {
        self.serving - self.stuck
    }

    fn gathers(&self) -> bool {
        self.waits_ns < GATHER_BELOW_NS
    }

    /// Notes a sampled request.
    fn note(&mut self, (waited_ns, has_come): (f64, bool), processors: usize) {
        self.waits_ns += (waited_ns - self.waits_ns) * WEIGHT;
        self.queued += (f64::from(u8::from(has_come)) - self.queued) * WEIGHT;
        let more = match self.queued {
            queued if queued > MOSTLY => (self.more + 1).min(processors),
            queued if queued < SELDOM => self.more.saturating_sub(1),
            _ => return,
        };
        if more != self.more {
            (self.more, self.queued) = (more, f64::midpoint(MOSTLY, SELDOM));
        }
    }

    /// Finds out which threads are stuck. Whether a thread is to come in their place. O(threads).
    fn look(&mut self) -> bool {
        self.looks += 1;
        self.is_starved = self.waiting == 0;
        let now = self.looks;
        for does in &mut self.threads {
            if matches!(*does, Does::Serves(since) if since + STUCK_LOOKS <= now) {
                *does = Does::IsStuck;
                self.stuck += 1;
                self.waits_ns = MOST_WAIT_NS;
            }
        }
        self.waiting == 0 && (!self.gathers() || self.moving() + self.called < self.few)
    }
}

impl Workers {
    /// With `processors` to serve on.
    pub fn new(processors: usize) -> Self {
        let state = State { few: processors, ..State::default() };
        Self { state: Mutex::new(state), needed: Condvar::new(), processors }
    }

    /// This thread has taken a request. If no thread waits for the next one now, a parked thread is called, or has to watch while
    /// requests gather. `has_come` says whether the next request is there. One short lock.
    pub fn take(self: &Arc<Workers>, has_come: impl FnOnce() -> bool) {
        let (number, joins) = MEMBER.with(|member| {
            let mut member = member.borrow_mut();
            let joins = member.is_none();
            let member = member.get_or_insert_with(|| Member::joins(self));
            member.begin(has_come);
            (member.number, joins)
        });
        let mut state = lock(&self.state);
        if !joins {
            state.waiting -= 1;
        }
        state.threads[number] = Does::Serves(state.looks);
        state.serving += 1;
        if state.waiting > 0 {
            return;
        }
        state.is_starved = true;
        if state.parked <= state.called {
            return;
        }
        // Where requests wait, each calls the thread for the next one, and there is nothing to watch.
        if !state.gathers() || state.moving() + state.called < state.few {
            state.called += 1;
        } else if state.is_watched {
            return;
        }
        drop(state);
        self.needed.notify_one();
    }

    /// The request that this thread has taken will wait for a disk: another thread serves in its place. One short lock.
    pub fn will_wait(&self) {
        let Some(number) = MEMBER.with(|member| member.borrow().as_ref().map(|member| member.number)) else { return };
        let mut state = lock(&self.state);
        if matches!(state.threads[number], Does::Serves(_)) {
            state.threads[number] = Does::IsStuck;
            state.stuck += 1;
        }
        if state.waiting == 0 && state.parked > state.called && state.moving() + state.called < state.few {
            state.called += 1;
            drop(state);
            self.needed.notify_one();
        }
    }

    /// This thread is about to wait for the next request, after one that took `service`; it is parked first if enough others do, or soon
    /// will. No fewer than `least` threads are to serve while requests gather. Only after [`Workers::take`]. One short lock.
    pub fn rest(&self, service: Duration, least: usize) {
        let (number, sampled) = MEMBER.with(|member| {
            let mut member = member.borrow_mut();
            let member = member.as_mut().expect("a thread that has taken a request");
            (member.number, member.end(service))
        });
        let mut state = lock(&self.state);
        if let Some(sampled) = sampled {
            state.note(sampled, self.processors);
        }
        state.few = (least + state.more).min(self.processors);
        let did = std::mem::replace(&mut state.threads[number], Does::Rests);
        state.stuck -= usize::from(did == Does::IsStuck);
        state.serving -= 1;
        // Only threads that have served count as waiting: others would not tell the parked ones of the mount's end.
        if state.waiting >= WAITING || state.gathers() && state.waiting + state.moving() >= state.few {
            state.is_starved |= state.waiting == 0;
            state = self.park(state);
        }
        state.waiting += 1;
    }

    /// Waits until this thread is called, and watches if no other does and a thread has to.
    fn park<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.parked += 1;
        let mut calm = 0;
        while state.called == 0 && !state.ended {
            let is_to_watch = state.gathers() && (state.is_starved || calm > 0);
            if state.is_watched || !is_to_watch {
                state = self.needed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_watched = true;
            let has_passed;
            (state, has_passed) = wait_for(&self.needed, &self.state, state, LOOK);
            state.is_watched = false;
            if has_passed && state.called == 0 {
                calm = if state.is_starved { 1 } else { (calm + 1) % CALM_LOOKS };
                if state.look() {
                    state.called += 1;
                }
            }
        }
        state.parked -= 1;
        state.called = state.called.saturating_sub(1);
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    #[derive(Clone, Copy)]
    enum Order {
        Take,
        WillWait,
        Rest,
    }

    /// A thread that does as it is told, and says so when it has; it rests after it has waited for that long, and `least` are to serve.
    fn worker(workers: &Arc<Workers>, waits: Duration, least: usize) -> (Sender<Order>, Receiver<()>) {
        let (orders, received) = channel();
        let (say, said) = channel();
        let workers = workers.clone();
        std::thread::spawn(move || {
            for order in received {
                match order {
                    Order::Take => workers.take(|| false),
                    Order::WillWait => workers.will_wait(),
                    Order::Rest => {
                        std::thread::sleep(waits);
                        workers.rest(waits, least);
                    }
                }
                if say.send(()).is_err() {
                    return;
                }
            }
        });
        (orders, said)
    }

    fn order(worker: &(Sender<Order>, Receiver<()>), order: Order) {
        worker.0.send(order).unwrap();
    }

    fn eventually(workers: &Workers, what: &str, holds: impl Fn(&State) -> bool) {
        for _ in 0..60_000 {
            if holds(&lock(&workers.state)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("{what}: {:?}", lock(&workers.state));
    }

    #[test]
    fn who_is_not_needed_is_parked_and_called_when_all_are_busy() {
        let workers = Arc::new(Workers::new(2));
        let threads: Vec<_> = (0..4).map(|_| worker(&workers, Duration::ZERO, 2)).collect();
        for thread in &threads {
            order(thread, Order::Take);
            thread.1.recv().unwrap();
        }
        for thread in &threads {
            order(thread, Order::Rest);
        }
        eventually(&workers, "two wait and two are parked", |state| (state.waiting, state.parked) == (2, 2));
        let waiting: Vec<_> = threads.iter().filter(|thread| thread.1.try_recv().is_ok()).collect();
        for thread in &waiting {
            order(thread, Order::Take);
        }
        eventually(&workers, "one is called", |state| (state.waiting, state.parked, state.called) == (1, 1, 0));
        assert!(lock(&workers.state).looks > 0, "not before the two were seen to be stuck");
        for thread in &waiting {
            order(thread, Order::Rest);
        }
        eventually(&workers, "one more is parked", |state| (state.waiting, state.parked) == (2, 2));
        eventually(&workers, "no thread watches", |state| !state.is_watched);
    }

    #[test]
    fn where_requests_wait_a_thread_is_called_for_each() {
        let workers = Arc::new(Workers::new(2));
        let threads: Vec<_> = (0..3).map(|_| worker(&workers, Duration::from_millis(1), 2)).collect();
        for thread in &threads {
            order(thread, Order::Take);
            thread.1.recv().unwrap();
        }
        let looks = lock(&workers.state).looks;
        for thread in &threads {
            order(thread, Order::Rest);
        }
        eventually(&workers, "two wait and one is parked", |state| (state.waiting, state.parked) == (2, 1));
        let waiting: Vec<_> = threads.iter().filter(|thread| thread.1.try_recv().is_ok()).collect();
        for thread in &waiting {
            order(thread, Order::Take);
        }
        eventually(&workers, "the third waits", |state| (state.waiting, state.parked, state.called) == (1, 0, 0));
        assert_eq!(lock(&workers.state).looks, looks, "it was called by the second");
    }

    #[test]
    fn where_one_thread_serves_another_comes_when_its_request_will_wait() {
        // A thread that stands still before it says that it waits is found to be stuck, which is another case.
        assert!((0..1000).any(|_| another_comes_when_its_request_will_wait()), "it never said so in time");
    }

    /// Whether no thread was found to be stuck meanwhile: from then on requests are taken to wait.
    fn another_comes_when_its_request_will_wait() -> bool {
        let workers = Arc::new(Workers::new(1));
        let threads: Vec<_> = (0..2).map(|_| worker(&workers, Duration::ZERO, 1)).collect();
        for take in [Order::Take, Order::Rest] {
            threads.iter().for_each(|thread| order(thread, take));
        }
        eventually(&workers, "one waits and one is parked", |state| {
            !state.gathers() || (state.waiting, state.parked) == (1, 1)
        });
        if !lock(&workers.state).gathers() {
            return false;
        }
        let waiting = threads.iter().find(|thread| thread.1.try_iter().count() == 2).unwrap();
        for take in [Order::Take, Order::WillWait] {
            order(waiting, take);
            waiting.1.recv().unwrap();
        }
        assert_eq!(lock(&workers.state).stuck, 1);
        eventually(&workers, "the other waits", |state| (state.waiting, state.parked, state.called) == (1, 0, 0));
        if !lock(&workers.state).gathers() {
            return false;
        }
        order(waiting, Order::Rest);
        eventually(&workers, "one is parked", |state| (state.waiting, state.parked, state.stuck) == (1, 1, 0));
        true
    }

    #[test]
    fn more_threads_serve_while_requests_are_there_already() {
        let mut state = State::default();
        let mut note = |has_come: bool, times: usize| {
            (0..times).for_each(|_| state.note((0.0, has_come), 4));
            state.more
        };
        assert_eq!((note(true, 100), note(true, 1000)), (4, 4));
        let mut of_three = |come: usize| (0..1000).map(|turn| note(turn % 3 < come, 1)).last();
        assert_eq!(of_three(2), Some(4));
        // A file is opened, read and closed: the next one is opened while the close is served.
        assert_eq!(of_three(1), Some(0));
    }

    #[test]
    fn the_end_of_a_thread_lets_the_parked_ones_go() {
        let workers = Arc::new(Workers::new(2));
        let mut threads: Vec<_> = (0..5).map(|_| worker(&workers, Duration::ZERO, 2)).collect();
        for take in [Order::Take, Order::Rest] {
            for thread in &threads {
                order(thread, take);
            }
        }
        eventually(&workers, "three are parked", |state| (state.waiting, state.parked) == (2, 3));
        let waiting = threads.iter().position(|thread| thread.1.try_iter().count() == 2).unwrap();
        drop(threads.remove(waiting));
        eventually(&workers, "no thread is parked", |state| state.parked == 0);
    }
}
