//! `fsck`: each kind of damage, made on a real pool, is told by a dry run that changes nothing, mended, and gone then.

mod common;

use common::{TestPool, content, create, layout, pattern, write};
use rustix::fs::{Mode, OFlags, XattrFlags};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use stripewise_layout::Pattern;
use stripewise_store::Inode;
use stripewise_store::fsck::{CheckFinding, CheckOptions, CheckReport, DamageKind, FindingOutcome, check};
use stripewise_store::handle::{ATTRIBUTE, Handle};

/// Runs a check; the report and what was told.
fn fsck_with(pool: &TestPool, options: &CheckOptions) -> (CheckReport, Vec<CheckFinding>) {
    let told = Mutex::new(Vec::new());
    let report = check(&pool.pool, options, &told).unwrap();
    (report, told.into_inner().unwrap())
}

fn dry() -> CheckOptions {
    CheckOptions { dry_run: true, ..CheckOptions::default() }
}

/// Every name below a directory, with what it holds: the pool as its disks see it, times of access left out.
fn snapshot(directory: &Path) -> BTreeMap<PathBuf, (u64, u32, i64, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            let bytes = if metadata.is_file() { std::fs::read(entry.path()).unwrap() } else { Vec::new() };
            if metadata.is_dir() {
                directories.push(entry.path());
            }
            let attribute = attribute(&entry.path()).unwrap_or_default();
            let state =
                (metadata.ino(), metadata.mode(), metadata.mtime(), metadata.mtime_nsec(), [bytes, attribute].concat());
            all.insert(entry.path(), state);
        }
    }
    all
}

fn attribute(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = [0; 4096];
    rustix::fs::lgetxattr(path, ATTRIBUTE, &mut bytes[..]).ok().map(|len| bytes[..len].to_vec())
}

fn set_attribute(path: &Path, bytes: &[u8]) {
    rustix::fs::setxattr(path, ATTRIBUTE, bytes, XattrFlags::empty()).unwrap();
}

fn handle(pool: &TestPool, name: &str) -> Handle {
    Handle::decode(&attribute(&tree(pool, name)).unwrap()).unwrap()
}

fn set_handle(pool: &TestPool, name: &str, handle: &Handle) {
    set_attribute(&tree(pool, name), &handle.encode().unwrap());
}

fn tree(pool: &TestPool, name: &str) -> PathBuf {
    pool.pool.namespace.join("tree").join(name)
}

/// Path of a file's datafile on a server.
fn datafile(pool: &TestPool, server: usize, handle: u64, generation: u32) -> PathBuf {
    pool.root(server).join(format!("{:02x}/{handle:016x}.{generation:08x}", handle & 0xff))
}

/// A pool of three servers with the files `a`, `sub/b` (another layout), `plain` and an empty one.
fn pool() -> TestPool {
    let pool = TestPool::new(3);
    let store = pool.open();
    std::fs::create_dir(tree(&pool, "sub")).unwrap();
    let other = layout(&[(0, &[(u16::MAX, 4096)]), (4096, &[(2, 1000), (0, 3000)]), (50_000, &[(1, 512)])]);
    store.set_rule(&Pattern::new("sub/*").unwrap(), &other).unwrap();
    for name in ["a", "sub/b", "empty"] {
        let (_fd, inode) = create(&store, name);
        if name != "empty" {
            write(&inode, &bytes_of(name), 0);
        }
    }
    std::fs::write(tree(&pool, "plain"), b"plain").unwrap();
    std::fs::hard_link(tree(&pool, "a"), tree(&pool, "sub/a2")).unwrap();
    std::os::unix::fs::symlink("a", tree(&pool, "link")).unwrap();
    pool
}

fn bytes_of(name: &str) -> Vec<u8> {
    pattern(100_000, name.len() as u64)
}

fn read(pool: &TestPool, name: &str) -> Vec<u8> {
    content(&open(pool, name))
}

fn open(pool: &TestPool, name: &str) -> std::sync::Arc<Inode> {
    pool.open().lookup(Path::new(name)).unwrap().unwrap()
}

