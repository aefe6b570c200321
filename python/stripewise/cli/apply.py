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
    everything: Annotated[bool, typer.Option("--all", help="List every file, however many.")] = False,
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
    for applied in console.shown(done, everything=everything):
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
    console.say_more(done, "files and rules were set", everything=everything)
    if len(done) > console.SHOWN_FILES:
        moved = [applied for applied in done if applied["kind"] != "rule"]
        copied, kept = (sum(applied[part] for applied in moved) for part in ("copied_bytes", "kept_bytes"))
        console.result(
            f"{len(moved):,} files: moved {about_bytes(copied)}, kept {about_bytes(kept)}; "
            f"{len(done) - len(moved):,} rules for files to come"
        )
