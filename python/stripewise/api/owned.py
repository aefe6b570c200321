"""Files that processes make in a pool's namespace: they belong to its owner, also where root makes them.

A file of root's there, which its owner may not open, would lock the owner out of adapting the pool.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from stripewise._native import StripewiseError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_directory", "opened", "write"]

TRIES = 3
"""For a file that comes and goes meanwhile."""


def opened(file: Path, flags: int) -> int:
    """Opens a file for this user and the owner of its directory alone, and makes it if there is none.

    Raises `OSError` as `os.open` does. Three system calls more where root makes it.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    if os.geteuid() != 0:
        return os.open(file, flags | os.O_CREAT, 0o600)
    for _ in range(TRIES):
        with suppress(FileNotFoundError):
            return os.open(file, flags)
        with suppress(FileExistsError):
            # Only what is made here is given away: a file that is there may be another name of one that is root's.
            descriptor = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o600)
            _give(descriptor, file.parent)
            return descriptor
    return os.open(file, flags | os.O_CREAT, 0o600)


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

    Raises `OSError` as `os.mkdir` does.
    """
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return
    if os.geteuid() != 0:
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        # The owner of the one above may have put another directory in its place, but none with what is root's.
        with os.scandir(descriptor) as found:
            if not any(True for _ in found):
                _give(descriptor, directory.parent)
    finally:
        os.close(descriptor)


def _give(descriptor: int, directory: Path) -> None:
    """Gives what root has made to the owner of a directory; it stays root's where the file system refuses that."""
    owner = directory.stat()
    if owner.st_uid != 0:
        with suppress(OSError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
