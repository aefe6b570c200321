"""`stripewise show`."""

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.text import Text

from stripewise import StripewiseError
from stripewise.api import placing
from stripewise.api.job import job_of
from stripewise.api.pools import Pool
from stripewise.api.summary import Kind, kind_of, largest_first, layout_frame, summary_by_workers
from stripewise.api.trace import Trace
from stripewise.cli import console
from stripewise.cli.excerpt import AppOption, FileOption, RankOption
from stripewise.cli.opened import opened
from stripewise.cli.opening import show_job
from stripewise.cli.pool_show import print_pool
from stripewise.units import about_bytes, counted, exact_bytes, mib_per_s, seconds

RARE = 0.05
"""Sizes of a smaller share of the requests are in the JSON alone."""


def show(
    path: Annotated[
        Path, typer.Argument(metavar="T|LOG|LAYOUT|POOL", help="A trace, a log, a layout file or a pool file.")
    ],
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the records (or regions) as CSV; - is stdout.")
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the records (or regions) as Parquet.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    all_files: Annotated[
        bool, typer.Option("--all", "-a", help="List every file by itself, those without reads or writes, too.")
    ] = False,
    file: FileOption = None,
    rank: RankOption = None,
    app: AppOption = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Sum up an imported log on the workers of this Dask scheduler."),
    ] = None,
) -> None:
    """Show what is in a trace, a log of another tool, a layout file or a pool file.

    Of a trace or log: the job, what it moved and how fast, its programs and ranks, and for each file how much was read
    and written, in which sizes, how fast, and where its hot parts are. Files whose names differ by numbers alone are
    one row; the largest come first. Of a layout file: the regions of each file and their rounds.

    \b
    Examples:
      stripewise show run.trace
      stripewise show job.darshan
      stripewise show job.darshan --file '*.h5' --rank 0
      stripewise show run.trace --parquet run.parquet
      stripewise show new.layout
      stripewise show new.layout --csv -
      stripewise show run.imported --dask tcp://node1:8786
    """
    kind = kind_of(path)
    if dask is not None and (kind is not Kind.TRACE or csv or parquet):
        raise StripewiseError("--dask is for the summary of an imported log; --csv and --parquet write what T has")
    if kind is not Kind.TRACE and (file or rank or app):
        raise StripewiseError(f"{path} is a {kind.value}; --file, --rank and --app choose from traces and logs")
    if kind is Kind.POOL:
        if csv or parquet:
            raise StripewiseError(f"{path} is a pool file; --csv and --parquet are for traces and layout files")
        print_pool(Pool.load(path), as_json=as_json)
        return
    if csv or parquet:
        if kind is Kind.TRACE:
            _write_records(opened(path, files=file, ranks=rank, apps=app), csv, parquet)
        else:
            _write_regions(path, csv, parquet)
    elif kind is Kind.TRACE:
        trace = opened(path, index=dask is not None, files=file, ranks=rank, apps=app)
        job, summary = job_of(trace, dask, console.working), _summary(trace, dask)
        if as_json:
            console.document({**summary, "job": job, "about": trace.about})
            return
        show_job(job)
        _show_summary(summary)
        # The workers sum up file by file.
        rows = largest_first(summary["files"]) if all_files or dask is not None else trace.groups(summary["files"])
        _show_files(rows, all_files=all_files)
    else:
        _show_layout(path, as_json=as_json)


def _write_records(trace: Trace, csv: Path | None, parquet: Path | None) -> None:
    if csv and str(csv) == "-":
        trace.write_csv(sys.stdout)
    elif csv:
        with csv.open("wb") as file:
            trace.write_csv(file)
    if parquet:
        trace.write_parquet(parquet)


def _write_regions(path: Path, csv: Path | None, parquet: Path | None) -> None:
    frame = layout_frame(path)
    if csv:
        frame.write_csv(sys.stdout if str(csv) == "-" else csv)
    if parquet:
        frame.write_parquet(parquet)


def _summary(trace: Trace, dask: str | None) -> dict[str, Any]:
    if dask is None:
        return trace.summary()
    with console.working("summing up") as progress:
        return summary_by_workers(trace, dask, progress)


