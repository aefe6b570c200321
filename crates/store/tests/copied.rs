//! What `cp -a` of a pool's directories is good for that is taken while small files leave the metadata tier and come back.

mod common;

use common::life::On;
use common::{TestPool, pattern};
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use stripewise_optimisation::SMALL;
use stripewise_store::drain::DrainWatch;
use stripewise_store::fsck::{CheckFinding, CheckOptions, FindingOutcome, check};
use stripewise_store::handle::Optimisations;
use stripewise_store::small_files::{NewHead, move_small_files};
use stripewise_store::{Files, Pool, Store, Then};

const DIRECTORIES: [&str; 3] = ["names", "s0", "s1"];
const HEAD_BYTES: u64 = 2 << 20;
const MOVING: &str = "moving";

fn cp(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
}

/// Copies of each directory of a pool at some moments.
struct Moments {
    base: PathBuf,
    kept: tempfile::TempDir,
    count: usize,
}

impl Moments {
    fn take(&mut self) {
        let moment = self.kept.path().join(self.count.to_string());
        std::fs::create_dir(&moment).unwrap();
        DIRECTORIES.iter().for_each(|name| cp(&self.base.join(name), &moment.join(name)));
        self.count += 1;
    }

    /// The pool as a copy finds it that comes to each directory at the moment of that number.
    fn copy(&self, moments: [usize; 3]) -> (tempfile::TempDir, Pool) {
        let to = tempfile::tempdir().unwrap();
        for (name, moment) in DIRECTORIES.iter().zip(moments) {
            cp(&self.kept.path().join(moment.to_string()).join(name), &to.path().join(name));
        }
        let text = std::fs::read_to_string(self.base.join("pool.toml")).unwrap();
        let file = to.path().join("pool.toml");
        std::fs::write(&file, text.replace(self.base.to_str().unwrap(), to.path().to_str().unwrap())).unwrap();
        let pool = Pool::load(&file).unwrap();
        (to, pool)
    }
}

/// Takes a moment once something is copied, and another once something is read back.
impl DrainWatch for Moments {
    fn progress(&mut self, _: &str, done: u64, total: u64) -> Then {
        if (self.count == 1 && done > 0) || (self.count == 2 && done > total / 2) {
            self.take();
        }
        Then::On
    }
}

fn make(files: &Arc<Files>, name: &str, bytes: &[u8]) {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = files.open_file(Path::new(name), flags, Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(file.write_at(&[std::io::IoSlice::new(bytes)], 0).unwrap(), bytes.len());
    file.close().unwrap();
}

/// The files that a check leaves damaged, after one has taken over the copy.
fn damaged(pool: &Pool) -> HashSet<String> {
    let found: Mutex<Vec<CheckFinding>> = Mutex::default();
    for rebind in [true, false] {
        check(&Pool::load(&pool.file).unwrap(), &CheckOptions { rebind, ..CheckOptions::default() }, &found).unwrap();
    }
    let found = found.into_inner().unwrap();
    let left = found.iter().filter(|finding| finding.outcome == FindingOutcome::Left);
    left.filter_map(|finding| finding.path.as_ref()).map(|path| path.to_string_lossy().into_owned()).collect()
}

fn read(store: &Arc<Store>, name: &str) -> stripewise_store::Result<Vec<u8>> {
    let inode = store.lookup(Path::new(name))?.expect("each name is in each copy");
    let mut bytes = vec![0; inode.size_bytes()? as usize];
    let mut done = 0;
    while done < bytes.len() {
        match inode.read_at(&mut bytes[done..], done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Each directory is copied at another moment of the move: before it, in the middle of what is copied and of what is read back, and after
/// it.
#[test]
fn a_copy_that_is_not_of_one_moment_has_each_file_whole_or_a_check_names_it() {
    for leaves in [true, false] {
        let pool = TestPool::new(2);
        let files = Files::open(pool.pool.clone()).unwrap();
        let mut small = Optimisations::default();
        small.enable(SMALL.index, HEAD_BYTES).unwrap();
        files.store().change_hints(Path::new("."), |hints| hints.set(None, small)).unwrap();
        let contents =
            [(MOVING, pattern(1536 << 10, 1)), ("small", pattern(5000, 2)), ("large", pattern(2500 << 10, 3))];
        contents.iter().for_each(|(name, bytes)| make(&files, name, bytes));
        let handle = files.store().existing(Path::new(MOVING)).unwrap().unwrap().handle();
        let head = |head_bytes| NewHead { path: MOVING.into(), handle, head_bytes };
        if !leaves {
            move_small_files(&pool.pool.file, &[head(0)], &mut On).unwrap();
        }
        let base = pool.directory.path().to_owned();
        let mut moments = Moments { base, kept: tempfile::tempdir().unwrap(), count: 0 };
        moments.take();
        let head_bytes = if leaves { 0 } else { HEAD_BYTES };
        let moved = move_small_files(&pool.pool.file, &[head(head_bytes)], &mut moments).unwrap();
        moments.take();
        assert_eq!((moved.moved_files, moments.count), (1, 4), "{:?}", moved.staying);
        let (mut whole, mut named) = (0, 0);
        for number in 0..4 * 4 * 4 {
            let at = [number / 16, number / 4 % 4, number % 4];
            let (_copy, copied) = moments.copy(at);
            let damaged = damaged(&copied);
            let store = Store::of_file(&copied.file).unwrap();
            for (name, bytes) in &contents {
                let is_whole = read(&store, name).is_ok_and(|found| found == *bytes);
                assert!(is_whole || damaged.contains(*name), "leaves: {leaves}, moments {at:?}: {name} {damaged:?}");
                assert!(is_whole || *name == MOVING, "leaves: {leaves}, moments {at:?}: {name} does not move");
            }
            *if damaged.is_empty() { &mut whole } else { &mut named } += 1;
            assert!(damaged.is_empty() || at.iter().any(|moment| *moment != at[0]), "{at:?}: of one moment");
        }
        assert!(whole > 0 && named > 0, "leaves: {leaves}: {whole} whole, {named} named");
    }
}
