"""What all benchmarks share: what a figure is, how it is judged, how ratios are measured."""

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


class BenchmarkError(Exception):
    """Something did not run, or data was wrong: there is no figure, and `make bench` fails."""


class MissingError(Exception):
    """This machine lacks what a benchmark needs; the message says what and how to get it."""


@dataclass(frozen=True)
class Target:
    """What a figure is to reach."""

    least: float | None = None
    most: float | None = None

    def is_met(self, value: float) -> bool:
        """Whether `value` is within the bounds."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def text(self, unit: str) -> str:
        """For the table: `>= 12 x`."""
        bounds = [f">= {shown(self.least, unit)}"] if self.least is not None else []
        return " ".join([*bounds, f"<= {shown(self.most, unit)}"] if self.most is not None else bounds)


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    what: str
    value: float | None
    """`None` where the run was invalid: `note` says why."""
    unit: str = "x"
    low: float | None = None
    """Least and greatest of the repetitions; `value` is their median."""
    high: float | None = None
    target: Target | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """`None` where there is no target."""
        if self.target is None:
            return None
        return self.value is not None and self.target.is_met(self.value)


def shown(value: float | None, unit: str) -> str:
    """A number with three significant digits and its unit."""
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 20 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {unit}".rstrip()


def of_repetitions(
    what: str, values: Sequence[float], *, unit: str = "x", target: Target | None = None, note: str = ""
) -> Figure:
    """The median of repetitions with its spread."""
    return Figure(what, statistics.median(values), unit, min(values), max(values), target, note)


@dataclass(frozen=True)
class Context:
    """What a benchmark is given."""

    directory: Path
    """Empty, its own, removed afterwards; in memory where there is room."""
    disk: Path
    """The same on a disk."""
    quick: bool
    say: Callable[[str], None]
    """Tells the user what is being done, on standard error."""

    def rounds(self, usual: int) -> int:
        """How often to repeat a pair of runs."""
        return 1 if self.quick else usual


@dataclass(frozen=True)
class Benchmark:
    """One file of this directory."""

    name: str
    title: str
    """What is measured, in one line."""
    run: Callable[[Context], Iterator[Figure | str]]
    """Yields figures and remarks on them as they are ready. Raises `BenchmarkError` or `MissingError`."""

    @property
    def command(self) -> str:
        """What prints its figures."""
        return f"python -m benches {self.name}"


STRIPEWISE = (sys.executable, "-m", "stripewise")
ROOT = Path(__file__).resolve().parent.parent


def checked(command: Sequence[object], *, cwd: Path | None = None, accept: Sequence[int] = (0,)) -> str:
    """Runs a command (its parts as text) to its end and returns its standard output.

    Raises `BenchmarkError` with what it wrote when its exit code is not one of `accept`.
    """
    try:
        done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise MissingError(f"{command[0]} is not installed") from error
    if done.returncode not in accept:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise BenchmarkError(f"exit code {done.returncode} of: {' '.join(map(str, command))}\n{tail}")
    return done.stdout
