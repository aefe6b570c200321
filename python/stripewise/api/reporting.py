"""`write_report`: how a program used its files, and what a layout makes of it, as one HTML page or one picture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stripewise import _native, outputs
from stripewise._native import StripewiseError
from stripewise.api import activity, adapt, heat
from stripewise.api.trace import Trace
from stripewise.pool import Pool

if TYPE_CHECKING:
    from stripewise.report.facts import Adapted

PAGES = (".html", ".htm")
PICTURES = (".png", ".svg", ".pdf")
"""Ends of names of a picture for a slide."""


def check_page(output: Path) -> None:
    """Raises `StripewiseError` where no report can be written, before a long log is read."""
    if output.suffix.lower() not in PAGES + PICTURES:
        raise StripewiseError(
            f"{output}: a report is an HTML page, or a picture for a slide; "
            f"name it with one of {', '.join(PAGES[:1] + PICTURES)} at its end"
        )
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
    """Writes the page, or the picture where `output` is named as one.

    Servers are those of a pool or cluster file, else those that the log shows. The layout drawn is that of a layout
    file, else what `advise` recommends with `planner` and `preset`. `begin` begins a step and returns what its progress
    is told to.
    """
    check_page(output)
    # Charts take longer to load than everything else.
    from stripewise.report.gather import gather
    from stripewise.report.page import page
    from stripewise.report.slide import slide

    facts = gather(
        trace.native,
        trace.path,
        part=trace.part,
        servers=servers,
        layout=layout,
        root=root,
        planner=planner,
        preset=preset,
        adapted=None if servers is None else _adapted(servers),
        meta_load=None if servers is None else _meta_load(servers),
        begin=begin,
    )
    suffix, drawing = output.suffix.lower(), begin("drawing")
    if suffix in PICTURES:
        outputs.write(slide(facts, suffix), output)
    else:
        outputs.write(page(facts, drawing).encode("utf-8", "replace"), output)


HOTTEST_FILES = 12
HEAT_COLUMNS = 48


def _meta_load(servers: Path) -> _native.MetaLoad | None:
    """What a pool's metadata tier served of late; `None` for servers that are a cluster file's."""
    if _native.cluster_load(str(servers))["kind"] != "pool":
        return None
    return activity.meta_load(Pool.load(servers))


def _adapted(servers: Path) -> Adapted | None:
    """What a pool has adapted to; `None` for servers that are a cluster file's."""
    from stripewise.report.facts import Adapted

    if _native.cluster_load(str(servers))["kind"] != "pool":
        return None
    pool = Pool.load(servers)
    # What this user may not read is left out, as that of root's in a shared pool.
    hot: list[heat.HotFile] = []
    with suppress(StripewiseError):
        hot = heat.hottest(pool, HOTTEST_FILES, HEAT_COLUMNS)
    decisions: list[adapt.Decision] = []
    with suppress(StripewiseError):
        decisions = adapt.decisions(pool)
    return Adapted([(of.path, of.cost_us, of.parts) for of in hot], decisions)
