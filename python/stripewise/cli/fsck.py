"""`stripewise fsck`."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stripewise import StripewiseError
from stripewise.api import maintenance
from stripewise.cli import console
from stripewise.terminal import name

if TYPE_CHECKING:
    from stripewise.api.documents import FsckFinding, FsckReport

EXIT_OPERATIONAL = 8
"""As fsck(8): the pool could not be checked at all."""

WORDS = {"mended": "mended", "would-mend": "to mend", "left": "LEFT", "in-use": "IN USE", "note": "note"}


def fsck(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only say what would be mended.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each finding, and one with the sum.")
    ] = False,
    rebind: Annotated[
        bool,
        typer.Option(
            "--rebind", help="Take over a copied or restored pool: new uuid, handles of the inodes there are."
        ),
    ] = False,
    layouts_from: Annotated[
        list[Path] | None,
        typer.Option("--layouts-from", metavar="POOL", help="Another pool that may have a missing layout; repeatable."),
    ] = None,
    forget_missing: Annotated[
        bool,
        typer.Option(
            "--forget-missing", help="Give datafiles up that are gone: their bytes read as zeros from now on."
        ),
    ] = False,
    remove_orphans: Annotated[
        bool, typer.Option("--remove-orphans", help="Remove orphan datafiles instead of keeping them in lost+found.")
    ] = False,
    scrub: Annotated[
        bool,
        typer.Option(
            "--scrub", help="Read every byte of every file from its disk as well, and name what cannot be read."
        ),
    ] = False,
) -> None:
    """Check a pool and mend what crashes, copies and people left in it.

    Files that a program writes are left alone, and no byte is destroyed that might still be wanted: what no file names
    goes to lost+found on its server. What needs the whole pool to itself is left while it is mounted. A run that was
    interrupted is finished by the next one.

    \b
    Examples:
      stripewise fsck p/pool.toml --dry-run    look, change nothing
      stripewise fsck p/pool.toml              mend
      stripewise fsck p/pool.toml --scrub      mend, and read everything
      stripewise fsck p/pool.toml --rebind     after a copy or a restore

    \b
    Exit codes, as fsck(8):
      0  nothing was wrong
      1  all that was wrong is mended
      4  something is left; with --dry-run: is wrong (5: some mended, some left)
      8  the pool could not be checked; the message says why
    """
    with console.steps() as begin:
        bars: dict[str, Any] = {}
        first = Lock()

        def progress(step: str, done: int, of: int | None) -> None:
            # Called by several threads.
            with first:
                if step not in bars:
                    bars[step] = begin("reading", True) if step == "bytes" else begin(f"checking {step}")
            # Without a number of all, the bar only shows that it moves.
            bars[step](done, of)

        def found(finding: FsckFinding) -> None:
            console.record(finding) if as_json else console.result(line(finding))

        try:
            report = maintenance.check(
                pool_file,
                dry_run=dry_run,
                rebind=rebind,
                forget_missing=forget_missing,
                remove_orphans=remove_orphans,
                scrub=scrub,
                layouts_from=layouts_from or [],
                found=found,
                progress=progress,
            )
        except StripewiseError as error:
            console.fail(str(error), EXIT_OPERATIONAL)
    if as_json:
        console.record({"report": report})
    else:
        console.result(summary(report))
    raise typer.Exit(report["exit_code"])


def line(finding: FsckFinding) -> str:
    """A finding as a person reads it."""
    place = [name(part) for part in (finding["path"], finding["server"], finding["object"]) if part]
    where = ", ".join(place) or "pool"
    what = name(f"{finding['what']} -- {finding['action']}")
    return f"{WORDS[finding['outcome']]:<8} {finding['kind']:<20} {where}: {what}"


def summary(report: FsckReport) -> str:
    """The last line."""
    total = report["total"]
    parts = [f"{report['files']} files, {report['placed_files']} of them placed, {report['datafiles']} datafiles"]
    if report["read_bytes"]:
        parts.append(f"{report['read_bytes']} bytes read")
    if report["files_in_use"]:
        parts.append(f"{report['files_in_use']} being written and left alone")
    wrong = {
        "mended": total["mended"],
        "to mend": total["would_mend"],
        "left": total["left"],
        "in use": total["in_use"],
    }
    parts.append(", ".join(f"{number} {word}" for word, number in wrong.items() if number) or "clean")
    return "; ".join(parts)
