"""Runs the benchmarks and prints their figures: python -m benches [NAME...] [--quick] [--json] [--dir DIR].

Targets are reported, never asserted: the exit code is 0 unless something failed to run or data was wrong.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benches import (
    accuracy,
    adapt_caches,
    adapt_measured,
    adapting,
    advice,
    beside,
    burst,
    drishti,
    emulation,
    filling,
    foreign_disks,
    fresh,
    importing,
    importing_dftracer,
    iorch,
    logs,
    mount_alone,
    mount_names,
    mount_uring,
    papers,
    planner_scale,
    planning,
    preload_outside,
    preload_placed,
    readahead,
    recording,
    replay,
    report,
    segmentation,
    set_b,
    signature,
    simulator,
    sizes,
    small_files,
    small_programs,
    streams,
    stripe_search,
    theta,
    turns,
    turns_scale,
    uniform,
    wei,
    wei_bound,
    writebehind,
)
from benches.frame import Benchmark, BenchmarkError, Context, Figure, MissingError, shown
from stripewise import StripewiseError

BENCHMARKS: tuple[Benchmark, ...] = (
    uniform.BENCHMARK,
    set_b.BENCHMARK,
    planning.BENCHMARK,
    stripe_search.BENCHMARK,
    papers.BENCHMARK,
    segmentation.BENCHMARK,
    theta.BENCHMARK,
    fresh.BENCHMARK,
    planner_scale.BENCHMARK,
    importing.BENCHMARK,
    importing_dftracer.BENCHMARK,
    signature.BENCHMARK,
    simulator.BENCHMARK,
    replay.BENCHMARK,
    report.BENCHMARK,
    preload_outside.BENCHMARK,
    preload_placed.BENCHMARK,
    mount_alone.BENCHMARK,
    mount_names.BENCHMARK,
    mount_uring.BENCHMARK,
    *small_files.BENCHMARKS,
    filling.BENCHMARK,
    small_programs.BENCHMARK,
    readahead.BENCHMARK,
    writebehind.BENCHMARK,
    burst.BENCHMARK,
    wei.FIG2,
    wei.FIG3,
    wei_bound.BENCHMARK,
    sizes.BENCHMARK,
    recording.BENCHMARK,
    emulation.BENCHMARK,
    accuracy.BENCHMARK,
    streams.BENCHMARK,
    turns.BENCHMARK,
    turns_scale.BENCHMARK,
    turns_scale.BURSTS,
    turns_scale.IORCH_FIGURES,
    beside.BENCHMARK,
    *iorch.BENCHMARKS,
    *adapting.BENCHMARKS,
    adapt_caches.BENCHMARK,
    adapt_measured.BENCHMARK,
    foreign_disks.BENCHMARK,
    advice.BENCHMARK,
    drishti.BENCHMARK,
    logs.BENCHMARK,
)

MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 6 << 30
"""Room for the largest file of a benchmark twice over, and the rest."""

out = Console(highlight=False, width=None if sys.stdout.isatty() else 150)


def main() -> int:
    """Runs what the command line names; returns the exit code."""
    options = _options()
    chosen = [benchmark for benchmark in BENCHMARKS if not options.names or benchmark.name in options.names]
    results: list[dict[str, object]] = []
    failed = False
    if not options.json:
        out.print(_machine(), soft_wrap=True)
    for benchmark in chosen:
        began = time.monotonic()
        figures: list[Figure] = []
        remarks: list[str] = []
        problem: str | None = None
        with (
            tempfile.TemporaryDirectory(prefix="stripewise-bench-", dir=options.dir or _memory()) as directory,
            tempfile.TemporaryDirectory(prefix="stripewise-bench-", dir=options.disk) as disk,
        ):
            try:
                context = Context(Path(directory), Path(disk), options.quick, _say)
                for item in benchmark.run(context):
                    if isinstance(item, Figure):
                        figures.append(item)
                    else:
                        remarks.append(item)
            except MissingError as error:
                problem = f"not measured: {error}"
            except (BenchmarkError, StripewiseError, OSError) as error:
                problem = f"FAILED: {error}"
                failed = True
        seconds = time.monotonic() - began
        if options.json:
            results.append(_as_json(benchmark, figures, remarks, problem, seconds))
        else:
            _print(benchmark, figures, remarks, problem, seconds)
    if options.json:
        print(json.dumps({"machine": _machine(), "quick": options.quick, "benchmarks": results}, indent=2))
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benches",
        description="Measures the figures of docs/benchmarks.md.",
        epilog="\n".join(f"  {benchmark.name:<16} {benchmark.title}" for benchmark in BENCHMARKS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help="Benchmarks to run; all when left out (see below).")
    parser.add_argument("--quick", action="store_true", help="Smaller files and one repetition: is it all running?")
    parser.add_argument("--json", action="store_true", help="Print the figures as JSON.")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="Make the pools there; in memory, where there is room.")
    parser.add_argument("--disk", type=Path, metavar="DIR", help="Where a benchmark needs a disk; the temporary one.")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"no benchmark '{unknown[0]}'; there is {', '.join(names)}")
    return options


def _memory() -> Path | None:
    """Memory, so that the machine's own disk is no part of what emulated servers cost; `None` without enough of it."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED else None


def _machine() -> str:
    return f"{platform.system()} {platform.release()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def _print(
    benchmark: Benchmark, figures: list[Figure], remarks: list[str], problem: str | None, seconds: float
) -> None:
    out.print(f"\n[bold]{benchmark.name}[/bold]: {benchmark.title}", soft_wrap=True)
    if figures:
        grid = Table(box=None, header_style="bold", pad_edge=False)
        for name in ("figure", "measured", "spread", "target", "met", "note"):
            grid.add_column(name, justify="right" if name in ("measured", "spread", "target") else "left")
        for figure in figures:
            spread = f"{shown(figure.low, '')}..{shown(figure.high, '')}" if figure.low != figure.high else ""
            grid.add_row(
                figure.what,
                shown(figure.value, figure.unit),
                spread,
                figure.target.text(figure.unit) if figure.target else "",
                {True: "yes", False: "NO", None: ""}[figure.is_met],
                figure.note,
            )
        out.print(grid)
    for remark in remarks:
        out.print(f"  {remark}", soft_wrap=True, markup=False)
    if problem is not None:
        out.print(problem, soft_wrap=True, markup=False)
    out.print(f"({benchmark.command}; {seconds:.0f} s)", soft_wrap=True, markup=False)


def _as_json(
    benchmark: Benchmark, figures: list[Figure], remarks: list[str], problem: str | None, seconds: float
) -> dict[str, object]:
    return {
        "name": benchmark.name,
        "title": benchmark.title,
        "command": benchmark.command,
        "seconds": round(seconds, 1),
        "problem": problem,
        "remarks": remarks,
        "figures": [{**asdict(figure), "met": figure.is_met} for figure in figures],
    }


if __name__ == "__main__":
    raise SystemExit(main())
