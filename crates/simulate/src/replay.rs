//! Makes a program that can be run again from what its threads did in a trace. The times tell which thread waited for
//! which.
//!
//! A trace says that a collective call was made, not that its callers waited: that depends on the MPI library, on its
//! hints and on the data. So every call is looked at by itself. Its callers met on entering it if no request below it
//! began before the last of them had come; they met on leaving it if none left before the last request below it had
//! ended. Meetings that the times rule out are left out.

use crate::packed::Packed;
use crate::time::seconds;
use crate::workload::{MetadataOp, SimulatedAccess, SimulatedStep};
use std::collections::{BTreeMap, HashMap};
use stripewise_model::Op;

/// Something that a thread did, in nanoseconds on the trace's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Did {
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What it was.
    pub what: What,
}

/// What a thread can have done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    /// A request.
    Access(SimulatedAccess),
    /// A metadata operation.
    Metadata(MetadataOp),
    /// A collective call: the n-th of each thread in a group is one call. What the thread did from its begin to its end
    /// is below it.
    Call {
        /// Threads that make calls together: those on one file.
        group: u32,
        /// Which call it is; callers of different kinds make no call together.
        kind: u8,
        /// Whether it moves data; such calls are counted.
        data: bool,
        /// The call's own request, where nothing below it was recorded.
        access: Option<SimulatedAccess>,
    },
}

/// Result of [`replay`].
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// What is to be run.
    pub program: Packed,
    /// Collective calls that move data, each once, however many threads made it.
    pub calls: usize,
    /// Meetings of two threads or more on entering or leaving collective calls of any kind.
    pub meetings: usize,
    /// Barriers of all threads.
    pub barriers: usize,
}

/// The steps of `threads` (of each in any order) as a program. Threads meet in collective calls, and at barriers where
/// a phase of the program ends (`cuts_ns`, ascending, the begin of the first request of the next) with nothing under
/// way in any thread: the barriers themselves are not in a trace. With `think` threads also spend the time that they
/// spent before and between their requests, as far as waiting for each other does not explain it. O(n log n).
pub fn replay(mut threads: Vec<Vec<Did>>, cuts_ns: &[u64], think: bool) -> Replayed {
    for dids in &mut threads {
        // A call comes before what is below it.
        dids.sort_by_key(|did| (did.start_ns, !matches!(did.what, What::Call { .. })));
    }
    let quiet = if threads.len() > 1 { quiet(&threads, cuts_ns) } else { Vec::new() };
    let mut calls: Vec<Vec<Call>> = threads.iter().map(|dids| calls_of(dids)).collect();
    let (count, meetings) = meet(&mut calls);
    let mut program = Packed::new();
    let first_ns = threads.iter().flatten().map(|did| did.start_ns).min().unwrap_or(0);
    for (dids, calls) in threads.iter().zip(&calls) {
        let mut walk = Walk { steps: Vec::with_capacity(dids.len()), since_ns: first_ns, think };
        walk.thread(dids, calls, &quiet);
        program.push(walk.steps);
    }
    Replayed { program, calls: count, meetings, barriers: quiet.len() }
}

/// A collective call of one thread.
#[derive(Debug, Clone, Copy)]
struct Call {
    group: u32,
    kind: u8,
    data: bool,
    start_ns: u64,
    end_ns: u64,
    /// Begin of the first and end of the last thing below it.
    below_ns: Option<(u64, u64)>,
    /// On entering: the communicator, and when the last one came.
    enter: Option<(u32, u64)>,
    /// On leaving: the communicator, and when the last thing below had ended.
    leave: Option<(u32, u64)>,
}

/// The calls of a thread, in order.
fn calls_of(dids: &[Did]) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for did in dids {
        if let What::Call { group, kind, data, .. } = did.what {
            let Did { start_ns, end_ns, .. } = *did;
            calls.push(Call { group, kind, data, start_ns, end_ns, below_ns: None, enter: None, leave: None });
        } else if let Some(call) = calls.last_mut()
            && did.start_ns < call.end_ns
        {
            let (first_ns, last_ns) = call.below_ns.unwrap_or((did.start_ns, did.end_ns));
            call.below_ns = Some((first_ns, last_ns.max(did.end_ns)));
        }
    }
    calls
}

