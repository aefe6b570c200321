//! Hints of directories: what is made there has its first bytes in its inode, by whichever way it is made, and whatever the hints say.

mod common;

use common::life::{On, findings};
use common::{TestPool, in_own_mounts, layout, mount_tmpfs, pattern};
use rustix::fs::{FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::{Layout, Pattern, ServerId};
use stripewise_optimisation::{OptimisationSetting, READAHEAD, SMALL, TABLE};
use stripewise_store::adding::add_server;
use stripewise_store::drain::DrainWatch;
use stripewise_store::handle::{self, Optimisations};
use stripewise_store::hints::{ATTRIBUTE, DirectoryHints, MAX_HINTS};
use stripewise_store::pool::meta_periods;
use stripewise_store::small_files::{DueSmallFile, MovedBefore, NewHead, move_small_files};
use stripewise_store::{File, Files, Pool, Store, Then, Unsaid};

fn small(bytes: u64) -> Optimisations {
    let mut optimisations = Optimisations::default();
    optimisations.enable(SMALL.index, bytes).unwrap();
    optimisations
}

fn set(store: &Store, directory: &str, names: Option<&str>, bytes: u64) -> DirectoryHints {
    let names = names.map(|names| Pattern::new(names).unwrap());
    store.change_hints(Path::new(directory), |hints| hints.set(names, small(bytes))).unwrap()
}

fn make(files: &Arc<Files>, name: &str, bytes: &[u8]) {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = files.open_file(Path::new(name), flags, Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(file.write_at(&[std::io::IoSlice::new(bytes)], 0).unwrap(), bytes.len());
    file.close().unwrap();
}

/// [`make`] with the `first` bytes written by themselves: a file that grows past its head keeps it.
fn make_grown(files: &Arc<Files>, name: &str, bytes: &[u8], first: usize) {
    make(files, name, &bytes[..first]);
    let file = files.open_file(Path::new(name), OFlags::RDWR, Mode::empty()).unwrap();
    assert_eq!(file.write_at(&[std::io::IoSlice::new(&bytes[first..])], first as u64).unwrap(), bytes.len() - first);
    file.close().unwrap();
}

fn content(files: &Arc<Files>, name: &str) -> Vec<u8> {
    let file = files.open_file(Path::new(name), OFlags::RDONLY, Mode::empty()).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().st_size as usize + 1];
    let count = file.read_at(&mut [std::io::IoSliceMut::new(&mut bytes)], 0).unwrap();
    bytes.truncate(count);
    bytes
}

/// Bytes of its head, and how many datafiles it has.
fn where_it_is(store: &Arc<Store>, name: &str) -> (u64, usize) {
    let placed = store.status(Path::new(name)).unwrap().placed.unwrap();
    (placed.placement.layout.head_in_inode_bytes(), placed.datafiles.len())
}

#[test]
fn a_small_file_is_one_inode_and_what_comes_behind_the_border_goes_to_the_servers_and_back() {
    let pool = TestPool::new(3);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    assert_eq!(set(store, ".", None, 8192).version, 1);
    let bytes = pattern(40_000, 1);
    make(&files, "f", &bytes[..8192]);
    assert_eq!(where_it_is(store, "f"), (8192, 0), "up to the border it has no datafile");
    let own = pool.pool.namespace.join("tree/f");
    assert_eq!(std::fs::read(&own).unwrap(), &bytes[..8192], "its inode has its bytes");
    let file = files.open_file(Path::new("f"), OFlags::RDWR, Mode::empty()).unwrap();
    file.write_at(&[std::io::IoSlice::new(&bytes[8000..])], 8000).unwrap();
    assert_eq!(content(&files, "f"), bytes);
    assert_eq!(where_it_is(store, "f"), (8192, 3));
    assert_eq!(std::fs::read(&own).unwrap()[..8192], bytes[..8192], "what was there has stayed");
    file.truncate(100).unwrap();
    file.close().unwrap();
    assert_eq!(content(&files, "f"), &bytes[..100]);
    assert_eq!(std::fs::read(&own).unwrap(), &bytes[..100], "it is back");
}

#[test]
fn hints_hold_after_a_server_has_come_to_an_open_pool() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    set(store, ".", None, 4096);
    add_server(&pool.pool.file, "disk", &pool.directory.path().join("new")).unwrap();
    store.due_look().expect("it is time for a look").take();
    make_grown(&files, "f", &pattern(30_000, 1), 1);
    assert_eq!(where_it_is(store, "f"), (4096, 3), "a head in the inode, and the new server has a part of the rest");
    assert_eq!(content(&files, "f"), pattern(30_000, 1));
}

#[test]
fn directories_hand_hints_down_and_patterns_choose() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    files.make_directory(Path::new("plain"), Mode::from_raw_mode(0o700)).unwrap();
    assert_eq!(store.hints(Path::new("plain")).unwrap(), DirectoryHints::default());
    set(store, "plain", None, 4096);
    let said = set(store, "plain", Some("*.h5"), 65536);
    assert_eq!(said.version, 2);
    files.make_directory(Path::new("plain/below"), Mode::from_raw_mode(0o700)).unwrap();
    assert_eq!(store.hints(Path::new("plain/below")).unwrap(), said);
    for (name, head) in [("plain/x", 4096), ("plain/x.h5", 65536), ("plain/below/y.h5", 65536), ("top.h5", 0)] {
        make(&files, name, b"some bytes");
        assert_eq!(where_it_is(store, name).0, head, "{name}");
    }
    // A change counts for what is made from then on; a file keeps what it was made with, and so does the directory below.
    set(store, "plain", Some("*.h5"), 8192);
    make(&files, "plain/z.h5", b"some bytes");
    assert_eq!((where_it_is(store, "plain/z.h5").0, where_it_is(store, "plain/x.h5").0), (8192, 65536));
    assert_eq!(store.hints(Path::new("plain/below")).unwrap(), said);
    store.remove_hints(Path::new("plain")).unwrap();
    make(&files, "plain/after", b"some bytes");
    assert_eq!(where_it_is(store, "plain/after").0, 0);
}

#[test]
fn it_is_told_why_a_file_is_where_it_is() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    set(store, ".", None, 8192);
    make(&files, "f", b"bytes");
    set(store, ".", Some("f"), 4096);
    let why = store.path_taken(Path::new("f")).unwrap();
    assert_eq!((why.size_bytes, why.head_bytes, why.has_handle, why.rule), (5, 8192, true, None));
    assert_eq!((why.made_with, why.hinted_now, why.hints_version), (small(8192), small(4096), 2));
    // A move gives it a layout that says where each byte is.
    let inode = store.lookup(Path::new("f")).unwrap().unwrap();
    inode.move_to(&layout(&[(0, &[(0, 4096), (1, 4096)])]), "f", &mut |_, _| true).unwrap();
    let why = store.path_taken(Path::new("f")).unwrap();
    assert_eq!((why.head_bytes, why.made_with), (0, Optimisations::default()));
    assert_eq!(content(&files, "f"), b"bytes");
    assert!(store.path_taken(Path::new(".")).unwrap_err().to_string().contains("not a placed file"));
}

#[test]
fn a_file_gets_every_optimisation_of_the_table_that_its_directory_hints() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    let mut every = Optimisations::default();
    for of in TABLE {
        let (index, parameters) = OptimisationSetting::parse(of.name).unwrap().pack();
        every.enable(index, parameters).unwrap();
    }
    store.change_hints(Path::new("."), |hints| hints.set(None, every.clone())).unwrap();
    make(&files, "f", b"x");
    let got = store.path_taken(Path::new("f")).unwrap().made_with;
    for of in TABLE {
        assert!(got.parameters(of.index).is_some(), "{}", of.name);
    }
}

