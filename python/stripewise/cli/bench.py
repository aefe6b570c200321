"""`stripewise bench`."""

import os
from typing import Annotated

import typer

from stripewise.api import running


def bench(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", show_default=False)] = None,
) -> None:
    """Generate I/O: the workloads of the literature, as real compiled processes with checked data.

    Everything after `bench` goes to `stripewise-bench`; its own help says what it takes.

    \b
    Examples:
      stripewise bench --help
      stripewise run --pool p/pool.toml -- stripewise bench p/mount/bench.dat --processes 16
      stripewise trace --pool p/pool.toml -o bt.trace -- stripewise bench btio p/mount/bt.out --class W
    """
    program = str(running.bench_program())
    os.execv(program, ["stripewise bench", *(arguments or [])])
