"""`read`: a trace, or any log as one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import frames, html
from stripewise.api.progress import Progress, told
from stripewise.api.signature import Signature
from stripewise.heading import job_heading
from stripewise.naming import common_pattern
from stripewise.signing import fits
from stripewise.units import about_bytes, counted

if TYPE_CHECKING:
    import polars as pl

SOME = 3
"""Names that a message lists."""
ALIKE = 16
"""Files of a row move bytes that differ by this factor at most."""


def read(log: str | os.PathLike[str], *, progress: Progress = False, files: Sequence[int] | None = None) -> Trace:
    """Reads a trace of `stripewise trace`, the directory of a run that still records, or a log of another tool.

    What a log lacks stands in `about` of the trace. `progress` is True for a bar, or a function that is called with
    bytes read and all bytes. With `files`, numbers of files of a data set, only their requests are read; with none, its
    index. Raises `StripewiseError` with the file, the place in it and the remedy.
    """
    path = Path(log)
    with told(progress, f"reading {path.name}") as callback:
        return Trace(_native.Trace(str(path), callback, files=None if files is None else list(files)), path)


class Trace:
    """The requests of a run: process, file, operation, offset, size, time."""

    def __init__(self, native: _native.Trace, path: Path, part: str = "") -> None:
        """Takes an opened trace: see `read`."""
        self.native = native
        """For what the compiled part of the package does with traces."""
        self.path = path
        self.part = part
        """What of the log this is, in words; empty: all of it."""

    @cached_property
    def about(self) -> _native.TraceAbout:
        """The format, what the log `lacks` (a name and a clause in words each), notes, processes, times."""
        return self.native.about()

    @cached_property
    def files(self) -> pl.DataFrame:
        """One row a file that was read or written, in order of path.

        Sizes in bytes; rates in bytes per second of the time in which a request was in flight; `extent` is the end of
        the furthest byte moved.
        """
        rows = [
            {
                "path": file["path"],
                "ranks": len(file["ranks"]),
                "start_s": file["start_s"],
                "end_s": file["end_s"],
                "extent": file["extent_bytes"],
                **_side("read", file["reads"]),
                **_side("write", file["writes"]),
            }
            for file in self.native.summary()["files"]
            if file["reads"]["requests"] or file["writes"]["requests"]
        ]
        schema: dict[str, str] = {
            "path": "String",
            "ranks": "UInt32",
            "start_s": "Float64",
            "end_s": "Float64",
            "extent": "UInt64",
        }
        for side in ("read", "write"):
            schema |= {f"{side}s": "UInt64", f"{side}_bytes": "UInt64", f"{side}_median_bytes": "UInt64"}
            schema |= {f"{side}_bytes_per_s": "Float64"}
        return frames.of_records(rows, schema)

    def excerpt(self, *, files: Sequence[str] = (), ranks: Sequence[int] = (), apps: Sequence[str] = ()) -> Trace:
        """The requests of some files, ranks and programs alone, as a trace.

        `files` and `apps` are names, ends of paths or patterns with `*`; of each argument one has to fit, and nothing
        stands for everything. Counters that a log has of all ranks together are not those of some: they are left out
        with `ranks`. Raises `StripewiseError` for what fits nothing, with what there is.
        """
        paths, programs = [str(path) for path in self.native.files()], self.programs
        numbers = self._fitting("file", files, paths)
        of_programs = self._fitting("program", apps, programs)
        known = sorted({process["rank"] for process in self.native.processes()})
        for rank in ranks:
            if rank not in known:
                raise StripewiseError(f"{self.path} has no requests of rank {rank}; it has those of {_some(known)}")
        if not (files or ranks or apps):
            return self
        asked = [*(f"files '{name}'" for name in files), *(f"rank {rank}" for rank in ranks)]
        asked += [f"program '{name}'" for name in apps]
        words = ", ".join(asked)
        native = self.native.excerpt(
            os.fspath(self.path),
            f"this is of {words} alone",
            files=numbers,
            ranks=set(ranks) or None,
            programs=of_programs,
        )
        if not native.record_count() and self.native.record_count():
            raise StripewiseError(f"{self.path} has no requests of {words} together: ask for fewer of them")
        return Trace(native, self.path, part=words)

    def _fitting(self, what: str, patterns: Sequence[str], names: list[str]) -> set[int] | None:
        for pattern in patterns:
            if not any(fits(name, pattern) for name in names):
                raise StripewiseError(f"{self.path} has no {what} '{pattern}'; it has {_some(names)}")
        if not patterns:
            return None
        return {number for number, name in enumerate(names) if any(fits(name, pattern) for pattern in patterns)}

    def frame(self) -> pl.DataFrame:
        """One row a record, of one schema whatever the log was.

        Columns: program, rank, pid, tid, file, api, op (text or numbers), offset and size in bytes, start_ns and end_ns
        since the start of the trace, flags.
        """
        from stripewise import tables

        return tables.of_trace(self.native)

    def __len__(self) -> int:
        """Number of records."""
        return self.native.record_count()

    @cached_property
    def job(self) -> _native.AdviseJob:
        """The job: program, user, processes; what it moved, in seconds how long, its share of the run time."""
        return _native.job_facts(self.native)

    @property
    def heading(self) -> list[str]:
        """The job, what it moved and how fast, and its share of the run, in lines of words."""
        return job_heading(self.job)

    @property
    def paths(self) -> list[str]:
        """Paths of the files, those that were only opened too, by their numbers in other tables."""
        return self.native.files()

    @property
    def programs(self) -> list[str]:
        """Names of the programs, by their numbers in other tables."""
        return self.native.programs()

    def summary(self) -> dict[str, Any]:
        """Programs, processes, and each file with its sizes, rates and heat: what `stripewise show --json` prints."""
        return self.native.summary()

    def groups(self, files: Sequence[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
        """The entries of `summary()["files"]` for files that are named alike together, largest first.

        `files` of an entry is how many they are. `path` has `*` for the numbers in which they differ, `pattern`
        for all numbers. With `files`, the entries of single files, those are apart of which one moves more than 16
        times as much as the other, and those that are read from those that are written.
        """
        paths = [shown_path(path) for path in self.native.files()]
        alike: dict[tuple[object, ...], list[int]] = {}
        for number, path in enumerate(paths):
            alike.setdefault((_native.path_pattern(path),), []).append(number)
        if files is not None:
            alike = _used_alike(alike, {file["id"]: file for file in files})
        found = self.native.summaries(list(alike.values()))
        for group, ((pattern, *_), numbers) in zip(found, alike.items(), strict=True):
            group["pattern"] = pattern
            group["path"] = common_pattern([paths[number] for number in numbers])
        return sorted(found, key=lambda group: (-moved(group), group["path"]))

    def save(self, path: str | os.PathLike[str], *, progress: Progress = False) -> None:
        """Writes the trace as a data set of tables, which `read` opens again."""
        with told(progress, f"writing {Path(path).name}") as callback:
            self.native.save(os.fspath(path), callback)

    def write_csv(self, file: IO[Any]) -> None:
        """Writes all records as CSV to an open file."""
        file.flush()
        self.native.write_csv(file.fileno())

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes all records as one table of Parquet."""
        self.native.write_parquet(os.fspath(path))

    def signature(self, *, progress: Progress = False) -> Signature:
        """What each process did with each file: patterns, loops that rebuild its requests, plain words."""
        with told(progress, "signing") as callback:
            return Signature(_native.TraceSignature(self.native, callback))

    def _headline(self) -> str:
        moved = about_bytes(sum(float(self.files[side].sum()) for side in ("read_bytes", "write_bytes")))
        lacks = "".join(f"; {lack['words']}" for lack in self.about["lacks"])
        return f"{self.path.name} ({self.about['format']}): {counted(self.files.height, 'file')}, {moved}{lacks}"

    def __repr__(self) -> str:
        return f"<Trace {self._headline()}>"

    def _repr_html_(self) -> str:
        return html.shown(self._headline(), self.files, self.heading)


