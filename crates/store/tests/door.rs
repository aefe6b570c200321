//! Requests of every way in that this crate has pass the gate, which knows who sends them.

mod common;

use common::{TestPool, layout, pattern};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use stripewise_control::{Action, Door, FileId, Gate, Observer, Program, Request, Served, Way};
use stripewise_layout::Pattern;
use stripewise_optimisation::CLASS;
use stripewise_store::export_tree::{ExportOptions, export};
use stripewise_store::handle::Optimisations;
use stripewise_store::hints::DirectoryHints;
use stripewise_store::{Files, PlaneOptions};

/// What passes, by the way, the action, the offset and the length of each request.
#[derive(Default)]
struct Notes(Mutex<Vec<(Way, Action, u64, u64)>>, AtomicU32);

impl Gate for Notes {
    fn enter(&self, _: FileId, request: &Request) {
        assert_eq!(request.sender.program(), Program::of_process(std::process::id()));
        self.0.lock().unwrap().push((request.sender.way(), request.action, request.offset, request.len));
    }

    fn sent(&self, request: &Request) -> Option<NonZeroU32> {
        assert!(matches!(request.action, Action::Read | Action::Write | Action::Append));
        self.1.fetch_add(1, Ordering::Relaxed);
        NonZeroU32::new(7)
    }

