//! What there is held against what was planned, by the simulator and kind by kind: a kind of file keeps its layout where
//! the interval of its gain does not support another one, and the rest is simulated again.

use crate::advice::{Advice, AdviceRow, DirectoryAdvice, FittedProfile, KindPlacement, Reproduced, TierSpace};
use crate::bottleneck::{Bottleneck, about, bottleneck};
use crate::cluster_file::{ClusterFile, FileSystem};
use crate::defaults::{Directories, directory_of};
use crate::error::AdviseError;
use crate::findings::{self, Finding, FindingContext, Severity};
use crate::fit::{Fit, FittedKind};
use crate::gaps::Gaps;
use crate::gather::{Gathered, SmallFiles, count_unaligned, names_hdf5};
use crate::interval::{Cause, Gain, causes, coarse_times, counters_only, fitted};
use crate::job::JobFacts;
use crate::job_ranks::JobRanks;
use crate::kinds::{FileKind, kinds};
use crate::layout_rules::{LayoutRule, RULES, RuleGain};
use crate::more_writers::{MoreWriters, told};
use crate::mounts::{are_anonymous, is_made_by_tools, may_be_on};
use crate::options::{AdviceOptions, LayoutSource, ServersFrom};
use crate::passes::Passes;
use crate::phased::PhasedCluster;
use crate::planning::{Planned, Present, plan};
use crate::present::Targets;
use crate::rehearsal::{KindRehearsal, RunTimes, SeedRates, gains, mean, scale};
use crate::served::Served;
use crate::served_run::thinned;
use crate::settable::{FINER_GAIN, Settable, finer};
use crate::sides::present;
use crate::slow::{Slow, slow_of_log, slow_of_pool};
use crate::writers::Writers;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use stripewise_import::{About, Lacks, MountPoint};
use stripewise_layout::{FileLayout, Layout, LayoutFile, MAX_STRIPES, META_NAME, Pattern};
use stripewise_model::{Cluster, Request};
use stripewise_simulate::SimulateError;

/// A change is advised where at least this is gained.
const LEAST_GAIN: f64 = 1.03;

/// Requests of the sample that bottlenecks are worked out from.
const LOADED: usize = 20_000;

/// Kinds of files that are written by few ranks, and simulated with more of them.
const PRICED: usize = 3;

/// A share of the bytes that servers have little to do beside.
const MOSTLY: f64 = 0.5;

/// How often kinds may be taken out of the plan.
const ROUNDS: usize = 4;

/// The present is reproduced where prediction and log differ by no more.
const REPRODUCED: f64 = 2.0;

/// What is compared.
pub(crate) struct ComparedCase<'a> {
    servers: &'a ClusterFile,
    servers_from: ServersFrom,
    /// With fitted profiles.
    cluster: Cluster,
    /// As [`Fit::targets`], which is what requests are replayed on.
    targets_apart: PhasedCluster,
    labels: Vec<String>,
    /// Present layout of every file, and how it is known.
    present: Vec<Layout>,
    sources: Vec<LayoutSource>,
    /// How many targets the log says there are.
    targets: Option<usize>,
    /// Servers that are slower than others of their kind.
    slow: Option<Slow>,
    kinds: Vec<FileKind>,
    /// A sample of the requests of every file.
    sample: Vec<Vec<Request>>,
    /// The same, by who answered them.
    served: Served,
    /// What of the profiles is fitted, where the log times requests.
    fit: Option<Fit>,
    planned: Vec<Layout>,
    /// They were given, and are taken as they are.
    is_given: bool,
    planner: &'static str,
    processes: f64,
    /// Who may write.
    ranks: JobRanks,
    /// Who writes what is written collectively.
    writers: Writers,
    /// The program's own time.
    gaps: Gaps,
    cuts_s: Vec<f64>,
    /// Bound of the error of pricing a sample.
    sampled: Option<f64>,
}

