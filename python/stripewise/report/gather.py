"""From a trace and what is asked for to the facts of a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stripewise import _native, exporters
from stripewise._native import StripewiseError, Trace
from stripewise.exporters import pricing
from stripewise.exporters.advised import Native, of_advice, priced
from stripewise.pool import Pool
from stripewise.report.facts import COLUMNS, MOST_FILES, ROWS, Adapted, Facts, Servers

Say = Callable[[str], Callable[[int, int], None]]
"""Begins a step and gives the callback for its progress."""


def gather(
    trace: Trace,
    source: Path,
    *,
    part: str,
    servers: Path | None,
    layout: Path | None,
    root: Path | None,
    planner: str | None,
    preset: str,
    adapted: Adapted | None,
    meta_load: _native.MetaLoad | None,
    begin: Say,
) -> Facts:
    """All facts; `servers` is a pool file or a cluster file.

    Of a pool, `adapted` is what it has adapted to, and `meta_load` what its metadata tier served of late.

    Raises `StripewiseError` for servers and layouts that are wrong. Where neither is given and the log does not show
    any servers, there is no advice, and that is no error.
    """
    described = _native.cluster_load(str(servers)) if servers is not None else None
    is_pool = described is not None and described["kind"] == "pool"
    if servers is None:
        label = f"servers found in the log, as {preset}"
    else:
        label = Pool.load(servers).label if is_pool else f"servers as {servers.name} describes them"
    access = _native.access(trace, most=MOST_FILES, columns=COLUMNS, rows=ROWS, progress=begin("reading requests"))
    signed = {file["file"]: file for file in _native.TraceSignature(trace, begin("finding patterns")).files()}
    advice, given, load, native, reason = None, None, None, None, ""
    place = None if servers is None else str(servers)
    below = None if root is None else str(root.absolute())

    def ask(text: str) -> _native.AdviceDocument:
        return _native.advise(trace, place, root=below, preset=preset, layout=text, origin=str(layout or "the layout"))

    try:
        if layout is None:
            begin("planning")
            advice = _native.advise(trace, place, root=below, planner=planner, preset=preset)
        begin("simulating")
        text = advice["layout"] if advice is not None else _text(layout)
        if layout is not None:
            given = ask(text)
        load = _native.server_load(trace, place, text, str(layout or "the layout"), root=below, preset=preset)
        if advice is not None:
            native = of_advice(advice, trace, ask)
        elif described is not None:
            native = _native_of(text, described, load, trace, ask)
    except StripewiseError as error:
        if servers is not None or layout is not None:
            raise
        reason = str(error)
    numbers = list(range(len(trace.files())))
    facts = Facts(
        source=source,
        part=part,
        about=trace.about(),
        job=_native.job_facts(trace),
        files=[_shown(path) for path in trace.files()],
        programs=trace.programs(),
        access=access,
        total=trace.summaries([numbers])[0],
        signatures=signed,
        servers=Servers(servers, is_pool, label),
        layout=layout,
        advice=advice,
        given=given,
        no_advice=reason,
        load=load,
        native=native,
        adapted=adapted,
        meta_load=meta_load,
    )
    return facts


def _shown(path: object) -> str:
    """A path as text: bytes of it that are none are marked."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _text(layout: Path | None) -> str:
    assert layout is not None
    try:
        return layout.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise StripewiseError(f"{layout} is no layout file: it is not text ({error.reason})") from error


def _native_of(
    text: str,
    cluster: _native.ClusterInfo,
    load: _native.ServerLoad,
    trace: Trace,
    given: Callable[[str], _native.AdviceDocument],
) -> Native | None:
    """A layout file that was given, in the commands of the cluster's file system, if that is known."""
    document = _native.layout_parse(text)
    if cluster["file_system"] is None or not document["files"]:
        return None
    patterns = [file["path"] for file in document["files"]]
    workloads = pricing.of_trace(trace, load["root"], patterns)
    exported = exporters.export(document, cluster=cluster, workloads=workloads, root=load["root"], existing=True)
    assumed = ("the files are there and no program writes them meanwhile",)
    return Native(exported, True, assumed, priced(exported, given))
