"""The papers' workloads, as steps for the simulator and as command lines of `stripewise bench`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from stripewise import _native
from stripewise.units import about_bytes, exact_bytes

Op = Literal["read", "write", "both"]
"""`both`: all writes, then all reads."""
Pattern = Literal["random", "sequential", "strided"]
Offsets = npt.NDArray[np.uint64]

READ, WRITE, BARRIER = 0, 1, 2
KINDS = {"read": READ, "write": WRITE}


class Workload(Protocol):
    """What the processes of an experiment do."""

    @property
    def processes(self) -> int:
        """How many."""
        ...

    @property
    def bytes(self) -> int:
        """Read or written, over all processes."""
        ...

    def text(self) -> str:
        """In one line."""
        ...

    def steps(self, op: Op, seed: int) -> _native.Steps:
        """For the simulator; random choices by `seed`."""
        ...

    def arguments(self) -> list[str]:
        """Of `stripewise bench`: the name of the workload, then options."""
        ...

    def shrunk(self, share: float) -> Workload:
        """The same with so much of the bytes, one request or loop a process at least."""
        ...


class Steps:
    """Collects the steps of processes, in any order of processes."""

    def __init__(self) -> None:
        """Empty."""
        self._columns: dict[str, list[npt.NDArray[np.generic]]] = {
            name: [] for name in ("process", "file", "offset", "size", "kind", "think_s")
        }

    def requests(
        self,
        process: int,
        op: Op,
        offsets: npt.ArrayLike,
        sizes: npt.ArrayLike,
        *,
        file: int = 0,
    ) -> None:
        """Requests of one process to one file, one after the other; `sizes` is one for all or one for each."""
        offset = np.asarray(offsets, dtype=np.uint64)
        self._add(process, file, offset, np.broadcast_to(np.asarray(sizes, dtype=np.uint64), offset.shape), op)

    def barrier(self, process: int) -> None:
        """The process waits for all others."""
        self._add(process, 0, np.zeros(1, np.uint64), np.zeros(1, np.uint64), None)

    def _add(self, process: int, file: int, offset: Offsets, size: Offsets, op: Op | None) -> None:
        count = len(offset)
        kind = BARRIER if op is None else KINDS[op]
        columns = self._columns
        columns["process"].append(np.full(count, process, np.uint32))
        columns["file"].append(np.full(count, file, np.uint32))
        columns["offset"].append(offset)
        columns["size"].append(size)
        columns["kind"].append(np.full(count, kind, np.uint8))
        columns["think_s"].append(np.zeros(count))

    def native(self) -> _native.Steps:
        """All of them, for the simulator."""
        joined = {name: np.ascontiguousarray(np.concatenate(parts)) for name, parts in self._columns.items()}
        return joined  # type: ignore[return-value]


@dataclass(frozen=True)
class Part:
    """A part of a file that is asked for in requests of one size."""

    length: int
    request_bytes: int


@dataclass(frozen=True)
class Ior:
    """IOR: each process has its own 1/p of one file (of each part of it) and issues one request at a time."""

    processes: int
    parts: tuple[Part, ...]
    pattern: Pattern = "random"

    @classmethod
    def uniform(cls, processes: int, request_bytes: int, file_bytes: int, pattern: Pattern = "random") -> Ior:
        """One part, one request size."""
        return cls(processes, (Part(file_bytes, request_bytes),), pattern)

    @property
    def bytes(self) -> int:
        """Each process asks for whole requests only."""
        return sum(
            part.length // part.request_bytes // self.processes * self.processes * part.request_bytes
            for part in self.parts
        )

    def text(self) -> str:
        """`16 processes, 512KiB random in 16GiB`."""
        parts = ", ".join(
            f"{exact_bytes(part.request_bytes)} {self.pattern} in {exact_bytes(part.length)}" for part in self.parts
        )
        return f"{self.processes} processes, {parts}"

    def steps(self, op: Op, seed: int) -> _native.Steps:
        """Part after part, as `stripewise bench` does."""
        steps = Steps()
        draw = np.random.default_rng(seed)
        for process in range(self.processes):
            start = 0
            for part in self.parts:
                own = part.length // part.request_bytes // self.processes
                blocks = np.arange(own)
                if self.pattern == "strided":
                    blocks = blocks * self.processes + process
                else:
                    blocks = (draw.permutation(own) if self.pattern == "random" else blocks) + process * own
                steps.requests(process, op, start + blocks * part.request_bytes, part.request_bytes)
                start += part.length
        return steps.native()

    def arguments(self) -> list[str]:
        """Options of `stripewise-bench`."""
        common = ["ior", "--processes", str(self.processes), "--pattern", self.pattern]
        if len(self.parts) == 1:
            (part,) = self.parts
            sizes = ["--request-size", exact_bytes(part.request_bytes), "--file-size", exact_bytes(part.length)]
            return [*common, *sizes]
        start = 0
        regions = []
        for part in self.parts:
            regions += ["--region", f"{start}:{part.length}:{part.request_bytes}:1"]
            start += part.length
        return [*common, *regions]

    def shrunk(self, share: float) -> Ior:
        """Parts are cut to whole requests of every process."""
        if share >= 1:
            return self
        parts = []
        for part in self.parts:
            least = self.processes * part.request_bytes
            parts.append(replace(part, length=max(1, int(part.length * share) // least) * least))
        return replace(self, parts=tuple(parts))


@dataclass(frozen=True)
class Loop:
    """Each process repeats a sequence of request sizes through its own part of one file.

    Process i begins i/p of a loop further on and does what it left out at its end, as processes that nothing keeps in
    step do: in step, all of them would ask the same server at the same time, and no layout could help.
    """

    processes: int
    sizes: tuple[int, ...]
    loops: int
    name: str
    """Of the workload in `stripewise bench`."""
    strided: bool = False
    """Loop k of process i is loop k*p + i of the file, else each process has its own part."""
    shuffled: bool = False
    """Each loop in a random order of its own (only simulated)."""

    @property
    def loop_bytes(self) -> int:
        """Of one pass through the sequence."""
        return sum(self.sizes)

    @property
    def bytes(self) -> int:
        """Over all processes."""
        return self.processes * self.loops * self.loop_bytes

    def text(self) -> str:
        """Runs of equal sizes are counted: `192 x 1KiB, 1 x 64KiB`."""
        runs: list[tuple[int, int]] = []
        for size in self.sizes:
            if runs and runs[-1][1] == size:
                runs[-1] = (runs[-1][0] + 1, size)
            else:
                runs.append((1, size))
        sequence = ", ".join(f"{count} x {exact_bytes(size)}" for count, size in runs)
        order = ", in random order" if self.shuffled else ""
        return f"{self.processes} processes, {self.loops} loops each of {sequence}{order}"

    def steps(self, op: Op, seed: int) -> _native.Steps:
        """In order of offset from the process's place in the first loop on."""
        steps = Steps()
        draw = np.random.default_rng(seed)
        sizes = np.asarray(self.sizes, dtype=np.uint64)
        within = np.concatenate([np.zeros(1, np.uint64), np.cumsum(sizes)[:-1]])
        numbers = np.arange(self.loops, dtype=np.uint64)
        for process in range(self.processes):
            places = numbers * self.processes + process if self.strided else process * self.loops + numbers
            order = np.tile(np.arange(len(sizes)), (self.loops, 1))
            if self.shuffled:
                order = draw.permuted(order, axis=1)
            offsets = (places[:, None] * self.loop_bytes + within[order]).astype(np.uint64).ravel()
            first = process * len(self.sizes) // self.processes
            steps.requests(process, op, np.roll(offsets, -first), np.roll(sizes[order].ravel(), -first))
        return steps.native()

    def arguments(self) -> list[str]:
        """Options of `stripewise bench`."""
        placing = "strided" if self.strided else "segmented"
        loop = ",".join(f"{size}B" for size in self.sizes)
        options = ["--processes", str(self.processes), "--loops", str(self.loops), "--placing", placing]
        return [self.name, *options, "--loop", loop, "--stagger"]

    def shrunk(self, share: float) -> Loop:
        """Fewer loops."""
        return replace(self, loops=max(1, int(self.loops * min(share, 1.0))))