/// The files that no test damages have their bytes.
fn assert_others_whole(pool: &TestPool, damaged: &[&str]) {
    for name in ["a", "sub/b"] {
        if !damaged.contains(&name) {
            assert!(read(pool, name) == bytes_of(name), "{name}");
        }
    }
}

/// Damage that `fsck` mends: told by a dry run that changes nothing, mended once, not there the second time.
fn mends(pool: &TestPool, kind: DamageKind) -> Vec<CheckFinding> {
    mends_with(pool, kind, &CheckOptions::default())
}

fn mends_with(pool: &TestPool, kind: DamageKind, options: &CheckOptions) -> Vec<CheckFinding> {
    let before = snapshot(pool.directory.path());
    let (report, told) = fsck_with(pool, &CheckOptions { dry_run: true, ..options.clone() });
    assert_eq!(report.exit_code(), 4, "{told:?}");
    assert!(report.of(kind).would_mend > 0, "{told:?}");
    let after = snapshot(pool.directory.path());
    let changed: Vec<_> = before.iter().filter(|(path, state)| after.get(*path) != Some(state)).collect();
    assert!(before.len() == after.len() && changed.is_empty(), "a dry run changed {changed:?}");
    let (report, told) = fsck_with(pool, options);
    assert!(report.of(kind).mended > 0, "{told:?}");
    assert_eq!(report.exit_code(), 1, "{told:?}");
    clean(pool);
    told
}

/// Damage that `fsck` cannot mend: told, and nothing changes.
fn leaves(pool: &TestPool, kind: DamageKind) -> Vec<CheckFinding> {
    let before = snapshot(pool.directory.path());
    let mut all = Vec::new();
    for options in [dry(), CheckOptions::default()] {
        let (report, told) = fsck_with(pool, &options);
        assert_eq!(report.exit_code(), 4, "{told:?}");
        assert!(report.of(kind).left > 0, "{told:?}");
        all = told;
    }
    let after = snapshot(pool.directory.path());
    let namespace = &pool.pool.namespace;
    let interesting = |path: &Path| !path.ends_with("mounts") && path != namespace && !path.ends_with("locks");
    for (path, state) in before.iter().filter(|(path, _)| interesting(path)) {
        assert_eq!(after.get(path), Some(state), "{}", path.display());
    }
    all
}

fn clean(pool: &TestPool) {
    let (report, told) = fsck_with(pool, &CheckOptions::default());
    assert!(report.is_clean(), "{told:?}");
}

#[test]
fn a_pool_in_order_is_clean() {
    let pool = pool();
    let (report, told) = fsck_with(&pool, &dry());
    assert!(report.is_clean() && told.is_empty(), "{told:?}");
    assert_eq!((report.files, report.placed_files), (5, 3));
    assert_eq!(report.datafiles, 6);
    clean(&pool);
    assert_others_whole(&pool, &[]);
}

#[test]
fn orphans_are_kept_and_come_back_with_their_file() {
    let pool = pool();
    let (away, back) = (tree(&pool, "a"), pool.directory.path().join("away"));
    let second = tree(&pool, "sub/a2");
    std::fs::rename(&away, &back).unwrap();
    std::fs::remove_file(&second).unwrap();
    let told = mends(&pool, DamageKind::OrphanDatafile);
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(std::fs::read_dir(pool.root(0).join("lost+found")).unwrap().count(), 1);
    std::fs::rename(&back, &away).unwrap();
    mends(&pool, DamageKind::MissingDatafile);
    assert_others_whole(&pool, &[]);
}

#[test]
fn orphans_without_a_byte_are_removed_and_others_if_asked() {
    let pool = pool();
    std::fs::create_dir_all(pool.root(1).join("0f")).unwrap();
    std::fs::write(datafile(&pool, 1, 0xf, 1), b"").unwrap();
    mends(&pool, DamageKind::OrphanDatafile);
    std::fs::write(datafile(&pool, 1, 0xf, 1), b"x").unwrap();
    mends_with(&pool, DamageKind::OrphanDatafile, &CheckOptions { remove_orphans: true, ..CheckOptions::default() });
    assert!(!pool.root(1).join("lost+found").exists());
    assert_others_whole(&pool, &[]);
}

