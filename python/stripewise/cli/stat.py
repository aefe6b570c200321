"""`stripewise stat`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.cli import console
from stripewise.pool import Pool
from stripewise.units import about_bytes, exact_bytes


def stat(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file of the pool: below its mount, or relative to it.")
    ],
    pool_file: Annotated[
        Path | None,
        typer.Option("--pool", "-p", metavar="POOL", help="Pool file; looked for beside the mount when left out."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show where the bytes of a file are: layout, datafiles, sizes.

    The pool need not be mounted.

    \b
    Examples:
      stripewise stat p/mount/out.h5
      stripewise stat --pool p/pool.toml out.h5 --json
    """
    pool = Pool.around(file) if pool_file is None else Pool.load(pool_file)
    name = path_in_pool(pool, file)
    found: Any = _native.file_stat(str(pool.file), name)
    if as_json:
        console.document(found)
        return
    console.result(f"{name} on pool '{pool.name}' ({pool.label})")
    console.result(f"  size      {found['size_bytes']} bytes ({about_bytes(found['size_bytes'])})")
    if not found["placed"]:
        console.result("  placed    no: a plain file of the namespace, its bytes are the inode's own")
        return
    console.result(f"  handle    {found['handle']}, version {found['version']}")
    console.result(f"  layout    {found['layout_hash']}")
    console.out.print()
    regions = console.table(
        ["region", "from", "to", "generation", "round"], right=["region", "from", "to", "generation"]
    )
    rows = found["regions"]
    for number, region in enumerate(rows):
        end = exact_bytes(rows[number + 1]["offset"]) if number + 1 < len(rows) else "end"
        regions.add_row(
            str(number), exact_bytes(region["offset"]), end, str(region["generation"]), " ".join(region["round"])
        )
    console.out.print(regions)
    console.out.print()
    datafiles = console.table(["server", "allocated", "size", "datafile"], right=["allocated", "size"])
    for datafile in found["datafiles"]:
        datafiles.add_row(
            datafile["server"],
            about_bytes(datafile["allocated_bytes"]) if datafile["error"] is None else datafile["error"],
            about_bytes(datafile["size_bytes"]) if datafile["error"] is None else "-",
            datafile["path"],
        )
    console.out.print(datafiles)


def path_in_pool(pool: Pool, file: Path) -> str:
    """The path of `file` relative to the pool's mount; a relative `file` that is not below the mount is one already.

    Raises `StripewiseError` for an absolute path elsewhere.
    """
    absolute = Path(os.path.abspath(file))
    if absolute.is_relative_to(pool.mount):
        return str(absolute.relative_to(pool.mount))
    if file.is_absolute():
        raise StripewiseError(f"{file} is not below {pool.mount}, the mount of pool '{pool.name}'")
    return os.path.normpath(file)
