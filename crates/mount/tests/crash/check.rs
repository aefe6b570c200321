//! Looks at a pool after a crash: every byte that had been synced is there, and no file has wrong bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use stripewise_store::fsck::{self, CheckFinding, CheckOptions, DamageKind, FindingOutcome};
use stripewise_store::{Inode, Pool, Store};

use crate::script::{Expected, FileState};
use crate::trace::FORKING;

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Bytes that had been synced, and were there.
    pub synced_bytes: u64,
    pub files: u64,
    /// Bytes that had never been synced and gave an error.
    pub unreadable_bytes: u64,
    /// Datafiles that were gone, with bytes that had never been synced.
    pub forgotten: u64,
    /// Datafiles, or files, that were found shorter than was recorded: a power cut took what had never been synced.
    pub short: u64,
}

/// What must be readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readable {
    /// Everything.
    All,
    /// What was synced, but for what `stripewise fsck` has to put right first, and says so.
    UntilMended,
}

/// Whether an error is one of those that fsck is for: a change of owner was interrupted, which only a run that
/// trusts the whole pool may finish; or a datafile is gone that was being made, or ends before bytes that were never
/// synced, which only fsck may give up.
fn is_for_fsck(error: &str) -> bool {
    error.contains("belongs to user") || error.contains("is missing: bytes of this file") || is_short(error)
}

fn is_short(error: &str) -> bool {
    error.contains("had been recorded")
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Seen) {
        self.synced_bytes += other.synced_bytes;
        self.files += other.files;
        self.unreadable_bytes += other.unreadable_bytes;
        self.forgotten += other.forgotten;
        self.short += other.short;
    }
}

/// What can be read of a file.
struct Content {
    /// `None` for bytes that give an error.
    bytes: Vec<Option<u8>>,
    /// Its length is not certain.
    may_be_longer: bool,
    /// Why some give an error, or it may be longer.
    failure: Option<String>,
}

fn content(inode: &Inode) -> Result<Content, String> {
    let size = inode.size_bytes().map_err(|error| format!("its size: {error}"))? as usize;
    let mut failure = inode.certain_size_bytes().err().map(|error| error.to_string());
    let may_be_longer = failure.is_some();
    // No reader must take this for its end then.
    if let (Some(failure), Ok(_)) = (&failure, inode.read_at(&mut [0], size as u64)) {
        return Err(format!("it seems to end at {size} bytes, though {failure}"));
    }
    let mut out = Vec::with_capacity(size);
    let mut buffer = [0xee; 512];
    while out.len() < size {
        let wanted = (size - out.len()).min(512 - out.len() % 512);
        match inode.read_at(&mut buffer[..wanted], out.len() as u64) {
            Ok(0) => return Err(format!("it ends at {} of {size} bytes", out.len())),
            Ok(count) => out.extend(buffer[..count].iter().copied().map(Some)),
            Err(error) => {
                failure = Some(error.to_string());
                out.resize(out.len() + wanted, None);
            }
        }
    }
    Ok(Content { bytes: out, may_be_longer, failure })
}