#[test]
fn what_moves_left_behind_goes() {
    let pool = pool();
    let mut a = handle(&pool, "a");
    // A later version: generation 1 of `sub/b` stays what it is, one before it is a leftover.
    let b = handle(&pool, "sub/b");
    std::fs::write(datafile(&pool, 1, b.logical, 0), pattern(5000, 1)).unwrap();
    let told = mends(&pool, DamageKind::LeftoverDatafile);
    assert!(told[0].action.contains("a finished move"), "{told:?}");
    // A generation to come, without and with the lock file of the mover that died.
    std::fs::write(datafile(&pool, 1, a.logical, a.version + 1), pattern(5000, 1)).unwrap();
    let told = mends(&pool, DamageKind::LeftoverDatafile);
    assert!(told[0].action.contains("lost+found"), "{told:?}");
    std::fs::write(datafile(&pool, 1, a.logical, a.version + 1), pattern(5000, 1)).unwrap();
    std::fs::write(pool.pool.namespace.join(format!("locks/{:016x}", a.logical)), b"").unwrap();
    mends(&pool, DamageKind::StaleLock);
    assert!(!datafile(&pool, 1, a.logical, a.version + 1).exists());
    // A move that was switched and not cleared away.
    a.truncating_to = Some(100_000);
    set_handle(&pool, "a", &a);
    mends(&pool, DamageKind::HalfChange);
    assert_others_whole(&pool, &[]);
}

#[test]
fn an_older_handle_does_not_cost_the_newer_bytes() {
    let pool = pool();
    let before = attribute(&tree(&pool, "a")).unwrap();
    let inode = open(&pool, "a");
    inode.move_to(&layout(&[(0, &[(1, 5000), (2, 100)])]), "a", &mut |_, _| true).unwrap();
    let after = attribute(&tree(&pool, "a")).unwrap();
    // The namespace comes from a backup; the servers do not.
    set_attribute(&tree(&pool, "a"), &before);
    let (report, told) = fsck_with(&pool, &CheckOptions::default());
    assert!(report.of(DamageKind::MissingDatafile).left > 0, "{told:?}");
    assert!(report.of(DamageKind::LeftoverDatafile).mended > 0, "{told:?}");
    let kept: u64 = (0..3)
        .filter_map(|server| std::fs::read_dir(pool.root(server).join("lost+found")).ok())
        .flatten()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(kept, 100_000, "all of it is kept");
    assert_ne!(before, after);
}

#[test]
fn a_truncation_that_stopped_is_finished() {
    let pool = pool();
    let mut a = handle(&pool, "a");
    a.truncating_to = Some(30_000);
    set_handle(&pool, "a", &a);
    mends(&pool, DamageKind::HalfChange);
    assert!(read(&pool, "a") == bytes_of("a")[..30_000]);
    assert_others_whole(&pool, &["a"]);
}

#[test]
fn a_truncation_that_stopped_before_the_inode_knew_ends_where_it_should() {
    let pool = pool();
    let inode = open(&pool, "a");
    inode.truncate(0).unwrap();
    inode.register_writer().unwrap();
    inode.write_at(&[7; 3000], 90_000).unwrap();
    inode.release_writer().unwrap();
    let file = std::fs::File::options().write(true).open(tree(&pool, "a")).unwrap();
    file.set_len(0).unwrap();
    let mut a = handle(&pool, "a");
    // In the hole, where no datafile says how far the file reaches.
    a.truncating_to = Some(50_001);
    set_handle(&pool, "a", &a);
    mends(&pool, DamageKind::HalfChange);
    assert!(read(&pool, "a") == [0; 50_001]);
    assert_others_whole(&pool, &["a"]);
}

