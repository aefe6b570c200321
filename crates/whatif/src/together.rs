//! Programs that run at once, each a trace: what they do to each other, and what turns would make of that.

use crate::error::WhatifError;
use crate::lockstep::rounds_ns;
use crate::replay;
use crate::servers::Servers;
use crate::system_options::SystemOptions;
use crate::target::{Target, cuts_s, nothing_below};
use rayon::prelude::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_advise::{FileRequests, below, common_directory};
use stripewise_layout::units::parse_seconds;
use stripewise_layout::{Layout, ServerId};
use stripewise_simulate::{
    Did, Estimate, Joined, JoinedPart, Packed, ProgramRules, ProgramTurns, SimulationReport, StepProgram, System,
    run_observed,
};
use stripewise_store::Store;
use stripewise_trace::Trace;

/// Programs of which each is simulated beside each other one; of more, those that share most.
const MOST_PAIRS: usize = 28;
/// The policy that decides nothing.
const NO_TURNS: &str = "none";

/// One program: its name and its trace.
#[derive(Debug, Clone, Copy)]
pub struct NamedTrace<'a> {
    /// For people.
    pub name: &'a str,
    /// What it did.
    pub trace: &'a Trace,
}

/// What is asked of programs that run at once.
#[derive(Debug, Clone, Copy)]
pub struct TogetherRequest<'a> {
    /// The pool file or cluster file of the servers.
    pub servers: &'a Path,
    /// Only files below it; `None`: those below a pool's mount, or all of each trace.
    pub root: Option<&'a Path>,
    /// Names of the policies to be tried beside none.
    pub policies: &'a [String],
    /// Weights and limits of programs, by their names.
    pub rules: &'a ProgramRules,
    /// Window of turns: a time, as `500ms`.
    pub window: &'a str,
    /// Programs begin as far apart as their traces did, not at once.
    pub as_recorded: bool,
    /// Each pair of programs that share servers at one time is simulated by itself, too.
    pub pairs: bool,
}

/// A program alone.
#[derive(Debug, Clone)]
pub struct ProgramAlone {
    /// Its name.
    pub name: String,
    /// Threads with one request in flight each.
    pub processes: usize,
    /// Bytes that it reads and writes.
    pub bytes: u64,
    /// When it begins, in seconds after the first.
    pub begin_s: f64,
    /// How long it takes without the others.
    pub took_s: Estimate,
    /// Servers that it uses.
    pub servers: Vec<ServerId>,
}

/// All programs under one policy.
#[derive(Debug, Clone)]
pub struct PolicyOutcome {
    /// Name of the policy.
    pub policy: String,
    /// Seconds from the first begin to the last end.
    pub makespan_s: Estimate,
    /// Bytes per second over that.
    pub throughput: Estimate,
    /// By program: how long it took.
    pub took_s: Vec<Estimate>,
    /// By program: that over its time alone.
    pub slowdowns: Vec<Estimate>,
    /// By program: seconds that its requests waited for turns, added up.
    pub waited_s: Vec<f64>,
    /// Jain's index of the slowdowns: 1 where all are equal.
    pub fairness: Estimate,
}

/// Two programs that use a server at one time.
#[derive(Debug, Clone)]
pub struct ProgramPair {
    /// Their places in the list.
    pub programs: [usize; 2],
    /// Seconds in which both were at work in their traces.
    pub overlap_s: f64,
    /// Servers that both use.
    pub servers: Vec<ServerId>,
    /// By how much each is slower beside the other than alone.
    pub slowdowns: [Estimate; 2],
}

/// Result of [`together`].
#[derive(Debug)]
pub struct ConcurrentPrograms {
    /// The servers.
    pub target: Target,
    /// The programs, as they were named.
    pub programs: Vec<ProgramAlone>,
    /// By policy; the first is none.
    pub outcomes: Vec<PolicyOutcome>,
    /// Pairs that share a server at one time, those that slow each other most first; empty where none were asked for.
    pub pairs: Vec<ProgramPair>,
    /// Pairs beyond those that were simulated.
    pub pairs_left: usize,
    /// Length of a window in seconds.
    pub window_s: f64,
}

/// Jain's index of `values`: `(sum x)^2 / (n sum x^2)`, from `1/n` to 1; 1 without values.
fn fairness(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares > 0.0 { sum * sum / (values.len() as f64 * squares) } else { 1.0 }
}

