"""`stripewise apply`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise.cli import console
from stripewise.optimize import place
from stripewise.pool import Pool
from stripewise.units import about_bytes


def apply(
    layout: Annotated[Path, typer.Argument(metavar="LAYOUT", help="Layout file, written by `plan` or by hand.")],
    pool_file: Annotated[Path, typer.Option("--pool", "-p", metavar="POOL", help="Pool file.")],
) -> None:
    """Set layouts: files that exist are moved, files to come get theirs when they are made.

    The whole layout file is checked first: an unknown server or a broken line changes nothing. A file is copied, the
    copy is read back and compared by check sum, then one atomic switch makes it the file. A file that is open for
    writing is refused.

    \b
    Examples:
      stripewise apply new.layout --pool p/pool.toml
    """
    pool = Pool.load(pool_file)
    with console.moving() as progress:
        done = place.apply(layout, pool, rules=True, progress=progress)
    for applied in done:
        name = applied["path"]
        if applied["kind"] == "rule":
            console.result(f"{name}: rule set for files to come")
        elif applied["copied_bytes"] == 0:
            console.result(f"{name}: nothing to move")
        else:
            console.result(
                f"{name}: moved {about_bytes(applied['copied_bytes'])}, kept {about_bytes(applied['kept_bytes'])}, "
                f"blake3 {applied['checksum']}"
            )
