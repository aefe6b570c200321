"""Pools of emulated servers, the same workload on one of them after the other, and what the planner makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benches.frame import STRIPEWISE, BenchmarkError, Context, Figure, Target, checked, of_repetitions
from stripewise import _native, emulation, native_paths
from stripewise.pool import Pool
from stripewise.units import about_bytes, exact_bytes

KIB = 1 << 10
MIB = 1 << 20
PROCESSES = 16
REQUEST_BYTES = 512 * KIB
FILE = "uniform.dat"
OPERATIONS = ("write", "read")
PREDICTION_ERROR = 0.2


@dataclass(frozen=True)
class Devices:
    """What the servers of a pool stand for: a preset's name or an inline table, as in a pool file."""

    hdd: str
    ssd: str
    hdds: int = 6
    ssds: int = 2


def make_pool(directory: Path, devices: Devices, ssd_bytes: int | None = None) -> Pool:
    """A pool of emulated servers below `directory`; each SSD may hold `ssd_bytes`."""
    command = [*STRIPEWISE, "pool", "init", directory, "--emulate", "--hdd", str(devices.hdds)]
    limit = [] if ssd_bytes is None else ["--capacity", f"ssd={ssd_bytes}B"]
    checked([*command, "--ssd", str(devices.ssds), *limit])
    file = directory / "pool.toml"
    text = file.read_text(encoding="utf-8")
    for preset, device in (("hdd-7200", devices.hdd), ("ssd-sata", devices.ssd)):
        text = text.replace(f'emulate = "{preset}"', f"emulate = {device}")
    file.write_text(text, encoding="utf-8")
    return Pool.load(file)


@dataclass(frozen=True)
class Run:
    """One run of the workload on a pool."""

    bytes_per_s: dict[str, float]
    """By operation; wall clock from the first request's begin to the last one's end."""
    emulation: _native.EmulationVerdict


def run_workload(pool: Pool, *options: str, trace: Path | None = None) -> Run:
    """Writes and reads the file with real processes under `stripewise run`, and removes it.

    Raises `BenchmarkError` when a request fails or (with `--verify`) a byte is not what was written.
    """
    way = ["trace", "--output", trace] if trace else ["run", "--quiet"]
    program = [native_paths.bench_program(), pool.mount / FILE, "--processes", str(PROCESSES)]
    requests = ["--request-size", exact_bytes(REQUEST_BYTES), "--json", "--remove", *options]
    before = emulation.snapshot(pool)
    report = json.loads(checked([*STRIPEWISE, *way, "--pool", pool.file, "--", *program, *requests]))
    verdict = emulation.since(before).verdict
    if verdict is None or verdict["median"] is None:
        raise BenchmarkError(f"no request reached the emulated servers of {pool.file}")
    return Run({phase["op"]: phase["bytes_per_second"] for phase in report["phases"]}, verdict)


@dataclass
class Planned:
    """The layout that `stripewise plan` made from a trace of the default layout, and a pool where the file gets it."""

    name: str
    pool: Pool
    remark: str
    """What the layout is."""
    predicted: _native.BeforeAfter


def plan(context: Context, devices: Devices, default: Pool, trace: Path, name: str, ssd_bytes: int | None) -> Planned:
    """Plans for a new pool of the same devices and makes the layout the file's there."""
    pool = make_pool(context.directory / f"pool-{'free' if ssd_bytes is None else 'limited'}", devices, ssd_bytes)
    layout = pool.file.with_name("planned.layout")
    root = ["--root", default.mount]
    document: _native.PlanDocument = json.loads(
        checked([*STRIPEWISE, "plan", trace, "--pool", pool.file, *root, "--output", layout, "--json"])
    )
    # Before the layout is set: `before` is what the file has until then, the pool's default.
    predicted = _native.predict(
        _native.Trace(str(trace)), str(pool.file), str(default.mount), str(layout), document["cuts_s"]
    )
    checked([*STRIPEWISE, "apply", layout, "--pool", pool.file])
    regions = document["files"][0]["regions"]
    rounds = "; ".join(f"{about_bytes(region['offset'])}: {' '.join(region['round'])}" for region in regions)
    remark = f"planned for {document['processes']:.1f} requests in flight, {name}: {rounds}"
    context.say(remark)
    return Planned(name, pool, remark, predicted["total"])


