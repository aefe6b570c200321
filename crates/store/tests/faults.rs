//! Servers that are missing, full or read-only; damaged handles and pool files.

pub(crate) mod common;

use common::{TestPool, content, create, in_own_mounts, layout, mount_tmpfs, pattern, write, write_all};
use rustix::fd::AsFd;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stripewise_control::{Door, FileId, Gate, Request, Sender, Way};
use stripewise_layout::Pattern;
use stripewise_store::handle::ATTRIBUTE;
use stripewise_store::pool::{META_PRESET, ProfileSource};
use stripewise_store::{Error, PlaneOptions, Pool, Store};

/// Writes pages back.
const KERNEL: Sender = Sender::thread(Way::Mount, 0);

#[test]
fn a_missing_server_costs_only_its_bytes() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    let bytes = pattern(5 * 4096, 1);
    write(&inode, &bytes, 0);
    drop((inode, store));
    let away = pool.directory.path().join("away");
    std::fs::rename(pool.root(1), &away).unwrap();

    let store = pool.open();
    let inode = store.lookup(Path::new("file")).unwrap().unwrap();
    assert_eq!(inode.size_bytes().unwrap(), 5 * 4096);
    let mut buf = vec![0; 5 * 4096];
    assert_eq!(inode.read_at(&mut buf, 0).unwrap(), 4096, "up to the first byte that is missing");
    assert!(buf[..4096] == bytes[..4096]);
    let error = inode.read_at(&mut buf[..10], 5000).unwrap_err();
    assert_eq!(error.errno(), Errno::IO);
    assert!(error.to_string().contains("disk.1") && error.to_string().contains("mount or restore"), "{error}");
    assert_eq!(inode.read_at(&mut buf[..4096], 2 * 4096).unwrap(), 4096);

    // An empty directory in its place, as an unmounted disk leaves one, is not written into.
    std::fs::create_dir(pool.root(1)).unwrap();
    inode.register_writer().unwrap();
    assert_eq!(inode.write_at(b"new", 5000).unwrap_err().errno(), Errno::IO);
    inode.release_writer().unwrap();
    assert_eq!(std::fs::read_dir(pool.root(1)).unwrap().count(), 0);

    // It comes back without anything being opened again.
    std::fs::remove_dir(pool.root(1)).unwrap();
    std::fs::rename(&away, pool.root(1)).unwrap();
    assert!(content(&inode) == bytes);
}

/// Counts what passes.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Gate for Counts {
    fn enter(&self, _: FileId, _: &Request) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What lies before the first datafile that cannot be made is written, as the same request.
#[test]
fn a_write_that_is_done_in_part_passes_the_gate_once() {
    let pool = TestPool::new(2);
    let gate = Arc::new(Counts::default());
    let options = PlaneOptions { door: Door::default().with_gate(gate.clone()), ..PlaneOptions::default() };
    let store = Store::open_with(pool.pool.clone(), options).unwrap();
    let (_fd, inode) = create(&store, "file");
    let away = pool.directory.path().join("away");
    std::fs::rename(pool.root(1), &away).unwrap();
    inode.register_writer().unwrap();
    let bytes = pattern(3 * 4096, 1);
    assert_eq!(inode.write_at(&bytes, 0).unwrap(), 4096);
    assert_eq!(gate.0.load(Ordering::Relaxed), 1);
    inode.release_writer().unwrap();
    std::fs::rename(&away, pool.root(1)).unwrap();
    assert!(content(&inode) == bytes[..4096]);
}

/// What cannot say that it was written in part is written wherever it can be, in regions of several servers too.
#[test]
fn pages_are_written_where_servers_are_there() {
    let regions: &[(u64, &[(u16, u64)])] =
        &[(0, &[(0, 4096), (1, 8192)]), (40_960, &[(2, 4096)]), (57_344, &[(1, 4096), (2, 4096), (0, 8192)])];
    let layout = layout(regions);
    for missing in 0..3_u16 {
        let pool = TestPool::new(3);
        let store = pool.open();
        store.set_rule(&Pattern::new("file").unwrap(), &layout).unwrap();
        let (_fd, inode) = create(&store, "file");
        let (old, new) = (vec![b'o'; 100_000], vec![b'n'; 98_000]);
        write(&inode, &old, 0);
        drop((inode, store));
        let away = pool.directory.path().join("away");
        std::fs::rename(pool.root(missing.into()), &away).unwrap();
        let store = pool.open();
        let inode = store.lookup(Path::new("file")).unwrap().unwrap();
        inode.register_writer().unwrap();
        let error = inode.sent_by(KERNEL).write_all_at(&new, 1000).unwrap_err();
        assert!(error.errno() == Errno::IO && error.to_string().contains(&format!("disk.{missing}")), "{error}");
        inode.release_writer().unwrap();
        std::fs::rename(&away, pool.root(missing.into())).unwrap();
        let found = content(&inode);
        assert_eq!(found.len(), old.len());
        for (at, byte) in found.iter().enumerate() {
            let is_new = (1000..99_000).contains(&at) && layout.locate(at as u64).server.0 != missing;
            assert_eq!(*byte, if is_new { b'n' } else { b'o' }, "byte {at} without server {missing}");
        }
        inode.register_writer().unwrap();
        inode.sent_by(KERNEL).write_all_at(&new, 1000).unwrap();
        inode.release_writer().unwrap();
        assert!(content(&inode)[1000..99_000] == new);
    }
}

