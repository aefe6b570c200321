"""Signatures as data frames: by file, by rank, by program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import polars as pl

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import html
from stripewise.units import counted

TEXT_PARTS = 10_000
"""Parts up to which a trace signature stands in `Signature.ranks`."""

FACTORS: dict[str, pl.DataType | type[pl.DataType]] = {
    "pattern": pl.String,
    "operation": pl.String,
    "spatial": pl.String,
    "dimension": pl.UInt32,
    "repetition": pl.String,
    "size": pl.String,
    "size_class": pl.String,
    "temporal": pl.String,
    "requests": pl.UInt64,
    "reads": pl.UInt64,
    "writes": pl.UInt64,
    "read_bytes": pl.UInt64,
    "written_bytes": pl.UInt64,
    "offset": pl.UInt64,
    "end": pl.UInt64,
    "min_bytes": pl.UInt64,
    "max_bytes": pl.UInt64,
    "parts": pl.UInt64,
    "ratio": pl.Float64,
}
"""The five factors and what they rest on; docs/signature.md explains them. `offset` to `end` is what was touched."""


class Signature:
    """What each process of a trace did with each file."""

    def __init__(self, native: _native.TraceSignature) -> None:
        """Takes a signature as the compiled part makes it: see `Trace.signature`."""
        self.native = native
        """For what the compiled part of the package does with signatures."""

    @cached_property
    def files(self) -> pl.DataFrame:
        """One row a file: path, words, programs, processes, phases, the five factors and what they rest on.

        `made_up`: a log had only counters of the file, and its requests are such as agree with those.
        """
        first = {"path": pl.String, "words": pl.String, "programs": pl.List(pl.String), "processes": pl.UInt32}
        rows = ({**row, "phases": len(row["phases"])} for row in self._files)
        return _frame(
            rows, {**first, "phases": pl.UInt32, "made_up": pl.Boolean, "unknown_offsets": pl.UInt64, **FACTORS}
        )

    @cached_property
    def ranks(self) -> pl.DataFrame:
        """One row a process and file: as of files, with the trace signature.

        `signature` is null where it has more than 10,000 parts: `text` has it all.
        """
        rows = (
            {
                **row,
                "phases": len(row["phases"]),
                "signature": self.native.text(row["file"], row["process"]) if row["parts"] <= TEXT_PARTS else None,
            }
            for row in self.native.processes()
        )
        first = {"path": pl.String, "program": pl.String, "rank": pl.UInt32, "pid": pl.UInt32, "words": pl.String}
        return _frame(rows, {**first, "phases": pl.UInt32, **FACTORS, "signature": pl.String})

    @cached_property
    def programs(self) -> pl.DataFrame:
        """One row a program: its five factors over all files."""
        first = {"program": pl.String, "files": pl.UInt32, "processes": pl.UInt32}
        return _frame(self.native.programs(), {**first, **FACTORS})

    @cached_property
    def phases(self) -> pl.DataFrame:
        """One row a phase of a file: stretches of activity of all its processes between long pauses."""
        rows = (
            {"path": row["path"], "phase": number, **phase}
            for row in self._files
            for number, phase in enumerate(row["phases"])
        )
        columns = {"path": pl.String, "phase": pl.UInt32, "start_s": pl.Float64, "end_s": pl.Float64}
        return _frame(rows, {**columns, "requests": pl.UInt64, "read_bytes": pl.UInt64, "written_bytes": pl.UInt64})

    @cached_property
    def _files(self) -> list[_native.FileSignature]:
        return self.native.files()

    def words(self) -> str:
        """One line of plain words a file."""
        return "\n".join(f"{row['path']}: {row['words']}" for row in self._files)

    def text(self, path: str, rank: int = 0) -> str:
        """The trace signature of a rank's requests to a file, in the notation of docs/signature.md.

        Raises `StripewiseError` where the rank did not read or write the file, or several processes have that rank.
        """
        return self.native.text(*self._one(path, rank))

    def expand(self, path: str, rank: int = 0) -> pl.DataFrame:
        """The requests that this signature expands to, in order: op (`read` or `write`), offset and size in bytes."""
        frame = pl.DataFrame(dict(self.native.expand(*self._one(path, rank))))
        op = pl.when(pl.col("write") == 1).then(pl.lit("write")).otherwise(pl.lit("read")).alias("op")
        return frame.select(op, "offset", "size")

    def check(self) -> int:
        """Compares every request of the trace with what the signatures expand to; how many requests those are.

        Raises `StripewiseError` where one is not the same.
        """
        return self.native.check()

    def _one(self, path: str, rank: int) -> tuple[int, int]:
        file = next((row["file"] for row in self._files if row["path"] == path), None)
        if file is None:
            raise StripewiseError(f"{path} was neither read nor written in this trace; `files` lists what was")
        found = [row["process"] for row in self.native.processes(file) if row["rank"] == rank]
        if len(found) != 1:
            raise StripewiseError(
                f"{path}: {len(found) or 'no'} processes of rank {rank} used it; `ranks` lists them all"
            )
        return file, found[0]

    def __repr__(self) -> str:
        return f"<Signature of {counted(len(self._files), 'file')}>"

    def _repr_html_(self) -> str:
        columns = ["path", "words", "pattern", "processes", "requests", "ratio"]
        return html.shown(f"Signatures of {counted(len(self._files), 'file')}", self.files.select(columns))


def _frame(rows: Iterable[Mapping[str, Any]], schema: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([[row[name] for name in schema] for row in rows], schema=dict(schema), orient="row")