@dataclass(frozen=True)
class Variant:
    """A planned layout to compare the default with."""

    name: str
    ssd_share: float | None
    """Of the file's bytes that the SSDs may hold together."""
    least: float
    """Ratio to reach."""


def compare(context: Context, devices: Devices, variants: list[Variant], file_bytes: int) -> Iterator[Figure | str]:
    """Default layout against planned ones in alternating runs, measured against predicted, emulation errors."""
    size = ["--file-size", exact_bytes(file_bytes)]
    default = make_pool(context.directory / "pool-default", devices)
    trace = context.directory / "default.trace"
    context.say(f"tracing the default layout, {about_bytes(file_bytes)} written and read back with every byte checked")
    traced = run_workload(default, *size, "--verify", "inline", trace=trace)
    ssd_bytes = [None if v.ssd_share is None else int(v.ssd_share * file_bytes / devices.ssds) for v in variants]
    planned = [
        plan(context, devices, default, trace, variant.name, limit)
        for variant, limit in zip(variants, ssd_bytes, strict=True)
    ]
    for each in planned:
        run_workload(each.pool, *size, "--verify", "inline")
    # The default layout takes a request to all servers, so its rate does not depend on how many requests there are.
    share = ["--bytes", exact_bytes(file_bytes // 4)]
    runs: dict[str, list[Run]] = {"default": [], **{each.name: [] for each in planned}}
    rounds = context.rounds(3)
    for number in range(rounds):
        context.say(f"round {number + 1} of {rounds}")
        runs["default"].append(run_workload(default, *size, *share))
        for each in planned:
            runs[each.name].append(run_workload(each.pool, *size))
    yield from _rates("default layout, 64 KiB on all", [*runs["default"]])
    for variant in variants:
        yield from _ratios(variant, runs["default"], runs[variant.name])
    yield from _predictions("default layout", "before", planned[0], runs["default"])
    for each in planned:
        yield from _predictions(each.name, "after", each, runs[each.name])
    yield _emulation("default layout", [traced, *runs["default"]])
    for each in planned:
        yield _emulation(each.name, runs[each.name])
    yield from (each.remark for each in planned)


def _rates(name: str, runs: list[Run]) -> Iterator[Figure]:
    for operation in OPERATIONS:
        rates = [run.bytes_per_s[operation] / MIB for run in runs]
        yield of_repetitions(f"{name}: {operation}s", rates, unit="MiB/s")


def _ratios(variant: Variant, default: list[Run], runs: list[Run]) -> Iterator[Figure]:
    yield from _rates(f"planned, {variant.name}", runs)
    for operation in OPERATIONS:
        pairs = [
            after.bytes_per_s[operation] / before.bytes_per_s[operation]
            for before, after in zip(default, runs, strict=True)
            if before.emulation["valid"] and after.emulation["valid"]
        ]
        what, target = f"{variant.name}: {operation}s, planned / default", Target(least=variant.least)
        if pairs:
            yield of_repetitions(what, pairs, target=target)
        else:
            yield Figure(what, None, target=target, note="invalid: emulation error above 10 %")


def _predictions(name: str, when: str, planned: Planned, runs: list[Run]) -> Iterator[Figure]:
    rates = planned.predicted["before"] if when == "before" else planned.predicted["after"]
    predicted = {"read": rates["read"], "write": rates["write"]}
    for operation in OPERATIONS:
        ratios = [run.bytes_per_s[operation] / predicted[operation] for run in runs]
        bounds = Target(least=1 - PREDICTION_ERROR, most=1 + PREDICTION_ERROR)
        note = f"predicted {predicted[operation] / MIB:.1f} MiB/s"
        yield of_repetitions(f"{name}: {operation}s, measured / predicted", ratios, target=bounds, note=note)


def _emulation(name: str, runs: list[Run]) -> Figure:
    errors = [100 * (run.emulation["median"] or 0.0) for run in runs]
    worst = max((run.emulation["p99"] or 0.0) for run in runs)
    note = f"99th percentile {100 * worst:.0f} %"
    return of_repetitions(
        f"{name}: median emulation error of a run", errors, unit="%", target=Target(most=10.0), note=note
    )
