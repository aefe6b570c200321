"""Signatures as the command and its workers make them: of any files of a trace, and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from stripewise import _native
from stripewise.naming import common_pattern


@dataclass(frozen=True)
class Wanted:
    """What is asked of signatures beyond a row a file."""

    processes: bool = False
    """A row for each process, with its trace signature."""
    patterns: tuple[str, ...] = ()
    """Only processes of files that one of these fits; all where there is none."""
    ranks: tuple[int, ...] = ()
    """Only processes of these ranks; all where there is none."""
    parts: int = 0
    """Parts up to which a trace signature is given as it is."""
    cut: bool = False
    """What has more parts is cut, else left out."""
    check: bool = False
    """Compare every request with what the signatures expand to."""


@dataclass
class Signed:
    """The signatures of some files, in order of file."""

    files: list[_native.FileSignature] = field(default_factory=list)
    file_programs: list[str] = field(default_factory=list)
    """For each of `files` what `_native.signature_programs` takes."""
    processes: list[tuple[_native.ProcessSignature, str | None]] = field(default_factory=list)
    """With the trace signature."""
    checked: int = 0
    """Requests that were compared."""


def sign(trace: _native.Trace, wanted: Wanted, progress: Callable[[int, int], object] | None = None) -> Signed:
    """Signs every file that the trace has requests of; `progress` is called with records done and all records.

    Raises `StripewiseError` where a check finds a difference.
    """
    signature = _native.TraceSignature(trace, progress)
    signed = Signed(signature.files(), signature.file_programs())
    for file in signed.files if wanted.processes else ():
        if wanted.patterns and not any(fits(file["path"], pattern) for pattern in wanted.patterns):
            continue
        for row in signature.processes(file["file"]):
            if not wanted.ranks or row["rank"] in wanted.ranks:
                is_whole = row["parts"] <= wanted.parts
                parts = None if is_whole else wanted.parts
                text = signature.text(row["file"], row["process"], parts) if is_whole or wanted.cut else None
                signed.processes.append((row, text))
    if wanted.check:
        signed.checked = signature.check(progress)
    return signed


def joined(signed: Iterable[Signed]) -> Signed:
    """All of them as one, whatever files each has and in whatever order they come."""
    all_of_them = Signed()
    pairs: list[tuple[_native.FileSignature, str]] = []
    for some in signed:
        pairs += zip(some.files, some.file_programs, strict=True)
        all_of_them.processes += some.processes
        all_of_them.checked += some.checked
    pairs.sort(key=lambda pair: pair[0]["file"])
    all_of_them.files = [file for file, _ in pairs]
    all_of_them.file_programs = [programs for _, programs in pairs]
    all_of_them.processes.sort(key=lambda pair: (pair[0]["file"], pair[0]["process"]))
    return all_of_them


def fits(path: str, pattern: str) -> bool:
    """Whether `--file` means this file: its path, the end of it, or a pattern with * of one or the other."""
    ways = (pattern, f"*/{pattern}")
    return path == pattern or path.endswith(f"/{pattern}") or any(fnmatchcase(path, way) for way in ways)


def grouped(files: Iterable[_native.FileSignature]) -> list[SignedAlike]:
    """Files that are named alike but for numbers, and of one pattern, together; those that moved most first."""
    alike: dict[tuple[str, str], list[_native.FileSignature]] = {}
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
    files: tuple[_native.FileSignature, ...]
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


def _moved(row: _native.FileSignature) -> int:
    return row["read_bytes"] + row["written_bytes"]
