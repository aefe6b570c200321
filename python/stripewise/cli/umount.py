"""`stripewise umount`."""

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from stripewise import native_paths
from stripewise.pool import Pool


def umount(
    target: Annotated[Path, typer.Argument(metavar="DIR|POOL", help="Where the pool is mounted, or its pool file.")],
) -> None:
    """Take a pool's mount away; its files stay on the servers.

    \b
    Examples:
      stripewise umount p/mount
      stripewise umount p/pool.toml
    """
    directory = Pool.load(target).mount if target.is_file() else target
    raise SystemExit(subprocess.call([str(native_paths.mount_program()), "--unmount", str(directory)]))
