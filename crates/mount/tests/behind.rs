//! Hints by which bytes are kept elsewhere than on the servers. Small writes that the mount gathers (`writebehind`): who sees them when,
//! and who is told of errors. What the kernel keeps of what was read (`cached`): who reads it, and who may write meanwhile.

mod common;

use std::fs::{self, File};
use std::io::{self, IoSlice, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use common::faulty::Faulty;
use common::{Mounted, TestPool, eventually};
use fuser::Errno;
use rustix::fs::{Mode, OFlags};
use stripewise_store::{File as StoreFile, Files, Pool, Store};

const WIDTH: usize = 4096;

/// A close; the errno that it gives, or 0.
fn close(file: File) -> i32 {
    // SAFETY: the descriptor is this function's own, and is not used again.
    let done = unsafe { libc::close(std::os::fd::IntoRawFd::into_raw_fd(file)) };
    if done == 0 { 0 } else { io::Error::last_os_error().raw_os_error().unwrap() }
}

fn new(mount: &Mounted, name: &str) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(mount.path(name)).unwrap()
}

#[test]
fn programs_of_one_mount_see_what_is_gathered_and_others_what_was_synced_or_closed() {
    let pool = TestPool::new();
    pool.hint("writebehind=64K:60s");
    let (mount, other) = (Mounted::new(&pool, "mnt", "rw"), Mounted::new(&pool, "other", "rw"));
    let file = new(&mount, "f");
    for number in 0..10_u8 {
        file.write_all_at(&[number; 100], u64::from(number) * 100).unwrap();
    }
    // What others see now is not said: any close of a descriptor, also in a child of another test, puts it on the servers.
    let content: Vec<u8> = (0..10_u8).flat_map(|number| [number; 100]).collect();
    assert_eq!(fs::read(mount.path("f")).unwrap(), content);
    // It is on the servers now, as one of them has asked.
    assert_eq!(fs::read(other.path("f")).unwrap(), content);
    file.write_all_at(b"synced", 1000).unwrap();
    file.sync_data().unwrap();
    assert!(fs::read(other.path("f")).unwrap().ends_with(b"synced"));
    file.write_all_at(b"closed", 1006).unwrap();
    assert_eq!(close(file), 0);
    assert!(fs::read(other.path("f")).unwrap().ends_with(b"syncedclosed"));
    // A write of an open that asks for it is there when it returns.
    let mut synchronous = File::options().write(true).custom_flags(libc::O_DSYNC).open(mount.path("f")).unwrap();
    synchronous.write_all(b"at once").unwrap();
    assert!(fs::read(other.path("f")).unwrap().starts_with(b"at once"));
    let mut appends = File::options().append(true).open(mount.path("f")).unwrap();
    appends.write_all(b"end").unwrap();
    assert!(fs::read(other.path("f")).unwrap().ends_with(b"closedend"));
}

/// A map reads and writes what is gathered.
#[test]
fn maps_have_what_is_gathered() {
    let pool = TestPool::new();
    pool.hint("writebehind=64K:60s");
    let mount = Mounted::new(&pool, "mnt", "rw");
    let said = pool.python(&format!(
        "import mmap, os\n\
         file = os.open({path:?}, os.O_RDWR | os.O_CREAT)\n\
         assert os.pwrite(file, b'a' * 5000, 0) == 5000\n\
         memory = mmap.mmap(file, 5000)\n\
         assert memory[4999:] == b'a'\n\
         assert os.pwrite(file, b'b', 5000) == 1 and os.pwrite(file, b'c', 10) == 1\n\
         assert memory[10:12] == b'ca'\n\
         memory[20:21] = b'd'\n\
         memory.flush()\n\
         assert os.pread(file, 3, 19) == b'ada'\n\
         assert os.fstat(file).st_size == 5001\n\
         print('right')\n",
        path = mount.path("f").to_str().unwrap()
    ));
    assert_eq!(said.trim(), "right");
}

/// The second server, which fails as it is told.
fn faulty_second(pool: &TestPool) -> Faulty {
    fs::rename(pool.path("s1"), pool.path("below")).unwrap();
    fs::create_dir(pool.path("s1")).unwrap();
    Faulty::mount(&pool.path("below"), &pool.path("s1"))
}

