//! The one call that every request goes through.

use crate::gate::Gate;
use crate::observer::{Observer, Served};
use crate::request::{FileId, Request};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

/// A gate, if there is one, and observers. Fixed when the servers are opened: what changes while a pool is used is the
/// gate's own state.
#[derive(Clone, Default)]
pub struct Door {
    gate: Option<Arc<dyn Gate>>,
    observers: Vec<Arc<dyn Observer>>,
    /// Whether an observer wants to know how long a server took.
    is_timed: bool,
}

/// A request, or a part of one, that servers have; the gate is told when this is dropped.
#[must_use]
#[derive(Default)]
pub struct SentRequest(Option<(Arc<dyn Gate>, NonZeroU32)>);

impl Drop for SentRequest {
    #[inline]
    fn drop(&mut self) {
        if let Some((gate, number)) = &self.0 {
            gate.ended(*number);
        }
    }
}

impl fmt::Debug for SentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SentRequest").field(&self.0.as_ref().map(|(_, number)| number)).finish()
    }
}

impl Door {
    /// With `gate` in place of what gate it had.
    #[must_use]
    pub fn with_gate(mut self, gate: Arc<dyn Gate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// With one observer more.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.is_timed |= observer.wants_times();
        self.observers.push(observer);
        self
    }

    /// Whether requests have to reach it: the kernel may not serve files itself then.
    pub fn is_watched(&self) -> bool {
        self.gate.is_some() || self.is_observed()
    }

    /// Whether requests pass a gate.
    pub fn has_gate(&self) -> bool {
        self.gate.is_some()
    }

    /// Whether programs may go past the mount that has this door: there is nothing that their own door does not have.
    pub fn lets_past(&self) -> bool {
        self.gate.as_ref().is_none_or(|gate| gate.is_in_the_preload_too())
            && self.observers.iter().all(|observer| observer.is_in_the_preload_too())
    }

    /// Whether sub-requests have to be told. One comparison.
    #[inline]
    pub fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// The time in nanoseconds at which a server begins, by `clock`, which is read only if an observer wants times; `None`
    /// where nothing has to be told. One comparison without observers.
    #[inline]
    pub fn begin(&self, clock: impl Fn() -> u64) -> Option<u64> {
        self.is_observed().then(|| if self.is_timed { clock() } else { 0 })
    }

    /// Returns when `request` may go to the servers. One comparison without a gate.
    #[inline]
    pub fn enter(&self, file: FileId, request: &Request) {
        if let Some(gate) = &self.gate {
            gate.enter(file, request);
        }
    }

    /// Says that `request`, or a part of it, goes to the servers, until what this gives is dropped. One comparison without a gate;
    /// where the gate has to know of the end, two counts of references.
    #[inline]
    pub fn send(&self, request: &Request) -> SentRequest {
        let sent = self.gate.as_ref().and_then(|gate| Some((gate, gate.sent(request)?)));
        SentRequest(sent.map(|(gate, number)| (gate.clone(), number)))
    }

    /// Tells the observers of a sub-request that has begun at `begin_ns`, as [`Door::begin`] gave it; `served` without the time
    /// that it took.
    #[inline]
    pub fn served(
        &self,
        file: FileId,
        request: &Request,
        served: Served<'_>,
        (begin_ns, clock): (u64, impl Fn() -> u64),
    ) {
        let took_ns = if self.is_timed { clock().saturating_sub(begin_ns) } else { 0 };
        let served = Served { took_ns, ..served };
        for observer in &self.observers {
            observer.served(file, request, &served);
        }
    }

    /// Tells the observers that a program has set the size of a file. One comparison without observers.
    pub fn cut(&self, file: FileId, size_bytes: u64) {
        self.observers.iter().for_each(|observer| observer.cut(file, size_bytes));
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("has_gate", &self.gate.is_some())
            .field("observers", &self.observers.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Action, Sender, Way};
    use std::cell::Cell;
    use std::sync::Mutex;
    use stripewise_layout::{ServerId, SubRequest};

    struct Notes {
        wants_times: bool,
        took_ns: Mutex<Vec<u64>>,
    }

    impl Observer for Notes {
        fn served(&self, _: FileId, _: &Request, served: &Served<'_>) {
            self.took_ns.lock().unwrap().push(served.took_ns);
        }

        fn wants_times(&self) -> bool {
            self.wants_times
        }
    }

    #[test]
    fn the_clock_is_read_for_an_observer_that_wants_times() {
        let request =
            Request { sender: Sender::this_process(Way::Library), action: Action::Read, offset: 0, len: 1, rank: 0 };
        let part = SubRequest { region: 0, slot: 0, server: ServerId(0), datafile_offset: 0, len: 1, from: 0, to: 1 };
        for (wants, readings, took_ns) in [(&[][..], 0, 0), (&[false], 0, 0), (&[false, true], 2, 7)] {
            let readings_now = Cell::new(0);
            let clock = || 7 * readings_now.replace(readings_now.get() + 1);
            let notes = |&wants_times| Arc::new(Notes { wants_times, took_ns: Mutex::default() });
            let observers: Vec<_> = wants.iter().map(notes).collect();
            let door = observers.iter().fold(Door::default(), |door, one| door.with_observer(one.clone()));
            let begin_ns = door.begin(clock);
            assert_eq!(begin_ns.is_some(), !wants.is_empty());
            if let Some(begin_ns) = begin_ns {
                door.served(FileId(1), &request, Served::of(&part, 1), (begin_ns, clock));
            }
            assert_eq!(readings_now.get(), readings);
            assert!(observers.iter().all(|one| *one.took_ns.lock().unwrap() == [took_ns]));
        }
    }
}