impl<'a> ComparedCase<'a> {
    pub(crate) fn new(
        servers: &'a ClusterFile,
        servers_from: ServersFrom,
        targets: &Targets,
        about: &About,
        options: &AdviceOptions,
        passes: &dyn Passes,
        gathered: &mut Gathered,
    ) -> Result<Self, AdviseError> {
        let files = gathered.files.iter().map(|file| (file.id, file.path.as_str()));
        let (present, sources): (Vec<Layout>, Vec<LayoutSource>) =
            present(servers, targets, about, options, files).into_iter().unzip();
        let alike = kinds(&gathered.files, &present);
        let is_timed =
            ![Lacks::TIMES, Lacks::DURATIONS, Lacks::LAYOUTS].into_iter().any(|lack| about.lacks.contains(lack));
        let is_known = servers_from != ServersFrom::Unknown;
        if options.given.is_some() && !is_known {
            return Err(AdviseError::NoServers);
        }
        let given = given_layouts(servers, options, gathered, &present)?;
        let is_given = given.is_some();
        let known = Present { layouts: &present, given, is_known, is_timed };
        let Planned { planner, sampled, layouts, sample, served, fit, cuts_s, processes, gaps } =
            plan(gathered, &known, passes, &alike, servers, options)?;
        let (cluster, targets_apart) = (fit.cluster.clone(), fit.targets.clone());
        count_unaligned(gathered, &present, &sample);
        let names = servers.names();
        let slow = if options.present.is_some() {
            let requests_of =
                |file: usize| if gathered.files[file].counted { Vec::new() } else { sample[file].clone() };
            let own: Vec<Vec<Request>> = (0..sample.len()).map(requests_of).collect();
            slow_of_pool(&present, &own, &cluster, &names)
        } else {
            slow_of_log(about, &gathered.files, targets)
        };
        let is_lustre = servers.file_system == Some(FileSystem::Lustre);
        let writers =
            if is_lustre { Writers::of(&gathered.files, &present, &gathered.job_ranks) } else { Writers::default() };
        let count: usize = names.tiers().iter().map(|(_, servers)| servers.len()).sum();
        let label = |server| if is_known { targets.label(&names, server) } else { "the file system".to_owned() };
        let labels = (0..count).map(label).chain(servers.meta.map(|_| META_NAME.to_owned())).collect();
        Ok(Self {
            servers,
            servers_from,
            cluster,
            targets_apart,
            targets: about.targets.and_then(|targets| usize::try_from(targets).ok()),
            served,
            fit: is_timed.then_some(fit),
            slow,
            labels,
            kinds: kinds(&gathered.files, &present),
            present,
            sources,
            sample,
            planner,
            sampled,
            planned: layouts,
            is_given,
            processes,
            ranks: gathered.job_ranks,
            writers,
            gaps,
            cuts_s,
        })
    }

