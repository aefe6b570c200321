"""What a run did, from its trace: bytes, and the time in which requests were in flight.

Time of I/O is the union of the requests' intervals: a moment counts once, however many requests are in flight in it.
So it is what the program waits for, it does not grow with the number of processes, and computing is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stripewise import _native

Columns = dict[str, npt.NDArray[np.uint64]]

_READ = next(number for number, name in _native.Trace.names()["op"].items() if name == "read")
_WRITE = next(number for number, name in _native.Trace.names()["op"].items() if name == "write")


@dataclass(frozen=True)
class Figures:
    """Requests of one kind."""

    requests: int
    bytes: int
    busy_s: float
    """Time in which at least one of them was in flight, in seconds."""

    @property
    def bytes_per_s(self) -> float:
        """Throughput while any of them was in flight; 0 without requests."""
        return self.bytes / self.busy_s if self.busy_s > 0 else 0.0


@dataclass(frozen=True)
class Split:
    """Reads, writes and both."""

    read: Figures
    write: Figures
    both: Figures


class Requests:
    """The requests of a trace to files below a directory."""

    def __init__(self, trace: Path, below: Path) -> None:
        """Reads `trace`; `below` is the mount of the pool, an absolute path."""
        native = _native.Trace(str(trace))
        columns: Columns = native.columns(requests_only=True)
        self.names: dict[int, str] = {}
        """Path relative to `below` of each file, by its number in the trace."""
        for number, path in enumerate(native.files()):
            absolute = Path(path)
            if absolute.is_relative_to(below):
                self.names[number] = str(absolute.relative_to(below))
        inside = np.isin(columns["file"], np.array(list(self.names), dtype=np.uint32))
        self._columns = {name: column[inside] for name, column in columns.items()}

    def total(self) -> Split:
        """All of them."""
        return _split(self._columns)

    def of_regions(self, name: str, offsets: list[int]) -> list[Split]:
        """Those of file `name`, by the region that their first byte is in; `offsets` are where the regions begin."""
        numbers = [number for number, path in self.names.items() if path == name]
        own = np.isin(self._columns["file"], np.array(numbers, dtype=np.uint32))
        columns = {key: column[own] for key, column in self._columns.items()}
        region = np.searchsorted(np.array(offsets, dtype=np.uint64), columns["offset"], side="right") - 1
        return [
            _split({key: column[region == index] for key, column in columns.items()}) for index in range(len(offsets))
        ]


def _split(columns: Columns) -> Split:
    read, write = columns["op"] == _READ, columns["op"] == _WRITE
    return Split(_figures(columns, read), _figures(columns, write), _figures(columns, read | write))


def _figures(columns: Columns, chosen: npt.NDArray[np.bool_]) -> Figures:
    return Figures(
        requests=int(np.count_nonzero(chosen)),
        bytes=int(columns["size"][chosen].sum()),
        busy_s=union_s(columns["start_ns"][chosen], columns["end_ns"][chosen]),
    )


def union_s(start_ns: npt.NDArray[np.uint64], end_ns: npt.NDArray[np.uint64]) -> float:
    """Length of the union of intervals in seconds. O(n log n)."""
    if len(start_ns) == 0:
        return 0.0
    order = np.argsort(start_ns, kind="stable")
    start, end = start_ns[order].astype(np.int64), end_ns[order].astype(np.int64)
    covered = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], covered[:-1]])
    return float(np.maximum(0, covered - np.maximum(start, before)).sum()) * 1e-9
