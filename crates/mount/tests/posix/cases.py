"""System calls on names and attributes, a line each: what they answer, and what they leave behind.

Run as root in an empty directory of a file system. The same lines on two file systems mean that they behave alike:
`posix.rs` runs it in a directory of the local disk and on a pool whose names lie on the same disk.
"""

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import stat
import struct
import sys
import time

from harness import CALLS, EXCHANGE, KINDS, LIBC, MEMBER, OTHER, OWNER, ROOT, case, finish, make, opened, rename2
from others import others


def sources():
    make("file", "source")
    os.mkdir("sourcedir")


def paths():
    """Every call on every shape of a path."""
    shapes = {
        "new": "new",
        "empty": "",
        "odd bytes": "\udcff\n\x01 %",
        "255 bytes": "x" * 255,
        "256 bytes": "x" * 256,
        "4095 bytes": "./" * 2046 + "new",
        "4096 bytes": "./" * 2046 + "news",
        "below a file": "file/new",
        "below nothing": "none/new",
        "below a loop": "loop/new",
        "below a dangling link": "dangling/new",
        "below a linked directory": "linkdir/new",
        "new with a slash": "new/",
        "file with a slash": "file/",
        "directory with a slash": "dir/",
        "linked directory with a slash": "linkdir/",
        "dot": "dir/.",
        "dot dot": "fulldir/inside/..",
        "in a closed directory": "closed/file",
        "new in a read-only directory": "readonly/new",
        "in a read-only directory": "readonly/file",
    }

    def prepare():
        sources()
        for kind in ("file", "dir", "fulldir", "linkdir", "dangling", "loop"):
            make(kind, kind)
        for name, mode in (("closed", 0), ("readonly", 0o555)):
            os.mkdir(name)
            make("file", name + "/file")
            os.chmod(name, mode)

    for (shape, path), (label, call), user in itertools.product(shapes.items(), CALLS.items(), (ROOT, OTHER)):
        case(f"{label}, {shape}", user, prepare, lambda: call(path), "paths")


def kinds():
    """Every call on every kind of file, and every rename of one over another."""

    def prepare(*made):
        sources()
        for kind in made:
            make(kind, kind)

    for kind, (label, call), user in itertools.product(KINDS, CALLS.items(), (ROOT, OTHER)):
        case(f"{label}, {kind}", user, lambda: prepare(kind), lambda: call(kind), kind)
    for old, new, flags in itertools.product(KINDS, KINDS, (0, EXCHANGE)):
        case(
            f"rename {old} over {new}, {flags}",
            ROOT,
            lambda: (make(old, "old"), make(new, "new")),
            lambda: rename2("old", "new", flags),
        )
    case("rename into itself", ROOT, lambda: os.makedirs("a/b"), lambda: os.rename("a", "a/b/c"))
    case("rename over a parent", ROOT, lambda: os.makedirs("a/b"), lambda: os.rename("a/b", "a"))
    case("rename of two names", ROOT, lambda: (make("file", "a"), os.link("a", "b")), lambda: os.rename("a", "b"))


