"""One case: a system call by some user in a directory that was prepared, what it answers and what it leaves behind."""

import ctypes
import errno
import itertools
import os
import shutil
import stat

NO_REPLACE, EXCHANGE = 1, 2
AT_FDCWD = -100
LIBC = ctypes.CDLL(None, use_errno=True)

# Name, user, groups (the first one is that of new files).
ROOT = ("root", 0, [0])
OWNER = ("owner", 65533, [65533])
MEMBER = ("member", 65532, [65532, 65533])
OTHER = ("other", 65531, [65531])
KINDS = ("file", "dir", "fulldir", "fifo", "socket", "char", "link", "linkdir", "dangling", "loop")

count = itertools.count()


def become(user):
    os.seteuid(0)
    os.setgroups(user[2])
    os.setegid(user[2][0])
    os.seteuid(user[1])


def make(kind, path):
    """Something of a kind at a path."""
    match kind:
        case "file":
            with open(path, "wb") as file:
                file.write(b"content")
        case "dir":
            os.mkdir(path)
        case "fulldir":
            os.mkdir(path)
            os.mkdir(path + "/inside")
        case "fifo":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, stat.S_IFSOCK | 0o644)
        case "char":
            os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 3))
        case "link":
            make("file", path + ".target")
            os.symlink(os.path.basename(path) + ".target", path)
        case "linkdir":
            os.mkdir(path + ".target")
            os.symlink(os.path.basename(path) + ".target", path)
        case "dangling":
            os.symlink("nowhere", path)
        case "loop":
            os.symlink(os.path.basename(path), path)


def describe(path="."):
    """All that is in a directory and can be said the same way of two file systems."""
    found = []
    for directory, dirs, files in os.walk(path):
        dirs.sort()
        for name in sorted(dirs + files):
            entry = os.path.join(directory, name)
            info = os.lstat(entry)
            words = [entry.replace("x" * 64, "X"), oct(info.st_mode), info.st_uid, info.st_gid, info.st_nlink]
            if stat.S_ISREG(info.st_mode):
                with open(entry, "rb") as file:
                    words += [info.st_size, file.read(64)]
            elif stat.S_ISLNK(info.st_mode):
                words += [info.st_size, os.readlink(entry)[:64]]
            elif stat.S_ISCHR(info.st_mode):
                words.append(info.st_rdev)
            found.append(" ".join(map(str, words)))
    return "; ".join(found)


kept = None  # the directory of the last case and what it was made for, if a call that failed left it as it was


def case(label, user, prepare, call, world=None):
    """Runs `call` as `user` in a directory that `prepare` has filled, and says what came of it.

    Cases of one `world` are prepared alike, and share the directory until one of them changes it.
    """
    global kept
    if kept and (world is None or kept[1] != world):
        shutil.rmtree(kept[0])
        kept = None
    directory = kept[0] if kept else f"case{next(count)}"
    if not kept:
        os.mkdir(directory)
        os.chmod(directory, 0o777)
    os.chdir(directory)
    try:
        if not kept:
            prepare()
        kept = None
        left = None
        become(user)
        try:
            result = call()
            result = "ok" if result is None else result
        except OSError as error:
            result = errno.errorcode.get(error.errno, error.errno)
            left = sorted(name[:80] for name in os.listdir(".")) if world else None
            kept = (directory, world) if world else None
        finally:
            become(ROOT)
            os.umask(0o022)
        print(f"{label} by {user[0]}: {result} | {left or describe()}")
    finally:
        os.chdir("..")
        if not kept:
            shutil.rmtree(directory)


def finish():
    """Removes what the last case has left."""
    if kept:
        shutil.rmtree(kept[0])


def rename2(old, new, flags):
    if LIBC.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def opened(path, flags, mode=0o666, then=None):
    descriptor = os.open(path, flags, mode)
    try:
        return then(descriptor) if then else None
    finally:
        os.close(descriptor)


CALLS = {
    "open read": lambda p: opened(p, os.O_RDONLY | os.O_NONBLOCK),
    "open write": lambda p: opened(p, os.O_RDWR | os.O_NONBLOCK),
    "open create": lambda p: opened(p, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK),
    "open exclusive": lambda p: opened(p, os.O_RDWR | os.O_CREAT | os.O_EXCL),
    "open truncate": lambda p: opened(p, os.O_RDWR | os.O_TRUNC | os.O_NONBLOCK),
    "open read truncate": lambda p: opened(p, os.O_RDONLY | os.O_TRUNC | os.O_NONBLOCK),
    "open directory": lambda p: opened(p, os.O_RDONLY | os.O_DIRECTORY),
    "open nofollow": lambda p: opened(p, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK),
    "open path": lambda p: opened(p, os.O_PATH),
    "mkdir": lambda p: os.mkdir(p),
    "rmdir": lambda p: os.rmdir(p),
    "unlink": lambda p: os.unlink(p),
    "mkfifo": lambda p: os.mkfifo(p),
    "mknod char": lambda p: os.mknod(p, stat.S_IFCHR | 0o640, os.makedev(1, 5)),
    "mknod block": lambda p: os.mknod(p, stat.S_IFBLK | 0o640, os.makedev(7, 300)),
    "mknod socket": lambda p: os.mknod(p, stat.S_IFSOCK | 0o640),
    "mknod file": lambda p: os.mknod(p, stat.S_IFREG | 0o640),
    "symlink": lambda p: os.symlink("some/where", p),
    "link to": lambda p: os.link("source", p),
    "link from": lambda p: os.link(p, "made", follow_symlinks=False),
    "link followed": lambda p: os.link(p, "made", follow_symlinks=True),
    "rename to": lambda p: os.rename("source", p),
    "rename directory to": lambda p: os.rename("sourcedir", p),
    "rename from": lambda p: os.rename(p, "made"),
    "rename without replacing": lambda p: rename2("source", p, NO_REPLACE),
    "exchange": lambda p: rename2("source", p, EXCHANGE),
    "chmod": lambda p: os.chmod(p, 0o640),
    "chown": lambda p: os.chown(p, 65533, 65533),
    "lchown": lambda p: os.lchown(p, 65533, 65533),
    "truncate": lambda p: os.truncate(p, 3),
    "truncate longer": lambda p: os.truncate(p, 99),
    "utime": lambda p: os.utime(p, ns=(10**9, 2 * 10**9)),
    "utime now": lambda p: os.utime(p),
    "utime of link": lambda p: os.utime(p, ns=(10**9, 2 * 10**9), follow_symlinks=False),
    "readlink": lambda p: os.readlink(p)[:64],
    "stat": lambda p: oct(os.stat(p).st_mode),
    "lstat": lambda p: oct(os.lstat(p).st_mode),
    "access": lambda p: os.access(p, os.R_OK | os.X_OK, effective_ids=True),
    "list": lambda p: sorted(os.listdir(p)),
    "setxattr": lambda p: os.setxattr(p, "user.word", b"value"),
    "lsetxattr": lambda p: os.setxattr(p, "user.word", b"value", follow_symlinks=False),
    "getxattr": lambda p: os.getxattr(p, "user.word"),
    "removexattr": lambda p: os.removexattr(p, "user.word"),
}