#[test]
fn a_missing_server_has_nothing_behind_the_end() {
    let pool = TestPool::new(3);
    let (_fd, inode) = create(&pool.open(), "file");
    let bytes = pattern(2 * 4096 + 50, 1);
    common::write(&inode, &bytes, 0);
    std::fs::rename(pool.root(2), pool.directory.path().join("away")).unwrap();
    let inode = pool.open().lookup(Path::new("file")).unwrap().unwrap();
    assert_eq!(inode.read_at(&mut [0; 10], 2 * 4096).unwrap_err().errno(), Errno::IO);
    for offset in [bytes.len() as u64, 8 * 4096, 1 << 40] {
        assert_eq!(inode.read_at(&mut [0; 10], offset).unwrap(), 0, "at {offset}");
    }
}

/// A server that is missing when the last writer closes, or when the file is put in order after a crash, may hold the
/// file's end.
#[test]
fn a_missing_server_does_not_shorten_the_file() {
    let pool = TestPool::new(3);
    let one = pool.open();
    let (_fd, inode) = create(&one, "file");
    let bytes = pattern(2 * 4096 + 50, 1);
    inode.register_writer().unwrap();
    write_all(&inode, &bytes, 0);
    let away = pool.directory.path().join("away");
    std::fs::rename(pool.root(2), &away).unwrap();
    let two = pool.open();
    let other = two.lookup(Path::new("file")).unwrap().unwrap();
    other.register_writer().unwrap();
    inode.release_writer().unwrap();
    drop((inode, one));

    // The end is on the server that has gone. A process that knows only the rest must not append there, nor take it for the whole.
    let lost = |error: Error| assert!(error.errno() == Errno::IO && error.to_string().contains("disk.2"), "{error}");
    lost(other.append(b"record").unwrap_err());
    lost(other.seek_hole(0).unwrap_err());
    lost(other.read_at(&mut [0; 10], 2 * 4096).unwrap_err());
    assert_eq!(other.read_at(&mut [0; 8192], 0).unwrap(), 8192);
    other.release_writer().unwrap();
    drop((other, two));

    // Opening and closing it again, and trying to move it, do not settle it either.
    let store = pool.open();
    let inode = store.lookup(Path::new("file")).unwrap().unwrap();
    inode.register_writer().unwrap();
    inode.release_writer().unwrap();
    assert!(!inode.has_writers().unwrap());
    lost(inode.move_to(&layout(&[(0, &[(0, 4096)])]), "file", &mut |_, _| true).unwrap_err());

    std::fs::rename(&away, pool.root(2)).unwrap();
    assert_eq!(inode.size_bytes().unwrap(), bytes.len() as u64);
    inode.register_writer().unwrap();
    assert_eq!(inode.append(b"record").unwrap().0, bytes.len() as u64);
    inode.release_writer().unwrap();
    assert_eq!(std::fs::read_dir(pool.pool.namespace.join("locks")).unwrap().count(), 0);
    assert!(content(&inode) == [&bytes[..], b"record"].concat());
}

#[test]
fn a_lost_datafile_is_an_error_and_not_zeros() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    write(&inode, &pattern(3 * 4096, 1), 0);
    let placement = inode.placement().unwrap();
    let (lost, _) = store.look_at(placement.datafiles().unwrap().table[1], placement.handle);
    drop((inode, store));
    std::fs::remove_file(lost).unwrap();
    let store = pool.open();
    let inode = store.lookup(Path::new("file")).unwrap().unwrap();
    let mut buf = [0; 10];
    let error = inode.read_at(&mut buf, 4096).unwrap_err();
    assert!(matches!(error, Error::MissingDatafile { .. }), "{error}");
    assert_eq!(error.errno(), Errno::IO);
    assert_eq!(inode.read_at(&mut buf, 0).unwrap(), 10);
}

