//! fio's log of requests (`--write_iolog`), versions 2 and 3: what it issued, not how long it took.

use crate::Importer;
use crate::error::ImportError;
use crate::lacks::Lacks;
use crate::lines::Lines;
use crate::log::Log;
use crate::out::Out;
use crate::sink::{Sink, Summary};
use stripewise_trace::{Api, Operation, Record};

/// Reads what `fio --write_iolog` writes.
pub struct Fio;

const HEAD: &[u8] = b"fio version ";

/// What a line asks for.
enum Line<'a> {
    /// The name of a file, which nothing is done to yet.
    Add(&'a [u8]),
    /// Version 2: this long after the `wait` before, in microseconds.
    Wait(u64),
    Do {
        file: &'a [u8],
        op: Operation,
        offset: u64,
        size: u64,
    },
}

impl Importer for Fio {
    fn name(&self) -> &'static str {
        "fio"
    }

    fn recognises(&self, start: &[u8]) -> bool {
        start.starts_with(HEAD)
    }

    /// O(length); memory for the names.
    fn import(&self, log: &Log, sink: &mut dyn Sink) -> Result<Summary, ImportError> {
        let mut lines = Lines::new(log)?;
        let mut out = Out::new(log, sink, self.name());
        let version = match lines.next()? {
            Some(b"fio version 3 iolog") => 3,
            Some(b"fio version 2 iolog") => 2,
            Some(line) if line.starts_with(HEAD) => {
                let found = line[HEAD.len()..].split(|byte| *byte == b' ').next().unwrap_or_default();
                return Err(ImportError::Version {
                    path: log.path().to_owned(),
                    format: self.name(),
                    found: String::from_utf8_lossy(&found[..found.len().min(16)]).into_owned(),
                    known: "2 and 3",
                });
            }
            _ => {
                let why = "its first line is not `fio version 3 iolog`";
                return Err(ImportError::damaged(log.path(), self.name(), 0, why));
            }
        };
        out.summary.lacks = Lacks::RANKS | Lacks::PIDS | Lacks::DURATIONS;
        let program = out.program(b"fio")?;
        let (mut now_ns, mut bad, mut first_bad, mut next_progress) = (0u64, 0u64, 0u64, 0);
        while let Some(line) = lines.next()? {
            let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
            let stamp_us = if version == 3 { words.next().map(number) } else { None };
            let what = if stamp_us == Some(None) { None } else { parse(words, version) };
            if let Some(Some(us)) = stamp_us {
                now_ns = us.saturating_mul(1000);
            }
            match what {
                _ if line.is_empty() => {}
                None => {
                    bad += 1;
                    first_bad = if bad == 1 { lines.number } else { first_bad };
                }
                Some(Line::Add(file)) => drop(out.file(file)?),
                Some(Line::Wait(us)) => now_ns = now_ns.saturating_add(us.saturating_mul(1000)),
                Some(Line::Do { file, op, offset, size }) => {
                    let file = out.file(file)?;
                    // Version 2 has an order and no times.
                    now_ns = if version == 2 { now_ns.saturating_add(1) } else { now_ns };
                    out.row(Record {
                        offset,
                        size,
                        start_ns: now_ns,
                        end_ns: now_ns,
                        file,
                        program,
                        api: Api::Posix as u8,
                        op: op as u8,
                        ..Record::default()
                    })?;
                }
            }
            if lines.done_bytes() >= next_progress {
                next_progress = lines.done_bytes() + (1 << 20);
                out.progress(lines.done_bytes());
            }
        }
        if version == 2 {
            out.summary.lacks |= Lacks::TIMES;
        }
        lines.note_end(&mut out.summary);
        if bad + lines.too_long > 0 {
            out.summary.lacks |= Lacks::DAMAGED;
            let first = if bad > 0 { format!(", the first is line {first_bad}") } else { String::new() };
            out.summary.note(format!("{} lines were not understood{first}", bad + lines.too_long));
        }
        out.finish()
    }
}

fn parse<'a>(mut words: impl Iterator<Item = &'a [u8]>, version: u32) -> Option<Line<'a>> {
    let (file, action) = (words.next()?, words.next()?);
    let op = match action {
        b"add" => return words.next().is_none().then_some(Line::Add(file)),
        b"open" => Operation::Open,
        b"close" => Operation::Close,
        b"read" => Operation::Read,
        b"write" => Operation::Write,
        b"sync" | b"datasync" => Operation::Sync,
        b"trim" => Operation::Allocate,
        b"wait" if version == 2 => return Some(Line::Wait(number(words.next()?)?)),
        _ => return None,
    };
    let (mut offset, mut size) = (0, 0);
    if !matches!(op, Operation::Open | Operation::Close) {
        (offset, size) = (number(words.next()?)?, number(words.next()?)?);
    }
    words.next().is_none().then_some(Line::Do { file, op, offset, size })
}

fn number(word: &[u8]) -> Option<u64> {
    (!word.is_empty() && word.iter().all(u8::is_ascii_digit)).then_some(())?;
    std::str::from_utf8(word).ok()?.parse().ok()
}