#[test]
fn a_rule_names_every_byte_so_that_hints_change_nothing_there() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    set(store, ".", None, 8192);
    store.set_rule(&Pattern::new("*.raw").unwrap(), &layout(&[(0, &[(1, 4096)])])).unwrap();
    make(&files, "f.raw", b"bytes");
    make(&files, "f", b"bytes");
    assert_eq!((where_it_is(store, "f.raw").0, where_it_is(store, "f").0), (0, 8192));
    let why = store.path_taken(Path::new("f.raw")).unwrap();
    assert_eq!((why.rule.unwrap().as_str(), why.has_layout_of_rule), ("*.raw", true));
    assert!(!store.path_taken(Path::new("f")).unwrap().has_layout_of_rule);
    // Another layout since then, which the file does not have.
    store.set_rule(&Pattern::new("*.raw").unwrap(), &layout(&[(0, &[(0, 4096)])])).unwrap();
    assert!(!store.path_taken(Path::new("f.raw")).unwrap().has_layout_of_rule);
}

/// The layouts that a directory hints are rules: they reach what is below it, by name, and nothing beside it.
#[test]
fn a_directory_gives_layouts_to_what_is_made_in_it_and_below() {
    let pool = TestPool::new(3);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    for directory in ["d*", "d*/below", "dx"] {
        files.make_directory(Path::new(directory), Mode::from_raw_mode(0o700)).unwrap();
    }
    let on = |server: u16| layout(&[(0, &[(server, 4096)])]);
    let (directory, h5) = (Path::new("d*"), Pattern::new("*.h5").unwrap());
    let say = |path: &Path, names: Option<&Pattern>, layout: &Layout| {
        store.say_hints(path, names.cloned(), Optimisations::default(), Some(layout))
    };
    say(directory, Some(&h5), &on(1)).unwrap();
    // What is said of all names later does not reach the names of which more is said.
    say(directory, None, &on(2)).unwrap();
    set(store, "d*", None, 8192);
    for (name, expected) in [("d*/x", on(2)), ("d*/x.h5", on(1)), ("d*/below/y.h5", on(1)), ("d*/below/y", on(2))] {
        make(&files, name, b"some bytes");
        assert_eq!(*store.lookup(Path::new(name)).unwrap().unwrap().layout().unwrap(), expected, "{name}");
    }
    make(&files, "dx/x.h5", b"some bytes");
    assert_eq!(store.lookup(Path::new("dx/x.h5")).unwrap().unwrap().layout().unwrap(), *store.default_layout());
    let hinted = |path: &str| -> Vec<String> {
        store.hinted_layouts(Path::new(path)).unwrap().into_iter().map(|each| each.pattern).collect()
    };
    assert_eq!((hinted("d*"), hinted("d*/below")), (vec!["**/*".to_owned(), "**/*.h5".to_owned()], Vec::new()));
    assert_eq!(hinted("."), ["d\\*/**/*", "d\\*/**/*.h5"]);
    assert_eq!(store.path_taken(Path::new("d*/x")).unwrap().rule.unwrap().as_str(), "d\\*/**/*");
    assert!(say(Path::new("d*/x"), None, &on(0)).unwrap_err().to_string().contains("Not a directory"));
    assert!(say(directory, None, &on(7)).is_err());
    let only_layout = Unsaid::Some { indices: &[], layout: true };
    assert!(store.unsay_hints(directory, Some(&h5), only_layout).unwrap());
    assert!(!store.unsay_hints(directory, Some(&h5), only_layout).unwrap());
    assert!(!store.unsay_hints(directory, Some(&h5), Unsaid::All).unwrap());
    let both = Unsaid::Some { indices: &[READAHEAD.index], layout: true };
    assert!(!store.unsay_hints(directory, None, both).unwrap(), "only one of them was said");
    assert_eq!((hinted("d*"), store.hints(directory).unwrap().version), (vec!["**/*".to_owned()], 1));
    say(Path::new("dx"), None, &on(0)).unwrap();
    assert!(store.unsay_hints(directory, None, only_layout).unwrap());
    assert_eq!((hinted("d*"), hinted("dx")), (Vec::new(), vec!["**/*".to_owned()]));
    make(&files, "d*/after", b"some bytes");
    assert_eq!(where_it_is(store, "d*/after").0, 8192, "the hint `small` of the directory");
    say(directory, None, &on(2)).unwrap();
    store.remove_hints(directory).unwrap();
    let none = store.hints(directory).unwrap();
    assert_eq!((hinted("d*"), none.hints().len(), none.version), (Vec::new(), 0, 2));
}

#[test]
fn forged_hints_keep_no_file_from_being_made() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    let tree = pool.pool.namespace.join("tree");
    let mut far = DirectoryHints::default();
    let mut optimisations = small(1 << 58);
    optimisations.enable(30, 7).unwrap();
    far.set(None, optimisations).unwrap();
    let mut later = DirectoryHints::default().encode().unwrap();
    later[4] = 2;
    let forged = [b"nonsense".to_vec(), Vec::new(), vec![0xff; 3000], far.encode().unwrap(), later];
    for (number, bytes) in forged.into_iter().enumerate() {
        rustix::fs::setxattr(&tree, ATTRIBUTE, &bytes, XattrFlags::empty()).unwrap();
        let name = format!("f{number}");
        make(&files, &name, b"some bytes");
        assert_eq!((where_it_is(store, &name).0, content(&files, &name)), (0, b"some bytes".to_vec()), "{name}");
        let directory = format!("d{number}");
        files.make_directory(Path::new(&directory), Mode::from_raw_mode(0o700)).unwrap();
        let before = std::fs::metadata(&tree).unwrap().modified().unwrap();
        if let Err(error) = store.hints(Path::new(".")) {
            assert!(error.to_string().starts_with("hints of .: "), "{error}");
            assert!(store.change_hints(Path::new("."), |hints| hints.set(None, small(4096))).is_err());
            assert_eq!(std::fs::metadata(&tree).unwrap().modified().unwrap(), before);
        }
    }
    store.remove_hints(Path::new(".")).unwrap();
    let none = store.hints(Path::new(".")).unwrap();
    assert_eq!((none.hints().len(), none.version), (0, 1), "that of a later release has its version elsewhere or here");
}

/// What is wrong with the hints of a directory is told beside what a file there has, which is changed all the same.
#[test]
fn a_file_of_a_directory_with_damaged_hints_is_hinted_and_told_of() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    set(store, ".", None, 8192);
    make(&files, "f", b"bytes");
    let mut later = DirectoryHints::default().encode().unwrap();
    later[4] = 2;
    rustix::fs::setxattr(pool.pool.namespace.join("tree"), ATTRIBUTE, &later, XattrFlags::empty()).unwrap();
    let mut ahead = Optimisations::default();
    ahead.enable(READAHEAD.index, OptimisationSetting::parse("readahead").unwrap().pack().1).unwrap();
    store.hint_file(Path::new("f"), &ahead).unwrap();
    let why = store.path_taken(Path::new("f")).unwrap();
    assert_eq!((why.version, why.reads_ahead), (2, true));
    assert_eq!((why.hinted_now, why.hints_version), (Optimisations::default(), 0));
    let fault = why.hints_fault.unwrap();
    assert!(fault.starts_with("hints of .: they have format 2"), "{fault}");
    assert!(store.unhint_file(Path::new("f"), None).unwrap());
    store.remove_hints(Path::new(".")).unwrap();
    assert_eq!(store.path_taken(Path::new("f")).unwrap().hints_fault, None);
}

