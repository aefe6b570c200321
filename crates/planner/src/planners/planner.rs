//! What every planner has to give, and the frame around it: its layouts are checked, priced in one model, held against the
//! space limits and the limit on regions, and never taken where its own price says that the default is better.

use crate::error::PlanError;
use crate::job::{Job, Price};
use stripewise_layout::Layout;

/// A way to make layouts.
pub trait Planner: Sync {
    /// Its name on the command line: lower case, words joined by `-`.
    fn name(&self) -> &'static str;

    /// Where it comes from: the paper with the section, or the design.
    fn source(&self) -> &'static str;

    /// What it does, in one line.
    fn summary(&self) -> &'static str;

    /// One layout per file of the job, in its order, with at most `job.options.max_regions` regions each and with
    /// servers of `job.cluster` only. The space limits may be ignored: layouts that are beyond them are priced and
    /// reported as such, and never taken. Must be deterministic: the same job, the same layouts, on every machine.
    ///
    /// # Errors
    /// [`PlanError`] where the planner has no layout for such a job.
    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError>;

    /// The price by which this planner would choose among layouts, in any unit: lower is better. The frame takes the
    /// default layouts where they have a lower one. Planners of a paper give the paper's; the default is the model of
    /// [`Job::price`].
    ///
    /// # Errors
    /// Those of [`Job::price`].
    fn own_price(&self, job: &Job, layouts: &[Layout]) -> Result<f64, PlanError> {
        job.price(layouts).map(|price| price.predicted_s)
    }
}

/// What a planner makes of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// One layout per file.
    pub layouts: Vec<Layout>,
    /// Their price in the model that all planners are compared by.
    pub price: Price,
    /// The planner's own layouts had a higher price than the default's, by its own measure: these are the default's.
    pub kept_default: bool,
}

/// The planner's own layouts with their price, once it is certain that they may be taken.
pub(crate) fn checked(planner: &dyn Planner, job: &Job) -> Result<(Vec<Layout>, Price), PlanError> {
    let layouts = planner.plan(job)?;
    let name = planner.name();
    assert_eq!(layouts.len(), job.files.len(), "{name}: one layout per file");
    for (layout, file) in layouts.iter().zip(job.files) {
        let regions = layout.regions().len();
        if regions > job.options.max_regions.max(1) {
            let (file, most) = (file.name.clone(), job.options.max_regions.max(1));
            return Err(PlanError::TooManyRegions { planner: name, file, regions, most });
        }
    }
    let price = job.price(&layouts)?;
    Ok((layouts, price))
}

/// What `planner` makes of `job`: valid layouts, never worse than the default by the planner's own price. They may be
/// beyond the space limits, which [`Price::excess_bytes`] says. Where the default is itself beyond the limits and the
/// planner's layouts are not, they are not held against it.
///
/// # Errors
/// Those of the planner; [`PlanError::TooManyRegions`] and [`PlanError::UnknownServer`] when it breaks its contract.
pub fn propose(planner: &dyn Planner, job: &Job) -> Result<Proposal, PlanError> {
    let (layouts, price) = checked(planner, job)?;
    let default = job.default_layouts();
    if layouts != default {
        let default_price = job.price(&default)?;
        let comparable = default_price.excess_bytes <= price.excess_bytes;
        if comparable && planner.own_price(job, &default)? < planner.own_price(job, &layouts)? {
            return Ok(Proposal { layouts: default, price: default_price, kept_default: true });
        }
    }
    Ok(Proposal { layouts, price, kept_default: false })
}
