//! Hints for the directories of a run's files, where the model finds that they gain for files like these: reading ahead of programs
//! that read small pieces in order, gathering what one program writes so, small files in their inodes, and data sets that the kernel
//! keeps.

use crate::fronts::{OrderedReads, ReadTogetherOf, ordered_reads};
use std::collections::BTreeMap;
use stripewise_advise::FileRequests;
use stripewise_layout::{Layout, MAX_OFFSET};
use stripewise_model::{Cluster, CostModel, Op, Request, UnknownServer};
use stripewise_optimisation::{CACHED, OptimisationSetting, OptimisationType, READAHEAD, SMALL, WRITEBEHIND};

/// A hint is proposed where it makes this of the time.
const LEAST_GAIN: f64 = 1.2;
/// The smallest window that comes within this of the best is proposed: it costs memory.
const NEARLY: f64 = 1.05;
/// What is fetched ahead in one process, gathered, or kept by the kernel of one directory, at most, in bytes.
const MOST_AHEAD_BYTES: u64 = 1 << 30;
/// Windows that a mount keeps for readers which have drifted apart (`crates/store/src/file/paths/readahead.rs`).
const WINDOWS_KEPT: u64 = 4;
/// Steps of a program that go on as the one before, at least.
const IN_ORDER: f64 = 0.9;
/// Fewer requests show no order.
const LEAST_REQUESTS: usize = 8;
/// A small file has no more bytes.
const SMALL_BYTES: u64 = 1 << 20;
/// Fewer small files need no hint.
const LEAST_FILES: usize = 8;
/// Requests of a file that are priced, each for as many as there are more.
const PRICED: usize = 10_000;

/// A hint that gains.
#[derive(Debug, Clone, PartialEq)]
pub struct HintProposal {
    /// The directory below the one that is planned; empty for that itself.
    pub directory: String,
    /// Of which names, as in `*.h5`; `None`: all.
    pub pattern: Option<String>,
    /// What it sets.
    pub setting: OptimisationSetting,
    /// Files of the run that are like those it is for.
    pub files: usize,
    /// Seconds that their requests take without it, by the model: those of a process one after the other, and no less than the
    /// busiest server needs.
    pub now_s: f64,
    /// The same with it.
    pub then_s: f64,
}

/// A file of the run with the layouts that are priced.
struct Used<'a> {
    name: &'a str,
    requests: &'a [Request],
    /// Without a plan.
    present: &'a Layout,
    /// By the plan.
    planned: &'a Layout,
}

/// The hints for files like `files`, which have the layouts `present` and get `planned`; small files may have `inode_room_bytes` in their
/// inodes. O(requests), with few windows to try.
///
/// # Errors
/// A layout names a server that `cluster` does not have.
pub(crate) fn propose<'a>(
    files: &'a [FileRequests],
    present: impl Iterator<Item = &'a Layout>,
    planned: impl Iterator<Item = &'a Layout>,
    (cluster, inode_room_bytes): (&Cluster, u64),
) -> Result<Vec<HintProposal>, UnknownServer> {
    let model = CostModel::new(cluster);
    let mut directories: BTreeMap<&str, Vec<Used<'a>>> = BTreeMap::new();
    for ((file, present), planned) in files.iter().zip(present).zip(planned) {
        let (directory, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let used = Used { name, requests: &file.requests, present, planned };
        directories.entry(directory).or_default().push(used);
    }
    let mut found = Vec::new();
    for (directory, files) in &directories {
        let in_inodes = small(directory, files, &model, inode_room_bytes)?;
        // Of what is in an inode the kernel keeps nothing.
        let kept = if in_inodes.is_none() { kept(directory, files, &model)? } else { None };
        found.extend(in_inodes.into_iter().chain(kept));
        let ahead = in_larger_pieces(&AHEAD, directory, files, &model)?;
        found.extend(if ahead.is_some() { ahead } else { ahead_together(directory, files, &model)? });
        found.extend(in_larger_pieces(&BEHIND, directory, files, &model)?);
    }
    Ok(found)
}

/// What requests cost on the servers.
struct Times<'a> {
    model: &'a CostModel,
    /// By process.
    in_turn_s: BTreeMap<u32, f64>,
    /// By server.
    busy_s: Vec<f64>,
}

impl<'a> Times<'a> {
    fn new(model: &'a CostModel) -> Self {
        Self { model, in_turn_s: BTreeMap::new(), busy_s: vec![0.0; model.servers()] }
    }

