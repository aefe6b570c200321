//! The decision maker: which paths the requests of an open take.
//!
//! It has what the way in says of the open ([`OpenTerms`]), what the parser has unpacked of the handle
//! ([`crate::format::parser::AskedPaths`]), the layout, whether the pool is one of several users, the memory that is left, and the
//! file's writers. Each path has its part of the decision in its own file. Here they are put one over the other, and what was decided is
//! recorded, with a reason for each path that the handle asks for and the open does not take ([`crate::file::paths::record`]).

use crate::file::inode::Inode;
use crate::file::paths::cached::Cached;
use crate::file::paths::open_terms::{KernelPages, OpenTerms};
use crate::file::paths::path::IoPath;
use crate::file::paths::placed::PlacedPath;
use crate::file::paths::readahead::ReadAhead;
use crate::file::paths::record::{NotTaken, OpenRecord, PathKind, PathState};
use crate::file::paths::writebehind::WriteBehind;
use crate::file::placed_file::PlacedFile;
use std::sync::Arc;

/// The path of the requests of one open of `inode`; `None`: straight to the places. No system call for a file without hints; one
/// store, and a load for each datafile until one is found.
pub(crate) fn decide(inode: &Arc<Inode>, terms: &OpenTerms) -> Option<Box<dyn IoPath>> {
    // A handle that cannot be read is told of by the first request.
    let file = inode.known_file().ok()?;
    let asked = *file.asked();
    let mut record = places(&file, OpenRecord::default());
    if terms.pages == KernelPages::ServesItself {
        record = record.served_by_kernel();
    }
    let has_gate = inode.store.plane().door().has_gate();
    record = record.with(PathKind::Class, file.class().decide(terms, has_gate));
    record = record.with(PathKind::Direct, file.direct().decide(file.servers_that_pass_caches()));
    let mut path: Option<Box<dyn IoPath>> = None;
    if let Some(hint) = asked.write_behind {
        let (is_on_the_way, state) = WriteBehind::<PlacedPath>::decide(inode, &file, hint, terms);
        record = record.with(PathKind::WriteBehind, state);
        if is_on_the_way {
            path = Some(Box::new(WriteBehind::over(PlacedPath, inode.clone(), hint)));
        }
    }
    if let Some(hint) = asked.read_ahead {
        let (is_on_the_way, state) = ReadAhead::<PlacedPath>::decide(inode, &file, hint, terms);
        record = record.with(PathKind::ReadAhead, state);
        if is_on_the_way {
            path = Some(Box::new(ReadAhead::over(PlacedPath, inode.clone(), hint)));
        }
    }
    if asked.cached.is_some() {
        let below = || path.take().unwrap_or_else(|| Box::new(PlacedPath));
        let state = match Cached::decide(inode, terms, below) {
            Ok(cached) => {
                path = Some(Box::new(cached));
                PathState::Taken
            }
            Err(reason) => PathState::Not(reason),
        };
        record = record.with(PathKind::Cached, state);
    }
    inode.store.buffer.opens.put(inode.key(), terms.writes, record);
    path
}

