//! [`Requested`]: the requests of the files that advice is given on, all of them or, of many, a survey.

use crate::error::AdviseError;
use crate::gaps::{Gaps, Spans, Timed};
use crate::gather::Gathered;
use crate::passes::{Pass, PassResult, Passes, Wanted};
use stripewise_model::Request;
use stripewise_planner::{Counted, Overview, PlanOptions, RequestSource, Strata, Survey, SurveyedFile};

/// More requests than these are surveyed, and planned by their counts.
pub(crate) const HELD: u64 = 20_000;

/// The requests of each file, or a survey of them.
pub(crate) enum Requested {
    Held(Vec<Vec<Request>>),
    Surveyed(Survey),
}

struct Held<'a>(&'a [Vec<Request>]);

impl RequestSource for Held<'_> {
    fn visit(&self, visit: &mut dyn FnMut(usize, &Request)) {
        self.0.iter().enumerate().for_each(|(file, requests)| requests.iter().for_each(|request| visit(file, request)));
    }
}

/// Asks for the requests of the files that were gathered, of which some are `timed`: by their times the time between
/// requests is found. A pass through few requests, three through more.
pub(crate) fn requested(
    gathered: &Gathered,
    timed: Vec<bool>,
    passes: &dyn Passes,
    options: &PlanOptions,
) -> Result<(Requested, Gaps), AdviseError> {
    let files: Vec<u32> = gathered.files.iter().map(|file| file.id).collect();
    let count = files.len();
    let wanted = Wanted { files, threads: gathered.threads.clone() };
    let timed = Timed::new(gathered.requests, timed);
    if gathered.requests <= HELD {
        let mut held = vec![Vec::new(); count];
        passes.make(&Pass::Hold(wanted), &mut |found| {
            let PassResult::Held(parts) = found else { return };
            parts.into_iter().for_each(|(file, requests)| held[file as usize] = requests);
        })?;
        let gaps = Gaps::of(timed.spans(&Held(&held)));
        return Ok((Requested::Held(held), gaps));
    }
    let named = gathered.files.iter();
    let named = named.map(|file| SurveyedFile { name: file.path.clone(), size_bytes: Some(file.used.end) });
    let named: Vec<SurveyedFile> = named.collect();
    let mut overview = Overview::empty(count);
    passes.make(&Pass::Overview(wanted.clone()), &mut |found| {
        if let PassResult::Overview(part) = found {
            overview.join(part);
        }
    })?;
    let overview = overview.finished(&named)?;
    let strata = Strata::new(&overview, options);
    let (mut counted, mut spans) = (Counted::empty(&strata), Spans::default());
    passes.make(&Pass::Count(wanted, strata.clone(), timed), &mut |found| {
        if let PassResult::Counted(part, of_part) = found {
            counted.join(part);
            spans.join(of_part);
        }
    })?;
    Ok((Requested::Surveyed(Survey::of(named, overview, &strata, counted, options)), Gaps::of(spans)))
}
