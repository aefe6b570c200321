use stripewise_model::Cluster;
use stripewise_planner::{FileTrace, Job, Plan, PlanError, PlanOptions, plan_by};

/// What Stripewise's own planner makes of the files.
pub fn plan(files: &[FileTrace], cluster: &Cluster, options: &PlanOptions) -> Result<Plan, PlanError> {
    plan_by("regions", &Job::new(files, cluster, options)?).map(|made| made.plan)
}