#[test]
fn hostile_handles_are_refused() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let (fd, inode) = create(&store, "file");
    write(&inode, b"secret", 0);
    drop(inode);
    let mut handle = [0; 4096];
    let len = rustix::fs::fgetxattr(&fd, ATTRIBUTE, &mut handle[..]).unwrap();
    // Another inode's handle.
    let (other, _) = create(&store, "other");
    rustix::fs::fsetxattr(&other, ATTRIBUTE, &handle[..len], XattrFlags::REPLACE).unwrap();
    let error = store.inode(other.as_fd()).unwrap_err();
    assert!(error.to_string().contains("copied or restored"), "{error}");
    // Any damage.
    for bytes in [&handle[..len - 1], b"", b"SWEH", &[0xff; 100]] {
        rustix::fs::fsetxattr(&other, ATTRIBUTE, bytes, XattrFlags::REPLACE).unwrap();
        assert_eq!(store.inode(other.as_fd()).unwrap_err().errno(), Errno::IO);
    }
    // The other file is as it was.
    assert_eq!(content(&store.lookup(Path::new("file")).unwrap().unwrap()), b"secret");
}

#[test]
fn a_file_that_is_written_stays_where_it_is_needed_and_else_moves() {
    let pool = TestPool::new(2);
    let (store, elsewhere) = (pool.open(), pool.open());
    let (_fd, inode) = create(&store, "file");
    let other = elsewhere.lookup(Path::new("file")).unwrap().unwrap();
    let (target, in_inode) =
        (layout(&[(0, &[(1, 100)])]), layout(&[(0, &[(1, 100)])]).with_head_in_inode(100).unwrap());
    for writer in [&inode, &other] {
        writer.register_writer().unwrap();
        assert!(writer.has_writers().unwrap() && inode.has_writers().unwrap());
        assert!(matches!(inode.move_to(&in_inode, "file", &mut |_, _| true), Err(Error::Busy { .. })));
        inode.move_to(&target, "file", &mut |_, _| true).unwrap();
        assert_eq!(*writer.layout().unwrap(), target);
        // The kernel may append to it by itself, from here on.
        writer.append(b"young").unwrap();
        let target = layout(&[(0, &[(0, 100)])]);
        let error = inode.move_to(&target, "file", &mut |_, _| true).unwrap_err();
        assert!(error.to_string().starts_with("file is open for writing"), "{error}");
        assert_eq!(error.errno(), Errno::BUSY);
        writer.release_writer().unwrap();
        inode.move_to(&pool.pool.default_layout(), "file", &mut |_, _| true).unwrap();
    }
    assert_eq!(content(&inode), b"youngyoung");
    inode.move_to(&target, "file", &mut |_, _| true).unwrap();
    assert_eq!(*other.layout().unwrap(), target, "the other store sees the new layout");
}

#[test]
fn a_stopped_move_leaves_nothing() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    let bytes = pattern(100_000, 2);
    write(&inode, &bytes, 0);
    let before = inode.placement().unwrap();
    let target = layout(&[(0, &[(2, 100)])]);
    let error = inode.move_to(&target, "file", &mut |_, _| false).unwrap_err();
    assert!(error.to_string().contains("keeps its place"), "{error}");
    assert_eq!(inode.placement().unwrap().layout, before.layout);
    assert!(content(&inode) == bytes);
    let new = stripewise_store::placement::Datafile { server: stripewise_layout::ServerId(2), generation: 2 };
    assert!(store.look_at(new, before.handle).1.is_err());
    // A layout that the pool cannot serve.
    let unknown = layout(&[(0, &[(9, 100)])]);
    let error = inode.move_to(&unknown, "file", &mut |_, _| true).unwrap_err();
    assert!(error.to_string().contains("#9"), "{error}");
    assert!(store.set_rule(&Pattern::new("x").unwrap(), &unknown).is_err());
}

