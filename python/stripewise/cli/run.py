"""`stripewise run`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import running
from stripewise.api.pools import Pool
from stripewise.cli import console

PoolOption = Annotated[Path, typer.Option("--pool", "-p", metavar="POOL", help="Pool file.")]
ProgramOption = Annotated[
    str | None,
    typer.Option(
        "--program",
        metavar="NAME",
        help="Name for `stripewise orchestrate`; runs of one name are one program. Else the job's, or one of its own.",
        show_default=False,
    ),
]
Command = Annotated[list[str], typer.Argument(metavar="CMD", help="Program and its arguments.", show_default=False)]


def run(
    command: Command,
    pool_file: PoolOption,
    no_preload: Annotated[
        bool, typer.Option("--no-preload", help="Serve every request through the mount; nothing is put into CMD.")
    ] = False,
    program: ProgramOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No statistics of emulated servers at the end.")] = False,
) -> None:
    """Run any program on a pool.

    CMD sees the pool's files at the pool's mount path. Where the pool is mounted already, that mount is used; else CMD
    gets a private mount that ends with it. Reads and writes of dynamically linked programs go straight to the servers,
    all else through the mount. The exit code is CMD's own.

    \b
    Examples:
      stripewise run --pool p/pool.toml -- cp big.dat p/mount/
      stripewise run --pool p/pool.toml -- mpiexec -n 16 ./simulate p/mount/out.h5
      stripewise run --pool p/pool.toml bash
    """
    ran = running.run(command, Pool.load(pool_file), preload=not no_preload, program=program)
    if ran.emulation is not None and not quiet:
        console.say(ran.emulation.report())
    raise SystemExit(ran.exit_code)
