"""Layouts, and what a log shows of a program's collective I/O, as hints of MPI-IO: a file for ROMIO and for Cray's MPI.

The file is ROMIO's (`ROMIO_HINTS` names it): a name and a value a line, for every file that the program opens. Cray's
library takes hints by pattern of path from a variable, `MPICH_MPIIO_HINTS`: a comment of the file has its value.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stripewise import _native
from stripewise.exporters.exporter import KIB64, META, Region, Source, mean_width, rounded
from stripewise.exporters.shell import comment

NAME = "hints"
"""As `--to` takes it."""

TWO_PHASE = 16 << 20
"""ROMIO's default of `cb_buffer_size`."""

_RESERVED = set(":,=#'\"$`;\\ \t\n\r")
"""What parts the patterns, names and values of either form."""


@dataclass(frozen=True)
class FileHints:
    """The hints for one file, or for those of a pattern."""

    path: str
    """A pattern of paths, as Cray's library takes it."""
    hints: tuple[tuple[str, str], ...]
    """Name and value, each name once."""

    @property
    def is_plain(self) -> bool:
        """Whether a pattern can be told to Cray's library: it has no way to quote."""
        return self.path.isprintable() and not set(self.path) & _RESERVED


@dataclass(frozen=True)
class HintsFile:
    """Hints for the files of a program."""

    pool: str
    files: tuple[FileHints, ...]
    """The first are those that ROMIO is given."""

    @property
    def hints(self) -> dict[str, str]:
        """Those for every file: the first file's, and what only others have."""
        merged: dict[str, str] = {}
        for file in self.files:
            for name, value in file.hints:
                merged.setdefault(name, value)
        return merged

    @property
    def cray(self) -> str:
        """The value of `MPICH_MPIIO_HINTS`."""
        told = (file for file in self.files if file.is_plain)
        # `cb_config_list` has its own colon, and Cray's library takes writers from any node without it.
        return ",".join(
            ":".join([file.path, *(f"{name}={value}" for name, value in file.hints if not set(value) & _RESERVED)])
            for file in told
        )

    def text(self) -> str:
        """The file that `ROMIO_HINTS` names."""
        lines = [
            comment(f"Hints of MPI-IO for '{self.pool}', by stripewise export."),
            "# ROMIO (MPICH, Intel MPI, Open MPI with --mca io romio): export ROMIO_HINTS=<this file>",
        ]
        if self.cray:
            lines.append(f"# Cray MPICH: export MPICH_MPIIO_HINTS={shlex.quote(self.cray)}")
        hints = self.hints
        if "striping_factor" in hints:
            lines.append("# Stripes are set when a file is made: one that is there keeps its own.")
        if "cb_nodes" in hints and "cb_config_list" not in hints:
            lines.append(
                "# ROMIO takes one rank a node: on fewer nodes than cb_nodes set cb_config_list *:<ranks a node> too."
            )
        different = [file for file in self.files if dict(file.hints).items() - hints.items()]
        if different:
            lines.append(comment(f"ROMIO has one value for all files: {len(different)} files were to have others."))
        lines += [f"{name} {value}" for name, value in hints.items()]
        return "\n".join(lines) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {
            "to": NAME,
            "pool": self.pool,
            "hints": self.hints,
            "cray": self.cray,
            "files": [{"path": file.path, "hints": dict(file.hints)} for file in self.files],
        }


def of_layouts(
    pool: str, sources: Sequence[Source], root: str = "", found: Sequence[_native.FileHints] = ()
) -> HintsFile:
    """Hints for the files of layouts below `root`, and those that were `found` in a log (`io_hints`).

    A layout says the stripes; of one file both, and what is not told of its stripes is the log's. Raises
    `StripewiseError` where there are none.
    """
    files: dict[str, dict[str, str]] = {}
    for source in sources:
        stripes = _stripes(source)
        if stripes:
            files[posixpath.join(root, source.pattern) if root else source.pattern] = stripes
    for file in found:
        own = next((files[pattern] for pattern in files if _is_of(file["path"], pattern)), None)
        if own is None:
            own = files.setdefault(file["path"], {})
        for name, value in file["hints"]:
            own.setdefault(name, value)
    if not files:
        raise _native.StripewiseError("there are no hints to give: the layout names no file on servers")
    return HintsFile(pool, tuple(FileHints(path, tuple(hints.items())) for path, hints in files.items()))


def _is_of(path: str, pattern: str) -> bool:
    names = path.strip("/").split("/")
    pattern = pattern.lstrip("/")
    return any(_native.pattern_matches(pattern, "/".join(names[at:])) for at in range(len(names)))


def _stripes(source: Source) -> dict[str, str]:
    """Of the region that has most of a long file, the last on servers: as many stripes, as wide."""
    region: Region | None = next((region for region in reversed(source.regions) if region.tiers), None)
    if region is None:
        return {}
    stripes = [stripe for stripe in region.stripes if stripe[0] != META]
    unit = rounded(mean_width(stripes), KIB64)
    return {
        "striping_factor": str(len(stripes)),
        "striping_unit": str(unit),
        "cb_nodes": str(len(stripes)),
        "cb_buffer_size": str(max(-(-TWO_PHASE // unit), 1) * unit),
    }
