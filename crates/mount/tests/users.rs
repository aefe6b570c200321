//! Several users on one pool: what each may do, and what no user can do to another. Each attack is made by an
//! unprivileged user with the system calls of an unprivileged process.

mod common;

use common::users::{ALICE, BOB, CAROL, PROJECT, Users, cannot_be_had, groups, private};
use common::{Mounted, TestPool, need, succeeded};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_optimisation::SMALL;
use stripewise_store::fsck::{self, CheckFinding, DamageKind};
use stripewise_store::handle::{ATTRIBUTE, Handle, Optimisations};
use stripewise_store::hints::DirectoryHints;
use stripewise_store::{Pool, Store, export_tree};

/// 40 KB that only Alice may read, on all servers.
const SECRET: &str = "fd = os.open(M + '/secret', os.O_CREAT | os.O_RDWR, 0o600)\nos.write(fd, b'alice' * 8000)\n";

fn secret_is_whole(users: &Users) {
    users.ok(ALICE, "assert open(M + '/secret', 'rb').read() == b'alice' * 8000");
}

#[test]
fn datafiles_are_the_owners_and_follow_chmod_and_chown() {
    let users = Users::new();
    users.ok(ALICE, "fd = os.open(M + '/f', os.O_CREAT | os.O_RDWR, 0o640)\nos.write(fd, b'x' * 40000)");
    let handle = users.handle("f");
    assert_eq!(users.datafiles(&handle).len(), 3);
    assert_eq!(users.modes(&handle), [(ALICE, ALICE, 0o640)]);
    let chmod = |mode: &str| {
        users.ok(ALICE, &format!("os.chmod(M + '/f', {mode})"));
        users.modes(&handle)
    };
    assert_eq!(chmod("0o664"), [(ALICE, ALICE, 0o664)]);
    // Never a program, never set-user-id, and the owner's bits stay: the size has to be settled.
    assert_eq!(chmod("0o6755"), [(ALICE, ALICE, 0o644)]);
    assert_eq!(chmod("0o400"), [(ALICE, ALICE, 0o600)]);
    assert_eq!(chmod("0o040"), [(ALICE, ALICE, 0o640)]);
    users.ok(ALICE, &format!("os.chown(M + '/f', -1, {PROJECT})"));
    assert_eq!(users.modes(&handle), [(ALICE, PROJECT, 0o640)]);
    users.ok(ALICE, &format!("refused(lambda: os.chown(M + '/f', {BOB}, -1), errno.EPERM)"));
    assert_eq!(users.modes(&handle), [(ALICE, PROJECT, 0o640)]);
    std::os::unix::fs::chown(users.mount.path("f"), Some(BOB), Some(BOB)).unwrap();
    assert_eq!(users.modes(&handle), [(BOB, BOB, 0o640)]);
    users.ok(BOB, "os.chmod(M + '/f', 0o600)\nassert open(M + '/f', 'rb').read() == b'x' * 40000");
    users.ok(ALICE, "refused(lambda: open(M + '/f', 'rb'), errno.EACCES)");
}

#[test]
fn a_group_writes_its_files_and_nobody_else_does() {
    let users = Users::new();
    users.ok(
        ALICE,
        &format!(
            "os.mkdir(M + '/d'); os.chown(M + '/d', -1, {PROJECT}); os.chmod(M + '/d', 0o2770)\n\
             fd = os.open(M + '/d/f', os.O_CREAT | os.O_RDWR); os.fchmod(fd, 0o660); os.write(fd, b'a' * 20000)"
        ),
    );
    users.ok(
        BOB,
        "fd = os.open(M + '/d/f', os.O_RDWR | os.O_APPEND); os.write(fd, b'b' * 20000)\n\
         fd = os.open(M + '/d/g', os.O_CREAT | os.O_WRONLY, 0o600); os.write(fd, b'x')",
    );
    users.ok(
        ALICE,
        "assert open(M + '/d/f', 'rb').read() == b'a' * 20000 + b'b' * 20000\n\
         refused(lambda: open(M + '/d/g', 'rb'), errno.EACCES)",
    );
    users.ok(CAROL, "for name in 'f', 'g', 'new':\n    refused(lambda: open(M + '/d/' + name, 'ab'), errno.EACCES)");
    assert_eq!(users.modes(&users.handle("d/f")), [(ALICE, PROJECT, 0o660)]);
}

/// Times at both ends of what there is, and before 1970: the namespace's file system says what becomes of them, and the
/// only thread of a mount lives on.
#[test]
fn no_time_that_a_user_sets_ends_the_mount() {
    let pool = TestPool::shared();
    let mount = Mounted::new(&pool, "mnt", "allow_other,threads=1");
    let users = Users { pool, mount };
    users.ok(
        ALICE,
        "
libc = ctypes.CDLL(None, use_errno=True)
class Time(ctypes.Structure): _fields_ = [('s', ctypes.c_long), ('n', ctypes.c_long)]
def after(path, seconds, nanoseconds):
    times = (Time * 2)(Time(seconds, nanoseconds), Time(seconds, nanoseconds))
    answer = libc.utimensat(-100, path.encode(), times, 0), ctypes.get_errno()
    found = os.stat(path)
    return answer, found.st_mtime_ns, found.st_atime_ns
for name in (M + '/f', OUT + '/f'): open(name, 'wb').write(b'x' * 9999)
for seconds in (-2**63, -2**63 + 1, -2**62, -2**31, -1, 0, 2**31, 2**62, 2**63 - 1):
    for nanoseconds in (0, 1, 999_999_999):
        mount, plain = after(M + '/f', seconds, nanoseconds), after(OUT + '/f', seconds, nanoseconds)
        assert mount == plain, (seconds, nanoseconds, mount, plain)
",
    );
    users.ok(BOB, "assert open(M + '/f', 'rb').read() == b'x' * 9999");
}

#[test]
fn a_forged_handle_reads_nothing_of_another_user() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    users.ok(CAROL, "open(M + '/mine', 'wb').write(b'c' * 40000)");
    users.forge(CAROL, "mine", &users.handle("secret"));
    let read = "try: found = open(M + '/mine', 'rb').read()\nexcept OSError as error: assert error.errno == errno.EIO\nelse: \
                assert b'alice' not in found, found[:100]";
    users.ok(CAROL, read);
    // While the mount has Alice's file open, it must not take the one for the other.
    let held = fs::File::open(users.mount.path("secret")).unwrap();
    users.ok(CAROL, read);
    drop(held);
    secret_is_whole(&users);
}

