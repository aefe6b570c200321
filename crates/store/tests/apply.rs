//! Applying layouts to several files and rules: all of them, or none where one fails.

mod common;

use common::{TestPool, content, create, layout, pattern};
use rustix::fs::{AtFlags, RenameFlags};
use std::sync::{Arc, Barrier};
use stripewise_layout::{FileLayout, Layout, Pattern};
use stripewise_store::apply::ApplyWatch;
use stripewise_store::{Error, Files, Store, Then};

/// Waits `patience` times, and stops the move of the file `stop`.
#[derive(Default)]
struct Watched<'a> {
    patience: usize,
    stop: Option<&'a str>,
    told: Vec<String>,
}

impl ApplyWatch for Watched<'_> {
    fn waits(&mut self) -> bool {
        let waits = self.patience > 0;
        self.patience = self.patience.saturating_sub(1);
        waits
    }

    fn progress(&mut self, path: &str, _: u64, _: u64) -> Then {
        self.told.push(path.to_owned());
        (self.stop != Some(path)).into()
    }

    fn gives_way(&self) -> bool {
        false
    }
}

fn entry(path: &str, layout: &Layout) -> FileLayout {
    FileLayout { path: Pattern::new(path).unwrap(), layout: layout.clone(), note: None, region_notes: Vec::new() }
}

/// Two files of the default layout.
fn files(store: &Arc<Store>) -> Vec<u8> {
    let bytes = pattern(50_000, 3);
    for name in ["a", "b"] {
        common::write(&create(store, name).1, &bytes, 0);
    }
    bytes
}

fn present(store: &Arc<Store>, path: &str) -> Layout {
    Layout::clone(&*store.present_layout(path.as_ref()).unwrap())
}

#[test]
fn files_are_moved_and_rules_are_set() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let bytes = files(&store);
    let (one, two) = (layout(&[(0, &[(0, 8192)])]), layout(&[(0, &[(1, 4096)])]));
    let entries = [entry("a", &one), entry("*", &two)];
    let mut watch = Watched::default();
    let (moves, _) = store.forecast(&entries[..1]).unwrap();
    assert_eq!(moves.iter().map(|of| (of.path.as_str(), of.copied_bytes)).collect::<Vec<_>>(), [("a", 50_000)]);
    let applied = store.apply(&entries[..1], false, &mut watch).unwrap().unwrap();
    assert_eq!(applied[0].moved.unwrap().copied_bytes, 50_000);
    assert!(watch.told.iter().all(|path| path == "a") && !watch.told.is_empty());
    assert_eq!((present(&store, "a"), present(&store, "new")), (one, pool.pool.default_layout()));
    let applied = store.apply(&entries[1..], true, &mut watch).unwrap().unwrap();
    let kinds: Vec<_> = applied.iter().map(|of| (of.path.as_str(), of.moved.is_some())).collect();
    assert_eq!(kinds, [("a", true), ("b", true), ("*", false)]);
    for path in ["a", "b", "new"] {
        assert_eq!(present(&store, path), two, "{path}");
    }
    assert!(content(&store.existing("a".as_ref()).unwrap().unwrap()) == bytes);
}

#[test]
fn a_move_that_fails_undoes_those_before_it() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let bytes = files(&store);
    // What is in the inode does not move beside a writer.
    let other = layout(&[(0, &[(1, 8192)])]).with_head_in_inode(4096).unwrap();
    let held = store.existing("b".as_ref()).unwrap().unwrap();
    held.register_writer().unwrap();
    let error = store.apply(&[entry("*", &other)], true, &mut Watched::default()).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    held.release_writer().unwrap();
    assert_eq!(present(&store, "a"), pool.pool.default_layout());
    assert!(store.rules().unwrap().is_empty());
    assert!(content(&store.existing("a".as_ref()).unwrap().unwrap()) == bytes);
}

