"""Chen et al. (slides): whose data lies on which servers: on all (1-DH), on one a process (1-DV), on a group (2-D)."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stripewise import _native
from stripewise.reproduce import placement
from stripewise.reproduce.cluster import KIB, MIB, Devices, Operation, Tier
from stripewise.reproduce.experiment import Cell, Context, Experiment, Result, Row
from stripewise.reproduce.workload import Pattern, Steps
from stripewise.units import exact_bytes

PAPER = "Chen et al. (slides)"
STARTUP_MIN_MS, STARTUP_MAX_MS, KIB_PER_MS = 4.0, 12.0, 80.0
DISK_BYTES = 250 * 10**9
"""Of the larger cluster's disks."""
ROUNDS = 200
SCHEMES = ("1-DH", "1-DV", "2-D")
MODEL_PROCESSES, MODEL_SERVERS = (4, 16), 8
PAPER_SPREAD = {4: 48.8, 16: 55.3}


def disks(servers: int) -> Devices:
    """The slides say SATA disks of 7200 turns and no more."""
    disk = Operation(STARTUP_MIN_MS, STARTUP_MAX_MS, KIB_PER_MS)
    text = f"{servers} disks ({STARTUP_MIN_MS:g}-{STARTUP_MAX_MS:g} ms, {KIB_PER_MS:g} KB/ms: the slides give no times)"
    return Devices(f"{text}, no network", (Tier("hdd", servers, disk, disk),), None)


def layouts(scheme: str, processes: int, servers: int, strip: int, groups: int | None = None) -> list[_native.Regions]:
    """The layout of each process's file."""
    if groups is None:
        groups = {"1-DH": 1, "1-DV": servers, "2-D": min(processes, servers)}[scheme]
    each = servers // groups
    return [placement.widths([strip] * each, first=process % groups * each) for process in range(processes)]


@dataclass(frozen=True)
class Load:
    """Each process reads its own file, request by request."""

    processes: int
    request_bytes: int
    requests: int
    pattern: Pattern
    together: bool = False
    """All meet after each request, as the model has it."""

    def steps(self, seed: int) -> _native.Steps:
        """For the simulator."""
        steps = Steps()
        draw = np.random.default_rng(seed)
        for process in range(self.processes):
            blocks = draw.permutation(self.requests) if self.pattern == "random" else np.arange(self.requests)
            offsets = blocks * self.request_bytes
            if not self.together:
                steps.requests(process, "read", offsets, self.request_bytes, file=process)
                continue
            for offset in offsets:
                steps.requests(process, "read", [offset], self.request_bytes, file=process)
                steps.barrier(process)
        return steps.native()


# Measured against the model


def spread(times: dict[str, float]) -> float:
    """How much less time the best takes than the worst, in percent."""
    return 100 * (1 - min(times.values()) / max(times.values()))


def model(processes: int, servers: int, startup_s: float, part_s: float) -> dict[str, float]:
    """Seconds of one access of all processes at once, by the slides' forms."""
    one_dh, one_dv, two_d, _ = _native.chen_costs(processes, servers, startup_s, part_s)
    return dict(zip(SCHEMES, (one_dh, one_dv, two_d), strict=True))


def part_of_spread(processes: int, servers: int, percent: float) -> float:
    """`s beta` over `alpha` at which the model's spread is so large, where it falls with `s beta`."""
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if spread(model(processes, servers, 1.0, middle)) > percent else (low, middle)
    return low


def models(experiment: Experiment, context: Context) -> Result:
    """The request size is what makes the model's spread for 4 processes the slides'; all else follows."""
    servers = MODEL_SERVERS
    devices = disks(servers)
    startup_ms = (STARTUP_MIN_MS + STARTUP_MAX_MS) / 2
    ratio = part_of_spread(MODEL_PROCESSES[0], servers, PAPER_SPREAD[MODEL_PROCESSES[0]])
    request = round(ratio * startup_ms * KIB_PER_MS / 64) * 64 * KIB
    part_s = request / KIB / KIB_PER_MS * 1e-3
    count = max(2, int(ROUNDS * context.share))
    result = Result(experiment, axis="ms an access of all processes")
    result.setup = [
        f"devices: {devices.name}",
        f"{count} requests of {exact_bytes(request)} a process, each process in its own file, 64K strips, all at once: "
        f"the size is not in the slides, it is where the model's spread for {MODEL_PROCESSES[0]} processes is theirs",
    ]
    errors = []
    for processes in MODEL_PROCESSES:
        predicted = model(processes, servers, startup_ms * 1e-3, part_s)
        steps = Load(processes, request, count, "random", together=True).steps(context.seed)
        simulated = {}
        for scheme in SCHEMES:
            files = layouts(scheme, processes, servers, 64 * KIB)
            outcome = _native.simulate_generated(devices.native(), files, steps, seed=context.seed)
            simulated[scheme] = outcome["makespan_s"] / count
            errors.append(abs(predicted[scheme] / simulated[scheme] - 1))
            x = f"p = {processes}"
            result.cells.append(Cell(x, scheme, "model", predicted[scheme] * 1e3))
            result.cells.append(Cell(x, scheme, "simulated", simulated[scheme] * 1e3))
        best = min(simulated, key=simulated.__getitem__)
        paper_best = {4: "2-D", 16: "1-DV"}[processes]
        if simulated[best] == simulated[paper_best]:
            best = paper_best  # with p >= n 2-D is 1-DV
        same = "the same" if best == paper_best else "differs"
        result.rows.append(Row(f"p = {processes}: best layout", paper_best, best, why=same))
        ours, paper = spread(simulated), PAPER_SPREAD[processes]
        why = f"{ours - paper:+.1f} points; the model itself has {spread(predicted):.1f} %"
        result.rows.append(
            Row(f"p = {processes}: the best takes less time than the worst by", paper, ours, "%", why=why)
        )
    worst = 100 * max(errors)
    middle = 100 * statistics.median(errors)
    why = f"the model's mean startup is less than the longest of {servers}, which 1-DH waits for; worst {worst:.0f} %"
    result.rows.append(Row("model and simulation: median difference", "a fairly close match", middle, "%", why=why))
    return result


