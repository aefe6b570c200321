//! What processes share of an emulated disk: where its head is, what waits, what is known of processes, where datafiles lie.
//!
//! The page stands behind the queue's own in the same file. One process at a time changes it, with a lease that ends by
//! itself: a process that is killed, or stopped, while it has the lease holds others up for [`LEASE_NS`] and leaves a schedule
//! that is as good as any. Nothing in the page is trusted.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use stripewise_model::{NewProcesses, ProcessHistory, RecentMean};

use super::sleep::{now_ns, sleep_until};
use crate::os::shared_pages::Atomics;

/// "SWDISK" and the version of the page.
const MAGIC: u64 = u64::from_be_bytes(*b"SWDISK\0\x02");
/// Sub-requests that wait or are served at a time; what more there are pass the queue.
pub(super) const SLOTS: usize = 128;
/// Processes that an anticipatory queue knows.
const HISTORIES: usize = 64;
/// Datafiles that have places one after the other; those of more are drawn.
const PLACES: usize = 1024;
/// Neighbours that are looked at for a process or a datafile.
const PROBES: usize = 16;
/// The longest that one process may change the page: 20 ms, a thousand times what it takes.
const LEASE_NS: u64 = 20_000_000;
/// Time between two attempts to get the lease.
const LEASE_AGAIN_NS: u64 = 20_000;
/// A sub-request that was decided this long ago has no process that asks for it any more: 10 s.
const ABANDONED_NS: u64 = 10_000_000_000;

/// States of a slot.
const FREE: u64 = 0;
const WAITING: u64 = 1;
const DECIDED: u64 = 2;

/// In the word of the arm's state: its sweep is an odd one.
const ODD_SWEEP: u64 = 1 << 8;
/// In the word of a slot's process: it waits for an odd sweep.
const OF_ODD_SWEEP: u64 = 1 << 33;

/// A sub-request that waits, or was given its service.
#[repr(C, align(64))]
#[derive(Default)]
struct SlotCell {
    state: AtomicU64,
    number: AtomicU64,
    arrival_ns: AtomicU64,
    position: AtomicU64,
    bytes: AtomicU64,
    /// Whether it waits for an odd sweep, process, and whether it writes: one bit, 32, and one.
    process_and_write: AtomicU64,
    start_ns: AtomicU64,
    deadline_ns: AtomicU64,
}

#[repr(C, align(64))]
struct HistoryCell {
    process: AtomicU64,
    think: [AtomicU64; 2],
    seek: [AtomicU64; 2],
    ended_ns: AtomicU64,
    position: AtomicU64,
    here: AtomicU64,
}

#[repr(C)]
struct PlaceCell {
    datafile: AtomicU64,
    /// Its number, counted from 1 in order of first use; 0: not yet.
    number: AtomicU64,
}

/// The page.
#[repr(C, align(64))]
pub(super) struct DiskPage {
    magic: AtomicU64,
    lease_ns: AtomicU64,
    /// Counts decisions: processes that wait for one sleep on it.
    pub(super) decisions: AtomicU32,
    pub(super) sleepers: AtomicU32,
    head: AtomicU64,
    last_start: AtomicU64,
    decided_ns: AtomicU64,
    /// What the arm does; above that, whether its sweep is an odd one ([`ODD_SWEEP`]).
    state: AtomicU64,
    process: AtomicU64,
    until_ns: AtomicU64,
    numbers: AtomicU64,
    draws: AtomicU64,
    datafiles: AtomicU64,
    new_think: [AtomicU64; 2],
    new_seek: [AtomicU64; 2],
    slots: [SlotCell; SLOTS],
    histories: [HistoryCell; HISTORIES],
    places: [PlaceCell; PLACES],
}

// SAFETY: all of its fields are atomics.
unsafe impl Atomics for DiskPage {}

/// A sub-request that waits for the head.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskSub {
    pub(super) position: u64,
    pub(super) bytes: u64,
    pub(super) process: u32,
    pub(super) is_write: bool,
    pub(super) arrival_ns: u64,
    pub(super) number: u64,
    /// Whether it waits for an odd sweep: the present one or the next.
    pub(super) is_of_odd_sweep: bool,
}

