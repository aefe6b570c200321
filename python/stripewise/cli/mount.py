"""`stripewise mount`."""

import stat
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from stripewise import native_paths
from stripewise._native import StripewiseError
from stripewise.cli import console
from stripewise.pool import Pool


def mount(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Where, a directory that exists; the pool file's `mount` if left out."),
    ] = None,
) -> None:
    """Mount a pool so that every program sees its files.

    The mount runs in the background until `stripewise umount`. A single program needs none: `stripewise run` makes a
    private one. A mount of the pool whose process has died is cleared from its place first.

    \b
    Examples:
      stripewise mount p/pool.toml
      stripewise mount p/pool.toml /data/scratch
    """
    pool = Pool.load(pool_file)
    where = directory or pool.mount
    if not _may_be_directory(where):
        if directory is None:
            where.mkdir(parents=True, exist_ok=True)
        else:
            raise StripewiseError(f"cannot mount at {where}: it is no directory; make it first with mkdir -p")
    status = subprocess.call([str(native_paths.mount_program()), str(pool.file), str(where)])
    if status == 0:
        emulated = " (emulated servers)" if pool.is_emulated else ""
        console.say(f"mounted pool '{pool.name}'{emulated} at {where}")
    raise SystemExit(status)


def _may_be_directory(path: Path) -> bool:
    """Whether it is one, or cannot be asked: the place of a mount whose process has died answers with an error."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
