//! One process of a run: what an ordinary program does with its file, one request at a time.

use std::path::Path;
use std::time::Duration;

use crate::content::RunContent;
use crate::error::BenchError;
use crate::options::Verify;
use crate::run::BenchRun;
use crate::view::{Piece, View};
use crate::workload::{PhaseKind, Spaced};

/// Why a process ends early.
#[derive(Debug)]
pub enum Ended {
    /// By its own error.
    Failed(BenchError),
    /// By another one's.
    Aborted,
}

impl From<BenchError> for Ended {
    fn from(error: BenchError) -> Self {
        Self::Failed(error)
    }
}

/// Times of one process in one group of requests of one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupTimes {
    /// Begin of the first request (`CLOCK_MONOTONIC`, nanoseconds).
    pub first_ns: u64,
    /// End of the last one.
    pub last_ns: u64,
}

/// What a process measured in a phase.
#[derive(Debug)]
pub struct Measured {
    /// When all processes were ready (`CLOCK_MONOTONIC`, nanoseconds).
    pub start_ns: u64,
    /// Of each group.
    pub spans: Vec<GroupTimes>,
    /// Of each request, in nanoseconds.
    pub times_ns: Vec<u64>,
}

/// Bytes of a request: where in the file and where in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First byte in the file.
    pub offset: u64,
    /// First byte in the buffer.
    pub at: usize,
    /// Bytes.
    pub bytes: usize,
}

/// A request as a file takes it.
#[derive(Debug, Clone, Copy)]
pub struct FileRequest<'a> {
    /// First byte in the view.
    pub offset: u64,
    /// Bytes, gaps not counted.
    pub bytes: u64,
    /// What it means, piece by piece.
    pub segments: &'a [Segment],
}

/// How to open a file.
pub struct Opening<'a> {
    /// The file.
    pub path: &'a Path,
    /// For what.
    pub phase: PhaseKind,
    /// Which bytes of it.
    pub view: &'a View,
    /// Whether the view is the whole file, for every process that opens it.
    pub plain: bool,
    /// How requests lie in memory.
    pub memory: Option<Spaced>,
    /// Whether the other processes of the instance open it at the same time and make the same calls.
    pub together: bool,
}