#[test]
fn a_forged_handle_changes_removes_and_takes_over_nothing_of_another_user() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    let theirs = users.handle("secret");
    let before = users.modes(&theirs);
    let attacks = [
        "os.truncate(M + '/mine', 10)",
        "os.truncate(M + '/mine', 1 << 20)",
        "os.chmod(M + '/mine', 0o666)",
        "os.chown(M + '/mine', -1, os.getgid())",
        "os.utime(M + '/mine', (1, 1))",
        "fd = os.open(M + '/mine', os.O_RDWR); os.write(fd, b'carol' * 8000)",
        "fd = os.open(M + '/mine', os.O_RDWR | os.O_APPEND); os.write(fd, b'carol' * 8000)",
        "fd = os.open(M + '/mine', os.O_RDWR); os.posix_fallocate(fd, 0, 40000)",
        "fd = os.open(M + '/mine', os.O_RDWR | os.O_TRUNC); os.write(fd, b'carol' * 8000); os.fsync(fd)",
        "os.unlink(M + '/mine')",
    ];
    // With the datafiles that there are, as if there were none yet, with another generation, in the middle of a change.
    let none = Handle { present: Default::default(), ..theirs.clone() };
    let other =
        Handle { version: 7, generations: stripewise_store::generations::GenerationMap::whole(7), ..none.clone() };
    let cut = Handle { truncating_to: Some(0), ..theirs.clone() };
    let count = attacks.len();
    for forged in [&theirs, &none, &other, &cut] {
        users.ok(CAROL, &format!("for i in range({count}): open(M + f'/mine{{i}}', 'wb').write(b'c' * 100)"));
        let mut script = String::new();
        for (index, attack) in attacks.iter().enumerate() {
            let name = format!("mine{index}");
            let real = fs::metadata(users.tree(&name)).unwrap().ino();
            let bytes = Handle { real, ..forged.clone() }.encode().unwrap();
            // It may be refused, or concern Carol's own bytes only.
            script += &format!(
                "os.setxattr(TREE + '/{name}', '{ATTRIBUTE}', bytes({bytes:?}))\ntry:\n    {}\nexcept OSError: pass\n\
                 try: os.unlink(M + '/{name}')\nexcept FileNotFoundError: pass\n",
                attack.replace("mine", &name)
            );
        }
        users.ok(CAROL, &script);
        // What another generation wrote is Carol's own.
        let mut found: Vec<_> = users.modes(&theirs).into_iter().filter(|rights| rights.0 != CAROL).collect();
        found.dedup();
        assert_eq!(found, before, "{forged:?}");
        secret_is_whole(&users);
    }
    users.ok(ALICE, "os.truncate(M + '/secret', 0)\nopen(M + '/secret', 'wb').write(b'alice' * 8000)");
    secret_is_whole(&users);
}

#[test]
fn damaged_copied_and_cyclic_handles_are_refused() {
    let users = Users::new();
    users.ok(CAROL, "for name in 'ab': open(M + '/' + name, 'wb').write(name.encode() * 20000)");
    let (a, b) = (users.handle("a"), users.handle("b"));
    let refused = "refused(lambda: open(M + '/a', 'rb').read(), errno.EIO)\nos.stat(M + '/a')";
    // Copied as it is: it names the inode it is of.
    users.set(CAROL, "a", &b.encode().unwrap());
    users.ok(CAROL, refused);
    for wrong in [&b"SWEH"[..], &[0xff; 300], b"", &[b'S'; 3000]] {
        users.set(CAROL, "a", wrong);
        users.ok(CAROL, refused);
    }
    // Each with the other's: two files of one user share datafiles, which is that user's own affair; the mount goes on.
    users.forge(CAROL, "a", &b);
    users.forge(CAROL, "b", &a);
    users.run(CAROL, "for name in 'abab':\n  with open(M + '/' + name, 'r+b') as f: f.read(); f.write(b'x' * 30000)");
    // A layout that is not there, and one that is a page of noise under the right name.
    let layout = [0xab; 32];
    let missing = Handle { layout, ..a.clone() };
    users.forge(CAROL, "a", &missing);
    users.ok(CAROL, refused);
    let name: String = layout.iter().map(|byte| format!("{byte:02x}")).collect();
    users.ok(CAROL, &format!("open(NS + '/layouts/{name}', 'wb').write(b'noise' * 1000)"));
    users.ok(CAROL, refused);
    users.ok(CAROL, "os.unlink(M + '/a'); os.unlink(M + '/b')");
    users.ok(ALICE, SECRET);
    secret_is_whole(&users);
}

#[test]
fn an_overlong_handle_is_refused() {
    // A file system that takes attributes longer than any handle.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let takes = rustix::fs::setxattr(memory.path(), "user.probe", &[b'x'; 5000], rustix::fs::XattrFlags::empty());
    if let Err(errno) = takes {
        eprintln!("skipped: /dev/shm takes no attribute of 5000 bytes ({errno})");
        return;
    }
    let users = Users::of(TestPool::shared_in(memory));
    users.ok(CAROL, "open(M + '/a', 'wb').write(b'a' * 20000)");
    let right = users.handle("a").encode().unwrap();
    // One that would be right, were it not for what follows it.
    for wrong in [[right, vec![0; 5000]].concat(), vec![b'x'; 4097]] {
        users.set(CAROL, "a", &wrong);
        users.ok(
            CAROL,
            "refused(lambda: open(M + '/a', 'rb').read(), errno.EIO)\nrefused(lambda: open(M + '/a', 'r+b'), errno.EIO)\n\
             refused(lambda: os.truncate(M + '/a', 3), errno.EIO)\nos.stat(M + '/a'); os.listdir(M)",
        );
        let store = Store::open(Pool::load(&users.pool.file()).unwrap()).unwrap();
        let said = store.lookup(Path::new("a")).unwrap_err().to_string();
        assert!(said.contains("longer than 4096 bytes"), "{said}");
        let told: Mutex<Vec<CheckFinding>> = Mutex::default();
        let options = fsck::CheckOptions { dry_run: true, ..fsck::CheckOptions::default() };
        let report = fsck::check(store.pool(), &options, &told).unwrap();
        assert_eq!(report.of(DamageKind::DamagedHandle).left, 1, "{told:?}");
    }
    users.ok(ALICE, SECRET);
    secret_is_whole(&users);
    users.ok(CAROL, "os.unlink(M + '/a')");
}

#[test]
fn squatted_datafiles_lead_nowhere() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    users.ok(
        ALICE,
        "fd = os.open(M + '/victim', os.O_CREAT | os.O_RDWR, 0o666)\nos.fchmod(fd, 0o666); os.write(fd, b'v' * 40000)",
    );
    let target = users.datafiles(&users.handle("victim"))[0].clone();
    let squats = [
        format!("os.symlink({target:?}, path)"),
        "os.symlink('/dev/zero', path)".to_owned(),
        "os.mkfifo(path)".to_owned(),
        "os.mkdir(path)".to_owned(),
        "open(path, 'wb').write(b'carol'); os.chmod(path, 0o666)".to_owned(),
        // Another datafile of Alice's, which Carol may write.
        format!("os.link({target:?}, path)"),
    ];
    for (index, squat) in squats.iter().enumerate() {
        users.ok(ALICE, &format!("open(M + '/f{index}', 'wb')"));
        let handle = users.handle(&format!("f{index}"));
        let name = format!("{:02x}/{:016x}.{:08x}", handle.logical & 0xff, handle.logical, 1);
        users.ok(CAROL, &format!("for server in SERVERS:\n    path = server + '/{name}'\n    {squat}"));
        let written = users.run(
            ALICE,
            &format!(
                "fd = os.open(M + '/f{index}', os.O_WRONLY)\ntry: os.write(fd, b'mine' * 10000)\nexcept OSError as \
                 error: assert error.errno == errno.EIO, error\nelse: assert open(M + '/f{index}', 'rb').read() == \
                 b'mine' * 10000"
            ),
        );
        succeeded(squat, &written);
        let target = users.pool.path("out/x");
        let _ = fs::remove_file(target);
    }
    // Nothing came of it: what the links led to is as it was.
    users.ok(ALICE, "assert open(M + '/victim', 'rb').read() == b'v' * 40000");
    secret_is_whole(&users);
}