    #[expect(clippy::too_many_lines, reason = "one table from one pass: its rows borrow what is computed before them")]
    pub(crate) fn advice(
        &self,
        gathered: &Gathered,
        job: JobFacts,
        about: &About,
        options: &AdviceOptions,
    ) -> Result<Advice, AdviseError> {
        let mut kind_of = vec![0; gathered.files.len()];
        for (number, kind) in self.kinds.iter().enumerate() {
            kind.files.iter().for_each(|&file| kind_of[file] = number as u32);
        }
        let rehearsal =
            KindRehearsal::new(&self.targets_apart, &self.served, &self.writers, &kind_of, &self.cuts_s, &self.gaps);
        let before = rehearsal.runs(&self.present)?;
        let reproduced = self.reproduced(gathered, &rehearsal.measured, &before);
        let factors = self.factors(&rehearsal.measured, &before);
        let is_found = self.servers_from == ServersFrom::Log;
        let mut of_all = causes(about.lacks, self.preset(), is_found, self.sampled);
        of_all.extend(reproduced.as_ref().map(|of| fitted(of.factor, of.held_out.as_ref())));
        if about.lacks.contains(Lacks::FINE_TIMES) {
            of_all.extend(coarse_times(gathered.all.instant_share()));
        }
        of_all.extend(self.gaps.cause());
        let Wished { layouts: wished, reasons } = self.wished(&rehearsal, gathered)?;
        of_all.extend(self.writers.cause(&wished));
        let with_counters = [of_all.clone(), vec![counters_only()]].concat();
        let is_counted = |kind: &FileKind| kind.files.iter().any(|&file| gathered.files[file].counted);
        let of_kinds: Vec<&[Cause]> =
            self.kinds.iter().map(|kind| if is_counted(kind) { &*with_counters } else { &*of_all }).collect();
        let causes = if self.kinds.iter().any(is_counted) { &with_counters } else { &of_all };
        let is_refused = reproduced.as_ref().is_some_and(|of| of.refused.is_some());
        let tries_rules = options.rules && !is_refused && self.servers_from != ServersFrom::Unknown;
        let rules = if tries_rules { self.rules(&rehearsal, &before, causes)? } else { Vec::new() };
        let named = self.named(gathered, &about.mounts);
        let is_asked = |(named, factor): (&bool, &Option<f64>)| self.is_given || *named && factor.is_none_or(is_near);
        let may_change: Vec<bool> = named.iter().zip(&factors).map(|of| !is_refused && is_asked(of)).collect();
        let Chosen { changed, layouts, after } =
            self.choose(&rehearsal, &before, causes, &of_kinds, &may_change, &wished)?;
        let loaded = thinned(&self.sample, LOADED);
        let label = |server: usize| self.labels.get(server).cloned().unwrap_or_default();
        let all_bytes = gathered.all.both().bytes;
        let present_bytes_per_s = match (&reproduced, job.bytes_per_s()) {
            (Some(of), Some(measured)) => measured / of.factor,
            _ => mean(&before, None),
        };
        let scale = scale(&before, present_bytes_per_s);
        let rows = self.kinds.iter().enumerate().map(|(number, kind)| {
            let place = |layouts: &[Layout], runs: &[SeedRates], slow: Option<&Slow>| {
                let files = kind.files.iter().map(|&file| (&layouts[file], loaded[file].as_slice()));
                let first = &layouts[kind.files[0]];
                KindPlacement {
                    layout: first.clone(),
                    spread: kind.files.iter().any(|&file| layouts[file] != *first),
                    bytes_per_s: scale * mean(runs, Some(number)),
                    bottleneck: bottleneck(&self.cluster, &label, files, slow),
                }
            };
            let first = kind.files[0];
            let both = kind.used.both();
            let around = self.around(kind, crate::usage::share(both.bytes, all_bytes), is_found);
            let gain = if changed[number] {
                Gain::of(&gains(&before, &after, Some(number)), of_kinds[number])
            } else {
                Gain::NONE
            };
            AdviceRow {
                path: kind.path.clone(),
                files: kind.files.len(),
                read_bytes: kind.used.reads.bytes,
                written_bytes: kind.used.writes.bytes,
                requests: both.count,
                ranks: kind.used.sharers,
                counters_only: gathered.files[first].counted,
                present: self.by_memory(kind, place(&self.present, &before, self.slow.as_ref())),
                source: self.sources[first],
                is_named: named[number],
                factor: factors[number],
                recommended: changed[number].then(|| place(&layouts, &after, None)),
                reason: reasons[number].clone().filter(|_| changed[number]),
                gain,
                space: self.space(gathered, &kind.files, &layouts),
                findings: findings::of_files(&kind.used, &around),
            }
        });
        let mut rows: Vec<AdviceRow> = rows.collect();
        let is_little = job.is_little();
        for row in &mut rows {
            row.findings = lowered(std::mem::take(&mut row.findings), is_little);
        }
        if !is_refused && self.servers_from != ServersFrom::Unknown {
            self.price_writers(&mut rows, &kind_of, &before, &of_kinds)?;
        }
        let gain = if changed.contains(&true) { Gain::of(&gains(&before, &after, None), causes) } else { Gain::NONE };
        let every: Vec<usize> = (0..gathered.files.len()).collect();
        Ok(Advice {
            cluster: self.servers.clone(),
            servers_from: self.servers_from,
            targets: about.targets,
            lacking: self.lacking(),
            labels: self.labels.clone(),
            root: gathered.root.clone(),
            directories: directories(&rows),
            present_bytes_per_s,
            recommended_bytes_per_s: present_bytes_per_s * gain.ratio,
            run_gain: job.slowest_share().map(|share| gain.of_share(share)),
            gain,
            reproduced,
            space: self.space(gathered, &every, &layouts),
            causes: causes.clone(),
            planner: self.planner.to_owned(),
            findings: lowered(self.of_run(gathered, &job, &about.mounts), is_little),
            processes: self.processes,
            job,
            bytes: all_bytes,
            left_out: gathered.left_out,
            layout: self.layout_file(gathered, &rows, &changed, &layouts),
            rules,
            rows,
        })
    }