@dataclass(frozen=True)
class Collective:
    """A program whose processes write and read whole arrays together, by two-phase collective calls (BTIO).

    In a call some processes, the aggregators, each move one contiguous share of the array, a buffer at a time; the
    exchange between processes takes no time here. All meet at the end of a call.
    """

    processes: int
    aggregators: int
    array_bytes: int
    """Of one call."""
    calls: int
    buffer_bytes: int

    @property
    def bytes(self) -> int:
        """Written; as many are read."""
        return self.array_bytes * self.calls

    def text(self) -> str:
        """`16 processes, 20 collective calls of 40.5 MiB, 8 aggregators with buffers of 4MiB`."""
        return (
            f"{self.processes} processes, {self.calls} collective calls of {about_bytes(self.array_bytes)}, "
            f"{self.aggregators} aggregators with buffers of {exact_bytes(self.buffer_bytes)}"
        )

    def steps(self, op: Op, seed: int) -> _native.Steps:
        """Nothing here is random."""
        steps = Steps()
        for kind in ("write", "read") if op == "both" else (op,):
            for call in range(self.calls):
                for rank in range(self.aggregators):
                    first = self.array_bytes * rank // self.aggregators
                    end = self.array_bytes * (rank + 1) // self.aggregators
                    offsets = np.arange(first, end, self.buffer_bytes)
                    sizes = np.minimum(self.buffer_bytes, end - offsets)
                    steps.requests(rank, kind, call * self.array_bytes + offsets, sizes)
                for rank in range(self.processes):
                    steps.barrier(rank)
        return steps.native()

    def arguments(self) -> list[str]:
        """Raises: the rows that have it are simulated only."""
        raise _native.StripewiseError(f"{self.text()}: simulated only; `stripewise bench btio` runs the real pattern")

    def shrunk(self, share: float) -> Collective:
        """Fewer calls."""
        return replace(self, calls=max(1, int(self.calls * min(share, 1.0))))
