"""`open_pool`: files of a pool without a mount, as Python's own file objects."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from stripewise import _native
from stripewise.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

_FLAGS = {
    "r": 0,
    "w": os.O_CREAT | os.O_TRUNC,
    "a": os.O_CREAT | os.O_APPEND,
    "x": os.O_CREAT | os.O_EXCL,
}


def open_pool(pool: str | os.PathLike[str]) -> PoolFiles:
    """The files of the pool whose file, or the directory of whose `pool.toml`, this is.

    Nothing has to be mounted; where the pool is, its mounts see what is written here and the other way round.
    Raises `StripewiseError` that says what is wrong with the pool.
    """
    return PoolFiles(Pool.load(Path(pool)))


def _stat(attributes: _native.Attributes) -> os.stat_result:
    mode, links, size_bytes, inode, atime_ns, mtime_ns, ctime_ns = attributes
    seconds = [ns // 10**9 for ns in (atime_ns, mtime_ns, ctime_ns)]
    exact = [ns / 10**9 for ns in (atime_ns, mtime_ns, ctime_ns)]
    named = (mode, inode, 0, links, 0, 0, size_bytes, *seconds, *exact, atime_ns, mtime_ns, ctime_ns)
    return os.stat_result(named)


class PoolFiles:
    """The files of a pool.

    Paths are relative to the pool's mount point, or absolute below it; none leads out of the pool. What goes wrong
    with a file is an `OSError`, as with Python's own files.
    """

    def __init__(self, pool: Pool) -> None:
        """Opens the pool; `open_pool` takes its path."""
        self.pool = pool
        self._native = _native.PoolFiles(str(pool.file))

    def __repr__(self) -> str:
        return f"<files of the pool {self.pool.name!r} ({self.pool.file})>"

    def _within(self, path: str | os.PathLike[str]) -> str:
        """The path below the tree of names."""
        whole = Path(path)
        if not whole.is_absolute():
            return os.fspath(path)
        if not whole.is_relative_to(self.pool.mount):
            raise ValueError(f"{path} is not below the mount point of the pool {self.pool.name}, {self.pool.mount}")
        return str(whole.relative_to(self.pool.mount))

    def open(
        self,
        path: str | os.PathLike[str],
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Opens a file, as `open` does: the same modes, buffers and encodings.

        With `buffering=0` the object is a `PoolFile`; otherwise it is its `raw` (of text its `buffer.raw`).
        """
        kinds = set(mode) - {"b", "t", "+"}
        if len(kinds) != 1 or not kinds <= set(_FLAGS) or len(set(mode)) != len(mode) or {"b", "t"} <= set(mode):
            raise ValueError(f"mode {mode!r} is not one of r, w, a or x, with b or t and + if wanted")
        kind = kinds.pop()
        binary = "b" in mode
        if binary and (encoding or errors or newline):
            raise ValueError("encoding, errors and newline are for text: leave out the b of the mode")
        if buffering == 0 and not binary:
            raise ValueError("text cannot be unbuffered: add b to the mode, or leave out buffering=0")
        access = os.O_RDWR if "+" in mode else os.O_RDONLY if kind == "r" else os.O_WRONLY
        raw = self.open_raw(path, access | _FLAGS[kind])
        try:
            if buffering == 0:
                return raw  # type: ignore[return-value]
            size = buffering if buffering > 1 else _BUFFER_BYTES
            buffered: Any
            if "+" in mode:
                buffered = io.BufferedRandom(raw, size)
            else:
                buffered = io.BufferedReader(raw, size) if kind == "r" else io.BufferedWriter(raw, size)
            if binary:
                return buffered  # type: ignore[no-any-return]
            text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
            text.mode = mode  # type: ignore[misc]
            return text
        except BaseException:
            raw.close()
            raise

    def open_raw(self, path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> PoolFile:
        """Opens a file with the flags of `os.open`, without buffers."""
        return PoolFile(self._native.open(self._within(path), flags, mode), os.fspath(path), flags)

    def stat(self, path: str | os.PathLike[str], *, follow_symlinks: bool = True) -> os.stat_result:
        """As `os.stat`."""
        return _stat(self._native.stat(self._within(path), follow_symlinks))

    def listdir(self, path: str | os.PathLike[str] = ".") -> list[str]:
        """As `os.listdir`."""
        return self._native.list(self._within(path))

    def mkdir(self, path: str | os.PathLike[str], mode: int = 0o777) -> None:
        """As `os.mkdir`."""
        self._native.make_directory(self._within(path), mode)

    def rmdir(self, path: str | os.PathLike[str]) -> None:
        """As `os.rmdir`."""
        self._native.remove_directory(self._within(path))

    def remove(self, path: str | os.PathLike[str]) -> None:
        """As `os.remove`; the bytes go with the last name and the last close."""
        self._native.unlink(self._within(path))

    def rename(self, source: str | os.PathLike[str], target: str | os.PathLike[str], flags: int = 0) -> None:
        """As `os.rename`; `flags` are those of `renameat2`."""
        self._native.rename(self._within(source), self._within(target), flags)


_BUFFER_BYTES = 64 << 10
"""What the mount tells programs, too: a request costs more than copying so much."""


class PoolFile(io.RawIOBase):
    """An open file of a pool. Reads into a program's buffer, and writes from it, make no copy."""

    def __init__(self, native: _native.OpenFile, name: str, flags: int) -> None:
        """An open file; `PoolFiles.open` opens one."""
        super().__init__()
        self._native = native
        self._access = flags & os.O_ACCMODE
        self.name = name

    def __repr__(self) -> str:
        return f"<PoolFile {self.name!r}{' closed' if self.closed else ''}>"

    def readable(self) -> bool:
        """Whether it is open for reading."""
        return self._access != os.O_WRONLY

    def writable(self) -> bool:
        """Whether it is open for writing."""
        return self._access != os.O_RDONLY

    def seekable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Reads into `buffer`; how many bytes, 0 at the end."""
        return self._native.read_into(memoryview(buffer).cast("B"), None)

    def write(self, data: Buffer, /) -> int:
        """Writes; how many bytes, fewer than given only where a server has no room."""
        return self._native.write_from(memoryview(data).cast("B"), None)

    def preadv(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Reads at `offset` into buffers, one after the other; how many bytes. The file's own offset stays."""
        return self._each(self._native.read_into, buffers, offset)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Writes buffers at `offset`, one after the other; how many bytes. The file's own offset stays."""
        return self._each(self._native.write_from, buffers, offset)

    def _each(self, transfer: Any, buffers: Sequence[Buffer], offset: int) -> int:  # noqa: ANN401
        done = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            count = transfer(view, offset + done)
            done += count
            if count < len(view):
                break
        return done

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`. The file's own offset stays."""
        buffer = bytearray(size)
        count = self._native.read_into(memoryview(buffer), offset)
        return bytes(memoryview(buffer)[:count])

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Writes at `offset`; how many bytes. The file's own offset stays."""
        return self._native.write_from(memoryview(data).cast("B"), offset)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As `os.lseek`, to data and holes too."""
        return self._native.seek(offset, whence)

    def tell(self) -> int:
        """The file's own offset."""
        return self._native.seek(0, os.SEEK_CUR)

    def truncate(self, size: int | None = None, /) -> int:
        """Sets the size, to the file's own offset if none is given."""
        size = self.tell() if size is None else size
        self._native.truncate(size)
        return size

    def fsync(self) -> None:
        """Makes what was written durable. Flush a buffer over it first."""
        self._native.sync(data_only=False)

    def fdatasync(self) -> None:
        """The same without the times."""
        self._native.sync(data_only=True)

    def stat(self) -> os.stat_result:
        """As `os.fstat`."""
        return _stat(self._native.stat())

    @property
    def layout(self) -> list[tuple[int, list[tuple[str, int]]]]:
        """Regions as `(offset, [(server, width in bytes), ...])`; a file without a handle has one, on `meta`."""
        return self._native.layout()

    def close(self) -> None:
        """Closes it; the last writer of all puts the size into the inode, and an error of that is told here."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._native.close()