/// Patterns of rules are UTF-8, so that none names such a directory: it has no rule, can get none, and has its hints all the same.
#[test]
fn a_directory_whose_path_is_not_utf_8_has_hints_and_no_rule() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    let directory = Path::new(OsStr::from_bytes(b"u\xff"));
    files.make_directory(directory, Mode::from_raw_mode(0o700)).unwrap();
    let on_one = layout(&[(0, &[(0, 4096)])]);
    store.set_rule(&Pattern::new("**/*.raw").unwrap(), &on_one).unwrap();
    store.say_hints(directory, None, small(4096), None).unwrap();
    let before = store.hints(directory).unwrap();
    let refused = store.say_hints(directory, None, small(8192), Some(&on_one)).unwrap_err().to_string();
    assert!(refused.contains("cannot give a layout: its path is not UTF-8"), "{refused}");
    assert_eq!((store.hints(directory).unwrap(), store.rules().unwrap().len()), (before, 1));
    assert_eq!(store.hinted_layouts(directory).unwrap().len(), 0);
    let only_layout = Unsaid::Some { indices: &[], layout: true };
    assert!(!store.unsay_hints(directory, None, only_layout).unwrap());
    assert!(store.unsay_hints(directory, None, Unsaid::All).unwrap());
    assert!(!store.unsay_hints(directory, None, Unsaid::All).unwrap());
    store.say_hints(directory, None, small(4096), None).unwrap();
    store.remove_hints(directory).unwrap();
    assert_eq!((store.hints(directory).unwrap().hints().len(), store.rules().unwrap().len()), (0, 1));
}

/// Copies of hints are told apart by their version, also where all of them were removed meanwhile.
#[test]
fn the_version_counts_on_when_all_hints_are_removed() {
    let pool = TestPool::new(2);
    let store = pool.open();
    store.remove_hints(Path::new(".")).unwrap();
    assert_eq!(store.hints(Path::new(".")).unwrap(), DirectoryHints::default(), "there was nothing to change");
    set(&store, ".", None, 4096);
    assert_eq!(set(&store, ".", Some("*.h5"), 4096).version, 2);
    store.remove_hints(Path::new(".")).unwrap();
    let none = store.hints(Path::new(".")).unwrap();
    assert_eq!((none.hints().len(), none.version), (0, 3));
    assert_eq!(set(&store, ".", None, 4096).version, 4);
    // Damaged behind the version, which can be read.
    let tree = pool.pool.namespace.join("tree");
    let mut bytes = store.hints(Path::new(".")).unwrap().encode().unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    rustix::fs::setxattr(&tree, ATTRIBUTE, &bytes, XattrFlags::REPLACE).unwrap();
    assert!(store.hints(Path::new(".")).is_err());
    store.remove_hints(Path::new(".")).unwrap();
    assert_eq!(store.hints(Path::new(".")).unwrap().version, 5);
}

/// A hint and a rule are changed together: where the directory cannot be written, the rules are as they were, in their order.
#[test]
fn hints_and_rules_change_together_or_not_at_all() {
    if in_own_mounts("hints_and_rules_change_together_or_not_at_all") {
        return;
    }
    let pool = TestPool::new(2);
    let (one, two) = (layout(&[(0, &[(0, 4096)])]), layout(&[(0, &[(1, 4096)])]));
    let (top, names) = (Path::new("."), Pattern::new("*.h5").unwrap());
    {
        let store = pool.open();
        store.say_hints(top, Some(names.clone()), small(4096), Some(&one)).unwrap();
        store.set_rule(&Pattern::new("**/a*").unwrap(), &two).unwrap();
    }
    let tree = pool.pool.namespace.join("tree");
    rustix::mount::mount_bind(&tree, &tree).unwrap();
    let read_only = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(&tree, read_only, c"").unwrap();
    let store = pool.open();
    let now = || {
        let rules = store.hinted_layouts(top).unwrap().into_iter().map(|rule| (rule.pattern, (*rule.layout).clone()));
        (rules.collect::<Vec<_>>(), store.hints(top).unwrap())
    };
    let before = now();
    assert_eq!(before.0, [("**/*.h5".to_owned(), one), ("**/a*".to_owned(), two.clone())]);
    let changes: [&dyn Fn() -> stripewise_store::Result<()>; 4] = [
        &|| store.say_hints(top, Some(names.clone()), small(8192), Some(&two)),
        &|| store.say_hints(top, None, small(8192), Some(&two)),
        &|| store.unsay_hints(top, Some(&names), Unsaid::All).map(drop),
        &|| store.remove_hints(top),
    ];
    for change in changes {
        assert_eq!(change().unwrap_err().errno(), rustix::io::Errno::ROFS);
        assert_eq!(now(), before);
    }
    // What changes a rule alone does not write the directory.
    assert!(store.unsay_hints(top, Some(&names), Unsaid::Some { indices: &[], layout: true }).unwrap());
    assert_eq!(now(), (before.0[1..].to_vec(), before.1));
}

/// Whether another thread waits for the lock of `path`, as the kernel lists it.
fn is_awaited(path: &Path) -> bool {
    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains("->") && line.contains("FLOCK") && line.contains(&inode))
}

#[test]
fn a_change_under_way_does_not_bring_back_hints_that_are_removed_meanwhile() {
    let pool = TestPool::new(1);
    let (store, other) = (pool.open(), pool.open());
    set(&store, ".", None, 4096);
    let tree = pool.pool.namespace.join("tree");
    std::thread::scope(|scope| {
        let mut removing = None;
        let change = |hints: &mut DirectoryHints| {
            let removal = scope.spawn(|| other.remove_hints(Path::new(".")).unwrap());
            while !removal.is_finished() && !is_awaited(&tree) {
                std::thread::yield_now();
            }
            removing = Some(removal);
            hints.set(Some(Pattern::new("*.h5").unwrap()), small(4096))
        };
        store.change_hints(Path::new("."), change).unwrap();
        removing.unwrap().join().unwrap();
    });
    assert_eq!(store.hints(Path::new(".")).unwrap().hints(), [], "the removal came last");
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let pool = TestPool::new(2);
    let store = pool.open();
    for number in 0..MAX_HINTS {
        set(&store, ".", Some(&format!("f{number}")), 4096);
    }
    let before = store.hints(Path::new(".")).unwrap();
    assert_eq!(before.version as usize, MAX_HINTS);
    let more = Pattern::new("more").unwrap();
    let refused = store.change_hints(Path::new("."), |hints| hints.set(Some(more), small(4096))).unwrap_err();
    assert_eq!(refused.to_string(), "hints of .: more than 16 hints of one directory: remove some of them");
    assert_eq!(store.hints(Path::new(".")).unwrap(), before);
    assert!(store.change_hints(Path::new("none"), |_| Ok(())).is_err());
    std::fs::write(pool.pool.namespace.join("tree/file"), b"").unwrap();
    assert!(store.change_hints(Path::new("file"), |_| Ok(())).is_err());
}

