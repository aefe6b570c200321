"""What a native layout costs beside the layout that it was made from, in the cost model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stripewise import _native
from stripewise.exporters.exporter import META, Hashed, Region, Rounds, Source, tier_of

if TYPE_CHECKING:
    # Where it is used it is loaded: every command loads this module, and numpy takes longer than all the rest.
    import numpy as np

MOST_REQUESTS = 20_000
"""Requests of the files of a pattern that are priced; of more an even sample, as many of each file."""

MOST_FILES = 64
"""Files of a pattern whose requests are priced."""

STAND_IN_PROCESSES = 16.0
STAND_IN_REQUESTS = 96
"""Of each region, each size and each operation."""

STAND_IN = (
    f"no trace: priced with {STAND_IN_PROCESSES:.0f} processes that read and write each region at random places, in "
    "requests as long as its round and a quarter of it"
)
OF_TRACE = "priced with the requests of the trace"


@dataclass(frozen=True)
class Workload:
    """Requests for one layout of a layout file."""

    steps: _native.Steps
    processes: float
    files: int
    """Files that the requests are of, all with the one layout."""

    @property
    def extent_bytes(self) -> int:
        """First byte after all requests."""
        import numpy as np

        ends = self.steps["offset"].astype(np.float64) + self.steps["size"]
        return int(ends.max()) if len(ends) else 0


@dataclass(frozen=True)
class Tiers:
    """The tiers that a layout was made for."""

    devices: tuple[_native.Devices, ...]
    room_bytes: Mapping[str, int]
    """What all servers of a tier may hold together; no limit for a tier that is not in it."""


class Prices:
    """Prices layouts on a cluster; `workloads` are the trace's, by pattern of the layout file."""

    def __init__(self, tiers: Tiers, workloads: Mapping[str, Workload] | None = None, label: str = "") -> None:
        """For the tiers of a cluster or a pool (`of_cluster`); `label` is what kind of servers they are."""
        self._workloads = workloads
        self._label = label
        self._room_bytes = tiers.room_bytes
        self._cluster = list(tiers.devices)
        self._servers: dict[str, int] = {}
        for tier in tiers.devices:
            for place in range(tier["servers"]):
                self._servers[f"{tier['name']}.{place}"] = len(self._servers)
        # The metadata tier has no profile of its own: it is taken for one more server of the fastest tier.
        fastest = min(self._cluster, key=lambda tier: sum(tier["read"]) + sum(tier["write"]))
        self._servers[META] = len(self._servers)
        self._cluster.append({**fastest, "name": META, "servers": 1})

    @property
    def is_measured(self) -> bool:
        """Whether the requests are a program's: only then a price is a reason to take another way."""
        return self._workloads is not None

    def has_room(self, source: Source, placed: Rounds | Hashed) -> bool:
        """Whether every tier holds what the trace's files would have on it, were they alone."""
        workload = (self._workloads or {}).get(source.pattern)
        if workload is None:
            return True
        held = bytes_by_tier(placed, workload.extent_bytes)
        return all(count * workload.files <= self._room_bytes.get(tier, count * workload.files) for tier, count in held)

    @property
    def workload(self) -> str:
        """What is priced, in words."""
        words = STAND_IN if self._workloads is None else OF_TRACE
        return f"{words}, on {self._label}" if self._label else words

    def seconds(self, source: Source, placed: Rounds | Hashed) -> float | None:
        """Mean seconds of a request of the layout's files; `None` where the trace has none.

        Raises `StripewiseError` for a server that the cluster does not have.
        """
        workload = stand_in(source) if self._workloads is None else self._workloads.get(source.pattern)
        if workload is None:
            return None
        at: _native.Regions | _native.HashedObjects
        if isinstance(placed, Hashed):
            at = {
                "unit_bytes": placed.unit_bytes,
                "count": placed.count,
                "object_bytes": placed.object_bytes,
                "servers": [self._server(server) for server in placed.servers],
            }
        else:
            at = [(offset, [(self._server(s), width) for s, width in stripes]) for offset, stripes in placed.regions]
        return _native.price_native(self._cluster, [at] * workload.files, workload.steps, workload.processes)

    def _server(self, name: str) -> int:
        if name not in self._servers:
            known = ", ".join(f"{tier['name']} ({tier['servers']})" for tier in self._cluster[:-1])
            raise _native.StripewiseError(
                f"the layout names server {name}; the tiers are {known}: price it on the pool that it was made for"
            )
        return self._servers[name]


def of_cluster(cluster: _native.ClusterInfo) -> Tiers:
    """The tiers of a cluster file, or of a pool file in its place (`cluster_load`)."""
    devices: list[_native.Devices] = [
        {
            "name": tier["name"],
            "servers": tier["servers"],
            "read": _operation(tier["read"]),
            "write": _operation(tier["write"]),
            "network_s_per_byte": tier["network_s_per_byte"],
        }
        for tier in cluster["tiers"]
    ]
    limited = ((tier["name"], tier["capacity_bytes"], tier["servers"]) for tier in cluster["tiers"])
    return Tiers(tuple(devices), {name: limit * servers for name, limit, servers in limited if limit is not None})


