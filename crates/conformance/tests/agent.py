"""Carries out operations that come through its standard input, by `import stripewise`.

The protocol is that of src/operation.rs: a line of JSON, and as many bytes behind it as it says.
"""

import json
import os
import stat
import sys

import stripewise as sw

pool = sw.open_pool(os.environ["STRIPEWISE_POOL"])
directory = "."
slots = {}


def within(path):
    return os.path.join(directory, path)


def slot(number):
    if number not in slots:
        raise OSError(9, "no such slot")
    return slots[number]


def attributes(found):
    kind = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l"}.get(stat.S_IFMT(found.st_mode), "?")
    counts = (0, 0) if kind == "d" else (found.st_nlink, found.st_size)
    return {
        "stat": {
            "kind": kind,
            "mode": stat.S_IMODE(found.st_mode),
            "links": counts[0],
            "size_bytes": counts[1],
            "inode": found.st_ino,
            "atime_ns": found.st_atime_ns,
            "mtime_ns": found.st_mtime_ns,
            "ctime_ns": found.st_ctime_ns,
        }
    }


def close(number):
    if number not in slots:
        raise OSError(9, "no such slot")
    slots.pop(number).close()


def read(file, size):
    buffer = bytearray(size)
    return bytes(buffer[: file.readinto(buffer)])


def run(name, given, data):
    """What came of an operation: the answer, and the bytes that follow it."""
    done = 0
    match name:
        case "open":
            if given["slot"] in slots:
                close(given["slot"])
            slots[given["slot"]] = pool.open_raw(within(given["path"]), given["flags"], given["mode"])
        case "close":
            close(given["slot"])
        case "read":
            return {"bytes": {}}, read(slot(given["slot"]), given["len"])
        case "pread":
            return {"bytes": {}}, slot(given["slot"]).pread(given["len"], given["at"])
        case "write":
            done = slot(given["slot"]).write(data)
        case "pwrite":
            done = slot(given["slot"]).pwrite(data, given["at"])
        case "seek":
            done = slot(given["slot"]).seek(given["at"], given["whence"])
        case "ftruncate":
            slot(given["slot"]).truncate(given["size"])
        case "truncate":
            with pool.open_raw(within(given["path"]), os.O_WRONLY) as file:
                file.truncate(given["size"])
        case "fsync":
            file = slot(given["slot"])
            file.fdatasync() if given["data_only"] else file.fsync()
        case "fstat":
            return attributes(slot(given["slot"]).stat()), b""
        case "stat":
            return attributes(pool.stat(within(given["path"]), follow_symlinks=given["follow"])), b""
        case "rename":
            pool.rename(within(given["from"]), within(given["to"]), given["flags"])
        case "unlink":
            pool.remove(within(given["path"]))
        case "mkdir":
            pool.mkdir(within(given["path"]), 0o755)
        case "rmdir":
            pool.rmdir(within(given["path"]))
        case "list":
            return {"names": sorted(pool.listdir(within(given["path"])))}, b""
        case _:
            raise ValueError(f"an operation that this agent does not know: {name}")
    return {"done": done}, b""


os.umask(0)
while line := sys.stdin.buffer.readline():
    message = json.loads(line)
    data = sys.stdin.buffer.read(message["bytes"])
    [(kind, what)] = message["message"].items()
    answer, follows = {"done": 0}, b""
    if kind == "enter":
        while slots:
            slots.popitem()[1].close()
        directory = what
    else:
        [(name, given)] = what.items()
        try:
            answer, follows = run(name, given, data)
        except OSError as error:
            answer = {"failed": error.errno}
    sys.stdout.buffer.write(json.dumps({"message": answer, "bytes": len(follows)}).encode() + b"\n" + follows)
    sys.stdout.buffer.flush()