    fn ended(&self, number: NonZeroU32) {
        assert_eq!(number.get(), 7);
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Observer for Notes {
    fn served(&self, _: FileId, request: &Request, _: &Served<'_>) {
        assert!(self.1.load(Ordering::Relaxed) > 0, "{request:?} is not known to be with servers");
    }
}

impl Notes {
    /// What has passed since the last call.
    fn take(&self) -> Vec<(Way, Action, u64, u64)> {
        assert_eq!(self.1.load(Ordering::Relaxed), 0, "servers have answered all");
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// The ranks of what passes.
#[derive(Default)]
struct Ranks(Mutex<Vec<u8>>);

impl Gate for Ranks {
    fn enter(&self, _: FileId, request: &Request) {
        self.0.lock().unwrap().push(request.rank);
    }
}

#[test]
fn requests_on_a_file_with_a_class_say_so_to_the_gate() {
    let pool = TestPool::new(2);
    let hint = |hints: &mut DirectoryHints| {
        let mut optimisations = Optimisations::default();
        optimisations.enable(CLASS.index, 5).unwrap();
        hints.set(Some(Pattern::new("*.bak").unwrap()), optimisations)
    };
    pool.open().change_hints(Path::new("."), hint).unwrap();
    let gate = Arc::new(Ranks::default());
    let options = PlaneOptions { door: Door::default().with_gate(gate.clone()), ..PlaneOptions::default() };
    let files = Files::open_with(pool.pool.clone(), options).unwrap();
    for (name, rank) in [("a", 0), ("a.bak", 5)] {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = files.open_file(Path::new(name), flags, Mode::RUSR | Mode::WUSR).unwrap();
        file.write_at(&[IoSlice::new(b"some bytes")], 0).unwrap();
        file.read_at(&mut [IoSliceMut::new(&mut [0; 100])], 0).unwrap();
        assert_eq!(std::mem::take(&mut *gate.0.lock().unwrap()), [rank; 2], "{name}");
        assert_eq!(files.store().path_taken(Path::new(name)).unwrap().rank, rank, "{name}");
    }
}

#[test]
fn files_moves_and_exports_pass_the_gate() {
    let pool = TestPool::new(2);
    let gate = Arc::new(Notes::default());
    let door = Door::default().with_gate(gate.clone()).with_observer(gate.clone());
    let options = PlaneOptions { door: door.clone(), ..PlaneOptions::default() };
    let files = Files::open_with(pool.pool.clone(), options).unwrap();
    std::fs::write(pool.pool.namespace.join("tree/without"), "").unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    for name in ["without", "striped"] {
        let open = |flags| files.open_file(Path::new(name), OFlags::CREATE | flags, mode).unwrap();
        let file = open(OFlags::RDWR);
        file.write_at(&[IoSlice::new(&pattern(9000, 1)), IoSlice::new(b"end")], 10).unwrap();
        file.read_at(&mut [IoSliceMut::new(&mut [0; 100])], 20).unwrap();
        file.truncate(5000).unwrap();
        file.allocate(FallocateFlags::empty(), 100, 200).unwrap();
        file.sync(true).unwrap();
        open(OFlags::WRONLY | OFlags::APPEND).write(&[IoSlice::new(b"more")]).unwrap();
        let expected = [
            (Action::Write, 10, 9003),
            (Action::Read, 20, 100),
            (Action::Truncate, 5000, 0),
            (Action::Allocate, 100, 200),
            (Action::Sync, 0, 0),
            (Action::Append, 0, 4),
        ];
        assert_eq!(gate.take(), expected.map(|(action, offset, len)| (Way::Library, action, offset, len)), "{name}");
        drop(open(OFlags::WRONLY | OFlags::TRUNC));
        assert_eq!(gate.take(), [(Way::Library, Action::Truncate, 0, 0)], "{name}");
        file.write_at(&[IoSlice::new(&pattern(9000, 2))], 0).unwrap();
        gate.take();
    }
    let inode = files.inode(Path::new("striped")).unwrap().unwrap();
    inode.move_to(&layout(&[(0, &[(1, 65_536)])]), "striped", &mut |_, _| true).unwrap();
    let moved = gate.take();
    assert!(moved.iter().all(|(way, ..)| *way == Way::Mover), "{moved:?}");
    let bytes_by = |wanted| moved.iter().filter(|(_, action, ..)| *action == wanted).map(|(.., len)| len).sum::<u64>();
    assert!(bytes_by(Action::Read) >= 9000 && bytes_by(Action::Write) >= 9000, "{moved:?}");
    drop(inode);

    let to = pool.directory.path().join("out");
    let failures = Mutex::new(Vec::new());
    export(&pool.pool, &to, &ExportOptions { door, ..ExportOptions::default() }, &failures).unwrap();
    let exported = gate.take();
    assert!(exported.iter().all(|(way, action, ..)| (*way, *action) == (Way::Exporter, Action::Read)), "{exported:?}");
    assert!(exported.iter().map(|(.., len)| len).sum::<u64>() >= 18_000, "{exported:?}");
}

/// Where on the disk each part of a request was.
#[derive(Default)]
struct Addresses(Mutex<Vec<(u64, Option<u64>)>>);

impl Observer for Addresses {
    fn served(&self, _: FileId, _: &Request, served: &Served<'_>) {
        self.0.lock().unwrap().push((served.part.datafile_offset, served.disk_address()));
    }
}

#[test]
fn an_observer_is_told_where_on_the_disk_the_bytes_are() {
    const BLOCK: u64 = 4096;
    let pool = TestPool::new(1);
    let seen = Arc::new(Addresses::default());
    let door = Door::default().with_observer(seen.clone());
    let files = Files::open_with(pool.pool.clone(), PlaneOptions { door, ..PlaneOptions::default() }).unwrap();
    let write = |name: &str| {
        let file = files.open_file(Path::new(name), OFlags::CREATE | OFlags::RDWR, Mode::RUSR | Mode::WUSR).unwrap();
        file.write_at(&[IoSlice::new(&pattern(2 * BLOCK as usize, 1))], 0).unwrap();
        file.sync(true).unwrap();
        file
    };
    let written = [write("one"), write("two")];
    seen.0.lock().unwrap().clear();
    for file in &written {
        for offset in [0, BLOCK, 17] {
            file.read_at(&mut [IoSliceMut::new(&mut [0; 10])], offset).unwrap();
        }
    }
    let found = seen.0.lock().unwrap();
    assert_eq!(found.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [0, BLOCK, 17].repeat(2));
    let addresses: Vec<_> = found.iter().map(|(_, address)| *address).collect();
    if addresses.iter().all(Option::is_none) {
        println!("SKIPPED: the file system of the directory for temporary files does not tell where files are");
        return;
    }
    let addresses: Vec<u64> =
        addresses.into_iter().map(|address| address.expect("all or none: all is synced")).collect();
    assert!(addresses.chunks(3).all(|of| of[2] == of[0] + 17), "{addresses:?}");
    let blocks: std::collections::BTreeSet<_> = addresses.iter().map(|address| address / BLOCK).collect();
    assert_eq!(blocks.len(), 4, "blocks at one place: {addresses:?}");
}
