//! [`TraceSignature`]: the signatures of all files of a trace, by process.

use crate::factors::Factors;
use crate::order::{HELD, RequestOrder, RequestProcess, RequestRow};
use crate::phases::{Pauses, Phase};
use crate::programs::{FileProgram, ProcessSignature, ProgramFactors, programs_of};
use crate::stream::{Stream, StreamSignature};
use crate::words::{Who, file_in_words};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stripewise_trace::Trace;

/// How far [`TraceSignature::of`] is, for another thread to see; and its stop.
#[derive(Debug, Default)]
pub struct SignatureProgress {
    done: AtomicU64,
    stopped: AtomicBool,
}

impl SignatureProgress {
    /// Records of the trace that are done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Ends the work soon; its result is then worth nothing.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// What all processes did with one file.
#[derive(Debug)]
pub struct FileSignature {
    /// Number in [`Trace::files`].
    pub file: u32,
    /// In order of program, rank and process id; at least one.
    pub processes: Vec<ProcessSignature>,
    /// Stretches of activity of all processes together.
    pub phases: Vec<Phase>,
    /// Requests that are left out, since the log does not have their offset.
    pub unknown_offsets: u64,
}

/// Of a trace: one [`FileSignature`] per file that was read or written.
#[derive(Debug, Default)]
pub struct TraceSignature {
    /// In order of the files' numbers, which is that of their paths.
    pub files: Vec<FileSignature>,
}

/// Where a signature and the trace part: see [`TraceSignature::check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Number of the file.
    pub file: u32,
    /// The process.
    pub process: RequestProcess,
    /// How many of its requests are as its signature says, before the first that is not.
    pub after: u64,
}

impl TraceSignature {
    /// The signatures of all files, on all processors. Memory: some 400 MB for requests, whatever the trace is, and the
    /// signatures. O(n log n) in the requests; a file with more than 8 million is read again for each 8 million.
    pub fn of(trace: &Trace, watch: &SignatureProgress) -> Self {
        Self::with_held(trace, watch, HELD)
    }

    fn with_held(trace: &Trace, watch: &SignatureProgress, held: usize) -> Self {
        let sign = |file: u32, held: usize| {
            let signature = FileSignature::of(trace, file, held, watch);
            watch.done.fetch_add(trace.of_file(file).len() as u64, Ordering::Relaxed);
            signature
        };
        // What is held is shared: files that are too large for the share of one thread come one after the other.
        let share = held / rayon::current_num_threads();
        let (small, large): (Vec<u32>, Vec<u32>) =
            trace.files().iter().map(|file| file.id).partition(|&id| trace.of_file(id).len() <= share);
        let mut files: Vec<FileSignature> = small.into_par_iter().filter_map(|file| sign(file, share)).collect();
        files.extend(large.into_iter().filter_map(|file| sign(file, held)));
        files.sort_unstable_by_key(|signature| signature.file);
        Self { files }
    }

    /// By program, in order of number.
    pub fn programs(&self) -> Vec<ProgramFactors> {
        programs_of(self.files.iter().flat_map(FileSignature::programs))
    }

    /// Compares every request of the trace with what the signatures expand to; how many are the same.
    ///
    /// # Errors
    /// The first place where they are not. Cost and memory as of [`Self::of`].
    pub fn check(&self, trace: &Trace, watch: &SignatureProgress) -> Result<u64, Mismatch> {
        self.check_with_held(trace, watch, HELD)
    }

    fn check_with_held(&self, trace: &Trace, watch: &SignatureProgress, held: usize) -> Result<u64, Mismatch> {
        let nothing = |file| FileSignature { file, processes: Vec::new(), phases: Vec::new(), unknown_offsets: 0 };
        let mut checked = 0;
        for file in trace.files() {
            let order = RequestOrder::new(trace, file.id, held);
            match self.files.binary_search_by_key(&file.id, |signature| signature.file) {
                Ok(at) => self.files[at].check(&order, watch)?,
                Err(_) => nothing(file.id).check(&order, watch)?,
            }
            checked += order.requests;
            watch.done.fetch_add(trace.of_file(file.id).len() as u64, Ordering::Relaxed);
        }
        // Of files that the trace does not have.
        let mut unknown = self.files.iter().filter(|signature| signature.file as usize >= trace.files().len());
        match unknown.find_map(|signature| signature.processes.first().map(|first| (signature.file, first))) {
            Some((file, first)) => Err(Mismatch { file, process: first.process, after: 0 }),
            None => Ok(checked),
        }
    }
}