    /// Where most of a kind's bytes came from the memory of the nodes, they wait for no server.
    fn by_memory(&self, kind: &FileKind, placed: KindPlacement) -> KindPlacement {
        let share = self.served.memory_share_of(kind.files.iter().copied());
        if share > MOSTLY {
            let time_share = self.served.memory_time_of(kind.files.iter().copied());
            KindPlacement { bottleneck: Bottleneck::of_memory(share, time_share), ..placed }
        } else {
            placed
        }
    }

    /// Findings on the run.
    fn of_run(&self, gathered: &Gathered, job: &JobFacts, mounts: &[MountPoint]) -> Vec<Finding> {
        let mut found = findings::of_run(&gathered.all, self.ranks.processes, self.slow.as_ref());
        if job.is_meta_beyond_run() {
            findings::doubt_times(&mut found);
        }
        if self.servers.file_system == Some(FileSystem::Lustre) {
            let is_on = |directory: &str| may_be_on(&gathered.root.join(directory), mounts, FileSystem::Lustre);
            let of_lustre = gathered.small.iter().filter(|(directory, _)| is_on(directory));
            let of_lustre: BTreeMap<String, SmallFiles> = of_lustre.map(|(name, of)| (name.clone(), *of)).collect();
            let io_s = job.data_s + job.meta_s;
            let is_anonymous = are_anonymous(gathered.files.iter().map(|file| Path::new(&file.path)));
            let root = (!is_anonymous).then_some(gathered.root.as_path());
            found.extend(findings::small_files(root, &of_lustre, self.ranks.processes, io_s));
        }
        found
    }

    /// Tells findings on few collective writers what more of them would give, those of the largest files first.
    fn price_writers(
        &self,
        rows: &mut [AdviceRow],
        kind_of: &[u32],
        before: &[SeedRates],
        of_kinds: &[&[Cause]],
    ) -> Result<(), SimulateError> {
        let more = MoreWriters {
            targets: &self.targets_apart,
            served: &self.served,
            writers: &self.writers,
            kind_of,
            cuts_s: &self.cuts_s,
            gaps: &self.gaps,
            present: &self.present,
            processes: self.ranks.processes,
        };
        let found =
            rows.iter_mut().zip(&self.kinds).zip(of_kinds).enumerate().filter_map(|(number, ((row, kind), of))| {
                let finding = row.findings.iter_mut().find(|finding| finding.kind == "few-writers")?;
                Some((number, finding, kind, of))
            });
        for (number, finding, kind, causes) in found.take(PRICED) {
            if let Some(gain) = more.gain(number, kind, finding, before, causes)? {
                told(finding, &gain);
            }
        }
        Ok(())
    }

    /// What each rule would give all files.
    fn rules(
        &self,
        rehearsal: &KindRehearsal,
        before: &[SeedRates],
        causes: &[Cause],
    ) -> Result<Vec<RuleGain>, SimulateError> {
        let of_rule = |rule: &LayoutRule| {
            let after = rehearsal.runs(&rule.layouts(self.servers, self.present.len()))?;
            let gain = Gain::of(&gains(before, &after, None), causes);
            Ok(RuleGain { name: rule.name, words: rule.words, bytes_per_s: mean(&after, None), gain })
        };
        RULES.iter().map(of_rule).collect()
    }

