//! One file: its bytes copied beside its name, read back, compared, and given its name.

use super::attributes;
use super::pair::Pair;
use super::run::{Export, count};
use super::source::{ExportedFile, is_of, key, read_full};
use crate::os::error::{Error, Result};
use crate::os::sync::guard;
use crate::os::sys::retry;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Advice, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::sync::atomic::Ordering;

/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 8 << 20;
/// Zeros of this length and at this alignment are left out: they become holes.
const HOLE_BYTES: usize = 4096;
/// How often a file that changes while it is copied is copied again.
const TRIES: u32 = 3;

/// Exports `source`, which is file `name` of `pair`, as `to_name` of the directory `to`.
pub(super) fn file(
    pair: &Pair<'_>,
    mut source: ExportedFile,
    name: &OsStr,
    to: impl AsFd,
    to_name: &OsStr,
) -> Result<()> {
    let export = pair.export;
    let mut tries = 0;
    loop {
        let record = key(to_name, &pair.way, &source);
        let there = rustix::fs::statat(&to, to_name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| is_of(&stat, &source));
        if there && guard(&export.destination.journal).has(&record) {
            count(&export.counts.files);
            count(&export.counts.resumed_files);
            export.counts.bytes.fetch_add(source.size_bytes, Ordering::Relaxed);
            return export.advance(source.size_bytes * 2);
        }
        let part = format!("part-{}", source.stat.st_ino);
        let made = copy(export, &source, &part)?;
        if !source.is_unchanged()? {
            tries += 1;
            if tries == TRIES {
                let what = "it is being written: close it (or wait for its program) and export again";
                return Err(Error::Invalid(what.into()));
            }
            export.done_bytes.fetch_sub(source.size_bytes * 2, Ordering::Relaxed);
            source = ExportedFile::open(pair, name)?;
            continue;
        }
        attributes::copy(export, source.place(), &source.stat, source.mtime, made.as_fd())
            .map_err(pair.failed("write", name))?;
        let state = export.destination.state();
        rustix::fs::renameat(state, part.as_str(), &to, to_name).map_err(pair.failed("write", name))?;
        count(&export.counts.files);
        export.counts.bytes.fetch_add(source.size_bytes, Ordering::Relaxed);
        let root = export.destination.root.as_fd();
        let mut journal = guard(&export.destination.journal);
        return journal.add(record, source.size_bytes, root).map_err(pair.failed("write", name));
    }
}

/// Copies all bytes into the file `part` of the export's own directory and reads them back. What an earlier export left
/// there is compared with the file and kept as far as it is the same.
fn copy(export: &Export<'_>, source: &ExportedFile, part: &str) -> Result<OwnedFd> {
    let failed = |action| Error::io(action, part.to_owned());
    let state = export.destination.state();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = || retry(|| rustix::fs::openat(state, part, flags, Mode::from_raw_mode(0o600)));
    let to = open().map_err(failed("create"))?;
    let left = rustix::fs::fstat(&to).map_err(failed("create"))?.st_size as u64;
    if left > source.size_bytes {
        rustix::fs::ftruncate(&to, 0).map_err(failed("shorten"))?;
    }
    let mut left = left.min(source.size_bytes);
    let mut buffer = vec![0; CHUNK_BYTES.min(source.size_bytes as usize).max(1)];
    let mut old = Vec::new();
    let mut original = Hashes::default();
    let mut at = 0;
    while at < source.size_bytes {
        let data = source.next_data(at);
        if left > at && data > at && has_data(&to, at, data) {
            cut(&to, &mut left, at).map_err(failed("shorten"))?;
        }
        export.advance(data - at)?;
        at = data;
        let wanted = buffer.len().min((source.size_bytes - at) as usize);
        if wanted == 0 {
            break;
        }
        let chunk = &mut buffer[..wanted];
        if source.read_at(chunk, at)? < wanted {
            return Err(Error::Invalid("it became shorter while it was read; export again".into()));
        }
        original.add(at, chunk);
        if left > at {
            old.resize(wanted, 0);
            let found = read_full(&to, &mut old, at).map_err(failed("read"))?;
            if found < wanted || old[..] != *chunk {
                cut(&to, &mut left, at).map_err(failed("shorten"))?;
            }
        }
        if left <= at {
            write_sparse(&to, chunk, at).map_err(failed("write"))?;
        }
        at += wanted as u64;
        export.advance(wanted as u64)?;
    }
    rustix::fs::ftruncate(&to, source.size_bytes).map_err(failed("set the size of"))?;
    compare(export, source, &to, &original, part)?;
    Ok(to)
}

/// From `at` on nothing that an earlier export left counts: it must not show through the holes.
fn cut(to: &OwnedFd, left: &mut u64, at: u64) -> rustix::io::Result<()> {
    *left = 0;
    rustix::fs::ftruncate(to, at)
}

/// Whether the file may hold bytes between two offsets.
fn has_data(file: &OwnedFd, from: u64, to: u64) -> bool {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(from)) {
        Ok(data) => data < to,
        Err(errno) => errno != Errno::NXIO,
    }
}

/// Reads back what was written, from the disk where the kernel can be made to.
fn compare(export: &Export<'_>, source: &ExportedFile, to: &OwnedFd, original: &Hashes, part: &str) -> Result<()> {
    let failed = |action| Error::io(action, part.to_owned());
    if source.size_bytes >= CHUNK_BYTES as u64 {
        // Small files are synced together, later; these are large enough to be dropped from memory first.
        retry(|| rustix::fs::fdatasync(to)).map_err(failed("sync"))?;
        let _ = rustix::fs::fadvise(to, 0, None, Advice::DontNeed);
    }
    let mut buffer = Vec::new();
    let mut copied = 0;
    for (at, len, hash) in &original.chunks {
        buffer.resize(*len, 0);
        let found = read_full(to, &mut buffer, *at).map_err(failed("read back"))?;
        let again = blake3::hash(&buffer[..found]);
        if again != *hash {
            let (original, copied) = (hash.to_hex().to_string(), again.to_hex().to_string());
            // Nothing of it is to be resumed.
            let _ = rustix::fs::ftruncate(to, 0);
            return Err(Error::Copy { original, copied });
        }
        copied += *len as u64;
        export.advance(*len as u64)?;
    }
    export.advance(source.size_bytes - copied)
}

/// blake3 of each chunk that was read.
#[derive(Default)]
struct Hashes {
    chunks: Vec<(u64, usize, blake3::Hash)>,
}

impl Hashes {
    fn add(&mut self, at: u64, chunk: &[u8]) {
        self.chunks.push((at, chunk.len(), blake3::hash(chunk)));
    }
}

/// Writes `chunk` at `offset`, blocks of zeros left out.
fn write_sparse(to: &OwnedFd, chunk: &[u8], offset: u64) -> rustix::io::Result<()> {
    let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let mut from = 0;
    while from < chunk.len() {
        let block = |at: usize| &chunk[at..(at + HOLE_BYTES).min(chunk.len())];
        let mut to_end = from;
        while to_end < chunk.len() && !is_zero(block(to_end)) {
            to_end = (to_end + HOLE_BYTES).min(chunk.len());
        }
        while from < to_end {
            from += retry(|| rustix::io::pwrite(to, &chunk[from..to_end], offset + from as u64))?;
        }
        while from < chunk.len() && is_zero(block(from)) {
            from = (from + HOLE_BYTES).min(chunk.len());
        }
    }
    Ok(())
}