fn push(stream: &mut Stream, row: &RequestRow) {
    stream.push(row.access(), Some((row.start_ns, row.end_ns)));
}

impl FileSignature {
    /// `None` of a file without requests.
    fn of(trace: &Trace, file: u32, held: usize, watch: &SignatureProgress) -> Option<Self> {
        let order = RequestOrder::new(trace, file, held);
        let mut pauses = Pauses::default();
        let mut streams: Vec<Stream> = Vec::new();
        let mut done: Vec<StreamSignature> = Vec::new();
        order.each(&mut |window| {
            for row in window.rows() {
                let access = row.access();
                pauses.push_access(access, row.start_ns, row.end_ns);
            }
            if order.is_held() {
                // Each is finished before the next begins: an open stream takes more than a finished one.
                let one = |process| {
                    let mut stream = Stream::new();
                    window.of(process).for_each(|row| push(&mut stream, row));
                    stream.finish()
                };
                done = (0..order.processes.len()).into_par_iter().map(one).collect();
            } else {
                streams.resize_with(order.processes.len(), Stream::new);
                let all = streams.par_iter_mut().enumerate();
                all.for_each(|(process, stream)| window.of(process).for_each(|row| push(stream, row)));
            }
            !watch.is_stopped()
        });
        done.extend(streams.into_iter().map(Stream::finish));
        let processes: Vec<ProcessSignature> =
            order.processes.iter().zip(done).map(|(&process, stream)| ProcessSignature { process, stream }).collect();
        let unknown_offsets = order.unknown_offsets;
        (!processes.is_empty() || unknown_offsets > 0).then(|| Self {
            file,
            processes,
            phases: pauses.phases(),
            unknown_offsets,
        })
    }

    /// By program, in order of number.
    pub fn programs(&self) -> Vec<FileProgram> {
        self.processes.chunk_by(|a, b| a.process.program == b.process.program).map(FileProgram::of).collect()
    }

    /// Of all processes together.
    pub fn factors(&self) -> Factors {
        let mut factors = Factors::default();
        self.processes.iter().for_each(|signature| factors.merge(&signature.stream.factors));
        factors
    }

    /// One line: what each program does with the file. See [`file_in_words`].
    pub fn words(&self, trace: &Trace) -> String {
        if self.processes.is_empty() && self.unknown_offsets > 0 {
            return format!("{} requests, at offsets that the log does not have", self.unknown_offsets);
        }
        let programs: Vec<&[ProcessSignature]> =
            self.processes.chunk_by(|a, b| a.process.program == b.process.program).collect();
        let said = programs.iter().map(|processes| {
            let words = program_in_words(trace, processes);
            match trace.programs().get(processes[0].process.program as usize) {
                Some(program) if programs.len() > 1 => format!("{}: {words}", program.name),
                _ => words,
            }
        });
        said.collect::<Vec<_>>().join("; ")
    }