/// Simulates the programs of `traces` alone, together, and together under each policy.
///
/// # Errors
/// Fewer than two traces, a policy, window or rule that is none, a rule of no program, servers that cannot be read, a trace without a request below the root.
pub fn together(
    traces: &[NamedTrace],
    asked: &TogetherRequest,
    around: &SystemOptions,
) -> Result<ConcurrentPrograms, WhatifError> {
    if traces.len() < 2 {
        return Err(WhatifError::Asked("programs take turns with others: name two traces or more".into()));
    }
    let window_s = parse_seconds(asked.window).map_err(|error| WhatifError::Asked(format!("--window: {error}")))?;
    check_rules(asked.rules, traces)?;
    let stage = Stage::of(traces, asked, around, window_s)?;
    let all: Vec<usize> = (0..traces.len()).collect();
    let seeds: Vec<u64> = (0..around.repeat.max(1) as u64).map(|number| around.seed.wrapping_add(number)).collect();
    let alone = stage.each(all.iter().map(|&program| (vec![program], None)).collect(), &seeds)?;
    let mut policies = vec![NO_TURNS.to_owned()];
    policies.extend(asked.policies.iter().filter(|policy| *policy != NO_TURNS).cloned());
    let under = stage.each(policies.iter().map(|policy| (all.clone(), Some(policy.as_str()))).collect(), &seeds)?;
    let alone_s = |program: usize, seed: usize| alone[program][seed].took_s[0];
    let outcomes = policies.into_iter().zip(&under).map(|(policy, runs)| outcome(policy, runs, &alone_s)).collect();
    let programs: Vec<ProgramAlone> = all.iter().map(|&program| stage.alone(program, &alone[program])).collect();
    let (pairs, pairs_left) = if asked.pairs { stage.pairs(&programs, &alone, &seeds)? } else { (Vec::new(), 0) };
    Ok(ConcurrentPrograms { programs, outcomes, pairs, pairs_left, window_s, target: stage.target })
}

/// Refuses rules that are none, before anything is simulated, and rules of programs that are not there.
fn check_rules(rules: &ProgramRules, traces: &[NamedTrace]) -> Result<(), WhatifError> {
    rules.check().map_err(WhatifError::Asked)?;
    let weights = rules.weights.keys().map(|name| ("weight", name));
    let limits = rules.limits.keys().map(|name| ("limit", name));
    let is_here = |name: &str| traces.iter().any(|one| one.name == name);
    if let Some((what, name)) = weights.chain(limits).find(|(_, name)| !is_here(name)) {
        let names: Vec<&str> = traces.iter().map(|one| one.name).collect();
        let names = names.join(", ");
        return Err(WhatifError::Asked(format!("a {what} for '{name}': no program is named so; they are {names}")));
    }
    Ok(())
}

/// The figures of one policy over the runs of all seeds.
fn outcome(policy: String, runs: &[ProgramsRun], alone_s: &dyn Fn(usize, usize) -> f64) -> PolicyOutcome {
    let over = |value: &dyn Fn(usize, &ProgramsRun) -> f64| {
        Estimate::of(&runs.iter().enumerate().map(|(seed, run)| value(seed, run)).collect::<Vec<f64>>())
    };
    let slowdown = |program: usize, seed: usize, run: &ProgramsRun| ratio(run.took_s[program], alone_s(program, seed));
    let programs = runs[0].took_s.len();
    let all = |seed: usize, run: &ProgramsRun| {
        (0..programs).map(|program| slowdown(program, seed, run)).collect::<Vec<f64>>()
    };
    PolicyOutcome {
        policy,
        makespan_s: over(&|_, run| run.makespan_s),
        throughput: over(&|_, run| ratio(run.bytes as f64, run.makespan_s)),
        took_s: (0..programs).map(|program| over(&|_, run| run.took_s[program])).collect(),
        slowdowns: (0..programs).map(|program| over(&|seed, run| slowdown(program, seed, run))).collect(),
        waited_s: runs[0].waited_s.clone(),
        fairness: over(&|seed, run| fairness(&all(seed, run))),
    }
}

fn ratio(of: f64, by: f64) -> f64 {
    if by > 0.0 { of / by } else { 1.0 }
}

/// One run of some of the programs.
#[derive(Debug)]
struct ProgramsRun {
    /// By program: from its begin to its end.
    took_s: Vec<f64>,
    waited_s: Vec<f64>,
    makespan_s: f64,
    bytes: u64,
    report: SimulationReport,
}

/// Everything that runs have in common.
struct Stage {
    target: Target,
    names: Vec<String>,
    steps: Vec<Packed>,
    /// By program: its files' places in `layouts`.
    files: Vec<Vec<u32>>,
    layouts: Vec<Layout>,
    begins_s: Vec<f64>,
    /// By program: seconds that it took in its trace.
    traced_s: Vec<f64>,
    system: System,
    window_s: f64,
    rules: ProgramRules,
}

