"""`stripewise import`."""

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from stripewise.cli import console
from stripewise.cli.opened import opened


def import_(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A log of another tool, or a trace.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="T", help="Directory to write; must not exist.")],
) -> None:
    """Import a log of another tool as a table on disk, that every command takes in the log's place.

    Every command that takes a trace takes a log as it is, too; an imported one can be read by other programs: T is a
    directory of Parquet files, one for the requests of each file. What the log does not say is stated, here and in T.

    Known are Darshan, dftracer, strace, fio's iolog, CSV and Parquet with the columns of `show --csv` (`file`, `op`,
    `offset` and `size` are enough), and Stripewise's own traces.

    \b
    Examples:
      stripewise import job.darshan -o job.trace
      strace -f -ttt -T -y -s 0 -e trace=file,desc,process \\
          -o run.strace ./simulate
      stripewise import run.strace -o run.trace
    """
    start_s = perf_counter()
    trace = opened(log)
    with console.writing(f"writing {output.name}") as progress:
        trace.save(output, progress=progress)
    took_s = perf_counter() - start_s
    records, files = len(trace), len(trace.paths)
    console.result(f"imported {records} records of {files} files into {output}, {records / took_s:.0f} a second")
