//! Root's mount changes nothing that the caller could not, whatever its kernel still believes of owners and names.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::{Mounted, TestPool, need, succeeded};

/// What each script begins with. `by` runs a call as a user and returns its errno; `exchange` is of the namespace.
const COMMON: &str = r#"
import ctypes, errno, itertools, os, stat, struct, sys, time
M, OTHER, TREE = sys.argv[1:4]
ALICE, CAROL, PROJECT = 62101, 62103, 62200
GROUPS = {ALICE: [PROJECT], CAROL: [], 0: []}
libc = ctypes.CDLL(None, use_errno=True)
os.umask(0o022)
def become(user, group=None):
    group = user if group is None else group
    os.setgroups(GROUPS[user]); os.setresgid(group, group, group); os.setresuid(user, user, user)
def by(user, call, group=None):
    child = os.fork()
    if child == 0:
        answer = 255
        try:
            become(user, group)
            call()
            answer = 0
        except OSError as error:
            answer = error.errno
        finally:
            os._exit(answer)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def acting_as(user, group, call):
    # Without a process of its own: for thousands of calls.
    os.setgroups(GROUPS[user]); os.setegid(user if group is None else group); os.seteuid(user)
    try: return 0, call()
    except OSError as error: return error.errno, None
    finally:
        os.seteuid(0); os.setegid(0); os.setgroups([])
ACCESS, DEFAULT = 'system.posix_acl_access', 'system.posix_acl_default'
def acl(*entries):
    # Version 2, then tag, permissions and id of each entry.
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in entries)
def list_for(user, group=4):
    return acl((1, 6, 2**32 - 1), (2, 6, user), (4, group, 2**32 - 1), (16, 6, 2**32 - 1), (32, 4, 2**32 - 1))
def make_dir(path, mode, owner=0, group=0):
    os.mkdir(path); os.chown(path, owner, group); os.chmod(path, mode)
    return path
"#;

/// A script as root, beside two mounts of one pool by root.
fn run(shared: bool, script: &str) {
    need("python3");
    assert!(rustix::process::geteuid().is_root(), "this test acts as several users: run it as root");
    let pool = if shared { TestPool::shared() } else { TestPool::new() };
    fs::set_permissions(pool.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let mount = Mounted::new(&pool, "mnt", "suid,allow_other");
    let other = Mounted::new(&pool, "other", "suid,allow_other");
    let mut command = Command::new("timeout");
    command.args(["60", "python3", "-c", &format!("{COMMON}{script}")]);
    let output = command.args([&mount.dir, &other.dir, &pool.path("ns/tree")]).stdin(Stdio::null()).output().unwrap();
    succeeded(script, &output);
}

fn in_both_kinds_of_pool(script: &str) {
    run(false, script);
    run(true, script);
}

/// As on the namespace's own file system: in directories of a group, which hand it down or do not, with every kind of name.
#[test]
fn what_is_made_has_the_owner_group_and_mode_that_the_namespace_gives() {
    in_both_kinds_of_pool(
        r#"
kinds = {
    'mkdir': lambda path, mode: os.mkdir(path, mode),
    'fifo': lambda path, mode: os.mknod(path, stat.S_IFIFO | mode),
    'mknod': lambda path, mode: os.mknod(path, stat.S_IFREG | mode),
    'symlink': lambda path, mode: os.symlink('nowhere', path),
    'open': lambda path, mode: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)),
}
def cases(top):
    found = []
    for mode in (0o777, 0o2777, 0o770, 0o2770, 0o755):
        make_dir(f'{top}/{mode:o}', mode, 0, PROJECT)
    for dir, kind, mode, (user, group) in itertools.product(
        os.listdir(top), kinds, (0o644, 0o2644, 0o6755), ((ALICE, None), (CAROL, None), (0, None), (0, PROJECT), (ALICE, PROJECT))):
        path = f'{top}/{dir}/{kind}-{mode:o}-{user}-{group}'
        answer = by(user, lambda: kinds[kind](path, mode), group)
        made = os.lstat(path) if answer == 0 else None
        found.append((path[len(top):], answer, made and (made.st_uid, made.st_gid, oct(made.st_mode))))
    return sorted(found, key=str)
bare, ours = cases(make_dir(TREE + '/bare', 0o755)), cases(make_dir(M + '/ours', 0o755))
assert len(bare) == 5 * 5 * 3 * 5
wrong = [pair for pair in zip(bare, ours) if pair[0] != pair[1]]
assert not wrong, wrong[:20]
"#,
    );
}