/// Whether a file's bytes are some that it may have.
fn fits(found: &Content, state: &FileState, readable: Readable) -> Result<Seen, String> {
    let failure = found.failure.as_deref();
    let for_fsck = failure.is_some_and(is_for_fsck);
    let (found, may_be_longer) = (&found.bytes, found.may_be_longer && for_fsck);
    let synced = state.synced.as_deref().unwrap_or_default();
    let lengths = || std::iter::once(synced.len()).chain(state.later.iter().map(Vec::len));
    let (least, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
    let least = if may_be_longer { 0 } else { least };
    if !(least..=most).contains(&found.len()) {
        return Err(format!(
            "it is {} bytes long, and was never shorter than {least} or longer than {most}",
            found.len()
        ));
    }
    let short = u64::from(failure.is_some_and(is_short));
    let mut seen = Seen { files: 1, short, ..Seen::default() };
    for (at, byte) in found.iter().enumerate() {
        let certain = synced.get(at);
        let Some(byte) = byte else {
            if readable == Readable::All || (certain.is_some() && !for_fsck) {
                return Err(format!("byte {at} cannot be read, synced was {certain:?}"));
            }
            seen.unreadable_bytes += 1;
            continue;
        };
        let known = certain == Some(byte) || state.later.iter().any(|image| image.get(at) == Some(byte));
        // Cut off, and there again: its space was new then.
        let mut cut = certain.is_none();
        let regrown = state.later.iter().any(|image| match image.get(at) {
            None => {
                cut = true;
                false
            }
            Some(_) => cut,
        });
        if !known && !(*byte == 0 && (certain.is_none() || regrown)) {
            let end = found[at..].iter().take_while(|other| **other == Some(*byte)).count() + at;
            return Err(format!("byte {at} is {byte} (as up to {end} of {}), synced was {certain:?}", found.len()));
        }
        seen.synced_bytes += u64::from(certain == Some(byte));
    }
    Ok(seen)
}

/// Files below `directory`, by their paths from there.
fn listing(directory: &Path) -> BTreeMap<String, std::fs::FileType> {
    fn walk(base: &Path, below: &Path, out: &mut BTreeMap<String, std::fs::FileType>) {
        for entry in std::fs::read_dir(base.join(below)).expect("the tree can be read").flatten() {
            let path = below.join(entry.file_name());
            let kind = entry.file_type().expect("the tree can be read");
            if kind.is_dir() {
                walk(base, &path, out);
            } else {
                out.insert(path.to_string_lossy().into_owned(), kind);
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(directory, Path::new(""), &mut out);
    out
}

/// Finds the file behind a name and compares it with what it may be.
fn look(store: &Arc<Store>, path: &str, expected: &Expected, readable: Readable) -> Result<(Vec<usize>, Seen), String> {
    let about = |what: String| format!("{path}: {what}");
    let inode = match store.lookup(Path::new(path)) {
        Err(error) if readable == Readable::UntilMended && is_for_fsck(&error.to_string()) => {
            return Ok((expected.allowed(path).into_iter().flatten().collect(), Seen::default()));
        }
        inode => inode.map_err(|error| about(error.to_string()))?,
    };
    let found = match inode {
        Some(inode) => content(&inode).map_err(about)?,
        None => {
            let bytes =
                std::fs::read(store.pool().namespace.join("tree").join(path)).map_err(|e| about(e.to_string()))?;
            Content { bytes: bytes.into_iter().map(Some).collect(), may_be_longer: false, failure: None }
        }
    };
    let (mut why, mut fitting, mut looked_at) = (String::new(), Vec::new(), None);
    for file in expected.allowed(path).into_iter().flatten() {
        match fits(&found, &expected.files[file], readable) {
            Ok(seen) => {
                // Which of them it is cannot be told: zeros may be any file's.
                fitting.push(file);
                looked_at.get_or_insert(seen);
            }
            Err(reason) => why = format!("{why}; {reason}"),
        }
    }
    if let Some(seen) = looked_at {
        return Ok((fitting, seen));
    }
    let failure = found.failure.map(|failure| format!(" ({failure})")).unwrap_or_default();
    Err(about(format!("what is found is none of what it may be{why}{failure}")))
}

fn look_at_all(store: &Arc<Store>, expected: &Expected, readable: Readable) -> Result<Seen, String> {
    let found = listing(&store.pool().namespace.join("tree"));
    let mut seen = Seen::default();
    let mut reached = Vec::new();
    for path in found.keys() {
        if !expected.names.contains_key(path) {
            return Err(format!("{path} has appeared"));
        }
        let (files, bytes) = look(store, path, expected, readable)?;
        seen += bytes;
        reached.extend(files);
    }
    for path in expected.names.keys() {
        if !found.contains_key(path) && !expected.allowed(path).contains(&None) {
            return Err(format!("{path} is lost"));
        }
    }
    for file in expected.reachable() {
        if !reached.contains(&file) {
            return Err(format!("file {file} has no name any more"));
        }
    }
    Ok(seen)
}

/// What puts a pool in order after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mender {
    /// `stripewise fsck`.
    Fsck,
    /// The next writers of the files.
    Writers,
}

/// Checks the pool of `pool_file`: as it is found, when it has been put in order, and in use.
pub fn check(pool_file: &Path, expected: &Expected, mender: Mender) -> Result<Seen, String> {
    let _no_forks = FORKING.read().unwrap_or_else(PoisonError::into_inner);
    let pool = Pool::load(pool_file).map_err(|error| error.to_string())?;
    let mut seen = look_at_all(&open(&pool)?, expected, Readable::UntilMended)?;
    if mender == Mender::Fsck {
        let (forgotten, short) = mend(&pool)?;
        seen.forgotten += forgotten;
        seen.short += short;
    }
    let store = open(&pool)?;
    let paths: Vec<String> = listing(&pool.namespace.join("tree")).into_keys().collect();
    // What only fsck can put right has been told apart above.
    let tolerated = |reason: &str| mender == Mender::Writers && is_for_fsck(reason);
    for path in &paths {
        match write_again(&store, path) {
            Err(reason) if tolerated(&reason) => {}
            done => done?,
        }
    }
    let readable = if mender == Mender::Fsck { Readable::All } else { Readable::UntilMended };
    seen += look_at_all(&store, expected, readable).map_err(|reason| format!("in order again: {reason}"))?;
    for path in &paths {
        match grow(&store, path) {
            Err(reason) if tolerated(&reason) => {}
            done => done.map_err(|reason| format!("{path}, used again: {reason}"))?,
        }
    }
    Ok(seen)
}

fn open(pool: &Pool) -> Result<Arc<Store>, String> {
    Store::open(pool.clone()).map_err(|error| error.to_string())
}

/// Runs fsck until it has nothing to do; how many datafiles with bytes that were never synced it had to forget, and of
/// how many it had to forget the end.
fn mend(pool: &Pool) -> Result<(u64, u64), String> {
    let run = |options: &CheckOptions| {
        let found: Mutex<Vec<CheckFinding>> = Mutex::default();
        let report = fsck::check(pool, options, &found).map_err(|error| format!("fsck: {error}"))?;
        Ok::<_, String>((report.total(), found.into_inner().expect("nothing has panicked")))
    };
    let (total, found) = run(&CheckOptions::default())?;
    // What is gone for good and had been synced has been found before this.
    let left = |kind| found.iter().filter(|f| f.outcome == FindingOutcome::Left && f.kind == kind).count() as u64;
    let (missing, short) = (left(DamageKind::MissingDatafile), left(DamageKind::ShortDatafile));
    if total.left != missing + short || total.in_use > 0 {
        return Err(format!("fsck cannot mend it: {found:?}"));
    }
    if missing + short > 0 {
        let (total, found) = run(&CheckOptions { forget_missing: true, ..CheckOptions::default() })?;
        if total.left + total.in_use > 0 {
            return Err(format!("fsck cannot mend it: {found:?}"));
        }
    }
    let (total, found) = run(&CheckOptions::default())?;
    if total.mended + total.left + total.in_use > 0 {
        return Err(format!("fsck, run again, still finds {found:?}"));
    }
    Ok((missing, short))
}

/// A writer comes and goes, which puts the file in order.
fn write_again(store: &Arc<Store>, path: &str) -> Result<(), String> {
    let about = |error: stripewise_store::Error| format!("{path}, being written again: {error}");
    let Some(inode) = store.lookup(Path::new(path)).map_err(about)? else { return Ok(()) };
    inode.register_writer().map_err(about)?;
    inode.release_writer().map_err(about)
}

/// What is behind the end is a hole, whatever a crash has left there.
fn grow(store: &Arc<Store>, path: &str) -> Result<(), String> {
    const MORE: usize = 100_000;
    let Some(inode) = store.lookup(Path::new(path)).map_err(|error| error.to_string())? else { return Ok(()) };
    let inode = &inode;
    let Content { bytes: before, failure: None, .. } = content(inode)? else { return Ok(()) };
    let failed = |error: stripewise_store::Error| error.to_string();
    inode.truncate((before.len() + MORE) as u64).map_err(failed)?;
    let after = content(inode)?.bytes;
    if let Some(at) = after[before.len()..].iter().position(|byte| *byte != Some(0)) {
        let byte = after[before.len() + at];
        return Err(format!("behind the old end {}, byte {} is {byte:?}", before.len(), before.len() + at));
    }
    if after[..before.len()] != before[..] {
        return Err("growing has changed it".into());
    }
    inode.register_writer().map_err(failed)?;
    let put = inode.write_at(&[7; 30_000], before.len() as u64).map_err(failed)?;
    inode.sync(false).map_err(failed)?;
    inode.release_writer().map_err(failed)?;
    let Content { bytes: written, failure, .. } = content(inode)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let whole = written[before.len()..before.len() + put].iter().all(|byte| *byte == Some(7));
    if whole && written[..before.len()] == before[..] { Ok(()) } else { Err("what is written now is not there".into()) }
}