    /// Adds `times` requests like that one.
    fn add(&mut self, layout: &Layout, request: &Request, times: f64) -> Result<(), UnknownServer> {
        let Request { op, offset, size, process, .. } = *request;
        let busy_s = &mut self.busy_s;
        let add = |slot: usize, busy: stripewise_model::Busy| busy_s[slot] += (busy.device_s + busy.network_s) * times;
        let latency_s = self.model.layout_latency_s(layout, op, offset, size, add)?;
        *self.in_turn_s.entry(process).or_default() += latency_s * times;
        Ok(())
    }

    fn add_all(&mut self, layout: &Layout, requests: &[&Request]) -> Result<(), UnknownServer> {
        let step = requests.len().div_ceil(PRICED).max(1);
        let times = requests.len() as f64 / requests.len().div_ceil(step).max(1) as f64;
        requests.iter().step_by(step).try_for_each(|request| self.add(layout, request, times))
    }

    /// Seconds until the last process is done.
    fn total_s(&self) -> f64 {
        self.in_turn_s.values().chain(&self.busy_s).copied().fold(0.0, f64::max)
    }
}

/// For which names of a directory that is which has `all` these names and of them `wanted`: `None` if no pattern tells them apart.
fn names_of(all: &[Used<'_>], wanted: &[&Used<'_>]) -> Option<Option<String>> {
    if wanted.len() == all.len() {
        return Some(None);
    }
    let ending = |used: &Used<'_>| used.name.rsplit_once('.').map(|(_, ending)| ending.to_owned());
    let first = ending(wanted.first()?)?;
    let is_plain = !first.is_empty() && !first.contains(['*', '?', '[', '{', '\\']);
    let have = all.iter().filter(|used| ending(used).as_deref() == Some(&first)).count();
    let all_have = wanted.iter().all(|used| ending(used).as_deref() == Some(&first));
    (is_plain && all_have && have == wanted.len()).then(|| Some(format!("*.{first}")))
}

/// The setting with `value` for its first parameter.
fn setting(of: &'static OptimisationType, value: u64) -> Option<OptimisationSetting> {
    OptimisationSetting::new(of, &[value]).ok()
}