/// Carol exchanges what the mount has just made for Alice's directory, before the mount looks at it again.
#[test]
fn making_a_name_gives_away_nothing_that_is_exchanged_for_it() {
    run(
        true,
        r#"
dir = TREE + '/d'
make_dir(dir, 0o777, CAROL, CAROL)
make_dir(dir + '/hers', 0o700, ALICE, ALICE)
os.mkdir(dir + '/hers/kept')
hers = os.open(dir + '/hers', os.O_RDONLY)
new, old = (dir + '/new').encode(), (dir + '/hers').encode()
exchange = lambda: libc.renameat2(-100, new, -100, old, 2) == 0
end = time.monotonic() + 8
spinner = os.fork()
if spinner == 0:
    become(CAROL)
    # Bounded should its parent die.
    while time.monotonic() < end + 1: exchange()
    os._exit(0)
def attack():
    for _ in range(3000):
        if time.monotonic() > end or os.fstat(hers).st_uid != ALICE: return
        try: os.mkdir(M + '/d/new')
        except OSError: pass
        for name in 'new', 'hers':
            try: os.rmdir(dir + '/' + name)
            except OSError: pass
        # Wherever hers stands now, it is the only one: back to its own name.
        try: os.rename(dir + '/new', dir + '/hers')
        except OSError: pass
try:
    by(CAROL, attack)
finally:
    os.kill(spinner, 9); os.waitpid(spinner, 0)
assert os.fstat(hers).st_uid == ALICE, os.fstat(hers)
"#,
    );
}

/// The kernel of one mount still takes Alice for the owner of what is root's by now.
#[test]
fn a_former_owner_changes_nothing_any_more() {
    in_both_kinds_of_pool(
        r#"
make_dir(M + '/d', 0o777)
attacks = {
    'chmod 4755': lambda path, fd: os.fchmod(fd, 0o4755),
    'chmod 2755': lambda path, fd: os.fchmod(fd, 0o2755),
    'chmod 666': lambda path, fd: os.fchmod(fd, 0o666),
    'chown': lambda path, fd: os.fchown(fd, -1, PROJECT),
    'utime': lambda path, fd: os.utime(fd, (1, 1)),
    'truncate': lambda path, fd: os.truncate(path, 1),
    'attribute': lambda path, fd: os.setxattr(fd, 'user.new', b'x'),
    'no attribute': lambda path, fd: os.removexattr(fd, 'user.kept'),
    'list': lambda path, fd: os.setxattr(fd, ACCESS, list_for(ALICE)),
    'no list': lambda path, fd: os.removexattr(fd, ACCESS),
}
for (attack, call), kind in itertools.product(attacks.items(), ('placed', 'plain', 'dir')):
    if (attack, kind) == ('truncate', 'dir'): continue
    name = '/d/' + attack.replace(' ', '-') + '-' + kind
    where = TREE if kind == 'plain' else M
    if kind == 'dir': make_dir(M + name, 0o755)
    else:
        with open(where + name, 'wb') as file: file.write(b'x' * 20000)
    os.setxattr(where + name, 'user.kept', b'x')
    if attack == 'no list': os.setxattr(where + name, ACCESS, list_for(CAROL))
    mode = stat.S_IMODE(os.stat(where + name).st_mode)
    os.chown(where + name, ALICE, ALICE)
    def attacked():
        fd = os.open(M + name, os.O_RDONLY)
        os.write(ready[1], b'.'); os.read(go[0], 1)
        call(M + name, fd)
    ready, go = os.pipe(), os.pipe()
    helper = os.fork()
    if helper == 0:
        os.close(ready[1])
        os.read(ready[0], 1)
        os.chown(OTHER + name, 0, 0)
        os.write(go[1], b'.')
        os._exit(0)
    os.close(go[1])
    answer = by(ALICE, attacked)
    os.close(ready[1])
    assert os.waitpid(helper, 0)[1] == 0
    for end in ready[0], go[0]: os.close(end)
    found = os.stat(OTHER + name)
    assert answer in (errno.EPERM, errno.EACCES), (name, answer, found)
    assert (found.st_uid, found.st_gid) == (0, 0), (name, found)
    assert stat.S_IMODE(found.st_mode) == mode, (name, found)
    expected = {'user.kept'} | ({ACCESS} if attack == 'no list' else set())
    assert set(os.listxattr(OTHER + name)) == expected, (name, os.listxattr(OTHER + name))
    assert found.st_mtime > 1 and (kind == 'dir' or found.st_size == 20000), (name, found)
"#,
    );
}

