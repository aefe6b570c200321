"""`stripewise optimize`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from stripewise.api.pools import Pool
from stripewise.cli import console
from stripewise.cli.plan import PlannerOption
from stripewise.cli.run import Command, PoolOption
from stripewise.units import about_bytes, exact_bytes, mib_per_s, ratio

if TYPE_CHECKING:
    from stripewise.api.optimizing import Outcome, Row


def optimize(
    command: Command,
    pool_file: PoolOption,
    runs: Annotated[int, typer.Option("--runs", min=2, metavar="N", help="Measured runs of each layout.")] = 2,
    max_runs: Annotated[
        int, typer.Option("--max-runs", min=2, metavar="N", help="Most runs of the new layout until it is clear.")
    ] = 5,
    prepare: Annotated[
        str | None,
        typer.Option("--prepare", metavar="CMDLINE", help="Shell command before each run, not measured: `rm -f out`."),
    ] = None,
    planner: PlannerOption = "auto",
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="Where traces, layouts and the way back are kept.")
    ] = Path("stripewise-optimize"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List every region, however many.")] = False,
) -> None:
    """Find, place and verify a better layout for a program's files: trace, plan, apply, run again, compare.

    CMD is run on the present layout (traced, at least twice), its files get the planned layout, and it is run again.
    The new layout is kept only if its I/O is faster beyond noise: the 95 % interval (Welch, on logarithms) of the ratio
    of throughputs must lie above 1, and the whole program must not be slower. While the interval holds 1 the new layout
    is run again, up to --max-runs; then, or when it is slower, every file is moved back and the rules are as before.

    On real devices the page cache is emptied before each run, and what was still served from it is said. Emulated
    servers charge every request; a run with an emulation error above 10 % (median) does not count and is repeated. A
    program that checks its own data may print `verified N bytes`.

    \b
    Examples:
      stripewise optimize --pool p/pool.toml -- \\
          mpiexec -n 16 ./simulate p/mount/out.h5
      stripewise optimize --pool p/pool.toml --prepare 'rm -f p/mount/out.h5' \\
          --json -- ./simulate

    \b
    Exit codes: 0 kept, 3 taken back, 4 invalid (emulation error), or CMD's own.
    """
    # numpy, which measuring needs, takes longer to load than all the rest: not for every other command.
    from stripewise.api import optimizing as api

    pool = Pool.load(pool_file)
    pool.require_profiles()
    settings = api.Settings(runs=runs, max_runs=max_runs, prepare=prepare, planner=planner)
    kept_in = api.new_directory(directory.absolute())
    try:
        with console.moving() as progress:
            outcome = api.optimize(pool, command, kept_in, settings, console.say, progress)
    except api.ProgramFailedError as error:
        console.fail(str(error), error.exit_code)
    except api.InvalidRunError as error:
        console.fail(str(error), console.EXIT_INVALID)
    except KeyboardInterrupt:
        _say_way_back(pool, kept_in)
        console.fail("interrupted", console.EXIT_INTERRUPTED)
    if as_json:
        console.document(api.document(outcome))
    else:
        _print(outcome, everything=everything)
    raise SystemExit(0 if outcome.kept else console.EXIT_TAKEN_BACK)


def _say_way_back(pool: Pool, kept_in: Path) -> None:
    previous = kept_in / "previous.layout"
    if previous.is_file():
        console.warn("the new layout may be in place; every file is whole, in its old or its new layout")
        console.hint(f"`stripewise apply {previous} --pool {pool.file}` brings the previous layout back")


def _print(outcome: Outcome, *, everything: bool) -> None:
    from stripewise.api import optimizing as api

    if outcome.plan is not None and outcome.plan["changes"]:
        rows = api.rows(outcome) if everything else api.grouped(api.rows(outcome))
        regions = api.regions(rows)
        listed = set(console.shown(regions, everything=everything))
        console.out.print(_table(outcome, [row for row in rows if (row.path, row.offset) in listed]))
        kept_in = api.report_file(outcome)
        console.say_more(regions, "regions", everything=everything, otherwise=f", {kept_in} has everything")
        console.out.print()
    console.say(outcome.cache)
    if not all(tier.emulated for tier in outcome.pool.tiers):
        for name, run in zip(_names(outcome), outcome.before + outcome.after, strict=True):
            cached = about_bytes(run.from_cache_bytes)
            console.say(f"{name}: {cached} of {about_bytes(run.io.read.bytes)} read came from the page cache")
    walls = ", ".join(
        f"{name} {run.wall_s:.1f} s" for name, run in zip(_names(outcome), outcome.before + outcome.after, strict=True)
    )
    console.say(f"wall clock: {walls}")
    console.say(f"traces, layouts and report: {outcome.directory}")
    if outcome.kept and outcome.placement is not None:
        console.say(
            f"kept: {outcome.why}; back with `stripewise apply {outcome.placement.previous_file} "
            f"--pool {outcome.pool.file}`"
        )
    for line in api.hint_lines(outcome):
        console.result(line)
    console.result(api.last_line(outcome))


def _table(outcome: Outcome, shown: Sequence[Row]) -> Table:
    """Per region: layout before and after, throughput predicted and measured, ratio.

    Of files that are one row it is the median throughput of a file.
    """
    columns = ["region", "layout before", "layout after", "op", "requests"]
    figures = ["predicted before", "after", "measured before", "after", "ratio"]
    grid = console.table([*columns, *figures], right=["requests", *figures], paths=["region"])
    title = f"MiB/s while requests were in flight, {outcome.pool.label}, medians of {len(outcome.before)}"
    grid.title = f"{title} and {len(outcome.after)} runs" if outcome.after else f"{title} runs"
    last: tuple[str, int] | None = None
    for row in shown:
        first = (row.path, row.offset) != last
        last = (row.path, row.offset)
        end = exact_bytes(row.end) if row.end is not None else "end"
        of_files = f" ({row.files:,} files)" if row.files > 1 else ""
        measured = row.measured_after
        grid.add_row(
            f"{row.path}{of_files} {exact_bytes(row.offset)}..{end}" if first else "",
            " ".join(row.layout_before) if first else "",
            " ".join(row.layout_after) if first else "",
            row.op,
            str(row.requests),
            mib_per_s(row.predicted_before),
            mib_per_s(row.predicted_after),
            mib_per_s(row.measured_before),
            mib_per_s(measured) if measured is not None else "-",
            ratio(row.measured_ratio) if row.measured_ratio is not None else "-",
        )
    return grid


def _names(outcome: Outcome) -> list[str]:
    return [f"before-{i + 1}" for i in range(len(outcome.before))] + [
        f"after-{i + 1}" for i in range(len(outcome.after))
    ]
