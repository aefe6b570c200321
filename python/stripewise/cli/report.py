"""`stripewise report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stripewise import StripewiseError
from stripewise.api.reporting import check_page, write_report
from stripewise.cli import console
from stripewise.cli.advised import PRESET, PlannerOption, PresetOption, RootOption
from stripewise.cli.excerpt import AppOption, FileOption, RankOption
from stripewise.cli.opened import opened
from stripewise.units import about_bytes


def report(
    log: Annotated[Path, typer.Argument(metavar="T", help="A trace, or any log that Stripewise reads.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="R.html", help="Page to write; R.png, R.svg and R.pdf are pictures."),
    ],
    layout: Annotated[
        Path | None,
        typer.Option("--layout", "-l", metavar="LAYOUT", help="Layout file to draw; else what `advise` recommends."),
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", metavar="C.toml", help="Cluster file: the servers that layouts are for.")
    ] = None,
    pool_file: Annotated[
        Path | None, typer.Option("--pool", "-p", metavar="POOL", help="Pool file, or its directory, in its place.")
    ] = None,
    root: RootOption = None,
    planner: PlannerOption = None,
    preset: PresetOption = PRESET,
    file: FileOption = None,
    rank: RankOption = None,
    app: AppOption = None,
) -> None:
    """Draw how a program used its files, and what a layout makes of it, as one HTML page or a picture for a slide.

    The page needs no network and no other file. It has the layout before and after, heat maps of offset and rank by
    time, request sizes, the load of ranks and servers, the advice, and the commands that set the layout. Everything
    that is drawn stands there in words and as tables, too. Servers are those of the cluster or pool file, else those
    that the log's Lustre layouts show; without any the page tells of the program alone. The picture has the verdict,
    the heat map that most bytes are on, request sizes and servers.

    \b
    Examples:
      stripewise report job.darshan -o job.html
      stripewise report job.darshan --file '*.h5' -o hdf5.html
      stripewise report job.darshan -o slide.png
      stripewise report job.darshan --cluster orion.toml -o job.html
      stripewise report run.trace --pool p/pool.toml --layout new.layout \\
          -o run.html
    """
    if pool_file is not None and cluster is not None:
        raise StripewiseError("--pool and --cluster both say what the servers are: give one")
    if layout is not None and planner is not None:
        raise StripewiseError("--planner plans, and --layout says what was planned: give one")
    check_page(output)
    trace = opened(log, files=file, ranks=rank, apps=app)
    with console.steps() as begin:
        write_report(
            trace,
            output,
            begin,
            servers=pool_file or cluster,
            layout=layout,
            root=root,
            planner=planner,
            preset=preset,
        )
    console.say(f"wrote {output} ({about_bytes(output.stat().st_size)})")