/// A disk that is full for a while, or gone: what is kept back is there when it can be, or who syncs it is told.
#[test]
fn what_a_disk_does_not_take_is_kept_until_it_is_synced() {
    let pool = TestPool::new();
    pool.hint("writebehind=64K:60s");
    let server = faulty_second(&pool);
    let mount = Mounted::new(&pool, "mnt", "noatime");
    let (file, lost) = (new(&mount, "kept"), new(&mount, "lost"));
    server.set(|faults| (faults.write, faults.create) = (Some(Errno::ENOSPC), Some(Errno::ENOSPC)));
    let bytes = [[1_u8; WIDTH], [2; WIDTH], [3; WIDTH]].concat();
    file.write_all_at(&bytes, 0).unwrap();
    let read = fs::read(mount.path("kept")).map_err(|error| error.raw_os_error());
    assert!(read.is_err_and(|error| error == Some(libc::ENOSPC)));
    // One of two descriptors, as that of a child is.
    assert_eq!(close(file.try_clone().unwrap()), libc::ENOSPC);
    assert_eq!(fs::metadata(mount.path("kept")).unwrap().len(), bytes.len() as u64);
    server.well();
    assert!(fs::read(mount.path("kept")).unwrap() == bytes);
    assert_eq!(close(file), 0);
    lost.write_all_at(&bytes, 0).unwrap();
    server.die();
    assert!(lost.sync_all().is_err());
    assert_eq!(close(lost), 0, "it was told");
}

/// Errors reach `fsync` and `close` of each that writes; what could be written is there.
#[test]
fn errors_reach_who_has_to_know() {
    let pool = TestPool::new();
    pool.hint("writebehind=64K:60s");
    let server = faulty_second(&pool);
    let mount = Mounted::new(&pool, "mnt", "noatime");
    let cases = [
        ("full", Errno::ENOSPC, libc::ENOSPC),
        ("broken", Errno::EIO, libc::EIO),
        ("readonly", Errno::EROFS, libc::EROFS),
    ];
    for (name, errno, raw) in cases {
        let (writes, syncs, closes) = (new(&mount, name), new(&mount, name), new(&mount, name));
        let reads = File::open(mount.path(name)).unwrap();
        server.set(|faults| (faults.write, faults.create) = (Some(errno), Some(errno)));
        writes.write_all_at(&[1; 2 * WIDTH], 0).unwrap();
        writes.write_all_at(&[2; WIDTH], 2 * WIDTH as u64).unwrap();
        let gives = |what: &str, done: io::Result<()>| {
            assert_eq!(done.err().and_then(|error| error.raw_os_error()), Some(raw), "{name}: {what}");
        };
        gives("sync", writes.sync_all());
        gives("sync of another open", syncs.sync_data());
        assert_eq!(close(closes), raw, "{name}");
        // The next write fails by itself.
        gives("the next write", writes.write_all_at(&[3; 100], WIDTH as u64));
        server.well();
        assert_eq!([close(writes), close(syncs), close(reads)], [0; 3], "each was told once");
        let expected = [[1_u8; WIDTH], [0; WIDTH], [2; WIDTH]].concat();
        assert!(fs::read(mount.path(name)).unwrap() == expected, "{name}: the bytes of the other servers");
    }
}

fn raw(done: io::Result<impl Sized>) -> Option<i32> {
    done.err().and_then(|error| error.raw_os_error())
}

/// After a close, of which the mount is told after the program has gone on.
fn wait_for_writers(pool: &TestPool, name: &str) {
    let store = Store::open(Pool::load(&pool.file()).unwrap()).unwrap();
    let inode = store.lookup(Path::new(name)).unwrap().unwrap();
    eventually("the end of its writers", || !inode.has_writers().unwrap());
}