#[test]
fn sizes_come_from_the_datafiles() {
    let pool = pool();
    let file = std::fs::File::options().write(true).open(tree(&pool, "a")).unwrap();
    file.set_len(70_000).unwrap();
    mends(&pool, DamageKind::Size);
    assert!(read(&pool, "a") == bytes_of("a"));
    assert_others_whole(&pool, &[]);
}

#[test]
fn lock_files_of_writers_that_are_gone_go() {
    let pool = pool();
    let a = handle(&pool, "a");
    let lock = |handle: u64| pool.pool.namespace.join(format!("locks/{handle:016x}"));
    std::fs::write(lock(a.logical), b"").unwrap();
    mends(&pool, DamageKind::StaleLock);
    std::fs::write(lock(77), b"").unwrap();
    mends(&pool, DamageKind::StaleLock);
    assert_eq!(std::fs::read_dir(pool.pool.namespace.join("locks")).unwrap().count(), 0);
    assert_others_whole(&pool, &[]);
}

#[test]
fn a_handle_with_a_wrong_byte_is_corrected() {
    let pool = pool();
    let right = attribute(&tree(&pool, "a")).unwrap();
    for at in 0..right.len() {
        let mut wrong = right.clone();
        wrong[at] ^= 0x10;
        set_attribute(&tree(&pool, "a"), &wrong);
        let (report, told) = fsck_with(&pool, &CheckOptions::default());
        assert_eq!(report.of(DamageKind::DamagedHandle).mended, 1, "byte {at}: {told:?}");
        assert_eq!(attribute(&tree(&pool, "a")).unwrap(), right, "byte {at}");
    }
    let mut wrong = right.clone();
    wrong[70] ^= 1;
    set_attribute(&tree(&pool, "a"), &wrong);
    mends(&pool, DamageKind::DamagedHandle);
    assert_others_whole(&pool, &[]);
}

#[test]
fn while_a_handle_is_not_known_no_datafile_is_an_orphan() {
    let pool = pool();
    set_attribute(&tree(&pool, "a"), b"SWEH\x01 and nothing else");
    let told = leaves(&pool, DamageKind::DamagedHandle);
    assert_eq!(told.iter().filter(|finding| finding.kind == DamageKind::OrphanDatafile).count(), 3, "{told:?}");
    let later = [&attribute(&tree(&pool, "sub/b")).unwrap()[..4], &[9; 90]].concat();
    set_attribute(&tree(&pool, "a"), &later);
    leaves(&pool, DamageKind::LaterHandle);
    assert_others_whole(&pool, &["a"]);
}

/// `cp -a` of a file of the namespace: size, times and attributes, and no bytes.
fn copy_inode(from: &Path, to: &Path) {
    let metadata = std::fs::metadata(from).unwrap();
    std::fs::copy(from, to).unwrap();
    set_attribute(to, &attribute(from).unwrap());
    std::fs::set_permissions(to, metadata.permissions()).unwrap();
    let file = std::fs::File::options().write(true).open(to).unwrap();
    file.set_modified(metadata.modified().unwrap()).unwrap();
}

#[test]
fn copies_in_the_namespace_get_bytes_of_their_own() {
    let pool = pool();
    for name in ["a", "sub/b"] {
        copy_inode(&tree(&pool, name), &tree(&pool, "copy"));
        mends(&pool, DamageKind::DuplicateHandle);
        assert!(read(&pool, "copy") == bytes_of(name), "{name}");
        assert_ne!(handle(&pool, name).logical, handle(&pool, "copy").logical);
        let inode = open(&pool, "copy");
        write(&inode, b"changed", 10);
        assert!(read(&pool, name) == bytes_of(name), "the copy is a file of its own");
        std::fs::remove_file(tree(&pool, "copy")).unwrap();
        mends(&pool, DamageKind::OrphanDatafile);
    }
    // The bytes of an original that has changed since are unknown.
    copy_inode(&tree(&pool, "a"), &tree(&pool, "copy"));
    write(&open(&pool, "a"), &bytes_of("a"), 0);
    leaves(&pool, DamageKind::DuplicateHandle);
    assert_others_whole(&pool, &[]);
}