    /// What findings on files of a kind rest on.
    fn around(&self, kind: &FileKind, weight: f64, is_found: bool) -> FindingContext {
        let first = kind.files[0];
        let rounds = self.present[first].regions().iter().map(|region| region.stripes());
        let servers: usize = self.cluster.tiers.iter().map(|tier| tier.servers.len()).sum();
        FindingContext {
            processes: self.ranks.processes,
            nodes: self.ranks.nodes,
            weight,
            width_bytes: self.present[first].regions()[0].stripes()[0].width_bytes,
            stripes: rounds.map(<[_]>::len).max().unwrap_or(1),
            on_lustre: self.sources[first] == LayoutSource::Log,
            // A log shows some of a file system's servers.
            targets: if is_found { self.targets } else { Some(servers) },
            is_hdf5: kind.used.asked.hdf5 || names_hdf5(&kind.path),
        }
    }

    /// Whether a layout file, and the commands of the servers' file system, can name the files of each kind, and are for
    /// them. O(files x mounts).
    fn named(&self, gathered: &Gathered, mounts: &[MountPoint]) -> Vec<bool> {
        let anonymous = are_anonymous(gathered.files.iter().map(|file| Path::new(&file.path)));
        let is_reached = |file: usize, file_system| {
            let path = gathered.root.join(&gathered.files[file].path);
            let is_on = self.sources[file] == LayoutSource::Log || may_be_on(&path, mounts, file_system);
            is_on && !anonymous && !is_made_by_tools(&path)
        };
        let is_named = |&file: &usize| {
            gathered.files[file].named && self.servers.file_system.is_none_or(|of| is_reached(file, of))
        };
        self.kinds.iter().map(|kind| kind.files.iter().all(is_named)).collect()
    }

    /// The planned layouts, on Lustre as its administrators set them: of stripes below 1 MiB those alone that are more
    /// than a tenth faster. Layouts that were given stay as they are.
    fn wished(&self, rehearsal: &KindRehearsal, gathered: &Gathered) -> Result<Wished, SimulateError> {
        let mut reasons = vec![None; self.kinds.len()];
        if self.is_given || self.servers.file_system != Some(FileSystem::Lustre) {
            return Ok(Wished { layouts: self.planned.clone(), reasons });
        }
        let settable = Settable { cluster: &self.cluster, ranks: self.ranks };
        let files = gathered.files.iter().zip(self.planned.iter().zip(&self.present)).enumerate();
        let mut layouts: Vec<Layout> = files
            .map(|(number, (file, (planned, present)))| settable.layout(planned, present, &file.used, number))
            .collect();
        let progressive = Directories::of(gathered).progressive(gathered, &self.present, &mut layouts);
        for (kind, reason) in self.kinds.iter().zip(&mut reasons) {
            if let Some(bytes) = kind.files.iter().find_map(|file| progressive.get(file)) {
                *reason = Some(format!(
                    "the first {} are on one stripe, for small files of the directory",
                    about(*bytes as f64)
                ));
            }
        }
        let narrow: Vec<Option<Layout>> =
            self.planned.iter().zip(&layouts).map(|(planned, settable)| finer(planned, settable)).collect();
        if narrow.iter().all(Option::is_none) {
            return Ok(Wished { layouts, reasons });
        }
        let narrowed: Vec<Layout> =
            narrow.iter().zip(&layouts).map(|(narrow, settable)| narrow.as_ref().unwrap_or(settable).clone()).collect();
        let (wide, fine) = (rehearsal.runs(&layouts)?, rehearsal.runs(&narrowed)?);
        for (number, (kind, reason)) in self.kinds.iter().zip(&mut reasons).enumerate() {
            let times = mean(&fine, Some(number)) / mean(&wide, Some(number));
            if times > FINER_GAIN && kind.files.iter().any(|&file| narrow[file].is_some()) {
                kind.files.iter().for_each(|&file| layouts[file] = narrowed[file].clone());
                *reason = Some(format!("stripes below 1MiB are {times:.2} times as fast as those, by the model"));
            }
        }
        Ok(Wished { layouts, reasons })
    }

