//! [`Survey`]: requests that are too many to be held, read as a stream three times, in bounded memory.
//!
//! The first pass finds extents and times and keeps an even sample of the requests ([`Overview`]); from it come the
//! phases, and it stands for all where requests are replayed. The second counts requests and bytes exactly: by file,
//! chunk, phase, operation and power of two of the size (a *stratum*), and processes in flight at random times. The third
//! draws requests from every stratum, among the smaller and the larger ones apart, and weighs them so that the counts and
//! the bytes of every stratum are exactly those of the trace ([`Counted`]). So heat and sizes are as they are; only where
//! in a round a request of a stratum begins, and its size within the power of two, are those of a sample.
//!
//! Nothing of one file rests on another one's requests but through the [`Overview`]: the passes can be made file by file,
//! wherever those are, and what they find be joined.

mod draw;
mod in_flight;
mod overview;
mod source;
mod strata;

pub use overview::Overview;
pub use source::{RequestSource, SurveyedFile};
pub use strata::{Counted, Strata};

use crate::error::PlanError;
use crate::job::demand::{Demand, DemandSample, PhaseDemand, RequestGroup};
use crate::job::input::{FileTrace, PlanOptions};
use stripewise_model::Request;

/// What a plan needs to know of requests that are too many to be held.
#[derive(Debug, Clone)]
pub struct Survey {
    files: Vec<SurveyedFile>,
    extents: Vec<u64>,
    /// An even sample of the requests of each file, in the source's order.
    kept: Vec<Vec<Request>>,
    entries: Vec<Vec<RequestGroup>>,
    phases: Vec<PhaseDemand>,
    cuts_s: Vec<f64>,
    requests: u64,
}

impl Survey {
    /// Surveys the requests of `source`, whose files are `files`. Three passes of about 0.1 us a request; memory is
    /// bounded by the options and the number of files, not by the number of requests.
    ///
    /// # Errors
    /// [`PlanError::BeyondEnd`].
    ///
    /// # Panics
    /// When the source names a file that is not in `files`.
    pub fn new(files: Vec<SurveyedFile>, source: &dyn RequestSource, options: &PlanOptions) -> Result<Self, PlanError> {
        let overview = Overview::of(files.len(), source).finished(&files)?;
        let strata = Strata::new(&overview, options);
        let counted = strata.counted(source);
        Ok(Self::of(files, overview, &strata, counted, options))
    }

    /// From passes that were made in parts. `files` are numbered as those of the passes.
    pub fn of(
        files: Vec<SurveyedFile>,
        overview: Overview,
        strata: &Strata,
        counted: Counted,
        options: &PlanOptions,
    ) -> Self {
        let extents = files.iter().zip(&overview.ends);
        let extents = extents.map(|(file, &(any, written))| file.size_bytes.map_or(any, |size| size.max(written)));
        let extents = extents.collect();
        let mut kept = vec![Vec::new(); files.len()];
        for (_, file, request) in &overview.kept {
            kept[*file as usize].push(*request);
        }
        let mut entries = vec![Vec::new(); files.len()];
        for (file, of) in counted.entries {
            entries[file as usize] = of;
        }
        let mut phases = counted.phases;
        for (of, processes) in phases.iter_mut().zip(counted.in_flight.means(strata.times())) {
            of.processes = options.processes.unwrap_or(processes).max(1.0);
        }
        let (cuts_s, requests) = (strata.times().cuts_s.clone(), overview.requests);
        Self { files, extents, kept, entries, phases, cuts_s, requests }
    }

    /// Requests surveyed, those of 0 bytes left out.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The files with an even sample of their requests: what a planner can replay or search.
    pub fn traces(&self) -> Vec<FileTrace<'_>> {
        let files = self.files.iter().zip(&self.kept);
        files
            .map(|(file, kept)| FileTrace { name: file.name.clone(), requests: kept, size_bytes: file.size_bytes })
            .collect()
    }

    /// The demand that was surveyed.
    pub(crate) fn demand(&self, options: &PlanOptions) -> Demand {
        let kept = self.entries.iter().map(Vec::len).sum();
        let sample = Some(DemandSample { kept, of: usize::try_from(self.requests).unwrap_or(usize::MAX) });
        let (entries, extents) = (self.entries.clone(), self.extents.clone());
        Demand::assemble(extents, entries, self.phases.clone(), self.cuts_s.clone(), sample, options)
    }
}

#[cfg(test)]
mod tests {
    use super::draw::drawn;
    use super::overview::KEPT;
    use super::*;
    use std::collections::HashMap;
    use stripewise_model::Op;

    struct Held(Vec<(usize, Request)>);

    impl RequestSource for Held {
        fn visit(&self, visit: &mut dyn FnMut(usize, &Request)) {
            self.0.iter().for_each(|(file, request)| visit(*file, request));
        }
    }

    fn files(count: usize) -> Vec<SurveyedFile> {
        (0..count).map(|i| SurveyedFile { name: format!("f{i}"), size_bytes: None }).collect()
    }

