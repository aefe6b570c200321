//! [`advise`]: from a log and the servers to advice.
//!
//! All files are planned together (`planning`), since they share the servers. What was planned is then held against what
//! there is (`case`).

use crate::advice::Advice;
use crate::case::ComparedCase;
use crate::error::AdviseError;
use crate::gather::Gathered;
use crate::look::Looked;
use crate::options::AdviceOptions;
use crate::passes::{Pass, PassResult, Passes};
use crate::sides::servers;
use stripewise_import::About;
use stripewise_planner::auto;
use stripewise_planner::planners::PLANNERS;
use stripewise_trace::Trace;

/// Advises on the files of a log: some passes over its records, as long as [`stripewise_planner::plan_by`] takes for at
/// most 20,000 distinct requests, and some 28 simulations of 16,000.
///
/// # Errors
/// [`AdviseError`] with the remedy.
pub fn advise(trace: &Trace, about: &About, options: &AdviceOptions) -> Result<Advice, AdviseError> {
    advise_by(trace, about, options, trace)
}

/// [`advise`] where others have the requests: `trace` is asked for its files and processes alone, `about` has the
/// counters and layouts of all files, and the records are read by `passes`. The advice is the same.
///
/// # Errors
/// [`AdviseError`] with the remedy.
pub fn advise_by(
    trace: &Trace,
    about: &About,
    options: &AdviceOptions,
    passes: &dyn Passes,
) -> Result<Advice, AdviseError> {
    if let Some(name) = options.planner.filter(|name| *name != auto::AUTO)
        && PLANNERS.iter().all(|planner| planner.name() != name)
    {
        let known: Vec<&str> = PLANNERS.iter().map(|planner| planner.name()).collect();
        return Err(AdviseError::Planner(format!(
            "no planner '{name}'; there is {}, {}",
            auto::AUTO,
            known.join(", ")
        )));
    }
    let (servers, targets) = servers(about, options)?;
    let mut looked = Looked::default();
    let root = options.root.map(|root| root.as_os_str().to_owned());
    passes.make(&Pass::Look(root), &mut |found| {
        if let PassResult::Looked(part) = found {
            looked.join(part);
        }
    })?;
    let mut gathered = Gathered::new(trace, about, options.root, looked.finished());
    if gathered.files.is_empty() {
        return Err(AdviseError::NothingMoved { root: gathered.root });
    }
    let case = ComparedCase::new(&servers, &targets, about, options, passes, &mut gathered)?;
    case.advice(&gathered, about, options)
}
