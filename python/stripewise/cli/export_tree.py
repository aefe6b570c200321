"""`stripewise export-tree`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise.api import maintenance
from stripewise.cli import console
from stripewise.terminal import name
from stripewise.units import about_bytes

if TYPE_CHECKING:
    from stripewise.api.documents import ExportFailure

SHOWN_AT_END = 1000
"""Failures that are listed once more when all is done."""


def export_tree(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    destination: Annotated[
        Path, typer.Argument(metavar="DEST", help="A new or empty directory, or that of an export that was stopped.")
    ],
    verify_only: Annotated[
        bool, typer.Option("--verify-only", help="Only compare DEST with the pool, byte by byte; write nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Copy all files of a pool out, as plain files.

    Names, bytes, holes, modes, owners, times, links and attributes come out as they are in the pool, which need not be
    mounted. Each file is read back and compared by blake3 before it gets its name. Run it again to go on with an export
    that was stopped. What fails is listed at the end, and all else is there.

    \b
    Examples:
      stripewise export-tree p/pool.toml /backup/pool
      stripewise export-tree p/pool.toml /backup/pool --verify-only
    """
    failures: list[ExportFailure] = []

    def failed(failure: ExportFailure) -> None:
        if len(failures) < SHOWN_AT_END:
            failures.append(failure)

    with console.reading("comparing" if verify_only else "copying and comparing") as update:
        report = maintenance.export_tree(
            pool_file, destination, verify_only=verify_only, failed=failed, progress=update
        )
    if as_json:
        console.document({**report, "failures": failures})
    else:
        resumed = f", {report['resumed_files']} of them by an earlier run" if report["resumed_files"] else ""
        console.result(
            f"{report['files']} files{resumed}, {about_bytes(report['bytes'])}, {report['directories']} directories, "
            f"{report['symlinks']} symbolic links, {report['hard_links']} hard links, "
            f"{report['special_files']} special files: copied and compared"
            if not verify_only
            else f"{report['files']} files, {about_bytes(report['bytes'])}: the same"
        )
    if report["owners_not_kept"]:
        console.warn(f"{report['owners_not_kept']} owners could not be kept: run as root to keep them")
    for failure in failures:
        console.say(f"{name(failure['path'])}: {name(failure['reason'])}")
    if report["failed"]:
        more = f" (the first {SHOWN_AT_END} are listed)" if report["failed"] > SHOWN_AT_END else ""
        console.fail(f"{report['failed']} names failed{more}; all others are there")
