"""`stripewise export`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from stripewise import StripewiseError
from stripewise.api import exporting
from stripewise.api.pools import Pool
from stripewise.cli import console
from stripewise.cli.opened import opened

MOST_TARGETS = 65_535
"""Servers that a layout can name."""


def export(
    layout: Annotated[Path, typer.Argument(metavar="LAYOUT", help="Layout file, written by `plan` or by hand.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="NAME",
            help=f"File system: {', '.join(exporting.EXPORTERS)}; else the cluster file's. "
            f"{exporting.HINTS}: hints of MPI-IO.",
        ),
    ] = None,
    pool_file: Annotated[
        Path | None,
        typer.Option("--pool", "-p", metavar="POOL", help="Pool file: to price what is lost by its profiles."),
    ] = None,
    cluster_file: Annotated[
        Path | None,
        typer.Option("--cluster", metavar="C", help="Cluster file in a pool's place; it may name the native pools."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="T", help="Trace to price with, else made-up requests; or to find hints in."),
    ] = None,
    trace_root: Annotated[
        Path | None,
        typer.Option(
            "--trace-root", metavar="DIR", help="The trace's directory that paths are below; the pool's mount."
        ),
    ] = None,
    pool_map: Annotated[
        list[str] | None,
        typer.Option("--pool-map", metavar="TIER=NAME", help="Native pool of a tier, else its own name; empty: none."),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--targets",
            metavar="TIER=LIST",
            help="Native names of a tier's servers in the pool's order: hdd=0-5, hdd=tcp://io0:3334,tcp://io1:3334.",
        ),
    ] = None,
    root: Annotated[
        str, typer.Option("--root", metavar="DIR", help="Directory on the file system that paths are below; this one.")
    ] = "",
    existing: Annotated[
        bool, typer.Option("--existing", help="The files are there and keep their bytes: migrate or copy them.")
    ] = False,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Lustre: YAML templates instead of options.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Script to write; else it is printed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print commands, losses and prices as JSON.")] = False,
) -> None:
    """Translate layouts into the commands of a parallel file system.

    The result is a script for `sh`: it sets the layouts, stops at the first command that fails, and shows at its end
    what was set. A pattern of paths becomes the default of the directory that holds them. What the file system cannot
    express as the layout has it is said in comments: the nearest that it can is taken and, with the profiles of a pool,
    priced against the layout; with a trace the fastest of several ways that there is room for. A layout that cannot be
    expressed at all is refused, and then nothing is written.

    \b
    Examples:
      stripewise export new.layout --to cephfs
      stripewise export new.layout --to lustre --pool p/pool.toml \\
          --targets hdd=0-5 --targets ssd=6,7 -o set.sh
      stripewise export new.layout --to beegfs --pool p/pool.toml \\
          --trace run.trace --pool-map hdd=disk_pool
      stripewise export new.layout --cluster orion.toml \\
          --root /lustre/project --existing
      stripewise export new.layout --to hints --trace job.darshan -o io.hints
    """
    if pool_file is not None and cluster_file is not None:
        raise StripewiseError("--pool and --cluster both say what the servers are: give one")
    if to == exporting.HINTS:
        hints = exporting.export_hints(layout, trace=(lambda: opened(trace)) if trace is not None else None, root=root)
        return _hints(hints, output, as_json)
    exported = exporting.export(
        layout,
        to=to,
        pool=Pool.load(pool_file) if pool_file is not None else None,
        cluster=cluster_file,
        trace=(lambda: opened(trace)) if trace is not None else None,
        trace_root=trace_root,
        pool_map=dict(_pair("--pool-map", text) for text in pool_map or []),
        targets={tier: _targets(names) for tier, names in (_pair("--targets", text) for text in targets or [])},
        root=root,
        existing=existing,
        as_yaml=as_yaml,
        warn=console.warn,
    )
    if output is not None:
        exporting.save(exported.script(), output, 0o777)
        console.say(f"wrote {output}; `sh {output}` sets the layouts")
    if as_json:
        console.document(exported.as_dict())
    elif output is None:
        console.script(exported.script().rstrip("\n"))
    else:
        _print(exported)


def _hints(hints: exporting.HintsFile, output: Path | None, as_json: bool) -> None:
    if output is not None:
        exporting.save(hints.text(), output)
        console.say(f"wrote {output}; `export ROMIO_HINTS={output.absolute()}` gives it to ROMIO")
    if as_json:
        console.document(hints.as_dict())
    elif output is None:
        console.script(hints.text().rstrip("\n"))


def _pair(option: str, text: str) -> tuple[str, str]:
    tier, separator, value = text.partition("=")
    if not separator or not tier:
        raise StripewiseError(f"{option} {text}: it takes a tier and a name, such as hdd=disk_pool")
    return tier, value


def _targets(text: str) -> list[str]:
    """A list with commas; `0-5` stands for six numbers."""
    names: list[str] = []
    for part in filter(None, text.split(",")):
        span = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", part)
        numbers = range(int(span[1]), int(span[2]) + 1) if span else None
        if numbers is not None and not 0 < len(numbers) <= MOST_TARGETS:
            raise StripewiseError(f"--targets …={part}: from the lower number to the higher, at most {MOST_TARGETS}")
        names += [part] if numbers is None else map(str, numbers)
    return names


def _print(exported: exporting.Exported) -> None:
    grid = console.table(["file", "commands", "time", "what is lost"], right=["commands", "time"], paths=["file"])
    for file in exported.files:
        ratio = "-" if file.loss_ratio is None else f"{file.loss_ratio:.3f}x"
        name = file.pattern.encode("unicode_escape").decode() if not file.pattern.isprintable() else file.pattern
        for at, loss in enumerate(file.losses or ("nothing",)):
            first = at == 0
            grid.add_row(*((name, str(len(file.commands)), ratio) if first else ("", "", "")), loss)
    console.out.print(grid)
    if exported.workload is not None:
        console.result("time: predicted, over that of the layout")
        console.result(exported.workload)
