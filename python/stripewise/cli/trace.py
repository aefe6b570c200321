"""`stripewise trace`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise import emulation, launch
from stripewise._native import trace_merge
from stripewise.cli import console
from stripewise.cli.run import Command
from stripewise.pool import Pool


def trace(
    command: Command,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="T", help="Trace file to write.")],
    pool_file: Annotated[
        Path | None, typer.Option("--pool", "-p", metavar="POOL", help="Run CMD on this pool; without it, where it is.")
    ] = None,
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
    pool = Pool.load(pool_file) if pool_file else None
    before = emulation.snapshot(pool) if pool else None
    with launch.recording_dir(output) as records:
        ended = launch.run(
            command,
            pool_file=pool.file if pool else None,
            mount=pool.mount if pool else None,
            trace_dir=records,
        )
        if ended.exit_code != 0 and not any(records.iterdir()):
            # The program need not have begun, where there was no mount for it.
            console.fail(f"nothing was recorded: {command[0]} ended with exit code {ended.exit_code}", ended.exit_code)
        trace_merge(str(records), str(output))
    console.say(f"recorded {output}")
    if before is not None and pool is not None and pool.is_emulated:
        console.say(emulation.since(before).report())
    raise SystemExit(ended.exit_code)