#[test]
fn what_was_read_once_is_read_again_without_the_servers() {
    let pool = TestPool::new();
    pool.hint("cached=1M");
    let server = faulty_second(&pool);
    let mount = Mounted::new(&pool, "mnt", "noatime");
    let bytes: Vec<u8> = (0..6 * WIDTH).map(|at| (at / 7) as u8).collect();
    let large = vec![5; (1 << 20) + 1];
    for (name, bytes) in [("kept", &bytes), ("large", &large), ("new", &bytes)] {
        fs::write(mount.path(name), bytes).unwrap();
        wait_for_writers(&pool, name);
        assert!(name == "new" || fs::read(mount.path(name)).unwrap() == *bytes);
    }
    server.set(|faults| faults.read = Some(Errno::EIO));
    for _ in 0..3 {
        assert!(fs::read(mount.path("kept")).unwrap() == bytes);
    }
    let kept = File::open(mount.path("kept")).unwrap();
    let mut end = [0; 10];
    assert_eq!(kept.read_at(&mut end, bytes.len() as u64 - 4).unwrap(), 4);
    let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(mount.path("kept")).unwrap();
    let mut all = vec![0; 6 * WIDTH];
    assert_eq!(raw(direct.read_exact_at(&mut all, 0)), Some(libc::EIO), "it asks for the servers");
    assert_eq!(raw(fs::read(mount.path("large"))), Some(libc::EIO), "it is larger than the hint says");
    // What a server does not give is an error, and no end of the file for the kernel.
    assert_eq!(raw(fs::read(mount.path("new"))), Some(libc::EIO));
    assert_eq!(fs::metadata(mount.path("new")).unwrap().len(), bytes.len() as u64);
    server.well();
    assert!(fs::read(mount.path("new")).unwrap() == bytes);
}

fn open_in_store(files: &std::sync::Arc<Files>, flags: OFlags) -> Result<StoreFile, stripewise_store::Error> {
    files.open_file(Path::new("f"), flags, Mode::empty())
}

#[test]
fn what_the_kernel_keeps_has_no_writer_by_any_way_and_is_never_old() {
    let pool = TestPool::new();
    pool.hint("cached");
    let mounts = [Mounted::new(&pool, "mnt", "rw"), Mounted::new(&pool, "other", "rw")];
    let files = Files::open(Pool::load(&pool.file()).unwrap()).unwrap();
    let content = |round: usize| vec![round as u8; 3 * WIDTH + 100 * round];
    fs::write(mounts[0].path("f"), content(0)).unwrap();
    for round in 0..8 {
        wait_for_writers(&pool, "f");
        let kept = File::open(mounts[round % 2].path("f")).unwrap();
        for mount in mounts.iter().chain(&mounts) {
            assert!(fs::read(mount.path("f")).unwrap() == content(round), "round {round}");
        }
        if round == 0 {
            for mount in &mounts {
                let options = || File::options().write(true).open(mount.path("f"));
                assert_eq!(raw(options()), Some(libc::ETXTBSY), "round {round}");
            }
            let by_store = open_in_store(&files, OFlags::RDWR).unwrap_err();
            assert_eq!(by_store.errno(), rustix::io::Errno::TXTBSY, "{by_store}");
        }
        drop(kept);
        // The mounts are told of a close in their own time.
        eventually("a writer", || {
            let next = content(round + 1);
            if round % 3 == 2 {
                let Ok(file) = open_in_store(&files, OFlags::WRONLY) else { return false };
                return file.write_at(&[IoSlice::new(&next)], 0).unwrap() == next.len() && file.close().is_ok();
            }
            let Ok(file) = File::options().write(true).open(mounts[round % 3].path("f")) else { return false };
            file.write_all_at(&next, 0).unwrap();
            // Others see it while it is open, too.
            mounts.iter().for_each(|mount| assert!(fs::read(mount.path("f")).unwrap() == next, "round {round}"));
            true
        });
        for mount in &mounts {
            assert!(fs::read(mount.path("f")).unwrap() == content(round + 1), "round {round}");
        }
    }
    let reads = File::open(mounts[0].path("f")).unwrap();
    fs::remove_file(mounts[1].path("f")).unwrap();
    assert_eq!(reads.metadata().unwrap().len(), content(8).len() as u64);
}
