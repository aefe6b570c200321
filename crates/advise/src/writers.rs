//! [`Writers`]: which ranks move the bytes of collective writes and reads. On Lustre the stripes of a file decide that, so a
//! layout with more of them is not only on more servers: more ranks write, and read.
//!
//! ROMIO gives each stripe of a file to one of its writers, in turn, so that none waits for another one's locks
//! (`ADIOI_LUSTRE_Calc_aggregator` in MPICH's `ad_lustre_aggregate.c`); how many there are is [`romio_writers`]. As many read
//! (`cb_nodes`, which is set from the stripes when a file on Lustre is opened), each a part of what a call reads that is in one
//! piece (`ADIOI_Calc_file_domains`).

use crate::gather::AdvisedFile;
use crate::interval::Cause;
use crate::job_ranks::JobRanks;
use crate::stripes::romio_writers;
use std::collections::BTreeMap;
use stripewise_layout::Layout;
use stripewise_model::{Op, Request};

/// Most requests that those of the log are divided into.
const MOST_PIECES: u64 = 64_000;

/// Numbers of ranks that write under other layouts alone: no thread of a log has them.
const FIRST_NEW: u32 = 1 << 31;

/// Collective writes, or reads, of one file.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Collective {
    /// Stripes that the log has it on.
    stripes: usize,
    /// Ranks that move its bytes then.
    now: usize,
    /// Most that may, however many stripes there are.
    allowed: usize,
    /// Hints let others do so than the log has.
    is_hinted: bool,
}

impl Collective {
    /// Ranks that move the bytes under a layout, where those are not as many as the log has.
    fn other(&self, layout: &Layout) -> Option<usize> {
        let stripes = stripes(layout);
        let movers = romio_writers(stripes, self.allowed);
        ((self.is_hinted || stripes != self.stripes) && movers != self.now).then_some(movers)
    }
}

/// Reads and writes of one file, as far as they are collective.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Ways {
    reads: Option<Collective>,
    writes: Option<Collective>,
}

/// How many ranks move bytes in place of those of the log.
#[derive(Debug, Clone, Copy)]
struct Others {
    readers: Option<usize>,
    writers: Option<usize>,
}

/// Of every file whether, and by whom, it is written and read collectively.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writers(Vec<Ways>);

impl Writers {
    /// Of files on Lustre, by how the log has them written and read. O(files).
    pub(crate) fn of(files: &[AdvisedFile], present: &[Layout], ranks: &JobRanks) -> Self {
        let of_file = |(file, layout): (&AdvisedFile, &Layout)| {
            let (used, stripes) = (&file.used, stripes(layout));
            let (are_reads, are_writes) = used.is_collective();
            let of = |now: usize, allowed: usize| Collective { stripes, now, allowed, is_hinted: false };
            let (readers, writers) = used.movers;
            let is_read = are_reads && readers > 0;
            Ways {
                reads: is_read.then(|| ranks.allowed_readers(used, stripes)).flatten().map(|most| of(readers, most)),
                writes: (are_writes && writers > 0).then(|| of(writers, ranks.allowed(used, stripes))),
            }
        };
        Self(files.iter().zip(present).map(of_file).collect())
    }

    /// The same where hints let as many ranks move the bytes of these files as there are stripes.
    pub(crate) fn hinted(&self, files: &[usize], processes: usize) -> Self {
        let mut hinted = self.clone();
        for &file in files {
            let ways = hinted.0.get_mut(file).map(|of| [&mut of.reads, &mut of.writes]);
            for of in ways.into_iter().flatten().flatten() {
                (of.allowed, of.is_hinted) = (processes.max(of.allowed), true);
            }
        }
        hinted
    }

    /// Ranks that move the bytes of a file under a layout, where those are not as many as the log has.
    fn other(&self, file: usize, layout: &Layout) -> Option<Others> {
        let of = self.0.get(file)?;
        let other = |of: &Option<Collective>| of.and_then(|of| of.other(layout));
        let others = Others { readers: other(&of.reads), writers: other(&of.writes) };
        (others.readers.is_some() || others.writers.is_some()).then_some(others)
    }