    /// Two files, reads after writes, 8 processes in closed loops, sizes of any kind.
    fn requests(count: u64) -> Vec<(usize, Request)> {
        let request = |i: u64| {
            let op = if i < count / 2 { Op::Write } else { Op::Read };
            let (start_s, size) = ((i / 8) as f64 * 0.5, 1000 + drawn(3 * i) % 300_000);
            let offset = drawn(3 * i + 1) % (1 << 30);
            let process = (i % 8) as u32;
            ((drawn(3 * i + 2) % 4 / 3) as usize, Request { offset, size, op, process, start_s, end_s: start_s + 0.5 })
        };
        (0..count).map(request).collect()
    }

    #[test]
    fn counts_and_bytes_are_exact_in_every_file_phase_and_power_of_two() {
        let all = requests(60_000);
        let options = PlanOptions { max_entries: 2000, max_chunks: 50, ..PlanOptions::default() };
        let survey = Survey::new(files(2), &Held(all.clone()), &options).unwrap();
        assert_eq!((survey.requests(), survey.phases.len()), (60_000, 2));
        let entries: usize = survey.entries.iter().map(Vec::len).sum();
        assert!(entries < 5000, "{entries}");
        type Of = HashMap<(usize, Op, u32), (f64, f64)>;
        let (mut want, mut got) = (Of::new(), Of::new());
        let add = |to: &mut Of, file, op, size: u64, count: f64| {
            let of = to.entry((file, op, size.ilog2())).or_default();
            *of = (of.0 + count, of.1 + count * size as f64);
        };
        all.iter().for_each(|(file, r)| add(&mut want, *file, r.op, r.size, 1.0));
        for (file, entries) in survey.entries.iter().enumerate() {
            entries.iter().for_each(|e| add(&mut got, file, e.op, e.size, e.count));
        }
        assert_eq!(want.len(), got.len());
        for (key, want) in want {
            let got = got[&key];
            assert!((got.0 - want.0).abs() < 1e-6 * want.0 && (got.1 - want.1).abs() < 1e-6 * want.1, "{key:?}");
        }
        for phase in &survey.phases {
            assert_eq!(phase.requests, 30_000);
            assert!((phase.processes - 8.0).abs() < 1e-9, "{}", phase.processes);
        }
        let kept: usize = survey.traces().iter().map(|trace| trace.requests.len()).sum();
        assert_eq!(kept, 60_000);
    }

    #[test]
    fn a_sample_of_many_is_even_and_small() {
        let all = requests(500_000);
        let survey = Survey::new(files(2), &Held(all), &PlanOptions::default()).unwrap();
        let kept: usize = survey.traces().iter().map(|trace| trace.requests.len()).sum();
        assert!((KEPT - KEPT / 10..=2 * KEPT).contains(&kept), "{kept}");
        let mean = survey.kept.iter().flatten().map(|r| r.size as f64).sum::<f64>() / kept as f64;
        assert!((mean / 151_000.0 - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn parts_in_any_order_add_up_to_the_whole() {
        let spread = |(n, (_, request)): (usize, (usize, Request))| (drawn(n as u64) as usize % 7, request);
        let all: Vec<(usize, Request)> = requests(300_000).into_iter().enumerate().map(spread).collect();
        let options = PlanOptions { max_entries: 2000, ..PlanOptions::default() };
        let whole = Survey::new(files(7), &Held(all.clone()), &options).unwrap();
        assert!(whole.kept.iter().map(Vec::len).sum::<usize>() < 300_000, "of a sample");
        let of = |part: &[usize]| Held(all.iter().filter(|(file, _)| part.contains(file)).copied().collect());
        for parts in [vec![vec![6, 1], vec![0, 2, 5], vec![4], vec![3]], vec![vec![3], vec![1, 0, 2, 4, 5, 6]]] {
            let mut overview = Overview::empty(7);
            parts.iter().for_each(|part| overview.join(Overview::of(7, &of(part))));
            let overview = overview.finished(&files(7)).unwrap();
            let strata = Strata::new(&overview, &options);
            let mut counted = Counted::empty(&strata);
            parts.iter().for_each(|part| counted.join(strata.counted(&of(part))));
            let joined = Survey::of(files(7), overview, &strata, counted, &options);
            assert_eq!((&joined.kept, &joined.entries), (&whole.kept, &whole.entries));
            assert_eq!((&joined.extents, &joined.phases), (&whole.extents, &whole.phases));
            assert_eq!((&joined.cuts_s, joined.requests), (&whole.cuts_s, whole.requests));
        }
    }

    #[test]
    fn nothing_times_that_are_none_and_the_end_of_the_world() {
        let survey = Survey::new(files(1), &Held(Vec::new()), &PlanOptions::default()).unwrap();
        assert_eq!(survey.demand(&PlanOptions::default()).files[0].extent, 0);
        let odd = Request { offset: 7, size: 9, op: Op::Read, process: 3, start_s: f64::NAN, end_s: f64::INFINITY };
        let survey = Survey::new(files(1), &Held(vec![(0, odd)]), &PlanOptions::default()).unwrap();
        assert_eq!((survey.extents[0], survey.phases[0].processes), (16, 1.0));
        let beyond = Request { offset: u64::MAX, ..odd };
        let error = Survey::new(files(1), &Held(vec![(0, beyond)]), &PlanOptions::default()).unwrap_err();
        assert!(error.to_string().starts_with("f0: "), "{error}");
    }
}
