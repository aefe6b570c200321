//! Several ways to one file: two mounts, two users, and past the mount as the preload goes.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{Mounted, TestPool, eventually, succeeded};
use stripewise_control::{Action, Request, Sender, Way};
use stripewise_layout::{Layout, ServerId};
use stripewise_store::ioctl::{ENSURE_DATAFILES, EnsureDatafiles, MAPPED, PLACEMENT, PlacementPage, SIZE};
use stripewise_store::{DataPlane, PlacedFile, Placement, PlaneOptions, Pool, Store, TransferOutcome};

#[test]
fn two_mounts_of_one_pool_see_each_other() {
    for (servers, options) in [(&["s0", "s1", "s2"][..], "rw"), (&["s0"], "rw"), (&["s0"], "nopassthrough")] {
        let pool = TestPool::with("4KiB", servers);
        let (one, two) = (Mounted::new(&pool, "mnt", options), Mounted::new(&pool, "other", options));
        let mut writer = File::create(one.path("f")).unwrap();
        writer.write_all(&[1; 10_000]).unwrap();
        assert_eq!(fs::read(two.path("f")).unwrap(), vec![1; 10_000]);
        let reader = File::open(two.path("f")).unwrap();
        writer.write_all(&[2; 10_000]).unwrap();
        let mut tail = [0; 20_000];
        assert_eq!(reader.read_at(&mut tail, 10_000).unwrap(), 10_000);
        assert_eq!(tail[..10_000], [2; 10_000]);
        eventually("the new size", || reader.metadata().unwrap().len() == 20_000);
        // The size changed under one is where the other appends.
        let mut appender = File::options().append(true).open(two.path("f")).unwrap();
        writer.set_len(30_000).unwrap();
        appender.write_all(b"end").unwrap();
        assert_eq!(fs::read(one.path("f")).unwrap().len(), 30_003);
        drop((writer, appender, reader));
        fs::remove_file(two.path("f")).unwrap();
        eventually("the name's end", || !one.path("f").exists());
        eventually("the datafiles' end", || pool.datafiles().is_empty());

        let append = |dir: &Path, who: u8| {
            let mut log = File::options().append(true).create(true).open(dir.join("log")).unwrap();
            (0..200).for_each(|_| log.write_all(&[who; 50]).unwrap());
        };
        std::thread::scope(|scope| {
            scope.spawn(|| append(&one.dir, 1));
            scope.spawn(|| append(&two.dir, 2));
            scope.spawn(|| append(&one.dir, 3));
        });
        let log = fs::read(one.path("log")).unwrap();
        assert_eq!(log.len(), 3 * 200 * 50);
        assert!(log.chunks(50).all(|record| record.iter().all(|byte| *byte == record[0])));
    }
}