/// Finds the threads that met in each call; gives the number of data calls and of meetings. O(calls log threads).
fn meet(calls: &mut [Vec<Call>]) -> (usize, usize) {
    // By group: the places of each thread's calls.
    let mut groups: BTreeMap<u32, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for (thread, of_thread) in calls.iter().enumerate() {
        for (place, call) in of_thread.iter().enumerate() {
            groups.entry(call.group).or_default().entry(thread).or_default().push(place);
        }
    }
    let (mut count, mut meetings) = (0, 0);
    let mut communicators: HashMap<Vec<usize>, u32> = HashMap::new();
    for members in groups.values() {
        let most = members.values().map(Vec::len).max().unwrap_or(0);
        for number in 0..most {
            let mut callers: Vec<(usize, usize)> = Vec::with_capacity(members.len());
            callers.extend(members.iter().filter_map(|(&thread, places)| Some((thread, *places.get(number)?))));
            callers.sort_by_key(|&(thread, place)| (calls[thread][place].kind, calls[thread][place].start_ns, thread));
            let mut rest = callers.as_slice();
            while let Some(&(thread, place)) = rest.first() {
                // Threads that were in it at one moment: others made a call of their own, on another communicator.
                let Call { kind, data, mut end_ns, .. } = calls[thread][place];
                let together = rest.iter().take_while(|&&(thread, place)| {
                    let call = &calls[thread][place];
                    let joins = call.kind == kind && call.start_ns <= end_ns;
                    end_ns = end_ns.min(call.end_ns);
                    joins
                });
                let (together, others) = rest.split_at(together.count().max(1));
                rest = others;
                count += usize::from(data);
                meetings += join(calls, together, &mut communicators);
            }
        }
    }
    (count, meetings)
}

/// Has `callers` of one call meet as far as its times allow it; gives the number of meetings.
fn join(calls: &mut [Vec<Call>], callers: &[(usize, usize)], communicators: &mut HashMap<Vec<usize>, u32>) -> usize {
    if callers.len() < 2 {
        return 0;
    }
    let of = |&(thread, place): &(usize, usize)| calls[thread][place];
    let last_came_ns = callers.iter().map(|caller| of(caller).start_ns).max().unwrap_or(0);
    let first_left_ns = callers.iter().map(|caller| of(caller).end_ns).min().unwrap_or(0);
    let below = || callers.iter().filter_map(|caller| of(caller).below_ns);
    let first_below_ns = below().map(|span| span.0).min().unwrap_or(last_came_ns);
    let last_below_ns = below().map(|span| span.1).max().unwrap_or(last_came_ns);
    let enters = last_came_ns <= first_below_ns;
    let leaves = last_below_ns <= first_left_ns;
    let mut members: Vec<usize> = callers.iter().map(|caller| caller.0).collect();
    members.sort_unstable();
    let next = communicators.len() as u32;
    let communicator = *communicators.entry(members).or_insert(next);
    for &(thread, place) in callers {
        let call = &mut calls[thread][place];
        call.enter = enters.then_some((communicator, last_came_ns));
        call.leave = leaves.then_some((communicator, last_below_ns.max(last_came_ns)));
    }
    usize::from(enters) + usize::from(leaves)
}

/// A moment at which nothing was under way in any thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quiet {
    /// When the last thing before it ended.
    since_ns: u64,
    /// When the first thing after it began.
    until_ns: u64,
}

