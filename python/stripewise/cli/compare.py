"""`stripewise compare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stripewise import StripewiseError
from stripewise.api.comparison import OPS, compare_layouts
from stripewise.api.comparison import compare as compare_runs
from stripewise.api.job import job_heading
from stripewise.api.summary import Kind, kind_of
from stripewise.cli import console
from stripewise.cli.excerpt import AppOption, FileOption, RankOption
from stripewise.cli.opened import opened
from stripewise.cli.opening import show_lines
from stripewise.units import about_bytes, exact_bytes, mib_per_s, ratio, seconds

if TYPE_CHECKING:
    from stripewise.api.comparison import Comparison

Shown = Callable[[float], str]
"""A figure in words."""
SAME = 0.02
"""Ratios that differ less from 1 are no difference."""


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A trace or log, or a layout file.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    file: FileOption = None,
    rank: RankOption = None,
    app: AppOption = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="T", help="Trace or log that two layouts are simulated with.")
    ] = None,
    pool_file: Annotated[
        Path | None, typer.Option("--pool", "-p", metavar="POOL", help="Pool that two layouts are simulated on.")
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", metavar="C.toml", help="Cluster file, in place of a pool.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option("--root", metavar="DIR", help="Directory of T that paths in the layouts are relative to."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List every file, however many.")] = False,
) -> None:
    """Compare two runs, or two layouts.

    Of two runs: what each moved, in which requests, how fast while any request was in flight, and the files whose times
    differ most. Files are compared by their names but for numbers, or by their names below the directory that a run's
    files share. Of two layout files: the layouts of each file, and with --trace and servers both are simulated. Ratios
    are those of B to A.

    \b
    Examples:
      stripewise compare before.darshan after.darshan
      stripewise compare before.darshan after.darshan --file '*.h5' --json
      stripewise compare old.layout new.layout
      stripewise compare old.layout new.layout --trace run.trace \\
          --pool p/pool.toml
    """
    kinds = {path: kind_of(path) for path in (a, b)}
    if set(kinds.values()) == {Kind.TRACE}:
        if trace or pool_file or cluster or root:
            raise StripewiseError("--trace, --pool, --cluster and --root are for two layout files: these are two runs")
        made = compare_runs(*(opened(path, files=file, ranks=rank, apps=app) for path in (a, b)))
        if as_json:
            console.document(made.document)
        else:
            _print_runs(made, everything=everything)
        return
    if set(kinds.values()) != {Kind.LAYOUT}:
        found = ", ".join(f"{path} is a {kind.value}" for path, kind in kinds.items())
        raise StripewiseError(f"two traces or logs can be compared, or two layout files: {found}")
    if trace is None and (file or rank or app):
        raise StripewiseError("--file, --rank and --app choose from a trace or log: name one with --trace")
    run = None if trace is None else opened(trace, files=file, ranks=rank, apps=app)
    document = compare_layouts(a, b, trace=run, pool=pool_file, cluster=cluster, root=root)
    if as_json:
        console.document(document)
    else:
        _print_layouts(document, everything=everything)


def _print_runs(made: Comparison, *, everything: bool) -> None:
    document = made.document
    console.result(made.words())
    console.result("")
    a, b = document["runs"]
    for name, run in (("A", a), ("B", b)):
        console.result(f"{name}: {console.short(run['log'], len('A: '))}")
        for line in job_heading(run["job"]):
            console.result(line, 2)
    console.result("")
    grid = console.table(["", "A", "B", "B/A"], right=["B/A"], paths=["A", "B"])
    grid.add_row("program", *(", ".join(run["programs"]) for run in (a, b)), "")
    of_run: list[tuple[str, str, Shown]] = [
        ("processes", "processes", _count),
        ("run time", "run_s", seconds),
        ("requests in flight for", "busy_s", seconds),
        ("files", "files", _count),
    ]
    for words, key, shown in of_run:
        grid.add_row(words, *_pair(a[key], b[key], shown=shown))
    for op in OPS:
        first, second = a[op], b[op]
        if not (first["requests"] or second["requests"]):
            continue
        of_op: list[tuple[str, str, Shown]] = [
            (f"bytes {'read' if op == 'reads' else 'written'}", "bytes", about_bytes),
            (op, "requests", _count),
            ("  median size", "median_bytes", about_bytes),
            ("  MiB/s", "rate_bytes_per_s", mib_per_s),
            ("  in flight, mean", "mean_concurrency", lambda value: f"{value:.1f}"),
        ]
        for words, key, shown in of_op:
            values = (side[key] if side["requests"] else None for side in (first, second))
            grid.add_row(words, *_pair(*values, shown=shown))
    console.out.print(grid)
    console.result("")
    console.out.print(_files(console.shown(document["files"], everything=everything)))
    console.say_more(document["files"], "rows of files", everything=everything, otherwise=", --json has everything")


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _pair(a: float | None, b: float | None, *, shown: Shown) -> list[str]:
    """Both figures, and the ratio where it is one to look at."""
    return [*("-" if value is None else shown(value) for value in (a, b)), _change(a, b)]


def _change(a: float | None, b: float | None) -> str:
    if not a or not b:
        return ""
    return "" if abs(b / a - 1) < SAME else ratio(b / a)


def _files(rows: Sequence[dict[str, Any]]) -> Any:  # noqa: ANN401
    right = ["bytes A", "bytes B", "MiB/s A", "MiB/s B", "B/A"]
    with_layouts = any(side and side["layout"] for row in rows for side in (row["a"], row["b"]))
    stripes = ["stripes"] if with_layouts else []
    grid = console.table(["file", "op", *right, *stripes], right=right, paths=["file"])
    for row in rows:
        a, b = row["a"], row["b"]
        name = row["path"]
        for op in OPS:
            of = [side[op] if side else None for side in (a, b)]
            if not any(side and side["requests"] for side in of):
                continue
            moved = ["-" if side is None or not side["requests"] else about_bytes(side["bytes"]) for side in of]
            rates = [None if side is None or not side["requests"] else side["rate_bytes_per_s"] for side in of]
            shown = ["-" if rate is None else mib_per_s(rate) for rate in rates]
            cells = [name, op[:-1], *moved, *shown, _change(*rates)]
            if with_layouts:
                cells.append(_stripes(*(side and side["layout"] for side in (a, b))) if name else "")
            grid.add_row(*cells)
            name = ""
    return grid


def _stripes(a: str | None, b: str | None) -> str:
    """How a file was striped in both runs: once where that is the same."""
    if a == b:
        return a or "-"
    return f"A {a or '-'}, B {b or '-'}"


def _print_layouts(document: dict[str, Any], *, everything: bool) -> None:
    simulated = document["simulated"]
    if simulated is not None:
        show_lines(document["heading"])
        for name, then in zip("AB", document["then"], strict=True):
            console.result(f"{name}, {then}")
        a, b = simulated["a"]["mean"], simulated["b"]["mean"]
        rates = (
            f"{mib_per_s(a)} MiB/s with A, {mib_per_s(b)} with B, {mib_per_s(simulated['present']['mean'])} as it is"
        )
        console.result(f"B is {ratio(simulated['ratio'])} as fast as A, replayed on servers as described: {rates}")
    changed = [file for file in document["files"] if file["a"] != file["b"]]
    alike = len(document["files"]) - len(changed)
    if not changed:
        console.result(f"both have the same layouts for {alike:,} paths")
        return
    grid = console.table(["file", "A", "B"], paths=["file"])
    for file in console.shown(changed, everything=everything):
        grid.add_row(file["path"], _layout(file["a"]), _layout(file["b"]))
    console.out.print(grid)
    console.say_more(changed, "paths", everything=everything, otherwise=", --json has everything")
    if alike:
        console.result(f"{alike:,} more paths have the same layout in both")


def _layout(regions: list[dict[str, Any]] | None) -> str:
    if regions is None:
        return "- (not named)"
    rounds = [" ".join(region["round"]) for region in regions]
    if len(rounds) == 1:
        return rounds[0]
    offsets = (exact_bytes(region["offset"]) for region in regions)
    return "\n".join(f"from {offset}: {stripes}" for offset, stripes in zip(offsets, rounds, strict=True))