/// Where a sub-request stands in the page, and its number, by which it knows its slot again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskTicket {
    pub(super) slot: usize,
    pub(super) number: u64,
}

/// What the arm does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArmState {
    Idle,
    /// It serves a sub-request of a process.
    Serving {
        process: u32,
        until_ns: u64,
    },
    /// It waits for the next one of a process.
    Waiting {
        process: u32,
        until_ns: u64,
    },
}

/// The arm, as the holder of the lease has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arm {
    /// Where the last sub-request ended.
    pub(super) head: u64,
    /// Where it began.
    pub(super) last_start: u64,
    /// Whether the present sweep is an odd one.
    pub(super) is_odd_sweep: bool,
    /// The time of the last decision: what comes later may not change it.
    pub(super) decided_ns: u64,
    pub(super) state: ArmState,
    pub(super) new: NewProcesses,
}

/// The right to change the page; given back when it is dropped.
pub(super) struct Lease<'a> {
    page: &'a DiskPage,
    until_ns: u64,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // Another process may have taken it over.
        let _ = self.page.lease_ns.compare_exchange(self.until_ns, 0, Release, Relaxed);
    }
}

fn load_mean(words: &[AtomicU64; 2]) -> RecentMean {
    let [weight, sum] = [&words[0], &words[1]].map(|word| f64::from_bits(word.load(Relaxed)));
    RecentMean { weight, sum }
}

fn store_mean(words: &[AtomicU64; 2], mean: &RecentMean) {
    words[0].store(mean.weight.to_bits(), Relaxed);
    words[1].store(mean.sum.to_bits(), Relaxed);
}

/// The places of a table where something with that hash is looked for.
fn probes(hash: u64, length: usize) -> impl Iterator<Item = usize> {
    let first = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    (first..first + PROBES).map(move |at| at % length)
}

impl DiskPage {
    /// Makes a new or foreign page empty, and one of another boot (`is_of_boot` is false) without anything that waits.
    pub(super) fn set_up(&self, is_of_boot: bool) {
        let is_new = self.magic.load(Relaxed) != MAGIC;
        if is_new || !is_of_boot {
            self.slots.iter().for_each(|slot| slot.state.store(FREE, Relaxed));
            self.histories.iter().for_each(|cell| cell.process.store(0, Relaxed));
            [&self.lease_ns, &self.state, &self.decided_ns].into_iter().for_each(|word| word.store(0, Relaxed));
            for words in [&self.new_think, &self.new_seek] {
                store_mean(words, &RecentMean::default());
            }
        }
        if is_new {
            self.places.iter().flat_map(|cell| [&cell.datafile, &cell.number]).for_each(|word| word.store(0, Relaxed));
            let counts = [&self.datafiles, &self.draws, &self.numbers, &self.head, &self.last_start];
            counts.into_iter().for_each(|word| word.store(0, Relaxed));
        }
        self.magic.store(MAGIC, Release);
    }

