"""`stripewise apply`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise.api import placing
from stripewise.api.pools import Pool
from stripewise.cli import console, draining
from stripewise.terminal import name
from stripewise.units import about_bytes, counted, exact_bytes

if TYPE_CHECKING:
    from stripewise.api.documents import Applied, Forecast, ForecastRegion

SHOWN_REGIONS = 3
"""Regions of a file that a dry run shows; --json has all."""


def apply(
    layout: Annotated[Path, typer.Argument(metavar="LAYOUT", help="Layout file, written by `plan` or by hand.")],
    pool_file: Annotated[Path, typer.Option("--pool", "-p", metavar="POOL", help="Pool file.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all, say what would be moved where, and change nothing.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="List every file, however many.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was (or would be) done as JSON.")] = False,
) -> None:
    """Set layouts: files that exist are moved, files to come get theirs when they are made.

    The whole layout file is checked first: an unknown server, a broken line or a file that does not fit changes
    nothing. A file is copied, the copy is read back and compared by check sum, then one atomic switch makes it the
    file. A file that a program keeps in its place is refused, and so is a second `apply` while one is under way.

    \b
    Examples:
      stripewise apply new.layout --pool p/pool.toml --dry-run
      stripewise apply new.layout --pool p/pool.toml

    \b
    Exit codes: 0 done, 1 refused or failed; the same with --dry-run.
    """
    pool = Pool.load(pool_file)
    if dry_run:
        forecast = placing.forecast(layout, pool)
        if as_json:
            console.document({"dry_run": True, **forecast})
        else:
            _print_forecast(forecast, everything=everything)
        return
    with console.moving() as progress:
        done = draining.in_turn(pool, lambda: placing.apply(layout, pool, progress=progress))
    if as_json:
        console.document({"dry_run": False, **_document(done)})
    else:
        _print(done, everything=everything)


def _document(done: list[Applied]) -> dict[str, object]:
    files = [
        {
            "path": applied["path"],
            "copied_bytes": applied["copied_bytes"],
            "kept_bytes": applied["kept_bytes"],
            "checksum": applied["checksum"],
        }
        for applied in done
        if applied["kind"] == "moved"
    ]
    return {"files": files, "rules": [applied["path"] for applied in done if applied["kind"] == "rule"]}


def _print(done: list[Applied], *, everything: bool) -> None:
    for applied in console.shown(done, everything=everything):
        path = applied["path"]
        if applied["kind"] == "rule":
            console.result(f"{path}: rule set for files to come")
        elif applied["copied_bytes"] == 0:
            console.result(f"{path}: nothing to move")
        else:
            console.result(
                f"{path}: moved {about_bytes(applied['copied_bytes'])}, kept {about_bytes(applied['kept_bytes'])}, "
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


def _print_forecast(forecast: Forecast, *, everything: bool) -> None:
    files = forecast["files"]
    changed = [file for file in files if file["before"] != file["after"]]
    if changed:
        grid = console.table(["file", "would move", "keep", "from", "to"], right=["would move", "keep"], paths=["file"])
        for file in console.shown(changed, everything=everything):
            copied, kept = about_bytes(file["copied_bytes"]), about_bytes(file["kept_bytes"])
            grid.add_row(name(file["path"]), copied, kept, _layout(file["before"]), _layout(file["after"]))
        console.out.print(grid)
        console.say_more(changed, "files would be moved", everything=everything, otherwise=", --json has everything")
        servers = console.table(["server", "free now", "free after"], right=["free now", "free after"])
        for server in forecast["servers"]:
            servers.add_row(server["server"], _room(server["free_bytes"]), _room(server["free_after_bytes"]))
        console.out.print()
        console.out.print(servers)
        console.out.print()
    copied_bytes = sum(file["copied_bytes"] for file in files)
    console.result(
        f"would move {about_bytes(copied_bytes)} of {counted(len(changed), 'file')}, leave "
        f"{counted(len(files) - len(changed), 'file')} as they are, and set {counted(len(forecast['rules']), 'rule')} "
        "for files to come; nothing was changed"
    )


def _layout(regions: list[ForecastRegion]) -> str:
    """The rounds of the first regions, each with its offset where there are several."""
    if len(regions) == 1:
        return " ".join(regions[0]["round"])
    shown = [f"{exact_bytes(region['offset'])}: {' '.join(region['round'])}" for region in regions[:SHOWN_REGIONS]]
    more = len(regions) - SHOWN_REGIONS
    return ", ".join(shown) + (f", and {counted(more, 'region')} more" if more > 0 else "")


def _room(free_bytes: int | None) -> str:
    return "without limit" if free_bytes is None else about_bytes(free_bytes)