/// A hint for the small files of a directory: if the metadata tier has room for them, `room_bytes`.
fn small(
    directory: &str,
    files: &[Used<'_>],
    model: &CostModel,
    room_bytes: u64,
) -> Result<Option<HintProposal>, UnknownServer> {
    let extent_bytes =
        |used: &Used<'_>| used.requests.iter().map(|each| each.offset.saturating_add(each.size)).max().unwrap_or(0);
    let is_small = |used: &&Used<'_>| (1..=SMALL_BYTES).contains(&extent_bytes(used));
    let wanted: Vec<&Used<'_>> = files.iter().filter(is_small).collect();
    let needed_bytes = wanted.iter().map(|used| extent_bytes(used)).fold(0, u64::saturating_add);
    let Some(most_bytes) = wanted.iter().map(|used| extent_bytes(used)).max() else { return Ok(None) };
    let head_bytes = most_bytes.next_power_of_two().max(SMALL.parameters[0].least);
    let (Some(pattern), Some(setting)) = (names_of(files, &wanted), setting(&SMALL, head_bytes)) else {
        return Ok(None);
    };
    if wanted.len() < LEAST_FILES || needed_bytes > room_bytes {
        return Ok(None);
    }
    let (mut now, mut then) = (Times::new(model), Times::new(model));
    for used in &wanted {
        let Ok(head) = used.present.with_head_in_inode(head_bytes) else { return Ok(None) };
        let requests: Vec<&Request> = used.requests.iter().collect();
        now.add_all(used.present, &requests)?;
        then.add_all(&head, &requests)?;
    }
    Ok(gain(directory, pattern, setting, wanted.len(), now.total_s(), then.total_s()))
}

/// Parts of a file that have been read: where each begins, and its end.
#[derive(Default)]
struct Known(BTreeMap<u64, u64>);

impl Known {
    /// Whether all of a request was read before; from now on it was. O(log parts) beside the parts that it joins.
    fn has(&mut self, request: &Request) -> bool {
        let (mut from, mut end) = (request.offset, request.offset.saturating_add(request.size));
        if self.0.range(..=from).next_back().is_some_and(|(_, &of)| of >= end) {
            return true;
        }
        while let Some((&begin, &of)) = self.0.range(..=end).next_back().filter(|(_, of)| **of >= from) {
            self.0.remove(&begin);
            (from, end) = (from.min(begin), end.max(of));
        }
        self.0.insert(from, end);
        false
    }
}

/// A hint for the files of a directory that are read several times and never written: all that is read again comes from memory, of
/// which they need no more than [`MOST_AHEAD_BYTES`]. A request of which a part is new counts whole.
fn kept(directory: &str, files: &[Used<'_>], model: &CostModel) -> Result<Option<HintProposal>, UnknownServer> {
    let (mut now, mut then) = (Times::new(model), Times::new(model));
    let (mut wanted, mut kept_bytes, mut largest_bytes) = (Vec::new(), 0_u64, 0);
    for used in files {
        let mut reads: Vec<&Request> = used.requests.iter().filter(|each| each.size > 0).collect();
        if reads.iter().any(|each| each.op == Op::Write) || used.planned.head_in_inode_bytes() > 0 {
            continue;
        }
        reads.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
        let mut known = Known::default();
        let first: Vec<&Request> = reads.iter().copied().filter(|each| !known.has(each)).collect();
        if first.len() == reads.len() {
            continue;
        }
        now.add_all(used.planned, &reads)?;
        then.add_all(used.planned, &first)?;
        kept_bytes = known.0.iter().map(|(begin, end)| end - begin).fold(kept_bytes, u64::saturating_add);
        largest_bytes = reads.iter().map(|each| each.offset.saturating_add(each.size)).fold(largest_bytes, u64::max);
        wanted.push(used);
    }
    let most_bytes = largest_bytes.checked_next_power_of_two().unwrap_or(u64::MAX).max(CACHED.parameters[0].least);
    let (Some(pattern), Some(setting)) = (names_of(files, &wanted), setting(&CACHED, most_bytes)) else {
        return Ok(None);
    };
    if kept_bytes > MOST_AHEAD_BYTES {
        return Ok(None);
    }
    Ok(gain(directory, pattern, setting, wanted.len(), now.total_s(), then.total_s()))
}

/// A hint that has servers get larger pieces than programs ask for.
struct Pieces {
    hint: &'static OptimisationType,
    /// For requests of this kind.
    op: Op,
    /// A file that several processes use is not for it.
    needs_one_process: bool,
    /// Pieces that a stream has in memory at once.
    at_once: u64,
    /// A piece ends after that time, in seconds.
    longest_s: f64,
}

impl Pieces {
    /// Sizes to be tried for that many streams, of which the longest has `longest_bytes`, and a request no more than `largest_bytes`.
    fn sizes(&self, largest_bytes: u64, longest_bytes: u64, streams: usize) -> impl Iterator<Item = u64> + use<> {
        let (size, at_once) = (&self.hint.parameters[0], self.at_once);
        let fits = move |bytes: &u64| {
            let needed = bytes.saturating_mul(at_once).saturating_mul(streams as u64);
            *bytes > largest_bytes && *bytes <= longest_bytes && needed <= MOST_AHEAD_BYTES
        };
        (size.least.trailing_zeros()..=size.most.trailing_zeros()).map(|power| 1_u64 << power).filter(fits)
    }

    /// Of sizes and the seconds that they take the smallest that is nearly the best.
    fn smallest(&self, tried: &[(u64, f64)]) -> Option<(OptimisationSetting, f64)> {
        let best_s = tried.iter().map(|tried| tried.1).fold(f64::INFINITY, f64::min);
        let &(piece_bytes, then_s) = tried.iter().find(|tried| tried.1 <= best_s * NEARLY)?;
        Some((setting(self.hint, piece_bytes)?, then_s))
    }
}

static AHEAD: Pieces = Pieces {
    hint: &READAHEAD,
    op: Op::Read,
    needs_one_process: false,
    at_once: READAHEAD.parameters[1].default + 1,
    longest_s: f64::INFINITY,
};

/// Of several processes each would have what another has gathered written before.
static BEHIND: Pieces = Pieces {
    hint: &WRITEBEHIND,
    op: Op::Write,
    needs_one_process: true,
    at_once: 2,
    longest_s: WRITEBEHIND.parameters[1].default as f64 / 1e3,
};

/// The requests of one process on one file, one behind the other.
struct Stream<'a> {
    layout: &'a Layout,
    process: u32,
    from: u64,
    bytes: u64,
    /// Seconds that the process does other things in between.
    pauses_s: f64,
}

impl<'a> Stream<'a> {
    /// That of `requests`, in order of time, of which there is one at least.
    fn of(layout: &'a Layout, process: u32, requests: &[&Request]) -> Self {
        let from = requests[0].offset;
        let bytes = requests.iter().map(|each| each.size).fold(0, u64::saturating_add);
        let pauses_s = requests.windows(2).map(|two| (two[1].start_s - two[0].end_s).max(0.0)).sum();
        Self { layout, process, from, bytes: bytes.min(MAX_OFFSET - from), pauses_s }
    }

    /// Adds what it takes in pieces of `piece_bytes`, or as long as `longest_s` allows.
    fn add(&self, to: &mut Times<'_>, op: Op, piece_bytes: u64, longest_s: f64) -> Result<(), UnknownServer> {
        let in_time = self.bytes as f64 * longest_s / self.pauses_s.max(f64::MIN_POSITIVE);
        let piece_bytes = piece_bytes.min(in_time as u64).max(1);
        let piece = |number: u64| {
            let (offset, size) = (self.from + number * piece_bytes, piece_bytes.min(self.bytes - number * piece_bytes));
            Request { offset, size, op, process: self.process, start_s: 0.0, end_s: 0.0 }
        };
        let count = self.bytes.div_ceil(piece_bytes);
        let step = count.div_ceil(PRICED as u64).max(1);
        let times = count as f64 / count.div_ceil(step).max(1) as f64;
        (0..count).step_by(step as usize).try_for_each(|number| to.add(self.layout, &piece(number), times))
    }
}

/// The requests of each process that are of the kind, in order of time, if most go on where the one before ended and no process
/// does the other kind meanwhile.
fn in_order<'a>(kind: &Pieces, requests: &'a [Request]) -> Option<BTreeMap<u32, Vec<&'a Request>>> {
    let mut found: BTreeMap<u32, Vec<&Request>> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.op == kind.op && request.size > 0) {
        found.entry(request.process).or_default().push(request);
    }
    found.values_mut().for_each(|of| of.sort_by(|a, b| a.start_s.total_cmp(&b.start_s)));
    let all = || found.values().flatten();
    let begin_s = all().map(|each| each.start_s).fold(f64::INFINITY, f64::min);
    let end_s = all().map(|each| each.end_s).fold(f64::NEG_INFINITY, f64::max);
    let is_mixed = requests.iter().any(|each| each.op != kind.op && each.end_s >= begin_s && each.start_s <= end_s);
    let goes_on = |of: &[&Request]| of.windows(2).filter(|two| two[0].offset + two[0].size == two[1].offset).count();
    let steps: usize = found.values().map(|of| of.len() - 1).sum();
    let on: usize = found.values().map(|of| goes_on(of)).sum();
    let enough = steps >= LEAST_REQUESTS && on as f64 >= IN_ORDER * steps as f64;
    (enough && !is_mixed && (found.len() == 1 || !kind.needs_one_process)).then_some(found)
}