def _show_summary(summary: dict[str, Any]) -> None:
    hosts = {process["host"] for process in summary["processes"]}
    # Some logs name the nodes of some ranks alone.
    hosts = hosts - {""} or hosts
    ranks = {(process["program"], process["rank"]) for process in summary["processes"]}
    console.result(
        f"{summary['records']:,} records, {seconds(summary['duration_s'])}, "
        f"{counted(len(summary['processes']), 'process')}, {counted(len(ranks), 'rank')}, "
        f"{counted(len(hosts), 'host')}, {counted(sum(map(_is_used, summary['files'])), 'file')} read or written"
    )
    if summary["lost"]:
        console.warn(f"{summary['lost']} records were lost (killed processes or a full disk): figures are too low")
    right = ["processes", "ranks", "records"]
    programs = console.table(["program", *right], right=right, paths=["program"])
    for number, name in enumerate(summary["programs"]):
        own = [process for process in summary["processes"] if process["program"] == number]
        if not own:
            continue
        programs.add_row(
            name,
            f"{len(own):,}",
            f"{len({process['rank'] for process in own}):,}",
            f"{sum(process['records'] for process in own):,}",
        )
    console.out.print(programs)


def _show_files(rows: list[dict[str, Any]], *, all_files: bool) -> None:
    used = [row for row in rows if all_files or _is_used(row)]
    shown = console.shown(used, everything=all_files)
    right = ["requests", "bytes", "MiB/s", "in flight", "ranks"]
    named = console.named([row["files"] for row in shown])
    columns = [named, "op", "requests", "bytes", "sizes", "MiB/s", "in flight", "ranks"]
    files = console.table(columns, right=right, paths=[named])
    for row in shown:
        first = {named: console.how_many(row["path"], row["files"])}
        for op in ("reads", "writes"):
            done = row[op]
            if done["requests"]:
                cells = {
                    **first,
                    "op": op[:-1],
                    "requests": f"{done['requests']:,}",
                    "bytes": about_bytes(done["bytes"]),
                    "sizes": _sizes(done),
                    "MiB/s": mib_per_s(done["rate_bytes_per_s"]),
                    "in flight": f"{done['mean_concurrency']:.1f}",
                    "ranks": f"{len(row['ranks']):,}",
                }
                files.add_row(*(cells.get(column, "") for column in columns))
                first = {}
        if first:
            cells = {**first, "op": ", ".join(f"{op} x{count}" for op, count in row["operations"].items())}
            files.add_row(*(cells.get(column, "") for column in columns))
    if shown:
        console.out.print()
        console.out.print(files)
    console.say_more(used, "rows of files", everything=all_files, otherwise=", --json has everything")
    hot = [row for row in shown if len(row["heat"]) > 1]
    if hot:
        console.out.print()
        columns = ["file", "extent", "heat, first to last byte"]
        heat = console.table(columns, right=["extent"], paths=["file"])
        for row in hot:
            heat.add_row(row["path"], about_bytes(row["extent_bytes"]), _Bars(row["heat"]))
        console.out.print(heat)


def _is_used(file: dict[str, Any]) -> bool:
    return bool(file["reads"]["requests"] or file["writes"]["requests"])


def _sizes(done: dict[str, Any]) -> str:
    """The commonest sizes and how often they are; rare ones say little beside those."""
    sizes: list[tuple[int, int]] = done["common_sizes"]
    told = [size for number, size in enumerate(sizes) if number == 0 or size[1] >= RARE * done["requests"]]
    return " ".join(f"{exact_bytes(size)}x{count}" for size, count in told)


class _Bars:
    """How often the bytes of each part of a file were moved: a letter a part, or several parts where that is narrow."""

    def __init__(self, heat: list[Any]) -> None:
        self.heat = heat

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        count = max(1, min(options.max_width, len(self.heat)))
        ends = [len(self.heat) * number // count for number in range(count + 1)]
        parts = [self.heat[begin:end] for begin, end in pairwise(ends)]
        yield Text(_bars([sum(map(_bytes, part)) / sum(one["length"] for one in part) for part in parts]), no_wrap=True)

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        longest = min(len(self.heat), options.max_width)
        return Measurement(min(console.NARROWEST, longest), longest)


def _bytes(part: dict[str, int]) -> int:
    return part["read_bytes"] + part["write_bytes"]


def _bars(passes: list[float]) -> str:
    """One character a part, from blank (its bytes were never moved) to a full block (the most often)."""
    levels = " ▁▂▃▄▅▆▇█"
    most = max(passes)
    return "".join(levels[0 if value == 0 else max(1, round(value / most * 8))] for value in passes)


def _show_layout(path: Path, *, as_json: bool) -> None:
    document = placing.read_layout(path)
    if as_json:
        console.document(document)
        return
    console.result(f"layout for pool '{document['pool']}'")
    for file in document["files"]:
        grid = console.table(["region", "from", "to", "round"], title=file["path"], right=["region", "from", "to"])
        regions = file["regions"]
        for number, region in enumerate(regions):
            end = exact_bytes(regions[number + 1]["offset"]) if number + 1 < len(regions) else "end"
            grid.add_row(str(number), exact_bytes(region["offset"]), end, " ".join(region["round"]))
        console.out.print(grid)