#[test]
fn datafiles_of_another_user_cannot_be_removed_exchanged_or_listed() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    for datafile in users.datafiles(&users.handle("secret")) {
        let directory = datafile.parent().unwrap();
        users.ok(
            CAROL,
            &format!(
                "p = {datafile:?}\nno = errno.EACCES, errno.EPERM\n\
                 refused(lambda: os.unlink(p), *no); refused(lambda: os.rename(p, p + 'x'), *no)\n\
                 open(OUT + '/c', 'wb'); refused(lambda: os.rename(OUT + '/c', p), errno.EXDEV, *no)\n\
                 refused(lambda: open(p, 'rb'), *no); refused(lambda: open(p, 'r+b'), *no)\n\
                 refused(lambda: os.truncate(p, 0), *no); refused(lambda: os.chmod(p, 0o666), *no)\n\
                 refused(lambda: os.listdir({directory:?}), *no); refused(lambda: os.rmdir({directory:?}), *no)"
            ),
        );
    }
    users.ok(CAROL, "no = errno.EACCES, errno.EPERM\nrefused(lambda: os.listdir(NS + '/locks'), *no)\n\
         for name in '.stripewise', 'epoch':\n    refused(lambda: open(NS + '/' + name, 'r+b'), *no)\n    \
         refused(lambda: os.unlink(NS + '/' + name), *no)\n\
         refused(lambda: open(NS + '/rules.toml', 'wb'), *no)\nrefused(lambda: os.rename(NS + '/tree', NS + '/t'), *no)");
    secret_is_whole(&users);
}

/// The layout that most files have is root's before any user comes.
#[test]
fn the_default_layout_is_roots_from_the_start() {
    let pool = TestPool::shared();
    let layouts: Vec<_> = fs::read_dir(pool.path("ns/layouts")).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(layouts.iter().map(|entry| entry.metadata().unwrap().uid()).collect::<Vec<_>>(), [0]);
    let users = Users::of(pool);
    users.ok(CAROL, "open(M + '/hers', 'wb').write(b'c' * 100)");
    let layout: String = users.handle("hers").layout.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(layouts[0].file_name().to_str(), Some(layout.as_str()));
    users.ok(CAROL, &format!("refused(lambda: os.unlink(NS + '/layouts/{layout}'), errno.EPERM, errno.EACCES)"));
}

/// A hundred bytes that would stand for a million stripes: refused by name, whichever user opens a file of that layout.
#[test]
fn a_layout_of_servers_that_there_are_not_is_refused_before_it_is_read() {
    let users = Users::new();
    users.ok(CAROL, "open(M + '/mine', 'wb').write(b'c' * 100)");
    // 15 regions of one round of 65,535 servers.
    let bomb = [&[1, 1, 1, 0, 0xff, 0xff, 3, 1, 15, 0, 0][..], &[1, 0].repeat(14)].concat();
    let layout = Layout::from_bytes(&bomb).unwrap().hash();
    let name: String = layout.iter().map(|byte| format!("{byte:02x}")).collect();
    users.ok(CAROL, &format!("open(NS + '/layouts/{name}', 'wb').write(bytes({bomb:?}))"));
    users.forge(CAROL, "mine", &Handle { layout, ..users.handle("mine") });
    users.ok(CAROL, "refused(lambda: open(M + '/mine', 'rb').read(), errno.EIO)");
    let store = Store::open(Pool::load(&users.pool.file()).unwrap()).unwrap();
    let said = store.lookup(Path::new("mine")).unwrap_err().to_string();
    assert!(said.contains("not among the pool's 3"), "{said}");
}

#[test]
fn a_layout_that_another_user_put_and_takes_away_is_kept_by_who_needs_it() {
    let users = Users::new();
    // Carol is the first to have a file; with a private mount or by hand, the layout's file would be hers.
    users.ok(CAROL, "open(M + '/hers', 'wb').write(b'c' * 100)");
    let layout: String = users.handle("hers").layout.iter().map(|byte| format!("{byte:02x}")).collect();
    let kept = users.pool.path("ns/layouts").join(&layout);
    std::os::unix::fs::chown(&kept, Some(CAROL), Some(CAROL)).unwrap();
    users.ok(CAROL, &format!("d = NS + '/layouts/{layout}'\nopen(d + '.0', 'wb').write(open(d, 'rb').read())"));
    drop(users.mount);
    let mount = Mounted::new(&users.pool, "mnt", "allow_other");
    let users = Users { pool: users.pool, mount };
    users.ok(ALICE, SECRET);
    // Root's mount has put its own there, whatever stood under that name or under the one of a copy of root's.
    users.ok(
        CAROL,
        &format!(
            "for name in '{layout}', '{layout}.0':\n    try: os.unlink(NS + '/layouts/' + name)\n    except \
             PermissionError: continue\n    os.mkfifo(NS + '/layouts/' + name)"
        ),
    );
    drop(users.mount);
    let mount = Mounted::new(&users.pool, "mnt", "allow_other");
    let users = Users { pool: users.pool, mount };
    secret_is_whole(&users);
}

/// A file that is only read needs its layout as well.
#[test]
fn a_layout_of_another_user_is_kept_by_reading_a_file_that_needs_it() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    let layout: String = users.handle("secret").layout.iter().map(|byte| format!("{byte:02x}")).collect();
    // As if Carol had been the first to have it, on a mount of her own.
    std::os::unix::fs::chown(users.pool.path("ns/layouts").join(&layout), Some(CAROL), Some(CAROL)).unwrap();
    let mounted_anew = |users: Users| {
        drop(users.mount);
        let mount = Mounted::new(&users.pool, "mnt", "allow_other");
        Users { pool: users.pool, mount }
    };
    let users = mounted_anew(users);
    secret_is_whole(&users);
    users.ok(CAROL, &format!("refused(lambda: os.unlink(NS + '/layouts/{layout}'), errno.EPERM)"));
    secret_is_whole(&mounted_anew(users));
}