/// A file that is removed, or replaced as a checkpoint is, while others move, or itself: it is passed over, and the others get their
/// layouts.
#[test]
fn a_file_that_loses_its_name_meanwhile_keeps_no_other_from_its_layout() {
    struct Removes<'a>(&'a Files, &'a str, bool);
    impl ApplyWatch for Removes<'_> {
        fn waits(&mut self) -> bool {
            false
        }

        fn progress(&mut self, path: &str, _: u64, _: u64) -> Then {
            let tree = self.0.store().tree();
            if path == "b" && !std::mem::replace(&mut self.2, true) {
                if self.1 == "b" {
                    // By the kernel alone: a program waits for the mover, which waits for this.
                    rustix::fs::unlinkat(tree, "b", AtFlags::empty()).unwrap();
                } else if self.1 == "c" {
                    self.0.unlink("c".as_ref()).unwrap();
                } else {
                    self.0.rename("new".as_ref(), "c".as_ref(), RenameFlags::empty()).unwrap();
                }
            }
            Then::On
        }

        fn gives_way(&self) -> bool {
            false
        }
    }
    for gone in ["b", "c", "replaced"] {
        let pool = TestPool::new(2);
        let (store, program) = (pool.open(), Files::open(pool.pool.clone()).unwrap());
        let bytes = pattern(50_000, 3);
        for name in ["a", "b", "c"] {
            common::write(&create(&store, name).1, &bytes, 0);
        }
        common::write(&create(&store, "new").1, &bytes, 0);
        let one = layout(&[(0, &[(0, 8192)])]);
        let mut removes = Removes(&program, gone, false);
        let applied = store.apply(&[entry("?", &one)], true, &mut removes).unwrap().unwrap();
        let paths: Vec<_> = applied.iter().map(|of| of.path.as_str()).collect();
        let expected = ["a", "b", "c", "?"];
        assert_eq!(paths, expected.into_iter().filter(|path| *path != gone).collect::<Vec<_>>());
        for path in ["a", "b", "c"].into_iter().filter(|path| *path != gone) {
            assert_eq!(present(&store, path), one, "{path}");
            assert!(content(&store.existing(path.as_ref()).unwrap().unwrap()) == bytes);
        }
        let locks = pool.pool.namespace.join("locks");
        assert_eq!(std::fs::read_dir(locks).unwrap().count(), 0, "{gone}: no lock is left");
    }
}

/// A program without a mount removes a file that a mover has: what the mover has made goes, too.
#[test]
fn a_file_that_a_program_removes_while_it_moves_leaves_nothing() {
    let pool = TestPool::new(2);
    let (store, program) = (pool.open(), Files::open(pool.pool.clone()).unwrap());
    let (fd, inode) = create(&store, "a");
    common::write(&inode, &pattern(5_000_000, 3), 0);
    let (began, go_on) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| {
            began.wait();
            let gone = || rustix::fs::fstat(&fd).unwrap().st_nlink == 0;
            let program = &program;
            std::thread::scope(|scope| {
                let removed = scope.spawn(move || program.unlink("a".as_ref()));
                while !gone() {
                    std::thread::yield_now();
                }
                go_on.wait();
                removed.join().unwrap()
            })
        });
        let mut is_first = true;
        let moved = inode.move_to(&layout(&[(0, &[(1, 8192)])]), "a", &mut |_, _| {
            if std::mem::take(&mut is_first) {
                began.wait();
                go_on.wait();
            }
            true
        });
        assert!(matches!(moved, Err(Error::Nameless { .. })), "{moved:?}");
        removed.join().unwrap().unwrap();
    });
    for server in 0..2 {
        let made = std::fs::read_dir(pool.root(server)).unwrap().flatten().filter(|entry| entry.path().is_dir());
        let left: Vec<_> = made.flat_map(|of| std::fs::read_dir(of.path()).unwrap().flatten()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_rule_that_fails_undoes_moves_and_rules_before_it() {
    let pool = TestPool::new(2);
    let store = pool.open();
    files(&store);
    let (before, other) = (layout(&[(0, &[(0, 4096)])]), layout(&[(0, &[(1, 8192)])]));
    store.set_rule(&Pattern::new("a").unwrap(), &before).unwrap();
    let unkept = layout(&[(0, &[(0, 12_288)])]);
    let hash: String = unkept.hash().iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(pool.pool.namespace.join("layouts").join(hash), "damaged").unwrap();
    let entries = [entry("a", &other), entry("b", &other), entry("later/*", &unkept)];
    let error = store.apply(&entries, true, &mut Watched::default()).unwrap_err();
    assert!(matches!(error, Error::Layout { .. }), "{error}");
    assert_eq!(present(&store, "a"), pool.pool.default_layout());
    assert_eq!(present(&store, "b"), pool.pool.default_layout());
    let rules = store.rules().unwrap();
    assert_eq!(
        rules.iter().map(|rule| (rule.pattern.as_str(), rule.layout)).collect::<Vec<_>>(),
        [("a", before.hash())]
    );
}

#[test]
fn files_before_the_one_that_is_stopped_have_moved() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let bytes = files(&store);
    let other = layout(&[(0, &[(1, 8192)])]);
    let mut watch = Watched { stop: Some("b"), ..Watched::default() };
    assert!(store.apply(&[entry("*", &other)], true, &mut watch).unwrap().is_none());
    assert_eq!((present(&store, "a"), present(&store, "b")), (other, pool.pool.default_layout()));
    assert!(store.rules().unwrap().is_empty());
    assert!(content(&store.existing("b".as_ref()).unwrap().unwrap()) == bytes);
}

#[test]
fn another_that_applies_is_waited_for_or_refuses() {
    let pool = TestPool::new(1);
    let (store, other) = (pool.open(), pool.open());
    let applying = other.begin_apply().unwrap();
    let mut watch = Watched { patience: 1, ..Watched::default() };
    let error = store.apply(&[], true, &mut watch).unwrap_err();
    assert!(matches!(error, Error::Applying { .. }) && watch.patience == 0, "{error}");
    drop(applying);
    assert!(store.apply(&[], true, &mut watch).unwrap().is_some());
}

#[test]
fn rules_are_put_back_as_they_were() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let (one, two) = (layout(&[(0, &[(0, 8192)])]), layout(&[(0, &[(1, 4096)])]));
    let patterns = ["a", "b*"].map(|text| Pattern::new(text).unwrap());
    store.set_rule(&patterns[0], &one).unwrap();
    let kept = store.keep_rules(&patterns).unwrap();
    patterns.iter().for_each(|pattern| store.set_rule(pattern, &two).unwrap());
    store.restore_rules(&kept).unwrap();
    assert_eq!((present(&store, "a"), present(&store, "b")), (one, pool.pool.default_layout()));
}