    fn check(&self, order: &RequestOrder<'_>, watch: &SignatureProgress) -> Result<(), Mismatch> {
        let mismatch = |process, after| Mismatch { file: self.file, process, after };
        let of = |process: &RequestProcess| {
            let at = self.processes.binary_search_by_key(process, |signature| signature.process);
            at.map(|at| self.processes[at].stream.signature.expand()).map_err(|_| mismatch(*process, 0))
        };
        // Each with how many of its accesses are as they were.
        let mut expanded = order
            .processes
            .iter()
            .map(|process| Ok((*process, of(process)?, 0u64)))
            .collect::<Result<Vec<_>, Mismatch>>()?;
        let mut found = None;
        order.each(&mut |window| {
            for (number, (process, accesses, after)) in expanded.iter_mut().enumerate() {
                for row in window.of(number) {
                    if accesses.next() != Some(row.access()) {
                        found = Some(mismatch(*process, *after));
                        return false;
                    }
                    *after += 1;
                }
            }
            !watch.is_stopped()
        });
        if watch.is_stopped() {
            return Ok(());
        }
        let left = || expanded.iter_mut().find_map(|known| known.1.next().map(|_| mismatch(known.0, known.2)));
        let unknown = || self.processes.iter().find(|signature| !order.processes.contains(&signature.process));
        let found = found.or_else(left).or_else(|| unknown().map(|signature| mismatch(signature.process, 0)));
        found.map_or(Ok(()), Err)
    }
}

