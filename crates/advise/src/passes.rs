//! [`Pass`]: what advice needs of the requests themselves. All else rests on what passes find.
//!
//! A pass goes through files one by one, so it can be made where their requests are: what [`Passes`] hand back are
//! parts that add up to the same whole, however files were dealt out.

use crate::error::AdviseError;
use crate::gaps::{Spans, Timed};
use crate::look::{Looked, ThreadKey};
use crate::requests::request_of;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use stripewise_model::Request;
use stripewise_planner::{Counted, Overview, RequestSource, Strata};
use stripewise_trace::Trace;

/// Files whose requests are wanted, and the threads that made them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Wanted {
    /// Numbers in the trace; their places here are the files' indices.
    pub(crate) files: Vec<u32>,
    /// In order: their places here are the numbers of processes, as each thread has one request in flight.
    pub(crate) threads: Vec<ThreadKey>,
}

/// A question to the requests of a trace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Pass {
    /// How each file, or each below a directory, was used.
    Look(Option<OsString>),
    /// The requests.
    Hold(Wanted),
    /// The first pass of a survey.
    Overview(Wanted),
    /// Its other passes, and when some processes had requests under way.
    Count(Wanted, Strata, Timed),
}

/// What a pass found in some files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum PassResult {
    /// To [`Pass::Look`].
    Looked(Looked),
    /// To [`Pass::Hold`]: requests by index of the file.
    Held(Vec<(u32, Vec<Request>)>),
    /// To [`Pass::Overview`].
    Overview(Overview),
    /// To [`Pass::Count`].
    Counted(Counted, Spans),
}

impl Pass {
    /// Makes the pass through those files that `trace` has requests of. O(records).
    pub fn through(&self, trace: &Trace) -> PassResult {
        match self {
            Self::Look(root) => PassResult::Looked(Looked::of(trace, root.as_deref().map(Path::new))),
            Self::Hold(wanted) => {
                let mut held: Vec<(u32, Vec<Request>)> = Vec::new();
                Source::new(trace, wanted).visit(&mut |file, request| match held.last_mut() {
                    Some((last, requests)) if *last == file as u32 => requests.push(*request),
                    _ => held.push((file as u32, vec![*request])),
                });
                PassResult::Held(held)
            }
            Self::Overview(wanted) => {
                PassResult::Overview(Overview::of(wanted.files.len(), &Source::new(trace, wanted)))
            }
            Self::Count(wanted, strata, timed) => {
                let source = Source::new(trace, wanted);
                PassResult::Counted(strata.counted(&source), timed.spans(&source))
            }
        }
    }
}

/// Where passes are made.
pub trait Passes {
    /// Makes a pass through all files and gives `take` what is found: every file in one of the parts.
    ///
    /// # Errors
    /// [`AdviseError::Passes`] where it could not be made.
    fn make(&self, pass: &Pass, take: &mut dyn FnMut(PassResult)) -> Result<(), AdviseError>;
}

/// All requests are here: one part.
impl Passes for Trace {
    fn make(&self, pass: &Pass, take: &mut dyn FnMut(PassResult)) -> Result<(), AdviseError> {
        take(pass.through(self));
        Ok(())
    }
}

/// The wanted requests of a trace.
struct Source<'a> {
    trace: &'a Trace,
    files: &'a [u32],
    numbers: HashMap<ThreadKey, u32>,
}

impl<'a> Source<'a> {
    fn new(trace: &'a Trace, wanted: &'a Wanted) -> Self {
        let numbers = wanted.threads.iter().enumerate().map(|(number, thread)| (*thread, number as u32));
        Self { trace, files: &wanted.files, numbers: numbers.collect() }
    }
}

impl RequestSource for Source<'_> {
    fn visit(&self, visit: &mut dyn FnMut(usize, &Request)) {
        let mut last = ((u32::MAX, u32::MAX, u32::MAX), 0);
        for (index, &id) in self.files.iter().enumerate() {
            for record in self.trace.stream(id) {
                let thread = (record.rank, record.pid, record.tid);
                if thread != last.0 {
                    // A thread that no earlier pass saw is of another trace.
                    last = (thread, self.numbers.get(&thread).copied().unwrap_or(u32::MAX));
                }
                visit(index, &request_of(record, last.1));
            }
        }
    }
}
