//! Layouts for requests that are described instead of recorded, file by file: what each planner makes, also where the default
//! would be better.

use crate::auto::{AUTO, auto};
use crate::error::PlanError;
use crate::job::Job;
use crate::job::input::{FileTrace, PlanOptions};
use crate::plan::unknown;
use crate::planners;
use crate::planners::harl::paper::{self, HarlOptions};
use crate::planners::song::costs::{BlockCosts, Blocks, quantile_widths};
use std::collections::HashSet;
use stripewise_layout::{Layout, LayoutError};
use stripewise_model::{Cluster, Profile, Request};

/// Most blocks of a round.
const MOST_BLOCKS: u64 = 1 << 20;

/// The layouts that the planner `name` makes for files with these requests; `auto` takes the best of all. As many
/// processes are taken to be in flight as there are.
///
/// # Errors
/// As [`plan_by`](crate::plan_by).
pub fn layouts_by(
    name: &str,
    requests: &[Vec<Request>],
    cluster: &Cluster,
    options: &PlanOptions,
) -> Result<Vec<Layout>, PlanError> {
    let planner = if name == AUTO { None } else { Some(planners::by_name(name).ok_or_else(|| unknown(name))?) };
    let files = requests.iter().enumerate();
    let files = files
        .map(|(number, requests)| FileTrace { name: format!("file.{number}"), requests, size_bytes: None })
        .collect::<Vec<_>>();
    let processes: HashSet<u32> = requests.iter().flatten().map(|request| request.process).collect();
    let options = PlanOptions { processes: Some(processes.len().max(1) as f64), ..*options };
    let job = Job::new(&files, cluster, &options)?;
    match planner {
        Some(planner) => planner.plan(&job),
        None => Ok(auto(&job)?.chosen().layouts.clone()),
    }
}

/// HARL's layouts as in the paper for files with these requests.
///
/// # Errors
/// Those of [`Layout::new`]; none if the cluster has servers.
pub fn harl_layouts(
    requests: &[Vec<Request>],
    cluster: &Cluster,
    options: &HarlOptions,
) -> Result<Vec<Layout>, LayoutError> {
    requests.iter().map(|requests| paper::plan(requests, cluster, options).layout(cluster)).collect()
}

/// What Song's rule is not for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EqualDepthError {
    /// Servers that differ.
    #[error("{0} tiers: the rule is for servers that are all alike")]
    Tiers(usize),
    /// Blocks that make no round.
    #[error("a round of {round_bytes} bytes is not made of blocks of {block_bytes}")]
    Blocks {
        /// Bytes of the round.
        round_bytes: u64,
        /// Bytes of a block.
        block_bytes: u64,
    },
}

/// Song's width in bytes for each server of a tier of equal ones: the paper's rule on rounds of `round_bytes` and blocks of
/// `block_bytes`, with the device's costs alone. Requests of all files are taken together.
///
/// # Errors
/// [`EqualDepthError`].
pub fn equal_depth_widths<'a>(
    requests: impl IntoIterator<Item = &'a Request>,
    cluster: &Cluster,
    round_bytes: u64,
    block_bytes: u64,
) -> Result<Vec<u64>, EqualDepthError> {
    let [tier] = &cluster.tiers[..] else { return Err(EqualDepthError::Tiers(cluster.tiers.len())) };
    if block_bytes == 0 || !round_bytes.is_multiple_of(block_bytes) || round_bytes / block_bytes > MOST_BLOCKS {
        return Err(EqualDepthError::Blocks { round_bytes, block_bytes });
    }
    let count = (round_bytes / block_bytes) as usize;
    let mut costs = BlockCosts::new(Blocks { count: count.max(1), bytes: block_bytes });
    requests.into_iter().for_each(|request| costs.add(request.op, request.offset, request.size, 1.0));
    let costs_s = costs.costs_s(&Profile { network_s_per_byte: 0.0, ..tier.profile });
    let widths = quantile_widths(&costs_s, tier.servers.len().max(1));
    Ok(widths.into_iter().map(|blocks| blocks as u64 * block_bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::{Op, presets};

    fn requests() -> Vec<Vec<Request>> {
        let request = |number: u32| Request {
            offset: u64::from(number) * 65_536,
            size: 65_536,
            op: Op::Read,
            process: number % 4,
            start_s: 0.0,
            end_s: 1.0,
        };
        vec![(0..64).map(request).collect(), (0..16).map(request).collect()]
    }

    #[test]
    fn every_planner_makes_a_layout_a_file() {
        let cluster = presets::set_ab(2, 1);
        for name in [AUTO, "regions", "harl-paper"] {
            assert_eq!(layouts_by(name, &requests(), &cluster, &PlanOptions::default()).unwrap().len(), 2, "{name}");
        }
        let error = layouts_by("none", &requests(), &cluster, &PlanOptions::default()).unwrap_err();
        assert!(matches!(error, PlanError::UnknownPlanner { .. }), "{error}");
        assert_eq!(harl_layouts(&requests(), &cluster, &HarlOptions::default()).unwrap().len(), 2);
    }

    #[test]
    fn equal_servers_share_an_even_load_evenly() {
        let cluster = presets::set_ab(4, 0);
        let alike = Cluster { tiers: cluster.tiers[..1].to_vec(), meta: None };
        let requests = requests();
        let widths = |round, block| equal_depth_widths(requests.iter().flatten(), &alike, round, block);
        assert_eq!(widths(1 << 20, 65_536).unwrap(), [1 << 18; 4]);
        assert_eq!(widths(1000, 3), Err(EqualDepthError::Blocks { round_bytes: 1000, block_bytes: 3 }));
        let differ = equal_depth_widths(requests.iter().flatten(), &presets::set_ab(2, 1), 1 << 20, 65_536);
        assert_eq!(differ, Err(EqualDepthError::Tiers(2)));
    }
}