#[test]
fn pool_files_with_mistakes_are_refused_by_line() {
    let good = "name = \"p\"\nmount = \"/m\"\nnamespace = \"n\"\n[[tier]]\nname = \"hdd\"\nservers = [\"a\", \"b\"]\n";
    let parse = |text: &str| Pool::parse(text, Path::new("/base/pool.toml"));
    let pool = parse(good).unwrap();
    assert_eq!(pool.namespace, Path::new("/base/n"));
    assert_eq!(pool.servers[1].name, "hdd.1");
    for (text, line, words) in [
        (good.replace("servers", "server"), 6, "server"),
        (good.replace("\"b\"", "\"a\""), 6, "already the directory of hdd.0"),
        (good.replace("hdd", "meta"), 5, "meta"),
        (good.replace("[\"a\", \"b\"]", "[]"), 6, "at least one"),
        (
            good.replace("\"b\"", "{path = \"b\", replaced_by = 0}"),
            6,
            "server b: one that is used is not replaced; leave it out",
        ),
        (
            good.replace("\"b\"", "{path = \"b\", state = \"draining\", replaced_by = 2}"),
            4,
            "replaced_by of hdd.1: name the id of another server, or leave it out",
        ),
        (format!("{good}capacity = \"much\"\n"), 7, "'much'"),
        (format!("{good}kind = \"tape\"\n"), 7, "tier 'hdd': no kind 'tape'; write one of directory"),
        (format!("{good}emulate = \"floppy\"\n"), 7, "hdd-7200"),
        (format!("{good}[tier.read]\nstartup = [\"2ms\", \"1ms\"]\nbandwidth = \"1MB/s\"\n"), 7, "write"),
        (
            format!(
                "{good}[tier.read]\nstartup = [\"2ms\", \"1ms\"]\nbandwidth = \"1MB/s\"\n[tier.write]\n\
                 startup = [\"1ms\", \"1ms\"]\nbandwidth = \"1MB/s\"\n"
            ),
            8,
            "least, greatest",
        ),
        ("name = ".to_owned(), 1, ""),
    ] {
        let error = parse(&text).unwrap_err();
        let Error::Pool { line: found, .. } = &error else { panic!("{error}") };
        assert_eq!(*found, line, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn calibration_keeps_comments() {
    let pool = TestPool::new(2);
    let file = &pool.pool.file;
    let text = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, format!("# my pool\n{text}# the end\n")).unwrap();
    let mut profile = stripewise_store::emulate::preset("ssd-sata").unwrap().profile;
    profile.read.startup_max_s = 0.25;
    profile.read.head = Some(stripewise_store::emulate::Head { sequential_startup_s: 0.001, ahead_bytes: 1 << 18 });
    Pool::write_profile(file, "disk", &profile).unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.starts_with("# my pool\n") && text.contains("# the end"), "{text}");
    let found = Pool::load(file).unwrap().tiers[0].profile.unwrap().0;
    assert!((found.read.startup_max_s - 0.25).abs() < 1e-9, "{text}");
    assert_eq!((found.read.head, found.write.head), (profile.read.head, None));
    // A second one without a head takes that of the first away.
    profile.read.head = None;
    Pool::write_profile(file, "disk", &profile).unwrap();
    assert_eq!(Pool::load(file).unwrap().tiers[0].profile.unwrap().0.read.head, None);
    assert!(Pool::write_profile(file, "tape", &profile).unwrap_err().to_string().contains("tape"));
}

#[test]
fn the_metadata_tier_has_a_profile() {
    let pool = TestPool::new(2);
    let file = &pool.pool.file;
    let of = || Pool::load(file).unwrap().meta.profile;
    assert_eq!(of(), (stripewise_model::presets::device(META_PRESET).unwrap(), ProfileSource::Preset));
    let mut profile = stripewise_store::emulate::preset("nvme").unwrap().profile;
    for startup_max_s in [0.25, 0.125] {
        profile.write.startup_max_s = startup_max_s;
        Pool::write_profile(file, "meta", &profile).unwrap();
        let (found, source) = of();
        assert_eq!(source, ProfileSource::PoolFile);
        assert!((found.write.startup_max_s - startup_max_s).abs() < 1e-9);
    }
    let text = std::fs::read_to_string(file).unwrap();
    assert_eq!(text.matches("[meta.write]").count(), 1, "{text}");
    let half = text.split("[meta.write]").next().unwrap();
    assert!(half.contains("[meta.read]"), "{text}");
    let error = Pool::parse(half, file).unwrap_err().to_string();
    assert!(error.contains("tier 'meta' has no [meta.write]; give both, or run calibrate"), "{error}");
    assert!(Pool::parse(&format!("{text}\n[meta.other]\n"), file).unwrap_err().to_string().contains("other"));
}

#[test]
fn directories_of_other_pools_are_not_taken() {
    let pool = TestPool::new(2);
    let text = std::fs::read_to_string(&pool.pool.file).unwrap();
    // The second server in the first one's place.
    let swapped = text.replace("s0", "sX").replace("s1", "s0").replace("sX", "s1");
    let swapped = Pool::parse(&swapped, &pool.pool.file).unwrap();
    assert!(swapped.prepare().unwrap_err().to_string().contains("keep the order"));
    // Preparing again what is there changes nothing.
    pool.pool.prepare().unwrap();
    let other = text.replace("/names\"", "/names2\"");
    let other = Pool::parse(&other, &pool.pool.file).unwrap();
    assert!(other.prepare().unwrap_err().to_string().contains("belongs to another pool"));
}

#[test]
fn a_full_server_says_so_and_breaks_nothing() {
    if in_own_mounts("a_full_server_says_so_and_breaks_nothing") {
        return;
    }
    let pool = TestPool::with_roots(|base| {
        let roots = vec![base.join("small"), base.join("large")];
        std::fs::create_dir(&roots[0]).unwrap();
        mount_tmpfs(&roots[0], "size=1m");
        roots
    });
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    let bytes = pattern(4 << 20, 1);
    inode.register_writer().unwrap();
    let mut done = 0;
    let error = loop {
        match inode.write_at(&bytes[done..(done + 50_000).min(bytes.len())], done as u64) {
            Ok(count) => done += count,
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), Errno::NOSPC);
    assert!(error.to_string().contains("disk.0") && error.to_string().contains("free space"), "{error}");
    assert!(error.to_string().contains("of 1.0 MiB free"), "what it has is told: {error}");
    assert!(done > 1 << 20, "{done}");
    inode.truncate(done as u64).unwrap();
    // A record that does not fit leaves nothing behind: the file ends where the appends that were told of end.
    while done < bytes.len() {
        match inode.append(&bytes[done..(done + 30_000).min(bytes.len())]) {
            Ok((at, count)) => {
                assert_eq!(at as usize, done);
                done += count;
            }
            Err(error) => {
                assert_eq!(error.errno(), Errno::NOSPC);
                break;
            }
        }
    }
    assert_eq!(inode.size_bytes().unwrap() as usize, done);
    inode.release_writer().unwrap();
    assert!(content(&inode) == bytes[..done]);

    // To the large one; then back, where it does not fit.
    let before = layout(&[(0, &[(1, 65536)])]);
    inode.move_to(&before, "file", &mut |_, _| true).unwrap();
    assert!(content(&inode) == bytes[..done]);
    let back = layout(&[(0, &[(0, 65536)])]);
    // Known before anything is moved; the first that does not fit is named, though others would.
    let error = store.check_moves([("fits", &*inode, &before), ("file", &*inode, &back)]).unwrap_err();
    assert_eq!(error.errno(), Errno::NOSPC);
    let text = error.to_string();
    assert!(text.starts_with("file does not fit") && text.contains("disk.0") && text.contains("KiB free"), "{text}");
    let error = inode.move_to(&back, "file", &mut |_, _| true).unwrap_err();
    assert_eq!(error.errno(), Errno::NOSPC);
    let text = error.to_string();
    assert!(text.contains("file") && text.contains("disk.0") && text.contains("keeps its place"), "{text}");
    assert_eq!(*inode.layout().unwrap(), before);
    assert!(content(&inode) == bytes[..done]);
    let used = rustix::fs::statvfs(pool.root(0)).unwrap();
    assert!(used.f_bfree * used.f_frsize > 900_000, "the failed copy is gone");
}

#[test]
fn a_read_only_server_can_be_read() {
    if in_own_mounts("a_read_only_server_can_be_read") {
        return;
    }
    let pool = TestPool::with_roots(|base| {
        let roots = vec![base.join("a"), base.join("b")];
        std::fs::create_dir(&roots[0]).unwrap();
        mount_tmpfs(&roots[0], "size=1m");
        roots
    });
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    let bytes = pattern(20_000, 1);
    write(&inode, &bytes, 0);
    drop((inode, store));
    let flags = rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(pool.root(0), flags, c"").unwrap();
    let store = pool.open();
    let inode = store.lookup(Path::new("file")).unwrap().unwrap();
    assert!(content(&inode) == bytes);
    inode.register_writer().unwrap();
    let error = inode.write_at(b"x", 0).unwrap_err();
    assert_eq!(error.errno(), Errno::ROFS);
    assert!(error.to_string().contains("disk.0") && error.to_string().contains("remount"), "{error}");
    assert_eq!(inode.write_at(b"x", 4096).unwrap(), 1, "the other server takes it");
    inode.release_writer().unwrap();
}