def shown_path(path: object) -> str:
    """A path as text: bytes of it that are none are marked."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def moved(file: dict[str, Any]) -> int:
    """Bytes that were read and written, by an entry of a summary."""
    return int(file["reads"]["bytes"]) + int(file["writes"]["bytes"])


def _used_alike(
    alike: dict[tuple[object, ...], list[int]], files: dict[int, dict[str, Any]]
) -> dict[tuple[object, ...], list[int]]:
    """Groups of files parted by their operations and by how much they move."""
    parted: dict[tuple[object, ...], list[int]] = {}
    for name, numbers in alike.items():
        largest: dict[tuple[bool, ...], int] = {}
        for number in sorted(numbers, key=lambda number: -moved(files[number])):
            ops = tuple(files[number][op]["requests"] > 0 for op in ("reads", "writes"))
            if moved(files[number]) * ALIKE < largest.setdefault(ops, moved(files[number])):
                largest[ops] = moved(files[number])
            parted.setdefault((*name, ops, largest[ops]), []).append(number)
    return parted


def _some(names: Sequence[object]) -> str:
    """The first of some names, and how many there are."""
    few = ", ".join(map(str, names[:SOME])) or "none"
    return few if len(names) <= SOME else f"{few} and {len(names) - SOME:,} more"


def _side(name: str, of: dict[str, int | float]) -> dict[str, int | float]:
    return {
        f"{name}s": of["requests"],
        f"{name}_bytes": of["bytes"],
        f"{name}_median_bytes": of["median_bytes"],
        f"{name}_bytes_per_s": of["rate_bytes_per_s"],
    }
