"""Moves in parts: a change of a file's layout step by step, or only what gains most per byte of it.

A region may be cut anywhere, as the phase of its round counts from the start of the file. So each part is a layout of
its own, in which all other bytes stay where they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from stripewise.api.least_moves import round_at, text_of
from stripewise.api.shares import servers

if TYPE_CHECKING:
    from stripewise._native import FileHeat, ForecastFile, PoolHeat

__all__ = ["Part", "chosen", "most_gain", "moved_s", "parts", "steps", "text"]

STEP_BYTES = 256 << 20
"""Of a file that are moved at once; a move that is stopped keeps the steps before."""
MOST_STEPS = 16
"""Of a file: each may cost one of the cuts that its handle holds."""
MOST_DATAFILES = 64
"""That all steps of a file make: lengths are recorded of few more, and what is lost reads as a hole without."""
MOST_PARTS = 64
"""Of a file that are compared with each other."""

FOREVER = 1 << 63
"""Behind all bytes."""

Stretch = tuple[int, int]


@dataclass(frozen=True)
class Part:
    """A stretch of a file that may change its place."""

    path: str
    begin: int
    end: int
    heat_us: float

    @property
    def size_bytes(self) -> int:
        """What is copied for it."""
        return self.end - self.begin


def changes(file: ForecastFile, size_bytes: int) -> list[Stretch]:
    """Where bytes change their place; stretches do not touch each other."""
    found: list[Stretch] = []
    cuts = {region["offset"] for side in (file["before"], file["after"]) for region in side}
    for begin, end in pairwise([*sorted(cut for cut in cuts if cut < size_bytes), size_bytes]):
        if round_at(file["before"], begin) == round_at(file["after"], begin):
            continue
        if found and found[-1][1] == begin:
            begin = found.pop()[0]
        found.append((begin, end))
    return found


def _cut(stretches: Iterable[Stretch], most_bytes: int) -> Iterator[Stretch]:
    """The same bytes, cut at multiples of `most_bytes`."""
    for begin, end in stretches:
        while begin < end:
            until = min(end, (begin // most_bytes + 1) * most_bytes)
            yield begin, until
            begin = until


def steps(file: ForecastFile, size_bytes: int, most_bytes: int | None = None) -> list[str]:
    """The file's text in a layout file for each step of its move, the last of which is all of it.

    With `most_bytes` a step copies no more than that, unless there were too many of them.
    """
    changed = changes(file, size_bytes)
    in_all = sum(end - begin for begin, end in changed)
    widest = max(servers(region["round"]) for region in file["after"])
    most_steps = min(MOST_STEPS, max(1, MOST_DATAFILES // widest))
    step_bytes = max(STEP_BYTES if most_bytes is None else min(STEP_BYTES, most_bytes), -(-in_all // most_steps))
    taken: list[Stretch] = []
    found: list[str] = []
    moved = 0
    for begin, end in _cut(changed, step_bytes):
        if moved and moved + end - begin > step_bytes:
            found.append(text(file, taken, size_bytes))
            moved = 0
        taken.append((begin, end))
        moved += end - begin
    whole = [(region["offset"], region["round"]) for region in file["after"]]
    return [*found, text_of(file["path"], whole)]


def text(file: ForecastFile, taken: Iterable[Stretch], size_bytes: int) -> str:
    """The file as it stands in a layout file, with the new round in the stretches, and the present one elsewhere.

    What comes to the end of the file later goes where its last bytes are.
    """
    taken = [(begin, end if end < size_bytes else FOREVER) for begin, end in taken]
    cuts = {region["offset"] for side in (file["before"], file["after"]) for region in side}
    cuts |= {cut for stretch in taken for cut in stretch if cut < FOREVER}
    regions: list[tuple[int, Sequence[str]]] = []
    for offset in sorted(cuts):
        is_taken = any(begin <= offset < end for begin, end in taken)
        stripes = round_at(file["after"] if is_taken else file["before"], offset)
        if not regions or regions[-1][1] != stripes:
            regions.append((offset, stripes))
    return text_of(file["path"], regions)


@dataclass(frozen=True)
class Hot:
    """The heat of a pool by path."""

    block_bytes: int
    files: Mapping[str, FileHeat]

    @classmethod
    def of(cls, heat: PoolHeat) -> Hot:
        """O(files)."""
        return cls(heat["block_bytes"], {of["path"]: of for of in heat["files"]})


def parts(file: ForecastFile, hot: Hot) -> list[Part]:
    """What changes its place in a file that has heat, cut by blocks. O(its blocks, and parts)."""
    found = hot.files.get(file["path"])
    if found is None:
        return []
    size_bytes, block_bytes = found["size_bytes"], hot.block_bytes
    part_bytes = block_bytes
    while part_bytes * MOST_PARTS < size_bytes:
        part_bytes *= 2
    costs: dict[int, float] = {}
    for block, cost_us in found["blocks"]:
        of = block * block_bytes // part_bytes
        costs[of] = costs.get(of, 0.0) + cost_us
    result = []
    for begin, end in _cut(changes(file, size_bytes), part_bytes):
        held = min(part_bytes, size_bytes - begin // part_bytes * part_bytes)
        result.append(Part(file["path"], begin, end, costs.get(begin // part_bytes, 0.0) * (end - begin) / held))
    return result


def moved_s(hot: Hot, files: Iterable[ForecastFile]) -> float:
    """The heat, in seconds, of what gets another place when files get other layouts.

    Heat of a block is spread evenly over its bytes. O(blocks with heat of these files, log regions each).
    """
    known = ((of, hot.files.get(of["path"])) for of in files)
    return sum(_moved_us(found, hot.block_bytes, of) for of, found in known if found is not None) / 1e6


def _moved_us(file: FileHeat, block_bytes: int, change: ForecastFile) -> float:
    changed = changes(change, file["size_bytes"])
    found = 0.0
    for block, cost_us in file["blocks"]:
        begin = block * block_bytes
        end = max(begin + 1, min(begin + block_bytes, file["size_bytes"]))
        number = bisect_right(changed, begin, key=lambda stretch: stretch[1])
        while number < len(changed) and changed[number][0] < end:
            found += cost_us * (min(end, changed[number][1]) - max(begin, changed[number][0])) / (end - begin)
            number += 1
    return found


def most_gain(found: Iterable[Part], most_bytes: float) -> list[Part]:
    """Those with the most heat per byte, no more than `most_bytes`; what has none gains nothing.

    O(parts log of them).
    """
    taken, left = [], most_bytes
    hot = [part for part in found if part.heat_us > 0]
    for part in sorted(hot, key=lambda of: (-of.heat_us / of.size_bytes, of.path, of.begin)):
        if part.size_bytes <= left:
            taken.append(part)
            left -= part.size_bytes
    return taken


def chosen(files: Iterable[ForecastFile], taken: Iterable[Part]) -> str:
    """The files in a layout file: of each the parts that are taken."""
    stretches: dict[str, list[Stretch]] = {}
    for part in taken:
        stretches.setdefault(part.path, []).append((part.begin, part.end))
    return "".join(text(file, stretches.get(file["path"], ()), file["size_bytes"]) for file in files)
