"""Layout files: what `plan` writes, people read and edit, and `apply` takes."""

from __future__ import annotations

import re
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from stripewise import _native


def exact(path: str) -> str:
    """The pattern by which a layout file is for the file at `path` alone, whatever its name is."""
    return re.sub(r"[*?\\]", r"\\\g<0>", path)


def exact_path(pattern: str) -> str:
    """The path of the file that a pattern of `exact` is for."""
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def read(path: Path) -> _native.LayoutDocument:
    """Reads a layout file without a pool: servers stay as they are named.

    Raises `StripewiseError` that names the line of a mistake.
    """
    return _native.layout_read(str(path))


def check(path: Path, pool_file: Path) -> _native.LayoutDocument:
    """Reads a layout file for a pool: every server that it names must be one of the pool's."""
    return _native.layout_check(str(path), str(pool_file))


_raised: list[int] = []
"""The limit of open files as it was, once for each that has raised it."""
_limits = threading.Lock()


@contextmanager
def _many_open_files() -> Iterator[None]:
    """Lets this process open as many files as it may: the files of a layout file are open until all have moved."""
    with _limits, suppress(ValueError, OSError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        _raised.append(_raised[0] if _raised else soft)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        with _limits, suppress(ValueError, OSError):
            before = _raised.pop()
            if not _raised:
                resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def forecast(path: Path, pool_file: Path) -> _native.Forecast:
    """What `apply` would do. Nothing is changed."""
    with _many_open_files():
        return _native.layout_forecast(str(path), str(pool_file))


def apply(
    path: Path,
    pool_file: Path,
    *,
    rules: bool = True,
    waits: bool = False,
    gives_way: bool = False,
    progress: Callable[[str, int, int], bool | Literal["rest"]] | None = None,
) -> list[_native.Applied]:
    """Gives the files of a layout file their layouts; with `rules` those to come get theirs, too.

    While another process of this user changes layouts of the pool it `waits`, else it raises `StripewiseError`.
    A move `gives_way` to a program that opens the file for writing, and fails, or that program waits.
    `progress` is called with a file's name, bytes done and bytes in all; it stops the move by returning `False`, and
    lets it rest for a moment by returning `"rest"`.
    """
    told = progress or (lambda *_: True)
    files = (str(path), str(pool_file))
    with _many_open_files():
        return _native.layout_apply(*files, rules=rules, waits=waits, gives_way=gives_way, progress=told)