/// Carol has many files of large layouts open: she is told, and the others are served.
#[test]
fn layouts_of_one_users_open_files_take_so_much_memory_and_no_more() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    for number in 0..6_u64 {
        let round = |width_bytes| {
            let stripe = |server| Stripe { server: ServerId(server), width_bytes };
            vec![stripe(0), stripe(1), stripe(2)]
        };
        let large = Layout::new((0..300_000).map(|region| (region << 20, round(region % 2 + 2 * number + 1)))).unwrap();
        let bytes = large.to_bytes();
        let hash = large.hash();
        let name: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = users.pool.path("ns/layouts").join(name);
        fs::write(&path, bytes).unwrap();
        std::os::unix::fs::chown(&path, Some(CAROL), Some(CAROL)).unwrap();
        users.ok(CAROL, &format!("open(M + '/large{number}', 'wb')"));
        let handle = users.handle(&format!("large{number}"));
        users.forge(CAROL, &format!("large{number}"), &Handle { layout: hash, ..handle });
    }
    let hold = "held, told = [], []\nfor number in range(6):\n    try: held.append(os.open(f'{M}/large{number}', os.O_RDONLY))\n    \
         except OSError as error: told.append(error.errno)\nassert len(held) > 1 and set(told) == {errno.ENOMEM}, (held, told)\n\
                open(OUT + '/held', 'wb')\nwhile not os.path.exists(OUT + '/go'): time.sleep(0.01)";
    std::thread::scope(|scope| {
        let carol = scope.spawn(|| users.ok(CAROL, hold));
        while !users.pool.path("out/held").exists() {
            assert!(!carol.is_finished() || users.pool.path("out/held").exists(), "she could not hold them");
            std::thread::yield_now();
        }
        secret_is_whole(&users);
        users.ok(ALICE, "open(M + '/new', 'wb').write(b'a' * 40000)");
        fs::write(users.pool.path("out/go"), b"").unwrap();
        carol.join().unwrap();
    });
    // What she has closed counts no more.
    let one = "fd = os.open(f'{M}/large{number}', os.O_RDONLY); os.close(fd)";
    common::eventually("her files are closed", || {
        users.run(CAROL, &format!("for number in range(6): {one}")).status.success()
    });
}

#[test]
fn squatted_lock_files_and_locks_held_for_ever_hinder_nobody_else() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    let lock = format!("{:016x}", users.handle("secret").logical);
    for squat in [
        "os.mkfifo(p)",
        "os.mkdir(p)",
        "os.symlink('/dev/zero', p)",
        "open(p, 'wb').write(b'x')",
        "os.link(OUT + '/link', p)",
    ] {
        users.ok(CAROL, &format!("open(OUT + '/link', 'wb')\np = NS + '/locks/{lock}'\n{squat}"));
        users.ok(ALICE, "with open(M + '/secret', 'r+b') as f: f.write(b'alice')");
        secret_is_whole(&users);
    }
    // A file that all may write, whose lock file Carol may open: the mount has more than enough threads for the others.
    users.ok(ALICE, "fd = os.open(M + '/all', os.O_CREAT | os.O_RDWR); os.fchmod(fd, 0o666); os.write(fd, b'x')");
    users.ok(CAROL, "open(M + '/hers', 'wb').write(b'x' * 40000)");
    let locks = ["all", "hers"].map(|name| format!("{:016x}", users.handle(name).logical));
    let hold = format!(
        "for name in {locks:?}:\n    fd = os.open(NS + '/locks/' + name, os.O_RDWR | os.O_CREAT, 0o666)\n    \
         os.fchmod(fd, 0o666)\n    fcntl.fcntl(fd, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0))\n\
         children = []\nfor child in range(40):\n    children.append(os.fork())\n    if children[-1] == 0:\n        \
         for name in 'all', 'hers':\n            try: os.write(os.open(M + '/' + name, os.O_WRONLY | os.O_APPEND), b'x')\n            \
         except OSError: pass\n        os._exit(0)\n\
         open(OUT + '/held', 'wb')\nfor child in children: os.waitpid(child, 0)\nprint('ended')"
    );
    std::thread::scope(|scope| {
        let carol = scope.spawn(|| users.ok(CAROL, &hold));
        common::eventually("the locks are held", || users.pool.path("out/held").exists());
        for round in 0..20 {
            users.ok(ALICE, &format!("open(M + '/a{round}', 'wb').write(b'a' * 40000); open(M + '/a{round}', 'r+b')"));
        }
        assert_eq!(carol.join().unwrap().trim(), "ended", "she has been told, too");
    });
    secret_is_whole(&users);
}

#[test]
fn hostile_control_pages_kill_and_mislead_nobody() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    // Squatted, shortened and scribbled over.
    users.ok(
        CAROL,
        &format!(
            "os.mkfifo(NS + '/epochs/{BOB}')\nwith open(NS + '/epochs/{CAROL}', 'wb') as f: f.write(os.urandom(1 << 18)); \
             f.truncate(1)\nrefused(lambda: open(NS + '/mounts', 'wb'), errno.EACCES)\n\
             for server in SERVERS: refused(lambda: open(server + '/queue', 'wb'), errno.EACCES)"
        ),
    );
    secret_is_whole(&users);
    // Bob's own way in names what is in the way; the mount serves it.
    let private = private(&users, BOB, "true");
    let said = String::from_utf8_lossy(&private.stderr).into_owned();
    if !cannot_be_had(&said) {
        assert!(!private.status.success() && said.contains(&format!("epochs/{BOB}")), "{said}");
    }
    users.ok(BOB, "open(M + '/bobs', 'wb').write(b'b' * 40000)\nassert len(open(M + '/bobs', 'rb').read()) == 40000");
}

#[test]
fn a_name_exchanged_under_the_mount_leads_to_nothing_that_the_caller_may_not_touch() {
    let users = Users::new();
    // The kernel of the mount remembers Carol's file; in the tree, the name has become Alice's.
    let exchange = |attack: &str, name: &str| {
        let [go, done] = ["go", "done"].map(|step| users.pool.path(&format!("out/{step}-{name}")));
        let script = format!(
            "open(M + '/{name}', 'wb').write(b'c'); os.makedirs(M + '/hers', exist_ok=True); open(M + '/hers/y', 'wb')\n\
             os.stat(M + '/{name}'); begin = time.monotonic(); os.unlink(TREE + '/{name}'); open({go:?}, 'wb')\n\
             while not os.path.exists({done:?}): pass\n\
             try:\n    {}\nexcept OSError: pass\nprint(time.monotonic() - begin)",
            attack.replace("NAME", name)
        );
        std::thread::scope(|scope| {
            let carol = scope.spawn(|| users.ok(CAROL, &script));
            while !go.exists() {
                assert!(!carol.is_finished(), "{script}");
                std::thread::yield_now();
            }
            fs::write(users.tree(name), b"alice").unwrap();
            std::os::unix::fs::chown(users.tree(name), Some(ALICE), Some(ALICE)).unwrap();
            fs::set_permissions(users.tree(name), fs::Permissions::from_mode(0o600)).unwrap();
            fs::write(&done, b"").unwrap();
            let seconds: f64 = carol.join().unwrap().trim().parse().unwrap();
            assert!(fs::read(users.tree(name)).is_ok_and(|bytes| bytes == b"alice"), "{attack}");
            seconds < 0.9
        })
    };
    let attacks =
        ["os.unlink(M + '/NAME')", "os.rename(M + '/NAME', M + '/hers/NAME')", "os.rename(M + '/hers/y', M + '/NAME')"];
    for attack in attacks {
        // Only within the second for which the kernel believes the name has the attack been made.
        for round in 0..3 {
            if exchange(attack, &format!("x{round}{}", attack.len())) {
                break;
            }
        }
    }
    // A directory that Carol may no longer write, or that is a link by now.
    users.ok(ALICE, "os.mkdir(M + '/d'); os.chmod(M + '/d', 0o777)");
    users.ok(CAROL, "os.stat(M + '/d')");
    users.ok(ALICE, "os.chmod(TREE + '/d', 0o755)");
    users.run(CAROL, "open(M + '/d/new', 'wb')");
    assert!(!users.tree("d/new").exists());
}