impl Stage {
    fn of(
        traces: &[NamedTrace],
        asked: &TogetherRequest,
        around: &SystemOptions,
        window_s: f64,
    ) -> Result<Self, WhatifError> {
        let servers = Servers::load(asked.servers)?;
        let store = servers.pool_file.as_deref().map(Store::of_file).transpose()?;
        let target = match &store {
            Some(store) => Target::of_pool(store.pool(), &HashMap::new())?,
            None => Target::of_cluster(&servers.cluster),
        };
        let mut places: HashMap<PathBuf, u32> = HashMap::new();
        let (mut layouts, mut steps, mut files) = (Vec::new(), Vec::new(), Vec::new());
        let (mut begins_ns, mut traced_s) = (Vec::new(), Vec::new());
        for NamedTrace { name, trace } in traces {
            let mount = store.as_ref().map(|store| store.pool().mount.clone());
            let root = asked.root.map(Path::to_owned).or(mount).unwrap_or_else(|| common_directory(trace));
            let own = below(trace, &root);
            if own.is_empty() {
                return Err(WhatifError::Asked(format!("{name}: {}", nothing_below(&root))));
            }
            let mut numbers = Vec::with_capacity(own.len());
            for file in &own {
                // A file of two programs is one.
                let next = places.len() as u32;
                let number = *places.entry(root.join(&file.path)).or_insert(next);
                if number == next {
                    layouts.push(present(&servers, store.as_ref(), number as usize, file)?);
                }
                numbers.push(number);
            }
            let threads: Vec<Vec<Did>> =
                replay::threads(trace, &own, around.metadata.is_some() || target.name_costs.is_some())
                    .into_iter()
                    .map(|thread| thread.1)
                    .collect();
            let first_ns = threads.iter().flatten().map(|did| did.start_ns).min().unwrap_or(0);
            let last_ns = threads.iter().flatten().map(|did| did.end_ns).max().unwrap_or(0);
            begins_ns.push(trace.start_unix_ns().saturating_add(first_ns));
            traced_s.push(last_ns.saturating_sub(first_ns) as f64 * 1e-9);
            let mut cuts = replay::nanoseconds(&cuts_s(&own, &target.cluster, target.default_width_bytes)?);
            cuts.extend(rounds_ns(&threads));
            cuts.sort_unstable();
            steps.push(stripewise_simulate::replay(threads, &cuts, around.think).program);
            files.push(numbers);
        }
        let first_ns = begins_ns.iter().copied().min().unwrap_or(0);
        let begins_s = begins_ns.iter().map(|begin_ns| (begin_ns - first_ns) as f64 * 1e-9);
        // Without a word on it, a program has a node of its own.
        let most = steps.iter().map(Packed::processes).max().unwrap_or(1) as u32;
        let per_node = around.processes_per_node.unwrap_or(most);
        let system = System { bins: 0, ..around.system(&target, per_node, layouts.len())? };
        Ok(Self {
            names: traces.iter().map(|one| one.name.to_owned()).collect(),
            begins_s: begins_s.map(|begin_s| if asked.as_recorded { begin_s } else { 0.0 }).collect(),
            traced_s,
            steps,
            files,
            layouts,
            system,
            window_s,
            rules: asked.rules.clone(),
            target,
        })
    }

    /// Runs some of the programs; without a policy, without turns.
    fn run(&self, which: &[usize], policy: Option<&str>, seed: u64) -> Result<ProgramsRun, WhatifError> {
        let first_s = which.iter().map(|&program| self.begins_s[program]).fold(f64::INFINITY, f64::min);
        let part = |&program: &usize| JoinedPart {
            steps: &self.steps[program],
            files: &self.files[program],
            begin_s: self.begins_s[program] - first_s,
        };
        let joined = Joined::of(which.iter().map(part).collect());
        let program_of = joined.program_of();
        let turns = policy.map(|policy| ProgramTurns {
            policy: policy.to_owned(),
            window_s: self.window_s,
            program_of: program_of.clone(),
            names: which.iter().map(|&program| self.names[program].clone()).collect(),
            rules: self.rules.clone(),
        });
        let system = System { turns, ..self.system.clone() };
        let mut ends_s = vec![0.0_f64; which.len()];
        let observe = |process: u32, _: &stripewise_simulate::SimulatedAccess, _: f64, end_s: f64| {
            let end = &mut ends_s[program_of[process as usize] as usize];
            *end = end.max(end_s);
        };
        let report = run_observed(&self.target.holding, &self.layouts, &joined, &system, seed, observe)?;
        let took_s = which.iter().zip(&ends_s).map(|(&of, end_s)| (end_s - (self.begins_s[of] - first_s)).max(0.0));
        let waited_s = report.turns.iter().map(|turns| turns.waited_s).collect();
        Ok(ProgramsRun {
            took_s: took_s.collect(),
            waited_s,
            makespan_s: ends_s.iter().copied().fold(0.0, f64::max),
            bytes: report.outcome.read_bytes.saturating_add(report.outcome.written_bytes),
            report,
        })
    }