/// What is read of the file, as a mount serves it that reads ahead of all processes together: streams, and all other reads. `None`: it
/// follows nothing, or a process writes it meanwhile.
fn read_together<'a>(reads: &[&'a Request], all: &[Request]) -> Option<OrderedReads<'a>> {
    let begin_s = reads.first()?.start_s;
    let end_s = reads.iter().map(|each| each.end_s).fold(0.0, f64::max);
    if all.iter().any(|each| each.op == Op::Write && each.end_s >= begin_s && each.start_s <= end_s) {
        return None;
    }
    let found = ordered_reads(reads.iter().copied());
    (found.followed >= LEAST_REQUESTS).then_some(found)
}

/// `readahead` for the files of a directory of which several processes read parts in order, whatever else they read.
fn ahead_together(
    directory: &str,
    files: &[Used<'_>],
    model: &CostModel,
) -> Result<Option<HintProposal>, UnknownServer> {
    let (mut wanted, mut now, mut rest) = (Vec::new(), Times::new(model), Vec::new());
    let (mut streams, mut longest_bytes, mut largest_bytes, mut apart_bytes) = (Vec::new(), 0, 0, 0);
    for used in files {
        let mut reads: Vec<&Request> = used.requests.iter().filter(|of| of.op == Op::Read && of.size > 0).collect();
        reads.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
        let Some(found) = read_together(&reads, used.requests) else { continue };
        wanted.push(used);
        largest_bytes = reads.iter().map(|each| each.size).max().unwrap_or(0).max(largest_bytes);
        now.add_all(used.planned, &reads)?;
        apart_bytes = found.apart_bytes.max(apart_bytes);
        rest.push((used.planned, found.others));
        for ReadTogetherOf { from, bytes, process } in found.streams {
            longest_bytes = bytes.max(longest_bytes);
            streams.push(Stream { layout: used.planned, process, from, bytes, pauses_s: 0.0 });
        }
    }
    let Some(pattern) = names_of(files, &wanted) else { return Ok(None) };
    let mut tried: Vec<(u64, f64)> = Vec::new();
    // What readers that drift apart are apart has to fit into the windows that are kept for them.
    let reach = |window_bytes: &u64| window_bytes.saturating_mul(WINDOWS_KEPT) >= apart_bytes;
    for window_bytes in AHEAD.sizes(largest_bytes, longest_bytes, streams.len()).filter(reach) {
        let mut then = Times::new(model);
        rest.iter().try_for_each(|(layout, others)| then.add_all(layout, others))?;
        streams.iter().try_for_each(|stream| stream.add(&mut then, Op::Read, window_bytes, AHEAD.longest_s))?;
        tried.push((window_bytes, then.total_s()));
    }
    let found = AHEAD.smallest(&tried);
    Ok(found.and_then(|(setting, then_s)| gain(directory, pattern, setting, wanted.len(), now.total_s(), then_s)))
}

/// A hint of that kind for files of a directory that are used in order, in pieces that leave servers idle.
fn in_larger_pieces(
    kind: &Pieces,
    directory: &str,
    files: &[Used<'_>],
    model: &CostModel,
) -> Result<Option<HintProposal>, UnknownServer> {
    let mut wanted = Vec::new();
    let (mut now, mut streams, mut longest_bytes, mut largest_bytes) = (Times::new(model), Vec::new(), 0, 0);
    for used in files {
        let Some(in_order) = in_order(kind, used.requests) else { continue };
        wanted.push(used);
        for (process, requests) in in_order {
            now.add_all(used.planned, &requests)?;
            let stream = Stream::of(used.planned, process, &requests);
            longest_bytes = stream.bytes.max(longest_bytes);
            largest_bytes = requests.iter().map(|each| each.size).max().unwrap_or(0).max(largest_bytes);
            streams.push(stream);
        }
    }
    let (Some(pattern), now_s) = (names_of(files, &wanted), now.total_s()) else { return Ok(None) };
    let mut tried: Vec<(u64, f64)> = Vec::new();
    for piece_bytes in kind.sizes(largest_bytes, longest_bytes, streams.len()) {
        let mut then = Times::new(model);
        for stream in &streams {
            stream.add(&mut then, kind.op, piece_bytes, kind.longest_s)?;
        }
        tried.push((piece_bytes, then.total_s()));
    }
    let found = kind.smallest(&tried);
    Ok(found.and_then(|(setting, then_s)| gain(directory, pattern, setting, wanted.len(), now_s, then_s)))
}

fn gain(
    directory: &str,
    pattern: Option<String>,
    setting: OptimisationSetting,
    files: usize,
    now_s: f64,
    then_s: f64,
) -> Option<HintProposal> {
    let found = HintProposal { directory: directory.to_owned(), pattern, setting, files, now_s, then_s };
    (now_s >= LEAST_GAIN * then_s && then_s > 0.0).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ServerId;
    use stripewise_model::{OpProfile, Profile, Tier};

    fn cluster() -> Cluster {
        let slow = OpProfile { startup_min_s: 4e-3, startup_max_s: 12e-3, transfer_s_per_byte: 1.0 / 80e6, head: None };
        let quick = OpProfile { startup_min_s: 1e-5, startup_max_s: 2e-5, transfer_s_per_byte: 1.0 / 1e9, head: None };
        let profile = |of| Profile { read: of, write: of, network_s_per_byte: 0.0 };
        let servers = (0..4).map(ServerId).collect();
        let hdd = Tier {
            name: "hdd".into(),
            servers,
            profile: profile(slow),
            capacity_bytes: None,
            in_turn: false,
            at_once: 1,
        };
        Cluster { tiers: vec![hdd], meta: Some(Tier::meta(profile(quick), 0)) }
    }

    fn file(path: &str, requests: impl IntoIterator<Item = (Op, u64, u64, u32)>) -> FileRequests {
        let request = |(number, (op, offset, size, process)): (usize, (Op, u64, u64, u32))| {
            let start_s = number as f64;
            Request { offset, size, op, process, start_s, end_s: start_s + 0.5 }
        };
        let requests = requests.into_iter().enumerate().map(request).collect();
        FileRequests { id: 0, path: path.into(), requests }
    }

    fn proposed(files: &[FileRequests], inode_room_bytes: u64) -> Vec<HintProposal> {
        let layout = Layout::striped((0..4).map(ServerId), 64 << 10).unwrap();
        let layouts = || files.iter().map(|_| &layout);
        propose(files, layouts(), layouts(), (&cluster(), inode_room_bytes)).unwrap()
    }

    fn sequential(bytes: u64, size: u64) -> impl Iterator<Item = (Op, u64, u64, u32)> {
        (0..bytes / size).map(move |number| (Op::Read, number * size, size, 0))
    }

    #[test]
    fn a_sequential_reader_of_small_requests_is_read_ahead_of() {
        let files = [file("runs/a.h5", sequential(64 << 20, 64 << 10)), file("runs/log", [(Op::Write, 0, 100, 0)])];
        let found = proposed(&files, 0);
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].directory, found[0].pattern.as_deref(), found[0].files), ("runs", Some("*.h5"), 1));
        assert_eq!(found[0].setting.of().name, "readahead");
        // Four disks at once, and fewer startups: 1,024 of 8 ms and 0.8 ms each are what it takes now.
        assert!((8.5..9.5).contains(&found[0].now_s), "{}", found[0].now_s);
        assert!(found[0].then_s < found[0].now_s / 10.0, "{}", found[0].then_s);
    }

    #[test]
    fn a_file_that_processes_read_together_is_read_ahead_of_whatever_else_they_read() {
        // Sixteen processes, each with every sixteenth piece, and as many reads at any place.
        let pieces = || (0..1024_u64).map(|number| (Op::Read, number * 65536, 65536, number as u32 % 16));
        let mixed =
            pieces().flat_map(|piece| [piece, (Op::Read, (1 << 30) + piece.1 * 7919 % (1 << 30), 65536, piece.3)]);
        let written = pieces().chain([(Op::Write, 0, 10, 0)]).chain(pieces());
        let files = [file("a/f", pieces()), file("b/f", mixed), file("c/f", written)];
        let found = proposed(&files, 0);
        let what: Vec<_> = found.iter().map(|of| (&*of.directory, of.setting.of().name)).collect();
        assert_eq!(what, [("a", "readahead"), ("b", "readahead")]);
        let ratios: Vec<f64> = found.iter().map(|of| of.now_s / of.then_s).collect();
        assert!(ratios[0] > 5.0 && (1.5..2.0).contains(&ratios[1]), "{ratios:?}");
    }

    #[test]
    fn who_jumps_writes_meanwhile_or_reads_large_pieces_is_not() {
        let jumps = (0..500).map(|number| (Op::Read, number * 7919 % 1000 * 65536, 65536, 0));
        let writes = sequential(32 << 20, 64 << 10).flat_map(|read| [read, (Op::Write, 1 << 40, 10, 1)]);
        let files = [file("a/f", jumps), file("b/f", writes), file("c/f", sequential(1 << 30, 128 << 20))];
        assert_eq!(proposed(&files, 1 << 30), []);
    }

    /// Writes of 64 KiB, each of which takes 9 ms, after a pause.
    fn written(bytes: u64, process: u32, pause_s: f64) -> Vec<Request> {
        let size = 64 << 10;
        let request = |number: u64| {
            let start_s = number as f64 * (9e-3 + pause_s);
            Request { offset: number * size, size, op: Op::Write, process, start_s, end_s: start_s + 9e-3 }
        };
        (0..bytes / size).map(request).collect()
    }

    fn writers(path: &str, requests: Vec<Request>) -> FileRequests {
        FileRequests { id: 0, path: path.into(), requests }
    }

    #[test]
    fn what_one_program_writes_in_small_pieces_is_gathered() {
        let files = [writers("out/a", written(64 << 20, 0, 0.0)), writers("out/b", written(64 << 20, 1, 1e-3))];
        let found = proposed(&files, 0);
        assert_eq!((found.len(), found[0].setting.of().name, found[0].files), (1, "writebehind", 2));
        assert!(found[0].then_s < found[0].now_s / 5.0, "{found:?}");
    }

    #[test]
    fn what_several_write_or_one_that_pauses_is_not_gathered() {
        let shared = [written(32 << 20, 0, 0.0), written(32 << 20, 1, 0.0)].concat();
        // A piece never waits for more than a second.
        let slow = written(32 << 20, 0, 2.0);
        let mut read: Vec<Request> = written(32 << 20, 0, 0.0);
        read.push(Request { op: Op::Read, ..read[100] });
        let files = [writers("a/f", shared), writers("b/f", slow), writers("c/f", read)];
        assert_eq!(proposed(&files, 0), []);
    }

    #[test]
    fn small_files_go_into_their_inodes_where_a_calibrated_tier_has_room() {
        let files: Vec<FileRequests> = (0..20)
            .map(|number| file(&format!("s/{number}"), [(Op::Write, 0, 5000, 0), (Op::Read, 0, 5000, 0)]))
            .collect();
        let found = proposed(&files, 1 << 20);
        assert_eq!((found.len(), found[0].setting.to_string(), found[0].files), (1, "small=8KiB".into(), 20));
        assert!(found[0].now_s > 100.0 * found[0].then_s);
        assert_eq!((proposed(&files, 90_000), proposed(&files[..7], 1 << 20)), (vec![], vec![]));
    }

    #[test]
    fn a_data_set_that_is_read_again_is_kept_and_one_that_is_written_or_too_large_is_not() {
        // Large pieces, which nothing is fetched ahead of: in all three times as much as there is.
        let epochs = |bytes: u64| (0..3).flat_map(move |_| sequential(bytes, 16 << 20));
        let data = |path: &str| file(path, epochs(64 << 20));
        let found = proposed(&[data("set/a"), data("set/b")], 0);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].setting.to_string(), found[0].files, &*found[0].directory),
            ("cached=64MiB".into(), 2, "set")
        );
        assert!((found[0].now_s / found[0].then_s - 3.0).abs() < 1e-6, "{found:?}");
        let written = file("set/b", epochs(64 << 20).chain([(Op::Write, 0, 1, 1)]));
        assert_eq!(proposed(&[data("set/a"), written], 0), [], "no ending tells them apart");
        assert_eq!(proposed(&[file("large", epochs(2 << 30))], 0), []);
        assert_eq!(proposed(&[file("once", sequential(64 << 20, 16 << 20))], 0), []);
    }

    #[test]
    fn what_was_read_is_known_whatever_the_order() {
        let mut known = Known::default();
        let mut has =
            |offset, size| known.has(&Request { offset, size, op: Op::Read, process: 0, start_s: 0.0, end_s: 0.0 });
        assert_eq!([has(10, 10), has(30, 10), has(12, 8), has(10, 11)], [false, false, true, false]);
        // The gap between both joins them.
        assert_eq!([has(15, 20), has(10, 30), has(9, 1), has(9, 32)], [false, true, false, false]);
        assert_eq!([has(0, u64::MAX), has(5, u64::MAX), has(41, 1)], [false, true, true]);
    }

    #[test]
    fn names_are_told_apart_by_their_endings_or_not_at_all() {
        let small = |path: String| file(&path, [(Op::Write, 0, 5000, 0)]);
        let large = |path: &str| file(path, [(Op::Write, 0, 1 << 30, 0)]);
        let of_ending = |ending: &str, other: &str| {
            let mut files: Vec<_> = (0..9).map(|number| small(format!("{number}.{ending}"))).collect();
            files.push(large(other));
            proposed(&files, 1 << 30).into_iter().map(|found| found.pattern).collect::<Vec<_>>()
        };
        let of = |other: &str| of_ending("jpg", other);
        assert_eq!(
            (of("x.raw"), of("x"), of("x.jpg")),
            (vec![Some("*.jpg".into())], vec![Some("*.jpg".into())], vec![])
        );
        // No hint takes such a pattern.
        for ending in ["[1]", "{1}", "?", "*"] {
            assert_eq!(of_ending(ending, "x.raw"), vec![], "{ending}");
        }
    }
}
