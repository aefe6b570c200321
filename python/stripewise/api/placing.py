"""Layouts of a pool's files: reading layout files, setting layouts, and where the bytes of a file are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stripewise import _native, layouts, places
from stripewise.places import Place
from stripewise.pool import Pool

if TYPE_CHECKING:
    from stripewise._native import Applied, Forecast, LayoutDocument

Progress = Callable[[str, int, int], bool]
"""Called with a file's name, bytes done and bytes in all; returning `False` stops the move."""


def read_layout(path: Path) -> LayoutDocument:
    """Reads a layout file without a pool: servers stay as they are named.

    Raises `StripewiseError` that names the line of a mistake.
    """
    return layouts.read(path)


def apply(layout: Path, pool: Pool, *, progress: Progress | None = None) -> list[Applied]:
    """Gives the files of a layout file their layouts, those that are there and those to come.

    Everything is checked before the first byte moves. Each file is switched atomically once its copy is checked; where
    one fails, those before it are moved back. Raises `StripewiseError` where another process of this user changes
    layouts of the pool.
    """
    return layouts.apply(layout, pool.file, progress=progress)


def forecast(layout: Path, pool: Pool) -> Forecast:
    """What `apply` would do. Nothing is changed."""
    return layouts.forecast(layout, pool.file)


def place_of(file: Path, pool: Pool | None = None) -> Place:
    """The pool that a path is on, and the path in it; with `pool` also a path in that one."""
    return places.of(file) if pool is None else places.within(pool, file)


def stat(place: Place) -> dict[str, Any]:
    """What is there and, of a placed file, where its bytes are."""
    return _native.file_stat(str(place.pool.file), place.name)
