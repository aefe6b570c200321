"""Files of a pool's namespace that Python writes and reads: as the pool's owner may have left them, also for root.

What root makes there belongs to the pool's owner: a file of root's, which its owner may not open, would lock the owner
out of adapting the pool.

The owner may also have put anything in the place of a file, or of a directory, while root works on the pool. So a
symbolic link is never followed, a FIFO never waited for, and another name of a file of another user neither read nor
written. What is read is bounded. In a directory nothing is removed but what its module has made. The namespace itself
is where the pool file says.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from stripewise._native import StripewiseError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["directory", "files", "has", "make", "make_directory", "opened", "opened_to_read", "read", "rest", "write"]

TRIES = 3
"""For a file that comes and goes meanwhile."""
MOST_LOOKED_AT = 4096
"""Names of a directory, at a look: what its module has not made there is not removed, and may be any number."""
SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
NO_FILE = "it is no regular file; remove it"
IN_WORDS = {errno.ELOOP: "it is a symbolic link, which is not followed; remove it", errno.ENXIO: NO_FILE}
"""What a system call says of such a file."""


def opened(file: Path, flags: int) -> int:
    """Opens a file for this user and the owner of its directory alone, and makes it if there is none.

    Raises `OSError` as `os.open` does, and for what is no file of the pool's: nothing of that is changed. Four system
    calls more where root makes it.
    """
    with _in_words(file):
        descriptor = _opened(file, flags & ~os.O_TRUNC | SAFE)
        with _closed_if_refused(descriptor):
            _check(descriptor, file)
            if flags & os.O_TRUNC:
                os.ftruncate(descriptor, 0)
    return descriptor


def opened_to_read(file: Path) -> int:
    """Opens a file that is there.

    Raises `OSError` as `os.open` does, and for what is no file of the pool's.
    """
    with _in_words(file):
        descriptor = os.open(file, os.O_RDONLY | SAFE)
        with _closed_if_refused(descriptor):
            _check(descriptor, file)
    return descriptor


def read(file: Path, most_bytes: int) -> bytes:
    """What is in a file.

    Raises `OSError` as `opened_to_read` and `rest` do.
    """
    descriptor = opened_to_read(file)
    try:
        return rest(descriptor, most_bytes)
    finally:
        os.close(descriptor)


def rest(descriptor: int, most_bytes: int, begin: int = 0) -> bytes:
    """What is in an open file from the byte `begin` on.

    Raises `OSError` where the file has more than `most_bytes`.
    """
    parts, at = [], begin
    # One byte more shows that there is more.
    while part := os.pread(descriptor, max(0, most_bytes + 1 - at), at):
        parts.append(part)
        at += len(part)
    if at > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than the {most_bytes:,} bytes that it may have; remove it")
    return b"".join(parts)


def write(file: Path, text: str) -> None:
    """Writes a small file anew: all of it, or nothing. For one process at a time.

    Raises `StripewiseError` where that fails, as on a full disk.
    """
    new = file.with_name(f"{file.name}.new")
    try:
        descriptor = opened(new, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        new.rename(file)
    except OSError as error:
        # What was written of it has room on a full disk.
        with suppress(OSError):
            new.unlink()
        raise StripewiseError(f"{file} cannot be written: {error.strerror}") from error


def make_directory(directory: Path) -> None:
    """Makes a directory for this user and the owner of the one above alone, if there is none.

    Raises `OSError` as `os.mkdir` does. What is there may be something else: `directory` says so.
    """
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return
    if os.geteuid() != 0:
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | SAFE)
    try:
        # The owner of the one above may have put another directory in its place, but none with what is root's.
        with os.scandir(descriptor) as found:
            if not any(True for _ in found):
                _give(descriptor, directory.parent.stat())
    finally:
        os.close(descriptor)


@contextmanager
def directory(path: Path) -> Iterator[int]:
    """A descriptor of a directory, by which alone what is in it is made, found and removed.

    Raises `OSError` as `os.open` does, also for a link to a directory.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | SAFE)
    except NotADirectoryError as error:
        raise OSError(errno.ENOTDIR, "it is no directory; remove it", str(path)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def files(descriptor: int, pattern: re.Pattern[str]) -> list[str]:
    """The names of regular files of a directory that match as a whole, of the first `MOST_LOOKED_AT` names."""
    with os.scandir(descriptor) as found:
        names = [of.name for of in itertools.islice(found, MOST_LOOKED_AT) if of.is_file(follow_symlinks=False)]
    return [name for name in names if pattern.fullmatch(name)]


def has(descriptor: int, name: str) -> bool:
    """Whether a directory has that name, whatever is there."""
    try:
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def make(descriptor: int, name: str) -> None:
    """Makes an empty file in a directory, for this user and the owner of the directory alone.

    Raises `OSError` as `os.open` does, also where there is something of that name.
    """
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE, 0o600, dir_fd=descriptor)
    try:
        if os.geteuid() == 0:
            _give(file, os.fstat(descriptor))
    finally:
        os.close(file)


def _opened(file: Path, flags: int) -> int:
    if os.geteuid() != 0:
        return os.open(file, flags | os.O_CREAT, 0o600)
    for _ in range(TRIES):
        with suppress(FileNotFoundError):
            return os.open(file, flags)
        with suppress(FileExistsError):
            # Only what is made here is given away: a file that is there may be another name of one that is root's.
            descriptor = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o600)
            _give(descriptor, file.parent.stat())
            return descriptor
    return os.open(file, flags | os.O_CREAT, 0o600)


def _check(descriptor: int, file: Path) -> None:
    """Raises `OSError` for what is no file of the pool's."""
    state = os.fstat(descriptor)
    if stat.S_ISDIR(state.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.ENXIO, NO_FILE, str(file))
    # A backup may be another name of the owner's own file.
    if state.st_nlink > 1 and state.st_uid != file.parent.stat().st_uid:
        words = f"it is another name of a file of user {state.st_uid}, who does not own the namespace; remove it"
        raise OSError(errno.EPERM, words, str(file))


@contextmanager
def _in_words(file: Path) -> Iterator[None]:
    """Has errors say what is in the place of the file."""
    try:
        yield
    except OSError as error:
        words = IN_WORDS.get(error.errno or 0)
        if words is None:
            raise
        raise OSError(error.errno, words, str(file)) from error


@contextmanager
def _closed_if_refused(descriptor: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


def _give(descriptor: int, owner: os.stat_result) -> None:
    """Gives what root has made to the owner of a directory; it stays root's where the file system refuses that."""
    if owner.st_uid != 0:
        with suppress(OSError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