def rights():
    """Who may do what to whose files."""
    users = (ROOT, OWNER, MEMBER, OTHER)

    def owned(path, mode, kind="file"):
        make(kind, path)
        os.chown(path, OWNER[1], OWNER[1], follow_symlinks=False)
        os.chmod(path, mode)

    accesses = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC)
    for mode, user, flags in itertools.product((0, 0o400, 0o200, 0o040, 0o020, 0o004, 0o002, 0o777), users, accesses):
        case(f"open {mode:o} {flags:o}", user, lambda: owned("f", mode), lambda: opened("f", flags))
    for mode, user, kind in itertools.product((0, 0o1644, 0o2755, 0o4755, 0o6777, 0o7777), users, ("file", "dir")):
        case(f"chmod {kind} {mode:o}", user, lambda: owned("f", 0o644, kind), lambda: os.chmod("f", mode))
    ids = (-1, 0, OWNER[1], MEMBER[1])
    for uid, gid, user, mode in itertools.product(ids, ids, users, (0o6777, 0o2644)):
        case(f"chown {mode:o} {uid} {gid}", user, lambda: owned("f", mode), lambda: os.chown("f", uid, gid))
    for mode, user in itertools.product((0o6777, 0o2767, 0o4666), users):

        def write():
            opened("f", os.O_WRONLY, then=lambda f: os.write(f, b"X"))

        case(f"write {mode:o}", user, lambda: owned("f", mode), write)
        case(f"truncate {mode:o}", user, lambda: owned("f", mode), lambda: os.truncate("f", 2))
    calls = {
        "unlink": lambda: os.unlink("d/f"),
        "rename": lambda: os.rename("d/f", "d/g"),
        "rename away": lambda: os.rename("d/f", "f"),
        "rename over": lambda: os.rename("mine", "d/f"),
        "rmdir": lambda: os.rmdir("d/sub"),
        "link": lambda: os.link("d/f", "made"),
    }
    for mode, whose, theirs, user, label in itertools.product((0o777, 0o1777), users, users, (MEMBER, OTHER), calls):

        def shared():
            os.mkdir("d")
            make("file", "d/f")
            os.mkdir("d/sub")
            make("file", "mine")
            for path in ("d/f", "d/sub"):
                os.chown(path, theirs[1], theirs[1])
            os.chown("mine", user[1], user[1])
            os.chown("d", whose[1], whose[1])
            os.chmod("d", mode)

        case(f"{label} {mode:o} of {whose[0]} and {theirs[0]}", user, shared, calls[label])
    makers = {
        "file": lambda mode: opened("d/f", os.O_CREAT | os.O_WRONLY, mode),
        "dir": lambda mode: os.mkdir("d/f", mode),
        "fifo": lambda mode: os.mkfifo("d/f", mode),
    }
    modes = (0o777, 0o2755, 0o6666)
    for kind, mode, umask, dir_mode, user in itertools.product(
        makers, modes, (0, 0o027, 0o777), (0o777, 0o2777), (ROOT, MEMBER)
    ):

        def create():
            os.umask(umask)
            makers[kind](mode)

        case(f"make {kind} {mode:o} {umask:o} in {dir_mode:o}", user, lambda: owned("d", dir_mode, "dir"), create)
    for user, times in itertools.product(users, (None, (5, 6))):
        case(f"utime {times}", user, lambda: owned("f", 0o664), lambda: os.utime("f", times))


def times():
    """Which times a call changes."""
    calls = {
        "create": lambda: make("file", "d/new"),
        "mkdir": lambda: os.mkdir("d/new"),
        "symlink": lambda: os.symlink("x", "d/new"),
        "unlink": lambda: os.unlink("d/g"),
        "rmdir": lambda: os.rmdir("d/sub"),
        "link": lambda: os.link("d/f", "d/new"),
        "rename": lambda: os.rename("d/f", "d/new"),
        "rename over": lambda: os.rename("d/g", "d/f"),
        "chmod": lambda: os.chmod("d/f", 0o600),
        "chown": lambda: os.chown("d/f", 1, 1),
        "chown to the same": lambda: os.chown("d/f", -1, -1),
        "truncate": lambda: os.truncate("d/f", 1),
        "truncate to the same": lambda: os.truncate("d/f", 7),
        "open truncate": lambda: opened("d/f", os.O_WRONLY | os.O_TRUNC),
        "write": lambda: opened("d/f", os.O_WRONLY, then=lambda f: os.write(f, b"X")) and None,
        "write nothing": lambda: opened("d/f", os.O_WRONLY, then=lambda f: os.write(f, b"")) and None,
        "allocate": lambda: opened("d/f", os.O_RDWR, then=lambda f: os.posix_fallocate(f, 0, 9000)),
        "setxattr": lambda: os.setxattr("d/f", "user.a", b"b"),
        "utime": lambda: os.utime("d/f", ns=(123456789, -987654321)),
        "refused": lambda: os.mkdir("d/f"),
    }
    still_open: list[int] = []

    def write_and_keep_open():
        still_open.append(os.open("d/f", os.O_WRONLY))
        os.write(still_open[0], b"X")

    calls["write without a close"] = write_and_keep_open
    watched = ("d", "d/f", "d/h")

    def seen():
        return {p: os.lstat(p) for p in (*watched, "d/new") if os.path.lexists(p)}

    for label, call in calls.items():

        def prepare():
            os.mkdir("d")
            for name in ("f", "g"):
                make("file", "d/" + name)
            os.mkdir("d/sub")
            os.link("d/f", "d/h")
            for path in watched:
                os.utime(path, ns=(10**18, 10**18))

        def changed():
            before = seen()
            time.sleep(0.02)  # longer than the kernel's clock of files stands still
            with contextlib.suppress(OSError):
                call()
            words = []
            for path, now in seen().items():
                was = before.get(path)
                same = [was and getattr(was, f"st_{t}time_ns") == getattr(now, f"st_{t}time_ns") for t in "mc"]
                words.append(f"{path} m{same[0]} c{same[1]}")
            while still_open:
                os.close(still_open.pop())
            if label == "utime":
                words.append(f"{os.stat('d/f').st_atime_ns} {os.stat('d/f').st_mtime_ns}")
            return ", ".join(words)

        case(f"times of {label}", ROOT, prepare, changed)