#[test]
fn an_access_list_of_the_tree_holds_in_the_mount_and_for_datafiles() {
    let users = Users::new();
    users.ok(ALICE, "open(M + '/f', 'wb').write(b'a' * 40000)");
    users.ok(CAROL, "open(M + '/f', 'rb').read()");
    // All may read but Carol: version 2, then entries of tag, permissions and id.
    let list = format!(
        "acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in [(1, 6, 0xffffffff), (2, 0, {CAROL}), (4, 4, \
         0xffffffff), (16, 4, 0xffffffff), (32, 4, 0xffffffff)])\nos.setxattr(TREE + '/f', 'system.posix_acl_access', acl)"
    );
    let set = users.run(ALICE, &list);
    if String::from_utf8_lossy(&set.stderr).contains("Operation not supported") {
        eprintln!("skipped: the file system of the temporary directory has no access control lists");
        return;
    }
    succeeded(&list, &set);
    users.ok(CAROL, "refused(lambda: open(M + '/f', 'rb'), errno.EACCES)");
    users.ok(BOB, "open(M + '/f', 'rb').read()");
    // What changes afterwards does not open the datafiles to her.
    users.ok(ALICE, "os.chmod(M + '/f', 0o644)");
    assert_eq!(users.modes(&users.handle("f")), [(ALICE, ALICE, 0o600)]);
}

#[test]
fn the_control_calls_allow_what_the_descriptor_does() {
    let users = Users::new();
    users.ok(ALICE, "fd = os.open(M + '/f', os.O_CREAT | os.O_RDWR, 0o644); os.write(fd, b'x')");
    let ioctl = |direction: u32, number: u32, size: usize| direction << 30 | (size as u32) << 16 | 0x5700 | number;
    let ensure = ioctl(1, 2, 8 + 2 * stripewise_store::ioctl::MAX_ENSURE);
    assert_eq!(ensure, stripewise_store::ioctl::ENSURE_DATAFILES);
    let size = 8 + 2 * stripewise_store::ioctl::MAX_ENSURE;
    let wanted = format!("struct.pack('IIHH', 1, 2, 1, 2) + bytes({size} - 12)");
    let writer = fs::File::options().write(true).open(users.mount.path("f")).unwrap();
    // While it has a writer; Carol may read it: she learns where the bytes are and the size, and makes nothing.
    users.ok(
        CAROL,
        &format!(
            "fd = os.open(M + '/f', os.O_RDONLY)\nrefused(lambda: fcntl.ioctl(fd, {ensure}, {wanted}), errno.EBADF)\n\
             assert struct.unpack('Q', fcntl.ioctl(fd, {}, bytes(8)))[0] == 1\n\
             refused(lambda: os.open(M + '/f', os.O_RDWR), errno.EACCES)",
            stripewise_store::ioctl::SIZE
        ),
    );
    drop(writer);
    assert_eq!(users.datafiles(&users.handle("f")).len(), 1);
    users.ok(
        ALICE,
        &format!(
            "fd = os.open(M + '/f', os.O_RDWR)\nfcntl.ioctl(fd, {ensure}, {wanted})\n\
             refused(lambda: fcntl.ioctl(fd, {ensure}, struct.pack('IIHH', 1, 2, 900, 2) + bytes({size} - 12)), errno.EINVAL)\n\
             refused(lambda: fcntl.ioctl(fd, {ensure}, b'\\xff' * {size}), errno.EINVAL)"
        ),
    );
    assert_eq!(users.datafiles(&users.handle("f")).len(), 3);
}

#[test]
fn dot_dot_and_odd_names_stay_inside() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    users.ok(
        CAROL,
        "os.mkdir(M + '/d')\nfor name in ['-rf', 'a b', '\\n', '\\x1b[31m', '...', ' ', '*', '%s%n', 'x' * 255, '\\udcff', \
         'user.stripewise', '.stripewise', '$(id)']:\n    path = M + '/d/' + name\n    open(path, 'wb').write(b'x' * 9000)\n    \
         assert len(open(path, 'rb').read()) == 9000\n    os.rename(path, path[:-1] + 'y'); os.unlink(path[:-1] + 'y')\n\
         refused(lambda: open(M + '/d/' + 'x' * 256, 'wb'), errno.ENAMETOOLONG)\n\
         assert os.stat(M + '/..').st_ino != os.stat(TREE + '/..').st_ino\n\
         assert os.stat(M + '/d/..').st_ino == os.stat(M).st_ino\n\
         os.symlink('../../ns/tree/secret', M + '/d/l'); os.symlink('l2', M + '/d/l2')\n\
         refused(lambda: open(M + '/d/l', 'rb'), errno.EACCES, errno.ENOENT)\nrefused(lambda: open(M + '/d/l2', 'rb'), errno.ELOOP)\n\
         refused(lambda: os.rename(M + '/d', M + '/d/d'), errno.EINVAL)\n\
         for name in os.listxattr(M + '/d'): assert 'stripewise' not in name\n\
         refused(lambda: os.setxattr(M + '/d', 'user.stripewise', b'x'), errno.EPERM)",
    );
    secret_is_whole(&users);
}