#[test]
fn what_another_user_makes_is_his() {
    if !rustix::process::geteuid().is_root() {
        // Without root a mount is one user's; `mounting.rs` runs that.
        return;
    }
    let pool = TestPool::new();
    fs::set_permissions(pool.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let mount = Mounted::new(&pool, "mnt", "rw");
    fs::create_dir(mount.path("d")).unwrap();
    fs::set_permissions(mount.path("d"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(mount.path("secret"), b"root's").unwrap();
    fs::set_permissions(mount.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let script = "cd $M/d; umask 027; seq 1 9999 > f; mkdir e; ln -s f l; mkfifo p; ! cat ../secret; ! touch ../g; \
                  install -m 444 f r; cmp f r; stat -c '%u %g %a' f e p r";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-euc", script]);
    let out = succeeded(script, &command.env("M", &mount.dir).output().unwrap());
    assert_eq!(out, "65534 65534 640\n65534 65534 750\n65534 65534 640\n65534 65534 444\n");
    assert!(pool.datafiles().iter().any(|file| fs::metadata(file).unwrap().uid() == 65534));
    assert_eq!(fs::symlink_metadata(mount.path("d/l")).unwrap().uid(), 65534);
    // A program of another user that is written to loses its set-user-id bit.
    fs::set_permissions(mount.path("d/f"), fs::Permissions::from_mode(0o4666)).unwrap();
    let script = "cd $M/d; echo x >> f; stat -c %a f";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "12345", "--regid", "12345", "--clear-groups", "sh", "-euc", script]);
    assert_eq!(succeeded(script, &command.env("M", &mount.dir).output().unwrap()), "666\n");
}

fn ioctl<T>(file: &File, command: u32, argument: &mut T) -> std::io::Result<()> {
    // SAFETY: the commands of the mount read and write as many bytes as their payloads have, and `T` is that payload.
    match unsafe { libc::ioctl(file.as_raw_fd(), u64::from(command), std::ptr::from_mut(argument)) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn placement(file: &File) -> Placement {
    let mut page = PlacementPage::request(0);
    ioctl(file, PLACEMENT, &mut page).unwrap();
    assert_eq!(page.total_bytes, page.filled_bytes, "a small layout fits one page");
    Placement::from_bytes(page.filled().unwrap()).unwrap()
}

/// A request as a program past the mount sends it.
fn request(action: Action) -> Request {
    Request { sender: Sender::this_process(Way::Preload), action, offset: 4096, len: 9000, rank: 0 }
}

#[test]
fn past_the_mount_and_through_it_are_one_file() {
    let pool = TestPool::new();
    let mount = Mounted::new(&pool, "mnt", "rw");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(mount.path("f")).unwrap();
    file.write_at(&[1; 4096], 0).unwrap();

    let plane = DataPlane::open(&Pool::load(&pool.file()).unwrap(), PlaneOptions::default()).unwrap();
    let known = placement(&file);
    assert!(known.bypass);
    let past = PlacedFile::new(plane, known.clone(), None).unwrap();
    let TransferOutcome::Absent(missing) =
        past.write_at(&request(Action::Write), &[IoSlice::new(&[2; 9000])], 4096).unwrap()
    else {
        panic!("two of three datafiles should be missing")
    };
    ioctl(&file, ENSURE_DATAFILES, &mut EnsureDatafiles::new(known.version, &missing)).unwrap();
    assert!(past.is_stale() && past.refresh(&placement(&file)));
    assert_eq!(
        past.write_at(&request(Action::Write), &[IoSlice::new(&[2; 9000])], 4096).unwrap(),
        TransferOutcome::Done(9000)
    );

    // Size and bytes at once, through the mount.
    assert_eq!(file.metadata().unwrap().len(), 13_096);
    let mut size = 0_u64;
    ioctl(&file, SIZE, &mut size).unwrap();
    assert_eq!(size, 13_096);
    let mut data = vec![0; 20_000];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), 13_096);
    assert!(data[..4096] == [1; 4096] && data[4096..13_096] == [2; 9000]);
    file.write_at(&[3; 100], 5000).unwrap();
    let mut there = [0; 100];
    let mut hole = |_, _| Ok(());
    let read = past
        .read_at(&request(Action::Read), &mut [IoSliceMut::new(&mut there)], 5000, &mut || Ok(13_096), &mut hole)
        .unwrap();
    assert_eq!((read, there), (TransferOutcome::Done(100), [3; 100]));

    // A reader may not make datafiles; plain files and other commands are refused.
    let reader = File::open(mount.path("f")).unwrap();
    let refused = ioctl(&reader, ENSURE_DATAFILES, &mut EnsureDatafiles::new(known.version, &missing)).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    let refused = ioctl(&reader, SIZE + 7, &mut size).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOTTY));

    // A map, of whomever, ends the bypass until the last close.
    let script = "import mmap, os; f = open(os.environ['F'], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); \
                  assert m[5000] == 3";
    let output = Command::new("python3").args(["-c", script]).env("F", mount.path("f")).output().unwrap();
    succeeded(script, &output);
    assert!(past.is_stale() && !placement(&file).bypass);
    drop((file, reader));
    let open_again = || File::open(mount.path("f")).map(|file| placement(&file).bypass).unwrap();
    eventually("the bypass", open_again);
    let file = File::open(mount.path("f")).unwrap();
    // SAFETY: the command takes no argument.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), u64::from(MAPPED)) }, 0);
    assert!(!placement(&file).bypass);
}

