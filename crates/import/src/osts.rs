//! [`target_rates`]: which of several storage targets are slow, by what took how long on them; and [`ost_rates`], by
//! what the times of files say of the object storage targets that hold them.

use crate::counters::{FileCounters, LustreLayout};
use std::collections::BTreeMap;
use stripewise_trace::Api;

/// A target is slow that serves its files at less than this part of what most targets do. Of the targets of one healthy
/// run the slowest had 0.65 of the median rate; a bad disk has a tenth or less.
const SLOW_PART: f64 = 0.5;
/// Fewer targets have no usual rate.
const LEAST_TARGETS: usize = 4;
/// Where more than one target in this many is slow, they are of another kind rather than slow ones of the same kind.
const ONE_IN: usize = 3;
/// Fewer files may have been slow for reasons of their own.
const LEAST_FILES: u64 = 2;

/// One object storage target.
#[derive(Debug, Clone, PartialEq)]
pub struct OstRate {
    /// Its number.
    pub ost: u64,
    /// Files that have a stripe on it and moved bytes.
    pub files: u64,
    /// Those of them that have stripes on no other.
    pub alone: u64,
    /// Bytes that were read from it and written to it, where those of a file are spread evenly over its targets.
    pub bytes: u64,
    /// Time that processes spent in these reads and writes.
    pub seconds: f64,
    /// Median over its files of bytes per second of a process; over those that are on it alone, where there are such.
    pub bytes_per_s: f64,
    /// Whether it is less than half as fast as the median target, by two files or more.
    pub slow: bool,
}

/// Every target that a log's files are on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OstRates {
    /// In order of number.
    pub osts: Vec<OstRate>,
    /// Median over the targets of [`OstRate::bytes_per_s`]; 0 without targets.
    pub median_bytes_per_s: f64,
}

impl OstRates {
    /// The slow ones, the slowest first.
    pub fn slow(&self) -> Vec<&OstRate> {
        let mut slow: Vec<&OstRate> = self.osts.iter().filter(|ost| ost.slow).collect();
        slow.sort_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s));
        slow
    }
}

#[derive(Default)]
struct Evidence {
    files: u64,
    bytes: f64,
    seconds: f64,
    /// Rates of files on this target alone, and of all.
    alone: Vec<f64>,
    all: Vec<f64>,
}

/// How fast each target served the files that are on it, by the times and bytes that Darshan counted for each file.
///
/// A file over several targets is as slow as the slowest and says little of one; where all files are spread over all
/// targets none stands out. O(counters + stripes), and a logarithm for the medians.
pub fn ost_rates(counters: &[FileCounters], layouts: &[LustreLayout]) -> OstRates {
    let mut moved: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for record in counters.iter().filter(|record| record.api == Api::Posix) {
        let bytes =
            ["POSIX_BYTES_READ", "POSIX_BYTES_WRITTEN"].map(|name| record.integer(name).unwrap_or(0).max(0) as f64);
        let seconds = ["POSIX_F_READ_TIME", "POSIX_F_WRITE_TIME"].map(|name| record.float(name).unwrap_or(0.0));
        if seconds.iter().all(|time| time.is_finite() && *time >= 0.0) {
            let of = moved.entry(record.file).or_default();
            *of = (of.0 + bytes[0] + bytes[1], of.1 + seconds[0] + seconds[1]);
        }
    }
    target_rates(layouts.iter().filter_map(|layout| {
        let &(bytes, seconds) = moved.get(&layout.file)?;
        let osts = layout.components.iter().flat_map(|component| component.osts.iter().copied());
        Some((osts.collect(), bytes, seconds))
    }))
}