    /// Whether more ranks, or fewer, move the bytes of a file under these layouts than the log has; then a gain is less sure. O(files).
    pub(crate) fn cause(&self, layouts: &[Layout]) -> Option<Cause> {
        let mut others = layouts.iter().enumerate().filter_map(|(file, layout)| self.other(file, layout));
        others.next().map(|_| Cause::other_writers())
    }

    /// The requests of all files as they would be under these layouts; `None` where they are the log's own.
    /// O(requests + pieces).
    pub(crate) fn under(&self, layouts: &[Layout], requests: &[Vec<Request>]) -> Option<Vec<Vec<Request>>> {
        let files = layouts.iter().enumerate();
        let others: BTreeMap<usize, Others> =
            files.filter_map(|(file, layout)| self.other(file, layout).map(|others| (file, others))).collect();
        if others.is_empty() {
            return None;
        }
        let pieces = |&file: &usize| {
            let widths = requests[file].iter().map(|r| r.size.div_ceil(width_at(&layouts[file], r.offset)));
            widths.fold(0, u64::saturating_add)
        };
        // Neighbouring stripes are one piece where there would be too many.
        let together = others.keys().map(pieces).fold(0, u64::saturating_add).div_ceil(MOST_PIECES).max(1);
        let mut all = requests.to_vec();
        for (&file, others) in &others {
            if let Some(writers) = others.writers {
                all[file] = dealt(&all[file], &layouts[file], writers, together);
            }
            if let Some(readers) = others.readers {
                all[file] = parted(&all[file], &layouts[file], readers, together);
            }
        }
        Some(all)
    }
}

/// Stripes of the widest region.
fn stripes(layout: &Layout) -> usize {
    layout.regions().iter().map(|region| region.stripes().len()).max().unwrap_or(1)
}

fn width_at(layout: &Layout, offset: u64) -> u64 {
    layout.regions()[layout.region_at(offset)].stripes()[0].width_bytes.max(1)
}

/// The processes that move bytes by requests of one operation, in order, and further ones.
struct Processes(Vec<u32>);

impl Processes {
    fn of(requests: &[Request], op: Op) -> Self {
        let mut known: Vec<u32> = requests.iter().filter(|r| r.op == op).map(|r| r.process).collect();
        known.sort_unstable();
        known.dedup();
        Self(known)
    }

    fn number(&self, process: u32) -> usize {
        self.0.partition_point(|of| *of < process)
    }

    fn named(&self, number: usize) -> u32 {
        self.0.get(number).copied().unwrap_or(FIRST_NEW + number as u32)
    }
}

/// The writes among `requests` by `writers` ranks, stripe by stripe in turn; `together` stripes are one.
fn dealt(requests: &[Request], layout: &Layout, writers: usize, together: u64) -> Vec<Request> {
    let known = Processes::of(requests, Op::Write);
    let mut dealt: Vec<Request> = Vec::with_capacity(requests.len());
    for r in requests {
        if r.op == Op::Read || r.size == 0 {
            dealt.push(*r);
            continue;
        }
        let unit = width_at(layout, r.offset).saturating_mul(together);
        let (end, mut from) = (r.offset.saturating_add(r.size), r.offset);
        while from < end {
            let stripe = from / unit;
            let to = if writers == 1 { end } else { stripe.saturating_add(1).saturating_mul(unit).min(end) };
            let process = known.named((stripe % writers as u64) as usize);
            dealt.push(Request { offset: from, size: to - from, process, ..*r });
            from = to;
        }
    }
    dealt
}