#[test]
fn a_copied_pool_is_taken_over() {
    let pool = pool();
    let marker = std::fs::read(pool.pool.namespace.join(".stripewise")).unwrap();
    for name in ["a", "sub/b", "empty"] {
        // A restored inode has another number.
        let (from, to) = (tree(&pool, name), tree(&pool, "restored"));
        copy_inode(&from, &to);
        std::fs::remove_file(&from).unwrap();
        std::fs::rename(&to, &from).unwrap();
    }
    std::fs::remove_file(tree(&pool, "sub/a2")).unwrap();
    leaves(&pool, DamageKind::UnboundHandle);
    mends_with(&pool, DamageKind::UnboundHandle, &CheckOptions { rebind: true, ..CheckOptions::default() });
    assert_ne!(std::fs::read(pool.pool.namespace.join(".stripewise")).unwrap(), marker, "a new uuid");
    assert_others_whole(&pool, &[]);
}

#[test]
fn a_rebind_that_was_killed_goes_on() {
    let pool = pool();
    let uuid = "0123456789abcdef0123456789abcdef";
    std::fs::write(pool.pool.namespace.join("rebind"), uuid).unwrap();
    let marker = pool.root(0).join(".stripewise");
    let text = std::fs::read_to_string(&marker).unwrap();
    let old = text.lines().find_map(|line| line.strip_prefix("uuid = \"")).unwrap().trim_end_matches('"').to_owned();
    std::fs::write(&marker, text.replace(&old, uuid)).unwrap();
    let (report, told) = fsck_with(&pool, &CheckOptions::default());
    assert_eq!((report.exit_code(), report.of(DamageKind::HalfRebind).left), (4, 1), "{told:?}");
    mends_with(&pool, DamageKind::HalfRebind, &CheckOptions { rebind: true, ..CheckOptions::default() });
    assert!(std::fs::read_to_string(&marker).unwrap().contains(uuid));
    assert_others_whole(&pool, &[]);
}

#[test]
fn layouts_are_found_again() {
    let pool = pool();
    let path = |name: &str| {
        let hash: String = handle(&pool, name).layout.iter().map(|byte| format!("{byte:02x}")).collect();
        pool.pool.namespace.join("layouts").join(hash)
    };
    // Plain striping is known without its file.
    std::fs::remove_file(path("a")).unwrap();
    mends(&pool, DamageKind::MissingLayout);
    // One wrong byte.
    let stood = std::fs::read(path("sub/b")).unwrap();
    let mut wrong = stood.clone();
    wrong[5] ^= 7;
    std::fs::write(path("sub/b"), &wrong).unwrap();
    mends(&pool, DamageKind::DamagedLayout);
    // A copy that had not got its name yet.
    std::fs::rename(path("sub/b"), pool.pool.namespace.join("layouts/.x.0123456789abcdef")).unwrap();
    mends(&pool, DamageKind::MissingLayout);
    // Another pool's.
    let other = TestPool::new(3);
    std::fs::copy(path("sub/b"), other.pool.namespace.join("layouts").join(path("sub/b").file_name().unwrap()))
        .unwrap();
    std::fs::write(path("sub/b"), b"nothing of it").unwrap();
    leaves(&pool, DamageKind::DamagedLayout);
    let from = vec![other.pool.namespace.clone()];
    mends_with(&pool, DamageKind::DamagedLayout, &CheckOptions { layouts_from: from, ..CheckOptions::default() });
    assert_others_whole(&pool, &[]);
}

