"""Signatures as `stripewise signature` shows them: files, programs and processes, all of a log or some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stripewise import _native, scale_out
from stripewise._native import StripewiseError
from stripewise.api.trace import Trace
from stripewise.signing import Signed, SignedAlike, Wanted, fits, grouped, joined
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


def programs_of(signed: Signed, trace: Trace) -> list[ProgramSignature]:
    """The programs whose processes read or wrote what is signed."""
    return _native.signature_programs(signed.file_programs, trace.programs)
