"""`stripewise stat`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise import terminal
from stripewise.api import placing
from stripewise.api.pools import Pool
from stripewise.cli import console
from stripewise.units import about_bytes, exact_bytes


def stat(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A file, directory or link of a pool; with --pool also its path in it."),
    ],
    pool_file: Annotated[
        Path | None,
        typer.Option("--pool", "-p", metavar="POOL", help="Pool file; found by the path when left out."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show where the bytes of a file are: layout, datafiles, sizes.

    FILE is a path on any pool that is mounted, in a pool's namespace, or below the mount of a pool that is not mounted
    and whose pool file is in a directory above it. A link on a pool is shown itself.

    \b
    Examples:
      stripewise stat p/mount/out.h5
      stripewise stat /data/scratch/results
      stripewise stat --pool p/pool.toml out.h5 --json
    """
    place = placing.place_of(file, None if pool_file is None else Pool.load(pool_file))
    pool, name = place.pool, place.name
    found = placing.stat(place)
    if as_json:
        console.document(found)
        return
    console.result(f"{terminal.name(name)} on pool '{pool.name}' ({pool.label})")
    if found["kind"] != "file":
        target = f" to {terminal.name(found['target'])}" if "target" in found else ""
        console.result(f"  kind      {found['kind']}{target}: it is in the namespace alone, no server has a part of it")
        return
    console.result(f"  size      {found['size_bytes']} bytes ({about_bytes(found['size_bytes'])})")
    handle = "none: all bytes are the inode's own"
    if found["placed"]:
        handle = f"{found['handle']}, version {found['version']}"
    console.result(f"  handle    {handle}")
    if found["made_with"]:
        console.result(f"  made with {', '.join(found['made_with'])}")
    console.result(f"  layout    {found['layout_hash']}")
    if found["landed_on"]:
        console.result(f"  landed    on {found['landed_on']}, until it moves to its place (`stripewise pool settle`)")
    if found["left_out"]:
        console.result(f"  left out  {', '.join(found['left_out'])}: without room when the file was made")
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