    /// The preset that some server is taken for, as nothing of the log tells better.
    fn preset(&self) -> Option<&str> {
        let fitted = |tier: usize| self.fit.as_ref().is_some_and(|fit| fit.fitted.iter().any(|of| of.tier == tier));
        let tiers = self.servers.tiers.iter().enumerate();
        tiers.filter(|(tier, _)| !fitted(*tier)).find_map(|(_, tier)| tier.preset.as_deref())
    }

    /// What the simulator makes of the present, beside the log; `None` where the log does not time requests.
    fn reproduced(&self, gathered: &Gathered, measured: &RunTimes, before: &[SeedRates]) -> Option<Reproduced> {
        let fit = self.fit.as_ref().filter(|_| measured.slowest_s > 0.0)?;
        let predicted_s = before.iter().map(|run| run.times.slowest_s).sum::<f64>() / before.len().max(1) as f64;
        let factor = predicted_s / measured.slowest_s;
        let memory_share = self.served.memory_share();
        let refused = (!is_near(factor)).then(|| why_not(factor, memory_share, gathered));
        let profiles = fit.fitted.iter().map(|&FittedKind { tier: number, op, phase }| {
            let tier = &fit.targets.phase(phase).tiers[number];
            let of = tier.profile.of(op);
            let startup_s = 0.5 * (of.startup_min_s + of.startup_max_s);
            let name = match &tier.servers[..] {
                _ if number < self.cluster.tiers.len() => tier.name.clone(),
                [server] => self.labels[server.index()].clone(),
                servers => format!("{} of {}", servers.len(), tier.name),
            };
            FittedProfile {
                tier: name,
                from_s: fit.targets.begin_s(phase),
                op,
                startup_s,
                bytes_per_s: 1.0 / of.transfer_s_per_byte,
            }
        });
        Some(Reproduced { factor, refused, held_out: fit.held_out, memory_share, profiles: profiles.collect() })
    }

    /// Time of each kind's requests, predicted over measured.
    fn factors(&self, measured: &RunTimes, before: &[SeedRates]) -> Vec<Option<f64>> {
        let of_kind = |(kind, measured_s): (usize, &f64)| {
            let predicted_s =
                before.iter().map(|run| run.times.kinds_s[kind]).sum::<f64>() / before.len().max(1) as f64;
            (self.fit.is_some() && *measured_s > 0.0).then_some(predicted_s / measured_s)
        };
        measured.kinds_s.iter().enumerate().map(of_kind).collect()
    }

    /// What to add for advice on layouts.
    fn lacking(&self) -> Option<String> {
        let words = match self.servers_from {
            ServersFrom::Unknown => {
                "the log does not name the servers, so nothing is said of layouts: add --cluster C.toml (docs/advise.md has \
                 one to copy), or on Lustre --osts N with --preset hdd-7200, ssd-sata or nvme"
            }
            ServersFrom::Log | ServersFrom::Number | ServersFrom::Named => return None,
        };
        Some(words.to_owned())
    }

    /// Which kinds should change: of those that may, those whose own gain, in the company of the others that change, is
    /// beyond doubt.
    fn choose(
        &self,
        rehearsal: &KindRehearsal,
        before: &[SeedRates],
        causes: &[Cause],
        of_kinds: &[&[Cause]],
        may_change: &[bool],
        wished: &[Layout],
    ) -> Result<Chosen, SimulateError> {
        let mut changed: Vec<bool> = self
            .kinds
            .iter()
            .zip(may_change)
            .map(|(kind, may)| *may && kind.files.iter().any(|&file| wished[file] != self.present[file]))
            .collect();
        for _ in 0..ROUNDS {
            let mut layouts = self.present.clone();
            for (kind, _) in self.kinds.iter().zip(&changed).filter(|(_, changed)| **changed) {
                kind.files.iter().for_each(|&file| layouts[file] = wished[file].clone());
            }
            if !changed.contains(&true) {
                return Ok(Chosen { changed, layouts, after: before.to_vec() });
            }
            let after = rehearsal.runs(&layouts)?;
            if self.is_given {
                return Ok(Chosen { changed, layouts, after });
            }
            let total = Gain::of(&gains(before, &after, None), causes);
            let mut doubted = false;
            for (number, changed) in changed.iter_mut().enumerate().filter(|(_, changed)| **changed) {
                let own = Gain::of(&gains(before, &after, Some(number)), of_kinds[number]);
                if own.low < LEAST_GAIN {
                    (*changed, doubted) = (false, true);
                }
            }
            if !doubted && total.ratio >= 1.0 {
                return Ok(Chosen { changed, layouts, after });
            }
            if !doubted {
                break;
            }
        }
        let changed = vec![false; self.kinds.len()];
        Ok(Chosen { changed, layouts: self.present.clone(), after: before.to_vec() })
    }

