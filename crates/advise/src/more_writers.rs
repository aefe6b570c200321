//! [`MoreWriters`]: what files that few ranks write collectively would gain by as many stripes, and writers, as their size is
//! worth, with the hints that let those write.

use crate::findings::{Finding, Severity};
use crate::gaps::Gaps;
use crate::interval::{Cause, Gain};
use crate::kinds::FileKind;
use crate::phased::PhasedCluster;
use crate::rehearsal::{KindRehearsal, SeedRates, gains};
use crate::served::Served;
use crate::stripes::stripe_bytes;
use crate::writers::Writers;
use stripewise_layout::{Layout, ServerId};
use stripewise_simulate::SimulateError;

/// Less is no reason to change anything.
const LEAST_GAIN: f64 = 1.03;

/// The job as it is.
pub(crate) struct MoreWriters<'a> {
    pub targets: &'a PhasedCluster,
    pub served: &'a Served,
    pub writers: &'a Writers,
    /// Of every file.
    pub kind_of: &'a [u32],
    pub cuts_s: &'a [f64],
    pub gaps: &'a Gaps,
    /// Layout of every file.
    pub present: &'a [Layout],
    /// Of the job.
    pub processes: usize,
}

impl MoreWriters<'_> {
    /// What the files of kind `number`, which the finding is on, gain; `before` is the present. `None` where the finding has
    /// no stripes to tell. As long as seven simulations.
    pub(crate) fn gain(
        &self,
        number: usize,
        kind: &FileKind,
        finding: &Finding,
        before: &[SeedRates],
        causes: &[Cause],
    ) -> Result<Option<Gain>, SimulateError> {
        let wanted = finding.numbers.iter().find(|(name, _)| *name == "wanted").map_or(0, |(_, value)| *value as usize);
        let targets = self.targets.with_servers(wanted);
        let servers = targets.phase(0).tiers.first().map_or(&[][..], |tier| tier.servers.as_slice());
        if wanted == 0 || servers.len() < wanted {
            return Ok(None);
        }
        let mut layouts = self.present.to_vec();
        for (place, &file) in kind.files.iter().enumerate() {
            let width_bytes = stripe_bytes(self.present[file].regions()[0].stripes()[0].width_bytes);
            let of = (0..wanted).map(|nth| servers[(place * wanted + nth) % servers.len()]);
            match Layout::striped(of.collect::<Vec<ServerId>>(), width_bytes) {
                Ok(layout) => layouts[file] = layout,
                Err(_) => return Ok(None),
            }
        }
        let writers = self.writers.hinted(&kind.files, self.processes);
        let rehearsal = KindRehearsal::new(&targets, self.served, &writers, self.kind_of, self.cuts_s, self.gaps);
        let after = rehearsal.runs(&layouts)?;
        let causes = [causes, &[Cause::other_writers()]].concat();
        Ok(Some(Gain::of(&gains(before, &after, Some(number)), &causes)))
    }
}

/// Tells a finding what its remedy gains.
pub(crate) fn told(finding: &mut Finding, gain: &Gain) {
    let Gain { ratio, low, high } = *gain;
    finding.words += &if ratio >= LEAST_GAIN {
        format!(
            "; with a writer on each of more targets (below) predicted {ratio:.1} times as fast ({low:.1} to {high:.1})"
        )
    } else {
        finding.severity = Severity::Low;
        "; more writers are predicted to gain nothing".to_owned()
    };
    finding.numbers.extend([("gain", ratio), ("gain_low", low), ("gain_high", high)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Hints;
    use crate::gather::AdvisedFile;
    use crate::job_ranks::JobRanks;
    use crate::kinds::kinds;
    use crate::usage::{RankUse, Use};
    use stripewise_model::{Cluster, Op, Request, presets};

    /// What a file on one target gains that one of 64 ranks on two nodes writes for all, where `wanted` may.
    fn gain_of(wanted: f64, gap_s: f64) -> Option<Gain> {
        let ssd = presets::device("ssd-sata").expect("a preset");
        let cluster: Cluster = presets::cluster(&[("ost", 1, ssd)]);
        let request = |n: u64| Request {
            offset: n << 22,
            size: 4 << 20,
            op: Op::Write,
            process: 0,
            start_s: n as f64,
            end_s: n as f64 + 0.01,
        };
        let requests: Vec<Request> = (0..100).map(request).collect();
        let served = Served { by_servers: vec![requests], by_memory: vec![Vec::new()] };
        let mut used = Use::default();
        (used.sharers, used.end) = (64, 400 << 20);
        used.asked.writes.collective = 6400;
        used.ranks = [(0, RankUse { bytes: 400 << 20, written_bytes: 400 << 20, busy_s: 1.0 })].into();
        used.find_movers(&std::collections::HashMap::new());
        let files = [AdvisedFile { id: 0, path: "a".into(), named: true, used, counted: false }];
        let present = [Layout::striped([ServerId(0)], 1 << 20).expect("a layout")];
        let ranks = JobRanks { processes: 64, nodes: Some(2) };
        let (targets, writers) = (PhasedCluster::always(cluster), Writers::of(&files, &present, &ranks));
        let gaps = Gaps { least_s: gap_s, most_s: gap_s, request_s: 0.01 };
        let before = KindRehearsal::new(&targets, &served, &writers, &[0], &[], &gaps).runs(&present).expect("it runs");
        let more = MoreWriters {
            targets: &targets,
            served: &served,
            writers: &writers,
            kind_of: &[0],
            cuts_s: &[],
            gaps: &gaps,
            present: &present,
            processes: 64,
        };
        let finding = finding(wanted);
        more.gain(0, &kinds(&files, &present)[0], &finding, &before, &[]).expect("it runs")
    }

    fn finding(wanted: f64) -> Finding {
        Finding {
            kind: "few-writers",
            severity: Severity::High,
            words: "1 of them".into(),
            numbers: vec![("wanted", wanted)],
            mend: Vec::new(),
            hints: Hints::default(),
        }
    }

    #[test]
    fn a_writer_on_each_of_eight_targets_is_near_eight_times_as_fast() {
        let gain = gain_of(8.0, 0.0).expect("a gain");
        assert!((6.0..8.5).contains(&gain.ratio), "{gain:?}");
        assert!(gain.low < gain.ratio && gain.ratio < gain.high);
        let mut with = finding(8.0);
        told(&mut with, &gain);
        assert!(with.words.contains("predicted 7.") || with.words.contains("predicted 8."), "{}", with.words);
        assert_eq!((with.severity, with.numbers[1].0), (Severity::High, "gain"));
        assert_eq!(gain_of(0.0, 0.0), None);
    }

    #[test]
    fn what_gains_nothing_is_no_fault() {
        let mut with = finding(8.0);
        told(&mut with, &Gain::NONE);
        assert_eq!((with.severity, with.words.contains("gain nothing")), (Severity::Low, true));
    }
}
