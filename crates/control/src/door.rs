//! The one call that every request goes through.

use crate::gate::Gate;
use crate::observer::Observer;
use crate::request::{FileId, Request};
use std::fmt;
use std::sync::Arc;
use stripewise_layout::SubRequest;

/// A gate, if there is one, and observers. Fixed when the servers are opened: what changes while a pool is used is the
/// gate's own state.
#[derive(Clone, Default)]
pub struct Door {
    gate: Option<Arc<dyn Gate>>,
    observers: Vec<Arc<dyn Observer>>,
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
        self.observers.push(observer);
        self
    }

    /// Whether requests have to reach it: the kernel may not serve files itself then.
    pub fn is_watched(&self) -> bool {
        self.gate.is_some() || self.is_observed()
    }

    /// Whether sub-requests have to be timed and told.
    #[inline]
    pub fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Returns when `request` may go to the servers. One comparison without a gate.
    #[inline]
    pub fn enter(&self, file: FileId, request: &Request) {
        if let Some(gate) = &self.gate {
            gate.enter(file, request);
        }
    }

    /// Tells the observers of a sub-request. One comparison without one.
    #[inline]
    pub fn served(&self, file: FileId, part: &SubRequest, request: &Request, done_bytes: u64, took_ns: u64) {
        for observer in &self.observers {
            observer.served(file, part, request, done_bytes, took_ns);
        }
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
