//! What is going on, for people: by anyone who may read the pool's namespace.

use stripewise_schedule::{Conductor, ProgramKey, ProgramTraits, Standing, mean_reuse};
use stripewise_store::emulate::now_ns;
use stripewise_store::{Pool, Result, is_shared};

use crate::node_board::read_board;
use crate::node_program::mean_gap;
use crate::nodes::{NodeStatus, this_node};
use crate::orchestrator::name_of;
use crate::snapshot::PageReader;
use crate::turns::find_plan_page;

/// A program, as the pages have it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramStatus {
    /// What it does.
    pub traits: ProgramTraits,
    /// Whether it has requests now.
    pub is_busy: bool,
    /// Where it stands; `None`: the orchestrator has not seen it yet, or there is none.
    pub standing: Option<Standing>,
    /// Weight.
    pub weight: f64,
    /// Bytes in a second; 0 is no limit.
    pub limit: u64,
    /// Its slice of each window in nanoseconds; 0: none of its own.
    pub slice_ns: u64,
    /// Mean gap between its requests over the servers, in bytes.
    pub gap_bytes: Option<f64>,
    /// Mean time between its requests over the servers, in nanoseconds.
    pub reuse_ns: Option<f64>,
}

/// A node that takes part.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchedNode {
    /// What the orchestrator says of it.
    pub status: NodeStatus,
    /// Whether it is the one on which this is asked.
    pub is_here: bool,
    /// Its programs.
    pub programs: Vec<ProgramStatus>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub struct OrchestrationStatus {
    /// The orchestrator's process; `None`: none answers.
    pub process: Option<u32>,
    /// Its policy.
    pub policy: Option<String>,
    /// Its window in nanoseconds.
    pub window_ns: u64,
    /// How long it has been at work, in nanoseconds.
    pub age_ns: u64,
    /// Plans that it has published.
    pub plans: u64,
    /// Who is served now; `None`: all.
    pub served: Option<String>,
    /// Slices in order: name and length in nanoseconds.
    pub slices: Vec<(String, u64)>,
    /// Programs, the first seen first.
    pub programs: Vec<ProgramStatus>,
    /// Requests of programs for which there was no place.
    pub unplaced: u64,
    /// The nodes that take part, the orchestrator's first; none where no agent can join, or where they are not for this user.
    pub nodes: Vec<WatchedNode>,
    /// When the orchestrator said what `nodes` says: nanoseconds since 1970.
    pub nodes_told_ns: Option<u64>,
}

/// What is going on in `pool`. Of other users' programs a user of a shared pool sees nothing, as their pages are not for it.
///
/// # Errors
/// The pool's namespace is not there.
pub fn orchestration_status(pool: &Pool) -> Result<OrchestrationStatus> {
    let now_ns = now_ns();
    let is_shared = is_shared(pool)?;
    let found = find_plan_page(pool, &this_node());
    let directory = found.as_ref().map_or(&pool.namespace, |(directory, _)| directory);
    let snapshot = PageReader::new(directory, pool.servers.len()).read(now_ns);
    let content = found.as_ref().and_then(|(_, page)| page.content(now_ns));
    let slices = content.as_ref().map_or(&[][..], |content| &content.slices);
    let begins = std::iter::once(0).chain(slices.iter().map(|slice| slice.end_ns));
    let lengths: Vec<_> =
        begins.zip(slices).map(|(begin_ns, slice)| (slice.program, slice.end_ns.saturating_sub(begin_ns))).collect();
    let is_in_turns = |content: &&crate::plan_page::PlanContent| content.is_in_turns;
    let (nodes_told_ns, nodes) = read_board(&pool.namespace, is_shared).unzip();
    let nodes: Vec<NodeStatus> = nodes.unwrap_or_default();
    // Programs of other nodes have slices, too.
    let name_of = |program: ProgramKey| {
        let elsewhere = nodes.iter().flat_map(|node| &node.programs).find(|one| one.key() == program);
        let is_here = snapshot.programs.iter().any(|one| one.key == program);
        elsewhere.filter(|_| !is_here).map_or_else(|| name_of(program, &snapshot), |one| one.name.clone())
    };
    let served = content.as_ref().filter(is_in_turns).and_then(|content| {
        let at_ns = now_ns.saturating_sub(content.begin_ns) % content.window_ns;
        slices.iter().find(|slice| at_ns < slice.end_ns).map(|slice| name_of(slice.program))
    });
    // Of a shared pool the page of turns, which all read, has no figures.
    let status_of = |traits: ProgramTraits, is_busy: bool, (gap_bytes, reuse_ns): (Option<f64>, Option<f64>)| {
        let listed = content.as_ref().and_then(|content| content.listed.iter().find(|one| one.program == traits.key));
        let slice_ns = lengths.iter().filter(|(program, _)| *program == traits.key).map(|(_, length)| length).sum();
        ProgramStatus {
            is_busy,
            standing: listed.map(|one| one.standing),
            weight: listed.map_or(1.0, |one| one.weight),
            limit: listed.map_or(0, |one| one.limit),
            slice_ns,
            gap_bytes,
            reuse_ns: listed.and_then(|one| one.reuse_ns).or(reuse_ns),
            traits,
        }
    };
    let here = this_node();
    let watched = |status: NodeStatus| {
        let of_node =
            status.programs.iter().map(|one| status_of(one.traits(), one.is_busy, (one.gap_bytes, one.reuse_ns)));
        WatchedNode { is_here: status.name == here, programs: of_node.collect(), status }
    };
    let own = |one: &ProgramTraits| {
        status_of(one.clone(), Conductor::is_busy(one, now_ns), (mean_gap(one), mean_reuse(&one.uses)))
    };
    Ok(OrchestrationStatus {
        process: content.as_ref().map(|content| content.process),
        policy: content.as_ref().map(|content| content.policy.clone()),
        window_ns: content.as_ref().map_or(0, |content| content.window_ns),
        age_ns: content.as_ref().map_or(0, |content| now_ns.saturating_sub(content.since_ns)),
        plans: content.as_ref().map_or(0, |content| content.windows),
        served,
        slices: lengths.iter().map(|(program, length)| (name_of(*program), *length)).collect(),
        programs: snapshot.programs.iter().map(own).collect(),
        unplaced: snapshot.unplaced,
        nodes: nodes.into_iter().map(watched).collect(),
        nodes_told_ns,
    })
}