/// An open file.
pub trait BenchFile {
    /// Writes a request.
    ///
    /// # Errors
    /// What the call said.
    fn write(&mut self, access: &FileRequest<'_>, buffer: &[u8]) -> Result<(), BenchError>;

    /// Reads a request.
    ///
    /// # Errors
    /// What the call said, or that the file ends inside the request.
    fn read(&mut self, access: &FileRequest<'_>, buffer: &mut [u8]) -> Result<(), BenchError>;

    /// Makes writes durable.
    ///
    /// # Errors
    /// What the call said.
    fn sync(&mut self) -> Result<(), BenchError>;

    /// Closes the file and sees what that has to say.
    ///
    /// # Errors
    /// What the call said.
    fn close(self: Box<Self>) -> Result<(), BenchError>;
}

/// What a process has around it: the other processes, and a way to files.
pub trait ProcessWorld {
    /// Opens a file.
    ///
    /// # Errors
    /// What the call said.
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn BenchFile + '_>, BenchError>;

    /// Waits for all processes of the run.
    ///
    /// # Errors
    /// [`Ended::Aborted`] when one of them failed and will not come.
    fn wait_for_all(&self) -> Result<(), Ended>;

    /// Waits for all processes of the own instance.
    ///
    /// # Errors
    /// [`Ended::Aborted`] when a process failed and will not come.
    fn wait_for_instance(&self) -> Result<(), Ended>;

    /// Whether a process is known to have failed.
    fn has_failed(&self) -> bool;

    /// Takes what the process measured in a phase. All processes call it.
    ///
    /// # Errors
    /// [`BenchError`] when it cannot be passed on.
    fn keep(&self, phase: PhaseKind, measured: &Measured) -> Result<(), BenchError>;
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Memory for requests, aligned for direct I/O.
struct Buffer {
    pages: Vec<[u8; Buffer::ALIGNMENT]>,
    skip: usize,
    length: usize,
}

impl Buffer {
    const ALIGNMENT: usize = 4096;

    fn new(length: usize) -> Self {
        // One page more than needed, so that an aligned start can be chosen.
        let pages = vec![[0; Self::ALIGNMENT]; length.div_ceil(Self::ALIGNMENT) + 1];
        let skip = pages.as_ptr().cast::<u8>().align_offset(Self::ALIGNMENT);
        Self { pages, skip, length }
    }

    fn bytes(&mut self, length: usize) -> &mut [u8] {
        let length = length.min(self.length);
        &mut self.pages.as_flattened_mut()[self.skip..self.skip + length]
    }
}

/// Bytes of memory that a request of `bytes` is spread over.
pub fn footprint(bytes: u64, memory: Option<Spaced>) -> usize {
    let gaps = memory.map_or(0, |Spaced { run, gap }| (bytes / run).saturating_sub(1) * gap);
    (bytes + gaps) as usize
}

/// Where the bytes of a request that is `pieces` of the file are in memory.
fn segments(pieces: &[Piece], memory: Option<Spaced>, found: &mut Vec<Segment>) {
    found.clear();
    let mut taken = 0;
    for piece in pieces {
        let mut done = 0;
        while done < piece.bytes {
            let (at, room) = match memory {
                None => (taken, u64::MAX),
                Some(Spaced { run, gap }) => (taken / run * (run + gap) + taken % run, run - taken % run),
            };
            let bytes = room.min(piece.bytes - done);
            found.push(Segment { offset: piece.offset + done, at: at as usize, bytes: bytes as usize });
            done += bytes;
            taken += bytes;
        }
    }
}

/// A process and what it works with.
pub struct BenchProcess<'a> {
    run: &'a BenchRun<'a>,
    world: &'a dyn ProcessWorld,
    rank: u32,
    instance: u32,
    local_rank: u32,
    content: RunContent,
    buffer: Buffer,
    /// What a check compares with.
    expected: Buffer,
    verified_bytes: u64,
}

impl<'a> BenchProcess<'a> {
    /// Process `rank` of a run.
    pub fn new(rank: u32, run: &'a BenchRun<'a>, world: &'a dyn ProcessWorld) -> Self {
        let (instance, local_rank) = run.place_of(rank);
        let workload = &run.workload;
        let sizes: Option<Vec<u64>> = workload.groups().iter().map(|group| group.request_size).collect();
        let mut largest = sizes.unwrap_or_else(|| {
            let of = |phase| workload.requests(phase, local_rank, run.owner(phase, local_rank));
            [PhaseKind::Write, PhaseKind::Read].into_iter().flat_map(of).map(|request| request.bytes).collect()
        });
        largest.sort_unstable();
        let mut largest = largest.last().copied().unwrap_or(0);
        let mut length = footprint(largest, workload.memory());
        if run.common.verify == Some(Verify::After) {
            largest = workload.checks(local_rank).iter().map(|check| check.bytes).fold(largest, u64::max);
            length = length.max(largest as usize);
        }
        let content = RunContent { seed: run.common.seed };
        let mut buffer = Buffer::new(length);
        content.fill(buffer.bytes(length), run.file_number(instance, workload.file_of(local_rank)), 0, 0);
        let expected = Buffer::new(if run.common.verify.is_some() { largest as usize } else { 0 });
        Self { run, world, rank, instance, local_rank, content, buffer, expected, verified_bytes: 0 }
    }

    /// All its phases. Returns the bytes that it found to be right.
    ///
    /// # Errors
    /// [`Ended`] when it or another process failed.
    pub fn run(&mut self) -> Result<u64, Ended> {
        if self.run.common.writes() {
            self.timed(PhaseKind::Write)?;
        }
        if self.run.common.reads() {
            self.timed(PhaseKind::Read)?;
        }
        if self.run.common.verify == Some(Verify::After) {
            self.check_all()?;
        }
        Ok(self.verified_bytes)
    }

    /// A phase between two barriers. Opening and closing are outside the time, `fsync` is inside.
    fn timed(&mut self, phase: PhaseKind) -> Result<(), Ended> {
        let (run, workload, common) = (self.run, &self.run.workload, self.run.common);
        let owner = run.owner(phase, self.local_rank);
        let requests = workload.requests(phase, self.local_rank, owner);
        let number = run.file_number(self.instance, workload.file_of(owner));
        let view = workload.view(owner).moved(run.base(self.instance));
        let path = run.path(number);
        let (memory, together) = (workload.memory(), workload.files() == 1);
        let base = run.base(self.instance);
        let plain = (0..workload.processes()).all(|any| workload.view(any).moved(base).is_plain());
        let mut file = self.world.open(&Opening { path: &path, phase, view: &view, plain, memory, together })?;
        let mut spans = vec![GroupTimes::default(); workload.groups().len()];
        let mut times_ns = Vec::with_capacity(requests.len());
        let (mut pieces, mut parts) = (Vec::new(), Vec::new());
        let think = Duration::from_secs_f64(common.think);
        self.world.wait_for_all()?;
        let ready_ns = now_ns();
        for request in &requests {
            if self.world.has_failed() {
                return Err(Ended::Aborted);
            }
            view.pieces(request.offset, request.bytes, &mut pieces);
            segments(&pieces, memory, &mut parts);
            let buffer = self.buffer.bytes(footprint(request.bytes, memory));
            if phase == PhaseKind::Write && common.verify.is_some() {
                for part in &parts {
                    let bytes = &mut buffer[part.at..part.at + part.bytes];
                    self.content.fill(bytes, number, part.offset, request.generation);
                }
            }
            let access = FileRequest { offset: request.offset, bytes: request.bytes, segments: &parts };
            let start_ns = now_ns();
            match phase {
                PhaseKind::Write => file.write(&access, buffer)?,
                PhaseKind::Read => file.read(&access, buffer)?,
            }
            let end_ns = now_ns();
            times_ns.push(end_ns - start_ns);
            let span = &mut spans[request.group as usize];
            if span.last_ns == 0 {
                span.first_ns = start_ns;
            }
            span.last_ns = end_ns;
            if phase == PhaseKind::Read && common.verify == Some(Verify::Inline) {
                for part in &parts {
                    self.check(&path, number, *part, request.generation)?;
                }
            }
            if common.barrier {
                self.world.wait_for_instance()?;
            }
            if !think.is_zero() {
                std::thread::sleep(think);
            }
        }
        if phase == PhaseKind::Write && common.fsync {
            file.sync()?;
            // The whole phase waits for it; so does the group that was last.
            if let Some(last) = requests.last() {
                spans[last.group as usize].last_ns = now_ns();
            }
        }
        file.close()?;
        self.world.keep(phase, &Measured { start_ns: ready_ns, spans, times_ns })?;
        self.world.wait_for_all()?;
        Ok(())
    }

    /// The phase of its own: plain reads, whatever the view that the data was written through.
    fn check_all(&mut self) -> Result<(), Ended> {
        let (run, workload, base) = (self.run, &self.run.workload, self.run.base(self.instance));
        let view = View::bytes().moved(base);
        let mut checks = workload.checks(self.local_rank);
        checks.sort_by_key(|check| check.file);
        for of_file in checks.chunk_by(|a, b| a.file == b.file) {
            let number = run.file_number(self.instance, of_file[0].file);
            let path = run.path(number);
            let (phase, plain) = (PhaseKind::Read, view.is_plain());
            let opening = Opening { path: &path, phase, view: &view, plain, memory: None, together: false };
            let mut file = self.world.open(&opening)?;
            for check in of_file {
                let part = Segment { offset: base + check.offset, at: 0, bytes: check.bytes as usize };
                let access = FileRequest { offset: check.offset, bytes: check.bytes, segments: &[part] };
                file.read(&access, self.buffer.bytes(part.bytes))?;
                for run in workload.coverage().runs(check.offset, check.bytes) {
                    let at = (run.offset - check.offset) as usize;
                    let part = Segment { offset: base + run.offset, at, bytes: run.bytes as usize };
                    self.check(&path, number, part, check.generation)?;
                }
            }
            file.close()?;
        }
        Ok(())
    }

    /// Checks bytes of the buffer that were just read.
    fn check(&mut self, path: &Path, file: u32, part: Segment, generation: u32) -> Result<(), BenchError> {
        let Segment { offset, at, bytes } = part;
        let found = &self.buffer.bytes(at + bytes)[at..];
        let expected = self.expected.bytes(bytes);
        let Some(difference) = self.content.check(found, expected, file, offset, generation) else {
            self.verified_bytes += bytes as u64;
            return Ok(());
        };
        let generations = self.run.workload.generations().min(1000);
        let origin = self.content.origin(found, difference.at, offset, self.run.files(), generations, self.run.end());
        Err(BenchError::Mismatch {
            rank: self.rank,
            path: path.to_owned(),
            offset: offset + difference.at as u64,
            expected: difference.expected,
            found: difference.found,
            origin,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_its_gaps_whatever_the_pieces() {
        let pieces = [Piece { offset: 100, bytes: 5 }, Piece { offset: 200, bytes: 7 }];
        let mut found = Vec::new();
        segments(&pieces, Some(Spaced { run: 4, gap: 3 }), &mut found);
        let expected = [(100, 0, 4), (104, 7, 1), (200, 8, 3), (203, 14, 4)];
        assert_eq!(found, expected.map(|(offset, at, bytes)| Segment { offset, at, bytes }));
        assert_eq!(footprint(12, Some(Spaced { run: 4, gap: 3 })), 18);
        segments(&pieces, None, &mut found);
        assert_eq!(found, [(100, 0, 5), (200, 5, 7)].map(|(offset, at, bytes)| Segment { offset, at, bytes }));
    }
}