#[test]
fn bytes_of_other_files_are_told_by_server() {
    let pool = TestPool::new(2);
    let store = pool.open();
    files(&store);
    let all = pool.pool.allocated_by_others(&[]);
    let handle = |path: &str| store.existing(path.as_ref()).unwrap().unwrap().handle();
    let others = pool.pool.allocated_by_others(&[handle("a")]);
    assert!(pool.pool.allocated_by_others(&[handle("a"), handle("b")]).values().all(|&bytes| bytes == 0));
    assert!(others.iter().all(|(id, &bytes)| bytes > 0 && bytes < all[id]), "{others:?} of {all:?}");
    let status = store.status("a".as_ref()).unwrap();
    let datafiles = status.placed.unwrap().datafiles;
    assert_eq!((status.size_bytes, datafiles.len()), (50_000, 2));
    assert_eq!(datafiles.iter().map(|datafile| datafile.found.as_ref().unwrap().0).sum::<u64>(), 50_000);
    let missing = store.status("c".as_ref()).unwrap_err().to_string();
    assert_eq!(missing, "there is no 'c' in pool 'test'; check the path");
}

#[test]
fn no_link_leads_to_a_file_of_a_shared_pool_that_moves() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let other = layout(&[(0, &[(0, 8192)])]);
    for is_shared in [false, true] {
        let pool = if is_shared { TestPool::shared(2) } else { TestPool::new(2) };
        let store = pool.open();
        let tree = pool.pool.namespace.join("tree");
        std::fs::create_dir(tree.join("d")).unwrap();
        common::write(&create(&store, "d/f").1, &pattern(50_000, 1), 0);
        std::os::unix::fs::symlink("d", tree.join("link")).unwrap();
        let done = store.apply(&[entry("link/f", &other)], false, &mut Watched::default());
        if is_shared {
            let error = done.unwrap_err().to_string();
            assert!(error.contains("'link/f' leads through a link"), "{error}");
            assert_eq!(present(&store, "d/f"), pool.pool.default_layout());
        } else {
            done.unwrap().unwrap();
            assert_eq!(present(&store, "d/f"), other);
        }
        store.apply(&[entry("d/f", &other)], false, &mut Watched::default()).unwrap().unwrap();
        assert_eq!(present(&store, "d/f"), other);
    }
}