    /// Bytes of `files` on each tier under the present layouts and under `layouts`. O(files x stripes).
    fn space(&self, gathered: &Gathered, files: &[usize], layouts: &[Layout]) -> Vec<TierSpace> {
        let tier_of: Vec<usize> =
            self.cluster.tiers.iter().enumerate().flat_map(|(at, tier)| vec![at; tier.servers.len()]).collect();
        let held = |layouts: &[Layout]| {
            let mut tiers = vec![0_u64; self.cluster.tiers.len()];
            for &file in files {
                let (layout, end) = (&layouts[file], gathered.files[file].used.end);
                for (index, region) in layout.regions().iter().enumerate() {
                    let (from, to) = (region.offset().min(end), layout.region_end(index).min(end));
                    for (slot, stripe) in region.stripes().iter().enumerate() {
                        let bytes = region.bytes_before(slot, to) - region.bytes_before(slot, from);
                        if let Some(&tier) = tier_of.get(stripe.server.index()) {
                            tiers[tier] = tiers[tier].saturating_add(bytes);
                        }
                    }
                }
            }
            tiers
        };
        let (present, recommended) = (held(&self.present), held(layouts));
        let tiers = self.cluster.tiers.iter().zip(present.into_iter().zip(recommended));
        tiers
            .map(|(tier, (present_bytes, recommended_bytes))| TierSpace {
                tier: tier.name.clone(),
                present_bytes,
                recommended_bytes,
                capacity_bytes: tier.capacity_bytes.map(|limit| limit.saturating_mul(tier.servers.len() as u64)),
            })
            .collect()
    }

    /// The layouts of the kinds that change: by their pattern where all have one layout and no other file fits the
    /// pattern, else file by file.
    fn layout_file(&self, gathered: &Gathered, rows: &[AdviceRow], changed: &[bool], layouts: &[Layout]) -> LayoutFile {
        let mut written = LayoutFile { pool: self.servers.name.clone(), files: Vec::new() };
        let mut stripes = 0;
        let defaults = if self.servers.file_system.is_some() && !self.is_given {
            Directories::of(gathered).defaults(gathered, &self.present, layouts)
        } else {
            BTreeMap::new()
        };
        let mut done: BTreeSet<&str> = BTreeSet::new();
        for ((kind, row), _) in self.kinds.iter().zip(rows).zip(changed).filter(|(_, changed)| **changed) {
            let Gain { ratio, low, high } = row.gain;
            let note = format!("predicted {ratio:.2} times as fast ({low:.2} to {high:.2})");
            let first = &layouts[kind.files[0]];
            let alike = kind.files.iter().all(|&file| layouts[file] == *first);
            let mut add = |path: Pattern, layout: &Layout| {
                stripes += layout.regions().iter().map(|region| region.stripes().len()).sum::<usize>();
                if stripes <= MAX_STRIPES {
                    let (layout, note) = (layout.clone(), Some(note.clone()));
                    let entry = FileLayout { path, layout, note, region_notes: Vec::new() };
                    written.files.push(entry);
                }
            };
            // What a directory gives is for files to come, too: once, and before single files.
            let default =
                kind.files.first().map(|&file| directory_of(&gathered.files[file].path)).filter(|directory| {
                    kind.files.iter().all(|&file| directory_of(&gathered.files[file].path) == *directory)
                });
            if let Some((directory, pattern)) = default.and_then(|of| Some((of, defaults.get(of)?.clone()))) {
                if done.insert(directory) {
                    add(pattern, first);
                }
                continue;
            }
            let pattern = Pattern::new(&kind.path).ok().filter(|pattern| {
                let fit = gathered.files.iter().filter(|file| pattern.matches(file.path.as_bytes())).count();
                alike && kind.files.len() > 1 && fit == kind.files.len()
            });
            if let Some(pattern) = pattern {
                add(pattern, first);
                continue;
            }
            for &file in &kind.files {
                if let Ok(path) = Pattern::exact(&gathered.files[file].path) {
                    add(path, &layouts[file]);
                }
            }
        }
        // Those of directories first.
        written.files.sort_by_key(|file| !file.path.place().1);
        written
    }
}