#[test]
fn bytes_that_are_gone_are_given_up_only_when_told() {
    let pool = pool();
    let a = handle(&pool, "a");
    let path = datafile(&pool, 1, a.logical, 1);
    let aside = pool.directory.path().join("aside");
    std::fs::rename(&path, &aside).unwrap();
    leaves(&pool, DamageKind::MissingDatafile);
    std::fs::rename(&aside, &path).unwrap();
    clean(&pool);
    std::fs::remove_file(&path).unwrap();
    mends_with(&pool, DamageKind::MissingDatafile, &CheckOptions { forget_missing: true, ..CheckOptions::default() });
    let (found, put) = (read(&pool, "a"), bytes_of("a"));
    assert!(found.iter().zip(&put).all(|(found, put)| found == put || *found == 0));
    // One that was made after the last sync holds nothing that was promised to a program.
    let mut empty = handle(&pool, "empty");
    empty.present.insert(0);
    set_handle(&pool, "empty", &empty);
    mends(&pool, DamageKind::MissingDatafile);
    assert_others_whole(&pool, &["a"]);
}

#[test]
fn a_missing_server_is_told_with_its_files() {
    let pool = pool();
    let away = pool.directory.path().join("away");
    std::fs::rename(pool.root(1), &away).unwrap();
    let told = leaves(&pool, DamageKind::MissingServer);
    let store = pool.open();
    let mut files: Vec<_> = told.iter().filter_map(|finding| finding.path.clone()).collect();
    files.sort();
    assert!(files.contains(&"sub/b".into()) && files.len() == 2, "{told:?}");
    for finding in told.iter().filter(|finding| finding.path.is_some()) {
        let path = finding.path.as_ref().unwrap();
        let inode = store.lookup(path).unwrap().unwrap();
        let size_bytes = inode.attributes().unwrap().size_bytes;
        let reads = |at: u64| inode.read_at(&mut [0], at).is_ok();
        let is_lost = |at: u64| finding.lost.iter().any(|(from, to)| (*from..*to).contains(&at));
        assert!((0..size_bytes).step_by(512).all(|at| reads(at) != is_lost(at)), "{finding:?}");
        let (first, last) = finding.lost[0];
        assert!(finding.what.contains(&format!("has bytes {first}-{}", last - 1)), "{finding:?}");
        assert_eq!((finding.server.as_deref(), finding.lost_left_out), (Some("disk.1"), 0));
    }
    std::fs::rename(&away, pool.root(1)).unwrap();
    clean(&pool);
    assert_others_whole(&pool, &[]);
}

#[test]
fn markers_are_written_anew_where_it_is_sure() {
    let pool = pool();
    let marker = |server: usize| pool.root(server).join(".stripewise");
    std::fs::remove_file(marker(1)).unwrap();
    mends(&pool, DamageKind::ServerMarker);
    std::fs::write(marker(2), b"uuid = nonsense").unwrap();
    mends(&pool, DamageKind::ServerMarker);
    std::fs::remove_file(pool.pool.namespace.join(".stripewise")).unwrap();
    mends(&pool, DamageKind::NamespaceMarker);
    // Two without a marker could be each other.
    let stood = [0, 1].map(|server| std::fs::read(marker(server)).unwrap());
    std::fs::remove_file(marker(0)).unwrap();
    std::fs::remove_file(marker(1)).unwrap();
    leaves(&pool, DamageKind::ServerMarker);
    // Exchanged.
    std::fs::write(marker(0), &stood[1]).unwrap();
    std::fs::write(marker(1), &stood[0]).unwrap();
    leaves(&pool, DamageKind::ServerMarker);
    std::fs::write(marker(0), &stood[0]).unwrap();
    std::fs::write(marker(1), &stood[1]).unwrap();
    std::fs::remove_dir(pool.pool.namespace.join("locks")).unwrap();
    mends(&pool, DamageKind::NamespaceDirectory);
    assert_others_whole(&pool, &[]);
}