def acl(*entries):
    """The bytes of a list: tag, rights, who."""
    tags = {"owner": 1, "user": 2, "group": 4, "named": 8, "mask": 16, "other": 32}
    packed = (struct.pack("<HHi", tags[tag], rights, who) for tag, rights, who in entries)
    return struct.pack("<I", 2) + b"".join(packed)


def lists():
    """Access control lists: set, checked, handed down, changed by chmod."""
    full = acl(
        ("owner", 7, -1),
        ("user", 6, OTHER[1]),
        ("group", 4, -1),
        ("named", 5, MEMBER[1]),
        ("mask", 6, -1),
        ("other", 0, -1),
    )
    plain = acl(("owner", 6, -1), ("group", 4, -1), ("other", 4, -1))
    access, default = "system.posix_acl_access", "system.posix_acl_default"

    def listed(path):
        found = []
        for name in (access, default):
            try:
                found.append(os.getxattr(path, name).hex())
            except OSError as error:
                found.append(errno.errorcode[error.errno])
        return f"{oct(os.lstat(path).st_mode)} {found} {sorted(os.listxattr(path))}"

    def with_list(mode=0o2664):
        make("file", "f")
        os.chown("f", OWNER[1], OWNER[1])
        os.chmod("f", mode)
        os.setxattr("f", access, full)

    for user in (ROOT, OWNER, MEMBER, OTHER):
        for value in (full, plain, b"", b"junk", acl(("owner", 7, -1), ("user", 6, 5))):
            for name in (access, default):

                def put():
                    os.setxattr("f", name, value)
                    return listed("f")

                case(f"set {name} {value.hex()}", user, lambda: with_list(), put)
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            case(f"open with a list, {flags}", user, with_list, lambda: opened("f", flags))
        for mode in (0o600, 0o640, 0o777):
            case(f"chmod {mode:o} of a list", user, with_list, lambda: (os.chmod("f", mode), listed("f"))[1])
        case("remove a list", user, with_list, lambda: (os.removexattr("f", access), listed("f"))[1])
        case(
            "write with a list",
            user,
            lambda: with_list(0o6777),
            lambda: opened("f", 1, then=lambda f: os.write(f, b"X")),
        )
    makers = {
        "file": lambda mode: opened("d/f", os.O_CREAT | os.O_WRONLY, mode),
        "dir": lambda mode: os.mkdir("d/f", mode),
        "fifo": lambda mode: os.mkfifo("d/f", mode),
        "node": lambda mode: os.mknod("d/f", stat.S_IFREG | mode),
    }
    for kind, mode, umask, user in itertools.product(makers, (0o777, 0o640, 0o044, 0o2755), (0, 0o077), (ROOT, OTHER)):

        def handed():
            os.mkdir("d")
            os.chmod("d", 0o2777)
            os.setxattr("d", default, full)

        def create():
            os.umask(umask)
            makers[kind](mode)
            return listed("d/f")

        case(f"make {kind} {mode:o} {umask:o} below a list", user, handed, create)


