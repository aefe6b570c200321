//! [`is_even`]: whether nothing tells one part of a file from another, so that it is planned with one region.
//!
//! Random requests hit some places more often than others by chance, and regions that follow chance lose on the next run. The
//! hypothesis is that requests of each kind (operation, phase, power of two of the size) begin at any place where they may
//! with the same chance, and that their sizes, and the processes that make them, are the same everywhere. Pearson's chi-square
//! tests it over halves, quarters and so on of the file. It is given up where a statistic lies further out than four standard
//! deviations of a normal distribution (by the cube root of Wilson and Hilferty, 1931): chance does that in 3 of 100,000 tests,
//! and a file has some 20.

use crate::job::demand::{FileDemand, RequestGroup};
use std::collections::BTreeMap;
use stripewise_model::{Op, Request};

/// Fewer requests tell nothing, and are planned as they are.
const LEAST: f64 = 64.0;

/// Fewer requests of a kind cannot be tested.
const LEAST_OF_KIND: f64 = 32.0;

/// Kinds that cannot be tested have this share of the requests, and of the bytes, at most.
const UNTESTED: f64 = 0.05;

/// Most parts of a file that are held against each other.
const MOST_PARTS: u64 = 64;

/// Requests that a part, or a group of processes in a part, should have at least.
const EXPECTED: f64 = 8.0;

/// Most groups that processes are put into.
const MOST_GROUPS: usize = 16;

/// Standard deviations of a normal distribution.
const BEYOND: f64 = 4.0;

/// Whether the requests of a file are the same everywhere between its first byte that is asked for and its last. `requests` are
/// those of its trace, or an even sample; `is_sample` says that the entries are one. O(entries + requests).
pub(crate) fn is_even(file: &FileDemand, requests: &[Request], is_sample: bool) -> bool {
    let (Some(from), Some(to)) =
        (file.entries.first().map(|e| e.offset), file.entries.iter().map(|e| e.offset + e.size).max())
    else {
        return false;
    };
    let mut kinds: BTreeMap<(bool, u16, u32), Vec<RequestGroup>> = BTreeMap::new();
    for e in &file.entries {
        kinds.entry((e.op == Op::Read, e.phase, e.size.ilog2())).or_default().push(*e);
    }
    let (mut all, mut untested) = ((0.0, 0.0), (0.0, 0.0));
    for kind in kinds.into_values() {
        let bytes: f64 = kind.iter().map(|e| e.count * e.size as f64).sum();
        let requests: f64 = kind.iter().map(|e| e.count).sum();
        (all.0, all.1) = (all.0 + requests, all.1 + bytes);
        let kind = if is_sample { effective(kind) } else { kind };
        if kind.iter().map(|e| e.count).sum::<f64>() < LEAST_OF_KIND {
            (untested.0, untested.1) = (untested.0 + requests, untested.1 + bytes);
        } else if !Places::of(&kind, from, to).are_even(&kind) {
            return false;
        }
    }
    all.0 >= LEAST
        && untested.0 <= UNTESTED * all.0
        && untested.1 <= UNTESTED * all.1
        && are_processes_even(requests, from, to)
}

/// Drawn requests with the counts of as many equal ones as tell as much (Kish, 1965).
fn effective(mut drawn: Vec<RequestGroup>) -> Vec<RequestGroup> {
    let (sum, squares) =
        drawn.iter().fold((0.0, 0.0), |(sum, squares), e| (sum + e.count, squares + e.count * e.count));
    drawn.iter_mut().for_each(|e| e.count *= sum / squares);
    drawn
}

/// Where requests of a kind may begin.
struct Places {
    first: u64,
    /// Bytes from one to the next.
    apart: u64,
    count: u64,
}

impl Places {
    /// Of `kind`, in order of offset, between the bytes `from` and `to`. O(requests of the kind x log).
    fn of(kind: &[RequestGroup], from: u64, to: u64) -> Self {
        let begin = kind[0].offset;
        let least = kind.iter().map(|e| e.size).min().unwrap_or(1);
        let apart = match kind.iter().fold(0, |common, e| greatest_common_divisor(common, e.offset - begin)) {
            // All at one place.
            0 => least,
            apart => apart,
        };
        let first = from + (begin - from) % apart;
        Self { first, apart, count: (to - least).saturating_sub(first) / apart + 1 }
    }