def bytes_by_tier(placed: Rounds | Hashed, extent_bytes: int) -> list[tuple[str, float]]:
    """What a file of `extent_bytes` has on each tier, to within a round."""
    if isinstance(placed, Hashed):
        return [(tier_of(placed.servers[0]), float(extent_bytes))]
    held: dict[str, float] = {}
    ends = [offset for offset, _ in placed.regions[1:]] + [extent_bytes]
    for (offset, stripes), end in zip(placed.regions, ends, strict=True):
        length = max(min(end, extent_bytes) - offset, 0)
        round_bytes = sum(width for _, width in stripes)
        for server, width in stripes:
            tier = META if server == META else tier_of(server)
            held[tier] = held.get(tier, 0.0) + length * width / round_bytes
    return list(held.items())


def stand_in(source: Source) -> Workload:
    """What is priced without a trace: see `STAND_IN`. The same every time."""
    import numpy as np

    random = np.random.default_rng(1)
    offsets, sizes, kinds = [], [], []
    for region in source.regions:
        for size, start, end in _stand_in_ranges(region):
            places = (end - start) // size
            chosen = random.integers(0, places, 2 * STAND_IN_REQUESTS, dtype=np.uint64)
            offsets.append(np.uint64(start) + chosen * np.uint64(size))
            sizes.append(np.full(len(chosen), size, np.uint64))
            kinds.append(np.arange(len(chosen)) % 2)
    return Workload(
        _steps(np.concatenate(offsets), np.concatenate(sizes), np.concatenate(kinds)), STAND_IN_PROCESSES, 1
    )


def _stand_in_ranges(region: Region) -> list[tuple[int, int, int]]:
    """Sizes of requests, and where in the region they go: an end that is open is 64 rounds on."""
    round_bytes = min(sum(width for _, width in region.stripes), 1 << 30)
    end = min(region.start + 64 * round_bytes, (1 << 63) - 1) if region.end is None else region.end
    length = max(end - region.start, 1)
    sizes = min(round_bytes, length), min(max(round_bytes // 4, 1), length)
    return [(size, region.start, region.start + length) for size in sizes]


Samples = Mapping[int, Mapping[str, "np.ndarray"]]
"""By number of the file, columns as `_native.Trace.sample` gives them; files without requests are not there."""


def sampled(trace: _native.Trace, files: Mapping[int, int]) -> Samples:
    """Evenly chosen requests of each file, at most the number in `files`; files without requests are left out."""
    samples = {file: trace.sample(file, most) for file, most in files.items()}
    return {file: sample for file, sample in samples.items() if len(sample["offset"])}


def of_trace(
    trace: _native.Trace,
    root: str,
    patterns: Sequence[str],
    *,
    in_flight: float | None = None,
    draw: Callable[[Mapping[int, int]], Samples] | None = None,
) -> dict[str, Workload]:
    """The requests of the trace's files below `root`, by the first pattern that matches. O(records).

    `in_flight` is the number of requests in flight, where it is known: else each pattern's own. `draw` is `sampled` of
    the trace where others have its requests.
    """
    import numpy as np

    members: dict[str, list[int]] = {pattern: [] for pattern in patterns}
    for number, path in enumerate(map(str, trace.files())):
        relative = _below(path, root)
        match = relative and next((p for p in patterns if _native.pattern_matches(p, relative)), None)
        if match and len(members[match]) < MOST_FILES:
            members[match].append(number)
    wanted = {file: MOST_REQUESTS // len(files) for files in members.values() for file in files}
    samples = sampled(trace, wanted) if draw is None else draw(wanted)
    write = next(number for number, name in trace.names()["op"].items() if name == "write")
    workloads = {}
    for pattern, files in members.items():
        of_files = [samples[file] for file in files if file in samples]
        if not of_files:
            continue
        columns = {name: np.concatenate([of[name] for of in of_files]) for name in ("offset", "size", "op")}
        steps = _steps(columns["offset"], columns["size"], (columns["op"] == write).astype(np.uint8))
        steps["file"] = np.repeat(np.arange(len(of_files), dtype=np.uint32), [len(of["offset"]) for of in of_files])
        processes = trace.in_flight(files) if in_flight is None else in_flight
        workloads[pattern] = Workload(steps, max(processes, 1.0), len(of_files))
    if not workloads:
        raise _native.StripewiseError(
            f"the trace has no read or write of a file of the layout below {root or 'its own directory'}; "
            "stripewise export names that directory with --trace-root"
        )
    return workloads


def _below(path: str, root: str) -> str | None:
    """A path of a log below a root, as planners name it.

    Logs have `..`, and paths relative to a directory that they do not name: those are below `/`, and below the relative
    root that advice gives them. `None` for what is not below, or is no text: a layout cannot name it.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return None
    names = _lexical(path)
    above = _lexical(root)
    is_inside = path.startswith("/") == root.startswith("/") or root == "/"
    return (
        "/".join(names[len(above) :])
        if is_inside and names[: len(above)] == above and len(names) > len(above)
        else None
    )


def _lexical(path: str) -> list[str]:
    """The names of a path without `.` and `..`: a parent of the first is the first's own."""
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            names[-1:] = []
        elif name not in ("", "."):
            names.append(name)
    return names


def _steps(offset: np.ndarray, size: np.ndarray, kind: np.ndarray) -> _native.Steps:
    import numpy as np

    rows = len(offset)
    return {
        "process": np.zeros(rows, np.uint32),
        "file": np.zeros(rows, np.uint32),
        "offset": offset.astype(np.uint64),
        "size": size.astype(np.uint64),
        "kind": kind.astype(np.uint8),
        "think_s": np.zeros(rows, np.float64),
    }


def _operation(profile: _native.OpProfile) -> tuple[float, float, float]:
    return profile["startup_min_s"], profile["startup_max_s"], 1.0 / profile["bandwidth_bytes_per_s"]