/// How fast targets are, by samples (files, or requests): the targets that a sample is on, its bytes, and the seconds
/// that they took. Samples of no bytes or of no time say nothing. O(targets of all samples), and a logarithm for the
/// medians.
pub fn target_rates(samples: impl Iterator<Item = (Vec<u64>, f64, f64)>) -> OstRates {
    let mut found: BTreeMap<u64, Evidence> = BTreeMap::new();
    for (mut osts, bytes, seconds) in samples.filter(|(_, bytes, seconds)| *bytes > 0.0 && *seconds > 0.0) {
        osts.sort_unstable();
        osts.dedup();
        let count = osts.len() as f64;
        for ost in &osts {
            let evidence = found.entry(*ost).or_default();
            evidence.files += 1;
            evidence.bytes += bytes / count;
            evidence.seconds += seconds / count;
            evidence.all.push(bytes / seconds);
            if osts.len() == 1 {
                evidence.alone.push(bytes / seconds);
            }
        }
    }
    let mut osts: Vec<OstRate> = found
        .into_iter()
        .map(|(ost, mut evidence)| OstRate {
            ost,
            files: evidence.files,
            alone: evidence.alone.len() as u64,
            bytes: evidence.bytes.round() as u64,
            seconds: evidence.seconds,
            bytes_per_s: median(if evidence.alone.is_empty() { &mut evidence.all } else { &mut evidence.alone }),
            slow: false,
        })
        .collect();
    let usual = median(&mut osts.iter().map(|ost| ost.bytes_per_s).collect::<Vec<_>>());
    if osts.len() >= LEAST_TARGETS {
        for ost in &mut osts {
            let files = if ost.alone > 0 { ost.alone } else { ost.files };
            ost.slow = files >= LEAST_FILES && ost.bytes_per_s < usual * SLOW_PART;
        }
        if ONE_IN * osts.iter().filter(|ost| ost.slow).count() > osts.len() {
            osts.iter_mut().for_each(|ost| ost.slow = false);
        }
    }
    OstRates { osts, median_bytes_per_s: usual }
}

fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::LustreComponent;

    fn file(file: u32, osts: &[u64], bytes: i64, seconds: f64) -> (FileCounters, LustreLayout) {
        let counters = FileCounters {
            file,
            api: Api::Posix,
            rank: None,
            integers: vec![("POSIX_BYTES_WRITTEN", bytes)],
            floats: vec![("POSIX_F_WRITE_TIME", seconds)],
            has_rows: false,
        };
        let component = LustreComponent {
            start: 0,
            end: None,
            stripe_bytes: 1 << 20,
            stripe_count: osts.len() as u64,
            pattern: None,
            mirror: None,
            pool: String::new(),
            osts: osts.to_vec(),
        };
        (counters, LustreLayout { file, components: vec![component] })
    }

    #[test]
    fn one_slow_target_is_named_and_one_slow_file_is_not() {
        let mut files: Vec<_> =
            (0..12).map(|i| file(i, &[u64::from(i % 4)], 1000, if i % 4 == 2 { 50.0 } else { 10.0 })).collect();
        files.push(file(12, &[0, 1, 2, 3], 4000, 200.0));
        files.push(file(13, &[7], 1000, 1000.0));
        files.push(file(14, &[8], 0, 0.0));
        let (counters, layouts): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let rates = ost_rates(&counters, &layouts);
        let numbers: Vec<_> =
            rates.osts.iter().map(|ost| (ost.ost, ost.files, ost.alone, ost.bytes, ost.slow)).collect();
        let expected = [
            (0, 4, 3, 4000, false),
            (1, 4, 3, 4000, false),
            (2, 4, 3, 4000, true),
            (3, 4, 3, 4000, false),
            (7, 1, 1, 1000, false),
        ];
        assert_eq!(numbers, expected);
        assert_eq!(
            (rates.median_bytes_per_s, rates.slow()[0].bytes_per_s, rates.slow()[0].seconds),
            (100.0, 20.0, 200.0)
        );
        assert_eq!(ost_rates(&counters, &[]), OstRates::default());
    }

    #[test]
    fn targets_of_another_kind_are_not_slow_ones() {
        let slow = |slow: u64| {
            let samples = (0..40).map(|n| (vec![n % 10], 1e6, if n % 10 < slow { 1.0 } else { 0.1 }));
            target_rates(samples).slow().len()
        };
        assert_eq!([0, 1, 3, 4].map(slow), [0, 1, 3, 0]);
    }
}