/// An owner changes what an owner may, with all groups of the process.
#[test]
fn an_owner_changes_what_he_may() {
    in_both_kinds_of_pool(
        r#"
make_dir(M + '/d', 0o777)
make_dir(TREE + '/bare', 0o777)
def cases(dir):
    found = []
    for user, mode, kind in itertools.product((ALICE, CAROL), (0o4755, 0o2755, 0o6777, 0o2644, 0o600), ('file', 'dir')):
        path = f'{dir}/{user}-{mode:o}-{kind}'
        if kind == 'file': open(path, 'wb').close()
        else: os.mkdir(path)
        os.chown(path, user, PROJECT)
        def calls():
            os.chmod(path, mode)
            os.utime(path, (7, 9))
            if kind == 'file': os.truncate(path, 5000)
        answers = by(user, calls), os.stat(path)
        group = by(user, lambda: os.chown(path, -1, PROJECT)), by(user, lambda: os.chown(path, -1, user))
        after = os.stat(path)
        found += [(user, mode, kind, answers[0], group, oct(s.st_mode), s.st_uid, s.st_gid, s.st_atime) for s in (answers[1], after)]
    return found
bare, ours = cases(TREE + '/bare'), cases(M + '/d')
wrong = [pair for pair in zip(bare, ours) if pair[0] != pair[1]]
assert not wrong, wrong[:20]
"#,
    );
}

/// Each name, kind of file and user: the errno, the mode and the names of attributes afterwards are those of the namespace's own
/// file system.
#[test]
fn attributes_are_set_and_removed_as_by_the_caller() {
    in_both_kinds_of_pool(
        r#"
CAPABILITIES = struct.pack('<IIIII', 0x02000001, 1 << 10, 0, 0, 0)
values = {
    'user.x': b'x', 'trusted.x': b'x', 'security.x': b'x', 'security.capability': CAPABILITIES,
    ACCESS: list_for(CAROL), DEFAULT: list_for(CAROL),
}
def make_file(path, mode, user):
    with open(path, 'wb') as file: file.write(b'x' * 20000)
    os.chown(path, user, PROJECT); os.chmod(path, mode)
made = {
    'own': lambda path: make_file(path, 0o644, ALICE),
    'own-read-only': lambda path: make_file(path, 0o444, ALICE),
    'own-set-gid': lambda path: make_file(path, 0o2775, ALICE),
    'writable': lambda path: make_file(path, 0o666, 0),
    'of-the-group': lambda path: make_file(path, 0o660, 0),
    'foreign': lambda path: make_file(path, 0o644, 0),
    'shut': lambda path: make_file(path, 0o600, 0),
    'own-dir': lambda path: make_dir(path, 0o755, ALICE, PROJECT),
    'set-gid-dir': lambda path: make_dir(path, 0o2775, ALICE, PROJECT),
    'sticky-dir': lambda path: make_dir(path, 0o1777, 0, 0),
    'foreign-dir': lambda path: make_dir(path, 0o755, 0, 0),
    'fifo': lambda path: (os.mkfifo(path), os.chmod(path, 0o666)),
    'link': lambda path: os.symlink('nowhere', path),
}
calls = {
    'set': lambda path, name: os.setxattr(path, name, values[name], 0, follow_symlinks=False),
    'create': lambda path, name: os.setxattr(path, name, values[name], os.XATTR_CREATE, follow_symlinks=False),
    'replace': lambda path, name: os.setxattr(path, name, values[name], os.XATTR_REPLACE, follow_symlinks=False),
    'get': lambda path, name: os.getxattr(path, name, follow_symlinks=False),
    'remove': lambda path, name: os.removexattr(path, name, follow_symlinks=False),
}
def has(path, name):
    try: return os.getxattr(path, name, follow_symlinks=False) == values[name]
    except OSError as error: return error.errno
def cases(top):
    found = []
    for kind, (user, group) in itertools.product(made, ((ALICE, None), (ALICE, PROJECT), (CAROL, None), (0, None), (0, PROJECT))):
        path = f'{top}/{kind}-{user}-{group}'
        made[kind](path)
        for name, there, call in itertools.product(values, (False, True), calls):
            for other in values:
                try: os.removexattr(path, other, follow_symlinks=False)
                except OSError: pass
            if there:
                try: calls['set'](path, name)
                except OSError: pass
            answer = acting_as(user, group, lambda: calls[call](path, name))
            mode = oct(os.lstat(path).st_mode)
            seen = acting_as(user, group, lambda: sorted(os.listxattr(path, follow_symlinks=False)))
            found.append((path[len(top):], name, there, call, answer, mode, seen, {name: has(path, name) for name in values}))
    return found
bare, ours = cases(make_dir(TREE + '/bare', 0o755)), cases(make_dir(M + '/ours', 0o755))
wrong = [pair for pair in zip(bare, ours, strict=True) if pair[0] != pair[1]]
assert not wrong, (len(wrong), wrong[:8])
assert len({case[4] for case in bare}) > 5
"#,
    );
}
