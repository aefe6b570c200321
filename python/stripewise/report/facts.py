"""What a report is made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stripewise import _native
from stripewise.exporters.advised import Native
from stripewise.terminal import middle

MOST_FILES = 3
"""Files that get pictures of their own: those of which most bytes are moved."""
COLUMNS, ROWS = 160, 80
"""Most cells of a heat map: each is some pixels wide on the page."""


@dataclass(frozen=True)
class Servers:
    """The servers that layouts are for."""

    file: Path | None
    """A pool file or a cluster file; `None`: those that the log shows."""
    is_pool: bool
    label: str
    """What kind they are, such as `emulated servers`."""


@dataclass(frozen=True)
class Adapted:
    """What a pool keeps of its heat, and what `adapt` has decided by it."""

    heat: list[tuple[str, int, list[float]]]
    """The hottest files with what accesses have cost in microseconds, and that of equal parts for each byte."""
    decisions: list[dict[str, Any]]
    """The oldest first, as the pool keeps them."""


@dataclass(frozen=True)
class Facts:
    """All that the sections draw."""

    source: Path
    part: str
    """What of the log this is, in words; empty: all of it."""
    about: _native.TraceAbout
    job: _native.AdviseJob
    files: list[str]
    programs: list[str]
    access: _native.Access
    total: dict[str, Any]
    """What all files together moved: an entry of the summary of a trace."""
    signatures: dict[int, _native.FileSignature]
    """How each file is used, by its number."""
    servers: Servers
    layout: Path | None
    """The layout file that was given; `None`: what is drawn is what is advised."""
    advice: _native.AdviceDocument | None
    given: _native.AdviceDocument | None
    """The job and its figures under the layout file that was given."""
    no_advice: str
    """Why there is none."""
    load: _native.ServerLoad | None
    native: Native | None
    """The layouts in the commands of the file system."""
    adapted: Adapted | None
    meta_load: _native.MetaLoad | None
    """Of a pool."""
    """Of a pool."""

    @property
    def changes(self) -> bool:
        """Whether any file gets another layout than it has."""
        return self.load is not None and any(file["present"] != file["layout"] for file in self.load["files"])

    @property
    def loaded(self) -> dict[int, _native.LoadedFile]:
        """Files with layouts, by their numbers."""
        return {file["file"]: file for file in self.load["files"]} if self.load is not None else {}

    def borders(self, file: int) -> list[int]:
        """Where regions of the file's layout begin, but the first."""
        loaded = self.loaded.get(file)
        return [region["offset"] for region in loaded["layout"][1:]] if loaded is not None else []

    @property
    def has_ranks(self) -> bool:
        """Whether places of processes are ranks: one program whose ranks are counted from 0 without a gap."""
        processes = self.access["processes"]
        ranks = [process["rank"] for process in processes]
        return ranks == list(range(len(ranks))) and len({process["program"] for process in processes}) == 1

    @property
    def unit(self) -> str:
        """What a place is called."""
        return "rank" if self.has_ranks and len(self.access["processes"]) > 1 else "process"

    @property
    def units(self) -> str:
        """What several are called."""
        return "ranks" if self.unit == "rank" else "processes"

    def process_name(self, place: int) -> str:
        """`rank 3` or `process 4711`, with its program where there are several."""
        process = self.access["processes"][place]
        name = f"rank {process['rank']}" if self.unit == "rank" or not process["pid"] else f"process {process['pid']}"
        return name if len(self.programs) < 2 else f"{self.programs[process['program']]}, {name}"


def moved(loads: _native.FileAccess | _native.ProcessAccess | _native.SizeAccess) -> int:
    """Bytes read and written."""
    return loads["reads"]["bytes"] + loads["writes"]["bytes"]


def requests(loads: _native.FileAccess | _native.ProcessAccess | _native.SizeAccess) -> int:
    """Reads and writes."""
    return loads["reads"]["requests"] + loads["writes"]["requests"]


def short(path: str, most: int = 60) -> str:
    """A path without its middle, where all of it is too long for a heading."""
    return middle(path, most)
