"""Signatures as `stripewise signature` shows them: files, programs and processes, all of a log or some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stripewise import _native, scale_out
from stripewise._native import StripewiseError
from stripewise.api.trace import Trace
from stripewise.naming import common_pattern
from stripewise.signing import Signed, Wanted, fits, joined
from stripewise.signing import sign as sign_some

if TYPE_CHECKING:
    from stripewise._native import FileSignature, ProgramSignature

__all__ = ["Signed", "SignedAlike", "Wanted", "grouped", "matching", "programs_of", "sign"]


def sign(trace: Trace, wanted: Wanted, progress: Callable[[int, int], object], *, dask: str | None = None) -> Signed:
    """The signatures that are wanted of a trace; or, of its index, by the workers of the Dask scheduler `dask`.

    Raises `StripewiseError` where a check finds a difference.
    """
    if dask is None:
        return joined([sign_some(trace.native, wanted, progress)])
    return joined(scale_out.analysed(trace.path, dask, partial(sign_some, wanted=wanted), progress))


def matching(files: list[FileSignature], patterns: Sequence[str], log: Path) -> list[FileSignature]:
    """The files that a pattern fits, all without one. Raises `StripewiseError` for a pattern that fits none."""
    if not patterns:
        return files
    for pattern in patterns:
        if not any(fits(row["path"], pattern) for row in files):
            known = ", ".join(row["path"] for row in files[:3]) or "none"
            more = ", ..." if len(files) > 3 else ""
            raise StripewiseError(
                f"--file {pattern}: no file of {log} that was read or written has this path; those are {known}{more}"
            )
    return [row for row in files if any(fits(row["path"], pattern) for pattern in patterns)]


def grouped(files: Sequence[FileSignature]) -> list[SignedAlike]:
    """Files that are named alike but for numbers, and of one pattern, together; those that moved most first."""
    alike: dict[tuple[str, str], list[FileSignature]] = {}
    for row in files:
        alike.setdefault((_native.path_pattern(row["path"]), row["pattern"]), []).append(row)
    groups = []
    for rows in alike.values():
        rows.sort(key=lambda row: -_moved(row))
        groups.append(SignedAlike(common_pattern([row["path"] for row in rows]), tuple(rows)))
    return sorted(groups, key=lambda group: (-group.bytes, group.path))


@dataclass(frozen=True)
class SignedAlike:
    """Files that are named and used alike."""

    path: str
    """With `*` for the numbers in which they differ."""
    files: tuple[FileSignature, ...]
    """The one that moved most is the first."""

    @property
    def processes(self) -> int:
        """Of the file that most use."""
        return max(row["processes"] for row in self.files)

    @property
    def requests(self) -> int:
        """To all of them."""
        return sum(row["requests"] for row in self.files)

    @property
    def bytes(self) -> int:
        """Read and written."""
        return sum(map(_moved, self.files))

    @property
    def phases(self) -> int:
        """Of the file that has most."""
        return max(len(row["phases"]) for row in self.files)

    @property
    def ratio(self) -> float:
        """Numbers of the requests to those of all signatures."""
        kept = sum(row["requests"] / row["ratio"] for row in self.files if row["ratio"])
        return self.requests / kept if kept else 1.0

    @property
    def words(self) -> str:
        """How the first of them is used."""
        return self.files[0]["words"] + (f"; {len(self.files):,} such files" if len(self.files) > 1 else "")


def _moved(row: FileSignature) -> int:
    return row["read_bytes"] + row["written_bytes"]


def programs_of(signed: Signed, trace: Trace) -> list[ProgramSignature]:
    """The programs whose processes read or wrote what is signed."""
    return _native.signature_programs(signed.file_programs, trace.programs)
