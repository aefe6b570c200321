"""Where files should be, what that gains, and what matters more."""

from __future__ import annotations

from stripewise import _native
from stripewise.exporters.advised import then_set
from stripewise.heading import predicted_lines, then_line, unchanged
from stripewise.report.facts import Facts
from stripewise.report.markup import Markup, items, join, more, paragraph, section, table
from stripewise.units import about_bytes, exact_bytes, mib_per_s, ratio

NAME, TITLE = "advice", "Advice"
ROWS = 20
"""Kinds of files, and findings, that are shown."""
STRIPES = 4
"""Entries of a round that are shown."""


def draw(facts: Facts) -> Markup:
    """The advice, or what a given layout makes of the run."""
    if facts.advice is not None:
        return section(NAME, TITLE, _advice(facts, facts.advice))
    if facts.layout is None:
        return section(NAME, TITLE, paragraph(f"There is none: {facts.no_advice}"))
    text = f"The layouts below are those of {facts.layout.name}; nothing else was planned."
    content = paragraph(text)
    if facts.given is not None:
        # What the page has commands for is priced as those set it.
        set_by = None if facts.native is None else facts.native.priced
        content = items([*predicted_lines(facts.given), then_line(set_by or facts.given)]) + content
    return section(NAME, TITLE, content)


def _advice(facts: Facts, document: _native.AdviceDocument) -> Markup:
    total, cluster = document["total"], document["cluster"]
    opening = items(predicted_lines(document))
    if document["lacking"] is not None:
        return opening + paragraph(f"Layouts: {document['lacking']}") + _findings(document)
    tiers = ", ".join(
        f"{tier['servers']} {tier['name']}" + (f" ({tier['preset']})" if tier["preset"] else "")
        for tier in cluster["tiers"]
    )
    found = "found in the log" if cluster["found"] else f"of '{cluster['name']}' ({facts.servers.label})"
    content = opening + paragraph(f"Servers {found}: {tiers}. Planned by {document['planner']}.", kind="note")
    told = then_set(document, facts.native)
    if told is not None:
        content += paragraph(Markup("<strong>{}</strong>.").format(told))
        content += more("Why the interval is as wide as it is", items(total["reasons"]))
    else:
        content += paragraph(f"Layouts: {unchanged(document)}.")
    content += table(
        ["files", "now", "waits for", "should be", "moved", "MiB/s now", "MiB/s then", "gain"],
        [_row(row) for row in document["files"][:ROWS]],
        "Files that are named, laid out and used alike are one row",
        left=4,
    )
    left = len(document["files"]) - ROWS
    if left > 0:
        content += paragraph(f"And {left:,} kinds of files more: stripewise advise --json has all.", kind="note")
    if any(row["present"]["source"] == "default" for row in document["files"]):
        content += paragraph("?: the log does not say; taken to be the default.", kind="note")
    return content + _findings(document)


def _row(row: _native.AdviseFile) -> list[object]:
    better = row["recommended"]
    return [
        row["path"] + (f" ({row['files']:,} files)" if row["files"] > 1 else ""),
        _layout(row["present"]) + ("?" if row["present"]["source"] == "default" else ""),
        row["present"]["bottleneck"]["words"],
        "no change" if better is None else _layout(better),
        about_bytes(row["read_bytes"] + row["written_bytes"]),
        mib_per_s(row["present"]["bytes_per_s"]),
        "" if better is None else mib_per_s(better["bytes_per_s"]),
        "" if better is None else _gain(row["gain"]),
    ]


def _findings(document: _native.AdviceDocument) -> Markup:
    found = [("the whole run", finding) for finding in document["total"]["findings"]]
    found += [(row["path"], finding) for row in document["files"] for finding in row["findings"]]
    order = {"high": 0, "medium": 1, "low": 2}
    found.sort(key=lambda one: order[one[1]["severity"]])
    if not found:
        return Markup("")
    one = Markup('<li><span class="severity">{}</span>: {}: {}{}</li>')
    listed = join(
        one.format(finding["severity"], path, finding["words"], items(finding["mend"]) if finding["mend"] else "")
        for path, finding in found[:ROWS]
    )
    content = Markup("<h3>Beside the layout</h3>\n<ul>{}</ul>\n").format(listed)
    if len(found) > ROWS:
        content += paragraph(f"And {len(found) - ROWS:,} more: stripewise advise --json has all.", kind="note")
    return content


def _layout(placed: _native.AdvisePlaced) -> str:
    regions = placed["layout"]
    parts = regions[0]["round"]
    text = " ".join(parts[:STRIPES]) + (" …" if len(parts) > STRIPES else "")
    if len(regions) > 1:
        text += f" then {len(regions) - 1} more from {exact_bytes(regions[1]['offset'])}"
    return text + (", others alike" if placed["spread"] else "")


def _gain(gain: _native.AdviseGain) -> str:
    return f"{ratio(gain['ratio'])} ({gain['low']:.2f} to {gain['high']:.2f})"