/// The file moves again and again while a program writes it all the time, by calls and through a map; no byte is lost.
fn beside_a_writer(mount: &Mounted, store: &Arc<Store>, before: Vec<u8>) {
    let path = mount.path("written");
    fs::write(&path, &before).unwrap();
    let inode = store.lookup(Path::new("written")).unwrap().unwrap();
    let script = "import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, os.fstat(f).st_size)
os.pwrite(f, b'%015d ' % 0, 0)
print('ready', flush=True)
for n in range(10 ** 9):
    os.pwrite(f, b'%015d ' % n, 16 * (n % 1000))
    m[40000 + 16 * (n % 1000):40016 + 16 * (n % 1000)] = b'%015d ' % n
    if n % 500 == 499:
        m.flush()
        if os.path.exists(sys.argv[2]):
            break
print(n, flush=True)
";
    let stop = mount.path("stop");
    let mut command = Command::new("python3");
    command.args(["-c", script]).args([&path, &stop]).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let layouts = [[0, 1], [1, 2], [2, 0]].map(|servers| Layout::striped(servers.map(ServerId), 4096).unwrap());
    for layout in layouts.iter().cycle().take(6) {
        inode.move_to(layout, "written", &mut |_, _| true).unwrap();
        assert_eq!(*inode.layout().unwrap(), *layout);
    }
    fs::write(&stop, "").unwrap();
    line.clear();
    out.read_line(&mut line).unwrap();
    assert!(program.wait().unwrap().success());
    let last: usize = line.trim().parse().unwrap();
    let mut expected = before;
    for number in last.saturating_sub(999)..=last {
        let record = format!("{number:015} ");
        for at in [16 * (number % 1000), 40_000 + 16 * (number % 1000)] {
            expected[at..at + 16].copy_from_slice(record.as_bytes());
        }
    }
    assert!(fs::read(&path).unwrap() == expected, "a write is lost");
}

/// A file whose beginning is the inode's own bytes and whose rest is on servers, in regions of different rounds; then
/// moved while it can be, also beside a writer and its map, and refused while it is open for writing with bytes in its inode.
#[test]
fn layouts_by_rule_with_the_metadata_tier_and_a_move() {
    use stripewise_layout::{Pattern, Stripe};
    let pool = TestPool::new();
    let stripe = |server, width_bytes| Stripe { server, width_bytes };
    let layout = Layout::new([
        (0, vec![stripe(ServerId::META, 4096)]),
        (8192, vec![stripe(ServerId(2), 4096)]),
        (20_480, vec![stripe(ServerId(0), 8192), stripe(ServerId(1), 4096)]),
    ])
    .unwrap();
    let store = Store::open(Pool::load(&pool.file()).unwrap()).unwrap();
    store.set_rule(&Pattern::new("d/*").unwrap(), &layout).unwrap();
    pool.sh("mkdir d; seq 1 200 > d/small; seq 1 20000 > d/large; seq 1 20000 > large; cmp large d/large
         dd if=large of=d/parts bs=777 status=none; cmp large d/parts; truncate -s 9000 d/parts; wc -c < d/parts
         seq 1 20000 | tail -c +9001 >> d/parts; cmp large d/parts");
    assert_eq!(*store.lookup(Path::new("d/large")).unwrap().unwrap().layout().unwrap(), layout);
    assert_eq!(pool.datafiles().len(), 3 + 3 + 3, "`small` has no datafile, the others one on each server");

    let mount = Mounted::new(&pool, "mnt", "rw");
    let before = fs::read(mount.path("large")).unwrap();
    let reader = File::open(mount.path("d/large")).unwrap();
    let writer = File::options().append(true).open(mount.path("d/large")).unwrap();
    let inode = store.lookup(Path::new("d/large")).unwrap().unwrap();
    let one = Layout::striped([ServerId(1)], 4096).unwrap();
    let refused = inode.move_to(&one, "d/large", &mut |_, _| true).unwrap_err();
    assert!(matches!(refused, stripewise_store::Error::Busy { .. }), "{refused}");
    drop(writer);
    eventually("the move", || inode.move_to(&one, "d/large", &mut |_, _| true).is_ok());
    beside_a_writer(&mount, &store, before.clone());
    let mut data = vec![0; before.len() + 1];
    assert_eq!(reader.read_at(&mut data, 0).unwrap(), before.len(), "a reader goes on over the move");
    assert_eq!(data[..before.len()], before);
    assert_eq!(fs::read(mount.path("d/large")).unwrap(), before);
}