/// Changes at once count one after the other.
#[test]
fn changes_at_once_all_count() {
    let pool = TestPool::new(1);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let store = pool.open();
            scope.spawn(move || set(&store, ".", Some(&format!("f{number}")), 4096));
        }
    });
    let hints = pool.open().hints(Path::new(".")).unwrap();
    assert_eq!((hints.version, hints.hints().len()), (8, 8));
}

/// The border lies in the middle of a stripe, and servers are left out behind it as elsewhere.
#[test]
fn behind_the_head_the_layout_is_the_pools_own() {
    let pool = TestPool::new(3);
    let files = Files::open(pool.pool.clone()).unwrap();
    set(files.store(), ".", None, 4096);
    make_grown(&files, "f", &pattern(30_000, 2), 1);
    let layout = files.store().lookup(Path::new("f")).unwrap().unwrap().layout().unwrap();
    let default = files.store().default_layout();
    for x in (0..60_000).step_by(512) {
        let expected = if x < 4096 { ServerId::META } else { default.locate(x).server };
        assert_eq!(layout.locate(x).server, expected, "byte {x}");
    }
}

/// Puts the threshold to that share, as if the load had moved it there. A file was made of late.
fn set_share(pool: &TestPool, share: f64) {
    let page = pool.pool.namespace.join("meta-load.2");
    std::fs::OpenOptions::new()
        .write(true)
        .open(page)
        .unwrap()
        .write_all_at(&share.to_bits().to_ne_bytes(), 16)
        .unwrap();
}

/// Of the file that is at that path now.
fn new_head(store: &Arc<Store>, path: &str, head_bytes: u64) -> NewHead {
    NewHead { path: path.into(), handle: store.existing(Path::new(path)).unwrap().unwrap().handle(), head_bytes }
}

#[test]
fn small_files_above_the_threshold_leave_and_truncated_ones_below_it_come_back() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    set(store, ".", None, 64 << 10);
    let sizes = [("small", 10_000), ("middle", 18_000), ("large", 50_000), ("beyond", 200_000), ("ruled", 50_000)];
    for (name, size) in sizes {
        make_grown(&files, name, &pattern(size, 3), 10_000);
    }
    store.set_rule(&Pattern::new("ruled").unwrap(), &layout(&[(0, &[(1, 4096)])])).unwrap();
    let handle = |name: &str| store.lookup(Path::new(name)).unwrap().unwrap().handle();
    let due = |before: &[(&str, f64, Option<u64>)]| {
        set_share(&pool, 0.25);
        let known =
            |&(name, moves, sent_bytes): &(&str, f64, Option<u64>)| (handle(name), MovedBefore { moves, sent_bytes });
        let found = pool.open().due_small_files(&before.iter().map(known).collect()).unwrap();
        found.into_iter().map(|of| (of.path, of.head_bytes, of.moved_bytes)).collect::<Vec<_>>()
    };
    let of = |path: &str, head_bytes: u64, moved_bytes: u64| (path.to_owned(), head_bytes, moved_bytes);
    // 16 KiB is the threshold of all, half as much again that of a file that was moved twice of late.
    let leaving = [of("beyond", 0, 65_536), of("large", 0, 50_000)];
    assert_eq!(due(&[("middle", 2.0, None)]), leaving);
    assert_eq!(due(&[]).len(), 3);
    let mv = |due: Vec<(String, u64, u64)>| {
        let heads: Vec<_> = due.iter().map(|(path, head_bytes, _)| new_head(store, path, *head_bytes)).collect();
        let moved = move_small_files(&pool.pool.file, &heads, &mut On).unwrap();
        assert!(moved.staying.is_empty() && !moved.stopped, "{moved:?}");
        (moved.moved_files, moved.copied_bytes)
    };
    // What lies behind the head stays where it is.
    assert_eq!(mv(leaving.to_vec()), (2, 65_536 + 50_000));
    for (name, size) in sizes {
        assert_eq!(content(&files, name), pattern(size, 3), "{name}");
    }
    assert_eq!([where_it_is(store, "large").0, where_it_is(store, "beyond").0], [0, 0]);
    let sent = [("large", 1.0, Some(50_000)), ("beyond", 1.0, Some(200_000)), ("middle", 2.0, None)];
    assert_eq!(due(&sent), [], "it was not truncated");
    for (name, size) in [("large", 5000), ("beyond", 30_000)] {
        let file = files.open_file(Path::new(name), OFlags::RDWR, Mode::empty()).unwrap();
        file.truncate(size).unwrap();
        file.close().unwrap();
    }
    let back = due(&sent);
    assert_eq!(back, [of("large", 16 << 10, 5000)]);
    assert_eq!(mv(back), (1, 5000));
    // Its datafiles have gone.
    assert_eq!(where_it_is(store, "large"), (16 << 10, 0));
    assert_eq!(std::fs::read(pool.pool.namespace.join("tree/large")).unwrap(), &pattern(50_000, 3)[..5000]);
    assert_eq!(content(&files, "large"), &pattern(50_000, 3)[..5000]);
    assert_eq!(content(&files, "beyond"), &pattern(200_000, 3)[..30_000]);
    assert!(findings(&pool).is_empty());
    // One that has come back is a small file again.
    let file = files.open_file(Path::new("large"), OFlags::RDWR, Mode::empty()).unwrap();
    file.write_at(&[std::io::IoSlice::new(&pattern(40_000, 4))], 5000).unwrap();
    file.close().unwrap();
    assert_eq!(where_it_is(store, "large"), (16 << 10, 2));
}

/// Nothing is kept of earlier moves: each file's handle says how it goes the other way.
/// Its handle cannot be read any more since it was found.
#[test]
fn a_small_file_that_is_damaged_or_gone_keeps_no_other_from_moving_and_counts_as_not_moved() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    set(files.store(), ".", None, 64 << 10);
    for name in ["damaged", "whole"] {
        make_grown(&files, name, &pattern(50_000, 3), 10_000);
    }
    let damaged = pool.pool.namespace.join("tree/damaged");
    let of = |name: &str| new_head(files.store(), name, 0);
    let gone = NewHead { path: "gone".into(), ..of("whole") };
    // Another file has come to its path.
    make_grown(&files, "other", &pattern(50_000, 3), 10_000);
    let other = NewHead { path: "other".into(), ..of("whole") };
    let heads = [of("damaged"), gone, other, of("whole")];
    rustix::fs::setxattr(&damaged, handle::ATTRIBUTE, b"SWEH", XattrFlags::REPLACE).unwrap();
    let moved = move_small_files(&pool.pool.file, &heads, &mut On).unwrap();
    let passed_over = vec!["gone".to_owned(), "other".to_owned()];
    assert_eq!((moved.moved_files, moved.staying.len(), moved.passed_over), (1, 1, passed_over));
    assert_ne!(where_it_is(files.store(), "other").0, 0);
    assert!(moved.staying[0].path == "damaged" && !moved.staying[0].is_busy, "{:?}", moved.staying);
    assert_eq!(where_it_is(files.store(), "whole").0, 0);
}

