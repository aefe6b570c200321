//! Communicators: which processes wait for each other.

use crate::time::ns;

/// The communicators of a run: number 0 is all processes, the program's own follow.
#[derive(Debug)]
pub(crate) struct Communicators {
    all: Vec<Communicator>,
    /// The program's communicators of process `i` are `memberships[first[i]..first[i + 1]]`.
    first: Vec<u32>,
    memberships: Vec<u32>,
}

#[derive(Debug, Default)]
struct Communicator {
    /// Members that have not ended.
    live: usize,
    waiting: Vec<u32>,
    /// The longest exchange that a waiting member has named.
    exchange_ns: u64,
    exchanging: bool,
}

/// When a communicator goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goes {
    NotYet,
    Now,
    /// After an exchange of this many nanoseconds.
    After(u64),
}

impl Communicators {
    /// O(members).
    pub(crate) fn new(processes: usize, members: &[Vec<u32>]) -> Self {
        let with = |live| Communicator { live, ..Communicator::default() };
        let all = std::iter::once(with(processes)).chain(members.iter().map(|list| with(list.len()))).collect();
        let mut first = vec![0; processes + 2];
        let known = |&&process: &&u32| (process as usize) < processes;
        for &process in members.iter().flatten().filter(known) {
            first[process as usize + 2] += 1;
        }
        for index in 2..first.len() {
            first[index] += first[index - 1];
        }
        let mut memberships = vec![0; first[first.len() - 1] as usize];
        for (communicator, list) in members.iter().enumerate() {
            for &process in list.iter().filter(known) {
                let at = &mut first[process as usize + 1];
                memberships[*at as usize] = communicator as u32 + 1;
                *at += 1;
            }
        }
        Self { all, first, memberships }
    }

    /// `process` comes to communicator `number`. O(1).
    #[inline]
    pub(crate) fn arrive(&mut self, number: u32, process: u32, exchange_s: f64) -> Goes {
        let communicator = &mut self.all[number as usize];
        communicator.waiting.push(process);
        communicator.exchange_ns = communicator.exchange_ns.max(ns(exchange_s));
        communicator.goes()
    }

    /// `process` has ended: those that waited for it alone go on. O(its communicators).
    pub(crate) fn end(&mut self, process: u32, mut goes: impl FnMut(u32, Goes)) {
        let own = self.first[process as usize] as usize..self.first[process as usize + 1] as usize;
        for &number in std::iter::once(&0).chain(&self.memberships[own]) {
            let communicator = &mut self.all[number as usize];
            communicator.live -= 1;
            if !communicator.waiting.is_empty() {
                goes(number, communicator.goes());
            }
        }
    }

    /// Processes that waited at communicator `number`, in the order in which they came. O(1).
    pub(crate) fn release(&mut self, number: u32) -> std::vec::Drain<'_, u32> {
        let communicator = &mut self.all[number as usize];
        (communicator.exchanging, communicator.exchange_ns) = (false, 0);
        communicator.waiting.drain(..)
    }

    /// The first process that waits, and where.
    pub(crate) fn waiting(&self) -> Option<(u32, u32)> {
        let waits = |(number, communicator): (usize, &Communicator)| {
            communicator.waiting.iter().min().map(|&process| (process, number as u32))
        };
        self.all.iter().enumerate().filter_map(waits).min()
    }
}

impl Communicator {
    fn goes(&mut self) -> Goes {
        if self.waiting.len() < self.live || self.exchanging {
            return Goes::NotYet;
        }
        if self.exchange_ns == 0 {
            return Goes::Now;
        }
        self.exchanging = true;
        Goes::After(self.exchange_ns)
    }
}
