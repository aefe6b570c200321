"""`stripewise show`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stripewise import StripewiseError
from stripewise.api import placing
from stripewise.api.pools import Pool
from stripewise.api.summary import Kind, kind_of, largest_first, layout_frame, summary_by_workers
from stripewise.api.trace import Trace
from stripewise.cli import console
from stripewise.cli.excerpt import AppOption, FileOption, RankOption
from stripewise.cli.opened import opened
from stripewise.cli.pool_show import print_pool
from stripewise.units import about_bytes, counted, exact_bytes, mib_per_s, seconds


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

    Of a trace or log: programs and ranks, and for each file how much was read and written, in which sizes, how fast,
    and where its hot parts are. Files whose names differ by numbers alone are one row; the largest come first. Of a
    layout file: the regions of each file and their rounds.

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
        summary = _summary(trace, dask)
        if as_json:
            console.document({**summary, "about": trace.about})
            return
        _show_summary(summary)
        # The workers sum up file by file.
        rows = largest_first(summary["files"]) if all_files or dask is not None else trace.groups()
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
    ranks = {(process["program"], process["rank"]) for process in summary["processes"]}
    console.result(
        f"{summary['records']:,} records, {seconds(summary['duration_s'])}, "
        f"{len(summary['processes']):,} processes, {counted(len(ranks), 'rank')}, {counted(len(hosts), 'host')}"
    )
    if summary["lost"]:
        console.warn(f"{summary['lost']} records were lost (killed processes or a full disk): figures are too low")
    right = ["processes", "ranks", "records"]
    programs = console.table(["program", *right], right=right, paths=["program"])
    for number, name in enumerate(summary["programs"]):
        own = [process for process in summary["processes"] if process["program"] == number]
        programs.add_row(
            name,
            f"{len(own):,}",
            f"{len({process['rank'] for process in own}):,}",
            f"{sum(process['records'] for process in own):,}",
        )
    console.out.print(programs)


def _show_files(rows: list[dict[str, Any]], *, all_files: bool) -> None:
    used = [row for row in rows if all_files or row["reads"]["requests"] or row["writes"]["requests"]]
    shown = console.shown(used, everything=all_files)
    right = ["files", "requests", "bytes", "MiB/s", "in flight", "ranks"]
    columns = ["file", "files", "op", "requests", "bytes", "sizes", "MiB/s", "in flight", "ranks"]
    if all(row["files"] == 1 for row in shown):
        columns.remove("files")
    files = console.table(columns, right=right, paths=["file"])
    for row in shown:
        first = {"file": row["path"], "files": f"{row['files']:,}"}
        for op in ("reads", "writes"):
            done = row[op]
            if done["requests"]:
                cells = {
                    **first,
                    "op": op[:-1],
                    "requests": f"{done['requests']:,}",
                    "bytes": about_bytes(done["bytes"]),
                    "sizes": " ".join(f"{exact_bytes(size)}x{count}" for size, count in done["common_sizes"]),
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
        # The bars are as wide as their parts are many.
        most = max(len(row["heat"]) for row in hot)
        columns = ["file", "extent", "heat (bytes moved, first to last byte of the file)"]
        heat = console.table(columns, right=["extent"], paths=["file"])
        heat.columns[-1].min_width = min(most, console.out.width)
        for row in hot:
            heat.add_row(row["path"], about_bytes(row["extent_bytes"]), _bars(row["heat"]))
        console.out.print(heat)


def _bars(heat: list[Any]) -> str:
    """One character a part: how often its bytes were moved, from blank (never) to a full block (the most)."""
    levels = " ▁▂▃▄▅▆▇█"
    passes = [(part["read_bytes"] + part["write_bytes"]) / part["length"] for part in heat]
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