# IOR


def ior(experiment: Experiment, context: Context) -> Result:
    """Many processes with requests of some 4 KB, and few with requests of some MB."""
    result = Result(experiment, axis="MiB/s")
    cases: list[tuple[str, int, int, Pattern, int, tuple[int, ...], str]] = [
        ("64 processes, random, 64K strips", 64, 32, "random", 64, (4, 16, 64, 256), "1-DV"),
        ("64 processes, sequential, 64K strips", 64, 32, "sequential", 64, (4, 16, 64, 256), "1-DV"),
        ("64 processes, random, 1M strips", 64, 32, "random", 1024, (4, 16, 64, 256), "1-DV"),
        ("64 processes, sequential, 1M strips", 64, 32, "sequential", 1024, (4, 16, 64, 256), "1-DV"),
        ("8 processes, random, 4K strips", 8, 8, "random", 4, (1024, 4096, 16384), "1-DH or 2-D"),
        ("8 processes, random, 64K strips", 8, 8, "random", 64, (1024, 4096, 16384), "1-DH or 2-D"),
    ]
    result.setup = [
        f"devices: {disks(32).name}, 8 of them for 8 processes; the head's way counts: sweeps, startups by distance",
        "each process reads its own file; 2-D: a group of servers for each pair of processes",
    ]
    for panel, processes, servers, pattern, strip, requests, paper in cases:
        context.say(f"{experiment.name}: {panel}")
        devices = disks(servers)
        totals = dict.fromkeys(SCHEMES, 0.0)
        for request in requests:
            count = max(4, int(min(64 * MIB // (request * KIB), 256) * context.share))
            steps = Load(processes, request * KIB, count, pattern).steps(context.seed)
            rates = {}
            for scheme in SCHEMES:
                pairs = max(1, min(processes, servers) // 2)
                files = layouts(scheme, processes, servers, strip * KIB, pairs if scheme == "2-D" else None)
                outcome = _native.simulate_generated(
                    devices.native(), files, steps, seed=context.seed, stroke_bytes=DISK_BYTES
                )
                rates[scheme] = outcome["bytes_per_s"] / MIB
                result.cells.append(Cell(panel, exact_bytes(request * KIB), scheme, rates[scheme]))
            best = max(rates.values())
            for scheme, rate in rates.items():
                totals[scheme] += rate / best / len(requests)
        ranked = sorted(SCHEMES, key=totals.__getitem__, reverse=True)
        means = ", ".join(f"{scheme} {100 * totals[scheme]:.0f} %" for scheme in ranked)
        says = "the same" if ranked[0] in paper else _why_not(processes, servers)
        why = f"{says}; mean share of the best layout's throughput: {means}"
        result.rows.append(Row(f"{panel}: best layout", paper, ranked[0], why=why))
    return result


def _why_not(processes: int, servers: int) -> str:
    """The slides contradict their own rule where there are as many processes as servers."""
    if processes >= servers:
        return (
            f"differs, as the slides' own rule does: {processes} processes are no fewer than {servers} servers, so "
            "each server is best left to its own processes"
        )
    return "differs"


def _experiment(name: str, figure: str, title: str, run: Callable[[Experiment, Context], Result]) -> Experiment:
    return Experiment(name, PAPER, figure, title, False, run)


EXPERIMENTS = (
    _experiment("chen-models", "synthetic benchmark", "1-DH, 1-DV, 2-D and their model, 4 and 16 processes", models),
    _experiment("chen-ior", "IOR", "1-DH, 1-DV and 2-D: 64 processes with small requests, 8 with large ones", ior),
)
