"""The files, and how each is used in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stripewise import _native
from stripewise.report.facts import Facts, moved, requests
from stripewise.report.markup import Markup, section, table
from stripewise.signing import grouped
from stripewise.units import about_bytes

NAME, TITLE = "files", "How the files are used"
ROWS = 25


def draw(facts: Facts) -> Markup:
    """A row for files that are named and used alike, those of which most bytes were moved first."""
    access = {file["file"]: file for file in facts.access["files"]}
    if not access:
        return Markup("")
    signed = [signature for number, signature in facts.signatures.items() if number in access]
    groups = [
        (name, [access[row["file"]] for row in group.files], group.files[0]["words"])
        for group in grouped(signed)
        for name in [group.path + (f" ({len(group.files):,} files)" if len(group.files) > 1 else "")]
    ]
    unknown = [file for number, file in access.items() if number not in facts.signatures]
    groups += [(facts.files[file["file"]], [file], "not known") for file in unknown]
    groups.sort(key=lambda group: -sum(map(moved, group[1])))
    rows = [[name, words, *_figures(files), f"{_most(files, 'processes'):,}"] for name, files, words in groups[:ROWS]]
    rest = [file for _, files, _ in groups[ROWS:] for file in files]
    if rest:
        rows.append([f"{len(rest):,} more files", "stripewise signature tells of each", *_figures(rest), ""])
    columns = ["file", "used", "requests", "read", "written", "extent", facts.units]
    return section(NAME, TITLE, table(columns, rows, "Files in order of bytes moved", left=2))


def _figures(files: Sequence[_native.FileAccess]) -> list[str]:
    """Requests, bytes read and written of some files together, and the extent of the longest."""
    return [
        f"{sum(map(requests, files)):,}",
        about_bytes(sum(file["reads"]["bytes"] for file in files)),
        about_bytes(sum(file["writes"]["bytes"] for file in files)),
        about_bytes(_most(files, "extent_bytes")),
    ]


def _most(files: Sequence[_native.FileAccess], what: Literal["processes", "extent_bytes"]) -> int:
    return max(file[what] for file in files)
