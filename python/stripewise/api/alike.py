"""Files of a plan that are named alike and laid out alike, as one row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stripewise import _native
from stripewise.naming import common_pattern

if TYPE_CHECKING:
    from stripewise._native import PlannedFile, PlannedRegion

_ENTRY = re.compile(r"(.+?)(?:\.([0-9]+)(?:-([0-9]+))?)?:(.+)")
"""An entry of a round: tier, first and last server, width."""


@dataclass(frozen=True)
class PlannedAlike:
    """Files whose names differ by numbers alone, and whose regions begin alike and are striped alike."""

    path: str
    """With `*` for the numbers in which they differ."""
    files: list[PlannedFile]
    """The one that moves most first."""

    @property
    def bytes(self) -> float:
        """What all of them move."""
        return sum(map(_moved, self.files))

    @property
    def regions(self) -> list[PlannedRegion]:
        """Those of the first, with the requests, bytes and costs of all."""
        return [_joined(of) for of in zip(*(file["regions"] for file in self.files), strict=True)]

    @property
    def sizes_bytes(self) -> list[int]:
        """Bytes of each region in all files."""
        of_regions = zip(*(file["regions"] for file in self.files), strict=True)
        return [sum(region["end"] - region["offset"] for region in of) for of in of_regions]

    @property
    def spread(self) -> bool:
        """The others are on other servers, striped alike."""
        first = [(region["round_before"], region["round"]) for region in self.files[0]["regions"]]
        return any(
            [(region["round_before"], region["round"]) for region in file["regions"]] != first for file in self.files
        )


def planned_alike(files: Iterable[PlannedFile], *, apart: bool = False) -> list[PlannedAlike]:
    """The files of a plan by their names but for numbers and their layouts, those that move most first.

    With `apart` each is by itself.
    """
    found: dict[tuple[object, ...], list[PlannedFile]] = {}
    for file in sorted(files, key=lambda file: (-_moved(file), file["path"])):
        name = file["path"] if apart else _native.path_pattern(file["path"])
        shapes = (
            (region["offset"], _shape(region["round_before"]), _shape(region["round"])) for region in file["regions"]
        )
        found.setdefault((name, *shapes), []).append(file)
    rows = [PlannedAlike(common_pattern([file["path"] for file in of]), of) for of in found.values()]
    return sorted(rows, key=lambda row: (-row.bytes, row.path))


def _moved(file: PlannedFile) -> float:
    return sum(region["read_bytes"] + region["write_bytes"] for region in file["regions"])


def _shape(entries: Iterable[str]) -> frozenset[tuple[tuple[str, str], int]]:
    """How many servers of which tier have stripes how wide, whichever they are."""
    shape: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        of = _ENTRY.fullmatch(entry)
        assert of is not None, entry
        tier, first, last, width = of.groups()
        shape[tier, width] += 1 if last is None else int(last) - int(first) + 1
    return frozenset(shape.items())


def _joined(regions: tuple[PlannedRegion, ...]) -> PlannedRegion:
    """The first, with the sums of all."""
    costs = [region["cost_s"] for region in regions]
    harl = [cost["harl"] for cost in costs]
    return {
        **regions[0],
        "requests": sum(region["requests"] for region in regions),
        "read_bytes": sum(region["read_bytes"] for region in regions),
        "write_bytes": sum(region["write_bytes"] for region in regions),
        "cost_s": {
            "default": sum(cost["default"] for cost in costs),
            "harl": None if None in harl else sum(cost_s for cost_s in harl if cost_s is not None),
            "plan": sum(cost["plan"] for cost in costs),
        },
    }