#[test]
fn users_with_private_mounts_share_what_the_modes_say() {
    let users = Users::new();
    // The kernel lets no process in a user namespace write in a directory whose owner that does not know.
    for (name, user) in [("alice", ALICE), ("bob", BOB)] {
        fs::create_dir(users.mount.path(name)).unwrap();
        std::os::unix::fs::chown(users.mount.path(name), Some(user), Some(user)).unwrap();
    }
    let script = "cd alice; umask 022; yes alice | head -c 40000 > open; umask 077; yes secret | head -c 40000 > shut";
    let made = private(&users, ALICE, script);
    if cannot_be_had(&String::from_utf8_lossy(&made.stderr)) {
        return;
    }
    succeeded(script, &made);
    assert_eq!(users.modes(&users.handle("alice/open")), [(ALICE, ALICE, 0o644)]);
    assert_eq!(users.modes(&users.handle("alice/shut")), [(ALICE, ALICE, 0o600)]);
    // Another user's mount, and root's.
    let read = "cd alice; test \"$(head -c 5 open)$(wc -c < open)\" = alice40000; ! cat shut; ! rm -f open; ! touch new; \
                ! sh -c \"echo x >> open\"; cd ../bob; yes bob | head -c 40000 > bobs";
    succeeded(read, &private(&users, BOB, read));
    users.ok(
        BOB,
        "assert open(M + '/alice/open', 'rb').read(5) == b'alice'\nrefused(lambda: open(M + '/alice/shut', 'rb'), errno.EACCES)",
    );
    users.ok(
        ALICE,
        "assert open(M + '/bob/bobs', 'rb').read(3) == b'bob'\nopen(M + '/alice/open', 'ab').write(b'more')",
    );
    let grown = "cd alice; test $(wc -c < open) = 40004; test \"$(tail -c 4 open)\" = more";
    succeeded(grown, &private(&users, BOB, grown));
    // A forged handle in a mount of one's own leads nowhere either.
    users.forge(BOB, "bob/bobs", &users.handle("alice/shut"));
    let forged = "cd bob; ! cat bobs 2>&1 | grep -a -q secret; rm -f bobs || true";
    succeeded(forged, &private(&users, BOB, forged));
    users.ok(ALICE, "assert open(M + '/alice/shut', 'rb').read(6) == b'secret'");
}

/// What a user's tool is to do, and on which pool.
const TOOL: &str = "STRIPEWISE_TOOL";
const TOOL_POOL: &str = "STRIPEWISE_TOOL_POOL";

/// The other side: a tool that uses the pool without a mount, as Python and the commands do, in a process of a user.
#[test]
fn is_a_tool_for_another_test() {
    let Ok(tool) = std::env::var(TOOL) else { return };
    assert!(!rustix::process::geteuid().is_root());
    let file = PathBuf::from(std::env::var_os(TOOL_POOL).unwrap());
    let pool = Pool::load(&file).unwrap();
    let found = |path: &str| Store::open(pool.clone()).and_then(|store| store.lookup(Path::new(path)));
    let said = match tool.split_once(' ').unwrap_or((&tool, "")) {
        ("fsck", _) => {
            let told: Mutex<Vec<CheckFinding>> = Mutex::default();
            fsck::check(&pool, &fsck::CheckOptions::default(), &told).map(|report| format!("{report:?}"))
        }
        ("export", to) => {
            let to = file.parent().unwrap().join(to);
            let failures: Mutex<Vec<(PathBuf, String)>> = Mutex::default();
            let options = export_tree::ExportOptions { threads: 2, ..Default::default() };
            export_tree::export(&pool, &to, &options, &failures).map(|report| format!("{report:?} {failures:?}"))
        }
        ("read", path) => found(path).and_then(|inode| {
            let mut bytes = [0; 10];
            let count = inode.expect("a placed file").read_at(&mut bytes, 0)?;
            Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
        }),
        ("write", path) => found(path).and_then(|inode| {
            let inode = inode.expect("a placed file");
            inode.register_writer()?;
            let put = inode.write_at(b"written", 0);
            inode.release_writer()?;
            put.map(|count| count.to_string())
        }),
        ("move", path) => found(path).and_then(|inode| {
            let round = vec![Stripe { server: ServerId(1), width_bytes: 9000 }];
            let layout = Layout::new([(0, round)]).unwrap();
            inode.expect("a placed file").move_to(&layout, path, &mut |_, _| true).map(|_| "moved".to_owned())
        }),
        other => panic!("{other:?}"),
    };
    match said {
        Ok(said) => println!("done: {said}"),
        Err(error) => println!("refused: {error}"),
    }
}

fn tool(users: &Users, user: u32, tool: &str) -> String {
    need("setpriv");
    let program = users.pool.path("out/tool");
    if !program.exists() {
        // Where the user can reach it.
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    }
    let mut command = Command::new("setpriv");
    let user = user.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]).arg(program);
    command.args(["is_a_tool_for_another_test", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(TOOL, tool).env(TOOL_POOL, users.pool.file()).stdin(Stdio::null());
    let said = succeeded(tool, &command.output().unwrap());
    let line = said.lines().find_map(|line| line.find("done: ").or(line.find("refused: ")).map(|at| &line[at..]));
    line.unwrap_or_else(|| panic!("{tool}: {said}")).to_owned()
}

/// A check by root finds nothing but these.
fn is_in_order(users: &Users, but: &[DamageKind]) {
    let told: Mutex<Vec<CheckFinding>> = Mutex::default();
    let pool = Pool::load(&users.pool.file()).unwrap();
    let options = fsck::CheckOptions { dry_run: true, ..fsck::CheckOptions::default() };
    let report = fsck::check(&pool, &options, &told).unwrap();
    assert!(report.kinds.iter().all(|(kind, _)| but.contains(kind)), "{told:?}");
}

#[test]
fn tools_without_a_mount_do_what_their_user_may() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    users.ok(ALICE, "fd = os.open(M + '/open', os.O_CREAT | os.O_RDWR, 0o644)\nos.write(fd, b'open' * 8000)");
    users.ok(CAROL, "open(M + '/hers', 'wb').write(b'carol' * 8000)");
    let rights = ["secret", "open", "hers"].map(|name| (users.handle(name), users.modes(&users.handle(name))));
    let refused = |what: &str, said: &str| {
        let answer = tool(&users, CAROL, what);
        assert!(answer.starts_with("refused: ") && answer.contains(said), "{what}: {answer}");
    };
    // A check sees all datafiles, or is none.
    refused("fsck", "run this as root");
    refused("read secret", "");
    refused("write secret", "");
    refused("move secret", "");
    assert_eq!(tool(&users, CAROL, "read open"), "done: openopenop");
    refused("write open", "");
    refused("move open", "");
    assert_eq!(tool(&users, CAROL, "read hers"), "done: carolcarol");
    assert_eq!(tool(&users, CAROL, "write hers"), "done: 7");
    for (name, (handle, modes)) in ["secret", "open"].iter().zip(&rights) {
        assert_eq!((&users.handle(name), &users.modes(handle)), (handle, modes), "{name}");
    }
    assert_eq!(tool(&users, CAROL, "move hers"), "done: moved");
    let moved = users.handle("hers");
    assert_eq!(users.modes(&moved), rights[2].1);
    assert_eq!(users.datafiles(&moved).len(), 1, "the old datafiles are gone");
    users.ok(CAROL, "assert open(M + '/hers', 'rb').read() == b'written' + (b'carol' * 8000)[7:]");
    // What she may read is copied, and what she may not is named.
    let exported = tool(&users, CAROL, "export out/copy");
    assert!(exported.contains("failed: 1") && exported.contains("secret"), "{exported}");
    let copy = users.pool.path("out/copy");
    assert_eq!(fs::read(copy.join("open")).unwrap(), b"open".repeat(8000));
    assert_eq!(&fs::read(copy.join("hers")).unwrap()[..12], b"writtenrolca");
    assert!(!copy.join("secret").exists());
    // By a forged handle neither.
    users.ok(CAROL, "open(M + '/mine', 'wb').write(b'c' * 100)");
    users.forge(CAROL, "mine", &users.handle("secret"));
    for what in ["read mine", "write mine", "move mine"] {
        let answer = tool(&users, CAROL, what);
        assert!(answer.starts_with("refused: ") && !answer.contains("alicealice"), "{what}: {answer}");
    }
    let exported = tool(&users, CAROL, "export out/copy2");
    assert!(exported.contains("failed: 2") && exported.contains("mine"), "{exported}");
    secret_is_whole(&users);
    // What she forged is told, with a lock file of hers and bytes that were hers before; all else is in order.
    is_in_order(
        &users,
        &[DamageKind::DuplicateHandle, DamageKind::OrphanDatafile, DamageKind::DatafileOwner, DamageKind::StaleLock],
    );
}