/// `record` with where the bytes are: in the inode, on the servers, or both.
fn places(file: &PlacedFile, record: OpenRecord) -> OpenRecord {
    let head_bytes = file.placement().layout.head_in_inode_bytes();
    let inline = match file.asked().small_bytes {
        _ if head_bytes > 0 => PathState::Taken,
        Some(_) => PathState::Not(NotTaken::NoHead),
        None => PathState::NotAsked,
    };
    let striped = match head_bytes {
        _ if file.whole_inode().is_some() => PathState::NotAsked,
        1.. if !file.striped().has_datafile() => PathState::Not(NotTaken::NoDatafile),
        _ => PathState::Taken,
    };
    record.with(PathKind::Inline, inline).with(PathKind::Striped, striped)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::backend::plane::PlaneOptions;
    use crate::file::files::Files;
    use crate::file::open_file::File;
    use crate::file::open_inode::OpenInode;
    use crate::file::paths::direct::Direct;
    use crate::format::handle::Optimisations;
    use crate::pool::pool_file::{Pool, PoolSpec, TierSpec};
    use rustix::fs::{Mode, OFlags};
    use std::io::{IoSlice, IoSliceMut};
    use std::path::Path;
    use std::sync::mpsc::channel;
    use stripewise_control::{Door, FileId, Gate, Request};
    use stripewise_optimisation::{OptimisationSetting, OptimisationType, SMALL, TABLE};

    const NOT: fn(NotTaken) -> PathState = PathState::Not;

    struct OpenGate;

    impl Gate for OpenGate {
        fn enter(&self, _: FileId, _: &Request) {}
    }

    /// A pool of two servers below `servers`, whose files get `settings`.
    struct Tried {
        directory: tempfile::TempDir,
        files: Arc<Files>,
    }

    impl Tried {
        fn new(settings: &[&str]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let servers = directory.path().to_owned();
            Self::made(directory, &servers, false, Door::default(), settings)
        }

        fn made(directory: tempfile::TempDir, servers: &Path, is_shared: bool, door: Door, settings: &[&str]) -> Self {
            let base = directory.path();
            let servers = (0..2).map(|number| servers.join(format!("s{number}"))).collect();
            let spec = PoolSpec {
                name: "test".into(),
                mount: base.join("mount"),
                namespace: base.join("names"),
                default_width_bytes: Some(4096),
                tiers: vec![TierSpec { name: "disk".into(), servers, ..TierSpec::default() }],
            };
            let init = if is_shared { Pool::init_shared } else { Pool::init };
            let pool = init(&base.join("pool.toml"), &spec).unwrap();
            let files = Files::open_with(pool, PlaneOptions { door, ..PlaneOptions::default() }).unwrap();
            let tried = Self { directory, files };
            tried.hint(settings);
            tried
        }

        fn hint(&self, settings: &[&str]) {
            let mut given = Optimisations::default();
            for text in settings {
                let (index, parameters) = OptimisationSetting::parse(text).unwrap().pack();
                given.enable(index, parameters).unwrap();
            }
            let names = self.files.store().hints(Path::new(".")).unwrap().hints().len();
            self.files
                .store()
                .change_hints(Path::new("."), |hints| {
                    assert_eq!(hints.remove(None, None), names > 0);
                    hints.set(None, given)
                })
                .unwrap();
        }

        fn open(&self, name: &str, flags: OFlags) -> File {
            self.files.open_file(Path::new(name), flags, Mode::from_raw_mode(0o600)).unwrap()
        }

        /// Makes a file of `len` bytes, the first by itself: it keeps its head.
        fn make(&self, name: &str, len: usize) -> Arc<Inode> {
            let file = self.open(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL);
            for (from, to) in [(0, 1), (1, len)] {
                assert_eq!(put(&file, from as u64, to - from), to - from);
            }
            file.close().unwrap();
            self.inode(name)
        }

        fn inode(&self, name: &str) -> Arc<Inode> {
            self.files.store().lookup(Path::new(name)).unwrap().unwrap()
        }

        /// What became of a path of the last open of a file.
        fn state(&self, name: &str, writes: bool, kind: PathKind) -> PathState {
            let place = self.files.store().open_place(Path::new(name)).unwrap();
            let last = self.files.store().last_opens(rustix::fd::AsFd::as_fd(&place)).unwrap();
            if writes { last.written } else { last.read }.unwrap().state(kind)
        }

        /// What becomes of a path of an open that is closed at once.
        fn opened(&self, name: &str, terms: OpenTerms, kind: PathKind) -> PathState {
            drop(OpenInode::opened(self.inode(name), &terms));
            self.state(name, terms.writes, kind)
        }
    }

    fn put(file: &File, offset: u64, len: usize) -> usize {
        file.write_at(&[IoSlice::new(&vec![7; len])], offset).unwrap()
    }

    /// Reads piece after piece, so that what comes next is fetched.
    fn read_on(file: &File, count: u64) {
        for number in 0..count {
            let mut buffer = [0; 2048];
            file.read_at(&mut [IoSliceMut::new(&mut buffer)], number * 2048).unwrap();
        }
    }

    const READS: OpenTerms =
        OpenTerms { writes: false, notes_reads: false, at_once: false, appends: false, pages: KernelPages::MayKeep };
    const WRITES: OpenTerms = OpenTerms { writes: true, ..READS };

    #[test]
    fn what_nothing_keeps_from_its_paths_takes_all_of_them() {
        let door = Door::default().with_gate(Arc::new(OpenGate));
        let directory = tempfile::tempdir().unwrap();
        let servers = directory.path().to_owned();
        let every = ["readahead=64K", "writebehind=64K", "cached", "class=1"];
        let tried = Tried::made(directory, &servers, false, door, &every);
        tried.make("f", 100_000);
        for (terms, taken) in [
            (READS, &[PathKind::Striped, PathKind::Cached, PathKind::Class][..]),
            (WRITES, &[PathKind::Striped, PathKind::WriteBehind, PathKind::Class]),
        ] {
            for (kind, name) in PathKind::ALL {
                let state = tried.opened("f", terms, kind);
                assert_eq!(state == PathState::Taken, taken.contains(&kind), "{name}: {state:?}");
            }
        }
        // Nothing is fetched before a program reads, and whether there is a writer then is not known now.
        assert_eq!(tried.opened("f", READS, PathKind::ReadAhead), NOT(NotTaken::NotYet));
        // Of an open that is there and one that is closed the last one counts, each kind for itself.
        let read = tried.open("f", OFlags::RDONLY);
        assert_eq!(tried.state("f", false, PathKind::Cached), NOT(NotTaken::NoMount));
        read_on(&read, 20);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), PathState::Taken);
        let written = tried.open("f", OFlags::WRONLY);
        read_on(&read, 40);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), NOT(NotTaken::Writer));
        assert_eq!(tried.opened("f", READS, PathKind::Cached), NOT(NotTaken::Writer));
        put(&written, 0, 10);
        assert_eq!(tried.state("f", true, PathKind::WriteBehind), PathState::Taken);
        // One that reads nothing has not found out that there is a writer.
        let other = tried.open("f", OFlags::RDONLY);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), NOT(NotTaken::NotYet));
        read_on(&other, 4);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), NOT(NotTaken::Writer));
        written.close().unwrap();
        read_on(&tried.open("f", OFlags::RDONLY), 20);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), PathState::Taken);
    }

    #[test]
    fn what_was_fetched_for_all_opens_counts_for_one_that_it_serves() {
        let tried = Tried::new(&["readahead=64K"]);
        tried.make("f", 1 << 20);
        let opens: Vec<File> = (0..2).map(|_| tried.open("f", OFlags::RDONLY)).collect();
        let read = |file: &File, number: u64| {
            file.read_at(&mut [IoSliceMut::new(&mut [0; 2048])], number * 2048).unwrap();
        };
        // Each has every second piece, so that none goes on where it ended.
        (0..64).for_each(|number| read(&opens[number as usize % 2], number));
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), PathState::Taken);
        let late = tried.open("f", OFlags::RDONLY);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), NOT(NotTaken::NotYet));
        read(&late, 64);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), PathState::Taken, "it was there already");
    }

    #[test]
    fn a_file_that_the_kernel_serves_is_told_apart_without_any_hint() {
        let tried = Tried::new(&[]);
        tried.make("f", 100_000);
        for (terms, writes) in [(READS, false), (WRITES, true)] {
            for (pages, is_served) in [(KernelPages::MayKeep, false), (KernelPages::ServesItself, true)] {
                drop(OpenInode::opened(tried.inode("f"), &OpenTerms { pages, ..terms }));
                let place = tried.files.store().open_place(Path::new("f")).unwrap();
                let last = tried.files.store().last_opens(rustix::fd::AsFd::as_fd(&place)).unwrap();
                let last = if writes { last.written } else { last.read }.unwrap();
                assert_eq!(last.is_served_by_kernel(), is_served);
                assert_eq!(last.state(PathKind::Striped), PathState::Taken, "where the bytes are");
            }
        }
    }

    /// The paths but `striped`, which all files have, that an open of a file with one of these words is asked for.
    fn asked_for(index: u32, parameters: u64) -> Vec<&'static str> {
        let tried = Tried::new(&[]);
        let mut given = Optimisations::default();
        given.enable(index, parameters).unwrap();
        tried.files.store().change_hints(Path::new("."), |hints| hints.set(None, given)).unwrap();
        tried.make("f", 100_000);
        let asked = |(kind, _): &(PathKind, &str)| {
            *kind != PathKind::Striped && tried.opened("f", READS, *kind) != PathState::NotAsked
        };
        PathKind::ALL.iter().filter(|path| asked(path)).map(|path| path.1).collect()
    }

    #[test]
    fn each_optimisation_is_one_path_and_each_path_but_that_to_the_servers_one_optimisation() {
        let mut paths = vec![PathKind::ALL[PathKind::Striped as usize].1];
        for of in TABLE {
            let (index, parameters) = OptimisationSetting::parse(of.name).unwrap().pack();
            // Small files are in their inodes; all others are called as their optimisation.
            let path = if of.index == SMALL.index { "inline" } else { of.name };
            assert_eq!(asked_for(index, parameters), [path], "{}", of.name);
            paths.push(path);
        }
        let mut all = PathKind::ALL.map(|path| path.1);
        paths.sort_unstable();
        all.sort_unstable();
        assert_eq!(paths, all);
    }

    #[test]
    fn what_this_release_does_not_understand_is_no_path() {
        // Hints of those that promise something of the bytes would leave the file for reading alone (tests/later_releases.rs).
        for index in (0..16).filter(|index| OptimisationType::of_index(*index).is_none()) {
            assert_eq!(asked_for(index, 1), [""; 0], "{index}");
        }
        for of in TABLE {
            assert_eq!(asked_for(of.index, (1 << 59) - 1), [""; 0], "{}", of.name);
        }
    }

    #[test]
    fn each_open_says_what_it_does_not_take_by_what_it_is() {
        let tried = Tried::new(&["readahead=64K", "writebehind=64K", "cached=200K", "class=1"]);
        tried.make("f", 100_000);
        let with = |pages| OpenTerms { pages, ..READS };
        let cases = [
            (WRITES, PathKind::ReadAhead, NotTaken::ForWriting),
            (WRITES, PathKind::Cached, NotTaken::ForWriting),
            (READS, PathKind::WriteBehind, NotTaken::ForReading),
            (READS, PathKind::Class, NotTaken::Gate),
            (with(KernelPages::NoMount), PathKind::Cached, NotTaken::NoMount),
            (with(KernelPages::PastThem), PathKind::Cached, NotTaken::PastPages),
            (with(KernelPages::WritesBack), PathKind::Cached, NotTaken::WritesBack),
            (with(KernelPages::ServesItself), PathKind::Cached, NotTaken::KernelServes),
            (with(KernelPages::ServesItself), PathKind::ReadAhead, NotTaken::KernelServes),
            (with(KernelPages::ServesItself), PathKind::Class, NotTaken::KernelServes),
            (OpenTerms { pages: KernelPages::ServesItself, ..WRITES }, PathKind::WriteBehind, NotTaken::KernelServes),
            (OpenTerms { pages: KernelPages::WritesBack, ..WRITES }, PathKind::WriteBehind, NotTaken::WritesBack),
            (OpenTerms { at_once: true, ..WRITES }, PathKind::WriteBehind, NotTaken::AtOnce),
            (OpenTerms { appends: true, ..WRITES }, PathKind::WriteBehind, NotTaken::Appends),
        ];
        for (terms, kind, reason) in cases {
            assert_eq!(tried.opened("f", terms, kind), NOT(reason), "{terms:?}");
        }
        for (flags, reason) in [(OFlags::DSYNC, NotTaken::AtOnce), (OFlags::APPEND, NotTaken::Appends)] {
            drop(tried.open("f", OFlags::WRONLY | flags));
            assert_eq!(tried.state("f", true, PathKind::WriteBehind), NOT(reason));
        }
        tried.make("large", 300_000);
        assert_eq!(tried.opened("large", READS, PathKind::Cached), NOT(NotTaken::TooLarge));
    }

    #[test]
    fn each_open_says_what_it_does_not_take_by_where_the_bytes_are() {
        let tried = Tried::new(&["small=8K", "cached", "readahead=64K", "writebehind=64K"]);
        tried.make("head", 4000);
        let cases = [
            (READS, PathKind::Cached, NotTaken::InInode),
            (READS, PathKind::ReadAhead, NotTaken::NoDatafile),
            (WRITES, PathKind::WriteBehind, NotTaken::InInode),
            (READS, PathKind::Striped, NotTaken::NoDatafile),
        ];
        for (terms, kind, reason) in cases {
            assert_eq!(tried.opened("head", terms, kind), NOT(reason));
        }
        assert_eq!(tried.opened("head", READS, PathKind::Inline), PathState::Taken);
        tried.make("both", 100_000);
        for kind in [PathKind::Inline, PathKind::Striped] {
            assert_eq!(tried.opened("both", READS, kind), PathState::Taken);
        }
        assert_eq!(tried.opened("both", READS, PathKind::ReadAhead), NOT(NotTaken::NotYet));
        read_on(&tried.open("both", OFlags::RDONLY), 20);
        assert_eq!(tried.state("both", false, PathKind::ReadAhead), PathState::Taken);
        tried.hint(&["small=8K"]);
        let file = tried.open("longer", OFlags::WRONLY | OFlags::CREATE);
        put(&file, 0, 20_000);
        file.close().unwrap();
        // The open itself tells where its bytes went, before and after its close.
        assert_eq!(tried.state("longer", true, PathKind::Inline), NOT(NotTaken::NoHead));
        assert_eq!(tried.state("longer", true, PathKind::Striped), PathState::Taken);
        let grows = tried.open("grows", OFlags::WRONLY | OFlags::CREATE);
        put(&grows, 0, 8000);
        assert_eq!(tried.state("grows", true, PathKind::Striped), NOT(NotTaken::NoDatafile));
        put(&grows, 8000, 8000);
        for kind in [PathKind::Inline, PathKind::Striped] {
            assert_eq!(tried.state("grows", true, kind), PathState::Taken);
        }
        assert_eq!(tried.opened("longer", READS, PathKind::Inline), NOT(NotTaken::NoHead));
        assert_eq!(tried.opened("longer", READS, PathKind::Striped), PathState::Taken);
        // Without a handle, all of it is in the inode.
        let path = tried.directory.path().join("names/tree/plain");
        std::fs::write(&path, b"beside the mount").unwrap();
        drop(tried.open("plain", OFlags::RDONLY));
        assert_eq!(tried.state("plain", false, PathKind::Inline), PathState::Taken);
        assert_eq!(tried.state("plain", false, PathKind::Striped), PathState::NotAsked);
    }

    #[test]
    fn servers_in_memory_pass_no_cache() {
        let (directory, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let tried = Tried::made(directory, memory.path(), false, Door::default(), &["direct=64K"]);
        tried.make("f", 100_000);
        assert_eq!(tried.opened("f", READS, PathKind::Direct), NOT(NotTaken::Servers));
        tried.hint(&["direct=64K", "small=8K"]);
        assert_eq!(tried.opened("f", WRITES, PathKind::Direct), NOT(NotTaken::Servers));
        assert!(!Direct::of(Some(64)).takes(63) && Direct::of(Some(64)).takes(64));
        assert_eq!(Direct::of(Some(64)).decide([].into_iter()), NOT(NotTaken::InInode));
        assert_eq!(Direct::of(Some(64)).decide([false, true].into_iter()), PathState::Taken);
    }

    #[test]
    fn in_a_pool_of_several_users_nothing_is_fetched_or_kept() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("NOT RUN: only root makes a pool for several users");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let servers = directory.path().to_owned();
        let tried = Tried::made(directory, &servers, true, Door::default(), &["readahead=64K", "cached"]);
        tried.make("f", 100_000);
        for kind in [PathKind::ReadAhead, PathKind::Cached] {
            assert_eq!(tried.opened("f", READS, kind), NOT(NotTaken::SharedPool));
        }
        assert!(!OpenInode::opened(tried.inode("f"), &READS).has_to_pass_here());
    }

    #[test]
    fn memory_and_threads_that_are_in_use_are_told_of_until_they_are_free() {
        let tried = Tried::new(&["readahead=64K", "writebehind=64K"]);
        tried.make("f", 1 << 20);
        let store = tried.files.store().clone();
        let most = 1 << 30;
        let (fetched, gathered) = (store.fetched.take(most, most).unwrap(), store.gathered.take(most, most).unwrap());
        assert_eq!(tried.opened("f", READS, PathKind::ReadAhead), NOT(NotTaken::Memory));
        assert_eq!(tried.opened("f", WRITES, PathKind::WriteBehind), NOT(NotTaken::Memory));
        drop((fetched, gathered));
        let (read, written) = (tried.open("f", OFlags::RDONLY), tried.make("g", 2));
        drop(written);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), NOT(NotTaken::NotYet));
        // There was some at the open, and then there is none.
        let fetched = store.fetched.take(most, most).unwrap();
        read_on(&read, 4);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), NOT(NotTaken::Memory));
        drop(fetched);
        read_on(&read, 100);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), PathState::Taken);
        let written = tried.open("f", OFlags::WRONLY);
        let gathered = store.gathered.take(most, most).unwrap();
        put(&written, 0, 100);
        assert_eq!(tried.state("f", true, PathKind::WriteBehind), NOT(NotTaken::Memory));
        drop(gathered);
        put(&written, 100, 100);
        assert_eq!(tried.state("f", true, PathKind::WriteBehind), PathState::Taken);
        written.close().unwrap();
        // All threads are kept busy, and as much waits for them as may.
        let read = tried.open("f", OFlags::RDONLY);
        let mut busy = Vec::new();
        let mut keep_busy = || {
            let (free, is_free) = channel::<()>();
            busy.push(free);
            store.threads.try_do(move || while is_free.recv().is_ok() {})
        };
        // A thread that has only begun takes one of those that wait.
        let mut looks = 0;
        while looks < 50 {
            if keep_busy() {
                looks = 0;
                continue;
            }
            looks += 1;
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        read_on(&read, 4);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), NOT(NotTaken::Thread));
        drop(busy);
    }

    #[test]
    fn what_ends_it_later_is_told_of() {
        let tried = Tried::new(&["readahead=64K", "writebehind=64K:60s"]);
        tried.make("f", 1 << 20);
        let read = tried.open("f", OFlags::RDONLY);
        assert!(tried.files.store().unhint_file(Path::new("f"), None).unwrap());
        read_on(&read, 4);
        assert_eq!(tried.state("f", false, PathKind::ReadAhead), NOT(NotTaken::Unhinted));
        tried.make("g", 10_000);
        let file = tried.open("g", OFlags::WRONLY);
        put(&file, 4096, 10);
        assert_eq!(tried.state("g", true, PathKind::WriteBehind), PathState::Taken);
        // SAFETY: the child runs code of this test alone, on a store that no other thread of the parent uses, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            put(&file, 0, 1);
            let is_right = tried.state("g", true, PathKind::WriteBehind) == NOT(NotTaken::Child);
            // SAFETY: nothing of the child is needed any more.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: `status` is a place for the child's end.
        assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));
        assert_eq!(tried.state("g", true, PathKind::WriteBehind), PathState::Taken, "the child has a table of its own");
        file.close().unwrap();
        let file = tried.open("h", OFlags::WRONLY | OFlags::CREATE);
        put(&file, 0, 10);
        file.sync(true).unwrap();
        // Of a server that has no datafile of it yet.
        put(&file, 4096, 10);
        let (server, away) = (tried.directory.path().join("s1"), tried.directory.path().join("away"));
        std::fs::rename(&server, &away).unwrap();
        assert!(file.sync(true).is_err());
        std::fs::rename(&away, &server).unwrap();
        put(&file, 4096, 10);
        assert_eq!(tried.state("h", true, PathKind::WriteBehind), NOT(NotTaken::GivenUp));
        file.close().unwrap();
    }
}
