"""`stripewise umount`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import running


def umount(
    target: Annotated[Path, typer.Argument(metavar="DIR|POOL", help="Where the pool is mounted, or its pool file.")],
    lazy: Annotated[
        bool,
        typer.Option("--lazy", help="Though programs use it: no new ones come in, open files are served until closed."),
    ] = False,
) -> None:
    """Take a pool's mount away; its files stay on the servers.

    It returns when the process of the mount has ended, so that all is on the servers; with --lazy at once. A mount
    whose process has died is cleared.

    \b
    Examples:
      stripewise umount p/mount
      stripewise umount p/pool.toml
      stripewise umount --lazy p/mount         programs go on with open files
    """
    raise SystemExit(running.unmount(target, lazy=lazy))
