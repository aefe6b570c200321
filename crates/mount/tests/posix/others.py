"""Cases of calls that no other section has: by a directory's descriptor, through pipes, of maps, locks and handles."""

import ctypes
import errno
import fcntl
import itertools
import mmap
import os
import struct

from harness import LIBC, OTHER, ROOT, case, make, opened

# Numbers of calls that the C library may not have, the same on all machines but for the oldest ones.
NUMBERS = {"close_range": 436, "openat2": 437, "cachestat": 451, "fchmodat2": 452} | (
    {"io_setup": 206, "io_destroy": 207, "io_getevents": 208, "io_submit": 209}
    if os.uname().machine == "x86_64"
    else {"io_setup": 0, "io_destroy": 1, "io_submit": 2, "io_getevents": 4}
)
for wide in (LIBC.syscall, LIBC.mmap):
    wide.restype = ctypes.c_long


def raw(name, *arguments):
    """A system call that Python does not have; a failure raises what it says."""
    result = (
        LIBC.syscall(ctypes.c_long(NUMBERS[name]), *arguments) if name in NUMBERS else getattr(LIBC, name)(*arguments)
    )
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def longs(*values):
    """A structure of 64-bit fields."""
    return (ctypes.c_ulonglong * len(values))(*values)


def others():
    """Calls that no other section has."""
    here = ctypes.c_int(-100)  # AT_FDCWD
    no_links, beneath, in_root, no_crossing, cached = 4, 8, 16, 1, 32

    def prepare():
        with open("f", "wb") as file:
            file.write(bytes(range(250)) * 100)
        os.mkdir("d")
        make("file", "d/inside")
        os.symlink("d", "linkdir")
        os.symlink("../outside", "d/out")
        make("file", "outside")

    def tried(label, call, user=ROOT):
        case(label, user, prepare, call)

    def on_file(label, call, flags=os.O_RDWR):
        tried(label, lambda: opened("f", flags, then=call))

    def openat2(path, resolve, flags=os.O_RDONLY, mode=0):
        how = longs(flags, mode, resolve)
        while True:
            try:
                return os.close(raw("openat2", here, os.fsencode(path), how, ctypes.c_size_t(24)))
            except BlockingIOError:
                # Within bounds the kernel gives a '..' up while anything is renamed or mounted anywhere (openat2(2)).
                if resolve not in (beneath, in_root):
                    raise

    for path, resolve in itertools.product(
        ("f", "d/inside", "linkdir/inside", "d/../f", "d/out", "/etc/passwd", "../f", "/proc/self/exe"),
        (0, no_links, beneath, in_root, no_crossing, 1 << 40),
    ):
        tried(f"openat2 {path} {resolve}", lambda: openat2(path, resolve))
    tried("openat2 makes", lambda: openat2("new", beneath, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))
    tried("openat2 with a mode and nothing to make", lambda: openat2("f", 0, os.O_RDONLY, 0o640))
    tried("openat2 with unknown flags", lambda: openat2("f", 0, 1 << 40))
    tried("openat2 of what is not in the cache", lambda: openat2("none", cached, os.O_CREAT))

    def at(directory):
        """Calls that take a directory's descriptor."""
        os.mkdir("made", dir_fd=directory)
        os.mknod("node", 0o600, dir_fd=directory)
        os.symlink("somewhere", "link", dir_fd=directory)
        os.link("inside", "again", src_dir_fd=directory, dst_dir_fd=directory)
        os.rename("again", "renamed", src_dir_fd=directory, dst_dir_fd=directory)
        os.chmod("inside", 0o604, dir_fd=directory)
        os.chown("node", 5, 6, dir_fd=directory)
        os.utime("inside", ns=(5, 7), dir_fd=directory)
        os.rmdir("made", dir_fd=directory)
        found = os.stat("inside", dir_fd=directory)
        return os.readlink("link", dir_fd=directory), found.st_mode, found.st_nlink, sorted(os.listdir(directory))

    for path in ("d", "linkdir", "f"):
        tried(f"calls at {path}", lambda: opened(path, os.O_RDONLY, then=at))

    def moved_to(call):
        """In a child, as its directory cannot be changed back."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                answer = call()
            except OSError as error:
                answer = errno.errorcode[error.errno]
            os.write(write, repr(answer).encode())
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read, "rb") as file:
            return file.read().decode()

    def gone():
        os.chdir("d")
        os.unlink("inside")
        os.unlink("out")
        os.rmdir("../d")
        return os.listdir("."), os.path.exists("."), os.getcwd()

    tried("chroot", lambda: moved_to(lambda: (os.chroot("d"), os.chdir("/"), sorted(os.listdir("/")), os.getcwd())))
    tried("chroot to a file", lambda: moved_to(lambda: os.chroot("f")))
    tried("chroot of others", lambda: moved_to(lambda: os.chroot("d")), OTHER)
    tried("getcwd", lambda: moved_to(lambda: (os.chdir("d"), os.getcwd().rsplit("/", 1)[1])))
    tried("getcwd of what is gone", lambda: moved_to(gone))
    tried("fchdir", lambda: moved_to(lambda: (opened("d", os.O_RDONLY, then=os.fchdir), sorted(os.listdir(".")))))
    tried("fchdir to a file", lambda: moved_to(lambda: opened("f", os.O_RDONLY, then=os.fchdir)))

    def by_handle(path):
        """The same file by its handle, also when its name has changed."""
        handle = ctypes.create_string_buffer(8 + 128)
        struct.pack_into("=I", handle, 0, 128)
        mount = ctypes.c_int()
        try:
            raw("name_to_handle_at", here, os.fsencode(path), handle, ctypes.byref(mount), 0)
        except OSError as error:
            # The file system of a container's image has none.
            return error.errno == errno.EOPNOTSUPP
        os.rename(path, "elsewhere")
        with open("elsewhere" if os.path.isfile("elsewhere") else "f", "rb") as some:
            found = raw("open_by_handle_at", ctypes.c_int(some.fileno()), handle, os.O_RDONLY)
        try:
            return os.fstat(found).st_ino == os.stat("elsewhere").st_ino
        finally:
            os.close(found)

    tried("a file by its handle", lambda: by_handle("f"))
    tried("a directory by its handle", lambda: by_handle("d"))

    def through_pipe(call):
        def run(file):
            read, write = os.pipe()
            more = os.pipe()
            try:
                return call(file, read, write, more)
            finally:
                for end in (read, write, *more):
                    os.close(end)

        return run

    def spliced(file, read, write, _):
        count = os.splice(file, write, 9000, offset_src=100)
        return count, os.splice(read, file, 5000, offset_dst=50), os.read(read, 10), os.pread(file, 5, 48)

    def teed(file, read, write, more):
        os.splice(file, write, 300)
        count = raw("tee", ctypes.c_int(read), ctypes.c_int(more[1]), ctypes.c_size_t(200), 0)
        return count, os.splice(more[0], file, 200, offset_dst=30000), len(os.read(read, 1000)), os.fstat(file).st_size

    def vmspliced(file, read, write, _):
        data = ctypes.create_string_buffer(b"spliced from memory", 19)
        vector = longs(ctypes.addressof(data), 19)
        count = raw("vmsplice", ctypes.c_int(write), vector, ctypes.c_ulong(1), 0)
        return count, os.splice(read, file, 19, offset_dst=40960), os.pread(file, 19, 40960)

    on_file("splice", through_pipe(spliced))
    on_file("splice to a file for reading", through_pipe(spliced), os.O_RDONLY)
    on_file("splice to a file for appending", through_pipe(spliced), os.O_RDWR | os.O_APPEND)
    on_file("tee", through_pipe(teed))
    on_file("vmsplice", through_pipe(vmspliced))

    def sent(file):
        return opened("outside", os.O_RDWR, then=lambda to: (os.sendfile(to, file, 20, 100), os.pread(to, 100, 0)))

    on_file("sendfile", sent)
    on_file("sendfile from a negative offset", lambda f: os.sendfile(f, f, -1, 10))
    for flags, offset, length in ((0, 0, 0), (7, 4096, 10000), (1, 2**40, 10), (8, 0, 0), (2, -1, 5), (2, 5, -1)):

        def ranged(file):
            arguments = (ctypes.c_longlong(offset), ctypes.c_longlong(length), ctypes.c_uint(flags))
            return raw("sync_file_range", ctypes.c_int(file), *arguments)

        on_file(f"sync_file_range {flags} {offset} {length}", ranged)
    on_file("syncfs", lambda f: raw("syncfs", ctypes.c_int(f)))
    on_file("readahead", lambda f: raw("readahead", ctypes.c_int(f), ctypes.c_longlong(4096), ctypes.c_size_t(9000)))
    readahead = lambda f: raw("readahead", ctypes.c_int(f), ctypes.c_longlong(0), ctypes.c_size_t(9))  # noqa: E731
    on_file("readahead of a file for writing", readahead, os.O_WRONLY)

    def submitted(file):
        """Asynchronous reads and writes (io_submit) of the kernel."""
        context = ctypes.c_ulong(0)
        raw("io_setup", ctypes.c_uint(4), ctypes.byref(context))
        try:
            data, back = ctypes.create_string_buffer(b"x" * 6000, 6000), ctypes.create_string_buffer(6000)
            answers = []
            for operation, buffer in ((1, data), (0, back), (3, None), (9, None)):
                block = ctypes.create_string_buffer(64)
                address = ctypes.addressof(buffer) if buffer else 0
                struct.pack_into(
                    "=QIIHhIQQq", block, 0, 0, 0, 0, operation, 0, file, address, 6000 if buffer else 0, 3000
                )
                try:
                    raw("io_submit", context, ctypes.c_long(1), longs(ctypes.addressof(block)))
                except OSError as error:
                    answers.append(errno.errorcode[error.errno])
                    continue
                event = ctypes.create_string_buffer(32)
                raw("io_getevents", context, ctypes.c_long(1), ctypes.c_long(1), event, None)
                answers.append(struct.unpack_from("=q", event, 16)[0])
            return answers, back.raw == data.raw
        finally:
            raw("io_destroy", context)

    on_file("io_submit", submitted)
    on_file("io_submit for reading", submitted, os.O_RDONLY)

    def mapped(file):
        """Maps: advice, which pages are there, a longer map, pages behind the end."""
        with mmap.mmap(file, 20000) as area:
            area.madvise(mmap.MADV_WILLNEED)
            area[5] = 1
            area.madvise(mmap.MADV_DONTNEED)
            area.flush()
            area.resize(30000)
            area[29999] = 7
            return area[5], area[6], os.fstat(file).st_size, area[29999]

    on_file("maps", mapped)
    for label, length, kind, access in (
        ("of nothing", 0, mmap.MAP_SHARED, mmap.PROT_READ),
        ("for writing", 9000, mmap.MAP_SHARED, mmap.PROT_WRITE),
        ("private for writing", 9000, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE),
        ("shared and validated", 9000, 3, mmap.PROT_READ),
        ("to run", 9000, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_EXEC),
    ):
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):

            def map_it(file):
                arguments = (ctypes.c_size_t(length), access, kind, ctypes.c_int(file), ctypes.c_long(0))
                address = raw("mmap", None, *arguments)
                raw("munmap", ctypes.c_void_p(address), ctypes.c_size_t(length))

            on_file(f"map {label}, {flags}", map_it, flags)

    def present(file):
        """Which pages of a map are in memory."""
        with mmap.mmap(file, 12288, mmap.MAP_PRIVATE) as area:
            area[0], area[8192] = 1, 1
            found = ctypes.create_string_buffer(3)
            raw("mincore", ctypes.byref(ctypes.c_char.from_buffer(area)), ctypes.c_size_t(12288), found)
            return found.raw[0] & 1, found.raw[2] & 1

    on_file("mincore", present)
    for flags in (0, 1):
        answer = ctypes.create_string_buffer(40)
        on_file(f"cachestat {flags}", lambda f: raw("cachestat", ctypes.c_uint(f), longs(0, 9000), answer, flags))

    def leased(file):
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        held = fcntl.fcntl(file, fcntl.F_GETLEASE)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return held

    on_file("lease", leased, os.O_RDONLY)
    on_file("lease for writing", leased)
    for command in (fcntl.F_SETFL, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_GETOWN, 12345):
        on_file(f"fcntl {command}", lambda f: fcntl.fcntl(f, command, os.O_APPEND) & ~63)
    for kind, start, length in ((fcntl.F_RDLCK, 0, 0), (fcntl.F_WRLCK, 9000, 5), (fcntl.F_WRLCK, -5, 3), (9, 0, 0)):
        lock = struct.pack("=hhxxxxqqixxxx", kind, 0, start, length, 0)
        for command, flags in itertools.product((fcntl.F_SETLK, 5, 37), (os.O_RDONLY, os.O_WRONLY)):
            on_file(
                f"lock {command} {kind} {start} {length}, {flags}", lambda f: fcntl.fcntl(f, command, lock)[:2], flags
            )
    for operation in (fcntl.LOCK_SH, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN, 64):
        on_file(f"flock {operation}", lambda f: fcntl.flock(f, operation))

    def watched():
        """What inotify tells of changes."""
        queue = raw("inotify_init1", os.O_NONBLOCK)
        try:
            raw("inotify_add_watch", ctypes.c_int(queue), b"d", ctypes.c_uint(0xFFF))
            make("file", "d/new")
            os.chmod("d/new", 0o600)
            os.rename("d/new", "d/newer")
            os.truncate("d/newer", 3)
            with open("d/newer", "rb") as file:
                file.read()
            os.unlink("d/newer")
            os.mkdir("d/sub")
            events, data = [], os.read(queue, 10000)
            while data:
                _, mask, _, length = struct.unpack_from("=iIII", data)
                events.append((hex(mask), data[16 : 16 + length].rstrip(b"\0")))
                data = data[16 + length :]
            return events
        finally:
            os.close(queue)

    tried("inotify", watched)

    def notified():
        """What fanotify tells of one file."""
        queue = raw("fanotify_init", ctypes.c_uint(2), ctypes.c_uint(0))  # that does not wait
        try:
            raw("fanotify_mark", ctypes.c_int(queue), ctypes.c_uint(1), ctypes.c_ulonglong(0x3B), here, b"f")
            with open("f", "r+b") as file:
                file.read(10)
                file.write(b"x")
            events, data = [], os.read(queue, 10000)
            while data:
                length, _, _, _, mask, descriptor, _ = struct.unpack_from("=IBBHQii", data)
                os.close(descriptor)
                events.append(hex(mask))
                data = data[length:]
            return events
        finally:
            os.close(queue)

    tried("fanotify", notified)
    for name in ("PC_NAME_MAX", "PC_PATH_MAX", "PC_PIPE_BUF", "PC_CHOWN_RESTRICTED", "PC_NO_TRUNC", "PC_SYNC_IO"):
        tried(f"pathconf {name}", lambda: os.pathconf("f", name))
    tried("statfs", lambda: os.statvfs("f").f_namemax)
    tried("fstatfs", lambda: opened("f", os.O_RDONLY, then=lambda f: os.fstatvfs(f).f_namemax))
    on_file("close_range", lambda f: raw("close_range", ctypes.c_uint(f), ctypes.c_uint(f - 1), 0))
    for flags in (0, 0x1000, 0x100, 4):  # AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW
        for path in ("f", "linkdir"):
            arguments = (here, os.fsencode(path), ctypes.c_uint(0o640), ctypes.c_uint(flags))
            tried(f"fchmodat2 {path} {flags}", lambda: raw("fchmodat2", *arguments))

    def extended(path, flags, mask):
        answer = ctypes.create_string_buffer(256)
        raw("statx", here, os.fsencode(path), ctypes.c_int(flags), ctypes.c_uint(mask), answer)
        told, _, _, links, uid, gid, mode = struct.unpack_from("=IIQIIIH", answer)
        return hex(told & 0x7FF & mask), links, uid, gid, oct(mode), struct.unpack_from("=Q", answer, 40)[0]

    for path, flags, mask in itertools.product(
        ("f", "linkdir", "none", ""), (0, 0x100, 0x2000, 0x4000, 0x6000, 3), (0, 0x7FF)
    ):
        if path != "linkdir":
            tried(f"statx {path} {flags} {mask}", lambda: extended(path, flags, mask))
    on_file("preadv2 with unknown flags", lambda f: os.preadv(f, [bytearray(5)], 0, 1 << 20))
    on_file("pwritev2 that appends", lambda f: (os.pwritev(f, [b"abc"], 0, os.RWF_APPEND), os.fstat(f).st_size))
    on_file("pwritev2 that syncs", lambda f: os.pwritev(f, [b"abc"], 10, os.RWF_SYNC))
    on_file("direct reads and writes", direct, os.O_RDWR | os.O_DIRECT)


def direct(file):
    """O_DIRECT with what every file system takes: whole blocks, from memory at a block's beginning."""
    with mmap.mmap(-1, 8192) as area:
        area[:] = b"d" * 8192
        return os.pwrite(file, area, 4096), os.preadv(file, [area], 0), area[0], area[8191]