def contents():
    """Reads, writes and sizes, up to the largest offset there is."""
    last = 2**63 - 1
    offsets = (0, 5, 4095, 4096, 9000, 2**31, 2**32 + 1, last - 1, last, -1)
    punch, keep, zero = 3, 1, 17

    def fallocate(f, mode, offset, length):
        arguments = (ctypes.c_int(f), ctypes.c_int(mode), ctypes.c_longlong(offset), ctypes.c_longlong(length))
        if LIBC.fallocate(*arguments):
            raise OSError(ctypes.get_errno(), "fallocate")

    def prepare():
        with open("f", "wb") as file:
            file.write(bytes(range(1, 251)) * 40)

    def twice(f):
        os.lseek(f, -1, os.SEEK_END)
        return os.write(f, b"ab"), os.lseek(f, 0, os.SEEK_CUR)

    calls = {
        "read": lambda f, o: os.pread(f, 10, o),
        "read vector": lambda f, o: os.preadv(f, [bytearray(3), bytearray(9000)], o),
        "seek": lambda f, o: os.lseek(f, o, os.SEEK_SET),
        "seek from the end": lambda f, o: os.lseek(f, o, os.SEEK_END),
        "seek data": lambda f, o: os.lseek(f, o, os.SEEK_DATA),
        "seek hole": lambda f, o: os.lseek(f, o, os.SEEK_HOLE),
        "seek and read": lambda f, o: (os.lseek(f, o, os.SEEK_SET), os.read(f, 7)),
        "advise": lambda f, o: os.posix_fadvise(f, o, 100, os.POSIX_FADV_DONTNEED),
        "lock": lambda f, o: fcntl.lockf(f, fcntl.LOCK_EX, 1, o),
    }
    small = {
        "write": lambda f, o: os.pwrite(f, b"0123456789", o),
        "write nothing": lambda f, o: os.pwrite(f, b"", o),
        "truncate": lambda f, o: os.ftruncate(f, o),
        "allocate": lambda f, o: fallocate(f, 0, o, 100),
        "allocate nothing": lambda f, o: fallocate(f, 0, o, 0),
        "allocate behind the end": lambda f, o: fallocate(f, keep, o, 100),
        "punch": lambda f, o: fallocate(f, punch, o, 5000),
        "zero": lambda f, o: fallocate(f, zero, o, 5000),
        "punch without keeping the size": lambda f, o: fallocate(f, 2, o, 5000),
        "copy": lambda f, o: os.copy_file_range(f, f, 50, 0, o),
        "copy from": lambda f, o: os.copy_file_range(f, f, 50, o, 9990),
        "seek and write": lambda f, o: (os.lseek(f, o, os.SEEK_SET), os.write(f, b"abc")),
    }
    for (label, call), offset in itertools.product(calls.items(), offsets):
        case(f"{label} at {offset}", ROOT, prepare, lambda: opened("f", os.O_RDWR, then=lambda f: call(f, offset)))
    for (label, call), offset in itertools.product(small.items(), offsets):
        if 2**31 <= offset < last - 1 and "copy" in label:
            continue  # describe() would read them
        for flags in (os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDONLY):
            then = lambda f: call(f, offset)  # noqa: E731
            case(f"{label} at {offset}, {flags}", ROOT, prepare, lambda: opened("f", flags, then=then))
    case("write past the end by the offset", ROOT, prepare, lambda: opened("f", os.O_RDWR, then=twice))
    for flags in (os.O_TMPFILE | os.O_RDONLY, os.O_DIRECTORY | os.O_CREAT, os.O_PATH | os.O_TRUNC):
        case(f"open {flags}", ROOT, prepare, lambda: opened("f", flags))


if __name__ == "__main__":
    os.umask(0o022)
    sections = (paths, kinds, rights, times, lists, contents, others)
    for section in sections:
        if len(sys.argv) == 1 or section.__name__ in sys.argv[1:]:
            section()
    finish()