/// A script of a user on an own mount made with `fusermount3`, in a namespace of mounts where there are `/dev/fuse`
/// as a host has it and a name of the user, which that program asks for.
fn by_fusermount(users: &Users, user: u32, script: &str) -> Output {
    let script = format!("$P $POOL $MINE\ntrap 'cd /; fusermount3 -u $MINE' EXIT\ncd $MINE\n{script}");
    beside_fusermount(users, user, &script, "")
}

/// The same for a script that mounts by `$P $POOL $MINE`, and one that root runs then, as the user by `$U`.
fn beside_fusermount(users: &Users, user: u32, script: &str, as_root: &str) -> Output {
    for program in ["setpriv", "unshare", "fusermount3"] {
        need(program);
    }
    let (fuse, mine) = (users.pool.path("out/fuse"), users.pool.path(&format!("out/mnt-{user}")));
    fs::create_dir_all(&mine).unwrap();
    std::os::unix::fs::chown(&mine, Some(user), Some(user)).unwrap();
    let program = users.pool.path("out/stripewise-mount");
    if !program.exists() {
        fs::copy(common::BIN, &program).unwrap();
    }
    let groups = groups(user);
    let inner = users.pool.path(&format!("out/script-{user}"));
    let (mine, program, pool) = (mine.display(), program.display(), users.pool.file());
    let names_of = format!("set -eu\nMINE={mine}\nP={program}\nPOOL={}\n", pool.display());
    fs::write(&inner, format!("{names_of}{script}\n")).unwrap();
    let names = users.pool.path("out/passwd");
    let known = fs::read_to_string("/etc/passwd").unwrap();
    fs::write(&names, format!("{known}user{user}:x:{user}:{user}::/:/bin/sh\n")).unwrap();
    let outer = format!(
        "{names_of}U='setpriv --reuid {user} --regid {user} --groups {groups} --'\n\
         umask 0; test -e {fuse} || mknod -m 666 {fuse} c 10 229; mount --bind {fuse} /dev/fuse\n\
         mount --bind {names} /etc/passwd\ntimeout 120 $U sh {inner}\n{as_root}",
        fuse = fuse.display(),
        names = names.display(),
        inner = inner.display(),
    );
    Command::new("unshare").args(["-m", "--", "sh", "-c", &outer]).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_user_mounts_with_fusermount3_and_does_what_he_may() {
    let users = Users::new();
    users.ok(ALICE, SECRET);
    users.ok(CAROL, "os.mkdir(M + '/carol'); open(M + '/carol/hers', 'wb').write(b'carol' * 8000); os.chmod(M + '/carol/hers', 0o600)");
    users.ok(
        ALICE,
        &format!(
            "os.mkdir(M + '/team'); os.chown(M + '/team', -1, {PROJECT}); os.chmod(M + '/team', 0o2770)\n\
             fd = os.open(M + '/team/f', os.O_CREAT | os.O_RDWR); os.fchmod(fd, 0o660); os.write(fd, b'a' * 20000)"
        ),
    );
    let script = "umask 022; mkdir bob; yes bob | head -c 40000 > bob/open; test $(wc -c < bob/open) = 40000\n\
                  test \"$(stat -f -c %T .)\" = fuseblk -o \"$(stat -f -c %T .)\" = fuse\n\
                  if cat secret || cat carol/hers || rm -f carol/hers || touch carol/new; then exit 7; fi\n\
                  if sh -c 'echo x >> carol/hers'; then exit 8; fi\n\
                  printf bbbb | dd of=team/f bs=4 seek=10 conv=notrunc status=none; test $(wc -c < team/f) = 20000";
    let made = by_fusermount(&users, BOB, script);
    if cannot_be_had(&String::from_utf8_lossy(&made.stderr)) {
        return;
    }
    succeeded(script, &made);
    assert_eq!(users.modes(&users.handle("bob/open")), [(BOB, BOB, 0o644)]);
    users.ok(
        ALICE,
        "assert open(M + '/bob/open', 'rb').read(3) == b'bob'\n\
         assert open(M + '/team/f', 'rb').read() == b'a' * 40 + b'bbbb' + b'a' * 19956",
    );
    users.ok(CAROL, "assert open(M + '/carol/hers', 'rb').read() == b'carol' * 8000");
    // A forged handle in a mount of one's own leads nowhere either.
    users.forge(BOB, "bob/open", &users.handle("secret"));
    let forged = "if cat bob/open | grep -a -q alice; then exit 9; fi; rm -f bob/open || true";
    succeeded(forged, &by_fusermount(&users, BOB, forged));
    secret_is_whole(&users);
    is_in_order(&users, &[DamageKind::OrphanDatafile]);
}

#[test]
fn dead_and_living_mounts_of_a_user_are_cleared_and_ended_by_him_and_by_root() {
    let users = Users::new();
    users.ok(BOB, "open(M + '/his', 'wb').write(b'b' * 30000)");
    let die = "$P --foreground $POOL $MINE & S=$!; until grep -q \" $MINE \" /proc/self/mountinfo; do sleep 0.02; done
        kill -KILL $S; wait $S || true; if cat $MINE/his; then exit 3; fi";
    let script = format!(
        "{die}\n$P $POOL $MINE 2> $MINE.cleared; cat $MINE.cleared; wc -c < $MINE/his; $P --unmount $MINE; echo ended\n\
         {die}\n$P --unmount $MINE 2> $MINE.dead; cat $MINE.dead\n$P $POOL $MINE"
    );
    // The user's mount lets no other user in, root not either.
    let as_root = "if ls $MINE; then exit 4; fi; $P --unmount $MINE 2> $MINE.root; cat $MINE.root
        $U sh -c \"$P --foreground $POOL $MINE\" & until grep -q \" $MINE \" /proc/self/mountinfo; do sleep 0.02; done
        kill -KILL $(pgrep -f \"^$P --foreground\"); wait $! || true
        $P --unmount $MINE 2> $MINE.root; cat $MINE.root; if grep \" $MINE \" /proc/self/mountinfo; then exit 5; fi
        M=${POOL%/*}/mnt; umount -l $M; $P --foreground $POOL $M & until grep -q \" $M \" /proc/self/mountinfo; do sleep 0.02; done
        kill -KILL $!; wait $! || true
        $U $P --private $POOL -- sh -c \"wc -c < $M/his\" 2> $MINE.root; cat $MINE.root
        if $U $P $POOL $M 2> $MINE.root; then exit 6; fi; cat $MINE.root";
    let made = beside_fusermount(&users, BOB, &script, as_root);
    if cannot_be_had(&String::from_utf8_lossy(&made.stderr)) {
        return;
    }
    let seen = succeeded(&script, &made);
    let expected = [
        "cleared the mount of pool",
        "30000",
        "ended",
        "its process had died before",
        "its process had died before",
        "30000",
        "gets a mount of its own",
        "whose process has died: fusermount3",
    ];
    let mut lines = seen.lines();
    for words in expected {
        assert!(lines.next().is_some_and(|line| line.contains(words)), "{words}: {seen}");
    }
    assert_eq!(lines.next(), None, "{seen}");
}

/// An attribute needs the right to write, which a directory may not give its own owner.
#[test]
fn directories_that_their_owner_may_not_write_get_the_hints_too() {
    let users = Users::new();
    users.ok(
        ALICE,
        &format!(
            "os.mkdir(M + '/d'); os.mkdir(M + '/d/group'); os.chown(M + '/d/group', -1, {PROJECT}); \
             os.chmod(M + '/d/group', 0o2775)"
        ),
    );
    let store = Store::open(Pool::load(&users.pool.file()).unwrap()).unwrap();
    let mut said = Vec::new();
    for directory in ["d", "d/group"] {
        said.push(store.change_hints(Path::new(directory), |hints| hints.set(None, small())).unwrap());
    }
    users.ok(
        ALICE,
        "for d in 'd', 'd/group':\n  for mode in 0o555, 0o500, 0o0, 0o755:\n    os.mkdir(f'{M}/{d}/{mode:o}', mode)\n    \
         assert stat.S_IMODE(os.stat(f'{M}/{d}/{mode:o}').st_mode) & 0o777 == mode",
    );
    let made = |directory: &str| {
        let hints = |mode: &&str| store.hints(Path::new(&format!("{directory}/{mode}"))).unwrap();
        ["555", "500", "0", "755"].iter().map(hints).collect::<Vec<_>>()
    };
    assert_eq!(made("d"), vec![said[0].clone(); 4]);
    assert_eq!(made("d/group"), vec![said[1].clone(); 4]);
    let modes = |name: &str| fs::metadata(users.tree(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((modes("d/0"), modes("d/555"), modes("d/group/555")), (0, 0o555, 0o2555));
    // And what is made there by who may.
    let file = fs::File::create(users.mount.path("d/555/f")).unwrap();
    drop(file);
    assert_eq!(users.handle("d/555/f").optimisations, small());
}

fn small() -> Optimisations {
    let mut optimisations = Optimisations::default();
    optimisations.enable(SMALL.index, 8192).unwrap();
    optimisations
}

/// Hints are believed as far as their user may write the directory's attributes: of a sticky one its owner alone. What others made there
/// before has the hints of then.
#[test]
fn hints_are_set_and_removed_by_who_may_write_the_directory_and_by_no_other() {
    let users = Users::new();
    let named = format!(
        "struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in [(1, 7, 2**32 - 1), (2, 7, {CAROL}), (4, 5, 2**32 - 1), \
         (16, 7, 2**32 - 1), (32, 5, 2**32 - 1)])"
    );
    users.ok(
        ALICE,
        &format!(
            "for name, mode in ('own', 0o755), ('shut', 0o700), ('sticky', 0o1777), ('all', 0o777), ('group', 0o2775), \
             ('listed', 0o755):\n    \
             os.mkdir(f'{{M}}/{{name}}'); os.chown(f'{{M}}/{{name}}', -1, {PROJECT}); os.chmod(f'{{M}}/{{name}}', mode)\n\
             try: os.setxattr(M + '/listed', 'system.posix_acl_access', {named})\n\
             except OSError as error:\n    assert error.errno == errno.EOPNOTSUPP; os.rmdir(M + '/listed')"
        ),
    );
    let has_lists = users.tree("listed").exists();
    let hints = DirectoryHints::default().encode().unwrap();
    let attribute = stripewise_store::hints::ATTRIBUTE;
    // Alice and Bob are in the group of all of them.
    let may = |user: u32, name: &str| match name {
        "own" | "shut" | "sticky" => user == ALICE,
        "group" => user != CAROL,
        "listed" => user != BOB,
        _ => true,
    };
    for user in [ALICE, BOB, CAROL] {
        for name in ["own", "shut", "sticky", "all", "group", "listed"] {
            if name == "listed" && !has_lists {
                eprintln!("skipped: directories with a list, which this file system does not have");
                continue;
            }
            let (set, remove) = (
                format!("os.setxattr(TREE + '/{name}', '{attribute}', bytes({hints:?}))"),
                format!("os.removexattr(TREE + '/{name}', '{attribute}')"),
            );
            // No mount lets any of them at the attribute itself.
            let by_mount = format!("os.setxattr(M + '/{name}', '{attribute}', bytes({hints:?}))");
            users.ok(user, &format!("refused(lambda: {by_mount}, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP)"));
            let store = Store::open(Pool::load(&users.pool.file()).unwrap()).unwrap();
            if may(user, name) {
                users.ok(user, &format!("{set}\n{remove}"));
                continue;
            }
            let before = store.change_hints(Path::new(name), |hints| hints.set(None, small())).unwrap();
            let denied = |call| format!("refused(lambda: {call}, errno.EACCES, errno.EPERM)\n");
            users.ok(user, &(denied(set) + &denied(remove)));
            assert_eq!(store.hints(Path::new(name)).unwrap(), before, "{user} {name}");
        }
    }
    // A hint of Carol's in a directory that she may write counts for what Alice makes there later, and changes no file that is there.
    users.ok(ALICE, "open(M + '/all/before', 'wb').write(b'x' * 100)");
    let mut hinted = DirectoryHints::default();
    hinted.set(None, small()).unwrap();
    let bytes = hinted.encode().unwrap();
    let before = users.handle("all/before");
    users.ok(CAROL, &format!("os.setxattr(TREE + '/all', '{attribute}', bytes({bytes:?}))"));
    users.ok(ALICE, "open(M + '/all/after', 'wb').write(b'x' * 100)");
    assert_eq!(users.handle("all/before"), before);
    assert_eq!(users.handle("all/after").optimisations, small());
    users.ok(ALICE, "for name in 'before', 'after': assert open(M + '/all/' + name, 'rb').read() == b'x' * 100");
}