#[test]
fn a_small_file_leaves_and_comes_back_again_and_again() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    set(store, ".", None, 64 << 10);
    let bytes = pattern(50_000, 3);
    make_grown(&files, "f", &bytes, 10_000);
    let due = |share: f64| {
        set_share(&pool, share);
        pool.open().due_small_files(&Default::default()).unwrap()
    };
    let mv = |due: Vec<DueSmallFile>| {
        let heads: Vec<_> = due.iter().map(NewHead::from).collect();
        let moved = move_small_files(&pool.pool.file, &heads, &mut On).unwrap();
        assert_eq!((moved.moved_files, moved.staying.len()), (1, 0), "{:?}", moved.staying);
    };
    let what = |due: &[DueSmallFile]| due.iter().map(|due| (due.head_bytes, due.moved_bytes)).collect::<Vec<_>>();
    let change = |work: &dyn Fn(&File)| {
        let file = files.open_file(Path::new("f"), OFlags::RDWR, Mode::empty()).unwrap();
        work(&file);
        file.close().unwrap();
    };
    let (mut share, mut long) = (0.25, 50_000);
    for round in 0..3 {
        let leaving = due(share);
        assert_eq!(what(&leaving), [(0, long)], "round {round}");
        mv(leaving);
        assert_eq!(due(1.0), [], "it was not cut, round {round}");
        change(&|file| file.truncate(3000).unwrap());
        let returning = due(0.25);
        assert_eq!(what(&returning), [(16 << 10, 3000)], "round {round}");
        mv(returning);
        assert_eq!((where_it_is(store, "f"), content(&files, "f")), ((16 << 10, 0), bytes[..3000].to_vec()));
        assert_eq!(due(0.25), [], "round {round}");
        change(&|file| {
            let rest = &bytes[3000..16 << 10];
            assert_eq!(file.write_at(&[std::io::IoSlice::new(rest)], 3000).unwrap(), rest.len());
        });
        (share, long) = (1.0 / 256.0, 16 << 10);
    }
    assert_eq!(content(&files, "f"), &bytes[..16 << 10]);
    assert!(findings(&pool).is_empty(), "{:?}", findings(&pool));
}

/// Another move leaves a file that has its first bytes on the servers one that may come back, where it leaves these there.
#[test]
fn a_move_that_leaves_the_head_alone_keeps_no_file_from_coming_back() {
    let pool = TestPool::new(3);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    set(store, ".", None, 64 << 10);
    let bytes = pattern(1 << 20, 5);
    let ahead = OptimisationSetting::parse("readahead=8M").unwrap();
    let inode = |name: &str| store.lookup(Path::new(name)).unwrap().unwrap();
    let other = layout(&[(0, &[(1, 4096), (2, 4096)])]);
    type Change<'a> = &'a dyn Fn(&str);
    let optimised: Change<'_> = &|name| assert!(store.optimise(Path::new(name), &ahead).unwrap());
    let moved: Change<'_> = &|name| {
        inode(name).move_to(&other, name, &mut |_, _| true).unwrap();
    };
    for (name, change) in [("optimised", optimised), ("moved", moved)] {
        make(&files, name, &bytes);
        assert_eq!(where_it_is(store, name), (0, 3), "its first write was longer than its head");
        change(name);
        assert_eq!(content(&files, name), bytes, "{name}");
        let file = files.open_file(Path::new(name), OFlags::RDWR, Mode::empty()).unwrap();
        file.truncate(3000).unwrap();
        file.close().unwrap();
        let due = store.due_small_files(&Default::default()).unwrap();
        let heads: Vec<_> = due.iter().map(NewHead::from).collect();
        assert_eq!(heads, [new_head(store, name, 64 << 10)]);
        move_small_files(&pool.pool.file, &heads, &mut On).unwrap();
        assert_eq!((where_it_is(store, name), content(&files, name)), ((64 << 10, 0), bytes[..3000].to_vec()));
    }
    let made_with = store.path_taken(Path::new("optimised")).unwrap().made_with;
    assert_eq!(made_with.parameters(ahead.pack().0), Some(ahead.pack().1), "the hint for readers has stayed");
}

/// A pool whose metadata tier has 16 MiB, in a mount namespace of its own.
fn with_small_tier() -> TestPool {
    TestPool::with_roots(|base| {
        let names = base.join("names");
        std::fs::create_dir(&names).unwrap();
        mount_tmpfs(&names, "size=16m");
        vec![base.join("s0"), base.join("s1")]
    })
}

/// Fills the metadata tier until this many bytes are left.
fn fill(pool: &TestPool, left_bytes: u64) -> std::path::PathBuf {
    fill_as(pool, "filler", left_bytes)
}

/// [`fill`] by a file of that name.
fn fill_as(pool: &TestPool, name: &str, left_bytes: u64) -> std::path::PathBuf {
    let filler = pool.pool.namespace.join(name);
    let free = rustix::fs::statvfs(&pool.pool.namespace).unwrap();
    let bytes = (free.f_bavail * free.f_frsize - left_bytes) as usize;
    std::fs::write(&filler, vec![1; bytes]).unwrap();
    filler
}

#[test]
fn a_metadata_tier_that_has_only_its_reserve_left_takes_no_more_heads() {
    if in_own_mounts("a_metadata_tier_that_has_only_its_reserve_left_takes_no_more_heads") {
        return;
    }
    let pool = with_small_tier();
    // Each process looks at the room before it makes its first file.
    let made = |name: &str| {
        let files = Files::open(pool.pool.clone()).unwrap();
        make(&files, name, b"some bytes");
        assert_eq!(content(&files, name), b"some bytes");
        where_it_is(files.store(), name)
    };
    set(&pool.open(), ".", None, 64 << 10);
    assert_eq!(made("before"), (64 << 10, 0));
    let filler = fill(&pool, 500 << 10);
    assert_eq!(made("meanwhile"), (0, 1));
    std::fs::remove_file(filler).unwrap();
    // The threshold may not be back yet.
    assert!(made("after").0 >= 4096);
}

#[test]
fn a_metadata_tier_that_fills_gets_smaller_heads_before_it_is_full_and_no_page_of_a_user_changes_that() {
    if in_own_mounts(
        "a_metadata_tier_that_fills_gets_smaller_heads_before_it_is_full_and_no_page_of_a_user_changes_that",
    ) {
        return;
    }
    let pool = with_small_tier();
    let page = pool.pool.namespace.join("meta-load.2");
    let made = |name: &str| {
        let files = Files::open(pool.pool.clone()).unwrap();
        make(&files, name, b"some bytes");
        assert_eq!(content(&files, name), b"some bytes");
        where_it_is(files.store(), name).0
    };
    set(&pool.open(), ".", None, 64 << 10);
    // A page of which no word is what it should be: each process that finds it so begins anew.
    let forge = |byte: u8| {
        let bytes = std::fs::read(&page).unwrap().len();
        std::fs::write(&page, vec![byte; bytes]).unwrap();
    };
    assert_eq!(made("before"), 64 << 10);
    for byte in [0xff, 0x41, 0x7f] {
        forge(byte);
        assert_eq!(made(&format!("plenty {byte:x}")), 64 << 10, "a page of {byte:x}");
    }
    // A sixteenth of the tier is its reserve; half as much again is less than a twentieth of it.
    let filler = fill(&pool, 1600 << 10);
    forge(0xff);
    let head_bytes = made("meanwhile");
    assert!((4096..=32 << 10).contains(&head_bytes), "{head_bytes}");
    let files = Files::open(pool.pool.clone()).unwrap();
    let why = files.store().path_taken(Path::new("meanwhile")).unwrap();
    assert_eq!(why.made_with, small(head_bytes), "what it was made with says so");
    let periods = meta_periods(&pool.pool);
    assert!(periods.last().is_some_and(|period| period.share < 1.0), "{periods:?}");
    std::fs::remove_file(filler).unwrap();
    // Without a page the hints hold as they are written: here a directory stands in its place.
    std::fs::remove_file(&page).unwrap();
    std::fs::create_dir(&page).unwrap();
    assert_eq!(made("after"), 64 << 10);
}

