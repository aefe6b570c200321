"""The run in a few figures."""

from __future__ import annotations

from stripewise.heading import job_heading
from stripewise.report.facts import Facts, moved
from stripewise.report.markup import Markup, items, join, paragraph, section
from stripewise.units import about_bytes, seconds

NAME, TITLE = "overview", "The run"
MOST_PROGRAMS = 6


def draw(facts: Facts) -> Markup:
    """Programs, processes, files, bytes, requests, time."""
    access = facts.access
    files = access["files"]
    # Where the rows are a sample, the maps and tables below are of that; the sums are not.
    read, written = (facts.total[way] for way in ("reads", "writes"))
    run_s = facts.about["run_s"]
    figures = {
        "read": about_bytes(read["bytes"]),
        "written": about_bytes(written["bytes"]),
        "requests": f"{read['requests'] + written['requests']:,}",
        "files read or written": f"{len(files):,}",
        f"{facts.units} that did": f"{len(access['processes']):,}",
        "first to last request": seconds(access["end_s"] - access["start_s"]),
    }
    if run_s is not None:
        figures["the run took"] = seconds(run_s)
    entry = Markup("<div><dt>{}</dt><dd>{}</dd></div>")
    content = Markup('<dl class="facts">{}</dl>\n').format(join(entry.format(*figure) for figure in figures.items()))
    content = items(job_heading(facts.job)) + content
    if facts.part:
        content += paragraph(f"This is of {facts.part} alone.")
    names = ", ".join(facts.programs[:MOST_PROGRAMS])
    more = len(facts.programs) - MOST_PROGRAMS
    if names:
        content += paragraph(f"Programs: {names}" + (f" and {more} more" if more > 0 else ""), kind="note")
    if not files or not any(map(moved, files)):
        content += paragraph("No byte of any file was read or written, as far as the log says: nothing can be drawn.")
    return section(NAME, TITLE, content)
