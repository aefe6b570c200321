"""The cycle: run as it is, plan, apply, run again, compare, keep or take back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stripewise import _native, emulation, launch
from stripewise._native import StripewiseError
from stripewise.emulation import Statistics
from stripewise.optimize import cache
from stripewise.optimize.decide import Interval, Verdict, gain
from stripewise.optimize.measure import Requests, Split
from stripewise.optimize.place import Placement, Progress
from stripewise.pool import Pool

VERIFIED = re.compile(rb"^verified (\d+) bytes$", re.MULTILINE)
"""A program that checks its own data may say so in a line of its output; the bytes of all runs are added up."""


TRIES = 3
"""Runs that may be invalid in a row before it is given up: other work on the machine comes and goes."""


class ProgramFailedError(StripewiseError):
    """The program ended with an exit code other than 0."""

    def __init__(self, message: str, exit_code: int) -> None:
        """`exit_code` is the program's, as a shell gives it."""
        super().__init__(message)
        self.exit_code = exit_code


class InvalidRunError(StripewiseError):
    """The emulated devices could not keep their times, so there is no figure."""


@dataclass(frozen=True)
class Run:
    """One measured run."""

    trace: Path
    wall_s: float
    io: Split
    """Requests to files of the pool."""
    device_read_bytes: int
    """Really read from block devices by the program and its mount."""
    emulation: Statistics
    verified_bytes: int

    @property
    def from_cache_bytes(self) -> int:
        """Bytes read that no block device was asked for."""
        return max(0, self.io.read.bytes - self.device_read_bytes)


@dataclass
class Outcome:
    """What a cycle came to."""

    pool: Pool
    command: Sequence[str]
    directory: Path
    cache: str
    before: list[Run] = field(default_factory=list)
    after: list[Run] = field(default_factory=list)
    plan: _native.PlanDocument | None = None
    predicted: _native.Prediction | None = None
    placement: Placement | None = None
    io_gain: Interval | None = None
    wall_gain: Interval | None = None
    kept: bool = False
    why: str = ""

    @property
    def verified_bytes(self) -> int:
        """Checked by the program itself, in all runs, and by check sums of the files that were moved."""
        own = sum(run.verified_bytes for run in self.before + self.after)
        return own + (self.placement.checked_bytes if self.placement else 0)


@dataclass(frozen=True)
class Settings:
    """How a cycle is run."""

    runs: int = 2
    """Measured runs of each layout to begin with; at least 2, or there is no idea of noise."""
    max_runs: int = 5
    """Most runs of the new layout while it is not clear whether it is faster."""
    prepare: str | None = None
    """A shell command before each run, on the pool as the program is; not measured."""
    processes: float | None = None
    """Concurrency to plan for; from the trace if `None`."""
    planner: str = "auto"
    """The planner: a name of `stripewise planners`."""


def optimize(
    pool: Pool,
    command: Sequence[str],
    directory: Path,
    settings: Settings,
    say: Callable[[str], None],
    progress: Progress,
) -> Outcome:
    """Runs the whole cycle; traces, layouts and the way back are kept in `directory`, which must not exist.

    Raises `ProgramFailedError` and `InvalidRunError`; in both cases the layouts are then as they were before.
    """
    directory.mkdir(parents=True)
    cycle = _Cycle(pool, command, directory, settings, say)
    outcome = cycle.outcome
    for number in range(1, settings.runs + 1):
        outcome.before.append(cycle.run("before", number))
    cycle.plan()
    if outcome.plan is None or not outcome.plan["changes"]:
        outcome.why = "the present layout is already the best that was found"
        outcome.kept = True
        return outcome
    placement = outcome.placement = Placement(pool, directory, cycle.layout_file, progress)
    try:
        say("applying the new layout")
        placement.apply()
        cycle.measure_after()
    except KeyboardInterrupt:
        raise
    except BaseException:
        placement.take_back()
        raise
    if not outcome.kept:
        say("taking the new layout back")
        placement.take_back()
    return outcome