/// Each request on bytes of inodes counts, of every process, and none of those on the servers.
#[test]
fn what_the_metadata_tier_serves_is_counted_by_all_processes_together() {
    let pool = TestPool::new(2);
    let both = [(); 2].map(|()| Files::open(pool.pool.clone()).unwrap());
    set(both[0].store(), ".", None, 4096);
    // The first file that each makes ends a period if one is over: a page of zeros is.
    make(&both[0], "first", b"");
    for (number, files) in both.iter().enumerate() {
        make_grown(files, &format!("f{number}"), &pattern(10_000, 1), 4096);
        assert_eq!(content(files, &format!("f{number}")), pattern(10_000, 1));
        assert_eq!(content(files, "first"), b"", "the end of a file is no request");
    }
    let bytes = std::fs::read(pool.pool.namespace.join("meta-load.2")).unwrap();
    let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    let sum = |at: usize| words[24..88].chunks_exact(8).map(|line| line[at]).sum::<u64>();
    let [begun, reads, writes, read_bytes, written_bytes] = [0, 1, 2, 3, 4].map(sum);
    assert_eq!((writes, written_bytes, reads, read_bytes), (2, 8192, 2, 8192));
    assert_eq!(begun, reads + writes + sum(6) + sum(7), "and operations on names");
}

/// Operations on names that the metadata tier has served, as the page of the load has them: those that look, and changes.
fn served_names(pool: &TestPool) -> (u64, u64) {
    let bytes = std::fs::read(pool.pool.namespace.join("meta-load.2")).unwrap_or_default();
    let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    let lines = || words.iter().skip(24).take(64).copied().collect::<Vec<_>>();
    let sum = |at: usize| lines().chunks_exact(8).map(|line| line[at]).sum();
    (sum(6), sum(7))
}

#[test]
fn operations_on_names_of_the_library_are_load_of_the_tier() {
    for is_emulated in [false, true] {
        let pool = TestPool::new(2);
        if is_emulated {
            let op = "{ startup = [\"10us\", \"10us\"], bandwidth = \"1GB/s\" }";
            let text = std::fs::read_to_string(&pool.pool.file).unwrap();
            let text = format!("{text}\n[meta]\nemulate = {{ read = {op}, write = {op} }}\n");
            std::fs::write(&pool.pool.file, text).unwrap();
        }
        let files = Files::open(Pool::load(&pool.pool.file).unwrap()).unwrap();
        files.make_directory(Path::new("d"), Mode::from_raw_mode(0o700)).unwrap();
        make(&files, "d/f", b"on the servers");
        files.stat(Path::new("d/f"), true).unwrap();
        drop(files.open_file(Path::new("d/f"), OFlags::RDONLY, Mode::empty()).unwrap());
        files.rename(Path::new("d/f"), Path::new("g"), RenameFlags::empty()).unwrap();
        assert_eq!(files.list(Path::new("d")).unwrap().len(), 0);
        files.unlink(Path::new("g")).unwrap();
        assert_eq!(served_names(&pool), (3, 4), "emulated: {is_emulated}");
    }
}

#[test]
fn new_files_have_no_head_where_the_threshold_is_less_than_the_least() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    set(files.store(), ".", None, 64 << 10);
    make(&files, "first", b"some bytes");
    for (name, share, expected) in [("some", 0.07, (4096, 0)), ("none", 0.03, (0, 1)), ("all", 1.0, (64 << 10, 0))] {
        // A period that ends between the two moves the share.
        let made = (0..20).map(|number| {
            let name = format!("{name}{number}");
            set_share(&pool, share);
            make(&files, &name, b"some bytes");
            where_it_is(files.store(), &name)
        });
        assert!({ made }.any(|found| found == expected), "{name}");
    }
}

/// Writes `bytes` from `from` on in pieces; how many of them are there then, and what has stopped it.
fn write_pieces(file: &File, bytes: &[u8], from: usize, piece: usize) -> (usize, Option<rustix::io::Errno>) {
    let mut done = from;
    while done < bytes.len() {
        let end = bytes.len().min(done + piece);
        match file.write_at(&[std::io::IoSlice::new(&bytes[done..end])], done as u64) {
            Ok(count) => done += count,
            Err(error) => return (done, Some(error.errno())),
        }
    }
    (done, None)
}

#[test]
fn a_small_file_that_grows_on_a_full_metadata_tier_goes_on_on_the_servers() {
    if in_own_mounts("a_small_file_that_grows_on_a_full_metadata_tier_goes_on_on_the_servers") {
        return;
    }
    let pool = with_small_tier();
    let files = Files::open(pool.pool.clone()).unwrap();
    set(files.store(), ".", None, 1 << 20);
    let open =
        |name: &str, flags: OFlags| files.open_file(Path::new(name), OFlags::RDWR | flags, Mode::empty()).unwrap();
    let names = ["pieces", "appended", "threads"];
    names.iter().for_each(|name| make(&files, name, b""));
    make(&files, "allocated", b"begins");
    let filler = fill(&pool, 200 << 10);
    let bytes = pattern(1_200_000, 7);
    let pieces = open("pieces", OFlags::empty());
    assert_eq!(write_pieces(&pieces, &bytes, 0, 50_000), (bytes.len(), None));
    pieces.sync(false).unwrap();
    pieces.close().unwrap();
    // What it had there is free again: the next one finds as little.
    let rest = fill_as(&pool, "rest", 100 << 10);
    let appended = open("appended", OFlags::APPEND);
    bytes.chunks(30_000).for_each(|piece| {
        let mut done = 0;
        while done < piece.len() {
            done += appended.write(&[std::io::IoSlice::new(&piece[done..])]).unwrap();
        }
    });
    appended.close().unwrap();
    std::fs::remove_file(rest).unwrap();
    let rest = fill_as(&pool, "rest", 100 << 10);
    let opened = [(); 4].map(|()| open("threads", OFlags::empty()));
    std::thread::scope(|scope| {
        for (first, file) in opened.iter().enumerate() {
            let bytes = &bytes;
            scope.spawn(move || {
                for from in (first * 20_000..bytes.len()).step_by(80_000) {
                    let end = bytes.len().min(from + 20_000);
                    assert_eq!(write_pieces(file, &bytes[..end], from, 20_000), (end, None));
                }
            });
        }
    });
    opened.into_iter().for_each(|file| file.close().unwrap());
    let allocated = open("allocated", OFlags::empty());
    allocated.allocate(FallocateFlags::empty(), 0, 900_000).unwrap();
    allocated.close().unwrap();
    assert_eq!(where_it_is(files.store(), "allocated").0, 0);
    let found = content(&files, "allocated");
    assert!(found.len() == 900_000 && found.starts_with(b"begins") && found[6..].iter().all(|byte| *byte == 0));
    for name in names {
        assert!(!files.store().lookup(Path::new(name)).unwrap().unwrap().has_writers().unwrap(), "{name}");
        assert_eq!(where_it_is(files.store(), name).0, 0, "{name}");
        assert!(content(&files, name) == bytes, "{name}");
    }
    [filler, rest].iter().for_each(|name| std::fs::remove_file(name).unwrap());
    assert!(findings(&pool).is_empty(), "{:?}", findings(&pool));
    // It was not cut.
    assert_eq!(pool.open().due_small_files(&Default::default()).unwrap(), []);
}

