//! dftracer's logs (`.pfw`, `.pfw.gz`), versions 1 and 2: one file, or a folder with a file for each process.
//!
//! A JSON object a line, and names of files as hashes that other lines tell. Calls without an offset stand where the
//! calls before them left off ([`files`]), for each process and open file; which is said.

mod calls;
mod event;
mod files;

use crate::Importer;
use crate::error::ImportError;
use crate::lacks::Lacks;
use crate::lines::Lines;
use crate::log::{Log, Text};
use crate::out::Out;
use crate::sink::{Sink, Summary};
use calls::DftracerState;
use event::{Category, LogEvent};
use memchr::memmem;
use std::io::{self, Read};

/// Reads what dftracer writes.
pub struct Dftracer;

/// So much of each file is looked through for the ranks of its processes, which are told when MPI begins.
const AHEAD_BYTES: u64 = 4 << 20;
/// So much of each file is looked through for its first time.
const FIRST_BYTES: u64 = 16 << 10;

impl Importer for Dftracer {
    fn name(&self) -> &'static str {
        "dftracer"
    }

    /// An array of events, or lines of them: the first whole line that is one has a category and a process.
    fn recognises(&self, start: &[u8]) -> bool {
        let mut lines = start.split(|byte| *byte == b'\n').filter(|line| !matches!(line.trim_ascii(), b"" | b"["));
        let Some(first) = lines.next() else { return false };
        let known = |line: &[u8]| {
            line.trim_ascii_start().starts_with(b"{\"")
                && [&b"\"cat\":"[..], b"\"pid\":", b"\"ph\":", b"\"name\":"]
                    .iter()
                    .all(|key| memmem::find(&line[..line.len().min(4096)], key).is_some())
        };
        known(first) || lines.next().is_some_and(known)
    }

    fn endings(&self) -> &'static [&'static str] {
        &[".pfw", ".pfw.gz"]
    }

    /// O(unpacked length); memory for the names, and for processes and what they have open.
    fn import(&self, log: &Log, sink: &mut dyn Sink) -> Result<Summary, ImportError> {
        let mut state = DftracerState::new(Out::new(log, sink, self.name()));
        for part in 0..log.parts() {
            first_time(log, part, &mut state)?;
        }
        let mut reading = Reading::default();
        let mut before = 0;
        for part in 0..log.parts() {
            state.begin_part(part);
            let mut lines = Lines::of_text(log, part, look_ahead(log, part, &mut state)?);
            let mut next_progress = before;
            let mut whole = true;
            while let Some(line) = lines.next()? {
                // The array's last bracket has no line end; anything else is a line that was not finished.
                whole = matches!(line.trim_ascii_end().last(), None | Some(b'}' | b']'));
                match LogEvent::of(line) {
                    Some(event) => state.event(&event)?,
                    None if matches!(line.trim_ascii(), b"" | b"[" | b"]") => {}
                    None => reading.bad(log, part, lines.number),
                }
                if before + lines.done_bytes() >= next_progress {
                    next_progress = before + lines.done_bytes() + (1 << 20);
                    state.out.progress(before + lines.done_bytes());
                }
            }
            before += lines.done_bytes();
            reading.unfinished += u64::from(lines.unfinished_line && !whole);
            reading.too_long += lines.too_long;
            if let Some(why) = lines.stopped {
                reading.stopped.push(format!("{}: {why}", log.part_name(part)));
            }
        }
        state.settle()?;
        if state.calls == 0 || !state.any_args {
            return Err(ImportError::Empty {
                path: log.path().to_owned(),
                format: self.name(),
                why: state.why_empty(),
            });
        }
        reading.tell(&mut state.out.summary);
        state.finish()
    }
}

/// How well the text could be read.
#[derive(Default)]
struct Reading {
    bad: u64,
    first_bad: String,
    too_long: u64,
    unfinished: u64,
    stopped: Vec<String>,
}

impl Reading {
    fn bad(&mut self, log: &Log, part: usize, line: u64) {
        self.bad += 1;
        if self.bad == 1 {
            self.first_bad = if log.parts() > 1 {
                format!("line {line} of {}", log.part_name(part))
            } else {
                format!("line {line}")
            };
        }
    }

    fn tell(&self, summary: &mut Summary) {
        if self.unfinished > 0 {
            summary.lacks |= Lacks::CUT;
            let parts = if self.unfinished > 1 {
                format!("{} of its files end", self.unfinished)
            } else {
                "it ends".to_owned()
            };
            summary.note(format!("{parts} within a line"));
        }
        if let Some(first) = self.stopped.first() {
            summary.lacks |= Lacks::CUT | Lacks::DAMAGED;
            let more =
                if self.stopped.len() > 1 { format!(" (and {} more)", self.stopped.len() - 1) } else { String::new() };
            summary.note(format!("compressed text could not be unpacked to its end: {first}{more}"));
        }
        if self.bad > 0 {
            summary.lacks |= Lacks::DAMAGED;
            summary.note(format!("{} lines were not understood, the first is {}", self.bad, self.first_bad));
        }
        if self.too_long > 0 {
            summary.lacks |= Lacks::DAMAGED;
            summary.note(format!("{} lines longer than 256 KiB were left out", self.too_long));
        }
    }
}

/// Learns from the first lines of a file when it begins.
fn first_time(log: &Log, part: usize, state: &mut DftracerState<'_>) -> Result<(), ImportError> {
    let (text, _) = log.text_of(part)?;
    let mut start = Vec::new();
    // What cannot be read is said when the whole is.
    let _ = text.take(FIRST_BYTES).read_to_end(&mut start);
    let first = start.split(|byte| *byte == b'\n').filter_map(LogEvent::of);
    first.filter(|event| event.category != Category::Other).for_each(|event| state.time_seen(&event));
    Ok(())
}

/// Learns from the start of a file which ranks its processes have; the text from its first byte again.
fn look_ahead(log: &Log, part: usize, state: &mut DftracerState<'_>) -> Result<Text, ImportError> {
    let (mut text, done) = log.whole_text_of(part)?;
    let mut start = Vec::new();
    let read = text.by_ref().take(AHEAD_BYTES).read_to_end(&mut start);
    let line_at = |at: usize| {
        let from = memchr::memrchr(b'\n', &start[..at]).map_or(0, |end| end + 1);
        let to = memchr::memchr(b'\n', &start[at..]).map_or(start.len(), |end| at + end);
        &start[from..to]
    };
    for at in memmem::find_iter(&start, b"\"PR\"") {
        if let Some(event) = LogEvent::of(line_at(at)) {
            state.rank_told(part, &event);
        }
    }
    let rest: Box<dyn Read> = match read {
        Ok(_) => text,
        Err(error) => Box::new(Fails(Some(error))),
    };
    Ok((Box::new(io::Cursor::new(start).chain(rest)), done))
}

/// The error that a text ended with, once it is read up to there.
struct Fails(Option<io::Error>);

impl Read for Fails {
    fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
