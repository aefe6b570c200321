"""`write_report`: how a program used its files, and what a layout makes of it, as one HTML page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stripewise._native import StripewiseError
from stripewise.api.trace import Trace


def check_page(output: Path) -> None:
    """Raises `StripewiseError` where no page can be written, before a long log is read."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise StripewiseError(f"{output}: a report is an HTML page; name it with .html at its end")
    if not output.absolute().parent.is_dir():
        raise StripewiseError(f"{output}: there is no directory {output.absolute().parent}; make it first")


def write_report(
    trace: Trace,
    output: Path,
    begin: Callable[[str], Callable[[int, int], None]],
    *,
    servers: Path | None = None,
    layout: Path | None = None,
    root: Path | None = None,
    planner: str | None = None,
    preset: str = "hdd-7200",
) -> None:
    """Writes the page, on the servers of a pool or cluster file, else on those that the log shows.

    The layout drawn is that of a layout file, else what `advise` recommends with `planner` and `preset`. `begin` begins
    a step and returns what its progress is told to.
    """
    check_page(output)
    # Charts take longer to load than everything else.
    from stripewise.report.gather import gather
    from stripewise.report.page import page, write

    facts = gather(
        trace.native,
        trace.path,
        servers=servers,
        layout=layout,
        root=root,
        planner=planner,
        preset=preset,
        begin=begin,
    )
    write(page(facts, begin("drawing")), output)
