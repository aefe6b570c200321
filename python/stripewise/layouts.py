"""Layout files: what `plan` writes, people read and edit, and `apply` takes."""

from __future__ import annotations

from pathlib import Path

from stripewise import _native


def read(path: Path) -> _native.LayoutDocument:
    """Reads a layout file without a pool: servers stay as they are named.

    Raises `StripewiseError` that names the line of a mistake.
    """
    return _native.layout_read(str(path))


def check(path: Path, pool_file: Path) -> _native.LayoutDocument:
    """Reads a layout file for a pool: every server that it names must be one of the pool's."""
    return _native.layout_check(str(path), str(pool_file))