/// The quiet moment of each of `cuts_ns` that has one: within as many starts of it as there are threads, for the phases
/// of a program are told apart by statistics. O(n log n).
fn quiet(threads: &[Vec<Did>], cuts_ns: &[u64]) -> Vec<Quiet> {
    if cuts_ns.is_empty() {
        return Vec::new();
    }
    let mut spans: Vec<(u64, u64)> = threads.iter().flatten().map(|did| (did.start_ns, did.end_ns)).collect();
    spans.sort_unstable();
    let mut found: Vec<(usize, Quiet)> = Vec::new();
    let mut since_ns = 0;
    for (index, &(until_ns, end_ns)) in spans.iter().enumerate() {
        if index > 0 && since_ns <= until_ns {
            found.push((index, Quiet { since_ns, until_ns }));
        }
        since_ns = since_ns.max(end_ns);
    }
    let nearest = |&cut_ns: &u64| {
        let at = spans.partition_point(|span| span.0 < cut_ns);
        let after = found.partition_point(|quiet| quiet.0 < at);
        let around = &found[after.saturating_sub(1)..found.len().min(after + 1)];
        let (index, quiet) = around.iter().min_by_key(|quiet| quiet.0.abs_diff(at))?;
        (index.abs_diff(at) <= threads.len()).then_some(*quiet)
    };
    let mut moments: Vec<Quiet> = cuts_ns.iter().filter_map(nearest).collect();
    moments.dedup();
    moments
}

/// One thread's way through what it did.
struct Walk {
    steps: Vec<SimulatedStep>,
    /// Since when it has been about something else than requests and waiting.
    since_ns: u64,
    think: bool,
}

impl Walk {
    fn thread(&mut self, dids: &[Did], calls: &[Call], quiet: &[Quiet]) {
        let (mut calls, mut quiet) = (calls.iter(), quiet.iter().peekable());
        let mut within: Option<&Call> = None;
        for did in dids {
            let is_call = matches!(did.what, What::Call { .. });
            if let Some(call) = within.take_if(|call| is_call || did.start_ns >= call.end_ns) {
                self.leave(call);
            }
            while let Some(moment) = quiet.next_if(|moment| moment.until_ns <= did.start_ns) {
                self.steps.push(SimulatedStep::Barrier);
                self.is_idle_since(moment.since_ns);
            }
            match did.what {
                What::Call { access, .. } => {
                    let Some(call) = calls.next() else { unreachable!("every call was listed") };
                    self.pause(did.start_ns);
                    if let Some((communicator, met_ns)) = call.enter {
                        self.steps.push(SimulatedStep::Collective { communicator, exchange_s: 0.0 });
                        self.is_idle_since(met_ns);
                    }
                    if let Some(access) = access {
                        self.access(access, did);
                    }
                    within = Some(call);
                }
                What::Access(access) => self.access(access, did),
                What::Metadata(op) => {
                    self.pause(did.start_ns);
                    self.steps.push(SimulatedStep::Metadata(op));
                    self.is_idle_since(did.end_ns);
                }
            }
        }
        if let Some(call) = within {
            self.leave(call);
        }
    }

    fn access(&mut self, access: SimulatedAccess, did: &Did) {
        self.steps.push(SimulatedStep::Access(SimulatedAccess { think_s: self.thought_s(did.start_ns), ..access }));
        self.is_idle_since(did.end_ns);
    }

    /// What the thread did in the call after the last request below it, the library's exchange, is thinking.
    fn leave(&mut self, call: &Call) {
        if let Some((communicator, met_ns)) = call.leave {
            self.steps.push(SimulatedStep::Collective { communicator, exchange_s: 0.0 });
            self.is_idle_since(met_ns);
        }
    }

    /// Thinks until `start_ns`: a request of no bytes takes no time of its own.
    fn pause(&mut self, start_ns: u64) {
        let think_s = self.thought_s(start_ns);
        if think_s > 0.0 {
            self.steps.push(SimulatedStep::Access(SimulatedAccess {
                file: 0,
                offset: 0,
                size: 0,
                op: Op::Read,
                think_s,
            }));
            self.is_idle_since(start_ns);
        }
    }

    fn thought_s(&self, start_ns: u64) -> f64 {
        if self.think { seconds(start_ns.saturating_sub(self.since_ns)) } else { 0.0 }
    }

    fn is_idle_since(&mut self, ns: u64) {
        self.since_ns = self.since_ns.max(ns);
    }
}