/// Of one program with one file. Ranks are named as such where the program has any: a program without MPI has none but
/// 0; and where each is one process.
fn program_in_words(trace: &Trace, processes: &[ProcessSignature]) -> String {
    let program = processes[0].process.program;
    let has_ranks = processes.iter().any(|signature| signature.process.rank > 0)
        || trace.processes().iter().any(|process| process.program == program && process.rank > 0);
    let is_one_each = processes.windows(2).all(|pair| pair[0].process.rank != pair[1].process.rank);
    let who = if has_ranks && is_one_each { Who::Ranks } else { Who::Processes };
    let number = |index: usize, signature: &ProcessSignature| match who {
        Who::Ranks => signature.process.rank,
        Who::Processes => index as u32,
    };
    let numbered: Vec<(u32, &StreamSignature)> =
        processes.iter().enumerate().map(|(index, signature)| (number(index, signature), &signature.stream)).collect();
    file_in_words(&numbered, who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, AccessOp};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use stripewise_trace::{Api, Operation, ProcessInfo, Recorder, WrappedCall, flags};

    /// File, rank, start in ns, offset, size in bytes, whether it writes, flags.
    type Recorded = (u32, u32, u64, u64, u64, bool, u16);

    fn trace_of(recorded: &[Recorded]) -> Trace {
        let dir = tempfile::tempdir().expect("a directory");
        for of_rank in recorded.chunk_by(|a, b| a.1 == b.1) {
            let info = ProcessInfo { program: b"solver", rank: of_rank[0].1, command: b"solver" };
            let recorder = Recorder::create(dir.path(), &info).expect("a recorder");
            for &(file, _, start_ns, offset, size, writes, flags) in of_rank {
                let op = if writes { Operation::Write } else { Operation::Read };
                let file = recorder.file_id(format!("/data/{file}").as_bytes());
                let end_ns = start_ns + 3;
                recorder.record(&WrappedCall { file, api: Api::Posix, op, offset, size, start_ns, end_ns, flags });
            }
        }
        Trace::open(dir.path()).expect("a trace")
    }

    fn recorded() -> impl Strategy<Value = Recorded> {
        let flags = prop_oneof![8 => Just(0), 1 => Just(flags::OFFSET_UNKNOWN), 1 => Just(flags::FAILED)];
        (0u32..3, 0u32..4, 1_000u64..1_060, 0u64..40, 0u64..9, any::<bool>(), flags)
    }

    /// By file and process, in order of start and then of the trace: in the plainest way.
    fn by_hand(trace: &Trace) -> BTreeMap<(u32, RequestProcess), Vec<Access>> {
        let mut found: BTreeMap<(u32, RequestProcess), Vec<(u64, Access)>> = BTreeMap::new();
        for file in trace.files() {
            for r in trace.requests(file.id).filter(|r| r.flags & flags::OFFSET_UNKNOWN == 0) {
                let op = if r.operation() == Some(Operation::Write) { AccessOp::Write } else { AccessOp::Read };
                let process = RequestProcess { program: r.program, rank: r.rank, pid: r.pid };
                let access = Access { op, offset: r.offset, size_bytes: r.size };
                found.entry((file.id, process)).or_default().push((r.start_ns, access));
            }
        }
        found
            .into_iter()
            .map(|(key, mut timed)| {
                timed.sort_by_key(|one| one.0);
                (key, timed.into_iter().map(|one| one.1).collect())
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn signatures_expand_to_the_trace_however_little_is_held(
            mut list in prop::collection::vec(recorded(), 1..120),
            held in prop_oneof![Just(1usize), Just(2), Just(7), Just(1 << 20)],
        ) {
            list.sort_by_key(|recorded| recorded.1);
            let trace = trace_of(&list);
            let watch = SignatureProgress::default();
            let signature = TraceSignature::with_held(&trace, &watch, held);
            let expanded: BTreeMap<(u32, RequestProcess), Vec<Access>> = signature
                .files
                .iter()
                .flat_map(|file| file.processes.iter().map(move |one| {
                    ((file.file, one.process), one.stream.signature.expand().collect())
                }))
                .collect();
            let expected = by_hand(&trace);
            prop_assert_eq!(&expanded, &expected);
            let requests = expected.values().map(|accesses| accesses.len() as u64).sum::<u64>();
            prop_assert_eq!(signature.check_with_held(&trace, &watch, held), Ok(requests));
            prop_assert_eq!(watch.done(), 2 * trace.records().len() as u64);
            let whole = TraceSignature::of(&trace, &SignatureProgress::default());
            for (few, all) in signature.files.iter().zip(&whole.files) {
                prop_assert_eq!(&few.phases, &all.phases);
                prop_assert_eq!(few.factors(), all.factors());
                prop_assert_eq!(few.unknown_offsets, all.unknown_offsets);
            }
            // Files that are signed apart, and sent, add up to the same programs.
            let sent = whole.files.iter().flat_map(|file| {
                let text = serde_json::to_string(&file.programs()).expect("a text");
                serde_json::from_str::<Vec<FileProgram>>(&text).expect("what was written")
            });
            prop_assert_eq!(programs_of(sent), whole.programs());
            let of_programs: u64 = whole.programs().iter().map(|program| program.factors.accesses()).sum();
            prop_assert_eq!(of_programs, requests);
        }

        /// A check that could not fail would prove nothing.
        #[test]
        fn a_check_finds_any_request_that_differs(
            mut list in prop::collection::vec(recorded(), 1..60),
            at in any::<prop::sample::Index>(),
        ) {
            list.sort_by_key(|recorded| recorded.1);
            // Numbers of files are of a trace: those of another can only be compared where it has the same files.
            list.iter_mut().for_each(|recorded| recorded.0 = 0);
            let one = at.index(list.len());
            prop_assume!(list[one].6 == 0 && list[one].4 > 0);
            let signature = TraceSignature::of(&trace_of(&list), &SignatureProgress::default());
            let mut other = list.clone();
            other[one].3 += 100;
            prop_assert!(signature.check(&trace_of(&other), &SignatureProgress::default()).is_err());
            other = list.clone();
            other.remove(one);
            if !other.is_empty() {
                prop_assert!(signature.check(&trace_of(&other), &SignatureProgress::default()).is_err());
            }
        }
    }

    #[test]
    fn programs_and_processes_are_told_apart_in_words() {
        let list: Vec<Recorded> = (0..4)
            .flat_map(|rank| (0..9).map(move |i| (0, rank, i, u64::from(rank) * 900 + i * 100, 100, true, 0)))
            .collect();
        let trace = trace_of(&list);
        let signature = TraceSignature::of(&trace, &SignatureProgress::default());
        assert_eq!(
            signature.files[0].words(&trace),
            "4 ranks, each writes 900 B in 9 pieces of 100 B; rank r starts at r x 900 B"
        );
        let alone = trace_of(&list[..9]);
        let signature = TraceSignature::of(&alone, &SignatureProgress::default());
        assert_eq!(signature.files[0].words(&alone), "writes 900 B in 9 pieces of 100 B, from 0 B");
    }
}
