"""The files, and how each is used in words."""

from __future__ import annotations

from stripewise.report.facts import Facts, moved, requests
from stripewise.report.markup import Markup, section, table
from stripewise.units import about_bytes

NAME, TITLE = "files", "How the files are used"
ROWS = 25


def draw(facts: Facts) -> Markup:
    """A row a file, those of which most bytes were moved first."""
    files = sorted(facts.access["files"], key=lambda file: (-moved(file), file["file"]))
    if not files:
        return Markup("")
    rows = [
        [
            facts.files[file["file"]],
            signature["words"] if (signature := facts.signatures.get(file["file"])) is not None else "not known",
            f"{requests(file):,}",
            about_bytes(file["reads"]["bytes"]),
            about_bytes(file["writes"]["bytes"]),
            about_bytes(file["extent_bytes"]),
            f"{file['processes']:,}",
        ]
        for file in files[:ROWS]
    ]
    rest = files[ROWS:]
    if rest:
        rows.append(
            [
                f"{len(rest):,} more files",
                "stripewise signature tells of each",
                f"{sum(map(requests, rest)):,}",
                about_bytes(sum(file["reads"]["bytes"] for file in rest)),
                about_bytes(sum(file["writes"]["bytes"] for file in rest)),
                "",
                "",
            ]
        )
    columns = ["file", "used", "requests", "read", "written", "extent", facts.units]
    return section(NAME, TITLE, table(columns, rows, "Files in order of bytes moved", left=2))