/// What kinds should have, before it is known what that gives.
struct Wished {
    /// Of every file.
    layouts: Vec<Layout>,
    /// Of every kind: why its stripes are not those that are set otherwise.
    reasons: Vec<Option<String>>,
}

/// Layouts of all files where some are given; files that those do not name keep their own.
fn given_layouts(
    servers: &ClusterFile,
    options: &AdviceOptions,
    gathered: &Gathered,
    present: &[Layout],
) -> Result<Option<Vec<Layout>>, AdviseError> {
    let Some(read) = options.given else { return Ok(None) };
    let given = read(servers).map_err(AdviseError::Given)?;
    let layouts = gathered.files.iter().zip(present).map(|(file, present)| {
        let entry = given.files.iter().find(|entry| entry.path.matches(file.path.as_bytes()));
        entry.map_or_else(|| present.clone(), |entry| entry.layout.clone())
    });
    Ok(Some(layouts.collect()))
}

fn is_near(factor: f64) -> bool {
    (1.0 / REPRODUCED..=REPRODUCED).contains(&factor)
}

/// Why a fitted model does not give what the log measured.
fn why_not(factor: f64, memory_share: f64, gathered: &Gathered) -> String {
    let (slow, slow_s) = gathered.all.slower_than(16.0);
    let mean_s = gathered.whole.busy_s / gathered.threads.len().max(1) as f64;
    let told = if memory_share > 0.5 {
        format!("{:.0} % of the bytes moved at the speed of the nodes' memory (page cache)", 100.0 * memory_share)
    } else if slow_s > 0.3 * gathered.all.busy_s {
        format!("{slow} requests took over 16 times the median: other jobs, locks or a server in trouble")
    } else if gathered.slowest_s > REPRODUCED * mean_s {
        format!(
            "the slowest process waited {:.1} times as long as the mean one: locks, other jobs, or work that is not the \
             same for all",
            gathered.slowest_s / mean_s
        )
    } else {
        "the requests' times follow neither their sizes nor their servers: other jobs, caches or locks".to_owned()
    };
    format!("after fitting, the model gives {factor:.2} times the measured time: {told}")
}

/// What should change, with what it gives.
struct Chosen {
    changed: Vec<bool>,
    layouts: Vec<Layout>,
    after: Vec<SeedRates>,
}

/// Findings, none of them grave where all of I/O is next to nothing.
fn lowered(mut found: Vec<Finding>, is_little: bool) -> Vec<Finding> {
    if is_little {
        found.iter_mut().for_each(|finding| finding.severity = Severity::Low);
    }
    found
}

/// Rows by directory.
fn directories(rows: &[AdviceRow]) -> Vec<DirectoryAdvice> {
    let mut found: BTreeMap<&str, DirectoryAdvice> = BTreeMap::new();
    let bytes = |row: &AdviceRow| row.read_bytes.saturating_add(row.written_bytes);
    for (index, row) in rows.iter().enumerate() {
        let path = row.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let empty = || DirectoryAdvice { path: path.to_owned(), files: 0, bytes: 0, row: None };
        let directory = found.entry(path).or_insert_with(empty);
        directory.files += row.files;
        directory.bytes = directory.bytes.saturating_add(bytes(row));
        // Rows come in order of their bytes: the first that changes is the largest.
        if directory.row.is_none() && row.recommended.is_some() {
            directory.row = Some(index);
        }
    }
    let mut found: Vec<DirectoryAdvice> = found.into_values().collect();
    found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
    found
}