    /// Which of this number of parts of the places an offset is in.
    fn part(&self, offset: u64, parts: u64) -> usize {
        scaled((offset - self.first) / self.apart, parts, self.count)
    }

    /// Places in a part.
    fn in_part(&self, part: u64, parts: u64) -> u64 {
        let end = |part: u64| (u128::from(part) * u128::from(self.count)).div_ceil(u128::from(parts)) as u64;
        end(part + 1) - end(part)
    }

    /// Whether as many requests begin in each part as it has places, and whether they are as large. O(requests x log).
    fn are_even(&self, kind: &[RequestGroup]) -> bool {
        let all: f64 = kind.iter().map(|e| e.count).sum();
        let mean = kind.iter().map(|e| e.count * e.size as f64).sum::<f64>() / all;
        let variance = kind.iter().map(|e| e.count * (e.size as f64 - mean).powi(2)).sum::<f64>() / all;
        levels(all).take_while(|parts| *parts <= self.count).all(|parts| {
            let mut found = vec![(0.0, 0.0); parts as usize];
            for e in kind {
                let of = &mut found[self.part(e.offset, parts)];
                *of = (of.0 + e.count, of.1 + e.count * e.size as f64);
            }
            let (mut places, mut sizes) = (0.0, 0.0);
            for (part, (requests, bytes)) in (0..parts).zip(found) {
                let expected = all * self.in_part(part, parts) as f64 / self.count as f64;
                places += (requests - expected).powi(2) / expected;
                if requests > 0.0 && variance > 1e-12 * mean * mean {
                    sizes += requests * (bytes / requests - mean).powi(2) / variance;
                }
            }
            let freedom = (parts - 1) as f64;
            !is_beyond(places, freedom) && !is_beyond(sizes, freedom)
        })
    }
}

/// Whether every process asks for every part as often as the others do. O(requests x log).
fn are_processes_even(requests: &[Request], from: u64, to: u64) -> bool {
    let known = |r: &&Request| r.size > 0 && (from..to).contains(&r.offset);
    let mut processes: Vec<u32> = requests.iter().filter(known).map(|r| r.process).collect();
    let all = processes.len();
    processes.sort_unstable();
    processes.dedup();
    let groups = processes.len().min(MOST_GROUPS).min(all / (2.0 * EXPECTED) as usize);
    if groups < 2 {
        return true;
    }
    let group = |process: u32| processes.partition_point(|of| *of < process) * groups / processes.len();
    levels(all as f64 / groups as f64).all(|parts| {
        let mut found = vec![vec![0.0; parts as usize]; groups];
        for r in requests.iter().filter(known) {
            found[group(r.process)][scaled(r.offset - from, parts, to - from)] += 1.0;
        }
        let of_groups: Vec<f64> = found.iter().map(|of| of.iter().sum()).collect();
        let mut statistic = 0.0;
        for part in 0..parts as usize {
            let of_part: f64 = found.iter().map(|of| of[part]).sum();
            for (of, of_group) in found.iter().zip(&of_groups) {
                let expected = of_part * of_group / all as f64;
                statistic += if expected > 0.0 { (of[part] - expected).powi(2) / expected } else { 0.0 };
            }
        }
        !is_beyond(statistic, (parts - 1) as f64 * (groups - 1) as f64)
    })
}

/// Numbers of parts for this number of requests.
fn levels(requests: f64) -> impl Iterator<Item = u64> {
    let enough = move |parts: &u64| *parts <= MOST_PARTS && requests >= EXPECTED * *parts as f64;
    std::iter::successors(Some(2), |parts| Some(parts * 2)).take_while(enough)
}

fn scaled(of: u64, parts: u64, whole: u64) -> usize {
    (u128::from(of) * u128::from(parts) / u128::from(whole)) as usize
}

