"""`stripewise umount`."""

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from stripewise import native_paths
from stripewise.pool import Pool


def umount(
    target: Annotated[Path, typer.Argument(metavar="DIR|POOL", help="Where the pool is mounted, or its pool file.")],
    lazy: Annotated[
        bool,
        typer.Option("--lazy", help="Though programs use it: no new ones come in, open files are served until closed."),
    ] = False,
) -> None:
    """Take a pool's mount away; its files stay on the servers.

    \b
    Examples:
      stripewise umount p/mount
      stripewise umount p/pool.toml
      stripewise umount --lazy p/mount         programs go on with open files
    """
    directory = Pool.load(target).mount if target.is_file() else target
    options = ["--lazy"] if lazy else []
    raise SystemExit(subprocess.call([str(native_paths.mount_program()), *options, "--unmount", str(directory)]))
