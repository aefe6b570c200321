//! [`Overview`]: the first pass of a survey.

use super::draw::{drawn, mix};
use super::source::{RequestSource, SurveyedFile};
use crate::error::PlanError;
use crate::job::demand::time;
use crate::job::phases::Moment;
use serde::{Deserialize, Serialize};
use stripewise_layout::MAX_OFFSET;
use stripewise_model::{Op, Request};

/// Most requests that are kept for phases and replays, half of them at least.
pub(super) const KEPT: usize = 100_000;

/// What the first pass finds: extents and times, and an even sample. Of some of the files or of all: the parts of
/// a source, in any order, add up to the whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Overview {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) of_file: Vec<u64>,
    /// Last byte of any request, and of any write, by file.
    pub(super) ends: Vec<(u64, u64)>,
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    /// Requests are kept whose draw is at most this: every request has the same chance.
    most: u64,
    /// `(draw, file, request)`; in order of file once it is [finished](Overview::finished).
    pub(super) kept: Vec<(u64, u32, Request)>,
    /// The first request of the first file that reaches beyond what offsets can be.
    beyond: Option<(u32, Request)>,
}

impl Overview {
    /// Of nothing, for `files` files.
    pub fn empty(files: usize) -> Self {
        Self {
            requests: 0,
            bytes: 0,
            of_file: vec![0; files],
            ends: vec![(0, 0); files],
            from_s: f64::INFINITY,
            to_s: f64::NEG_INFINITY,
            most: u64::MAX,
            kept: Vec::new(),
            beyond: None,
        }
    }

    /// Of the requests of `source`, whose files are numbered below `files`. O(requests), about 0.1 us each; in memory
    /// for 200,000 requests and the files.
    pub fn of(files: usize, source: &dyn RequestSource) -> Self {
        let mut found = Self::empty(files);
        source.visit(&mut |file, request| found.add(file, request));
        found
    }

    fn add(&mut self, file: usize, r: &Request) {
        let Some(end) = r.offset.checked_add(r.size).filter(|&end| end <= MAX_OFFSET + 1) else {
            self.found_beyond((file as u32, *r));
            return;
        };
        if r.size == 0 {
            return;
        }
        // By file, so that a file's requests are drawn alike whatever files are looked at with it.
        let number = self.of_file[file] ^ mix(file as u64);
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(r.size);
        self.of_file[file] += 1;
        let (any, written) = &mut self.ends[file];
        *any = end.max(*any);
        if r.op == Op::Write {
            *written = end.max(*written);
        }
        self.from_s = self.from_s.min(time(r.start_s));
        self.to_s = self.to_s.max(time(r.end_s)).max(time(r.start_s));
        let draw = drawn(number);
        if draw <= self.most {
            self.kept.push((draw, file as u32, *r));
            self.thin();
        }
    }

    fn found_beyond(&mut self, other: (u32, Request)) {
        if self.beyond.is_none_or(|(file, _)| other.0 < file) {
            self.beyond = Some(other);
        }
    }

    /// Halves the chance of every request until few enough are kept: which are kept does not depend on the order in
    /// which they came.
    fn thin(&mut self) {
        while self.kept.len() > 2 * KEPT {
            self.most /= 2;
            self.kept.retain(|kept| kept.0 <= self.most);
        }
    }

    /// Adds what was found in other files of the same numbering. O(files + kept).
    ///
    /// # Panics
    /// When it is of another number of files.
    pub fn join(&mut self, other: Self) {
        assert_eq!(self.of_file.len(), other.of_file.len(), "parts of one survey");
        self.requests += other.requests;
        self.bytes = self.bytes.saturating_add(other.bytes);
        for (own, of) in self.of_file.iter_mut().zip(other.of_file) {
            *own += of;
        }
        for (own, (any, written)) in self.ends.iter_mut().zip(other.ends) {
            *own = (own.0.max(any), own.1.max(written));
        }
        self.from_s = self.from_s.min(other.from_s);
        self.to_s = self.to_s.max(other.to_s);
        self.most = self.most.min(other.most);
        self.kept.extend(other.kept);
        self.kept.retain(|kept| kept.0 <= self.most);
        self.thin();
        if let Some(beyond) = other.beyond {
            self.found_beyond(beyond);
        }
    }

    /// The whole, after the last part: in order of file.
    ///
    /// # Errors
    /// [`PlanError::BeyondEnd`].
    pub fn finished(mut self, files: &[SurveyedFile]) -> Result<Self, PlanError> {
        if let Some((file, r)) = self.beyond {
            let file = files[file as usize].name.clone();
            return Err(PlanError::BeyondEnd { file, offset: r.offset, size: r.size });
        }
        self.kept.sort_by_key(|kept| kept.1);
        Ok(self)
    }

    pub(super) fn moments(&self) -> Vec<Moment> {
        let moment = |(_, file, r): &(u64, u32, Request)| Moment {
            start_s: time(r.start_s),
            place: (*file, r.offset),
            op: r.op,
        };
        self.kept.iter().map(moment).collect()
    }
}
