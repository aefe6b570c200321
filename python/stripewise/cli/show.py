"""`stripewise show`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stripewise import StripewiseError
from stripewise.api import placing
from stripewise.api.pools import Pool
from stripewise.api.summary import Kind, kind_of, layout_frame, summary_by_workers
from stripewise.api.trace import Trace
from stripewise.cli import console
from stripewise.cli.opened import opened
from stripewise.cli.pool_show import print_pool
from stripewise.units import about_bytes, exact_bytes, mib_per_s, seconds


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
    all_files: Annotated[bool, typer.Option("--all", "-a", help="Show files without reads or writes, too.")] = False,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Sum up an imported log on the workers of this Dask scheduler."),
    ] = None,
) -> None:
    """Show what is in a trace, a log of another tool, a layout file or a pool file.

    Of a trace or log: programs and ranks, and for each file how much was read and written, in which sizes, how fast,
    and where its hot parts are. Of a layout file: the regions of each file and their rounds.

    \b
    Examples:
      stripewise show run.trace
      stripewise show job.darshan
      stripewise show run.trace --parquet run.parquet
      stripewise show new.layout
      stripewise show new.layout --csv -
      stripewise show run.imported --dask tcp://node1:8786
    """
    kind = kind_of(path)
    if dask is not None and (kind is not Kind.TRACE or csv or parquet):
        raise StripewiseError("--dask is for the summary of an imported log; --csv and --parquet write what T has")
    if kind is Kind.POOL:
        if csv or parquet:
            raise StripewiseError(f"{path} is a pool file; --csv and --parquet are for traces and layout files")
        print_pool(Pool.load(path), as_json=as_json)
        return
    if csv or parquet:
        if kind is Kind.TRACE:
            _write_records(opened(path), csv, parquet)
        else:
            _write_regions(path, csv, parquet)
    elif kind is Kind.TRACE:
        trace = opened(path, files=None if dask is None else [])
        _show_summary(trace, _summary(trace, dask), as_json=as_json, all_files=all_files)
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


def _show_summary(trace: Trace, summary: dict[str, Any], *, as_json: bool, all_files: bool) -> None:
    if as_json:
        summary["about"] = trace.about
        console.document(summary)
        return
    hosts = {process["host"] for process in summary["processes"]}
    ranks = {(process["program"], process["rank"]) for process in summary["processes"]}
    console.result(
        f"{summary['records']} records, {seconds(summary['duration_s'])}, {len(summary['processes'])} processes, "
        f"{len(ranks)} ranks, {len(hosts)} host{'s' if len(hosts) != 1 else ''}"
    )
    if summary["lost"]:
        console.warn(f"{summary['lost']} records were lost (killed processes or a full disk): figures are too low")
    programs = console.table(["program", "processes", "ranks", "records"], right=["processes", "ranks", "records"])
    for number, name in enumerate(summary["programs"]):
        own = [process for process in summary["processes"] if process["program"] == number]
        programs.add_row(
            name,
            str(len(own)),
            str(len({process["rank"] for process in own})),
            str(sum(process["records"] for process in own)),
        )
    console.out.print(programs)

    columns = ["file", "op", "requests", "bytes", "sizes", "MiB/s", "in flight", "ranks"]
    files = console.table(columns, right=["requests", "bytes", "MiB/s", "in flight", "ranks"])
    shown = [file for file in summary["files"] if all_files or file["reads"]["requests"] or file["writes"]["requests"]]
    for file in shown:
        name = file["path"]
        for op in ("reads", "writes"):
            done = file[op]
            if done["requests"]:
                files.add_row(
                    name,
                    op[:-1],
                    str(done["requests"]),
                    about_bytes(done["bytes"]),
                    " ".join(f"{exact_bytes(size)}x{count}" for size, count in done["common_sizes"]),
                    mib_per_s(done["rate_bytes_per_s"]),
                    f"{done['mean_concurrency']:.1f}",
                    str(len(file["ranks"])),
                )
                name = ""
        if name:
            files.add_row(name, ", ".join(f"{op} x{count}" for op, count in file["operations"].items()))
    if shown:
        console.out.print()
        console.out.print(files)
    hot = [file for file in shown if len(file["heat"]) > 1]
    if hot:
        console.out.print()
        heat = console.table(["file", "extent", "heat (bytes moved, first to last byte of the file)"], right=["extent"])
        for file in hot:
            heat.add_row(file["path"], about_bytes(file["extent_bytes"]), _bars(file["heat"]))
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