    /// Waits for the lease: at most as long as another process can have it. Where others take it each time, it is taken from
    /// them after [`LEASE_NS`].
    pub(super) fn lease(&self) -> Lease<'_> {
        let patience_ns = now_ns().saturating_add(LEASE_NS);
        loop {
            let now_ns = now_ns();
            let held_ns = self.lease_ns.load(Relaxed);
            let is_free = held_ns < now_ns || held_ns > now_ns.saturating_add(LEASE_NS) || now_ns > patience_ns;
            let until_ns = now_ns.saturating_add(LEASE_NS);
            if is_free && self.lease_ns.compare_exchange(held_ns, until_ns, AcqRel, Relaxed).is_ok() {
                return Lease { page: self, until_ns };
            }
            sleep_until(now_ns + LEASE_AGAIN_NS);
        }
    }

    /// The arm. A time that is further ahead than `most_ns` is none.
    pub(super) fn arm(&self, now_ns: u64, most_ns: u64) -> Arm {
        let word = |of: &AtomicU64| of.load(Relaxed);
        let (process, until_ns) = (word(&self.process) as u32, word(&self.until_ns));
        let is_sound = until_ns <= now_ns.saturating_add(most_ns);
        let (state, is_odd_sweep) = (word(&self.state), word(&self.state) & ODD_SWEEP != 0);
        let state = match state & !ODD_SWEEP {
            1 if is_sound => ArmState::Serving { process, until_ns },
            2 if is_sound => ArmState::Waiting { process, until_ns },
            _ => ArmState::Idle,
        };
        let new = NewProcesses { think: load_mean(&self.new_think), seek: load_mean(&self.new_seek) };
        let decided_ns = word(&self.decided_ns);
        let decided_ns = if decided_ns > now_ns.saturating_add(most_ns) { 0 } else { decided_ns };
        Arm { head: word(&self.head), last_start: word(&self.last_start), is_odd_sweep, decided_ns, state, new }
    }

    /// Keeps the arm.
    pub(super) fn keep(&self, arm: &Arm) {
        let (state, process, until_ns) = match arm.state {
            ArmState::Idle => (0, 0, 0),
            ArmState::Serving { process, until_ns } => (1, process, until_ns),
            ArmState::Waiting { process, until_ns } => (2, process, until_ns),
        };
        let words = [
            (&self.head, arm.head),
            (&self.last_start, arm.last_start),
            (&self.decided_ns, arm.decided_ns),
            (&self.state, state | if arm.is_odd_sweep { ODD_SWEEP } else { 0 }),
            (&self.process, u64::from(process)),
            (&self.until_ns, until_ns),
        ];
        words.into_iter().for_each(|(word, value)| word.store(value, Relaxed));
        store_mean(&self.new_think, &arm.new.think);
        store_mean(&self.new_seek, &arm.new.seek);
    }

    /// The next number of the draws.
    pub(super) fn draw(&self) -> u64 {
        self.draws.fetch_add(1, Relaxed)
    }

    /// Gives `sub` a slot; `None`: there is none. O([`SLOTS`]).
    pub(super) fn push(&self, sub: &DiskSub, now_ns: u64) -> Option<DiskTicket> {
        let is_free = |cell: &SlotCell| match cell.state.load(Relaxed) {
            WAITING => false,
            DECIDED => cell.deadline_ns.load(Relaxed).saturating_add(ABANDONED_NS) < now_ns,
            _ => true,
        };
        let slot = self.slots.iter().position(is_free)?;
        let number = self.numbers.fetch_add(1, Relaxed);
        let cell = &self.slots[slot];
        let sweep = if sub.is_of_odd_sweep { OF_ODD_SWEEP } else { 0 };
        let words = [
            (&cell.number, number),
            (&cell.arrival_ns, sub.arrival_ns),
            (&cell.position, sub.position),
            (&cell.bytes, sub.bytes),
            (&cell.process_and_write, sweep | u64::from(sub.process) << 1 | u64::from(sub.is_write)),
        ];
        words.into_iter().for_each(|(word, value)| word.store(value, Relaxed));
        cell.state.store(WAITING, Relaxed);
        Some(DiskTicket { slot, number })
    }

    /// What waits, with its slots. O([`SLOTS`]).
    pub(super) fn waiting(&self) -> impl Iterator<Item = (usize, DiskSub)> {
        let waits = |(_, cell): &(usize, &SlotCell)| cell.state.load(Relaxed) == WAITING;
        self.slots.iter().enumerate().filter(waits).map(|(slot, cell)| {
            let process_and_write = cell.process_and_write.load(Relaxed);
            let sub = DiskSub {
                position: cell.position.load(Relaxed),
                bytes: cell.bytes.load(Relaxed),
                process: (process_and_write >> 1) as u32,
                is_write: process_and_write & 1 != 0,
                arrival_ns: cell.arrival_ns.load(Relaxed),
                number: cell.number.load(Relaxed),
                is_of_odd_sweep: process_and_write & OF_ODD_SWEEP != 0,
            };
            (slot, sub)
        })
    }

    /// Gives the sub-request in `slot` its service.
    pub(super) fn decide(&self, slot: usize, start_ns: u64, deadline_ns: u64) {
        let cell = &self.slots[slot];
        cell.start_ns.store(start_ns, Relaxed);
        cell.deadline_ns.store(deadline_ns, Relaxed);
        cell.state.store(DECIDED, Relaxed);
    }

    /// The service of a sub-request, which leaves its slot with that; `None`: it is not decided yet. A slot that has another
    /// one is that of a process that was stopped for long: its service is over.
    pub(super) fn take(&self, ticket: &DiskTicket, now_ns: u64) -> Option<(u64, u64)> {
        let cell = &self.slots[ticket.slot];
        if cell.number.load(Relaxed) != ticket.number || cell.state.load(Relaxed) == FREE {
            return Some((now_ns, now_ns));
        }
        if cell.state.load(Relaxed) == WAITING {
            return None;
        }
        let service = (cell.start_ns.load(Relaxed), cell.deadline_ns.load(Relaxed));
        cell.state.store(FREE, Relaxed);
        Some(service)
    }

    /// Gives up the slot of a sub-request that was not decided.
    pub(super) fn give_up(&self, ticket: &DiskTicket) {
        let cell = &self.slots[ticket.slot];
        if cell.number.load(Relaxed) == ticket.number {
            cell.state.store(FREE, Relaxed);
        }
    }

    /// What is known of a process. O(1).
    pub(super) fn history(&self, process: u32) -> ProcessHistory {
        let found = probes(u64::from(process), HISTORIES)
            .map(|at| &self.histories[at])
            .find(|cell| cell.process.load(Relaxed) == u64::from(process));
        found.map_or_else(ProcessHistory::default, |cell| ProcessHistory {
            think: load_mean(&cell.think),
            seek: load_mean(&cell.seek),
            ended_ns: cell.ended_ns.load(Relaxed),
            position: cell.position.load(Relaxed),
            here: cell.here.load(Relaxed) as u32,
            known: true,
        })
    }

    /// Keeps what is known of a process: in its own place, a free one, or that of the one that came least lately. O(1).
    pub(super) fn remember(&self, process: u32, history: &ProcessHistory) {
        let cells = || probes(u64::from(process), HISTORIES).map(|at| &self.histories[at]);
        let holds = |wanted: u32| cells().find(|cell| cell.process.load(Relaxed) == u64::from(wanted));
        let oldest = || cells().min_by_key(|cell| cell.ended_ns.load(Relaxed));
        let Some(cell) = holds(process).or_else(|| holds(0)).or_else(oldest) else { return };
        cell.process.store(u64::from(process), Relaxed);
        store_mean(&cell.think, &history.think);
        store_mean(&cell.seek, &history.seek);
        cell.ended_ns.store(history.ended_ns, Relaxed);
        cell.position.store(history.position, Relaxed);
        cell.here.store(u64::from(history.here), Relaxed);
    }

    /// The number of a datafile in order of first use, if it has one. O(1).
    pub(super) fn place(&self, datafile: u64) -> Option<u64> {
        let cell =
            probes(datafile, PLACES).map(|at| &self.places[at]).find(|cell| cell.datafile.load(Relaxed) == datafile)?;
        cell.number.load(Relaxed).checked_sub(1)
    }

    /// The same; it gets one where it has none and there is room. For the holder of the lease. O(1).
    pub(super) fn place_or_new(&self, datafile: u64) -> Option<u64> {
        self.place(datafile).or_else(|| {
            let cell = probes(datafile, PLACES)
                .map(|at| &self.places[at])
                .find(|cell| [0, datafile].contains(&cell.datafile.load(Relaxed)))?;
            let number = self.datafiles.fetch_add(1, Relaxed);
            cell.number.store(number.wrapping_add(1), Relaxed);
            cell.datafile.store(datafile, Relaxed);
            Some(number)
        })
    }
}
