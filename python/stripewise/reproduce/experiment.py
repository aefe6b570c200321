"""What an experiment is, and what comes out of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stripewise._native import StripewiseError

ROUNDS = 5
"""Runs of each layout, in turn; figures are medians."""
QUICK_SHARE = 1 / 256
"""Of an experiment's bytes, with `--quick`."""
QUICK_MEASURED_SHARE = 1 / 8
"""Of the reduced size that is measured."""


class UnknownExperimentError(StripewiseError):
    """There is no experiment of that name."""


def counted(runs: int) -> str:
    """`1 run`, `5 runs`."""
    return "1 run" if runs == 1 else f"{runs} runs"


@dataclass(frozen=True)
class Context:
    """How experiments are run."""

    directory: Path
    """Empty; pools are made there."""
    say: Callable[[str], None]
    simulate_only: bool = False
    quick: bool = False
    seed: int = 1

    @property
    def rounds(self) -> int:
        """Measured runs of each layout."""
        return 1 if self.quick else ROUNDS

    @property
    def share(self) -> float:
        """Of the paper's bytes that is simulated."""
        return QUICK_SHARE if self.quick else 1.0

    @property
    def measured_share(self) -> float:
        """Of the reduced bytes that is measured."""
        return QUICK_MEASURED_SHARE if self.quick else 1.0


@dataclass(frozen=True)
class Sample:
    """A measured figure: median, least and greatest of its runs."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        """Of one run at least."""
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class Cell:
    """One bar or point of the plot."""

    panel: str
    """Plots side by side, as the paper's (a) and (b): mostly `read` and `write`."""
    x: str
    layout: str
    simulated: float
    """In the unit of the result's `axis`, at the paper's scale."""
    measured: Sample | None = None
    expected: float | None = None
    """Simulated as it was measured: the same size, the network's time in the device as emulated servers have it."""


@dataclass(frozen=True)
class Row:
    """One of the paper's figures beside ours."""

    what: str
    paper: float | str | None
    """As the paper gives it; `None` where it is only in a plot."""
    simulated: float | str | None
    unit: str = ""
    measured: Sample | str | None = None
    expected: float | None = None
    why: str = ""
    """By how much ours differs, and why."""


@dataclass
class Result:
    """What an experiment came to."""

    experiment: Experiment
    axis: str
    """Of the cells' values: `MiB/s`."""
    setup: list[str] = field(default_factory=list)
    """Devices, workload, sizes: what the figures are of."""
    rows: list[Row] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    """What could not be measured, and why."""
    chart: Callable[[Result], Any] | None = None
    """Makes the plot where it is not the usual one."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper."""

    name: str
    paper: str
    figure: str
    """As the paper calls it: `Figure 7`."""
    title: str
    """What is compared, in one line."""
    emulated: bool
    """Whether it is also measured, on an emulated pool."""
    run: Callable[[Experiment, Context], Result]