    /// Runs each of `jobs` with all seeds, on all threads.
    fn each(&self, jobs: Vec<(Vec<usize>, Option<&str>)>, seeds: &[u64]) -> Result<Vec<Vec<ProgramsRun>>, WhatifError> {
        let runs = |(which, policy): &(Vec<usize>, Option<&str>)| {
            seeds.par_iter().map(|&seed| self.run(which, *policy, seed)).collect::<Result<Vec<ProgramsRun>, _>>()
        };
        jobs.par_iter().map(runs).collect()
    }

    fn alone(&self, program: usize, runs: &[ProgramsRun]) -> ProgramAlone {
        let outcome = &runs[0].report.outcome;
        let used = (0..outcome.servers.len()).filter(|&server| outcome.servers[server].bytes > 0);
        ProgramAlone {
            name: self.names[program].clone(),
            processes: self.steps[program].processes(),
            bytes: runs[0].bytes,
            begin_s: self.begins_s[program],
            took_s: Estimate::of(&runs.iter().map(|run| run.took_s[0]).collect::<Vec<f64>>()),
            servers: used.map(|server| outcome.server_at(server)).collect(),
        }
    }

    /// Pairs of programs that use a server at one time, and what they do to each other; how many were left out.
    fn pairs(
        &self,
        programs: &[ProgramAlone],
        alone: &[Vec<ProgramsRun>],
        seeds: &[u64],
    ) -> Result<(Vec<ProgramPair>, usize), WhatifError> {
        let end_s = |program: usize| self.begins_s[program] + self.traced_s[program];
        let mut found: Vec<ProgramPair> = Vec::new();
        for one in 0..programs.len() {
            for other in one + 1..programs.len() {
                let begin_s = self.begins_s[one].max(self.begins_s[other]);
                let overlap_s = end_s(one).min(end_s(other)) - begin_s;
                let is_shared = |server: &&ServerId| programs[other].servers.contains(server);
                let servers: Vec<ServerId> = programs[one].servers.iter().filter(is_shared).copied().collect();
                if overlap_s > 0.0 && !servers.is_empty() {
                    let slowdowns = [Estimate::of(&[1.0]); 2];
                    found.push(ProgramPair { programs: [one, other], overlap_s, servers, slowdowns });
                }
            }
        }
        found.sort_by(|a, b| b.overlap_s.total_cmp(&a.overlap_s));
        let left = found.len().saturating_sub(MOST_PAIRS);
        found.truncate(MOST_PAIRS);
        let runs = self.each(found.iter().map(|pair| (pair.programs.to_vec(), None)).collect(), seeds)?;
        for (pair, runs) in found.iter_mut().zip(&runs) {
            let slowdown = |place: usize| {
                let of = |(seed, run): (usize, &ProgramsRun)| {
                    ratio(run.took_s[place], alone[pair.programs[place]][seed].took_s[0])
                };
                Estimate::of(&runs.iter().enumerate().map(of).collect::<Vec<f64>>())
            };
            pair.slowdowns = [slowdown(0), slowdown(1)];
        }
        let worst = |pair: &ProgramPair| pair.slowdowns[0].mean.max(pair.slowdowns[1].mean);
        found.sort_by(|a, b| worst(b).total_cmp(&worst(a)));
        Ok((found, left))
    }
}

/// The layout that a file has now.
fn present(
    servers: &Servers,
    store: Option<&Arc<Store>>,
    number: usize,
    file: &FileRequests,
) -> Result<Layout, WhatifError> {
    Ok(match store {
        Some(store) => Layout::clone(&*store.present_layout(Path::new(&file.path))?),
        None => servers.cluster.default_layout(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_for_equals_and_a_share_for_one_of_many() {
        assert!((fairness(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((fairness(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert_eq!(fairness(&[]).to_bits(), 1.0_f64.to_bits());
    }
}