class _Cycle:
    def __init__(
        self, pool: Pool, command: Sequence[str], directory: Path, settings: Settings, say: Callable[[str], None]
    ) -> None:
        self.pool = pool
        self.command = command
        self.directory = directory
        self.settings = settings
        self.say = say
        self.outcome = Outcome(pool, command, directory, cache="")
        self.layout_file = directory / "new.layout"

    def run(self, when: str, number: int) -> Run:
        """One measured run; one during which the emulated devices were late does not count and is repeated."""
        for _ in range(TRIES):
            run = self._run_once(f"{when}-{number}")
            if run.emulation.is_valid:
                return run
        raise InvalidRunError(f"the emulated devices could not keep their times in {TRIES} runs: there is no figure")

    def _run_once(self, name: str) -> Run:
        if self.settings.prepare:
            self._checked(
                launch.run(["sh", "-c", self.settings.prepare], pool_file=self.pool.file, mount=self.pool.mount)
            )
        self.outcome.cache = cache.drop(self.pool)
        trace, output = self.directory / f"{name}.trace", self.directory / f"{name}.out"
        counters = emulation.snapshot(self.pool)
        with launch.recording_dir(trace) as records:
            ended = launch.run(
                self.command,
                pool_file=self.pool.file,
                mount=self.pool.mount,
                trace_dir=records,
                capture_stdout=output,
            )
            self._checked(ended)
            _native.trace_merge(str(records), str(trace))
        statistics = emulation.since(counters)
        requests = Requests(trace, self.pool.mount)
        run = Run(
            trace=trace,
            wall_s=ended.wall_s,
            io=requests.total(),
            device_read_bytes=ended.device_read_bytes,
            emulation=statistics,
            verified_bytes=sum(int(count) for count in VERIFIED.findall(output.read_bytes())),
        )
        if run.io.both.requests == 0:
            raise StripewiseError(
                f"'{self.command[0]}' read and wrote nothing below {self.pool.mount}, where pool '{self.pool.name}' "
                "is; give it paths there"
            )
        rate = run.io.both.bytes_per_s / (1 << 20)
        self.say(f"{name}: {run.io.both.busy_s:.2f} s of I/O at {rate:.1f} MiB/s, {run.wall_s:.2f} s in all")
        if statistics.verdict is not None:
            self.say(statistics.verdict["text"])
        return run

    def plan(self) -> None:
        self.say("planning")
        trace = _native.Trace(str(self.outcome.before[0].trace))
        plan = _native.plan(
            trace,
            str(self.pool.file),
            str(self.pool.mount),
            processes=self.settings.processes,
            planner=self.settings.planner,
        )
        self.say(f"planned by {plan['planner']}")
        if plan["limited_by_space"] is not None:
            self.say(plan["limited_by_space"])
        self.outcome.plan = plan
        self.layout_file.write_text(plan["layout"], encoding="utf-8")
        self.outcome.predicted = _native.predict(
            trace, str(self.pool.file), str(self.pool.mount), str(self.layout_file), plan["cuts_s"]
        )

    def measure_after(self) -> None:
        outcome, settings = self.outcome, self.settings
        for number in range(1, max(settings.runs, settings.max_runs) + 1):
            outcome.after.append(self.run("after", number))
            if number < settings.runs:
                continue
            outcome.io_gain = gain(
                [run.io.both.bytes_per_s for run in outcome.before], [run.io.both.bytes_per_s for run in outcome.after]
            )
            outcome.wall_gain = gain(
                [1 / run.wall_s for run in outcome.before], [1 / run.wall_s for run in outcome.after]
            )
            if outcome.io_gain.verdict is not Verdict.UNDECIDED:
                break
        self._decide()

    def _decide(self) -> None:
        outcome = self.outcome
        assert outcome.io_gain is not None and outcome.wall_gain is not None
        io = outcome.io_gain
        interval = f"{io.ratio:.2f}x, 95 % interval {io.low:.2f}x to {io.high:.2f}x"
        if io.verdict is Verdict.SLOWER:
            outcome.why = f"slower ({interval})"
        elif io.verdict is Verdict.UNDECIDED:
            outcome.why = f"not faster beyond noise ({interval} after {len(outcome.after)} runs)"
        elif outcome.wall_gain.verdict is Verdict.SLOWER:
            outcome.why = f"I/O is faster ({interval}), the whole program is slower ({outcome.wall_gain.ratio:.2f}x)"
        else:
            outcome.kept = True
            outcome.why = f"faster ({interval})"

    def _checked(self, ended: launch.Ended) -> None:
        if ended.interrupted:
            raise KeyboardInterrupt
        if ended.exit_code != 0:
            raise ProgramFailedError(
                f"'{self.command[0]}' failed with exit code {ended.exit_code}; nothing was decided", ended.exit_code
            )


def new_directory(parent: Path) -> Path:
    """A name below `parent` that is not taken, by date and time."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = parent / stamp
    number = 1
    while path.exists():
        number += 1
        path = parent / f"{stamp}-{number}"
    return path
