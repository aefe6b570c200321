"""`stripewise trace`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import running
from stripewise.api.pools import Pool
from stripewise.cli import console
from stripewise.cli.run import Command, ProgramOption


def trace(
    command: Command,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="T", help="Trace file to write.")],
    pool_file: Annotated[
        Path | None, typer.Option("--pool", "-p", metavar="POOL", help="Run CMD on this pool; without it, where it is.")
    ] = None,
    program: ProgramOption = None,
) -> None:
    """Record every request that a program makes: process, file, operation, offset, size, time.

    All processes that CMD starts are recorded, with their MPI rank. The exit code is CMD's own; the trace is written
    whatever it is.

    \b
    Examples:
      stripewise trace -o run.trace -- ./simulate
      stripewise trace --pool p/pool.toml -o run.trace -- \\
          mpiexec -n 16 ./simulate p/mount/out.h5
      stripewise show run.trace
    """
    try:
        ran = running.run(command, Pool.load(pool_file) if pool_file else None, program=program, trace=output)
    except running.NothingRecordedError as error:
        console.fail(str(error), error.exit_code)
    console.say(f"recorded {output}")
    if ran.emulation is not None:
        console.say(ran.emulation.report())
    raise SystemExit(ran.exit_code)
