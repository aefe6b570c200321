"""Signatures as data frames: by file, by rank, by program."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import frames, html
from stripewise.api.frames import Schema
from stripewise.units import counted

if TYPE_CHECKING:
    import polars as pl

TEXT_PARTS = 10_000
"""Parts up to which a trace signature stands in `Signature.ranks`."""

FACTORS: Schema = {
    "pattern": "String",
    "operation": "String",
    "spatial": "String",
    "dimension": "UInt32",
    "repetition": "String",
    "size": "String",
    "size_class": "String",
    "temporal": "String",
    "requests": "UInt64",
    "reads": "UInt64",
    "writes": "UInt64",
    "read_bytes": "UInt64",
    "written_bytes": "UInt64",
    "offset": "UInt64",
    "end": "UInt64",
    "min_bytes": "UInt64",
    "max_bytes": "UInt64",
    "parts": "UInt64",
    "ratio": "Float64",
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
        first = {"path": "String", "words": "String", "programs": "List(String)", "processes": "UInt32"}
        rows = ({**row, "phases": len(row["phases"])} for row in self._files)
        return frames.of_records(
            rows, {**first, "phases": "UInt32", "made_up": "Boolean", "unknown_offsets": "UInt64", **FACTORS}
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
        first = {"path": "String", "program": "String", "rank": "UInt32", "pid": "UInt32", "words": "String"}
        return frames.of_records(rows, {**first, "phases": "UInt32", **FACTORS, "signature": "String"})

    @cached_property
    def programs(self) -> pl.DataFrame:
        """One row a program: its five factors over all files."""
        first = {"program": "String", "files": "UInt32", "processes": "UInt32"}
        return frames.of_records(self.native.programs(), {**first, **FACTORS})

    @cached_property
    def phases(self) -> pl.DataFrame:
        """One row a phase of a file: stretches of activity of all its processes between long pauses."""
        rows = (
            {"path": row["path"], "phase": number, **phase}
            for row in self._files
            for number, phase in enumerate(row["phases"])
        )
        columns = {"path": "String", "phase": "UInt32", "start_s": "Float64", "end_s": "Float64"}
        return frames.of_records(
            rows, {**columns, "requests": "UInt64", "read_bytes": "UInt64", "written_bytes": "UInt64"}
        )

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
        import polars as pl

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
