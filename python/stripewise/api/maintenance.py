"""Checking a pool and mending it; getting all its files out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stripewise import _native
from stripewise.pool import file_of

if TYPE_CHECKING:
    from stripewise._native import ExportFailure, ExportReport, FsckFinding, FsckReport


def check(
    pool: Path,
    *,
    dry_run: bool = False,
    rebind: bool = False,
    forget_missing: bool = False,
    remove_orphans: bool = False,
    scrub: bool = False,
    layouts_from: Sequence[Path] = (),
    found: Callable[[FsckFinding], None] | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> FsckReport:
    """Checks a pool and mends it, as `stripewise fsck` does with the options of these names.

    `found` is called with each finding as it comes; `progress` with a step, how much of it is done and how much it has
    in all (`None` where that is not known), by several threads. What they raise ends the check.
    """
    return _native.pool_fsck(
        str(file_of(pool)),
        dry_run=dry_run,
        rebind=rebind,
        forget_missing=forget_missing,
        remove_orphans=remove_orphans,
        scrub=scrub,
        layouts_from=[str(file_of(path)) for path in layouts_from],
        found=found or (lambda _: None),
        progress=progress or (lambda *_: None),
    )


def export_tree(
    pool: Path,
    to: Path,
    *,
    verify_only: bool = False,
    failed: Callable[[ExportFailure], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ExportReport:
    """Copies all files of a pool to the directory `to`, or goes on with an earlier copy.

    With `verify_only` the copy is compared and nothing is written. `failed` is called with each name that failed;
    `progress` with bytes done and all bytes.
    """
    return _native.pool_export_tree(
        str(file_of(pool)),
        str(to),
        verify_only,
        failed or (lambda _: None),
        lambda _step, done, of: progress(done, of) if progress is not None else None,
    )