/// Whether a chi-square statistic is further out than [`BEYOND`].
fn is_beyond(statistic: f64, freedom: f64) -> bool {
    let spread = 2.0 / (9.0 * freedom);
    ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt() > BEYOND
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::demand::Demand;
    use crate::job::input::{FileTrace, PlanOptions};
    use crate::random::Random;

    fn is_even_for(requests: &[Request], options: &PlanOptions) -> bool {
        let files = [FileTrace { name: "f".into(), requests, size_bytes: None }];
        let demand = Demand::new(&files, options).expect("a demand");
        is_even(&demand.files[0], requests, demand.sample.is_some())
    }

    fn even(requests: &[Request]) -> bool {
        is_even_for(requests, &PlanOptions::default())
    }

    /// `count` requests of four processes, each as `of` has it by its number.
    fn requests(count: u64, mut of: impl FnMut(u64) -> (u64, u64)) -> Vec<Request> {
        let request = |n: u64| {
            let ((offset, size), process, start_s) = (of(n), (n % 4) as u32, (n / 4) as f64);
            Request { offset, size, op: Op::Read, process, start_s, end_s: start_s + 0.5 }
        };
        (0..count).map(request).collect()
    }

    #[test]
    fn uniform_requests_are_even_whatever_the_draw() {
        let mut given_up = 0;
        for seed in 0..600_u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let places = [3, 100, 2048, 32_768][seed as usize % 4];
            let size = [4 << 10, 64 << 10, 1 << 20][seed as usize % 3];
            let count = [100, 400, 1500, 3000][seed as usize / 4 % 4];
            let uniform = requests(count, |_| match seed % 5 {
                // At any byte, and of any size up to twice that, in a file that is long beside them.
                0 => (random.below(places * size * 64), size + random.below(size)),
                _ => (random.below(places) * size, size),
            });
            given_up += u32::from(!even(&uniform));
        }
        assert!(given_up <= 6, "{given_up} of 600");
    }

    #[test]
    fn a_pass_through_the_file_has_phases_that_go_by_the_place() {
        let pass = requests(2000, |n| (n << 20, 1 << 20));
        assert!(!even(&pass));
        // Where phases are not told apart nothing tells the parts apart.
        assert!(is_even_for(&pass, &PlanOptions { max_phases: 1, ..PlanOptions::default() }));
    }

    #[test]
    fn heat_sizes_operations_and_processes_that_go_by_the_place_are_seen() {
        let mut random = Random(7);
        let mut block = |below: u64| random.below(below);
        let hot = requests(2000, |n| (block(if n % 5 == 0 { 256 } else { 2048 }) << 18, 1 << 18));
        assert!(!even(&hot), "a fifth more on an eighth");
        let half = 1024 << 18;
        let sized = requests(2000, |_| match block(2048) << 18 {
            offset if offset < half => (offset, 150 << 10),
            offset => (offset, 250 << 10),
        });
        assert!(!even(&sized));
        let mut written = requests(2000, |_| (block(2048) << 18, 1 << 18));
        written.iter_mut().filter(|r| r.offset < half).for_each(|r| r.op = Op::Write);
        assert!(!even(&written));
        let parts = requests(2000, |n| ((n % 4 * 512 + block(512)) << 18, 1 << 18));
        assert!(!even(&parts), "each process has a quarter of its own");
        let corner = requests(2000, |n| match n {
            // A few that move half of the bytes.
            0..20 => ((2048 + n * 100) << 18, 25 << 20),
            _ => (block(4096) << 18, 1 << 18),
        });
        assert!(!even(&corner), "too few to be tested, and too many bytes to be left out");
    }

    #[test]
    fn few_requests_and_those_of_one_place_are_not() {
        assert!(!even(&[]));
        assert!(!even(&requests(20, |n| (n << 20, 1 << 20))));
        let header = requests(400, |n| if n < 200 { (0, 4096) } else { (n << 20, 1 << 20) });
        assert!(!even(&header));
    }

    #[test]
    fn a_sample_is_as_even_as_all_of_it() {
        let options = PlanOptions { max_entries: 1000, ..PlanOptions::default() };
        for (hot, expected) in [(false, true), (true, false)] {
            let mut random = Random(3);
            let asked =
                requests(40_000, |n| (random.below(if hot && n % 2 == 0 { 8192 } else { 65_536 }) << 16, 1 << 16));
            assert_eq!(is_even_for(&asked, &options), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_requests_break_it(asked in proptest::collection::vec((0_u64..1 << 50, 0_u64..1 << 30, 0_u32..5), 0..300)) {
            let request = |&(offset, size, process): &(u64, u64, u32)| {
                Request { offset, size, op: Op::Write, process, start_s: f64::NAN, end_s: 0.0 }
            };
            even(&asked.iter().map(request).collect::<Vec<_>>());
        }
    }
}