/// Heads that were given while there was room grow no further when only the reserve is left: what a full tier breaks first is names.
#[test]
fn a_head_that_was_given_before_grows_into_no_reserve() {
    if in_own_mounts("a_head_that_was_given_before_grows_into_no_reserve") {
        return;
    }
    const MIB: u64 = 1 << 20;
    const PIECE: usize = 50_000;
    let pool = with_small_tier();
    let files = Files::open(pool.pool.clone()).unwrap();
    set(files.store(), ".", None, MIB);
    ["grows", "appended", "allocated", "written over"].iter().for_each(|name| make(&files, name, b"begins"));
    let free_bytes = || {
        let free = rustix::fs::statvfs(&pool.pool.namespace).unwrap();
        free.f_bavail * free.f_frsize
    };
    let room = stripewise_store::Room::at(&pool.pool.namespace).unwrap();
    let reserve_bytes = room.reserve_bytes(pool.pool.default_width_bytes);
    assert!(reserve_bytes > 2 * PIECE as u64);
    let bytes = pattern(900_000, 7);
    // Each process finds out by its first write to an inode, which takes of the reserve, and leaves with the next one.
    let grow = |name: &str, flags: OFlags, how: &dyn Fn(&File)| {
        let filler = fill(&pool, reserve_bytes);
        let files = Files::open(pool.pool.clone()).unwrap();
        let file = files.open_file(Path::new(name), OFlags::RDWR | flags, Mode::empty()).unwrap();
        how(&file);
        let least_bytes = free_bytes();
        file.close().unwrap();
        assert!(least_bytes + PIECE as u64 + 8192 >= reserve_bytes, "{name}: {least_bytes} of {reserve_bytes}");
        std::fs::remove_file(filler).unwrap();
    };
    let write = |file: &File| assert_eq!(write_pieces(file, &bytes, 0, PIECE), (bytes.len(), None));
    grow("grows", OFlags::empty(), &write);
    grow("appended", OFlags::APPEND, &|file| {
        let append = |piece| file.write(&[std::io::IoSlice::new(piece)]).unwrap();
        bytes.chunks(PIECE).for_each(|piece| assert_eq!(append(piece), piece.len()));
    });
    grow("allocated", OFlags::empty(), &|file| {
        assert_eq!(write_pieces(file, &bytes[..PIECE], 0, PIECE).1, None);
        file.allocate(FallocateFlags::empty(), 0, MIB - 4096).unwrap();
    });
    // What needs no room stays where it is.
    grow("written over", OFlags::empty(), &|file| {
        (0..3).for_each(|_| assert_eq!(write_pieces(file, b"BEGINS", 0, 6), (6, None)));
    });
    let heads = ["grows", "appended", "allocated", "written over"].map(|name| where_it_is(files.store(), name).0);
    assert_eq!(heads, [0, 0, 0, MIB]);
    assert!(content(&files, "grows") == bytes && content(&files, "written over") == b"BEGINS");
    assert!(content(&files, "appended") == [&b"begins"[..], &bytes].concat());
    assert!(content(&files, "allocated") == [&bytes[..PIECE], &vec![0; MIB as usize - 4096 - PIECE]].concat());
    assert!(findings(&pool).is_empty(), "{:?}", findings(&pool));
}

/// What may not change its places fails, alone with those bytes that need room on the tier.
#[test]
fn a_full_metadata_tier_fails_the_head_of_a_file_that_another_process_writes_and_loses_none_that_was_written() {
    let name =
        "a_full_metadata_tier_fails_the_head_of_a_file_that_another_process_writes_and_loses_none_that_was_written";
    if in_own_mounts(name) {
        return;
    }
    let pool = with_small_tier();
    let (files, others) = (Files::open(pool.pool.clone()).unwrap(), Files::open(pool.pool.clone()).unwrap());
    let head_bytes = 1 << 20;
    set(files.store(), ".", None, head_bytes);
    make(&files, "f", b"");
    let filler = fill(&pool, 200 << 10);
    let bytes = pattern(head_bytes as usize, 7);
    let other = others.open_file(Path::new("f"), OFlags::RDWR, Mode::empty()).unwrap();
    let file = files.open_file(Path::new("f"), OFlags::RDWR, Mode::empty()).unwrap();
    let (done, error) = write_pieces(&file, &bytes, 0, 50_000);
    assert_eq!(error, Some(rustix::io::Errno::NOSPC));
    assert!(done >= 100_000, "{done}");
    assert_eq!(content(&files, "f"), &bytes[..done]);
    // What comes behind the head has room on its servers, and its lock file is a name without a byte.
    file.write_at(&[std::io::IoSlice::new(b"behind")], head_bytes).unwrap();
    let found = content(&files, "f");
    assert_eq!((&found[..done], &found[head_bytes as usize..]), (&bytes[..done], &b"behind"[..]));
    assert!(found[done..head_bytes as usize].iter().all(|byte| *byte == 0));
    // Once the other has gone, it goes on.
    other.close().unwrap();
    assert_eq!(write_pieces(&file, &bytes, done, 50_000), (bytes.len(), None));
    file.close().unwrap();
    let found = content(&files, "f");
    assert_eq!((&found[..bytes.len()], &found[bytes.len()..]), (&bytes[..], &b"behind"[..]));
    assert_eq!(where_it_is(files.store(), "f").0, 0);
    std::fs::remove_file(filler).unwrap();
    assert!(findings(&pool).is_empty(), "{:?}", findings(&pool));
}

#[test]
fn a_hint_of_more_than_the_metadata_tier_has_fails_no_write() {
    if in_own_mounts("a_hint_of_more_than_the_metadata_tier_has_fails_no_write") {
        return;
    }
    let pool = with_small_tier();
    let files = Files::open(pool.pool.clone()).unwrap();
    set(files.store(), ".", None, 64 << 20);
    let make_open = |name: &str| {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        files.open_file(Path::new(name), flags, Mode::from_raw_mode(0o600)).unwrap()
    };
    // One longer than the tier, and many that are made before the first of them grows.
    let long = pattern(20 << 20, 1);
    let file = make_open("long");
    assert_eq!(write_pieces(&file, &long, 0, 1 << 20), (long.len(), None));
    file.close().unwrap();
    let (head_bytes, _) = where_it_is(files.store(), "long");
    assert!(((1 << 20)..=(2 << 20)).contains(&head_bytes), "an eighth of what the tier can take: {head_bytes}");
    let (many, bytes) = ((0..16).map(|number| format!("f{number}")).collect::<Vec<_>>(), pattern(1_800_000, 2));
    let opened: Vec<_> = many.iter().map(|name| make_open(name)).collect();
    let heads = many.iter().map(|name| where_it_is(files.store(), name).0).sum::<u64>();
    assert!(heads > 16 << 20, "together they may have more than the tier: {heads}");
    for file in &opened {
        assert_eq!(write_pieces(file, &bytes, 0, 100_000), (bytes.len(), None));
    }
    opened.into_iter().for_each(|file| file.close().unwrap());
    assert!(many.iter().all(|name| content(&files, name) == bytes) && content(&files, "long") == long);
    assert!(findings(&pool).is_empty(), "{:?}", findings(&pool));
}