/// The reads among `requests` by `readers` ranks: where those are more than the log has, what one rank read of a call is read
/// by several, each a run of whole stripes; `together` stripes are one.
fn parted(requests: &[Request], layout: &Layout, readers: usize, together: u64) -> Vec<Request> {
    let known = Processes::of(requests, Op::Read);
    let parts = readers.div_ceil(known.0.len().max(1)).max(1);
    let mut parted: Vec<Request> = Vec::with_capacity(requests.len());
    for r in requests {
        if r.op == Op::Write || r.size == 0 {
            parted.push(*r);
            continue;
        }
        let unit = width_at(layout, r.offset).saturating_mul(together);
        let end = r.offset.saturating_add(r.size);
        let (first, last) = (r.offset / unit, (end - 1) / unit);
        let stripes_each = (last - first + 1).div_ceil(parts as u64);
        let (mut from, reader) = (r.offset, known.number(r.process) * parts);
        while from < end {
            let part = (from / unit - first) / stripes_each;
            let next = first.saturating_add((part + 1).saturating_mul(stripes_each)).saturating_mul(unit);
            let to = if parts == 1 { end } else { next.min(end) };
            let process = known.named((reader + part as usize) % readers);
            parted.push(Request { offset: from, size: to - from, process, ..*r });
            from = to;
        }
    }
    parted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{RankUse, Use};
    use stripewise_layout::ServerId;

    fn on(servers: u16, width_bytes: u64) -> Layout {
        Layout::striped((0..servers).map(ServerId), width_bytes).expect("a layout")
    }

    /// A file that `movers` of 64 ranks write for all, and then its requests of 4 MiB.
    fn collective(movers: u32) -> (AdvisedFile, Vec<Request>) {
        let mut used = Use::default();
        used.sharers = 64;
        used.asked.writes.collective = 640;
        used.ranks = (0..64)
            .map(|rank| {
                let bytes = if rank < movers { 64 << 20 } else { 0 };
                (rank, RankUse { bytes, written_bytes: bytes, busy_s: 1.0 })
            })
            .collect();
        used.find_movers(&std::collections::HashMap::new());
        let request = |n: u64| Request {
            offset: n << 22,
            size: 4 << 20,
            op: Op::Write,
            process: (n % u64::from(movers)) as u32,
            start_s: n as f64,
            end_s: n as f64 + 1.0,
        };
        (AdvisedFile { id: 0, path: "a".into(), named: true, used, counted: false }, (0..16).map(request).collect())
    }

    fn by_process(requests: &[Request]) -> BTreeMap<u32, u64> {
        let mut bytes = BTreeMap::new();
        requests.iter().for_each(|r| *bytes.entry(r.process).or_default() += r.size);
        bytes
    }

    #[test]
    fn more_stripes_bring_more_writers_and_every_byte_is_written_once() {
        let (file, requests) = collective(1);
        let ranks = JobRanks { processes: 64, nodes: Some(32) };
        let writers = Writers::of(&[file], &[on(1, 1 << 20)], &ranks);
        assert_eq!(writers.under(&[on(1, 1 << 20)], std::slice::from_ref(&requests)), None);
        assert_eq!(writers.cause(&[on(1, 4 << 20)]), None);
        let wide = [on(8, 1 << 20)];
        assert!(writers.cause(&wide).is_some());
        let dealt = writers.under(&wide, std::slice::from_ref(&requests)).expect("eight writers");
        let shares = by_process(&dealt[0]);
        assert_eq!(shares.into_values().collect::<Vec<_>>(), [8 << 20; 8]);
        let mut ends: Vec<(u64, u64)> = dealt[0].iter().map(|r| (r.offset, r.offset + r.size)).collect();
        ends.sort_unstable();
        assert!(ends.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ends:?}");
        assert_eq!((ends[0].0, ends[ends.len() - 1].1), (0, 64 << 20));
    }

    #[test]
    fn nodes_ranks_and_hints_bound_the_writers() {
        let (file, requests) = collective(1);
        let count = |writers: &Writers, stripes: u16| {
            let dealt = writers.under(&[on(stripes, 1 << 20)], std::slice::from_ref(&requests));
            dealt.map_or(1, |requests| by_process(&requests[0]).len())
        };
        let on_two = JobRanks { processes: 64, nodes: Some(2) };
        let writers = Writers::of(std::slice::from_ref(&file), &[on(1, 1 << 20)], &on_two);
        assert_eq!(count(&writers, 8), 2);
        assert_eq!(count(&writers.hinted(&[0], 64), 8), 8);
        let unknown = JobRanks { processes: 64, nodes: None };
        let writers = Writers::of(&[file], &[on(1, 1 << 20)], &unknown);
        assert_eq!(count(&writers, 8), 8);
        // One of the eight that stripes let write: something else keeps the others from it.
        let (few, _) = collective(1);
        assert_eq!(count(&Writers::of(&[few], &[on(8, 1 << 20)], &unknown), 16), 1);
        // More than there are nodes: this library has no such bound.
        assert_eq!(JobRanks { processes: 64, nodes: Some(2) }.allowed(&collective(8).0.used, 8), 64);
    }

    /// A file that `readers` of 64 ranks read for all, and then its requests of 4 MiB.
    fn read_by(readers: u32) -> (AdvisedFile, Vec<Request>) {
        let (mut file, mut requests) = collective(readers);
        requests.iter_mut().for_each(|r| r.op = Op::Read);
        file.used.asked.reads.collective = std::mem::take(&mut file.used.asked.writes.collective);
        file.used.ranks.values_mut().for_each(|of| of.written_bytes = 0);
        file.used.find_movers(&std::collections::HashMap::new());
        (file, requests)
    }

    #[test]
    fn more_stripes_bring_more_readers_each_with_a_part_of_a_call_in_one_piece() {
        let ranks = JobRanks { processes: 64, nodes: Some(32) };
        for (readers, stripes, of_each) in [(1, 8, 512 << 10), (2, 8, 1 << 20), (4, 2, 4 << 20)] {
            let (file, requests) = read_by(readers);
            let writers = Writers::of(&[file], &[on(readers as u16, 512 << 10)], &ranks);
            let layout = [on(stripes, 512 << 10)];
            assert!(writers.cause(&layout).is_some());
            let read = writers.under(&layout, std::slice::from_ref(&requests)).expect("other readers");
            assert_eq!(
                by_process(&read[0]).into_values().collect::<Vec<_>>(),
                vec![(64 << 20) / u64::from(stripes); usize::from(stripes)]
            );
            assert!(read[0].iter().all(|r| r.size == of_each && r.op == Op::Read), "{readers}: {:?}", read[0][0]);
            let bytes: u64 = read[0].iter().map(|r| r.size).sum();
            assert_eq!(bytes, 64 << 20);
        }
    }

    #[test]
    fn readers_that_do_not_go_by_the_stripes_stay_as_many() {
        let ranks = JobRanks { processes: 64, nodes: Some(16) };
        // One a node, of a file on two stripes.
        let (file, requests) = read_by(16);
        let writers = Writers::of(&[file], &[on(2, 1 << 20)], &ranks);
        assert_eq!(writers.under(&[on(8, 1 << 20)], &[requests]), None);
        // Fewer than the stripes let.
        let (file, requests) = read_by(2);
        let writers = Writers::of(&[file], &[on(8, 1 << 20)], &ranks);
        assert_eq!(writers.under(&[on(16, 1 << 20)], std::slice::from_ref(&requests)), None);
        let hinted = writers.hinted(&[0], 64).under(&[on(16, 1 << 20)], &[requests]).expect("hints let them");
        assert_eq!(by_process(&hinted[0]).len(), 8, "four stripes of each call have four readers");
    }

    #[test]
    fn independent_reads_and_writes_stay_with_their_ranks() {
        let (mut file, mut requests) = collective(2);
        let ranks = JobRanks { processes: 64, nodes: None };
        requests[3].op = Op::Read;
        let writers = Writers::of(std::slice::from_ref(&file), &[on(2, 1 << 20)], &ranks);
        let dealt = writers.under(&[on(4, 1 << 20)], std::slice::from_ref(&requests)).expect("four writers");
        assert!(dealt[0].contains(&requests[3]));
        file.used.asked.writes.collective = 0;
        let writers = Writers::of(&[file], &[on(2, 1 << 20)], &ranks);
        assert_eq!(writers.under(&[on(4, 1 << 20)], &[requests]), None);
    }

    #[test]
    fn pieces_are_bounded() {
        let (file, mut requests) = collective(1);
        requests.iter_mut().for_each(|r| r.size = 1 << 40);
        let writers = Writers::of(&[file], &[on(1, 1 << 20)], &JobRanks { processes: 64, nodes: None });
        let dealt = writers.under(&[on(8, 64 << 10)], &[requests]).expect("eight writers");
        assert!(dealt[0].len() as u64 <= MOST_PIECES + 64, "{}", dealt[0].len());
    }
}
