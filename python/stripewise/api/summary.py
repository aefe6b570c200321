"""What a file is that people name, and what a trace tells in sums."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stripewise import layouts, scale_out, summing
from stripewise._native import StripewiseError
from stripewise.api.trace import Trace, moved

if TYPE_CHECKING:
    import polars as pl


class Kind(Enum):
    """What `stripewise show` can show."""

    TRACE = "trace"
    LAYOUT = "layout file"
    POOL = "pool file"


def kind_of(path: Path) -> Kind:
    """What a file is: a trace or log, a layout file or a pool file. One with a mistake is what it looks most like.

    Raises `StripewiseError` for what is none of them.
    """
    if path.is_dir():
        return Kind.POOL if (path / "pool.toml").is_file() else Kind.TRACE
    if path.exists() and not path.is_file():
        # Opening a FIFO or a device can wait for ever, and it cannot be looked at twice.
        raise StripewiseError(f"cannot show {path}: not a regular file; write it to a file first")
    with path.open("rb") as file:
        head = file.read(8)
        if head == b"STRPWISE":
            return Kind.TRACE
        rest = file.read(16 << 20)
    try:
        document = tomllib.loads((head + rest).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # Each reader names the mistake in its own format: a broken TOML has a section, a broken trace has none.
        return Kind.POOL if b"[[tier]]" in head + rest else Kind.LAYOUT if b"[[file" in head + rest else Kind.TRACE
    if not document:
        raise StripewiseError(f"{path} is empty: neither a trace nor a layout file nor a pool file")
    return Kind.POOL if "tier" in document else Kind.LAYOUT


def summary_by_workers(trace: Trace, address: str, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """The summary of a data set, of which `trace` is the index, by the workers of the Dask scheduler at `address`."""
    return summing.joined(trace.native, scale_out.analysed(trace.path, address, summing.summed, progress))


def largest_first(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files of a summary in order of bytes moved."""
    return sorted(files, key=lambda file: (-moved(file), file["path"]))


def layout_frame(path: Path) -> pl.DataFrame:
    """The regions of a layout file: one row a stripe."""
    from stripewise import tables  # polars takes longer to load than all the rest

    return tables.of_layout(layouts.read(path))