#[test]
fn datafiles_follow_their_owner() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let pool = pool();
    let path = datafile(&pool, 1, handle(&pool, "a").logical, 1);
    std::os::unix::fs::chown(&path, Some(12345), Some(12345)).unwrap();
    mends(&pool, DamageKind::DatafileOwner);
    assert_eq!(std::fs::metadata(&path).unwrap().uid(), std::fs::metadata(tree(&pool, "a")).unwrap().uid());
    // Where others could have put it there it is not laundered.
    std::os::unix::fs::chown(&path, Some(12345), Some(12345)).unwrap();
    std::fs::set_permissions(path.parent().unwrap(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    leaves(&pool, DamageKind::DatafileOwner);
    assert_others_whole(&pool, &["a"]);
}

/// Runs a change of owner that ends, as by a kill, when the inode has been given away and its datafiles have not.
fn interrupted_chown(pool: &TestPool, name: &str, uid: u32) {
    let inode = open(pool, name);
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let change = || -> Result<(), rustix::io::Errno> {
            std::os::unix::fs::chown(tree(pool, name), Some(uid), Some(uid)).unwrap();
            panic!("killed here")
        };
        inode.change_owner(change, || unreachable!())
    }));
    assert!(died.is_err());
}

#[test]
fn in_a_shared_pool_only_what_root_was_giving_away_is_given() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes pools of several users");
        return;
    }
    const ALICE: u32 = 62101;
    const BOB: u32 = 62102;
    let pool = TestPool::shared(3);
    let store = pool.open();
    for name in ["given", "secret", "bobs"] {
        let (fd, inode) = create(&store, name);
        write(&inode, &bytes_of(name), 0);
        let owner = if name == "bobs" { BOB } else { ALICE };
        let change = || rustix::fs::fchown(&fd, Some(rustix::fs::Uid::from_raw(owner)), None);
        inode.change_owner(change, || unreachable!()).unwrap();
    }
    drop(store);
    clean(&pool);
    interrupted_chown(&pool, "given", BOB);
    assert!(open(&pool, "given").read_at(&mut [0; 10], 0).is_err(), "refused until it is mended");
    mends(&pool, DamageKind::DatafileOwner);
    assert!(read(&pool, "given") == bytes_of("given"));
    // Bob claims Alice's datafiles: her file is gone, and Bob's has its handle.
    let theirs = handle(&pool, "secret");
    std::fs::remove_file(tree(&pool, "secret")).unwrap();
    std::fs::write(tree(&pool, "claim"), b"").unwrap();
    std::os::unix::fs::chown(tree(&pool, "claim"), Some(BOB), Some(BOB)).unwrap();
    let real = std::fs::metadata(tree(&pool, "claim")).unwrap().ino();
    let claim = Handle { real, ..theirs.clone() };
    set_handle(&pool, "claim", &claim);
    leaves(&pool, DamageKind::DatafileOwner);
    // As one who was given another file.
    let former: Vec<u8> = [handle(&pool, "given").logical.to_be_bytes().as_slice(), &ALICE.to_be_bytes()].concat();
    rustix::fs::setxattr(tree(&pool, "claim"), "trusted.stripewise", &former, XattrFlags::empty()).unwrap();
    leaves(&pool, DamageKind::DatafileOwner);
    for server in 0..3 {
        let path = datafile(&pool, server, theirs.logical, 1);
        assert_eq!(std::fs::metadata(path).unwrap().uid(), ALICE);
    }
    assert!(read(&pool, "bobs") == bytes_of("bobs"));
}

#[test]
fn datafiles_get_the_mode_and_the_group_of_their_file() {
    let shared = rustix::process::geteuid().is_root();
    for pool in [Some(pool()), shared.then(|| TestPool::shared(3))].into_iter().flatten() {
        let store = pool.open();
        let (fd, inode) = create(&store, "f");
        write(&inode, &bytes_of("f"), 0);
        let change = || rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o640));
        inode.change_mode(Some(0o640), change, || unreachable!()).unwrap();
        let path = datafile(&pool, 1, handle(&pool, "f").logical, 1);
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(), 0o640);
        clean(&pool);
        // Its server was away when the file was shut, or opened to others.
        for wrong in [0o644, 0o666, 0o600, 0o4755] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(wrong)).unwrap();
            mends(&pool, DamageKind::DatafileRights);
            assert_eq!(mode(), 0o640);
        }
        if shared {
            std::os::unix::fs::chown(&path, None, Some(12345)).unwrap();
            mends(&pool, DamageKind::DatafileRights);
            assert_eq!(std::fs::metadata(&path).unwrap().gid(), std::fs::metadata(tree(&pool, "f")).unwrap().gid());
        }
        assert!(read(&pool, "f") == bytes_of("f"));
    }
}

