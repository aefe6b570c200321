//! [`plan_by`]: plans by the name of their planner, `auto` among them, with all that a [`Plan`] says of itself.

mod describe;
pub(crate) mod outcome;
pub(crate) mod room;

use describe::describe;
use outcome::{Plan, Rehearsal};

use crate::auto::{self, AUTO, Comparison};
use crate::error::PlanError;
use crate::job::Job;
use crate::planners::{PLANNERS, by_name, propose};
use crate::regions::rehearse::Stage;
use stripewise_layout::Layout;

/// A plan, and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedBy {
    /// Name of the planner whose layouts these are; that of the winner with `auto`.
    pub planner: &'static str,
    /// The planner would choose the default by its own price: these layouts are the default's.
    pub kept_default: bool,
    /// The layouts and what is predicted of them.
    pub plan: Plan,
    /// With `auto`: all planners beside each other.
    pub comparison: Option<Comparison>,
}

/// Plans the layouts of `job` by the planner `name` of [`PLANNERS`], or by [`AUTO`]: within the space limits, and never
/// worse than the default by the planner's own price where that one is within them itself.
///
/// # Errors
/// [`PlanError::UnknownPlanner`] for a name that is not in the list; [`PlanError::DoesNotFit`] when the planner's layouts
/// are beyond the limits; else those of the planner.
pub fn plan_by(name: &str, job: &Job) -> Result<PlannedBy, PlanError> {
    let planner = if name == AUTO { None } else { Some(by_name(name).ok_or_else(|| unknown(name))?) };
    let Some(planner) = planner else {
        let comparison = auto::auto(job)?;
        let chosen = comparison.chosen();
        let plan = describe(job, &chosen.layouts, &chosen.price, comparison.rehearsal)?;
        let planner = comparison.contenders[comparison.winner].planner;
        return Ok(PlannedBy { planner, kept_default: false, plan, comparison: Some(comparison) });
    };
    let proposal = propose(planner, job)?;
    if proposal.price.excess_bytes > 0 {
        let excess_bytes = proposal.price.excess_bytes;
        return Err(PlanError::DoesNotFit { planner: planner.name(), excess_bytes });
    }
    let rehearsal = rehearse(job, &proposal.layouts);
    let plan = describe(job, &proposal.layouts, &proposal.price, rehearsal)?;
    Ok(PlannedBy { planner: planner.name(), kept_default: proposal.kept_default, plan, comparison: None })
}

/// Planner of [`plan_as_is`].
const KEPT: &str = "present";

/// The plan to keep the layouts that the files of `job` have, with what is predicted of them.
///
/// # Errors
/// [`PlanError::UnknownServer`] when a layout names a server outside the cluster.
///
/// # Panics
/// When there are not as many layouts as files.
pub fn plan_as_is(job: &Job, layouts: &[Layout]) -> Result<PlannedBy, PlanError> {
    let plan = describe(job, layouts, &job.price(layouts)?, rehearse(job, layouts))?;
    Ok(PlannedBy { planner: KEPT, kept_default: false, plan, comparison: None })
}

/// The error for a name that no planner has.
pub(crate) fn unknown(name: &str) -> PlanError {
    let known: Vec<&str> = PLANNERS.iter().map(|planner| planner.name()).collect();
    PlanError::UnknownPlanner { name: name.to_owned(), known: format!("{AUTO}, {}", known.join(", ")) }
}

/// The layouts and the default simulated as `auto` does; `None` where the options allow none, or there is nothing to do.
fn rehearse(job: &Job, layouts: &[Layout]) -> Option<Rehearsal> {
    if job.options.simulations == 0 || job.demand.files.iter().all(|file| file.entries.is_empty()) {
        return None;
    }
    let stage = Stage::new(job.files, &job.demand, &job.priced_as, job.options, 0.0);
    let default_s = auto::simulated_s(&stage, &job.default_layouts());
    let planned_s = auto::simulated_s(&stage, layouts);
    Some(Rehearsal { requests: stage.requests(), simulations: 2 * auto::DRAWS as usize, default_s, planned_s })
}