/// Fills the metadata tier when a move has done its first step.
struct FillsThen<'a> {
    pool: &'a TestPool,
    filler: Option<std::path::PathBuf>,
}

impl DrainWatch for FillsThen<'_> {
    fn progress(&mut self, _: &str, done: u64, _: u64) -> Then {
        if done > 0 && self.filler.is_none() {
            self.filler = Some(fill(self.pool, 0));
        }
        Then::On
    }
}

#[test]
fn a_metadata_tier_that_is_full_or_read_only_costs_no_byte_of_a_small_file_that_leaves_or_returns() {
    let name = "a_metadata_tier_that_is_full_or_read_only_costs_no_byte_of_a_small_file_that_leaves_or_returns";
    if in_own_mounts(name) {
        return;
    }
    let pool = with_small_tier();
    let open = || Files::open(pool.pool.clone()).unwrap();
    let (head_bytes, bytes) = (1536 << 10, pattern(1400 << 10, 3));
    {
        let files = open();
        set(files.store(), ".", None, head_bytes);
        make(&files, "leaves", &bytes);
        make(&files, "returns", &bytes);
        let moved = move_small_files(&pool.pool.file, &[new_head(files.store(), "returns", 0)], &mut On).unwrap();
        assert_eq!((moved.moved_files, where_it_is(files.store(), "returns")), (1, (0, 2)));
    }
    let both = [("returns", head_bytes), ("leaves", 0)].map(|(name, bytes)| new_head(open().store(), name, bytes));
    let are_whole = || {
        let files = open();
        for NewHead { path, .. } in &both {
            assert!(content(&files, path) == bytes, "{path}");
        }
        assert!(findings(&pool).is_empty(), "{:?}", findings(&pool));
        (where_it_is(files.store(), "returns").0, where_it_is(files.store(), "leaves").0)
    };
    // In the middle of the way back; what has its bytes on the tier may leave it, which makes room.
    let mut fills = FillsThen { pool: &pool, filler: None };
    let moved = move_small_files(&pool.pool.file, &both[..1], &mut fills).unwrap();
    assert_eq!(moved.moved_files, 0);
    assert!(moved.staying[0].why.contains("No space left"), "{}", moved.staying[0].why);
    let moved = move_small_files(&pool.pool.file, &both[1..], &mut On);
    std::fs::remove_file(fills.filler.unwrap()).unwrap();
    let is_gone = moved.is_ok_and(|moved| moved.moved_files == 1);
    assert_eq!(are_whole(), (0, if is_gone { 0 } else { head_bytes }));
    // Read-only from the beginning: no move begins, or it stays and says why.
    let remount = |flags| rustix::mount::mount_remount(&pool.pool.namespace, flags, c"").unwrap();
    remount(rustix::mount::MountFlags::RDONLY);
    match move_small_files(&pool.pool.file, &both, &mut On) {
        Ok(moved) => {
            assert_eq!((moved.moved_files, moved.staying.len()), (0, 2));
            let why = moved.staying.iter().map(|staying| &staying.why);
            assert!({ why }.all(|why| why.contains("Read-only")), "{:?}", moved.staying);
        }
        Err(error) => assert_eq!(error.errno(), rustix::io::Errno::ROFS, "{error}"),
    }
    remount(rustix::mount::MountFlags::empty());
    are_whole();
    // And then they move.
    let moved = move_small_files(&pool.pool.file, &both, &mut On).unwrap();
    assert!(moved.staying.is_empty(), "{:?}", moved.staying);
    assert_eq!(are_whole(), (head_bytes, 0));
}

/// The file as it is on its servers, without the head that it was to have.
#[test]
fn a_file_whose_first_bytes_are_more_than_its_head_has_none_and_comes_back_when_it_is_cut() {
    let pool = TestPool::new(3);
    let files = Files::open(pool.pool.clone()).unwrap();
    let store = files.store();
    let bytes = pattern(40_000, 1);
    make(&files, "plain", &bytes);
    set(store, ".", None, 8192);
    // A reader that has it open while it is empty.
    make(&files, "long", b"");
    let other = Files::open(pool.pool.clone()).unwrap();
    let reader = other.open_file(Path::new("long"), OFlags::RDONLY, Mode::empty()).unwrap();
    let write = |files: &Arc<Files>, name: &str, flags: OFlags, bytes: &[u8], offset: u64| {
        let file = files.open_file(Path::new(name), OFlags::RDWR | flags, Mode::from_raw_mode(0o600)).unwrap();
        assert_eq!(file.write_at(&[std::io::IoSlice::new(bytes)], offset).unwrap(), bytes.len());
        file
    };
    drop(write(&files, "new", OFlags::CREATE, &bytes, 0));
    drop(write(&files, "long", OFlags::TRUNC, &bytes, 0));
    let layout = |name: &str| store.status(Path::new(name)).unwrap().placed.unwrap().placement.layout;
    for name in ["new", "long"] {
        assert_eq!(where_it_is(store, name), (0, 3), "{name}");
        assert_eq!((layout(name), content(&files, name)), (layout("plain"), bytes.clone()), "{name}");
        assert_eq!(store.path_taken(Path::new(name)).unwrap().made_with, small(8192));
    }
    let mut read = vec![0; bytes.len()];
    assert_eq!(reader.read_at(&mut [std::io::IoSliceMut::new(&mut read)], 0).unwrap(), bytes.len());
    assert_eq!(read, bytes);
    drop(reader);
    // It keeps a head that has a byte, or that another may write meanwhile, here or in another process.
    drop(write(&files, "pieces", OFlags::CREATE, &bytes[..1], 0));
    drop(write(&files, "pieces", OFlags::empty(), &bytes, 0));
    for (name, second) in [("beside", &files), ("elsewhere", &other)] {
        make(&files, name, b"");
        let held = write(second, name, OFlags::empty(), &bytes[..8192], 0);
        held.truncate(0).unwrap();
        drop(write(&files, name, OFlags::TRUNC, &bytes, 0));
    }
    for name in ["pieces", "beside", "elsewhere"] {
        assert_eq!((where_it_is(store, name), content(&files, name)), ((8192, 3), bytes.clone()), "{name}");
    }
    // A rule names the place of every byte.
    let ruled = layout("plain").with_head_in_inode(4096).unwrap();
    store.set_rule(&Pattern::new("ruled").unwrap(), &ruled).unwrap();
    drop(write(&files, "ruled", OFlags::CREATE, &bytes, 0));
    assert_eq!((where_it_is(store, "ruled").0, content(&files, "ruled")), (4096, bytes.clone()));
    // Cut below what its head was to be, it comes back; none other does.
    assert_eq!(store.due_small_files(&Default::default()).unwrap(), []);
    for (size, is_due) in [(8192, false), (5000, true)] {
        let file = files.open_file(Path::new("new"), OFlags::RDWR, Mode::empty()).unwrap();
        file.truncate(size).unwrap();
        file.close().unwrap();
        let due = store.due_small_files(&Default::default()).unwrap();
        let heads: Vec<_> = due.iter().map(NewHead::from).collect();
        assert_eq!(heads, if is_due { vec![new_head(store, "new", 8192)] } else { vec![] });
        move_small_files(&pool.pool.file, &heads, &mut On).unwrap();
    }
    assert_eq!((where_it_is(store, "new"), content(&files, "new")), ((8192, 0), bytes[..5000].to_vec()));
    assert!(findings(&pool).is_empty(), "{:?}", findings(&pool));
}