#[test]
fn what_stands_in_the_wrong_place_is_put_right_or_left() {
    let pool = pool();
    let a = handle(&pool, "a").logical;
    // In the directory of other handles.
    let wrong = format!("{:02x}", (a as u8).wrapping_add(1));
    std::fs::create_dir_all(pool.root(0).join(&wrong)).unwrap();
    let there = pool.root(0).join(&wrong).join(format!("{a:016x}.00000001"));
    std::fs::rename(datafile(&pool, 0, a, 1), &there).unwrap();
    // What is there is not given up.
    mends_with(&pool, DamageKind::MisplacedDatafile, &CheckOptions { forget_missing: true, ..CheckOptions::default() });
    assert_others_whole(&pool, &[]);
    // A directory under a datafile's name, and a user's own files.
    let path = datafile(&pool, 1, a, 1);
    let aside = pool.directory.path().join("aside");
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    std::fs::write(pool.root(2).join("notes.txt"), b"mine").unwrap();
    let told = leaves(&pool, DamageKind::DatafileType);
    let notes: Vec<_> = told.iter().filter(|finding| finding.outcome == FindingOutcome::Note).collect();
    assert!(notes.len() == 1 && notes[0].object.as_deref() == Some("notes.txt"), "{told:?}");
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    clean(&pool);
}

#[test]
fn half_written_files_go_unless_they_are_being_written() {
    let pool = pool();
    let path = pool.pool.namespace.join("layouts/.x.0123456789abcdef");
    std::fs::write(&path, b"half").unwrap();
    std::fs::write(pool.root(0).join("..stripewise.0123456789abcdef"), b"half").unwrap();
    mends(&pool, DamageKind::HalfWritten);
    std::fs::write(&path, b"half").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (report, told) = fsck_with(&pool, &CheckOptions::default());
    assert!(report.is_clean() && told.len() == 1 && path.exists(), "{told:?}");
}

#[test]
fn what_is_being_written_is_left_alone() {
    let pool = pool();
    let store = pool.open();
    let inode = store.lookup(Path::new("a")).unwrap().unwrap();
    inode.register_writer().unwrap();
    let mut done = 0;
    while done < 5000 {
        done += inode.write_at(&pattern(5000, 3)[done..], 200_000 + done as u64).unwrap();
    }
    let (report, told) = fsck_with(&pool, &CheckOptions::default());
    assert!(report.is_clean() && report.files_in_use == 1, "{told:?}");
    inode.release_writer().unwrap();
    assert_eq!(content(&inode).len(), 205_000);
    clean(&pool);
}

#[test]
fn files_without_a_name_may_be_open_in_a_mount() {
    let pool = pool();
    let mount = stripewise_store::Neighbours::join(&pool.open()).unwrap();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let _open = rustix::fs::open(tree(&pool, "a"), flags, Mode::empty()).unwrap();
    std::fs::remove_file(tree(&pool, "a")).unwrap();
    std::fs::remove_file(tree(&pool, "sub/a2")).unwrap();
    let (report, told) = fsck_with(&pool, &CheckOptions::default());
    assert_eq!(report.of(DamageKind::OrphanDatafile).in_use, 3, "{told:?}");
    assert_eq!(report.exit_code(), 4);
    let told = Mutex::new(Vec::new());
    let refused = check(&pool.pool, &CheckOptions { rebind: true, ..CheckOptions::default() }, &told).unwrap_err();
    assert!(refused.to_string().contains("mounted"), "{refused}");
    drop(mount);
    mends(&pool, DamageKind::OrphanDatafile);
}
