"""A plan with fewer moves: what would stay within its tier stays as it is.

A plan is made anew from the heat of each period, and gives cold parts of files other widths on the same servers for
next to nothing. What it gains comes from what changes its tier.

A move copies what changes its round, and nothing else: a region may be cut anywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stripewise import layouts
from stripewise.units import exact_bytes

if TYPE_CHECKING:
    from stripewise._native import ForecastFile, ForecastRegion

__all__ = ["FILE", "regions", "round_at", "text", "text_of"]

FILE = "\n[[file]]\n"
"""Where the text of a file begins in a layout file."""

MOST_REGIONS = 256
"""Of a file that would have more the planned regions are taken as they are."""


def regions(file: ForecastFile) -> list[tuple[int, list[str]]]:
    """Offset and round of each region: the planned one where the tiers change, or are several; else the present one."""
    cuts = {region["offset"] for side in (file["before"], file["after"]) for region in side}
    found: list[tuple[int, list[str]]] = []
    for offset in sorted(cuts):
        before, after = round_at(file["before"], offset), round_at(file["after"], offset)
        is_within = len(_tiers(before)) == 1 and _tiers(before) == _tiers(after)
        chosen = before if is_within else after
        if not found or found[-1][1] != chosen:
            found.append((offset, chosen))
    if len(found) > MOST_REGIONS:
        return [(region["offset"], region["round"]) for region in file["after"]]
    return found


def round_at(of: Sequence[ForecastRegion], offset: int) -> list[str]:
    """The round of the region that a byte is in. O(log regions)."""
    return of[bisect_right(of, offset, key=lambda region: region["offset"]) - 1]["round"]


def text(file: ForecastFile) -> str:
    """The file with these regions, as it stands in a layout file."""
    return text_of(file["path"], regions(file))


def text_of(path: str, found: Sequence[tuple[int, Sequence[str]]]) -> str:
    """A file with the offset and round of each region, as it stands in a layout file."""
    lines = [f"{FILE}path = {_quoted(layouts.exact(path))}\n"]
    for offset, stripes in found:
        rounds = ", ".join(map(_quoted, stripes))
        lines.append(f'[[file.region]]\noffset = "{exact_bytes(offset)}"\nround = [{rounds}]\n')
    return "".join(lines)


def _quoted(of: str) -> str:
    """As a basic string of TOML."""
    escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 0x20 or ord(c) == 0x7F else c for c in of.replace("\\", "\\\\"))
    return '"' + escaped.replace('"', '\\"') + '"'


def _tiers(stripes: Sequence[str]) -> set[str]:
    return {stripe.rpartition(":")[0].partition(".")[0] for stripe in stripes}
